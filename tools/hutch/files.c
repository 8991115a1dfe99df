/*
 * Files of a held sandbox; see files.h.
 *
 * Names are whatever code in the sandbox made of them, so they are shown with
 * control bytes, marks that reorder text, and bytes that are not UTF-8 as \xNN.
 * A path on our command line that is not UTF-8 goes by its bytes.
 */
#include "files.h"
#include "../../hostd/http/utf8.h"
#include "fd.h"
#include "guest_proto.h"
#include "pages.h"
#include "source.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES	"/v1/sandboxes/files"
#define CONTENT "/v1/sandboxes/files/content"
/* The daemon answers within 100 s. */
#define FILES_WAIT_MS 120000

static int no_memory(struct err *e)
{
	return err_set(e, ERR_INTERNAL, NULL, "no memory");
}

/* ---- paths -------------------------------------------------------------- */

int files_path(struct cli *c, struct bytes *out, const char *route,
	       const char *sandbox, const char *path, const char *more,
	       const char *value)
{
	_cleanup_bytes_ struct bytes hex = {0};
	bool is_text = !path || utf8_is_valid(path, strlen(path));

	for (const char *p = is_text ? "" : path; *p; p++)
		if (bytes_printf(&hex, "%02x", (unsigned char)*p))
			return -ENOMEM;
	return cli_path(c, out, route, "sandbox", sandbox,
			is_text ? "path" : "path_hex",
			is_text ? path : (const char *)hex.data, more, value,
			NULL);
}

static bool is_shown(uint32_t cp)
{
	return cp >= 0x20 && cp != '\\' && !(cp >= 0x7f && cp < 0xa0) &&
	       !(cp >= 0x200b && cp <= 0x200f) &&
	       !(cp >= 0x2028 && cp <= 0x202e) &&
	       !(cp >= 0x2060 && cp <= 0x206f) && cp != 0xfeff;
}

void files_print_name(const uint8_t *p, size_t len)
{
	while (len) {
		uint32_t cp = 0;
		int n = utf8_next(p, len, &cp);
		bool is = n > 0 && is_shown(cp);
		size_t used = n > 0 ? (size_t)n : 1;

		if (is)
			fwrite(p, 1, used, stdout);
		for (size_t i = 0; !is && i < used; i++)
			printf("\\x%02x", p[i]);
		p += used;
		len -= used;
	}
}

/* The bytes of an answer's path. */
static int path_bytes(struct json_span file, struct bytes *ret)
{
	struct json_span v;
	size_t n = 0;

	if (!json_at(file, "path_hex", &v))
		return json_at(file, "path", &v) ? json_text(v, ret) : -EPROTO;
	if (json_text(v, ret))
		return -EPROTO;
	for (; 2 * n + 1 < ret->len; n++) {
		char two[3] = {(char)ret->data[2 * n],
			       (char)ret->data[2 * n + 1], 0};

		ret->data[n] = (uint8_t)strtoul(two, NULL, 16);
	}
	ret->len = n;
	return 0;
}

/* What the daemon calls it, and a word. */
static void say(const struct cli *c, const struct answer *a, const char *word)
{
	_cleanup_bytes_ struct bytes path = {0};

	if (c->is_json) {
		printf("%.*s\n", (int)a->root.len, a->root.at);
		return;
	}
	if (!path_bytes(a->root, &path))
		files_print_name(path.data, path.len);
	printf("%s\n", word);
}

/* ---- list --------------------------------------------------------------- */

struct listing {
	struct cli *c;
	const char *sandbox, *path;
};

static int list_path(void *ctx, const char *cursor, struct bytes *out)
{
	const struct listing *l = ctx;

	return files_path(l->c, out, FILES, l->sandbox, l->path, "cursor",
			  cursor);
}

static bool print_row(void *ctx, struct json_span f)
{
	_cleanup_bytes_ struct bytes path = {0};
	char type[16], mode[8], at[40];

	(void)ctx;
	printf("%-9s %s %10" PRId64 " %s ",
	       answer_text(f, "type", type, sizeof(type), "?"),
	       answer_text(f, "mode", mode, sizeof(mode), ""),
	       answer_int(f, "size", 0),
	       answer_text(f, "modified_at", at, sizeof(at), "-"));
	if (!path_bytes(f, &path))
		files_print_name(path.data, path.len);
	printf("%s\n", strcmp(type, "directory") ? "" : "/");
	return true;
}

int files_list(struct cli *c, const char *const *words, size_t n, struct err *e)
{
	struct listing l = {c, words[0], n > 1 ? words[1] : NULL};
	const struct pages p = {list_path, print_row, &l};

	c->http.timeout_ms = FILES_WAIT_MS;
	return pages_read(c, &p, e);
}

/* ---- get ---------------------------------------------------------------- */

struct getting {
	struct cli *c;
	const char *const *words;
};

/* Part by part: one that is shorter than a whole one is the last. */
static int get_into(void *ctx, int fd, const char *name, struct err *e)
{
	const struct getting *g = ctx;
	struct cli *c = g->c;
	const char *const *words = g->words;
	size_t len = GP_FILE_BYTES_MAX;
	uint64_t offset = 0;

	while (len == GP_FILE_BYTES_MAX) {
		_cleanup_bytes_ struct bytes path = {0};
		_cleanup_answer_ struct answer a = {0};
		char text[24];
		int rc;

		snprintf(text, sizeof(text), "%" PRIu64, offset);
		if (files_path(c, &path, CONTENT, words[0], words[1], "offset",
			       text))
			return no_memory(e);
		if (cli_call_bytes(c, "GET", (char *)path.data, NULL, NULL, &a,
				   e))
			return -1;
		len = a.reply.body.len;
		offset += len;
		rc = fd_write_all(fd, a.reply.body.data, len);
		if (rc)
			return err_set(e, ERR_INTERNAL, NULL, "%s: %s", name,
				       strerror(-rc));
	}
	return 0;
}

int files_into(const char *file,
	       int (*fn)(void *ctx, int fd, const char *name, struct err *e),
	       void *ctx, struct err *e)
{
	char temp[CLI_PATH_BYTES_MAX];
	int fd, rc;

	if (!strcmp(file, "-"))
		return fn(ctx, STDOUT_FILENO, "standard output", e);
	if (snprintf(temp, sizeof(temp), "%s.XXXXXX", file) >=
	    (int)sizeof(temp))
		return err_set(e, ERR_INVALID_REQUEST, NULL,
			       "%.100s...: the name is too long", file);
	fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0)
		return err_set(e, ERR_NOT_FOUND, NULL, "%s: %s", file,
			       strerror(errno));
	rc = fn(ctx, fd, file, e);
	if (!rc && (fchmod(fd, 0644) || rename(temp, file)))
		rc = err_set(e, ERR_INTERNAL, NULL, "%s: %s", file,
			     strerror(errno));
	if (rc)
		unlink(temp);
	fd_close(&fd);
	return rc;
}

int files_get(struct cli *c, const char *const *words, size_t n, struct err *e)
{
	struct getting g = {c, words};

	c->http.timeout_ms = FILES_WAIT_MS;
	return files_into(n > 2 ? words[2] : "-", get_into, &g, e);
}

/* ---- put, del ----------------------------------------------------------- */

int files_put(struct cli *c, const char *const *words, size_t n, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0}, data = {0};
	_cleanup_answer_ struct answer a = {0};
	char made[CLI_KEY_BYTES];
	const char *key = NULL;

	(void)n;
	c->http.timeout_ms = FILES_WAIT_MS;
	if (source_read_file(words[1], &data, e))
		return -1;
	if (data.len > GP_FILE_BYTES_MAX)
		return err_set(e, ERR_FILE_TOO_LARGE, NULL,
			       "%s has more than %u bytes, the most that one "
			       "put takes",
			       words[1], GP_FILE_BYTES_MAX);
	/* With a key it is sent again when a kept connection was closed. */
	if (cli_key_make(&key, made, "file", e))
		return -1;
	if (files_path(c, &path, CONTENT, words[0], words[2], NULL, NULL))
		return no_memory(e);
	if (cli_call(c, "PUT", (char *)path.data, &data, key, &a, e))
		return -1;
	say(c, &a, "");
	return 0;
}

int files_del(struct cli *c, const char *const *words, size_t n, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};
	_cleanup_answer_ struct answer a = {0};

	(void)n;
	c->http.timeout_ms = FILES_WAIT_MS;
	if (files_path(c, &path, FILES, words[0], words[1], NULL, NULL))
		return no_memory(e);
	if (cli_call(c, "DELETE", (char *)path.data, NULL, NULL, &a, e))
		return -1;
	say(c, &a, " deleted");
	return 0;
}
