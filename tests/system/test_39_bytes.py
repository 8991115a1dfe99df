#!/usr/bin/env python3
"""Edges of bytes: output, names, sizes, and paths that lead elsewhere.

Which case is where:

| what | where |
|---|---|
| output that is not UTF-8, by byte offset, a character cut | here; test_13 |
| output kept as head and tail, its edges | here; test_13, test_18 |
| names of files in any script, of any bytes; pages of them | test_30 |
| names of snapshots, argv, env in any script and of any bytes | here |
| 4 MiB, one byte more, 1 TiB that is a hole | test_30 |
| 4 MiB by chunks, a body that ends early or is longer than said | here |
| `..`, names over 255, paths over 4,084 bytes, NUL | test_30 |
| NUL, `..`, escapes in each spelling of the query | here |
| links that point out as the last component, FIFO, device | test_30 |
| a link that points out as each component of a path | here |
| a link that is exchanged while it is followed | here |
| hard links; sockets; block and character devices | here |
| /proc/self and other magic links | here |
| a folder for a file and a file for a folder, at each place | here |

test: timeout=900 beside=yes seconds=150
"""
import base64
import http.client
import json
import os
import threading
import time
import urllib.parse

from held import command, destroyed, ended, hold, sh, start
from hutchlib import (Daemon, STATE, case, equal, main, new_key, note,
                      wait_until)

MIB = 1 << 20
FILES = "/v1/sandboxes/files"
CONTENT = FILES + "/content"
ANSWER_S = 30    # what would hang does not answer within this
KEPT = 48 << 10  # bytes of head, and of tail

EXCHANGE = """
import os
def tried(call, *paths):
    try:
        call(*paths)
        return True
    except OSError:
        return False
def run(input, config):
    os.chdir('/workspace')
    for folder, word in (('/tmp/away', 'away'), ('d', 'in')):
        os.mkdir(folder)
        with open(folder + '/f', 'w') as f:
            f.write(word + chr(10))
    turns = made = 0
    while not os.path.exists('stop'):
        turns += tried(os.rename, 'd', 'e') and \\
            tried(os.symlink, '/tmp/away', 'd')
        tried(os.unlink, 'd')
        while not tried(os.rename, 'e', 'd') and os.path.exists('e'):
            made += 1       # a write made a folder of that name meanwhile
            tried(os.rename, 'd', 'made%d' % made)
        if turns == 3:
            open('ready', 'w').close()
    return {'turns': turns, 'away': os.listdir('/tmp/away')}
"""

d = Daemon(STATE + "-bytes", pool_shell=1, pool_max=1, graph_places=5,
           environment_places=10)
shared = {}


def box():
    if not d.is_alive():
        d.start()
        shared.clear()
    if not shared:
        c = d.client()
        shared.update(c=c, box=hold(c, idle_seconds=3600))
    return shared["c"], shared["box"]


def call(c, method, route, sandbox, path=None, data=None, **query):
    return c.call(method, route, data, query=dict(query, sandbox=sandbox,
                                                  path=path),
                  headers={"Content-Type": "application/octet-stream"}
                  if data is not None else None, timeout=ANSWER_S)


def read(c, b, path=None, **query):
    return call(c, "GET", CONTENT, b, path, **query)


def write(c, b, path, data, **query):
    return call(c, "PUT", CONTENT, b, path, data, **query)


def files(c, b, path=None, **query):
    return call(c, "GET", FILES, b, path, **query)


def remove(c, b, path=None, **query):
    return call(c, "DELETE", FILES, b, path, **query)


def refused(r, status, code="sandbox_path_invalid"):
    equal((r.status, r.code), (status, code), r)
    assert r.json["error"]["message"], r


def said(c, b, script):
    j = sh(c, b, script, timeout_ms=600000)
    equal(j["status"], "succeeded", j)
    return c.logs(j["id"]).decode(errors="surrogateescape")


# ---- output -----------------------------------------------------------------

@case("bytes, LBB-135: output of all 256 bytes, read by every offset")
def any_bytes():
    c, b = box()
    j = sh(c, b, r"for i in {0..255}; do printf -v x '\\x%02x' $i; "
           r'printf "$x"; done; printf "%b" "\xe2\x82" >&2')
    want = bytes(range(256))
    equal(c.logs(j["id"]), want)
    equal(c.logs(j["id"], "stderr"), b"\xe2\x82")
    assert j["stdout"]["invalid_utf8"] and j["stderr"]["invalid_utf8"], j
    equal(j["stdout"]["bytes"], 256)
    # As JSON text: a mark for each byte that is no character, nothing lost.
    equal(j["stdout"]["tail"], want.decode(errors="replace"))
    for offset in (0, 1, 127, 128, 129, 254, 255, 256):
        s = c.log_slice(j["id"], "stdout", offset, 1).json
        got = (base64.b64decode(s["data"]) if s["encoding"] == "base64"
               else s["data"].encode())
        equal(got, want[offset:offset + 1], offset)
        equal((s["offset"], s["next_offset"]),
              (offset, offset + len(got)))
        equal(s["encoding"], "base64" if 128 <= offset < 256 else "utf-8", s)
    r = c.log_slice(j["id"], "stdout", 257, 1)
    assert r.status == 400 or r.json["data"] == "", r


@case("bytes, LBB-135: a character at every edge of a slice stays whole")
def characters():
    c, b = box()
    text = "a\u00e9\u20ac\U0001d11e" * 3
    j = command(c, b, "printf", "%s", text)
    equal(j["status"], "succeeded", j)
    for limit in range(1, 12):
        out, offset = b"", 0
        while offset < len(text.encode()):
            s = c.log_slice(j["id"], "stdout", offset, limit).json
            got = (base64.b64decode(s["data"]) if s["encoding"] == "base64"
                   else s["data"].encode())
            assert got, s
            equal(s["next_offset"], offset + len(got))
            out, offset = out + got, s["next_offset"]
        equal(out, text.encode(), limit)


@case("bytes, LBB-136: output of exactly head and tail, and one byte more")
def head_and_tail():
    c, b = box()
    for n in (KEPT, 2 * KEPT, 2 * KEPT + 1):
        j = sh(c, b, f"head -c {n - 2} /dev/zero; printf '\\xff\\n'")
        equal((j["stdout"]["bytes"], j["stdout"]["truncated"]),
              (n, n > 2 * KEPT), j["stdout"]["bytes"])
        last = c.log_slice(j["id"], "stdout", n - 2).json
        equal(base64.b64decode(last["data"]), b"\xff\n")
        gap = c.log_slice(j["id"], "stdout", KEPT).json
        equal(gap["offset"], KEPT + (n - 2 * KEPT if n > 2 * KEPT else 0), n)


@case("bytes: argv and env in any script; stdin of any bytes")
def given():
    c, b = box()
    text = "gr\u00fc\u00df \u6587\u4ef6 \u202e \U0001d11e\t\n'\"\\$(x)"
    j = command(c, b, "bash", "-c", 'printf "%s|%s|" "$1" "$V"; cat', "x",
                text, env={"V": text}, stdin=text + "\0\u0001")
    equal(c.logs(j["id"]).decode(), f"{text}|{text}|{text}\0\x01", j)
    equal(c.command(j["id"]).json["argv"][-1], text)
    r = start(c, b, "echo", "a\0b")
    equal(r.status, 400, r)
    r = start(c, b, "cat", stdin="\ud800")
    equal(r.status, 400, r)


# ---- sizes ------------------------------------------------------------------

def raw_put(c, b, path, head, body, close=False):
    """PUT by hand: what a library would not send."""
    con = http.client.HTTPConnection(d.host, d.port, timeout=ANSWER_S)
    q = urllib.parse.urlencode({"graph": c.graph, "sandbox": b, "path": path})
    con.putrequest("PUT", f"{CONTENT}?{q}")
    con.putheader("Authorization", f"Bearer {c.key}")
    for name, value in head.items():
        con.putheader(name, value)
    con.endheaders()
    for piece in body:
        con.send(piece)
    if close:
        con.close()
        return None
    r = con.getresponse()
    status, data = r.status, r.read()
    con.close()
    return status, json.loads(data)


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


@case("bytes: 4 MiB in chunks; one more, in chunks; a body that ends early")
def bodies():
    c, b = box()
    data = os.urandom(4 * MIB)
    parts = [chunk(data[i:i + 99991]) for i in range(0, len(data), 99991)]
    coded = {"Transfer-Encoding": "chunked"}
    status, j = raw_put(c, b, "whole", coded, parts + [b"0\r\n\r\n"])
    equal((status, j["size"]), (200, 4 * MIB), j)
    equal(read(c, b, "whole").body, data)
    # As many zeros as fit, in one chunk more than that.
    status, j = raw_put(c, b, "whole", coded,
                        parts + [chunk(b"x"), b"0\r\n\r\n"])
    equal((status, j["error"]["code"]), (413, "sandbox_file_too_large"), j)
    raw_put(c, b, "whole", coded, parts[:3], close=True)
    raw_put(c, b, "whole", {"Content-Length": str(len(data))},
            [data[:MIB]], close=True)
    raw_put(c, b, "cut", {"Content-Length": "10"}, [b"12345"], close=True)
    equal(read(c, b, "whole").body, data)
    refused(read(c, b, "cut"), 404, "sandbox_file_not_found")
    equal(remove(c, b, "whole").status, 200)
    equal(files(c, b).json["data"], [])


# ---- paths ------------------------------------------------------------------

@case("bytes: .. and NUL in each spelling of the query; nothing is made of them")
def spellings():
    c, b = box()
    up = b"../etc/passwd"
    for query in ("path=%2e%2e%2fetc%2fpasswd", "path=..%2Fetc%2Fpasswd",
                  "path=%252e%252e%252fetc%252fpasswd/../../etc/passwd",
                  "path=a%2f..%2f..%2fetc%2fpasswd",
                  "path=/workspace/../etc/passwd",
                  "path=/proc/1/root/etc/passwd", "path=//etc/passwd",
                  f"path_hex={up.hex()}", f"path_hex={up.hex().upper()}",
                  f"path_hex={b'a/..'.hex()}", f"path_hex={b'a%00b'.hex()}00",
                  "path=a%00", "path=%00", "path=%c0%ae%c0%ae%2fetc",
                  "path=%ed%a0%80", "path=a&path=b", "path=%zz", "path_hex=",
                  f"path_hex={'61' * 4097}"):
        for method, route, body in (("GET", CONTENT, None),
                                    ("PUT", CONTENT, b"x"),
                                    ("DELETE", FILES, None)):
            con = http.client.HTTPConnection(d.host, d.port, timeout=ANSWER_S)
            con.request(method, f"{route}?graph=main&sandbox={b}&{query}",
                        body, {"Authorization": f"Bearer {c.key}",
                               "Content-Type": "application/octet-stream"})
            r = con.getresponse()
            error = json.loads(r.read())
            con.close()
            equal(r.status, 400, (method, query, error))
    # Escaped twice it is a name like another.
    equal(write(c, b, "%2e%2e", b"x").status, 200)
    equal([x["path"] for x in files(c, b).json["data"]], ["%2e%2e"])
    equal(remove(c, b, "%2e%2e").status, 200)


@case("bytes: a link that points out, as each component of a path")
def links():
    c, b = box()
    said(c, b, "mkdir -p in/a/b /tmp/out/a/b; echo out > /tmp/out/a/b/f;"
         "echo in > in/a/b/f; echo x > /tmp/victim;"
         "ln -s /tmp/out out1; ln -s /tmp/out/a in/out2;"
         "ln -s ../../../tmp/out/a/b in/a/out3; ln -s /tmp/out/a/b/f in/a/b/g;"
         "ln -s /workspace/in abs; ln -s in/a rel; ln -s ../../a in/a/b/up")
    for path in ("out1/a/b/f", "in/out2/b/f", "in/a/out3/f", "in/a/b/g",
                 "rel/out3/f", "abs/a/out3/f", "in/a/b/up/b/g"):
        refused(read(c, b, path), 400)
    for path in ("out1/new", "out1/a/new", "in/out2/new", "in/a/out3/new",
                 "in/a/out3/f", "rel/out3/f"):
        refused(write(c, b, path, b"new"), 400)
        refused(remove(c, b, path), 400)
    # Nothing is there, outside: folders are not made on the way.
    refused(write(c, b, "out1/x/y/z", b"new"), 400)
    assert remove(c, b, "out1/x/y/z").status in (400, 404)
    for path in ("out1", "in/out2", "in/a/out3"):
        r = files(c, b, path)
        # The link itself, or refused; never what it leads to.
        assert r.status == 400 or [x["type"] for x in r.json["data"]] == \
            ["symlink"], r
    # Links that stay inside are followed.
    for path in ("abs/a/b/f", "rel/b/f"):
        equal(read(c, b, path).body, b"in\n", path)
    equal(said(c, b, "cd /tmp; find out victim -type f | sort | "
               "xargs cat; ls out out/a out/a/b"),
          "out\nx\nout:\na\n\nout/a:\nb\n\nout/a/b:\nf\n")
    said(c, b, "rm -rf /workspace/* /tmp/out /tmp/victim")


@case("bytes: /proc/self, other processes' roots and descriptors")
def magic():
    c, b = box()
    said(c, b, "ln -s /proc/self p; ln -s /proc/1/root r; "
         "ln -s /proc/self/root pr; ln -s /proc/self/cwd w; "
         "ln -s /proc/self/fd fd; ln -s /proc/self/exe e; "
         "ln -s /dev/fd/0 z; ln -s /dev/stdin in")
    for path in ("p/environ", "p/root/etc/passwd", "r/etc/passwd",
                 "pr/etc/passwd", "w/x", "fd/0", "fd/1", "e", "z", "in"):
        for r in (read(c, b, path), files(c, b, path) if "/" in path
                  else read(c, b, path)):
            assert r.status in (400, 404), (path, r)
    for path in ("p/oom_score_adj", "r/tmp/x", "pr/tmp/x", "w/x", "fd/1"):
        r = write(c, b, path, b"1")
        assert r.status in (400, 404), (path, r)
    equal(said(c, b, "ls /tmp | grep -c '^x$' || :"), "0\n")
    # A link in the place of the file is replaced, not followed.
    equal(write(c, b, "e", b"mine").status, 200)
    equal(said(c, b, "test -L e || cat e; rm -rf /workspace/*"), "mine")


@case("bytes: a folder that becomes a link while it is followed")
def exchanged():
    c, _ = box()
    b = hold(c, template="lbb/python")
    turn = start(c, b, run={"code": EXCHANGE}, timeout_ms=600000)
    equal(turn.status, 202, turn)
    wait_until(lambda: read(c, b, "ready").status == 200, 300, "it turns")
    seen, end = set(), time.monotonic() + 20
    while time.monotonic() < end:
        r = read(c, b, "d/f")
        seen.add((r.status, r.body if r.status == 200 else r.code))
        r = write(c, b, "d/n", b"n")
        seen.add((r.status, "" if r.status == 200 else r.code))
    equal(write(c, b, "stop", b"").status, 200)
    j = ended(c, turn.json["id"], 300)
    equal(j["status"], "succeeded", (j, c.logs(j["id"], "stderr")))
    note(f"{j['result']} exchanges; answers: {sorted(map(str, seen))}")
    assert j["result"]["turns"] > 3, j
    assert (200, b"away\n") not in seen, seen
    assert {s for s, _ in seen} <= {200, 400, 404}, seen
    assert len({s for s, _ in seen}) > 1, seen
    equal(j["result"]["away"], ["f"])
    destroyed(c, b)


@case("bytes: hard links, sockets, devices: the right answer, and none waits")
def kinds():
    c, b = box()
    said(c, b, "echo one > a; ln a b; mkdir s; chmod 600 a")
    equal(read(c, b, "b").body, b"one\n")
    # A write puts another file there: the other name keeps what it had.
    equal(write(c, b, "b", b"two\n").status, 200)
    equal(said(c, b, "cat a b; stat -c %h a b"), "one\ntwo\n1\n1\n")
    equal(remove(c, b, "a").status, 200)
    equal(read(c, b, "b").body, b"two\n")
    # A socket: bash has none to make, jq neither; a FIFO with a writer.
    said(c, b, "mkfifo q; ln -s q lq; ln -s /dev/null n; ln -s /dev/tty t; "
         "ln -s /dev/urandom u; ln -s /dev/vda v")
    held = start(c, b, "bash", "-c", "exec 3<>q; sleep 600",
                 timeout_ms=700000)
    equal(held.status, 202, held)
    for path in ("q", "lq", "n", "t", "u", "v"):
        began = time.monotonic()
        r = read(c, b, path)
        assert r.status in (400, 404), (path, r)
        assert time.monotonic() - began < ANSWER_S, path
    refused(write(c, b, "q", b"x"), 400)
    equal({x["name"]: x["type"] for x in files(c, b).json["data"]},
          {"b": "file", "lq": "symlink", "n": "symlink", "q": "fifo",
           "s": "directory", "t": "symlink", "u": "symlink", "v": "symlink"})
    c.cancel(held.json["id"])
    for path in ("q", "lq", "n", "t", "u", "v", "s", "b"):
        equal(remove(c, b, path).status, 200, path)
    equal(files(c, b).json["data"], [])


@case("bytes: a folder where a file is expected, and the other way")
def other_way():
    c, b = box()
    said(c, b, "mkdir -p d/e; echo x > f; ln -s d ld; ln -s f lf")
    for path in ("d", "d/", "ld", "."):
        refused(read(c, b, path), 400)
    for path in ("d", "d/", "d/e", "."):
        refused(write(c, b, path, b"x"), 400)
    for path in ("f/x", "f/x/y", "lf/x"):
        for r in (read(c, b, path), write(c, b, path, b"x"),
                  remove(c, b, path)):
            assert r.status in (400, 404), (path, r)
            assert r.code in ("sandbox_path_invalid",
                              "sandbox_file_not_found"), r
    refused(remove(c, b, "d"), 400)         # not empty
    equal([x["path"] for x in files(c, b, "f").json["data"]], ["f"])
    equal(said(c, b, "cat f; find d | sort; rm -rf /workspace/*"),
          "x\nd\nd/e\n")


@case("bytes: many at once on hostile paths: the daemon answers others at once")
def beside():
    c, b = box()
    said(c, b, "mkfifo q; ln -s /dev/zero z; ln -s loop loop")
    wrong = []

    def ask(path):
        r = read(c, b, path)
        if r.status not in (400, 404):
            wrong.append((path, r))

    threads = [threading.Thread(target=ask, args=(p,))
               for p in ("q", "z", "loop") * 8]
    for t in threads:
        t.start()
    began = time.monotonic()
    equal(c.call("GET", "/v1/sandboxes").status, 200)
    assert time.monotonic() - began < 5
    for t in threads:
        t.join()
    equal(wrong, [])
    said(c, b, "rm -rf /workspace/*")


main()
