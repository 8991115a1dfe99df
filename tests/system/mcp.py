"""MCP clients for the tests of POST /mcp and of `hutch mcp`: raw JSON-RPC over
HTTP and over pipes, events, and the official clients."""
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.parse

from hutchlib import BUILD, FIXTURES, END_S, Skip, call, equal

READ, MANAGE = "lbb_sandboxes", "lbb_sandboxes_manage"
DELETE = "lbb_sandboxes_delete"
BOTH = "application/json, text/event-stream"


def message(method, params=None, id=1):
    m = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        m["params"] = params
    if id is not None:
        m["id"] = id
    return m


def tool_call(name, arguments, id=1):
    return message("tools/call", {"name": name, "arguments": arguments}, id)


def hello(version="2025-11-25", **capabilities):
    return message("initialize", {
        "protocolVersion": version, "capabilities": capabilities,
        "clientInfo": {"name": "test", "version": "1"}}, 0)


class Result:
    """Of a tool: structuredContent, which the text repeats."""

    def __init__(self, result):
        self.result = result
        self.structured = result["structuredContent"]
        self.is_error = result["isError"]
        equal([x["type"] for x in result["content"]], ["text"])
        equal(json.loads(result["content"][0]["text"]), self.structured)
        self.data = self.structured.get("data")
        self.error = self.structured.get("error")
        self.key = self.structured.get("idempotency_key")

    def __repr__(self):
        return f"<result {json.dumps(self.result)[:800]}>"


class Http:
    """A client of POST /mcp with the key and graph of a hutchlib.Client."""

    def __init__(self, owner, graph=None):
        self.owner, self.graph, self.session = owner, graph, None

    def headers(self, more=None):
        h = {"Authorization": f"Bearer {self.owner.key}", "Accept": BOTH,
             "Content-Type": "application/json"}
        if self.session:
            h["Mcp-Session-Id"] = self.session
        h.update(more or {})
        return {k: v for k, v in h.items() if v is not None}

    def path(self):
        q = {"graph": self.graph} if self.graph else {}
        return "/mcp" + ("?" + urllib.parse.urlencode(q) if q else "")

    def connection(self, timeout=120):
        d = self.owner.daemon
        return http.client.HTTPConnection(d.host, d.port, timeout=timeout)

    def post(self, body, headers=None, method="POST"):
        return call(self.connection(), method, self.path(), body,
                    self.headers(headers))

    def begin(self, **capabilities):
        r = self.post(hello(**capabilities))
        equal(r.status, 200, r)
        self.session = r.headers["Mcp-Session-Id"]
        return r.json["result"]

    def tool(self, name, **arguments):
        r = self.post(tool_call(name, arguments))
        equal(r.status, 200, r)
        assert "result" in r.json, r
        return Result(r.json["result"])

    def good(self, name, **arguments):
        r = self.tool(name, **arguments)
        assert not r.is_error, r
        return r

    def bad(self, name, **arguments):
        """The error object."""
        r = self.tool(name, **arguments)
        assert r.is_error, r
        return r.error

    @contextlib.contextmanager
    def stream(self, body):
        """A POST that is answered by events: an iterator over messages."""
        c = self.connection()
        c.request("POST", self.path(), json.dumps(body), self.headers())
        r = c.getresponse()
        try:
            equal(r.status, 200)
            equal(r.getheader("Content-Type"), "text/event-stream")
            yield self.events(r)
        finally:
            r.close()
            c.close()

    @staticmethod
    def events(r):
        for line in r:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


class Pipe:
    """`hutch mcp` and its pipes."""

    def __init__(self, *argv, env=None):
        self.process = subprocess.Popen(
            [f"{BUILD}/hutch", "mcp", *argv], text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=dict(os.environ, **(env or {})))

    def send(self, *messages):
        for m in messages:
            self.process.stdin.write(
                (m if isinstance(m, str) else json.dumps(m)) + "\n")
        self.process.stdin.flush()

    def read(self):
        line = self.process.stdout.readline()
        assert line, "hutch mcp closed its output"
        return json.loads(line)

    def ask(self, m):
        self.send(m)
        return self.read()

    def tool(self, name, **arguments):
        return Result(self.ask(tool_call(name, arguments))["result"])

    def end(self, timeout=60):
        """End of input: exit status, the rest of its output, its errors."""
        out, err = self.process.communicate(timeout=timeout)
        return (self.process.returncode,
                [json.loads(x) for x in out.splitlines()], err)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


# ---- the official clients ------------------------------------------------

CLIENTS = f"{BUILD}/images/mcp-client"
_unpacked = None


def clients():
    """The folder with node_modules and our script, unpacked once."""
    global _unpacked
    if not os.path.exists(f"{CLIENTS}/node_modules.tar"):
        raise Skip("the MCP clients of npm are not in build/images: "
                   "`make mcp-client` says why")
    if not _unpacked:
        _unpacked = tempfile.mkdtemp(prefix="mcp-client.")
        with tarfile.open(f"{CLIENTS}/node_modules.tar") as t:
            t.extractall(_unpacked, filter="data")
        shutil.copy(f"{FIXTURES}/mcp_client.mjs", _unpacked)
    return _unpacked


def node(*argv, folder="."):
    r = subprocess.run([f"{CLIENTS}/node", *argv], text=True,
                       capture_output=True, timeout=END_S,
                       cwd=os.path.join(clients(), folder))
    equal(r.returncode, 0, r.stderr[-3000:])
    return json.loads(r.stdout)


def sdk(where, calls, **more):
    """The TypeScript SDK: `where` is {"url", "key"} or {"command"}."""
    out = node("mcp_client.mjs", json.dumps(dict(where, calls=calls, **more)))
    out["results"] = [r if "thrown" in r else Result(r)
                      for r in out["results"]]
    return out


def inspector(where, method, *argv):
    """The inspector's command line.  It looks for its package.json from the
    folder that it is started in."""
    if "command" in where:
        target, *rest = where["command"]
        argv = [target, "--method", method, *argv, "--", *rest]
    else:
        argv = [where["url"], "--transport", "http", "--header",
                f"Authorization: Bearer {where['key']}", "--method", method,
                *argv]
    return node("index.js", *argv, folder="node_modules/@modelcontextprotocol/"
                "inspector-cli/build")
