"""Waiting runner of the python template.

Started by hutch-init before the snapshot: imports the libraries, exercises
each once, says that it waits and sleeps in one read.  A request makes it run
the code's run(input, config) and answer on the same channel (runner.h).

The channel is moved to a high descriptor that no child inherits; standard
output and error belong to the user's code.

With an express lane (lane_call.h) ARM makes it rehearse a run and wait there;
a run that came by the lane is answered by the lane, unless init adopted it.

Started as a zygote (zygote.h) it serves no run itself: each FORK makes a runner
of a copy of it.
"""

import atexit
import fcntl
import gc
import io
import json
import linecache
import os
import random
import select
import socket
import struct
import sys
import time
import traceback
import types
import warnings

CHANNEL = 15
CHANNEL_HIGH = 1000
LANE_PAGE, LANE_STDOUT, LANE_STDERR = 14, 12, 13
RESULT_BYTES_MAX = 48 << 10
FILE = "<run>"

RUN, ARM, FORK = 1, 2, 3
(PROGRESS, WAITING, RESULT, FAILED, NOT_JSON, TOO_LARGE,
 ARMED, BORN, DIED) = range(1, 10)


def send(kind, code=0, text=b""):
    data = struct.pack("<3I", kind, code, len(text)) + text
    while data:
        data = data[os.write(channel, data):]


# ---- preparation ----------------------------------------------------------


def open_channel(fd=CHANNEL):
    global channel, owner
    try:
        channel = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, CHANNEL_HIGH)
    except OSError:  # a low limit of open files
        channel = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, CHANNEL)
    os.close(fd)
    owner = os.getpid()


def progress(text):
    send(PROGRESS, 0, text.encode())


def warm_numpy():
    import numpy as np

    a = np.arange(10000, dtype="f8").reshape(100, 100)
    (a @ a).sum()
    np.linalg.inv(np.eye(20) * 3)
    np.sort(np.random.default_rng(1).random(1000))


def warm_pandas():
    import pandas as pd

    rows = "".join(f"{i},{i % 7},x{i % 5}\n" for i in range(2000))
    df = pd.read_csv(io.StringIO("a,b,c\n" + rows))
    df.groupby("c")["a"].mean()
    df.groupby(["b", "c"]).agg({"a": ["sum", "max"]})
    df.merge(df.head(50), on="a").sort_values("a").describe()
    df.to_csv(io.StringIO(), index=False)
    pd.to_datetime(pd.Series(["2024-01-02", "2024-02-03"])).dt.month
    json.loads(df.head(5).to_json(orient="records"))
    repr(df.head())
    df.pivot_table(index="b", columns="c", values="a")


def warm_pyarrow():
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"a": list(range(1000)), "s": ["x", "y"] * 500})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    pq.read_table(pa.BufferReader(sink.getvalue())).to_pandas()
    buf = io.BytesIO()
    pd.DataFrame({"a": [1, 2], "s": ["x", "y"]}).to_parquet(buf)
    buf.seek(0)
    pd.read_parquet(buf)


def warm_openpyxl():
    import openpyxl
    import pandas as pd

    book = openpyxl.Workbook()
    book.active.append(["a", 1, 2.5])
    book.active.append(["b", 2, None])
    buf = io.BytesIO()
    book.save(buf)
    buf.seek(0)
    list(openpyxl.load_workbook(buf).active.values)
    buf = io.BytesIO()
    pd.DataFrame({"a": [1, 2]}).to_excel(buf, index=False)
    buf.seek(0)
    pd.read_excel(buf)


def one_page_pdf():
    """A PDF with the words "warm page", offsets computed."""
    stream = b"BT /F1 12 Tf 72 720 Td (warm page) Tj ET"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, offsets = b"%PDF-1.4\n", []
    for i, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (i, body)
    at = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % o for o in offsets)
    return out + (
        b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
        % (len(objects) + 1, at)
    )


def warm_pdfplumber():
    import pdfplumber

    with pdfplumber.open(io.BytesIO(one_page_pdf())) as pdf:
        pdf.pages[0].extract_text()
        pdf.pages[0].extract_words()
        pdf.pages[0].extract_tables()


def warm_jsonschema():
    import jsonschema

    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0}},
        "required": ["a"],
    }
    jsonschema.validate({"a": 1}, schema)
    try:
        jsonschema.validate({"a": "x"}, schema)
    except jsonschema.ValidationError as e:
        str(e)


def warm_dateutil():
    import dateutil.parser
    import dateutil.relativedelta
    import dateutil.rrule
    import dateutil.tz

    day = dateutil.parser.parse("2024-02-29T10:00:00+01:00")
    day + dateutil.relativedelta.relativedelta(months=1)
    list(dateutil.rrule.rrule(dateutil.rrule.DAILY, count=2, dtstart=day))


def warm_regex():
    import regex

    regex.findall(r"\p{Lu}\p{Ll}+", "Ein Wort Über Öl")
    regex.sub(r"(?P<x>a)+", r"\g<x>b", "aaa")


def warm_standard():
    """What short scripts use most."""
    import asyncio, base64, collections, contextlib, copy, csv, dataclasses
    import datetime, decimal, enum, functools, hashlib, itertools, math
    import operator, pathlib, re, statistics, string, subprocess, tempfile
    import threading, time, typing, uuid

    asyncio.run(asyncio.sleep(0))
    re.findall(r"(\w+)-(\d+)", "ab-12 cd-34")
    hashlib.sha256(b"x").hexdigest()
    list(csv.reader(["a,b", '"c,d",e']))
    datetime.datetime.now().isoformat()


LIBRARIES = (
    warm_standard,
    warm_numpy,
    warm_pandas,
    warm_pyarrow,
    warm_openpyxl,
    warm_pdfplumber,
    warm_jsonschema,
    warm_dateutil,
    warm_regex,
)


def preload():
    for warm in LIBRARIES:
        name = warm.__name__[len("warm_"):]
        progress(f"python: {name}")
        try:
            warm()
        except ImportError as e:
            # a base without this library: said once, not fatal
            progress(f"python: {name} is not there: {e}")


REHEARSAL = b"""
import json
def run(input, config):
    print("rehearsal")
    table = [{"k": i, "v": str(i) * 3} for i in range(300)]
    return {"n": len(table), "s": sum(input), "t": json.dumps(table)[:100]}
"""


def rehearse():
    """One whole run whose answer goes nowhere, and its memory stays."""
    for _ in range(2):
        serve(REHEARSAL, b"[1,2,3]", b"null", None)
    serve(REHEARSAL_ERROR, b"1", b"1", None)


class Lane:
    """lane.so by ctypes.  Its functions keep the interpreter's lock: while
    the VM is parked there is nobody to give it to."""

    CLOSED, RUN, TOLD, ADOPTED, NOT_MINE, BOUND = range(6)

    def __init__(self):
        from ctypes import PyDLL, Structure, byref, string_at
        from ctypes import c_size_t, c_uint32, c_void_p

        part = type("Part", (Structure,), {
            "_fields_": [("data", c_void_p), ("len", c_size_t)]})
        self.run = type("Run", (Structure,), {
            "_fields_": [(n, part) for n in ("code", "input", "config",
                                             "env")] +
                        [("was_unbound", c_uint32)]})()
        self.ref = byref(self.run)
        self.string_at = string_at
        self.c = PyDLL(os.path.join(os.path.dirname(__file__), "lane.so"))
        self.c.lane_rehearse.argtypes = [
            c_void_p, c_size_t, c_void_p, c_size_t, c_void_p]
        self.c.lane_finish.argtypes = [c_uint32, c_uint32, c_void_p, c_size_t]
        rc = self.c.lane_open(0, LANE_PAGE, LANE_STDOUT, LANE_STDERR)
        if rc:
            raise OSError(-rc, os.strerror(-rc))

    def parts(self):
        r = self.run
        return [self.string_at(p.data, p.len)
                for p in (r.code, r.input, r.config, r.env)]

    def rehearse(self):
        """Runs whose answer stays in the page, through all that a real one
        goes through."""
        for code in (REHEARSAL, REHEARSAL_ERROR, REHEARSAL):
            self.rehearse_one(code)

    def rehearse_one(self, code):
        text = b"[1,2,3]"
        rc = self.c.lane_rehearse(code, len(code), text, len(text), self.ref)
        if rc != self.RUN:
            raise OSError(-rc, "rehearsal on the lane")
        code, text_in, text_config, _ = self.parts()
        serve(code, text_in, text_config, self.finish, True)
        sys.stdout.lines = 0

    def wait(self):
        """Parts of a run, or None: the lane is closed.  What was seeded
        before BIND is seeded again; with BIND alone there is time to touch
        once more what a run needs: seeding has moved some of it."""
        end = self.c.lane_wait(self.ref)
        if end == self.TOLD:
            os._exit(0)
        if self.run.was_unbound and end != self.CLOSED:
            reseed()
        if end == self.BOUND:
            self.rehearse_one(REHEARSAL)
            return self.wait()
        return self.parts() if end == self.RUN else None

    def finish(self, kind, status, text):
        return self.c.lane_finish(kind, status, text, len(text))

    def answer(self, kind, status, text):
        end = self.finish(kind, status, text)
        if end == self.NOT_MINE:  # a fork of the run came back from run()
            os._exit(status)
        if end == self.ADOPTED:
            send(kind, status, text)
        else:
            os._exit(0)


REHEARSAL_ERROR = b"def run(input, config): return 1/0"


def keep_memory():
    """Touch heap for the run and give it back to the allocators, not to the
    kernel: one small object stays in each arena, so none is unmapped."""
    global pins
    with open("/proc/meminfo") as f:
        total = int(f.readline().split()[1]) << 10
    size = min(16 << 20, total // 32)
    block = [b"%460d" % i for i in range(size // 512)]
    pins = block[:: (1 << 20) // 512]
    del block
    large = bytearray(min(3 << 20, size)), bytearray(min(3 << 20, size))
    del large


class Output(io.TextIOWrapper):
    """Standard output whose lines are seen also when the run is killed: the
    first ones at once; of many, those that are older than a moment."""

    LINES_AT_ONCE = 200
    LATER_S = 0.05
    lines = 0
    flushed = 0.0

    def write(self, text):
        n = super().write(text)
        if "\n" in text:
            self.lines += 1
            now = time.monotonic()
            if self.lines <= self.LINES_AT_ONCE or (
                now - self.flushed > self.LATER_S
            ):
                self.flushed = now
                self.flush()
        return n


def replace_stdout():
    old = sys.stdout
    sys.stdout = sys.__stdout__ = Output(
        io.BufferedWriter(io.FileIO(1, "w", closefd=False)),
        encoding=old.encoding, errors=old.errors)


# ---- the zygote -----------------------------------------------------------


def fork():
    with warnings.catch_warnings():
        # of other threads: those of libraries, idle, which mind forks
        warnings.simplefilter("ignore")
        return os.fork()


def become_runner(fds, mine):
    """In the child: the streams and the channel that came with FORK."""
    for fd in mine:
        os.close(fd)
    os.close(channel)
    out, err, own = fds
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.setsid()
    open_channel(own)
    send(BORN, owner)


def zygote():
    """Forks a runner for each FORK and tells how each ends; returns in the
    runners only."""
    children, poll = {}, select.poll()
    control = socket.socket(fileno=os.dup(channel))
    poll.register(control)
    send(WAITING)
    while True:
        for fd, _ in poll.poll():
            if fd in children:
                pid, tag = children.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                status = os.waitpid(pid, 0)[1]
                send(DIED, tag, struct.pack("<i", status))
                continue
            head, fds, _, _ = socket.recv_fds(control, 24, 3)
            if len(head) < 24 or len(fds) < 3:
                os._exit(0)  # init gave it up
            pid = fork()
            if pid == 0:
                become_runner(fds, [*children, control.detach()])
                return
            for one in fds:
                os.close(one)
            pidfd = os.pidfd_open(pid)
            children[pidfd] = pid, struct.unpack_from("<I", head, 20)[0]
            poll.register(pidfd, select.POLLIN)


# ---- one run --------------------------------------------------------------


def reseed():
    """Clones of one snapshot must not share their random numbers, nor what
    libraries remember of the host's name and of the time before BIND."""
    modules = sys.modules
    # one small read: the kernel's generator is slow where the kernel is
    seed = os.urandom(80)
    random.seed(int.from_bytes(seed[:32], "little"))
    if "numpy.random" in modules:
        modules["numpy.random"].seed(struct.unpack("<4I", seed[32:48]))
    if "_ssl" in modules:
        modules["_ssl"].RAND_add(seed[48:], 32.0)
    if "tempfile" in modules:
        modules["tempfile"]._name_sequence = None
    if "uuid" in modules:
        modules["uuid"]._node = modules["uuid"]._last_timestamp = None
    if "platform" in modules:
        modules["platform"]._uname_cache = None
    if "logging" in modules:
        modules["logging"]._startTime = time.time_ns()


def show_error(e):
    """The traceback as the user's code caused it: no frame of ours."""
    tb = e.__traceback__
    while tb and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    lines = traceback.format_exception(type(e), e, tb)
    try:
        sys.stderr.write("".join(lines))
    except Exception:
        os.write(2, "".join(lines).encode("utf-8", "backslashreplace"))


def exit_code(e):
    """SystemExit as the interpreter would take it."""
    if e.code is None:
        return 0
    if isinstance(e.code, int):
        return e.code & 0xFF
    try:
        print(e.code, file=sys.stderr)
    except Exception:
        pass
    return 1


def call(code, text_in, text_config):
    """Result of run(), by the rules of a fresh module named "run"."""
    module = types.ModuleType("run")
    module.__file__ = FILE
    sys.modules["run"] = module
    source = code.decode("utf-8", "replace")
    linecache.cache[FILE] = (
        len(source), None, source.splitlines(True), FILE)
    exec(compile(code, FILE, "exec", dont_inherit=True), module.__dict__)
    run = module.__dict__.get("run")
    if not callable(run):
        raise NameError("the code must define a function run(input, config)")
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # JSON is read exactly
    try:
        args = json.loads(text_in), json.loads(text_config)
    finally:
        sys.set_int_max_str_digits(limit)
    result = run(*args)
    if hasattr(result, "__await__"):
        import asyncio

        async def wait():
            return await result

        result = asyncio.run(wait())
    return result


def encode(result):
    """(kind, text) of the answer."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        text = json.dumps(
            result, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as e:
        return NOT_JSON, f"run() returned what JSON cannot hold: {e}".encode(
            "utf-8", "replace")[:500]
    finally:
        sys.set_int_max_str_digits(limit)
    if len(text) > RESULT_BYTES_MAX:
        return TOO_LARGE, (
            f"the result is {len(text)} bytes of JSON, the limit is "
            f"{RESULT_BYTES_MAX}: write a file in place of it").encode()
    return RESULT, text.encode()


def flush():
    for f in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            f.flush()
        except Exception:
            pass


def serve(code, text_in, text_config, tell, is_rehearsal=False):
    """Run once and tell(kind, code, text); without `tell` what it prints goes
    nowhere either."""
    real = sys.stdout, sys.stderr
    if not tell:
        sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    kind, status, text = FAILED, 1, b""
    try:
        result = call(code, text_in, text_config)
        kind, text = encode(result)
        status = 0 if kind == RESULT else 1
    except SystemExit as e:
        status = exit_code(e)
    except BaseException as e:
        show_error(e)
        e.__traceback__ = None
    if tell and not is_rehearsal:
        try:
            atexit._run_exitfuncs()
        except BaseException:
            pass
    flush()
    if tell:
        tell(kind, status, text)
    else:
        sys.stdout, sys.stderr = real
    sys.modules.pop("run", None)
    linecache.cache.pop(FILE, None)


def answer(kind, status, text):
    if os.getpid() != owner:  # a fork of the run came back from run()
        os._exit(status)
    send(kind, status, text)


def wait():
    """Kind and parts of a request; one read when it is small."""
    global have
    view = memoryview(buffer)
    need, sizes = 24, None
    while have < need or not sizes:
        if have < need:
            n = os.readv(channel, [view[have:]])
            if n == 0:
                os._exit(0)  # init gave this runner up
            have += n
        if not sizes and have >= 24:
            sizes = struct.unpack_from("<6I", buffer)
            need = 24 + sum(sizes[1:5])
            if need > len(buffer):
                more = bytearray(need)
                more[:have] = view[:have]
                view = memoryview(more)
    parts, at = [], 24
    for n in sizes[1:5]:
        parts.append(bytes(view[at:at + n]))
        at += n
    rest = bytes(view[at:have])  # the next one, when it is there already
    have = len(rest)
    memoryview(buffer)[:have] = rest
    return sizes[0], parts


def arm():
    """ARM: the parts of a run that came by the lane, or None."""
    reseed()
    lane.rehearse()
    gc.freeze()
    send(ARMED)
    return lane.wait()


def next_run():
    """Waits for one: its parts, and how it is answered."""
    while True:
        kind, parts = wait()
        if kind == RUN:
            reseed()
            return parts, answer
        parts = arm() if lane else None
        if parts:
            return parts, lane.answer
        send(WAITING)


def main():
    global buffer, have, lane
    is_preloaded = sys.argv[1:2] == ["preload"]
    has_lane = sys.argv[2:3] == ["lane"]
    is_zygote = sys.argv[2:3] == ["zygote"]
    open_channel()
    # Touches what a run's end will; later, with libraries' handlers in the
    # list, it could not be undone.
    atexit._run_exitfuncs()
    for name in list(os.environ):
        if name.startswith("MALLOC_"):
            del os.environ[name]
    sys.argv = ["run"]
    sys.path.insert(0, "/workspace")
    replace_stdout()
    progress("python: started")
    buffer, have, lane = bytearray(256 << 10), 0, None
    if has_lane:
        lane = Lane()
    if is_preloaded:
        preload()
    rehearse()
    reseed()
    if not is_zygote:  # its forks would copy what it touches
        keep_memory()
    gc.collect()
    gc.freeze()
    flush()
    if is_zygote:
        zygote()
        # What a run writes to becomes the fork's own.
        rehearse()
        reseed()
    send(WAITING)
    (code, text_in, text_config, env), tell = next_run()
    for pair in env.split(b"\0"):
        name, eq, value = pair.partition(b"=")
        if eq and name:
            os.environb[name] = value
    serve(code, text_in, text_config, tell)
    # The answer is told: init ends this process and all that it started.
    try:
        os.read(channel, 1)
    finally:
        os._exit(0)


main()
