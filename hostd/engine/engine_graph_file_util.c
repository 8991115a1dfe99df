/* What the tests of Files of graphs share; see engine_graph_file_util.h. */
#include "engine_graph_file_util.h"
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_TURNS 2000 /* of 2 ms */

void fkept_finish(struct fkept *k)
{
	file_rec_finish(&k->r);
}

void on_kept(void *ctx, const struct err *e, const struct file_rec *r,
	     bool is_new)
{
	struct fkept *k = ctx;

	k->n++;
	k->is_new = is_new;
	if (e)
		k->err = *e;
	else
		assert_int_equal(file_rec_copy(&k->r, r), 0);
}

void on_imported(void *ctx, const struct err *e, uint64_t bytes)
{
	struct fkept *k = ctx;

	k->n++;
	k->bytes = bytes;
	if (e)
		k->err = *e;
}

void until(const int *n, int want)
{
	for (int i = 0; *n < want && i < WAIT_TURNS; i++)
		env_loop_for(2);
	assert_int_equal(*n, want);
}

void fkept_wait(struct fkept *k)
{
	until(&k->n, 1);
}

static void on_room(void *ctx)
{
	(void)ctx;
}

int upload_begin(struct fkept *k, const char *name, uint64_t bytes)
{
	const struct upload_spec spec = {.name = name, .bytes = bytes};

	memset(k, 0, sizeof(*k));
	return engine_upload_begin(env.e, &env.who, &spec, on_room, on_kept, k,
				   &k->up, &k->err);
}

const uint8_t *uploaded(const char *name, const char *text)
{
	static uint8_t sha256[HASH_BYTES];
	struct fkept k;

	assert_int_equal(upload_begin(&k, name, strlen(text)), 0);
	assert_int_equal(engine_upload_write(k.up, text, strlen(text), &k.err),
			 0);
	assert_int_equal(engine_upload_end(k.up, &k.err), 0);
	fkept_wait(&k);
	assert_int_equal(k.err.code, ERR_NONE);
	memcpy(sha256, k.r.sha256, HASH_BYTES);
	fkept_finish(&k);
	return sha256;
}

void call_keep(struct fkept *k, const char *key, const char *sandbox,
	       const char *path)
{
	struct keep_spec spec = {.key = key, .sandbox = sandbox};
	struct file_path clean;

	memset(k, 0, sizeof(*k));
	assert_int_equal(file_path_clean(path, strlen(path), &clean, &k->err),
			 0);
	spec.path = &clean;
	spec.request_hash[0] = (uint8_t)*path;
	assert_int_equal(
		engine_keep(env.e, &env.who, &spec, on_kept, k, &k->ask), 0);
	assert_int_equal(k->n, 0);
}

void call_import(struct fkept *k, const char *key, const char *sandbox,
		 const char *path, const uint8_t sha256[HASH_BYTES])
{
	struct import_spec spec = {.key = key, .sandbox = sandbox};
	struct file_path clean;

	memset(k, 0, sizeof(*k));
	assert_int_equal(file_path_clean(path, strlen(path), &clean, &k->err),
			 0);
	spec.path = &clean;
	spec.request_hash[0] = (uint8_t)*path;
	memcpy(spec.sha256, sha256, HASH_BYTES);
	assert_int_equal(
		engine_import(env.e, &env.who, &spec, on_imported, k, &k->ask),
		0);
	assert_int_equal(k->n, 0);
}

struct opened {
	int n;
	char text[64];
	enum err_code code;
};

static void on_open(void *ctx, const struct err *e, const struct file_rec *r,
		    int fd)
{
	struct opened *o = ctx;

	o->n++;
	if (e) {
		o->code = e->code;
		return;
	}
	assert_int_equal(read(fd, o->text, sizeof(o->text) - 1),
			 (ssize_t)r->bytes);
	close(fd);
}

const char *graph_text(const uint8_t sha256[HASH_BYTES])
{
	static struct opened o;

	memset(&o, 0, sizeof(o));
	assert_int_equal(
		engine_graph_file_open(env.e, &env.who, sha256, on_open, &o),
		0);
	until(&o.n, 1);
	if (!o.code)
		return o.text;
	assert_int_equal(o.code, ERR_GRAPH_FILE_NOT_FOUND);
	return "-";
}

static void on_deleted(void *ctx, const struct err *e, const struct file_rec *r)
{
	struct opened *o = ctx;

	(void)r;
	o->n++;
	o->code = e ? e->code : ERR_NONE;
}

void graph_delete(const uint8_t sha256[HASH_BYTES], enum err_code want)
{
	struct opened o = {0};

	assert_int_equal(engine_graph_file_delete(env.e, &env.who, sha256,
						  on_deleted, &o),
			 0);
	until(&o.n, 1);
	assert_int_equal(o.code, want);
}

unsigned n_blobs(void)
{
	char path[100];
	struct dirent *e;
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/files", env.f.dir);
	d = opendir(path);
	assert_non_null(d);
	while ((e = readdir(d)))
		n += *e->d_name != '.';
	closedir(d);
	return n;
}

/* ---- the guest ---------------------------------------------------------- */

static void end_of(int i, struct vm_file_end *end)
{
	struct vm *vm = &fake.vms[i];
	uint64_t number = vm->file_number;

	assert_true(number > 0);
	vm->file_number = 0;
	vm->ops->file_done(vm->ctx, number, end);
}

void guest_reads(int i, const char *part, uint64_t size, uint8_t stamp)
{
	struct vm_file_end end = {.how = GP_FILE_OK,
				  .size = size,
				  .has_stamp = stamp != 0,
				  .stamp = {stamp}};
	struct vm *vm = &fake.vms[i];

	assert_int_equal(vm->file.op, GP_FILE_READ);
	if (*part)
		vm->ops->file_data(vm->ctx, vm->file_number,
				   (const uint8_t *)part, strlen(part));
	end_of(i, &end);
}

void guest_wants(int i, size_t len)
{
	struct vm *vm = &fake.vms[i];
	int n_given_up = vm->n_given_up;

	vm->awaited = len;
	vm->ops->file_more(vm->ctx, vm->file_number, len);
	for (int k = 0;
	     vm->awaited && vm->n_given_up == n_given_up && k < WAIT_TURNS; k++)
		env_loop_for(2);
	assert_true(!vm->awaited || vm->n_given_up > n_given_up);
}

void guest_done(int i, enum gp_file_how how)
{
	struct vm_file_end end = {.how = how, .error = "that is why"};

	end_of(i, &end);
}
