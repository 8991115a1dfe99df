/*
 * Opening what the command line names; see options.h.
 *
 * A read-only disk must be read-only twice: the device refuses writes, and so
 * does the descriptor.  A writable disk is locked, so that two VMs never write
 * one image; a read-only one is locked for reading, so that no VM writes it.
 */
#include "fd.h"
#include "options.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_STEP_NS   20000000
#define LOCK_STEPS_MAX 50

static int bad_fd(const char *name, int fd, struct err *e)
{
	return err_set(e, ERR_INVALID_REQUEST, name, "--%s fd:%d: %s", name, fd,
		       strerror(errno));
}

/* Make the descriptor ours: it must exist, and no child shall get it. */
static int adopt(const char *name, int fd, struct err *e)
{
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return bad_fd(name, fd, e);
	return 0;
}

static int open_source(const char *name, struct source *s, int flags,
		       struct err *e)
{
	if (!s->is_given)
		return 0;
	if (!s->path)
		return adopt(name, s->fd, e);
	s->fd = open(s->path, flags | O_CLOEXEC | O_NOCTTY, 0600);
	if (s->fd < 0)
		return err_set(e, ERR_INVALID_REQUEST, name, "--%s %.128s: %s",
			       name, s->path, strerror(errno));
	return 0;
}

static int socket_check(const char *name, int fd, int type, struct err *e)
{
	int got = 0, domain = 0;
	socklen_t len = sizeof(got);

	if (fd < 0)
		return 0;
	if (adopt(name, fd, e) < 0)
		return -1;
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &got, &len) < 0)
		return bad_fd(name, fd, e);
	len = sizeof(domain);
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0)
		return bad_fd(name, fd, e);
	if (got != type || domain != AF_UNIX)
		return err_set(e, ERR_INVALID_REQUEST, name,
			       "--%s fd:%d is not a Unix %s socket", name, fd,
			       type == SOCK_STREAM ? "stream" : "seqpacket");
	return 0;
}

static int disk_size(struct disk_options *d, unsigned idx, struct err *e)
{
	struct stat st;
	uint64_t bytes = 0;

	if (fstat(d->src.fd, &st) < 0)
		return bad_fd("disk", d->src.fd, e);
	if (S_ISREG(st.st_mode))
		bytes = (uint64_t)st.st_size;
	else if (!S_ISBLK(st.st_mode))
		return err_set(e, ERR_INVALID_REQUEST, "disk",
			       "disk %u is neither a file nor a block device",
			       idx);
	else if (ioctl(d->src.fd, BLKGETSIZE64, &bytes) < 0)
		return bad_fd("disk", d->src.fd, e);
	if (bytes < 512)
		return err_set(e, ERR_INVALID_REQUEST, "disk",
			       "disk %u has %llu bytes, 512 is the least", idx,
			       (unsigned long long)bytes);
	d->bytes = bytes;
	return 0;
}

static int disk_lock(const struct disk_options *d, unsigned idx, struct err *e)
{
	struct flock l = {
		.l_type = d->is_read_only ? F_RDLCK : F_WRLCK,
		.l_whence = SEEK_SET,
	};

	const struct timespec step = {.tv_nsec = LOCK_STEP_NS};

	/* io_uring lets go of the files of a VM that has ended a little later
	 * than its exit, so a held lock is looked at again for a while. */
	for (unsigned i = 0; i < LOCK_STEPS_MAX; i++) {
		if (fcntl(d->src.fd, F_OFD_SETLK, &l) == 0)
			return 0;
		if (errno != EAGAIN && errno != EACCES)
			break;
		nanosleep(&step, NULL);
	}
	if (errno == EAGAIN || errno == EACCES)
		return err_set(e, ERR_INVALID_REQUEST, "disk",
			       "disk %u is %s by another VM", idx,
			       d->is_read_only ? "written" : "used");
	return err_set(e, ERR_INVALID_REQUEST, "disk", "disk %u: lock: %s", idx,
		       strerror(errno));
}

static int open_disk(struct disk_options *d, unsigned idx, struct err *e)
{
	int mode;

	if (open_source("disk", &d->src, d->is_read_only ? O_RDONLY : O_RDWR,
			e) < 0)
		return -1;
	mode = fcntl(d->src.fd, F_GETFL);
	if (mode < 0)
		return bad_fd("disk", d->src.fd, e);
	if ((mode & O_ACCMODE) != (d->is_read_only ? O_RDONLY : O_RDWR))
		return err_set(e, ERR_INVALID_REQUEST, "disk",
			       "disk %u is %s but its descriptor is not", idx,
			       d->is_read_only ? "read-only" : "writable");
	if (disk_size(d, idx, e) < 0)
		return -1;
	return disk_lock(d, idx, e);
}

int options_open(struct options *o, struct err *e)
{
	o->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (o->kvm < 0)
		return err_set(e, ERR_INTERNAL, NULL, "/dev/kvm: %s",
			       strerror(errno));
	if (o->is_probe)
		return 0;
	/* Tells a snapshot which pages were ever touched. */
	o->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (o->pagemap < 0)
		return err_set(e, ERR_INTERNAL, NULL, "/proc/self/pagemap: %s",
			       strerror(errno));
	if (open_source("kernel", &o->kernel, O_RDONLY, e) < 0 ||
	    open_source("trace", &o->trace,
			O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, e) < 0 ||
	    open_source("restore", &o->state, O_RDONLY, e) < 0 ||
	    open_source("restore", &o->memory, O_RDONLY, e) < 0 ||
	    open_source("restore", &o->touched, O_RDONLY, e) < 0)
		return -1;
	for (unsigned i = 0; i < o->n_disks; i++)
		if (open_disk(&o->disk[i], i, e) < 0)
			return -1;
	if (o->log >= 0 && o->log > 2 && adopt("log", o->log, e) < 0)
		return -1;
	if (socket_check("control", o->control, SOCK_SEQPACKET, e) < 0 ||
	    socket_check("channel", o->channel, SOCK_STREAM, e) < 0)
		return -1;
	return 0;
}
