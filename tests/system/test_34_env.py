#!/usr/bin/env python3
"""Environments, plans, places: what the operator sets is in force at the next
request of a running daemon, and after kill -9.

No sandbox starts in the first part: the daemon has no room for one, so that
what passes every check answers 503 sandbox_capacity.

test: timeout=900
"""
import json
import os
import shutil

from hutchlib import (Client, Daemon, STATE, case, equal, hutch, main, new_key)

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


@case("LBB-69: the free plan is refused what starts or writes, and takes what "
      "reads, ends or deletes; changes are in force at once")
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
        assert r.status in (404, 503), (method, path, r)


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


@case("LBB-70: not enabled refuses every call, 409, never to be retried")
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


main()
