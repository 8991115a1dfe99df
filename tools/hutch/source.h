/*
 * What a run is made of, read from the command line: code, input, config,
 * env, limits, time-out, as the JSON body of POST /v1/sandboxes.
 */
#ifndef HUTCH_CLI_SOURCE_H
#define HUTCH_CLI_SOURCE_H

#include "args.h"
#include "client.h"

struct source {
	/* "-" = standard input; NULL = the template's code */
	const char *file;
	const char *input, *config, *template_name;
	/* 0 = the daemon's default */
	uint64_t memory_mib, vcpus, disk_mib, timeout_ms;
	struct opt_list env, seeds;
	bool is_in_held; /* the sandbox is there: no template, no limits */
};

/* The body, with the first wait.  0 or -1 with `e`. */
int source_body(const struct source *s, uint64_t wait_ms, struct bytes *out,
		struct err *e);

/* --env as the member `env`; nothing when there is none.  0 or -1 with `e`. */
int source_put_env(struct json_out *j, const struct opt_list *env,
		   struct err *e);
/* The same of --label: `labels`. */
int source_put_labels(struct json_out *j, const struct opt_list *labels,
		      struct err *e);

/* What a template is saved from: code, unless file is NULL, config, Files,
 * limits and time-out of `s`, as members. */
int source_put_template(struct json_out *j, const struct source *s,
			struct err *e);

/* --file HASH:PATH, or fil_...:PATH, as the member `files`; the same. */
int source_put_seeds(struct json_out *j, const struct opt_list *seeds,
		     struct err *e);

/* What a file holds, "-" = standard input.  0 or -1 with `e`. */
int source_read_file(const char *path, struct bytes *out, struct err *e);

/* The template that a file's name stands for, or NULL. */
const char *source_template_of(const char *file);
bool source_is_shell(const struct source *s);

#endif
