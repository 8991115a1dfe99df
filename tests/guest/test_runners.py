#!/usr/bin/env python3
"""The waiting runners as processes of this machine: the contract of
run(input, config) for python, node and shell, without a VM.

test: timeout=300 beside=yes
"""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
RUNNERS = os.path.join(ROOT, "guest", "runner")
CHANNEL = 15
(PROGRESS, WAITING, RESULT, FAILED, NOT_JSON, TOO_LARGE) = range(1, 7)

n_cases = 0
n_failed = 0


def case(ok, name, detail=""):
    global n_cases, n_failed
    n_cases += 1
    n_failed += not ok
    print(f"{'ok' if ok else 'not ok'} {n_cases} - {name}")
    if not ok:
        print("# " + str(detail).replace("\n", "\n# "))
    sys.stdout.flush()


class Outcome:
    kind = code = None
    text = stdout = stderr = b""
    status = None

    def __repr__(self):
        return (f"kind {self.kind} code {self.code} text {self.text[:300]} "
                f"status {self.status} out {self.stdout[-300:]} "
                f"err {self.stderr[-600:]}")


def receive(sock, n):
    data = b""
    while len(data) < n:
        more = sock.recv(n - len(data))
        if not more:
            return None
        data += more
    return data


def message(sock):
    head = receive(sock, 12)
    if head is None:
        return None
    kind, code, n = struct.unpack("<3I", head)
    return kind, code, receive(sock, n)


def run(argv, code, text_in=b"null", config=b"null", env=b""):
    """One runner, one request, as init does it."""
    if isinstance(code, str):
        code = code.encode()
    ours, theirs = socket.socketpair()
    os.dup2(theirs.fileno(), CHANNEL)
    theirs.close()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out,
                             stderr=err, pass_fds=(CHANNEL,))
        os.close(CHANNEL)
        ours.settimeout(60)
        while True:
            m = message(ours)
            if m is None or m[0] == WAITING:
                break
        o = Outcome()
        if m is not None:
            head = struct.pack("<6I", 1, len(code), len(text_in), len(config),
                               len(env), 0)
            ours.sendall(head + code + text_in + config + env)
            m = message(ours)
            if m:
                o.kind, o.code, o.text = m
        ours.close()
        o.status = p.wait(60)
        out.seek(0)
        err.seek(0)
        o.stdout, o.stderr = out.read(), err.read()
    return o


def python(code, *args, **kw):
    return run([sys.executable, "-I", "-B",
                os.path.join(RUNNERS, "python.py"), "plain"],
               code, *args, **kw)


def node(code, *args, **kw):
    return run(["node", "--experimental-vm-modules", "--no-warnings",
                os.path.join(RUNNERS, "node.js"), "plain"], code, *args, **kw)


def result(o):
    return o.text if o.kind == RESULT else None


# ---- python -----------------------------------------------------------------

def test_python():
    o = python("def run(input, config):\n    return sum(input)", b"[1,2,3]")
    case(result(o) == b"6", "python: the sum of the guide", o)
    exact = b'{"a":0.1,"b":36893488147419103232,"c":"\\ud800","d":"\\u0000"}'
    o = python("def run(input, config): return input", exact)
    case(result(o) == exact, "python: numbers and surrogates are kept", o)
    big = b"1" + b"0" * 20000
    o = python("def run(i, c): return [i, c]", big, b'{"k":[1]}')
    case(result(o) == b"[" + big + b',{"k":[1]}]',
         "python: an integer of 20,001 digits", o)
    data = json.dumps("x" * ((1 << 20) - 2)).encode()
    o = python("def run(i, c): return len(i)", data)
    case(result(o) == b"1048574", "python: input of 1 MiB", o)
    o = python("def run(i, c):\n    x = 1\n    return x / 0\n")
    case(o.kind == FAILED and o.code == 1 and
         b'File "<run>", line 3, in run' in o.stderr and
         b"return x / 0" in o.stderr and b"python.py" not in o.stderr and
         b"ZeroDivisionError" in o.stderr,
         "python: a traceback of the user's frames only", o)
    o = python("def run(i, c):\n  return 1 +\n")
    case(o.kind == FAILED and b'File "<run>", line 2' in o.stderr and
         b"SyntaxError" in o.stderr, "python: a syntax error", o)
    o = python("x = 1")
    case(o.kind == FAILED and b"must define a function run" in o.stderr,
         "python: no run()", o)
    for value in ("float('nan')", "{1, 2}", "{(1, 2): 3}", "b'x'", "object()"):
        o = python(f"def run(i, c): return {value}")
        case(o.kind == NOT_JSON and o.code == 1 and o.text,
             f"python: {value} is not JSON", o)
    o = python("def run(i, c):\n  a = []\n  a.append(a)\n  return a")
    case(o.kind == NOT_JSON, "python: a circular result", o)
    o = python("def run(i, c): return 'x' * (48 * 1024 - 2)")
    case(o.kind == RESULT and len(o.text) == 48 << 10,
         "python: a result of exactly 48 KiB", o)
    o = python("def run(i, c): return 'x' * (48 * 1024 - 1)")
    case(o.kind == TOO_LARGE and b"49153" in o.text,
         "python: a result of 48 KiB and a byte", o)
    for code, want in (("sys.exit(3)", 3), ("sys.exit()", 0),
                       ("sys.exit('bye')", 1)):
        o = python(f"import sys\ndef run(i, c): {code}")
        case(o.kind == FAILED and o.code == want, f"python: {code}", o)
    o = python("import os\ndef run(i, c): os._exit(7)")
    case(o.kind is None and o.status == 7, "python: os._exit(7)", o)
    o = python("""
import os, subprocess, sys
def run(i, c):
    print("one")
    subprocess.run(["sh", "-c", "echo two; echo err >&2; ls -l /proc/self/fd"])
    print("three", file=sys.stderr)
    return [f for f in os.listdir("/proc/self/fd") if f == "15"]
""")
    case(result(o) == b"[]" and o.stdout.startswith(b"one\ntwo\n") and
         b"socket" not in o.stdout and b"three" in o.stderr,
         "python: output stays apart from the channel; no child has it", o)
    o = python("import os\ndef run(i, c):\n  os.fork()\n  return 1")
    case(result(o) == b"1", "python: a fork that returns answers once", o)
    o = python("def run(i, c):\n  return input()\n")
    case(o.kind == FAILED and b"EOFError" in o.stderr,
         "python: standard input is empty", o)
    o = python("import os\ndef run(i, c): return os.environ['A_B']",
               env=b"A_B=x=y\0C=1\0")
    case(result(o) == b'"x=y"', "python: env", o)
    o = python("async def run(i, c): return i", b"5")
    case(result(o) == b"5", "python: async run", o)
    o = python("import atexit\natexit.register(print, 'bye')\n"
               "def run(i, c): return 1")
    case(result(o) == b"1" and o.stdout == b"bye\n",
         "python: atexit runs before the answer", o)
    o = python("import pickle\nclass A: pass\ndef run(i, c):\n"
               "  return type(pickle.loads(pickle.dumps(A()))).__name__")
    case(result(o) == b'"A"', "python: classes can be pickled", o)
    o = python("import os\ndef run(i, c):\n"
               "  return [k for k in os.environ if 'MALLOC' in k]")
    case(result(o) == b"[]", "python: no settings of the runner in env", o)
    o = python("def run(i, c):\n  raise BaseException('x')")
    case(o.kind == FAILED and b"BaseException: x" in o.stderr,
         "python: BaseException", o)
    o = python("def run(i, c):\n  def f(): f()\n  f()")
    case(o.kind == FAILED and b"RecursionError" in o.stderr,
         "python: recursion", o)
    codes = "import random\ndef run(i, c): return random.random()"
    a, b = python(codes), python(codes)
    case(result(a) and result(a) != result(b), "python: random is seeded", a)
    o = python("import sys, os, time\ndef run(i, c):\n  print('a')\n"
               "  print('b')\n  os.kill(os.getpid(), 9)")
    case(o.stdout == b"a\nb\n", "python: lines are out before a kill", o)
    o = python(b"def run(i, c): return '\xff'")
    case(o.kind == FAILED and b"SyntaxError" in o.stderr,
         "python: code that is not UTF-8", o)


# ---- node -------------------------------------------------------------------

def test_node():
    if not shutil.which("node"):
        print("# skip: no node on this machine")
        return
    shapes = {
        "function": "function run(input, config) { return input.length }",
        "const": "const run = (i) => i.length;",
        "async": "async function run(i) { await null; return i.length }",
        "exports.run": "exports.run = (i) => i.length",
        "module.exports": "module.exports = (i) => i.length // end",
        "module.exports.run": "module.exports = { run: (i) => i.length }",
        "export function": "export function run(i) { return i.length }",
        "export default": "export default (i) => i.length",
        "import": "import path from 'node:path';\n"
                  "import { join } from 'path';\n"
                  "export const run = (i) => join('a', 'b') && i.length",
        "top-level await": "const n = await Promise.resolve(1);\n"
                           "export const run = (i) => i.length * n",
        "require": "const fs = require('fs'); function run(i) "
                   "{ fs.existsSync('/'); return i.length }",
    }
    for name, code in shapes.items():
        o = node(code, b"[1,2,3]")
        case(result(o) == b"3", f"node: {name}", o)
    o = node("function run(i, c) { return [i, c] }", b'{"a":0.1}', b'"x"')
    case(result(o) == b'[{"a":0.1},"x"]', "node: input and config", o)
    o = node("function run(i) { return i }", b'"\\ud800x"')
    case(result(o) == b'"\\ud800x"', "node: a lone surrogate", o)
    o = node("function run(i) { return i }", '"\U0001f600"'.encode())
    case(result(o) == '"\U0001f600"'.encode(), "node: a pair stays UTF-8", o)
    o = node("function run(i) { return i.length }",
             json.dumps("x" * ((1 << 20) - 2)).encode())
    case(result(o) == b"1048574", "node: input of 1 MiB", o)
    o = node("function run() {\n  null.x\n}")
    case(o.kind == FAILED and o.code == 1 and b"<run>:2" in o.stderr and
         b"TypeError" in o.stderr and b"node.js" not in o.stderr,
         "node: an exception", o)
    o = node("function run( {")
    case(o.kind == FAILED and b"SyntaxError" in o.stderr,
         "node: a syntax error", o)
    o = node("const x = 1")
    case(o.kind == FAILED and b"must define a function run" in o.stderr,
         "node: no run()", o)
    o = node("async function run() { throw new Error('late') }")
    case(o.kind == FAILED and b"late" in o.stderr, "node: a rejection", o)
    o = node("function run() { Promise.reject(new Error('lost')); "
             "return new Promise((r) => setTimeout(r, 500)) }")
    case(o.kind == FAILED and b"lost" in o.stderr,
         "node: an unhandled rejection", o)
    o = node("function run() { return new Promise(() => {}) }")
    case(o.kind == FAILED and b"never settles" in o.stderr,
         "node: a promise that never settles", o)
    for value in ("NaN", "[Infinity]", "10n", "new Map()", "{a:new Set()}",
                  "() => 1", "Symbol('x')"):
        o = node(f"function run() {{ return ({value}) }}")
        case(o.kind == NOT_JSON, f"node: {value} is not JSON", o)
    o = node("function run() { }")
    case(result(o) == b"null", "node: no value is null", o)
    o = node("function run() { return 'x'.repeat(48 * 1024 - 2) }")
    case(o.kind == RESULT and len(o.text) == 48 << 10, "node: 48 KiB", o)
    o = node("function run() { return 'x'.repeat(48 * 1024 - 1) }")
    case(o.kind == TOO_LARGE, "node: 48 KiB and a byte", o)
    o = node("function run() { process.exit(4) }")
    case(o.kind is None and o.status == 4, "node: process.exit(4)", o)
    o = node("""
const { spawnSync } = require("child_process");
function run() {
	console.log("one");
	const r = spawnSync("ls", ["-l", "/proc/self/fd"]);
	return String(r.stdout).includes("socket:") &&
		String(r.stdout).includes(" 15 ->");
}""")
    case(result(o) == b"false" and o.stdout == b"one\n",
         "node: no child has the channel", o)
    codes = ("const crypto = require('crypto'); function run() { return "
             "[Math.random(), Math.random(), crypto.randomUUID()] }")
    a, b = node(codes), node(codes)
    va, vb = json.loads(a.text), json.loads(b.text)
    case(all(x != y for x, y in zip(va, vb)) and 0 <= va[0] < 1,
         "node: random numbers differ", a)
    o = node("function run() { return process.env.A }", env=b"A=b=c\0")
    case(result(o) == b'"b=c"', "node: env", o)
    o = node("function run() { JSON.stringify = null; JSON.parse = null; "
             "return { a: [1, true, null] } }")
    case(result(o) == b'{"a":[1,true,null]}',
         "node: user code that breaks JSON", o)


# ---- shell ------------------------------------------------------------------

def shell(code, text_in=b"null", env=b""):
    """As init does it: files, then one byte."""
    with tempfile.TemporaryDirectory() as d:
        os.mkdir(d + "/out")
        for name in ("code", "input", "config", "env", "out/result"):
            open(f"{d}/{name}", "w").close()
        ours, theirs = socket.socketpair()
        os.dup2(theirs.fileno(), CHANNEL)
        theirs.close()
        environ = {"PATH": os.environ["PATH"], "RUN_INPUT": d + "/input",
                   "RUN_CONFIG": d + "/config", "RUN_RESULT": d + "/out/result"}
        with open(d + "/input") as stdin, \
                tempfile.TemporaryFile() as out, \
                tempfile.TemporaryFile() as err:
            p = subprocess.Popen(
                ["bash", os.path.join(RUNNERS, "shell.sh"), "plain"],
                stdin=stdin, stdout=out, stderr=err, env=environ,
                pass_fds=(CHANNEL,))
            os.close(CHANNEL)
            ours.settimeout(60)
            m = message(ours)
            for name, data in (("code", code.encode()), ("input", text_in),
                               ("config", b"null"), ("env", env)):
                with open(f"{d}/{name}", "wb") as f:
                    f.write(data)
            ours.sendall(b"r")
            o = Outcome()
            o.status = p.wait(60)
            out.seek(0)
            err.seek(0)
            o.stdout, o.stderr = out.read(), err.read()
            o.kind = m and m[0]
            with open(d + "/out/result", "rb") as f:
                o.text = f.read()
        return o


def test_shell():
    o = shell('echo hello; echo \'{"a":1}\' > "$RUN_RESULT"')
    case(o.kind == WAITING and o.status == 0 and o.stdout == b"hello\n" and
         o.text == b'{"a":1}\n', "shell: output and result", o)
    o = shell("cat; exit 5", b"[1,2]")
    case(o.status == 5 and o.stdout == b"[1,2]", "shell: input on stdin", o)
    o = shell('wc -c < "$RUN_INPUT"; echo "$A"; cat "$RUN_CONFIG"', b"12345",
              env=b"export A='it'\\''s'\n")
    case(o.stdout.split() == [b"5", b"it's", b"null"], "shell: files and env",
         o)
    o = shell("ls -l /proc/self/fd")
    case(b"socket" not in o.stdout, "shell: no child has the channel", o)
    o = shell("echo $0 $#; false")
    case(o.status == 1 and o.stdout == b"run 0\n", "shell: its last status", o)
    o = shell("set -e\nfalse\necho not here")
    case(o.status == 1 and o.stdout == b"", "shell: set -e", o)
    o = shell("if then")
    case(o.status != 0 and b"syntax error" in o.stderr,
         "shell: a syntax error", o)


test_python()
test_node()
test_shell()
print(f"1..{n_cases}")
sys.exit(n_failed != 0)
