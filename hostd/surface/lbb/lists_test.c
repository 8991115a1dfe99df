/*
 * Unit tests of the routes that list records or retrieve one: every parameter
 * is checked, also one that the call would not use (LBB-12, LBB-63, LBB-133).
 * Templates are in templates_test.c.
 *
 * The engine's functions note which of them was called.
 */
#include "lbb.h"
#include "work.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

#define BOX  "sandbox=sbx_a1b2"
#define CMD  "command=cmd_a1b2"
#define SNAP "snapshot=snp_a1b2"

static const struct services services;
static const struct route route = {.operation = "op"};
static struct err got;
static char asked[64];

/* ---- what the surface calls --------------------------------------------- */

static int ask(const char *what, const char *id)
{
	snprintf(asked, sizeof(asked), "%s %s", what, id ? id : "-");
	return 0;
}

int engine_command_get(struct engine *e, const struct caller *who,
		       const char *id, uint32_t wait_ms, engine_run_fn fn,
		       void *ctx, struct waiter **ret_waiter)
{
	char text[48];

	(void)e;
	(void)who;
	(void)fn;
	(void)ctx;
	*ret_waiter = NULL;
	snprintf(text, sizeof(text), "%s %u", id, wait_ms);
	return ask("get", text);
}

int engine_command_list(struct engine *e, const struct caller *who,
			const struct store_page *p, engine_commands_fn fn,
			void *ctx)
{
	(void)e;
	(void)who;
	(void)fn;
	(void)ctx;
	return ask("list", p->sandbox);
}

#define GETS(name, type)                                                       \
	int name(struct engine *e, const struct caller *who, const char *id,   \
		 type fn, void *ctx)                                           \
	{                                                                      \
		(void)e;                                                       \
		(void)who;                                                     \
		(void)fn;                                                      \
		(void)ctx;                                                     \
		return ask("get", id);                                         \
	}
#define LISTS(name, type)                                                      \
	int name(struct engine *e, const struct caller *who,                   \
		 const struct store_page *p, type fn, void *ctx)               \
	{                                                                      \
		(void)e;                                                       \
		(void)who;                                                     \
		(void)fn;                                                      \
		(void)ctx;                                                     \
		return ask("list", p->sandbox);                                \
	}

GETS(engine_sandbox_get, engine_sandbox_fn)
GETS(engine_sandbox_delete, engine_sandbox_fn)
GETS(engine_sandbox_stop, engine_sandbox_fn)
GETS(engine_sandbox_resume, engine_sandbox_fn)
GETS(engine_command_cancel, engine_run_fn)
GETS(engine_snapshot_get, engine_snapshot_fn)
GETS(engine_snapshot_delete, engine_snapshot_fn)
GETS(engine_snapshot_verify, engine_snapshot_fn)
LISTS(engine_sandbox_list, engine_sandboxes_fn)
LISTS(engine_snapshot_list, engine_snapshots_fn)

int engine_snapshot_create(struct engine *e, const struct caller *who,
			   const struct snapshot_spec *spec,
			   engine_snapshot_fn fn, void *ctx)
{
	(void)e;
	(void)who;
	(void)fn;
	(void)ctx;
	return ask("create", spec->sandbox);
}

void engine_cancel_wait(struct engine *e, struct waiter *w)
{
	(void)e;
	(void)w;
}

/* Creates are tested elsewhere. */
int request_object(struct request *r, struct json_span *ret)
{
	(void)r;
	(void)ret;
	return -1;
}

int work_hash(struct request *r, struct json_span body, const char *record,
	      uint8_t ret[HASH_BYTES], struct err *e)
{
	(void)r;
	(void)body;
	(void)record;
	(void)ret;
	(void)e;
	return -1;
}

void request_drop(struct request *r)
{
	(void)r;
}

void reply_err(struct request *r, const struct err *e)
{
	(void)r;
	got = *e;
}

void reply_json(struct request *r, int code, struct json_out *j)
{
	(void)r;
	(void)code;
	json_out_finish(j);
}

/* ---- calls -------------------------------------------------------------- */

typedef void (*handler_fn)(struct request *r);

static void calls(handler_fn handler, const char *query)
{
	struct request r = {.services = &services, .route = &route};
	struct err e;

	memset(&got, 0, sizeof(got));
	*asked = 0;
	assert_int_equal(query_parse(&r.query, query, &e), 0);
	handler(&r);
	query_finish(&r.query);
}

static void asks(handler_fn handler, const char *query, const char *want)
{
	calls(handler, query);
	if (got.code || strcmp(asked, want))
		fail_msg("%s: \"%s\", %s: %s", query, asked, got.param,
			 got.text);
}

static void refuses(handler_fn handler, const char *query, enum err_code code,
		    const char *param)
{
	calls(handler, query);
	if (*asked || got.code != code || strcmp(got.param, param))
		fail_msg("%s: \"%s\" %d %s: %s", query, asked, got.code,
			 got.param, got.text);
}

static void lists(void **state)
{
	(void)state;
	asks(lbb_sandboxes, "", "list -");
	asks(lbb_sandboxes, "status=running&name=n&limit=100", "list -");
	asks(lbb_commands, "wait_ms=30000&limit=1", "list -");
	asks(lbb_commands, BOX, "list sbx_a1b2");
	asks(lbb_snapshots, BOX "&cursor=snp_a", "list sbx_a1b2");
}

static void retrieves(void **state)
{
	(void)state;
	asks(lbb_sandboxes, BOX "&limit=5", "get sbx_a1b2");
	asks(lbb_commands, CMD "&" BOX "&wait_ms=7", "get cmd_a1b2 7");
	asks(lbb_commands, CMD, "get cmd_a1b2 0");
	asks(lbb_snapshots, SNAP, "get snp_a1b2");
}

static void checks_what_it_does_not_use(void **state)
{
	static const struct {
		handler_fn handler;
		const char *query, *param;
	} t[] = {
		{lbb_commands, "wait_ms=30001", "wait_ms"},
		{lbb_commands, "wait_ms=x&" BOX, "wait_ms"},
		{lbb_commands, CMD "&limit=0", "limit"},
		{lbb_commands, CMD "&wait_ms=30001", "wait_ms"},
		{lbb_sandboxes, BOX "&limit=101", "limit"},
		{lbb_sandboxes, BOX "&status=nothing", "status"},
		{lbb_sandboxes, BOX "&name=", "name"},
		{lbb_snapshots, SNAP "&limit=-1", "limit"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++)
		refuses(t[i].handler, t[i].query, ERR_INVALID_REQUEST,
			t[i].param);
	refuses(lbb_commands, CMD "&sandbox=x", ERR_SANDBOX_NOT_FOUND,
		"sandbox");
	refuses(lbb_snapshots, "snapshot=x", ERR_SNAPSHOT_NOT_FOUND,
		"snapshot");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists),
		cmocka_unit_test(retrieves),
		cmocka_unit_test(checks_what_it_does_not_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
