"""Counts the system calls of hutchd and of its VMMs, by strace.

A traced run is slow, so it gives counts only; times come from other runs.
What counts is what was called between two moments: before a request is sent
and after its answer came.
"""

import collections
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

ATTACH_S = 20
DETACH_S = 5
LINE = re.compile(r"(\d+) +(\d+\.\d+) (\w+)\(")
SYNCS = ("fsync", "fdatasync")


def is_there():
    return shutil.which("strace") is not None


def tasks_of(pid):
    return set(os.listdir(f"/proc/{pid}/task"))


def is_traced(pid):
    for tid in tasks_of(pid):
        with open(f"/proc/{pid}/task/{tid}/status") as f:
            if "TracerPid:\t0\n" in f.read():
                return False
    return True


class Calls:
    """strace on a process and all that it starts from now on."""

    def __init__(self, pid):
        self.pid, self.tasks = pid, tasks_of(pid)
        self.out = tempfile.NamedTemporaryFile(mode="r", errors="replace")
        self.strace = subprocess.Popen(
            ["strace", "-f", "-qq", "-ttt", "-o", self.out.name, "-p",
             str(pid)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + ATTACH_S
        while not is_traced(pid):
            if time.monotonic() > end or self.strace.poll() is not None:
                self.close()
                raise SystemExit("strace cannot attach to hutchd")
            time.sleep(0.02)

    def close(self):
        if self.strace.poll() is not None:
            return
        self.strace.send_signal(signal.SIGTERM)
        try:
            self.strace.wait(DETACH_S)
        except subprocess.TimeoutExpired:
            # It waits for a thread of a VMM that was killed; killed itself,
            # it lets go of all.
            self.strace.kill()
            self.strace.wait()

    def count(self, windows):
        """Counters of calls in these spans of time.time(): the process's own
        and those of what it started.  Ends the trace."""
        self.tasks |= tasks_of(self.pid)
        self.close()
        own, others = collections.Counter(), collections.Counter()
        for line in self.out:
            m = LINE.match(line)
            at = m and float(m.group(2))
            if m and any(a <= at <= b for a, b in windows):
                (own if m.group(1) in self.tasks else others)[m.group(3)] += 1
        return own, others
