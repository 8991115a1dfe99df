/*
 * Saved templates and what begins from them (LBB-20 to LBB-27, LBB-44, LBB-69,
 * LBB-80, LBB-82, LBB-103 to LBB-108, LBB-121).
 */
#include "engine_snapshot_util.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define CONFIG "{ \"unit\": \"cm\", \"n\": 1.0 }"

/* ---- calls -------------------------------------------------------------- */

struct save_call {
	int n_answers;
	struct err err;
	struct template_rec rec; /* without code and config */
	char code[64], config[64];
};

static void on_template(void *ctx, const struct err *e,
			const struct template_rec *r)
{
	struct save_call *c = ctx;

	c->n_answers++;
	assert_true(!e != !r);
	if (e) {
		c->err = *e;
		return;
	}
	c->rec = *r;
	memset(&c->rec.code, 0, sizeof(c->rec.code));
	memset(&c->rec.config, 0, sizeof(c->rec.config));
	memset(&c->rec.files, 0, sizeof(c->rec.files));
	snprintf(c->code, sizeof(c->code), "%.*s", (int)r->code.len,
		 (const char *)r->code.data);
	snprintf(c->config, sizeof(c->config), "%.*s", (int)r->config.len,
		 (const char *)r->config.data);
}

static struct template_spec spec_of(const char *key, const char *code)
{
	return (struct template_spec){.key = key,
				      .request_hash = {4},
				      .name = "normalize",
				      .base = "lbb/shell",
				      .code = code,
				      .code_len = code ? strlen(code) : 0};
}

static void call_save(struct save_call *c, const struct template_spec *spec)
{
	memset(c, 0, sizeof(*c));
	assert_int_equal(
		engine_template_save(env.e, &env.who, spec, on_template, c), 0);
	env_settle();
	assert_int_equal(c->n_answers, 1);
}

/* The next version of `normalize`, with the config above. */
static struct template_rec saved(const char *key, const char *code)
{
	struct template_spec spec = spec_of(key, code);
	struct save_call c;

	spec.config = CONFIG;
	spec.config_len = strlen(CONFIG);
	spec.limits.memory_mib = 2048;
	spec.timeout_ms = 5000;
	call_save(&c, &spec);
	assert_int_equal(c.err.code, ERR_NONE);
	return c.rec;
}

static enum err_code read_by(struct save_call *c, const char *which,
			     bool is_name)
{
	memset(c, 0, sizeof(*c));
	assert_int_equal(engine_template_get(env.e, &env.who, which, is_name,
					     on_template, c),
			 0);
	env_settle();
	assert_int_equal(c->n_answers, 1);
	return c->err.code;
}

static struct run_spec run_of(const char *key, const char *which)
{
	return (struct run_spec){.key = key,
				 .request_hash = {1},
				 .template_name = which,
				 .input = "[1]",
				 .input_len = 3};
}

static void run_as(struct call *c, const char *key, struct run_spec *spec)
{
	spec->key = key;
	call_run(c, key, spec, 0);
}

/* What a VM was given since the last look. */
static void assert_text(struct bytes *b, const char *want)
{
	assert_int_equal(b->len, strlen(want));
	assert_memory_equal(b->data, want, b->len);
	b->len = 0;
}

/* What it ran as, in both records. */
static void assert_of(const struct call *c, const struct template_rec *t)
{
	assert_string_equal(c->sbx.template_name, t->name);
	assert_string_equal(c->sbx.template_id, t->id);
	assert_int_equal(c->sbx.template_version, t->version);
	assert_string_equal(c->sbx.template_base, t->base);
	if (!*c->cmd.id)
		return;
	assert_string_equal(c->cmd.template_name, t->name);
	assert_string_equal(c->cmd.template_id, t->id);
	assert_int_equal(c->cmd.template_version, t->version);
	assert_string_equal(c->cmd.template_base, t->base);
}

/* ---- saving ------------------------------------------------------------- */

static void a_save_is_checked(void **state)
{
	static char much[ENGINE_JSON_BYTES_MAX + 1];
	struct save_call c;
	struct template_spec bad[14];
	const struct {
		enum err_code code;
		const char *param;
	} want[] = {
		{ERR_TEMPLATE_NAME_INVALID, "name"},
		{ERR_TEMPLATE_NAME_INVALID, "name"},
		{ERR_TEMPLATE_NAME_INVALID, "name"},
		{ERR_TEMPLATE_NAME_INVALID, "name"},
		{ERR_TEMPLATE_NOT_FOUND, "base"},
		{ERR_TEMPLATE_NOT_FOUND, "base"},
		{ERR_LIMITS_INVALID, "limits.vcpus"},
		{ERR_LIMITS_INVALID, "limits.memory_mib"},
		{ERR_LIMITS_INVALID, "limits.disk_mib"},
		{ERR_TIMEOUT_INVALID, "timeout_ms"},
		{ERR_CODE_TOO_LARGE, "code"},
		{ERR_INPUT_TOO_LARGE, "config"},
		{ERR_PLAN_UNAVAILABLE, ""},
		{ERR_NOT_ENABLED, ""},
	};

	(void)state;
	memset(much, '1', sizeof(much));
	for (int i = 0; i < 14; i++)
		bad[i] = spec_of("k", "x");
	bad[0].name = "";
	bad[1].name = "Normalize";
	bad[2].name = "lbb/python";
	bad[3].name = "a1234567890123456789012345678901234567890123456789012345"
		      "678901234";
	bad[4].base = "lbb/cobol";
	bad[5].base = "normalize";
	bad[6].limits.vcpus = 5;
	bad[7].limits.memory_mib = 127;
	bad[8].limits.disk_mib = 10241;
	bad[9].timeout_ms = ENGINE_TIMEOUT_MS_MAX + 1;
	bad[10].code = much;
	bad[10].code_len = ENGINE_CODE_BYTES_MAX + 1;
	bad[11].config = much;
	bad[11].config_len = sizeof(much);
	for (int i = 0; i < 14; i++) {
		env.who.plan = i == 12 ? PLAN_FREE : PLAN_FULL;
		env.who.is_enabled = i != 13;
		call_save(&c, &bad[i]);
		assert_int_equal(c.err.code, want[i].code);
		assert_string_equal(c.err.param, want[i].param);
	}
	env.who.is_enabled = true;
	/* Nothing is there, the key is free; the largest is taken. */
	assert_int_equal(read_by(&c, "normalize", false),
			 ERR_TEMPLATE_NOT_FOUND);
	bad[11].config_len--;
	bad[11].code = much;
	bad[11].code_len = ENGINE_CODE_BYTES_MAX;
	bad[11].timeout_ms = ENGINE_TIMEOUT_MS_MAX;
	bad[11].name = bad[3].name + 1;
	call_save(&c, &bad[11]);
	assert_int_equal(c.err.code, ERR_NONE);
	assert_int_equal(c.rec.version, 1);
	assert_int_equal(c.rec.config_bytes, ENGINE_JSON_BYTES_MAX);
	assert_int_equal(strlen(c.rec.name), 64);
}

static void a_save_is_kept_by_its_key(void **state)
{
	struct template_spec spec = spec_of("k", "one");
	struct save_call c, again;

	(void)state;
	call_save(&c, &spec);
	assert_int_equal(c.rec.version, 1);
	assert_memory_equal(c.rec.id, "sbt_n001", 8);
	assert_int_equal(c.rec.limits.vcpus, 1);
	assert_int_equal(c.rec.limits.memory_mib, 1024);
	assert_int_equal(c.rec.limits.disk_mib, 4096);
	assert_int_equal(c.rec.timeout_ms, 60000);
	saved("k2", "two");
	env_stop();
	env_start();
	call_save(&again, &spec);
	assert_string_equal(again.rec.id, c.rec.id);
	assert_string_equal(again.code, "one");
	spec.request_hash[0] = 5;
	call_save(&again, &spec);
	assert_int_equal(again.err.code, ERR_KEY_CONFLICT);
	assert_int_equal(read_by(&c, "normalize", true), ERR_NONE);
	assert_int_equal(c.rec.version, 2);
	assert_string_equal(c.config, CONFIG);
	assert_int_equal(read_by(&c, again.rec.id, true),
			 ERR_TEMPLATE_NOT_FOUND);
	env.who.graph = "other";
	assert_int_equal(read_by(&c, "normalize", true),
			 ERR_TEMPLATE_NOT_FOUND);
	env.who.graph = "main";
}

/* ---- runs --------------------------------------------------------------- */

static void a_run_has_all_of_it(void **state)
{
	struct template_rec t = saved("t", "one");
	struct run_spec spec = run_of("k", "normalize");
	struct call c;

	(void)state;
	run_as(&c, "k", &spec);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	assert_of(&c, &t);
	assert_int_equal(c.sbx.limits.memory_mib, 2048);
	assert_int_equal(c.sbx.limits.vcpus, 1);
	assert_int_equal(c.cmd.timeout_ms, 5000);
	assert_int_equal(c.cmd.code_bytes, 3);
	assert_memory_equal(c.cmd.config_sha256, t.config_sha256, HASH_BYTES);
	assert_string_equal(fake.vms[0].spec.base, "lbb/shell");
	assert_text(&fake.vms[0].code, "one");
	assert_text(&fake.vms[0].config, CONFIG);
	assert_text(&fake.vms[0].input, "[1]");
	call_finish(&c);
	/* By its id, with the call's own, each of them. */
	spec = run_of("k2", t.id);
	spec.code = "mine";
	spec.code_len = 4;
	spec.config = "null";
	spec.config_len = 4;
	spec.limits.vcpus = 2;
	spec.timeout_ms = 7;
	run_as(&c, "k2", &spec);
	call_wait(&c);
	assert_of(&c, &t);
	assert_int_equal(c.sbx.limits.vcpus, 2);
	assert_int_equal(c.sbx.limits.memory_mib, 2048);
	assert_int_equal(c.cmd.timeout_ms, 7);
	assert_text(&fake.vms[1].code, "mine");
	assert_text(&fake.vms[1].config, "null");
	call_finish(&c);
}

/* A call that is sent again finds what it began, whatever was saved since. */
static void a_later_save_changes_no_record(void **state)
{
	struct template_rec t = saved("t", "one"), later;
	struct run_spec spec = run_of("k", "normalize");
	struct call c, again, other;

	(void)state;
	run_as(&c, "k", &spec);
	call_wait(&c);
	assert_of(&c, &t);
	/* Without code: a new call would be refused. */
	later = saved("t2", NULL);
	assert_int_equal(later.version, 2);
	run_as(&other, "k2", &spec);
	call_wait(&other);
	assert_int_equal(other.err.code, ERR_INVALID_REQUEST);
	assert_string_equal(other.err.param, "code");
	run_as(&again, "k", &spec); /* it runs */
	call_wait(&again);
	assert_string_equal(again.cmd.id, c.cmd.id);
	assert_of(&again, &t);
	call_finish(&again);
	fake_bound(0);
	fake_end(0, GP_END_EXITED, 0, "1");
	env_settle();
	run_as(&again, "k", &spec); /* it ended */
	call_wait(&again);
	assert_string_equal(again.cmd.id, c.cmd.id);
	assert_int_equal(again.cmd.status, CMD_SUCCEEDED);
	assert_of(&again, &t);
	call_finish(&again);
	env_stop();
	env_start();
	run_as(&again, "k", &spec); /* another daemon */
	call_wait(&again);
	assert_string_equal(again.cmd.id, c.cmd.id);
	assert_of(&again, &t);
	spec.request_hash[0] = 9;
	run_as(&other, "k", &spec);
	call_wait(&other);
	assert_int_equal(other.err.code, ERR_KEY_CONFLICT);
	assert_int_equal(fake.n_vms, 1);
	call_finish(&again);
	call_finish(&c);
}

static void what_is_not_there_burns_no_key(void **state)
{
	struct run_spec spec = run_of("k", "normalize");
	struct create_spec held = held_spec("h", 0);
	struct template_rec t;
	struct call c;

	(void)state;
	run_as(&c, "k", &spec);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_TEMPLATE_NOT_FOUND);
	assert_string_equal(c.err.param, "template");
	assert_non_null(strstr(c.err.text, "normalize in graph main"));
	held.template_name = "a\nb";
	call_create(&c, &held);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_TEMPLATE_NOT_FOUND);
	assert_null(strchr(c.err.text, '\n'));
	t = saved("t", "one");
	run_as(&c, "k", &spec);
	call_wait(&c);
	assert_of(&c, &t);
	call_finish(&c);
	/* What another graph saved is not there. */
	env.who.graph = "other";
	spec.template_name = t.id;
	run_as(&c, "k3", &spec);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_TEMPLATE_NOT_FOUND);
	env.who.graph = "main";
	env.who.plan = PLAN_FREE;
	run_as(&c, "k4", &spec);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_PLAN_UNAVAILABLE);
	env.who.plan = PLAN_FULL;
	/* Eight at once: one runs. */
	{
		struct run_spec one = run_of("eight", "normalize");
		struct call at_once[8];

		for (int i = 0; i < 8; i++)
			run_as(&at_once[i], "eight", &one);
		for (int i = 0; i < 8; i++) {
			call_wait(&at_once[i]);
			assert_string_equal(at_once[i].cmd.id,
					    at_once[0].cmd.id);
		}
		for (int i = 0; i < 8; i++)
			call_finish(&at_once[i]);
		assert_int_equal(fake.n_vms, 2);
	}
}

/* While the template is read the client goes away, or the daemon ends. */
static void given_up_while_it_is_read(void **state)
{
	struct run_spec spec = run_of("k", "normalize");
	struct call c, d;

	(void)state;
	saved("t", "one");
	run_as(&c, "k", &spec);
	engine_cancel_wait(env.e, c.w);
	env_settle();
	assert_int_equal(c.n_answers, 0);
	assert_int_equal(fake.n_vms, 0);
	run_as(&d, "k", &spec);
	env_stop();
	assert_int_equal(d.n_answers, 1);
	assert_int_equal(d.err.code, ERR_UNAVAILABLE);
	env_start();
	run_as(&d, "k", &spec);
	call_wait(&d);
	assert_int_equal(d.err.code, ERR_NONE);
	call_finish(&d);
}

/* ---- held sandboxes ----------------------------------------------------- */

static struct command_spec code_in(const char *sandbox, const char *key,
				   const char *code)
{
	return (struct command_spec){.key = key,
				     .request_hash = {9},
				     .sandbox = sandbox,
				     .code = code,
				     .code_len = code ? strlen(code) : 0,
				     .input = "[2]",
				     .input_len = 3};
}

/* Held, of `normalize`; its VM is the newest. */
static void hold_saved(struct call *c, const char *key)
{
	struct create_spec spec = held_spec(key, 30000);

	spec.template_name = "normalize";
	call_create(c, &spec);
	env_settle();
	fake_bound(fake.n_vms - 1);
	call_wait(c);
	assert_int_equal(c->err.code, ERR_NONE);
}

static void code_of_the_template_runs_in_a_held_one(void **state)
{
	struct template_rec t = saved("t", "one");
	struct command_spec spec;
	struct call c, cmd, echo;

	(void)state;
	hold_saved(&c, "k");
	assert_of(&c, &t);
	assert_int_equal(c.sbx.limits.memory_mib, 2048);
	saved("t2", "two"); /* changes nothing in it */
	spec = code_in(c.sbx.id, "c", NULL);
	call_command(&cmd, &spec);
	call_wait(&cmd);
	assert_int_equal(cmd.err.code, ERR_NONE);
	assert_of(&cmd, &t);
	assert_int_equal(cmd.cmd.timeout_ms, 5000);
	assert_text(&fake.vms[0].code, "one");
	assert_text(&fake.vms[0].config, CONFIG);
	call_finish(&cmd);
	/* The call's own code, with the template's config. */
	spec = code_in(c.sbx.id, "c2", "mine");
	call_command(&cmd, &spec);
	call_wait(&cmd);
	assert_text(&fake.vms[0].code, "mine");
	assert_text(&fake.vms[0].config, CONFIG);
	call_finish(&cmd);
	/* Programs have nothing of it but the name. */
	call_echo(&echo, c.sbx.id, "e", 0);
	call_wait(&echo);
	assert_int_equal(echo.cmd.timeout_ms, ENGINE_TIMEOUT_MS_DEFAULT);
	assert_of(&echo, &t);
	call_finish(&echo);
	/* By the key, when it has ended. */
	call_delete(&echo, c.sbx.id);
	call_wait(&echo);
	env_settle();
	spec = code_in(c.sbx.id, "c", NULL);
	call_command(&cmd, &spec);
	call_wait(&cmd);
	assert_int_equal(cmd.err.code, ERR_NONE);
	assert_of(&cmd, &t);
	call_finish(&cmd);
	spec.key = "c9";
	call_command(&cmd, &spec);
	call_wait(&cmd);
	assert_int_equal(cmd.err.code, ERR_NOT_RUNNING);
}

static void without_code_there_is_none(void **state)
{
	struct command_spec spec;
	struct call c, cmd;

	(void)state;
	begin_held(&c, "k"); /* a base template */
	spec = code_in(c.sbx.id, "c", NULL);
	call_command(&cmd, &spec);
	call_wait(&cmd);
	assert_int_equal(cmd.err.code, ERR_INVALID_REQUEST);
	assert_string_equal(cmd.err.param, "code");
	saved("t", NULL);
	hold_saved(&c, "k2");
	spec = code_in(c.sbx.id, "c", NULL);
	call_command(&cmd, &spec);
	call_wait(&cmd);
	assert_string_equal(cmd.err.param, "code");
	spec.code = "x";
	spec.code_len = 1;
	call_command(&cmd, &spec);
	call_wait(&cmd);
	assert_int_equal(cmd.err.code, ERR_NONE);
	call_finish(&cmd);
}

/* What goes on from a snapshot of it has its template, too. */
static void a_snapshot_carries_the_version(void **state)
{
	struct template_rec t = saved("t", "one");
	struct create_spec spec = held_spec("from", 30000);
	struct command_spec code;
	struct snap_call snap;
	struct call c, from, cmd;

	(void)state;
	hold_saved(&c, "k");
	take(&snap, c.sbx.id, "s");
	assert_string_equal(snap.rec.template_id, t.id);
	assert_int_equal(snap.rec.template_version, 1);
	saved("t2", "two");
	spec.template_name = NULL;
	spec.snapshot = snap.rec.id;
	spec.name = "copy";
	spec.labels = "{\"a\":\"b\"}";
	call_create(&from, &spec);
	env_settle();
	fake_bound(1);
	call_wait(&from);
	assert_of(&from, &t);
	assert_string_equal(from.sbx.snapshot, snap.rec.id);
	assert_string_equal(from.sbx.name, "copy");
	assert_string_equal(from.sbx.labels, "{\"a\":\"b\"}");
	code = code_in(from.sbx.id, "c", NULL);
	call_command(&cmd, &code);
	call_wait(&cmd);
	assert_int_equal(cmd.err.code, ERR_NONE);
	assert_text(&fake.vms[1].code, "one");
	call_finish(&cmd);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_save_is_checked),
		TEST(a_save_is_kept_by_its_key),
		TEST(a_run_has_all_of_it),
		TEST(a_later_save_changes_no_record),
		TEST(what_is_not_there_burns_no_key),
		TEST(given_up_while_it_is_read),
		TEST(code_of_the_template_runs_in_a_held_one),
		TEST(without_code_there_is_none),
		TEST(a_snapshot_carries_the_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
