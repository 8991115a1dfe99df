/*
 * hutch prepare: the snapshot of a template and shape, made ahead.
 *
 * The first run of a shape makes its snapshot, which takes long on soft KVM;
 * afterwards every run restores it.  The call answers at once; it is repeated
 * until the snapshot is ready, and says how far it is.
 */
#include "commands.h"
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLL_SLICE_MS 500

static const char help[] =
	"usage: hutch prepare [TEMPLATE...] [OPTIONS]\n\n"
	"Makes the snapshots that runs of these templates restore; default "
	"is lbb/python.\n"
	"Done ahead, no run waits for it.\n\n"
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

static int prepare_one(struct cli *c, const char *name,
		       const struct json_out *body, struct err *e)
{
	char status[32], text[256], shown[256] = "";
	bool is_tty = isatty(STDERR_FILENO);
	time_t start = time(NULL);

	for (;;) {
		_cleanup_answer_ struct answer a = {0};

		if (cli_call(c, "POST", "/admin/prepare", &body->buf, NULL, &a,
			     e))
			return -1;
		answer_text(a.root, "status", status, sizeof(status), "");
		if (!strcmp(status, "ready") && c->is_json)
			printf("%.*s\n", (int)a.root.len, a.root.at);
		if (!strcmp(status, "ready"))
			break;
		answer_text(a.root, "progress", text, sizeof(text), "");
		if (strcmp(text, shown)) {
			fprintf(stderr, is_tty ? "\r\033[K%s: %s" : "%s: %s\n",
				name, text);
			snprintf(shown, sizeof(shown), "%s", text);
		}
		usleep(POLL_SLICE_MS * 1000);
	}
	fprintf(stderr, "%s%s: ready (%lld s)\n", is_tty ? "\r\033[K" : "",
		name, (long long)(time(NULL) - start));
	return 0;
}

int cmd_prepare(struct cli *c, int argc, char **argv)
{
	uint64_t memory_mib = 0, vcpus = 0;
	const struct opt opts[] = {
		{"memory", "MIB", OPT_U64, &memory_mib, 1, UINT32_MAX,
		 "memory of the sandboxes, default 1024"},
		{"vcpus", "N", OPT_U64, &vcpus, 1, UINT32_MAX,
		 "virtual CPUs, default 1"},
		{0},
	};
	const char *const *names = defaults;
	struct args args;
	struct err e;
	size_t n = 1;
	int rc = 0;

	if (args_parse(&args, argc, argv, opts, cli_global_opts, false, &e))
		return cli_usage("prepare", &e);
	if (args.is_help)
		return cli_help(help, opts);
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
