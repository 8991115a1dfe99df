/**
 * When a call is sent again, and after how long.
 *
 * Sent again are 429, every 5xx and lost connections, and only calls that the
 * server knows by their key, or that change nothing.  `retryable: false` is
 * final whatever the status.  The wait is what the server says, at most a
 * minute, else a number by chance from 0 to retryDelayMs * 2^n; one that would
 * pass the budget of the whole call ends the retries at once.
 */
import type { Clock } from "./clock.ts";
import type { LbbError } from "./errors.ts";

const RETRY_AFTER_MS_MAX = 60_000;
const SAFE_METHODS = ["GET", "HEAD", "OPTIONS"];

/** true: all that may be; "rate_limited": only 429, which the server answers
 * before it runs anything. */
export type RetryRule = boolean | "rate_limited";

/** Told to `onRetry` before each wait. */
export interface RetryEvent {
  method: string;
  path: string;
  /** The attempt that failed, from 1. */
  attempt: number;
  /** undefined: the connection was lost. */
  statusCode: number | undefined;
  errorCode: string | undefined;
  delayMs: number;
  elapsedMs: number;
}

export interface Policy {
  maxRetries: number;
  retryDelayMs: number;
  retryBudgetMs: number;
  onRetry: ((event: RetryEvent) => void) | undefined;
}

export function defaultRule(
  method: string,
  key: string | undefined,
  isIdempotent: boolean,
): RetryRule {
  return (
    SAFE_METHODS.includes(method.toUpperCase()) ||
    key !== undefined ||
    isIdempotent
  );
}

function mayRepeat(rule: RetryRule, error: LbbError | undefined): boolean {
  if (error === undefined) return rule === true;
  if (error.retryable === false) return false;
  if (error.status === 429) return rule !== false;
  return rule === true && error.status >= 500;
}

function serverHintMs(error: LbbError, clock: Clock): number | undefined {
  if (error.retryAfterSeconds !== undefined)
    return error.retryAfterSeconds * 1000;
  if (error.retryAtMs !== undefined)
    return Math.max(0, error.retryAtMs - clock.unix());
  return undefined;
}

/**
 * Milliseconds until the next attempt; undefined: this was the last one.
 * `attempt` failed, the first is 1; no error: the connection was lost.
 */
export function retryDelay(
  policy: Policy,
  clock: Clock,
  rule: RetryRule,
  attempt: number,
  elapsedMs: number,
  error: LbbError | undefined,
): number | undefined {
  if (attempt > policy.maxRetries || !mayRepeat(rule, error)) return undefined;
  const hint = error && serverHintMs(error, clock);
  const ms =
    hint !== undefined
      ? Math.min(hint, RETRY_AFTER_MS_MAX)
      : clock.uniform(
          Math.min(RETRY_AFTER_MS_MAX, policy.retryDelayMs * 2 ** (attempt - 1)),
        );
  return elapsedMs + ms >= policy.retryBudgetMs ? undefined : ms;
}
