#!/usr/bin/env python3
"""The runners on their express lane, without a VM: this test plays the
monitor and init.  A memfd stands for the page, a socket for the doorbell.

test: timeout=300 beside=yes
"""

import mmap
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import cbor
import vm

RUNNERS = os.path.join(vm.ROOT, "guest", "runner")
LIBRARIES = os.path.join(vm.BUILD, "guest", "test")
PYTHON = [sys.executable, "-I", "-B", "python.py"]
NODE = ["node", "--experimental-vm-modules", "--no-warnings", "node.js"]
OUT, ERR, PAGE, CHANNEL, BELL = 12, 13, 14, 15, 16
CLOSED, READY, REQUEST, FINISHING, ANSWERED, ADOPTED, PART = range(7)
REQUEST_OFF, ANSWER_OFF, PAGE_BYTES = 4096, 1 << 20, 2 << 20

n_cases = n_failed = 0


def case(ok, name, *detail):
    global n_cases, n_failed
    n_cases += 1
    n_failed += not ok
    print(f"{'ok' if ok else 'not ok'} {n_cases} - {name}", flush=True)
    if not ok:
        print("# " + " ".join(str(d)[:900] for d in detail).replace(
            "\n", "\n# "), flush=True)


def hold_places():
    """The runner's numbers stay taken: nothing of ours gets one."""
    null = os.open("/dev/null", os.O_RDWR)
    while null <= BELL:
        null = os.dup(null)
    for fd in range(3, BELL + 1):
        os.dup2(null, fd)
    os.close(null)


class Runner:
    """One waiting runner, armed."""

    def __init__(self, folder, argv=PYTHON):
        self.page_fd = os.memfd_create("page")
        os.truncate(self.page_fd, PAGE_BYTES)
        self.page = mmap.mmap(self.page_fd, PAGE_BYTES)
        self.channel, channel = socket.socketpair()
        self.bell, bell = socket.socketpair()
        self.pipes = [os.pipe(), os.pipe()]
        for r, w in self.pipes:
            os.set_blocking(r, False)
        places = {OUT: self.pipes[0][0], ERR: self.pipes[1][0],
                  PAGE: self.page_fd, CHANNEL: channel.fileno(),
                  BELL: bell.fileno()}
        for to, fd in places.items():
            os.dup2(fd, to)
        self.proc = subprocess.Popen(
            [*argv[:-1], os.path.join(folder, argv[-1]), "plain", "lane"],
            stdin=subprocess.DEVNULL, stdout=self.pipes[0][1],
            stderr=self.pipes[1][1], pass_fds=tuple(places))
        hold_places()
        for _, w in self.pipes:
            os.close(w)
        channel.close()
        bell.close()
        self.channel.settimeout(60)
        self.bell.settimeout(60)
        while self.message()[0] != 2:
            pass
        self.arm()
        self.rung()

    def arm(self):
        """ARM; the runner says that it heeds it, then waits at its bell."""
        self.channel.sendall(struct.pack("<6I", 2, 0, 0, 0, 0, 0))
        said = self.message()
        assert said == (7, 0, b""), said

    def message(self):
        head = self.channel.recv(12, socket.MSG_WAITALL)
        if len(head) < 12:
            return None
        kind, code, n = struct.unpack("<3I", head)
        return kind, code, self.channel.recv(n, socket.MSG_WAITALL)

    def rung(self):
        """Waits for the bell; False when the runner went without."""
        try:
            return self.bell.recv(1) == b"0"
        except ConnectionResetError:
            return False

    def resume(self):
        self.bell.send(b"g")

    @property
    def state(self):
        return struct.unpack_from("<I", self.page, 4)[0]

    @state.setter
    def state(self, v):
        struct.pack_into("<I", self.page, 4, v)

    def put(self, data, state):
        assert self.state == READY
        self.page[REQUEST_OFF:REQUEST_OFF + len(data)] = data
        struct.pack_into("<I", self.page, 8, len(data))
        self.state = state
        self.resume()

    def request(self, data):
        area = ANSWER_OFF - REQUEST_OFF
        while len(data) > area:
            self.put(data[:area], PART)
            data = data[area:]
            assert self.rung()
        self.put(data, REQUEST)

    def run(self, code, input=None, cmd=7, **kw):
        p = {1: code.encode()}
        if input is not None:
            p[2] = input.encode()
        p.update({{"config": 3, "env": 5, "head": 6, "tail": 7}[k]: v
                  for k, v in kw.items()})
        self.request(vm.frame(vm.RUN, p, cmd))

    def answer(self):
        n = struct.unpack_from("<I", self.page, 12)[0]
        data, frames = self.page[ANSWER_OFF:ANSWER_OFF + n], []
        while data:
            size, kind, _, cmd = cbor.FRAME.unpack_from(data)
            frames.append((vm.UP[kind], cmd, data[16:16 + size]))
            data = data[16 + size:]
        return frames

    def outcome(self):
        """Rings, and everything of the answer by name."""
        if not self.rung():
            return None
        o = Outcome()
        o.state = self.state
        frames = self.answer()
        o.names = [f[0] for f in frames]
        for name, cmd, body in frames:
            o.cmds.add(cmd)
            if name == "OUTPUT":
                offset, total, stream = cbor.OUTPUT.unpack_from(body)
                o.out[stream].add(offset, total, body[cbor.OUTPUT.size:])
            elif name == "ENDED":
                o.end = {vm.ENDED[k]: v for k, v in cbor.decode(body).items()}
                o.end["how"] = vm.HOW[o.end["how"]]
        return o

    def close(self):
        self.channel.close()
        self.bell.close()
        self.proc.kill()
        self.proc.wait()
        for r, _ in self.pipes:
            os.close(r)
        self.page.close()
        os.close(self.page_fd)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class Outcome:
    end = state = names = None

    def __init__(self):
        self.out = {1: vm.Output(), 2: vm.Output()}
        self.cmds = set()

    def __repr__(self):
        return (f"state {self.state} frames {self.names} end {self.end} out "
                f"{self.out[1].bytes()[-300:]} err "
                f"{self.out[2].bytes()[-600:]}")


def ran(folder, code, *args, argv=PYTHON, **kw):
    with Runner(folder, argv) as r:
        r.run(code, *args, **kw)
        o = r.outcome()
        r.resume()
        r.proc.wait(30)
    return o


def test_answers(d):
    o = ran(d, "def run(input, config):\n    return sum(input)", "[1,2,3]")
    case(o.state == ANSWERED and o.names == ["STARTED", "ENDED"] and
         o.cmds == {7} and o.end["how"] == "exited" and o.end["code"] == 0 and
         o.end["result"] == b"6" and "error" not in o.end,
         "the sum of the guide", o)
    o = ran(d, """
import os, subprocess, sys
def run(i, c):
    print("one")
    os.write(1, b"two\\n")
    subprocess.run(["sh", "-c", "echo three; echo err >&2"])
    return [i, c, os.environ["A"]]
""", config=b'{"k":0.1}', env=[b"A=x=y"])
    case(o.end["result"] == b'[null,{"k":0.1},"x=y"]' and
         o.out[1].bytes() == b"one\ntwo\nthree\n" and
         o.out[2].bytes() == b"err\n" and o.end["stdout_bytes"] == 14 and
         o.end["stderr_bytes"] == 4, "output of three kinds; config, env", o)
    o = ran(d, "def run(i, c):\n    return 1 / 0")
    case(o.end["how"] == "exited" and o.end["code"] == 1 and
         "result" not in o.end and
         o.out[2].bytes().startswith(b"Traceback") and
         b'File "<run>", line 2' in o.out[2].bytes() and
         b"python.py" not in o.out[2].bytes(), "an exception", o)
    o = ran(d, "import sys\ndef run(i, c): sys.exit(3)")
    case(o.end["how"] == "exited" and o.end["code"] == 3, "SystemExit", o)
    o = ran(d, "def run(i, c): return {1}")
    case(o.end["how"] == "result_not_json" and "JSON" in o.end["error"],
         "not JSON", o)
    o = ran(d, "def run(i, c): return 'x' * (48 * 1024 - 1)")
    case(o.end["how"] == "result_too_large" and "49153" in o.end["error"],
         "too large", o)
    o = ran(d, "def run(i, c): return 'x' * (48 * 1024 - 2)")
    case(o.end["how"] == "exited" and len(o.end["result"]) == 48 << 10,
         "a result of exactly 48 KiB", o)
    big = '"' + "x" * (900 << 10) + '"'
    o = ran(d, "def run(i, c): return len(i)", big)
    case(o.end["result"] == b"%d" % (900 << 10), "a request of 900 KiB", o)
    o = ran(d, "def run(i, c): return [len(i), len(c), i[-1], c[-1]]", big,
            config=b'"' + b"y" * (1 << 20) + b'"')
    case(o.end["result"] == b'[%d,%d,"x","y"]' % (900 << 10, 1 << 20),
         "a request of 1.9 MiB, in two parts", o)
    o = ran(d, "import atexit\natexit.register(print, 'bye')\n"
            "def run(i, c): return 1")
    case(o.out[1].bytes() == b"bye\n", "exit handlers run first", o)


def test_caps(d):
    code = ("def run(i, c):\n  print('a' * 30, end='')\n"
            "  print('b' * 20000, end='')\n  print('c' * 40, end='')")
    o = ran(d, code, head=30, tail=40)
    case(o.out[1].bytes() == b"a" * 30 + b"c" * 40 and
         o.out[1].total == 20070 and o.end["stdout_bytes"] == 20070,
         "head and tail within the caps", o)
    o = ran(d, code, head=4 << 20, tail=1 << 20)
    case(len(o.out[1].bytes()) == 20070 and o.end["how"] == "exited",
         "caps larger than the lane, output that fits", o)


def drain(r, i, data):
    try:
        data += os.read(r.pipes[i][0], 1 << 20)
    except BlockingIOError:
        time.sleep(0.01)
    return data


def test_adopted(d):
    with Runner(d) as r:
        r.run("import time\ndef run(i, c):\n  print('x')\n"
              "  time.sleep(0.5)\n  return 5")
        time.sleep(0.1)
        r.state = ADOPTED
        m = r.message()
        case(m == (3, 0, b"5") and drain(r, 0, b"") == b"x\n" and
             r.state == ADOPTED, "adopted: its answer is on the channel", m)
    code = "def run(i, c):\n  import sys\n  sys.stdout.write('y' * 60000)"
    with Runner(d) as r:
        r.run(code.replace("60000", "600000"), head=4 << 20, tail=0)
        got = b""
        while len(got) < 600000 and r.proc.poll() is None:
            got = drain(r, 0, got)
            r.state = ADOPTED
        case(len(got) == 600000 and r.message() == (3, 0, b"null"),
             "more output than the lane takes waits for adoption", len(got))
    with Runner(d) as r:
        r.run("import os\ndef run(i, c):\n  os._exit(9)")
        case(r.proc.wait(30) == 9 and r.state == REQUEST and not r.rung(),
             "os._exit before adoption: the state stays, no bell")


def test_forks(d):
    code = """
import os, time
def run(i, c):
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return "parent"
    %s
    return "child"
"""
    o = ran(d, code % "pass")
    case(o.end["result"] == b'"parent"', "a fork that returns", o)
    o = ran(d, """
import os
def run(i, c):
    def maps():
        return [l for l in open("/proc/self/maps") if "memfd:page" in l]
    r, w = os.pipe()
    n = len(maps())
    if not os.fork():
        os.write(w, b"%d" % len(maps()))
        os._exit(0)
    os.wait()
    return [n, int(os.read(r, 9))]
""")
    case(o.end["result"] == b"[1,0]", "no child has the page", o)
    with Runner(d) as r:
        r.run("import os\ndef run(i, c):\n  if os.fork(): os._exit(0)\n"
              "  return 1")
        case(r.proc.wait(30) == 0 and r.state == REQUEST,
             "only a fork returns: nothing is answered", r.state)


def test_states(d):
    with Runner(d) as r:
        r.resume()
        m = r.message()
        case(m and m[0] == 2 and r.state == CLOSED,
             "resumed without a request: closed, and it says so", m)
        code = b"def run(i, c): return sum(i)"
        r.channel.sendall(struct.pack("<6I", 1, len(code), 5, 4, 0, 0) +
                          code + b"[1,2]" + b"null")
        m = r.message()
        case(m == (3, 0, b"3"), "then a run over the channel", m)
    with Runner(d) as r:
        r.resume()
        r.message()
        r.arm()
        case(r.rung() and r.state == READY, "armed again")
        r.run("def run(i, c): return 1")
        o = r.outcome()
        case(o.end["result"] == b"1", "and used", o)
        r.resume()
        case(r.proc.wait(30) == 0, "an answered runner ends")
    bad = vm.frame(vm.RUN, {1: b"x"}, 9)
    for what, data in (("cut short", bad[:-1]), ("another frame",
                       vm.frame(vm.EXEC, {1: b"x"}, 9)),
                       ("no code", vm.frame(vm.RUN, {2: b"1"}, 9)),
                       ("nothing", b""), ("too long", bad + b"x")):
        with Runner(d) as r:
            r.page[REQUEST_OFF:REQUEST_OFF + 64] = bytes(64)
            r.request(data)
            o = r.outcome()
            case(o.state == ANSWERED and o.names == ["ENDED"] and
                 o.end["how"] == "not_started" and "RUN" in o.end["error"],
                 f"a request that is none: {what}", o)


def test_node(d):
    if not shutil.which("node"):
        print("# skip: no node on this machine")
        return

    def node(code, *args, **kw):
        return ran(d, code, *args, argv=NODE, **kw)

    o = node("async function run(input, config) { console.log('hi'); "
             "console.error('err'); return [input.length, config, "
             "process.env.A] }", "[1,2,3]", config=b'{"a":0.1}',
             env=[b"A=\xc3\xbc"])
    case(o.state == ANSWERED and o.end["how"] == "exited" and
         o.end["result"] == '[3,{"a":0.1},"\u00fc"]'.encode() and
         o.out[1].bytes() == b"hi\n" and o.out[2].bytes() == b"err\n",
         "node: result, output, config, env", o)
    o = node("function run() { null.x }")
    case(o.end["how"] == "exited" and o.end["code"] == 1 and
         b"<run>:1" in o.out[2].bytes() and b"node.js" not in
         o.out[2].bytes(), "node: an exception", o)
    o = node("function run() { return 10n }")
    case(o.end["how"] == "result_not_json", "node: not JSON", o)
    o = node("function run() { return 'x'.repeat(48 * 1024 - 1) }")
    case(o.end["how"] == "result_too_large", "node: too large", o)
    o = node("function run() { return 'x'.repeat(48 * 1024 - 2) }")
    case(o.end["how"] == "exited" and len(o.end["result"]) == 48 << 10,
         "node: exactly 48 KiB", o)
    o = node("function run(i) { return i.length }",
             '"' + "x" * (900 << 10) + '"')
    case(o.end["result"] == b"%d" % (900 << 10), "node: 900 KiB", o)
    with Runner(d, NODE) as r:
        r.run("async function run() { console.log('x'); await new Promise("
              "(f) => setTimeout(f, 500)); return 5 }")
        time.sleep(0.2)
        r.state = ADOPTED
        case(r.message() == (3, 0, b"5") and drain(r, 0, b"") == b"x\n",
             "node: adopted")
    with Runner(d, NODE) as r:
        r.run("function run() { process.exit(4) }")
        case(r.proc.wait(30) == 4 and r.state == REQUEST,
             "node: process.exit before adoption")
    with Runner(d, NODE) as r:
        r.resume()
        m = r.message()
        case(m and m[0] == 2 and r.state == CLOSED, "node: closed", m)
        code = b"const run = (i) => i.length"
        r.channel.sendall(struct.pack("<6I", 1, len(code), 5, 4, 0, 0) +
                          code + b"[1,2]" + b"null")
        m = r.message()
        case(m == (3, 0, b"2"), "node: then a run over the channel", m)
    codes = "function run() { return Math.random() }"
    a, b = node(codes), node(codes)
    case(a.end["result"] != b.end["result"], "node: Math.random differs", a)


def main():
    for name in ("lane.so", "lane.node"):
        if not os.path.exists(os.path.join(LIBRARIES, name)):
            print(f"build/guest/test/{name} is missing: make guest")
            return 77
    hold_places()
    with tempfile.TemporaryDirectory() as d:
        for path in (RUNNERS + "/python.py", RUNNERS + "/node.js",
                     LIBRARIES + "/lane.so", LIBRARIES + "/lane.node"):
            shutil.copy(path, d)
        test_answers(d)
        test_caps(d)
        test_adopted(d)
        test_forks(d)
        test_states(d)
        test_node(d)
    print(f"1..{n_cases}")
    return n_failed != 0


sys.exit(main())
