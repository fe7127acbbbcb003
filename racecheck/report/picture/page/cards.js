// What decides, before the lanes: the decisive ops in columns, what explains them best, and what would repair it.
const MOST_BEATS = 6, MOST_COLUMNS = 2, MOST_FILES = 8, MOST_NODES = 6;

function showCards() {
  const first = D.runs[0], [world, after] = first.worlds;
  const isLocal = /^node-local/.test(world.storage), isAftermath = after && !isLocal && !D.runs[1];
  const explains = isAftermath ? metCard(world, after) : D.runs[1] ? storyCard(D.runs[1], "The other order passes", true)
    : isLocal ? nodesCard(world, after || world)
    : `<article class="card"><h2>How the ranks end <span class="quiet">no passing order is known</span></h2>${endsList(after || world, 8)}</article>`;
  $("cards").innerHTML = storyCard(first, isAftermath || !world.arrow.length ? "What happens" : "This order fails", false) + explains;
  showRepair();
}

function storyCard(shown, title, isCalm) {
  const place = shown.worlds[0].story.length || !shown.worlds[1] ? 0 : 1, world = shown.worlds[place];
  const ops = world.story.filter(index => !isCollective(world.events[index])).slice(-MOST_BEATS);
  const lanes = [...new Set(ops.map(index => world.events[index].lane))].sort((a, b) => a - b), columns = lanes.length <= MOST_COLUMNS ? lanes.length : 1;
  if (!ops.length) return "";
  const files = new Set(ops.map(index => frame(world.events[index].stack)).filter(Boolean).map(here => here[0])), file = files.size === 1 ? [...files][0].split("/").pop() : "";
  const beats = ops.map(index => [index, beat(shown, place, index, columns > 1 || lanes.length === 1 ? lanes.indexOf(world.events[index].lane) : 0, file, isCalm)]);
  const heads = columns === lanes.length ? `<div class="heads"><span></span>${lanes.map(lane => `<span>${esc(who(world, lane))}${world.nodes > 1 ? `, node ${world.lanes[lane][2]}` : ""}</span>`).join("")}</div>` : "";
  const told = [...beats, ...returned(world, ops)].sort((a, b) => a[0] - b[0]).map(each => each[1]).join("");
  const cut = world.crash ? `<div class="beat"><span></span><span class="cut">${esc(world.crash.name)}</span></div>` : "";
  const ends = isCalm || (!world.crash && place === 0 && (D.runs[1] || shown.worlds[1])) ? endsList(world, 3) : "";
  return `<article class="card"><h2>${place ? "The recovery fails" : title} <span class="quiet mono">${esc(file)}</span></h2><div class="story${columns < lanes.length ? " mixed" : ""}" style="--columns:${columns}" data-arrow="${world.arrow.join()}">${heads}${told}${cut}<svg class="wire${isCalm ? " calm" : ""}" aria-hidden="true"></svg></div>${ends}</article>`;
}

function beat(shown, place, index, column, file, isCalm) {
  const world = shown.worlds[place], event = world.events[index], kind = isCalm ? "" : tone(event), failed = hasFailed(event);
  const name = esc(what(event).length > 200 ? clip(what(event), 200) : what(event)).replace(/\//g, "/<wbr>");
  const end = `<span class="${failed ? "tag bad" : ODD.has(event.role) ? "tag odd" : "quiet"}">${failed ? "✕ " : ""}${esc(outcome(event))}</span>`;
  const line = frame(event.stack), code = codeOf(event.stack), at_ = file && line ? `line ${line[1]}` : lineOf(event.stack);
  return `<div class="beat" style="--column:${column + 2}"><span class="number">${index + 1}</span><button type="button" class="what${kind && ` is-${kind}`}" data-run="${D.runs.indexOf(shown)}" data-world="${place}" data-index="${index}"><span class="who">${esc(who(world, event.lane))}</span><span class="call"><span>${esc(call(event))} ${name}</span>${end}</span><span class="source-line"><i>${esc(at_)}</i> <b>${esc(code)}</b></span></button></div>`;
}

// The last saves that had returned before a crash or a kill: what it must not take.
function returned(world, ops) {
  if (ended(world) === "run") return [];
  const steps = new Map();
  for (const [before, rank, kind, step] of world.marks) if (kind === "acked") steps.set(step, [before, [...(steps.get(step) || [0, []])[1], rank]]);
  return [...steps].slice(-2).map(([step, [before, numbers]]) => [before - .5, `<div class="beat"><span></span><span class="note">${esc(ranks(numbers))}: save of step ${step} returned</span></div>`]);
}

function endsList(world, most) {
  const loaded = world.marks.filter(mark => mark[2] === "loaded");
  const lines = endings(world).slice(0, most).map(group => {
    const numbers = group.map(end => end.rank), steps = [...new Set(loaded.filter(mark => numbers.includes(mark[1])).map(mark => mark[3]))];
    const text = endText(group[0]) + (steps.length ? `, loaded step ${steps.join(", ")}` : "");
    return `<div><span class="quiet">${esc(ranks(numbers))}</span><span class="${group[0].good || group[0].echo ? "" : "bad"}">${esc(text)}</span></div>`;
  });
  return `<div class="ends">${lines.join("")}</div>`;
}

const ended = world => world.crash ? (world.crash.damaged ? "damage" : "crash") : world.events.some(event => event.role === "kill") ? "kill" : "run";

// What a recovery meets: each file, whose op changed it last, in the save of which step, and how much of it is there.
function metCard(world, after) {
  const before = treeAfter(world, world.events.length - 1), disk = recorded(world.disk);
  const files = [...disk].filter(([, entry]) => entry.kind === "f"), gone = world.crash ? [...before].filter(([path, entry]) => entry.kind === "f" && !disk.has(path)) : [];
  const hit = ([path]) => Boolean(world.crash && world.crash.files.includes(path));
  const lines = [...files, ...gone].sort((a, b) => hit(b) - hit(a)).slice(0, MOST_FILES).map(([path, entry]) => {
    const event = world.events[entry.by], rank = event ? rankOf(world, event.lane) : -1, step = event ? stepOf(world, rank, entry.by) : null;
    const state = !disk.has(path) ? `<span class="tag odd">lost</span>` : world.crash && !entry.size && before.has(path) && before.get(path).size ? `<span class="tag odd">empty</span>` : world.crash && world.crash.files.includes(path) ? `${bytes(entry.size)} <span class="tag odd">${world.crash.damaged ? "damaged" : "torn"}</span>` : bytes(entry.size);
    return { path, by: event ? `rank ${rank}, op ${entry.by + 1}` : "", step: step !== null ? `step ${step}` : event ? "the run" : "before the run", state };
  });
  const mixed = new Set(lines.filter(line => !world.crash && lines.some(other => parent(other.path) === parent(line.path) && other.step !== line.step)));
  const body = lines.map(line => `<tr><td class="mono">${esc(line.path)}</td><td>${esc(line.by)}</td><td class="${mixed.has(line) ? "tag key" : ""}">${esc(line.step)}</td><td class="number">${line.state}</td></tr>`).join("");
  const more = files.length + gone.length - lines.length, rest = more > 0 ? `<tr><td colspan="4" class="quiet">and ${more} more</td></tr>` : "";
  return `<article class="card"><h2>What the recovery meets <span class="quiet">after the ${ended(world)}</span></h2><table><thead><tr><th>file</th><th>last changed by</th><th>in the save of</th><th class="number">on disk</th></tr></thead><tbody>${body || `<tr><td colspan="4">nothing</td></tr>`}${rest}</tbody></table>${endsList(after, 3)}</article>`;
}

// What each node has, where nodes have disks of their own: what the recovery asked for first.
function nodesCard(world, after) {
  const on = new Map();
  for (const [path, entry] of recorded(world.disk)) {
    const [, node, rest] = path.match(/^node(\d+)\/(.*)$/s) || [];
    if (rest && entry.kind === "f") on.set(rest, (on.get(rest) || new Set()).add(Number(node)));
  }
  const nodes = [...Array(world.nodes).keys()].slice(0, MOST_NODES), wanted = new Set(after.story.flatMap(index => paths(after.events[index])));
  const lines = [...on].sort((a, b) => wanted.has(b[0]) - wanted.has(a[0]) || (a[0] < b[0] ? -1 : 1)).slice(0, MOST_FILES + 1);
  const cell = (path, has) => `<td class="number ${has ? "" : wanted.has(path) ? "tag bad" : "quiet"}">${has ? "✓" : wanted.has(path) ? "✕ none" : "-"}</td>`;
  const body = lines.map(([path, has]) => `<tr><td class="mono${wanted.has(path) ? " tag" : ""}">${esc(path)}</td>${nodes.map(node => cell(path, has.has(node))).join("")}</tr>`).join("");
  return `<article class="card"><h2>What each node has <span class="quiet">after the run</span></h2><table><thead><tr><th>file</th>${nodes.map(node => `<th class="number">node ${node}</th>`).join("")}</tr></thead><tbody>${body}</tbody></table>${endsList(after, 3)}</article>`;
}

function showRepair() {
  const found = [];
  if (D.runs[1]) found.push(`<p>${esc(passingText())}</p>`);
  if (D.repairs) found.push(repairTable(D.repairs));
  if (D.advice) found.push(`<p><span class="quiet">The guide, on ${esc(D.advice[0])}:</span> ${esc(D.advice[1]).replace(/`([^`]*)`/g, "<code>$1</code>")}</p>`);
  $("repair").innerHTML = `<h2>What would repair it</h2>${found.join("")}`;
  $("repair").hidden = !found.length;
}

function passingText() {
  const world = D.runs[1].worlds[0], ops = world.arrow.map(index => world.events[index]);
  if (ops.length < 2) return "A run in another order passed every invariant.";
  const name = event => `${who(world, event.lane)}'s ${call(event)} ${clipWhat(event, 64)} (${lineOf(event.stack)})`;
  return `With ${name(ops[0])} before ${name(ops[1])}, every invariant held (one run). Enforce that order, or remove the conflict.`;
}

function repairTable(table) {
  const cell = bad => `<td class="number${bad ? "" : " quiet"}">${bad < 0 ? "-" : bad || "none"}</td>`;
  const body = table.rows.map(([name, isWhole, ...bad]) => `<tr><td>${esc(name)}${isWhole ? "" : ` <span class="quiet">(not all states)</span>`}</td>${bad.map(cell).join("")}</tr>`).join("");
  return `<table><thead><tr><th>tried on this run; crash states that still fail</th>${table.models.map((model, place) => `<th class="number">${esc(model)}, of ${table.judged[place]}</th>`).join("")}</tr></thead><tbody>${body}</tbody></table>`;
}

// The arrow from one decisive op to the other, where both are in columns of their own.
function wireCards() {
  for (const box of document.querySelectorAll(".story")) {
    const svg = box.querySelector("svg.wire"), frame_ = box.getBoundingClientRect();
    const [from, to] = box.dataset.arrow.split(",").map(index => index && box.querySelector(`[data-index="${index}"]`)).map(node => node && node.getBoundingClientRect());
    svg.innerHTML = "";
    if (!from || !to) continue;
    const isSame = Math.abs(to.left - from.left) < 4, isRight = to.left > from.left;
    const x1 = (isSame || !isRight ? from.left : from.right) - frame_.left, y1 = from.top + from.height / 2 - frame_.top;
    const x2 = isSame ? x1 : to.left + to.width / 2 - frame_.left, y2 = (isSame ? to.top + to.height / 2 : to.top - 1) - frame_.top;
    svg.innerHTML = isSame ? `<path d="M${x1},${y1}C${x1 - 16},${y1} ${x1 - 16},${y2} ${x1 - 3},${y2}"/><path class="tip" d="M${x1 + 1},${y2}l-7,-4v8z"/>`
      : `<path d="M${x1},${y1}H${x2 - (isRight ? 8 : -8)}Q${x2},${y1} ${x2},${y1 + 8}V${y2 - 6}"/><path class="tip" d="M${x2},${y2}l-4,-7h8z"/>`;
  }
}

function showFoot() {
  const facts = D.facts.map(([name, text]) => `<dt>${name}</dt><dd>${esc(text)}</dd>`).join("");
  const orders = D.orderings ? `<article class="card"><h2>Orderings <span class="quiet">with these, ${D.orderings.failed} of ${D.orderings.of} random schedules failed</span></h2><ul class="mono">${D.orderings.lines.map(line => `<li>${esc(line)}</li>`).join("")}</ul></article>` : "";
  const gaps = `<article class="card"><h2>What this page derives, and lacks</h2><ul>${D.gaps.map(gap => `<li>${esc(gap)}</li>`).join("")}</ul></article>`;
  $("foot").innerHTML = `<article class="card"><h2>Run it again</h2><div class="command"><code id="replay">${esc(D.replay)}</code> </div><p><button id="copy" class="text" type="button">Copy the command</button> <button id="save" class="text" type="button">Save the finding</button></p><dl>${facts}</dl></article>${orders}${gaps}`;
}
