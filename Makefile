# hutch: one non-recursive Makefile; each program has a part.mk.
#
#   make            build everything          make check   all tests
#   make demo       one call, end to end      make help    all targets
#
# Variables: V=1 show commands, SAN=1 ASan and UBSan (build/san), FUZZ=1
# libFuzzer (build/fuzz), CC=clang, DESTDIR=, T=pattern (tests to run).
#
# What a part.mk may add to (all are lists of names under $(B)):
#   PROGRAMS     built by `make`
#   UNIT_TESTS   cmocka programs, run by `make check`, plain and under SAN=1
#   FUZZ_TARGETS filled by the macro fuzz_target below

MAKEFLAGS += -rR --no-builtin-variables
.DELETE_ON_ERROR:
.SUFFIXES:

CC := $(if $(FUZZ),clang,gcc)
PKG_CONFIG := pkg-config
B := build$(if $(SAN),/san)$(if $(FUZZ),/fuzz)
Q := $(if $(V),,@)
, := ,
prefix := /usr/local

CSTD := -std=gnu11 -D_GNU_SOURCE
WARN := -Wall -Wextra -Wshadow -Wswitch-enum -Wimplicit-fallthrough \
	-Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wcast-qual \
	-Wvla -Wformat=2 -Werror
HARDEN := -fstack-protector-strong -fstack-clash-protection \
	-fno-strict-overflow -fno-delete-null-pointer-checks \
	$(if $(SAN)$(FUZZ),,-D_FORTIFY_SOURCE=2)
# The same program from any folder: snapshots are kept by its hash.
OPT := -O2 -g -ffile-prefix-map=$(CURDIR)=.
SANFLAGS := $(if $(SAN)$(FUZZ),-fsanitize=address$(,)undefined \
	-fno-sanitize-recover=undefined -fno-omit-frame-pointer) \
	$(if $(FUZZ),-fsanitize=fuzzer-no-link)
CFLAGS = $(CSTD) $(WARN) $(HARDEN) $(OPT) $(SANFLAGS) -fPIE -Iapi -Iapi/base \
	-I$(B)/gen
LDFLAGS := -pie -Wl,-z,relro,-z,now,-z,noexecstack $(SANFLAGS)

# First, so that it is the goal of a plain `make`.
all: programs guest

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

# $(call fuzz_target,NAME,SOURCES,LIBS,EXTRA CFLAGS): SOURCES hold
# LLVMFuzzerTestOneInput and call fuzz_reach() (tests/fuzz/fuzz.h).  With
# FUZZ=1 libFuzzer drives $(B)/fuzz/NAME; otherwise it replays the files of
# tests/fuzz/corpus/NAME, and `make check` runs it so.
define fuzz_target
FUZZ_TARGETS += $(1)
$(call program,fuzz/$(1),$(2) tests/fuzz/reach.c \
	$(if $(FUZZ),,tests/fuzz/replay.c),$(3) \
	$(if $(FUZZ),-fsanitize=fuzzer),-Itests/fuzz $(4))
endef

$(B)/obj/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

BASE_SRCS := $(addprefix api/base/,err.c log.c fd.c bytes.c frame.c fault.c)
PROGRAMS :=
UNIT_TESTS :=
FUZZ_TARGETS :=

include $(wildcard api/part.mk api/sdk/part.mk vmm/part.mk guest/part.mk \
	hostd/part.mk tools/part.mk images/part.mk tests/part.mk)
-include $(DEPS)

# Another compiler or other flags rebuild everything: the file changes only
# when they do.
FLAGS_NOW := $(CC) $(CFLAGS) $(LDFLAGS)
$(B)/flags: force
	@mkdir -p $(@D)
	@echo '$(FLAGS_NOW)' | cmp -s - $@ || echo '$(FLAGS_NOW)' > $@

programs: $(addprefix $(B)/,$(PROGRAMS))

# The tests as programs, and the lists that tests/run.py reads.
unit-tests: $(addprefix $(B)/,$(UNIT_TESTS)) \
		$(addprefix $(B)/fuzz/,$(FUZZ_TARGETS))
	@printf '%s\n' $(UNIT_TESTS) > $(B)/unit-tests.list
	@printf '%s\n' $(FUZZ_TARGETS) > $(B)/fuzz-targets.list

fuzz-targets: $(addprefix $(B)/fuzz/,$(FUZZ_TARGETS))
	@printf '%s\n' $(FUZZ_TARGETS) > $(B)/fuzz-targets.list

# ---- targets for people ------------------------------------------------
# demo, check, check-long, check-stock and bench do all set-up themselves:
# packages (needs root), build, images, then go.  They call make again,
# because libraries are looked up when the Makefile is read.

SUB = +$(Q)$(MAKE) --no-print-directory
# Compiles use all processors unless the caller said otherwise.
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))

deps:
	@tools/deps

setup:
	@tools/deps
	$(SUB) images
	$(SUB) images-workflow || echo "examples/workflow: its packages are not \
	to be had; its test is skipped"
	$(SUB) $(JOBS) all

demo: setup
	@tools/demo/run $(B)

check: setup
	$(SUB) sdk
	$(SUB) mcp-client
	$(SUB) images-schemathesis || echo "schemathesis is not to be had; its \
	test is skipped"
	$(SUB) $(JOBS) unit-tests
	$(SUB) $(JOBS) SAN=1 unit-tests
	+@! command -v clang >/dev/null || \
		$(MAKE) --no-print-directory $(JOBS) FUZZ=1 fuzz-targets
	@tests/run.py $(if $(T),--only '$(T)')

check-long: setup
	$(SUB) sdk
	$(SUB) mcp-client
	$(SUB) images-schemathesis || echo "schemathesis is not to be had; its \
	test is skipped"
	$(SUB) $(JOBS) unit-tests
	$(SUB) $(JOBS) SAN=1 unit-tests
	@tests/run.py --long $(if $(T),--only '$(T)')

check-source:
	@tools/check-source
	@api/openapi/table.py

check-stock: setup
	@tests/run.py --group stock

bench: setup
	$(SUB) $(addprefix $(B)/,$(BENCH_PROGRAMS))
	@tools/bench/run $(B)

# FUZZ_SECONDS for each target; a crash input stays in build/fuzz/crashes.
FUZZ_SECONDS := 60
fuzz:
	@tools/deps
	$(SUB) $(JOBS) FUZZ=1 fuzz-targets
	@tests/fuzz/run $(FUZZ_SECONDS) $(T)

tidy:
	@tools/tidy $(CSTD) -Iapi -Iapi/base -Itests/fuzz

format:
	@git ls-files -co --exclude-standard '*.c' '*.h' | \
		xargs -r clang-format -i

install: all
	@tools/install '$(DESTDIR)' '$(prefix)' $(B)

clean:
	rm -rf $(addprefix build/,obj san fuzz tests gen flags demo hutch* \
		guest *.list)

help:
	@cat tools/help.txt

.PHONY: all programs unit-tests fuzz-targets deps setup demo check check-long \
	check-source check-stock bench fuzz tidy format install clean help \
	images force
