#!/usr/bin/env python3
"""The agent's connection over a snapshot: init in the guest does not notice.

test: timeout=900 long-timeout=1800 beside=yes seconds=16
"""
import os
import shutil
import socket
import struct
import sys
import tempfile
import time

import vmmlib
from vmmlib import VMM, case, note, restore

sys.path.append(os.path.join(vmmlib.TOP, "tests", "guest"))
import cbor  # noqa: E402

KERNEL = os.path.join(vmmlib.BUILD, "images", "vmlinux")
INIT = os.path.join(vmmlib.BUILD, "guest", "init.erofs")
WORK = tempfile.mkdtemp(prefix="hutch-agent-")
HEAD = struct.Struct("<IHHQ")
HELLO, PONG, WELCOME, PING = 1, 7, 65, 72
BOOT_S, REPLY_S = 600, 120
UID = 54321


class Channel:
    """Our end of the channel, and the frames on it."""

    def __init__(self):
        self.sock, self.theirs = socket.socketpair(socket.AF_UNIX,
                                                   socket.SOCK_STREAM)
        self.buf = b""

    def send(self, kind, payload=None):
        body = cbor.encode(payload or {})
        self.sock.sendall(HEAD.pack(len(body), kind, 0, 0) + body)

    def frame(self, timeout):
        """Type of the next frame."""
        self.sock.settimeout(timeout)
        while True:
            if len(self.buf) >= HEAD.size:
                n, kind, zero, _ = HEAD.unpack_from(self.buf)
                assert zero == 0 and n < 1 << 20, "framing is kept"
                if len(self.buf) >= HEAD.size + n:
                    self.buf = self.buf[HEAD.size + n:]
                    return kind
            data = self.sock.recv(65536)
            assert data, "the channel was closed"
            self.buf += data

    def close(self):
        self.sock.close()
        self.theirs.close()


def ping(c):
    t = time.monotonic()
    c.send(PING)
    assert c.frame(REPLY_S) == PONG
    return time.monotonic() - t


@case("boot to HELLO; snapshots with nothing, and with a frame, on the way")
def _():
    c = Channel()
    t = time.monotonic()
    with VMM("--kernel", KERNEL, "--disk", INIT + ",ro", mem=256, uid=UID,
             channel=c.theirs) as vm:
        assert c.frame(BOOT_S) == HELLO
        note(f"HELLO after {time.monotonic() - t:.1f} s, "
             f"{vm.stats()['insn_emulation']} guest kernel instructions")
        c.send(WELCOME, {1: 1})
        note(f"ping {ping(c) * 1e3:.0f} ms")
        vm.pause()
        vm.snapshot(os.path.join(WORK, "quiet"))
        c.send(PING)  # while paused: it waits in the socket
        vm.snapshot(os.path.join(WORK, "asked"))
        vm.resume()
        assert c.frame(REPLY_S) == PONG, "the copied VM lost nothing"
        note(f"ping {ping(c) * 1e3:.0f} ms")
    c.close()


@case("restore: the connection goes on over a new channel")
def _():
    times = []
    for _i in range(5):
        c = Channel()
        t = time.monotonic()
        with restore(os.path.join(WORK, "quiet"), "--disk", INIT + ",ro",
                     mem=256, uid=UID, channel=c.theirs) as vm:
            ping(c)
            times.append(time.monotonic() - t)
            before = vm.stats()
            ping(c)
            after = vm.stats()
        c.close()
    note(f"start of the process to first reply: "
         f"p50 {sorted(times)[2] * 1e3:.0f} ms, least {min(times) * 1e3:.0f}")
    note(f"a ping: {after['insn_emulation'] - before['insn_emulation']} guest "
         f"kernel instructions, {after['exits'] - before['exits']} exits")


@case("a frame that was on its way is answered after restore, once")
def _():
    for _i in range(2):
        c = Channel()
        with restore(os.path.join(WORK, "asked"), "--disk", INIT + ",ro",
                     mem=256, uid=UID, channel=c.theirs):
            assert c.frame(REPLY_S) == PONG
            ping(c)
            c.sock.settimeout(0.5)
            try:
                raise AssertionError(c.sock.recv(100))
            except TimeoutError:
                pass  # no second answer
        c.close()


@case("restored without a channel: the guest lives, its connection waits")
def _():
    with restore(os.path.join(WORK, "quiet"), "--disk", INIT + ",ro",
                 mem=256, uid=UID) as vm:
        vm.wait_started()
        time.sleep(1)
        assert vm.stats()["rule_breaks"] == 0
        assert not vm.opens


if __name__ == "__main__":
    for need in (KERNEL, INIT):
        if not os.path.exists(need):
            print(f"1..0 # SKIP {need} is not built")
            raise SystemExit(77)
    os.chdir("/")
    try:
        vmmlib.main()
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
