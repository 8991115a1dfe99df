#!/usr/bin/env python3
"""Makes the template snapshots that all system tests restore, once.

On a soft host the first time takes many minutes: the progress is shown.
test: timeout=2700 long-timeout=5400
"""
import subprocess
import os
import time

from hutchlib import BUILD, STATE, case, main, note

LIMIT_S = 1500


def prepare(name):
    start = time.monotonic()
    p = subprocess.Popen([f"{BUILD}/hutch", "prepare", name, "--state",
                          STATE], stdin=subprocess.DEVNULL,
                         stderr=subprocess.STDOUT, stdout=subprocess.PIPE,
                         text=True, env=os.environ)
    for line in p.stdout:
        note(f"{time.monotonic() - start:6.1f} s {line.rstrip()}")
    assert p.wait(LIMIT_S) == 0, f"hutch prepare {name}: {p.returncode}"


@case("the snapshot of lbb/python is there")
def python():
    prepare("lbb/python")


@case("the snapshot of lbb/node is there")
def node():
    prepare("lbb/node")


@case("the snapshot of lbb/shell is there")
def shell():
    prepare("lbb/shell")


main()
