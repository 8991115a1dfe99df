/*
 * Every record in the order of its last change: once, whole, to be gone on from
 * anywhere; filters; what cannot be read; a million of them.
 */
#include "../clock.h"
#include "store_test_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MANY	  20000
#define MANY_LONG 1000000
/* Other work of the store waits for one page; generous, for a busy host. */
#define PAGE_MS_MAX 500

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

/* A walk: what came, page after page. */
struct walk {
	struct answer a;
	struct store_export ask;
	char ids[64][GRAPH_NAME_BYTES_MAX + 1]; /* the first ones */
	enum export_kind kinds[64];
	uint64_t seqs[64];
	bool is_aside[64];
	size_t n, n_pages, n_aside, bytes_max;
	uint64_t last_seq;
	bool has_more;
	struct bytes first; /* owned: bytes of the first record */
};

static void on_page(void *ctx, int rc, const struct export_page *p)
{
	struct walk *w = ctx;

	for (size_t i = 0; !rc && i < p->n; i++) {
		const struct export_item *it = &p->items[i];

		assert_true(it->seq > w->last_seq);
		w->last_seq = it->seq;
		assert_true(it->at + it->len <= p->cbor.len);
		assert_true(it->is_set_aside == !it->len);
		w->n_aside += it->is_set_aside;
		if (!w->n && !it->is_set_aside)
			assert_int_equal(bytes_append(&w->first,
						      p->cbor.data + it->at,
						      it->len),
					 0);
		if (w->n < 64) {
			memcpy(w->ids[w->n], it->id, sizeof(it->id));
			w->kinds[w->n] = it->kind;
			w->seqs[w->n] = it->seq;
			w->is_aside[w->n] = it->is_set_aside;
		}
		w->n++;
	}
	if (!rc) {
		assert_true(p->next > w->ask.after || !p->has_more);
		assert_true(p->next <= p->newest || p->has_more);
		assert_true(p->n <= STORE_EXPORT_EVENTS_MAX);
		if (p->cbor.len > w->bytes_max)
			w->bytes_max = p->cbor.len;
		w->ask.after = p->next;
		w->has_more = p->has_more;
		w->n_pages++;
	}
	on_rc(&w->a, rc);
}

static int walk(struct walk *w, const struct store_export *ask)
{
	int n = 0;

	memset(w, 0, sizeof(*w));
	answer_init(&w->a, &f);
	w->ask = *ask;
	do {
		assert_int_equal(
			store_export_page(f.store, &w->ask, on_page, w), 0);
		answer_wait(&w->a, ++n);
	} while (!w->a.rc && w->has_more);
	return w->a.rc;
}

static void walk_finish(struct walk *w)
{
	bytes_finish(&w->first);
	answer_finish(&w->a);
}

static void put_runs(int n)
{
	struct store_found found;
	char key[16];

	for (int i = 1; i <= n; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		assert_int_equal(begin_now(&f, i, key, &found), 0);
	}
}

static void end_run(int n)
{
	struct sandbox_rec s = sandbox_of(n);
	struct command_rec c = command_of(n);

	c.status = CMD_SUCCEEDED;
	s.status = SBX_DESTROYED;
	assert_int_equal(update_now(&f, &s, &c, false), 0);
	command_rec_finish(&c);
}

static void each_once_and_again_when_changed(void **state)
{
	_cleanup_bytes_ struct bytes want = {0};
	struct store_export ask = {0};
	struct sandbox_rec s = sandbox_of(1);
	struct walk w;
	uint64_t until;

	(void)state;
	put_runs(3);
	assert_int_equal(walk(&w, &ask), 0);
	assert_int_equal(w.n, 6);
	assert_string_equal(w.ids[0], s.id);
	assert_string_equal(w.ids[1], s.command);
	assert_int_equal(w.kinds[0], EXPORT_SANDBOX);
	assert_int_equal(w.kinds[1], EXPORT_COMMAND);
	assert_int_equal(sandbox_rec_encode(&s, &want), 0);
	assert_int_equal(w.first.len, want.len);
	assert_memory_equal(w.first.data, want.data, want.len);
	until = w.ask.after;
	walk_finish(&w);
	/* Nothing is new; then the two that changed are. */
	ask.after = until;
	assert_int_equal(walk(&w, &ask), 0);
	assert_int_equal(w.n, 0);
	walk_finish(&w);
	end_run(2);
	assert_int_equal(walk(&w, &ask), 0);
	assert_int_equal(w.n, 2);
	assert_string_equal(w.ids[0], sandbox_of(2).id);
	walk_finish(&w);
	/* From the first: still each once, what changed last at the end. */
	ask.after = 0;
	assert_int_equal(walk(&w, &ask), 0);
	assert_int_equal(w.n, 6);
	assert_string_equal(w.ids[5], sandbox_of(2).command);
	walk_finish(&w);
	ask.after = until + 1000;
	assert_int_equal(walk(&w, &ask), -EINVAL);
	walk_finish(&w);
}

/* A status that comes back is one record still. */
static void stopped_and_resumed(void **state)
{
	static const enum sandbox_status way[] = {
		SBX_RUNNING,  SBX_STOPPING, SBX_STOPPED,
		SBX_STARTING, SBX_RUNNING,  SBX_STOPPING,
		SBX_STOPPED,  SBX_STARTING, SBX_RUNNING};
	const struct store_export ask = {0};
	struct sandbox_rec s = sandbox_of(1);
	struct walk w;

	(void)state;
	put_runs(2);
	for (size_t i = 0; i < sizeof(way) / sizeof(*way); i++) {
		s.status = way[i];
		s.incarnation++;
		assert_int_equal(update_now(&f, &s, NULL, false), 0);
	}
	assert_int_equal(walk(&w, &ask), 0);
	assert_int_equal(w.n, 4);
	assert_string_equal(w.ids[3], s.id);
	walk_finish(&w);
}

static struct snapshot_rec snapshot_of(void)
{
	return (struct snapshot_rec){
		.id = "snp_1",
		.environment = "env_b",
		.graph = "other",
		.sandbox = "sbx_a",
		.template_name = "lbb/shell",
		.template_base = "lbb/shell",
		.limits = {1, 256, 512},
		.created_ms = 1700000000100,
	};
}

static void on_snapshot(void *ctx, int rc, struct snapshot_rec *r)
{
	(void)r;
	on_rc(ctx, rc);
}

static void one_of_each(void)
{
	static const uint8_t hash[HASH_BYTES] = {7};
	const struct key_info k = {
		.environment = "env_b", .name = "ci", .plan = PLAN_FULL};
	const struct store_begin b = {.environment = "env_b",
				      .graph = "other",
				      .operation = "createSnapshot",
				      .key = "s1"};
	const struct snapshot_rec s = snapshot_of();
	struct answer a;

	put_runs(1);
	answer_init(&a, &f);
	store_key_add(f.store, &k, hash, on_rc, &a);
	store_snapshot_add(f.store, &b, &s, on_found, &a);
	answer_wait(&a, 2);
	assert_int_equal(a.rc, 0);
	answer_finish(&a);
}

static size_t count(struct store_export ask)
{
	struct walk w;
	size_t n;

	assert_int_equal(walk(&w, &ask), 0);
	n = w.n;
	walk_finish(&w);
	return n;
}

static void filters(void **state)
{
	(void)state;
	one_of_each();
	assert_int_equal(count((struct store_export){0}), 4);
	assert_int_equal(count((struct store_export){.environment = "env_a"}),
			 2);
	assert_int_equal(count((struct store_export){.environment = "env_b"}),
			 2);
	assert_int_equal(count((struct store_export){.graph = "other"}), 1);
	assert_int_equal(count((struct store_export){.environment = "env_a",
						     .graph = "other"}),
			 0);
	/* Run 1 was created at ...001, the snapshot at ...100, the key now. */
	assert_int_equal(
		count((struct store_export){.since_ms = 1700000000002}), 2);
	assert_int_equal(
		count((struct store_export){.since_ms = 1700000000001,
					    .until_ms = 1700000000100}),
		2);
	assert_int_equal(
		count((struct store_export){.until_ms = 1700000000001}), 0);
}

static void keys_and_snapshots_change(void **state)
{
	const struct store_export all = {0};
	struct answer a;
	struct walk w;

	(void)state;
	one_of_each();
	answer_init(&a, &f);
	store_key_revoke(f.store, "env_b", "ci", on_rc, &a);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
	assert_int_equal(walk(&w, &all), 0);
	assert_int_equal(w.n, 4);
	assert_int_equal(w.kinds[3], EXPORT_KEY);
	assert_string_equal(w.ids[3], "ci");
	walk_finish(&w);
	store_snapshot_delete(f.store, "env_b", "other", "snp_1", on_snapshot,
			      &a);
	answer_wait(&a, 2);
	assert_int_equal(a.rc, 0);
	assert_int_equal(count(all), 3);
	answer_finish(&a);
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM event WHERE"
					" kind = 5"),
			 0);
	fixture_open(&f);
}

static void damaged_are_named(void **state)
{
	const struct store_export all = {0};
	struct walk w;

	(void)state;
	put_runs(3);
	for (int n = 1; n <= 3; n++)
		end_run(n);
	fixture_close(&f);
	raw_exec(&f, "UPDATE sandbox SET rec = x'a10001' WHERE seq = 2;"
		     "UPDATE command SET rec = zeroblob(9) WHERE seq = 3");
	fixture_open(&f);
	/* Found by the first walk, known by the second. */
	for (int turn = 0; turn < 2; turn++) {
		assert_int_equal(walk(&w, &all), 0);
		assert_int_equal(w.n, 6);
		assert_int_equal(w.n_aside, 2);
		assert_true(w.is_aside[4] && w.is_aside[5]);
		assert_string_equal(w.ids[4], sandbox_of(2).id);
		assert_string_equal(w.ids[5], sandbox_of(3).command);
		walk_finish(&w);
	}
	/* Their scope is known from the row. */
	assert_int_equal(count((struct store_export){.environment = "env_z"}),
			 0);
	assert_int_equal(count((struct store_export){.environment = "env_a"}),
			 6);
}

/* Rows like run 1, made by SQL. */
static void put_many(int n)
{
	char sql[1600];

	fixture_close(&f);
	snprintf(
		sql, sizeof(sql),
		"PRAGMA synchronous = OFF; BEGIN;"
		"CREATE TEMP TABLE n AS WITH RECURSIVE c(i) AS (SELECT 2 UNION"
		" ALL SELECT i + 1 FROM c WHERE i < %d) SELECT i,"
		" printf('%%026d', i) AS t FROM c;"
		"INSERT INTO sandbox SELECT i, 'sbx_' || t, environment, graph,"
		" status, kind, template_name, incarnation, created_ms,"
		" ended_ms, expires_ms, 0, rec, name, template_id"
		" FROM sandbox, n WHERE seq = 1;"
		"INSERT INTO command SELECT i, 'cmd_' || t, 'sbx_' || t,"
		" environment, graph, status, kind, created_ms, ended_ms, 0, 0,"
		" rec FROM command, n WHERE seq = 1;"
		"INSERT INTO event(at_ms, environment, graph, sandbox, command,"
		" kind, rec) SELECT at_ms, environment, graph, 'sbx_' || t,"
		" CASE command WHEN '' THEN '' ELSE 'cmd_' || t END, kind, rec"
		" FROM n, event WHERE sandbox LIKE 'sbx_%%1' ORDER BY i, seq;"
		"COMMIT",
		n);
	raw_exec(&f, sql);
	fixture_open(&f);
}

static void many_by_bounded_pages(void **state)
{
	const int n = is_long_run() ? MANY_LONG : MANY;
	const struct store_export all = {0};
	int64_t began, ms;
	struct walk w;

	(void)state;
	put_runs(1);
	end_run(1);
	put_many(n);
	began = clock_mono_ms();
	assert_int_equal(walk(&w, &all), 0);
	ms = clock_mono_ms() - began;
	assert_int_equal(w.n, 2 * n);
	assert_true(w.n_pages >= (size_t)n * 4 / STORE_EXPORT_EVENTS_MAX);
	assert_true(w.bytes_max < 2 * STORE_EXPORT_BYTES);
	print_message("%zu records in %zu pages: %lld ms, %.2f ms a page\n",
		      w.n, w.n_pages, (long long)ms,
		      (double)ms / (double)w.n_pages);
	assert_true(ms < PAGE_MS_MAX * (int64_t)w.n_pages);
	walk_finish(&w);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_once_and_again_when_changed),
		TEST(stopped_and_resumed),
		TEST(filters),
		TEST(keys_and_snapshots_change),
		TEST(damaged_are_named),
		TEST(many_by_bounded_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
