// Review by keyboard: after a decision the next case is active; the edit form opens, submits and closes by keys.

/** @returns {HTMLElement[]} */
const cases = () => [...document.querySelectorAll("#queue > .case")];

/** @param {HTMLElement | undefined} next */
function activate(next) {
  for (const each of cases()) each.classList.toggle("active", each === next);
  next?.scrollIntoView({ block: "nearest" });
  next?.focus({ preventScroll: true });
}

/** Keep the empty state in step with the queue, and fetch the rest when these are decided. */
function settle() {
  const left = cases().length;
  const status = document.getElementById("review-status");
  const show = document.getElementById("queue").dataset.show;
  const { waiting, pending, relations } = status.dataset;
  const more = Number({ all: waiting, memories: pending, corrections: relations }[show]);
  document.getElementById("review-empty").hidden = left > 0 || more > 0;
  if (left === 0 && more > 0) location.reload();
}

let place = 0;
document.body.addEventListener("htmx:beforeSwap", (event) => {
  const at = cases().indexOf(event.detail.target);
  if (at >= 0) place = at;
  else if (event.detail.target.id === "queue") place = 0;
  else return;
  document.body.addEventListener("htmx:afterSettle", () => {
    document.getElementById("problem").replaceChildren(); // what an earlier decision met is settled
    const all = cases();
    activate(all[Math.min(place, all.length - 1)]);
    settle();
  }, { once: true });
});

document.addEventListener("toggle", (event) => {
  if (event.target.matches("details.edit") && event.target.open) {
    const area = event.target.querySelector("textarea");
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}, true);

document.addEventListener("keydown", (event) => {
  const edit = event.target.closest?.("details.edit");
  if (edit && event.target.matches("textarea")) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) edit.querySelector("form").requestSubmit();
    else if (event.key === "Escape") {
      edit.open = false;
      activate(edit.closest(".case"));
    }
  }
});

// The row that j and k lead to gets the focus itself, so that it is read out.
document.addEventListener("keyup", (event) => {
  const now = window.memos.activeRow();
  if ((event.key === "j" || event.key === "k") && now && !event.target.matches("input, textarea")) {
    now.focus({ preventScroll: true });
  }
});

document.getElementById("queue").addEventListener("focusin", (event) => {
  const into = event.target.closest(".case");
  if (into && !into.classList.contains("active")) for (const each of cases()) each.classList.toggle("active", each === into);
});

cases()[0]?.classList.add("active");
