/*
 * An answer that is a file, or a part of one; see request.h.
 *
 * A piece is read by a worker while its connection sleeps, so that no disk
 * holds up the loop, and the next one when the client has taken it: a slow
 * client costs one piece of memory.  Each piece has HTTP_SEND_MS to be taken.
 */
#include "fd.h"
#include "log.h"
#include "server_priv.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define PIECE_BYTES (256u << 10)
#define BLOCK_BYTES (64u << 10) /* of MHD's buffer */

struct file_body {
	struct list node; /* in server.sending, while its response lives */
	struct loop *loop;
	struct http_listener *listener;
	struct http_conn *conn;
	struct MHD_Connection *mhd; /* NULL when its response is gone */
	unsigned refs;		    /* the request or the response; a worker */
	int fd;
	uint64_t at, left; /* of what was not read */
	uint8_t *piece;
	size_t len, taken;
	int rc;
	bool has_job, is_suspended;
};

void file_body_unref(struct file_body *f)
{
	if (--f->refs)
		return;
	fd_close(&f->fd);
	free(f->piece);
	free(f);
}

static void wake(struct file_body *f)
{
	if (!f->is_suspended || !f->mhd)
		return;
	f->is_suspended = false;
	MHD_resume_connection(f->mhd);
	http_listener_wake(f->listener);
}

/* ---- pieces ------------------------------------------------------------- */

static void job_run(void *arg)
{
	struct file_body *f = arg;

	f->rc = fd_pread_all(f->fd, f->piece, f->len, (off_t)f->at);
}

static void job_done(void *arg)
{
	struct file_body *f = arg;

	f->has_job = false;
	f->at += f->len;
	f->left -= f->len;
	f->taken = 0;
	wake(f);
	file_body_unref(f);
}

static int piece_ask(struct file_body *f)
{
	f->len = f->left < PIECE_BYTES ? (size_t)f->left : PIECE_BYTES;
	if (!f->piece)
		f->piece = malloc(f->len);
	if (!f->piece || loop_work(f->loop, job_run, job_done, f))
		return -ENOMEM;
	f->has_job = true;
	f->refs++;
	return 0;
}

static ssize_t body_read(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct file_body *f = cls;
	size_t n = f->len - f->taken < max ? f->len - f->taken : max;

	(void)pos;
	/* A Content-Length was told: an error is a closed connection. */
	if (f->rc)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (n && !f->has_job) {
		memcpy(buf, f->piece + f->taken, n);
		f->taken += n;
		return (ssize_t)n;
	}
	if (!f->has_job && piece_ask(f))
		return MHD_CONTENT_READER_END_WITH_ERROR;
	http_conn_phase(f->conn, CONN_SEND);
	f->is_suspended = true;
	MHD_suspend_connection(f->mhd);
	return 0;
}

static void response_gone(void *cls)
{
	struct file_body *f = cls;

	f->mhd = NULL;
	list_remove(&f->node);
	file_body_unref(f);
}

struct MHD_Response *file_response(struct request *r, struct file_body *f)
{
	struct request_priv *p = r->priv;
	struct MHD_Response *m;

	f->mhd = p->mhd;
	f->conn = p->conn;
	f->listener = p->listener;
	m = MHD_create_response_from_callback(f->left, BLOCK_BYTES, body_read,
					      f, response_gone);
	if (m)
		list_append(&p->server->sending, &f->node);
	return m;
}

void file_bodies_end(struct http_server *s)
{
	for (struct list *n = s->sending.next; n != &s->sending; n = n->next) {
		struct file_body *f = container_of(n, struct file_body, node);

		f->rc = -ESHUTDOWN;
		wake(f);
	}
}

/* ---- the answer --------------------------------------------------------- */

void reply_file(struct request *r, const struct reply_bytes_of *what)
{
	struct request_priv *p = r->priv;
	struct file_body *f = calloc(1, sizeof(*f));
	int fd = what->fd;
	struct err e;

	if (!f || p->is_given_up) {
		fd_close(&fd);
		free(f);
		err_set(&e, ERR_UNAVAILABLE, NULL, "out of memory");
		reply_err(r, &e);
		return;
	}
	list_init(&f->node);
	f->loop = p->server->services->loop;
	f->refs = 1;
	f->fd = fd;
	f->at = what->at;
	f->left = what->len;
	p->reply =
		(struct reply){.status = what->is_part ? 206 : 200, .file = f};
	snprintf(p->reply.file_type, sizeof(p->reply.file_type), "%s",
		 what->content_type);
	snprintf(p->reply.etag, sizeof(p->reply.etag), "\"%s\"", what->etag);
	if (what->is_part)
		snprintf(p->reply.content_range, sizeof(p->reply.content_range),
			 "bytes %llu-%llu/%llu", (unsigned long long)what->at,
			 (unsigned long long)(what->at + what->len - 1),
			 (unsigned long long)what->total);
	reply_answered(r);
}

void reply_no_range(struct request *r, uint64_t total)
{
	struct request_priv *p = r->priv;
	const char *range = request_header(r, "Range");
	struct err e;

	err_set(&e, ERR_RANGE, "Range",
		"The File has %llu bytes; the Range %.100s has none of them.",
		(unsigned long long)total,
		range ? log_quoted(range, strlen(range)).s : "");
	if (p->is_given_up) {
		reply_err(r, &e);
		return;
	}
	reply_set_err(r, &e);
	snprintf(p->reply.content_range, sizeof(p->reply.content_range),
		 "bytes */%llu", (unsigned long long)total);
	reply_answered(r);
}
