/**
 * The ops of cases.py on the TypeScript client.
 *
 * Rows come as lines of JSON on stdin, what became of each goes to stdout.
 */
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import {
  LbbCapabilityError,
  LbbClient,
  LbbError,
  SandboxWaitError,
  type CallOptions,
  type Clock,
  type RetryEvent,
  type Run,
} from "@littlebigbrain/client";

const UNIX_MS = 1_800_000_000_000;

type Args = Record<string, any>;
type Row = { op: string; url: string; args: Args; client: Args };

class Mine extends Error {
  override name = "Mine";
}

/** Only waiting takes time; chance gives the most. */
class TestClock implements Clock {
  now = 0;
  waits: number[] = [];
  unix = () => UNIX_MS + this.now;
  monotonic = () => this.now;
  uniform = (upper: number) => upper;
  sleep = async (ms: number) => {
    this.waits.push(ms / 1000);
    this.now += ms;
  };
}

function options(a: Args): CallOptions {
  const o = a["options"] ?? {};
  const out: CallOptions = {};
  if ("key" in a) out.idempotencyKey = a["key"];
  if ("max_retries" in o) out.maxRetries = o.max_retries;
  if ("retry" in o) out.retry = o.retry;
  if ("retry_budget_ms" in o) out.retryBudgetMs = o.retry_budget_ms;
  if ("headers" in o) out.headers = o.headers;
  return out;
}

function waits(a: Args): Args {
  const out: Args = {};
  if ("wait_ms" in a) out["waitMs"] = a["wait_ms"];
  if ("max_wait_ms" in a) out["maxWaitMs"] = a["max_wait_ms"];
  if ("lost_retries" in a) out["lostRetries"] = a["lost_retries"];
  return out;
}

class Whole {
  readonly out: object;
  constructor(out: object) {
    this.out = out;
  }
}

/** The run's fields by the names of the wire, as the table has them. */
function ofRun(r: Run): Whole {
  const fields = Object.fromEntries(
    Object.entries(r).map(([k, v]) => [
      k.replace(/[A-Z]/g, (c) => "_" + c.toLowerCase()),
      v,
    ]),
  );
  return new Whole({ value: [r.ok, r.result], fields });
}

async function inFolder<T>(fn: (top: string) => Promise<T>): Promise<T> {
  const top = mkdtempSync(join(tmpdir(), "ops-"));
  try {
    return await fn(top);
  } finally {
    rmSync(top, { recursive: true });
  }
}

const OPS: Record<string, (c: LbbClient, a: Args) => Promise<unknown>> = {
  get: async (c, a) =>
    (await c.rawRequest("GET", "/v1/sandboxes", {}, options(a))).status,
  post: async (c, a) =>
    (await c.rawRequest("POST", "/v1/sandboxes", { body: {} }, options(a)))
      .status,
  raw: async (c) => {
    const r = await c.rawRequest("GET", "/v1/x");
    return [
      r.data,
      r.status,
      r.requestId,
      r.version,
      r.attempts,
      r.retryCount,
      Math.round(r.elapsedMs),
    ];
  },
  list: async (c) => (await c.sandboxes.list()).data,
  capability: async (c) => {
    const { capabilities } = await c.version();
    await c.require("sandboxes");
    try {
      await c.require("sandboxes.flying");
    } catch (e) {
      if (e instanceof LbbCapabilityError) return [...capabilities, e.name];
    }
    return undefined;
  },
  run: async (c, a) =>
    ofRun(await c.sandboxes.run({ code: "x", ...waits(a) }, options(a))),
  graph: async (c) =>
    ofRun(await c.graph("other").sandboxes.run({ code: "x" })),
  run_held: async (c, a) =>
    (await c.sandboxes.handle("sbx_1").run({ code: "x", ...waits(a) })).status,
  user_json: async (c, a) => {
    const run = await c.sandboxes.run({
      code: "x",
      input: a["json"],
      config: a["json"],
      env: { aB_c: "1" },
      limits: { memoryMib: 512 },
      commandTimeoutMs: 5,
    });
    return run.result;
  },
  create: async (c, a) => (await c.sandboxes.create(waits(a))).status,
  scoped: async (c, a) =>
    await c.sandboxes.scoped(waits(a), (sb) => {
      if (a["raise"]) throw new Mine("of the block");
      return sb.status;
    }),
  command: async (c) =>
    (await c.sandboxes.handle("sbx_1").commands.create({ argv: ["true"] }))
      .status,
  cancel: async (c) =>
    (await c.sandboxes.handle("sbx_1").commands.cancel("cmd_1")).status,
  retrieve: async (c) => (await c.sandboxes.retrieve("sbx_1")).status,
  handle: async (c) => c.sandboxes.handle("sbx_1").id,
  handle_graph: async (c) =>
    (
      await c.sandboxes
        .handle({ id: "sbx_1", graph: "other" } as never)
        .retrieve()
    ).status,
  stop: async (c) => (await c.sandboxes.handle("sbx_1").stop()).status,
  resume: async (c) => (await c.sandboxes.resume("sbx_1")).status,
  delete: async (c) => (await c.sandboxes.delete("sbx_1")).status,
  update: async (c, a) =>
    (
      await c.sandboxes.update("sbx_1", {
        name: a["reset"] ? null : "n",
        idleSeconds: 60,
      })
    ).status,
  template: async (c) => {
    const t = await c.sandboxes.templates.create({
      name: "n",
      base: "lbb/shell",
      code: "x",
      limits: { memoryMib: 2048 },
      commandTimeoutMs: 5,
      config: { aB: 1 },
      files: [{ path: "in/a", sha256: "ab" }],
    });
    if (t.files && t.files[0]?.bytes !== 3) throw new Error("files");
    return [t.id, t.commandTimeoutMs];
  },
  write: async (c, a) =>
    (await c.sandboxes.handle("sbx_1").files.write(a["path"] ?? "x", "y")).size,
  keep: async (c) =>
    (await c.files.keep({ sandbox: "sbx_1", path: "x" })).created,
  upload: async (c) =>
    await inFolder(async (top) => {
      writeFileSync(`${top}/a.txt`, "hello");
      return (await c.files.upload(`${top}/a.txt`)).created;
    }),
  files_list: async (c) => (await c.files.list()).files,
  file_delete: async (c) => (await c.files.delete("ab")).deleted,
  import: async (c) =>
    (
      await c.sandboxes
        .handle("sbx_1")
        .files.importFile("x", { sha256: "ab" })
    ).size,
  download: async (c, a) =>
    await inFolder(async (top) => {
      try {
        await c.files.download(a["sha256"], `${top}/x`);
      } catch (e) {
        (e as { left?: number }).left = readdirSync(top).length;
        throw e;
      }
      return [readFileSync(`${top}/x`, "utf8"), readdirSync(top).length];
    }),
  content: async (c, a) =>
    new TextDecoder().decode(await c.files.content(a["sha256"], a["range"])),
};

function failure(e: any): object {
  let raises = e.name;
  // fetch tells a lost connection so.
  if (e instanceof TypeError) raises = "lost";
  else if (["RangeError", "SyntaxError", "Error"].includes(raises))
    raises = "invalid";
  const out: Args = { raises, message: e.message };
  if (e instanceof LbbError)
    Object.assign(out, {
      code: e.code,
      status: e.status,
      param: e.param,
      request_id: e.requestId,
      details: e.details,
      after: e.retryAfterSeconds,
    });
  if (e instanceof SandboxWaitError) out["wait"] = [e.sandbox, e.command];
  if ("left" in e) out["left"] = e.left;
  return out;
}

async function play(row: Row): Promise<object> {
  const clock = new TestClock();
  const events: RetryEvent[] = [];
  const given = { api_key: "lbb_sk_test_1", graph: "main", ...row.client };
  const c = new LbbClient({
    baseUrl: row.url,
    apiKey: given.api_key ?? undefined,
    graph: given.graph ?? undefined,
    environment: (given as Args)["environment"],
    maxRetries: (given as Args)["max_retries"],
    clock,
    onRetry: (e) => events.push(e),
  });
  let out: object;
  try {
    const value = await OPS[row.op]!(c, row.args);
    out = value instanceof Whole ? value.out : { value };
  } catch (e) {
    out = failure(e);
  }
  return {
    ...out,
    waits: clock.waits,
    events: events.map((e) => [
      e.method,
      e.path,
      e.attempt,
      e.statusCode ?? null,
      e.errorCode ?? null,
      e.delayMs / 1000,
      e.elapsedMs / 1000,
    ]),
  };
}

for await (const line of createInterface({ input: process.stdin }))
  console.log(JSON.stringify(await play(JSON.parse(line) as Row)));
