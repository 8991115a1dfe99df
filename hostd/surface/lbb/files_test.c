/*
 * Unit tests of the calls on files as the surface takes and answers them: paths
 * in both spellings, ranges, cursors, entries with names of any bytes (LBB-150
 * to LBB-153).
 *
 * files.c is included; the engine's function keeps what it was given.
 */
#include "files.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

static const struct services services;
static struct err got;
static bool is_asked;
static struct file_spec spec;
static struct file_path path;
static uint8_t after[GP_FILE_NAME_BYTES_MAX];
static char answer[4096];

int engine_file(struct engine *e, const struct caller *who,
		const struct file_spec *s, engine_file_fn fn, void *ctx,
		struct filing **ret)
{
	(void)e;
	(void)who;
	(void)fn;
	(void)ctx;
	*ret = NULL;
	is_asked = true;
	spec = *s;
	path = *s->path;
	if (s->after_len)
		memcpy(after, s->after, s->after_len);
	return 0;
}

void engine_file_abandon(struct engine *e, struct filing *f)
{
	(void)e;
	(void)f;
	abort();
}

void lbb_file_import(struct request *r)
{
	(void)r;
	abort();
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
	(void)r;
	(void)param;
	(void)prefix;
	(void)missing;
	*ret = "sbx_a";
	return 0;
}

void reply_json(struct request *r, int status, struct json_out *j)
{
	(void)r;
	assert_int_equal(status, 200);
	snprintf(answer, sizeof(answer), "%.*s", (int)j->buf.len,
		 (char *)j->buf.data);
	json_out_finish(j);
}

void reply_bytes(struct request *r, int status, const char *type,
		 struct bytes *body)
{
	(void)r;
	assert_int_equal(status, 200);
	snprintf(answer, sizeof(answer), "%s %.*s", type, (int)body->len,
		 (char *)body->data);
	bytes_finish(body);
}

/* As in encode.c. */
void lbb_list_begin(struct json_out *j)
{
	json_out_begin(j, NULL, '{');
	json_out_begin(j, "data", '[');
}

void lbb_list_end(struct json_out *j, bool has_more, const char *cursor)
{
	json_out_end(j, ']');
	json_out_str(j, "next_cursor", has_more ? cursor : NULL);
	json_out_end(j, '}');
}

/* One request with this query. */
static struct request *request(const char *query)
{
	static struct request r;
	struct err e;

	query_finish(&r.query);
	memset(&r, 0, sizeof(r));
	r.services = &services;
	got = (struct err){0};
	is_asked = false;
	*answer = 0;
	if (query_parse(&r.query, query, &e))
		fail_msg("%s: %s", query, e.text);
	return &r;
}

static void test_paths(void **state)
{
	static const struct {
		const char *query, *path; /* NULL: refused, by */
		enum err_code code;
		const char *param;
	} t[] = {
		{"path=a/b", "a/b", 0, NULL},
		{"path=%2Fworkspace%2Fa+b", "a b", 0, NULL},
		{"path_hex=612f62", "a/b", 0, NULL},
		{"path_hex=2f776f726b73706163652fFF", "\xff", 0, NULL},
		{"", NULL, ERR_INVALID_REQUEST, "path"},
		{"path=", NULL, ERR_PATH_INVALID, "path"},
		{"path=a&path_hex=61", NULL, ERR_INVALID_REQUEST, "path_hex"},
		{"path_hex=6", NULL, ERR_PATH_INVALID, "path_hex"},
		{"path_hex=6g", NULL, ERR_PATH_INVALID, "path_hex"},
		{"path_hex=610062", NULL, ERR_PATH_INVALID, "path"},
		{"path_hex=2e2e", NULL, ERR_PATH_INVALID, "path"},
		{"path=../a", NULL, ERR_PATH_INVALID, "path"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct request *r = request(t[i].query);

		lbb_file_delete(r);
		assert_int_equal(is_asked, !!t[i].path);
		if (is_asked) {
			assert_string_equal(path.text, t[i].path);
			assert_int_equal(spec.op, GP_FILE_DELETE);
			continue;
		}
		assert_int_equal(got.code, t[i].code);
		assert_string_equal(got.param, t[i].param);
	}
	/* A list is of the workspace when it names nothing. */
	lbb_files(request(""));
	assert_true(is_asked);
	assert_int_equal(path.len, 0);
	assert_int_equal(spec.limit, 1000);
}

static void test_ranges(void **state)
{
	static const char *const bad[] = {
		"path=a&limit=0", "path=a&limit=4194305", "path=a&offset=-1",
		"path=a&offset=9007199250546689"};

	(void)state;
	lbb_file_read(request("path=a"));
	assert_true(spec.is_whole);
	assert_int_equal(spec.limit, GP_FILE_BYTES_MAX);
	lbb_file_read(request("path=a&offset=0"));
	assert_false(spec.is_whole);
	lbb_file_read(request("path=a&offset=9007199250546688&limit=1"));
	assert_true(is_asked);
	assert_int_equal(spec.offset, LBB_FILE_OFFSET_MAX);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		lbb_file_read(request(bad[i]));
		assert_false(is_asked);
		assert_int_equal(got.code, ERR_INVALID_REQUEST);
	}
	lbb_files(request("limit=1001"));
	assert_string_equal(got.param, "limit");
	lbb_files(request("cursor=61ff"));
	assert_true(is_asked);
	assert_int_equal(spec.after_len, 2);
	assert_memory_equal(after, "a\xff", 2);
	lbb_files(request("cursor=6100"));
	assert_string_equal(got.param, "cursor");
	lbb_files(request("cursor=x"));
	assert_string_equal(got.param, "cursor");
}

static void test_answers(void **state)
{
	const struct file_entry e[] = {
		{(const uint8_t *)"n", 1, GP_TYPE_FILE, 7, 1000, 0644},
		{(const uint8_t *)"\xff\"", 2, GP_TYPE_FIFO, 0, 0, 07777},
	};
	const struct file_entry alone = {.type = GP_TYPE_SYMLINK, .mode = 0777};
	struct file_result l = {.entries = e, .n_entries = 2, .has_more = true};
	struct request *r;

	(void)state;
	on_list(request("path=d"), NULL, &l);
	assert_string_equal(
		answer,
		"{\"data\":[{\"object\":\"file\",\"path\":\"d/n\","
		"\"name\":\"n\",\"type\":\"file\",\"size\":7,\"modified_at\":"
		"\"1970-01-01T00:00:01.000Z\",\"mode\":\"0644\"},"
		"{\"object\":\"file\",\"path\":\"d/\xef\xbf\xbd\\\"\","
		"\"path_hex\":\"642fff22\",\"name\":\"\xef\xbf\xbd\\\"\","
		"\"type\":\"fifo\",\"size\":0,\"modified_at\":null,"
		"\"mode\":\"7777\"}],\"next_cursor\":\"ff22\"}");
	l = (struct file_result){.entries = &alone, .n_entries = 1};
	on_list(request("path=d/link"), NULL, &l);
	assert_non_null(strstr(answer, "\"path\":\"d/link\",\"name\":\"link\","
				       "\"type\":\"symlink\""));
	assert_non_null(strstr(answer, "\"next_cursor\":null"));
	on_read(request("path=a"), NULL,
		&(struct file_result){.data = (const uint8_t *)"xyz",
				      .data_len = 3});
	assert_string_equal(answer, "application/octet-stream xyz");
	on_read(request("path=a"), NULL, &(struct file_result){0});
	assert_string_equal(answer, "application/octet-stream ");
	r = request("path=./a");
	r->body = (struct bytes){.data = (uint8_t[]){'h', 'e', 'l', 'l', 'o'},
				 .len = 5};
	lbb_file_write(r);
	assert_int_equal(spec.data_len, 5);
	on_written(r, NULL, &(struct file_result){0});
	assert_string_equal(
		answer, "{\"object\":\"file\",\"path\":\"a\",\"size\":5,"
			"\"sha256\":\"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1"
			"fa7425e73043362938b9824\"}");
	on_deleted(request("path=a"), NULL, &(struct file_result){0});
	assert_string_equal(
		answer,
		"{\"object\":\"file\",\"path\":\"a\",\"deleted\":true}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
