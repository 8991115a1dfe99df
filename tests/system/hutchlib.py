"""What the system tests share: a daemon of their own, a client, cases.

A test file lists its cases with @case and ends with `main()`.  Each case gets
the file's daemon (started at the first use, on a free port, in the private
state folder that tests/run.py gives) and prints one TAP line.  Sentences name
the fact that they show by its id, e.g. "LBB-86".
"""
import base64
import collections
import contextlib
import glob
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import urllib.parse
import uuid

TOP = os.environ.get("HUTCH_TOP") or os.path.dirname(os.path.dirname(
    os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("HUTCH_BUILD") or os.path.join(TOP, "build")
STATE = os.environ.get("HUTCH_STATE") or f"/tmp/hutch-t.{os.getpid()}/state"
IS_LONG = os.environ.get("HUTCH_LONG") == "1"
FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "fixtures")
START_S = 30
END_S = 600      # longest that a run may take on a slow, busy host
FINAL = ("succeeded", "failed", "timed_out", "cancelled", "lost")


def note(text):
    print(f"# {text}", flush=True)


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def snapshot_folder(base, vcpus=1, ram_mib=1024):
    """Of the cache's entry that runs of this build are restored from."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = os.environ.get("HUTCH_CACHE") or os.path.join(home, "hutch")
    want = {f"{name}={sha256(path)}" for name, path in (
        ("vmm", f"{BUILD}/hutch-vmm"),
        ("init", f"{BUILD}/guest/init.erofs"),
        ("root", f"{BUILD}/images/{base[len('lbb/'):]}.erofs"),
        ("kernel", f"{BUILD}/images/vmlinux"))}
    want |= {f"base={base}", f"vcpus={vcpus}", f"ram_mib={ram_mib}"}
    for path in glob.glob(f"{cache}/snapshots/*/meta.json"):
        with open(path) as f:
            if want <= set(json.load(f)["inputs"].splitlines()):
                return os.path.dirname(path)
    raise AssertionError(f"no snapshot with {want} in {cache}")


def wait_until(fn, seconds, what):
    """The first true value of fn(); AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = fn()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def median(values):
    return sorted(values)[len(values) // 2]


def results_at_once(client, code, inputs):
    """Results of runs that are asked for at once, in the order they come."""
    got = []
    threads = [threading.Thread(target=lambda i=i: got.append(
        client.run(code, input=i).result)) for i in inputs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return got


# ---- cases ---------------------------------------------------------------

CASES = []


def case(name):
    def add(fn):
        CASES.append((name, fn))
        return fn
    return add


class Skip(Exception):
    pass


def locked_packages(site, what, target):
    """Skip when `site` is not there, or not of this Python."""
    if not os.path.isdir(site):
        raise Skip(f"{site} is not there: {what} could not be had "
                   f"(make {target})")
    if sys.version_info[:2] != (3, 11):
        raise Skip(f"{what} are locked for Python 3.11, this is "
                   f"{sys.version.split()[0]}")


def takes_minutes_on_soft(what):
    """Leave a case to `make check-long` where the host interprets the guest
    kernel; the summary counts it as skipped, by name and reason."""
    probe = subprocess.run([f"{BUILD}/hutch-vmm", "--probe"],
                           capture_output=True, text=True, check=True)
    if not IS_LONG and "soft" in probe.stdout + probe.stderr:
        raise Skip(f"{what} takes minutes on a soft host; "
                   "`make check-long` runs it")


def equal(got, want, what="value"):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def main():
    only = os.environ.get("HUTCH_CASE", "")
    chosen = [(n, f) for n, f in CASES if only in n]
    print(f"1..{len(chosen)}", flush=True)
    failed = 0
    for i, (name, fn) in enumerate(chosen, 1):
        start = time.monotonic()
        name = name.replace("#", "no.")
        try:
            fn()
            print(f"ok {i} - {name} ({time.monotonic() - start:.1f} s)",
                  flush=True)
        except Skip as e:
            print(f"ok {i} - {name} # SKIP {e}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {i} - {name}", flush=True)
            for line in traceback.format_exc().splitlines():
                note(line)
    for d in list(Daemon.running):
        d.stop()
    sys.exit(1 if failed else 0)


# ---- the daemon ----------------------------------------------------------

class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Daemon:
    running = []
    program = "hutchd"
    env = {}        # more of its environment

    def __init__(self, state=None, **settings):
        """settings: keys of hutchd.conf, e.g. graph_places=2"""
        self.state = state or STATE
        self.settings = settings
        self.process = None
        self.host = self.port = None

    def launch(self, die_at=None):
        """The process; die_at: a moment of api/base/fault.h."""
        os.makedirs(self.state, mode=0o700, exist_ok=True)
        listen = os.path.join(self.state, "listen")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(listen)
        argv = [f"{BUILD}/{self.program}", "--state", self.state, "--listen",
                "127.0.0.1:0"]
        # Also those that the whole run has (tests/run.py --lane-off).
        common = dict(kv.split("=") for kv in os.environ.get(
            "HUTCH_TEST_SETTINGS", "").split())
        for k, v in {**common, **self.settings}.items():
            argv += ["--set", f"{k}={v}"]
        env = dict(os.environ, **self.env,
                   **({"HUTCH_DIE_AT": die_at} if die_at else {}))
        with open(os.path.join(self.state, "daemon.log"), "ab") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env=env)
        Daemon.running.append(self)

    def start(self):
        self.launch()
        return self.await_http()

    def await_http(self):
        listen = os.path.join(self.state, "listen")

        def address():
            if self.process.poll() is not None:
                raise AssertionError("hutchd ended at its start:\n" +
                                     self.log_text()[-3000:])
            with contextlib.suppress(FileNotFoundError):
                with open(listen) as f:
                    return f.read().strip()

        text = wait_until(address, START_S, "hutchd writes STATE/listen")
        self.host, _, port = text.rpartition("//")[2].rpartition(":")
        self.port = int(port)
        wait_until(lambda: self.get("/healthz").status == 200, START_S,
                   "GET /healthz answers")
        return self

    def log_text(self):
        with open(os.path.join(self.state, "daemon.log"),
                  errors="replace") as f:
            return f.read()

    @property
    def pid(self):
        return self.process.pid

    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def end(self, sig, seconds=60):
        if self in Daemon.running:
            Daemon.running.remove(self)
        if not self.is_alive():
            return self.process and self.process.returncode
        self.process.send_signal(sig)
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"hutchd did not end in {seconds} s")
        return status

    def stop(self):
        return self.end(signal.SIGTERM)

    def kill(self):
        return self.end(signal.SIGKILL)

    def get(self, path):
        return call(http.client.HTTPConnection(self.host, self.port,
                                               timeout=30), "GET", path)

    def admin(self, method, path, body=None):
        c = UnixConnection(os.path.join(self.state, "admin.sock"), 60)
        return call(c, method, path, body)

    def client(self, environment="test", **more):
        """A client with a new key; a key's environment may be new too."""
        name = "k" + uuid.uuid4().hex[:8]
        r = self.admin("POST", "/admin/keys",
                       dict(environment=environment, name=name, **more))
        assert r.status == 201, r
        return Client(self, r.json["key"], name, environment)

    def vmm_pids(self):
        live = self.admin("GET", "/admin/ps").json["data"]
        return {x["sandbox"]: x["pid"] for x in live if x["pid"]}

    def metric(self, name):
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise AssertionError(f"no metric {name}")

    def rss_kib(self):
        with open(f"/proc/{self.pid}/status") as f:
            for line in f:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1])


class MovableDaemon(Daemon):
    """The daemon with a clock that moves (hostd/clock.h).  It makes no
    snapshot of a template anew, whatever its age is by that clock."""
    program = "hutchd-movable"

    def __init__(self, state=None, **settings):
        super().__init__(state, **dict({"snapshot_renew_hours": 0},
                                       **settings))
        self.offset_ms = 0
        self.clock = self.state + ".clock"
        self.env = {"HUTCH_TEST_CLOCK": self.clock}

    def pass_time(self, seconds):
        """So much time passes at once, for the daemon alone."""
        self.offset_ms += int(seconds * 1000)
        with open(self.clock + ".new", "w") as f:
            f.write(str(self.offset_ms))
        os.rename(self.clock + ".new", self.clock)


_daemon = None
_lock = threading.RLock()


def daemon():
    """The daemon of this file."""
    global _daemon
    with _lock:
        if _daemon is None or not _daemon.is_alive():
            _daemon = Daemon().start()
        return _daemon


_client = None


def client():
    """A client of this file's daemon; places are plenty in its settings."""
    global _client
    with _lock:
        if _client is None or _client.daemon is not daemon():
            _client = daemon().client()
        return _client


# ---- the pool, and what a daemon holds ------------------------------------

FILL_S = 60     # for one VM


def pool(d):
    r = d.admin("GET", "/admin/pool")
    equal(r.status, 200)
    return r.json


def filled(d, n, seconds=FILL_S):
    """n VMs wait and none is on its way."""
    def fn():
        p = pool(d)
        return p["ready"] == n and not p["starting"] and p
    return wait_until(fn, seconds, f"{n} VMs wait")


def vmms(pid):
    """The VMM processes of a daemon, those that wait and all others."""
    found = []
    for name in glob.glob(f"/proc/{pid}/task/*/children"):
        with open(name) as f:
            found += [int(x) for x in f.read().split()]
    return found


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def cgroups(pid):
    """Of its VMs; its own is swept by the next daemon."""
    return [p for p in glob.glob(f"/sys/fs/cgroup/**/{pid}-*",
                                 recursive=True)
            if not p.endswith("-daemon")]


def links(pid):
    """Open descriptors by kind; numbers of sockets and files left out."""
    names = collections.Counter()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            names[re.sub(r"\d+", "N",
                         os.readlink(f"/proc/{pid}/fd/{fd}"))] += 1
    return names


def files(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder)
                  for at, folders, names in os.walk(folder)
                  for name in folders + names)


def timings(d):
    return [dict(re.findall(r"(\w+)=(\w+)", line))
            for line in d.log_text().splitlines() if " timing=" in line]


# ---- HTTP ----------------------------------------------------------------

class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self):
        return self.body.decode("utf-8", errors="replace")

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        return self.json["error"]["code"]

    @property
    def param(self):
        return self.json["error"].get("param")

    def raw(self, name):
        """The bytes of a top-level member's value, as they came."""
        text = self.body.decode()
        at = text.index(f'"{name}":') + len(name) + 3
        value, end = json.JSONDecoder().raw_decode(text, at)
        del value
        return text[at:end]

    def __repr__(self):
        return f"<{self.status} {self.text[:600]}>"


def call(connection, method, path, body=None, headers=None):
    headers = dict(headers or {})
    if isinstance(body, (dict, list)):
        body = json.dumps(body).encode()
    if isinstance(body, str):
        body = body.encode()
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    try:
        connection.request(method, path, body, headers)
        r = connection.getresponse()
        return Reply(r.status, r.headers, r.read())
    finally:
        connection.close()


def new_key():
    return "t:" + uuid.uuid4().hex


class Run:
    """A run that ended: the answer's fields as attributes."""

    def __init__(self, owner, reply):
        self.owner, self.reply = owner, reply
        self.__dict__.update(reply.json)

    def logs(self, stream="stdout"):
        return self.owner.logs(self.command, stream)

    def __repr__(self):
        return f"<run {self.reply.text[:500]}>"


class Client:
    def __init__(self, d, key, name, environment, graph="main"):
        self.daemon, self.key, self.name = d, key, name
        self.environment, self.graph = environment, graph

    def call(self, method, path, body=None, key=None, query=None,
             headers=None, timeout=120):
        q = {"graph": self.graph, **(query or {})}
        q = {k: v for k, v in q.items() if v is not None}
        full = f"{path}?{urllib.parse.urlencode(q)}" if q else path
        h = {"Authorization": f"Bearer {self.key}", **(headers or {})}
        if key:
            h["Idempotency-Key"] = key
        c = http.client.HTTPConnection(self.daemon.host, self.daemon.port,
                                       timeout=timeout)
        return call(c, method, full, body, h)

    def start(self, code, key=None, wait_ms=0, **run):
        """POST a run; the reply, whatever it is."""
        return self.call("POST", "/v1/sandboxes",
                         {"run": {"code": code, **run}, "wait_ms": wait_ms},
                         key or new_key())

    def run(self, code, key=None, seconds=END_S, **run):
        """A run and its end."""
        r = self.start(code, key, 30000, **run)
        assert r.status in (200, 202), r
        if r.status == 200:
            return Run(self, r)
        return self.wait(r.json["command"], seconds)

    def wait(self, command, seconds=END_S):
        def final():
            r = self.command(command, wait_ms=10000)
            return r.json["status"] in FINAL and r

        r = wait_until(final, seconds, f"{command} ends")
        run = Run(self, r)
        run.command = run.id
        return run

    def command(self, command, wait_ms=None):
        r = self.call("GET", "/v1/sandboxes/commands/get",
                      query=dict(command=command, wait_ms=wait_ms))
        assert r.status == 200, r
        return r

    def sandbox(self, sandbox):
        r = self.call("GET", "/v1/sandboxes/get", query=dict(sandbox=sandbox))
        assert r.status == 200, r
        return r.json

    def cancel(self, command):
        return self.call("POST", "/v1/sandboxes/commands/cancel",
                         query=dict(command=command))

    def log_slice(self, command, stream, offset=0, limit=None):
        return self.call("GET", "/v1/sandboxes/commands/logs",
                         query=dict(command=command, stream=stream,
                                    offset=offset, limit=limit))

    def logs(self, command, stream="stdout"):
        """All bytes that are kept, read by offset."""
        out, offset = b"", 0
        while True:
            r = self.log_slice(command, stream, offset)
            assert r.status == 200, r
            j = r.json
            data = (base64.b64decode(j["data"]) if j["encoding"] == "base64"
                    else j["data"].encode())
            out += data
            if j["eof"] or j["next_offset"] == offset:
                return out
            offset = j["next_offset"]


def read_fixture(name):
    with open(os.path.join(FIXTURES, name), encoding="utf-8") as f:
        return f.read()


def hutch(*argv, stdin=None, timeout=END_S, env=None, **more):
    """The command line; returns the finished process, text mode."""
    return subprocess.run([f"{BUILD}/hutch", *argv], input=stdin, text=True,
                          capture_output=True, timeout=timeout,
                          env=dict(os.environ, **(env or {})), **more)


def interrupted(daemon, *argv):
    """Ctrl-C on `hutch ARGV` whose first call is not answered yet: the daemon
    stands still until then.  Returns exit status, output, errors."""
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        p = subprocess.Popen([f"{BUILD}/hutch", *argv], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=dict(os.environ, HUTCH_STATE=daemon.state))
        time.sleep(1)
        p.send_signal(signal.SIGINT)
        time.sleep(.3)
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    out, err = p.communicate(timeout=60)
    return p.returncode, out, err
