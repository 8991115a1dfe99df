/*
 * Unit tests of the calls on Files of a graph as the surface takes and answers
 * them: hashes, confirmations, pages, which of upload and keep is meant,
 * records (LBB-154, LBB-157 to LBB-159).
 *
 * graph_files.c is included; the engine's functions keep what they were given.
 */
#include "graph_files.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct services services;
static const struct route route = {.operation = "op"};
static struct err got;
static char answer[8192], asked[32], name[64], cursor[32], sandbox[64];
static char path[64], header[64], key[64];
static int status, range_rc;
static uint8_t sha256[HASH_BYTES], request_hash[HASH_BYTES];
static uint64_t body_bytes;
static bool is_key_missing, is_full;
static enum err_code write_code;
static int n_aborts;

/* ---- what the surface calls --------------------------------------------- */

static void ask(const char *what)
{
	snprintf(asked, sizeof(asked), "%s", what);
}

int engine_upload_begin(struct engine *e, const struct caller *who,
			const struct upload_spec *spec,
			engine_upload_room_fn room, engine_kept_fn fn,
			void *ctx, struct upload **ret, struct err *err)
{
	(void)e;
	(void)who;
	(void)room;
	(void)fn;
	(void)ctx;
	*ret = NULL;
	ask("upload");
	snprintf(name, sizeof(name), "%s|%s", spec->name ? spec->name : "-",
		 spec->content_type ? spec->content_type : "-");
	body_bytes = spec->bytes;
	return write_code == ERR_CAPACITY ? err_set(err, write_code, NULL, "no")
					  : 0;
}

int engine_upload_write(struct upload *u, const void *data, size_t len,
			struct err *err)
{
	(void)u;
	(void)data;
	(void)len;
	return write_code ? err_set(err, write_code, NULL, "no") : 0;
}

bool engine_upload_is_full(const struct upload *u)
{
	(void)u;
	return is_full;
}

int engine_upload_end(struct upload *u, struct err *err)
{
	(void)u;
	ask("end");
	return write_code ? err_set(err, write_code, NULL, "no") : 0;
}

void engine_upload_abort(struct upload *u)
{
	(void)u;
	n_aborts++;
}

static void take_move(const char *what, const char *k, const char *box,
		      const struct file_path *p, const uint8_t hash[HASH_BYTES])
{
	ask(what);
	snprintf(key, sizeof(key), "%s", k);
	snprintf(sandbox, sizeof(sandbox), "%s", box);
	snprintf(path, sizeof(path), "%.60s", p->text);
	memcpy(request_hash, hash, HASH_BYTES);
}

int engine_keep(struct engine *e, const struct caller *who,
		const struct keep_spec *spec, engine_kept_fn fn, void *ctx,
		struct move_ask **ret)
{
	(void)e;
	(void)who;
	(void)fn;
	(void)ctx;
	*ret = NULL;
	take_move("keep", spec->key, spec->sandbox, spec->path,
		  spec->request_hash);
	snprintf(name, sizeof(name), "%s", spec->name ? spec->name : "-");
	return 0;
}

int engine_import(struct engine *e, const struct caller *who,
		  const struct import_spec *spec, engine_imported_fn fn,
		  void *ctx, struct move_ask **ret)
{
	(void)e;
	(void)who;
	(void)fn;
	(void)ctx;
	*ret = NULL;
	take_move("import", spec->key, spec->sandbox, spec->path,
		  spec->request_hash);
	memcpy(sha256, spec->sha256, HASH_BYTES);
	return 0;
}

void engine_move_abandon(struct move_ask *a)
{
	(void)a;
	abort();
}

int engine_graph_file_get(struct engine *e, const struct caller *who,
			  const uint8_t hash[HASH_BYTES],
			  engine_graph_file_fn fn, void *ctx)
{
	(void)e;
	(void)who;
	(void)fn;
	(void)ctx;
	ask("get");
	memcpy(sha256, hash, HASH_BYTES);
	return 0;
}

int engine_graph_file_open(struct engine *e, const struct caller *who,
			   const uint8_t hash[HASH_BYTES],
			   engine_graph_open_fn fn, void *ctx)
{
	(void)fn;
	engine_graph_file_get(e, who, hash, NULL, ctx);
	ask("open");
	return 0;
}

int engine_graph_file_delete(struct engine *e, const struct caller *who,
			     const uint8_t hash[HASH_BYTES],
			     engine_graph_file_fn fn, void *ctx)
{
	(void)fn;
	engine_graph_file_get(e, who, hash, NULL, ctx);
	ask("delete");
	return 0;
}

int engine_graph_file_list(struct engine *e, const struct caller *who,
			   const struct store_page *p, engine_graph_files_fn fn,
			   void *ctx)
{
	(void)e;
	(void)who;
	(void)fn;
	(void)ctx;
	ask("list");
	snprintf(name, sizeof(name), "%u|%s", p->limit,
		 p->name ? p->name : "-");
	snprintf(cursor, sizeof(cursor), "%s", p->cursor ? p->cursor : "-");
	return 0;
}

const char *request_header(const struct request *r, const char *field)
{
	(void)r;
	return !strcmp(field, "Content-Type") && *header ? header : NULL;
}

uint64_t request_body_bytes(const struct request *r)
{
	(void)r;
	return 5;
}

int request_key(struct request *r, struct err *e)
{
	static char good[] = "key";

	if (is_key_missing)
		return err_set(e, ERR_MISSING_KEY, "Idempotency-Key", NULL);
	r->idempotency_key = good;
	return 0;
}

int request_range(const struct request *r, const char *etag, uint64_t total,
		  uint64_t *ret_at, uint64_t *ret_len)
{
	(void)r;
	assert_string_equal(etag, HASH);
	assert_int_equal(total, 10);
	*ret_at = 2;
	*ret_len = 3;
	return range_rc;
}

void request_body_more(struct request *r)
{
	(void)r;
}

void request_drop(struct request *r)
{
	(void)r;
	abort();
}

void lbb_engine_failed(struct request *r, int rc)
{
	(void)r;
	(void)rc;
	abort();
}

void reply_err(struct request *r, const struct err *e)
{
	(void)r;
	got = *e;
}

void lbb_reply_err(struct request *r, const struct err *e)
{
	reply_err(r, e);
}

int lbb_id(struct request *r, const char *param, const char *prefix,
	   enum err_code missing, const char **ret)
{
	struct err e;

	(void)prefix;
	*ret = query_get(&r->query, param);
	if (*ret)
		return 0;
	err_set(&e, missing, param, NULL);
	reply_err(r, &e);
	return -1;
}

void reply_json(struct request *r, int code, struct json_out *j)
{
	(void)r;
	assert_int_equal(j->rc, 0);
	status = code;
	snprintf(answer, sizeof(answer), "%.*s", (int)j->buf.len,
		 (char *)j->buf.data);
	json_out_finish(j);
}

void reply_file(struct request *r, const struct reply_bytes_of *f)
{
	(void)r;
	snprintf(answer, sizeof(answer), "%llu+%llu/%llu %s %s",
		 (unsigned long long)f->at, (unsigned long long)f->len,
		 (unsigned long long)f->total, f->content_type,
		 f->is_part ? "part" : "whole");
	assert_int_equal(f->fd, 99);
}

void reply_no_range(struct request *r, uint64_t total)
{
	(void)r;
	assert_int_equal(total, 10);
	ask("no range");
}

const char *http_method_name(enum http_method m)
{
	return m == HTTP_POST ? "POST" : "PUT";
}

/* A stand-in: the real one is tested in canon_test.c. */
int work_hash(struct request *r, struct json_span body, const char *record,
	      uint8_t ret[HASH_BYTES], struct err *e)
{
	(void)r;
	(void)e;
	assert_null(body.at);
	memset(ret, 0, HASH_BYTES);
	for (size_t i = 0; record[i]; i++)
		ret[i % HASH_BYTES] =
			(uint8_t)(ret[i % HASH_BYTES] * 31 + record[i]);
	return 0;
}

/* ---- calls -------------------------------------------------------------- */

static struct request request_of(const char *query)
{
	struct request r = {.services = &services, .route = &route};
	struct err e;

	memset(&got, 0, sizeof(got));
	*asked = *answer = 0;
	n_aborts = 0;
	assert_int_equal(query_parse(&r.query, query, &e), 0);
	return r;
}

static void calls(void (*handler)(struct request *r), const char *query)
{
	struct request r = request_of(query);

	handler(&r);
	if (r.sink == &keep_sink)
		r.sink->end(&r);
	query_finish(&r.query);
}

static void refuses(void (*handler)(struct request *r), const char *query,
		    enum err_code code, const char *param)
{
	calls(handler, query);
	if (*asked || got.code != code || strcmp(got.param, param))
		fail_msg("%s: %d %s: %s", query, got.code, got.param, got.text);
}

static void hashes(void **state)
{
	static void (*const handlers[])(struct request * r) = {
		lbb_graph_file_record, lbb_graph_file_content,
		lbb_graph_file_delete};
	static const char *const bad[] = {
		"sha256=",
		"sha256=0",
		"sha256=" HASH "0",
		"sha256=g123456789abcdef0123456789abcdef0123456789abcdef01234"
		"56789abcdef",
		"sha256=0123456789ABCDEF0123456789abcdef0123456789abcdef01234"
		"56789abcdef",
	};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		refuses(handlers[i], "", ERR_INVALID_REQUEST, "sha256");
		for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
			refuses(handlers[i], bad[k], ERR_INVALID_REQUEST,
				"sha256");
	}
	calls(lbb_graph_file_record, "sha256=" HASH);
	assert_string_equal(asked, "get");
	assert_int_equal(sha256[1], 0x23);
	calls(lbb_graph_file_content, "sha256=" HASH);
	assert_string_equal(asked, "open");
	/* The same again, or nothing happens. */
	refuses(lbb_graph_file_delete, "sha256=" HASH, ERR_INVALID_REQUEST,
		"confirm");
	refuses(lbb_graph_file_delete, "sha256=" HASH "&confirm=yes",
		ERR_INVALID_REQUEST, "confirm");
	calls(lbb_graph_file_delete, "sha256=" HASH "&confirm=" HASH);
	assert_string_equal(asked, "delete");
}

static void lists(void **state)
{
	(void)state;
	calls(lbb_graph_files, "");
	assert_string_equal(name, "100|-");
	assert_string_equal(cursor, "-");
	calls(lbb_graph_files, "limit=1000&after=77&name=a+b");
	assert_string_equal(name, "1000|a b");
	assert_string_equal(cursor, "77");
	refuses(lbb_graph_files, "limit=0", ERR_INVALID_REQUEST, "limit");
	refuses(lbb_graph_files, "limit=1001", ERR_INVALID_REQUEST, "limit");
	refuses(lbb_graph_files, "after=x", ERR_INVALID_REQUEST, "after");
	refuses(lbb_graph_files, "after=", ERR_INVALID_REQUEST, "after");
	refuses(lbb_graph_files, "after=99999999999999999999",
		ERR_INVALID_REQUEST, "after");
}

static void uploads(void **state)
{
	struct request r;
	struct err e = {0};

	(void)state;
	snprintf(header, sizeof(header), "text/csv");
	r = request_of("name=a.csv");
	lbb_upload(&r);
	assert_string_equal(asked, "upload");
	assert_string_equal(name, "a.csv|text/csv");
	assert_int_equal(body_bytes, 5);
	assert_ptr_equal(r.sink, &upload_sink);
	assert_int_equal(r.sink->take(&r, "x", 1, &e), 0);
	is_full = true;
	assert_int_equal(r.sink->take(&r, "x", 1, &e), 1);
	is_full = false;
	r.sink->end(&r);
	assert_string_equal(asked, "end");
	assert_non_null(r.abandon);
	assert_int_equal(n_aborts, 0);
	/* What cannot go on is aborted once, and refused. */
	write_code = ERR_GRAPH_FILE_TOO_LARGE;
	assert_int_equal(r.sink->take(&r, "x", 1, &e), -1);
	assert_int_equal(e.code, ERR_GRAPH_FILE_TOO_LARGE);
	assert_int_equal(n_aborts, 1);
	r.sink->end(&r);
	assert_int_equal(got.code, ERR_GRAPH_FILE_TOO_LARGE);
	assert_int_equal(n_aborts, 2);
	r.sink->cut(&r);
	assert_int_equal(n_aborts, 3);
	query_finish(&r.query);
	write_code = ERR_CAPACITY;
	r = request_of("");
	*header = 0;
	lbb_upload(&r);
	assert_string_equal(name, "-|-");
	assert_null(r.sink);
	assert_int_equal(got.code, ERR_CAPACITY);
	write_code = ERR_NONE;
	query_finish(&r.query);
}

static void keeps(void **state)
{
	uint8_t first[HASH_BYTES];
	struct request r;
	struct err e;

	(void)state;
	calls(lbb_upload, "source_sandbox=sbx_a&source_path=/workspace/o/r.md");
	assert_string_equal(asked, "keep");
	assert_string_equal(sandbox, "sbx_a");
	assert_string_equal(path, "o/r.md");
	assert_string_equal(name, "-");
	assert_string_equal(key, "key");
	memcpy(first, request_hash, HASH_BYTES);
	/* The same file in other words is the same request. */
	calls(lbb_upload, "source_sandbox=sbx_a&source_path=./o//r.md");
	assert_memory_equal(first, request_hash, HASH_BYTES);
	calls(lbb_upload, "source_sandbox=sbx_a&source_path_hex=6f2f722e6d64");
	assert_memory_equal(first, request_hash, HASH_BYTES);
	calls(lbb_upload, "source_sandbox=sbx_a&source_path=o/r.md&name=x");
	assert_memory_not_equal(first, request_hash, HASH_BYTES);
	calls(lbb_upload, "source_sandbox=sbx_b&source_path=o/r.md");
	assert_memory_not_equal(first, request_hash, HASH_BYTES);
	refuses(lbb_upload, "source_path=a", ERR_SANDBOX_NOT_FOUND,
		"source_sandbox");
	refuses(lbb_upload, "source_sandbox=sbx_a", ERR_INVALID_REQUEST,
		"source_path");
	refuses(lbb_upload, "source_sandbox=sbx_a&source_path=..",
		ERR_PATH_INVALID, "source_path");
	refuses(lbb_upload,
		"source_sandbox=sbx_a&source_path=", ERR_PATH_INVALID,
		"source_path");
	refuses(lbb_upload, "source_sandbox=sbx_a&source_path_hex=6",
		ERR_PATH_INVALID, "source_path_hex");
	is_key_missing = true;
	refuses(lbb_upload, "source_sandbox=sbx_a&source_path=a",
		ERR_MISSING_KEY, "Idempotency-Key");
	is_key_missing = false;
	/* It has no body. */
	r = request_of("source_sandbox=sbx_a&source_path=a");
	lbb_upload(&r);
	assert_int_equal(r.sink->take(&r, "x", 1, &e), -1);
	assert_int_equal(e.code, ERR_INVALID_REQUEST);
	r.sink->cut(&r);
	query_finish(&r.query);
}

static void imports(void **state)
{
	struct request r;

	(void)state;
	calls(lbb_file_import, "sandbox=sbx_a&path=d/u&source_sha256=" HASH);
	assert_string_equal(asked, "import");
	assert_string_equal(path, "d/u");
	assert_int_equal(sha256[31], 0xef);
	refuses(lbb_file_import, "sandbox=sbx_a&path=d&source_sha256=x",
		ERR_INVALID_REQUEST, "source_sha256");
	refuses(lbb_file_import, "sandbox=sbx_a&source_sha256=" HASH,
		ERR_INVALID_REQUEST, "path");
	refuses(lbb_file_import, "path=d&source_sha256=" HASH,
		ERR_SANDBOX_NOT_FOUND, "sandbox");
	is_key_missing = true;
	refuses(lbb_file_import, "sandbox=sbx_a&path=d&source_sha256=" HASH,
		ERR_MISSING_KEY, "Idempotency-Key");
	is_key_missing = false;
	r = request_of("sandbox=sbx_a&path=d&source_sha256=" HASH);
	bytes_append(&r.body, "x", 1);
	lbb_file_import(&r);
	assert_int_equal(got.code, ERR_INVALID_REQUEST);
	bytes_finish(&r.body);
	on_imported(&r, NULL, 12);
	assert_string_equal(answer, "{\"object\":\"file\",\"path\":\"d\","
				    "\"size\":12,\"sha256\":\"" HASH "\"}");
	query_finish(&r.query);
}

static void answers(void **state)
{
	struct file_rec f[2] = {{.id = "fil_a",
				 .sha256 = {0xab},
				 .bytes = 10,
				 .uploaded_ms = 1700000000000,
				 .content_type = "a/b",
				 .seq = 7},
				{.id = "fil_b",
				 .content_type = "c/d",
				 .origin_sandbox = "sbx_a",
				 .seq = 5}};
	struct request r = request_of("sha256=" HASH);

	(void)state;
	bytes_append(&f[0].name, "n\"\xff", 3);
	bytes_append(&f[1].origin_path, "o\xff", 2);
	on_kept(&r, NULL, &f[0], true);
	assert_int_equal(status, 201);
	assert_non_null(strstr(answer, "{\"created\":true,\"file\":{\"object\":"
				       "\"graph_file\",\"id\":\"fil_a\","
				       "\"sha256\":\"ab00"));
	assert_non_null(strstr(answer, "\"name\":\"n\\\"\xef\xbf\xbd\""));
	assert_non_null(strstr(answer, "\"document\":\"urn:sha256:ab00"));
	assert_non_null(strstr(answer, "\"uploaded_at\":\"2023-11-14T"));
	assert_null(strstr(answer, "origin"));
	on_kept(&r, NULL, &f[0], false);
	assert_int_equal(status, 200);
	on_list(&r, NULL, f, 2, true);
	assert_non_null(strstr(answer, "\"next\":\"5\"}"));
	assert_non_null(strstr(answer, "\"origin\":{\"sandbox\":\"sbx_a\","
				       "\"path\":\"o\xef\xbf\xbd\","
				       "\"path_hex\":\"6fff\"}"));
	on_list(&r, NULL, f, 2, false);
	assert_null(strstr(answer, "next"));
	on_list(&r, NULL, NULL, 0, false);
	assert_string_equal(answer, "{\"files\":[]}");
	range_rc = 1;
	on_open(&r, NULL, f, 99);
	assert_string_equal(answer, "2+3/10 a/b part");
	range_rc = -1;
	on_open(&r, NULL, f, -1);
	assert_string_equal(asked, "no range");
	on_deleted(&r, NULL, NULL);
	assert_string_equal(answer,
			    "{\"deleted\":true,\"sha256\":\"" HASH "\"}");
	for (int i = 0; i < 2; i++)
		file_rec_finish(&f[i]);
	query_finish(&r.query);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hashes),  cmocka_unit_test(lists),
		cmocka_unit_test(uploads), cmocka_unit_test(keeps),
		cmocka_unit_test(imports), cmocka_unit_test(answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
