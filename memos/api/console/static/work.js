// Work as it happens: an event of the cube, or a task under way, has the lists fetched again.

const root = document.querySelector('meta[name="root"]').content;
const live = document.getElementById("live");
const told = document.getElementById("live-state");
const SOON_MS = 400;
const BUSY_MS = 2000;

let queued = 0;
let fetching = false;

/** Fetch the lists, and keep the active row and the focus. */
async function refresh() {
  queued = 0;
  if (fetching || document.hidden) return soon();
  fetching = true;
  const active = document.querySelector("#live [data-row].active")?.id;
  const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
  try {
    const answer = await fetch(live.dataset.here, { headers: { "HX-Request": "true" } });
    if (answer.ok && !answer.headers.get("HX-Redirect")) {
      window.htmx.swap("#live", await answer.text(), { swapStyle: "innerHTML" });
      if (active) document.getElementById(active)?.classList.add("active");
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    }
  } finally {
    fetching = false;
  }
}

function soon() {
  if (!queued) queued = setTimeout(refresh, SOON_MS);
}

/** @param {boolean} on */
function say(on) {
  told.classList.toggle("on", on);
  told.textContent = on ? "Live" : "Not live at the moment; it tries again";
}

// The answer of a button replaces the lists, too: the row it was in stays the active one.
let chosen = "";
document.body.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target === live) chosen = live.querySelector("[data-row].active")?.id ?? "";
});
document.body.addEventListener("htmx:afterSettle", (event) => {
  if (event.detail.target === live && chosen) document.getElementById(chosen)?.classList.add("active");
});

// A key without a chosen task must not act on the first one.
window.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey;
  if (!typing && (event.key === "r" || event.key === "c") && !window.memos.activeRow()) {
    event.stopPropagation();
    window.memos.notify("Choose a task first: j and k step through them.");
  }
}, true);

if (!live.dataset.paged) {
  if (live.dataset.cube) {
    const events = new EventSource(`${root}/api/events/stream?cube=${encodeURIComponent(live.dataset.cube)}&timeout_s=3600`);
    for (const kind of live.dataset.kinds.split(" ")) events.addEventListener(kind, soon);
    events.addEventListener("open", () => say(true));
    events.addEventListener("error", () => say(false));
    window.addEventListener("pagehide", () => events.close());
  }
  setInterval(() => {
    if (document.getElementById("live-body")?.dataset.busy) soon();
  }, BUSY_MS);
}
