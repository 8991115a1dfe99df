/* The request hash of idempotency; see canon.h. */
#include "canon.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static bool update(EVP_MAC_CTX *mac, const void *data, size_t len)
{
	uint8_t head[8];

	le64_store(head, len);
	return EVP_MAC_update(mac, head, sizeof(head)) &&
	       EVP_MAC_update(mac, data, len);
}

static bool update_text(EVP_MAC_CTX *mac, const char *text)
{
	return update(mac, text, strlen(text));
}

static int by_name(const void *va, const void *vb)
{
	const struct json_member *a = va, *b = vb;
	size_t len = a->name.len < b->name.len ? a->name.len : b->name.len;
	int c = memcmp(a->name.at, b->name.at, len);

	if (c)
		return c;
	return a->name.len < b->name.len ? -1 : a->name.len > b->name.len;
}

static int members(struct json_span body, struct json_member *ret)
{
	struct json_member m;
	struct json_iter it;
	int n = 0;

	json_iter_begin(&it, body);
	while (json_iter_next(&it, &m)) {
		/* How long is waited, and which attempt asks, make no other
		 * request of it. */
		if (json_name_is(m.name, "wait_ms") ||
		    json_name_is(m.name, "workflow"))
			continue;
		if (n == CANON_MEMBERS_MAX)
			return -E2BIG;
		ret[n++] = m;
	}
	qsort(ret, (size_t)n, sizeof(*ret), by_name);
	return n;
}

static bool feed(EVP_MAC_CTX *mac, const struct canon_request *r,
		 const struct json_member *m, int n)
{
	if (!update_text(mac, r->method) || !update_text(mac, r->path) ||
	    !update_text(mac, r->operation) || !update_text(mac, r->graph))
		return false;
	if (r->record && !update_text(mac, r->record))
		return false;
	for (int i = 0; i < n; i++)
		if (!update(mac, m[i].name.at, m[i].name.len) ||
		    !update(mac, m[i].value.at, m[i].value.len))
			return false;
	return true;
}

int canon_hash(const uint8_t key[CANON_KEY_BYTES],
	       const struct canon_request *r, uint8_t ret[HASH_BYTES])
{
	struct json_member m[CANON_MEMBERS_MAX];
	char digest[] = "SHA256";
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string("digest", digest, 0),
		OSSL_PARAM_construct_end(),
	};
	int n = r->body.at ? members(r->body, m) : 0;
	EVP_MAC_CTX *ctx = NULL;
	EVP_MAC *mac = NULL;
	size_t len = 0;
	int rc = -EIO;

	if (n < 0)
		return n;
	mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;
	if (ctx && EVP_MAC_init(ctx, key, CANON_KEY_BYTES, params) &&
	    feed(ctx, r, m, n) && EVP_MAC_final(ctx, ret, &len, HASH_BYTES) &&
	    len == HASH_BYTES)
		rc = 0;
	EVP_MAC_CTX_free(ctx);
	EVP_MAC_free(mac);
	return rc;
}

static int key_make(const char *path, uint8_t ret[CANON_KEY_BYTES],
		    struct err *e)
{
	_cleanup_fd_ int fd = -1;
	char tmp[4096];
	int rc;

	if (snprintf(tmp, sizeof(tmp), "%s.new", path) >= (int)sizeof(tmp))
		return err_set(e, ERR_INTERNAL, NULL, "%s: path too long",
			       path);
	if (getrandom(ret, CANON_KEY_BYTES, 0) != CANON_KEY_BYTES)
		return err_set(e, ERR_INTERNAL, NULL, "getrandom: %m");
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
		  0600);
	if (fd < 0)
		return err_set(e, ERR_INTERNAL, NULL, "%s: %m", tmp);
	rc = fd_write_all(fd, ret, CANON_KEY_BYTES);
	if (rc || fsync(fd) || rename(tmp, path)) {
		if (rc)
			errno = -rc;
		return err_set(e, ERR_INTERNAL, NULL, "%s: %m", path);
	}
	return 0;
}

int canon_key_load(const char *path, uint8_t ret[CANON_KEY_BYTES],
		   struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		return key_make(path, ret, e);
	if (fd < 0 || fstat(fd, &st))
		return err_set(e, ERR_INTERNAL, NULL, "%s: %m", path);
	if (st.st_size != CANON_KEY_BYTES || (st.st_mode & 077))
		return err_set(e, ERR_INTERNAL, NULL,
			       "%s: expected %d bytes, mode 0600; found %lld "
			       "bytes, mode %04o",
			       path, CANON_KEY_BYTES, (long long)st.st_size,
			       st.st_mode & 07777u);
	if (fd_read_all(fd, ret, CANON_KEY_BYTES))
		return err_set(e, ERR_INTERNAL, NULL, "%s: cannot read", path);
	return 0;
}
