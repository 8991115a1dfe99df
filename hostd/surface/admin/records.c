/*
 * GET /admin/records: all records, page by page, in the order of their last
 * change (hostd/store/export.c).
 *
 * `format=cbor`: the bytes as they are stored, one record after another, in
 * base64.  `format=jsonl`: a list of lines, each the record as the API shows
 * it, with where it stands in the order, its environment, and what else the
 * administrator may want to know.  A record that cannot be read is in
 * `set_aside`, by name.
 */
#include "../../store/record_cbor.h"
#include "../lbb/lbb.h"
#include "admin.h"
#include <errno.h>
#include <stdio.h>

static const char *const kind_names[] = {
	[EXPORT_SANDBOX] = "sandbox",
	[EXPORT_COMMAND] = "command",
	[EXPORT_SNAPSHOT] = "snapshot",
	[EXPORT_KEY] = "key",
};

/* ---- a line ----------------------------------------------------------------
 */

static void put_sandbox(struct json_out *j, struct json_out *record,
			const uint8_t *cbor, size_t len)
{
	struct sandbox_rec s;

	j->rc = j->rc ? j->rc : sandbox_rec_decode(&s, cbor, len);
	if (j->rc)
		return;
	json_out_str(j, "environment", s.environment);
	json_out_u64(j, "incarnation", s.incarnation);
	json_out_str(j, "host_boot_id", s.host_boot_id);
	lbb_put_sandbox(record, &s);
}

static void put_command(struct json_out *j, struct json_out *record,
			const uint8_t *cbor, size_t len)
{
	struct command_rec c;

	j->rc = j->rc ? j->rc : command_rec_decode(&c, cbor, len);
	if (j->rc)
		return;
	json_out_str(j, "environment", c.environment);
	json_out_u64(j, "stdout_bytes", c.out[0].total);
	json_out_u64(j, "stderr_bytes", c.out[1].total);
	lbb_put_command(record, &c, false);
	command_rec_finish(&c);
}

static void put_snapshot(struct json_out *j, struct json_out *record,
			 const uint8_t *cbor, size_t len)
{
	struct snapshot_rec s;

	j->rc = j->rc ? j->rc : snapshot_rec_decode(&s, cbor, len);
	if (j->rc)
		return;
	json_out_str(j, "environment", s.environment);
	json_out_u64(j, "incarnation", s.incarnation);
	json_out_hex(j, "init_sha256", s.sums.init, HASH_BYTES);
	lbb_put_snapshot(record, &s);
}

static void put_key(struct json_out *j, struct json_out *record,
		    const uint8_t *cbor, size_t len, int64_t revoked_ms)
{
	struct key_info k;

	j->rc = j->rc ? j->rc : key_rec_decode(&k, cbor, len);
	if (j->rc)
		return;
	k.is_revoked = revoked_ms != 0;
	json_out_str(j, "environment", k.environment);
	json_out_time(j, "revoked_at", revoked_ms);
	admin_put_key(record, &k, NULL);
}

static void put_line(struct json_out *j, const struct export_item *it,
		     const uint8_t *cbor)
{
	struct json_out record = {0};

	json_out_begin(j, NULL, '{');
	json_out_u64(j, "seq", it->seq);
	json_out_time(j, "changed_at", it->at_ms);
	switch (it->kind) {
	case EXPORT_SANDBOX:
		put_sandbox(j, &record, cbor, it->len);
		break;
	case EXPORT_COMMAND:
		put_command(j, &record, cbor, it->len);
		break;
	case EXPORT_SNAPSHOT:
		put_snapshot(j, &record, cbor, it->len);
		break;
	case EXPORT_KEY:
		put_key(j, &record, cbor, it->len, it->revoked_ms);
		break;
	}
	if (record.rc && !j->rc)
		j->rc = record.rc;
	if (!j->rc)
		json_out_raw(j, "record", record.buf.data, record.buf.len);
	json_out_end(j, '}');
	json_out_finish(&record);
}

/* ---- a page ----------------------------------------------------------------
 */

static bool is_jsonl(const struct request *r)
{
	const char *format = query_get(&r->query, "format");

	return format && !strcmp(format, "jsonl");
}

static void put_set_aside(struct json_out *j, const struct export_page *p)
{
	json_out_begin(j, "set_aside", '[');
	for (size_t i = 0; i < p->n; i++) {
		const struct export_item *it = &p->items[i];

		if (!it->is_set_aside)
			continue;
		json_out_begin(j, NULL, '{');
		json_out_u64(j, "seq", it->seq);
		json_out_str(j, "object", kind_names[it->kind]);
		json_out_str(j, "id", it->id);
		json_out_end(j, '}');
	}
	json_out_end(j, ']');
}

static void put_page(struct json_out *j, const struct request *r,
		     const struct export_page *p)
{
	uint64_t n = 0;

	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "records");
	if (is_jsonl(r)) {
		json_out_begin(j, "data", '[');
		for (size_t i = 0; i < p->n; i++)
			if (!p->items[i].is_set_aside)
				put_line(j, &p->items[i],
					 p->cbor.data + p->items[i].at);
		json_out_end(j, ']');
	} else {
		json_out_base64(j, "data", p->cbor.data, p->cbor.len);
	}
	for (size_t i = 0; i < p->n; i++)
		n += !p->items[i].is_set_aside;
	json_out_u64(j, "count", n);
	put_set_aside(j, p);
	json_out_u64(j, "next_after", p->next);
	json_out_u64(j, "newest", p->newest);
	json_out_bool(j, "has_more", p->has_more);
	json_out_end(j, '}');
}

static void on_page(void *ctx, int rc, const struct export_page *p)
{
	struct request *r = ctx;
	struct json_out j = {0};
	struct err e;

	if (rc == -EINVAL) {
		err_set(&e, ERR_INVALID_REQUEST, "after",
			"after %s: no record has changed as late as that; it "
			"is "
			"of another daemon's records",
			query_get(&r->query, "after"));
		reply_err(r, &e);
		return;
	}
	if (rc) {
		lbb_engine_failed(r, rc);
		return;
	}
	put_page(&j, r, p);
	reply_json(r, 200, &j);
}

static int ask_read(struct request *r, struct store_export *ask, struct err *e)
{
	const char *format = query_get(&r->query, "format");
	uint64_t since, until;

	if (format && strcmp(format, "cbor") && strcmp(format, "jsonl"))
		return err_set(e, ERR_INVALID_REQUEST, "format",
			       "format \"%.40s\" is neither cbor nor jsonl",
			       format);
	if (query_u64(&r->query, "after", 0, INT64_MAX, 0, &ask->after, e) ||
	    query_u64(&r->query, "since_ms", 0, INT64_MAX, 0, &since, e) ||
	    query_u64(&r->query, "until_ms", 1, INT64_MAX, 0, &until, e))
		return -1;
	ask->since_ms = (int64_t)since;
	ask->until_ms = (int64_t)until;
	if (query_get(&r->query, "environment"))
		ask->environment = r->environment;
	if (query_get(&r->query, "graph"))
		ask->graph = r->graph;
	return 0;
}

void admin_records(struct request *r)
{
	struct store_export ask = {0};
	struct err e;
	int rc;

	if (ask_read(r, &ask, &e)) {
		reply_err(r, &e);
		return;
	}
	rc = store_export_page(r->services->store, &ask, on_page, r);
	if (rc)
		lbb_engine_failed(r, rc);
}
