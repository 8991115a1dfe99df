/*
 * Lanes without a VM: every own state against every event, hostile heads and
 * numbers, storms, pieces, what a snapshot's file may say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#define MEM_TRACE
#include "lanes.c"
#include "mem.c"
#include <cmocka.h>
#include <stdlib.h>

/* Three whole pages and a half. */
#define RAM	     (7u << 20)
#define PAGE_AT	     (gpa_t) LANE_PAGE_BYTES
#define PAGE_WRITE   (1u << LANE_BITS)
#define HEAD_UNKNOWN (LANE_PART + 1)

static struct mem ram;
static struct lanes lanes;
static unsigned n_loads;
static size_t n_loaded;

static void on_load(const void *host, size_t len)
{
	(void)host;
	n_loads++;
	n_loaded += len;
}

static int up(void **unused)
{
	(void)unused;
	assert_int_equal(mem_init(&ram, RAM), 0);
	lanes_init(&lanes, &ram);
	return 0;
}

static int down(void **unused)
{
	(void)unused;
	mem_trace_load = NULL;
	mem_finish(&ram);
	return 0;
}

static void head_put(uint32_t version, uint32_t state, uint32_t answer_len)
{
	struct lane_head h = {
		.version = version,
		.state = state,
		.request_len = 0x11111111,
		.answer_len = answer_len,
	};

	assert_int_equal(mem_write(&ram, PAGE_AT, &h, sizeof(h)), 0);
}

static struct lane_head head_get(void)
{
	struct lane_head h;

	assert_int_equal(mem_read(&ram, PAGE_AT, &h, sizeof(h)), 0);
	return h;
}

static enum lane_verdict ring(uint32_t state)
{
	uint32_t unused;

	head_put(LANE_VERSION, state, 5);
	return lanes_ring(&lanes, 0, &unused);
}

/* Lane 0 from nothing to an own state, by events only. */
static void go_to(enum lane_own own)
{
	struct lane_news n;

	lanes_init(&lanes, &ram);
	if (own == LANE_OWN_NONE)
		return;
	assert_int_equal(lanes_page(&lanes, PAGE_WRITE), LANE_GO_ON);
	if (own == LANE_OWN_CLOSED)
		return;
	assert_int_equal(ring(LANE_READY), LANE_PARK);
	assert_true(lanes_take(&lanes, &n));
	assert_false(n.is_answer);
	if (own == LANE_OWN_READY)
		return;
	assert_int_equal(lanes_request(&lanes, 0, 0, 1, "x", 1), 1);
	if (own == LANE_OWN_OPEN)
		return;
	if (own == LANE_OWN_ADOPTED) {
		assert_int_equal(lanes_adopt(&lanes, 0), 0);
		return;
	}
	assert_int_equal(ring(LANE_ANSWERED), LANE_PARK);
	assert_true(lanes_take(&lanes, &n));
	assert_true(n.is_answer);
	assert_int_equal(n.len, 5);
	assert_int_equal(n.at, PAGE_AT + LANE_ANSWER_OFF);
}

/* The table of lanes.h, written once more. */
static void every_state_and_event(void **unused)
{
	enum { N = LANE_OWN_NONE, C, R, O, A, D };
	static const struct {
		uint8_t ready, answered, request, adopted, resumed;
		int request_status, adopt_status;
	} want[LANE_OWN_STATES] = {
		[N] = {N, N, N, N, N, -EBUSY, -ENOENT},
		[C] = {R, C, C, C, C, -EBUSY, -ENOENT},
		[R] = {R, R, O, R, C, 1, -ENOENT},
		[O] = {R, A, O, D, O, -EBUSY, 0},
		[A] = {R, A, A, A, A, -EBUSY, -EALREADY},
		[D] = {R, D, D, D, D, -EBUSY, -ENOENT},
	};

	(void)unused;
	for (unsigned own = N; own < LANE_OWN_STATES; own++) {
		for (uint32_t state = 0; state <= HEAD_UNKNOWN; state++) {
			unsigned next = own;

			if (state == LANE_READY)
				next = want[own].ready;
			else if (state == LANE_ANSWERED)
				next = want[own].answered;
			go_to((enum lane_own)own);
			assert_int_equal(lanes.lane[0].own, own);
			assert_int_equal(ring(state),
					 next == own ? LANE_GO_ON : LANE_PARK);
			assert_int_equal(lanes.lane[0].own, next);
			assert_int_equal(lanes.n_strays, next == own);
		}
		go_to((enum lane_own)own);
		assert_int_equal(lanes_request(&lanes, 0, 0, 0, "", 0),
				 want[own].request_status);
		assert_int_equal(lanes.lane[0].own, want[own].request);
		go_to((enum lane_own)own);
		assert_int_equal(lanes_adopt(&lanes, 0),
				 want[own].adopt_status);
		assert_int_equal(lanes.lane[0].own, want[own].adopted);
		go_to((enum lane_own)own);
		lanes_resumed(&lanes);
		assert_int_equal(lanes.lane[0].own, want[own].resumed);
	}
}

static void an_adoption_looks_once(void **unused)
{
	static const int status[] = {
		[LANE_CLOSED] = -ENOENT,     [LANE_READY] = -ENOENT,
		[LANE_REQUEST] = 0,	     [LANE_FINISHING] = -EALREADY,
		[LANE_ANSWERED] = -EALREADY, [LANE_ADOPTED] = -ENOENT,
		[LANE_PART] = -ENOENT,	     [HEAD_UNKNOWN] = -ENOENT,
	};

	(void)unused;
	for (uint32_t state = 0; state <= HEAD_UNKNOWN; state++) {
		go_to(LANE_OWN_OPEN);
		head_put(LANE_VERSION, state, 5);
		mem_trace_load = on_load;
		n_loads = 0;
		assert_int_equal(lanes_adopt(&lanes, 0), status[state]);
		mem_trace_load = NULL;
		assert_int_equal(n_loads, 1);
		assert_int_equal(head_get().state,
				 status[state] == 0 ? LANE_ADOPTED : state);
		/* An answer that was promised comes, another never does. */
		assert_int_equal(ring(LANE_ANSWERED), status[state] == -EALREADY
							      ? LANE_PARK
							      : LANE_GO_ON);
	}
	assert_int_equal(lanes_adopt(&lanes, LANES_MAX), -EPROTO);
	assert_int_equal(lanes_adopt(&lanes, UINT32_MAX), -EPROTO);
	assert_int_equal(lanes_adopt(&lanes, 1), -ENOENT);
}

static void pages_lie_in_ram(void **unused)
{
	static const uint32_t bad_pages[] = {
		PAGE_WRITE | LANES_MAX, /* lane */
		PAGE_WRITE | 15,
		3u << LANE_BITS | 1, /* half of it is RAM */
		4u << LANE_BITS | 1,
		0xc0000000u / LANE_PAGE_BYTES << LANE_BITS | 1, /* the gap */
		2048u << LANE_BITS | 1, /* 4 GiB: would be RAM of a larger VM */
		UINT32_MAX & ~14u,
		PAGE_WRITE,	/* lane 0 has one */
		PAGE_WRITE | 1, /* lane 0 has this one */
		0,
	};
	unsigned n = sizeof(bad_pages) / sizeof(bad_pages[0]);
	struct lane_saved s[LANES_MAX];

	(void)unused;
	go_to(LANE_OWN_CLOSED);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(lanes_page(&lanes, bad_pages[i]), LANE_GO_ON);
	assert_int_equal(lanes.n_rule_breaks, n);
	assert_int_equal(lanes_count(&lanes), 1);
	assert_int_equal(lanes_page(&lanes, 3), LANE_GO_ON);
	assert_int_equal(lanes_page(&lanes, 2u << LANE_BITS | 1), LANE_GO_ON);
	assert_int_equal(lanes.n_rule_breaks, n);
	assert_int_equal(lanes_save(&lanes, s), 3);
	assert_int_equal(s[1].page, 2 * LANE_PAGE_BYTES);
	assert_int_equal(s[2].lane, 3);
	assert_int_equal(s[2].page, 0);
}

static void a_ring_reads_its_head_once(void **unused)
{
	uint32_t state;

	(void)unused;
	go_to(LANE_OWN_CLOSED);
	mem_trace_load = on_load;
	n_loads = n_loaded = 0;
	assert_int_equal(ring(LANE_READY), LANE_PARK);
	assert_int_equal(n_loads, 1);
	assert_int_equal(n_loaded, sizeof(struct lane_head));
	/* News, lanes without a page, numbers of none: no look at all. */
	assert_int_equal(ring(LANE_READY), LANE_GO_ON);
	lanes_ring(&lanes, 1, &state);
	lanes_ring(&lanes, LANES_MAX, &state);
	lanes_ring(&lanes, UINT32_MAX, &state);
	assert_int_equal(n_loads, 1);
	assert_int_equal(lanes.n_rings, 3);
	assert_int_equal(lanes.n_strays, 2);
	assert_int_equal(lanes.n_rule_breaks, 2);
}

static void another_version_means_nothing(void **unused)
{
	static const uint32_t versions[] = {0, LANE_VERSION + 1, UINT32_MAX};
	uint32_t state;

	(void)unused;
	for (unsigned i = 0; i < 3; i++) {
		go_to(LANE_OWN_CLOSED);
		head_put(versions[i], LANE_READY, 0);
		assert_int_equal(lanes_ring(&lanes, 0, &state), LANE_GO_ON);
		assert_int_equal(lanes.n_strays, 1);
		assert_false(lanes_have_news(&lanes));
	}
}

static void news_of_two_lanes(void **unused)
{
	struct lane_news n;
	uint32_t state;

	(void)unused;
	go_to(LANE_OWN_CLOSED);
	assert_int_equal(lanes_page(&lanes, 2u << LANE_BITS | 3), LANE_GO_ON);
	head_put(LANE_VERSION, LANE_READY, 0);
	mem_write(&ram, 2 * LANE_PAGE_BYTES,
		  &(struct lane_head){.version = LANE_VERSION,
				      .state = LANE_READY},
		  sizeof(struct lane_head));
	assert_int_equal(lanes_ring(&lanes, 3, &state), LANE_PARK);
	assert_int_equal(lanes_ring(&lanes, 0, &state), LANE_PARK);
	/* Not before the owner knows of it. */
	assert_int_equal(lanes_request(&lanes, 0, 0, 1, "x", 1), -EBUSY);
	assert_true(lanes_take(&lanes, &n));
	assert_int_equal(n.lane, 0);
	assert_true(lanes_take(&lanes, &n));
	assert_int_equal(n.lane, 3);
	assert_false(lanes_take(&lanes, &n));
	/* One gets a request, the other does not. */
	assert_int_equal(lanes_request(&lanes, 3, 0, 1, "x", 1), 1);
	lanes_resumed(&lanes);
	assert_int_equal(lanes.lane[0].own, LANE_OWN_CLOSED);
	assert_int_equal(lanes.lane[3].own, LANE_OWN_OPEN);
}

static void storms_are_slowed_then_stopped(void **unused)
{
	(void)unused;
	for (int how = 0; how < 3; how++) {
		unsigned n = 0, naps = 0;
		enum lane_verdict r;

		go_to(LANE_OWN_OPEN);
		for (;; n++) {
			if (how == 0)
				r = ring(LANE_REQUEST);
			else if (how == 1)
				r = lanes_page(&lanes, 0xffffffff);
			else
				r = lanes_break(&lanes);
			if (r == LANE_END)
				break;
			assert_true(n < LANE_STRAYS_FREE + LANE_STRAYS_MAX);
			assert_int_equal(r, n < LANE_STRAYS_FREE ? LANE_GO_ON
								 : LANE_NAP);
			naps += r == LANE_NAP;
		}
		assert_int_equal(n, LANE_STRAYS_FREE + LANE_STRAYS_MAX);
		assert_int_equal(naps, LANE_STRAYS_MAX);
		/* It stays so. */
		assert_int_equal(lanes_break(&lanes), LANE_END);
	}
}

static void requests_in_pieces(void **unused)
{
	static uint8_t sent[LANE_REQUEST_BYTES_MAX], got[sizeof(sent) + 1];
	uint32_t total = sizeof(sent), at = 0;
	struct lane_head h;

	(void)unused;
	for (uint32_t i = 0; i < total; i++)
		sent[i] = (uint8_t)(i * 7 + i / 251);
	go_to(LANE_OWN_READY);
	mem_write(&ram, PAGE_AT + LANE_ANSWER_OFF, "k", 1);
	for (uint32_t len = 1; at < total; at += len, len += 4099) {
		bool is_last;

		if (len > total - at)
			len = total - at;
		is_last = at + len == total;
		assert_int_equal(head_get().state, LANE_READY);
		assert_int_equal(
			lanes_request(&lanes, 0, at, total, sent + at, len),
			is_last);
	}
	mem_read(&ram, PAGE_AT + LANE_REQUEST_OFF, got, sizeof(got));
	assert_memory_equal(sent, got, sizeof(sent));
	assert_int_equal(got[sizeof(sent)], 'k');
	h = head_get();
	assert_int_equal(h.version, LANE_VERSION);
	assert_int_equal(h.state, LANE_REQUEST);
	assert_int_equal(h.request_len, total);
	assert_int_equal(h.answer_len, 0);
}

/* All but the last part of a long request: READY again asks for the next. */
static void requests_in_parts(void **unused)
{
	struct lane_news n;

	(void)unused;
	go_to(LANE_OWN_READY);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(lanes_part(&lanes, 0, 0, 4, "ab", 2), 0);
		assert_int_equal(lanes_part(&lanes, 0, 2, 4, "cd", 2), 1);
		assert_int_equal(head_get().state, LANE_PART);
		assert_int_equal(head_get().request_len, 4);
		assert_int_equal(lanes_request(&lanes, 0, 0, 1, "e", 1),
				 -EBUSY);
		assert_int_equal(ring(LANE_READY), LANE_PARK);
		assert_true(lanes_take(&lanes, &n));
		assert_false(n.is_answer);
	}
	assert_int_equal(lanes_request(&lanes, 0, 0, 1, "e", 1), 1);
	assert_int_equal(head_get().state, LANE_REQUEST);
	/* A part is not to be adopted: nothing runs. */
	go_to(LANE_OWN_READY);
	assert_int_equal(lanes_part(&lanes, 0, 0, 1, "a", 1), 1);
	assert_int_equal(lanes_adopt(&lanes, 0), -ENOENT);
}

static void wrong_pieces(void **unused)
{
	static const uint8_t bytes[16];
	static const struct {
		uint32_t offset, total, len;
	} wrong[] = {
		{0, LANE_REQUEST_BYTES_MAX + 1, 16},
		{0, UINT32_MAX, 16},
		{0, 15, 16},
		{0, 0, 16},
		{0, 16, 0}, /* no progress */
		{1, 16, 1},
		{16, 16, 0},
		{UINT32_MAX, 16, 16},
		{UINT32_MAX - 7, UINT32_MAX, 8},
	};

	(void)unused;
	go_to(LANE_OWN_READY);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(lanes_request(&lanes, 0, wrong[i].offset,
					       wrong[i].total, bytes,
					       wrong[i].len),
				 -EPROTO);
	/* After a first piece: again, a gap, another total. */
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(lanes_request(&lanes, 0, 0, 32, bytes, 16), 0);
		assert_int_equal(lanes_request(&lanes, 0, i == 0 ? 0 : 16 + i,
					       i == 2 ? 33 : 32, bytes, 16),
				 -EPROTO);
	}
	/* A gap in what was begun ends it: only offset 0 goes on from there. */
	assert_int_equal(lanes_request(&lanes, 0, 16, 32, bytes, 16), -EPROTO);
	assert_int_equal(lanes_request(&lanes, LANES_MAX, 0, 1, bytes, 1),
			 -EPROTO);
	assert_int_equal(lanes_request(&lanes, 1, 0, 1, bytes, 1), -EBUSY);
	assert_int_equal(head_get().state, LANE_READY);
	assert_int_equal(lanes_request(&lanes, 0, 0, 16, bytes, 16), 1);
}

static void answers_have_a_length(void **unused)
{
	static const struct {
		uint32_t len, want;
	} cases[] = {
		{0, 0},
		{1, 1},
		{LANE_ANSWER_BYTES_MAX, LANE_ANSWER_BYTES_MAX},
		{LANE_ANSWER_BYTES_MAX + 1, 0},
		{UINT32_MAX, 0},
	};
	struct lane_news n;
	uint32_t state;

	(void)unused;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		go_to(LANE_OWN_OPEN);
		head_put(LANE_VERSION, LANE_ANSWERED, cases[i].len);
		assert_int_equal(lanes_ring(&lanes, 0, &state), LANE_PARK);
		/* What is written after the ring is too late. */
		head_put(LANE_VERSION, LANE_READY, 77);
		assert_true(lanes_take(&lanes, &n));
		assert_true(n.is_answer);
		assert_int_equal(n.len, cases[i].want);
		assert_int_equal(lanes.n_rule_breaks,
				 cases[i].len > LANE_ANSWER_BYTES_MAX);
	}
}

static void saved_and_loaded(void **unused)
{
	struct lane_saved s[LANES_MAX];

	(void)unused;
	for (enum lane_own own = LANE_OWN_CLOSED; own < LANE_OWN_STATES;
	     own++) {
		go_to(own);
		assert_int_equal(lanes_save(&lanes, s), 1);
		lanes_init(&lanes, &ram);
		assert_int_equal(lanes_load(&lanes, s, 1), 0);
		assert_int_equal(lanes.lane[0].own, own);
		assert_int_equal(lanes.lane[0].page, PAGE_AT);
		assert_int_equal(lanes_have_news(&lanes),
				 own == LANE_OWN_READY);
	}
}

static void wrong_states_are_refused(void **unused)
{
	static const struct lane_saved wrong[][2] = {
		{{.lane = LANES_MAX, .page = PAGE_AT, .own = 1}},
		{{.lane = UINT32_MAX, .page = PAGE_AT, .own = 1}},
		{{.page = PAGE_AT, .own = LANE_OWN_NONE}},
		{{.page = PAGE_AT, .own = LANE_OWN_STATES}},
		{{.page = PAGE_AT, .own = UINT32_MAX}},
		{{.page = PAGE_AT + 1, .own = 1}},
		{{.page = PAGE_AT + 4096, .own = 1}},
		{{.page = 3 * PAGE_AT, .own = 1}},
		{{.page = UINT64_MAX - (2u << 20) + 1, .own = 1}},
		{{.page = PAGE_AT, .own = 1}, {.page = 0, .own = 1}},
		{{.page = PAGE_AT, .own = 1},
		 {.lane = 1, .page = PAGE_AT, .own = 1}},
	};

	(void)unused;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		lanes_init(&lanes, &ram);
		assert_int_equal(
			lanes_load(&lanes, wrong[i], wrong[i][1].own ? 2 : 1),
			-EPROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_state_and_event),
		cmocka_unit_test(an_adoption_looks_once),
		cmocka_unit_test(pages_lie_in_ram),
		cmocka_unit_test(a_ring_reads_its_head_once),
		cmocka_unit_test(another_version_means_nothing),
		cmocka_unit_test(news_of_two_lanes),
		cmocka_unit_test(storms_are_slowed_then_stopped),
		cmocka_unit_test(requests_in_pieces),
		cmocka_unit_test(requests_in_parts),
		cmocka_unit_test(wrong_pieces),
		cmocka_unit_test(answers_have_a_length),
		cmocka_unit_test(saved_and_loaded),
		cmocka_unit_test(wrong_states_are_refused),
	};

	return cmocka_run_group_tests(tests, up, down);
}
