/*
 * Mounts: init's own view and the view of user code.
 *
 * Init's view (root = /dev/vda, read-only, then:)
 *
 *   /proc /sys /sys/fs/cgroup /dev    for init
 *   /run          tmpfs: machine-id, upper folder when there is no disk
 *   /template     /dev/vdb, erofs, read-only: the template's root
 *   /disk         /dev/vdc, ext4: upper/ work/ workspace/
 *   /newroot      overlay of /template and the upper folder, and below it
 *      /workspace    bind of /disk/workspace, owner "sandbox"
 *      /dev          tmpfs with null zero full random urandom tty ptmx
 *      /dev/pts /dev/shm /tmp /run    fresh, sized
 *      /sys          sysfs, read-only
 *      /etc/machine-id   bind of /run/machine-id
 *
 * User code's view: the nest's mount namespace, where /newroot is the root,
 * /proc is that of the nest's pid namespace, and nothing else exists.
 *
 * Everything here runs before the snapshot; nothing here is called from BIND
 * or RUN.
 */
#ifndef HUTCH_GUEST_WORLD_H
#define HUTCH_GUEST_WORLD_H

#include <stdbool.h>
#include <stddef.h>

/* Where the tree of user code is built. */
#define WORLD_ROOT "/newroot"

struct world {
	int machine_id; /* open for writing, owned */
	int run_dir;	/* the sandbox's /run/hutch, owned */
	bool has_disk, has_quota;
};

/* What init itself needs; called once at the start. */
int world_early(char *why, size_t why_cap);
/* The sandbox's tree under /newroot; 0 or -errno with a sentence. */
int world_build(struct world *w, bool want_disk, char *why, size_t why_cap);
/* In the nest: make /newroot the root; nest_start's `enter`. */
int world_enter(const char **ret_what);
/* Limit of the disk for user code; 0 = none. -EOPNOTSUPP without quota. */
int world_disk_limit(const struct world *w, unsigned long long bytes);
/* Before power-off: everything on the disk, and the disk clean. */
void world_close(const struct world *w);

#endif
