/*
 * Encoding of what the host says; see gp_down.h.
 *
 * A frame is written straight into the queue: its header first with length 0,
 * then the map, then the length is put in.  Code and input, up to 2 MiB, are
 * so copied once.  They may hold secrets: the queue grows without leaving
 * copies behind.  `rc` of the writer stays at the first error, which makes
 * the encoders straight lines.
 */
#include "gp_down.h"
#include <cbor.h>
#include <errno.h>

struct writer {
	struct bytes *out;
	size_t at; /* of the header in `out` */
	int rc;
};

static void put_raw(struct writer *w, const void *p, size_t len)
{
	if (!w->rc)
		w->rc = bytes_append_secret(w->out, p, len);
}

static void put_uint(struct writer *w, uint64_t v)
{
	uint8_t b[9];

	put_raw(w, b, cbor_encode_uint(v, b, sizeof(b)));
}

static void put_map(struct writer *w, size_t n)
{
	uint8_t b[9];

	put_raw(w, b, cbor_encode_map_start(n, b, sizeof(b)));
}

static void put_bool(struct writer *w, bool v)
{
	uint8_t b[1];

	put_raw(w, b, cbor_encode_bool(v, b, sizeof(b)));
}

static void put_bytes(struct writer *w, const void *p, size_t len)
{
	uint8_t b[9];

	put_raw(w, b, cbor_encode_bytestring_start(len, b, sizeof(b)));
	put_raw(w, p, len);
}

static void put_text(struct writer *w, const char *s)
{
	uint8_t b[9];
	size_t len = strlen(s);

	put_raw(w, b, cbor_encode_string_start(len, b, sizeof(b)));
	put_raw(w, s, len);
}

/* An array of byte strings from a NULL-terminated list. */
static void put_strings(struct writer *w, const char *const *list)
{
	uint8_t b[9];
	size_t n = 0;

	while (list[n])
		n++;
	put_raw(w, b, cbor_encode_array_start(n, b, sizeof(b)));
	for (size_t i = 0; i < n; i++)
		put_bytes(w, list[i], strlen(list[i]));
}

static struct writer frame_begin(struct bytes *out, enum gp_type type,
				 uint64_t cmd)
{
	struct gp_head h = {.type = (uint16_t)type, .cmd = cmd};
	struct writer w = {.out = out, .at = out->len};

	put_raw(&w, &h, sizeof(h));
	return w;
}

static int frame_end(struct writer *w)
{
	size_t len = w->out->len - w->at - sizeof(struct gp_head);

	if (!w->rc && len > GP_DOWN_BYTES_MAX)
		w->rc = -EMSGSIZE;
	if (w->rc)
		w->out->len = w->at;
	else
		le32_store(w->out->data + w->at, (uint32_t)len);
	return w->rc;
}

int gp_down_plain(struct bytes *out, enum gp_type type, uint64_t cmd)
{
	struct writer w = frame_begin(out, type, cmd);

	put_map(&w, 0);
	return frame_end(&w);
}

int gp_down_welcome(struct bytes *out)
{
	struct writer w = frame_begin(out, GP_WELCOME, 0);

	put_map(&w, 1);
	put_uint(&w, GP_WELCOME_VERSION);
	put_uint(&w, GP_VERSION);
	return frame_end(&w);
}

int gp_down_prepare(struct bytes *out, const char *runner, bool preload,
		    bool disk, const uint8_t *entropy)
{
	struct writer w = frame_begin(out, GP_PREPARE, 0);

	put_map(&w, 4);
	put_uint(&w, GP_PREPARE_RUNNER);
	put_text(&w, runner);
	put_uint(&w, GP_PREPARE_PRELOAD);
	put_bool(&w, preload);
	put_uint(&w, GP_PREPARE_DISK);
	put_bool(&w, disk);
	put_uint(&w, GP_PREPARE_ENTROPY);
	put_bytes(&w, entropy, GP_ENTROPY_BYTES);
	return frame_end(&w);
}

int gp_down_bind(struct bytes *out, const struct gp_identity *id)
{
	struct writer w = frame_begin(out, GP_BIND, 0);

	put_map(&w, 7);
	put_uint(&w, GP_BIND_ENTROPY);
	put_bytes(&w, id->entropy, sizeof(id->entropy));
	put_uint(&w, GP_BIND_WALL_NS);
	put_uint(&w, id->wall_ns);
	put_uint(&w, GP_BIND_HOSTNAME);
	put_text(&w, id->hostname);
	put_uint(&w, GP_BIND_MACHINE_ID);
	put_text(&w, id->machine_id);
	put_uint(&w, GP_BIND_MEM_BYTES);
	put_uint(&w, id->mem_bytes);
	put_uint(&w, GP_BIND_PIDS);
	put_uint(&w, id->pids);
	put_uint(&w, GP_BIND_DISK_BYTES);
	put_uint(&w, id->disk_bytes);
	return frame_end(&w);
}

/* Keys that RUN and EXEC share; `n` more pairs follow. */
static void put_common(struct writer *w, size_t n, uint32_t timeout_ms,
		       const char *const *env)
{
	put_map(w, n + 3 + (env ? 1 : 0));
	put_uint(w, GP_RUN_TIMEOUT_MS);
	put_uint(w, timeout_ms);
	put_uint(w, GP_RUN_HEAD_MAX);
	put_uint(w, OUTPUT_HEAD_BYTES);
	put_uint(w, GP_RUN_TAIL_MAX);
	put_uint(w, OUTPUT_TAIL_BYTES);
	if (env) {
		put_uint(w, GP_RUN_ENV);
		put_strings(w, env);
	}
}

int gp_down_adopt(struct bytes *out, uint64_t cmd, uint32_t timeout_ms)
{
	struct writer w = frame_begin(out, GP_ADOPT, cmd);

	put_common(&w, 0, timeout_ms, NULL);
	return frame_end(&w);
}

int gp_down_run(struct bytes *out, uint64_t cmd, const struct vm_run *run)
{
	struct writer w = frame_begin(out, GP_RUN, cmd);
	size_t n = 1 + (run->input ? 1 : 0) + (run->config ? 1 : 0);

	put_common(&w, n, run->timeout_ms, run->env);
	put_uint(&w, GP_RUN_CODE);
	put_bytes(&w, run->code, run->code_len);
	if (run->input) {
		put_uint(&w, GP_RUN_INPUT);
		put_bytes(&w, run->input, run->input_len);
	}
	if (run->config) {
		put_uint(&w, GP_RUN_CONFIG);
		put_bytes(&w, run->config, run->config_len);
	}
	return frame_end(&w);
}

int gp_down_exec(struct bytes *out, uint64_t cmd, const struct vm_exec *exec)
{
	struct writer w = frame_begin(out, GP_EXEC, cmd);
	size_t n = 1 + (exec->cwd ? 1 : 0) + (exec->stdin_len ? 1 : 0);

	put_common(&w, n, exec->timeout_ms, exec->env);
	put_uint(&w, GP_EXEC_ARGV);
	put_strings(&w, exec->argv);
	if (exec->cwd) {
		put_uint(&w, GP_EXEC_CWD);
		put_text(&w, exec->cwd);
	}
	if (exec->stdin_len) {
		put_uint(&w, GP_EXEC_STDIN);
		put_bytes(&w, exec->stdin_data, exec->stdin_len);
	}
	return frame_end(&w);
}

int gp_down_kill(struct bytes *out, uint64_t cmd, uint32_t grace_ms)
{
	struct writer w = frame_begin(out, GP_KILL, cmd);

	put_map(&w, 1);
	put_uint(&w, GP_KILL_GRACE_MS);
	put_uint(&w, grace_ms);
	return frame_end(&w);
}

int gp_down_file(struct bytes *out, uint64_t number, const struct vm_file *f,
		 size_t first)
{
	struct writer w = frame_begin(out, GP_FILE, number);
	bool is_read = f->op == GP_FILE_READ, is_write = f->op == GP_FILE_WRITE;

	put_map(&w, 4u + 2 * is_read + 2 * is_write + !!f->after_len);
	put_uint(&w, GP_FILE_KEY_OP);
	put_uint(&w, f->op);
	put_uint(&w, GP_FILE_KEY_PATH);
	put_bytes(&w, f->path, f->path_len);
	put_uint(&w, GP_FILE_KEY_LIMIT);
	put_uint(&w, f->limit);
	put_uint(&w, GP_FILE_KEY_TIMEOUT_MS);
	put_uint(&w, f->timeout_ms);
	if (is_read) {
		put_uint(&w, GP_FILE_KEY_OFFSET);
		put_uint(&w, f->offset);
		put_uint(&w, GP_FILE_KEY_WHOLE);
		put_bool(&w, f->is_whole);
	}
	if (is_write) {
		put_uint(&w, GP_FILE_KEY_SIZE);
		put_uint(&w, f->data_len + f->more);
		put_uint(&w, GP_FILE_KEY_DATA);
		put_bytes(&w, f->data, first);
	}
	if (f->after_len) {
		put_uint(&w, GP_FILE_KEY_AFTER);
		put_bytes(&w, f->after, f->after_len);
	}
	return frame_end(&w);
}

int gp_down_file_piece(struct bytes *out, uint64_t number, const void *data,
		       size_t len)
{
	struct writer w = frame_begin(out, GP_FILE_PIECE, number);

	put_raw(&w, data, len);
	return frame_end(&w);
}
