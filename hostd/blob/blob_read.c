/*
 * Reading one to its end, by a worker, piece by piece; see blob.h.
 */
#include "../loop.h"
#include "blob.h"
#include "fd.h"
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <unistd.h>

struct blob_reader {
	struct loop *loop;
	int fd;
	uint64_t at, bytes;
	uint8_t want[HASH_BYTES];
	EVP_MD_CTX *md;
	uint8_t *data;
	size_t len;
	int rc;
	bool has_job, is_dead;
	blob_read_fn fn;
	void *ctx;
};

static void drop(struct blob_reader *r)
{
	fd_close(&r->fd);
	EVP_MD_CTX_free(r->md);
	free(r->data);
	free(r);
}

static void job_run(void *arg)
{
	struct blob_reader *r = arg;
	uint8_t is[HASH_BYTES];

	r->rc = fd_pread_all(r->fd, r->data, r->len, (off_t)r->at);
	if (!r->rc && !EVP_DigestUpdate(r->md, r->data, r->len))
		r->rc = -EIO;
	if (r->rc || r->at + r->len < r->bytes)
		return;
	if (!EVP_DigestFinal_ex(r->md, is, NULL))
		r->rc = -EIO;
	else if (memcmp(is, r->want, sizeof(is)) != 0)
		r->rc = -EBADMSG;
}

static void job_done(void *arg)
{
	struct blob_reader *r = arg;

	r->has_job = false;
	if (r->is_dead) {
		drop(r);
		return;
	}
	r->at += r->len;
	/* Cut short: it is not what it was. */
	r->fn(r->ctx, r->rc == -ENODATA ? -EBADMSG : r->rc,
	      r->rc ? NULL : r->data, r->rc ? 0 : r->len);
}

int blob_reader_new(struct blob_reader **ret, struct loop *loop, int fd,
		    uint64_t bytes, const uint8_t sha256[HASH_BYTES],
		    blob_read_fn fn, void *ctx)
{
	struct blob_reader *r = calloc(1, sizeof(*r));

	if (!r) {
		fd_close(&fd);
		return -ENOMEM;
	}
	r->loop = loop;
	r->fd = fd;
	r->bytes = bytes;
	r->fn = fn;
	r->ctx = ctx;
	memcpy(r->want, sha256, HASH_BYTES);
	r->data = malloc(BLOB_CHUNK_BYTES);
	r->md = EVP_MD_CTX_new();
	if (!r->data || !r->md ||
	    !EVP_DigestInit_ex(r->md, EVP_sha256(), NULL)) {
		drop(r);
		return -ENOMEM;
	}
	*ret = r;
	return 0;
}

int blob_read(struct blob_reader *r, size_t len)
{
	uint64_t left = r->bytes - r->at;
	int rc;

	if (r->has_job)
		return -EBUSY;
	r->len = len < left ? len : (size_t)left;
	rc = loop_work(r->loop, job_run, job_done, r);
	r->has_job = !rc;
	return rc;
}

void blob_reader_free(struct blob_reader *r)
{
	if (!r)
		return;
	r->is_dead = true;
	if (!r->has_job)
		drop(r);
}
