/* What a command wrote; see output.h. */
#include "output.h"
#include "fd.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES "262144"

void pump_init(struct pump *p, const char *stream, int fd)
{
	memset(p, 0, sizeof(*p));
	p->stream = stream;
	p->fd = fd;
}

void pump_finish(struct pump *p)
{
	bytes_finish(&p->kept);
	bytes_finish(&p->first);
}

static int put(struct pump *p, const void *data, size_t len)
{
	size_t room = PUMP_FIRST_BYTES - p->first.len;

	if (!len)
		return 0;
	p->last_byte = ((const char *)data)[len - 1];
	if (p->fd < 0)
		return bytes_append(&p->kept, data, len);
	if (bytes_append(&p->first, data, len < room ? len : room))
		return -1;
	return fd_write_all(p->fd, data, len);
}

/* The daemon has no bytes between `end` and `at`. */
static void skip(struct pump *p, uint64_t at)
{
	if (at <= p->end)
		return;
	p->omitted += at - p->end;
	p->omitted_at = p->end;
	if (p->fd >= 0 && !p->told) {
		p->told = p->omitted;
		fprintf(stderr,
			"hutch: %s: %llu bytes not kept after the first %llu\n",
			p->stream, (unsigned long long)p->told,
			(unsigned long long)p->end);
	}
	p->end = at;
}

/* At the end of the stream: what was skipped after the first gap. */
static void skip_tell(struct pump *p)
{
	if (p->fd >= 0 && p->omitted > p->told)
		fprintf(stderr, "hutch: %s: %llu more bytes not kept\n",
			p->stream, (unsigned long long)(p->omitted - p->told));
	p->told = p->omitted;
}

static int base64_value(uint8_t c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "abcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

int base64_decode(struct bytes *b)
{
	uint32_t bits = 0;
	unsigned n_bits = 0;
	size_t n = 0;

	for (size_t i = 0; i < b->len && b->data[i] != '='; i++) {
		int v = base64_value(b->data[i]);

		if (v < 0)
			return -1;
		bits = bits << 6 | (uint32_t)v;
		n_bits += 6;
		if (n_bits >= 8) {
			n_bits -= 8;
			b->data[n++] = (uint8_t)(bits >> n_bits);
		}
	}
	b->len = n;
	return 0;
}

static int take(struct pump *p, const struct answer *a, struct err *e)
{
	_cleanup_bytes_ struct bytes data = {0};
	struct json_span span;
	uint64_t at =
		(uint64_t)answer_int(a->root, "offset", (int64_t)p->offset);
	char text[96];

	if (!json_at(a->root, "data", &span) || json_text(span, &data))
		return err_set(e, ERR_INTERNAL, NULL,
			       "logs: the answer has no data");
	answer_text(a->root, "encoding", text, sizeof(text), "utf8");
	if (!strcmp(text, "base64") && base64_decode(&data))
		return err_set(e, ERR_INTERNAL, NULL, "logs: bad base64");
	skip(p, at);
	if (put(p, data.data, data.len))
		return err_set(e, ERR_INTERNAL, NULL, "cannot write %s",
			       p->stream);
	p->end = at + data.len;
	p->offset =
		(uint64_t)answer_int(a->root, "next_offset", (int64_t)p->end);
	p->is_eof = answer_bool(a->root, "eof");
	if (p->is_eof) {
		skip(p, (uint64_t)answer_int(a->root, "total_bytes",
					     (int64_t)p->end));
		skip_tell(p);
	}
	return 0;
}

bool pump_ends_in_line(const struct pump *p)
{
	return !p->end || p->last_byte == '\n';
}

static bool is_space(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool pump_wrote_only(const struct pump *p, const void *data, size_t len)
{
	const uint8_t *from = p->first.data, *to = from + p->first.len;

	if (!len || p->end != p->first.len)
		return false;
	while (from < to && is_space(*from))
		from++;
	while (to > from && is_space(to[-1]))
		to--;
	return (size_t)(to - from) == len && !memcmp(from, data, len);
}

void pump_json(const struct pump *p, struct json_out *j)
{
	char name[48];

	json_out_text(j, p->stream, p->kept.data, p->kept.len);
	snprintf(name, sizeof(name), "%s_truncated", p->stream);
	json_out_bool(j, name, p->omitted > 0);
	if (!p->omitted)
		return;
	snprintf(name, sizeof(name), "%s_omitted_bytes", p->stream);
	json_out_u64(j, name, p->omitted);
	snprintf(name, sizeof(name), "%s_omitted_at", p->stream);
	json_out_u64(j, name, p->omitted_at);
}

int pump_read(struct cli *c, struct pump *p, const char *command, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};
	char offset[24];
	uint64_t before;
	int rc;

	do {
		_cleanup_answer_ struct answer a = {0};

		before = p->offset;
		snprintf(offset, sizeof(offset), "%llu",
			 (unsigned long long)p->offset);
		if (cli_path(c, &path, "/v1/sandboxes/commands/logs", "command",
			     command, "stream", p->stream, "offset", offset,
			     "limit", PIECE_BYTES, NULL))
			return err_set(e, ERR_INTERNAL, NULL, "no memory");
		rc = cli_call(c, "GET", (char *)path.data, NULL, NULL, &a, e);
		if (!rc)
			rc = take(p, &a, e);
	} while (!rc && !p->is_eof && p->offset != before);
	return rc;
}
