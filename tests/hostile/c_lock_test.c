/*
 * Hostile case C15: one image, two VMs.  hutch-vmm's own opening of a disk
 * (options_open.c) refuses the second, whether the first is another process
 * or this one, and takes the image once the first is gone.
 */
#include "../../vmm/options_open.c"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
/* cmocka wants some of the above first */
#include <cmocka.h>

static int image;
static char path[64];

static int up(void **state)
{
	(void)state;
	image = memfd_create("image", MFD_CLOEXEC);
	assert_int_equal(ftruncate(image, 1 << 20), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", image);
	return 0;
}

static int down(void **state)
{
	(void)state;
	close(image);
	return 0;
}

static int take(struct disk_options *d, bool is_read_only, struct err *e)
{
	*d = (struct disk_options){
		.src = {.path = path, .fd = -1, .is_given = true},
		.is_read_only = is_read_only,
	};
	return open_disk(d, 1, e);
}

static void c15_one_image_two_vms(void **state)
{
	struct disk_options one, two;
	struct err e;

	(void)state;
	for (int i = 0; i < 4; i++) {
		bool one_ro = i & 1, two_ro = i & 2;

		e = (struct err){0};
		assert_int_equal(take(&one, one_ro, &e), 0);
		assert_int_equal(one.bytes, 1 << 20);
		if (one_ro && two_ro) { /* many VMs read one template */
			assert_int_equal(take(&two, two_ro, &e), 0);
		} else {
			assert_int_equal(take(&two, two_ro, &e), -1);
			assert_int_equal(e.code, ERR_INVALID_REQUEST);
			assert_string_equal(e.param, "disk");
			assert_string_equal(
				e.text, two_ro ? "disk 1 is written by "
						 "another VM"
					       : "disk 1 is used by another "
						 "VM");
		}
		close(two.src.fd);
		close(one.src.fd);
		assert_int_equal(take(&two, two_ro, &e), 0);
		close(two.src.fd);
	}
}

/* By descriptor, as the daemon gives it: the same answers. */
static void c15_by_descriptor(void **state)
{
	struct disk_options one, two = {0};
	struct err e = {0};
	int fd;

	(void)state;
	assert_int_equal(take(&one, false, &e), 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	two.src = (struct source){.fd = fd, .is_given = true};
	assert_int_equal(open_disk(&two, 0, &e), -1);
	assert_string_equal(e.text, "disk 0 is used by another VM");
	close(one.src.fd);
	assert_int_equal(open_disk(&two, 0, &e), 0);
	close(fd);
}

/* The other VM is a process; its end, however sudden, frees the image. */
static void c15_until_the_other_ends(void **state)
{
	struct disk_options d;
	struct err e = {0};
	int ready[2], status;
	char c;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		c = take(&d, false, &e) == 0 ? 'y' : 'n';
		if (write(ready[1], &c, 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(c, 'y');
	assert_int_equal(take(&d, false, &e), -1);
	close(d.src.fd);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(take(&d, false, &e), 0);
	close(d.src.fd);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(c15_one_image_two_vms, up,
						down),
		cmocka_unit_test_setup_teardown(c15_by_descriptor, up, down),
		cmocka_unit_test_setup_teardown(c15_until_the_other_ends, up,
						down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
