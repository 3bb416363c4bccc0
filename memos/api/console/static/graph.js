// The graph of people and things: walk it by double clicks, see the relations of a name with their sources.

const box = document.getElementById("graph");

/** @typedef {{id: string, name: string, kind: string, memories: number}} Entity */
/** @typedef {{source: string, target: string, relation: string, stated: boolean, count: number, item: string,
 *   memory: string, at: string, standing: string}} Edge */

/** @param {string} role */
const colour = (role) => getComputedStyle(document.documentElement).getPropertyValue(role).trim();

/** @param {string} text @param {number} most */
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Names that are addresses of other pages; those of people are found in any capitals. */
const PAGES = new Set(["graph", "trait", "names", "merge", "split", "rollback"]);

/** Return the address of a page below one that carries the cube in its query. */
function below(base, name) {
  const [path, query] = base.split("?");
  const reserved = PAGES.has(name) ? name.toUpperCase() : name;
  return `${path}/${encodeURIComponent(reserved)}${query ? `?${query}` : ""}`;
}

class Walk {
  /** @param {any} vis */
  constructor(vis) {
    /** @type {Map<string, Entity>} */ this.entities = new Map();
    /** @type {Map<string, Edge>} */ this.relations = new Map();
    this.nodes = new vis.DataSet();
    this.edges = new vis.DataSet();
    const text = colour("--text");
    this.network = new vis.Network(box, { nodes: this.nodes, edges: this.edges }, {
      autoResize: true,
      nodes: { shape: "dot", font: { color: text, size: 13, face: "system-ui, sans-serif" }, scaling: { min: 6, max: 30 } },
      edges: {
        color: { color: colour("--line"), highlight: colour("--accent"), hover: colour("--accent") },
        font: { color: colour("--muted"), size: 10, strokeWidth: 3, strokeColor: colour("--card") },
        smooth: false,
      },
      interaction: { hover: true, tooltipDelay: 100000, hideEdgesOnDrag: true, keyboard: false },
      physics: { solver: "forceAtlas2Based", stabilization: { iterations: 60, updateInterval: 20 }, timestep: 0.6 },
      layout: { improvedLayout: false, randomSeed: 7 },
    });
    this.network.on("stabilizationIterationsDone", () => this.network.setOptions({ physics: false }));
    this.network.on("selectNode", (event) => this.show(event.nodes[0]));
    this.network.on("doubleClick", (event) => event.nodes[0] && this.expand(event.nodes[0]));
  }

  /** @param {Entity[]} entities @param {Edge[]} relations */
  add(entities, relations) {
    const fresh = entities.filter((each) => !this.entities.has(each.id));
    for (const each of fresh) this.entities.set(each.id, each);
    this.nodes.add(fresh.map((each) => ({
      id: each.id, label: short(each.name, 30), value: Math.sqrt(each.memories),
      color: { background: colour(each.kind === "person" ? "--accent" : "--muted"), border: colour("--card"),
        highlight: { background: colour("--link"), border: colour("--text") } },
    })));
    const added = [];
    for (const each of relations) {
      const id = JSON.stringify([each.source, each.target, each.relation]);
      if (this.relations.has(id) || !this.entities.has(each.source) || !this.entities.has(each.target)) continue;
      this.relations.set(id, each);
      added.push({
        id, from: each.source, to: each.target, arrows: each.relation === "named with" ? "" : { to: { scaleFactor: 0.5 } },
        label: each.stated ? short(each.relation.replaceAll("_", " "), 24) : undefined,
        width: each.stated ? 2 : 1, dashes: each.standing !== "current", hidden: this.hides(each),
      });
    }
    this.edges.add(added);
    this.network.setOptions({ physics: { enabled: true } });
    this.network.stabilize(this.nodes.length > 500 ? 30 : 60);
  }

  /** @param {Edge} edge */
  hides(edge) {
    return document.getElementById("stated").checked && !edge.stated;
  }

  filter() {
    this.edges.update([...this.relations].map(([id, each]) => ({ id, hidden: this.hides(each) })));
  }

  /** @param {string} text */
  find(text) {
    const wanted = text.trim().toLowerCase();
    const found = wanted && [...this.entities.values()].find((each) => each.name.toLowerCase().startsWith(wanted))
      || wanted && [...this.entities.values()].find((each) => each.name.toLowerCase().includes(wanted));
    if (!found) return;
    this.network.selectNodes([found.id]);
    this.network.focus(found.id, { scale: 1.2, animation: false });
    this.show(found.id);
  }

  /** Add what is around a name. @param {string} id */
  async expand(id) {
    const query = new URLSearchParams({ cube: box.dataset.cube, name: id, limit: "60" });
    try {
      const around = await window.memos.api("GET", `/graph/neighbours?${query}`);
      this.add([around.entity, ...around.neighbours], around.edges);
      this.show(id);
    } catch (error) {
      window.memos.notify(error.message);
    }
  }

  /** Show a name's relations. @param {string} id */
  show(id) {
    const entity = this.entities.get(id);
    if (!entity) return;
    const chosen = document.getElementById("chosen");
    const title = make("h2", "");
    const link = make("a", short(entity.name, 80));
    link.href = below(box.dataset.people, entity.name);
    title.append(link);
    const more = make("button", "Add what is around it");
    more.type = "button";
    more.addEventListener("click", () => this.expand(id));
    const list = make("ul", "");
    list.className = "edges";
    const mine = [...this.relations.values()].filter((each) => each.source === id || each.target === id);
    for (const each of mine.filter((edge) => !this.hides(edge)).slice(0, 60)) {
      const row = make("li", "");
      const ends = [each.source, each.target].map((end) => short(this.entities.get(end).name, 40));
      row.append(make("span", `${ends[0]} · ${each.relation.replaceAll("_", " ")} · ${ends[1]}`));
      if (each.standing !== "current") row.append(make("span", ` (${each.standing.replaceAll("_", " ")})`));
      const why = make("span", `“${short(each.memory, 140)}” ${each.at.slice(0, 10)} `);
      why.className = "why";
      const source = make("a", "Open");
      source.href = below(box.dataset.memories, each.item);
      why.append(source);
      row.append(why);
      list.append(row);
    }
    chosen.replaceChildren(title, make("p", `${entity.kind}, ${entity.memories.toLocaleString("en")} memories`), more, list);
  }
}

const { make } = window.memos;

/** Say how much there is, and fill the table; texts stay texts. */
function tell({ entities, edges, complete }, most) {
  document.getElementById("nothing").hidden = entities.length > 0;
  document.getElementById("shown").hidden = entities.length === 0;
  const number = (count) => count.toLocaleString("en");
  document.getElementById("told").textContent = `${number(entities.length)} names, ${number(edges.length)} relations`
    + (complete ? "." : ", from the newest memories; there are more.");
  document.getElementById("table-told").textContent =
    edges.length > most ? `The first ${number(most)} of ${number(edges.length)} relations.` : "";
  const names = new Map(entities.map((each) => [each.id, each.name]));
  const person = (id) => {
    const name = names.get(id) ?? id;
    const link = make("a", "", { href: below(box.dataset.people, name) }, make("bdi", short(name, 60)));
    return make("td", "", { class: "wrap" }, link);
  };
  document.getElementById("relations").replaceChildren(...edges.slice(0, most).map((edge) => {
    const relation = make("td", `${short(edge.relation.replaceAll("_", " "), 40)} `);
    if (edge.standing !== "current") {
      relation.append(make("span", edge.standing.replaceAll("_", " "), { class: `badge standing-${edge.standing}` }));
    }
    const source = make("a", "Open", { href: below(box.dataset.memories, edge.item) });
    return make("tr", "", { "data-row": "" }, person(edge.source), relation, person(edge.target),
      make("td", number(edge.count), { class: "number" }),
      make("td", `“${short(edge.memory, 100)}” `, { class: "wrap" }, source));
  }));
}

async function start() {
  const walk = new Walk(window.vis);
  document.getElementById("stated").addEventListener("change", () => walk.filter());
  document.getElementById("find").addEventListener("change", (event) => walk.find(event.target.value));
  document.getElementById("fit").addEventListener("click", () => walk.network.fit({ animation: false }));
  const { cube, name, kind, limit } = box.dataset;
  if (name) {
    await walk.expand(name);
    const first = walk.entities.keys().next().value;
    if (first) walk.show(first);
  } else {
    const query = new URLSearchParams({ cube, kind, limit, least: "2" });
    const found = await window.memos.api("GET", `/graph?${query}`);
    if (box.dataset.table) tell(found, Number(box.dataset.table));
    if (!found.entities.length) return;
    walk.add(found.entities, found.edges);
  }
  box.dataset.ready = "true";
}

if (box) start().catch((error) => window.memos.notify(error.message));
