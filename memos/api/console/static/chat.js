// The page Chat: answers appear as they are made; beside each, what was recalled and what was written.

const root = document.querySelector('meta[name="root"]')?.content ?? "";
const talk = document.getElementById("talk");
const form = document.getElementById("say");
const box = document.getElementById("q");
const stop = document.getElementById("stop");
const FIRST = 3; // memories that are shown at once, if fewer are cited
/** @type {AbortController | null} */
let asking = null;

/** Add a turn to the conversation. */
function turn(kind, text) {
  const made = document.getElementById("turn").content.firstElementChild.cloneNode(true);
  made.classList.add(kind);
  made.querySelector(".said").textContent = text;
  talk.append(made);
  made.scrollIntoView({ block: "nearest" });
  return made;
}

/** Fill a list with links to memories; texts stay texts. */
function links(list, entries) {
  for (const [id, text, cited] of entries) {
    const line = document.createElement("li");
    const link = document.createElement("a");
    link.href = talk.dataset.memories.replace("/ID", `/${encodeURIComponent(id)}`);
    link.textContent = text.length > 200 ? `${text.slice(0, 200)}…` : text;
    link.dir = "auto";
    line.append(link);
    if (cited) {
      const badge = document.createElement("span");
      badge.className = "badge good";
      badge.textContent = "cited";
      line.append(" ", badge);
    }
    list.append(line);
  }
  if (entries.length === 0) {
    const line = document.createElement("li");
    line.className = "muted";
    line.textContent = "Nothing";
    list.append(line);
  }
}

/** Show what an answer was made from, and what was stored of the exchange. */
function finish(answer, question, result) {
  answer.querySelector(".said").textContent = result.text;
  const cited = new Set(result.cited.map((each) => each.item));
  const shown = result.shown.map((each) => [each.item, each.memory, cited.has(each.item)]);
  shown.sort((one, other) => other[2] - one[2]);
  const first = Math.max(cited.size, FIRST);
  links(answer.querySelector(".recalled"), shown.slice(0, first));
  const others = answer.querySelector(".others");
  if (shown.length > first) {
    others.hidden = false;
    others.querySelector("summary").textContent = `${shown.length - first} more that the model saw`;
    links(others.querySelector("ul"), shown.slice(first));
  }
  const said = [question, result.text];
  const stored = result.receipt?.item_ids ?? [];
  links(answer.querySelector(".written"), stored.map((id, place) => [id, said[place] ?? id, false]));
  const model = (result.timings_ms.model / 1000).toFixed(1);
  const estimated = result.tokens_estimated ? ", estimated" : "";
  answer.querySelector(".numbers").textContent =
    `${result.prompt_tokens.toLocaleString("en")} tokens read, ${result.memory_tokens.toLocaleString("en")} of them `
    + `memory; ${result.completion_tokens.toLocaleString("en")} written${estimated}; ${model} s`
    + (result.not_stored ? `. Not remembered: ${result.not_stored}` : "");
  answer.querySelector(".beside").hidden = false;
}

/** Yield the server-sent events of an answer as pairs of a name and data. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value.replaceAll("\r\n", "\n");
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n");
      const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (name && data) yield [name, JSON.parse(data)];
    }
  }
}

async function ask(question) {
  const body = { query: question, conversation: talk.dataset.conversation, stream: true,
    store: document.getElementById("store")?.checked ?? false };
  if (talk.dataset.cube) body.cubes = [talk.dataset.cube];
  turn("mine", question);
  const answer = turn("theirs", "…");
  let text = "";
  asking = new AbortController();
  stop.hidden = false;
  try {
    const reply = await fetch(`${root}/api/chat`, {
      method: "POST", body: JSON.stringify(body), signal: asking.signal,
      headers: { "Content-Type": "application/json", "X-CSRF-Token": window.memos.token() },
    });
    if (reply.status === 401) window.memos.tellSignedOut();
    if (!reply.ok) throw new Error(window.memos.problemOf(reply.status, await reply.json().catch(() => null)));
    let ended = false;
    for await (const [name, data] of events(reply.body)) {
      if (name === "text") answer.querySelector(".said").textContent = text += data.text;
      else if (name === "error") throw new Error(data.error.message);
      else if (name === "end") {
        ended = true;
        finish(answer, question, data);
      }
    }
    if (!ended) throw new Error("The answer broke off; nothing of it was remembered. Ask again.");
    history.replaceState(null, "", talk.dataset.page);
  } catch (error) {
    answer.classList.add("wrong");
    const told = error.name === "AbortError" ? "Stopped; nothing of it was remembered." : error.message;
    answer.querySelector(".said").textContent = text ? `${text}\n\n${told}` : told;
    if (box.value === "") box.value = question;
  } finally {
    asking = null;
    stop.hidden = true;
    answer.scrollIntoView({ block: "nearest" });
  }
}

form.addEventListener("submit", (event) => {
  if (form.method !== "post" || event.submitter?.value === "prompt") return;
  event.preventDefault();
  const question = box.value.trim();
  if (!question || asking) return;
  box.value = "";
  document.getElementById("sent").replaceChildren();
  document.querySelector(".empty")?.remove();
  ask(question);
});
stop.addEventListener("click", () => asking?.abort());
box.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    form.requestSubmit(form.querySelector("button.primary"));
  }
});
