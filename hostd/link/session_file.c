/*
 * Frames of a call on files, checked; see session.h.
 *
 * What was asked for bounds what may come: so many names, in rising order, each
 * one component of a path; so many bytes, from the offset on and without a gap;
 * another piece only while the write has bytes that were not given.
 */
#include "gp_up.h"
#include "session_priv.h"
#include <errno.h>

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

int session_file_begin(struct session *s, uint64_t number,
		       const struct vm_file *f, size_t given)
{
	if (s->file.number)
		return -EBUSY;
	if (!number)
		return -EINVAL;
	s->file = (struct session_file){
		.number = number,
		.op = f->op,
		.offset = f->offset,
		.limit = f->limit,
		.left = f->data_len + f->more - given,
		.last_len = f->after_len,
	};
	if (f->after_len)
		memcpy(s->file.last, f->after, f->after_len);
	return 0;
}

/* ---- names -------------------------------------------------------------- */

static const struct gp_rule entry_rules[] = {
	{GP_ENTRY_NAME, GP_KIND_BYTES, false, 1, GP_FILE_NAME_BYTES_MAX},
	{GP_ENTRY_TYPE, GP_KIND_UINT, true, GP_TYPE_FILE, GP_TYPE_DEVICE},
	{GP_ENTRY_SIZE, GP_KIND_UINT, true, 0, SESSION_COUNT_MAX},
	{GP_ENTRY_MTIME_MS, GP_KIND_UINT, true, 0, SESSION_COUNT_MAX},
	{GP_ENTRY_MODE, GP_KIND_UINT, true, 0, 07777},
};

/* Behind the last one, in the order of bytes. */
static bool is_behind(const struct session_file *file,
		      const struct gp_value *name)
{
	size_t n = name->len < file->last_len ? name->len : file->last_len;
	int cmp = memcmp(name->data, file->last, n);

	return cmp ? cmp > 0 : name->len > file->last_len;
}

/* NULL = it can be a name there. */
static const char *name_check(const struct session_file *file,
			      const struct gp_value *name)
{
	if (!name->is_set)
		return file->got ? "an entry of the path itself among others"
				 : NULL;
	if (file->is_alone)
		return "an entry beside that of the path itself";
	if (memchr(name->data, 0, name->len) ||
	    memchr(name->data, '/', name->len) ||
	    (name->len == 1 && name->data[0] == '.') ||
	    (name->len == 2 && !memcmp(name->data, "..", 2)))
		return "a name that no file can have";
	if (!is_behind(file, name))
		return "names are not in order";
	return NULL;
}

int session_file_entry(struct session *s, const struct frame *f,
		       struct session_cmd *c)
{
	struct session_file *file = &s->file;
	const struct gp_value *name;
	struct vm_file_entry e;
	struct gp_map m;
	const char *why;

	(void)c;
	if (file->op != GP_FILE_LIST)
		return session_broken(s, f, "an entry where none was asked");
	if (gp_map_decode(f->payload, f->head.len, entry_rules,
			  N_OF(entry_rules), &m, &why))
		return session_broken(s, f, why);
	name = &m.v[GP_ENTRY_NAME];
	why = file->got == file->limit ? "more entries than were asked for"
				       : name_check(file, name);
	if (why)
		return session_broken(s, f, why);
	file->got++;
	file->is_alone = !name->is_set;
	file->last_len = name->len;
	if (name->len)
		memcpy(file->last, name->data, name->len);
	e = (struct vm_file_entry){
		.name = name->data,
		.name_len = name->len,
		.type = (enum gp_file_type)m.v[GP_ENTRY_TYPE].u,
		.size = m.v[GP_ENTRY_SIZE].u,
		.mtime_ms = m.v[GP_ENTRY_MTIME_MS].u,
		.mode = (uint32_t)m.v[GP_ENTRY_MODE].u,
	};
	s->ops->file_entry(s->ctx, file->number, &e);
	return 0;
}

/* ---- bytes -------------------------------------------------------------- */

int session_file_data(struct session *s, const struct frame *f,
		      struct session_cmd *c)
{
	struct session_file *file = &s->file;
	struct gp_file_head h;
	size_t len;

	(void)c;
	if (file->op != GP_FILE_READ)
		return session_broken(s, f, "bytes where none were asked");
	if (f->head.len <= sizeof(h))
		return session_broken(s, f, "a piece of a file without bytes");
	memcpy(&h, f->payload, sizeof(h));
	len = f->head.len - sizeof(h);
	if (len > GP_FILE_DATA_BYTES_MAX)
		return session_broken(s, f, "a piece of a file over its cap");
	if (h.offset != file->offset + file->got)
		return session_broken(s, f, "a gap in a file");
	if (len > file->limit - file->got)
		return session_broken(s, f, "more bytes than were asked for");
	file->got += len;
	s->ops->file_data(s->ctx, file->number, f->payload + sizeof(h), len);
	return 0;
}

int session_file_more(struct session *s, const struct frame *f,
		      struct session_cmd *c)
{
	struct session_file *file = &s->file;
	struct gp_map m;
	const char *why;
	size_t n;

	(void)c;
	if (file->op != GP_FILE_WRITE || !file->left)
		return session_broken(s, f, "no piece is left to be given");
	if (gp_map_decode(f->payload, f->head.len, NULL, 0, &m, &why))
		return session_broken(s, f, why);
	n = file->left < GP_FILE_PIECE_BYTES_MAX ? (size_t)file->left
						 : GP_FILE_PIECE_BYTES_MAX;
	file->left -= n;
	s->ops->file_more(s->ctx, file->number, n);
	return 0;
}

/* ---- the end ------------------------------------------------------------ */

static const struct gp_rule done_rules[] = {
	{GP_DONE_HOW, GP_KIND_UINT, true, GP_FILE_OK, GP_FILE_FAILED},
	{GP_DONE_ERROR, GP_KIND_TEXT, false, 0, GP_TEXT_BYTES_MAX},
	{GP_DONE_SIZE, GP_KIND_UINT, false, 0, SESSION_COUNT_MAX},
	{GP_DONE_MORE, GP_KIND_BOOL, false, 0, 1},
	{GP_DONE_STAMP, GP_KIND_BYTES, false, GP_FILE_STAMP_BYTES,
	 GP_FILE_STAMP_BYTES},
};

/* What says that all is well must be able to be so; NULL = it can. */
static const char *done_check(const struct session_file *file,
			      const struct gp_map *m)
{
	if (m->v[GP_DONE_HOW].u != GP_FILE_OK)
		return NULL;
	if (file->op == GP_FILE_WRITE && file->left)
		return "a write ended before all of it was given";
	if (file->op == GP_FILE_READ && file->got &&
	    m->v[GP_DONE_SIZE].u < file->offset + file->got)
		return "a file is shorter than what was read of it";
	if (m->v[GP_DONE_STAMP].is_set && file->op != GP_FILE_READ)
		return "a stamp of what was not read";
	if (m->v[GP_DONE_MORE].u &&
	    (file->op != GP_FILE_LIST || file->is_alone))
		return "more names where there are none";
	return NULL;
}

int session_file_done(struct session *s, const struct frame *f,
		      struct session_cmd *c)
{
	uint64_t number = s->file.number;
	char text[GP_TEXT_BYTES_MAX + 1];
	struct vm_file_end end;
	struct gp_map m;
	const char *why;

	(void)c;
	if (gp_map_decode(f->payload, f->head.len, done_rules, N_OF(done_rules),
			  &m, &why))
		return session_broken(s, f, why);
	why = done_check(&s->file, &m);
	if (why)
		return session_broken(s, f, why);
	gp_text_clean(text, sizeof(text), m.v[GP_DONE_ERROR].data,
		      m.v[GP_DONE_ERROR].len, false);
	end = (struct vm_file_end){
		.how = (enum gp_file_how)m.v[GP_DONE_HOW].u,
		.error = text[0] ? text : "the guest gave no reason",
		.size = m.v[GP_DONE_SIZE].u,
		.has_more = m.v[GP_DONE_MORE].u,
		.has_stamp = m.v[GP_DONE_STAMP].is_set,
	};
	if (end.has_stamp)
		memcpy(end.stamp, m.v[GP_DONE_STAMP].data, sizeof(end.stamp));
	/* Another may be begun from within. */
	s->file = (struct session_file){0};
	s->ops->file_done(s->ctx, number, &end);
	return 0;
}
