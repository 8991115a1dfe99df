/*
 * POST /admin/prepare: make a template's snapshot ahead, with its progress.
 *
 * The answer is a stream of JSON lines: {"progress": "..."} any number of
 * times, then one {"done": true, ...} or {"error": {...}}.
 */
#include "../../clock.h"
#include "../../link/template.h"
#include "../lbb/decode.h"
#include "../lbb/lbb.h"
#include "admin.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct prepare_op {
	char base[TEMPLATE_NAME_BYTES_MAX + 1];
	struct limits limits;
	struct shape shape;
	bool was_ready;
	int64_t begun_ms;
};

static int prepare_template(void *ctx, const char *path, struct json_span v,
			    struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};
	struct prepare_op *op = ctx;

	if (decode_string(path, v, &text, e))
		return -1;
	if (text.len > TEMPLATE_NAME_BYTES_MAX)
		return err_set(e, ERR_TEMPLATE_NOT_FOUND, path,
			       "there is no template with a name of %zu bytes",
			       text.len);
	memcpy(op->base, text.data, text.len + 1);
	return 0;
}

static int prepare_limits(void *ctx, const char *path, struct json_span v,
			  struct err *e)
{
	struct prepare_op *op = ctx;

	return lbb_decode_limits(&op->limits, path, v, e);
}

static const struct decode_field fields[] = {
	{"template", prepare_template},
	{"limits", prepare_limits},
};

static void line_end(struct json_out *j)
{
	if (j->rc || bytes_append(&j->buf, "\n", 1))
		json_out_finish(j); /* no line is better than half of one */
}

static void on_progress(void *ctx, const char *text)
{
	struct json_out j = {0};

	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "progress", text);
	json_out_end(&j, '}');
	line_end(&j);
	reply_stream_write(ctx, j.buf.data, j.buf.len);
	json_out_finish(&j);
}

static void on_done(void *ctx, const struct err *e)
{
	struct request *r = ctx;
	struct prepare_op *op = r->op;
	struct json_out j = {0};

	if (e) {
		error_envelope(&j, r, e);
	} else {
		json_out_begin(&j, NULL, '{');
		json_out_bool(&j, "done", true);
		json_out_str(&j, "template", op->base);
		json_out_u64(&j, "vcpus", op->shape.vcpus);
		json_out_u64(&j, "memory_mib", op->shape.ram_mib);
		json_out_bool(&j, "was_ready", op->was_ready);
		json_out_i64(&j, "duration_ms", clock_mono_ms() - op->begun_ms);
		json_out_end(&j, '}');
	}
	line_end(&j);
	free(op);
	r->op = NULL;
	reply_stream_end(r, j.buf.data, j.buf.len);
	json_out_finish(&j);
}

static int decode(struct prepare_op *op, struct json_span body, struct err *e)
{
	snprintf(op->base, sizeof(op->base), "lbb/python");
	op->limits = (struct limits){
		.vcpus = LBB_VCPUS_DEFAULT,
		.memory_mib = LBB_MEMORY_DEFAULT,
		.disk_mib = LBB_DISK_DEFAULT,
	};
	if (decode_object(op, "", body, fields,
			  sizeof(fields) / sizeof(*fields), e))
		return -1;
	return shape_for(op->base, &op->limits, &op->shape, e);
}

void admin_prepare(struct request *r)
{
	struct link *link = r->services->link;
	struct json_span body;
	struct prepare_op *op;
	struct err e;
	int rc;

	if (request_object(r, &body))
		return;
	op = calloc(1, sizeof(*op));
	if (!op) {
		lbb_engine_failed(r, -ENOMEM);
		return;
	}
	if (decode(op, body, &e)) {
		free(op);
		reply_err(r, &e);
		return;
	}
	op->was_ready = template_is_ready(link, &op->shape);
	op->begun_ms = clock_mono_ms();
	rc = reply_stream_begin(r, "application/x-ndjson");
	if (rc) {
		free(op);
		lbb_engine_failed(r, rc);
		return;
	}
	r->op = op;
	rc = template_prepare(link, &op->shape, on_progress, on_done, r);
	if (!rc)
		return;
	err_set(&e, ERR_INTERNAL, NULL, "cannot begin: %s", strerror(-rc));
	on_done(r, &e);
}
