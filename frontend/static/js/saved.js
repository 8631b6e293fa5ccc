// Filters kept under a name, in this browser: an address each, since the address is the whole state of a page.
import { $, toast } from "./page.js";

const box = $("#saved");
const KEY = `tidemark-saved-${box?.dataset.saved}`;
const FLEETING = ["cursor", "done", "theme"];
function read() {
  try { const found = JSON.parse(localStorage.getItem(KEY)); return Array.isArray(found) ? found.filter((each) => each && typeof each.name === "string" && typeof each.query === "string") : []; } catch { return []; }
}
function write(items) {
  try { localStorage.setItem(KEY, JSON.stringify(items)); return true; } catch { toast("This browser does not allow saving for this page"); return false; }
}
function here() {
  const query = new URLSearchParams(location.search);
  for (const name of FLEETING) query.delete(name);
  query.sort();
  return query.toString();
}
function line(item) {
  const row = document.createElement("li"), link = document.createElement("a"), gone = document.createElement("button");
  row.className = "row between";
  link.href = `${location.pathname}${item.query ? `?${item.query}` : ""}`;
  link.textContent = item.name;
  if (item.query === here()) link.setAttribute("aria-current", "true");
  gone.className = "btn sm quiet";
  gone.type = "button";
  gone.textContent = "✕";
  gone.setAttribute("aria-label", `Forget ${item.name}`);
  gone.addEventListener("click", () => {
    const before = read();
    if (!write(before.filter((each) => each.name !== item.name))) return;
    show();
    toast(`${item.name} forgotten`, () => { write(before); show(); });
  });
  row.append(link, gone);
  return row;
}
function show() {
  const items = read();
  $("#saved-list").replaceChildren(...items.map(line));
  $("#saved-none").hidden = items.length > 0;
  $("#saved-count").textContent = items.length ? ` · ${items.length}` : "";
}
if (box) {
  box.dataset.ready = "";
  show();
  $("#saved-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = $("#saved-name").value.trim();
    if (!name || !write([...read().filter((each) => each.name !== name), { name, query: here() }])) return;
    $("#saved-name").value = "";
    show();
    toast(`${name} kept`);
  });
  addEventListener("storage", (event) => { if (event.key === KEY) show(); });
}
