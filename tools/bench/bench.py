#!/usr/bin/env python3
"""Figures of this build on this host, beside Debian's QEMU microvm.

All rows of one run are measured side by side, interleaved where two monitors
are compared, since a shared machine is noisy; exits and guest kernel
instructions (KVM's insn_emulation, which a host without hardware
virtualisation counts exactly) do not vary and stand beside the times.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
for folder in ("tests/guest", "tests/system", "tests/vmm"):
    sys.path.insert(0, os.path.join(TOP, folder))

import calls  # noqa: E402
import clients  # noqa: E402
import figures  # noqa: E402
import lanes  # noqa: E402
import monitors  # noqa: E402
import restored  # noqa: E402
import vm  # noqa: E402

BUILD = os.path.abspath(os.environ.get("HUTCH_BUILD")
                        or os.path.join(TOP, "build"))
SUM = "def run(input, config):\n    return sum(input)"
RUNS = {
    "shell": 'jq add <"$RUN_INPUT" >"$RUN_RESULT"',
    "python": SUM,
    "node": "function run(input) { return input.reduce((a, b) => a + b) }",
}
REFILL_S = 120  # restoring one VM on a busy host
TRACED_RUNS = 10
RUNS_BESIDE = 100  # of the ways that stand beside the lane's
SECONDS_PER_BOOT = 600


def note(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def is_soft():
    out = subprocess.run([os.path.join(BUILD, "hutch-vmm"), "--probe"],
                         capture_output=True, text=True, check=True)
    return "soft" in (out.stdout + out.stderr)


def first_instruction(table, n):
    """Process start to the first byte that a guest without Linux writes."""
    with tempfile.TemporaryDirectory() as folder:
        elf = monitors.write_tiny(folder)
        kinds = {"hutch": monitors.hutch_tiny(BUILD, elf)}
        if shutil.which("qemu-system-x86_64"):
            kinds["qemu"] = monitors.qemu(BUILD, 128, ["-kernel", elf])
        times = {who: [] for who in kinds}
        for _ in range(n):
            for who, argv_of in kinds.items():
                m = monitors.Monitor(argv_of)
                times[who].append(m.until(b"!", 20))
                m.close()
    for who, values in times.items():
        table.add("start to first guest instruction", who, values, "ms",
                  goal="<= 6 ms" if who == "hutch" else "")


def qemu_boot(table, soft):
    """The same kernel and init image under QEMU, to init's first word."""
    if not shutil.which("qemu-system-x86_64"):
        note("QEMU is not installed: its rows are left out")
        return
    line = ("earlyprintk=hutch root=/dev/vda ro rootfstype=erofs "
            "init=/sbin/hutch-init panic=-1 reboot=t mitigations=off "
            "tsc=reliable no_timer_check quiet ")
    if soft:
        # QEMU does not know the paravirtual XSAVE of this kernel.
        line += ("noxsave clearcpuid=popcnt,cx16,xsave,smap,invpcid,pcid,"
                 "fsgsbase,rdpid,rdrand,rdseed,clflushopt,clwb,erms,fsrm,"
                 "umip,la57 soft_kvm")
    image = os.path.join(BUILD, "guest/init.erofs")
    m = monitors.Monitor(monitors.qemu(BUILD, 256, [
        "-kernel", os.path.join(BUILD, "images/vmlinux"), "-append", line,
        "-drive", f"id=d,file={image},format=raw,if=none,readonly=on",
        "-device", "virtio-blk-device,drive=d"]))
    try:
        table.add("cold boot to init's first word", "qemu",
                  [m.until(b"hutch-init:", SECONDS_PER_BOOT)], "ms")
    except (TimeoutError, EOFError) as error:
        note(f"QEMU's boot: {error}")
    finally:
        m.close()


def template_rows(table, template, n, mem):
    """Cold boot, waiting interpreter, snapshot, restore, first replies."""
    with tempfile.TemporaryDirectory() as folder:
        with vm.VM(template, mem=mem) as cold:
            at_start = cold.stats()
            boot = cold.boot(SECONDS_PER_BOOT) * 1e3
            at_hello = cold.stats()
            table.add(f"{template}: cold boot to init's hello", "hutch",
                      [boot], "ms", *lanes.delta(at_hello, at_start))
            ready = cold.prepare(template, preload=mem >= 512) * 1e3
            table.add(f"{template}: hello to waiting interpreter", "hutch",
                      [ready], "ms", *lanes.delta(cold.stats(), at_hello))
            table.add(f"{template}: snapshot written", "hutch",
                      [restored.take_snapshot(cold, folder)], "ms")
        rows = {"bound": [], "run": [], "own": []}
        for _ in range(n):
            with restored.Restored(template, folder, mem) as again:
                before = again.stats()
                again.bind()
                rows["bound"].append((time.monotonic() - again.t0) * 1e3)
                rows["own"].append(
                    monitors.own_memory(again.proc.pid, mem << 20) / 1024)
                at_bound = again.stats()
                from_here = time.monotonic()
                done = again.run(RUNS[template], "[1,2,3]")
                rows["run"].append((time.monotonic() - from_here) * 1e3)
                at_end = again.stats()
                if done.end.get("result", b"").strip() != b"6":
                    raise SystemExit(f"{template}: wrong result {done.end}")
        table.add(f"{template}: restore to first reply", "hutch",
                  rows["bound"], "ms", *lanes.delta(at_bound, before))
        table.add(f"{template}: run after that", "hutch", rows["run"], "ms",
                  *lanes.delta(at_end, at_bound))
        table.add("VMM's own private memory", "hutch", rows["own"], "MiB",
                  goal="<= 1.5 MiB")


def phase_rows(table, daemon, way, n):
    """Where the time of these runs went, as the daemon's log has it."""
    names = ("record", "ready", "bind", "run", "result")
    found = re.findall("timing=(?:claimed|restored) " + " ".join(
        f"{name}_us=(\\d+)" for name in names), daemon.log_text())
    for i, name in enumerate(names):
        table.add(f"of it: {name}, {way}", "hutchd",
                  [int(f[i]) / 1e3 for f in found[-n:]], "ms")


def call_rows(table, daemon, way, refill, run):
    """System calls between a request and its answer."""
    if not calls.is_there():
        note("strace is not installed: system calls are not counted")
        return
    trace = calls.Calls(daemon.pid)
    windows = []
    try:
        refill()
        run()  # its VM was not started under strace
        for _ in range(TRACED_RUNS):
            refill()
            before = time.time()
            run()
            windows.append((before, time.time()))
    finally:
        own, others = trace.count(windows)
    for who, what, n in (
            ("hutchd", "system calls of a run", sum(own.values())),
            ("hutch-vmm", "system calls of a run", sum(others.values())),
            ("hutchd", "fsyncs of a run", sum(own[s] for s in calls.SYNCS))):
        table.add(f"{what}, {way}", who, [n / TRACED_RUNS], "count")


def http_runs(table, n, way, goal, **settings):
    """One-call runs over HTTP on one connection, each in a VM of its own,
    asked for when as many wait as the pool's size."""
    import hutchlib

    daemon = hutchlib.Daemon(hutchlib.STATE + "-bench", **settings)
    daemon.start()

    def is_refilled():
        pool = daemon.admin("GET", "/admin/pool").json
        return pool["ready"] == settings["pool_max"] and not pool["starting"]

    try:
        client = daemon.client()
        note("preparing lb" "b/python (once per host, kept in the cache)")
        first = client.run(SUM, input=[1, 2, 3])
        if first.reply.status != 200:
            raise SystemExit(f"the first run failed: {first}")
        commits = daemon.metric("hutch_store_commits_total")
        times = []

        def one():
            started = time.monotonic()
            run = client.run(SUM, input=[1, 2, 3])
            times.append((time.monotonic() - started) * 1e3)
            if run.result != 6:
                raise SystemExit(f"wrong result: {run}")

        def refill():
            hutchlib.wait_until(is_refilled, REFILL_S, "the pool is full")

        for i in range(n):
            if i % RUNS_BESIDE == 0:
                note(f"one-call runs over HTTP, {way}: {i} of {n}")
            refill()
            one()
        table.add(f"one-call run over HTTP, {way}", "hutch", times, "ms",
                  goal=goal)
        # The last run's "destroyed" may go with the next write.
        spent = daemon.metric("hutch_store_commits_total") - commits
        table.add(f"durable commits of a run, {way}", "hutch", [spent / n],
                  "count")
        phase_rows(table, daemon, way, n)
        call_rows(table, daemon, way, refill, one)
    finally:
        daemon.stop()


def http_rows(table, n):
    few = min(n, RUNS_BESIDE)
    http_runs(table, few, "restored", "<= 400 ms p50", pool_max=0)
    http_runs(table, few, "claimed, channel", "", pool_max=1, lane="off")
    http_runs(table, n, "claimed, lane", "<= 25 ms p50", pool_max=1)


def lane_rows(table, n, n_trips):
    import hutchlib

    lanes.tiny_rows(table, n_trips, n)
    lanes.python_rows(table, n, hutchlib.snapshot_folder("lbb/python"))


def machine_rows(table, options, soft):
    """Everything but the rows of requests."""
    first_instruction(table, options.starts)
    qemu_boot(table, soft)
    for template in options.templates.split(","):
        mem = 256 if template == "shell" else 1024
        template_rows(table, template, options.restores, mem)
    http_rows(table, options.runs)
    lane_rows(table, options.runs, options.trips)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", default=os.path.join(BUILD, "bench.csv"))
    parser.add_argument("--runs", type=int, default=1000,
                        help="one-call runs by the lane, over HTTP and "
                        "without (default 1000: minutes)")
    parser.add_argument("--restores", type=int, default=20)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--trips", type=int, default=1000,
                        help="calls by the lane of a tiny guest")
    parser.add_argument("--templates", default="shell",
                        help="cold-booted ones, of shell,node,python; the "
                        "default is shell, the others take minutes on soft "
                        "KVM")
    parser.add_argument("--requests", type=int, default=3000,
                        help="reads over HTTP of each kind and number of "
                        "clients")
    parser.add_argument("--claims", type=int, default=64,
                        help="runs that 1, 8 and 32 clients ask for at once")
    parser.add_argument("--only", choices=("requests",),
                        help="these rows and no others")
    options = parser.parse_args()
    soft = is_soft()
    print(f"# {'soft' if soft else 'stock'} KVM, {os.cpu_count()} cores, "
          f"load {os.getloadavg()[0]:.1f}, Linux {os.uname().release}")
    table = figures.Figures()
    print(table.head())
    if options.only != "requests":
        machine_rows(table, options, soft)
    clients.rows(table, BUILD, options.requests, options.claims, note)
    table.write_csv(options.csv)
    print(f"# written to {options.csv}")


if __name__ == "__main__":
    main()
