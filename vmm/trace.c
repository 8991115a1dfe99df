/*
 * The trace buffer and its writer; see trace.h.
 *
 * Two halves: callers fill one under the lock, the writer empties the other
 * without it.
 */
#include "trace.h"
#include "confine.h"
#include "fd.h"
#include "thread.h"
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRACE_FLUSH_MS 1000

struct trace {
	pthread_mutex_t lock;
	pthread_cond_t filled, emptied;
	pthread_t thread;
	int fd;	       /* borrowed */
	unsigned fill; /* half being filled: 0 or 1 */
	size_t len[2];
	uint64_t dropped;
	bool is_broken; /* the file cannot be written: all is dropped */
	char half[2][TRACE_BUFFER_BYTES / 2];
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int trace_create(struct trace **ret, int fd)
{
	struct trace *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->filled, NULL);
	pthread_cond_init(&t->emptied, NULL);
	t->fd = fd;
	*ret = t;
	return 0;
}

/* Lock held.  Room for one line is left for the count of dropped ones. */
static void append(struct trace *t, const char *line, size_t len, size_t spare)
{
	size_t *at = &t->len[t->fill];

	if (t->is_broken || len + spare > sizeof(t->half[0]) - *at) {
		t->dropped++;
		return;
	}
	memcpy(t->half[t->fill] + *at, line, len);
	*at += len;
}

void trace_line(struct trace *t, const char *fmt, ...)
{
	char line[TRACE_LINE_BYTES_MAX];
	va_list ap;
	int n, m;

	n = snprintf(line, sizeof(line), "{\"t\":%llu,",
		     (unsigned long long)now_ns());
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 2, fmt, ap);
	va_end(ap);
	if (m < 0 || (size_t)m >= sizeof(line) - (size_t)n - 2)
		return; /* only trace_text could, and it bounds its text */
	n += m;
	line[n++] = '}';
	line[n++] = '\n';
	pthread_mutex_lock(&t->lock);
	append(t, line, (size_t)n, TRACE_LINE_BYTES_MAX);
	pthread_cond_signal(&t->filled);
	pthread_mutex_unlock(&t->lock);
}

void trace_text(struct trace *t, const char *ev, const char *text)
{
	char esc[TRACE_LINE_BYTES_MAX / 2];
	size_t n = 0;

	if (!t)
		return;
	for (; *text && n + 2 < sizeof(esc); text++) {
		if (*text == '"' || *text == '\\')
			esc[n++] = '\\';
		esc[n++] = *text >= ' ' && *text < 0x7f ? *text : '?';
	}
	esc[n] = '\0';
	trace_line(t, "\"ev\":\"%s\",\"text\":\"%s\"", ev, esc);
}

static void *trace_thread(void *arg)
{
	struct trace *t = arg;
	struct err e = {0};

	if (confine_thread(CONFINE_TRACE, &e) < 0)
		return NULL; /* the start fails */
	pthread_mutex_lock(&t->lock);
	for (;;) {
		unsigned full = t->fill;
		int r;

		if (!t->len[full]) {
			pthread_cond_broadcast(&t->emptied);
			pthread_cond_wait(&t->filled, &t->lock);
			continue;
		}
		if (t->dropped) {
			char line[TRACE_LINE_BYTES_MAX];
			int n = snprintf(line, sizeof(line),
					 "{\"t\":%llu,\"ev\":\"dropped\","
					 "\"n\":%llu}\n",
					 (unsigned long long)now_ns(),
					 (unsigned long long)t->dropped);

			t->dropped = 0;
			append(t, line, (size_t)n, 0);
		}
		t->fill = !full;
		pthread_mutex_unlock(&t->lock);
		r = fd_write_all(t->fd, t->half[full], t->len[full]);
		pthread_mutex_lock(&t->lock);
		t->len[full] = 0;
		t->is_broken = t->is_broken || r < 0;
	}
	return NULL;
}

int trace_start(struct trace *t)
{
	return thread_create(&t->thread, trace_thread, t);
}

void trace_flush(struct trace *t)
{
	struct timespec until;

	if (!t)
		return;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += TRACE_FLUSH_MS / 1000;
	pthread_mutex_lock(&t->lock);
	pthread_cond_signal(&t->filled);
	while (t->len[0] || t->len[1])
		if (pthread_cond_timedwait(&t->emptied, &t->lock, &until))
			break;
	pthread_mutex_unlock(&t->lock);
}
