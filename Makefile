# hutch: one non-recursive Makefile; each program has a part.mk.
#
#   make            build everything          make check   all tests
#   make demo       one call, end to end      make help    all targets
#
# Variables: V=1 show commands, SAN=1 ASan and UBSan, CC=clang, DESTDIR=.

MAKEFLAGS += -rR --no-builtin-variables
.DELETE_ON_ERROR:
.SUFFIXES:

CC := gcc
PKG_CONFIG := pkg-config
B := build$(if $(SAN),/san)
Q := $(if $(V),,@)
prefix := /usr/local

CSTD := -std=gnu11 -D_GNU_SOURCE
WARN := -Wall -Wextra -Wshadow -Wswitch-enum -Wimplicit-fallthrough \
	-Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wcast-qual \
	-Wvla -Wformat=2 -Werror
HARDEN := -fstack-protector-strong -fstack-clash-protection \
	-fno-strict-overflow -fno-delete-null-pointer-checks \
	$(if $(SAN),,-D_FORTIFY_SOURCE=2)
OPT := -O2 -g
SANFLAGS := $(if $(SAN),-fsanitize=address$(,)undefined \
	-fno-sanitize-recover=undefined -fno-omit-frame-pointer)
, := ,
CFLAGS = $(CSTD) $(WARN) $(HARDEN) $(OPT) $(SANFLAGS) -fPIE -Iapi -Iapi/base \
	-I$(B)/gen
LDFLAGS := -pie -Wl,-z,relro,-z,now,-z,noexecstack $(SANFLAGS)

all:

# $(call program,NAME,SOURCES,LIBS,EXTRA CFLAGS): builds $(B)/NAME from
# objects under $(B)/obj.  NAME may hold folders (tests/queue_test).
define program
$(B)/$(1): $(patsubst %.c,$(B)/obj/%.o,$(2))
	@mkdir -p $$(@D)
	@echo "  LD      $$@"
	$(Q)$(CC) $(LDFLAGS) -o $$@ $$^ $(3)
$(foreach s,$(2),$(eval $(B)/obj/$(s:.c=.o): CFLAGS += $(4)))
DEPS += $(patsubst %.c,$(B)/obj/%.d,$(2))
endef

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

BASE_SRCS := $(addprefix api/base/,err.c log.c fd.c bytes.c frame.c)
# Unit tests (cmocka programs): run by `make check`.
UNIT_TESTS :=

include $(wildcard api/part.mk vmm/part.mk guest/part.mk hostd/part.mk \
	tools/part.mk images/part.mk tests/part.mk)

# $(call unit_test,path/foo_test,MORE SOURCES,LIBS)
-include $(DEPS)

clean:
	rm -rf build/obj build/san build/tests build/gen build/hutch* build/guest

.PHONY: all clean
