/*
 * Configuration: one file of `key = value` lines, flags on top.
 *
 * Every setting is one row of the table in config.c: key, flag, kind, range,
 * unit, default, help.  The file, the flags, --help and the check of
 * hutchd.conf.example all read that table.  A key that is not known or a value
 * out of its range is refused with file, line, value and range.
 */
#ifndef HUTCHD_CONFIG_H
#define HUTCHD_CONFIG_H

#include "err.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define CONFIG_TEXT_BYTES_MAX 1024
#define CONFIG_FILE_DEFAULT   "/etc/hutch/hutchd.conf"

struct config {
	char state_dir[CONFIG_TEXT_BYTES_MAX];
	char cache_dir[CONFIG_TEXT_BYTES_MAX];
	char images_dir[CONFIG_TEXT_BYTES_MAX];
	char vmm_path[CONFIG_TEXT_BYTES_MAX];
	char init_image[CONFIG_TEXT_BYTES_MAX];
	char listen[CONFIG_TEXT_BYTES_MAX]; /* ADDR:PORT, or "none" */
	char public_url[CONFIG_TEXT_BYTES_MAX];
	char allowed_hosts[CONFIG_TEXT_BYTES_MAX];
	char node[CONFIG_TEXT_BYTES_MAX]; /* "" = made at the first start */
	char log_level[CONFIG_TEXT_BYTES_MAX];
	uint64_t connections_max;
	uint64_t body_budget_mib;
	uint64_t graph_places, environment_places;
	uint64_t ram_budget_mib, disk_reserve_mib;
	uint64_t snapshots_max_mib, stopped_max_mib;
	uint64_t files_max_mib, file_max_mib;
	uint64_t uid_base;
	uint64_t drain_seconds;
	bool is_confined, is_metrics_open;
	uint64_t pool_max, pool_idle_seconds, snapshot_renew_hours;
	char pool_python[CONFIG_TEXT_BYTES_MAX];
	char pool_node[CONFIG_TEXT_BYTES_MAX];
	char pool_shell[CONFIG_TEXT_BYTES_MAX];
	char lane[CONFIG_TEXT_BYTES_MAX]; /* "on" or "off" */
};

/*
 * What a pool_... key says: "2", "2 1x512:1 2x2048x1024:1".  A number is for
 * the default limits; VCPUSxMEMORY:N and VCPUSxMEMORYxDISK:N, MiB, for others.
 * Calls `fn` for each with N > 0; 0 or -1 with `e`, which then names the part.
 */
struct config_pool {
	uint32_t vcpus, memory_mib, disk_mib, count;
};
int config_pool_each(const char *text,
		     void (*fn)(void *ctx, const struct config_pool *p),
		     void *ctx, struct err *e);

/* Defaults; `exe_dir` = folder of the running program (build/, /usr/bin). */
int config_defaults(struct config *c, const char *exe_dir, struct err *e);

/* `is_optional`: a missing file is no error. */
int config_read(struct config *c, const char *path, bool is_optional,
		struct err *e);

/* One setting by its key; `where` begins the message ("FILE, line 3"). */
int config_set(struct config *c, const char *key, const char *value,
	       const char *where, struct err *e);

/*
 * Flags of main.  Returns 0 = go on, 1 = done (--help, --version, --routes
 * leave their name in *ret_what), -1 = refused.  Reads --config first, then
 * the file, then the other flags.
 */
int config_args(struct config *c, int argc, char **argv, const char **ret_what,
		struct err *e);

/* For --help, and for the check that the example names every key. */
void config_help(FILE *out);
const char *config_key(unsigned idx);  /* NULL behind the last */
const char *config_flag(unsigned idx); /* NULL = only in the file */
void config_help_flag(unsigned idx, FILE *out);
void config_help_key(unsigned idx, FILE *out);

#endif
