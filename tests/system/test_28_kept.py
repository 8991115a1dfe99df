#!/usr/bin/env python3
"""Snapshots that are kept: damage is refused by name, verifying reads all of
it, they expire, metrics count them, and hutch df counts a disk once.

test: timeout=600 beside=yes seconds=30
"""
import os
import re
import time

from held import SHELL, WAIT_S, destroyed, resumed, stopped
from hutchlib import (Client, Daemon, MovableDaemon, STATE, case, equal, hutch,
                      main, note, wait_until)
from snaps import (MIB, SNAPSHOTS, begin, create_from, du, hold, listed,
                   remove, sh, space, take, taken)

d = Daemon(STATE + "-kept", pool_max=0, graph_places=8, environment_places=8)


def client():
    if not d.is_alive():
        d.start()
    return d.client()


def verify(c, snapshot):
    return c.call("POST", SNAPSHOTS + "/verify", query={"snapshot": snapshot})


def failed(c, snapshot):
    """What is said of a sandbox that cannot begin."""
    r = create_from(c, snapshot)
    equal(r.status, 201, r)
    s = wait_until(lambda: (lambda x: x["status"] != "starting" and x)(
        c.sandbox(r.json["id"])), WAIT_S, "it has failed")
    equal(s["status"], "failed", s)
    return s["message"]


def flip(path):
    """One bit in the middle of its data."""
    os.chmod(path, 0o600)
    with open(path, "r+b") as f:
        at = os.lseek(f.fileno(), 0, os.SEEK_DATA)
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 1]))


@case("altered, cut short or gone: refused with its name, and nothing of it "
      "runs; put right again it begins")
def damaged():
    c = client()
    box = hold(c)
    sh(c, box, "echo kept > f; sync")
    s = taken(c, box, name="ready")
    destroyed(c, box)
    for name in ("state", "memory", "disk"):
        assert re.fullmatch("[0-9a-f]{64}", s[f"{name}_sha256"]), s
    began = time.monotonic()
    equal(verify(c, s["id"]).json, s)
    note(f"{s['bytes'] / MIB:.1f} MiB verified in "
         f"{time.monotonic() - began:.2f} s")
    folder = f"{d.state}/snapshots/{s['id']}"
    for name in ("state", "mem", "disk"):
        flip(f"{folder}/{name}")
        said = failed(c, s["id"])
        assert f"file {name} " in said and s["id"] in said, said
        assert "SHA-256" in said, said
        r = verify(c, s["id"])
        equal((r.status, r.code), (500, "sandbox_snapshot_damaged"), r)
        assert f"file {name} " in r.text, r
        flip(f"{folder}/{name}")
    size = os.stat(f"{folder}/mem").st_size - 4096
    with open(f"{folder}/mem", "r+b") as f:
        f.seek(size)
        end = f.read()
        f.truncate(size)
        f.flush()
        assert "file mem " in failed(c, s["id"])
        f.seek(size)
        f.write(end)
    equal(verify(c, s["id"]).json, s)
    kid = begin(c, s["id"])
    equal(sh(c, kid, "cat f"), "kept\n")
    destroyed(c, kid)
    os.rename(f"{folder}/disk", f"{folder}/moved")
    said = failed(c, s["id"])
    assert "disk: No such file" in said, said
    r = verify(c, s["id"])
    equal((r.status, r.code), (503, "service_unavailable"), r)
    os.rename(f"{folder}/moved", f"{folder}/disk")
    equal(d.vmm_pids(), {})
    p = hutch("--state", d.state, "snapshot", "verify", "snp_" + "a" * 26)
    equal(p.returncode, 66, p)
    equal(remove(c, s["id"]).status, 200)
    wait_until(lambda: not os.listdir(f"{d.state}/snapshots"), 10,
               "its files are removed")


@case("hutch snapshot verify: whole, and damaged")
def cli():
    c = client()
    state = ["--state", d.state]
    box = hutch(*state, "sandbox", "create", "--template", SHELL, "--disk",
                "512").stdout.strip()
    p = hutch(*state, "snapshot", "create", "--expires", "1d", box)
    equal(p.returncode, 0, p)
    snap = p.stdout.strip()
    p = hutch(*state, "snapshot", "verify", snap)
    equal((p.returncode, p.stdout), (0, f"{snap} is what was taken\n"), p)
    flip(f"{d.state}/snapshots/{snap}/mem")
    p = hutch(*state, "snapshot", "verify", snap)
    equal(p.returncode, 65, p)
    assert f"The file mem of the snapshot {snap}" in p.stderr, p
    p = hutch(*state, "snapshot", "create", "--expires", "59s", box)
    equal(p.returncode, 64, p)
    p = hutch(*state, "snapshot", "create", "--name", "Ready", box)
    equal(p.returncode, 64, p)
    for word in ("name", '"Ready"', "64"):
        assert word in p.stderr, p
    for argv in (("snapshot", "rm", snap), ("sandbox", "rm", box)):
        equal(hutch(*state, *argv).returncode, 0)
    equal(listed(c), [])


@case("one that expires is gone at its time, also when no daemon ran then")
def expires():
    own = MovableDaemon(STATE + "-expires", pool_max=0)
    own.start()
    c = own.client()
    box = hold(c, expires_in_seconds=7 * 86400)
    for seconds in (59, 31536001, 0, 1.5):
        r = take(c, box, expires_in_seconds=seconds)
        equal((r.status, r.param), (400, "expires_in_seconds"), r)
        assert str(seconds) in r.text and "31536000" in r.text, r
    stopped(c, box)     # its files are copied in no time
    soon = taken(c, box, expires_in_seconds=3600)
    stays = taken(c, box)
    equal(stays["expires_at"], None)
    assert soon["expires_at"] > soon["created_at"], soon
    own.pass_time(3500)
    equal([s["id"] for s in listed(c)], [stays["id"], soon["id"]])
    own.pass_time(100)
    left(own, c, [stays["id"]])
    equal(create_from(c, soon["id"]).code, "sandbox_snapshot_not_found")
    equal(own.metric("hutch_snapshots_expired_total"), 1)
    away = taken(c, box, expires_in_seconds=3600)
    equal(own.stop(), 0)
    own.pass_time(3500)
    own.start()
    c = Client(own, c.key, c.name, c.environment)
    equal([s["id"] for s in listed(c)], [away["id"], stays["id"]])
    equal(own.stop(), 0)
    own.pass_time(100)
    own.start()
    c = Client(own, c.key, c.name, c.environment)
    left(own, c, [stays["id"]])
    destroyed(c, box)
    equal(remove(c, stays["id"]).status, 200)
    equal(own.stop(), 0)


def left(own, c, ids):
    wait_until(lambda: [s["id"] for s in listed(c)] == ids, 60, "it expires")
    wait_until(lambda: os.listdir(f"{own.state}/snapshots") == ids, 10,
               "its files are removed")


@case("metrics tell how many there are, what they take, and what came of those "
      "that were begun")
def metrics():
    def now():
        names = ("", "_bytes", "_taken_total", "_failed_total",
                 "_seconds_total", "_paused_seconds_total")
        return [d.metric("hutch_snapshots" + n) for n in names]

    c = client()
    box = hold(c)
    was = now()
    began = time.monotonic()
    s = taken(c, box)
    took = time.monotonic() - began
    got = now()
    equal(got[0] - was[0], 1)
    assert s["bytes"] <= got[1] - was[1] < s["bytes"] + MIB, (was, got, s)
    equal((got[2] - was[2], got[3] - was[3]), (1, 0))
    assert 0 < got[5] - was[5] < got[4] - was[4] < took, (was, got, took)
    # Another one is asked for after the sandbox is gone: begun it was not.
    destroyed(c, box)
    equal(take(c, box).code, "sandbox_not_running")
    equal(remove(c, s["id"]).status, 200)
    wait_until(lambda: now()[:2] == was[:2], 10, "as before")
    equal(now()[2:], got[2:])


@case("hutch df: the disk of a sandbox that was stopped and runs is one of "
      "those that run")
def disk():
    c = client()
    box = hold(c)
    sh(c, box, "printf '%0300000d' 7 > f; sync")
    stopped(c, box)
    kinds, _ = space(d)
    equal((kinds["stopped"]["count"], kinds["disks"]["count"]), (1, 0))
    was = kinds["stopped"]["bytes"]
    resumed(c, box)
    sh(c, box, "true")
    kinds, _ = space(d)
    equal((kinds["stopped"]["count"], kinds["disks"]["count"]), (0, 1))
    disk_bytes = os.stat(f"{d.state}/stopped/{box}/disk").st_blocks * 512
    assert disk_bytes > 300000
    assert abs(kinds["disks"]["bytes"] - disk_bytes) < MIB, kinds
    # The folders themselves.
    assert kinds["stopped"]["bytes"] <= 16384 < was, (kinds, was)
    named = sum(kinds[k]["bytes"] for k in kinds if k != "templates")
    assert abs(du(d.state) - named) < MIB, (du(d.state), kinds)
    stopped(c, box)
    kinds, _ = space(d)
    equal((kinds["stopped"]["count"], kinds["disks"]["count"]), (1, 0))
    destroyed(c, box)


main()
