/* Table `template`: versions, keys, pages, what cannot be read (LBB-25,
 * LBB-103, LBB-105 to LBB-107). */
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

/* A version of `name` that will have the id sbt_N. */
static struct template_rec template_of(int n, const char *name,
				       const char *code)
{
	struct template_rec r = {.environment = "env_a",
				 .graph = "main",
				 .base = "lbb/shell",
				 .limits = {2, 2048, 4096},
				 .timeout_ms = 60000,
				 .created_ms = 1700000000000 + n,
				 .has_code = code != NULL,
				 .code_bytes = code ? strlen(code) : 0};

	snprintf(r.id, sizeof(r.id), "sbt_%d", n);
	snprintf(r.name, sizeof(r.name), "%s", name);
	if (code)
		bytes_append(&r.code, code, strlen(code));
	return r;
}

struct got {
	struct answer a; /* first */
	struct template_rec r;
	char code[64], config[64], files[128];
	size_t n_files;
};

static void keep(struct got *g, const struct template_rec *r)
{
	if (!r)
		return;
	g->r = *r;
	memset(&g->r.files, 0, sizeof(g->r.files));
	g->n_files = r->files.n;
	for (size_t i = 0; i < r->files.n; i++)
		snprintf(g->files + strlen(g->files),
			 sizeof(g->files) - strlen(g->files), "%s=%.*s:%llu ",
			 r->files.at[i].id, (int)r->files.at[i].path.len,
			 (const char *)r->files.at[i].path.data,
			 (unsigned long long)r->files.at[i].bytes);
	snprintf(g->code, sizeof(g->code), "%.*s", (int)r->code.len,
		 (const char *)r->code.data);
	snprintf(g->config, sizeof(g->config), "%.*s", (int)r->config.len,
		 (const char *)r->config.data);
}

static void on_saved(void *ctx, int rc, const struct store_found *found,
		     struct template_rec *r)
{
	struct got *g = ctx;

	keep(g, r);
	g->a.found = *found;
	on_rc(&g->a, rc);
}

static void on_template(void *ctx, int rc, struct template_rec *r)
{
	assert_true(!rc == !!r);
	keep(ctx, r);
	on_rc(ctx, rc);
}

static struct store_begin key_of(const char *graph, const char *key,
				 uint8_t hash)
{
	return (struct store_begin){"env_a", graph, "template", key, {hash}};
}

static int save_now(struct template_rec r, const char *key, uint8_t hash,
		    struct got *g)
{
	const struct store_begin b = key_of(r.graph, key, hash);

	memset(g, 0, sizeof(*g));
	answer_init(&g->a, &f);
	assert_int_equal(store_template_save(f.store, &b, &r, on_saved, g), 0);
	template_rec_finish(&r); /* it has a copy */
	answer_wait(&g->a, 1);
	return g->a.rc;
}

static int get_now(const char *graph, const char *which, bool is_name,
		   struct got *g)
{
	memset(g, 0, sizeof(*g));
	answer_init(&g->a, &f);
	assert_int_equal(store_template_get(f.store, "env_a", graph, which,
					    is_name, on_template, g),
			 0);
	answer_wait(&g->a, 1);
	return g->a.rc;
}

static int use_now(const char *key, uint8_t hash, const char *which,
		   struct got *g)
{
	struct store_begin b = key_of("main", key, hash);

	b.operation = "run";
	memset(g, 0, sizeof(*g));
	answer_init(&g->a, &f);
	assert_int_equal(store_template_use(f.store, &b, which, on_saved, g),
			 0);
	answer_wait(&g->a, 1);
	return g->a.rc;
}

static void on_list(void *ctx, int rc, struct template_rec *r, size_t n,
		    bool has_more)
{
	struct answer *a = ctx;

	a->n_ids = n;
	a->has_more = has_more;
	for (size_t i = 0; i < n; i++) {
		assert_null(r[i].code.data);
		memcpy(a->ids[i], r[i].id, ID_BYTES_MAX);
	}
	on_rc(a, rc);
}

/* The ids of a page, "sbt_2 sbt_1". */
static void assert_page(const struct store_page *p, const char *want,
			bool has_more)
{
	struct answer a;
	char ids[256] = "";

	answer_init(&a, &f);
	assert_int_equal(store_template_list(f.store, p, on_list, &a), 0);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
	for (size_t i = 0; i < a.n_ids; i++)
		snprintf(ids + strlen(ids), sizeof(ids) - strlen(ids), "%s%s",
			 i ? " " : "", a.ids[i]);
	assert_string_equal(ids, want);
	assert_int_equal(a.has_more, has_more);
}

static void each_save_is_a_version(void **state)
{
	struct template_rec r = template_of(1, "sum", "one");
	struct got g;

	(void)state;
	r.has_config = true;
	r.config_bytes = 9;
	bytes_append(&r.config, "{\"a\":1.0}", 9);
	assert_int_equal(save_now(r, "k1", 1, &g), 0);
	assert_false(g.a.found.is_found);
	assert_int_equal(g.r.version, 1);
	assert_string_equal(g.code, "one");
	assert_int_equal(save_now(template_of(2, "sum", "two"), "k2", 1, &g),
			 0);
	assert_int_equal(g.r.version, 2);
	assert_int_equal(save_now(template_of(3, "other", NULL), "k3", 1, &g),
			 0);
	assert_int_equal(g.r.version, 1);
	/* Versions are per graph. */
	r = template_of(4, "sum", "four");
	snprintf(r.graph, sizeof(r.graph), "side");
	assert_int_equal(save_now(r, "k1", 1, &g), 0);
	assert_int_equal(g.r.version, 1);
	fixture_close(&f);
	fixture_open(&f);
	assert_int_equal(get_now("main", "sum", false, &g), 0);
	assert_string_equal(g.r.id, "sbt_2");
	assert_string_equal(g.code, "two");
	assert_string_equal(g.config, "");
	assert_int_equal(g.r.limits.memory_mib, 2048);
	assert_int_equal(get_now("main", "sbt_1", false, &g), 0);
	assert_string_equal(g.code, "one");
	assert_string_equal(g.config, "{\"a\":1.0}");
	assert_true(g.r.has_config);
	assert_int_equal(get_now("side", "sum", true, &g), 0);
	assert_string_equal(g.code, "four");
	/* Another graph's id, an id asked for as a name, nothing. */
	assert_int_equal(get_now("side", "sbt_1", false, &g), -ENOENT);
	assert_int_equal(get_now("main", "sbt_1", true, &g), -ENOENT);
	assert_int_equal(get_now("main", "nothing", false, &g), -ENOENT);
	assert_int_equal(get_now("main", "", false, &g), -ENOENT);
}

/* Files are of the record: a list has them, too; without any it is one that the
 * program before could read. */
static void files_are_kept(void **state)
{
	struct store_page p = {
		.environment = "env_a", .graph = "main", .limit = 10};
	struct template_rec r = template_of(1, "sum", "one");
	struct got g;

	(void)state;
	r.files.at = calloc(2, sizeof(*r.files.at));
	assert_non_null(r.files.at);
	r.files.n = 2;
	for (size_t i = 0; i < 2; i++) {
		snprintf(r.files.at[i].id, ID_BYTES_MAX, "fil_%zu", i);
		bytes_append(&r.files.at[i].path, i ? "b" : "in/a", i ? 1 : 4);
		r.files.at[i].bytes = i + 7;
	}
	assert_int_equal(save_now(r, "k", 1, &g), 0);
	assert_string_equal(g.files, "fil_0=in/a:7 fil_1=b:8 ");
	assert_int_equal(save_now(template_of(2, "sum", "two"), "k2", 1, &g),
			 0);
	assert_int_equal(g.n_files, 0);
	assert_page(&p, "sbt_2", false);
	p.name = "sum";
	assert_page(&p, "sbt_2 sbt_1", false);
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM template WHERE"
					" instr(substr(rec, 2, 3), x'0001')"),
			 1);
	fixture_open(&f);
	assert_int_equal(get_now("main", "sbt_1", false, &g), 0);
	assert_string_equal(g.files, "fil_0=in/a:7 fil_1=b:8 ");
	assert_string_equal(g.code, "one");
	/* By its key. */
	assert_int_equal(save_now(template_of(3, "sum", "one"), "k", 1, &g), 0);
	assert_string_equal(g.files, "fil_0=in/a:7 fil_1=b:8 ");
}

static void a_key_saves_once(void **state)
{
	struct got g;

	(void)state;
	assert_int_equal(save_now(template_of(1, "sum", "one"), "k", 1, &g), 0);
	assert_int_equal(save_now(template_of(2, "sum", "two"), "k2", 1, &g),
			 0);
	/* Again, also after a later save: the first record. */
	assert_int_equal(save_now(template_of(3, "sum", "one"), "k", 1, &g), 0);
	assert_true(g.a.found.is_found && g.a.found.is_same_request);
	assert_string_equal(g.r.id, "sbt_1");
	assert_int_equal(g.r.version, 1);
	assert_string_equal(g.code, "one");
	/* With another request: nothing. */
	assert_int_equal(save_now(template_of(3, "sum", "x"), "k", 2, &g), 0);
	assert_true(g.a.found.is_found && !g.a.found.is_same_request);
	assert_string_equal(g.r.id, "");
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM template"), 2);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM blob"), 2);
	fixture_open(&f);
}

/* Saves that are on their way at once: each has a number, in their order. */
static void saves_at_once_have_numbers(void **state)
{
	enum { N = 20 };
	static struct got g[N];
	char key[8];

	(void)state;
	for (int i = 0; i < N; i++) {
		struct template_rec r = template_of(i, "sum", "x");
		struct store_begin b;

		snprintf(key, sizeof(key), "k%d", i / 2 * 2);
		b = key_of("main", key, 1);
		memset(&g[i], 0, sizeof(g[i]));
		answer_init(&g[i].a, &f);
		assert_int_equal(
			store_template_save(f.store, &b, &r, on_saved, &g[i]),
			0);
		template_rec_finish(&r);
	}
	for (int i = 0; i < N; i++) {
		answer_wait(&g[i].a, 1);
		assert_int_equal(g[i].a.rc, 0);
		/* Every other one has the key of the one before. */
		assert_int_equal(g[i].r.version, i / 2 + 1);
	}
}

/* What a run with a key finds: its record, or the template. */
static void a_key_comes_before_the_template(void **state)
{
	struct store_found found;
	struct got g;

	(void)state;
	assert_int_equal(save_now(template_of(1, "sum", "one"), "k", 1, &g), 0);
	assert_int_equal(use_now("sum-a", 1, "sum", &g), 0);
	assert_false(g.a.found.is_found);
	assert_string_equal(g.r.id, "sbt_1");
	assert_int_equal(use_now("sum-a", 1, "nothing", &g), -ENOENT);
	assert_int_equal(begin_now(&f, 7, "sum-a", &found), 0);
	assert_int_equal(use_now("sum-a", 1, "nothing", &g), 0);
	assert_true(g.a.found.is_found);
	assert_false(g.a.found.is_same_request);
	assert_string_equal(g.a.found.command, sandbox_of(7).command);
	assert_string_equal(g.r.id, "");
	/* The key of a save is another one. */
	assert_int_equal(use_now("k", 1, "sum", &g), 0);
	assert_false(g.a.found.is_found);
}

static void pages(void **state)
{
	static const char *const names[] = {"a", "b", "a", "c", "a"};
	struct store_page p = {
		.environment = "env_a", .graph = "main", .limit = 10};
	struct got g;
	char key[8];

	(void)state;
	assert_page(&p, "", false);
	for (int i = 0; i < 5; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		save_now(template_of(i + 1, names[i], "x"), key, 1, &g);
	}
	/* The newest of each name, newest first. */
	assert_page(&p, "sbt_5 sbt_4 sbt_2", false);
	p.limit = 2;
	assert_page(&p, "sbt_5 sbt_4", true);
	p.cursor = "sbt_4";
	assert_page(&p, "sbt_2", false);
	p.cursor = NULL;
	p.name = "a";
	assert_page(&p, "sbt_5 sbt_3", true);
	p.cursor = "sbt_3";
	assert_page(&p, "sbt_1", false);
	p.cursor = NULL;
	p.name = "nothing";
	assert_page(&p, "", false);
	p.name = NULL;
	p.graph = "side";
	assert_page(&p, "", false);
}

/* A record or a code that is not what was written is refused, and told. */
static void damage_is_found(void **state)
{
	struct store_page p = {
		.environment = "env_a", .graph = "main", .limit = 10};
	struct got g;

	(void)state;
	save_now(template_of(1, "a", "x"), "k1", 1, &g);
	save_now(template_of(2, "b", "x"), "k2", 1, &g);
	save_now(template_of(3, "c", "x"), "k3", 1, &g);
	fixture_close(&f);
	raw_exec(&f, "UPDATE template SET rec = x'a0' WHERE id = 'sbt_1';"
		     "DELETE FROM blob WHERE owner = 'sbt_2'");
	fixture_open(&f);
	assert_int_equal(get_now("main", "a", false, &g), -EBADMSG);
	assert_int_equal(get_now("main", "b", false, &g), -EBADMSG);
	assert_int_equal(get_now("main", "c", false, &g), 0);
	assert_page(&p, "sbt_3 sbt_2", false);
	/* The name goes on. */
	assert_int_equal(save_now(template_of(4, "a", "y"), "k4", 1, &g), 0);
	assert_int_equal(g.r.version, 2);
}

static void there_is_an_end(void **state)
{
	struct got g;

	(void)state;
	save_now(template_of(1, "a", "x"), "k1", 1, &g);
	fixture_close(&f);
	raw_exec(&f, "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1"
		     " FROM n WHERE i < 10000) INSERT INTO template SELECT"
		     " 'x' || i, 'env_a', 'main', 'a', i, 0, x'00' FROM n");
	fixture_open(&f);
	assert_int_equal(save_now(template_of(2, "b", "x"), "k2", 1, &g),
			 -EDQUOT);
	/* Its key is not burnt, and other graphs go on. */
	assert_int_equal(use_now("k2", 1, "b", &g), -ENOENT);
	{
		struct template_rec r = template_of(3, "b", "x");

		snprintf(r.graph, sizeof(r.graph), "side");
		assert_int_equal(save_now(r, "k2", 1, &g), 0);
	}
	fixture_close(&f);
	raw_exec(&f, "DELETE FROM template WHERE id = 'x10000'");
	fixture_open(&f);
	assert_int_equal(save_now(template_of(2, "b", "x"), "k2", 1, &g), 0);
	assert_false(g.a.found.is_found);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_save_is_a_version, setup,
						teardown),
		cmocka_unit_test_setup_teardown(files_are_kept, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_key_saves_once, setup,
						teardown),
		cmocka_unit_test_setup_teardown(saves_at_once_have_numbers,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_key_comes_before_the_template,
						setup, teardown),
		cmocka_unit_test_setup_teardown(pages, setup, teardown),
		cmocka_unit_test_setup_teardown(damage_is_found, setup,
						teardown),
		cmocka_unit_test_setup_teardown(there_is_an_end, setup,
						teardown),
	};

	return cmocka_run_group_tests_name("store_template", tests, NULL, NULL);
}
