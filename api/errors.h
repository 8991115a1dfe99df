/*
 * Every error that leaves the daemon or the command line, in one table.
 *
 * X(NAME, code on the wire, envelope type, HTTP status, exit status of
 * `hutch`, retryable, sentence).  The sentence is the default message; a
 * caller replaces it by one that names the field, the value and the limit.
 * Codes of the `sandbox_` family: LBB-170 ... LBB-181.
 */
#ifndef HUTCH_ERRORS_H
#define HUTCH_ERRORS_H

#define HUTCH_ERRORS(X)                                                        \
	X(INTERNAL, "internal_error", "api_error", 500, 70, 1,                 \
	  "Something failed in the daemon.")                                   \
	X(INVALID_REQUEST, "invalid_request", "invalid_request_error", 400,    \
	  64, 0, "The request is not valid.")                                  \
	X(INVALID_JSON, "invalid_json", "invalid_request_error", 400, 64, 0,   \
	  "The body is not valid JSON.")                                       \
	X(UNAUTHORIZED, "unauthorized", "authentication_error", 401, 77, 0,    \
	  "The API key is missing or not known.")                              \
	X(GRANT_EXPIRED, "workflow_grant_expired", "authentication_error",     \
	  401, 77, 0, "The grant's time is over.")                             \
	X(GRANT_DENIED, "workflow_grant_denied", "permission_error", 403, 77,  \
	  0, "The grant is not for this call.")                                \
	X(FENCE_LOST, "workflow_fence_lost", "invalid_request_error", 409, 69, \
	  0, "A later attempt of this step has begun.")                        \
	X(EPOCH, "graph_epoch_mismatch", "invalid_request_error", 409, 69, 0,  \
	  "The graph is at another epoch.")                                    \
	X(BUDGET, "workflow_budget_exceeded", "rate_limit_error", 429, 75, 1,  \
	  "The budget of runs is spent.")                                      \
	X(RATE_LIMITED, "rate_limited", "rate_limit_error", 429, 75, 1,        \
	  "Too many requests; wait before the next.")                          \
	X(HOST_REFUSED, "host_not_allowed", "permission_error", 403, 77, 0,    \
	  "A loopback port answers requests to this host only.")               \
	X(NOT_FOUND, "not_found", "invalid_request_error", 404, 66, 0,         \
	  "There is no such record.")                                          \
	X(NO_ROUTE, "not_found", "invalid_request_error", 404, 64, 0,          \
	  "no route for this path")                                            \
	X(METHOD, "method_not_allowed", "invalid_request_error", 405, 64, 0,   \
	  "The route does not take this method.")                              \
	X(MEDIA_TYPE, "unsupported_media_type", "invalid_request_error", 415,  \
	  64, 0, "The body's content type is not supported.")                  \
	X(BODY_TOO_LARGE, "body_too_large", "invalid_request_error", 413, 64,  \
	  0, "The body is too large.")                                         \
	X(MISSING_KEY, "missing_idempotency_key", "invalid_request_error",     \
	  400, 64, 0, "The call needs an Idempotency-Key header.")             \
	X(KEY_CONFLICT, "idempotency_conflict", "invalid_request_error", 409,  \
	  64, 0, "The key was used with another request.")                     \
	X(CONFLICT, "conflict", "invalid_request_error", 409, 69, 0,           \
	  "The record is in a state that does not allow this.")                \
	X(SANDBOX_NOT_FOUND, "sandbox_not_found", "invalid_request_error",     \
	  404, 66, 0, "There is no such sandbox in this graph.")               \
	X(COMMAND_NOT_FOUND, "sandbox_command_not_found",                      \
	  "invalid_request_error", 404, 66, 0,                                 \
	  "There is no such command in this graph.")                           \
	X(SNAPSHOT_NOT_FOUND, "sandbox_snapshot_not_found",                    \
	  "invalid_request_error", 404, 66, 0,                                 \
	  "There is no such snapshot in this graph.")                          \
	X(SNAPSHOT_DAMAGED, "sandbox_snapshot_damaged", "api_error", 500, 65,  \
	  0, "The files of the snapshot are not what was taken.")              \
	X(FILE_NOT_FOUND, "sandbox_file_not_found", "invalid_request_error",   \
	  404, 66, 0, "There is no such file in the workspace.")               \
	X(PATH_INVALID, "sandbox_path_invalid", "invalid_request_error", 400,  \
	  64, 0, "The path cannot be used.")                                   \
	X(FILE_TOO_LARGE, "sandbox_file_too_large", "invalid_request_error",   \
	  413, 64, 0, "A read or a write has at most 4 MiB.")                  \
	X(FILE_CHANGED, "sandbox_file_changed", "invalid_request_error", 409,  \
	  75, 0, "The file changed while it was kept.")                        \
	X(GRAPH_FILE_NOT_FOUND, "file_not_found", "invalid_request_error",     \
	  404, 66, 0, "There is no such File in this graph.")                  \
	X(GRAPH_FILE_TOO_LARGE, "file_too_large", "invalid_request_error",     \
	  413, 64, 0, "The File is too large.")                                \
	X(RANGE, "range_not_satisfiable", "invalid_request_error", 416, 64, 0, \
	  "The File has no bytes in this range.")                              \
	X(DISK_FULL, "sandbox_disk_full", "invalid_request_error", 409, 69, 0, \
	  "The sandbox's disk is full.")                                       \
	X(TEMPLATE_NOT_FOUND, "sandbox_template_not_found",                    \
	  "invalid_request_error", 404, 66, 0, "There is no such template.")   \
	X(TEMPLATE_NAME_INVALID, "sandbox_template_name_invalid",              \
	  "invalid_request_error", 400, 64, 0,                                 \
	  "A template's name is 1 to 64 of a-z 0-9 . _ -")                     \
	X(LIMITS_INVALID, "sandbox_limits_invalid", "invalid_request_error",   \
	  400, 64, 0, "A limit is outside its range.")                         \
	X(TIMEOUT_INVALID, "sandbox_timeout_invalid", "invalid_request_error", \
	  400, 64, 0, "The time-out is outside its range.")                    \
	X(ENV_INVALID, "sandbox_env_invalid", "invalid_request_error", 400,    \
	  64, 0, "A name in env is not allowed.")                              \
	X(CODE_TOO_LARGE, "sandbox_code_too_large", "invalid_request_error",   \
	  413, 64, 0, "The code is larger than 64 KiB.")                       \
	X(INPUT_TOO_LARGE, "sandbox_input_too_large", "invalid_request_error", \
	  413, 64, 0, "Input or config is larger than 1 MiB.")                 \
	X(STDIN_TOO_LARGE, "sandbox_stdin_too_large", "invalid_request_error", \
	  413, 64, 0, "The standard input is larger than 1 MiB.")              \
	X(NOT_RUNNING, "sandbox_not_running", "invalid_request_error", 409,    \
	  69, 0, "The sandbox does not run.")                                  \
	X(LIMIT_REACHED, "sandbox_limit_reached", "rate_limit_error", 429, 75, \
	  1, "A limit on sandboxes or commands is reached.")                   \
	X(CAPACITY, "sandbox_capacity", "api_error", 503, 75, 1,               \
	  "The host has no room for this sandbox now.")                        \
	X(NOT_ENABLED, "sandbox_not_enabled", "invalid_request_error", 409,    \
	  69, 0, "Sandboxes are not enabled for this environment.")            \
	X(PLAN_UNAVAILABLE, "sandbox_plan_unavailable", "permission_error",    \
	  403, 77, 0, "The plan does not include sandboxes.")                  \
	X(NOT_APPROVED, "not_approved", "permission_error", 403, 77, 0,        \
	  "The person did not approve.")                                       \
	X(OUTPUT_EXPIRED, "sandbox_output_expired", "invalid_request_error",   \
	  410, 66, 0, "The output of this run is no longer kept.")             \
	X(UNAVAILABLE, "service_unavailable", "api_error", 503, 75, 1,         \
	  "The daemon is stopping.")

enum err_code {
	ERR_NONE = 0,
#define X(name, ...) ERR_##name,
	HUTCH_ERRORS(X)
#undef X
		ERR_N,
};

#endif
