# The VMM's devices.  VMM_DEV_SRCS is linked into hutch-vmm (vmm/part.mk).
VMM_DEV_SRCS := $(addprefix vmm/,mem.c io.c io_ring.c io_poll.c) \
	$(addprefix vmm/virtio/,queue.c mmio.c state.c blk.c blk_req.c \
	vsock.c vsock_packet.c vsock_conn.c vsock_state.c)
