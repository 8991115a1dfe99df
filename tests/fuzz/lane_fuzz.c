/*
 * Fuzz: lanes of a VM.
 *
 * Input: whether two lanes are there from the start, then a list of steps of a
 * hostile guest (registrations, heads, rings) and of the main thread (news,
 * pieces of requests, adoptions, resumes, snapshots) in any order that the
 * threads allow: requests, adoptions and resumes only while the vCPUs are
 * parked.  A model of what the owner was told says what may come: no request
 * but to a lane that was told READY, at most one answer a request, every answer
 * and every page inside RAM, nothing written outside of the request and the
 * head. Reached = a ring was taken.
 */
#include "../../vmm/lanes.h"
#include "fuzz.h"
#include "input.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RAM	     (7u << 20) /* three pages and a half */
#define PAGES	     3u
#define STEPS_MAX    400
#define PIECE_MAX    255u
#define GUARD	     0x6b /* 'k': kept */
#define LANE_IN_PAGE 16u  /* of a PAGE write */

static struct mem ram;
static struct lanes lanes;

static struct {
	bool is_parked;
	struct {
		bool is_told_ready, is_open;
		uint32_t done, total;
		gpa_t page;
	} lane[LANES_MAX];
	uint32_t n_bad;
} model;

static void check(bool is_true)
{
	if (!is_true)
		abort();
}

static void begin(void)
{
	struct lane_head zero = {0};
	uint8_t guard = GUARD;

	if (!ram.host)
		check(mem_init(&ram, RAM) == 0);
	lanes_init(&lanes, &ram);
	memset(&model, 0, sizeof(model));
	for (gpa_t p = 0; p < PAGES * LANE_PAGE_BYTES; p += LANE_PAGE_BYTES) {
		mem_write(&ram, p, &zero, sizeof(zero));
		mem_write(&ram, p + sizeof(zero), &guard, 1);
		mem_write(&ram, p + LANE_REQUEST_OFF - 1, &guard, 1);
		mem_write(&ram, p + LANE_ANSWER_OFF, &guard, 1);
	}
}

static void check_guards(void)
{
	static const uint32_t at[] = {sizeof(struct lane_head),
				      LANE_REQUEST_OFF - 1, LANE_ANSWER_OFF};
	uint8_t b;

	for (gpa_t p = 0; p < PAGES * LANE_PAGE_BYTES; p += LANE_PAGE_BYTES)
		for (unsigned i = 0; i < 3; i++) {
			mem_read(&ram, p + at[i], &b, 1);
			check(b == GUARD);
		}
}

static void check_verdict(enum lane_verdict v, bool is_good)
{
	if (is_good)
		return;
	if (model.n_bad < LANE_STRAYS_FREE + LANE_STRAYS_MAX)
		model.n_bad++;
	check(v == (model.n_bad > LANE_STRAYS_FREE ? LANE_NAP : LANE_GO_ON));
}

/* ---- the guest ---- */

static void step_page(struct in *in)
{
	uint32_t lane = in_u8(in) % (LANES_MAX + 1);
	uint32_t v = (uint32_t)(in_u8(in) % (PAGES + 2)) * LANE_IN_PAGE | lane;
	uint32_t before = lanes_count(&lanes);
	enum lane_verdict r;
	bool is_new;

	if (in_rarely(in))
		v = (uint32_t)in_edge(in);
	r = lanes_page(&lanes, v);
	is_new = lanes_count(&lanes) > before;
	check_verdict(r, is_new);
	if (!is_new)
		return;
	lane = v % LANE_IN_PAGE;
	model.lane[lane].page = (gpa_t)(v / LANE_IN_PAGE) * LANE_PAGE_BYTES;
	check(model.lane[lane].page / LANE_PAGE_BYTES < PAGES);
}

static void step_head(struct in *in)
{
	gpa_t page = (gpa_t)(in_u8(in) % PAGES) * LANE_PAGE_BYTES;
	struct lane_head h = {
		.version = in_rarely(in) ? in_u8(in) : LANE_VERSION,
		.state = in_u8(in) % (LANE_PART + 2),
		.answer_len = in_u8(in),
	};

	if (h.answer_len % 4 == 3)
		h.answer_len = LANE_ANSWER_BYTES_MAX + in_u8(in) % 3 - 1;
	if (in_rarely(in))
		h.answer_len = h.state = in_u32(in);
	mem_write(&ram, page, &h, sizeof(h));
}

static void step_ring(struct in *in)
{
	uint32_t v = in_u8(in) % (LANES_MAX + 1), state;
	enum lane_verdict r;

	/* Those that were on their way when all were asked to park may still
	 * come, until the main thread says that all are. */
	if (model.is_parked)
		return;
	if (in_rarely(in))
		v = in_u32(in);
	r = lanes_ring(&lanes, v, &state);
	check_verdict(r, r == LANE_PARK);
	if (r != LANE_PARK)
		return;
	fuzz_reach();
	check(v < LANES_MAX && lanes_have_news(&lanes));
	check(state == LANE_READY ||
	      (state == LANE_ANSWERED && model.lane[v].is_open));
}

/* Most inputs go on from here: what rings next is taken. */
static void two_lanes(void)
{
	static const struct lane_head ready = {.version = LANE_VERSION,
					       .state = LANE_READY};

	for (uint32_t i = 0; i < 2; i++) {
		model.lane[i].page = i * LANE_PAGE_BYTES;
		check(lanes_page(&lanes, i * LANE_IN_PAGE | i) == LANE_GO_ON);
		mem_write(&ram, model.lane[i].page, &ready, sizeof(ready));
	}
	check(lanes_count(&lanes) == 2);
}

/* ---- the main thread ---- */

static void take_all(void)
{
	struct lane_news n;

	model.is_parked = true;
	while (lanes_take(&lanes, &n)) {
		check(n.lane < LANES_MAX);
		if (n.is_answer) {
			check(model.lane[n.lane].is_open);
			check(n.len <= LANE_ANSWER_BYTES_MAX);
			check(n.at ==
			      model.lane[n.lane].page + LANE_ANSWER_OFF);
			check(mem_span(&ram, n.at, n.len) != NULL);
		}
		model.lane[n.lane].is_open = false;
		model.lane[n.lane].is_told_ready = !n.is_answer;
		model.lane[n.lane].done = 0;
	}
	check(!lanes_have_news(&lanes));
	/* Answers that are too long count, too; the verdict has nobody. */
	model.n_bad = lanes.n_bad;
}

static void step_request(struct in *in)
{
	static const uint8_t bytes[PIECE_MAX];
	uint32_t i = in_u8(in) % (LANES_MAX + 1), len = in_u8(in) % PIECE_MAX;
	uint32_t offset = i < LANES_MAX ? model.lane[i].done : 0, total;
	bool is_part;
	int r;

	total = offset && i < LANES_MAX ? model.lane[i].total : len;
	if (in_u8(in) % 2)
		total += in_u8(in);
	if (in_rarely(in))
		offset = (uint32_t)in_edge(in);
	if (in_rarely(in))
		total = (uint32_t)in_edge(in);
	is_part = in_rarely(in);
	if (!model.is_parked || lanes_have_news(&lanes))
		return;
	r = (is_part ? lanes_part : lanes_request)(&lanes, i, offset, total,
						   bytes, len);
	check(r == 0 || r == 1 || r == -EBUSY || r == -EPROTO);
	if (i >= LANES_MAX) {
		check(r == -EPROTO);
		return;
	}
	check((r == -EBUSY) == !model.lane[i].is_told_ready);
	if (r == -EPROTO)
		model.lane[i].done = 0;
	if (r < 0)
		return;
	check(offset == model.lane[i].done && total <= LANE_REQUEST_BYTES_MAX);
	check(r == (offset + len == total));
	model.lane[i].done += len;
	model.lane[i].total = total;
	if (r == 1) {
		model.lane[i].is_told_ready = false;
		model.lane[i].is_open = true;
		model.lane[i].done = 0;
	}
}

static void step_adopt(struct in *in)
{
	uint32_t i = in_u8(in) % (LANES_MAX + 1), state = 0;
	int r;

	if (!model.is_parked || lanes_have_news(&lanes))
		return;
	if (i < LANES_MAX)
		mem_read(&ram, model.lane[i].page + 4, &state, sizeof(state));
	r = lanes_adopt(&lanes, i);
	check(r == 0 || r == -EALREADY || r == -ENOENT || r == -EPROTO);
	check((r == -EPROTO) == (i >= LANES_MAX));
	if (r == 0) {
		check(model.lane[i].is_open && state == LANE_REQUEST);
		mem_read(&ram, model.lane[i].page + 4, &state, sizeof(state));
		check(state == LANE_ADOPTED);
	}
	if (r == 0 || r == -ENOENT)
		model.lane[i].is_open = false;
}

static void step_resume(void)
{
	if (!model.is_parked || lanes_have_news(&lanes))
		return;
	lanes_resumed(&lanes);
	model.is_parked = false;
	for (unsigned i = 0; i < LANES_MAX; i++) {
		model.lane[i].is_told_ready = false;
		model.lane[i].done = 0;
	}
}

/* What was saved is the same again; what was altered is sound or refused. */
static void step_snapshot(struct in *in)
{
	struct lane_saved s[LANES_MAX] = {0}, back[LANES_MAX] = {0};
	uint32_t n = lanes_save(&lanes, s), *field;
	static struct lanes other;

	lanes_init(&other, &ram);
	check(lanes_load(&other, s, n) == 0);
	check(lanes_save(&other, back) == n);
	check(memcmp(s, back, n * sizeof(s[0])) == 0);
	if (n == 0 || in_u8(in) % 2)
		return;
	field = in_u8(in) % 2 ? &s[0].lane : &s[0].own;
	*field = in_u8(in) % 8;
	if (in_u8(in) % 4 == 0)
		s[n - 1].page = in_edge(in) ^ in_u32(in);
	lanes_init(&other, &ram);
	if (lanes_load(&other, s, n) < 0)
		return;
	check(lanes_save(&other, back) == n);
	for (uint32_t i = 0; i < n; i++)
		check(back[i].page % LANE_PAGE_BYTES == 0 &&
		      back[i].page / LANE_PAGE_BYTES < PAGES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct in in = {data, len};

	fuzz_begin();
	fuzz_reach_want(20);
	begin();
	if (!in_rarely(&in))
		two_lanes();
	for (unsigned n = 0; in.len > 0 && n < STEPS_MAX; n++) {
		switch (in_u8(&in) % 10) {
		case 0:
			step_page(&in);
			break;
		case 1:
			step_head(&in);
			break;
		case 2:
		case 8:
			step_ring(&in);
			break;
		case 3:
		case 9:
			take_all();
			break;
		case 4:
			step_request(&in);
			break;
		case 5:
			step_adopt(&in);
			break;
		case 6:
			step_resume();
			break;
		default:
			step_snapshot(&in);
			break;
		}
	}
	check_guards();
	return 0;
}
