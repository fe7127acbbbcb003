// The pane of the chosen step: the op, the tree at that step, the source line, and where the other ranks stand.
function inspect() {
  const row = rows[at], panes = [];
  $("where").textContent = stepText(row);
  panes.push(aboutPane(row), treePane(row));
  const stack = stackOf(row);
  if (stack !== undefined) panes.push(sourcePane(stack));
  panes.push(nextPane(row));
  $("side").innerHTML = panes.join("");
  const node = $(`row${at}`);
  node ? $("rows").setAttribute("aria-activedescendant", node.id) : $("rows").removeAttribute("aria-activedescendant");
}

function stepText(row) {
  const total = row.world.events.length.toLocaleString("en"), recovery = row.number ? "Recovery, step" : "Step";
  if (row.type === "op") return `${recovery} ${(row.index + 1).toLocaleString("en")} of ${total}`;
  if (row.type === "fold") return `Steps ${row.first + 1}-${row.last + 1}`;
  return { world: "Recovery", crash: "Crash", mark: "Declared", end: "End" }[row.type];
}

const stackOf = row => row.type === "op" ? row.world.events[row.index].stack : row.type === "end" ? row.group[0].stack : undefined;

function aboutPane(row) {
  if (row.type === "op") return isCollective(row.world.events[row.index]) ? groupPane(row) : opPane(row);
  const head = { end: () => ranks(row.group.map(end => end.rank)), fold: () => count(row.last - row.first + 1, "op") }[row.type];
  const text = { end: () => endText(row.group[0]), fold: () => gist(row.world.events.slice(row.first, row.last + 1)) }[row.type] || (() => label(row));
  const help = row.type === "fold" ? `<div class="under"><kbd>Enter</kbd> ${row.open ? "folds" : "unfolds"} them</div>` : "";
  return `<section class="pane">${head ? `<div class="head">${esc(head())}</div>` : ""}<div class="under">${esc(text())}</div>${help}</section>`;
}

function groupPane(row) {
  const event = row.world.events[row.index];
  return `<section class="pane"><div class="head">${esc(S[event.call])}</div><div class="under">${esc(ranks(event.lanes.map(lane => rankOf(row.world, lane))))} took part</div></section>`;
}

function opPane(row) {
  const world = row.world, event = world.events[row.index], kind = tone(event), failed = event.errno !== undefined;
  const node = world.nodes > 1 ? `, node ${world.lanes[event.lane][2]}` : "", end = failed ? `✕ ${S[event.errno]}` : outcome(event) || "result not seen";
  const notes = [event.role && ROLES[event.role] + (event.fault === undefined ? "" : `: ${S[event.fault].replace(/^stale: /, "")}`), event.never && "did not happen before the crash", { 1: "ends differently in the other order", 2: "only in this order" }[event.differs]].filter(Boolean);
  const facts = [["call", S[event.syscall]], ["flags", S[event.flags]], ["args", S[event.args]], ["text", S[event.text]], ["time", `${(event.time / 1e6).toLocaleString("en")} ms, virtual`]].filter(fact => fact[1]);
  return `<section class="pane"><div class="head">${esc(call(event))} ${esc(what(event))}</div>` +
    `<div class="under">${esc(who(world, event.lane) + node)}${event.role === "kill" ? "" : `  →  <span class="${failed ? "tag bad" : ""}">${esc(end)}</span>`}</div>` +
    (notes.length ? `<div class="note${kind && ` is-${kind}`}">${notes.map(esc).join("<br>")}</div>` : "") +
    `<details><summary>The call in full</summary><dl>${facts.map(([name, value]) => `<dt>${name}</dt><dd class="mono">${esc(value)}</dd>`).join("")}</dl></details></section>`;
}

function sourcePane(stack) {
  const here = frame(stack);
  if (!here) return "";
  const [file, line, name, , first, text] = here, frames = D.stacks[stack][1];
  const code = text.length ? text.map((each, place) => `<div class="code${first + place === line ? " here" : ""}"><span>${first + place}</span><span>${esc(each) || " "}</span></div>`).join("")
    : `<div class="code here"><span>${line}</span><span class="quiet">the finding has no source text</span></div>`;
  const rest = frames.length < 2 ? "" : `<details><summary>${count(frames.length, "frame")}</summary><ol class="frames">${frames.map(each => `<li class="${each[3] ? "own" : ""}" title="${esc(each[0])}:${each[1]}">${esc(each[0].split("/").slice(-2).join("/"))}:${each[1]} ${esc(each[2])}</li>`).join("")}</ol></details>`;
  return `<section class="pane"><h2>Source <span class="quiet">${esc(name)}</span></h2><div class="source"><div class="file">${esc(file)}:${line}</div>${code}</div>${rest}</section>`;
}

// The next op of each lane, the lanes of decisive ops first.
function nextPane(row) {
  const world = row.world;
  if ((row.type !== "op" && row.type !== "fold") || world.lanes.length < 2) return "";
  const decisive = world.story.flatMap(index => isCollective(world.events[index]) ? [] : [world.events[index].lane]);
  const lanes = [...new Set([...decisive, ...world.lanes.keys()])].slice(0, 6).sort((a, b) => a - b), waiting = new Set(lanes), next = new Map();
  for (let index = row.index + 1; index < world.events.length && waiting.size; index++) {
    const event = world.events[index];
    for (const lane of isCollective(event) ? event.lanes : [event.lane]) if (waiting.delete(lane)) next.set(lane, event);
  }
  const items = lanes.map(lane => {
    const event = next.get(lane), thread = threadOf(world, lane), end = world.ends[rankOf(world, lane)];
    const text = event ? `${esc(call(event))} ${esc(clipWhat(event, 30))}` : `<span class="quiet">${esc(!thread && end ? endText(end) : "ends")}</span>`;
    return `<li><span class="quiet">${esc(thread || `rank ${rankOf(world, lane)}`)}</span><span class="mono">${text}</span><span class="quiet mono">${event && frame(event.stack) ? `:${frame(event.stack)[1]}` : ""}</span></li>`;
  });
  const some = lanes.length < world.lanes.length ? ` <span class="quiet">${lanes.length} of ${world.lanes.length} lanes</span>` : "";
  return `<section class="pane"><h2>Next on each rank${some}</h2><ul class="next">${items.join("")}</ul></section>`;
}
