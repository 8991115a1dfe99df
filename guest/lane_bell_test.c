/*
 * Init at the bell, with the test as the monitor.  No BIND succeeds here: it
 * would give this machine another name (tests/guest/test_lane_guest.py has the
 * ways that do).
 */
static void test_ring(void);
#define LANE_BELL_RING() test_ring()
#include "lane_bell.c"
#include "session_fixture.h"

static struct fixture *now;
static struct bytes request; /* given at READY */
static uint32_t rung[4], n_rung, state_after;

static void test_ring(void)
{
	struct lane_head *h = now->g.lane.head;

	rung[n_rung++ % 4] = h->state;
	if (h->state != LANE_READY || !request.len)
		return;
	memcpy(now->page + LANE_REQUEST_OFF, request.data, request.len);
	h->request_len = (uint32_t)request.len;
	h->state = state_after;
}

static void begin(struct fixture *f)
{
	now = f;
	n_rung = 0;
	request.len = 0;
	state_after = LANE_REQUEST;
	f->g.phase = PHASE_READY;
	f->g.lane.fd = fcntl(0, F_DUPFD_CLOEXEC, 3);
	f->g.lane.head = (struct lane_head *)(void *)f->page;
	lane_page_turn(&f->g.lane, LANE_TURN_INIT);
	take_frame(f);
}

static uint32_t turn(const struct fixture *f)
{
	uint32_t t;

	memcpy(&t, f->page + LANE_TURN_OFF, sizeof(t));
	return t;
}

static void end(struct fixture *f)
{
	bytes_finish(&request);
	f->g.lane.head = NULL;
	fd_close(&f->g.lane.fd);
}

static void without_a_request(void **state)
{
	struct fixture *f = *state;

	begin(f);
	lane_bell_wait(&f->g);
	assert_int_equal(n_rung, 1);
	assert_int_equal(rung[0], LANE_READY);
	assert_int_equal(f->g.lane.head->state, LANE_CLOSED);
	assert_int_equal(turn(f), LANE_TURN_GIVEN);
	assert_int_equal(f->g.phase, PHASE_READY);
	end(f);
}

/* The answer in the page is a frame BOUND that says no, with these words. */
static void assert_refused(struct fixture *f, const char *words)
{
	const uint8_t *at = f->page + LANE_ANSWER_OFF;
	struct gp_head h;

	memcpy(&h, at, sizeof(h));
	assert_int_equal(h.type, GP_BOUND);
	assert_int_equal(f->g.lane.head->answer_len, sizeof(h) + h.len);
	assert_non_null(memmem(at + sizeof(h), h.len, words, strlen(words)));
	assert_int_equal(f->g.phase, PHASE_READY);
	assert_false(f->g.is_bound_untold);
	/* No runner is let go. */
	assert_int_equal(turn(f), LANE_TURN_INIT);
}

static void refused(void **state)
{
	static const uint8_t odd[] = {0xa1, 1, 0xf5};
	static const struct {
		uint16_t type;
		uint32_t cut, len; /* bytes left out; the length that is said */
		const char *words;
	} t[] = {
		{GP_RUN, 0, 3, "no such frame"},
		{GP_BIND, 4, 3, "no such frame"}, /* no whole head */
		{GP_BIND, 0, 4, "no such frame"}, /* longer than the rest */
		{GP_BIND, 0, UINT32_MAX, "no such frame"},
		{GP_BIND, 0, 3, "BIND"}, /* not its map */
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct gp_head h = {.type = t[i].type, .len = t[i].len};

		begin(f);
		bytes_append(&request, &h, sizeof(h));
		bytes_append(&request, odd, sizeof(odd));
		if (t[i].cut)
			request.len = sizeof(h) - t[i].cut;
		lane_bell_wait(&f->g);
		assert_int_equal(n_rung, 2);
		assert_int_equal(rung[1], LANE_ANSWERED);
		assert_refused(f, t[i].words);
		end(f);
	}
}

/* Adopted meanwhile: the channel is told, and the bell is not rung again. */
static void refused_and_adopted(void **state)
{
	struct gp_head h = {.type = GP_RUN};
	struct fixture *f = *state;

	begin(f);
	bytes_append(&request, &h, sizeof(h));
	state_after = LANE_ADOPTED;
	lane_bell_wait(&f->g);
	assert_int_equal(n_rung, 1);
	assert_int_equal(f->g.lane.head->state, LANE_ADOPTED);
	assert_refused(f, "no such frame");
	link_flush(&f->g.link);
	assert_int_equal(take_frame(f).head.type, GP_BOUND);
	end(f);
}

static void bound_is_told_once(void **state)
{
	struct fixture *f = *state;

	begin(f);
	f->g.is_bound_untold = true;
	lane_bell_tell_bound(&f->g);
	lane_bell_tell_bound(&f->g);
	link_flush(&f->g.link);
	assert_int_equal(take_frame(f).head.type, GP_BOUND);
	assert_int_equal(take_frame(f).head.type, 0);
	end(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(without_a_request, setup,
						teardown),
		cmocka_unit_test_setup_teardown(refused, setup, teardown),
		cmocka_unit_test_setup_teardown(refused_and_adopted, setup,
						teardown),
		cmocka_unit_test_setup_teardown(bound_is_told_once, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
