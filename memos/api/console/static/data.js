// Imports and loads of files: a preview first, then progress while the server works.

const root = document.querySelector('meta[name="root"]').content;
const LARGEST_PREVIEW = 50_000_000;

const { make } = window.memos;

/** Say something in place of what was said before. */
function show(place, ...nodes) {
  document.getElementById(place)?.replaceChildren(...nodes);
}

function count(number, one, many) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** Send a file as the body of a request. Throws an Error with the server's message. */
async function send(path, query, file, { headers = {}, signal } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== false && value !== undefined);
  const answer = await fetch(`${root}/api${path}?${new URLSearchParams(given)}`, {
    method: "POST", body: file, signal,
    headers: { "X-CSRF-Token": window.memos.token(), "Content-Type": "application/octet-stream", ...headers },
  });
  if (!answer.ok) {
    if (answer.status === 401) window.memos.tellSignedOut();
    throw new Error(window.memos.problemOf(answer.status, await answer.json().catch(() => null)));
  }
  return answer;
}

/** Yield the lines of an answer as they arrive; empty ones are a heartbeat. */
async function* lines(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    held += value;
    const all = held.split("\n");
    held = all.pop();
    for (const line of all) if (line) yield JSON.parse(line);
  }
  if (held) yield JSON.parse(held);
}

function problems(bad, total) {
  if (!total) return [];
  const list = make("ul");
  for (const each of bad.slice(0, 10)) list.append(make("li", `${each.place} ${each.problem}`, { class: "wrap" }));
  return [make("details", "", { class: "warning" }, make("summary", `${count(total, "record", "records")} cannot be read`), list)];
}

function field(id) {
  return document.getElementById(id);
}

/** Let files be dropped where one can be chosen. */
function droppable(place) {
  const input = place.querySelector('input[type="file"]');
  for (const kind of ["dragenter", "dragover"]) {
    place.addEventListener(kind, (event) => { event.preventDefault(); place.classList.add("over"); });
  }
  for (const kind of ["dragleave", "drop"]) place.addEventListener(kind, () => place.classList.remove("over"));
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length === 0) return;
    input.files = event.dataTransfer.files;
    input.dispatchEvent(new Event("change", { bubbles: true }));
  });
}
document.querySelectorAll("[data-drop]").forEach(droppable);

// A chat export.

const form = document.getElementById("import");
let asked = 0;

async function preview() {
  const file = field("export").files[0];
  const mine = ++asked;
  const button = form.querySelector('[type="submit"]');
  button.disabled = !file;
  show("import-state");
  show("import-preview");
  if (!file) return;
  if (file.size > LARGEST_PREVIEW) {
    show("import-preview", make("p", "The file is large, so it is not previewed. Import it; what cannot be read is told.", { class: "muted" }));
    return;
  }
  show("import-preview", make("p", "Reading the file…", { class: "muted" }));
  try {
    const told = await (await send("/imports/preview", { cube: field("into").value, name: file.name }, file)).json();
    if (mine === asked) show("import-preview", ...previewed(told));
  } catch (error) {
    if (mine === asked) show("import-preview", make("p", error.message, { class: "problem", role: "alert" }));
  }
}

/** How much is not taken, and why. */
function leftOut(told) {
  const reasons = Object.entries(told.left_out_by).sort((one, other) => other[1] - one[1]).slice(0, 5);
  return `${count(told.left_out, "entry", "entries")}${reasons.length ? ` (${reasons.map(([why, number]) => `${number} ${why}`).join(", ")})` : ""}`;
}

function previewed(told) {
  const more = told.more ? " in the first part of the file" : "";
  const what = `${count(told.messages, "message", "messages")} in ${count(told.conversations, "conversation", "conversations")}${more}`;
  const left = told.left_out ? `; ${leftOut(told)} stay out` : "";
  const list = make("div");
  for (const message of told.first) {
    const head = make("p", "", { class: "meta" }, make("strong", message.speaker),
      make("span", message.said_at ? message.said_at.slice(0, 16).replace("T", " ") : "without a time"), make("span", message.conversation, { class: "wrap" }));
    list.append(make("article", "", { class: "card", "data-row": "" }, head, make("p", message.text, { class: "said", tabindex: "0" })));
  }
  return [make("h2", "Preview"), make("p", `${what}, read as ${told.format}${left}. Nothing is stored yet.`), ...problems(told.bad, told.bad_count), list];
}

async function run(event) {
  event.preventDefault();
  const file = field("export").files[0];
  if (!file) return;
  const button = form.querySelector('[type="submit"]'), stop = form.querySelector("[data-stop]");
  const stopping = new AbortController();
  const bar = make("progress", "", { "aria-label": "Progress of the import" }), said = make("p", "Sending the file…");
  button.disabled = true;
  stop.hidden = false;
  stop.onclick = () => stopping.abort();
  show("import-state", make("div", "", { class: "card" }, said, bar));
  const query = {
    cube: field("into").value, name: file.name, progress: true,
    on_bad: field("skip").checked ? "skip" : "stop", mode: field("fine").checked ? "fine" : "rough",
  };
  let ended = false;
  try {
    for await (const line of lines(await send("/imports", query, file, { signal: stopping.signal }))) {
      if (line.error) throw new Error(line.error.message);
      if (line.progress) {
        bar.max = Math.max(line.progress.total, 1);
        bar.value = line.progress.done;
        said.textContent = `${line.progress.done.toLocaleString("en")} of ${count(line.progress.total, "message", "messages")} stored`;
      }
      if (line.result) {
        ended = true;
        show("import-state", ...imported(line.result));
      }
    }
    if (!ended) throw new Error("The import broke off. What was stored stays; import the file again to go on.");
    show("import-preview");
  } catch (error) {
    const told = error.name === "AbortError" ? "Stopped. What was stored stays; import the file again to go on." : error.message;
    show("import-state", make("p", told, { class: "problem", role: "alert" }));
  }
  stop.hidden = true;
  button.disabled = false;
}

function imported(result) {
  const known = result.known ? `, ${result.known.toLocaleString("en")} were there before` : "";
  const masked = result.masked ? ` ${count(result.masked, "secret", "secrets")} masked.` : "";
  const cube = encodeURIComponent(field("into").value);
  return [
    make("div", "", { class: "success" },
      make("p", `${count(result.added, "message", "messages")} stored${known}.${masked}${result.left_out ? ` ${leftOut(result)} stayed out.` : ""}`),
      make("p", "", { class: "row" }, make("a", "Ask the first question", { class: "button primary", href: `${root}/ask?cube=${cube}` }),
        make("a", "See the memories", { class: "button", href: `${root}/memories?cube=${cube}` }))),
    ...problems(result.bad, result.bad.length),
  ];
}

if (form) {
  field("export").addEventListener("change", preview);
  field("into").addEventListener("change", preview);
  form.addEventListener("submit", run);
}

// A cube file.

const loading = document.getElementById("load");

function passphrase() {
  const secret = field("load-passphrase").value;
  // A header is bytes: UTF-8, each byte as one character.
  return secret ? { "X-Memos-Passphrase": String.fromCharCode(...new TextEncoder().encode(secret)) } : {};
}

async function inspect() {
  const file = field("load-file").files[0];
  const button = loading.querySelector('[type="submit"]');
  button.disabled = true;
  if (!file) return;
  show("load-state", make("p", "Checking the file…", { class: "muted" }));
  try {
    const told = await (await send("/cubes/inspect", {}, file, { headers: passphrase() })).json();
    const rows = [["Cube", told.cube], ["Description", told.description || "–"], ["Written", told.created_at.slice(0, 16).replace("T", " ")],
      ["Memories", (told.counts.items ?? 0).toLocaleString("en")], ["Vectors", told.fits ? "of the embedder used here" : "of another embedder; they are computed again"]];
    const list = make("dl");
    for (const [name, value] of rows) list.append(make("dt", name), make("dd", value));
    show("load-state", list);
    if (!field("load-as").value) field("load-as").value = told.cube;
    button.disabled = false;
  } catch (error) {
    show("load-state", make("p", error.message, { class: "problem", role: "alert" }));
  }
}

async function load(event) {
  event.preventDefault();
  show("load-state", make("p", "Loading… this can take minutes for a large cube.", { class: "muted" }));
  const query = { cube: field("load-as").value.trim(), merge: field("load-merge").checked, trust: field("load-trust").checked };
  try {
    const told = await (await send("/cubes/load", query, field("load-file").files[0], { headers: passphrase() })).json();
    const left = told.erased ? ` ${count(told.erased, "memory", "memories")} erased here before stayed out.` : "";
    show("load-state", make("div", "", { class: "success" }, make("p", `${count(told.items, "memory", "memories")} loaded into ${told.cube}.${left}`),
      make("a", "Open the cube", { class: "button", href: `${root}/?cube=${encodeURIComponent(told.cube)}` })));
  } catch (error) {
    show("load-state", make("p", error.message, { class: "problem", role: "alert" }));
  }
}

if (loading) {
  field("load-file").addEventListener("change", inspect);
  field("load-passphrase").addEventListener("change", inspect);
  loading.addEventListener("submit", load);
}
