/** A call over fetch: query, headers, body; its answer, and its retries. */
import { systemClock, type Clock } from "./clock.ts";
import { LbbCapabilityError, errorOf, type LbbError } from "./errors.ts";
import { fromWire } from "./names.ts";
import {
  defaultRule,
  retryDelay,
  type Policy,
  type RetryEvent,
  type RetryRule,
} from "./retry.ts";

export const VERSION = "0.1.0";
export const API_VERSION = "2026-10-21";
const KEY_BYTES_MAX = 255;
const USER_AGENT = `hutch-lbb-typescript/${VERSION}`;

export interface ClientOptions {
  /** Default: a local server, http://127.0.0.1:7400. */
  baseUrl?: string;
  apiKey?: string;
  /** Default: the server's, main. */
  graph?: string;
  environment?: string;
  apiVersion?: string;
  /** Default 6. */
  maxRetries?: number;
  /** Default 100; doubled with each retry, and cut by chance. */
  retryDelayMs?: number;
  /** Of a whole call.  Default 60,000. */
  retryBudgetMs?: number;
  /** Of one attempt.  Default 120,000; 0: none. */
  timeoutMs?: number;
  onRetry?: (event: RetryEvent) => void;
  fetch?: typeof fetch;
  clock?: Clock;
}

/** What a single call does differently. */
export interface CallOptions {
  idempotencyKey?: string;
  maxRetries?: number;
  retry?: RetryRule;
  retryBudgetMs?: number;
  timeoutMs?: number;
  headers?: Record<string, string>;
  /** Ends the call and its retries. */
  signal?: AbortSignal;
}

export type QueryValue = string | number | boolean | undefined;
export type Query = Record<string, QueryValue>;
export type Body = Uint8Array<ArrayBuffer> | Blob | string;

export interface Call {
  method: string;
  path: string;
  query?: Query;
  body?: Body;
  contentType?: string;
  key?: string;
  /** The server makes it so by its content, without a key. */
  isIdempotent?: boolean;
  headers?: Record<string, string>;
  /** What the call is, in words, should the server not have it. */
  what?: string;
  options?: CallOptions;
}

/** A good answer. */
export interface Reply<T> {
  data: T;
  status: number;
  requestId: string | null;
  version: string | null;
  headers: Headers;
  attempts: number;
  retryCount: number;
  elapsedMs: number;
}

type Reader<T> = (response: Response) => Promise<T>;

export interface Version {
  object: "version";
  name: string;
  version: string;
  capabilities: string[];
}

export async function readText(response: Response): Promise<string> {
  return await response.text();
}

export async function readBytes(
  response: Response,
): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await response.arrayBuffer());
}

function parsed(text: string, status: number, requestId: string | null) {
  try {
    return JSON.parse(text) as unknown;
  } catch (cause) {
    throw new SyntaxError(
      `the server's answer ${status} is no JSON; request ${requestId}`,
      { cause },
    );
  }
}

export function makeKey(prefix: string, clock: Clock): string {
  const hex = crypto.randomUUID().replaceAll("-", "");
  return `${prefix}:${Math.floor(clock.unix() * 1000)}:${hex}`;
}

/** A key that the server will take, with room for a suffix. */
export function checkKey(key: string, suffixBytes = 0): string {
  const most = KEY_BYTES_MAX - suffixBytes;
  if (typeof key !== "string" || key.length < 1 || key.length > most)
    throw new RangeError(
      `idempotencyKey has ${key?.length} characters; it must have 1 to ${most}`,
    );
  if (!/^[ -~]*$/.test(key) || key !== key.trim())
    throw new RangeError(
      `idempotencyKey ${JSON.stringify(key)} must be printable ASCII ` +
        `with no space at its ends`,
    );
  return key;
}

export function checkMs(name: string, value: unknown): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0)
    throw new RangeError(
      `${name} is ${String(value)}; it must be a whole number of ` +
        `milliseconds, 0 or more`,
    );
  return value as number;
}

export class Transport {
  readonly clock: Clock;
  readonly graph: string | undefined;
  readonly #baseUrl: string;
  readonly #environment: string | undefined;
  readonly #headers: Record<string, string>;
  readonly #policy: Policy;
  readonly #timeoutMs: number;
  readonly #fetch: typeof fetch;
  #version: Version | undefined;

  constructor(o: ClientOptions) {
    const base = o.baseUrl ?? "http://127.0.0.1:7400";
    if (!/^https?:\/\//.test(base))
      throw new TypeError(
        `baseUrl is ${JSON.stringify(base)}; ` +
          `it must begin with http:// or https://`,
      );
    this.clock = o.clock ?? systemClock;
    this.graph = o.graph;
    this.#baseUrl = base.replace(/\/+$/, "");
    this.#environment = o.environment;
    this.#headers = {
      "lbb-version": o.apiVersion ?? API_VERSION,
      "user-agent": USER_AGENT,
    };
    if (o.apiKey !== undefined)
      this.#headers["authorization"] = `Bearer ${o.apiKey}`;
    this.#policy = {
      maxRetries: o.maxRetries ?? 6,
      retryDelayMs: o.retryDelayMs ?? 100,
      retryBudgetMs: o.retryBudgetMs ?? 60_000,
      onRetry: o.onRetry,
    };
    this.#timeoutMs = o.timeoutMs ?? 120_000;
    this.#fetch = o.fetch ?? ((url, init) => fetch(url, init));
  }

  key(given: string | undefined, prefix: string): string {
    return given === undefined ? makeKey(prefix, this.clock) : checkKey(given);
  }

  #url(call: Call): string {
    const query: Query = {
      graph: this.graph,
      stack: this.#environment,
      ...call.query,
    };
    const text = Object.entries(query)
      .filter(([, value]) => value !== undefined)
      .map(([k, v]) => `${encodeURIComponent(k)}=${encodeURIComponent(v!)}`)
      .join("&");
    return this.#baseUrl + call.path + (text ? `?${text}` : "");
  }

  #init(call: Call): RequestInit {
    const headers = new Headers({ ...this.#headers, ...call.headers });
    if (call.contentType) headers.set("content-type", call.contentType);
    if (call.key !== undefined)
      headers.set("idempotency-key", checkKey(call.key));
    for (const [name, value] of Object.entries(call.options?.headers ?? {}))
      headers.set(name, value);
    const init: RequestInit = {
      method: call.method,
      headers,
      redirect: "manual",
    };
    if (call.body !== undefined) init.body = call.body;
    return init;
  }

  /** One attempt: the answer and what `read` made of a good one, or the text
   * of another. */
  async #attempt<T>(
    call: Call,
    url: string,
    init: RequestInit,
    read: Reader<T>,
  ): Promise<{ response: Response; data?: T; text?: string }> {
    const signal = call.options?.signal;
    const timeoutMs = call.options?.timeoutMs ?? this.#timeoutMs;
    const own = new AbortController();
    const follow = (): void => own.abort(signal?.reason);
    const timer = timeoutMs
      ? setTimeout(
          () =>
            own.abort(
              new DOMException(`no answer in ${timeoutMs} ms`, "TimeoutError"),
            ),
          timeoutMs,
        )
      : undefined;
    signal?.throwIfAborted();
    signal?.addEventListener("abort", follow, { once: true });
    try {
      const response = await this.#fetch(url, { ...init, signal: own.signal });
      return response.ok
        ? { response, data: await read(response) }
        : { response, text: await response.text() };
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", follow);
    }
  }

  async send<T>(call: Call, read: Reader<T>): Promise<Reply<T>> {
    const o = call.options ?? {};
    const { clock } = this;
    const url = this.#url(call);
    const init = this.#init(call);
    new URL(url); // what is malformed is told now, and not tried again
    const policy: Policy = {
      ...this.#policy,
      maxRetries: o.maxRetries ?? this.#policy.maxRetries,
      retryBudgetMs: o.retryBudgetMs ?? this.#policy.retryBudgetMs,
    };
    const rule =
      o.retry ?? defaultRule(call.method, call.key, call.isIdempotent ?? false);
    const start = clock.monotonic();
    for (let n = 1; ; n++) {
      let error: LbbError | undefined;
      let lost: unknown;
      try {
        const { response, data, text } = await this.#attempt(
          call,
          url,
          init,
          read,
        );
        if (response.ok)
          return {
            data: data as T,
            status: response.status,
            requestId: response.headers.get("x-request-id"),
            version: response.headers.get("lbb-version"),
            headers: response.headers,
            attempts: n,
            retryCount: n - 1,
            elapsedMs: clock.monotonic() - start,
          };
        error = errorOf(
          response.status,
          response.headers,
          text ?? "",
          clock.unix(),
          call.what ?? `${call.method} ${call.path}`,
        );
      } catch (e) {
        if (o.signal?.aborted || !isLost(e)) throw e;
        lost = e;
      }
      const elapsedMs = clock.monotonic() - start;
      const delayMs = retryDelay(policy, clock, rule, n, elapsedMs, error);
      if (delayMs === undefined) throw error ?? lost;
      policy.onRetry?.({
        method: call.method,
        path: call.path,
        attempt: n,
        statusCode: error?.status,
        errorCode: error?.code,
        delayMs,
        elapsedMs,
      });
      await clock.sleep(delayMs, o.signal);
    }
  }

  /** The answer's JSON as it is on the wire. */
  async json(call: Call): Promise<Reply<unknown>> {
    const reply = await this.send(call, readText);
    return {
      ...reply,
      data: parsed(reply.data, reply.status, reply.requestId),
    };
  }

  /** The answer's record, with the names of this language. */
  async record<T>(call: Call): Promise<T> {
    const { data, requestId } = await this.json(call);
    if (typeof data !== "object" || data === null)
      throw new SyntaxError(
        `the server's answer is no JSON object; request ${requestId}`,
      );
    return fromWire<T>(data);
  }

  /** JSON where the server says that it is, else bytes. */
  async raw(call: Call): Promise<Reply<unknown>> {
    const reply = await this.send(call, readBytes);
    const kind = reply.headers.get("content-type")?.split(";")[0]?.trim();
    if (kind !== "application/json" || !reply.data.length) return reply;
    const text = new TextDecoder().decode(reply.data);
    return { ...reply, data: parsed(text, reply.status, reply.requestId) };
  }

  /** GET /version, once. */
  async version(): Promise<Version> {
    this.#version ??= await this.record<Version>({
      method: "GET",
      path: "/version",
      query: { graph: undefined, stack: undefined },
    });
    return this.#version;
  }

  async require(capability: string): Promise<void> {
    const version = await this.version();
    if (!version.capabilities.includes(capability))
      throw new LbbCapabilityError(capability, 200, JSON.stringify(version));
  }
}

/** Of a connection, not of our code or the caller's: fetch rejects with a
 * TypeError when it is lost, and we with a TimeoutError. */
function isLost(e: unknown): boolean {
  return (
    e instanceof TypeError ||
    (e instanceof DOMException && e.name === "TimeoutError")
  );
}
