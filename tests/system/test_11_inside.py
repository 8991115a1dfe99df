#!/usr/bin/env python3
"""What user code sees: our kernel, no network, no credential, a workspace.

test: timeout=1500 beside=yes seconds=50
"""
import json
import os
import re

from hutchlib import BUILD, case, client, equal, main

LOOK = r"""
import errno, os, platform, pwd, socket, subprocess, sys, time

def tries():
    out = {}
    for name, family, address in (
            ("ip4", socket.AF_INET, ("192.0.2.1", 80)),
            ("loopback-out", socket.AF_INET, ("10.0.0.1", 53)),
            ("ip6", socket.AF_INET6, ("2001:db8::1", 80)),
            ("vsock", 40, (2, 1024)),
            ("vsock-self", 40, (3, 1024)),
            ("vsock-other", 40, (4, 1024)),
            ("vsock-local", 40, (1, 1024))):
        t = time.monotonic()
        try:
            s = socket.socket(family, socket.SOCK_STREAM)
            s.settimeout(20)
            s.connect(address)
            how = "connected"
        except OSError as e:
            how = errno.errorcode.get(e.errno, repr(e))
        out[name] = [how, time.monotonic() - t]
    try:
        socket.getaddrinfo("example.com", 80)
        out["dns"] = ["resolved", 0]
    except OSError as e:
        out["dns"] = [str(e), 0]
    return out

def run(input, config):
    return {
        "version": open("/proc/version").read(),
        "net": os.listdir("/sys/class/net") if os.path.isdir(
            "/sys/class/net") else [x.split(":")[0].strip() for x in
            open("/proc/net/dev").read().splitlines()[2:]],
        "env": dict(os.environ),
        "cmdline": open("/proc/cmdline").read(),
        "uid": [os.getuid(), os.geteuid(), os.getgid(), os.getgroups()],
        "caps": [l for l in open("/proc/self/status") if l.startswith("Cap")],
        "nnp": [l for l in open("/proc/self/status") if "NoNewPrivs" in l],
        "cwd": os.getcwd(),
        "python": sys.version_info[:2],
        "which": [subprocess.run([p, "-c", "print(1)"], capture_output=True,
                  text=True).stdout for p in ("python", "python3")],
        "root_write": os.access("/usr", os.W_OK),
        "cpus": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "time": time.time(),
        "tries": tries(),
    }
"""
seen = {}


@case("the sandbox answers about itself")
def look():
    r = client().run(LOOK, timeout_ms=300000)
    assert r.ok, (r, r.logs("stderr"))
    seen.update(r.result)


@case("LBB-52: /proc/version is our kernel, not the host's")
def kernel():
    with open("/proc/version") as f:
        assert seen["version"] != f.read()
    with open(f"{BUILD}/images/images.json") as f:
        names = json.dumps(json.load(f))
    assert re.search(r"Linux version 6\.12\.", seen["version"]), seen
    assert "kernel" in names or "vmlinux" in names


@case("LBB-52: no network device: /sys/class/net has only lo")
def devices():
    assert set(seen["net"]) <= {"lo"}, seen["net"]


@case("LBB-52: connecting anywhere fails at once")
def connect():
    for name, (how, seconds) in seen["tries"].items():
        assert how not in ("connected", "resolved"), (name, how)
        assert seconds < 1, (name, how, seconds)


@case("LBB-53: no credential in the environment or the command line")
def credential():
    text = json.dumps([seen["env"], seen["cmdline"]])
    for word in ("lbb_sk", "KEY", "TOKEN", "SECRET", "PASSWORD", "HUTCH",
                 client().key):
        assert word not in text, (word, text)
    own = ("PATH", "HOME", "LANG", "PWD", "SHLVL", "_", "TERM", "USER",
           "LOGNAME", "SHELL", "LC_ALL", "TMPDIR",
           "PYTHONDONTWRITEBYTECODE")  # the guest sets it: read-only image
    for name in os.environ:
        if name not in own:
            assert name not in seen["env"], f"{name} is from the host"


@case("user code is no root and has no capability")
def user():
    uid, euid, gid, groups = seen["uid"]
    assert uid == euid and uid >= 1000 and gid >= 1000, seen["uid"]
    assert 0 not in groups, groups
    for line in seen["caps"]:
        name, value = line.split()
        if name != "CapBnd:":
            equal(int(value, 16), 0, name)
    assert not seen["root_write"]


@case("LBB-100 LBB-54: Python 3.13 as python and python3, in /workspace")
def python():
    equal(seen["python"], [3, 13])
    equal(seen["which"], ["1\n", "1\n"])
    equal(seen["cwd"], "/workspace")


@case("N3: the guest's clock is the host's within 2 s")
def clock():
    r = client().run("import time\ndef run(i, c): return time.time()")
    c = client().command(r.command).json
    import datetime
    ended = datetime.datetime.fromisoformat(
        c["ended_at"].replace("Z", "+00:00")).timestamp()
    assert abs(ended - r.result) < 2, (ended, r.result)


@case("N1: two sandboxes share no random numbers, ids or names")
def clones():
    code = ("import os, random, uuid, socket, tempfile\n"
            "def run(i, c): return [os.urandom(16).hex(), random.random(),"
            " str(uuid.uuid4()), socket.gethostname(),"
            " open('/etc/machine-id').read(), tempfile.mktemp(),"
            " open('/proc/sys/kernel/random/uuid').read()]")
    a, b = client().run(code).result, client().run(code).result
    for x, y in zip(a, b):
        assert x != y, (a, b)


@case("limits: 2 vCPUs and 512 MiB are what the guest has")
def shape():
    """In the shell, whose snapshot of another shape is made quickly."""
    r = client().run("n=$(grep -c ^processor /proc/cpuinfo)\n"
                     "read -r _ kib _ </proc/meminfo\n"
                     "echo \"[$n, $kib]\" >\"$RUN_RESULT\"",
                     template="lbb/shell",
                     limits={"vcpus": 2, "memory_mib": 512},
                     timeout_ms=300000, seconds=900)
    assert r.ok, (r, r.logs("stderr"))
    equal(r.result[0], 2)
    assert 400 << 10 < r.result[1] <= 512 << 10, r.result


main()
