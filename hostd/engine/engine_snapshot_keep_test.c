/*
 * Snapshots that are kept: are they still what was taken?
 */
#include "engine_snapshot_util.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

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

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {

		TEST(verified),

	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
