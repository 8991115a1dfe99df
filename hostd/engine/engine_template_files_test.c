/*
 * Files of saved templates (LBB-71, LBB-103): a version says what they were
 * when it was saved, and what begins from it begins with them.
 */
#include "engine_graph_file_util.h"
#include "engine_snapshot_util.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

/* Of a save, and of a call. */
static struct seed seeds[ENGINE_FILES_AT_START_MAX + 1],
	own[ENGINE_FILES_AT_START_MAX + 1];
static uint8_t hash_a[HASH_BYTES], hash_b[HASH_BYTES];

struct save_call {
	int n_answers;
	struct err err;
	struct template_rec rec; /* owned */
};

static void on_template(void *ctx, const struct err *e,
			const struct template_rec *r)
{
	struct save_call *c = ctx;

	c->n_answers++;
	assert_true(!e != !r);
	if (e)
		c->err = *e;
	else
		assert_int_equal(template_rec_copy(&c->rec, r), 0);
}

static void seed_set(struct seed *s, const uint8_t *hash, const char *path)
{
	struct err e;

	memset(s, 0, sizeof(*s));
	memcpy(s->file.sha256, hash, HASH_BYTES);
	assert_int_equal(file_path_clean(path, strlen(path), &s->path, &e), 0);
}

/* Two Files of the graph, in/a and b of a template. */
static void prepare(void)
{
	memcpy(hash_a, uploaded("a", "abc"), HASH_BYTES);
	memcpy(hash_b, uploaded("b", "defg"), HASH_BYTES);
	seed_set(&seeds[0], hash_a, "in//a");
	seed_set(&seeds[1], hash_b, "b");
}

static struct template_spec spec_of(const char *key, size_t n)
{
	return (struct template_spec){.key = key,
				      .request_hash = {4},
				      .name = "sum",
				      .base = "lbb/shell",
				      .code = "x",
				      .code_len = 1,
				      .seeds = seeds,
				      .n_seeds = n};
}

static void call_save(struct save_call *c, const struct template_spec *spec)
{
	memset(c, 0, sizeof(*c));
	assert_int_equal(
		engine_template_save(env.e, &env.who, spec, on_template, c), 0);
	env_settle();
	assert_int_equal(c->n_answers, 1);
}

/* The next version of `sum`, with n Files. */
static void saved(const char *key, size_t n)
{
	struct template_spec spec = spec_of(key, n);
	struct save_call c;

	call_save(&c, &spec);
	assert_int_equal(c.err.code, ERR_NONE);
	assert_int_equal(c.rec.files.n, n);
	template_rec_finish(&c.rec);
}

static struct create_spec held_of(const char *key, size_t n_own)
{
	struct create_spec s = held_spec(key, 30000);

	s.template_name = "sum";
	s.seeds = own;
	s.n_seeds = n_own;
	return s;
}

/* The next file that the guest of VM i gets. */
static void gets(int i, const char *path, const char *text)
{
	struct vm *vm = &fake.vms[i];

	assert_string_equal(vm->file_path, path);
	assert_int_equal(vm->file.more, strlen(text));
	vm->file_bytes.len = 0;
	guest_wants(i, strlen(text));
	assert_memory_equal(vm->file_bytes.data, text, strlen(text));
	guest_done(i, GP_FILE_OK);
}

static void is_file(const struct template_file *f, const char *path,
		    const uint8_t *hash, uint64_t bytes)
{
	assert_int_equal(f->path.len, strlen(path));
	assert_memory_equal(f->path.data, path, f->path.len);
	assert_memory_equal(f->sha256, hash, HASH_BYTES);
	assert_memory_equal(f->id, "fil_n001", 8);
	assert_int_equal(f->bytes, bytes);
}

/* ---- saving ------------------------------------------------------------- */

static void a_version_says_what_they_were(void **state)
{
	struct template_spec spec;
	struct save_call c, again;
	char id[ID_BYTES_MAX];

	(void)state;
	prepare();
	spec = spec_of("k", 2);
	call_save(&c, &spec);
	assert_int_equal(c.err.code, ERR_NONE);
	assert_int_equal(c.rec.version, 1);
	assert_int_equal(c.rec.files.n, 2);
	is_file(&c.rec.files.at[0], "in/a", hash_a, 3);
	is_file(&c.rec.files.at[1], "b", hash_b, 4);
	/* By its id: the same. */
	memcpy(id, c.rec.files.at[1].id, sizeof(id));
	seeds[1].file = (struct file_ref){.id = ""};
	memcpy(seeds[1].file.id, id, sizeof(id));
	spec.key = "k2";
	call_save(&again, &spec);
	assert_int_equal(again.rec.version, 2);
	is_file(&again.rec.files.at[1], "b", hash_b, 4);
	template_rec_finish(&again.rec);
	/* A key finds its version, whatever became of the Files. */
	graph_delete(hash_b, ERR_NONE);
	for (int i = 0; i < 2; i++) {
		spec.key = "k";
		call_save(&again, &spec);
		assert_int_equal(again.err.code, ERR_NONE);
		assert_string_equal(again.rec.id, c.rec.id);
		is_file(&again.rec.files.at[1], "b", hash_b, 4);
		template_rec_finish(&again.rec);
		spec.request_hash[0]++;
		call_save(&again, &spec);
		assert_int_equal(again.err.code, ERR_KEY_CONFLICT);
		spec.request_hash[0]--;
		env_stop();
		env_start();
	}
	template_rec_finish(&c.rec);
}

static void what_is_not_there_is_not_saved(void **state)
{
	struct template_spec spec;
	struct save_call c;
	char path[200];

	(void)state;
	prepare();
	spec = spec_of("k", 2);
	seeds[1].file.sha256[0] ^= 1;
	call_save(&c, &spec);
	assert_int_equal(c.err.code, ERR_GRAPH_FILE_NOT_FOUND);
	assert_string_equal(c.err.param, "files[1].sha256");
	snprintf(seeds[0].file.id, sizeof(seeds[0].file.id), "fil_none");
	call_save(&c, &spec);
	assert_int_equal(c.err.code, ERR_GRAPH_FILE_NOT_FOUND);
	assert_string_equal(c.err.param, "files[0].id");
	assert_non_null(strstr(c.err.text, "fil_none in graph main"));
	seeds[0].file.id[0] = 0;
	seeds[1].file.sha256[0] ^= 1;
	/* Another graph's. */
	env.who.graph = "other";
	call_save(&c, &spec);
	assert_int_equal(c.err.code, ERR_GRAPH_FILE_NOT_FOUND);
	env.who.graph = "main";
	/* Too many, and too long in all. */
	spec.n_seeds = TEMPLATE_FILES_MAX + 1;
	call_save(&c, &spec);
	assert_int_equal(c.err.code, ERR_INVALID_REQUEST);
	assert_string_equal(c.err.param, "files");
	spec.n_seeds = 5;
	for (int i = 0; i < 5; i++) {
		seed_set(&seeds[i], hash_a, "x");
		memset(seeds[i].path.text, 'x', 4000);
		seeds[i].path.text[4000] = 0;
		seeds[i].path.len = 4000;
	}
	call_save(&c, &spec);
	assert_int_equal(c.err.code, ERR_INVALID_REQUEST);
	assert_string_equal(c.err.param, "files");
	assert_non_null(strstr(c.err.text, "20000 bytes"));
	/* The record is there, the bytes are not. */
	prepare();
	spec.n_seeds = 2;
	snprintf(path, sizeof(path), "%s/files/", env.f.dir);
	for (size_t i = 0; i < HASH_BYTES; i++)
		snprintf(path + strlen(path), 3, "%02x", hash_b[i]);
	assert_int_equal(truncate(path, 1), 0);
	call_save(&c, &spec);
	assert_int_equal(c.err.code, ERR_INTERNAL);
	/* No version was made, and the key was not burnt. */
	spec.n_seeds = 1;
	call_save(&c, &spec);
	assert_int_equal(c.err.code, ERR_NONE);
	assert_int_equal(c.rec.version, 1);
	template_rec_finish(&c.rec);
}

/* The daemon ends while they are looked up. */
static void an_end_is_told(void **state)
{
	struct template_spec spec;
	struct save_call c = {0};

	(void)state;
	prepare();
	spec = spec_of("k", 2);
	assert_int_equal(
		engine_template_save(env.e, &env.who, &spec, on_template, &c),
		0);
	env_stop();
	assert_int_equal(c.n_answers, 1);
	assert_int_equal(c.err.code, ERR_UNAVAILABLE);
	env_start();
	saved("k", 2);
}

/* ---- what begins from it ------------------------------------------------ */

/* Held, with its two Files; the VM is number i. */
static void begins(struct call *c, const char *key, int i)
{
	struct create_spec spec = held_of(key, 0);

	call_create(c, &spec);
	env_settle();
	fake_bound(i);
	gets(i, "in/a", "abc");
	assert_int_equal(c->n_answers, 0);
	gets(i, "b", "defg");
	call_wait(c);
	assert_int_equal(c->err.code, ERR_NONE);
	assert_int_equal(c->sbx.status, SBX_RUNNING);
}

static void they_are_there_first(void **state)
{
	struct run_spec run = {.key = "r",
			       .request_hash = {1},
			       .template_name = "sum",
			       .seeds = own,
			       .n_seeds = 2,
			       .wait_ms = 30000};
	struct create_spec spec;
	struct snap_call snap;
	struct call c, from;

	(void)state;
	prepare();
	saved("t", 2);
	begins(&c, "k", 0);
	/* One call, with a path of the template's and one of its own. */
	seed_set(&own[0], hash_a, "b");
	seed_set(&own[1], hash_b, "mine");
	call_run(&from, "r", &run, 30000);
	env_settle();
	fake.vms[1].ops->bound(fake.vms[1].ctx);
	assert_int_equal(fake.vms[1].n_runs, 0);
	gets(1, "b", "abc");
	gets(1, "mine", "defg");
	gets(1, "in/a", "abc");
	assert_int_equal(fake.vms[1].n_runs, 1);
	fake_started(1, 1);
	fake_end(1, GP_END_EXITED, 0, "6");
	call_wait(&from);
	assert_int_equal(from.cmd.status, CMD_SUCCEEDED);
	call_finish(&from);
	/* A snapshot has them on its disk: no more than the call's come. */
	take(&snap, c.sbx.id, "s");
	assert_int_equal(snap.err.code, ERR_NONE);
	spec = held_of("from", 1);
	spec.template_name = NULL;
	spec.snapshot = snap.rec.id;
	call_create(&from, &spec);
	env_settle();
	fake_bound(2);
	gets(2, "b", "abc");
	call_wait(&from);
	assert_int_equal(from.err.code, ERR_NONE);
	assert_int_equal(from.sbx.status, SBX_RUNNING);
}

/* As with a File of the call, which a call may then give in its place. */
static void a_deleted_one_refuses_a_start(void **state)
{
	struct create_spec spec;
	struct call c, known;

	(void)state;
	prepare();
	saved("t", 2);
	begins(&known, "known", 0);
	graph_delete(hash_b, ERR_NONE);
	seed_set(&own[0], hash_a, "mine");
	spec = held_of("k", 1);
	call_create(&c, &spec);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_GRAPH_FILE_NOT_FOUND);
	assert_string_equal(c.err.param, "template");
	assert_non_null(
		strstr(c.err.text, "files[1] of the template sum, b: "));
	/* The call's own is told as the call has it. */
	own[0].file.sha256[0] ^= 1;
	call_create(&c, &spec);
	call_wait(&c);
	assert_string_equal(c.err.param, "files[0].sha256");
	assert_int_equal(fake.n_vms, 1);
	/* What was begun with it is found by its key. */
	spec = held_of("known", 0);
	call_create(&c, &spec);
	call_wait(&c);
	assert_string_equal(c.sbx.id, known.sbx.id);
	/* The path is the call's: what the template had there is not asked
	 * for. */
	seed_set(&own[0], hash_a, "./b");
	spec = held_of("k", 1);
	call_create(&c, &spec);
	env_settle();
	fake_bound(1);
	gets(1, "b", "abc");
	gets(1, "in/a", "abc");
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	/* The same bytes again: the version is whole again. */
	uploaded("other", "defg");
	spec = held_of("k2", 0);
	call_create(&c, &spec);
	env_settle();
	fake_bound(2);
	gets(2, "in/a", "abc");
	guest_done(2, GP_FILE_FULL);
	call_wait(&c);
	assert_int_equal(c.sbx.status, SBX_FAILED);
	assert_non_null(strstr(c.sbx.reason_text,
			       "files[1] of the template: path /workspace/b"));
}

static void both_together_have_a_limit(void **state)
{
	const size_t most = ENGINE_FILES_AT_START_MAX;
	struct create_spec spec;
	struct run_spec run = {
		.request_hash = {1}, .template_name = "sum", .seeds = own};
	struct call c;
	char path[16];

	(void)state;
	prepare();
	saved("t", 2);
	for (size_t i = 0; i < most; i++) {
		snprintf(path, sizeof(path), "p%zu", i);
		seed_set(&own[i], hash_a, path);
	}
	spec = held_of("k", most - 1);
	call_create(&c, &spec);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_INVALID_REQUEST);
	assert_string_equal(c.err.param, "files");
	assert_non_null(strstr(c.err.text, "65 paths"));
	run.n_seeds = most;
	run.key = "r";
	call_run(&c, "r", &run, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_INVALID_REQUEST);
	assert_string_equal(c.err.param, "files");
	assert_int_equal(fake.n_vms, 0);
	/* One of both counts once. */
	seed_set(&own[0], hash_b, "in/a");
	call_create(&c, &spec);
	env_settle();
	assert_int_equal(fake.n_vms, 1);
	fake_bound(0);
	gets(0, "in/a", "defg");
	for (size_t i = 1; i < most - 1; i++) {
		snprintf(path, sizeof(path), "p%zu", i);
		gets(0, path, "abc");
	}
	gets(0, "b", "defg");
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_version_says_what_they_were),
		TEST(what_is_not_there_is_not_saved),
		TEST(an_end_is_told),
		TEST(they_are_there_first),
		TEST(a_deleted_one_refuses_a_start),
		TEST(both_together_have_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
