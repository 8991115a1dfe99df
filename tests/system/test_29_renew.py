#!/usr/bin/env python3
"""Snapshots of templates are made anew when they are a day old: what runs, what
waits and what comes meanwhile is served.

test: timeout=1500 beside=yes seconds=70
"""
import glob
import hashlib
import json
import os
import subprocess
import time

from held import destroyed, hold, sh
from hutchlib import BUILD, Daemon, STATE, case, equal, main, note, pool, wait_until

SHELL = "lbb/shell"
DAY_S = 86400
RENEW_S = 1200      # a boot in the background, on a busy soft host
CACHE = os.path.join(os.environ["TMPDIR"], "cache")
FIRST = os.environ.get("HUTCH_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
    "hutch")


def meta(folder):
    with open(os.path.join(folder, "meta.json")) as f:
        return json.load(f)


def copied():
    """The default shape's snapshot, in a cache of our own, a day old."""
    want = [f"\nbase={SHELL}\nvcpus=1\nram_mib=1024\n"]
    for key, name in (("vmm", "hutch-vmm"), ("init", "guest/init.erofs")):
        with open(f"{BUILD}/{name}", "rb") as f:
            want.append(f"\n{key}={hashlib.sha256(f.read()).hexdigest()}\n")
    found = [d for d in glob.glob(f"{FIRST}/snapshots/[0-9a-f]*")
             if os.path.exists(f"{d}/meta.json") and
             all(w in f"\n{meta(d)['inputs']}\n" for w in want)]
    assert found, f"no snapshot of {SHELL} in {FIRST}"
    newest = max(found, key=lambda d: meta(d)["made_at_ms"])
    os.makedirs(f"{CACHE}/snapshots")
    subprocess.run(["cp", "-a", "--sparse=always", newest,
                    f"{CACHE}/snapshots/"], check=True)
    folder = f"{CACHE}/snapshots/{os.path.basename(newest)}"
    old = time.time() - DAY_S - 3600
    for name in ("state", "mem", "disk"):
        os.utime(f"{folder}/{name}", (old, old))
    return folder


@case("N2: a snapshot that is a day old is made anew, and nobody waits for it")
def renewed():
    folder = copied()
    was = meta(folder)["made_at_ms"]
    os.environ["HUTCH_CACHE"] = CACHE
    d = Daemon(STATE + "-renew", pool_python=0, pool_shell=1, pool_max=1)
    d.start()
    c = d.client()
    wait_until(lambda: pool(d)["ready"] == 1, 120, "a VM waits")
    box = hold(c, idle_seconds=3600)
    equal(sh(c, box, "echo kept >f; sleep 600 >/dev/null 2>&1 & "
             "echo $! >pid")["exit_code"], 0)
    name = "hutch_template_snapshots_renewed_total"
    began, runs = time.monotonic(), 0
    while d.metric(name) == 0:
        assert time.monotonic() - began < RENEW_S, "it is not renewed"
        equal(meta(folder)["made_at_ms"], was)
        r = c.run("echo $((6 * 7))", template=SHELL)
        assert r.ok, r
        runs += 1
        time.sleep(2)
    note(f"renewed after {time.monotonic() - began:.0f} s, with {runs} runs "
         "meanwhile")
    assert runs > 3, runs
    assert meta(folder)["made_at_ms"] > was
    equal(os.listdir(f"{CACHE}/snapshots"), [os.path.basename(folder)])
    equal(sh(c, box, "kill -0 $(cat pid) && cat f")["stdout"]["tail"],
          "kept\n")
    wait_until(lambda: pool(d)["ready"] == 1 and not pool(d)["starting"], 120,
               "one of the new snapshot waits")
    r = c.run("echo $((6 * 7))", template=SHELL)
    equal(r.result, 42)
    destroyed(c, box)
    d.stop()


main()
