/* Table `snapshot`: keys, pages, what cannot be read. */
#include "store_test_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct fixture f;

static int setup(void **state)
{
	(void)state;
	fixture_init(&f);
	fixture_open(&f);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fixture_finish(&f);
	return 0;
}

static struct snapshot_rec snapshot_of(int n)
{
	struct snapshot_rec r = {.environment = "env_a",
				 .graph = "main",
				 .sandbox = "sbx_a",
				 .template_name = "lbb/shell",
				 .template_base = "lbb/shell",
				 .limits = {1, 256, 512},
				 .created_ms = 1700000000000 + n,
				 .incarnation = 2,
				 .mem_bytes = UINT64_MAX};

	snprintf(r.id, sizeof(r.id), "snp_%d", n);
	return r;
}

static struct store_begin key_of(const char *key)
{
	return (struct store_begin){"env_a", "main", "snapshot", key, {7}};
}

static int add_until(int n, const char *key, int64_t expires_ms,
		     struct store_found *ret)
{
	struct snapshot_rec r = snapshot_of(n);
	struct store_begin b = key_of(key);
	struct answer a;

	r.expires_ms = expires_ms;
	answer_init(&a, &f);
	assert_int_equal(store_snapshot_add(f.store, &b, &r, on_found, &a), 0);
	answer_wait(&a, 1);
	*ret = a.found;
	return a.rc;
}

static int add_now(int n, const char *key, struct store_found *ret)
{
	return add_until(n, key, 0, ret);
}

struct got {
	struct answer a; /* first */
	struct snapshot_rec r;
};

static void on_snapshot(void *ctx, int rc, struct snapshot_rec *r)
{
	struct got *g = ctx;

	assert_true(!rc == !!r);
	if (r)
		g->r = *r;
	on_rc(&g->a, rc);
}

static int one_now(const char *graph, const char *id, bool is_delete,
		   struct snapshot_rec *ret)
{
	struct got g = {0};

	answer_init(&g.a, &f);
	assert_int_equal(
		(is_delete ? store_snapshot_delete : store_snapshot_get)(
			f.store, "env_a", graph, id, on_snapshot, &g),
		0);
	answer_wait(&g.a, 1);
	*ret = g.r;
	return g.a.rc;
}

static void on_list(void *ctx, int rc, struct snapshot_rec *r, size_t n,
		    bool has_more)
{
	struct answer *a = ctx;

	a->n_ids = n;
	a->has_more = has_more;
	for (size_t i = 0; i < n; i++)
		memcpy(a->ids[i], r[i].id, ID_BYTES_MAX);
	on_rc(a, rc);
}

static void list_now(const struct store_page *p, struct answer *a)
{
	answer_init(a, &f);
	assert_int_equal(store_snapshot_list(f.store, p, on_list, a), 0);
	answer_wait(a, 1);
}

static void added_read_deleted(void **state)
{
	struct snapshot_rec want = snapshot_of(1), r;
	struct store_found found;

	(void)state;
	assert_int_equal(add_now(1, "k", &found), 0);
	assert_false(found.is_found);
	/* The same key: the first one, and nothing new. */
	assert_int_equal(add_now(2, "k", &found), 0);
	assert_true(found.is_found && found.is_same_request);
	assert_string_equal(found.command, "snp_1");
	assert_string_equal(found.sandbox, "sbx_a");
	assert_int_equal(one_now("main", "snp_2", false, &r), -ENOENT);
	/* It is there after a restart, in its graph only. */
	fixture_close(&f);
	fixture_open(&f);
	assert_int_equal(one_now("main", "snp_1", false, &r), 0);
	assert_memory_equal(&r, &want, sizeof(r));
	assert_int_equal(one_now("other", "snp_1", false, &r), -ENOENT);
	assert_int_equal(one_now("other", "snp_1", true, &r), -ENOENT);
	assert_int_equal(one_now("main", "snp_1", true, &r), 0);
	assert_memory_equal(&r, &want, sizeof(r));
	assert_int_equal(one_now("main", "snp_1", true, &r), -ENOENT);
	/* An id that is there; and the key still names the first. */
	assert_int_equal(add_now(3, "k3", &found), 0);
	assert_true(add_now(3, "k4", &found) < 0);
	assert_int_equal(add_now(1, "k", &found), 0);
	assert_true(found.is_found);
}

static void listed_by_pages(void **state)
{
	struct store_page p = {
		.environment = "env_a", .graph = "main", .limit = 2};
	struct store_found found;
	struct answer a;
	char key[8];

	(void)state;
	for (int i = 1; i <= 5; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		assert_int_equal(add_now(i, key, &found), 0);
	}
	list_now(&p, &a);
	assert_int_equal(a.n_ids, 2);
	assert_true(a.has_more);
	assert_string_equal(a.ids[0], "snp_5");
	p.cursor = "snp_4";
	p.limit = 10;
	list_now(&p, &a);
	assert_int_equal(a.n_ids, 3);
	assert_false(a.has_more);
	assert_string_equal(a.ids[2], "snp_1");
	p.cursor = "snp_9";
	list_now(&p, &a);
	assert_int_equal(a.rc, -EINVAL);
	p.cursor = NULL;
	p.sandbox = "sbx_b";
	list_now(&p, &a);
	assert_int_equal(a.n_ids, 0);
	p.sandbox = "sbx_a";
	p.graph = "other";
	list_now(&p, &a);
	assert_int_equal(a.n_ids, 0);
}

static void one_that_cannot_be_read(void **state)
{
	struct store_page mine = {
		.environment = "env_a", .graph = "main", .limit = 10};
	struct store_page all = {.limit = 10};
	struct store_found found;
	struct snapshot_rec r;
	struct answer a;

	(void)state;
	for (int i = 1; i <= 3; i++)
		assert_int_equal(add_now(i,
					 i == 1	  ? "a"
					 : i == 2 ? "b"
						  : "c",
					 &found),
				 0);
	fixture_close(&f);
	raw_exec(&f, "UPDATE snapshot SET rec = x'a0' WHERE id = 'snp_2'");
	fixture_open(&f);
	list_now(&mine, &a);
	assert_int_equal(a.n_ids, 2);
	/* Its files are not swept. */
	list_now(&all, &a);
	assert_int_equal(a.n_ids, 3);
	assert_string_equal(a.ids[1], "snp_2");
	assert_int_equal(one_now("main", "snp_2", false, &r), -EBADMSG);
	assert_int_equal(one_now("main", "snp_2", true, &r), 0);
	assert_string_equal(r.id, "snp_2");
	list_now(&all, &a);
	assert_int_equal(a.n_ids, 2);
}

struct expired {
	struct answer a; /* first */
	char id[ID_BYTES_MAX];
	int64_t next_ms;
};

static void on_expired(void *ctx, int rc, const char *id, int64_t next_ms)
{
	struct expired *x = ctx;

	snprintf(x->id, sizeof(x->id), "%s", id ? id : "");
	x->next_ms = next_ms;
	on_rc(&x->a, rc);
}

static struct expired expire_now(int64_t now_ms)
{
	struct expired x = {0};

	answer_init(&x.a, &f);
	assert_int_equal(store_snapshot_expire(f.store, now_ms, on_expired, &x),
			 0);
	answer_wait(&x.a, 1);
	assert_int_equal(x.a.rc, 0);
	return x;
}

/* The earliest first, one a call; those without a time never. */
static void they_expire(void **state)
{
	struct store_page all = {.limit = 10};
	struct store_found found;
	struct expired x;
	struct answer a;

	(void)state;
	assert_int_equal(add_now(1, "a", &found), 0);
	assert_int_equal(expire_now(INT64_MAX).next_ms, 0);
	assert_int_equal(add_until(2, "b", 3000, &found), 0);
	assert_int_equal(add_until(3, "c", 2000, &found), 0);
	x = expire_now(1999);
	assert_string_equal(x.id, "");
	assert_int_equal(x.next_ms, 2000);
	x = expire_now(2000);
	assert_string_equal(x.id, "snp_3");
	assert_string_equal(expire_now(2000).id, "");
	fixture_close(&f);
	fixture_open(&f);
	x = expire_now(INT64_MAX);
	assert_string_equal(x.id, "snp_2");
	assert_string_equal(expire_now(INT64_MAX).id, "");
	list_now(&all, &a);
	assert_int_equal(a.n_ids, 1);
	assert_string_equal(a.ids[0], "snp_1");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(added_read_deleted),
		TEST(listed_by_pages),
		TEST(one_that_cannot_be_read),
		TEST(they_expire),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
