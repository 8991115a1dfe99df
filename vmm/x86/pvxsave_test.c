/*
 * Paravirtual XSAVE against a real vCPU's registers: crafted areas at the end
 * of guest memory, which a guard page follows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include "bytes.h"
#include "guest_abi.h"
#include "pvxsave.h"
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define RAM_BYTES      (2u << 20)
#define AREA_GPA       0x10000ull
#define AVX_OFF	       576u
#define AVX_LEN	       256u
#define AREA_BYTES     (AVX_OFF + AVX_LEN)
#define OFF_MXCSR      24u
#define OFF_XMM	       160u
#define OFF_BV	       512u
#define OFF_XCOMP      520u
#define MASK_ALL       7ull
#define PKRU	       (1ull << 9)
#define MXCSR_INITIAL  0x1f80u
#define STATUS_PENDING 0xffffffffu
#define FILL	       0xee

static struct kvm kvm = {.dev = -1, .vm = -1};
static struct mem mem;
static struct pvx pvx;
static int vcpu[2];

union state {
	struct kvm_xsave kvm;
	uint8_t b[sizeof(struct kvm_xsave)];
};

static uint8_t *area_at(gpa_t at, size_t len)
{
	uint8_t *p = mem_span(&mem, at, len);

	assert_non_null(p);
	return p;
}

static union state get(unsigned n)
{
	union state s;

	assert_int_equal(ioctl(vcpu[n], KVM_GET_XSAVE, &s.kvm), 0);
	return s;
}

/* Registers that hold `seed` everywhere, components of `bv` in use. */
static void set(unsigned n, uint8_t seed, uint64_t bv)
{
	union state s;

	memset(&s, 0, sizeof(s));
	memset(s.b + 32, seed, 10); /* st0 */
	memset(s.b + OFF_XMM, seed + 1, 256);
	memset(s.b + AVX_OFF, seed + 2, AVX_LEN);
	le32_store(s.b, 0x37f);
	le32_store(s.b + OFF_MXCSR, MXCSR_INITIAL);
	le64_store(s.b + OFF_BV, bv);
	assert_int_equal(ioctl(vcpu[n], KVM_SET_XSAVE, &s.kvm), 0);
}

static void ask(uint8_t *a, uint64_t mask, uint32_t op)
{
	le64_store(a + HUTCH_PVX_OFF_MASK, mask);
	le32_store(a + HUTCH_PVX_OFF_OP, op);
	le32_store(a + HUTCH_PVX_OFF_STATUS, STATUS_PENDING);
}

static uint32_t request(unsigned n, gpa_t at, uint8_t *a, uint64_t mask,
			uint32_t op)
{
	ask(a, mask, op);
	pvx_request(&pvx, &mem, n, vcpu[n], at);
	return le32_load(a + HUTCH_PVX_OFF_STATUS);
}

static void assert_filled(const uint8_t *p, size_t len, uint8_t with)
{
	for (size_t i = 0; i < len; i++)
		assert_int_equal(p[i], with);
}

static uint8_t *fresh_area(void)
{
	uint8_t *a = area_at(AREA_GPA, 4096);

	memset(a, FILL, 4096);
	return a;
}

static void test_save_all(void **unused)
{
	uint8_t *a = fresh_area();

	(void)unused;
	set(0, 0x10, MASK_ALL);
	assert_int_equal(request(0, AREA_GPA, a, MASK_ALL, HUTCH_PVX_SAVE), 0);
	assert_filled(a + 32, 10, 0x10);
	assert_filled(a + OFF_XMM, 256, 0x11);
	assert_filled(a + AVX_OFF, AVX_LEN, 0x12);
	assert_int_equal(le32_load(a + OFF_MXCSR), MXCSR_INITIAL);
	/* bits outside of the mask keep what the area had */
	assert_int_equal(le64_load(a + OFF_BV),
			 0xeeeeeeeeeeeeeee8ull | MASK_ALL);
	/* the mask and op stay, the rest of both headers is untouched */
	assert_int_equal(le64_load(a + HUTCH_PVX_OFF_MASK), MASK_ALL);
	assert_filled(a + 416, HUTCH_PVX_OFF_MASK - 416, FILL);
	assert_filled(a + 480, OFF_BV - 480, FILL);
	assert_filled(a + OFF_XCOMP, AVX_OFF - OFF_XCOMP, FILL);
	assert_filled(a + AREA_BYTES, 4096 - AREA_BYTES, FILL);
}

static void test_save_part(void **unused)
{
	uint8_t *a = fresh_area();

	(void)unused;
	set(0, 0x20, MASK_ALL);
	le64_store(a + OFF_BV, 0);
	assert_int_equal(request(0, AREA_GPA, a, 2, HUTCH_PVX_SAVE), 0);
	assert_filled(a, OFF_MXCSR, FILL);
	assert_filled(a + 32, 128, FILL);
	assert_filled(a + OFF_XMM, 256, 0x21);
	assert_filled(a + AVX_OFF, AVX_LEN, FILL);
	assert_int_equal(le64_load(a + OFF_BV), 2);
	/* AVX alone also saves MXCSR */
	a = fresh_area();
	assert_int_equal(request(0, AREA_GPA, a, 4, HUTCH_PVX_SAVE), 0);
	assert_int_equal(le32_load(a + OFF_MXCSR), MXCSR_INITIAL);
	assert_filled(a + OFF_XMM, 256, FILL);
	/* an empty mask does nothing and is done */
	a = fresh_area();
	assert_int_equal(request(0, AREA_GPA, a, 1ull << 60, HUTCH_PVX_SAVE),
			 0);
	assert_filled(a, HUTCH_PVX_OFF_MASK, FILL);
}

static void test_save_initial(void **unused)
{
	uint8_t *a = fresh_area();

	(void)unused;
	set(0, 0x30, 3); /* AVX in its initial state */
	le64_store(a + OFF_BV, MASK_ALL);
	assert_int_equal(request(0, AREA_GPA, a, MASK_ALL, HUTCH_PVX_SAVE), 0);
	assert_int_equal(le64_load(a + OFF_BV), 3);
	assert_filled(a + AVX_OFF, AVX_LEN, 0); /* written, as XSAVE does */
}

static void fill_area(uint8_t *a, uint8_t seed, uint64_t bv)
{
	memset(a, 0, AREA_BYTES);
	le32_store(a, 0x37f);
	memset(a + 32, seed, 10);
	memset(a + OFF_XMM, seed + 1, 256);
	memset(a + AVX_OFF, seed + 2, AVX_LEN);
	le32_store(a + OFF_MXCSR, MXCSR_INITIAL);
	le64_store(a + OFF_BV, bv);
}

static void test_restore(void **unused)
{
	uint8_t *a = fresh_area();
	union state s;

	(void)unused;
	set(0, 0x40, MASK_ALL);
	fill_area(a, 0x50, MASK_ALL);
	assert_int_equal(request(0, AREA_GPA, a, ~0ull, HUTCH_PVX_RESTORE), 0);
	s = get(0);
	assert_filled(s.b + 32, 10, 0x50);
	assert_filled(s.b + OFF_XMM, 256, 0x51);
	assert_filled(s.b + AVX_OFF, AVX_LEN, 0x52);

	/* a part of the mask: the others stay */
	fill_area(a, 0x60, MASK_ALL);
	assert_int_equal(request(0, AREA_GPA, a, 2, HUTCH_PVX_RESTORE), 0);
	s = get(0);
	assert_filled(s.b + 32, 10, 0x50);
	assert_filled(s.b + OFF_XMM, 256, 0x61);
	assert_filled(s.b + AVX_OFF, AVX_LEN, 0x52);

	/* on another vCPU */
	fill_area(a, 0x70, MASK_ALL);
	assert_int_equal(request(1, AREA_GPA, a, MASK_ALL, HUTCH_PVX_RESTORE),
			 0);
	s = get(1);
	assert_filled(s.b + AVX_OFF, AVX_LEN, 0x72);
	assert_filled(get(0).b + AVX_OFF, AVX_LEN, 0x52);
}

static void test_restore_initial(void **unused)
{
	uint8_t *a = fresh_area();
	union state s;

	(void)unused;
	set(0, 0x40, MASK_ALL);
	fill_area(a, 0x50, 0);
	assert_int_equal(request(0, AREA_GPA, a, MASK_ALL, HUTCH_PVX_RESTORE),
			 0);
	s = get(0);
	assert_int_equal(le32_load(s.b) & 0xffff, 0x37f);
	assert_filled(s.b + 32, 10, 0);
	assert_filled(s.b + OFF_XMM, 256, 0);
	assert_filled(s.b + AVX_OFF, AVX_LEN, 0);
	/* MXCSR comes from the area also when SSE gets its initial state */
	set(0, 0x40, MASK_ALL);
	fill_area(a, 0x50, 1);
	le32_store(a + OFF_MXCSR, 0x9fa0);
	assert_int_equal(request(0, AREA_GPA, a, MASK_ALL, HUTCH_PVX_RESTORE),
			 0);
	s = get(0);
	assert_int_equal(le32_load(s.b + OFF_MXCSR), 0x9fa0);
	assert_filled(s.b + OFF_XMM, 256, 0);
	assert_filled(s.b + 32, 10, 0x50);
}

static void expect_refused(uint8_t *a, uint64_t mask, uint32_t op)
{
	union state before = get(0), after;

	assert_int_equal(request(0, AREA_GPA, a, mask, op), PVX_STATUS_GP);
	after = get(0);
	assert_memory_equal(before.b, after.b, sizeof(before.b));
}

/* The guest's kernel does not know of PKRU, user code may have set it. */
static void test_protection_keys(void **unused)
{
	uint8_t *a = fresh_area();
	union state s = get(0);

	(void)unused;
	le64_store(s.b + OFF_BV, le64_load(s.b + OFF_BV) | PKRU);
	if (ioctl(vcpu[0], KVM_SET_XSAVE, &s.kvm) < 0) {
		print_message("no protection keys on this host\n");
		skip();
	}
	memset(a, 0, AREA_BYTES);
	le32_store(a + OFF_MXCSR, MXCSR_INITIAL);
	le64_store(a + OFF_BV, PKRU);
	for (uint64_t mask = 1; mask <= (MASK_ALL | PKRU);
	     mask = mask << 1 | 1) {
		assert_int_equal(ioctl(vcpu[0], KVM_SET_XSAVE, &s.kvm), 0);
		assert_int_equal(
			request(0, AREA_GPA, a, mask, HUTCH_PVX_RESTORE), 0);
		s = get(0);
		assert_int_equal(le64_load(s.b + OFF_BV) & PKRU, 0);
		le64_store(s.b + OFF_BV, le64_load(s.b + OFF_BV) | PKRU);
	}
}

static void test_refused(void **unused)
{
	uint8_t *a = fresh_area();

	(void)unused;
	set(0, 0x40, MASK_ALL);
	for (unsigned bit = 0; bit < 64; bit++) {
		if (pvx.supported >> bit & 1)
			continue;
		fill_area(a, 0x50, MASK_ALL | 1ull << bit);
		expect_refused(a, MASK_ALL, HUTCH_PVX_RESTORE);
	}
	for (unsigned at = 0; at < 16; at++) { /* XCOMP_BV and the next 8 */
		fill_area(a, 0x50, MASK_ALL);
		a[OFF_XCOMP + at] = at == 7 ? 0x80 : 1;
		expect_refused(a, MASK_ALL, HUTCH_PVX_RESTORE);
	}
	for (unsigned bit = 16; bit < 32; bit++) {
		if (pvx.mxcsr_mask >> bit & 1)
			continue; /* AMD has one in bit 17 */
		fill_area(a, 0x50, MASK_ALL);
		le32_store(a + OFF_MXCSR, MXCSR_INITIAL | 1u << bit);
		expect_refused(a, MASK_ALL, HUTCH_PVX_RESTORE);
		expect_refused(a, 4, HUTCH_PVX_RESTORE);
		/* not looked at without SSE and AVX */
		assert_int_equal(request(0, AREA_GPA, a, 1, HUTCH_PVX_RESTORE),
				 0);
	}
	fill_area(a, 0x50, MASK_ALL);
	expect_refused(a, MASK_ALL, 0);
	expect_refused(a, MASK_ALL, 3);
	expect_refused(a, MASK_ALL, 0x10001);
	/* bytes 24-63 of the header mean nothing to the processor */
	memset(a + 536, 0xff, 40);
	assert_int_equal(request(0, AREA_GPA, a, MASK_ALL, HUTCH_PVX_RESTORE),
			 0);
}

static void test_bounds(void **unused)
{
	gpa_t at = RAM_BYTES - AREA_BYTES;
	uint8_t *a = area_at(at, AREA_BYTES);
	uint64_t dropped = pvx.dropped;

	(void)unused;
	set(0, 0x10, MASK_ALL);
	memset(a, FILL, AREA_BYTES);
	le64_store(a + OFF_BV, 0);
	assert_int_equal(request(0, at, a, MASK_ALL, HUTCH_PVX_SAVE), 0);
	assert_filled(a + AVX_OFF, AVX_LEN, 0x12); /* to the last byte */
	assert_int_equal(request(0, at, a, MASK_ALL, HUTCH_PVX_RESTORE),
			 PVX_STATUS_GP);
	memset(a + OFF_XCOMP, 0, 56);
	assert_int_equal(request(0, at, a, MASK_ALL, HUTCH_PVX_RESTORE), 0);

	/* one line further AVX ends behind RAM: refused, nothing written */
	at += 64;
	a += 64;
	memset(a, FILL, AREA_BYTES - 64);
	assert_int_equal(request(0, at, a, MASK_ALL, HUTCH_PVX_SAVE),
			 PVX_STATUS_GP);
	assert_filled(a, HUTCH_PVX_OFF_MASK, FILL);
	assert_filled(a + 480, AREA_BYTES - 64 - 480, FILL);
	assert_int_equal(request(0, at, a, 3, HUTCH_PVX_SAVE), 0);
	/* a restore does not read what XSTATE_BV does not name */
	memset(a + OFF_BV, 0, 64);
	le64_store(a + OFF_BV, 3);
	assert_int_equal(request(0, at, a, MASK_ALL, HUTCH_PVX_RESTORE), 0);
	le64_store(a + OFF_BV, MASK_ALL);
	assert_int_equal(request(0, at, a, MASK_ALL, HUTCH_PVX_RESTORE),
			 PVX_STATUS_GP);

	/* the header itself ends behind RAM, or all of it is elsewhere */
	pvx_request(&pvx, &mem, 0, vcpu[0], RAM_BYTES - 512);
	pvx_request(&pvx, &mem, 0, vcpu[0], RAM_BYTES);
	pvx_request(&pvx, &mem, 0, vcpu[0], MEM_GAP_START);
	pvx_request(&pvx, &mem, 0, vcpu[0], HUTCH_MMIO_BASE);
	pvx_request(&pvx, &mem, 0, vcpu[0], 0xffffffffull << 6);
	assert_int_equal(pvx.dropped, dropped + 5);
}

static int setup(void **unused)
{
	struct err e = {0};
	struct kvm_run *run;
	int dev = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	(void)unused;
	if (dev < 0) {
		puts("1..0 # SKIP no access to /dev/kvm");
		_exit(77);
	}
	if (kvm_open(&kvm, dev, KVM_KIND_SOFT, &e) < 0 ||
	    mem_init(&mem, RAM_BYTES) < 0 ||
	    kvm_create_vm(&kvm, &mem, &e) < 0 || kvm_slots_wait(&kvm, &e) < 0 ||
	    kvm_create_vcpu(&kvm, 0, &vcpu[0], &run, &e) < 0 ||
	    kvm_create_vcpu(&kvm, 1, &vcpu[1], &run, &e) < 0)
		return -1;
	for (unsigned i = 0; i < 2; i++)
		if (ioctl(vcpu[i], KVM_SET_CPUID2, kvm.cpuid) < 0)
			return -1;
	pvx_init(&pvx, &kvm);
	if ((pvx.supported & MASK_ALL) != MASK_ALL) {
		puts("1..0 # SKIP this processor has no AVX");
		_exit(77);
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_save_all),
		cmocka_unit_test(test_save_part),
		cmocka_unit_test(test_save_initial),
		cmocka_unit_test(test_restore),
		cmocka_unit_test(test_restore_initial),
		cmocka_unit_test(test_protection_keys),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
