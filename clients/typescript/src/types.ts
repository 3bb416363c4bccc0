import type { components } from "./openapi.js";

/** Every type of the OpenAPI document, by its name there. */
export type Schemas = components["schemas"];

/** A part of a message with several. */
export type ContentPart =
  | { type: "text"; text: string }
  | { type: "image_url"; image_url: { url: string } }
  | { type: string; [field: string]: unknown };

/** A message to remember. */
export interface Message {
  role: "user" | "assistant" | "system" | "tool";
  content: string | readonly ContentPart[] | null;
  /** Who says so, where it is not just the role. */
  name?: string;
  /** When it was said: ISO 8601, or milliseconds since 1970. */
  chat_time?: string | number;
  message_id?: string;
  tool_calls?: readonly { id: string; type: "function"; function: { name: string; arguments: string } }[];
  tool_call_id?: string;
  /** What is untrusted is fenced as data wherever a model reads it. */
  trust?: "trusted" | "untrusted";
}

/** A text, a message, or several. */
export type Messages = string | Message | readonly (string | Message)[];

/** A condition on the fields of a memory, as in `{ tags: { contains: "work" } }`. */
export interface Filter {
  readonly [field: string]: unknown;
}

/** A piece of a streamed answer: texts, and the result at the end. */
export type ChatPiece = { type: "text"; text: string } | { type: "end"; result: Chat };

export type AddReceipt = Schemas["AddReceipt"];
export type Alias = Schemas["Alias"];
export type ApiKey = Schemas["Key"];
export type Offboarding = Schemas["Offboarding"];
export type Chat = Schemas["Chat"];
export type ChatModel = Schemas["ChatModel"];
export type ChatPrompt = Schemas["ChatPrompt"];
export type Cube = Schemas["Cube"];
export type CubeEvent = Schemas["Event"];
export type Day = Schemas["Day"];
export type DocumentPassage = Schemas["DocumentPassage"];
export type Dump = Schemas["Dump"];
export type Entity = Schemas["Entity"];
export type EntityPage = Schemas["EntityPage"];
export type ErasePreview = Schemas["ErasePreview"];
export type EraseReceipt = Schemas["EraseReceipt"];
export type ErasurePreview = Schemas["ErasurePreview"];
export type Facets = Schemas["Facets"];
export type FeedbackReceipt = Schemas["FeedbackReceipt"];
export type Grant = Schemas["Grant"];
export type GraphView = Schemas["GraphView"];
export type Hit = Schemas["Hit"];
export type Identity = Schemas["Identity"];
export type ImportPreview = Schemas["ImportPreview"];
export type ImportSummary = Schemas["ImportSummary"];
export type Item = Schemas["Item"];
export type KeyUsage = Schemas["KeyUsage"];
export type Life = Schemas["Life"];
export type Loaded = Schemas["Loaded"];
export type Me = Schemas["Me"];
export type Neighbours = Schemas["Neighbours"];
export type NewKey = Schemas["NewKey"];
export type PendingItem = Schemas["PendingItem"];
export type RecalledText = Schemas["RecalledText"];
export type RecordPrefix = Schemas["RecordPrefix"];
export type Relation = Schemas["Relation"];
export type ReviewCounts = Schemas["ReviewCounts"];
export type SearchResult = Schemas["SearchResult"];
export type StoredFile = Schemas["StoredFile"];
export type Task = Schemas["Task"];
export type TimeDiff = Schemas["TimeDiff"];
export type TimeSpan = Schemas["TimeSpan"];
export type Version = Schemas["Version"];
export type WorkingMemory = Schemas["WorkingMemory"];
