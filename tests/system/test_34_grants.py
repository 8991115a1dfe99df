#!/usr/bin/env python3
"""Steps of workflows: grants, the origin of records, budgets.

First on a daemon that has no room for a sandbox: what passes every check
answers 503 sandbox_capacity.  Its clock moves (hostd/clock.h).

test: timeout=600 beside=yes
"""
import json
import re
import shutil

from held import create, delete, hold, start
from hutchlib import (Client, MovableDaemon, STATE, case, equal, hutch, main,
                      new_key)

CODE = "echo 1"
PASSED = (503, "sandbox_capacity")
DENIED = (403, "workflow_grant_denied")
RUN = {"run": {"code": CODE, "template": "lbb/shell"}, "wait_ms": 0}
ID = "a1b2mbmzg5cyvlxv5xpzn3dtma"
FULL = MovableDaemon(STATE + "-full", ram_budget_mib=1, pool_max=0)


def told(r):
    return r.status, r.code if r.status >= 400 else None


def full():
    if not FULL.is_alive():
        FULL.start()
    return FULL


def step(**more):
    return dict({"workflow": "nightly", "run": "r7", "step": "sum",
                 "attempt": 1, "operation": "sandbox_run"}, **more)


def ask(c, **more):
    return c.call("POST", "/v1/sandboxes/grants", step(**more))


def granted(c, **more):
    """A client with a grant in the place of its key."""
    r = ask(c, **more)
    equal(r.status, 201, r)
    return Client(c.daemon, r.json["token"], "grant", c.environment, c.graph)


def post(c, body=None, key=None, **query):
    return c.call("POST", "/v1/sandboxes", body or RUN, key or new_key(),
                  query)


@case("LBB-259 LBB-263: a grant has the form of an execution credential; asked "
      "for with a key or by hutch grant create")
def form():
    c = full().client("form")
    g = ask(c, turn=3, attempt=2).json
    assert re.fullmatch(r"lbb_wke_[A-Za-z0-9._-]+", g["token"]), g
    assert re.fullmatch(r"0|[1-9][0-9]{0,19}", g["graph_epoch"]), g
    equal(g["expires_at_ms"] - g["issued_at_ms"], 60000)
    equal((g["graph_id"], g["workflow_id"], g["run_id"], g["step"]),
          ("main", "nightly", "r7", "sum"))
    equal((g["turn"], g["attempt"], g["operations"]), (3, 2, ["sandbox_run"]))
    p = hutch("grant", "create", "--env", "form", "--graph", "g2",
              "--workflow", "nightly", "--run", "r8", "--step", "sum",
              "--attempt", "1", "--operation", "sandbox_run,sandbox_read",
              "--ttl", "5s", "--json", env={"HUTCH_STATE": FULL.state})
    equal(p.returncode, 0, p.stderr)
    made = [json.loads(line) for line in p.stdout.splitlines()]
    equal([m["operations"] for m in made],
          [["sandbox_run"], ["sandbox_read"]])
    equal(made[0]["graph_id"], "g2")
    equal(made[0]["expires_at_ms"] - made[0]["issued_at_ms"], 5000)
    own = Client(FULL, made[0]["token"], "grant", "form", "g2")
    equal(told(post(own)), PASSED)


@case("what a grant is asked for is checked by field")
def fields():
    c = full().client("fields")
    for field, value in (("workflow", "a/b"), ("workflow", "w" * 129),
                         ("run", ""), ("run", "a b"), ("step", "caf\xe9"),
                         ("attempt", 0), ("attempt", "1"), ("turn", 0),
                         ("ttl_ms", 999), ("ttl_ms", 60001),
                         ("operation", "sandbox_grant"),
                         ("operation", "owned_write"), ("more", 1)):
        r = ask(c, **{field: value})
        equal((r.status, r.param), (400, field), (field, value, r))
    for field in ("workflow", "run", "step", "attempt", "operation"):
        body = step()
        del body[field]
        r = c.call("POST", "/v1/sandboxes/grants", body)
        equal((r.status, r.param), (400, field))
    free = FULL.client("fieldsfree", plan="free")
    equal(told(ask(free)), (403, "sandbox_plan_unavailable"))


@case("LBB-221 LBB-264: a grant is for one kind of call on one graph, and for "
      "nothing else")
def scope():
    c = full().client("scope")
    g = granted(c)
    equal(told(post(g)), PASSED)
    equal(told(post(g, {"template": "lbb/shell"})), DENIED)
    equal(told(post(g, graph="other")), DENIED)
    equal(told(ask(g)), DENIED, "a grant hands out none")
    sbx, cmd = {"sandbox": "sbx_" + ID}, {"command": "cmd_" + ID}
    calls = {
        "sandbox_read": [("GET", "/v1/sandboxes", {}),
                         ("GET", "/v1/sandboxes/commands/get", cmd),
                         ("GET", "/v1/sandboxes/commands/logs", cmd),
                         ("GET", "/v1/sandboxes/files", sbx)],
        "sandbox_manage": [("DELETE", "/v1/sandboxes", sbx),
                           ("POST", "/v1/sandboxes/stop", sbx),
                           ("POST", "/v1/sandboxes/commands/cancel", cmd)],
        "sandbox_resume": [("POST", "/v1/sandboxes/resume", sbx)],
        "sandbox_command": [("POST", "/v1/sandboxes/commands", sbx,
                             {"argv": ["ls"]})],
        "sandbox_write": [("PUT", "/v1/sandboxes/files/content",
                           {**sbx, "path": "a"}, "text")],
        "sandbox_create": [("POST", "/v1/sandboxes", {},
                            {"template": "lbb/shell"})],
        "sandbox_run": [("POST", "/v1/sandboxes", {}, RUN)],
    }
    for own in calls:
        g = granted(c, operation=own)
        for operation, rows in calls.items():
            for method, path, query, *body in rows:
                r = g.call(method, path, *body, key=new_key(), query=query)
                if own == operation:
                    assert r.status in (200, 404, 503), (own, path, r)
                else:
                    equal(told(r), DENIED, (own, method, path))
                    equal(r.json["error"]["retryable"], False)


@case("the body's workflow may say less than the grant, and nothing else")
def body():
    c = full().client("body")
    g = granted(c, turn=4)
    same = {"identity": "nightly", "turn": 4, "run_id": "r7", "step": "sum"}
    equal(told(post(g, {**RUN, "workflow": same})), PASSED)
    for field, value in (("identity", "other"), ("turn", 5),
                         ("run_id", "r8"), ("step", "sun")):
        r = post(g, {**RUN, "workflow": {**same, field: value}})
        equal((*told(r), r.param), (*DENIED, "workflow." + field))
    r = post(c, {**RUN, "workflow": {"identity": "nightly"}})
    equal((r.status, r.param), (400, "workflow"))


@case("LBB-263: it lives a minute; expired, unknown and none are told apart; "
      "it outlives kill -9")
def time():
    c = full().client("time")
    g = granted(c)
    FULL.kill()
    full()
    g = Client(FULL, g.key, "grant", "time")
    equal(told(post(g)), PASSED)
    FULL.pass_time(61)
    r = post(g)
    equal(told(r), (401, "workflow_grant_expired"))
    equal(r.json["error"]["retryable"], False)
    g.key = "lbb_wke_" + "0" * 64
    equal(told(post(g)), (401, "unauthorized"))
    with open(f"{FULL.state}/hutch.db", "rb") as db:
        stored = db.read()
    g = granted(Client(FULL, c.key, c.name, "time"), attempt=2)
    for name in ("hutch.db", "hutch.db-wal", "daemon.log"):
        with open(f"{FULL.state}/{name}", "rb") as f:
            stored += f.read()
    assert g.key.encode() not in stored, "the token is stored nowhere"


@case("LBB-262: a later attempt fences the earlier one")
def fence():
    c = full().client("fence")
    first, second = granted(c), None
    equal(told(post(first)), PASSED)
    second = granted(c, attempt=2)
    equal(told(post(first)), (409, "workflow_fence_lost"))
    equal(told(ask(c, attempt=1)), (409, "workflow_fence_lost"))
    equal(told(post(second)), PASSED)
    equal(told(post(granted(c, attempt=1, step="other"))), PASSED)
    FULL.kill()
    full()
    first.daemon = FULL
    equal(told(post(first)), (409, "workflow_fence_lost"))


@case("LBB-263: expected_graph_epoch is checked; a new epoch ends all grants")
def epoch():
    c = full().client("epoch")
    g = granted(c)
    equal(told(post(g, expected_graph_epoch="1")), PASSED)
    equal(told(post(c, expected_graph_epoch="1")), PASSED)
    equal(told(post(c, expected_graph_epoch="2")),
          (409, "graph_epoch_mismatch"))
    # What is wrong in itself is said first: it stays wrong.
    equal(told(c.call("POST", "/v1/sandboxes", RUN,
                      query={"expected_graph_epoch": "2"})),
          (400, "missing_idempotency_key"))
    r = post(c, expected_graph_epoch="x")
    equal((r.status, r.param), (400, "expected_graph_epoch"))
    p = hutch("graph", "set", "main", "--env", "epoch", "--new-epoch",
              env={"HUTCH_STATE": FULL.state})
    equal(p.returncode, 0, p.stderr)
    equal(told(post(g)), (409, "graph_epoch_mismatch"))
    equal(ask(c).json["graph_epoch"], "2")
    equal(told(post(granted(c), expected_graph_epoch="2")), PASSED)


@case("LBB-69 LBB-70: a grant can do no more than its environment")
def environment():
    c = full().client("envgrant")
    g = granted(c)
    for option, want in ((("--plan", "free"),
                          (403, "sandbox_plan_unavailable")),
                         (("--enabled", "no"), (409, "sandbox_not_enabled"))):
        p = hutch("env", "set", "envgrant", *option,
                  env={"HUTCH_STATE": FULL.state})
        equal(p.returncode, 0, p.stderr)
        equal(told(post(g)), want)


@case("the daemon without room ends")
def full_ends():
    equal(FULL.stop(), 0)
    shutil.rmtree(FULL.state)


# ---- runs ----------------------------------------------------------------

BOXES = MovableDaemon(STATE + "-boxes", pool_max=0)


def boxes():
    if not BOXES.is_alive():
        BOXES.start()
    return BOXES


def records(c, reply):
    sandbox = reply.json["sandbox"]
    return (c.sandbox(sandbox)["origin"],
            c.command(reply.json["command"]).json["origin"])


@case("LBB-45 LBB-222: records and answers name workflow, run, step and "
      "attempt, from a grant or from the body")
def origin():
    c = boxes().client("origin")
    r = post(granted(c, turn=3, attempt=2), {**RUN, "wait_ms": 30000})
    want = {"workflow": "nightly", "run": "r7", "step": "sum", "turn": 3,
            "attempt": 2}
    equal(r.json["origin"], want, r)
    c.wait(r.json["command"])
    equal(records(c, r), (want, want))
    box = hold(c, workflow={"identity": "agent", "turn": 1})
    said = {"workflow": "agent", "run": None, "step": None, "turn": 1,
            "attempt": None}
    equal(c.sandbox(box)["origin"], said)
    r = start(c, box, "true", wait_ms=30000,
              workflow={"identity": "agent", "turn": 2, "step": "look",
                        "run_id": "agent:2"})
    equal(r.json["origin"], {**said, "turn": 2, "step": "look",
                             "run": "agent:2"})
    equal(start(c, box, "true", wait_ms=30000).json["origin"], None)
    equal(delete(c, box).status, 200)
    BOXES.kill()
    boxes()
    c = Client(BOXES, c.key, c.name, "origin")
    equal(c.sandbox(box)["origin"], said)


@case("LBB-220 LBB-261: another attempt, with a grant of its own, finds the run "
      "by the step's key; keys are kept intact up to 255 characters")
def another_attempt():
    c = boxes().client("attempt")
    key = ("nightly/r7:turn.1/" + "k" * 255)[:250] + "/.:~2"
    equal(len(key), 255)
    first = post(granted(c), {**RUN, "wait_ms": 30000}, key)
    c.wait(first.json["command"])
    again = {**RUN, "workflow": {"identity": "nightly", "turn": 1}}
    second = post(granted(c, attempt=2), again, key)
    equal((second.status, second.json["command"]),
          (200, first.json["command"]))
    equal(second.json["origin"]["attempt"], 1, "the one that began it")
    equal(told(c.call("POST", "/v1/sandboxes", RUN, key + "x")),
          (400, "invalid_request"))
    equal(len(c.call("GET", "/v1/sandboxes").json["data"]), 1)


@case("LBB-265: a budget of runs is counted with the run; spent is 429 with "
      "retry_at_ms, and burns no key")
def budget():
    c = boxes().client("budget")
    env = {"HUTCH_STATE": BOXES.state}
    p = hutch("budget", "set", "--env", "budget", "--workflow", "nightly",
              "--runs", "2", "--window", "1h", env=env)
    equal(p.returncode, 0, p.stderr)
    wf = {"workflow": {"identity": "nightly", "turn": 1}}
    first_key = new_key()
    first = post(c, {**RUN, **wf, "wait_ms": 30000}, first_key)
    c.wait(first.json["command"])
    box = hold(c, **wf)     # no run
    equal(start(c, box, "true", wait_ms=30000, **wf).status, 200)
    key = new_key()
    r = post(c, {**RUN, **wf}, key)
    equal(told(r), (429, "workflow_budget_exceeded"))
    e = r.json["error"]
    assert e["retryable"] and "nightly" in e["message"], r
    assert 0 < e["retry_after_seconds"] <= 3600, r
    equal(int(r.headers["Retry-After"]), e["retry_after_seconds"])
    r = start(c, box, "true", **wf)
    equal(told(r), (429, "workflow_budget_exceeded"))
    # Found by its key: not counted.  Another workflow, none: not its.
    equal(post(c, {**RUN, **wf}, first_key).json["command"],
          first.json["command"])
    r = post(c, {**RUN, "workflow": {"identity": "other", "turn": 1},
                 "wait_ms": 30000})
    assert r.status in (200, 202), r
    BOXES.kill()
    boxes()
    c = Client(BOXES, c.key, c.name, "budget")
    listed = json.loads(hutch("budget", "list", "--env", "budget", "--json",
                              env=env).stdout)["data"]
    equal([(b["workflow"], b["runs"], b["runs_used"]) for b in listed],
          [("nightly", 2, 2)])
    r = post(c, {**RUN, **wf}, key)
    equal(told(r), (429, "workflow_budget_exceeded"))
    BOXES.pass_time(r.json["error"]["retry_after_seconds"] + 1)
    # The key was not burnt: another request with it is no conflict.
    other = {"run": {**RUN["run"], "code": "echo 2"}, "wait_ms": 30000, **wf}
    r = post(c, other, key)
    assert r.status in (200, 202), r
    c.wait(r.json["command"])
    p = hutch("budget", "rm", "--env", "budget", "--workflow", "nightly",
              env=env)
    equal(p.returncode, 0, p.stderr)
    # A budget of the environment counts every run of it.
    hutch("budget", "set", "--env", "budget", "--runs", "1", "--window",
          "1h", env=env)
    r = post(c, {**RUN, "wait_ms": 30000})
    assert r.status in (200, 202), r
    c.wait(r.json["command"])
    r = post(c)
    equal(told(r), (429, "workflow_budget_exceeded"))
    assert "environment budget" in r.json["error"]["message"], r
    equal(create(c).status, 201, "a sandbox alone is no run")
    equal(BOXES.stop(), 0)


main()
