/* The API's refusals in the words of the command line; see wording.h. */
#include "wording.h"
#include <stdio.h>
#include <string.h>

static const struct {
	const char *field, *option;
	const char *unit; /* of the field's value, where the option's differs */
} options[] = {
	{"run.limits.memory_mib", "--memory", ""},
	{"run.limits.vcpus", "--vcpus", ""},
	{"run.limits.disk_mib", "--disk", ""},
	{"run.timeout_ms", "--timeout", " milliseconds"},
	{"run.input", "--input", ""},
	{"run.config", "--config", ""},
	{"run.env", "--env", ""},
	{"run.files", "--file", ""},
	{"files", "--file", ""},
	{"run.template", "--template", ""},
	{"limits.memory_mib", "--memory", ""},
	{"limits.vcpus", "--vcpus", ""},
	{"limits.disk_mib", "--disk", ""},
	{"limits", "--memory, --vcpus, --disk", ""},
	{"idle_seconds", "--idle", " seconds"},
	{"expires_in_seconds", "--expires", " seconds"},
	{"timeout_ms", "--timeout", " milliseconds"},
	{"env", "--env", ""},
	{"snapshot", "--snapshot", ""},
	{"labels", "--label", ""},
	{"config", "--config", ""},
	{"base", "--base", ""},
	{"Idempotency-Key", "--key", ""},
	{"template", "--template", ""},
	{"limit", "--limit", ""},
	{"status", "--status", ""},
	{"graph", "--graph", ""},
	{"name", "--name", ""},
	{"environment", "--environment", ""},
	{"plan", "--plan", ""},
};
#define OPTIONS (sizeof(options) / sizeof(*options))

/* Is `text` the field, or a part of it ("run.env.X")? */
static bool begins_with(const char *text, const char *field)
{
	size_t len = strlen(field);
	char next;

	if (strncmp(text, field, len))
		return false;
	next = text[len];
	return !next || strchr(" .[:", next);
}

static void reword(struct err *e, const char *field, const char *option,
		   const char *unit)
{
	char was[ERR_TEXT_BYTES_MAX];
	const char *rest = was;

	memcpy(was, e->text, sizeof(was));
	/* The engine's own messages have no "run.". */
	if (!begins_with(rest, field) && !strncmp(field, "run.", 4))
		field += 4;
	if (!begins_with(rest, field)) {
		snprintf(e->text, sizeof(e->text), "%s: %.480s", option, was);
		return;
	}
	rest += strlen(field);
	/* "--memory 64; it must be" reads as it was typed. */
	if (!strncmp(rest, " is ", 4) && strstr(rest, "; "))
		rest += 3;
	snprintf(e->text, sizeof(e->text), "%s%.460s%s", option, rest, unit);
}

void wording_of_options(struct err *e)
{
	for (size_t i = 0; i < OPTIONS; i++) {
		if (!begins_with(e->param, options[i].field))
			continue;
		reword(e, options[i].field, options[i].option, options[i].unit);
		snprintf(e->param, sizeof(e->param), "%s", options[i].option);
		return;
	}
}
