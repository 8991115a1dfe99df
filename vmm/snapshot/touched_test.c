/* The working set: what is recorded, what of a file is believed, what is done
 * with it. */
#include "touched.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE	  PAGEMAP_PAGE_BYTES
#define RAM_BYTES (8ull << 20)
/* The file lies over the second block of 2 MiB, the rest is anonymous. */
#define FILE_AT	   (2ull << 20)
#define FILE_BYTES (2ull << 20)

static const struct extent over = {FILE_AT, FILE_BYTES};
static const uint8_t sum[SHA256_BYTES] = {1, 2, 3};
static struct mem m;
static int mem_fd, pagemap;

static uint64_t entry(uint64_t off)
{
	uint64_t pm = 0;

	assert_int_equal(pagemap_read(pagemap, &m, off, &pm, 1), 0);
	return pm;
}

static int up(void **state)
{
	char name[] = "touched-test-XXXXXX";
	void *at;

	(void)state;
	mem_fd = mkstemp(name);
	assert_true(mem_fd >= 0);
	unlink(name);
	assert_int_equal(ftruncate(mem_fd, (off_t)RAM_BYTES), 0);
	for (uint64_t off = 0; off < FILE_BYTES; off += PAGE)
		assert_int_equal(fd_pwrite_all(mem_fd, &off, sizeof(off),
					       (off_t)(FILE_AT + off)),
				 0);
	assert_int_equal(fsync(mem_fd), 0);
	assert_int_equal(mem_init(&m, RAM_BYTES), 0);
	at = m.host + FILE_AT;
	assert_ptr_equal(mmap(at, FILE_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_FIXED, mem_fd, (off_t)FILE_AT),
			 at);
	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	assert_true(pagemap >= 0);
	return 0;
}

static int down(void **state)
{
	(void)state;
	mem_finish(&m);
	close(mem_fd);
	close(pagemap);
	return 0;
}

static bool has(const struct touched_run *run, uint32_t n, uint64_t off)
{
	for (uint32_t i = 0; i < n; i++)
		if (off >= run[i].off && off - run[i].off < run[i].len)
			return true;
	return false;
}

static int file_of(const struct touched *t)
{
	int fd = memfd_create("touched", MFD_CLOEXEC);
	struct err e = {0};

	assert_true(fd >= 0);
	assert_int_equal(sealed_write(fd, &touched_kind, t, &e), 0);
	return fd;
}

static void records_what_was_touched(void **state)
{
	static struct touched t;
	const uint64_t read_at = FILE_AT + 100 * PAGE;
	const uint64_t written_at = FILE_AT + 300 * PAGE;
	const uint64_t fresh_at = 5 * PAGE, zeros_at = 9 * PAGE;
	int fd = memfd_create("touched", MFD_CLOEXEC);
	struct err e = {0};

	(void)state;
	assert_true(*(volatile uint64_t *)(m.host + read_at) == 100 * PAGE);
	*(volatile uint64_t *)(m.host + written_at) = 1;
	*(volatile uint64_t *)(m.host + fresh_at) = 1;
	assert_true(*(volatile uint64_t *)(m.host + zeros_at) == 0);
	assert_int_equal(touched_write(&m, pagemap, &over, 1, sum, fd, &e), 0);
	assert_int_equal(touched_read(fd, &m, sum, &t, &e), 0);
	assert_true(has(t.all, t.n_all, read_at));
	assert_true(has(t.all, t.n_all, written_at));
	assert_false(has(t.all, t.n_all, FILE_AT + 511 * PAGE));
	/* No page of a hole is asked for: it would fill the page cache. */
	assert_false(has(t.all, t.n_all, fresh_at));
	assert_true(has(t.own, t.n_own, written_at));
	assert_true(has(t.own, t.n_own, fresh_at));
	assert_false(has(t.own, t.n_own, read_at));
	assert_false(has(t.own, t.n_own, zeros_at));
	close(fd);
}

/* More runs than a file has room for: gaps are filled, nothing is lost. */
static void many_runs_are_joined(void **state)
{
	static struct touched t;
	const size_t n = RAM_BYTES / PAGE;
	struct runs l = {.run = t.all, .bytes_max = 2 * n * PAGE};

	(void)state;
	for (size_t i = 0; i < TOUCHED_RUNS_MAX; i++)
		assert_int_equal(runs_add(&l, 2 * i * PAGE), 0);
	assert_int_equal(runs_add(&l, 2ull * TOUCHED_RUNS_MAX * PAGE), -E2BIG);
	l = (struct runs){.run = t.all, .gap = PAGE, .bytes_max = 64 * PAGE};
	for (size_t i = 0; i < n / 2; i++)
		assert_int_equal(runs_add(&l, 2 * i * PAGE), 0);
	assert_int_equal(l.n, 1);
	assert_int_equal(t.all[0].len, 63 * PAGE); /* and no more than that */
}

static void refuses(const struct touched *t, const char *why)
{
	static struct touched back;
	struct err e = {0};
	int fd = file_of(t);

	assert_int_equal(touched_read(fd, &m, sum, &back, &e), -1);
	if (!strstr(e.text, why))
		fail_msg("'%s' is not in '%s'", why, e.text);
	close(fd);
}

static void refuses_what_cannot_be(void **state)
{
	static const struct touched_run bad[][2] = {
		{{1, PAGE}},
		{{0, PAGE + 1}},
		{{0, 0}},
		{{RAM_BYTES, PAGE}},
		{{RAM_BYTES - PAGE, 2 * PAGE}},
		{{UINT64_MAX - PAGE + 1, PAGE}},
		{{0, UINT64_MAX - PAGE + 1}},
		{{PAGE, PAGE}, {PAGE, PAGE}},
		{{4 * PAGE, PAGE}, {PAGE, PAGE}},
		{{0, 3 * PAGE}, {2 * PAGE, PAGE}},
	};
	static struct touched t;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint32_t n = bad[i][1].len ? 2 : 1;

		memset(&t, 0, sizeof(t));
		memcpy(t.mem_sum, sum, sizeof(sum));
		t.n_all = n;
		memcpy(t.all, bad[i], sizeof(bad[i]));
		refuses(&t, "its runs");
		t.n_all = 0;
		t.n_own = n;
		memcpy(t.own, bad[i], sizeof(bad[i]));
		refuses(&t, "its runs");
	}
	memset(&t, 0, sizeof(t));
	refuses(&t, "another memory file");
}

static void refuses_too_much_of_its_own(void **state)
{
	static struct touched t = {.n_own = 1};
	struct mem large = {.size = 2 * TOUCHED_OWN_BYTES_MAX};
	struct mem was = m;

	(void)state;
	memcpy(t.mem_sum, sum, sizeof(sum));
	t.own[0] = (struct touched_run){0, TOUCHED_OWN_BYTES_MAX + PAGE};
	m = large;
	refuses(&t, "its runs");
	m = was;
}

static void do_work(int fd)
{
	struct touched_work w = {
		.fd = fd, .mem_fd = mem_fd, .mem = &m, .mem_sum = sum};

	touched_start(&w);
	touched_wait(&w);
	assert_false(w.is_running);
}

static bool is_in_cache(uint64_t off)
{
	return is_cached(mem_fd, off);
}

static void gets_what_was_touched(void **state)
{
	static struct touched t = {.n_all = 1, .n_own = 1};
	const uint64_t own_at = FILE_AT + 17 * PAGE;
	int fd;

	(void)state;
	memcpy(t.mem_sum, sum, sizeof(sum));
	t.all[0] = (struct touched_run){FILE_AT + 64 * PAGE, 64 * PAGE};
	t.own[0] = (struct touched_run){own_at, 3 * PAGE};
	fd = file_of(&t);
	assert_false(pagemap_is_there(entry(own_at)));
	assert_int_equal(posix_fadvise(mem_fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	if (is_in_cache(t.all[0].off)) {
		print_message("# this file system keeps its pages: reads ahead "
			      "are not seen\n");
	} else {
		do_work(fd);
		/* Asked for; it comes by itself. */
		for (int i = 0; i < 500 && !is_in_cache(t.all[0].off); i++)
			usleep(10000);
		assert_true(is_in_cache(t.all[0].off));
	}
	do_work(fd);
	for (uint64_t i = 0; i < 3; i++) {
		assert_true(pagemap_is_own(entry(own_at + i * PAGE)));
		/* A copy: its bytes are those of the file. */
		assert_int_equal(
			*(uint64_t *)(void *)(m.host + own_at + i * PAGE),
			(17 + i) * PAGE);
	}
	assert_false(pagemap_is_there(entry(FILE_AT + 200 * PAGE)));
	close(fd);
}

static void bad_or_none_is_no_harm(void **state)
{
	int fd = memfd_create("touched", MFD_CLOEXEC);

	(void)state;
	do_work(-1);
	do_work(fd); /* empty */
	assert_int_equal(fd_pwrite_all(fd, "no such thing", 13, 0), 0);
	do_work(fd);
	close(fd);
	for (uint64_t off = 0; off < RAM_BYTES; off += PAGE)
		assert_false(pagemap_is_there(entry(off)));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(records_what_was_touched),
		CASE(many_runs_are_joined),
		CASE(refuses_what_cannot_be),
		CASE(refuses_too_much_of_its_own),
		CASE(gets_what_was_touched),
		CASE(bad_or_none_is_no_harm),
	};
	const char *tmp = getenv("TMPDIR");

	if (tmp && chdir(tmp) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
