/* For the tests of VMs that wait: from the pool to the end, with a script. */
#ifndef HUTCHD_VM_POOL_TEST_UTIL_H
#define HUTCHD_VM_POOL_TEST_UTIL_H

#include "template_priv.h"
#include "vm_test_util.h"

extern const struct shape test_shape; /* of test_spec */

/* What came of it while it was the pool's. */
struct pooled {
	struct vm *vm;
	struct seen run; /* and after it was claimed */
	unsigned waiting, gone;
	enum end_reason why;
	char text[REASON_BYTES_MAX];
	void (*then)(struct pooled *p); /* called when it waits */
	size_t code_len;		/* of the run; 0 = 1 */
	unsigned timeout_ms;		/* of the run; 0 = 100 */
};
extern const struct vm_pool_ops pooled_ops;

/* Put the script into the cache and restore a VM for the pool. */
void pooled_begin(struct pooled *p, const char *script);
/* From the start to the end, whoever hears of that. */
void pooled_play(struct pooled *p, const char *script);
/* Scripts that end before a claim: how the pool hears of that. */
struct pooled_lost {
	const char *script, *text; /* a part of the reason's */
	unsigned waiting;
	enum end_reason why;
};
void pooled_lost_check(const struct pooled_lost *t, size_t n);
/* Nothing is left of it: no process, no uid. */
void pooled_clean(void);
/* Claim it for a RUN; for `then`. */
void pooled_claim(struct pooled *p);
void pooled_stop(struct pooled *p); /* only leaves the loop */
/* What is restored from now on plays this. */
void script_swap(const char *script);
/* For `then`: claim it, and let another that is restored in its place be a good
 * one.  late: when what it says after it waits is there, unread; dead: it was
 * killed. */
void pooled_claim_swap(struct pooled *p);
void pooled_claim_late(struct pooled *p);
void pooled_claim_dead(struct pooled *p);

#endif
