/*
 * A runner's end of the lane, with the test as the monitor: what a request and
 * an answer may be.  (tests/guest/test_lane.py: the same with an interpreter.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

static void test_ring(uint32_t number);
#define LANE_RING(number) test_ring(number)
#include "runner/lane.c"
#include <sys/wait.h>

// clang-format off
#include <cmocka.h>
// clang-format on

static struct bytes request;	 /* given at the next READY, */
static size_t part_bytes, given; /* so much at a time */
static bool is_first_too_long;	 /* says its head */
static uint32_t rung[8], n_rung; /* states seen at the bell */
static int user[2];		 /* write ends of the streams */

static void test_ring(uint32_t number)
{
	size_t len;
	bool is_part;

	assert_int_equal(number, 0);
	rung[n_rung++ % 8] = lane.head->state;
	if (lane.head->state != LANE_READY || !request.len)
		return;
	len = request.len - given;
	is_part = len > part_bytes;
	if (is_part)
		len = part_bytes;
	memcpy(page_at(LANE_REQUEST_OFF), request.data + given, len);
	given = is_part ? given + len : 0;
	lane.head->request_len = (uint32_t)len;
	if (is_first_too_long && is_part && given == len)
		lane.head->request_len = LANE_REQUEST_BYTES_MAX + 1;
	lane.head->state = is_part ? LANE_PART : LANE_REQUEST;
}

static int setup(void **state)
{
	int page = memfd_create("page", MFD_CLOEXEC), p[2][2];

	(void)state;
	assert_int_equal(ftruncate(page, LANE_PAGE_BYTES), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pipe2(p[i], O_CLOEXEC | O_NONBLOCK), 0);
		user[i] = p[i][1];
		fcntl(user[i], F_SETPIPE_SZ, PIPE_BYTES);
	}
	assert_int_equal(lane_open(0, page, p[0][0], p[1][0]), 0);
	n_rung = 0;
	part_bytes = LANE_REQUEST_BYTES_MAX;
	given = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		stream_finish(&lane.out[i]);
		fd_close(&user[i]);
	}
	bytes_finish(&lane.env);
	bytes_finish(&lane.ended);
	bytes_finish(&lane.answer);
	bytes_finish(&lane.whole);
	bytes_finish(&request);
	munmap(lane.head, LANE_PAGE_BYTES);
	return 0;
}

static void ask_code(uint64_t cmd, uint64_t head_max, uint64_t tail_max,
		     const char *code, size_t code_len)
{
	_cleanup_bytes_ struct bytes b = {0};
	struct writer w = {.out = &b};

	wire_put_map(&w, 3);
	wire_put_bytes(&w, GP_RUN_CODE, code, code_len);
	wire_put_uint(&w, GP_RUN_HEAD_MAX, head_max);
	wire_put_uint(&w, GP_RUN_TAIL_MAX, tail_max);
	request.len = 0;
	assert_int_equal(frame_append(&request, GP_RUN, cmd, b.data, b.len), 0);
}

static void ask(uint64_t cmd, uint64_t head_max, uint64_t tail_max)
{
	ask_code(cmd, head_max, tail_max, "code", 4);
}

/* Walks over the answer: bytes of each stream, and ENDED's first two values. */
struct seen {
	size_t bytes[3], frames;
	uint8_t how;
};

static struct seen answer_read(uint64_t cmd)
{
	const uint8_t *at = page_at(LANE_ANSWER_OFF);
	const uint8_t *end = at + lane.head->answer_len;
	struct seen s = {0};

	assert_int_equal(lane.head->state, LANE_ANSWERED);
	assert_in_range(lane.head->answer_len, 1, LANE_ANSWER_BYTES_MAX);
	while (at < end) {
		struct gp_output_head out;
		struct gp_head h;

		memcpy(&h, at, sizeof(h));
		assert_int_equal(h.cmd, cmd);
		assert_in_range(h.len, 1, GP_UP_BYTES_MAX);
		at += sizeof(h);
		assert_true(h.len <= (size_t)(end - at));
		assert_int_equal(s.how, 0); /* nothing comes after ENDED */
		if (h.type == GP_OUTPUT) {
			memcpy(&out, at, sizeof(out));
			s.bytes[out.stream] += h.len - sizeof(out);
		} else if (h.type == GP_ENDED) {
			s.how = at[2];
		} else {
			assert_int_equal(h.type, GP_STARTED);
		}
		s.frames++;
		at += h.len;
	}
	return s;
}

static void a_run(void **state)
{
	struct lane_run r;
	struct seen s;

	(void)state;
	ask(5, 100, 100);
	assert_int_equal(lane_wait(&r), LANE_END_RUN);
	assert_int_equal(r.code.len, 4);
	assert_memory_equal(r.code.data, "code", 4);
	assert_memory_equal(r.input.data, "null", 4);
	assert_int_equal(r.env.len, 0);
	assert_int_equal(write(user[1], "err", 3), 3);
	assert_int_equal(lane_finish(RUNNER_RESULT, 0, "[1]", 3),
			 LANE_END_TOLD);
	s = answer_read(5);
	assert_int_equal(s.frames, 3);
	assert_int_equal(s.bytes[GP_STDERR], 3);
	assert_int_equal(s.how, GP_END_EXITED);
	assert_int_equal(n_rung, 2);
	assert_int_equal(rung[0], LANE_READY);
	assert_int_equal(rung[1], LANE_ANSWERED);
}

static void closed_and_adopted(void **state)
{
	struct lane_run r;

	(void)state;
	assert_int_equal(lane_wait(&r), LANE_END_CLOSED);
	assert_int_equal(lane.head->state, LANE_CLOSED);
	ask(6, 100, 100);
	assert_int_equal(lane_wait(&r), LANE_END_RUN);
	lane.head->state = LANE_ADOPTED;
	assert_int_equal(write(user[0], "out", 3), 3);
	assert_int_equal(lane_finish(RUNNER_RESULT, 0, "1", 1),
			 LANE_END_ADOPTED);
	/* No bell, and the output is still init's to read. */
	assert_int_equal(n_rung, 2);
	assert_int_equal(lane.out[0].total, 0);
}

static void hostile_results(void **state)
{
	static char large[GP_RESULT_BYTES_MAX + 1];
	static const struct {
		uint32_t kind;
		const char *text;
		size_t len;
		enum gp_end how;
	} cases[] = {
		{RUNNER_RESULT, "[1", 2, GP_END_RESULT_NOT_JSON},
		{RUNNER_RESULT, "", 0, GP_END_RESULT_NOT_JSON},
		{RUNNER_RESULT, large, sizeof(large), GP_END_RESULT_TOO_LARGE},
		{RUNNER_NOT_JSON, large, sizeof(large), GP_END_RESULT_NOT_JSON},
		{RUNNER_TOO_LARGE, "why", 3, GP_END_RESULT_TOO_LARGE},
		{RUNNER_FAILED, "", 0, GP_END_EXITED},
		{0, "1", 1, GP_END_EXITED},
		{RUNNER_WAITING, "1", 1, GP_END_EXITED},
		{77, "1", 1, GP_END_EXITED},
	};
	struct lane_run r;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		ask(i + 1, 100, 100);
		assert_int_equal(lane_wait(&r), LANE_END_RUN);
		assert_int_equal(lane_finish(cases[i].kind, 1, cases[i].text,
					     cases[i].len),
				 LANE_END_TOLD);
		assert_int_equal(answer_read(i + 1).how, cases[i].how);
	}
}

/* Both pipes full and the largest caps: an answer fits, or is not made here. */
static void full_pipes(void **state)
{
	static char block[STREAM_BYTES_MAX];
	struct lane_run r;
	struct seen s;

	(void)state;
	ask(8, UINT64_MAX, UINT64_MAX);
	assert_int_equal(lane_wait(&r), LANE_END_RUN);
	for (int i = 0; i < 2; i++)
		assert_int_equal(write(user[i], block, sizeof(block)),
				 sizeof(block));
	assert_true(stream_fits(&lane.out[0]));
	assert_int_equal(lane_finish(RUNNER_FAILED, 1, "", 0), LANE_END_TOLD);
	s = answer_read(8);
	assert_int_equal(s.bytes[GP_STDOUT], sizeof(block));
	assert_int_equal(s.bytes[GP_STDERR], sizeof(block));

	ask(9, UINT64_MAX, UINT64_MAX);
	assert_int_equal(lane_wait(&r), LANE_END_RUN);
	assert_int_equal(write(user[0], block, sizeof(block)), sizeof(block));
	assert_int_equal(write(user[0], block, 4096), 4096);
	assert_false(stream_fits(&lane.out[0]));
	lane.head->state = LANE_ADOPTED;
	assert_int_equal(lane_finish(RUNNER_FAILED, 1, "", 0),
			 LANE_END_ADOPTED);
}

static void bad_requests(void **state)
{
	struct lane_run r;

	(void)state;
	for (int i = 0; i < 6; i++) {
		struct gp_head *h;

		ask(4, 1, 1);
		h = (struct gp_head *)(void *)request.data;
		if (i == 0)
			request.len--;
		if (i == 1)
			request.len = 1;
		if (i == 2)
			h->len = UINT32_MAX;
		if (i == 3)
			h->type = GP_EXEC;
		if (i == 4)
			request.data[sizeof(*h)] = 0x01;
		if (i == 5)
			request.data[sizeof(*h) + 1] = 0x0f;
		n_rung = 0;
		assert_int_equal(lane_wait(&r), LANE_END_TOLD);
		assert_int_equal(n_rung, 2);
		assert_int_equal(answer_read(lane.cmd).how, GP_END_NOT_STARTED);
	}
}

/* What does not fit comes in parts; the runner rings for each. */
static void in_parts(void **state)
{
	static char code[3 << 20];
	static const struct {
		size_t len, part;
	} cases[] = {
		{sizeof(code), LANE_REQUEST_BYTES_MAX},
		{LANE_REQUEST_BYTES_MAX, LANE_REQUEST_BYTES_MAX},
		{4, 1}, /* not even a head at once */
		{4, sizeof(struct gp_head)},
		{1000, 999},
		{5, LANE_REQUEST_BYTES_MAX}, /* and one that is whole again */
	};
	struct lane_run r;

	(void)state;
	for (size_t i = 0; i < sizeof(code); i++)
		code[i] = (char)(i * 7 + i / 251);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		size_t len = cases[i].len;

		part_bytes = cases[i].part;
		n_rung = 0;
		ask_code(i + 1, 100, 100, code, len);
		assert_int_equal(lane_wait(&r), LANE_END_RUN);
		assert_int_equal(n_rung,
				 (request.len + part_bytes - 1) / part_bytes);
		assert_int_equal(r.code.len, len);
		assert_memory_equal(r.code.data, code, len);
		assert_int_equal(lane_finish(RUNNER_RESULT, 0, "1", 1),
				 LANE_END_TOLD);
		assert_int_equal(answer_read(i + 1).how, GP_END_EXITED);
	}
}

/* The monitor's words are taken as they are; none of them does harm. */
static void bad_parts(void **state)
{
	static char code[LANE_WHOLE_BYTES_MAX - (2u << 20)];
	struct lane_run r;

	(void)state;
	/* Larger than any request. */
	ask_code(7, 100, 100, code, sizeof(code));
	assert_int_equal(bytes_append(&request, code, 2u << 20), 0);
	assert_int_equal(lane_wait(&r), LANE_END_TOLD);
	assert_int_equal(answer_read(7).how, GP_END_NOT_STARTED);
	/* The frame says another length than its parts have. */
	ask_code(8, 100, 100, code, 2 << 20);
	request.len--;
	assert_int_equal(lane_wait(&r), LANE_END_TOLD);
	assert_int_equal(answer_read(8).how, GP_END_NOT_STARTED);
	/* Its first part cannot be kept: whose it is stays known. */
	is_first_too_long = true;
	memset(code, 'x', sizeof(code));
	ask_code(10, 100, 100, code, 2 << 20);
	assert_int_equal(lane_wait(&r), LANE_END_TOLD);
	assert_int_equal(answer_read(10).how, GP_END_NOT_STARTED);
	is_first_too_long = false;
	/* And it is over with the request. */
	ask(9, 100, 100);
	assert_int_equal(lane_wait(&r), LANE_END_RUN);
}

static void a_fork_says_nothing(void **state)
{
	struct lane_run r;
	int status;
	pid_t pid;

	(void)state;
	ask(3, 1, 1);
	assert_int_equal(lane_wait(&r), LANE_END_RUN);
	pid = fork();
	if (!pid)
		_exit(lane_finish(RUNNER_RESULT, 0, "1", 1));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, LANE_END_NOT_MINE << 8);
	assert_int_equal(lane.head->state, LANE_REQUEST);
	assert_int_equal(n_rung, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_run, setup, teardown),
		cmocka_unit_test_setup_teardown(closed_and_adopted, setup,
						teardown),
		cmocka_unit_test_setup_teardown(hostile_results, setup,
						teardown),
		cmocka_unit_test_setup_teardown(full_pipes, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_requests, setup, teardown),
		cmocka_unit_test_setup_teardown(in_parts, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_parts, setup, teardown),
		cmocka_unit_test_setup_teardown(a_fork_says_nothing, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
