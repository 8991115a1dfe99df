/*
 * The interpreter that a spare is (spare.c): set up, then given what a start
 * would have given it, by its C API alone.
 *
 * PyConfig is read and written by the names of its fields, so no layout is
 * known here; of its size, that it is below CONFIG_BYTES_MAX.
 */
#ifndef HUTCH_GUEST_RUNNER_SPARE_PYTHON_H
#define HUTCH_GUEST_RUNNER_SPARE_PYTHON_H

#include <stdbool.h>

/* The functions that are not in the documented API have this form in 3.13; of
 * another version there is no spare. */
#define SPARE_PYTHON_MAJOR 3
#define SPARE_PYTHON_MINOR 13

/* As Py_BytesMain does it, with `name` as the only argument; false: this is no
 * such interpreter. */
bool spare_python_set_up(char *name);
/* os.environ. */
bool spare_python_environ(char *const *env);
/* The command line, of `program`; the interpreter parses it. */
bool spare_python_argv(char *const *argv, const char *program);
/* All the rest; the exit status. */
int spare_python_run(void);

#endif
