/* Routes of the test server; see server_test_files.h. */
#include "server_test_files.h"
#include "../loop.h"
#include "fd.h"
#include "request.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned n_cuts;

struct taking {
	struct loop_timer timer;
	struct request *r;
	size_t n, n_right;
	size_t max; /* 0 = none; one more is refused */
	bool is_slow;
};

static void on_room(struct loop_timer *t)
{
	request_body_more(container_of(t, struct taking, timer)->r);
}

static void drop(struct request *r)
{
	struct taking *t = r->op;

	loop_timer_stop(r->services->loop, &t->timer);
	free(t);
}

static int take(struct request *r, const void *data, size_t len, struct err *e)
{
	struct taking *t = r->op;
	const unsigned char *p = data;

	for (size_t i = 0; i < len; i++, t->n++)
		t->n_right += p[i] == TEST_FILE_AT(t->n);
	if (t->max && t->n > t->max) {
		drop(r);
		return err_set(e, ERR_CAPACITY, NULL, "refused in the middle");
	}
	if (t->is_slow)
		loop_timer_set(r->services->loop, &t->timer, 1);
	return t->is_slow;
}

static void end(struct request *r)
{
	struct taking *t = r->op;
	struct json_out j = {0};

	json_out_begin(&j, NULL, '{');
	json_out_u64(&j, "taken", t->n);
	json_out_u64(&j, "right", t->n_right);
	json_out_end(&j, '}');
	drop(r);
	reply_json(r, 200, &j);
}

static void cut(struct request *r)
{
	n_cuts++;
	drop(r);
}

static const struct body_sink sink = {take, end, cut};

void test_take(struct request *r)
{
	const char *refuse = query_get(&r->query, "refuse");
	struct taking *t;
	struct err e;

	if (refuse && !strcmp(refuse, "head")) {
		err_set(&e, ERR_CAPACITY, NULL, "refused at the head");
		reply_err(r, &e);
		return;
	}
	t = calloc(1, sizeof(*t));
	t->r = r;
	t->timer.fn = on_room;
	t->is_slow = query_get(&r->query, "slow");
	t->max = !refuse ? 0 : strcmp(refuse, "few") ? TAKE_MIDDLE : 30;
	r->op = t;
	r->sink = &sink;
}

void test_cuts(struct request *r)
{
	struct json_out j = {0};

	json_out_begin(&j, NULL, '{');
	json_out_u64(&j, "cuts", n_cuts);
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}

void test_file(struct request *r)
{
	static unsigned char all[TEST_FILE_LARGE];
	struct reply_bytes_of b = {.content_type = "text/x", .etag = "tag"};
	int range;

	b.fd = memfd_create("test", MFD_CLOEXEC);
	b.len = query_get(&r->query, "empty")	? 0
		: query_get(&r->query, "large") ? TEST_FILE_LARGE
						: TEST_FILE_BYTES;
	b.total = b.len;
	for (size_t i = 0; i < b.len; i++)
		all[i] = TEST_FILE_AT(i);
	if (b.fd < 0 || fd_write_all(b.fd, all, b.len))
		abort();
	range = request_range(r, b.etag, b.total, &b.at, &b.len);
	if (range < 0) {
		close(b.fd);
		reply_no_range(r, b.total);
		return;
	}
	b.is_part = range;
	reply_file(r, &b);
}
