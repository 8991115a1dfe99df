#!/usr/bin/env python3
"""kill -9 of hutchd and of hutch-vmm at every named step of a user's snapshot:
one of a sandbox that runs, of a stopped one, a sandbox that begins from one,
and its removal (steps.py has what a row means).

After it the snapshot is listed, has all its files and a sandbox begins from it,
or it is neither listed nor on the disk.  What it is of, and what others begin
from, is shared by all rows and as good at the end as it was.

test: timeout=1200 beside=yes seconds=80
"""
import os

from held import destroyed, hold, resumed, sh, stopped
from hutchlib import case, equal, main, wait_until
import snaps
from snaps import begin, create_from, listed, remove, take
from steps import (GONE_S, Flow, add_rows, at_rest, base, d, restart,
                   stopped_folders)

# Programs take a second each on a soft host: the shell alone.
LEFT = (f"echo kept > f; ({snaps.LEFT}) > /dev/null 2>&1 & "
        "until [ -s /tmp/pid ]; do :; done")


def ids(c):
    return sorted(s["id"] for s in listed(c))


def folders():
    return sorted(os.listdir(f"{d.state}/snapshots"))


def goes_on(c, box):
    j = sh(c, box, "read f < f; read p < /tmp/pid; kill -0 $p && echo $f on")
    equal(j["stdout"]["tail"], "kept on\n", j)


def begins(c, snap):
    """What begins from it has its file and its process."""
    box = begin(c, snap)
    goes_on(c, box)
    destroyed(c, box)


class Snapshot(Flow):
    """Outcomes: taken, or none."""
    kept = "taken"

    def __init__(self, wants):
        super().__init__(wants)
        if "snap" not in base:
            box = hold(self.c)
            equal(sh(self.c, box, LEFT)["status"], "succeeded")
            stopped(self.c, box)
            r = take(self.c, box)
            equal(r.status, 201, r)
            base.update(box=box, snap=r.json["id"], files=at_rest(),
                        stopped=stopped_folders())
        for snap in self.snaps():   # the last row failed
            remove(self.c, snap)

    def snaps(self):
        return [s for s in ids(self.c) if s != base["snap"]]

    def outcome(self):
        return "taken" if self.snaps() else "none"

    def is_of(self):
        """What became of the sandbox that it is of."""
        equal(self.c.sandbox(base["box"])["status"], "stopped")

    def check(self):
        got = wait_until(lambda: self.outcome() in self.wants
                         and self.outcome(), GONE_S,
                         f"{self.wants}; it is {self.outcome()}")
        wait_until(lambda: folders() == ids(self.c), GONE_S,
                   f"{ids(self.c)} have files, not {folders()}")
        self.is_of()
        return got

    def is_whole(self):
        for snap in self.snaps():
            begins(self.c, snap)
            equal(remove(self.c, snap).status, 200)


class Take(Snapshot):
    """Of one that runs; it is lost with its VM, or with the daemon."""

    def ready(self):
        self.box = hold(self.c)
        if "taken" in self.wants:
            equal(sh(self.c, self.box, LEFT)["status"], "succeeded")

    def act(self):
        take(self.c, self.box)

    def is_of(self):
        wait_until(lambda: self.c.sandbox(self.box)["status"] == "lost",
                   GONE_S, "it is lost")
        assert self.c.sandbox(self.box)["reason"] in (
            "vm_lost", "daemon_restart"), self.c.sandbox(self.box)


class Stopped(Snapshot):
    """Of one that is stopped: its files are copied."""
    runs_after = False

    def act(self):
        take(self.c, base["box"])


class Remove(Snapshot):
    runs_after = False

    def before(self):
        r = take(self.c, base["box"])
        equal(r.status, 201, r)
        self.snap = r.json["id"]

    def act(self):
        remove(self.c, self.snap)


class Begin(Snapshot):
    """Outcomes are statuses of what began."""

    def before(self):
        self.known = self.boxes()

    def boxes(self):
        r = self.c.call("GET", "/v1/sandboxes", query={"limit": 100})
        equal(r.status, 200, r)
        return {s["id"]: s for s in r.json["data"]}

    def act(self):
        create_from(self.c, base["snap"])

    def outcome(self):
        new = [s for i, s in self.boxes().items() if i not in self.known]
        assert len(new) < 2, new
        if new and new[0]["status"] == "lost":
            assert new[0]["reason"] in ("vm_lost", "daemon_restart"), new
        return new[0]["status"] if new else "none"


# what is done; its step; the outcome of the death of the process whose step it
# is; of that of the other one, "" = there is no other
ROWS = (
    (Take, "snap.asked", "none", "none"),
    (Take, "snap.held", "none", "none"),
    (Take, "snap.paused", "none", "none"),
    (Take, "snap.files", "none", "none|taken"),     # it may have written all
    # All of it is there before the VM dies: it is whole.
    (Take, "snap.saved", "none", "taken"),
    (Take, "snap.copied", "none", "taken"),
    (Take, "snap.let_go", "none", "taken"),
    (Take, "snap.synced", "none", ""),      # the VM is of no more use
    (Take, "snap.named", "none", ""),
    (Take, "snap.write", "none", ""),
    (Take, "snap.written", "taken", "taken"),
    (Take, "vmm.pause", "none", "none"),
    (Take, "vmm.paused", "none", "none"),
    (Take, "vmm.save", "none", "none"),
    (Take, "vmm.save_memory", "none", "none"),
    (Take, "vmm.save_state", "none", "none"),
    (Take, "vmm.saved", "none", "none"),
    (Take, "vmm.resume", "taken", "none|taken"),
    (Take, "vmm.resumed", "taken", "none|taken"),
    (Stopped, "snap.copied", "none", ""),
    (Stopped, "snap.named", "none", ""),
    (Stopped, "snap.write", "none", ""),
    (Stopped, "snap.written", "taken", ""),
    (Begin, "begin.write", "none", ""),
    (Begin, "begin.written", "lost", ""),
    (Begin, "from.opened", "lost", ""),
    (Begin, "from.copied", "lost", ""),
    (Begin, "start.disk", "lost", ""),
    (Begin, "start.spawned", "lost", "lost"),
    (Begin, "start.started", "lost", "lost"),
    (Begin, "start.given", "lost", "lost"),
    (Begin, "start.bound", "lost", "lost"),
    (Begin, "vmm.mapped", "lost", "lost"),
    (Begin, "vmm.loaded", "lost", "lost"),
    (Begin, "vmm.begun", "lost", "lost"),
    (Remove, "snap.delete", "taken", ""),
    (Remove, "snap.deleted", "none", ""),
    (Remove, "remove.part", "none", ""),
    (Remove, "snap.removed", "none", ""),
)

add_rows(ROWS)


@case("what all rows shared goes on as it was left")
def shared():
    restart()
    flow = Snapshot("none")
    begins(flow.c, base["snap"])
    resumed(flow.c, base["box"])
    goes_on(flow.c, base["box"])
    destroyed(flow.c, base["box"])
    equal(remove(flow.c, base["snap"]).status, 200)
    wait_until(lambda: not folders() and not stopped_folders(), GONE_S,
               "nothing is left")


main()
