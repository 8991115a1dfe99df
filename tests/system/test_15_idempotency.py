#!/usr/bin/env python3
"""One key, one run: at once, later, after a crash; and what `lost` means.

test: timeout=1500 beside=yes seconds=26
"""
import os
import signal
import threading
import time

from hutchlib import (Daemon, STATE, case, client, daemon, equal, main,
                      new_key, wait_until)

TOKEN = "import os\ndef run(i, c): return os.urandom(8).hex()"
SLEEP = "import time\ndef run(i, c):\n    time.sleep(i)\n    return 'slept'"


def is_running(pid):
    """Not gone and no zombie that its new parent has not waited for."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def n_sandboxes():
    return len(client().call("GET", "/v1/sandboxes",
                             query=dict(limit=100)).json["data"])


@case("LBB-23: the same key 8 times at once: one sandbox, run once")
def eight():
    key, answers = new_key(), []
    before, started = n_sandboxes(), daemon().metric(
        "hutch_runs_started_total")

    def send():
        answers.append(client().start(TOKEN, key, 30000))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(len(answers), 8)
    for a in answers:
        assert a.status in (200, 202), a
    equal(len({a.json["command"] for a in answers}), 1, "commands")
    equal(len({a.json["sandbox"] for a in answers}), 1, "sandboxes")
    client().wait(answers[0].json["command"])
    equal(n_sandboxes() - before, 1, "new sandboxes")
    equal(daemon().metric("hutch_runs_started_total") - started, 1)
    later = client().start(TOKEN, key, 30000)
    done = [a.json["result"] for a in answers if a.status == 200]
    equal(set(done + [later.json["result"]]), {later.json["result"]})


@case("LBB-24 LBB-175: the same key with another request: 409, the first stays")
def conflict():
    key = new_key()
    r = client().run(TOKEN, key)
    other = client().start(TOKEN + "\n", key)
    equal((other.status, other.code), (409, "idempotency_conflict"))
    assert f'The key "{key}" was used' in other.json["error"]["message"], other
    other = client().start(TOKEN, key, input=1)
    equal((other.status, other.code), (409, "idempotency_conflict"))
    equal(client().start(TOKEN, key, 500).json["result"], r.result)


@case("LBB-23: wait_ms and the order of members are not the request")
def same_request():
    key = new_key()
    c = client()
    bodies = ['{"run":{"code":"def run(i,c): return i","input":[1, 2]},'
              '"wait_ms":30000}',
              '{"wait_ms":10,"run":{"code":"def run(i,c): return i",'
              '"input":[1, 2]}}']
    ids = []
    for b in bodies:
        r = c.call("POST", "/v1/sandboxes", b, key)
        assert r.status in (200, 202), r
        ids.append(r.json["command"])
    equal(ids[0], ids[1])


@case("LBB-26: keys of two graphs and two environments are apart")
def scope():
    key = new_key()
    c = client()
    first = c.run(TOKEN, key)
    c.graph = "second"
    try:
        second = c.run(TOKEN, key)
    finally:
        c.graph = "main"
    third = daemon().client("third").run(TOKEN, key)
    equal(len({first.command, second.command, third.command}), 3)


@case("LBB-27: a refused request does not burn its key")
def not_burnt():
    key = new_key()
    r = client().start(TOKEN, key, limits={"vcpus": 9})
    equal((r.status, r.code), (400, "sandbox_limits_invalid"))
    assert client().run(TOKEN, key).ok


@case("LBB-20 LBB-22 LBB-174: no key: 400 missing_idempotency_key")
def missing():
    r = client().call("POST", "/v1/sandboxes", {"run": {"code": TOKEN}})
    equal((r.status, r.code), (400, "missing_idempotency_key"))
    equal(r.json["error"]["type"], "invalid_request_error")


@case("LBB-249: keys of 255 printable characters, with / . : kept")
def key_forms():
    for key in ("a", "x" * 255, "run/1:step.2/a b!~"):
        r = client().start(TOKEN, key, 30000)
        assert r.status in (200, 202), (key, r)
    for key in ("x" * 256, "caf\xe9"):
        r = client().start(TOKEN, key)
        equal(r.status, 400, key)


@case("LBB-25 L1: kill -9 after the end: the same record, not run again")
def kill_after():
    key = new_key()
    r = client().run(TOKEN, key)
    d = daemon()
    d.kill()
    d.start()
    again = client().start(TOKEN, key, 30000)
    equal((again.status, again.json["command"], again.json["result"]),
          (200, r.command, r.result))
    equal(client().sandbox(r.sandbox)["status"], "destroyed")


@case("M1 LBB-91: kill -9 during a run: lost with its reason, the VM is gone")
def kill_during():
    key = new_key()
    r = client().start(SLEEP, key, 0, input=600, timeout_ms=900000)
    command = r.json["command"]
    wait_until(lambda: client().command(command).json["status"] == "running",
               600, "running")
    d = daemon()
    pids = list(d.vmm_pids().values())
    assert pids, "no VMM seen"
    d.kill()
    wait_until(lambda: not any(is_running(p) for p in pids), 15,
               "its VMMs end with it")
    d.start()
    c = client().command(command).json
    equal((c["status"], c["ok"], c["result"], c["reason"]),
          ("lost", False, None, "daemon_restart"))
    again = client().start(SLEEP, key, 30000, input=600, timeout_ms=900000)
    equal((again.status, again.json["status"], again.json["command"]),
          (200, "lost", command))
    equal(client().sandbox(r.json["sandbox"])["status"], "lost")
    left = [x for x in os.listdir(d.state) if "sbx_" in x]
    equal(left, [], "files of the lost sandbox")
    assert client().run(TOKEN).ok


@case("J12 LBB-91: kill -9 of the VMM in a run: lost, never success")
def vmm_killed():
    r = client().start(SLEEP, new_key(), 0, input=600, timeout_ms=900000)
    command = r.json["command"]
    wait_until(lambda: client().command(command).json["status"] == "running",
               600, "running")
    pid = daemon().vmm_pids()[r.json["sandbox"]]
    os.kill(pid, signal.SIGKILL)
    t = time.monotonic()
    end = client().wait(command, 30)
    assert time.monotonic() - t < 5, "over 5 s"
    equal((end.status, end.ok, end.result, end.reason),
          ("lost", False, None, "vm_lost"))
    wait_until(lambda: client().sandbox(r.json["sandbox"])[
        "status"] == "lost", 10, "the sandbox is lost")
    assert client().run(TOKEN).ok


@case("K19: while draining a run goes on and who follows it sees its end")
def drained():
    d = daemon()
    c = client()
    key = new_key()
    r = c.start(SLEEP, key, 0, input=4, timeout_ms=60000)
    command = r.json["command"]
    other = c.start(SLEEP, new_key(), 0, input=600, timeout_ms=900000)
    for x in (command, other.json["command"]):
        wait_until(lambda: c.command(x).json["status"] == "running", 600,
                   "running")
    os.kill(d.pid, signal.SIGTERM)
    wait_until(lambda: d.get("/readyz").status == 503, 5, "it drains")
    refused = c.start(TOKEN, new_key())
    equal((refused.status, refused.code), (503, "service_unavailable"))
    equal(c.cancel(other.json["command"]).json["status"], "cancelled")
    end = c.wait(command, 30)
    equal((end.status, end.result), ("succeeded", "slept"))
    equal(c.logs(command), b"")
    equal(c.sandbox(r.json["sandbox"])["reason"], None)
    assert n_sandboxes() > 0
    t = time.monotonic()
    equal(d.process.wait(30), 0, "exit status")
    assert time.monotonic() - t < 5, "it stops when nothing runs"
    d.stop()
    d.start()
    again = c.start(SLEEP, key, 0, input=4, timeout_ms=60000)
    equal((again.status, again.json["command"], again.json["result"]),
          (200, command, "slept"))


@case("M1: a stop right after a run takes its sandbox for destroyed, no more")
def stopped_after():
    d = daemon()
    ids = [client().run(TOKEN).sandbox for _ in range(3)]
    d.stop()
    d.start()
    for x in ids:
        s = client().sandbox(x)
        equal((s["status"], s["reason"]), ("destroyed", None))


@case("K19: SIGTERM during a run: it is told, and ends in bounded time")
def terminated():
    r = client().start(SLEEP, new_key(), 0, input=600, timeout_ms=900000)
    command = r.json["command"]
    wait_until(lambda: client().command(command).json["status"] == "running",
               600, "running")
    d = daemon()
    t = time.monotonic()
    equal(d.stop(), 0, "exit status")
    assert time.monotonic() - t < 30, "over 30 s"
    d.start()
    c = client().command(command).json
    equal((c["status"], c["reason"]), ("lost", "daemon_restart"))


@case("M7: a second daemon on the same state folder is refused")
def second_daemon():
    second = Daemon(daemon().state)
    listen = os.path.join(daemon().state, "listen")
    with open(listen) as f:
        before = f.read()
    try:
        second.start()
        raise Exception("two daemons run")
    except AssertionError as e:
        assert "ended at its start" in str(e), e
        assert second.process.returncode != 0
    finally:
        if second in Daemon.running:
            second.stop()
        with open(listen, "w") as f:
            f.write(before)
    assert client().run(TOKEN).ok


@case("M10: twenty runs leave no descriptor, process or file behind")
def no_leak():
    d = daemon()
    client().run(TOKEN)

    def state():
        # One that waits for a run: process, control, log, channel, disk.
        waiting = d.metric("hutch_pool_ready") + d.metric(
            "hutch_pool_starting")
        fds = len(os.listdir(f"/proc/{d.pid}/fd")) - 5 * waiting
        threads = len(os.listdir(f"/proc/{d.pid}/task"))
        files = sum(len(f) for _, _, f in os.walk(d.state))
        return fds, threads, files

    def settled():
        last = state()
        time.sleep(1.5)
        return last == state() and not d.vmm_pids() and last

    before = wait_until(settled, 30, "the daemon is quiet")
    for _ in range(20):
        assert client().run(TOKEN).ok
    after = wait_until(settled, 60, "the daemon is quiet")
    assert all(a <= b + 1 for a, b in zip(after, before)), (before, after)


main()
