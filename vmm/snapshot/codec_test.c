/* The codec, SHA-256 and the state file: round trips and damaged input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include "codec.h"
#include "fd.h"
#include "state.h"
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct inner {
	uint16_t a;
	uint8_t b;
};

struct outer {
	uint8_t u8;
	uint16_t u16;
	uint32_t u32, n_bytes, n_list;
	uint64_t u64;
	uint8_t fixed[5], bytes[8];
	struct inner list[3];
};

static const struct codec_field inner_table[] = {
	CODEC_FIELD_UINT(1, struct inner, a),
	CODEC_FIELD_UINT(2, struct inner, b),
	CODEC_FIELD_END,
};

static const struct codec_field outer_table[] = {
	CODEC_FIELD_UINT(1, struct outer, u8),
	CODEC_FIELD_UINT(2, struct outer, u16),
	CODEC_FIELD_UINT(3, struct outer, u32),
	CODEC_FIELD_UINT(4, struct outer, u64),
	CODEC_FIELD_FIXED(5, struct outer, fixed),
	CODEC_FIELD_BYTES(6, struct outer, bytes, n_bytes),
	CODEC_FIELD_LIST(7, struct outer, list, n_list, inner_table),
	CODEC_FIELD_END,
};

static struct outer sample(void)
{
	struct outer o;

	memset(&o, 0, sizeof(o));
	o.u8 = 200;
	o.u16 = 0xffff;
	o.u32 = 0xfffffffe;
	o.u64 = UINT64_MAX;
	memcpy(o.fixed, "fixed", 5);
	memcpy(o.bytes, "by", 2);
	o.n_bytes = 2;
	o.n_list = 2;
	o.list[0] = (struct inner){.a = 1, .b = 2};
	o.list[1] = (struct inner){.a = 300, .b = 255};
	return o;
}

static void test_round_trip(void **unused)
{
	_cleanup_bytes_ struct bytes b = {0};
	struct outer o = sample(), back;
	const char *field;

	(void)unused;
	memset(&back, 0, sizeof(back));
	assert_int_equal(codec_encode(&b, outer_table, &o), 0);
	assert_int_equal(
		codec_decode(b.data, b.len, outer_table, &back, &field), 0);
	assert_memory_equal(&o, &back, sizeof(o));
	for (size_t n = 0; n < b.len; n++)
		assert_int_equal(
			codec_decode(b.data, n, outer_table, &back, &field),
			-EPROTO);
	assert_int_equal(bytes_append(&b, "x", 1), 0);
	assert_int_equal(
		codec_decode(b.data, b.len, outer_table, &back, &field),
		-EPROTO);
}

/* Wrong inputs with the name of the field that each is refused for. */
static void test_refused(void **unused)
{
	static const struct {
		const char *data;
		size_t len;
		const char *field;
	} cases[] = {
		{"\xa6", 1, "start"},			/* too few fields */
		{"\xbf", 1, "start"},			/* indefinite map */
		{"\x87", 1, "start"},			/* a list */
		{"\xa7\x02", 2, "u8"},			/* another key */
		{"\xa7\x01\x19\x01\x00", 5, "u8"},	/* does not fit */
		{"\xa7\x01\x20", 3, "u8"},		/* negative */
		{"\xa7\x01\xf5", 3, "u8"},		/* true */
		{"\xa7\x01\x01\x02\x41\x00", 6, "u16"}, /* bytes */
	};
	struct outer o;
	const char *field;

	(void)unused;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(codec_decode(cases[i].data, cases[i].len,
					      outer_table, &o, &field),
				 -EPROTO);
		assert_string_equal(field, cases[i].field);
	}
}

/* Counts that lie: longer than the struct has room for, or than the input. */
static void test_lengths(void **unused)
{
	struct outer o = sample(), back;
	const char *field;

	(void)unused;
	for (int which = 0; which < 4; which++) {
		_cleanup_bytes_ struct bytes b = {0};
		uint8_t *p;

		assert_int_equal(codec_encode(&b, outer_table, &o), 0);
		p = memmem(b.data, b.len, "\x06\x42", 2);
		assert_non_null(p);
		if (which == 0)
			p[1] = 0x49; /* 9 bytes */
		if (which == 1)
			p[1] = 0x5b; /* 8-byte length that follows */
		if (which == 2)
			p[1] = 0x5f; /* indefinite */
		if (which == 3)
			p[5] = 0x84; /* list of 4 */
		assert_int_equal(
			codec_decode(b.data, b.len, outer_table, &back, &field),
			-EPROTO);
	}
}

static void test_sha256(void **unused)
{
	static const uint8_t abc[SHA256_BYTES] = {
		0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea,
		0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
		0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c,
		0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
	/* one million times "a" (FIPS 180-4 examples) */
	static const uint8_t million[SHA256_BYTES] = {
		0xcd, 0xc7, 0x6e, 0x5c, 0x99, 0x14, 0xfb, 0x92,
		0x81, 0xa1, 0xc7, 0xe2, 0x84, 0xd7, 0x3e, 0x67,
		0xf1, 0x80, 0x9a, 0x48, 0xa4, 0x97, 0x20, 0x0e,
		0x04, 0x6d, 0x39, 0xcc, 0xc7, 0x11, 0x2c, 0xd0};
	uint8_t sum[SHA256_BYTES], a[97];
	struct sha256 s;
	size_t left = 1000000;

	(void)unused;
	sha256_init(&s);
	sha256_add(&s, "abc", 3);
	sha256_end(&s, sum);
	assert_memory_equal(sum, abc, sizeof(sum));
	memset(a, 'a', sizeof(a));
	sha256_init(&s);
	while (left) {
		size_t n = left < sizeof(a) ? left : sizeof(a);

		sha256_add(&s, a, n);
		left -= n;
	}
	sha256_end(&s, sum);
	assert_memory_equal(sum, million, sizeof(sum));
}

static int read_back(const void *data, size_t len, struct vm_state *s,
		     struct err *e)
{
	int fd = memfd_create("state", MFD_CLOEXEC), r;

	assert_true(fd >= 0);
	assert_int_equal(fd_pwrite_all(fd, data, len, 0), 0);
	r = state_read(fd, s, e);
	close(fd);
	return r;
}

static void test_state_file(void **unused)
{
	struct vm_state *s = calloc(1, sizeof(*s));
	struct vm_state *back = calloc(1, sizeof(*back));
	int fd = memfd_create("state", MFD_CLOEXEC);
	struct err e = {0};
	uint8_t *file;
	size_t len;

	(void)unused;
	s->mem_bytes = 64 << 20;
	s->n_vcpus = VCPUS_MAX;
	s->n_extents = 3;
	s->n_disks = s->n_devices = 2;
	s->vsock.unsent_len = VSOCK_BUF_BYTES;
	s->vsock.n_others = 5;
	s->vsock.is_credit_due = s->vsock.is_event_due = 1;
	s->vsock.n_rsts = VSOCK_RSTS_MAX;
	s->vsock.rst[VSOCK_RSTS_MAX - 1] =
		(struct vsock_rst){UINT64_MAX, {7, UINT32_MAX}};
	for (unsigned i = 0; i < VCPUS_MAX; i++) {
		s->vcpu[i].n_msrs = 40 + i;
		s->vcpu[i].n_xsave = 4096;
	}
	assert_int_equal(state_write(fd, s, &e), 0);
	assert_int_equal(state_read(fd, back, &e), 0);
	assert_memory_equal(s, back, sizeof(*s));
	len = (size_t)lseek(fd, 0, SEEK_END);
	file = malloc(len);
	assert_int_equal(fd_pread_all(fd, file, len, 0), 0);
	for (size_t at = 0; at < len; at += at < 64 ? 1 : 4099) {
		file[at] ^= 1;
		assert_int_equal(read_back(file, len, back, &e), -1);
		file[at] ^= 1;
	}
	assert_int_equal(read_back(file, len - 1, back, &e), -1);
	assert_non_null(strstr(e.text, "torn"));
	assert_int_equal(read_back(file, len, back, &e), 0);
	free(file);
	close(fd);
	free(s);
	free(back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_sha256),
		cmocka_unit_test(test_state_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
