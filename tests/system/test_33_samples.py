#!/usr/bin/env python3
"""Every code sample of the two documents runs as it stands, by the SDKs and
over HTTP, against a daemon with VMs.

mission.py finds the samples.  A row of PROGRAMS says which of them make one
program: the set-up that the document gives, then the sample.  Ours is only the
last line, which shows what came out.

test: timeout=2400 beside=yes seconds=50
"""
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import hutchlib
import mission
from held import WAIT_S, hold
from hutchlib import (TOP, Daemon, call, case, equal, main, new_key,
                      note, wait_until)
from mcp import Http

sys.path.insert(0, f"{TOP}/tests/sdk")
import sdklib  # noqa: E402

PROGRAM_S = 600      # on a slow, busy host
OUT = "out> "
LINES = {"lines": 2, "upper": "1,2\n3,4\n\n"}

GUIDE = mission.guide()
PAGE = mission.product()
used = set()
d = Daemon(hutchlib.STATE + "-samples")


def guide(heading, language, n=0):
    used.add(("guide", heading, language, n))
    return GUIDE[heading, language, n]


def page(name, language):
    used.add(("page", name, language))
    return PAGE[name, language]


# ---- what the samples take as given -----------------------------------------

SETUP = {x: guide("Set up the client", x) for x in ("ts", "python")}
CODE = {"ts": mission.between(SETUP["ts"], "const code = `", "`;"),
        "python": mission.between(SETUP["python"], 'code = """', '"""')}
CSV = {"ts": 'const csv = "1,2\\n3,4\\n";\n',
       "python": 'csv = "1,2\\n3,4\\n"\n'}
# The page's own set-up is its client sample without the call.
CLIENT = {"ts": mission.until(page("client", "ts"), "});"),
          "python": mission.until(page("client", "python"), ")")}
AWAITING = (SETUP["python"].replace("LbbClient", "AsyncLbbClient") +
            mission.between(guide("Level 3: the resource API", "python"),
                            'count_lines = """', '"""'))
L1, L2, L3 = ("Level 1: one call", "Level 2: a saved template",
              "Level 3: the resource API")

# ---- what must have come of them ---------------------------------------------


def newest(c):
    """The record of the newest sandbox."""
    return c.call("GET", "/v1/sandboxes", query={"limit": 1}).json["data"][0]


def gone(c):
    s = newest(c)
    wait_until(lambda: c.sandbox(s["id"])["status"] == "destroyed", WAIT_S,
               "the sandbox is destroyed")
    return c.sandbox(s["id"])


def six(c, out):
    equal(out, 6)
    equal(gone(c)["kind"], "one_call")


def whole_run(c, out):
    equal(out[:2], [True, 6])
    equal(c.command(out[2]).json["result"], 6)
    equal(c.command(out[2]).json["sandbox"], gone(c)["id"])


def template(c, out):
    """The run's record names the version that was saved."""
    s = gone(c)
    equal((s["template"], s["template_base"]), ("normalize", "lbb/python"))
    equal(s["limits"]["memory_mib"], 2048)
    r = c.call("GET", "/v1/sandboxes/templates", query={"name": "normalize"})
    equal((r.status, s["template_id"], s["template_version"]),
          (200, r.json["id"], r.json["version"]))
    equal((r.json["timeout_ms"], r.json["base"]), (60000, "lbb/python"))
    equal(c.command(s["command"]).json["result"], 6)


def scoped(c, out):
    s = gone(c)
    r = c.call("GET", "/v1/sandboxes/commands", query={"sandbox": s["id"]})
    note(f"python upper.py: {r.json['data'][0]['duration_ms']} ms of 30,000")
    equal(out, LINES)
    equal(s["kind"], "held")


def scoped_rows(c, out):
    equal(out, 2)
    equal(gone(c)["kind"], "held")


def created(c, out):
    """It was stopped, resumed and deleted, and was to live ten minutes."""
    s = gone(c)
    equal((s["kind"], s["expires_in_seconds"]), ("held", 600))
    went = re.findall(rf" {s['id']} status=(\w+)", d.log_text())
    steps = [x for x in went if x in ("running", "stopped", "destroyed")]
    equal(steps, ["running", "stopped", "running", "destroyed"])


# id, language, pieces of the program, what is shown, the check
TS_OUT = "console.log({out!r} + JSON.stringify({show}));\n"
PROGRAMS = [
    ("LBB-60 LBB-85 guide, level 1", "python",
     (SETUP["python"], guide(L1, "python")), "result", six),
    ("LBB-60 LBB-85 guide, level 1", "ts",
     (SETUP["ts"], guide(L1, "ts")), "result", six),
    ("LBB-103 guide, level 2", "python",
     (SETUP["python"], guide(L2, "python")), "None", template),
    ("LBB-103 guide, level 2", "ts",
     (SETUP["ts"], guide(L2, "ts")), "null", template),
    ("LBB-213 guide, scoped", "python",
     (SETUP["python"], guide(L3, "python")), "out", scoped),
    ("LBB-213 guide, scoped", "ts",
     (SETUP["ts"], guide(L3, "ts")), "out", scoped),
    ("LBB-212 guide, scoped, awaiting", "python",
     (AWAITING, guide(L3, "python", 1)), 'rows["result"]', scoped_rows),
    ("LBB-61 LBB-65 LBB-66 guide, create", "python",
     (SETUP["python"], guide(L3, "python", 2)), "None", created),
    ("LBB-61 LBB-65 LBB-66 guide, create", "ts",
     (SETUP["ts"], guide(L3, "ts", 1)), "null", created),
    ("LBB-60 page, one call", "python",
     (CLIENT["python"], page("one call", "python")), "result", six),
    ("LBB-60 page, one call", "ts",
     (CLIENT["ts"], page("one call", "ts")), "result", six),
    ("LBB-85 page, run", "python", (CLIENT["python"], page("run", "python")),
     "[run.ok, run.result, run.command]", whole_run),
    ("LBB-85 page, run", "ts", (CLIENT["ts"], page("run", "ts")),
     "[run.ok, run.result, run.command]", whole_run),
    ("LBB-103 page, template", "python",
     (CLIENT["python"], CODE["python"], page("template", "python")), "None",
     template),
    ("LBB-103 page, template", "ts",
     (CLIENT["ts"], CODE["ts"], page("template", "ts")), "null", template),
    ("LBB-213 page, scoped", "python",
     (CLIENT["python"], page("scoped", "python")), "out", scoped),
    ("LBB-213 page, scoped", "ts",
     (CLIENT["ts"], page("scoped", "ts")), "out", scoped),
    ("LBB-61 page, create", "python",
     (CLIENT["python"], CSV["python"], page("create", "python")), "None",
     created),
    ("LBB-61 page, create", "ts",
     (CLIENT["ts"], CSV["ts"], page("create", "ts")), "null", created),
    ("LBB-231 page, client", "python",
     (CODE["python"], page("client", "python")), "result", six),
    ("LBB-231 page, client", "ts",
     (CODE["ts"], page("client", "ts")), "result", six),
]
AGENT = {
    "guide": guide("Use sandboxes from an agent", "text"),
    "page": page("agent", "text"),
}


# ---- running them -----------------------------------------------------------

def client():
    if not d.is_alive():
        d.start()
    return d.client(environment="env" + new_key()[2:12])


def environment(c):
    """Each document has its own two names; nothing else is read."""
    url = f"http://{d.host}:{d.port}"
    names = dict(LBB_URL=url, LBB_API_KEY=c.key, ENDPOINT_URL=url,
                 API_KEY=c.key, PYTHONPATH=sdklib.PYTHON_SDK,
                 PYTHONDONTWRITEBYTECODE="1")
    return dict({k: os.environ[k] for k in ("PATH", "TMPDIR", "HOME")
                 if k in os.environ}, **names)


# The sample that awaits outside of a function is compiled as it stands.
HARNESS = f'''
import ast, asyncio, json, sys
text, show = sys.argv[1:]
names = {{}}
code = compile(text, "sample", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
done = eval(code, names)
if done is not None:
    asyncio.run(done)
print({OUT!r} + json.dumps(eval(show, names)))
'''


def python_argv(pieces, show):
    return [sdklib.PYTHON, "-c", HARNESS, "".join(pieces), show]


def ts_text(pieces, show):
    return "".join(pieces) + TS_OUT.format(out=OUT, show=show)


apps = []


def ts_file(pieces, show):
    """A program in the folder of an application, which has the package."""
    if not apps:
        apps.append(sdklib.application(tempfile.mkdtemp(prefix="samples.") +
                                       "/app"))
    path = f"{apps[0]}/p{len(os.listdir(apps[0]))}.ts"
    with open(path, "w", encoding="utf-8") as f:
        f.write(ts_text(pieces, show))
    return path


def shown(argv, c):
    p = subprocess.run(argv, text=True, capture_output=True,
                       timeout=PROGRAM_S, env=environment(c))
    assert p.returncode == 0, f"status {p.returncode}\n{p.stdout}{p.stderr}"
    return json.loads(p.stdout.rpartition(OUT)[2])


def add(name, language, pieces, show, check):
    @case(f"{name} ({language})")
    def fn():
        c = client()
        argv = (python_argv(pieces, show) if language == "python" else
                [sdklib.NODE, ts_file(pieces, show)])
        check(c, shown(argv, c))


def send(c, text, values=()):
    """An HTTP sample; `values` stand for what it leaves out with …."""
    for pattern, value in values:
        text, n = re.subn(pattern, value, text)
        equal(n, 1, f"places of {pattern}")
    assert "…" not in text, text
    method, target, headers, body = mission.request(text)
    headers["Authorization"] = f"Bearer {c.key}"
    con = http.client.HTTPConnection(d.host, d.port, timeout=120)
    return call(con, method, target, body.encode() or None, headers)


def http_six(text):
    c = client()
    r = send(c, text)
    if r.status == 202:  # slower than its wait_ms: the same call again
        c.wait(r.json["command"])
        r = send(c, text)
    equal((r.status, r.json["result"], r.json["ok"]), (200, 6, True), r)


@case("LBB-1..LBB-266: each sample of the documents is in a program here")
def covered():
    missing = {("guide", *k) for k in GUIDE} | {("page", *k) for k in PAGE}
    equal(missing - used, set(), "samples that nothing runs")


@case("a sample that is added to the page is noticed")
def noticed():
    for n, row in enumerate(mission.PAGE):
        try:
            mission.product(mission.PAGE[:n] + mission.PAGE[n + 1:])
        except (AssertionError, ValueError):
            continue
        raise AssertionError(f"without its row {row[:2]} is not noticed")


@case("LBB-210: tsc --strict finds nothing in the TypeScript samples")
def types():
    files = [ts_file(p, s) for _, x, p, s, _ in PROGRAMS if x == "ts"]
    r = subprocess.run([*sdklib.TSC, *sdklib.TSC_CHECK, *files], text=True,
                       capture_output=True, timeout=PROGRAM_S)
    equal((r.returncode, r.stdout), (0, ""))


for row in PROGRAMS:
    add(*row)
HTTP = {"guide, level 1": guide(L1, "http"),
        "page, one call": page("one call", "http")}
for sample_name, sample in HTTP.items():
    case(f"LBB-60 {sample_name} (http)")(lambda text=sample: http_six(text))
IMPORT, KEEP = page("import", "http"), page("keep", "http")


@case("LBB-154 page, import (http)")
def import_route():
    c, data = client(), b"cm,2.54\n"
    r = c.call("POST", "/v1/files", data, query={"name": "units.csv"},
               headers={"Content-Type": "text/csv"})
    assert r.status in (200, 201), r
    digest = hashlib.sha256(data).hexdigest()
    sandbox = hold(c)
    r = send(c, IMPORT, ((r"sbx_…", sandbox), (r"3fa2…", digest),
                         (r"4c1e…", new_key())))
    equal((r.status, r.json["sha256"]), (200, digest), r)
    r = c.call("GET", "/v1/sandboxes/files/content",
               query={"sandbox": sandbox, "path": "data/units.csv"})
    equal((r.status, r.body), (200, data))


@case("LBB-157 page, keep (http)")
def keep_route():
    c, data = client(), b"# Report\n"
    sandbox = hold(c)
    r = c.call("PUT", "/v1/sandboxes/files/content", data,
               query={"sandbox": sandbox, "path": "out/report.md"},
               headers={"Content-Type": "application/octet-stream"})
    equal(r.status, 200, r)
    r = send(c, KEEP, ((r"sbx_…", sandbox), (r"4c1e…", new_key())))
    assert r.status in (200, 201), r
    equal((r.json["created"], r.json["file"]["origin"]["sandbox"]),
          (True, sandbox))
    digest = hashlib.sha256(data).hexdigest()
    r = c.call("GET", "/v1/files/content", query={"sha256": digest})
    equal((r.status, r.body), (200, data))


def agent_six(text):
    """A call of a tool, spelled as words; values are JSON where they look so."""
    c = client()
    name, *words = re.findall(r'(?:[^ \n"]|"(?:\\.|[^"])*")+', text)
    arguments = dict(w.split("=", 1) for w in words)
    for k, v in arguments.items():
        if v[0] in '"[':
            arguments[k] = json.loads(v)
    r = Http(c).good(name, **arguments)
    equal((r.data["ok"], r.data["result"]), (True, 6), r)


for where, sample in AGENT.items():
    case(f"LBB-193 LBB-198 {where}, agent (text)")(
        lambda text=sample: agent_six(text))

try:
    main()
finally:
    for app in apps:
        shutil.rmtree(os.path.dirname(app))
