/** What every runtime must do, with nothing but web standards; returns what it saw. */
export async function smoke({ MemOSClient, NotFound }, options) {
  const client = new MemOSClient(options);
  const seen = [];
  const { item_ids } = await client.memories.add("I keep bees in Lyon.");
  const [hit] = (await client.memories.search("Where are the bees?")).hits;
  seen.push(hit.item.memory);
  const id = "00000000-0000-0000-0000-000000000000";
  const missing = await client.memories.get(id).catch((error) => error);
  seen.push(missing instanceof NotFound, typeof missing.requestId);
  for await (const event of client.events.follow({ after: 0, timeout_s: 60 })) {
    seen.push(event.kind);
    break;
  }
  let text = "";
  for await (const piece of client.chat.stream("Where are the bees?", { store: false })) {
    if (piece.type === "text") text += piece.text;
  }
  seen.push(text);
  const stored = await client.documents.upload({ name: "bees.md", content: new Blob(["# Bees\n\nThey fly."]) });
  seen.push((await client.documents.wait(stored.id)).state);
  const bytes = await new Response(await client.documents.content(stored.id)).text();
  seen.push(bytes.split("\n")[0]);
  const stop = AbortSignal.abort(new Error("enough"));
  seen.push(await client.users.me({}, { signal: stop }).catch((error) => error.message));
  seen.push((await client.memories.delete(item_ids)).length);
  return seen;
}
