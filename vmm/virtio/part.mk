# The VMM's devices.  VMM_DEV_SRCS is linked into hutch-vmm (vmm/part.mk).
VMM_DEV_SRCS := $(addprefix vmm/,mem.c io.c io_ring.c io_poll.c) \
	$(addprefix vmm/virtio/,queue.c mmio.c state.c blk.c blk_req.c \
	vsock.c vsock_packet.c vsock_conn.c vsock_state.c)

VIRTIO_TEST_LIBS := -l:liburing.a -lcmocka -lpthread

# Unit tests beside the code; each includes what it tests.
UNIT_TESTS += $(addprefix tests/vmm/,mem_test queue_test io_test)
$(eval $(call program,tests/vmm/mem_test,vmm/mem_test.c,-lcmocka))
$(eval $(call program,tests/vmm/queue_test,vmm/virtio/queue_test.c,-lcmocka))
$(eval $(call program,tests/vmm/io_test,vmm/io_test.c \
	$(filter-out vmm/io.c vmm/io_ring.c,$(VMM_DEV_SRCS)),\
	$(VIRTIO_TEST_LIBS)))

# Hostile cases of hardening's catalogue; README.md says which are where.
HOSTILE_TESTS := a_mmio b_queue b_flow c_blk c_host d_packet d_credit \
	d_stream d_load e_race n_snapshot
HOSTILE_COMMON := $(addprefix tests/hostile/,guest.c disk.c channel.c)
UNIT_TESTS += $(HOSTILE_TESTS:%=tests/hostile/%_test)
$(foreach t,$(HOSTILE_TESTS),$(eval $(call program,tests/hostile/$(t)_test,\
	tests/hostile/$(t)_test.c tests/hostile/guest_ring.c \
	$(HOSTILE_COMMON) $(VMM_DEV_SRCS),$(VIRTIO_TEST_LIBS))))

# Over an I/O layer of the test's own.
$(foreach t,c_fault c_cut,$(eval UNIT_TESTS += tests/hostile/$(t)_test)\
	$(eval $(call program,tests/hostile/$(t)_test,\
	tests/hostile/$(t)_test.c tests/hostile/played_io.c \
	tests/hostile/guest.c \
	$(filter-out vmm/io%.c vmm/virtio/vsock%.c,$(VMM_DEV_SRCS)),\
	$(VIRTIO_TEST_LIBS))))

# How hutch-vmm opens a disk.
UNIT_TESTS += tests/hostile/c_lock_test
$(eval $(call program,tests/hostile/c_lock_test,tests/hostile/c_lock_test.c \
	$(BASE_SRCS),-lcmocka))

# A process that is killed under a guest's database.
UNIT_TESTS += tests/hostile/c_kill_test
$(eval $(call program,tests/hostile/c_kill_test,$(addprefix tests/hostile/,\
	c_kill_test.c guest_db.c guest_ring.c guest.c disk.c) \
	$(VMM_DEV_SRCS),$(VIRTIO_TEST_LIBS) -lsqlite3))

# With its own mem.c, which reports every load of guest memory.
UNIT_TESTS += tests/hostile/e_fetch_test
$(eval $(call program,tests/hostile/e_fetch_test,\
	tests/hostile/e_fetch_test.c $(HOSTILE_COMMON) \
	$(filter-out vmm/mem.c,$(VMM_DEV_SRCS)),$(VIRTIO_TEST_LIBS)))

$(foreach t,queue mmio blk vsock device_state,$(eval $(call fuzz_target,$(t),\
	tests/fuzz/$(t)_fuzz.c $(VMM_DEV_SRCS),-l:liburing.a -lpthread)))
$(eval $(call fuzz_target,blk_host,tests/fuzz/blk_host_fuzz.c \
	tests/hostile/played_io.c \
	$(filter-out vmm/io%.c vmm/virtio/vsock%.c,$(VMM_DEV_SRCS)),-lpthread))
