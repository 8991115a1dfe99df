/*
 * hutch prepare: the snapshot of a template and shape, made ahead.
 *
 * The first run of a shape makes its snapshot, which takes long on soft KVM;
 * afterwards every run restores it.  The daemon answers with JSON lines: what
 * it is doing, then how it ended.
 */
#include "../../hostd/surface/lbb/lbb.h"
#include "commands.h"
#include "progress.h"
#include <string.h>

/* A boot on soft KVM says nothing for minutes. */
#define SILENCE_MS_MAX (45 * 60 * 1000)

static const char help[] =
	"usage: hutch prepare [TEMPLATE...] [OPTIONS]\n\n"
	"Makes the snapshots that runs of these templates restore; default "
	"is lbb/python.\n"
	"Done ahead, no run waits for it.  --json: an object for each "
	"template.\n\n"
	"  hutch prepare lbb/python lbb/node lbb/shell\n"
	"  hutch prepare lbb/python --memory 4096 --vcpus 2\n";

static const char *const defaults[] = {"lbb/python"};

static int make_body(const char *name, uint64_t memory_mib, uint64_t vcpus,
		     struct json_out *j)
{
	json_out_begin(j, NULL, '{');
	json_out_str(j, "template", name);
	if (memory_mib || vcpus) {
		json_out_begin(j, "limits", '{');
		if (vcpus)
			json_out_u64(j, "vcpus", vcpus);
		if (memory_mib)
			json_out_u64(j, "memory_mib", memory_mib);
		json_out_end(j, '}');
	}
	json_out_end(j, '}');
	return j->rc;
}

struct follow {
	const char *name;
	size_t taken; /* of the body */
	bool is_json, is_done;
	struct progress progress;
	struct err *e;
	char text[256];
};

static void take_line(struct follow *f, const char *line, size_t len)
{
	struct json_span root, error;
	struct err ignored;

	if (json_check(line, len, JSON_DEPTH_MAX, &root, &ignored))
		return;
	if (json_at(root, "error", &error)) {
		answer_text(error, "message", f->text, sizeof(f->text), "");
		err_set(f->e, ERR_UNAVAILABLE, NULL, "%s: %s", f->name,
			f->text);
	} else if (answer_bool(root, "done")) {
		f->is_done = true;
		progress_clear(&f->progress);
		if (f->is_json)
			printf("%.*s\n", (int)len, line);
		else
			fprintf(stderr, "%s: ready (%.1f s)\n", f->name,
				(double)answer_int(root, "duration_ms", 0) /
					1000);
	} else {
		answer_text(root, "progress", f->text, sizeof(f->text), "");
		progress_show(&f->progress, f->text);
	}
}

static void on_body(void *ctx, const struct bytes *body)
{
	struct follow *f = ctx;
	const char *data = (const char *)body->data, *eol;

	while ((eol = memchr(data + f->taken, '\n', body->len - f->taken))) {
		take_line(f, data + f->taken, (size_t)(eol - data) - f->taken);
		f->taken = (size_t)(eol - data) + 1;
	}
}

static int prepare_one(struct cli *c, const char *name,
		       const struct json_out *body, struct err *e)
{
	struct follow f = {.name = name, .e = e, .is_json = c->is_json};
	_cleanup_answer_ struct answer a = {0};
	int rc;

	progress_init(&f.progress);
	c->http.on_body = on_body;
	c->http.on_body_ctx = &f;
	c->http.timeout_ms = SILENCE_MS_MAX;
	err_set(e, ERR_UNAVAILABLE, NULL, "%s: the daemon went away", name);
	rc = cli_call_lines(c, "/admin/prepare", &body->buf, &a, e);
	c->http.on_body = NULL;
	return rc ? rc : f.is_done ? 0 : -1;
}

int cmd_prepare(struct cli *c, int argc, char **argv)
{
	uint64_t memory_mib = 0, vcpus = 0;
	const struct opt opts[] = {
		{"memory", "MIB", OPT_U64, &memory_mib, LBB_MEMORY_MIB_MIN,
		 LBB_MEMORY_MIB_MAX,
		 "memory of the sandboxes, 128 to 8192, default 1024", NULL},
		{"vcpus", "N", OPT_U64, &vcpus, LBB_VCPUS_MIN, LBB_VCPUS_MAX,
		 "virtual CPUs, 1 to 4, default 1", NULL},
		{0},
	};
	const char *const *names = defaults;
	struct args args;
	struct err e;
	size_t n = 1;
	int rc = 0;

	if (args_parse(&args, argc, argv, opts, cli_global_opts, false, &e))
		return cli_usage(c, "prepare", &e);
	if (args.is_help)
		return cli_help(help, opts);
	if (cli_expect_local(c, "snapshots are made", &e))
		return cli_usage(c, "prepare", &e);
	if (args.n) {
		names = args.rest;
		n = args.n;
	}
	if (cli_open(c, CLI_FOR_RUN, &e))
		return cli_fail(c, &e);
	for (size_t i = 0; i < n && !rc; i++) {
		struct json_out body = {0};

		if (make_body(names[i], memory_mib, vcpus, &body))
			rc = err_set(&e, ERR_INTERNAL, NULL, "no memory");
		else
			rc = prepare_one(c, names[i], &body, &e);
		json_out_finish(&body);
	}
	if (rc)
		rc = cli_fail(c, &e);
	cli_close(c);
	return rc;
}
