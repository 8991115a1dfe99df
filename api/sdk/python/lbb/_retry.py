"""When a call is sent again, and after how long.

Sent again are 429, every 5xx and lost connections, and only calls that the
server knows by their key, or that change nothing.  `retryable: false` is final
whatever the status.  The wait is what the server says, at most a minute, else
a number by chance from 0 to retry_delay * 2^n; one that would pass the budget
of the whole call ends the retries at once.
"""
from __future__ import annotations

import dataclasses
from typing import Callable, Literal, Mapping, TypedDict, Union

from ._clock import Clock
from ._errors import LbbError

RETRY_AFTER_S_MAX = 60.0
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

#: True: all that may be; "rate_limited": only 429, which the server answers
#: before it runs anything.
RetryRule = Union[bool, Literal["rate_limited"]]


class RequestOptions(TypedDict, total=False):
    """What a single call does differently."""

    max_retries: int
    retry: RetryRule
    retry_budget_ms: float
    #: Seconds without a byte, after which an attempt is given up.
    timeout: float
    headers: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class RetryEvent:
    """Told to `on_retry` before each wait."""

    method: str
    path: str
    #: The attempt that failed, from 1.
    attempt: int
    #: None: the connection was lost.
    status_code: int | None
    error_code: str | None
    delay_seconds: float
    elapsed_ms: float


@dataclasses.dataclass(frozen=True)
class Policy:
    max_retries: int = 6
    retry_delay: float = 0.1
    retry_budget_ms: float = 60000.0
    on_retry: Callable[[RetryEvent], object] | None = None

    def with_options(self, options: RequestOptions) -> Policy:
        return dataclasses.replace(
            self, max_retries=options.get("max_retries", self.max_retries),
            retry_budget_ms=options.get("retry_budget_ms",
                                        self.retry_budget_ms))

    def delay(self, clock: Clock, rule: RetryRule, attempt: int,
              elapsed_s: float, error: LbbError | None) -> float | None:
        """Seconds until the next attempt; None: this was the last one.

        `attempt` failed, the first is 1; `error` is None for a connection
        that was lost.
        """
        if attempt > self.max_retries or not may_repeat(rule, error):
            return None
        hint = server_hint(error, clock) if error else None
        seconds = (min(hint, RETRY_AFTER_S_MAX) if hint is not None else
                   clock.uniform(min(RETRY_AFTER_S_MAX,
                                     self.retry_delay * 2 ** (attempt - 1))))
        if elapsed_s + seconds >= self.retry_budget_ms / 1000:
            return None
        return seconds


def may_repeat(rule: RetryRule, error: LbbError | None) -> bool:
    if error is None:
        return rule is True
    if error.retryable is False:
        return False
    if error.status_code == 429:
        return rule is not False
    return rule is True and error.status_code >= 500


def server_hint(error: LbbError, clock: Clock) -> float | None:
    if error.retry_after_seconds is not None:
        return error.retry_after_seconds
    if error.retry_at_ms is not None:
        return max(0.0, error.retry_at_ms / 1000 - clock.unix())
    return None


def default_rule(method: str, key: str | None, is_idempotent: bool
                 ) -> RetryRule:
    return (method.upper() in SAFE_METHODS or key is not None or
            is_idempotent)
