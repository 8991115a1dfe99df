"""Snapshots over HTTP: what tests of them share."""
import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time

import held
from hutchlib import Skip, equal, new_key, note

LIMITS = {"disk_mib": 512}
SNAPSHOTS = "/v1/sandboxes/snapshots"
MIB = 1 << 20
# Without a process for each step: those take a second on a soft host.
LEFT = ("echo $BASHPID > /tmp/pid; mkfifo /tmp/q; exec 3<>/tmp/q; while :; do "
        "read -t 1 -u 3; echo tick >> /tmp/ticks; done")
WHO = ("read -r a < /etc/machine-id; read -r b < /proc/sys/kernel/hostname; "
       "read -r c < /proc/sys/kernel/random/uuid; "
       "printf '%s\\n%s\\n%s\\n%(%s)T\\n' $a $b $c -1")
TICKS = "mapfile -t t < /tmp/ticks; echo ${#t[@]}"


def hold(c, **body):
    return held.hold(c, **dict({"limits": LIMITS}, **body))


def create_from(c, snapshot, key=None, **body):
    return c.call("POST", "/v1/sandboxes", dict(
        {"snapshot": snapshot, "wait_ms": 30000}, **body), key or new_key())


def begin(c, snapshot, **body):
    return held.running(c, create_from(c, snapshot, **body))


def start(c, sandbox, script, **more):
    r = held.start(c, sandbox, "bash", "-c", script, **more)
    assert r.status in (200, 202), r
    return r.json["id"]


def sh(c, sandbox, script, **more):
    """Output of a command that succeeds."""
    j = held.ended(c, start(c, sandbox, script, **more))
    equal(j["status"], "succeeded", j)
    return j["stdout"]["tail"]


def take(c, sandbox, key=None, **body):
    return c.call("POST", SNAPSHOTS, body, key or new_key(),
                  {"sandbox": sandbox})


def taken(c, sandbox, **body):
    began = time.monotonic()
    r = take(c, sandbox, **body)
    equal(r.status, 201, r)
    note(f"{r.json['bytes'] / MIB:.1f} MiB taken in "
         f"{time.monotonic() - began:.2f} s")
    return r.json


def listed(c, **query):
    r = c.call("GET", SNAPSHOTS, query=query)
    equal(r.status, 200, r)
    return r.json["data"]


def remove(c, snapshot):
    return c.call("DELETE", SNAPSHOTS, query={"snapshot": snapshot})


def at_once(fn, args):
    """fn(x) of each in a thread; the values, in order."""
    got = [None] * len(args)

    def run(i):
        got[i] = fn(args[i])

    threads = [threading.Thread(target=run, args=(i,))
               for i in range(len(args))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(x is not None for x in got), got
    return got


def space(daemon):
    r = daemon.admin("GET", "/admin/df")
    equal(r.status, 200, r)
    return {k["kind"]: k for k in r.json["kinds"]}, r.json


def du(path):
    return int(subprocess.run(["du", "-s", "-B1", path], check=True, text=True,
                              stdout=subprocess.PIPE).stdout.split()[0])


@contextlib.contextmanager
def disk_of_its_own(mib, kind, *options):
    """A folder on a file system of this kind, in a file."""
    top = tempfile.mkdtemp(dir=os.environ.get("TMPDIR"))
    image, folder = f"{top}/image", f"{top}/disk"
    os.mkdir(folder)
    with open(image, "wb") as f:
        f.truncate(mib * MIB)
    try:
        subprocess.run([f"mkfs.{kind}", "-q", *options, image], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except FileNotFoundError as e:
        raise Skip(f"mkfs.{kind} is missing (make deps)") from e
    p = subprocess.run(["mount", "-o", "loop", image, folder], text=True,
                       capture_output=True)
    if p.returncode:
        shutil.rmtree(top)
        raise Skip(f"no {kind} can be mounted here: {p.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        shutil.rmtree(top)
