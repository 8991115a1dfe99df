/*
 * Files of graphs: uploads, keeps and imports by their keys, and what is left
 * of them when something ends (LBB-69, LBB-154, LBB-157 to LBB-160, LBB-20 to
 * LBB-24).
 */
#include "engine_graph_file_util.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1 << 20)

static void graph_is(const char *graph)
{
	env.who.graph = graph;
}

static void uploads(void **state)
{
	uint8_t sha256[HASH_BYTES];
	struct fkept k;

	(void)state;
	memcpy(sha256, uploaded("a", "abc"), HASH_BYTES);
	assert_string_equal(graph_text(sha256), "abc");
	graph_is("other");
	assert_string_equal(graph_text(sha256), "-");
	graph_delete(sha256, ERR_GRAPH_FILE_NOT_FOUND);
	uploaded("b", "abc");
	assert_int_equal(n_blobs(), 1);
	/* The bytes stay as long as one graph has them. */
	graph_is("main");
	graph_delete(sha256, ERR_NONE);
	assert_string_equal(graph_text(sha256), "-");
	assert_int_equal(n_blobs(), 1);
	graph_is("other");
	assert_string_equal(graph_text(sha256), "abc");
	graph_delete(sha256, ERR_NONE);
	assert_int_equal(n_blobs(), 0);
	/* Given up in the middle, and before its first byte. */
	assert_int_equal(upload_begin(&k, "a", UINT64_MAX), 0);
	assert_int_equal(engine_upload_write(k.up, "abc", 3, &k.err), 0);
	engine_upload_abort(k.up);
	assert_int_equal(upload_begin(&k, "a", 5), 0);
	engine_upload_abort(k.up);
	/* Whole, and nobody waits for it. */
	assert_int_equal(upload_begin(&k, "a", UINT64_MAX), 0);
	assert_int_equal(engine_upload_write(k.up, "xyz", 3, &k.err), 0);
	assert_int_equal(engine_upload_end(k.up, &k.err), 0);
	engine_upload_abort(k.up);
	env_loop_for(50);
	assert_int_equal(k.n, 0);
	assert_int_equal(n_blobs(), 1);
	assert_true(list_is_empty(&env.e->intakes));
	assert_int_equal(env.e->n_uploads, 0);
}

static void refused(const char *name, const char *type, uint64_t bytes,
		    enum err_code code, const char *part)
{
	const struct upload_spec spec = {
		.name = name, .content_type = type, .bytes = bytes};
	struct upload *u;
	struct err e = {0};

	assert_int_equal(engine_upload_begin(env.e, &env.who, &spec, NULL,
					     on_kept, NULL, &u, &e),
			 -1);
	if (e.code != code || !strstr(e.text, part))
		fail_msg("%d %s: %s", e.code, e.param, e.text);
}

static void limits(void **state)
{
	static char name[FILE_NAME_BYTES_MAX + 2];
	static const char *const types[] = {
		"",	   "text",     "text/",	   "/plain",	"a b/c",
		"te xt/a", "text/a\n", "text/a,b", "\xc3\xa9/a"};
	static struct fkept k[ENGINE_UPLOADS_MAX + 1];
	int n = 0;

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	refused(name, NULL, 1, ERR_INVALID_REQUEST, "too long");
	refused("", NULL, 1, ERR_INVALID_REQUEST, "empty");
	refused("a\nb", NULL, 1, ERR_INVALID_REQUEST, "control");
	refused("\xff", NULL, 1, ERR_INVALID_REQUEST, "UTF-8");
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		refused("a", types[i], 1, ERR_INVALID_REQUEST, "type/subtype");
	refused("a", NULL, 64 * MIB + 1, ERR_GRAPH_FILE_TOO_LARGE,
		"file_max_mib");
	/* One that grows past it. */
	env.e->file_max_bytes = 5;
	assert_int_equal(upload_begin(&k[0], "a", UINT64_MAX), 0);
	assert_int_equal(engine_upload_write(k[0].up, "abcde", 5, &k[0].err),
			 0);
	assert_int_equal(engine_upload_write(k[0].up, "f", 1, &k[0].err), -1);
	assert_int_equal(k[0].err.code, ERR_GRAPH_FILE_TOO_LARGE);
	engine_upload_abort(k[0].up);
	env.e->file_max_bytes = 64 * MIB;
	/* All of them together: what is there, and what is promised. */
	env.e->files_max_bytes = 10;
	uploaded("a", "abcdef");
	assert_int_equal(upload_begin(&k[0], "a", 3), 0);
	refused("b", NULL, 2, ERR_LIMIT_REACHED, "files_max_mib");
	assert_int_equal(upload_begin(&k[1], "a", UINT64_MAX), 0);
	assert_int_equal(engine_upload_write(k[1].up, "f", 1, &k[1].err), 0);
	assert_int_equal(engine_upload_write(k[1].up, "f", 1, &k[1].err), -1);
	assert_int_equal(k[1].err.code, ERR_LIMIT_REACHED);
	engine_upload_abort(k[0].up);
	engine_upload_abort(k[1].up);
	env.e->files_max_bytes = 0;
	env.e->disk_reserve_bytes = UINT64_MAX / 2;
	refused("b", NULL, 1, ERR_CAPACITY, "disk_reserve_mib");
	env.e->disk_reserve_bytes = 0;
	for (; n < ENGINE_UPLOADS_MAX; n++)
		assert_int_equal(upload_begin(&k[n], "a", 1), 0);
	refused("b", NULL, 1, ERR_UNAVAILABLE, "64 Files");
	while (n--)
		engine_upload_abort(k[n].up);
}

/* Its last graph deletes it while another call comes with the same bytes. */
static void deleted_meanwhile(void **state)
{
	uint8_t sha256[HASH_BYTES];
	struct fkept k[8];

	(void)state;
	memcpy(sha256, uploaded("a", "abc"), HASH_BYTES);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(upload_begin(&k[i], "b", 3), 0);
		assert_int_equal(
			engine_upload_write(k[i].up, "abc", 3, &k[i].err), 0);
		assert_int_equal(engine_upload_end(k[i].up, &k[i].err), 0);
		env_loop_for(i % 3);
		graph_delete(sha256, ERR_NONE);
		fkept_wait(&k[i]);
		assert_int_equal(k[i].err.code, ERR_NONE);
		fkept_finish(&k[i]);
		/* Whoever was last: the record and the bytes, or neither. */
		assert_string_equal(graph_text(sha256),
				    n_blobs() ? "abc" : "-");
		uploaded("a", "abc");
		assert_string_equal(graph_text(sha256), "abc");
	}
}

static void keeps(void **state)
{
	uint8_t sha256[HASH_BYTES];
	struct fkept k, again, other;
	struct call c;

	(void)state;
	begin_held(&c, "k");
	call_keep(&k, "1", c.sbx.id, "out/r.md");
	env_settle();
	assert_string_equal(fake.vms[0].file_path, "out/r.md");
	assert_int_equal(fake.vms[0].file.limit, GP_FILE_BYTES_MAX);
	/* Another one joins; a third means something else. */
	call_keep(&again, "1", c.sbx.id, "out/r.md");
	call_keep(&other, "1", c.sbx.id, "x");
	fkept_wait(&other);
	assert_int_equal(other.err.code, ERR_KEY_CONFLICT);
	guest_reads(0, "abc", 3, 1);
	fkept_wait(&k);
	fkept_wait(&again);
	assert_int_equal(k.err.code, ERR_NONE);
	assert_true(k.is_new);
	assert_string_equal(k.r.origin_sandbox, c.sbx.id);
	assert_memory_equal(k.r.origin_path.data, "out/r.md", 8);
	assert_int_equal(k.r.name.len, 4);
	assert_memory_equal(k.r.name.data, "r.md", 4);
	assert_string_equal(again.r.id, k.r.id);
	assert_int_equal(fake.vms[0].n_files, 1);
	memcpy(sha256, k.r.sha256, HASH_BYTES);
	fkept_finish(&again);
	/* By its key, when the sandbox is gone, too. */
	call_delete(&c, c.sbx.id);
	call_wait(&c);
	env_stop();
	env_start();
	call_keep(&again, "1", c.sbx.id, "out/r.md");
	fkept_wait(&again);
	assert_int_equal(again.err.code, ERR_NONE);
	assert_string_equal(again.r.id, k.r.id);
	assert_string_equal(graph_text(sha256), "abc");
	fkept_finish(&again);
	call_keep(&other, "1", c.sbx.id, "x");
	fkept_wait(&other);
	assert_int_equal(other.err.code, ERR_KEY_CONFLICT);
	graph_delete(sha256, ERR_NONE);
	call_keep(&other, "1", c.sbx.id, "out/r.md");
	fkept_wait(&other);
	assert_int_equal(other.err.code, ERR_GRAPH_FILE_NOT_FOUND);
	assert_int_equal(n_blobs(), 0);
	fkept_finish(&k);
}

/* Larger than one read: parts of one state, or from the start again. */
static void parts(void **state)
{
	struct vm *vm = &fake.vms[0];
	struct fkept k;
	struct call c;

	(void)state;
	begin_held(&c, "k");
	call_keep(&k, "1", c.sbx.id, "a");
	env_settle();
	guest_reads(0, "abc", 8, 1);
	until(&vm->n_files, 2);
	assert_int_equal(vm->file.offset, 3);
	guest_reads(0, "def", 8, 2); /* another state */
	until(&vm->n_files, 3);
	assert_int_equal(vm->file.offset, 0);
	guest_reads(0, "ABC", 6, 3);
	until(&vm->n_files, 4);
	guest_reads(0, "DEF", 6, 3);
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_NONE);
	assert_string_equal(graph_text(k.r.sha256), "ABCDEF");
	assert_int_equal(n_blobs(), 1);
	fkept_finish(&k);
	/* It never comes to rest; says nothing of its state; has no bytes where
	 * it said that there are some. */
	call_keep(&k, "2", c.sbx.id, "a");
	env_settle();
	guest_reads(0, "abc", 3, 0);
	until(&vm->n_files, 6);
	guest_reads(0, "", 3, 1);
	until(&vm->n_files, 7);
	guest_reads(0, "abc", 3, 0);
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_FILE_CHANGED);
	assert_int_equal(n_blobs(), 1);
	/* Nothing at all is a File, too; one that is too large is none. */
	call_keep(&k, "3", c.sbx.id, "a");
	env_settle();
	guest_reads(0, "", 0, 1);
	fkept_wait(&k);
	assert_int_equal(k.r.bytes, 0);
	fkept_finish(&k);
	call_keep(&k, "4", c.sbx.id, "a");
	env_settle();
	guest_reads(0, "abc", 64 * MIB + 1, 1);
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_GRAPH_FILE_TOO_LARGE);
	assert_true(list_is_empty(&env.e->moves));
}

static void keeps_not(void **state)
{
	struct fkept k;
	struct call c;

	(void)state;
	call_keep(&k, "1", "sbx_none", "a");
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_SANDBOX_NOT_FOUND);
	begin_held(&c, "k");
	call_keep(&k, "1", c.sbx.id, "a"); /* the key was not burnt */
	env_settle();
	guest_done(0, GP_FILE_WRONG_TYPE);
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_PATH_INVALID);
	assert_string_equal(k.err.param, "source_path");
	env.who.plan = PLAN_FREE;
	call_keep(&k, "1", c.sbx.id, "a");
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_PLAN_UNAVAILABLE);
	env.who.is_enabled = false;
	call_keep(&k, "1", c.sbx.id, "a");
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_NOT_ENABLED);
	env.who.plan = PLAN_FULL;
	env.who.is_enabled = true;
	/* The VM goes in the middle. */
	call_keep(&k, "1", c.sbx.id, "a");
	env_settle();
	guest_reads(0, "abc", 6, 1);
	env_settle();
	fake_gone(0, END_VM_LOST, "killed");
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_NOT_RUNNING);
	env_loop_for(20);
	assert_int_equal(n_blobs(), 0);
	call_keep(&k, "1", c.sbx.id, "a");
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_NOT_RUNNING);
}

static void imports(void **state)
{
	struct vm *vm = &fake.vms[0];
	uint8_t sha256[HASH_BYTES], none[HASH_BYTES] = {1};
	struct fkept k, again;
	struct call c;

	(void)state;
	memcpy(sha256, uploaded("a", "abcdef"), HASH_BYTES);
	begin_held(&c, "k");
	call_import(&k, "1", c.sbx.id, "in/x", none);
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_GRAPH_FILE_NOT_FOUND);
	assert_string_equal(k.err.param, "source_sha256");
	assert_int_equal(vm->n_files, 0);
	call_import(&k, "1", c.sbx.id, "in/x", sha256);
	env_settle();
	assert_int_equal(vm->file.op, GP_FILE_WRITE);
	assert_int_equal(vm->file.more, 6);
	assert_string_equal(vm->file_path, "in/x");
	/* It is deleted meanwhile, and goes in all the same. */
	graph_delete(sha256, ERR_NONE);
	guest_wants(0, 4);
	call_import(&again, "1", c.sbx.id, "in/x", sha256);
	guest_wants(0, 2);
	guest_done(0, GP_FILE_OK);
	fkept_wait(&k);
	fkept_wait(&again);
	assert_int_equal(k.err.code, ERR_NONE);
	assert_int_equal(k.bytes, 6);
	assert_int_equal(again.bytes, 6);
	assert_memory_equal(vm->file_bytes.data, "abcdef", 6);
	/* The same key: it is not done again. */
	call_import(&k, "1", c.sbx.id, "in/x", sha256);
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_NONE);
	assert_int_equal(k.bytes, 6);
	assert_int_equal(vm->n_files, 1);
	call_import(&k, "1", c.sbx.id, "other", sha256);
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_KEY_CONFLICT);
	env.who.plan = PLAN_FREE;
	call_import(&k, "2", c.sbx.id, "x", sha256);
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_PLAN_UNAVAILABLE);
}

static void blob_path(const uint8_t sha256[HASH_BYTES], char ret[200])
{
	int n = snprintf(ret, 200, "%s/files/", env.f.dir);

	for (size_t i = 0; i < HASH_BYTES; i++)
		n += snprintf(ret + n, 3, "%02x", sha256[i]);
}

static void imports_not(void **state)
{
	struct vm *vm = &fake.vms[0];
	uint8_t sha256[HASH_BYTES];
	struct fkept k;
	struct call c;
	char path[200];
	FILE *f;

	(void)state;
	memcpy(sha256, uploaded("a", "abcdef"), HASH_BYTES);
	begin_held(&c, "k");
	call_import(&k, "1", c.sbx.id, "x", sha256);
	env_settle();
	guest_done(0, GP_FILE_FULL);
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_DISK_FULL);
	/* Who asked has gone: it goes on, and its key finds it. */
	call_import(&k, "1", c.sbx.id, "x", sha256);
	env_settle();
	engine_move_abandon(k.ask);
	guest_wants(0, 6);
	guest_done(0, GP_FILE_OK);
	env_loop_for(20);
	assert_int_equal(k.n, 0);
	call_import(&k, "1", c.sbx.id, "x", sha256);
	fkept_wait(&k);
	assert_int_equal(k.bytes, 6);
	assert_int_equal(vm->n_files, 2);
	/* Bytes that are not what they were: the last piece is never given. */
	blob_path(sha256, path);
	f = fopen(path, "r+e");
	assert_non_null(f);
	fputs("x", f);
	fclose(f);
	call_import(&k, "2", c.sbx.id, "x", sha256);
	env_settle();
	guest_wants(0, 5);
	guest_wants(0, 1);
	assert_int_equal(vm->n_given_up, 1);
	guest_done(0, GP_FILE_GIVEN_UP);
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_INTERNAL);
	assert_non_null(strstr(k.err.text, "damaged"));
	assert_int_equal(unlink(path), 0);
	call_import(&k, "3", c.sbx.id, "x", sha256);
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_INTERNAL);
	/* The VM goes while a worker reads. */
	uploaded("b", "xyz");
	graph_delete(sha256, ERR_NONE);
	memcpy(sha256, uploaded("a", "abcdef"), HASH_BYTES);
	call_import(&k, "4", c.sbx.id, "x", sha256);
	env_settle();
	vm->awaited = 6;
	vm->ops->file_more(vm->ctx, vm->file_number, 6);
	fake_gone(0, END_VM_LOST, "killed");
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_NOT_RUNNING);
	env_loop_for(20);
	assert_true(list_is_empty(&env.e->moves));
}

/* The daemon ends in the middle of each. */
static void ends(void **state)
{
	uint8_t sha256[HASH_BYTES];
	struct fkept k[4];
	struct call c;

	(void)state;
	memcpy(sha256, uploaded("a", "abc"), HASH_BYTES);
	begin_held(&c, "k");
	call_keep(&k[0], "1", c.sbx.id, "a"); /* asks for its key */
	env_settle();
	guest_reads(0, "xyz", 9, 1);
	call_import(&k[1], "2", c.sbx.id, "b", sha256);
	env_settle();
	call_keep(&k[2], "3", c.sbx.id, "c");
	assert_int_equal(upload_begin(&k[3], "d", 3), 0);
	assert_int_equal(engine_upload_write(k[3].up, "def", 3, &k[3].err), 0);
	assert_int_equal(engine_upload_end(k[3].up, &k[3].err), 0);
	env_stop();
	for (int i = 0; i < 3; i++) {
		assert_int_equal(k[i].n, 1);
		assert_int_equal(k[i].err.code, ERR_UNAVAILABLE);
	}
	assert_int_equal(k[3].n, 0);
	env_loop_for(100); /* its worker, as loop_destroy would */
	env_start();
	env_settle();
	/* Bytes without a record were swept. */
	assert_int_equal(n_blobs(), 1);
	assert_string_equal(graph_text(sha256), "abc");
}

/* Longer than a client waits: told so, and it goes on. */
static void late(void **state)
{
	struct fkept k;
	struct call c;

	(void)state;
	begin_held(&c, "k");
	call_keep(&k, "1", c.sbx.id, "a");
	env_settle();
	guest_reads(0, "abc", 6, 1);
	env_settle();
	env_pass(ENGINE_FILE_WAIT_MS + 1);
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_UNAVAILABLE);
	assert_non_null(strstr(k.err.text, "same key"));
	unsetenv("HUTCH_TEST_CLOCK");
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)
	const struct CMUnitTest tests[] = {
		TEST(uploads), TEST(limits),	  TEST(deleted_meanwhile),
		TEST(keeps),   TEST(parts),	  TEST(keeps_not),
		TEST(imports), TEST(imports_not), TEST(ends),
		TEST(late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
