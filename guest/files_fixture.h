/*
 * For tests of calls on the workspace: one call from its FILE to its FILE_DONE,
 * in a mount namespace of the test's own, with a workspace that is a mount as
 * in the guest.  Included once, after files.c and session_fixture.h.
 */
#ifndef HUTCH_GUEST_FILES_FIXTURE_H
#define HUTCH_GUEST_FILES_FIXTURE_H

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Of the machine: then the thread takes the ids of a user. */
static bool is_root;
static char root[] = "/tmp/hutch-files-XXXXXX";

struct got {
	enum gp_file_how how;
	char error[GP_TEXT_BYTES_MAX + 1];
	uint64_t size;
	bool has_more, has_stamp;
	uint8_t stamp[GP_FILE_STAMP_BYTES];
	struct bytes data;
	char names[8192]; /* "name:type:size " each */
	size_t n_entries, n_pieces;
};

struct ask {
	enum gp_file_op op;
	const char *path, *after;
	uint64_t offset, limit, size;
	bool is_whole;
	const void *data;
	size_t data_len;
	uint64_t timeout_ms;
};

static const struct wire_rule entry_rules[] = {
	{GP_ENTRY_NAME, WIRE_BYTES, false, "name"},
	{GP_ENTRY_TYPE, WIRE_UINT, true, "type"},
	{GP_ENTRY_SIZE, WIRE_UINT, true, "size"},
	{GP_ENTRY_MTIME_MS, WIRE_UINT, true, "mtime"},
	{GP_ENTRY_MODE, WIRE_UINT, true, "mode"},
};
static const struct wire_rule done_rules[] = {
	{GP_DONE_HOW, WIRE_UINT, true, "how"},
	{GP_DONE_ERROR, WIRE_TEXT, false, "error"},
	{GP_DONE_SIZE, WIRE_UINT, false, "size"},
	{GP_DONE_MORE, WIRE_BOOL, false, "more"},
	{GP_DONE_STAMP, WIRE_BYTES, false, "stamp"},
};

static uint64_t number = 100;

static void send_ask(struct fixture *f, const struct ask *a)
{
	_cleanup_bytes_ struct bytes b = {0};
	struct writer w = {.out = &b};

	wire_put_map(&w, 8);
	wire_put_uint(&w, GP_FILE_KEY_OP, a->op);
	wire_put_bytes(&w, GP_FILE_KEY_PATH, a->path, strlen(a->path));
	wire_put_uint(&w, GP_FILE_KEY_OFFSET, a->offset);
	wire_put_uint(&w, GP_FILE_KEY_LIMIT, a->limit);
	wire_put_bool(&w, GP_FILE_KEY_WHOLE, a->is_whole);
	wire_put_uint(&w, GP_FILE_KEY_SIZE, a->size ? a->size : a->data_len);
	if (a->after)
		wire_put_bytes(&w, GP_FILE_KEY_AFTER, a->after,
			       strlen(a->after));
	else
		wire_put_bytes(&w, GP_FILE_KEY_DATA, a->data ? a->data : "",
			       a->data_len);
	wire_put_uint(&w, GP_FILE_KEY_TIMEOUT_MS,
		      a->timeout_ms ? a->timeout_ms : 20000);
	send_frame(f, GP_FILE, ++number, b.data, b.len);
}

static struct frame next_frame(struct fixture *f)
{
	struct frame fr;

	while (!(fr = take_frame(f)).head.type) {
		assert_int_equal(loop_turn(&f->g.loop), 0);
		link_flush(&f->g.link);
	}
	return fr;
}

static void take_entry(struct got *got, const struct frame *fr)
{
	size_t at = strlen(got->names);
	struct wire_map m;
	char why[96];

	assert_int_equal(wire_decode(fr->payload, fr->head.len, entry_rules,
				     ARRAY_LEN(entry_rules), &m, why,
				     sizeof(why)),
			 0);
	got->n_entries++;
	snprintf(got->names + at, sizeof(got->names) - at, "%.*s:%d:%d ",
		 (int)m.v[GP_ENTRY_NAME].s.len,
		 m.v[GP_ENTRY_NAME].s.data
			 ? (const char *)m.v[GP_ENTRY_NAME].s.data
			 : "",
		 (int)m.v[GP_ENTRY_TYPE].u,
		 m.v[GP_ENTRY_TYPE].u == GP_TYPE_FILE
			 ? (int)m.v[GP_ENTRY_SIZE].u
			 : 0);
	assert_true(m.v[GP_ENTRY_MODE].u <= 07777);
}

static void take_data(struct got *got, const struct frame *fr, uint64_t begin)
{
	size_t len = fr->head.len - sizeof(struct gp_file_head);

	assert_true(len && len <= GP_FILE_DATA_BYTES_MAX);
	assert_int_equal(le64_load(fr->payload), begin + got->data.len);
	bytes_append(&got->data, fr->payload + sizeof(struct gp_file_head),
		     len);
	got->n_pieces++;
}

/* To its end; pieces of a write come from `a`. */
static void finish(struct fixture *f, const struct ask *a, struct got *got,
		   size_t sent)
{
	struct frame fr;
	struct wire_map m;
	char why[96];

	memset(got, 0, sizeof(*got));
	for (;;) {
		fr = next_frame(f);
		assert_int_equal(fr.head.cmd, number);
		if (fr.head.type == GP_FILE_ENTRY) {
			take_entry(got, &fr);
		} else if (fr.head.type == GP_FILE_DATA) {
			take_data(got, &fr, a->offset);
		} else if (fr.head.type == GP_FILE_MORE) {
			size_t n = a->size - sent;

			n = n < GP_FILE_PIECE_BYTES_MAX
				    ? n
				    : GP_FILE_PIECE_BYTES_MAX;
			send_frame(f, GP_FILE_PIECE, number,
				   (const uint8_t *)a->data + sent, n);
			sent += n;
		} else {
			break;
		}
	}
	assert_int_equal(fr.head.type, GP_FILE_DONE);
	assert_int_equal(wire_decode(fr.payload, fr.head.len, done_rules,
				     ARRAY_LEN(done_rules), &m, why,
				     sizeof(why)),
			 0);
	got->how = (enum gp_file_how)m.v[GP_DONE_HOW].u;
	got->size = m.v[GP_DONE_SIZE].u;
	got->has_more = m.v[GP_DONE_MORE].u;
	got->has_stamp = m.v[GP_DONE_STAMP].is_set;
	if (got->has_stamp) {
		assert_int_equal(m.v[GP_DONE_STAMP].s.len, sizeof(got->stamp));
		memcpy(got->stamp, m.v[GP_DONE_STAMP].s.data,
		       sizeof(got->stamp));
	}
	snprintf(got->error, sizeof(got->error), "%.*s",
		 (int)m.v[GP_DONE_ERROR].s.len,
		 m.v[GP_DONE_ERROR].s.data
			 ? (const char *)m.v[GP_DONE_ERROR].s.data
			 : "");
	assert_true((got->how == GP_FILE_OK) == !*got->error);
}

static struct got call(struct fixture *f, struct ask a)
{
	struct got got;

	send_ask(f, &a);
	finish(f, &a, &got, a.data_len);
	return got;
}

static enum gp_file_how how_of(struct fixture *f, enum gp_file_op op,
			       const char *path)
{
	struct got got = call(f, (struct ask){.op = op, .path = path});

	bytes_finish(&got.data);
	return got.how;
}

static enum gp_file_how put(struct fixture *f, const char *path,
			    const char *text)
{
	return call(f, (struct ask){.op = GP_FILE_WRITE,
				    .path = path,
				    .data = text,
				    .data_len = strlen(text)})
		.how;
}

/* In the workspace, by ordinary calls. */
static const char *at(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/workspace/%s", root, name);
	return path;
}

static void expect_text(const char *name, const char *text)
{
	char buf[64] = "";
	int fd = open(at(name), O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_true(read(fd, buf, sizeof(buf) - 1) >= 0);
	close(fd);
	assert_string_equal(buf, text);
}

static int tree_make(void **state)
{
	const char *what;
	char path[64];

	alarm(60);
	if (setup(state) || !mkdtemp(root))
		return -1;
	is_root = !unshare(CLONE_NEWNS);
	if (!is_root && unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return -1;
	snprintf(path, sizeof(path), "%s/workspace", root);
	if (mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) ||
	    mount("tmpfs", root, "tmpfs", 0, NULL) || mkdir(path, 0755) ||
	    mount("tmpfs", path, "tmpfs", 0, NULL))
		return -1;
	((struct fixture *)*state)->g.phase = PHASE_BOUND;
	take_frame(*state); /* HELLO */
	if (is_root && (chown(path, USER_ID, USER_ID) || chmod(root, 0777) ||
			mknod(at("dev"), S_IFCHR | 0666, 5)))
		return -1;
	if (files_start(&((struct fixture *)*state)->g, root,
			is_root ? USER_ID : -1, &what))
		return -1;
	/* What the tests do themselves is the user's, too. */
	if (is_root) {
		syscall(SYS_setfsgid, USER_ID);
		syscall(SYS_setfsuid, USER_ID);
	}
	return 0;
}

static int tree_remove(void **state)
{
	char path[64];

	files_stop(&((struct fixture *)*state)->g);
	if (is_root)
		syscall(SYS_setfsuid, 0);
	snprintf(path, sizeof(path), "%s/workspace", root);
	umount2(path, MNT_DETACH);
	umount2(root, MNT_DETACH);
	rmdir(root);
	return teardown(state);
}

#endif
