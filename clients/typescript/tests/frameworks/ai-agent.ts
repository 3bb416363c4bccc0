/** One turn of an agent made with the AI SDK: node ai-agent.ts VERSION USER QUESTION. Prints its answer. */
import * as ai6 from "ai";
import * as ai7 from "ai7";
import { MemOSClient } from "hippocube-client";
import { memoryMiddleware } from "hippocube-client/ai-sdk";
import { scripted, whereLives } from "./scripted.ts";

const [version, user, question] = process.argv.slice(2) as [string, string, string];
const middleware = memoryMiddleware({ client: new MemOSClient(), user, timeoutMs: 60_000 });
const { v6, v7 } = scripted(whereLives);
const answer =
  version === "6"
    ? await ai6.generateText({ model: ai6.wrapLanguageModel({ model: v6, middleware }), prompt: question })
    : await ai7.generateText({ model: ai7.wrapLanguageModel({ model: v7, middleware }), prompt: question });
console.log(answer.text);
