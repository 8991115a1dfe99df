/* Configuration; see config.h. */
#include "config.h"
#include "http/listen.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_TEXT, KIND_NUMBER, KIND_BOOL, KIND_CHOICE, KIND_POOL };

struct setting {
	const char *key, *flag, *arg; /* flag and arg NULL = file only */
	enum kind kind;
	size_t off;
	uint64_t min, max;   /* number: range; text: length */
	const char *choices; /* KIND_CHOICE: " a b c " */
	const char *help;
};

#define TEXT(k, f, a, help)                                                    \
	{                                                                      \
#k, f, a, KIND_TEXT, offsetof(struct config, k), 0,            \
			CONFIG_TEXT_BYTES_MAX - 1, NULL, help                  \
	}
#define NUMBER(k, lo, hi, help)                                                \
	{                                                                      \
#k, NULL, NULL, KIND_NUMBER, offsetof(struct config, k), lo,   \
			hi, NULL, help                                         \
	}

#define POOL(k, help)                                                          \
	{                                                                      \
#k, NULL, NULL, KIND_POOL, offsetof(struct config, k), 0,      \
			CONFIG_TEXT_BYTES_MAX - 1, NULL, help                  \
	}

static const struct setting settings[] = {
	TEXT(state_dir, "--state", "DIR", "records, keys, running disks"),
	TEXT(cache_dir, "--cache", "DIR", "template snapshots, shared"),
	TEXT(images_dir, "--images", "DIR", "guest kernel and templates"),
	TEXT(vmm_path, "--vmm", "PATH", "the hutch-vmm program"),
	TEXT(init_image, "--init-image", "PATH", "the guest's init image"),
	TEXT(listen, "--listen", "ADDR:PORT",
	     "HTTP here; port 0 = any free one; none = admin socket only"),
	TEXT(public_url, NULL, NULL, "base of the links in error answers"),
	TEXT(allowed_hosts, NULL, NULL, "more Host names on a loopback port"),
	TEXT(node, NULL, NULL, "4 of 0-9a-z, part of every id"),
	NUMBER(connections_max, 16, 65536, "open HTTP connections"),
	NUMBER(body_budget_mib, 8, 65536, "all request bodies at once, MiB"),
	NUMBER(graph_places, 1, 100000, "sandboxes at once in a graph"),
	NUMBER(environment_places, 1, 100000, "and in an environment"),
	NUMBER(ram_budget_mib, 0, 1ull << 30, "RAM for VMs, MiB; 0 = 3/4"),
	NUMBER(disk_reserve_mib, 0, 1ull << 30, "disk to leave free, MiB"),
	NUMBER(snapshots_max_mib, 0, 1ull << 30, "all snapshots, MiB; 0 = any"),
	NUMBER(stopped_max_mib, 0, 1ull << 30, "stopped ones, MiB; 0 = any"),
	NUMBER(files_max_mib, 0, 1ull << 30, "Files of graphs, MiB; 0 = any"),
	NUMBER(file_max_mib, 1, 1ull << 20, "one File, MiB"),
	NUMBER(pool_max, 0, 64, "VMs that wait for a run; 0 = none"),
	NUMBER(pool_idle_seconds, 1, 86400, "until one fewer waits unused"),
	POOL(pool_python, "of lbb/python that always wait: 2 1x512:1"),
	POOL(pool_node, "the same of lbb/node"),
	POOL(pool_shell, "the same of lbb/shell"),
	{"lane", "--lane", "on|off", KIND_CHOICE, offsetof(struct config, lane),
	 0, 0, " on off ", "runs go past the guest's kernel when they can"},
	NUMBER(snapshot_renew_hours, 0, 87600, "their age at most; 0 = any"),
	NUMBER(uid_base, 1000, 4000000000u, "first of the VMMs' user ids"),
	NUMBER(drain_seconds, 0, 3600, "for commands to end at SIGTERM"),
	{"confine", NULL, NULL, KIND_BOOL, offsetof(struct config, is_confined),
	 0, 0, NULL, "yes or no: VMMs under their own uid and seccomp"},
	{"metrics", NULL, NULL, KIND_BOOL,
	 offsetof(struct config, is_metrics_open), 0, 0, NULL,
	 "yes or no: /metrics and /capacity on the port, without a key"},
	{"log_level", NULL, NULL, KIND_CHOICE,
	 offsetof(struct config, log_level), 0, 0, " error warn info debug ",
	 "error, warn, info or debug"},
};
#define SETTINGS (sizeof(settings) / sizeof(*settings))

const char *config_key(unsigned idx)
{
	return idx < SETTINGS ? settings[idx].key : NULL;
}

const char *config_flag(unsigned idx)
{
	return idx < SETTINGS ? settings[idx].flag : NULL;
}

void config_help_flag(unsigned idx, FILE *out)
{
	const struct setting *s = &settings[idx];
	char flag[64];

	if (!s->flag)
		return;
	snprintf(flag, sizeof(flag), "%s %s", s->flag, s->arg);
	fprintf(out, "  %-20s %s\n", flag, s->help);
}

void config_help_key(unsigned idx, FILE *out)
{
	fprintf(out, "  %-20s %s\n", settings[idx].key, settings[idx].help);
}

static int join(char dst[CONFIG_TEXT_BYTES_MAX], const char *dir,
		const char *rest, struct err *e)
{
	if (snprintf(dst, CONFIG_TEXT_BYTES_MAX, "%s%s", dir, rest) <
	    CONFIG_TEXT_BYTES_MAX)
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, NULL, "path too long: %s%s", dir,
		       rest);
}

static int default_cache(struct config *c, struct err *e)
{
	const char *own = getenv("HUTCH_CACHE");
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (own && *own)
		return join(c->cache_dir, own, "", e);
	if (xdg && *xdg)
		return join(c->cache_dir, xdg, "/hutch", e);
	if (home && *home)
		return join(c->cache_dir, home, "/.cache/hutch", e);
	return join(c->cache_dir, "/var/cache/hutch", "", e);
}

int config_defaults(struct config *c, const char *exe_dir, struct err *e)
{
	memset(c, 0, sizeof(*c));
	snprintf(c->listen, sizeof(c->listen), "127.0.0.1:7400");
	snprintf(c->log_level, sizeof(c->log_level), "info");
	c->connections_max = 2048;
	c->body_budget_mib = 256;
	c->graph_places = 5;
	c->environment_places = 10;
	c->disk_reserve_mib = 1024;
	c->snapshots_max_mib = 32768;
	c->stopped_max_mib = 32768;
	c->files_max_mib = 32768;
	c->file_max_mib = 1024;
	c->uid_base = 64000;
	c->pool_max = 4;
	c->pool_idle_seconds = 300;
	snprintf(c->pool_python, sizeof(c->pool_python), "1");
	snprintf(c->pool_node, sizeof(c->pool_node), "0");
	snprintf(c->pool_shell, sizeof(c->pool_shell), "0");
	snprintf(c->lane, sizeof(c->lane), "on");
	c->snapshot_renew_hours = 24;
	c->drain_seconds = 10;
	c->is_confined = true;
	c->is_metrics_open = true;
	if (join(c->state_dir, exe_dir, "/state", e) ||
	    join(c->images_dir, exe_dir, "/images", e) ||
	    join(c->vmm_path, exe_dir, "/hutch-vmm", e) ||
	    join(c->init_image, exe_dir, "/guest/init.erofs", e))
		return -1;
	return default_cache(c, e);
}

static int set_number(struct config *c, const struct setting *s,
		      const char *value, const char *where, struct err *e)
{
	uint64_t n = 0;
	bool is_good = *value;

	for (const char *p = value; is_good && *p; p++)
		is_good = *p >= '0' && *p <= '9' &&
			  !__builtin_mul_overflow(n, (uint64_t)10, &n) &&
			  !__builtin_add_overflow(n, (uint64_t)(*p - '0'), &n);
	if (!is_good || n < s->min || n > s->max)
		return err_set(e, ERR_INVALID_REQUEST, s->key,
			       "%s: %s = \"%s\": must be a whole number from "
			       "%llu to %llu",
			       where, s->key, value, (unsigned long long)s->min,
			       (unsigned long long)s->max);
	memcpy((char *)c + s->off, &n, sizeof(n));
	return 0;
}

static int set_bool(struct config *c, const struct setting *s,
		    const char *value, const char *where, struct err *e)
{
	bool is = !strcmp(value, "yes");

	if (!is && strcmp(value, "no"))
		return err_set(e, ERR_INVALID_REQUEST, s->key,
			       "%s: %s = \"%s\": must be yes or no", where,
			       s->key, value);
	memcpy((char *)c + s->off, &is, sizeof(is));
	return 0;
}

static int set_text(struct config *c, const struct setting *s,
		    const char *value, const char *where, struct err *e)
{
	size_t len = strlen(value);
	char padded[64];

	if (len > CONFIG_TEXT_BYTES_MAX - 1)
		return err_set(e, ERR_INVALID_REQUEST, s->key,
			       "%s: %s: %zu bytes, at most %d", where, s->key,
			       len, CONFIG_TEXT_BYTES_MAX - 1);
	snprintf(padded, sizeof(padded), " %s ", value);
	if (s->kind == KIND_CHOICE &&
	    (strchr(value, ' ') || !strstr(s->choices, padded)))
		return err_set(e, ERR_INVALID_REQUEST, s->key,
			       "%s: %s = \"%s\": must be one of:%s", where,
			       s->key, value, s->choices);
	memcpy((char *)c + s->off, value, len + 1);
	return 0;
}

static int check_node(const char *node, const char *where, struct err *e)
{
	if (!*node ||
	    (strlen(node) == 4 &&
	     strspn(node, "0123456789abcdefghijklmnopqrstuvwxyz") == 4))
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, "node",
		       "%s: node = \"%s\": must be 4 characters of 0-9 a-z",
		       where, node);
}

/* What the listener would say when the state folder is made already. */
static int check_listen(const char *listen, const char *where, struct err *e)
{
	struct err why;

	if (!strcmp(listen, "none") || !listen_check(listen, &why))
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, "listen", "%s: %s", where,
		       why.text);
}

static int set(struct config *c, const struct setting *s, const char *value,
	       const char *where, struct err *e)
{
	switch (s->kind) {
	case KIND_NUMBER:
		return set_number(c, s, value, where, e);
	case KIND_BOOL:
		return set_bool(c, s, value, where, e);
	case KIND_POOL:
		if (config_pool_each(value, NULL, NULL, e)) {
			err_wrap(e, "%s: %s", where, s->key);
			return -1;
		}
		break;
	case KIND_TEXT:
	case KIND_CHOICE:
		break;
	}
	if (s->off == offsetof(struct config, node) &&
	    check_node(value, where, e))
		return -1;
	if (s->off == offsetof(struct config, listen) &&
	    check_listen(value, where, e))
		return -1;
	return set_text(c, s, value, where, e);
}

static const struct setting *setting_find(const char *key)
{
	for (size_t i = 0; i < SETTINGS; i++)
		if (!strcmp(settings[i].key, key))
			return &settings[i];
	return NULL;
}

int config_set(struct config *c, const char *key, const char *value,
	       const char *where, struct err *e)
{
	const struct setting *s = setting_find(key);

	if (s)
		return set(c, s, value, where, e);
	return err_set(e, ERR_INVALID_REQUEST, NULL, "%s: unknown key \"%s\"",
		       where, key);
}

/* A comment behind a value: '#' after white space. */
static void cut_comment(char *s)
{
	for (char *p = s; (p = strchr(p, '#')); p++) {
		if (p > s && !strchr(" \t", p[-1]))
			continue;
		*p = 0;
		return;
	}
}

/* Cuts white space at both ends, in place. */
static char *trim(char *s)
{
	char *end;

	s += strspn(s, " \t\r\n");
	end = s + strlen(s);
	while (end > s && strchr(" \t\r\n", end[-1]))
		*--end = 0;
	return s;
}

/* A key that comes twice is a mistake: which one was meant? */
static int first_time(const char *key, unsigned lines[SETTINGS], unsigned line,
		      const char *where, struct err *e)
{
	const struct setting *s = setting_find(key);
	unsigned *seen = s ? &lines[s - settings] : NULL;

	if (!s)
		return 0; /* config_set says so */
	if (*seen)
		return err_set(e, ERR_INVALID_REQUEST, NULL,
			       "%s: %s was given in line %u already", where,
			       key, *seen);
	*seen = line;
	return 0;
}

static int read_line(struct config *c, char *line, unsigned n,
		     unsigned lines[SETTINGS], const char *where, struct err *e)
{
	char *eq, *key = trim(line);

	if (!*key || *key == '#')
		return 0;
	eq = strchr(key, '=');
	if (!eq)
		return err_set(e, ERR_INVALID_REQUEST, NULL,
			       "%s: expected key = value, found \"%s\"", where,
			       key);
	*eq = 0;
	cut_comment(eq + 1);
	key = trim(key);
	if (first_time(key, lines, n, where, e))
		return -1;
	return config_set(c, key, trim(eq + 1), where, e);
}

int config_read(struct config *c, const char *path, bool is_optional,
		struct err *e)
{
	char *line = NULL, where[CONFIG_TEXT_BYTES_MAX + 32];
	unsigned lines[SETTINGS] = {0};
	FILE *f = fopen(path, "re");
	size_t cap = 0;
	int rc = 0;

	if (!f && errno == ENOENT && is_optional)
		return 0;
	if (!f)
		return err_set(e, ERR_INVALID_REQUEST, NULL, "%s: %m", path);
	for (unsigned n = 1; !rc && getline(&line, &cap, f) >= 0; n++) {
		snprintf(where, sizeof(where), "%s, line %u", path, n);
		rc = read_line(c, line, n, lines, where, e);
	}
	if (!rc && ferror(f))
		rc = err_set(e, ERR_INVALID_REQUEST, NULL, "%s: cannot read",
			     path);
	free(line);
	fclose(f);
	return rc;
}
