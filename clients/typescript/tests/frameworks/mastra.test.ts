/** The processor and the tools with real Mastra agents and a scripted model. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { Agent } from "@mastra/core/agent";
import { MockMemory } from "@mastra/core/memory";
import { MASTRA_RESOURCE_ID_KEY, RequestContext } from "@mastra/core/request-context";
import { MemOSClient } from "hippocube-client";
import { type MemoryOptions, memoryProcessor, memoryTools } from "hippocube-client/mastra";
import { type Prompt, type Reply, scripted, unanswering, whereLives } from "./scripted.ts";

const client = new MemOSClient();
const silent = await unanswering();
after(silent.close);

/** Return an agent with memory; what it is warned of, and the prompts its model got. */
function agentOf(reply: (prompt: Prompt) => Reply, options: Partial<MemoryOptions> = {}, threads?: MockMemory) {
  const warnings: string[] = [];
  const { v6: model, prompts } = scripted(reply);
  const given = { client, timeoutMs: 60_000, onWarning: (message: string) => warnings.push(message), ...options };
  const memory = memoryProcessor(given);
  const agent = new Agent({
    id: "agent",
    name: "agent",
    instructions: "Be brief.",
    model,
    inputProcessors: [memory],
    outputProcessors: [memory],
    tools: memoryTools(given),
    ...(threads && { memory: threads }),
  });
  return { agent, prompts, warnings };
}

async function newUser(): Promise<string> {
  return (await client.users.create(`u-${randomUUID()}`)).id;
}

async function remembered(user: string): Promise<string[]> {
  return (await client.memories.list({ user })).map((item) => `${item.role}: ${item.memory}`);
}

function systemOf(prompt: Prompt | undefined): string {
  return JSON.stringify(prompt?.filter((message) => message.role === "system"));
}

test("what one process learns the next one uses, for its user alone", async () => {
  const [ana, ben] = [await newUser(), await newUser()];
  const run = (user: string, question: string) =>
    execFileSync(process.execPath, ["mastra-agent.ts", user, question], { encoding: "utf8" }).trim();
  assert.equal(run(ana, "I moved to Lyon."), "You live in Lyon.");
  assert.equal(run(ana, "Where do I live?"), "You live in Lyon.");
  assert.equal(run(ben, "Where do I live?"), "I do not know.");
  assert.deepEqual(await remembered(ben), ["user: Where do I live?", "assistant: I do not know."]);
});

test("beside Mastra's own threads each message is remembered once, under its thread", async () => {
  const user = await newUser();
  await client.memories.add("I keep bees.", { user });
  const { agent, prompts, warnings } = agentOf(() => ({ text: "Yes." }), {}, new MockMemory());
  const memory = { resource: user, thread: "talk" };
  await agent.generate("Do I keep bees?", { memory });
  await agent.generate("Do I keep bees, really?", { memory });
  assert.match(systemOf(prompts[0]), /Be brief\..*<memory>.*I keep bees\./s);
  assert.doesNotMatch(systemOf(prompts[1]), /Do I keep bees\?/);
  assert.match(JSON.stringify(prompts[1]), /Do I keep bees\?/); // Mastra's thread has it
  const stored = await client.memories.list({ user, filter: { conversation: "talk" } });
  assert.deepEqual(
    stored.map((item) => item.role),
    ["user", "assistant", "user", "assistant"],
  );
  assert.deepEqual(warnings, []);
});

test("a stream is remembered when it is complete, and only then", async () => {
  const user = await newUser();
  const replies: Reply[] = [{ text: "Noted, Lyon." }, { text: "It is in", reason: "length" }];
  const { agent } = agentOf(() => replies.shift() as Reply);
  for (const question of ["I moved to Lyon.", "Where is it?"]) {
    const stream = await agent.stream(question, { memory: { resource: user, thread: "t" } });
    await stream.text;
  }
  assert.deepEqual(await remembered(user), ["user: I moved to Lyon.", "assistant: Noted, Lyon."]);
});

test("the user that the server puts into the context comes before what a caller says", async () => {
  const [ana, ben] = [await newUser(), await newUser()];
  await client.memories.add("I moved to Lyon.", { user: ana });
  const { agent } = agentOf(whereLives);
  const requestContext = new RequestContext();
  requestContext.set(MASTRA_RESOURCE_ID_KEY, ben);
  const told = await agent.generate("Where do I live?", { requestContext, memory: { resource: ana, thread: "t" } });
  assert.equal(told.text, "I do not know.");
  assert.equal((await remembered(ana)).length, 1);
});

test("a model uses memory by its tools", async () => {
  const user = await newUser();
  const calls: Reply[] = [
    { call: "addMemory", input: { text: "Ana is allergic to nuts." } },
    { call: "searchMemories", input: { query: "What is Ana allergic to?" } },
    { text: "Nuts." },
  ];
  const { agent, prompts } = agentOf(() => calls.shift() as Reply, { remember: false });
  const told = await agent.generate("Remember it.", { memory: { resource: user, thread: "t" } });
  assert.equal(told.text, "Nuts.");
  assert.match(JSON.stringify(prompts[2]?.at(-1)), /Ana is allergic to nuts\./);
  assert.deepEqual(await remembered(user), ["user: Ana is allergic to nuts."]);
});

test("untrusted text is fenced, and an answer made from it is untrusted", async () => {
  const user = await newUser();
  await client.memories.add({ role: "user", content: "The museum opens at nine.", trust: "untrusted" }, { user });
  const { agent, prompts } = agentOf(() => ({ text: "At nine." }), { user });
  await agent.generate("When does the museum open?");
  assert.match(systemOf(prompts[0]), /<untrusted source=\\"user\\">The museum/);
  const answer = (await client.memories.list({ user })).find((item) => item.role === "assistant");
  assert.equal((await client.memories.get(answer?.id ?? "", { user })).sources[0]?.trust, "untrusted");
});

test("an agent goes on when memory is away, and says so", async () => {
  const away = new MemOSClient({ baseUrl: silent.url, apiKey: "mst_x" });
  const { agent, warnings } = agentOf(whereLives, { client: away, timeoutMs: 50, user: "ana" });
  assert.equal((await agent.generate("Where do I live?")).text, "I do not know.");
  assert.deepEqual(
    warnings.map((warning) => warning.slice(0, 24)),
    ["Nothing was recalled; th", "The turn was not remembe"],
  );
});

test("without a user there is no memory", async () => {
  const { agent, warnings } = agentOf(whereLives);
  assert.equal((await agent.generate("I moved to Lyon.")).text, "You live in Lyon.");
  assert.match(warnings[0] ?? "", /Name the `user`/);
});
