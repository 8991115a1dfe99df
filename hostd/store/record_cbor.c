/*
 * The field lists of the records: what api/records.cddl says in prose.  Keys
 * are never used again for something else; a new field is a new version.
 */
#include "record_cbor.h"
#include "codec.h"
#include "guest_proto.h"
#include "record.h"
#include <assert.h>
#include <errno.h>
#include <stddef.h>

#define N_OF(a)	       (sizeof(a) / sizeof((a)[0]))
#define TEXT_MAX(s, m) (sizeof(((s *)0)->m) - 1)

/* Of `r`, which has an `origin`. */
#define ORIGIN(r, k)                                                           \
	{k, F_TEXT, offsetof(struct r, origin.workflow), 0,                    \
	 ORIGIN_NAME_BYTES_MAX},                                               \
		{(k) + 1, F_TEXT, offsetof(struct r, origin.run), 0,           \
		 ORIGIN_NAME_BYTES_MAX},                                       \
		{(k) + 2, F_TEXT, offsetof(struct r, origin.step), 0,          \
		 ORIGIN_NAME_BYTES_MAX},                                       \
		{(k) + 3, F_U64, offsetof(struct r, origin.turn), 0,           \
		 UINT64_MAX},                                                  \
	{                                                                      \
		(k) + 4, F_U32, offsetof(struct r, origin.attempt), 0,         \
			UINT32_MAX                                             \
	}

#define S(m) offsetof(struct sandbox_rec, m)
#define S_TEXT(k, m)                                                           \
	{                                                                      \
		k, F_TEXT, S(m), 0, TEXT_MAX(struct sandbox_rec, m)            \
	}

static const struct field sandbox_fields[] = {
	S_TEXT(1, id),
	S_TEXT(2, environment),
	S_TEXT(3, graph),
	{4, F_ENUM, S(status), SBX_STARTING, SBX_LOST},
	{5, F_ENUM, S(kind), SBX_KIND_ONE_CALL, SBX_KIND_HELD},
	S_TEXT(6, template_name),
	S_TEXT(7, template_id),
	{8, F_U32, S(template_version), 0, UINT32_MAX},
	S_TEXT(9, template_base),
	{10, F_HASH, S(image_sha256), 0, HASH_BYTES},
	{11, F_HASH, S(kernel_sha256), 0, HASH_BYTES},
	{12, F_U32, S(limits.vcpus), 0, UINT32_MAX},
	{13, F_U32, S(limits.memory_mib), 0, UINT32_MAX},
	{14, F_U32, S(limits.disk_mib), 0, UINT32_MAX},
	{15, F_U32, S(idle_seconds), 0, UINT32_MAX},
	{16, F_U32, S(expires_in_seconds), 0, UINT32_MAX},
	{17, F_I64, S(created_ms), 0, 0},
	{18, F_I64, S(started_ms), 0, 0},
	{19, F_I64, S(stopped_ms), 0, 0},
	{20, F_I64, S(ended_ms), 0, 0},
	{21, F_I64, S(last_active_ms), 0, 0},
	{22, F_I64, S(expires_ms), 0, 0},
	{23, F_ENUM, S(reason), END_NONE, END_PREPARE_FAILED},
	S_TEXT(24, reason_text),
	{25, F_U64, S(incarnation), 0, UINT64_MAX},
	S_TEXT(26, host_boot_id),
	S_TEXT(27, command),
	/* From version 2 on; before, key 7 had also snapshots. */
	S_TEXT(28, snapshot),
	S_TEXT(29, name),
	S_TEXT(30, labels),
	ORIGIN(sandbox_rec, 40),
};

static const struct record_type sandbox_types[] = {
	{"sandbox", 2, sizeof(struct sandbox_rec), sandbox_fields,
	 N_OF(sandbox_fields), NULL},
	{"sandbox", 1, sizeof(struct sandbox_rec), sandbox_fields, 27, NULL},
};

#define C(m) offsetof(struct command_rec, m)
#define C_TEXT(k, m)                                                           \
	{                                                                      \
		k, F_TEXT, C(m), 0, TEXT_MAX(struct command_rec, m)            \
	}

static const struct field command_fields[] = {
	C_TEXT(1, id),
	C_TEXT(2, sandbox),
	C_TEXT(3, environment),
	C_TEXT(4, graph),
	{5, F_ENUM, C(kind), CMD_KIND_RUN, CMD_KIND_EXEC},
	{6, F_ENUM, C(status), CMD_QUEUED, CMD_LOST},
	{7, F_ENUM, C(reason), END_NONE, END_PREPARE_FAILED},
	C_TEXT(8, reason_text),
	{9, F_I32, C(exit_code), 0, 0},
	{10, F_I32, C(signal), 0, 0},
	{11, F_U32, C(timeout_ms), 0, UINT32_MAX},
	{12, F_I64, C(created_ms), 0, 0},
	{13, F_I64, C(started_ms), 0, 0},
	{14, F_I64, C(ended_ms), 0, 0},
	{15, F_HASH, C(code_sha256), 0, HASH_BYTES},
	{16, F_HASH, C(input_sha256), 0, HASH_BYTES},
	{17, F_HASH, C(config_sha256), 0, HASH_BYTES},
	{18, F_U64, C(code_bytes), 0, UINT64_MAX},
	{19, F_U64, C(input_bytes), 0, UINT64_MAX},
	{20, F_U64, C(config_bytes), 0, UINT64_MAX},
	{21, F_U64, C(stdin_bytes), 0, UINT64_MAX},
	{22, F_BYTES, C(env_names), 0, RECORD_ENV_NAMES_BYTES_MAX},
	{23, F_BYTES, C(argv), 0, RECORD_ARGV_BYTES_MAX},
	{24, F_BOOL, C(has_result), 0, 0},
	{25, F_BYTES, C(result), 0, GP_RESULT_BYTES_MAX},
	{26, F_U64, C(user_us), 0, UINT64_MAX},
	{27, F_U64, C(sys_us), 0, UINT64_MAX},
	{28, F_U64, C(rss_bytes), 0, UINT64_MAX},
	{29, F_U64, C(out[0].total), 0, UINT64_MAX},
	{30, F_U64, C(out[0].tail_at), 0, UINT64_MAX},
	{31, F_U64, C(out[1].total), 0, UINT64_MAX},
	{32, F_U64, C(out[1].tail_at), 0, UINT64_MAX},
	/* From version 2 on. */
	C_TEXT(33, template_name),
	C_TEXT(34, template_id),
	{35, F_U32, C(template_version), 0, UINT32_MAX},
	C_TEXT(36, template_base),
	ORIGIN(command_rec, 40),
};

static const struct record_type command_types[] = {
	{"command", 2, sizeof(struct command_rec), command_fields,
	 N_OF(command_fields), NULL},
	{"command", 1, sizeof(struct command_rec), command_fields, 32, NULL},
};

#define N(m) offsetof(struct snapshot_rec, m)
#define N_TEXT(k, m)                                                           \
	{                                                                      \
		k, F_TEXT, N(m), 0, TEXT_MAX(struct snapshot_rec, m)           \
	}

static const struct field snapshot_fields[] = {
	N_TEXT(1, id),
	N_TEXT(2, environment),
	N_TEXT(3, graph),
	N_TEXT(4, name),
	N_TEXT(5, sandbox),
	N_TEXT(6, template_name),
	N_TEXT(7, template_id),
	{8, F_U32, N(template_version), 0, UINT32_MAX},
	N_TEXT(9, template_base),
	{10, F_HASH, N(image_sha256), 0, HASH_BYTES},
	{11, F_HASH, N(kernel_sha256), 0, HASH_BYTES},
	{12, F_HASH, N(sums.init), 0, HASH_BYTES},
	{13, F_U32, N(limits.vcpus), 0, UINT32_MAX},
	{14, F_U32, N(limits.memory_mib), 0, UINT32_MAX},
	{15, F_U32, N(limits.disk_mib), 0, UINT32_MAX},
	{16, F_I64, N(created_ms), 0, 0},
	{17, F_U64, N(incarnation), 0, UINT64_MAX},
	{18, F_U64, N(state_bytes), 0, UINT64_MAX},
	{19, F_U64, N(mem_bytes), 0, UINT64_MAX},
	{20, F_U64, N(disk_bytes), 0, UINT64_MAX},
	{21, F_HASH, N(sums.state), 0, HASH_BYTES},
	/* From version 2 on. */
	{22, F_HASH, N(sums.mem), 0, HASH_BYTES},
	{23, F_HASH, N(sums.disk), 0, HASH_BYTES},
	{24, F_I64, N(expires_ms), 0, 0},
	/* From version 3 on; before, key 7 had also snapshots. */
	N_TEXT(25, snapshot),
};

static const struct record_type snapshot_types[] = {
	{"snapshot", 3, sizeof(struct snapshot_rec), snapshot_fields,
	 N_OF(snapshot_fields), NULL},
	{"snapshot", 2, sizeof(struct snapshot_rec), snapshot_fields, 24, NULL},
	{"snapshot", 1, sizeof(struct snapshot_rec), snapshot_fields, 21, NULL},
};

#define P(m) offsetof(struct template_file, m)

static const struct field template_file_fields[] = {
	{1, F_TEXT, P(id), 0, TEXT_MAX(struct template_file, id)},
	{2, F_HASH, P(sha256), 0, HASH_BYTES},
	{3, F_U64, P(bytes), 0, UINT64_MAX},
	{4, F_BYTES, P(path), 0, FILE_PATH_BYTES_MAX},
};

static const struct record_type template_file_type = {
	"template file",
	1,
	sizeof(struct template_file),
	template_file_fields,
	N_OF(template_file_fields),
	NULL};

/* What codec.h says of lists. */
static_assert(sizeof(struct template_files) == sizeof(struct record_list) &&
		      offsetof(struct template_files, at) ==
			      offsetof(struct record_list, at) &&
		      offsetof(struct template_files, n) ==
			      offsetof(struct record_list, n),
	      "a list");

#define T(m) offsetof(struct template_rec, m)
#define T_TEXT(k, m)                                                           \
	{                                                                      \
		k, F_TEXT, T(m), 0, TEXT_MAX(struct template_rec, m)           \
	}

static const struct field template_fields[] = {
	T_TEXT(1, id),
	T_TEXT(2, environment),
	T_TEXT(3, graph),
	T_TEXT(4, name),
	{5, F_U32, T(version), 1, UINT32_MAX},
	T_TEXT(6, base),
	{7, F_U32, T(limits.vcpus), 0, UINT32_MAX},
	{8, F_U32, T(limits.memory_mib), 0, UINT32_MAX},
	{9, F_U32, T(limits.disk_mib), 0, UINT32_MAX},
	{10, F_U32, T(timeout_ms), 0, UINT32_MAX},
	{11, F_I64, T(created_ms), 0, 0},
	{12, F_BOOL, T(has_code), 0, 0},
	{13, F_U64, T(code_bytes), 0, TEMPLATE_CODE_BYTES_MAX},
	{14, F_HASH, T(code_sha256), 0, HASH_BYTES},
	{15, F_BOOL, T(has_config), 0, 0},
	{16, F_U64, T(config_bytes), 0, TEMPLATE_CONFIG_BYTES_MAX},
	{17, F_HASH, T(config_sha256), 0, HASH_BYTES},
	/* In version 2 only. */
	{18, F_LIST, T(files), 1, TEMPLATE_FILES_MAX},
};

/* One without files is written as version 1: the program that had no other
 * reads it, too. */
static const struct record_type template_types[] = {
	{"template", 2, sizeof(struct template_rec), template_fields,
	 N_OF(template_fields), &template_file_type},
	{"template", 1, sizeof(struct template_rec), template_fields, 17, NULL},
};

#define F(m) offsetof(struct file_rec, m)
#define F_STR(k, m)                                                            \
	{                                                                      \
		k, F_TEXT, F(m), 0, TEXT_MAX(struct file_rec, m)               \
	}

static const struct field file_fields[] = {
	F_STR(1, id),
	F_STR(2, environment),
	F_STR(3, graph),
	{4, F_HASH, F(sha256), 0, HASH_BYTES},
	{5, F_U64, F(bytes), 0, UINT64_MAX},
	{6, F_I64, F(uploaded_ms), 0, 0},
	F_STR(7, content_type),
	{8, F_BYTES, F(name), 0, FILE_NAME_BYTES_MAX},
	F_STR(9, origin_sandbox),
	{10, F_BYTES, F(origin_path), 0, FILE_PATH_BYTES_MAX},
};

static const struct record_type file_type = {
	"file", 1, sizeof(struct file_rec), file_fields, N_OF(file_fields),
	NULL};

#define K(m) offsetof(struct key_info, m)

/* is_revoked is a column: it changes without the record. */
static const struct field key_fields[] = {
	{1, F_TEXT, K(environment), 0, TEXT_MAX(struct key_info, environment)},
	{2, F_TEXT, K(name), 0, TEXT_MAX(struct key_info, name)},
	{3, F_ENUM, K(plan), PLAN_FREE, PLAN_FULL},
	{4, F_BOOL, K(is_enabled), 0, 0},
};

static const struct record_type key_type = {
	"key", 1, sizeof(struct key_info), key_fields, N_OF(key_fields), NULL};

#define E(m) offsetof(struct event_rec, m)

static const struct field event_fields[] = {
	{1, F_U32, E(from), 0, UINT8_MAX},
	{2, F_U32, E(to), 0, UINT8_MAX},
	{3, F_ENUM, E(reason), END_NONE, END_PREPARE_FAILED},
	{4, F_TEXT, E(reason_text), 0, TEXT_MAX(struct event_rec, reason_text)},
};

static const struct record_type event_type = {
	"event", 1, sizeof(struct event_rec), event_fields, N_OF(event_fields),
	NULL};

/* By the version that it has; the newest is first. */
static int decode_any(const struct record_type *types, size_t n, void *rec,
		      const void *cbor, size_t len)
{
	int rc = -ENOTSUP;

	for (size_t i = 0; i < n && rc == -ENOTSUP; i++)
		rc = codec_decode(&types[i], rec, cbor, len);
	return rc;
}

/* What stood in the place of a template's id is the snapshot's. */
static void snapshot_move(char template_id[ID_BYTES_MAX],
			  char snapshot[ID_BYTES_MAX])
{
	if (strncmp(template_id, "snp_", 4))
		return;
	memcpy(snapshot, template_id, ID_BYTES_MAX);
	memset(template_id, 0, ID_BYTES_MAX);
}

int sandbox_rec_encode(const struct sandbox_rec *r, struct bytes *out)
{
	return codec_encode(&sandbox_types[0], r, out);
}

int sandbox_rec_decode(struct sandbox_rec *r, const void *cbor, size_t len)
{
	int rc = decode_any(sandbox_types, N_OF(sandbox_types), r, cbor, len);

	if (!rc)
		snapshot_move(r->template_id, r->snapshot);
	return rc;
}

int command_rec_encode(const struct command_rec *r, struct bytes *out)
{
	return codec_encode(&command_types[0], r, out);
}

int command_rec_decode(struct command_rec *r, const void *cbor, size_t len)
{
	return decode_any(command_types, N_OF(command_types), r, cbor, len);
}

int snapshot_rec_encode(const struct snapshot_rec *r, struct bytes *out)
{
	return codec_encode(&snapshot_types[0], r, out);
}

int snapshot_rec_decode(struct snapshot_rec *r, const void *cbor, size_t len)
{
	int rc = decode_any(snapshot_types, N_OF(snapshot_types), r, cbor, len);

	if (!rc)
		snapshot_move(r->template_id, r->snapshot);
	return rc;
}

int template_rec_encode(const struct template_rec *r, struct bytes *out)
{
	return codec_encode(&template_types[r->files.n ? 0 : 1], r, out);
}

int template_rec_decode(struct template_rec *r, const void *cbor, size_t len)
{
	return decode_any(template_types, N_OF(template_types), r, cbor, len);
}

int file_rec_encode(const struct file_rec *r, struct bytes *out)
{
	return codec_encode(&file_type, r, out);
}

int file_rec_decode(struct file_rec *r, const void *cbor, size_t len)
{
	return codec_decode(&file_type, r, cbor, len);
}

int key_rec_encode(const struct key_info *r, struct bytes *out)
{
	return codec_encode(&key_type, r, out);
}

int key_rec_decode(struct key_info *r, const void *cbor, size_t len)
{
	return codec_decode(&key_type, r, cbor, len);
}

int event_rec_encode(const struct event_rec *r, struct bytes *out)
{
	return codec_encode(&event_type, r, out);
}

int event_rec_decode(struct event_rec *r, const void *cbor, size_t len)
{
	return codec_decode(&event_type, r, cbor, len);
}
