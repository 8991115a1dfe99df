/* Errors at the edges; see err.h. */
#include "err.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct err_info table[ERR_N] = {
	[ERR_NONE] = {"", "", 200, 0, false, ""},
#define X(name, code, type, http, ex, retry, sentence)                         \
	[ERR_##name] = {code, type, http, ex, retry, sentence},
	HUTCH_ERRORS(X)
#undef X
};

const struct err_info *err_info(enum err_code code)
{
	if ((unsigned)code >= ERR_N)
		code = ERR_INTERNAL;
	return &table[code];
}

int err_set(struct err *e, enum err_code code, const char *param,
	    const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return -1;
	memset(e, 0, sizeof(*e));
	e->code = code;
	if (param)
		snprintf(e->param, sizeof(e->param), "%s", param);
	if (!fmt) {
		snprintf(e->text, sizeof(e->text), "%s",
			 err_info(code)->sentence);
		return -1;
	}
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char old[ERR_TEXT_BYTES_MAX];
	va_list ap;
	int n;

	if (!e)
		return -1;
	memcpy(old, e->text, sizeof(old));
	va_start(ap, fmt);
	n = vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n + 2 < sizeof(e->text))
		snprintf(e->text + n, sizeof(e->text) - (size_t)n, ": %s", old);
	return -1;
}
