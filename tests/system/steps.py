"""kill -9 at named steps (api/base/fault.h): what tests of it share.

A row is what is done, a step that it comes by, and which outcomes the records
may tell afterwards.  Each row has two cases:

  dies    the process whose step it is kills itself there
  halts   it stops there, the other one is killed, and it goes on

After it everything is whole or gone, and the records say which; no process,
file, descriptor or control group is left, and a run works.  A daemon that died
is followed at once by another on the same folder.
"""
import collections
import contextlib
import http.client
import os
import shutil
import signal
import threading
import time

from held import SHELL, WAIT_S, destroyed, resumed, sh
from hutchlib import (BUILD, Daemon, IS_LONG, STATE, case, cgroups, equal, files,
                      is_there, links, note, wait_until)

GONE_S = 20
DAY_S = 86400
SHARES = 3          # of the second case, in make check
# A program of our own: whoever runs it belongs to a daemon of ours.
VMM = os.path.join(os.environ["TMPDIR"], "hutch-vmm")
RUN = "echo '[2]'"     # starts no program: that takes a second
LEFT = "echo kept > f; sleep 1000 > /dev/null 2>&1 & echo $! > /tmp/pid"

d = Daemon(STATE + "-steps", pool_max=0, vmm_path=VMM, graph_places=20,
           environment_places=20)
base = {}       # c: the client; files, stopped: what is there between rows
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
        if ("/snapshots/" not in k or "/snp_" in k or "/.new-snp_" in k)
        and ".erofs" not in k})


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
        base.update(c=c, files=at_rest(), stopped=[])
    return base["c"]


def at_rest():
    return [f for f in files(d.state) if f.split("/")[0] != "stopped"]


def stopped_folders():
    folder = f"{d.state}/stopped"
    return os.listdir(folder) if os.path.isdir(folder) else []


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
    acts = True         # false: what comes by the step begins by itself
    runs_after = True   # a run is tried afterwards
    kept = "stopped"    # the outcome after which something goes on

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


# ---- a row ----------------------------------------------------------------

def armed(make, step, wants):
    """What is done, up to the call that comes by the step; the call's thread.
    """
    if d.die_at:        # the last row failed
        restart()
    flow = make(wants)
    flow.before()
    start_with(step, **flow.settings)
    if flow.acts:
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
    if status == flow.kept:
        flow.is_whole()
    wait_until(lambda: not vmms(), GONE_S, f"processes are left: {vmms()}")
    if flow.runs_after:
        r = flow.c.run(RUN, template=SHELL, input=[1])
        equal((r.status, r.result), ("succeeded", [2]), r)
        wait_until(lambda: not vmms(), GONE_S, "that one's VM ends")
    wait_until(lambda: at_rest() == base["files"], GONE_S,
               "files of the state folder are as before")
    equal(stopped_folders(), base["stopped"], "stopped sandboxes")
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
    if flow.acts:
        flow.check()
        as_before(flow)
    else:
        d.await_http()
        assert flow.c.run(RUN, template=SHELL, input=[1]).ok
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


def add_rows(rows):
    """The cases of a file, with the VMM's own copy of its program."""
    shutil.copy(f"{BUILD}/hutch-vmm", VMM)
    share = int(time.time() / DAY_S) % SHARES
    if not IS_LONG:
        note(f"case `halts` of one row in {SHARES}, the others on other days; "
             "all with make check-long")
    for i, (make, step, wants, wants_other) in enumerate(rows):
        if not IS_LONG and i % SHARES != share:
            wants_other = None
        add(make, step, wants, wants_other)
