/*
 * Every clock of the daemon, so that tests can move them.
 *
 * wall: Unix milliseconds, for records.  mono: milliseconds that never go
 * back, for time-outs.  A test build of the daemon (clock_movable.c linked
 * in place of clock.c) reads the offset to add to both from the file named by
 * HUTCH_TEST_CLOCK (signed milliseconds, text).  That build is a program of its
 * own, build/hutchd-movable, which `make install` does not know: nothing that
 * a person sets makes the daemon's clock move.
 */
#ifndef HUTCHD_CLOCK_H
#define HUTCHD_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

int64_t clock_wall_ms(void);
int64_t clock_mono_ms(void);
int64_t clock_mono_us(void);
/* Unix milliseconds as the host's files have them, never moved: for the age of
 * what other daemons share. */
int64_t clock_file_ms(void);
/* True in a test build: nobody may sleep long on a computed time. */
bool clock_is_movable(void);

#endif
