// Learn something, correct it, and see what was true when: node quickstart.mjs
// Needs a server (`memos serve`), and its key in MEMOS_API_KEY.
import { MemOSClient } from "hippocube-client";

const client = new MemOSClient();
const user = `visitor-${crypto.randomUUID().slice(0, 8)}`;
await client.users.create(user);

await client.memories.add(
  [
    { role: "user", content: "I live in Oslo and keep bees.", chat_time: "2025-03-01T10:00:00Z" },
    { role: "assistant", content: "How many hives do you have?", chat_time: "2025-03-01T10:01:00Z" },
  ],
  { user, conversation: "first" },
);
const correction = await client.memories.feedback("No, I moved to Lyon.", { user });
console.log("feedback:", correction.outcome);

const now = await client.memories.search("Where do I live?", { user, top_k: 1 });
console.log("now:", now.hits[0]?.item.memory);
const then = await client.timeline.day({ user, at: "2025-06-01" });
console.log("in June 2025:", then.memories[0]?.item.memory);

const recalled = await client.chat.recall("Where do I live, and what do I keep?", { user });
console.log(recalled.text);
