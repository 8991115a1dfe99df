/*
 * Fuzz: stored records.
 *
 * Input: a byte that chooses type and mode, then either CBOR as it is, or
 * (place, replacement) for a good record, so that most inputs get past the
 * map's head and the version, which is the first check.  What is taken must
 * encode, and to something that is taken again as the same.
 */
#include "fuzz.h"
#include "record_cbor.h"
#include <stdlib.h>

static void good(unsigned type, struct bytes *out)
{
	struct sandbox_rec s = {.id = "sbx_a",
				.environment = "env",
				.graph = "main",
				.status = SBX_RUNNING,
				.kind = SBX_KIND_ONE_CALL,
				.template_name = "lbb/python",
				.expires_ms = 1700000000000};
	struct command_rec c = {.id = "cmd_a",
				.sandbox = "sbx_a",
				.kind = CMD_KIND_RUN,
				.status = CMD_FAILED,
				.exit_code = -1,
				.has_result = true};
	struct key_info k = {
		.environment = "env", .name = "ci", .plan = PLAN_FULL};
	struct event_rec e = {.from = 1, .to = 2, .reason_text = "why"};
	struct snapshot_rec n = {.id = "snp_a",
				 .environment = "env",
				 .graph = "main",
				 .sandbox = "sbx_a",
				 .mem_bytes = 1 << 20};
	struct template_rec t = {.id = "sbt_a",
				 .environment = "env",
				 .graph = "main",
				 .name = "normalize",
				 .version = 1,
				 .base = "lbb/python"};
	struct template_file two[2] = {{.id = "fil_a", .bytes = 3},
				       {.id = "b"}};
	struct file_rec f = {.id = "fil_a",
			     .environment = "env",
			     .graph = "main",
			     .content_type = "text/plain",
			     .origin_sandbox = "sbx_a"};

	if (type == 5)
		t.files = (struct template_files){two, 2};
	if (bytes_append(&two[0].path, "in/a", 4) ||
	    bytes_append(&c.result, "[1]", 3) ||
	    bytes_append(&f.name, "a.csv", 5) ||
	    (type == 0 && command_rec_encode(&c, out)) ||
	    (type == 1 && sandbox_rec_encode(&s, out)) ||
	    (type == 2 && key_rec_encode(&k, out)) ||
	    (type == 3 && event_rec_encode(&e, out)) ||
	    (type == 4 && snapshot_rec_encode(&n, out)) ||
	    (type == 5 && template_rec_encode(&t, out)) ||
	    (type == 6 && file_rec_encode(&f, out)))
		abort();
	bytes_finish(&two[0].path);
	file_rec_finish(&f);
	command_rec_finish(&c);
}

static void command(const struct bytes *in)
{
	struct bytes out = {0};
	struct command_rec r, again;

	if (command_rec_decode(&r, in->data, in->len))
		return;
	if (command_rec_encode(&r, &out) ||
	    command_rec_decode(&again, out.data, out.len) ||
	    again.status != r.status || again.result.len != r.result.len)
		abort();
	command_rec_finish(&again);
	command_rec_finish(&r);
	bytes_finish(&out);
}

static void sandbox(const struct bytes *in)
{
	struct bytes out = {0};
	struct sandbox_rec r, again;

	if (sandbox_rec_decode(&r, in->data, in->len))
		return;
	if (sandbox_rec_encode(&r, &out) ||
	    sandbox_rec_decode(&again, out.data, out.len) ||
	    strcmp(r.reason_text, again.reason_text) ||
	    r.expires_ms != again.expires_ms)
		abort();
	bytes_finish(&out);
}

static void key(const struct bytes *in)
{
	struct key_info k;

	if (!key_rec_decode(&k, in->data, in->len) && strlen(k.name) > 63)
		abort();
}

static void event(const struct bytes *in)
{
	struct event_rec e;

	if (!event_rec_decode(&e, in->data, in->len) && e.to > 255)
		abort();
}

static void snapshot(const struct bytes *in)
{
	struct bytes out = {0};
	struct snapshot_rec r, again;

	if (snapshot_rec_decode(&r, in->data, in->len))
		return;
	if (snapshot_rec_encode(&r, &out) ||
	    snapshot_rec_decode(&again, out.data, out.len) ||
	    memcmp(&r, &again, sizeof(r)))
		abort();
	bytes_finish(&out);
}

static void template(const struct bytes *in)
{
	struct bytes out = {0};
	struct template_rec r, again;

	if (template_rec_decode(&r, in->data, in->len))
		return;
	if (template_rec_encode(&r, &out) ||
	    template_rec_decode(&again, out.data, out.len) ||
	    memcmp(&r, &again, offsetof(struct template_rec, files)) ||
	    again.files.n != r.files.n)
		abort();
	for (size_t i = 0; i < r.files.n; i++)
		if (again.files.at[i].bytes != r.files.at[i].bytes ||
		    again.files.at[i].path.len != r.files.at[i].path.len)
			abort();
	template_rec_finish(&again);
	template_rec_finish(&r);
	bytes_finish(&out);
}

static void file(const struct bytes *in)
{
	struct bytes out = {0};
	struct file_rec r, again;

	if (file_rec_decode(&r, in->data, in->len))
		return;
	if (file_rec_encode(&r, &out) ||
	    file_rec_decode(&again, out.data, out.len) ||
	    again.name.len != r.name.len || again.bytes != r.bytes)
		abort();
	file_rec_finish(&again);
	file_rec_finish(&r);
	bytes_finish(&out);
}

/* A definite map whose first pair is a known version. */
static bool is_past_first_check(const struct bytes *in)
{
	size_t head = in->len && in->data[0] == 0xb8 ? 2 : 1;

	return in->len > head + 1 && in->data[0] >> 5 == 5 &&
	       in->data[0] != 0xbf && !in->data[head] &&
	       in->data[head + 1] >= 1 && in->data[head + 1] <= 3;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static void (*const types[])(const struct bytes *) = {
		command, sandbox, key, event, snapshot, template, file};
	struct bytes in = {0};
	unsigned type;

	fuzz_begin();
	if (len < 3)
		return 0;
	type = data[0] & 0x40 ? 4 + (data[0] >> 5 & 1) : data[0] % 4;
	if (data[0] & 0x80) {
		size_t at;

		good(type, &in);
		at = le16_load(data + 1) % in.len;
		data += 3;
		len -= 3;
		if (bytes_reserve(&in, len))
			abort();
		memcpy(in.data + at, data, len);
		if (in.len < at + len)
			in.len = at + len;
	} else if (bytes_append(&in, data + 1, len - 1)) {
		abort();
	}
	if (is_past_first_check(&in))
		fuzz_reach();
	types[type](&in);
	bytes_finish(&in);
	return 0;
}
