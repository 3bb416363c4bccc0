import type { MemOSClient } from "./client.js";
import type { Message, RecalledText } from "./types.js";

/** Whose memory a call uses. */
export interface Who {
  /** The user; without one there is no memory, so that users of one agent never share one by mistake. */
  user?: string | undefined;
  /** Conversation that the messages belong to. */
  conversation?: string | undefined;
}

/** Options of the memory of an agent. */
export interface MemoryOptions extends Who {
  client: MemOSClient;
  /** Cube to recall from and to store in; default: the user's own. */
  cube?: string | undefined;
  /** Most tokens of memory in a prompt; default: the server's `MEMOS_RECALL__TOKENS`. */
  tokenBudget?: number | undefined;
  /** False to recall only. */
  remember?: boolean | undefined;
  /** Longest time that memory may hold up a turn, before and after the model each; default: 2,000. */
  timeoutMs?: number | undefined;
  /** Told when a turn goes on without memory; default: `console.warn`. */
  onWarning?: ((message: string, error?: unknown) => void) | undefined;
}

/** Recalls before a model answers and remembers afterwards; what fails is told, never thrown. */
export class AgentMemory {
  readonly #options: MemoryOptions;

  constructor(options: MemoryOptions) {
    this.#options = options;
  }

  /** Return whose memory a call uses: as it says, else as the options say. */
  who(call: Who = {}): Who {
    return {
      user: call.user ?? this.#options.user,
      conversation: call.conversation ?? this.#options.conversation,
    };
  }

  /** Return what is remembered for a question, without what the prompt says anyway; undefined if it failed. */
  recall(
    query: string,
    who: Who,
    prompt: { known: string[]; recent: boolean },
    signal?: AbortSignal,
  ): Promise<RecalledText | undefined> {
    const { client, cube, tokenBudget = null } = this.#options;
    return this.within("Nothing was recalled", who, signal, (user, options) => {
      const cubes = cube === undefined ? null : [cube];
      const fields = { ...prompt, user, conversation: who.conversation ?? null, cubes, token_budget: tokenBudget };
      return client.chat.recall(storable(query), fields, options);
    });
  }

  /** Store messages. */
  async remember(messages: readonly Message[], who: Who): Promise<void> {
    if (this.#options.remember === false || messages.length === 0) return;
    const { client, cube = null } = this.#options;
    await this.within("The turn was not remembered", who, undefined, (user, options) =>
      client.memories.add(messages, { user, conversation: who.conversation ?? null, cube }, options),
    );
  }

  /** Run a call of the client for a user within the time limit; return undefined if it fails. */
  async within<T>(
    what: string,
    who: Who,
    signal: AbortSignal | undefined,
    call: (user: string, options: { signal: AbortSignal; retries: number }) => Promise<T>,
  ): Promise<T | undefined> {
    if (!who.user) {
      this.#warn(`${what}; the agent goes on without memory. Name the \`user\` whose memory it is.`);
      return undefined;
    }
    const limit = AbortSignal.timeout(this.#options.timeoutMs ?? 2_000);
    try {
      return await call(who.user, { signal: signal ? AbortSignal.any([signal, limit]) : limit, retries: 0 });
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      if (!signal?.aborted) this.#warn(`${what}; the agent goes on without memory. ${why}`, error);
      return undefined;
    }
  }

  #warn(message: string, error?: unknown): void {
    if (this.#options.onWarning) this.#options.onWarning(message, error);
    else console.warn(`hippocube: ${message}`);
  }
}

/** Reasons for the end of an answer that is cut off or withheld. */
export const UNFINISHED: ReadonlySet<string> = new Set(["length", "content-filter", "error"]);

/** Join the texts among the parts of a message. */
export function textOf(content: string | readonly { type: string; text?: unknown }[]): string {
  if (typeof content === "string") return content;
  const texts = content.filter((part) => part.type === "text" && typeof part.text === "string");
  return texts.map((part) => part.text).join("\n");
}

/** Return the messages of a turn to remember: what the user said and, once it is complete, what was answered. */
export function turnOf(said: readonly string[], answer: string, untrusted: boolean): Message[] {
  const messages: Message[] = said.map((text) => ({ role: "user", content: storable(text) }));
  // An answer may repeat untrusted text, so it must not be stored as trusted.
  messages.push({ role: "assistant", content: storable(answer), trust: untrusted ? "untrusted" : "trusted" });
  return messages.filter((message) => (message.content as string).trim() !== "");
}

/** Return a text without what no store keeps: NUL and lone surrogates. */
function storable(text: string): string {
  return text.replace(/[\0\ud800-\udfff]/gu, "\ufffd");
}
