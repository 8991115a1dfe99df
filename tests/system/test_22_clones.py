#!/usr/bin/env python3
"""N1 N3: clones of one template snapshot share nothing random, nothing of an
identity, and know the time.

Each run asks every source of randomness that its language has, once, and no
two clones may have the same answer from any of them.  Clones come by every way
that a run can go (WAYS): by the lane of a VM that waited, by the channel of
one, restored for the run alone and with others at the same moment.  All of
them are compared with all others.  What a program that was started before the
snapshot cannot change any more (guest/README.md, "Clones of one snapshot") is
asked for, too: it must be just that.

`make check` takes fewer clones than the hundred of `make check-long`.

test: timeout=900 long-timeout=3600 beside=yes lane=only seconds=40
"""
import glob
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
import types

import held
from hutchlib import (Daemon, IS_LONG, STATE, TOP, case, equal, filled, main,
                      note, sha256, snapshot_folder, timings, wait_until)

sys.path.append(os.path.join(TOP, "tests", "guest"))
import cbor  # noqa: E402

PLACES = dict(graph_places=40, environment_places=40)
# name: settings, VMs that wait, runs at once, clones, clones when long
WAYS = {
    "lane": (dict(pool_python=4, pool_max=4), 4, 4, 12, 40),
    "channel": (dict(pool_python=2, pool_max=2, lane="off"), 2, 2, 2, 20),
    "together": (dict(pool_max=0), 0, 8, 8, 32),
    "alone": (dict(pool_max=0), 0, 1, 1, 8),
    "alone, no lane": (dict(pool_max=0, lane="off"), 0, 1, 1, 8),
}
NODE_WAYS = {
    "lane": (dict(pool_python=0, pool_node=2, pool_max=2), 2, 2, 4, 10),
    "together": (dict(pool_max=0), 0, 4, 4, 10),
}
SHELL_WAYS = {
    "channel": (dict(pool_python=0, pool_shell=2, pool_max=2), 2, 2, 2, 10),
    "together": (dict(pool_max=0), 0, 2, 2, 10),
}
# These ask also for what costs seconds on a soft host: another OpenSSL, that of
# the package cryptography.
THOROUGH = ("channel", "alone")
# Sandboxes that are held, and runs of each: their runners all waited.
HELD, HELD_LONG, HELD_RUNS = 2, 12, 3
CLOCK_S = 2
RUN_MS = 300000
AGE_S = 75 * 3600
MSR_TSC, MSR_DEADLINE, MSR_KVMCLOCK = 0x10, 0x6e0, 0x4b564d01
BLOCK_BYTES = 4096

PYTHON = r"""
import time

def run(input, config):
    now = time.time()
    import ctypes, logging, os, platform, random, secrets, socket, ssl
    import tempfile, uuid
    import numpy as np
    import pyarrow.compute as pc

    def read(path):
        with open(path) as f:
            return f.read().strip()

    def device(path, n):
        with open(path, "rb", buffering=0) as f:
            return f.read(n).hex()

    more = {}
    if input["thorough"]:
        from cryptography.hazmat.primitives.asymmetric.x25519 import \
            X25519PrivateKey
        more["cryptography's"] = \
            X25519PrivateKey.generate().private_bytes_raw().hex()

    c = ctypes.CDLL(None)
    c.getauxval.restype = ctypes.c_void_p
    seed = ctypes.string_at(c.getauxval(25), 16).hex()      # AT_RANDOM
    wake = time.monotonic()
    time.sleep(0.1)
    slept = time.monotonic() - wake
    return {
        "now": now,
        "monotonic": time.monotonic(),
        "slept": slept,
        "relative": logging.makeLogRecord({}).relativeCreated,
        "names": [socket.gethostname(), platform.node(), os.uname().nodename,
                  read("/proc/sys/kernel/hostname")],
        "random": {
            "/dev/urandom": device("/dev/urandom", 1024),
            "/dev/random": device("/dev/random", 16),
            "getrandom": os.getrandom(16).hex(),
            "os.urandom": os.urandom(16).hex(),
            "machine-id": read("/etc/machine-id"),
            "boot_id": read("/proc/sys/kernel/random/boot_id"),
            "kernel uuid": read("/proc/sys/kernel/random/uuid"),
            "host name": socket.gethostname(),
            "random": random.random(),
            "getrandbits": random.getrandbits(64),
            "shuffle": str(random.sample(range(10**6), 8)),
            "a new Random": random.Random().random(),
            "default_rng": int(np.random.default_rng().integers(2**62)),
            "numpy's global": float(np.random.random()),
            "numpy's permutation": str(np.random.permutation(10**4)[:8]),
            "RandomState": float(np.random.RandomState().random_sample()),
            "arrow": str(pc.random(2).to_pylist()),
            "uuid4": str(uuid.uuid4()),
            "uuid1": str(uuid.uuid1()),
            "uuid1's node": uuid.uuid1().node,
            "getnode": uuid.getnode(),
            "secrets": secrets.token_hex(16),
            "mktemp": tempfile.mktemp(),
            "mkdtemp": tempfile.mkdtemp(),
            "OpenSSL": ssl.RAND_bytes(16).hex(),
            **more,
        },
        "kept": {
            "hash seed": hash("hutch"),
            "stack canary, pointer guard": seed,
            "address of a function": ctypes.cast(c.getpid,
                                                 ctypes.c_void_p).value,
            "address of an object": id(os),
        },
    }
"""

NODE = r"""
const crypto = require("node:crypto"), fs = require("node:fs");
const os = require("node:os"), vm = require("node:vm");

function run() {
	const now = Date.now() / 1000;
	const read = (path) => fs.readFileSync(path, "utf8").trim();
	return {
		now,
		origin: (performance.timeOrigin + performance.now()) / 1000,
		names: [os.hostname(), read("/proc/sys/kernel/hostname")],
		random: {
			"randomBytes": crypto.randomBytes(16).toString("hex"),
			"randomUUID": crypto.randomUUID(),
			"randomUUID, not cached":
				crypto.randomUUID({ disableEntropyCache: true }),
			"randomInt": crypto.randomInt(2 ** 47),
			"web crypto": String(crypto.webcrypto.getRandomValues(
				new Uint32Array(4))),
			"x25519": crypto.generateKeyPairSync("x25519").privateKey
				.export({ format: "jwk" }).d,
			"Math.random": Math.random(),
			"Math.random again": [1, 2, 3].map(Math.random).join(),
			"mkdtemp": fs.mkdtempSync("/tmp/t"),
			"machine-id": read("/etc/machine-id"),
			"boot_id": read("/proc/sys/kernel/random/boot_id"),
			"host name": os.hostname(),
		},
		kept: {
			"Math.random of a new vm context":
				vm.runInNewContext("Math.random()"),
		},
	};
}
"""

# No program is started: that costs seconds where the kernel is interpreted.
SHELL = r"""
now=$EPOCHREALTIME seconds=$SECONDS random="$RANDOM $RANDOM $RANDOM $RANDOM"
read -r machine < /etc/machine-id
read -r boot < /proc/sys/kernel/random/boot_id
read -r uuid < /proc/sys/kernel/random/uuid
read -r name < /proc/sys/kernel/hostname
printf '{"now": %s, "seconds": %d, "names": ["%s", "%s"], "random": {
"RANDOM": "%s", "SRANDOM": "%s %s", "a subshell'"'"'s": "%s",
"machine-id": "%s", "boot_id": "%s", "kernel uuid": "%s"}, "kept": {}}' \
	"$now" "$seconds" "$HOSTNAME" "$name" "$random" "$SRANDOM" "$SRANDOM" \
	"$(echo $RANDOM $RANDOM $RANDOM $RANDOM)" "$machine" "$boot" "$uuid" \
	> "$RUN_RESULT"
"""


# What a run starts itself is not a clone of anything.
PYTHON_CHILD = r"""
import subprocess, time

def run(input, config):
    now = time.time()
    out = subprocess.run(["python3", "-I", "-S", "-c",
        "for line in open('/proc/self/maps'):\n"
        "    if '[stack]' in line: print(line.split('-')[0])\n"
        "print(hash('hutch'))"], capture_output=True, text=True, check=True)
    stack, seed = out.stdout.split()
    return {"now": now, "random": {"stack": stack, "hash seed": seed}}
"""

NODE_CHILD = r"""
const { Worker } = require("node:worker_threads");

async function run() {
	const now = Date.now() / 1000;
	const w = new Worker("require('node:worker_threads').parentPort" +
		".postMessage(Math.random())", { eval: true });
	const value = await new Promise((done, fail) => {
		w.on("message", done);
		w.on("error", fail);
	});
	return { now, random: { "Math.random of a Worker": value } };
}
"""


class Clone:
    def __init__(self, way, run, before, after):
        assert run.ok, (run, run.logs("stderr"))
        self.way, self.sandbox = way, run.sandbox
        self.said = run.result
        self.before, self.after = before, after

    def __repr__(self):
        return f"{self.sandbox} ({self.way})"

    def is_on_time(self, t):
        return self.before - CLOCK_S <= t <= self.after + CLOCK_S

    def check(self):
        """Its own name everywhere, and the host's time."""
        want = self.sandbox.replace("_", "-")
        equal(set(self.said["names"]), {want}, f"names in {self}")
        assert self.is_on_time(self.said["now"]), \
            (self, self.before, self.said["now"], self.after)


def wave(client, code, n, way, template):
    """n runs, asked for at once."""
    got, errors = [], []

    def one():
        try:
            before = time.time()
            run = client.run(code, template=template, timeout_ms=RUN_MS,
                             input={"thorough": way in THOROUGH})
            got.append(Clone(way, run, before, time.time()))
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=one) for _ in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return got


def clones(name, code, template="lbb/python", ways=WAYS):
    """As many as the way says, and all of them went that way."""
    settings, waiting, at_once, n, n_long = ways[name]
    n = n_long if IS_LONG else n
    folder = f"{STATE}-{template[4:]}-{name.replace(', ', '-')}"
    d = Daemon(folder.replace(" ", "-"), **settings, **PLACES).start()
    got, start = [], time.monotonic()
    try:
        client = d.client()
        while len(got) < n:
            filled(d, waiting)
            got += wave(client, code, min(at_once, n - len(got)), name,
                        template)
        wait_until(lambda: len(timings(d)) == n, 10, "all timings are said")
        seen = [t["timing"] for t in timings(d)]
        equal(seen, ["claimed" if waiting else "restored"] * n, name)
        lanes = d.metric("hutch_lane_runs_total")
        has_lane = template != "lbb/shell" and "lane" not in settings
        equal(lanes, n if has_lane else 0, "runs by the lane")
    finally:
        d.stop()
    note(f"{template} {name}: {n} in {time.monotonic() - start:.1f} s")
    return got


# What the runs of one sandbox have in common.
IDENTITY = ("machine-id", "boot_id", "host name", "uuid1's node", "getnode")


def check_distinct(got):
    sources = set().union(*(c.said["random"] for c in got))
    for source in sources:
        seen = {}
        for c in got:
            if source not in c.said["random"]:
                continue
            value = c.said["random"][source]
            assert value not in ("", None), (source, c)
            other = seen.setdefault(value, c)
            assert other is c, f"{source}: {value!r} in {other} and {c}"
    note(f"{len(got)} clones, {len(sources)} sources: all values differ")


def check_kept(got):
    """Just what guest/README.md says; what has become different is to be
    taken off its list.  (A rehearsal moves a generator on: so by way.)"""
    for what in got[0].said["kept"]:
        for way in {c.way for c in got}:
            equal(len({c.said["kept"][what] for c in got if c.way == way}), 1,
                  f"{what}, {way}")


pythons, nodes, shells = [], [], []


@case("python by the lane")
def lane():
    pythons.extend(clones("lane", PYTHON))


@case("python by the channel of a VM that waited")
def channel():
    pythons.extend(clones("channel", PYTHON))


@case("python restored for the run, eight at a time")
def together():
    pythons.extend(clones("together", PYTHON))


@case("python restored for the run, one after another")
def alone():
    pythons.extend(clones("alone", PYTHON))
    pythons.extend(clones("alone, no lane", PYTHON))


@case("N1: no two of them have a random value in common")
def python_distinct():
    equal(len(pythons), sum(w[4 if IS_LONG else 3] for w in WAYS.values()))
    check_distinct(pythons)
    print(f"# count={len(pythons)}")


@case("the same in all: what guest/README.md lists, and no more")
def python_kept():
    check_kept(pythons)


def check_clocks(got):
    """Each knows its own name and the host's time; its own time has gone on
    from the snapshot's (not by the snapshot's age); timers fire."""
    for c in got:
        c.check()
        assert 0 < c.said["monotonic"] < AGE_S / 2, (c, c.said["monotonic"])
        assert 0.09 < c.said["slept"] < CLOCK_S, (c, c.said["slept"])
        assert abs(c.said["relative"]) < 3600e3, (c, c.said["relative"])
    note("seconds since the template's boot: "
         f"{min(c.said['monotonic'] for c in got):.0f} to "
         f"{max(c.said['monotonic'] for c in got):.0f}; 0.1 s of sleep took "
         f"at most {max(c.said['slept'] for c in got):.2f} s")


@case("N3: names, clocks and timers are right in each")
def python_clocks():
    check_clocks(pythons)


@case("node: no random value in common, the host's time")
def node():
    for name in NODE_WAYS:
        nodes.extend(clones(name, NODE, "lbb/node", NODE_WAYS))
    check_distinct(nodes)
    check_kept(nodes)
    for c in nodes:
        c.check()
        assert c.is_on_time(c.said["origin"]), (c, c.said)


@case("shell: no random value in common, the host's time")
def shell():
    for name in SHELL_WAYS:
        shells.extend(clones(name, SHELL, "lbb/shell", SHELL_WAYS))
    check_distinct(shells)
    for c in shells:
        c.check()
        assert 0 <= c.said["seconds"] < 600, (c, c.said["seconds"])


@case("programs and workers that a run starts: nothing in common")
def children():
    d = Daemon(f"{STATE}-children", pool_max=0, **PLACES).start()
    try:
        for template, code in (("lbb/python", PYTHON_CHILD),
                               ("lbb/node", NODE_CHILD)):
            check_distinct(wave(d.client(), code, 2, "together", template))
    finally:
        d.stop()


@case("later runs of held sandboxes: by runners that waited, nothing in common")
def held_runs():
    d = Daemon(f"{STATE}-held", pool_max=0, **PLACES).start()
    got = []
    try:
        c = d.client()
        for _ in range(HELD_LONG if IS_LONG else HELD):
            box, runs = held.hold(c, template="lbb/python"), []
            for _ in range(HELD_RUNS):
                before = time.time()
                j = held.command(c, box, seconds=RUN_MS // 1000,
                                 timeout_ms=RUN_MS,
                                 run={"code": PYTHON,
                                      "input": {"thorough": False}})
                run = types.SimpleNamespace(
                    ok=j["status"] == "succeeded", sandbox=box, logs=str,
                    result=j.get("result"))
                runs.append(Clone("held", run, before, time.time()))
            got.append(runs)
            held.destroyed(c, box)
    finally:
        d.stop()
    for runs in zip(*got):
        check_distinct(runs)
    every = [run for runs in got for run in runs]
    for run in every:
        run.check()
        for name in IDENTITY:
            del run.said["random"][name]
    check_distinct(every)
    for runs in zip(*got):
        check_kept(runs)


# ---- a snapshot of long ago ------------------------------------------------

def sparse_sha256(path):
    """As hostd/image/sparse.h has it: over the size and each block of 4 KiB
    that is not all zero, with its offset."""
    sha = hashlib.sha256()
    with open(path, "rb") as f:
        size = os.fstat(f.fileno()).st_size
        sha.update(struct.pack("<Q", size))
        at = 0
        while True:
            try:
                at = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                return sha.hexdigest()
            at -= at % BLOCK_BYTES
            end = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            while at < end:
                block = os.pread(f.fileno(), BLOCK_BYTES, at)
                if block.strip(b"\0"):
                    sha.update(struct.pack("<Q", at))
                    sha.update(block)
                at += BLOCK_BYTES


def make_older(folder, seconds):
    """The snapshot as it would be, had it been saved `seconds` earlier on this
    host: its counter, and what is told in the counter's units, are lower by
    as much.  Those are the saved TSC, the TSC deadline, and the time stamp of
    the page where KVM told the guest how to read its clock.  kvm-clock itself
    is the guest's own time, which does not go on while it is a file."""
    with open(f"{folder}/state", "rb") as f:
        file = cbor.decode(f.read())
    body = cbor.decode(file[4])
    ticks = seconds * body[2] * 1000
    pages = []
    for vcpu in body[14]:
        for msr in vcpu[8]:
            if msr[1] in (MSR_TSC, MSR_DEADLINE) and msr[2]:
                msr[2] = (msr[2] - ticks) % (1 << 64)
            elif msr[1] == MSR_KVMCLOCK:
                pages.append(msr[2])
    assert len(pages) == len(body[14]), pages
    file[4] = cbor.encode(body)
    file[3] = hashlib.sha256(file[4]).digest()
    with open(f"{folder}/state", "wb") as f:
        f.write(cbor.encode(file))
    with open(f"{folder}/mem", "r+b") as f:
        for page in pages:
            assert page & 1, f"{page:#x}: no kvm-clock"
            # version, padding, TSC then, nanoseconds then, ...
            f.seek((page & ~1) + 8)
            tsc, = struct.unpack("<Q", f.read(8))
            assert tsc, "the guest was never told the time"
            f.seek((page & ~1) + 8)
            f.write(struct.pack("<Q", (tsc - ticks) % (1 << 64)))


def copy_aged(source, cache):
    """A cache with `source` as its one entry, aged; its meta.json."""
    folder = f"{cache}/snapshots/{os.path.basename(source)}"
    os.makedirs(folder)
    for name in ("state", "mem", "disk"):
        subprocess.run(["cp", "--sparse=always", f"{source}/{name}",
                        f"{folder}/{name}"], check=True)
    make_older(folder, AGE_S)
    with open(f"{source}/meta.json") as f:
        meta = json.load(f)
    files = meta["files"]
    for name, value in (("state", sha256(f"{folder}/state")),
                        ("mem", sparse_sha256(f"{folder}/mem"))):
        assert files[name]["sha256"] != value, f"{name} was not aged"
        files[name]["sha256"] = value
        files[name]["bytes"] = os.stat(f"{folder}/{name}").st_size
    with open(f"{folder}/meta.json", "w") as f:
        json.dump(meta, f)
    return f"{folder}/meta.json"


@case("N3: a snapshot that was saved 75 hours ago: its clones know the time")
def old():
    cache = f"{STATE}-old-cache"
    d = Daemon(f"{STATE}-old", cache_dir=cache, pool_python=1, pool_max=1,
               **PLACES)
    try:
        meta = copy_aged(snapshot_folder("lbb/python"), cache)
        made = os.stat(meta).st_ino
        d.start()
        filled(d, 1)
        # One waits, so of two at once the other is restored.
        got = wave(d.client(), PYTHON, 2, "old", "lbb/python")
        check_clocks(got)
        check_distinct(got + pythons)
        wait_until(lambda: len(timings(d)) == 2, 10, "both timings are said")
        equal(sorted(t["timing"] for t in timings(d)), ["claimed", "restored"])
        equal(os.stat(meta).st_ino, made, "the snapshot of long ago")
    finally:
        d.stop()
        shutil.rmtree(cache, ignore_errors=True)


main()
