/**
 * Memory for the Vercel AI SDK 6 and 7: a middleware that recalls before the model and remembers after it, and tools.
 *
 * It needs no import of `ai`: its types are those of the SDK by their shape.
 */
import { AgentMemory, type MemoryOptions, textOf, turnOf, UNFINISHED, type Who } from "./agent.js";
import { type MemoryTools, memoryToolsFor } from "./tools.js";

export type { MemoryOptions, Who } from "./agent.js";
export type { MemoryTool, MemoryTools } from "./tools.js";

interface PromptMessage {
  role: string;
  content: string | readonly { type: string }[];
}

interface CallOptions {
  prompt: PromptMessage[];
  responseFormat?: { type: string } | undefined;
  abortSignal?: AbortSignal | undefined;
  providerOptions?: Record<string, Record<string, unknown>> | undefined;
}

interface Generated {
  content: { type: string }[];
  finishReason: FinishReason;
}

type FinishReason = string | { unified: string };
type Part = { type: string; delta?: string; finishReason?: FinishReason };

/** A `LanguageModelMiddleware` of the AI SDK. */
export interface MemoryMiddleware {
  readonly specificationVersion: "v3";
  transformParams<P extends CallOptions>(call: { params: P }): Promise<P>;
  wrapGenerate<R extends Generated>(call: { doGenerate: () => PromiseLike<R>; params: CallOptions }): Promise<R>;
  wrapStream<C, R extends { stream: ReadableStream<C> }>(call: {
    doStream: () => PromiseLike<R>;
    params: CallOptions;
  }): Promise<R>;
}

/** What a call to the model leaves to remember. */
interface Turn {
  who: Who;
  said: string[];
  untrusted: boolean;
  /** JSON for a program is no statement. */
  structured: boolean;
}

/**
 * Return a middleware for `wrapLanguageModel` that gives a model memory.
 *
 * What is remembered for the last question is appended to the system message, fenced as data. Afterwards the user's
 * new messages and the answer are stored. If memory is away or slow, the call goes on without it, with a warning.
 * A call chooses another user or conversation with `providerOptions: { hippocube: { user, conversation } }`.
 */
export function memoryMiddleware(options: MemoryOptions): MemoryMiddleware {
  const memory = new AgentMemory(options);
  const turns = new WeakMap<CallOptions, Turn>();

  async function remember(params: CallOptions, answer: string, finishReason: FinishReason | undefined): Promise<void> {
    const turn = turns.get(params);
    const finish = typeof finishReason === "object" ? finishReason.unified : finishReason;
    if (turn === undefined || finish === undefined || UNFINISHED.has(finish)) return;
    await memory.remember(turnOf(turn.said, turn.structured ? "" : answer, turn.untrusted), turn.who);
  }

  return {
    specificationVersion: "v3",

    async transformParams({ params }) {
      const { prompt } = params;
      const question = prompt.filter((message) => message.role === "user").at(-1);
      if (question === undefined) return params;
      const who = memory.who(params.providerOptions?.["hippocube"] as Who | undefined);
      const known = prompt.map((message) => textOf(message.content)).filter((text) => text !== "");
      const recent = !prompt.some((message) => message.role === "assistant");
      const recalled = await memory.recall(textOf(question.content), who, { known, recent }, params.abortSignal);
      const behind = prompt.slice(prompt.lastIndexOf(question));
      const transformed = recalled?.text ? { ...params, prompt: withSystem(prompt, recalled.text) } : { ...params };
      turns.set(transformed, {
        who,
        said: newTexts(prompt),
        // An answer from the result of a tool repeats what no user said.
        untrusted: (recalled?.untrusted ?? false) || behind.some((message) => message.role === "tool"),
        structured: params.responseFormat?.type === "json",
      });
      return transformed;
    },

    async wrapGenerate({ doGenerate, params }) {
      const result = await doGenerate();
      await remember(params, textOf(result.content), result.finishReason);
      return result;
    },

    async wrapStream<C, R extends { stream: ReadableStream<C> }>({
      doStream,
      params,
    }: {
      doStream: () => PromiseLike<R>;
      params: CallOptions;
    }) {
      const result = await doStream();
      let answer = "";
      let finish: FinishReason | undefined;
      const copy = new TransformStream<C, C>({
        transform(chunk, controller) {
          const part = chunk as Part;
          if (part.type === "text-delta") answer += part.delta ?? "";
          if (part.type === "finish") finish = part.finishReason;
          if (part.type === "error") finish = "error";
          controller.enqueue(chunk);
        },
        // Before the stream ends, so that the next turn knows of this one, and a serverless function is still running.
        flush: () => remember(params, answer, finish),
      });
      return { ...result, stream: result.stream.pipeThrough(copy) };
    },
  };
}

/** Return the tools `searchMemories`, `addMemory` and `correctMemory` for a model that decides for itself. */
export function memoryTools(options: MemoryOptions): MemoryTools {
  return memoryToolsFor(options);
}

/** Return the texts of the user's messages since the last answer; callers send all others again. */
function newTexts(prompt: readonly PromptMessage[]): string[] {
  const last = prompt.map((message) => message.role).lastIndexOf("assistant");
  const said = prompt.slice(last + 1).filter((message) => message.role === "user");
  return said.map((message) => textOf(message.content));
}

/** Append a text to the system message: templates of many models take no second one. */
function withSystem(prompt: readonly PromptMessage[], text: string): PromptMessage[] {
  const [first, ...others] = prompt;
  if (first?.role === "system" && typeof first.content === "string") {
    return [{ ...first, content: first.content ? `${first.content}\n\n${text}` : text }, ...others];
  }
  return [{ role: "system", content: text }, ...prompt];
}
