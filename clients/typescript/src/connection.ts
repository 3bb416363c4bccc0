import {
  BackendTimeout,
  BackendUnavailable,
  Conflict,
  ConnectionLost,
  errorOf,
  InvalidInput,
  LimitReached,
  MemosError,
} from "./errors.js";

/** Options of a client. */
export interface ClientOptions {
  /** Server, with or without `/api/v1`; default: `MEMOS_BASE_URL`, else `http://127.0.0.1:8765`. */
  baseUrl?: string | undefined;
  /** API key; default: `MEMOS_API_KEY`. */
  apiKey?: string | undefined;
  /** Longest wait for an answer to begin and then to end, or for the next event of a stream; default: 60,000. */
  timeoutMs?: number | undefined;
  /** How often a request that may be repeated is sent again; default: 2. */
  retries?: number | undefined;
  /** First pause before that; later ones double. Default: 500. */
  pauseMs?: number | undefined;
  /** Longest pause; a request that would have to wait longer fails at once. Default: 30,000. */
  maxPauseMs?: number | undefined;
  /** Used in place of the global `fetch`. */
  fetch?: typeof globalThis.fetch | undefined;
}

/** Options of one call. */
export interface CallOptions {
  /** Ends the call early; its reason is thrown. */
  signal?: AbortSignal | undefined;
  timeoutMs?: number | undefined;
  retries?: number | undefined;
}

/** Options of a call that creates something. */
export interface CreateOptions extends CallOptions {
  /** Name of this call: repeating it has no second effect. Default: a new one for each call. */
  idempotencyKey?: string | undefined;
}

type QueryValue = string | number | boolean | null | undefined | readonly (string | number)[];

/** A request of `/api/v1`. */
export interface Call {
  method: string;
  /** Path behind `/api/v1`, its parameters filled in. */
  path: string;
  query?: Readonly<Record<string, QueryValue>>;
  headers?: Readonly<Record<string, string>>;
  /** What is sent: a value as JSON, or a form or bytes as they are. */
  json?: unknown;
  content?: FormData | Blob;
  /** It may be sent again: it changes nothing, or has an idempotency key. */
  repeatable: boolean;
  /** How long the server may be silent, whatever the client's timeout. */
  leastMs?: number;
}

export interface ServerEvent {
  event: string;
  data: string;
}

const LOCAL = "http://127.0.0.1:8765";
const LONGEST_MS = 86_400_000;
const IDEMPOTENCY_KEY = "Idempotency-Key";
// Codes of Node and Bun for connections that were never made.
const UNCONNECTED = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "ConnectionRefused"]);

/** Sends requests to one server, again where that does no harm. */
export class Connection {
  readonly #root: string;
  readonly #key: string;
  readonly #fetch: typeof globalThis.fetch;
  readonly #timeoutMs: number;
  readonly #retries: number;
  readonly #pauseMs: number;
  readonly #maxPauseMs: number;

  constructor(options: ClientOptions) {
    this.#root = rootOf(options.baseUrl || environment("MEMOS_BASE_URL") || LOCAL);
    this.#key = keyOf(options.apiKey || environment("MEMOS_API_KEY"));
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    this.#timeoutMs = checkMs("timeoutMs", options.timeoutMs ?? 60_000, 1);
    this.#retries = checkRetries(options.retries ?? 2);
    this.#pauseMs = checkMs("pauseMs", options.pauseMs ?? 500);
    this.#maxPauseMs = checkMs("maxPauseMs", options.maxPauseMs ?? 30_000);
  }

  /** Send a request and return its answer as JSON, undefined if it is empty. */
  async json(call: Call, options: CallOptions = {}): Promise<unknown> {
    const text = await this.#repeated(call, options, (response) => response.text());
    if (text.value === "") return undefined;
    try {
      return JSON.parse(text.value);
    } catch {
      throw strange("not JSON", text.response);
    }
  }

  /** Send a request and return the bytes of its answer as they come. */
  async bytes(call: Call, options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const { response, limit } = await this.#repeated(call, options);
    limit.stop();
    const reader = bodyOf(response).getReader();
    return new ReadableStream<Uint8Array>({
      pull: async (controller) => {
        try {
          limit.restart();
          const { done, value } = await reader.read();
          limit.stop(); // the caller's own time does not count
          if (!done) return controller.enqueue(value);
          limit.end();
          controller.close();
        } catch (error) {
          limit.end();
          controller.error(this.#failure(error, limit, requestIdOf(response)));
        }
      },
      cancel: (reason) => {
        limit.end();
        return reader.cancel(reason);
      },
    });
  }

  /** Send a request and yield the events of its answer. Ends the request when the caller stops iterating. */
  async *events(call: Call, options: CallOptions = {}): AsyncGenerator<ServerEvent, void, undefined> {
    const { response, limit } = await this.#repeated(call, options);
    const reader = bodyOf(response).getReader();
    try {
      limit.restart();
      const parse = new EventParser();
      for (;;) {
        const { done, value } = await reader.read();
        limit.stop();
        yield* done ? parse.end() : parse.feed(value);
        if (done) return;
        limit.restart();
      }
    } catch (error) {
      throw this.#failure(error, limit, requestIdOf(response));
    } finally {
      limit.end();
      await reader.cancel().catch(() => undefined);
    }
  }

  /** Send a request, again if needed and allowed; without `read` its answer is left open, and its limit runs. */
  async #repeated<T = undefined>(call: Call, options: CallOptions, read?: (response: Response) => Promise<T>) {
    const requestId = newId();
    const retries = checkRetries(options.retries ?? this.#retries);
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#once(call, options, requestId, read);
      } catch (error) {
        const pause = attempt > retries ? undefined : this.#pause(call, attempt, error);
        if (pause === undefined) throw error;
        await sleep(pause, options.signal);
      }
    }
  }

  async #once<T>(call: Call, options: CallOptions, requestId: string, read?: (response: Response) => Promise<T>) {
    const asked = checkMs("timeoutMs", options.timeoutMs ?? this.#timeoutMs, 1);
    const limit = new TimeLimit(Math.max(asked, call.leastMs ?? 0), options.signal);
    let open = false;
    try {
      const response = await this.#fetch(this.#url(call), {
        method: call.method,
        headers: this.#headers(call, requestId),
        body: call.content ?? (call.json === undefined ? null : encoded(call.json)),
        signal: limit.signal,
        redirect: "manual",
      });
      limit.restart();
      if (response.type === "opaqueredirect" || (response.status >= 300 && response.status < 400)) {
        throw strange("a redirect, which is not followed so that no other host gets the key", response);
      }
      if (!response.ok) throw errorOf(response.status, response.headers, await response.text());
      const value = (await read?.(response)) as T;
      open = read === undefined;
      return { response, value, limit };
    } catch (error) {
      throw this.#failure(error, limit, requestId);
    } finally {
      if (!open) limit.end();
    }
  }

  #url(call: Call): string {
    const given = new URLSearchParams();
    for (const [name, value] of Object.entries(call.query ?? {})) {
      for (const each of Array.isArray(value) ? value : [value]) {
        if (each !== undefined && each !== null) given.append(name, String(each));
      }
    }
    const query = given.toString();
    return `${this.#root}/api/v1${call.path}${query && `?${query}`}`;
  }

  #headers(call: Call, requestId: string): Record<string, string> {
    const type = call.json === undefined ? {} : { "Content-Type": "application/json" };
    return { Authorization: `Bearer ${this.#key}`, "X-Request-Id": requestId, ...type, ...call.headers };
  }

  /** Return the error of this package that something thrown stands for; the reason of the caller's signal as it is. */
  #failure(error: unknown, limit: TimeLimit, requestId: string | undefined): unknown {
    if (limit.aborted) return limit.reason;
    if (error instanceof MemosError) return error;
    const details = { requestId, cause: error };
    if (limit.expired) {
      return new BackendTimeout(`${this.#root} did not answer in time; give the call more with timeoutMs.`, details);
    }
    if (UNCONNECTED.has(codeOf(error))) {
      const remedy = "start the server with `memos serve`, or check baseUrl";
      return new BackendUnavailable(`Cannot connect to ${this.#root}: ${remedy}.`, details);
    }
    // Browsers do not say more, also if the page's origin is not in MEMOS_SERVER__CORS_ORIGINS.
    const told =
      "a change may or may not have been made. Check that the server runs, and in a browser its CORS origins";
    return new ConnectionLost(`The connection to ${this.#root} failed; ${told}.`, details);
  }

  /** Return the pause before the next attempt, undefined if there is none. */
  #pause(call: Call, attempt: number, error: unknown): number | undefined {
    const doubled = Math.min(this.#pauseMs * 2 ** (attempt - 1), this.#maxPauseMs);
    const pause = doubled * (0.5 + Math.random() / 2); // jitter parts clients that failed together
    // What was sent before is perhaps still being carried out.
    if (attempt > 1 && error instanceof Conflict && call.headers?.[IDEMPOTENCY_KEY] !== undefined) return pause;
    if (!call.repeatable || !(error instanceof BackendUnavailable || error instanceof LimitReached)) return undefined;
    if (error instanceof BackendUnavailable && error.permanent) return undefined;
    const asked = error.retryAfterMs ?? 0;
    return asked > this.#maxPauseMs ? undefined : asked + pause;
  }
}

/** Return the headers of a call that has its effect once, however often it is sent. */
export function idempotent(options: CreateOptions | undefined): Record<string, string> {
  const key = options?.idempotencyKey ?? newId();
  if (!/^[ -~]{1,256}$/.test(key))
    throw new InvalidInput("idempotencyKey", "must be 1 to 256 printable ASCII characters");
  return { [IDEMPOTENCY_KEY]: key };
}

/** Return a random id; `crypto.randomUUID` is not there in pages that came without TLS. */
function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A time that starts again with each sign of life, joined with the caller's signal. */
class TimeLimit {
  expired = false;
  readonly #controller = new AbortController();
  readonly #onAbort = () => this.#controller.abort(this.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly ms: number,
    readonly outer: AbortSignal | undefined,
  ) {
    if (outer?.aborted) this.#onAbort();
    outer?.addEventListener("abort", this.#onAbort, { once: true });
    this.restart();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get aborted(): boolean {
    return this.outer?.aborted ?? false;
  }

  get reason(): unknown {
    return this.outer?.reason;
  }

  restart(): void {
    this.stop();
    this.#timer = setTimeout(() => {
      this.expired = true;
      this.#controller.abort();
    }, this.ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  end(): void {
    this.stop();
    this.outer?.removeEventListener("abort", this.#onAbort);
  }
}

/** Splits bytes into server-sent events. */
class EventParser {
  readonly #decoder = new TextDecoder();
  #rest = "";
  #event = "";
  #data: string[] = [];

  feed(bytes: Uint8Array): ServerEvent[] {
    return this.#lines(this.#decoder.decode(bytes, { stream: true }), /\r\n|\n|\r(?!$)/);
  }

  end(): ServerEvent[] {
    return this.#lines(this.#decoder.decode(), /\r\n|\n|\r/);
  }

  #lines(text: string, ends: RegExp): ServerEvent[] {
    const lines = (this.#rest + text).split(ends);
    this.#rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.#line(line));
  }

  #line(line: string): ServerEvent[] {
    if (line === "") {
      const found = this.#data.length ? [{ event: this.#event || "message", data: this.#data.join("\n") }] : [];
      this.#event = "";
      this.#data = [];
      return found;
    }
    const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (name === "event") this.#event = value ?? "";
    if (name === "data") this.#data.push(value ?? "");
    return [];
  }
}

function environment(name: string): string | undefined {
  try {
    const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
    return process?.env?.[name];
  } catch {
    return undefined; // Deno without permission to read it
  }
}

/** Return a URL without the path of the API: callers give it with and without. */
function rootOf(url: string): string {
  let parts: URL | undefined;
  try {
    parts = new URL(url.trim());
  } catch {
    // told below
  }
  const plain = parts && !parts.search && !parts.hash && !parts.username && !parts.password;
  if (!plain || !["http:", "https:"].includes(parts?.protocol ?? "")) {
    throw new InvalidInput("baseUrl", "must be a URL such as http://127.0.0.1:8765, without user, query or fragment");
  }
  return url
    .trim()
    .replace(/\/+$/, "")
    .replace(/\/api\/(openmem\/)?v1$/, "")
    .replace(/\/+$/, "");
}

function keyOf(key: string | undefined): string {
  const found = key?.trim();
  if (!found) {
    throw new InvalidInput("apiKey", "is required; pass one or set MEMOS_API_KEY (`memos serve` prints the first one)");
  }
  if (!/^[!-~]{1,4096}$/.test(found)) {
    throw new InvalidInput("apiKey", "must consist of printable ASCII characters without spaces");
  }
  return found;
}

function checkMs(name: string, value: number, least = 0): number {
  if (!(value >= least && value <= LONGEST_MS)) {
    throw new InvalidInput(name, `must be milliseconds from ${least} to ${LONGEST_MS}; got ${value}`);
  }
  return value;
}

function checkRetries(value: number): number {
  if (!Number.isInteger(value) || value < 0 || value > 100) {
    throw new InvalidInput("retries", `must be a whole number from 0 to 100; got ${value}`);
  }
  return value;
}

function encoded(value: unknown): string {
  try {
    return JSON.stringify(value, (name, inner) => {
      if (typeof inner === "number" && !Number.isFinite(inner))
        throw new InvalidInput(name, `must be finite; got ${inner}`);
      return inner;
    });
  } catch (error) {
    if (error instanceof MemosError) throw error;
    throw new InvalidInput("body", `cannot be sent as JSON (${error instanceof Error ? error.message : error})`);
  }
}

function bodyOf(response: Response): ReadableStream<Uint8Array> {
  if (!response.body) throw strange("empty", response);
  return response.body;
}

function requestIdOf(response: Response): string | undefined {
  return response.headers.get("x-request-id") ?? undefined;
}

/** Return the error for an answer that no hippocube server gives. */
export function strange(what: string, response?: Response): BackendUnavailable {
  const remedy = "Check that baseUrl is a hippocube server of this version.";
  return new BackendUnavailable(`Unexpected answer from the server: ${what}. ${remedy}`, {
    status: response?.status || undefined,
    requestId: response && requestIdOf(response),
    permanent: true,
  });
}

function codeOf(error: unknown): string {
  for (let each: unknown = error; each instanceof Error; each = each.cause) {
    if ("code" in each && typeof each.code === "string") return each.code;
    if (/connection refused/i.test(each.message)) return "ECONNREFUSED"; // Deno
  }
  return "";
}

function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    if (signal?.aborted) onAbort();
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}
