#!/usr/bin/python3
"""The two SDKs as packages: their types hold, they install, they agree.

test: timeout=900 beside=yes
"""
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import httpx

import sdklib
from sdklib import NODE, PACKAGES, PYTHON, PYTHON_SDK, TSC, TSC_CHECK

import lbb

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = tempfile.mkdtemp(prefix="package.")
TESTS = []

# An application, as strict as it can be written.
APPLICATION = '''
from typing import Any
import lbb

def lines(client: lbb.LbbClient) -> int:
    with client.sandboxes.scoped(template="lbb/shell") as sb:
        sb.files.write("a", b"1")
        run: lbb.CommandRecord = sb.run(code="x", input=[1])
        code: int | None = run.exit_code
        text: str = run.stdout.tail
        data: bytes = sb.files.read("a")
        return len(data) + len(text) + (code or 0)

async def total(client: lbb.AsyncLbbClient) -> Any:
    async with client.sandboxes.scoped() as sb:
        page = await sb.files.list()
        sizes: list[int] = [x.size for x in page.data]
        await sb.commands.create(argv=["true"], wait_ms=5)
    return (await client.sandboxes.run(code="x")).result
'''
# What mypy must find: each line is wrong.
MISTAKES = '''
import lbb
client = lbb.LbbClient("http://x", api_kye="k")
n: int = client.sandboxes.run(code="x").command
client.sandboxes.run(code=5)
client.sandboxes.create(expires="later")
'''
TS_MISTAKES = '''
import { LbbClient } from "@littlebigbrain/client";
const lbb = new LbbClient({ apiKye: "k" });
const n: number = (await lbb.sandboxes.run({ code: "x" })).command;
await lbb.sandboxes.run({ code: 5 });
await lbb.sandboxes.create({ expires: "later" });
'''

NAMES_TS = '''
import * as sdk from "@littlebigbrain/client";
const lbb = new sdk.LbbClient();
const of = (x) => Object.getOwnPropertyNames(Object.getPrototypeOf(x));
const sb = lbb.sandboxes.handle("sbx_1");
console.log(JSON.stringify({
  client: [...of(lbb), ...Object.keys(lbb)],
  sandboxes: [...of(lbb.sandboxes), ...Object.keys(lbb.sandboxes)],
  templates: of(lbb.sandboxes.templates), files: of(lbb.files),
  handle: [...of(sb), ...Object.keys(sb)],
  workspace: of(sb.files), commands: of(sb.commands),
  version: sdk.VERSION, api: sdk.API_VERSION,
}));
'''
# Names that one of them has alone.
ONLY_PYTHON = {"client": {"close"}, "commands": {"get"}}


def case(fn):
    TESTS.append(fn)
    return fn


def execute(argv, **more):
    return subprocess.run(argv, text=True, capture_output=True, timeout=400,
                          **more)


def fine(argv, **more):
    r = execute(argv, **more)
    assert r.returncode == 0, f"{argv}\n{r.stdout}{r.stderr}"
    return r.stdout


def write(name, text):
    path = f"{TOP}/{name}"
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def mypy(*argv):
    env = dict(os.environ, MYPYPATH=PYTHON_SDK)
    return execute([PYTHON, "-m", "mypy", "--strict", "--python-version",
                    "3.10", "--cache-dir", f"{TOP}/mypy", *argv], env=env)


def lines_of(text, pattern):
    return sorted({int(n) for n in re.findall(pattern, text)})


@case
def the_awaiting_client_is_made_from_the_blocking_one():
    fine([PYTHON, f"{PYTHON_SDK}/make_async.py", "--check"])


@case
def LBB_212_mypy_strict_is_clean_and_finds_mistakes_of_callers():
    r = mypy("-p", "lbb", write("good.py", APPLICATION))
    if "May only specify one of" in r.stdout + r.stderr:
        r = mypy(f"{PYTHON_SDK}/lbb", write("good.py", APPLICATION))
    assert r.returncode == 0, r.stdout + r.stderr
    r = mypy(write("bad.py", MISTAKES))
    found = lines_of(r.stdout, r"bad\.py:(\d+): error")
    assert found == [3, 4, 5, 6], r.stdout


@case
def LBB_210_tsc_strict_is_clean_and_finds_mistakes_of_callers():
    app = sdklib.application(f"{TOP}/app")
    shutil.copy(f"{HERE}/ops.ts", app)
    fine([*TSC, *TSC_CHECK, f"{app}/ops.ts"])
    with open(f"{app}/bad.ts", "w", encoding="utf-8") as f:
        f.write(TS_MISTAKES)
    r = execute([*TSC, *TSC_CHECK, f"{app}/bad.ts"])
    found = lines_of(r.stdout, r"bad\.ts\((\d+),")
    assert found == [3, 4, 5, 6], r.stdout


@case
def the_wheel_has_all_and_works_from_where_it_is_installed():
    source = shutil.copytree(PYTHON_SDK, f"{TOP}/source")
    fine([PYTHON, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index",
          "--no-build-isolation", "-w", TOP, source])
    name = f"{TOP}/hutch_lbb-{lbb.VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(name) as wheel:
        names = wheel.namelist()
        metadata = wheel.read(
            f"hutch_lbb-{lbb.VERSION}.dist-info/METADATA").decode()
    assert "lbb/py.typed" in names, names
    for module in os.listdir(f"{PYTHON_SDK}/lbb"):
        if module.endswith(".py"):
            assert f"lbb/{module}" in names, (module, names)
    needs = re.findall(r"^Requires-Dist: (.*)$", metadata, re.M)
    assert len(needs) == 1 and needs[0].startswith("httpx"), needs
    out = fine([PYTHON, "-c", "import lbb; print(lbb.__file__)"],
               env=dict(os.environ, PYTHONPATH=name), cwd=TOP)
    assert out.startswith(name), out


@case
def the_npm_package_has_what_it_exports_and_needs_nothing():
    top = f"{PACKAGES}/@littlebigbrain/client"
    with open(f"{top}/package.json", encoding="utf-8") as f:
        package = json.load(f)
    assert "dependencies" not in package, package
    for path in package["exports"]["."].values():
        assert os.path.getsize(f"{top}/{path}") > 0, path
    for folder, _, names in os.walk(top):
        for name in names:
            if name.endswith((".js", ".d.ts")):
                with open(f"{folder}/{name}", encoding="utf-8") as f:
                    assert not re.search(r'from "[^"]*\.ts"', f.read()), name


def names_of(thing, properties=()):
    return {n for n in dir(thing) if not n.startswith("_") and (
        n in properties or inspect.isroutine(getattr(thing, n)))}


def snake(name):
    return re.sub(r"[A-Z]", lambda m: "_" + m[0].lower(), name)


# Its arguments but base_url, by keyword only, and their defaults.
ARGUMENTS = {"api_key": None, "graph": None, "environment": None,
             "api_version": "2026-10-21", "max_retries": 6,
             "retry_delay": .1, "retry_budget_ms": 60000.0, "on_retry": None,
             "timeout": 120.0, "transport": None, "event_hooks": None}


@case
def LBB_230_LBB_234_a_client_is_made_with_what_is_documented_and_closed():
    for kind in (lbb.LbbClient, lbb.AsyncLbbClient):
        names = inspect.signature(kind).parameters
        base = names["base_url"]
        assert base.kind == base.POSITIONAL_OR_KEYWORD, base
        assert base.default == "http://127.0.0.1:7400", base
        for name, value in ARGUMENTS.items():
            p = names[name]
            assert (p.kind, p.default) == (p.KEYWORD_ONLY, value), p
    asked = []

    def answer(request):
        asked.append(str(request.url))
        return httpx.Response(200, json={"object": "list", "data": [],
                                         "has_more": False,
                                         "next_cursor": None})

    with lbb.LbbClient("http://lbb.test/",
                       transport=httpx.MockTransport(answer)) as c:
        c.sandboxes.list()
    assert asked == ["http://lbb.test/v1/sandboxes"], asked
    try:
        c.sandboxes.list()
    except RuntimeError as e:
        assert "closed" in str(e), e
    else:
        raise AssertionError(f"it is closed, and asks: {asked}")


@case
def LBB_235_both_have_the_same_names():
    app = sdklib.application(f"{TOP}/names")
    with open(f"{app}/names.js", "w", encoding="utf-8") as f:
        f.write(NAMES_TS)
    ts = json.loads(fine([NODE, f"{app}/names.js"]))
    assert (ts.pop("version"), ts.pop("api")) == (
        lbb.VERSION, lbb.API_VERSION)
    c = lbb.LbbClient()
    sb = c.sandboxes.handle("sbx_1")
    python = {
        "client": names_of(c, ("sandboxes", "files")),
        "sandboxes": names_of(c.sandboxes, ("templates",)),
        "templates": names_of(c.sandboxes.templates),
        "files": names_of(c.files),
        "handle": names_of(sb, ("id", "status", "record", "files",
                                "commands")),
        "workspace": names_of(sb.files), "commands": names_of(sb.commands)}
    a = lbb.AsyncLbbClient()
    assert names_of(a.sandboxes) == names_of(c.sandboxes)
    for what, names in python.items():
        want = {snake(n) for n in ts[what] if n != "constructor"}
        got = names - ONLY_PYTHON.get(what, set())
        assert got == want, (what, sorted(got ^ want))


def main():
    failed = 0
    print(f"1..{len(TESTS)}")
    for n, fn in enumerate(TESTS, 1):
        name = fn.__name__.replace("_", " ").replace("LBB ", "LBB-")
        try:
            fn()
            print(f"ok {n} - {name}", flush=True)
        except Exception as e:
            failed += 1
            print(f"not ok {n} - {name}", flush=True)
            for line in f"{type(e).__name__}: {e}".splitlines():
                print(f"# {line}", flush=True)
    shutil.rmtree(TOP)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
