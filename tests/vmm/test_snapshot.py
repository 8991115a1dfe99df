#!/usr/bin/env python3
"""Snapshot and restore with guests that have no operating system.

test: timeout=300 long-timeout=1800
"""
import errno
import hashlib
import os
import random
import shutil
import sys
import tempfile
import time

import vmmlib
from vmmlib import (VMM, case, guest, note, own_private_kib, restore,
                    wait_until)

sys.path.append(os.path.join(vmmlib.TOP, "tests", "guest"))
import cbor  # noqa: E402

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORK = tempfile.mkdtemp(prefix="hutch-snapshot-")


def path(name):
    return os.path.join(WORK, name)


def make(name, g, vcpus=1, mem=64, letters=5, **kw):
    """A snapshot of guest `g`; returns the next letter it will say."""
    with VMM("--kernel", guest(g), vcpus=vcpus, mem=mem, **kw) as vm:
        wait_until(lambda: len(vm.log()) >= letters, 20, "letters")
        vm.pause()
        vm.snapshot(path(name))
        said = len(vm.log())
        # The one that was copied goes on as if nothing had been.
        vm.resume()
        wait_until(lambda: len(vm.log()) >= said + 3, 20, "goes on")
        text = vm.log().decode()
        assert text == "".join(LETTERS[i % 26] for i in range(len(text)))
    return said % 26


def guest_private_kib(pid):
    """What lies over the memory file and is this VM's own."""
    total, inside = 0, False
    with open(f"/proc/{pid}/smaps") as f:
        for line in f:
            word = line.split()
            if not word[0].endswith(":"):
                inside = len(word) > 5 and word[5].endswith("/mem")
            elif inside and word[0] == "Private_Dirty:":
                total += int(word[1])
    return total


def check_goes_on(vm, first, n=5):
    wait_until(lambda: len(vm.log()) >= n, 20, "letters after restore")
    text = vm.log().decode()
    want = "".join(LETTERS[(first + i) % 26] for i in range(len(text)))
    assert text == want, (text, want)


@case("a counting guest goes on in a fresh process, many from one snapshot")
def _():
    first = make("count", "count")
    for i in range(5):
        with restore(path("count"), uid=54321 + i) as vm:
            check_goes_on(vm, first)


@case("stopped anywhere, copied, restored: register and memory agree")
def _():
    n = 200 if vmmlib.IS_LONG else 15
    first = make("gen", "count")
    for i in range(n):
        with restore(path("gen")) as vm:
            vm.wait_started()
            time.sleep(random.random() * 0.02)
            vm.pause()
            vm.snapshot(path("next"))
            said = len(vm.log())
            if said:
                check_goes_on(vm, first, said)
            vm.resume()
        first = (first + said) % 26
        shutil.rmtree(path("gen"))
        os.rename(path("next"), path("gen"))
    with restore(path("gen")) as vm:
        check_goes_on(vm, first)
    note(f"count={n}")


@case("a pending TSC deadline fires after restore")
def _():
    first = make("timer", "timer")
    for _i in range(3):
        with restore(path("timer")) as vm:
            check_goes_on(vm, first)


@case("a saved TSC of another boot: the deadline moves with it")
def _():
    first = make("shift", "timer")
    data = open(path("shift/state"), "rb").read()
    for shift in (-(1 << 40), 1 << 50, (1 << 62)):
        file = cbor.decode(data)
        body = cbor.decode(file[4])
        msrs = body[14][0][8]
        moved = [m for m in msrs if m[1] in (0x10, 0x6e0) and m[2]]
        assert len(moved) == 2, "a deadline was pending"
        shift = max(shift, 1 - min(m[2] for m in moved))
        for m in moved:  # as if that host had been up longer, or less long
            m[2] += shift
        file[4] = cbor.encode(body)
        file[3] = hashlib.sha256(file[4]).digest()
        with open(path("shift/state"), "wb") as f:
            f.write(cbor.encode(file))
        with restore(path("shift")) as vm:
            check_goes_on(vm, first)


@case("4 vCPUs, memory above the gap")
def _():
    first = make("big", "count", vcpus=4, mem=4096)
    with restore(path("big"), vcpus=4, mem=4096) as vm:
        check_goes_on(vm, first)
    st = os.stat(path("big/mem"))
    assert st.st_size == 4096 << 20 and st.st_blocks * 512 < 1 << 20, st
    note(f"memory file allocates {st.st_blocks * 512} bytes of 4 GiB")


def refused(says, name="count", more="", **kw):
    with restore(path(name), more=more, **kw) as vm:
        try:
            end = vm.wait_end()
        except EOFError as e:
            raise AssertionError(f"crashed: {e}") from None
        assert end.why == vmmlib.SETUP, end
        assert says in end.text, (says, end.text)


def damaged(edit, which="state"):
    shutil.rmtree(path("bad"), ignore_errors=True)
    shutil.copytree(path("count"), path("bad"))
    with open(path(f"bad/{which}"), "r+b") as f:
        edit(f)


@case("pages that the last one touched are there before the first instruction")
def _():
    with VMM("--kernel", guest("lane")) as vm:
        vm.lane_ready()
        vm.snapshot(path("lane"))
    own = []
    for more in ("", ",touched=" + path("touched")):
        with restore(path("lane"), more=more, uid=54321) as vm:
            vm.lane_ready()  # parked, and nothing ran
            own.append(guest_private_kib(vm.proc.pid))
            vm.lane_run(b"echo")
            assert vm.lane_answer() == b"echo"
            vm.touched(path("touched"))
            own.append(guest_private_kib(vm.proc.pid))
            assert not vm.errors(), vm.errors()
    note(f"the guest's own pages, before and after a run, without and with: "
         f"{own} KiB")
    assert own[0] == 0 < own[1] and own[1:] == own[1:2] * 3, own
    # A VM that was started cold has no file below its memory.
    with VMM("--kernel", guest("count")) as vm:
        try:
            vm.touched(path("nothing"))
        except vmmlib.Refused as e:
            assert e.status == -errno.EINVAL, e
        else:
            raise AssertionError("recorded without a restore")


@case("N4 a bad file of touched pages is said, and costs nothing else")
def _():
    good = open(path("touched"), "rb").read()
    first = make("other", "count", mem=128)
    bad = [(good[:-1], "torn"), (b"", "0 bytes"), (b"x" * 100, "not a snap")]
    flipped = bytearray(good)
    flipped[-1] ^= 1
    bad.append((bytes(flipped), "altered"))
    bad.append((good, "another memory file"))
    for data, says in bad:
        with open(path("bad-touched"), "wb") as f:
            f.write(data)
        with restore(path("other"), mem=128, uid=54321,
                     more=",touched=" + path("bad-touched")) as vm:
            check_goes_on(vm, first)
            text = vm.errors()
            assert says in text and text.count("\n") == 1, (says, text)


@case("N4 another shape is refused by name")
def _():
    refused("memory size", mem=128)
    refused("number of vCPUs", vcpus=2)
    with tempfile.NamedTemporaryFile() as disk:
        disk.truncate(1 << 20)
        with restore(path("count"), "--disk", disk.name) as vm:
            end = vm.wait_end()
            assert end.why == vmmlib.SETUP
            assert "number of disks" in end.text, end
    with restore(path("count"), "--soft",
                 "off" if is_soft() else "on") as vm:
        end = vm.wait_end()
        assert end.why == vmmlib.SETUP and "kind of KVM" in end.text, end


def is_soft():
    with VMM("--kernel", guest("tiny")) as vm:
        return vm.wait_started()[1]


@case("N4 torn, altered, of another version: refused by name")
def _():
    size = os.path.getsize(path("count/state"))
    damaged(lambda f: f.truncate(size - 1))
    refused("torn", "bad")
    damaged(lambda f: f.truncate(size // 2))
    refused("torn", "bad")
    damaged(lambda f: f.truncate(0))
    refused("0 bytes", "bad")
    damaged(lambda f: (f.seek(0, 2), f.write(b"x")))
    refused("torn", "bad")
    damaged(lambda f: (f.seek(size - 100), f.write(b"\0\1\2\3")))
    refused("altered", "bad")
    data = open(path("count/state"), "rb").read()
    at = data.index(b"hutch-vm") + 8
    assert data[at:at + 2] == b"\x02\x03", data[:40]
    damaged(lambda f: (f.seek(at + 1), f.write(b"\x07")))
    refused("version 7", "bad")
    damaged(lambda f: f.truncate(64 << 19), "mem")
    refused("torn", "bad")
    damaged(lambda f: f.truncate((64 << 20) + 1), "mem")
    refused("torn", "bad")
    damaged(lambda f: (f.seek(0x101000), f.write(b"\xf4" * 64)), "mem")
    refused("altered", "bad", more=",verify")
    with restore(path("count"), more=",verify") as vm:
        vm.wait_started()


@case("N4 the state file flipped at many points: never accepted, never a crash")
def _():
    size = os.path.getsize(path("count/state"))
    rng = random.Random(3)
    n = 1000 if vmmlib.IS_LONG else 60
    for i in range(n):
        at = i if i < 60 else rng.randrange(size)
        bit = 1 << rng.randrange(8)

        def flip(f, at=at, bit=bit):
            f.seek(at)
            b = f.read(1)[0]
            f.seek(at)
            f.write(bytes([b ^ bit]))
        damaged(flip)
        refused("", "bad")
    note(f"count={n}")


@case("the VMM's own private memory after a restore")
def _():
    with restore(path("count"), uid=54321) as vm:
        vm.wait_started()
        vm.pause()
        own = own_private_kib(vm.proc.pid)
        note(f"{own} KiB")
        # (a sanitizer's own memory is not ours)
        assert own <= 1536 or os.environ.get("HUTCH_NO_CONFINE"), own


if __name__ == "__main__":
    os.chdir("/")
    try:
        vmmlib.main()
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
