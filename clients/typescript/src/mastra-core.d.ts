/** What is used of `@mastra/core`, so that the package is built without it; tests check it against the real one. */
declare module "@mastra/core/tools" {
  export interface Tool<_Input, _Output> {
    id: string;
  }
  export function createTool<Input, Output>(tool: {
    id: string;
    description: string;
    inputSchema: { "~standard": { types?: { input: Input } } };
    execute: (input: Input, context: unknown) => Promise<Output>;
  }): Tool<Input, Output>;
}
