// The interleaving: a lane for each thread, a row for each step.  Only the rows near the window are in the document.
const ROW = 26, GUTTER = 64, WIDE = 210, BLOCK = 24, MOST_PRINTED = 2000;
let laneWidth = 0, isWide = true, nameLength = 7, charWidth = 7.5, textLeft = 0, shown = [-1, -1], everything = false;
const blocks = new Map();

const laneX = lane => GUTTER + (isWide ? lane * laneWidth + 8 : lane * laneWidth + laneWidth / 2);

function layout() {
  const box = $("rows"), width = box.clientWidth || 800, lanes = Math.max(...run.worlds.map(world => world.lanes.length));
  isWide = (width - GUTTER) / lanes >= WIDE;
  laneWidth = isWide ? (width - GUTTER) / lanes : Math.max(lanes <= 6 ? 16 : 5.5, Math.min(lanes < 13 ? 30 : 22, (width - GUTTER - 340) / lanes));
  textLeft = isWide ? GUTTER : GUTTER + lanes * laneWidth + 14;
  nameLength = Math.min(16, Math.max(...run.worlds.flatMap(world => world.lanes.map(lane => lane[1].length))) + 2.2);
  box.style.height = rows.length * ROW + "px";
  const lines = run.worlds.flatMap(world => world.lanes.map((lane, number) => {
    const top = world.from * ROW, height = laneEnd(world, lane[0]) - top;
    return `<i class="lane${world.lanes.length > 16 && number % 8 ? " pale" : ""}" style="left:${laneX(number)}px;top:${top}px;height:${height}px"></i>`;
  }));
  box.innerHTML = lines.join("") + `<svg id="wire" class="wire" aria-hidden="true"></svg><div id="view" role="presentation"></div>`;
  drawHeads();
  drawArrow();
  shown = [-1, -1];
  paint();
}

// A lane ends where its rank was killed, or with the row that says how the rank ended.
function laneEnd(world, rank) {
  const killed = world.events.find(event => event.role === "kill" && (S[event.fault].startsWith("kill-job") || rankOf(world, event.lane) === rank));
  if (killed) return (killed.row + .5) * ROW;
  const end = rows.find(row => row.type === "end" && row.world === world && row.group.some(each => each.rank === rank));
  return ((end ? end.place : world.to - 1) + .5) * ROW;
}

function drawHeads() {
  const world = run.worlds[0];
  let html = "", node = -1;
  world.lanes.forEach(([rank, , here], lane) => {
    const x = laneX(lane), thread = threadOf(world, lane), isLast = lane === world.lanes.length - 1;
    if (world.nodes > 1 && here !== node) html += `<span class="node" style="left:${isWide ? x - 4 : x - laneWidth / 2}px">node ${here}</span>`;
    if (isWide) html += `<span class="rank" style="left:${x - 4}px">${thread ? `<i>rank ${rank} thread ${esc(thread)}</i>` : `rank ${rank}`}</span>`;
    else if (laneWidth >= 11 || rank % 8 === 0 || isLast) html += `<span class="rank thin" style="left:${x}px">${thread ? esc(thread.replace("worker", "w")) : rank}</span>`;
    node = here;
  });
  if (!isWide) html += `<span class="rank" style="left:${textLeft}px"><i>rank and op</i></span><span style="left:14px;bottom:4px">rank</span>`;
  $("lanes").innerHTML = html;
}

function drawArrow() {
  const world = run.worlds[0], [from, to] = world.arrow.map(index => world.events[index]);
  if (!from || !to) return;
  const start = { x: laneX(from.lane), y: (from.row + .5) * ROW }, end = { x: laneX(to.lane), y: (to.row + .5) * ROW };
  const side = Math.sign(end.x - start.x);
  if (!side) $("wire").innerHTML = `<path d="M${start.x - 4},${start.y}C${start.x - 22},${start.y} ${start.x - 22},${end.y} ${start.x - 9},${end.y}"/><path class="tip" d="M${end.x - 6},${end.y}l-8,-4.5v9z"/>`;
  else if (side < 0) $("wire").innerHTML = `<path d="M${start.x - 6},${start.y}H${end.x + 8}Q${end.x},${start.y} ${end.x},${start.y + 8}V${end.y - 10}"/><path class="tip" d="M${end.x},${end.y - 5}l-4.5,-8h9z"/>`;
  else $("wire").innerHTML = `<path d="M${start.x},${start.y + 6}V${end.y - 8}Q${start.x},${end.y} ${start.x + 8},${end.y}H${end.x - 11}"/><path class="tip" d="M${end.x - 6},${end.y}l-8,-4.5v9z"/>`;
}

function paint() {
  const view = $("view"), top = -$("rows").getBoundingClientRect().top, number = Math.ceil(rows.length / BLOCK);
  const first = everything ? 0 : Math.max(0, Math.floor(top / ROW / BLOCK - .5));
  const last = everything ? number : Math.min(number, Math.ceil((top + innerHeight) / ROW / BLOCK + .5));
  if (shown[0] < 0) { view.textContent = ""; blocks.clear(); }
  else if (first === shown[0] && last === shown[1]) return;
  for (const [block, node] of blocks) if (block < first || block >= last) { node.remove(); blocks.delete(block); }
  for (let block = first; block < last; block++) {
    if (blocks.has(block)) continue;
    const node = document.createElement("div");
    node.role = "presentation";
    node.innerHTML = rows.slice(block * BLOCK, (block + 1) * BLOCK).map(drawRow).join("");
    blocks.set(block, node);
    view.append(node);
  }
  shown = [first, last];
}
const repaint = () => { shown = [-1, -1]; paint(); };

function drawRow(row) {
  const [kind, inner] = DRAWN[row.type](row), chosen = row.place === at;
  const expanded = row.type === "fold" ? ` aria-expanded="${row.open}"` : "";
  return `<div class="row ${kind}${chosen ? " chosen" : ""}${row.hit ? " hit" : ""}" id="row${row.place}" data-row="${row.place}" role="treeitem" aria-level="${row.inside ? 2 : 1}" aria-selected="${chosen}" aria-setsize="${rows.length}" aria-posinset="${row.place + 1}"${expanded} style="top:${row.place * ROW}px"><span class="unseen">${esc(label(row))}</span><span class="drawn" aria-hidden="true">${inner}</span></div>`;
}
const say = (left, html, width) => `<span class="say" style="left:${left}px;${width ? `width:${width}px` : "right:0"}">${html}</span>`;

const DRAWN = {
  world: row => ["world", `<span class="rule"></span><span class="label">${row.label} <i>${esc(row.note)}</i></span>`],
  crash: row => ["crash", `<span class="rule"></span><span class="label">${esc(row.label)}</span>`],
  mark: row => [`mark ${row.kind}`, atLanes(row, row.ranks, "flag", markText(row))],
  end: row => {
    const bad = !row.group[0].good && !row.group[0].echo;
    return [bad ? "end bad" : "end", atLanes(row, row.group.map(end => end.rank), "cap", endText(row.group[0]))];
  },
  fold: drawFold,
  op: row => isCollective(row.world.events[row.index]) ? drawCollective(row) : drawOp(row),
};

// A sign on the lane of each of these ranks, with a text beside it: once where lanes are thin.
function atLanes(row, numbers, sign, text) {
  const lanes = numbers.map(rank => row.world.lanes.findIndex(lane => lane[0] === rank));
  const signs = lanes.map(lane => `<i class="${sign}" style="left:${laneX(lane)}px"></i>`).join("");
  if (!isWide) return signs + say(textLeft, esc(`${ranks(numbers)} ${text}`));
  return signs + lanes.map(lane => say(laneX(lane) + 14, esc(text), laneWidth - 26)).join("");
}

function drawFold(row) {
  const events = row.world.events.slice(row.first, row.last + 1), lanes = [...new Set(events.flatMap(event => isCollective(event) ? [] : [event.lane]))];
  const isOne = isWide && lanes.length === 1, left = isOne ? laneX(lanes[0]) + 14 : isWide ? GUTTER + 14 : textLeft;
  const where = lanes.length === 1 || (isWide && lanes.length < 3) ? "" : ` on ${count(lanes.length, "lane")}`;
  const text = `<b>${row.open ? "▾" : "▸"} ${count(events.length, events.some(isCollective) ? "event" : "op")}</b>${where}  ${esc(gist(events))}`;
  const stubs = lanes.length > 70 ? "" : lanes.map(lane => `<i class="stub" style="left:${laneX(lane)}px"></i>`).join("");
  return ["fold", stubs + say(left, text, isOne && laneWidth - 26)];
}

const number = row => `<span class="number">${row.index + 1}</span>`;

function drawCollective(row) {
  const event = row.world.events[row.index], first = laneX(event.lanes[0] || 0), last = laneX(event.lanes[event.lanes.length - 1] || 0), text = esc(S[event.call]);
  if (isWide) return ["", number(row) + `<span class="group" style="left:${first - 6}px;width:${Math.max(120, last - first + laneWidth - 14)}px">${text}</span>`];
  return ["plain", number(row) + `<span class="group thin" style="left:${first - 4}px;width:${last - first + 8}px"></span>` + say(textLeft, text)];
}

function drawOp(row) {
  const world = row.world, event = world.events[row.index], kind = tone(event), x = laneX(event.lane);
  const left = isWide ? x + 14 : textLeft, width = isWide ? laneWidth - 26 : $("rows").clientWidth - textLeft - 4;
  const name = isWide ? "" : `<span class="who" style="width:${nameLength * charWidth}px">r${esc(world.lanes[event.lane][1])}</span>`;
  const end = clip(outcome(event), 40), failed = hasFailed(event);
  const room = Math.floor(width / charWidth) - call(event).length - end.length - (isWide ? 5 : 6 + nameLength);
  const tint = failed ? " bad" : ODD.has(event.role) ? " odd" : "";
  const differs = event.differs === 1 ? `  <span class="differs" title="ends differently in the other order">≠</span>` : "";
  const text = `${name}${esc(call(event))} ${esc(clipWhat(event, Math.max(8, room)))}  <span class="how${tint}">${failed ? "✕ " : ""}${esc(end)}</span>${differs}`;
  const pill = kind ? `<span class="pill" style="left:${left - 6}px;width:${width + 4}px"></span>` : "";
  return [`${kind}${event.never ? " never" : ""}${row.inside || !kind ? " plain" : ""}`, `${number(row)}${pill}<i class="dot" style="left:${x}px"></i>${say(left, text, width)}`];
}
