// Regressions: selecting rows for the bar of actions. Everything is a form; without scripts the same buttons work.
import { $, $$, localise, toast } from "./page.js";
import { on, settle } from "./live.js";

const bulk = $("#bulk");
const boxes = () => $$("input[type=checkbox][name=id]");
function count() {
  const chosen = boxes().filter((box) => box.checked);
  for (const box of boxes()) box.closest("tr").classList.toggle("on", box.checked);
  if (bulk) {
    bulk.hidden = chosen.length === 0;
    $("#selected").textContent = `${chosen.length} selected`;
  }
}
document.addEventListener("change", (event) => {
  if (event.target.id === "all") boxes().forEach((box) => { box.checked = event.target.checked; });
  if (event.target.matches("input[type=checkbox][name=id], #all")) count();
});
count();
for (const form of $$("form[action$='/triage']")) {
  form.addEventListener("submit", (event) => {
    const action = event.submitter?.value;
    const reason = $("[name=reason]", form);
    if (["expected", "invalid"].includes(action) && reason && !reason.value.trim()) {
      event.preventDefault();
      reason.focus();
      toast("A reason is needed: it teaches the detector");
    }
  });
}
// A deed in bulk can be undone for ten seconds, and is told once: a reload or a copied link does not say it again.
const done = $("#done");
if (done) {
  const address = new URL(location.href);
  for (const name of ["done", "refused"]) address.searchParams.delete(name);
  history.replaceState(null, "", address);
  setTimeout(() => { if (!done.contains(document.activeElement)) done.remove(); }, 10000);
}
// What changed elsewhere is announced, not slipped under the reader's eyes.
on("regression", settle(() => toast("Something here changed; reload to see it"), 400, 2000));
// A session or a bisection of this regression moves on in its own panels.
const page = location.pathname.match(/^\/regressions\/(\d+)$/);
const follow = settle(async () => {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const id of ["sessions", "commits"]) {
    const old = $(`#${id}`), next = $(`#${id}`, fresh);
    if (old && next && !old.contains(document.activeElement) && old.innerHTML !== next.innerHTML) { old.innerHTML = next.innerHTML; localise(old); }
    else if (!old && next) { location.reload(); return; }
  }
}, 300, 1500);
if (page) for (const kind of ["session", "bisection"]) on(kind, (event) => { if (String(event.regression_id) === page[1]) follow(); });
