/* Unit tests of bytes.c: growth, overflow, printf, little endian. */
#include <stddef.h>
#include <stdlib.h>

static void free_looked_at(void *p);
#define free free_looked_at
#include "bytes.c"
#undef free
#include <setjmp.h>

#include <cmocka.h>

static void zeroed_is_empty(void **state)
{
	struct bytes b = {0};

	(void)state;
	bytes_consume(&b, 0);
	assert_int_equal(bytes_append(&b, NULL, 0), 0);
	assert_int_equal(b.len, 0);
	bytes_finish(&b);
	bytes_finish(&b);
}

static void append_grows_and_keeps(void **state)
{
	struct bytes b = {0};

	(void)state;
	for (unsigned i = 0; i < 100000; i++) {
		uint8_t c = (uint8_t)(i * 7);

		assert_int_equal(bytes_append(&b, &c, 1), 0);
	}
	assert_int_equal(b.len, 100000);
	assert_true(b.cap >= b.len);
	for (unsigned i = 0; i < 100000; i++)
		assert_int_equal(b.data[i], (uint8_t)(i * 7));
	bytes_finish(&b);
	assert_null(b.data);
	assert_int_equal(b.cap, 0);
}

/* Of the next frees: size to look at, and how many held no byte but 0. */
static size_t look_at_bytes;
static unsigned n_wiped, n_freed;

static void free_looked_at(void *p)
{
	size_t n = 0;

	while (p && n < look_at_bytes && !((uint8_t *)p)[n])
		n++;
	n_freed += p != NULL;
	n_wiped += p && n == look_at_bytes;
	free(p);
}

static void secrets_leave_no_copy(void **state)
{
	struct bytes b = {0};
	char text[100];

	(void)state;
	memset(text, 's', sizeof(text));
	n_wiped = n_freed = 0;
	look_at_bytes = 256;
	for (int i = 0; i < 100; i++)
		assert_int_equal(bytes_append_secret(&b, text, sizeof(text)),
				 0);
	assert_int_equal(b.len, 10000);
	for (size_t i = 0; i < b.len; i++)
		assert_int_equal(b.data[i], 's');
	assert_int_equal(bytes_append_secret(&b, "", SIZE_MAX), -ENOMEM);
	assert_int_equal(b.len, 10000);
	bytes_finish_secret(&b);
	assert_null(b.data);
	assert_int_equal(n_freed, 7); /* 256, 512 ... 16384 */
	assert_int_equal(n_wiped, n_freed);
	look_at_bytes = 0;
	bytes_finish_secret(&b);
}

static void impossible_sizes_are_refused(void **state)
{
	struct bytes b = {0};

	(void)state;
	assert_int_equal(bytes_append(&b, "abc", 3), 0);
	assert_int_equal(bytes_reserve(&b, SIZE_MAX), -ENOMEM);
	assert_int_equal(bytes_reserve(&b, SIZE_MAX - 3), -ENOMEM);
	assert_int_equal(bytes_reserve(&b, SIZE_MAX / 2 + 1), -ENOMEM);
	assert_int_equal(b.len, 3);
	assert_memory_equal(b.data, "abc", 3);
	bytes_finish(&b);
}

static void consume_drops_from_the_front(void **state)
{
	struct bytes b = {0};

	(void)state;
	bytes_append(&b, "hello world", 11);
	bytes_consume(&b, 6);
	assert_int_equal(b.len, 5);
	assert_memory_equal(b.data, "world", 5);
	bytes_consume(&b, 100);
	assert_int_equal(b.len, 0);
	bytes_finish(&b);
}

static void printf_appends(void **state)
{
	struct bytes b = {0};
	char big[1000];

	(void)state;
	memset(big, 'z', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	assert_int_equal(bytes_printf(&b, "%d-%s", 42, "x"), 0);
	assert_memory_equal(b.data, "42-x", 4);
	assert_int_equal(bytes_printf(&b, "%s", big), 0);
	assert_int_equal(b.len, 4 + 999);
	assert_int_equal(b.data[4 + 998], 'z');
	bytes_finish(&b);
}

static void little_endian_at_any_address(void **state)
{
	uint8_t p[9] = {0xee, 1, 2, 3, 4, 5, 6, 7, 8};

	(void)state;
	assert_int_equal(le16_load(p + 1), 0x0201);
	assert_int_equal(le32_load(p + 1), 0x04030201);
	assert_int_equal(le64_load(p + 1), 0x0807060504030201ull);
	le32_store(p + 3, 0xa1b2c3d4u);
	assert_int_equal(p[3], 0xd4);
	assert_int_equal(p[6], 0xa1);
	le64_store(p + 1, 0);
	assert_int_equal(p[0], 0xee);
	assert_int_equal(le64_load(p + 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(zeroed_is_empty),
		cmocka_unit_test(append_grows_and_keeps),
		cmocka_unit_test(secrets_leave_no_copy),
		cmocka_unit_test(impossible_sizes_are_refused),
		cmocka_unit_test(consume_drops_from_the_front),
		cmocka_unit_test(printf_appends),
		cmocka_unit_test(little_endian_at_any_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
