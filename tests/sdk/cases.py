"""What both SDKs do when calls fail, are lost, or take long: one table.

A row: a name, what is called (an op of ops.py and ops.ts), the answers that a
server plays, and what must come of it.  Every row is played to the blocking
Python client, the awaiting one, and the TypeScript one, with clocks on which
only waiting takes time, and where chance always gives the most.
"""
import json

DROP = "drop"       # the connection ends without an answer
CUT = "cut"         # it ends in the middle of one


def answer(status, body=None, **headers):
    """One answer; header names with _ for -."""
    if not isinstance(body, (str, bytes)):
        headers.setdefault("Content_Type", "application/json")
        body = json.dumps({} if body is None else body)
    return status, {k.replace("_", "-"): v for k, v in headers.items()}, body


def error(status, code="some_code", headers=None, **more):
    body = {"error": {"type": "api_error", "code": code,
                      "message": f"it is {code}", "request_id": "req_1",
                      "doc_url": None, **more}}
    return answer(status, body, **(headers or {}))


def run(status, http=200, **more):
    return answer(http, dict(dict(
        object="run", ok=status == "succeeded", status=status, result=None,
        exit_code=None, command="cmd_1", sandbox="sbx_1", graph="main",
        sandbox_status="starting", progress="boots", ended_at=None), **more))


def command(status, http=200, **more):
    return answer(http, dict(dict(
        object="command", id="cmd_1", sandbox="sbx_1", graph="main",
        status=status, ok=status == "succeeded", result=None, exit_code=None,
        ended_at=None), **more))


def sandbox(status, http=200, **more):
    return answer(http, dict(dict(object="sandbox", id="sbx_1", graph="main",
                                  status=status), **more))


OK = answer(200, {"object": "list", "data": [], "has_more": False,
                  "next_cursor": None})
DONE = run("succeeded", result=6, exit_code=0)
LOST = run("lost")
VERSION = answer(200, {"object": "version", "name": "x", "version": "1",
                       "capabilities": ["sandboxes"]})
SBX, RAN = "POST /v1/sandboxes", "GET /v1/sandboxes/commands/get"
GET_SBX = "GET /v1/sandboxes/get"
KEYS_123 = ["k", "k.2", "k.3"]
UNIX_S = 1_800_000_000     # what every clock begins with
IN_3_S = "Fri, 15 Jan 2027 08:00:03 GMT"
NO_ROUTE = error(404, "not_found", message="no route for GET /v1/files")


def refused(code, status):
    return {"raises": "LbbError", "code": code, "status": status}


# name, op, arguments of the op, options of the client, answers, then what is
# expected: value or raises ...; requests; keys; waits (seconds)
CASES = []


def case(name, op, answers, *, args=None, client=None, **want):
    CASES.append(dict(name=name, op=op, answers=answers, args=args or {},
                      client=client or {}, want=want))


# ---- LBB-247, row by row -------------------------------------------------
case("LBB-247: GET 503, 503, 200: three requests", "get",
     [error(503), error(503), OK], value=200, n=3, waits=[.1, .2], keys=[])
case("LBB-247: POST without a key, 503: one request", "post", [error(503), OK],
     n=1, waits=[], keys=[], **refused("some_code", 503))
case("LBB-247: POST with a key, 500, 502, 200: three, the same key",
     "post", [error(500), error(502), OK], args={"key": "mine"}, value=200,
     n=3, waits=[.1, .2], keys=["mine"] * 3)
case("LBB-247: 429 and retryable:false: one request", "get",
     [error(429, retryable=False), OK], n=1, waits=[],
     **refused("some_code", 429))
case("LBB-247: 429 and Retry-After 1: the second after 1 s", "get",
     [error(429, headers={"Retry_After": "1"}), OK], value=200, n=2,
     waits=[1])
case("LBB-247: 429 and Retry-After 100: one request", "get",
     [error(429, headers={"Retry_After": "100"}), OK], n=1, waits=[],
     after=100, **refused("some_code", 429))
case("LBB-247: 501 is sent again", "get", [error(501), OK], value=200, n=2,
     waits=[.1])
for status in (400, 401, 403, 404, 409, 413, 422):
    case(f"LBB-247: {status}: one request", "get", [error(status), OK], n=1,
         waits=[], **refused("some_code", status))

# ---- LBB-15, 240, 241, 245, 248 -------------------------------------------
case("LBB-15: a bare HTML 503 is sent again", "get",
     [answer(503, "<html>busy</html>", Content_Type="text/html"), OK],
     value=200, n=2, waits=[.1])
case("LBB-9, LBB-245: what is no envelope is an unstructured error", "get",
     [answer(400, "<html>no</html>", Content_Type="text/html",
             X_Request_Id="req_9")], n=1, request_id="req_9",
     message="Little Big Brain 400: <html>no</html>",
     **refused("unstructured_error", 400))
case("LBB-245: the error has all that came", "get",
     [error(400, "invalid_request", param="limit", details={"a_b": [1]},
            retry_at_ms=5)], n=1, request_id="req_1", param="limit",
     details={"a_b": [1]}, message="it is invalid_request",
     **refused("invalid_request", 400))
case("LBB-15: seven attempts in all, waits doubled", "get",
     [error(500)] * 8, n=7, waits=[.1, .2, .4, .8, 1.6, 3.2],
     **refused("some_code", 500))
case("LBB-15: lost connections of a GET are tried again", "get",
     [DROP, CUT, OK], value=200, n=3, waits=[.1, .2])
case("LBB-15: with a key, the same key", "post", [DROP, OK],
     args={"key": "mine"}, value=200, n=2, keys=["mine"] * 2, waits=[.1])
case("LBB-246: without a key it surfaces at once", "post", [DROP, OK], n=1,
     waits=[], raises="lost")
case("LBB-246: and after the last retry", "get", [DROP] * 3, n=3,
     client={"max_retries": 2}, waits=[.1, .2], raises="lost")
case("LBB-10: the header wins over the body", "get",
     [error(429, headers={"Retry_After": "2"}, retry_after_seconds=9), OK],
     value=200, n=2, waits=[2])
case("LBB-10: the body's hint, without a header", "get",
     [error(503, retry_after_seconds=9), OK], value=200, n=2, waits=[9])
case("LBB-9: retry_at_ms is such a hint", "get",
     [error(429, retry_at_ms=UNIX_S * 1000 + 5000), OK], value=200, n=2,
     waits=[5])
case("LBB-10: Retry-After may be a date", "get",
     [error(503, headers={"Retry_After": IN_3_S}), OK], value=200, n=2,
     waits=[3])
case("LBB-10: one that is neither counts for nothing", "get",
     [error(503, headers={"Retry_After": "soon"}), OK], value=200, n=2,
     waits=[.1])
case("LBB-15: the budget is of all waits", "get",
     [error(503, headers={"Retry_After": "25"})] * 4, n=3, waits=[25, 25],
     **refused("some_code", 503))
case("LBB-241: max_retries of a call", "get", [error(503)] * 3, n=2,
     args={"options": {"max_retries": 1}}, waits=[.1],
     **refused("some_code", 503))
case("LBB-241: retry false", "get", [error(503), OK], n=1, waits=[],
     args={"options": {"retry": False}}, **refused("some_code", 503))
case("LBB-241: retry true, without a key", "post", [error(503), DROP, OK],
     value=200, n=3, args={"options": {"retry": True}}, waits=[.1, .2])
case("LBB-241: rate_limited is 429", "post", [error(429), error(503), OK],
     n=2, args={"options": {"retry": "rate_limited"}}, waits=[.1],
     **refused("some_code", 503))
case("LBB-241: rate_limited is no lost connection", "get", [DROP, OK], n=1,
     args={"options": {"retry": "rate_limited"}}, waits=[], raises="lost")
case("LBB-241: the budget of a call", "get",
     [error(503, headers={"Retry_After": "2"})] * 2, n=1, waits=[],
     args={"options": {"retry_budget_ms": 1500}},
     **refused("some_code", 503))
case("LBB-241: headers of a call", "get", [OK], value=200, n=1,
     args={"options": {"headers": {"X-Mine": "1"}}}, sent={"x-mine": "1"})
case("LBB-248: on_retry is told before each wait", "get",
     [error(503, "busy"), DROP, OK], value=200, n=3,
     events=[["GET", "/v1/sandboxes", 1, 503, "busy", .1, 0],
             ["GET", "/v1/sandboxes", 2, None, None, .2, .1]])
case("LBB-240: the raw answer", "raw", [error(503), answer(
    200, {"a_b": 1}, X_Request_Id="req_7", Lbb_Version="2026-10-21")], n=2,
    value=[{"a_b": 1}, 200, "req_7", "2026-10-21", 2, 1, 100])
case("LBB-246: a good answer that is no JSON names its request", "list",
     [answer(200, "{", Content_Type="application/json",
             X_Request_Id="req_3")], n=1, raises="invalid", says="req_3")
case("LBB-11: a route that the server does not have", "files_list",
     [NO_ROUTE], n=1, raises="LbbCapabilityError", status=404)
case("LBB-13: the version is asked for once, without a graph", "capability",
     [VERSION], value=["sandboxes", "LbbCapabilityError"], n=1,
     asks=["GET /version"], query="")

# ---- LBB-230 to 233: what every request has -------------------------------
case("LBB-230, LBB-232: key, version and agent; no key without one", "get",
     [OK], n=1, value=200,
     sent={"authorization": "Bearer lbb_sk_test_1",
           "lbb-version": "2026-10-21"}, query="graph=main")
# test_habits.py sets environment variables that no client may read.
case("LBB-2, LBB-231: without a key it sends none, whatever the environment has",
     "get", [OK], n=1, value=200,
     client={"api_key": None, "graph": None}, sent={"authorization": None},
     query="")
case("LBB-233: graph, stack, then the call's own", "retrieve",
     [sandbox("running")], n=1, client={"environment": "env_a"},
     query="graph=main&stack=env_a&sandbox=sbx_1", value="running")
case("LBB-236: the graph of a scope replaces the client's", "graph",
     [DONE], n=1, query="graph=other", value=[True, 6])
case("LBB-233: paths are escaped", "write", [answer(200, {
    "object": "file", "path": "x", "size": 1, "sha256": "0"})], n=1,
    args={"path": "a b+c%&é/#.txt"}, value=1,
    query="graph=main&sandbox=sbx_1&path=a%20b%2Bc%25%26%C3%A9%2F%23.txt")

# ---- keys: LBB-214, 249 ----------------------------------------------------
for op, prefix, answers in (
        ("run", "sandbox.run", [error(503), DONE]),
        ("create", "sandbox.create", [DROP, sandbox("running", 201)]),
        ("run_held", "sandbox.command", [error(502), command("succeeded")]),
        ("command", "sandbox.command", [error(500), command("succeeded")]),
        ("template", "sandbox.template", [error(503), answer(201, {
            "object": "template", "id": "sbt_1", "name": "n", "version": 1,
            "timeout_ms": 5})]),
        ("write", "sandbox.file", [DROP, answer(200, {
            "object": "file", "path": "x", "size": 1, "sha256": "0"})]),
        ("stop", "sandbox.stop", [error(503), sandbox("stopped")]),
        ("resume", "sandbox.resume", [error(503), sandbox("running")]),
        ("delete", "sandbox.delete", [DROP, sandbox("destroyed")]),
        ("update", "sandbox.update", [error(503), sandbox("running")]),
        ("cancel", "sandbox.cancel", [error(503), command("cancelled")]),
        ("keep", "file.keep", [error(503), answer(200, {
            "created": True, "file": {"sha256": "0"}})])):
    case(f"LBB-214, LBB-249: {op} makes a key and sends it again", op,
         answers, n=2, prefix=prefix, waits=[.1])
case("LBB-250: an upload is sent again without a key", "upload",
     [error(503), DROP, answer(200, {"created": True,
                                     "file": {"sha256": "0"}})], n=3, keys=[],
     value=True, query="graph=main&name=a.txt", bodies=["hello"] * 3)
for bad in ("", "x" * 256, "a\nb", "é", " a"):
    case(f"LBB-249: the key {bad[:9]!r} is refused before any request", "run",
         [DONE], args={"key": bad, "lost_retries": 0}, n=0, raises="invalid",
         says="idempotency")
case("LBB-28: a key needs room for .3", "run", [DONE],
     args={"key": "x" * 254}, n=0, raises="invalid", says="253")
case("LBB-28: but not when it is sent once only", "run", [DONE],
     args={"key": "x" * 255, "lost_retries": 0}, n=1, value=[True, 6])

# ---- runs that are lost: LBB-28 to 30 ---------------------------------------
case("LBB-28: lost twice: .2, .3", "run", [LOST, LOST, DONE],
     args={"key": "k"}, n=3, keys=KEYS_123, value=[True, 6], waits=[])
case("LBB-28: lost three times: it is lost", "run", [LOST] * 4,
     args={"key": "k"}, n=3, keys=KEYS_123, value=[False, None])
case("LBB-28: lost_retries 1", "run", [LOST] * 3,
     args={"key": "k", "lost_retries": 1}, n=2, keys=KEYS_123[:2],
     value=[False, None])
case("LBB-28: lost_retries 0", "run", [LOST] * 3,
     args={"key": "k", "lost_retries": 0}, n=1, keys=["k"],
     value=[False, None])
for bad in (3, -1, 1.5, "2", True):
    case(f"LBB-28: lost_retries {bad!r} is refused before any request", "run",
         [DONE], args={"lost_retries": bad}, n=0, raises="invalid",
         says="must be 0 to 2")
case("LBB-28: a 503 in between keeps the key of its attempt", "run",
     [LOST, error(503), LOST, DROP, DONE], args={"key": "k"}, n=5,
     keys=["k", "k.2", "k.2", "k.3", "k.3"], value=[True, 6])
case("LBB-28: lost while it was polled", "run",
     [run("running", 202), command("lost"), DONE], args={"key": "k"}, n=3,
     keys=["k", None, "k.2"], asks=[SBX, RAN, SBX], value=[True, 6])
for status in ("failed", "timed_out", "cancelled"):
    case(f"LBB-30: {status} is not sent again", "run", [run(status)], n=1,
         args={"key": "k"}, keys=["k"], value=[False, None])
case("LBB-29: a lost command on a held sandbox stays lost", "run_held",
     [command("lost"), command("succeeded")], n=1, value="lost")

# ---- polling: LBB-87 ---------------------------------------------------------
case("LBB-87: what outlives its wait is polled", "run",
     [run("starting", 202), command("queued"), command("running"),
      command("succeeded", result=6, exit_code=0, ended_at="then")], n=4,
     asks=[SBX, RAN, RAN, RAN], value=[True, 6], waits=[1, 1],
     fields={"command": "cmd_1", "sandbox": "sbx_1", "exit_code": 0,
             "ended_at": "then", "status": "succeeded", "object": "run"},
     absent=["sandbox_status", "progress", "id"])
case("LBB-87: until max_wait_ms; the error has the sandbox", "run",
     [run("running", 202)] + [command("running")] * 9, n=4,
     args={"max_wait_ms": 2500}, raises="SandboxWaitError", waits=[1, 1, .5],
     wait=["sbx_1", "cmd_1"], bodies_have=['"wait_ms":2500'])
case("LBB-87: the wait is of each attempt", "run",
     [run("running", 202), command("running"), command("lost")] * 2 +
     [run("running", 202), command("running"),
      command("succeeded", result=6)], n=9, value=[True, 6],
     args={"key": "k", "max_wait_ms": 1500}, waits=[1, 1, 1])
case("LBB-87: max_wait_ms 0: asked once", "run", [run("running", 202)], n=1,
     args={"max_wait_ms": 0}, raises="SandboxWaitError",
     wait=["sbx_1", "cmd_1"])
case("LBB-87: a 503 while polling is tried again", "run",
     [run("running", 202), error(503), DROP, command("succeeded", result=6)],
     n=4, value=[True, 6], waits=[.1, .2])
case("LBB-121: a run on a held sandbox is polled, too", "run_held",
     [command("queued", 202), command("succeeded")], n=2, waits=[],
     value="succeeded")
case("LBB-121: and given up", "run_held",
     [command("queued", 202)] + [command("running")] * 9, n=3,
     args={"max_wait_ms": 2000}, raises="SandboxWaitError",
     wait=["sbx_1", "cmd_1"])
for bad in (-1, 1.5, "9"):
    case(f"LBB-88: max_wait_ms {bad!r} is refused before any request", "run",
         [DONE], args={"max_wait_ms": bad}, n=0, raises="invalid",
         says="milliseconds")

# ---- sandboxes that move, scopes: LBB-61, 65, 66, 213 ------------------------
case("LBB-61: create returns when it runs", "create",
     [sandbox("starting", 201), sandbox("starting"), sandbox("running")],
     n=3, asks=[SBX, GET_SBX, GET_SBX], value="running", waits=[.1, .2])
case("LBB-61: with wait_ms 0 at once", "create", [sandbox("starting", 201)],
     n=1, args={"wait_ms": 0}, value="starting", bodies_have=['"wait_ms":0'])
case("LBB-61: one that never runs is told with its id", "create",
     [sandbox("starting", 201)] + [sandbox("starting")] * 9, n=3,
     args={"max_wait_ms": 300}, raises="SandboxWaitError",
     wait=["sbx_1", None])
case("LBB-65: stop returns when it is stopped", "stop",
     [sandbox("stopping"), sandbox("stopped")], n=2, value="stopped")
case("LBB-66: resume returns when it runs", "resume",
     [sandbox("starting"), sandbox("running")], n=2, value="running")
case("LBB-213: a scope destroys", "scoped",
     [sandbox("running", 201), sandbox("destroying")], n=2,
     asks=[SBX, "DELETE /v1/sandboxes"], value="running")
case("LBB-213: also after an error, which is told", "scoped",
     [sandbox("running", 201), sandbox("destroying")], n=2,
     args={"raise": True}, asks=[SBX, "DELETE /v1/sandboxes"],
     raises="Mine")
case("LBB-213: the first of two errors is told", "scoped",
     [sandbox("running", 201), error(404)], n=2, args={"raise": True},
     raises="Mine")
case("LBB-213: an error of the end alone is told", "scoped",
     [sandbox("running", 201), error(404)], n=2,
     **refused("some_code", 404))
case("LBB-213: one that never runs is destroyed, too", "scoped",
     [sandbox("starting", 201), sandbox("starting"), sandbox("destroyed")],
     n=3, args={"max_wait_ms": 100}, raises="SandboxWaitError",
     asks=[SBX, GET_SBX, "DELETE /v1/sandboxes"])
case("LBB-210: handle makes no request", "handle", [], n=0, value="sbx_1")
case("LBB-210: a handle is of its record's graph", "handle_graph",
     [sandbox("running")], n=1, query="graph=other&sandbox=sbx_1",
     value="running")

# ---- names and user JSON: LBB-14, 238 -----------------------------------------
USER = {"someKey": {"other_key": None, "aB": [1, {"c_d": 1.5}]}, "x_y": "é"}
case("LBB-238: user JSON goes as it is, both ways", "user_json",
     [answer(200, {"object": "run", "status": "succeeded", "ok": True,
                   "command": "cmd_1", "sandbox": "sbx_1", "result": USER,
                   "exit_code": 0})], args={"json": USER}, n=1, value=USER,
     json_body={"run": {"code": "x", "input": USER, "config": USER,
                        "env": {"aB_c": "1"}, "limits": {"memory_mib": 512},
                        "timeout_ms": 5}, "wait_ms": 30000})
case("LBB-238: a null on purpose is sent", "update",
     [sandbox("running")], n=1, args={"reset": True},
     json_body={"name": None, "idle_seconds": 60}, value="running")
case("LBB-103: a template's fields by their names on the wire", "template",
     [answer(201, {"object": "template", "id": "sbt_1", "name": "n",
                   "version": 1, "timeout_ms": 5, "files": [
                       {"path": "in/a", "sha256": "ab", "id": "fil_1",
                        "bytes": 3}]})], n=1, value=["sbt_1", 5],
     json_body={"name": "n", "base": "lbb/shell", "code": "x",
                "limits": {"memory_mib": 2048}, "timeout_ms": 5,
                "config": {"aB": 1},
                "files": [{"path": "in/a", "sha256": "ab"}]})
case("LBB-257: deleting a File repeats its hash", "file_delete",
     [answer(200, {"deleted": True, "sha256": "ab"})], n=1, value=True,
     query="graph=main&sha256=ab&confirm=ab")
case("LBB-154: an import has a hash and no body", "import", [answer(200, {
    "object": "file", "path": "x", "size": 1, "sha256": "ab"})], n=1,
    query="graph=main&sandbox=sbx_1&path=x&source_sha256=ab", value=1,
    bodies=[""], prefix="sandbox.import")
HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
BYTES = {"Content_Type": "application/octet-stream"}
case("LBB-256: a download appears whole, after a cut one", "download",
     [CUT, answer(200, "hello", **BYTES)], n=2,
     args={"sha256": HELLO}, value=["hello", 1], waits=[.1])
case("LBB-256: one that is not what its hash says does not appear",
     "download", [answer(200, "hullo", **BYTES)], n=1,
     args={"sha256": HELLO}, raises="invalid", says="SHA-256", left=0)
case("LBB-256: a part of a File", "content",
     [answer(206, "ell", **BYTES)], n=1, args={"sha256": HELLO,
                                               "range": [1, 3]},
     sent={"range": "bytes=1-3"}, value="ell")
