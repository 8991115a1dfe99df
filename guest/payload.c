/* Payloads of the host's frames; see payload.h. */
#include "payload.h"
#include "limits.h"
#include <errno.h>
#include <stdio.h>

static const struct wire_rule welcome[] = {
	{GP_WELCOME_VERSION, WIRE_UINT, true, "version"},
};

static const struct wire_rule prepare[] = {
	{GP_PREPARE_RUNNER, WIRE_TEXT, true, "runner"},
	{GP_PREPARE_PRELOAD, WIRE_BOOL, false, "preload"},
	{GP_PREPARE_DISK, WIRE_BOOL, false, "disk"},
	{GP_PREPARE_ENTROPY, WIRE_BYTES, false, "entropy"},
};

static const struct wire_rule bind[] = {
	{GP_BIND_ENTROPY, WIRE_BYTES, true, "entropy"},
	{GP_BIND_WALL_NS, WIRE_UINT, true, "wall_ns"},
	{GP_BIND_HOSTNAME, WIRE_TEXT, true, "hostname"},
	{GP_BIND_MACHINE_ID, WIRE_TEXT, true, "machine_id"},
	{GP_BIND_MEM_BYTES, WIRE_UINT, true, "mem_bytes"},
	{GP_BIND_PIDS, WIRE_UINT, true, "pids"},
	{GP_BIND_DISK_BYTES, WIRE_UINT, false, "disk_bytes"},
};

static const struct wire_rule run[] = {
	{GP_RUN_CODE, WIRE_BYTES, true, "code"},
	{GP_RUN_INPUT, WIRE_BYTES, false, "input"},
	{GP_RUN_CONFIG, WIRE_BYTES, false, "config"},
	{GP_RUN_TIMEOUT_MS, WIRE_UINT, false, "timeout_ms"},
	{GP_RUN_ENV, WIRE_LIST, false, "env"},
	{GP_RUN_HEAD_MAX, WIRE_UINT, false, "head_max"},
	{GP_RUN_TAIL_MAX, WIRE_UINT, false, "tail_max"},
};

static const struct wire_rule exec[] = {
	{GP_RUN_TIMEOUT_MS, WIRE_UINT, false, "timeout_ms"},
	{GP_RUN_ENV, WIRE_LIST, false, "env"},
	{GP_RUN_HEAD_MAX, WIRE_UINT, false, "head_max"},
	{GP_RUN_TAIL_MAX, WIRE_UINT, false, "tail_max"},
	{GP_EXEC_ARGV, WIRE_LIST, true, "argv"},
	{GP_EXEC_CWD, WIRE_TEXT, false, "cwd"},
	{GP_EXEC_STDIN, WIRE_BYTES, false, "stdin"},
};

static const struct wire_rule kill_rules[] = {
	{GP_KILL_GRACE_MS, WIRE_UINT, false, "grace_ms"},
};

static const struct wire_rule adopt[] = {
	{GP_RUN_TIMEOUT_MS, WIRE_UINT, false, "timeout_ms"},
	{GP_RUN_HEAD_MAX, WIRE_UINT, false, "head_max"},
	{GP_RUN_TAIL_MAX, WIRE_UINT, false, "tail_max"},
};

static const struct wire_rule file[] = {
	{GP_FILE_KEY_OP, WIRE_UINT, true, "op"},
	{GP_FILE_KEY_PATH, WIRE_BYTES, true, "path"},
	{GP_FILE_KEY_OFFSET, WIRE_UINT, false, "offset"},
	{GP_FILE_KEY_LIMIT, WIRE_UINT, false, "limit"},
	{GP_FILE_KEY_WHOLE, WIRE_BOOL, false, "whole"},
	{GP_FILE_KEY_SIZE, WIRE_UINT, false, "size"},
	{GP_FILE_KEY_DATA, WIRE_BYTES, false, "data"},
	{GP_FILE_KEY_AFTER, WIRE_BYTES, false, "after"},
	{GP_FILE_KEY_TIMEOUT_MS, WIRE_UINT, false, "timeout_ms"},
};

static const struct payload {
	uint16_t type;
	const char *name;
	const struct wire_rule *rules;
	size_t n;
} payloads[] = {
	{GP_WELCOME, "WELCOME", welcome, ARRAY_LEN(welcome)},
	{GP_PREPARE, "PREPARE", prepare, ARRAY_LEN(prepare)},
	{GP_BIND, "BIND", bind, ARRAY_LEN(bind)},
	{GP_RUN, "RUN", run, ARRAY_LEN(run)},
	{GP_EXEC, "EXEC", exec, ARRAY_LEN(exec)},
	{GP_KILL, "KILL", kill_rules, ARRAY_LEN(kill_rules)},
	{GP_ARM, "ARM", NULL, 0},
	{GP_ADOPT, "ADOPT", adopt, ARRAY_LEN(adopt)},
	{GP_ACK, "ACK", NULL, 0},
	{GP_PING, "PING", NULL, 0},
	{GP_POWEROFF, "POWEROFF", NULL, 0},
	{GP_HOLD, "HOLD", NULL, 0},
	{GP_GO, "GO", NULL, 0},
	{GP_FILE, "FILE", file, ARRAY_LEN(file)},
};

int payload_decode(enum gp_type type, const void *payload, size_t len,
		   struct wire_map *ret, char *why, size_t why_cap)
{
	for (size_t i = 0; i < ARRAY_LEN(payloads); i++) {
		const struct payload *p = &payloads[i];
		char detail[96];

		if (p->type != type)
			continue;
		if (!wire_decode(payload, len, p->rules, p->n, ret, detail,
				 sizeof(detail)))
			return 0;
		snprintf(why, why_cap, "%s: %s", p->name, detail);
		return -EPROTO;
	}
	snprintf(why, why_cap, "frame type %u is not the host's", type);
	return -EPROTO;
}

int payload_env_pack(struct bytes *out, struct span list)
{
	struct span item;
	int rc = 0;

	while (!rc && wire_list_next(&list, &item)) {
		if (memchr(item.data, 0, item.len))
			continue;
		rc = bytes_append(out, item.data, item.len);
		rc = rc ? rc : bytes_append(out, "", 1);
	}
	return rc;
}
