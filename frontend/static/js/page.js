// On every page: theme, times in the reader's zone, keys, the live indicator, forms that send themselves.
import { on, settle } from "./live.js";

export const $ = (selector, root = document) => root.querySelector(selector);
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// ---- theme: a cookie, so that the server already sends the right one and nothing flashes
const root = document.documentElement;
const systemDark = matchMedia("(prefers-color-scheme: dark)");
export const theme = () => root.dataset.theme || (systemDark.matches ? "dark" : "light");
function switchTheme() {
  root.dataset.theme = theme() === "dark" ? "light" : "dark";
  document.cookie = `tidemark_theme=${root.dataset.theme};path=/;max-age=31536000;samesite=lax`;
  dispatchEvent(new CustomEvent("themechange"));
}
$("#theme").addEventListener("click", switchTheme);
systemDark.addEventListener("change", () => dispatchEvent(new CustomEvent("themechange")));

// ---- times: rendered in UTC, shown in the reader's zone; the exact UTC time stays in the title
const MONTH = new Intl.DateTimeFormat("en", { month: "short" });
const two = (number) => String(number).padStart(2, "0");
export function stamp(date) {
  return `${date.getDate()} ${MONTH.format(date)} ${two(date.getHours())}:${two(date.getMinutes())}`;
}
const WRITTEN = {
  age,
  stamp,
  clock: (date) => `${two(date.getHours())}:${two(date.getMinutes())}`,
  day: (date) => `${date.getDate()} ${MONTH.format(date)}`,
};
export function age(date) {
  const s = Math.max(0, (Date.now() - date) / 1000);
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  if (s < 7 * 86400) return `${Math.floor(s / 86400)} d`;
  return `${date.getDate()} ${MONTH.format(date)}` + (s < 300 * 86400 ? "" : ` ${date.getFullYear()}`);
}
export function localise(within = document) {
  for (const time of $$("time[data-form]", within)) {
    const date = new Date(time.dateTime);
    const text = WRITTEN[time.dataset.form](date);
    if (time.textContent !== text) time.textContent = text;
  }
}
localise();
setInterval(localise, 15000);

// ---- what scrolls sideways on a narrow screen and holds nothing to tab to is a tab stop itself, as some browsers have it
function reachSideways() {
  for (const box of $$(".chx, .scx, .tbx")) {
    if (box.scrollWidth > box.clientWidth && !$("a, button, input, select, summary", box)) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
reachSideways();
addEventListener("resize", reachSideways);

// ---- words for everybody
export function announce(text) { $("#announce").textContent = text; }
let toastTimer = 0;
export function toast(text, undo) {
  $(".toast")?.remove();
  const box = document.createElement("div");
  box.className = "toast";
  box.setAttribute("role", "status");
  box.textContent = text;
  if (undo) {
    const button = document.createElement("button");
    button.className = "btn sm quiet";
    button.textContent = "Undo";
    button.addEventListener("click", () => { box.remove(); undo(); });
    box.append(" ", button);
  }
  document.body.append(box);
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => box.remove(), undo ? 10000 : 4000);
}
export async function copy(text, what) {
  try { await navigator.clipboard.writeText(text); toast(`${what} copied`); } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    toast(done ? `${what} copied` : `Copying is not allowed here: ${text.slice(0, 120)}`);
  }
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = button.dataset.copy;
  copy(source === "link" ? location.href : source.startsWith("/") ? location.origin + source : source.startsWith("#") ? $(source).textContent.trim() : source, button.dataset.what || "Text");
});

// ---- forms whose controls apply at once
document.addEventListener("change", (event) => event.target.closest("form[data-auto]")?.requestSubmit());

// ---- filters that act while one types: the address follows, and what it shows takes the place of what was shown
const TYPED_MS = 250;
export function whileTyping(field, show) {
  if (!field) return;
  let asked = 0, composing = false; // by an input method, which would lose its word where the field moves
  const soon = settle(async () => {
    if (composing) return;
    const address = new URL(location.href), mine = ++asked;
    if (field.value.trim()) address.searchParams.set(field.name, field.value);
    else address.searchParams.delete(field.name);
    address.searchParams.delete("cursor");
    let answer, text;
    try {
      answer = await fetch(address, { headers: { Accept: "text/html" } });
      text = await answer.text();
    } catch { /* told below */ }
    if (mine !== asked) return;
    if (!answer?.ok || text === undefined) { toast(`This is not filtered yet: no answer${answer ? ` (${answer.status})` : ""}`); return; }
    history.replaceState(null, "", address);
    show(new DOMParser().parseFromString(text, "text/html"));
  }, TYPED_MS, 4 * TYPED_MS);
  field.addEventListener("input", soon);
  field.addEventListener("compositionstart", () => { composing = true; asked++; });
  field.addEventListener("compositionend", () => { composing = false; soon(); });
}
const found = $("#found");
if (found) {
  whileTyping($("#filter"), (page) => {
    found.innerHTML = $("#found", page).innerHTML;
    const choices = $$("main .seg");
    $$("main .seg", page).forEach((each, i) => choices[i]?.replaceWith(each)); // their links keep what was typed
    localise(found);
    document.title = page.title;
  });
}
for (const box of $$("[data-toggle]")) {
  box.addEventListener("change", () => { $$(box.dataset.toggle).forEach((each) => { each.hidden = !box.checked; }); });
}

// ---- live indicator
const live = $("#live");
let lostAt = null;
// A page that comes back from the browser's own cache missed whatever happened meanwhile.
addEventListener("pageshow", (event) => { if (event.persisted) dispatchEvent(new CustomEvent("livereturn")); });
on("state", (state) => {
  live.dataset.state = state;
  if (state === "live") {
    $(".live-word", live).textContent = "Live";
    if (lostAt) dispatchEvent(new CustomEvent("livereturn"));
    lostAt = null;
  } else if (state === "lost") {
    lostAt = lostAt || new Date();
    $(".live-word", live).textContent = `Not live since ${two(lostAt.getHours())}:${two(lostAt.getMinutes())}`;
    live.title = "The page reconnects automatically; nothing is lost.";
  }
});
on("run", (event) => {
  const last = $(".live-last time", live);
  if (last && ["done", "failed"].includes(event.state)) { last.dateTime = new Date().toISOString(); localise(live); }
});

// ---- keys
const bindings = new Map();
export function key(name, action) { bindings.set(name, action); }
const store = { get: (k) => { try { return localStorage.getItem(k); } catch { return null; } }, set: (k, v) => { try { localStorage.setItem(k, v); } catch { /* private window */ } } };
const lettersOn = $("#keys-on");
lettersOn.checked = store.get("tidemark-letters") !== "off";
lettersOn.addEventListener("change", () => store.set("tidemark-letters", lettersOn.checked ? "on" : "off"));
const help = () => $("#keys").showModal();
$("#help").addEventListener("click", help);
const go = (label) => { const found = $$(".bar nav a").find((a) => a.textContent.trim().toLowerCase().startsWith(label)); if (found) location.href = found.href; };
let pendingG = 0;
document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.metaKey) return;
  if (event.ctrlKey) { if (event.key === "k") { event.preventDefault(); $("#find").focus(); } return; }
  const typing = event.target.closest("input:not([type=checkbox]):not([type=range]), textarea, select, dialog[open]");
  if (event.key === "Escape" && typing && !typing.matches("dialog")) { typing.blur(); return; }
  if (typing || !lettersOn.checked) return;
  const name = event.key;
  if (performance.now() - pendingG < 1200) {
    pendingG = 0;
    const page = { o: "overview", b: "board", r: "regressions", c: "compare", w: "workers" }[name];
    if (page) { event.preventDefault(); go(page); return; }
  }
  if (name === "g") { pendingG = performance.now(); return; }
  const action = bindings.get(name);
  if (action && action(event) !== false) event.preventDefault();
});
key("?", help);
key("/", () => $("#find").focus());
key("t", switchTheme);
key("f", () => ($("#filter") ? $("#filter").focus() : false));
for (const element of $$("[data-key]")) key(element.dataset.key, () => { if (element.offsetParent === null) return false; element.click(); });

// ---- rows: j k move, x selects, Enter opens
const rows = () => $$("[data-row]");
let current = -1;
function moveTo(index) {
  const all = rows();
  if (!all.length) return false;
  current = Math.max(0, Math.min(all.length - 1, index));
  ($("a", all[current]) || all[current]).focus();
}
if (rows().length) {
  key("j", () => moveTo(current + 1));
  key("k", () => moveTo(current - 1));
  key("x", () => { const box = current >= 0 && $("input[type=checkbox]", rows()[current]); if (!box) return false; box.click(); });
}
