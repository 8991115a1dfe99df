/* What blob.c and blob_write.c share; nobody else includes this. */
#ifndef HUTCHD_BLOB_PRIV_H
#define HUTCHD_BLOB_PRIV_H

#include "../loop.h"
#include "blob.h"
#include <openssl/evp.h>

/* A name that was there at the start. */
struct blob_found {
	uint8_t sha256[HASH_BYTES]; /* first: it is searched by that */
	uint64_t bytes;
	bool is_marked;
};

struct blobs {
	unsigned n_refs; /* the owner, and writers */
	struct loop *loop;
	int dir_fd;
	struct list writers;
	uint64_t bytes, count;
	/* NULL: the next start sweeps. */
	void (*orphan)(void *ctx, const uint8_t sha256[HASH_BYTES]);
	void *orphan_ctx;
	struct blob_found *found; /* owned, sorted, until the sweep */
	size_t n_found, cap_found;
};

enum blob_step {
	BLOB_FILLING, /* bytes come, and are written */
	BLOB_SEALING, /* the last of them; hashed, on the disk */
	BLOB_NAMING,
	BLOB_NAMED,
};

struct blob_writer {
	struct list node; /* in blobs.writers */
	struct blobs *b;
	int fd;
	EVP_MD_CTX *md;
	enum blob_step step;
	bool has_job, is_dead, is_pinned, is_finishing;
	bool is_new;		 /* its name was not there */
	struct bytes fill, busy; /* the worker has `busy`, fd and md */
	uint64_t taken, written;
	uint8_t sha256[HASH_BYTES];
	int rc, job_rc;
	blob_room_fn room;
	blob_done_fn done;
	void *ctx, *done_ctx;
};

void blobs_unref(struct blobs *b);

#endif
