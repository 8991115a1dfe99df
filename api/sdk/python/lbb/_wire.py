"""One call as it goes over the wire: query, headers, body; and its answer."""
from __future__ import annotations

import dataclasses
import json
import os
import urllib.parse
import uuid
from pathlib import Path
from typing import Any, Iterator, Mapping, Union

from ._clock import Clock
from ._retry import RequestOptions

KEY_BYTES_MAX = 255
PIECE_BYTES = 1 << 16

Params = Mapping[str, Any]


class Reset:
    """The type of RESET."""

    def __repr__(self) -> str:
        return "RESET"


#: Send JSON null, where None would leave a field out.
RESET = Reset()


@dataclasses.dataclass(frozen=True)
class FileBody:
    """A body that is read from a file, anew for each attempt."""

    path: Path

    def size(self) -> int:
        return os.stat(self.path).st_size

    def pieces(self) -> Iterator[bytes]:
        with open(self.path, "rb") as f:
            while piece := f.read(PIECE_BYTES):
                yield piece


@dataclasses.dataclass(frozen=True)
class Call:
    """One call, whatever number of attempts it takes."""

    method: str
    path: str
    params: Params = dataclasses.field(default_factory=dict)
    content: Union[bytes, FileBody, None] = None
    content_type: str | None = None
    idempotency_key: str | None = None
    #: The server makes it so by its content, without a key.
    is_idempotent: bool = False
    options: RequestOptions = dataclasses.field(
        default_factory=lambda: RequestOptions())
    #: Where a good answer's body goes, instead of into memory.
    into: Path | None = None
    #: What a good answer's body must have, if it is known.
    sha256: str | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: What the call is, in words, should the server not have it.
    what: str | None = None


@dataclasses.dataclass(frozen=True)
class Reply:
    """An attempt's answer.  Header names are lower case."""

    status_code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", errors="replace")

    @property
    def request_id(self) -> str | None:
        return self.headers.get("x-request-id")

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError as e:
            raise ValueError(
                f"the server's answer {self.status_code} is no JSON ({e}); "
                f"request {self.request_id}") from e


@dataclasses.dataclass(frozen=True)
class RawResponse:
    """What raw_request answers."""

    #: Parsed where the server says that it is JSON, else bytes.
    data: Any
    status_code: int
    request_id: str | None
    version: str | None
    headers: Mapping[str, str]
    attempts: int
    retry_count: int
    elapsed_ms: float


def query_text(params: Params) -> str:
    """In the order given; None is left out, booleans are words."""
    pairs = []
    for name, value in params.items():
        if value is None:
            continue
        if isinstance(value, bool):
            value = "true" if value else "false"
        pairs.append((name, str(value)))
    return urllib.parse.urlencode(pairs, quote_via=urllib.parse.quote,
                                  safe="")


def json_bytes(value: Any) -> bytes:
    """Compact; text as UTF-8, so that limits in bytes are what one sees."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False,
                          separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair: only as an escape
        return json.dumps(value, allow_nan=False,
                          separators=(",", ":")).encode()


def body_fields(body: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A body given as dict or pydantic model, and keywords over it.

    None is left out, RESET becomes null.
    """
    if body is None:
        body = {}
    elif hasattr(body, "model_dump"):
        body = body.model_dump(mode="json", exclude_unset=True)
    elif not isinstance(body, Mapping):
        raise TypeError(f"the body is a {type(body).__name__}; it must be a "
                        f"dict or a pydantic model")
    merged = {**body, **{k: v for k, v in fields.items() if v is not None}}
    return {k: None if v is RESET else v for k, v in merged.items()
            if v is not None}


def make_key(prefix: str, clock: Clock) -> str:
    return f"{prefix}:{int(clock.unix() * 1e6)}:{uuid.uuid4().hex}"


def check_key(key: str, suffix_bytes: int = 0) -> str:
    """A key that the server will take, with room for a suffix."""
    most = KEY_BYTES_MAX - suffix_bytes
    if not isinstance(key, str):
        raise TypeError(f"idempotency_key is a {type(key).__name__}, "
                        f"not a string")
    if not 1 <= len(key) <= most:
        raise ValueError(f"idempotency_key has {len(key)} characters; "
                         f"it must have 1 to {most}")
    if not all(" " <= c <= "~" for c in key) or key != key.strip():
        raise ValueError(f"idempotency_key {key!r} must be printable ASCII "
                         f"with no space at its ends")
    return key


def check_ms(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}; it must be a whole number "
                         f"of milliseconds, 0 or more")
    return value


def check_sha256(got: str, want: str | None) -> None:
    if want is not None and got != want.lower():
        raise ValueError(f"the content has the SHA-256 {got}, not {want}")


def path_params(path: str | bytes) -> dict[str, str]:
    """A workspace path; one that is not UTF-8 comes as bytes."""
    if isinstance(path, bytes):
        return {"path_hex": path.hex()}
    return {"path": path}
