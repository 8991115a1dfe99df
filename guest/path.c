/* Programs by PATH; see path.h. */
#include "path.h"
#include "limits.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *path_env_get(char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (; *env; env++)
		if (!strncmp(*env, name, n) && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

void path_search_init(struct path_search *s, const char *file, char *const *env)
{
	const char *path = path_env_get(env, "PATH");

	s->file = file;
	s->at = path ? path : PATH_DEFAULT;
}

bool path_search_next(struct path_search *s, char ret[PATH_BYTES_MAX])
{
	while (s->at) {
		const char *at = s->at, *end = strchr(at, ':');
		int n = end ? (int)(end - at) : (int)strlen(at);

		s->at = end ? end + 1 : NULL;
		if (snprintf(ret, PATH_BYTES_MAX, "%.*s%s%s", n, at,
			     n ? "/" : "", s->file) < PATH_BYTES_MAX)
			return true;
	}
	return false;
}

void path_exec(char *const *argv, char *const *env)
{
	const char *file = argv[0];
	struct path_search s;
	int seen = ENOENT;
	char full[PATH_BYTES_MAX];

	if (!*file) {
		errno = ENOENT;
		return;
	}
	if (strchr(file, '/')) {
		execve(file, argv, env);
		return;
	}
	path_search_init(&s, file, env);
	while (path_search_next(&s, full)) {
		execve(full, argv, env);
		if (errno == EACCES)
			seen = EACCES;
		else if (errno != ENOENT && errno != ENOTDIR)
			return;
	}
	errno = seen;
}
