/* What the tests of the store share; see store_test_util.h. */
#include "store_test_util.h"
#include "log.h"
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

void fixture_init(struct fixture *f)
{
	const char *tmp = getenv("TMPDIR");

	log_set_level(LOG_ERROR);
	memset(f, 0, sizeof(*f));
	snprintf(f->dir, sizeof(f->dir), "%.40s/store.XXXXXX",
		 tmp && strlen(tmp) <= 40 ? tmp : "/tmp");
	assert_non_null(mkdtemp(f->dir));
	assert_int_equal(loop_create(&f->loop), 0);
}

bool is_long_run(void)
{
	const char *v = getenv("HUTCH_LONG");

	return v && *v == '1';
}

void fixture_open(struct fixture *f)
{
	struct err e = {0};

	if (store_open(&f->store, f->loop, f->dir, &e))
		fail_msg("%s", e.text);
}

void fixture_close(struct fixture *f)
{
	store_close(f->store);
	f->store = NULL;
}

/* Folders of two levels, at most. */
static void remove_all(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *ent;
	char path[400];

	while (d && (ent = readdir(d))) {
		if (!strcmp(ent->d_name, ".") || !strcmp(ent->d_name, ".."))
			continue;
		snprintf(path, sizeof(path), "%.100s/%.255s", dir, ent->d_name);
		if (unlink(path))
			remove_all(path);
	}
	if (d)
		closedir(d);
	assert_int_equal(rmdir(dir), 0);
}

void fixture_finish(struct fixture *f)
{
	fixture_close(f);
	loop_destroy(f->loop);
	remove_all(f->dir);
}

struct sandbox_rec sandbox_of(int n)
{
	struct sandbox_rec r = {
		.environment = "env_a",
		.graph = "main",
		.status = SBX_STARTING,
		.kind = SBX_KIND_ONE_CALL,
		.template_name = "lbb/python",
		.template_base = "lbb/python",
		.limits = {1, 1024, 4096},
		.idle_seconds = 300,
		.expires_in_seconds = 3600,
		.created_ms = 1700000000000 + n,
		.incarnation = 1,
		.host_boot_id = "boot-1",
	};

	snprintf(r.id, sizeof(r.id), "sbx_%026d", n);
	snprintf(r.command, sizeof(r.command), "cmd_%026d", n);
	memset(r.image_sha256, 0xab, HASH_BYTES);
	memset(r.kernel_sha256, 0xcd, HASH_BYTES);
	return r;
}

struct command_rec command_of(int n)
{
	struct command_rec r = {
		.environment = "env_a",
		.graph = "main",
		.kind = CMD_KIND_RUN,
		.status = CMD_QUEUED,
		.exit_code = -1,
		.timeout_ms = 60000,
		.created_ms = 1700000000000 + n,
		.code_bytes = 57,
		.input_bytes = 9,
	};

	snprintf(r.id, sizeof(r.id), "cmd_%026d", n);
	snprintf(r.sandbox, sizeof(r.sandbox), "sbx_%026d", n);
	memset(r.code_sha256, n & 0xff, HASH_BYTES);
	assert_int_equal(bytes_append(&r.env_names, "A\0BC\0", 5), 0);
	return r;
}

/* ---- answers
 * ------------------------------------------------------------------- */

void answer_init(struct answer *a, struct fixture *f)
{
	memset(a, 0, sizeof(*a));
	a->loop = f->loop;
}

void answer_finish(struct answer *a)
{
	command_rec_finish(&a->cmd);
}

static void answered(struct answer *a, int rc)
{
	a->n++;
	a->rc = rc;
	loop_stop(a->loop);
}

void answer_wait(struct answer *a, int n)
{
	while (a->n < n)
		assert_int_equal(loop_run(a->loop), 0);
}

void on_rc(void *ctx, int rc)
{
	answered(ctx, rc);
}

void on_found(void *ctx, int rc, const struct store_found *f)
{
	struct answer *a = ctx;

	a->found = *f;
	answered(a, rc);
}

void on_sandbox(void *ctx, int rc, struct sandbox_rec *r)
{
	struct answer *a = ctx;

	if (!rc)
		a->sbx = *r;
	answered(a, rc);
}

void on_command(void *ctx, int rc, struct command_rec *r)
{
	struct answer *a = ctx;

	command_rec_finish(&a->cmd);
	if (!rc)
		assert_int_equal(command_rec_copy(&a->cmd, r), 0);
	answered(a, rc);
}

void on_run(void *ctx, int rc, struct sandbox_rec *s, struct command_rec *c)
{
	struct answer *a = ctx;

	if (!rc)
		a->sbx = *s;
	on_command(ctx, rc, c);
}

void on_sandboxes(void *ctx, int rc, struct sandbox_rec *r, size_t n,
		  bool has_more)
{
	struct answer *a = ctx;

	a->n_ids = n;
	a->has_more = has_more;
	for (size_t i = 0; i < n && i < 64; i++)
		memcpy(a->ids[i], r[i].id, ID_BYTES_MAX);
	answered(a, rc);
}

void on_commands(void *ctx, int rc, struct command_rec *r, size_t n,
		 bool has_more)
{
	struct answer *a = ctx;

	a->n_ids = n;
	a->has_more = has_more;
	for (size_t i = 0; i < n && i < 64; i++)
		memcpy(a->ids[i], r[i].id, ID_BYTES_MAX);
	answered(a, rc);
}

int begin_now(struct fixture *f, int n, const char *key,
	      struct store_found *ret_found)
{
	struct sandbox_rec s = sandbox_of(n);
	struct command_rec c = command_of(n);
	struct store_begin b = {"env_a", "main", "run", key, {1, 2, 3}};
	struct answer a;

	answer_init(&a, f);
	assert_int_equal(store_run_begin(f->store, &b, &s, &c, on_found, &a),
			 0);
	command_rec_finish(&c);
	answer_wait(&a, 1);
	*ret_found = a.found;
	return a.rc;
}

int update_now(struct fixture *f, const struct sandbox_rec *s,
	       const struct command_rec *c, bool with_output)
{
	struct answer a;

	answer_init(&a, f);
	assert_int_equal(store_update(f->store, s, c, with_output, on_rc, &a),
			 0);
	answer_wait(&a, 1);
	return a.rc;
}

/* ---- raw access
 * ----------------------------------------------------------------- */

static sqlite3 *raw_open(const struct fixture *f)
{
	char path[128];
	sqlite3 *h;

	snprintf(path, sizeof(path), "%s/" DB_FILE, f->dir);
	assert_int_equal(sqlite3_open(path, &h), SQLITE_OK);
	/* Without shared memory, as the store itself. */
	sqlite3_exec(h, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL);
	return h;
}

void raw_exec(const struct fixture *f, const char *sql)
{
	sqlite3 *h = raw_open(f);
	char *text = NULL;

	if (sqlite3_exec(h, sql, NULL, NULL, &text))
		fail_msg("%s: %s", sql, text);
	assert_int_equal(sqlite3_close(h), SQLITE_OK);
}

int64_t raw_number(const struct fixture *f, const char *sql)
{
	sqlite3 *h = raw_open(f);
	sqlite3_stmt *st;
	int64_t v;

	if (sqlite3_prepare_v2(h, sql, -1, &st, NULL))
		fail_msg("%s: %s", sql, sqlite3_errmsg(h));
	assert_int_equal(sqlite3_step(st), SQLITE_ROW);
	v = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	assert_int_equal(sqlite3_close(h), SQLITE_OK);
	return v;
}

void saved_schema_load(struct fixture *f, const char *path)
{
	char sql[65536];
	FILE *in = fopen(path, "re");
	size_t n;

	if (!in)
		fail_msg("%s: %s (tests run in the top folder)", path,
			 strerror(errno));
	n = fread(sql, 1, sizeof(sql) - 1, in);
	fclose(in);
	sql[n] = 0;
	raw_exec(f, sql);
	fixture_open(f);
}
