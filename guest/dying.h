/*
 * Is a process dying?  wait(2) tells of an end only after the kernel has freed
 * the memory, which takes over a minute for a large interpreter where the
 * guest's kernel is slow.  How it ended is known long before: a process whose
 * threads have all let go of their memory runs no instruction of its own any
 * more, and /proc shows its status.
 */
#ifndef HUTCH_GUEST_DYING_H
#define HUTCH_GUEST_DYING_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * `pid` is a child that was not reaped, so its number means no other process.
 * True when it is dying or dead, with its status as of wait(2).  False while
 * it lives, and also when the kernel cannot tell: wait(2) then does.
 */
bool process_is_dying(pid_t pid, int *ret_status);

/* /proc/PID/stat of one that lives: a descriptor, or -1. */
int process_stat_open(pid_t pid);
/*
 * Was it told to die, or has it begun to?  From the moment on when kill(2)
 * returns, while what it holds open still looks as if it lived.  `stat_fd` is
 * of process_stat_open; -1: false.
 */
bool process_was_killed(int stat_fd);

#endif
