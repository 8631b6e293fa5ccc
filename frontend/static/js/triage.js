// Regressions: selecting rows for the bar of actions. Everything is a form; without scripts the same buttons work.
import { $, $$, toast } from "./page.js";
import { on, settle } from "./live.js";

const bulk = $("#bulk");
const boxes = () => $$("input[name=id]");
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
  if (event.target.matches("input[name=id], #all")) count();
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
// What changed elsewhere is announced, not slipped under the reader's eyes.
on("regression", settle(() => toast("Something here changed; reload to see it"), 400, 2000));
