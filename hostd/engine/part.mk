# The loop, the clock and the engine.  Included by hostd/part.mk.

LOOP_SRCS := $(addprefix hostd/,loop.c loop_timer.c loop_work.c clock.c)
LOOP_LIBS := -luring -lpthread
BLOB_SRCS := $(addprefix hostd/blob/,blob.c blob_write.c blob_read.c)
ENGINE_SRCS := $(addprefix hostd/engine/,state.c id.c output.c limits.c \
	admit.c pool.c pool_target.c wait.c box.c begin.c run.c from.c \
	template.c update.c write.c \
	settle.c live.c stop.c file.c file_path.c intake.c upload.c move.c \
	keep.c import.c fill.c graph_file.c snapshot_ask.c snapshot.c \
	snapshot_read.c snapshot_expiry.c space.c read.c engine.c) \
	$(BLOB_SRCS) $(LOOP_SRCS)
ENGINE_LIBS := $(LOOP_LIBS) -lcrypto

UNIT_TESTS += $(addprefix tests/hostd/,loop_test state_test output_test)
$(eval $(call program,tests/hostd/loop_test,hostd/loop_test.c hostd/clock.c \
	$(BASE_SRCS),$(LOOP_LIBS) -lcmocka))
$(eval $(call program,tests/hostd/state_test,hostd/engine/state_test.c \
	hostd/store/record.c $(BASE_SRCS),-lcmocka))
$(eval $(call program,tests/hostd/output_test,hostd/engine/output_test.c \
	$(BASE_SRCS),-lcmocka))

UNIT_TESTS += tests/hostd/blob_test
$(eval $(call program,tests/hostd/blob_test,hostd/blob/blob_test.c \
	$(BLOB_SRCS) hostd/image/filehash.c hostd/image/sparse.c $(LOOP_SRCS) \
	$(BASE_SRCS),$(LOOP_LIBS) -lcrypto -lcmocka))

# The engine with a real loop and store, and VMs of the tests; a clock that
# can be moved.
engine_tests := engine engine_keys engine_life engine_race engine_pool \
	engine_held engine_held_end engine_stop engine_snapshot \
	engine_snapshot_keep engine_file engine_template engine_update \
	engine_graph_file engine_fill engine_template_files
engine_test_srcs := hostd/engine/engine_test_util.c \
	hostd/engine/engine_snapshot_fake.c hostd/engine/engine_file_fake.c \
	hostd/engine/engine_held_util.c hostd/engine/engine_snapshot_util.c \
	hostd/engine/engine_graph_file_util.c \
	$(filter-out %_test.c %_fuzz.c,$(wildcard hostd/store/*.c)) \
	$(filter-out hostd/clock.c,$(ENGINE_SRCS)) hostd/clock_movable.c \
	hostd/image/filehash.c hostd/image/sparse.c \
	$(addprefix hostd/http/,json_raw.c json_read.c json_str.c utf8.c) \
	$(BASE_SRCS)
UNIT_TESTS += $(engine_tests:%=tests/hostd/%_test)
$(foreach t,$(engine_tests),$(eval $(call program,tests/hostd/$(t)_test,\
	hostd/engine/$(t)_test.c $(engine_test_srcs),\
	$(ENGINE_LIBS) -lsqlite3 -lcbor -lcmocka)))

UNIT_TESTS += tests/hostd/engine_nomem_test
$(eval $(call program,tests/hostd/engine_nomem_test,\
	hostd/engine/engine_nomem_test.c $(engine_test_srcs),\
	$(ENGINE_LIBS) -lsqlite3 -lcbor -lcmocka \
	$(addprefix -Wl$(,)--wrap=,malloc calloc realloc)))
