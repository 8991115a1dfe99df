/* Identity, disk, channel and process of a VM; see vm_priv.h. */
#include "../clock.h"
#include "../image/disk.h"
#include "../image/sparse.h"
#include "fault.h"
#include "fd.h"
#include "gp_down.h"
#include "vm_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/random.h>

/* Processes and threads of user code in one sandbox. */
#define VM_PIDS_MAX	 1024
#define MACHINE_ID_BYTES 16
/* Blocks that the file system itself needs beside the user's bytes: bitmaps,
 * inode tables, journal: 32 MiB and 1/32. */
#define VM_DISK_OWN_BYTES (32ull << 20)
#define VM_DISK_OWN_SHARE 32
/*
 * Fresh for every VM: no two clones of a snapshot may share any of it.  The
 * machine id is the sandbox's, whose name nobody else has: it is the same when
 * it goes on after a stop.
 */
int link_identity(const char *name, const struct limits *limits,
		  struct gp_identity *id)
{
	uint8_t machine[EVP_MAX_MD_SIZE];
	char text[ID_BYTES_MAX + 16];
	int len = snprintf(text, sizeof(text), "machine-id %s", name);

	*id = (struct gp_identity){0};
	if (getrandom(id->entropy, sizeof(id->entropy), 0) !=
		    sizeof(id->entropy) ||
	    !EVP_Digest(text, (size_t)len, machine, NULL, EVP_sha256(), NULL))
		return -EIO;
	for (size_t i = 0; i < MACHINE_ID_BYTES; i++)
		snprintf(id->machine_id + 2 * i, 3, "%02x", machine[i]);
	id->wall_ns = (uint64_t)clock_wall_ms() * 1000000;
	snprintf(id->hostname, sizeof(id->hostname), "%s", name);
	/* No label of a host name holds '_'. */
	for (char *p = id->hostname; *p; p++)
		if (*p == '_')
			*p = '-';
	id->mem_bytes = (uint64_t)limits->memory_mib << 20;
	id->pids = VM_PIDS_MAX;
	id->disk_bytes = (uint64_t)limits->disk_mib << 20;
	return 0;
}

int vm_bind_put(const struct vm *vm, struct bytes *out)
{
	struct gp_identity id;
	int rc = link_identity(vm->spec.sandbox, &vm->spec.limits, &id);

	if (!rc)
		rc = gp_down_bind(out, &id);
	explicit_bzero(&id, sizeof(id));
	return rc;
}

int link_reopen(int fd, int *ret_fd)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	*ret_fd = open(path, O_RDONLY | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

struct shared_fds {
	int state, mem, touched, init, root;
};

static void shared_close(struct shared_fds *f)
{
	fd_close(&f->state);
	fd_close(&f->mem);
	fd_close(&f->touched);
	fd_close(&f->init);
	fd_close(&f->root);
}

/* State and memory, unless they are its own. */
static int shared_open(const struct template *t, struct shared_fds *f)
{
	bool is_own = f->state >= 0;
	int rc = is_own ? 0 : link_reopen(t->files.state_fd, &f->state);

	if (!rc && !is_own)
		rc = link_reopen(t->files.mem_fd, &f->mem);
	if (!rc && !is_own && t->files.touched_fd >= 0)
		rc = link_reopen(t->files.touched_fd, &f->touched);
	if (!rc)
		rc = link_reopen(t->init_fd, &f->init);
	if (!rc)
		rc = link_reopen(t->root_fd, &f->root);
	return rc;
}

int vm_process_start(struct vm *vm, const struct vmm_ops *ops,
		     void (*channel_ended)(struct channel *c, int rc),
		     struct err *e)
{
	struct template *t = vm->t;
	uint64_t disk = (uint64_t)vm->spec.limits.disk_mib << 20;
	__attribute__((cleanup(shared_close))) struct shared_fds fds = {
		-1, -1, -1, -1, -1};
	_cleanup_fd_ int peer = -1, disk_fd = -1;
	int files[3] = {-1, -1, -1};
	struct vmm_args a = {
		.name = vm->spec.sandbox,
		.vcpus = t->shape.vcpus,
		.ram_mib = t->shape.ram_mib,
		.kernel_fd = -1,
		.boot_log_fd = -1,
		.disk_cap_bytes =
			disk + disk / VM_DISK_OWN_SHARE + VM_DISK_OWN_BYTES,
		.is_background = vm->state == VM_RESTORING,
	};
	int rc;

	if (vm->from) {
		if (vm_from_take(vm, &fds.state, &fds.mem, &disk_fd, e))
			return -1;
	} else if (vm->is_stopped) {
		rc = vm_stopped_open(vm->link, vm->spec.sandbox, files);
		fds.state = files[0];
		fds.mem = files[1];
		disk_fd = files[2];
		if (rc)
			return err_set(e, ERR_INTERNAL, NULL,
				       "the files of the stopped sandbox: %s",
				       strerror(-rc));
	} else {
		rc = disk_copy(t->files.disk_fd, vm->link->state_fd, &disk_fd,
			       NULL);
		if (rc)
			return err_set(
				e, rc == -ENOSPC ? ERR_CAPACITY : ERR_INTERNAL,
				NULL, "copying the sandbox's disk into %s: %s",
				vm->link->state_dir, strerror(-rc));
	}
	rc = channel_open(&vm->channel, vm->link->loop, &vm->session,
			  channel_ended, &peer);
	if (rc)
		return err_set(e, ERR_INTERNAL, NULL, "the VM's channel: %s",
			       strerror(-rc));
	rc = shared_open(t, &fds);
	if (rc)
		return err_set(e, ERR_INTERNAL, NULL,
			       "opening the snapshot again: %s (is /proc "
			       "mounted?)",
			       strerror(-rc));
	vm->base_mem_bytes = sparse_allocated(fds.mem);
	a.state_fd = fds.state;
	a.mem_fd = fds.mem;
	a.touched_fd = fds.touched;
	a.init_fd = fds.init;
	a.root_fd = fds.root;
	a.disk_fd = disk_fd;
	a.channel_fd = peer;
	fault_point(FAULT_START_DISK);
	if (vmm_start(&vm->vmm, vm->link, &a, ops, vm, e))
		return -1;
	fault_point(FAULT_START_SPAWNED);
	vm->disk_fd = fd_take(&disk_fd);
	return 0;
}

/* ---- what it costs ---------------------------------------------------- */

void vm_spec_cost(const struct vm_spec *spec, uint64_t *ret_ram_bytes,
		  uint64_t *ret_disk_bytes)
{
	struct shape s = {.ram_mib = spec->limits.memory_mib};
	uint64_t disk = (uint64_t)spec->limits.disk_mib << 20;

	/* Out of range: what was asked; vm_create will refuse it. */
	(void)shape_for(spec->base, &spec->limits, &s, NULL);
	*ret_ram_bytes = (uint64_t)s.ram_mib << 20;
	*ret_disk_bytes = disk + disk / VM_DISK_OWN_SHARE + VM_DISK_OWN_BYTES;
}
