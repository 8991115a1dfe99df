#!/usr/bin/env python3
"""The express lane with a runner of a few instructions (guests/lane.S).

test: timeout=300 long-timeout=1800
"""
import errno
import json
import os
import random
import shutil
import struct
import tempfile
import time

import vmmlib
from vmmlib import VMM, case, guest, note, restore, wait_until

WORK = tempfile.mkdtemp(prefix="hutch-lane-")
EBUSY, EPROTO, ENOENT, EALREADY = (-errno.EBUSY, -errno.EPROTO, -errno.ENOENT,
                                   -errno.EALREADY)
RING_STRAYS_FREE, RING_STRAYS_MAX = 100, 10000


def lane_vm(**kw):
    return VMM("--kernel", guest("lane"), **kw)


def delay(turns):
    return b"d\0\0\0" + struct.pack("<I", turns)


def quantile(times, q):
    return sorted(times)[int(len(times) * q)]


def status(fn, *args, **kw):
    try:
        fn(*args, **kw)
    except vmmlib.Refused as e:
        return e.status
    return 0


@case("a round trip: READY, a request, its echo; owner and VMM time it")
def _():
    n = 10000 if vmmlib.IS_LONG else 1000
    with lane_vm(uid=54321) as vm:
        vm.wait_started()
        assert vm.n_lanes == 0
        vm.lane_ready()
        times = []
        for i in range(n):
            request = b"e%d" % i
            t = time.monotonic()
            vm.lane_run(request)
            assert vm.lane_answer() == request
            times.append((time.monotonic() - t) * 1e6)
            vm.resume()
            vm.lane_ready()
        stats = vm.stats()
        assert stats["lane_rings"] == 2 * n + 1
        assert stats["lane_strays"] == stats["rule_breaks"] == 0
        note(f"count={n} message in to answer out, seen by the owner: p50 "
             f"{quantile(times, .5):.0f} us, p99 {quantile(times, .99):.0f}")
        note(f"exits a trip: {stats['exits'] / n:.2f}")


@case("--trace: rings, parks, runs and answers; the time inside the VMM")
def _():
    n = 1000
    with tempfile.NamedTemporaryFile() as f:
        with VMM("--kernel", guest("lane"), "--trace", f.name) as vm:
            for i in range(n):
                vm.lane_ready()
                vm.lane_run(b"echo")
                assert vm.lane_answer() == b"echo"
                if i % 100 == 99:
                    time.sleep(0.05)  # the writer keeps up
                vm.resume()
            vm.lane_ready()
            vm.quit()
        events = [json.loads(line) for line in f]
    trips, start = [], None
    kinds = {}
    for e in events:
        what = e["what"] if e["ev"] == "lane" else e["ev"]
        kinds[what] = kinds.get(what, 0) + 1
        if what == "run":
            start = e["t"]
        elif what == "answer" and start:
            trips.append((e["t"] - start) / 1e3)
            start = None
    if "dropped" not in kinds:
        assert kinds["ring"] == 2 * n + 1, kinds
        assert kinds["park"] == 2 * n + 2, "one at the start"
        assert kinds["run"] == kinds["answer"] == n, kinds
    note(f"count={len(trips)} request taken to answer sent, in the VMM: p50 "
         f"{quantile(trips, .5):.1f} us, p99 {quantile(trips, .99):.1f}")


@case("requests and answers in pieces, to the last byte of their room")
def _():
    with lane_vm() as vm:
        for size in (1, 65520, 65521, 200001, (1 << 20) - 4096):
            vm.lane_ready()
            request = b"e" + random.Random(size).randbytes(size - 1)
            vm.lane_run(request)
            assert vm.lane_answer() == request
            assert status(vm.lane_piece, 0, 1, b"e") == EBUSY, "not READY"
            vm.resume()
        vm.lane_ready()
        for offset, total, part in ((0, (1 << 20) - 4095, b"x"), (1, 5, b"x"),
                                    (0, 3, b"four"), (0, 3, b""),
                                    (2**32 - 1, 2**32 - 1, b"")):
            assert status(vm.lane_piece, offset, total, part) == EPROTO
        vm.lane_piece(0, 10, b"e1234")
        assert status(vm.lane_piece, 4, 10, b"56789") == EPROTO
        assert status(vm.lane_piece, 0, 1, b"e", lane=4) == EPROTO
        assert status(vm.lane_piece, 0, 1, b"e", lane=3) == EBUSY
        for body in (b"", b"short", b"x" * 15):
            assert status(vm.request, vmmlib.LANE_RUN, body) == EPROTO
            assert status(vm.request, vmmlib.LANE_ADOPT, body) == EPROTO
        vm.lane_run(b"e1234567", piece=3)
        assert vm.lane_answer() == b"e1234567"


@case("resumed without a request: the runner closes; a pause changes nothing")
def _():
    with lane_vm() as vm:
        for i in range(1, 20):
            vm.lane_ready()
            vm.pause()
            vm.resume()
            wait_until(lambda n=i: vm.log() == b"C" * n, 10, "closed")
        vm.lane_ready()
        vm.pause()
        vm.lane_run(b"e")
        assert vm.lane_answer() == b"e"


@case("adopt: the run, the answer or nothing; never two of them")
def _():
    n = 3000 if vmmlib.IS_LONG else 300
    rng = random.Random(1)
    came = {0: 0, EALREADY: 0}
    with lane_vm() as vm:
        vm.lane_ready()
        assert vm.lane_adopt() == ENOENT
        assert vm.lane_adopt(lane=2) == ENOENT
        assert vm.lane_adopt(lane=4) == EPROTO
        vm.lane_run(b"l")
        assert vm.lane_adopt() == 0
        wait_until(lambda: vm.log() == b"A", 10, "adopted")
        vm.lane_ready()  # the guest rings at once
        assert vm.lane_adopt() == ENOENT
        said = 1
        for _i in range(n):
            vm.lane_run(delay(rng.randrange(600000)))
            time.sleep(rng.random() * 3e-4)
            r = vm.lane_adopt()
            came[r] += 1
            if r == 0:
                said += 1
            else:
                assert vm.lane_answer().startswith(b"d")
                assert vm.lane_adopt() == EALREADY
                vm.resume()
            vm.lane_ready()
            assert vm.log() == b"A" * said, r
    note(f"count={n} adopted {came[0]}, answered {came[EALREADY]}")
    assert min(came.values()) > 0, came


@case("a pause in the middle of a ring: the answer is told once, none is lost")
def _():
    n = 3000 if vmmlib.IS_LONG else 300
    rng = random.Random(2)
    before = 0
    for vcpus in (1, 2):
        with lane_vm(vcpus=vcpus) as vm:
            for _i in range(n):
                vm.lane_ready()
                vm.lane_run(delay(rng.randrange(300000)))
                time.sleep(rng.random() * 2e-4)
                vm.pause()
                vm.resume()
                if vm.lane_events:  # told before the resume, which was for it
                    before += 1
                    assert vm.lane_answer().startswith(b"d")
                else:
                    assert vm.lane_answer().startswith(b"d")
                    vm.resume()
            assert vm.log() == b"" and vm.stats()["lane_strays"] == 0
    note(f"count={2 * n} told before the resume: {before}")


@case("a paused run is adopted and goes on when it is resumed")
def _():
    with lane_vm() as vm:
        vm.lane_ready()
        vm.lane_run(b"l")
        vm.pause()
        assert vm.lane_adopt() == 0
        time.sleep(0.1)
        assert vm.log() == b""
        vm.resume()
        wait_until(lambda: vm.log() == b"A", 10, "adopted")


@case("hostile: lengths, versions, port writes of every wrong kind")
def _():
    with lane_vm() as vm:
        vm.lane_ready()
        vm.lane_run(b"n")
        assert vm.lane_answer() == b"", "too long is empty"
        assert vm.stats()["rule_breaks"] == 1
        vm.resume()
        vm.lane_ready()
        vm.lane_run(b"v")
        assert vm.lane_answer() == b"v"
        assert vm.stats()["lane_strays"] == 1
        vm.resume()
        vm.lane_ready()
        vm.lane_run(b"w")
        assert vm.lane_answer() == b"w"
        stats = vm.stats()
        assert stats["rule_breaks"] == 6 and stats["lane_strays"] == 1, stats


def storm(request, counter):
    with lane_vm() as vm:
        vm.lane_ready()
        vm.lane_run(request)
        wait_until(lambda: vm.stats()[counter] > RING_STRAYS_FREE, 10, "storm")
        before, t = vm.stats()[counter], time.monotonic()
        time.sleep(0.3)
        rate = (vm.stats()[counter] - before) / (time.monotonic() - t)
        note(f"{rate:.0f} a second")
        assert 0 < rate <= 1100, "slowed"
        slowest = 0
        for _i in range(50):  # also while it naps
            t = time.monotonic()
            vm.pause()
            slowest = max(slowest, time.monotonic() - t)
            vm.resume()
        note(f"slowest pause {slowest * 1e3:.1f} ms")
        assert slowest < 1
        end = vm.wait_end(120)
        assert end.why == vmmlib.DEVICE_BROKE and "lanes" in end.text, end


@case("a storm of rings is slowed, then the VM is stopped")
def _():
    storm(b"s", "lane_strays")


@case("a storm of registrations likewise")
def _():
    storm(b"p", "rule_breaks")


@case("2 vCPUs: both ring, at any time, each is told and parked with")
def _():
    n = 2000 if vmmlib.IS_LONG else 200
    opened, answered, told = [0, 0], [0, 0], 0
    deadline = time.monotonic() + 120
    with lane_vm(vcpus=2) as vm:
        # A lane that is told READY may have been resumed by what we said to
        # the other one meanwhile: it is busy then, and rings again.  A host
        # with more to do lets the second processor run seldom: its rings are
        # waited for, not counted after n of the first.
        while answered[0] < n or answered[1] < 5:
            assert time.monotonic() < deadline, (opened, answered, told)
            lane, answer = vm.lane_event()
            if answer is not None:
                assert answer == (b"b", b"")[lane]
                answered[lane] += 1
                assert answered[lane] <= opened[lane]
                vm.resume()
                continue
            told += lane
            if lane and told % 2:
                vm.resume()
                continue
            r = status(vm.lane_run, (b"b", b"x")[lane], lane=lane)
            assert r in (0, EBUSY), r
            opened[lane] += r == 0
        stats = vm.stats()
    note(f"count={answered[0]} the second rang READY {told} times, had "
         f"{opened[1]} requests")
    assert all(o - a in (0, 1) for o, a in zip(opened, answered)), (opened,
                                                                    answered)
    assert stats["rule_breaks"] == stats["lane_strays"] == 0, stats


@case("snapshot of a lane that waits: it waits again, and rings once")
def _():
    folder = os.path.join(WORK, "ready")
    with lane_vm() as vm:
        vm.lane_ready()
        vm.snapshot(folder)
        vm.lane_run(b"e1")
        assert vm.lane_answer() == b"e1"
    for how in ("run", "resume", "again"):
        with restore(folder, uid=54321) as vm:
            vm.wait_started()
            assert vm.n_lanes == 1
            vm.lane_ready()
            assert vm.stats()["exits"] == 0, "it has not run"
            if how == "again":
                vm.pause()
                vm.snapshot(folder + "2")
            if how == "resume":
                vm.resume()
                vm.lane_ready()
                assert vm.log() == b"C"
            vm.lane_run(b"e2")
            assert vm.lane_answer() == b"e2"
            # One ring for its answer; the one that was saved is not repeated.
            rings = vm.stats()["lane_rings"]
            assert rings == (2 if how == "resume" else 1), rings
    with restore(folder + "2") as vm:
        vm.lane_ready()
        vm.lane_run(b"e3")
        assert vm.lane_answer() == b"e3"


@case("snapshot of an open run, and of one that is answered")
def _():
    with lane_vm() as vm:
        vm.lane_ready()
        vm.lane_run(b"l")
        vm.pause()
        vm.snapshot(os.path.join(WORK, "open"))
    with restore(os.path.join(WORK, "open")) as vm:
        vm.wait_started()
        assert vm.lane_adopt() == 0
        vm.lane_ready()
        assert vm.log() == b"A"
        vm.lane_run(b"e")
        assert vm.lane_answer() == b"e"
        vm.snapshot(os.path.join(WORK, "answered"))
    with restore(os.path.join(WORK, "answered")) as vm:
        vm.lane_ready()
        assert vm.stats()["lane_rings"] == 1


@case("a process restored from a file to its first answer")
def _():
    times = []
    for _i in range(20):
        t = time.monotonic()
        with restore(os.path.join(WORK, "ready"), uid=54321) as vm:
            vm.lane_ready()
            vm.lane_run(b"e")
            assert vm.lane_answer() == b"e"
            times.append((time.monotonic() - t) * 1e3)
    note(f"p50 {quantile(times, .5):.2f} ms, least {min(times):.2f}, "
         f"most {max(times):.2f}")


@case("round trips while both processors are busy")
def _():
    busy = [VMM("--kernel", guest("loop")) for _i in range(os.cpu_count())]
    try:
        times = []
        with lane_vm() as vm:
            for _i in range(200):
                vm.lane_ready()
                t = time.monotonic()
                vm.lane_run(b"e")
                assert vm.lane_answer() == b"e"
                times.append((time.monotonic() - t) * 1e6)
                vm.resume()
        note(f"p50 {quantile(times, .5):.0f} us, "
             f"p99 {quantile(times, .99):.0f} us")
    finally:
        for vm in busy:
            vm.quit()
            vm.__exit__()


if __name__ == "__main__":
    os.chdir("/")
    try:
        vmmlib.main()
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
