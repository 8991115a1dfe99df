#!/usr/bin/env python3
"""A waiting interpreter becomes a command, or the command is executed: the
same programs both ways, on the template's own files, and everything that they
can say compared.  Processes of this machine, no VM; as root, in a namespace of
mounts of its own.

    test_spare.py [--tree FOLDER] [CASE...]     FOLDER: the template, unpacked

test: timeout=300 beside=yes
"""

import fcntl
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from spare_programs import PROGRAMS, WORKSPACE

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.abspath(os.environ.get("HUTCH_BUILD") or
                        os.path.join(ROOT, "build"))
IMAGE = os.path.join(BUILD, "images", "python.erofs")
LIBRARY = os.path.join(BUILD, "guest", "spare.so")
CHANNEL = 15
USER = 1000
EXEC, WAITING, FAILED = 4, 2, 4
PAD = "HUTCH_PAD=" + "x" * 1000
ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
       "HOME": "/workspace", "USER": "sandbox", "LOGNAME": "sandbox",
       "SHELL": "/bin/bash", "TMPDIR": "/tmp", "TERM": "dumb",
       "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}


class Tree:
    """The template with /proc, /dev and a writable /workspace and /tmp."""

    def __init__(self, path):
        self.path = path
        for name in ("proc", "dev"):
            os.makedirs(f"{path}/{name}", exist_ok=True)
        os.makedirs(f"{path}/run/hutch", exist_ok=True)
        shutil.copy(LIBRARY, f"{path}/run/hutch/spare.so")
        subprocess.run(["mount", "-t", "proc", "proc", f"{path}/proc"],
                       check=True)
        subprocess.run(["mount", "--bind", "/dev", f"{path}/dev"], check=True)
        os.chmod(path, 0o755)
        os.chmod(f"{path}/tmp", 0o1777)
        self.fresh()

    def fresh(self):
        """The workspace as every program finds it."""
        top = f"{self.path}/workspace"
        shutil.rmtree(top, ignore_errors=True)
        for name, text in WORKSPACE.items():
            os.makedirs(os.path.dirname(f"{top}/{name}"), exist_ok=True)
            with open(f"{top}/{name}", "wb") as f:
                f.write(text)
        for folder, _, names in os.walk(top):
            os.chown(folder, USER, USER)
            for name in names:
                os.utime(os.path.join(folder, name), (0, 0))


def child(tree, fds, argv, env, cwd):
    """As guest/spawn.c does it; no import may happen here."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        high = {to: fcntl.fcntl(fd, fcntl.F_DUPFD, 100)
                for to, fd in fds.items()}
        for to, fd in high.items():
            os.dup2(fd, to)
        for fd in range(3, 1000):
            if fd not in fds:
                try:
                    os.close(fd)
                except OSError:
                    pass
        os.chroot(tree.path)
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        os.chdir(cwd)
        os.umask(0o22)
        for sig in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(sig, signal.SIG_DFL)
        folders = [""] if "/" in argv[0] else env["PATH"].split(":")
        for folder in folders:
            try:
                os.execve(os.path.join(folder, argv[0]), argv, env)
            except (FileNotFoundError, NotADirectoryError):
                pass
    finally:
        os._exit(126)


def stdin_of(data):
    if not data:
        return os.open("/dev/null", os.O_RDWR)
    fd = os.memfd_create("stdin")
    os.pwrite(fd, data, 0)
    return fd


def collect(pid, out, err):
    """Its streams to their end, its status."""
    got = {out: b"", err: b""}
    left = [out, err]
    while left:
        for fd in select.select(left, [], [])[0]:
            data = os.read(fd, 65536)
            got[fd] += data
            if not data:
                left.remove(fd)
                os.close(fd)
    return got[out], got[err], os.waitpid(pid, 0)[1]


class Spare:
    """One that waits.  Started ahead; its streams are its own from then on."""

    def __init__(self, tree):
        self.ours, theirs = socket.socketpair()
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        null = os.open("/dev/null", os.O_RDWR)
        env = dict(ENV, LD_PRELOAD="/run/hutch/spare.so",
                   HUTCH_PAD=PAD.partition("=")[2])
        self.pid = child(tree, {0: null, 1: out, 2: err,
                                CHANNEL: theirs.fileno()},
                         ["python3", PAD], env, "/")
        for fd in (null, out, err):
            os.close(fd)
        theirs.close()

    def waits(self):
        head = self.ours.recv(12)
        return len(head) == 12 and struct.unpack("<3I", head)[0] == WAITING

    def become(self, argv, env, cwd, fd):
        env = [f"{k}={v}" for k, v in env.items()]
        body = b"".join(os.fsencode(s) + b"\0" for s in [cwd, *argv, *env])
        head = struct.pack("<6I", EXEC, len(body), len(argv), len(env), 0, 0)
        socket.send_fds(self.ours, [head], [fd])
        self.ours.sendall(body)


def by_exec(tree, argv, env, cwd, stdin):
    """(outcome, seconds, None)"""
    fd = stdin_of(stdin)
    out, out_theirs = os.pipe()
    err, err_theirs = os.pipe()
    t = time.monotonic()
    pid = child(tree, {0: fd, 1: out_theirs, 2: err_theirs}, argv, env, cwd)
    for one in (fd, out_theirs, err_theirs):
        os.close(one)
    return (pid, *collect(pid, out, err)), time.monotonic() - t, None


def by_spare(tree, argv, env, cwd, stdin):
    """(outcome, seconds, what it said in place of a start)"""
    spare, fd = Spare(tree), stdin_of(stdin)
    assert spare.waits(), collect(spare.pid, spare.out, spare.err)
    t = time.monotonic()
    spare.become(argv, env, cwd, fd)
    os.close(fd)
    got = collect(spare.pid, spare.out, spare.err)
    seconds = time.monotonic() - t
    said = spare.ours.recv(100)
    spare.ours.close()
    return (spare.pid, *got), seconds, said


def plain(outcome):
    """Without what differs from start to start."""
    pid, out, err, status = outcome
    texts = [re.sub(rb"\b%d\b" % pid, b"PID",
                    re.sub(rb"0x[0-9a-f]{6,}", b"0x..", t))
             for t in (out, err)]
    return (*texts, status)


def differences(a, b):
    for name, x, y in zip(("stdout", "stderr"), a, b):
        xs, ys = x.split(b"\n"), y.split(b"\n")
        for label, lines in (("exec ", [s for s in xs if s not in ys]),
                             ("spare", [s for s in ys if s not in xs])):
            for line in lines[:4]:
                yield f"{name} {label} {line[:400]!r}"
        if x != y and sorted(xs) == sorted(ys):
            yield f"{name}: other order"
    if a[2] != b[2]:
        yield f"status {a[2]:#x} {b[2]:#x}"


def check(tree, p):
    """What is wrong with the program's two outcomes, as lines."""
    env = dict(ENV, **p.env)
    runs = []
    for way in (by_exec, by_spare):
        tree.fresh()
        runs.append(way(tree, p.argv, env, p.cwd, p.stdin))
    (a, _, _), (b, _, said) = runs
    wrong = list(differences(plain(a), plain(b)))
    if said:
        wrong.append(f"it said {said!r}")
    return wrong


IS_SPARE = "print('spare.so' in open('/proc/self/maps').read())"


def is_spare(tree, *argv, stdin=b"", cwd="/workspace", **env):
    tree.fresh()
    with open(f"{tree.path}/workspace/who.py", "w") as f:
        f.write(IS_SPARE)
    (_, out, err, _), _, said = by_spare(tree, argv, dict(ENV, **env), cwd,
                                         stdin)
    assert out in (b"True\n", b"False\n"), (argv, out, err, said)
    return out == b"True\n"


def test_served(tree):
    """These are served by what waits, and not by an exec in disguise."""
    for argv, stdin in (
            (("python", "who.py"), b""), (("python3", "who.py", "-x"), b""),
            (("python3.13", "who.py"), b""),
            (("/usr/bin/python", "who.py"), b""),
            (("python3", "-c", IS_SPARE), b""),
            (("python3", "-m", "who"), b""),
            (("python3", "-", "a"), IS_SPARE.encode()),
            (("python3",), IS_SPARE.encode())):
        assert is_spare(tree, *argv, stdin=stdin), argv
    assert is_spare(tree, "python3", "who.py", A="b", TERM="x",
                    PATH="/nowhere:/usr/bin")


def test_executed(tree):
    """And these are executed: what a start reads cannot be given later."""
    for env in ({"PYTHONPATH": "/tmp"}, {"PYTHONDONTWRITEBYTECODE": ""},
                {"LANG": "C"}, {"LC_ALL": "POSIX"}, {"TZ": "Europe/Berlin"},
                {"HOME": "/tmp"}, {"MALLOC_ARENA_MAX": "1"},
                {"LD_LIBRARY_PATH": "/tmp"}):
        assert not is_spare(tree, "python3", "who.py", **env), env
    for argv in (("python3", "-u", "who.py"), ("/bin/python3", "who.py"),
                 ("python3", "-I", "who.py"), ("python3", "-c" + IS_SPARE)):
        assert not is_spare(tree, *argv), argv
    top = f"{tree.path}/workspace"
    env = dict(ENV, PATH="/workspace/venv/bin:" + ENV["PATH"])
    tree.fresh()
    os.makedirs(f"{top}/venv/bin")
    os.symlink("/usr/bin/python3", f"{top}/venv/bin/python")
    with open(f"{top}/venv/pyvenv.cfg", "w") as f:
        f.write("home = /usr/bin\n")
    code = "import sys; print(sys.prefix)"
    (_, out, err, _), _, _ = by_spare(tree, ["python", "-c", code], env, "/",
                                      b"")
    assert out == b"/workspace/venv\n", (out, err)


def test_user_site(tree):
    """Packages of the user: found, and none is started that would not."""
    tree.fresh()
    site = f"{tree.path}/workspace/.local/lib/python3.13/site-packages"
    spare = Spare(tree)
    assert spare.waits()
    os.makedirs(site)
    with open(f"{site}/mine.py", "w") as f:
        f.write("print('mine')\n")
    fd = stdin_of(b"")
    spare.become(["python3", "-c", "import mine"], ENV, "/", fd)
    os.close(fd)
    got = collect(spare.pid, spare.out, spare.err)
    assert got[0] == b"mine\n" and not got[2], got
    spare = Spare(tree)
    assert not spare.waits()
    os.waitpid(spare.pid, 0)


def test_not_started(tree):
    """What a start's failure is, it is too: the step and the reason."""
    tree.fresh()
    for argv, cwd, step, error in (
            (["python3", "-c", "1"], "/no/such", b"cwd", 2),
            (["python3", "-c", "1"], "/root", b"cwd", 13),
            (["/workspace/python"], "/", b"exec", 2),
            (["/workspace"], "/", b"exec", 13)):
        (_, out, err, _), _, said = by_spare(tree, argv, ENV, cwd, b"")
        want = struct.pack("<3I", FAILED, error, len(step)) + step
        assert said == want and not out + err, (argv, said, out, err)


def test_given_up(tree):
    spare = Spare(tree)
    assert spare.waits()
    spare.ours.close()
    assert collect(spare.pid, spare.out, spare.err) == (b"", b"", 0)


def test_what_proc_shows(tree):
    """The command line and the environment, then nothing but NULs."""
    code = ("import sys; sys.stdout.write(open('/proc/self/cmdline').read() + "
            "'|' + open('/proc/self/environ').read() + '|' + "
            "open('/proc/self/comm').read())")
    argv = ["python", "-c", code, "a", "", "b"]
    (_, out, _, _), _, _ = by_spare(tree, argv, dict(ENV, A="b"), "/", b"")
    cmdline, env, comm = out.decode().rsplit("|", 2)
    line = "\0".join(argv) + "\0"
    assert cmdline.startswith(line) and not cmdline[len(line):].strip("\0"), \
        cmdline
    want = "".join(f"{k}={v}\0" for k, v in dict(ENV, A="b").items())
    assert env.startswith(want) and not env[len(want):].strip("\0"), env
    assert comm == "python\n", comm
    # What does not fit is cut, and what stands behind it is not touched.
    argv = ["python3", "-c", code + "#" * 5000]
    (_, out, _, _), _, _ = by_spare(tree, argv, ENV, "/", b"")
    assert out.decode().startswith("python3\0-c\0import sys;"), out
    assert out.endswith(b"python3\n"), out


def run_all(tree, wanted):
    failed = n = 0
    tests = [(f.__name__[len("test_"):], lambda f=f: f(tree) or [])
             for name, f in globals().items() if name.startswith("test_")]
    tests += [(p.name, lambda p=p: check(tree, p)) for p in PROGRAMS]
    for name, run in tests:
        if wanted and not any(w in name for w in wanted):
            continue
        n += 1
        try:
            wrong = run()
        except (AssertionError, OSError) as e:
            wrong = [repr(e)[:1500]]
        failed += bool(wrong)
        print(f"{'not ok' if wrong else 'ok'} {n} - {name}")
        for line in wrong:
            print("# " + line)
        sys.stdout.flush()
    print(f"1..{n}")
    return bool(failed)


def main():
    args, path = sys.argv[1:], None
    if args[:1] == ["--tree"]:
        path, args = args[1], args[2:]
    for reason, ok in (("needs root", os.geteuid() == 0),
                       ("no fsck.erofs", shutil.which("fsck.erofs")),
                       (f"{IMAGE} is missing: make images",
                        os.path.exists(IMAGE)),
                       (f"{LIBRARY} is missing: make guest",
                        os.path.exists(LIBRARY))):
        if not ok:
            print(reason)
            return 77
    if not os.environ.get("HUTCH_TEST_UNSHARED"):
        os.environ["HUTCH_TEST_UNSHARED"] = "1"
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private",
                              sys.executable, *sys.argv])
    scratch = tempfile.mkdtemp(prefix="spare-tree.")
    try:
        if not path:
            path = scratch + "/tree"
            subprocess.run(["fsck.erofs", f"--extract={path}", IMAGE],
                           check=True, capture_output=True)
        tree = Tree(path)
        try:
            return run_all(tree, args)
        finally:
            for name in ("dev", "proc"):
                subprocess.run(["umount", f"{path}/{name}"], check=True)
    finally:
        shutil.rmtree(scratch)


sys.exit(main())
