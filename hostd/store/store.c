/*
 * The store's thread and its group commit.
 *
 * Ops queue up while a COMMIT (an fsync, milliseconds) runs; the thread then
 * takes all of them, runs each in a savepoint of its own and commits once.  So
 * the number of fsyncs follows the disk's speed and not the number of
 * requests, and an idle store answers one op with one fsync.  An op that fails
 * is rolled back alone; when the transaction itself is lost (disk full, I/O
 * error), every op of the group is told so and nothing of it is there.  Ops
 * run and finish in the order they were submitted.
 *
 * What may come later waits on the loop's side for company: it goes before the
 * next op that is submitted, and so costs no commit of its own while there is
 * work, or alone after STORE_LATER_MS.
 */
#include "store.h"
#include "../clock.h"
#include "../loop.h"
#include "log.h"
#include "op.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Outlives the store when it closes while the call is on its way. */
struct done_call {
	struct loop_call call;
	struct store *store; /* NULL: closed */
};

struct store {
	struct db db; /* the thread's own while it runs */
	struct loop *loop;
	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t more;
	pthread_cond_t ran; /* store_run_now */
	struct list queue, done;
	bool is_ending, is_call_posted;
	struct done_call *call; /* owned unless posted */
	struct list later;	/* the loop's thread's own, as is its timer */
	struct loop_timer later_timer;
	_Atomic uint64_t n_commits;
};

/* ---- store thread ------------------------------------------------------ */

static int run_op(struct db *db, struct store_op *op)
{
	int rc;

	if (op->is_read)
		return op->exec(db, op);
	rc = db_exec(db, "SAVEPOINT op");
	if (rc)
		return rc;
	rc = op->exec(db, op);
	if (sqlite3_get_autocommit(db->h))
		return rc ? rc : -EIO; /* all of it is gone */
	if (rc)
		db_exec(db, "ROLLBACK TO op");
	if (db_exec(db, "RELEASE op") && !rc)
		rc = -EIO;
	return rc;
}

static void run_group(struct store *s, struct list *group)
{
	struct db *db = &s->db;
	sqlite3_int64 before = sqlite3_total_changes64(db->h);
	int rc = db_exec(db, "BEGIN");
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, group)
	{
		struct store_op *op = container_of(n, struct store_op, node);

		op->rc = rc ? rc : run_op(db, op);
		if (!rc && sqlite3_get_autocommit(db->h))
			rc = op->rc ? op->rc : -EIO;
	}
	if (!rc) {
		rc = db_exec(db, "COMMIT");
		if (!rc && sqlite3_total_changes64(db->h) != before)
			atomic_fetch_add(&s->n_commits, 1);
	}
	if (!rc)
		return;
	log_error("store: a commit failed: %s (%s)", sqlite3_errmsg(db->h),
		  strerror(-rc));
	if (!sqlite3_get_autocommit(db->h))
		db_exec(db, "ROLLBACK");
	list_for_each_safe(n, tmp, group)
	{
		struct store_op *op = container_of(n, struct store_op, node);

		if (!op->rc)
			op->rc = rc;
	}
}

static void move_all(struct list *to, struct list *from, size_t max)
{
	while (max-- && !list_is_empty(from)) {
		struct list *n = from->next;

		list_remove(n);
		list_append(to, n);
	}
}

static void *store_thread(void *arg)
{
	struct store *s = arg;
	struct list group;

	list_init(&group);
	pthread_mutex_lock(&s->lock);
	for (;;) {
		while (list_is_empty(&s->queue) && !s->is_ending)
			pthread_cond_wait(&s->more, &s->lock);
		if (list_is_empty(&s->queue))
			break;
		move_all(&group, &s->queue, STORE_GROUP_OPS_MAX);
		pthread_mutex_unlock(&s->lock);
		run_group(s, &group);
		pthread_mutex_lock(&s->lock);
		move_all(&s->done, &group, SIZE_MAX);
		pthread_cond_broadcast(&s->ran);
		if (!s->is_call_posted) {
			s->is_call_posted = true;
			loop_post_call(s->loop, &s->call->call);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- loop thread ------------------------------------------------------- */

static void finish_ops(struct store *s)
{
	struct list done;

	list_init(&done);
	pthread_mutex_lock(&s->lock);
	move_all(&done, &s->done, SIZE_MAX);
	pthread_mutex_unlock(&s->lock);
	while (!list_is_empty(&done)) {
		struct store_op *op =
			container_of(done.next, struct store_op, node);

		list_remove(&op->node);
		op->done(op);
	}
}

static void on_done(void *arg)
{
	struct done_call *c = arg;
	struct store *s = c->store;

	if (!s) {
		free(c);
		return;
	}
	pthread_mutex_lock(&s->lock);
	s->is_call_posted = false;
	pthread_mutex_unlock(&s->lock);
	finish_ops(s);
}

static void later_flush(struct store *s)
{
	loop_timer_stop(s->loop, &s->later_timer);
	pthread_mutex_lock(&s->lock);
	move_all(&s->queue, &s->later, SIZE_MAX);
	pthread_cond_signal(&s->more);
	pthread_mutex_unlock(&s->lock);
}

static void on_later(struct loop_timer *t)
{
	later_flush(container_of(t, struct store, later_timer));
}

void store_submit(struct store *s, struct store_op *op)
{
	op->store = s;
	list_append(&s->later, &op->node);
	later_flush(s);
}

void store_submit_later(struct store *s, struct store_op *op)
{
	op->store = s;
	list_append(&s->later, &op->node);
	if (s->is_ending ||
	    (!s->later_timer.heap_idx &&
	     loop_timer_set(s->loop, &s->later_timer, STORE_LATER_MS)))
		later_flush(s);
}

bool store_is_closing(const struct store *s)
{
	return s->is_ending; /* written on this thread */
}

struct now_op {
	struct store_op op;
	struct store_op *inner;
	bool has_run;
};

static int now_exec(struct db *db, struct store_op *op)
{
	struct store_op *inner = ((struct now_op *)op)->inner;

	return inner->exec(db, inner);
}

static void now_done(struct store_op *op)
{
	free(op);
}

void store_run_now(struct store *s, struct store_op *inner)
{
	struct now_op *n = calloc(1, sizeof(*n));
	struct list *at;
	bool has_run = false;

	if (!n) {
		inner->rc = -ENOMEM;
		return;
	}
	n->op.exec = now_exec;
	n->op.done = now_done;
	n->inner = inner;
	store_submit(s, &n->op);
	pthread_mutex_lock(&s->lock);
	while (!has_run) {
		for (at = s->done.next; at != &s->done; at = at->next)
			if (at == &n->op.node)
				has_run = true;
		if (!has_run)
			pthread_cond_wait(&s->ran, &s->lock);
	}
	inner->rc = n->op.rc;
	pthread_mutex_unlock(&s->lock);
}

/* ---- life ------------------------------------------------------------------
 */

static int start_exec(struct db *db, struct store_op *op)
{
	const struct event_at at = {"", "", "", "", EVENT_DAEMON};
	const struct event_rec rec = {0};

	(void)op;
	return event_add(db, &at, &rec);
}

static int thread_start(struct store *s)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all); /* signals are for the loop's thread */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&s->thread, NULL, store_thread, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	s->has_thread = !rc;
	return -rc;
}

int store_open(struct store **ret, struct loop *loop, const char *dir,
	       struct err *e)
{
	struct store_op first = {.exec = start_exec};
	struct done_call *call = calloc(1, sizeof(*call));
	struct store *s = calloc(1, sizeof(*s));
	int rc;

	if (!s || !call) {
		free(s);
		free(call);
		return err_set(e, ERR_INTERNAL, NULL, "no memory");
	}
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->more, NULL);
	pthread_cond_init(&s->ran, NULL);
	list_init(&s->queue);
	list_init(&s->done);
	list_init(&s->later);
	s->later_timer.fn = on_later;
	s->loop = loop;
	s->call = call;
	call->store = s;
	call->call.fn = on_done;
	call->call.arg = call;
	rc = db_open(&s->db, dir, e);
	if (rc) {
		free(call);
		free(s);
		return rc;
	}
	rc = thread_start(s);
	/* A first commit proves that the disk takes it, and makes the log
	 * that the mark stands for. */
	if (!rc) {
		store_run_now(s, &first);
		rc = first.rc;
	}
	if (rc)
		err_set(e, ERR_INTERNAL, NULL,
			"the database %s cannot be written: %s", s->db.path,
			strerror(-rc));
	else
		rc = db_files_mark(&s->db, e);
	if (rc) {
		store_close(s);
		return -1;
	}
	log_info("store: open %s schema=%d", s->db.path, db_schema_version());
	*ret = s;
	return 0;
}

void store_close(struct store *s)
{
	struct list group;

	if (!s)
		return;
	list_init(&group);
	later_flush(s);
	if (s->has_thread) {
		pthread_mutex_lock(&s->lock);
		s->is_ending = true;
		pthread_cond_signal(&s->more);
		pthread_mutex_unlock(&s->lock);
		pthread_join(s->thread, NULL);
	}
	/* What the last answers ask for is done here, without the thread. */
	finish_ops(s);
	while (!list_is_empty(&s->queue)) {
		move_all(&group, &s->queue, STORE_GROUP_OPS_MAX);
		run_group(s, &group);
		move_all(&s->done, &group, SIZE_MAX);
		finish_ops(s);
	}
	db_close(&s->db);
	if (s->is_call_posted)
		s->call->store = NULL;
	else
		free(s->call);
	pthread_cond_destroy(&s->ran);
	pthread_cond_destroy(&s->more);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

uint64_t store_commits(const struct store *s)
{
	return atomic_load(&s->n_commits);
}
