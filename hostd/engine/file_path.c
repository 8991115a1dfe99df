/* Paths of the workspace; see file_path.h. */
#include "file_path.h"
#include "log.h"
#include <string.h>

#define WORKSPACE "/workspace"

static int refused(struct err *e, const char *path, size_t len, const char *why)
{
	return err_set(e, ERR_PATH_INVALID, "path",
		       "The path %s of %zu bytes is not one of /workspace: %s.",
		       log_quoted(path, len).s, len, why);
}

/* What is behind "/workspace" of an absolute path; NULL = it is elsewhere. */
static const char *below(const char *path, size_t len)
{
	const size_t n = sizeof(WORKSPACE) - 1;

	if (!len || *path != '/')
		return path;
	while (len > 1 && path[1] == '/') {
		path++;
		len--;
	}
	if (len < n || memcmp(path, WORKSPACE, n) ||
	    (len > n && path[n] != '/'))
		return NULL;
	return path + n;
}

int file_path_clean(const void *path, size_t len, struct file_path *ret,
		    struct err *e)
{
	const char *at = below(path, len), *end = (const char *)path + len;
	struct file_path p = {.len = 0};

	if (len && memchr(path, 0, len))
		return refused(e, path, len, "it has a NUL");
	if (!at)
		return refused(e, path, len,
			       "an absolute one begins with /workspace");
	while (at < end) {
		const char *slash = memchr(at, '/', (size_t)(end - at));
		size_t n = (size_t)((slash ? slash : end) - at);

		if (n == 2 && !memcmp(at, "..", 2))
			return refused(e, path, len, "it has a ..");
		if (n > GP_FILE_NAME_BYTES_MAX)
			return refused(e, path, len,
				       "a name has more than 255 bytes");
		if (n && !(n == 1 && *at == '.')) {
			if (p.len + !!p.len + n > GP_FILE_PATH_BYTES_MAX)
				return refused(e, path, len,
					       "below /workspace/ it has more "
					       "than 4,084 bytes");
			if (p.len)
				p.text[p.len++] = '/';
			memcpy(p.text + p.len, at, n);
			p.len += n;
		}
		at += n + (slash != NULL);
	}
	p.text[p.len] = '\0';
	*ret = p;
	return 0;
}
