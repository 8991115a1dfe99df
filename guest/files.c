/* Files of the workspace; see files.h. */
#include "files.h"
#include "fd.h"
#include "file_call.h"
#include "guest.h"
#include "payload.h"
#include "port.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define THREAD_STACK_BYTES (256u << 10)

enum files_state {
	FILES_IDLE,
	FILES_STEP,    /* the thread has it */
	FILES_SENDING, /* what the step gave, as the channel takes it */
	FILES_WANT,    /* a piece of the host */
};

/* There is one guest; the thread's half is apart from it. */
static struct files {
	struct watch watch; /* told */
	int ask;
	struct guest *g;
	int user_id, start_error;
	struct file_root root;
	enum files_state state;
	uint64_t number;
	bool is_dropped;
	bool is_given_up;  /* by the host: the step closes it */
	size_t sent;	   /* of the piece, in bytes; of the entries */
	uint64_t at;	   /* in the file: of the piece */
	struct bytes next; /* a frame's payload that waits for a dropped call */
	uint64_t next_number;
	struct file_call call;
} files = {.watch = {.fd = -1}, .ask = -1, .root = {.fd = -1}};
static union file_room room;

/* ---- the thread --------------------------------------------------------- */

static void event_put(int fd)
{
	static const uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		port_log("files: event: %s", strerror(errno));
}

static bool event_take(int fd)
{
	uint64_t n;

	return read(fd, &n, sizeof(n)) == sizeof(n);
}

static void step_do(struct files *s)
{
	if (s->is_given_up)
		file_call_give_up(&s->call);
	else
		file_call_step(&s->call);
}

static void *thread_main(void *arg)
{
	struct files *s = arg;
	int told = s->watch.fd;

	if (s->user_id >= 0)
		s->start_error = -file_thread_drop(s->user_id);
	event_put(told);
	while (!s->start_error) {
		if (!event_take(s->ask)) {
			if (errno == EINTR)
				continue;
			break;
		}
		step_do(s);
		event_put(told);
	}
	return NULL;
}

/* ---- answers ------------------------------------------------------------ */

static void tell_done(struct guest *g, uint64_t number, enum gp_file_how how,
		      const char *error)
{
	_cleanup_bytes_ struct bytes b = {0};
	struct writer w = {.out = &b};
	bool is_ok = how == GP_FILE_OK;
	bool has_more = is_ok && files.call.has_more;
	bool has_stamp = is_ok && files.call.has_stamp;

	wire_put_map(&w, 2u + has_more + has_stamp);
	wire_put_uint(&w, GP_DONE_HOW, how);
	if (is_ok)
		wire_put_uint(&w, GP_DONE_SIZE, files.call.total);
	else
		wire_put_text(&w, GP_DONE_ERROR, error);
	if (has_more)
		wire_put_bool(&w, GP_DONE_MORE, true);
	if (has_stamp)
		wire_put_bytes(&w, GP_DONE_STAMP, &files.call.stamp,
			       sizeof(files.call.stamp));
	if (!w.rc)
		link_send(&g->link, GP_FILE_DONE, number, &b);
}

static void tell_entry(struct guest *g, size_t i)
{
	const struct file_call *c = &files.call;
	const struct file_entry *e = &c->entries[c->order[i]];
	_cleanup_bytes_ struct bytes b = {0};
	struct writer w = {.out = &b};

	wire_put_map(&w, e->name_len ? 5 : 4);
	if (e->name_len)
		wire_put_bytes(&w, GP_ENTRY_NAME, c->room->names[c->order[i]],
			       e->name_len);
	wire_put_uint(&w, GP_ENTRY_TYPE, e->type);
	wire_put_uint(&w, GP_ENTRY_SIZE, e->size);
	wire_put_uint(&w, GP_ENTRY_MTIME_MS, e->mtime_ms);
	wire_put_uint(&w, GP_ENTRY_MODE, e->mode);
	if (!w.rc)
		link_send(&g->link, GP_FILE_ENTRY, files.number, &b);
}

/* Full, also after what waits has been given to the kernel? */
static bool is_full(struct guest *g)
{
	if (link_is_full(&g->link))
		link_flush(&g->link);
	return link_is_full(&g->link);
}

static void step(void)
{
	files.state = FILES_STEP;
	event_put(files.ask);
}

static void begin(struct guest *g, uint64_t number, const void *payload,
		  size_t len);

static void call_ended(struct guest *g)
{
	_cleanup_bytes_ struct bytes next = files.next;

	files.state = FILES_IDLE;
	files.is_dropped = files.is_given_up = false;
	files.next = (struct bytes){0};
	if (next.len)
		begin(g, files.next_number, next.data, next.len);
}

/* Pieces and entries, as far as there is room; then what comes after them. */
static void send_on(struct guest *g)
{
	struct file_call *c = &files.call;

	while (files.sent < c->n_entries) {
		if (is_full(g))
			return;
		tell_entry(g, files.sent++);
	}
	while (c->op == GP_FILE_READ && files.sent < c->piece_len) {
		size_t n = c->piece_len - files.sent;

		if (is_full(g))
			return;
		if (n > GP_FILE_DATA_BYTES_MAX)
			n = GP_FILE_DATA_BYTES_MAX;
		link_send_file(&g->link, files.number, files.at,
			       room.piece + files.sent, n);
		files.sent += n;
		files.at += n;
	}
	if (is_full(g))
		return;
	if (c->is_done) {
		tell_done(g, files.number, c->how, c->error);
		call_ended(g);
	} else if (c->op == GP_FILE_READ) {
		step();
	} else {
		files.state = FILES_WANT;
		link_send(&g->link, GP_FILE_MORE, files.number, NULL);
	}
}

static void on_told(struct watch *w, uint32_t events)
{
	struct guest *g = files.g;

	(void)events;
	if (!event_take(w->fd) || files.state != FILES_STEP)
		return;
	if (files.is_dropped && !files.call.is_done) {
		files.is_given_up = true; /* meanwhile: close it */
		step();
		return;
	}
	if (files.is_dropped) {
		call_ended(g);
		return;
	}
	files.sent = 0;
	files.state = FILES_SENDING;
	send_on(g);
}

/* ---- frames ------------------------------------------------------------- */

static void begin(struct guest *g, uint64_t number, const void *payload,
		  size_t len)
{
	struct wire_map m;
	char why[96];

	files.call.has_more = false;
	if (payload_decode(GP_FILE, payload, len, &m, why, sizeof(why)) ||
	    file_call_init(&files.call, &files.root, &room, &m, why,
			   sizeof(why))) {
		tell_done(g, number, GP_FILE_FAILED, why);
		return;
	}
	files.number = number;
	files.at = files.call.offset;
	step();
}

void files_ask(struct guest *g, const struct frame *f)
{
	if (files.root.fd < 0) {
		tell_done(g, f->head.cmd, GP_FILE_FAILED,
			  "the workspace is not there");
	} else if (files.state == FILES_IDLE) {
		begin(g, f->head.cmd, f->payload, f->head.len);
	} else if (files.is_dropped && !files.next.len) {
		files.next_number = f->head.cmd;
		if (bytes_append(&files.next, f->payload, f->head.len))
			tell_done(g, f->head.cmd, GP_FILE_FAILED, "no memory");
	} else {
		tell_done(g, f->head.cmd, GP_FILE_FAILED,
			  "another call has not ended");
	}
}

void files_piece(struct guest *g, const struct frame *f)
{
	(void)g;
	if (files.state != FILES_WANT || f->head.cmd != files.number) {
		port_log("files: a piece that nobody wants");
		return;
	}
	if (!f->head.len || f->head.len > GP_FILE_PIECE_BYTES_MAX)
		files.is_given_up = true;
	else
		memcpy(room.piece, f->payload, f->head.len);
	files.call.piece_len = files.is_given_up ? 0 : f->head.len;
	step();
}

void files_room(struct guest *g)
{
	if (files.state == FILES_SENDING)
		send_on(g);
}

void files_drop(struct guest *g)
{
	bytes_finish(&files.next);
	if (files.state == FILES_IDLE)
		return;
	files.is_dropped = true;
	/* In a step it is seen when that ends. */
	if (files.state == FILES_STEP)
		return;
	files.is_given_up = true;
	if (files.call.is_done)
		call_ended(g);
	else
		step();
}

/* ---- start, stop -------------------------------------------------------- */

static int thread_start(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&thread, &attr, thread_main, &files);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -rc;
}

int files_start(struct guest *g, const char *root, int user_id,
		const char **ret_what)
{
	int rc;

	*ret_what = "workspace";
	rc = file_root_open(&files.root, root);
	if (rc)
		return rc;
	files.g = g;
	files.user_id = user_id;
	files.watch.fn = on_told;
	files.watch.fd = eventfd(0, EFD_CLOEXEC);
	files.ask = eventfd(0, EFD_CLOEXEC);
	*ret_what = "file thread";
	if (files.watch.fd < 0 || files.ask < 0)
		return -errno;
	/* Touched before the snapshot; a piece of a sandbox's first write costs
	 * no page faults then. */
	memset(&room, 1, sizeof(room));
	rc = thread_start();
	if (rc)
		return rc;
	/* Its ids first: nothing is asked of a thread that is root. */
	if (!event_take(files.watch.fd) || files.start_error)
		return files.start_error ? -files.start_error : -EIO;
	return loop_watch(&g->loop, &files.watch, EPOLLIN);
}

void files_stop(struct guest *g)
{
	files_drop(g);
	fd_close(&files.root.fd);
}
