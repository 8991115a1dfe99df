#!/usr/bin/env python3
"""Where the file system can share blocks, a snapshot's disk and the disks of
sandboxes that begin from it do: a state folder on btrfs, looked at by FIEMAP.

Of memory nothing can be shared: it is written by the VMM.

test: timeout=300 beside=yes
"""
import contextlib
import fcntl
import os
import struct
import time

from held import destroyed
from hutchlib import Daemon, case, equal, main, note
from snaps import (MIB, begin, disk_of_its_own, hold, remove, sh, taken)

FS_IOC_FIEMAP = 0xC020660B
FIEMAP_FLAG_SYNC = 1
FIEMAP_EXTENT_SHARED = 0x2000
EXTENTS_MAX = 4096
HEAD = struct.Struct("=QQIIII")         # struct fiemap
EXTENT = struct.Struct("=QQQQQIIII")    # struct fiemap_extent
DATA_MIB = 6     # a soft host writes a megabyte a second


def extents(path):
    """(bytes, bytes that are shared) of a file, as the file system tells."""
    buf = bytearray(HEAD.size + EXTENTS_MAX * EXTENT.size)
    HEAD.pack_into(buf, 0, 0, 1 << 62, FIEMAP_FLAG_SYNC, 0, EXTENTS_MAX, 0)
    with open(path, "rb") as f:
        fcntl.ioctl(f, FS_IOC_FIEMAP, buf)
    n = HEAD.unpack_from(buf)[3]
    assert n < EXTENTS_MAX, n
    total = shared = 0
    for i in range(n):
        e = EXTENT.unpack_from(buf, HEAD.size + i * EXTENT.size)
        total += e[2]
        shared += e[2] if e[5] & FIEMAP_EXTENT_SHARED else 0
    return total, shared


def disks(daemon):
    """Of its VMs: files without a name, which it holds open."""
    found = []
    folder = f"/proc/{daemon.pid}/fd"
    for fd in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            at = os.readlink(f"{folder}/{fd}")
            if at.startswith(daemon.state + "/#") and "(deleted)" in at:
                found.append(f"{folder}/{fd}")
    return found


def used(folder):
    os.sync()
    v = os.statvfs(folder)
    return (v.f_blocks - v.f_bfree) * v.f_frsize


@case("snapshots and what begins from them share the blocks of the disk; what "
      "one writes is its own")
def shared():
    with disk_of_its_own(4096, "btrfs") as folder:
        d = Daemon(f"{folder}/state", pool_max=0, disk_reserve_mib=16)
        try:
            d.start()
            shares(d, folder)
        finally:
            d.stop()


def shares(d, folder):
    c = d.client()
    box = hold(c)
    sh(c, box, f"for i in {{1..{DATA_MIB}}}; do printf '%0{MIB}d' $i; done > "
       "big; sync", timeout_ms=120000)
    was = used(folder)
    s = taken(c, box)
    paused_ms = d.metric("hutch_snapshots_paused_seconds_total") * 1000
    grown = used(folder) - was
    total, same = extents(f"{d.state}/snapshots/{s['id']}/disk")
    note(f"disk {total / MIB:.1f} MiB, {same / MIB:.1f} shared; the file system"
         f" grew by {grown / MIB:.1f} MiB, memory is "
         f"{s['memory_bytes'] / MIB:.1f}; it stood still for {paused_ms:.0f} ms")
    assert total > DATA_MIB * MIB, total
    assert same > total - MIB, (same, total)
    assert grown < s["memory_bytes"] + DATA_MIB * MIB / 2, (grown, s)
    # Memory is nobody else's.
    equal(extents(f"{d.state}/snapshots/{s['id']}/mem")[1], 0)

    was = used(folder)
    began = time.monotonic()
    kids = [begin(c, s["id"]) for _ in range(3)]
    note(f"three began in {time.monotonic() - began:.2f} s, "
         f"{(used(folder) - was) / MIB:.1f} MiB")
    assert used(folder) - was < 3 * DATA_MIB * MIB / 2, used(folder) - was
    own = disks(d)
    equal(len(own), 4, own)
    for path in own:
        total, same = extents(path)
        assert same > (DATA_MIB - 1) * MIB, (path, total, same)
    # The shell alone: programs take a second each on a soft host.
    look = "read -N 8 x < big; echo $x"
    equal(sh(c, kids[0], f"exec 4<> big; printf mine >&4; {look}; sync"),
          "mine0000\n")
    for x in (kids[1], box):
        equal(sh(c, x, look), "00000000\n")
    for x in (box, *kids):
        destroyed(c, x)
    # Nor is it in the snapshot.
    kid = begin(c, s["id"])
    equal(sh(c, kid, look), "00000000\n")
    destroyed(c, kid)
    equal(remove(c, s["id"]).status, 200)


main()
