/*
 * The guest kernel's command line: the one place where the defaults of each
 * kind of host are written down (cmdline.c).
 */
#ifndef HUTCH_CMDLINE_H
#define HUTCH_CMDLINE_H

#include "../options.h"
#include <stdbool.h>

/* Default line, one device word for each window, and the owner's additions.
 * dst: CMDLINE_BYTES_MAX + 1 bytes. */
int cmdline_build(char *dst, bool is_soft, unsigned n_devices, const char *more,
		  struct err *e);

#endif
