"""The blocking client: LbbClient, its resources and handles.

_async.py is made from this file by make_async.py and is never edited: there a
method that makes a request is a coroutine, and all else is the same.  What the
calls do is in the ..._steps.py files.
"""
from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Mapping, Sequence

import httpx

from ._clock import Clock
from ._core import Core, Steps, call_options
from ._file_steps import FileSteps, Source, WorkspacePath, WorkspaceSteps
from ._http import SyncDriver
from ._records import (CommandRecord, FilePage, FileRecord, LogRecord, Page,
                       Record, RunRecord, SandboxRecord, TemplateRecord,
                       UploadRecord, WorkspaceFile, id_of)
from ._retry import Policy, RequestOptions, RetryEvent
from ._sandbox_steps import MAX_WAIT_MS, SandboxSteps
from ._version import API_VERSION
from ._wire import Call, Params, RawResponse, Reset, json_bytes

LimitsSpec = Mapping[str, int]
FilesSpec = Sequence[Mapping[str, str]]
Text = Mapping[str, str]
Options = RequestOptions


class Workspace:
    """The files of a sandbox.  A path is under /workspace; give one that is
    not UTF-8 as bytes."""

    def __init__(self, owner: Sandbox) -> None:
        self._do: SyncDriver = owner._do
        self._owner = owner
        self._steps = WorkspaceSteps(owner._core, owner._graph)

    def read(self, path: WorkspacePath, *, offset: int | None = None,
             limit: int | None = None, options: Options | None = None
             ) -> bytes:
        """A file of at most 4 MiB; a larger one by `offset` and `limit`."""
        return self._do(self._steps.read(self._owner.id, path, offset, limit,
                                         options))

    def read_text(self, path: WorkspacePath, *, encoding: str = "utf-8",
                  errors: str = "strict", options: Options | None = None
                  ) -> str:
        data = self._do(self._steps.read(self._owner.id, path, None, None,
                                         options))
        return data.decode(encoding, errors)

    def write(self, path: WorkspacePath, data: bytes | str, *,
              idempotency_key: str | None = None,
              options: Options | None = None) -> WorkspaceFile:
        """At most 4 MiB; folders on the way are made, a file is replaced."""
        return self._do(self._steps.write(self._owner.id, path, data,
                                          idempotency_key, options))

    def import_file(self, path: WorkspacePath, source_sha256: Any, *,
                    idempotency_key: str | None = None,
                    options: Options | None = None) -> WorkspaceFile:
        """Puts a File of the graph here: its SHA-256, or its record."""
        return self._do(self._steps.import_file(
            self._owner.id, path, source_sha256, idempotency_key, options))

    def keep(self, path: WorkspacePath, *, name: str | None = None,
             idempotency_key: str | None = None,
             options: Options | None = None) -> UploadRecord:
        """Keeps a file as a File of the graph; it stays when this ends."""
        return self._do(FileSteps(self._steps.core, self._steps.graph).keep(
            self._owner.id, path, name, idempotency_key, options))

    def list(self, path: WorkspacePath | None = None, *,
             limit: int | None = None, cursor: str | None = None,
             options: Options | None = None) -> Page[WorkspaceFile]:
        """A folder, in the order of names; not the folders below it."""
        return self._do(self._steps.list(self._owner.id, path, limit, cursor,
                                         options))

    def delete(self, path: WorkspacePath, *,
               idempotency_key: str | None = None,
               options: Options | None = None) -> WorkspaceFile:
        """A file or an empty folder.  This cannot be undone."""
        return self._do(self._steps.delete(self._owner.id, path,
                                           idempotency_key, options))


class Commands:
    """The commands of a sandbox."""

    def __init__(self, owner: Sandbox) -> None:
        self._do: SyncDriver = owner._do
        self._owner = owner
        self._steps: SandboxSteps = owner._steps

    def create(self, body: Any = None, /, *,
               argv: Sequence[str] | None = None, cwd: str | None = None,
               env: Text | None = None, stdin: str | None = None,
               timeout_ms: int | None = None, wait_ms: int | None = None,
               idempotency_key: str | None = None,
               options: Options | None = None) -> CommandRecord:
        """Starts a program with its arguments; a shell is explicit.  Waits up
        to `wait_ms` for its end, 30,000 at most and 0 by default."""
        return self._do(self._steps.command_create(
            self._owner.id, body, dict(
                argv=argv, cwd=cwd, env=env, stdin=stdin,
                timeout_ms=timeout_ms, wait_ms=wait_ms),
            idempotency_key, options))

    def list(self, *, limit: int | None = None, cursor: str | None = None,
             options: Options | None = None) -> Page[CommandRecord]:
        return self._do(self._steps.command_list(
            {"sandbox": self._owner.id, "limit": limit, "cursor": cursor},
            options))

    def retrieve(self, command: Any, *, wait_ms: int | None = None,
                 options: Options | None = None) -> CommandRecord:
        """Waits up to `wait_ms` for its end."""
        return self._do(self._steps.command(command, wait_ms, options))

    get = retrieve

    def logs(self, command: Any, *, stream: str | None = None,
             offset: int | None = None, limit: int | None = None,
             options: Options | None = None) -> LogRecord:
        """Output by byte offset; `stream` is stdout (default) or stderr."""
        return self._do(self._steps.command_logs(
            command, {"stream": stream, "offset": offset, "limit": limit},
            options))

    def cancel(self, command: Any, *, idempotency_key: str | None = None,
               options: Options | None = None) -> CommandRecord:
        return self._do(self._steps.command_cancel(command, idempotency_key,
                                                   options))


class Sandbox:
    """A handle of a sandbox.  `record` is what was told of it last, and its
    fields are attributes here."""

    def __init__(self, resource: Sandboxes, record: SandboxRecord) -> None:
        self._do: SyncDriver = resource._do
        self._core: Core = resource._core
        self.record: SandboxRecord = record
        self._graph: str | None = record.get("graph", resource._graph)
        self._steps: SandboxSteps = SandboxSteps(self._core, self._graph)
        self.files = Workspace(self)
        self.commands = Commands(self)

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def status(self) -> str:
        """As it was told last; `retrieve` asks again."""
        return self.record.status

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "record":
            raise AttributeError(name)
        return getattr(self.record, name)

    def __getitem__(self, name: str) -> Any:
        return self.record[name]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.status}>"

    def run(self, body: Any = None, /, *, code: str | None = None,
            input: Any = None, config: Any = None,
            timeout_ms: int | None = None, env: Text | None = None,
            wait_ms: int | None = None, max_wait_ms: int | None = None,
            idempotency_key: str | None = None,
            options: Options | None = None) -> CommandRecord:
        """Calls run(input, config) of `code` here; the command's record.
        Polls until `max_wait_ms`, then SandboxWaitError.  One whose outcome
        is unknown stays `lost` and never runs again by itself."""
        return self._do(self._steps.run_held(self.id, body, dict(
            code=code, input=input, config=config, timeout_ms=timeout_ms,
            env=env, wait_ms=wait_ms, max_wait_ms=max_wait_ms),
            idempotency_key, options))

    def retrieve(self, *, options: Options | None = None) -> SandboxRecord:
        self.record = self._do(self._steps.retrieve(self.id, options))
        return self.record

    def update(self, body: Any = None, /, *,
               name: str | Reset | None = None,
               labels: Text | Reset | None = None,
               idle_seconds: int | None = None,
               expires_in_seconds: int | None = None,
               limits: LimitsSpec | None = None,
               idempotency_key: str | None = None,
               options: Options | None = None) -> SandboxRecord:
        self.record = self._do(self._steps.update(self.id, body, dict(
            name=name, labels=labels, idle_seconds=idle_seconds,
            expires_in_seconds=expires_in_seconds, limits=limits),
            idempotency_key, options))
        return self.record

    def stop(self, *, max_wait_ms: int = MAX_WAIT_MS,
             idempotency_key: str | None = None,
             options: Options | None = None) -> SandboxRecord:
        """Its commands end, its disk stays.  Returns when it is stopped."""
        self.record = self._do(self._steps.stop(
            self.id, max_wait_ms, idempotency_key, options))
        return self.record

    def resume(self, *, max_wait_ms: int = MAX_WAIT_MS,
               idempotency_key: str | None = None,
               options: Options | None = None) -> SandboxRecord:
        """Returns when it runs."""
        self.record = self._do(self._steps.resume(
            self.id, max_wait_ms, idempotency_key, options))
        return self.record

    def delete(self, *, idempotency_key: str | None = None,
               options: Options | None = None) -> SandboxRecord:
        """Destroys it; its record stays."""
        self.record = self._do(self._steps.delete(self.id, idempotency_key,
                                                  options))
        return self.record


class Scope:
    """Makes a sandbox, and destroys it at the end, also after an error."""

    def __init__(self, resource: Sandboxes, steps: Callable[
            [], Steps[tuple[SandboxRecord, int]]]) -> None:
        self._resource = resource
        self._create = steps
        self._sandbox: Sandbox | None = None

    def __enter__(self) -> Sandbox:
        do, steps = self._resource._do, self._resource._steps
        record, max_ms = do(self._create())
        self._sandbox = sandbox = Sandbox(self._resource, record)
        try:
            sandbox.record = do(steps.settled(record, "starting", max_ms))
        except BaseException:
            self._destroy(is_quiet=True)
            raise
        return sandbox

    def __exit__(self, kind: type[BaseException] | None,
                 error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self._destroy(is_quiet=error is not None)

    def _destroy(self, is_quiet: bool) -> None:
        """is_quiet: another error is on its way, and is the one to tell."""
        assert self._sandbox is not None
        try:
            self._sandbox.delete()
        except Exception:
            if not is_quiet:
                raise


class Templates:
    """Saved templates, and the base ones."""

    def __init__(self, do: SyncDriver, steps: SandboxSteps) -> None:
        self._do, self._steps = do, steps

    def create(self, body: Any = None, /, *, name: str | None = None,
               base: str | None = None, code: str | None = None,
               limits: LimitsSpec | None = None,
               timeout_ms: int | None = None, config: Any = None,
               files: FilesSpec | None = None,
               idempotency_key: str | None = None,
               options: Options | None = None) -> TemplateRecord:
        """Each save of a name is a new version."""
        return self._do(self._steps.template_create(body, dict(
            name=name, base=base, code=code, limits=limits,
            timeout_ms=timeout_ms, config=config, files=files),
            idempotency_key, options))

    def list(self, *, name: str | None = None, limit: int | None = None,
             cursor: str | None = None, options: Options | None = None
             ) -> Page[TemplateRecord]:
        """The newest versions; with `name`, all versions of it."""
        return self._do(self._steps.template_list(
            {"name": name, "versions": True if name is not None else None,
             "limit": limit, "cursor": cursor}, options))

    def retrieve(self, template: Any, *, options: Options | None = None
                 ) -> TemplateRecord:
        """By name (its newest version) or by sbt_ id."""
        return self._do(self._steps.template(template, options))

    get = retrieve


class Sandboxes:
    """The sandboxes of a graph."""

    def __init__(self, do: SyncDriver, core: Core, graph: str | None) -> None:
        self._do, self._core, self._graph = do, core, graph
        self._steps = SandboxSteps(core, graph)
        self.templates = Templates(do, self._steps)

    def run(self, body: Any = None, /, *, code: str | None = None,
            input: Any = None, config: Any = None,
            template: str | None = None, limits: LimitsSpec | None = None,
            timeout_ms: int | None = None, env: Text | None = None,
            files: FilesSpec | None = None, wait_ms: int | None = None,
            max_wait_ms: int | None = None, lost_retries: int | None = None,
            idempotency_key: str | None = None,
            options: Options | None = None) -> RunRecord:
        """Runs code once in a fresh sandbox.  Look at `ok` before `result`.

        Polls until `max_wait_ms` (ten minutes), then SandboxWaitError; that
        counts for each attempt.  A run that its host lost is sent again under
        the next key, `lost_retries` (2) times at most.
        """
        return self._do(self._steps.run(body, dict(
            code=code, input=input, config=config, template=template,
            limits=limits, timeout_ms=timeout_ms, env=env, files=files,
            wait_ms=wait_ms, max_wait_ms=max_wait_ms,
            lost_retries=lost_retries), idempotency_key, options))

    def create(self, body: Any = None, /, *, template: str | None = None,
               limits: LimitsSpec | None = None,
               snapshot: str | None = None, idle_seconds: int | None = None,
               expires_in_seconds: int | None = None,
               env: Text | None = None, files: FilesSpec | None = None,
               name: str | None = None, labels: Text | None = None,
               wait_ms: int | None = None, max_wait_ms: int | None = None,
               idempotency_key: str | None = None,
               options: Options | None = None) -> Sandbox:
        """A sandbox that is held.  Returns when it runs, or cannot; with
        wait_ms=0 at once.  You end it, or its expiry does."""
        record, max_ms = self._do(self._steps.create(body, dict(
            template=template, limits=limits, snapshot=snapshot,
            idle_seconds=idle_seconds, expires_in_seconds=expires_in_seconds,
            env=env, files=files, name=name, labels=labels, wait_ms=wait_ms,
            max_wait_ms=max_wait_ms), idempotency_key, options))
        return Sandbox(self, self._do(self._steps.settled(
            record, "starting", max_ms, options)))

    def scoped(self, body: Any = None, /, *, template: str | None = None,
               limits: LimitsSpec | None = None,
               snapshot: str | None = None, idle_seconds: int | None = None,
               expires_in_seconds: int | None = None,
               env: Text | None = None, files: FilesSpec | None = None,
               name: str | None = None, labels: Text | None = None,
               wait_ms: int | None = None, max_wait_ms: int | None = None,
               idempotency_key: str | None = None,
               options: Options | None = None) -> Scope:
        """As create, for a block: `with lbb.sandboxes.scoped() as sb`."""
        return Scope(self, lambda: self._steps.create(body, dict(
            template=template, limits=limits, snapshot=snapshot,
            idle_seconds=idle_seconds, expires_in_seconds=expires_in_seconds,
            env=env, files=files, name=name, labels=labels, wait_ms=wait_ms,
            max_wait_ms=max_wait_ms), idempotency_key, options))

    def retrieve(self, sandbox: Any, *, options: Options | None = None
                 ) -> SandboxRecord:
        return self._do(self._steps.retrieve(sandbox, options))

    get = retrieve

    def handle(self, record: Any) -> Sandbox:
        """Of a record, or of an id.  Makes no request."""
        if isinstance(record, Sandbox):
            record = record.record
        if not isinstance(record, Mapping):
            record = {"id": id_of(record), "status": "unknown"}
        id_of(record)
        return Sandbox(self, SandboxRecord(record))

    def list(self, *, status: str | None = None, template: str | None = None,
             name: str | None = None, limit: int | None = None,
             cursor: str | None = None, options: Options | None = None
             ) -> Page[SandboxRecord]:
        """Newest first."""
        return self._do(self._steps.list(
            {"status": status, "template": template, "name": name,
             "limit": limit, "cursor": cursor}, options))

    def update(self, sandbox: Any, body: Any = None, /, *,
               name: str | Reset | None = None,
               labels: Text | Reset | None = None,
               idle_seconds: int | None = None,
               expires_in_seconds: int | None = None,
               limits: LimitsSpec | None = None,
               idempotency_key: str | None = None,
               options: Options | None = None) -> SandboxRecord:
        return self._do(self._steps.update(sandbox, body, dict(
            name=name, labels=labels, idle_seconds=idle_seconds,
            expires_in_seconds=expires_in_seconds, limits=limits),
            idempotency_key, options))

    def stop(self, sandbox: Any, *, max_wait_ms: int = MAX_WAIT_MS,
             idempotency_key: str | None = None,
             options: Options | None = None) -> SandboxRecord:
        return self._do(self._steps.stop(sandbox, max_wait_ms,
                                         idempotency_key, options))

    def resume(self, sandbox: Any, *, max_wait_ms: int = MAX_WAIT_MS,
               idempotency_key: str | None = None,
               options: Options | None = None) -> SandboxRecord:
        return self._do(self._steps.resume(sandbox, max_wait_ms,
                                           idempotency_key, options))

    def delete(self, sandbox: Any, *, idempotency_key: str | None = None,
               options: Options | None = None) -> SandboxRecord:
        return self._do(self._steps.delete(sandbox, idempotency_key, options))


class Files:
    """What a graph keeps as files, by the SHA-256 of the content."""

    def __init__(self, do: SyncDriver, core: Core, graph: str | None) -> None:
        self._do, self._steps = do, FileSteps(core, graph)

    def upload(self, source: Source, *, name: str | None = None,
               content_type: str | None = None,
               options: Options | None = None) -> UploadRecord:
        """Bytes, or the path of a file, which gives the name, too."""
        return self._do(self._steps.upload(source, name, content_type,
                                           options))

    def keep(self, sandbox: Any, path: WorkspacePath, *,
             name: str | None = None, idempotency_key: str | None = None,
             options: Options | None = None) -> UploadRecord:
        """Keeps a workspace file; it names its sandbox as its origin."""
        return self._do(self._steps.keep(sandbox, path, name,
                                         idempotency_key, options))

    def list(self, *, limit: int | None = None, after: str | None = None,
             name: str | None = None, options: Options | None = None
             ) -> FilePage:
        """Newest first."""
        return self._do(self._steps.list(limit, after, name, options))

    def record(self, sha256: Any, *, options: Options | None = None
               ) -> FileRecord:
        return self._do(self._steps.record(sha256, options))

    get = record

    def content(self, sha256: Any, *,
                range: tuple[int, int | None] | None = None,
                options: Options | None = None) -> bytes:
        """The bytes; `range` is the first and the last one, both included,
        None for the end."""
        return self._do(self._steps.content(sha256, range, options))

    def download(self, sha256: Any, path: str | os.PathLike[str], *,
                 options: Options | None = None) -> Path:
        """Into a file, which appears whole or not at all."""
        return self._do(self._steps.download(sha256, path, options))

    def delete(self, sha256: Any, *, idempotency_key: str | None = None,
               options: Options | None = None) -> Record:
        return self._do(self._steps.delete(sha256, idempotency_key, options))


class GraphScope:
    """The resources of one graph of the environment."""

    def __init__(self, do: SyncDriver, core: Core, graph: str) -> None:
        self.name = graph
        self.sandboxes = Sandboxes(do, core, graph)
        self.files = Files(do, core, graph)


class LbbClient:
    """A client of one environment.  It reads no environment variable, not for
    a proxy either: give `transport` for that.  Safe to share by threads."""

    def __init__(self, base_url: str = "http://127.0.0.1:7400", *,
                 api_key: str | None = None, graph: str | None = None,
                 environment: str | None = None,
                 api_version: str = API_VERSION, max_retries: int = 6,
                 retry_delay: float = 0.1, retry_budget_ms: float = 60000.0,
                 on_retry: Callable[[RetryEvent], object] | None = None,
                 timeout: float = 120.0,
                 transport: httpx.BaseTransport | None = None,
                 event_hooks: Mapping[str, list[Callable[..., Any]]] | None
                 = None, clock: Clock | None = None) -> None:
        clock = clock or Clock()
        self._core = Core(base_url, api_key=api_key, graph=graph,
                          environment=environment, api_version=api_version,
                          policy=Policy(max_retries, retry_delay,
                                        retry_budget_ms, on_retry),
                          timeout=timeout, clock=clock)
        self._http = httpx.Client(transport=transport, trust_env=False,
                                  event_hooks=event_hooks)
        self._do = SyncDriver(self._http, clock)
        self.sandboxes = Sandboxes(self._do, self._core, None)
        self.files = Files(self._do, self._core, None)

    def __enter__(self) -> LbbClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def graph(self, name: str) -> GraphScope:
        """The same, of another graph.  Makes no request."""
        return GraphScope(self._do, self._core, name)

    def version(self) -> Mapping[str, Any]:
        """The server's version and capabilities; asked for once."""
        return self._do(self._core.server_version())

    def require(self, capability: str) -> None:
        """LbbCapabilityError unless the server has it."""
        return self._do(self._core.require(capability))

    def raw_request(self, method: str, path: str, *,
                    params: Params | None = None, body: Any = None,
                    content: bytes | None = None,
                    content_type: str | None = None,
                    idempotency_key: str | None = None,
                    options: Options | None = None) -> RawResponse:
        """Any call, with the retries of all others.  `body` is sent as JSON,
        `content` as it is."""
        if body is not None and content is not None:
            raise ValueError("body and content are both given; give one")
        if body is not None:
            content = json_bytes(body)
            content_type = content_type or "application/json"
        return self._do(self._core.raw(Call(
            method, path, params or {}, content, content_type,
            idempotency_key, options=call_options(options))))
