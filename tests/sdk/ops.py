"""The ops of cases.py on the Python clients.

The ops are written for the awaiting client; the blocking one is played by the
same code, its answers wrapped so that `await` gives them as they are.
"""
import asyncio
import os
import tempfile

import httpx

import lbb
from cases import UNIX_S


class Mine(Exception):
    """What a block of a scope raises."""


class TestClock(lbb.Clock):
    """Only waiting takes time; chance gives the most."""

    def __init__(self):
        self.now, self.waits = 0.0, []

    def unix(self):
        return UNIX_S + self.now

    def monotonic(self):
        return self.now

    def uniform(self, upper):
        return upper

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds

    async def sleep_async(self, seconds):
        self.sleep(seconds)


class Wrapped:
    """A blocking object whose calls can be awaited."""

    def __init__(self, inner):
        self.__dict__["inner"] = inner

    def __getattr__(self, name):
        value = getattr(self.inner, name)
        if name in ("sandboxes", "files", "commands", "templates"):
            return Wrapped(value)
        if name in ("handle", "graph"):
            return lambda *a, **k: Wrapped(value(*a, **k))
        if name == "scoped":
            return lambda *a, **k: WrappedScope(value(*a, **k))
        if not callable(value):
            return value

        async def call(*args, **kwargs):
            got = value(*args, **kwargs)
            return Wrapped(got) if isinstance(got, lbb.Sandbox) else got
        return call


class WrappedScope:
    def __init__(self, scope):
        self.scope = scope

    async def __aenter__(self):
        return Wrapped(self.scope.__enter__())

    async def __aexit__(self, *error):
        return self.scope.__exit__(*error)


OPS = {}


def op(fn):
    OPS[fn.__name__] = fn
    return fn


def picked(args, *names, key="key"):
    """Arguments of the op by their names here."""
    out = {k: args[k] for k in names if k in args}
    if key in args:
        out["idempotency_key"] = args[key]
    if "options" in args:
        out["options"] = args["options"]
    return out


@op
async def get(c, a):
    return (await c.raw_request("GET", "/v1/sandboxes",
                                **picked(a))).status_code


@op
async def post(c, a):
    return (await c.raw_request("POST", "/v1/sandboxes", body={},
                                **picked(a))).status_code


@op
async def raw(c, a):
    r = await c.raw_request("GET", "/v1/x")
    return [r.data, r.status_code, r.request_id, r.version, r.attempts,
            r.retry_count, round(r.elapsed_ms)]


@op
async def list(c, a):
    return (await c.sandboxes.list()).data


@op
async def capability(c, a):
    version = await c.version()
    await c.require("sandboxes")
    try:
        await c.require("sandboxes.flying")
    except lbb.LbbCapabilityError as e:
        return [*version["capabilities"], type(e).__name__]


RUN = ("wait_ms", "max_wait_ms", "lost_retries")


class Whole(dict):
    """An outcome with more than a value."""


def of_run(r):
    return Whole(value=[r.ok, r.result], fields=dict(r))


@op
async def run(c, a):
    return of_run(await c.sandboxes.run(code="x", **picked(a, *RUN)))


@op
async def graph(c, a):
    return of_run(await c.graph("other").sandboxes.run(code="x"))


@op
async def run_held(c, a):
    return (await c.sandboxes.handle("sbx_1").run(
        code="x", **picked(a, *RUN))).status


@op
async def user_json(c, a):
    r = await c.sandboxes.run(
        code="x", input=a["json"], config=a["json"], env={"aB_c": "1"},
        limits={"memory_mib": 512}, timeout_ms=5)
    return r.result


@op
async def create(c, a):
    return (await c.sandboxes.create(**picked(a, *RUN))).status


@op
async def scoped(c, a):
    async with c.sandboxes.scoped(**picked(a, *RUN)) as sb:
        status = sb.status
        if a.get("raise"):
            raise Mine("of the block")
    return status


@op
async def command(c, a):
    return (await c.sandboxes.handle("sbx_1").commands.create(
        argv=["true"])).status


@op
async def cancel(c, a):
    return (await c.sandboxes.handle("sbx_1").commands.cancel("cmd_1")).status


@op
async def retrieve(c, a):
    return (await c.sandboxes.retrieve("sbx_1")).status


@op
async def handle(c, a):
    return c.sandboxes.handle({"id": "sbx_1", "status": "running"}).id


@op
async def handle_graph(c, a):
    sb = c.sandboxes.handle({"id": "sbx_1", "graph": "other"})
    return (await sb.retrieve()).status


@op
async def stop(c, a):
    return (await c.sandboxes.handle("sbx_1").stop()).status


@op
async def resume(c, a):
    return (await c.sandboxes.resume("sbx_1")).status


@op
async def delete(c, a):
    return (await c.sandboxes.delete("sbx_1")).status


@op
async def update(c, a):
    name = lbb.RESET if a.get("reset") else "n"
    return (await c.sandboxes.update("sbx_1", name=name,
                                     idle_seconds=60)).status


@op
async def template(c, a):
    t = await c.sandboxes.templates.create(
        name="n", base="lbb/shell", code="x", limits={"memory_mib": 2048},
        timeout_ms=5, config={"aB": 1},
        files=[{"path": "in/a", "sha256": "ab"}])
    assert t.get("files", [{"bytes": 3}])[0]["bytes"] == 3, t
    return [t.id, t.timeout_ms]


@op
async def write(c, a):
    return (await c.sandboxes.handle("sbx_1").files.write(
        a.get("path", "x"), "y")).size


@op
async def keep(c, a):
    return (await c.files.keep("sbx_1", "x")).created


@op
async def upload(c, a):
    with tempfile.TemporaryDirectory() as top:
        with open(f"{top}/a.txt", "w") as f:
            f.write("hello")
        return (await c.files.upload(f"{top}/a.txt")).created


@op
async def files_list(c, a):
    return (await c.files.list()).files


@op
async def file_delete(c, a):
    return (await c.files.delete("ab")).deleted


@op
async def import_(c, a):
    sb = c.sandboxes.handle("sbx_1")
    return (await sb.files.import_file("x", {"sha256": "ab"})).size


OPS["import"] = OPS.pop("import_")


@op
async def download(c, a):
    with tempfile.TemporaryDirectory() as top:
        try:
            await c.files.download(a["sha256"], f"{top}/x")
        except Exception as e:
            e.left = len(os.listdir(top))
            raise
        with open(f"{top}/x") as f:
            return [f.read(), len(os.listdir(top))]


@op
async def content(c, a):
    data = await c.files.content(a["sha256"], range=tuple(a["range"]))
    return data.decode()


def failure(e):
    kind = type(e).__name__
    if isinstance(e, httpx.TransportError):
        kind = "lost"
    elif type(e) in (ValueError, TypeError):
        kind = "invalid"
    names = {"code": "code", "status": "status_code", "param": "param",
             "request_id": "request_id", "details": "details",
             "after": "retry_after_seconds", "left": "left"}
    out = {k: getattr(e, v) for k, v in names.items() if hasattr(e, v)}
    if isinstance(e, lbb.SandboxWaitError):
        assert isinstance(e, TimeoutError)
        out["wait"] = [e.sandbox, e.command]
    return dict(out, raises=kind, message=str(e))


async def play(c, clock, row, events):
    try:
        value = await OPS[row["op"]](c, row["args"])
        out = value if isinstance(value, Whole) else {"value": value}
    except Exception as e:
        out = failure(e)
    return dict(out, waits=clock.waits, events=[
        [e.method, e.path, e.attempt, e.status_code, e.error_code,
         e.delay_seconds, e.elapsed_ms / 1000] for e in events])


def settings(row, url, events):
    more = dict({"api_key": "lbb_sk_test_1", "graph": "main"},
                **row["client"])
    clock = TestClock()
    return clock, dict(more, base_url=url, clock=clock,
                       on_retry=events.append)


def blocking(row, url):
    events = []
    clock, more = settings(row, url, events)
    with lbb.LbbClient(**more) as c:
        return asyncio.run(play(Wrapped(c), clock, row, events))


def awaiting(row, url):
    async def whole():
        events = []
        clock, more = settings(row, url, events)
        async with lbb.AsyncLbbClient(**more) as c:
            return await play(c, clock, row, events)
    return asyncio.run(whole())
