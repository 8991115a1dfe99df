/* A VM of the pool with a hostile VMM; see vm_pool_test_util.h. */
#include "vm_pool_test_util.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

const struct shape test_shape = {
	.base = "lbb/python", .vcpus = 1, .ram_mib = 256};

static void on_waiting(void *ctx)
{
	struct pooled *p = ctx;

	p->waiting++;
	if (p->then)
		p->then(p);
}

static void on_pool_gone(void *ctx, enum end_reason why, const char *text)
{
	struct pooled *p = ctx;

	p->gone++;
	p->why = why;
	snprintf(p->text, sizeof(p->text), "%s", text);
	loop_stop(loop);
}

const struct vm_pool_ops pooled_ops = {on_waiting, on_pool_gone};

static void template_await(void)
{
	for (int i = 0; !template_is_ready(lnk, &test_shape); i++) {
		assert_true(i < 1000);
		loop_for(2);
	}
}

void pooled_begin(struct pooled *p, const char *script)
{
	struct err e = {0};

	entry_put(script);
	template_await();
	if (vm_create_pooled(&p->vm, lnk, &test_spec, &pooled_ops, p, &e))
		fail_msg("%s", e.text);
}

void pooled_clean(void)
{
	for (int i = 0; !list_is_empty(&lnk->vmms); i++) {
		assert_true(i < 1000);
		loop_for(2);
	}
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	for (size_t i = 0; i < sizeof(lnk->uid_used) / 8; i++)
		assert_int_equal(lnk->uid_used[i], 0);
}

void pooled_play(struct pooled *p, const char *script)
{
	pooled_begin(p, script);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(p->gone + p->run.gone, 1);
	pooled_clean();
}

void pooled_claim(struct pooled *p)
{
	static char code[4 << 20];
	struct vm_run run = {
		.code = memset(code, 'x', sizeof(code)),
		.code_len = p->code_len ? p->code_len : 1,
		.timeout_ms = p->timeout_ms ? p->timeout_ms : 100,
		.env = run_env,
	};

	assert_true(vm_is_current(p->vm));
	assert_int_equal(vm_claim(p->vm, &ops, &p->run), 0);
	p->run.vm = p->vm;
	p->run.destroy_on_end = 1;
	assert_int_equal(vm_run(p->vm, 1, &run), 0);
	assert_int_equal(vm_claim(p->vm, &ops, &p->run), -ESTALE);
}

void pooled_stop(struct pooled *p)
{
	(void)p;
	loop_stop(loop);
}

void script_swap(const char *script)
{
	int fd = memfd_create("script", MFD_CLOEXEC);
	struct template *t;

	assert_int_equal(template_get(lnk, &test_shape, &t), 0);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, script, strlen(script)), strlen(script));
	assert_int_equal(dup3(fd, t->files.state_fd, O_CLOEXEC),
			 t->files.state_fd);
	close(fd);
}

void pooled_claim_swap(struct pooled *p)
{
	pooled_claim(p);
	script_swap("brsoE");
}

void pooled_claim_late(struct pooled *p)
{
	usleep(150000); /* what it says now is not read yet */
	pooled_claim_swap(p);
}

void pooled_claim_dead(struct pooled *p)
{
	assert_int_equal(kill(vm_pid(p->vm), SIGKILL), 0);
	usleep(50000);
	pooled_claim_swap(p);
}

void pooled_lost_check(const struct pooled_lost *t, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct pooled p = {0};

		pooled_play(&p, t[i].script);
		if (!strstr(p.text, t[i].text))
			fail_msg("script %s: '%s'", t[i].script, p.text);
		assert_int_equal(p.why, t[i].why);
		assert_int_equal(p.waiting, t[i].waiting);
		assert_int_equal(p.gone, 1);
	}
}
