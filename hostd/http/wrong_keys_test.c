/* Wrong keys by address (K6): one peer's tries are its own, memory is fixed. */
#include "wrong_keys.c"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

static int64_t now_ms = 5000000;
static struct wrong_keys w;

int64_t clock_mono_ms(void)
{
	return now_ms;
}

static int fresh(void **state)
{
	(void)state;
	/* A fixed secret: no two addresses of these tests share a bucket. */
	memset(&w, 0, sizeof(w));
	return 0;
}

static int note4(const char *address)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = (in_port_t)now_ms};

	assert_int_equal(inet_pton(AF_INET, address, &a.sin_addr), 1);
	return wrong_keys_note(&w, (struct sockaddr *)&a);
}

static int note6(const char *address)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6};

	assert_int_equal(inet_pton(AF_INET6, address, &a.sin6_addr), 1);
	return wrong_keys_note(&w, (struct sockaddr *)&a);
}

static void test_burst(void **state)
{
	(void)state;
	for (int i = 0; i < WRONG_KEYS_BURST; i++)
		assert_int_equal(note4("192.0.2.1"), 0);
	assert_int_equal(note4("192.0.2.1"), 2);
	now_ms += 1500;
	assert_int_equal(note4("192.0.2.1"), 1);
	now_ms += 500;
	assert_int_equal(note4("192.0.2.1"), 0);
	assert_int_equal(note4("192.0.2.1"), 2);
	/* 10,000 refused tries do not make the wait longer. */
	for (int i = 0; i < 10000; i++)
		assert_int_equal(note4("192.0.2.1"), 2);
	assert_int_equal(note4("192.0.2.2"), 0);
	now_ms += (int64_t)24 * 3600 * 1000;
	for (int i = 0; i < WRONG_KEYS_BURST; i++)
		assert_int_equal(note4("192.0.2.1"), 0);
	assert_true(note4("192.0.2.1") > 0);
}

/* A host owns a /64, and is one whether it comes by IPv4 or by ::ffff:. */
static void test_v6(void **state)
{
	(void)state;
	for (int i = 0; i < WRONG_KEYS_BURST; i++)
		assert_int_equal(note6(i % 2 ? "2001:db8::1" : "2001:db8::2:3"),
				 0);
	assert_int_equal(note6("2001:db8::4"), 2);
	assert_int_equal(note6("2001:db8:0:1::4"), 0);
	for (int i = 0; i < WRONG_KEYS_BURST; i++)
		assert_int_equal(note6("::ffff:198.51.100.7"), 0);
	assert_int_equal(note4("198.51.100.7"), 2);
}

static void test_many_peers(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	struct sockaddr local = {.sa_family = AF_UNIX};
	unsigned refused = 0;

	(void)state;
	assert_int_equal(wrong_keys_init(&w), 0);
	for (uint32_t i = 0; i < 1000000; i++) {
		a.sin_addr.s_addr = htonl(0x0a000000 + i);
		refused += wrong_keys_note(&w, (struct sockaddr *)&a) > 0;
	}
	/* All buckets are used up: each took its burst and no more. */
	assert_in_range(1000000 - refused, WRONG_KEYS_BUCKETS,
			WRONG_KEYS_BUCKETS * WRONG_KEYS_BURST);
	assert_true(wrong_keys_note(&w, &local) >= 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_burst, fresh),
		cmocka_unit_test_setup(test_v6, fresh),
		cmocka_unit_test_setup(test_many_peers, fresh),
	};

	return cmocka_run_group_tests_name("wrong_keys", tests, NULL, NULL);
}
