/*
 * The record of a template as bytes: with Files it is of version 2, and without
 * any as the program wrote it that knew of none.
 */
#include "record.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* `n` files with paths of `len` bytes. */
static struct template_rec template_with(size_t n, size_t len)
{
	struct template_rec t = {.id = "sbt_a", .version = 1, .files.n = n};
	char path[FILE_PATH_BYTES_MAX + 1];

	memset(path, 'p', sizeof(path));
	t.files.at = calloc(n + 1, sizeof(*t.files.at));
	assert_non_null(t.files.at);
	for (size_t i = 0; i < n; i++) {
		struct template_file *f = &t.files.at[i];

		path[0] = (char)i;
		snprintf(f->id, sizeof(f->id), "fil_%zu", i);
		f->sha256[0] = (uint8_t)i;
		f->bytes = UINT64_MAX - i;
		assert_int_equal(bytes_append(&f->path, path, len), 0);
	}
	return t;
}

/* `b` ends with its only File: each way to make that worse. */
static void files_are_checked(struct bytes *b)
{
	const uint8_t last = b->data[b->len - 1];
	struct template_rec t;
	uint8_t *at;

	/* An array in the place of the map of a File; another version of it;
	 * one more and one less than there are. */
	at = memmem(b->data, b->len, "\x12\x81\xa5\x00\x01", 5);
	assert_non_null(at);
	for (int i = 1; i < 5; i++) {
		at[i] ^= 3;
		assert_int_equal(template_rec_decode(&t, b->data, b->len),
				 -EBADMSG);
		at[i] ^= 3;
	}
	for (size_t n = 0; n < b->len; n++)
		assert_int_equal(template_rec_decode(&t, b->data, n), -EBADMSG);
	assert_int_equal(bytes_append(b, &last, 1), 0);
	assert_int_equal(template_rec_decode(&t, b->data, b->len), -EBADMSG);
	b->len--;
}

static void templates_have_files_or_are_as_before(void **state)
{
	_cleanup_bytes_ struct bytes b = {0};
	struct template_rec t = template_with(0, 1), got, copy;

	(void)state;
	assert_int_equal(template_rec_encode(&t, &b), 0);
	assert_non_null(memmem(b.data, 4, "\x00\x01", 2));
	assert_int_equal(template_rec_decode(&got, b.data, b.len), 0);
	assert_int_equal(got.files.n, 0);
	template_rec_finish(&t);
	b.len = 0;
	/* As many and as long as there may be, any bytes in a path. */
	t = template_with(TEMPLATE_FILES_MAX, FILE_PATH_BYTES_MAX);
	assert_int_equal(template_rec_encode(&t, &b), 0);
	assert_int_equal(template_rec_decode(&got, b.data, b.len), 0);
	assert_int_equal(template_rec_copy(&copy, &got), 0);
	template_rec_finish(&got);
	assert_int_equal(copy.files.n, TEMPLATE_FILES_MAX);
	for (size_t i = 0; i < copy.files.n; i++) {
		const struct template_file *a = &t.files.at[i],
					   *c = &copy.files.at[i];

		assert_string_equal(a->id, c->id);
		assert_memory_equal(a->sha256, c->sha256, HASH_BYTES);
		assert_int_equal(a->bytes, c->bytes);
		assert_int_equal(c->path.len, FILE_PATH_BYTES_MAX);
		assert_memory_equal(a->path.data, c->path.data, c->path.len);
	}
	template_rec_finish(&copy);
	template_rec_finish(&copy); /* twice is harmless */
	template_rec_finish(&t);
	/* One more of each is not written. */
	t = template_with(TEMPLATE_FILES_MAX + 1, 1);
	assert_int_equal(template_rec_encode(&t, &b), -EINVAL);
	template_rec_finish(&t);
	t = template_with(1, FILE_PATH_BYTES_MAX);
	assert_int_equal(bytes_append(&t.files.at[0].path, "x", 1), 0);
	assert_int_equal(template_rec_encode(&t, &b), -EINVAL);
	template_rec_finish(&t);
	t = template_with(1, 9);
	b.len = 0;
	assert_int_equal(template_rec_encode(&t, &b), 0);
	template_rec_finish(&t);
	files_are_checked(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(templates_have_files_or_are_as_before),
	};

	return cmocka_run_group_tests_name("record_template", tests, NULL,
					   NULL);
}
