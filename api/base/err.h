/*
 * Errors at the edges: what a person or a client is told.
 *
 * Inside the programs a function returns 0 or a negative errno.  Where a
 * message must reach someone outside, the place that knows the cause fills a
 * struct err once; callers above add context in front and pass it on.
 * Codes, HTTP and exit statuses: api/errors.h.
 */
#ifndef HUTCH_ERR_H
#define HUTCH_ERR_H

#include "../errors.h"
#include <stdbool.h>

#define ERR_TEXT_BYTES_MAX  512
#define ERR_PARAM_BYTES_MAX 64

struct err {
	enum err_code code; /* ERR_NONE = no error */
	char text[ERR_TEXT_BYTES_MAX];
	char param[ERR_PARAM_BYTES_MAX]; /* request field, "" = none */
	int retry_after_s;		 /* 0 = say nothing */
	long long retry_at_ms;		 /* Unix; 0 = say nothing */
	const char
		*status; /* static: what state it is in; NULL = say nothing */
};

struct err_info {
	const char *code; /* on the wire */
	const char *type;
	int http_status;
	int exit_status;
	bool is_retryable;
	const char *sentence;
};

/* Row of api/errors.h; never NULL. */
const struct err_info *err_info(enum err_code code);

/*
 * Fill `e` and return -1, so that `return err_set(...)` reads well.  NULL
 * `fmt` takes the table's sentence.  `param` may be NULL.  `e` may be NULL.
 */
int err_set(struct err *e, enum err_code code, const char *param,
	    const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Put "context: " in front of the text; returns -1. */
int err_wrap(struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
