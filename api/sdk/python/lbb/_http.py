"""Performs the steps of a call over httpx: blocking, or awaiting.

These two are all that differs between the clients.  A good answer that goes to
a file is written beside it and takes its name when it is whole.
"""
from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any, AsyncIterator, Iterator, Mapping, TypeVar, Union

import httpx

from ._clock import Clock
from ._core import Attempt, Effect, Steps
from ._wire import FileBody, Reply, check_sha256

T = TypeVar("T")


def _head(response: httpx.Response) -> tuple[int, Mapping[str, str]]:
    return response.status_code, {
        k.lower(): v for k, v in response.headers.items()}


def _goes_to_file(attempt: Attempt, response: httpx.Response) -> bool:
    return attempt.call.into is not None and response.is_success


class _File:
    """Takes an answer's bytes, and its name at the end; nothing is left of one
    that fails, or is not what its SHA-256 says."""

    def __init__(self, path: Path, sha256: str | None) -> None:
        self.path, self.sha256 = path, sha256
        self.hash = hashlib.sha256()
        fd, name = tempfile.mkstemp(prefix=path.name[:64] + ".",
                                    dir=path.parent)
        self.file, self.temporary = os.fdopen(fd, "wb"), Path(name)

    def write(self, piece: bytes) -> None:
        self.hash.update(piece)
        self.file.write(piece)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, kind: object, *more: object) -> None:
        try:
            self.file.close()
            if kind is None:
                check_sha256(self.hash.hexdigest(), self.sha256)
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(self.temporary, 0o666 & ~mask)
                os.replace(self.temporary, self.path)
        finally:
            self.temporary.unlink(missing_ok=True)


class SyncDriver:
    def __init__(self, http: httpx.Client, clock: Clock) -> None:
        self.http, self.clock = http, clock

    def __call__(self, steps: Steps[T]) -> T:
        outcome: Any = None
        error: Exception | None = None
        while True:
            try:
                effect: Effect = (steps.throw(error) if error is not None
                                  else steps.send(outcome))
            except StopIteration as e:
                value: T = e.value
                return value
            outcome = error = None
            try:
                if isinstance(effect, Attempt):
                    outcome = self.send(effect)
                else:
                    self.clock.sleep(effect.seconds)
            except Exception as e:
                error = e

    def send(self, a: Attempt) -> Reply:
        content: Union[bytes, Iterator[bytes], None] = (
            a.call.content.pieces() if isinstance(a.call.content, FileBody)
            else a.call.content)
        with self.http.stream(a.call.method, a.url, content=content,
                              headers=dict(a.headers),
                              timeout=a.timeout) as response:
            status, headers = _head(response)
            if not _goes_to_file(a, response):
                return Reply(status, headers, response.read())
            assert a.call.into is not None
            with _File(a.call.into, a.call.sha256) as f:
                for piece in response.iter_bytes():
                    f.write(piece)
            return Reply(status, headers, b"")


class AsyncDriver:
    def __init__(self, http: httpx.AsyncClient, clock: Clock) -> None:
        self.http, self.clock = http, clock

    async def __call__(self, steps: Steps[T]) -> T:
        outcome: Any = None
        error: Exception | None = None
        while True:
            try:
                effect: Effect = (steps.throw(error) if error is not None
                                  else steps.send(outcome))
            except StopIteration as e:
                value: T = e.value
                return value
            outcome = error = None
            try:
                if isinstance(effect, Attempt):
                    outcome = await self.send(effect)
                else:
                    await self.clock.sleep_async(effect.seconds)
            except Exception as e:
                error = e

    async def send(self, a: Attempt) -> Reply:
        content: Union[bytes, AsyncIterator[bytes], None] = (
            _pieces_async(a.call.content)
            if isinstance(a.call.content, FileBody) else a.call.content)
        async with self.http.stream(a.call.method, a.url, content=content,
                                    headers=dict(a.headers),
                                    timeout=a.timeout) as response:
            status, headers = _head(response)
            if not _goes_to_file(a, response):
                return Reply(status, headers, await response.aread())
            assert a.call.into is not None
            with _File(a.call.into, a.call.sha256) as f:
                async for piece in response.aiter_bytes():
                    await asyncio.to_thread(f.write, piece)
            return Reply(status, headers, b"")


async def _pieces_async(body: FileBody) -> AsyncIterator[bytes]:
    pieces = body.pieces()
    while piece := await asyncio.to_thread(lambda: next(pieces, b"")):
        yield piece
