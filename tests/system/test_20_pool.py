#!/usr/bin/env python3
"""VMs that wait for a run: whose they are, that each is a sandbox of its own,
that they give way and that none is left behind.

test: timeout=1500
"""
import json
import os
import re
import signal
import time

from hutchlib import (Daemon, STATE, case, cgroups, equal, filled, hutch,
                      is_there, main, median, note, pool, results_at_once,
                      timings, vmms, wait_until)

WHO = r"""
import os, random, secrets, socket, tempfile, time, uuid

def run(input, config):
    return {
        "time": time.time(),
        "host": socket.gethostname(),
        "machine": open("/etc/machine-id").read().strip(),
        "random": [random.random(), secrets.token_hex(16), str(uuid.uuid4()),
                   os.urandom(16).hex(), tempfile.mktemp()],
        "files": os.listdir("/workspace"),
    }
"""
SLEEP = "import time\ndef run(i, c):\n    time.sleep(i)\n    return 'slept'"
NOTHING = "def run(i, c): return i"
WAIT_S = 60


d = Daemon(STATE + "-two", pool_python=2, pool_max=2, graph_places=20,
           environment_places=20)
seen = []


@case("two wait as configured; hutch pool shows them")
def fills():
    d.start()
    p = filled(d, 2)
    equal((p["maximum"], p["hits"], p["refills"]), (2, 0, 2))
    equal(p["ram_bytes"], 2 << 30)
    c = p["classes"][0]
    equal((c["template"], c["vcpus"], c["memory_mib"], c["disk_mib"],
           c["minimum"], c["target"], c["ready"]),
          ("lbb/python", 1, 1024, 4096, 2, 2, 2))
    equal(d.metric("hutch_pool_ready"), 2)
    equal(d.admin("GET", "/admin/ps").json["data"], [])
    equal(d.metric("hutch_ram_committed_bytes"), 0)
    out = hutch("--state", d.state, "pool")
    equal(out.returncode, 0, out.stderr)
    assert re.search(r"lbb/python +1 +1024 +4096 +2 +2 +2 ", out.stdout), out
    out = hutch("--state", d.state, "pool", "--json")
    equal(json.loads(out.stdout)["ready"], 2)
    equal(len(vmms(d.pid)), 2)


@case("a run is given one that waited, and it is a sandbox like any other")
def claimed():
    c = d.client()
    time.sleep(5)   # paused meanwhile: its clock shall not be late
    for _ in range(4):
        filled(d, 2)
        before = time.time()
        r = c.run(WHO)
        assert r.ok, (r, r.logs("stderr"))
        w = r.result
        assert before - 1 < w["time"] < time.time() + 1, (before, w["time"])
        equal(w["host"], r.sandbox.replace("_", "-"))
        equal(w["files"], [])
        equal(c.sandbox(r.sandbox)["command"], r.command)
        seen.append(w)
    p = pool(d)
    equal((p["hits"], p["misses"], p["failures"]), (4, 0, 0))
    equal(d.metric("hutch_pool_hits_total"), 4)
    t = timings(d)
    equal([x["timing"] for x in t], ["claimed"] * 4)
    assert all(int(x["bind_us"]) < 50000 for x in t), t


@case("no two of them share an identity or a random number")
def distinct():
    for what in ("host", "machine"):
        equal(len({w[what] for w in seen}), len(seen), what)
    for i in range(len(seen[0]["random"])):
        equal(len({str(w["random"][i]) for w in seen}), len(seen), f"random {i}")


@case("a claimed run times out, is cancelled and fails like any other")
def ends():
    c = d.client()
    filled(d, 2)
    r = c.run(SLEEP, input=60, timeout_ms=2000)
    equal(r.status, "timed_out")
    filled(d, 2)
    r = c.start(SLEEP, input=60)
    equal(r.status, 202)
    wait_until(lambda: c.command(r.json["command"]).json["status"] ==
               "running", WAIT_S, "it runs")
    equal(c.cancel(r.json["command"]).status, 200)
    equal(c.wait(r.json["command"]).status, "cancelled")
    filled(d, 2)
    r = c.run("def run(i, c): raise ValueError('no')")
    equal((r.status, r.exit_code), ("failed", 1))
    wait_until(lambda: [x["timing"] for x in timings(d)[-3:]] ==
               ["claimed"] * 3, 10, "three claimed ones")


@case("the same key again takes none")
def replay():
    c = d.client()
    filled(d, 2)
    r = c.run(NOTHING, key="pool-replay", input=7)
    p = filled(d, 2)
    for _ in range(3):
        equal(c.run(NOTHING, key="pool-replay", input=7).sandbox, r.sandbox)
    q = pool(d)
    equal((q["ready"], q["hits"], q["refills"]),
          (2, p["hits"], p["refills"]))


@case("one that dies while it waits is replaced, and no run is hurt")
def killed():
    filled(d, 2)
    os.kill(vmms(d.pid)[0], signal.SIGKILL)
    r = d.client().run(NOTHING, input=1)
    assert r.ok, r
    p = filled(d, 2)
    # Known to be dead when it was wanted, or found so.
    assert p["failures"] == 1 or "vm=restored_instead" in d.log_text(), p


@case("a burst of six: two claim, four restore, all right")
def burst():
    before = filled(d, 2)
    equal(sorted(results_at_once(d.client(), NOTHING, range(6))),
          list(range(6)))
    p = pool(d)
    equal(p["hits"] + p["misses"] - before["hits"] - before["misses"], 6)
    assert p["hits"] - before["hits"] >= 2, p


@case("side by side: with and without")
def side_by_side():
    off = Daemon(STATE + "-off", pool_max=0).start()
    try:
        times = {"claimed": [], "restored": []}
        clients = {"claimed": d.client(), "restored": off.client()}
        for _ in range(10):
            for name, c in clients.items():
                if name == "claimed":
                    filled(d, 2)
                t = time.monotonic()
                assert c.run(NOTHING, input=1).ok
                times[name].append((time.monotonic() - t) * 1000)
        note("p50 of 10, ms: " + ", ".join(
            f"{k} {median(v):.1f}" for k, v in times.items()))
        equal(pool(off)["maximum"], 0)
        # Said behind the answer.
        wait_until(lambda: len(timings(off)) == 10, 10, "ten timings")
        equal([x["timing"] for x in timings(off)], ["restored"] * 10)
    finally:
        off.stop()


@case("SIGTERM ends those that wait; nothing stays")
def stopped():
    filled(d, 2)
    pid, children = d.pid, vmms(d.pid)
    equal(len(children), 2)
    equal(d.stop(), 0)
    equal([p for p in children if is_there(p)], [])
    equal(cgroups(pid), [])


@case("kill -9 does, too: processes at once, the rest at the next start")
def killed_daemon():
    k = Daemon(STATE + "-kill", pool_python=1, pool_max=1).start()
    filled(k, 1)
    pid, children = k.pid, vmms(k.pid)
    k.kill()
    wait_until(lambda: not [p for p in children if is_there(p)], 10,
               "the VMs that waited end")
    k.start()
    try:
        equal(cgroups(pid), [])
        filled(k, 1)
        equal(len(vmms(k.pid)), 1)
        files = [f for _, _, names in os.walk(k.state) for f in names]
        assert not [f for f in files if f.startswith(".disk")], files
        assert k.client().run(NOTHING, input=2).ok
    finally:
        k.stop()


@case("who waits gives way; who cannot fit gets 503 and disturbs nobody")
def room():
    r = Daemon(STATE + "-room", pool_python=2, pool_max=2,
               ram_budget_mib=2048, graph_places=20,
               environment_places=20).start()
    try:
        c = r.client()
        filled(r, 2)
        # Other limits: neither of the two fits it, one makes room.
        a = c.start(SLEEP, input=20, limits={"disk_mib": 512})
        equal(a.status, 202, a)
        equal(pool(r)["evictions"], 1)
        equal(pool(r)["ready"], 1)
        b = c.start(SLEEP, input=20)    # claims the other
        equal(b.status, 202, b)
        equal(r.metric("hutch_pool_hits_total"), 1)
        full = c.start(NOTHING, input=1)
        equal((full.status, full.code), (503, "sandbox_capacity"))
        assert int(full.headers["Retry-After"]) > 0
        equal(pool(r)["refills"], 2, "no refill without room")
        for x in (a, b):
            equal(c.wait(x.json["command"]).result, "slept")
        filled(r, 2)
    finally:
        r.stop()


main()
