/* A folder, a loop and a link for tests; see link_test_util.h. */
#include "link_test_util.h"
#include "fd.h"
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>

char folder[FOLDER_BYTES], vmm_path[4096];
struct loop *loop;
struct link *lnk;

bool vmm_find(const char *argv0)
{
	snprintf(vmm_path, sizeof(vmm_path), "%.*s/hostile_vmm",
		 (int)(strrchr(argv0, '/') - argv0), argv0);
	if (access(vmm_path, X_OK)) {
		printf("skip: %s is not built\n", vmm_path);
		return false;
	}
	return true;
}

bool maker_can(const char *argv0)
{
	if (!vmm_find(argv0))
		return false;
	if (access("/usr/sbin/mke2fs", X_OK) && access("/sbin/mke2fs", X_OK)) {
		printf("skip: no mke2fs (package e2fsprogs)\n");
		return false;
	}
	return true;
}

unsigned cache_entries(const char *prefix)
{
	char path[128];
	unsigned n = 0;
	struct dirent *de;
	DIR *d;

	snprintf(path, sizeof(path), "%s/cache/snapshots", folder);
	d = opendir(path);
	while (d && (de = readdir(d)))
		n += strcmp(de->d_name, ".") && strcmp(de->d_name, "..") &&
		     strncmp(de->d_name, prefix, strlen(prefix)) == 0;
	if (d)
		closedir(d);
	return n;
}

static void on_stop_loop(struct loop_timer *t)
{
	(void)t;
	loop_stop(loop);
}

void loop_for(int64_t ms)
{
	struct loop_timer t = {.fn = on_stop_loop};

	loop_timer_set(loop, &t, ms);
	assert_int_equal(loop_run(loop), 0);
	/* Something else may have stopped the loop, and `t` is ours. */
	loop_timer_stop(loop, &t);
}

void file_put(const char *name, const char *text)
{
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	close(fd);
}

int folder_make(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(folder, sizeof(folder), "%s/link-test-XXXXXX",
		 tmp ? tmp : "/tmp");
	if (!mkdtemp(folder))
		return -1;
	file_put("init", "abc");
	file_put("root", "abc");
	file_put("images.json", IMAGES);
	return 0;
}

int link_open(void)
{
	struct link_config cfg = {
		.vmm_path = vmm_path, .uid_base = 20000, .is_confined = false};
	static char paths[4][128];
	struct err e = {0};

	for (int i = 0; i < 4; i++)
		snprintf(paths[i], sizeof(paths[i]), "%s/%s", folder,
			 (const char *[]){"state", "cache", "", "init"}[i]);
	cfg.state_dir = paths[0];
	cfg.cache_dir = paths[1];
	cfg.images_dir = paths[2];
	cfg.init_image = paths[3];
	return loop_create(&loop) || link_create(&lnk, loop, &cfg, &e) ? -1 : 0;
}

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

int link_remove(void **state)
{
	(void)state;
	link_destroy(lnk);
	loop_destroy(loop);
	return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
