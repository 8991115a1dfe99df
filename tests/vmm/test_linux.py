#!/usr/bin/env python3
"""Linux in the monitor: clocks, timers and processors over snapshots.

The guest (vmm/x86/guests/clock.c) says the time ten times a second on each
processor.  A boot costs 20 s on soft KVM, so cases share boots.

test: timeout=1200 long-timeout=3600 beside=yes seconds=75
"""
import hashlib
import os
import shutil
import socket
import sys
import tempfile
import time

import vmmlib
from vmmlib import VMM, case, note, own_private_kib, restore, wait_until

sys.path.append(os.path.join(vmmlib.TOP, "tests", "guest"))
import cbor  # noqa: E402

KERNEL = os.path.join(vmmlib.BUILD, "images", "vmlinux")
DISK = os.path.join(vmmlib.BUILD, "guests", "clock.erofs") + ",ro"
WORK = tempfile.mkdtemp(prefix="hutch-linux-")
BOOT_S = 600      # on a machine that is busy with other things
BIG_BOOT_S = 1500 # every page of 8 GiB has its struct page written
SLACK_S = 120     # a line that late is a lost timer
UID = 54321
booted = {}       # vCPUs -> time said last before the snapshot, ns


def path(name):
    return os.path.join(WORK, name)


class Line:
    def __init__(self, text):
        word = text.split()
        self.mono, self.real = int(word[1]), int(word[2])
        self.n, self.cpu = int(word[3]), int(word[4])


def lines(vm):
    """Whole lines of the guest's clock; two processors may mix theirs."""
    out = []
    for text in vm.log().decode("ascii", "replace").split("\n")[:-1]:
        word = text.split()
        if len(word) == 5 and word[0] == "T" and \
                all(w.isdigit() for w in word[1:]):
            out.append(Line(text))
    return out


def check_lines(got):
    by_cpu = {}
    for x in got:
        last = by_cpu.get(x.cpu)
        if last:
            assert x.mono > last.mono and x.real > last.real, "time went back"
        by_cpu[x.cpu] = x
    return by_cpu


def check_memory(vm, mib):
    """What Linux gives out is what the VM has, but for its own tables."""
    said = [x.split() for x in vm.log().split(b"\n") if x.startswith(b"M ")]
    got = int(said[0][1]) / 1024
    note(f"{got:.0f} of {mib} MiB are the guest's")
    assert 0.9 * mib - 16 < got < mib, (got, mib)


def answer_dials(vm):
    """The guest's connections are ours to allow: 7000 yes, 7001 no."""
    wait_until(lambda: vm.stats() and vm.opens, BOOT_S, "the guest dials")
    conn, port = vm.opens.pop(0)
    assert port == 7000, port
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    vm.open_reply(conn, port, theirs)
    mine.settimeout(SLACK_S)
    assert mine.recv(5) == b"hello"
    mine.sendall(b"welcome")
    wait_until(lambda: vm.stats() and vm.opens, SLACK_S, "the second one")
    conn, port = vm.opens.pop(0)
    assert port == 7001, port
    assert mine.recv(5) == b"", "the first one was closed"
    vm.open_reply(conn, port, None)
    wait_until(lambda: vm.log().count(b"\nT "), SLACK_S, "its end")
    said = [x for x in vm.log().split(b"\n") if x.startswith(b"D ")]
    assert said[0] == b"D 7000 0 welcome", said
    assert said[1].split()[2] != b"0", said  # refused


def boot(vcpus):
    """A snapshot of a booted guest, made once."""
    if vcpus in booted:
        return
    t = time.monotonic()
    with VMM("--kernel", KERNEL, "--disk", DISK, "--cmdline", "dial",
             mem=128, vcpus=vcpus, uid=UID) as vm:
        answer_dials(vm)
        wait_until(lambda: len(lines(vm)) >= 5, BOOT_S, "the guest's clock")
        note(f"{vcpus} vCPU: boot {time.monotonic() - t:.1f} s, "
             f"{vm.stats()['insn_emulation']} guest kernel instructions")
        wait_until(lambda: len({x.cpu for x in lines(vm)}) == vcpus, BOOT_S,
                   "every processor")
        vm.pause()
        t = time.monotonic()
        vm.snapshot(path(f"v{vcpus}"))
        note(f"snapshot {time.monotonic() - t:.2f} s, "
             f"{os.stat(path(f'v{vcpus}/mem')).st_blocks // 2048} MiB")
        got = lines(vm)
        assert got[-1].n == vcpus, "processors online"
        check_lines(got)
        check_memory(vm, 128)
        booted[vcpus] = max(x.mono for x in got)
        vm.resume()
        wait_until(lambda: len(lines(vm)) > len(got), SLACK_S, "goes on")


def start(name, vcpus, **kw):
    return restore(path(name), "--disk", DISK, mem=128, vcpus=vcpus, uid=UID,
                   **kw)


def goes_on(vm, vcpus, since):
    """All processors speak, and their time goes on from `since`."""
    t = time.monotonic()
    wait_until(lambda: len({x.cpu for x in lines(vm)}) == vcpus and
               len(lines(vm)) >= 5 * vcpus, SLACK_S, "lines after restore")
    got = lines(vm)
    last = check_lines(got)
    first = min(x.mono for x in got)
    assert since <= first, (since, first)
    # kvm-clock goes on from the snapshot, not from the host's clock
    assert first - since < (time.monotonic() - t + 10) * 1e9, (since, first)
    return max(x.mono for x in last.values())


@case("128 MiB and one vCPU boot; restore: the clock goes on, timers fire")
def _():
    boot(1)
    for _i in range(3):
        with start("v1", 1) as vm:
            goes_on(vm, 1, booted[1])


@case("time in the guest is as fast as outside")
def _():
    with start("v1", 1) as vm:
        wait_until(lambda: len(lines(vm)) >= 3, SLACK_S, "lines")
        a, t = lines(vm)[-1], time.monotonic()
        wait_until(lambda: lines(vm)[-1].mono - a.mono > 5e9, 60, "5 s")
        b, dt = lines(vm)[-1], time.monotonic() - t
        rate = (b.mono - a.mono) / 1e9 / dt
        note(f"{rate:.3f} guest seconds a second")
        assert 0.8 < rate < 1.25, rate


@case("a pause is not a stall; a snapshot of a restored VM")
def _():
    since = booted[1]
    for i in range(3):
        with start("v1" if i == 0 else f"g{i}", 1) as vm:
            goes_on(vm, 1, since)
            vm.pause()
            time.sleep(1)
            vm.resume()
            n = len(lines(vm))
            wait_until(lambda: len(lines(vm)) > n, SLACK_S, "goes on")
            vm.pause()
            vm.snapshot(path(f"g{i + 1}"))
            since = max(x.mono for x in lines(vm))
            check_lines(lines(vm))
    blocks = [os.stat(path(f"{g}/mem")).st_blocks for g in ("v1", "g3")]
    note(f"memory files: {blocks[0] // 2048} MiB, "
         f"third generation {blocks[1] // 2048} MiB")
    assert blocks[1] < 2 * blocks[0]


@case("eight clones of one snapshot at once")
def _():
    vms = [start("v1", 1) for _i in range(8)]
    try:
        for vm in vms:
            goes_on(vm, 1, booted[1])
    finally:
        for vm in vms:
            vm.__exit__()


@case("saved on a host that was up longer: deadlines move, the clock goes on")
def _():
    shutil.copytree(path("v1"), path("up"))
    for shift in (1 << 45, 1 << 60):
        with open(path("v1/state"), "rb") as f:
            file = cbor.decode(f.read())
        body = cbor.decode(file[4])
        for msr in body[14][0][8]:
            if msr[1] in (0x10, 0x6e0) and msr[2]:
                msr[2] += shift
        file[4] = cbor.encode(body)
        file[3] = hashlib.sha256(file[4]).digest()
        with open(path("up/state"), "wb") as f:
            f.write(cbor.encode(file))
        with start("up", 1) as vm:
            if is_soft(vm):
                goes_on(vm, 1, booted[1])
            else:  # the guest's TSC really jumps there: it must keep ticking
                wait_until(lambda: len(lines(vm)) >= 5, SLACK_S, "lines")


def is_soft(vm):
    return vm.wait_started()[1]


@case("the VMM's own private memory, idle after a restore")
def _():
    with start("v1", 1) as vm:
        goes_on(vm, 1, booted[1])
        vm.pause()
        own = own_private_kib(vm.proc.pid)
        note(f"{own} KiB")
        assert own <= 1536, own


@case("the memory file verified; altered: refused")
def _():
    with start("v1", 1, more=",verify") as vm:
        goes_on(vm, 1, booted[1])
    shutil.copytree(path("v1"), path("bad"))
    with open(path("bad/mem"), "r+b") as f:
        f.seek(0x1000000)
        b = f.read(1)[0]
        f.seek(0x1000000)
        f.write(bytes([b ^ 1]))
    with start("bad", 1, more=",verify") as vm:
        assert vm.wait_end().why == vmmlib.SETUP
        assert "altered" in vm.ended.text


@case("128 MiB and two vCPUs: both speak, also after restore")
def _():
    boot(2)
    for _i in range(3):
        with start("v2", 2) as vm:
            goes_on(vm, 2, booted[2])


if vmmlib.IS_LONG:
    @case("four vCPUs likewise")
    def _():
        boot(4)
        for _i in range(3):
            with start("v4", 4) as vm:
                goes_on(vm, 4, booted[4])


def boots(mem, vcpus, limit_s):
    """From power-on to an init on every processor, with all its memory."""
    t = time.monotonic()
    with VMM("--kernel", KERNEL, "--disk", DISK, mem=mem, vcpus=vcpus,
             uid=UID) as vm:
        wait_until(lambda: vm.stats() and lines(vm), limit_s, "init")
        note(f"{mem} MiB, {vcpus} vCPUs: init after "
             f"{time.monotonic() - t:.1f} s, "
             f"{vm.stats()['insn_emulation']} guest kernel instructions")
        wait_until(lambda: len({x.cpu for x in lines(vm)}) == vcpus, BOOT_S,
                   "every processor")
        assert lines(vm)[-1].n == vcpus, "processors online"
        check_lines(lines(vm))
        check_memory(vm, mem)
        assert vm.quit().why == vmmlib.OWNER


@case("512 MiB and four vCPUs boot; all four speak")
def _():
    boots(512, 4, BOOT_S)


if vmmlib.IS_LONG:
    @case("4096 MiB and one vCPU boot")
    def _():
        boots(4096, 1, BIG_BOOT_S)

    @case("8192 MiB and two vCPUs boot; memory above the gap is Linux's")
    def _():
        boots(8192, 2, BIG_BOOT_S)


@case("F3 O1 a panic ends the VM: guest_shutdown, with the kernel's words")
def _():
    with VMM("--kernel", KERNEL, "--disk", DISK, "--cmdline",
             "init=/none", mem=128, uid=UID) as vm:
        end = vm.wait_end(BOOT_S)
        assert end.why == vmmlib.SHUTDOWN, end
        note(end.text)
        assert "panic" in end.text.lower() or "init" in end.text, end


if __name__ == "__main__":
    if not os.path.exists(KERNEL):
        print("1..0 # SKIP no kernel image (make images)")
        raise SystemExit(77)
    os.chdir("/")
    try:
        vmmlib.main()
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
