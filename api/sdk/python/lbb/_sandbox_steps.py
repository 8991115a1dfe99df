"""What the calls of sandboxes do, without any input or output (see _core.py).

The waiting is here: a one-call run that the host lost is sent again under the
next key; a run that outlives its wait_ms is polled; a sandbox that starts or
stops is waited for.
"""
from __future__ import annotations

from typing import Any, Mapping, TypeVar

from ._core import Core, Pause, Steps, call_options
from ._errors import SandboxWaitError
from ._records import (CommandRecord, LogRecord, Page, Record, RunRecord,
                       SandboxRecord, TemplateRecord, id_of, page_of)
from ._retry import RequestOptions
from ._wire import (Call, body_fields, check_key, check_ms, json_bytes,
                    make_key)

SANDBOXES = "/v1/sandboxes"
COMMANDS = "/v1/sandboxes/commands"
TEMPLATES = "/v1/sandboxes/templates"
JSON = "application/json"

WAIT_MS = 30_000            # the most that the server waits in one call
MAX_WAIT_MS = 600_000
LOST_RETRIES_MAX = 2
POLL_S, POLL_S_MAX = 0.1, 1.0
PENDING = ("queued", "running", "starting")

R = TypeVar("R", bound=Record)
Options = RequestOptions


class SandboxSteps:
    """The calls of one graph."""

    def __init__(self, core: Core, graph: str | None) -> None:
        self.core, self.graph = core, graph

    # ---- one call ---------------------------------------------------------

    def call(self, method: str, path: str, params: Mapping[str, Any],
             options: Options | None, *, body: Any = None,
             key: str | None = None) -> Call:
        graph = {"graph": self.graph} if self.graph is not None else {}
        return Call(method, path, {**graph, **params},
                    None if body is None else json_bytes(body),
                    None if body is None else JSON, key,
                    options=call_options(options))

    def one(self, kind: type[R], call: Call) -> Steps[R]:
        return kind((yield from self.core.json(call)))

    def page(self, kind: type[R], call: Call) -> Steps[Page[R]]:
        return page_of(kind, (yield from self.core.json(call)))

    def key(self, given: str | None, prefix: str) -> str:
        return (make_key(prefix, self.core.clock) if given is None
                else check_key(given))

    # ---- runs -------------------------------------------------------------

    def run(self, body: Any, fields: Mapping[str, Any], key: str | None,
            options: Options | None) -> Steps[RunRecord]:
        """POST it, poll it, and send it again while the host loses it."""
        run = body_fields(body, fields)
        wait_ms = check_ms("wait_ms", run.pop("wait_ms", WAIT_MS))
        max_ms = check_ms("max_wait_ms", run.pop("max_wait_ms", MAX_WAIT_MS))
        lost_retries = check_lost_retries(run.pop("lost_retries",
                                                  LOST_RETRIES_MAX))
        key = self.key(key, "sandbox.run")
        if lost_retries:
            check_key(key, len(f".{lost_retries + 1}"))
        whole = {"run": run, "wait_ms": min(wait_ms, max_ms)}
        for n in range(1, lost_retries + 2):
            record = yield from self.run_once(
                whole, key if n == 1 else f"{key}.{n}", max_ms, options)
            if record.status != "lost":
                break
        return record

    def run_once(self, whole: Mapping[str, Any], key: str, max_ms: int,
                 options: Options | None) -> Steps[RunRecord]:
        start = self.core.clock.monotonic()
        run = yield from self.one(RunRecord, self.call(
            "POST", SANDBOXES, {}, options, body=whole, key=key))
        if run.status not in PENDING:
            return run
        ended = yield from self.await_command(run, run.sandbox, run.command,
                                              start, max_ms, options)
        news = {k: ended[k] for k in run if k in ended and k != "object"}
        run = RunRecord({**run, **news})
        for name in ("sandbox_status", "progress"):
            run.pop(name, None)  # of the moment of the first answer
        return run

    def await_command(self, last: Record, sandbox: str, command: str,
                      start: float, max_ms: int, options: Options | None
                      ) -> Steps[CommandRecord]:
        """Its end; `start` is when the wait began."""
        clock = self.core.clock
        while True:
            began = clock.monotonic()
            left_ms = max_ms - int((began - start) * 1000)
            if left_ms <= 0:
                raise SandboxWaitError(
                    f"{command} in {sandbox} is {last.status} after "
                    f"{max_ms} ms, and goes on", sandbox, command, last)
            record = yield from self.command(
                command, min(WAIT_MS, left_ms), options)
            if record.status not in PENDING:
                return record
            last = record
            # A server that does not wait is not asked all the time.
            took = clock.monotonic() - began
            if took < POLL_S_MAX:
                yield Pause(min(POLL_S_MAX - took, max(left_ms, 1) / 1000))

    def run_held(self, sandbox: str, body: Any, fields: Mapping[str, Any],
                 key: str | None, options: Options | None
                 ) -> Steps[CommandRecord]:
        """run() on a sandbox that is held; never sent again by itself."""
        start = self.core.clock.monotonic()
        run = body_fields(body, fields)
        wait_ms = check_ms("wait_ms", run.pop("wait_ms", WAIT_MS))
        max_ms = check_ms("max_wait_ms", run.pop("max_wait_ms", MAX_WAIT_MS))
        record = yield from self.command_create(
            sandbox, None, {"run": run, "wait_ms": min(wait_ms, max_ms)}, key,
            options)
        if record.status not in PENDING:
            return record
        return (yield from self.await_command(record, sandbox, record.id,
                                              start, max_ms, options))

    # ---- commands ---------------------------------------------------------

    def command_create(self, sandbox: str, body: Any,
                       fields: Mapping[str, Any], key: str | None,
                       options: Options | None) -> Steps[CommandRecord]:
        return self.one(CommandRecord, self.call(
            "POST", COMMANDS, {"sandbox": sandbox}, options,
            body=body_fields(body, fields),
            key=self.key(key, "sandbox.command")))

    def command(self, command: Any, wait_ms: int | None,
                options: Options | None) -> Steps[CommandRecord]:
        return self.one(CommandRecord, self.call(
            "GET", COMMANDS + "/get",
            {"command": id_of(command), "wait_ms": wait_ms}, options))

    def command_list(self, params: Mapping[str, Any],
                     options: Options | None) -> Steps[Page[CommandRecord]]:
        return self.page(CommandRecord,
                         self.call("GET", COMMANDS, params, options))

    def command_logs(self, command: Any, params: Mapping[str, Any],
                     options: Options | None) -> Steps[LogRecord]:
        return self.one(LogRecord, self.call(
            "GET", COMMANDS + "/logs", {"command": id_of(command), **params},
            options))

    def command_cancel(self, command: Any, key: str | None,
                       options: Options | None) -> Steps[CommandRecord]:
        return self.one(CommandRecord, self.call(
            "POST", COMMANDS + "/cancel", {"command": id_of(command)},
            options, key=self.key(key, "sandbox.cancel")))

    # ---- sandboxes --------------------------------------------------------

    def create(self, body: Any, fields: Mapping[str, Any], key: str | None,
               options: Options | None) -> Steps[tuple[SandboxRecord, int]]:
        """The new sandbox, which may still start, and for how many
        milliseconds to wait for that."""
        spec = body_fields(body, fields)
        wait_ms = check_ms("wait_ms", spec.pop("wait_ms", WAIT_MS))
        max_ms = check_ms("max_wait_ms", spec.pop("max_wait_ms", MAX_WAIT_MS))
        record = yield from self.one(SandboxRecord, self.call(
            "POST", SANDBOXES, {}, options, key=self.key(key, "sandbox.create"),
            body={**spec, "wait_ms": min(wait_ms, max_ms)}))
        return record, max_ms if wait_ms else 0

    def settled(self, record: SandboxRecord, moving: str, max_ms: int,
                options: Options | None = None) -> Steps[SandboxRecord]:
        """Waits until it is no longer `moving`; 0 ms: as it is."""
        clock = self.core.clock
        start, pause = clock.monotonic(), POLL_S
        while max_ms and record.status == moving:
            if (clock.monotonic() - start) * 1000 >= max_ms:
                raise SandboxWaitError(
                    f"{record.id} is {moving} after {max_ms} ms", record.id,
                    None, record)
            yield Pause(pause)
            pause = min(pause * 2, POLL_S_MAX)
            record = yield from self.retrieve(record.id, options)
        return record

    def retrieve(self, sandbox: Any, options: Options | None
                 ) -> Steps[SandboxRecord]:
        return self.one(SandboxRecord, self.call(
            "GET", SANDBOXES + "/get", {"sandbox": id_of(sandbox)}, options))

    def list(self, params: Mapping[str, Any], options: Options | None
             ) -> Steps[Page[SandboxRecord]]:
        return self.page(SandboxRecord,
                         self.call("GET", SANDBOXES, params, options))

    def update(self, sandbox: Any, body: Any, fields: Mapping[str, Any],
               key: str | None, options: Options | None
               ) -> Steps[SandboxRecord]:
        return self.one(SandboxRecord, self.call(
            "PATCH", SANDBOXES, {"sandbox": id_of(sandbox)}, options,
            body=body_fields(body, fields),
            key=self.key(key, "sandbox.update")))

    def move(self, verb: str, moving: str, sandbox: Any, max_wait_ms: int,
             key: str | None, options: Options | None
             ) -> Steps[SandboxRecord]:
        """Stop or resume, and the end of that."""
        max_ms = check_ms("max_wait_ms", max_wait_ms)
        record = yield from self.one(SandboxRecord, self.call(
            "POST", f"{SANDBOXES}/{verb}", {"sandbox": id_of(sandbox)},
            options, key=self.key(key, f"sandbox.{verb}")))
        return (yield from self.settled(record, moving, max_ms, options))

    def stop(self, sandbox: Any, max_wait_ms: int, key: str | None,
             options: Options | None) -> Steps[SandboxRecord]:
        return self.move("stop", "stopping", sandbox, max_wait_ms, key,
                         options)

    def resume(self, sandbox: Any, max_wait_ms: int, key: str | None,
               options: Options | None) -> Steps[SandboxRecord]:
        return self.move("resume", "starting", sandbox, max_wait_ms, key,
                         options)

    def delete(self, sandbox: Any, key: str | None, options: Options | None
               ) -> Steps[SandboxRecord]:
        return self.one(SandboxRecord, self.call(
            "DELETE", SANDBOXES, {"sandbox": id_of(sandbox)}, options,
            key=self.key(key, "sandbox.delete")))

    # ---- templates --------------------------------------------------------

    def template_create(self, body: Any, fields: Mapping[str, Any],
                        key: str | None, options: Options | None
                        ) -> Steps[TemplateRecord]:
        return self.one(TemplateRecord, self.call(
            "POST", TEMPLATES, {}, options, body=body_fields(body, fields),
            key=self.key(key, "sandbox.template")))

    def template(self, template: Any, options: Options | None
                 ) -> Steps[TemplateRecord]:
        return self.one(TemplateRecord, self.call(
            "GET", TEMPLATES, {"template": template_of(template)}, options))

    def template_list(self, params: Mapping[str, Any],
                      options: Options | None) -> Steps[Page[TemplateRecord]]:
        return self.page(TemplateRecord,
                         self.call("GET", TEMPLATES, params, options))


def template_of(what: Any) -> str:
    """A base template has a name and no id."""
    if isinstance(what, Mapping) and what.get("id") is None:
        return id_of(what.get("name"))
    return id_of(what)


def check_lost_retries(value: Any) -> int:
    if (isinstance(value, bool) or not isinstance(value, int) or
            not 0 <= value <= LOST_RETRIES_MAX):
        raise ValueError(f"lost_retries is {value!r}; it must be 0 to "
                         f"{LOST_RETRIES_MAX}")
    return value
