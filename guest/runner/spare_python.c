/* A Python by its C API; see spare_python.h. */
#include "spare_python.h"
#include <dlfcn.h>
#include <string.h>
#include <sys/types.h>

#define CONFIG_BYTES_MAX 8192 /* 3.13: 456 */
/* ---- the interpreter's functions --------------------------------------- */

typedef struct object PyObject;

struct py_status {
	int type; /* 0 = well */
	const char *func, *text;
	int exit_code;
};

/* name, result, arguments */
#define PYTHON_API(X)                                                          \
	X(PyConfig_InitPythonConfig, void, (void *))                           \
	X(PyConfig_SetBytesArgv, struct py_status,                             \
	  (void *, ssize_t, char *const *))                                    \
	X(PyConfig_Clear, void, (void *))                                      \
	X(Py_InitializeFromConfig, struct py_status, (const void *))           \
	X(Py_RunMain, int, (void))                                             \
	X(_PyInterpreterState_GetConfigCopy, int, (void *))                    \
	X(_PyInterpreterState_SetConfig, int, (const void *))                  \
	X(_PyConfig_AsDict, PyObject *, (const void *))                        \
	X(_PyConfig_FromDict, int, (void *, PyObject *))                       \
	X(PySys_GetObject, PyObject *, (const char *))                         \
	X(PySys_SetObject, int, (const char *, PyObject *))                    \
	X(PyImport_ImportModule, PyObject *, (const char *))                   \
	X(PyObject_GetAttrString, PyObject *, (PyObject *, const char *))      \
	X(PyDict_SetItemString, int, (PyObject *, const char *, PyObject *))   \
	X(PyDict_SetDefault, PyObject *, (PyObject *, PyObject *, PyObject *)) \
	X(PyDict_Clear, void, (PyObject *))                                    \
	X(PyList_New, PyObject *, (ssize_t))                                   \
	X(PyList_Append, int, (PyObject *, PyObject *))                        \
	X(PyLong_FromLong, PyObject *, (long))                                 \
	X(PyUnicode_DecodeFSDefault, PyObject *, (const char *))               \
	X(PyBytes_FromStringAndSize, PyObject *, (const char *, ssize_t))      \
	X(PyErr_Clear, void, (void))                                           \
	X(Py_IncRef, void, (PyObject *))                                       \
	X(Py_DecRef, void, (PyObject *))

#define MEMBER(name, result, args) result(*name) args;
static struct {
	PYTHON_API(MEMBER)
	PyObject *none;
} py;

static bool api_find(void)
{
	const unsigned long *version = dlsym(RTLD_DEFAULT, "Py_Version");

	if (!version ||
	    *version >> 16 != (SPARE_PYTHON_MAJOR << 8 | SPARE_PYTHON_MINOR))
		return false;
#define FIND(name, result, args)                                               \
	*(void **)&py.name = dlsym(RTLD_DEFAULT, #name);                       \
	if (!py.name)                                                          \
		return false;
	PYTHON_API(FIND)
	py.none = dlsym(RTLD_DEFAULT, "_Py_NoneStruct");
	return py.none;
}

/* ---- the stages -------------------------------------------------------- */

bool spare_python_set_up(char *name)
{
	static _Alignas(16) char config[CONFIG_BYTES_MAX];
	char *argv[] = {name, NULL};
	struct py_status st;

	if (!api_find())
		return false;
	py.PyConfig_InitPythonConfig(config);
	st = py.PyConfig_SetBytesArgv(config, 1, argv);
	if (!st.type)
		st = py.Py_InitializeFromConfig(config);
	py.PyConfig_Clear(config);
	return !st.type;
}

/* Takes over the reference to `v`. */
static bool put(PyObject *dict, const char *name, PyObject *v)
{
	bool ok = v && !py.PyDict_SetItemString(dict, name, v);

	if (v)
		py.Py_DecRef(v);
	return ok;
}

static PyObject *list_of(char *const *strings)
{
	PyObject *list = py.PyList_New(0);

	for (; list && *strings; strings++) {
		PyObject *s = py.PyUnicode_DecodeFSDefault(*strings);

		if (!s || py.PyList_Append(list, s))
			return NULL;
		py.Py_DecRef(s);
	}
	return list;
}

/* The command line as if it had been there at the start: the interpreter
 * parses it.  sys.path is site's since then, and is kept. */
bool spare_python_argv(char *const *argv, const char *program)
{
	static _Alignas(16) char config[CONFIG_BYTES_MAX];
	PyObject *path = py.PySys_GetObject("path"), *d = NULL;
	bool ok;

	py.PyConfig_InitPythonConfig(config);
	ok = path && !py._PyInterpreterState_GetConfigCopy(config) &&
	     (d = py._PyConfig_AsDict(config));
	ok = ok && put(d, "argv", list_of(argv)) &&
	     put(d, "orig_argv", py.PyList_New(0)) &&
	     put(d, "parse_argv", py.PyLong_FromLong(1)) &&
	     put(d, "program_name", py.PyUnicode_DecodeFSDefault(argv[0])) &&
	     put(d, "executable", py.PyUnicode_DecodeFSDefault(program)) &&
	     put(d, "base_executable", py.PyUnicode_DecodeFSDefault(program));
	if (ok)
		py.Py_IncRef(path);
	ok = ok && !py._PyConfig_FromDict(config, d) &&
	     !py._PyInterpreterState_SetConfig(config) &&
	     !py.PySys_SetObject("path", path);
	if (!ok)
		py.PyErr_Clear();
	if (d)
		py.Py_DecRef(d);
	py.PyConfig_Clear(config);
	return ok;
}

/* posix.environ is what os.environ holds. */
bool spare_python_environ(char *const *env)
{
	PyObject *posix = py.PyImport_ImportModule("posix");
	PyObject *dict =
		posix ? py.PyObject_GetAttrString(posix, "environ") : NULL;

	if (!dict)
		return false;
	py.PyDict_Clear(dict);
	for (; *env; env++) {
		const char *eq = strchr(*env, '=');
		PyObject *k, *v;

		if (!eq)
			continue;
		k = py.PyBytes_FromStringAndSize(*env, eq - *env);
		v = py.PyBytes_FromStringAndSize(eq + 1,
						 (ssize_t)strlen(eq + 1));
		/* Of two with one name the first counts. */
		if (!k || !v || !py.PyDict_SetDefault(dict, k, v))
			return false;
		py.Py_DecRef(k);
		py.Py_DecRef(v);
	}
	py.Py_DecRef(dict);
	py.Py_DecRef(posix);
	return true;
}

int spare_python_run(void)
{
	return py.Py_RunMain();
}
