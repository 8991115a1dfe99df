/*
 * Records as JSON (LBB-43, LBB-126).
 *
 * The wire's `head` is the first 48 KiB of a stream and `tail` the last, so
 * that a short output is whole in both; the record keeps them without overlap.
 * A cut in the middle of a character is moved to its edge; other bytes that
 * are not UTF-8 become U+FFFD and set `invalid_utf8` (the logs route gives the
 * exact bytes).
 */
#include "../../http/utf8.h"
#include "lbb.h"
#include <stdio.h>

void lbb_list_begin(struct json_out *j)
{
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "list");
	json_out_begin(j, "data", '[');
}

void lbb_list_end(struct json_out *j, bool has_more, const char *cursor)
{
	json_out_end(j, ']');
	json_out_bool(j, "has_more", has_more);
	json_out_str(j, "next_cursor", has_more ? cursor : NULL);
	json_out_end(j, '}');
}

static const char *or_null(const char *text)
{
	return *text ? text : NULL;
}

static const char *reason_or_null(enum end_reason reason)
{
	return reason == END_NONE ? NULL : end_reason_name(reason);
}

static void put_limits(struct json_out *j, const struct limits *l)
{
	json_out_begin(j, "limits", '{');
	json_out_u64(j, "vcpus", l->vcpus);
	json_out_u64(j, "memory_mib", l->memory_mib);
	json_out_u64(j, "disk_mib", l->disk_mib);
	json_out_end(j, '}');
}

static void put_hash(struct json_out *j, const char *key,
		     const uint8_t hash[HASH_BYTES])
{
	static const uint8_t none[HASH_BYTES];

	if (memcmp(hash, none, HASH_BYTES))
		json_out_hex(j, key, hash, HASH_BYTES);
	else
		json_out_null(j, key);
}

/* LBB-158 */
void lbb_put_file(struct json_out *j, const char *key, const struct file_rec *f)
{
	char document[sizeof("urn:sha256:") + 2 * HASH_BYTES] = "urn:sha256:";

	for (size_t i = 0; i < HASH_BYTES; i++)
		snprintf(document + strlen(document), 3, "%02x", f->sha256[i]);
	json_out_begin(j, key, '{');
	json_out_str(j, "object", "graph_file");
	json_out_str(j, "id", f->id);
	json_out_hex(j, "sha256", f->sha256, HASH_BYTES);
	json_out_text(j, "name", f->name.data, f->name.len);
	json_out_str(j, "content_type", f->content_type);
	json_out_u64(j, "bytes", f->bytes);
	json_out_str(j, "document", document);
	json_out_time(j, "uploaded_at", f->uploaded_ms);
	if (*f->origin_sandbox) {
		json_out_begin(j, "origin", '{');
		json_out_str(j, "sandbox", f->origin_sandbox);
		lbb_put_path(j, f->origin_path.data, f->origin_path.len);
		json_out_end(j, '}');
	}
	json_out_end(j, '}');
}

/* `id` and `version`: of a saved template. */
static void put_template(struct json_out *j, const char *name, const char *id,
			 uint32_t version, const char *base)
{
	json_out_str(j, "template", or_null(name));
	json_out_str(j, "template_id", or_null(id));
	if (version)
		json_out_u64(j, "template_version", version);
	else
		json_out_null(j, "template_version");
	json_out_str(j, "template_base", or_null(base));
}

/* The step of a workflow that asked (LBB-45). */
static void put_origin(struct json_out *j, const struct origin *o)
{
	if (!*o->workflow) {
		json_out_null(j, "origin");
		return;
	}
	json_out_begin(j, "origin", '{');
	json_out_str(j, "workflow", o->workflow);
	json_out_str(j, "run", or_null(o->run));
	json_out_str(j, "step", or_null(o->step));
	if (o->turn)
		json_out_u64(j, "turn", o->turn);
	else
		json_out_null(j, "turn");
	if (o->attempt)
		json_out_u64(j, "attempt", o->attempt);
	else
		json_out_null(j, "attempt");
	json_out_end(j, '}');
}

void lbb_put_sandbox(struct json_out *j, const struct sandbox_rec *s)
{
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "sandbox");
	json_out_str(j, "id", s->id);
	json_out_str(j, "graph", s->graph);
	json_out_str(j, "name", or_null(s->name));
	if (*s->labels)
		json_out_raw(j, "labels", s->labels, strlen(s->labels));
	else
		json_out_raw(j, "labels", "{}", 2);
	json_out_str(j, "status", sandbox_status_name(s->status));
	json_out_str(j, "kind",
		     s->kind == SBX_KIND_ONE_CALL ? "one_call" : "held");
	json_out_str(j, "reason", reason_or_null(s->reason));
	json_out_str(j, "message", or_null(s->reason_text));
	if (*s->progress)
		json_out_str(j, "progress", s->progress);
	put_template(j, s->template_name, s->template_id, s->template_version,
		     s->template_base);
	json_out_str(j, "snapshot", or_null(s->snapshot));
	put_hash(j, "image_sha256", s->image_sha256);
	put_hash(j, "kernel_sha256", s->kernel_sha256);
	put_limits(j, &s->limits);
	json_out_u64(j, "idle_seconds", s->idle_seconds);
	json_out_u64(j, "expires_in_seconds", s->expires_in_seconds);
	json_out_time(j, "expires_at", s->expires_ms);
	json_out_time(j, "created_at", s->created_ms);
	json_out_time(j, "started_at", s->started_ms);
	json_out_time(j, "stopped_at", s->stopped_ms);
	json_out_time(j, "ended_at", s->ended_ms);
	json_out_time(j, "last_active_at", s->last_active_ms);
	json_out_str(j, "command", or_null(s->command));
	put_origin(j, &s->origin);
	json_out_end(j, '}');
}

void lbb_put_snapshot(struct json_out *j, const struct snapshot_rec *s)
{
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "snapshot");
	json_out_str(j, "id", s->id);
	json_out_str(j, "graph", s->graph);
	json_out_str(j, "name", or_null(s->name));
	json_out_str(j, "sandbox", s->sandbox);
	put_template(j, s->template_name, s->template_id, s->template_version,
		     s->template_base);
	json_out_str(j, "snapshot", or_null(s->snapshot));
	put_hash(j, "image_sha256", s->image_sha256);
	put_hash(j, "kernel_sha256", s->kernel_sha256);
	put_limits(j, &s->limits);
	json_out_u64(j, "bytes", s->state_bytes + s->mem_bytes + s->disk_bytes);
	json_out_u64(j, "memory_bytes", s->state_bytes + s->mem_bytes);
	json_out_u64(j, "disk_bytes", s->disk_bytes);
	put_hash(j, "state_sha256", s->sums.state);
	put_hash(j, "memory_sha256", s->sums.mem);
	put_hash(j, "disk_sha256", s->sums.disk);
	json_out_time(j, "created_at", s->created_ms);
	json_out_time(j, "expires_at", s->expires_ms);
	json_out_end(j, '}');
}

/* Where they are put, and what they were when it was saved. */
static void put_template_files(struct json_out *j,
			       const struct template_files *files)
{
	json_out_begin(j, "files", '[');
	for (size_t i = 0; i < files->n; i++) {
		const struct template_file *f = &files->at[i];

		json_out_begin(j, NULL, '{');
		json_out_text(j, "path", f->path.data, f->path.len);
		put_hash(j, "sha256", f->sha256);
		json_out_str(j, "id", f->id);
		json_out_u64(j, "bytes", f->bytes);
		json_out_end(j, '}');
	}
	json_out_end(j, ']');
}

/* Code and config only where one is read by itself. */
void lbb_put_template(struct json_out *j, const struct template_rec *t,
		      bool with_code)
{
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "template");
	json_out_str(j, "id", t->id);
	json_out_str(j, "graph", t->graph);
	json_out_str(j, "name", t->name);
	json_out_bool(j, "is_base", false);
	json_out_u64(j, "version", t->version);
	json_out_str(j, "base", t->base);
	put_limits(j, &t->limits);
	json_out_u64(j, "timeout_ms", t->timeout_ms);
	if (with_code && t->has_code)
		json_out_text(j, "code", t->code.data, t->code.len);
	else if (with_code)
		json_out_null(j, "code");
	json_out_u64(j, "code_bytes", t->code_bytes);
	put_hash(j, "code_sha256", t->code_sha256);
	if (with_code && t->has_config)
		json_out_raw(j, "config", t->config.data, t->config.len);
	else if (with_code)
		json_out_null(j, "config");
	json_out_u64(j, "config_bytes", t->config_bytes);
	put_hash(j, "config_sha256", t->config_sha256);
	put_template_files(j, &t->files);
	json_out_time(j, "created_at", t->created_ms);
	json_out_end(j, '}');
}

/* ---- output ----------------------------------------------------------- */

/* The last OUTPUT_TAIL_BYTES that are kept without a hole. */
static int last_bytes(const struct output_rec *o, struct bytes *ret,
		      uint64_t *ret_at)
{
	size_t from_head = 0;
	int rc;

	*ret_at = o->tail.len ? o->tail_at : o->head.len;
	if (*ret_at == o->head.len && o->tail.len < OUTPUT_TAIL_BYTES) {
		from_head = OUTPUT_TAIL_BYTES - o->tail.len;
		if (from_head > o->head.len)
			from_head = o->head.len;
		*ret_at -= from_head;
	}
	rc = from_head
		     ? bytes_append(ret, o->head.data + o->head.len - from_head,
				    from_head)
		     : 0;
	return rc ? rc : bytes_append(ret, o->tail.data, o->tail.len);
}

/* Bytes at the beginning that only continue a character: at most 3. */
static size_t continued_bytes(const struct bytes *b)
{
	size_t n = 0;

	while (n < b->len && n < 3 && (b->data[n] & 0xc0) == 0x80)
		n++;
	return n;
}

static void put_output(struct json_out *j, const char *key,
		       const struct output_rec *o)
{
	_cleanup_bytes_ struct bytes tail = {0};
	size_t head_len = o->head.len, skip;
	bool is_invalid;
	uint64_t tail_at;
	int rc = last_bytes(o, &tail, &tail_at);

	if (rc)
		j->rc = rc;
	if (o->total > head_len)
		head_len -= utf8_cut_bytes(o->head.data, head_len);
	skip = tail_at ? continued_bytes(&tail) : 0;
	json_out_begin(j, key, '{');
	is_invalid = json_out_text(j, "head", o->head.data, head_len);
	is_invalid |=
		json_out_text(j, "tail", tail.data + skip, tail.len - skip);
	json_out_u64(j, "bytes", o->total);
	json_out_bool(j, "truncated", o->total > o->head.len + o->tail.len);
	json_out_bool(j, "invalid_utf8", is_invalid);
	if (o->is_expired)
		json_out_bool(j, "expired", true);
	json_out_end(j, '}');
}

/* ---- commands --------------------------------------------------------- */

/* NUL separated strings as an array. */
static void put_strings(struct json_out *j, const char *key,
			const struct bytes *b)
{
	const char *p = (const char *)b->data, *end = p + b->len;

	json_out_begin(j, key, '[');
	while (p < end) {
		size_t len = strnlen(p, (size_t)(end - p));

		json_out_text(j, NULL, p, len);
		p += len + 1;
	}
	json_out_end(j, ']');
}

static void put_blob(struct json_out *j, const char *key, uint64_t bytes,
		     const uint8_t hash[HASH_BYTES])
{
	json_out_begin(j, key, '{');
	json_out_u64(j, "bytes", bytes);
	put_hash(j, "sha256", hash);
	json_out_end(j, '}');
}

static void put_end(struct json_out *j, const struct command_rec *c)
{
	if (c->exit_code >= 0)
		json_out_i64(j, "exit_code", c->exit_code);
	else
		json_out_null(j, "exit_code");
	if (c->signal)
		json_out_i64(j, "signal", c->signal);
	else
		json_out_null(j, "signal");
	json_out_str(j, "reason", reason_or_null(c->reason));
	json_out_str(j, "message", or_null(c->reason_text));
}

static void put_result(struct json_out *j, const struct command_rec *c)
{
	if (c->has_result)
		json_out_raw(j, "result", c->result.data, c->result.len);
	else
		json_out_null(j, "result");
}

static void put_times(struct json_out *j, const struct command_rec *c)
{
	json_out_u64(j, "timeout_ms", c->timeout_ms);
	json_out_time(j, "created_at", c->created_ms);
	json_out_time(j, "started_at", c->started_ms);
	json_out_time(j, "ended_at", c->ended_ms);
	if (c->started_ms && c->ended_ms)
		json_out_i64(j, "duration_ms", c->ended_ms - c->started_ms);
	else
		json_out_null(j, "duration_ms");
}

void lbb_put_command(struct json_out *j, const struct command_rec *c,
		     bool with_output)
{
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "command");
	json_out_str(j, "id", c->id);
	json_out_str(j, "sandbox", c->sandbox);
	json_out_str(j, "graph", c->graph);
	json_out_str(j, "kind", c->kind == CMD_KIND_RUN ? "run" : "process");
	put_template(j, c->template_name, c->template_id, c->template_version,
		     c->template_base);
	json_out_str(j, "status", command_status_name(c->status));
	json_out_bool(j, "ok", c->status == CMD_SUCCEEDED);
	put_end(j, c);
	put_times(j, c);
	if (c->kind == CMD_KIND_RUN) {
		put_blob(j, "code", c->code_bytes, c->code_sha256);
		put_blob(j, "input", c->input_bytes, c->input_sha256);
		put_blob(j, "config", c->config_bytes, c->config_sha256);
		/* A page of a list has no results: they are read one by one,
		 * and null would say that there is none. */
		if (!c->has_result || c->result.len)
			put_result(j, c);
	} else {
		put_strings(j, "argv", &c->argv);
	}
	put_origin(j, &c->origin);
	put_strings(j, "env_names", &c->env_names);
	json_out_u64(j, "stdin_bytes", c->stdin_bytes);
	json_out_begin(j, "usage", '{');
	json_out_u64(j, "user_us", c->user_us);
	json_out_u64(j, "system_us", c->sys_us);
	json_out_u64(j, "memory_peak_bytes", c->rss_bytes);
	json_out_end(j, '}');
	if (with_output) {
		put_output(j, "stdout", &c->out[0]);
		put_output(j, "stderr", &c->out[1]);
	}
	json_out_end(j, '}');
}

void lbb_put_run(struct json_out *j, const struct sandbox_rec *s,
		 const struct command_rec *c)
{
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "run");
	json_out_bool(j, "ok", c->status == CMD_SUCCEEDED);
	put_result(j, c);
	json_out_str(j, "status", command_status_name(c->status));
	put_end(j, c);
	json_out_str(j, "command", c->id);
	json_out_str(j, "sandbox", s->id);
	json_out_str(j, "sandbox_status", sandbox_status_name(s->status));
	if (*s->progress && !command_status_is_final(c->status))
		json_out_str(j, "progress", s->progress);
	json_out_str(j, "graph", c->graph);
	put_template(j, s->template_name, s->template_id, s->template_version,
		     s->template_base);
	put_origin(j, &c->origin);
	put_times(j, c);
	json_out_end(j, '}');
}
