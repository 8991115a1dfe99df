#!/usr/bin/env python3
"""How a run can end, what its result may be, and what does not disturb it.

test: timeout=1500 beside=yes seconds=18
"""
import json

from hutchlib import case, client, equal, main

KIB = 1024


def run(body, **more):
    return client().run(body, **more)


@case("LBB-86: an exception: 200, ok false, exit code 1, traceback in logs")
def exception():
    r = run("def run(input, config):\n    return 1 / input", input=0)
    equal(r.reply.status, 200)
    equal((r.ok, r.exit_code, r.result, r.status),
          (False, 1, None, "failed"))
    text = r.logs("stderr").decode()
    assert "ZeroDivisionError: division by zero" in text, text
    assert "Traceback" in text and "return 1 / input" in text, text
    c = client().command(r.command).json
    assert "ZeroDivisionError" in c["stderr"]["tail"], c


@case("LBB-83: code without run(): a failed run that says so")
def no_run():
    r = run("x = 1")
    equal((r.ok, r.exit_code, r.status), (False, 1, "failed"))
    assert b"must define" in r.logs("stderr"), r.logs("stderr")
    r = run("def run(:\n")
    equal((r.ok, r.exit_code), (False, 1))
    assert b"SyntaxError" in r.logs("stderr")


@case("LBB-84: a result of exactly 48 KiB passes, one byte more does not")
def result_size():
    r = run("def run(n, c): return 'x' * n", input=48 * KIB - 2)
    assert r.ok, r
    equal(len(r.result), 48 * KIB - 2)
    r = run("def run(n, c): return 'x' * n", input=48 * KIB - 1)
    equal((r.ok, r.status, r.result, r.reason),
          (False, "failed", None, "result_too_large"))
    assert str(48 * KIB) in r.message, r.message


@case("LBB-84: a result that is not JSON is a clear failure")
def result_not_json():
    for expression in ("{1, 2}", "object()", "float('nan')", "b'x'",
                       "(lambda l: l.append(l) or l)([])"):
        r = run(f"def run(i, c): return {expression}")
        equal((r.ok, r.status, r.result, r.reason),
              (False, "failed", None, "result_not_json"), expression)
        assert "JSON" in r.message, r.message


@case("JSON comes back as it went in: 0.1, 2^65, escapes, big integers")
def fidelity():
    c = client()
    values = ["0.1", str(2 ** 65), "-0.0", '"\\ud800"', '"\\u0000"', '"é"',
              '{"a":{"b":[]},"z":1,"a2":2}', "1e-7", "123456789012345678901"]
    body = ('{"run":{"code":"def run(i, c): return i","input":[%s]},'
            '"wait_ms":30000}' % ",".join(values))
    from hutchlib import Run, new_key
    r = c.call("POST", "/v1/sandboxes", body, new_key())
    if r.status == 202:
        r = c.wait(r.json["command"]).reply
    equal(r.status, 200)
    got = json.loads(r.raw("result"))
    equal(got[0], 0.1)
    assert f"{2 ** 65}" in r.raw("result")
    assert "123456789012345678901" in r.raw("result")
    assert "\\ud800" in r.raw("result") and "\\u0000" in r.raw("result")
    equal(got[5], "é")
    equal(list(got[6]), ["a", "z", "a2"])
    assert Run(c, r).ok


@case("duplicate names in input are refused by our rule, not altered")
def duplicate_names():
    from hutchlib import new_key
    r = client().call("POST", "/v1/sandboxes",
                      '{"run":{"code":"def run(i,c): return i",'
                      '"input":{"a":1,"a":2}}}', new_key())
    equal((r.status, r.code), (400, "invalid_json"))


@case("LBB-89: input and config of exactly 1 MiB arrive whole")
def large_input():
    text = "".join(chr(97 + i % 26) for i in range((1 << 20) - 2))
    r = run("import hashlib\ndef run(i, c):\n"
            "    return [len(i), hashlib.sha256(i.encode()).hexdigest(),"
            " len(c), c == i]",
            input=text, config=text, timeout_ms=300000)
    assert r.ok, (r, r.logs("stderr"))
    import hashlib
    equal(r.result, [len(text), hashlib.sha256(text.encode()).hexdigest(),
                     len(text), True])


@case("LBB-89: code of exactly 64 KiB runs")
def large_code():
    code = "def run(i, c): return i\n#"
    code += "x" * (64 * KIB - len(code))
    r = run(code, input=5)
    assert r.ok, r
    equal(r.result, 5)


@case("LBB-92: print, sub-processes and closed streams leave the result")
def noise():
    r = run("import os, subprocess, sys\n"
            "def run(i, c):\n"
            "    print('{\"result\": 1}')\n"
            "    subprocess.run(['echo', 'child'])\n"
            "    os.system('echo shell >&2')\n"
            "    sys.stdout.write('no newline')\n"
            "    sys.stdout.flush(); os.close(1); os.close(2)\n"
            "    return 'real'", timeout_ms=120000)
    assert r.ok, (r, r.logs("stderr"))
    equal(r.result, "real")
    out = r.logs()
    assert out.startswith(b'{"result": 1}\n') and b"child\n" in out, out
    assert out.endswith(b"no newline"), out
    equal(r.logs("stderr"), b"shell\n")


@case("a child that writes to every descriptor cannot forge a result")
def forged():
    r = run("import os, subprocess, sys\n"
            "def run(i, c):\n"
            "    subprocess.run([sys.executable, '-c', 'import os\\n"
            "for fd in range(3, 1100):\\n"
            "    try: os.write(fd, b\"x\" * 64)\\n"
            "    except OSError: pass'], close_fds=False)\n"
            "    return 'real'", timeout_ms=120000)
    equal((r.ok, r.result), (True, "real"))


@case("sys.exit: its codes, no result")
def exits():
    for code, want in (("sys.exit(3)", 3), ("sys.exit('bye')", 1)):
        r = run(f"import sys\ndef run(i, c): {code}")
        equal((r.exit_code, r.result), (want, None), code)
        equal(r.ok, False, code)


@case("os._exit and a signal: their codes, no result")
def ends_at_once():
    for code, want in (("os._exit(5)", 5), ("os._exit(0)", 0)):
        r = run(f"import os\ndef run(i, c): {code}", timeout_ms=600000)
        equal((r.exit_code, r.result), (want, None), code)
        equal(r.ok, want == 0, code)
    r = run("import os, signal\n"
            "def run(i, c): os.kill(os.getpid(), signal.SIGSEGV)",
            timeout_ms=600000)
    equal((r.ok, r.signal, r.status, r.reason),
          (False, 11, "failed", "signal"))


@case("a fork that returns from run() too: one end, one result")
def fork_returns():
    r = run("import os\ndef run(i, c):\n    pid = os.fork()\n"
            "    if pid: os.waitpid(pid, 0)\n    return 'me'",
            timeout_ms=600000)
    equal((r.ok, r.result), (True, "me"))


@case("env: values arrive, only names are kept; LBB-127")
def env():
    c = client()
    secret = "s3cr3t-value-42"
    r = run("import os\ndef run(i, c): return os.environ['MY_TOKEN'][::-1]",
            env={"MY_TOKEN": secret, "EMPTY": ""})
    equal(r.result, secret[::-1])
    record = c.command(r.command)
    equal(sorted(record.json["env_names"]), ["EMPTY", "MY_TOKEN"])
    assert secret not in record.text
    from hutchlib import daemon
    import glob
    d = daemon()
    assert secret not in d.log_text()
    for path in glob.glob(d.state + "/**", recursive=True):
        try:
            with open(path, "rb") as f:
                assert secret.encode() not in f.read(), path
        except OSError:
            pass


@case("Unicode and bytes that are no text, in the output")
def bytes_out():
    r = run("import sys\ndef run(i, c):\n    print('Grüße ☃ 𝄞')\n"
            "    sys.stdout.flush()\n"
            "    sys.stdout.buffer.write(bytes(range(256)))")
    equal(r.logs(), "Grüße ☃ 𝄞\n".encode() + bytes(range(256)))
    c = client().command(r.command).json
    assert c["stdout"]["invalid_utf8"], c["stdout"]
    r = run("def run(i, c): print('ä' * 1000)")
    for offset in (0, 1, 7, 1999):
        s = client().log_slice(r.command, "stdout", offset, 3).json
        equal(s["offset"], offset)
        assert s["next_offset"] > offset, s


main()
