/* Ends of commands; see ended.h. */
#include "ended.h"
#include "json.h"
#include <stdio.h>

int ended_put(struct bytes *out, const struct ended *e)
{
	struct writer w = {.out = out};

	wire_put_map(&w, 8 + (e->result.data != NULL) + (e->error != NULL));
	wire_put_uint(&w, GP_ENDED_HOW, e->how);
	wire_put_uint(&w, GP_ENDED_CODE, (uint64_t)e->code);
	wire_put_uint(&w, GP_ENDED_SIGNAL, (uint64_t)e->signal);
	if (e->result.data)
		wire_put_bytes(&w, GP_ENDED_RESULT, e->result.data,
			       e->result.len);
	if (e->error)
		wire_put_text(&w, GP_ENDED_ERROR, e->error);
	wire_put_uint(&w, GP_ENDED_STDOUT_BYTES, e->stream_bytes[0]);
	wire_put_uint(&w, GP_ENDED_STDERR_BYTES, e->stream_bytes[1]);
	wire_put_uint(&w, GP_ENDED_USER_US, e->user_us);
	wire_put_uint(&w, GP_ENDED_SYS_US, e->sys_us);
	wire_put_uint(&w, GP_ENDED_RSS_BYTES, e->rss_bytes);
	return w.rc;
}

static void refuse(struct verdict *v, enum gp_end how, const char *why)
{
	v->how = how;
	v->code = 1;
	snprintf(v->why, sizeof(v->why), "%s", why);
	v->text = (struct span){(const uint8_t *)v->why, strlen(v->why)};
}

static void judge_result(const void *text, size_t len, struct verdict *v)
{
	char why[64];

	if (len > GP_RESULT_BYTES_MAX) {
		snprintf(why, sizeof(why),
			 "the result is more than %u bytes of JSON",
			 GP_RESULT_BYTES_MAX);
		refuse(v, GP_END_RESULT_TOO_LARGE, why);
	} else if (!json_is_valid(text, len)) {
		refuse(v, GP_END_RESULT_NOT_JSON, "the result is not JSON");
	} else {
		v->how = GP_END_EXITED;
		v->code = 0;
		v->text = (struct span){text, len};
	}
}

bool ended_judge(uint32_t kind, uint32_t code, const void *text, size_t len,
		 struct verdict *ret)
{
	*ret = (struct verdict){.code = 1, .text = {text, len}};
	switch ((enum runner_message_kind)kind) {
	case RUNNER_PROGRESS:
	case RUNNER_WAITING:
	case RUNNER_ARMED:
	case RUNNER_BORN:
	case RUNNER_DIED:
		return false;
	case RUNNER_RESULT:
		judge_result(text, len, ret);
		return true;
	case RUNNER_FAILED:
		ret->how = GP_END_EXITED;
		ret->code = (int)(code & 0xff);
		ret->text = (struct span){0};
		return true;
	case RUNNER_NOT_JSON:
		ret->how = GP_END_RESULT_NOT_JSON;
		return true;
	case RUNNER_TOO_LARGE:
		ret->how = GP_END_RESULT_TOO_LARGE;
		return true;
	}
	return false;
}
