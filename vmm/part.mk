# hutch-vmm: one process = one VM.
include $(wildcard vmm/virtio/part.mk)

VMM_CORE_SRCS := $(addprefix vmm/,options.c options_open.c kvm.c \
	kvm_probe.c vm.c vcpu.c bus.c lanes.c guest_log.c notice.c control.c \
	thread.c trace.c confine.c confine_seccomp.c)
VMM_X86_SRCS := $(addprefix vmm/x86/,elf.c boot.c mptable.c cmdline.c cpuid.c \
	ioapic.c pvxsave.c)
VMM_SNAPSHOT_SRCS := $(addprefix vmm/snapshot/,sha256.c codec.c sealed.c \
	state.c profile.c vcpu_state.c memfile.c touched.c snapshot.c)
VMM_SRCS := vmm/main.c $(VMM_CORE_SRCS) $(VMM_X86_SRCS) \
	$(VMM_SNAPSHOT_SRCS) $(VMM_DEV_SRCS) $(BASE_SRCS)
VMM_LIBS := -l:liburing.a -lcbor -lseccomp -lcap-ng -lpthread

$(eval $(call program,hutch-vmm,$(VMM_SRCS),$(VMM_LIBS)))

PROGRAMS += hutch-vmm

# Guests without an operating system (tests, bench): ELF kernels at 1 MiB.
define tiny_guest
$(B)/guests/$(1).elf: vmm/x86/guests/$(1).S
	@mkdir -p $$(@D)
	@echo "  AS      $$@"
	$(Q)$(CC) -m64 -nostdlib -static -no-pie -Wl,--build-id=none \
		-Wl,-Ttext=0x101000 -Wl,-z,noexecstack -o $$@ $$<
PROGRAMS += guests/$(1).elf
endef
$(foreach g,tiny triple loop badinsn count timer clear lane,$(eval $(call tiny_guest,$(g))))

# Unit tests stand beside the code; those with guests are in tests/vmm.
define vmm_test
UNIT_TESTS += tests/$(1)_test
$(call program,tests/$(1)_test,$(2) $(BASE_SRCS),\
	-lcbor -lseccomp -lcap-ng -lcmocka -lpthread)
endef
$(eval $(call vmm_test,pvxsave,vmm/x86/pvxsave_test.c vmm/x86/pvxsave.c \
	vmm/kvm.c vmm/thread.c vmm/mem.c))
$(eval $(call vmm_test,codec,vmm/snapshot/codec_test.c vmm/snapshot/codec.c \
	vmm/snapshot/sealed.c vmm/snapshot/state.c vmm/snapshot/sha256.c))
$(eval $(call vmm_test,touched,vmm/snapshot/touched_test.c \
	vmm/snapshot/memfile.c vmm/snapshot/codec.c vmm/snapshot/sealed.c \
	vmm/snapshot/sha256.c vmm/thread.c vmm/mem.c))
$(eval $(call vmm_test,boot,vmm/x86/boot_test.c $(VMM_X86_SRCS) vmm/kvm.c \
	vmm/thread.c vmm/mem.c))
$(eval $(call vmm_test,lanes,vmm/lanes_test.c))
$(eval $(call vmm_test,confine,vmm/confine_test.c vmm/confine.c))

# A Linux root with one program: says the time on the log port.
$(B)/guests/clock.erofs: vmm/x86/guests/clock.c
	@mkdir -p $(B)/guests/clock.root/sbin $(B)/guests/clock.root/dev
	@echo "  EROFS   $@"
	$(Q)$(CC) $(CSTD) $(WARN) -O2 -static \
		-o $(B)/guests/clock.root/sbin/hutch-init $<
	$(Q)mkfs.erofs --quiet --all-root -T 0 $@.new $(B)/guests/clock.root \
		> /dev/null && mv $@.new $@
PROGRAMS += guests/clock.erofs

$(eval $(call fuzz_target,kernel_loader,vmm/x86/elf_fuzz.c vmm/x86/elf.c \
	vmm/mem.c $(BASE_SRCS)))
$(eval $(call fuzz_target,snapshot_state,vmm/snapshot/state_fuzz.c \
	vmm/snapshot/codec.c vmm/snapshot/sha256.c vmm/snapshot/memfile.c \
	vmm/lanes.c vmm/mem.c vmm/x86/ioapic.c vmm/kvm.c vmm/thread.c $(BASE_SRCS),-lcbor -lpthread))
$(eval $(call fuzz_target,lane,tests/fuzz/lane_fuzz.c vmm/lanes.c vmm/mem.c,\
	-lpthread))
