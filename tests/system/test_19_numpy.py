#!/usr/bin/env python3
"""numpy in a sandbox gives the host's results, bit for bit, while other
processes of the sandbox run.

User code uses the vector registers of the real CPU, and on a soft host the
guest's kernel and the monitor save and restore them in software
(images/kernel/README.md).  One wrong bit there is a wrong number here.  The
host's side is the template's own interpreter and libraries, from the same
image, in a chroot.

test: timeout=2700 long-timeout=5400 beside=yes seconds=60
"""
import json
import os
import shutil
import subprocess
import tempfile

from hutchlib import (BUILD, IS_LONG, STATE, case, client, daemon, equal, hutch,
                      main, note)

PREPARE_S = 2400    # where nobody made the snapshot before
TIMEOUT_MS = 900000
IMAGE = os.path.realpath(f"{BUILD}/images/python.erofs")
LIMITS = {
    "seeds": [1, 2, 3],             # of the main process
    "other_seeds": [101, 102],      # of the second numpy
    "seconds": 120 if IS_LONG else 25,
    "rounds": 20 if IS_LONG else 6,
    # Times that the main process was put aside for another one
    "switches": 400 if IS_LONG else 40,
    "seconds_max": 600,
}

# What both sides run.  A digest for each operation, so that a wrong one has a
# name.  Sizes are small: on a soft host a page touched first costs 5 ms.
COMPUTE = r"""
import ctypes, glob, hashlib, math, sys
import numpy as np

def digests(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, 90, 90))
    x = rng.standard_normal(8000)
    p = np.abs(x) + 0.01
    n = rng.integers(-2**40, 2**40, 8000)
    a4, b4, x4, p4 = (v.astype("f4") for v in (a, b, x, p))
    n4 = n.astype("i4")
    parts = {
        "random": x, "matmul f8": a @ b, "matmul f4": a4 @ b4,
        "matrix vector": a @ x[:90], "dot": np.dot(x, p),
        "solve": np.linalg.solve(a, b), "svd": np.linalg.svd(a)[1],
        "sort f8": np.sort(x), "sort f4": np.sort(x4), "sort i8": np.sort(n),
        "sort i4": np.sort(n4), "argsort": np.argsort(x, kind="stable"),
        "partition": np.partition(x, 4000)[:4000].sum(),
        "fft": np.fft.fft(x), "rfft": np.fft.rfft(p[:6561]),
        "exp f8": np.exp(x), "exp f4": np.exp(x4), "log f8": np.log(p),
        "log f4": np.log(p4), "sin f8": np.sin(x * 50),
        "sin f4": np.sin(x4), "tanh": np.tanh(x), "power": p ** 1.37,
        "sqrt": np.sqrt(p4), "cumsum f8": np.cumsum(x),
        "cumsum f4": np.cumsum(x4), "cumsum i8": np.cumsum(n),
        "sum f8": x.sum(), "sum f4": x4.sum(), "std": x4.std(),
        "multiply i8": n * 3 - (n >> 7), "divide i8": n // 7 + n % 11,
        "i4": n4 * n4 ^ n4 << 3, "f8 to i4": (x * 1e6).astype("i4"),
        "where": np.where(x > 0, x, -p), "einsum": np.einsum("ij,jk", a, b),
    }
    return {k: hashlib.sha256(np.ascontiguousarray(v).tobytes()).hexdigest()
            for k, v in parts.items()}

def python_loop():
    x, s = 0.3, 0.0
    for i in range(3000):
        x = 3.99 * x * (1.0 - x)
        s += math.sin(x) * math.exp(-x) / (i + 1)
    return float.hex(x) + float.hex(s)

def who():
    from numpy._core._multiarray_umath import __cpu_features__ as have
    lib = ctypes.CDLL(glob.glob(np.__path__[0] + ".libs/*openblas*")[0])
    name = lib.scipy_openblas_get_corename64_
    name.restype = ctypes.c_char_p
    return {"python": sys.version, "numpy": np.__version__,
            "features": sorted(k for k, v in have.items() if v),
            "blas": name().decode(),
            "threads": lib.scipy_openblas_get_num_threads64_()}
"""

GUEST = COMPUTE + r"""
import json, mmap, os, resource, time

def add(seen, new):
    for k, v in new.items():
        at = seen.setdefault(k, {})
        at[v] = at.get(v, 0) + 1

def until_stopped(stop, work):
    seen, n = {}, 0
    while not stop[0]:
        add(seen, work(n))
        n += 1
    return [n, seen]

def start(stop, work):
    r, w = os.pipe()
    if os.fork() == 0:
        try:
            os.close(r)
            data = json.dumps(until_stopped(stop, work)).encode()
            while data:
                data = data[os.write(w, data):]
        finally:
            os._exit(0)
    os.close(w)
    return r

def run(input, config):
    stop = mmap.mmap(-1, 4096)
    seeds, others = input["seeds"], input["other_seeds"]
    loop = lambda n: {"loop": python_loop()}
    t = time.monotonic()
    ends = [start(stop, loop), start(stop, loop), start(stop, lambda n: {
        f"{s} {k}": v for s in [others[n % len(others)]]
        for k, v in digests(s).items()})]
    forked, t = time.monotonic() - t, time.monotonic()
    before = resource.getrusage(resource.RUSAGE_SELF)
    seen, n = {}, 0
    while True:
        s = seeds[n % len(seeds)]
        add(seen, {f"{s} {k}": v for k, v in digests(s).items()})
        n += 1
        now = resource.getrusage(resource.RUSAGE_SELF)
        switches = now.ru_nivcsw - before.ru_nivcsw
        took = time.monotonic() - t
        if took > input["seconds_max"] or (
                n >= input["rounds"] and took >= input["seconds"] and
                switches >= input["switches"]):
            break
    stop[0] = 1
    there = []
    for r in ends:
        with os.fdopen(r, "rb") as f:
            there.append(json.loads(f.read()))
        os.wait()
    return {"who": who(), "rounds": n, "seen": seen, "others": there,
            "switches": switches, "seconds": round(took, 1),
            "forked_s": round(forked, 1),
            "cpu_s": round(now.ru_utime - before.ru_utime, 1)}
"""

HOST = COMPUTE + r"""
import json
seeds = json.loads(sys.argv[1])
print(json.dumps({"who": who(), "loop": python_loop(), "seen": {
    f"{s} {k}": v for s in seeds for k, v in digests(s).items()}}))
"""

# glibc's names of what chooses the variants of its mathematical functions
GLIBC = {"FMA3": "FMA", "FMA4": "FMA4", "AVX": "AVX", "AVX2": "AVX2",
         "AVX512F": "AVX512F"}
# numpy's names of what it chooses by at run time, and takes by one name
NUMPY = ("X86_V3", "X86_V4", "AVX512_ICL", "AVX512_SPR")
seen = {}


def host_run(tree, seeds, **env):
    """HOST in a chroot of the template's own files, as nobody special."""
    env = [f"{k}={v}" for k, v in env.items() if v != ""]
    r = subprocess.run(
        ["chroot", "--userspec=1000:1000", tree, "/usr/bin/env", "-i",
         "PATH=/usr/bin", *env, "/usr/bin/python3", "-I", "-c", HOST,
         json.dumps(seeds)], capture_output=True, text=True, timeout=600)
    assert r.returncode == 0, (env, r.stderr)
    return json.loads(r.stdout)


def pins(guest, host):
    """Environment that makes the host choose as the guest did."""
    more = set(guest["features"]) - set(host["features"])
    assert not more, f"the guest sees features that the host lacks: {more}"
    fewer = set(host["features"]) - set(guest["features"])
    if fewer:
        note(f"the guest sees fewer CPU features, so both are pinned to its: "
             f"without {' '.join(sorted(fewer))}")
    tunables = [f"-{GLIBC[f]}" for f in sorted(fewer) if f in GLIBC]
    return {"OPENBLAS_CORETYPE": guest["blas"],
            "OPENBLAS_NUM_THREADS": guest["threads"],
            "NPY_DISABLE_CPU_FEATURES": " ".join(
                f for f in NUMPY if f in fewer),
            "GLIBC_TUNABLES": tunables and "glibc.cpu.hwcaps=" +
            ",".join(tunables) or ""}


def choice(who):
    """What decides about a result's last bit, and must be equal."""
    return dict(who, features=sorted(set(NUMPY) & set(who["features"])))


def wrong(got, want):
    """Operations with any other digest than the host's, and how often."""
    assert set(got) <= set(want) and got, (sorted(got), sorted(want))
    return {k: {d[:12]: n for d, n in v.items()} | {"host": want[k][:12]}
            for k, v in got.items() if list(v) != [want[k]]}


@case("the snapshot of lbb/python is there")
def snapshot():
    daemon()  # it prepares; one that is under way elsewhere is waited for
    r = hutch("prepare", "lbb/python", "--state", STATE, timeout=PREPARE_S)
    assert r.returncode == 0, r.stderr[-2000:]
    seen["ready"] = True


@case("in one sandbox: numpy, a second numpy and two loops, for a while")
def guest():
    assert seen.get("ready"), "there is no snapshot"
    r = client().run(GUEST, input=LIMITS, timeout_ms=TIMEOUT_MS,
                     seconds=TIMEOUT_MS // 1000 + 60)
    assert r.ok, (r, r.logs("stderr").decode())
    seen["guest"] = g = r.result
    note(f"{g['rounds']} rounds in {g['seconds']} s, {g['cpu_s']} s of CPU, "
         f"put aside {g['switches']} times; the others did "
         f"{[n for n, _ in g['others']]}; started in {g['forked_s']} s")
    assert g["switches"] >= LIMITS["switches"], g["switches"]
    assert g["rounds"] >= LIMITS["rounds"], g["rounds"]
    assert all(n > 0 for n, _ in g["others"]), g["others"]


@case("the host runs the same on the template's own files")
def host():
    guest = seen["guest"]["who"]
    tree = tempfile.mkdtemp(prefix="python-tree.")
    try:
        subprocess.run(["fsck.erofs", f"--extract={tree}", "--overwrite",
                        IMAGE], check=True, capture_output=True)
        os.chmod(tree, 0o755)
        plain = host_run(tree, [])["who"]
        h = host_run(tree, LIMITS["seeds"] + LIMITS["other_seeds"],
                     **pins(guest, plain))
    finally:
        shutil.rmtree(tree)
    equal(choice(h["who"]), choice(guest),
          "interpreter, numpy, its CPU features, BLAS kernel, threads")
    note(f"numpy {guest['numpy']}, OpenBLAS kernel {guest['blas']}, "
         f"{guest['threads']} thread, {' '.join(guest['features'])}")
    seen["host"] = h


@case("bit for bit: every operation of every round, in both numpy processes")
def bits():
    g, want = seen["guest"], seen["host"]["seen"]
    equal(wrong(g["seen"], want), {}, "main process")
    equal(wrong(g["others"][2][1], want), {}, "second numpy")
    n = sum(c for s in (g["seen"], g["others"][2][1]) for v in s.values()
            for c in v.values())
    note(f"count={n}")
    note(f"{n} arrays compared, 0 differ")


@case("bit for bit: the loops of floats in pure Python")
def loops():
    want = {"loop": seen["host"]["loop"]}
    for n, got in seen["guest"]["others"][:2]:
        equal(wrong(got, want), {}, f"a loop of {n} turns")


main()
