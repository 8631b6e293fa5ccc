// A page that is a list of what goes on: read again when something happened, and put in place of the old one.
import { $, localise } from "./page.js";
import { on, settle } from "./live.js";

async function refresh() {
  const box = $("#fresh");
  if (!box || box.contains(document.activeElement) || getSelection()?.toString()) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const next = $("#fresh", new DOMParser().parseFromString(await answer.text(), "text/html"));
  if (next && next.innerHTML !== box.innerHTML) { box.innerHTML = next.innerHTML; localise(box); }
}
const soon = settle(refresh, 300, 1500);
for (const kind of ["run", "queue", "worker", "project"]) on(kind, soon);
addEventListener("livereturn", soon);
setInterval(() => { if (!document.hidden) soon(); }, 15000); // a worker falls silent without an event
