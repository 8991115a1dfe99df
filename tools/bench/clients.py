"""Rows of requests over HTTP: reads and one-call runs by 1, 8 and 32 clients.

The clients are those of load.c, on connections that are kept.  Runs are asked for
in rounds, each when as many VMs wait as there are clients, so that every one is
claimed.  Beside them: what the same commits cost SQLite alone, with the
daemon's schema and settings, on the daemon's file system (commits.py).
"""

import json
import os
import subprocess
import time
import urllib.parse

import calls
import commits

CLIENTS = (1, 8, 32)
LOAD_S = 600
WAIT_MS = 30000
REFILL_S = 300
TRACED_RUNS = 16
RECORDS = 2000  # in the graph whose lists are read
# As bench.py's one-call runs; small enough that 32 of them fit on most hosts.
RUN = {"code": "def run(input, config):\n    return sum(input)",
       "input": [1, 2, 3],
       "limits": {"vcpus": 1, "memory_mib": 512, "disk_mib": 256}}
WROTE = "def run(input, config):\n    print('x' * 4000)"
SETTLED_S = 5   # the pool has what it will have


def load(build, client, n_clients, n, method, path, body=None, **query):
    """Seconds in all, and the milliseconds of each answer; all must be 200, or
    of a run 202: it was not done after WAIT_MS, which its time says."""
    full = f"{path}?{urllib.parse.urlencode({'graph': client.graph, **query})}"
    argv = [os.path.join(build, "bench/load"), client.daemon.host,
            str(client.daemon.port), str(n_clients), str(n), client.key,
            method, full]
    out = subprocess.run(argv + ([json.dumps(body)] if body else []),
                         capture_output=True, text=True, timeout=LOAD_S)
    if out.returncode:
        raise SystemExit(f"{' '.join(argv[5:])}: {out.stderr}")
    seconds, *answers = out.stdout.splitlines()
    statuses = {a.split()[0] for a in answers}
    if not statuses <= {"200", "202" if body else "200"}:
        raise SystemExit(f"{method} {path}: answers {statuses}")
    return float(seconds), [int(a.split()[1]) / 1e3 for a in answers]


def name_of(what, n_clients):
    return f"{what}, {n_clients} client{'s' if n_clients > 1 else ''}"


def add(table, what, n_clients, seconds, times):
    name = name_of(what, n_clients)
    table.add(name, "hutchd", times, "ms")
    table.add(f"{name}: a second", "hutchd", [len(times) / seconds], "1/s")


def read_rows(table, build, client, run, n):
    """Reads of one record, of a page of 20, of what a command wrote."""
    for what, path, query in (
            ("retrieve", "/v1/sandboxes/commands/get",
             {"command": run.command}),
            ("list", "/v1/sandboxes", {"limit": 20}),
            ("logs", "/v1/sandboxes/commands/logs",
             {"command": run.command, "stream": "stdout"})):
        for n_clients in CLIENTS:
            add(table, what, n_clients,
                *load(build, client, n_clients, n, "GET", path, **query))


def rounds(build, client, n_clients, n_rounds):
    """Seconds and times of runs, when each round was, how many were claimed."""
    import hutchlib

    daemon = client.daemon
    body = {"run": RUN, "wait_ms": WAIT_MS}
    since = {}

    def pool():
        return daemon.admin("GET", "/admin/pool").json

    def is_full():
        p = pool()
        begun = since.setdefault((p["ready"], p["starting"]),
                                 time.monotonic())
        return not p["starting"] and (
            p["ready"] >= n_clients or
            p["ready"] and time.monotonic() - begun > SETTLED_S)

    seconds, times, windows = 0.0, [], []
    hits = pool()["hits"]
    for _ in range(n_rounds):
        since.clear()
        hutchlib.wait_until(is_full, REFILL_S, f"{n_clients} VMs wait")
        before = time.time()
        spent, some = load(build, client, n_clients, n_clients, "POST",
                           "/v1/sandboxes", body)
        windows.append((before, time.time()))
        seconds, times = seconds + spent, times + some
    return seconds, times, windows, pool()["hits"] - hits


def run_rows(table, build, client, n_clients, n):
    """Runs that are claimed, as many at once as there are clients."""
    daemon = client.daemon
    seconds, times, _, hits = rounds(build, client, n_clients,
                                     max(2, n // n_clients))
    add(table, "run claimed", n_clients, seconds, times)
    table.add(name_of("runs that were claimed", n_clients), "hutchd",
              [hits / len(times) * 100], "%", goal="100")
    table.add(name_of(f"runs not done in {WAIT_MS // 1000} s", n_clients),
              "hutchd", [sum(t >= WAIT_MS for t in times)], "count",
              goal="0")
    if not calls.is_there():
        return
    trace = calls.Calls(daemon.pid)
    windows = []
    try:
        _, times, windows, _ = rounds(build, client, n_clients,
                                      max(1, TRACED_RUNS // n_clients))
    finally:
        own, _ = trace.count(windows)
    table.add(name_of("fsyncs of a run", n_clients), "hutchd",
              [sum(own[s] for s in calls.SYNCS) / len(times)], "count")


def rows(table, build, n_reads, n_runs, note):
    import hutchlib

    daemon = hutchlib.Daemon(hutchlib.STATE + "-requests", graph_places=100,
                             environment_places=100)

    def restarted(n_waiting):
        daemon.stop()
        limits = "{vcpus}x{memory_mib}x{disk_mib}".format(**RUN["limits"])
        daemon.settings.update(pool_max=n_waiting,
                               pool_python=f"0 {limits}:{n_waiting}")
        daemon.start()

    try:
        restarted(0)
        client = daemon.client()
        note("preparing lb" "b/python of 512 MiB (once per host, kept in the "
             "cache)")
        run = client.run(**RUN)
        if run.result != 6:
            raise SystemExit(f"the first run failed: {run}")
        run = client.run(WROTE, limits=RUN["limits"])
        for n_clients in CLIENTS:
            note(f"runs claimed from the pool, {n_clients} at once")
            restarted(n_clients)
            run_rows(table, build, client, n_clients, n_runs)
        daemon.stop()
        commits.rows(table, daemon.state, n_runs)
        commits.fill(daemon.state, RECORDS)
        restarted(0)
        note(f"reads, {RECORDS} sandboxes in the graph")
        read_rows(table, build, client, run, n_reads)
    finally:
        daemon.stop()
