"""One hutch-vmm process driven over its control socket (api/vmm_ctl.h).

For tests of the monitor itself: small guests without an operating system
(build/guests), or Linux.  Standard library only.  A sanitized build cannot be
confined: HUTCH_BUILD=build/san HUTCH_NO_CONFINE=1 tests/vmm/test_tiny.py
"""
import os
import socket
import struct
import subprocess
import tempfile
import time
import traceback

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("HUTCH_BUILD") or
                        os.path.join(TOP, "build"))
IS_LONG = os.environ.get("HUTCH_LONG") == "1"
PROGRAM = os.path.join(BUILD, "hutch-vmm")

(PAUSE, RESUME, SNAPSHOT, STATS, QUIT, LOG, OPEN_REPLY, LANE_RUN,
 LANE_ADOPT, TOUCHED) = range(1, 11)
STARTED, EXIT, OPEN, DEVICE, LANE_READY, LANE_ANSWER = range(65, 71)
(POWEROFF, SETUP, SHUTDOWN, KVM, DEVICE_BROKE, OWNER, HOST) = range(7)
STAT_NAMES = ("exits exits_io exits_mmio exits_pvx exits_other "
              "insn_emulation blk_reads blk_writes blk_read_bytes "
              "blk_write_bytes vsock_rx_bytes vsock_tx_bytes rule_breaks "
              "lane_rings lane_strays syscalls_io").split()
HEAD = struct.Struct("<IIiI")
LANE = struct.Struct("<IIII")
PIECE_BYTES = 65536 - LANE.size


class Ended(Exception):
    """The VM said EXIT: .why and .text."""

    def __init__(self, why, text):
        super().__init__(f"why={why} {text}")
        self.why, self.text = why, text


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(f"{os.strerror(-status)}: {text}")
        self.status, self.text = status, text


def guest(name):
    return os.path.join(BUILD, "guests", name + ".elf")


class VMM:
    def __init__(self, *argv, mem=64, vcpus=1, channel=None, pass_fds=(),
                 confine=True, uid=None):
        self.seq = 0
        self.ended = None
        self.started = None
        self.opens = []
        self.lane_events, self.lane_part = [], b""
        self.control, theirs = socket.socketpair(socket.AF_UNIX,
                                                 socket.SOCK_SEQPACKET)
        self.control.settimeout(60)
        argv = [PROGRAM, "--mem", str(mem), "--vcpus", str(vcpus),
                "--control", f"fd:{theirs.fileno()}", *map(str, argv)]
        fds = [theirs.fileno(), *pass_fds]
        if channel:
            argv += ["--channel", f"fd:{channel.fileno()}"]
            fds.append(channel.fileno())
        if not confine or os.environ.get("HUTCH_NO_CONFINE"):
            argv.append("--no-confine")
        elif uid:
            argv += ["--uid", str(uid), "--gid", str(uid)]
        self.stderr = tempfile.TemporaryFile()
        self.proc = subprocess.Popen(argv, pass_fds=fds, stderr=self.stderr,
                                     stdin=subprocess.DEVNULL)
        theirs.close()

    def errors(self):
        self.stderr.seek(0)
        return self.stderr.read().decode("utf-8", "replace")

    def _event(self, kind, body):
        if kind == STARTED:
            version, is_soft, self.n_lanes, _, ns = struct.unpack(
                "<IIIIQ", body)
            self.started = version, is_soft, ns
        elif kind == EXIT:
            why, text = struct.unpack("<I252s", body)
            self.ended = Ended(why, text.split(b"\0")[0].decode())
        elif kind == OPEN:
            self.opens.append(struct.unpack("<IIII", body)[:2])
        elif kind == LANE_READY:
            self.lane_events.append((LANE.unpack(body)[0], None))
        elif kind == LANE_ANSWER:
            self._answer(body)

    def _answer(self, body):
        lane, offset, total, _ = LANE.unpack_from(body)
        assert offset == len(self.lane_part), (offset, len(self.lane_part))
        self.lane_part += body[LANE.size:]
        assert len(self.lane_part) <= total
        if len(self.lane_part) == total:
            self.lane_events.append((lane, self.lane_part))
            self.lane_part = b""

    def _recv(self, timeout):
        self.control.settimeout(timeout)
        try:
            data = self.control.recv(70000)
        except ConnectionResetError:
            data = b""
        if not data:
            if self.ended:
                raise self.ended
            raise EOFError(f"control closed, status {self.proc.wait(10)}: "
                           + self.errors())
        kind, seq, status, n = HEAD.unpack_from(data)
        body = data[HEAD.size:]
        assert n == len(body)
        if seq == 0:
            self._event(kind, body)
        return kind, seq, status, body

    def request(self, kind, body=b"", fds=(), timeout=120):
        self.seq += 1
        head = HEAD.pack(kind, self.seq, 0, len(body)) + body
        socket.send_fds(self.control, [head], list(fds))
        while True:
            k, s, status, reply = self._recv(timeout)
            if k == kind | 0x100 and s == self.seq:
                if status:
                    raise Refused(status, reply.decode())
                return reply

    def wait_started(self, timeout=30):
        while not self.started and not self.ended:
            self._recv(timeout)
        if self.ended:
            raise self.ended
        return self.started

    def wait_end(self, timeout=30):
        """The EXIT message; also checks the exit status of the process."""
        while not self.ended:
            self._recv(timeout)
        assert self.proc.wait(timeout) == self.ended.why, self.proc.returncode
        return self.ended

    def pause(self):
        self.request(PAUSE)

    def resume(self):
        self.request(RESUME)

    def log(self):
        return self.request(LOG)

    def stats(self):
        return dict(zip(STAT_NAMES, struct.unpack(
            f"<{len(STAT_NAMES)}Q", self.request(STATS))))

    def lane_event(self, timeout=30):
        """The next (lane, None) = ready, or (lane, answer)."""
        while not self.lane_events:
            if self.ended:
                raise self.ended
            self._recv(timeout)
        return self.lane_events.pop(0)

    def lane_ready(self, lane=0, timeout=30):
        event = self.lane_event(timeout)
        assert event == (lane, None), event

    def lane_answer(self, lane=0, timeout=30):
        n, answer = self.lane_event(timeout)
        assert n == lane and answer is not None, (n, answer)
        return answer

    def lane_piece(self, offset, total, part, lane=0):
        self.request(LANE_RUN, LANE.pack(lane, offset, total, 0) + part)

    def lane_run(self, request, lane=0, piece=PIECE_BYTES):
        """Give the lane its request; the VM goes on with the last piece."""
        for at in range(0, len(request), piece):
            self.lane_piece(at, len(request), request[at:at + piece], lane)

    def lane_adopt(self, lane=0):
        """0 or a negative errno."""
        try:
            self.request(LANE_ADOPT, LANE.pack(lane, 0, 0, 0))
        except Refused as e:
            return e.status
        return 0

    def open_reply(self, conn, port, sock):
        """Give the guest's connection a socket, or refuse it."""
        body = struct.pack("<IIII", conn, port, 1 if sock else 0, 0)
        head = HEAD.pack(OPEN_REPLY, 0, 0, len(body)) + body
        socket.send_fds(self.control, [head], [sock.fileno()] if sock else [])
        if sock:
            sock.close()

    def snapshot(self, folder):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "state"), "w+b") as state, \
                open(os.path.join(folder, "mem"), "w+b") as mem:
            self.request(SNAPSHOT, fds=[state.fileno(), mem.fileno()])

    def touched(self, path):
        with open(path, "w+b") as f:
            self.request(TOUCHED, fds=[f.fileno()])

    def quit(self):
        self.control.send(HEAD.pack(QUIT, 0, 0, 0))
        return self.wait_end()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.control.close()
        try:
            self.proc.wait(10)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            raise AssertionError("the VMM outlived its owner") from None
        self.stderr.close()


def restore(folder, *argv, more="", **kw):
    return VMM("--restore", f"state={folder}/state,mem={folder}/mem{more}",
               *argv, **kw)


def own_private_kib(pid):
    """Private memory of all mappings but guest RAM."""
    own, is_ram = 0, False
    with open(f"/proc/{pid}/smaps") as f:
        for line in f:
            word = line.split()
            if not word[0].endswith(":"):
                start, end = (int(x, 16) for x in word[0].split("-"))
                # guest RAM: a large mapping, and the file's parts in it
                is_ram = (len(word) > 5 and word[5].endswith("/mem")) or \
                    end - start >= 32 << 20
            elif word[0] in ("Private_Clean:", "Private_Dirty:") and \
                    not is_ram:
                own += int(word[1])
    return own


def note(text):
    print(f"# {text}", flush=True)


def wait_until(fn, seconds, what):
    deadline = time.monotonic() + seconds
    while True:
        value = fn()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


# ---- cases, as TAP -----------------------------------------------------------

CASES = []


def case(name):
    def add(fn):
        CASES.append((name, fn))
        return fn
    return add


def main():
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        print("1..0 # SKIP no access to /dev/kvm")
        raise SystemExit(77)
    failed = 0
    print(f"1..{len(CASES)}", flush=True)
    for i, (name, fn) in enumerate(CASES, 1):
        try:
            fn()
            print(f"ok {i} - {name}", flush=True)
        except Exception:
            failed += 1
            for line in traceback.format_exc().splitlines():
                note(line)
            print(f"not ok {i} - {name}", flush=True)
    raise SystemExit(1 if failed else 0)
