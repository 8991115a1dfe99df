/* Listening sockets; see listen.h. */
#include "listen.h"
#include "fd.h"
#include "server.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static int bad(const char *where, struct err *e)
{
	return err_set(e, ERR_INVALID_REQUEST, "listen",
		       "listen = \"%s\": must be ADDRESS:PORT, such as "
		       "127.0.0.1:7400 or [::1]:7400, or none",
		       where);
}

static int parse(const char *where, union address *ret, socklen_t *ret_len,
		 struct err *e)
{
	const char *colon = strrchr(where, ':');
	char host[64], *end;
	size_t len = colon ? (size_t)(colon - where) : 0;
	unsigned long port;

	if (!len || len >= sizeof(host) || colon[1] < '0' || colon[1] > '9')
		return bad(where, e);
	port = strtoul(colon + 1, &end, 10);
	if (*end || port > 65535)
		return bad(where, e);
	memset(ret, 0, sizeof(*ret));
	if (where[0] == '[' && where[len - 1] == ']') {
		memcpy(host, where + 1, len - 2);
		host[len - 2] = 0;
		ret->v6.sin6_family = AF_INET6;
		ret->v6.sin6_port = htons((uint16_t)port);
		*ret_len = sizeof(ret->v6);
		if (inet_pton(AF_INET6, host, &ret->v6.sin6_addr) != 1)
			return bad(where, e);
		return 0;
	}
	memcpy(host, where, len);
	host[len] = 0;
	ret->v4.sin_family = AF_INET;
	ret->v4.sin_port = htons((uint16_t)port);
	*ret_len = sizeof(ret->v4);
	return inet_pton(AF_INET, host, &ret->v4.sin_addr) == 1 ? 0
								: bad(where, e);
}

int listen_check(const char *where, struct err *e)
{
	union address a;
	socklen_t len;

	return parse(where, &a, &len, e);
}

static bool is_loopback(const union address *a)
{
	if (a->any.sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
	return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
}

static void print(const union address *a, char *dst, size_t cap)
{
	char host[INET6_ADDRSTRLEN] = "";

	if (a->any.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &a->v6.sin6_addr, host, sizeof(host));
		snprintf(dst, cap, "[%s]:%u", host, ntohs(a->v6.sin6_port));
		return;
	}
	inet_ntop(AF_INET, &a->v4.sin_addr, host, sizeof(host));
	snprintf(dst, cap, "%s:%u", host, ntohs(a->v4.sin_port));
}

int listen_tcp(const char *where, char *ret_address, size_t cap,
	       bool *ret_is_loopback, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	union address a;
	socklen_t len;
	int on = 1;

	if (parse(where, &a, &len, e))
		return -1;
	fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
		    0);
	if (fd < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, &a.any, len) || listen(fd, HTTP_BACKLOG) ||
	    getsockname(fd, &a.any, &len))
		return err_set(e, ERR_INTERNAL, NULL, "cannot listen on %s: %m",
			       where);
	print(&a, ret_address, cap);
	*ret_is_loopback = is_loopback(&a);
	return fd_take(&fd);
}

int listen_unix(const char *path, struct err *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	_cleanup_fd_ int fd = -1;
	mode_t old;
	int rc;

	if (strlen(path) >= sizeof(a.sun_path))
		return err_set(e, ERR_INVALID_REQUEST, "state_dir",
			       "%s: %zu bytes, a socket path has at most %zu",
			       path, strlen(path), sizeof(a.sun_path) - 1);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(e, ERR_INTERNAL, NULL, "socket: %m");
	/* The state folder is locked by us: what is there is left over. */
	unlink(path);
	old = umask(0177);
	rc = bind(fd, (struct sockaddr *)&a, sizeof(a));
	umask(old);
	if (rc || listen(fd, HTTP_BACKLOG))
		return err_set(e, ERR_INTERNAL, NULL, "cannot listen on %s: %m",
			       path);
	return fd_take(&fd);
}
