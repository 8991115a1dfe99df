/*
 * Named moments at which a process can be made to die, for tests of what a
 * death leaves behind.
 *
 * They are compiled in always, so that what is tested is what runs, and cost a
 * comparison.  Armed they are by who starts the process and by nobody else:
 * HUTCH_DIE_AT of hutchd's environment, which hands the VMM's on as --die-at.
 * No request, setting or guest reaches them, and all that one can do is end or
 * halt its own process.
 *
 *   NAME        the process kills itself by SIGKILL when it comes by
 *   NAME:halt   it stops itself by SIGSTOP, once: another can be killed now
 *
 * What the two sides do at each of them is in tests/system/test_27_steps.py,
 * those of a user's snapshot in test_27_snapshots.py, those of a template's
 * making in hostd/link/maker_die_test.c.
 */
#ifndef HUTCH_FAULT_H
#define HUTCH_FAULT_H

#include "err.h"

enum fault_side { FAULT_OF_HUTCHD, FAULT_OF_VMM };

/*
 * Commits (hostd/engine): `write` is before the store has it, `written` when it
 * is durable and nothing follows from it yet.  For the rest a name is what has
 * just happened, except the VMM's verbs in the present: asked for, not done.
 */
/* clang-format off */
#define FAULT_TABLE(F)                                                         \
	F(HUTCHD, BEGIN_WRITE, "begin.write") /* first record, with the key */ \
	F(HUTCHD, BEGIN_WRITTEN, "begin.written")                              \
	F(HUTCHD, WRITE_STARTING, "write.starting") /* a resume */             \
	F(HUTCHD, WRITTEN_STARTING, "written.starting")                        \
	F(HUTCHD, WRITE_RUNNING, "write.running")                              \
	F(HUTCHD, WRITTEN_RUNNING, "written.running")                          \
	F(HUTCHD, WRITE_STOPPING, "write.stopping")                            \
	F(HUTCHD, WRITTEN_STOPPING, "written.stopping")                        \
	F(HUTCHD, WRITE_STOPPED, "write.stopped")                              \
	F(HUTCHD, WRITTEN_STOPPED, "written.stopped")                          \
	F(HUTCHD, WRITE_DESTROYING, "write.destroying") /* and a run's end */  \
	F(HUTCHD, WRITTEN_DESTROYING, "written.destroying")                    \
	F(HUTCHD, WRITTEN_DESTROYED, "written.destroyed")                      \
	/* a VM starts, from a template's snapshot or its own (vm_start.c) */  \
	F(HUTCHD, START_DISK, "start.disk") /* all is open, no process */      \
	F(HUTCHD, START_SPAWNED, "start.spawned")                              \
	F(HUTCHD, START_STARTED, "start.started") /* said the VMM */           \
	F(HUTCHD, START_GIVEN, "start.given") /* BIND was sent */              \
	F(HUTCHD, START_BOUND, "start.bound") /* said the guest */             \
	F(HUTCHD, RESUME_USED, "resume.used") /* its memory is removed */      \
	/* it waits in the pool, and is claimed (vm_pool.c) */                 \
	F(HUTCHD, POOL_BOUND, "pool.bound")                                    \
	F(HUTCHD, POOL_PAUSED, "pool.paused")                                  \
	F(HUTCHD, CLAIM_RESERVED, "claim.reserved")                            \
	F(HUTCHD, CLAIM_TAKEN, "claim.taken")                                  \
	F(HUTCHD, CLAIM_GIVEN, "claim.given") /* RESUME, or the run */         \
	F(HUTCHD, CLAIM_RESUMED, "claim.resumed") /* and it was answered */    \
	/* it stops and is kept (vm_stop.c) */                                 \
	F(HUTCHD, STOP_ASKED, "stop.asked") /* PING was sent */                \
	F(HUTCHD, STOP_PONGED, "stop.ponged")                                  \
	F(HUTCHD, STOP_PAUSED, "stop.paused")                                  \
	F(HUTCHD, STOP_FILES, "stop.files") /* SNAPSHOT was asked for */       \
	F(HUTCHD, STOP_SAVED, "stop.saved")                                    \
	F(HUTCHD, STOP_NAMED, "stop.named") /* the disk; nothing is synced */  \
	F(HUTCHD, STOP_SYNCED, "stop.synced")                                  \
	F(HUTCHD, STOP_KEPT, "stop.kept") /* its VM shall end */               \
	/* a user's snapshot is taken (link/vm_snapshot.c, snapshot.c) */      \
	F(HUTCHD, SNAP_ASKED, "snap.asked") /* HOLD was sent */                \
	F(HUTCHD, SNAP_HELD, "snap.held")                                      \
	F(HUTCHD, SNAP_PAUSED, "snap.paused")                                  \
	F(HUTCHD, SNAP_FILES, "snap.files") /* SNAPSHOT was asked for */       \
	F(HUTCHD, SNAP_SAVED, "snap.saved")                                    \
	F(HUTCHD, SNAP_COPIED, "snap.copied") /* the disk, and all files */    \
	F(HUTCHD, SNAP_LET_GO, "snap.let_go") /* the VM goes on */             \
	F(HUTCHD, SNAP_SYNCED, "snap.synced") /* whole, under .new-ID */       \
	F(HUTCHD, SNAP_NAMED, "snap.named") /* before the fsync of that */     \
	F(HUTCHD, SNAP_WRITE, "snap.write") /* the record */                   \
	F(HUTCHD, SNAP_WRITTEN, "snap.written")                                \
	/* a sandbox begins from one (vm_from.c); then `start...` */           \
	F(HUTCHD, FROM_OPENED, "from.opened")                                  \
	F(HUTCHD, FROM_COPIED, "from.copied") /* its disk */                   \
	/* one is deleted */                                                   \
	F(HUTCHD, SNAP_DELETE, "snap.delete")                                  \
	F(HUTCHD, SNAP_DELETED, "snap.deleted") /* the record */               \
	F(HUTCHD, REMOVE_PART, "remove.part") /* a file of its folder */       \
	F(HUTCHD, SNAP_REMOVED, "snap.removed") /* all of them */              \
	/* a File comes to a graph (blob/, engine/), and goes */               \
	F(HUTCHD, FILE_SEALED, "file.sealed") /* whole, without a name */      \
	F(HUTCHD, FILE_LINKED, "file.linked") /* before the fsync of that */   \
	F(HUTCHD, FILE_NAMED, "file.named")                                   \
	F(HUTCHD, FILE_WRITE, "file.write") /* the record */                   \
	F(HUTCHD, FILE_WRITTEN, "file.written")                                \
	F(HUTCHD, FILE_DELETED, "file.deleted") /* the record */               \
	F(HUTCHD, FILE_REMOVED, "file.removed") /* and the bytes */            \
	/* one comes into a workspace */                                       \
	F(HUTCHD, IMPORT_DONE, "import.done") /* the guest has it */           \
	F(HUTCHD, IMPORT_WRITTEN, "import.written") /* its key */              \
	F(HUTCHD, FILL_DONE, "fill.done") /* all Files of a new sandbox */     \
	/* a template's snapshot is made (maker.c, cache.c) */                 \
	F(HUTCHD, MAKE_DISK, "make.disk")                                      \
	F(HUTCHD, MAKE_BOOTED, "make.booted")                                  \
	F(HUTCHD, MAKE_PAUSED, "make.paused")                                  \
	F(HUTCHD, MAKE_SAVED, "make.saved")                                    \
	F(HUTCHD, MAKE_QUIT, "make.quit") /* its VM is gone */                 \
	F(HUTCHD, MAKE_SEALED, "make.sealed") /* three files, no meta.json */  \
	F(HUTCHD, MAKE_SYNCED, "make.synced") /* whole, under .new-KEY */      \
	F(HUTCHD, MAKE_MOVED, "make.moved") /* the old one is .old-KEY */      \
	F(HUTCHD, MAKE_NAMED, "make.named") /* before the fsync of that */     \
	/* hutch-vmm: the start */                                             \
	F(VMM, VMM_OPENED, "vmm.opened") /* nothing is given up yet */         \
	F(VMM, VMM_CONFINED, "vmm.confined")                                   \
	F(VMM, VMM_MAPPED, "vmm.mapped") /* a snapshot's memory */             \
	F(VMM, VMM_LOADED, "vmm.loaded") /* and its state */                   \
	F(VMM, VMM_READY, "vmm.ready") /* before the first instruction */      \
	F(VMM, VMM_BEGUN, "vmm.begun") /* STARTED is not told yet */           \
	/* requests: read, and done but not answered */                        \
	F(VMM, VMM_PAUSE, "vmm.pause")                                         \
	F(VMM, VMM_PAUSED, "vmm.paused")                                       \
	F(VMM, VMM_RESUME, "vmm.resume")                                       \
	F(VMM, VMM_RESUMED, "vmm.resumed")                                     \
	F(VMM, VMM_SAVE, "vmm.save")                                           \
	F(VMM, VMM_SAVE_MEMORY, "vmm.save_memory") /* a part is written */     \
	F(VMM, VMM_SAVE_STATE, "vmm.save_state") /* all of it; no state */     \
	F(VMM, VMM_SAVED, "vmm.saved")                                         \
	F(VMM, VMM_RUN, "vmm.run") /* by the lane: the last piece is in */     \
	F(VMM, VMM_RUNNING, "vmm.running")                                     \
	F(VMM, VMM_ANSWER, "vmm.answer") /* it is there, and not told */
/* clang-format on */

enum fault {
	FAULT_NONE = 0,
#define F(side, id, name) FAULT_##id,
	FAULT_TABLE(F)
#undef F
};

/*
 * Before threads start: `text` as above is armed in this process, which is of
 * `side`.  1 = it is; 0 = it is one of the other side, and nothing is armed;
 * -1 with `e`: there is none of that name.
 */
int fault_arm(enum fault_side side, const char *text, struct err *e);

/* Any thread, also a confined one: dies here when this one is armed. */
static inline void fault_point(enum fault f);

/* ---- its inside ------------------------------------------------------- */

extern enum fault fault_armed;
void fault_hit(void);

static inline void fault_point(enum fault f)
{
	if (__builtin_expect(
		    f == __atomic_load_n(&fault_armed, __ATOMIC_RELAXED), 0))
		fault_hit();
}

#endif
