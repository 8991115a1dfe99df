# The loop, the clock and the engine.  Included by hostd/part.mk.

LOOP_SRCS := $(addprefix hostd/,loop.c loop_timer.c loop_work.c clock.c)
LOOP_LIBS := -luring -lpthread
ENGINE_SRCS := $(addprefix hostd/engine/,state.c id.c output.c limits.c \
	admit.c wait.c run.c live.c read.c engine.c) $(LOOP_SRCS)
ENGINE_LIBS := $(LOOP_LIBS) -lcrypto

UNIT_TESTS += tests/hostd/loop_test
$(eval $(call program,tests/hostd/loop_test,hostd/loop_test.c hostd/clock.c \
	$(BASE_SRCS),$(LOOP_LIBS) -lcmocka))
