/*
 * Unit tests of templates and of updates as the surface takes and answers them:
 * every field, pages that end with the bases, what is retrieved by what
 * (LBB-64, LBB-103 to LBB-109).
 *
 * templates.c and update.c are included; the engine's functions keep the spec
 * that they were given, or answer with as many records as there are.
 */
#include "templates.c"
/* The same names in both. */
#define fields update_fields
#include "update.c"
#undef fields
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

static struct services services = {.request_key = "key"};
static const struct route route = {HTTP_POST,
				   "/v1/sandboxes/templates",
				   "createTemplate",
				   0,
				   ACCESS_WRITE,
				   0,
				   NULL,
				   NULL};
static char path[] = "/v1/sandboxes/templates", key[] = "k";

/* What came of the last call. */
static struct err got;
static int status;
static char answer[8192];
static struct json_span root;
static struct template_spec spec;
static struct update_spec update;
static char kept[4][80];
static struct seed seeds[ENGINE_FILES_AT_START_MAX];
static bool is_asked, is_name_only;
/* How many saved ones there are: ids sbt_N ... sbt_1. */
static size_t n_saved;
static const char *missing_images;

static void keep(char *dst, const void *p, size_t len)
{
	snprintf(dst, sizeof(kept[0]), "%.*s", p ? (int)len : 6,
		 p ? (const char *)p : "(null)");
}

int engine_template_save(struct engine *e, const struct caller *who,
			 const struct template_spec *s, engine_template_fn fn,
			 void *ctx)
{
	const struct template_rec r = {.id = "sbt_1", .version = 1};

	(void)e;
	(void)who;
	is_asked = true;
	spec = *s;
	keep(kept[0], s->name, strlen(s->name));
	keep(kept[1], s->base, strlen(s->base));
	keep(kept[2], s->code, s->code_len);
	keep(kept[3], s->config, s->config_len);
	assert_true(s->n_seeds <= N_OF(seeds));
	if (s->n_seeds)
		memcpy(seeds, s->seeds, s->n_seeds * sizeof(*seeds));
	fn(ctx, NULL, &r);
	return 0;
}

int engine_template_get(struct engine *e, const struct caller *who,
			const char *which_one, bool is_name,
			engine_template_fn fn, void *ctx)
{
	const struct template_rec r = {.id = "sbt_1", .version = 1};
	struct err none;

	(void)e;
	(void)who;
	is_asked = true;
	is_name_only = is_name;
	keep(kept[0], which_one, strlen(which_one));
	err_set(&none, ERR_TEMPLATE_NOT_FOUND, "template", NULL);
	fn(ctx, n_saved ? NULL : &none, n_saved ? &r : NULL);
	return 0;
}

int engine_template_list(struct engine *e, const struct caller *who,
			 const struct store_page *p, engine_templates_fn fn,
			 void *ctx)
{
	struct template_rec r[8] = {0};
	size_t first = n_saved, n = 0;

	(void)e;
	(void)who;
	is_asked = true;
	keep(kept[0], p->name, p->name ? strlen(p->name) : 0);
	if (p->cursor)
		first = (size_t)strtoul(p->cursor + 4, NULL, 10) - 1;
	for (; n < p->limit && first > n; n++) {
		snprintf(r[n].id, sizeof(r[n].id), "sbt_%zu", first - n);
		snprintf(r[n].name, sizeof(r[n].name), "t%zu", first - n);
	}
	fn(ctx, NULL, r, n, first > n);
	return 0;
}

int engine_sandbox_update(struct engine *e, const struct caller *who,
			  const struct update_spec *s, engine_sandbox_fn fn,
			  void *ctx)
{
	const struct sandbox_rec r = {.id = "sbx_a", .status = SBX_RUNNING};

	(void)e;
	(void)who;
	is_asked = true;
	update = *s;
	keep(kept[0], s->name, s->name ? strlen(s->name) : 0);
	keep(kept[1], s->labels, s->labels ? strlen(s->labels) : 0);
	keep(kept[2], s->sandbox, strlen(s->sandbox));
	fn(ctx, NULL, &r);
	return 0;
}

int template_hashes(struct link *link, const char *name,
		    uint8_t image[HASH_BYTES], uint8_t kernel[HASH_BYTES])
{
	(void)link;
	memset(image, 1, HASH_BYTES);
	memset(kernel, 2, HASH_BYTES);
	return missing_images && !strcmp(missing_images, name) ? -ENOENT : 0;
}

void engine_cancel_wait(struct engine *e, struct waiter *w)
{
	(void)e;
	(void)w;
	abort();
}

void request_drop(struct request *r)
{
	(void)r;
	abort();
}

void reply_err(struct request *r, const struct err *e)
{
	(void)r;
	got = *e;
	status = err_info(e->code)->http_status;
}

void reply_json(struct request *r, int s, struct json_out *j)
{
	struct err e;

	(void)r;
	status = s;
	assert_int_equal(j->rc, 0);
	assert_true(j->buf.len < sizeof(answer));
	memcpy(answer, j->buf.data, j->buf.len);
	assert_int_equal(json_check(answer, j->buf.len, 8, &root, &e), 0);
	json_out_finish(j);
}

/* As in reply.c, without a server. */
int request_object(struct request *r, struct json_span *ret)
{
	return json_check(r->body.data, r->body.len, JSON_DEPTH_MAX, ret, &got)
		       ? -1
		       : 0;
}

int engine_sandbox_get(struct engine *e, const struct caller *who,
		       const char *id, engine_sandbox_fn fn, void *ctx)
{
	(void)e;
	(void)who;
	(void)id;
	(void)fn;
	(void)ctx;
	abort();
}

int engine_sandbox_delete(struct engine *e, const struct caller *who,
			  const char *id, engine_sandbox_fn fn, void *ctx)
{
	return engine_sandbox_get(e, who, id, fn, ctx);
}

int engine_sandbox_stop(struct engine *e, const struct caller *who,
			const char *id, engine_sandbox_fn fn, void *ctx)
{
	return engine_sandbox_get(e, who, id, fn, ctx);
}

int engine_sandbox_resume(struct engine *e, const struct caller *who,
			  const char *id, engine_sandbox_fn fn, void *ctx)
{
	return engine_sandbox_get(e, who, id, fn, ctx);
}

int engine_sandbox_list(struct engine *e, const struct caller *who,
			const struct store_page *p, engine_sandboxes_fn fn,
			void *ctx)
{
	(void)e;
	(void)who;
	(void)p;
	(void)fn;
	(void)ctx;
	abort();
}

/* ---- calls ------------------------------------------------------------ */

static void ask(void (*handler)(struct request *r), const char *query,
		const char *body)
{
	struct request r = {
		.services = &services,
		.route = &route,
		.method = HTTP_POST,
		.path = path,
		.idempotency_key = key,
		.graph = "main",
		.environment = "env_a",
	};
	struct err e;

	memset(&got, 0, sizeof(got));
	status = 0;
	is_asked = false;
	assert_int_equal(query_parse(&r.query, query, &e), 0);
	if (body)
		bytes_append(&r.body, body, strlen(body));
	handler(&r);
	query_finish(&r.query);
	bytes_finish(&r.body);
	assert_true(status > 0);
	assert_null(r.op);
}

static void refuses(void (*handler)(struct request *r), const char *query,
		    const char *body, enum err_code code, const char *param)
{
	ask(handler, query, body);
	if (is_asked || got.code != code || strcmp(got.param, param))
		fail_msg("%s %s\n%d, code %d param \"%s\": %s", query, body,
			 is_asked, got.code, got.param, got.text);
}

static void is(const char *at, const char *want)
{
	struct json_span v;

	assert_true(json_at(root, at, &v));
	if (v.len != strlen(want) || memcmp(v.at, want, v.len))
		fail_msg("%s is %.*s, wanted %s", at, (int)v.len, v.at, want);
}

/* ---- save ------------------------------------------------------------- */

#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void saves(void **state)
{
	uint8_t hash[HASH_BYTES];

	(void)state;
	ask(lbb_template_save, "graph=main",
	    "{\"name\":\"normalize\",\"base\":\"lbb/python\"}");
	assert_int_equal(status, 201);
	assert_string_equal(kept[0], "normalize");
	assert_string_equal(kept[1], "lbb/python");
	assert_string_equal(kept[2], "(null)");
	assert_string_equal(kept[3], "(null)");
	assert_int_equal(spec.limits.vcpus, 0);
	assert_int_equal(spec.timeout_ms, 0);
	is("object", "\"template\"");
	is("id", "\"sbt_1\"");
	memcpy(hash, spec.request_hash, HASH_BYTES);
	ask(lbb_template_save, NULL,
	    "{\"base\":\"lbb/python\",\"name\":\"normalize\",\"config\":"
	    "{ \"unit\" : 1.00 },\"code\":\"def\\u0020\",\"timeout_ms\":"
	    "3600000,\"limits\":{\"memory_mib\":2048}}");
	assert_string_equal(kept[2], "def ");
	assert_string_equal(kept[3], "{ \"unit\" : 1.00 }");
	assert_int_equal(spec.limits.memory_mib, 2048);
	assert_int_equal(spec.timeout_ms, 3600000);
	assert_memory_not_equal(hash, spec.request_hash, HASH_BYTES);
	assert_int_equal(spec.n_seeds, 0);
	ask(lbb_template_save, NULL,
	    "{\"base\":\"lbb/python\",\"name\":\"normalize\",\"files\":[{"
	    "\"path\":\"/workspace/in//a\",\"sha256\":\"" SHA "\"},"
	    "{\"id\":\"fil_a1\",\"path\":\"caf\\u00e9\"}]}");
	assert_int_equal(spec.n_seeds, 2);
	assert_string_equal(seeds[0].path.text, "in/a");
	assert_int_equal(seeds[0].file.sha256[31], 0xef);
	assert_string_equal(seeds[0].file.id, "");
	assert_string_equal(seeds[1].path.text, "caf\xc3\xa9");
	assert_string_equal(seeds[1].file.id, "fil_a1");
	assert_memory_not_equal(hash, spec.request_hash, HASH_BYTES);
	/* The order of members makes no other request. */
	ask(lbb_template_save, NULL,
	    "{\"base\":\"lbb/python\",\"name\":\"normalize\"}");
	assert_memory_equal(hash, spec.request_hash, HASH_BYTES);
}

#define SAVE "{\"name\":\"a\",\"base\":\"lbb/node\","

static void refuses_saves(void **state)
{
	static const struct {
		const char *body, *param;
		enum err_code code;
	} bad[] = {
		{"{\"base\":\"lbb/node\"}", "name", ERR_INVALID_REQUEST},
		{"{\"name\":7,\"base\":\"lbb/node\"}", "name",
		 ERR_INVALID_REQUEST},
		{"{\"name\":\"a\"}", "base", ERR_INVALID_REQUEST},
		{"{\"name\":\"a\",\"base\":\"\"}", "base",
		 ERR_TEMPLATE_NOT_FOUND},
		{SAVE "\"code\":\"\"}", "code", ERR_INVALID_REQUEST},
		{SAVE "\"code\":null}", "code", ERR_INVALID_REQUEST},
		{SAVE "\"timeout_ms\":0}", "timeout_ms", ERR_TIMEOUT_INVALID},
		{SAVE "\"timeout_ms\":3600001}", "timeout_ms",
		 ERR_TIMEOUT_INVALID},
		{SAVE "\"timeout_ms\":1.5}", "timeout_ms", ERR_TIMEOUT_INVALID},
		{SAVE "\"limits\":{\"vcpus\":5}}", "limits.vcpus",
		 ERR_LIMITS_INVALID},
		{SAVE "\"limits\":{\"memory_mib\":127}}", "limits.memory_mib",
		 ERR_LIMITS_INVALID},
		{SAVE "\"limits\":{\"cpus\":1}}", "limits.cpus",
		 ERR_INVALID_REQUEST},
		{SAVE "\"files\":{}}", "files", ERR_INVALID_REQUEST},
		{SAVE "\"files\":[7]}", "files[0]", ERR_INVALID_REQUEST},
		{SAVE "\"files\":[{\"path\":\"a\"}]}", "files[0]",
		 ERR_INVALID_REQUEST},
		{SAVE "\"files\":[{\"path\":\"a\",\"id\":\"sbx_1\"}]}",
		 "files[0].id", ERR_INVALID_REQUEST},
		{SAVE "\"files\":[{\"path\":\"a\",\"sha256\":\"AB\"}]}",
		 "files[0].sha256", ERR_INVALID_REQUEST},
		{SAVE "\"files\":[{\"path\":\"../a\",\"id\":\"fil_1\"}]}",
		 "files[0].path", ERR_PATH_INVALID},
		{SAVE "\"files\":[{\"path\":\".\",\"id\":\"fil_1\"}]}",
		 "files[0].path", ERR_PATH_INVALID},
		{SAVE "\"files\":[{\"path\":\"a\",\"id\":\"fil_1\"},"
		      "{\"path\":\"./a\",\"id\":\"fil_2\"}]}",
		 "files[1]", ERR_INVALID_REQUEST},
		{SAVE "\"env\":{}}", "env", ERR_INVALID_REQUEST},
		{SAVE "\"version\":2}", "version", ERR_INVALID_REQUEST},
	};

	(void)state;
	for (size_t i = 0; i < N_OF(bad); i++)
		refuses(lbb_template_save, NULL, bad[i].body, bad[i].code,
			bad[i].param);
}

/* ---- retrieve, list --------------------------------------------------- */

static void retrieves(void **state)
{
	(void)state;
	n_saved = 1;
	ask(lbb_templates, "template=sbt_1", NULL);
	assert_string_equal(kept[0], "sbt_1");
	assert_false(is_name_only);
	ask(lbb_templates, "name=sum&versions=false", NULL);
	assert_string_equal(kept[0], "sum");
	assert_true(is_name_only);
	is("version", "1");
	ask(lbb_template_get, "template=sum", NULL);
	assert_int_equal(status, 200);
	ask(lbb_templates, "template=lbb/node", NULL);
	assert_false(is_asked);
	is("is_base", "true");
	is("name", "\"lbb/node\"");
	ask(lbb_templates, "name=lbb/shell&versions=true", NULL);
	is("name", "\"lbb/shell\"");
	n_saved = 0;
	ask(lbb_templates, "name=sum", NULL);
	assert_int_equal(got.code, ERR_TEMPLATE_NOT_FOUND);
	assert_string_equal(got.param, "name");
	ask(lbb_template_get, "template=sum", NULL);
	assert_string_equal(got.param, "template");
	refuses(lbb_templates, "name=a&template=b", NULL, ERR_INVALID_REQUEST,
		"template");
	refuses(lbb_template_get, "", NULL, ERR_INVALID_REQUEST, "template");
	refuses(lbb_templates, "versions=true", NULL, ERR_INVALID_REQUEST,
		"versions");
	refuses(lbb_templates, "name=a&versions=1", NULL, ERR_INVALID_REQUEST,
		"versions");
	refuses(lbb_templates, "name=a&limit=0", NULL, ERR_INVALID_REQUEST,
		"limit");
	missing_images = "lbb/node";
	ask(lbb_templates, "template=lbb/node", NULL);
	assert_int_equal(got.code, ERR_UNAVAILABLE);
	missing_images = NULL;
}

/* All items by pages of `limit`: their names, with a space behind each; the
 * number of pages. */
static int walk(unsigned limit, char *names, size_t cap)
{
	char query[128], cursor[64] = "";
	struct json_span data, v;
	struct json_member m;
	struct json_iter it;
	int n_pages = 0;

	*names = 0;
	do {
		unsigned n = 0;

		snprintf(query, sizeof(query), "limit=%u%s%s", limit,
			 *cursor ? "&cursor=" : "", cursor);
		ask(lbb_templates, query, NULL);
		assert_int_equal(status, 200);
		assert_true(json_at(root, "data", &data));
		json_iter_begin(&it, data);
		while (json_iter_next(&it, &m)) {
			assert_true(json_at(m.value, "name", &v));
			snprintf(names + strlen(names), cap - strlen(names),
				 "%.*s ", (int)v.len - 2, v.at + 1);
			n++;
		}
		assert_true(n <= limit);
		assert_true(++n_pages < 20);
		assert_true(json_at(root, "next_cursor", &v));
		snprintf(cursor, sizeof(cursor), "%.*s", (int)v.len - 2,
			 v.at + 1);
		assert_true(json_at(root, "has_more", &data));
		assert_int_equal(data.at[0] == 't', v.at[0] == '"');
	} while (root.at && data.at[0] == 't');
	return n_pages;
}

static void pages(void **state)
{
	static const char *const want[] = {
		"lbb/python lbb/node lbb/shell ",
		"t1 lbb/python lbb/node lbb/shell ",
		"t2 t1 lbb/python lbb/node lbb/shell ",
		"t3 t2 t1 lbb/python lbb/node lbb/shell ",
	};
	char names[256];

	(void)state;
	for (n_saved = 0; n_saved < 4; n_saved++)
		for (unsigned limit = 1; limit < 8; limit++) {
			size_t all = n_saved + 3;
			int n = walk(limit, names, sizeof(names));

			assert_string_equal(names, want[n_saved]);
			/* The saved ones may end a page by themselves. */
			assert_in_range(n, (all + limit - 1) / limit,
					(all + limit - 1) / limit + 1);
		}
	n_saved = 3;
	ask(lbb_templates, "name=t&versions=true&limit=2", NULL);
	assert_string_equal(kept[0], "t");
	is("has_more", "true");
	is("next_cursor", "\"sbt_2\"");
	ask(lbb_templates, "name=t&versions=true&limit=2&cursor=sbt_2", NULL);
	is("has_more", "false");
	n_saved = 0;
	ask(lbb_templates, "name=t&versions=true", NULL);
	assert_int_equal(got.code, ERR_TEMPLATE_NOT_FOUND);
	assert_string_equal(got.param, "name");
	refuses(lbb_templates, "limit=101", NULL, ERR_INVALID_REQUEST, "limit");
}

/* ---- update ----------------------------------------------------------- */

static void updates(void **state)
{
	(void)state;
	ask(lbb_sandbox_update, "sandbox=sbx_a", "{}");
	assert_int_equal(status, 200);
	assert_false(update.has_name || update.has_labels);
	assert_int_equal(update.idle_seconds, 0);
	assert_string_equal(kept[2], "sbx_a");
	ask(lbb_sandbox_update, "sandbox=sbx_a",
	    "{\"name\":\"x\",\"labels\":{\"a\":\"b\"},\"idle_seconds\":30,"
	    "\"expires_in_seconds\":604800}");
	assert_true(update.has_name && update.has_labels);
	assert_string_equal(kept[0], "x");
	assert_string_equal(kept[1], "{\"a\":\"b\"}");
	assert_int_equal(update.idle_seconds, 30);
	assert_int_equal(update.expires_in_seconds, 604800);
	ask(lbb_sandbox_update, "sandbox=sbx_a",
	    "{\"name\":null,\"labels\":null}");
	assert_true(update.has_name && update.has_labels);
	assert_null(update.name);
	assert_null(update.labels);
	ask(lbb_sandbox_update, "sandbox=sbx_a", "{\"labels\":{}}");
	assert_true(update.has_labels);
	assert_null(update.labels);
	is("id", "\"sbx_a\"");
}

static void refuses_updates(void **state)
{
	static const struct {
		const char *body, *param;
		enum err_code code;
	} bad[] = {
		{"{\"name\":\"\"}", "name", ERR_INVALID_REQUEST},
		{"{\"labels\":[]}", "labels", ERR_INVALID_REQUEST},
		{"{\"idle_seconds\":29}", "idle_seconds", ERR_INVALID_REQUEST},
		{"{\"idle_seconds\":null}", "idle_seconds",
		 ERR_INVALID_REQUEST},
		{"{\"expires_in_seconds\":59}", "expires_in_seconds",
		 ERR_INVALID_REQUEST},
		{"{\"expires_in_seconds\":604801}", "expires_in_seconds",
		 ERR_INVALID_REQUEST},
		{"{\"limits\":{\"vcpus\":2}}", "limits", ERR_LIMITS_INVALID},
		{"{\"status\":\"stopped\"}", "status", ERR_INVALID_REQUEST},
		{"{\"template\":\"lbb/node\"}", "template",
		 ERR_INVALID_REQUEST},
		{"{\"wait_ms\":1}", "wait_ms", ERR_INVALID_REQUEST},
	};

	(void)state;
	for (size_t i = 0; i < N_OF(bad); i++)
		refuses(lbb_sandbox_update, "sandbox=sbx_a", bad[i].body,
			bad[i].code, bad[i].param);
	refuses(lbb_sandbox_update, "", "{}", ERR_INVALID_REQUEST, "sandbox");
	refuses(lbb_sandbox_update, "sandbox=cmd_a", "{}",
		ERR_SANDBOX_NOT_FOUND, "sandbox");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(saves),     cmocka_unit_test(refuses_saves),
		cmocka_unit_test(retrieves), cmocka_unit_test(pages),
		cmocka_unit_test(updates),   cmocka_unit_test(refuses_updates),
	};

	return cmocka_run_group_tests_name("templates", tests, NULL, NULL);
}
