/** Memory for Mastra agents: a processor that recalls before the model and remembers after it, and tools. */
import { createTool, type Tool } from "@mastra/core/tools";
import { AgentMemory, type MemoryOptions, textOf, turnOf, UNFINISHED, type Who } from "./agent.js";
import { type MemoryTools, memoryToolsFor } from "./tools.js";

export type { MemoryOptions, Who } from "./agent.js";

/** What a message or the call of a tool says it belongs to. */
interface About {
  resourceId?: string | undefined;
  threadId?: string | undefined;
}

interface AgentMessage extends About {
  role: string;
  content: { parts: readonly { type: string }[] };
}

interface Context {
  requestContext?: { get(name: never): unknown } | undefined;
  state: Record<string, unknown>;
  abortSignal?: AbortSignal | undefined;
}

interface Result {
  text: string;
  finishReason: string;
  steps: readonly { toolResults?: readonly unknown[] }[];
}

/** A `Processor` of Mastra, for `inputProcessors` and `outputProcessors` alike. */
export interface MemoryProcessor {
  readonly id: "hippocube-memory";
  processInput<M extends AgentMessage, S>(
    call: Context & { messages: M[]; systemMessages: S[] },
  ): Promise<{ messages: M[]; systemMessages: (S | { role: "system"; content: string })[] }>;
  processOutputResult<M>(call: Context & { messages: M[]; result: Result }): Promise<M[]>;
}

interface Turn {
  who: Who;
  said: string[];
  untrusted: boolean;
}

// Under which a server's own middleware puts the user who signed in, and the thread.
const RESOURCE = "mastra__resourceId";
const THREAD = "mastra__threadId";

/**
 * Return a processor that gives an agent memory; it must be among its `inputProcessors` and `outputProcessors`.
 *
 * What is remembered for the last question becomes a system message, fenced as data. Afterwards the user's new messages
 * and the answer are stored. The resource of a call is the user and its thread the conversation, unless the options
 * name them. If memory is away or slow, the agent goes on without it, with a warning.
 */
export function memoryProcessor(options: MemoryOptions): MemoryProcessor {
  const memory = new AgentMemory(options);
  return {
    id: "hippocube-memory",

    async processInput({ messages, systemMessages, requestContext, state, abortSignal }) {
      const said = messages.map((message) => ({ role: message.role, text: textOf(message.content.parts) }));
      const last = said.map((message) => message.role).lastIndexOf("assistant");
      const users = said.slice(last + 1).filter((message) => message.role === "user");
      const question = users.at(-1);
      if (question === undefined) return { messages, systemMessages };
      const who = whoOf(options, requestContext, messages.at(-1));
      const known = said.map((message) => message.text).filter((text) => text !== "");
      const recalled = await memory.recall(question.text, who, { known, recent: last < 0 }, abortSignal);
      const turn: Turn = {
        who,
        said: users.map((message) => message.text),
        untrusted: recalled?.untrusted ?? false,
      };
      state["turn"] = turn;
      if (!recalled?.text) return { messages, systemMessages };
      return { messages, systemMessages: [...systemMessages, { role: "system", content: recalled.text }] };
    },

    async processOutputResult({ messages, result, state }) {
      const turn = state["turn"] as Turn | undefined;
      if (turn !== undefined && !UNFINISHED.has(result.finishReason)) {
        const fromTools = result.steps.some((step) => step.toolResults?.length);
        await memory.remember(turnOf(turn.said, result.text, turn.untrusted || fromTools), turn.who);
      }
      return messages;
    },
  };
}

/** Return the tools `searchMemories`, `addMemory` and `correctMemory` for a model that decides for itself. */
export function memoryTools(options: MemoryOptions): Record<keyof MemoryTools, Tool<any, string>> {
  const tools = memoryToolsFor(options, (given) => {
    const { requestContext, agent } = given as { requestContext?: Context["requestContext"]; agent?: About };
    return whoOf(options, requestContext, agent);
  });
  return {
    searchMemories: createTool({ id: "searchMemories", ...tools.searchMemories }),
    addMemory: createTool({ id: "addMemory", ...tools.addMemory }),
    correctMemory: createTool({ id: "correctMemory", ...tools.correctMemory }),
  };
}

function whoOf(options: MemoryOptions, context: Context["requestContext"], about: About | undefined): Who {
  const get = (name: string) => context?.get(name as never);
  const memory = get("MastraMemory") as { resourceId?: string; thread?: { id?: string } } | undefined;
  const user = options.user ?? get(RESOURCE) ?? memory?.resourceId ?? about?.resourceId;
  const conversation = options.conversation ?? get(THREAD) ?? memory?.thread?.id ?? about?.threadId;
  return {
    user: typeof user === "string" ? user : undefined,
    conversation: typeof conversation === "string" ? conversation : undefined,
  };
}
