/*
 * The Little Big Brain surface: sandboxes over HTTP (api/openapi/lbb.yaml).
 *
 * A handler decodes the request into the engine's structs, calls the engine
 * once, and encodes what comes back.  No state of its own.
 */
#ifndef HUTCHD_LBB_H
#define HUTCHD_LBB_H

#include "../../http/request.h"

#define LBB_VCPUS_MIN		  1
#define LBB_VCPUS_MAX		  4
#define LBB_MEMORY_MIB_MIN	  128
#define LBB_MEMORY_MIB_MAX	  8192
#define LBB_DISK_MIB_MIN	  256
#define LBB_DISK_MIB_MAX	  10240
#define LBB_VCPUS_DEFAULT	  1
#define LBB_MEMORY_DEFAULT	  1024
#define LBB_DISK_DEFAULT	  4096
#define LBB_PAGE_MAX		  100
#define LBB_PAGE_DEFAULT	  20
#define LBB_LOG_BYTES_MAX	  (256u << 10)
#define LBB_LOG_BYTES_DEFAULT	  (64u << 10)
#define LBB_UPDATE_BODY_BYTES_MAX (64u << 10)
/* Code, input and config with every character escaped, env, and room. */
#define LBB_RUN_BODY_BYTES_MAX (4u << 20)
/* The same with stdin, every character of it escaped. */
#define LBB_COMMAND_BODY_BYTES_MAX (8u << 20)
#define LBB_GRANT_BODY_BYTES_MAX   4096

#define LBB_FILES_PAGE_MAX     1000
#define LBB_FILES_PAGE_DEFAULT 100
/* Of an upload, whatever file_max_mib says. */
#define LBB_UPLOAD_BYTES_MAX (1ull << 40)
#define LBB_SHA256_CHARS     64

/* Exact in JSON of all clients, with a whole read behind it. */
#define LBB_FILE_OFFSET_MAX ((1ull << 53) - GP_FILE_BYTES_MAX)

extern const struct route_table lbb_routes;	/* /v1/... */
extern const struct route_table service_routes; /* /healthz ... */

/* run.c */
void lbb_create(struct request *r);
int lbb_decode_limits(struct limits *l, const char *path, struct json_span v,
		      struct err *e);
/* held.c */
void lbb_create_held(struct request *r, struct json_span body);
void lbb_command_create(struct request *r);
/* sandboxes.c */
void lbb_sandboxes(struct request *r); /* list, or retrieve by sandbox= */
void lbb_sandbox_get(struct request *r);
void lbb_sandbox_delete(struct request *r);
void lbb_sandbox_stop(struct request *r);
void lbb_sandbox_resume(struct request *r);
/* snapshots.c */
void lbb_snapshot_create(struct request *r);
void lbb_snapshots(struct request *r); /* list, or retrieve by snapshot= */
void lbb_snapshot_get(struct request *r);
void lbb_snapshot_verify(struct request *r);
void lbb_snapshot_delete(struct request *r);
/* files.c */
void lbb_files(struct request *r);
void lbb_file_read(struct request *r);
void lbb_file_write(struct request *r);
void lbb_file_delete(struct request *r);
/* graph_files.c */
void lbb_upload(struct request *r); /* or keep, by source_sandbox */
void lbb_graph_files(struct request *r);
void lbb_graph_file_record(struct request *r);
void lbb_graph_file_content(struct request *r);
void lbb_graph_file_delete(struct request *r);
void lbb_file_import(struct request *r);
/* commands.c */
void lbb_commands(struct request *r);
void lbb_command_get(struct request *r);
void lbb_command_cancel(struct request *r);
/* logs.c */
void lbb_command_logs(struct request *r);
/* update.c */
void lbb_sandbox_update(struct request *r);
/* workflow.c: rows' functions for names of workflows and steps, of runs, and
 * for turns. */
int lbb_origin_name(char dst[ORIGIN_NAME_BYTES_MAX + 1], const char *path,
		    struct json_span v, struct err *e);
int lbb_origin_run(char dst[ORIGIN_NAME_BYTES_MAX + 1], const char *path,
		   struct json_span v, struct err *e);
int lbb_origin_turn(uint64_t *dst, const char *path, struct json_span v,
		    struct err *e);
/* grants.c */
void lbb_grant_create(struct request *r);
/* templates.c */
void lbb_template_save(struct request *r);
void lbb_templates(struct request *r); /* list, or retrieve one */
void lbb_template_get(struct request *r);
/* service.c */
void service_health(struct request *r);
void service_ready(struct request *r);
void service_version(struct request *r);
void service_capacity(struct request *r);
void service_metrics(struct request *r);
/* errors_page.c */
void service_errors(struct request *r);

/* paths.c: a path of a workspace in the query, as text or in hexadecimal;
 * `is_needed`: one of them, and not the workspace.  0, or the request was
 * answered and -1. */
int lbb_path(struct request *r, const char *param, const char *hex_param,
	     bool is_needed, struct file_path *ret);
/* Bytes in hexadecimal: their number, or -1. */
int64_t lbb_hex_bytes(const char *text, uint8_t *dst, size_t cap);
/* "path", and "path_hex" when it is not UTF-8. */
void lbb_put_path(struct json_out *j, const void *path, size_t len);

/* encode.c */
void lbb_put_file(struct json_out *j, const char *key,
		  const struct file_rec *f);
void lbb_put_sandbox(struct json_out *j, const struct sandbox_rec *s);
void lbb_put_snapshot(struct json_out *j, const struct snapshot_rec *s);
void lbb_put_template(struct json_out *j, const struct template_rec *t,
		      bool with_code);
void lbb_put_command(struct json_out *j, const struct command_rec *c,
		     bool with_output);
void lbb_put_run(struct json_out *j, const struct sandbox_rec *s,
		 const struct command_rec *c);
/* {"object":"list","data":[ ... */
void lbb_list_begin(struct json_out *j);
/* `cursor`: id of the last item, used when there is more. */
void lbb_list_end(struct json_out *j, bool has_more, const char *cursor);

/*
 * Query parameters: 0, or the request was answered and -1.  lbb_id gives the
 * id of a record ("sbx_..."); one that cannot exist is not looked up.
 */
int lbb_id(struct request *r, const char *param, const char *prefix,
	   enum err_code missing, const char **ret);
/* limit, cursor, and sandbox if it is given. */
int lbb_page(struct request *r, struct store_page *ret);
/* reply_err; a record that is not there is named, with where it was sought. */
void lbb_reply_err(struct request *r, const struct err *e);

/* The engine said no (rc < 0) without a callback. */
void lbb_engine_failed(struct request *r, int rc);

#endif
