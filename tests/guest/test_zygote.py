#!/usr/bin/env python3
"""What waits beside the first runner, in one guest: the python template without
its heavy libraries, cold boot.  Later runs are forks of a zygote, and some of
those wait before the first run; `python` as a command becomes an interpreter
that waits.

    test_zygote.py [--verbose] [CASE...]

test: timeout=1200 beside=yes seconds=150
"""

import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import scenario
import vm
from scenario import Failed, check, ended

MEM_MIB = 256
LIMIT_BYTES = 128 << 20
FORK_S = 120  # a runner by fork, where the kernel is interpreted
IDLE_S = 400  # until what was used is made again
WHO = """
import os, random, sys, uuid
def run(i, c):
    print("hello")
    return {"pid": os.getpid(), "parent": os.getppid(), "sum": sum(i),
            "random": [random.random(), os.urandom(8).hex(),
                       str(uuid.uuid4())],
            "parent_is": open(f"/proc/{os.getppid()}/cmdline").read(),
            "cgroup": open("/proc/self/cgroup").read(),
            "session": os.getsid(0), "stdin": sys.stdin.read(),
            "children": open(f"/proc/self/task/{os.getpid()}/children"
                             ).read() if os.path.exists(
                f"/proc/self/task/{os.getpid()}/children") else "",
            "pids": [int(n) for n in os.listdir("/proc") if n.isdigit()],
            "fds": sorted(int(n) for n in os.listdir("/proc/self/fd"))}
"""
seen = []


def who(g):
    t = time.monotonic()
    c = ended(g.run(WHO, "[1,2,3]", timeout=FORK_S), "exited", 0)
    r = json.loads(c.end["result"])
    check(r["sum"] == 6 and c.stdout == b"hello\n", r, c.stdout)
    check("zygote" not in c.stderr.decode(), c.stderr)
    g.note(f"{time.monotonic() - t:.2f} s")
    seen.append(r)
    return r


def is_fork(r):
    return "zygote" in r["parent_is"].split("\0")


def case_first(g):
    check(not is_fork(who(g)), seen)


def case_second_and_third_are_forks(g):
    for _ in range(2):
        r = who(g)
        check(is_fork(r), r)
        check(r["session"] == r["pid"] and r["stdin"] == "", r)
        check(r["cgroup"].strip().startswith("0::/user/c"), r)
    # The second one waited when the first one ran.
    check(seen[1]["pid"] in seen[0]["pids"], seen)
    check(seen[1]["parent"] == seen[2]["parent"], seen)
    # All have the same descriptors open, and none has a child.
    check(seen[1]["fds"] == seen[2]["fds"] and
          len(seen[1]["fds"]) <= len(seen[0]["fds"]), seen)
    check(not any(r["children"] for r in seen), seen)
    for i in range(3):
        check(len({r["random"][i] for r in seen}) == len(seen), seen)


def case_ends(g):
    """Exit codes, signals and errors of forks are told like any other's."""
    ended(g.run("import os\ndef run(i, c): os._exit(5)", timeout=FORK_S),
          "exited", 5)
    ended(g.run("import os\ndef run(i, c): os.kill(os.getpid(), 11)",
                timeout=FORK_S), "signaled", signal=11)
    c = ended(g.run("def run(i, c):\n    return 1/0", timeout=FORK_S),
              "exited", 1)
    check(c.stderr.startswith(b"Traceback") and b"python.py" not in c.stderr,
          c.stderr)
    n = g.start_run("def run(i, c):\n    print('a')\n    while 1: pass",
                    timeout_ms=1000)
    c = ended(g.finish(n, FORK_S), "timed_out")
    check(c.stdout == b"a\n", c.stdout)


def case_wait_is_as_ever(g):
    """No child but its own; a fork that comes back is not the runner."""
    c = ended(g.run("""
import os
def run(i, c):
    try:
        os.wait()
        return "a child"
    except ChildProcessError:
        pass
    if os.fork():
        os.wait()
        return "parent"
    return "child"
""", timeout=FORK_S), "exited", 0)
    check(c.end["result"] == b'"parent"', c.end)


def case_at_once(g):
    """Four runs that were asked for together: each has a runner of its own."""
    code = ("import os, time\ndef run(i, c):\n    time.sleep(i)\n"
            "    return os.getpid()")
    n = [g.start_run(code, "1", timeout_ms=600000) for _ in range(4)]
    done = [ended(g.finish(x, 4 * FORK_S), "exited", 0) for x in n]
    check(len({c.end["result"] for c in done}) == 4, done)


def case_waits_again_when_idle(g):
    """After a while the next run finds a fork that was there before."""
    ended(g.exec(["true"], timeout=60), "exited", 0)
    pause(g, 15)
    c = ended(g.exec(["ls", "/proc"], timeout=60), "exited", 0)
    r = who(g)
    check(is_fork(r) and str(r["pid"]).encode() in c.stdout.split(), r,
          c.stdout)


def case_oom(g):
    n = g.start_run("def run(i, c):\n  x = []\n"
                    "  while 1: x.append(bytearray(10 << 20))",
                    timeout_ms=600000)
    ended(g.finish(n, 600), "oom")
    check(is_fork(who(g)), seen[-1])


def case_killed_by_user_code(g):
    """The zygote has the uid of user code: it is replaced, once; then runners
    are started one by one."""
    kill = ("import os\ndef run(i, c):\n    os.kill(os.getppid(), 9)\n"
            "    return 'on'")
    for is_replaced in (True, False):
        c = ended(g.run(kill, timeout=FORK_S), "exited", 0)
        check(c.end["result"] == b'"on"', c.end)
        check(is_fork(who(g)) == is_replaced, seen[-1])


# ---- python as a command ----------------------------------------------------

SPARE = ("import os; print('spare.so' in open('/proc/self/maps').read(), "
         "os.getpid(), os.getppid(), os.getsid(0), "
         "open('/proc/self/cgroup').read().strip())")


def python(g, code=SPARE, *args, **more):
    t = time.monotonic()
    c = ended(g.exec(["python", "-c", code, *args], timeout=600, **more),
              "exited", 0)
    g.note(f"{time.monotonic() - t:.2f} s")
    return c.stdout.decode().split()


def pause(g, seconds):
    """The guest goes on, and is asked for nothing."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        g.pump(end - time.monotonic())


def until_one_waits(g):
    end = time.monotonic() + IDLE_S
    while time.monotonic() < end:
        pause(g, 8)
        # one process: fork and exec take seconds
        c = ended(g.exec(["bash", "-c", "for f in $(grep -ls spare.so "
                          "/proc/[0-9]*/maps); do read -r x <${f%maps}cgroup;"
                          " [[ $x != */user/* ]] || echo $f; done"],
                         timeout=320, timeout_ms=300000), "exited")
        if c.stdout:
            return
    raise Failed("no interpreter waits")


def case_python_waits(g):
    """A command's process in all: child of the nest, its own session and
    group; the next one is executed, or a second one that waits."""
    until_one_waits(g)
    is_spare, pid, parent, session, group = python(g)
    check(is_spare == "True" and parent == "1" and session == pid and
          group.startswith("0::/user/c"), is_spare, pid, parent, group)
    until_one_waits(g)
    got = python(g, "import os, sys; print(sys.argv[1:], os.getcwd(), "
                 "os.environ['A'], input())", "x", cwd="/tmp", env=["A=b"],
                 stdin=b"in\n")
    check(got == ["['x']", "/tmp", "b", "in"], got)


def case_python_ends(g):
    """By its code, a signal, its time-out; what it started in the background
    stays, and does not when it was stopped."""
    for code, how, number in (("import sys; sys.exit(3)", "exited", 3),
                              ("import os; os.kill(os.getpid(), 11)",
                               "signaled", 11)):
        until_one_waits(g)
        c = g.exec(["python3", "-c", code], timeout=600)
        ended(c, how, *([number] if how == "exited" else [None, number]))
    until_one_waits(g)
    c = g.start_exec(["python3", "-c", "import subprocess, time\n"
                      "subprocess.Popen(['sleep', '1000'])\n"
                      "print('up', flush=True)\nwhile 1: pass"],
                     timeout_ms=20000)
    c = ended(g.finish(c, 600), "timed_out")
    check(c.stdout == b"up\n", c.stdout)
    scenario.nothing_left(g, b"sleep")
    until_one_waits(g)
    code = ("import signal, sys, time\n"
            "signal.signal(15, lambda *a: sys.exit(9))\n"
            "print('up', flush=True)\nwhile 1: time.sleep(.2)")
    n = g.start_exec(["python3", "-c", code])
    g.wait(lambda: g.commands[n].stdout == b"up\n", 600)
    g.send(70, {1: 60000}, n)
    ended(g.finish(n, 600), "cancelled")
    python(g, "import subprocess; subprocess.Popen(['sleep', '1000'])")
    c = ended(g.exec(["bash", "-c", "for d in /proc/[0-9]*; do grep -q ^sleep "
                      "$d/comm && kill ${d#/proc/} && echo killed; done"],
                     timeout=120), "exited")
    check(c.stdout == b"killed\n", c.stdout)


def case_python_not_started(g):
    until_one_waits(g)
    c = ended(g.exec(["python3", "-c", "1"], cwd="/no/such", timeout=600),
              "not_started")
    check("cwd: ENOENT" in c.end["error"] and c.started is None, c.end)


def case_waiting_ones_are_killed(g):
    """User code has their uid: what is asked for next is served all the same,
    also while the kernel is at the memory of those that were killed, and they
    are made again."""
    until_one_waits(g)
    ended(g.exec(["bash", "-c", "kill -9 -1"], timeout=600), "exited", 0)
    is_spare, _, parent, _, group = python(g)
    check(is_spare == "False" and parent == "1" and
          group.startswith("0::/user/c"), is_spare, parent, group)
    ended(g.run("def run(i, c): return i", "1", timeout=600), "exited", 0)
    until_one_waits(g)


def case_nothing_is_left(g):
    c = ended(g.exec(["bash", "-c", "cat /proc/[0-9]*/stat"], timeout=60),
              "exited")
    zombies = [line for line in c.stdout.decode().splitlines()
               if ") Z " in line and not line.split()[0] == "1"]
    check(not zombies, zombies)


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--verbose", action="store_true")
    p.add_argument("cases", nargs="*")
    a = p.parse_args()
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("no access to /dev/kvm")
        return 77
    todo = [n[len("case_"):] for n in globals() if n.startswith("case_") and
            (not a.cases or any(c in n for c in a.cases))]
    failed = 0
    with vm.VM("python", mem=MEM_MIB, verbose=a.verbose) as g:
        g.boot(3600)
        g.prepare("python")
        g.bind(300, mem=LIMIT_BYTES)
        for i, name in enumerate(todo, 1):
            t, notes = time.monotonic(), []
            g.note = notes.append
            try:
                globals()["case_" + name](g)
                g.ping(60)
            except (Failed, vm.GuestError, OSError) as e:
                failed += 1
                print(f"not ok {i} - {name}")
                print("# " + str(e).replace("\n", "\n# "), flush=True)
                continue
            print(f"ok {i} - {name} # {time.monotonic() - t:.1f} s, " +
                  ", ".join(notes), flush=True)
    print(f"1..{len(todo)}")
    return bool(failed)


sys.exit(main())
