/*
 * link_smoke: the path from vm_create to the last frame, without HTTP and
 * without records.  Real loop, real hutch-vmm, real guest and images.
 *
 *   link_smoke [--base lbb/python] [--memory MIB] [--vcpus N] [--runs N]
 *              [--parallel N] [--code FILE] [--input JSON] [--timeout MS]
 *              [--cache DIR] [--state DIR] [--no-confine] [--prepare]
 *
 * Prepares the template when its snapshot is not there, then runs the code N
 * times, each in a VM of its own, and prints p50, p99 and the worst of each
 * step from vm_create.  Exit 0: every run gave its result; 77: an image is
 * missing; 1: anything else.
 */
#include "../clock.h"
#include "../loop.h"
#include "log.h"
#include "template.h"
#include "vm.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUNS_MAX       10000
#define CODE_BYTES_MAX (64u << 10)
#define UID_BASE       20000

enum { STEP_BOUND, STEP_STARTED, STEP_ENDED, STEP_GONE, STEP_N };
static const char *const step_names[STEP_N] = {"bound", "started", "ended",
					       "gone"};

static struct {
	struct loop *loop;
	struct link *link;
	struct vm_spec spec;
	struct vm_run run;
	unsigned n_runs, n_parallel, n_begun, n_gone, n_bad;
	int64_t *us[STEP_N];
	bool only_prepare, is_quiet;
} smoke;

struct one {
	struct vm *vm;
	unsigned idx;
	int64_t from_us;
};

static void one_begin(void);

static void mark(const struct one *o, int step)
{
	smoke.us[step][o->idx] = clock_mono_us() - o->from_us;
}

static void on_progress(void *ctx, const char *text)
{
	(void)ctx;
	fprintf(stderr, "%s\n", text);
}

static void on_bound(void *ctx)
{
	mark(ctx, STEP_BOUND);
}

static void on_started(void *ctx, uint64_t cmd)
{
	(void)cmd;
	mark(ctx, STEP_STARTED);
}

static void on_output(void *ctx, uint64_t cmd, int stream, uint64_t offset,
		      uint64_t total, const uint8_t *data, size_t len)
{
	(void)ctx;
	(void)cmd;
	if (!smoke.is_quiet)
		fprintf(stderr, "%s [%llu, %zu of %llu]: %.*s\n",
			stream ? "stderr" : "stdout",
			(unsigned long long)offset, len,
			(unsigned long long)total, (int)len,
			(const char *)data);
}

static void on_ended(void *ctx, uint64_t cmd, const struct vm_end *end)
{
	struct one *o = ctx;
	bool is_good = end->how == GP_END_EXITED && end->code == 0;

	mark(o, STEP_ENDED);
	if (!is_good)
		smoke.n_bad++;
	if (!smoke.is_quiet || !is_good)
		printf("run %u: how=%d code=%d signal=%d result=%.*s "
		       "error=\"%s\" user_us=%llu sys_us=%llu rss=%llu\n",
		       o->idx, (int)end->how, end->code, end->signal,
		       (int)end->result_len, (const char *)end->result,
		       end->error, (unsigned long long)end->user_us,
		       (unsigned long long)end->sys_us,
		       (unsigned long long)end->rss_bytes);
	vm_ack(o->vm, cmd);
	vm_destroy(o->vm);
}

static void on_gone(void *ctx, enum end_reason why, const char *text)
{
	struct one *o = ctx;

	mark(o, STEP_GONE);
	if (why != END_NONE) {
		printf("run %u: gone reason=%d: %s\n", o->idx, (int)why, text);
		smoke.n_bad++;
	}
	free(o);
	smoke.n_gone++;
	one_begin();
	if (smoke.n_gone == smoke.n_runs)
		loop_stop(smoke.loop);
}

static const struct vm_ops ops = {
	.progress = on_progress,
	.bound = on_bound,
	.started = on_started,
	.output = on_output,
	.ended = on_ended,
	.gone = on_gone,
};

static void one_begin(void)
{
	struct one *o;
	struct err e = {0};

	if (smoke.n_begun == smoke.n_runs)
		return;
	o = calloc(1, sizeof(*o));
	if (!o)
		abort();
	o->idx = smoke.n_begun++;
	o->from_us = clock_mono_us();
	snprintf(smoke.spec.sandbox, sizeof(smoke.spec.sandbox), "sbx_smoke%u",
		 o->idx);
	if (vm_create(&o->vm, smoke.link, &smoke.spec, &ops, o, &e) ||
	    vm_run(o->vm, 1, &smoke.run)) {
		fprintf(stderr, "link_smoke: %s\n", e.text);
		exit(1);
	}
}

static void on_prepared(void *ctx, const struct err *e)
{
	const int64_t *from = ctx;

	if (e) {
		fprintf(stderr, "link_smoke: %s\n", e->text);
		smoke.n_bad++;
		loop_stop(smoke.loop);
		return;
	}
	printf("template ready after %lld ms\n",
	       (long long)(clock_mono_us() - *from) / 1000);
	fflush(stdout);
	if (smoke.only_prepare) {
		loop_stop(smoke.loop);
		return;
	}
	for (unsigned i = 0; i < smoke.n_parallel; i++)
		one_begin();
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static void print_times(void)
{
	unsigned n = smoke.n_gone;

	if (!n)
		return;
	printf("%-8s %10s %10s %10s %10s   ms from vm_create, %u runs\n",
	       "step", "min", "p50", "p99", "max", n);
	for (int s = 0; s < STEP_N; s++) {
		int64_t *v = smoke.us[s];

		qsort(v, n, sizeof(*v), compare);
		printf("%-8s %10.1f %10.1f %10.1f %10.1f\n", step_names[s],
		       (double)v[0] / 1e3, (double)v[n / 2] / 1e3,
		       (double)v[n * 99 / 100] / 1e3, (double)v[n - 1] / 1e3);
	}
}

static const char default_code[] = "def run(i, c):\n    return sum(i)\n";

static const char *code_read(const char *path)
{
	static char code[CODE_BYTES_MAX + 1];
	FILE *f = path ? fopen(path, "re") : NULL;
	size_t n;

	if (!path)
		return default_code;
	if (!f) {
		fprintf(stderr, "link_smoke: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	n = fread(code, 1, CODE_BYTES_MAX, f);
	code[n] = '\0';
	fclose(f);
	return code;
}

struct settings {
	const char *code, *input;
	char cache[512], state[512];
	struct link_config link;
};

static void options(int argc, char **argv, struct settings *s)
{
	static const struct option longs[] = {
		{"base", 1, NULL, 'b'},
		{"memory", 1, NULL, 'm'},
		{"vcpus", 1, NULL, 'v'},
		{"runs", 1, NULL, 'n'},
		{"parallel", 1, NULL, 'p'},
		{"code", 1, NULL, 'c'},
		{"input", 1, NULL, 'i'},
		{"timeout", 1, NULL, 't'},
		{"cache", 1, NULL, 'C'},
		{"state", 1, NULL, 'S'},
		{"images", 1, NULL, 'I'},
		{"vmm", 1, NULL, 'V'},
		{"init", 1, NULL, 'G'},
		{"no-confine", 0, NULL, 'N'},
		{"prepare", 0, NULL, 'P'},
		{"quiet", 0, NULL, 'q'},
		{0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		unsigned n = optarg ? (unsigned)strtoul(optarg, NULL, 10) : 0;

		if (c == 'b')
			snprintf(smoke.spec.base, sizeof(smoke.spec.base), "%s",
				 optarg);
		else if (c == 'm')
			smoke.spec.limits.memory_mib = n;
		else if (c == 'v')
			smoke.spec.limits.vcpus = n;
		else if (c == 'n')
			smoke.n_runs = n < RUNS_MAX ? n : RUNS_MAX;
		else if (c == 'p')
			smoke.n_parallel = n ? n : 1;
		else if (c == 'c')
			s->code = optarg;
		else if (c == 'i')
			s->input = optarg;
		else if (c == 't')
			smoke.run.timeout_ms = n;
		else if (c == 'C')
			snprintf(s->cache, sizeof(s->cache), "%s", optarg);
		else if (c == 'S')
			snprintf(s->state, sizeof(s->state), "%s", optarg);
		else if (c == 'I')
			s->link.images_dir = optarg;
		else if (c == 'V')
			s->link.vmm_path = optarg;
		else if (c == 'G')
			s->link.init_image = optarg;
		else if (c == 'N')
			s->link.is_confined = false;
		else if (c == 'P')
			smoke.only_prepare = true;
		else if (c == 'q')
			smoke.is_quiet = true;
		else
			exit(64);
	}
}

static void need(const char *path, const char *target)
{
	if (access(path, R_OK) == 0)
		return;
	printf("skip: %s is not there (make %s)\n", path, target);
	exit(77);
}

/* Folders of this program alone unless they were named. */
static void folders_default(struct settings *s)
{
	const char *cache = getenv("HUTCH_CACHE"), *home = getenv("HOME");

	if (!s->cache[0] && cache)
		snprintf(s->cache, sizeof(s->cache), "%s", cache);
	else if (!s->cache[0])
		snprintf(s->cache, sizeof(s->cache), "%s/.cache/hutch",
			 home ? home : "/root");
	if (!s->state[0])
		snprintf(s->state, sizeof(s->state), "/tmp/link-smoke-%d",
			 (int)getpid());
}

int main(int argc, char **argv)
{
	struct settings s = {
		.input = "[1,2,3]",
		.link = {.images_dir = "build/images",
			 .vmm_path = "build/hutch-vmm",
			 .init_image = "build/guest/init.erofs",
			 .uid_base = UID_BASE,
			 .is_confined = true},
	};
	struct shape shape;
	struct err e = {0};
	int64_t from;

	log_init("link_smoke");
	snprintf(smoke.spec.base, sizeof(smoke.spec.base), "lbb/python");
	smoke.spec.limits = (struct limits){1, 1024, 4096};
	smoke.n_runs = smoke.n_parallel = 1;
	smoke.run.timeout_ms = 60000;
	options(argc, argv, &s);
	folders_default(&s);
	need("/dev/kvm", "doctor");
	need(s.link.vmm_path, "all");
	need(s.link.init_image, "all");
	need(s.link.images_dir, "images");
	s.link.cache_dir = s.cache;
	s.link.state_dir = s.state;
	smoke.run.code = code_read(s.code);
	smoke.run.code_len = strlen(smoke.run.code);
	smoke.run.input = s.input;
	smoke.run.input_len = strlen(s.input);
	for (int i = 0; i < STEP_N; i++)
		smoke.us[i] = calloc(RUNS_MAX, sizeof(int64_t));
	if (loop_create(&smoke.loop) ||
	    link_create(&smoke.link, smoke.loop, &s.link, &e) ||
	    shape_for(smoke.spec.base, &smoke.spec.limits, &shape, &e)) {
		fprintf(stderr, "link_smoke: %s\n", e.text);
		return 1;
	}
	from = clock_mono_us();
	if (template_prepare(smoke.link, &shape, on_progress, on_prepared,
			     &from))
		return 1;
	loop_run(smoke.loop);
	link_destroy(smoke.link);
	loop_destroy(smoke.loop);
	rmdir(s.state);
	print_times();
	for (int i = 0; i < STEP_N; i++)
		free(smoke.us[i]);
	return smoke.n_bad ? 1 : 0;
}
