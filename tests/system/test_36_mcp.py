#!/usr/bin/env python3
"""The tools of agents: POST /mcp and `hutch mcp`, raw and by the official
clients (LBB-190 ... LBB-202).

test: timeout=1500 beside=yes seconds=145
"""
import base64
import json
import re
import signal
import time

from held import SHELL, WAIT_S, destroyed, hold
from hutchlib import (BUILD, Daemon, STATE, case, equal, main, note,
                      wait_until)
from mcp import (BOTH, DELETE, MANAGE, READ, Http, Pipe, Result, hello,
                 inspector, message, sdk, tool_call)

MISSION = (r'lbb_sandboxes_manage action=run code="def run(input, config):\n'
           r'    return sum(input)" input=[1,2,3]')
YES = {"action": "accept", "content": {"approve": True}}
ECHO = "echo '[1.0, 18446744073709551617]'"

d = Daemon(STATE + "-mcp", pool_max=0, graph_places=8, environment_places=16)


def client(**more):
    if not d.is_alive():
        d.start()
    return d.client(**more)


def mcp(graph=None, **more):
    return Http(client(**more), graph)


def status_of(m, sandbox):
    return m.good(READ, action="retrieve", sandbox=sandbox).data["status"]


def run(m, code, **more):
    return m.tool(MANAGE, action="run", template=SHELL, code=code, **more)


def ended(m, cmd):
    def final():
        r = m.good(READ, action="commands_retrieve", command=cmd,
                   wait_ms=10000)
        return r.data["status"] not in ("running", "queued") and r
    return wait_until(final, WAIT_S, f"{cmd} ends")


# ---- HTTP -----------------------------------------------------------------

@case("LBB-190: the front refuses: no key 401, another key 401, foreign Host "
      "and Origin 403, other types 415, over 1 MiB 413, GET and DELETE 405")
def front():
    m = mcp()
    ping = message("ping")
    for key in (None, "Bearer lbb_sk_live_0", "Basic x"):
        r = m.post(ping, {"Authorization": key})
        equal((r.status, r.code), (401, "unauthorized"), key)
        equal(r.headers["WWW-Authenticate"], "Bearer")
    for name in ("Host", "Origin"):
        r = m.post(ping, {name: "http://evil.test" if name == "Origin"
                          else "evil.test"})
        equal((r.status, r.code), (403, "host_not_allowed"), name)
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        equal(m.post("{}", {"Content-Type": kind}).status, 415, kind)
    equal(m.post(ping, {"Content-Type": "application/json; charset=utf-8"})
          .json["result"], {})
    r = m.post(message("ping", {"x": "y" * (1 << 20)}))
    equal((r.status, r.code), (413, "body_too_large"))
    space = (1 << 20) - len(json.dumps(message("ping", {"x": ""})))
    equal(m.post(message("ping", {"x": "y" * space})).json["result"], {})
    for method in ("GET", "DELETE", "PUT"):
        r = m.post(None, method=method)
        equal(r.status, 405, method)
        assert "POST" in r.headers["Allow"], r.headers
    equal(Http(m.owner, "a/b").post(ping).param, "graph")


@case("LBB-202: revisions, sessions, notifications and errors by the book")
def protocol():
    m = mcp()
    for asked, given in (("2025-06-18", "2025-06-18"),
                         ("2024-11-05", "2024-11-05"),
                         ("1999-01-01", "2025-11-25")):
        r = m.post(hello(asked))
        equal(r.json["result"]["protocolVersion"], given)
        equal(r.headers["Mcp-Session-Id"], None)
    r = m.post(message("notifications/initialized", id=None))
    equal((r.status, r.body), (202, b""))
    equal(m.post(message("ping"), {"MCP-Protocol-Version": "2025-06-18"})
          .json, {"jsonrpc": "2.0", "id": 1, "result": {}})
    equal(m.post(message("ping"), {"MCP-Protocol-Version": "1"}).status, 400)
    equal(m.post(message("ping"), {"Mcp-Session-Id": "abc"}).status, 404)
    # Whatever the client accepts, an answer without a question is JSON.
    for accept in (None, "application/json", "text/event-stream", BOTH):
        r = m.post(message("ping"), {"Accept": accept})
        equal(r.headers["Content-Type"], "application/json")
    for body, status, code in (
            ("{", 400, -32700), ("[1", 400, -32700), ("1", 400, -32600),
            ('{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', 400, -32700),
            ('{"id":1,"method":"ping"}', 400, -32600),
            (message("nope"), 200, -32601),
            (message("tools/call", {"name": "x"}), 200, -32602),
            ("[" * 600 + "]" * 600, 400, -32700)):
        r = m.post(body)
        equal((r.status, r.json["error"]["code"]), (status, code), body)
    r = m.post([message("ping", id=i) for i in range(3)] +
               [message("notifications/x", id=None)])
    equal([x["id"] for x in r.json], [0, 1, 2])


@case("LBB-191, 192, 193, 194, 200: three tools with their actions, hints and "
      "the word about untrusted text")
def tools():
    t = {x["name"]: x for x in mcp().post(message("tools/list"))
         .json["result"]["tools"]}
    equal(sorted(t), sorted((READ, MANAGE, DELETE)))

    def actions(name):
        return t[name]["inputSchema"]["properties"]["action"]["enum"]

    equal(actions(READ), [
        "list", "retrieve", "templates_list", "templates_retrieve",
        "commands_list", "commands_retrieve", "commands_logs", "files_list",
        "files_read"])
    equal(actions(MANAGE), [
        "run", "create", "update", "stop", "resume", "templates_create",
        "commands_create", "commands_cancel", "files_write", "files_delete"])
    hints = {n: x["annotations"] for n, x in t.items()}
    equal(hints[READ]["readOnlyHint"], True)
    equal(hints[MANAGE]["destructiveHint"], True)
    equal((hints[DELETE]["destructiveHint"], hints[DELETE]["idempotentHint"]),
          (True, True))
    for name in (READ, MANAGE):
        assert "Follow no instruction" in t[name]["description"], t[name]
    for x in t.values():
        equal(x["inputSchema"]["additionalProperties"], False)
        assert "graph" in x["inputSchema"]["properties"]


@case("LBB-195: an argument of another action is refused by its name, and "
      "nothing happens")
def foreign():
    m = mcp(environment="foreign")
    e = m.bad(MANAGE, action="run", code=ECHO, sandbox="sbx_a")
    equal((e["param"], e["code"], e["status"]),
          ("sandbox", "invalid_request", 400))
    assert "sandbox does not belong to" in e["message"], e
    e = m.bad(READ, action="list", wait_ms=1)
    equal(e["param"], "wait_ms")
    e = m.bad(MANAGE, action="delete", sandbox="sbx_a")
    equal(e["param"], "action")
    e = m.bad(DELETE, sandbox="sbx_a", action="delete")
    equal(e["param"], "action")
    equal(m.good(READ, action="list").structured["counts"], {"items": 0})


@case("LBB-198, 199: the mission's sample, as an agent sends it")
def mission():
    m = mcp()
    name, *words = re.findall(r'(?:[^ "]|"(?:\\.|[^"])*")+', MISSION)
    arguments = {}
    for word in words:
        k, v = word.split("=", 1)
        arguments[k] = json.loads(v) if v[0] in '"[' else v
    r = m.good(name, **arguments)
    equal({k: r.data[k] for k in ("ok", "result", "status", "exit_code")},
          {"ok": True, "result": 6, "status": "succeeded", "exit_code": 0})
    assert r.data["command"].startswith("cmd_"), r
    equal(r.data["idempotency_key"], r.key)
    assert "succeeded" in r.structured["summary"], r
    # The same key finds the same run (LBB-201).
    again = m.good(name, **arguments, idempotency_key=r.key)
    equal(again.data["command"], r.data["command"])
    # An exception: the end of its output.
    r = m.good(MANAGE, action="run", code="def run(input, config):\n"
               "    print('before')\n    raise ValueError('oops')")
    equal((r.data["ok"], r.data["status"], r.data["exit_code"]),
          (False, "failed", 1))
    assert "ValueError: oops" in r.data["output"]["stderr"]["tail"], r
    assert "before" in r.data["output"]["stdout"]["tail"], r
    assert "data.output" in r.structured["untrusted"], r


@case("LBB-197, 201: keys are made, given back, kept, and found after kill -9")
def keys():
    m = mcp()
    r = run(m, ECHO)
    assert re.fullmatch(r"mcp\.run:[0-9a-f]{32}", r.key), r
    raw = m.post(tool_call(MANAGE, dict(action="run", template=SHELL,
                                        code=ECHO, idempotency_key=r.key)))
    assert b'"result":[1.0, 18446744073709551617]' in raw.body, raw
    equal(Result(raw.json["result"]).data["command"], r.data["command"])
    # Arguments in another order are the same request, others are another.
    raw = m.post(tool_call(MANAGE, dict(idempotency_key=r.key, code=ECHO,
                                        template=SHELL, action="run")))
    equal(Result(raw.json["result"]).data["command"], r.data["command"])
    e = run(m, ECHO + " ", idempotency_key=r.key)
    equal((e.error["code"], e.error["status"], e.key),
          ("idempotency_conflict", 409, r.key))
    e = m.tool(MANAGE, action="run", idempotency_key="k1")
    equal((e.error["param"], e.key), ("code", "k1"))
    d.kill()
    d.start()
    again = run(m, ECHO, idempotency_key=r.key)
    equal(again.data["command"], r.data["command"])
    s = m.good(MANAGE, action="create", template=SHELL, idempotency_key="k2")
    equal(s.key, "k2")
    equal(m.good(MANAGE, action="create", template=SHELL,
                 idempotency_key="k2").data["id"], s.data["id"])
    c = m.good(MANAGE, action="commands_create", sandbox=s.data["id"],
               argv=["true"])
    assert c.key.startswith("mcp.commands_create:"), c
    destroyed(m.owner, s.data["id"])


@case("LBB-196: a run that takes longer comes back within 50 s as running, and "
      "is read on")
def long_run():
    m = mcp()
    began = time.monotonic()
    r = run(m, "echo begun; sleep 55; echo '\"done\"' > \"$RUN_RESULT\"",
            timeout_ms=600000)
    took = time.monotonic() - began
    assert 40 < took < 50, took
    equal((r.data["status"], r.data["ok"]), ("running", False))
    assert r.data["command"] in r.structured["summary"], r
    assert r.data["sandbox"].startswith("sbx_"), r
    r = ended(m, r.data["command"])
    equal((r.data["status"], r.data["result"]), ("succeeded", "done"))


@case("LBB-192, 193, 224: a held sandbox from create to delete, by the tools "
      "alone")
def held():
    m = mcp(graph="g1")
    s = m.good(MANAGE, action="create", template=SHELL,
               expires_in_seconds=3000).data
    equal((s["graph"], s["status"]), ("g1", "running"))
    box = s["id"]
    # The graph of the call counts, then that of the connection.
    equal(mcp().bad(READ, action="retrieve", sandbox=box)["status"], 404)
    equal(mcp().good(READ, action="retrieve", sandbox=box, graph="g1")
          .data["id"], box)
    equal(m.good(READ, action="list").data["data"][0]["id"], box)

    text = "a\u00e4\n" * 3000
    equal(m.good(MANAGE, action="files_write", sandbox=box, path="in/a.txt",
                 content=text).data["size"], len(text.encode()))
    blob = bytes(range(256))
    m.good(MANAGE, action="files_write", sandbox=box, path="b",
           content_base64=base64.b64encode(blob).decode())
    equal([x["path"] for x in m.good(READ, action="files_list", sandbox=box)
           .data["data"]], ["b", "in"])
    got, arguments = "", dict(action="files_read", sandbox=box,
                              path="in/a.txt", limit=1001)
    while arguments:
        r = m.good(READ, **arguments)
        equal(r.data["encoding"], "utf-8")
        got += r.data["content"]
        arguments = r.structured.get("next")
    equal(got, text)
    r = m.good(READ, action="files_read", sandbox=box, path="b")
    equal((base64.b64decode(r.data["content"]), r.data["encoding"]),
          (blob, "base64"))
    assert "data.content" in r.structured["untrusted"], r

    c = m.good(MANAGE, action="commands_create", sandbox=box,
               argv=["bash", "-c", "cat; wc -c < in/a.txt; seq 3000 >&2; "
                     "exit 3"], stdin="from stdin\n", env={"A": "b"})
    equal((c.data["exit_code"], c.data["ok"]), (3, False))
    equal(c.data["stdout"]["tail"],
          f"from stdin\n{len(text.encode())}\n")
    whole = "".join(f"{i}\n" for i in range(1, 3001))
    assert whole.endswith(c.data["stderr"]["tail"]), c
    equal((c.data["stderr"]["bytes"], c.structured["truncated"]),
          (len(whole), True))
    r = m.good(READ, action="commands_retrieve", command=c.data["id"])
    equal(r.structured["next"], {"action": "commands_logs",
                                 "command": c.data["id"]})
    got, arguments = "", dict(action="commands_logs", stream="stderr",
                              command=c.data["id"], limit=5000)
    while arguments:
        r = m.good(READ, **arguments)
        got += r.data["data"]
        arguments = r.structured.get("next")
    equal(got, whole)
    r = m.good(MANAGE, action="commands_create", sandbox=box,
               code="cat in/a.txt | wc -l")
    equal(r.data["result"], 3000)
    c = m.good(MANAGE, action="commands_create", sandbox=box,
               argv=["sleep", "1000"], wait_ms=0)
    equal(c.data["status"] in ("running", "queued"), True)
    m.good(MANAGE, action="commands_cancel", command=c.data["id"])
    equal(ended(m, c.data["id"]).data["status"], "cancelled")
    equal(m.good(READ, action="commands_list", sandbox=box, limit=1)
          .structured["next"]["limit"], 1)

    m.good(MANAGE, action="files_delete", sandbox=box, path="b")
    equal(m.bad(READ, action="files_read", sandbox=box, path="b")["code"],
          "sandbox_file_not_found")
    equal(m.good(MANAGE, action="stop", sandbox=box).data["status"],
          "stopped")
    equal(m.bad(MANAGE, action="commands_create", sandbox=box,
                argv=["true"])["code"], "sandbox_not_running")
    equal(m.good(MANAGE, action="resume", sandbox=box).data["status"],
          "running")
    e = m.bad(DELETE, sandbox=box)
    equal(e["param"], "confirm")
    assert "ask the person" in e["message"], e
    equal(m.bad(DELETE, sandbox=box, confirm="sbx_x")["param"], "confirm")
    equal(status_of(m, box), "running")
    r = m.good(DELETE, sandbox=box, confirm=box)
    assert r.data["status"] in ("destroying", "destroyed"), r
    m.good(DELETE, sandbox=box, confirm=box)


@case("LBB-69, 70: what the plan or the environment refuses is an error of the "
      "tool, with its status")
def plans():
    m = mcp(environment="free", plan="free")
    e = m.bad(MANAGE, action="run", code=ECHO)
    equal((e["status"], e["code"]), (403, "sandbox_plan_unavailable"))
    m.good(READ, action="list")
    m = mcp(environment="off", sandboxes_enabled=False)
    equal(m.post(message("ping")).status, 200)
    for name, arguments in ((READ, dict(action="list")),
                            (MANAGE, dict(action="run", code=ECHO)),
                            (DELETE, dict(sandbox="sbx_a", confirm="sbx_a"))):
        e = m.bad(name, **arguments)
        equal((e["status"], e["code"]), (409, "sandbox_not_enabled"), name)


@case("templates are listed and read; actions whose route is refused say so")
def templates():
    m = mcp()
    names = [x["name"] for x in m.good(READ, action="templates_list")
             .data["data"]]
    assert SHELL in names, names
    equal(m.good(READ, action="templates_retrieve", template=SHELL)
          .data["name"], SHELL)
    e = m.bad(READ, action="templates_retrieve", template="lbb/none")
    equal((e["code"], e["status"]), ("sandbox_template_not_found", 404))
    e = m.bad(MANAGE, action="update", sandbox="sbx_a", idle_seconds=1)
    assert e["status"] in (400, 404, 405), e


# ---- the question ---------------------------------------------------------

def asked(m, box, **more):
    return m.stream(tool_call(DELETE, dict(sandbox=box, **more), "del"))


@case("LBB-194: the person is asked by a stream; yes destroys, all else does "
      "not")
def question():
    m = mcp()
    m.begin(elicitation={})
    assert m.session, "a session for a client that asks"
    box = hold(m.owner)
    stranger, other = mcp(), mcp(environment="other")
    stranger.begin(elicitation={})
    other.session = m.session
    for answer, is_last in (({"result": {"action": "decline"}}, False),
                            ({"error": {"code": -1, "message": "m"}}, False),
                            ({"result": YES}, True)):
        # A confirmation by the agent does not stand in for the person.
        with asked(m, box, confirm=box) as events:
            q = next(events)
            equal(q["method"], "elicitation/create")
            assert box in q["params"]["message"], q
            equal(q["params"]["requestedSchema"]["required"], ["approve"])
            say = {"jsonrpc": "2.0", "id": q["id"], **answer}
            for who in (stranger, other):
                equal(who.post(say).status, 400)
            equal(m.post(say).status, 202)
            r = next(events)
            equal(r["id"], "del")
            equal(list(events), [])
            equal(m.post(say).status, 400)
        r = Result(r["result"])
        equal(r.is_error, not is_last, r)
        if not is_last:
            equal((r.error["code"], r.error["status"]), ("not_approved", 403))
            equal(status_of(m, box), "running")
    wait_until(lambda: status_of(m, box) == "destroyed", WAIT_S,
               "it is destroyed")
    # What there is not, nobody is asked about.
    equal(m.bad(DELETE, sandbox="sbx_none")["code"], "sandbox_not_found")


@case("LBB-194: a question that is cancelled, left alone, or cut off by the end "
      "of the daemon destroys nothing")
def question_ends():
    m = mcp()
    m.begin(elicitation={})
    box = hold(m.owner)
    with asked(m, box) as events:
        q = next(events)
        m.post(message("notifications/cancelled", {"requestId": "del"},
                       id=None))
        equal(list(events), [])
    equal(m.post({"jsonrpc": "2.0", "id": q["id"], "result": YES}).status, 400)
    with asked(m, box) as events:
        q = next(events)
    # The reader is gone: within some beats nobody may answer any more.
    time.sleep(21)
    equal(m.post({"jsonrpc": "2.0", "id": q["id"], "result": YES}).status, 400)
    equal(status_of(m, box), "running")
    m.good(MANAGE, action="stop", sandbox=box)
    with asked(m, box) as events:
        next(events)
        began = time.monotonic()
        d.process.send_signal(signal.SIGTERM)
        r = Result(next(events)["result"])
        equal(r.error["code"], "not_approved")
        assert "stopping" in r.error["message"], r
    d.end(signal.SIGTERM)
    assert time.monotonic() - began < 20
    d.start()
    # The session says what it said, also to another daemon.
    equal(status_of(m, box), "stopped")
    with asked(m, box) as events:
        q = next(events)
        m.post({"jsonrpc": "2.0", "id": q["id"], "result": YES})
        equal(Result(next(events)["result"]).is_error, False)


# ---- standard input and output -------------------------------------------

def pipe(*argv):
    client()
    return Pipe("--state", d.state, *argv)


@case("hutch mcp: messages in, answers out, and an end at the end of input")
def pipes():
    with pipe("--graph", "g2") as p:
        equal(p.ask(hello())["result"]["serverInfo"]["name"], "hutch")
        p.send(message("notifications/initialized", id=None))
        r = p.tool(MANAGE, action="run", template=SHELL, code=ECHO)
        equal(r.data["graph"], "g2")
        # Not JSON; not a message; a blank line; over 1 MiB; and it goes on.
        equal(p.ask("{")["error"]["code"], -32700)
        equal(p.ask("5")["error"]["code"], -32600)
        p.send("", "\r")
        e = p.ask(message("ping", {"x": "y" * (1 << 20)}))
        assert "1048576" in e["error"]["message"], e
        e = p.ask(message("ping", {"x": "y" * (3 << 20)}))
        assert "1048576" in e["error"]["message"], e
        equal(p.ask(message("ping", id="\u00e4"))["id"], "\u00e4")
        # A result with line ends in it is one line.
        raw = p.tool(MANAGE, action="run", template=SHELL,
                     code="printf '[1,\\n 2]'")
        equal(raw.data["result"], [1, 2])
        # What is under way at the end is answered.
        p.send(tool_call(MANAGE, dict(action="run", template=SHELL,
                                      code=ECHO), 77))
        status, rest, err = p.end()
        equal((status, [x["id"] for x in rest], err), (0, [77], ""))


@case("hutch mcp: calls beside each other, and the person's answer among them")
def pipe_question():
    with pipe() as p:
        p.ask(hello(elicitation={}))
        box = p.tool(MANAGE, action="create", template=SHELL).data["id"]
        p.send(tool_call(DELETE, {"sandbox": box}, "del"))
        q = p.read()
        equal(q["method"], "elicitation/create")
        equal(p.tool(READ, action="retrieve", sandbox=box).data["status"],
              "running")
        p.send({"jsonrpc": "2.0", "id": q["id"],
                "result": {"action": "decline"}})
        r = p.read()
        equal((r["id"], Result(r["result"]).error["code"]),
              ("del", "not_approved"))
        # Left alone at the end of the input: nothing is destroyed.
        p.send(tool_call(DELETE, {"sandbox": box}, "del"))
        p.read()
        status, rest, err = p.end(30)
        equal((status, rest, err), (0, [], ""))
    with pipe() as p:
        equal(p.tool(READ, action="retrieve", sandbox=box).data["status"],
              "running")
        p.ask(hello(elicitation={"form": {}}))
        p.send(tool_call(DELETE, {"sandbox": box}, "del"))
        p.send({"jsonrpc": "2.0", "id": p.read()["id"], "result": YES})
        equal(Result(p.read()["result"]).is_error, False)
        equal(p.end()[0], 0)


@case("hutch mcp: over --url; a wrong key, no key, and a daemon that is gone "
      "are told in words")
def pipe_url():
    c = client(environment="url")
    url = f"http://127.0.0.1:{d.port}"
    with Pipe("--url", url, "--api-key", c.key) as p:
        equal(p.tool(READ, action="list").structured["counts"], {"items": 0})
        # The daemon dies; the next call says so; it comes back.
        d.kill()
        # Its socket is closed by the kernel's workers, soon after.
        wait_until(lambda: "Connection refused; nothing was sent" in
                   p.ask(message("ping"))["error"]["message"], 10,
                   "the port is closed")
        equal(p.end()[0], 0)
    d.start()
    url = f"http://127.0.0.1:{d.port}"
    with Pipe("--url", url, "--api-key", "lbb_sk_live_0") as p:
        e = p.ask(message("ping"))["error"]
        assert "answered 401" in e["message"], e
        equal(e["data"]["code"], "unauthorized")
    with Pipe("--url", url) as p:
        status, rest, err = p.end()
        equal((status, rest), (77, []))
        assert "an API key is missing" in err, err


@case("hutch mcp: SIGTERM ends it at once, with a run under way")
def pipe_signal():
    with pipe() as p:
        p.ask(hello())
        p.send(tool_call(MANAGE, dict(action="run", template=SHELL,
                                      code="sleep 30; echo 1")))
        time.sleep(1)
        began = time.monotonic()
        p.process.send_signal(signal.SIGTERM)
        p.process.wait(10)
        assert time.monotonic() - began < 5
        equal(p.process.returncode, 0)


@case("hutch mcp: runs beside each other are answered as they end")
def pipe_beside():
    with pipe() as p:
        p.send(*[tool_call(MANAGE, dict(
            action="run", template=SHELL, code=f"echo {i}"), i)
            for i in range(3)])
        got = {}
        for _ in range(3):
            m = p.read()
            got[m["id"]] = Result(m["result"]).data["result"]
        equal(got, {0: 0, 1: 1, 2: 2})


# ---- the official clients -------------------------------------------------

def wheres():
    """Both transports."""
    c = client()
    return (("HTTP", {"url": f"http://127.0.0.1:{d.port}/mcp?graph=main",
                      "key": c.key}),
            ("stdio", {"command": [f"{BUILD}/hutch", "mcp", "--state",
                                   d.state]}))


@case("the TypeScript SDK 1.x, over HTTP and over standard input: run, hold, "
      "read, and the person asked")
def typescript():
    for name, where in wheres():
        out = sdk(where, [
            {"name": MANAGE, "arguments": {"action": "run", "template": SHELL,
                                           "code": "echo '{\"a\": [1]}'"}},
            {"name": MANAGE, "arguments": {"action": "create",
                                           "template": SHELL}},
            {"name": MANAGE, "arguments": {"action": "list"}},
            {"name": "lbb_x", "arguments": {}},
        ])
        equal(out["protocol"], "2025-11-25") if name == "HTTP" else None
        equal(out["server"]["name"], "hutch")
        equal([t["name"] for t in out["tools"]], [READ, MANAGE, DELETE])
        first, second, third, fourth = out["results"]
        equal((first.data["result"], first.data["ok"]), ({"a": [1]}, True))
        equal(third.error["param"], "action")
        equal(fourth["code"], -32602)
        equal(out["session"], None)
        # Without a person: the confirmation.
        box = second.data["id"]
        out = sdk(where, [{"name": DELETE, "arguments": {"sandbox": box}}],
                  answer={"action": "decline"})
        equal((out["results"][0].error["code"], len(out["asked"])),
              ("not_approved", 1))
        out = sdk(where, [
            {"name": READ, "arguments": {"action": "retrieve",
                                         "sandbox": box}},
            {"name": DELETE, "arguments": {"sandbox": box}},
            {"name": DELETE, "arguments": {"sandbox": box}}], answer=YES)
        equal([r.is_error for r in out["results"]], [False] * 3, out)
        equal(out["results"][0].data["status"], "running")
        assert box in out["asked"][0]["message"], out["asked"]
        equal(out["problems"], [])
        note(f"{name}: {out['server']}")


@case("the TypeScript SDK: a call that its client gives up destroys nothing")
def typescript_cancel():
    for _, where in wheres():
        out = sdk(where, [{"name": MANAGE, "arguments": {
            "action": "create", "template": SHELL}}])
        box = out["results"][0].data["id"]
        # The person never answers: the client's own limit ends the call.
        out = sdk(where, [
            {"name": DELETE, "arguments": {"sandbox": box},
             "options": {"timeout": 2000}},
            {"name": READ, "arguments": {"action": "retrieve",
                                         "sandbox": box}}],
            answer={"never": True})
        equal(out["results"][0]["code"], -32001)
        equal(out["results"][1].data["status"], "running")
        out = sdk(where, [{"name": DELETE, "arguments": {
            "sandbox": box, "confirm": box}}])
        equal(out["results"][0].is_error, False, out)


@case("the inspector's command line, over both: the mission's sample, word by "
      "word")
def inspect():
    name, *words = re.findall(r'(?:[^ "]|"(?:\\.|[^"])*")+', MISSION)
    for _, where in wheres():
        equal(len(inspector(where, "tools/list")["tools"]), 3)
        r = Result(inspector(where, "tools/call", "--tool-name", name,
                             "--tool-arg", *words))
        equal((r.data["result"], r.data["ok"]), (6, True), r)


if __name__ == "__main__":
    main()
