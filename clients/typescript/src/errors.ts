/** Fields of an error's answer. */
export interface ErrorDetails {
  /** HTTP status, undefined if there was no answer. */
  status?: number | undefined;
  /** Id of the request, by which the server's log names it. */
  requestId?: string | undefined;
  cause?: unknown;
}

/** Base of every error of this package. */
export class MemosError extends Error {
  static readonly code: string = "error";
  readonly status: number | undefined;
  readonly requestId: string | undefined;

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.status = details.status;
    this.requestId = details.requestId;
  }

  /** Kind of error, such as `not_found`. */
  get code(): string {
    return (this.constructor as typeof MemosError).code;
  }
}

/** A value from the caller is wrong; nothing was written. */
export class InvalidInput extends MemosError {
  static override readonly code = "invalid_input";
  /** Name of the field that is wrong. */
  readonly field: string;

  constructor(field: string, message: string, details?: ErrorDetails) {
    super(message.startsWith(`${field}:`) ? message : `${field}: ${message}`, details);
    this.field = field;
  }
}

/** The named thing does not exist, or the key cannot read it. */
export class NotFound extends MemosError {
  static override readonly code = "not_found";
}

/** The stored state is not the one the caller expected; read again and retry. */
export class Conflict extends MemosError {
  static override readonly code = "conflict";
}

/** The key does not allow this, or is wrong. */
export class PermissionDenied extends MemosError {
  static override readonly code = "permission_denied";
}

export interface UnavailableDetails extends ErrorDetails {
  permanent?: boolean;
  retryAfterMs?: number | undefined;
}

/** The server, or what it depends on, cannot be used now. */
export class BackendUnavailable extends MemosError {
  static override readonly code: string = "backend_unavailable";
  /** True if repeating helps only after somebody changed a setting, a key or the server. */
  readonly permanent: boolean;
  /** How long the server asks to wait. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, details: UnavailableDetails = {}) {
    super(message, details);
    this.permanent = details.permanent ?? false;
    this.retryAfterMs = details.retryAfterMs;
  }
}

/** No answer came within the time limit. */
export class BackendTimeout extends BackendUnavailable {
  static override readonly code = "backend_timeout";
}

/** The connection broke: a read may be repeated, of a change it is not known whether it was made. */
export class ConnectionLost extends BackendUnavailable {}

/** The key has reached one of its limits; it may continue after `retryAfterMs`. */
export class LimitReached extends MemosError {
  static override readonly code = "limit_reached";
  readonly retryAfterMs: number;

  constructor(message: string, retryAfterMs: number, details?: ErrorDetails) {
    super(message, details);
    this.retryAfterMs = retryAfterMs;
  }
}

/** An embedder or language model of the server gave no usable answer. */
export class ModelError extends MemosError {
  static override readonly code = "model_error";
}

/** Stored data is damaged, or was written in a form the server cannot read. */
export class IntegrityError extends MemosError {
  static override readonly code = "integrity_error";
}

// Something between client and server may limit requests without saying for how long.
const UNSAID_MS = 1_000;
// Statuses that another attempt may not meet.
const PASSING = new Set([408, 425, 500, 502, 503, 504]);
const LONGEST_TOLD = 2_000;
const CODES: ReadonlySet<string> = new Set(
  [
    InvalidInput,
    NotFound,
    Conflict,
    PermissionDenied,
    BackendUnavailable,
    BackendTimeout,
    LimitReached,
    ModelError,
    IntegrityError,
  ].map((kind) => kind.code),
);
// Of something between client and server, which does not say a code.
const CODE_OF_STATUS: Readonly<Record<number, string>> = {
  400: InvalidInput.code,
  401: PermissionDenied.code,
  403: PermissionDenied.code,
  404: NotFound.code,
  408: BackendTimeout.code,
  409: Conflict.code,
  413: InvalidInput.code,
  422: InvalidInput.code,
  429: LimitReached.code,
  504: BackendTimeout.code,
};

/** Return the error that an answer describes. */
export function errorOf(status: number, headers: Headers, body: string): MemosError {
  const told = toldBy(body);
  const message = told.message?.slice(0, LONGEST_TOLD) || `The server answered with status ${status}.`;
  const details: ErrorDetails = { status, requestId: headers.get("x-request-id") ?? undefined };
  const retryAfterMs = retryAfterOf(headers);
  const unavailable = { ...details, retryAfterMs, permanent: !PASSING.has(status) };
  const usual = CODE_OF_STATUS[status] ?? (status >= 500 ? BackendUnavailable.code : MemosError.code);
  switch (told.code !== undefined && CODES.has(told.code) ? told.code : usual) {
    case InvalidInput.code:
      return new InvalidInput(told.field || "request", message, details);
    case NotFound.code:
      return new NotFound(message, details);
    case Conflict.code:
      return new Conflict(message, details);
    case PermissionDenied.code:
      return new PermissionDenied(message, details);
    case LimitReached.code:
      return new LimitReached(message, retryAfterMs ?? UNSAID_MS, details);
    case ModelError.code:
      return new ModelError(message, details);
    case IntegrityError.code:
      return new IntegrityError(message, details);
    case BackendTimeout.code:
      return new BackendTimeout(message, unavailable);
    case BackendUnavailable.code:
      return new BackendUnavailable(message, unavailable);
    default:
      return new MemosError(message, details);
  }
}

interface Told {
  code?: string;
  message?: string;
  field?: string;
}

function toldBy(body: string): Told {
  try {
    const found: unknown = JSON.parse(body);
    const inner = isObject(found) && isObject(found["error"]) ? found["error"] : found;
    if (!isObject(inner)) return {};
    const told: Told = {};
    for (const name of ["code", "message", "field"] as const) {
      const value = inner[name];
      if (typeof value === "string") told[name] = value;
    }
    return told;
  } catch {
    return {};
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

/** Return how long the server asks to wait, undefined if it does not say. */
function retryAfterOf(headers: Headers): number | undefined {
  const asked = headers.get("retry-after")?.trim();
  if (!asked) return undefined;
  if (/^\d{1,9}$/.test(asked)) return Number(asked) * 1_000;
  // A date counts from the server's own clock, where it tells that.
  const until = Date.parse(asked);
  const now = Date.parse(headers.get("date") ?? "");
  return Number.isNaN(until) || Number.isNaN(now) ? undefined : Math.max(0, until - now);
}
