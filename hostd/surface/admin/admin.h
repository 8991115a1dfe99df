/*
 * The admin surface: what the hutch command asks, on the admin socket only.
 *
 * The caller is root or the daemon's own user.  All other routes answer there
 * too, for the environment named by `environment=` (env_local when absent).
 */
#ifndef HUTCHD_ADMIN_H
#define HUTCHD_ADMIN_H

#include "../../http/request.h"

#define ADMIN_BODY_BYTES_MAX	 4096
#define ADMIN_KEY_NAME_BYTES_MAX 63
#define ADMIN_PLACES_MAX	 100000

extern const struct route_table admin_routes;

/* fields.c */
const char *admin_plan_name(enum plan plan);
/* Rows of decode.h: 0 or -1 with `e`. */
int admin_decode_environment(char dst[ID_BYTES_MAX], const char *path,
			     struct json_span v, struct err *e);
int admin_decode_plan(enum plan *dst, const char *path, struct json_span v,
		      struct err *e);
/* The store made a change (rc): read it back, so that it is in force, then
 * call fn(r, rc). */
void admin_reload(struct request *r, int rc, store_rc_fn fn);
/* Answers: the store could not keep `what`. */
void admin_failed(struct request *r, const char *what, int rc);
/* Sandboxes that hold a place; graph NULL = of all graphs. */
uint32_t admin_places_held(const struct request *r, const char *environment,
			   const char *graph);
/* environments.c */
void admin_environment_create(struct request *r);
void admin_environment_list(struct request *r);
void admin_environment_set(struct request *r);
void admin_environment_delete(struct request *r);
/* NAME, as it is in force, and own_NAME: null when nothing was set. */
void admin_put_places(struct json_out *j, const char *name, uint32_t own,
		      uint64_t otherwise);
/* graphs.c */
void admin_graph_list(struct request *r);
void admin_graph_set(struct request *r);
/* Decimal text, as JSON has it: all 64 bits. */
void admin_epoch_print(char dst[24], uint64_t epoch);
/* budgets.c */
void admin_budget_set(struct request *r);
void admin_budget_list(struct request *r);
void admin_budget_delete(struct request *r);
/* keys.c; `secret` NULL = not told */
void admin_put_key(struct json_out *j, const struct key_info *k,
		   const char *secret);
void admin_key_create(struct request *r);
void admin_key_list(struct request *r);
void admin_key_revoke(struct request *r);
/* status.c */
void admin_status(struct request *r);
void admin_ps(struct request *r);
/* pool.c */
void admin_pool(struct request *r);
/* df.c */
void admin_df(struct request *r);
/* records.c */
void admin_records(struct request *r);
/* prepare.c */
void admin_prepare(struct request *r);

#endif
