/* See engine_snapshot_util.h. */
#include "engine_snapshot_util.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

void on_snapshot(void *ctx, const struct err *e, const struct snapshot_rec *r)
{
	struct snap_call *c = ctx;

	c->n_answers++;
	assert_true(!e != !r);
	if (e)
		c->err = *e;
	else
		c->rec = *r;
}

void call_take_for(struct snap_call *c, const char *sandbox, const char *key,
		   uint32_t expires_in_seconds)
{
	const struct snapshot_spec spec = {
		.key = key,
		.request_hash = {5},
		.sandbox = sandbox,
		.name = "ready",
		.expires_in_seconds = expires_in_seconds,
	};

	memset(c, 0, sizeof(*c));
	assert_int_equal(
		engine_snapshot_create(env.e, &env.who, &spec, on_snapshot, c),
		0);
}

void call_take(struct snap_call *c, const char *sandbox, const char *key)
{
	call_take_for(c, sandbox, key, 0);
}

void take(struct snap_call *c, const char *sandbox, const char *key)
{
	call_take(c, sandbox, key);
	env_settle();
	fake_snapshot(0, NULL);
	env_settle();
	assert_int_equal(c->n_answers, 1);
	assert_int_equal(c->err.code, ERR_NONE);
}

int read_one(struct snap_call *c, const char *id, bool is_delete)
{
	memset(c, 0, sizeof(*c));
	assert_int_equal((is_delete ? engine_snapshot_delete
				    : engine_snapshot_get)(env.e, &env.who, id,
							   on_snapshot, c),
			 0);
	env_settle();
	assert_int_equal(c->n_answers, 1);
	return c->err.code;
}
