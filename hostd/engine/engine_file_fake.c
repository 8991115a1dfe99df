/* The double of link/vm_file.c; see engine_test_util.h. */
#include "engine_test_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

int vm_file(struct vm *vm, uint64_t number, const struct vm_file *f)
{
	if (fake.file_rc)
		return fake.file_rc;
	assert_false(vm->is_destroyed);
	assert_int_equal(vm->file_number, 0); /* one at a time */
	assert_true(number > 0);
	vm->file = *f;
	snprintf(vm->file_path, sizeof(vm->file_path), "%.*s", (int)f->path_len,
		 (const char *)f->path);
	vm->file_number = number;
	vm->n_files++;
	return 0;
}

int vm_file_piece(struct vm *vm, uint64_t number, const void *data, size_t len)
{
	assert_false(vm->is_destroyed);
	assert_int_equal(number, vm->file_number);
	assert_int_equal(len, vm->awaited);
	vm->awaited = 0;
	bytes_append(&vm->file_bytes, data, len);
	return 0;
}

void vm_file_give_up(struct vm *vm)
{
	assert_false(vm->is_destroyed);
	vm->n_given_up++;
}

void fake_file_done(int i, enum gp_file_how how, const char *text)
{
	struct vm *vm = &fake.vms[i];
	struct vm_file_end end = {.how = how, .error = text, .size = 3};
	uint64_t number = vm->file_number;

	assert_true(number > 0);
	vm->file_number = 0;
	vm->ops->file_done(vm->ctx, number, &end);
}
