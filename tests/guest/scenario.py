"""What a booted and bound guest must do, case by case.

Each case is a function case_NAME(vm) that raises on failure; names end in
_python, _node or _shell when they need that template.  drive.py and
test_guest.py run them, all on one VM: also what one leaves behind for the
next is tested so.
"""

import json
import time


class Failed(Exception):
    pass


def check(ok, *detail):
    if not ok:
        raise Failed(" ".join(str(d)[:600] for d in detail))


def ended(c, how, code=None, signal=None):
    check(c.end["how"] == how, "ended", c.end, "out", c.stdout[-300:], "err",
          c.stderr[-500:])
    if code is not None:
        check(c.end["code"] == code, "code", c.end, c.stderr[-500:])
    if signal is not None:
        check(c.end["signal"] == signal, "signal", c.end)
    return c


# ---- argv commands ----------------------------------------------------------

def case_version(vm):
    c = ended(vm.exec(["cat", "/proc/version"]), "exited", 0)
    check(b"hutch" in c.stdout, c.stdout)


def case_status_and_streams(vm):
    c = ended(vm.exec(["bash", "-c", "echo out; echo err >&2; exit 7"]),
              "exited", 7)
    check(c.stdout == b"out\n" and c.stderr == b"err\n", c.stdout, c.stderr)
    check(c.end["stdout_bytes"] == 4 and c.end["stderr_bytes"] == 4, c.end)


def case_stdin_cwd_env(vm):
    c = ended(vm.exec(["bash", "-c", 'cat; pwd; echo "$A|$HOME|$LBB"'],
                      stdin=b"in\0put", cwd="/tmp", env=["A=x y", "HOME=/h"]),
              "exited", 0)
    check(c.stdout == b"in\0put/tmp\nx y|/h|\n", c.stdout)


def case_default_cwd_is_workspace(vm):
    c = ended(vm.exec(["bash", "-c", "pwd; touch a.txt && ls; rm a.txt"]),
              "exited", 0)
    check(c.stdout.startswith(b"/workspace\n") and b"a.txt" in c.stdout,
          c.stdout)


def case_not_started(vm):
    for argv, cwd, want in (
            (["no-such-program"], None, "ENOENT"),
            (["/etc/passwd"], None, "EACCES"),
            (["true", "x" * 200000], None, "E2BIG"),
            (["true"], "/no/such", "cwd: ENOENT")):
        c = ended(vm.exec(argv, cwd=cwd), "not_started")
        check(want in c.end["error"], c.end)
        check(c.started is None, "STARTED was sent")
    vm.exec(["bash", "-c", "printf 'x y\\n' > /tmp/n; chmod +x /tmp/n"])
    c = ended(vm.exec(["/tmp/n"]), "not_started")
    check("ENOEXEC" in c.end["error"], c.end)


def case_signal(vm):
    ended(vm.exec(["bash", "-c", "kill -SEGV $$"]), "signaled", signal=11)


def case_timeout_kills_the_tree(vm):
    c = vm.start_exec(["bash", "-c",
                       "setsid bash -c 'exec -a left-over sleep 1000' & "
                       "(setsid sleep 1000 &) ; sleep 1000"],
                      timeout_ms=15000)
    c = ended(vm.finish(c, 120), "timed_out")
    nothing_left(vm, b"sleep")


def nothing_left(vm, name):
    """No process of that name, seen from a new command."""
    for _ in range(20):
        c = ended(vm.exec(["bash", "-c",
                           "cat /proc/[0-9]*/comm 2>/dev/null"]), "exited")
        if name not in c.stdout.split():
            return
        time.sleep(1)
    raise Failed(f"{name} still runs: {c.stdout}")


def case_kill_with_grace(vm):
    code = "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.2; done"
    n = vm.start_exec(["bash", "-c", code])
    c = vm.commands[n]
    vm.wait(lambda: c.stdout == b"up\n", 120)
    vm.send(70, {1: 30000}, n)
    c = ended(vm.finish(n, 120), "cancelled")
    check(c.stdout.endswith(b"bye\n"), c.stdout)


def case_kill_at_once(vm):
    code = "trap '' TERM INT; echo up; while :; do sleep 0.2; done"
    n = vm.start_exec(["bash", "-c", code])
    c = vm.commands[n]
    vm.wait(lambda: c.stdout == b"up\n", 120)
    vm.send(70, {1: 1000}, n)
    ended(vm.finish(n, 120), "cancelled")


def case_kill_before_start(vm):
    n = vm.start_exec(["sleep", "1000"])
    vm.send(70, {}, n)
    ended(vm.finish(n, 120), "cancelled")


def case_pipe_holder(vm):
    t = time.monotonic()
    c = ended(vm.exec(["bash", "-c", "sleep 100 & echo hi"]), "exited", 0)
    check(c.stdout == b"hi\n", c.stdout)
    check(time.monotonic() - t < 60, "waited for the holder of the pipe")
    vm.exec(["bash", "-c", "kill $(pidof sleep) 2>/dev/null || "
             "for p in /proc/[0-9]*; do grep -q sleep $p/comm && "
             "kill ${p#/proc/}; done; :"])


def case_many_at_once(vm):
    numbers = [vm.start_exec(["bash", "-c", f"echo {i}"]) for i in range(8)]
    for i, n in enumerate(numbers):
        c = ended(vm.finish(n, 300), "exited", 0)
        check(c.stdout == b"%d\n" % i, i, c.stdout)


def case_repeated_number(vm):
    """The same frame twice starts one process."""
    n = vm.start_exec(["bash", "-c", "echo once"])
    body = {8: [b"bash", b"-c", b"echo twice"], 4: 60000}
    vm.send(69, body, n)
    c = ended(vm.finish(n, 120), "exited", 0)
    check(c.stdout == b"once\n", c.stdout)


# ---- files of the workspace --------------------------------------------------

LIST, READ, WRITE, DELETE = range(1, 5)
MIB = 1 << 20


def done(call, how="ok"):
    check(call.how == how, "expected", how, "got", call.done)
    return call


def case_files_there_and_back(vm):
    text = bytes(range(256)) * 4
    done(vm.file(WRITE, b"in/of/host", text))
    c = ended(vm.exec(["bash", "-c",
                       "cat in/of/host; stat -c '%U %a' in in/of/host >&2; "
                       "printf from-here > out; chmod 750 out"]), "exited", 0)
    check(c.stdout == text, c.stdout)
    check(c.stderr == b"sandbox 755\nsandbox 644\n", c.stderr)
    check(done(vm.file(READ, b"out")).got == b"from-here")
    check(done(vm.file(READ, b"out", offset=5, limit=3)).got == b"her")
    got = done(vm.file(LIST, b"")).entries
    names = {e[0]: e for e in got}
    check(names[b"out"][1:3] == (1, 9) and names[b"out"][4] == 0o750, got)
    check(abs(names[b"out"][3] / 1000 - time.time()) < 120, got)
    check(names[b"in"][1] == 2, got)
    done(vm.file(DELETE, b"in"), "not_empty")
    done(vm.file(DELETE, b"out"))
    done(vm.file(READ, b"out"), "not_found")
    for name in (b"in/of/host", b"in/of", b"in"):
        done(vm.file(DELETE, name))


def case_files_of_4_mib(vm):
    data = bytes(i * 7 & 255 for i in range(4 * MIB))
    t = time.monotonic()
    number = vm.file_start(WRITE, b"large", data)
    call = vm.files[number]
    worst = 0
    while not call.done:
        worst = max(worst, vm.ping(60))
        vm.pump(0.05)
    done(call)
    vm.note(f"written in {time.monotonic() - t:.1f} s, slowest PONG "
            f"{worst * 1000:.0f} ms")
    t = time.monotonic()
    check(done(vm.file(READ, b"large", limit=4 * MIB, whole=True)).got ==
          data, "other bytes")
    vm.note(f"read in {time.monotonic() - t:.1f} s")
    done(vm.file(READ, b"large", limit=4 * MIB - 1, whole=True), "too_large")
    done(vm.file(DELETE, b"large"))


def case_files_hostile(vm):
    """What user code puts in the way: links, FIFOs, devices, names."""
    done(vm.file(WRITE, b"real", b"real\n"))
    c = ended(vm.exec(["bash", "-c",
                       "ln -s /etc/passwd /dev/zero /proc/self/environ "
                       "/run/hutch /tmp .; ln -s /workspace/real in; "
                       "ln -s / root; ln -s loop loop; mkfifo fifo; "
                       "mkdir -m 0 d; echo x > $'bad\\xff\\n'; "
                       "(echo unread > fifo) & echo ok"],
                      timeout_ms=600000, timeout=700), "exited", 0)
    check(c.stdout == b"ok\n", c.stderr)
    for path, how in ((b"passwd", "outside"), (b"root/etc/passwd", "outside"),
                      (b"loop", "bad_name"), (b"fifo", "wrong_type"),
                      (b"zero", "outside"), (b"d/x", "denied"),
                      (b"environ", "not_found"), (b"in", "ok")):
        done(vm.file(READ, path), how)
    for path, how in ((b"root/x", "outside"), (b"tmp/x", "outside"),
                      (b"hutch/out/x", "outside"), (b"fifo", "wrong_type"),
                      (b"d", "wrong_type"), (b"d/x", "denied"),
                      (b"passwd", "ok")):
        done(vm.file(WRITE, path, b"mine\n"), how)
    names = [e[0] for e in done(vm.file(LIST, b"")).entries]
    check(b"bad\xff\n" in names and names == sorted(names), names)
    check(done(vm.file(READ, b"bad\xff\n")).got == b"x\n")
    c = ended(vm.exec(["bash", "-c",
                       "read -r x < /etc/passwd; echo ${x:0:5}; "
                       "read -r x < fifo; echo $x; cat passwd"],
                      timeout_ms=600000, timeout=700), "exited", 0)
    check(c.stdout == b"root:\nunread\nmine\n", c.stdout)
    for name in names:
        done(vm.file(DELETE, name))
    check(not done(vm.file(LIST, b"")).entries)


def case_files_given_up(vm):
    """Nothing stays of half a write, and the next call is served."""
    done(vm.file(WRITE, b"half", b"old"))
    number = vm.file_start(WRITE, b"half", bytes(MIB))
    call = vm.files[number]
    call.is_held = True
    vm.pump(1)
    vm.ping(60)
    vm.file_piece(number, cut=True)
    vm.wait(lambda: call.done, 60)
    done(call, "given_up")
    check(done(vm.file(READ, b"half")).got == b"old")
    names = [e[0] for e in done(vm.file(LIST, b"")).entries]
    check(names == [b"half"], names)
    done(vm.file(DELETE, b"half"))


def case_files_full_disk(vm):
    """LBB-160: what the host writes counts against the user's disk."""
    done(vm.file(WRITE, b"keep", b"old"))
    vm.bind(disk=MIB)
    done(vm.file(WRITE, b"more", bytes(2 * MIB)), "full")
    done(vm.file(WRITE, b"keep", bytes(2 * MIB)), "full")
    check(done(vm.file(READ, b"keep")).got == b"old")
    names = [e[0] for e in done(vm.file(LIST, b"")).entries]
    check(names == [b"keep"], names)
    vm.bind(disk=4 << 30)  # 0 would leave it
    done(vm.file(WRITE, b"keep", bytes(2 * MIB)))
    done(vm.file(DELETE, b"keep"))


def case_files_while_user_code_spins(vm):
    n = vm.start_exec(["bash", "-c", "while :; do :; done & "
                       "while :; do :; done & while :; do :; done"],
                      timeout_ms=60000)
    t = time.monotonic()
    done(vm.file(WRITE, b"spin", b"x" * 1000))
    check(done(vm.file(READ, b"spin")).got == b"x" * 1000)
    done(vm.file(DELETE, b"spin"))
    vm.note(f"three calls in {time.monotonic() - t:.1f} s")
    check(not vm.commands[n].end, "it ended before")
    vm.send(70, {}, n)
    ended(vm.finish(n, 120), "cancelled")


# ---- what user code is ------------------------------------------------------

def case_identity(vm):
    c = ended(vm.exec(["bash", "-c", "id; hostname 2>/dev/null || "
                       "cat /proc/sys/kernel/hostname; cat /etc/machine-id; "
                       "cat /proc/self/status"]), "exited", 0)
    out = c.stdout.decode()
    check("uid=1000" in out and "gid=1000" in out, out)
    check(vm.identity["hostname"] in out, out)
    check(vm.identity["machine_id"] in out, out)
    for line in ("CapInh:\t0000000000000000", "CapPrm:\t0000000000000000",
                 "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000",
                 "NoNewPrivs:\t1"):
        check(line in out, line, out[-1500:])


def case_clock(vm):
    c = ended(vm.exec(["bash", "-c", "printf '%(%s)T'"]), "exited", 0)
    check(abs(int(c.stdout) - time.time()) < 120, c.stdout, time.time())


def case_environment_has_no_secret(vm):
    c = ended(vm.exec(["env"]), "exited", 0)
    names = {line.split(b"=")[0] for line in c.stdout.splitlines()}
    allowed = {b"PATH", b"HOME", b"USER", b"LOGNAME", b"SHELL", b"TMPDIR",
               b"TERM", b"PYTHONDONTWRITEBYTECODE", b"LANG"}
    check(names <= allowed, names - allowed)


def case_network(vm):
    c = ended(vm.exec(["bash", "-c",
                       "ls /sys/class/net; "
                       "for a in 1.1.1.1/80 10.0.0.1/22 127.0.0.1/80; do "
                       "(exec 3<>/dev/tcp/$a) 2>&1 | tail -n 1; done"],
                      timeout_ms=120000), "exited")
    lines = c.stdout.split(b"\n")
    check(lines[0] == b"lo", c.stdout)
    check(c.stdout.count(b"unreachable") + c.stdout.count(b"refused") == 3,
          c.stdout)


def case_root_is_not_writable(vm):
    c = ended(vm.exec(["bash", "-c",
                       "for f in /x /etc/x /usr/bin/x /run/x /dev/x /proc/x "
                       "/sys/x /run/hutch/x /etc/machine-id /proc/1/mem "
                       "/proc/sysrq-trigger /dev/null/x; do "
                       "(echo x > $f) 2>/dev/null && echo wrote $f; done; "
                       "echo x > /tmp/x && echo x > /workspace/x && "
                       "echo x > /dev/shm/x && rm /tmp/x /workspace/x "
                       "/dev/shm/x && echo ok"]), "exited")
    check(c.stdout == b"ok\n", c.stdout, c.stderr)


def case_init_cannot_be_touched(vm):
    c = ended(vm.exec(["bash", "-c",
                       "kill -9 1; echo $?; cat /proc/1/environ; echo $?; "
                       "ls /proc/1/root; echo $?; cat /proc/1/comm; "
                       "ls -d /proc/[0-9]* | wc -l; mount | wc -l"]),
              "exited")
    lines = c.stdout.split()
    check(lines[0] != b"0" and lines[1] != b"0" and lines[2] != b"0",
          c.stdout, c.stderr)
    check(int(lines[4]) < 12, "processes seen", c.stdout)


def case_devices(vm):
    c = ended(vm.exec(["bash", "-c", "ls /dev; cat /proc/mounts"]), "exited")
    out = c.stdout.decode()
    check(not {"vda", "vdb", "vdc", "mem", "kmsg", "vsock"} &
          set(out.split("\n")), out)
    check("/newroot" not in out and "/disk" not in out.replace(
        "upperdir=/disk", "").replace("workdir=/disk", ""), out)


# ---- output -----------------------------------------------------------------

def case_flood(vm):
    size = vm.flood_bytes
    c = ended(vm.exec(["head", "-c", str(size), "/dev/zero"],
                      timeout_ms=600000, timeout=700), "exited", 0)
    check(c.end["stdout_bytes"] == size, c.end)
    out = c.out[1]
    check(out.total == size and out.end() == size, out.total)
    check(out.gaps()[0][0] == 48 << 10, out.gaps()[:3])
    check(len(out.pieces[-1][1]) <= 48 << 10, "tail")


def case_flood_then_words(vm):
    c = ended(vm.exec(["bash", "-c", "echo first; head -c 3000000 /dev/zero; "
                       "echo last"], timeout_ms=300000, timeout=400),
              "exited", 0)
    check(c.stdout.startswith(b"first\n") and c.stdout.endswith(b"last\n"),
          c.stdout[:10], c.stdout[-10:])


def case_output_while_it_runs(vm):
    n = vm.start_exec(["bash", "-c", "echo one; sleep 600"],
                      timeout_ms=900000)
    c = vm.commands[n]
    vm.wait(lambda: c.stdout == b"one\n", 120)
    check(not c.end, c.end)
    vm.send(70, {}, n)
    ended(vm.finish(n, 120), "cancelled")


# ---- hostile ----------------------------------------------------------------

def answers(vm, seconds, cmd, limit):
    """PING while `cmd` does its worst; the slowest answer."""
    worst, end = 0, time.monotonic() + seconds
    while time.monotonic() < end and not vm.commands[cmd].end:
        worst = max(worst, vm.ping(120))
        vm.pump(0.2)
    check(worst < limit, f"PONG after {worst:.2f} s")
    vm.note(f"slowest PONG {worst * 1000:.0f} ms")


def case_cpu_hog(vm):
    n = vm.start_exec(["bash", "-c", "while :; do :; done & "
                       "while :; do :; done & while :; do :; done"],
                      timeout_ms=20000)
    answers(vm, 60, n, vm.pong_limit)
    ended(vm.finish(n, 120), "timed_out")


def case_fork_bomb(vm):
    n = vm.start_exec(["bash", "-c", "b() { b | b & }; b; sleep 1000"],
                      timeout_ms=30000)
    answers(vm, 90, n, vm.pong_limit)
    ended(vm.finish(n, 180), "timed_out")
    nothing_left(vm, b"bash.")
    ended(vm.exec(["true"]), "exited", 0)


def case_memory_bomb(vm):
    code = "x=$(printf %1000000s); while :; do x=$x$x; done"
    n = vm.start_exec(["bash", "-c", code], timeout_ms=600000)
    answers(vm, 600, n, vm.pong_limit)
    ended(vm.finish(n, 300), "oom")
    ended(vm.exec(["true"]), "exited", 0)


def case_tmpfs_bomb(vm):
    n = vm.start_exec(["bash", "-c", "cat /dev/zero > /dev/shm/x; "
                       "cat /dev/zero > /tmp/x; ls -l /tmp /dev/shm"],
                      timeout_ms=600000)
    answers(vm, 600, n, vm.pong_limit)
    c = vm.finish(n, 300)
    check(c.end["how"] in ("oom", "exited"), c.end, c.stdout)
    ended(vm.exec(["bash", "-c", "rm -f /tmp/x /dev/shm/x"]), "exited", 0)


def case_disk_hog(vm):
    n = vm.start_exec(["bash", "-c", "head -c 20000000 /dev/zero > "
                       "/workspace/big; sync /workspace/big; "
                       "rm /workspace/big; echo ok"], timeout_ms=600000)
    answers(vm, 600, n, vm.pong_limit)
    c = ended(vm.finish(n, 300), "exited", 0)
    check(c.stdout == b"ok\n", c.stdout, c.stderr)


def case_reconnect(vm):
    """A lost connection: all that was not acked is told again."""
    n = vm.start_exec(["bash", "-c", "echo one; sleep 8; echo two; exit 3"])
    c = vm.commands[n]
    vm.wait(lambda: c.stdout == b"one\n", 120)
    vm.reconnect()
    c = ended(vm.finish(n, 120, ack=False), "exited", 3)
    check(c.stdout == b"one\ntwo\n", c.stdout)
    c.end, c.out = None, {k: type(v)() for k, v in c.out.items()}
    vm.reconnect()
    c = ended(vm.finish(n, 60), "exited", 3)
    check(c.stdout == b"one\ntwo\n", c.stdout)


# ---- run() ------------------------------------------------------------------

def case_run_sum_python(vm):
    c = ended(vm.run("def run(input, config):\n    return sum(input)",
                     "[1, 2, 3]"), "exited", 0)
    check(c.end["result"] == b"6", c.end)


def case_run_big_input_python(vm):
    data = json.dumps("x" * ((1 << 20) - 2))
    c = ended(vm.run("def run(i, c): print('seen'); return len(i)", data),
              "exited", 0)
    check(c.end["result"] == b"1048574" and c.stdout == b"seen\n", c.end)


def case_run_error_python(vm):
    c = ended(vm.run("def run(i, c):\n    return 1/0"), "exited", 1)
    check(b'File "<run>", line 2' in c.stderr and "result" not in c.end,
          c.stderr)


def case_run_exits_python(vm):
    ended(vm.run("import os\ndef run(i, c): os._exit(5)"), "exited", 5)


def case_run_timeout_python(vm):
    n = vm.start_run("def run(i, c):\n    print('a')\n    while 1: pass",
                     timeout_ms=5000)
    c = ended(vm.finish(n, 200), "timed_out")
    check(c.stdout == b"a\n", c.stdout)


def case_run_memory_python(vm):
    n = vm.start_run("def run(i, c):\n    x = []\n"
                     "    while 1: x.append(bytearray(10 << 20))",
                     timeout_ms=600000)
    answers(vm, 600, n, vm.pong_limit)
    ended(vm.finish(n, 300), "oom")


def case_run_children_die_python(vm):
    c = ended(vm.run("import subprocess\ndef run(i, c):\n"
                     "    subprocess.Popen(['sleep', '1000'])\n"
                     "    return 1", timeout=400), "exited", 0)
    check(c.end["result"] == b"1", c.end)
    nothing_left(vm, b"sleep")


def case_run_not_json_python(vm):
    c = ended(vm.run("def run(i, c): return {1, 2}"), "result_not_json")
    check("JSON" in c.end["error"], c.end)


def case_run_libraries_python(vm):
    if not vm.has_preload:
        return
    c = ended(vm.run("""
import io, numpy as np, pandas as pd, pyarrow as pa, pyarrow.parquet as pq
def run(input, config):
    text = "a,b\\n" + "".join(f"{i},{i%10}\\n" for i in range(10000))
    df = pd.read_csv(io.StringIO(text))
    s = io.BytesIO(); pq.write_table(pa.Table.from_pandas(df), s); s.seek(0)
    back = pq.read_table(s).to_pandas()
    return [int(back.a.sum()), int(df.groupby("b").a.sum().iloc[3])]
""", timeout_ms=600000, timeout=700), "exited", 0)
    check(c.end["result"] == b"[49995000,4998000]", c.end)


def case_run_vsock_python(vm):
    """The host refuses user code's connections at once."""
    c = ended(vm.run("""
import socket, time
def run(i, c):
    out = []
    for port in (1024, 1, 5000):
        t = time.monotonic()
        s = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
        try:
            s.connect((2, port))
            out.append("connected")
        except OSError as e:
            out.append(type(e).__name__)
        if time.monotonic() - t > 1.5:
            out.append("slow")
    try:
        s = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
        s.bind((socket.VMADDR_CID_ANY, 1000))
        out.append("bound")
    except PermissionError:
        pass
    return out
""", timeout=400), "exited", 0)
    result = json.loads(c.end["result"])
    check("connected" not in result and "bound" not in result, result)
    if vm.pong_limit <= 2:
        check("slow" not in result, result)


def case_run_sum_node(vm):
    c = ended(vm.run("async function run(input, config) { "
                     "console.log('hi'); return input.length }",
                     "[1, 2, 3]"), "exited", 0)
    check(c.end["result"] == b"3" and c.stdout == b"hi\n", c.end)


def case_run_error_node(vm):
    c = ended(vm.run("function run() {\n null.x }", timeout=600), "exited", 1)
    check(b"<run>:2" in c.stderr, c.stderr)


def case_run_shell(vm):
    c = ended(vm.run('jq -c "map(.+1)" > "$RUN_RESULT"; echo out; '
                     'wc -c < "$RUN_CONFIG"; echo "$A"', "[1,2]",
                     config='{"k":1}', env=["A=it's"], timeout=300),
              "exited", 0)
    check(c.end.get("result") == b"[2,3]", c.end, c.stderr)
    check(c.stdout.split(b"\n")[:3] == [b"out", b"7", b"it's"], c.stdout)


def case_run_status_shell(vm):
    c = ended(vm.run("echo no > $RUN_RESULT; exit 4", timeout=300), "exited",
              4)
    check("result" not in c.end, c.end)


def case_run_not_json_shell(vm):
    ended(vm.run("echo nope > $RUN_RESULT", timeout=300), "result_not_json")


def case_run_result_link_shell(vm):
    c = ended(vm.run("ln -sf /etc/passwd $RUN_RESULT", timeout=300), "exited",
              0)
    check("result" not in c.end, c.end)


def names(template):
    out = []
    for name in globals():
        if not name.startswith("case_"):
            continue
        kind = name.rsplit("_", 1)[1]
        if kind in ("python", "node", "shell") and kind != template:
            continue
        out.append(name[len("case_"):])
    return out


def run_all(vm, template, only=None, say=print):
    """(passed, failed); each case leaves the guest answering."""
    failed = []
    todo = [n for n in names(template) if not only or any(
        o in n for o in only)]
    vm.notes = []
    vm.note = vm.notes.append
    for i, name in enumerate(todo, 1):
        t = time.monotonic()
        vm.notes.clear()
        try:
            globals()["case_" + name](vm)
            vm.ping(60)
        except Failed as e:
            failed.append(name)
            say(f"not ok {i} - {name}")
            say("# " + str(e).replace("\n", "\n# "))
            continue
        say(f"ok {i} - {name} # {time.monotonic() - t:.1f} s"
            + "".join(f", {x}" for x in vm.notes))
    say(f"1..{len(todo)}")
    return len(todo) - len(failed), failed
