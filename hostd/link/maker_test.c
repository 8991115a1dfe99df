/*
 * Making templates with a process that plays the VM: the whole way from no
 * cache to a run, and each way that it can fail.
 */
#include "../clock.h"
#include "fd.h"
#include "link_test_util.h"
#include "template_priv.h"
#include "vm.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>

static const struct shape shape = {
	.base = "lbb/python", .vcpus = 1, .ram_mib = 256};

struct seen {
	unsigned progress, done, ended;
	struct err e;
	char last[256];
	bool has_guest_text;
	struct vm *vm;
};

static int open_again(void)
{
	if (link_open())
		return -1;
	lnk->times = (struct link_times){.bind_ms = 500,
					 .start_ms = 500,
					 .overrun_ms = 500,
					 .hello_ms = 500,
					 .prepare_ms = 500,
					 .snapshot_ms = 500};
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return folder_make() ? -1 : open_again();
}

static void on_progress(void *ctx, const char *text)
{
	struct seen *s = ctx;

	s->progress++;
	snprintf(s->last, sizeof(s->last), "%s", text);
	if (strstr(text, "importing things"))
		s->has_guest_text = true;
}

static void on_done(void *ctx, const struct err *e)
{
	struct seen *s = ctx;

	s->done++;
	if (e)
		s->e = *e;
	loop_stop(loop);
}

static void prepare(const char *script, struct seen *s)
{
	if (script)
		file_put("vmlinux", script);
	assert_int_equal(template_prepare(lnk, &shape, on_progress, on_done, s),
			 0);
	assert_int_equal(s->done, 0); /* never from within */
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s->done, 1);
	assert_int_equal(lnk->n_making, 0);
}

static unsigned entries(void)
{
	return cache_entries("");
}

static unsigned entries_new(void)
{
	return cache_entries(".new-");
}

/* ---- a run in what was made ------------------------------------------------
 */

static void on_vm_event(void *ctx)
{
	(void)ctx;
}

static void on_vm_started(void *ctx, uint64_t cmd)
{
	(void)ctx;
	(void)cmd;
}

static void on_vm_output(void *ctx, uint64_t cmd, int stream, uint64_t offset,
			 uint64_t total, const uint8_t *data, size_t len)
{
	(void)ctx;
	(void)cmd;
	(void)stream;
	(void)offset;
	(void)total;
	(void)data;
	(void)len;
}

static void on_vm_ended(void *ctx, uint64_t cmd, const struct vm_end *end)
{
	struct seen *s = ctx;

	(void)cmd;
	assert_int_equal(end->result_len, 1);
	s->ended++;
	vm_destroy(s->vm);
}

static void on_vm_gone(void *ctx, enum end_reason why, const char *text)
{
	struct seen *s = ctx;

	s->done++;
	if (why)
		err_set(&s->e, ERR_INTERNAL, NULL, "%d %s", (int)why, text);
	loop_stop(loop);
}

static const struct vm_ops vm_ops = {
	.progress = on_progress,
	.bound = on_vm_event,
	.started = on_vm_started,
	.output = on_vm_output,
	.ended = on_vm_ended,
	.gone = on_vm_gone,
};

/* vm_create makes what is not there, then runs. */
static void run(const char *script, struct seen *s)
{
	static const struct vm_spec spec = {.base = "lbb/python",
					    .limits = {1, 128, 256},
					    .sandbox = "sbx_test"};
	struct vm_run r = {.code = "x", .code_len = 1, .timeout_ms = 1000};

	file_put("vmlinux", script);
	assert_int_equal(vm_create(&s->vm, lnk, &spec, &vm_ops, s, &s->e), 0);
	assert_int_equal(vm_run(s->vm, 1, &r), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s->done, 1);
}

static void stop_now(void *arg)
{
	loop_stop(arg);
}

static void turn_once(void)
{
	assert_int_equal(loop_post(loop, stop_now, loop), 0);
	assert_int_equal(loop_run(loop), 0);
}

/* ---- cases ------------------------------------------------------------ */

static void test_made(void **state)
{
	struct seen s = {0}, again = {0}, r = {0};

	(void)state;
	file_put("vmlinux", "HPRzz");
	assert_false(template_is_ready(lnk, &shape));
	prepare(NULL, &s);
	assert_int_equal(s.e.code, ERR_NONE);
	assert_true(s.progress >= 6);
	assert_true(s.has_guest_text);
	assert_true(template_is_ready(lnk, &shape));
	assert_int_equal(entries(), 1);
	/* Ready: nothing is made. */
	prepare("HPRzz", &again);
	assert_int_equal(again.progress, 0);
	run("HPRzz", &r);
	assert_int_equal(r.e.code, ERR_NONE);
	assert_int_equal(r.ended, 1);
	assert_int_equal(template_verify(lnk, &shape, &r.e), 0);
}

/* The template of this script; does it know what its first run touched? */
static bool has_touched(const char *script)
{
	struct template *t;
	struct seen s = {0};
	char path[300], text[8] = "";
	bool is_there;
	int fd;

	template_get(lnk, &shape, &t);
	t->state = TPL_IDLE;
	prepare(script, &s);
	if (s.e.code != ERR_NONE)
		fail_msg("script %s: '%s'", script, s.e.text);
	snprintf(path, sizeof(path), "%s/cache/snapshots/%s/touched", folder,
		 t->key);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	is_there = fd >= 0;
	assert_int_equal(t->files.touched_fd >= 0, is_there);
	if (is_there)
		assert_int_equal(read(fd, text, sizeof(text) - 1), 5);
	assert_string_equal(text, is_there ? "pages" : "");
	fd_close(&fd);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	return is_there;
}

/* A first run is looked at where there is a lane; without it all goes on. */
static void test_first_run(void **state)
{
	static const char *const without[] = {
		"HPRzz:Ny45z",	   /* made without a lane */
		"HP+ayzz:brsoE",   /* restored without one */
		"HP+ayzz:Ny45Z",   /* the VMM refuses */
		"HP+ayzz:Ny45h",   /* and says nothing */
		"HP+ayzz:Ny45x",   /* dies */
		"HP+ayzz:Ny4h",	   /* no answer */
		"HP+ayzz:NyI",	   /* the run is refused */
		"HP+ayzz:NT",	   /* out of turn */
		"HP+ayzz:Ny4T",	   /* no end */
		"HP+ayzz:Ny455zh", /* two answers */
		"HP+ayzz:Nh",	   /* not at its bell */
		"HP+ayzz:S",	   /* cannot be restored */
	};
	unsigned before = entries();

	(void)state;
	assert_true(has_touched("HP+ayzz:Ny45z"));
	for (size_t i = 0; i < sizeof(without) / sizeof(*without); i++)
		if (has_touched(without[i]))
			fail_msg("script %s", without[i]);
	assert_int_equal(entries(),
			 before + 1 + sizeof(without) / sizeof(*without));
	assert_int_equal(entries_new(), 0);
}

/* Another kernel is another template; a run waits for it. */
static void test_run_makes(void **state)
{
	struct template *t;
	struct seen r = {0};

	(void)state;
	template_get(lnk, &shape, &t);
	t->state = TPL_IDLE;
	run("HP+ayzz\nanother", &r); /* with a lane */
	assert_int_equal(r.e.code, ERR_NONE);
	assert_int_equal(r.ended, 1);
	assert_true(r.progress > 0);
	assert_int_equal(entries(), 2);
}

static void test_fails(void **state)
{
	static const struct {
		const char *script, *text;
	} t[] = {
		{"h", "booting the guest kernel: no progress in time"},
		{"Hh", "preparing the guest: no progress in time"},
		{"HPQ", "the guest says: no disk"},
		{"HP+ah", "rehearsing a run: no progress in time"},
		{"HP+aYh", "the VMM spoke of lane 4 out of turn"},
		{"HP+aTh", "the VMM spoke of lane 0 out of turn"},
		{"HPRyh", "the VMM spoke of lane 0 out of turn"},
		{"HPRh", "pausing the VM: no progress in time"},
		{"HPRZ", "the VMM refused"},
		{"HPRzZ", "writing the snapshot: the VMM refused"},
		{"Lg", "triple fault"},
		{"Lg", "the guest's log ended with"},
		{"Lg", "Kernel panic?[0m"},
		{"x", "killed by signal 9"},
		{"Hx", "killed by signal 9"},
		{"HPx", "killed by signal 9"},
		{"HP+ax", "killed by signal 9"},
		{"HPRx", "killed by signal 9"},
		{"HPRzx", "killed by signal 9"},
		{"HH", "may not come now"},
		{"s", "may not come now"},
	};
	struct template *tpl;
	unsigned before = entries();

	(void)state;
	template_get(lnk, &shape, &tpl);
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct seen s = {0};

		tpl->state = TPL_IDLE;
		prepare(t[i].script, &s);
		if (s.e.code == ERR_NONE || !strstr(s.e.text, t[i].text))
			fail_msg("script %s: '%s'", t[i].script, s.e.text);
		if (strncmp(s.e.text, "preparing lbb/python with", 25) != 0)
			fail_msg("no context: '%s'", s.e.text);
		/* Nothing is left behind. */
		assert_int_equal(entries(), before);
	}
}

/* A run whose template cannot be made hears why. */
static void test_run_fails(void **state)
{
	struct seen r = {0};

	(void)state;
	run("HPQ", &r);
	assert_non_null(strstr(r.e.text, "no disk"));
	assert_int_equal(r.ended, 0);
}

static void test_damage_is_made_anew(void **state)
{
	struct seen s = {0}, r = {0};
	struct template *t;
	char path[300];
	struct err e = {0};
	int fd;

	(void)state;
	template_get(lnk, &shape, &t);
	t->state = TPL_IDLE;
	prepare("HPRzz", &s);
	assert_int_equal(s.progress, 0); /* it is in the cache */
	snprintf(path, sizeof(path), "%s/cache/snapshots/%s/mem", folder,
		 t->key);
	assert_int_equal(chmod(path, 0600), 0);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fd_pwrite_all(fd, "x", 1, 777), 0);
	close(fd);
	assert_int_equal(template_verify(lnk, &shape, &e), -1);
	assert_non_null(strstr(e.text, "damaged"));
	/* Noticed by the daemon that has it open, too. */
	assert_false(template_is_ready(lnk, &shape));
	run("HPRzz", &r);
	assert_int_equal(r.ended, 1);
	assert_true(r.progress > 0);
	assert_int_equal(template_verify(lnk, &shape, &e), 0);
}

/* Another process makes it: we wait, and take what it made. */
static void test_waits_for_the_lock(void **state)
{
	struct cache c = {lnk->cache_fd, &lnk->hashes};
	struct seen s = {0};
	struct template *t;
	struct err e = {0};
	int64_t from;
	int lock = -1;
	pid_t pid;

	(void)state;
	template_get(lnk, &shape, &t);
	t->state = TPL_IDLE;
	file_put("vmlinux", "HPRzz\nlocked");
	/* Learn the key, then hold its lock for a while in another process. */
	assert_false(template_is_ready(lnk, &shape));
	s.done = 0;
	while (t->state == TPL_CHECKING)
		turn_once();
	assert_int_equal(cache_lock(&c, t->key, &lock, &e), 0);
	pid = fork();
	if (pid == 0) {
		usleep(300000);
		_exit(0);
	}
	fd_close(&lock); /* the child still has it */
	from = clock_mono_ms();
	prepare("HPRzz\nlocked", &s);
	assert_int_equal(s.e.code, ERR_NONE);
	assert_true(clock_mono_ms() - from >= 250);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static unsigned n_parsed;

json_t *__real_json_load_file(const char *path, size_t flags,
			      json_error_t *error);
json_t *__wrap_json_load_file(const char *path, size_t flags,
			      json_error_t *error);
json_t *__wrap_json_load_file(const char *path, size_t flags,
			      json_error_t *error)
{
	n_parsed++;
	return __real_json_load_file(path, flags, error);
}

static unsigned parses_of(unsigned n_runs, uint8_t image[HASH_BYTES])
{
	uint8_t kernel[HASH_BYTES];

	n_parsed = 0;
	for (unsigned i = 0; i < n_runs; i++)
		assert_int_equal(
			template_hashes(lnk, "lbb/python", image, kernel), 0);
	return n_parsed;
}

/* images.json is parsed once, not once a run; a new one is seen at once. */
static void test_hashes_are_remembered(void **state)
{
	static const char other[] =
		"{\"python\": {\"path\": \"root\", \"bytes\": 3, "
		"\"sha256\": \"000816bf8f01cfea414140de5dae2223"
		"b00361a396177a9cb410ff61f20015ad\"}}";
	static const uint8_t old[] = {0xba, 0x78}, new[] = {0, 0x08};
	uint8_t image[HASH_BYTES];

	(void)state;
	file_put("images.json", IMAGES);
	parses_of(1, image);
	assert_memory_equal(image, old, 2);
	/* Written again at once: the same size, perhaps the same times. */
	file_put("images.json", other);
	parses_of(3, image);
	assert_memory_equal(image, new, 2);
	file_put("images.json", IMAGES);
	sleep(3); /* its times are old enough to tell it from a later one */
	assert_int_equal(parses_of(100, image), 1);
	assert_memory_equal(image, old, 2);
	file_put("images.json", other);
	parses_of(1, image);
	assert_memory_equal(image, new, 2);
	file_put("images.json", "[");
	assert_int_not_equal(template_hashes(lnk, "lbb/python", image, image),
			     0);
	file_put("images.json", IMAGES);
	parses_of(1, image);
	assert_memory_equal(image, old, 2);
}

/* The daemon ends in each phase: nothing hangs, nothing is left. */
static void test_end_while_making(void **state)
{
	static const char *const scripts[] = {"h",     "Hh",	"HPRh",
					      "HPRzh", "HPRzz", "HP+ayzz:Nyh"};

	(void)state;
	for (int i = 0; i < 20; i++) {
		struct seen s = {0};
		struct template *t;
		int64_t until;
		char text[40];

		snprintf(text, sizeof(text), "%s\n%d", scripts[i % 6], i);
		file_put("vmlinux", text);
		template_get(lnk, &shape, &t);
		t->state = TPL_IDLE;
		assert_int_equal(
			template_prepare(lnk, &shape, on_progress, on_done, &s),
			0);
		until = clock_mono_ms() + i * 4;
		while (!s.done && clock_mono_ms() < until)
			turn_once();
		link_destroy(lnk);
		loop_destroy(loop);
		assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
		assert_int_equal(open_again(), 0);
	}
	assert_int_equal(entries_new(), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_made),
		cmocka_unit_test(test_run_makes),
		cmocka_unit_test(test_fails),
		cmocka_unit_test(test_run_fails),
		cmocka_unit_test(test_first_run),
		cmocka_unit_test(test_damage_is_made_anew),
		cmocka_unit_test(test_waits_for_the_lock),
		cmocka_unit_test(test_hashes_are_remembered),
		cmocka_unit_test(test_end_while_making),
	};

	(void)argc;
	if (!maker_can(argv[0]))
		return 77;
	return cmocka_run_group_tests(tests, setup, link_remove);
}
