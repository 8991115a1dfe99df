#!/usr/bin/python3
"""Every row of cases.py, played to the three clients.

test: timeout=900 beside=yes
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import sdklib
from cases import CASES

import ops
from scripted import Server

HERE = os.path.dirname(os.path.abspath(__file__))
NEAR = 1e-6
# LBB-231: a client that reads one of these sends what no row expects, or sends
# it nowhere.
UNREAD = {"LBB_API_KEY": "lbb_sk_test_environment", "LBB_GRAPH": "environment",
          "LBB_ENVIRONMENT": "environment",
          **{name: "http://127.0.0.1:1" for name in (
              "LBB_URL", "LBB_BASE_URL", "HTTP_PROXY", "http_proxy",
              "ALL_PROXY", "all_proxy")}}


class Node:
    """The TypeScript ops, one process for all rows."""

    def __init__(self, folder):
        sdklib.application(folder)
        shutil.copy(f"{HERE}/ops.ts", folder)
        self.process = subprocess.Popen(
            [sdklib.NODE, f"{folder}/ops.ts"], text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def play(self, row, url):
        line = json.dumps(dict(op=row["op"], args=row["args"], url=url,
                               client=row["client"]))
        self.process.stdin.write(line + "\n")
        answer = self.process.stdout.readline()
        if not answer:
            raise AssertionError(f"node ended: {self.process.wait(30)}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)


def same(got, want):
    if isinstance(want, list) and isinstance(got, list):
        return len(got) == len(want) and all(map(same, got, want))
    if isinstance(want, float) and isinstance(got, (int, float)):
        return abs(got - want) < NEAR
    return got == want and isinstance(got, bool) == isinstance(want, bool)


def equal(what, got, want):
    if not same(got, want):
        raise AssertionError(f"{what}: got {got!r}, want {want!r}")


def check_requests(requests, want):
    equal("requests", len(requests), want["n"])
    keys = [h.get("idempotency-key") for _, _, _, h, _ in requests]
    if "keys" in want:
        equal("keys", keys, want["keys"] or [None] * len(keys))
    if "prefix" in want:
        form = re.escape(want["prefix"]) + r":1800000000\d{6}:[0-9a-f]{32}"
        assert keys[0] and re.fullmatch(form, keys[0]), keys
        equal("keys", len(set(keys)), 1)
    if "asks" in want:
        equal("asks", [f"{m} {p}" for m, p, _, _, _ in requests],
              want["asks"])
    for _, _, query, headers, _ in requests:
        if "query" in want:
            equal("query", query, want["query"])
        for name, value in want.get("sent", {}).items():
            equal(name, headers.get(name), value)
        assert headers["user-agent"].startswith("hutch-lbb-"), headers
    bodies = [b for _, _, _, _, b in requests]
    if "bodies" in want:
        equal("bodies", bodies, want["bodies"])
    for part in want.get("bodies_have", ()):
        assert part in bodies[0], bodies[0]
    if "json_body" in want:
        equal("body", json.loads(bodies[0]), want["json_body"])
        equal("compact", bodies[0], json.dumps(
            json.loads(bodies[0]), separators=(",", ":"),
            ensure_ascii=False))


def check_outcome(out, want):
    if "raises" in want:
        equal("raises", out.get("raises", out.get("value")), want["raises"])
    elif "value" in want:
        assert "raises" not in out, out
        equal("value", out["value"], want["value"])
    else:
        assert "raises" not in out, out
    for name in ("code", "status", "param", "request_id", "details", "after",
                 "message", "wait", "left", "waits", "events"):
        if name in want:
            equal(name, out.get(name), want[name])
    if "says" in want:
        said = out["message"].lower().replace("lostretries", "lost_retries")
        assert want["says"].lower() in said, out["message"]
    for name, value in want.get("fields", {}).items():
        equal(name, out["fields"].get(name), value)
    for name in want.get("absent", ()):
        assert name not in out["fields"], out["fields"]


def main():
    only = os.environ.get("HUTCH_CASE", "")
    os.environ.update(UNREAD)
    server, failed, n = Server(), 0, 0
    top = tempfile.mkdtemp(prefix="habits.")
    node = Node(f"{top}/app")
    clients = (("blocking", ops.blocking), ("awaiting", ops.awaiting),
               ("typescript", node.play))
    for row in CASES:
        for client, play in clients:
            name = f"{row['name']} ({client})"
            if only not in name:
                continue
            n += 1
            url, script = server.add(row["answers"])
            try:
                out = play(row, url)
                check_requests(script.requests, row["want"])
                check_outcome(out, row["want"])
                print(f"ok {n} - {name}")
            except Exception as e:
                failed += 1
                print(f"not ok {n} - {name}\n# {type(e).__name__}: {e}")
    print(f"1..{n}", flush=True)
    node.close()
    shutil.rmtree(top)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
