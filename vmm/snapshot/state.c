/* The state file and its tables; see state.h. */
#include "state.h"
#include "sealed.h"

static const struct codec_field msr_table[] = {
	CODEC_FIELD_UINT(1, struct kvm_msr_entry, index),
	CODEC_FIELD_UINT(2, struct kvm_msr_entry, data),
	CODEC_FIELD_END,
};

static const struct codec_field vcpu_table[] = {
	CODEC_FIELD_FIXED(1, struct vcpu_state, regs),
	CODEC_FIELD_FIXED(2, struct vcpu_state, sregs),
	CODEC_FIELD_FIXED(3, struct vcpu_state, xcrs),
	CODEC_FIELD_FIXED(4, struct vcpu_state, debugregs),
	CODEC_FIELD_FIXED(5, struct vcpu_state, lapic),
	CODEC_FIELD_FIXED(6, struct vcpu_state, events),
	CODEC_FIELD_UINT(7, struct vcpu_state, mp.mp_state),
	CODEC_FIELD_LIST(8, struct vcpu_state, msr, n_msrs, msr_table),
	CODEC_FIELD_BYTES(9, struct vcpu_state, xsave, n_xsave),
	CODEC_FIELD_END,
};

static const struct codec_field disk_table[] = {
	CODEC_FIELD_UINT(1, struct disk_state, bytes),
	CODEC_FIELD_UINT(2, struct disk_state, is_read_only),
	CODEC_FIELD_END,
};

#define QUEUE(key, n)                                                          \
	CODEC_FIELD_UINT(key, struct device_state, v.vq[n].desc),              \
		CODEC_FIELD_UINT((key) + 1, struct device_state,               \
				 v.vq[n].avail),                               \
		CODEC_FIELD_UINT((key) + 2, struct device_state,               \
				 v.vq[n].used),                                \
		CODEC_FIELD_UINT((key) + 3, struct device_state,               \
				 v.vq[n].size),                                \
		CODEC_FIELD_UINT((key) + 4, struct device_state,               \
				 v.vq[n].last_avail),                          \
		CODEC_FIELD_UINT((key) + 5, struct device_state,               \
				 v.vq[n].used_idx),                            \
		CODEC_FIELD_UINT((key) + 6, struct device_state,               \
				 v.vq[n].signalled),                           \
		CODEC_FIELD_UINT((key) + 7, struct device_state,               \
				 v.vq[n].is_ready),                            \
		CODEC_FIELD_UINT((key) + 8, struct device_state,               \
				 v.vq[n].signalled_valid)

static const struct codec_field device_table[] = {
	CODEC_FIELD_UINT(1, struct device_state, id),
	CODEC_FIELD_UINT(2, struct device_state, v.acked),
	CODEC_FIELD_UINT(3, struct device_state, v.status),
	CODEC_FIELD_UINT(4, struct device_state, v.isr),
	CODEC_FIELD_UINT(5, struct device_state, v.cfg_gen),
	CODEC_FIELD_UINT(6, struct device_state, v.queue_sel),
	CODEC_FIELD_UINT(7, struct device_state, v.dev_feat_sel),
	CODEC_FIELD_UINT(8, struct device_state, v.drv_feat_sel),
	CODEC_FIELD_UINT(9, struct device_state, v.kicked),
	QUEUE(20, 0),
	QUEUE(30, 1),
	QUEUE(40, 2),
	CODEC_FIELD_END,
};

static const struct codec_field lane_table[] = {
	CODEC_FIELD_UINT(1, struct lane_saved, lane),
	CODEC_FIELD_UINT(2, struct lane_saved, page),
	CODEC_FIELD_UINT(3, struct lane_saved, own),
	CODEC_FIELD_END,
};

static const struct codec_field extent_table[] = {
	CODEC_FIELD_UINT(1, struct extent, off),
	CODEC_FIELD_UINT(2, struct extent, len),
	CODEC_FIELD_END,
};

static const struct codec_field other_table[] = {
	CODEC_FIELD_UINT(1, struct vsock_pair, src_port),
	CODEC_FIELD_UINT(2, struct vsock_pair, dst_port),
	CODEC_FIELD_END,
};

static const struct codec_field rst_table[] = {
	CODEC_FIELD_UINT(1, struct vsock_rst, host_cid),
	CODEC_FIELD_UINT(2, struct vsock_rst, of.src_port),
	CODEC_FIELD_UINT(3, struct vsock_rst, of.dst_port),
	CODEC_FIELD_END,
};

static const struct codec_field state_table[] = {
	CODEC_FIELD_UINT(1, struct vm_state, profile.is_soft),
	CODEC_FIELD_UINT(2, struct vm_state, profile.tsc_khz),
	CODEC_FIELD_UINT(3, struct vm_state, profile.xcr0),
	CODEC_FIELD_FIXED(4, struct vm_state, profile.cpuid),
	CODEC_FIELD_UINT(5, struct vm_state, mem_bytes),
	CODEC_FIELD_UINT(6, struct vm_state, mem_data_bytes),
	CODEC_FIELD_FIXED(7, struct vm_state, mem_sum),
	CODEC_FIELD_LIST(8, struct vm_state, extent, n_extents, extent_table),
	CODEC_FIELD_UINT(9, struct vm_state, clock_ns),
	CODEC_FIELD_UINT(10, struct vm_state, ioapic.select),
	CODEC_FIELD_UINT(11, struct vm_state, ioapic.id),
	CODEC_FIELD_UINT(12, struct vm_state, ioapic.pending),
	CODEC_FIELD_FIXED(13, struct vm_state, ioapic.entry),
	CODEC_FIELD_LIST(14, struct vm_state, vcpu, n_vcpus, vcpu_table),
	CODEC_FIELD_LIST(15, struct vm_state, disk, n_disks, disk_table),
	CODEC_FIELD_LIST(16, struct vm_state, device, n_devices, device_table),
	CODEC_FIELD_LIST(17, struct vm_state, lane, n_lanes, lane_table),
	CODEC_FIELD_UINT(30, struct vm_state, vsock.has_agent),
	CODEC_FIELD_UINT(31, struct vm_state, vsock.src_port),
	CODEC_FIELD_UINT(32, struct vm_state, vsock.dst_port),
	CODEC_FIELD_UINT(33, struct vm_state, vsock.rx_cnt),
	CODEC_FIELD_UINT(34, struct vm_state, vsock.tx_cnt),
	CODEC_FIELD_UINT(35, struct vm_state, vsock.fwd_cnt),
	CODEC_FIELD_UINT(36, struct vm_state, vsock.peer_buf_alloc),
	CODEC_FIELD_UINT(37, struct vm_state, vsock.peer_fwd_cnt),
	CODEC_FIELD_BYTES(38, struct vm_state, vsock.unsent, vsock.unsent_len),
	CODEC_FIELD_BYTES(39, struct vm_state, vsock.undelivered,
			  vsock.undelivered_len),
	CODEC_FIELD_LIST(40, struct vm_state, vsock.other, vsock.n_others,
			 other_table),
	CODEC_FIELD_UINT(41, struct vm_state, vsock.is_credit_due),
	CODEC_FIELD_UINT(42, struct vm_state, vsock.is_event_due),
	CODEC_FIELD_LIST(43, struct vm_state, vsock.rst, vsock.n_rsts,
			 rst_table),
	CODEC_FIELD_END,
};

static const struct sealed_kind state_kind = {
	.name = "state file",
	.magic = {'h', 'u', 't', 'c', 'h', '-', 'v', 'm'},
	.version = STATE_VERSION,
	.table = state_table,
};

int state_write(int fd, const struct vm_state *s, struct err *e)
{
	return sealed_write(fd, &state_kind, s, e);
}

int state_read(int fd, struct vm_state *s, struct err *e)
{
	return sealed_read(fd, &state_kind, s, e);
}
