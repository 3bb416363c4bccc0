export type { Answer, Given, Method, Query, Route, Waiting } from "./api.js";
export {
  type Chats,
  type Cubes,
  type Documents,
  type Events,
  type Graph,
  type Imports,
  type Keys,
  MemOSClient,
  type Memories,
  type Records,
  type Review,
  type Sharing,
  type Tasks,
  type Timeline,
  type Users,
} from "./client.js";
export type { CallOptions, ClientOptions, CreateOptions } from "./connection.js";
export {
  BackendTimeout,
  BackendUnavailable,
  Conflict,
  ConnectionLost,
  IntegrityError,
  InvalidInput,
  LimitReached,
  MemosError,
  ModelError,
  NotFound,
  PermissionDenied,
} from "./errors.js";
export type { paths } from "./openapi.js";
export type * from "./types.js";
