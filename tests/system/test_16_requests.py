#!/usr/bin/env python3
"""Requests that are refused, each with its code; nothing is left of them.

No sandbox starts here: the daemon has no room for one, so that what passes
every check answers 503 sandbox_capacity.

test: timeout=300 beside=yes
"""
import contextlib
import http.client
import json
import os

import hutchlib
from hutchlib import (Daemon, call, case, client, daemon, equal, main,
                      new_key, wait_until)

hutchlib._daemon = Daemon(ram_budget_mib=1).start()
CODE = "def run(input, config): return 1"
PASSED = (503, "sandbox_capacity")


def told(reply):
    return reply.status, reply.code


def post(body, key="new", **more):
    return client().call("POST", "/v1/sandboxes", body,
                         new_key() if key == "new" else key, **more)


def run(**fields):
    return post({"run": {"code": CODE, **fields}})


@case("LBB-10 LBB-180: a good request passes every check and meets the full "
      "host")
def passes():
    r = run()
    equal(told(r), PASSED)
    e = r.json["error"]
    equal(e["retryable"], True)
    equal(int(r.headers["Retry-After"]), e["retry_after_seconds"])


@case("LBB-48 LBB-170 K12: limits at their edges and one past them")
def limits():
    for name, low, high in (("vcpus", 1, 4), ("memory_mib", 128, 8192),
                            ("disk_mib", 256, 10240)):
        for value in (low, high):
            equal(told(run(limits={name: value})), PASSED, (name, value))
        for value in (low - 1, high + 1, 0, -1, 1.5, 2 ** 63, "1", True,
                      None, [], {}):
            r = run(limits={name: value})
            equal(told(r), (400, "sandbox_limits_invalid"), (name, value))
            equal(r.param, f"run.limits.{name}")
            assert str(low) in r.json["error"]["message"], r
            assert str(high) in r.json["error"]["message"], r
    r = run(limits={"cpus": 1})
    equal((r.status, r.param), (400, "run.limits.cpus"))
    assert run(limits=[]).status == 400


@case("LBB-124 LBB-178 J9: timeout_ms at its edges and past them")
def timeouts():
    for value in (1, 60000, 3600000):
        equal(told(run(timeout_ms=value)), PASSED, value)
    for value in (0, -1, 3600001, 2 ** 63, 1.5, "60", None):
        r = run(timeout_ms=value)
        equal((r.status, r.param), (400, "run.timeout_ms"), value)
        equal(r.code, "sandbox_timeout_invalid")
    r = post(b'{"run":{"code":"x","timeout_ms":NaN}}')
    equal(told(r), (400, "invalid_json"))


@case("LBB-88: wait_ms 0 to 30000")
def wait_ms():
    for value in (0, 30000):
        equal(told(post({"run": {"code": CODE}, "wait_ms": value})), PASSED)
    for value in (-1, 30001, 1.5, "1", None):
        r = post({"run": {"code": CODE}, "wait_ms": value})
        equal((r.status, r.param), (400, "wait_ms"), value)


@case("LBB-89 LBB-179: code 64 KiB, input 1 MiB, config 1 MiB; one more is "
      "refused")
def sizes():
    equal(told(run(code="#" * 65536)), PASSED)
    r = run(code="#" * 65537)
    equal((r.status, r.code, r.param),
          (413, "sandbox_code_too_large", "run.code"))
    for name in ("input", "config"):
        equal(told(run(**{name: "x" * ((1 << 20) - 2)})), PASSED)
        r = run(**{name: "x" * ((1 << 20) - 1)})
        equal((r.status, r.code, r.param),
              (413, "sandbox_input_too_large", f"run.{name}"))
    r = post(b'{"run":{"code":"x"},"wait_ms":1' + b" " * (5 << 20) + b"}")
    equal(told(r), (413, "body_too_large"))


@case("LBB-128 LBB-178: env names: LBB_ and what is no name are refused")
def env():
    equal(told(run(env={"A_1": "x", "_b": ""})), PASSED)
    for name in ("LBB_X", "LBB_", "", "1A", "A-B", "A=B", "A B", "\u00e4",
                 "A\0B", "x" * 300):
        r = run(env={name: "v"})
        equal(told(r), (400, "sandbox_env_invalid"), name)
    for env_value in (1, None, True, ["x"], {"a": 1}):
        equal(run(env={"A": env_value}).status, 400, env_value)
    equal(told(run(env={"A": "x\0y"})), (400, "sandbox_env_invalid"))
    equal(told(run(env={"A": "x" * (256 << 10)})),
          (400, "sandbox_env_invalid"))
    equal(told(run(env={f"A{n}": "" for n in range(300)})),
          (400, "sandbox_env_invalid"))


def places_of(text):
    """Where the daemon's writable memory holds these bytes."""
    found = []
    with open(f"/proc/{daemon().pid}/maps") as maps, \
            open(f"/proc/{daemon().pid}/mem", "rb", 0) as mem:
        for line in maps:
            span, mode, *rest = line.split()
            begin, end = (int(x, 16) for x in span.split("-"))
            if "w" not in mode or end - begin > 256 << 20:
                continue
            mem.seek(begin)
            with contextlib.suppress(OSError):
                n = mem.read(end - begin).count(text)
                if n:
                    found.append((rest[-1], n))
    return found


@case("LBB-127: no value of env stays in the daemon's memory or files")
def env_is_wiped():
    c = client()
    for n, size in enumerate((40, 5000, 100000)):
        value = f"secret{n}-" + os.urandom(16).hex()
        body = json.dumps({"run": {"code": CODE, "env": {
            "A": "x" * size + value, "B": value}}}).encode()
        # whole, refused by a later check, refused before it is read, cut
        equal(told(post(body)), PASSED)
        equal(post(body.replace(b'"code"', b'"coda"')).status, 400)
        equal(post(body[:-1]).status, 400)
        equal(c.call("POST", "/v1/sandboxes", body,
                     headers={"Content-Type": "text/plain"}).status, 415)
        con = http.client.HTTPConnection(daemon().host, daemon().port)
        con.request("POST", "/v1/sandboxes", iter([body[:30], body[30:]]),
                    {"Authorization": f"Bearer {c.key}",
                     "Idempotency-Key": new_key(),
                     "Content-Type": "application/json"},
                    encode_chunked=True)
        equal(con.getresponse().status, 503)
        con.close()
        # The last request's memory is wiped when its connection is done with.
        wait_until(lambda: not places_of(value.encode()), 5,
                   f"{size} bytes: {places_of(value.encode())}")
        for folder, _, names in os.walk(daemon().state):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isfile(path):
                    with open(path, "rb") as f:
                        assert value.encode() not in f.read(), path
    with open(f"/proc/{daemon().pid}/limits") as f:
        core = [x for x in f if x.startswith("Max core file size")]
    equal(core[0].split()[4:6], ["0", "0"])


@case("LBB-108: an unknown template answers 404")
def template():
    for name in ("lbb/ruby", "nothing", "../etc", "x" * 500, "lbb/python\0"):
        r = run(template=name)
        assert r.status in (400, 404), (name, r)
        if r.status == 404:
            equal(r.code, "sandbox_template_not_found")
    for name in ("lbb/python", "lbb/node", "lbb/shell"):
        equal(told(run(template=name)), PASSED, name)


@case("LBB-6: an unknown field answers 400 and is named")
def unknown():
    r = post({"run": {"code": CODE, "colour": "red"}})
    equal((r.status, r.param), (400, "run.colour"))
    r = post({"run": {"code": CODE}, "extra": 1})
    equal((r.status, r.param), (400, "extra"))
    r = client().call("GET", "/v1/sandboxes", query=dict(nonsense=1))
    equal((r.status, r.param), (400, "nonsense"))


@case("K4: bodies that are no JSON, or not the JSON that is asked for")
def malformed():
    bad = [b"", b"{", b"}", b"nul", b"[1,2", b'{"run"}', b'{"run":}',
           b'{"run":{"code":"\x01"}}', b'{"run":{"code":"\xff"}}',
           b'{"run":{"code":"x"},}', b"{'run':1}", b"\xef\xbb\xbf{}",
           b'{"run":{"code":"x"},"run":{"code":"y"}}',
           b'{"run":{"code":"x"}} trailing', b"[" * 100000,
           b'{"a":' * 2000 + b"1" + b"}" * 2000,
           b'{"run":{"code":"x","input":01}}',
           b'{"run":{"code":"x","input":1.}}',
           b'{"run":{"code":"x","input":+1}}',
           b'{"run":{"code":"\\x41"}}', b'{"run":{"code":"\\ud8"}}']
    for body in bad:
        equal(told(post(body)), (400, "invalid_json"), body[:60])
    for body in (b"[]", b'"x"', b"1", b"null", b"true"):
        r = post(body)
        assert r.status == 400, (body, r)
    for body in ({"run": None}, {"run": []}, {"run": {}},
                 {"run": {"code": 1}}, {"run": {"code": None}},
                 {"run": {"code": ""}}, {"run": {"code": ["x"]}}):
        r = post(body)
        equal((r.status, r.code), (400, "invalid_request"), body)
        assert r.param and r.param.startswith("run"), r
    r = post(b'{"run":{"code":"\\ud800"}}')
    equal((r.status, r.param), (400, "run.code"))


@case("LBB-1 LBB-4 LBB-11 LBB-110: content types, methods, unknown routes")
def routes():
    r = client().call("POST", "/v1/sandboxes", b"{}", new_key(),
                      headers={"Content-Type": "text/plain"})
    equal(told(r), (415, "unsupported_media_type"))
    r = client().call("POST", "/v1/sandboxes", b'{"run":{}}', new_key(),
                      headers={"Content-Type":
                               "application/json; charset=utf-8"})
    equal(r.status, 400)
    for path in ("/v1/nothing", "/", "/v2/sandboxes", "/v1/sandboxes/",
                 "/v1/sandboxes/sbx_abc", "/v1/sandboxes/sbx_abc/stop",
                 "/admin/keys", "/admin/status", "/v1/../admin/keys"):
        r = client().call("GET", path)
        equal((r.status, r.json["error"]["message"].startswith(
            "no route for")), (404, True), path)
    r = client().call("PUT", "/v1/sandboxes")
    equal(told(r), (405, "method_not_allowed"))
    assert "GET" in r.headers["Allow"] and "POST" in r.headers["Allow"]
    # Versions of a template do not go away.
    r = client().call("DELETE", "/v1/sandboxes/templates")
    equal(told(r), (405, "method_not_allowed"))


@case("LBB-2 K6: no key, a wrong key, a key in the wrong place: 401")
def unauthorized():
    d, c = daemon(), client()
    wrong = c.key[:-1] + ("0" if c.key[-1] != "0" else "1")
    for value in (None, "", "Bearer", "Bearer ", f"Basic {c.key}", wrong,
                  f"Bearer {wrong}", f"Bearer {c.key} ", f"Bearer {c.key}x",
                  f"Bearer {c.key[:-1]}", "Bearer " + "x" * 5000):
        con = http.client.HTTPConnection(d.host, d.port, timeout=30)
        headers = {} if value is None else {"Authorization": value}
        r = call(con, "GET", "/v1/sandboxes", None, headers)
        if value == f"Bearer {c.key} ":
            assert r.status in (200, 401), r  # white space may be cut
            continue
        if r.status != 401:
            assert r.status in (400, 431) and len(value or "") > 4000, r
            continue
        equal(r.code, "unauthorized", value)
        assert c.key not in r.text and wrong not in r.text
    con = http.client.HTTPConnection(d.host, d.port, timeout=30)
    r = call(con, "GET", f"/v1/sandboxes?api_key={c.key}")
    assert r.status in (400, 401), r


@case("K7: a revoked key is refused at the very next request")
def revoked():
    d = daemon()
    c = d.client("revoking")
    equal(c.call("GET", "/v1/sandboxes").status, 200)
    r = d.admin("DELETE", f"/admin/keys?environment=revoking&name={c.name}")
    equal(r.status, 200)
    r = c.call("GET", "/v1/sandboxes")
    equal(told(r), (401, "unauthorized"))


@case("a key changes its environment for the others only when told to")
def plan_changes():
    d = daemon()
    first = d.client("planned")

    def key(**more):
        return d.admin("POST", "/admin/keys",
                       dict(environment="planned", **more))

    r = key(name="downgrade", plan="free")
    equal((r.status, r.code, r.param), (400, "invalid_request", "plan"))
    for part in ("environment planned has plan full, not free",
                 '"change_environment": true'):
        assert part in r.json["error"]["message"], r
    r = key(name="off", sandboxes_enabled=False)
    equal((r.status, r.param), (400, "sandboxes_enabled"))
    equal(told(first.start(CODE)), PASSED)
    equal(key(name="same", plan="full").json["plan"], "full")
    r = key(name="meant", plan="free", change_environment=True)
    equal((r.status, r.json["plan"]), (201, "free"))
    equal(first.start(CODE).code, "sandbox_plan_unavailable")
    r = key(name="later")
    equal((r.status, r.json["plan"], r.json["sandboxes_enabled"]),
          (201, "free", True))


@case("LBB-69 LBB-70: a free plan reads; a disabled environment is told so")
def plans():
    free = daemon().client("freeplan", plan="free")
    equal(free.call("GET", "/v1/sandboxes").status, 200)
    r = free.start(CODE)
    equal(told(r), (403, "sandbox_plan_unavailable"))
    off = daemon().client("offplan", sandboxes_enabled=False)
    for r in (off.start(CODE), off.call("GET", "/v1/sandboxes")):
        equal(told(r), (409, "sandbox_not_enabled"))
        equal(r.json["error"].get("retryable", False), False)


@case("a record that is not there is named, with its graph")
def named():
    for path, query, what in (
            ("", dict(sandbox="sbx_abc"), "sandbox sbx_abc"),
            ("/get", dict(sandbox="cmd_abc"), "sandbox cmd_abc"),
            ("/commands/get", dict(command="cmd_abc"), "command cmd_abc"),
            ("/commands/logs", dict(command="cmd_abc"), "command cmd_abc")):
        r = client().call("GET", "/v1/sandboxes" + path, query=query)
        equal(r.status, 404)
        equal(r.json["error"]["message"],
              f"There is no {what} in graph main of environment test.")


@case("LBB-3 K13: graphs and ids of every form never reach a path")
def ids():
    c = client()
    for value in ("", "../x", "sbx_" + "a" * 200, "SBX_1", "sbx_\u00e9",
                  "sbx_%00", "sbx_' OR 1=1--", "cmd_1"):
        r = c.call("GET", "/v1/sandboxes/get", query=dict(sandbox=value))
        assert r.status in (400, 404), (value, r)
        if r.status == 404:
            equal(r.code, "sandbox_not_found")
    for graph in ("x" * 65, "a/b", "a b", "\u00e9", ""):
        r = c.call("GET", "/v1/sandboxes", query=dict(graph=graph))
        equal(r.status, 400, graph)
    equal(c.call("GET", "/v1/sandboxes",
                 query=dict(graph="a.b_C-1", stack="dev")).status, 200)
    r = c.call("GET", "/v1/sandboxes/get",
               query=dict(graph=None, sandbox="sbx_abc"))
    assert "in graph main of" in r.json["error"]["message"], r


@case("LBB-134: log routes check their numbers")
def logs():
    c = client()
    for query in (dict(), dict(command="cmd_none", stream="stdin"),
                  dict(command="cmd_none", stream="stdout", offset=-1),
                  dict(command="cmd_none", stream="stdout", offset="x"),
                  dict(command="cmd_none", stream="stdout", offset=2**64),
                  dict(command="cmd_none", stream="stdout", limit=0)):
        r = c.call("GET", "/v1/sandboxes/commands/logs", query=query)
        equal(r.status, 400, query)
    r = c.call("GET", "/v1/sandboxes/commands/logs",
               query=dict(command="cmd_none", stream="stdout"))
    equal(told(r), (404, "sandbox_command_not_found"))
    for limit in (0, -1, 1001, "x"):
        r = c.call("GET", "/v1/sandboxes", query=dict(limit=limit))
        equal((r.status, r.param), (400, "limit"), limit)


@case("LBB-20 LBB-22: without a key no call that runs code or saves a template "
      "does anything")
def keyless():
    for path, query, body in (
            ("", {}, {"run": {"code": CODE}}),
            ("", {}, {"template": "lbb/shell"}),
            ("/commands", {"sandbox": "sbx_abc"}, {"argv": ["ls"]}),
            ("/commands", {"sandbox": "sbx_abc"}, {"run": {"code": CODE}}),
            ("/templates", {}, {"name": "a", "base": "lbb/shell"})):
        r = client().call("POST", "/v1/sandboxes" + path, body, query=query)
        equal((*told(r), r.param),
              (400, "missing_idempotency_key", "Idempotency-Key"), body)
        equal(r.json["error"]["type"], "invalid_request_error")


@case("LBB-255: who accepts a stream is answered with a whole JSON body")
def no_stream():
    for path, status in (("/v1/sandboxes", 200), ("/v1/sandboxes/get", 400)):
        r = client().call("GET", path, headers={
            "Accept": "text/event-stream, application/json;q=0.1"})
        equal(r.status, status, path)
        equal(r.headers["Content-Type"].split(";")[0], "application/json")
        equal(int(r.headers["Content-Length"]), len(r.body))


@case("LBB-9 LBB-181: every refusal has the whole envelope and a page for its "
      "code")
def envelope():
    r = run(limits={"vcpus": 9})
    e = r.json["error"]
    for name in ("type", "code", "message", "request_id", "doc_url"):
        assert e.get(name), (name, e)
    equal(r.headers["Content-Type"].split(";")[0], "application/json")
    assert "/errors#" in e["doc_url"], e
    page = daemon().get("/errors")
    equal(page.status, 200)
    assert e["doc_url"].rpartition("#")[2] in page.text


@case("LBB-27: nothing of all this is left: no sandbox, no command")
def nothing_left():
    for path in ("/v1/sandboxes", "/v1/sandboxes/commands"):
        equal(client().call("GET", path).json["data"], [], path)
    equal(daemon().metric("hutch_sandboxes_live"), 0)
    equal(daemon().metric("hutch_vms_started_total"), 0)


@case("LBB-13: /version names the capability; /healthz, /readyz, /metrics")
def service():
    d = daemon()
    assert "sandboxes" in d.get("/version").json["capabilities"]
    equal(d.get("/healthz").status, 200)
    equal(d.get("/readyz").status, 200)
    equal(d.get("/capacity").status, 200)
    text = d.get("/metrics").text
    for name in ("hutch_runs_started_total", "hutch_http_requests_total"):
        assert f"# TYPE {name} counter" in text, name
    json.dumps(d.admin("GET", "/admin/status").json)


main()
