"use strict";
// What the page shows, and words for it.  Texts come from outside: each goes through `esc` before it becomes HTML.
const D = JSON.parse(document.getElementById("data").textContent), S = D.strings;
const $ = id => document.getElementById(id);
const esc = text => String(text).replace(/[&<>"']/g, char => `&#${char.charCodeAt(0)};`);
const count = (number, one, more) => `${number.toLocaleString("en")} ${number === 1 ? one : more || one + "s"}`;
const bytes = size => size < 1024 ? `${size} B` : size < 1048576 ? `${(size / 1024).toFixed(1)} kB` : `${(size / 1048576).toFixed(1)} MB`;

// Cut a text in its middle: names differ at their ends.
function clip(text, room) {
  if (text.length <= room) return text;
  if (room < 4) return "…";
  const head = Math.floor((room - 1) / 3);
  return text.slice(0, head) + "…" + text.slice(text.length - (room - 1 - head));
}

// Cut what an op is about: each of its two paths.
function clipWhat(event, room) {
  const [source, target] = what(event).split(" -> ");
  if (target === undefined || what(event).length <= room) return clip(what(event), room);
  const half = Math.floor((room - 4) / 2), first = Math.max(half, room - 4 - target.length);
  return `${clip(source, first)} -> ${clip(target, Math.max(half, room - 4 - source.length))}`;
}

const ROLES = {
  pair: "one of the pair whose order decides", cause: "this changed what the other op found", victim: "this fails",
  shown: "the violation is about this", last: "where this rank stood last", kill: "killed here", stale: "a stale answer",
  fault: "an injected fault", lost: "lost in the crash", torn: "only in part on the disk",
};
const ODD = new Set(["kill", "stale", "fault", "lost", "torn"]);
const isCollective = event => event.lanes !== undefined;
const hasFailed = event => event.errno !== undefined && !(how(event).startsWith("none") && event.role !== "victim");
const tone = event => !event.role ? "" : ODD.has(event.role) ? "odd" : event.role === "victim" || (event.role === "shown" && hasFailed(event)) ? "bad" : "key";
const what = event => event.what === undefined ? "" : S[event.what];
const how = event => event.how === undefined ? "" : S[event.how];
const call = event => event.role === "kill" ? `✕ ${S[event.call]}` : S[event.call];
const outcome = event => event.role === "lost" || event.role === "torn" ? event.role : event.role === "kill" ? "" : how(event);
const paths = event => (event.paths || []).map(path => S[path]);

const rankOf = (world, lane) => world.lanes[lane][0];
const threadOf = (world, lane) => { const [rank, thread] = world.lanes[lane]; return thread === String(rank) ? "" : thread.slice(String(rank).length + 1); };
const who = (world, lane) => `rank ${rankOf(world, lane)}` + (threadOf(world, lane) && ` thread ${threadOf(world, lane)}`);
const frame = stack => { const [user, frames] = D.stacks[stack] || [-1, []]; return frames[user]; };
const lineOf = stack => { const at = frame(stack); return at ? `${at[0].split("/").pop()}:${at[1]}` : ""; };
const codeOf = stack => { const at = frame(stack); return at && at[5].length ? (at[5][at[1] - at[4]] || "").trim() : ""; };

function ranks(numbers) {
  const runs = [];
  for (const rank of [...new Set(numbers)].sort((a, b) => a - b)) {
    const last = runs[runs.length - 1];
    if (last && last[1] === rank - 1) last[1] = rank; else runs.push([rank, rank]);
  }
  if (runs.length > 4) return count(numbers.length, "rank");
  return `rank${numbers.length > 1 ? "s" : ""} ` + runs.map(([a, b]) => a === b ? a : `${a}-${b}`).join(", ");
}

const MARKS = { saved: "begins to save step", acked: "save returned, step", loaded: "loaded step" };
const markText = row => `${MARKS[row.kind]} ${row.step}`;

// The state of the page: the run that is shown, its rows, the chosen row, what is unfolded.
let run = D.runs[0], rows = [], at = 0, all = false, hits = [];
const open = new Set();
