/* The reach counter of a fuzz target; see fuzz.h. */
#include "fuzz.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static unsigned long n_inputs, n_reached;
static unsigned percent_min = FUZZ_REACH_PERCENT_MIN;
static bool is_counted;

static void report(void)
{
	fprintf(stderr, "fuzz: %lu inputs, %lu got past the first check\n",
		n_inputs, n_reached);
	if (n_inputs && n_reached * 100 < n_inputs * percent_min) {
		fprintf(stderr, "fuzz: under %u %%: the target tests nothing\n",
			percent_min);
		_exit(1);
	}
}

void fuzz_begin(void)
{
	if (!n_inputs++)
		atexit(report);
	is_counted = false;
}

void fuzz_reach_want(unsigned percent)
{
	percent_min = percent;
}

void fuzz_reach(void)
{
	if (!is_counted)
		n_reached++;
	is_counted = true;
}
