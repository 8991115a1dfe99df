#!/usr/bin/env python3
"""examples/workflow: a durable workflow, killed in the middle of its steps.

The worker is DBOS with its embedded SQLite; its packages are locked (make
images-workflow).  It gets SIGKILL while a command runs in a held sandbox, and
again while a one-call run goes on.

test: timeout=900 beside=yes
"""
import json
import os
import signal
import sqlite3
import subprocess
import sys

from hutchlib import (BUILD, Daemon, STATE, TOP, case, equal, locked_packages,
                      main, note, wait_until)

SITE = f"{BUILD}/images/workflow/site"
WORKER = f"{TOP}/examples/workflow/worker.py"
RUN = "nightly-7"
STEP_S = 300
DAEMON = Daemon(STATE + "-workflow", pool_max=0)


def packages():
    locked_packages(SITE, "the packages of examples/workflow",
                    "images-workflow")


class Worker:
    def __init__(self, client, db):
        self.log = open(db + ".log", "ab")
        self.process = subprocess.Popen(
            [sys.executable, WORKER, "--run", RUN, "--db", db],
            stdout=subprocess.PIPE, stderr=self.log, text=True,
            env=dict(os.environ, PYTHONPATH=SITE, PYTHONDONTWRITEBYTECODE="1",
                     HUTCH_URL=f"http://{DAEMON.host}:{DAEMON.port}",
                     HUTCH_API_KEY=client.key))

    def kill(self):
        assert self.process.poll() is None, "it ended before it was killed"
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
        self.process.stdout.close()
        self.log.close()

    def result(self):
        out, _ = self.process.communicate(timeout=STEP_S)
        self.log.close()
        with open(self.log.name, errors="replace") as f:
            equal(self.process.returncode, 0, f.read()[-3000:])
        return json.loads(out)


def records(c, path, **query):
    r = c.call("GET", path, query={"limit": 100, **query})
    equal(r.status, 200, r)
    return r.json["data"]


def commands(c):
    return records(c, "/v1/sandboxes/commands")


def is_running(c, kind):
    return [x for x in commands(c) if x["kind"] == kind and
            x["status"] == "running"]


@case("LBB-220 LBB-222 LBB-261: killed twice in the middle of a step, each step "
      "ran its code once: one record, one execution")
def killed_twice():
    packages()
    d = DAEMON.start()
    c = d.client("wf")
    db = f"{d.state}/workflow.sqlite"
    began = d.admin("GET", "/admin/status").json["engine"]

    worker = Worker(c, db)
    try:
        first, = wait_until(lambda: is_running(c, "process"), STEP_S,
                            "the command in the held sandbox runs")
        worker.kill()
        worker = Worker(c, db)
        second, = wait_until(lambda: is_running(c, "run"), STEP_S,
                             "the one-call run goes on")
        worker.kill()
        worker = Worker(c, db)
        result = worker.result()
    finally:
        if worker.process.poll() is None:
            worker.process.kill()
            worker.process.wait()

    equal(result["append"], {"command": first["id"], "status": "succeeded",
                             "log": "once\n"}, "it appended once")
    equal(result["total"], {"command": second["id"], "status": "succeeded",
                            "result": 6, "attempt": 2})
    # Not a record, a run, or a VM more than the steps have.
    equal(sorted(x["id"] for x in commands(c)),
          sorted((first["id"], second["id"])))
    equal(len(records(c, "/v1/sandboxes")), 2)
    now = d.admin("GET", "/admin/status").json["engine"]
    equal([now[k] - began[k] for k in ("runs_started", "vms_started",
                                       "runs_lost")], [2, 2, 0])
    # Three workers, and the engine counted so many attempts.
    with sqlite3.connect(db) as engine:
        attempts, = engine.execute(
            "SELECT recovery_attempts FROM workflow_status").fetchone()
    equal(attempts, 3)
    note(f"{attempts} attempts, 2 commands")


@case("LBB-45 LBB-222: the command's record is the step's receipt")
def receipts():
    packages()
    c = DAEMON.client("wf")
    want = {"workflow": "nightly", "run": RUN, "turn": 1}
    steps = {}
    for x in commands(c):
        steps[x["origin"]["step"]] = x["origin"]["attempt"]
        equal({k: x["origin"][k] for k in want}, want)
    equal(steps, {"append": 1, "total": 2})
    for s in records(c, "/v1/sandboxes"):
        equal(s["origin"]["workflow"], "nightly")
        equal(s["status"] in ("destroying", "destroyed"), True, s)
    equal(DAEMON.stop(), 0)


main()
