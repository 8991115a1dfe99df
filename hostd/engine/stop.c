/*
 * A held sandbox that stops, and one that goes on.
 *
 *   running --stop--> stopping   commands are ended: the guest is told to kill
 *                                what it has, the rest is cancelled here
 *                     (vm_stop)  memory, devices and disk go into files
 *                     (gone)     the VM has ended, its place is free
 *                 --> stopped    written
 *   stopped --resume-> starting  written, before anything runs: from here on
 *                                the files are not what they were
 *                     (bound) -> running
 *
 * A VM that cannot be stopped goes on, and the sandbox is running again; one
 * that cannot go on is stopped again, with its files as they were.  Whatever
 * else happens to the VM in between is the sandbox's end.
 */
#include "../clock.h"
#include "../link/template.h"
#include "engine_priv.h"
#include "log.h"
#include "state.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STOPPED_TEXT "the sandbox was stopped"
static bool is_over(const struct cmd *c)
{
	return command_status_is_final(c->rec.status);
}

/* ---- idle --------------------------------------------------------------- */

void box_idle_arm(struct box *b)
{
	if (b->rec.kind == SBX_KIND_HELD && b->rec.status == SBX_RUNNING)
		loop_timer_set(b->e->loop, &b->idle,
			       (int64_t)b->rec.idle_seconds * 1000);
	else
		loop_timer_stop(b->e->loop, &b->idle);
}

void box_on_idle(struct loop_timer *t)
{
	struct box *b = container_of(t, struct box, idle);
	struct err err = {0};

	if (!list_is_empty(&b->files)) {
		box_idle_arm(b);
		return;
	}
	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next)
		if (!is_over(container_of(n, struct cmd, node))) {
			box_idle_arm(b);
			return;
		}
	if (space_for_stop(b, &err)) {
		log_warn("%s stays running, though idle: %s", b->rec.id,
			 err.text);
		box_idle_arm(b);
		return;
	}
	log_info("%s stops: idle for %u s", b->rec.id, b->rec.idle_seconds);
	box_stop(b);
}

/* ---- stop --------------------------------------------------------------- */

/* Those that the guest does not have. */
void box_cancel_waiting(struct box *b)
{
	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next) {
		struct cmd *c = container_of(n, struct cmd, node);

		if (!c->is_durable || is_over(c) || c->number)
			continue;
		command_set(&c->rec, CMD_EV_CANCEL, END_CANCELLED, STOPPED_TEXT,
			    clock_wall_ms());
		secrets_finish(&c->secrets);
		b->e->n_ended++;
	}
	box_write_stale(b);
}

static void cannot_stop(struct box *b, const char *why)
{
	struct err err = {0};

	b->is_saving = false;
	if (sandbox_set(&b->rec, SBX_EV_GO_ON, END_NONE, NULL, clock_wall_ms()))
		return;
	box_write(b, NULL);
	box_idle_arm(b);
	err_set(&err, ERR_CAPACITY, NULL,
		"The sandbox %s cannot be stopped now, and runs on: %s.",
		b->rec.id, why);
	err.retry_after_s = ENGINE_RETRY_DISK_S;
	box_refuse_all(b, WAIT_SANDBOX_STOPPED, &err);
}

void box_stop(struct box *b)
{
	if (sandbox_set(&b->rec, SBX_EV_STOP, END_NONE, NULL, clock_wall_ms()))
		return;
	loop_timer_stop(b->e->loop, &b->idle);
	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next) {
		struct cmd *c = container_of(n, struct cmd, node);

		if (c->number && !is_over(c) && !c->is_cancelling)
			c->is_cancelling = !vm_kill(b->vm, c->number,
						    ENGINE_CANCEL_GRACE_MS);
	}
	box_cancel_waiting(b);
	box_files(b);
	box_stop_on(b);
}

void box_stop_on(struct box *b)
{
	int rc;

	if (b->rec.status != SBX_STOPPING || !b->vm || b->is_saving ||
	    b->snap || box_has_file_given(b))
		return;
	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next) {
		const struct cmd *c = container_of(n, struct cmd, node);

		if (c->is_durable && !c->is_end_durable)
			return;
	}
	rc = vm_stop(b->vm);
	if (rc)
		cannot_stop(b, strerror(-rc));
	else
		b->is_saving = true;
}

void box_on_stopped(struct box *b, const char *error)
{
	if (error) {
		cannot_stop(b, error);
		return;
	}
	b->is_saving = false;
	b->has_files = true;
	b->is_kept = true;
	box_vm_end(b);
}

void box_is_stopped(struct box *b)
{
	b->is_kept = false;
	sandbox_set(&b->rec, SBX_EV_STOPPED, END_NONE, NULL, clock_wall_ms());
	box_write(b, NULL);
}

/* ---- resume ------------------------------------------------------------- */

void box_cannot_resume(struct box *b, const char *why)
{
	struct err err = {0};

	b->is_resuming = false;
	b->holds_place = false;
	sandbox_set(&b->rec, SBX_EV_CANNOT_RESUME, END_NONE, NULL,
		    clock_wall_ms());
	box_write(b, NULL);
	box_files(b);
	err_set(&err, ERR_UNAVAILABLE, NULL,
		"The sandbox %s cannot be resumed, and stays stopped: %s.",
		b->rec.id, why);
	err.retry_after_s = ENGINE_RETRY_ROOM_S;
	box_refuse_all(b, WAIT_SANDBOX_STARTED, &err);
}

/* Its snapshot is of these very images. */
static bool has_its_images(const struct box *b)
{
	uint8_t image[HASH_BYTES], kernel[HASH_BYTES];

	return !template_hashes(b->e->link, b->spec.base, image, kernel) &&
	       !memcmp(image, b->rec.image_sha256, HASH_BYTES) &&
	       !memcmp(kernel, b->rec.kernel_sha256, HASH_BYTES);
}

void box_resume_vm(struct box *b)
{
	struct err err = {0};

	if (!b->is_resuming || b->has_vm || b->rec.status != SBX_STARTING ||
	    b->told.status != SBX_STARTING || b->snap)
		return;
	if (!has_its_images(b)) {
		box_cannot_resume(b, "the images that it ran are not there any "
				     "more");
		return;
	}
	b->last_number = b->rec.incarnation << ENGINE_NUMBERS_BITS;
	if (vm_create_stopped(&b->vm, b->e->link, &b->spec, box_vm_ops, b,
			      &err)) {
		b->vm = NULL;
		box_cannot_resume(b, err.text);
		return;
	}
	b->has_vm = true;
	b->e->n_vms++;
}

/* ---- those that were stopped when the last daemon ended ------------------ */

struct load {
	struct engine *e;
	struct store_page page;
	char cursor[ID_BYTES_MAX];
};

static void adopt(struct engine *e, const struct sandbox_rec *rec)
{
	struct box *b = box_of_record(e, rec);

	if (!b) {
		log_error("%s no memory for the stopped sandbox", rec->id);
		return;
	}
	b->has_files = true;
	if (!vm_stopped_is_there(e->link, rec->id))
		box_end(b, END_VM_LOST,
			"the files of the stopped sandbox are "
			"gone",
			true);
	else
		box_expiry_arm(b);
}

static bool is_kept(void *ctx, const char *sandbox)
{
	struct engine *e = ctx;

	for (struct list *n = e->boxes.next; n != &e->boxes; n = n->next) {
		const struct box *b = container_of(n, struct box, node);

		if (b->has_files && !strcmp(b->rec.id, sandbox))
			return true;
	}
	return false;
}

static int load_page(struct load *l);

static void on_page(void *ctx, int rc, struct sandbox_rec *r, size_t n,
		    bool has_more)
{
	struct load *l = ctx;
	struct engine *e = l->e;

	for (size_t i = 0; !rc && !e->is_ending && i < n; i++)
		adopt(e, &r[i]);
	if (!rc && has_more && n && !e->is_ending) {
		memcpy(l->cursor, r[n - 1].id, sizeof(l->cursor));
		l->page.cursor = l->cursor;
		rc = load_page(l);
		if (!rc)
			l = NULL;
	} else if (!rc && !e->is_ending) {
		vm_stopped_sweep(e->link, is_kept, e);
	}
	if (rc)
		log_error("stopped sandboxes cannot be read: %s",
			  strerror(-rc));
	free(l);
	engine_op_end(e);
}

static int load_page(struct load *l)
{
	int rc = store_sandbox_list(l->e->store, &l->page, on_page, l);

	if (!rc)
		engine_op_begin(l->e);
	return rc;
}

int boxes_load(struct engine *e)
{
	struct load *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	l->e = e;
	l->page = (struct store_page){.status = SBX_STOPPED, .limit = 1000};
	rc = load_page(l);
	if (rc)
		free(l);
	return rc;
}

/* ---- the calls ---------------------------------------------------------- */

int engine_sandbox_stop(struct engine *e, const struct caller *who,
			const char *id, engine_sandbox_fn fn, void *ctx)
{
	struct waiter *w = waiter_new(e, NULL, fn, ctx);
	struct box *b = box_by_id(e, who, id);
	struct err err = {0};

	if (!w)
		return -ENOMEM;
	if (!b) {
		waiter_refuse_over(w, who->environment, who->graph, id);
	} else if (b->rec.kind != SBX_KIND_HELD ||
		   b->rec.status < SBX_RUNNING || b->rec.status > SBX_STOPPED) {
		err_not_running(&err, &b->rec);
		waiter_refuse(w, &err);
	} else if (b->rec.status == SBX_RUNNING && space_for_stop(b, &err)) {
		waiter_refuse(w, &err);
	} else {
		waiter_join(w, b, NULL, WAIT_SANDBOX_STOPPED,
			    ENGINE_CANCEL_WAIT_MS);
		box_stop(b);
	}
	return 0;
}

int engine_sandbox_resume(struct engine *e, const struct caller *who,
			  const char *id, engine_sandbox_fn fn, void *ctx)
{
	struct waiter *w = waiter_new(e, NULL, fn, ctx);
	struct box *b = box_by_id(e, who, id);
	struct err err = {0};

	if (!w)
		return -ENOMEM;
	if (caller_check(who, &err)) {
		waiter_refuse(w, &err);
		return 0;
	}
	if (!b) {
		waiter_refuse_over(w, who->environment, who->graph, id);
		return 0;
	}
	if (b->rec.kind != SBX_KIND_HELD || b->rec.status == SBX_STOPPING ||
	    b->rec.status >= SBX_DESTROYING) {
		err_not_running(&err, &b->rec);
		waiter_refuse(w, &err);
		return 0;
	}
	if (b->rec.status == SBX_STOPPED) {
		box_places(b, who);
		if (admit(e, b, &err)) {
			waiter_refuse(w, &err);
			return 0;
		}
		b->rec.incarnation++;
		b->is_resuming = true;
		sandbox_set(&b->rec, SBX_EV_RESUME, END_NONE, NULL,
			    clock_wall_ms());
		box_write(b, NULL);
	}
	waiter_join(w, b, NULL, WAIT_SANDBOX_STARTED, ENGINE_CANCEL_WAIT_MS);
	return 0;
}
