/*
 * Snapshots that are kept: until they expire, and whether they are still what
 * was taken; what is counted; names that are refused.
 */
#include "engine_snapshot_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define MINUTE_MS 60000
#define MIB	  (1ull << 20)

static void take_for(struct snap_call *s, const char *sandbox, const char *key,
		     uint32_t seconds)
{
	call_take_for(s, sandbox, key, seconds);
	env_settle();
	fake_snapshot(0, NULL);
	env_settle();
	assert_int_equal(s->n_answers, 1);
	assert_int_equal(s->err.code, ERR_NONE);
}

static struct engine_stats stats(void)
{
	struct engine_stats s;

	engine_stats(env.e, &s);
	return s;
}

/* ---- they expire ----------------------------------------------------------
 */

static void at_their_time(void **state)
{
	struct snap_call never, first, second, s;
	struct call c;

	(void)state;
	begin_held(&c, "k");
	take(&never, c.sbx.id, "a");
	assert_int_equal(never.rec.expires_ms, 0);
	/* The later one is taken first. */
	take_for(&second, c.sbx.id, "b", 600);
	assert_int_equal(second.rec.expires_ms - second.rec.created_ms,
			 10 * MINUTE_MS);
	take_for(&first, c.sbx.id, "c", 60);
	env_pass(MINUTE_MS + 1000);
	env_loop_for(50);
	env_settle();
	assert_int_equal(read_one(&s, first.rec.id, false),
			 ERR_SNAPSHOT_NOT_FOUND);
	assert_non_null(strstr(fake.snapshots_removed, first.rec.id));
	assert_null(strstr(fake.snapshots_removed, second.rec.id));
	assert_int_equal(read_one(&s, second.rec.id, false), ERR_NONE);
	assert_int_equal(stats().snapshots_expired, 1);
	env_pass(10 * MINUTE_MS);
	env_loop_for(50);
	env_settle();
	assert_int_equal(read_one(&s, second.rec.id, false),
			 ERR_SNAPSHOT_NOT_FOUND);
	assert_int_equal(read_one(&s, never.rec.id, false), ERR_NONE);
	assert_int_equal(stats().snapshots_expired, 2);
}

/* Several at once, while no daemon runs. */
static void at_the_start(void **state)
{
	struct snap_call s[3], r;
	struct call c;
	char key[4];

	(void)state;
	begin_held(&c, "k");
	for (int i = 0; i < 3; i++) {
		snprintf(key, sizeof(key), "s%d", i);
		take_for(&s[i], c.sbx.id, key, i < 2 ? 60 : 600);
	}
	env_stop();
	env_pass(2 * MINUTE_MS);
	env_start();
	env_settle();
	for (int i = 0; i < 3; i++)
		assert_int_equal(read_one(&r, s[i].rec.id, false),
				 i < 2 ? ERR_SNAPSHOT_NOT_FOUND : ERR_NONE);
}

/* ---- still what was taken? ------------------------------------------------
 */

static void call_verify(struct snap_call *c, const char *id)
{
	memset(c, 0, sizeof(*c));
	assert_int_equal(
		engine_snapshot_verify(env.e, &env.who, id, on_snapshot, c), 0);
	env_settle();
}

static void verified(void **state)
{
	struct snap_call s, v, w;
	struct err damage = {0};
	struct call c;

	(void)state;
	call_verify(&v, "snp_none");
	assert_int_equal(v.err.code, ERR_SNAPSHOT_NOT_FOUND);
	begin_held(&c, "k");
	take(&s, c.sbx.id, "s");
	call_verify(&v, s.rec.id);
	assert_int_equal(v.n_answers, 0);
	/* One at a time: reading gigabytes slows down everybody. */
	call_verify(&w, s.rec.id);
	assert_int_equal(w.err.code, ERR_LIMIT_REACHED);
	assert_int_equal(w.err.retry_after_s, ENGINE_RETRY_PLACES_S);
	assert_non_null(strstr(w.err.text, s.rec.id));
	fake_verified(NULL);
	assert_int_equal(v.n_answers, 1);
	assert_memory_equal(&v.rec, &s.rec, sizeof(s.rec));
	/* Deleted meanwhile: its files are open. */
	call_verify(&v, s.rec.id);
	assert_int_equal(read_one(&w, s.rec.id, true), ERR_NONE);
	err_set(&damage, ERR_SNAPSHOT_DAMAGED, "snapshot", "the file mem");
	fake_verified(&damage);
	assert_int_equal(v.err.code, ERR_SNAPSHOT_DAMAGED);
	assert_string_equal(v.err.text, "the file mem");
	/* The files are gone, the record is not. */
	take(&s, c.sbx.id, "t");
	fake.create_error = "no such file";
	call_verify(&v, s.rec.id);
	assert_int_equal(v.err.code, ERR_UNAVAILABLE);
	fake.create_error = NULL;
	/* The daemon ends: who waits is told. */
	call_verify(&v, s.rec.id);
	env_stop();
	assert_int_equal(v.n_answers, 1);
	assert_int_equal(v.err.code, ERR_UNAVAILABLE);
	fake.verify_fn = NULL;
	env_start();
}

/* ---- counted, refused -----------------------------------------------------
 */

static void counted(void **state)
{
	struct snap_call s;
	struct call c;

	(void)state;
	begin_held(&c, "k");
	take(&s, c.sbx.id, "s");
	assert_int_equal(stats().snapshots_taken, 1);
	assert_int_equal(stats().snapshots_failed, 0);
	assert_int_equal(stats().snapshots_paused_us, 7000);
	assert_true(stats().snapshots_us > 0);
	call_take(&s, c.sbx.id, "t");
	env_settle();
	fake_snapshot(-EIO, "its files cannot be written");
	env_settle();
	/* A refusal began nothing. */
	call_take(&s, "sbx_none", "u");
	env_settle();
	assert_int_equal(stats().snapshots_taken, 1);
	assert_int_equal(stats().snapshots_failed, 1);
}

static void refused(const char *name, uint32_t seconds, const char *field,
		    const char *const *words)
{
	const struct snapshot_spec spec = {.key = "k",
					   .sandbox = "sbx_a",
					   .name = name,
					   .expires_in_seconds = seconds};
	struct snap_call c = {0};

	assert_int_equal(
		engine_snapshot_create(env.e, &env.who, &spec, on_snapshot, &c),
		0);
	assert_int_equal(c.err.code, ERR_INVALID_REQUEST);
	assert_string_equal(c.err.param, field);
	for (; *words; words++)
		if (!strstr(c.err.text, *words))
			fail_msg("\"%s\" is not in \"%s\"", *words, c.err.text);
}

/* Field, value and limit. */
static void refused_by_name(void **state)
{
	static const char *const word[] = {"name", "\"Ready\"",	    "5 bytes",
					   "64",   "a-z 0-9 . _ -", NULL};
	static const char *const empty[] = {"name", "\"\"", "0 bytes", NULL};
	static const char *const quotes[] = {"\"a\"b\"", NULL};
	static const char *const longest[] = {"aaaa", "65 bytes", "64", NULL};
	static const char *const early[] = {"is 59", "60", "31536000", NULL};
	static const char *const late[] = {"31536001", "31536000", NULL};
	char many[66] = {0};

	(void)state;
	memset(many, 'a', 65);
	refused("Ready", 0, "name", word);
	refused("", 0, "name", empty);
	refused("a\"b", 0, "name", quotes);
	refused(many, 0, "name", longest);
	refused("a", 59, "expires_in_seconds", early);
	refused("a", 31536001, "expires_in_seconds", late);
}

/* The disk of one that was stopped before is of those that run now. */
static void its_disk_is_counted_when_it_stops(void **state)
{
	struct call c, x;

	(void)state;
	begin_held(&c, "k");
	fake.vm_space = (struct vm_space){5 * MIB, 0, 10 * MIB};
	env.e->stopped_max_bytes = 14 * MIB;
	memset(&x, 0, sizeof(x));
	assert_int_equal(engine_sandbox_stop(env.e, &env.who, c.sbx.id,
					     on_call_sandbox, &x),
			 0);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_LIMIT_REACHED);
	assert_non_null(strstr(x.err.text, "15 MiB"));
	env.e->stopped_max_bytes = 0;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(at_their_time),   TEST(at_the_start),
		TEST(verified),	       TEST(counted),
		TEST(refused_by_name), TEST(its_disk_is_counted_when_it_stops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
