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

extern const struct route_table admin_routes;

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
