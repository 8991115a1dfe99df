#!/usr/bin/env python3
"""Boot one guest by hand and look at it: phases, costs, cases.

  drive.py [--template shell] [--mem 512] [--vcpus 1] [--preload]
           [--runner KIND] [--verbose] [--costs] [CASE...]

Cases are substrings of names in scenario.py; none given = all. --costs
prints time, exits and guest kernel instructions of each phase.
"""

import argparse
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import scenario
import vm


def costs(guest):
    """on(what): prints what it took since the last call."""
    last = {"t": time.monotonic(), "insn": 0, "exits": 0}

    def on(what):
        s, now = guest.stats(), time.monotonic()
        print(f"# {what:36} {now - last['t']:8.2f} s "
              f"{(s['insn_emulation'] - last['insn']) / 1e6:9.2f} M insn "
              f"{s['exits'] - last['exits']:7} exits", flush=True)
        last.update(t=now, insn=s["insn_emulation"], exits=s["exits"])
    return on


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--template", default="shell")
    p.add_argument("--mem", type=int, default=512)
    p.add_argument("--limit", type=int, default=192)
    p.add_argument("--vcpus", type=int, default=1)
    p.add_argument("--runner")
    p.add_argument("--preload", action="store_true")
    p.add_argument("--verbose", action="store_true")
    p.add_argument("--costs", action="store_true")
    p.add_argument("--no-disk", action="store_true")
    p.add_argument("--pong-limit", type=float, default=2.0)
    p.add_argument("--flood-mib", type=int, default=100)
    p.add_argument("--vmm", nargs="*", default=[])
    p.add_argument("cases", nargs="*")
    a = p.parse_args()
    guest = vm.VM(a.template, mem=a.mem, vcpus=a.vcpus, verbose=a.verbose,
                  disk=not a.no_disk, extra=["--" + x for x in a.vmm])
    with guest:
        on = costs(guest) if a.costs else lambda what: None
        guest.on_progress = on
        print(f"# boot to HELLO {guest.boot(900):.2f} s", flush=True)
        on("boot")
        t = guest.prepare(a.runner or a.template, a.preload, not a.no_disk,
                          timeout=7200)
        print(f"# prepare {t:.2f} s: {guest.progress[-1][1]}", flush=True)
        on("ready")
        guest.flood_bytes = a.flood_mib << 20
        guest.pong_limit = a.pong_limit
        guest.has_preload = a.preload
        print(f"# bind {guest.bind(300, mem=a.limit << 20) * 1000:.1f} ms",
              flush=True)
        on("bind")
        print(f"# ping {guest.ping() * 1000:.1f} ms", flush=True)
        on("ping")
        _, failed = scenario.run_all(
            guest, a.runner or a.template, a.cases,
            say=lambda text: (print(text, flush=True),
                              text.startswith("ok") and on("")))
        print(f"# power off: status {guest.poweroff(120)}", flush=True)
    return bool(failed)


sys.exit(main())
