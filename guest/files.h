/*
 * Files of the workspace for the host: frames here, system calls on a thread.
 *
 * There is one call at a time.  Its steps (file_call.h) run on the one other
 * thread that init has, because a folder of a million names or a slow disk must
 * not keep init from answering; between two of them the loop sends what the
 * last one read, as far as the channel takes it, or waits for the next piece.
 * The thread and the loop never touch a call at the same time: it belongs to
 * the thread from `ask` to `told`, two event descriptors.
 *
 * The thread is init's own, so user code can neither kill nor starve it: it is
 * no target of the OOM killer and outside of the idle class that user code is
 * in.  What it writes is the user's by quota; the page cache that it fills is
 * the kernel's to take back.
 *
 * A call whose host is gone (BIND in a copy, a lost connection) is given up:
 * its step ends, nothing is told, and the next call waits for that.
 */
#ifndef HUTCH_GUEST_FILES_H
#define HUTCH_GUEST_FILES_H

#include "frame.h"

struct guest;

/* Once, in PREPARE: `root` is the tree of user code, user_id -1 keeps our own
 * ids (unit tests).  0 or -errno with *ret_what. */
int files_start(struct guest *g, const char *root, int user_id,
		const char **ret_what);
/* Before the disk is unmounted. */
void files_stop(struct guest *g);

void files_ask(struct guest *g, const struct frame *f);
void files_piece(struct guest *g, const struct frame *f);
/* The channel takes more. */
void files_room(struct guest *g);
/* Nobody wants to hear of it any more. */
void files_drop(struct guest *g);

#endif
