/*
 * hutch file: Files of a graph, which outlive sandboxes.
 *
 * put and keep print a hash, which every other verb takes.  A File goes both
 * ways piece by piece, so its size does not matter here.
 */
#include "fd.h"
#include "files.h"
#include "verbs.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES	     "/v1/files"
#define CONTENT	     "/v1/sandboxes/files/content"
#define HASH_CHARS   64
#define PAGE	     "1000"
#define PART_BYTES   (8u << 20)
#define TYPE_DEFAULT "application/octet-stream"
/* It is written to the disk before it is answered. */
#define SILENCE_MS_MAX 600000
/* keep and import are asked for again until then. */
#define MOVE_TRIES_MAX 120

static const char help[] =
	"usage: hutch file put [--name NAME] [--type TYPE] FILE\n"
	"       hutch file list [--name NAME]\n"
	"       hutch file get HASH [FILE]\n"
	"       hutch file rm HASH\n"
	"       hutch file keep [--name NAME] SANDBOX PATH\n"
	"       hutch file import SANDBOX HASH PATH\n"
	"\n"
	"A File belongs to a graph and outlives sandboxes.  Its HASH, which "
	"put and keep\n"
	"print, is the SHA-256 of its bytes: the same bytes are one File.  "
	"keep makes one\n"
	"of a file of a held sandbox, import copies one into it, both of any "
	"size; hutch\n"
	"sandbox create and hutch run take --file HASH:PATH.  A PATH is below "
	"/workspace;\n"
	"FILE is ours, - standard input or output.  What is removed is gone.\n"
	"\n"
	"  hash=$(hutch file put data.csv)\n"
	"  hutch file import $id $hash in/data.csv\n"
	"  hutch run --file $hash:data.csv count.py\n"
	"  hutch file keep $id out/report.md\n"
	"  hutch file list\n"
	"  hutch file get $hash | head -n 1\n"
	"  hutch file rm $hash\n";

struct verb {
	struct cli *c;
	const char *name, *type, *key;
	struct args args;
	char made_key[CLI_KEY_BYTES];
};

static int no_memory(struct err *e)
{
	return err_set(e, ERR_INTERNAL, NULL, "no memory");
}

static int print_hash(const struct verb *v, const struct answer *a)
{
	char hash[HASH_CHARS + 1];

	if (v->c->is_json)
		printf("%.*s\n", (int)a->root.len, a->root.at);
	else
		printf("%s\n", answer_text(a->root, "file.sha256", hash,
					   sizeof(hash), ""));
	return 0;
}

/* ---- put ---------------------------------------------------------------- */

/* The last one of a path; standard input has none. */
static const char *name_of(const struct verb *v)
{
	const char *file = v->args.rest[0], *slash = strrchr(file, '/');

	if (v->name || !strcmp(file, "-"))
		return v->name;
	return slash ? slash + 1 : file;
}

static int put(void *ctx, struct err *e)
{
	struct verb *v = ctx;
	_cleanup_bytes_ struct bytes path = {0};
	_cleanup_answer_ struct answer a = {0};
	const char *file = v->args.rest[0];
	struct http *h = &v->c->http;
	_cleanup_fd_ int fd = -1;
	struct stat st;
	int rc;

	fd = strcmp(file, "-") ? open(file, O_RDONLY | O_CLOEXEC)
			       : fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	if (fd < 0 || fstat(fd, &st))
		return err_set(e, ERR_NOT_FOUND, NULL, "%s: %s", file,
			       strerror(errno));
	if (S_ISDIR(st.st_mode))
		return err_set(e, ERR_INVALID_REQUEST, NULL,
			       "%s is a folder: put its files, or a tar of it",
			       file);
	if (cli_path(v->c, &path, FILES, "name", name_of(v), NULL))
		return no_memory(e);
	h->file.fd = fd;
	h->file.type = v->type ? v->type : TYPE_DEFAULT;
	/* What is behind a position of a kept standard input only. */
	h->file.bytes = S_ISREG(st.st_mode) && strcmp(file, "-")
				? (uint64_t)st.st_size
				: UINT64_MAX;
	rc = cli_call(v->c, "POST", (char *)path.data, NULL, NULL, &a, e);
	h->file.fd = -1;
	return rc ? rc : print_hash(v, &a);
}

/* ---- list --------------------------------------------------------------- */

static void print_row(struct json_span f)
{
	char hash[HASH_CHARS + 1], at[40];
	_cleanup_bytes_ struct bytes name = {0};
	struct json_span v;

	printf("%-64s %12" PRId64 " %s ",
	       answer_text(f, "sha256", hash, sizeof(hash), ""),
	       answer_int(f, "bytes", 0),
	       answer_text(f, "uploaded_at", at, sizeof(at), "-"));
	if (json_at(f, "name", &v) && !json_text(v, &name))
		files_print_name(name.data, name.len);
	printf("\n");
}

static int list(void *ctx, struct err *e)
{
	struct verb *v = ctx;
	char after[24] = "";

	do {
		_cleanup_bytes_ struct bytes path = {0};
		_cleanup_answer_ struct answer a = {0};
		struct json_member m;
		struct json_span all;
		struct json_iter it;

		if (cli_path(v->c, &path, FILES, "limit", PAGE, "name", v->name,
			     "after", *after ? after : NULL, NULL))
			return no_memory(e);
		if (cli_call(v->c, "GET", (char *)path.data, NULL, NULL, &a, e))
			return -1;
		answer_text(a.root, "next", after, sizeof(after), "");
		if (v->c->is_json) {
			printf("%.*s\n", (int)a.root.len, a.root.at);
			continue;
		}
		if (!json_at(a.root, "files", &all))
			break;
		json_iter_begin(&it, all);
		while (json_iter_next(&it, &m))
			print_row(m.value);
	} while (*after);
	return 0;
}

/* ---- get ---------------------------------------------------------------- */

/* "bytes 0-7/99": 99. */
static uint64_t total_of(const struct answer *a)
{
	char value[80];
	const char *slash;

	if (!http_header(&a->reply, "Content-Range", value, sizeof(value)))
		return 0;
	slash = strchr(value, '/');
	return slash ? strtoull(slash + 1, NULL, 10) : 0;
}

static int get_into(void *ctx, int fd, const char *name, struct err *e)
{
	struct verb *v = ctx;
	uint64_t offset = 0, total = 1;
	char range[80];
	int rc = 0;

	v->c->http.more_headers = range;
	while (!rc && offset < total) {
		_cleanup_bytes_ struct bytes path = {0};
		_cleanup_answer_ struct answer a = {0};
		size_t len;

		snprintf(range, sizeof(range),
			 "Range: bytes=%" PRIu64 "-%" PRIu64 "\r\n", offset,
			 offset + PART_BYTES - 1);
		if (cli_path(v->c, &path, FILES "/content", "sha256",
			     v->args.rest[0], NULL)) {
			rc = no_memory(e);
			break;
		}
		rc = cli_call_bytes(v->c, "GET", (char *)path.data, NULL, NULL,
				    &a, e);
		if (rc) {
			/* One without a byte has no range. */
			if (a.reply.status == 416 && !offset)
				rc = total = 0;
			break;
		}
		len = a.reply.body.len;
		total = total_of(&a);
		offset += len;
		rc = fd_write_all(fd, a.reply.body.data, len);
		if (rc)
			rc = err_set(e, ERR_INTERNAL, NULL, "%s: %s", name,
				     strerror(-rc));
		else if (!len)
			rc = err_set(e, ERR_INTERNAL, NULL,
				     "the server's answer is empty");
	}
	v->c->http.more_headers = NULL;
	return rc;
}

static int get(void *ctx, struct err *e)
{
	struct verb *v = ctx;

	return files_into(v->args.n > 1 ? v->args.rest[1] : "-", get_into, v,
			  e);
}

/* ---- rm ----------------------------------------------------------------- */

static int rm(void *ctx, struct err *e)
{
	struct verb *v = ctx;
	_cleanup_bytes_ struct bytes path = {0};
	_cleanup_answer_ struct answer a = {0};
	const char *hash = v->args.rest[0];

	if (cli_path(v->c, &path, FILES, "sha256", hash, "confirm", hash, NULL))
		return no_memory(e);
	if (cli_call(v->c, "DELETE", (char *)path.data, NULL, NULL, &a, e))
		return -1;
	if (v->c->is_json)
		printf("%.*s\n", (int)a.root.len, a.root.at);
	else
		printf("%s removed\n", hash);
	return 0;
}

/* ---- keep, import -------------------------------------------------------- */

/* One that takes longer than a call goes on, and is found by its key. */
static int move(struct verb *v, const char *method, const char *path,
		struct answer *a, struct err *e)
{
	int rc = -1;

	for (int i = 0; i < MOVE_TRIES_MAX; i++) {
		answer_finish(a);
		rc = cli_call(v->c, method, path, NULL, v->key, a, e);
		if (!rc || e->code != ERR_UNAVAILABLE ||
		    !strstr(e->text, "same key"))
			break;
	}
	return rc;
}

static int keep(void *ctx, struct err *e)
{
	struct verb *v = ctx;
	_cleanup_bytes_ struct bytes path = {0}, hex = {0};
	_cleanup_answer_ struct answer a = {0};
	const char *source = v->args.rest[1];

	/* By its bytes: any path. */
	for (const char *p = source; *p; p++)
		if (bytes_printf(&hex, "%02x", (unsigned char)*p))
			return no_memory(e);
	if (cli_path(v->c, &path, FILES, "source_sandbox", v->args.rest[0],
		     "source_path_hex", (const char *)hex.data, "name", v->name,
		     NULL))
		return no_memory(e);
	if (move(v, "POST", (char *)path.data, &a, e))
		return -1;
	return print_hash(v, &a);
}

static int import(void *ctx, struct err *e)
{
	struct verb *v = ctx;
	_cleanup_bytes_ struct bytes path = {0};
	_cleanup_answer_ struct answer a = {0};

	if (files_path(v->c, &path, CONTENT, v->args.rest[0], v->args.rest[2],
		       "source_sha256", v->args.rest[1]))
		return no_memory(e);
	if (move(v, "PUT", (char *)path.data, &a, e))
		return -1;
	if (v->c->is_json)
		printf("%.*s\n", (int)a.root.len, a.root.at);
	else
		printf("%s\n", v->args.rest[2]);
	return 0;
}

static int type_check(const void *ctx, struct err *e)
{
	const struct verb *v = ctx;

	if (!v->type || !strpbrk(v->type, "\r\n"))
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, "type",
		       "--type holds a line end");
}

int cmd_file(struct cli *c, int argc, char **argv)
{
	struct verb v = {.c = c};
	const struct opt opts[] = {
		{"name", "NAME", OPT_TEXT, &v.name, 0, 0,
		 "of the File; of list: only those", "put, keep, list"},
		{"type", "TYPE", OPT_TEXT, &v.type, 0, 0,
		 "its media type, default " TYPE_DEFAULT, "put"},
		{"key", "KEY", OPT_TEXT, &v.key, 0, 0,
		 "idempotency key; the same key acts once", "keep, import"},
		{0},
	};
	static const struct verb_row verbs[] = {
		{"put", "a file", 1, 1, put},
		{"list", "nothing", 0, 0, list},
		{"get", "a hash and perhaps a file", 1, 2, get},
		{"rm", "a hash", 1, 1, rm},
		{"keep", "a sandbox and a path", 2, 2, keep},
		{"import", "a sandbox, a hash and a path", 3, 3, import},
		{0},
	};
	const struct verb_command cmd = {
		.name = "file",
		.help = help,
		.opts = opts,
		.verbs = verbs,
		.ctx = &v,
		.args = &v.args,
		.check = type_check,
		.key = &v.key,
		.made_key = v.made_key,
		.timeout_ms = SILENCE_MS_MAX,
	};

	return verbs_run(c, argc, argv, &cmd);
}
