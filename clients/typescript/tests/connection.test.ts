/** What is sent, repeated, refused and read, with a server that answers from a script. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  BackendTimeout,
  BackendUnavailable,
  Conflict,
  ConnectionLost,
  IntegrityError,
  InvalidInput,
  LimitReached,
  MemOSClient,
  MemosError,
  ModelError,
  NotFound,
  PermissionDenied,
} from "hippocube-client";
import { answer, refusal, type Sent, scripted } from "./scripted.js";

delete process.env["MEMOS_BASE_URL"];
delete process.env["MEMOS_API_KEY"];

const RECEIPT = { item_ids: ["1"] };

test("a request has the names of the API, and its answer is returned", () =>
  scripted([answer(201, RECEIPT), answer(200, [])], async (client, sent) => {
    assert.deepEqual(await client.memories.add("Hello.", { user: "ana", info: { a: 1 } }), RECEIPT);
    const filter = { tags: { contains: "work" } };
    assert.deepEqual(await client.memories.list({ cube: "a/b", filter, limit: 5 }), []);
    const [add, list] = sent as [Sent, Sent];
    assert.equal(`${add.method} ${add.url}`, "POST /api/v1/memories");
    assert.deepEqual(JSON.parse(add.body), { messages: "Hello.", user: "ana", info: { a: 1 } });
    assert.equal(add.headers.authorization, "Bearer mst_x");
    assert.match(String(add.headers["x-request-id"]), /^\w{32}$/);
    assert.match(String(add.headers["idempotency-key"]), /^\w{32}$/);
    const query = new URL(list.url, "http://x").searchParams;
    assert.deepEqual(Object.fromEntries(query), { cube: "a/b", filter: JSON.stringify(filter), limit: "5" });
    assert.equal(list.headers["idempotency-key"], undefined);
  }));

test("ids are one segment of a path", () =>
  scripted([answer(200, {}), answer(200, [])], async (client, sent) => {
    await client.cubes.get("a/b c?");
    await client.events.list({ kind: ["add", "erase"], newest: true });
    assert.deepEqual(
      sent.map((each) => each.url),
      ["/api/v1/cubes/a%2Fb%20c%3F", "/api/v1/events?kind=add&kind=erase&newest=true"],
    );
    for (const wrong of ["", ".", "..", "\ud800"]) {
      await assert.rejects(client.memories.get(wrong), InvalidInput);
    }
    assert.equal(sent.length, 2);
  }));

for (const [what, call] of [
  ["a look-up", (client: MemOSClient) => client.memories.search("Where?")],
  ["a record that replaces whatever is there", (client: MemOSClient) => client.records.put("a", "Hello.")],
  ["an add, with the same key", (client: MemOSClient) => client.memories.add("Hello.")],
] as const) {
  test(`${what} is sent again when the server fails for a moment`, () =>
    scripted(
      [(response) => response.destroy(), refusal(503, "backend_unavailable"), answer(201, RECEIPT)],
      async (client, sent) => {
        assert.deepEqual(await call(client), RECEIPT);
        assert.equal(sent.length, 3);
        assert.equal(new Set(sent.map((each) => each.headers["idempotency-key"])).size, 1);
        assert.equal(new Set(sent.map((each) => each.headers["x-request-id"])).size, 1);
      },
    ));
}

for (const [what, call] of [
  ["an update", (client: MemOSClient) => client.memories.update("1", { memory: "x" })],
  ["a record with a version", (client: MemOSClient) => client.records.put("a", "Hello.", { expected_version: 1 })],
  ["a deletion", (client: MemOSClient) => client.memories.delete("1")],
  ["an erasure", (client: MemOSClient) => client.memories.erase(["1"])],
  ["a grant", (client: MemOSClient) => client.sharing.grant("a", "ben")],
  ["a key", (client: MemOSClient) => client.keys.create("k")],
  ["a chat", (client: MemOSClient) => client.chat.answer("Where?")],
  ["a streamed chat", (client: MemOSClient) => client.chat.stream("Where?").next()],
  ["a load", (client: MemOSClient) => client.cubes.load(new Blob(["x"]))],
] as const) {
  test(`${what} is never sent twice`, async () => {
    for (const step of [refusal(503, "backend_unavailable"), (response: { destroy(): void }) => response.destroy()]) {
      await scripted([step], async (client, sent) => {
        await assert.rejects(call(client), BackendUnavailable);
        assert.equal(sent.length, 1);
      });
    }
  });
}

test("a repeated creation that is still being carried out is waited for", () =>
  scripted([refusal(503, "backend_unavailable"), refusal(409, "conflict"), answer(201, RECEIPT)], async (client) => {
    assert.deepEqual(await client.memories.add("Hello."), RECEIPT);
  }));

test("a first conflict is an error", () =>
  scripted([refusal(409, "conflict")], async (client, sent) => {
    await assert.rejects(client.memories.add("Hello."), Conflict);
    assert.equal(sent.length, 1);
  }));

test("the server's own pause is kept, unless it is too long", async () => {
  await scripted(
    [refusal(429, "limit_reached", { "retry-after": "0" }), answer(200, { hits: [] })],
    async (client, sent) => {
      await client.memories.search("Where?");
      assert.equal(sent.length, 2);
    },
  );
  await scripted([refusal(429, "limit_reached", { "retry-after": "60" })], async (client, sent) => {
    const thrown = await client.memories.search("Where?").catch((error: unknown) => error);
    assert(thrown instanceof LimitReached);
    assert.equal(thrown.retryAfterMs, 60_000);
    assert.equal(sent.length, 1);
  });
});

test("after the last attempt the error is raised", () =>
  scripted(Array(3).fill(refusal(503, "backend_unavailable")), async (client, sent) => {
    await assert.rejects(client.users.me(), BackendUnavailable);
    assert.equal(sent.length, 3);
    await assert.rejects(client.users.me({}, { retries: 0 }), MemosError);
    assert.equal(sent.length, 4);
  }));

for (const [status, code, kind] of [
  [400, "invalid_input", InvalidInput],
  [401, "permission_denied", PermissionDenied],
  [403, "permission_denied", PermissionDenied],
  [404, "not_found", NotFound],
  [409, "conflict", Conflict],
  [413, "refused", InvalidInput],
  [429, "limit_reached", LimitReached],
  [500, "integrity_error", IntegrityError],
  [500, "refused", BackendUnavailable],
  [502, "model_error", ModelError],
  [503, "backend_unavailable", BackendUnavailable],
  [504, "backend_timeout", BackendTimeout],
] as const) {
  test(`status ${status} with ${code} is ${kind.name}`, () =>
    scripted([refusal(status, code, { "x-request-id": "r-1" })], async (client) => {
      const thrown = await client.memories.delete("1").catch((error: unknown) => error);
      assert(thrown instanceof kind && thrown instanceof MemosError);
      assert.equal(thrown.constructor, kind);
      assert.equal(thrown.name, kind.name);
      assert.equal(thrown.status, status);
      assert.equal(thrown.requestId, "r-1");
      assert.match(thrown.message, /message: told/);
      if (thrown instanceof InvalidInput) assert.equal(thrown.field, "field");
    }));
}

test("what no hippocube server answers is told, and not repeated", async () => {
  const page = (response: { end(text: string): void }) => response.end("<html>");
  const redirect = answer(302, {}, { location: "http://example.com/" });
  for (const [step, told] of [
    [page, /not JSON/],
    [redirect, /redirect/],
  ] as const) {
    await scripted([step], async (client, sent) => {
      await assert.rejects(
        client.users.me(),
        (error: unknown) => error instanceof BackendUnavailable && told.test(error.message),
      );
      assert.equal(sent.length, 1);
    });
  }
});

test("a silent server is given up, a signal ends a call with its reason", () =>
  scripted(
    Array(3).fill(() => undefined),
    async (client, sent) => {
      await assert.rejects(client.users.me({}, { timeoutMs: 250, retries: 1 }), BackendTimeout);
      assert.equal(sent.length, 2);
      const stop = new AbortController();
      const call = client.users.me({}, { signal: stop.signal });
      stop.abort(new Error("enough"));
      await assert.rejects(call, /enough/);
      await assert.rejects(client.users.me({}, { signal: AbortSignal.abort(new Error("before")) }), /before/);
    },
  ));

test("a signal also ends a pause", () =>
  scripted(
    [refusal(429, "limit_reached", { "retry-after": "30" })],
    async (client) => {
      const stop = new AbortController();
      const call = client.users.me({}, { signal: stop.signal });
      setTimeout(() => stop.abort(new Error("enough")), 20);
      await assert.rejects(call, /enough/);
    },
    { maxPauseMs: 60_000 },
  ));

test("where no server is, the error says so", async () => {
  let url = "";
  await scripted([answer(200, {})], async (_client, _sent, baseUrl) => {
    url = baseUrl;
  });
  const away = new MemOSClient({ baseUrl: url, apiKey: "mst_x", retries: 0 });
  await assert.rejects(away.users.me(), /Cannot connect to http:.*memos serve/);
});

test("events are read however their bytes are parted", () => {
  const task = (state: string) => `event: task\r\ndata: {"state":\r\ndata: "${state}"}\r\n\r\n`;
  const bytes = Buffer.from(`: begun\n\n${task("wäiting")}id: 7\n${task("done")}event: end\ndata: {}\n\n`);
  const parted = async (response: { write(bytes: Buffer): void; end(): void }) => {
    for (const byte of bytes) {
      response.write(Buffer.from([byte]));
      await new Promise((next) => setImmediate(next));
    }
    response.end();
  };
  return scripted([parted as never, (response) => response.end(bytes)], async (client) => {
    for (let times = 0; times < 2; times++) {
      const states: string[] = [];
      for await (const found of client.tasks.follow("1")) states.push(found.state);
      assert.deepEqual(states, ["wäiting", "done"]);
    }
  });
});

test("an error within a stream is thrown, and so is its end in the middle", async () => {
  const begin = 'event: text\ndata: {"text": "In "}\n\n';
  const failed = 'event: error\ndata: {"error": {"code": "model_error", "message": "cut off"}}\n\n';
  for (const [end, kind] of [
    [failed, ModelError],
    ["", ConnectionLost],
  ] as const) {
    await scripted([(response) => response.end(begin + end)], async (client) => {
      const pieces = client.chat.stream("Where?");
      assert.deepEqual((await pieces.next()).value, { type: "text", text: "In " });
      await assert.rejects(pieces.next(), kind);
    });
  }
  await scripted(
    [
      (response) => {
        response.write(begin);
        setTimeout(() => response.destroy(), 20);
      },
    ],
    async (client) => {
      const pieces = client.chat.stream("Where?");
      await pieces.next();
      await assert.rejects(pieces.next(), ConnectionLost);
    },
  );
});

test("ending a loop early ends the request", async () => {
  let closed: Promise<unknown> = Promise.reject(new Error("no request came"));
  closed.catch(() => undefined);
  const endless = (response: { write(text: string): void; on(event: "close", told: () => void): void }) => {
    closed = new Promise<void>((told) => response.on("close", told));
    response.write('event: task\ndata: {"state": "running"}\n\n');
  };
  await scripted([endless], async (client) => {
    for await (const found of client.tasks.follow("1")) {
      assert.equal(found.state, "running");
      break;
    }
    await closed;
  });
});

test("waiting asks again until it is done or the time is over", () =>
  scripted(
    [answer(200, { ended: false }), answer(200, { ended: true }), answer(200, { ended: false })],
    async (client, sent) => {
      assert.deepEqual(await client.tasks.wait("1"), { ended: true });
      assert.equal(sent[0]?.url, "/api/v1/tasks/1/wait?timeout_s=20");
      await assert.rejects(client.tasks.wait("1", { timeoutMs: 0 }), BackendTimeout);
    },
  ));

test("a file is sent as it is, and a dump comes as a stream", () =>
  scripted([answer(201, { id: "f" }), answer(200, {}), (response) => response.end("bytes")], async (client, sent) => {
    await client.documents.upload(new File(["# Hello"], "a b.md"), { cube: "docs" });
    await client.imports.run(new File(["{}"], "export.json"), { cube: "ana" });
    const dump = await client.cubes.dump("ana", { passphrase: "grün und blau" });
    assert.equal(await new Response(dump).text(), "bytes");
    const [upload, run, asked] = sent as [Sent, Sent, Sent];
    assert.match(upload.body, /name="file"; filename="a b.md".*# Hello.*name="cube".*docs/s);
    assert.equal(run.url, "/api/v1/imports?name=export.json&cube=ana");
    assert.equal(run.body, "{}");
    assert.equal(asked.headers["x-memos-passphrase"], Buffer.from("grün und blau").toString("latin1"));
    await assert.rejects(client.cubes.inspect(new Blob(), { passphrase: "line\nbreak" }), InvalidInput);
  }));

test("options are checked before anything is sent", () => {
  const apiKey = "mst_x";
  for (const [options, field] of [
    [{ apiKey: "" }, "apiKey"],
    [{ apiKey: "two words" }, "apiKey"],
    [{ apiKey, baseUrl: "ftp://x" }, "baseUrl"],
    [{ apiKey, baseUrl: "http://user:word@x" }, "baseUrl"],
    [{ apiKey, baseUrl: "http://x/?a" }, "baseUrl"],
    [{ apiKey, baseUrl: "nowhere" }, "baseUrl"],
    [{ apiKey, timeoutMs: 0 }, "timeoutMs"],
    [{ apiKey, retries: 1.5 }, "retries"],
    [{ apiKey, pauseMs: Number.NaN }, "pauseMs"],
  ] as const) {
    assert.throws(
      () => new MemOSClient(options),
      (error: unknown) => error instanceof InvalidInput && error.field === field,
    );
  }
});

test("a URL may name the API, and the environment the server and the key", () =>
  scripted([answer(200, {}), answer(200, {}), answer(200, {})], async (_, sent, baseUrl) => {
    for (const path of ["/api/v1/", "/api/openmem/v1"]) {
      await new MemOSClient({ baseUrl: baseUrl + path, apiKey: "mst_x" }).users.me();
    }
    Object.assign(process.env, { MEMOS_BASE_URL: `${baseUrl}/`, MEMOS_API_KEY: "mst_y" });
    try {
      await new MemOSClient().users.me();
    } finally {
      delete process.env["MEMOS_BASE_URL"];
      delete process.env["MEMOS_API_KEY"];
    }
    assert.deepEqual(
      sent.map((each) => each.url),
      Array(3).fill("/api/v1/me"),
    );
    assert.equal(sent[2]?.headers.authorization, "Bearer mst_y");
  }));

test("what cannot be sent as JSON is refused with its name", () =>
  scripted([], async (client, sent) => {
    await assert.rejects(client.memories.search("x", { min_relevance: Number.NaN }), /min_relevance: must be finite/);
    await assert.rejects(client.memories.add("x", { info: { big: 1n } }), InvalidInput);
    await assert.rejects(client.memories.add("x", {}, { idempotencyKey: "ü" }), InvalidInput);
    assert.equal(sent.length, 0);
  }));
