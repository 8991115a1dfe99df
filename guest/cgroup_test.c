/*
 * Control groups on an ordinary folder: names, texts and the reuse of slots.
 * What the kernel does with them is tested in a guest (tests/guest).
 */
#include "cgroup.c"
#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static void put(const char *dir, const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void get(const char *dir, const char *name, char *text, size_t cap)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "r");
	assert_non_null(f);
	text[fread(text, 1, cap - 1, f)] = 0;
	fclose(f);
}

/* A folder with the files that the kernel would show. */
static void tree_make(char *root)
{
	static const char *const dirs[] = {"", "prep", "user", "user/c0",
					   "user/c1"};
	static const char *const files[] = {
		"cgroup.subtree_control",
		"cgroup.procs",
		"cgroup.kill",
		"cgroup.events",
		"memory.max",
		"pids.max",
		"cpu.idle",
		"cpu.stat",
		"memory.oom.group",
		"memory.events",
		"memory.peak",
	};

	assert_non_null(mkdtemp(root));
	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++) {
		char dir[256];

		snprintf(dir, sizeof(dir), "%s/%s", root, dirs[i]);
		mkdir(dir, 0755);
		for (size_t k = 0; k < sizeof(files) / sizeof(*files); k++)
			put(dir, files[k], "");
	}
}

static void tree_remove(const char *root)
{
	char cmd[256];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", root);
	assert_int_equal(system(cmd), 0);
}

static void values(void **state)
{
	static const char text[] =
		"low 0\noom 3\noom_kill 7\noom_group_kill 1\n"
		"usage_usec 18446744073709551615\n";
	uint64_t v = 99;

	(void)state;
	assert_true(cgroup_value(text, "oom_kill", &v));
	assert_int_equal(v, 7);
	assert_true(cgroup_value(text, "oom", &v));
	assert_int_equal(v, 3);
	assert_true(cgroup_value(text, "low", &v));
	assert_int_equal(v, 0);
	assert_true(cgroup_value(text, "usage_usec", &v));
	assert_true(v == UINT64_MAX);
	assert_false(cgroup_value(text, "kill", &v));
	assert_false(cgroup_value("", "low", &v));
	assert_false(cgroup_value("low", "low", &v));
}

static void slots(void **state)
{
	char root[] = "/tmp/cgroup_test.XXXXXX", text[64], why[128], c0[64];
	struct cgroups c;
	struct slot_use u;

	(void)state;
	tree_make(root);
	snprintf(c0, sizeof(c0), "%s/user/c0", root);
	assert_int_equal(cgroups_init(&c, root, 2, why, sizeof(why)), 0);
	get(root, "cgroup.subtree_control", text, sizeof(text));
	assert_string_equal(text, "+cpu +memory +pids");
	get(c0, "memory.oom.group", text, sizeof(text));
	assert_string_equal(text, "1");
	assert_int_equal(cgroups_limit(&c, 268435456, 64), 0);
	get(root, "user/memory.max", text, sizeof(text));
	assert_string_equal(text, "268435456");

	assert_int_equal(slot_take(&c), 0);
	assert_int_equal(slot_take(&c), 1);
	assert_int_equal(slot_take(&c), -EAGAIN);
	put(c0, "cgroup.events", "populated 1\nfrozen 0\n");
	slot_leave(&c.slots[0]);
	assert_int_equal(slot_take(&c), -EAGAIN); /* someone lives there */
	put(c0, "cgroup.events", "populated 0\nfrozen 0\n");
	assert_int_equal(slot_take(&c), 0);

	put(c0, "cpu.stat", "usage_usec 9\nuser_usec 5\nsystem_usec 4\n");
	put(c0, "memory.events", "oom_kill 2\n");
	slot_mark(&c.slots[0]);
	put(c0, "cpu.stat", "usage_usec 90\nuser_usec 55\nsystem_usec 44\n");
	put(c0, "memory.peak", "4096\n");
	u = slot_read(&c.slots[0]);
	assert_int_equal(u.user_us, 50);
	assert_int_equal(u.sys_us, 40);
	assert_int_equal(u.rss_bytes, 4096);
	assert_int_equal(c.slots[0].oom_kills, 2);
	assert_int_equal(slot_kill(&c.slots[0]), 0);
	get(c0, "cgroup.kill", text, sizeof(text));
	assert_string_equal(text, "1");
	tree_remove(root);
}

/* A pid whose line was cut must not be signalled. */
static void signal_whole_lines_only(void **state)
{
	char root[] = "/tmp/cgroup_test.XXXXXX", why[128], c0[64];
	char text[FILE_BYTES_MAX * 2], line[32];
	struct cgroups c;
	int status;
	pid_t pid;

	(void)state;
	tree_make(root);
	snprintf(c0, sizeof(c0), "%s/user/c0", root);
	assert_int_equal(cgroups_init(&c, root, 1, why, sizeof(why)), 0);
	pid = fork();
	if (!pid) {
		for (;;)
			pause();
	}
	/* The child's number without its line feed. */
	snprintf(line, sizeof(line), "%d", pid);
	put(c0, "cgroup.procs", line);
	slot_signal(&c.slots[0], SIGTERM);
	usleep(20000);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	snprintf(text, sizeof(text), "%d\n", pid);
	put(c0, "cgroup.procs", text);
	slot_signal(&c.slots[0], SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	tree_remove(root);
}

static void missing_root(void **state)
{
	struct cgroups c;
	char why[128];

	(void)state;
	assert_int_equal(
		cgroups_init(&c, "/nowhere/at/all", 1, why, sizeof(why)),
		-ENOENT);
	assert_non_null(strstr(why, "/nowhere/at/all"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values),
		cmocka_unit_test(slots),
		cmocka_unit_test(signal_whole_lines_only),
		cmocka_unit_test(missing_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
