/*
 * The MCP surface: POST /mcp (README.md here has the theory).
 *
 * Three tools for agents over the routes of /v1.  A call of a tool becomes
 * calls of those routes (request_inner), so decoding, rules, waits and records
 * are theirs; here are JSON-RPC, the table of actions, and the shape of
 * results.
 */
#ifndef HUTCHD_MCP_H
#define HUTCHD_MCP_H

#include "../../http/request.h"

#define MCP_BODY_BYTES_MAX (1u << 20)
/* Messages of one batch, which revision 2025-03-26 allows. */
#define MCP_BATCH_MAX 16
/* All waits of one POST; a run has to be told within 50 s (LBB-196). */
#define MCP_WAIT_MS_MAX 47000
/* A person has this long to answer; agents' clients give up sooner. */
#define MCP_ASK_MS_MAX (10 * 60 * 1000)
/* A comment on a stream that waits: proxies keep it, the dead are noticed. */
#define MCP_ASK_BEAT_MS 5000
/* Questions that wait at once, of all environments, and of one. */
#define MCP_QUESTIONS_MAX	      64
#define MCP_QUESTIONS_ENVIRONMENT_MAX 16
/* What a result shows of a stream of output: its end, and its beginning. */
#define MCP_TAIL_BYTES (8u << 10)
#define MCP_HEAD_BYTES (2u << 10)
/* A page of output or of a file, unless the call says otherwise. */
#define MCP_READ_BYTES_DEFAULT 16384
#define MCP_READ_BYTES_MAX     (128u << 10)
/* As the clients of the surface: a lost run is sent again, under KEY.2, .3 */
#define MCP_ATTEMPTS 3
/* Of the argument: room for the ".3" of an attempt. */
#define MCP_KEY_BYTES_MAX (IDEMPOTENCY_KEY_BYTES_MAX - 2)

extern const struct route_table mcp_routes;

#endif
