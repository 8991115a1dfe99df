/* The state file and its tables; see state.h. */
#include "state.h"
#include "codec.h"
#include "fd.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "hutch-vm"

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

struct envelope {
	uint8_t magic[sizeof(MAGIC) - 1];
	uint32_t version;
	uint8_t sum[SHA256_BYTES];
	uint32_t n_body;
	uint8_t body[STATE_BYTES_MAX];
};

static const struct codec_field envelope_table[] = {
	CODEC_FIELD_FIXED(1, struct envelope, magic),
	CODEC_FIELD_UINT(2, struct envelope, version),
	CODEC_FIELD_FIXED(3, struct envelope, sum),
	CODEC_FIELD_BYTES(4, struct envelope, body, n_body),
	CODEC_FIELD_END,
};

static void sum_of(const void *data, size_t len, uint8_t ret[SHA256_BYTES])
{
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, data, len);
	sha256_end(&s, ret);
}

int state_write(int fd, const struct vm_state *s, struct err *e)
{
	_cleanup_bytes_ struct bytes body = {0}, file = {0};
	struct envelope *v = calloc(1, sizeof(*v));
	int r = v ? codec_encode(&body, state_table, s) : -ENOMEM;

	if (r == 0 && body.len > sizeof(v->body))
		r = -EFBIG;
	if (r == 0) {
		memcpy(v->magic, MAGIC, sizeof(v->magic));
		v->version = STATE_VERSION;
		v->n_body = (uint32_t)body.len;
		memcpy(v->body, body.data, body.len);
		sum_of(v->body, v->n_body, v->sum);
		r = codec_encode(&file, envelope_table, v);
	}
	free(v);
	if (r == 0 && ftruncate(fd, 0) < 0)
		r = -errno;
	if (r == 0)
		r = fd_pwrite_all(fd, file.data, file.len, 0);
	if (r < 0) {
		err_set(e, ERR_INTERNAL, NULL, "state file: %s", strerror(-r));
		return r;
	}
	return 0;
}

static int refuse(struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID_REQUEST, "restore", "state file: %s",
		       what);
}

static int parse(const uint8_t *file, size_t len, struct envelope *v,
		 struct vm_state *s, struct err *e)
{
	uint8_t sum[SHA256_BYTES];
	const char *field;

	if (codec_decode(file, len, envelope_table, v, &field) < 0) {
		if (memcmp(v->magic, MAGIC, sizeof(v->magic)) != 0)
			return refuse(e, "not a snapshot");
		return refuse(e, "torn: it ends before its body does, or "
				 "after");
	}
	if (memcmp(v->magic, MAGIC, sizeof(v->magic)) != 0)
		return refuse(e, "not a snapshot");
	if (v->version != STATE_VERSION)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "state file: version %u, this program reads "
			       "version %d",
			       v->version, STATE_VERSION);
	sum_of(v->body, v->n_body, sum);
	if (memcmp(sum, v->sum, sizeof(sum)) != 0)
		return refuse(e, "altered: its SHA-256 does not match");
	if (codec_decode(v->body, v->n_body, state_table, s, &field) < 0)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "state file: field '%s' cannot be read", field);
	return 0;
}

int state_read(int fd, struct vm_state *s, struct err *e)
{
	struct envelope *v;
	uint8_t *file;
	struct stat st;
	int r = -1;

	if (fstat(fd, &st) < 0)
		return refuse(e, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return refuse(e, "not a regular file");
	if (st.st_size <= 0 || st.st_size > STATE_BYTES_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "state file: %lld bytes, 1 to %u are possible",
			       (long long)st.st_size, STATE_BYTES_MAX);
	file = malloc((size_t)st.st_size);
	v = calloc(1, sizeof(*v));
	if (!file || !v)
		refuse(e, "out of memory");
	else if (fd_pread_all(fd, file, (size_t)st.st_size, 0) < 0)
		refuse(e, "torn: it cannot be read to its end");
	else
		r = parse(file, (size_t)st.st_size, v, s, e);
	free(file);
	free(v);
	return r;
}
