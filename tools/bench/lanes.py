"""Rows of the express lane and of restored VMs, without hutchd.

The tiny guest is tests/vmm's runner of a few instructions; the Python ones are
VMs of hutchd's own snapshot (1,024 MiB, all libraries), which the HTTP rows have
put into the cache.
"""

import json
import os
import shutil
import tempfile
import time

import monitors
import restored

LIMIT_BYTES = 512 << 20
RING_PORT = 0x520  # HUTCH_PORT_LANE_RING of api/lane.h
CODE = "def run(input, config):\n    return sum(input)"
INPUT = "[1,2,3]"


def delta(after, before):
    return (after["exits"] - before["exits"],
            after["insn_emulation"] - before["insn_emulation"])


def median_of(costs):
    """Of exits and of instructions: a timer tick comes into some runs."""
    return [sorted(column)[len(costs) // 2] for column in zip(*costs)]


def since_ms(t):
    return (time.monotonic() - t) * 1e3


def trips_inside(guest, n):
    """Microseconds from a request that is written to the ring that answers it,
    by the monitor's own trace: enter, read, ring, leave."""
    import vmmlib

    with tempfile.NamedTemporaryFile() as trace:
        with vmmlib.VMM("--kernel", guest, "--trace", trace.name) as m:
            m.lane_ready()
            for _ in range(n):
                m.lane_run(b"e")
                m.lane_answer()
                m.resume()
                m.lane_ready()
            m.quit()
        at, times = None, []
        for line in open(trace.name):
            event = json.loads(line)
            if event["ev"] == "lane" and event["what"] == "run":
                at = event["t"]
            elif at and event["ev"] == "io" and event["port"] == RING_PORT:
                times.append((event["t"] - at) / 1e3)
                at = None
        return times


def tiny_rows(table, n, n_restores):
    """A guest without Linux at its lane: a call in and out, and a restore."""
    import vmmlib

    guest = vmmlib.guest("lane")
    with tempfile.TemporaryDirectory() as folder:
        times = []
        with vmmlib.VMM("--kernel", guest) as m:
            m.lane_ready()
            m.snapshot(folder)
            before = m.stats()
            for _ in range(n):
                t = time.monotonic()
                m.lane_run(b"e")
                m.lane_answer()
                times.append(since_ms(t) * 1e3)
                m.resume()
                m.lane_ready()
            exits, insn = delta(m.stats(), before)
        table.add("lane round trip, empty, seen by the owner", "hutch", times,
                  "us", exits // n, insn // n)
        table.add("lane round trip, empty, seen by the monitor", "hutch",
                  trips_inside(guest, n), "us", goal="<= 30 us")
        times = []
        for _ in range(n_restores):
            t = time.monotonic()
            with vmmlib.restore(folder, uid=54321) as m:
                m.lane_ready()
                m.lane_run(b"e")
                m.lane_answer()
                times.append(since_ms(t))
        table.add("tiny guest: restored to first byte", "hutch", times, "ms",
                  goal="<= 8 ms")


def check(end):
    if end.get("result") != b"6":
        raise SystemExit(f"wrong result: {end}")


def one(folder, rows):
    """One VM: BIND and RUN in one request; another: BIND first, then RUN."""
    with restored.Restored("python", folder, 1024) as g:
        g.lane_wait()
        rows["ready"].append(since_ms(g.t0))
        cmd = g.lane_start(CODE, INPUT,
                           bind=g.bind_payload(mem=LIMIT_BYTES))
        g.wait(lambda: g.commands[cmd].end, 60)
        rows["result"].append(since_ms(g.t0))
        rows["own"].append(monitors.own_memory(g.proc.pid, 1 << 30) / 1024)
        rows["result_cost"].append(delta(g.stats(), dict.fromkeys(
            ("exits", "insn_emulation"), 0)))
        check(g.commands[cmd].end)
    with restored.Restored("python", folder, 1024) as g:
        g.lane_wait()
        rows["refill"].append(since_ms(g.t0) + g.lane_bind(
            60, mem=LIMIT_BYTES) * 1e3)
        before, t = g.stats(), time.monotonic()
        c = g.lane_run(CODE, INPUT)
        rows["claimed"].append(since_ms(t))
        rows["claimed_cost"].append(delta(g.stats(), before))
        check(c.end)


def working_set(folder, n):
    """Milliseconds from the restore to a result, with the pages that the
    template's first run touched and without, from a warm page cache and from a
    cold one; and page faults of the process."""
    rows = {}
    for _ in range(n):
        for cache in ("warm", "cold"):
            for has_touched in (True, False):
                if cache == "cold":
                    restored.make_cold(os.path.join(folder, "mem"))
                with restored.Restored("python", folder, 1024,
                                       has_touched=has_touched) as g:
                    g.lane_wait()
                    cmd = g.lane_start(CODE, INPUT,
                                       bind=g.bind_payload(mem=LIMIT_BYTES))
                    g.wait(lambda: g.commands[cmd].end, 60)
                    took = since_ms(g.t0)
                    check(g.commands[cmd].end)
                    rows.setdefault((cache, has_touched), []).append(
                        (took, monitors.faults(g.proc.pid)))
    return rows


def working_set_rows(table, folder, n):
    if not os.path.exists(os.path.join(folder, "touched")):
        return
    for (cache, has_touched), runs in working_set(folder, n).items():
        name = (f"python: restored to result, {cache} page cache, "
                f"{'with' if has_touched else 'without'} the working set")
        table.add(name, "hutch", [ms for ms, _ in runs], "ms")
        table.add("page faults of it", "hutch", [f for _, f in runs],
                  "count")


def python_rows(table, n, snapshot):
    rows = {k: [] for k in ("ready", "result", "result_cost", "refill",
                            "claimed", "claimed_cost", "own")}
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(snapshot):
            restored.copy_sparse(os.path.join(snapshot, name),
                                 os.path.join(folder, name))
        for _ in range(n):
            one(folder, rows)
        working_set_rows(table, folder, max(1, n // 5))
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
    table.add("python: restored to the bell", "hutch", rows["ready"], "ms")
    table.add("python: restored to result, identity included", "hutch",
              rows["result"], "ms", *median_of(rows["result_cost"]),
              goal="<= 60 ms")
    table.add("python: restored, bound, waiting", "hutch", rows["refill"],
              "ms")
    table.add("python: claimed, request to result", "hutch",
              rows["claimed"], "ms", *median_of(rows["claimed_cost"]),
              goal="<= 10 ms")
    table.add("VMM's own private memory, python", "hutch", rows["own"], "MiB",
              goal="<= 1.5 MiB")
