/** A handle of a sandbox: its files, its commands, its life. */
import { SandboxWaitError } from "./errors.ts";
import { Workspace } from "./files.ts";
import { toWire } from "./names.ts";
import { idOf, type HasId } from "./records.ts";
import type {
  CommandRecord,
  CommandSummary,
  Log,
  Page,
  SandboxRecord,
  SandboxStatus,
} from "./records.ts";
import {
  MAX_WAIT_MS,
  WAIT_MS,
  timedBody,
  waits,
  type CommandSpec,
  type HeldRunSpec,
  type UpdateSpec,
} from "./specs.ts";
import { checkMs, type CallOptions, type Query } from "./transport.ts";
import type { Transport } from "./transport.ts";

export const SANDBOXES = "/v1/sandboxes";
const COMMANDS = "/v1/sandboxes/commands";
const JSON_TYPE = "application/json";
const POLL_MS = 100;
const POLL_MS_MAX = 1000;

export function isPending(status: string): boolean {
  return status === "queued" || status === "running" || status === "starting";
}

/** The calls of one graph that more than one class makes. */
export class Calls {
  readonly t: Transport;
  readonly graph: string | undefined;

  constructor(t: Transport, graph: string | undefined) {
    this.t = t;
    this.graph = graph;
  }

  #query(query: Query): Query {
    return this.graph === undefined ? query : { graph: this.graph, ...query };
  }

  async get<T>(path: string, query: Query, options?: CallOptions): Promise<T> {
    return await this.t.record<T>({
      method: "GET",
      path,
      query: this.#query(query),
      options,
    });
  }

  /** A call that changes something, under the key given or a new one. */
  async change<T>(
    method: string,
    path: string,
    query: Query,
    keyPrefix: string,
    body: object | undefined,
    options?: CallOptions,
  ): Promise<T> {
    return await this.t.record<T>({
      method,
      path,
      query: this.#query(query),
      key: this.t.key(options?.idempotencyKey, keyPrefix),
      ...(body === undefined
        ? {}
        : { body: JSON.stringify(body), contentType: JSON_TYPE }),
      options,
    });
  }

  async sandbox(id: string, options?: CallOptions): Promise<SandboxRecord> {
    return await this.get(`${SANDBOXES}/get`, { sandbox: id }, options);
  }

  async command<T>(
    id: string,
    waitMs: number | undefined,
    options?: CallOptions,
  ): Promise<CommandRecord<T>> {
    return await this.get(
      `${COMMANDS}/get`,
      { command: id, wait_ms: waitMs },
      options,
    );
  }

  /** Its end; `start` is when the wait began. */
  async commandEnd<T>(
    first: { status: string },
    sandbox: string,
    command: string,
    start: number,
    maxWaitMs: number,
    options?: CallOptions,
  ): Promise<CommandRecord<T>> {
    const { clock } = this.t;
    for (let last = first; ; ) {
      const began = clock.monotonic();
      const leftMs = Math.floor(maxWaitMs - (began - start));
      if (leftMs <= 0)
        throw new SandboxWaitError(
          `${command} in ${sandbox} is ${last.status} after ` +
            `${maxWaitMs} ms, and goes on`,
          sandbox,
          command,
          last,
        );
      const record = await this.command<T>(
        command,
        Math.min(WAIT_MS, leftMs),
        options,
      );
      if (!isPending(record.status)) return record;
      last = record;
      // A server that does not wait is not asked all the time.
      const tookMs = clock.monotonic() - began;
      if (tookMs < POLL_MS_MAX)
        await clock.sleep(
          Math.min(POLL_MS_MAX - tookMs, leftMs),
          options?.signal,
        );
    }
  }

  /** Waits until it is no longer `moving`; 0 ms: as it is. */
  async settled(
    record: SandboxRecord,
    moving: SandboxStatus,
    maxWaitMs: number,
    options?: CallOptions,
  ): Promise<SandboxRecord> {
    const { clock } = this.t;
    const start = clock.monotonic();
    let pauseMs = POLL_MS;
    while (maxWaitMs > 0 && record.status === moving) {
      if (clock.monotonic() - start >= maxWaitMs)
        throw new SandboxWaitError(
          `${record.id} is ${moving} after ${maxWaitMs} ms`,
          record.id,
          null,
          record,
        );
      await clock.sleep(pauseMs, options?.signal);
      pauseMs = Math.min(pauseMs * 2, POLL_MS_MAX);
      record = await this.sandbox(record.id, options);
    }
    return record;
  }

  /** Stop or resume, and the end of that. */
  async move(
    verb: "stop" | "resume",
    id: string,
    spec: { maxWaitMs?: number } = {},
    options?: CallOptions,
  ): Promise<SandboxRecord> {
    const maxWaitMs = checkMs("maxWaitMs", spec.maxWaitMs ?? MAX_WAIT_MS);
    const record = await this.change<SandboxRecord>(
      "POST",
      `${SANDBOXES}/${verb}`,
      { sandbox: id },
      `sandbox.${verb}`,
      undefined,
      options,
    );
    const moving = verb === "stop" ? "stopping" : "starting";
    return await this.settled(record, moving, maxWaitMs, options);
  }

  async update(
    id: string,
    spec: UpdateSpec,
    options?: CallOptions,
  ): Promise<SandboxRecord> {
    const query = { sandbox: id };
    const body = toWire(spec);
    return await this.change(
      "PATCH",
      SANDBOXES,
      query,
      "sandbox.update",
      body,
      options,
    );
  }

  async delete(id: string, options?: CallOptions): Promise<SandboxRecord> {
    return await this.change(
      "DELETE",
      SANDBOXES,
      { sandbox: id },
      "sandbox.delete",
      undefined,
      options,
    );
  }
}

/** The commands of a sandbox. */
export class Commands {
  readonly #calls: Calls;
  readonly #sandbox: string;

  constructor(calls: Calls, sandbox: string) {
    this.#calls = calls;
    this.#sandbox = sandbox;
  }

  /** Starts a program; waits up to `waitMs` for its end. */
  async create(
    spec: CommandSpec,
    options?: CallOptions,
  ): Promise<CommandRecord> {
    return await this.#calls.change(
      "POST",
      COMMANDS,
      { sandbox: this.#sandbox },
      "sandbox.command",
      toWire(spec),
      options,
    );
  }

  async list(
    page: { limit?: number; cursor?: string } = {},
    options?: CallOptions,
  ): Promise<Page<CommandSummary>> {
    const { limit, cursor } = page;
    const query = { sandbox: this.#sandbox, limit, cursor };
    return await this.#calls.get(COMMANDS, query, options);
  }

  /** Waits up to `waitMs` for its end. */
  async retrieve<T = unknown>(
    command: HasId,
    spec: { waitMs?: number } = {},
    options?: CallOptions,
  ): Promise<CommandRecord<T>> {
    return await this.#calls.command(idOf(command), spec.waitMs, options);
  }

  /** Output by byte offset. */
  async logs(
    command: HasId,
    part: {
      stream?: "stdout" | "stderr";
      offset?: number;
      limit?: number;
    } = {},
    options?: CallOptions,
  ): Promise<Log> {
    const { stream, offset, limit } = part;
    return await this.#calls.get(
      `${COMMANDS}/logs`,
      { command: idOf(command), stream, offset, limit },
      options,
    );
  }

  async cancel(command: HasId, options?: CallOptions): Promise<CommandRecord> {
    return await this.#calls.change(
      "POST",
      `${COMMANDS}/cancel`,
      { command: idOf(command) },
      "sandbox.cancel",
      undefined,
      options,
    );
  }
}

/** A handle of a sandbox.  `record` is what was told of it last. */
export class Sandbox {
  record: SandboxRecord;
  readonly files: Workspace;
  readonly commands: Commands;
  readonly #calls: Calls;

  constructor(t: Transport, graph: string | undefined, record: SandboxRecord) {
    const own = record.graph ?? graph;
    this.record = record;
    this.#calls = new Calls(t, own);
    this.files = new Workspace(t, record.id, own);
    this.commands = new Commands(this.#calls, record.id);
  }

  get id(): string {
    return this.record.id;
  }

  /** As it was told last; `retrieve` asks again. */
  get status(): SandboxStatus {
    return this.record.status;
  }

  /** Calls run(input, config) of `code` here.  Polls until `maxWaitMs`, then
   * SandboxWaitError.  A run whose outcome is unknown stays `lost` and never
   * runs again by itself. */
  async run<T = unknown>(
    spec: HeldRunSpec,
    options?: CallOptions,
  ): Promise<CommandRecord<T>> {
    const { waitMs: _, maxWaitMs: __, ...run } = spec;
    const [waitMs, maxWaitMs] = waits(spec);
    const start = this.#calls.t.clock.monotonic();
    const record = await this.#calls.change<CommandRecord<T>>(
      "POST",
      COMMANDS,
      { sandbox: this.id },
      "sandbox.command",
      { run: timedBody(run), wait_ms: waitMs },
      options,
    );
    if (!isPending(record.status)) return record;
    return await this.#calls.commandEnd(
      record,
      this.id,
      record.id,
      start,
      maxWaitMs,
      options,
    );
  }

  async retrieve(options?: CallOptions): Promise<SandboxRecord> {
    return (this.record = await this.#calls.sandbox(this.id, options));
  }

  async update(
    spec: UpdateSpec,
    options?: CallOptions,
  ): Promise<SandboxRecord> {
    return (this.record = await this.#calls.update(this.id, spec, options));
  }

  /** Its commands end, its disk stays.  Returns when it is stopped. */
  async stop(
    spec: { maxWaitMs?: number } = {},
    options?: CallOptions,
  ): Promise<SandboxRecord> {
    return (this.record = await this.#calls.move(
      "stop",
      this.id,
      spec,
      options,
    ));
  }

  /** Returns when it runs. */
  async resume(
    spec: { maxWaitMs?: number } = {},
    options?: CallOptions,
  ): Promise<SandboxRecord> {
    return (this.record = await this.#calls.move(
      "resume",
      this.id,
      spec,
      options,
    ));
  }

  /** Destroys it; its record stays. */
  async delete(options?: CallOptions): Promise<SandboxRecord> {
    return (this.record = await this.#calls.delete(this.id, options));
  }
}
