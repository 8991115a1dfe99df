/*
 * Records as bytes: the samples of api/samples/records, every cut and every
 * flipped byte of a good record, random bytes (hardening L7).
 *
 * HUTCH_WRITE_SAMPLES=1 writes the good samples anew (they must not change
 * within a version).
 */
#include "codec.h"
#include "guest_proto.h"
#include "record_cbor.h"
#include "store_test_util.h"
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define SAMPLES "api/samples/records"

static unsigned seed;

/* ---- one type behind one pair of functions ----------------------------------
 */

union any {
	struct sandbox_rec sandbox;
	struct command_rec command;
	struct key_info key;
	struct event_rec event;
	struct snapshot_rec snapshot;
	struct template_rec template;
	struct file_rec file;
};

static int any_decode(const char *type, union any *r, const void *p, size_t n)
{
	if (!strcmp(type, "sandbox"))
		return sandbox_rec_decode(&r->sandbox, p, n);
	if (!strcmp(type, "command"))
		return command_rec_decode(&r->command, p, n);
	if (!strcmp(type, "snapshot"))
		return snapshot_rec_decode(&r->snapshot, p, n);
	if (!strcmp(type, "template"))
		return template_rec_decode(&r->template, p, n);
	if (!strcmp(type, "file"))
		return file_rec_decode(&r->file, p, n);
	if (!strcmp(type, "key"))
		return key_rec_decode(&r->key, p, n);
	assert_string_equal(type, "event");
	return event_rec_decode(&r->event, p, n);
}

static int any_encode(const char *type, const union any *r, struct bytes *out)
{
	if (!strcmp(type, "sandbox"))
		return sandbox_rec_encode(&r->sandbox, out);
	if (!strcmp(type, "command"))
		return command_rec_encode(&r->command, out);
	if (!strcmp(type, "snapshot"))
		return snapshot_rec_encode(&r->snapshot, out);
	if (!strcmp(type, "template"))
		return template_rec_encode(&r->template, out);
	if (!strcmp(type, "file"))
		return file_rec_encode(&r->file, out);
	if (!strcmp(type, "key"))
		return key_rec_encode(&r->key, out);
	return event_rec_encode(&r->event, out);
}

static void any_finish(const char *type, union any *r)
{
	if (!strcmp(type, "command"))
		command_rec_finish(&r->command);
	if (!strcmp(type, "file"))
		file_rec_finish(&r->file);
	if (!strcmp(type, "template"))
		template_rec_finish(&r->template);
}

/* ---- samples ----------------------------------------------------------------
 */

static int hex_digit(int c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
				      : -1;
}

static void hex_read(const char *path, struct bytes *out)
{
	FILE *f = fopen(path, "re");
	bool is_comment = false, is_line_start = true;
	int c, high = -1;

	assert_non_null(f);
	while ((c = fgetc(f)) != EOF) {
		uint8_t byte;

		if (is_line_start && c == ';')
			is_comment = true;
		is_line_start = c == '\n';
		if (is_line_start)
			is_comment = false;
		if (is_comment || hex_digit(c) < 0)
			continue;
		if (high < 0) {
			high = hex_digit(c);
			continue;
		}
		byte = (uint8_t)(high << 4 | hex_digit(c));
		high = -1;
		assert_int_equal(bytes_append(out, &byte, 1), 0);
	}
	assert_int_equal(high, -1);
	fclose(f);
}

static void sample_check(const char *name)
{
	_cleanup_bytes_ struct bytes in = {0}, out = {0};
	char path[300], type[16];
	union any r;
	int rc;

	snprintf(path, sizeof(path), SAMPLES "/%s", name);
	snprintf(type, sizeof(type), "%.*s", (int)strcspn(name, "."), name);
	hex_read(path, &in);
	rc = any_decode(type, &r, in.data, in.len);
	if (strstr(name, ".bad.")) {
		if (rc != -EBADMSG && rc != -ENOTSUP)
			fail_msg("%s was taken (%d)", name, rc);
		return;
	}
	if (rc)
		fail_msg("%s: %s", name, strerror(-rc));
	assert_int_equal(any_encode(type, &r, &out), 0);
	if (strstr(name, ".old.")) {
		any_finish(type, &r);
		if (out.len <= in.len ||
		    any_decode(type, &r, out.data, out.len))
			fail_msg("%s does not become a new one", name);
		any_finish(type, &r);
		return;
	}
	if (out.len != in.len || memcmp(out.data, in.data, in.len))
		fail_msg("%s encodes to other bytes", name);
	any_finish(type, &r);
}

static void samples_are_as_named(void **state)
{
	DIR *d = opendir(SAMPLES);
	struct dirent *ent;
	int n_good = 0, n_bad = 0;

	(void)state;
	if (!d)
		fail_msg(SAMPLES ": %s (tests run in the top folder)",
			 strerror(errno));
	while ((ent = readdir(d))) {
		if (!strstr(ent->d_name, ".hex"))
			continue;
		sample_check(ent->d_name);
		n_good += strstr(ent->d_name, ".good.") != NULL;
		n_bad += strstr(ent->d_name, ".bad.") != NULL;
	}
	closedir(d);
	print_message("%d good, %d bad samples\n", n_good, n_bad);
	assert_true(n_good >= 6 && n_bad >= 12);
}

/* ---- every way to damage one
 * -------------------------------------------------- */

static void good_command(struct command_rec *c)
{
	*c = command_of(1);
	c->status = CMD_FAILED;
	c->reason = END_RESULT_NOT_JSON;
	snprintf(c->reason_text, sizeof(c->reason_text),
		 "run() returned a set");
	c->exit_code = 1;
	c->ended_ms = 1700000005000;
	c->origin = (struct origin){"nightly", "run-7", "sum", UINT64_MAX,
				    UINT32_MAX};
	c->out[0].total = UINT64_MAX;
	c->out[1].tail_at = 70000;
	assert_int_equal(bytes_append(&c->argv, "sh\0-c\0", 6), 0);
}

static void cuts_and_additions_are_refused(void **state)
{
	_cleanup_bytes_ struct bytes b = {0};
	struct command_rec c, r;

	(void)state;
	good_command(&c);
	assert_int_equal(command_rec_encode(&c, &b), 0);
	for (size_t n = 0; n < b.len; n++) {
		/* Exactly n bytes on the heap: an over-read is seen. */
		uint8_t *cut = malloc(n ? n : 1);

		memcpy(cut, b.data, n);
		assert_int_equal(command_rec_decode(&r, cut, n), -EBADMSG);
		free(cut);
	}
	bytes_append(&b, "", 1);
	assert_int_equal(command_rec_decode(&r, b.data, b.len), -EBADMSG);
	command_rec_finish(&c);
}

/* A flipped byte is refused or gives another legal record; never worse. */
static void flips_are_harmless(void **state)
{
	_cleanup_bytes_ struct bytes b = {0};
	struct command_rec c, r;
	int n_taken = 0;

	(void)state;
	good_command(&c);
	assert_int_equal(command_rec_encode(&c, &b), 0);
	for (size_t i = 0; i < b.len; i++)
		for (int bit = 0; bit < 8; bit++) {
			b.data[i] ^= (uint8_t)(1 << bit);
			if (!command_rec_decode(&r, b.data, b.len)) {
				struct bytes again = {0};

				n_taken++;
				assert_int_equal(command_rec_encode(&r, &again),
						 0);
				bytes_finish(&again);
				command_rec_finish(&r);
			}
			b.data[i] ^= (uint8_t)(1 << bit);
		}
	print_message("%d of %zu flips give a legal record\n", n_taken,
		      b.len * 8);
	command_rec_finish(&c);
}

static void random_bytes_are_refused(void **state)
{
	static const char *const types[] = {"sandbox", "command",  "key",
					    "event",   "snapshot", "template",
					    "file"};
	const int n_types = sizeof(types) / sizeof(*types);
	int n = is_long_run() ? 4000000 : 200000;
	_cleanup_bytes_ struct bytes b = {0};
	struct command_rec c;
	uint8_t junk[256];
	union any r;

	(void)state;
	for (int i = 0; i < n; i++) {
		size_t len = (size_t)rand_r(&seed) % sizeof(junk);

		for (size_t k = 0; k < len; k++)
			junk[k] = (uint8_t)rand_r(&seed);
		if (len > 3 && i % 2) /* past the first check */
			memcpy(junk, "\xb8\x21\x00\x01", 4);
		if (!any_decode(types[i % n_types], &r, junk, len))
			any_finish(types[i % n_types], &r);
	}
	/* Several bytes of a good one replaced. */
	good_command(&c);
	assert_int_equal(command_rec_encode(&c, &b), 0);
	command_rec_finish(&c);
	for (int i = 0; i < n / 4; i++) {
		struct bytes m = {0};

		bytes_append(&m, b.data, b.len);
		for (int k = 0; k < 1 + i % 4; k++)
			m.data[(size_t)rand_r(&seed) % m.len] =
				(uint8_t)rand_r(&seed);
		if (!command_rec_decode(&r.command, m.data, m.len))
			command_rec_finish(&r.command);
		bytes_finish(&m);
	}
	print_message("# count=%d random records\n", n + n / 4);
}

static void what_cannot_be_read_is_not_written(void **state)
{
	_cleanup_bytes_ struct bytes b = {0};
	struct sandbox_rec s = sandbox_of(1);
	struct command_rec c = command_of(1);

	(void)state;
	s.status = 0;
	assert_int_equal(sandbox_rec_encode(&s, &b), -EINVAL);
	s.status = SBX_LOST + 1;
	assert_int_equal(sandbox_rec_encode(&s, &b), -EINVAL);
	s = sandbox_of(1);
	s.graph[0] = '\n';
	assert_int_equal(sandbox_rec_encode(&s, &b), -EINVAL);
	s = sandbox_of(1);
	snprintf(s.origin.step, sizeof(s.origin.step), "caf\xc3\xa9");
	assert_int_equal(sandbox_rec_encode(&s, &b), -EINVAL);
	c.result.len = 0;
	assert_int_equal(bytes_reserve(&c.result, 50000), 0);
	memset(c.result.data, '1', 50000);
	c.result.len = GP_RESULT_BYTES_MAX + 1;
	assert_int_equal(command_rec_encode(&c, &b), -EINVAL);
	c.result.len = GP_RESULT_BYTES_MAX;
	assert_int_equal(command_rec_encode(&c, &b), 0);
	command_rec_finish(&c);
}

/* A record of version 1 that began from a snapshot had its id in the place of
 * the template's. */
static void snapshots_have_a_place_of_their_own(void **state)
{
	_cleanup_bytes_ struct bytes old = {0}, b = {0};
	struct sandbox_rec s = sandbox_of(1);
	uint8_t *at;

	(void)state;
	hex_read(SAMPLES "/sandbox.old.snapshot.hex", &old);
	assert_int_equal(sandbox_rec_decode(&s, old.data, old.len), 0);
	assert_string_equal(s.snapshot, "snp_a1b2");
	assert_string_equal(s.template_id, "");
	assert_string_equal(s.name, "");
	assert_string_equal(s.labels, "");
	/* And is itself in a new one, beside a template's. */
	snprintf(s.template_id, sizeof(s.template_id), "sbt_a");
	snprintf(s.labels, sizeof(s.labels), "{\"a\":\"b\"}");
	assert_int_equal(sandbox_rec_encode(&s, &b), 0);
	assert_int_equal(sandbox_rec_decode(&s, b.data, b.len), 0);
	assert_string_equal(s.snapshot, "snp_a1b2");
	assert_string_equal(s.template_id, "sbt_a");
	assert_string_equal(s.labels, "{\"a\":\"b\"}");
	/* A version that does not exist yet is told as such. */
	at = memmem(b.data, b.len, "\x00\x02", 2);
	assert_non_null(at);
	at[1] = 3;
	assert_int_equal(sandbox_rec_decode(&s, b.data, b.len), -ENOTSUP);
}

/* ---- copies, names
 * ------------------------------------------------------------ */

static void copies_are_deep(void **state)
{
	struct command_rec a, b;

	(void)state;
	good_command(&a);
	bytes_append(&a.out[1].tail, "tail", 4);
	assert_int_equal(command_rec_copy(&b, &a), 0);
	assert_ptr_not_equal(a.argv.data, b.argv.data);
	command_rec_finish(&a);
	assert_memory_equal(b.argv.data, "sh\0-c\0", 6);
	assert_memory_equal(b.out[1].tail.data, "tail", 4);
	command_rec_finish(&b);
	command_rec_finish(&b); /* twice is harmless */
}

static void names_are_the_wire_s(void **state)
{
	(void)state;
	assert_string_equal(sandbox_status_name(SBX_DESTROYING), "destroying");
	assert_string_equal(command_status_name(CMD_TIMED_OUT), "timed_out");
	assert_string_equal(end_reason_name(END_OOM), "oom");
	assert_string_equal(sandbox_status_name(99), "unknown");
	assert_string_equal(command_status_name(0), "unknown");
	assert_false(sandbox_status_is_final(SBX_DESTROYING));
	assert_false(sandbox_status_is_final(SBX_STOPPED));
	assert_true(command_status_is_final(CMD_LOST));
	assert_false(command_status_is_final(CMD_RUNNING));
}

/* ---- writing the good samples
 * ------------------------------------------------- */

static void sample_write(const char *name, const char *what,
			 const struct bytes *b)
{
	char path[300];
	FILE *f;

	snprintf(path, sizeof(path), SAMPLES "/%s", name);
	f = fopen(path, "we");
	assert_non_null(f);
	fprintf(f, "; %s\n", what);
	for (size_t i = 0; i < b->len; i++)
		fprintf(f, "%02x%s", b->data[i],
			i % 32 == 31 || i + 1 == b->len ? "\n" : "");
	fclose(f);
}

/* Of a saved template: its own, and that of a sandbox which it made. */
static void template_samples_write(void)
{
	struct template_rec t = {.id = "sbt_a1b2",
				 .environment = "env_a",
				 .graph = "main",
				 .name = "normalize",
				 .version = 2,
				 .base = "lbb/python",
				 .limits = {1, 2048, 4096},
				 .timeout_ms = 60000,
				 .created_ms = 1700000000000,
				 .has_code = true,
				 .code_bytes = 57,
				 .code_sha256 = {0xab}};
	struct sandbox_rec s = sandbox_of(1);
	struct bytes b = {0};

	template_rec_encode(&t, &b);
	sample_write("template.good.hex", "the second version of a name", &b);
	b.len = 0;
	t.files.at = calloc(2, sizeof(*t.files.at));
	assert_non_null(t.files.at);
	t.files.n = 2;
	for (size_t i = 0; i < 2; i++) {
		struct template_file *f = &t.files.at[i];

		snprintf(f->id, sizeof(f->id), "fil_%c1b2", 'a' + (int)i);
		f->sha256[0] = (uint8_t)(0xab + i);
		f->bytes = i * 3145728;
		bytes_append(&f->path, i ? "in/caf\xc3\xa9" : "data.csv", 8);
	}
	template_rec_encode(&t, &b);
	template_files_finish(&t.files);
	sample_write("template.good.files.hex", "with two Files", &b);
	snprintf(s.name, sizeof(s.name), "nightly");
	snprintf(s.labels, sizeof(s.labels), "{\"team\":\"a b\"}");
	memcpy(s.template_name, t.name, sizeof(s.template_name));
	memcpy(s.template_id, t.id, sizeof(s.template_id));
	s.template_version = t.version;
	s.kind = SBX_KIND_HELD;
	b.len = 0;
	sandbox_rec_encode(&s, &b);
	sample_write("sandbox.good.labels.hex",
		     "of a saved template, with name and labels", &b);
	bytes_finish(&b);
}

static void samples_write(void)
{
	struct key_info k = {
		.environment = "env_a", .name = "ci", .plan = PLAN_FREE};
	struct event_rec e = {.to = SBX_STARTING};
	struct snapshot_rec n = {
		.id = "snp_a1b2",
		.environment = "env_a",
		.graph = "main",
		.name = "ready",
		.sandbox = "sbx_a1b2",
		.template_name = "lbb/shell",
		.template_base = "lbb/shell",
		.limits = {1, 256, 512},
		.created_ms = 1700000000000,
		.expires_ms = 1700000060000,
		.incarnation = 3,
		.state_bytes = 16384,
		.mem_bytes = 90ull << 20,
		.disk_bytes = 2 << 20,
		.sums = {.state = {0xab}, .mem = {0xcd}, .disk = {0xef}}};
	struct file_rec file = {.id = "fil_a1b2",
				.environment = "env_a",
				.graph = "main",
				.sha256 = {0xab},
				.bytes = 3145728,
				.uploaded_ms = 1700000000000,
				.content_type = "text/csv; charset=utf-8",
				.origin_sandbox = "sbx_a1b2"};
	struct sandbox_rec s = sandbox_of(1);
	struct command_rec c = command_of(1);
	struct bytes b = {0};

	sandbox_rec_encode(&s, &b);
	sample_write("sandbox.good.new.hex", "just begun", &b);
	s.origin = (struct origin){"nightly", "run-7", "fetch.page-1", 3, 2};
	s.status = SBX_LOST;
	s.reason = END_VM_LOST;
	s.started_ms = s.created_ms + 400;
	s.ended_ms = s.created_ms + 9000;
	snprintf(s.reason_text, sizeof(s.reason_text),
		 "the VM's process was killed by signal 9");
	b.len = 0;
	sandbox_rec_encode(&s, &b);
	sample_write("sandbox.good.lost.hex",
		     "of a step of a workflow; its VM died", &b);
	b.len = 0;
	command_rec_encode(&c, &b);
	sample_write("command.good.new.hex", "just begun", &b);
	command_rec_finish(&c);
	good_command(&c);
	b.len = 0;
	command_rec_encode(&c, &b);
	sample_write("command.good.failed.hex", "a result that is not JSON",
		     &b);
	command_rec_finish(&c);
	b.len = 0;
	key_rec_encode(&k, &b);
	sample_write("key.good.hex", "of a free plan, not enabled", &b);
	b.len = 0;
	event_rec_encode(&e, &b);
	sample_write("event.good.hex", "a new sandbox", &b);
	b.len = 0;
	snapshot_rec_encode(&n, &b);
	sample_write("snapshot.good.hex", "of a held sandbox, with a name", &b);
	b.len = 0;
	bytes_append(&file.name, "r\xc3\xa9sum\xc3\xa9.csv", 12);
	bytes_append(&file.origin_path, "out/caf\xe9", 8);
	file_rec_encode(&file, &b);
	file_rec_finish(&file);
	sample_write("file.good.hex", "kept from a workspace", &b);
	bytes_finish(&b);
}

int main(void)
{
	const char *given = getenv("HUTCH_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_are_as_named),
		cmocka_unit_test(cuts_and_additions_are_refused),
		cmocka_unit_test(flips_are_harmless),
		cmocka_unit_test(random_bytes_are_refused),
		cmocka_unit_test(what_cannot_be_read_is_not_written),
		cmocka_unit_test(snapshots_have_a_place_of_their_own),
		cmocka_unit_test(copies_are_deep),
		cmocka_unit_test(names_are_the_wire_s),
	};

	if (getenv("HUTCH_WRITE_SAMPLES")) {
		samples_write();
		template_samples_write();
	}
	seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)getpid();
	print_message("# seed=%u (HUTCH_SEED)\n", seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
