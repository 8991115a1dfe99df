#!/usr/bin/env python3
"""Sandboxes that are held: made, given commands, ended; files and processes
stay between commands; nothing is left behind.

test: timeout=1500 beside=yes seconds=170
"""
import base64
import contextlib
import glob
import json
import os
import re
import signal
import threading
import time

from held import (SHELL, WAIT_S, command, create, delete, destroyed, ended,
                  hold, resume, resumed, sh, start, stop, stopped)
from hutchlib import (IS_LONG, Daemon, MovableDaemon, STATE, case, equal,
                      hutch, interrupted, main, new_key, note, wait_until)

START_S = 600    # of a second runner, on a slow and busy host

d = Daemon(STATE + "-held", pool_shell=1, pool_max=1, graph_places=5,
           environment_places=10)


def client(**more):
    if not d.is_alive():
        d.start()
    return d.client(**more)


@case("LBB-61, LBB-20, LBB-22, LBB-67: one is made; its key finds it again; it is "
      "deleted, and again")
def made():
    c = client()
    key = new_key()
    r = create(c, key, idle_seconds=60, expires_in_seconds=600)
    equal(r.status, 201, r)
    s = r.json
    equal((s["object"], s["kind"], s["template"], s["command"]),
          ("sandbox", "held", SHELL, None))
    assert s["status"] in ("starting", "running"), s
    equal((s["idle_seconds"], s["expires_in_seconds"]), (60, 600))
    again = create(c, key, idle_seconds=60, expires_in_seconds=600,
                   wait_ms=30000)
    equal((again.status, again.json["id"]), (201, s["id"]))
    other = create(c, key, idle_seconds=61)
    equal((other.status, other.code), (409, "idempotency_conflict"))
    run = c.start("echo", key, template=SHELL)
    equal((run.status, run.code), (409, "idempotency_conflict"))
    none = c.call("POST", "/v1/sandboxes", {"template": SHELL})
    equal((none.status, none.code), (400, "missing_idempotency_key"))
    destroyed(c, s["id"])
    twice = delete(c, s["id"])
    equal((twice.status, twice.json["status"]), (200, "destroyed"))
    gone = create(c, key, idle_seconds=60, expires_in_seconds=600)
    equal((gone.json["id"], gone.json["status"]), (s["id"], "destroyed"))


@case("LBB-48, LBB-49, LBB-50, LBB-61: what is out of range is refused by name")
def refused():
    c = client()
    for body, code, param in (
            ({"idle_seconds": 29}, "invalid_request", "idle_seconds"),
            ({"idle_seconds": 3601}, "invalid_request", "idle_seconds"),
            ({"expires_in_seconds": 59}, "invalid_request",
             "expires_in_seconds"),
            ({"expires_in_seconds": 604801}, "invalid_request",
             "expires_in_seconds"),
            ({"limits": {"vcpus": 5}}, "sandbox_limits_invalid",
             "limits.vcpus"),
            ({"template": "lbb/cobol"}, "sandbox_template_not_found",
             "template"),
            ({"files": [{}]}, "invalid_request", "files[0]"),
            ({"env": {"LBB_X": "1"}}, "sandbox_env_invalid", "env")):
        r = create(c, **body)
        assert r.status in (400, 404), r
        equal((r.code, r.param), (code, param), body)


@case("LBB-120, LBB-126: a command with argv; its record has what it had")
def argv():
    c = client()
    box = hold(c, env={"A": "box", "B": "box"})
    j = command(c, box, "bash", "-c", 'echo "$A $B $C"; pwd; cat; exit 3',
                env={"B": "own", "C": "own"}, stdin="in\u00e9\n",
                timeout_ms=60000)
    equal((j["status"], j["ok"], j["exit_code"], j["reason"]),
          ("failed", False, 3, "exit_code"), j)
    equal(j["stdout"]["tail"], "box own own\n/workspace\nin\u00e9\n")
    equal((j["kind"], j["argv"][0], j["sandbox"]), ("process", "bash", box))
    equal((sorted(j["env_names"]), j["stdin_bytes"]), (["A", "B", "C"], 5))
    assert "result" not in j, j
    assert j["created_at"] <= j["started_at"] <= j["ended_at"], j
    # Values are nowhere in the daemon's folder (LBB-127).
    secret = "s3cr3t" + new_key()[2:]
    j = command(c, box, "true", env={"S": secret}, stdin=secret)
    equal(j["status"], "succeeded")
    for name in glob.glob(d.state + "/**", recursive=True):
        if os.path.isfile(name):
            with open(name, "rb") as f:
                assert secret.encode() not in f.read(), name
    j = command(c, box, "/no/such/program")
    equal((j["status"], j["reason"], j["exit_code"]),
          ("failed", "not_started", None))
    assert "ENOENT" in j["message"], j
    # No shell is implied.
    j = command(c, box, "echo", "$HOME;", "a  b")
    equal(j["stdout"]["tail"], "$HOME; a  b\n")
    destroyed(c, box)


@case("LBB-54: files and processes stay from command to command")
def stays():
    c = client()
    box = hold(c)
    equal(sh(c, box, "mkdir data; echo one > data/f; echo two > /tmp/g; "
             "sleep 1000 & echo $! > /tmp/pid")["status"], "succeeded")
    j = command(c, box, "bash", "-c",
                "cat f /tmp/g; kill -0 $(cat /tmp/pid) && echo there",
                cwd="data")
    equal(j["stdout"]["tail"], "one\ntwo\nthere\n", j)
    other = hold(c)
    equal(sh(c, other, "ls /workspace /tmp")["stdout"]["tail"].split(),
          ["/tmp:", "/workspace:"])
    destroyed(c, other)
    destroyed(c, box)


@case("LBB-121, LBB-138: code as of a one-call run, again and again")
def code():
    c = client()
    box = hold(c)
    for i in range(2):
        began = time.monotonic()
        j = command(c, box, seconds=START_S, run={
            "code": "echo $((RANDOM)) >> log; jq -c 'map(. + 1)'",
            "input": [i, 2.50]})
        equal((j["status"], j["kind"]), ("succeeded", "run"), j)
        equal(j["result"], [i + 1, 3.5])
        note(f"run {i + 1}: {time.monotonic() - began:.2f} s")
    equal(sh(c, box, "wc -l < log")["stdout"]["tail"].strip(), "2")
    r = start(c, box, run={"code": "x"}, cwd="/")
    equal((r.status, r.param), (400, "cwd"))
    destroyed(c, box)


@case("LBB-121: python and node code, again in the same sandbox")
def other_code():
    c = client()
    for template, text in (
            ("lbb/python", "import os\n"
             "def run(input, config):\n"
             "    open('log', 'a').write('x')\n"
             "    pids = [int(n) for n in os.listdir('/proc') if n.isdigit()]\n"
             "    return [input, os.path.getsize('log'), os.getpid(), pids]"),
            ("lbb/node", "const fs = require('fs');\n"
             "function run(input) {\n"
             "    fs.appendFileSync('log', 'x');\n"
             "    return [input, fs.statSync('log').size];\n}")):
        box, got = hold(c, template=template), []
        for i in (1, 2, 3):
            began = time.monotonic()
            j = command(c, box, seconds=START_S,
                        run={"code": text, "input": i})
            equal((j["status"], j["result"][:2]), ("succeeded", [i, i]), j)
            got.append(j["result"])
            note(f"{template} run {i}: {time.monotonic() - began:.2f} s")
        if template == "lbb/python":
            # Their runners waited when the first one ran.
            for later in got[1:]:
                assert later[2] in got[0][3], got
        destroyed(c, box)


@case("LBB-120: python as a command is an interpreter that waited")
def python_argv():
    c = client()
    box = hold(c, template="lbb/python")
    code = ("import os, sys, time; print('spare.so' in "
            "open('/proc/self/maps').read(), sys.argv, os.getppid(), "
            "len(sys.modules), open('f').read())")
    equal(sh(c, box, "echo x > f")["status"], "succeeded")
    said = []
    for argv in (("python3", "-c", code, "a"), ("python", "-c", code, "a"),
                 ("python3", "-B", "-c", code, "a")):
        began = time.monotonic()
        j = command(c, box, *argv, seconds=START_S)
        equal(j["status"], "succeeded", j)
        said.append(j["stdout"]["tail"].split(" ", 1))
        note(f"{' '.join(argv[:2])}: {time.monotonic() - began:.2f} s, "
             f"waited: {said[-1][0]}")
    # With an option it is executed, and sees the same.
    equal([s[0] for s in said], ["True", "True", "False"])
    equal([s[1] for s in said], [said[2][1]] * 3)
    destroyed(c, box)


@case("LBB-130, LBB-131: eight run, 32 wait in their order, more are refused")
def queue():
    c = client()
    box = hold(c)
    equal(sh(c, box, "mkfifo go")["status"], "succeeded")
    ids = []
    for _ in range(40):
        r = start(c, box, "bash", "-c", "read x < go", timeout_ms=600000)
        equal(r.status, 202, r)
        ids.append(r.json["id"])
    full = start(c, box, "true")
    equal((full.status, full.code), (429, "sandbox_limit_reached"))
    assert int(full.headers["Retry-After"]) > 0

    def states():
        return [c.command(i).json["status"] for i in ids]

    wait_until(lambda: states() == ["running"] * 8 + ["queued"] * 32, WAIT_S,
               "8 run, 32 wait")
    # One that waits is cancelled at once; then the first eight are.
    equal(c.cancel(ids[8]).json["status"], "cancelled")
    for i in ids[:8]:
        equal(c.cancel(i).json["status"], "cancelled")
    wait_until(lambda: states()[9:17] == ["running"] * 8, WAIT_S,
               "the next eight run")
    equal(states()[17:], ["queued"] * 23)
    began = time.monotonic()
    equal(delete(c, box).status, 200)
    wait_until(lambda: c.sandbox(box)["status"] == "destroyed", WAIT_S,
               "it is destroyed")
    note(f"destroyed with 8 running after {time.monotonic() - began:.2f} s")
    equal(set(states()), {"cancelled"})


@case("LBB-124, LBB-137: a time-out and a cancel end the whole tree, not the "
      "sandbox")
def ends():
    c = client()
    box = hold(c)
    j = sh(c, box, "setsid sleep 300 & echo begun; sleep 300",
           timeout_ms=2000)
    equal((j["status"], j["stdout"]["tail"]), ("timed_out", "begun\n"), j)
    r = start(c, box, "bash", "-c", "echo begun; sleep 300")
    wait_until(lambda: c.command(r.json["id"]).json["stdout"]["tail"],
               WAIT_S, "it has begun")
    equal(c.cancel(r.json["id"]).json["status"], "cancelled")
    equal(c.cancel(r.json["id"]).json["status"], "cancelled")
    j = sh(c, box, "ps -e -o args 2>/dev/null | grep -c '[s]leep 300' || "
           "grep -lz '^sleep' /proc/[0-9]*/cmdline | wc -l")
    equal(j["stdout"]["tail"].split()[-1], "0", j)
    destroyed(c, box)


@case("LBB-133, LBB-134: the commands of a sandbox are listed and read")
def lists():
    c = client()
    box = hold(c)
    data = bytes(range(256)) * 2
    hexed = "".join(f"\\x{b:02x}" for b in data)
    a = sh(c, box, f"printf '{hexed}'")
    b = command(c, box, "true")
    r = c.call("GET", "/v1/sandboxes/commands", query={"sandbox": box})
    equal([x["id"] for x in r.json["data"]], [b["id"], a["id"]])
    assert "stdout" not in r.json["data"][0], r
    equal(c.logs(a["id"]), data)
    piece = c.log_slice(a["id"], "stdout", offset=200, limit=100).json
    equal(base64.b64decode(piece["data"]), data[200:300])
    live = d.admin("GET", "/admin/ps").json["data"]
    equal([x["sandbox"] for x in live], [box])
    destroyed(c, box)


@case("LBB-23, LBB-25, LBB-132, LBB-177: keys of commands; no command on one that "
      "ended")
def keys():
    c = client()
    box = hold(c)
    key = new_key()
    first = command(c, box, "bash", "-c", "echo x >> n; wc -l < n", key=key)
    equal(first["stdout"]["tail"], "1\n")
    again = start(c, box, "bash", "-c", "echo x >> n; wc -l < n", key=key,
                  wait_ms=1000)
    equal((again.status, again.json["id"]), (200, first["id"]))
    conflict = start(c, box, "true", key=key)
    equal((conflict.status, conflict.code), (409, "idempotency_conflict"))
    destroyed(c, box)
    again = start(c, box, "bash", "-c", "echo x >> n; wc -l < n", key=key)
    equal((again.status, again.json["id"]), (200, first["id"]))
    late = start(c, box, "true")
    equal((late.status, late.code), (409, "sandbox_not_running"))
    none = start(c, "sbx_" + "a" * 26, "true")
    equal((none.status, none.code), (404, "sandbox_not_found"))
    run = c.run("echo 1", template=SHELL)
    late = start(c, run.sandbox, "true")
    equal((late.status, late.code), (409, "sandbox_not_running"))
    other = client(environment="other")
    equal(start(other, box, "true").status, 404)


@case("LBB-68: held ones hold places; LBB-69, LBB-70: plans")
def places():
    c = client(environment="places")
    boxes = [create(c).json["id"] for _ in range(5)]
    full = create(c)
    equal((full.status, full.code), (429, "sandbox_limit_reached"))
    for box in boxes:
        destroyed(c, box)
    free = client(environment="free", plan="free")
    r = create(free)
    equal((r.status, r.code), (403, "sandbox_plan_unavailable"))
    r = start(free, "sbx_" + "a" * 26, "true")
    equal((r.status, r.code), (403, "sandbox_plan_unavailable"))
    off = client(environment="off", sandboxes_enabled=False)
    r = create(off)
    equal((r.status, r.code), (409, "sandbox_not_enabled"))


@case("one that waits in the pool is taken; without one it is restored")
def pooled():
    c = client()
    times = {}
    for name in ("claimed", "restored"):
        if name == "claimed":
            wait_until(lambda: d.admin("GET", "/admin/pool").json["ready"],
                       WAIT_S, "a VM waits")
        hits = d.metric("hutch_pool_hits_total")
        began = time.monotonic()
        # The pool is filled again soon, but with VMs of the default limits.
        box = hold(c) if name == "claimed" else hold(
            c, limits={"disk_mib": 512})
        times[name] = (time.monotonic() - began) * 1000
        equal(d.metric("hutch_pool_hits_total") - hits, name == "claimed")
        began = time.monotonic()
        equal(command(c, box, "true")["status"], "succeeded")
        times[name + " true"] = (time.monotonic() - began) * 1000
        if name == "claimed":
            first = box
    destroyed(c, first)
    destroyed(c, box)
    note("ms: " + ", ".join(f"{k} {v:.0f}" for k, v in times.items()))


def folder(sandbox):
    return f"{d.state}/stopped/{sandbox}"


WHO = ("/etc/machine-id /proc/sys/kernel/random/boot_id "
       "/proc/sys/kernel/hostname")
LEFT = ("echo $BASHPID > /tmp/pid; mkfifo /tmp/q; exec 3<>/tmp/q; while :; do "
        "read -t 1 -u 3; printf '%(%s)T\\n' -1 >> /tmp/ticks; done")


@case("LBB-55, LBB-65, LBB-66, LBB-54, LBB-47: stop ends commands and keeps "
      "memory and disk; resume goes on; delete removes both")
def stops():
    c = client()
    box = hold(c)
    equal(sh(c, box, "echo kept > f; echo shm > /dev/shm/g")["status"],
          "succeeded")
    equal(sh(c, box, f"({LEFT}) >/dev/null 2>&1 &")["status"], "succeeded")
    before = sh(c, box, f"cat {WHO} /tmp/pid")["stdout"]["tail"]
    assert box.replace("_", "-") in before, before
    r = start(c, box, "sleep", "600", timeout_ms=3600000)
    wait_until(lambda: c.command(r.json["id"]).json["status"] == "running",
               WAIT_S, "it runs")
    stopped(c, box)
    equal(ended(c, r.json["id"])["status"], "cancelled")
    equal(d.vmm_pids(), {})
    equal(d.metric("hutch_sandboxes_live"), 0)
    files = {n: os.stat(f"{folder(box)}/{n}") for n in os.listdir(folder(box))}
    equal(sorted(files), ["disk", "mem", "state"])
    note("MiB: " + ", ".join(f"{k} {v.st_blocks / 2048:.1f}"
                             for k, v in sorted(files.items())))
    equal({v.st_mode & 0o777 for v in files.values()}, {0o600})
    equal(stop(c, box).json["status"], "stopped")
    late = start(c, box, "true")
    equal((late.status, late.code), (409, "sandbox_not_running"))
    for _ in range(2):
        time.sleep(3)
        resumed(c, box)
        equal(os.listdir(folder(box)), ["disk"])
        equal(resume(c, box).json["status"], "running")
        began = time.time()
        j = sh(c, box, "date +%s; cat f /dev/shm/g")
        lines = j["stdout"]["tail"].split()
        equal(lines[1:], ["kept", "shm"], j)
        assert began - 2 < int(lines[0]) < time.time() + 2, (began, lines)
        note(f"a command after it: {time.time() - began:.2f} s")
        after = sh(c, box, f"cat {WHO} /tmp/pid; kill -0 $(cat /tmp/pid)")
        equal((after["status"], after["stdout"]["tail"]),
              ("succeeded", before), "who it is, and what it left behind")
        stopped(c, box)
    resumed(c, box)
    j = command(c, box, seconds=START_S, run={"code": "jq -c .", "input": [7]})
    equal(j["result"], [7], j)
    j = sh(c, box, "head -c 8 /dev/urandom | od -An -tx1; wc -l < /tmp/ticks")
    equal(j["status"], "succeeded")
    destroyed(c, box)
    wait_until(lambda: not os.path.exists(folder(box)), 10,
               "its files are removed")


@case("LBB-49, LBB-68: an idle one is stopped and its place is free")
def idle():
    own = MovableDaemon(STATE + "-idle", pool_max=0, graph_places=5)
    own.start()
    c = own.client()
    box = hold(c, idle_seconds=300)
    own.pass_time(200)
    equal(command(c, box, "true")["status"], "succeeded")
    own.pass_time(200)
    equal(c.sandbox(box)["status"], "running", "idle since its last command")
    own.pass_time(100)
    wait_until(lambda: c.sandbox(box)["status"] == "stopped", 60,
               "it is stopped")
    s = c.sandbox(box)
    assert s["stopped_at"] > s["last_active_at"], s
    full = [create(c).json["id"] for _ in range(5)]
    r = resume(c, box)
    equal((r.status, r.code), (429, "sandbox_limit_reached"))
    for x in full:
        destroyed(c, x)
    equal(delete(c, box).json["status"], "destroyed")
    wait_until(lambda: not os.path.exists(f"{own.state}/stopped/{box}"), 10,
               "its files are removed")
    equal(own.stop(), 0)


@case("a stopped one outlives the daemon; damaged, it stays stopped")
def outlives():
    c = client()
    box = hold(c)
    other = hold(c)
    equal(sh(c, box, "echo kept > f")["status"], "succeeded")
    stopped(c, box)
    d.kill()
    os.makedirs(folder("sbx_nobody"))
    d.start()
    equal(c.sandbox(box)["status"], "stopped")
    equal(c.sandbox(other)["status"], "lost")
    equal(os.listdir(d.state + "/stopped"), [box])
    state = folder(box) + "/state"
    with open(state, "r+b") as f:
        good = f.read()
        f.seek(len(good) // 2)
        f.write(bytes([good[len(good) // 2] ^ 1]))
    r = resume(c, box)
    equal((r.status, r.code), (503, "service_unavailable"), r)
    equal(c.sandbox(box)["status"], "stopped")
    with open(state, "wb") as f:
        f.write(good)
    resumed(c, box)
    equal(sh(c, box, "cat f")["stdout"]["tail"], "kept\n")
    # It ran on: the next end of the daemon is its end, and its files go.
    d.kill()
    d.start()
    equal(c.sandbox(box)["status"], "lost")
    equal(os.listdir(d.state + "/stopped"), [])


@case("hutch sandbox: create, exec, stop, resume, rm")
def cli():
    client()
    state = ["--state", d.state]

    def box(*argv, status=0):
        p = hutch("sandbox", *argv, *state) if argv[0] != "exec" else \
            hutch(*state, "sandbox", *argv)
        equal(p.returncode, status, p)
        return p

    sandbox = box("create", "--template", SHELL, "--idle", "60", "--env",
                  "A=box").stdout.strip()
    assert sandbox.startswith("sbx_"), sandbox
    p = box("exec", "--env", 'B="q"', "--cwd", "/tmp", sandbox, "bash", "-c",
            'echo "$A $B" "$@"; pwd; echo bad >&2; exit 7', "sh", "--x", "a b",
            status=7)
    equal((p.stdout, p.stderr.splitlines()[0]),
          ('box "q" --x a b\n/tmp\n', "bad"))
    assert "exit code 7" in p.stderr, p
    name = os.path.join(os.environ["TMPDIR"], "stdin")
    with open(name, "w") as f:
        f.write("one\ntwo \u00e9\n")
    p = box("exec", "--stdin", name, sandbox, "--", "tail", "-n", "1")
    equal(p.stdout, "two \u00e9\n")
    with open(name, "wb") as f:
        f.write(b"\xff")
    p = box("exec", "--stdin", name, sandbox, "cat", status=64)
    assert "not UTF-8" in p.stderr, p
    name += ".sh"
    with open(name, "w") as f:
        f.write('echo "$A"; jq -c "map(.+1)" <"$RUN_INPUT" >"$RUN_RESULT"')
    p = box("run", "--input", "[1, 2]", "--env", "A=a", sandbox, name)
    equal(p.stdout, "a\n[2,3]\n")
    for end in (".py", ".txt"):
        p = box("run", sandbox, name.replace(".sh", end), status=64)
        assert "standard input" in p.stderr, p
    p = box("exec", sandbox, "no-such", status=127)
    assert p.stderr.startswith("hutch: no-such: failed: "), p
    box("exec", sandbox, "/etc/passwd", status=126)
    for argv, word in (
            (["exec", "--memory", "128", sandbox, "true"], "--memory"),
            (["stop", "--env", "A=b", sandbox], "--env"),
            (["run", "--cwd", "/", sandbox, name], "--cwd"),
            (["exec", sandbox, "--"], "a program is missing")):
        p = box(*argv, status=64)
        assert word in p.stderr, p
    p = box("exec", "--timeout", "1", sandbox, "sleep", "60", status=124)
    assert "timed out" in p.stderr, p
    equal(box("stop", sandbox).stdout, f"{sandbox} stopped\n")
    box("exec", sandbox, "true", status=69)
    equal(box("resume", sandbox).stdout, f"{sandbox} running\n")
    p = hutch("--json", *state, "sandbox", "exec", sandbox, "echo", "x")
    equal(json.loads(p.stdout)["stdout"]["tail"], "x\n")
    # It lives: it is listed before what ended after it was made.
    box("rm", box("create", "--template", SHELL).stdout.strip())
    rows = hutch("ps", *state).stdout.splitlines()[1:]
    words = [r.split()[1] for r in rows]
    assert words.index("running") == 0 and "destroyed" in words, rows
    at = [r.split()[0] for r in rows].index(sandbox)
    assert "destroyed" not in words[:at], rows
    rows = hutch("ps", "--limit", "1", *state)
    assert len(rows.stdout.splitlines()) == 2, rows
    assert "there are more" in rows.stderr, rows
    equal(box("rm", sandbox).stdout, f"{sandbox} destroyed\n")
    box("exec", sandbox, "true", status=69)
    box("rm", "sbx_" + "a" * 26, status=66)


@case("the command line: Ctrl-C removes the sandbox that create had begun, "
      "and cancels what exec had")
def cli_interrupted():
    client()

    def status_of(what):
        p = hutch("show", what, "--json", "--state", d.state)
        return json.loads(p.stdout)["status"]

    status, out, err = interrupted(d, "sandbox", "create", "--template", SHELL)
    equal((status, out), (130, ""), err)
    box = re.search(r"interrupted; (sbx_\w+) is removed", err).group(1)
    wait_until(lambda: status_of(box) == "destroyed", WAIT_S,
               "it is destroyed")
    box = hutch("sandbox", "create", "--template", SHELL, "--state",
                d.state).stdout.strip()
    status, out, err = interrupted(d, "sandbox", "exec", box, "sleep", "600")
    equal((status, out), (130, ""), err)
    equal(status_of(re.search(r"cancelled; (cmd_\w+)", err).group(1)),
          "cancelled")
    equal(hutch("sandbox", "rm", box, "--state", d.state).returncode, 0)


@case("a VM that is killed while it stops leaves nothing of its memory")
def killed_in_stop():
    c = client()
    seen = []
    for delay in (0, .02, .05, .1):
        box = hold(c)
        pid = d.vmm_pids()[box]
        t = threading.Thread(target=stop, args=(c, box))
        t.start()
        time.sleep(delay)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        t.join()
        s = wait_until(lambda: c.sandbox(box)["status"] in (
            "lost", "stopped") and c.sandbox(box), WAIT_S, "its end")
        seen.append(s["status"])
        if s["status"] == "stopped":
            destroyed(c, box)
        wait_until(lambda: not os.path.exists(folder(box)), 10,
                   f"its files are removed, {s['status']}")
    note(f"killed 0 to 100 ms after stop: {', '.join(seen)}")
    assert "lost" in seen, seen


@case("LBB-41: a VM that is killed is lost, and so are its commands")
def killed():
    c = client()
    box = hold(c)
    r = start(c, box, "sleep", "300")
    wait_until(lambda: c.command(r.json["id"]).json["status"] == "running",
               WAIT_S, "it runs")
    os.kill(d.vmm_pids()[box], 9)
    equal(ended(c, r.json["id"])["status"], "lost")
    s = c.sandbox(box)
    equal((s["status"], s["reason"]), ("lost", "vm_lost"))


@case("LBB-29, LBB-139: kill -9 of the daemon: lost, with the reason; nothing "
      "stays")
def restarted():
    c = client()
    key = new_key()
    box = hold(c)
    idle = hold(c)
    r = start(c, box, "sleep", "300", key=key)
    wait_until(lambda: c.command(r.json["id"]).json["status"] == "running",
               WAIT_S, "it runs")
    pid, pids = d.pid, list(d.vmm_pids().values())
    equal(len(pids), 2)
    d.kill()
    wait_until(lambda: not [p for p in pids
                            if os.path.exists(f"/proc/{p}/fd/0")], 10,
               "the VMs end")
    d.start()
    for sandbox in (box, idle):
        s = c.sandbox(sandbox)
        equal((s["status"], s["reason"]), ("lost", "daemon_restart"), s)
    j = c.command(r.json["id"]).json
    equal((j["status"], j["reason"]), ("lost", "daemon_restart"), j)
    # The key finds what was lost; it is not run again.
    again = start(c, box, "sleep", "300", key=key)
    equal((again.status, again.json["id"], again.json["status"]),
          (200, r.json["id"], "lost"))
    equal(d.metric("hutch_sandboxes_live"), 0)
    equal(d.stop(), 0)
    # At the latest then: a VM may have been about to end at the start.
    equal([p for p in glob.glob(f"/sys/fs/cgroup/**/{pid}-*", recursive=True)
           if not p.endswith("-daemon")], [])


main()
