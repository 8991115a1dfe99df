#!/usr/bin/env python3
"""M: thousands of sandboxes later the daemon holds what it held before.

Every run claims a VM that waited, so each one is a whole life: a restore, a
rehearsal, a wait, a claim, a run, an end.  Before and after, with as many VMs
waiting, are compared: descriptors, threads and processes of the daemon, its
control groups, mounts, and the files of the state folder.  Its memory may not
grow with the number of sandboxes (`make check-long` has enough of them to see
that).

The rate is for a second of one processor: all that the daemon and the VMMs
that it has waited for have used, user and kernel, so that it does not depend on
what else the host does.

test: timeout=900 long-timeout=7200 beside=yes seconds=65
"""
import os
import time

from hutchlib import (Daemon, IS_LONG, STATE, case, cgroups, equal, files,
                      filled, links, main, note, pool, timings, vmms,
                      wait_until)

SANDBOXES = 2000 if IS_LONG else 120     # 200 take over a minute on two cores
WAITING = 4
WARM = 20           # tables and caches that are made once are there after it
# SQLite's page cache takes its 2 MB in the course of the first 600 sandboxes,
# some 3.6 KiB for each; of 2,000 the second half may add nothing.
GROWN_KIB_MAX = 256 if IS_LONG else 1024
GROWN_SINCE = 5 if IS_LONG else 0       # tenths of the sandboxes
SETTLE_S = 60
REFILL_S = 600      # where others keep the host busy
TICKS = os.sysconf("SC_CLK_TCK")

# code, what comes of it
RUNS = (
    ("def run(i, c): return i", "succeeded"),
    ("import os\ndef run(i, c):\n    print('x' * 20000)\n"
     "    open('file', 'w').write('y' * 5000)\n    return i", "succeeded"),
    ("def run(i, c): raise ValueError(i)", "failed"),
    ("import os\ndef run(i, c): os._exit(3)", "failed"),
)
# Those that cost time on a soft host are few.
EACH = (0,) * 17 + (1, 2, 3)


def lines(path):
    with open(path) as f:
        return sorted(f.read().splitlines())


def held(d):
    return {
        "descriptors": links(d.pid),
        "threads": len(os.listdir(f"/proc/{d.pid}/task")),
        "processes": len(vmms(d.pid)),
        "control groups": len(cgroups(d.pid)),
        "mounts of the host": lines("/proc/self/mountinfo"),
        "mounts of the daemon": lines(f"/proc/{d.pid}/mountinfo"),
        "files": files(d.state),
        "sandboxes": d.admin("GET", "/admin/ps").json["data"],
        "RAM": d.metric("hutch_ram_committed_bytes"),
    }


def settled(d):
    """What it holds when looks a second apart agree: the connection of our last
    question may not be closed yet."""
    def fn():
        first = held(d)
        time.sleep(1)
        return held(d) == first and first
    return wait_until(fn, SETTLE_S, "two looks agree")


def cpu_s(pid):
    """Of the daemon and of the children that it has waited for."""
    with open(f"/proc/{pid}/stat") as f:
        field = f.read().rpartition(")")[2].split()
    return sum(int(x) for x in field[11:15]) / TICKS


def one(client, i):
    wait_until(lambda: pool(client.daemon)["ready"], REFILL_S,
               "a VM waits")
    code, status = RUNS[EACH[i % len(EACH)]]
    r = client.run(code, input=i)
    equal((r.status, r.result), (status, i if status == "succeeded" else None),
          f"run {i}")


d = Daemon(pool_python=WAITING, pool_max=WAITING, graph_places=20,
           environment_places=20)
before = {}
rss = []


@case(f"{SANDBOXES} sandboxes, one after another, each claimed")
def churn():
    d.start()
    filled(d, WAITING, REFILL_S)
    client = d.client()
    for i in range(WARM):
        one(client, i)
    filled(d, WAITING, REFILL_S)
    wait_until(lambda: not d.admin("GET", "/admin/ps").json["data"], SETTLE_S,
               "all are gone")
    before.update(settled(d))
    start, cpu = time.monotonic(), cpu_s(d.pid)
    for i in range(SANDBOXES):
        if i % (SANDBOXES // 10) == 0:
            rss.append(d.rss_kib())
        one(client, i)
    filled(d, WAITING, REFILL_S)
    took, cpu = time.monotonic() - start, cpu_s(d.pid) - cpu
    rss.append(d.rss_kib())
    p = pool(d)
    equal((p["hits"], p["misses"], p["failures"]), (SANDBOXES + WARM, 0, 0))
    equal({t["timing"] for t in timings(d)}, {"claimed"})
    note(f"{SANDBOXES} sandboxes in {took:.1f} s and {cpu:.1f} s of CPU: "
         f"{SANDBOXES / cpu:.2f} a second of one processor, "
         f"{cpu / SANDBOXES * 1000:.0f} ms each")
    print(f"# count={SANDBOXES}")


@case("the daemon holds what it held before")
def baseline():
    def differences():
        now = held(d)
        return {k: (before[k], now[k]) for k in before if before[k] != now[k]}

    assert before, "the runs above"
    try:
        wait_until(lambda: not differences(), SETTLE_S, "as before")
    except AssertionError:
        for k, (was, now) in differences().items():
            note(f"{k}: was {was}, is {now}")
        raise
    note(f"{sum(before['descriptors'].values())} descriptors, "
         f"{before['threads']} threads, {before['processes']} VMs that wait, "
         f"{len(before['files'])} files")


@case(f"its memory grew by no more than {GROWN_KIB_MAX} KiB, counted from "
      f"sandbox {GROWN_SINCE * SANDBOXES // 10}")
def memory():
    note("RSS in KiB, ten times: " + " ".join(map(str, rss)))
    assert len(rss) == 11, rss
    assert rss[-1] - rss[GROWN_SINCE] <= GROWN_KIB_MAX, rss


@case("SIGTERM: nothing of it stays")
def stopped():
    pid, children = d.pid, vmms(d.pid)
    equal(d.stop(), 0)
    equal([p for p in children if os.path.exists(f"/proc/{p}")], [])
    equal(cgroups(pid), [])
    equal(lines("/proc/self/mountinfo"), before["mounts of the host"])


main()
