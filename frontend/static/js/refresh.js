// A page that is a list of what goes on: read again when something happened, and put in place of the old one.
import { $, $$, localise } from "./page.js";
import { on, settle } from "./live.js";

// Whoever reads, selects or has begun to fill in a form keeps what is under their hands.
const filledIn = (field) => (field.matches("select") ? [...field.options].some((it) => it.selected !== it.defaultSelected) && [...field.options].some((it) => it.defaultSelected)
  : field.matches("[type=checkbox], [type=radio]") ? field.checked !== field.defaultChecked : field.type !== "hidden" && field.value !== field.defaultValue);
const inUse = (part) => part.contains(document.activeElement) || $$("input, textarea, select", part).some(filledIn);

function put(old, next) {
  if (!next || next.innerHTML === old.innerHTML) return;
  const unfolded = $$("details", old).map((each) => each.open);
  old.innerHTML = next.innerHTML;
  $$("details", old).forEach((each, i) => { each.open ||= Boolean(unfolded[i]); });
  localise(old);
}
async function refresh() {
  const box = $("#fresh");
  if (!box || getSelection()?.toString()) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const next = $("#fresh", new DOMParser().parseFromString(await answer.text(), "text/html"));
  if (!next) return;
  if (!inUse(box)) { put(box, next); return; }
  for (const part of $$("section[id]", box)) if (!inUse(part)) put(part, $(`#${CSS.escape(part.id)}`, next));
}
const soon = settle(refresh, 300, 1500);
for (const kind of ["run", "queue", "worker", "project"]) on(kind, soon);
addEventListener("livereturn", soon);
setInterval(() => { if (!document.hidden) soon(); }, 15000); // a worker falls silent without an event
