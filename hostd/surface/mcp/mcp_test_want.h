/*
 * For the unit tests of this folder: a call, and what must have come of it.
 */
#ifndef HUTCHD_MCP_TEST_WANT_H
#define HUTCHD_MCP_TEST_WANT_H

#include "mcp_priv.h"
#include "mcp_test_util.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

int reset(void **state); /* teardown of each */
#define TEST(fn) cmocka_unit_test_teardown(fn, reset)

/* tools/call, id 7; `arguments` is JSON. */
void call(const char *tool, const char *arguments);
/* The reply's status, with `part` (or NULL) in its body. */
void want(int status, const char *part);
void unwanted(const char *part);
/* A tool's result whose structuredContent has `part`, and whose text is the
 * same. */
void want_result(const char *part);
/* The request of /v1 at this place. */
void want_sent(unsigned at, enum http_method method, const char *path,
	       const char *query, const char *body);

#endif
