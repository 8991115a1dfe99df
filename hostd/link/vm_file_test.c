/*
 * vm_file.c with a process that plays a VM, also a hostile one (vm_test_util.h,
 * hostile_vmm.c): the way of a call through the states of a VM, and its ends.
 */
#include "vm_pool_test_util.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PIECE GP_FILE_PIECE_BYTES_MAX

static uint8_t bytes[2 * PIECE];
static struct vm_file file;
static bool is_given_up;

static void ask(struct seen *s)
{
	assert_int_equal(vm_file(s->vm, 1, &file), 0);
	assert_int_equal(vm_file(s->vm, 2, &file), -EBUSY);
	if (is_given_up)
		vm_file_give_up(s->vm);
}

static void asks(enum gp_file_op op, size_t data_len)
{
	file = (struct vm_file){.op = op,
				.path = "a",
				.path_len = 1,
				.limit = 3,
				.data = bytes,
				.data_len = data_len,
				.timeout_ms = 100};
	is_given_up = false;
}

/* From its start without a command, to its end. */
static struct seen ended(const char *script, struct seen s)
{
	struct err e = {0};

	s.on_bind = ask;
	entry_put(script);
	assert_int_equal(vm_create(&s.vm, lnk, &test_spec, &ops, &s, &e), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s.gone, 1);
	return s;
}

static void test_good(void **state)
{
	struct seen s;

	(void)state;
	asks(GP_FILE_READ, 0);
	s = ended("b/^.", (struct seen){0});
	assert_int_equal(s.file_done, 1);
	assert_int_equal(s.file_how, GP_FILE_OK);
	assert_string_equal(s.result, "abc");
	assert_int_equal(s.why, END_NONE);
	/* A write that fits into one frame, and one that does not. */
	asks(GP_FILE_WRITE, PIECE);
	s = ended("b/.", (struct seen){0});
	assert_int_equal(s.file_how, GP_FILE_OK);
	asks(GP_FILE_WRITE, 2 * PIECE);
	s = ended("b/,;.", (struct seen){0});
	assert_int_equal(s.file_how, GP_FILE_OK);
}

static void test_hostile(void **state)
{
	static const struct {
		enum gp_file_op op;
		size_t data_len;
		const char *script, *text;
		enum end_reason why;
	} t[] = {
		{GP_FILE_READ, 0, "b/h", "did not end a call on files",
		 END_VM_LOST},
		{GP_FILE_WRITE, 2 * PIECE, "b/,;h",
		 "did not end a call on files", END_VM_LOST},
		{GP_FILE_READ, 0, "b/x", "killed by signal 9", END_VM_LOST},
		{GP_FILE_WRITE, 2 * PIECE, "b/,x", "killed by signal 9",
		 END_VM_LOST},
		{GP_FILE_READ, 0, "b/ch", "channel was closed", END_VM_LOST},
		{GP_FILE_READ, 0, "b/^^h", "a gap in a file",
		 END_GUEST_PROTOCOL},
		{GP_FILE_READ, 0, "b/,h", "no piece is left",
		 END_GUEST_PROTOCOL},
		{GP_FILE_WRITE, PIECE, "b/,h", "no piece is left",
		 END_GUEST_PROTOCOL},
		{GP_FILE_WRITE, 2 * PIECE, "b/.h", "before all of it",
		 END_GUEST_PROTOCOL},
		{GP_FILE_DELETE, 0, "b/^h", "none were asked",
		 END_GUEST_PROTOCOL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct seen s;

		asks(t[i].op, t[i].data_len);
		s = ended(t[i].script, (struct seen){0});
		if (!strstr(s.text, t[i].text) || s.why != t[i].why ||
		    s.file_done)
			fail_msg("%s: %d %s", t[i].script, (int)s.why, s.text);
	}
}

/* What is gone is not read any more: the guest hears of it by an empty piece
 * (the script waits for that, and no byte of `bytes` may be touched). */
static void test_given_up(void **state)
{
	struct seen s;

	(void)state;
	asks(GP_FILE_WRITE, 2 * PIECE);
	is_given_up = true;
	s = ended("b/,;.", (struct seen){0});
	assert_int_equal(s.file_done, 1);
	is_given_up = false;
}

/* ---- piece by piece -------------------------------------------------------
 */

static uint64_t n_pieces, n_bytes;

static void give_piece(struct seen *s, size_t len)
{
	n_pieces++;
	/* Neither more nor less, nor to another one. */
	assert_int_equal(vm_file_piece(s->vm, 1, bytes, len + 1), -EINVAL);
	assert_int_equal(vm_file_piece(s->vm, 1, bytes, len - 1), -EINVAL);
	assert_int_equal(vm_file_piece(s->vm, 2, bytes, len), -EINVAL);
	assert_int_equal(vm_file_piece(s->vm, 1, bytes, len), 0);
	assert_int_equal(vm_file_piece(s->vm, 1, bytes, len), -EINVAL);
	n_bytes += len;
}

static void give_up(struct seen *s, size_t len)
{
	(void)len;
	n_pieces++;
	vm_file_give_up(s->vm);
}

static void give_none(struct seen *s, size_t len)
{
	(void)s;
	(void)len;
	n_pieces++;
}

static void asks_more(uint64_t more)
{
	asks(GP_FILE_WRITE, 0);
	file.data = NULL;
	file.more = more;
	n_pieces = n_bytes = 0;
}

static void test_pieces(void **state)
{
	struct seen s;

	(void)state;
	asks_more(2 * PIECE + 5);
	s = ended("b/,;,;,;.", (struct seen){.on_more = give_piece});
	assert_int_equal(s.file_how, GP_FILE_OK);
	assert_int_equal(n_pieces, 3);
	assert_int_equal(n_bytes, 2 * PIECE + 5);
	/* Given up when it is asked for, and before that: an empty piece. */
	asks_more(PIECE);
	s = ended("b/,;.", (struct seen){.on_more = give_up});
	assert_int_equal(s.file_done, 1);
	assert_int_equal(n_pieces, 1);
	asks_more(PIECE);
	is_given_up = true;
	s = ended("b/,;.", (struct seen){.on_more = give_up});
	assert_int_equal(s.file_done, 1);
	assert_int_equal(n_pieces, 0);
	is_given_up = false;
	/* The VM goes while one is awaited. */
	asks_more(PIECE);
	s = ended("b/,x", (struct seen){.on_more = give_none});
	assert_int_equal(s.why, END_VM_LOST);
	assert_int_equal(n_pieces, 1);
	asks_more(PIECE);
	s = ended("b/,;,h", (struct seen){.on_more = give_piece});
	assert_int_equal(s.why, END_GUEST_PROTOCOL);
}

/* No stop while one is under way; after it, one. */
static void ask_and_stop(struct seen *s)
{
	ask(s);
	assert_int_equal(vm_stop(s->vm), -EBUSY);
}

static void test_stop(void **state)
{
	struct seen s = {.stop_on_file = 1, .on_bind = ask_and_stop};
	struct err e = {0};

	(void)state;
	asks(GP_FILE_READ, 0);
	entry_put("b/^.?zz");
	assert_int_equal(vm_create(&s.vm, lnk, &test_spec, &ops, &s, &e), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s.file_done, 1);
	assert_int_equal(s.rc, 0);
	assert_int_equal(s.stopped, 1);
	assert_string_equal(s.error, "");
}

/* ---- the lane -------------------------------------------------------------
 */

static struct pooled *pooled;

static void ask_pooled(struct seen *s)
{
	(void)s;
	assert_int_equal(vm_file(pooled->vm, 1, &file), 0);
}

static void claim_and_ask(struct pooled *p)
{
	pooled = p;
	p->run.on_bind = ask_pooled;
	pooled_claim(p);
	p->run.destroy_on_end = 0; /* but when the call is done */
}

/*
 * Asked for while a run goes by the lane: the run is adopted, and the call goes
 * by the channel; when the run answered just then, its VM is parked, and is
 * woken up for the call.
 */
static void test_lane(void **state)
{
	struct pooled a = {.then = claim_and_ask}, b = a;

	(void)state;
	asks(GP_FILE_READ, 0);
	pooled_play(&a, "Ny1zyqvA/s^.");
	assert_int_equal(a.run.file_done, 1);
	assert_int_equal(a.run.started, 1);
	assert_string_equal(a.run.result, "abc");
	pooled_play(&b, "Ny1zyqmVz/^.");
	assert_int_equal(b.run.ended, 1);
	assert_int_equal(b.run.file_done, 1);
	assert_string_equal(b.run.result, "abc");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, link_remove)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_good),   TEST(test_hostile), TEST(test_given_up),
		TEST(test_pieces), TEST(test_stop),    TEST(test_lane),
	};

	(void)argc;
	if (!vmm_find(argv[0]))
		return 77;
	return cmocka_run_group_tests_name("vm_file", tests, NULL, NULL);
}
