#!/usr/bin/env python3
"""Many sandboxes that begin at once from one snapshot that a user took of a busy
one: a hundred with `make check-long`.  And when memory does not suffice.

test: timeout=900 long-timeout=7200 beside=yes seconds=100
"""
import time

from held import destroyed
from hutchlib import (IS_LONG, STATE, Daemon, case, cgroups, equal, files, links,
                      main, new_key, note, vmms, wait_until)
from snaps import (at_once, begin, create_from, hold, remove, sh, start,
                   taken)

KIDS = 100 if IS_LONG else 10
SECONDS = 3600 if IS_LONG else 300
# The shell alone: programs take a second each on a soft host.
WHO = ("for f in /etc/machine-id /proc/sys/kernel/hostname "
       "/proc/sys/kernel/random/uuid; do read x < $f; echo $x; done; "
       "echo $SRANDOM")
PLACES = {"graph_places": 200, "environment_places": 200}


def begun(c, snapshot, keys):
    """The answers of that many creates at once, and their ids."""
    got = at_once(lambda key: create_from(c, snapshot, key, wait_ms=0), keys)
    return got, [r.json["id"] for r in got if r.status == 201]


def run_all(c, ids):
    def states():
        s = [c.sandbox(i)["status"] for i in ids]
        assert set(s) <= {"starting", "running"}, s
        return set(s) == {"running"}
    wait_until(states, SECONDS, "all of them run")


def baseline(d):
    """What the daemon holds that one snapshot is kept in."""
    return (len(vmms(d.pid)), len(cgroups(d.pid)), sum(links(d.pid).values()),
            sorted(f for f in files(d.state) if "hutch.db" not in f))


@case(f"{KIDS} begin at once from one of a busy sandbox: each is somebody else "
      "with a disk of its own, and nothing is left of them")
def many():
    d = Daemon(STATE + "-many", pool_max=0, ram_budget_mib=1 << 20, **PLACES)
    d.start()
    c = d.client()
    box = hold(c)
    busy = start(c, box, "mkfifo /tmp/z; echo kept > f; echo begun; for i in "
                 "{1..30}; do printf '%08000d' $i > w; done; echo $i > done")
    wait_until(lambda: c.command(busy).json["stdout"]["tail"], 60, "it is busy")
    s = taken(c, box)
    equal(c.command(busy).json["status"], "running")
    destroyed(c, box)
    destroyed(c, begin(c, s["id"]))    # what is opened once is open
    wait_until(lambda: not vmms(d.pid), 30, "no VM is left")
    time.sleep(0.5)
    before = baseline(d)

    began = time.monotonic()
    got, ids = begun(c, s["id"], [new_key() for _ in range(KIDS)])
    equal([r.status for r in got], [201] * KIDS)
    run_all(c, ids)
    note(f"{KIDS} run after {time.monotonic() - began:.1f} s")
    equal(len(set(ids)), KIDS)
    equal(len(vmms(d.pid)), KIDS)
    # What was in its middle goes on to its end in each.
    cmds = [start(c, i, f"{WHO}; echo {i} > mine; exec 3<>/tmp/z; "
                  "until [ -s done ]; do read -t 1 -u 3; done; "
                  "read d < done; read f < f; read m < mine; echo $f $d $m",
                  timeout_ms=SECONDS * 1000)
            for i in ids]
    said = []
    for i, cmd in zip(ids, cmds):
        r = wait_until(lambda cmd=cmd: (lambda j: j["ended_at"] and j)(
            c.command(cmd, wait_ms=10000).json), SECONDS, f"{cmd} ends")
        equal(r["status"], "succeeded", r)
        *who, kept, done, mine = r["stdout"]["tail"].split()
        equal((who[1], kept, done, mine),
              (i.replace("_", "-"), "kept", "30", i))
        said.append(who)
    for kind in range(4):
        equal(len({who[kind] for who in said}), KIDS, "all different")
    note(f"{KIDS} have answered after {time.monotonic() - began:.1f} s; "
         f"hutchd has {d.rss_kib() // 1024} MiB")
    at_once(lambda i: c.call("DELETE", "/v1/sandboxes", query={
        "sandbox": i}, timeout=SECONDS).status, ids)
    wait_until(lambda: all(c.sandbox(i)["status"] == "destroyed" for i in ids),
               SECONDS, "all are destroyed")
    wait_until(lambda: baseline(d) == before, 60,
               f"{baseline(d)} is as before: {before}")
    for name in ("hutch_sandboxes_live", "hutch_ram_committed_bytes",
                 "hutch_disk_committed_bytes"):
        equal(d.metric(name), 0, name)
    equal(remove(c, s["id"]).status, 200)
    d.stop()


@case("those that memory does not suffice for are refused, and disturb nobody")
def capacity():
    d = Daemon(STATE + "-capacity", pool_max=0, ram_budget_mib=3 * 1024 + 512,
               **PLACES)
    d.start()
    c = d.client()
    box = hold(c)
    ticks = start(c, box, "mkfifo /tmp/t; exec 3<>/tmp/t; for i in {1..600}; do"
                  " echo $i; read -t 0.2 -u 3; done", timeout_ms=600000)
    s = taken(c, box)
    shape = d.metric("hutch_ram_committed_bytes")
    keys = [new_key() for _ in range(8)]
    got, ids = begun(c, s["id"], keys)
    room = int((3 * 1024 + 512 << 20) // shape) - 1
    equal(len(ids), room)
    for r in got:
        if r.status != 201:
            equal((r.status, r.code), (503, "sandbox_capacity"), r)
            assert int(r.headers["Retry-After"]) > 0
            assert "MiB" in r.text, r
    run_all(c, ids)
    for i in ids:
        equal(sh(c, i, "echo here", timeout_ms=SECONDS * 1000), "here\n")
    equal(d.metric("hutch_sandboxes_live"), room + 1)
    # Who was there has missed nothing.
    n = len(c.command(ticks).json["stdout"]["tail"].split())
    wait_until(lambda: len(c.command(ticks).json["stdout"]["tail"].split())
               > n, 60, "it goes on")
    lines = c.command(ticks).json["stdout"]["tail"].split()
    equal(lines, [str(i) for i in range(1, len(lines) + 1)])
    # A refused key is not burnt: the same call begins when there is room.
    refused = keys[[r.status for r in got].index(503)]
    destroyed(c, ids[0])
    wait_until(lambda: d.metric("hutch_ram_committed_bytes") == room * shape,
               30, "its memory is free")
    r = create_from(c, s["id"], refused, wait_ms=0)
    equal(r.status, 201, r)
    run_all(c, [r.json["id"]])
    for i in (*ids[1:], r.json["id"], box):
        destroyed(c, i)
    equal(remove(c, s["id"]).status, 200)
    d.stop()


main()
