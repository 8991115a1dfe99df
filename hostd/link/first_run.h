/*
 * The first run in a snapshot that was just made: which pages does it touch?
 *
 * One VM is restored from the files, given its identity and a short run by its
 * lane in one request, as a run of a user is, and its hutch-vmm writes down the
 * pages that it touched until it answered.  Nothing of the answer is looked at.
 * Only for templates with a lane; a shell's run is a process, and has none.
 *
 * The file is a hint for later restores (VMM_TOUCHED in api/vmm_ctl.h), so a
 * failure here is logged, the file stays empty, and all goes on.
 */
#ifndef HUTCHD_FIRST_RUN_H
#define HUTCHD_FIRST_RUN_H

#include "template_priv.h"

struct first_run;

/* Files are borrowed until `done`, which comes once, never from within.  -1
 * with `e`: not even begun. */
int first_run_start(struct first_run **ret, struct template *t,
		    const struct cache_making *files, void (*done)(void *ctx),
		    void *ctx, struct err *e);
/* Kill, wait, no callback. */
void first_run_destroy(struct first_run *f);

#endif
