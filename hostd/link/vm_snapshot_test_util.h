/* What the tests of snapshots share: one is taken of a VM that is played, and
 * VMs begin from it. */
#ifndef HUTCHD_VM_SNAPSHOT_TEST_UTIL_H
#define HUTCHD_VM_SNAPSHOT_TEST_UTIL_H

#include "snapshot.h"
#include "vm_test_util.h"

#define ID	 "snp_test"
#define SHORT_MS 300
#define LONG_MS	 10000

/* What came of the snapshot. */
extern struct taken {
	int n;
	int rc;
	char error[REASON_BYTES_MAX];
	struct snapshot_result r;
} taken;

int n_folders(void);
void take(struct seen *s); /* an `on_start` */
/* On a busy host nothing but a deadline that is waited for is short. */
void times_set(int64_t ms);
int setup_patient(void **state);
/* Its end may come after the VM's: files take a while. */
void wait_taken(void);
void remove_all(void);
/* A VM that is copied while its command runs, and ends well. */
void take_good(void);
struct snapshot_from from_taken(void);
int begin_from(struct seen *s, const struct snapshot_from *f, struct err *e);
/* It ends before it is bound, and says why. */
void begins_not(const struct snapshot_from *f, const char *why);
/* `fn` and `ctx` of vm_snapshot, for `taken`. */
void on_taken(void *ctx, int rc, const char *error,
	      const struct snapshot_result *r);

#endif
