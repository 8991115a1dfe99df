"""A call and its retries, without any input or output.

What has to be done over the network, or waited for, is yielded as an effect;
whoever drives the steps (_http.py: blocking, or awaiting) performs it and sends
its outcome back in.  So the rules are here once, for both clients.
"""
from __future__ import annotations

import dataclasses
import json
from typing import Any, Generator, Mapping, TypeVar, Union

import httpx

from ._clock import Clock
from ._errors import LbbCapabilityError, LbbError, error_of
from ._retry import Policy, RequestOptions, RetryEvent, default_rule
from ._version import API_VERSION, VERSION
from ._wire import Call, FileBody, RawResponse, Reply, check_key, query_text

USER_AGENT = f"hutch-lbb-python/{VERSION}"


@dataclasses.dataclass(frozen=True)
class Attempt:
    """Effect: send this, once; its outcome is a Reply or an httpx error."""

    call: Call
    url: str
    headers: Mapping[str, str]
    timeout: float


@dataclasses.dataclass(frozen=True)
class Pause:
    """Effect: wait; no outcome."""

    seconds: float


T = TypeVar("T")
Effect = Union[Attempt, Pause]
Steps = Generator[Effect, Any, T]


class Core:
    """What every call of a client needs to know; immutable but for one memory:
    the server's version, read once."""

    def __init__(self, base_url: str, *, api_key: str | None,
                 graph: str | None, environment: str | None,
                 api_version: str, policy: Policy, timeout: float,
                 clock: Clock) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url is {base_url!r}; it must begin with "
                             f"http:// or https://")
        self.base_url = base_url.rstrip("/")
        self.graph = graph
        self.environment = environment
        self.policy = policy
        self.timeout = timeout
        self.clock = clock
        self.version: dict[str, Any] | None = None
        self.headers = {"lbb-version": api_version or API_VERSION,
                        "user-agent": USER_AGENT}
        if api_key is not None:
            self.headers["authorization"] = f"Bearer {api_key}"

    def attempt(self, call: Call) -> Attempt:
        params = {"graph": self.graph, "stack": self.environment}
        query = query_text({**params, **call.params})
        headers = {**self.headers, **call.headers}
        if call.content_type is not None:
            headers["content-type"] = call.content_type
        if isinstance(call.content, FileBody):
            headers["content-length"] = str(call.content.size())
        if call.idempotency_key is not None:
            headers["idempotency-key"] = check_key(call.idempotency_key)
        headers.update({k.lower(): v for k, v in
                        call.options.get("headers", {}).items()})
        url = self.base_url + call.path + (f"?{query}" if query else "")
        return Attempt(call, url, headers,
                       call.options.get("timeout", self.timeout))

    def send(self, call: Call) -> Steps[tuple[Reply, int, float]]:
        """The good answer, the number of attempts, and milliseconds."""
        policy = self.policy.with_options(call.options)
        rule = call.options.get("retry", default_rule(
            call.method, call.idempotency_key, call.is_idempotent))
        start, n = self.clock.monotonic(), 0
        while True:
            n += 1
            lost: httpx.TransportError | None = None
            error: LbbError | None = None
            try:
                reply: Reply = yield self.attempt(call)
            except (httpx.UnsupportedProtocol, httpx.LocalProtocolError):
                raise  # ours: the same again would fail again
            except httpx.TransportError as e:
                lost = e
            else:
                if 200 <= reply.status_code < 300:
                    return reply, n, (self.clock.monotonic() - start) * 1000
                error = error_of(
                    reply.status_code, reply.headers, reply.text,
                    self.clock.unix(),
                    call.what or f"{call.method} {call.path}")
            elapsed = self.clock.monotonic() - start
            delay = policy.delay(self.clock, rule, n, elapsed, error)
            if delay is None:
                raise error or lost or AssertionError("one of the two is set")
            if policy.on_retry:
                policy.on_retry(RetryEvent(
                    call.method, call.path, n,
                    error.status_code if error else None,
                    error.code if error else None, delay, elapsed * 1000))
            yield Pause(delay)

    def json(self, call: Call) -> Steps[dict[str, Any]]:
        """The answer of a call that answers an object."""
        reply, _, _ = yield from self.send(call)
        value = reply.json()
        if not isinstance(value, dict):
            raise ValueError(f"the server's answer is no JSON object; "
                             f"request {reply.request_id}")
        return value

    def raw(self, call: Call) -> Steps[RawResponse]:
        reply, n, ms = yield from self.send(call)
        kind = reply.headers.get("content-type", "").partition(";")[0]
        is_json = kind.strip().lower() == "application/json"
        return RawResponse(
            reply.json() if is_json and reply.body else reply.body,
            reply.status_code, reply.request_id,
            reply.headers.get("lbb-version"), reply.headers, n, n - 1, ms)

    def server_version(self) -> Steps[dict[str, Any]]:
        """GET /version, once."""
        if self.version is None:
            self.version = yield from self.json(Call(
                "GET", "/version", {"graph": None, "stack": None}))
        return dict(self.version)

    def require(self, capability: str) -> Steps[None]:
        version = yield from self.server_version()
        if capability not in version.get("capabilities", ()):
            raise LbbCapabilityError(capability, 200, json.dumps(version))


def call_options(options: RequestOptions | None) -> RequestOptions:
    """A copy that may be kept; an unknown name is refused."""
    if options is None:
        return RequestOptions()
    known = RequestOptions.__annotations__
    for name in options:
        if name not in known:
            raise ValueError(f"options has {name!r}; it takes "
                             f"{', '.join(sorted(known))}")
    return options.copy()
