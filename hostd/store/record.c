/* Names, copies and ends of records; see record.h. */
#include "record.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* Rows of the database hold these numbers: they never change. */
static_assert(SBX_STARTING == 1 && SBX_RUNNING == 2 && SBX_STOPPING == 3 &&
		      SBX_STOPPED == 4 && SBX_DESTROYING == 5 &&
		      SBX_DESTROYED == 6 && SBX_FAILED == 7 && SBX_LOST == 8,
	      "stored numbers");
static_assert(CMD_QUEUED == 1 && CMD_RUNNING == 2 && CMD_SUCCEEDED == 3 &&
		      CMD_FAILED == 4 && CMD_TIMED_OUT == 5 &&
		      CMD_CANCELLED == 6 && CMD_LOST == 7,
	      "stored numbers");
static_assert(END_VM_LOST == 9 && END_DAEMON_RESTART == 10 &&
		      END_HOST_REBOOT == 11 && END_PREPARE_FAILED == 13,
	      "stored numbers");

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

static const char *const sandbox_names[] = {
	[SBX_STARTING] = "starting",	 [SBX_RUNNING] = "running",
	[SBX_STOPPING] = "stopping",	 [SBX_STOPPED] = "stopped",
	[SBX_DESTROYING] = "destroying", [SBX_DESTROYED] = "destroyed",
	[SBX_FAILED] = "failed",	 [SBX_LOST] = "lost",
};
static_assert(N_OF(sandbox_names) == SBX_LOST + 1, "a name for each");

static const char *const command_names[] = {
	[CMD_QUEUED] = "queued",       [CMD_RUNNING] = "running",
	[CMD_SUCCEEDED] = "succeeded", [CMD_FAILED] = "failed",
	[CMD_TIMED_OUT] = "timed_out", [CMD_CANCELLED] = "cancelled",
	[CMD_LOST] = "lost",
};
static_assert(N_OF(command_names) == CMD_LOST + 1, "a name for each");

static const char *const reason_names[] = {
	[END_NONE] = "none",
	[END_EXIT_CODE] = "exit_code",
	[END_SIGNAL] = "signal",
	[END_TIMEOUT] = "timeout",
	[END_CANCELLED] = "cancelled",
	[END_OOM] = "oom",
	[END_NOT_STARTED] = "not_started",
	[END_RESULT_TOO_LARGE] = "result_too_large",
	[END_RESULT_NOT_JSON] = "result_not_json",
	[END_VM_LOST] = "vm_lost",
	[END_DAEMON_RESTART] = "daemon_restart",
	[END_HOST_REBOOT] = "host_reboot",
	[END_GUEST_PROTOCOL] = "guest_protocol",
	[END_PREPARE_FAILED] = "prepare_failed",
};
static_assert(N_OF(reason_names) == END_PREPARE_FAILED + 1, "a name for each");

static const char *name_of(const char *const *names, size_t n, unsigned v)
{
	return v < n && names[v] ? names[v] : "unknown";
}

const char *sandbox_status_name(enum sandbox_status s)
{
	return name_of(sandbox_names, N_OF(sandbox_names), s);
}

const char *command_status_name(enum command_status s)
{
	return name_of(command_names, N_OF(command_names), s);
}

const char *end_reason_name(enum end_reason r)
{
	return name_of(reason_names, N_OF(reason_names), r);
}

bool sandbox_status_is_final(enum sandbox_status s)
{
	return s == SBX_DESTROYED || s == SBX_FAILED || s == SBX_LOST;
}

bool command_status_is_final(enum command_status s)
{
	return s >= CMD_SUCCEEDED;
}

void template_files_finish(struct template_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		bytes_finish(&f->at[i].path);
	free(f->at);
	memset(f, 0, sizeof(*f));
}

int template_files_copy(struct template_files *dst,
			const struct template_files *src)
{
	struct template_files f = {NULL, 0};
	int rc = 0;

	if (src->n)
		f.at = calloc(src->n, sizeof(*f.at));
	if (src->n && !f.at)
		return -ENOMEM;
	while (!rc && f.n < src->n) {
		const struct template_file *from = &src->at[f.n];
		struct template_file *to = &f.at[f.n++];

		*to = *from;
		memset(&to->path, 0, sizeof(to->path));
		rc = bytes_append(&to->path, from->path.data, from->path.len);
	}
	if (rc)
		template_files_finish(&f);
	else
		*dst = f;
	return rc;
}

void template_rec_finish(struct template_rec *t)
{
	bytes_finish(&t->code);
	bytes_finish(&t->config);
	template_files_finish(&t->files);
	memset(t, 0, sizeof(*t));
}

int template_rec_copy(struct template_rec *dst, const struct template_rec *src)
{
	struct template_rec t = *src;
	int rc;

	memset(&t.code, 0, sizeof(t.code));
	memset(&t.config, 0, sizeof(t.config));
	memset(&t.files, 0, sizeof(t.files));
	rc = template_files_copy(&t.files, &src->files);
	if (!rc && src->code.len)
		rc = bytes_append(&t.code, src->code.data, src->code.len);
	if (!rc && src->config.len)
		rc = bytes_append(&t.config, src->config.data, src->config.len);
	if (rc)
		template_rec_finish(&t);
	else
		*dst = t;
	return rc;
}

void file_rec_finish(struct file_rec *r)
{
	bytes_finish(&r->name);
	bytes_finish(&r->origin_path);
	memset(r, 0, sizeof(*r));
}

int file_rec_copy(struct file_rec *dst, const struct file_rec *src)
{
	struct file_rec r = *src;
	int rc;

	memset(&r.name, 0, sizeof(r.name));
	memset(&r.origin_path, 0, sizeof(r.origin_path));
	rc = bytes_append(&r.name, src->name.data, src->name.len);
	if (!rc)
		rc = bytes_append(&r.origin_path, src->origin_path.data,
				  src->origin_path.len);
	if (rc)
		file_rec_finish(&r);
	else
		*dst = r;
	return rc;
}

void command_rec_finish(struct command_rec *c)
{
	bytes_finish(&c->env_names);
	bytes_finish(&c->argv);
	bytes_finish(&c->result);
	for (int i = 0; i < 2; i++) {
		bytes_finish(&c->out[i].head);
		bytes_finish(&c->out[i].tail);
	}
	memset(c, 0, sizeof(*c));
}

int command_rec_copy(struct command_rec *dst, const struct command_rec *src)
{
	struct command_rec c = *src;
	/* Each owned field, as pairs of places in the copy and the source. */
	struct bytes *to[] = {&c.env_names,   &c.argv,	      &c.result,
			      &c.out[0].head, &c.out[0].tail, &c.out[1].head,
			      &c.out[1].tail};
	const struct bytes *from[] = {&src->env_names,	 &src->argv,
				      &src->result,	 &src->out[0].head,
				      &src->out[0].tail, &src->out[1].head,
				      &src->out[1].tail};
	int rc = 0;

	for (size_t i = 0; i < N_OF(to); i++)
		memset(to[i], 0, sizeof(*to[i]));
	for (size_t i = 0; !rc && i < N_OF(to); i++)
		if (from[i]->len)
			rc = bytes_append(to[i], from[i]->data, from[i]->len);
	if (rc) {
		command_rec_finish(&c);
		return rc;
	}
	*dst = c;
	return 0;
}
