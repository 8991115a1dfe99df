#!/usr/bin/env python3
"""Runs by the express lane: past the guest's kernel, from memory to memory.
Each case shows by the daemon's counters which way its run went.

test: timeout=1500 lane=only
"""
import contextlib
import hashlib
import json
import os
import re
import signal
import time

from hutchlib import (Daemon, STATE, case, equal, hutch, main, median, note,
                      pool, results_at_once, wait_until)

SLEEP = "import time\ndef run(i, c):\n    time.sleep(i)\n    return 'slept'"
NOTHING = "def run(i, c): return i"
WAIT_S = 120

on = Daemon(STATE + "-on", pool_python=1, pool_max=1)
off = Daemon(STATE + "-off", pool_python=1, pool_max=1, lane="off")


def ready(d, lanes=1):
    """One VM waits, with its lane or without."""
    def fn():
        p = pool(d)
        return p["ready"] == 1 and not p["starting"] and p
    p = wait_until(fn, WAIT_S, "a VM waits")
    equal(p["lanes"], lanes)
    return p


def counts(d):
    return [int(d.metric(f"hutch_lane_{n}_total")) for n in ("runs", "adopted")]


@contextlib.contextmanager
def by_lane(d=on, runs=1, adopted=0):
    """What the block does takes so many runs by the lane; adopted None: either,
    a busy host decides."""
    ready(d, 1 if d is on else 0)
    before = counts(d)
    yield
    r, a = (x - y for x, y in zip(counts(d), before))
    equal(r, runs, "runs by the lane")
    if adopted is not None:
        equal(a, adopted, "adopted")
    elif a:
        note(f"adopted: {a} of {r}")


def outcome(r):
    return {
        "status": r.status, "exit_code": r.exit_code, "signal": r.signal,
        "reason": r.reason, "message": r.message, "result": r.result,
        "stdout": r.logs("stdout"), "stderr": r.logs("stderr"),
    }


@case("a VM waits at its lane; hutch pool and the metrics show it")
def waits():
    on.start()
    ready(on)
    equal(on.metric("hutch_pool_lanes_ready"), 1)
    out = hutch("--state", on.state, "pool")
    equal(out.returncode, 0, out.stderr)
    line = re.search(r"lbb/python .*", out.stdout).group().split()
    head = re.search(r"TEMPLATE .*", out.stdout).group().split()
    equal((line[head.index("READY")], line[head.index("LANE")]), ("1", "1"))
    equal(counts(on), [0, 0])


@case("claimed runs go by the lane, and each is a sandbox like any other")
def claimed():
    code = r"""
import os, random, secrets, socket, time, uuid
def run(i, c):
    print("out", i)
    return [socket.gethostname(), open("/etc/machine-id").read().strip(),
            random.random(), secrets.token_hex(16), str(uuid.uuid4()),
            os.urandom(16).hex(), time.time(), os.getuid(), os.getcwd(),
            os.listdir("/workspace")]
"""
    seen = []
    for i in range(3):
        with by_lane(adopted=None):
            before = time.time()
            r = on.client().run(code, input=i)
        assert r.ok, (r, r.logs("stderr"))
        equal(r.result[0], r.sandbox.replace("_", "-"))
        assert before - 1 < r.result[6] < time.time() + 1, (before, r.result)
        assert r.result[7] > 0
        equal(r.result[8:], ["/workspace", []])
        equal(r.logs(), f"out {i}\n".encode())
        seen.append(r.result)
    for what in range(6):
        equal(len({x[what] for x in seen}), 3, f"value {what}")


def work(busy_s, sleep_s):
    """CPU time and duration of a run; the record says them in ms."""
    code = ("import time\ndef run(i, c):\n    t = time.process_time()\n"
            "    while time.process_time() - t < i[0]: pass\n"
            "    time.sleep(i[1])")
    return code, [busy_s, sleep_s]


@case("CPU time and duration are the run's, not those of the wait before it")
def usage():
    ready(on)
    time.sleep(3)  # what a VM that waits does not pay for
    restored = {"limits": {"disk_mib": 300}}
    # The second and the last are adopted: what they used before is not known.
    for busy, sleep, more in ((.05, .05, {}), (.6, .1, {}),
                              (.05, .05, restored), (.6, .1, restored)):
        code, input = work(busy, sleep)
        with by_lane(adopted=None):
            r = on.client().run(code, input=input, **more)
        assert r.ok, (r, r.logs("stderr"))
        j = on.client().command(r.command).json
        cpu = (j["usage"]["user_us"] + j["usage"]["system_us"]) / 1000
        note(f"{j['duration_ms']} ms, {cpu:.0f} ms of CPU")
        assert cpu <= j["duration_ms"] + 200, j
        assert cpu >= (busy - .3 if busy > .3 else 0) * 800, j
        assert (busy + sleep) * 900 <= j["duration_ms"] <= 5000, j


@case("a run that says that it ends and goes on has its time-out and a cancel")
def says_it_ends():
    code = ("import ctypes\ndef run(i, c):\n"
            "    for line in open('/proc/self/maps'):\n"
            "        if 'memfd:lane' in line:\n"
            "            at = int(line.split('-')[0], 16)\n"
            "    ctypes.memmove(at + 4, (3).to_bytes(4, 'little'), 4)\n"
            "    while 1: pass")
    c = on.client()
    ready(on)
    t = time.monotonic()
    r = c.run(code, timeout_ms=1500)
    equal((r.status, r.ok), ("timed_out", False), r)
    assert time.monotonic() - t < 20, time.monotonic() - t
    ready(on)
    r = c.start(code, timeout_ms=600000)
    time.sleep(1)
    t = time.monotonic()
    c.cancel(r.json["command"])
    equal(c.wait(r.json["command"]).status, "cancelled")
    assert time.monotonic() - t < 20, time.monotonic() - t


ENDS = [
    ("a result", "def run(i, c): return {'i': i, 'c': c, 'u': '\\u00e9\\u4e2d'}",
     {"input": [1, 2.5, None, "x"], "config": {"a": 1}}),
    ("no result", "def run(i, c): pass", {}),
    ("output", "import sys\ndef run(i, c):\n    print('a' * 10000)\n"
     "    print('b', file=sys.stderr)\n    sys.stdout.write('no newline')", {}),
    ("binary output", "import os\ndef run(i, c): os.write(1, bytes(range(256)))",
     {}),
    ("output of a child", "import subprocess\ndef run(i, c):\n"
     "    subprocess.run(['/bin/sh', '-c', 'echo child; echo err >&2'])", {}),
    ("env", "import os\ndef run(i, c): return os.environ['WORD']",
     {"env": {"WORD": "secret word"}}),
    ("an exception", "def run(i, c): raise ValueError('no')", {}),
    ("wrong syntax", "def run(i, c) return", {}),
    ("no run()", "x = 1", {}),
    ("sys.exit", "import sys\ndef run(i, c): sys.exit(7)", {}),
    ("os._exit", "import os\ndef run(i, c):\n    os.write(1, b'last')\n"
     "    os._exit(9)", {}),
    ("a signal", "import os\ndef run(i, c): os.kill(os.getpid(), 11)", {}),
    ("no JSON", "def run(i, c): return {1: 0, '1': 0}", {}),
    ("not to be encoded", "def run(i, c): return object()", {}),
    ("a result too large", "def run(i, c): return 'x' * 100000", {}),
    ("a large result", "def run(i, c): return 'x' * 40000", {}),
]


@case("lane = off: the same answers, later")
def same():
    off.start()
    for name, code, more in ENDS:
        got = []
        for d in (on, off):
            with by_lane(d, int(d is on), None if d is on else 0):
                got.append(outcome(d.client().run(code, **more)))
        equal(got[0], got[1], name)
    equal(off.metric("hutch_pool_hits_total"), len(ENDS))


@case("side by side: claimed, with the lane and without")
def side_by_side():
    times = {"lane": [], "channel": []}
    clients = {"lane": on.client(), "channel": off.client()}
    for _ in range(10):
        for name, c in clients.items():
            ready(c.daemon, int(name == "lane"))
            t = time.monotonic()
            assert c.run(NOTHING, input=1).ok
            times[name].append((time.monotonic() - t) * 1000)
    note("p50 of 10, ms: " + ", ".join(
        f"{k} {median(v):.1f}" for k, v in times.items()))
    assert median(times["lane"]) < median(times["channel"]), times


@case("a short run is two durable commits")
def commits():
    ready(on)
    time.sleep(1.5)     # the end of the sandbox before is written
    before = on.metric("hutch_store_commits_total")
    with by_lane(adopted=None):
        assert on.client().run(NOTHING, input=1).ok
        spent = on.metric("hutch_store_commits_total") - before
    # A key of its own is a commit; adopted, its start is one, too.
    note(f"commits of a run and of a key: {spent:.0f}")
    assert spent <= 4, spent


@case("a run of 5 s is adopted, shows its output meanwhile, and ends")
def adopted():
    code = ("import time\ndef run(i, c):\n    print('first', flush=True)\n"
            "    time.sleep(5)\n    print('second')\n    return i")
    c = on.client()
    with by_lane(adopted=1):
        r = c.start(code, input=5)
        equal(r.status, 202)
        command = r.json["command"]
        wait_until(lambda: c.logs(command) == b"first\n", 4,
                   "its first output before its end")
        equal(c.command(command).json["status"], "running")
        r = c.wait(command)
    equal((r.status, r.result, r.logs()), ("succeeded", 5, b"first\nsecond\n"))
    assert r.duration_ms >= 4900, r


@case("time-outs: longer and shorter than the wait for an answer")
def timed_out():
    busy = "def run(i, c):\n    while True: pass"
    for code, ms in ((SLEEP, 2000), (busy, 2000), (SLEEP, 100), (busy, 100)):
        with by_lane(adopted=1):
            t = time.monotonic()
            r = on.client().run(code, input=60, timeout_ms=ms)
            equal(r.status, "timed_out", f"{code} {ms}")
            assert time.monotonic() - t < 30


@case("cancelled: while it waits for an answer, and later")
def cancelled():
    c = on.client()
    for pause in (0, 1):
        with by_lane(adopted=1):
            r = c.start(SLEEP, input=60)
            equal(r.status, 202)
            time.sleep(pause)
            equal(c.cancel(r.json["command"]).status, 200)
            equal(c.wait(r.json["command"]).status, "cancelled")


@case("os._exit never rings: adopted, and its exit is told")
def exits():
    with by_lane(adopted=1):
        r = on.client().run("import os\ndef run(i, c): os._exit(3)")
        equal((r.status, r.exit_code), ("failed", 3))


@case("LBB-89: input and config of 1 MiB each go by the lane too, in parts")
def parts():
    text = "".join(chr(97 + i % 26) for i in range((1 << 20) - 2))
    code = ("import hashlib\ndef run(i, c):\n    return [len(i), c == i,"
            " hashlib.sha256(i.encode()).hexdigest()]")
    want = [len(text), True, hashlib.sha256(text.encode()).hexdigest()]
    for d, name in ((on, "lane"), (off, "channel")):
        for more, how in (({}, "claimed"),
                          ({"limits": {"disk_mib": 300}}, "restored")):
            with by_lane(d, runs=1 if d is on else 0, adopted=None):
                start = time.monotonic()
                r = d.client().run(code, input=text, config=text,
                                   timeout_ms=300000, **more)
                took = time.monotonic() - start
            assert r.ok, (r, r.logs("stderr"))
            equal(r.result, want)
            note(f"2 MiB, {how}, by {name}: {took * 1000:.0f} ms")


@case("kill -9 of the VMM in the middle says lost, never more")
def killed():
    c = on.client()
    with by_lane(adopted=None):
        before = counts(on)[0]
        r = c.start(SLEEP, input=60)
        equal(r.status, 202)
        # Before the VMM has read the request nothing ran, and another VM is
        # restored in its place.
        wait_until(lambda: counts(on)[0] > before, 10, "it is taken")
        pid = wait_until(lambda: on.vmm_pids().get(r.json["sandbox"]), 10,
                         "its VMM")
        os.kill(pid, signal.SIGKILL)
        equal(c.wait(r.json["command"]).status, "lost")
    assert "restored_instead" not in on.log_text()


@case("kill -9 before the claim: another one, and no run is hurt")
def killed_before():
    ready(on)
    line = [x for x in on.log_text().splitlines() if " vm=pooled " in x][-1]
    os.kill(int(re.search(r"pid=(\d+)", line).group(1)), signal.SIGKILL)
    r = on.client().run(NOTHING, input=1)
    assert r.ok, r
    ready(on)


@case("four at once: one by the lane, all right")
def burst():
    ready(on)
    before = counts(on)[0]
    equal(sorted(results_at_once(on.client(), NOTHING, range(4))),
          list(range(4)))
    assert counts(on)[0] > before


@case("nothing is left behind")
def left():
    for d in (on, off):
        equal(d.stop(), 0)
        assert "rule_breaks" not in d.log_text()
        lost = [x for x in d.log_text().splitlines() if "out of turn" in x]
        equal(lost, [])
    equal(json.dumps(Daemon.running), "[]")


main()
