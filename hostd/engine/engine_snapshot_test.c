/*
 * Snapshots of held sandboxes, and sandboxes that begin from them: keys, what
 * waits for what, limits, ends of all kinds.
 */
#include "../store/test_vfs.h"
#include "engine_snapshot_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MIB (1ull << 20)

static void call_from(struct call *c, const char *snapshot, const char *key)
{
	struct create_spec spec = held_spec(key, 30000);

	spec.template_name = NULL;
	spec.snapshot = snapshot;
	call_create(c, &spec);
	env_settle();
}

static void call_stop(struct call *c, const char *id)
{
	memset(c, 0, sizeof(*c));
	assert_int_equal(
		engine_sandbox_stop(env.e, &env.who, id, on_call_sandbox, c),
		0);
	env_settle();
}

/* ---- taken --------------------------------------------------------------- */

static void one_is_taken_and_read(void **state)
{
	struct snap_call s, again, other;
	struct call c;

	(void)state;
	begin_held(&c, "k");
	call_take(&s, c.sbx.id, "s");
	call_take(&again, c.sbx.id, "s"); /* joins it */
	env_settle();
	assert_int_equal(fake.vms[0].n_snapshots, 1);
	assert_int_equal(s.n_answers + again.n_answers, 0);
	fake_snapshot(0, NULL);
	env_settle();
	assert_int_equal(s.n_answers + again.n_answers, 2);
	assert_string_equal(s.rec.id, fake.snapshot);
	assert_string_equal(s.rec.id, again.rec.id);
	assert_string_equal(s.rec.sandbox, c.sbx.id);
	assert_string_equal(s.rec.name, "ready");
	assert_string_equal(s.rec.template_base, "lbb/shell");
	assert_int_equal(s.rec.disk_bytes, 2 * MIB);
	assert_int_equal(s.rec.incarnation, 1);
	assert_true(s.rec.created_ms > 0);
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_RUNNING);
	/* Its key, now from the database; and with another request. */
	call_take(&again, c.sbx.id, "s");
	env_settle();
	assert_string_equal(again.rec.id, s.rec.id);
	const struct snapshot_spec spec = {
		.key = "s", .request_hash = {6}, .sandbox = c.sbx.id};
	memset(&other, 0, sizeof(other));
	assert_int_equal(engine_snapshot_create(env.e, &env.who, &spec,
						on_snapshot, &other),
			 0);
	env_settle();
	assert_int_equal(other.err.code, ERR_KEY_CONFLICT);
	assert_int_equal(read_one(&again, s.rec.id, false), ERR_NONE);
	assert_memory_equal(&again.rec, &s.rec, sizeof(s.rec));
	env.who.graph = "other";
	assert_int_equal(read_one(&again, s.rec.id, false),
			 ERR_SNAPSHOT_NOT_FOUND);
	env.who.graph = "main";
	/* Deleted: the record, then the files; the key takes no other one. */
	assert_int_equal(read_one(&again, s.rec.id, true), ERR_NONE);
	assert_non_null(strstr(fake.snapshots_removed, s.rec.id));
	assert_int_equal(read_one(&again, s.rec.id, true),
			 ERR_SNAPSHOT_NOT_FOUND);
	call_take(&again, c.sbx.id, "s");
	env_settle();
	assert_int_equal(again.err.code, ERR_SNAPSHOT_NOT_FOUND);
	assert_int_equal(fake.vms[0].n_snapshots, 1);
}

static void stop_and_another_one_wait(void **state)
{
	struct snap_call s, t, u;
	struct call c, stop, cmd;

	(void)state;
	begin_held(&c, "k");
	call_take(&s, c.sbx.id, "s");
	call_take(&t, c.sbx.id, "t");
	call_take(&u, c.sbx.id, "u");
	env_settle();
	assert_int_equal(fake.vms[0].n_snapshots, 1);
	/* Commands are given all the same (the link holds them back). */
	call_echo(&cmd, c.sbx.id, "c", 30000);
	env_settle();
	assert_int_equal(fake.vms[0].n_execs, 1);
	fake_started(0, 1);
	fake_end(0, GP_END_EXITED, 0, NULL);
	call_wait(&cmd);
	call_finish(&cmd);
	call_stop(&stop, c.sbx.id);
	assert_int_equal(fake.vms[0].n_stops, 0);
	fake_snapshot(0, NULL);
	env_settle();
	assert_int_equal(s.err.code, ERR_NONE);
	/* The stop came next; the others are of nothing that runs. */
	assert_int_equal(fake.vms[0].n_stops, 1);
	assert_int_equal(t.err.code, ERR_NOT_RUNNING);
	assert_int_equal(u.err.code, ERR_NOT_RUNNING);
	fake_stopped(0, NULL);
	call_wait(&stop);
	assert_int_equal(stop.sbx.status, SBX_STOPPED);
}

static void of_a_stopped_one(void **state)
{
	struct snap_call s;
	struct call c, x;

	(void)state;
	begin_held(&c, "k");
	call_stop(&x, c.sbx.id);
	fake_stopped(0, NULL);
	call_wait(&x);
	call_take(&s, c.sbx.id, "s");
	env_settle();
	assert_string_equal(fake.snapshot_of, c.sbx.id);
	/* It would change the disk under the copy. */
	memset(&x, 0, sizeof(x));
	assert_int_equal(engine_sandbox_resume(env.e, &env.who, c.sbx.id,
					       on_call_sandbox, &x),
			 0);
	env_settle();
	assert_int_equal(fake.n_vms, 1);
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_STARTING);
	fake_snapshot(0, NULL);
	env_settle();
	assert_int_equal(s.err.code, ERR_NONE);
	assert_int_equal(fake.n_vms, 2);
	fake_bound(1);
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_RUNNING);
}

static void what_fails_changes_nothing(void **state)
{
	static const struct {
		int rc;
		enum err_code code;
	} t[] = {{-ENOSPC, ERR_CAPACITY},
		 {-EIO, ERR_INTERNAL},
		 {-ETIMEDOUT, ERR_UNAVAILABLE},
		 {-ESHUTDOWN, ERR_NOT_RUNNING}};
	struct snap_call s;
	struct call c;
	char key[8];

	(void)state;
	begin_held(&c, "k");
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		snprintf(key, sizeof(key), "s%zu", i);
		call_take(&s, c.sbx.id, key);
		env_settle();
		fake_snapshot(t[i].rc, "its disk cannot be copied: why");
		env_settle();
		assert_int_equal(s.err.code, t[i].code);
		assert_non_null(strstr(s.err.text, "why"));
		assert_int_equal(sandbox_now(c.sbx.id).status, SBX_RUNNING);
	}
	fake.snapshot_rc = -EAGAIN;
	call_take(&s, c.sbx.id, "s0"); /* the key was not burnt */
	env_settle();
	assert_int_equal(s.err.code, ERR_UNAVAILABLE);
	fake.snapshot_rc = 0;
	take(&s, c.sbx.id, "s0");
	/* The record cannot be written: the files go, too. */
	call_take(&s, c.sbx.id, "last");
	env_settle();
	atomic_store(&test_vfs.code, SQLITE_FULL);
	atomic_store(&test_vfs.is_lasting, true);
	atomic_store(&test_vfs.fail_in, 1);
	fake_snapshot(0, NULL);
	env_settle();
	test_vfs_calm();
	assert_int_equal(s.err.code, ERR_CAPACITY);
	assert_non_null(strstr(fake.snapshots_removed, fake.snapshot));
}

static void of_what_cannot_be(void **state)
{
	struct snap_call s;
	struct call c, x;

	(void)state;
	call_take(&s, "sbx_none", "a");
	env_settle();
	assert_int_equal(s.err.code, ERR_SANDBOX_NOT_FOUND);
	begin_held(&c, "k");
	env.who.plan = PLAN_FREE;
	call_take(&s, c.sbx.id, "b");
	assert_int_equal(s.err.code, ERR_PLAN_UNAVAILABLE);
	env.who.plan = PLAN_FULL;
	/* It ends while it is taken, and before the next one is. */
	call_take(&s, c.sbx.id, "c");
	env_settle();
	call_delete(&x, c.sbx.id);
	call_wait(&x);
	env_settle();
	assert_int_equal(s.n_answers, 0);
	fake_snapshot(-ESHUTDOWN, "its sandbox ended");
	env_settle();
	assert_int_equal(s.err.code, ERR_NOT_RUNNING);
	assert_true(list_is_empty(&env.e->boxes));
	call_take(&s, c.sbx.id, "d");
	env_settle();
	assert_int_equal(s.err.code, ERR_NOT_RUNNING);
	assert_true(list_is_empty(&env.e->snaps));
}

/* All was taken before it ended: whole. */
static void it_outlives_its_sandbox(void **state)
{
	struct snap_call s;
	struct call c, x;

	(void)state;
	begin_held(&c, "k");
	call_take(&s, c.sbx.id, "s");
	env_settle();
	call_delete(&x, c.sbx.id);
	call_wait(&x);
	env_settle();
	fake_snapshot(0, NULL);
	env_settle();
	assert_int_equal(s.err.code, ERR_NONE);
	assert_int_equal(read_one(&s, fake.snapshot, false), ERR_NONE);
	assert_true(list_is_empty(&env.e->boxes));
}

/* ---- begun from -----------------------------------------------------------
 */

static void many_begin_from_one(void **state)
{
	struct call c, x, cmd, kids[3];
	struct snap_call s;
	char key[8];

	(void)state;
	env.e->pool.max = 0;
	begin_held(&c, "k");
	take(&s, c.sbx.id, "s");
	call_delete(&x, c.sbx.id);
	call_wait(&x);
	env_settle();
	for (int i = 0; i < 3; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		call_from(&kids[i], s.rec.id, key);
		assert_int_equal(fake.n_vms, i + 2);
		assert_true(fake.vms[i + 1].is_from);
		assert_string_equal(fake.vms[i + 1].from.id, s.rec.id);
		assert_int_equal(fake.vms[i + 1].from.sums.state[0], 1);
		assert_int_equal(fake.vms[i + 1].from.sums.init[0], 2);
		fake_bound(i + 1);
		call_wait(&kids[i]);
		assert_int_equal(kids[i].sbx.status, SBX_RUNNING);
		assert_string_equal(kids[i].sbx.snapshot, s.rec.id);
		assert_string_equal(kids[i].sbx.template_id, "");
		assert_string_equal(kids[i].sbx.template_name, "lbb/shell");
		assert_int_equal(kids[i].sbx.incarnation, 2);
	}
	/* The key finds it again; numbers lie above those of the first. */
	call_from(&x, s.rec.id, "k0");
	call_wait(&x);
	assert_string_equal(x.sbx.id, kids[0].sbx.id);
	call_echo(&cmd, kids[1].sbx.id, "c", 0);
	call_wait(&cmd);
	assert_int_equal(fake.vms[2].cmd, (2ull << 32) + 1);
	call_finish(&cmd);
	/* One of one: above those, too. */
	take(&s, kids[2].sbx.id, "t");
	assert_int_equal(s.rec.incarnation, 2);
	assert_string_equal(s.rec.snapshot, kids[2].sbx.snapshot);
	call_from(&x, s.rec.id, "g");
	fake_bound(4);
	call_wait(&x);
	assert_int_equal(x.sbx.incarnation, 3);
}

static void known_by_its_key(const struct call *first, const char *snapshot)
{
	struct call x;

	call_from(&x, snapshot, "k1");
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_NONE);
	assert_string_equal(x.sbx.id, first->sbx.id);
	assert_int_equal(x.sbx.status, SBX_DESTROYED);
}

/* LBB-23: what it began from is not asked for before the key is. */
static void a_key_outlives_the_snapshot(void **state)
{
	struct call c, kid, x;
	struct snap_call s, t;

	(void)state;
	env.e->pool.max = 0;
	begin_held(&c, "k");
	take(&s, c.sbx.id, "s");
	call_from(&kid, s.rec.id, "k1");
	fake_bound(1);
	call_wait(&kid);
	call_delete(&x, kid.sbx.id);
	call_wait(&x);
	env_settle();
	/* The images are others since, or cannot be read. */
	fake.image_more = 1;
	known_by_its_key(&kid, s.rec.id);
	call_from(&x, s.rec.id, "k2");
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(x.err.text, "not there any more"));
	fake.image_more = 0;
	fake.hashes_rc = -ENOENT;
	known_by_its_key(&kid, s.rec.id);
	fake.hashes_rc = 0;
	/* It is deleted. */
	assert_int_equal(read_one(&t, s.rec.id, true), ERR_NONE);
	known_by_its_key(&kid, s.rec.id);
	call_from(&x, s.rec.id, "k2");
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_SNAPSHOT_NOT_FOUND);
	assert_int_equal(fake.n_vms, 2);
}

static void from_what_cannot_be(void **state)
{
	struct snap_call s;
	struct call c, x;

	(void)state;
	call_from(&x, "snp_none", "a");
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_SNAPSHOT_NOT_FOUND);
	begin_held(&c, "k");
	take(&s, c.sbx.id, "s");
	env.who.graph = "other";
	call_from(&x, s.rec.id, "a");
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_SNAPSHOT_NOT_FOUND);
	env.who.graph = "main";
	/* Files that are gone, and a VM that does not start. */
	fake.create_error = "no such file";
	call_from(&x, s.rec.id, "b");
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_FAILED);
	fake.create_error = NULL;
	call_from(&x, s.rec.id, "c");
	fake_gone(fake.n_vms - 1, END_NOT_STARTED, "another host");
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_FAILED);
	assert_string_equal(x.sbx.reason_text, "another host");
}

/* ---- space ----------------------------------------------------------------
 */

static void limits_are_asked_first(void **state)
{
	struct snap_call s;
	struct call c, x;

	(void)state;
	begin_held(&c, "k");
	fake.vm_space = (struct vm_space){60 * MIB, 5 * MIB, 0};
	fake.used_bytes[SPACE_SNAPSHOTS] = 40 * MIB;
	env.e->snapshots_max_bytes = 100 * MIB;
	call_take(&s, c.sbx.id, "s");
	env_settle();
	assert_int_equal(s.err.code, ERR_LIMIT_REACHED);
	assert_non_null(strstr(s.err.text, "snapshots_max_mib"));
	assert_non_null(strstr(s.err.text, "100 MiB"));
	assert_non_null(strstr(s.err.text, "65 MiB"));
	assert_int_equal(fake.vms[0].n_snapshots, 0);
	env.e->snapshots_max_bytes = 105 * MIB; /* just so */
	take(&s, c.sbx.id, "s");
	env.e->snapshots_max_bytes = 0;
	env.e->disk_reserve_bytes = UINT64_MAX;
	call_take(&s, c.sbx.id, "t");
	env_settle();
	assert_int_equal(s.err.code, ERR_CAPACITY);
	assert_non_null(strstr(s.err.text, "disk_reserve_mib"));
	call_stop(&x, c.sbx.id);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_CAPACITY);
	env.e->disk_reserve_bytes = 0;
	env.e->stopped_max_bytes = 10 * MIB;
	call_stop(&x, c.sbx.id);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_LIMIT_REACHED);
	assert_non_null(strstr(x.err.text, "stopped_max_mib"));
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_RUNNING);
	assert_int_equal(fake.vms[0].n_stops, 0);
	/* Idle, too: it runs on, and is asked again later. */
	env_pass(301000);
	env_loop_for(50);
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_RUNNING);
	env.e->stopped_max_bytes = 0;
	call_stop(&x, c.sbx.id);
	assert_int_equal(fake.vms[0].n_stops, 1);
	fake_stopped(0, NULL);
	call_wait(&x);
}

/* Two that are taken at once do not both get the last room. */
static void what_is_promised_counts(void **state)
{
	struct snap_call s, t;
	struct call c, d;

	(void)state;
	begin_held(&c, "k");
	begin_held(&d, "l");
	fake.vm_space = (struct vm_space){60 * MIB, 0, 0};
	env.e->snapshots_max_bytes = 100 * MIB;
	call_take(&s, c.sbx.id, "s");
	env_settle();
	call_take(&t, d.sbx.id, "t");
	env_settle();
	assert_int_equal(t.err.code, ERR_LIMIT_REACHED);
	fake_snapshot(0, NULL);
	env_settle();
	assert_int_equal(s.err.code, ERR_NONE);
}

/* ---- the daemon ends, and begins ------------------------------------------
 */

static void ends_in_the_middle(void **state)
{
	struct snap_call s, t;
	struct call c;
	char kept[ID_BYTES_MAX], left[ID_BYTES_MAX + 8];

	(void)state;
	begin_held(&c, "k");
	take(&s, c.sbx.id, "s");
	snprintf(kept, sizeof(kept), "%s", s.rec.id);
	call_take(&s, c.sbx.id, "u");
	call_take(&t, c.sbx.id, "v"); /* waits */
	env_settle();
	env_stop();
	assert_int_equal(s.err.code, ERR_UNAVAILABLE);
	assert_int_equal(t.err.code, ERR_UNAVAILABLE);
	fake.snapshot_fn = NULL;
	/* What it left is swept, what has a record stays. */
	snprintf(left, sizeof(left), ".new-%s", fake.snapshot);
	fake.folders[0] = left;
	fake.folders[1] = kept;
	fake.folders[2] = "snp_unknown";
	fake.snapshots_removed[0] = 0;
	env_start();
	env_settle();
	assert_null(strstr(fake.snapshots_removed, kept));
	assert_non_null(strstr(fake.snapshots_removed, left));
	assert_non_null(strstr(fake.snapshots_removed, "snp_unknown"));
	assert_int_equal(read_one(&s, kept, false), ERR_NONE);
	fake.folders[0] = NULL;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_is_taken_and_read),
		TEST(stop_and_another_one_wait),
		TEST(of_a_stopped_one),
		TEST(what_fails_changes_nothing),
		TEST(of_what_cannot_be),
		TEST(it_outlives_its_sandbox),
		TEST(many_begin_from_one),
		TEST(from_what_cannot_be),
		TEST(a_key_outlives_the_snapshot),
		TEST(limits_are_asked_first),
		TEST(what_is_promised_counts),
		TEST(ends_in_the_middle),
	};

	test_vfs_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
