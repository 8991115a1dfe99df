/*
 * For tests of frames: a guest on one end of a socket pair, the test as the
 * host on the other.  Included once a test program, after what it tests.
 */
#ifndef HUTCH_GUEST_SESSION_FIXTURE_H
#define HUTCH_GUEST_SESSION_FIXTURE_H

#include "fd.h"
#include "prepare.h"
#include "runner.h"
#include "session.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

struct fixture {
	struct guest g;
	struct frame_reader r;
	uint8_t page[LANE_PAGE_BYTES] /* of the lane, when a test has one */
		__attribute__((aligned(4096)));
	int host;
	int user[2]; /* write ends of a runner's streams */
};

static inline void connect_host(struct fixture *f)
{
	int pair[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	f->host = pair[1];
	frame_reader_init(&f->r, GP_UP_BYTES_MAX);
	assert_int_equal(link_adopt(&f->g.link, pair[0]), 0);
	link_flush(&f->g.link);
}

static inline int setup(void **state)
{
	struct fixture *f = aligned_alloc(4096, sizeof(*f));

	assert_non_null(f);
	memset(f, 0, sizeof(*f));
	assert_int_equal(loop_init(&f->g.loop), 0);
	list_init(&f->g.commands.all);
	prepare_init(&f->g);
	f->g.null_fd = -1;
	f->g.link.up = session_up;
	f->g.link.room = session_room;
	f->g.link.frame = session_frame;
	f->g.link.ctx = &f->g;
	assert_int_equal(link_init(&f->g.link, &f->g.loop), 0);
	connect_host(f);
	*state = f;
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &f->g.commands.all)
		container_of(n, struct command, node)
			->is_over = true;
	commands_sweep(&f->g);
	loop_unwatch(&f->g.loop, &f->g.link.watch);
	fd_close(&f->g.link.watch.fd);
	fd_close(&f->host);
	frame_reader_finish(&f->r);
	frame_reader_finish(&f->g.link.in);
	bytes_finish(&f->g.link.out);
	loop_finish(&f->g.loop);
	free(f);
	return 0;
}

static inline void send_frame(struct fixture *f, uint16_t type, uint64_t cmd,
			      const void *payload, size_t len)
{
	_cleanup_bytes_ struct bytes b = {0};

	assert_int_equal(frame_append(&b, type, cmd, payload, len), 0);
	assert_int_equal(fd_write_all(f->host, b.data, b.len), 0);
	assert_int_equal(loop_turn(&f->g.loop), 0);
	link_flush(&f->g.link);
	commands_sweep(&f->g);
}

/* Next frame that init sent; type 0 = none. */
static inline struct frame take_frame(struct fixture *f)
{
	struct frame got = {0};
	uint8_t buf[65536];

	while (frame_next(&f->r, &got) == 0) {
		ssize_t n = recv(f->host, buf, sizeof(buf), MSG_DONTWAIT);

		if (n <= 0)
			return (struct frame){0};
		assert_int_equal(frame_feed(&f->r, buf, (size_t)n), 0);
	}
	return got;
}

static inline uint64_t ended_how(const struct frame *fr)
{
	/* The map begins with key 1 and a small number. */
	assert_int_equal(fr->head.type, GP_ENDED);
	assert_int_equal(fr->payload[1], GP_ENDED_HOW);
	return fr->payload[2];
}

static inline void put_message(struct command *c, uint32_t kind, uint32_t code,
			       const char *text, size_t len)
{
	struct runner_message m = {kind, code, (uint32_t)len};

	bytes_append(&c->channel.in, &m, sizeof(m));
	bytes_append(&c->channel.in, text, len);
}

/* Sum of the bytes of OUTPUT frames up to ENDED. */
static inline size_t take_output(struct fixture *f, bool want_started)
{
	struct frame fr;
	size_t n = 0;

	if (want_started) {
		fr = take_frame(f);
		assert_int_equal(fr.head.type, GP_STARTED);
	}
	for (fr = take_frame(f); fr.head.type == GP_OUTPUT;
	     fr = take_frame(f)) {
		assert_true(fr.head.len <= GP_UP_BYTES_MAX);
		n += fr.head.len - sizeof(struct gp_output_head);
	}
	assert_int_equal(ended_how(&fr), GP_END_EXITED);
	return n;
}

#endif
