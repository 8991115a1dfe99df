"""Records as they are on the wire, with attributes.

Each is a dict of the JSON that came: `run["result"]` and `run.result` are the
same, a field that a newer server adds is there too, and `json.dumps` takes it.
The annotations say what to expect; nothing is checked or converted.  What
belongs to the user (input, config, result, labels) stays plain JSON.
"""
from __future__ import annotations

import base64
from typing import Any, ClassVar, Generic, Mapping, TypeVar


class Record(dict[str, Any]):
    """JSON with attributes."""

    #: Fields that are records themselves.
    _parts: ClassVar[Mapping[str, type[Record]]] = {}

    def __init__(self, fields: Mapping[str, Any] | None = None) -> None:
        super().__init__(fields or {})
        for name, kind in self._parts.items():
            if isinstance(self.get(name), dict):
                self[name] = kind(self[name])

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"this {type(self).__name__} has no field {name!r}; it has "
                f"{', '.join(sorted(self))}") from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"


class Limits(Record):
    vcpus: int
    memory_mib: int
    disk_mib: int


class SandboxRecord(Record):
    id: str
    graph: str
    #: starting running stopping stopped destroying destroyed failed lost
    status: str
    kind: str
    reason: str | None
    message: str | None
    name: str | None
    labels: dict[str, str]
    template: str
    template_id: str | None
    template_version: int | None
    template_base: str | None
    limits: Limits
    idle_seconds: int
    expires_in_seconds: int
    expires_at: str | None
    created_at: str
    started_at: str | None
    stopped_at: str | None
    ended_at: str | None
    last_active_at: str | None
    command: str | None
    _parts = {"limits": Limits}


class Output(Record):
    """One stream of a command: the first and the last 48 KiB of it."""

    head: str
    tail: str
    bytes: int
    truncated: bool
    invalid_utf8: bool


class RunRecord(Record):
    """The answer of a one-call run."""

    ok: bool
    result: Any
    #: queued running succeeded failed timed_out cancelled lost
    status: str
    exit_code: int | None
    signal: int | None
    reason: str | None
    message: str | None
    command: str
    sandbox: str
    graph: str
    template: str
    timeout_ms: int
    created_at: str
    started_at: str | None
    ended_at: str | None
    duration_ms: int | None


class CommandRecord(Record):
    id: str
    sandbox: str
    graph: str
    kind: str
    #: queued running succeeded failed timed_out cancelled lost
    status: str
    ok: bool
    #: Of a run, what run() returned.
    result: Any
    exit_code: int | None
    signal: int | None
    reason: str | None
    message: str | None
    argv: list[str]
    timeout_ms: int
    created_at: str
    started_at: str | None
    ended_at: str | None
    duration_ms: int | None
    env_names: list[str]
    stdin_bytes: int
    stdout: Output
    stderr: Output
    code: Record
    usage: Record
    _parts = {"stdout": Output, "stderr": Output, "code": Record,
              "usage": Record}


class LogRecord(Record):
    """A slice of a command's output; read on from `next_offset`."""

    command: str
    stream: str
    data: str
    encoding: str
    offset: int
    next_offset: int
    eof: bool
    total_bytes: int
    truncated: bool

    def content(self) -> bytes:
        """The bytes of the slice, whatever its encoding."""
        if self.encoding == "base64":
            return base64.b64decode(self.data)
        return self.data.encode()


class TemplateRecord(Record):
    """A version of a saved template, or a base, which has no `files`."""

    id: str | None
    name: str
    is_base: bool
    version: int | None
    base: str
    code: str | None
    config: Any
    limits: Limits
    timeout_ms: int
    #: path, sha256, id and bytes of each
    files: list[dict[str, Any]]
    _parts = {"limits": Limits}


class WorkspaceFile(Record):
    """A file in a sandbox.  What a list says of it, and what a write says,
    have `path` and `size` in common."""

    path: str
    name: str
    #: file directory symlink fifo socket device
    type: str
    size: int
    modified_at: str
    mode: str
    sha256: str
    deleted: bool


class FileRecord(Record):
    """A File of the graph: content by its SHA-256."""

    sha256: str
    name: str
    content_type: str
    bytes: int
    document: str
    uploaded_at: str
    #: Where it was kept from: sandbox, path.
    origin: Record
    _parts = {"origin": Record}


class UploadRecord(Record):
    """The answer of an upload or a keep; `created` is False for bytes that
    were there under this name before."""

    created: bool
    file: FileRecord
    _parts = {"file": FileRecord}


T = TypeVar("T", bound=Record)


class Page(Record, Generic[T]):
    """A page of a list; `next_cursor` is the next one's `cursor`."""

    data: list[T]
    has_more: bool
    next_cursor: str | None


class FilePage(Record):
    """A page of the graph's Files; `next`, if it is there, is the next one's
    `after`."""

    files: list[FileRecord]
    next: str


def page_of(kind: type[T], fields: Mapping[str, Any]) -> Page[T]:
    page: Page[T] = Page(fields)
    page["data"] = [kind(x) for x in page["data"]]
    return page


def file_page(fields: Mapping[str, Any]) -> FilePage:
    page = FilePage(fields)
    page["files"] = [FileRecord(x) for x in page["files"]]
    return page


def id_of(what: Any) -> str:
    """An id, or the `id` of a record or handle."""
    if isinstance(what, str):
        return what
    if isinstance(what, Mapping):
        what = what.get("id")
    else:
        what = getattr(what, "id", None)
    if not isinstance(what, str):
        raise TypeError("an id, a record or a handle is needed")
    return what
