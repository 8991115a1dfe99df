#!/usr/bin/env python3
"""The HTTP example of the guide, word for word, and its records.

test: timeout=900 beside=yes
"""
import http.client
import json
import re

from hutchlib import (Client, call, case, client, daemon, equal, main,
                      read_fixture, wait_until)

ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
answer = {}


def send_example(c):
    """The fixture as it stands, plus the key that every client adds."""
    head, _, body = read_fixture("mission.http").partition("\n\n")
    first, *lines = head.splitlines()
    method, path = first.split(" ")
    headers = dict(line.split(": ", 1) for line in lines)
    headers["Authorization"] = f"Bearer {c.key}"
    con = http.client.HTTPConnection(c.daemon.host, c.daemon.port,
                                     timeout=120)
    return call(con, method, path, body.rstrip("\n").encode(), headers)


@case("LBB-60 LBB-85: the example answers 200, result 6, ok, exit code 0")
def example():
    r = send_example(client())
    if r.status == 202:  # slower than its wait_ms: the same call again
        client().wait(r.json["command"])
        r = send_example(client())
    equal(r.status, 200, "status")
    assert '"result":6' in r.text.replace(" ", ""), r
    j = r.json
    equal((j["result"], j["ok"], j["exit_code"], j["status"]),
          (6, True, 0, "succeeded"))
    answer.update(j)


@case("LBB-40 LBB-122: ids begin with sbx_ and cmd_")
def ids():
    assert re.fullmatch(r"sbx_[0-9a-z]{8,36}", answer["sandbox"]), answer
    assert re.fullmatch(r"cmd_[0-9a-z]{8,36}", answer["command"]), answer


@case("LBB-14 LBB-43 LBB-46 LBB-81 LBB-259: the sandbox ends destroyed and "
      "its record stays")
def destroyed():
    s = wait_until(lambda: (x := client().sandbox(answer["sandbox"]))[
        "status"] == "destroyed" and x, 30, "status destroyed")
    equal(s["kind"], "one_call")
    equal(s["template"], "lbb/python")
    equal(s["limits"], {"vcpus": 1, "memory_mib": 1024, "disk_mib": 4096})
    equal(s["command"], answer["command"])
    for name in ("created_at", "started_at", "ended_at", "expires_at"):
        assert re.fullmatch(ISO, s[name] or ""), (name, s[name])
    assert s["created_at"] <= s["started_at"] <= s["ended_at"], s
    assert re.fullmatch(r"[0-9a-f]{64}", s["image_sha256"]), s
    assert re.fullmatch(r"[0-9a-f]{64}", s["kernel_sha256"]), s


@case("LBB-126: the command's record: times, exit code, hashes, output")
def command():
    c = client().command(answer["command"]).json
    equal((c["status"], c["exit_code"], c["kind"], c["result"]),
          ("succeeded", 0, "run", 6))
    equal(c["sandbox"], answer["sandbox"])
    equal(c["code"]["bytes"], len("def run(input, config):\n"
                                  "    return sum(input)"))
    equal(c["input"]["bytes"], len("[1, 2, 3]"))
    equal((c["stdout"]["bytes"], c["stderr"]["bytes"]), (0, 0))
    equal(c["env_names"], [])
    assert c["created_at"] <= c["started_at"] <= c["ended_at"], c


@case("LBB-12 LBB-62 LBB-133 LBB-258: both are in the lists, newest first, by "
      "pages")
def lists():
    for _ in range(2):
        client().run("def run(input, config): return 1")
    seen, cursor = [], None
    while True:
        r = client().call("GET", "/v1/sandboxes",
                          query=dict(limit=1, cursor=cursor))
        equal(r.status, 200)
        equal(r.json["object"], "list")
        seen += [x["id"] for x in r.json["data"]]
        cursor = r.json["next_cursor"]
        equal(r.json["has_more"], cursor is not None)
        if not cursor:
            break
    equal(len(seen), 3)
    equal(seen[-1], answer["sandbox"], "oldest")
    r = client().call("GET", "/v1/sandboxes/commands",
                      query=dict(sandbox=answer["sandbox"]))
    equal([x["id"] for x in r.json["data"]], [answer["command"]])
    r = client().call("GET", "/v1/sandboxes", query=dict(status="running"))
    equal(r.json["data"], [])


@case("LBB-5 LBB-176: another graph and another environment see 404")
def other_graph():
    c = client()
    for other in (Client(c.daemon, c.key, c.name, c.environment, "other"),
                  daemon().client("elsewhere")):
        r = other.call("GET", "/v1/sandboxes/get",
                       query=dict(sandbox=answer["sandbox"]))
        equal((r.status, r.code), (404, "sandbox_not_found"))
        r = other.call("GET", "/v1/sandboxes/commands/get",
                       query=dict(command=answer["command"]))
        equal((r.status, r.code), (404, "sandbox_command_not_found"))
        equal(other.call("GET", "/v1/sandboxes").json["data"], [])


@case("LBB-4 LBB-63: GET /v1/sandboxes?sandbox= is the same record")
def both_paths():
    r = client().call("GET", "/v1/sandboxes",
                      query=dict(sandbox=answer["sandbox"]))
    equal(r.json["id"], answer["sandbox"])
    r = client().call("GET", "/v1/sandboxes/commands",
                      query=dict(command=answer["command"]))
    equal(r.json["id"], answer["command"])


@case("LBB-7 LBB-8: request id and version headers")
def headers():
    r = client().call("GET", "/v1/sandboxes",
                      headers={"Lbb-Version": "2026-10-21"})
    equal(r.headers["Lbb-Version"], "2026-10-21")
    assert r.headers["X-Request-Id"], r.headers
    r = client().call("GET", "/v1/sandboxes/get", query=dict(sandbox="sbx_x"))
    equal(r.headers["X-Request-Id"], r.json["error"]["request_id"])


@case("LBB-25: everything is the same after a restart of the daemon")
def restart():
    c, d = client(), daemon()
    before = (c.sandbox(answer["sandbox"]),
              c.command(answer["command"]).json)
    d.stop()
    d.start()
    equal((c.sandbox(answer["sandbox"]), c.command(answer["command"]).json),
          before)
    r = send_example(c)
    equal((r.status, r.json["sandbox"]), (200, answer["sandbox"]))
    equal(json.loads(r.body)["command"], answer["command"])


main()
