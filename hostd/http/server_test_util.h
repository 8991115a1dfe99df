/*
 * For server_test.c: a server in a child process with a small route table,
 * and a client that talks to it byte by byte.  The server's clock is the
 * movable one: a test jumps over a deadline instead of waiting for it.
 */
#ifndef HUTCHD_SERVER_TEST_UTIL_H
#define HUTCHD_SERVER_TEST_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

#define ANSWER_BYTES_MAX (1u << 20)
#define ECHO_BYTES_MAX	 (64u << 10)
#define TEST_KEY	 "lbb_sk_test_0123456789abcdef"
#define CONNECTIONS_MAX	 1200
#define POUR_LINE_BYTES	 8192
#define POUR_LINES	 8000 /* 64 MB */
#define HOST		 "Host: localhost\r\n"
#define CLOSE		 HOST "Connection: close\r\n\r\n"

extern char answer[ANSWER_BYTES_MAX + 1]; /* the last one read */
extern int term_fd; /* one byte: drain; a second, or its end: stop */
extern pid_t server_pid;
extern rlim_t server_files; /* its RLIMIT_NOFILE; 0 = as ours */

int test_files_make(void);
void test_files_remove(void);
int start(void **state); /* group set-up */
int stop(void **state);
void clock_set(long ms);

int dial(void);
int dial_admin(void);
/* All that comes until the server closes; closes fd. */
const char *read_answer(int fd);
const char *talk_bytes(const char *request, size_t len);
const char *talk(const char *request);
/* Status line begins with `status`; `part` (or NULL) is in the answer. */
void want(const char *got, const char *status, const char *part);
void still_healthy(void);
const char *repeat(char *dst, const char *part, size_t times);

#endif
