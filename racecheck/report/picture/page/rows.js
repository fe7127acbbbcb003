// The rows of a run, in order: ops, folds of ops, declared saves and loads, a crash, how ranks ended, the next world.
const SMALL = 14;

// Return [first, last, is folded] for each stretch of events: three or more that nothing keeps in sight are folded.
function stretches(events) {
  const found = [];
  for (let first = 0; first < events.length; first++) {
    if (events[first].keep || events.length <= SMALL) { found.push([first, first, false]); continue; }
    let last = first;
    while (last + 1 < events.length && !events[last + 1].keep) last++;
    found.push(...parts(events, first, last));
    first = last;
  }
  return found;
}

// Split a stretch at its context switches where these are few.
function parts(events, first, last) {
  const starts = [first];
  for (let index = first + 1; index <= last; index++) if (events[index].lane !== events[index - 1].lane) starts.push(index);
  const pieces = starts.length <= 4 ? starts.map((start, number) => [start, (starts[number + 1] || last + 1) - 1]) : [[first, last]];
  return pieces.flatMap(([start, end]) => end - start >= 2 ? [[start, end, true]]
    : Array.from({ length: end - start + 1 }, (_, number) => [start + number, start + number, false]));
}

function build() {
  rows = [];
  run.worlds.forEach((world, number) => {
    if (number) rows.push({ type: "world", world, number, label: "Recovery", note: `${count(new Set(world.lanes.map(lane => lane[0])).size, "rank")} on the disk that the ${ended(run.worlds[0])} left` });
    world.from = rows.length;
    addEvents(world, number);
    if (world.crash) rows.push({ type: "crash", world, number, index: world.events.length - 1, label: crashText(world.crash) });
    else for (const group of endings(world)) rows.push({ type: "end", world, number, group, index: world.events.length - 1 });
    world.to = rows.length;
  });
  rows.forEach((row, place) => {
    row.place = place;
    if (row.type === "op") row.world.events[row.index].row = place;
    if (row.type === "fold" && !row.open) for (let index = row.first; index <= row.last; index++) row.world.events[index].row = place;
  });
  layout();
}

function addEvents(world, number) {
  const marks = markRows(world, number);
  const upTo = index => { while (marks.length && marks[0].before <= index) rows.push(marks.shift()); };
  for (const [first, last, folded] of stretches(world.events)) {
    upTo(first);
    if (!folded) { rows.push({ type: "op", world, number, index: first }); continue; }
    const id = `${D.runs.indexOf(run)}.${number}.${first}`, isOpen = all || open.has(id);
    rows.push({ type: "fold", world, number, index: last, first, last, id, open: isOpen });
    for (let index = first; isOpen && index <= last; index++) { upTo(index); rows.push({ type: "op", world, number, index, inside: true }); }
  }
  upTo(Infinity);
}

// What ranks declared, one row for all that declared the same at the same time.
function markRows(world, number) {
  const found = [];
  for (const [before, rank, kind, step, checkpoint] of world.marks) {
    const last = found[found.length - 1];
    if (last && last.before === before && last.kind === kind && last.step === step) last.ranks.push(rank);
    else found.push({ type: "mark", world, number, before, index: before - 1, ranks: [rank], kind, step, checkpoint });
  }
  return found;
}

function crashText(crash) {
  if (crash.damaged) return crash.name;
  const took = [crash.lost.length && `${count(crash.lost.length, "op")} lost`, crash.torn.length && `${count(crash.torn.length, "op")} torn`].filter(Boolean);
  return `${crash.name}: ${took.join(", ") || "nothing lost"}`;
}

// How ranks ended, those that ended alike together, failures first.
function endings(world) {
  const groups = new Map();
  for (const end of world.ends) {
    const key = end.echo ? `echo ${brief(end)}` : end.text;
    groups.has(key) ? groups.get(key).push(end) : groups.set(key, [end]);
  }
  return [...groups.values()].sort((a, b) => a[0].good - b[0].good || a[0].echo - b[0].echo);
}
const brief = end => end.text.replace(/^raised |^did not end: /, "").split(":")[0];
const endText = end => end.echo ? `${brief(end)}, only because a peer failed` : end.text;

// What a fold holds, in a few words: what it changed, then its calls by number.
function gist(events) {
  const calls = new Map();
  for (const event of events) { const name = S[event.call].replace(/ #\d+.*/, ""); calls.set(name, (calls.get(name) || 0) + 1); }
  const counted = [...calls].map(([name, number]) => number > 1 ? `${name} ×${number}` : name).slice(0, 7).join(", ");
  const changed = events.filter(event => event.changes);
  if (!changed.length || changed.length > 3) return counted;
  return `incl. ${changed.map(event => `${S[event.call]} ${clipWhat(event, 34)}`).join(", ")}; ${counted}`;
}

function label(row) {
  if (row.type === "world") return `${row.label}: ${row.note}`;
  if (row.type === "crash") return row.label;
  if (row.type === "mark") return `${ranks(row.ranks)}: ${markText(row)}`;
  if (row.type === "end") return `${ranks(row.group.map(end => end.rank))} ${endText(row.group[0])}`;
  if (row.type === "fold") return `${count(row.last - row.first + 1, "op")} folded, ${gist(row.world.events.slice(row.first, row.last + 1))}. Enter ${row.open ? "closes" : "opens"}`;
  const event = row.world.events[row.index];
  if (isCollective(event)) return `step ${row.index + 1}, ${S[event.call]}, ${ranks(event.lanes.map(lane => rankOf(row.world, lane)))}`;
  return `step ${row.index + 1}, ${who(row.world, event.lane)}, ${call(event)} ${what(event)}, ${outcome(event)}${event.role ? ", " + ROLES[event.role] : ""}`;
}
