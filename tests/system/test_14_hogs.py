#!/usr/bin/env python3
"""Code that takes all it can get: time, output, memory, processes, disk.

Each must end as the record says, leave its sandbox answering and its
neighbours nearly as fast as before.

test: timeout=1800
"""
import os
import threading
import time

from hutchlib import (case, client, daemon, equal, main, median, note,
                      takes_minutes_on_soft, wait_until)

SUM = "def run(input, config): return sum(input)"
SAMPLES = 7
ATTEMPTS = 3


def p50_ms(n=SAMPLES):
    """Of one-call runs over HTTP, beside whatever else runs."""
    times = []
    for _ in range(n):
        start = time.monotonic()
        r = client().run(SUM, input=[1, 2, 3])
        times.append((time.monotonic() - start) * 1000)
        equal(r.result, 6)
    return median(times)


def start(code, **more):
    r = client().start(code, wait_ms=0, **more)
    assert r.status == 202, r
    wait_until(lambda: client().command(r.json["command"]).json[
        "status"] == "running", 600, "the hog runs")
    return r.json["command"]


def beside(code, factor, **more):
    """p50 of other runs while `code` runs, against before.  What else keeps
    the host's processors busy only makes it worse: the best of three."""
    seen = []
    for _ in range(ATTEMPTS):
        before = p50_ms()
        command = start(code, timeout_ms=600000, **more)
        time.sleep(2)
        during = p50_ms()
        status = client().command(command).json["status"]
        t = time.monotonic()
        client().cancel(command)
        r = client().wait(command, 60)
        note(f"p50 alone {before:.0f} ms, beside it {during:.0f} ms; was "
             f"{status}, cancelled in {time.monotonic() - t:.2f} s")
        seen.append((before, during))
        if during <= before * factor:
            return r
    raise AssertionError(f"never within {factor}: {seen}")


@case("J9 LBB-81 LBB-124: time-out: timed_out, and nothing of the tree is left")
def timed_out():
    r = client().run(
        "import os, subprocess, time\n"
        "def run(i, c):\n"
        "    subprocess.Popen(['sh', '-c',"
        " 'trap \"\" TERM; echo started; sleep 1000'],"
        " start_new_session=True)\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        time.sleep(1000)\n"
        "    time.sleep(1000)", timeout_ms=15000)
    equal((r.status, r.ok, r.result), ("timed_out", False, None))
    equal(r.reason, "timeout")
    took = r.reply.json["duration_ms"]
    assert 14000 <= took <= 21000, took
    wait_until(lambda: client().sandbox(r.sandbox)["status"] == "destroyed",
               30, "the sandbox is destroyed")
    wait_until(lambda: r.sandbox not in daemon().vmm_pids(), 10,
               "its VMM is gone")


@case("J1 LBB-136: 100 MiB of output: head and tail kept, hutchd grows "
      "<= 2 MiB")
def flood():
    d = daemon()
    p50_ms(3)
    before = d.rss_kib()
    r = client().run(
        "import sys\n"
        "def run(i, c):\n"
        "    b = b''.join(b'%015d\\n' % n for n in range(65536))\n"
        "    for n in range(100):\n"
        "        sys.stdout.buffer.write(b)\n"
        "    sys.stdout.buffer.write(b'the end\\n')", timeout_ms=300000)
    assert r.ok, (r, r.logs("stderr"))
    grown = d.rss_kib() - before
    note(f"hutchd grew by {grown} KiB; {r.reply.json['duration_ms']} ms")
    c = client().command(r.command).json["stdout"]
    equal(c["bytes"], 100 * (1 << 20) + 8)
    assert c["truncated"] and c["head"].startswith("0" * 15), c["head"][:99]
    assert c["tail"].endswith("the end\n"), c["tail"][-99:]
    equal((len(c["head"]), len(c["tail"])), (48 << 10, 48 << 10))
    first = client().log_slice(r.command, "stdout", 0, 16).json
    equal(first["data"], "0" * 15 + "\n")
    middle = client().log_slice(r.command, "stdout", 50 << 20, 16).json
    equal(middle["offset"], c["bytes"] - (48 << 10), "start of the tail")
    assert middle["truncated"], middle
    assert grown <= 2048, grown


@case("J1: p50 beside a flood of output stays within 1.3x")
def flood_beside():
    r = beside("import os\ndef run(i, c):\n"
               "    b = b'x' * 65536\n"
               "    while True: os.write(1, b)", 1.3)
    equal(r.status, "cancelled")
    assert r.reply.json["stdout"]["bytes"] > 1 << 20, r


@case("J2 LBB-53: a CPU hog: p50 within 1.5x, cancel answers")
def cpu_hog():
    r = beside("def run(i, c):\n    while True: pass", 1.5)
    equal(r.status, "cancelled")


@case("LBB-53: an I/O hog: p50 within 1.5x, cancel answers")
def io_hog():
    r = beside("import os\ndef run(i, c):\n"
               "    b = b'x' * (1 << 20)\n"
               "    while True:\n"
               "        fd = os.open('f', os.O_CREAT | os.O_WRONLY, 0o600)\n"
               "        for n in range(64): os.write(fd, b)\n"
               "        os.fsync(fd); os.close(fd)", 1.5)
    equal(r.status, "cancelled")


@case("J4 LBB-53: a memory bomb ends `oom`, not just 137")
def memory_bomb():
    r = client().run("def run(i, c):\n    a = []\n"
                     "    while True: a.append(bytearray(16 << 20))",
                     timeout_ms=600000)
    equal((r.ok, r.status, r.reason), (False, "failed", "oom"))
    assert "out of memory" in r.message and "memory_mib" in r.message, r


@case("J4: a memory bomb in a child: the parent lives or the run says oom")
def child_bomb():
    r = client().run(
        "import subprocess, sys\n"
        "def run(i, c):\n"
        "    p = subprocess.run([sys.executable, '-S', '-c',\n"
        "        'a = []\\nwhile True: a.append(bytearray(16 << 20))'])\n"
        "    return p.returncode", timeout_ms=600000)
    if r.ok:
        equal(r.result, -9)
    else:
        equal(r.reason, "oom")


@case("J3 LBB-53: a fork bomb: its whole tree has ended within 4 s of a "
      "cancel")
def fork_bomb():
    command = start("import os\ndef run(i, c):\n"
                    "    while True:\n"
                    "        try: os.fork()\n"
                    "        except OSError: pass", timeout_ms=600000)
    time.sleep(20)
    t = time.monotonic()
    client().cancel(command)
    r = client().wait(command, 60)
    took = time.monotonic() - t
    note(f"ended {took:.2f} s after the cancel: {r.status}")
    equal(r.status, "cancelled")
    assert took <= 4, took


@case("J3: a thread bomb is refused by the limit and the run ends")
def thread_bomb():
    takes_minutes_on_soft("starting a thousand threads")
    r = client().run(
        "import threading, time\n"
        "def run(i, c):\n    n = 0\n"
        "    try:\n"
        "        while n < 100000:\n"
        "            threading.Thread(target=time.sleep, args=(60,),"
        " daemon=True).start()\n"
        "            n += 1\n"
        "    except RuntimeError: pass\n"
        "    return n", timeout_ms=600000)
    assert r.ok, (r, r.logs("stderr"))
    assert 10 <= r.result < 100000, r.result
    note(f"{r.result} threads")


@case("J5 LBB-53: a full disk gives ENOSPC at the sandbox's limit")
def disk_fill():
    free = os.statvfs(daemon().state)
    # Space is claimed by steps, which is quick; the last MiB are written.
    r = client().run(
        "import errno, os\n"
        "def run(i, c):\n"
        "    fd = os.open('big', os.O_CREAT | os.O_WRONLY, 0o600)\n"
        "    n, why = 0, []\n"
        "    try:\n"
        "        while n < 20000:\n"
        "            os.posix_fallocate(fd, n << 20, 8 << 20)\n"
        "            n += 8\n"
        "    except OSError as e: why.append(errno.errorcode[e.errno])\n"
        "    os.close(fd)\n"
        "    fd = os.open('/var/tmp/more', os.O_CREAT | os.O_WRONLY, 0o600)\n"
        "    try:\n"
        "        for _ in range(9): n += os.write(fd, bytes(1 << 20)) >> 20\n"
        "    except OSError as e: why.append(errno.errorcode[e.errno])\n"
        "    os.unlink('big')\n"
        "    os.write(fd, b'room again')\n"
        "    return [why, n]",
        limits={"disk_mib": 256}, timeout_ms=600000)
    assert r.ok, (r, r.logs("stderr"))
    why, n = r.result
    assert len(why) == 2 and set(why) <= {"ENOSPC", "EDQUOT"}, r.result
    assert 150 <= n <= 256, r.result
    wait_until(lambda: client().sandbox(r.sandbox)["status"] == "destroyed",
               30, "destroyed")
    now = os.statvfs(daemon().state)
    lost = (free.f_bavail - now.f_bavail) * free.f_frsize >> 20
    assert lost < 300, f"{lost} MiB of the host are gone"


@case("LBB-10 LBB-68 LBB-171: five runs at once in a graph; the sixth is told to wait")
def places():
    commands, threads = [], []

    def hold():
        commands.append(start("import time\n"
                              "def run(i, c): time.sleep(300)"))

    for _ in range(5):
        threads.append(threading.Thread(target=hold))
        threads[-1].start()
    for t in threads:
        t.join()
    equal(len(commands), 5)
    r = client().start(SUM, input=[1])
    equal((r.status, r.code), (429, "sandbox_limit_reached"))
    assert r.json["error"]["retryable"], r
    assert int(r.headers["Retry-After"]) == r.json["error"][
        "retry_after_seconds"] > 0, r
    for c in commands:
        client().cancel(c)
    for c in commands:
        equal(client().wait(c, 60).status, "cancelled")
    equal(client().run(SUM, input=[1]).result, 1)


main()
