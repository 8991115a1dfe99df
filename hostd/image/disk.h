/*
 * Sandbox disks: one ext4 file system made once, copied for each VM.
 *
 * 10 GiB virtual, under 1 MiB allocated: no reserved blocks, no backup
 * superblocks, all bitmaps and inode tables together, a 4 MiB journal that is
 * a hole until it is used.  Inode tables are holes too and are marked as
 * zeroed, so the guest's kernel has nothing to initialise.  Without checksums
 * in the metadata: on a soft host the guest's kernel is interpreted, and the
 * disk lives for one sandbox.  UUID, hash seed and times are fixed: the same
 * bytes each time.
 *
 * A VM's disk has no name: O_TMPFILE in the state folder, so nothing is left
 * to clean after a crash.
 */
#ifndef HUTCHD_DISK_H
#define HUTCHD_DISK_H

#include "err.h"
#include <stdint.h>

#define DISK_VIRTUAL_BYTES (10ull << 30)
/* Part of the template key: another layout, other snapshots. */
#define DISK_FORMAT "ext4-2"

/*
 * The empty file system, made in <cache>/disks when it is not there.  Worker
 * thread: runs mke2fs (20 ms).  *ret_fd is read-only and the caller's.
 */
int disk_template_open(const char *cache_dir, int *ret_fd, struct err *e);

/* A nameless copy of `src` in the folder `dir_fd`; read-write; 0 or -errno. */
int disk_copy(int src, int dir_fd, int *ret_fd, uint64_t *ret_copied);

#endif
