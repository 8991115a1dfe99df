#!/usr/bin/env python3
"""Clients that are slow, broken or many; the daemon must stay healthy.

test: timeout=600
"""
import http.client
import os
import resource
import select
import signal
import socket
import subprocess
import threading
import time

import hutchlib
from hutchlib import Daemon, case, client, daemon, equal, main, note

hutchlib._daemon = Daemon(ram_budget_mib=1).start()
# Its bodies do not come while the other cases run: that takes a minute.
slow = Daemon(hutchlib.STATE + "-slow", pool_max=0)
waiting = []
N_SLOW = 400 if not hutchlib.IS_LONG else 1000


def connect():
    return socket.create_connection((daemon().host, daemon().port), 30)


def talk(data, seconds=15, shut=False):
    """Everything the server says to these bytes; None = no end in time."""
    s = connect()
    out = b""
    try:
        s.sendall(data)
        if shut:
            s.shutdown(socket.SHUT_WR)
        s.settimeout(seconds)
        while True:
            piece = s.recv(65536)
            if not piece:
                return out
            out += piece
            if b"\r\n\r\n" in out and b"Connection: close" not in out and \
                    not shut:
                return out
    except ConnectionError:
        return out
    except socket.timeout:
        return out or None
    finally:
        s.close()


def status(data, **more):
    text = talk(data, **more)
    if not text:
        return 0
    return int(text.split(b" ", 2)[1])


def healthy():
    start = time.monotonic()
    equal(daemon().get("/healthz").status, 200)
    took = time.monotonic() - start
    assert took < 2, f"/healthz took {took:.1f} s"


def request(method="POST", path="/v1/sandboxes?graph=main", headers=(),
            body=b"", key=None):
    head = [f"{method} {path} HTTP/1.1", "Host: localhost",
            f"Authorization: Bearer {key or client().key}", "Idempotency-Key: k",
            "Content-Type: application/json", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def request_to(d, headers, body):
    """The head and some of the body of a call; its socket."""
    s = socket.create_connection((d.host, d.port), 30)
    s.sendall(request(headers=headers, body=body, key=d.client().key))
    return s


@case("K3: bodies that do not come are waited for, and others are served")
def slow_bodies():
    slow.start()
    for _ in range(20):
        waiting.append(request_to(slow, ("Content-Length: 1000000",),
                                  b'{"run":'))
    equal(slow.get("/healthz").status, 200)
    equal(slow.metric("hutch_http_connections_open") >= 20, True)


@case("K1: broken heads are refused and closed")
def heads():
    for data in (b"GET\r\n\r\n", b"\r\n\r\n\r\n\r\nX", b"\0" * 200,
                 b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
                 b"GET /healthz HTTP/1.1\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: x\r\nA\0B: c\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n",
                 b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20):
        code = status(data, seconds=20, shut=True)
        assert code in (0, 400, 404, 405, 501, 505), (data[:40], code)
        healthy()


@case("K1: a head over 16 KiB and 1,000 headers are refused")
def large_heads():
    big = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200000
    assert status(big + b"\r\n\r\n") in (0, 400, 413, 414, 431)
    many = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"".join(
        b"X-%d: y\r\n" % n for n in range(5000))
    assert status(many + b"\r\n") in (0, 400, 413, 431)
    healthy()


@case("K2: lengths that lie or contradict are refused, never guessed")
def smuggling():
    body = b'{"run":{"code":"x"}}'
    for headers in (("Content-Length: +20",), ("Content-Length: 0x14",),
                    ("Content-Length: 99999999999999999999",),
                    ("Content-Length: -1",),
                    ("Content-Length: 20", "Content-Length: 21"),
                    ("Content-Length: 20", "Transfer-Encoding: chunked"),
                    ("Transfer-Encoding: gzip",),
                    ("Transfer-Encoding: chunked, identity",)):
        code = status(request(headers=headers, body=body), seconds=20)
        assert code in (0, 400, 411, 413, 501), (headers, code)
        healthy()
    for chunk in (b"FFFFFFFFFFFFFFFFF\r\nx", b"-1\r\nx\r\n", b"zz\r\nx\r\n"):
        code = status(request(headers=("Transfer-Encoding: chunked",),
                              body=chunk), seconds=20, shut=True)
        assert code in (0, 400, 413), (chunk, code)
        healthy()


@case("K2: a chunked body is read like any other")
def chunked():
    body = b'{"run":{"code":"x"},"bad":1}'
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p)
                      for p in (body[:5], body[5:6], body[6:])) + b"0\r\n\r\n"
    equal(status(request(headers=("Transfer-Encoding: chunked",),
                         body=chunks)), 400)


@case("K5: pipelined requests are answered in order")
def pipelined():
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    s = connect()
    s.sendall(one * 20)
    got, deadline = b"", time.monotonic() + 20
    while got.count(b"HTTP/1.1 200") < 20 and time.monotonic() < deadline:
        got += s.recv(65536)
    s.close()
    equal(got.count(b"HTTP/1.1 200"), 20)


@case("K5: methods that do not exist here")
def methods():
    for m in ("OPTIONS", "TRACE", "CONNECT", "BREW", "PROPFIND", "PATCH"):
        code = status(request(m, "/v1/sandboxes?graph=main"), seconds=20)
        good = (0, 204, 400, 404, 405, 501)  # 204: what a browser asks first
        assert code in good, (m, code)
    text = talk(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n"
                b"Connection: close\r\n\r\n", shut=True)
    assert b"200" in text.split(b"\r\n")[0], text
    equal(text.partition(b"\r\n\r\n")[2], b"", "body of HEAD")


@case("K3: a client that sends one byte a second is cut off")
def slow_head():
    s = connect()
    start, ended = time.monotonic(), None
    data = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "
    s.setblocking(False)
    for n in range(120):
        try:
            s.send(data[n:n + 1] or b"a")
        except OSError:
            ended = time.monotonic() - start
            break
        if select.select([s], [], [], 1)[0]:
            try:
                if s.recv(4096) == b"":
                    ended = time.monotonic() - start
                    break
            except OSError:
                ended = time.monotonic() - start
                break
    s.close()
    assert ended is not None, "still open after 120 s"
    note(f"cut off after {ended:.0f} s")
    healthy()


@case(f"K3: {N_SLOW} connections that say nothing; others are served")
def idle_crowd():
    socks = [connect() for _ in range(N_SLOW)]
    for s in socks[::2]:
        s.sendall(b"GET /healthz HT")
    for _ in range(20):
        healthy()
    for s in socks:
        s.close()
    healthy()


@case("K10: clients that go away in the middle")
def gone():
    for n in range(60):
        s = connect()
        data = request(headers=("Content-Length: 300",), body=b"{" * 300)
        s.sendall(data[:5 + n * len(data) // 61])
        if n % 2:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                         b"\1\0\0\0\0\0\0\0")
        s.close()
    healthy()


@case("K3: a reader that never reads does not hold up the others")
def no_reader():
    socks = []
    for _ in range(30):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect((daemon().host, daemon().port))
        s.settimeout(2)
        try:
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" *
                      200)
        except OSError:
            pass
        socks.append(s)
    for _ in range(10):
        healthy()
    for s in socks:
        s.close()


@case("K16: more connections than descriptors: refused or queued, recovers")
def crowd():
    socks = []
    try:
        for _ in range(3000):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex((daemon().host, daemon().port))
            socks.append(s)
    except OSError:
        pass
    note(f"{len(socks)} connections tried")
    time.sleep(1)
    for s in socks:
        s.close()
    hutchlib.wait_until(lambda: _is_up(), 30, "it answers again")
    healthy()


@case("K16: no descriptor is left: /healthz answers, nobody spins, recovers")
def no_descriptor():
    d = Daemon(state=hutchlib.STATE + "-k16", ram_budget_mib=1).start()

    def cpu_s():
        with open(f"/proc/{d.pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    n = len(os.listdir(f"/proc/{d.pid}/fd")) + 30
    hard = resource.prlimit(d.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(d.pid, resource.RLIMIT_NOFILE, (n, hard))
    kept = http.client.HTTPConnection(d.host, d.port, timeout=10)
    socks = [socket.create_connection((d.host, d.port), 30)
             for _ in range(200)]
    start = cpu_s()
    time.sleep(2)
    used = cpu_s() - start
    assert used < 0.5, f"{used:.1f} s of processor time in 2 s"
    for _ in range(5):
        kept.request("GET", "/healthz")
        r = kept.getresponse()
        equal((r.status, r.read()), (200, b'{"status":"ok"}'))
        equal(d.get("/healthz").status, 200)
        equal(d.admin("GET", "/admin/status").status, 200)
    for s in socks:
        s.close()
    equal(d.get("/healthz").status, 200)
    assert d.metric("hutch_http_connections_evicted_total") > 100
    d.stop()


def _is_up():
    try:
        return daemon().get("/healthz").status == 200
    except OSError:
        return False


@case("K8: a Host that is not ours on loopback is refused")
def rebinding():
    code = status(b"GET /v1/sandboxes HTTP/1.1\r\nHost: evil.example\r\n"
                  b"Authorization: Bearer x\r\n\r\n", seconds=10)
    assert code in (400, 403, 421), code


@case("many clients at once: every answer is right")
def many():
    errors = []

    def work():
        for _ in range(50):
            r = client().call("GET", "/v1/sandboxes")
            if r.status != 200 or r.json["data"] != []:
                errors.append(r)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(errors, [])


@case("K20: a flood of requests is a bounded number of lines, one each")
def log_flood():
    d = Daemon(state=hutchlib.STATE + "-k20", ram_budget_mib=1,
               log_level="debug").start()
    n, start = 4000, time.monotonic()
    one = (b'GET /x"status=200" HTTP/1.1\r\nHost: localhost\r\n\r\n')
    with socket.create_connection((d.host, d.port), 30) as s:
        for _ in range(n // 100):
            s.sendall(one * 100)
            got = b""
            while got.count(b"HTTP/1.1 404") < 100:
                got += s.recv(65536)
    d.stop()
    seconds = time.monotonic() - start
    lines = d.log_text().splitlines()
    told = [x for x in lines if "path=" in x]
    assert 1000 <= len(told) <= 1000 + 200 * (seconds + 1), len(told)
    for x in told:
        assert '"status=200' not in x, x
    left = sum(int(x.split("left_out=")[1].split()[0]) for x in lines
               if 'left_out=' in x and "kind=\"http request" in x)
    equal(len(told) + left >= n, True, f"{len(told)} told, {left} counted")


@case("K19: SIGTERM at any moment of a start leaves no address behind")
def end_in_start():
    state = hutchlib.STATE + "-start"
    for n in range(60):
        argv = [f"{hutchlib.BUILD}/hutchd", "--state", state, "--listen",
                "127.0.0.1:0", "--set", "ram_budget_mib=1"]
        p = subprocess.Popen(argv, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
        # From here on it is stopped in order; before, SIGTERM just ends it.
        while b"store: open" not in p.stdout.readline():
            assert p.poll() is None, "it ended by itself"
        time.sleep(0.001 * (n % 20))
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=30)
        equal(p.returncode, 0)
        for name in ("listen", "admin.sock"):
            assert not os.path.exists(f"{state}/{name}"), (n, name)


@case("hutch serve: the file's state_dir counts, --state goes over it")
def state_folders():
    top = hutchlib.STATE + "-serve"
    os.makedirs(top)
    conf = f"{top}/conf"
    with open(conf, "w") as f:
        f.write(f"state_dir = {top}/file   # not the default\n"
                "listen = none\n")
    for more, want in (((), "file"), (("--state", f"{top}/flag"), "flag")):
        p = subprocess.Popen(
            [f"{hutchlib.BUILD}/hutch", "serve", "--config", conf, *more],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=dict(os.environ, HUTCH_STATE=f"{top}/default"))
        try:
            hutchlib.wait_until(
                lambda: os.path.exists(f"{top}/{want}/admin.sock"), 30,
                f"the daemon uses {want}")
        finally:
            p.send_signal(signal.SIGTERM)
            p.communicate(timeout=30)
    equal(sorted(os.listdir(top)), ["conf", "file", "flag"])


@case("a folder with foreign files is no state folder, and stays as it is")
def foreign_folder():
    top = hutchlib.STATE + "-foreign"
    os.makedirs(top)
    os.chmod(top, 0o755)
    with open(f"{top}/letter", "w") as f:
        f.write("dear")
    for argv in (["hutchd", "--state", top], ["hutch", "--state", top, "ps"]):
        p = subprocess.run([f"{hutchlib.BUILD}/{argv[0]}", *argv[1:]],
                           capture_output=True, text=True, timeout=30)
        equal(p.returncode, 64)
        assert f'{top} is not empty' in p.stderr, p.stderr
        assert '"letter"' in p.stderr, p.stderr
        equal((os.listdir(top), os.stat(top).st_mode & 0o777),
              (["letter"], 0o755))


@case("K3: ... and are cut off")
def slow_bodies_end():
    deadline, open_socks = time.monotonic() + 120, list(waiting)
    while open_socks and time.monotonic() < deadline:
        for s in select.select(open_socks, [], [], 1)[0]:
            try:
                data = s.recv(4096)
            except OSError:
                data = b""
            if not data:
                open_socks.remove(s)
            else:
                assert b" 40" in data.split(b"\r\n")[0], data
    for s in waiting:
        s.close()
    equal(len(open_socks), 0, "connections still open after 120 s")
    equal(slow.get("/healthz").status, 200)
    equal(slow.metric("hutch_http_body_bytes"), 0)
    slow.stop()


@case("after all this: no descriptor and no body is left")
def clean():
    d = daemon()
    hutchlib.wait_until(
        lambda: d.metric("hutch_http_connections_open") <= 2, 90,
        "connections are closed")
    equal(d.metric("hutch_http_body_bytes"), 0)
    assert len(os.listdir(f"/proc/{d.pid}/fd")) < 64
    assert d.is_alive()


main()
