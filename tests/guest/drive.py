#!/usr/bin/env python3
"""Boot one guest by hand and look at it: phases, costs, cases.

  drive.py [--template shell] [--mem 512] [--vcpus 1] [--preload]
           [--restore FOLDER] [--save FOLDER] [--kernel FILE]
           [--runner KIND] [--verbose] [--costs] [--first-run] [--lane]
           [CASE...]

--save leaves a snapshot at READY, --restore starts from one (hutchd's are in
its cache: with the same hutch-vmm, init image and template).  --lane arms the
runner and gives it one run by the express lane.

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


FIRST = {
    "python": "def run(input, config):\n    return sum(input)",
    "node": "const run = (input) => input.length",
    "shell": 'jq -c length > "$RUN_RESULT"',
}


def first_run(guest, runner, limit):
    """BIND and RUN in one write, as after a restore; when each came back."""
    before, t0, at = guest.stats(), time.monotonic(), {}
    take = guest.on_frame

    def on_frame(kind, cmd, body):
        at[vm.UP[kind]] = (time.monotonic() - t0) * 1000
        take(kind, cmd, body)
    guest.on_frame = on_frame
    guest.channel.setblocking(True)
    data = []
    real, guest.send = guest.send, lambda kind, payload=None, cmd=0: (
        data.append(vm.frame(kind, payload, cmd)))
    guest.bound = None
    guest.send(vm.BIND, guest.bind_payload(mem=limit))
    n = guest.start_run(FIRST[runner], "[1,2,3]")
    guest.send = real
    guest.channel.sendall(b"".join(data))
    guest.channel.setblocking(False)
    c = guest.finish(n, 900)
    s = guest.stats()
    print("# first run: " + ", ".join(
        f"{k} {v:.1f} ms" for k, v in at.items()) +
        f"; {(s['insn_emulation'] - before['insn_emulation']) / 1e3:.0f} k "
        f"insn, {s['exits'] - before['exits']} exits; {c.end}", flush=True)
    guest.on_frame = take


def lane_run(guest, runner):
    """ARM, then one run by the lane; from the request to the answer."""
    armed = guest.arm(900)
    before, t = guest.stats(), time.monotonic()
    c = guest.lane_run(FIRST[runner], "[1,2,3]")
    ms, s = (time.monotonic() - t) * 1000, guest.stats()
    print(f"# armed in {armed * 1000:.0f} ms; run by lane {ms:.1f} ms, "
          f"{s['insn_emulation'] - before['insn_emulation']} insn, "
          f"{s['exits'] - before['exits']} exits; {c.end}", flush=True)
    guest.resume()


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--template", default="shell")
    p.add_argument("--mem", type=int, default=512)
    p.add_argument("--limit", type=int, default=192)
    p.add_argument("--vcpus", type=int, default=1)
    p.add_argument("--runner")
    p.add_argument("--preload", action="store_true")
    p.add_argument("--verbose", action="store_true")
    p.add_argument("--kernel")
    p.add_argument("--restore")
    p.add_argument("--save")
    p.add_argument("--first-run", action="store_true")
    p.add_argument("--lane", action="store_true")
    p.add_argument("--costs", action="store_true")
    p.add_argument("--no-disk", action="store_true")
    p.add_argument("--pong-limit", type=float, default=2.0)
    p.add_argument("--flood-mib", type=int, default=100)
    p.add_argument("--vmm", nargs="*", default=[])
    p.add_argument("cases", nargs="*")
    a = p.parse_args()
    guest = vm.VM(a.template, mem=a.mem, vcpus=a.vcpus, verbose=a.verbose,
                  disk=not a.no_disk, restore=a.restore, kernel=a.kernel,
                  extra=["--" + x for x in a.vmm])
    with guest:
        on = costs(guest) if a.costs else lambda what: None
        guest.on_progress = on
        if not a.restore:
            print(f"# boot to HELLO {guest.boot(3600):.2f} s", flush=True)
            on("boot")
            t = guest.prepare(a.runner or a.template, a.preload,
                              not a.no_disk, timeout=7200)
            print(f"# prepare {t:.2f} s: {guest.progress[-1][1]}", flush=True)
            on("ready")
        if a.save:
            guest.save(a.save)
            return 0
        guest.flood_bytes = a.flood_mib << 20
        guest.pong_limit = a.pong_limit
        guest.has_preload = a.preload
        if a.first_run:
            first_run(guest, a.runner or a.template, a.limit << 20)
        print(f"# bind {guest.bind(300, mem=a.limit << 20) * 1000:.1f} ms",
              flush=True)
        on("bind")
        if a.lane:
            lane_run(guest, a.runner or a.template)
            on("lane")
        print(f"# ping {guest.ping() * 1000:.1f} ms", flush=True)
        on("ping")
        _, failed = scenario.run_all(
            guest, a.runner or a.template, a.cases,
            say=lambda text: (print(text, flush=True),
                              text.startswith("ok") and on("")))
        print(f"# power off: status {guest.poweroff(120)}", flush=True)
    return bool(failed)


sys.exit(main())
