import { type Answer, Api, type Given, type Method, type Query, type Route, type Waiting } from "./api.js";
import { type CallOptions, type ClientOptions, Connection, type CreateOptions, idempotent } from "./connection.js";
import { ConnectionLost, InvalidInput } from "./errors.js";
import type * as types from "./types.js";

/** Fields of a body, without those that are parameters of their own. */
type Fields<Name extends keyof types.Schemas, Own extends PropertyKey = never> = Omit<types.Schemas[Name], Own>;
/** Fields of a query, with the filter as an object. */
type Filtered<Q> = Omit<Q, "filter"> & { filter?: types.Filter | null };
type Target = { cube?: string | null; user?: string | null };
type ForUser = { user?: string | null };
type Ids = string | readonly string[];

// A server writes and checks a whole file before it answers.
const SILENT_MS = 1_800_000;

/** A part of the client, named as the service of the server that answers it. */
class Part {
  protected readonly api: Api;

  constructor(api: Api) {
    this.api = api;
  }
}

/** Memories, one at a time. */
export class Memories extends Part {
  /** Store a text, a message or messages; they are durable and can be found when this returns. */
  add(
    messages: types.Messages,
    fields: Fields<"AddBody", "messages"> = {},
    options?: CreateOptions,
  ): Promise<types.AddReceipt> {
    return this.api.create("/memories", { body: { messages, ...fields } }, options);
  }

  /** Return the best memories for a question. */
  search(
    query: string,
    fields: Fields<"SearchBody", "query"> = {},
    options?: CallOptions,
  ): Promise<types.SearchResult> {
    return this.api.ask("/search", { body: { query, ...fields } }, options);
  }

  /** Correct what is remembered, in plain words. */
  feedback(
    text: string,
    fields: Fields<"FeedbackBody", "text"> = {},
    options?: CreateOptions,
  ): Promise<types.FeedbackReceipt> {
    return this.api.create("/feedback", { body: { text, ...fields } }, options);
  }

  /** Return one memory with its sources. */
  get(item: string, fields: Target = {}, options?: CallOptions): Promise<types.Item> {
    return this.api.request("get", "/memories/{item}", { path: { item }, query: fields }, options);
  }

  /** Return a cube's memories, by default the oldest first. */
  list(fields: Filtered<Query<"get", "/memories">> = {}, options?: CallOptions): Promise<types.Item[]> {
    return this.api.request("get", "/memories", { query: filterAsText(fields) }, options);
  }

  /** Count the memories that pass a filter by type, status, speaker and others. */
  facets(fields: Filtered<Query<"get", "/memories/facets">> = {}, options?: CallOptions): Promise<types.Facets> {
    return this.api.request("get", "/memories/facets", { query: filterAsText(fields) }, options);
  }

  /** Write a memory's next version; with `expected_version` only if nobody else did. */
  update(item: string, fields: Fields<"UpdateBody">, options?: CallOptions): Promise<types.Item> {
    return this.api.request("patch", "/memories/{item}", { path: { item }, body: fields }, options);
  }

  /** Delete memories; a rollback restores each. */
  async delete(items: Ids, fields: Fields<"DeleteBody", "item_ids"> = {}, options?: CallOptions): Promise<string[]> {
    const body = { item_ids: list(items), ...fields };
    return (await this.api.request("post", "/memories/delete", { body }, options)).item_ids;
  }

  /** Return every version of a memory, also of a deleted one. */
  history(item: string, fields: Target = {}, options?: CallOptions): Promise<types.Version[]> {
    return this.api.request("get", "/memories/{item}/history", { path: { item }, query: fields }, options);
  }

  /** Return the relations of a memory to older and newer ones, the surest first. */
  relations(item: string, fields: Target = {}, options?: CallOptions): Promise<types.Relation[]> {
    return this.api.request("get", "/memories/{item}/relations", { path: { item }, query: fields }, options);
  }

  /** Write a new version equal to an old one, by default the one before. */
  rollback(item: string, fields: Fields<"RollbackBody"> = {}, options?: CallOptions): Promise<types.Item> {
    return this.api.request("post", "/memories/{item}/rollback", { path: { item }, body: fields }, options);
  }

  /** Erase memories with everything derived from them. This cannot be undone. */
  erase(items: Ids, fields: Fields<"EraseBody", "item_ids"> = {}, options?: CallOptions): Promise<types.EraseReceipt> {
    return this.api.request("post", "/memories/erase", { body: { item_ids: list(items), ...fields } }, options);
  }

  /** Return what erasing the memories that pass a filter would remove. */
  previewErasure(fields: Fields<"ErasureBody"> = {}, options?: CallOptions): Promise<types.ErasurePreview> {
    return this.api.ask("/erasures/preview", { body: fields }, options);
  }

  /** Erase the memories that pass a filter, which must be `expected` many. This cannot be undone. */
  eraseMatching(fields: Fields<"EraseMatchingBody">, options?: CallOptions): Promise<types.EraseReceipt> {
    return this.api.request("post", "/erasures", { body: fields }, options);
  }

  /** Return the current receipt of an erasure. */
  eraseReceipt(receipt: string, fields: ForUser = {}, options?: CallOptions): Promise<types.EraseReceipt> {
    return this.api.request("get", "/erasures/{receipt}", { path: { receipt }, query: fields }, options);
  }
}

/** Memories with an id of the caller's, such as `users/ana/profile`. */
export class Records extends Part {
  /** Store a record, or write the next version of the one with this id; what changes nothing writes nothing. */
  put(
    id: string,
    memory: string,
    fields: Fields<"PutRecordBody", "memory"> = {},
    options?: CallOptions,
  ): Promise<types.Item> {
    const given = { query: { id }, body: { memory, ...fields } };
    return this.api.request("put", "/record", given, options, fields.expected_version == null);
  }

  /** Store or replace several records in one step, all or none. */
  putMany(records: types.Schemas["NewRecord"][], fields: Target = {}, options?: CallOptions): Promise<types.Item[]> {
    const repeatable = records.every((record) => record.expected_version == null);
    return this.api.request("post", "/records/put", { body: { records, ...fields } }, options, repeatable);
  }

  /** Return a record; with `refresh_ttl` its time to live begins anew. */
  get(id: string, fields: Omit<Query<"get", "/record">, "id"> = {}, options?: CallOptions): Promise<types.Item> {
    return this.api.request("get", "/record", { query: { id, ...fields } }, options);
  }

  /** Return those of these records that are there, in the order of `ids`. */
  getMany(ids: string[], fields: Fields<"GetRecordsBody", "ids"> = {}, options?: CallOptions): Promise<types.Item[]> {
    return this.api.ask("/records/get", { body: { ids, ...fields } }, options);
  }

  /** Delete a record; return the id of its memory, by which a rollback brings it back. */
  async delete(
    id: string,
    fields: Omit<Query<"delete", "/record">, "id"> = {},
    options?: CallOptions,
  ): Promise<string> {
    const found = await this.api.request("delete", "/record", { query: { id, ...fields } }, options);
    return found.item_ids[0] ?? "";
  }

  /** Delete those of these records that are there; return the ids of their memories. */
  async deleteMany(
    ids: string[],
    fields: Fields<"DeleteRecordsBody", "ids"> = {},
    options?: CallOptions,
  ): Promise<string[]> {
    return (await this.api.request("post", "/records/delete", { body: { ids, ...fields } }, options)).item_ids;
  }

  /** Return records in the order of their ids, those that begin with `prefix`. */
  list(fields: Filtered<Query<"get", "/records">> = {}, options?: CallOptions): Promise<types.Item[]> {
    return this.api.request("get", "/records", { query: filterAsText(fields) }, options);
  }

  /** Return the best records for a question. */
  search(
    query: string,
    fields: Fields<"SearchRecordsBody", "query"> = {},
    options?: CallOptions,
  ): Promise<types.SearchResult> {
    return this.api.ask("/records/search", { body: { query, ...fields } }, options);
  }

  /** Return what ids begin with, up to a `/`, with the number of records. */
  prefixes(fields: Query<"get", "/records/prefixes"> = {}, options?: CallOptions): Promise<types.RecordPrefix[]> {
    return this.api.request("get", "/records/prefixes", { query: fields }, options);
  }

  /** Return every version of a record, also of a deleted one. */
  history(id: string, fields: Target = {}, options?: CallOptions): Promise<types.Version[]> {
    return this.api.request("get", "/record/history", { query: { id, ...fields } }, options);
  }
}

/** Answers of the server's language model, made with memory. */
export class Chats extends Part {
  /** Answer a question with what is remembered, and remember the exchange. */
  answer(
    query: string,
    fields: Fields<"ChatBody", "query" | "stream"> = {},
    options?: CallOptions,
  ): Promise<types.Chat> {
    return this.api.request("post", "/chat", { body: { query, ...fields } }, options);
  }

  /** Yield an answer as it is written, and its result at the end; ended early, the exchange is not remembered. */
  async *stream(
    query: string,
    fields: Fields<"ChatBody", "query" | "stream"> = {},
    options?: CallOptions,
  ): AsyncGenerator<types.ChatPiece, void, undefined> {
    const body = { query, ...fields, stream: true };
    for await (const { event, value } of this.api.follow("post", "/chat", { body }, options)) {
      if (event === "text") yield { type: "text", text: (value as { text: string }).text };
      if (event !== "end") continue;
      yield { type: "end", result: value as types.Chat };
      return;
    }
    throw new ConnectionLost("The answer ended in the middle; the exchange is not remembered. Ask again.");
  }

  /** Return what a chat would send to the model. Nothing is sent or stored. */
  prompt(query: string, fields: Fields<"PromptBody", "query"> = {}, options?: CallOptions): Promise<types.ChatPrompt> {
    return this.api.ask("/chat/prompt", { body: { query, ...fields } }, options);
  }

  /** Return what is remembered for a question as a text for the prompt of a model of your own. */
  recall(
    query: string,
    fields: Fields<"RecallBody", "query"> = {},
    options?: CallOptions,
  ): Promise<types.RecalledText> {
    return this.api.ask("/chat/recall", { body: { query, ...fields } }, options);
  }

  /** Return the model that answers. */
  model(options?: CallOptions): Promise<types.ChatModel> {
    return this.api.request("get", "/chat/model", {}, options);
  }
}

/** What awaits a person: new memories, and corrections in doubt. */
export class Review extends Part {
  /** Return what awaits review in a cube and why, oldest first. */
  list(fields: Query<"get", "/review"> = {}, options?: CallOptions): Promise<types.PendingItem[]> {
    return this.api.request("get", "/review", { query: fields }, options);
  }

  /** Return how much awaits review in a cube, counted up to a limit. */
  counts(fields: Target = {}, options?: CallOptions): Promise<types.ReviewCounts> {
    return this.api.request("get", "/review/counts", { query: fields }, options);
  }

  /** Approve a memory, so that searches find it. */
  approve(item: string, fields: Fields<"ApproveBody"> = {}, options?: CallOptions): Promise<types.Item> {
    return this.api.request("post", "/review/{item}/approve", { path: { item }, body: fields }, options);
  }

  /** Approve a memory with a different text. */
  edit(
    item: string,
    text: string,
    fields: Fields<"EditBody", "text"> = {},
    options?: CallOptions,
  ): Promise<types.Item> {
    return this.api.request("post", "/review/{item}/edit", { path: { item }, body: { text, ...fields } }, options);
  }

  /** Delete a memory that awaits review; a rollback lets it wait again. */
  reject(item: string, fields: Target = {}, options?: CallOptions): Promise<types.Item> {
    return this.api.request("post", "/review/{item}/reject", { path: { item }, query: fields }, options);
  }

  /** Replace a memory by another that says the same; return the one that stays. */
  merge(
    item: string,
    into: string,
    fields: Fields<"memos__api__v1__review__MergeBody", "into"> = {},
    options?: CallOptions,
  ): Promise<types.Item> {
    return this.api.request("post", "/review/{item}/merge", { path: { item }, body: { into, ...fields } }, options);
  }

  /** Return what corrections in doubt suppose to be replaced, oldest first. */
  relations(fields: Query<"get", "/review/relations"> = {}, options?: CallOptions): Promise<types.Relation[]> {
    return this.api.request("get", "/review/relations", { query: fields }, options);
  }

  /** Decide whether a newer statement replaces an older one; return the newer one's relations. */
  decide(
    newer: string,
    older: string,
    fields: Fields<"DecideBody", "newer" | "older">,
    options?: CallOptions,
  ): Promise<types.Relation[]> {
    return this.api.request("post", "/review/relations/decide", { body: { newer, older, ...fields } }, options);
  }

  /** Take back a decision on two statements, so that it awaits another. */
  reopen(newer: string, older: string, fields: Target = {}, options?: CallOptions): Promise<types.Relation[]> {
    return this.api.request("post", "/review/relations/reopen", { body: { newer, older, ...fields } }, options);
  }
}

/** People and things that memories name, their relations, and names that are the same. */
export class Graph extends Part {
  /** Return the people and things with the most memories, and their relations. */
  view(fields: Query<"get", "/graph"> = {}, options?: CallOptions): Promise<types.GraphView> {
    return this.api.request("get", "/graph", { query: fields }, options);
  }

  /** Return people and things whose name contains `text`, those with the most memories first. */
  entities(fields: Query<"get", "/graph/entities"> = {}, options?: CallOptions): Promise<types.EntityPage> {
    return this.api.request("get", "/graph/entities", { query: fields }, options);
  }

  /** Return one person or thing, also by a name merged into it. */
  entity(name: string, fields: Target = {}, options?: CallOptions): Promise<types.Entity> {
    return this.api.request("get", "/graph/entity", { query: { name, ...fields } }, options);
  }

  /** Return the relations of a person or thing, each with the newest memory it is from. */
  neighbours(
    name: string,
    fields: Omit<Query<"get", "/graph/neighbours">, "name"> = {},
    options?: CallOptions,
  ): Promise<types.Neighbours> {
    return this.api.request("get", "/graph/neighbours", { query: { name, ...fields } }, options);
  }

  /** Return the names that were merged. */
  aliases(fields: Target = {}, options?: CallOptions): Promise<types.Alias[]> {
    return this.api.request("get", "/graph/aliases", { query: fields }, options);
  }

  /** Show a name under another; the id of the answer splits them again. */
  merge(name: string, into: string, fields: Target = {}, options?: CallOptions): Promise<types.Alias> {
    return this.api.request("post", "/graph/aliases", { body: { name, into, ...fields } }, options);
  }

  /** Take a merge back, by its id. */
  split(alias: string, fields: Target = {}, options?: CallOptions): Promise<types.Alias> {
    return this.api.request("delete", "/graph/aliases/{alias}", { path: { alias }, query: fields }, options);
  }
}

/** A cube on other days. A date without a time means its end, in the cube's time zone. */
export class Timeline extends Part {
  /** Return when the first and the last memory was told, and how much in each part of that time. */
  span(fields: Target = {}, options?: CallOptions): Promise<types.TimeSpan> {
    return this.api.request("get", "/timeline/span", { query: fields }, options);
  }

  /** Return what held at a time; with `stored` what the cube contained then. */
  day(fields: Query<"get", "/timeline/day"> = {}, options?: CallOptions): Promise<types.Day> {
    return this.api.request("get", "/timeline/day", { query: fields }, options);
  }

  /** Return what was added, replaced and ended between two times. */
  difference(
    since: string,
    fields: Omit<Query<"get", "/timeline/difference">, "since"> = {},
    options?: CallOptions,
  ): Promise<types.TimeDiff> {
    return this.api.request("get", "/timeline/difference", { query: { since, ...fields } }, options);
  }

  /** Return a person, a thing or a property such as `residence` over time. */
  life(
    name: string,
    fields: Omit<Query<"get", "/timeline/life">, "name"> = {},
    options?: CallOptions,
  ): Promise<types.Life> {
    return this.api.request("get", "/timeline/life", { query: { name, ...fields } }, options);
  }
}

/** The cubes of an installation. */
export class Cubes extends Part {
  /** Create an empty cube. */
  create(cube: string, fields: Fields<"CreateCubeBody", "id"> = {}, options?: CreateOptions): Promise<types.Cube> {
    return this.api.create("/cubes", { body: { id: cube, ...fields } }, options);
  }

  /** Return the cubes the key can read, by id. */
  list(fields: ForUser = {}, options?: CallOptions): Promise<types.Cube[]> {
    return this.api.request("get", "/cubes", { query: fields }, options);
  }

  get(cube: string, fields: ForUser = {}, options?: CallOptions): Promise<types.Cube> {
    return this.api.request("get", "/cubes/{cube}", { path: { cube }, query: fields }, options);
  }

  /** Change a cube's description, or whether personal data is masked in it. */
  change(cube: string, fields: Fields<"ChangeCubeBody">, options?: CallOptions): Promise<types.Cube> {
    return this.api.request("patch", "/cubes/{cube}", { path: { cube }, body: fields }, options);
  }

  /** Erase a cube with everything in it. This cannot be undone. */
  drop(cube: string, fields: ForUser = {}, options?: CallOptions): Promise<types.EraseReceipt> {
    return this.api.request("delete", "/cubes/{cube}", { path: { cube }, query: fields }, options);
  }

  /** Return a cube with its history as the bytes of a file; with a passphrase they are encrypted. */
  async dump(
    cube: string,
    fields: Query<"get", "/cubes/{cube}/dump"> & { passphrase?: string } = {},
    options?: CallOptions,
  ): Promise<ReadableStream<Uint8Array>> {
    const { passphrase, ...query } = fields;
    const how = { headers: sealed(passphrase), leastMs: SILENT_MS };
    return this.api.download("/cubes/{cube}/dump", { path: { cube }, query }, how, options);
  }

  /** Load a dump as a new cube, or with `merge` into an existing one; all of it or nothing. */
  async load(
    file: Blob,
    fields: Query<"post", "/cubes/load"> & { passphrase?: string } = {},
    options?: CallOptions,
  ): Promise<types.Loaded> {
    const { passphrase, ...query } = fields;
    const how = { query, headers: sealed(passphrase), leastMs: SILENT_MS, repeatable: false };
    return this.api.upload("/cubes/load", file, how, options);
  }

  /** Check a dump and describe it without loading it. */
  async inspect(file: Blob, fields: { passphrase?: string } = {}, options?: CallOptions): Promise<types.Dump> {
    const how = { headers: sealed(fields.passphrase), leastMs: SILENT_MS, repeatable: true };
    return this.api.upload("/cubes/inspect", file, how, options);
  }
}

/** Files that are read into memories. */
export class Documents extends Part {
  /** Keep a file and have it read in the background; the same bytes again are the same file. */
  async upload(
    file: File | { name: string; content: Blob },
    fields: Target = {},
    options?: CreateOptions,
  ): Promise<types.StoredFile> {
    const form = new FormData();
    form.append("file", file instanceof File ? file : file.content, file.name);
    for (const [name, value] of Object.entries(fields)) if (value) form.append(name, value);
    const how = { headers: idempotent(options), leastMs: SILENT_MS, repeatable: true };
    return this.api.upload("/documents/upload", form, how, options);
  }

  /** Return a cube's files, the newest first. */
  list(fields: Query<"get", "/documents"> = {}, options?: CallOptions): Promise<types.StoredFile[]> {
    return this.api.request("get", "/documents", { query: fields }, options);
  }

  get(file: string, fields: Target = {}, options?: CallOptions): Promise<types.StoredFile> {
    return this.api.request("get", "/documents/{file}", { path: { file }, query: fields }, options);
  }

  /** Wait until a file was read or given up, and return it. */
  wait(file: string, fields: Waiting = {}, options?: CallOptions): Promise<types.StoredFile> {
    return this.api.wait(
      (query, each) => this.api.request("get", "/documents/{file}/wait", { path: { file }, query }, each),
      (found) => found.state !== "processing",
      `file ${file}`,
      fields,
      options,
    );
  }

  /** Return a file's original bytes, or its extracted text if something was masked. */
  content(file: string, fields: Target = {}, options?: CallOptions): Promise<ReadableStream<Uint8Array>> {
    return this.api.download("/documents/{file}/content", { path: { file }, query: fields }, {}, options);
  }

  /** Return a file as it was read. */
  async markdown(file: string, fields: Target = {}, options?: CallOptions): Promise<string> {
    return (await this.api.request("get", "/documents/{file}/markdown", { path: { file }, query: fields }, options))
      .text;
  }

  /** Return a file's passages in order. */
  passages(
    file: string,
    fields: Query<"get", "/documents/{file}/passages"> = {},
    options?: CallOptions,
  ): Promise<types.DocumentPassage[]> {
    return this.api.request("get", "/documents/{file}/passages", { path: { file }, query: fields }, options);
  }

  /** Take a file out of sight with all that was made of it. */
  delete(file: string, fields: Target = {}, options?: CallOptions): Promise<types.StoredFile> {
    return this.api.request("delete", "/documents/{file}", { path: { file }, query: fields }, options);
  }

  /** Erase a file, its passages and all that was made of them. This cannot be undone. */
  erase(file: string, fields: Target = {}, options?: CallOptions): Promise<types.EraseReceipt> {
    return this.api.request("post", "/documents/{file}/erase", { path: { file }, query: fields }, options);
  }
}

/** Imports of chat exports. */
export class Imports extends Part {
  /** Store the messages of a chat export; importing it again adds only what is missing. */
  run(
    file: Blob,
    fields: Omit<Query<"post", "/imports">, "progress"> = {},
    options?: CallOptions,
  ): Promise<types.ImportSummary> {
    const how = { query: { ...named(file), ...fields }, leastMs: SILENT_MS, repeatable: true };
    return this.api.upload("/imports", file, how, options);
  }

  /** Return what the first records of a chat export would store. */
  preview(
    file: Blob,
    fields: Query<"post", "/imports/preview"> = {},
    options?: CallOptions,
  ): Promise<types.ImportPreview> {
    const how = { query: { ...named(file), ...fields }, leastMs: SILENT_MS, repeatable: true };
    return this.api.upload("/imports/preview", file, how, options);
  }
}

/** Roles on cubes. */
export class Sharing extends Part {
  /** Give somebody, or `*` (everyone), a role on a cube: `reader`, `editor` or `owner`. */
  grant(
    cube: string,
    identity: string,
    role = "reader",
    fields: ForUser = {},
    options?: CallOptions,
  ): Promise<types.Grant> {
    const given = { path: { cube, identity }, query: fields, body: { role } };
    return this.api.request("put", "/cubes/{cube}/grants/{identity}", given, options);
  }

  /** Take a role back; return false if there was none. */
  async revoke(cube: string, identity: string, fields: ForUser = {}, options?: CallOptions): Promise<boolean> {
    const given = { path: { cube, identity }, query: fields };
    return (await this.api.request("delete", "/cubes/{cube}/grants/{identity}", given, options)).revoked;
  }

  /** Make somebody else the owner of a cube. */
  async transfer(cube: string, owner: string, fields: ForUser = {}, options?: CallOptions): Promise<void> {
    await this.api.request("put", "/cubes/{cube}/owner", { path: { cube }, query: fields, body: { owner } }, options);
  }

  /** Return the roles given on a cube. */
  grants(cube: string, fields: ForUser = {}, options?: CallOptions): Promise<types.Grant[]> {
    return this.api.request("get", "/cubes/{cube}/grants", { path: { cube }, query: fields }, options);
  }
}

/** Users, agents and groups. */
export class Users extends Part {
  /** Return the identity of the client's key and its rights, or those it has in a cube. */
  me(fields: Query<"get", "/me"> = {}, options?: CallOptions): Promise<types.Me> {
    return this.api.request("get", "/me", { query: fields }, options);
  }

  /** Create a user, agent or group. Admins only. */
  create(id: string, fields: Fields<"CreateUserBody", "id"> = {}, options?: CreateOptions): Promise<types.Identity> {
    return this.api.create("/users", { body: { id, ...fields } }, options);
  }

  /** Return users, agents and groups by id. Admins only. */
  list(fields: Query<"get", "/users"> = {}, options?: CallOptions): Promise<types.Identity[]> {
    return this.api.request("get", "/users", { query: fields }, options);
  }

  get(identity: string, options?: CallOptions): Promise<types.Identity> {
    return this.api.request("get", "/users/{identity}", { path: { identity } }, options);
  }

  /** Enable or disable an identity. Admins only. */
  enable(identity: string, enabled = true, options?: CallOptions): Promise<types.Identity> {
    return this.api.request("patch", "/users/{identity}", { path: { identity }, body: { enabled } }, options);
  }

  /** End all access of a user or agent who leaves. Admins only. */
  offboard(identity: string, fields: Fields<"OffboardBody"> = {}, options?: CallOptions): Promise<types.Offboarding> {
    return this.api.request("post", "/users/{identity}/offboard", { path: { identity }, body: fields }, options);
  }

  /** Return the members of a group by id. Admins only. */
  async members(group: string, options?: CallOptions): Promise<string[]> {
    return (await this.api.request("get", "/groups/{group}/members", { path: { group } }, options)).members;
  }

  /** Add a user or agent to a group. Admins only. */
  async join(group: string, member: string, options?: CallOptions): Promise<void> {
    await this.api.request("put", "/groups/{group}/members/{member}", { path: { group, member } }, options);
  }

  /** Remove a member from a group. Admins only. */
  async leave(group: string, member: string, options?: CallOptions): Promise<void> {
    await this.api.request("delete", "/groups/{group}/members/{member}", { path: { group, member } }, options);
  }
}

/** Keys of users and agents. */
export class Keys extends Part {
  /** Create a key, for oneself without `identity`. Its secret is in this answer only, so nothing is sent twice. */
  create(name: string, fields: Fields<"CreateKeyBody", "name"> = {}, options?: CallOptions): Promise<types.NewKey> {
    return this.api.request("post", "/keys", { body: { name, ...fields } }, options);
  }

  /** Return the keys of an identity, without their secrets. */
  list(fields: Query<"get", "/keys"> = {}, options?: CallOptions): Promise<types.ApiKey[]> {
    return this.api.request("get", "/keys", { query: fields }, options);
  }

  /** Return what a key used up today, UTC, where it is limited. */
  usage(key: string, fields: ForUser = {}, options?: CallOptions): Promise<types.KeyUsage> {
    return this.api.request("get", "/keys/{key}/usage", { path: { key }, query: fields }, options);
  }

  /** Replace a key's limits. Admins only. */
  limit(
    key: string,
    limits: types.Schemas["LimitsBody"],
    fields: ForUser = {},
    options?: CallOptions,
  ): Promise<types.ApiKey> {
    return this.api.request("put", "/keys/{key}/limits", { path: { key }, body: { limits, ...fields } }, options);
  }

  /** Create a key in place of another, which goes on working for `overlap_s` seconds. */
  rotate(key: string, fields: Fields<"RotateKeyBody"> = {}, options?: CallOptions): Promise<types.NewKey> {
    return this.api.request("post", "/keys/{key}/rotate", { path: { key }, body: fields }, options);
  }

  revoke(key: string, fields: ForUser = {}, options?: CallOptions): Promise<types.ApiKey> {
    return this.api.request("delete", "/keys/{key}", { path: { key }, query: fields }, options);
  }
}

/** Background tasks. */
export class Tasks extends Part {
  /** Return tasks, newest first. */
  list(fields: Query<"get", "/tasks"> = {}, options?: CallOptions): Promise<types.Task[]> {
    return this.api.request("get", "/tasks", { query: fields }, options);
  }

  get(task: string, fields: ForUser = {}, options?: CallOptions): Promise<types.Task> {
    return this.api.request("get", "/tasks/{task}", { path: { task }, query: fields }, options);
  }

  /** Queue a failed, dead or cancelled task again. */
  retry(task: string, fields: ForUser = {}, options?: CallOptions): Promise<types.Task> {
    return this.api.request("post", "/tasks/{task}/retry", { path: { task }, query: fields }, options);
  }

  /** Cancel a task that has not ended. */
  cancel(task: string, fields: ForUser = {}, options?: CallOptions): Promise<types.Task> {
    return this.api.request("post", "/tasks/{task}/cancel", { path: { task }, query: fields }, options);
  }

  /** Wait until a task has ended, and return it. */
  wait(task: string, fields: Waiting = {}, options?: CallOptions): Promise<types.Task> {
    return this.api.wait(
      (query, each) => this.api.request("get", "/tasks/{task}/wait", { path: { task }, query }, each),
      (found) => found.ended,
      `task ${task}`,
      fields,
      options,
    );
  }

  /** Yield a task now and on every change until it has ended, for at most `timeout_s`, 300 by default. */
  async *follow(
    task: string,
    fields: Query<"get", "/tasks/{task}/stream"> = {},
    options?: CallOptions,
  ): AsyncGenerator<types.Task, void, undefined> {
    const given = { path: { task }, query: fields };
    for await (const { event, value } of this.api.follow("get", "/tasks/{task}/stream", given, options)) {
      if (event === "task") yield value as types.Task;
    }
  }
}

/** The event log of cubes. */
export class Events extends Part {
  /** Return a cube's events, oldest first or, with `newest`, newest first. */
  list(fields: Query<"get", "/events"> = {}, options?: CallOptions): Promise<types.CubeEvent[]> {
    return this.api.request("get", "/events", { query: fields }, options);
  }

  /** Yield events as they are committed, for at most `timeout_s`, 300 by default; go on with `after`, the last `seq`. */
  async *follow(
    fields: Query<"get", "/events/stream"> = {},
    options?: CallOptions,
  ): AsyncGenerator<types.CubeEvent, void, undefined> {
    for await (const { value } of this.api.follow("get", "/events/stream", { query: fields }, options)) {
      yield value as types.CubeEvent;
    }
  }
}

/**
 * A client of a hippocube server, for Node, Bun, Deno and browsers.
 *
 * Fields of requests and answers have the names of the HTTP interface; `user` is the user to act for, by default the
 * key's own, and `cube` defaults to the cube of that user. Each method takes `{ signal, timeoutMs, retries }` last.
 *
 * @example
 * const client = new MemOSClient({ baseUrl: "http://127.0.0.1:8765", apiKey: "mst_…" });
 * await client.memories.add("I moved to Lyon.", { user: "ana" });
 * const found = await client.memories.search("Where does Ana live?", { user: "ana" });
 */
export class MemOSClient {
  readonly memories: Memories;
  readonly records: Records;
  readonly chat: Chats;
  readonly review: Review;
  readonly graph: Graph;
  readonly timeline: Timeline;
  readonly cubes: Cubes;
  readonly documents: Documents;
  readonly imports: Imports;
  readonly sharing: Sharing;
  readonly users: Users;
  readonly keys: Keys;
  readonly tasks: Tasks;
  readonly events: Events;
  readonly #api: Api;

  constructor(options: ClientOptions = {}) {
    const api = new Api(new Connection(options));
    this.#api = api;
    this.memories = new Memories(api);
    this.records = new Records(api);
    this.chat = new Chats(api);
    this.review = new Review(api);
    this.graph = new Graph(api);
    this.timeline = new Timeline(api);
    this.cubes = new Cubes(api);
    this.documents = new Documents(api);
    this.imports = new Imports(api);
    this.sharing = new Sharing(api);
    this.users = new Users(api);
    this.keys = new Keys(api);
    this.tasks = new Tasks(api);
    this.events = new Events(api);
  }

  /** Return what a prompt begins with: pins, orders, wishes, the topic, facts in use. */
  context(fields: Query<"get", "/working-memory"> = {}, options?: CallOptions): Promise<types.WorkingMemory> {
    return this.#api.request("get", "/working-memory", { query: fields }, options);
  }

  /** Send any other request of `/api/v1`, typed by its OpenAPI document; only a `get` is ever repeated. */
  request<M extends Method, P extends Route<M>>(
    method: M,
    path: P,
    given: Given<M, P>,
    options?: CallOptions,
  ): Promise<Answer<M, P>> {
    return this.#api.request(method, path, given, options);
  }
}

function list(items: Ids): string[] {
  return typeof items === "string" ? [items] : [...items];
}

function filterAsText<Q extends { filter?: types.Filter | null }>(fields: Q): Omit<Q, "filter"> & { filter?: string } {
  const { filter, ...others } = fields;
  return filter ? { ...others, filter: JSON.stringify(filter) } : others;
}

function named(file: Blob): { name?: string } {
  return file instanceof File && file.name ? { name: file.name } : {};
}

/** Return the header of a passphrase, whose value has no line ends and loses spaces around it. */
function sealed(passphrase: string | undefined): Record<string, string> {
  if (passphrase === undefined) return {};
  if (!/^(?! )[^\p{C}]{1,1024}(?<! )$/u.test(passphrase)) {
    throw new InvalidInput("passphrase", "must be 1 to 1,024 printable characters, without a space at either end");
  }
  // Values of headers are bytes, written as characters.
  return { "X-Memos-Passphrase": String.fromCharCode(...new TextEncoder().encode(passphrase)) };
}
