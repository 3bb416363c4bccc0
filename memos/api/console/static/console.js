// What every page of the console does: the theme, keys, notices and forms that submit themselves.
// Pages with more to do have a module of their own.

const root = document.querySelector('meta[name="root"]')?.content ?? "";
let signedOut = false;

/** The token that a change must carry; another one once somebody signed in again in another tab. */
function token() {
  return document.querySelector('meta[name="csrf"]').content;
}

/** Say that the session has ended, and leave everything that is typed where it is. */
function tellSignedOut() {
  signedOut = true;
  const link = make("a", "Sign in again", { href: `${root}/sign-in`, target: "_blank", rel: "noopener" });
  const told = make("p", "", { class: "problem" }, "Your session has ended. ", link,
    " in another tab and repeat this; what you typed is still here.");
  const place = document.getElementById("problem");
  place?.replaceChildren(told);
  place?.scrollIntoView({ block: "nearest" });
}

/** Take the token of the session that there is now; return if there is one. */
async function renewToken() {
  const answer = await fetch(`${root}/token`);
  if (!answer.ok) return false;
  const { csrf, identity } = await answer.json();
  if (identity !== document.body.dataset.identity) {
    notify(`You are signed in as ${identity} now. Reload the page to go on.`);
    return false;
  }
  document.querySelector('meta[name="csrf"]').content = csrf;
  document.body.setAttribute("hx-headers", JSON.stringify({ "X-CSRF-Token": csrf }));
  for (const field of document.querySelectorAll('input[name="csrf"]')) field.value = csrf;
  signedOut = false;
  document.getElementById("problem")?.replaceChildren();
  return true;
}

document.addEventListener("htmx:responseError", async (event) => {
  const answer = event.detail.xhr;
  if (answer.status === 401) signedOut = true;
  else if (answer.getResponseHeader("X-Console-Stale") && await renewToken()) {
    notify("You signed in anew since this page was opened. Do it again to go on.");
  }
});
window.addEventListener("focus", async () => {
  if (signedOut && await renewToken()) notify("You are signed in again. Go on where you were.");
});

/** What to say of an answer that is an error. */
function problemOf(status, told) {
  if (status === 401) return "Your session has ended; sign in again in another tab.";
  return told?.error?.message ?? `The server answered ${status}.`;
}

/** Call `/api/v1` with the rights of who is signed in. Throws an Error with the server's message. */
async function api(method, path, body) {
  const headers = { "X-CSRF-Token": token() };
  const isForm = body instanceof FormData;
  if (body !== undefined && !isForm) headers["Content-Type"] = "application/json";
  const answer = await fetch(`${root}/api${path}`, {
    method, headers, body: body === undefined || isForm ? body : JSON.stringify(body),
  });
  const text = await answer.text();
  let told = null;
  try {
    told = text ? JSON.parse(text) : null;
  } catch { /* a page of an error */ }
  if (answer.status === 401) tellSignedOut();
  if (!answer.ok) throw new Error(problemOf(answer.status, told));
  return told;
}

/** Announce a text for a few seconds. */
function notify(text) {
  const line = document.createElement("p");
  line.textContent = text;
  document.getElementById("notice")?.append(line);
  setTimeout(() => line.remove(), 8000);
}

/** Make an element; text is always text. */
function make(name, text = "", attributes = {}, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// For the modules of pages: their addresses carry digests, so that an import would load this module twice.
window.memos = { api, notify, activeRow, make, token, problemOf, tellSignedOut };

document.body.addEventListener("notice", (event) => notify(event.detail.value ?? event.detail));

// Forms.
const sent = new Set();
document.querySelector("[data-submit-at-once]")?.requestSubmit();
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  if (event.target.matches("[data-select-all]")) {
    const boxes = event.target.closest("table, form, section").querySelectorAll('[data-row] input[type="checkbox"]');
    for (const box of boxes) box.checked = event.target.checked;
  }
});
document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm ?? event.submitter?.dataset.confirm;
  if (sent.has(event.target) || (question && !window.confirm(question))) {
    event.preventDefault();
    event.stopImmediatePropagation();
  }
}, true);
// A second click must not do it twice; who comes back to the page may send it again.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method === "post" && !event.defaultPrevented && !form.hasAttribute("hx-post")) sent.add(form);
});
window.addEventListener("pageshow", () => sent.clear());

// Clicks.
document.addEventListener("click", async (event) => {
  const copied = event.target.closest("[data-copy]");
  if (copied) {
    const source = document.getElementById(copied.dataset.copy);
    await navigator.clipboard.writeText(source.value ?? source.textContent);
    notify("Copied.");
  }
  if (event.target.closest("[data-theme-toggle]")) {
    const now = document.documentElement.dataset.theme;
    const dark = now === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : now === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    document.cookie = `memos_theme=${dark ? "light" : "dark"}; path=${root || "/"}; max-age=31536000; samesite=lax`;
  }
  const menu = event.target.closest("[data-menu]");
  if (menu) {
    const open = document.getElementById("nav").classList.toggle("open");
    menu.setAttribute("aria-expanded", String(open));
  }
});

// Keys.
let going = false;

function rows() {
  return [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
}

/** The row that keys act on. */
function activeRow() {
  return document.querySelector("[data-row].active");
}

// An action keeps its row active, whether it replaces a part of the page or loads the page again.
function remember() {
  const place = rows().indexOf(activeRow());
  sessionStorage.setItem("row", JSON.stringify({ path: location.pathname, place }));
}

function recall() {
  const { path, place } = JSON.parse(sessionStorage.getItem("row") ?? "{}");
  if (path === location.pathname && !activeRow()) rows()[place]?.classList.add("active");
}

document.addEventListener("htmx:beforeSwap", remember);
document.addEventListener("htmx:afterSettle", recall);
document.addEventListener("submit", remember);
document.addEventListener("DOMContentLoaded", () => {
  recall();
  sessionStorage.removeItem("row");
});

function step(by) {
  const all = rows();
  if (all.length === 0) return;
  const now = all.indexOf(activeRow());
  const next = all[Math.min(Math.max(now + by, 0), all.length - 1)];
  activeRow()?.classList.remove("active");
  next.classList.add("active");
  next.scrollIntoView({ block: "nearest" });
  (next.querySelector("a") ?? next.querySelector("button, input") ?? next).focus({ preventScroll: true });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && event.target.matches("[data-quick]")) event.target.blur();
  const typing = event.target.matches("input:not([type=checkbox]), textarea, select, [contenteditable]");
  if (typing || document.querySelector("dialog[open]")) return;
  if (going) {
    going = false;
    const entry = document.querySelector(`nav [data-go="${CSS.escape(event.key)}"]`);
    if (entry) entry.click();
    return;
  }
  const action = (activeRow() ?? document).querySelector(`[data-key="${CSS.escape(event.key)}"]`)
    ?? document.querySelector(`main [data-key="${CSS.escape(event.key)}"]:not([data-row] *)`);
  if (action) {
    event.preventDefault();
    action.click();
  } else if (event.key === "/") {
    event.preventDefault();
    document.querySelector("[data-quick]")?.focus();
  } else if (event.key === "g") going = true;
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "x") activeRow()?.querySelector('input[type="checkbox"]')?.click();
  else if (event.key === "?") document.getElementById("keys")?.showModal();
});
