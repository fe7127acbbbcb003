// The head of the page, its events, and the first picture: what decides is painted first, the lanes follow.
const KEYS = {
  j: ["next step", () => go(at + 1)], k: ["previous step", () => go(at - 1)],
  n: ["next context switch", () => nextSwitch(1)], N: ["previous context switch", () => nextSwitch(-1)],
  d: ["next decisive op", () => nextKey(1)], D: ["previous decisive op", () => nextKey(-1)],
  Enter: ["open or close a fold", () => toggle(at)], e: ["unfold or fold all", unfold],
  p: ["failing or passing order", () => D.runs.length > 1 && choose(1 - D.runs.indexOf(run))],
  "/": ["search", () => $("find").focus()], t: ["dark or light", () => $("theme").click()], "?": ["these keys", () => $("help").showModal()],
};
const SIGNS_HELP = [["●", "an op; coloured if it decides"], ["◆", "it fails, or something is injected"], ["≠", "ends differently in the other order"], ["▢ ■", "a save begins; a save has returned"], ["≡", "folded ops"]];

function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").textContent = name === "dark" ? "Light" : "Dark";
}

const isSaid = text => text.toLowerCase() === D.sentence.map(part => part[1]).join("").toLowerCase();

function showHead() {
  const isDark = /dark/.test(location.hash) || (!/light/.test(location.hash) && matchMedia("(prefers-color-scheme: dark)").matches);
  theme(isDark ? "dark" : "light");
  $("verdict").textContent = D.verdict;
  $("target").textContent = D.target;
  $("sentence").innerHTML = D.sentence.map(([isCode, text]) => isCode ? `<code>${esc(clip(text, 90))}</code>` : esc(text)).join("");
  const kinds = [...new Map([...D.violations].reverse().map(each => [each[0], each])).values()].reverse(), more = D.violations.length - Math.min(3, kinds.length);
  $("broken").innerHTML = kinds.slice(0, 3).map(([name, text]) => `<li title="${esc(text)}"><b>${esc(name)}</b> ${isSaid(text) ? "" : esc(text)}</li>`).join("") + (more > 0 ? `<li>and ${count(more, "more violation")}</li>` : "");
  $("runs").innerHTML = D.runs.map((each, place) => `<button type="button" aria-pressed="${!place}" data-run="${place}">${each.name}</button>`).join("");
  $("runs").hidden = D.runs.length < 2;
  const table = lines => `<div>${lines.map(([sign, text]) => `<span><kbd>${esc(sign)}</kbd></span><span>${text}</span>`).join("")}</div>`;
  $("help").innerHTML = `<h2>Keys</h2>${table(Object.entries(KEYS).map(([name, each]) => [name, each[0]]))}<h2>Signs</h2>${table(SIGNS_HELP)}`;
}

function showRows() {
  const probe = document.createElement("span");
  probe.style.cssText = "position:absolute;visibility:hidden;font:12.5px var(--mono)";
  probe.textContent = "0".repeat(100);
  document.body.append(probe);
  charWidth = probe.offsetWidth / 100;
  probe.remove();
  build();
  if (rows.length) {
    const named = namedRow(location.hash);
    go(named === undefined ? home() : named, named !== undefined);
  }
  told = true;
  wireCards();
  performance.mark("ready");
}

function listen() {
  let isWaiting = false, sized;
  addEventListener("scroll", () => { if (!isWaiting) { isWaiting = true; requestAnimationFrame(() => { isWaiting = false; if (rows.length) paint(); }); } }, { passive: true });
  addEventListener("resize", () => { clearTimeout(sized); sized = setTimeout(() => { if (rows.length) layout(); wireCards(); }, 60); });
  addEventListener("beforeprint", () => { theme("light"); everything = rows.length <= MOST_PRINTED; layout(); wireCards(); });
  addEventListener("afterprint", () => { everything = false; layout(); });
  addEventListener("keydown", press);
  $("rows").addEventListener("focus", () => { if (!$(`row${at}`) && $("rows").matches(":focus-visible")) go(at); });
  $("rows").addEventListener("click", event => {
    const node = event.target.closest(".row"), place = node && Number(node.dataset.row);
    if (node) rows[place].type === "fold" ? toggle(place) : go(place, false);
  });
  $("runs").addEventListener("click", event => { const button = event.target.closest("button"); if (button) choose(Number(button.dataset.run)); });
  $("cards").addEventListener("click", event => {
    const button = event.target.closest("[data-index]");
    if (!button) return;
    if (D.runs[button.dataset.run] !== run) choose(Number(button.dataset.run));
    go(reveal(run.worlds[button.dataset.world], Number(button.dataset.index)));
    $("rows").focus({ preventScroll: true });
  });
  $("find").addEventListener("input", () => search());
  $("find").addEventListener("keydown", event => {
    if (event.key === "Enter") nextHit(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { $("find").value = ""; search(false); $("rows").focus({ preventScroll: true }); }
    event.stopPropagation();
  });
  $("unfold").addEventListener("click", unfold);
  $("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  addEventListener("hashchange", () => { const named = namedRow(location.hash); if (named !== undefined) go(named); });
  $("save").addEventListener("click", save);
  $("copy").addEventListener("click", copy);
  $("keys").addEventListener("click", () => $("help").showModal());
  document.querySelector(".step").addEventListener("click", event => { const button = event.target.closest("[data-key]"); if (button) KEYS[button.dataset.key][1](); });
}

// The finding as the file that `racecheck replay` takes.
async function save() {
  const packed = Uint8Array.from(atob($("finding").textContent), each => each.charCodeAt(0));
  const whole = new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await whole.blob());
  link.download = `${D.file}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
}

async function copy() {
  try {
    await navigator.clipboard.writeText(D.replay);
    $("copy").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren($("replay"));
    $("copy").textContent = "Selected";
  }
}

function press(event) {
  if (!rows.length || event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  if (event.key === "Enter" && event.target.closest("button, summary, input")) return;
  const isInRows = document.activeElement === $("rows"), edge = { Home: 0, End: rows.length - 1 }[event.key];
  const name = isInRows ? { ArrowDown: "j", ArrowUp: "k" }[event.key] || event.key : event.key;
  const act = Object.hasOwn(KEYS, name) ? KEYS[name][1] : isInRows && edge !== undefined ? () => go(edge) : null;
  if (act) { event.preventDefault(); act(); }
}

showHead();
showCards();
showFoot();
listen();
requestAnimationFrame(() => setTimeout(showRows));
