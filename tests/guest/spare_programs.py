"""Programs that test_spare.py runs twice, and the files that they find."""

from dataclasses import dataclass, field

# All that a program can see of its interpreter and its process without trying
# hard.  What differs from start to start is not printed: dates, times, the
# hash seed.  /proc shows NULs behind a spare's command line: cut off.
STATE = r"""
import sys, os
def show(name, v): print(name, "=", v)
OTHER = {"modules", "path_importer_cache", "meta_path", "path_hooks",
         "implementation"}
for n in sorted(dir(sys)):
    v = getattr(sys, n)
    if not callable(v) and n not in OTHER and "std" not in n:
        show(n, repr(v))
show("modules", list(sys.modules))
show("importers", sorted(sys.path_importer_cache))
show("finders", (sys.meta_path, sys.path_hooks))
for f in (sys.stdin, sys.stdout, sys.stderr):
    b = f.buffer
    show("stream", (repr(f), f.encoding, f.errors, f.line_buffering,
                    f.write_through, f.isatty(), f.seekable(), f.newlines,
                    f._CHUNK_SIZE, repr(b), repr(b.raw), b.raw.mode,
                    b.raw.closefd, b.raw._blksize))
show("streams", [getattr(sys, n) is getattr(sys, f"__{n}__")
                 for n in ("stdin", "stdout", "stderr")])
show("main", {k: repr(v).split(" at ")[0] for k, v in globals().items()
              if k.startswith("__")})
import signal
show("signals", [(s.name, str(signal.getsignal(s)))
                 for s in sorted(signal.valid_signals())
                 if hasattr(s, "name")])
show("mask", signal.pthread_sigmask(signal.SIG_BLOCK, []))
show("env", list(os.environ.items()))
os.environ["NEW"] = "1"
os.unsetenv("TERM")
with os.popen("env") as p:
    show("env below", p.read())
show("cwd", os.getcwd())
show("ids", (os.getresuid(), os.getresgid(), os.getgroups(),
             os.getsid(0) == os.getpid() == os.getpgrp()))
show("umask", os.umask(0))
def target(n):
    try:
        return os.readlink("/proc/self/fd/" + n).split(":")[0]
    except FileNotFoundError:
        return "listdir's own"
show("fds", [(n, target(n)) for n in sorted(os.listdir("/proc/self/fd"))])
show("kinds", [os.fstat(i).st_mode >> 12 for i in range(3)])
show("flags", [os.get_inheritable(i) for i in range(3)])
with open("/proc/self/status") as f:
    show("status", [l for l in f.read().split("\n") if l.split(":")[0] in (
        "Name", "Umask", "Threads", "SigBlk", "SigIgn", "SigCgt", "CapEff",
        "NoNewPrivs", "Seccomp", "Groups")])
for n in ("exe", "root", "cwd"):
    show(n, os.readlink("/proc/self/" + n))
for n in ("cmdline", "environ", "comm", "personality", "oom_score_adj"):
    with open("/proc/self/" + n) as f:
        show(n, f.read().rstrip("\0").split("\0"))
import resource
show("limits", [resource.getrlimit(i) for i in range(16)])
show("frame below", sys._getframe().f_back)
import gc, locale, time
show("gc", (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(),
            gc.callbacks))
show("locale", (locale.setlocale(locale.LC_ALL), locale.getencoding(),
                sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()))
show("zone", (time.tzname, time.timezone))
show("nice", (os.nice(0), os.sched_getscheduler(0)))
with os.popen("echo $PPID") as p:
    show("its child's parent", p.read() == f"{os.getpid()}\n")
import traceback
traceback.print_stack()
import subprocess
show("below", subprocess.run(
    [sys.executable, "-c", "import sys; print(sys.flags, sys.path)"],
    capture_output=True, text=True))
import warnings
show("filters", warnings.filters)
import threading
show("threads", (threading.active_count(), threading.main_thread().ident ==
                 threading.get_ident(), threading.stack_size()))
import site
show("site", (site.ENABLE_USER_SITE, site.USER_SITE, site.PREFIXES))
def depth(n):
    try:
        return depth(n + 1)
    except RecursionError:
        return n
show("recursion", (sys.getrecursionlimit(), depth(0)))
gc.collect()
show("subclasses", len(object.__subclasses__()))
print(sys.stdin.buffer.read())
print("end", flush=True)
"""

WORKSPACE = {name: text.encode() for name, text in {
    "state.py": STATE,
    "error.py": "def f():\n    return 1 / 0\nf()\n",
    "chain.py": "try:\n    {}['x']\nexcept KeyError as e:\n"
                "    raise ValueError('é') from e\n",
    "syntax.py": "def f(:\n",
    "package/__main__.py": "import sys\nprint(sys.path[0], sys.argv, "
                           "__file__, __name__, __package__, __spec__)\n",
    "module.py": "import sys\nprint(__name__, __file__, __spec__, "
                 "sys.argv)\n",
    "json.py": "print('json of mine', __name__, __file__)\n",
    "mine/pandas.py": "print('pandas of mine')\n",
    "mine/a.py": "import pandas, json\n"
                 "print(pandas.__file__, json.__file__)\n",
    "pool.py": "import multiprocessing, sys\n"
               "def g(x): return x * x, __name__\n"
               "if __name__ == '__main__':\n"
               "    for m in ('spawn', 'fork', 'forkserver'):\n"
               "        with multiprocessing.get_context(m).Pool(2) as p:\n"
               "            print(m, p.map(g, [1, 2, 3]))\n",
    "again.py": "import os, sys\nif len(sys.argv) < 2:\n"
                "    os.execv(sys.executable, [sys.executable, __file__, "
                "'again'])\nprint(sys.argv, sys.orig_argv)\n",
    "pipe.py": "import sys\nfor i in range(3):\n    print(i)\n"
               "    print(-i, file=sys.stderr)\n",
}.items()}
WORKSPACE["latin.py"] = "# -*- coding: latin-1 -*-\nprint('ä')\n".encode(
    "latin-1")


@dataclass
class Program:
    name: str
    argv: list
    stdin: bytes = b""
    cwd: str = "/workspace"
    env: dict = field(default_factory=dict)


PROGRAMS = []


def program(name, *argv, **more):
    PROGRAMS.append(Program(name, list(argv), **more))


def code(name, text, *args, **more):
    program(name, "python3", "-c", text, *args, **more)


for name in ("python", "python3", "python3.13", "/usr/bin/python",
             "/usr/bin/python3", "/bin/python3"):
    program("state of " + name, name, "state.py", "a", "-b", "--", "c d", "",
            stdin=b"data\xff in")
program("state in another folder", "python3", "../workspace/state.py",
        cwd="/tmp")
program("state by -m", "python3", "-m", "state", "q")
program("state by -", "python3", "-", "a", "b", stdin=STATE.encode())
program("state by stdin", "python3", stdin=STATE.encode())
# By -c it is longer than the room for the command line.
code("state by -c", STATE.replace('for n in ("cmdline", ', "for n in ("), "x",
     "-c", "y")
program("state with a variable", "python3", "state.py",
        env={"A": "x=y", "TERM": "vt100", "B": "ä", "USER": ""})
code("a variable that is no text", "import os; print(os.environb[b'B'])",
     env={"B": "\udcff"})
program("state with another PATH", "python3", "state.py",
        env={"PATH": "/nowhere:/usr/bin:/bin"})

program("a module", "python3", "-m", "module", "a")
program("a module of the library", "python3", "-m", "calendar", "2024", "2")
program("a package's main", "python3", "package", "a")
program("a file by a longer name", "python3", "./package/../module.py")
program("no such file", "python3", "none.py")
program("no such module", "python3", "-m", "none")
program("a folder without main", "python3", "mine")
program("an error", "python3", "error.py")
program("an error of an error", "python3", "chain.py")
program("an error of syntax", "python3", "syntax.py")
program("a coding line", "python3", "latin.py")
program("modules in the script's folder", "python3", "mine/a.py", cwd="/")
code("modules in the current folder", "import json")
program("a pool of processes", "python3", "pool.py")
program("executes itself", "python3", "again.py")
program("both streams", "python3", "pipe.py")

code("an error by -c", "1/0")
code("an error of syntax by -c", "def f(:")
code("exit 3", "import sys; sys.exit(3)")
code("exit with text", "raise SystemExit('bye')")
code("exit at once", "import os; print('lost'); os._exit(7)")
code("exit with what is no number", "raise SystemExit({})")
for number in (1, 2, 9, 13, 15):
    code(f"signal {number}",
         f"import os; os.kill(os.getpid(), {number}); print('on')")
code("abort", "import os; os.abort()")
code("a broken pipe", "import os, sys\nr, w = os.pipe()\nos.close(r)\n"
     "try: os.write(w, b'x')\nexcept BrokenPipeError as e: print(e)")
code("exit handlers", "import atexit\natexit.register(print, 'bye')\n"
     "print('a', end='')")
code("a thread that lasts", "import threading, time\nthreading.Thread("
     "target=lambda: (time.sleep(.1), print('t'))).start()\nprint('m')")
code("input", "import sys\nprint(input(), sys.stdin.readline())\n"
     "print(sys.stdin.buffer.read())", stdin=b"one\ntwo\nthree\xff")
code("input that is not there", "input('> ')")
code("input that is no text", "import sys; sys.stdin.read()", stdin=b"\xff")
code("much output", "import sys\nsys.stdout.write('x' * 300000)\n"
     "sys.stderr.write('y' * 70000)")
code("output that is no text", "print('\\udcff\\ud800')")
code("arguments that are no text", "import sys; print(sys.argv)",
     "\udcff\u00e4")
code("a debugger", "x = 1\nbreakpoint()\nprint(x)", stdin=b"p x\nc\n")
code("a prompt", "import code; code.interact()", stdin=b"1+1\n")
code("asyncio", "import asyncio; print(asyncio.run(asyncio.sleep(0, 5)))")
code("libraries", "import numpy, pandas\n"
     "print(pandas.DataFrame({'a': numpy.arange(3)}).describe().to_json())")
code("extensions", "import sqlite3, ssl, ctypes, hashlib, decimal, zlib\n"
     "print(hashlib.md5(b'x').hexdigest(), ssl.OPENSSL_VERSION)")
code("the stack", "import inspect; print(inspect.stack())")
code("warnings", "import warnings; warnings.warn('w', DeprecationWarning)")
code("an unraisable error", "class A:\n  def __del__(self): 1/0\nA()")
code("a fork", "import os\nif os.fork(): print(os.wait()[1])\n"
     "else: print('child', flush=True); os._exit(3)")
code("a nice value", "import os; print(os.nice(5))")
code("a limit", "import resource, sys\nresource.setrlimit("
     "resource.RLIMIT_NOFILE, (5, 5))\nprint(open('/dev/null').fileno())\n"
     "print(open('/dev/null').fileno())")
code("finders see new files", "import os\nopen('new.py', 'w').write('x = 1')\n"
     "import new; print(new.x)")

program("unbuffered", "python3", "-u", "pipe.py")
program("its version", "python3", "-V")
program("-c without code", "python3", "-c")
program("-c with its code", "python3", "-cprint(1)")
program("isolated", "python3", "-I", "state.py")
code("PYTHONPATH", "import sys; print(sys.flags, sys.path)",
     env={"PYTHONPATH": "/tmp"})
code("byte code", "import sys; print(sys.flags, sys.dont_write_bytecode)",
     env={"PYTHONDONTWRITEBYTECODE": ""})
code("a hash seed", "print(hash('x'))", env={"PYTHONHASHSEED": "5"})
code("a time zone", "import time; print(time.tzname)",
     env={"TZ": "Europe/Berlin"})
code("a locale", "import sys; print(sys.stdout.encoding, sys.flags)",
     env={"LANG": "C", "LC_ALL": "POSIX"})
