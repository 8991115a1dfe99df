/* See sealed.h. */
#include "sealed.h"
#include "fd.h"
#include "sha256.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct envelope {
	uint8_t magic[SEALED_MAGIC_BYTES];
	uint32_t version;
	uint8_t sum[SHA256_BYTES];
	uint32_t n_body;
	uint8_t body[SEALED_BYTES_MAX];
};

static const struct codec_field envelope_table[] = {
	CODEC_FIELD_FIXED(1, struct envelope, magic),
	CODEC_FIELD_UINT(2, struct envelope, version),
	CODEC_FIELD_FIXED(3, struct envelope, sum),
	CODEC_FIELD_BYTES(4, struct envelope, body, n_body),
	CODEC_FIELD_END,
};

static void sum_of(const void *data, size_t len, uint8_t ret[SHA256_BYTES])
{
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, data, len);
	sha256_end(&s, ret);
}

int sealed_write(int fd, const struct sealed_kind *k, const void *from,
		 struct err *e)
{
	_cleanup_bytes_ struct bytes body = {0}, file = {0};
	struct envelope *v = calloc(1, sizeof(*v));
	int r = v ? codec_encode(&body, k->table, from) : -ENOMEM;

	if (r == 0 && body.len > sizeof(v->body))
		r = -EFBIG;
	if (r == 0) {
		memcpy(v->magic, k->magic, sizeof(v->magic));
		v->version = k->version;
		v->n_body = (uint32_t)body.len;
		memcpy(v->body, body.data, body.len);
		sum_of(v->body, v->n_body, v->sum);
		r = codec_encode(&file, envelope_table, v);
	}
	free(v);
	if (r == 0 && ftruncate(fd, 0) < 0)
		r = -errno;
	if (r == 0)
		r = fd_pwrite_all(fd, file.data, file.len, 0);
	if (r < 0) {
		err_set(e, ERR_INTERNAL, NULL, "%s: %s", k->name, strerror(-r));
		return r;
	}
	return 0;
}

static int refuse(const struct sealed_kind *k, struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID_REQUEST, "restore", "%s: %s", k->name,
		       what);
}

static int parse(const uint8_t *file, size_t len, const struct sealed_kind *k,
		 struct envelope *v, void *to, struct err *e)
{
	uint8_t sum[SHA256_BYTES];
	const char *field;

	if (codec_decode(file, len, envelope_table, v, &field) < 0) {
		if (memcmp(v->magic, k->magic, sizeof(v->magic)) != 0)
			return refuse(k, e, "not a snapshot");
		return refuse(k, e,
			      "torn: it ends before its body does, or after");
	}
	if (memcmp(v->magic, k->magic, sizeof(v->magic)) != 0)
		return refuse(k, e, "not a snapshot");
	if (v->version != k->version)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "%s: version %u, this program reads version %u",
			       k->name, v->version, k->version);
	sum_of(v->body, v->n_body, sum);
	if (memcmp(sum, v->sum, sizeof(sum)) != 0)
		return refuse(k, e, "altered: its SHA-256 does not match");
	if (codec_decode(v->body, v->n_body, k->table, to, &field) < 0)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "%s: field '%s' cannot be read", k->name, field);
	return 0;
}

int sealed_read(int fd, const struct sealed_kind *k, void *to, struct err *e)
{
	struct envelope *v;
	uint8_t *file;
	struct stat st;
	int r = -1;

	if (fstat(fd, &st) < 0)
		return refuse(k, e, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return refuse(k, e, "not a regular file");
	if (st.st_size <= 0 || st.st_size > SEALED_BYTES_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "%s: %lld bytes, 1 to %u are possible", k->name,
			       (long long)st.st_size, SEALED_BYTES_MAX);
	file = malloc((size_t)st.st_size);
	v = calloc(1, sizeof(*v));
	if (!file || !v)
		refuse(k, e, "out of memory");
	else if (fd_pread_all(fd, file, (size_t)st.st_size, 0) < 0)
		refuse(k, e, "torn: it cannot be read to its end");
	else
		r = parse(file, (size_t)st.st_size, k, v, to, e);
	free(file);
	free(v);
	return r;
}
