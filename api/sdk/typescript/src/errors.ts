/**
 * What a call can throw, and how an answer becomes an error.
 *
 * A connection that stays lost after the retries surfaces as the error of
 * fetch; an answer that is no JSON, though it should be, as a SyntaxError.
 */

/** The `error` of the server's envelope, as it comes. */
export interface LbbErrorBody {
  type?: string;
  code?: string;
  message?: string;
  param?: string | null;
  request_id?: string | null;
  doc_url?: string | null;
  retryable?: boolean;
  retry_after_seconds?: number;
  retry_at_ms?: number;
  details?: unknown;
}

const NO_ROUTE = "no route for"; // how a server says that it has no such call

function number_of(value: unknown): number | undefined {
  return typeof value === "number" && value >= 0 ? value : undefined;
}

/** The server refused a call, or could not do it.  Look at `code`. */
export class LbbError extends Error {
  override readonly name: string = "LbbError";
  readonly status: number;
  readonly body: string;
  readonly error: LbbErrorBody;
  readonly type: string | undefined;
  readonly code: string | undefined;
  readonly param: string | null | undefined;
  readonly requestId: string | null;
  readonly docUrl: string | null | undefined;
  readonly retryable: boolean | undefined;
  /** From the header Retry-After, else from the body; never cut. */
  readonly retryAfterSeconds: number | undefined;
  readonly retryAtMs: number | undefined;
  readonly details: unknown;

  constructor(
    status: number,
    body: string,
    error?: LbbErrorBody,
    more: { requestId?: string | null; retryAfterSeconds?: number } = {},
  ) {
    const e = error ?? { type: "api_error", code: "unstructured_error" };
    super(e.message || `Little Big Brain ${status}: ${body}`);
    this.status = status;
    this.body = body;
    this.error = e;
    this.type = e.type;
    this.code = e.code;
    this.param = e.param;
    this.requestId = e.request_id ?? more.requestId ?? null;
    this.docUrl = e.doc_url;
    this.retryable = e.retryable;
    this.retryAfterSeconds =
      more.retryAfterSeconds ?? number_of(e.retry_after_seconds);
    this.retryAtMs = number_of(e.retry_at_ms);
    this.details = e.details;
  }
}

/** The server does not have what a call needs; a newer one may. */
export class LbbCapabilityError extends LbbError {
  override readonly name = "LbbCapabilityError";
  readonly capability: string;

  constructor(
    capability: string,
    status: number,
    body: string,
    requestId?: string | null,
  ) {
    super(
      status,
      body,
      {
        type: "capability_error",
        code: "capability_missing",
        message: `this server does not have ${capability}`,
      },
      { requestId },
    );
    this.capability = capability;
  }
}

/** It goes on, but nobody waits for it any longer. */
export class SandboxWaitError extends Error {
  override readonly name = "SandboxWaitError";
  /** Its id. */
  readonly sandbox: string;
  /** The command that was waited for; null: the sandbox itself was. */
  readonly command: string | null;
  /** What was known last. */
  readonly record: object;

  constructor(
    message: string,
    sandbox: string,
    command: string | null,
    record: object,
  ) {
    super(message);
    this.sandbox = sandbox;
    this.command = command;
    this.record = record;
  }
}

function isNoRoute(message: unknown): boolean {
  return typeof message === "string" && message.startsWith(NO_ROUTE);
}

/** Seconds of a Retry-After header: a number, or an HTTP date. */
export function retryAfter(
  value: string | null,
  nowMs: number,
): number | undefined {
  if (!value) return undefined;
  if (/^\d+(\.\d+)?$/.test(value.trim())) return Number(value);
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, date - nowMs) / 1000;
}

/** The error of an answer; `what` names the call. */
export function errorOf(
  status: number,
  headers: Headers,
  text: string,
  nowMs: number,
  what: string,
): LbbError {
  let error: LbbErrorBody | undefined;
  try {
    const body: unknown = JSON.parse(text);
    const inner = (body as { error?: unknown } | null)?.error;
    if (typeof inner === "object" && inner !== null) error = inner;
  } catch {
    // No JSON: an unstructured error.
  }
  const requestId = headers.get("x-request-id");
  if (status === 404 && isNoRoute(error?.message))
    return new LbbCapabilityError(what, status, text, requestId);
  return new LbbError(status, text, error, {
    requestId,
    retryAfterSeconds: retryAfter(headers.get("retry-after"), nowMs),
  });
}
