#!/usr/bin/env python3
"""kill -9 of hutchd and of hutch-vmm at every named step of a stop, a resume,
a restore, a wait in the pool, a claim and a delete (steps.py has what a row
means).

After it the sandbox is whole, so that it goes on with its files and processes,
or gone, and its record says so.

test: timeout=1200 beside=yes lane=only seconds=125
"""
import glob
import re

from held import SHELL, WAIT_S, delete, hold, resume, sh, stop, stopped
from hutchlib import TOP, case, equal, main, new_key, wait_until
from steps import (GONE_S, LEFT, RUN, Flow, add_rows, d, said, start_with)


class Stop(Flow):
    def ready(self):
        self.box = hold(self.c)
        if "stopped" in self.wants:
            equal(sh(self.c, self.box, LEFT)["status"], "succeeded")

    def act(self):
        stop(self.c, self.box)


class Resume(Flow):
    def before(self):
        self.box = hold(self.c)
        if "stopped" in self.wants:
            equal(sh(self.c, self.box, LEFT)["status"], "succeeded")
        stopped(self.c, self.box)

    def act(self):
        resume(self.c, self.box)


class Delete(Resume):
    """Of a stopped one, which is destroyed at once."""

    def act(self):
        delete(self.c, self.box)


class End(Stop):
    """Of one that runs: its VM ends first."""

    def act(self):
        delete(self.c, self.box)


class Run(Flow):
    """A one-call run, in a VM restored for it."""
    template, code = SHELL, RUN

    def before(self):
        self.key = new_key()
        self.known = self.list()

    def list(self):
        r = self.c.call("GET", "/v1/sandboxes", query={"limit": 100})
        equal(r.status, 200, r)
        return {s["id"]: s for s in r.json["data"]}

    def again(self):
        return self.c.start(self.code, self.key, 30000,
                            template=self.template, input=[1])

    def act(self):
        self.again()

    def command(self):
        new = [s for i, s in self.list().items() if i not in self.known]
        assert len(new) < 2, new
        return self.c.command(new[0]["command"]).json if new else None

    def status(self):
        j = self.command()
        return j["status"] if j else "none"

    def check(self):
        status = wait_until(lambda: self.status() in self.wants
                            and self.status(), GONE_S,
                            f"{self.wants}; it is {self.status()}")
        j = self.command()
        r = self.again()
        equal(r.status, 200, r)
        if j:       # the key finds it, it is not run again
            equal(r.json["command"], j["id"])
        want = "succeeded" if status == "none" else status
        equal((r.json["status"], r.json["result"]),
              (want, [2] if want == "succeeded" else None), r)
        if want == "lost":
            assert self.command()["reason"] in ("vm_lost", "daemon_restart")
        return status


class Python(Run):
    """By the express lane, in a VM restored for it."""
    template, code = "lbb/python", "def run(i, c): return [i[0] + 1]"


class Claim(Run):
    settings = {"pool_max": 1, "pool_shell": 1}

    def ready(self):
        wait_until(lambda: d.admin("GET", "/admin/pool").json["ready"],
                   WAIT_S, "a VM waits")


class Lane(Python, Claim):
    settings = {"pool_max": 1, "pool_python": 1}


class Pool(Flow):
    """One is restored for the pool; what is done is nothing."""
    settings = Claim.settings
    acts = False

    def check(self):
        return "none"


# what is done; its step; the record after the death of the process whose step
# it is; after that of the other one, "" = there is no other
ROWS = (
    (Stop, "write.stopping", "lost", "lost"),
    (Stop, "written.stopping", "lost", "lost"),
    (Stop, "stop.asked", "lost", "lost"),
    (Stop, "stop.ponged", "lost", "lost"),
    (Stop, "stop.paused", "lost", "lost"),
    (Stop, "stop.files", "lost", "lost"),
    (Stop, "stop.saved", "lost", "lost"),
    (Stop, "stop.named", "lost", "lost|stopped"),   # whoever is heard first
    (Stop, "stop.synced", "lost", "lost|stopped"),
    (Stop, "stop.kept", "lost", "stopped"),
    (Stop, "write.stopped", "lost", ""),
    (Stop, "written.stopped", "stopped", ""),
    (Stop, "vmm.pause", "lost", "lost"),
    (Stop, "vmm.paused", "lost", "lost"),
    (Stop, "vmm.save", "lost", "lost"),
    (Stop, "vmm.save_memory", "lost", "lost"),
    (Stop, "vmm.save_state", "lost", "lost"),
    (Stop, "vmm.saved", "lost", "lost"),
    (Resume, "write.starting", "stopped", ""),
    (Resume, "written.starting", "lost", ""),
    (Resume, "start.disk", "lost", ""),
    (Resume, "start.spawned", "lost", "lost"),
    (Resume, "start.started", "lost", "lost"),
    (Resume, "start.given", "lost", "lost"),
    (Resume, "start.bound", "lost", "lost"),
    (Resume, "resume.used", "lost", "lost"),
    (Resume, "write.running", "lost", "lost"),
    (Resume, "written.running", "lost", "lost"),
    (Resume, "vmm.opened", "lost", "lost"),
    (Resume, "vmm.confined", "lost", "lost"),
    (Resume, "vmm.mapped", "lost", "lost"),
    (Resume, "vmm.loaded", "lost", "lost"),
    (Resume, "vmm.ready", "lost", "lost"),
    (Resume, "vmm.begun", "lost", "lost"),
    (Run, "begin.write", "none", ""),
    (Run, "begin.written", "lost", ""),
    (Run, "start.disk", "lost", ""),
    (Run, "start.spawned", "lost", "lost"),
    (Run, "start.started", "lost", "lost"),
    (Run, "start.given", "lost", "lost"),
    (Run, "start.bound", "lost", "lost|succeeded"),
    (Run, "write.destroying", "lost", "succeeded"),
    (Run, "written.destroying", "succeeded", "succeeded"),
    (Run, "vmm.opened", "lost", "lost"),
    (Run, "vmm.mapped", "lost", "lost"),
    (Run, "vmm.begun", "lost", "lost"),
    (Python, "start.given", "lost", "lost|succeeded"),
    (Python, "vmm.run", "lost", "lost"),
    (Python, "vmm.running", "lost", "lost"),
    (Python, "vmm.answer", "lost", "lost"),
    (Pool, "pool.bound", "none", "none"),
    (Pool, "pool.paused", "none", "none"),
    (Pool, "vmm.pause", "none", "none"),
    (Pool, "vmm.paused", "none", "none"),
    # One that was given nothing is replaced by a restored one.
    (Claim, "claim.reserved", "none", "succeeded"),
    (Claim, "claim.taken", "lost", "succeeded"),
    # ... unless it was killed and looks alive still.
    (Claim, "claim.given", "lost", "lost|succeeded"),
    (Claim, "claim.resumed", "lost", "lost"),
    (Claim, "vmm.resume", "succeeded", "lost"),
    (Claim, "vmm.resumed", "succeeded", "lost"),
    (Lane, "claim.taken", "lost", "succeeded"),
    (Lane, "claim.given", "lost", "lost|succeeded"),
    (Lane, "claim.resumed", "lost", "lost|succeeded"),
    (End, "write.destroying", "lost", ""),
    (End, "written.destroying", "destroyed", ""),
    (Delete, "written.destroyed", "destroyed", ""),
)


@case("every step of api/base/fault.h has its row")
def all_steps():
    with open(f"{TOP}/api/base/fault.h") as f:
        steps = set(re.findall(r"F\((?:HUTCHD|VMM), \w+, \"([\w.]+)\"\)",
                               f.read()))
    assert len(steps) > 50, steps
    with open(f"{TOP}/hostd/link/maker_die_test.c") as f:
        made = set(re.findall(r"\{\"(make\.\w+)\"", f.read()))
    rows = set()
    for path in (*glob.glob(f"{TOP}/tests/system/test_27_*.py"),
                 f"{TOP}/tests/system/test_32_graph_files.py"):
        with open(path) as f:
            rows |= set(re.findall(r"^    \(\w+, \"([\w.]+)\", \"", f.read(),
                                   re.M))
    equal(steps, made | rows)


add_rows(ROWS)


@case("a step that does not exist is refused, not ignored")
def unknown():
    start_with("stop.everything")
    assert d.process.wait(WAIT_S) != 0
    assert 'no moment "stop.everything"' in said(), said()


main()
