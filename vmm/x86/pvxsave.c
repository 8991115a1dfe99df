/* See pvxsave.h.  "RFBM" is the SDM's name for mask & XCR0. */
#include "pvxsave.h"
#include "bytes.h"
#include "guest_abi.h"
#include <assert.h>
#include <cpuid.h>
#include <immintrin.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>

#define LEAF_XSTATE 0xd
#define C_X87	    (1ull << 0)
#define C_SSE	    (1ull << 1)
#define C_AVX	    (1ull << 2)
#define C_PKRU	    (1ull << 9)
#define C_AMX	    (3ull << 17)

/* Layout of the legacy region and header (SDM 13.4). */
#define OFF_MXCSR	   24
#define LEN_MXCSR	   8 /* and its mask */
#define OFF_X87		   32
#define LEN_X87		   128
#define OFF_XMM		   160
#define LEN_XMM		   256
#define OFF_HEADER	   512
#define OFF_XCOMP	   (OFF_HEADER + 8)
#define LEN_XCOMP	   16 /* bytes 8-23: the processor wants them zero */
#define MXCSR_INITIAL	   0x1f80u
#define MXCSR_MASK_DEFAULT 0xffbfu

static_assert(HUTCH_PVX_OFF_OP == HUTCH_PVX_OFF_MASK + 8, "one request");

static uint32_t host_mxcsr_mask(void)
{
	uint8_t __attribute__((aligned(16))) fx[512];
	uint32_t mask;

	memset(fx, 0, sizeof(fx));
	_fxsave(fx);
	mask = le32_load(fx + OFF_MXCSR + 4);
	return mask ? mask : MXCSR_MASK_DEFAULT;
}

void pvx_init(struct pvx *p, const struct kvm *k)
{
	p->state_bytes = k->xsave_bytes;
	p->mxcsr_mask = host_mxcsr_mask();
	for (uint32_t i = 0; i < k->cpuid->nent; i++) {
		const struct kvm_cpuid_entry2 *n = &k->cpuid->entries[i];

		if (n->function == LEAF_XSTATE && n->index == 0)
			p->supported = n->eax | (uint64_t)n->edx << 32;
	}
	p->supported &= ~C_AMX;
	for (uint32_t i = 2; i < PVX_COMPONENTS; i++) {
		uint32_t a, b, c, d;

		if (!(p->supported >> i & 1))
			continue;
		__cpuid_count(LEAF_XSTATE, i, a, b, c, d);
		if (a == 0 || (c & 1) || b < PVX_AREA_BYTES_MIN ||
		    (uint64_t)a + b > p->state_bytes ||
		    (uint64_t)a + b > PVX_STATE_BYTES_MAX) {
			p->supported &= ~(1ull << i);
			continue;
		}
		p->len[i] = a;
		p->off[i] = b;
	}
	if (p->state_bytes > PVX_STATE_BYTES_MAX)
		p->supported = 0; /* not even a buffer: refuse all */
}

static int get_state(const struct pvx *p, int vcpu_fd, uint8_t *dst)
{
	return ioctl(vcpu_fd,
		     p->state_bytes > sizeof(struct kvm_xsave) ? KVM_GET_XSAVE2
							       : KVM_GET_XSAVE,
		     dst);
}

static bool save(const struct pvx *p, struct mem *m, struct pvx_buffers *b,
		 int vcpu_fd, gpa_t at, uint64_t rfbm)
{
	uint64_t bv = le64_load(b->area + OFF_HEADER);
	int r = 0;

	for (unsigned i = 2; i < PVX_COMPONENTS; i++)
		if ((rfbm >> i & 1) && !mem_span(m, at + p->off[i], p->len[i]))
			return false;
	if (get_state(p, vcpu_fd, b->now) < 0)
		return false;
	if (rfbm & C_X87) {
		r |= mem_write(m, at, b->now, OFF_MXCSR);
		r |= mem_write(m, at + OFF_X87, b->now + OFF_X87, LEN_X87);
	}
	if (rfbm & C_SSE)
		r |= mem_write(m, at + OFF_XMM, b->now + OFF_XMM, LEN_XMM);
	if (rfbm & (C_SSE | C_AVX))
		r |= mem_write(m, at + OFF_MXCSR, b->now + OFF_MXCSR,
			       LEN_MXCSR);
	for (unsigned i = 2; i < PVX_COMPONENTS; i++)
		if (rfbm >> i & 1)
			r |= mem_write(m, at + p->off[i], b->now + p->off[i],
				       p->len[i]);
	bv = (bv & ~rfbm) | (le64_load(b->now + OFF_HEADER) & rfbm);
	r |= mem_write(m, at + OFF_HEADER, &bv, sizeof(bv));
	return r == 0;
}

/* What the processor would refuse. */
static bool is_valid(const struct pvx *p, const uint8_t *area, uint64_t rfbm)
{
	static const uint8_t zero[LEN_XCOMP];

	if (le64_load(area + OFF_HEADER) & ~p->supported)
		return false;
	if (memcmp(area + OFF_XCOMP, zero, LEN_XCOMP) != 0)
		return false;
	if ((rfbm & (C_SSE | C_AVX)) &&
	    (le32_load(area + OFF_MXCSR) & ~p->mxcsr_mask))
		return false;
	return true;
}

/* MXCSR is loaded also when SSE gets its initial state.  KVM drops it then,
 * so a value that is not the initial one makes SSE in use, with zero XMMs. */
static uint64_t load_mxcsr(uint8_t *next, const uint8_t *area, uint64_t bv)
{
	memcpy(next + OFF_MXCSR, area + OFF_MXCSR, 4);
	if (bv & C_SSE)
		return bv;
	memset(next + OFF_XMM, 0, LEN_XMM);
	return le32_load(area + OFF_MXCSR) == MXCSR_INITIAL ? bv : bv | C_SSE;
}

static bool restore(const struct pvx *p, struct mem *m, struct pvx_buffers *b,
		    int vcpu_fd, gpa_t at, uint64_t rfbm)
{
	uint8_t *next = b->now;
	const uint8_t *area = b->area;
	uint64_t bv = 0, load = le64_load(area + OFF_HEADER) & rfbm;

	if (!is_valid(p, area, rfbm))
		return false;
	memset(next, 0, p->state_bytes);
	if (rfbm != p->supported) { /* the rest stays what it is */
		if (get_state(p, vcpu_fd, next) < 0)
			return false;
		bv = le64_load(next + OFF_HEADER) & p->supported;
	}
	bv = (bv & ~rfbm) | load;
	if (load & C_X87) {
		memcpy(next, area, OFF_MXCSR);
		memcpy(next + OFF_X87, area + OFF_X87, LEN_X87);
	}
	if (load & C_SSE)
		memcpy(next + OFF_XMM, area + OFF_XMM, LEN_XMM);
	for (unsigned i = 2; i < PVX_COMPONENTS; i++)
		if ((load >> i & 1) &&
		    mem_read(m, at + p->off[i], next + p->off[i], p->len[i]) <
			    0)
			return false;
	if (rfbm & (C_SSE | C_AVX))
		bv = load_mxcsr(next, area, bv);
	/* The guest's kernel knows no protection keys, but where the real CPU
	 * has them WRPKRU works: what one process did ends here. */
	bv &= ~C_PKRU;
	memset(next + OFF_HEADER, 0, PVX_AREA_BYTES_MIN - OFF_HEADER);
	le64_store(next + OFF_HEADER, bv);
	return ioctl(vcpu_fd, KVM_SET_XSAVE, next) == 0;
}

void pvx_request(struct pvx *p, struct mem *m, unsigned vcpu, int vcpu_fd,
		 gpa_t area)
{
	struct pvx_buffers *b = &p->buf[vcpu];
	uint32_t op, status = PVX_STATUS_GP;
	uint64_t rfbm;

	/* The request, the legacy region and the header, copied once. */
	if (mem_read(m, area, b->area, PVX_AREA_BYTES_MIN) < 0) {
		__atomic_fetch_add(&p->dropped, 1, __ATOMIC_RELAXED);
		return;
	}
	rfbm = le64_load(b->area + HUTCH_PVX_OFF_MASK) & p->supported;
	op = le32_load(b->area + HUTCH_PVX_OFF_OP);
	if (!p->supported)
		op = 0;
	if (op == HUTCH_PVX_SAVE && save(p, m, b, vcpu_fd, area, rfbm))
		status = 0;
	else if (op == HUTCH_PVX_RESTORE &&
		 restore(p, m, b, vcpu_fd, area, rfbm))
		status = 0;
	/* Inside what was readable just now: cannot fail. */
	(void)mem_write(m, area + HUTCH_PVX_OFF_STATUS, &status,
			sizeof(status));
}
