/* Unit tests of the request hash and of the query and routes around it. */
#include "canon.h"
#include "query.h"
#include "route.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

static const uint8_t key[CANON_KEY_BYTES] = "0123456789abcdef0123456789abcde";

static void hash(const char *body, const char *graph, uint8_t ret[HASH_BYTES])
{
	struct canon_request r = {
		"POST", "/v1/sandboxes", "createSandbox", graph, NULL, {0}};
	struct err e;

	if (body)
		assert_int_equal(
			json_check(body, strlen(body), 16, &r.body, &e), 0);
	assert_int_equal(canon_hash(key, &r, ret), 0);
}

static bool is_same(const char *a, const char *b)
{
	uint8_t ha[HASH_BYTES], hb[HASH_BYTES];

	hash(a, "main", ha);
	hash(b, "main", hb);
	return !memcmp(ha, hb, HASH_BYTES);
}

static void test_hash(void **state)
{
	uint8_t a[HASH_BYTES], b[HASH_BYTES];

	(void)state;
	/* Order and white space between members do not matter; wait_ms is
	 * not part of what runs. */
	assert_true(
		is_same("{\"run\":{\"code\":\"x\"},\"wait_ms\":1}",
			"{ \"wait_ms\" : 30000 , \"run\":{\"code\":\"x\"}}"));
	assert_true(is_same("{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}"));
	/* Spelling of values does: 1 and 1.0 are two inputs. */
	assert_false(is_same("{\"a\":1}", "{\"a\":1.0}"));
	assert_false(is_same("{\"a\":1}", "{\"b\":1}"));
	assert_false(is_same("{\"a\":1}", "{}"));
	assert_false(is_same("{\"a\":\"b\"}", "{\"ab\":\"\"}"));
	hash("{}", "main", a);
	hash("{}", "other", b);
	assert_memory_not_equal(a, b, HASH_BYTES);
	hash(NULL, "main", a);
}

static void test_key_file(void **state)
{
	char dir[] = "/tmp/canon_test.XXXXXX", path[64];
	uint8_t a[CANON_KEY_BYTES], b[CANON_KEY_BYTES];
	struct stat st;
	struct err e;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/request.key", dir);
	assert_int_equal(canon_key_load(path, a, &e), 0);
	assert_int_equal(canon_key_load(path, b, &e), 0);
	assert_memory_equal(a, b, CANON_KEY_BYTES);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(truncate(path, 31), 0);
	assert_int_equal(canon_key_load(path, b, &e), -1);
	assert_non_null(strstr(e.text, "found 31 bytes"));
	unlink(path);
	rmdir(dir);
}

/* ---- query ------------------------------------------------------------ */

static void test_query(void **state)
{
	static const char *const known[] = {"a", "b", NULL};
	struct query q;
	struct err e;
	uint64_t n;

	(void)state;
	assert_int_equal(query_parse(&q, NULL, &e), 0);
	assert_null(query_get(&q, "a"));
	query_finish(&q);
	assert_int_equal(query_parse(&q, "a=1%2B%31+x&b&&", &e), 0);
	assert_string_equal(query_get(&q, "a"), "1+1 x");
	assert_string_equal(query_get(&q, "b"), "");
	assert_int_equal(query_check(&q, known, NULL, &e), 0);
	assert_int_equal(query_check(&q, NULL, NULL, &e), -1);
	assert_string_equal(e.param, "a");
	query_finish(&q);
	assert_int_equal(query_parse(&q, "a=12&b=x", &e), 0);
	assert_int_equal(query_u64(&q, "a", 0, 12, 5, &n, &e), 0);
	assert_int_equal(n, 12);
	assert_int_equal(query_u64(&q, "a", 0, 11, 5, &n, &e), -1);
	assert_int_equal(query_u64(&q, "b", 0, 11, 5, &n, &e), -1);
	assert_int_equal(query_u64(&q, "c", 0, 11, 5, &n, &e), 0);
	assert_int_equal(n, 5);
	query_finish(&q);
}

static void test_query_refuses(void **state)
{
	static const char *const texts[] = {
		"a=%",	       "a=%4",
		"a=%zz",       "a=%00",
		"a=%ff",       "%c3=1",
		"a=1&a=2",     "a=1&%61=2",
		"a=%ed%a0%80", "1&2&3&4&5&6&7&8&9&10&11&12&13&14&15&16&17",
	};
	struct query q;
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		if (query_parse(&q, texts[i], &e) != -1)
			fail_msg("accepted: %s", texts[i]);
		assert_int_equal(e.code, ERR_INVALID_REQUEST);
	}
	assert_int_equal(query_parse(&q, "a=18446744073709551616", &e), 0);
	assert_int_equal(
		query_u64(&q, "a", 0, UINT64_MAX, 0, &(uint64_t){0}, &e), -1);
	query_finish(&q);
}

/* ---- routes ----------------------------------------------------------- */

static const struct route rows[] = {
	{HTTP_GET, "/a", "getA", 0, ACCESS_OPEN, 0, NULL, NULL},
	{HTTP_POST, "/a", "postA", 0, ACCESS_OPEN, 10, NULL, NULL},
	{HTTP_GET, "/admin", "admin", ROUTE_ADMIN, ACCESS_OPEN, 0, NULL, NULL},
};
static const struct route_table table = {"t", rows, 3};
static const struct route_table *const tables[] = {&table, NULL};

static const char *find(enum http_method m, const char *path, bool is_admin,
			unsigned *allow)
{
	const struct route *r = route_find(tables, m, path, is_admin, allow);

	return r ? r->operation : "none";
}

static void test_routes(void **state)
{
	char text[64];
	unsigned allow;

	(void)state;
	assert_string_equal(find(HTTP_GET, "/a", false, &allow), "getA");
	assert_string_equal(find(HTTP_HEAD, "/a", false, &allow), "getA");
	assert_string_equal(find(HTTP_POST, "/a", false, &allow), "postA");
	assert_string_equal(find(HTTP_DELETE, "/a", false, &allow), "none");
	route_allow(allow, text, sizeof(text));
	assert_string_equal(text, "GET, POST, HEAD, OPTIONS");
	assert_string_equal(find(HTTP_GET, "/a/", false, &allow), "none");
	assert_int_equal(allow, 0);
	assert_string_equal(find(HTTP_GET, "/admin", true, &allow), "admin");
	assert_string_equal(find(HTTP_POST, "/admin", false, &allow), "none");
	assert_int_equal(allow, 0);
	assert_int_equal(http_method_parse("GET"), HTTP_GET);
	assert_int_equal(http_method_parse("get"), HTTP_OTHER);
	assert_int_equal(http_method_parse("TRACE"), HTTP_OTHER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hash),
		cmocka_unit_test(test_key_file),
		cmocka_unit_test(test_query),
		cmocka_unit_test(test_query_refuses),
		cmocka_unit_test(test_routes),
	};

	return cmocka_run_group_tests_name("canon", tests, NULL, NULL);
}
