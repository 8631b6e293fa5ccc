// A run while it goes: its status and its log, in place; and one whose commit is still to be read.
import { $, localise } from "./page.js";
import { on, settle } from "./live.js";

const box = $("#run");
const id = box.dataset.id;
let last = Number(box.dataset.last), state = null;
const KEEP = 5000;

async function refresh() {
  const answer = await fetch(`/runs/${encodeURIComponent(id)}/live?after=${last}`, { headers: { Accept: "application/json" } });
  if (!answer.ok) return;
  const data = await answer.json();
  const status = $("#status");
  if (status.innerHTML !== data.status) { status.innerHTML = data.status; localise(status); }
  const lines = $("#lines");
  if (lines && data.last > last) {
    const atEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40;
    if (last === 0) lines.textContent = "";
    lines.insertAdjacentHTML("beforeend", data.log);
    while (lines.childElementCount > KEEP) lines.firstElementChild.remove();
    if ($("#follow")?.checked && atEnd) lines.scrollTop = lines.scrollHeight;
    last = data.last;
  }
  // Once it is over there is a whole page to show: results, phases, verdicts.
  if (state !== null && data.state !== state && !["queued", "leased", "running"].includes(data.state)) location.reload();
  state = data.state;
}
// Its commit may be read at any moment: then boards show the run, and its page says where it belongs.
async function arrived() {
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!page.querySelector("#run")?.dataset.waits) location.reload();
}
if (box.dataset.waits) {
  const soon = settle(arrived);
  on("commits", (event) => { if (event.project === document.body.dataset.project) soon(); });
  on("state", (state) => { if (state === "live") soon(); });
  addEventListener("livereturn", soon);
}
if (box.dataset.going) {
  const soon = settle(refresh, 120, 500);
  on("run", (event) => { if (event.run_id === id) soon(); });
  on("log", (event) => { if (event.run_id === id) soon(); });
  addEventListener("livereturn", soon);
  refresh();
  const lines = $("#lines");
  if (lines) lines.scrollTop = lines.scrollHeight;
}
