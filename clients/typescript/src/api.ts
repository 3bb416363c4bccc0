import { type Call, type CallOptions, type Connection, type CreateOptions, idempotent } from "./connection.js";
import { BackendTimeout, errorOf, InvalidInput } from "./errors.js";
import type { paths } from "./openapi.js";

export type Method = "get" | "post" | "put" | "patch" | "delete";

/** Paths of `/api/v1` that take a method. */
export type Route<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<M, object> ? P : never;
}[keyof paths];

type Operation<M extends Method, P extends Route<M>> = paths[P][M];
type Parameters<O> = O extends { parameters: infer Q extends { query?: unknown; path?: unknown } }
  ? Pick<Q, "query" | "path">
  : never;

/** Parameters and body of a request, as the OpenAPI document has them. */
export type Given<M extends Method, P extends Route<M>> = Parameters<Operation<M, P>> &
  (Operation<M, P> extends { requestBody: { content: { "application/json": infer B } } }
    ? { body: B }
    : { body?: never });

/** Fields of the query of a route. */
export type Query<M extends Method, P extends Route<M>> =
  Operation<M, P> extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never;

type Success<R> = R extends { 200: infer A } | { 201: infer A } | { 202: infer A } | { 204: infer A } ? A : never;

/** What a route answers. */
export type Answer<M extends Method, P extends Route<M>> =
  Operation<M, P> extends { responses: infer R }
    ? Success<R> extends { content: { "application/json": infer T } }
      ? T
      : undefined
    : never;

/** For how long to wait, by default without a limit, and the user to act for. */
export interface Waiting {
  timeoutMs?: number;
  user?: string | null;
}

const TURN_MS = 20_000;
const ANSWERING_MS = 15_000;

/** Calls of `/api/v1`, typed by its OpenAPI document. */
export class Api {
  constructor(readonly connection: Connection) {}

  /** Send a request; unless it says otherwise, only a `get` is ever sent again. */
  async request<M extends Method, P extends Route<M>>(
    method: M,
    path: P,
    given: Given<M, P>,
    options?: CallOptions,
    repeatable: boolean = method === "get",
  ): Promise<Answer<M, P>> {
    return this.#send({ ...call(method, path, given), repeatable }, options);
  }

  /** Ask for something that is described in a body. */
  async ask<P extends Route<"post">>(
    path: P,
    given: Given<"post", P>,
    options?: CallOptions,
  ): Promise<Answer<"post", P>> {
    return this.#send({ ...call("post", path, given), repeatable: true }, options);
  }

  /** Create something once, however often it is sent with its idempotency key. */
  async create<P extends Route<"post">>(
    path: P,
    given: Given<"post", P>,
    options?: CreateOptions,
  ): Promise<Answer<"post", P>> {
    const headers = idempotent(options);
    return this.#send({ ...call("post", path, given), headers, repeatable: true }, options);
  }

  /** Return what `call` gives once it is `done`; the server waits some seconds in each request. */
  async wait<T>(
    call: (query: { timeout_s: number; user?: string | null }, options: CallOptions) => Promise<T>,
    done: (found: T) => boolean,
    what: string,
    { timeoutMs, user = null }: Waiting,
    options: CallOptions = {},
  ): Promise<T> {
    const until = timeoutMs === undefined ? Number.POSITIVE_INFINITY : Date.now() + timeoutMs;
    for (;;) {
      const turn = Math.max(0, Math.min(TURN_MS, until - Date.now()));
      const found = await call({ timeout_s: turn / 1_000, user }, { ...options, timeoutMs: turn + ANSWERING_MS });
      if (done(found)) return found;
      if (Date.now() >= until) {
        throw new BackendTimeout(`Not done within ${timeoutMs} ms: ${what}. Wait for longer or check again later.`);
      }
    }
  }

  /** Send a file as a form or as bytes. */
  async upload<P extends Route<"post">>(
    path: P,
    file: FormData | Blob,
    how: Pick<Call, "query" | "headers" | "leastMs" | "repeatable">,
    options?: CallOptions,
  ): Promise<Answer<"post", P>> {
    const type = file instanceof FormData ? {} : { "Content-Type": "application/octet-stream" };
    const headers = { ...type, ...how.headers };
    return this.#send({ method: "POST", path, content: file, ...how, headers }, options);
  }

  /** Return a file's bytes as they come. */
  async download<P extends Route<"get">>(
    path: P,
    given: Given<"get", P>,
    how: Pick<Call, "headers" | "leastMs">,
    options?: CallOptions,
  ): Promise<ReadableStream<Uint8Array>> {
    return this.connection.bytes({ ...call("get", path, given), ...how, repeatable: true }, options);
  }

  /** Yield the events of a stream; one named `error` is thrown. */
  async *follow<M extends "get" | "post", P extends Route<M>>(
    method: M,
    path: P,
    given: Given<M, P>,
    options?: CallOptions,
  ): AsyncGenerator<{ event: string; value: unknown }, void, undefined> {
    // The server sends a comment now and then; a client must wait for longer than that.
    const sent = { ...call(method, path, given), repeatable: method === "get", leastMs: 45_000 };
    for await (const { event, data } of this.connection.events(sent, options)) {
      if (event === "error") throw errorOf(200, new Headers(), data);
      yield { event, value: JSON.parse(data) };
    }
  }

  async #send<T>(sent: Call, options?: CallOptions): Promise<T> {
    return (await this.connection.json(sent, options)) as T;
  }
}

function call(method: Method, path: string, given: unknown): Omit<Call, "repeatable"> {
  const filled = given as { path?: Record<string, unknown>; query?: NonNullable<Call["query"]>; body?: unknown };
  return {
    method: method.toUpperCase(),
    path: path.replace(/\{(\w+)\}/g, (_, name: string) => segment(name, filled.path?.[name])),
    ...(filled.query && { query: filled.query }),
    ...(filled.body !== undefined && { json: filled.body }),
  };
}

/** Return a value as one segment of a path. */
function segment(name: string, value: unknown): string {
  try {
    if (typeof value === "string" && !["", ".", ".."].includes(value)) return encodeURIComponent(value);
  } catch {
    // A lone surrogate.
  }
  throw new InvalidInput(name, "must be an id");
}
