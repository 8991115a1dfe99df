/*
 * One call on the workspace, step by step: list, read, write, delete.
 *
 * Runs on init's file thread (files.c) with the ids of the sandbox's user and
 * no capability, so the kernel decides what the user may do, quota counts what
 * is written, and init goes on meanwhile.  A step is bounded: it moves at most
 * one piece, and looks at the time between system calls.
 *
 * Paths are resolved by the kernel as user code sees them (RESOLVE_IN_ROOT
 * below the sandbox's root, no magic links): a link to /workspace/x works, a
 * link out of the workspace is found out by the mount in which it ends, and
 * there is no moment between check and use, because what is used is the
 * descriptor that was checked.  Only regular files are opened, and after their
 * type is known (O_PATH first): the other end of a FIFO notices nothing, and no
 * device is touched.
 *
 * A file is written without a name (O_TMPFILE) and gets it at the end, so it is
 * whole or not there, and what is given up leaves nothing.  A name that is a
 * link is replaced, not followed, as rename does.
 */
#ifndef HUTCH_GUEST_FILE_CALL_H
#define HUTCH_GUEST_FILE_CALL_H

#include "guest_proto.h"
#include "wire.h"
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The sandbox's root, and in it the mount that calls must end in. */
struct file_root {
	int fd; /* owned; -1 = none */
	uint64_t mount;
};

struct file_entry {
	uint8_t type;
	uint16_t mode;
	uint8_t name_len; /* 0 = the path itself */
	uint64_t size, mtime_ms;
};

/* What a file is at a moment: another one, or bytes written to it, is another
 * stamp, unless the clock did not move between. */
struct file_stamp {
	uint64_t inode, size;
	int64_t ctime_ns, mtime_ns;
};
static_assert(sizeof(struct file_stamp) == GP_FILE_STAMP_BYTES, "wire");

/* One piece of a file, or the names of a listing: never both. */
union file_room {
	/* aligned for the disk */
	_Alignas(4096) uint8_t piece[GP_FILE_PIECE_BYTES_MAX];
	char names[GP_FILE_ENTRIES_MAX][GP_FILE_NAME_BYTES_MAX + 1];
};

struct file_call {
	const struct file_root *root;
	union file_room *room; /* borrowed */
	enum gp_file_op op;
	/* below the root: "workspace", or "workspace/..." */
	char path[sizeof("workspace/") + GP_FILE_PATH_BYTES_MAX];
	uint64_t offset, limit, size;
	bool is_whole;
	char after[GP_FILE_NAME_BYTES_MAX + 1];
	uint64_t deadline_ns;

	int fd, folder;	  /* owned; -1 = none */
	unsigned mode;	  /* of the file that is written */
	uint64_t moved;	  /* bytes, read or written */
	size_t piece_len; /* in: to be written; out: read */
	bool is_begun, is_direct;

	/* What the last step came to. */
	bool is_done;
	enum gp_file_how how;
	char error[GP_TEXT_BYTES_MAX];
	uint64_t total; /* size of the file */
	/* Of what is read: now, and when it was opened. */
	bool has_stamp;
	struct file_stamp stamp, stamp_before;
	struct file_entry entries[GP_FILE_ENTRIES_MAX];
	uint16_t order[GP_FILE_ENTRIES_MAX]; /* into names and entries */
	size_t n_entries;
	bool has_more;
};

/* Root of the sandbox as its user sees it, which has a folder "workspace".
 * 0 or -errno. */
int file_root_open(struct file_root *r, const char *path);
/* The calling thread becomes the user, for good; 0 or -errno. */
int file_thread_drop(int id);

/* Zeroes it and takes the payload's values; 0 or -EPROTO with `why`.  The first
 * piece of a write is in `room` then. */
int file_call_init(struct file_call *c, const struct file_root *root,
		   union file_room *room, const struct wire_map *m, char *why,
		   size_t why_cap);
/*
 * One step.  After it is_done says whether that was the last; a read has
 * piece_len bytes in `room`, also with the last step; a write wants the next
 * piece in `room`.
 */
void file_call_step(struct file_call *c);
/* It ends with what was done up to now. */
void file_call_give_up(struct file_call *c);

#endif
