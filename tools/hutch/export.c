/*
 * hutch records export: what was asked and what came of it, to keep elsewhere.
 *
 * The daemon gives pages (GET /admin/records); a record goes out as soon as its
 * page is there, so neither side holds more than one page.  A file is written
 * under another name, synced and renamed: it is whole, or it is not there.
 * Records that change while the export goes on come once more, later; the last
 * one of an id counts.
 */
#include "commands.h"
#include "fd.h"
#include "output.h"
#include "progress.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NUMBER_BYTES 24
#define PAGE_WAIT_MS 120000

static const char help[] =
	"usage: hutch records export [OPTIONS]\n\n"
	"Writes the records of sandboxes, commands, snapshots and keys, in the "
	"order of\n"
	"their last change.  No values of env or stdin and no key's secret are "
	"in any.\n"
	"cbor: a CBOR sequence (RFC 8742) of the records as they are stored "
	"(api/records.cddl).\n"
	"jsonl: a line each: seq, environment, and the record as the API shows "
	"it.\n"
	"The last line on standard error says up to which SEQ; `--after SEQ` "
	"goes on from\n"
	"there with what is new or has changed.  Records that cannot be read "
	"are named.\n\n"
	"  hutch records export --output records.cbor\n"
	"  hutch records export --format jsonl --since 2026-11-01 | jq "
	".record.id\n"
	"  hutch records export --after 1200 --output more.cbor --json\n";

struct exporting {
	struct cli *c;
	const char *format, *output, *environment, *since, *until;
	uint64_t after;

	bool is_jsonl;
	char since_ms[NUMBER_BYTES], until_ms[NUMBER_BYTES];
	int fd; /* owned unless it is standard output */
	char temp[CLI_PATH_BYTES_MAX];
	uint64_t n, n_set_aside, bytes, newest;
	struct json_out set_aside; /* items of the summary */
	struct progress progress;
};

/* ---- options ----------------------------------------------------------- */

/* 2026-11-30, or 2026-11-30T10:00:00Z; UTC. */
static int time_read(const char *name, const char *text, char ms[NUMBER_BYTES],
		     struct err *e)
{
	static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"};

	for (size_t i = 0; text && i < sizeof(forms) / sizeof(*forms); i++) {
		struct tm tm = {0};
		const char *end = strptime(text, forms[i], &tm);
		struct tm same = tm;
		time_t t = end && !*end ? timegm(&tm) : -1;

		/* The 31st of February is no day, timegm makes one of it. */
		if (t < 1 || tm.tm_mday != same.tm_mday ||
		    tm.tm_sec != same.tm_sec)
			continue;
		snprintf(ms, NUMBER_BYTES, "%" PRId64, (int64_t)t * 1000);
		return 0;
	}
	return text ? err_set(e, ERR_INVALID_REQUEST, name,
			      "--%s \"%.40s\" is neither a day, 2026-11-30, "
			      "nor "
			      "a second, 2026-11-30T10:00:00Z (UTC), after "
			      "1970-01-01T00:00:00Z",
			      name, text)
		    : 0;
}

static int options_check(struct exporting *x, struct err *e)
{
	if (strcmp(x->format, "cbor") && strcmp(x->format, "jsonl"))
		return err_set(e, ERR_INVALID_REQUEST, "format",
			       "--format \"%.40s\" is neither cbor nor jsonl",
			       x->format);
	x->is_jsonl = !strcmp(x->format, "jsonl");
	if (x->output && !strcmp(x->output, "-"))
		x->output = NULL;
	if (!x->output && x->c->is_json)
		return err_set(e, ERR_INVALID_REQUEST, "json",
			       "--json tells of the export on standard output, "
			       "where the records go: give --output FILE");
	if (!x->output && !x->is_jsonl && isatty(STDOUT_FILENO))
		return err_set(e, ERR_INVALID_REQUEST, "output",
			       "CBOR is not for a terminal: give --output FILE "
			       "or --format jsonl");
	return time_read("since", x->since, x->since_ms, e) ||
			       time_read("until", x->until, x->until_ms, e)
		       ? -1
		       : 0;
}

/* ---- where it goes ------------------------------------------------------ */

static int output_open(struct exporting *x, struct err *e)
{
	x->fd = STDOUT_FILENO;
	if (!x->output)
		return 0;
	if (snprintf(x->temp, sizeof(x->temp), "%s.XXXXXX", x->output) >=
	    (int)sizeof(x->temp))
		return err_set(e, ERR_INVALID_REQUEST, "output",
			       "%.100s...: the name is too long", x->output);
	x->fd = mkostemp(x->temp, O_CLOEXEC);
	if (x->fd < 0) {
		*x->temp = 0;
		return err_set(e, ERR_NOT_FOUND, "output", "%s: %s", x->output,
			       strerror(errno));
	}
	return 0;
}

/* The rename is on the disk, too. */
static int folder_sync(const char *file)
{
	char path[CLI_PATH_BYTES_MAX];
	int fd, rc;

	snprintf(path, sizeof(path), "%s", file);
	fd = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = fsync(fd) ? -errno : 0;
	fd_close(&fd);
	return rc;
}

/* Mode 0600: argv and results are the users'. */
static int output_keep(struct exporting *x, struct err *e)
{
	int rc;

	if (!x->output)
		return 0;
	rc = fsync(x->fd) || rename(x->temp, x->output) ? -errno : 0;
	if (!rc) {
		*x->temp = 0;
		rc = folder_sync(x->output);
	}
	return rc ? err_set(e, ERR_INTERNAL, "output", "%s: %s", x->output,
			    strerror(-rc))
		  : 0;
}

static void output_close(struct exporting *x)
{
	if (*x->temp)
		unlink(x->temp);
	if (x->fd > STDERR_FILENO)
		fd_close(&x->fd);
	json_out_finish(&x->set_aside);
}

static int put(struct exporting *x, const void *data, size_t len, struct err *e)
{
	int rc = fd_write_all(x->fd, data, len);

	x->bytes += len;
	return rc ? err_set(e, ERR_INTERNAL, NULL, "%s: %s",
			    x->output ? x->output : "standard output",
			    strerror(-rc))
		  : 0;
}

/* ---- pages --------------------------------------------------------------- */

static int put_lines(struct exporting *x, struct json_span data, struct err *e)
{
	_cleanup_bytes_ struct bytes lines = {0};
	struct json_member m;
	struct json_iter it;

	json_iter_begin(&it, data);
	while (json_iter_next(&it, &m))
		if (bytes_append(&lines, m.value.at, m.value.len) ||
		    bytes_append(&lines, "\n", 1))
			return err_set(e, ERR_INTERNAL, NULL, "no memory");
	return put(x, lines.data, lines.len, e);
}

static int put_cbor(struct exporting *x, struct json_span data, struct err *e)
{
	_cleanup_bytes_ struct bytes b = {0};

	if (json_text(data, &b) || base64_decode(&b))
		return err_set(e, ERR_INTERNAL, NULL,
			       "records: the daemon's page is no base64");
	return put(x, b.data, b.len, e);
}

static void tell_set_aside(struct exporting *x, struct json_span root)
{
	struct json_member m;
	struct json_span list;
	struct json_iter it;

	if (!json_at(root, "set_aside", &list))
		return;
	json_iter_begin(&it, list);
	while (json_iter_next(&it, &m)) {
		char object[16], id[80];

		progress_clear(&x->progress);
		fprintf(stderr,
			"hutch: the record of %s %s cannot be read; it is left "
			"out\n",
			answer_text(m.value, "object", object, sizeof(object),
				    ""),
			answer_text(m.value, "id", id, sizeof(id), ""));
		json_out_raw(&x->set_aside, NULL, m.value.at, m.value.len);
		x->n_set_aside++;
	}
}

static int page_take(struct exporting *x, const struct answer *a,
		     bool *ret_more, struct err *e)
{
	int64_t next = answer_int(a->root, "next_after", -1);
	struct json_span data;
	char text[128];

	if (next < 0 || !json_at(a->root, "data", &data))
		return err_set(e, ERR_INTERNAL, NULL,
			       "records: the daemon's page is none");
	if (x->is_jsonl ? put_lines(x, data, e) : put_cbor(x, data, e))
		return -1;
	tell_set_aside(x, a->root);
	x->n += (uint64_t)answer_int(a->root, "count", 0);
	x->newest = (uint64_t)answer_int(a->root, "newest", 0);
	*ret_more = answer_bool(a->root, "has_more");
	x->after = (uint64_t)next;
	snprintf(text, sizeof(text),
		 "%" PRIu64 " records, up to %" PRIu64 " of %" PRIu64, x->n,
		 x->after, x->newest);
	if (x->progress.is_tty)
		progress_show(&x->progress, text);
	return 0;
}

static int pages_take(struct exporting *x, struct err *e)
{
	bool has_more = true;

	x->c->http.timeout_ms = PAGE_WAIT_MS;
	while (has_more) {
		_cleanup_bytes_ struct bytes path = {0};
		_cleanup_answer_ struct answer a = {0};
		char after[NUMBER_BYTES];

		snprintf(after, sizeof(after), "%" PRIu64, x->after);
		if (cli_path(x->c, &path, "/admin/records", "after", after,
			     "format", x->format, "environment", x->environment,
			     "graph", x->c->graph, "since_ms",
			     *x->since_ms ? x->since_ms : NULL, "until_ms",
			     *x->until_ms ? x->until_ms : NULL, NULL))
			return err_set(e, ERR_INTERNAL, NULL, "no memory");
		if (cli_is_interrupted)
			return cli_interrupted(x->c, e, "interrupted");
		if (cli_call(x->c, "GET", (char *)path.data, NULL, NULL, &a,
			     e) ||
		    page_take(x, &a, &has_more, e))
			return -1;
	}
	return 0;
}

/* What there is of it, and how to go on. */
static void tell_end(struct exporting *x, bool is_whole)
{
	struct json_out j = {0};

	progress_clear(&x->progress);
	if (is_whole || !x->output)
		fprintf(stderr,
			"hutch: %" PRIu64 " records, %" PRIu64
			" bytes%s; %" PRIu64 " set aside; --after %" PRIu64
			" goes on\n",
			x->n, x->bytes, is_whole ? "" : ", then it broke off",
			x->n_set_aside, x->after);
	if (!is_whole || !x->c->is_json)
		return;
	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "object", "export");
	json_out_str(&j, "output", x->output);
	json_out_str(&j, "format", x->format);
	json_out_u64(&j, "records", x->n);
	json_out_u64(&j, "bytes", x->bytes);
	json_out_begin(&j, "set_aside", '[');
	if (x->set_aside.buf.len)
		json_out_raw(&j, NULL, x->set_aside.buf.data,
			     x->set_aside.buf.len);
	json_out_end(&j, ']');
	json_out_u64(&j, "after", x->after);
	json_out_end(&j, '}');
	cli_print_json(&j);
}

static int export_all(struct exporting *x)
{
	struct err e = {0};
	int rc;

	if (cli_open(x->c, CLI_FOR_RECORDS, &e))
		return cli_fail(x->c, &e);
	progress_init(&x->progress);
	rc = output_open(x, &e);
	if (!rc) {
		rc = pages_take(x, &e);
		if (!rc)
			rc = output_keep(x, &e);
		tell_end(x, !rc);
	}
	if (rc)
		rc = cli_fail(x->c, &e);
	output_close(x);
	cli_close(x->c);
	return rc;
}

int cmd_records(struct cli *c, int argc, char **argv)
{
	struct exporting x = {.c = c, .format = "cbor", .fd = -1};
	const struct opt opts[] = {
		{"format", "F", OPT_TEXT, &x.format, 0, 0,
		 "cbor (default) or jsonl", NULL},
		{"output", "FILE", OPT_TEXT, &x.output, 0, 0,
		 "where to, default - = standard output", NULL},
		{"after", "SEQ", OPT_U64, &x.after, 0, INT64_MAX,
		 "what is new or has changed since", NULL},
		{"environment", "NAME", OPT_TEXT, &x.environment, 0, 0,
		 "of this environment only; --graph: of this graph", NULL},
		{"since", "TIME", OPT_TEXT, &x.since, 0, 0,
		 "created then or later: 2026-11-30, 2026-11-30T10:00:00Z",
		 NULL},
		{"until", "TIME", OPT_TEXT, &x.until, 0, 0,
		 "created before then", NULL},
		{0},
	};
	struct args args;
	struct err e;

	if (args_parse(&args, argc, argv, opts, cli_global_opts, false, &e))
		return cli_usage(c, "records", &e);
	if (args.is_help)
		return cli_help(help, opts);
	if (cli_expect_local(c, "records are exported", &e) ||
	    args_expect(&args, 1, 1, "export", &e))
		return cli_usage(c, "records", &e);
	if (strcmp(args.rest[0], "export")) {
		err_set(&e, ERR_INVALID_REQUEST, NULL, "no verb \"%s\"",
			args.rest[0]);
		return cli_usage(c, "records", &e);
	}
	if (options_check(&x, &e))
		return cli_usage(c, "records", &e);
	return export_all(&x);
}
