/*
 * Calls on the files of held sandboxes: their order, what they wait for, and
 * what becomes of them when something ends (LBB-51, LBB-69, LBB-150, LBB-156).
 */
#include "engine_held_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct fcall {
	int n_answers;
	bool is_inside;
	struct err err;
	char data[16], names[64];
	bool has_more;
	uint64_t size;
	struct filing *f;
};

static void on_file(void *ctx, const struct err *e, const struct file_result *r)
{
	struct fcall *c = ctx;

	assert_false(c->is_inside);
	c->n_answers++;
	loop_stop(env.f.loop);
	if (e) {
		c->err = *e;
		return;
	}
	snprintf(c->data, sizeof(c->data), "%.*s", (int)r->data_len,
		 r->data ? (const char *)r->data : "");
	for (size_t i = 0; i < r->n_entries; i++)
		snprintf(c->names + strlen(c->names),
			 sizeof(c->names) - strlen(c->names), "%.*s:%d ",
			 (int)r->entries[i].name_len,
			 r->entries[i].name ? (const char *)r->entries[i].name
					    : "",
			 (int)r->entries[i].type);
	c->has_more = r->has_more;
	c->size = r->size;
}

static void ask(struct fcall *c, const char *sandbox, enum gp_file_op op,
		const char *path, const char *data)
{
	struct file_spec spec = {.sandbox = sandbox,
				 .op = op,
				 .limit = 10,
				 .data = data,
				 .data_len = data ? strlen(data) : 0};
	struct file_path clean;

	memset(c, 0, sizeof(*c));
	assert_int_equal(file_path_clean(path, strlen(path), &clean, &c->err),
			 0);
	spec.path = &clean;
	c->is_inside = true;
	assert_int_equal(engine_file(env.e, &env.who, &spec, on_file, c, &c->f),
			 0);
	c->is_inside = false;
}

static void fcall_wait(struct fcall *c)
{
	while (!c->n_answers)
		assert_int_equal(loop_run(env.f.loop), 0);
	assert_int_equal(c->n_answers, 1);
}

static void served(void **state)
{
	const struct vm_file_entry entries[] = {
		{.name = (const uint8_t *)"a", .name_len = 1, .type = 1},
		{.name = (const uint8_t *)"bcd", .name_len = 3, .type = 2},
	};
	const struct vm_file_end more = {.how = GP_FILE_OK, .has_more = true};
	struct vm *vm = &fake.vms[0];
	struct fcall f;
	struct call c;

	(void)state;
	begin_held(&c, "k");
	ask(&f, c.sbx.id, GP_FILE_WRITE, "/workspace//a/./b", "hi");
	assert_int_equal(vm->n_files, 1);
	assert_string_equal(vm->file_path, "a/b");
	assert_int_equal(vm->file.op, GP_FILE_WRITE);
	assert_memory_equal(vm->file.data, "hi", 2);
	assert_int_equal(vm->file.timeout_ms, ENGINE_FILE_TIMEOUT_MS);
	fake_file_done(0, GP_FILE_OK, NULL);
	assert_int_equal(f.n_answers, 1);
	assert_int_equal(f.err.code, ERR_NONE);
	assert_int_equal(f.size, 3);
	ask(&f, c.sbx.id, GP_FILE_READ, "a/b", NULL);
	vm->ops->file_data(vm->ctx, 2, (const uint8_t *)"he", 2);
	vm->ops->file_data(vm->ctx, 2, (const uint8_t *)"y", 1);
	fake_file_done(0, GP_FILE_OK, NULL);
	assert_string_equal(f.data, "hey");
	ask(&f, c.sbx.id, GP_FILE_LIST, "", NULL);
	for (int i = 0; i < 2; i++)
		vm->ops->file_entry(vm->ctx, 3, &entries[i]);
	vm->file_number = 0;
	vm->ops->file_done(vm->ctx, 3, &more);
	assert_string_equal(f.names, "a:1 bcd:2 ");
	assert_true(f.has_more);
}

static void errors(void **state)
{
	static const struct {
		enum gp_file_how how;
		enum err_code code;
	} t[] = {
		{GP_FILE_NOT_FOUND, ERR_FILE_NOT_FOUND},
		{GP_FILE_OUTSIDE, ERR_PATH_INVALID},
		{GP_FILE_WRONG_TYPE, ERR_PATH_INVALID},
		{GP_FILE_NOT_EMPTY, ERR_PATH_INVALID},
		{GP_FILE_DENIED, ERR_PATH_INVALID},
		{GP_FILE_BAD_NAME, ERR_PATH_INVALID},
		{GP_FILE_FULL, ERR_DISK_FULL},
		{GP_FILE_TOO_LARGE, ERR_FILE_TOO_LARGE},
		{GP_FILE_TIMED_OUT, ERR_UNAVAILABLE},
		{GP_FILE_GIVEN_UP, ERR_UNAVAILABLE},
		{GP_FILE_FAILED, ERR_UNAVAILABLE},
	};
	struct fcall f;
	struct call c;

	(void)state;
	begin_held(&c, "k");
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		ask(&f, c.sbx.id, GP_FILE_READ, "x\x1by", NULL);
		fake_file_done(0, t[i].how, "that is why");
		fcall_wait(&f);
		assert_int_equal(f.err.code, t[i].code);
		assert_non_null(strstr(f.err.text, "/workspace/x\\x1by"));
		assert_true(t[i].how == GP_FILE_TOO_LARGE ||
			    strstr(f.err.text, "that is why"));
	}
}

/* One at a time, in their order, at most so many. */
static void in_order(void **state)
{
	struct fcall f[ENGINE_FILES_WAITING_MAX + 2];
	struct call c;

	(void)state;
	begin_held(&c, "k");
	for (int i = 0; i < ENGINE_FILES_WAITING_MAX + 2; i++) {
		char path[16];

		snprintf(path, sizeof(path), "f%d", i);
		ask(&f[i], c.sbx.id, GP_FILE_READ, path, NULL);
	}
	fcall_wait(&f[ENGINE_FILES_WAITING_MAX + 1]);
	assert_int_equal(f[ENGINE_FILES_WAITING_MAX + 1].err.code,
			 ERR_LIMIT_REACHED);
	assert_true(f[ENGINE_FILES_WAITING_MAX + 1].err.retry_after_s > 0);
	for (int i = 0; i <= ENGINE_FILES_WAITING_MAX; i++) {
		char path[16];

		snprintf(path, sizeof(path), "f%d", i);
		assert_string_equal(fake.vms[0].file_path, path);
		assert_int_equal(f[i].n_answers, 0);
		fake_file_done(0, GP_FILE_OK, NULL);
		assert_int_equal(f[i].n_answers, 1);
	}
	/* No room in the channel now: soon. */
	fake.file_rc = -ENOBUFS;
	ask(&f[0], c.sbx.id, GP_FILE_READ, "later", NULL);
	env_loop_for(2 * ENGINE_GIVE_AGAIN_MS);
	fake.file_rc = 0;
	env_loop_for(3 * ENGINE_GIVE_AGAIN_MS);
	assert_string_equal(fake.vms[0].file_path, "later");
	fake_file_done(0, GP_FILE_OK, NULL);
	assert_int_equal(f[0].n_answers, 1);
}

/* It waits until the sandbox runs; a stopped one takes none; one that ends
 * takes them along. */
static void states(void **state)
{
	struct create_spec spec = held_spec("k", 0);
	struct fcall f, g, h;
	struct call c, x;

	(void)state;
	call_create(&c, &spec);
	call_wait(&c);
	ask(&f, c.sbx.id, GP_FILE_WRITE, "a", "b");
	env_settle();
	assert_int_equal(f.n_answers, 0);
	fake_bound(0);
	assert_int_equal(fake.vms[0].n_files, 1);
	/* A stop waits for what was given, and refuses what was not. */
	ask(&g, c.sbx.id, GP_FILE_READ, "a", NULL);
	assert_int_equal(engine_sandbox_stop(env.e, &env.who, c.sbx.id,
					     on_call_sandbox,
					     memset(&x, 0, sizeof(x))),
			 0);
	fcall_wait(&g);
	assert_int_equal(g.err.code, ERR_NOT_RUNNING);
	env_settle();
	assert_int_equal(fake.vms[0].n_stops, 0);
	ask(&g, c.sbx.id, GP_FILE_READ, "a", NULL);
	fcall_wait(&g);
	assert_int_equal(g.err.code, ERR_NOT_RUNNING);
	fake_file_done(0, GP_FILE_OK, NULL);
	assert_int_equal(f.n_answers, 1);
	env_settle();
	assert_int_equal(fake.vms[0].n_stops, 1);
	fake_stopped(0, NULL);
	call_wait(&x);
	ask(&g, c.sbx.id, GP_FILE_LIST, "", NULL);
	fcall_wait(&g);
	assert_int_equal(g.err.code, ERR_NOT_RUNNING);
	assert_non_null(strstr(g.err.text, "resume it first"));
	/* Lost, with one in the guest and one that waits. */
	begin_held(&c, "l");
	ask(&f, c.sbx.id, GP_FILE_WRITE, "a", "b");
	ask(&g, c.sbx.id, GP_FILE_READ, "a", NULL);
	fake_gone(1, END_VM_LOST, "gone");
	assert_int_equal(f.n_answers + g.n_answers, 0); /* told when it is so */
	fcall_wait(&f);
	fcall_wait(&g);
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_LOST);
	assert_int_equal(f.err.code, ERR_NOT_RUNNING);
	assert_non_null(strstr(f.err.text, "ended before the call"));
	/* Deleted. */
	begin_held(&c, "m");
	ask(&f, c.sbx.id, GP_FILE_WRITE, "a", "b");
	call_delete(&x, c.sbx.id);
	fcall_wait(&f);
	assert_int_equal(f.err.code, ERR_NOT_RUNNING);
	call_wait(&x);
	env_settle();
	ask(&h, c.sbx.id, GP_FILE_READ, "a", NULL);
	fcall_wait(&h);
	assert_int_equal(h.err.code, ERR_NOT_RUNNING);
	/* Never there; of a one-call run. */
	ask(&h, "sbx_none", GP_FILE_READ, "a", NULL);
	fcall_wait(&h);
	assert_int_equal(h.err.code, ERR_SANDBOX_NOT_FOUND);
	call_run(&x, "r", NULL, 0);
	call_wait(&x);
	ask(&h, x.sbx.id, GP_FILE_READ, "a", NULL);
	fcall_wait(&h);
	assert_int_equal(h.err.code, ERR_NOT_RUNNING);
	call_finish(&x);
}

/* The plan may read and delete, not write. */
static void plans(void **state)
{
	struct fcall f;
	struct call c;

	(void)state;
	begin_held(&c, "k");
	env.who.plan = PLAN_FREE;
	ask(&f, c.sbx.id, GP_FILE_WRITE, "a", "b");
	fcall_wait(&f);
	assert_int_equal(f.err.code, ERR_PLAN_UNAVAILABLE);
	ask(&f, c.sbx.id, GP_FILE_DELETE, "a", NULL);
	fake_file_done(0, GP_FILE_OK, NULL);
	assert_int_equal(f.n_answers, 1);
	assert_int_equal(f.err.code, ERR_NONE);
}

/* It counts as activity, and holds off the stop of an idle sandbox. */
static void idle(void **state)
{
	struct create_spec spec = held_spec("k", 30000);
	struct fcall f;
	struct call c;
	int64_t before;

	(void)state;
	spec.idle_seconds = 30;
	call_create(&c, &spec);
	env_settle();
	fake_bound(0);
	call_wait(&c);
	before = sandbox_now(c.sbx.id).last_active_ms;
	env_pass(29000);
	ask(&f, c.sbx.id, GP_FILE_WRITE, "a", "b");
	env_pass(70000);
	env_loop_for(20);
	assert_int_equal(fake.vms[0].n_stops, 0);
	fake_file_done(0, GP_FILE_OK, NULL);
	assert_int_equal(f.n_answers, 1);
	env_settle();
	assert_int_equal(fake.vms[0].n_stops, 0);
	env_pass(101000);
	env_loop_for(20);
	env_settle();
	assert_int_equal(fake.vms[0].n_stops, 1);
	fake_stopped(0, NULL);
	env_settle();
	assert_true(sandbox_now(c.sbx.id).last_active_ms >= before + 70000);
}

/* Its time is over: who waits hears of it; the guest still has it. */
static void late(void **state)
{
	struct create_spec spec = held_spec("k", 0);
	struct fcall f, g;
	struct call c;

	(void)state;
	call_create(&c, &spec);
	call_wait(&c);
	ask(&f, c.sbx.id, GP_FILE_WRITE, "a", "b");
	env_settle();
	env_pass(ENGINE_FILE_WAIT_MS + 1000);
	fcall_wait(&f);
	assert_int_equal(f.err.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(f.err.text, "not begun"));
	assert_true(f.err.retry_after_s > 0);
	fake_bound(0);
	assert_int_equal(fake.vms[0].n_files, 0);
	ask(&f, c.sbx.id, GP_FILE_WRITE, "a", "b");
	ask(&g, c.sbx.id, GP_FILE_READ, "a", NULL);
	env_pass(2 * ENGINE_FILE_WAIT_MS + 2000);
	fcall_wait(&f);
	assert_non_null(strstr(f.err.text, "is not known"));
	assert_int_equal(fake.vms[0].n_given_up, 1);
	fcall_wait(&g);
	assert_non_null(strstr(g.err.text, "not begun"));
	/* The next one waits for that. */
	ask(&g, c.sbx.id, GP_FILE_READ, "b", NULL);
	assert_int_equal(fake.vms[0].n_files, 1);
	fake_file_done(0, GP_FILE_GIVEN_UP, "given up");
	assert_int_equal(f.n_answers, 1);
	assert_int_equal(fake.vms[0].n_files, 2);
	fake_file_done(0, GP_FILE_OK, NULL);
	assert_int_equal(g.n_answers, 1);
}

/* Nobody waits any more: waiting, given, refused. */
static void abandoned(void **state)
{
	struct fcall f, g, h;
	struct call c;

	(void)state;
	begin_held(&c, "k");
	ask(&f, c.sbx.id, GP_FILE_WRITE, "a", "b");
	ask(&g, c.sbx.id, GP_FILE_READ, "b", NULL);
	ask(&h, "sbx_none", GP_FILE_READ, "b", NULL);
	engine_file_abandon(env.e, g.f);
	engine_file_abandon(env.e, h.f);
	engine_file_abandon(env.e, f.f);
	assert_int_equal(fake.vms[0].n_given_up, 1);
	fake_file_done(0, GP_FILE_GIVEN_UP, "given up");
	env_settle();
	assert_int_equal(f.n_answers + g.n_answers + h.n_answers, 0);
	assert_int_equal(fake.vms[0].n_files, 1);
}

/* The daemon ends. */
static void ends(void **state)
{
	struct fcall f, g;
	struct call c;

	(void)state;
	begin_held(&c, "k");
	ask(&f, c.sbx.id, GP_FILE_WRITE, "a", "b");
	ask(&g, c.sbx.id, GP_FILE_READ, "a", NULL);
	env_stop();
	assert_int_equal(f.n_answers, 1);
	assert_int_equal(g.n_answers, 1);
	assert_int_equal(f.err.code, ERR_UNAVAILABLE);
	env_start();
}

static void paths(void **state)
{
	static const struct {
		const char *path, *clean; /* NULL = refused */
	} t[] = {
		{"", ""},
		{".", ""},
		{"/workspace", ""},
		{"//workspace///", ""},
		{"a", "a"},
		{"./a//b/.", "a/b"},
		{"/workspace/a/b/", "a/b"},
		{"a/...", "a/..."},
		{"..a/b..", "..a/b.."},
		{"\xff\n", "\xff\n"},
		{"/", NULL},
		{"/etc/passwd", NULL},
		{"/workspace2", NULL},
		{"/Workspace/a", NULL},
		{"..", NULL},
		{"a/..", NULL},
		{"a/../b", NULL},
		{"/workspace/../workspace/a", NULL},
	};
	static char text[8192];
	struct file_path p;
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		int rc = file_path_clean(t[i].path, strlen(t[i].path), &p, &e);

		if (!rc != !!t[i].clean || (!rc && strcmp(p.text, t[i].clean)))
			fail_msg("%s: %d %s", t[i].path, rc, rc ? "" : p.text);
		assert_true(!rc || e.code == ERR_PATH_INVALID);
	}
	assert_int_equal(file_path_clean("a\0b", 3, &p, &e), -1);
	/* The edges: a name, and all of it, also with what says nothing. */
	memset(text, 'n', 256);
	assert_int_equal(file_path_clean(text, 255, &p, &e), 0);
	assert_int_equal(file_path_clean(text, 256, &p, &e), -1);
	for (int i = 0; i < 8192; i++)
		text[i] = i % 64 ? 'p' : '/';
	assert_int_equal(
		file_path_clean(text + 1, GP_FILE_PATH_BYTES_MAX, &p, &e), 0);
	assert_int_equal(p.len, GP_FILE_PATH_BYTES_MAX);
	assert_int_equal(
		file_path_clean(text + 1, GP_FILE_PATH_BYTES_MAX + 1, &p, &e),
		-1);
	memset(text, '/', sizeof(text));
	memcpy(text, "/workspace", 10);
	text[8191] = 'x';
	assert_int_equal(file_path_clean(text, sizeof(text), &p, &e), 0);
	assert_string_equal(p.text, "x");
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)
	const struct CMUnitTest tests[] = {
		TEST(served),	TEST(errors),
		TEST(in_order), TEST(states),
		TEST(plans),	TEST(idle),
		TEST(late),	TEST(abandoned),
		TEST(ends),	cmocka_unit_test(paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
