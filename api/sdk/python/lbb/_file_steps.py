"""What the calls of files do, without any input or output (see _core.py): the
workspace of a sandbox, and the Files of a graph."""
from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Mapping, Union

from ._core import Core, Steps, call_options
from ._records import (FilePage, FileRecord, Page, Record, UploadRecord,
                       WorkspaceFile, file_page, id_of, page_of)
from ._retry import RequestOptions
from ._wire import Call, FileBody, check_key, check_sha256, make_key, path_params

WORKSPACE = "/v1/sandboxes/files"
WORKSPACE_CONTENT = "/v1/sandboxes/files/content"
FILES = "/v1/files"
BYTES = "application/octet-stream"

Options = RequestOptions
#: A path: bytes are one that is not UTF-8.
WorkspacePath = Union[str, bytes]
#: Bytes, or the path of a file here.
Source = Union[bytes, str, "os.PathLike[str]"]


class _Steps:
    def __init__(self, core: Core, graph: str | None) -> None:
        self.core, self.graph = core, graph

    def params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        graph = {"graph": self.graph} if self.graph is not None else {}
        return {**graph, **params}

    def key(self, given: str | None, prefix: str) -> str:
        return (make_key(prefix, self.core.clock) if given is None
                else check_key(given))


class WorkspaceSteps(_Steps):
    """The files of a sandbox; paths are under /workspace."""

    def at(self, sandbox: str, path: WorkspacePath, **more: Any
           ) -> dict[str, Any]:
        return self.params({"sandbox": sandbox, **path_params(path), **more})

    def read(self, sandbox: str, path: WorkspacePath, offset: int | None,
             limit: int | None, options: Options | None) -> Steps[bytes]:
        reply, _, _ = yield from self.core.send(Call(
            "GET", WORKSPACE_CONTENT,
            self.at(sandbox, path, offset=offset, limit=limit),
            options=call_options(options)))
        return reply.body

    def write(self, sandbox: str, path: WorkspacePath, data: bytes | str,
              key: str | None, options: Options | None
              ) -> Steps[WorkspaceFile]:
        if isinstance(data, str):
            data = data.encode()
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"the content is a {type(data).__name__}; it must "
                            f"be bytes or a string")
        return WorkspaceFile((yield from self.core.json(Call(
            "PUT", WORKSPACE_CONTENT, self.at(sandbox, path), bytes(data),
            BYTES, self.key(key, "sandbox.file"),
            options=call_options(options)))))

    def import_file(self, sandbox: str, path: WorkspacePath, sha256: Any,
                    key: str | None, options: Options | None
                    ) -> Steps[WorkspaceFile]:
        return WorkspaceFile((yield from self.core.json(Call(
            "PUT", WORKSPACE_CONTENT,
            self.at(sandbox, path, source_sha256=sha256_of(sha256)), b"",
            idempotency_key=self.key(key, "sandbox.import"),
            options=call_options(options), what="import of a File"))))

    def list(self, sandbox: str, path: WorkspacePath | None,
             limit: int | None, cursor: str | None, options: Options | None
             ) -> Steps[Page[WorkspaceFile]]:
        return page_of(WorkspaceFile, (yield from self.core.json(Call(
            "GET", WORKSPACE, self.params({
                "sandbox": sandbox, **(path_params(path) if path else {}),
                "limit": limit, "cursor": cursor}),
            options=call_options(options)))))

    def delete(self, sandbox: str, path: WorkspacePath, key: str | None,
               options: Options | None) -> Steps[WorkspaceFile]:
        return WorkspaceFile((yield from self.core.json(Call(
            "DELETE", WORKSPACE, self.at(sandbox, path),
            idempotency_key=self.key(key, "sandbox.file_delete"),
            options=call_options(options)))))


class FileSteps(_Steps):
    """The Files of a graph: content by its SHA-256."""

    def upload(self, source: Source, name: str | None,
               content_type: str | None, options: Options | None
               ) -> Steps[UploadRecord]:
        content: bytes | FileBody
        if isinstance(source, (bytes, bytearray, memoryview)):
            content = bytes(source)
        else:
            content = FileBody(Path(source))
            name = content.path.name if name is None else name
        return UploadRecord((yield from self.core.json(Call(
            "POST", FILES, self.params({"name": name}), content,
            content_type or BYTES, is_idempotent=True,
            options=call_options(options), what="Files of a graph"))))

    def keep(self, sandbox: Any, path: WorkspacePath, name: str | None,
             key: str | None, options: Options | None) -> Steps[UploadRecord]:
        where = {"source_" + k: v for k, v in path_params(path).items()}
        return UploadRecord((yield from self.core.json(Call(
            "POST", FILES, self.params({
                "source_sandbox": id_of(sandbox), **where, "name": name}),
            idempotency_key=self.key(key, "file.keep"),
            options=call_options(options), what="Files of a graph"))))

    def list(self, limit: int | None, after: str | None, name: str | None,
             options: Options | None) -> Steps[FilePage]:
        return file_page((yield from self.core.json(Call(
            "GET", FILES, self.params({"limit": limit, "after": after,
                                       "name": name}),
            options=call_options(options), what="Files of a graph"))))

    def record(self, sha256: Any, options: Options | None
               ) -> Steps[FileRecord]:
        return FileRecord((yield from self.core.json(Call(
            "GET", FILES + "/record",
            self.params({"sha256": sha256_of(sha256)}),
            options=call_options(options), what="Files of a graph"))))

    def content(self, sha256: Any, part: tuple[int, int | None] | None,
                options: Options | None) -> Steps[bytes]:
        sha256 = sha256_of(sha256)
        headers = {} if part is None else {"range": range_text(part)}
        reply, _, _ = yield from self.core.send(Call(
            "GET", FILES + "/content", self.params({"sha256": sha256}),
            options=call_options(options), headers=headers,
            what="Files of a graph"))
        if reply.status_code != 206:
            check_sha256(hashlib.sha256(reply.body).hexdigest(), sha256)
        return reply.body

    def download(self, sha256: Any, path: str | os.PathLike[str],
                 options: Options | None) -> Steps[Path]:
        sha256 = sha256_of(sha256)
        yield from self.core.send(Call(
            "GET", FILES + "/content", self.params({"sha256": sha256}),
            options=call_options(options), into=Path(path), sha256=sha256,
            what="Files of a graph"))
        return Path(path)

    def delete(self, sha256: Any, key: str | None, options: Options | None
               ) -> Steps[Record]:
        sha256 = sha256_of(sha256)
        return Record((yield from self.core.json(Call(
            "DELETE", FILES, self.params({"sha256": sha256,
                                          "confirm": sha256}),
            idempotency_key=self.key(key, "file.delete"),
            options=call_options(options), what="Files of a graph"))))


def sha256_of(what: Any) -> str:
    """A hash, a File's record, or the answer of an upload."""
    if isinstance(what, Mapping):
        what = what.get("file", what).get("sha256")
    if not isinstance(what, str):
        raise TypeError("a SHA-256, a File's record or the answer of an "
                        "upload is needed")
    return what


def range_text(part: tuple[int, int | None]) -> str:
    """First and last byte, both included; no last one: to the end."""
    first, last = part
    return f"bytes={first}-{'' if last is None else last}"
