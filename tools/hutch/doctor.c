/* hutch doctor: the list of checks and how it is printed; see doctor.h. */
#include "doctor.h"
#include "commands.h"
#include "fd.h"
#include "version.h"
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char *const grade_names[] = {"ok", "warn", "fail"};
_Static_assert(sizeof(grade_names) / sizeof(*grade_names) == DOCTOR_FAIL + 1,
	       "one name a grade");

static void (*const checks[])(struct doctor *d) = {
	doctor_kvm,	doctor_io_uring, doctor_cgroup, doctor_landlock,
	doctor_seccomp, doctor_user,	 doctor_memory, doctor_limits,
	doctor_sharing, doctor_folders,	 doctor_images, doctor_programs,
};

static const char help[] =
	"usage: hutch doctor [--json]\n\n"
	"Checks this host and says what to do about each finding.  ok: fine; "
	"warn: works,\n"
	"slower or less fenced; fail: sandboxes cannot run.  Changes nothing.  "
	"Exit status\n"
	"1 when something failed.\n\n"
	"  hutch doctor\n"
	"  hutch doctor --json | jq '.checks[] | select(.grade != \"ok\")'\n";

void doctor_read(const char *path, char *dst, size_t cap)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, dst, cap - 1);

	dst[n > 0 ? n : 0] = 0;
	dst[strcspn(dst, "\n")] = 0;
}

void doctor_say(struct doctor *d, enum doctor_grade grade, const char *what,
		const char *advice, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	d->n[grade]++;
	if (d->is_json) {
		json_out_begin(&d->json, NULL, '{');
		json_out_str(&d->json, "check", what);
		json_out_str(&d->json, "grade", grade_names[grade]);
		json_out_str(&d->json, "text", text);
		json_out_str(&d->json, "advice", advice);
		json_out_end(&d->json, '}');
		return;
	}
	printf("%-5s %-12s %s\n", grade_names[grade], what, text);
	if (advice)
		printf("%-18s -> %s\n", "", advice);
}

int cmd_doctor(struct cli *c, int argc, char **argv)
{
	struct doctor d = {.cli = c};
	struct utsname u;
	struct args args;
	struct err e;

	if (args_parse(&args, argc, argv, cli_global_opts, NULL, false, &e) ||
	    (!args.is_help && args_expect(&args, 0, 0, "", &e)))
		return cli_usage(c, "doctor", &e);
	if (args.is_help)
		return cli_help(help, NULL);
	if (cli_expect_local(c, "hosts are checked", &e))
		return cli_usage(c, "doctor", &e);
	if (cli_resolve_state(c, &e))
		return cli_fail(c, &e);
	d.is_json = c->is_json;
	uname(&u);
	if (d.is_json) {
		json_out_begin(&d.json, NULL, '{');
		json_out_str(&d.json, "version", HUTCH_VERSION);
		json_out_str(&d.json, "kernel", u.release);
		json_out_begin(&d.json, "checks", '[');
	} else {
		printf("hutch %s on Linux %s\n", HUTCH_VERSION, u.release);
	}
	for (size_t i = 0; i < sizeof(checks) / sizeof(*checks); i++)
		checks[i](&d);
	if (d.is_json) {
		json_out_end(&d.json, ']');
		json_out_bool(&d.json, "ok", !d.n[DOCTOR_FAIL]);
		json_out_end(&d.json, '}');
		cli_print_json(&d.json);
	} else {
		printf("%u ok, %u warn, %u fail\n", d.n[DOCTOR_OK],
		       d.n[DOCTOR_WARN], d.n[DOCTOR_FAIL]);
	}
	return d.n[DOCTOR_FAIL] ? 1 : 0;
}
