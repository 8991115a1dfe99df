/**
 * Records as they come, with camelCase names.  A field that a newer server
 * adds is there, too.  Times are RFC 3339 texts in UTC.
 */
export interface Limits {
  vcpus: number;
  memoryMib: number;
  diskMib: number;
}

export type SandboxStatus =
  | "starting"
  | "running"
  | "stopping"
  | "stopped"
  | "destroying"
  | "destroyed"
  | "failed"
  | "lost";

export type CommandStatus =
  | "queued"
  | "running"
  | "succeeded"
  | "failed"
  | "timed_out"
  | "cancelled"
  | "lost";

export interface SandboxRecord {
  object: "sandbox";
  id: string;
  graph: string;
  status: SandboxStatus;
  kind: "one_call" | "held";
  reason: string | null;
  message: string | null;
  name?: string | null;
  labels?: Record<string, string>;
  template: string;
  templateId: string | null;
  templateVersion: number | null;
  templateBase: string | null;
  limits: Limits;
  idleSeconds: number;
  expiresInSeconds: number;
  expiresAt: string | null;
  createdAt: string;
  startedAt: string | null;
  stoppedAt: string | null;
  endedAt: string | null;
  lastActiveAt: string | null;
  /** Of a one-call sandbox, its command. */
  command: string | null;
}

/** What a run and the record of its command have in common. */
interface Outcome {
  graph: string;
  /** Ended with exit code 0. */
  ok: boolean;
  status: CommandStatus;
  exitCode: number | null;
  signal: number | null;
  reason: string | null;
  message: string | null;
  timeoutMs: number;
  createdAt: string;
  startedAt: string | null;
  endedAt: string | null;
  durationMs: number | null;
}

/** The answer of a one-call run.  Look at `ok` before `result`. */
export interface Run<T = unknown> extends Outcome {
  object: "run";
  /** What run() returned; null without one. */
  result: T | null;
  /** The id of the command's record. */
  command: string;
  /** The id of the sandbox's record. */
  sandbox: string;
  template: string;
}

/** One stream of a command: the first and the last 48 KiB of it. */
export interface Output {
  head: string;
  tail: string;
  bytes: number;
  truncated: boolean;
  invalidUtf8: boolean;
}

/** A command as lists have it: without its output. */
export interface CommandSummary extends Outcome {
  object: "command";
  id: string;
  sandbox: string;
  kind: "run" | "process";
  argv?: string[];
  envNames: string[];
  stdinBytes: number;
  usage: { userUs: number; systemUs: number; memoryPeakBytes: number };
}

export interface CommandRecord<T = unknown> extends CommandSummary {
  /** Of a run, what run() returned. */
  result?: T | null;
  stdout: Output;
  stderr: Output;
}

/** A slice of a command's output; read on from `nextOffset`. */
export interface Log {
  object: "log";
  command: string;
  stream: "stdout" | "stderr";
  data: string;
  encoding: "utf-8" | "base64";
  offset: number;
  nextOffset: number;
  eof: boolean;
  totalBytes: number;
  truncated: boolean;
}

/** A File that sandboxes of a saved template begin with. */
export interface TemplateFile {
  path: string;
  sha256: string;
  id: string;
  bytes: number;
}

export interface TemplateRecord {
  object: "template";
  id: string | null;
  name: string;
  isBase: boolean;
  version: number | null;
  base: string;
  code?: string | null;
  config?: unknown;
  limits: Limits;
  commandTimeoutMs: number;
  /** Of a saved one. */
  files?: TemplateFile[];
  createdAt?: string | null;
}

/** A file in a sandbox, as a list has it. */
export interface WorkspaceEntry {
  object: "file";
  path: string;
  /** Only when the path is not UTF-8: its bytes in hexadecimal. */
  pathHex?: string;
  name: string;
  type: "file" | "directory" | "symlink" | "fifo" | "socket" | "device";
  size: number;
  modifiedAt: string | null;
  mode: string;
}

export interface WorkspaceWritten {
  object: "file";
  path: string;
  pathHex?: string;
  size: number;
  sha256: string;
}

export interface WorkspaceDeleted {
  object: "file";
  path: string;
  pathHex?: string;
  deleted: true;
}

/** A File of the graph: content by its SHA-256. */
export interface FileRecord {
  sha256: string;
  name: string;
  contentType: string;
  bytes: number;
  document?: string;
  uploadedAt: string;
  /** Where it was kept from. */
  origin?: { sandbox: string; path: string };
}

/** `created` is false for bytes that were there under this name before. */
export interface Upload {
  created: boolean;
  file: FileRecord;
}

/** A page of a list; `nextCursor` is the next one's `cursor`. */
export interface Page<T> {
  object: "list";
  data: T[];
  hasMore: boolean;
  nextCursor: string | null;
}

/** A page of the graph's Files; `next`, if there, is the next one's `after`. */
export interface FilePage {
  files: FileRecord[];
  next?: string;
}

/** Of an id, or of a record or handle that has one. */
export type HasId = string | { id: string };

export function idOf(what: HasId): string {
  const id = typeof what === "string" ? what : what?.id;
  if (typeof id !== "string")
    throw new TypeError("an id, a record or a handle is needed");
  return id;
}

/** The bytes of a slice of output, whatever its encoding. */
export function logBytes(log: Log): Uint8Array {
  if (log.encoding !== "base64") return new TextEncoder().encode(log.data);
  return Uint8Array.from(atob(log.data), (c) => c.charCodeAt(0));
}
