#!/usr/bin/env python3
"""The command line: exit statuses, streams, a daemon of its own.

test: timeout=1200 beside=yes seconds=32
"""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from hutchlib import (BUILD, STATE, Daemon, Skip, case, equal, hutch, main,
                      wait_until)

DIR = tempfile.mkdtemp()
OWN = {"HUTCH_STATE": STATE + "-own"}
last = {}


def write(name, text):
    path = os.path.join(DIR, name)
    with open(path, "w") as f:
        f.write(text)
    return path


SUM = write("sum.py", "def run(input, config):\n    return sum(input)\n")


def is_running(state):
    """Is a daemon listening in this state folder?"""
    import socket
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(os.path.join(state, "admin.sock"))
        return True
    except OSError:
        return False
    finally:
        s.close()


@case("without a daemon: one command from a file to its result")
def first():
    p = hutch("run", SUM, "--input", "[1, 2, 3]", env=OWN)
    equal((p.returncode, p.stdout, p.stderr), (0, "6\n", ""))
    assert not is_running(OWN["HUTCH_STATE"]), "its daemon still runs"


@case("--json: one object with result, ids and output")
def as_json():
    f = write("both.py", "import sys\ndef run(i, c):\n    print('out')\n"
              "    print('err', file=sys.stderr)\n    return c\n")
    p = hutch("run", f, "--config", '{"a": 0.1}', "--json", env=OWN)
    equal(p.returncode, 0, p.stderr)
    j = json.loads(p.stdout)
    equal((j["ok"], j["result"], j["status"], j["exit_code"]),
          (True, {"a": 0.1}, "succeeded", 0))
    equal((j["stdout"], j["stderr"]), ("out\n", "err\n"))
    assert '"result":{"a":0.1}' in p.stdout, p.stdout
    last.update(j)


@case("standard output, then the result; standard error apart")
def streams():
    f = os.path.join(DIR, "both.py")
    p = hutch("run", f, env=OWN)
    equal((p.stdout, p.stderr), ("out\nnull\n", "err\n"))


@case("the result is a line of its own, also after an unfinished one")
def line():
    f = write("open.py", "def run(i, c):\n    print('open', end='')\n"
              "    return 1\n")
    p = hutch("run", f, env=OWN)
    equal((p.returncode, p.stdout), (0, "open\n1\n"), p.stderr)


@case("output that cannot be written: exit 70, whatever the command")
def full():
    for argv in (["run", SUM, "--input", "[1]", "--json"],
                 ["run", SUM, "--input", "[1]"], ["ps"], ["ps", "--json"],
                 ["show", last["command"]], ["version"], ["help"],
                 ["logs", last["command"]], ["run", "--help"]):
        with open("/dev/full", "w") as out:
            p = subprocess.run([f"{BUILD}/hutch", *argv], stdout=out,
                               stderr=subprocess.PIPE, text=True, timeout=600,
                               env=dict(os.environ, **OWN))
        equal(p.returncode, 70, (argv, p.stderr))
        assert "cannot write stdout" in p.stderr, (argv, p.stderr)
    p = subprocess.run(f"{BUILD}/hutch ps >&-", shell=True, text=True,
                       capture_output=True, env=dict(os.environ, **OWN))
    equal(p.returncode, 70, p.stderr)


@case("bytes that are not kept are said on stderr, never inside the data")
def gap():
    f = write("big.py", "import sys\ndef run(i, c):\n"
              "    sys.stdout.write('a' * 100000 + 'END')\n    return 1\n")
    kept = "a" * 98301 + "END"
    p = hutch("run", f, "--json", env=OWN)
    j = json.loads(p.stdout)
    equal((j["stdout"], j["stdout_truncated"], j["stdout_omitted_bytes"],
           j["stderr_truncated"]), (kept, True, 100003 - 98304, False))
    p = hutch("logs", j["command"], env=OWN)
    equal(p.stdout, kept)
    assert "1699 bytes not kept" in p.stderr, p.stderr
    p = hutch("logs", j["command"], "--json", env=OWN)
    k = json.loads(p.stdout)
    equal((k["stdout"], k["stdout_omitted_bytes"], k["stdout_omitted_at"],
           k["eof"], p.stderr), (kept, 1699, 49152, True, ""))


@case("the exit status is that of the code")
def statuses():
    f = write("exit.py", "import sys\ndef run(i, c): sys.exit(i)\n")
    p = hutch("run", f, "--input", "7", env=OWN)
    equal((p.returncode, p.stdout), (7, ""))
    assert "failed: exit code 7; sbx_" in p.stderr, p.stderr
    assert "cmd_" in p.stderr, p.stderr
    f = write("raise.py", "def run(i, c): raise ValueError('no')\n")
    p = hutch("run", f, env=OWN)
    equal(p.returncode, 1)
    assert "ValueError: no" in p.stderr, p.stderr
    f = write("sleep.py", "import time\ndef run(i, c): time.sleep(i)\n")
    p = hutch("run", f, "--input", "60", "--timeout", "3", env=OWN)
    equal(p.returncode, 124, p.stderr)
    assert "timed out after 3 s (--timeout)" in p.stderr, p.stderr
    f = write("kill.sh", "kill -9 $$\n")
    p = hutch("run", f, env=OWN)
    equal(p.returncode, 137)
    assert "killed by signal 9 (SIGKILL)" in p.stderr, p.stderr


@case("a sandbox that cannot start is no failure of the code: 75, and doctor")
def not_started():
    with open(f"{BUILD}/images/images.json") as f:
        images = json.load(f)
    images["python"]["path"] = os.path.join(DIR, "gone.erofs")
    folder = os.path.join(DIR, "images")
    shutil.copytree(f"{BUILD}/images", folder, symlinks=True)
    with open(f"{folder}/images.json", "w") as f:
        json.dump(images, f)
    d = Daemon(STATE + "-broken", images_dir=folder).start()
    p = hutch("run", SUM, "--input", "[1]", env={"HUTCH_STATE": d.state})
    equal((p.returncode, p.stdout), (75, ""), p.stderr)
    assert "could not be prepared" in p.stderr, p.stderr
    assert "gone.erofs" in p.stderr and "hutch doctor" in p.stderr, p.stderr
    d.stop()
    d = Daemon(STATE + "-nowhere", images_dir=f"{folder}/nowhere").start()
    start = time.monotonic()
    p = hutch("run", SUM, "--input", "[1]", env={"HUTCH_STATE": d.state})
    equal((p.returncode, p.stdout), (75, ""), p.stderr)
    assert "cannot be read on this host" in p.stderr, p.stderr
    assert "service_unavailable" in p.stderr, p.stderr
    assert time.monotonic() - start < 30  # it is not waited for
    d.stop()


@case("without room on the disk: what waits says so, and doctor fails")
def no_room():
    top = os.path.join(DIR, "small")
    os.makedirs(top)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", top],
                   check=True)
    try:
        own = {"HUTCH_STATE": f"{top}/state"}
        p = hutch("run", SUM, "--input", "[1]", "--no-wait", env=own)
        equal(p.returncode, 75, p.stderr)
        assert "MiB are free" in p.stderr, p.stderr
        p = subprocess.Popen(
            [f"{BUILD}/hutch", "run", SUM, "--input", "[1]"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, **own))
        time.sleep(3)
        p.send_signal(signal.SIGINT)
        said = p.communicate(timeout=60)[1]
        assert "waiting for room: The host has no disk" in said, said
        p = hutch("doctor", "--json", env=own)
        equal(p.returncode, 1)
        equal([c["grade"] for c in json.loads(p.stdout)["checks"]
               if c["check"] == "state"], ["fail"])
    finally:
        subprocess.run(["umount", "-l", top], check=True)
    equal(hutch("--url", "http://127.0.0.1:9", "doctor").returncode, 64)


@case("a shell script's output is not printed again as its result")
def shell_result():
    f = write("json.sh", "echo '{\"sum\":3}'\n")
    p = hutch("run", f, env=OWN)
    equal((p.returncode, p.stdout), (0, '{"sum":3}\n'), p.stderr)
    equal(json.loads(hutch("run", f, "--json", env=OWN).stdout)["result"],
          {"sum": 3})
    f = write("text.sh", "echo plain text\n")
    equal(hutch("run", f, env=OWN).stdout, "plain text\n")
    f = write("own.sh", "echo text; echo '[1]' >\"$RUN_RESULT\"\n")
    equal(hutch("run", f, env=OWN).stdout, "text\n[1]\n")


@case("standard input as code; a shell run; env")
def stdin():
    p = hutch("run", "-", "--template", "lbb/shell", "--env", "WHO=world",
              stdin='echo "hello $WHO"; exit 3', env=OWN)
    equal((p.returncode, p.stdout), (3, "hello world\n"), p.stderr)


@case("the same --key is the same record")
def key():
    f = write("rnd.py", "import os\ndef run(i, c): return os.urandom(4).hex()")
    a = hutch("run", f, "--key", "cli-1", env=OWN)
    b = hutch("run", f, "--key", "cli-1", env=OWN)
    equal((a.returncode, a.stdout), (0, b.stdout))
    c = hutch("run", SUM, "--key", "cli-1", "--input", "[1]", env=OWN)
    equal(c.returncode, 64)
    assert "idempotency_conflict" in c.stderr, c.stderr


@case("ps, show, logs read the records, later and without a daemon")
def records():
    p = hutch("ps", env=OWN)
    equal(p.returncode, 0)
    assert last["sandbox"] in p.stdout and "destroyed" in p.stdout, p.stdout
    p = hutch("show", last["command"], env=OWN)
    equal(json.loads(p.stdout)["result"], {"a": 0.1})
    p = hutch("show", last["sandbox"], "--json", env=OWN)
    equal(json.loads(p.stdout)["status"], "destroyed")
    p = hutch("logs", last["command"], env=OWN)
    equal((p.returncode, p.stdout, p.stderr), (0, "out\n", "err\n"))
    p = hutch("logs", last["sandbox"], "--stream", "stderr", env=OWN)
    equal((p.stdout, p.stderr), ("", "err\n"))


@case("Ctrl-C cancels the command and says what came of it")
def interrupt():
    f = write("tick.py", "import time\ndef run(i, c):\n"
              "    print('begun', flush=True)\n    time.sleep(600)\n")
    p = subprocess.Popen([f"{BUILD}/hutch", "run", f, "--timeout", "15m"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, env=dict(os.environ, **OWN))
    equal(p.stdout.readline(), "begun\n")
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    equal(p.returncode, 130, err)
    command = re.search(r"cmd_\w+", err).group(0)
    c = json.loads(hutch("show", command, env=OWN).stdout)
    equal(c["status"], "cancelled")
    wait_until(lambda: not is_running(OWN["HUTCH_STATE"]), 10,
               "its daemon has ended")


@case("Ctrl-C while the daemon or the sandbox starts: 130, nothing is lost")
def interrupt_early():
    f = os.path.join(DIR, "tick.py")
    for delay in (0.02, 0.05, 0.1, 0.2, 0.3):
        p = subprocess.Popen([f"{BUILD}/hutch", "run", f, "--timeout", "15m"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, env=dict(os.environ, **OWN))
        time.sleep(delay)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        # 0.02 s may be before it catches signals: SIGINT itself ended it.
        assert p.returncode == 130 or (p.returncode == -signal.SIGINT and
                                       not err), (delay, p.returncode, err)
    rows = json.loads(hutch("ps", "--json", env=OWN).stdout)["data"]
    assert not [r for r in rows if r["status"] == "lost"], rows
    wait_until(lambda: not is_running(OWN["HUTCH_STATE"]), 10,
               "its daemon has ended")


@case("a killed hutch leaves its run and daemon; ps does not end them")
def orphan():
    f = os.path.join(DIR, "tick.py")
    p = subprocess.Popen([f"{BUILD}/hutch", "run", f, "--timeout", "15m"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, env=dict(os.environ, **OWN))
    equal(p.stdout.readline(), "begun\n")
    p.kill()
    p.communicate()
    for _ in range(2):
        q = hutch("ps", "--status", "running", env=OWN)
        command = re.search(r"cmd_\w+", q.stdout).group(0)
        assert f"{command} has not ended" in q.stderr, q.stderr
        assert is_running(OWN["HUTCH_STATE"])
    equal(hutch("kill", command, env=OWN).returncode, 0)
    wait_until(lambda: json.loads(hutch("show", command, env=OWN).stdout)
               ["status"] == "cancelled", 30, "cancelled, not lost")
    wait_until(lambda: hutch("ps", env=OWN) and
               not is_running(OWN["HUTCH_STATE"]), 10, "its daemon has ended")


@case("all places taken: a run waits for one, with --no-wait it does not")
def places():
    d = Daemon(STATE + "-places", graph_places=1).start()
    own = {"HUTCH_STATE": d.state}
    f = os.path.join(DIR, "tick.py")
    first = subprocess.Popen([f"{BUILD}/hutch", "run", f, "--timeout", "15m"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, env=dict(os.environ, **own))
    equal(first.stdout.readline(), "begun\n")
    p = hutch("run", SUM, "--input", "[4]", "--no-wait", "--json", env=own)
    equal(p.returncode, 75, p.stderr)
    equal(json.loads(p.stdout)["error"]["code"], "sandbox_limit_reached")
    second = subprocess.Popen(
        [f"{BUILD}/hutch", "run", SUM, "--input", "[4]"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=dict(os.environ, **own))
    equal(second.stderr.readline(), "waiting for a place (0 s)\n")
    third = subprocess.Popen(
        [f"{BUILD}/hutch", "run", SUM, "--input", "[4]"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=dict(os.environ, **own))
    equal(third.stderr.readline(), "waiting for a place (0 s)\n")
    third.send_signal(signal.SIGINT)
    _, err = third.communicate(timeout=30)
    equal(third.returncode, 130, err)
    assert "nothing was started" in err, err
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    out, err = second.communicate(timeout=60)
    equal((second.returncode, out), (0, "4\n"), err)
    d.stop()


@case("key starts no daemon and says where it looked")
def key_without_daemon():
    state = STATE + "-none"
    for argv in (["create", "--name", "x"], ["list"],
                 ["revoke", "--name", "x"]):
        p = hutch("key", *argv, env={"HUTCH_STATE": state})
        equal((p.returncode, p.stdout), (75, ""))
        assert state in p.stderr and "--state" in p.stderr, p.stderr
        assert not os.path.exists(state)


@case("kill ends a command of another hutch; both share one daemon")
def kill():
    f = os.path.join(DIR, "tick.py")
    p = subprocess.Popen([f"{BUILD}/hutch", "run", f, "--timeout", "15m"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, env=dict(os.environ, **OWN))
    equal(p.stdout.readline(), "begun\n")
    rows = hutch("ps", "--status", "running", env=OWN).stdout.splitlines()
    command = re.search(r"cmd_\w+", rows[1]).group(0)
    q = hutch("kill", command, env=OWN)
    equal(q.returncode, 0, q.stderr)
    p.communicate(timeout=60)
    equal(p.returncode, 130)


@case("a daemon that ends in a run: its ids are said, not \"try again\"")
def daemon_ends():
    d = Daemon(STATE + "-ends").start()
    f = write("tock.py", "import time\ndef run(i, c):\n"
              "    print('begun', flush=True)\n    time.sleep(600)\n")
    for is_json in (False, True):
        if not d.is_alive():
            d.start()
        p = subprocess.Popen(
            [f"{BUILD}/hutch", "run", f, "--timeout", "15m"] +
            ["--json"] * is_json, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ, HUTCH_STATE=d.state))
        if not is_json:
            equal(p.stdout.readline(), "begun\n")
        else:
            wait_until(lambda: "cmd_" in hutch(
                "ps", "--status", "running", env={
                    "HUTCH_STATE": d.state}).stdout, 30, "it runs")
        d.kill()
        out, err = p.communicate(timeout=60)
        command = re.search(r"`hutch show (cmd_\w+)` tells", err).group(1)
        assert p.returncode == 75 and "try again" not in err, (p, err)
        if is_json:
            equal(json.loads(out)["command"], command)
    d.start()
    record = json.loads(hutch("show", command,
                              env={"HUTCH_STATE": d.state}).stdout)
    equal((record["status"], record["reason"]), ("lost", "daemon_restart"))
    d.stop()


@case("a daemon that a person started is used and left alone")
def served():
    d = Daemon(STATE + "-served").start()
    own = {"HUTCH_STATE": d.state}
    p = hutch("run", SUM, "--input", "[4]", env=own)
    equal((p.returncode, p.stdout), (0, "4\n"), p.stderr)
    assert d.is_alive()
    p = hutch("key", "create", "--name", "laptop", env=own)
    equal(p.returncode, 0, p.stderr)
    text = p.stdout.strip()
    assert re.fullmatch(r"lbb_sk_\w+", text), text
    assert d.state in p.stderr, p.stderr
    url = f"http://{d.host}:{d.port}"
    p = hutch("--url", url, "--api-key", text, "ps", "--json", env=own)
    equal(p.returncode, 0, p.stderr)
    with open("/dev/full", "w") as out:
        p = subprocess.run([f"{BUILD}/hutch", "key", "create", "--name", "x"],
                           stdout=out, stderr=subprocess.PIPE,
                           env=dict(os.environ, **own))
    equal(p.returncode, 70, p.stderr)
    p = hutch("key", "list", env=own)
    assert "laptop" in p.stdout and text not in p.stdout, p.stdout
    free = ("key", "create", "--name", "other", "--plan", "free")
    p = hutch(*free, env=own)
    equal(p.returncode, 64, p.stderr)
    assert "(hutch key create --change-environment)" in p.stderr, p.stderr
    equal(hutch(*free, "--change-environment", env=own).returncode, 0)
    equal(hutch("key", "revoke", "--name", "laptop", env=own).returncode, 0)
    p = hutch("--url", url, "--api-key", text, "ps", env=own)
    equal(p.returncode, 77, p.stderr)
    assert "--api-key" in p.stderr, p.stderr
    p = hutch("--url", url, "ps", "--json", env=own)
    equal((p.returncode, json.loads(p.stdout)["error"]["code"]),
          (77, "unauthorized"))
    assert "missing: give --api-key" in p.stderr, p.stderr
    p = hutch("--url", url, "key", "list", env=own)
    equal(p.returncode, 64)
    assert "on the host, with --state" in p.stderr, p.stderr
    d.stop()


@case("mistakes on the command line: 64, and what is wrong")
def usage():
    for argv, word in ((["nothing"], "no command"), (["run"], "missing"),
                       (["run", SUM, "--nope"], "--nope"),
                       (["run", SUM, "--memory", "x"], "--memory"),
                       (["run", SUM, "--input", "{"], "--input"),
                       (["run", SUM, "--timeout", "1y"], "--timeout"),
                       (["run", SUM, "--env", "X"], "NAME=VALUE"),
                       (["run", SUM, "--env", "X=1", "--env", "X=2"],
                        "--env X: given twice"),
                       (["run", SUM, "--key", ""], "--key: it is empty"),
                       (["show", "x1"], "sbx_"),
                       (["run", SUM, "--memory", "64"],
                        "--memory 64: must be a whole number from 128 to"),
                       (["run", SUM, "--timeout", "2h"], "--timeout 2h"),
                       (["ps", "--limit", "101"], "from 1 to 100"),
                       (["ps", "--status", "up"], "--status \"up\" is none"),
                       (["run", SUM, "--template", "no"], "--template: "),
                       (["run", SUM, "--env", "LBB_A=1"], "--env: "),
                       (["--url", "foo", "ps"], "expected http://HOST"),
                       (["run", SUM, "--vcpus", "9"], "vcpus"),
                       (["run", os.path.join(DIR, "none.py")], "none.py")):
        p = hutch(*argv, env=OWN)
        assert p.returncode in (64, 66), (argv, p)
        assert word in p.stderr and not p.stdout, (argv, p)
        p = hutch(*argv, "--json", env=OWN)
        j = json.loads(p.stdout)
        equal(j["exit_status"], p.returncode, argv)
        assert word in j["error"]["message"], (argv, p)
        assert j["error"]["code"] and j["error"]["type"], (argv, p)


@case("--version, before or instead of a command")
def version():
    p = hutch("--version")
    equal((p.returncode, p.stdout), (0, hutch("version").stdout))
    assert re.fullmatch(r"hutch \d+\.\d+\.\d+\S*\n", p.stdout), p.stdout


@case("--help of every command teaches with an example")
def helps():
    text = hutch("help").stdout
    names = re.findall(r"^  (\w+) {2,}", text, re.M)
    assert len(names) >= 10, names
    for name in names:
        if name in ("version", "help"):
            continue
        p = hutch(name, "--help")
        equal(p.returncode, 0, name)
        assert f"usage: hutch {name}" in p.stdout, name
        assert f"\n  hutch {name}" in p.stdout or "$(hutch" in p.stdout, name


@case("doctor: every line has a grade, every warning an advice")
def doctor():
    p = hutch("doctor", "--json", env=OWN)
    j = json.loads(p.stdout)
    equal(p.returncode, 0, j)
    names = {c["check"] for c in j["checks"]}
    for name in ("kvm", "io_uring", "cgroup", "landlock", "seccomp", "user",
                 "memory", "state", "cache", "images", "mke2fs"):
        assert name in names, (name, names)
    for c in j["checks"]:
        assert c["grade"] in ("ok", "warn", "fail"), c
        assert c["grade"] == "ok" or c["advice"], c


@case("doctor for a user who may not read the images: no \"make images\"")
def doctor_user():
    if os.geteuid() != 0:
        raise Skip("only root may become another user")
    top = tempfile.mkdtemp(dir="/tmp")  # others may enter it
    shutil.copy(f"{BUILD}/hutch", top)
    os.mkdir(f"{top}/images", 0o700)
    os.chmod(top, 0o755)
    try:
        p = subprocess.run([f"{top}/hutch", "doctor", "--json", "--state",
                            f"{top}/state"], capture_output=True, text=True,
                           user=65534, group=65534, extra_groups=[])
    finally:
        shutil.rmtree(top)
    c = [c for c in json.loads(p.stdout)["checks"] if c["check"] == "images"]
    equal(p.returncode, 1, p.stderr)
    assert "Permission denied" in c[0]["text"], c
    assert "run as root" in c[0]["advice"], c


main()
