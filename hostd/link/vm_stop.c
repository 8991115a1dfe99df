/*
 * A VM that stops and keeps what it is: memory, devices and disk as files in
 * STATE/stopped/<sandbox>/, and a VM that goes on from them; see vm.h.
 *
 *   PINGED    PING is in the channel; PONG says that the guest has read all
 *             that we sent, acknowledgements too
 *   PAUSING   vCPUs are being parked
 *   SAVING    hutch-vmm writes state and memory into our files
 *   KEEPING   (worker) files get to the disk, the sandbox's disk gets a name
 *
 * and then the owner is told, and the VM ends.  What fails before that leaves a
 * VM that goes on, RUNNING, with the reason told.
 *
 * Going on is a start as any other, with the files in place of the template's
 * snapshot and disk.  BIND gives the guest fresh entropy and the present time;
 * its processes go on where they were.  When it has confirmed that, state and
 * memory are removed: they must never be used twice, because the disk has gone
 * on.  The disk keeps its name until the sandbox ends.
 */
#include "../clock.h"
#include "../image/sparse.h"
#include "fault.h"
#include "fd.h"
#include "gp_down.h"
#include "log.h"
#include "vm_priv.h"
#include "work.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "stopped"

static const char *const names[] = {"state", "mem", "disk"};
#define NAMES_N (sizeof(names) / sizeof(*names))
/* State and memory; the disk may have had its name before. */
#define NAMES_N_MEMORY 2

struct saving {
	struct job job;
	struct vm *vm; /* NULL: it ended meanwhile */
	char sandbox[ID_BYTES_MAX];
	int folder, state, mem, disk;
	bool is_with_worker; /* which will free it */
	int rc;
};

/* ---- files ------------------------------------------------------------ */

/* The sandbox's folder; it is made when asked for. */
static int folder_open(const struct link *l, const char *sandbox, bool is_made,
		       int *ret_fd)
{
	char path[sizeof(FOLDER) + ID_BYTES_MAX + 1];

	snprintf(path, sizeof(path), FOLDER "/%s", sandbox);
	if (is_made &&
	    ((mkdirat(l->state_fd, FOLDER, 0700) && errno != EEXIST) ||
	     (mkdirat(l->state_fd, path, 0700) && errno != EEXIST)))
		return -errno;
	*ret_fd = openat(l->state_fd, path,
			 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

static int file_open(int folder, const char *name, int flags, int *ret_fd)
{
	*ret_fd = openat(folder, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
	return *ret_fd < 0 ? -errno : 0;
}

/* The first `n` of `names`, and the folder when that leaves it empty. */
static void names_remove(const struct link *l, const char *sandbox, size_t n)
{
	char path[sizeof(FOLDER) + ID_BYTES_MAX + 1];
	_cleanup_fd_ int folder = -1;

	if (folder_open(l, sandbox, false, &folder))
		return;
	for (size_t i = 0; i < n; i++)
		if (unlinkat(folder, names[i], 0) && errno != ENOENT)
			log_warn("%s cannot remove its file %s: %s", sandbox,
				 names[i], strerror(errno));
	snprintf(path, sizeof(path), FOLDER "/%s", sandbox);
	if (unlinkat(l->state_fd, path, AT_REMOVEDIR) &&
	    (n == NAMES_N || errno != ENOTEMPTY))
		log_warn("%s cannot remove its folder: %s", sandbox,
			 strerror(errno));
}

static void files_remove(const struct link *l, const char *sandbox)
{
	names_remove(l, sandbox, NAMES_N);
}

bool vm_stopped_is_there(const struct link *l, const char *sandbox)
{
	_cleanup_fd_ int folder = -1;
	struct stat st;

	if (folder_open(l, sandbox, false, &folder))
		return false;
	for (size_t i = 0; i < NAMES_N; i++)
		if (fstatat(folder, names[i], &st, AT_SYMLINK_NOFOLLOW) ||
		    !S_ISREG(st.st_mode))
			return false;
	return true;
}

struct removal {
	struct job job;
	const struct link *link;
	char sandbox[ID_BYTES_MAX];
};

static void remove_run(struct job *j)
{
	struct removal *r = container_of(j, struct removal, job);

	files_remove(r->link, r->sandbox);
}

static void remove_done(struct job *j)
{
	free(container_of(j, struct removal, job));
}

/* Hundreds of megabytes may take a while. */
void vm_stopped_remove(struct link *l, const char *sandbox)
{
	struct removal *r = calloc(1, sizeof(*r));

	if (r) {
		r->link = l;
		snprintf(r->sandbox, sizeof(r->sandbox), "%s", sandbox);
	}
	if (r && !job_start(l, &r->job, remove_run, remove_done))
		return;
	free(r);
	files_remove(l, sandbox);
}

void vm_stopped_sweep(struct link *l,
		      bool (*is_kept)(void *ctx, const char *sandbox),
		      void *ctx)
{
	int fd = openat(l->state_fd, FOLDER,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *d;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((d = readdir(dir)))
		if (*d->d_name != '.' && strlen(d->d_name) < ID_BYTES_MAX &&
		    !is_kept(ctx, d->d_name))
			files_remove(l, d->d_name);
	closedir(dir);
}

int vm_stopped_open(const struct link *l, const char *sandbox, int ret[3])
{
	_cleanup_fd_ int folder = -1;
	int rc = folder_open(l, sandbox, false, &folder);

	for (int i = 0; !rc && i < 3; i++)
		rc = file_open(folder, names[i], i < 2 ? O_RDONLY : O_RDWR,
			       &ret[i]);
	return rc;
}

void vm_stopped_used(struct vm *vm)
{
	_cleanup_fd_ int folder = -1;

	if (folder_open(vm->link, vm->spec.sandbox, false, &folder) ||
	    unlinkat(folder, names[0], 0) || unlinkat(folder, names[1], 0))
		log_warn("%s cannot remove the memory that it went on from: %s",
			 vm->spec.sandbox, strerror(errno));
	fault_point(FAULT_RESUME_USED);
}

/* ---- ends of a stop --------------------------------------------------- */

static void saving_free(struct saving *s)
{
	fd_close(&s->folder);
	fd_close(&s->state);
	fd_close(&s->mem);
	fd_close(&s->disk);
	free(s);
}

void vm_stop_forget(struct vm *vm)
{
	struct saving *s = vm->saving;

	vm->saving = NULL;
	if (!s)
		return;
	s->vm = NULL;
	if (s->is_with_worker)
		return;
	saving_free(s);
	files_remove(vm->link, vm->spec.sandbox);
}

static void failed(struct vm *vm, const char *what, int rc)
{
	bool is_paused = vm->state != VM_PINGED && vm->state != VM_PAUSING;
	char text[REASON_BYTES_MAX];

	/* Its process has ended: that end is told soon, and says why. */
	if (rc == -EPIPE || rc == -ECONNRESET)
		return;
	snprintf(text, sizeof(text), "%s: %s", what, strerror(-rc));
	log_warn("%s vm=goes_on: it cannot be stopped: %s", vm->spec.sandbox,
		 text);
	if (vm->saving) {
		saving_free(vm->saving);
		names_remove(vm->link, vm->spec.sandbox, NAMES_N_MEMORY);
	}
	vm->saving = NULL;
	vm->state = VM_RUNNING;
	vm->bind_deadline_ms = 0;
	vm_timer_arm(vm);
	rc = is_paused ? vmm_ask(vm->vmm, VMM_RESUME, NULL, 0) : 0;
	if (!rc)
		rc = vm_early_send(vm);
	if (rc) {
		vm_end(vm, END_VM_LOST, "the VM cannot go on: %s",
		       strerror(-rc));
		return;
	}
	channel_flush(&vm->channel);
	vm->ops->stopped(vm->ctx, text);
}

/* ---- step by step ----------------------------------------------------- */

static void phase(struct vm *vm, enum vm_state state, int64_t within_ms)
{
	vm->state = state;
	vm->bind_deadline_ms = within_ms ? clock_mono_ms() + within_ms : 0;
	vm_timer_arm(vm);
}

int vm_stop(struct vm *vm)
{
	int rc;

	if (vm->state != VM_RUNNING || vm->lane.is_late ||
	    vm->session.state != SES_BOUND)
		return -EAGAIN;
	for (size_t i = 0; i < SESSION_CMDS_MAX; i++)
		if (vm->session.cmds[i].state != CS_FREE)
			return -EBUSY;
	if (vm->session.file.number)
		return -EBUSY;
	rc = gp_down_plain(&vm->channel.out, GP_PING, 0);
	if (rc)
		return rc;
	vm->session.has_ping = true;
	phase(vm, VM_PINGED, vm->link->times.start_ms);
	channel_flush(&vm->channel);
	fault_point(FAULT_STOP_ASKED);
	return 0;
}

void vm_stop_ponged(struct vm *vm)
{
	int rc;

	if (vm->state != VM_PINGED)
		return;
	fault_point(FAULT_STOP_PONGED);
	phase(vm, VM_PAUSING, vm->link->times.snapshot_ms);
	rc = vmm_ask(vm->vmm, VMM_PAUSE, NULL, 0);
	if (rc)
		failed(vm, "it cannot be paused", rc);
}

static int save(struct vm *vm)
{
	struct saving *s = calloc(1, sizeof(*s));
	int fds[2], rc;

	if (!s)
		return -ENOMEM;
	*s = (struct saving){.vm = vm,
			     .folder = -1,
			     .state = -1,
			     .mem = -1,
			     .disk = fcntl(vm->disk_fd, F_DUPFD_CLOEXEC, 3)};
	snprintf(s->sandbox, sizeof(s->sandbox), "%s", vm->spec.sandbox);
	vm->saving = s;
	rc = s->disk < 0 ? -errno
			 : folder_open(vm->link, vm->spec.sandbox, true,
				       &s->folder);
	if (!rc)
		rc = file_open(s->folder, names[0], O_RDWR | O_CREAT | O_TRUNC,
			       &s->state);
	if (!rc)
		rc = file_open(s->folder, names[1], O_RDWR | O_CREAT | O_TRUNC,
			       &s->mem);
	if (rc)
		return rc;
	fds[0] = s->state;
	fds[1] = s->mem;
	rc = vmm_ask(vm->vmm, VMM_SNAPSHOT, fds, 2);
	fault_point(FAULT_STOP_FILES);
	return rc;
}

/* It had no name until now, or it has the right one already. */
static int disk_name(const struct saving *s)
{
	char path[40];
	struct stat mine, there;
	_cleanup_fd_ int copy = -1;
	int rc;

	if (fstat(s->disk, &mine))
		return -errno;
	if (!fstatat(s->folder, names[2], &there, AT_SYMLINK_NOFOLLOW) &&
	    there.st_ino == mine.st_ino && there.st_dev == mine.st_dev)
		return 0;
	unlinkat(s->folder, names[2], 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->disk);
	if (!linkat(AT_FDCWD, path, s->folder, names[2], AT_SYMLINK_FOLLOW))
		return 0;
	/* A file system without O_TMPFILE. */
	rc = file_open(s->folder, names[2], O_RDWR | O_CREAT | O_EXCL, &copy);
	if (!rc)
		rc = sparse_copy(s->disk, copy, NULL);
	return rc || !fsync(copy) ? rc : -errno;
}

static void keep_run(struct job *j)
{
	struct saving *s = container_of(j, struct saving, job);

	s->rc = disk_name(s);
	fault_point(FAULT_STOP_NAMED);
	if (!s->rc && (fsync(s->state) || fsync(s->mem) || fsync(s->disk) ||
		       fsync(s->folder)))
		s->rc = -errno;
	fault_point(FAULT_STOP_SYNCED);
}

static void keep_done(struct job *j)
{
	struct saving *s = container_of(j, struct saving, job);
	struct vm *vm = s->vm;

	if (!j->link || !vm) {
		if (j->link)
			files_remove(j->link, s->sandbox);
		saving_free(s);
		return;
	}
	if (s->rc) {
		failed(vm, "its files cannot be written", s->rc);
		return;
	}
	vm->saving = NULL;
	saving_free(s);
	log_info("%s vm=stopped", vm->spec.sandbox);
	fault_point(FAULT_STOP_KEPT);
	vm->state = VM_RUNNING;
	vm->ops->stopped(vm->ctx, NULL);
}

static void keep(struct vm *vm)
{
	int rc;

	phase(vm, VM_KEEPING, 0);
	rc = job_start(vm->link, &vm->saving->job, keep_run, keep_done);
	vm->saving->is_with_worker = !rc;
	if (rc)
		failed(vm, "its files cannot be written", rc);
}

void vm_stop_replied(struct vm *vm, enum vmm_type type, int status)
{
	int rc;

	if (type == VMM_PAUSE && vm->state == VM_PAUSING) {
		if (status) {
			failed(vm, "it cannot be paused", status);
			return;
		}
		fault_point(FAULT_STOP_PAUSED);
		phase(vm, VM_SAVING, vm->link->times.snapshot_ms);
		rc = save(vm);
		if (rc)
			failed(vm, "its memory cannot be written", rc);
	} else if (type == VMM_SNAPSHOT && vm->state == VM_SAVING) {
		fault_point(FAULT_STOP_SAVED);
		if (status)
			failed(vm, "its memory cannot be written", status);
		else
			keep(vm);
	}
}

bool vm_is_stopping(const struct vm *vm)
{
	return vm->state == VM_PINGED || vm->state == VM_PAUSING ||
	       vm->state == VM_SAVING;
}
