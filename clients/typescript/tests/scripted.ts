/** A server on loopback that answers from a script and keeps what it was sent. */
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { MemOSClient } from "hippocube-client";

export interface Sent {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
  body: string;
}

type Step = (response: ServerResponse) => void;

/** Return a step that answers with JSON. */
export function answer(status: number, body: unknown = {}, headers: Record<string, string> = {}): Step {
  return (response) => response.writeHead(status, headers).end(body === null ? "" : JSON.stringify(body));
}

/** Return a step that answers with an error of the API. */
export function refusal(status: number, code: string, headers?: Record<string, string>): Step {
  return answer(status, { error: { code, message: "message: told", field: "field" } }, headers);
}

/** Run a test with a client of a server that takes these steps, one for each request. */
export async function scripted(
  steps: Step[],
  run: (client: MemOSClient, sent: Sent[], baseUrl: string) => Promise<void>,
  options: ConstructorParameters<typeof MemOSClient>[0] = {},
): Promise<void> {
  const sent: Sent[] = [];
  const server = createServer(async (request, response) => {
    const { method = "", url = "", headers } = request;
    sent.push({ method, url, headers, body: await text(request) });
    const step = steps[sent.length - 1];
    if (step === undefined)
      answer(500, { error: { code: "error", message: "the script has no answer left" } })(response);
    else step(response);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    await run(new MemOSClient({ baseUrl, apiKey: "mst_x", pauseMs: 1, maxPauseMs: 20, ...options }), sent, baseUrl);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}
