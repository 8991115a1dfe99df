#!/usr/bin/env python3
"""kill -9 of hutchd and of hutch-vmm at every named step of a stop, a resume,
a restore, a wait in the pool, a claim and a delete (api/base/fault.h; those of
a template's making are in hostd/link/maker_die_test.c).

A row is what is done, a step that it comes by, and which statuses the record
may have afterwards.  Each row has two cases:

  dies    the process whose step it is kills itself there
  halts   it stops there, the other one is killed, and it goes on

After it the sandbox is whole, so that it goes on with its files and processes,
or gone, and its record says so; no process, file, descriptor or control group
is left, and a run works.  A daemon that died is followed at once by another on
the same folder.

test: timeout=1200 beside=yes lane=only
"""
import collections
import contextlib
import http.client
import os
import re
import shutil
import signal
import threading
import time

from held import (SHELL, WAIT_S, delete, destroyed, hold, resume, resumed, sh,
                  stop, stopped)
from hutchlib import (BUILD, Daemon, STATE, TOP, case, cgroups, equal,
                      files, is_there, links, main, new_key, note, wait_until)

GONE_S = 20
# A program of our own: whoever runs it belongs to a daemon of ours.
VMM = os.path.join(os.environ["TMPDIR"], "hutch-vmm")
RUN = "echo '[2]'"     # starts no program: that takes a second
LEFT = "echo kept > f; sleep 1000 > /dev/null 2>&1 & echo $! > /tmp/pid"

d = Daemon(STATE + "-steps", pool_max=0, vmm_path=VMM, graph_places=20,
           environment_places=20)
base = {}       # c: the client; files: of a daemon that has nothing
dead = []       # pids of daemons
d.die_at = None


# ---- processes ------------------------------------------------------------

def vmms():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/exe") == VMM and is_there(pid):
                found.append(int(pid))
    return found


def held_links(pid):
    """Without a template's files, which are opened once."""
    return collections.Counter({
        k: n for k, n in links(pid).items()
        if "/snapshots/" not in k and ".erofs" not in k})


def groups():
    """Of daemons that are dead."""
    return [g for pid in dead for g in cgroups(pid)]


def is_halted(pid):
    with contextlib.suppress(FileNotFoundError):
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] == "T"


def client():
    if not d.is_alive():
        d.start()
    if not base:
        c = d.client()
        assert c.run(RUN, template=SHELL, input=[1]).ok
        base.update(c=c, files=at_rest())
    return base["c"]


def at_rest():
    return [f for f in files(d.state) if f.split("/")[0] != "stopped"]


def start_with(die_at=None, **settings):
    """Another daemon in its place."""
    if d.process:
        d.kill()
        dead.append(d.pid)
    d.settings.update(pool_max=0, pool_shell=0, pool_python=0)
    d.settings.update(settings)
    d.log_at = len(d.log_text())
    d.die_at = die_at
    d.launch(die_at)


def restart():
    start_with()
    d.await_http()


def said():
    return d.log_text()[d.log_at:]


# ---- what is done ---------------------------------------------------------

class Flow:
    settings = {}

    def __init__(self, wants):
        self.wants = set(wants.split("|"))
        self.c = client()

    def before(self):
        """With a daemon that has nothing armed."""

    def ready(self):
        """With the one that has."""

    def act(self):
        """Comes by the step."""

    def status(self):
        return self.c.sandbox(self.box)["status"]

    def files(self):
        """Of the sandbox, in its folder."""
        folder = f"{d.state}/stopped/{self.box}"
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def check(self):
        status = wait_until(lambda: self.status() in self.wants
                            and self.status(), GONE_S,
                            f"{self.wants}; it is {self.status()}")
        want = ["disk", "mem", "state"] if status == "stopped" else []
        wait_until(lambda: self.files() == want, GONE_S,
                   f"{status} has {want}, not {self.files()}")
        if status == "lost":
            assert self.c.sandbox(self.box)["reason"] in (
                "vm_lost", "daemon_restart"), self.c.sandbox(self.box)
        return status

    def is_whole(self):
        """A stopped one goes on as it was."""
        resumed(self.c, self.box)
        j = sh(self.c, self.box, "cat f; kill -0 $(cat /tmp/pid) && echo on")
        equal(j["stdout"]["tail"], "kept\non\n", j)
        destroyed(self.c, self.box)
        wait_until(lambda: not self.files(), GONE_S, "its files are removed")


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


# ---- a row ----------------------------------------------------------------

def armed(make, step, wants):
    """What is done, up to the call that comes by the step; the call's thread.
    """
    if d.die_at:        # the last row failed
        restart()
    flow = make(wants)
    flow.before()
    start_with(step, **flow.settings)
    if not isinstance(flow, Pool):
        d.await_http()
        time.sleep(0.1)     # our last question's connection
        flow.links = held_links(d.pid)
        flow.ready()

    def act():
        with contextlib.suppress(OSError, http.client.HTTPException):
            flow.act()

    thread = threading.Thread(target=act)
    thread.start()
    return flow, thread


def came_by(step, word):
    at = f"{word} at={step}"
    wait_until(lambda: at in said(), WAIT_S, f"the log has \"{at}\"")


def as_before(flow):
    """The daemon that saw its VM die holds what it held."""
    if flow.settings:
        return      # another one is restored for the pool
    wait_until(lambda: not held_links(d.pid) - flow.links, GONE_S,
               f"{held_links(d.pid) - flow.links} are gone")


def nothing_left(flow):
    status = flow.check()
    if status == "stopped":
        flow.is_whole()
    wait_until(lambda: not vmms(), GONE_S, f"processes are left: {vmms()}")
    r = flow.c.run(RUN, template=SHELL, input=[1])
    equal((r.status, r.result), ("succeeded", [2]), r)
    wait_until(lambda: not vmms(), GONE_S, "that one's VM ends")
    equal(at_rest(), base["files"], "files of the state folder")
    if os.path.isdir(f"{d.state}/stopped"):
        equal(os.listdir(f"{d.state}/stopped"), [])
    wait_until(lambda: not groups(), GONE_S,
               f"control groups are left: {groups()}")
    dead.clear()
    for name in ("hutch_sandboxes_live", "hutch_ram_committed_bytes"):
        wait_until(lambda: d.metric(name) == 0, GONE_S, name)
    note(f"{status}: {', '.join(sorted(flow.wants))}")


def daemon_dies(make, step, wants):
    flow, thread = armed(make, step, wants)
    equal(d.process.wait(WAIT_S), -signal.SIGKILL)
    came_by(step, "dies")
    thread.join()
    restart()
    nothing_left(flow)


def vmm_dies(make, step, wants):
    flow, thread = armed(make, step, wants)
    thread.join()
    came_by(step, "dies")
    status = flow.check()
    as_before(flow)
    restart()
    equal(flow.check(), status, "as it was told before")
    nothing_left(flow)


def daemon_halts(make, step, wants):
    flow, thread = armed(make, step + ":halt", wants)
    wait_until(lambda: is_halted(d.pid), WAIT_S, f"it stops at {step}")
    pids = vmms()
    equal(len(pids), 1, "VMs")
    os.kill(pids[0], signal.SIGKILL)
    os.kill(d.pid, signal.SIGCONT)
    came_by(step, "halts")
    thread.join()
    if isinstance(flow, Pool):
        d.await_http()
        assert flow.c.run(RUN, template=SHELL, input=[1]).ok
    else:
        flow.check()
        as_before(flow)
    restart()
    nothing_left(flow)


def vmm_halts(make, step, wants):
    flow, thread = armed(make, step + ":halt", wants)
    pid = wait_until(lambda: [p for p in vmms() if is_halted(p)], WAIT_S,
                     f"it stops at {step}")[0]
    restart()
    thread.join()
    status = flow.check()
    # The next daemon is there when it goes on; before it changed its uid it
    # died with its own.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: pid not in vmms(), GONE_S, "it ends")
    equal(flow.check(), status)
    nothing_left(flow)


def add(make, step, wants, wants_other):
    is_vmm = step.startswith("vmm.")
    what = f"{make.__name__.lower()}: {step}"

    @case(f"{what}: {'hutch-vmm' if is_vmm else 'hutchd'} dies")
    def dies():
        (vmm_dies if is_vmm else daemon_dies)(make, step, wants)

    if not wants_other:
        return

    @case(f"{what}: it halts, {'hutchd' if is_vmm else 'hutch-vmm'} dies")
    def halts():
        (vmm_halts if is_vmm else daemon_halts)(make, step, wants_other)


@case("every step of api/base/fault.h has its row")
def all_steps():
    with open(f"{TOP}/api/base/fault.h") as f:
        steps = set(re.findall(r"F\((?:HUTCHD|VMM), \w+, \"([\w.]+)\"\)",
                               f.read()))
    assert len(steps) > 50, steps
    with open(f"{TOP}/hostd/link/maker_die_test.c") as f:
        made = set(re.findall(r"\{\"(make\.\w+)\"", f.read()))
    equal(steps, made | {row[1] for row in ROWS})


for row in ROWS:
    add(*row)


@case("a step that does not exist is refused, not ignored")
def unknown():
    start_with("stop.everything")
    assert d.process.wait(WAIT_S) != 0
    assert 'no moment "stop.everything"' in said(), said()


shutil.copy(f"{BUILD}/hutch-vmm", VMM)
main()
