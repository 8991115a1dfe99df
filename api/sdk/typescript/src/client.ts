/** LbbClient: the resources of an environment. */
import { Files } from "./files.ts";
import { Sandboxes } from "./sandboxes.ts";
import {
  Transport,
  type CallOptions,
  type ClientOptions,
  type Query,
  type Reply,
  type Version,
} from "./transport.ts";

/** The resources of one graph. */
export interface GraphScope {
  readonly name: string;
  readonly sandboxes: Sandboxes;
  readonly files: Files;
}

/** A client of one environment.  It reads no environment variable. */
export class LbbClient {
  readonly sandboxes: Sandboxes;
  readonly files: Files;
  readonly #t: Transport;

  constructor(options: ClientOptions = {}) {
    this.#t = new Transport(options);
    this.sandboxes = new Sandboxes(this.#t, undefined);
    this.files = new Files(this.#t, undefined);
  }

  /** The same, of another graph.  Makes no request. */
  graph(name: string): GraphScope {
    return {
      name,
      sandboxes: new Sandboxes(this.#t, name),
      files: new Files(this.#t, name),
    };
  }

  /** The server's version and capabilities; asked for once. */
  async version(): Promise<Version> {
    return await this.#t.version();
  }

  /** LbbCapabilityError unless the server has it. */
  async require(capability: string): Promise<void> {
    await this.#t.require(capability);
  }

  /** Any call, with the retries of all others and the names of the wire.
   * `body` is sent as JSON, `content` as it is. */
  async rawRequest(
    method: string,
    path: string,
    spec: {
      query?: Query;
      body?: unknown;
      content?: Uint8Array<ArrayBuffer> | Blob | string;
      contentType?: string;
    } = {},
    options?: CallOptions,
  ): Promise<Reply<unknown>> {
    const { query, body, content, contentType } = spec;
    if (body !== undefined && content !== undefined)
      throw new TypeError("body and content are both given; give one");
    return await this.#t.raw({
      method,
      path,
      query,
      body: body === undefined ? content : JSON.stringify(body),
      contentType:
        contentType ?? (body === undefined ? undefined : "application/json"),
      key: options?.idempotencyKey,
      options,
    });
  }
}
