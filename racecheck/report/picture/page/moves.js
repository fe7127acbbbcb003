// Moving through a run: step by step, from switch to switch, by search; folds and runs.
let told = false;  // the address names the step as soon as somebody has moved

// "step-22" in the run, "recovery-step-3" in its recovery: what an address ends with.
function stepName(row) {
  const number = Math.max(0, row.type === "fold" ? row.first : row.index) + 1;
  return `${row.number ? "recovery-" : ""}step-${number}`;
}

// The row that an address names; none for another address.
function namedRow(address) {
  const found = address.match(/^#(recovery-)?step-(\d+)$/), world = found && run.worlds[found[1] ? 1 : 0];
  return world && world.events[found[2] - 1] ? reveal(world, found[2] - 1) : undefined;
}

function go(place, scrolls = true) {
  at = Math.max(0, Math.min(rows.length - 1, place));
  if (scrolls) {
    const y = $("rows").getBoundingClientRect().top + at * ROW;
    if (y < 100 || y > innerHeight - 80) scrollBy(0, y - innerHeight * .42);
  }
  repaint();
  inspect();
  if (told) history.replaceState(null, "", `#${stepName(rows[at])}`);
  $("live").textContent = label(rows[at]);
}

function toggle(place) {
  const row = rows[place];
  if (row.type !== "fold") return;
  if (all) { all = false; for (const each of rows) if (each.type === "fold") open.add(each.id); showFolding(); }
  open.has(row.id) ? open.delete(row.id) : open.add(row.id);
  rebuild();
  go(place, false);
}

const rebuild = () => { build(); search(false); };
const showFolding = () => { $("unfold").textContent = all ? "Fold" : "Unfold all"; $("unfold").setAttribute("aria-pressed", all); };

function unfold() {
  const row = rows[at], event = row.world.events[Math.max(0, row.type === "fold" ? row.first : row.index)];
  all = !all;
  if (!all) open.clear();
  showFolding();
  rebuild();
  go(event ? event.row : 0);
}

// Open the fold that an event is in; return the event's row.
function reveal(world, index) {
  const row = rows[world.events[index].row];
  if (row.type === "fold" && !row.open) { open.add(row.id); rebuild(); }
  return world.events[index].row;
}

function nextSwitch(by) {
  const row = rows[at], world = row.world, isFolded = row.type === "fold" && !row.open;
  let index = isFolded ? (by > 0 ? row.last : row.first) : Math.max(0, row.index);
  let lane = world.events[index] && world.events[index].lane;
  for (index += by; index >= 0 && index < world.events.length; index += by) {
    const next = world.events[index].lane;
    if (next === undefined) continue;
    if (lane !== undefined && next !== lane) return go(reveal(world, index));
    lane = next;
  }
  const other = run.worlds[row.number + by];
  if (other && other.events.length) return go(reveal(other, by > 0 ? 0 : other.events.length - 1));
  go(by > 0 ? rows.length - 1 : 0);
}

function nextKey(by) {
  for (let place = at + by; place >= 0 && place < rows.length; place += by) {
    const row = rows[place];
    if (row.type === "crash" || (row.type === "op" && row.world.events[row.index].role)) return go(place);
  }
}

function search(jumps = true) {
  const text = $("find").value.trim().toLowerCase(), rank = text.match(/^(?:rank|r)\s*(\d+)$/);
  hits = [];
  for (const row of rows) row.hit = false;
  if (text) for (const world of run.worlds) world.events.forEach((event, index) => {
    const isHit = rank ? (isCollective(event) ? event.lanes : [event.lane]).some(lane => rankOf(world, lane) === Number(rank[1]))
      : [call(event), what(event), how(event), event.errno === undefined ? "" : S[event.errno]].join(" ").toLowerCase().includes(text);
    if (isHit) { hits.push([world, index]); rows[event.row].hit = true; }
  });
  $("hits").textContent = text ? count(hits.length, "match", "matches") : "";
  if (!jumps) return repaint();
  repaint();
  if (hits.length && text.length > 1) go(hits[0][0].events[hits[0][1]].row);
}

function nextHit(by) {
  if (!hits.length) return;
  const row = rows[at], order = (world, index) => run.worlds.indexOf(world) * 1e9 + index, here = row.number * 1e9 + (row.type === "fold" && !row.open ? row.first - .5 : row.index);
  const list = by > 0 ? hits : [...hits].reverse();
  go(reveal(...(list.find(([world, index]) => by * (order(world, index) - here) > 0) || list[0])));
}

function choose(place) {
  run = D.runs[place];
  open.clear();
  [...$("runs").children].forEach((button, each) => button.setAttribute("aria-pressed", each === place));
  rebuild();
  go(home(), false);
}

// The row to begin with: the end of the arrow, else the last decisive event, else the last row.
function home() {
  const world = run.worlds.find(each => each.story.length) || run.worlds[0];
  const index = world.arrow.length ? world.arrow[1] : world.story[world.story.length - 1];
  return world.events[index] ? world.events[index].row : rows.length - 1;
}
