#!/usr/bin/env python3
"""The SDKs against a daemon with VMs: handles, files, commands, what goes wrong,
and runs whose VM is killed.

The TypeScript client makes one tour of its calls; the Python ones are held
against each other and against what the wire says.

test: timeout=1200 beside=yes seconds=55
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import hutchlib
from held import SHELL, WAIT_S
from hutchlib import (TOP, Daemon, Skip, case, equal, main, new_key,
                      wait_until)

sys.path.insert(0, f"{TOP}/tests/sdk")
import sdklib  # noqa: E402

PROGRAM_S = 600
d = Daemon(hutchlib.STATE + "-sdk", pool_shell=1, pool_max=1)


def client():
    if not d.is_alive():
        d.start()
    return d.client(environment="env" + new_key()[2:12])


def environment(c):
    return dict(os.environ, LBB_URL=f"http://{d.host}:{d.port}",
                LBB_API_KEY=c.key, PYTHONPATH=sdklib.PYTHON_SDK,
                PYTHONDONTWRITEBYTECODE="1")


def program(c, argv, **more):
    p = subprocess.run(argv, text=True, capture_output=True,
                       timeout=PROGRAM_S, env=environment(c), **more)
    assert p.returncode == 0, f"status {p.returncode}\n{p.stdout}{p.stderr}"
    return json.loads(p.stdout)


HEAD = '''
import asyncio, json, os, sys
import lbb
client = lbb.LbbClient(os.environ["LBB_URL"],
                       api_key=os.environ["LBB_API_KEY"], graph="main")
SHELL = "lbb/shell"
def show(**names):
    print(json.dumps(names))
'''


def python(c, text):
    return program(c, [sdklib.PYTHON, "-c", HEAD + text])


@case("LBB-211: files: what is written is read, listed, deleted; any bytes")
def files():
    out = python(client(), '''
data = bytes(range(256)) * 16
with client.sandboxes.scoped(template=SHELL) as sb:
    written = sb.files.write("a/b c+%&\\u00e9.bin", data)
    sb.files.write("text", "gr\\u00fc\\u00dfe\\n")
    back = sb.files.read("a/b c+%&\\u00e9.bin") == data
    part = sb.files.read("a/b c+%&\\u00e9.bin", offset=255, limit=2).hex()
    text = sb.files.read_text("text")
    names = [x.path for x in sb.files.list("a").data]
    top = [(x.name, x["type"]) for x in sb.files.list().data]
    sb.files.delete("a/b c+%&\\u00e9.bin")
    after = sb.files.list("a").data
    sb.files.write(b"raw-\\xff", b"1")
    raw = [x.path_hex for x in sb.files.list().data if "path_hex" in x]
    try:
        sb.files.read("none")
    except lbb.LbbError as e:
        error = [e.status_code, e.code, bool(e.request_id)]
show(size=written.size, sha=len(written.sha256), back=back, part=part,
     text=text, names=names, top=top, after=after, raw=raw, error=error)
''')
    equal(out, {
        "size": 4096, "sha": 64, "back": True, "part": "ff00",
        "text": "grüße\n", "names": ["a/b c+%&é.bin"],
        "top": [["a", "directory"], ["text", "file"]], "after": [],
        "raw": [b"raw-\xff".hex()],
        "error": [404, "sandbox_file_not_found", True]})


@case("LBB-211, LBB-239: commands: output, stdin, env, logs, cancel, list")
def commands():
    out = python(client(), '''
sb = client.sandboxes.create(template=SHELL)
c = sb.commands.create(argv=["bash", "-c", "cat; echo $X >&2; exit 3"],
                       stdin="in", env={"X": "err"}, wait_ms=30_000)
log = sb.commands.logs(c, stream="stderr", offset=1)
slow = sb.commands.create(argv=["sleep", "300"])
sb.commands.cancel(slow.id)
end = sb.commands.retrieve(slow, wait_ms=30_000)
ids = [x.id for x in sb.commands.list().data]
last = sb.delete()
show(status=c.status, code=c.exit_code, out=c.stdout.tail, err=c["stderr"]["tail"],
     log=log.content().decode(), eof=log.eof, end=end.status,
     ids=ids == [slow.id, c.id], names=c.env_names, last=last.status)
''')
    assert out.pop("last") in ("destroying", "destroyed")
    equal(out, {"status": "failed", "code": 3, "out": "in", "err": "err\n",
                "log": "rr\n", "eof": True, "end": "cancelled", "ids": True,
                "names": ["X"]})


@case("LBB-210, LBB-237: records: create, handle of a record, list, stop, "
      "resume")
def life():
    out = python(client(), '''
first = client.sandboxes.create({"template": SHELL}, idle_seconds=60)
record = client.sandboxes.retrieve(first.id)
sb = client.sandboxes.handle(record)
sb.files.write("kept", "1")
stopped = sb.stop().status
try:
    sb.files.read("kept")
except lbb.LbbError as e:
    refused = [e.status_code, e.code]
listed = [x.id for x in client.sandboxes.list(status="stopped").data]
resumed = sb.resume().status
kept = sb.files.read_text("kept")
client.sandboxes.delete(sb)
other = client.graph("other").sandboxes.list().data
try:
    client.graph("other").sandboxes.retrieve(sb.id)
except lbb.LbbError as e:
    hidden = e.code
show(now=first.status, idle=record.idle_seconds, stopped=stopped,
     refused=refused, listed=listed == [sb.id], resumed=resumed, kept=kept,
     other=other, hidden=hidden)
''')
    equal(out, {"now": "running", "idle": 60, "stopped": "stopped",
                "refused": [409, "sandbox_not_running"], "listed": True,
                "resumed": "running", "kept": "1", "other": [],
                "hidden": "sandbox_not_found"})


@case("LBB-245, LBB-86: what is refused, and what fails in user code")
def failures():
    out = python(client(), '''
def code_of(fn):
    try:
        return fn()
    except lbb.LbbError as e:
        return [e.status_code, e.code, e.param]
run = client.sandboxes.run
failed = run(code="echo no >&2; exit 7", template=SHELL)
logs = client.sandboxes.handle(failed.sandbox).commands.logs(
    failed.command, stream="stderr").data
show(limits=code_of(lambda: run(code="x", limits={"vcpus": 9})),
     field=code_of(lambda: run({"code": "x", "colour": 1})),
     key=code_of(lambda: lbb.LbbClient(os.environ["LBB_URL"], api_key="x")
                 .sandboxes.list()),
     conflict=code_of(lambda: [run(code="echo " + x, template=SHELL,
                                   idempotency_key="k") for x in "12"]),
     failed=[failed.ok, failed.exit_code, failed.result], logs=logs,
     templates=[t.name for t in client.sandboxes.templates.list().data
                if t.is_base],
     base=client.sandboxes.templates.retrieve(SHELL).base,
     version="sandboxes" in client.version()["capabilities"])
''')
    equal(sorted(out.pop("templates")),
          ["lbb/node", "lbb/python", SHELL])
    equal(out, {
        "limits": [400, "sandbox_limits_invalid", "run.limits.vcpus"],
        "field": [400, "invalid_request", "run.colour"],
        "key": [401, "unauthorized", None],
        "conflict": [409, "idempotency_conflict", "Idempotency-Key"],
        "failed": [False, 7, None], "logs": "no\n", "base": SHELL,
        "version": True})


@case("LBB-87: a run that outlives its wait is polled to its end, or given up")
def waits():
    out = python(client(), '''
run = client.sandboxes.run(code="sleep 2; echo '{\\"a\\": 1}' > $RESULT",
                           template=SHELL, wait_ms=100)
try:
    client.sandboxes.run(code="sleep 60", template=SHELL, max_wait_ms=1500)
except lbb.SandboxWaitError as e:
    sb = client.sandboxes.handle(e.sandbox)
    status = sb.commands.retrieve(e.command).status
    sb.delete()
show(ok=run.ok, status=run.status, ended=run.ended_at is not None,
     late=status, is_timeout=True)
'''.replace("$RESULT", "$RUN_RESULT"))
    equal((out["ok"], out["status"], out["ended"]),
          (True, "succeeded", True))
    equal(out["late"], "running")


def kill_when_it_runs(c, n):
    """Kills the VMM of the n-th one-call sandbox when its command runs."""
    def runs():
        r = c.call("GET", "/v1/sandboxes/commands", query={"limit": 10})
        ids = [x["sandbox"] for x in r.json["data"]
               if x["status"] == "running"]
        total = len(r.json["data"])
        return total == n and ids and d.vmm_pids().get(ids[0])
    pid = wait_until(runs, WAIT_S, f"run {n} runs")
    os.kill(pid, 9)


@case("LBB-28: a run whose VM is killed runs again under the next key")
def lost():
    c = client()
    text = HEAD + '''
run = client.sandboxes.run(code="sleep 6", template=SHELL,
                           idempotency_key="mine")
show(ok=run.ok, status=run.status)
'''
    p = subprocess.Popen([sdklib.PYTHON, "-c", text], text=True,
                         stdout=subprocess.PIPE, env=environment(c))
    for n in (1, 2):
        kill_when_it_runs(c, n)
    out, _ = p.communicate(timeout=PROGRAM_S)
    equal(json.loads(out), {"ok": True, "status": "succeeded"})
    r = c.call("GET", "/v1/sandboxes/commands", query={"limit": 10})
    equal([x["status"] for x in r.json["data"]],
          ["succeeded", "lost", "lost"])
    # The same bytes as the client's: by their keys the records are found.
    body = '{"run":{"code":"sleep 6","template":"lbb/shell"},"wait_ms":0}'
    for key, status in (("mine", "lost"), ("mine.2", "lost"),
                        ("mine.3", "succeeded")):
        r = c.call("POST", "/v1/sandboxes", body, key)
        equal((r.status, r.json.get("status")), (200, status), f"{key} {r}")


@case("LBB-212, LBB-234: the awaiting client: scopes at once, and one that is "
      "cancelled")
def awaiting():
    c = client()
    out = python(c, '''
async def one(client, n):
    async with client.sandboxes.scoped(template=SHELL) as sb:
        await sb.files.write("n", str(n))
        return (await sb.commands.create(argv=["cat", "n"], wait_ms=30_000)
                ).stdout.tail

async def whole():
    async with lbb.AsyncLbbClient(
            os.environ["LBB_URL"], api_key=os.environ["LBB_API_KEY"],
            graph="main") as client:
        got = await asyncio.gather(*(one(client, n) for n in range(3)))
        seen = asyncio.Event()
        async def endless():
            async with client.sandboxes.scoped(template=SHELL) as sb:
                seen.set()
                await sb.run(code="sleep 300", timeout_ms=400_000)
        task = asyncio.create_task(endless())
        await seen.wait()
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            got.append("cancelled")
        return got
show(got=asyncio.run(whole()))
''')
    equal(out, {"got": ["0", "1", "2", "cancelled"]})
    wait_until(lambda: {x["status"] for x in c.call(
        "GET", "/v1/sandboxes").json["data"]} == {"destroyed"}, WAIT_S,
        "all are destroyed")


TOUR = '''
import { LbbClient, LbbError, SandboxWaitError, logBytes }
  from "@littlebigbrain/client";

const lbb = new LbbClient({
  baseUrl: process.env.LBB_URL!, apiKey: process.env.LBB_API_KEY!,
  graph: "main",
});
const template = "lbb/shell";
const code = async (p: Promise<unknown>) => {
  try {
    return await p;
  } catch (e) {
    if (e instanceof LbbError) return [e.status, e.code, e.param];
    throw e;
  }
};
const data = Uint8Array.from({ length: 4096 }, (_, n) => n % 256);
const sb = await lbb.sandboxes.create({ template, idleSeconds: 60 });
const written = await sb.files.write("a/b c+%&é.bin", data);
const back = await sb.files.read("a/b c+%&é.bin");
await sb.files.write(new Uint8Array([0x72, 0xff]), "1");
await sb.files.write("text", "grüße\\n");
const c = await sb.commands.create({
  argv: ["bash", "-c", "cat; echo $aB_c >&2; exit 3"], stdin: "in",
  env: { aB_c: "err" }, waitMs: 30_000,
});
const log = await sb.commands.logs(c, { stream: "stderr", offset: 1 });
const slow = await sb.commands.create({ argv: ["sleep", "300"] });
await sb.commands.cancel(slow);
const end = await sb.commands.retrieve(slow, { waitMs: 30_000 });
const stopped = (await sb.stop()).status;
const refused = await code(sb.files.read("text"));
const again = lbb.sandboxes.handle(await lbb.sandboxes.retrieve(sb.id));
const resumed = (await again.resume()).status;
const held = await again.run({
  code: "cat > $RUN_RESULT", input: { someKey: { a_b: 1.5 } } });
const failed = await lbb.sandboxes.run({ code: "exit 7", template });
const ended = await lbb.sandboxes.run({
  code: "sleep 2", template, waitMs: 100 });
let late: unknown;
try {
  await lbb.sandboxes.run({ code: "sleep 60", template, maxWaitMs: 1500 });
} catch (e) {
  if (!(e instanceof SandboxWaitError)) throw e;
  late = e.sandbox.slice(0, 4) + e.command?.slice(0, 4);
  await lbb.sandboxes.delete(e.sandbox);
}
const gone = (await again.delete()).status;
console.log(JSON.stringify({
  size: written.size, same: Buffer.compare(back, data),
  text: c.stdout.tail + c.stderr.tail, code: c.exitCode, names: c.envNames,
  log: new TextDecoder().decode(logBytes(log)), end: end.status, stopped,
  refused, resumed, held: held.result, failed: [failed.ok, failed.exitCode],
  ended: [ended.ok, ended.durationMs! >= 2000], late,
  gone: gone.startsWith("destroy"),
  limits: await code(lbb.sandboxes.run({ code: "x", limits: { vcpus: 9 } })),
  base: (await lbb.sandboxes.templates.retrieve(template)).isBase,
}));
'''


@case("LBB-14, LBB-210, LBB-211: a tour of the TypeScript client")
def typescript():
    top = tempfile.mkdtemp(prefix="tour.")
    try:
        app = sdklib.application(f"{top}/app")
        with open(f"{app}/tour.ts", "w", encoding="utf-8") as f:
            f.write(TOUR)
        out = program(client(), [sdklib.NODE, f"{app}/tour.ts"])
    finally:
        shutil.rmtree(top)
    equal(out, {
        "size": 4096, "same": 0, "text": "inerr\n", "code": 3,
        "names": ["aB_c"], "log": "rr\n", "end": "cancelled",
        "stopped": "stopped", "refused": [409, "sandbox_not_running", "sandbox"],
        "resumed": "running", "held": {"someKey": {"a_b": 1.5}},
        "failed": [False, 7], "ended": [True, True], "late": "sbx_cmd_",
        "gone": True,
        "limits": [400, "sandbox_limits_invalid", "run.limits.vcpus"],
        "base": True})


def needs(route):
    routes = subprocess.run([f"{hutchlib.BUILD}/hutchd", "--routes"],
                            text=True, capture_output=True, check=True)
    if f" {route} " not in routes.stdout:
        raise Skip(f"this daemon has no {route} yet")


TOUR_TS = """
import { LbbClient } from "@littlebigbrain/client";
const lbb = new LbbClient({
  baseUrl: process.env.LBB_URL!, apiKey: process.env.LBB_API_KEY!,
  graph: "main",
});
"""


def typescript_too(c, text):
    top = tempfile.mkdtemp(prefix="more.")
    try:
        app = sdklib.application(f"{top}/app")
        with open(f"{app}/more.ts", "w", encoding="utf-8") as f:
            f.write(TOUR_TS + text)
        return program(c, [sdklib.NODE, f"{app}/more.ts"])
    finally:
        shutil.rmtree(top)


@case("LBB-103, LBB-105, LBB-107: templates: versions, lists, what runs")
def templates():
    needs("POST /v1/sandboxes/templates")
    python_out = python(client(), '''
t = client.sandboxes.templates
one = t.create(name="n", base=SHELL, code="cat $RUN_CONFIG > $RUN_RESULT",
               config={"aB_c": 1}, timeout_ms=50_000)
two = t.create({"name": "n", "base": SHELL, "code": "echo 2 > $RUN_RESULT"})
show(versions=[one.version, two.version], config=one.config,
     newest=t.retrieve("n").version, exact=t.retrieve(one).timeout_ms,
     all=[x.version for x in t.list(name="n").data],
     result=[client.sandboxes.run(template=x).result
             for x in ("n", one.id)])
''')
    ts_out = typescript_too(client(), '''
const t = lbb.sandboxes.templates;
const base = "lbb/shell";
const one = await t.create({ name: "n", base, config: { aB_c: 1 },
  code: "cat $RUN_CONFIG > $RUN_RESULT", commandTimeoutMs: 50_000 });
const two = await t.create({ name: "n", base, code: "echo 2 > $RUN_RESULT" });
const run = async (template: string) =>
  (await lbb.sandboxes.run({ template })).result;
console.log(JSON.stringify({
  versions: [one.version, two.version], config: one.config,
  newest: (await t.retrieve("n")).version,
  exact: (await t.retrieve(one)).commandTimeoutMs,
  all: (await t.list({ name: "n" })).data.map((x) => x.version),
  result: [await run("n"), await run(one.id!)],
}));
''')
    equal(python_out, {
        "versions": [1, 2], "config": {"aB_c": 1}, "newest": 2,
        "exact": 50000, "all": [2, 1], "result": [2, {"aB_c": 1}]})
    equal(ts_out, python_out)


@case("LBB-64, LBB-238: a sandbox is given a name and labels, and loses them")
def update():
    needs("PATCH /v1/sandboxes")
    out = python(client(), '''
sb = client.sandboxes.create(template=SHELL, name="a", labels={"aB_c": "1"})
first = [sb.name, sb.labels]
sb.update(labels={"x": "2"}, idle_seconds=90)
second = [sb.name, sb.labels, sb.idle_seconds]
sb.update({"name": None}, name=lbb.RESET, labels=lbb.RESET)
third = [sb.name, not sb.labels]
sb.delete()
show(first=first, second=second, third=third)
''')
    equal(out, {"first": ["a", {"aB_c": "1"}],
                "second": ["a", {"x": "2"}, 90], "third": [None, True]})


@case("LBB-154, LBB-157 to LBB-159: Files of the graph, there and back")
def graph_files():
    needs("POST /v1/files")
    out = python(client(), '''
import hashlib, tempfile
data = os.urandom(5 << 20)
with tempfile.TemporaryDirectory() as top:
    with open(f"{top}/big.bin", "wb") as f:
        f.write(data)
    up = client.files.upload(f"{top}/big.bin")
    twice = client.files.upload(data, name="big.bin").created
    with client.sandboxes.scoped(template=SHELL) as sb:
        size = sb.files.import_file("in/big.bin", up).size
        sb.files.write("out/r.md", "# r")
        kept = sb.files.keep("out/r.md")
        box = sb.id
    client.files.download(up, f"{top}/back.bin")
    with open(f"{top}/back.bin", "rb") as f:
        same = f.read() == data
part = client.files.content(up, range=(1, 3)) == data[1:4]
names = sorted(x.name for x in client.files.list().files)
record = client.files.record(kept).origin
gone = client.files.delete(up).deleted
try:
    client.files.content(up)
except lbb.LbbError as e:
    code = e.code
show(created=up.created, twice=twice, size=size, same=same, part=part,
     names=names, origin=record.sandbox == box, path=record.path, gone=gone,
     code=code, sha=up.file.sha256 == hashlib.sha256(data).hexdigest())
''')
    equal(out, {"created": True, "twice": False, "size": 5 << 20,
                "same": True, "part": True, "names": ["big.bin", "r.md"],
                "origin": True, "path": "out/r.md", "gone": True,
                "code": "file_not_found", "sha": True})
    out = typescript_too(client(), '''
import { randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
const top = mkdtempSync((process.env.TMPDIR ?? "/tmp") + "/ts-files-");
const data = randomBytes(5 << 20);
writeFileSync(`${top}/big.bin`, data);
const up = await lbb.files.upload(`${top}/big.bin`);
const twice = await lbb.files.upload(data, { name: "big.bin" });
const kept = await lbb.sandboxes.scoped({ template: "lbb/shell" },
  async (sb) => {
    await sb.files.importFile("in/big.bin", up);
    await sb.files.write("out/r.md", "# r");
    return await sb.files.keep("out/r.md");
  });
await lbb.files.download(up, `${top}/back.bin`);
const same = readFileSync(`${top}/back.bin`).equals(data);
const part = await lbb.files.content(up, [1, 3]);
const { files } = await lbb.files.list();
const { deleted } = await lbb.files.delete(up);
rmSync(top, { recursive: true });
console.log(JSON.stringify({
  created: up.created, twice: twice.created, same, deleted,
  part: Buffer.compare(part, data.subarray(1, 4)),
  names: files.map((x) => x.name).sort(), path: kept.file.origin?.path,
}));
''')
    equal(out, {"created": True, "twice": False, "same": True,
                "deleted": True, "part": 0, "names": ["big.bin", "r.md"],
                "path": "out/r.md"})


main()
