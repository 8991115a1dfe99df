/* What a run is made of; see source.h. */
#include "source.h"
#include "../../hostd/http/utf8.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The daemon has the limits; this only keeps a wrong file from filling the
 * memory. */
#define FILE_BYTES_MAX (16u << 20)

static int read_fd(int fd, const char *name, struct bytes *out, struct err *e)
{
	for (;;) {
		ssize_t n;

		if (bytes_reserve(out, 65536))
			return err_set(e, ERR_INTERNAL, NULL, "no memory");
		n = read(fd, out->data + out->len, 65536);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, ERR_NOT_FOUND, NULL, "%s: %s", name,
				       strerror(errno));
		if (n == 0)
			return 0;
		out->len += (size_t)n;
		if (out->len > FILE_BYTES_MAX)
			return err_set(e, ERR_INVALID_REQUEST, NULL,
				       "%s: over %u bytes", name,
				       FILE_BYTES_MAX);
	}
}

int source_read_file(const char *path, struct bytes *out, struct err *e)
{
	_cleanup_fd_ int fd = -1;

	if (!strcmp(path, "-"))
		return read_fd(STDIN_FILENO, "standard input", out, e);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, ERR_NOT_FOUND, NULL, "%s: %s", path,
			       strerror(errno));
	return read_fd(fd, path, out, e);
}

const char *source_template_of(const char *file)
{
	static const struct {
		const char *end, *name;
	} ends[] = {
		{".py", "lbb/python"}, {".js", "lbb/node"},
		{".mjs", "lbb/node"},  {".cjs", "lbb/node"},
		{".sh", "lbb/shell"},  {".bash", "lbb/shell"},
	};
	size_t len = strlen(file);

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		size_t n = strlen(ends[i].end);

		if (len > n && !strcmp(file + len - n, ends[i].end))
			return ends[i].name;
	}
	return NULL;
}

bool source_is_shell(const struct source *s)
{
	const char *name = s->template_name;

	if (!name && s->file)
		name = source_template_of(s->file);
	return name && !strcmp(name, "lbb/shell");
}

static int add_code(const struct source *s, struct json_out *j, struct err *e)
{
	_cleanup_bytes_ struct bytes code = {0};

	if (!s->file)
		return 0;
	if (source_read_file(s->file, &code, e))
		return -1;
	if (!utf8_is_valid(code.data, code.len))
		return err_set(e, ERR_INVALID_REQUEST, "code",
			       "%s: not UTF-8 text", s->file);
	json_out_text(j, "code", code.data ? code.data : (uint8_t *)"",
		      code.len);
	return 0;
}

static int add_template(const struct source *s, struct json_out *j,
			struct err *e)
{
	const char *name = s->template_name;

	if (s->is_in_held)
		return 0;
	if (!name)
		name = source_template_of(s->file);
	if (!name && strcmp(s->file, "-"))
		return err_set(e, ERR_INVALID_REQUEST, "template",
			       "%s: not .py, .js or .sh; name a --template",
			       s->file);
	if (name)
		json_out_str(j, "template", name);
	return 0;
}

/* JSON from the command line or, after "@", from a file; carried as it is. */
static int add_json(struct json_out *j, const char *name, const char *value,
		    struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};
	struct json_span root;

	if (!value)
		return 0;
	if (value[0] == '@') {
		if (source_read_file(value + 1, &text, e))
			return -1;
	} else if (bytes_append(&text, value, strlen(value))) {
		return err_set(e, ERR_INTERNAL, NULL, "no memory");
	}
	if (json_check(text.data, text.len, JSON_USER_DEPTH_MAX, &root, e))
		return err_wrap(e, "--%s", name);
	json_out_raw(j, name, root.at, root.len);
	return 0;
}

/* NAME=VALUE, many times, as an object. */
struct pairs {
	const char *member, *option;
	enum err_code code;
	const struct opt_list *list;
};

static int put_pair(struct json_out *j, const struct pairs *p, size_t i,
		    struct err *e)
{
	const char *item = p->list->items[i], *eq = strchr(item, '=');
	size_t len = eq ? (size_t)(eq - item) : 0;
	char name[256];

	if (!len || len >= sizeof(name))
		return err_set(e, p->code, p->member,
			       "--%s %s: expected NAME=VALUE", p->option, item);
	memcpy(name, item, len);
	name[len] = 0;
	/* The name goes into the body as it is. */
	if (strcspn(name, "\"\\") != len || !utf8_is_valid(item, strlen(item)))
		return err_set(e, p->code, p->member, "--%s %s: not a name",
			       p->option, name);
	for (size_t k = 0; k < i; k++)
		if (!strncmp(p->list->items[k], item, len + 1))
			return err_set(e, p->code, p->member,
				       "--%s %s: given twice", p->option, name);
	json_out_str(j, name, eq + 1);
	return 0;
}

static int put_pairs(struct json_out *j, const struct pairs *p, struct err *e)
{
	if (!p->list->n)
		return 0;
	json_out_begin(j, p->member, '{');
	for (size_t i = 0; i < p->list->n; i++)
		if (put_pair(j, p, i, e))
			return -1;
	json_out_end(j, '}');
	return 0;
}

int source_put_env(struct json_out *j, const struct opt_list *env,
		   struct err *e)
{
	const struct pairs p = {"env", "env", ERR_ENV_INVALID, env};

	return put_pairs(j, &p, e);
}

int source_put_labels(struct json_out *j, const struct opt_list *labels,
		      struct err *e)
{
	const struct pairs p = {"labels", "label", ERR_INVALID_REQUEST, labels};

	return put_pairs(j, &p, e);
}

int source_put_seeds(struct json_out *j, const struct opt_list *seeds,
		     struct err *e)
{
	if (!seeds->n)
		return 0;
	json_out_begin(j, "files", '[');
	for (size_t i = 0; i < seeds->n; i++) {
		const char *item = seeds->items[i], *colon = strchr(item, ':');
		size_t len = colon ? (size_t)(colon - item) : 0;

		if (!len || !colon[1] || !utf8_is_valid(item, strlen(item)))
			return err_set(e, ERR_INVALID_REQUEST, "file",
				       "--file %s: expected HASH:PATH", item);
		json_out_begin(j, NULL, '{');
		json_out_text(j, strncmp(item, "fil_", 4) ? "sha256" : "id",
			      item, len);
		json_out_str(j, "path", colon + 1);
		json_out_end(j, '}');
	}
	json_out_end(j, ']');
	return 0;
}

static void add_limits(struct json_out *j, const struct source *s)
{
	if (!s->memory_mib && !s->vcpus && !s->disk_mib)
		return;
	json_out_begin(j, "limits", '{');
	if (s->vcpus)
		json_out_u64(j, "vcpus", s->vcpus);
	if (s->memory_mib)
		json_out_u64(j, "memory_mib", s->memory_mib);
	if (s->disk_mib)
		json_out_u64(j, "disk_mib", s->disk_mib);
	json_out_end(j, '}');
}

int source_put_template(struct json_out *j, const struct source *s,
			struct err *e)
{
	if (add_code(s, j, e) || add_json(j, "config", s->config, e) ||
	    source_put_seeds(j, &s->seeds, e))
		return -1;
	if (s->timeout_ms)
		json_out_u64(j, "timeout_ms", s->timeout_ms);
	add_limits(j, s);
	return 0;
}

int source_body(const struct source *s, uint64_t wait_ms, struct bytes *out,
		struct err *e)
{
	struct json_out j = {0};
	int rc;

	json_out_begin(&j, NULL, '{');
	json_out_begin(&j, "run", '{');
	rc = add_code(s, &j, e);
	if (!rc)
		rc = add_template(s, &j, e);
	if (!rc)
		rc = add_json(&j, "input", s->input, e);
	if (!rc)
		rc = add_json(&j, "config", s->config, e);
	if (!rc)
		rc = source_put_env(&j, &s->env, e);
	if (!rc)
		rc = source_put_seeds(&j, &s->seeds, e);
	if (s->timeout_ms)
		json_out_u64(&j, "timeout_ms", s->timeout_ms);
	add_limits(&j, s);
	json_out_end(&j, '}');
	json_out_u64(&j, "wait_ms", wait_ms);
	json_out_end(&j, '}');
	if (!rc && j.rc)
		rc = err_set(e, ERR_INTERNAL, NULL, "no memory");
	if (rc) {
		json_out_finish(&j);
		return rc;
	}
	*out = j.buf;
	return 0;
}
