/*
 * The express lane of hostile_vmm: what a guest or a VMM could say there, at
 * the wrong time, twice, torn or not at all.  Exits with 94 or 95 when the
 * daemon does not do its part.
 */
#include "bytes.h"
#include "fd.h"
#include "frame.h"
#include "hostile_vmm.h"
#include "lane.h"
#include <errno.h>
#include <stdlib.h>

#define WRONG_REQUEST 94
#define WRONG_PIECE   95

static struct bytes request; /* the last one, whole */
static size_t part;	     /* of it: where the part under way begins */

uint32_t lanes_of(const char *script)
{
	return script[0] == 'N' ? 1 : script[0] == 'G' ? LANES_MAX + 1 : 0;
}

/* One request of the owner, which has to be of this type. */
static struct vmm_msg take(uint32_t type, uint8_t body[VMM_BODY_BYTES_MAX])
{
	static uint8_t buf[sizeof(struct vmm_msg) + VMM_BODY_BYTES_MAX];
	struct vmm_msg m;
	ssize_t n = fd_recv(control, buf, sizeof(buf), NULL, NULL, 0);

	if (n <= 0)
		exit(VMM_WHY_OWNER);
	memcpy(&m, buf, sizeof(m));
	if (m.type != type || m.len != (size_t)n - sizeof(m) ||
	    m.len < sizeof(struct vmm_lane))
		exit(WRONG_REQUEST);
	memcpy(body, buf + sizeof(m), m.len);
	return m;
}

static void answer(const struct vmm_msg *m, int status)
{
	struct vmm_msg r = {
		.type = m->type | VMM_REPLY, .seq = m->seq, .status = status};

	fd_send(control, &r, sizeof(r), NULL, 0);
}

static void take_adopt(int status)
{
	static uint8_t body[VMM_BODY_BYTES_MAX];
	struct vmm_msg m = take(VMM_LANE_ADOPT, body);

	answer(&m, status);
}

#define NO_REPLY 1

static void tell_lane(uint32_t type, uint32_t lane, uint32_t offset,
		      uint32_t total, const void *p, size_t len)
{
	static uint8_t body[VMM_BODY_BYTES_MAX];
	struct vmm_lane l = {.lane = lane, .offset = offset, .total = total};

	memcpy(body, &l, sizeof(l));
	if (len)
		memcpy(body + sizeof(l), p, len);
	tell(type, 0, body, (uint32_t)(sizeof(l) + len));
}

static void tell_ready(void)
{
	tell_lane(VMM_LANE_READY, 0, 0, 0, NULL, 0);
}

enum taken { TAKEN_PIECE, TAKEN_PART, TAKEN_LAST };

/* One piece of a request.  `is_hasty` rings for the next part before it
 * replies. */
static enum taken take_piece_as(int status, bool is_hasty)
{
	static uint8_t body[VMM_BODY_BYTES_MAX];
	struct vmm_msg m = take(VMM_LANE_RUN, body);
	struct vmm_lane l;
	size_t len = m.len - sizeof(l);

	memcpy(&l, body, sizeof(l));
	if (l.lane || !len || l.total > LANE_REQUEST_BYTES_MAX ||
	    l.flags & ~VMM_LANE_IS_PART || l.offset != request.len - part ||
	    len > l.total - l.offset ||
	    bytes_append(&request, body + sizeof(l), len))
		exit(WRONG_PIECE);
	if (request.len - part < l.total) {
		if (status != NO_REPLY)
			answer(&m, status);
		return TAKEN_PIECE;
	}
	if (is_hasty && l.flags)
		tell_ready();
	if (status != NO_REPLY)
		answer(&m, status);
	part = l.flags ? request.len : 0;
	return l.flags ? TAKEN_PART : TAKEN_LAST;
}

static enum taken take_piece(int status)
{
	return take_piece_as(status, false);
}

/* One part of more, whole. */
static void take_part(void)
{
	enum taken t;

	while ((t = take_piece(0)) != TAKEN_PART)
		if (t == TAKEN_LAST)
			exit(WRONG_PIECE);
}

/* All of a request, as a runner takes it. */
static void take_all(bool is_hasty)
{
	enum taken t;

	while ((t = take_piece_as(0, is_hasty)) != TAKEN_LAST)
		if (t == TAKEN_PART && !is_hasty)
			tell_ready();
}

/* It has to be one frame RUN, whole. */
static void take_run(bool is_hasty)
{
	struct gp_head head;

	take_all(is_hasty);
	memcpy(&head, request.data, sizeof(head));
	if (head.type != GP_RUN || head.cmd != 1 ||
	    head.len != request.len - sizeof(head))
		exit(WRONG_PIECE);
	request.len = 0;
}

/* BIND alone, in one piece. */
static void take_bind(int status)
{
	struct gp_head head;

	if (take_piece(status) != TAKEN_LAST)
		exit(WRONG_PIECE);
	memcpy(&head, request.data, sizeof(head));
	if (head.type != GP_BIND || head.len != request.len - sizeof(head))
		exit(WRONG_PIECE);
	request.len = 0;
}

/* BIND, and RUN behind it. */
static void take_both(void)
{
	struct gp_head head;
	size_t bind;

	take_all(false);
	memcpy(&head, request.data, sizeof(head));
	bind = sizeof(head) + head.len;
	if (head.type != GP_BIND || bind > request.len - sizeof(head))
		exit(WRONG_PIECE);
	memcpy(&head, request.data + bind, sizeof(head));
	if (head.type != GP_RUN || head.cmd != 1 ||
	    head.len != request.len - bind - sizeof(head))
		exit(WRONG_PIECE);
	request.len = 0;
}

#define FRAME(b, type, str) frame_append(b, type, 1, str, sizeof(str) - 1)
#define OUTPUT                                                                 \
	"\0\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"                     \
	"abc"
#define ENDED                                                                  \
	"\xa4\1\1\2\0\4\x41"                                                   \
	"6\6\3"

static void good(struct bytes *b)
{
	FRAME(b, GP_STARTED, "\xa0");
	FRAME(b, GP_OUTPUT, OUTPUT);
	FRAME(b, GP_ENDED, ENDED);
}

/* Bytes [from, to) of an answer, `step` at a time. */
static void tell_pieces(const struct bytes *b, size_t from, size_t to,
			size_t step)
{
	for (size_t at = from; at < to; at += step)
		tell_lane(VMM_LANE_ANSWER, 0, (uint32_t)at, (uint32_t)b->len,
			  b->data + at, to - at < step ? to - at : step);
}

/* A result as long as a result may be. */
static void tell_long(void)
{
	static uint8_t end[11 + GP_RESULT_BYTES_MAX] = "\xa3\1\1\2\0\4\x5a";
	struct bytes b = {0};
	size_t n = GP_RESULT_BYTES_MAX;

	end[7] = (uint8_t)(n >> 24);
	end[8] = (uint8_t)(n >> 16);
	end[9] = (uint8_t)(n >> 8);
	end[10] = (uint8_t)n;
	memset(end + 11, '6', sizeof(end) - 11);
	FRAME(&b, GP_STARTED, "\xa0");
	frame_append(&b, GP_ENDED, 1, end, sizeof(end));
	tell_pieces(&b, 0, b.len, 1000);
	bytes_finish(&b);
}

static void bound(struct bytes *b, bool is_ok)
{
	if (is_ok)
		frame_append(b, GP_BOUND, 0, "\xa1\1\xf5", 3);
	else
		frame_append(b, GP_BOUND, 0,
			     "\xa2\1\xf4\2\x63"
			     "bad",
			     8);
}

static void tell_bound(bool is_ok)
{
	struct bytes b = {0};

	bound(&b, is_ok);
	tell_pieces(&b, 0, b.len, b.len);
	bytes_finish(&b);
}

static void tell_answer(char c)
{
	struct bytes b = {0};

	if (c == '5')
		bound(&b, true);
	if (c == 'j') /* no end */
		FRAME(&b, GP_STARTED, "\xa0");
	else if (c == 'n') /* an end without a start */
		FRAME(&b, GP_ENDED, ENDED);
	else
		good(&b);
	if (c == 'J') /* and a part of a frame */
		bytes_append(&b, "\1\2\3", 3);
	if (c == 'K') { /* and the same again */
		FRAME(&b, GP_STARTED, "\xa0");
		FRAME(&b, GP_ENDED, ENDED);
	}
	if (c == 'M')
		tell_pieces(&b, 0, b.len, 7);
	else if (c == 'd') /* dies in the middle, or does nothing more */
		tell_pieces(&b, 0, b.len / 2, 7);
	else if (c == 'D')
		tell_pieces(&b, 7, b.len, b.len);
	else
		tell_pieces(&b, 0, b.len, b.len);
	bytes_finish(&b);
}

/* At the bell of a snapshot. */
static bool play_bell(char c)
{
	switch (c) {
	case '1':
		take_bind(0);
		tell_bound(true);
		return true;
	case '2':
		take_bind(0);
		tell_bound(false);
		return true;
	case '3':
		take_bind(-EBUSY);
		return true;
	case '4':
		take_both();
		return true;
	case '5': /* as it should be after '4' */
		tell_answer(c);
		return true;
	case '8':
		tell_bound(false);
		return true;
	case '9': /* and nothing behind it */
		tell_bound(true);
		return true;
	case '6': /* takes BIND, and says nothing */
		take_bind(0);
		return true;
	default:
		return false;
	}
}

/* A request, or some of it. */
static bool play_request(char c)
{
	switch (c) {
	case 'q':
		take_run(false);
		return true;
	case '=':
		take_run(true);
		return true;
	case '-':
		take_part();
		return true;
	case 'i':
		take_piece(0);
		return true;
	case 'C':
		take_piece(NO_REPLY);
		return true;
	case 'I':
		take_piece(-EBUSY);
		return true;
	default:
		return false;
	}
}

bool play_lane(char c)
{
	if (play_bell(c) || play_request(c))
		return true;
	switch (c) {
	case 'N': /* said before: see lanes_of */
	case 'G':
		return true;
	case 'a': /* of a template that is made */
		wait_for_frame(GP_ARM);
		return true;
	case 'y':
		tell_ready();
		return true;
	case 'Y':
		tell_lane(VMM_LANE_READY, LANES_MAX, 0, 0, NULL, 0);
		return true;
	case 'm': /* as it should be */
	case 'M':
	case 'd':
	case 'D':
	case 'j':
	case 'J':
	case 'n':
	case 'K':
		tell_answer(c);
		return true;
	case 'O':
		tell_long();
		return true;
	case 'T':
		tell_lane(VMM_LANE_ANSWER, 0, 0, 0, NULL, 0);
		return true;
	case 'U':
		tell_lane(VMM_LANE_ANSWER, 0, 0, LANE_ANSWER_BYTES_MAX + 1, "x",
			  1);
		return true;
	case 'u':
		tell_lane(VMM_LANE_ANSWER, 1, 0, 1, "x", 1);
		return true;
	case 'v':
		take_adopt(0);
		return true;
	case 'V':
		take_adopt(-EALREADY);
		return true;
	case 'X':
		take_adopt(-ENOENT);
		return true;
	case 'A':
		wait_for_frame(GP_ADOPT);
		return true;
	default:
		return false;
	}
}
