// The watched directory at a step, as a tree: what is there, who changed it last, what this step changed.
const MOST_ENTRIES = 24, MOST_SIBLINGS = 6;
const parent = path => path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "";
const depth = path => path.split("/").length - 1;
const entryOf = ([, kind, size, text, by]) => ({ kind, size, text: text < 0 ? "" : S[text], by });
const recorded = entries => new Map(entries.map(entry => [S[entry[0]], entryOf(entry)]));

// Return the tree after an event (-1: before the first one), by path.
function treeAfter(world, index) {
  const tree = recorded(world.tree);
  for (let step = 0; step <= index; step++) {
    for (const change of world.events[step].tree || []) change.length === 1 ? tree.delete(S[change[0]]) : tree.set(S[change[0]], entryOf(change));
  }
  return tree;
}

// Return the tree that a row shows, the tree before it, and where both come from.
function treesOf(row) {
  const world = row.world, derived = world.agrees ? "derived from the ops" : "derived; the recorded end differs";
  if (row.type === "crash") return [recorded(world.disk), treeAfter(world, row.index), `as recorded, after the ${ended(world)}`];
  if (row.type === "end") return [recorded(world.disk), recorded(world.disk), "as recorded, at the end"];
  if (row.number && row.index < 0) return [recorded(world.tree), recorded(world.tree), "as recorded"];
  const after = treeAfter(world, row.index);
  if (row.type === "op") return [after, treeAfter(world, row.index - 1), derived];
  if (row.type === "fold" && !row.open) return [after, treeAfter(world, row.first - 1), derived];
  return [after, after, derived];
}

function changeOf(path, now, before) {
  const here = now.get(path), there = before.get(path);
  if (!there) return "new";
  if (!here) return "gone";
  return here.by !== there.by || here.size !== there.size || here.kind !== there.kind ? "changed" : "";
}

// Return what nodes were last answered that is not what is there: [node, path, answer].
function staleAnswers(row) {
  const found = new Map(), world = row.world;
  for (let step = 0; step <= Math.min(row.index, world.events.length - 1); step++) {
    const event = world.events[step];
    if (isCollective(event)) continue;
    const node = world.lanes[event.lane][2];
    for (const path of paths(event)) event.role === "stale" ? found.set(`${node}:${path}`, [node, path, how(event)]) : found.delete(`${node}:${path}`);
  }
  return [...found.values()];
}

function treePane(row) {
  const [now, before, source] = treesOf(row), stale = staleAnswers(row);
  const every = new Set([...now.keys(), ...before.keys()]);
  for (const path of [...every]) for (let up = parent(path); up; up = parent(up)) every.add(up);
  const sorted = [...every].sort(byParts), changed = new Map(sorted.map(path => [path, now.has(path) || before.has(path) ? changeOf(path, now, before) : ""]));
  const touched = row.type === "op" ? paths(row.world.events[row.index]) : [];
  const lines = inSight(sorted, now, new Set([...sorted.filter(path => changed.get(path)), ...touched])).map(([path, inside, up]) => {
    if (path === null) return `<li class="quiet"><i></i><span class="name">${indent(up)}… ${inside} more</span></li>`;
    const entry = now.get(path) || before.get(path) || { kind: "d", size: 0, text: "", by: -2 };
    const seen = stale.filter(each => each[1] === path).map(([node, , answer]) => `<li><i></i><span class="name tag odd">${indent(path)}└ node ${node} sees: ${esc(answer)}</span></li>`).join("");
    return treeLine(row, path, entry, changed.get(path), inside) + seen;
  });
  const missing = stale.filter(each => !every.has(each[1])).map(([node, path, answer]) => `<p class="note is-odd">node ${node} sees ${esc(path)}: ${esc(answer)}</p>`).join("");
  return `<section class="pane"><h2>Watched directory <span class="quiet">${source}</span></h2>${lines.length ? `<ul class="tree">${lines.join("")}</ul>` : `<span class="quiet">empty</span>`}${missing}</section>`;
}

const indent = path => "  ".repeat(path ? path.split("/").length : 0);
function byParts(a, b) {
  const one = a.split("/"), other = b.split("/");
  for (let place = 0; place < Math.min(one.length, other.length); place++) if (one[place] !== other[place]) return one[place] < other[place] ? -1 : 1;
  return one.length - other.length;
}

// Return [path, entries hidden in it] of what is shown; of a large tree only what is held, and a few of its neighbours.
function inSight(sorted, tree, touched) {
  const held = new Set(), siblings = new Map(), found = [];
  for (const path of touched) for (let up = path; up; up = parent(up)) held.add(up);
  let closed = null;
  for (const path of sorted) {
    if (closed !== null && path.startsWith(closed + "/")) { found[found.length - 1][1]++; continue; }
    closed = null;
    const up = parent(path), before = siblings.get(up) || 0, isLarge = sorted.length > MOST_ENTRIES && !held.has(path);
    siblings.set(up, before + 1);
    if (isLarge && (tree.get(path) || {}).kind === "d") closed = path;
    if (!isLarge || before < MOST_SIBLINGS) { found.push([path, 0, up]); continue; }
    const last = found[found.length - 1];
    last[0] === null && last[2] === up ? last[1]++ : found.push([null, 1, up]);
  }
  return found;
}

const SIGNS = { new: "+", changed: "~", gone: "−" };
function treeLine(row, path, entry, change, inside) {
  const name = path.split("/").pop() + (entry.kind === "d" ? "/" : "");
  const more = entry.kind === "s" ? ` → ${entry.text}` : entry.kind === "f" && entry.text ? `  “${clip(entry.text, 18)}”` : "";
  const hidden = inside ? `  ${count(inside, "entry", "entries")}` : "";
  return `<li class="${change}"><i>${SIGNS[change] || ""}</i><span class="name" title="${esc(path)}">${"  ".repeat(depth(path))}${esc(name)}<span class="quiet">${esc(more + hidden)}</span></span><span class="meta">${entry.kind === "f" ? bytes(entry.size) : ""}  ${esc(author(row, entry))}</span></li>`;
}

// Return who changed an entry last, and in the save of which step.
function author(row, entry) {
  if (entry.by === -2) return "";
  const event = row.world.events[entry.by];
  if (!event) return row.number ? "" : "before the run";
  const rank = rankOf(row.world, event.lane), step = stepOf(row.world, rank, entry.by);
  return `rank ${rank}` + (step === null ? "" : `, step ${step}`);
}

// Return the step that a rank had begun to save when an event came, null for none.
function stepOf(world, rank, index) {
  const begun = world.marks.filter(mark => mark[2] === "saved" && mark[1] === rank && mark[0] <= index);
  return begun.length ? begun[begun.length - 1][3] : null;
}
