#!/usr/bin/env python3
"""Files of a held sandbox over HTTP and by the command line: there and back, at
the edges, against what user code puts in the way, and when things end.

test: timeout=900 beside=yes seconds=65
"""
import calendar
import hashlib
import os
import stat
import threading
import time

from held import (WAIT_S, command, create, destroyed, hold, resumed, sh, start,
                  stopped)
from hutchlib import (Daemon, STATE, case, equal, hutch, main, new_key, note,
                      wait_until)

MIB = 1 << 20
FILES = "/v1/sandboxes/files"
CONTENT = FILES + "/content"

d = Daemon(STATE + "-files", pool_shell=1, pool_max=1, graph_places=5,
           environment_places=10)
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


def files(c, sandbox, path=None, **query):
    return c.call("GET", FILES, query=dict(query, sandbox=sandbox, path=path))


def read(c, sandbox, path=None, **query):
    return c.call("GET", CONTENT, query=dict(query, sandbox=sandbox,
                                             path=path))


def write(c, sandbox, path, data, **query):
    return c.call("PUT", CONTENT, data, query=dict(query, sandbox=sandbox,
                                                   path=path),
                  headers={"Content-Type": "application/octet-stream"})


def remove(c, sandbox, path, **query):
    return c.call("DELETE", FILES, query=dict(query, sandbox=sandbox,
                                              path=path))


def written(c, sandbox, path, data):
    r = write(c, sandbox, path, data)
    equal(r.status, 200, r)
    return r.json


def said(c, sandbox, script):
    j = sh(c, sandbox, script)
    equal(j["status"], "succeeded", j)
    return j["stdout"]["tail"]


def clean(c, sandbox, *names):
    """Deletes these, and nothing else is there."""
    for name in names:
        equal(remove(c, sandbox, name).status, 200, name)
    equal(files(c, sandbox).json["data"], [])


def refused(r, status, code, param="path"):
    equal((r.status, r.code, r.param), (status, code, param), r)


def half_written(c, sandbox):
    """A write of 4 MiB that the daemon has, and the guest has not all of."""
    got = []

    def call():
        try:
            got.append(write(c, sandbox, "half", os.urandom(4 * MIB)))
        except OSError as e:
            got.append(type(e).__name__)

    t = threading.Thread(target=call)
    t.start()
    # One of the two is the question itself.
    wait_until(lambda: d.metric("hutch_http_requests_working") > 1, 30,
               "the write is under way")
    time.sleep(.2)
    return t, got


@case("LBB-150 to LBB-155, LBB-176: write, list, read, delete; code sees the same")
def there_and_back():
    c, b = box()
    data = bytes(range(256)) * 40
    j = written(c, b, "a/b/data.bin", data)
    equal(j, {"object": "file", "path": "a/b/data.bin", "size": len(data),
              "sha256": hashlib.sha256(data).hexdigest()})
    equal(said(c, b, "sha256sum < a/b/data.bin; stat -c '%U %a' a a/b/data.bin;"
               "echo from code > out.txt; chmod 750 out.txt; ln -s out.txt l"),
          j["sha256"] + "  -\nsandbox 755\nsandbox 644\n")
    r = read(c, b, "out.txt")
    equal((r.status, r.body, r.headers["Content-Type"]),
          (200, b"from code\n", "application/octet-stream"))
    equal(read(c, b, "/workspace/l").body, b"from code\n")
    equal(read(c, b, ".//a/./b/data.bin").body, data)
    equal(read(c, b, "out.txt", offset=5, limit=3).body, b"cod")
    equal(read(c, b, "out.txt", offset=5).body, b"code\n")
    equal(read(c, b, "out.txt", offset=500).body, b"")
    r = files(c, b)
    equal((r.status, r.json["object"], r.json["has_more"],
           r.json["next_cursor"]), (200, "list", False, None))
    equal([(x["path"], x["name"], x["type"], x["mode"])
           for x in r.json["data"]],
          [("a", "a", "directory", "0755"), ("l", "l", "symlink", "0777"),
           ("out.txt", "out.txt", "file", "0750")])
    out = r.json["data"][2]
    equal(out["size"], 10)
    age = time.time() - calendar.timegm(time.strptime(
        out["modified_at"][:19], "%Y-%m-%dT%H:%M:%S"))
    assert -5 < age < 120, out
    equal([x["path"] for x in files(c, b, "a/b").json["data"]],
          ["a/b/data.bin"])
    equal([(x["path"], x["type"]) for x in files(c, b, "l").json["data"]],
          [("l", "symlink")])
    # In the place of the old one: its mode stays.
    written(c, b, "out.txt", b"new")
    equal(files(c, b, "out.txt").json["data"][0]["mode"], "0750")
    written(c, b, "empty", b"")
    equal(read(c, b, "empty").body, b"")
    equal(remove(c, b, "l").json,
          {"object": "file", "path": "l", "deleted": True})
    equal(read(c, b, "out.txt").body, b"new")
    refused(remove(c, b, "l"), 404, "sandbox_file_not_found")
    refused(remove(c, b, "a"), 400, "sandbox_path_invalid")
    refused(read(c, b, "a"), 400, "sandbox_path_invalid")
    refused(read(c, b, "nothing/here"), 404, "sandbox_file_not_found")
    refused(files(c, b, "nothing"), 404, "sandbox_file_not_found")
    clean(c, b, "a/b/data.bin", "a/b", "a", "out.txt", "empty")


@case("LBB-150, LBB-178, I1: paths that are none, and the same path in other words")
def paths():
    c, b = box()
    for path in ("..", "../etc/passwd", "a/../b", "/etc/passwd", "/",
                 "/workspace2/x", "/workspace/../etc/passwd", "n" * 256,
                 "p/" * 2100 + "x"):
        for r in (read(c, b, path), write(c, b, path, b"x"),
                  remove(c, b, path), files(c, b, path)):
            refused(r, 400, "sandbox_path_invalid")
    for path in ("", ".", "/workspace", "/workspace/"):
        refused(write(c, b, path, b"x"), 400, "sandbox_path_invalid")
        equal(files(c, b, path).json["data"], [])
    refused(read(c, b), 400, "invalid_request")
    refused(read(c, b, path_hex="00"), 400, "sandbox_path_invalid")
    refused(read(c, b, path_hex="6"), 400, "sandbox_path_invalid", "path_hex")
    refused(read(c, b, "a", path_hex="61"), 400, "invalid_request", "path_hex")
    r = read(c, b, "a\0b")
    equal((r.status, r.code), (400, "invalid_request"), r)
    for query, param in (({"limit": 0}, "limit"), ({"limit": 1001}, "limit"),
                         ({"cursor": "zz"}, "cursor"), ({"x": 1}, "x")):
        refused(files(c, b, **query), 400, "invalid_request", param)
    for query, param in (({"limit": 4 * MIB + 1}, "limit"),
                         ({"offset": -1}, "offset")):
        refused(read(c, b, "a", **query), 400, "invalid_request", param)
    # As long as Linux takes them.
    long = "/".join(["d" * 255] * 15 + ["e" * (4084 - 15 * 256)])
    equal(len(long), 4084)
    equal(written(c, b, long, b"deep")["path"], long)
    equal(read(c, b, "/workspace/" + long).body, b"deep")
    refused(write(c, b, long + "e", b"x"), 400, "sandbox_path_invalid")
    parts = long.split("/")
    clean(c, b, *("/".join(parts[:n]) for n in range(len(parts), 0, -1)))


@case("I2, I3: links, FIFOs, devices: nothing outside is touched, none waits")
def hostile():
    c, b = box()
    written(c, b, "real", b"in\n")
    said(c, b, "ln -s /etc/passwd /tmp /dev/zero /proc/self/environ /etc .; "
         "ln -s /workspace/real in; ln -s loop loop; ln -s / root; "
         "ln -s ../etc/passwd rel; mkfifo fifo; mkdir -m 0 shut")
    reader = start(c, b, "cat", "fifo", timeout_ms=600000)
    equal(reader.status, 202, reader)
    for path in ("passwd", "rel", "root/etc/passwd", "etc/passwd", "zero",
                 "loop", "fifo", "shut/x"):
        refused(read(c, b, path), 400, "sandbox_path_invalid")
    equal(read(c, b, "in").body, b"in\n")
    refused(read(c, b, "environ"), 404, "sandbox_file_not_found")
    for path in ("root/x", "tmp/x", "tmp/a/b/x", "fifo", "shut", "shut/x"):
        refused(write(c, b, path, b"x"), 400, "sandbox_path_invalid")
    refused(files(c, b, "root"), 400, "sandbox_path_invalid")
    refused(remove(c, b, "root/tmp"), 400, "sandbox_path_invalid")
    equal(files(c, b, "fifo").json["data"][0]["type"], "fifo")
    assert c.command(reader.json["id"]).json["status"] in (
        "queued", "running")
    equal(c.cancel(reader.json["id"]).json["status"], "cancelled")
    # A link is replaced, a FIFO is deleted; what they led to is untouched.
    written(c, b, "passwd", b"mine\n")
    equal(remove(c, b, "fifo").status, 200)
    equal(said(c, b, "read -r x < /etc/passwd; echo ${x:0:5}; cat passwd; "
               "echo /tmp/*"), "root:\nmine\n/tmp/*\n")
    clean(c, b, "passwd", "tmp", "zero", "environ", "etc", "in", "loop",
          "root", "rel", "shut", "real")


@case("LBB-151: names in any script and of any bytes; pages of them")
def names():
    c, b = box()
    for name in ("r\u00e9sum\u00e9", "\u6587\u4ef6", "a b", "-rf", "a\nb",
                 "\u202etxt", "%41", "q?&=#"):
        equal(written(c, b, "n/" + name, name.encode())["path"], "n/" + name)
        equal(read(c, b, "n/" + name).body, name.encode())
    said(c, b, "printf x > $'n/caf\\xe9'")
    r = write(c, b, None, b"y", path_hex=b"n/d\xff/y".hex())
    equal((r.status, r.json["path"], bytes.fromhex(r.json["path_hex"])),
          (200, "n/d\ufffd/y", b"n/d\xff/y"))
    j = files(c, b, "n").json
    odd = [x for x in j["data"] if "path_hex" in x]
    equal([(x["path"], bytes.fromhex(x["path_hex"])) for x in odd],
          [("n/caf\ufffd", b"n/caf\xe9"), ("n/d\ufffd", b"n/d\xff")])
    equal(read(c, b, path_hex=odd[0]["path_hex"]).body, b"x")
    inside = files(c, b, path_hex=odd[1]["path_hex"]).json["data"]
    equal([bytes.fromhex(x["path_hex"]) for x in inside], [b"n/d\xff/y"])
    seen, cursor = [], None
    while True:
        page = files(c, b, "n", limit=3, cursor=cursor).json
        seen += [x["name"] for x in page["data"]]
        assert len(page["data"]) <= 3
        if not page["has_more"]:
            break
        cursor = page["next_cursor"]
    equal(seen, [x["name"] for x in j["data"]])
    equal(len(seen), 10)
    r = remove(c, b, None, path_hex=odd[0]["path_hex"])
    equal((r.status, r.json["path_hex"]), (200, odd[0]["path_hex"]))
    equal(remove(c, b, None, path_hex=inside[0]["path_hex"]).status, 200)
    equal(remove(c, b, None, path_hex=odd[1]["path_hex"]).status, 200)
    clean(c, b, *(x["path"] for x in j["data"] if "path_hex" not in x), "n")


@case("LBB-152, LBB-153, LBB-179, I4, I6: 4 MiB, one byte more, and a file that "
      "is larger")
def edge():
    c, b = box()
    data = os.urandom(4 * MIB)
    began = time.monotonic()
    j = written(c, b, "big", data)
    wrote = time.monotonic() - began
    began = time.monotonic()
    equal(read(c, b, "big").body, data)
    note(f"4 MiB: written in {wrote:.2f} s, "
         f"read in {time.monotonic() - began:.2f} s")
    equal(j["sha256"], hashlib.sha256(data).hexdigest())
    r = write(c, b, "big", data + b"x")
    refused(r, 413, "sandbox_file_too_large", None)
    equal(command(c, b, "truncate", "-s", "1T", "big")["status"], "succeeded")
    r = read(c, b, "big")
    refused(r, 413, "sandbox_file_too_large")
    assert "offset" in r.json["error"]["message"], r
    equal(files(c, b, "big").json["data"][0]["size"], 1 << 40)
    equal(read(c, b, "big", offset=4 * MIB - 3, limit=5).body,
          data[-3:] + b"\0\0")
    equal(read(c, b, "big", offset=(1 << 40) - 2).body, b"\0\0")
    equal(remove(c, b, "big").status, 200)


@case("I6, I7: writers and readers at once: whole files only, each in its turn")
def together():
    c, b = box()
    texts = [bytes([65 + i]) * 20000 for i in range(4)]
    written(c, b, "one", texts[0])
    wrong = []

    def writer(i):
        for _ in range(2):
            r = write(c, b, "one", texts[i])
            if r.status != 200:
                wrong.append(r)

    def reader():
        for _ in range(3):
            r = read(c, b, "one")
            if r.body not in texts:
                wrong.append(r)

    threads = [threading.Thread(target=writer, args=(i,)) for i in range(4)]
    threads += [threading.Thread(target=reader) for _ in range(2)]
    for t in threads:
        t.start()
    equal(command(c, b, "true")["status"], "succeeded")
    for t in threads:
        t.join()
    equal(wrong, [])
    clean(c, b, "one")


@case("LBB-69, LBB-5, LBB-20, LBB-21: plans, graphs, keys; what is no sandbox")
def callers():
    c, b = box()
    written(c, b, "mine", b"x")
    free = d.client(environment=c.environment, plan="free",
                    change_environment=True)
    r = write(free, b, "mine", b"y")
    refused(r, 403, "sandbox_plan_unavailable", None)
    equal(read(free, b, "mine").body, b"x")
    equal(len(files(free, b).json["data"]), 1)
    equal(remove(free, b, "mine").status, 200)
    d.client(environment=c.environment, plan="full", change_environment=True)
    other = client(environment="elsewhere")
    for r in (files(other, b), read(other, b, "x"), write(other, b, "x", b""),
              remove(other, b, "x")):
        refused(r, 404, "sandbox_not_found", "sandbox")
    r = c.call("GET", FILES, query={"sandbox": b, "graph": "other"})
    refused(r, 404, "sandbox_not_found", "sandbox")
    refused(files(c, "sbx_nothing"), 404, "sandbox_not_found", "sandbox")
    r = c.call("PUT", CONTENT, b"k", key=new_key(),
               query={"sandbox": b, "path": "k"})
    equal(r.status, 200, r)
    r = c.call("PUT", CONTENT, b"", query={"sandbox": b, "path": "k",
                                           "source_sha256": "0" * 64})
    refused(r, 400, "missing_idempotency_key", "Idempotency-Key")
    equal(remove(c, b, "k").status, 200)


@case("LBB-156, LBB-177: one that starts is waited for; a stopped one is 409")
def states():
    c = client()
    r = create(c)
    b = r.json["id"]
    j = written(c, b, "early", b"at once")
    equal(j["size"], 7)
    before = c.sandbox(b)["last_active_at"]
    time.sleep(1.1)
    equal(read(c, b, "early").body, b"at once")
    assert c.sandbox(b)["last_active_at"] >= before
    stopped(c, b)
    for r in (files(c, b), read(c, b, "early"), write(c, b, "x", b"x"),
              remove(c, b, "early")):
        refused(r, 409, "sandbox_not_running", "sandbox")
        equal(r.json["error"]["details"], {"status": "stopped"})
    resumed(c, b)
    equal(read(c, b, "early").body, b"at once")
    destroyed(c, b)
    r = read(c, b, "early")
    refused(r, 409, "sandbox_not_running", "sandbox")
    equal(r.json["error"]["details"], {"status": "destroyed"})
    one = c.start("echo", template="lbb/shell", wait_ms=30000)
    refused(files(c, one.json["sandbox"]), 409, "sandbox_not_running",
            "sandbox")


@case("files by the command line: put, get, files, del")
def cli():
    client()
    env = {"HUTCH_STATE": d.state}
    admin = hutch("sandbox", "create", "--template", "lbb/shell", env=env)
    b = admin.stdout.strip()
    local = os.path.join(d.state, "local.bin")
    data = os.urandom(300000)
    with open(local, "wb") as f:
        f.write(data)

    def ok(*argv, **more):
        p = hutch("sandbox", *argv, env=env, **more)
        equal((p.returncode, p.stderr), (0, ""), p)
        return p.stdout

    equal(ok("put", b, local, "in/data.bin"), "in/data.bin\n")
    equal(ok("put", b, "-", "note", stdin="hello\n"), "note\n")
    equal(ok("get", b, "note"), "hello\n")
    back = local + ".back"
    equal(ok("get", b, "in/data.bin", back), "")
    with open(back, "rb") as f:
        equal(f.read(), data)
    equal(stat.S_IMODE(os.stat(back).st_mode) & 0o111, 0)
    lines = ok("files", b).splitlines()
    equal([x.split()[-1] for x in lines], ["in/", "note"])
    equal(ok("files", b, "in").splitlines()[0].split()[-1], "in/data.bin")
    ok("put", b, "-", b"bad\xe9\n", stdin="z")
    assert "bad\\xe9\\x0a" in ok("files", b)
    equal(ok("get", b, b"bad\xe9\n"), "z")
    # Larger than one read gives: in parts.
    ok("exec", b, "truncate", "-s", "4200000", "large")
    ok("get", b, "large", back)
    equal(os.path.getsize(back), 4200000)
    p = hutch("sandbox", "get", b, "none", back, env=env)
    equal(p.returncode, 66, p)
    equal(os.path.getsize(back), 4200000)
    p = hutch("sandbox", "put", b, local, "../x", env=env)
    equal(p.returncode, 64, p)
    equal(ok("del", b, "note"), "note deleted\n")
    p = hutch("sandbox", "del", b, "in", env=env)
    assert p.returncode == 64 and "not empty" in p.stderr, p
    ok("rm", b)


@case("M2: hutchd dies in the middle of a write, and comes back")
def dies():
    c = client()
    b = hold(c)
    t, got = half_written(c, b)
    d.kill()
    t.join()
    note(f"the write: {got}")
    d.start()
    wait_until(lambda: c.sandbox(b)["status"] == "lost", WAIT_S, "it is lost")
    refused(read(c, b, "half"), 409, "sandbox_not_running", "sandbox")
    other = hold(c)
    written(c, other, "again", b"x")
    equal(read(c, other, "again").body, b"x")


@case("the VM is lost in the middle of a write: said so, at once")
def lost():
    c = client()
    b = hold(c)
    t, got = half_written(c, b)
    os.kill(d.vmm_pids()[b], 9)
    t.join(30)
    refused(got[0], 409, "sandbox_not_running", "sandbox")
    assert "before the call" in got[0].json["error"]["message"], got[0]
    equal(c.sandbox(b)["status"], "lost")


if __name__ == "__main__":
    main()
