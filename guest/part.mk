# hutch-init and its image.  Static, without the sanitizers, and always in
# build/guest: it runs in the guest whatever the host's programs are built for.
#
#   make guest      build/guest/hutch-init and build/guest/init.erofs

GUEST := build/guest
GUEST_CBOR := build/images/libcbor

GUEST_CORE_SRCS := $(addprefix guest/,port.c loop.c wire.c payload.c stream.c json.c \
	ended.c cgroup.c nest.c dying.c path.c spawn.c lane_page.c world.c link.c command.c \
	pipes.c exec.c report.c runner.c zygote.c spare.c refill.c runner_files.c runner_lane.c \
	lane_bell.c prepare.c bind.c session.c \
	file_path.c file_list.c file_call.c files.c)
GUEST_SRCS := guest/main.c $(GUEST_CORE_SRCS) \
	$(addprefix api/base/,fd.c bytes.c frame.c)
GUEST_RUNNERS := $(addprefix guest/runner/,python.py node.js shell.sh)

# No PIE: relocations touch pages, and the file is alone in its address space.
GUEST_CFLAGS := $(CSTD) $(WARN) -fstack-protector-strong \
	-fstack-clash-protection -fno-strict-overflow \
	-fno-delete-null-pointer-checks -D_FORTIFY_SOURCE=2 -O2 -g -fno-pie \
	-ffile-prefix-map=$(CURDIR)=. \
	-ffunction-sections -fdata-sections -Iapi -Iapi/base \
	-isystem $(GUEST_CBOR)/include
GUEST_LDFLAGS := -static -no-pie -Wl,--gc-sections -Wl,-z,noexecstack \
	-Wl,-z,relro,-z,now
GUEST_CC := gcc

GUEST_OBJS := $(GUEST_SRCS:%.c=$(GUEST)/obj/%.o)
DEPS += $(GUEST_OBJS:.o=.d)

$(GUEST)/obj/%.o: %.c guest/part.mk
	@mkdir -p $(@D)
	@echo "  CC      $< (guest)"
	$(Q)$(GUEST_CC) $(GUEST_CFLAGS) -MMD -MP -c -o $@ $<

# libcbor comes as a static archive from images/.
$(GUEST_OBJS): | $(GUEST_CBOR)/lib/libcbor.a

$(GUEST)/hutch-init: $(GUEST_OBJS)
	@echo "  LD      $@"
	$(Q)$(GUEST_CC) $(GUEST_LDFLAGS) -o $@ $^ $(GUEST_CBOR)/lib/libcbor.a

# What a runner loads to use its express lane: lane.so by ctypes, lane.node by
# Node-API, whose functions node itself has.  Only lane_call.h's and Node-API's
# entries are seen from outside; of the archive the few members that are needed
# are in.  In test/ with a bell in place of the port, for tests of this machine.
GUEST_LANE_SRCS := guest/runner/lane.c \
	$(addprefix guest/,wire.c payload.c stream.c json.c ended.c) \
	$(addprefix api/base/,fd.c bytes.c frame.c)
GUEST_LANE_NODE_SRCS := guest/runner/lane_node.c $(GUEST_LANE_SRCS)
GUEST_LANE_LDFLAGS := -shared -Wl,--gc-sections,--exclude-libs,ALL \
	-Wl,-z,relro,-z,now,-z,noexecstack

# $(call guest_lane,FOLDER,NAME,SOURCES,EXTRA LDFLAGS): FOLDER is / or /test/.
define guest_lane
$(GUEST)$(1)$(2): $(3:%.c=$(GUEST)/pic$(1)%.o)
	@mkdir -p $$(@D)
	@echo "  LD      $$@"
	$(Q)$(GUEST_CC) $(GUEST_LANE_LDFLAGS) $(4) -o $$@ $$^ \
		$(GUEST_CBOR)/lib/libcbor.a
endef

# $(call guest_pic,FOLDER,EXTRA CFLAGS)
define guest_pic
$(GUEST)/pic$(1)%.o: %.c guest/part.mk
	@mkdir -p $$(@D)
	@echo "  CC      $$< (lane)"
	$(Q)$(GUEST_CC) $(filter-out -fno-pie,$(GUEST_CFLAGS)) -fPIC \
		-fvisibility=hidden $(2) -MMD -MP -c -o $$@ $$<

$(GUEST_LANE_NODE_SRCS:%.c=$(GUEST)/pic$(1)%.o): | $(GUEST_CBOR)/lib/libcbor.a
DEPS += $(GUEST_LANE_NODE_SRCS:%.c=$(GUEST)/pic$(1)%.d)
endef

$(eval $(call guest_pic,/test/,-include tests/guest/lane_bell.h))
$(eval $(call guest_pic,/,))
GUEST_DEFS := -Wl,-z,defs
GUEST_LANES := $(GUEST)/lane.so $(GUEST)/lane.node
GUEST_TEST_LANES := $(GUEST)/test/lane.so $(GUEST)/test/lane.node
$(foreach f,/ /test/,\
	$(eval $(call guest_lane,$(f),lane.so,$(GUEST_LANE_SRCS),$(GUEST_DEFS)))\
	$(eval $(call guest_lane,$(f),lane.node,$(GUEST_LANE_NODE_SRCS),)))

# What an interpreter that waits for its command line is started with.
GUEST_SPARE_SRCS := $(addprefix guest/,runner/spare.c runner/spare_python.c path.c) \
	api/base/fd.c
DEPS += $(GUEST_SPARE_SRCS:%.c=$(GUEST)/pic/%.d)
$(eval $(call guest_lane,/,spare.so,$(GUEST_SPARE_SRCS),$(GUEST_DEFS)))
GUEST_LIBS := $(GUEST_LANES) $(GUEST)/spare.so

# One fixed UUID and time: the same inputs give the same bytes.
GUEST_UUID := 6d1c3a52-7f0e-4b7a-9d55-68757463681a
GUEST_EPOCH := 1704067200

$(GUEST)/init.erofs: $(GUEST)/hutch-init $(GUEST_LIBS) $(GUEST_RUNNERS) \
		guest/mkinit
	@echo "  EROFS   $@"
	$(Q)guest/mkinit $(GUEST)/hutch-init $(GUEST) guest/runner $@ \
		$(GUEST_UUID) $(GUEST_EPOCH)

# Process 1 of a guest of its own: does the lane's page move?
GUEST_FRAME_OBJS := $(addprefix $(GUEST)/obj/,tests/guest/lane_frame.o \
	guest/lane_page.o guest/port.o api/base/fd.o)
DEPS += $(GUEST)/obj/tests/guest/lane_frame.d

$(GUEST)/test/lane-frame: $(GUEST_FRAME_OBJS)
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(GUEST_CC) $(GUEST_LDFLAGS) -o $@ $^

$(GUEST)/test/frame.erofs: $(GUEST)/test/lane-frame $(GUEST_LIBS) guest/mkinit
	@echo "  EROFS   $@"
	$(Q)guest/mkinit $< $(GUEST) guest/runner $@ $(GUEST_UUID) \
		$(GUEST_EPOCH)

guest: $(GUEST)/init.erofs $(GUEST_TEST_LANES) $(GUEST)/test/frame.erofs

.PHONY: guest

# ---- unit tests: the same sources as ordinary programs of the host -------

guest_tests := wire stream json cgroup command spawn session dying \
	runner_lane lane lane_bell zygote spare refill files
UNIT_TESTS += $(guest_tests:%=tests/guest/%_test)

# $(call guest_test,NAME): NAME_test.c includes NAME.c
define guest_test
$(call program,tests/guest/$(1)_test,guest/$(1)_test.c \
	$(filter-out guest/$(1).c,$(GUEST_CORE_SRCS)) \
	$(addprefix api/base/,fd.c bytes.c frame.c),-lcbor -lcmocka)
endef
$(foreach t,$(guest_tests),$(eval $(call guest_test,$(t))))
