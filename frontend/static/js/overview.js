// The strips share one crosshair; a legend's line is shown alone; a stretch that is dragged becomes the range.
import { $, $$, key, stamp } from "./page.js";
import { on, settle } from "./live.js";

const strips = $("#strips");
const data = strips ? JSON.parse($("#trend-data").textContent) : null;
const plots = $$(".plot[data-strip]");
const from = strips ? Date.parse(strips.dataset.from) : 0, length = strips ? Date.parse(strips.dataset.to) - from : 0;

function nearest(seconds) {
  let low = 0, high = data.at.length - 1;
  while (low < high) { const middle = (low + high) >> 1; if (data.at[middle] < seconds) low = middle + 1; else high = middle; }
  return low && seconds - data.at[low - 1] < data.at[low] - seconds ? low - 1 : low;
}
function shareOf(event, plot) {
  const box = plot.getBoundingClientRect();
  return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
}
const momentOf = (share) => new Date(from + share * length);
function cross(share) {
  const i = nearest(momentOf(share) / 1000), at = length ? (data.at[i] * 1000 - from) / length : 0.5;
  plots.forEach((plot, n) => {
    const value = data.strips[n][i], line = $(".cross", plot), tip = $(".tip", plot);
    for (const each of [line, tip]) { each.hidden = false; each.style.setProperty("--x", `${at * 100}%`); }
    tip.classList.toggle("end", at > 0.75);
    const change = value === null ? "–" : value < 1 ? `▼ ${((1 / value - 1) * 100).toFixed(1)} %` : `▲ ${((1 - 1 / value) * 100).toFixed(1)} %`;
    tip.textContent = `${n === 0 ? `${stamp(new Date(data.at[i] * 1000))} · ` : ""}${change}`;
  });
}
function uncross() { for (const each of $$(".cross, .tip", strips)) each.hidden = true; }
let begun = null;
function drag(share) {
  const low = Math.min(begun, share), width = Math.abs(share - begun);
  for (const each of $$(".sel", strips)) {
    each.hidden = width < 0.01;
    each.style.setProperty("--x", `${low * 100}%`);
    each.style.setProperty("--w", `${width * 100}%`);
  }
}
function zoom(share) {
  const low = Math.min(begun, share), high = Math.max(begun, share);
  begun = null;
  for (const each of $$(".sel", strips)) each.hidden = true;
  if (high - low < 0.01) return;
  const address = new URL(location.href), iso = (moment) => `${moment.toISOString().slice(0, 19)}Z`;
  address.searchParams.delete("range");
  address.searchParams.set("since", iso(momentOf(low)));
  address.searchParams.set("until", iso(momentOf(high)));
  location.href = address;
}
for (const plot of plots) {
  plot.addEventListener("pointermove", (event) => { const share = shareOf(event, plot); cross(share); if (begun !== null) drag(share); });
  plot.addEventListener("pointerleave", () => { if (begun === null) uncross(); });
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType === "touch" || event.target.closest("a")) return;
    begun = shareOf(event, plot);
    plot.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  plot.addEventListener("pointerup", (event) => { if (begun !== null) zoom(shareOf(event, plot)); });
  plot.addEventListener("pointercancel", () => { begun = null; });
}
for (const button of $$(".lgd button[data-only]")) {
  button.addEventListener("click", () => {
    const mine = button.getAttribute("aria-pressed") === "true", strip = button.closest(".st");
    for (const each of $$(".lgd button")) each.setAttribute("aria-pressed", "false");
    for (const each of $$(".sole", strips)) each.classList.remove("sole");
    if (mine) { delete strips.dataset.iso; return; }
    button.setAttribute("aria-pressed", "true");
    strips.dataset.iso = "";
    $(`[data-line="${button.dataset.only}"]`, strip)?.classList.add("sole");
  });
}
key("Escape", () => { const whole = $("#unzoom"); if (!whole || $("details.menu[open]")) return false; whole.click(); });

// New results: what stands here is brought up to date where nothing is open or under somebody's hands.
const soon = settle(async () => {
  if (begun !== null || $("details.menu[open]") || $(".also[open]") || document.activeElement?.closest("main form")) return;
  const asked = location.href, answer = await fetch(asked, { headers: { Accept: "text/html" } });
  if (!answer.ok || asked !== location.href) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const chosen of [".tiles", "h1", "#note"]) { const old = $(`main ${chosen}`), next = $(`main ${chosen}`, page); if (old && next && old.innerHTML !== next.innerHTML) old.innerHTML = next.innerHTML; }
}, 1000, 5000);
for (const kind of ["run", "regression"]) on(kind, soon);
