/** Scripted models of the AI SDK 6 and 7: they answer as a function says, and keep the prompts that they were given. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { MockLanguageModelV3, simulateReadableStream } from "ai/test";
import { MockLanguageModelV4 } from "ai7/test";

export type Prompt = { role: string; content: unknown }[];
export type Reply = { text: string; reason?: "stop" | "length" } | { call: string; input: object };

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};

/** Say where the user lives if the prompt tells, as a model with memory would. */
export function whereLives(prompt: Prompt): Reply {
  return { text: JSON.stringify(prompt).includes("Lyon") ? "You live in Lyon." : "I do not know." };
}

export function scripted(reply: (prompt: Prompt) => Reply, prompts: Prompt[] = []) {
  function next(options: { prompt: unknown }) {
    const prompt = options.prompt as Prompt;
    prompts.push(prompt);
    return reply(prompt);
  }
  function finish(said: Reply) {
    const unified = "text" in said ? (said.reason ?? "stop") : "tool-calls";
    return { unified, raw: undefined } as const;
  }
  function callOf(said: { call: string; input: object }) {
    const input = JSON.stringify(said.input);
    return { type: "tool-call", toolCallId: `call-${prompts.length}`, toolName: said.call, input } as const;
  }
  const behaviour = {
    doGenerate: async (options: { prompt: unknown }) => {
      const said = next(options);
      const content = "text" in said ? ({ type: "text", text: said.text } as const) : callOf(said);
      return { content: [content], finishReason: finish(said), usage, warnings: [] };
    },
    doStream: async (options: { prompt: unknown }) => {
      const said = next(options);
      const texts = (text: string) => [
        { type: "text-start", id: "1" } as const,
        ...(text.match(/.{1,5}/gs) ?? []).map((delta) => ({ type: "text-delta", id: "1", delta }) as const),
        { type: "text-end", id: "1" } as const,
      ];
      const chunks = [
        { type: "stream-start" as const, warnings: [] },
        ...("text" in said ? texts(said.text) : [callOf(said)]),
        { type: "finish", finishReason: finish(said), usage } as const,
      ];
      return { stream: simulateReadableStream({ chunks }) };
    },
  };
  return { v6: new MockLanguageModelV3(behaviour), v7: new MockLanguageModelV4(behaviour), prompts };
}

/** Start a server that accepts connections and never answers. */
export async function unanswering(): Promise<{ url: string; close: () => Promise<void> }> {
  const server = createServer(() => undefined).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}
