/* The boot log ring; see guest_log.h. */
#include "guest_log.h"
#include "log.h"
#include <stdio.h>
#include <string.h>

/* How far back a reason is looked for: a panic prints its trace after it. */
#define LAST_TEXT_BYTES_MAX 4096

void guest_log_init(struct guest_log *l)
{
	pthread_mutex_init(&l->lock, NULL);
	l->total = 0;
	l->forwarded = 0;
}

void guest_log_add(struct guest_log *l, const uint8_t *data, size_t len)
{
	pthread_mutex_lock(&l->lock);
	for (size_t i = 0; i < len; i++)
		l->ring[(l->total + i) % GUEST_LOG_BYTES] = data[i];
	l->total += len;
	pthread_mutex_unlock(&l->lock);
}

size_t guest_log_read(struct guest_log *l, uint64_t *at, void *dst, size_t cap)
{
	uint8_t *p = dst;
	uint64_t first;
	size_t n;

	pthread_mutex_lock(&l->lock);
	first = l->total > GUEST_LOG_BYTES ? l->total - GUEST_LOG_BYTES : 0;
	if (*at < first)
		*at = first;
	n = l->total - *at < cap ? (size_t)(l->total - *at) : cap;
	for (size_t i = 0; i < n; i++)
		p[i] = l->ring[(*at + i) % GUEST_LOG_BYTES];
	*at += n;
	pthread_mutex_unlock(&l->lock);
	return n;
}

/* The last line of text, or the last one that tells of a panic. */
static size_t pick_line(const char *text, size_t len, size_t *ret_start)
{
	static const char mark[] = "Kernel panic";
	size_t end = len, start;
	const char *at = NULL, *p = text;

	while ((p = memmem(p, len - (size_t)(p - text), mark,
			   sizeof(mark) - 1)))
		at = p++;
	if (at) {
		start = (size_t)(at - text);
		for (end = start; end < len && text[end] != '\n';)
			end++;
	}
	while (end && (text[end - 1] == '\n' || text[end - 1] == '\r'))
		end--;
	for (start = end; start && text[start - 1] != '\n';)
		start--;
	*ret_start = start;
	return end - start;
}

void guest_log_last_line(struct guest_log *l, char *dst, size_t cap)
{
	char tail[LAST_TEXT_BYTES_MAX];
	size_t len, start;
	uint64_t at;

	pthread_mutex_lock(&l->lock);
	at = l->total > sizeof(tail) ? l->total - sizeof(tail) : 0;
	pthread_mutex_unlock(&l->lock);
	len = guest_log_read(l, &at, tail, sizeof(tail));
	len = pick_line(tail, len, &start);
	snprintf(dst, cap, "%s", log_text(tail + start, len).s);
}
