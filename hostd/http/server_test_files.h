/* For stream_test.c: routes that take a body as it comes, and give files. */
#ifndef HUTCHD_SERVER_TEST_FILES_H
#define HUTCHD_SERVER_TEST_FILES_H

struct request;

#define TAKE_BYTES_MAX	(32u << 20)
#define TAKE_MIDDLE	100000 /* refused behind so many bytes */
#define TEST_FILE_BYTES (3u << 20)
#define TEST_FILE_LARGE (24u << 20)
#define TEST_FILE_AT(i) ((unsigned char)((i)*7 + (i) / 251))

/* POST: how many bytes; refuse=head, refuse=middle; slow=1: pauses often. */
void test_take(struct request *r);
/* GET: bodies that were cut, so far. */
void test_cuts(struct request *r);
/* GET: TEST_FILE_BYTES, or with empty=1 none, with large=1 more. */
void test_file(struct request *r);

#endif
