/*
 * Bytes of Files on the disk, each once, by their SHA-256.
 *
 *   STATE/files/<64 hex digits>   mode 0600, whole and durable
 *
 * What is being written has no name (O_TMPFILE), so a crash leaves nothing of
 * it.  It gets its name when all of it is on the disk; a name that is there
 * already has the same bytes.  Whose the bytes are is in records (store): this
 * knows nothing of them, and removes what it is told to.
 *
 * A hash is pinned from before its name is made until its writer is freed, and
 * is not removed meanwhile: who was about to write a record for it finds the
 * bytes there.  What blocks is done by workers; all functions and callbacks:
 * loop thread.
 */
#ifndef HUTCHD_BLOB_H
#define HUTCHD_BLOB_H

#include "../store/record.h"
#include "err.h"

struct blobs;
struct loop;

#define BLOB_FOLDER "files"
/* Written at once; a writer holds at most this and one call's more, twice. */
#define BLOB_CHUNK_BYTES (256u << 10)

/* The folder in `state_dir`, made if need be, and the names in it.  -1 with
 * `e`. */
int blobs_open(struct blobs **ret, struct loop *loop, const char *state_dir,
	       struct err *e);
/* Writers that are not freed keep what they need. */
void blobs_close(struct blobs *b);
/* `fn`: a name for which nobody wrote a record, as far as its writer knows: who
 * has the records looks, and calls blob_remove. */
void blobs_on_orphan(struct blobs *b,
		     void (*fn)(void *ctx, const uint8_t sha256[HASH_BYTES]),
		     void *ctx);

/* At the start: this one has a record.  -ENOENT: its bytes are gone. */
int blobs_mark(struct blobs *b, const uint8_t sha256[HASH_BYTES]);
/* Then: the rest is removed; how many. */
size_t blobs_sweep(struct blobs *b);

/* Of all that have a name. */
uint64_t blobs_bytes(const struct blobs *b);
uint64_t blobs_count(const struct blobs *b);

/* A descriptor to read, the caller's, or -errno (-ENOENT). */
int blob_open(const struct blobs *b, const uint8_t sha256[HASH_BYTES]);
/* Unless it is pinned; a descriptor that is open goes on. */
void blob_remove(struct blobs *b, const uint8_t sha256[HASH_BYTES]);

/* ---- writing ------------------------------------------------------------ */

struct blob_writer;
/* Room again, or an error (blob_error). */
typedef void (*blob_room_fn)(void *ctx);
int blob_writer_new(struct blob_writer **ret, struct blobs *b,
		    blob_room_fn room, void *ctx);
/* At any time, once; NULL does nothing.  No callback after it.  is_kept: there
 * is a record of what it wrote. */
void blob_writer_free(struct blob_writer *w, bool is_kept);

/* Copies.  0 or -errno: what was written before failed, too. */
int blob_write(struct blob_writer *w, const void *data, size_t len);
/* The disk is behind: `room` will be called. */
bool blob_is_full(const struct blob_writer *w);
int blob_error(const struct blob_writer *w); /* 0 or -errno */
uint64_t blob_written(const struct blob_writer *w);

/*
 * That was all: `done` once, with 0 when it is there by its name, durably.
 * -errno: it will not be called.
 */
typedef void (*blob_done_fn)(void *ctx, int rc,
			     const uint8_t sha256[HASH_BYTES], uint64_t bytes);
int blob_finish(struct blob_writer *w, blob_done_fn done, void *ctx);

/* ---- reading (blob_read.c) ----------------------------------------------- */

/*
 * All of it, piece by piece, and held against its hash: the last piece is given
 * only when that is right (-EBADMSG).  Owns fd from the call on.
 */
struct blob_reader;
typedef void (*blob_read_fn)(void *ctx, int rc, const uint8_t *data,
			     size_t len);
int blob_reader_new(struct blob_reader **ret, struct loop *loop, int fd,
		    uint64_t bytes, const uint8_t sha256[HASH_BYTES],
		    blob_read_fn fn, void *ctx);
/* The next `len` bytes, 1 to BLOB_CHUNK_BYTES, as far as there are any; `fn`
 * follows, and the bytes are borrowed until it returns.  One at a time. */
int blob_read(struct blob_reader *r, size_t len);
void blob_reader_free(struct blob_reader *r);

#endif
