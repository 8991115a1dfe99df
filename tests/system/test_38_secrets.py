#!/usr/bin/env python3
"""LBB-127: values of env and stdin are in no record, log, database or crash file,
whatever becomes of the sandbox, the VM and the daemon.

Each case gives values of its own to what it does; then the whole state folder,
the daemon's working folder (where core files would be) and all that the command
line said is searched for all values so far, in every spelling of marked.py.
What must hold them is in ALLOWED: the guest's own memory and disk.

test: timeout=900 beside=yes
"""
import contextlib
import json
import os
import re
import resource
import signal
import stat
import subprocess
import sqlite3
import time

import marked as ours
from held import (SHELL, command, create, destroyed, ended, hold, resumed, sh,
                  start, stopped)
from hutchlib import (BUILD, Daemon, STATE, case, equal, main, new_key, note,
                      wait_until)
import snaps

# Below the state folder: what the guest itself had in its memory, and on its
# disk (swapped or written by its own programs), while it is stopped or kept.
# 0600 or 0400, in folders of 0700, and gone with the sandbox or the snapshot.
ALLOWED = (
    (r"stopped/sbx_\w+/(mem|disk)", "a stopped sandbox is its memory and disk"),
    (r"snapshots/snp_\w+/(mem|disk)", "a user's snapshot is, too"),
)
# Space is claimed, which is quick: a soft host writes half a megabyte a second.
FILL = """
import os
def run(input, config):
    fd = os.open('/workspace/all', os.O_CREAT | os.O_WRONLY, 0o600)
    at = 0
    for step in (8 << 20, 1 << 20, 64 << 10, 4096):
        try:
            while True:
                os.posix_fallocate(fd, at, step)
                at += step
        except OSError:
            pass
    return at
"""
CWD = STATE + ".cwd"
KEPT = re.compile("|".join(f"^{p}$" for p, _ in ALLOWED))

values = ours.Values()
said = []       # what the command line printed
d = Daemon(STATE + "-secrets", pool_shell=1, pool_max=1, graph_places=10,
           environment_places=20)


@contextlib.contextmanager
def cores_allowed():
    """As an operator's shell may have it: what is started here may leave core
    files, in CWD where the kernel writes them to the working folder."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    with contextlib.suppress(ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_CORE,
                           (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    os.makedirs(CWD, exist_ok=True)
    was = os.getcwd()
    os.chdir(CWD)
    try:
        yield
    finally:
        os.chdir(was)
        resource.setrlimit(resource.RLIMIT_CORE,
                           (soft, resource.getrlimit(
                               resource.RLIMIT_CORE)[1]))


def client():
    if not d.is_alive():
        with cores_allowed():
            d.start()
    return d.client()


def cli(*argv, stdin=None):
    p = subprocess.run([f"{BUILD}/hutch", "--state", d.state, *argv],
                       input=stdin, capture_output=True, timeout=300)
    said.append(p.stdout + p.stderr)
    return p


def secrets_of(what):
    """Values for env and stdin, said to nobody but the request."""
    return values.new(f"env of {what}"), values.new(f"stdin of {what}")


def searched():
    """Nothing has a value but what is allowed; returns what has, by path."""
    for _ in range(2):
        found = values.in_folder(d.state)
        leaks = {p: v for p, v in found.items() if not KEPT.match(p)}
        if not leaks:
            break
        time.sleep(1)       # a file under way, under its other name
    equal(leaks, {}, "values in the state folder")
    equal(values.in_folder(CWD), {}, "values in the working folder")
    for text in said:
        equal(values.inside(text), [], "the command line's output")
    for path in found:
        path = os.path.join(d.state, path)
        with contextlib.suppress(FileNotFoundError):
            assert not stat.S_IMODE(os.stat(path).st_mode) & 0o177, path
            equal(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode), 0o700,
                  path)
    return found


def replies(c, *ids):
    """All that the API says of these."""
    for i in ids:
        if i.startswith("cmd_"):
            said.append(c.command(i).body)
            for stream in ("stdout", "stderr"):
                said.append(c.log_slice(i, stream).body)
        else:
            said.append(c.call("GET", "/v1/sandboxes/get",
                               query={"sandbox": i}).body)


@case("LBB-127: the search finds a value in every spelling, and in the database")
def control():
    c = client()
    value = values.new("control")
    folder = CWD + ".control"
    os.makedirs(folder, exist_ok=True)
    for how, needle in ours.spellings(value).items():
        with open(f"{folder}/{how}", "wb") as f:
            f.write(b"x" * (ours.CHUNK - 9) + needle + b"y")
    equal(sorted(values.in_folder(folder)), sorted(ours.spellings(value)))
    # base64 of a text that has it anywhere is found.
    import base64
    for shift in range(7):
        text = base64.b64encode(b"a" * shift + value.encode() + b"tail")
        assert values.inside(text), shift
    # argv is in the record: the search looks where records are.
    box = hold(c)
    command(c, box, "true", value)
    assert any(p.startswith("hutch.db") for p in values.in_folder(d.state)), \
        values.in_folder(d.state)
    destroyed(c, box)
    values.needles = []
    # Core files are allowed, and one is left where nothing forbids it.
    with cores_allowed():
        limit = resource.getrlimit(resource.RLIMIT_CORE)
        subprocess.run(["sh", "-c", "kill -SEGV $$"], check=False)
        left = [n for n in os.listdir(CWD) if n.startswith("core")]
        for name in left:
            os.unlink(name)
    note(f"core limit {limit}, core files of a shell that crashed: {left}")


@case("LBB-127: one-call runs: good, failing, timed out, refused, asked again")
def runs():
    c = client()
    env, _ = secrets_of("runs")
    good = c.run('test ${#V} -gt 20; echo ${#V}; echo 1 >"$RUN_RESULT"',
                 template=SHELL, env={"V": env})
    equal((good.status, good.result), ("succeeded", 1), good)
    bad = c.run("exit 7", template=SHELL, env={"V": env})
    equal((bad.status, bad.exit_code), ("failed", 7))
    late = c.run("sleep 60", template=SHELL, env={"V": env}, timeout_ms=1500)
    equal(late.status, "timed_out")
    key = new_key()
    equal(c.start("true", key, template=SHELL, env={"V": env}).status, 202)
    r = c.start("true", key, template=SHELL, env={"V": env + "x"})
    equal((r.status, r.code), (409, "idempotency_conflict"), r)
    said.append(r.body)
    for refused in ({"env": {"LBB_" + "X": env}}, {"env": {"V": env}, "no": 1},
                    {"env": {"V": env + "\0"}}, {"env": {"V": [env]}},
                    {"env": {"V": env}, "timeout_ms": -1},
                    {"env": {"V": env * 9000}}):
        r = c.start("true", template=SHELL, **refused)
        assert r.status in (400, 413), r
        said.append(r.body)
    body = json.dumps({"run": {"code": "true", "env": {"V": env}}})
    for cut in (body[:-1], body + "}", body.replace(":", "=", 1)):
        r = c.call("POST", "/v1/sandboxes", cut, new_key())
        equal(r.status, 400)
        said.append(r.body)
    replies(c, good.command, bad.command, late.command, good.sandbox)
    searched()


@case("LBB-127: the command line: run, exec, ps, show, logs, export, doctor")
def command_line():
    client()
    env, stdin = secrets_of("the command line")
    file = CWD + ".sh"
    with open(file, "w", encoding="utf-8") as f:
        f.write('test ${#V} -gt 20 && echo 2 >"$RUN_RESULT"')
    p = cli("run", file, "--env", f"V={env}", "--json")
    equal(p.returncode, 0, p.stderr)
    run = json.loads(p.stdout)
    p = cli("sandbox", "create", "--template", SHELL, "--env", f"B={env}")
    equal(p.returncode, 0, p.stderr)
    box = p.stdout.decode().split()[-1]
    p = cli("sandbox", "exec", "--env", f"V={env}", "--stdin", "-", box, "--",
            "wc", "-c", stdin=stdin.encode())
    equal((p.returncode, p.stdout.split()), (0, [b"%d" % len(stdin)]),
          p.stderr)
    p = cli("run", file, "--env", f"V={env}", "--env", f"LBB_X={env}")
    assert p.returncode, p.stdout
    for argv in (("ps", "--json"), ("ps",), ("show", run["command"]),
                 ("show", box), ("logs", run["command"]), ("pool",), ("df",),
                 ("records", "export", "--format", "jsonl"),
                 ("records", "export"), ("doctor",)):
        cli(*argv)
    searched()
    equal(cli("sandbox", "rm", box).returncode, 0)


@case("LBB-127: held: commands, one that cannot start, stopped, resumed, gone")
def held_one():
    c = client()
    env, stdin = secrets_of("a held sandbox")
    own_env, _ = secrets_of("its commands")
    box = hold(c, env={"B": env}, idle_seconds=3600)
    a = command(c, box, "bash", "-c", "cat | wc -c; test ${#B} -gt 20 && "
                "test ${#V} -gt 20", env={"V": own_env}, stdin=stdin)
    equal((a["status"], a["stdout"]["tail"]),
          ("succeeded", f"{len(stdin)}\n"), a)
    no = command(c, box, "/no/such", env={"V": own_env}, stdin=stdin)
    equal(no["reason"], "not_started", no)
    bad = command(c, box, "bash", "-c", "kill -SEGV $$", env={"V": own_env},
                  stdin=stdin)
    equal(bad["reason"], "signal", bad)
    # One that still has its value in the guest's memory when it is stopped.
    left = start(c, box, "sleep", "1000", env={"V": own_env}, stdin=stdin,
                 timeout_ms=3600000)
    equal(left.status, 202, left)
    replies(c, a["id"], no["id"], bad["id"], box)
    equal(searched(), {})
    stopped(c, box)
    found = searched()
    assert any(p.startswith(f"stopped/{box}/mem") for p in found), \
        ("the memory of a guest holds what its programs have", found)
    note(f"stopped, allowed: {found}")
    resumed(c, box)
    wait_until(lambda: not searched(), 30, "resumed: nothing holds a value")
    stopped(c, box)
    assert searched()
    destroyed(c, box)
    wait_until(lambda: not searched(), 30, "gone with the sandbox")
    wait_until(lambda: box not in os.listdir(f"{d.state}/stopped"), 10,
               "its files are removed")


@case("LBB-127: a user's snapshot holds the guest's memory, and is gone with it")
def snapshot():
    c = client()
    env, stdin = secrets_of("a snapshot")
    box = snaps.hold(c, env={"B": env})
    left = start(c, box, "bash", "-c", "read -r x; sleep 1000",
                 env={"V": env}, stdin=stdin + "\n", timeout_ms=3600000)
    equal(left.status, 202, left)
    time.sleep(1)
    snap = snaps.taken(c, box)
    found = searched()
    assert any(p.startswith(f"snapshots/{snap['id']}/") for p in found), found
    note(f"kept, allowed: {found}")
    said.append(json.dumps(snap).encode())
    destroyed(c, box)
    equal(c.call("DELETE", "/v1/sandboxes/snapshots",
                 query={"snapshot": snap["id"]}).status, 200)
    wait_until(lambda: not searched(), 30, "gone with the snapshot")


@case("LBB-127: a guest whose disk is full")
def full():
    c = client()
    env, stdin = secrets_of("a full disk")
    box = hold(c, template="lbb/python", limits={"disk_mib": 256})
    r = start(c, box, run={"code": FILL}, wait_ms=30000, timeout_ms=600000)
    equal(ended(c, r.json["id"], 600)["status"], "succeeded", r)
    j = command(c, box, "bash", "-c", "echo x > more || echo full; wc -c",
                env={"V": env}, stdin=stdin, timeout_ms=600000)
    equal(j["stdout"]["tail"].split()[-1], str(len(stdin)), j)
    assert "full" in j["stdout"]["tail"], j
    replies(c, j["id"])
    equal(searched(), {})
    destroyed(c, box)


@case("LBB-127: the VM crashes under a command; core files are allowed")
def vm_crash():
    c = client()
    env, stdin = secrets_of("a VM that crashed")
    box = hold(c, env={"B": env})
    left = start(c, box, "bash", "-c", "read -r x; sleep 1000",
                 env={"V": env}, stdin=stdin + "\n", timeout_ms=3600000)
    queued = [start(c, box, "sleep", "1000", env={"V": env}, stdin=stdin,
                    timeout_ms=3600000) for _ in range(9)]
    equal({r.status for r in queued}, {202})
    time.sleep(1)
    os.kill(d.vmm_pids()[box], signal.SIGSEGV)
    j = ended(c, left.json["id"])
    equal((j["status"], j["reason"]), ("lost", "vm_lost"), j)
    replies(c, left.json["id"], queued[-1].json["id"], box)
    equal(searched(), {})
    equal(os.listdir(CWD), [])


@case("LBB-127: hutchd is killed, and crashes, with commands under way")
def daemon_dies():
    for sig in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
        c = client()
        env, stdin = secrets_of(f"a daemon that got signal {sig}")
        box = hold(c, env={"B": env})
        begun = [start(c, box, "sleep", "1000", env={"V": env}, stdin=stdin,
                       timeout_ms=3600000) for _ in range(9)]
        equal({r.status for r in begun}, {202})
        r = create(c, env={"B": env})   # and one that is on its way
        equal(r.status, 201, r)
        c.start("sleep 9", template=SHELL, env={"V": env})
        d.end(sig)
        equal(searched(), {})
        equal(os.listdir(CWD), [])
        c = client()                    # the WAL is read back
        c2 = d.client()
        equal(c2.command(begun[0].json["id"]).json["status"], "lost")
        replies(c2, begun[0].json["id"], begun[-1].json["id"], box)
        equal(searched(), {})
    d.stop()
    equal(searched(), {})
    # Also in the database once the WAL is in it, and in what SQL sees.
    db = sqlite3.connect(f"file:{d.state}/hutch.db?mode=ro", uri=True)
    for line in db.iterdump():
        equal(values.inside(line.encode()), [])
    db.close()


main()
