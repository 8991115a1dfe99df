/* What the tests of Files of graphs share: uploads, reads, a guest's side. */
#ifndef HUTCHD_ENGINE_GRAPH_FILE_UTIL_H
#define HUTCHD_ENGINE_GRAPH_FILE_UTIL_H

#include "engine_held_util.h"

/* An answer of any of the calls. */
struct fkept {
	int n;
	struct err err;
	struct file_rec r; /* owned */
	bool is_new;
	uint64_t bytes; /* of an import */
	struct move_ask *ask;
	struct upload *up;
};
void fkept_finish(struct fkept *k);
void on_kept(void *ctx, const struct err *e, const struct file_rec *r,
	     bool is_new);
void on_imported(void *ctx, const struct err *e, uint64_t bytes);
/* Until it is answered, or `*n` has become that. */
void fkept_wait(struct fkept *k);
void until(const int *n, int want);

/* From its begin to its answer; its hash. */
const uint8_t *uploaded(const char *name, const char *text);
int upload_begin(struct fkept *k, const char *name, uint64_t bytes);
void call_keep(struct fkept *k, const char *key, const char *sandbox,
	       const char *path);
void call_import(struct fkept *k, const char *key, const char *sandbox,
		 const char *path, const uint8_t sha256[HASH_BYTES]);
/* What a File has; "-" = there is none. */
const char *graph_text(const uint8_t sha256[HASH_BYTES]);
void graph_delete(const uint8_t sha256[HASH_BYTES], enum err_code want);
/* Names in STATE/files. */
unsigned n_blobs(void);

/* The guest of VM i: a part of a read, all of it; stamp 0 = none. */
void guest_reads(int i, const char *part, uint64_t size, uint8_t stamp);
/* It asks for `len` more bytes of a write, and gets them. */
void guest_wants(int i, size_t len);
void guest_done(int i, enum gp_file_how how);

#endif
