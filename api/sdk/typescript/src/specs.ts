/**
 * What calls take, and how it becomes the body of a request.
 *
 * Names are camelCase; user JSON (input, config, env, labels) is sent as it is.
 * undefined leaves a field out, null is sent as null.
 */
import { toWire } from "./names.ts";
import { checkMs } from "./transport.ts";

/** The most that the server waits in one call. */
export const WAIT_MS = 30_000;
export const MAX_WAIT_MS = 600_000;
export const LOST_RETRIES_MAX = 2;

export interface LimitsSpec {
  /** 1 to 4; default 1. */
  vcpus?: number;
  /** 128 to 8,192; default 1,024. */
  memoryMib?: number;
  /** 256 to 10,240; default 4,096. */
  diskMib?: number;
}

/** A File of the graph, and where it goes under /workspace. */
export interface FileSpec {
  sha256: string;
  path: string;
}

export interface WaitSpec {
  /** How long the server waits before it answers; 30,000 at most. */
  waitMs?: number;
  /** How long to go on asking; then SandboxWaitError.  Default 600,000. */
  maxWaitMs?: number;
}

interface CodeSpec extends WaitSpec {
  /** Defines run(input, config). */
  code?: string;
  input?: unknown;
  config?: unknown;
  env?: Record<string, string>;
  /** Default 60,000, at most 3,600,000. */
  commandTimeoutMs?: number;
  /** The same by the name that it has on the wire. */
  timeoutMs?: number;
}

export interface RunSpec extends CodeSpec {
  /** A base template, the name of a saved one, or its sbt_ id. */
  template?: string;
  limits?: LimitsSpec;
  files?: FileSpec[];
  /** How often to send it again when its host lost it: 0 to 2, default 2. */
  lostRetries?: number;
}

export type HeldRunSpec = CodeSpec;

export interface CreateSpec extends WaitSpec {
  template?: string;
  limits?: LimitsSpec;
  snapshot?: string;
  idleSeconds?: number;
  expiresInSeconds?: number;
  env?: Record<string, string>;
  files?: FileSpec[];
  name?: string;
  labels?: Record<string, string>;
}

export interface UpdateSpec {
  name?: string | null;
  labels?: Record<string, string> | null;
  idleSeconds?: number;
  expiresInSeconds?: number;
  limits?: LimitsSpec;
}

export interface CommandSpec {
  /** The program and its arguments; a shell is explicit. */
  argv: string[];
  cwd?: string;
  env?: Record<string, string>;
  stdin?: string;
  timeoutMs?: number;
  /** Default 0, at most 30,000. */
  waitMs?: number;
}

export interface TemplateSpec {
  name: string;
  base: string;
  code?: string;
  limits?: LimitsSpec;
  commandTimeoutMs?: number;
  timeoutMs?: number;
  config?: unknown;
  files?: FileSpec[];
}

/** commandTimeoutMs is timeout_ms on the wire. */
export function timedBody(spec: {
  commandTimeoutMs?: number;
  timeoutMs?: number;
}): Record<string, unknown> {
  const { commandTimeoutMs, ...rest } = spec;
  if (commandTimeoutMs === undefined) return toWire(rest);
  if (rest.timeoutMs !== undefined)
    throw new TypeError("commandTimeoutMs and timeoutMs are both given");
  return toWire({ ...rest, timeoutMs: commandTimeoutMs });
}

/** What the waits of a call are: [waitMs of the request, maxWaitMs]. */
export function waits(spec: WaitSpec): [number, number] {
  const waitMs = checkMs("waitMs", spec.waitMs ?? WAIT_MS);
  const maxWaitMs = checkMs("maxWaitMs", spec.maxWaitMs ?? MAX_WAIT_MS);
  return [Math.min(waitMs, maxWaitMs), maxWaitMs];
}

export function checkLostRetries(value: unknown): number {
  if (value !== 0 && value !== 1 && value !== LOST_RETRIES_MAX)
    throw new RangeError(
      `lostRetries is ${String(value)}; it must be 0 to ${LOST_RETRIES_MAX}`,
    );
  return value;
}
