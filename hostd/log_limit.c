/* Token buckets for log lines; see log_limit.h. */
#include "log_limit.h"
#include "clock.h"
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define HASH_STEP 0x9e3779b97f4a7c15ull

static const struct {
	unsigned burst_lines, lines_per_s;
} rates[] = {
	[LOG_ERROR] = {10, 2},
	[LOG_WARN] = {10, 2},
	[LOG_INFO] = {100, 20},
	[LOG_DEBUG] = {1000, 200},
};

struct kind {
	const char *fmt; /* NULL = free */
	int64_t millitokens, refilled_ms;
	unsigned long long n_left_out;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Open addressing by the format's address; the last is for all others. */
static struct kind kinds[LOG_LIMIT_KINDS_MAX + 1];
static const char others[] = "other messages";
static const char summary[] = "log left_out=%llu kind=\"%s\"";

static struct kind *kind_find(const char *fmt)
{
	size_t at = (size_t)(((uintptr_t)fmt * HASH_STEP) >> 32);

	for (size_t i = 0; i < LOG_LIMIT_KINDS_MAX; i++) {
		struct kind *k = &kinds[(at + i) % LOG_LIMIT_KINDS_MAX];

		if (!k->fmt || k->fmt == fmt)
			return k;
	}
	return &kinds[LOG_LIMIT_KINDS_MAX];
}

static void refill(struct kind *k, enum log_level level)
{
	int64_t now = clock_mono_ms(), full;

	full = (int64_t)rates[level].burst_lines * 1000;
	k->millitokens += (now - k->refilled_ms) * rates[level].lines_per_s;
	if (k->millitokens > full)
		k->millitokens = full;
	k->refilled_ms = now;
}

/* A pipe is writable when it has room for PIPE_BUF bytes, more than a line. */
static bool is_writable(void)
{
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};

	return poll(&p, 1, 0) != 0; /* an error is write's to find */
}

bool log_limit_pass(enum log_level level, const char *fmt)
{
	struct kind *k;
	bool is_good;

	if (fmt == summary)
		return true;
	pthread_mutex_lock(&lock);
	k = kind_find(fmt);
	if (!k->fmt) {
		k->fmt = k == &kinds[LOG_LIMIT_KINDS_MAX] ? others : fmt;
		k->millitokens = (int64_t)rates[level].burst_lines * 1000;
		k->refilled_ms = clock_mono_ms();
	}
	refill(k, level);
	is_good = k->millitokens >= 1000 && is_writable();
	if (is_good)
		k->millitokens -= 1000;
	else
		k->n_left_out++;
	pthread_mutex_unlock(&lock);
	return is_good;
}

void log_limit_summary(void)
{
	for (size_t i = 0; i <= LOG_LIMIT_KINDS_MAX; i++) {
		unsigned long long n;
		const char *fmt;

		if (!is_writable())
			return;
		pthread_mutex_lock(&lock);
		n = kinds[i].n_left_out;
		fmt = kinds[i].fmt;
		kinds[i].n_left_out = 0;
		pthread_mutex_unlock(&lock);
		if (n)
			log_line(LOG_WARN, summary, n,
				 log_quoted(fmt, strlen(fmt)).s);
	}
}

void log_limit_begin(void)
{
	log_set_gate(log_limit_pass);
}
