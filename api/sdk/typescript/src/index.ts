/**
 * Client of Little Big Brain sandboxes.
 *
 *     import { LbbClient } from "@littlebigbrain/client";
 *
 *     const lbb = new LbbClient({ baseUrl, apiKey, graph: "main" });
 *     const { result } = await lbb.sandboxes.run({ code, input: [1, 2, 3] });
 */
export { LbbClient, type GraphScope } from "./client.ts";
export { systemClock, type Clock } from "./clock.ts";
export {
  LbbCapabilityError,
  LbbError,
  SandboxWaitError,
  type LbbErrorBody,
} from "./errors.ts";
export {
  Files,
  Workspace,
  type Content,
  type HasSha256,
  type WorkspacePath,
} from "./files.ts";
export { logBytes } from "./records.ts";
export type * from "./records.ts";
export type { RetryEvent, RetryRule } from "./retry.ts";
export { Commands, Sandbox } from "./sandbox.ts";
export { Sandboxes, Templates } from "./sandboxes.ts";
export type {
  CommandSpec,
  CreateSpec,
  FileSpec,
  HeldRunSpec,
  LimitsSpec,
  RunSpec,
  TemplateSpec,
  UpdateSpec,
} from "./specs.ts";
export {
  API_VERSION,
  VERSION,
  type CallOptions,
  type ClientOptions,
  type Query,
  type Reply,
  type Version,
} from "./transport.ts";
