/*
 * Paths of the workspace as clients write them.
 *
 * "a/b", "./a//b/" and "/workspace/a/b" are the same file; "" and "/workspace"
 * are the workspace.  Any bytes but NUL may be in a name.  What links do is for
 * the guest's kernel to say (guest/file_path.c); what is refused here is
 * refused without asking it: a path elsewhere, `..`, a name or a path that no
 * Linux takes.
 */
#ifndef HUTCHD_FILE_PATH_H
#define HUTCHD_FILE_PATH_H

#include "err.h"
#include "guest_proto.h"
#include <stddef.h>

struct file_path {
	char text[GP_FILE_PATH_BYTES_MAX + 1]; /* relative, NUL terminated */
	size_t len;			       /* 0 = the workspace */
};

/* 0, or -1 with `e` (ERR_PATH_INVALID). */
int file_path_clean(const void *path, size_t len, struct file_path *ret,
		    struct err *e);

#endif
