/* What the tests of the engine share; see engine_test_util.h. */
#include "engine_test_util.h"
#include "../clock.h"
#include "../link/template.h"
#include "../store/test_vfs.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct fake fake;
struct env env;

/* ---- link/vm.h, link/template.h
 * ------------------------------------------------ */

int shape_for(const char *base, const struct limits *limits, struct shape *ret,
	      struct err *e)
{
	memset(ret, 0, sizeof(*ret));
	if (strcmp(base, "lbb/python") && strcmp(base, "lbb/shell"))
		return err_set(e, ERR_TEMPLATE_NOT_FOUND, "template",
			       "There is no template %s.", base);
	ret->vcpus = limits->vcpus;
	ret->ram_mib = limits->memory_mib;
	return 0;
}

int template_hashes(struct link *l, const char *base, uint8_t image[HASH_BYTES],
		    uint8_t kernel[HASH_BYTES])
{
	(void)l;
	(void)base;
	memset(image, 0x11 + fake.image_more, HASH_BYTES);
	memset(kernel, 0x22, HASH_BYTES);
	return fake.hashes_rc;
}

void vm_spec_cost(const struct vm_spec *spec, uint64_t *ret_ram_bytes,
		  uint64_t *ret_disk_bytes)
{
	(void)spec;
	*ret_ram_bytes = fake.ram_bytes;
	*ret_disk_bytes = fake.disk_bytes;
}

int vm_create(struct vm **ret, struct link *link, const struct vm_spec *spec,
	      const struct vm_ops *ops, void *ctx, struct err *e)
{
	struct vm *vm = &fake.vms[fake.n_vms];

	(void)link;
	assert_false(fake.is_link_gone);
	if (fake.create_error)
		return err_set(e, ERR_CAPACITY, NULL, "%s", fake.create_error);
	assert_true(fake.n_vms < FAKE_VMS_MAX);
	fake.n_vms++;
	memset(vm, 0, sizeof(*vm));
	vm->is_created = true;
	vm->ops = ops;
	vm->ctx = ctx;
	vm->spec = *spec;
	*ret = vm;
	return 0;
}

int vm_create_pooled(struct vm **ret, struct link *link,
		     const struct vm_spec *spec, const struct vm_pool_ops *ops,
		     void *ctx, struct err *e)
{
	struct vm *vm = &fake.vms[fake.n_vms];

	(void)link;
	if (fake.pool_error)
		return err_set(e, fake.pool_error_code, NULL, "%s",
			       fake.pool_error);
	assert_true(fake.n_vms < FAKE_VMS_MAX);
	fake.n_vms++;
	memset(vm, 0, sizeof(*vm));
	vm->is_created = true;
	vm->pool_ops = ops;
	vm->ctx = ctx;
	vm->spec = *spec;
	*ret = vm;
	return 0;
}

bool vm_is_current(const struct vm *vm)
{
	return !vm->is_stale;
}

bool vm_has_lane(const struct vm *vm)
{
	return vm->has_lane;
}

int vm_claim(struct vm *vm, const struct vm_ops *ops, void *ctx)
{
	assert_non_null(vm->pool_ops);
	assert_false(vm->is_destroyed || vm->is_claimed);
	if (vm->is_stale)
		return -ESTALE;
	vm->is_claimed = true;
	vm->pool_ops = NULL;
	vm->ops = ops;
	vm->ctx = ctx;
	return 0;
}

int vm_stop(struct vm *vm)
{
	if (fake.stop_rc)
		return fake.stop_rc;
	vm->n_stops++;
	return 0;
}

void fake_stopped(int i, const char *error)
{
	struct vm *vm = &fake.vms[i];

	vm->ops->stopped(vm->ctx, error);
}

int vm_create_stopped(struct vm **ret, struct link *link,
		      const struct vm_spec *spec, const struct vm_ops *ops,
		      void *ctx, struct err *e)
{
	int rc = vm_create(ret, link, spec, ops, ctx, e);

	if (!rc)
		(*ret)->is_resumed = true;
	return rc;
}

bool vm_stopped_is_there(const struct link *link, const char *sandbox)
{
	(void)link;
	(void)sandbox;
	return !fake.are_files_gone;
}

void vm_stopped_remove(struct link *link, const char *sandbox)
{
	(void)link;
	assert_false(fake.is_link_gone);
	snprintf(fake.removed, sizeof(fake.removed), "%s", sandbox);
}

void vm_stopped_sweep(struct link *link,
		      bool (*is_kept)(void *ctx, const char *sandbox),
		      void *ctx)
{
	(void)link;
	fake.n_sweeps++;
	fake.is_last_kept = is_kept(ctx, fake.asked);
}

bool vm_is_by_lane(const struct vm *vm, uint64_t cmd)
{
	(void)vm;
	(void)cmd;
	return false;
}

int64_t vm_ready_us(const struct vm *vm)
{
	(void)vm;
	return clock_mono_us();
}

int vm_run(struct vm *vm, uint64_t cmd, const struct vm_run *run)
{
	if (fake.run_rc)
		return fake.run_rc;
	vm->n_runs++;
	vm->cmd = cmd;
	vm->timeout_ms = run->timeout_ms;
	vm->has_input = run->input != NULL;
	bytes_append(&vm->code, run->code, run->code_len);
	if (run->input)
		bytes_append(&vm->input, run->input, run->input_len);
	if (run->config)
		bytes_append(&vm->config, run->config, run->config_len);
	for (size_t i = 0; run->env && run->env[i]; i++)
		bytes_append(&vm->env, run->env[i], strlen(run->env[i]) + 1);
	return 0;
}

int vm_exec(struct vm *vm, uint64_t cmd, const struct vm_exec *exec)
{
	if (fake.run_rc)
		return fake.run_rc;
	assert_non_null(exec->argv[0]);
	vm->n_execs++;
	vm->cmd = cmd;
	vm->timeout_ms = exec->timeout_ms;
	vm->argv.len = vm->env.len = 0;
	for (size_t i = 0; exec->argv[i]; i++)
		bytes_append(&vm->argv, exec->argv[i],
			     strlen(exec->argv[i]) + 1);
	for (size_t i = 0; exec->env && exec->env[i]; i++)
		bytes_append(&vm->env, exec->env[i], strlen(exec->env[i]) + 1);
	return 0;
}

int vm_kill(struct vm *vm, uint64_t cmd, uint32_t grace_ms)
{
	(void)grace_ms;
	assert_in_range(cmd, 1, vm->cmd);
	vm->n_kills++;
	vm->killed = cmd;
	return 0;
}

void vm_ack(struct vm *vm, uint64_t cmd)
{
	assert_in_range(cmd, 1, vm->cmd);
	assert_false(vm->is_destroyed);
	vm->n_acks++;
}

static void on_destroyed_gone(void *arg)
{
	struct vm *vm = arg;

	if (!vm->is_gone)
		fake_gone((int)(vm - fake.vms), END_NONE, "destroyed");
}

void vm_destroy(struct vm *vm)
{
	assert_false(vm->is_destroyed);
	vm->is_destroyed = true;
	if (vm->is_gone || fake.is_slow_to_go)
		return;
	vm->gone.fn = on_destroyed_gone;
	vm->gone.arg = vm;
	loop_post_call(fake.loop, &vm->gone);
}

int vm_pid(const struct vm *vm)
{
	return 1000 + (int)(vm - fake.vms);
}

static struct vm *vm_at(int i)
{
	assert_true(i < fake.n_vms && !fake.vms[i].is_gone);
	return &fake.vms[i];
}

void fake_bound(int i)
{
	struct vm *vm = vm_at(i);

	vm->ops->bound(vm->ctx);
	if (vm->cmd)
		vm->ops->started(vm->ctx, vm->cmd);
}

void fake_started(int i, uint64_t cmd)
{
	struct vm *vm = vm_at(i);

	vm->ops->started(vm->ctx, cmd);
}

void fake_output(int i, int stream, const char *text)
{
	struct vm *vm = vm_at(i);

	vm->ops->output(vm->ctx, vm->cmd, stream, 0, strlen(text),
			(const uint8_t *)text, strlen(text));
}

void fake_end(int i, enum gp_end how, int code, const char *result)
{
	fake_end_of(i, vm_at(i)->cmd, how, code, result);
}

void fake_end_of(int i, uint64_t cmd, enum gp_end how, int code,
		 const char *result)
{
	struct vm *vm = vm_at(i);
	struct vm_end end = {
		.how = how,
		.code = how == GP_END_SIGNALED ? 0 : code,
		.signal = how == GP_END_SIGNALED ? code : 0,
		.result = (const uint8_t *)result,
		.result_len = result ? strlen(result) : 0,
		.user_us = 12,
	};

	vm->ops->ended(vm->ctx, cmd, &end);
}

void fake_waiting(int i)
{
	struct vm *vm = vm_at(i);

	vm->pool_ops->waiting(vm->ctx);
}

void fake_gone(int i, enum end_reason why, const char *text)
{
	struct vm *vm = vm_at(i);

	vm->is_gone = true;
	if (vm->pool_ops)
		vm->pool_ops->gone(vm->ctx, why, text);
	else
		vm->ops->gone(vm->ctx, why, text);
}

/* ---- the engine
 * ---------------------------------------------------------------- */

void env_init(void)
{
	memset(&env, 0, sizeof(env));
	memset(&fake, 0, sizeof(fake));
	fixture_init(&env.f);
	fake.loop = env.f.loop;
	fake.ram_bytes = 1 << 30;
	fake.disk_bytes = 1 << 20;
	env.cfg = (struct engine_config){
		.graph_places = 5,
		.environment_places = 10,
		.ram_budget_bytes = 100ull << 30,
		.file_max_bytes = 64 << 20,
		.state_dir = env.f.dir,
		.node = "n001",
	};
	env.who = (struct caller){.environment = "env_a",
				  .graph = "main",
				  .plan = PLAN_FULL,
				  .is_enabled = true};
	env_start();
}

void env_start(void)
{
	unsigned n_lost;
	struct err e;

	fake.is_link_gone = false;
	fixture_open(&env.f);
	assert_int_equal(store_recover(env.f.store, "boot-1", clock_wall_ms(),
				       &n_lost, &e),
			 0);
	if (engine_create(&env.e, env.f.loop, env.f.store, NULL, &env.cfg, &e))
		fail_msg("%s", e.text);
}

void env_stop(void)
{
	engine_destroy(env.e);
	env.e = NULL;
	fake.is_link_gone = true; /* link_destroy */
	fixture_close(&env.f);
}

void env_finish(void)
{
	if (env.e)
		env_stop();
	for (int i = 0; i < fake.n_vms; i++) {
		bytes_finish(&fake.vms[i].code);
		bytes_finish(&fake.vms[i].input);
		bytes_finish(&fake.vms[i].config);
		bytes_finish(&fake.vms[i].env);
		bytes_finish(&fake.vms[i].argv);
		bytes_finish(&fake.vms[i].file_bytes);
		fake.vms[i].is_gone = true; /* calls still posted are late */
	}
	fixture_finish(&env.f);
}

static void on_stop(struct loop_timer *t)
{
	(void)t;
	loop_stop(env.f.loop);
}

void env_loop_for(int64_t ms)
{
	struct loop_timer t = {.fn = on_stop};

	loop_timer_set(env.f.loop, &t, ms);
	assert_int_equal(loop_run(env.f.loop), 0);
	loop_timer_stop(env.f.loop, &t);
}

void env_settle(void)
{
	/* The store is idle when an op of our own came back twice. */
	for (int i = 0; i < 4; i++) {
		struct answer a;

		answer_init(&a, &env.f);
		store_sandbox_get(env.f.store, "x", "x", "x", on_sandbox, &a);
		answer_wait(&a, 1);
		env_loop_for(1);
	}
}

/* ---- calls
 * ----------------------------------------------------------------------- */

void call_finish(struct call *c)
{
	command_rec_finish(&c->cmd);
}

static void answered(struct call *c, const struct err *e,
		     const struct sandbox_rec *s, const struct command_rec *cmd)
{
	int rc = 0;

	assert_false(c->is_inside);
	c->n_answers++;
	assert_int_equal(c->n_answers, 1);
	if (e) {
		c->err = *e;
	} else {
		if (s)
			c->sbx = *s;
		if (cmd)
			rc = command_rec_copy(&c->cmd, cmd);
		/* The one allocation that a test made fail: not ours. */
		if (cmd && rc == -ENOMEM)
			rc = command_rec_copy(&c->cmd, cmd);
		assert_int_equal(rc, 0);
	}
	loop_stop(env.f.loop);
}

void on_call_run(void *ctx, const struct err *e, const struct sandbox_rec *s,
		 const struct command_rec *cmd)
{
	answered(ctx, e, s, cmd);
}

void on_call_sandbox(void *ctx, const struct err *e,
		     const struct sandbox_rec *s)
{
	answered(ctx, e, s, NULL);
}

struct run_spec sum_spec(const char *key, uint32_t wait_ms)
{
	static const char code[] = "def run(input, config):\n"
				   "    return sum(input)";

	return (struct run_spec){
		.key = key,
		.request_hash = {1, 2, 3},
		.code = code,
		.code_len = sizeof(code) - 1,
		.input = "[1, 2, 3]",
		.input_len = 9,
		.wait_ms = wait_ms,
	};
}

void call_run(struct call *c, const char *key, const struct run_spec *spec,
	      uint32_t wait_ms)
{
	struct run_spec sum = sum_spec(key, wait_ms);

	memset(c, 0, sizeof(*c));
	c->is_inside = true;
	assert_int_equal(engine_run(env.e, &env.who, spec ? spec : &sum,
				    on_call_run, c, &c->w),
			 0);
	c->is_inside = false;
}

int env_setup(void **state)
{
	(void)state;
	env_init();
	return 0;
}

int env_teardown(void **state)
{
	(void)state;
	test_vfs_calm();
	unsetenv("HUTCH_TEST_CLOCK");
	env_finish();
	return 0;
}

void env_pass(int64_t ms)
{
	static char path[256], next[300];
	FILE *f;

	snprintf(path, sizeof(path), "%s/clock", env.f.dir);
	snprintf(next, sizeof(next), "%s.next", path);
	f = fopen(next, "we");
	assert_non_null(f);
	fprintf(f, "%lld\n", (long long)ms);
	fclose(f);
	assert_int_equal(rename(next, path), 0);
	setenv("HUTCH_TEST_CLOCK", path, 1);
}

void call_cancel(struct call *c, const char *command)
{
	memset(c, 0, sizeof(*c));
	c->is_inside = true;
	assert_int_equal(
		engine_command_cancel(env.e, &env.who, command, on_call_run, c),
		0);
	c->is_inside = false;
}

void call_delete(struct call *c, const char *sandbox)
{
	memset(c, 0, sizeof(*c));
	c->is_inside = true;
	assert_int_equal(engine_sandbox_delete(env.e, &env.who, sandbox,
					       on_call_sandbox, c),
			 0);
	c->is_inside = false;
}

void call_get(struct call *c, const char *command, uint32_t wait_ms)
{
	memset(c, 0, sizeof(*c));
	c->is_inside = true;
	assert_int_equal(engine_command_get(env.e, &env.who, command, wait_ms,
					    on_call_run, c, &c->w),
			 0);
	c->is_inside = false;
}

void call_wait(struct call *c)
{
	while (!c->n_answers)
		assert_int_equal(loop_run(env.f.loop), 0);
}

void run_through(struct call *c, const char *key)
{
	int vm = fake.n_vms;

	call_run(c, key, NULL, 30000);
	env_settle();
	assert_int_equal(fake.n_vms, vm + 1);
	fake_bound(vm);
	fake_end(vm, GP_END_EXITED, 0, "6");
	call_wait(c);
}
