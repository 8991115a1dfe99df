/* What the parts of a call share: file_call.c, file_path.c, file_list.c. */
#ifndef HUTCH_GUEST_FILE_CALL_PRIV_H
#define HUTCH_GUEST_FILE_CALL_PRIV_H

#include "file_call.h"
#include <sys/stat.h>

/* Below the sandbox's root. */
#define FILE_WORKSPACE "workspace"

/* ---- file_path.c -------------------------------------------------------- */

/* As user code sees it; a descriptor or -errno. */
int file_open_below(const struct file_root *r, const char *path, int flags);
/* What is it, and in which mount?  0 or -errno. */
int file_look(int fd, struct statx *ret);
/* Both; -EXDEV: it is outside of the workspace. */
int file_open_inside(const struct file_root *r, const char *path, int flags,
		     struct statx *st);
/* The folder that the path's last name is in, made when `is_made`: a descriptor
 * or -errno; *ret_name points into the path. */
int file_parent_open(struct file_call *c, bool is_made, const char **ret_name);
bool file_is_late(const struct file_call *c);

/* ---- file_list.c -------------------------------------------------------- */

void file_list_step(struct file_call *c);

/* ---- file_call.c -------------------------------------------------------- */

/* That was its last step: 0 or -errno. */
void file_call_done(struct file_call *c, int rc);

#endif
