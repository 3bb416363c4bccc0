/** One turn of a Mastra agent: node mastra-agent.ts USER QUESTION. Prints its answer. */
import { Agent } from "@mastra/core/agent";
import { MemOSClient } from "hippocube-client";
import { memoryProcessor } from "hippocube-client/mastra";
import { scripted, whereLives } from "./scripted.ts";

const [user, question] = process.argv.slice(2) as [string, string];
const memory = memoryProcessor({ client: new MemOSClient(), timeoutMs: 60_000 });
const agent = new Agent({
  id: "agent",
  name: "agent",
  instructions: "Be brief.",
  model: scripted(whereLives).v6,
  inputProcessors: [memory],
  outputProcessors: [memory],
});
console.log((await agent.generate(question, { memory: { resource: user, thread: `thread-${question.length}` } })).text);
