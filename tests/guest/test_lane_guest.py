#!/usr/bin/env python3
"""The express lane in a real guest: the python template without its heavy
libraries, booted once, restored from a snapshot for each case.  The snapshot
was taken at the bell: the cases bell_... begin there, all others after BIND.

    test_lane_guest.py [--snapshot FOLDER] [--verbose] [CASE...]

--snapshot keeps the folder for the next call (the same hutch-vmm and init
image only); cases are substrings of names.

test: timeout=1200 beside=yes seconds=80
"""

import argparse
import errno
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import vm
from scenario import Failed, check, ended

MEM_MIB = 256
SUM = "def run(input, config):\n    return sum(input)"
# What the first run of a restored sandbox may take on soft KVM.
INSN_MAX = 4000
# The same with BIND in the request.
BELL_INSN_MAX = 40000


def by_lane(g, c):
    """Answered by the lane: init said nothing."""
    check(g.lane_answers == 1, "answers", g.lane_answers)
    return c


def few_instructions(g, run, limit, is_bound):
    """Of three VMs the one with the fewest counts: a tick of the guest's timer
    comes into some."""
    seen = [run(g)]
    while min(seen) > limit and len(seen) < 3:
        with restored(g.folder, False) as other:
            other.lane_wait()
            if is_bound:
                other.lane_bind(300, mem=96 << 20)
            seen.append(run(other))
    g.note(f"{seen} guest kernel instructions")
    check(min(seen) <= limit, seen)


def sum_cost(g):
    before = g.stats()
    c = by_lane(g, ended(g.lane_run(SUM, "[1,2,3]"), "exited", 0))
    check(c.end["result"] == b"6" and c.started and "error" not in c.end,
          c.end)
    return g.stats()["insn_emulation"] - before["insn_emulation"]


def case_sum(g):
    few_instructions(g, sum_cost, INSN_MAX, True)


def case_output(g):
    c = by_lane(g, ended(g.lane_run("""
import os, subprocess, sys
def run(i, c):
    print("one")
    os.write(1, b"two\\n")
    subprocess.run(["sh", "-c", "echo three; echo err >&2"])
    return os.environ["A"]
""", env=["A=b"], timeout=120), "exited", 0))
    check(c.stdout == b"one\ntwo\nthree\n" and c.stderr == b"err\n",
          c.stdout, c.stderr)
    check(c.end["result"] == b'"b"' and c.end["stdout_bytes"] == 14, c.end)


def case_too_large(g):
    by_lane(g, ended(g.lane_run("def run(i, c): return 'x' * 50000"),
                     "result_too_large"))


def case_not_json(g):
    by_lane(g, ended(g.lane_run("def run(i, c): return {1}"),
                     "result_not_json"))


def case_exception(g):
    c = by_lane(g, ended(g.lane_run("def run(i, c):\n    return 1/0"),
                         "exited", 1))
    check(c.stderr.startswith(b"Traceback") and b"python.py" not in c.stderr,
          c.stderr)


def case_system_exit(g):
    by_lane(g, ended(g.lane_run("import sys\ndef run(i, c): sys.exit(3)"),
                     "exited", 3))


def case_request_of_900_kib(g):
    text = '"' + "x" * (900 << 10) + '"'
    c = by_lane(g, ended(g.lane_run("def run(i, c): return len(i)", text),
                         "exited", 0))
    check(c.end["result"] == b"%d" % (900 << 10), c.end)


def case_fork_that_returns(g):
    c = by_lane(g, ended(g.lane_run(
        "import os\ndef run(i, c):\n  if os.fork():\n    os.wait()\n"
        "    return 'parent'\n  return 'child'"), "exited", 0))
    check(c.end["result"] == b'"parent"', c.end)
    check(g.stats()["lane_strays"] == 0, g.stats())


def case_no_child_rings(g):
    """A fork may not ring at all: the instruction faults."""
    c = by_lane(g, ended(g.lane_run("""
import ctypes, mmap, os
def run(i, c):
    # mov edi to eax, 0x520 to dx, out, ret
    code = b"\\x89\\xf8\\x66\\xba\\x20\\x05\\xef\\xc3"
    m = mmap.mmap(-1, 4096, prot=7)
    m.write(code)
    ring = ctypes.CFUNCTYPE(None, ctypes.c_uint)(
        ctypes.addressof(ctypes.c_char.from_buffer(m)))
    pid = os.fork()
    if not pid:
        ring(0)
        os._exit(0)
    return os.WTERMSIG(os.waitpid(pid, 0)[1])
"""), "exited", 0))
    check(c.end["result"] == b"11" and g.stats()["lane_strays"] == 0, c.end,
          g.stats())


SLOW = ("import time\ndef run(i, c):\n  print('a', flush=True)\n"
        "  time.sleep(%s)\n  print('b')\n  return 5")


def later(g, cmd, **kw):
    """As hutchd: adopted after a moment on the lane."""
    g.pump(0.25)
    g.adopt(cmd, **kw)
    return g.commands[cmd]


def case_adopted(g):
    n = g.lane_start(SLOW % 1)
    c = later(g, n)
    ended(g.finish(n), "exited", 0)
    check(c.end["result"] == b"5" and c.stdout == b"a\nb\n" and c.started,
          c.end, c.stdout)
    check(g.lane_answers == 0, "answered twice")


def case_adopted_and_times_out(g):
    n = g.lane_start("def run(i, c):\n  print('a')\n  while 1: pass")
    later(g, n, timeout_ms=1000)
    c = ended(g.finish(n), "timed_out")
    check(c.stdout == b"a\n", c.stdout)


def case_adopted_and_killed(g):
    n = g.lane_start("def run(i, c):\n  while 1: pass")
    later(g, n)
    g.send(vm.KILL, {}, n)
    ended(g.finish(n), "cancelled")


def case_adopted_flood(g):
    n = g.lane_start("def run(i, c):\n  print('x' * 5000000)\n  return 1",
                     head=1000, tail=1000)
    later(g, n, head=1000, tail=1000)
    c = ended(g.finish(n), "exited", 0)
    # The head, then the tail as it was at the end; while it ran, at most one
    # tail a second.
    check(c.end["stdout_bytes"] == 5000001 and len(c.stdout) < 100000, c.end,
          len(c.stdout))
    check(c.stdout.startswith(b"x" * 1000), c.stdout[:1000])
    check(c.stdout.endswith(b"x" * 999 + b"\n"), c.stdout[-1000:])


def case_exit_before_adoption(g):
    n = g.lane_start("import os\ndef run(i, c):\n  print('a')\n  os._exit(9)")
    c = later(g, n)
    ended(g.finish(n), "exited", 9)
    check(c.stdout == b"a\n" and c.started, c.stdout)


def case_signal_before_adoption(g):
    n = g.lane_start("import os\ndef run(i, c): os.kill(os.getpid(), 11)")
    later(g, n)
    ended(g.finish(n), "signaled", signal=11)


def case_oom(g):
    n = g.lane_start("def run(i, c):\n  x = []\n"
                     "  while 1: x.append(bytearray(10 << 20))")
    later(g, n)
    ended(g.finish(n), "oom")


def case_adopt_too_late(g):
    n = g.lane_start(SUM, "[1]")
    c = g.commands[n]
    g.wait(lambda: c.end, 60)
    try:
        g.adopt(n)
    except OSError as e:
        check(e.errno == errno.EALREADY, e)
        return
    raise Failed("an answered run was adopted")


def case_resumed_then_channel(g):
    g.resume()
    c = ended(g.run(SUM, "[1,2,3]"), "exited", 0)
    check(c.end["result"] == b"6" and g.lane_answers == 0, c.end)


def case_page_stays(g):
    """Forks and execs, of the runner's neighbours and of the runner itself:
    the page is where it was."""
    g.resume()
    ended(g.exec(["bash", "-c", "(:); (:); true"]), "exited", 0)
    g.arm()
    c = by_lane(g, ended(g.lane_run(SUM, "[1,2,3]"), "exited", 0))
    check(c.end["result"] == b"6", c.end)


def case_after_an_answer(g):
    """The used runner is gone with what it started; commands go on."""
    ended(g.lane_run("import subprocess\ndef run(i, c):\n"
                     "  subprocess.Popen(['sleep', '1000'])\n  return 1",
                     timeout=120), "exited", 0)
    g.resume()
    for _ in range(20):
        c = ended(g.exec(["bash", "-c", "cat /proc/[0-9]*/comm"]), "exited")
        if b"sleep" not in c.stdout.split():
            return
    raise Failed(f"still there: {c.stdout}")


SEEDS = """
import os, random, socket, time, uuid
def run(i, c):
    return [socket.gethostname(), open("/etc/machine-id").read(), time.time(),
            random.random(), os.urandom(8).hex(), str(uuid.uuid4())]
"""


def seeds_of(c):
    return json.loads(ended(c, "exited", 0).end["result"])


def bell_cost(g):
    before = g.stats()
    c = g.commands[g.lane_start(SUM, "[1,2,3]",
                                bind=g.bind_payload(mem=96 << 20))]
    g.wait(lambda: c.end, 60)
    after = g.stats()
    check(g.bound == {1: True} and g.lane_answers == 1, g.bound)
    check(ended(c, "exited", 0).end["result"] == b"6", c.end)
    return after["insn_emulation"] - before["insn_emulation"]


def case_bell_run(g):
    """BIND and RUN in one request: BOUND is the answer's first frame."""
    few_instructions(g, bell_cost, BELL_INSN_MAX, False)
    g.resume()
    c = ended(g.exec(["bash", "-c", "echo $HOSTNAME"]), "exited", 0)
    check(c.stdout == b"sbx\n", c.stdout)


def case_bell_seeds(g):
    """What was seeded before BIND is seeded again: two clones differ, also
    after a BIND alone, and have the identity that they were given."""
    seen, bind = [], g.bind_payload(mem=96 << 20, hostname="one")
    c = g.commands[g.lane_start(SEEDS, bind=bind)]
    g.wait(lambda: c.end, 60)
    seen.append(seeds_of(c))
    check(seen[0][0] == "one" and seen[0][1].strip() == bind[4], seen)
    for i in range(2):
        with restored(g.folder, False) as other:
            other.lane_wait()
            if i:
                other.lane_bind(mem=96 << 20)
                c = other.lane_run(SEEDS)
            else:
                c = other.commands[other.lane_start(
                    SEEDS, bind=other.bind_payload(mem=96 << 20))]
                other.wait(lambda: c.end, 60)
            seen.append(seeds_of(c))
    for column in list(zip(*seen))[3:]:
        check(len(set(column)) == len(seen), column)
    check(all(abs(s[2] - time.time()) < 60 for s in seen), seen)


def case_bell_long_run(g):
    """Adopted: BOUND and the rest come by the channel."""
    cmd = g.lane_start("import time\ndef run(i, c):\n    print('x')\n"
                       "    time.sleep(1)\n    return 7",
                       bind=g.bind_payload(mem=96 << 20))
    g.bound = None
    time.sleep(0.3)
    g.adopt(cmd)
    c = g.finish(cmd)
    check(g.bound == {1: True} and g.lane_answers == 0, g.bound)
    check(ended(c, "exited", 0).end["result"] == b"7" and c.stdout == b"x\n",
          c.end)


def case_bell_adopted_at_once(g):
    """While init is still at BIND."""
    cmd = g.lane_start(SUM, "[1,2,3]", bind=g.bind_payload(mem=96 << 20))
    try:
        g.adopt(cmd)
    except OSError as e:  # it has answered already
        check(e.errno == errno.EALREADY, e)
        g.note("not in time")
    c = g.finish(cmd)
    check(g.bound == {1: True}, g.bound)
    check(ended(c, "exited", 0).end["result"] == b"6", c.end)


def case_bell_bad_bind(g):
    """Refused by name, in the lane; no user code runs."""
    bind = g.bind_payload(mem=96 << 20, hostname="h" * 64)
    cmd = g.lane_start(SUM, "[1]", bind=bind)
    g.wait(lambda: g.bound, 60)
    check(g.bound[1] is False and "hostname" in g.bound[2], g.bound)
    check(not g.commands[cmd].end, "it ran")


def case_bell_no_bind(g):
    """A request that does not begin with BIND."""
    cmd = g.lane_start(SUM, "[1]")
    g.wait(lambda: g.bound, 60)
    check(g.bound[1] is False and "BIND" in g.bound[2], g.bound)
    check(not g.commands[cmd].end, "it ran")


def case_bell_bad_run(g):
    """BOUND, and a RUN that cannot be read is not started."""
    g.lane_give(vm.frame(vm.BIND, g.bind_payload(mem=96 << 20)) +
                vm.frame(vm.RUN, {1: b"x", 99: 1}, 1))
    g.commands[1] = c = vm.Command()
    g.wait(lambda: c.end, 60)
    check(g.bound == {1: True} and c.end["how"] == "not_started", c.end)


def case_bell_channel(g):
    """Resumed without a request: BIND and all else by the channel."""
    g.resume()
    g.bind(60, mem=96 << 20)
    c = ended(g.run(SUM, "[1,2,3]"), "exited", 0)
    check(c.end["result"] == b"6" and g.lane_answers == 0, c.end)


def restored(folder, verbose):
    g = vm.VM("python", mem=MEM_MIB, disk=False, restore=folder,
              verbose=verbose)
    g.notes, g.folder = [], folder
    g.note = g.notes.append
    return g


def make_snapshot(folder, verbose):
    with vm.VM("python", mem=MEM_MIB, disk=False, verbose=verbose) as g:
        g.boot(3600)
        g.prepare("python", disk=False)
        check(g.ready.get(3) == 1, "READY", g.ready)
        g.arm()
        g.save(folder)


def run_case(name, folder, verbose):
    with restored(folder, verbose) as g:
        g.lane_wait()
        check(g.stats()["insn_emulation"] == 0, "it ran before its request")
        if not name.startswith("bell_"):
            armed = g.lane_bind(300, mem=96 << 20)
            g.notes.append(f"bound and at the bell in {armed * 1000:.0f} ms")
        globals()["case_" + name](g)
        return g.notes


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--snapshot")
    p.add_argument("--verbose", action="store_true")
    p.add_argument("cases", nargs="*")
    a = p.parse_args()
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("no access to /dev/kvm")
        return 77
    for name in ("hutch-vmm", "guest/init.erofs", "images/vmlinux",
                 "images/python.erofs"):
        if not os.path.exists(os.path.join(vm.BUILD, name)):
            print(f"build/{name} is missing: make; make images")
            return 77
    todo = [n[len("case_"):] for n in globals() if n.startswith("case_") and
            (not a.cases or any(c in n for c in a.cases))]
    failed = 0
    with tempfile.TemporaryDirectory() as d:
        folder = a.snapshot or d
        if not os.path.exists(folder + "/state"):
            make_snapshot(folder, a.verbose)
        for i, name in enumerate(todo, 1):
            t = time.monotonic()
            try:
                notes = run_case(name, folder, a.verbose)
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
