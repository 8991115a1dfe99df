"""What a call can raise, and how an answer becomes an error.

A connection that stays lost after the retries surfaces as the httpx exception
that it is; an answer that is no JSON, though it should be, as a ValueError.
"""
from __future__ import annotations

import email.utils
import json
import re
from typing import Any, Mapping

_DIGITS = re.compile(r"\d+(\.\d+)?")
NO_ROUTE = "no route for"   # how a server says that it has no such call


class LbbError(RuntimeError):
    """The server refused a call, or could not do it.  Look at `code`."""

    def __init__(self, status_code: int, body: str,
                 error: Mapping[str, Any] | None = None, *,
                 request_id: str | None = None,
                 retry_after_seconds: float | None = None) -> None:
        self.status_code = status_code
        self.body = body
        #: The envelope's `error` as it came; made up from the body where it
        #: had none.
        self.error: dict[str, Any] = dict(error or {
            "type": "api_error", "code": "unstructured_error",
            "message": None})
        e = self.error
        self.type: str | None = e.get("type")
        self.code: str | None = e.get("code")
        self.param: str | None = e.get("param")
        self.request_id: str | None = e.get("request_id") or request_id
        self.doc_url: str | None = e.get("doc_url")
        self.retryable: bool | None = e.get("retryable")
        #: From the header Retry-After, else from the body; never cut.
        self.retry_after_seconds: float | None = (
            retry_after_seconds if retry_after_seconds is not None
            else _number(e.get("retry_after_seconds")))
        self.retry_at_ms: float | None = _number(e.get("retry_at_ms"))
        self.details: Any = e.get("details")
        super().__init__(e.get("message") or
                         f"Little Big Brain {status_code}: {body}")


class LbbCapabilityError(LbbError):
    """The server does not have what a call needs; a newer one may."""

    def __init__(self, capability: str, status_code: int, body: str,
                 request_id: str | None = None) -> None:
        super().__init__(status_code, body, {
            "type": "capability_error", "code": "capability_missing",
            "message": f"this server does not have {capability}",
        }, request_id=request_id)
        self.capability = capability


class SandboxWaitError(TimeoutError):
    """It goes on, but nobody waits for it any longer.

    `sandbox` is its id, `command` the id of the command that was waited for
    (None: the sandbox itself was), `record` what was known last.
    """

    def __init__(self, message: str, sandbox: str, command: str | None,
                 record: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.sandbox = sandbox
        self.command = command
        self.record = record


def _number(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value if value >= 0 else None
    return None


def retry_after(value: str | None, now_unix: float) -> float | None:
    """Seconds of a Retry-After header: a number, or an HTTP date."""
    if not value:
        return None
    if _DIGITS.fullmatch(value.strip()):
        return float(value)
    try:
        when = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, when.timestamp() - now_unix)


def error_of(status_code: int, headers: Mapping[str, str], text: str,
             now_unix: float, what: str) -> LbbError:
    """The error of an answer; `what` names the call."""
    error: Mapping[str, Any] | None = None
    try:
        body = json.loads(text)
        if isinstance(body, dict) and isinstance(body.get("error"), dict):
            error = body["error"]
    except ValueError:
        pass
    request_id = headers.get("x-request-id")
    message = error.get("message") if error else None
    if (status_code == 404 and isinstance(message, str) and
            message.startswith(NO_ROUTE)):
        return LbbCapabilityError(what, status_code, text, request_id)
    return LbbError(
        status_code, text, error, request_id=request_id,
        retry_after_seconds=retry_after(headers.get("retry-after"), now_unix))
