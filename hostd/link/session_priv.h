/* What session.c and session_file.c share. */
#ifndef HUTCHD_SESSION_PRIV_H
#define HUTCHD_SESSION_PRIV_H

#include "session.h"

/* The rule break's sentence is kept; -EPROTO. */
int session_broken(struct session *s, const struct frame *f, const char *why);
/* A frame of no use: 0, or -EPROTO when there were very many. */
int session_stray(struct session *s, const struct frame *f);

/* session_file.c: frames of the call that is under way; `c` is NULL. */
int session_file_entry(struct session *s, const struct frame *f,
		       struct session_cmd *c);
int session_file_data(struct session *s, const struct frame *f,
		      struct session_cmd *c);
int session_file_more(struct session *s, const struct frame *f,
		      struct session_cmd *c);
int session_file_done(struct session *s, const struct frame *f,
		      struct session_cmd *c);

#endif
