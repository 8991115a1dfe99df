/* Environments and graphs: made, changed in part, removed, still there after a
 * restart (LBB-68 to LBB-70). */
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

/* What was loaded: copies. */
static struct {
	struct environment_info env[8];
	struct graph_info graph[8];
	size_t n_env, n_graph;
} seen;

static void on_realm(void *ctx, int rc, const struct realm_rows *r)
{
	assert_int_equal(rc, 0);
	assert_true(r->n_environments <= 8 && r->n_graphs <= 8);
	seen.n_env = r->n_environments;
	seen.n_graph = r->n_graphs;
	for (size_t i = 0; i < r->n_environments; i++)
		seen.env[i] = r->environments[i];
	for (size_t i = 0; i < r->n_graphs; i++)
		seen.graph[i] = r->graphs[i];
	on_rc(ctx, rc);
}

static void load(bool with_all_graphs)
{
	struct answer a;

	answer_init(&a, &f);
	assert_int_equal(
		store_realm_load(f.store, with_all_graphs, on_realm, &a), 0);
	answer_wait(&a, 1);
}

static int add(const char *id)
{
	struct environment_info e = {.plan = PLAN_FULL, .is_enabled = true};
	struct answer a;

	answer_init(&a, &f);
	snprintf(e.id, sizeof(e.id), "%s", id);
	assert_int_equal(store_environment_add(f.store, &e, on_rc, &a), 0);
	answer_wait(&a, 1);
	return a.rc;
}

static int set(const struct environment_change *c)
{
	struct answer a;

	answer_init(&a, &f);
	assert_int_equal(store_environment_set(f.store, c, on_rc, &a), 0);
	answer_wait(&a, 1);
	return a.rc;
}

static int del(const char *id)
{
	struct answer a;

	answer_init(&a, &f);
	assert_int_equal(store_environment_delete(f.store, id, on_rc, &a), 0);
	answer_wait(&a, 1);
	return a.rc;
}

static void reopen(void)
{
	fixture_close(&f);
	fixture_open(&f);
}

static void a_change_sets_what_it_names(void **state)
{
	struct environment_change c = {.has_plan = true,
				       .to = {"b", .plan = PLAN_FREE}};

	(void)state;
	assert_int_equal(add("b"), 0);
	assert_int_equal(add("a"), 0);
	assert_int_equal(add("b"), -EEXIST);
	assert_int_equal(set(&c), 0);
	c = (struct environment_change){.has_places = true,
					.to = {"b", .places = 7}};
	assert_int_equal(set(&c), 0);
	c = (struct environment_change){.has_enabled = true,
					.has_graph_places = true,
					.to = {"b", .graph_places = 3}};
	assert_int_equal(set(&c), 0);
	snprintf(c.to.id, sizeof(c.to.id), "c");
	assert_int_equal(set(&c), -ENOENT);
	reopen();
	load(true);
	assert_int_equal(seen.n_env, 2);
	assert_string_equal(seen.env[0].id, "a");
	assert_int_equal(seen.env[0].plan, PLAN_FULL);
	assert_true(seen.env[0].is_enabled);
	assert_int_equal(seen.env[0].places, 0);
	assert_string_equal(seen.env[1].id, "b");
	assert_int_equal(seen.env[1].plan, PLAN_FREE);
	assert_false(seen.env[1].is_enabled);
	assert_int_equal(seen.env[1].places, 7);
	assert_int_equal(seen.env[1].graph_places, 3);
	assert_true(seen.env[1].created_ms > 0);
}

static void graph_set(bool has_places, uint32_t places, bool is_new_epoch)
{
	struct graph_change c = {"env_a", "main", has_places, is_new_epoch,
				 places};
	struct answer a;

	answer_init(&a, &f);
	assert_int_equal(store_graph_set(f.store, &c, on_rc, &a), 0);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
}

static void a_graph_is_there_from_its_first_sandbox(void **state)
{
	struct store_found found;

	(void)state;
	load(true);
	assert_int_equal(seen.n_graph, 0);
	assert_int_equal(begin_now(&f, 1, "k", &found), 0);
	load(true);
	assert_int_equal(seen.n_graph, 1);
	assert_string_equal(seen.graph[0].name, "main");
	assert_int_equal(seen.graph[0].epoch, 1);
	load(false); /* nothing was set of it */
	assert_int_equal(seen.n_graph, 0);
	graph_set(true, 2, false);
	graph_set(false, 0, true);
	graph_set(false, 0, true);
	reopen();
	load(false);
	assert_int_equal(seen.n_graph, 1);
	assert_int_equal(seen.graph[0].places, 2);
	assert_int_equal(seen.graph[0].epoch, 3);
}

/* A key that is made says nothing of an environment that is there, unless it is
 * meant to: what `env set` said meanwhile stays. */
static void a_key_keeps_its_environment(void **state)
{
	struct key_info k = {.environment = "a",
			     .name = "one",
			     .plan = PLAN_FREE,
			     .is_enabled = false};
	uint8_t hash[HASH_BYTES] = {1};
	struct answer a;

	(void)state;
	assert_int_equal(add("a"), 0);
	answer_init(&a, &f);
	assert_int_equal(store_key_add(f.store, &k, hash, on_rc, &a), 0);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
	load(true);
	assert_int_equal(seen.env[0].plan, PLAN_FULL);
	assert_true(seen.env[0].is_enabled);
	k.changes_environment = true;
	snprintf(k.name, sizeof(k.name), "two");
	hash[0] = 2;
	assert_int_equal(store_key_add(f.store, &k, hash, on_rc, &a), 0);
	answer_wait(&a, 2);
	load(true);
	assert_int_equal(seen.env[0].plan, PLAN_FREE);
	assert_false(seen.env[0].is_enabled);
}

static void nothing_is_erased_before_its_time(void **state)
{
	struct key_info k = {.environment = "env_a",
			     .name = "one",
			     .plan = PLAN_FULL,
			     .is_enabled = true,
			     .is_test = true};
	const uint8_t hash[HASH_BYTES] = {1};
	struct store_found found;
	struct sandbox_rec s = sandbox_of(1);
	struct answer a;

	(void)state;
	assert_int_equal(del("env_a"), -ENOENT);
	answer_init(&a, &f);
	assert_int_equal(store_key_add(f.store, &k, hash, on_rc, &a), 0);
	answer_wait(&a, 1);
	assert_int_equal(begin_now(&f, 1, "k", &found), 0);
	assert_int_equal(del("env_a"), -ENOTEMPTY);
	load(true);
	assert_int_equal(seen.n_env, 1);
	s.status = SBX_LOST;
	s.ended_ms = 1000;
	assert_int_equal(update_now(&f, &s, NULL, false), 0);
	assert_int_equal(del("env_a"), -ENOTEMPTY);
	assert_int_equal(store_retention(f.store, 1000 + STORE_RECORDS_KEPT_MS,
					 on_rc, &a),
			 0);
	answer_wait(&a, 2);
	assert_int_equal(del("env_a"), 0);
	load(true);
	assert_int_equal(seen.n_env, 0);
	assert_int_equal(seen.n_graph, 0);
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM \"key\""), 0);
	fixture_open(&f);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_change_sets_what_it_names),
		TEST(a_graph_is_there_from_its_first_sandbox),
		TEST(a_key_keeps_its_environment),
		TEST(nothing_is_erased_before_its_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
