/*
 * Shared by server.c (listeners, connections), request.c (a request from its
 * first line to its handler), check.c (what a header must be) and reply.c (the
 * answer).  Nobody else.
 */
#ifndef HUTCHD_SERVER_PRIV_H
#define HUTCHD_SERVER_PRIV_H

#include "../loop.h"
#include "request.h"
#include "server.h"
#include "wrong_keys.h"
#include <microhttpd.h>

#define HTTP_ADDRESS_BYTES_MAX 128
#define HTTP_URL_BYTES_MAX     1200
/* Accepted in one turn of the loop. */
#define HTTP_ACCEPT_BATCH 16

struct http_listener {
	struct http_server *server;
	struct MHD_Daemon *mhd;	  /* owned; NULL = not started */
	struct loop_watch watch;  /* MHD's epoll descriptor */
	struct loop_timer timer;  /* MHD_get_timeout */
	struct loop_watch accept; /* the listening socket, owned */
	struct loop_timer accept_again;
	unsigned connections_max;
	unsigned n_open;	  /* without those that were told to go */
	struct list heads, idles; /* of http_conn: longest waiting first */
	struct loop_call wake;	  /* MHD_run soon: something was resumed */
	bool is_waking;
	bool is_admin, is_loopback;
};

struct http_server {
	struct services *services;
	struct http_config cfg;
	struct http_listener tcp, admin;
	int spare_fd; /* given up for the moment of saying no */
	char address[HTTP_ADDRESS_BYTES_MAX];
	char public_url[HTTP_URL_BYTES_MAX];
	struct list working; /* of request_priv: handler has not answered */
	struct list sending; /* of file_body */
	bool is_draining;
	bool is_closed; /* the last handler that answers frees it */
	uint64_t id_seed, id_count;
	struct http_stats stats;
	struct wrong_keys wrong_keys;
};

enum conn_phase { CONN_HEAD, CONN_BODY, CONN_WORK, CONN_SEND, CONN_IDLE };

struct stream;
struct file_body;

/* A TCP or Unix connection: its deadline. */
struct http_conn {
	struct list node; /* in the listener's heads or idles, or alone */
	struct loop_timer timer;
	struct http_listener *listener;
	int fd; /* borrowed from MHD */
	enum conn_phase phase;
	bool is_refused; /* admin socket: not our user */
	bool is_evicted; /* makes room: its end is on its way */
};

enum request_state {
	REQ_HEAD,    /* MHD read the header: look at it */
	REQ_BODY,    /* body is coming */
	REQ_REFUSED, /* answer is known; the body is read and thrown away */
	REQ_WORKING, /* with the handler */
	REQ_READY,   /* answered, MHD has not been told */
	REQ_SENT,    /* queued with MHD */
};

struct reply {
	int status;
	const char *content_type;
	struct bytes body; /* owned */
	int retry_after_s; /* 0 = none */
	char allow[64];	   /* "" = none */
	bool must_close;
	struct stream *stream;	/* borrowed: the response owns it */
	struct file_body *file; /* the same */
	/* Of a file; "" = none. */
	char file_type[FILE_TYPE_BYTES_MAX + 1];
	char etag[72], content_range[72];
};

/* What the server keeps about a request beside what handlers see. */
struct request_priv {
	struct request request;
	struct list node; /* in server.working */
	struct http_server *server;
	struct http_listener *listener;
	struct http_conn *conn;
	struct MHD_Connection *mhd; /* NULL = MHD forgot it */
	enum request_state state;
	bool is_held; /* by the handler */
	bool is_suspended;
	bool is_given_up;      /* the server answered in the handler's place */
	uint64_t n_drained;    /* bytes of a refused body */
	uint64_t n_streamed;   /* bytes that the sink has taken */
	char *raw_query;       /* owned; NULL = none */
	char version[72];      /* Lbb-Version to echo, "" = none */
	const char *more_name; /* one more field of the answer; NULL = none */
	char more_value[REQUEST_HEADER_BYTES_MAX];
	struct reply reply;
	int64_t begun_us;
	/* inner.c: NULL, but of a request that another one makes. */
	struct request *outer; /* borrowed: it outlives this one */
	request_inner_fn *on_inner;
	struct request *inner; /* of an outer one: at work for it */
};

/* MHD_run, and its next time-out. */
void http_listener_turn(struct http_listener *l);

/* conn.c: connections from accept to close. */
void conn_limits(struct http_server *s); /* connections_max of both */
int conn_accept_begin(struct http_listener *l);
void conn_accept_end(struct http_listener *l);
void conn_on_change(void *cls, struct MHD_Connection *mhd,
		    void **socket_context,
		    enum MHD_ConnectionNotificationCode code);

/* After MHD_resume_connection: without threads MHD does not tell itself. */
void http_listener_wake(struct http_listener *l);
void http_conn_phase(struct http_conn *c, enum conn_phase phase);

/* Callbacks given to MHD. */
void *request_on_uri(void *cls, const char *uri, struct MHD_Connection *c);
enum MHD_Result request_on_data(void *cls, struct MHD_Connection *c,
				const char *url, const char *method,
				const char *version, const char *data,
				size_t *data_len, void **con_cls);
void request_on_done(void *cls, struct MHD_Connection *c, void **con_cls,
		     enum MHD_RequestTerminationCode why);

/* Can two readers frame this request differently?  -1 with `e`. */
int check_framing(struct MHD_Connection *c, struct err *e);

/*
 * Everything else that can be refused before the body: 0, or -1 with `e`.
 * *ret_allow != 0: 405, or an OPTIONS answer when e->code is ERR_NONE.
 */
int check_head(struct request *r, struct MHD_Connection *c, unsigned *ret_allow,
	       struct err *e);
/* The same for an inner request, whose caller and body are there. */
int check_inner(struct request *r, const char *query, const char *key,
		struct err *e);
/* Content-Length of the request; 0 none, UINT64_MAX chunked. */
uint64_t check_body_length(struct MHD_Connection *c);
/* The error for a body that is longer than the route takes. */
enum err_code check_too_large(const struct request *r);
const char *check_header(struct MHD_Connection *c, const char *name);

/* A request that no connection brought; NULL without memory. */
struct request_priv *request_new(struct http_server *s, const char *path);
/* An inner request has its reply stored: tell the outer one. */
void inner_answered(struct request *r);

/* Hand the stored reply to MHD. */
enum MHD_Result reply_send(struct request *r);
/* Store an error as the reply. */
void reply_set_err(struct request *r, const struct err *e);
/* It is stored: MHD gets it, and the handler has let go. */
void reply_answered(struct request *r);
/* Answer in the handler's place; it may still hold the request. */
void request_give_up(struct request *r, const struct err *e);
/* The handler lets go of the request. */
void request_release(struct request *r);
/* A reply was stored: resume the connection if it sleeps. */
void request_wake(struct request *r);
void http_server_free_if_done(struct http_server *s);

/* reply_file.c */
struct MHD_Response *file_response(struct request *r, struct file_body *f);
void file_body_unref(struct file_body *f);
/* The server closes: those that wait for a disk wait no longer. */
void file_bodies_end(struct http_server *s);

/* The server ends a stream in the handler's place. */
void stream_abort(struct stream *s);
void stream_unref(struct stream *s);

#endif
