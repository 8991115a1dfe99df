/* What the tests of held sandboxes share: calls, and what they find. */
#ifndef HUTCHD_ENGINE_HELD_UTIL_H
#define HUTCHD_ENGINE_HELD_UTIL_H

#include "engine_test_util.h"

/* lbb/shell with the defaults. */
struct create_spec held_spec(const char *key, uint32_t wait_ms);
void call_create(struct call *c, const struct create_spec *spec);
void call_command(struct call *c, const struct command_spec *spec);
/* echo hello, under this key. */
void call_echo(struct call *c, const char *sandbox, const char *key,
	       uint32_t wait_ms);
/* What a client sees now. */
struct sandbox_rec sandbox_now(const char *id);
enum command_status command_now(const char *id);
/* One that runs; its VM is the newest. */
void begin_held(struct call *c, const char *key);

#endif
