/* A line about what is being waited for; see progress.h. */
#include "progress.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void progress_init(struct progress *p)
{
	memset(p, 0, sizeof(*p));
	p->is_tty = isatty(STDERR_FILENO);
}

static int64_t now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

/* The text without its "(N s)". */
static bool is_same_work(const char *a, const char *b)
{
	const char *a_end = strrchr(a, '('), *b_end = strrchr(b, '(');
	size_t a_len = a_end ? (size_t)(a_end - a) : strlen(a);
	size_t b_len = b_end ? (size_t)(b_end - b) : strlen(b);

	return a_len == b_len && !memcmp(a, b, a_len);
}

void progress_show(struct progress *p, const char *text)
{
	if (!*text)
		return;
	if (p->is_tty) {
		fprintf(stderr, "\r\033[K%s", text);
		p->is_shown = true;
		return;
	}
	if (is_same_work(p->work, text) &&
	    now_s() - p->logged_s < PROGRESS_LOG_S)
		return;
	fprintf(stderr, "%s\n", text);
	snprintf(p->work, sizeof(p->work), "%s", text);
	p->logged_s = now_s();
}

void progress_clear(struct progress *p)
{
	if (p->is_shown)
		fputs("\r\033[K", stderr);
	p->is_shown = false;
}

bool progress_of_sandbox(struct progress *p, struct json_span record)
{
	char text[256];

	answer_text(record, "status", text, sizeof(text), "");
	if (strcmp(text, "starting")) {
		progress_clear(p);
		return false;
	}
	answer_text(record, "progress", text, sizeof(text), "");
	progress_show(p, text);
	return true;
}
