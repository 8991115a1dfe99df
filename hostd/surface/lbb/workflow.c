/*
 * Calls of a workflow's step (LBB-222, LBB-262): the body's `workflow`, and
 * what a grant says of the caller.
 *
 * The shape is the one that the vendor's clients send on other calls;
 * `instance` is checked and not kept.  With an environment's key the body is
 * believed: it is a note in the records.  A grant names the step itself, and
 * the body may repeat it, not contradict it.
 */
#include "work.h"
#include <stdio.h>

#define INSTANCE_CHARS_MAX 512
#define N_OF(a)		   (sizeof(a) / sizeof((a)[0]))

static const char name_chars[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";

int lbb_origin_name(char dst[ORIGIN_NAME_BYTES_MAX + 1], const char *path,
		    struct json_span v, struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};

	if (decode_string(path, v, &text, e))
		return -1;
	if (!text.len || text.len > ORIGIN_NAME_BYTES_MAX ||
	    strspn((const char *)text.data, name_chars) != text.len)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s \"%.64s\", of %zu bytes, is not 1 to %d of "
			       "A-Z a-z 0-9 _ . -",
			       path, (const char *)text.data, text.len,
			       ORIGIN_NAME_BYTES_MAX);
	memcpy(dst, text.data, text.len + 1);
	return 0;
}

/* Ids of runs are the workflow engine's: any printable ASCII. */
int lbb_origin_run(char dst[ORIGIN_NAME_BYTES_MAX + 1], const char *path,
		   struct json_span v, struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};

	if (decode_string(path, v, &text, e))
		return -1;
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] <= ' ' || text.data[i] > '~')
			return err_set(e, ERR_INVALID_REQUEST, path,
				       "%s has a byte that is not printable "
				       "ASCII, or a space",
				       path);
	if (!text.len || text.len > ORIGIN_NAME_BYTES_MAX)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s is of %zu bytes; it must be 1 to %d", path,
			       text.len, ORIGIN_NAME_BYTES_MAX);
	memcpy(dst, text.data, text.len + 1);
	return 0;
}

static int origin_identity(void *ctx, const char *path, struct json_span v,
			   struct err *e)
{
	struct work *w = ctx;

	return lbb_origin_name(w->origin.workflow, path, v, e);
}

static int origin_step(void *ctx, const char *path, struct json_span v,
		       struct err *e)
{
	struct work *w = ctx;

	return lbb_origin_name(w->origin.step, path, v, e);
}

static int origin_run(void *ctx, const char *path, struct json_span v,
		      struct err *e)
{
	struct work *w = ctx;

	return lbb_origin_run(w->origin.run, path, v, e);
}

static int origin_turn(void *ctx, const char *path, struct json_span v,
		       struct err *e)
{
	struct work *w = ctx;

	return lbb_origin_turn(&w->origin.turn, path, v, e);
}

int lbb_origin_turn(uint64_t *dst, const char *path, struct json_span v,
		    struct err *e)
{
	int64_t n;

	if (json_int(v, &n) || n < 1)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s must be a whole number from 1 to %lld", path,
			       (long long)INT64_MAX);
	*dst = (uint64_t)n;
	return 0;
}

static int origin_instance(void *ctx, const char *path, struct json_span v,
			   struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};
	size_t n = 0;

	(void)ctx;
	if (decode_string(path, v, &text, e))
		return -1;
	for (size_t i = 0; i < text.len; i++)
		n += (text.data[i] & 0xc0) != 0x80; /* UTF-8: begins one */
	if (n > INSTANCE_CHARS_MAX)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s has %zu characters; at most %d", path, n,
			       INSTANCE_CHARS_MAX);
	return 0;
}

static const struct decode_field fields[] = {
	{"identity", origin_identity}, {"turn", origin_turn},
	{"run_id", origin_run},	       {"step", origin_step},
	{"instance", origin_instance},
};

int work_workflow(void *ctx, const char *path, struct json_span v,
		  struct err *e)
{
	const struct origin *o = &((struct work *)ctx)->origin;

	if (decode_object(ctx, path, v, fields, N_OF(fields), e))
		return -1;
	if (!*o->workflow || !o->turn)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s has no %s; identity and turn are needed",
			       path, *o->workflow ? "turn" : "identity");
	return 0;
}

/* ---- with a grant ----------------------------------------------------- */

static int contradicts(const char *name, const char *said, const char *granted,
		       struct err *e)
{
	char param[32];

	snprintf(param, sizeof(param), "workflow.%s", name);
	return err_set(e, ERR_GRANT_DENIED, param,
		       "the grant is of %s \"%s\", not of \"%s\"", name,
		       granted, said);
}

int work_origin(const struct request *r, const struct work *w,
		enum route_access wants, const struct origin **ret,
		struct err *e)
{
	const struct origin *said = &w->origin, *own = &r->grant.origin;

	*ret = *said->workflow ? said : NULL;
	if (!r->has_grant)
		return 0;
	*ret = own;
	if (r->grant.access != wants)
		return err_set(e, ERR_GRANT_DENIED, NULL,
			       "the grant is for sandbox_%s, not for "
			       "sandbox_%s",
			       route_access_name(r->grant.access),
			       route_access_name(wants));
	if (!*said->workflow)
		return 0;
	if (strcmp(said->workflow, own->workflow))
		return contradicts("identity", said->workflow, own->workflow,
				   e);
	if (*said->run && strcmp(said->run, own->run))
		return contradicts("run_id", said->run, own->run, e);
	if (*said->step && strcmp(said->step, own->step))
		return contradicts("step", said->step, own->step, e);
	if (said->turn != own->turn)
		return err_set(e, ERR_GRANT_DENIED, "workflow.turn",
			       "the grant is of turn %llu, not of %llu",
			       (unsigned long long)own->turn,
			       (unsigned long long)said->turn);
	return 0;
}
