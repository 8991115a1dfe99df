/*
 * The daemon's link to its VMs: folders, uids, limits; one per daemon.
 * See template.h for the public part, link_priv.h for what is shared here.
 */
#include "cache.h"
#include "fd.h"
#include "link_priv.h"
#include "log.h"
#include "template_priv.h"
#include "vm_priv.h"
#include "vmm.h"
#include "work.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* In milliseconds; README.md says where each comes from. */
static const struct link_times times_stock = {
	.hello_ms = 30000,
	.prepare_ms = 5 * 60000,
	.bind_ms = 10000,
	.start_ms = 10000,
	.runner_ms = 60000,
	.overrun_ms = 5000,
	.snapshot_ms = 5 * 60000,
	.lane_ms = 2000,
	.finish_ms = 2000,
};
static const struct link_times times_soft = {
	.hello_ms = 15 * 60000,
	.prepare_ms = 60 * 60000,
	.bind_ms = 60000,
	.start_ms = 60000,
	.runner_ms = 15 * 60000,
	.overrun_ms = 30000,
	.snapshot_ms = 5 * 60000,
	.lane_ms = 60000,
	.finish_ms = 5000,
};

/* Without VMX and SVM /dev/kvm is a soft one. */
static bool host_is_soft(void)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	bool is_soft = true;
	char *line = NULL;
	size_t cap = 0;

	while (f && getline(&line, &cap, f) > 0) {
		if (strncmp(line, "flags", 5) != 0)
			continue;
		is_soft = !strstr(line, " vmx") && !strstr(line, " svm");
		break;
	}
	free(line);
	if (f)
		fclose(f);
	return is_soft;
}

static unsigned cpus(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

/* mkdir -p of the last two components is enough for our folders. */
static int folder_make(const char *path, mode_t mode, int *ret_fd,
		       struct err *e)
{
	char up[4096];
	char *slash;

	snprintf(up, sizeof(up), "%s", path);
	for (slash = strchr(up + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(up, 0755);
		*slash = '/';
	}
	if (mkdir(path, mode) && errno != EEXIST)
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot make folder %s: %s", path,
			       strerror(errno));
	*ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_fd < 0)
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot open folder %s: %s", path,
			       strerror(errno));
	return 0;
}

static int strings_copy(struct link *l, const struct link_config *cfg)
{
	l->state_dir = strdup(cfg->state_dir);
	l->cache_dir = strdup(cfg->cache_dir);
	l->images_dir = strdup(cfg->images_dir);
	l->vmm_path = strdup(cfg->vmm_path);
	l->init_path = strdup(cfg->init_image);
	l->vmm_die_at = cfg->vmm_die_at ? strdup(cfg->vmm_die_at) : NULL;
	return (!cfg->vmm_die_at || l->vmm_die_at) && l->state_dir &&
			       l->cache_dir && l->images_dir && l->vmm_path &&
			       l->init_path
		       ? 0
		       : -ENOMEM;
}

int link_create(struct link **ret, struct loop *loop,
		const struct link_config *cfg, struct err *e)
{
	struct link *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	l->loop = loop;
	l->state_fd = l->cache_fd = l->hashes.dir_fd = -1;
	list_init(&l->vmms);
	list_init(&l->vms);
	list_init(&l->templates);
	list_init(&l->jobs);
	l->is_confined = cfg->is_confined;
	l->has_lane = cfg->has_lane;
	l->uid_base = cfg->uid_base;
	l->is_soft = host_is_soft();
	l->n_cpus = cpus();
	l->times = l->is_soft ? times_soft : times_stock;
	rc = strings_copy(l, cfg);
	if (rc)
		err_set(e, ERR_INTERNAL, NULL, "out of memory");
	if (!rc)
		rc = folder_make(l->state_dir, 0700, &l->state_fd, e);
	if (!rc)
		rc = folder_make(l->cache_dir, 0755, &l->cache_fd, e);
	if (!rc) {
		rc = file_hashes_open(&l->hashes, l->cache_fd);
		if (rc)
			err_set(e, ERR_INTERNAL, NULL, "cannot use %s: %s",
				l->cache_dir, strerror(-rc));
	}
	if (rc) {
		link_destroy(l);
		return -1;
	}
	cache_sweep(&(struct cache){l->cache_fd, &l->hashes});
	cgroups_open(&l->cgroups);
	renew_start(l, cfg->renew_ms);
	*ret = l;
	return 0;
}

void link_destroy(struct link *l)
{
	if (!l)
		return;
	l->is_stopping = true;
	vms_destroy(l);
	templates_stop(l);
	renew_stop(l);
	jobs_wait(l);
	renew_free(l);
	templates_free(l);
	cgroups_close(&l->cgroups);
	file_hashes_close(&l->hashes);
	fd_close(&l->state_fd);
	fd_close(&l->cache_fd);
	free(l->state_dir);
	free(l->cache_dir);
	free(l->images_dir);
	free(l->vmm_path);
	free(l->init_path);
	free(l->vmm_die_at);
	free(l);
}

void link_stats(const struct link *l, struct link_stats *ret)
{
	*ret = l->stats;
}

/*
 * Round robin, so that a uid rests as long as possible before its next
 * process; a slot is given back only after its process was reaped.
 */
int link_uid_take(struct link *l, uint32_t *ret_uid)
{
	for (uint32_t i = 0; i < LINK_UIDS; i++) {
		uint32_t slot = (l->uid_next + i) % LINK_UIDS;
		uint64_t bit = 1ull << (slot % 64);

		if (l->uid_used[slot / 64] & bit)
			continue;
		l->uid_used[slot / 64] |= bit;
		l->uid_next = (slot + 1) % LINK_UIDS;
		*ret_uid = l->uid_base + slot;
		return (int)slot;
	}
	return -1;
}

void link_uid_give(struct link *l, int slot)
{
	if (slot >= 0)
		l->uid_used[slot / 64] &= ~(1ull << (slot % 64));
}
