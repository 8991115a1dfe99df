#!/usr/bin/env python3
"""The monitor with guests that have no operating system.

test: timeout=300 long-timeout=1800
"""
import os
import subprocess
import tempfile
import time

import vmmlib
from vmmlib import VMM, case, guest, note, wait_until


@case("a guest powers off: status 0; first instruction after the start")
def _():
    times = []
    for _i in range(20):
        with VMM("--kernel", guest("tiny"), uid=54321) as vm:
            version, is_soft, ns = vm.wait_started()
            times.append(ns / 1e6)
            assert vm.wait_end().why == vmmlib.POWEROFF
            assert version == 4 and is_soft in (0, 1)
    times.sort()
    note(f"start to first KVM_RUN: p50 {times[10]:.2f} ms, "
         f"least {times[0]:.2f}, most {times[-1]:.2f}")


@case("F3 a triple fault ends the VM within a second: guest_shutdown")
def _():
    with VMM("--kernel", guest("triple")) as vm:
        vm.wait_started()
        t = time.monotonic()
        end = vm.wait_end()
        assert end.why == vmmlib.SHUTDOWN and "triple fault" in end.text, end
        assert time.monotonic() - t < 1


@case("F1 F2 accesses that nobody answers; code outside of memory ends it")
def _():
    with VMM("--kernel", guest("badinsn")) as vm:
        end = vm.wait_end()
        assert end.why in (vmmlib.SHUTDOWN, vmmlib.KVM), end


@case("F6 a guest that spins is stopped: by QUIT, by the owner's death")
def _():
    for vcpus in (1, 2):
        with VMM("--kernel", guest("loop"), vcpus=vcpus) as vm:
            vm.wait_started()
            time.sleep(0.1)
            t = time.monotonic()
            assert vm.quit().why == vmmlib.OWNER
            assert time.monotonic() - t < 2
        with VMM("--kernel", guest("loop"), vcpus=vcpus) as vm:
            vm.wait_started()  # __exit__ closes and waits


@case("F6 pause and resume of a spinning guest: no wake-up is lost")
def _():
    n = 10000 if vmmlib.IS_LONG else 500
    with VMM("--kernel", guest("count"), vcpus=2) as vm:
        vm.wait_started()
        worst = 0
        for _i in range(n):
            t = time.monotonic()
            vm.pause()
            worst = max(worst, time.monotonic() - t)
            vm.resume()
        note(f"{n} times, slowest pause {worst * 1e3:.1f} ms")
        note(f"count={n}")
        before = vm.log()
        wait_until(lambda: vm.log() != before, 10, "the guest goes on")


@case("a paused VM does not run; counters and log answer")
def _():
    with VMM("--kernel", guest("count")) as vm:
        vm.wait_started()
        wait_until(lambda: len(vm.log()) > 3, 10, "first letters")
        vm.pause()
        one, stats = vm.log(), vm.stats()
        time.sleep(0.2)
        assert vm.log() == one and vm.stats() == stats
        assert stats["exits"] >= len(one) and stats["exits_io"] >= len(one)
        text = one.decode()
        letters = "abcdefghijklmnopqrstuvwxyz"
        assert all(c == letters[i % 26] for i, c in enumerate(text)), text


@case("the TSC deadline timer ticks")
def _():
    with VMM("--kernel", guest("timer")) as vm:
        vm.wait_started()
        wait_until(lambda: vm.log().startswith(b"abcdefgh"), 10, "8 ticks")
        for _i in range(20):  # also while the guest sleeps in KVM_RUN
            assert vm.stats()["exits"] >= 8


@case("zeroed pages: what was asked for and no byte more; soft only")
def _():
    with VMM("--kernel", guest("clear")) as vm:
        is_soft = vm.wait_started()[1]
        wait_until(lambda: vm.log().count(b"\n") == 8, 20, "8 answers")
        lines = vm.log().decode().split()
        done = ["zkkk", "zzzk"] if is_soft else ["kkkk"] * 2
        assert lines == done + ["kkkk"] * 6, lines


@case("wrong requests are refused, the VM goes on")
def _():
    with VMM("--kernel", guest("count")) as vm:
        vm.wait_started()
        for kind, errno in ((99, 95), (vmmlib.SNAPSHOT, 22)):
            try:
                vm.request(kind)
                raise AssertionError("accepted")
            except vmmlib.Refused as e:
                assert e.status == -errno, e
        with tempfile.TemporaryFile() as a, tempfile.TemporaryFile() as b:
            try:
                vm.request(vmmlib.SNAPSHOT, fds=[a.fileno(), b.fileno()])
                raise AssertionError("snapshot of a running VM")
            except vmmlib.Refused as e:
                assert e.status == -16 and "not paused" in e.text, e
        vm.control.send(b"short")
        kind, _, status, _ = vm._recv(10)
        assert kind == 0x100 and status == -71
        wait_until(vm.log, 20, "it runs")


def refused(*argv, mem=64, vcpus=1, says=""):
    p = subprocess.run(
        [vmmlib.PROGRAM, "--mem", str(mem), "--vcpus", str(vcpus), *argv],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    text = p.stderr.decode()
    assert p.returncode == vmmlib.SETUP, (argv, p.returncode, text)
    assert says in text, (says, text)


@case("bad command lines: each names the option and the limit")
def _():
    k = ("--kernel", guest("tiny"))
    refused(says="one of --kernel and --restore")
    refused(*k, mem=15, says="16 to 8192")
    refused(*k, mem=8193, says="16 to 8192")
    refused(*k, vcpus=0, says="1 to 4")
    refused(*k, vcpus=5, says="1 to 4")
    refused(*k, "--disk", "/none", says="No such file")
    refused(*k, "--disk", "/dev/null", says="neither a file nor a block")
    refused(*k, "--disk", f"{guest('tiny')},rw", says="unknown option 'rw'")
    refused(*k, "--control", "fd:99", says="fd:99")
    refused(*k, "--control", "fd:0", says="fd:0")
    refused(*k, "--uid", "5", says="go together")
    refused(*k, "--soft", "maybe", says="auto, on or off")
    refused(*k, "--cmdline", "x" * 2048, says="the limit is 2047")
    refused(*k, "--cmdline", "a\nb", says="control byte 0x0a")
    refused("--kernel", "/none", says="/none")
    with open("/dev/null") as f:
        p = subprocess.run([vmmlib.PROGRAM, *k, "--mem", "64", "--vcpus", "1",
                            "--disk", f"fd:{f.fileno()}"],
                           pass_fds=[f.fileno()], capture_output=True)
        assert p.returncode == 1 and b"descriptor is not" in p.stderr


@case("C15 one writable image, two VMs: the second is refused")
def _():
    with tempfile.NamedTemporaryFile() as f:
        f.truncate(1 << 20)
        with VMM("--kernel", guest("count"), "--disk", f.name) as vm:
            vm.wait_started()
            for opt in ("", ",ro"):
                refused("--kernel", guest("tiny"), "--disk", f.name + opt,
                        says="by another VM")
        with VMM("--kernel", guest("count"), "--disk", f.name + ",ro") as vm:
            vm.wait_started()
            with VMM("--kernel", guest("tiny"), "--disk",
                     f.name + ",ro") as two:
                assert two.wait_end().why == vmmlib.POWEROFF
            refused("--kernel", guest("tiny"), "--disk", f.name,
                    says="by another VM")


@case("--trace: every line is JSON, the mark is in it")
def _():
    import json
    with tempfile.NamedTemporaryFile() as f:
        with VMM("--kernel", guest("tiny"), "--trace", f.name) as vm:
            vm.wait_end()
        lines = [json.loads(s) for s in open(f.name)]
        marks = [x for x in lines if x["ev"] == "mark"]
        assert [m["value"] for m in marks] == [1], lines
        assert any(x["ev"] == "io" and x["port"] == 0x500 for x in lines)


@case("--probe: code that ran agrees with CPUID")
def _():
    p = subprocess.run([vmmlib.PROGRAM, "--probe"], capture_output=True)
    assert p.returncode == 0, p
    note(p.stdout.decode().strip())


@case("8 GiB and 4 vCPUs start; memory above the gap is there")
def _():
    with VMM("--kernel", guest("tiny"), mem=8192, vcpus=4) as vm:
        assert vm.wait_end().why == vmmlib.POWEROFF


if __name__ == "__main__":
    os.chdir("/")
    vmmlib.main()
