/* How a command ended; see outcome.h. */
#include "outcome.h"
#include <stdio.h>
#include <string.h>

/* What the record's reasons mean; others (exit_code ...) have numbers. */
static const struct {
	const char *name, *words;
	bool is_not_started; /* when the code was not begun */
} reasons[] = {
	{"oom", "out of memory", false},
	{"not_started", "the code could not be started", true},
	{"prepare_failed", "the sandbox could not be prepared", true},
	{"result_too_large", "the result is too large", false},
	{"result_not_json", "the result is not JSON", false},
	{"vm_lost", "the microVM ended", true},
	{"guest_protocol", "the microVM's answers made no sense", true},
	{"daemon_restart", "the daemon was stopped", true},
	{"host_reboot", "the host was restarted", true},
};
#define REASONS (sizeof(reasons) / sizeof(*reasons))

static size_t find(struct json_span root)
{
	char name[40];
	size_t i = 0;

	answer_text(root, "reason", name, sizeof(name), "");
	while (i < REASONS && strcmp(reasons[i].name, name))
		i++;
	return i;
}

bool outcome_is_not_started(struct json_span root)
{
	char status[32], started[40];
	size_t i = find(root);

	answer_text(root, "status", status, sizeof(status), "");
	return !strcmp(status, "failed") && i < REASONS &&
	       reasons[i].is_not_started &&
	       (!answer_text(root, "started_at", started, sizeof(started),
			     NULL) ||
		!strcmp(reasons[i].name, "not_started"));
}

int outcome_exec_refused(struct json_span root)
{
	static const char by_exec[] = "exec: ", not_found[] = "exec: ENOENT ";
	char message[300];

	if (!outcome_is_not_started(root))
		return 0;
	answer_text(root, "message", message, sizeof(message), "");
	if (strncmp(message, by_exec, sizeof(by_exec) - 1))
		return 0;
	return strncmp(message, not_found, sizeof(not_found) - 1)
		       ? EXIT_NOT_EXECUTABLE
		       : EXIT_NOT_FOUND;
}

static void failed_text(struct json_span root, char *dst, size_t cap)
{
	int64_t code = answer_int(root, "exit_code", -1);
	int64_t sig = answer_int(root, "signal", 0);
	size_t i = find(root);
	const char *name;

	if (i < REASONS) {
		snprintf(dst, cap, "%s", reasons[i].words);
	} else if (sig > 0 && sig < 65) {
		name = sigabbrev_np((int)sig);
		snprintf(dst, cap, "killed by signal %d%s%s%s", (int)sig,
			 name ? " (SIG" : "", name ? name : "",
			 name ? ")" : "");
	} else if (code >= 0) {
		snprintf(dst, cap, "exit code %lld", (long long)code);
	} else {
		answer_text(root, "reason", dst, cap, "no reason is known");
	}
}

void outcome_text(struct json_span root, char *dst, size_t cap)
{
	char status[32], what[120] = "", message[300];
	int64_t ms = answer_int(root, "timeout_ms", 0);
	size_t len;

	answer_text(root, "status", status, sizeof(status), "");
	if (!strcmp(status, "timed_out")) {
		snprintf(what, sizeof(what), "timed out after %g s (--timeout)",
			 (double)ms / 1000);
		status[0] = 0;
	} else if (strcmp(status, "succeeded") && strcmp(status, "cancelled")) {
		failed_text(root, what, sizeof(what));
	}
	answer_text(root, "message", message, sizeof(message), "");
	len = strlen(what);
	/* "out of memory: out of memory: the run took ..." */
	if (!strncmp(message, what, len))
		what[0] = 0;
	snprintf(dst, cap, "%s%s%s%s%s", status, *status && *what ? ": " : "",
		 what, *message && (*status || *what) ? ": " : "", message);
}

int outcome_exit_status(struct json_span root)
{
	int64_t code = answer_int(root, "exit_code", -1);
	int64_t sig = answer_int(root, "signal", 0);
	char status[32];

	answer_text(root, "status", status, sizeof(status), "");
	if (!strcmp(status, "succeeded"))
		return 0;
	if (!strcmp(status, "timed_out"))
		return EXIT_TIMED_OUT;
	if (!strcmp(status, "cancelled"))
		return EXIT_CANCELLED;
	if (!strcmp(status, "lost"))
		return EXIT_LOST;
	if (outcome_is_not_started(root))
		return outcome_exec_refused(root) ?: EXIT_NOT_STARTED;
	if (sig > 0 && sig < 65)
		return EXIT_SIGNAL + (int)sig;
	return code > 0 && code < 256 ? (int)code : 1;
}
