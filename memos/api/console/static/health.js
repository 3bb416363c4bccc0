// Verifies one cube after another, shows how far it is, and can be stopped between two.

const form = document.getElementById("verify");
const bar = document.getElementById("verified");
const step = document.querySelector("[data-step]");
const stop = document.querySelector("[data-stop]");
const reports = document.getElementById("reports");
const SHOWN = 100;
let stopped = false;

/** Return an element with a text, which is never read as HTML. */
const element = (name, text = "", kind = "") => window.memos.make(name, text, kind ? { class: kind } : {});

/** Show what a verification found. */
function show(cube, told, badge, kind, lines) {
  const report = element("div", "", "report");
  const head = element("p");
  head.append(element("strong", cube, "wrap"), " ", element("span", badge, `badge ${kind}`), " ", element("span", told, "muted"));
  report.append(head);
  if (lines.length) {
    const list = element("ul");
    list.append(...lines.slice(0, SHOWN).map((line) => element("li", line, "wrap")));
    report.append(list);
  }
  reports.append(report);
}

async function verify(cube, repair) {
  const found = await window.memos.api("POST", `/cubes/${encodeURIComponent(cube)}/verify`, { repair });
  const count = found.differences.length;
  const told = `${found.items.toLocaleString("en")} memories${found.repaired ? `, ${found.repaired} repairs` : ""}`;
  const lines = found.differences.map((each) => `${each.store}: ${each.kind} ${each.subject}, ${each.detail}`);
  show(cube, told, found.clean ? "no differences" : `${count} difference${count === 1 ? "" : "s"}`, found.clean ? "good" : "warn", lines);
  return count;
}

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const chosen = form.elements.scope.value;
  const cubes = chosen ? [chosen] : [...form.elements.scope.options].map((each) => each.value).filter(Boolean);
  const repair = form.elements.repair?.checked ?? false;
  const start = form.querySelector("button.primary");
  const area = document.getElementById("verifying");
  stopped = false;
  reports.replaceChildren();
  area.hidden = false;
  start.disabled = true;
  stop.hidden = false;
  bar.max = cubes.length;
  bar.value = 0;
  let differences = 0;
  for (const [place, cube] of cubes.entries()) {
    if (stopped) break;
    step.textContent = `${cube}: ${place + 1} of ${cubes.length}`;
    try {
      differences += await verify(cube, repair);
    } catch (error) {
      show(cube, error.message, "not verified", "bad", []);
    }
    bar.value = place + 1;
  }
  step.textContent = `${bar.value} of ${cubes.length} verified, ${differences} difference${differences === 1 ? "" : "s"}`;
  start.disabled = false;
  stop.hidden = true;
  start.focus();
});

stop?.addEventListener("click", () => {
  stopped = true;
});
