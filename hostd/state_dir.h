/*
 * The state folder: mode 0700, one daemon at a time.
 *
 *   lock         held by flock as long as the daemon lives; has its pid
 *   node         4 characters that are part of every id, made once
 *   request.key  HMAC key of request hashes (http/canon.h), made once
 *   listen       ADDR:PORT in use; not there while none is
 *   admin.sock   for the hutch command
 *   files        bytes of Files of graphs
 *   *.db         the store's          vm/  disks of running VMs: the link's
 */
#ifndef HUTCHD_STATE_DIR_H
#define HUTCHD_STATE_DIR_H

#include "err.h"
#include <stddef.h>

#define NODE_BYTES 4

/*
 * Make it if need be and lock it; the descriptor of the lock, or -1.  A folder
 * with files that are not ours and no hutch.db is refused as it is, and the
 * mode of one that holds anything foreign is never changed.
 */
int state_dir_open(const char *dir, struct err *e);

/* Would state_dir_open refuse the folder for what lies in it?  Changes
 * nothing; 0 when there is no such folder yet. */
int state_dir_check(const char *dir, struct err *e);

/* "" in `node` reads or makes the file. */
int state_dir_node(const char *dir, char node[NODE_BYTES + 1], struct err *e);

/* Whole file or none; `text` NULL removes it. */
int state_dir_write(const char *dir, const char *name, const char *text,
		    struct err *e);

/* "<dir>/<name>" */
int state_dir_path(const char *dir, const char *name, char *dst, size_t cap,
		   struct err *e);

#endif
