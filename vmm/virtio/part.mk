# The VMM's devices.  VMM_DEV_SRCS is linked into hutch-vmm (vmm/part.mk).
VMM_DEV_SRCS := $(addprefix vmm/,mem.c io.c io_ring.c io_poll.c) \
	$(addprefix vmm/virtio/,queue.c mmio.c state.c blk.c blk_req.c \
	vsock.c vsock_packet.c vsock_conn.c vsock_state.c)

VIRTIO_TEST_LIBS := -l:liburing.a -lcmocka -lpthread

# Hostile cases of one letter each; see vmm/virtio/README.md.
define hostile_test
UNIT_TESTS += tests/hostile/$(1)_test
$(call program,tests/hostile/$(1)_test,tests/hostile/$(1)_test.c \
	$(2) tests/hostile/guest.c $(VMM_DEV_SRCS),$(VIRTIO_TEST_LIBS))
endef
$(eval $(call hostile_test,a_mmio,tests/hostile/disk.c))
$(eval $(call hostile_test,c_blk,tests/hostile/disk.c))
$(eval $(call hostile_test,d_packet,tests/hostile/channel.c))
$(eval $(call hostile_test,b_queue,tests/hostile/disk.c))
$(eval $(call hostile_test,b_flow,tests/hostile/disk.c))
$(eval $(call hostile_test,c_host,tests/hostile/disk.c))
$(eval $(call hostile_test,d_credit,tests/hostile/channel.c))
$(eval $(call hostile_test,d_stream,tests/hostile/channel.c))
$(eval $(call hostile_test,n_snapshot,$(addprefix tests/hostile/,disk.c channel.c)))

# Over an I/O layer of the test's own.
UNIT_TESTS += tests/hostile/c_fault_test
$(eval $(call program,tests/hostile/c_fault_test,\
	tests/hostile/c_fault_test.c tests/hostile/guest.c \
	$(filter-out vmm/io%.c vmm/virtio/vsock%.c,$(VMM_DEV_SRCS)),\
	$(VIRTIO_TEST_LIBS)))

# Unit tests beside the code; each includes what it tests.
UNIT_TESTS += tests/vmm/mem_test tests/vmm/queue_test
$(eval $(call program,tests/vmm/mem_test,vmm/mem_test.c,-lcmocka))
$(eval $(call program,tests/vmm/queue_test,vmm/virtio/queue_test.c,-lcmocka))

# With its own mem.c, which reports every load of guest memory.
UNIT_TESTS += tests/hostile/e_fetch_test
$(eval $(call program,tests/hostile/e_fetch_test,\
	$(addprefix tests/hostile/,e_fetch_test.c guest.c disk.c channel.c) \
	$(filter-out vmm/mem.c,$(VMM_DEV_SRCS)),$(VIRTIO_TEST_LIBS)))
