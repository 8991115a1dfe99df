/* What the files of `hutch sandbox` share: its command line, and calls. */
#ifndef HUTCH_CLI_SANDBOX_H
#define HUTCH_CLI_SANDBOX_H

#include "args.h"
#include "client.h"
#include "source.h"

struct sandbox_verb {
	struct cli *c;
	const char *template_name, *snapshot, *key, *cwd, *stdin_file, *input,
		*config, *name;
	bool is_no_name, is_no_labels;
	uint64_t memory_mib, vcpus, disk_mib, idle_ms, expires_ms, timeout_ms;
	struct opt_list env, labels, seeds;
	struct args args;
	const char *program; /* of exec, for its errors */
	char made_key[CLI_KEY_BYTES];
};

int sandbox_no_memory(struct err *e);
/* Nothing for 0. */
void sandbox_put_number(struct json_out *j, const char *name, uint64_t n);
/* A call that begins something, with the key of the command line. */
int sandbox_post(struct sandbox_verb *v, const char *path, const char *sandbox,
		 struct json_out *body, struct answer *a, struct err *e);
/* A call on a sandbox, in place of what `a` had. */
int sandbox_call(struct sandbox_verb *v, const char *method, const char *path,
		 const char *sandbox, struct answer *a, struct err *e);
/* "ID STATUS", or with --json the answer. */
void sandbox_say(const struct cli *c, const struct answer *a);

/* ---- sandbox_command.c: > 0 = the program's exit status ------------------ */

int sandbox_exec(struct sandbox_verb *v, struct err *e);
int sandbox_run_file(struct sandbox_verb *v, struct err *e);

#endif
