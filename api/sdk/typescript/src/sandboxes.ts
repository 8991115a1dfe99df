/** The sandboxes of a graph, and its templates. */
import { idOf, type HasId } from "./records.ts";
import type { Page, Run, SandboxRecord, TemplateRecord } from "./records.ts";
import { Calls, SANDBOXES, Sandbox, isPending } from "./sandbox.ts";
import {
  LOST_RETRIES_MAX,
  checkLostRetries,
  timedBody,
  waits,
  type CreateSpec,
  type RunSpec,
  type TemplateSpec,
  type UpdateSpec,
} from "./specs.ts";
import { toWire } from "./names.ts";
import { checkKey, type CallOptions, type Transport } from "./transport.ts";

const TEMPLATES = "/v1/sandboxes/templates";

type WireTemplate = Omit<TemplateRecord, "commandTimeoutMs"> & {
  timeoutMs: number;
};

/** Of a name or an sbt_ id, or of a record that has them. */
export type HasName = string | { id: string | null; name: string };

function template({ timeoutMs, ...rest }: WireTemplate): TemplateRecord {
  return { ...rest, commandTimeoutMs: timeoutMs };
}

/** Saved templates, and the base ones. */
export class Templates {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /** Each save of a name is a new version. */
  async create(
    spec: TemplateSpec,
    options?: CallOptions,
  ): Promise<TemplateRecord> {
    return template(
      await this.#calls.change(
        "POST",
        TEMPLATES,
        {},
        "sandbox.template",
        timedBody(spec),
        options,
      ),
    );
  }

  /** The newest versions; with `name`, all versions of it. */
  async list(
    page: { name?: string; limit?: number; cursor?: string } = {},
    options?: CallOptions,
  ): Promise<Page<TemplateRecord>> {
    const { name, limit, cursor } = page;
    const versions = name === undefined ? undefined : true;
    const got = await this.#calls.get<Page<WireTemplate>>(
      TEMPLATES,
      { name, versions, limit, cursor },
      options,
    );
    return { ...got, data: got.data.map(template) };
  }

  /** By name (its newest version) or by sbt_ id. */
  async retrieve(what: HasName, options?: CallOptions): Promise<TemplateRecord> {
    // A base template has a name and no id.
    const id = idOf(typeof what === "string" ? what : (what.id ?? what.name));
    return template(
      await this.#calls.get(TEMPLATES, { template: id }, options),
    );
  }

  /** As `retrieve`. */
  async get(what: HasName, options?: CallOptions): Promise<TemplateRecord> {
    return await this.retrieve(what, options);
  }
}

export class Sandboxes {
  readonly templates: Templates;
  readonly #t: Transport;
  readonly #graph: string | undefined;
  readonly #calls: Calls;

  constructor(t: Transport, graph: string | undefined) {
    this.#t = t;
    this.#graph = graph;
    this.#calls = new Calls(t, graph);
    this.templates = new Templates(this.#calls);
  }

  /**
   * Runs code once in a fresh sandbox.  Look at `ok` before `result`.
   *
   * Polls until `maxWaitMs` (ten minutes), then SandboxWaitError; that counts
   * for each attempt.  A run that its host lost is sent again under the next
   * key, `lostRetries` (2) times at most.
   */
  async run<T = unknown>(
    spec: RunSpec,
    options?: CallOptions,
  ): Promise<Run<T>> {
    const { waitMs: _, maxWaitMs: __, lostRetries: given, ...rest } = spec;
    const [waitMs, maxWaitMs] = waits(spec);
    const lostRetries = checkLostRetries(given ?? LOST_RETRIES_MAX);
    const key = this.#t.key(options?.idempotencyKey, "sandbox.run");
    if (lostRetries) checkKey(key, `.${lostRetries + 1}`.length);
    const body = { run: timedBody(rest), wait_ms: waitMs };
    for (let n = 1; ; n++) {
      const idempotencyKey = n === 1 ? key : `${key}.${n}`;
      const run = await this.#runOnce<T>(body, maxWaitMs, {
        ...options,
        idempotencyKey,
      });
      if (run.status !== "lost" || n > lostRetries) return run;
    }
  }

  async #runOnce<T>(
    body: object,
    maxWaitMs: number,
    options: CallOptions,
  ): Promise<Run<T>> {
    const start = this.#t.clock.monotonic();
    const run = await this.#calls.change<Run<T>>(
      "POST",
      SANDBOXES,
      {},
      "sandbox.run",
      body,
      options,
    );
    if (!isPending(run.status)) return run;
    const ended = await this.#calls.commandEnd<T>(
      run,
      run.sandbox,
      run.command,
      start,
      maxWaitMs,
      options,
    );
    const all: Record<string, unknown> = { ...run };
    for (const [name, value] of Object.entries(ended))
      if (name in run && name !== "object") all[name] = value;
    // These two were true of the moment of the first answer only.
    delete all["sandboxStatus"];
    delete all["progress"];
    return all as unknown as Run<T>;
  }

  async #create(
    spec: CreateSpec,
    options?: CallOptions,
  ): Promise<[Sandbox, number]> {
    const { waitMs: given, maxWaitMs: _, ...rest } = spec;
    const [waitMs, maxWaitMs] = waits(spec);
    const body = { ...toWire(rest), wait_ms: waitMs };
    const record = await this.#calls.change<SandboxRecord>(
      "POST",
      SANDBOXES,
      {},
      "sandbox.create",
      body,
      options,
    );
    const sandbox = new Sandbox(this.#t, this.#graph, record);
    return [sandbox, given === 0 ? 0 : maxWaitMs];
  }

  /** A sandbox that is held.  Returns when it runs, or cannot; with waitMs 0
   * at once.  You end it, or its expiry does. */
  async create(
    spec: CreateSpec = {},
    options?: CallOptions,
  ): Promise<Sandbox> {
    const [sandbox, maxWaitMs] = await this.#create(spec, options);
    sandbox.record = await this.#calls.settled(
      sandbox.record,
      "starting",
      maxWaitMs,
      options,
    );
    return sandbox;
  }

  /** Makes a sandbox, hands it to `fn`, and destroys it at the end, also after
   * an error. */
  async scoped<T>(
    spec: CreateSpec,
    fn: (sandbox: Sandbox) => T | Promise<T>,
    options?: CallOptions,
  ): Promise<T> {
    const [sandbox, maxWaitMs] = await this.#create(spec, options);
    let value: T;
    try {
      sandbox.record = await this.#calls.settled(
        sandbox.record,
        "starting",
        maxWaitMs,
        options,
      );
      value = await fn(sandbox);
    } catch (error) {
      // Of two errors the first one is told; also an aborted call destroys.
      await sandbox.delete().catch(() => undefined);
      throw error;
    }
    await sandbox.delete();
    return value;
  }

  async retrieve(
    sandbox: HasId,
    options?: CallOptions,
  ): Promise<SandboxRecord> {
    return await this.#calls.sandbox(idOf(sandbox), options);
  }

  /** As `retrieve`. */
  async get(sandbox: HasId, options?: CallOptions): Promise<SandboxRecord> {
    return await this.retrieve(sandbox, options);
  }

  /** Of a record, or of an id.  Makes no request. */
  handle(record: SandboxRecord | Sandbox | string): Sandbox {
    const of =
      typeof record === "string"
        ? ({ id: record } as SandboxRecord)
        : record instanceof Sandbox
          ? record.record
          : record;
    idOf(of);
    return new Sandbox(this.#t, this.#graph, of);
  }

  /** Newest first. */
  async list(
    page: {
      status?: string;
      template?: string;
      name?: string;
      limit?: number;
      cursor?: string;
    } = {},
    options?: CallOptions,
  ): Promise<Page<SandboxRecord>> {
    const { status, template, name, limit, cursor } = page;
    const query = { status, template, name, limit, cursor };
    return await this.#calls.get(SANDBOXES, query, options);
  }

  async update(
    sandbox: HasId,
    spec: UpdateSpec,
    options?: CallOptions,
  ): Promise<SandboxRecord> {
    return await this.#calls.update(idOf(sandbox), spec, options);
  }

  async stop(
    sandbox: HasId,
    spec: { maxWaitMs?: number } = {},
    options?: CallOptions,
  ): Promise<SandboxRecord> {
    return await this.#calls.move("stop", idOf(sandbox), spec, options);
  }

  async resume(
    sandbox: HasId,
    spec: { maxWaitMs?: number } = {},
    options?: CallOptions,
  ): Promise<SandboxRecord> {
    return await this.#calls.move("resume", idOf(sandbox), spec, options);
  }

  async delete(sandbox: HasId, options?: CallOptions): Promise<SandboxRecord> {
    return await this.#calls.delete(idOf(sandbox), options);
  }
}
