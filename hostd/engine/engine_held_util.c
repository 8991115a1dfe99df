/* What the tests of held sandboxes share; see engine_held_util.h. */
#include "engine_held_util.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const char *const echo[] = {"echo", "hello", NULL};

struct create_spec held_spec(const char *key, uint32_t wait_ms)
{
	return (struct create_spec){.key = key,
				    .request_hash = {7},
				    .template_name = "lbb/shell",
				    .wait_ms = wait_ms};
}

void call_create(struct call *c, const struct create_spec *spec)
{
	memset(c, 0, sizeof(*c));
	c->is_inside = true;
	assert_int_equal(engine_sandbox_create(env.e, &env.who, spec,
					       on_call_sandbox, c, &c->w),
			 0);
	c->is_inside = false;
}

void call_command(struct call *c, const struct command_spec *spec)
{
	memset(c, 0, sizeof(*c));
	c->is_inside = true;
	assert_int_equal(engine_command_create(env.e, &env.who, spec,
					       on_call_run, c, &c->w),
			 0);
	c->is_inside = false;
}

/* echo hello, under this key. */
void call_echo(struct call *c, const char *sandbox, const char *key,
	       uint32_t wait_ms)
{
	const struct command_spec spec = {.key = key,
					  .request_hash = {9},
					  .sandbox = sandbox,
					  .argv = echo,
					  .wait_ms = wait_ms};

	call_command(c, &spec);
}

struct sandbox_rec sandbox_now(const char *id)
{
	struct call c = {0};

	assert_int_equal(
		engine_sandbox_get(env.e, &env.who, id, on_call_sandbox, &c),
		0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	return c.sbx;
}

enum command_status command_now(const char *command)
{
	struct call c;
	enum command_status s;

	call_get(&c, command, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	s = c.cmd.status;
	call_finish(&c);
	return s;
}

/* One that runs; its VM is the newest. */
void begin_held(struct call *c, const char *key)
{
	struct create_spec spec = held_spec(key, 30000);

	call_create(c, &spec);
	env_settle();
	fake_bound(fake.n_vms - 1);
	call_wait(c);
	assert_int_equal(c->err.code, ERR_NONE);
}
