/* Table `file`: the same bytes, graphs, keys, pages, what cannot be read. */
#include "store_test_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct fixture f;

static int setup(void **state)
{
	(void)state;
	fixture_init(&f);
	fixture_open(&f);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fixture_finish(&f);
	return 0;
}

struct got {
	struct answer a;   /* first */
	struct file_rec r; /* owned */
	bool is_new, is_last;
	char names[256]; /* of a list, "name " each */
	uint64_t seq;	 /* of the last */
	size_t n;
};

static void on_put(void *ctx, int rc, const struct store_found *found,
		   bool is_new, struct file_rec *r)
{
	struct got *g = ctx;

	assert_true(!r == (rc || found->is_found));
	g->a.found = *found;
	g->is_new = is_new;
	if (r)
		assert_int_equal(file_rec_copy(&g->r, r), 0);
	on_rc(&g->a, rc);
}

static void on_file(void *ctx, int rc, struct file_rec *r)
{
	struct got *g = ctx;

	assert_true(!rc == !!r);
	if (r)
		assert_int_equal(file_rec_copy(&g->r, r), 0);
	on_rc(&g->a, rc);
}

static void on_gone(void *ctx, int rc, bool is_last)
{
	struct got *g = ctx;

	g->is_last = is_last;
	on_rc(&g->a, rc);
}

static void on_list(void *ctx, int rc, struct file_rec *r, size_t n,
		    bool has_more)
{
	struct got *g = ctx;

	g->a.has_more = has_more;
	g->n = n;
	for (size_t i = 0; r && i < n; i++) {
		size_t at = strlen(g->names);

		snprintf(g->names + at, sizeof(g->names) - at, "%.*s ",
			 (int)r[i].name.len, (char *)r[i].name.data);
		g->seq = r[i].seq;
	}
	on_rc(&g->a, rc);
}

static struct got wait_for(struct got *g)
{
	answer_wait(&g->a, 1);
	return *g;
}

static struct got begin(void)
{
	struct got g = {0};

	answer_init(&g.a, &f);
	return g;
}

/* id, graph, hash, name, type, origin: "" = not given. */
static struct got put_key(const char *key, const char *id, const char *graph,
			  uint8_t hash, const char *name, const char *type,
			  const char *origin)
{
	struct store_begin b = {"env_a", graph, "keep", key, {7}};
	struct file_rec r = {.environment = "env_a",
			     .sha256 = {hash},
			     .bytes = 5,
			     .uploaded_ms = 1700000000000};
	struct got g = begin();

	snprintf(r.id, sizeof(r.id), "%s", id);
	snprintf(r.graph, sizeof(r.graph), "%s", graph);
	snprintf(r.content_type, sizeof(r.content_type), "%s", type);
	snprintf(r.origin_sandbox, sizeof(r.origin_sandbox), "%s", origin);
	bytes_append(&r.name, name, strlen(name));
	if (*origin)
		bytes_append(&r.origin_path, "o\xff", 2);
	assert_int_equal(
		store_file_put(f.store, key ? &b : NULL, &r, on_put, &g), 0);
	file_rec_finish(&r);
	return wait_for(&g);
}

static struct got put(const char *id, const char *graph, uint8_t hash,
		      const char *name)
{
	struct got g = put_key(NULL, id, graph, hash, name, "", "");

	assert_int_equal(g.a.rc, 0);
	file_rec_finish(&g.r);
	return g;
}

static struct got get(const char *graph, const char *id, uint8_t hash)
{
	struct file_ref ref = {.sha256 = {hash}};
	struct got g = begin();

	snprintf(ref.id, sizeof(ref.id), "%s", id);
	assert_int_equal(
		store_file_get(f.store, "env_a", graph, &ref, on_file, &g), 0);
	return wait_for(&g);
}

static int get_rc(const char *graph, const char *id, uint8_t hash)
{
	struct got g = get(graph, id, hash);

	file_rec_finish(&g.r);
	return g.a.rc;
}

static struct got delete (const char *graph, uint8_t hash)
{
	const uint8_t sha256[HASH_BYTES] = {hash};
	struct got g = begin();

	assert_int_equal(
		store_file_delete(f.store, "env_a", graph, sha256, on_gone, &g),
		0);
	return wait_for(&g);
}

static bool is_unused(uint8_t hash)
{
	const uint8_t sha256[HASH_BYTES] = {hash};
	struct got g = begin();

	assert_int_equal(store_file_unused(f.store, sha256, on_gone, &g), 0);
	g = wait_for(&g);
	assert_int_equal(g.a.rc, 0);
	return g.is_last;
}

static void is_text(const struct bytes *b, const char *text)
{
	assert_int_equal(b->len, strlen(text));
	assert_memory_equal(b->data, text, b->len);
}

/* The same bytes are one File; what is given of it is taken over. */
static void same_bytes(void **state)
{
	struct got g = put_key(NULL, "fil_1", "main", 1, "a", "text/a", "");

	(void)state;
	assert_true(g.is_new);
	assert_int_equal(g.r.seq, 1);
	file_rec_finish(&g.r);
	g = put_key(NULL, "fil_2", "main", 1, "", "", "");
	assert_false(g.is_new);
	assert_string_equal(g.r.id, "fil_1");
	assert_string_equal(g.r.content_type, "text/a");
	is_text(&g.r.name, "a");
	file_rec_finish(&g.r);
	g = put_key(NULL, "fil_3", "main", 1, "b", "text/b", "sbx_a");
	assert_false(g.is_new);
	is_text(&g.r.name, "b");
	is_text(&g.r.origin_path, "o\xff");
	file_rec_finish(&g.r);
	/* An origin stays when it is uploaded, too. */
	put("fil_4", "main", 1, "c");
	fixture_close(&f);
	fixture_open(&f);
	g = get("main", "", 1);
	assert_int_equal(g.a.rc, 0);
	assert_string_equal(g.r.id, "fil_1");
	assert_string_equal(g.r.origin_sandbox, "sbx_a");
	assert_string_equal(g.r.content_type, "text/b");
	is_text(&g.r.name, "c");
	assert_int_equal(g.r.seq, 1);
	file_rec_finish(&g.r);
	assert_int_equal(get_rc("main", "fil_1", 9), 0);
	assert_int_equal(get_rc("main", "fil_2", 1), -ENOENT);
	/* Without a name and a type: its hash, bytes. */
	g = put_key(NULL, "fil_5", "main", 2, "", "", "");
	assert_int_equal(g.r.name.len, 64);
	assert_memory_equal(g.r.name.data, "0200", 4);
	assert_string_equal(g.r.content_type, "application/octet-stream");
	file_rec_finish(&g.r);
}

/* Bytes are of all graphs that have a row; each sees its own. */
static void graphs(void **state)
{
	(void)state;
	put("fil_1", "main", 1, "a");
	put("fil_2", "other", 1, "b");
	assert_int_equal(get_rc("main", "fil_2", 0), -ENOENT);
	assert_int_equal(get_rc("third", "", 1), -ENOENT);
	assert_int_equal(delete ("third", 1).a.rc, -ENOENT);
	assert_false(is_unused(1));
	assert_false(delete ("main", 1).is_last);
	assert_int_equal(delete ("main", 1).a.rc, -ENOENT);
	assert_int_equal(get_rc("other", "", 1), 0);
	assert_true(delete ("other", 1).is_last);
	assert_true(is_unused(1));
	/* Anew: another File. */
	assert_true(put("fil_3", "main", 1, "a").is_new);
}

static void keys(void **state)
{
	struct got g = put_key("k", "fil_1", "main", 1, "a", "", "sbx_a");

	(void)state;
	assert_false(g.a.found.is_found);
	file_rec_finish(&g.r);
	/* The same key: the first, and nothing new. */
	g = put_key("k", "fil_2", "main", 2, "b", "", "sbx_b");
	assert_true(g.a.found.is_found && g.a.found.is_same_request);
	assert_string_equal(g.a.found.command, "fil_1");
	assert_int_equal(get_rc("main", "", 2), -ENOENT);
	/* Of bytes that are there: the key names the File that has them. */
	g = put_key("k2", "fil_3", "main", 1, "a", "", "sbx_a");
	assert_false(g.is_new);
	file_rec_finish(&g.r);
	g = put_key("k2", "fil_4", "main", 3, "a", "", "sbx_a");
	assert_string_equal(g.a.found.command, "fil_1");
}

static void keys_alone(void **state)
{
	struct store_begin b = {"env_a", "main", "import", "k", {7}};
	struct answer a;

	(void)state;
	for (int i = 0; i < 2; i++) {
		answer_init(&a, &f);
		assert_int_equal(store_key_put(f.store, &b, "sbx_a",
					       i ? "99" : "1234", on_found, &a),
				 0);
		answer_wait(&a, 1);
		assert_int_equal(a.rc, 0);
		assert_int_equal(a.found.is_found, i);
	}
	assert_string_equal(a.found.command, "1234");
	assert_string_equal(a.found.sandbox, "sbx_a");
	assert_true(a.found.is_same_request);
	answer_init(&a, &f);
	b.request_hash[0] = 8;
	assert_int_equal(store_key_put(f.store, &b, "sbx_a", "1", on_found, &a),
			 0);
	answer_wait(&a, 1);
	assert_true(a.found.is_found && !a.found.is_same_request);
	assert_int_equal(
		store_key_put(f.store, &b, "sbx_a",
			      "0123456789012345678901234567890123456789",
			      on_found, &a),
		-EINVAL);
}

static struct got list(const char *graph, const char *cursor, const char *name,
		       unsigned limit)
{
	const struct store_page p = {.environment = "env_a",
				     .graph = graph,
				     .cursor = cursor,
				     .name = name,
				     .limit = limit};
	struct got g = begin();

	assert_int_equal(store_file_list(f.store, &p, on_list, &g), 0);
	g = wait_for(&g);
	assert_int_equal(g.a.rc, 0);
	return g;
}

static void pages(void **state)
{
	struct got g;

	(void)state;
	for (uint8_t i = 1; i <= 5; i++) {
		char id[16], name[16];

		snprintf(id, sizeof(id), "fil_%d", i);
		snprintf(name, sizeof(name), "n%d", i % 3);
		put(id, i == 3 ? "other" : "main", i, name);
	}
	g = list("main", NULL, NULL, 2);
	assert_string_equal(g.names, "n2 n1 ");
	assert_true(g.a.has_more);
	assert_int_equal(g.seq, 4);
	/* The cursor's row may be gone. */
	assert_int_equal(delete ("main", 4).a.rc, 0);
	g = list("main", "4", NULL, 2);
	assert_string_equal(g.names, "n2 n1 ");
	assert_false(g.a.has_more);
	g = list("main", NULL, "n1", 9);
	assert_string_equal(g.names, "n1 ");
	assert_int_equal(list("main", NULL, "n", 9).n, 0);
	assert_int_equal(list("none", NULL, NULL, 9).n, 0);
}

static void on_all(void *ctx, int rc, struct file_rec *r, size_t n,
		   bool has_more)
{
	on_list(ctx, rc, r, n, has_more);
}

static void found_together(void **state)
{
	struct file_ref refs[3] = {
		{.sha256 = {2}}, {.id = "fil_1"}, {.sha256 = {2}}};
	struct got g = begin();

	(void)state;
	put("fil_1", "main", 1, "a");
	put("fil_2", "main", 2, "b");
	assert_int_equal(
		store_file_find(f.store, "env_a", "main", refs, 3, on_all, &g),
		0);
	g = wait_for(&g);
	assert_string_equal(g.names, "b a b ");
	refs[1].id[4] = '9';
	g = begin();
	assert_int_equal(
		store_file_find(f.store, "env_a", "main", refs, 3, on_all, &g),
		0);
	answer_wait(&g.a, 1);
	assert_int_equal(g.a.rc, -ENOENT);
	assert_int_equal(g.n, 1); /* the place of the one that is not there */
}

static int on_hash(void *ctx, const uint8_t sha256[HASH_BYTES])
{
	struct got *g = ctx;

	if (g->n == 9)
		return -ENOMEM;
	g->names[g->n++] = (char)('0' + sha256[0]);
	return 0;
}

static void hashes(void **state)
{
	struct got g = {0};

	(void)state;
	put("fil_1", "main", 3, "a");
	put("fil_2", "main", 1, "b");
	put("fil_3", "other", 3, "c");
	assert_int_equal(store_file_hashes(f.store, on_hash, &g), 0);
	assert_string_equal(g.names, "13");
	g.n = 9;
	assert_int_equal(store_file_hashes(f.store, on_hash, &g), -ENOMEM);
}

/* What cannot be read is left out, may be deleted, and is mended by the same
 * bytes. */
static void damaged(void **state)
{
	struct got g;

	(void)state;
	put("fil_1", "main", 1, "a");
	put("fil_2", "main", 2, "b");
	put("fil_3", "main", 3, "c");
	fixture_close(&f);
	raw_exec(&f, "UPDATE file SET rec = x'a0' WHERE id <> 'fil_3'");
	fixture_open(&f);
	assert_int_equal(get_rc("main", "", 1), -EBADMSG);
	assert_string_equal(list("main", NULL, NULL, 9).names, "c ");
	assert_true(delete ("main", 1).is_last);
	g = put_key(NULL, "fil_9", "main", 2, "new", "", "");
	assert_false(g.is_new);
	assert_string_equal(g.r.id, "fil_2");
	file_rec_finish(&g.r);
	assert_string_equal(list("main", NULL, NULL, 9).names, "c new ");
}

/* Of schema 2, which had the table and no File. */
static void from_schema_2(void **state)
{
	(void)state;
	fixture_finish(&f);
	fixture_init(&f);
	saved_schema_load(&f, "hostd/store/fixtures/schema2.sql");
	put("fil_1", "main", 1, "a");
	assert_int_equal(get_rc("main", "fil_1", 0), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(same_bytes), TEST(graphs),	 TEST(keys),
		TEST(keys_alone), TEST(pages),	 TEST(found_together),
		TEST(hashes),	  TEST(damaged), TEST(from_schema_2),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
