/*
 * What the bodies of the calls that start something have in common: code and
 * what it gets, or argv; env, limits, times.  Rows of decode.h over one struct.
 *
 * input and config stay where they are, in the bytes of the request's body; so
 * the request keeps its body until it is answered.  Everything else is owned.
 */
#ifndef HUTCHD_LBB_WORK_H
#define HUTCHD_LBB_WORK_H

#include "decode.h"
#include "lbb.h"

struct work {
	/* NUL terminated */
	struct bytes code, template_name, snapshot, cwd;
	struct bytes name, labels; /* labels: ASCII JSON; see naming.c */
	struct bytes stdin_data;
	struct bytes env_text, argv_text; /* "A=b\0C=d\0" */
	const char **env, **argv;	  /* into them; NULL = not given */
	size_t n_env, n_argv;
	struct seed *seeds; /* owned */
	size_t n_seeds;
	const void *input, *config; /* NULL = not given */
	size_t input_len, config_len;
	bool has_run, has_stdin;
	bool has_name, has_labels; /* given; null: with nothing in them */
	struct origin origin;	   /* workflow "" = not given */
	struct limits limits;	   /* each 0 = not given, and so are these: */
	uint32_t timeout_ms, idle_seconds, expires_in_seconds;
	uint32_t wait_ms;
	struct waiter *waiter; /* of the engine, once it was asked */
};

/*
 * Life of one in its request (r->op): begun, then refused, or asked of the
 * engine, and ended by its callback.  NULL: the request was answered.
 */
struct work *work_begin(struct request *r);
void work_refuse(struct request *r, const struct err *e);
/* rc: of the engine's function; not 0 = there will be no callback. */
void work_asked(struct request *r, int rc);
void work_end(struct request *r);
/* Out of its request, for a call that copies what it needs and may answer at
 * once: work_free it after the call. */
struct work *work_take(struct request *r);
void work_free(struct work *w);

/* Rows' functions; ctx is a struct work. */
typedef int work_decode(void *ctx, const char *path, struct json_span v,
			struct err *e);
work_decode work_code, work_input, work_config, work_template, work_limits,
	work_timeout, work_env, work_wait, work_argv, work_cwd, work_stdin,
	work_idle, work_expires, work_snapshot, work_name, work_labels,
	work_files, work_workflow;

/*
 * workflow.c: for whom the call is made.  *ret: the step of the grant that it
 * came with, or what the body says; NULL = of no workflow.  `wants`: what kind
 * of call it is, once the body is known.  0, or -1 with `e`: the grant is for
 * another.
 */
int work_origin(const struct request *r, const struct work *w,
		enum route_access wants, const struct origin **ret,
		struct err *e);

/* The hash of the request for its Idempotency-Key; 0 or -1 with `e`. */
int work_hash(struct request *r, struct json_span body, const char *record,
	      uint8_t ret[HASH_BYTES], struct err *e);

#endif
