#!/usr/bin/env python3
"""Saved templates, and names, labels and updates of sandboxes: over HTTP and by
the command line, when the daemon is killed, and from a database that the
program before had.

test: timeout=3600 beside=yes seconds=150
"""
import calendar
import contextlib
import json
import os
import re
import sqlite3
import threading
import time

from held import (SHELL, WAIT_S, command, create, destroyed, ended, hold,
                  resumed, running, start, stopped)
from hutchlib import (TOP, Client, Daemon, MovableDaemon, STATE, case, equal,
                      hutch, main, new_key, timings, wait_until)

TEMPLATES = "/v1/sandboxes/templates"
BASES = ["lbb/python", "lbb/node", "lbb/shell"]
PYTHON_S = 900   # the first of a size boots, on a slow host for minutes

d = Daemon(STATE + "-templates", pool_shell=1, pool_max=1, graph_places=5,
           environment_places=10)


def client(environment="test", **more):
    if not d.is_alive():
        d.start()
    return d.client(environment, **more)


def graph(name):
    """A client of a graph of its own."""
    c = client()
    c.graph = name
    return c


def save(c, name, base=SHELL, key=None, **more):
    return c.call("POST", TEMPLATES, dict(name=name, base=base, **more),
                  key or new_key())


def saved(c, name, **more):
    r = save(c, name, **more)
    equal(r.status, 201, r)
    return r.json


def templates(c, **query):
    return c.call("GET", TEMPLATES, query=query)


def run(c, key=None, **run):
    """POST a run; the reply, whatever it is."""
    return c.call("POST", "/v1/sandboxes", {"run": run, "wait_ms": 30000},
                  key or new_key())


def ran(c, **what):
    """A run and its end."""
    r = run(c, **what)
    assert r.status in (200, 202), r
    return r.json if r.status == 200 else c.wait(r.json["command"]).reply.json


def of(j):
    return (j["template"], j["template_id"], j["template_version"],
            j["template_base"])


def named(t):
    return t["name"], t["id"], t["version"], t["base"]


def update(c, sandbox, **body):
    return c.call("PATCH", "/v1/sandboxes", body, query={"sandbox": sandbox})


def ms(text):
    at = time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")
    return calendar.timegm(at) * 1000 + int(text[20:23])


# ---- saving ---------------------------------------------------------------

@case("LBB-103, LBB-105, LBB-106: each save of a name is a version of its own")
def versions():
    c = graph("versions")
    first = saved(c, "sum", code="echo 1", limits={"memory_mib": 512},
                  timeout_ms=5000, config={"unit": "cm"})
    assert re.fullmatch("sbt_[0-9a-z]{26}", first["id"]), first
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", first["created_at"])
    equal({k: first[k] for k in first if not k.endswith("sha256") and
           k not in ("id", "created_at")},
          {"object": "template", "graph": "versions", "name": "sum",
           "is_base": False, "version": 1, "base": SHELL,
           "limits": {"vcpus": 1, "memory_mib": 512, "disk_mib": 4096},
           "timeout_ms": 5000, "code": "echo 1", "code_bytes": 6,
           "config": {"unit": "cm"}, "config_bytes": 14, "files": []})
    second = saved(c, "sum", code="echo 2")
    equal((second["version"], second["config"], second["config_sha256"]),
          (2, None, None))
    equal(second["limits"], {"vcpus": 1, "memory_mib": 1024,
                             "disk_mib": 4096})
    equal(second["timeout_ms"], 60000)
    assert second["id"] != first["id"]
    # The same words again are a version, too; other names, other numbers.
    equal(saved(c, "sum", code="echo 2")["version"], 3)
    equal(saved(c, "a.b_c-9")["version"], 1)
    equal(templates(c, template=first["id"]).json, first)
    equal(templates(c, name="sum").json["version"], 3)


@case("LBB-103: config is kept byte for byte, code as its characters")
def bytes_kept():
    c = graph("bytes")
    config = '{ "a" : 1.00, "b":"\\u0061\\ud800", "c": 1e400 , "d":[ ] }'
    code = "# \u00e9\u20ac\U0001f600\n\techo \"\\\""
    key = new_key()
    body = '{"name":"raw","base":"lbb/shell","config":%s,"code":%s}' % (
        config, json.dumps(code))
    r = c.call("POST", TEMPLATES, body, key)
    equal(r.status, 201, r)
    equal(r.raw("config"), config)
    equal(r.json["code"], code)
    r = c.call("GET", TEMPLATES + "/get", query={"template": "raw"})
    equal((r.status, r.raw("config"), r.json["code"]), (200, config, code))
    equal(r.json["code_bytes"], len(code.encode()))
    # The largest of both.
    most = saved(c, "most", code="#" * 65536, config="x" * (2**20 - 2))
    equal((most["code_bytes"], most["config_bytes"]), (65536, 2**20))
    r = templates(c, limit=1)
    equal((r.json["data"][0]["name"], "code" in r.json["data"][0],
           "config" in r.json["data"][0]), ("most", False, False))


@case("LBB-20 to LBB-25: a save needs a key, and a key saves once")
def keys():
    c = graph("keys")
    r = c.call("POST", TEMPLATES, {"name": "a", "base": SHELL})
    equal((r.status, r.code), (400, "missing_idempotency_key"))
    key = new_key()
    first = saved(c, "a", key=key, code="one")
    saved(c, "a", code="two")
    equal(saved(c, "a", key=key, code="one"), first)
    r = save(c, "a", key=key, code="other")
    equal((r.status, r.code), (409, "idempotency_conflict"))
    # In another graph it is another key.
    equal(saved(graph("keys2"), "a", key=key, code="other")["version"], 1)
    d.kill()
    d.start()
    equal(saved(c, "a", key=key, code="one"), first)
    equal(templates(c, name="a").json["version"], 2)


@case("LBB-104, LBB-109, LBB-178: what cannot be saved is refused by name, and "
      "leaves nothing behind")
def refused():
    c = graph("refused")
    good = dict(name="a", base=SHELL)
    key = new_key()
    for body, status, code, param in (
            (dict(good, name=""), 400, "sandbox_template_name_invalid",
             "name"),
            (dict(good, name="A"), 400, "sandbox_template_name_invalid",
             "name"),
            (dict(good, name="a" * 65), 400, "sandbox_template_name_invalid",
             "name"),
            (dict(good, name="lbb/python"), 400,
             "sandbox_template_name_invalid", "name"),
            (dict(good, name="a\u00e9"), 400,
             "sandbox_template_name_invalid", "name"),
            ({"base": SHELL}, 400, "invalid_request", "name"),
            ({"name": "a"}, 400, "invalid_request", "base"),
            (dict(good, base="lbb/cobol"), 404, "sandbox_template_not_found",
             "base"),
            (dict(good, base="a"), 404, "sandbox_template_not_found", "base"),
            (dict(good, limits={"vcpus": 5}), 400, "sandbox_limits_invalid",
             "limits.vcpus"),
            (dict(good, limits={"memory_mib": 8193}), 400,
             "sandbox_limits_invalid", "limits.memory_mib"),
            (dict(good, limits={"disk_mib": 255}), 400,
             "sandbox_limits_invalid", "limits.disk_mib"),
            (dict(good, timeout_ms=0), 400, "sandbox_timeout_invalid",
             "timeout_ms"),
            (dict(good, timeout_ms=3600001), 400, "sandbox_timeout_invalid",
             "timeout_ms"),
            (dict(good, code="#" * 65537), 413, "sandbox_code_too_large",
             "code"),
            (dict(good, code=""), 400, "invalid_request", "code"),
            (dict(good, config="x" * (2**20 - 1)), 413,
             "sandbox_input_too_large", "config"),
            (dict(good, files={}), 400, "invalid_request", "files"),
            (dict(good, files=[{"path": "a", "sha256": "0" * 64}]), 404,
             "file_not_found", "files[0].sha256"),
            (dict(good, files=[{"path": "..", "sha256": "0" * 64}]), 400,
             "sandbox_path_invalid", "files[0].path"),
            (dict(good, cpu=1), 400, "invalid_request", "cpu")):
        r = c.call("POST", TEMPLATES, body, key)
        equal((r.status, r.code, r.param), (status, code, param),
              str(body)[:99])
    equal([t["name"] for t in templates(c).json["data"]], BASES)
    # Nor was the key burnt.
    equal(saved(c, "a" * 64, key=key)["version"], 1)


@case("LBB-105: saves of one name at once have numbers of their own")
def at_once():
    c = graph("at-once")
    key = new_key()
    got, same = [], []
    threads = [threading.Thread(target=lambda i=i: got.append(
        saved(c, "sum", code=f"echo {i}"))) for i in range(8)]
    threads += [threading.Thread(target=lambda: same.append(
        saved(c, "other", key=key, code="x"))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(sorted(t["version"] for t in got), list(range(1, 9)))
    equal(len({t["id"] for t in got}), 8)
    equal([t["version"] for t in same], [1] * 4)
    equal(len({t["id"] for t in same}), 1)
    for t in got:
        equal(templates(c, template=t["id"]).json, t)


@case("LBB-69, LBB-70: a free plan reads and updates; it saves and runs nothing")
def plans():
    c = client("free-" + new_key()[2:10], plan="free")
    r = save(c, "a")
    equal((r.status, r.code), (403, "sandbox_plan_unavailable"))
    equal(len(templates(c).json["data"]), 3)
    r = run(c, template="a")
    equal((r.status, r.code), (403, "sandbox_plan_unavailable"))
    r = update(c, "sbx_" + "a" * 26, name="x")
    equal((r.status, r.code), (404, "sandbox_not_found"))
    c = client("off-" + new_key()[2:10], sandboxes_enabled=False)
    for r in (save(c, "a"), templates(c), update(c, "sbx_a", name="x")):
        equal((r.status, r.code), (409, "sandbox_not_enabled"), r)


# ---- reading --------------------------------------------------------------

def pages(c, limit, **query):
    """Names and versions of a list that is read page by page."""
    got, cursor = [], None
    while True:
        r = templates(c, limit=limit, cursor=cursor, **query)
        equal(r.status, 200, r)
        j = r.json
        equal(j["object"], "list")
        assert len(j["data"]) <= limit
        got += [(t["name"], t["version"]) for t in j["data"]]
        cursor = j["next_cursor"]
        equal(j["has_more"], cursor is not None)
        if not cursor:
            return got


@case("LBB-12, LBB-107, LBB-100 to LBB-102: lists by pages, bases behind; one "
      "by name, id, version")
def lists():
    c = graph("lists")
    bases = [(b, None) for b in BASES]
    for limit in (1, 2, 3, 100):
        equal(pages(c, limit), bases)
    for name in "abacab":
        saved(c, name)
    want = [("b", 2), ("a", 3), ("c", 1)]
    for limit in range(1, 8):
        equal(pages(c, limit), want + bases, limit)
    for limit in (1, 2, 100):
        equal(pages(c, limit, name="a", versions="true"),
              [("a", 3), ("a", 2), ("a", 1)])
    second = [t for t in templates(c, name="a", versions="true").json["data"]
              if t["version"] == 2][0]
    for query, version in ((dict(name="a"), 3), (dict(template="a"), 3),
                           (dict(template=second["id"]), 2)):
        for path in (TEMPLATES, TEMPLATES + "/get"):
            r = c.call("GET", path, query=query)
            equal((r.status, r.json["version"]), (200, version), r)
    for base in BASES:
        t = c.call("GET", TEMPLATES + "/get", query={"template": base}).json
        equal((t["is_base"], t["id"], t["version"], t["base"]),
              (True, None, None, base))
    for query, status, code, param in (
            (dict(name="d"), 404, "sandbox_template_not_found", "name"),
            (dict(name=second["id"]), 404, "sandbox_template_not_found",
             "name"),
            (dict(template="sbt_a"), 404, "sandbox_template_not_found",
             "template"),
            (dict(template="lbb/cobol"), 404, "sandbox_template_not_found",
             "template"),
            (dict(name="d", versions="true"), 404,
             "sandbox_template_not_found", "name"),
            (dict(name="a", template="a"), 400, "invalid_request",
             "template"),
            (dict(versions="true"), 400, "invalid_request", "versions"),
            (dict(name="a", versions="yes"), 400, "invalid_request",
             "versions"),
            (dict(cursor="sbt_none"), 400, "invalid_request", "cursor"),
            (dict(limit=101), 400, "invalid_request", "limit")):
        r = templates(c, **query)
        equal((r.status, r.code, r.param), (status, code, param), query)
    # Another graph has none of it.
    r = templates(graph("lists2"), template=second["id"])
    equal((r.status, r.code), (404, "sandbox_template_not_found"))


# ---- running --------------------------------------------------------------

@case("LBB-82, LBB-84, LBB-100, LBB-103, LBB-108: `normalize`, as the documents "
      "have it, by Python")
def normalize():
    c = graph("documents")
    code = "\ndef run(input, config):\n    return sum(input)\n"
    t = saved(c, "normalize", base="lbb/python", code=code,
              limits={"memory_mib": 2048}, timeout_ms=60000,
              config={"unit": "cm"})
    r = run(c, template="normalize", input=[1, 2, 3])
    assert r.status in (200, 202), r
    j = r.json if r.status == 200 else c.wait(r.json["command"],
                                              PYTHON_S).reply.json
    equal((j["ok"], j["result"], j["status"]), (True, 6, "succeeded"), j)
    equal(of(j), named(t))
    sandbox = c.sandbox(j["sandbox"])
    equal(sandbox["limits"], {"vcpus": 1, "memory_mib": 2048,
                              "disk_mib": 4096})
    # The code changes, its callers do not; config is the template's.
    saved(c, "normalize", base="lbb/python", config={"unit": "cm"},
          limits={"memory_mib": 2048}, code="def run(input, config):\n"
          "    return [f'{x} {config[\"unit\"]}' for x in input]")
    equal(ran(c, template="normalize", input=[1, 2, 3])["result"],
          ["1 cm", "2 cm", "3 cm"])
    j = ran(c, template="normalize", input=[4], config={"unit": "in"})
    equal(j["result"], ["4 in"])


@case("LBB-44, LBB-80, LBB-82, LBB-105: a run has the newest version, and what "
      "is its own comes first; records name the version")
def runs():
    c = graph("runs")
    first = saved(c, "sum", code='jq -c "[., 1]"', timeout_ms=50000,
                  limits={"disk_mib": 512})
    key = new_key()
    j = ran(c, key=key, template="sum", input={"a": 1})
    equal((j["result"], j["timeout_ms"]), ([{"a": 1}, 1], 50000), j)
    equal(of(j), named(first))
    second = saved(c, "sum", code='jq -c "[., 2]"')
    equal(ran(c, template="sum", input=7)["result"], [7, 2])
    # By its id: that version.
    old = ran(c, template=first["id"], input=7, limits={"memory_mib": 512},
              timeout_ms=40000)
    equal((old["result"], of(old), old["timeout_ms"]),
          ([7, 1], named(first), 40000))
    sandbox = c.sandbox(old["sandbox"])
    equal((of(sandbox), sandbox["limits"]),
          (named(first), {"vcpus": 1, "memory_mib": 512, "disk_mib": 512}))
    own = ran(c, template="sum", code='jq -c "[., 3]"', input=7)
    equal((own["result"], of(own)), ([7, 3], named(second)))
    listed = c.call("GET", "/v1/sandboxes/commands",
                    query={"sandbox": own["sandbox"]}).json
    equal([of(j) for j in listed["data"]], [named(second)])
    base = ran(c, template=SHELL, code="echo 4")
    equal((base["result"], of(base)), (4, (SHELL, None, None, SHELL)))
    # The first call again: its record, as it was.
    again = ran(c, key=key, template="sum", input={"a": 1})
    equal((again["result"], of(again)), ([{"a": 1}, 1], named(first)))
    # By template: of the name, of a version.
    listed = c.call("GET", "/v1/sandboxes", query={"template": "sum"}).json
    equal(len(listed["data"]), 4)
    listed = c.call("GET", "/v1/sandboxes",
                    query={"template": first["id"]}).json
    equal(len(listed["data"]), 2)


@case("LBB-27, LBB-108, LBB-176: a template that is not there is 404, and burns "
      "no key; one without code needs the call's")
def not_there():
    c = graph("none")
    key, held_key = new_key(), new_key()
    r = run(c, key=key, template="later", input=1)
    equal((r.status, r.code, r.param),
          (404, "sandbox_template_not_found", "run.template"))
    r = create(c, held_key, template="later")
    equal((r.status, r.code, r.param),
          (404, "sandbox_template_not_found", "template"))
    r = run(c, template="a\nb", code="x")
    equal((r.status, r.code), (404, "sandbox_template_not_found"))
    r = run(c, template="lbb/cobol", code="x")
    equal((r.status, r.code), (404, "sandbox_template_not_found"))
    r = run(c, input=1)
    equal((r.status, r.code, r.param), (400, "invalid_request", "run.code"))
    r = run(c, template=SHELL, input=1)
    equal((r.status, r.code, r.param), (400, "invalid_request", "run.code"))
    saved(c, "empty")
    r = run(c, template="empty", input=1)
    equal((r.status, r.code, r.param), (400, "invalid_request", "run.code"))
    equal(ran(c, template="empty", code="echo 1")["result"], 1)
    saved(c, "later", code="jq .")
    equal(ran(c, key=key, template="later", input=1)["result"], 1)
    destroyed(c, running(c, create(c, held_key, template="later")))
    r = run(graph("none2"), template="later")
    equal((r.status, r.code), (404, "sandbox_template_not_found"))


@case("LBB-23: the same key after a save without code finds its run")
def replay():
    c = graph("replay")
    key = new_key()
    saved(c, "sum", code="jq .")
    first = ran(c, key=key, template="sum", input=5)
    saved(c, "sum")
    r = run(c, template="sum", input=5)
    equal((r.status, r.code), (400, "invalid_request"))
    again = ran(c, key=key, template="sum", input=5)
    equal((again["result"], again["created_at"]), (5, first["created_at"]))
    r = run(c, key=key, template="sum", input=6)
    equal((r.status, r.code), (409, "idempotency_conflict"))


@case("a run of a template gets the VM that waits for its base and limits")
def pooled():
    c = graph("pooled")
    saved(c, "quick", code="echo 1")
    wait_until(lambda: d.admin("GET", "/admin/pool").json["ready"] == 1,
               WAIT_S, "a VM waits")
    hits = d.metric("hutch_pool_hits_total")
    equal(ran(c, template="quick")["result"], 1)
    equal(d.metric("hutch_pool_hits_total"), hits + 1)
    equal(timings(d)[-1]["timing"], "claimed")


@case("LBB-25, LBB-103: killed between save and use, nothing is lost; no key "
      "runs or saves twice")
def killed():
    c = graph("killed")
    keys = [new_key() for _ in range(6)]
    got = []

    def saves():
        with contextlib.suppress(OSError):
            for i, key in enumerate(keys):
                got.append(saved(c, "sum", key=key, code=f"echo {i}"))

    t = threading.Thread(target=saves)
    t.start()
    wait_until(lambda: len(got) > 2, 30, "some are saved")
    d.kill()
    t.join()
    d.start()
    for i, was in enumerate(got):
        equal(templates(c, template=was["id"]).json, was)
        equal(saved(c, "sum", key=keys[i], code=f"echo {i}"), was)
    for i in range(len(got), len(keys)):
        saved(c, "sum", key=keys[i], code=f"echo {i}")
    equal(pages(c, 4, name="sum", versions="true"),
          [("sum", n) for n in range(6, 0, -1)])
    equal(ran(c, template="sum")["result"], 5)
    equal(ran(c, template=got[0]["id"])["result"], 0)


# ---- held sandboxes -------------------------------------------------------

def code_in(c, sandbox, key=None, **more):
    r = start(c, sandbox, run=more, wait_ms=30000, key=key)
    assert r.status in (200, 202), r
    return ended(c, r.json["id"])


@case("LBB-44, LBB-61, LBB-121, LBB-124: code in a held sandbox is its "
      "template's, of its version, also after stop, kill and resume")
def held():
    c = graph("held")
    t = saved(c, "box", code='jq -c "[., 1]"', timeout_ms=50000,
              limits={"memory_mib": 512})
    box = hold(c, template="box")
    s = c.sandbox(box)
    equal((of(s), s["limits"]["memory_mib"]), (named(t), 512))
    saved(c, "box", code="echo 2")
    key = new_key()
    first = code_in(c, box, key, input=5)
    equal((first["result"], first["timeout_ms"], of(first)),
          ([5, 1], 50000, named(t)), first)
    equal(code_in(c, box, code="echo 3")["result"], 3)
    j = command(c, box, "echo", "4")
    equal((j["stdout"]["tail"], j["timeout_ms"], of(j)),
          ("4\n", 60000, named(t)))
    stopped(c, box)
    d.kill()
    d.start()
    equal(of(c.sandbox(box)), named(t))
    resumed(c, box)
    equal(code_in(c, box, input=6)["result"], [6, 1])
    again = start(c, box, run={"input": 5}, wait_ms=30000, key=key)
    equal((again.json["id"], again.json["result"]), (first["id"], [5, 1]))
    # Once more by id, from a snapshot of it, and when it has ended.
    snap = c.call("POST", "/v1/sandboxes/snapshots", {}, new_key(),
                  {"sandbox": box})
    equal((snap.status, of(snap.json)), (201, named(t)), snap)
    other = running(c, c.call("POST", "/v1/sandboxes",
                              {"snapshot": snap.json["id"],
                               "wait_ms": 30000}, new_key()))
    s = c.sandbox(other)
    equal((of(s), s["snapshot"]), (named(t), snap.json["id"]))
    equal(code_in(c, other, input=7)["result"], [7, 1])
    destroyed(c, other)
    destroyed(c, box)
    again = start(c, box, run={"input": 5}, key=key)
    equal((again.status, again.json["id"], of(again.json)),
          (200, first["id"], named(t)))
    r = start(c, box, run={"input": 5})
    equal((r.status, r.code), (409, "sandbox_not_running"))


@case("LBB-121: without code, and without a template that has some, a run in a "
      "held sandbox is refused")
def held_without():
    c = graph("held2")
    box = hold(c)
    r = start(c, box, run={"input": 1})
    equal((r.status, r.code, r.param), (400, "invalid_request", "run.code"))
    destroyed(c, box)


# ---- names, labels, updates -----------------------------------------------

@case("LBB-43, LBB-61, LBB-62, LBB-64: name and labels, given, changed, taken "
      "away; found by name, status, template")
def names():
    c = graph("names")
    labels = {"team": "reports", "a/b.c_d-e": "\u00e9 \"x\" \U0001f600",
              "empty": ""}
    key = new_key()
    r = create(c, key, name="My box #1", labels=labels)
    box = running(c, r)
    equal((r.json["name"], r.json["labels"]), ("My box #1", labels))
    other = create(c, key, name="My box #2", labels=labels)
    equal((other.status, other.code), (409, "idempotency_conflict"))
    plain = hold(c)
    s = c.sandbox(plain)
    equal((s["name"], s["labels"]), (None, {}))

    def found(**query):
        r = c.call("GET", "/v1/sandboxes", query=query)
        equal(r.status, 200, r)
        return [s["id"] for s in r.json["data"]]

    equal(found(), [plain, box])
    equal(found(name="My box #1"), [box])
    equal(found(name="My box #1", status="running", template=SHELL), [box])
    equal(found(name="My box #1", status="stopped"), [])
    equal(found(name="My box"), [])
    r = c.call("GET", "/v1/sandboxes", query={"name": ""})
    equal((r.status, r.param), (400, "name"))
    r = update(c, box, name="renamed")
    equal((r.status, r.json["name"], r.json["labels"]),
          (200, "renamed", labels), r)
    equal(found(name="My box #1"), [])
    equal(found(name="renamed"), [box])
    r = update(c, box, labels={"only": "this"})
    equal((r.json["name"], r.json["labels"]), ("renamed", {"only": "this"}))
    equal(update(c, box).json["labels"], {"only": "this"})
    stopped(c, box)
    equal(update(c, box, name="asleep").json["status"], "stopped")
    d.kill()
    d.start()
    s = c.sandbox(box)
    equal((s["name"], s["labels"], s["status"]),
          ("asleep", {"only": "this"}, "stopped"))
    resumed(c, box)
    r = update(c, box, name=None, labels=None)
    equal((r.json["name"], r.json["labels"]), (None, {}))
    destroyed(c, box)
    r = update(c, box, name="late")
    equal((r.status, r.code), (409, "sandbox_not_running"))
    equal(c.sandbox(box)["name"], None)


@case("LBB-64: an update that cannot be is refused by name, and changes nothing")
def bad_updates():
    c = graph("bad-updates")
    box = hold(c, name="stays")
    for body, code, param in (
            ({"name": ""}, "invalid_request", "name"),
            ({"name": "x" * 65}, "invalid_request", "name"),
            ({"name": " x"}, "invalid_request", "name"),
            ({"name": "\u00e9"}, "invalid_request", "name"),
            ({"name": 1}, "invalid_request", "name"),
            ({"labels": []}, "invalid_request", "labels"),
            ({"labels": {"a b": "x"}}, "invalid_request", "labels"),
            ({"labels": {"a": 1}}, "invalid_request", "labels.a"),
            ({"labels": {"a": "\n"}}, "invalid_request", "labels.a"),
            ({"labels": {"a": "x" * 257}}, "invalid_request", "labels.a"),
            ({"labels": {f"l{i}": "" for i in range(17)}}, "invalid_request",
             "labels"),
            ({"labels": {f"l{i}": "\u20ac" * 256 for i in range(3)}},
             "invalid_request", "labels"),
            ({"idle_seconds": 29}, "invalid_request", "idle_seconds"),
            ({"idle_seconds": None}, "invalid_request", "idle_seconds"),
            ({"expires_in_seconds": 604801}, "invalid_request",
             "expires_in_seconds"),
            ({"limits": {"vcpus": 2}}, "sandbox_limits_invalid", "limits"),
            ({"status": "stopped"}, "invalid_request", "status")):
        body = dict({"name": "changed"}, **body)
        r = update(c, box, **body)
        equal((r.status, r.code, r.param), (400, code, param), str(body)[:99])
        # It cannot be made so, either, but for limits.
        if param not in ("limits", "status"):
            r = create(c, **body)
            equal((r.status, r.code, r.param), (400, code, param))
    equal(c.sandbox(box)["name"], "stays")
    r = update(graph("bad-updates2"), box, name="x")
    equal((r.status, r.code), (404, "sandbox_not_found"))
    r = c.call("PATCH", "/v1/sandboxes", "[]", query={"sandbox": box})
    equal((r.status, r.code), (400, "invalid_request"))
    done = ran(c, template=SHELL, code="echo 1")
    r = update(c, done["sandbox"], name="x")
    equal((r.status, r.code), (409, "sandbox_not_running"))
    destroyed(c, box)


@case("LBB-49, LBB-50, LBB-64: new times count from the update, also for a "
      "stopped sandbox")
def times():
    own = MovableDaemon(STATE + "-times", pool_max=0)
    own.start()
    c = own.client()
    box = hold(c, expires_in_seconds=60)
    began = time.time() * 1000
    r = update(c, box, expires_in_seconds=3600, idle_seconds=30)
    s = r.json
    equal((s["expires_in_seconds"], s["idle_seconds"]), (3600, 30))
    assert -2000 <= ms(s["expires_at"]) - began - 3600000 <= 30000, s
    # Idle for half a minute it stops; it would have run for five.
    own.pass_time(35)
    wait_until(lambda: c.sandbox(box)["status"] == "stopped", WAIT_S,
               "it stops, idle")
    s = update(c, box, expires_in_seconds=600).json
    equal(s["status"], "stopped")
    own.kill()
    own.start()
    c = Client(own, c.key, c.name, c.environment)
    own.pass_time(500)
    equal(c.sandbox(box)["expires_at"], s["expires_at"])
    equal(c.sandbox(box)["status"], "stopped")
    own.pass_time(101)
    wait_until(lambda: c.sandbox(box)["status"] == "destroyed", WAIT_S,
               "it expires, stopped")
    equal(own.stop(), 0)


# ---- a database of the program before -------------------------------------

@case("LBB-46: what the program before had is read, and goes on")
def migration():
    old = Daemon(STATE + "-templates-old")
    os.makedirs(old.state, mode=0o700, exist_ok=True)
    with open(os.path.join(TOP, "hostd/store/fixtures/schema2.sql"),
              encoding="utf-8") as f:
        db = sqlite3.connect(os.path.join(old.state, "hutch.db"))
        db.executescript(f.read())
        now = int(time.time() * 1000)    # it is of long ago
        db.execute("UPDATE sandbox SET ended_ms = ? WHERE ended_ms > 0",
                   (now,))
        db.execute("UPDATE blob SET expires_ms = ?", (now + 10**9,))
        db.commit()
        db.close()
    os.chmod(os.path.join(old.state, "hutch.db"), 0o600)
    old.start()
    try:
        c = old.client("env_a")
        r = c.call("GET", "/v1/sandboxes")
        equal(r.status, 200, r)
        equal(len(r.json["data"]), 4, r)
        for s in r.json["data"]:
            equal((s["name"], s["labels"], s["template_id"]), (None, {}, None))
        equal([s["snapshot"] for s in r.json["data"]],
              ["snp_a1b2", None, None, None])
        ran_once = [s["command"] for s in r.json["data"]
                    if s["status"] == "destroyed"]
        j = c.command(ran_once[0]).json
        equal((j["result"], j["stdout"]["tail"], j["template"]),
              ([1, 2], "hello\n", None))
        equal(saved(c, "new", code="echo 1")["version"], 1)
        old.kill()
        old.start()
        equal(pages(c, 1), [("new", 1)] + [(b, None) for b in BASES])
    finally:
        old.stop()


# ---- the command line -----------------------------------------------------

def cli(*argv, status=0, **more):
    p = hutch("--state", d.state, "--graph", "cli", *argv, **more)
    equal(p.returncode, status, p)
    return p.stdout


@case("hutch template save, list, show; run --template; sandbox create --name "
      "--label, set; ps --name")
def command_line():
    client()
    one = os.path.join(d.state, "one.sh")
    with open(one, "w", encoding="utf-8") as f:
        f.write('jq -c "[., 1]"\n')
    name, version, at = cli("template", "save", "sum", one, "--memory", "512",
                            "--config", '{"a": 1.0}').split()
    equal((name, version), ("sum", "1"))
    assert at.startswith("sbt_"), at
    equal(cli("template", "save", "sum", "-", "--base", SHELL, "--key", "k",
              stdin="jq -c '[., 2]'\n").split()[1], "2")
    equal(cli("template", "save", "sum", "-", "--base", SHELL, "--key", "k",
              stdin="jq -c '[., 2]'\n").split()[1], "2")
    cli("template", "save", "box", "--base", SHELL)
    rows = [r.split() for r in cli("template", "list").splitlines()]
    equal([r[0] for r in rows], ["TEMPLATE", "box", "sum"] + BASES)
    equal([r[1] for r in rows[1:]], ["1", "2", "-", "-", "-"])
    rows = cli("template", "list", "sum").splitlines()[1:]
    equal([r.split()[1] for r in rows], ["2", "1"])
    j = json.loads(cli("template", "show", at, "--json"))
    equal((j["version"], j["config"], j["limits"]["memory_mib"]),
          (1, {"a": 1.0}, 512))
    assert '"a": 1.0' in cli("template", "show", at)
    equal(cli("template", "show", "--code", "sum"), "jq -c '[., 2]'\n")
    cli("template", "show", "--code", "box", status=66)
    cli("template", "show", "none", status=66)
    cli("template", "save", "box", status=64)
    cli("template", "save", "Box", "--base", SHELL, status=64)
    cli("template", "save", "box", "--base", "lbb/cobol", status=66)
    equal(cli("run", "--template", "sum", "--input", "7"), "[7,2]\n")
    equal(cli("run", "--template", at, "--input", "7"), "[7,1]\n")
    equal(cli("run", one, "--template", "sum", "--input", "7"), "[7,1]\n")
    cli("run", "--template", "none", status=66)
    cli("run", status=64)
    box = cli("sandbox", "create", "--template", "sum", "--name", "night 1",
              "--label", "team=a b", "--label", "x=").strip()
    j = json.loads(cli("show", box, "--json"))
    equal((j["name"], j["labels"], j["template_version"]),
          ("night 1", {"team": "a b", "x": ""}, 2))
    equal(cli("sandbox", "run", box, "--input", "8"), "[8,2]\n")
    rows = cli("ps", "--name", "night 1").splitlines()
    assert len(rows) == 2 and rows[1].startswith(box), rows
    assert rows[1].endswith("night 1"), rows
    equal(cli("sandbox", "set", box, "--name", "day", "--label", "y=z",
              "--idle", "1m", "--expires", "2h").split(), [box, "running"])
    j = json.loads(cli("show", box, "--json"))
    equal((j["name"], j["labels"], j["idle_seconds"],
           j["expires_in_seconds"]), ("day", {"y": "z"}, 60, 7200))
    cli("sandbox", "set", box, "--no-name", "--no-labels")
    j = json.loads(cli("show", box, "--json"))
    equal((j["name"], j["labels"], j["idle_seconds"]), (None, {}, 60))
    cli("sandbox", "set", box, "--label", "a b=c", status=64)
    cli("sandbox", "set", box, "--label", "a", status=64)
    cli("sandbox", "create", "--label", "a=1", "--label", "a=2", status=64)
    cli("sandbox", "rm", box)
    cli("sandbox", "set", box, "--name", "late", status=69)


if __name__ == "__main__":
    main()
