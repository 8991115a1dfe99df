/*
 * What a fuzz target is made of.
 *
 * It defines LLVMFuzzerTestOneInput and calls fuzz_reach() once for each
 * input that got past the first check of the code under test.  A target that
 * never reaches its parser proves nothing: at the end the counter is printed,
 * and a run in which fewer than FUZZ_REACH_PERCENT_MIN of the inputs got
 * there (or the target's own share, fuzz_reach_want) fails.
 */
#ifndef HUTCH_FUZZ_H
#define HUTCH_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_REACH_PERCENT_MIN 10

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Start of one input. */
void fuzz_begin(void);
/* At least this share of the inputs must get there. */
void fuzz_reach_want(unsigned percent);
/* This input got past the first check; further calls count once. */
void fuzz_reach(void);

#endif
