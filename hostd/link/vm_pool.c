/*
 * VMs that wait, restored and paused, until somebody claims them; see vm.h.
 *
 *   RESTORING  the process starts; PAUSE is asked for as soon as its vCPUs run
 *   POOLED     paused: vCPUs parked, devices drained, the channel held
 *   STARTING   claimed; the call that vm_claim posted comes here
 *
 * Until its claim a VM has been given nothing, and may say nothing: its session
 * is at the snapshot point, where every frame breaks the rules.  What it wrote
 * and we did not read yet would be read after the claim, as its confirmation:
 * so a claim looks whether bytes wait (none can come any more: it is paused).
 * One that fails this is replaced by a restored VM, which costs time and
 * nothing else.
 *
 * The identity is made and written before RESUME: the guest finds it, and the
 * first command, in its first read.  From there on all is as with any VM.
 */
#include "../clock.h"
#include "log.h"
#include "vm_priv.h"
#include <errno.h>
#include <sys/socket.h>

/* ---- waiting ---------------------------------------------------------- */

static void ask(struct vm *vm, enum vmm_type type, const char *what)
{
	int rc = vmm_ask(vm->vmm, type, NULL, 0);

	if (rc)
		vm_end(vm, END_VM_LOST, "the VM cannot be %s: %s", what,
		       strerror(-rc));
}

void vm_pooled_started(struct vm *vm)
{
	ask(vm, VMM_PAUSE, "paused");
}

static void paused(struct vm *vm)
{
	vm->state = VM_POOLED;
	vm->bind_deadline_ms = 0;
	loop_timer_stop(vm->link->loop, &vm->timer);
	log_info("%s vm=pooled pid=%d after_us=%lld", vm->spec.sandbox,
		 vm_pid(vm), (long long)(clock_mono_us() - vm->created_us));
	vm->pool_ops->waiting(vm->ctx);
}

void vm_pooled_replied(struct vm *vm, enum vmm_type type, int status)
{
	if (type == VMM_PAUSE && vm->state == VM_RESTORING) {
		if (status)
			vm_end(vm, END_VM_LOST, "the VM cannot be paused: %s",
			       strerror(-status));
		else
			paused(vm);
	} else if (type == VMM_RESUME && status) {
		vm_end(vm, END_VM_LOST, "the VM cannot be resumed: %s",
		       strerror(-status));
	}
}

int vm_create_pooled(struct vm **ret, struct link *link,
		     const struct vm_spec *spec, const struct vm_pool_ops *ops,
		     void *ctx, struct err *e)
{
	struct shape shape;
	struct vm *vm;

	if (link->is_stopping)
		return err_set(e, ERR_UNAVAILABLE, NULL, NULL);
	if (shape_for(spec->base, &spec->limits, &shape, e))
		return -1;
	vm = vm_new(link, spec, &shape);
	if (!vm)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	vm->pool_ops = ops;
	vm->ctx = ctx;
	if (!template_is_current(vm->t)) {
		template_recheck(vm->t);
		vm_free(vm);
		return err_set(e, ERR_UNAVAILABLE, NULL,
			       "its snapshot is not there");
	}
	vm->state = VM_RESTORING;
	session_restart(&vm->session, SES_PREPARED);
	if (vm_begin_process(vm, e)) {
		vm_free(vm);
		return -1;
	}
	*ret = vm;
	return 0;
}

bool vm_is_current(const struct vm *vm)
{
	return vm->generation == vm->t->generation &&
	       template_is_current(vm->t);
}

/* ---- claiming --------------------------------------------------------- */

int vm_claim(struct vm *vm, const struct vm_spec *spec,
	     const struct vm_ops *ops, void *ctx)
{
	struct shape shape;

	if (vm->state != VM_POOLED || !vm_is_current(vm))
		return -ESTALE;
	if (shape_for(spec->base, &spec->limits, &shape, NULL) ||
	    !shape_is_same(&shape, &vm->t->shape) ||
	    spec->limits.disk_mib != vm->spec.limits.disk_mib)
		return -EINVAL;
	log_info("%s vm=claimed was=%s pid=%d waited_ms=%lld", spec->sandbox,
		 vm->spec.sandbox, vm_pid(vm),
		 (long long)(clock_mono_us() - vm->created_us) / 1000);
	vm->spec = *spec;
	vm->ops = ops;
	vm->pool_ops = NULL;
	vm->ctx = ctx;
	vm->created_us = clock_mono_us();
	vm->is_claimed = true;
	vm_start_post(vm);
	return 0;
}

/* Alive, silent so far, and nothing of it unread. */
static bool is_untouched(const struct vm *vm)
{
	uint8_t byte;

	return vm->vmm && vmm_is_alive(vm->vmm) && vm->channel.watch.fd >= 0 &&
	       vm->session.state == SES_PREPARED &&
	       !session_is_mid_frame(&vm->session) &&
	       recv(vm->channel.watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <
		       0 &&
	       errno == EAGAIN;
}

bool vm_pooled_resume(struct vm *vm)
{
	int rc;

	vm->is_claimed = false;
	if (!is_untouched(vm)) {
		log_warn("%s vm=restored_instead the claimed one was dead or "
			 "had spoken",
			 vm->spec.sandbox);
		if (vm->vmm)
			vmm_forget(vm->vmm);
		vm->vmm = NULL;
		channel_close(&vm->channel);
		session_restart(&vm->session, SES_BINDING);
		return false;
	}
	vm->state = VM_RUNNING;
	vm->session.state = SES_BINDING;
	vm->ready_us = clock_mono_us();
	vmm_rename(vm->vmm, vm->spec.sandbox);
	rc = vm_bind_send(vm);
	if (!rc)
		rc = vmm_ask(vm->vmm, VMM_RESUME, NULL, 0);
	if (rc) {
		vm_end(vm, END_NOT_STARTED, "the VM cannot be resumed: %s",
		       strerror(-rc));
		return true;
	}
	vm->bind_deadline_ms = clock_mono_ms() + vm->link->times.bind_ms;
	vm_timer_arm(vm);
	return true;
}
