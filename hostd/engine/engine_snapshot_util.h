/* What the tests of snapshots share. */
#ifndef HUTCHD_ENGINE_SNAPSHOT_UTIL_H
#define HUTCHD_ENGINE_SNAPSHOT_UTIL_H

#include "engine_held_util.h"

/* One pending call about a snapshot and what it was answered. */
struct snap_call {
	int n_answers;
	struct err err;
	struct snapshot_rec rec;
};

void on_snapshot(void *ctx, const struct err *e, const struct snapshot_rec *r);
/* Named `ready`; expires_in_seconds 0 = never. */
void call_take_for(struct snap_call *c, const char *sandbox, const char *key,
		   uint32_t expires_in_seconds);
void call_take(struct snap_call *c, const char *sandbox, const char *key);
/* From call to record. */
void take(struct snap_call *c, const char *sandbox, const char *key);
/* The answer's code. */
int read_one(struct snap_call *c, const char *id, bool is_delete);

#endif
