/** The client with a real server, whose address and admin's key are in MEMOS_BASE_URL and MEMOS_API_KEY. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { Conflict, InvalidInput, MemOSClient, NotFound, PermissionDenied } from "hippocube-client";

const admin = new MemOSClient();

/** Create a user with a client of its own. */
async function newUser() {
  const { id } = await admin.users.create(`u-${randomUUID()}`);
  const { secret } = await admin.keys.create("test", { identity: id });
  return { id, client: new MemOSClient({ apiKey: secret ?? "" }) };
}

async function all<T>(values: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const value of values) found.push(value);
  return found;
}

test("a memory is added, found, changed, rolled back, deleted and erased", async () => {
  const { client } = await newUser();
  const added = await client.memories.add([{ role: "user", content: "I live in Oslo." }], {
    tags: ["home"],
    info: { n: 1 },
  });
  const [item = ""] = added.item_ids;
  const found = await client.memories.search("Where do I live?", { token_budget: 500 });
  assert.equal(found.hits[0]?.item.id, item);
  assert.match(found.context, /I live in Oslo\./);
  assert.equal((await client.memories.update(item, { memory: "I live in Bergen.", expected_version: 1 })).version, 2);
  await assert.rejects(client.memories.update(item, { memory: "x", expected_version: 1 }), Conflict);
  const versions = await client.memories.history(item);
  assert.deepEqual(
    versions.map((version) => version.after?.memory),
    ["I live in Oslo.", "I live in Bergen."],
  );
  assert.equal((await client.memories.rollback(item)).memory, "I live in Oslo.");
  const filter = { tags: { contains: "home" }, "info.n": { gte: 1 } };
  assert.equal((await client.memories.list({ filter })).length, 1);
  assert.equal((await client.memories.list({ filter: { tags: { contains: "work" } } })).length, 0);
  assert(
    (await client.memories.facets({ by: ["tag"] })).facets.some((facet) =>
      facet.values.some((each) => each.value === "home"),
    ),
  );
  assert.deepEqual(await client.memories.delete(item), [item]);
  assert.equal((await client.memories.rollback(item)).memory, "I live in Oslo.");
  const preview = await client.memories.previewErasure({ filter });
  assert.equal(preview.items, 1);
  const receipt = await client.memories.eraseMatching({ filter, expected: 1, wait: false });
  assert.equal((await client.memories.eraseReceipt(receipt.id)).item_ids.length, 1);
  await assert.rejects(client.memories.get(item), NotFound);
});

test("a key of the caller's makes an add happen once", async () => {
  const { client } = await newUser();
  const twice = [1, 2].map(() => client.memories.add("I keep bees.", {}, { idempotencyKey: "once" }));
  const [first, second] = await Promise.all(twice);
  assert.deepEqual(first?.item_ids, second?.item_ids);
  assert.equal((await client.memories.list()).length, 1);
});

test("records have ids of the caller's, nested data and a time to live", async () => {
  const { client } = await newUser();
  const id = "users/ana/likes?"; // any text
  const put = await client.records.put(id, "Ana likes tea.", { info: { hot: { tea: true } }, ttl_s: 3_600 });
  assert.equal(put.version, 1);
  assert.equal((await client.records.put(id, "Ana likes coffee.", { expected_version: 1 })).version, 2);
  await assert.rejects(client.records.put(id, "x", { expected_version: 1 }), Conflict);
  await client.records.putMany([
    { id: "users/ben", memory: "Ben likes milk." },
    { id: "teams/a", memory: "A team." },
  ]);
  assert.equal((await client.records.get(id)).memory, "Ana likes coffee.");
  assert.equal((await client.records.getMany([id, "nobody"])).length, 1);
  assert.equal((await client.records.list({ prefix: "users/" })).length, 2);
  assert.equal((await client.records.prefixes({ depth: 1 })).length, 2);
  const found = await client.records.search("Who likes milk?", { prefix: "users/", top_k: 1 });
  assert.equal(found.hits[0]?.item.memory, "Ben likes milk.");
  assert.equal((await client.records.history(id)).length, 2);
  assert.equal(await client.records.delete(id), put.id);
  await assert.rejects(client.records.get(id), NotFound);
  assert.equal((await client.records.deleteMany(["users/ben", "nobody"])).length, 1);
});

test("feedback corrects, and what held before is told", async () => {
  const { client } = await newUser();
  await client.memories.add({ role: "user", content: "I live in Oslo.", chat_time: "2024-01-01T10:00:00Z" });
  const receipt = await client.memories.feedback("No, I moved to Lyon.");
  assert(receipt.item_id);
  const before = await client.timeline.day({ at: "2024-06-01" });
  assert.match(JSON.stringify(before), /Oslo/);
  assert((await client.timeline.span()).first);
  assert.match(JSON.stringify(await client.timeline.life("residence")), /Oslo/);
  assert.match(JSON.stringify(await client.timeline.difference("2024-06-01")), /Oslo/);
  assert.deepEqual(await client.review.list(), []);
  assert(Array.isArray(await client.review.relations()));
});

test("nobody sees what is another user's, unless it is shared", async () => {
  const [ana, ben] = [await newUser(), await newUser()];
  const [item = ""] = (await ana.client.memories.add("My secret is a blue door.")).item_ids;
  assert.deepEqual((await ben.client.memories.search("What is the secret?")).hits, []);
  await assert.rejects(ben.client.memories.get(item), NotFound);
  await assert.rejects(ben.client.memories.search("secret", { cubes: [ana.id] }), NotFound);
  await assert.rejects(ben.client.users.list(), PermissionDenied);
  await ana.client.sharing.grant(ana.id, ben.id);
  assert.equal((await ben.client.memories.search("secret", { cubes: [ana.id] })).hits[0]?.item.id, item);
  assert.equal((await ana.client.sharing.grants(ana.id))[0]?.identity, ben.id);
  assert.equal(await ana.client.sharing.revoke(ana.id, ben.id), true);
  assert.equal(await ana.client.sharing.revoke(ana.id, ben.id), false);
  assert.equal((await admin.memories.search("secret", { user: ana.id })).hits[0]?.item.id, item);
});

test("users, groups and keys", async () => {
  const { id, client } = await newUser();
  assert.equal((await client.users.me()).identity.id, id);
  const group = (await admin.users.create(`g-${randomUUID()}`, { kind: "group" })).id;
  await admin.users.join(group, id);
  assert.deepEqual(await admin.users.members(group), [id]);
  await admin.users.leave(group, id);
  assert.deepEqual(await admin.users.members(group), []);
  const { key, secret } = await client.keys.create("second", { rights: ["read"] });
  const reader = new MemOSClient({ apiKey: secret ?? "" });
  await assert.rejects(reader.memories.add("Hello."), PermissionDenied);
  await admin.keys.limit(key.id, { items_per_day: 5 });
  assert.equal((await client.keys.usage(key.id)).limits.items_per_day, 5);
  await client.keys.revoke(key.id);
  await assert.rejects(reader.users.me(), PermissionDenied);
  await admin.users.enable(id, false);
  await assert.rejects(client.users.me(), PermissionDenied);
});

test("people and things are found, merged and split", async () => {
  const { client } = await newUser();
  await client.memories.add(["Noor works with Bea at Acme.", "Beatrice called Noor."]);
  const names = (await client.graph.entities()).entities.map((entity) => entity.name);
  assert(names.includes("Noor") && names.includes("Beatrice"), names.join());
  const alias = await client.graph.merge("Bea", "Beatrice");
  assert.equal((await client.graph.aliases()).length, 1);
  assert.equal((await client.graph.entity("Bea")).name, "Beatrice");
  await client.graph.split(alias.id);
  assert((await client.graph.view()).entities.length > 0);
  assert(await client.graph.neighbours("Noor"));
});

test("cubes are made, dumped, inspected and loaded", async () => {
  const { client } = await newUser();
  const cube = `c-${randomUUID()}`;
  await client.cubes.create(cube, { description: "Releases" });
  await assert.rejects(client.cubes.create(cube), Conflict);
  await client.memories.add("The release is on Friday.", { cube });
  await client.cubes.change(cube, { description: "All releases" });
  assert.equal((await client.cubes.get(cube)).description, "All releases");
  const passphrase = "grün und blau"; // not ASCII
  const dump = await new Response(await client.cubes.dump(cube, { passphrase })).blob();
  assert.equal((await client.cubes.inspect(dump, { passphrase })).cube, cube);
  await assert.rejects(client.cubes.inspect(dump), InvalidInput);
  const loaded = await client.cubes.load(dump, { cube: `${cube}-copy`, passphrase });
  assert.equal(loaded.cube, `${cube}-copy`);
  assert.equal((await client.memories.search("release", { cubes: [`${cube}-copy`] })).hits.length, 1);
  assert.equal((await client.cubes.list()).filter((each) => each.id.startsWith(cube)).length, 2);
});

test("a document is read in the background, and its tasks and events are followed", async () => {
  const { id, client } = await newUser();
  const stored = await client.documents.upload(new File(["# Bees\n\nThe hive stands in the garden."], "bees.md"));
  assert.equal((await client.documents.wait(stored.id)).state, "available");
  assert.match(await client.documents.markdown(stored.id), /hive/);
  assert.match(await new Response(await client.documents.content(stored.id)).text(), /^# Bees/);
  assert.equal((await client.documents.passages(stored.id)).length, 1);
  assert.equal((await client.documents.list())[0]?.id, stored.id);
  assert.equal((await client.memories.search("Where is the hive?")).hits.length, 1);
  const [task] = await client.tasks.list({ about: stored.id });
  assert(task);
  assert.equal((await client.tasks.wait(task.id)).state, "done");
  assert.deepEqual(
    (await all(client.tasks.follow(task.id))).map((each) => each.state),
    ["done"],
  );
  const [first] = await client.events.list({ limit: 1 });
  assert.equal(first?.cube, id);
  for await (const event of client.events.follow({ after: 0, timeout_s: 60 })) {
    assert.equal(event.seq, first?.seq);
    break;
  }
  assert.equal((await client.documents.delete(stored.id)).state, "deleted");
});

test("a chat export is previewed and imported once", async () => {
  const { client } = await newUser();
  const lines = [
    { role: "user", content: "I keep bees." },
    { role: "assistant", content: "How many?" },
  ];
  const file = new File([lines.map((line) => JSON.stringify(line)).join("\n")], "talk.jsonl");
  assert.equal((await client.imports.preview(file)).messages, 2);
  assert.equal((await client.imports.run(file)).added, 2);
  assert.equal((await client.imports.run(file)).added, 0);
});

test("a chat is answered at once and as a stream, with what it cites", async () => {
  const { client } = await newUser();
  await client.memories.add("I live in Lyon.");
  assert.match((await client.chat.recall("Where do I live?")).text, /<memory>.*I live in Lyon\..*<\/memory>/s);
  assert.equal((await client.chat.prompt("Where do I live?")).model, "scripted");
  assert.equal((await client.chat.model()).model, "scripted");
  const answer = await client.chat.answer("Where do I live?", { store: false });
  assert.equal(answer.text, "You live in Lyon.");
  assert.equal(answer.cited[0]?.memory, "I live in Lyon.");
  const pieces = await all(client.chat.stream("Where do I live?", { conversation: "talk" }));
  assert.equal(pieces.map((piece) => (piece.type === "text" ? piece.text : "")).join(""), "You live in Lyon.");
  const end = pieces.at(-1);
  assert(end?.type === "end");
  assert.equal(end.result.receipt?.item_ids.length, 2);
});

test("every other route is there by its path, such as pins, which prompts begin with", async () => {
  const { id } = await newUser();
  const profile = await admin.request("get", "/profile", { query: { user: id } });
  assert(profile);
  const { item_ids } = await admin.memories.add("I keep bees.", { user: id });
  const tagged = await admin.request("post", "/memories/tag", { body: { user: id, item_ids, add: ["bees"] } });
  assert.deepEqual(tagged.item_ids, item_ids);
  await admin.request("put", "/memories/{item}/pin", {
    path: { item: item_ids[0] ?? "" },
    query: { user: id, cube: id },
  });
  assert.match((await admin.context({ user: id, max_tokens: 500 })).text, /I keep bees/);
});

test("errors say what is wrong, and by which request", async () => {
  const wrong = await admin.memories.search("x", { top_k: -1 }).catch((error: unknown) => error);
  assert(wrong instanceof InvalidInput);
  assert.equal(wrong.field, "top_k");
  assert.equal(wrong.status, 400);
  assert(wrong.requestId);
  const stranger = new MemOSClient({ apiKey: "mst_unknown" });
  await assert.rejects(stranger.users.me(), PermissionDenied);
});
