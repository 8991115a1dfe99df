#!/usr/bin/env python3
"""Environments, plans, places: what the operator sets is in force at the next
request of a running daemon, and after kill -9.

No sandbox starts in the first part: the daemon has no room for one, so that
what passes every check answers 503 sandbox_capacity.

test: timeout=900 beside=yes
"""
import datetime
import json
import os
import shutil
import time

from held import create, delete, hold, resume, start, stopped
from hutchlib import (Client, Daemon, MovableDaemon, STATE, case, equal, hutch,
                      main, new_key, wait_until)

CODE = "echo 1"
PASSED = (503, "sandbox_capacity")
ID = "a1b2mbmzg5cyvlxv5xpzn3dtma"
SBX, CMD, SNP = "sbx_" + ID, "cmd_" + ID, "snp_" + ID
FULL = Daemon(STATE + "-full", ram_budget_mib=1, pool_max=0,
              environment_places=10, graph_places=5)
ENV = {"HUTCH_STATE": FULL.state}

# Every call of the surface: does the free plan take it?
RUN_CALLS = [
    ("POST", "/v1/sandboxes", {}, {"run": {"code": CODE}}),
    ("POST", "/v1/sandboxes", {}, {"template": "lbb/shell"}),
    ("POST", "/v1/sandboxes/resume", {"sandbox": SBX}, None),
    ("POST", "/v1/sandboxes/commands", {"sandbox": SBX}, {"argv": ["ls"]}),
    ("POST", "/v1/sandboxes/snapshots", {"sandbox": SBX}, {}),
    ("PUT", "/v1/sandboxes/files/content", {"sandbox": SBX, "path": "a"},
     "text"),
    ("POST", "/v1/sandboxes/grants", {},
     {"workflow": "w", "run": "r", "step": "s", "attempt": 1,
      "operation": "sandbox_run"}),
]
READ_CALLS = [
    ("GET", "/v1/sandboxes", {}),
    ("GET", "/v1/sandboxes/get", {"sandbox": SBX}),
    ("DELETE", "/v1/sandboxes", {"sandbox": SBX}),
    ("POST", "/v1/sandboxes/stop", {"sandbox": SBX}),
    ("GET", "/v1/sandboxes/commands", {"sandbox": SBX}),
    ("GET", "/v1/sandboxes/commands/get", {"command": CMD}),
    ("GET", "/v1/sandboxes/commands/logs", {"command": CMD}),
    ("POST", "/v1/sandboxes/commands/cancel", {"command": CMD}),
    ("GET", "/v1/sandboxes/files", {"sandbox": SBX}),
    ("GET", "/v1/sandboxes/files/content", {"sandbox": SBX, "path": "a"}),
    ("DELETE", "/v1/sandboxes/files", {"sandbox": SBX, "path": "a"}),
    ("GET", "/v1/sandboxes/snapshots", {}),
    ("GET", "/v1/sandboxes/snapshots/get", {"snapshot": SNP}),
    ("DELETE", "/v1/sandboxes/snapshots", {"snapshot": SNP}),
    ("GET", "/v1/sandboxes/templates", {}),
]


def told(r):
    return r.status, r.code if r.status >= 400 else None


def cli(*argv, status=0):
    p = hutch(*argv, env=ENV)
    equal(p.returncode, status, p.stderr + p.stdout)
    return p


def full():
    if not FULL.is_alive():
        FULL.start()
    return FULL


def environment(name):
    return json.loads(cli("env", "show", name, "--json").stdout)["data"][0]


def made(name, *options):
    """A new environment and a client of it, both by the command line."""
    full()
    cli("env", "create", name, *options)
    key = cli("key", "create", "--env", name, "--name", "k").stdout.strip()
    return Client(FULL, key, "k", name)


def ask(c, method, path, query, body=None, key=None):
    headers = {"Content-Type": "text/plain"} if isinstance(body, str) else None
    return c.call(method, path, body, key or new_key(), query,
                  headers=headers)


@case("hutch env: made, listed, shown, changed, removed; names are checked")
def env_words():
    full()
    cli("env", "create", "words", "--places", "20", "--graph-places", "7")
    e = environment("words")
    equal((e["plan"], e["sandboxes_enabled"]), ("full", True))
    equal((e["places"], e["own_places"]), (20, 20))
    equal((e["graph_places"], e["keys"], e["places_held"]), (7, 0, 0))
    assert "words" in cli("env", "list").stdout
    p = cli("env", "create", "words", status=69)
    assert "already" in p.stderr and "conflict" in p.stderr, p.stderr
    cli("env", "set", "words", "--places", "0")
    e = environment("words")
    equal((e["places"], e["own_places"]), (10, None))
    equal(e["graph_places"], 7)
    p = cli("env", "create", "No!", status=64)
    assert "a-z 0-9 _ -" in p.stderr, p.stderr
    p = cli("env", "set", "words", "--places", "100001", status=64)
    assert "100000" in p.stderr, p.stderr
    p = cli("env", "set", "words", "--plan", "gold", status=64)
    assert "gold" in p.stderr and "free" in p.stderr, p.stderr
    p = cli("env", "set", "words", "--enabled", "maybe", status=64)
    assert "maybe" in p.stderr, p.stderr
    for verb in ("show", "set", "rm"):
        p = cli("env", verb, "nobody", status=66)
        assert "no environment nobody" in p.stderr, p.stderr
    cli("env", "rm", "words")
    assert "words" not in cli("env", "list").stdout


@case("keys: lbb_sk_live_ and lbb_sk_test_, of one environment, revoked at "
      "once (LBB-2)")
def key_words():
    c = made("keys")
    assert c.key.startswith("lbb_sk_live_"), c.key
    equal(c.call("GET", "/v1/sandboxes").status, 200)
    key = cli("key", "create", "--env", "keys", "--name", "t",
              "--test").stdout.strip()
    assert key.startswith("lbb_sk_test_"), key
    equal(Client(FULL, key, "t", "keys").call("GET", "/v1/sandboxes").status,
          200)
    listed = json.loads(cli("key", "list", "--env", "keys",
                            "--json").stdout)["data"]
    equal([(k["name"], k["mode"]) for k in listed],
          [("k", "live"), ("t", "test")])
    cli("key", "revoke", "--env", "keys", "--name", "t")
    equal(told(Client(FULL, key, "t", "keys").call("GET", "/v1/sandboxes")),
          (401, "unauthorized"))
    equal(c.call("GET", "/v1/sandboxes").status, 200)


@case("LBB-69 LBB-172: the free plan is refused what starts or writes, and takes "
      "what reads, ends or deletes; changes are in force at once")
def plans():
    c = made("plans", "--plan", "free")
    for method, path, query, body in RUN_CALLS:
        r = ask(c, method, path, query, body)
        equal(told(r), (403, "sandbox_plan_unavailable"), (method, path))
        equal(r.json["error"]["retryable"], False)
        assert "plans" in r.json["error"]["message"], r
    for method, path, query in READ_CALLS:
        r = ask(c, method, path, query)
        assert r.status in (200, 404), (method, path, r)
    cli("env", "set", "plans", "--plan", "full")
    for method, path, query, body in RUN_CALLS:
        r = ask(c, method, path, query, body)
        assert r.status in (201, 404, 503), (method, path, r)


@case("LBB-27 LBB-69: a refused call burns no key")
def no_key_is_burnt():
    c = made("burnt", "--plan", "free")
    key = new_key()
    run = {"run": {"code": CODE}}
    equal(told(ask(c, "POST", "/v1/sandboxes", {}, run, key)),
          (403, "sandbox_plan_unavailable"))
    cli("env", "set", "burnt", "--plan", "full", "--enabled", "no")
    equal(told(ask(c, "POST", "/v1/sandboxes", {}, run, key)),
          (409, "sandbox_not_enabled"))
    cli("env", "set", "burnt", "--enabled", "yes")
    # Another request with it is no conflict.
    other = {"run": {"code": CODE + " "}}
    equal(told(ask(c, "POST", "/v1/sandboxes", {}, other, key)), PASSED)


@case("LBB-70 LBB-173: not enabled refuses every call, 409, never to be retried")
def not_enabled():
    c = made("off", "--enabled", "no")
    for method, path, query, *body in RUN_CALLS + READ_CALLS:
        r = ask(c, method, path, query, *body)
        equal(told(r), (409, "sandbox_not_enabled"), (method, path))
        equal(r.json["error"]["retryable"], False)
    equal(c.call("GET", "/version", query={"graph": None}).status, 200)
    cli("env", "set", "off", "--enabled", "yes")
    equal(c.call("GET", "/v1/sandboxes").status, 200)


@case("what was set is there after kill -9")
def after_kill():
    c = made("lasting", "--plan", "free", "--places", "3")
    cli("graph", "set", "g1", "--env", "lasting", "--places", "2",
        "--new-epoch")
    FULL.kill()
    full()
    e = environment("lasting")
    equal((e["plan"], e["places"], e["keys"]), ("free", 3, 1))
    g = json.loads(cli("graph", "show", "g1", "--env", "lasting",
                       "--json").stdout)["data"][0]
    equal((g["places"], g["own_places"], g["epoch"]), (2, 2, "2"))
    equal(told(ask(c, *RUN_CALLS[0])), (403, "sandbox_plan_unavailable"))
    cli("env", "rm", "lasting")
    equal(told(c.call("GET", "/v1/sandboxes")), (401, "unauthorized"))


@case("the daemon of those ends")
def ends():
    equal(FULL.stop(), 0)
    shutil.rmtree(FULL.state)
    assert not os.path.exists(FULL.state)


# ---- sandboxes that run -------------------------------------------------

BOXES = Daemon(STATE + "-boxes", pool_max=0)
BOX_ENV = {"HUTCH_STATE": BOXES.state}
SETTLE_S = 120


def boxes():
    if not BOXES.is_alive():
        BOXES.start()
    return BOXES


def of(c, graph):
    return Client(c.daemon, c.key, c.name, c.environment, graph)


def status(c, sandbox):
    return c.sandbox(sandbox)["status"]


def becomes(c, sandbox, want):
    wait_until(lambda: status(c, sandbox) == want, SETTLE_S,
               f"{sandbox} is {want}")


@case("LBB-68 LBB-171: places of a graph and of its environment, changed while "
      "sandboxes hold them")
def places():
    boxes()
    c = BOXES.client("places")

    def put(*argv):
        equal(hutch(*argv, env=BOX_ENV).returncode, 0)

    put("env", "set", "places", "--places", "2", "--graph-places", "1")
    first = hold(c)
    r = create(c)
    equal(told(r), (429, "sandbox_limit_reached"))
    equal(r.json["error"]["retryable"], True)
    assert "graph main" in r.json["error"]["message"], r
    second = hold(of(c, "other"))
    r = create(of(c, "third"))
    equal(told(r), (429, "sandbox_limit_reached"))
    assert "environment places" in r.json["error"]["message"], r
    # Another environment has places of its own.
    equal(create(BOXES.client("elsewhere"), wait_ms=0).status, 201)
    put("env", "set", "places", "--places", "3")
    put("graph", "set", "main", "--env", "places", "--places", "2")
    third = hold(c)
    stopped(c, first)
    fourth = create(c, wait_ms=0)
    equal(fourth.status, 201, "a stopped one holds none")
    equal(told(resume(c, first)), (429, "sandbox_limit_reached"))
    for owner, s in ((c, first), (c, third), (c, fourth.json["id"]),
                     (of(c, "other"), second)):
        equal(delete(owner, s).status, 200)


@case("LBB-5: what belongs to another environment, or graph, is not there")
def isolated():
    boxes()
    mine = BOXES.client("mine")
    box = hold(mine)
    cmd = start(mine, box, "true", wait_ms=30000).json["id"]
    for other in (BOXES.client("theirs"), of(mine, "g2")):
        for method, path, query, body in (
                ("GET", "/v1/sandboxes/get", {"sandbox": box}, None),
                ("DELETE", "/v1/sandboxes", {"sandbox": box}, None),
                ("POST", "/v1/sandboxes/stop", {"sandbox": box}, None),
                ("POST", "/v1/sandboxes/commands", {"sandbox": box},
                 {"argv": ["ls"]}),
                ("GET", "/v1/sandboxes/files", {"sandbox": box}, None),
                ("POST", "/v1/sandboxes/snapshots", {"sandbox": box}, {})):
            equal(told(ask(other, method, path, query, body)),
                  (404, "sandbox_not_found"), (method, path))
        for method, path in (("GET", "get"), ("GET", "logs"),
                             ("POST", "cancel")):
            equal(told(ask(other, method, "/v1/sandboxes/commands/" + path,
                           {"command": cmd})),
                  (404, "sandbox_command_not_found"), path)
        equal(other.call("GET", "/v1/sandboxes").json["data"], [])
        equal(other.call("GET", "/v1/sandboxes/commands",
                         query={"sandbox": box}).json["data"], [])
    equal(status(mine, box), "running")
    equal(hutch("env", "rm", "mine", env=BOX_ENV).returncode, 69)
    equal(delete(mine, box).status, 200)


@case("what holds places ends with its daemon")
def boxes_end():
    equal(BOXES.stop(), 0)


# ---- time ----------------------------------------------------------------

MOVED = MovableDaemon(STATE + "-moved", pool_max=0)
HOUR, DAY = 3600, 86400


def moved():
    if not MOVED.is_alive():
        MOVED.start()
    return MOVED


@case("LBB-49: idle for 300 s stops a sandbox, not before; a call resets it")
def idle():
    c = moved().client()
    box = hold(c, expires_in_seconds=7 * DAY)
    MOVED.pass_time(250)
    equal(start(c, box, "true", wait_ms=30000).status, 200)
    MOVED.pass_time(250)
    equal(status(c, box), "running")
    MOVED.pass_time(60)
    becomes(c, box, "stopped")
    equal(resume(c, box).json["status"], "running")
    equal(delete(c, box).status, 200)


@case("LBB-50: it ends after an hour, or when it was told to, up to seven "
      "days; stopped, running, and while no daemon ran")
def expiry():
    c = moved().client()
    # Idle ends nothing that runs a command.
    short = hold(c, idle_seconds=3600)
    week = hold(c, expires_in_seconds=7 * DAY)
    stopped(c, week)
    MOVED.pass_time(HOUR - 60)
    assert status(c, short) in ("running", "stopped")
    MOVED.pass_time(60)
    becomes(c, short, "destroyed")
    equal(c.sandbox(short)["reason"], "timeout")
    MOVED.pass_time(6 * DAY)
    equal(status(c, week), "stopped")
    MOVED.kill()
    MOVED.pass_time(DAY)
    moved()
    c = Client(MOVED, c.key, c.name, c.environment)
    becomes(c, week, "destroyed")


@case("LBB-46 LBB-90 LBB-25: output of a run is kept 7 days, its result and "
      "records 30, and its key as long as they")
def retention():
    c = moved().client()
    key = new_key()
    run = {"run": {"code": "echo said >&2; echo 6 > $RUN_RESULT",
                   "template": "lbb/shell"}, "wait_ms": 30000}
    r = c.call("POST", "/v1/sandboxes", run, key, timeout=120)
    assert r.status in (200, 202), r
    ended = c.wait(r.json["command"])
    cmd, box = ended.command, r.json["sandbox"]
    equal(ended.status, "succeeded", ended)
    assert c.logs(cmd, "stderr"), "there is output"
    result = c.command(cmd).json["result"]
    equal(result, 6)
    becomes(c, box, "destroyed")

    MOVED.pass_time(7 * DAY - 2 * HOUR)
    equal(c.log_slice(cmd, "stderr").status, 200)
    MOVED.pass_time(2 * HOUR)
    wait_until(lambda: c.log_slice(cmd, "stderr").status == 410, 30,
               "the output is erased")
    MOVED.kill()
    moved()
    c = Client(MOVED, c.key, c.name, c.environment)
    r = c.log_slice(cmd, "stderr")
    equal(told(r), (410, "sandbox_output_expired"))
    equal(r.json["error"]["retryable"], False)
    record = c.command(cmd).json
    equal((record["result"], record["status"]), (result, "succeeded"))
    equal(record["stderr"]["expired"], True)
    equal(status(c, box), "destroyed")
    r = c.call("POST", "/v1/sandboxes", run, key)
    equal((r.status, r.json["command"]), (200, cmd))

    MOVED.pass_time(23 * DAY - 2 * HOUR)
    equal(status(c, box), "destroyed")
    MOVED.pass_time(2 * HOUR)
    wait_until(lambda: c.call("GET", "/v1/sandboxes/get", query={
        "sandbox": box}).status == 404, 30, "the records are erased")
    equal(told(c.call("GET", "/v1/sandboxes/commands/get",
                      query={"command": cmd})),
          (404, "sandbox_command_not_found"))
    r = c.call("POST", "/v1/sandboxes", run, key)
    assert r.json["command"] != cmd, "the key went with its record"
    c.wait(r.json["command"])


@case("a daemon that is installed has no such clock")
def not_by_accident():
    equal(MOVED.stop(), 0)
    assert "FOR TESTS" in MOVED.log_text()
    d = MovableDaemon(STATE + "-plain", pool_max=0)
    d.program = "hutchd"
    d.settings.pop("snapshot_renew_hours")
    d.pass_time(DAY)
    d.start()
    now = d.admin("GET", "/admin/status").json["now"]
    assert "FOR TESTS" not in d.log_text()
    told_s = datetime.datetime.fromisoformat(now.rstrip("Z") + "+00:00")
    off = abs(told_s.timestamp() - time.time())
    assert off < 60, f"its clock is {off} s off"
    equal(d.stop(), 0)


main()
