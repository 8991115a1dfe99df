/*
 * For the tests of vm.c: a link whose VMM is hostile_vmm.
 *
 * Each case is a script (hostile_vmm.c) put into a cache entry as its state
 * file, so that the whole way is used: check, cache, disk copy, process,
 * channel, deadlines, reaping.  Deadlines are shortened by the test.
 */
#ifndef HUTCHD_VM_TEST_UTIL_H
#define HUTCHD_VM_TEST_UTIL_H

#include "../clock.h"
#include "link_test_util.h"
#include "vm.h"
#include <setjmp.h>
#include <stdarg.h>
/* after the headers it needs */
#include <cmocka.h>

/* What came of a VM; the context of `ops`. */
struct seen {
	struct vm *vm;
	unsigned bound, started, output, ended, stopped, gone;
	enum gp_end how;
	char result[64], error[128];
	enum end_reason why;
	char text[REASON_BYTES_MAX];
	int kill_on_start; /* 1 vm_kill, 2 vm_destroy */
	int kill_on_bound; /* vm_kill */
	int again_on_end;  /* another vm_run */
	int destroy_on_end;
	int stop_on_end; /* vm_stop; what came of it: */
	int rc;
	/* In `bound`; may be NULL. */
	void (*on_bind)(struct seen *s);
	void (*on_more)(struct seen *s, size_t len);
	unsigned file_done;
	enum gp_file_how file_how;
	int stop_on_file; /* vm_stop when a call on files is done */
	/* In `started`, after kill_on_start; may be NULL. */
	void (*on_start)(struct seen *s);
};

extern const struct vm_ops ops;
extern const struct vm_spec test_spec;
extern const char *const *run_env;
extern size_t run_code_len; /* of the command that play() gives */

int setup(void **state); /* ends by link_remove */
/* What an entry's file of touched pages holds; NULL = it has none. */
extern const char *entry_touched;
/* The script of the VMs from now on. */
void entry_put(const char *script);
/* Plays `script` until the VM is gone. */
void play(const char *script, struct seen *s);
unsigned fds_open(void);
/* As many are open, or soon will be: a worker closes what it had open a little
 * after its work is seen.  A failure says what is open. */
void fds_are(unsigned want);

#define SECRET_BYTES 24
/* So that what is looked for is nowhere itself. */
#define MASK		     0x5a
#define SECRET_PAD_BYTES_MAX 60000
#define SECRET_TEXT_BYTES    (SECRET_PAD_BYTES_MAX + 2 * SECRET_BYTES + 4)
/* "B=", so many 'x' and a secret of its own, for env; it is in memory now. */
void secret_put(char text[SECRET_TEXT_BYTES], size_t pad,
		uint8_t masked[SECRET_BYTES]);
/* How often a text, each byte of it masked, is in this process's memory. */
unsigned memory_count(const uint8_t masked[SECRET_BYTES]);

#endif
