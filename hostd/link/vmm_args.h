/* Starting the process of a struct vmm; used by vmm.c only. */
#ifndef HUTCHD_VMM_ARGS_H
#define HUTCHD_VMM_ARGS_H

#include "vmm.h"

/* 0 or -1 with `e`.  control_fd, log_fd: the child's ends, borrowed. */
int vmm_spawn(const struct link *l, const struct vmm_args *a, int control_fd,
	      int log_fd, uint32_t uid, pid_t *ret_pid, int *ret_pidfd,
	      struct err *e);

#endif
