/** The workspace of a sandbox, and the Files of a graph. */
import { idOf, type FilePage, type FileRecord, type HasId } from "./records.ts";
import type {
  Page,
  Upload,
  WorkspaceDeleted,
  WorkspaceEntry,
  WorkspaceWritten,
} from "./records.ts";
import {
  readBytes,
  type Body,
  type Call,
  type CallOptions,
  type Query,
  type Transport,
} from "./transport.ts";

const WORKSPACE = "/v1/sandboxes/files";
const CONTENT = "/v1/sandboxes/files/content";
const FILES = "/v1/files";
const BYTES = "application/octet-stream";
const WHAT = "Files of a graph";

/** A path under /workspace; bytes are one that is not UTF-8. */
export type WorkspacePath = string | Uint8Array;
export type Content = string | Uint8Array | ArrayBuffer | Blob;
/** A SHA-256, or a record that has one. */
export type HasSha256 = string | { sha256: string } | { file: FileRecord };

export function pathQuery(path: WorkspacePath): Query {
  if (typeof path === "string") return { path };
  const hex = [...path].map((b) => b.toString(16).padStart(2, "0")).join("");
  return { path_hex: hex };
}

/** A copy: what the caller does to theirs meanwhile is not sent. */
function bodyOf(data: Content): Body {
  if (typeof data === "string" || data instanceof Blob) return data;
  if (data instanceof ArrayBuffer) return new Uint8Array(data.slice(0));
  if (data instanceof Uint8Array) return new Uint8Array(data);
  throw new TypeError("the content must be bytes, a Blob or a string");
}

function sha256Of(what: HasSha256): string {
  if (typeof what === "string") return what;
  const sha256 = "file" in what ? what.file.sha256 : what.sha256;
  if (typeof sha256 !== "string")
    throw new TypeError("a SHA-256, or a record that has one, is needed");
  return sha256;
}

/** The calls on files of one sandbox. */
export class Workspace {
  readonly #t: Transport;
  readonly #query: Query;
  readonly #sandbox: string;

  constructor(t: Transport, sandbox: string, graph: string | undefined) {
    this.#t = t;
    this.#sandbox = sandbox;
    this.#query = { ...(graph === undefined ? {} : { graph }), sandbox };
  }

  /** A file of at most 4 MiB; a larger one by `offset` and `limit`. */
  async read(
    path: WorkspacePath,
    part: { offset?: number; limit?: number } = {},
    options?: CallOptions,
  ): Promise<Uint8Array> {
    const { offset, limit } = part;
    const reply = await this.#t.send(
      {
        method: "GET",
        path: CONTENT,
        query: { ...this.#query, ...pathQuery(path), offset, limit },
        options,
      },
      readBytes,
    );
    return reply.data;
  }

  /** UTF-8; what is not is an error. */
  async readText(path: WorkspacePath, options?: CallOptions): Promise<string> {
    const bytes = await this.read(path, {}, options);
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(
      bytes,
    );
  }

  /** At most 4 MiB; folders on the way are made, a file is replaced. */
  async write(
    path: WorkspacePath,
    data: Content,
    options?: CallOptions,
  ): Promise<WorkspaceWritten> {
    return await this.#t.record({
      method: "PUT",
      path: CONTENT,
      query: { ...this.#query, ...pathQuery(path) },
      body: bodyOf(data),
      contentType: BYTES,
      key: this.#t.key(options?.idempotencyKey, "sandbox.file"),
      options,
    });
  }

  /** Puts a File of the graph here. */
  async importFile(
    path: WorkspacePath,
    source: HasSha256,
    options?: CallOptions,
  ): Promise<WorkspaceWritten> {
    return await this.#t.record({
      method: "PUT",
      path: CONTENT,
      query: {
        ...this.#query,
        ...pathQuery(path),
        source_sha256: sha256Of(source),
      },
      key: this.#t.key(options?.idempotencyKey, "sandbox.import"),
      what: "import of a File",
      options,
    });
  }

  /** Keeps a file as a File of the graph; it stays when the sandbox ends. */
  async keep(
    path: WorkspacePath,
    spec: { name?: string } = {},
    options?: CallOptions,
  ): Promise<Upload> {
    const { graph } = this.#query as { graph?: string };
    return await new Files(this.#t, graph).keep(
      { sandbox: this.#sandbox, path, ...spec },
      options,
    );
  }

  /** A folder, in the order of names; not the folders below it. */
  async list(
    path?: WorkspacePath,
    page: { limit?: number; cursor?: string } = {},
    options?: CallOptions,
  ): Promise<Page<WorkspaceEntry>> {
    const { limit, cursor } = page;
    return await this.#t.record({
      method: "GET",
      path: WORKSPACE,
      query: {
        ...this.#query,
        ...(path?.length ? pathQuery(path) : {}),
        limit,
        cursor,
      },
      options,
    });
  }

  /** A file or an empty folder.  This cannot be undone. */
  async delete(
    path: WorkspacePath,
    options?: CallOptions,
  ): Promise<WorkspaceDeleted> {
    return await this.#t.record({
      method: "DELETE",
      path: WORKSPACE,
      query: { ...this.#query, ...pathQuery(path) },
      key: this.#t.key(options?.idempotencyKey, "sandbox.file_delete"),
      options,
    });
  }
}

/** What a graph keeps as files, by the SHA-256 of the content. */
export class Files {
  readonly #t: Transport;
  readonly #graph: Query;

  constructor(t: Transport, graph: string | undefined) {
    this.#t = t;
    this.#graph = graph === undefined ? {} : { graph };
  }

  #call(
    method: string,
    path: string,
    query: Query,
    options?: CallOptions,
    more: Partial<Call> = {},
  ): Call {
    return {
      method,
      path,
      query: { ...this.#graph, ...query },
      what: WHAT,
      options,
      ...more,
    };
  }

  /** Bytes, or the path of a file here, which gives the name, too. */
  async upload(
    source: Uint8Array | ArrayBuffer | Blob | string,
    spec: { name?: string; contentType?: string } = {},
    options?: CallOptions,
  ): Promise<Upload> {
    let { name } = spec;
    let body: Body;
    if (typeof source === "string") {
      const { openAsBlob } = await import("node:fs");
      const { basename } = await import("node:path");
      body = await openAsBlob(source);
      name ??= basename(source);
    } else {
      body = bodyOf(source);
    }
    return await this.#t.record(
      this.#call("POST", FILES, { name }, options, {
        body,
        contentType: spec.contentType ?? BYTES,
        key: options?.idempotencyKey,
        isIdempotent: true,
      }),
    );
  }

  /** Keeps a workspace file; it names its sandbox as its origin. */
  async keep(
    spec: { sandbox: HasId; path: WorkspacePath; name?: string },
    options?: CallOptions,
  ): Promise<Upload> {
    const query: Query = { source_sandbox: idOf(spec.sandbox) };
    for (const [k, v] of Object.entries(pathQuery(spec.path)))
      query[`source_${k}`] = v;
    return await this.#t.record(
      this.#call("POST", FILES, { ...query, name: spec.name }, options, {
        key: this.#t.key(options?.idempotencyKey, "file.keep"),
      }),
    );
  }

  /** Newest first. */
  async list(
    page: { limit?: number; after?: string; name?: string } = {},
    options?: CallOptions,
  ): Promise<FilePage> {
    const { limit, after, name } = page;
    return await this.#t.record(
      this.#call("GET", FILES, { limit, after, name }, options),
    );
  }

  async record(file: HasSha256, options?: CallOptions): Promise<FileRecord> {
    const sha256 = sha256Of(file);
    return await this.#t.record(
      this.#call("GET", `${FILES}/record`, { sha256 }, options),
    );
  }

  /** As `record`. */
  async get(file: HasSha256, options?: CallOptions): Promise<FileRecord> {
    return await this.record(file, options);
  }

  /** The bytes; `range` is the first and the last one, both included,
   * undefined for the end. */
  async content(
    file: HasSha256,
    range?: [first: number, last?: number],
    options?: CallOptions,
  ): Promise<Uint8Array> {
    const sha256 = sha256Of(file);
    const headers = range
      ? { range: `bytes=${range[0]}-${range[1] ?? ""}` }
      : undefined;
    const reply = await this.#t.send(
      this.#call("GET", `${FILES}/content`, { sha256 }, options, { headers }),
      readBytes,
    );
    if (reply.status !== 206) await checkSha256(reply.data, sha256);
    return reply.data;
  }

  /** Into a file, which appears whole or not at all. */
  async download(
    file: HasSha256,
    path: string,
    options?: CallOptions,
  ): Promise<void> {
    const sha256 = sha256Of(file);
    const { save } = await import("./save.ts");
    await this.#t.send(
      this.#call("GET", `${FILES}/content`, { sha256 }, options),
      (response) => save(response, path, sha256),
    );
  }

  async delete(
    file: HasSha256,
    options?: CallOptions,
  ): Promise<{ deleted: boolean; sha256: string }> {
    const sha256 = sha256Of(file);
    return await this.#t.record(
      this.#call("DELETE", FILES, { sha256, confirm: sha256 }, options, {
        key: this.#t.key(options?.idempotencyKey, "file.delete"),
      }),
    );
  }
}

async function checkSha256(
  data: Uint8Array<ArrayBuffer>,
  want: string,
): Promise<void> {
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", data));
  const got = [...hash].map((b) => b.toString(16).padStart(2, "0")).join("");
  if (got !== want.toLowerCase())
    throw new Error(`the content has the SHA-256 ${got}, not ${want}`);
}
