/* Structured log lines; see log.h. */
#include "log.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *program = "hutch";
static enum log_level threshold = LOG_INFO;
static log_gate_fn gate;
static const char *const names[] = {"error", "warn", "info", "debug"};

void log_init(const char *name)
{
	const char *want = getenv("HUTCH_LOG");

	program = name;
	for (size_t i = 0; want && i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(want, names[i]))
			threshold = (enum log_level)i;
}

void log_set_level(enum log_level level)
{
	threshold = level;
}

void log_set_gate(log_gate_fn fn)
{
	gate = fn;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char line[LOG_LINE_BYTES_MAX];
	int saved = errno;
	struct timespec ts;
	struct tm tm;
	va_list ap;
	size_t n;
	int k;

	if (level > threshold || (gate && !gate(level, fmt)))
		return;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
	k = snprintf(line + n, sizeof(line) - n, ".%03ldZ %s %s ",
		     ts.tv_nsec / 1000000, program, names[level]);
	n += (size_t)k;
	va_start(ap, fmt);
	k = vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	va_end(ap);
	if (k > 0)
		n += (size_t)k < sizeof(line) - n - 2 ? (size_t)k
						      : sizeof(line) - n - 2;
	line[n++] = '\n';
	while (write(STDERR_FILENO, line, n) < 0 && errno == EINTR)
		;
	errno = saved;
}

static struct log_text escape(const void *data, size_t len, unsigned char quote)
{
	const unsigned char *p = data;
	struct log_text t;
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		bool is_plain = p[i] >= 0x20 && p[i] < 0x7f && p[i] != '\\' &&
				p[i] != quote;
		size_t need = is_plain ? 1 : 4;

		if (n + need > LOG_TEXT_BYTES_MAX) {
			memcpy(t.s + n, "...", 4);
			return t;
		}
		if (is_plain)
			t.s[n++] = (char)p[i];
		else
			n += (size_t)snprintf(t.s + n, 5, "\\x%02x", p[i]);
	}
	t.s[n] = 0;
	return t;
}

struct log_text log_text(const void *data, size_t len)
{
	return escape(data, len, '\\');
}

struct log_text log_quoted(const void *data, size_t len)
{
	return escape(data, len, '"');
}
