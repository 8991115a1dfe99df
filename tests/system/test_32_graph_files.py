#!/usr/bin/env python3
"""Files of a graph over HTTP and by the command line: there and back through
workspaces, at the edges, against hostile callers and guests, and when the
daemon dies at any step.

test: timeout=1200 beside=yes seconds=200
"""
import hashlib
import http.client
import json
import os
import signal
import socket
import threading
import time

from held import (SHELL, WAIT_S, command, create, destroyed, ended, hold, sh,
                  start, stopped)
from hutchlib import (Daemon, STATE, case, equal, hutch, main, new_key, note,
                      wait_until)

MIB = 1 << 20
FILES = "/v1/files"
RECORD = FILES + "/record"
CONTENT = FILES + "/content"
WORKSPACE = "/v1/sandboxes/files/content"

d = Daemon(STATE + "-graph-files", pool_shell=1, pool_max=1, graph_places=8,
           environment_places=12, file_max_mib=48)
shared = {}


def client(**more):
    if not d.is_alive():
        d.start()
    return d.client(**more)


def box():
    """The one that cases share, and a client of its environment."""
    if not shared or not d.is_alive():
        c = client()
        shared.update(c=c, box=hold(c))
    return shared["c"], shared["box"]


def sha(data):
    return hashlib.sha256(data).hexdigest()


def upload(c, data, name=None, type="application/octet-stream", **query):
    return c.call("POST", FILES, data, query=dict(query, name=name),
                  headers={"Content-Type": type} if type else {})


def uploaded(c, data, name=None, **more):
    r = upload(c, data, name, **more)
    assert r.status in (200, 201), r
    return r.json["file"]


def content(c, hash, method="GET", query=None, **headers):
    return c.call(method, CONTENT, query=dict(query or {}, sha256=hash),
                  headers={k.replace("_", "-"): v for k, v in headers.items()})


def record(c, hash, **query):
    return c.call("GET", RECORD, query=dict(query, sha256=hash))


def listed(c, **query):
    r = c.call("GET", FILES, query=query)
    equal(r.status, 200, r)
    return r.json


def remove(c, hash, **query):
    return c.call("DELETE", FILES, query={"sha256": hash, "confirm": hash,
                                          **query})


def keep(c, sandbox, path, key=None, **query):
    return c.call("POST", FILES, key=key or new_key(),
                  query=dict(query, source_sandbox=sandbox, source_path=path))


def import_(c, sandbox, path, hash, key=None, **query):
    return c.call("PUT", WORKSPACE, key=key or new_key(), query=dict(
        query, sandbox=sandbox, path=path, source_sha256=hash))


def settled(call):
    """Of a keep or an import: also one that takes longer than a call."""
    def fn():
        r = call()
        return r.status != 503 and r
    return wait_until(fn, 400, "it is done")


def write(c, sandbox, path, data):
    r = c.call("PUT", WORKSPACE, data, query=dict(sandbox=sandbox, path=path),
               headers={"Content-Type": "application/octet-stream"})
    equal(r.status, 200, r)
    return r.json


def read(c, sandbox, path):
    return c.call("GET", WORKSPACE, query=dict(sandbox=sandbox, path=path))


def said(c, sandbox, script, **more):
    j = sh(c, sandbox, script, **more)
    equal(j["status"], "succeeded", j)
    return j["stdout"]["tail"]


def refused(r, status, code, param=None):
    equal((r.status, r.code, r.param), (status, code, param), r)


def blobs():
    return sorted(os.listdir(d.state + "/files"))


# ---- uploads ---------------------------------------------------------------

@case("LBB-158, LBB-159: upload, record, content, list, delete; the same bytes")
def there_and_back():
    c = client(environment="there")
    data = os.urandom(300000)
    h = sha(data)
    r = upload(c, data, "data.bin", type="text/csv; charset=utf-8")
    equal((r.status, r.json["created"]), (201, True), r)
    f = r.json["file"]
    equal({k: f[k] for k in ("sha256", "name", "content_type", "bytes",
                             "document")},
          {"sha256": h, "name": "data.bin", "bytes": len(data),
           "content_type": "text/csv; charset=utf-8",
           "document": "urn:sha256:" + h})
    assert f["id"].startswith("fil_") and "origin" not in f, f
    assert f["uploaded_at"].endswith("Z"), f
    # Again, as a client does that lost the answer; and by another name.
    r = upload(c, data, "data.bin", type="text/csv; charset=utf-8")
    equal((r.status, r.json), (200, {"created": False, "file": f}))
    r = upload(c, data, "other.bin", type=None)
    equal((r.json["created"], r.json["file"]["name"], r.json["file"]["id"]),
          (False, "other.bin", f["id"]))
    equal(record(c, h).json["name"], "other.bin")
    r = content(c, h)
    equal((r.status, r.headers["Content-Length"], r.headers["ETag"]),
          (200, str(len(data)), f'"{h}"'))
    equal(r.body == data, True)
    r = content(c, h, "HEAD")
    equal((r.status, r.headers["Content-Length"], r.body),
          (200, str(len(data)), b""))
    equal(os.stat(f"{d.state}/files/{h}").st_mode & 0o7777, 0o600)
    # Without a body, a name, a type.
    s = raw(c, f"POST {FILES} HTTP/1.1\r\nConnection: close")
    assert s.recv(65536).startswith(b"HTTP/1.1 201"), "no body"
    s.close()
    f = record(c, sha(b"")).json
    equal((f["bytes"], f["name"], f["content_type"]),
          (0, sha(b""), "application/octet-stream"))
    equal(content(c, sha(b"")).body, b"")
    # Another graph, and another environment, have nothing of it.
    for query in ({"graph": "other"}, {}):
        who = c if query else client(environment="elsewhere")
        refused(record(who, h, **query), 404, "file_not_found", "sha256")
        refused(content(who, h, query=query), 404, "file_not_found", "sha256")
        refused(remove(who, h, **query), 404, "file_not_found", "sha256")
        equal(listed(who, **query), {"files": []})
    equal(d.get("/version").json["capabilities"].count("files"), 1)
    # The hash, once more (LBB-257).
    for query in ({}, {"confirm": "0" * 64}):
        refused(c.call("DELETE", FILES, query=dict(query, sha256=h)), 400,
                "invalid_request", "confirm")
    equal(remove(c, h).json, {"deleted": True, "sha256": h})
    refused(remove(c, h), 404, "file_not_found", "sha256")
    refused(record(c, h), 404, "file_not_found", "sha256")
    assert h not in blobs()


@case("LBB-158: pages, newest first; by name; also when some are deleted")
def pages():
    c = client(environment="pages")
    hashes = [uploaded(c, b"%d" % i, f"n{i % 3}")["sha256"] for i in range(7)]
    got, after = [], None
    while True:
        j = listed(c, limit=3, after=after)
        got += [f["sha256"] for f in j["files"]]
        if len(got) == 3:
            equal(remove(c, got[-1]).status, 200)
        after = j.get("next")
        if not after:
            break
    equal(got, hashes[::-1])
    equal([f["sha256"] for f in listed(c, name="n0")["files"]],
          [hashes[6], hashes[3], hashes[0]])
    equal(listed(c, name="n"), {"files": []})
    for query, param in (({"limit": 0}, "limit"), ({"limit": 1001}, "limit"),
                         ({"after": "x"}, "after"), ({"after": ""}, "after"),
                         ({"after": "-1"}, "after"), ({"x": 1}, "x")):
        refused(c.call("GET", FILES, query=query), 400, "invalid_request",
                param)


@case("LBB-158, LBB-251, K: hashes, names, types and ranges that are none")
def hostile_words():
    c = client(environment="words")
    data = b"0123456789"
    h = uploaded(c, data, "x")["sha256"]
    for bad in ("", "0", h[:-1], h + "0", h.upper(), "g" * 64, "../" + h,
                "%00" + h, h + "\n"):
        for r in (record(c, bad), content(c, bad), remove(c, bad)):
            refused(r, 400, "invalid_request", "sha256")
    refused(c.call("GET", RECORD), 400, "invalid_request", "sha256")
    refused(record(c, "a\0b"), 400, "invalid_request", "sha256")
    for name in ("r\u00e9sum\u00e9.csv", "\u6587\u4ef6", "\u202etxt.exe", "a/b",
                 "..", "%41?&=#", "n" * 1024, "\U0001f600" * 256):
        equal(uploaded(c, name.encode(), name)["name"], name)
        equal(listed(c, name=name)["files"][0]["name"], name)
    for name in ("", "n" * 1025, "n" * 4096, "a\nb", "a\rSet-Cookie: x",
                 "\x7f", "a\x1bb"):
        refused(upload(c, b"x", name), 400, "invalid_request", "name")
    equal(upload(c, b"x", "a\0b").status, 400)
    for type in ("text", "text/", "/x", "a b/c", "text/html,x",
                 "a/" + "b" * 300):
        refused(upload(c, b"x", "x", type), 400, "invalid_request",
                "Content-Type")
    # A header of ours is what was stored, and one line.
    odd = 'text/html; a="\\r\\nSet-Cookie: b=c"'
    r = content(c, uploaded(c, b"<b>", "x", type=odd)["sha256"])
    equal((r.headers["Content-Type"], r.headers["Set-Cookie"],
           r.headers["X-Content-Type-Options"]), (odd, None, "nosniff"))
    for text, status, part in (
            ("bytes=0-3", 206, data[:4]), ("bytes=7-", 206, data[7:]),
            ("bytes=-2", 206, data[-2:]), ("bytes=2-99", 206, data[2:]),
            ("bytes=10-", 416, None), ("bytes=-0", 416, None),
            ("bytes=" + ",".join(["0-"] * 500), 200, data),
            ("bytes=3-2", 200, data), ("lines=1-2", 200, data)):
        r = content(c, h, Range=text)
        equal(r.status, status, text)
        if part is not None:
            equal(r.body, part, text)
        else:
            equal((r.code, r.headers["Content-Range"]),
                  ("range_not_satisfiable", "bytes */10"))
    r = content(c, h, Range="bytes=4-5", If_Range=f'"{h}"')
    equal((r.status, r.body, r.headers["Content-Range"]),
          (206, b"45", "bytes 4-5/10"))
    equal(content(c, h, Range="bytes=4-5", If_Range='"x"').status, 200)


@case("LBB-159, LBB-160: too large, told before it is sent and found out on the way")
def large():
    c = client(environment="large")
    before = blobs()
    r = upload(c, b"x" * (48 * MIB + 1))
    refused(r, 413, "file_too_large")
    assert "file_max_mib" in r.json["error"]["message"], r

    def chunks():
        for _ in range(49):
            yield b"y" * MIB

    h = http.client.HTTPConnection(d.host, d.port, timeout=60)
    try:
        h.request("POST", FILES + "?graph=main", chunks(),
                  {"Authorization": f"Bearer {c.key}"}, encode_chunked=True)
        equal(h.getresponse().status, 413)
    except (BrokenPipeError, ConnectionResetError):
        note("the connection was ended in the middle")
    finally:
        h.close()
    equal(blobs(), before)
    # As large as may be, faster than the disk is: it never fills the memory.
    rss = d.rss_kib()
    data = os.urandom(MIB) * 48
    began = time.monotonic()
    h = uploaded(c, data)["sha256"]
    note(f"48 MiB in {time.monotonic() - began:.2f} s, memory "
         f"{rss >> 10} -> {d.rss_kib() >> 10} MiB")
    assert d.rss_kib() < rss + (16 << 10), (rss, d.rss_kib())
    equal(h, sha(data))
    equal(content(c, h).body == data, True)
    assert d.rss_kib() < rss + (16 << 10), (rss, d.rss_kib())
    equal(remove(c, h).status, 200)


@case("LBB-160: all Files have a limit, and the disk a reserve; hutch df")
def limits():
    one = Daemon(STATE + "-limits", pool_max=0, files_max_mib=2)
    try:
        one.start()
        c = one.client()
        h = uploaded(c, b"a" * (MIB + MIB // 2))["sha256"]
        r = upload(c, b"b" * MIB)
        refused(r, 429, "sandbox_limit_reached")
        assert "files_max_mib" in r.json["error"]["message"], r
        assert r.headers["Retry-After"], r
        # The same bytes of another graph take nothing more.
        uploaded(c, b"c" * (MIB // 4))
        kinds = {k["kind"]: k
                 for k in one.admin("GET", "/admin/df").json["kinds"]}
        equal((kinds["files"]["count"], kinds["files"]["limit_bytes"]),
              (2, 2 * MIB))
        assert kinds["files"]["bytes"] >= MIB, kinds
        equal(one.metric("hutch_graph_files"), 2)
        equal(one.metric("hutch_graph_files_bytes"), MIB + MIB // 2 + MIB // 4)
        equal(remove(c, h).status, 200)
        uploaded(c, b"b" * MIB)
        one.stop()
        one.settings.update(disk_reserve_mib=1 << 29)
        one.start()
        r = upload(one.client(), b"x")
        refused(r, 503, "sandbox_capacity")
        assert "disk_reserve_mib" in r.json["error"]["message"], r
    finally:
        one.stop()


def raw(c, head, body=b""):
    """A request as it is; the socket."""
    s = socket.create_connection((d.host, d.port), timeout=60)
    s.sendall(f"{head}\r\nHost: localhost\r\n"
              f"Authorization: Bearer {c.key}\r\n\r\n".encode() + body)
    return s


def open_files():
    """Of uploads under way: files without a name."""
    at, found = f"/proc/{d.pid}/fd", 0
    for fd in os.listdir(at):
        try:
            found += "/files/#" in os.readlink(f"{at}/{fd}")
        except FileNotFoundError:
            pass
    return found


@case("K3: clients that go away in the middle leave nothing, 32 at once come through")
def many():
    c = client(environment="many")
    before = blobs()
    for n in (0, 1, 100000, 4 * MIB):
        raw(c, f"POST {FILES}?name=cut HTTP/1.1\r\nContent-Length: {5 * MIB}",
            b"x" * n).close()
    raw(c, f"POST {FILES} HTTP/1.1\r\nTransfer-Encoding: chunked",
        b"5\r\nhello\r\n").close()
    wait_until(lambda: open_files() <= 2, 30, "uploads are given up")
    slow = [raw(c, f"POST {FILES}?name=slow HTTP/1.1\r\nContent-Length: 6",
                b"abc") for _ in range(8)]
    got, data = [], [os.urandom(700000) for _ in range(32)]

    def one(i):
        got.append((i, upload(c, data[i], f"f{i}")))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(32)]
    for t in threads:
        t.start()
    # Nobody waits for those that are slow.
    equal(d.get("/healthz").status, 200)
    for t in threads:
        t.join(60)
    equal(sorted(i for i, _ in got), list(range(32)))
    for i, r in got:
        equal((r.status, r.json["file"]["sha256"]), (201, sha(data[i])), r)
    for s in slow:
        s.sendall(b"def")
        answer = s.recv(65536)
        assert answer.startswith(b"HTTP/1.1 20"), answer
        s.close()
    equal(listed(c, name="slow")["files"][0]["sha256"], sha(b"abcdef"))
    equal(listed(c, name="cut"), {"files": []})
    for f in listed(c)["files"]:
        equal(remove(c, f["sha256"]).status, 200)
    equal(blobs(), before)
    # The same bytes at once, by all, and deleted meanwhile.
    wrong = []

    def again(i):
        for _ in range(5):
            r = upload(c, data[0], f"f{i}")
            if r.status not in (200, 201):
                wrong.append(r)
            if i % 4 == 0:
                remove(c, sha(data[0]))

    threads = [threading.Thread(target=again, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    equal(wrong, [])
    r = record(c, sha(data[0]))
    equal(r.status == 200, sha(data[0]) in blobs(), "the record and the bytes")
    if r.status == 200:
        equal(content(c, sha(data[0])).body == data[0], True)
        equal(remove(c, sha(data[0])).status, 200)


# ---- workspaces ------------------------------------------------------------

@case("LBB-157, LBB-154, LBB-20 to LBB-24: the mission's two routes; their keys")
def two_routes():
    c, b = box()
    data = b"# report\n" + os.urandom(1000)
    write(c, b, "out/report.md", data)
    key = new_key()
    r = keep(c, b, "out/report.md", key)
    equal((r.status, r.json["created"]), (201, True), r)
    f = r.json["file"]
    equal((f["sha256"], f["name"], f["bytes"], f["origin"]),
          (sha(data), "report.md", len(data),
           {"sandbox": b, "path": "out/report.md"}))
    equal(record(c, f["sha256"]).json, f)
    # The key finds it, whatever the file is by now.
    write(c, b, "out/report.md", b"another")
    r = keep(c, b, "out/report.md", key)
    equal((r.status, r.json), (200, {"created": False, "file": f}), r)
    refused(keep(c, b, "out/other.md", key), 409, "idempotency_conflict",
            "Idempotency-Key")
    key = new_key()
    r = import_(c, b, "data/units.csv", f["sha256"], key)
    equal((r.status, r.json),
          (200, {"object": "file", "path": "data/units.csv",
                 "size": len(data), "sha256": f["sha256"]}), r)
    equal(said(c, b, "sha256sum < data/units.csv; stat -c '%U %a' data "
               "data/units.csv; echo more >> data/units.csv"),
          f"{sha(data)}  -\nsandbox 755\nsandbox 644\n")
    r = import_(c, b, "data/units.csv", f["sha256"], key)
    equal((r.status, r.json["size"]), (200, len(data)), r)
    assert read(c, b, "data/units.csv").body.endswith(b"more\n")
    refused(import_(c, b, "x", f["sha256"], key), 409, "idempotency_conflict",
            "Idempotency-Key")
    equal(import_(c, b, "data/units.csv", f["sha256"]).status, 200)
    equal(read(c, b, "data/units.csv").body == data, True)
    # In the place of a link, not through it.
    said(c, b, "ln -sf /etc/hostname link")
    equal(import_(c, b, "link", f["sha256"]).status, 200)
    equal(said(c, b, "test -L link || wc -c < link"), f"{len(data)}\n")
    # Keeps of the same bytes name the last one that they came from.
    r = keep(c, b, "link", name="again")
    equal((r.status, r.json["file"]["name"], r.json["file"]["origin"]["path"],
           r.json["file"]["id"]), (200, "again", "link", f["id"]), r)
    equal(remove(c, f["sha256"]).status, 200)
    refused(import_(c, b, "x", f["sha256"]), 404, "file_not_found",
            "source_sha256")


@case("LBB-157: a File outlives its sandbox, and begins others (LBB-71)")
def outlives():
    c = client(environment="outlives")
    b = hold(c)
    data = os.urandom(5000)
    write(c, b, "a", data)
    f = keep(c, b, "a").json["file"]
    destroyed(c, b)
    equal(content(c, f["sha256"]).body == data, True)
    d.stop()
    shared.clear()
    c = client(environment="outlives")
    equal(record(c, f["sha256"]).json, f)
    other = uploaded(c, b"print\n")
    key, body = new_key(), {"files": [
        {"sha256": f["sha256"], "path": "in/deep/a"},
        {"id": other["id"], "path": "/workspace/b"}]}
    r = create(c, key, wait_ms=30000, **body)
    equal((r.status, r.json["status"]), (201, "running"), r)
    b = r.json["id"]
    equal(said(c, b, "sha256sum < in/deep/a; cat b; stat -c %U in/deep/a"),
          f"{f['sha256']}  -\nprint\nsandbox\n")
    # The same key, when a File is gone, too.
    equal(remove(c, other["sha256"]).status, 200)
    equal(create(c, key, wait_ms=1000, **body).json["id"], b)
    r = create(c, wait_ms=1000, **body)
    refused(r, 404, "file_not_found", "files[1].id")
    destroyed(c, b)
    # One call: they are there before the code runs; by the pool or without.
    for _ in range(2):
        run = c.run("[[ $(cat in/x | wc -c) == 5000 ]] && ls in | jq -R .",
                    template=SHELL,
                    files=[{"sha256": f["sha256"], "path": "in/x"}])
        equal((run.status, run.result), ("succeeded", "x"), run)


@case("LBB-71: Files at a start that are none; one that cannot be written")
def starts():
    c = client(environment="starts")
    f = uploaded(c, b"x" * 100)
    for bad, param in (
            ("x", "files"), ([{}], "files[0]"),
            ([{"path": "a"}], "files[0]"),
            ([{"sha256": f["sha256"]}], "files[0]"),
            ([{"sha256": f["sha256"], "id": f["id"], "path": "a"}],
             "files[0]"),
            ([{"sha256": "x", "path": "a"}], "files[0].sha256"),
            ([{"id": "x", "path": "a"}], "files[0].id"),
            ([{"id": f["id"], "path": "a", "x": 1}], "files[0].x"),
            ([{"id": f["id"], "path": "a"}] * 2, "files[1]"),
            ([{"id": f["id"], "path": f"p{i}"} for i in range(65)], "files")):
        refused(create(c, files=bad), 400, "invalid_request", param)
        r = c.start("echo 1", template=SHELL, files=bad)
        refused(r, 400, "invalid_request", "run." + param)
    r = create(c, files=[{"id": f["id"], "path": "../a"}])
    refused(r, 400, "sandbox_path_invalid", "files[0].path")
    r = c.start("echo 1", template=SHELL,
                files=[{"sha256": "0" * 64, "path": "a"}])
    refused(r, 404, "file_not_found", "run.files[0].sha256")
    # A file is in the way of the second one's folder.
    r = create(c, wait_ms=30000, files=[{"id": f["id"], "path": "a"},
                                        {"id": f["id"], "path": "a/b"}])
    equal((r.status, r.json["status"]), (201, "failed"), r)
    assert "files[1]" in json.dumps(r.json), r
    run = c.run("echo 1", template=SHELL,
                files=[{"id": f["id"], "path": "a"},
                       {"id": f["id"], "path": "a/b"}])
    equal((run.status, run.ok), ("failed", False), run)
    # Many, and those of a sandbox from a snapshot.
    b = hold(c, files=[{"id": f["id"], "path": f"many/{i}"}
                       for i in range(64)])
    equal(said(c, b, "cat many/* | wc -c"), "6400\n")
    r = c.call("POST", "/v1/sandboxes/snapshots", {}, new_key(),
               {"sandbox": b})
    equal(r.status, 201, r)
    other = c.call("POST", "/v1/sandboxes", {
        "snapshot": r.json["id"], "wait_ms": 30000,
        "files": [{"id": f["id"], "path": "many/new"}]}, new_key())
    equal((other.status, other.json["status"]), (201, "running"), other)
    equal(said(c, other.json["id"], "cat many/* | wc -c"), "6500\n")
    destroyed(c, b)
    destroyed(c, other.json["id"])


def saved(c, key=None, **more):
    return c.call("POST", "/v1/sandboxes/templates",
                  dict(name="with-files", base=SHELL, **more),
                  key or new_key())


def asked(c, wait_ms=0, **run):
    """POST a run that may be without code; the reply, whatever it is."""
    return c.call("POST", "/v1/sandboxes", {"run": run, "wait_ms": wait_ms},
                  new_key())


def ran(c, **run):
    r = asked(c, 30000, **run)
    assert r.status in (200, 202), r
    return c.wait(r.json["command"])


@case("LBB-71, LBB-103, LBB-106: Files of a saved template are there first")
def template_files():
    c = client(environment="templates")
    f, g = uploaded(c, b"one\n", "data.txt"), uploaded(c, b"two two\n")
    files = [{"path": "/workspace/in//a", "sha256": f["sha256"]},
             {"path": "caf\u00e9", "id": g["id"]}]
    code, key = "cat in/a caf\u00e9 | jq -Rs .", new_key()
    r = saved(c, key, code=code, files=files)
    equal(r.status, 201, r)
    want = [{"path": "in/a", "sha256": f["sha256"], "id": f["id"],
             "bytes": 4},
            {"path": "caf\u00e9", "sha256": g["sha256"], "id": g["id"],
             "bytes": 8}]
    equal(r.json["files"], want)
    t = r.json
    got = c.call("GET", "/v1/sandboxes/templates", query={"limit": 1})
    equal(got.json["data"][0]["files"], want)
    # A version has its bytes, whatever has that name later; so has its key.
    uploaded(c, b"changed\n", "data.txt")
    equal(saved(c, key, code=code, files=files).json, t)
    d.stop()
    shared.clear()
    c = client(environment="templates")
    equal(saved(c, key, code=code, files=files).json, t)
    refused(saved(c, key, code=code), 409, "idempotency_conflict",
            "Idempotency-Key")
    for which in ("with-files", t["id"]):
        run = ran(c, template=which)
        equal((run.status, run.result), ("succeeded", "one\ntwo two\n"), run)
    # The call's are added, and come first where a path is of both.
    run = ran(c, code="cat in/a new | jq -Rs .", template="with-files", files=[
        {"path": "in/a", "sha256": g["sha256"]},
        {"path": "new", "sha256": f["sha256"]}])
    equal((run.status, run.result), ("succeeded", "two two\none\n"), run)
    many = [{"path": f"p{i}", "sha256": f["sha256"]} for i in range(63)]
    refused(asked(c, template="with-files", files=many), 400,
            "invalid_request", "run.files")
    refused(create(c, template="with-files", files=many), 400,
            "invalid_request", "files")
    b = hold(c, template="with-files", files=many[:62])
    equal(said(c, b, "ls | wc -l; cat p* in/a caf\u00e9 | wc -c"), "64\n260\n")
    # One that is gone refuses a start, until its bytes are there again.
    equal(remove(c, g["sha256"]).status, 200)
    r = create(c, template=t["id"])
    refused(r, 404, "file_not_found", "template")
    assert "files[1] of the template with-files" in json.dumps(r.json), r
    refused(asked(c, template="with-files"), 404, "file_not_found",
            "run.template")
    refused(saved(c, code=code, files=files), 404, "file_not_found",
            "files[1].id")
    run = ran(c, template="with-files", files=[
        {"path": "caf\u00e9", "sha256": f["sha256"]}])
    equal((run.status, run.result), ("succeeded", "one\none\n"), run)
    uploaded(c, b"two two\n")
    # What goes on from a snapshot has its own, and gets none again.
    said(c, b, "echo mine > in/a")
    r = c.call("POST", "/v1/sandboxes/snapshots", {}, new_key(),
               {"sandbox": b})
    equal(r.status, 201, r)
    other = c.call("POST", "/v1/sandboxes", {
        "snapshot": r.json["id"], "wait_ms": 30000}, new_key())
    equal((other.status, other.json["status"]), (201, "running"), other)
    equal(said(c, other.json["id"], "cat in/a"), "mine\n")
    destroyed(c, other.json["id"])
    destroyed(c, b)
    # The next version has none.
    equal(saved(c, code="ls | jq -Rs .").json["files"], [])
    equal(ran(c, template="with-files").result, "")
    equal(ran(c, template=t["id"]).result, "one\ntwo two\n")


@case("I2, I3, LBB-150: links, FIFOs, folders, devices as source; any bytes as path")
def hostile_paths():
    c, b = box()
    write(c, b, "real", b"in\n")
    said(c, b, "ln -s /etc/passwd out; ln -s /workspace/real in; mkfifo fifo; "
         "mkdir -p folder; ln -s loop loop; printf x > $'caf\\xe9'; "
         "mkdir -pm 0 shut; ln -s /proc/self/environ environ")
    for path in ("out", "fifo", "folder", "loop", "shut/x"):
        refused(keep(c, b, path), 400, "sandbox_path_invalid", "source_path")
    for path in ("none", "environ"):
        refused(keep(c, b, path), 404, "sandbox_file_not_found",
                "source_path")
    for path in ("..", "/etc/passwd", "", "/workspace", "n" * 256):
        refused(keep(c, b, path), 400, "sandbox_path_invalid", "source_path")
    r = keep(c, b, "in")
    equal((r.status, r.json["file"]["sha256"]), (201, sha(b"in\n")), r)
    r = c.call("POST", FILES, key=new_key(), query={
        "source_sandbox": b, "source_path_hex": b"caf\xe9".hex()})
    equal((r.status, r.json["file"]["name"], r.json["file"]["origin"]),
          (201, "caf\ufffd", {"sandbox": b, "path": "caf\ufffd",
                              "path_hex": b"caf\xe9".hex()}), r)
    h = r.json["file"]["sha256"]
    refused(c.call("POST", FILES, key=new_key(), query={
        "source_path": "a"}), 400, "invalid_request", "source_sandbox")
    refused(c.call("POST", FILES, key=new_key(), query={
        "source_sandbox": b}), 400, "invalid_request", "source_path")
    refused(c.call("POST", FILES, query={"source_sandbox": b,
                                         "source_path": "real"}),
            400, "missing_idempotency_key", "Idempotency-Key")
    r = c.call("POST", FILES, b"body", key=new_key(), query={
        "source_sandbox": b, "source_path": "real"})
    refused(r, 400, "invalid_request")
    refused(keep(c, b, "real", name="a\nb"), 400, "invalid_request", "name")
    refused(keep(c, "sbx_nothing", "a"), 404, "sandbox_not_found",
            "source_sandbox")
    refused(keep(c, b, "real", graph="other"), 404, "sandbox_not_found",
            "source_sandbox")
    for path in ("fifo", "folder", "shut/x", "..", ""):
        refused(import_(c, b, path, h), 400, "sandbox_path_invalid", "path")
    refused(import_(c, b, "x", "nothash"), 400, "invalid_request",
            "source_sha256")
    r = c.call("PUT", WORKSPACE, b"body", key=new_key(), query={
        "sandbox": b, "path": "x", "source_sha256": h})
    refused(r, 400, "invalid_request", "source_sha256")
    refused(import_(c, b, "x", h, graph="other"), 404, "file_not_found",
            "source_sha256")
    said(c, b, "chmod 700 shut; rm -rf out in fifo folder loop shut environ "
         "real caf*")


@case("LBB-154, LBB-157: more than one call holds, both ways: 11 MiB and an odd byte")
def larger():
    c, b = box()
    data = os.urandom(MIB) * 11 + b"z"
    h = uploaded(c, data)["sha256"]
    began, key = time.monotonic(), new_key()
    r = settled(lambda: import_(c, b, "big", h, key))
    equal((r.status, r.json["size"]), (200, len(data)), r)
    note(f"imported in {time.monotonic() - began:.1f} s")
    equal(said(c, b, "sha256sum < big", timeout_ms=600000), h + "  -\n")
    equal(remove(c, h).status, 200)
    began, key = time.monotonic(), new_key()
    r = settled(lambda: keep(c, b, "big", key))
    equal((r.status, r.json["file"]["sha256"]), (201, h), r)
    note(f"kept in {time.monotonic() - began:.1f} s")
    equal(content(c, h).body == data, True)
    equal(command(c, b, "rm", "big")["status"], "succeeded")
    # A sparse one over the limit is refused by its size.
    equal(command(c, b, "truncate", "-s", "1T", "sparse")["status"],
          "succeeded")
    refused(keep(c, b, "sparse"), 413, "file_too_large")
    equal(command(c, b, "rm", "sparse")["status"], "succeeded")
    equal(remove(c, h).status, 200)


@case("LBB-157: a file that changes while it is kept: as it was at one moment, or not")
def changing():
    c = client(environment="changing")
    b = hold(c, limits={"vcpus": 2})
    data = b"a" * (5 * MIB)
    h = uploaded(c, data)["sha256"]
    key = new_key()
    equal(settled(lambda: import_(c, b, "grows", h, key)).status, 200)
    w = start(c, b, "bash", "-c",
              "while :; do echo more >> grows; done", timeout_ms=600000)
    equal(w.status, 202, w)

    def size():
        return c.call("GET", "/v1/sandboxes/files", query=dict(
            sandbox=b, path="grows")).json["data"][0]["size"]

    wait_until(lambda: size() > len(data), WAIT_S, "it grows")
    key = new_key()
    r = settled(lambda: keep(c, b, "grows", key))
    if r.status == 409:
        refused(r, 409, "sandbox_file_changed", "source_path")
        note("refused, as it never came to rest")
    else:
        # Where the guest is slow its code may stand still for long enough.
        equal(r.status, 201, r)
        got = content(c, r.json["file"]["sha256"]).body
        equal(got == data + b"more\n" * ((len(got) - len(data)) // 5), True)
        note(f"kept at {len(got)} bytes")
    equal(c.cancel(w.json["id"]).json["status"], "cancelled")
    key = new_key()
    r = settled(lambda: keep(c, b, "grows", key))
    assert r.status in (200, 201), r
    equal(r.json["file"]["bytes"], size())
    # Replaced, not written to: one of the two.
    texts = [b"A" * 20000, b"B" * 20000]
    for t in texts:
        write(c, b, "swap", t)
    stop = []

    def swap():
        i = 0
        while not stop:
            write(c, b, "swap", texts[i % 2])
            i += 1

    t = threading.Thread(target=swap)
    t.start()
    try:
        for _ in range(3):
            r = keep(c, b, "swap")
            assert r.status in (200, 201, 409), r
            if r.status != 409:
                assert r.json["file"]["sha256"] in map(sha, texts), r
    finally:
        stop.append(1)
        t.join()
    destroyed(c, b)


@case("LBB-156, LBB-69, LBB-70: stopped, free plan, not enabled")
def states():
    c = client(environment="states")
    b = hold(c)
    h = uploaded(c, b"x" * MIB)["sha256"]
    equal(import_(c, b, "new", h).status, 200)
    equal(keep(c, b, "new").json["file"]["sha256"], h)
    free = d.client(environment="states", plan="free",
                    change_environment=True)
    refused(keep(free, b, "new"), 403, "sandbox_plan_unavailable")
    refused(import_(free, b, "x", h), 403, "sandbox_plan_unavailable")
    equal(content(free, h).status, 200)
    equal(uploaded(free, b"free")["bytes"], 4)
    off = d.client(environment="states", sandboxes_enabled=False,
                   change_environment=True)
    refused(keep(off, b, "new"), 409, "sandbox_not_enabled")
    equal(record(off, h).status, 200)
    d.client(environment="states", plan="full", sandboxes_enabled=True,
             change_environment=True)
    equal(c.call("GET", FILES, headers={"Authorization": ""}).status, 401)
    stopped(c, b)
    refused(keep(c, b, "new"), 409, "sandbox_not_running", "source_sandbox")
    refused(import_(c, b, "x", h), 409, "sandbox_not_running", "sandbox")
    destroyed(c, b)
    refused(keep(c, b, "new"), 409, "sandbox_not_running", "source_sandbox")


FILL = """
import os
def run(input, config):
    n = 0
    os.makedirs("fill", exist_ok=True)
    for size in (64 << 20, 8 << 20, 1 << 20, 65536, 4096):
        try:
            while True:
                fd = os.open(f"fill/{n}", os.O_CREAT | os.O_WRONLY)
                os.posix_fallocate(fd, 0, size)
                os.close(fd)
                n += 1
        except OSError as e:
            os.close(fd)
            why = e.errno
    return why
"""


@case("LBB-160: an import that the sandbox's disk does not take")
def full():
    c = client(environment="full")
    r = create(c, wait_ms=30000, template="lbb/python",
               limits={"disk_mib": 256})
    # Minutes, on a host where the VMs are slow.
    b = wait_until(lambda: c.sandbox(r.json["id"])["status"] == "running" and
                   r.json["id"], 500, "it runs")
    h = uploaded(c, b"x" * MIB)["sha256"]
    r = start(c, b, run={"code": FILL}, wait_ms=30000, timeout_ms=300000)
    j = ended(c, r.json["id"], 300)
    assert j["result"] in (28, 122), j
    refused(import_(c, b, "new", h), 409, "sandbox_disk_full", "path")
    refused(read(c, b, "new"), 404, "sandbox_file_not_found", "path")
    equal(c.call("DELETE", "/v1/sandboxes/files", query=dict(
        sandbox=b, path="fill/0")).status, 200)
    equal(import_(c, b, "new", h).status, 200)
    equal(sha(read(c, b, "new").body), h)
    destroyed(c, b)


@case("Files by the command line: put, list, get, rm, keep, import, --file")
def cli():
    client()
    env = {"HUTCH_STATE": d.state}
    local = os.path.join(d.state, "local.bin")
    data = os.urandom(9 * MIB)
    with open(local, "wb") as f:
        f.write(data)

    def ok(*argv, **more):
        p = hutch(*argv, env=env, **more)
        equal((p.returncode, p.stderr), (0, ""), p)
        return p.stdout

    h = ok("file", "put", local).strip()
    equal(h, sha(data))
    equal(ok("file", "put", "--name", "note", "--type", "text/plain", "-",
             stdin="hello\n").strip(), sha(b"hello\n"))
    ok("file", "put", "-", stdin="")
    equal(ok("file", "get", sha(b"")), "")
    rows = [x.split() for x in ok("file", "list").splitlines()]
    equal([(x[0], x[1]) for x in rows][-2:],
          [(sha(b"hello\n"), "6"), (h, str(len(data)))])
    equal(len(ok("file", "list", "--name", "note").splitlines()), 1)
    back = local + ".back"
    equal(ok("file", "get", h, back), "")
    with open(back, "rb") as f:
        equal(f.read() == data, True)
    p = hutch("file", "get", "0" * 64, back, env=env)
    equal(p.returncode, 66, p)
    equal(os.path.getsize(back), len(data))
    note_hash = sha(b"hello\n")
    b = ok("sandbox", "create", "--template", SHELL, "--file",
           note_hash + ":in/note").strip()
    equal(ok("sandbox", "get", b, "in/note"), "hello\n")
    equal(ok("file", "import", b, note_hash, "copy"), "copy\n")
    ok("sandbox", "put", b, "-", b"out\xff", stdin="kept")
    equal(ok("file", "keep", b, b"out\xff").strip(), sha(b"kept"))
    equal(ok("file", "get", sha(b"kept")), "kept")
    script = os.path.join(d.state, "x.sh")
    with open(script, "w") as f:
        f.write("cat note | wc -c")
    equal(ok("run", "--file", note_hash + ":note", script).strip(), "6")
    ok("template", "save", "noted", script, "--file", note_hash + ":note")
    equal(ok("run", "--template", "noted").strip(), "6")
    shown = ok("template", "show", "noted")
    assert note_hash in shown and "note" in shown, shown
    p = hutch("template", "save", "noted", script, "--file", "note", env=env)
    assert p.returncode == 64 and "HASH:PATH" in p.stderr, p
    p = hutch("template", "save", "noted", script, "--file",
              "0" * 64 + ":note", env=env)
    assert p.returncode == 66 and "--file" in p.stderr, p
    p = hutch("template", "show", "noted", "--file", h + ":x", env=env)
    assert p.returncode == 64, p
    p = hutch("run", "--file", "note", script, env=env)
    assert p.returncode == 64 and "HASH:PATH" in p.stderr, p
    p = hutch("run", "--file", "0" * 64 + ":note", script, env=env)
    assert p.returncode == 66 and "--file" in p.stderr, p
    for x in (h, note_hash, sha(b""), sha(b"kept")):
        equal(ok("file", "rm", x), x + " removed\n")
    p = hutch("file", "rm", h, env=env)
    equal(p.returncode, 66, p)
    p = hutch("file", "keep", b, "none", env=env)
    equal(p.returncode, 66, p)
    ok("sandbox", "rm", b)


# ---- ends ------------------------------------------------------------------

@case("the VM is lost in the middle of a keep and of an import: said so, nothing left")
def lost():
    c = client(environment="lost")
    before = None
    for what in ("keep", "import"):
        b = hold(c)
        h = uploaded(c, os.urandom(MIB) * 20)["sha256"]
        before = blobs()
        got = []
        if what == "keep":
            # With holes: the VM of a slow host writes so much for minutes.
            said(c, b, "truncate -s 20000000 big")
            call = lambda: keep(c, b, "big")
        else:
            call = lambda: import_(c, b, "big", h)
        t = threading.Thread(target=lambda: got.append(call()))
        t.start()
        wait_until(lambda: d.metric("hutch_http_requests_working") > 1, 30,
                   "it is under way")
        time.sleep(.2)
        os.kill(d.vmm_pids()[b], signal.SIGKILL)
        t.join(60)
        if got[0].status < 400:
            note(f"{what}: it was quicker")
        else:
            equal((got[0].status, got[0].code), (409, "sandbox_not_running"),
                  got[0])
            wait_until(lambda: blobs() == before, 10, "nothing is left")
        equal(c.sandbox(b)["status"], "lost")
        for f in listed(c)["files"]:
            equal(remove(c, f["sha256"]).status, 200)


class Step:
    """What is done, and what the records may say after the daemon died."""

    def __init__(self, c, b):
        self.c, self.b, self.data = c, b, os.urandom(3000)
        self.hash, self.key = sha(self.data), new_key()


class Upload(Step):
    def act(self):
        return upload(self.c, self.data, "step")

    def after(self, c):
        return "there" if record(c, self.hash).status == 200 else "none"


class Delete(Step):
    def __init__(self, c, b):
        super().__init__(c, b)
        uploaded(c, self.data)

    def act(self):
        return remove(self.c, self.hash)

    after = Upload.after


class Keep(Step):
    def __init__(self, c, b):
        super().__init__(c, b)
        write(c, b, "step", self.data)

    def act(self):
        return keep(self.c, self.b, "step", self.key)

    def after(self, c):
        r = keep(c, self.b, "step", self.key)
        # By its key, though the sandbox is lost; or it was never done.
        equal(r.status, 200 if record(c, self.hash).status == 200 else 409, r)
        return "there" if r.status == 200 else "none"


class Import(Step):
    def __init__(self, c, b):
        super().__init__(c, b)
        uploaded(c, self.data)

    def act(self):
        return import_(self.c, self.b, "step", self.hash, self.key)

    def after(self, c):
        r = import_(c, self.b, "step", self.hash, self.key)
        equal(record(c, self.hash).status, 200)
        assert r.status in (200, 409), r
        return "there" if r.status == 200 else "none"


class Fill(Step):
    def __init__(self, c, b):
        super().__init__(c, b)
        uploaded(c, self.data)

    def act(self):
        return create(self.c, self.key, wait_ms=30000,
                      files=[{"sha256": self.hash, "path": "a"}])

    def after(self, c):
        r = create(c, self.key, wait_ms=30000,
                   files=[{"sha256": self.hash, "path": "a"}])
        equal(r.status, 201, r)
        return r.json["status"]


ROWS = (
    (Upload, "file.sealed", "none"),
    (Upload, "file.linked", "none"),
    (Upload, "file.named", "none"),
    (Upload, "file.write", "none"),
    (Upload, "file.written", "there"),
    (Keep, "file.linked", "none"),
    (Keep, "file.written", "there"),
    (Delete, "file.deleted", "none"),
    (Delete, "file.removed", "none"),
    (Import, "import.done", "none"),
    (Import, "import.written", "there"),
    (Fill, "fill.done", "lost"),
)


def steps_of(name):
    """The daemon dies there; the next one has all of it or nothing."""
    one = Daemon(STATE + "-steps", pool_max=0)
    try:
        for kind, step, want in [r for r in ROWS if r[0].__name__ == name]:
            one.launch(die_at=step)
            one.await_http()
            c = one.client()
            s = kind(c, hold(c) if kind in (Keep, Import) else None)
            try:
                r = s.act()
                raise AssertionError(f"{step}: it was answered: {r}")
            except (OSError, http.client.HTTPException):
                pass
            equal(one.process.wait(30), -signal.SIGKILL, step)
            one.start()
            c = one.client()
            equal(s.after(c), want, step)
            have = {f["sha256"] for f in listed(c)["files"]}
            equal(set(os.listdir(one.state + "/files")), have, step)
            for h in have:
                equal(content(c, h).body == s.data, True)
                equal(remove(c, h).status, 200)
            equal(os.listdir(one.state + "/files"), [], step)
            one.stop()
            note(f"{step}: {want}")
    finally:
        one.stop()


@case("L, M2: hutchd dies at each step of an upload: all of it, or nothing")
def upload_steps():
    steps_of("Upload")


@case("L, M2: hutchd dies at each step of a delete")
def delete_steps():
    steps_of("Delete")


@case("L, M2, LBB-25: hutchd dies at the steps of a keep; its key says which")
def keep_steps():
    steps_of("Keep")


@case("L, M2, LBB-25: hutchd dies at the steps of an import; its key says which")
def import_steps():
    steps_of("Import")


@case("M2: hutchd dies when the Files of a new sandbox are there")
def fill_steps():
    steps_of("Fill")


if __name__ == "__main__":
    main()
