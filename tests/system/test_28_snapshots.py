#!/usr/bin/env python3
"""Snapshots that a user takes of held sandboxes, and sandboxes that begin from
them: what goes on, what is a new one's own, what a crash and a full disk leave,
and what all of it takes.

test: timeout=1500 long-timeout=3600 beside=yes seconds=180
"""
import contextlib
import errno
import http.client
import os
import random
import re
import subprocess
import tempfile
import threading
import time

from held import SHELL, WAIT_S, destroyed, ended, resumed, stopped
from hutchlib import (IS_LONG, STATE, Daemon, case, equal, hutch, interrupted,
                      main, new_key, note, wait_until)
from snaps import (LEFT, MIB, SNAPSHOTS, TICKS, WHO, at_once, begin,
                   create_from, disk_of_its_own, du, hold, listed, remove, sh,
                   space, start, take, taken)

d = Daemon(STATE + "-snap", pool_max=0, graph_places=8, environment_places=8)


def client(daemon=d, **more):
    if not daemon.is_alive():
        daemon.start()
    return daemon.client(**more)


def folders(daemon=d):
    with contextlib.suppress(FileNotFoundError):
        return sorted(os.listdir(f"{daemon.state}/snapshots"))
    return []


@case("three begin at once from one that runs: its file and its process go on "
      "in each, and each is somebody else")
def three():
    c = client()
    box = hold(c, env={"SECRET": "of-the-first"})
    sh(c, box, f"echo kept > f; ({LEFT}) >/dev/null 2>&1 &")
    busy = start(c, box, "mkfifo /tmp/p; exec 3<>/tmp/p; for i in {1..20}; do "
                 "echo $i; read -t 0.5 -u 3; done; echo > /tmp/done",
                 timeout_ms=600000)
    wait_until(lambda: c.command(busy).json["stdout"]["tail"], WAIT_S,
               "it has begun")
    s = taken(c, box, name="ready")
    equal((s["object"], s["name"], s["sandbox"], s["template"], s["snapshot"]),
          ("snapshot", "ready", box, SHELL, None))
    assert re.fullmatch("snp_[0-9a-z]{26}", s["id"]), s
    equal(s["limits"], {"vcpus": 1, "memory_mib": 1024, "disk_mib": 512})
    equal(folders(), [s["id"]])
    files = {n: os.stat(f"{d.state}/snapshots/{s['id']}/{n}")
             for n in ("state", "mem", "disk")}
    equal(sum(f.st_blocks * 512 for f in files.values()), s["bytes"])
    equal({f.st_mode & 0o777 for f in files.values()}, {0o400})
    # The first one goes on, its command too: nothing lost, nothing twice.
    first = sh(c, box, WHO).split()
    equal(ended(c, busy)["stdout"]["tail"].split(),
          [str(i) for i in range(1, 21)])
    destroyed(c, box)

    began = time.monotonic()
    kids = at_once(lambda _: begin(c, s["id"]), range(3))
    note(f"three began in {time.monotonic() - began:.2f} s")
    seen = [first]
    for kid in kids:
        j = c.sandbox(kid)
        equal((j["snapshot"], j["template"], j["limits"]),
              (s["id"], SHELL, s["limits"]))
        # Commands of the first one are not its own.
        equal(c.call("GET", "/v1/sandboxes/commands",
                     query={"sandbox": kid}).json["data"], [])
        began = time.time()
        who = sh(c, kid, f"{WHO}; echo $(<f); kill -0 $(</tmp/pid) && echo "
                 "there; echo ${SECRET-none}; "
                 f"{TICKS}; echo {kid} > mine; printf '%s%0100000d' {kid} 7 > "
                 "big").split()
        equal(len(who), 8, who)
        assert began - 2 < int(who[3]) < time.time() + 2, (began, who)
        equal(who[1], kid.replace("_", "-"))
        equal(who[4:7], ["kept", "there", "none"])
        seen.append(who)
    for i in range(3):
        equal(len({who[i] for who in seen}), 4, "each is somebody else")
    time.sleep(2)
    sums = set()
    for kid, who in zip(kids, seen[1:]):
        now = sh(c, kid, f"echo $(<mine) *; {TICKS}; "
                 "sha256sum < big").split()
        equal(now[:4], [kid, "big", "f", "mine"])
        assert int(now[4]) > int(who[7]), kid
        sums.add(now[5])
    equal(len(sums), 3)
    # The process of the first one's command goes on until its end, unheard.
    wait_until(lambda: sh(c, kids[0], "[ -e /tmp/done ] && echo yes || true"),
               60, "the first one's command has ended here, too")
    # Removed under them: they go on.
    equal(remove(c, s["id"]).json["id"], s["id"])
    wait_until(lambda: not folders(), 10, "its files are removed")
    equal(remove(c, s["id"]).status, 404)
    equal(create_from(c, s["id"]).code, "sandbox_snapshot_not_found")
    equal(sh(c, kids[1], "cat f"), "kept\n")
    # One that began so stops and goes on as any other.
    stopped(c, kids[2])
    resumed(c, kids[2])
    equal(sh(c, kids[2], "cat mine; kill -0 $(cat /tmp/pid) && echo there"),
          f"{kids[2]}\nthere\n")
    for kid in kids:
        destroyed(c, kid)


@case("under load, many times in a row: nothing lost, doubled or stuck; the "
      "file system is clean")
def load():
    c = client()
    box = hold(c)
    n = 20 if IS_LONG else 4
    sh(c, box, "mkdir sums")
    writes = start(c, box, "i=0; until [ -e stop ]; do "
                   "printf '%0100000d' $i > w.$((i % 4)); sha256sum "
                   "w.$((i % 4)) > sums/$((i % 4)); i=$((i+1)); done; sync",
                   timeout_ms=1800000)
    says = start(c, box, "i=0; until [ -e stop ]; do echo line $i; i=$((i+1)); "
                 "done; echo $i > said", timeout_ms=1800000)
    spins = start(c, box, "until [ -e stop ]; do :; done", timeout_ms=1800000)
    # What has not begun when it is copied does not begin in the copy.
    wait_until(lambda: {c.command(x).json["status"] for x in
                        (writes, says, spins)} == {"running"}, WAIT_S,
               "all of it runs")
    last = None
    for i in range(n):
        if last:
            equal(remove(c, last["id"]).status, 200)
        last = taken(c, box)
        wait_until(lambda: folders() == [last["id"]], 10, "one is left")
    sh(c, box, "touch stop")
    for cmd in (writes, says, spins):
        equal(ended(c, cmd)["status"], "succeeded")
    equal(sh(c, box, "cat sums/* | sha256sum -c | grep -vc OK || true"), "0\n")
    total = int(sh(c, box, "cat said"))
    want = sum(len(f"line {i}\n") for i in range(total))
    j = c.command(says).json["stdout"]
    equal(j["bytes"], want, "bytes of output")
    assert j["tail"].endswith(f"line {total - 1}\n"), j["tail"][-60:]
    lines = j["tail"].split("\n")[1:-1]
    equal(lines, [f"line {i}" for i in range(total - len(lines), total)])
    with tempfile.NamedTemporaryFile(dir=os.environ.get("TMPDIR")) as copy:
        subprocess.run(["cp", "--sparse=always", f"{d.state}/snapshots/"
                        f"{last['id']}/disk", copy.name], check=True)
        # First the journal, as a mount would; then nothing is to be mended.
        subprocess.run(["e2fsck", "-p", copy.name], stdout=subprocess.DEVNULL)
        p = subprocess.run(["e2fsck", "-fn", copy.name], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        equal(p.returncode, 0, p.stdout)
    kid = begin(c, last["id"])
    # The same three go on in it, and are ended by the same file.
    equal(sh(c, kid, "[ -e stop ] || echo goes on; touch stop"), "goes on\n")
    wait_until(lambda: sh(c, kid, "[ -e said ] && echo ended || true"), WAIT_S,
               "what the first one ran ends here, too")
    wait_until(lambda: sh(c, kid, "cat sums/* | sha256sum -c 2>/dev/null | "
                          "grep -vc OK || true") == "0\n", 30,
               "the sums of what it wrote are right")
    for x in (box, kid):
        destroyed(c, x)
    equal(remove(c, last["id"]).status, 200)


@case("of a stopped one, and one of one; they outlive the daemon")
def outlives():
    c = client()
    box = hold(c)
    sh(c, box, f"echo kept > f; ({LEFT}) >/dev/null 2>&1 &")
    stopped(c, box)
    key = new_key()
    s = take(c, box, key, name="of-a-stopped")
    equal(s.status, 201, s)
    equal(take(c, box, key, name="of-a-stopped").json, s.json, "the same key")
    other = take(c, box, key, name="another")
    equal((other.status, other.code), (409, "idempotency_conflict"))
    equal(c.sandbox(box)["status"], "stopped")
    one = begin(c, s.json["id"])
    sh(c, one, "echo two > g")
    second = taken(c, one)
    equal(second["snapshot"], s.json["id"])
    equal(d.stop(), 0)
    d.start()
    equal([x["id"] for x in listed(c)], [second["id"], s.json["id"]])
    equal([x["id"] for x in listed(c, sandbox=box)], [s.json["id"]])
    d.kill()
    d.start()
    equal([x["id"] for x in listed(c)], [second["id"], s.json["id"]])
    r = c.call("GET", SNAPSHOTS + "/get", query={"snapshot": second["id"]})
    equal(r.json, second)
    kids = [begin(c, s.json["id"]), begin(c, second["id"])]
    equal(sh(c, kids[0], "ls"), "f\n")
    r = c.call("POST", "/v1/sandboxes/commands", {"run": {
        "code": "jq -c .", "input": [7]}}, new_key(), {"sandbox": kids[0]})
    equal(ended(c, r.json["id"])["result"], [7], "its runner serves it")
    equal(sh(c, kids[1], "cat f g; kill -0 $(cat /tmp/pid) && echo there"),
          "kept\ntwo\nthere\n")
    resumed(c, box)
    equal(sh(c, box, "ls"), "f\n")
    for x in (*kids, box):
        destroyed(c, x)
    # Altered, it is refused by name and nothing runs.
    state = f"{d.state}/snapshots/{second['id']}/state"
    with open(state, "r+b") as f:
        f.seek(100)
        byte = f.read(1)
        f.seek(100)
        f.write(bytes([byte[0] ^ 1]))
    bad = create_from(c, second["id"])
    bad = wait_until(lambda: (lambda x: x["status"] != "starting" and x)(
        c.sandbox(bad.json["id"])), WAIT_S, "it has failed")
    equal(bad["status"], "failed", bad)
    assert "SHA-256" in bad["message"], bad
    for x in (second, s.json):
        equal(remove(c, x["id"]).status, 200)


def try_take(c, box):
    with contextlib.suppress(OSError, http.client.HTTPException):
        take(c, box)


@case("kill -9 of the daemon while it takes one: whole or gone")
def killed():
    c = client()
    n_whole = 0
    for i in range(40 if IS_LONG else 8):
        box = hold(c)
        t = threading.Thread(target=try_take, args=(c, box))
        t.start()
        wait_until(folders, WAIT_S, "it has begun")
        time.sleep(random.uniform(0, 0.2))
        d.kill()
        t.join()
        d.start()
        wait_until(lambda: folders() == sorted(x["id"] for x in listed(c)), 10,
                   "files are of those that are listed")
        for x in listed(c):
            n_whole += 1
            kid = begin(c, x["id"])
            equal(sh(c, kid, "echo here"), "here\n")
            destroyed(c, kid)
            equal(remove(c, x["id"]).status, 200)
    note(f"{n_whole} were whole")
    wait_until(lambda: not folders(), 10, "nothing is left")


@case("hutch df adds up with du; limits are named before anything is touched")
def limits():
    daemon = Daemon(STATE + "-limits", pool_max=0, snapshots_max_mib=200,
                    stopped_max_mib=1)
    c = client(daemon)
    box = hold(c)
    sh(c, box, "printf '%0300000d' 7 > f; sync")
    s = taken(c, box)
    kinds, all_of_it = space(daemon)
    equal((kinds["snapshots"]["count"], kinds["disks"]["count"]), (1, 1))
    assert kinds["snapshots"]["bytes"] >= s["bytes"], kinds
    assert kinds["disks"]["bytes"] > 300000, kinds
    equal(kinds["snapshots"]["limit_bytes"], 200 * MIB)
    equal(kinds["stopped"]["limit_bytes"], MIB)
    named = sum(kinds[k]["bytes"] for k in kinds
                if k not in ("templates", "disks"))
    # The log and the database's log may grow between the two.
    assert abs(du(daemon.state) - named) < MIB, (du(daemon.state), kinds)
    v = os.statvfs(daemon.state)
    assert abs(all_of_it["state"]["free_bytes"] -
               v.f_bavail * v.f_frsize) < 64 * MIB, all_of_it
    out = hutch("df", "--state", daemon.state)
    equal(out.returncode, 0, out)
    assert re.search(r"snapshots +1 +[\d.]+ +200\n", out.stdout), out.stdout
    # One more or so fits, then no more; and no stop at all.
    ids = [s["id"]]
    while len(ids) < 8:
        r = take(c, box)
        if r.status != 201:
            break
        ids.append(r.json["id"])
    equal((r.status, r.code), (429, "sandbox_limit_reached"), r)
    assert "snapshots_max_mib" in r.text and "200 MiB" in r.text, r
    assert int(r.headers["Retry-After"]) > 0
    equal(folders(daemon), sorted(ids))
    assert space(daemon)[0]["snapshots"]["bytes"] <= 200 * MIB
    r = c.call("POST", "/v1/sandboxes/stop", query={"sandbox": box})
    equal((r.status, r.code), (429, "sandbox_limit_reached"), r)
    assert "stopped_max_mib" in r.text, r
    equal(sh(c, box, "wc -c < f"), "300000\n")
    for x in ids:
        equal(remove(c, x).status, 200)
    taken(c, box)
    daemon.stop()


def fill(folder, leave):
    """Everything but `leave` bytes, or all, when others write meanwhile."""
    v = os.statvfs(folder)
    fd = os.open(f"{folder}/filler", os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(fd, 0, max(1, v.f_bavail * v.f_frsize - leave))
    except OSError as e:
        if e.errno != errno.ENOSPC:
            raise
    finally:
        os.close(fd)


@case("a full disk refuses it, and one that fills in the middle leaves nothing "
      "of it; the sandbox runs on")
def full():
    with disk_of_its_own(1800, "ext4", "-F", "-m", "0") as disk:
        daemon = Daemon(f"{disk}/state", pool_max=0, disk_reserve_mib=16)
        c = client(daemon)
        box = hold(c)
        sh(c, box, "echo kept > f; printf '%0300000d' 7 > g; sync")
        whole = taken(c, box)
        # Known before: nothing is begun.
        fill(disk, 60 * MIB)
        r = take(c, box)
        equal((r.status, r.code), (503, "sandbox_capacity"), r)
        assert "disk_reserve_mib" in r.text and "16 MiB" in r.text, r
        equal(folders(daemon), [whole["id"]])
        os.unlink(f"{disk}/filler")
        # Found out in the middle.
        for _ in range(20):
            got = []
            t = threading.Thread(target=lambda: got.append(take(c, box)))
            t.start()
            while t.is_alive() and len(folders(daemon)) < 2:
                time.sleep(0.0005)
            fill(disk, 6 * MIB)
            t.join()
            os.unlink(f"{disk}/filler")
            r = got[0]
            if r.status != 201:
                break
            equal(remove(c, r.json["id"]).status, 200)
            wait_until(lambda: len(folders(daemon)) == 1, 10, "it is removed")
        equal((r.status, r.code), (503, "sandbox_capacity"), r)
        note(r.json["error"]["message"])
        wait_until(lambda: folders(daemon) == [whole["id"]], 10,
                   "nothing is left of it")
        equal(c.sandbox(box)["status"], "running")
        equal(sh(c, box, "cat f; wc -c < g"), "kept\n300000\n")
        kid = begin(c, whole["id"])
        equal(sh(c, kid, "cat f"), "kept\n")
        taken(c, box)
        daemon.stop()


@case("what cannot be is refused by name")
def refused():
    c = client()
    none = "sbx_" + "a" * 26
    r = take(c, none)
    equal((r.status, r.code), (404, "sandbox_not_found"))
    r = c.call("POST", SNAPSHOTS, {}, None, {"sandbox": none})
    equal((r.status, r.code), (400, "missing_idempotency_key"))
    run = c.run("echo 1", template=SHELL)
    r = take(c, run.sandbox)
    equal((r.status, r.code), (409, "sandbox_not_running"))
    box = hold(c)
    for body, param in (({"name": "A"}, "name"), ({"name": ""}, "name"),
                        ({"name": "a" * 65}, "name"), ({"x": 1}, "x")):
        r = take(c, box, **body)
        equal((r.status, r.param), (400, param), r)
    snap = "snp_" + "a" * 26
    r = create_from(c, snap)
    equal((r.status, r.code), (404, "sandbox_snapshot_not_found"), r)
    r = create_from(c, snap, template=SHELL)
    equal((r.status, r.param), (400, "template"), r)
    r = create_from(c, snap, limits={"memory_mib": 512})
    equal((r.status, r.param), (400, "limits"), r)
    r = create_from(c, "../../x")
    equal((r.status, r.param), (404, "snapshot"), r)
    s = taken(c, box)
    other = c.call("GET", SNAPSHOTS + "/get",
                   query={"snapshot": s["id"], "graph": "other"})
    equal((other.status, other.code), (404, "sandbox_snapshot_not_found"))
    foreign = client(environment="other")
    equal(listed(foreign), [])
    equal(remove(foreign, s["id"]).status, 404)
    equal(create_from(foreign, s["id"]).status, 404)
    free = client(environment="free", plan="free")
    equal(take(free, none).code, "sandbox_plan_unavailable")
    assert "sandboxes.snapshots" in d.get("/version").json["capabilities"]
    destroyed(c, box)
    equal(remove(c, s["id"]).status, 200)


@case("hutch snapshot: create, ls, rm; hutch sandbox create --snapshot")
def cli():
    client()
    state = ["--state", d.state]

    def run(*argv, status=0):
        p = hutch(*state, *argv)
        equal(p.returncode, status, p)
        return p.stdout.strip()

    box = run("sandbox", "create", "--template", SHELL, "--disk", "512")
    run("sandbox", "exec", box, "bash", "-c", "echo kept > f")
    snap = run("snapshot", "create", "--name", "ready", box)
    assert snap.startswith("snp_"), snap
    run("sandbox", "rm", box)
    out = run("snapshot", "ls").split("\n")
    equal(len(out), 2, out)
    equal(out[1].split()[:2], [snap, "ready"])
    kid = run("sandbox", "create", "--snapshot", snap)
    equal(run("sandbox", "exec", kid, "cat", "f"), "kept")
    equal(run("snapshot", "rm", snap), f"{snap} removed")
    run("snapshot", "rm", snap, status=66)
    run("sandbox", "create", "--snapshot", snap, status=66)
    status, out, err = interrupted(d, "snapshot", "create", kid)
    equal((status, out), (130, ""), err)
    assert re.search(r"interrupted; snp_\w+ is removed", err), err
    equal(len(run("snapshot", "ls").split("\n")), 1)
    run("snapshot", "create", status=64)
    run("snapshot", "take", box, status=64)
    run("sandbox", "rm", kid)
    assert "disks" in run("df"), "hutch df"


main()
