#!/usr/bin/env python3
"""Makes the template snapshots that all system tests restore, once.

On a soft host the first time takes many minutes: the progress is shown.
Python's, the longest, is made beside the other two.
test: timeout=2700 long-timeout=5400 beside=yes
"""
import os
import subprocess
import threading
import time

from hutchlib import BUILD, STATE, case, daemon, main, note

LIMIT_S = 2400
done = {}


def prepare(*names):
    """Make each of `names`, one after the other; statuses in `done`."""
    for name in names:
        start = time.monotonic()
        p = subprocess.Popen([f"{BUILD}/hutch", "prepare", name, "--state",
                              STATE], stdin=subprocess.DEVNULL,
                             stderr=subprocess.STDOUT, stdout=subprocess.PIPE,
                             text=True, env=os.environ)
        said = ""
        for line in p.stdout:
            # One line a phase: the seconds at its end change all the time.
            phase = line.rstrip().rsplit("(", 1)[0]
            if phase != said:
                note(f"{time.monotonic() - start:6.1f} s {line.rstrip()}")
            said = phase
        done[name] = p.wait()


def ready(name):
    for t in threads:
        t.join(LIMIT_S)
    assert done.get(name) == 0, f"hutch prepare {name}: {done.get(name)}"


@case("the snapshot of lbb/python is there")
def python():
    ready("lbb/python")


@case("the snapshot of lbb/node is there")
def node():
    ready("lbb/node")


@case("the snapshot of lbb/shell is there")
def shell():
    ready("lbb/shell")


daemon()
threads = [threading.Thread(target=prepare, args=names, daemon=True)
           for names in (["lbb/python"], ["lbb/shell", "lbb/node"])]
for thread in threads:
    thread.start()
main()
