/*
 * Fuzz: what a guest may send to hutchd.
 *
 * Input: one byte (state, the call on files that is under way, and whether the
 * rest is raw bytes or a list of frames: type, command, length, payload), then
 * that.  Frames instead of bytes save the fuzzer from inventing 16-byte
 * headers; raw bytes keep the header itself in reach.  Every promise of
 * session.h is checked in the events.
 */
#include "../../hostd/link/gp_up.h"
#include "../../hostd/link/session.h"
#include "fuzz.h"
#include <errno.h>
#include <stdlib.h>

#define COMMANDS  3 /* 1, 2: RUN; 3: EXEC */
#define FILE_CALL 1

struct model {
	bool is_started[COMMANDS + 1], is_ended[COMMANDS + 1];
	uint64_t next[COMMANDS + 1][2];
	unsigned n_session; /* HELLO, READY, BOUND */
	struct vm_file file;
	uint64_t file_got, file_given;
	bool is_file_done;
	char last[GP_FILE_NAME_BYTES_MAX + 1];
};

static void must(bool is_true)
{
	if (!is_true)
		abort();
}

static void text_check(const char *s)
{
	must(strlen(s) <= GP_TEXT_BYTES_MAX && gp_utf8_is_valid(s, strlen(s)));
	for (; *s; s++)
		must((unsigned char)*s >= ' ' || *s == '\n' || *s == '\t');
}

static void on_hello(void *ctx, const char *kernel, const char *init)
{
	struct model *m = ctx;

	must(m->n_session++ == 0);
	text_check(kernel);
	text_check(init);
}

static void on_progress(void *ctx, const char *text)
{
	(void)ctx;
	text_check(text);
}

static void on_answer(void *ctx, const char *error)
{
	struct model *m = ctx;

	must(++m->n_session <= 2);
	if (error)
		text_check(error);
}

static void on_started(void *ctx, uint64_t cmd)
{
	struct model *m = ctx;

	must(cmd >= 1 && cmd <= COMMANDS);
	must(!m->is_started[cmd] && !m->is_ended[cmd]);
	m->is_started[cmd] = true;
}

static void on_output(void *ctx, uint64_t cmd, int stream, uint64_t offset,
		      uint64_t total, const uint8_t *data, size_t len)
{
	struct model *m = ctx;
	uint8_t sum = 0;

	must(cmd >= 1 && cmd <= COMMANDS && (stream == 0 || stream == 1));
	must(m->is_started[cmd] && !m->is_ended[cmd]);
	must(len <= GP_OUTPUT_BYTES_MAX && offset >= m->next[cmd][stream]);
	must(offset + len >= offset && offset + len <= total);
	if (m->next[cmd][stream] < OUTPUT_HEAD_BYTES)
		must(offset == m->next[cmd][stream]);
	m->next[cmd][stream] = offset + len;
	for (size_t i = 0; i < len; i++) /* all of it can be read */
		sum = (uint8_t)(sum + data[i]);
	(void)sum;
}

static void on_ended(void *ctx, uint64_t cmd, const struct vm_end *end)
{
	struct model *m = ctx;

	must(cmd >= 1 && cmd <= COMMANDS && !m->is_ended[cmd]);
	m->is_ended[cmd] = true;
	must(end->how >= GP_END_EXITED && end->how <= GP_END_RESULT_NOT_JSON);
	must(end->code >= 0 && end->code <= 255);
	must(end->signal >= 0 && end->signal <= 64);
	must(m->is_started[cmd] || end->how == GP_END_NOT_STARTED ||
	     end->how == GP_END_CANCELLED);
	text_check(end->error);
	if (end->result)
		must(end->result_len &&
		     end->result_len <= GP_RESULT_BYTES_MAX &&
		     end->how == GP_END_EXITED && end->code == 0 && cmd < 3);
	must(end->stdout_bytes >= m->next[cmd][0] &&
	     end->stderr_bytes >= m->next[cmd][1]);
}

static void on_pong(void *ctx)
{
	(void)ctx;
}

static void on_file_entry(void *ctx, uint64_t number,
			  const struct vm_file_entry *e)
{
	struct model *m = ctx;
	char name[GP_FILE_NAME_BYTES_MAX + 1] = "";

	must(number == FILE_CALL && !m->is_file_done);
	must(m->file.op == GP_FILE_LIST && ++m->file_got <= m->file.limit);
	must(e->type >= GP_TYPE_FILE && e->type <= GP_TYPE_DEVICE);
	must(e->mode <= 07777 && e->name_len <= GP_FILE_NAME_BYTES_MAX);
	must(e->name_len || m->file_got == 1);
	if (!e->name_len)
		return;
	memcpy(name, e->name, e->name_len);
	must(strlen(name) == e->name_len && !strchr(name, '/'));
	must(strcmp(name, ".") && strcmp(name, ".."));
	must(strcmp(name, m->last) > 0);
	memcpy(m->last, name, sizeof(name));
}

static void on_file_data(void *ctx, uint64_t number, const uint8_t *data,
			 size_t len)
{
	struct model *m = ctx;
	uint8_t sum = 0;

	must(number == FILE_CALL && !m->is_file_done);
	must(m->file.op == GP_FILE_READ && len);
	m->file_got += len;
	must(m->file_got <= m->file.limit);
	for (size_t i = 0; i < len; i++) /* all of it can be read */
		sum = (uint8_t)(sum + data[i]);
	(void)sum;
}

static void on_file_more(void *ctx, uint64_t number, size_t max)
{
	struct model *m = ctx;

	must(number == FILE_CALL && !m->is_file_done);
	must(m->file.op == GP_FILE_WRITE && max &&
	     max <= GP_FILE_PIECE_BYTES_MAX);
	m->file_given += max;
	must(m->file_given <= m->file.data_len);
}

static void on_file_done(void *ctx, uint64_t number,
			 const struct vm_file_end *end)
{
	struct model *m = ctx;

	must(number == FILE_CALL && !m->is_file_done);
	m->is_file_done = true;
	must(end->how >= GP_FILE_OK && end->how <= GP_FILE_FAILED);
	text_check(end->error);
	if (end->how != GP_FILE_OK)
		return;
	must(m->file.op != GP_FILE_WRITE || m->file_given == m->file.data_len);
	must(m->file.op != GP_FILE_READ || !m->file_got ||
	     end->size >= m->file.offset + m->file_got);
	must(!end->has_more || m->file.op == GP_FILE_LIST);
}

static const struct session_ops ops = {
	.hello = on_hello,
	.progress = on_progress,
	.ready = on_answer,
	.bound = on_answer,
	.started = on_started,
	.output = on_output,
	.ended = on_ended,
	.pong = on_pong,
	.file_entry = on_file_entry,
	.file_data = on_file_data,
	.file_more = on_file_more,
	.file_done = on_file_done,
};

/* Call 1 on files is under way; `pick` says which. */
static void file_begin(struct session *s, struct model *m, uint8_t pick)
{
	m->file = (struct vm_file){
		.op = (enum gp_file_op)(GP_FILE_LIST + pick % 4),
		.offset = 10,
		.limit = 5,
	};
	if (m->file.op == GP_FILE_WRITE)
		m->file.data_len = 2 * GP_FILE_PIECE_BYTES_MAX + 1;
	m->file_given = m->file.data_len ? GP_FILE_PIECE_BYTES_MAX : 0;
	must(session_file_begin(s, FILE_CALL, &m->file, m->file_given) == 0);
}

static int feed_frames(struct session *s, const uint8_t *p, size_t len)
{
	int rc = 0;

	while (!rc && len >= 4) {
		struct bytes b = {0};
		size_t n = (size_t)p[2] | (size_t)p[3] << 8;

		p += 4;
		len -= 4;
		if (n > len)
			n = len;
		must(frame_append(&b, p[-4], p[-3], p, n) == 0);
		rc = session_feed(s, b.data, b.len);
		bytes_finish(&b);
		p += n;
		len -= n;
	}
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct model m = {0};
	struct session s;
	int rc;

	fuzz_begin();
	if (len < 1)
		return 0;
	session_init(&s, (enum session_state)(data[0] % SES_CLOSED), &ops, &m);
	for (uint64_t i = 1; i <= COMMANDS; i++)
		must(session_cmd_add(&s, i, i < COMMANDS, 1000) == 0);
	file_begin(&s, &m, data[0] >> 3);
	if (data[0] & 0x80)
		rc = session_feed(&s, data + 1, len - 1);
	else
		rc = feed_frames(&s, data + 1, len - 1);
	must(rc == 0 || (rc == -EPROTO && s.why[0] && s.state == SES_CLOSED));
	/* A header was taken and its frame was looked at. */
	if (s.n_frames)
		fuzz_reach();
	session_finish(&s);
	return 0;
}
