/* hutch doctor: state and cache folders, kernel and images, programs. */
#include "../../hostd/config.h"
#include "../../hostd/image/images.h"
#include "daemon.h"
#include "doctor.h"
#include "fd.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB	       (1024 * 1024ull)
#define STATE_MIB_GOOD 8192
#define CACHE_MIB_GOOD 10240
/* The smallest disk, and what its file system needs. */
#define STATE_MIB_MIN  296
#define STATE_PATH_MAX (107 - sizeof("/admin.sock"))

/* hutchd's own defaults, as it would take them from here. */
static int load_config(struct config *cfg, struct err *e)
{
	char dir[CLI_PATH_BYTES_MAX];

	if (daemon_folder(dir, e))
		return -1;
	if (config_defaults(cfg, dir, e))
		return -1;
	return config_read(cfg, CONFIG_FILE_DEFAULT, true, e);
}

/* Of the folder, or of the nearest parent that is there. */
static void say_space(struct doctor *d, const char *what, const char *dir,
		      uint64_t good_mib, uint64_t min_mib)
{
	char path[CLI_PATH_BYTES_MAX];
	struct statvfs fs;
	uint64_t mib;
	char *slash;

	snprintf(path, sizeof(path), "%s", dir);
	while (statvfs(path, &fs) && (slash = strrchr(path, '/')) &&
	       slash != path)
		*slash = 0;
	if (statvfs(path, &fs)) {
		doctor_say(d, DOCTOR_FAIL, what, "name another folder",
			   "%s: %s", dir, strerror(errno));
		return;
	}
	mib = (uint64_t)fs.f_bavail * fs.f_frsize / MIB;
	doctor_say(d,
		   mib < min_mib    ? DOCTOR_FAIL
		   : mib < good_mib ? DOCTOR_WARN
				    : DOCTOR_OK,
		   what,
		   mib < good_mib ? "free some space, or name another folder"
				  : NULL,
		   "%s: %llu MiB free", dir, (unsigned long long)mib);
}

void doctor_folders(struct doctor *d)
{
	struct config cfg;
	struct err e;

	if (strlen(d->cli->state_dir) > STATE_PATH_MAX)
		doctor_say(d, DOCTOR_FAIL, "state",
			   "choose a shorter --state or HUTCH_STATE",
			   "%s: too long for a socket's path",
			   d->cli->state_dir);
	else
		say_space(d, "state", d->cli->state_dir, STATE_MIB_GOOD,
			  STATE_MIB_MIN);
	if (load_config(&cfg, &e)) {
		doctor_say(d, DOCTOR_FAIL, "config",
			   "correct " CONFIG_FILE_DEFAULT ", or run make", "%s",
			   e.text);
		return;
	}
	say_space(d, "cache", cfg.cache_dir, CACHE_MIB_GOOD, 0);
}

/* What to do about an image that cannot be used. */
static const char *advice_on(const char *path)
{
	if (access(path, R_OK) && errno == EACCES)
		return "run as root, or let this user read the images' folder";
	return "make images";
}

/* Reads every image: some hundred MiB. */
void doctor_images(struct doctor *d)
{
	struct file_hashes none = {.dir_fd = -1};
	struct config cfg;
	struct images im;
	struct err e;

	if (load_config(&cfg, &e))
		return; /* said by doctor_folders */
	if (images_load(&im, cfg.images_dir, &e)) {
		doctor_say(d, DOCTOR_FAIL, "images", advice_on(cfg.images_dir),
			   "%s", e.text);
		return;
	}
	for (unsigned i = 0; i < im.n; i++) {
		_cleanup_fd_ int fd = -1;
		char hex[65];

		if (image_open(&im.list[i], &none, true, &fd, &e)) {
			doctor_say(d, DOCTOR_FAIL, "images",
				   advice_on(im.list[i].path), "%s", e.text);
			continue;
		}
		hash_to_hex(im.list[i].sha256, hex);
		doctor_say(d, DOCTOR_OK, "images", NULL,
			   "%-14s %5llu MiB, SHA-256 %.12s... as listed",
			   im.list[i].name,
			   (unsigned long long)(im.list[i].bytes / MIB), hex);
	}
}

static bool is_program(const char *name)
{
	static const char *const dirs[] = {"/usr/sbin",	      "/sbin",
					   "/usr/bin",	      "/bin",
					   "/usr/local/sbin", "/usr/local/bin"};
	char path[128];

	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", dirs[i], name);
		if (!access(path, X_OK))
			return true;
	}
	return false;
}

void doctor_programs(struct doctor *d)
{
	char path[CLI_PATH_BYTES_MAX];
	struct config cfg;
	struct err e;

	if (is_program("mke2fs"))
		doctor_say(d, DOCTOR_OK, "mke2fs", NULL, "installed");
	else
		doctor_say(d, DOCTOR_FAIL, "mke2fs",
			   "apt-get install e2fsprogs",
			   "not found; it makes the sandboxes' disks");
	if (daemon_program("hutchd", path, sizeof(path), &e))
		doctor_say(d, DOCTOR_FAIL, "hutchd", "make", "%s", e.text);
	if (load_config(&cfg, &e))
		return;
	if (access(cfg.vmm_path, X_OK))
		doctor_say(d, DOCTOR_FAIL, "hutch-vmm", "make", "%s: %s",
			   cfg.vmm_path, strerror(errno));
	if (access(cfg.init_image, R_OK))
		doctor_say(d, DOCTOR_FAIL, "init image", "make", "%s: %s",
			   cfg.init_image, strerror(errno));
	if (!access(cfg.vmm_path, X_OK) && !access(cfg.init_image, R_OK))
		doctor_say(d, DOCTOR_OK, "programs", NULL,
			   "hutchd, hutch-vmm and the guest's init are built");
}
