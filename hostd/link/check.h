/*
 * Looking at everything a snapshot depends on: files, their hashes, the key,
 * and the entry in the cache.  The work of a worker thread.
 */
#ifndef HUTCHD_CHECK_H
#define HUTCHD_CHECK_H

#include "template_priv.h"
#include "work.h"

struct check {
	struct job job;
	struct template *t; /* the loop thread's */
	struct cache cache;
	const char *images_dir, *vmm_path, *init_path; /* the link's */
	struct key_inputs inputs;		       /* shape is given */
	bool is_verify;	  /* read every byte, whatever stamps say */
	bool is_question; /* damage is the answer, not a reason to make */
	char key[KEY_HEX_BYTES];
	struct bytes manifest;		 /* owned */
	int kernel_fd, init_fd, root_fd; /* owned, read-only */
	struct snapshot_files files;	 /* owned */
	int rc; /* 0 ready, -ENOENT to be made, else failed */
	struct err e;
};

void check_init(struct check *c, struct link *l, const struct shape *s);
void check_finish(struct check *c);
void check_run(struct check *c);
/* Key, manifest and images become the template's; the snapshot's files stay. */
void check_give(struct check *c, struct template *t);

#endif
