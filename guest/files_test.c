/*
 * Calls on the workspace, frames in and frames out: what is read, written,
 * listed and deleted, and what is refused.
 */
#include "files.c"
#include "session_fixture.h"
// clang-format off
#include "files_fixture.h"
// clang-format on
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/wait.h>

static void written_and_read(void **state)
{
	struct fixture *f = *state;
	struct got got;
	struct stat st;

	assert_int_equal(put(f, "a.txt", "hello"), GP_FILE_OK);
	expect_text("a.txt", "hello");
	assert_int_equal(stat(at("a.txt"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	/* What it was stays for who has it open; its mode stays. */
	assert_int_equal(chmod(at("a.txt"), 0750), 0);
	assert_int_equal(put(f, "a.txt", "new"), GP_FILE_OK);
	expect_text("a.txt", "new");
	assert_int_equal(stat(at("a.txt"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0750);
	assert_int_equal(put(f, "empty", ""), GP_FILE_OK);
	got = call(f, (struct ask){.op = GP_FILE_READ, .path = "empty"});
	assert_int_equal(got.how, GP_FILE_OK);
	assert_int_equal(got.data.len, 0);
	got = call(f, (struct ask){.op = GP_FILE_READ,
				   .path = "a.txt",
				   .offset = 1,
				   .limit = 1});
	assert_int_equal(got.data.len, 1);
	assert_int_equal(got.data.data[0], 'e');
	assert_int_equal(got.size, 3);
	bytes_finish(&got.data);
	got = call(f, (struct ask){.op = GP_FILE_READ,
				   .path = "a.txt",
				   .offset = 1000,
				   .limit = 5});
	assert_int_equal(got.how, GP_FILE_OK);
	assert_int_equal(got.data.len, 0);
	assert_int_equal(got.size, 3);
}

static void folders_on_the_way(void **state)
{
	struct fixture *f = *state;
	char deep[1200] = "";

	assert_int_equal(put(f, "d1/d2/d3/x", "deep"), GP_FILE_OK);
	expect_text("d1/d2/d3/x", "deep");
	assert_int_equal(put(f, "d1/d2/y", "again"), GP_FILE_OK);
	/* A file is no folder. */
	assert_int_equal(put(f, "d1/d2/y/z", "no"), GP_FILE_WRONG_TYPE);
	for (int i = 0; i < 500; i++)
		strcat(deep, "a/");
	strcat(deep, "x");
	assert_int_equal(put(f, deep, "deep"), GP_FILE_OK);
	assert_int_equal(how_of(f, GP_FILE_READ, deep), GP_FILE_OK);
}

/* The edges of names: 255 bytes, 4,084 bytes, any byte. */
static void names(void **state)
{
	static char path[GP_FILE_PATH_BYTES_MAX + 300], name[257];
	struct fixture *f = *state;
	struct got got;
	size_t len = 0;

	memset(name, 'n', 255);
	assert_int_equal(put(f, name, "x"), GP_FILE_OK);
	assert_int_equal(how_of(f, GP_FILE_DELETE, name), GP_FILE_OK);
	memset(name, 'n', 256);
	assert_int_equal(put(f, name, "x"), GP_FILE_BAD_NAME);
	assert_int_equal(put(f, "bad\xff\xfe \n\x1b[31m", "x"), GP_FILE_OK);
	got = call(f, (struct ask){.op = GP_FILE_LIST,
				   .path = "",
				   .after = "bad",
				   .limit = 1});
	assert_string_equal(got.names, "bad\xff\xfe \n\x1b[31m:1:1 ");
	while (len + 101 <= GP_FILE_PATH_BYTES_MAX) {
		memset(path + len, 'p', 100);
		path[len + 100] = '/';
		len += 101;
	}
	memset(path + len, 'q', GP_FILE_PATH_BYTES_MAX - len);
	assert_int_equal(strlen(path), GP_FILE_PATH_BYTES_MAX);
	assert_int_equal(put(f, path, "end"), GP_FILE_OK);
	got = call(f, (struct ask){.op = GP_FILE_READ, .path = path});
	assert_int_equal(got.data.len, 3);
	bytes_finish(&got.data);
	strcat(path, "q");
	assert_int_equal(put(f, path, "end"), GP_FILE_FAILED);
}

static void out_of_the_workspace(void **state)
{
	static const char *const outside[] = {"l-abs", "l-rel", "l-dir/secret",
					      "l-loop"};
	struct fixture *f = *state;
	char path[600];
	struct got got;
	int fd;

	snprintf(path, sizeof(path), "%s/secret", root);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "root's", 6), 6);
	close(fd);
	assert_int_equal(symlink("/secret", at("l-abs")), 0);
	assert_int_equal(symlink("../secret", at("l-rel")), 0);
	assert_int_equal(symlink("/", at("l-dir")), 0);
	assert_int_equal(symlink("l-loop", at("l-loop")), 0);
	for (size_t i = 0; i < ARRAY_LEN(outside); i++) {
		enum gp_file_how how = how_of(f, GP_FILE_READ, outside[i]);

		assert_int_equal(how,
				 i == 3 ? GP_FILE_BAD_NAME : GP_FILE_OUTSIDE);
	}
	assert_int_equal(put(f, "l-dir/new", "x"), GP_FILE_OUTSIDE);
	assert_int_equal(put(f, "l-dir/a/b/new", "x"), GP_FILE_OUTSIDE);
	assert_int_equal(how_of(f, GP_FILE_DELETE, "l-dir/secret"),
			 GP_FILE_OUTSIDE);
	assert_int_equal(how_of(f, GP_FILE_LIST, "l-dir"), GP_FILE_OUTSIDE);
	/* A link to a file is listed as what it is. */
	got = call(f, (struct ask){.op = GP_FILE_LIST, .path = "l-abs"});
	assert_string_equal(got.names, ":3:0 ");
	/* It is replaced, and what it led to is as before. */
	assert_int_equal(put(f, "l-abs", "mine"), GP_FILE_OK);
	expect_text("l-abs", "mine");
	expect_text("../secret", "root's");
	assert_int_equal(how_of(f, GP_FILE_DELETE, "l-rel"), GP_FILE_OK);
	expect_text("../secret", "root's");
	/* The mounts of the host's /proc are no way out, too. */
	assert_int_equal(symlink("/proc/self/root/etc/passwd", at("l-proc")),
			 0);
	assert_int_equal(how_of(f, GP_FILE_READ, "l-proc"), GP_FILE_NOT_FOUND);
}

static void links_within(void **state)
{
	struct fixture *f = *state;
	struct got got;

	assert_int_equal(put(f, "v1/data", "one"), GP_FILE_OK);
	assert_int_equal(symlink("v1", at("rel")), 0);
	assert_int_equal(symlink("/workspace/v1", at("abs")), 0);
	assert_int_equal(symlink("../../../v1/data", at("v1/up")), 0);
	assert_int_equal(how_of(f, GP_FILE_READ, "rel/data"), GP_FILE_OK);
	assert_int_equal(how_of(f, GP_FILE_READ, "abs/data"), GP_FILE_OK);
	assert_int_equal(put(f, "abs/sub/more", "two"), GP_FILE_OK);
	expect_text("v1/sub/more", "two");
	got = call(f, (struct ask){.op = GP_FILE_LIST, .path = "abs"});
	assert_string_equal(got.names, "data:1:3 sub:2:0 up:3:0 ");
}

static struct got stamp_of(struct fixture *f, const char *name)
{
	struct got got =
		call(f, (struct ask){.op = GP_FILE_READ, .path = name});

	assert_int_equal(got.how, GP_FILE_OK);
	return got;
}

/* Of the stamp alone. */
static struct got only_stamp_of(struct fixture *f, const char *name)
{
	struct got got = stamp_of(f, name);

	bytes_finish(&got.data);
	return got;
}

static void overwrite(const char *name, char c)
{
	int fd = open(at(name), O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, &c, 1, 0), 1);
	close(fd);
}

/* Reads with one stamp are of one state. */
static void stamps(void **state)
{
	struct fixture *f = *state;
	struct got a, b;

	assert_int_equal(put(f, "s", "abc"), GP_FILE_OK);
	usleep(50000);
	a = only_stamp_of(f, "s");
	b = only_stamp_of(f, "s");
	assert_true(a.has_stamp && b.has_stamp);
	assert_memory_equal(a.stamp, b.stamp, sizeof(a.stamp));
	overwrite("s", 'x');
	usleep(50000);
	b = only_stamp_of(f, "s");
	assert_true(b.has_stamp);
	assert_memory_not_equal(a.stamp, b.stamp, sizeof(a.stamp));
	/* Another file of the same bytes. */
	assert_int_equal(put(f, "s", "xbc"), GP_FILE_OK);
	usleep(50000);
	a = only_stamp_of(f, "s");
	assert_memory_not_equal(a.stamp, b.stamp, sizeof(a.stamp));
	/* Within one tick of the clock, too. */
	for (int i = 0; i < 300; i++) {
		overwrite("s", (char)('a' + i % 2));
		a = stamp_of(f, "s");
		overwrite("s", (char)('b' - i % 2));
		b = stamp_of(f, "s");
		assert_int_not_equal(a.data.data[0], b.data.data[0]);
		if (a.has_stamp && b.has_stamp)
			assert_memory_not_equal(a.stamp, b.stamp,
						sizeof(a.stamp));
		bytes_finish(&a.data);
		bytes_finish(&b.data);
	}
	/* Only of a read. */
	a = call(f, (struct ask){.op = GP_FILE_LIST, .path = "s"});
	assert_false(a.has_stamp);
}

/* Nobody at the other end of a FIFO notices anything. */
static void no_file(void **state)
{
	static const char *const paths[] = {"fifo", "dev", "socket"};
	struct fixture *f = *state;
	struct got got;
	int s, pair;

	assert_int_equal(mkfifo(at("fifo"), 0666), 0);
	if (!is_root)
		assert_int_equal(mkfifo(at("dev"), 0666), 0);
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct {
		sa_family_t family;
		char path[108];
	} a = {.family = AF_UNIX};
	snprintf(a.path, sizeof(a.path), "%.100s", at("socket"));
	assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof(a)), 0);
	pair = open(at("fifo"), O_RDWR | O_NONBLOCK | O_CLOEXEC);
	assert_true(pair >= 0);
	assert_int_equal(write(pair, "unread", 6), 6);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		assert_int_equal(how_of(f, GP_FILE_READ, paths[i]),
				 GP_FILE_WRONG_TYPE);
		assert_int_equal(put(f, paths[i], "x"), GP_FILE_WRONG_TYPE);
	}
	got = call(f, (struct ask){.op = GP_FILE_LIST, .path = "fifo"});
	assert_string_equal(got.names, ":4:0 ");
	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		assert_int_equal(how_of(f, GP_FILE_DELETE, paths[i]),
				 GP_FILE_OK);
	close(pair);
	close(s);
	/* Folders. */
	assert_int_equal(mkdir(at("folder"), 0755), 0);
	assert_int_equal(how_of(f, GP_FILE_READ, "folder"), GP_FILE_WRONG_TYPE);
	assert_int_equal(put(f, "folder", "x"), GP_FILE_WRONG_TYPE);
	assert_int_equal(put(f, "folder/x", "x"), GP_FILE_OK);
	assert_int_equal(how_of(f, GP_FILE_DELETE, "folder"),
			 GP_FILE_NOT_EMPTY);
	assert_int_equal(how_of(f, GP_FILE_DELETE, "folder/x"), GP_FILE_OK);
	assert_int_equal(how_of(f, GP_FILE_DELETE, "folder"), GP_FILE_OK);
	assert_int_equal(how_of(f, GP_FILE_DELETE, "folder"),
			 GP_FILE_NOT_FOUND);
	assert_int_equal(how_of(f, GP_FILE_READ, "folder"), GP_FILE_NOT_FOUND);
	assert_int_equal(how_of(f, GP_FILE_LIST, "folder"), GP_FILE_NOT_FOUND);
	assert_int_equal(how_of(f, GP_FILE_DELETE, ""), GP_FILE_WRONG_TYPE);
	assert_int_equal(put(f, "", "x"), GP_FILE_WRONG_TYPE);
	assert_int_equal(how_of(f, GP_FILE_READ, ""), GP_FILE_WRONG_TYPE);
}

/* Pages of a folder are in the order of bytes, whatever order it has. */
static void pages(void **state)
{
	struct fixture *f = *state;
	char name[64], after[32] = "";
	struct got got;
	int seen = 0;

	assert_int_equal(mkdir(at("many"), 0755), 0);
	for (int i = 0; i < 2500; i++) {
		int fd;

		snprintf(name, sizeof(name), "many/f%04d", i * 7 % 2500);
		fd = open(at(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		close(fd);
	}
	for (int page = 0; page < 3; page++) {
		got = call(f, (struct ask){.op = GP_FILE_LIST,
					   .path = "many",
					   .after = after});
		assert_int_equal(got.n_entries, page < 2 ? 1000 : 500);
		assert_int_equal(got.has_more, page < 2);
		seen += (int)got.n_entries;
		snprintf(after, sizeof(after), "f%04d", seen - 1);
		snprintf(name, sizeof(name), "f%04d:1:0 ", page * 1000);
		assert_memory_equal(got.names, name, strlen(name));
	}
	assert_int_equal(seen, 2500);
	got = call(f, (struct ask){
			      .op = GP_FILE_LIST, .path = "many", .limit = 2});
	assert_string_equal(got.names, "f0000:1:0 f0001:1:0 ");
	assert_true(got.has_more);
}

static void large(void **state)
{
	struct fixture *f = *state;
	uint8_t *data = malloc(GP_FILE_BYTES_MAX + 1);
	struct got got;
	struct ask a = {.op = GP_FILE_WRITE,
			.path = "large",
			.data = data,
			.data_len = 1000,
			.size = GP_FILE_BYTES_MAX};

	for (size_t i = 0; i <= GP_FILE_BYTES_MAX; i++)
		data[i] = (uint8_t)(i * 31 >> 3);
	got = call(f, a);
	assert_int_equal(got.how, GP_FILE_OK);
	assert_int_equal(got.size, GP_FILE_BYTES_MAX);
	got = call(f, (struct ask){.op = GP_FILE_READ,
				   .path = "large",
				   .is_whole = true,
				   .limit = GP_FILE_BYTES_MAX});
	assert_int_equal(got.how, GP_FILE_OK);
	assert_int_equal(got.data.len, GP_FILE_BYTES_MAX);
	assert_memory_equal(got.data.data, data, GP_FILE_BYTES_MAX);
	bytes_finish(&got.data);
	assert_int_equal(truncate(at("large"), 1ll << 40), 0);
	got = call(f, (struct ask){.op = GP_FILE_READ,
				   .path = "large",
				   .is_whole = true,
				   .limit = GP_FILE_BYTES_MAX});
	assert_int_equal(got.how, GP_FILE_TOO_LARGE);
	assert_int_equal(got.data.len, 0);
	got = call(f, (struct ask){.op = GP_FILE_READ,
				   .path = "large",
				   .offset = (1ull << 40) - 10,
				   .limit = 100});
	assert_int_equal(got.data.len, 10);
	assert_int_equal(got.size, 1ull << 40);
	bytes_finish(&got.data);
	free(data);
}

/* A folder of ours and a link out of the workspace, as fast as they can be
 * exchanged: the one or the refusal, never what is outside. */
static void swapped(void **state)
{
	struct fixture *f = *state;
	unsigned n_in = 0, n_out = 0;
	pid_t child;

	assert_int_equal(mkdir(at("swap"), 0755), 0);
	assert_int_equal(symlink("/", at("other")), 0);
	child = fork();
	while (!child) {
		char one[512];

		snprintf(one, sizeof(one), "%s", at("swap"));
		if (syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, at("other"),
			    RENAME_EXCHANGE))
			_exit(1);
	}
	assert_true(child > 0);
	for (int i = 0; i < 3000 || ((!n_in || !n_out) && i < 100000); i++) {
		enum gp_file_how how = put(f, "swap/racing", "x");

		n_in += how == GP_FILE_OK;
		n_out += how == GP_FILE_OUTSIDE;
		assert_true(how == GP_FILE_OK || how == GP_FILE_OUTSIDE);
	}
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_true(n_in && n_out);
	assert_int_equal(access(at("../racing"), F_OK), -1);
}

/* Nothing of a write that is given up is there, and what was there stays. */
static void given_up(void **state)
{
	struct fixture *f = *state;
	struct ask a = {.op = GP_FILE_WRITE,
			.path = "half",
			.data = "first",
			.data_len = 5,
			.size = 10};
	struct got got;

	assert_int_equal(put(f, "half", "old"), GP_FILE_OK);
	send_ask(f, &a);
	assert_int_equal(next_frame(f).head.type, GP_FILE_MORE);
	send_frame(f, GP_FILE_PIECE, number, NULL, 0);
	finish(f, &a, &got, 0);
	assert_int_equal(got.how, GP_FILE_GIVEN_UP);
	expect_text("half", "old");
	/* More than it said is no write. */
	send_ask(f, &a);
	assert_int_equal(next_frame(f).head.type, GP_FILE_MORE);
	send_frame(f, GP_FILE_PIECE, number, "0123456789", 10);
	finish(f, &a, &got, 0);
	assert_int_equal(got.how, GP_FILE_BAD_NAME);
	expect_text("half", "old");
	/* Another meanwhile is refused; the first goes on. */
	send_ask(f, &a);
	assert_int_equal(next_frame(f).head.type, GP_FILE_MORE);
	send_ask(f, &a);
	finish(f, &a, &got, 0);
	assert_int_equal(got.how, GP_FILE_FAILED);
	number--;
	send_frame(f, GP_FILE_PIECE, number, "12345", 5);
	finish(f, &a, &got, 0);
	assert_int_equal(got.how, GP_FILE_OK);
	expect_text("half", "first12345");
}

/* In a copy of the VM: the call is another's; the next one waits for it. */
static void dropped(void **state)
{
	struct fixture *f = *state;
	struct ask a = {.op = GP_FILE_WRITE,
			.path = "copy",
			.data = "first",
			.data_len = 5,
			.size = 10};
	struct got got;

	for (int when = 0; when < 2; when++) {
		send_ask(f, &a);
		if (when)
			assert_int_equal(next_frame(f).head.type, GP_FILE_MORE);
		files_drop(&f->g);
		got = call(f, (struct ask){.op = GP_FILE_LIST, .path = "copy"});
		assert_int_equal(got.how, GP_FILE_NOT_FOUND);
	}
	assert_int_equal(files.state, FILES_IDLE);
	assert_int_equal(put(f, "copy", "x"), GP_FILE_OK);
}

static void late_and_denied(void **state)
{
	struct fixture *f = *state;
	struct ask a = {.op = GP_FILE_WRITE,
			.path = "late",
			.data = "first",
			.data_len = 5,
			.size = 10,
			.timeout_ms = 50};
	struct got got;

	send_ask(f, &a);
	assert_int_equal(next_frame(f).head.type, GP_FILE_MORE);
	usleep(60000);
	send_frame(f, GP_FILE_PIECE, number, "12345", 5);
	finish(f, &a, &got, 0);
	assert_int_equal(got.how, GP_FILE_TIMED_OUT);
	assert_int_equal(how_of(f, GP_FILE_READ, "late"), GP_FILE_NOT_FOUND);
	/* The user's own rights, not init's. */
	assert_int_equal(put(f, "closed", "x"), GP_FILE_OK);
	assert_int_equal(chmod(at("closed"), 0), 0);
	if (is_root)
		assert_int_equal(how_of(f, GP_FILE_READ, "closed"),
				 GP_FILE_DENIED);
	assert_int_equal(put(f, "theirs/x", "x"), GP_FILE_OK);
	assert_int_equal(chmod(at("theirs"), 0555), 0);
	if (is_root) {
		assert_int_equal(put(f, "theirs/y", "x"), GP_FILE_DENIED);
		assert_int_equal(how_of(f, GP_FILE_DELETE, "theirs/x"),
				 GP_FILE_DENIED);
	}
	got = call(f, (struct ask){.op = (enum gp_file_op)9, .path = "x"});
	assert_int_equal(got.how, GP_FILE_FAILED);
	assert_non_null(strstr(got.error, "unknown op"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_and_read),
		cmocka_unit_test(folders_on_the_way),
		cmocka_unit_test(names),
		cmocka_unit_test(out_of_the_workspace),
		cmocka_unit_test(links_within),
		cmocka_unit_test(stamps),
		cmocka_unit_test(no_file),
		cmocka_unit_test(pages),
		cmocka_unit_test(large),
		cmocka_unit_test(swapped),
		cmocka_unit_test(given_up),
		cmocka_unit_test(dropped),
		cmocka_unit_test(late_and_denied),
	};

	return cmocka_run_group_tests(tests, tree_make, tree_remove);
}
