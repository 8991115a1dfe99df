"""One VM of build/hutch-vmm and its guest, spoken to by the guest protocol.

No daemon is involved: the test holds the control socket and the channel.
Standard library only.
"""

import os
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time

import cbor

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.abspath(os.environ.get("HUTCH_BUILD") or
                        os.path.join(ROOT, "build"))

UP = {1: "HELLO", 2: "READY", 3: "BOUND", 4: "STARTED", 5: "OUTPUT",
      6: "ENDED", 7: "PONG", 8: "PROGRESS", 9: "FILE_ENTRY",
      10: "FILE_DATA", 11: "FILE_MORE", 12: "FILE_DONE"}
FILE, FILE_PIECE = 78, 79
LIST, READ, WRITE, DELETE = range(1, 5)
FILE_HOW = {1: "ok", 2: "not_found", 3: "outside", 4: "wrong_type",
            5: "not_empty", 6: "denied", 7: "full", 8: "too_large",
            9: "bad_name", 10: "timed_out", 11: "given_up", 12: "failed"}
FILE_PIECE_BYTES = 192 << 10
WELCOME, PREPARE, BIND, RUN, EXEC, KILL, ACK, PING, POWEROFF = range(65, 74)
ARM, ADOPT = 74, 75
PAUSE, RESUME, SNAPSHOT, STATS = 1, 2, 3, 4  # of the VMM
LANE_RUN, LANE_ADOPT, LANE_READY, LANE_ANSWER = 8, 9, 69, 70
LANE = struct.Struct("<4I")
LANE_PIECE_BYTES = 65536 - LANE.size
HOW = {1: "exited", 2: "signaled", 3: "timed_out", 4: "cancelled", 5: "oom",
       6: "not_started", 7: "result_too_large", 8: "result_not_json"}
ENDED = {1: "how", 2: "code", 3: "signal", 4: "result", 5: "error",
         6: "stdout_bytes", 7: "stderr_bytes", 8: "user_us", 9: "sys_us",
         10: "rss_bytes"}


class GuestError(Exception):
    pass


def make_disk(path, size=10 << 30):
    with open(path, "wb") as f:
        f.truncate(size)
    subprocess.run(
        ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-J", "size=4",
         "-O", "quota", "-E",
         "quotatype=usrquota,packed_meta_blocks=1,assume_storage_prezeroed=1,"
         "lazy_itable_init=0", path],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def frame(kind, payload=None, cmd=0):
    body = cbor.encode(payload or {})
    return cbor.FRAME.pack(len(body), kind, 0, cmd) + body


class Output:
    """What came of one stream: pieces by offset."""

    def __init__(self):
        self.pieces = []
        self.total = 0

    def add(self, offset, total, data):
        if self.pieces and offset < self.end():
            raise GuestError(f"offset {offset} went backwards")
        self.pieces.append((offset, bytes(data)))
        self.total = total

    def end(self):
        return self.pieces[-1][0] + len(self.pieces[-1][1])

    def bytes(self):
        return b"".join(p for _, p in self.pieces)

    def gaps(self):
        at, out = 0, []
        for offset, data in self.pieces:
            if offset != at:
                out.append((at, offset))
            at = offset + len(data)
        return out


class Command:
    def __init__(self):
        self.started = None
        self.out = {1: Output(), 2: Output()}
        self.end = None
        self.ended_at = None

    @property
    def stdout(self):
        return self.out[1].bytes()

    @property
    def stderr(self):
        return self.out[2].bytes()


class FileCall:
    """One call on the workspace; `data`: what was read, or is written."""

    def __init__(self, data=b""):
        self.data = data
        self.sent = min(len(data), FILE_PIECE_BYTES)
        self.got = b""
        self.entries = []  # (name, type, size, mtime_ms, mode)
        self.how = self.done = None
        self.is_held = False  # it does not get its next piece


class VM:
    """restore: a folder with state, mem and disk of a template's snapshot,
    as hutchd keeps them; the guest is then past READY.  channel_bytes: what
    the channel holds before the VMM has to wait."""

    def __init__(self, template, mem=512, vcpus=1, verbose=False, disk=True,
                 extra=(), kernel=None, restore=None, channel_bytes=None):
        self.verbose = verbose
        self.dir = tempfile.mkdtemp(prefix="hutch-guest-test-")
        self.log = b""
        self.buf = b""
        self.commands = {}
        self.ready = self.bound = self.hello = None
        self.progress = []
        self.on_progress = None
        self.pongs = 0
        self.opens = []  # ports that the guest asked for
        self.next_channel = None  # what its next connection gets
        self.next_cmd = 0
        self.files = {}
        self.lane_readies = self.lane_answers = 0
        self.lane_part = b""
        self.channel_bytes = channel_bytes
        self.t0 = time.monotonic()
        disks = ["--disk", os.environ.get("HUTCH_INIT",
                os.path.join(BUILD, "guest/init.erofs")) + ",ro",
                 "--disk", os.path.join(BUILD, "images",
                                        template + ".erofs") + ",ro"]
        start = ["--kernel", kernel or os.path.join(BUILD, "images/vmlinux")]
        if disk:
            path = os.path.join(self.dir, "disk")
            if restore:
                subprocess.run(["cp", "--sparse=always", restore + "/disk",
                                path], check=True)
                os.chmod(path, 0o600)
            else:
                make_disk(path)
            disks += ["--disk", path + ",lazy"]
        if restore:
            start = ["--restore", f"state={restore}/state,mem={restore}/mem"]
            self.hello = self.ready = {1: True}
        self.argv = ["--mem", str(mem), "--vcpus", str(vcpus), *disks, *extra]
        if "--uid" not in extra and "--no-confine" not in extra:
            self.argv.append("--no-confine")
        self.spawn(start)

    def spawn(self, start):
        """A process, and our ends of what it speaks on."""
        self.control, control = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel, channel = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_STREAM)
        if self.channel_bytes:
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF,
                               self.channel_bytes)
        self.log_fd, log_fd = os.pipe()
        argv = [os.environ.get("HUTCH_VMM",
                               os.path.join(BUILD, "hutch-vmm")), *start,
                *self.argv, "--control", f"fd:{control.fileno()}",
                "--channel", f"fd:{channel.fileno()}",
                "--log", f"fd:{log_fd}"]
        self.proc = subprocess.Popen(
            argv, pass_fds=[control.fileno(), channel.fileno(), log_fd],
            stdin=subprocess.DEVNULL)
        control.close()
        channel.close()
        os.close(log_fd)
        self.channel.setblocking(False)

    # -- frames ---------------------------------------------------------

    def send(self, kind, payload=None, cmd=0):
        data = frame(kind, payload, cmd)
        while data:
            try:
                data = data[self.channel.send(data):]
            except BlockingIOError:
                self.pump(0.1)

    def say(self, text):
        if self.verbose:
            print(f"[{time.monotonic() - self.t0:7.2f}] {text}", flush=True)

    def on_frame(self, kind, cmd, body):
        name = UP.get(kind, str(kind))
        if name == "OUTPUT":
            offset, total, stream = cbor.OUTPUT.unpack_from(body)
            data = body[cbor.OUTPUT.size:]
            self.say(f"OUTPUT cmd {cmd} stream {stream} at {offset} "
                     f"+{len(data)} of {total}")
            self.commands[cmd].out[stream].add(offset, total, data)
            return
        if name == "FILE_DATA":
            call = self.files[cmd]
            if int.from_bytes(body[:8], "little") != call.at + len(call.got):
                raise GuestError("a gap in a file")
            call.got += body[8:]
            return
        if name == "PROGRESS":
            self.progress.append((time.monotonic() - self.t0, body.decode()))
            self.say("PROGRESS " + body.decode())
            if self.on_progress:
                self.on_progress(body.decode())
            return
        value = cbor.decode(body)
        self.say(f"{name} cmd {cmd} {value}")
        now = time.monotonic()
        if name == "HELLO":
            self.hello = value
        elif name == "READY":
            self.ready = value
        elif name == "BOUND":
            self.bound = value
        elif name == "PONG":
            self.pongs += 1
        elif name == "STARTED":
            self.commands[cmd].started = now
        elif name == "FILE_ENTRY":
            self.files[cmd].entries.append(
                tuple(value.get(k) for k in range(1, 6)))
        elif name == "FILE_MORE":
            if not self.files[cmd].is_held:
                self.file_piece(cmd)
        elif name == "FILE_DONE":
            self.files[cmd].done = value
            self.files[cmd].how = FILE_HOW[value[1]]
        elif name == "ENDED":
            c = self.commands[cmd]
            if c.end:
                raise GuestError(f"command {cmd} ended twice")
            c.end = {ENDED[k]: v for k, v in value.items()}
            c.end["how"] = HOW[c.end["how"]]
            c.ended_at = now

    def pump(self, timeout):
        """Take in what there is, waiting up to `timeout` seconds."""
        fds = [self.channel, self.log_fd, self.control]
        ready, _, _ = select.select(fds, [], [], timeout)
        if self.control in ready:
            self.on_control(self.control.recv(70000))
        if self.log_fd in ready:
            data = os.read(self.log_fd, 65536)
            self.log += data
            if self.verbose and data:
                for line in data.decode("utf-8", "replace").splitlines():
                    self.say("| " + line)
            if not data:
                self.log_fd_closed()
        if self.channel in ready:
            data = self.channel.recv(1 << 20)
            if not data:
                raise GuestError("the channel closed; last log:\n" +
                                 self.log[-2000:].decode("utf-8", "replace"))
            self.feed(data)

    def feed(self, data):
        """Bytes of the channel: whole frames are taken, a rest is kept."""
        self.buf += data
        while len(self.buf) >= 16:
            n, kind, _, cmd = cbor.FRAME.unpack_from(self.buf)
            if len(self.buf) < 16 + n:
                break
            body, self.buf = self.buf[16:16 + n], self.buf[16 + n:]
            self.on_frame(kind, cmd, body)

    def on_control(self, data):
        """An event: only the guest's wish for a connection needs an answer,
        which is no, as from hutchd."""
        if len(data) < 16:
            return
        kind, _, _, n = struct.unpack_from("<IIiI", data)
        if kind == 67:
            conn, port, _, _ = struct.unpack_from("<4I", data, 16)
            self.opens.append(port)
            fd, self.next_channel = self.next_channel, None
            reply = struct.pack("<IIiI4I", 7, 0, 0, 16, conn, port,
                                fd is not None, 0)
            if fd is None:
                self.control.send(reply)
            else:
                socket.send_fds(self.control, [reply], [fd.fileno()])
                fd.close()
        elif kind == LANE_READY:
            self.lane_readies += 1
            self.say("lane READY")
        elif kind == LANE_ANSWER:
            self.on_answer(data[16:16 + n])
        else:
            self.say(f"control {kind} {data[16:16 + n]!r}")

    def on_answer(self, body):
        """Pieces of an answer; whole, they are frames like the channel's."""
        lane, offset, total, _ = LANE.unpack_from(body)
        if lane or offset != len(self.lane_part):
            raise GuestError(f"a piece at {offset} of lane {lane}")
        self.lane_part += body[LANE.size:]
        if len(self.lane_part) < total:
            return
        data, self.lane_part = self.lane_part, b""
        self.lane_answers += 1
        self.say(f"lane ANSWER of {total} bytes")
        while data:
            n, kind, _, cmd = cbor.FRAME.unpack_from(data)
            self.on_frame(kind, cmd, data[16:16 + n])
            data = data[16 + n:]

    def log_fd_closed(self):
        if self.proc.poll() is not None:
            raise GuestError(
                f"the VMM ended with {self.proc.returncode}; last log:\n" +
                self.log[-2000:].decode("utf-8", "replace"))
        time.sleep(0.05)

    def wait(self, what, timeout):
        """Until what() is true."""
        end = time.monotonic() + timeout
        while not what():
            left = end - time.monotonic()
            if left <= 0:
                raise GuestError("timed out; last log:\n" +
                                 self.log[-3000:].decode("utf-8", "replace"))
            self.pump(min(left, 1))

    # -- a life ---------------------------------------------------------

    def boot(self, timeout=180):
        self.wait(lambda: self.hello, timeout)
        self.send(WELCOME, {1: 1})
        return time.monotonic() - self.t0

    def prepare(self, runner, preload=False, disk=True, timeout=3600):
        t = time.monotonic()
        self.send(PREPARE, {1: runner, 2: preload, 3: disk,
                            4: os.urandom(64)})
        self.wait(lambda: self.ready, timeout)
        if not self.ready[1]:
            raise GuestError("READY says: " + self.ready.get(2, "?"))
        return time.monotonic() - t

    def bind_payload(self, mem=256 << 20, pids=64, disk=0, hostname="sbx"):
        return {1: os.urandom(64), 2: time.time_ns(), 3: hostname,
                4: os.urandom(16).hex(), 5: mem, 6: pids, 7: disk}

    def bind(self, timeout=60, **kw):
        t = time.monotonic()
        self.bound = None
        payload = self.bind_payload(**kw)
        self.identity = {"hostname": payload[3], "machine_id": payload[4]}
        self.send(BIND, payload)
        self.wait(lambda: self.bound, timeout)
        if not self.bound[1]:
            raise GuestError("BOUND says: " + self.bound.get(2, "?"))
        return time.monotonic() - t

    def ask(self, kind, payload):
        self.next_cmd += 1
        self.commands[self.next_cmd] = Command()
        self.send(kind, payload, self.next_cmd)
        return self.next_cmd

    def run_payload(self, code, input=None, config=None, timeout_ms=60000,
                    env=(), **kw):
        p = {1: code.encode() if isinstance(code, str) else code,
             4: timeout_ms}
        if input is not None:
            p[2] = input.encode() if isinstance(input, str) else input
        if config is not None:
            p[3] = config.encode() if isinstance(config, str) else config
        if env:
            p[5] = [e.encode() for e in env]
        p.update({{"head": 6, "tail": 7}[k]: v for k, v in kw.items()})
        return p

    def start_run(self, *args, **kw):
        return self.ask(RUN, self.run_payload(*args, **kw))

    def start_exec(self, argv, cwd=None, stdin=b"", timeout_ms=60000, env=(),
                   **kw):
        p = {8: [a.encode() if isinstance(a, str) else a for a in argv],
             4: timeout_ms}
        if cwd:
            p[9] = cwd
        if stdin:
            p[10] = stdin
        if env:
            p[5] = [e.encode() for e in env]
        p.update({{"head": 6, "tail": 7}[k]: v for k, v in kw.items()})
        return self.ask(EXEC, p)

    def finish(self, cmd, timeout=120, ack=True):
        c = self.commands[cmd]
        self.wait(lambda: c.end, timeout)
        if ack:
            self.send(ACK, {}, cmd)
        return c

    def run(self, code, input=None, timeout=180, **kw):
        return self.finish(self.start_run(code, input, **kw), timeout)

    def exec(self, argv, timeout=180, **kw):
        return self.finish(self.start_exec(argv, **kw), timeout)

    def file_start(self, op, path, data=b"", offset=0, limit=0, whole=False,
                   after=b"", timeout_ms=60000):
        number = len(self.files) + 1
        call = self.files[number] = FileCall(data)
        call.at = offset
        p = {1: op, 2: path, 9: timeout_ms}
        if op == WRITE:
            p.update({6: len(data), 7: data[:call.sent]})
        else:
            p.update({3: offset, 4: limit, 5: whole, 8: after})
        self.send(FILE, p, number)
        return number

    def file_piece(self, number, cut=False):
        """The next one; cut: the write is given up."""
        call = self.files[number]
        piece = b"" if cut else call.data[call.sent:
                                          call.sent + FILE_PIECE_BYTES]
        call.sent += len(piece)
        data = cbor.FRAME.pack(len(piece), FILE_PIECE, 0, number) + piece
        while data:
            try:
                data = data[self.channel.send(data):]
            except BlockingIOError:
                self.pump(0.1)

    def file(self, op, path, *args, timeout=120, **kw):
        call = self.files[self.file_start(op, path, *args, **kw)]
        self.wait(lambda: call.done, timeout)
        return call

    def ping(self, timeout=30):
        t = time.monotonic()
        want = self.pongs + 1
        self.send(PING)
        self.wait(lambda: self.pongs >= want, timeout)
        return time.monotonic() - t

    def reconnect(self, timeout=60):
        """Drop the channel; init must come back by itself."""
        ours, self.next_channel = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_STREAM)
        self.channel.close()
        self.channel, self.buf = ours, b""
        self.channel.setblocking(False)
        self.hello = self.ready = None
        for c in self.commands.values():
            if not c.end:
                c.out = {1: Output(), 2: Output()}
        self.wait(lambda: self.hello and self.ready, timeout)
        self.send(WELCOME, {1: 1})

    # -- the express lane -------------------------------------------------

    def arm(self, timeout=60):
        want = self.lane_readies + 1
        t = time.monotonic()
        self.send(ARM)
        self.wait(lambda: self.lane_readies >= want, timeout)
        return time.monotonic() - t

    def lane_give(self, data):
        """A request; the VM waits READY and goes on with it."""
        for at in range(0, len(data), LANE_PIECE_BYTES):
            self.request(LANE_RUN, body=LANE.pack(0, at, len(data), 0) +
                         data[at:at + LANE_PIECE_BYTES])

    def lane_start(self, *args, bind=None, **kw):
        """A run by the lane; `bind`: the payload of a BIND before it."""
        self.next_cmd += 1
        self.commands[self.next_cmd] = Command()
        data = frame(BIND, bind) if bind else b""
        self.lane_give(data + frame(RUN, self.run_payload(*args, **kw),
                                    self.next_cmd))
        return self.next_cmd

    def lane_wait(self, n=1, timeout=60):
        """Until the doorbell was rung `n` times for READY; seconds."""
        t = time.monotonic()
        self.wait(lambda: self.lane_readies >= n, timeout)
        return time.monotonic() - t

    def lane_bind(self, timeout=60, **kw):
        """BIND alone; then the runner seeds itself and rings again."""
        t = time.monotonic()
        payload = self.bind_payload(**kw)
        self.bound, self.lane_answers = None, 0
        self.identity = {"hostname": payload[3], "machine_id": payload[4]}
        self.lane_give(frame(BIND, payload))
        self.wait(lambda: self.bound, timeout)
        if not self.bound[1]:
            raise GuestError("BOUND says: " + self.bound.get(2, "?"))
        self.lane_answers = 0
        self.resume()
        self.lane_wait(2, timeout)
        return time.monotonic() - t

    def lane_run(self, *args, timeout=60, **kw):
        cmd = self.lane_start(*args, **kw)
        c = self.commands[cmd]
        self.wait(lambda: c.end, timeout)
        return c

    def adopt(self, cmd, timeout_ms=60000, head=None, tail=None):
        """The run becomes init's; raises OSError when the VMM says no."""
        self.request(LANE_ADOPT, body=LANE.pack(0, 0, 0, 0))
        p = {4: timeout_ms, 6: head, 7: tail}
        self.send(ADOPT, {k: v for k, v in p.items() if v is not None}, cmd)

    # -- control --------------------------------------------------------

    def resume(self):
        self.request(RESUME)

    def request(self, kind, fds=(), seq=1, timeout=120, body=b""):
        head = struct.pack("<IIiI", kind, seq, 0, len(body)) + body
        socket.send_fds(self.control, [head], list(fds))
        self.control.settimeout(timeout)
        while True:
            data = self.control.recv(70000)
            if not data:
                raise GuestError("the control socket closed")
            t, s, status, n = struct.unpack_from("<IIiI", data)
            if t == kind | 0x100 and s == seq:
                if status:
                    raise OSError(-status, f"control {kind}: "
                                  f"{os.strerror(-status)}")
                return data[16:16 + n]
            self.on_control(data)

    def stats(self):
        names = ("exits exits_io exits_mmio exits_pvx exits_other "
                 "insn_emulation blk_reads blk_writes blk_read_bytes "
                 "blk_write_bytes vsock_rx_bytes vsock_tx_bytes rule_breaks "
                 "lane_rings lane_strays syscalls_io").split()
        body = self.request(STATS)
        return dict(zip(names, struct.unpack_from(f"<{len(names)}Q", body)))

    def save(self, folder):
        """A snapshot as `restore` takes it; the VM ends."""
        os.makedirs(folder, exist_ok=True)
        with open(folder + "/state", "w+b") as state, \
                open(folder + "/mem", "w+b") as mem:
            self.request(PAUSE)
            self.request(SNAPSHOT, [state.fileno(), mem.fileno()])
        if os.path.exists(self.dir + "/disk"):
            subprocess.run(["cp", "--sparse=always", self.dir + "/disk",
                            folder + "/disk"], check=True)

    def go_on(self, folder):
        """What save() left, in another process; the session goes on where it
        was.  Nothing that we sent may be on its way."""
        self.proc.kill()
        self.proc.wait()
        self.channel.settimeout(60)     # its ring lets go of it later
        for data in iter(lambda: self.channel.recv(1 << 20), b""):
            self.feed(data)     # sent before the pause
        self.control.close()
        self.channel.close()
        os.close(self.log_fd)
        os.rename(folder + "/disk", self.dir + "/disk")
        self.spawn(["--restore", f"state={folder}/state,mem={folder}/mem"])

    def poweroff(self, timeout=60):
        self.send(POWEROFF)
        end = time.monotonic() + timeout
        while self.proc.poll() is None and time.monotonic() < end:
            try:
                self.pump(0.2)
            except (GuestError, OSError):
                pass
        return self.proc.poll()

    def close(self):
        self.control.close()
        self.channel.close()
        if self.proc.poll() is None:
            try:
                self.proc.wait(5)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        os.close(self.log_fd)
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
