/* A small HTTP/1.1 client; see http.h. */
#include "http.h"
#include "fd.h"
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TIMEOUT_MS_DEFAULT 60000
#define POLL_SLICE_MS	   200
#define SEND_BYTES	   65536

void http_init_socket(struct http *h, const char *path)
{
	memset(h, 0, sizeof(*h));
	h->fd = h->file.fd = -1;
	h->timeout_ms = TIMEOUT_MS_DEFAULT;
	snprintf(h->socket, sizeof(h->socket), "%s", path);
}

int http_init_url(struct http *h, const char *url, struct err *e)
{
	const char *p = url, *end;
	size_t n;

	http_init_socket(h, "");
	if (!strncmp(url, "https://", 8))
		return err_set(e, ERR_INVALID_REQUEST, "url",
			       "--url %s: https is not supported; use a "
			       "loopback or tunnelled http address",
			       url);
	if (strncmp(p, "http://", 7))
		return err_set(e, ERR_INVALID_REQUEST, "url",
			       "--url %s: expected http://HOST[:PORT]", url);
	p += 7;
	n = strcspn(p, ":/");
	if (!n || n >= sizeof(h->host))
		return err_set(e, ERR_INVALID_REQUEST, "url",
			       "--url %s: expected http://HOST[:PORT]", url);
	memcpy(h->host, p, n);
	p += n;
	snprintf(h->port, sizeof(h->port), "80");
	if (*p == ':') {
		n = strspn(p + 1, "0123456789");
		if (!n || n >= sizeof(h->port))
			return err_set(e, ERR_INVALID_REQUEST, "url",
				       "--url %s: bad port", url);
		memcpy(h->port, p + 1, n);
		h->port[n] = 0;
		p += 1 + n;
	}
	end = p + strlen(p);
	while (end > p && end[-1] == '/')
		end--;
	snprintf(h->prefix, sizeof(h->prefix), "%.*s", (int)(end - p), p);
	return 0;
}

void http_finish(struct http *h)
{
	fd_close(&h->fd);
}

void http_reply_finish(struct http_reply *r)
{
	bytes_finish(&r->head);
	bytes_finish(&r->body);
}

static int connect_unix(struct http *h)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	memcpy(a.sun_path, h->socket, sizeof(a.sun_path));
	h->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (h->fd < 0)
		return -errno;
	if (!connect(h->fd, (struct sockaddr *)&a, sizeof(a)))
		return 0;
	fd_close(&h->fd);
	return -errno;
}

static int connect_tcp(struct http *h)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
	int rc = -EHOSTUNREACH;

	if (getaddrinfo(h->host, h->port, &hints, &list))
		return -EHOSTUNREACH;
	for (struct addrinfo *a = list; a && h->fd < 0; a = a->ai_next) {
		h->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (h->fd >= 0 && !connect(h->fd, a->ai_addr, a->ai_addrlen))
			break;
		rc = -errno;
		fd_close(&h->fd);
	}
	freeaddrinfo(list);
	return h->fd >= 0 ? 0 : rc;
}

int http_connect(struct http *h)
{
	if (h->fd >= 0)
		return 0;
	return h->host[0] ? connect_tcp(h) : connect_unix(h);
}

/* Append what arrives to `b`; bytes received, 0 at the end, or -errno. */
static int receive(struct http *h, struct bytes *b)
{
	int waited_ms = 0, rc;
	ssize_t n;

	for (;;) {
		struct pollfd p = {.fd = h->fd, .events = POLLIN};

		if (h->is_cancelled && *h->is_cancelled)
			return -EINTR;
		rc = poll(&p, 1, POLL_SLICE_MS);
		if (rc > 0)
			break;
		if (rc < 0 && errno != EINTR)
			return -errno;
		waited_ms += POLL_SLICE_MS;
		if (waited_ms >= h->timeout_ms)
			return -ETIMEDOUT;
	}
	rc = bytes_reserve(b, 16384);
	if (rc)
		return rc;
	n = recv(h->fd, b->data + b->len, 16384, 0);
	if (n < 0)
		return -errno;
	b->len += (size_t)n;
	return (int)n;
}

static int send_all(struct http *h, const void *data, size_t len)
{
	const char *p = data;

	while (len) {
		ssize_t n = send(h->fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* ---- a body from a file ---------------------------------------------------
 */

static int file_head(const struct http *h, struct bytes *b)
{
	int rc = bytes_printf(b, "Content-Type: %s\r\n", h->file.type);

	if (rc)
		return rc;
	return h->file.bytes == UINT64_MAX
		       ? bytes_printf(b, "Transfer-Encoding: chunked\r\n")
		       : bytes_printf(b, "Content-Length: %llu\r\n",
				      (unsigned long long)h->file.bytes);
}

/* Bytes read, 0 at the end. */
static ssize_t file_read(const struct http *h, void *dst, size_t len)
{
	ssize_t n;

	do {
		if (h->is_cancelled && *h->is_cancelled)
			return -EINTR;
		n = read(h->file.fd, dst, len);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int file_send(struct http *h)
{
	static char buf[SEND_BYTES];
	bool is_chunked = h->file.bytes == UINT64_MAX;
	uint64_t left = h->file.bytes;
	char size[24];
	int rc = 0;

	while (!rc && left) {
		ssize_t n = file_read(h, buf,
				      left < sizeof(buf) ? (size_t)left
							 : sizeof(buf));

		if (n < 0)
			return (int)n;
		if (!n)
			return is_chunked ? send_all(h, "0\r\n\r\n", 5)
					  : -ENODATA;
		if (is_chunked) {
			snprintf(size, sizeof(size), "%zx\r\n", (size_t)n);
			rc = send_all(h, size, strlen(size));
		} else {
			left -= (uint64_t)n;
		}
		if (!rc)
			rc = send_all(h, buf, (size_t)n);
		if (!rc && is_chunked)
			rc = send_all(h, "\r\n", 2);
	}
	/* It may have been refused before its end: the answer says why. */
	return rc == -EPIPE || rc == -ECONNRESET ? 0 : rc;
}

static int send_request(struct http *h, const char *method, const char *path,
			const char *headers, const struct bytes *body)
{
	_cleanup_bytes_ struct bytes b = {0};
	int rc;

	rc = bytes_printf(&b, "%s %s%s HTTP/1.1\r\nHost: %s%s%s\r\n%s", method,
			  h->prefix, path, h->host[0] ? h->host : "localhost",
			  h->host[0] ? ":" : "", h->host[0] ? h->port : "",
			  headers);
	if (!rc && h->more_headers)
		rc = bytes_printf(&b, "%s", h->more_headers);
	if (!rc && h->file.fd >= 0)
		rc = file_head(h, &b);
	if (!rc && body)
		rc = bytes_printf(&b,
				  "Content-Type: application/json\r\n"
				  "Content-Length: %zu\r\n",
				  body->len);
	if (!rc)
		rc = bytes_append(&b, "\r\n", 2);
	if (!rc && body)
		rc = bytes_append(&b, body->data, body->len);
	if (!rc)
		rc = send_all(h, b.data, b.len);
	return rc || h->file.fd < 0 ? rc : file_send(h);
}

bool http_header(const struct http_reply *r, const char *name, char *dst,
		 size_t cap)
{
	const char *p = (const char *)r->head.data, *end = p + r->head.len;
	size_t len = strlen(name);

	while (p < end) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));
		size_t n = (size_t)((eol ? eol : end) - p);

		if (n > len && !strncasecmp(p, name, len) && p[len] == ':') {
			const char *v = p + len + 1;
			const char *v_end = p + n;

			while (v < v_end && isspace((unsigned char)*v))
				v++;
			while (v_end > v && isspace((unsigned char)v_end[-1]))
				v_end--;
			if ((size_t)(v_end - v) >= cap)
				return false;
			memcpy(dst, v, (size_t)(v_end - v));
			dst[v_end - v] = 0;
			return true;
		}
		p += n + 1;
	}
	return false;
}

/* "HTTP/1.x NNN": the head ends in CRLF CRLF, so these bytes are there. */
static int read_status(struct http_reply *r)
{
	const char *p = (const char *)r->head.data;

	if (r->head.len < 16 || strncmp(p, "HTTP/1.", 7) || p[8] != ' ')
		return -EPROTO;
	for (int i = 9; i < 12; i++) {
		if (p[i] < '0' || p[i] > '9')
			return -EPROTO;
		r->status = r->status * 10 + p[i] - '0';
	}
	return 0;
}

/* The head up to its empty line; the rest stays in `in`. */
static int read_head(struct http *h, struct bytes *in, struct http_reply *r)
{
	const uint8_t *end;
	size_t len;
	int rc;

	while (!(end = in->len ? memmem(in->data, in->len, "\r\n\r\n", 4)
			       : NULL)) {
		if (in->len > HTTP_HEAD_BYTES_MAX)
			return -EPROTO;
		rc = receive(h, in);
		if (rc <= 0)
			return rc ? rc : -ECONNRESET;
	}
	len = (size_t)(end - in->data) + 4;
	rc = bytes_append(&r->head, in->data, len);
	if (!rc)
		rc = bytes_append(&r->head, "", 1);
	if (rc)
		return rc;
	r->head.len--;
	bytes_consume(in, len);
	return read_status(r);
}

static int read_exactly(struct http *h, struct bytes *in, size_t len,
			struct bytes *out)
{
	int rc;

	if (len > HTTP_BODY_BYTES_MAX - out->len)
		return -EMSGSIZE;
	while (in->len < len) {
		rc = receive(h, in);
		if (rc <= 0)
			return rc ? rc : -ECONNRESET;
	}
	rc = bytes_append(out, in->data, len);
	bytes_consume(in, len);
	return rc;
}

static int read_chunks(struct http *h, struct bytes *in, struct bytes *out)
{
	for (;;) {
		const uint8_t *eol;
		unsigned long len;
		int rc;

		while (!(eol = in->len ? memmem(in->data, in->len, "\r\n", 2)
				       : NULL)) {
			if (in->len > 128)
				return -EPROTO;
			rc = receive(h, in);
			if (rc <= 0)
				return rc ? rc : -ECONNRESET;
		}
		len = strtoul((char *)in->data, NULL, 16);
		bytes_consume(in, (size_t)(eol - in->data) + 2);
		rc = read_exactly(h, in, len, out);
		if (rc)
			return rc;
		rc = read_exactly(h, in, 2, out);
		if (rc)
			return rc;
		out->len -= 2; /* the chunk's own CRLF */
		if (!len)
			return 0;
		if (h->on_body)
			h->on_body(h->on_body_ctx, out);
	}
}

static int read_reply(struct http *h, const char *method, struct http_reply *r)
{
	_cleanup_bytes_ struct bytes in = {0};
	char value[32];
	int rc = read_head(h, &in, r);

	if (rc)
		return rc;
	if (!strcmp(method, "HEAD") || r->status == 204)
		rc = 0;
	else if (http_header(r, "Transfer-Encoding", value, sizeof(value)))
		rc = read_chunks(h, &in, &r->body);
	else if (http_header(r, "Content-Length", value, sizeof(value)))
		rc = read_exactly(h, &in, strtoul(value, NULL, 10), &r->body);
	if (http_header(r, "Connection", value, sizeof(value)) &&
	    !strcasecmp(value, "close"))
		fd_close(&h->fd);
	return rc;
}

int http_call(struct http *h, const char *method, const char *path,
	      const char *headers, const struct bytes *body, bool is_repeatable,
	      struct http_reply *ret)
{
	bool may_repeat = h->fd >= 0 && h->file.fd < 0 &&
			  (is_repeatable || !strcmp(method, "GET"));
	int rc;

	for (;;) {
		memset(ret, 0, sizeof(*ret));
		rc = http_connect(h);
		if (!rc)
			rc = send_request(h, method, path, headers, body);
		if (!rc)
			rc = read_reply(h, method, ret);
		if (!rc)
			return 0;
		fd_close(&h->fd);
		if (!may_repeat || ret->head.len || rc == -EINTR ||
		    rc == -ETIMEDOUT) {
			http_reply_finish(ret);
			return rc;
		}
		may_repeat = false;
		http_reply_finish(ret);
	}
}
