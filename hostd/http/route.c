/* Matching a request to its row; see route.h. */
#include "route.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
	[HTTP_GET] = "GET",	    [HTTP_POST] = "POST",
	[HTTP_PUT] = "PUT",	    [HTTP_PATCH] = "PATCH",
	[HTTP_DELETE] = "DELETE",   [HTTP_HEAD] = "HEAD",
	[HTTP_OPTIONS] = "OPTIONS",
};
static_assert(sizeof(names) / sizeof(*names) == HTTP_METHODS, "names");

const char *http_method_name(enum http_method m)
{
	return m < HTTP_METHODS ? names[m] : "OTHER";
}

enum http_method http_method_parse(const char *name)
{
	for (int m = 0; m < HTTP_METHODS; m++)
		if (!strcmp(name, names[m]))
			return (enum http_method)m;
	return HTTP_OTHER;
}

static const struct {
	const char *name;
	bool needs_plan, is_grantable;
} accesses[] = {
#define X(name, ...) [ACCESS_##name] = {__VA_ARGS__},
	ROUTE_ACCESS(X)
#undef X
};
static_assert(sizeof(accesses) / sizeof(*accesses) == ACCESS_N, "accesses");

const char *route_access_name(enum route_access a)
{
	return accesses[a].name;
}

bool route_access_needs_plan(enum route_access a)
{
	return accesses[a].needs_plan;
}

enum route_access route_access_of_operation(const char *operation)
{
	static const char family[] = "sandbox_";

	if (strncmp(operation, family, sizeof(family) - 1))
		return ACCESS_OPEN;
	operation += sizeof(family) - 1;
	for (int a = 0; a < ACCESS_N; a++)
		if (accesses[a].is_grantable &&
		    !strcmp(operation, accesses[a].name))
			return (enum route_access)a;
	return ACCESS_OPEN;
}

const struct route *route_find(const struct route_table *const *tables,
			       enum http_method method, const char *path,
			       bool is_admin, unsigned *ret_allow)
{
	enum http_method want = method == HTTP_HEAD ? HTTP_GET : method;
	unsigned allow = 0;

	for (; *tables; tables++) {
		for (size_t i = 0; i < (*tables)->n; i++) {
			const struct route *r = &(*tables)->routes[i];

			if (strcmp(r->path, path) ||
			    ((r->flags & ROUTE_ADMIN) && !is_admin))
				continue;
			if (r->method == want)
				return r;
			allow |= 1u << r->method;
		}
	}
	if (allow & 1u << HTTP_GET)
		allow |= 1u << HTTP_HEAD;
	if (allow)
		allow |= 1u << HTTP_OPTIONS;
	*ret_allow = allow;
	return NULL;
}

void route_allow(unsigned allow, char *dst, size_t cap)
{
	size_t n = 0;

	dst[0] = 0;
	for (int m = 0; m < HTTP_METHODS && n < cap; m++)
		if (allow & 1u << m)
			n += (size_t)snprintf(dst + n, cap - n, "%s%s",
					      n ? ", " : "", names[m]);
}
