// The board: details on hover and focus, arrow keys, live cells that change in place.
import { $, $$, announce, key, localise, toast, whileTyping } from "./page.js";
import { on, settle } from "./live.js";

const OPEN_AFTER_MS = 150, SCROLL_REST_MS = 200;
const wrap = $("#gw");
let grid = $("#grid");

// ---- a grid that is wider than the window: the page scrolls, and what is above the grid stays
const root = document.documentElement;
function fit() {
  const seen = root.clientWidth;
  root.style.setProperty("--seen", `${seen}px`);
  root.classList.toggle("wide", Boolean(grid) && grid.offsetWidth + grid.getBoundingClientRect().left + scrollX > seen && seen > 720);
}
fit();
addEventListener("resize", fit);

// ---- where a cell is
const headers = () => $$("thead th[data-k]", grid);
let columnOf = [];
function index() {
  grid = $("#grid");
  if (!grid) return;
  // Header cells stand in two rows; body cells follow the order of groups: columns, then the suite's roll-up.
  const keys = JSON.parse(wrap.dataset.keys || "[]");
  const byKey = new Map(headers().map((th) => [th.dataset.k, th]));
  columnOf = keys.map((name) => ({ key: name, header: byKey.get(name) || null }));
  for (const th of headers()) th.dataset.label = th.dataset.n || th.textContent.trim();
  fit();
}
const rowsOf = () => $$("tbody tr[data-c]", grid);
const cellsOf = (row) => $$("td.c", row);
const seen = (element) => element.offsetParent !== null || element.getClientRects().length > 0;
function place(cell) {
  const row = cell.closest("tr");
  const at = cellsOf(row).indexOf(cell);
  return { row, at, column: columnOf[at] };
}
const STATES = JSON.parse(wrap?.dataset.states || "{}");
function name(cell) {
  const { row, column } = place(cell);
  const label = column?.header?.dataset.label || column?.key || "";
  return `${label}, ${$(".f1", row).textContent.trim()}, ${STATES[cell.classList[0]] || ""}`;
}

// ---- details
let leftFrom = null, pop = null, popCell = null, pinned = false, timer = 0, wait = 0;
const cache = new Map();
function highlight(cell, yes) {
  const { row, column } = place(cell);
  row.querySelectorAll(".f1, .f2").forEach((each) => each.classList.toggle("hl", yes));
  column?.header?.classList.toggle("hl", yes);
}
function close(focusBack) {
  clearTimeout(timer);
  if (!pop) return;
  const back = popCell;
  pop.remove();
  highlight(popCell, false);
  popCell.classList.remove("sel");
  pop = popCell = null;
  pinned = false;
  if (focusBack && back) back.focus();
}
function detailsAddress(cell) {
  const { row, column } = place(cell);
  const about = cell.dataset.a || (column?.header?.dataset.s ? `s${column.header.dataset.s}` : cell.matches(".x") ? `k${column.key}` : "");
  const { project, testbed } = wrap.dataset;
  return about ? `/board/cell?${new URLSearchParams({ about, commit: row.dataset.c, project, testbed })}` : "";
}
const UNREAD = (why) => `<div class="bd"><p>The details could not be read: ${why}.</p></div><div class="ft"><button class="btn sm" type="button" data-again>Try again</button></div>`;
async function details(cell) {
  const address = detailsAddress(cell);
  if (!address) return "";
  const known = cache.get(address);
  if (known && performance.now() - known.at < 10000) return known.html;
  let answer;
  try { answer = await fetch(address, { headers: { Accept: "text/html" } }); } catch { return UNREAD("the service does not answer"); }
  if (!answer.ok) return UNREAD(`the service answered ${answer.status}`);
  const html = await answer.text();
  cache.set(address, { at: performance.now(), html });
  return html;
}
async function show(cell, pin) {
  if (popCell === cell) { pinned = pinned || pin; return; }
  const mine = ++wait;
  const html = await details(cell);
  if (mine !== wait || !cell.isConnected || !html) return;
  close();
  popCell = cell;
  pinned = pin;
  pop = document.createElement("div");
  pop.className = "pop";
  pop.setAttribute("role", "dialog");
  pop.setAttribute("aria-label", name(cell));
  pop.innerHTML = html; // made by our own server, every foreign text escaped there
  document.body.append(pop);
  localise(pop);
  cell.classList.add("sel");
  highlight(cell, true);
  put(cell);
  pop.addEventListener("click", async (event) => {
    if (!event.target.closest("[data-again]")) return;
    const mine = pop, again = await details(popCell);
    if (mine !== pop) return;
    pop.innerHTML = again;
    localise(pop);
    put(popCell);
  });
  pop.addEventListener("mouseenter", () => clearTimeout(timer));
  pop.addEventListener("mouseleave", () => { if (!pinned) leave(); });
}
function put(cell) {
  if (matchMedia("(max-width: 720px)").matches) return;
  const box = cell.getBoundingClientRect(), width = pop.offsetWidth, height = pop.offsetHeight;
  let left = box.left + box.width / 2 - width / 3;
  left = Math.max(8, Math.min(left, innerWidth - width - 8));
  // Below its cell, else above, else beside it: inside the window, and never on top of the cell.
  const below = innerHeight - box.bottom - 16, above = box.top - 16;
  let top = height <= below ? box.bottom + 8 : box.top - height - 8;
  if (height > below && height > above) {
    const toTheLeft = box.left >= width + 16, toTheRight = innerWidth - box.right >= width + 16;
    if (toTheLeft || toTheRight) {
      left = toTheLeft ? box.left - width - 8 : box.right + 8;
      top = Math.max(8, Math.min(box.top - 40, innerHeight - height - 8));
    } else top = box.bottom + 8;
  }
  pop.style.left = `${left + scrollX}px`;
  pop.style.top = `${top + scrollY}px`;
}
function leave() { clearTimeout(timer); timer = setTimeout(() => { if (!pinned) close(); }, 180); }
const cellFrom = (target) => { const cell = target.closest?.("td.c"); return cell && grid.contains(cell) && !cell.matches(".e") ? cell : null; };

function listen() {
  // What slides under a resting pointer was not pointed at.
  let scrolled = -1e9, keyed = -1e9, aimed = null;
  addEventListener("scroll", () => { scrolled = performance.now(); if (!pinned && scrolled - keyed > SCROLL_REST_MS) { clearTimeout(timer); aimed = null; wait++; close(); } }, { passive: true });
  const pointed = (event) => {
    const cell = cellFrom(event.target);
    if (cell === popCell) clearTimeout(timer);
    if (!cell || pinned || cell === popCell || cell === aimed || performance.now() - scrolled < SCROLL_REST_MS) return;
    clearTimeout(timer);
    aimed = cell;
    timer = setTimeout(() => { aimed = null; show(cell, false); }, pop ? 0 : OPEN_AFTER_MS);
  };
  for (const kind of ["mouseover", "mousemove"]) wrap.addEventListener(kind, pointed, { passive: true });
  wrap.addEventListener("mouseout", (event) => { if (cellFrom(event.target)) { aimed = null; wait++; leave(); } });
  wrap.addEventListener("focusin", (event) => {
    const cell = cellFrom(event.target);
    if (!cell || event.target !== cell) return;
    keyed = performance.now(); // it may have scrolled the page itself
    clearTimeout(timer);
    timer = setTimeout(() => show(cell, false), pop ? 0 : OPEN_AFTER_MS);
  });
  wrap.addEventListener("click", (event) => {
    const cell = cellFrom(event.target);
    if (!cell || event.target.closest(".fz")) return;
    if (event.ctrlKey || event.metaKey || event.button) return;
    leftFrom = cell;
    if (matchMedia("(hover: none)").matches) { event.preventDefault(); show(cell, true); return; }
    if (!event.target.closest("a")) { event.preventDefault(); openCell(cell); }
  });
}
async function openCell(cell) {
  const link = $("a", cell);
  if (link) { location.href = link.href; return; }
  const box = document.createElement("div");
  box.innerHTML = await details(cell);
  const primary = $("a.pri, a[data-open]", box);
  if (primary) location.href = primary.href;
}
document.addEventListener("click", (event) => { if (pop && !pop.contains(event.target) && !grid.contains(event.target)) close(); });

// ---- keys: one cell is in the tab order, arrows move it
let tabbed = null;
function rove(cell, focus = true) {
  if (!cell) return false;
  if (tabbed) tabbed.tabIndex = -1;
  tabbed = cell;
  cell.tabIndex = 0;
  if (!cell.hasAttribute("aria-label")) cell.setAttribute("aria-label", name(cell));
  if (focus) {
    cell.focus({ preventScroll: true });
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  return true;
}
function step(cell, down, right) {
  const rows = rowsOf();
  const { row, at } = place(cell);
  const target = rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(row) + down))];
  const cells = cellsOf(target);
  let next = at;
  if (right) {
    // The next one that is shown; Home and End come from the far end of the row.
    const way = Math.sign(right), end = Math.abs(right) > 1;
    const from = end ? (way > 0 ? cells.length - 1 : 0) : at + way;
    const onward = end ? -way : way;
    for (next = from; next >= 0 && next < cells.length && !seen(cells[next]); next += onward);
  }
  return rove(cells[next] || cell);
}
const focused = () => (document.activeElement?.matches?.("td.c") ? document.activeElement : null);
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -1e4], End: [0, 1e4], PageUp: [-10, 0], PageDown: [10, 0] };
function keyboard(event) {
  const cell = focused();
  if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
  if (MOVES[event.key]) { event.preventDefault(); step(cell, ...MOVES[event.key]); }
  else if (event.key === "Enter") { event.preventDefault(); openCell(cell); }
  else if (event.key === " ") { event.preventDefault(); if (pinned && popCell === cell) close(); else show(cell, true).then(() => $("a, button", pop)?.focus()); }
  else if (event.key === "Escape") { event.preventDefault(); close(); }
}
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && pop) { event.preventDefault(); close(true); } });
function red(direction) {
  const all = $$("td.c.r", grid).filter(seen);
  if (!all.length) { toast("No red cell here"); return; }
  const at = all.indexOf(focused() || popCell);
  rove(all[(at + direction + all.length) % all.length]);
}
key("]", () => red(1));
key("[", () => red(-1));
for (const letter of ["s", "c", "y"]) {
  key(letter, () => { const target = pop && $(`[data-popkey="${letter}"]`, pop); if (!target) return false; target.click(); });
}
key("m", () => { const all = $$("#cells a"); if (!all.length) return false; const at = all.findIndex((a) => a.hasAttribute("aria-current")); location.href = all[(at + 1) % all.length].href; });

// ---- live: cells change where they stand; new commits wait above the grid until asked for, or until nobody looks closely
const shown = new Map(); // commit → the faces of its cells as last applied
const stateOf = (face) => face[0].split(" ")[0];
const signature = (face) => face.join("\u0000");
function apply(cell, face) {
  const [css, html, label, href, about] = face; // css: the state, and what else shapes it
  const rest = [...cell.classList].filter((each) => each === "c" || each === "vc" || each === "roll" || each === "wide" || each === "g0" || each === "g1" || each === "sel");
  cell.className = [css, ...rest].join(" ");
  if (href) {
    cell.innerHTML = html; // escaped by the server
    const link = document.createElement("a");
    link.href = href;
    link.tabIndex = -1;
    link.append(...cell.childNodes);
    cell.append(link);
    cell.setAttribute("aria-label", label);
    cell.dataset.a = about;
  } else {
    cell.innerHTML = html;
    cell.removeAttribute("aria-label");
    delete cell.dataset.a;
  }
}
const STEMS = ["sm", "st", "sk"];
function differs(cell, face) {
  const inner = $("a", cell) || cell;
  const words = face[0].split(" ");
  return words[0] !== cell.classList[0] || STEMS.some((each) => words.includes(each) !== cell.classList.contains(each)) || inner.innerHTML !== face[1];
}
function patch(data) {
  for (const row of rowsOf()) {
    const faces = data.rows[row.dataset.c];
    if (!faces) continue;
    const cells = cellsOf(row);
    if (cells.length !== faces.length) return false;
    const before = shown.get(row.dataset.c);
    faces.forEach((face, i) => {
      const now = signature(face);
      if (before ? before[i] === now : !differs(cells[i], face)) return;
      const was = cells[i].classList[0];
      apply(cells[i], face);
      if (was !== stateOf(face)) {
        cells[i].classList.add("fresh");
        setTimeout(() => cells[i].classList.remove("fresh"), 2000);
        if (stateOf(face) === "r") announce(`Regression confirmed: ${face[2]}`);
      }
    });
    shown.set(row.dataset.c, faces.map(signature));
  }
  return true;
}
function counts(html) {
  const strip = $("#strip");
  if (strip && html && strip.innerHTML !== html) { strip.innerHTML = html; localise(strip); }
}
const topAndIdle = () => scrollY < 300 && !pop && !focused();
async function swap() {
  const asked = location.search;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (location.search !== asked) { soon(); return; } // a filter was typed meanwhile
  const next = $("#board", fresh), old = $("#board");
  if (!next || !old) { location.reload(); return; }
  const oldGrid = $("#gw"), newGrid = $("#gw", next);
  if (oldGrid && newGrid) {
    // Only the inside changes: the frame keeps its place and its scroll position.
    $("#grid").replaceWith($("#grid", newGrid));
    Object.assign(oldGrid.dataset, newGrid.dataset);
    counts($("#strip", fresh)?.innerHTML);
    newbar([]);
  } else { old.replaceWith(next); setTimeout(() => location.reload(), 0); return; }
  shown.clear();
  cache.clear();
  index();
  localise(grid);
  rove($("td.c", grid), false);
}
function newbar(commits) {
  const bar = $("#newbar");
  if (!bar) return;
  bar.hidden = commits.length === 0;
  $("button", bar).textContent = `${commits.length} new ${commits.length === 1 ? "commit" : "commits"}, show`;
}
// The filters act while one types. They stay as they are, under the hands of whoever types; all else is new.
function filtered(page) {
  const next = $("#board", page), old = $("#board"), active = document.activeElement;
  if (!wrap) { if ($("#gw", next)) location.reload(); return; }
  close();
  const bar = $(".fb"), fresh = $(".fb", page);
  if (bar && fresh && !bar.contains(active)) {
    $("#saved", fresh)?.replaceWith($("#saved", bar)); // it is this browser's, and at work already
    bar.replaceWith(fresh);
  }
  const menus = $$("details.menu", old), carried = "input[type=hidden]";
  $$("details.menu", next).forEach((menu, i) => {
    $$(carried, menus[i]).forEach((each) => each.remove());
    $("form", menus[i]).prepend(...$$(carried, menu)); // what was typed beside it is sent with it
    menu.replaceWith(menus[i]);
  });
  const frame = $("#gw", next);
  if (frame) {
    $("#filter", frame).replaceWith($("#filter", wrap));
    Object.assign(wrap.dataset, frame.dataset);
    wrap.replaceChildren(...frame.childNodes);
    frame.replaceWith(wrap);
  } else {
    // Nothing matches: the head of the grid stays, since one of the filters is in it.
    $("tbody", wrap).replaceChildren();
    $("#quiet", next).after(wrap);
  }
  old.replaceWith(next);
  active?.focus({ preventScroll: true });
  shown.clear();
  cache.clear();
  localise(next);
  if (!frame) return;
  index();
  $("#newbar button").addEventListener("click", swap);
  rove($("td.c", grid), false);
}
for (const field of $$("#filter, #match")) whileTyping(field, filtered);
let busy = false, again = false;
async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    const asked = location.search;
    const answer = await fetch(`/board/patch?${new URLSearchParams(asked)}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    const data = await answer.json();
    if (location.search !== asked) { again = true; return; }
    cache.clear();
    const empty = wrap === null || $("#quiet") !== null;
    if (data.first_run !== empty) { location.reload(); return; }
    if (empty) { steps(data); return; }
    counts(data.strip);
    const keys = JSON.stringify(data.keys);
    const fresh = Object.keys(data.rows).filter((sha) => !$(`tr[data-c="${CSS.escape(sha)}"]`, grid));
    if (keys !== wrap.dataset.keys || !patch(data)) { await swap(); return; }
    if (fresh.length && topAndIdle()) await swap();
    else newbar(fresh);
  } finally {
    busy = false;
    if (again) { again = false; soon(); }
  }
}
function steps(data) {
  const list = $("#steps");
  if (list && data.steps && list.innerHTML !== data.steps) { list.innerHTML = data.steps; localise(list); }
}
const soon = settle(refresh, 60, 400);
for (const kind of ["run", "queue", "commits", "regression", "worker", "project"]) on(kind, soon);
addEventListener("livereturn", soon);
// Whether a worker lives is told by the clock, not by an event: while one waits for the first result, look again.
if (!wrap) setInterval(() => { if (!document.hidden) soon(); }, 4000);

// ---- Back returns to the place: the cell one left from has the focus, and the page lies as it lay
const PLACE = `tidemark-place-${location.pathname}${location.search}`;
addEventListener("pagehide", () => {
  const cell = leftFrom || popCell || focused();
  const at = cell && grid.contains(cell) ? { commit: cell.closest("tr").dataset.c, at: place(cell).at } : null;
  try { sessionStorage.setItem(PLACE, JSON.stringify({ x: scrollX, y: scrollY, cell: at })); } catch { /* private window */ }
});
function returned() {
  if (performance.getEntriesByType("navigation")[0]?.type !== "back_forward") return;
  let kept = null;
  try { kept = JSON.parse(sessionStorage.getItem(PLACE)); } catch { /* nothing is kept */ }
  if (!kept) return;
  const row = kept.cell && $(`tr[data-c="${CSS.escape(kept.cell.commit)}"]`, grid);
  if (row) { rove(cellsOf(row)[kept.cell.at], false); tabbed?.focus({ preventScroll: true }); }
  scrollTo(kept.x, kept.y);
}

if (wrap) {
  index();
  listen();
  wrap.addEventListener("keydown", keyboard);
  rove($("td.c", grid), false);
  $("#newbar button")?.addEventListener("click", swap);
  returned();
}
