/*
 * Output by byte offset (LBB-134, LBB-135).
 *
 * `data` is text when the slice is UTF-8, base64 when it is not.  A slice that
 * ends inside a character ends before it instead, and next_offset says so: a
 * client that reads on from next_offset gets every byte exactly once, and text
 * stays text.  Offsets count bytes of the stream, whatever the encoding.
 */
#include "../../http/utf8.h"
#include "lbb.h"

static const char *const stream_names[] = {"stdout", "stderr"};

static void put_slice(struct json_out *j, const struct log_slice *s)
{
	size_t cut = utf8_cut_bytes(s->data, s->len);
	bool is_text = utf8_is_valid(s->data, s->len - cut);
	uint64_t next = s->next_offset;

	/* The last bytes of a stream, or a slice of nothing else: as it is. */
	if (cut && (s->is_eof || cut == s->len))
		is_text = false;
	if (is_text && cut) {
		next = s->offset + s->len - cut;
		json_out_text(j, "data", s->data, s->len - cut);
	} else if (is_text) {
		json_out_text(j, "data", s->data, s->len);
	} else {
		json_out_base64(j, "data", s->data, s->len);
	}
	json_out_str(j, "encoding", is_text ? "utf-8" : "base64");
	json_out_u64(j, "offset", s->offset);
	json_out_u64(j, "next_offset", next);
	json_out_bool(j, "eof", s->is_eof);
	json_out_u64(j, "total_bytes", s->total);
	json_out_bool(j, "truncated", s->is_truncated);
}

static int stream_of(const struct request *r)
{
	const char *name = query_get(&r->query, "stream");

	for (int i = 0; name && i < 2; i++)
		if (!strcmp(name, stream_names[i]))
			return i;
	return name ? -1 : 0;
}

static void on_logs(void *ctx, const struct err *e, const struct log_slice *s)
{
	struct request *r = ctx;
	struct json_out j = {0};

	if (e) {
		lbb_reply_err(r, e);
		return;
	}
	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "object", "log");
	json_out_str(&j, "command", query_get(&r->query, "command"));
	json_out_str(&j, "stream", stream_names[stream_of(r)]);
	put_slice(&j, s);
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}

void lbb_command_logs(struct request *r)
{
	uint64_t offset, limit;
	const char *id;
	struct err e;
	int rc;

	if (lbb_id(r, "command", "cmd_", ERR_COMMAND_NOT_FOUND, &id))
		return;
	if (query_u64(&r->query, "offset", 0, INT64_MAX, 0, &offset, &e) ||
	    query_u64(&r->query, "limit", 1, LBB_LOG_BYTES_MAX,
		      LBB_LOG_BYTES_DEFAULT, &limit, &e)) {
		reply_err(r, &e);
		return;
	}
	if (stream_of(r) < 0) {
		err_set(&e, ERR_INVALID_REQUEST, "stream",
			"stream \"%.40s\" is neither stdout nor stderr",
			query_get(&r->query, "stream"));
		reply_err(r, &e);
		return;
	}
	rc = engine_log_read(r->services->engine, &r->caller, id, stream_of(r),
			     offset, (size_t)limit, on_logs, r);
	if (rc)
		lbb_engine_failed(r, rc);
}
