"""Real records for the requests of properties.py.

A daemon's client with sandboxes that run, are stopped and have ended, their
commands, files, a snapshot, templates and Files of the graph.  `fill` puts
their ids in the places of valid values.  Requests delete and stop what they
hit: `mend` makes what is missing anew, and ends what they made beside it, so
that places stay free.

What a valid request may cost is bounded, for the sake of time alone: base
lbb/shell, one vCPU and the default memory (any other shape is another
template snapshot), waits of at most WAIT_MS, time-outs of TIMEOUT_MS.
"""
import copy
import hashlib
import random

from held import SHELL, WAIT_S, create, delete, resume, running, sh, stop
from hutchlib import equal, new_key, wait_until

WAIT_MS = 300
TIMEOUT_MS = 5000
SANDBOXES = "/v1/sandboxes"
ALIVE = ("starting", "running", "stopping", "stopped")
CODE = ("echo '{\"sum\": 6}'", "cat \"$RUN_INPUT\"", "exit 3",
        "echo said; echo more >&2")
ARGV = (["true"], ["ls", "-l"], ["sh", "-c", "echo said; exit 3"], ["nothing"])
PATHS = ("a.txt", "in", "in/b.txt", "/workspace/a.txt", "new/c.bin", "..")
REAL = .85      # of valid ids, how many are of a record
ADMIN_ENVIRONMENT = "env_properties"    # never the client's own
ADMIN_KEY = "of-properties"
WORKFLOW = "nightly"


def is_int(value, low, high):
    return type(value) is int and low <= value <= high


def is_name(value):
    """Of a template, or it could be."""
    return isinstance(value, str) and len(value) <= 64


def digits(value, name=None):
    """A copy whose whole numbers are digits alone: 2.0 is one to JSON Schema,
    and none to the daemon (info.description).  Users' JSON stays."""
    if name in ("input", "config"):
        return copy.deepcopy(value)
    if isinstance(value, dict):
        return {k: digits(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [digits(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() \
        else value


class Live:
    def __init__(self, client, seed):
        self.c, self.rng = client, random.Random(seed)
        self.bytes = b"a File of the graph\n"
        self.sha = hashlib.sha256(self.bytes).hexdigest()
        self.n = 0
        self.mine = {}          # what a sandbox is kept for -> id
        self.ended = None
        self.snapshot = None
        self.commands = []

    # ---- records ----

    def begin(self):
        c = self.c
        for name in ("normalize", "with.code"):
            r = c.call("POST", SANDBOXES + "/templates", {
                "name": name, "base": SHELL, "code": CODE[0],
                "config": {"unit": "cm"}}, new_key())
            equal(r.status, 201, r)
        run = c.run(CODE[3], template=SHELL)
        self.ended = run.sandbox
        self.commands.append(run.command)
        self.mend()

    def mend(self):
        """All that `fill` names is there again, and nothing else is alive."""
        c, alive = self.c, self.alive()
        for sandbox in alive.keys() - set(self.mine.values()):
            delete(c, sandbox)
        for purpose, want in (("running", "running"), ("stopped", "stopped")):
            sandbox = self.mine.get(purpose)
            if alive.get(sandbox) == want:
                continue
            if sandbox not in alive:
                sandbox = self.mine[purpose] = self.hold()
            self.settle(sandbox, want)
        r = c.call("GET", SANDBOXES + "/snapshots", query={"limit": 100})
        if self.snapshot not in [x["id"] for x in r.json["data"]]:
            r = c.call("POST", SANDBOXES + "/snapshots", {}, new_key(),
                       {"sandbox": self.mine["stopped"]})
            equal(r.status, 201, r)
            self.snapshot = r.json["id"]
        r = c.call("POST", "/v1/files", self.bytes, query={"name": "f.txt"},
                   headers={"Content-Type": "text/plain"})
        assert r.status in (200, 201), r

    def alive(self):
        found = {}
        for status in ALIVE:
            r = self.c.call("GET", SANDBOXES, query={"limit": 100,
                                                     "status": status})
            equal(r.status, 200, r)
            found.update((x["id"], x["status"]) for x in r.json["data"])
        return found

    def hold(self):
        """A new sandbox, with files and a command; others may have to end."""
        r = wait_until(lambda: self.made(create(self.c, wait_ms=30000)),
                       WAIT_S, "there is a place for a sandbox")
        sandbox = running(self.c, r)
        self.commands.append(
            sh(self.c, sandbox, "mkdir -p in; echo a > a.txt;"
               "echo b > in/b.txt; cat in/b.txt")["id"])
        return sandbox

    @staticmethod
    def made(r):
        assert r.status in (201, 429, 503), r
        return r.status == 201 and r

    def settle(self, sandbox, want):
        """It is on its way to what a request, or time, has made of it."""
        def fn():
            status = self.c.sandbox(sandbox)["status"]
            if status == want:
                return True
            if status == "running":
                stop(self.c, sandbox)
            elif status == "stopped":
                resume(self.c, sandbox)
            assert status in ALIVE, status
            return False
        wait_until(fn, WAIT_S, f"{sandbox} is {want}")

    def mend_admin(self):
        """The environment of requests to the admin socket, and a key of it."""
        d = self.c.daemon
        d.admin("POST", "/admin/environments", {"name": ADMIN_ENVIRONMENT})
        d.admin("POST", "/admin/keys", {"environment": ADMIN_ENVIRONMENT,
                                        "name": ADMIN_KEY})
        for body in ({}, {"workflow": WORKFLOW}):
            d.admin("PUT", f"/admin/budgets?environment={ADMIN_ENVIRONMENT}",
                    {"runs": 9, "window_seconds": 60, **body})
        r = d.admin("GET", f"/admin/keys?environment={ADMIN_ENVIRONMENT}")
        equal(r.status, 200, r)
        assert ADMIN_KEY in [x["name"] for x in r.json["data"]], r

    # ---- values ----

    def pick(self, *values):
        return self.rng.choice(values)

    def is_real(self):
        return self.rng.random() < REAL

    def value(self, name, path, old):
        """For the query parameter `name`; `old` was valid."""
        if name == "graph":
            return "main" if self.is_real() else old
        if name == "environment":
            return ADMIN_ENVIRONMENT
        if name == "wait_ms":
            return min(old, WAIT_MS)
        if name == "expected_graph_epoch":
            return "1"
        if name in ("sandbox", "source_sandbox"):
            return self.pick(self.mine["running"], self.mine["running"],
                             self.mine["stopped"], self.ended)
        if name == "command":
            return self.pick(*self.commands)
        if name == "snapshot":
            return self.snapshot
        if name in ("sha256", "confirm", "source_sha256"):
            return self.sha
        if name in ("path", "source_path"):
            return self.pick(*PATHS, old)
        if name == "workflow":
            return WORKFLOW
        if path == "/admin/keys" and name == "name":
            return ADMIN_KEY
        if name in ("template", "name"):
            return (self.pick("normalize", SHELL, old)
                    if "/templates" in path else old)
        return old

    def fill(self, case):
        """Real values in the place of valid ones; bounded costs."""
        self.n += 1
        query = dict(case.query)
        if not case.meta.generation.mode.is_negative:
            self.relate(case, query)
        for name, old in query.items():
            parameter = case.operation.query.get(name)
            if parameter is None or isinstance(old, (list, dict)) or \
                    not parameter.get_validator().is_valid(old):
                continue
            if self.is_real() or name in ("wait_ms", "environment"):
                query[name] = self.value(name, case.path, old)
        # Two names for one thing, and a page of another list, are 400.
        for name in ("path_hex", "source_path_hex", "cursor", "after"):
            if name in query and self.is_real():
                del query[name]
        if query != case.query:
            case.query = query
        key = case.headers.get("Idempotency-Key")
        if isinstance(key, str) and 0 < len(key) < 256 and self.is_real():
            case.headers["Idempotency-Key"] = f"p:{self.n}"
        if isinstance(case.body, dict):
            body = digits(case.body)
            self.bound(case, body)
            case.body = body
        return case

    def relate(self, case, query):
        """What a valid request has or has not because of something else, which
        the document says in words alone."""
        from schemathesis.core import NOT_SET
        known = case.operation.query
        if "path" in known and not query.keys() & {"path", "path_hex"}:
            query["path"] = self.pick(*PATHS)
        if "template" in known and "versions" in known or \
                case.path.endswith("/templates/get"):
            query.pop(self.pick("name", "template"), None)
            if not query.keys() & {"name", "template"}:
                query["name"] = "normalize"
        if query.keys() & {"source_sandbox", "source_path", "source_sha256"}:
            case.body = NOT_SET
            case.headers.setdefault("Idempotency-Key", f"p:{self.n}")

    def bound(self, case, body):
        """Of the bodies of all operations; names mean the same in all."""
        run = body.get("run")
        for part in [body] + ([run] if isinstance(run, dict) else []):
            if is_int(part.get("wait_ms"), 0, 30000):
                part["wait_ms"] = min(part["wait_ms"], WAIT_MS)
            if is_int(part.get("timeout_ms"), 1, 3600000):
                part["timeout_ms"] = min(part["timeout_ms"], TIMEOUT_MS)
            self.bound_limits(part.get("limits"))
            if isinstance(part.get("code"), str) and self.is_real():
                part["code"] = self.pick(*CODE)
            self.name_files(part.get("files"))
        self.name_template(case, body)
        argv = body.get("argv")
        if isinstance(argv, list) and self.is_real() and \
                all(isinstance(x, str) for x in argv) and argv:
            body["argv"] = self.pick(*ARGV)
            body.pop("cwd", None) if self.is_real() else None
        if isinstance(body.get("snapshot"), str) and self.is_real():
            body["snapshot"] = self.snapshot
        if isinstance(body.get("environment"), str) and self.is_real():
            body["environment"] = ADMIN_ENVIRONMENT

    def bound_limits(self, limits):
        if not isinstance(limits, dict):
            return
        if is_int(limits.get("vcpus"), 1, 4):
            limits["vcpus"] = 1
        if is_int(limits.get("memory_mib"), 128, 8192):
            limits["memory_mib"] = 1024

    def name_files(self, files):
        for i, f in enumerate(files if isinstance(files, list) else ()):
            if not isinstance(f, dict):
                continue
            if isinstance(f.get("sha256"), str) and self.is_real():
                f["sha256"] = self.sha
                f.pop("id", None)
            if isinstance(f.get("path"), str) and self.is_real():
                f["path"] = f"files/{i}"

    def name_template(self, case, body):
        """A base that starts soon.  What has none would get lbb/python."""
        if body.get("base") in ("lbb/python", "lbb/node"):
            body["base"] = SHELL
        if case.method.upper() != "POST":
            return
        if case.path == "/admin/prepare" and is_name(body.get("template", "")):
            body["template"] = SHELL
        if case.path == SANDBOXES and "snapshot" not in body:
            run = body.get("run")
            part = run if isinstance(run, dict) else body
            if is_name(part.get("template", "")):
                part["template"] = self.pick(SHELL, SHELL, SHELL, "normalize")
        if case.path == "/mcp" and isinstance(body.get("params"), dict):
            arguments = body["params"].get("arguments")
            if isinstance(arguments, dict):
                arguments["template"] = SHELL
