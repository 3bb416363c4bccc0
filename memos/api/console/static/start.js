// Upload of files that are dropped or chosen, each with its progress.

// What is taken for a chat export on the first page; everything else is a document.
const EXPORTS = /\.(?:jsonl?|ndjson|zip|af)$|(?:whatsapp.*|_chat)\.txt$/i;

const root = document.querySelector('meta[name="root"]').content;
const drop = document.querySelector("[data-drop]");
const list = document.querySelector("[data-uploads]");

/** Say what became of a file that is being read; the page of documents has a row for each. */
async function follow(file, entry) {
  const last = () => entry.lastElementChild;
  let pause = 500;
  while (file.state === "processing" && entry.isConnected) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 1.5, 10_000);
    try {
      file = await window.memos.api("GET", `/documents/${encodeURIComponent(file.id)}`);
    } catch (error) {
      last().textContent = `is being read; how far it is cannot be told: ${error.message}`;
      return;
    }
  }
  if (file.state === "available") {
    const count = file.info.passages ?? 0;
    last().textContent = `is read: ${count.toLocaleString("en")} ${count === 1 ? "passage" : "passages"}. Ask about it`;
    last().href = drop.dataset.ask;
  } else last().textContent = file.error ? `could not be read: it ${file.error}` : `is ${file.state}`;
}

/** Send one file and show how far it is. */
function upload(file) {
  const entry = document.createElement("li");
  const name = document.createElement("span");
  const progress = document.createElement("progress");
  name.textContent = `${file.name} `;
  progress.max = 1;
  progress.setAttribute("aria-label", `Upload of ${file.name}`);
  entry.append(name, progress);
  list.append(entry);
  const isExport = drop.dataset.ask !== undefined && EXPORTS.test(file.name); // the page of documents has no chats
  const query = new URLSearchParams(drop.dataset.cube ? { cube: drop.dataset.cube, name: file.name } : { name: file.name });
  let body = file;
  if (!isExport) {
    body = new FormData();
    body.append("file", file);
    if (drop.dataset.cube) body.append("cube", drop.dataset.cube);
  }
  const request = new XMLHttpRequest();
  request.open("POST", isExport ? `${root}/api/imports?${query}` : `${root}/api/documents/upload`);
  request.setRequestHeader("X-CSRF-Token", window.memos.token());
  if (isExport) request.setRequestHeader("Content-Type", "application/octet-stream");
  request.upload.addEventListener("progress", (event) => {
    if (event.lengthComputable) progress.value = event.loaded / event.total;
  });
  const end = (text, href) => {
    const told = document.createElement(href ? "a" : "span");
    told.textContent = text;
    if (href) told.href = href;
    progress.replaceWith(told);
  };
  request.addEventListener("error", () => end("could not be sent; is the server running?"));
  request.addEventListener("load", () => {
    let told = null;
    try {
      told = JSON.parse(request.responseText);
    } catch { /* a page of an error */ }
    if (request.status < 300 && isExport) {
      const bad = told.bad.length ? ` ${told.bad.length} could not be read.` : "";
      end(`${told.added} messages of ${told.conversations} conversations are stored.${bad} Ask about them`, drop.dataset.ask);
    } else if (request.status < 300) {
      end("is being read", drop.dataset.done);
      drop.dispatchEvent(new CustomEvent("uploaded", { detail: { file: told, entry } }));
      if (drop.dataset.ask !== undefined) follow(told, entry);
    } else {
      if (request.status === 401) window.memos.tellSignedOut();
      end(window.memos.problemOf(request.status, told));
    }
  });
  request.send(body);
}

if (drop) {
  document.getElementById("files").addEventListener("change", (event) => {
    for (const file of event.target.files) upload(file);
    event.target.value = "";
  });
  for (const kind of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop") for (const file of event.dataTransfer.files) upload(file);
    });
  }
}
