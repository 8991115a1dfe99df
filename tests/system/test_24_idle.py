#!/usr/bin/env python3
"""What a VM that waits costs the host: memory that is its own.

A clone shares all that it has not written with the snapshot's file, so an idle
one of 1,024 MiB may cost a few MiB.  Private_Dirty of the VMM process, after
the VM was bound, has made its dry run and was parked, is what it costs for
sure: guest pages that it wrote, and the monitor's own.  The host's kernel needs
some more (page tables, KVM): that is in the fall of MemAvailable, which is
noted, because others move it, too.

`make check-long` holds a hundred at once, by two daemons.

test: timeout=900 long-timeout=3600 lane=only
"""
import os

from hutchlib import (Daemon, IS_LONG, STATE, case, equal, filled, main, median,
                      note, pool, vmms)

DAEMONS = 2 if IS_LONG else 1
EACH = 50 if IS_LONG else 12
DIRTY_KIB_MAX = 15 << 10
FILL_S = 10         # for one VM, on a busy host
MEM_MIB = 1024

daemons = [Daemon(f"{STATE}-{i}", pool_python=f"1x{MEM_MIB}x256:{EACH}",
                  pool_max=EACH, ram_budget_mib=EACH * MEM_MIB,
                  uid_base=64000 + 1000 * i) for i in range(DAEMONS)]


def available_kib():
    with open("/proc/meminfo") as f:
        for line in f:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1])
    raise AssertionError("no MemAvailable in /proc/meminfo")


def areas(pid):
    """Mappings as [start, end, {name: KiB}], of those that touch one."""
    found = []
    with open(f"/proc/{pid}/smaps") as f:
        for line in f:
            word = line.split()
            if not word[0].endswith(":"):
                start, end = (int(x, 16) for x in word[0].split("-"))
                if found and found[-1][1] == start:
                    found[-1][1] = end
                else:
                    found.append([start, end, {}])
            elif word[-1] == "kB":
                kib = found[-1][2]
                kib[word[0]] = kib.get(word[0], 0) + int(word[1])
    return found


def dirty_kib(pid):
    """Private_Dirty of (guest memory, all else); huge pages of both.  Guest
    memory is the one area as large as that: laid piece by piece over one
    mapping."""
    guest, own, huge = [], 0, 0
    for start, end, kib in areas(pid):
        huge += kib["AnonHugePages:"]
        if end - start >= MEM_MIB << 20:
            guest.append(kib["Private_Dirty:"])
        else:
            own += kib["Private_Dirty:"]
    equal(len(guest), 1, f"areas of {MEM_MIB} MiB in {pid}")
    return guest[0], own, huge


def spread(values):
    """of KiB, in MiB"""
    v = sorted(values)
    return (f"{v[0] / 1024:.1f} least, {median(v) / 1024:.1f} median, "
            f"{v[-1] / 1024:.1f} most")


@case(f"{DAEMONS * EACH} idle clones: each has written less than "
      f"{DIRTY_KIB_MAX >> 10} MiB")
def idle():
    before = available_kib()
    for d in daemons:
        d.start()
    for d in daemons:
        p = filled(d, EACH, FILL_S * EACH)
        equal((p["lanes"], p["failures"]), (EACH, 0), "after the dry run")
    fell = before - available_kib()
    pids = [pid for d in daemons for pid in vmms(d.pid)]
    equal(len(pids), DAEMONS * EACH)
    found = [dirty_kib(pid) for pid in pids]
    total = [ram + own for ram, own, _ in found]
    note(f"Private_Dirty, MiB: {spread(total)}")
    note(f"of that guest memory: {spread(x[0] for x in found)}")
    note(f"of that the monitor's own: {spread(x[1] for x in found)}")
    note(f"in huge pages: {spread(x[2] for x in found)}")
    note(f"MemAvailable fell by {fell / 1024 / len(pids):.1f} MiB for each")
    assert min(total) > 1 << 10, "a VM that ran has written more than that"
    assert max(total) < DIRTY_KIB_MAX, spread(total)


@case("and all still wait; they end with their daemons")
def ends():
    for d in daemons:
        equal(pool(d)["ready"], EACH)
        children = vmms(d.pid)
        equal(d.stop(), 0)
        equal([p for p in children if os.path.exists(f"/proc/{p}")], [])


main()
