// Charts: the figure is data made by the server; Plotly draws it when the chart comes near the screen. Colours in the
// figure are names of tokens (`--c-line`), replaced by what they are in the current theme.
import { $, $$, localise } from "./page.js";

let loading = null;
function plotly(address) {
  loading = loading || new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = () => done(window.Plotly);
    script.onerror = () => failed(new Error("the chart library could not be loaded"));
    document.head.append(script);
  });
  return loading;
}
const probe = document.createElement("i");
probe.hidden = true;
function colour(token) {
  const [name, alpha] = token.split("/");
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  const resolved = getComputedStyle(probe).color;
  const parts = resolved.match(/[\d.]+/g);
  return alpha ? `rgba(${parts[0]},${parts[1]},${parts[2]},${alpha})` : resolved;
}
export function themed(value, seen = new Map()) {
  if (typeof value === "string") {
    if (!value.startsWith("--")) return value;
    if (!seen.has(value)) seen.set(value, colour(value));
    return seen.get(value);
  }
  if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map((each) => themed(each, seen));
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, themed(v, seen)]));
  return value;
}
// A phone keeps both axes and letters of full size: what stood to the right of the plot stands within it.
function narrow(layout) {
  layout.margin = { ...layout.margin, l: Math.min(layout.margin?.l ?? 46, 46), r: 10 };
  const { tickvals, ticktext } = layout.xaxis || {}, each = tickvals ? Math.ceil(tickvals.length / 4) : 1;
  const kept = (_, i) => (tickvals.length - 1 - i) % each === 0;
  layout.xaxis = { ...layout.xaxis, nticks: 3, ...(tickvals && ticktext && { tickvals: tickvals.filter(kept), ticktext: ticktext.filter(kept), tickangle: 0 }) };
  const level = (note) => note.xref === "paper" && note.x === 1 && note.xanchor === "left";
  const named = (layout.annotations || []).filter(level).map((note) => note.y), lowest = named.length > 1 ? Math.min(...named) : NaN;
  layout.annotations = (layout.annotations || []).map((note) => (level(note)
    ? { ...note, xanchor: "right", yanchor: note.y === lowest ? "top" : "bottom", xshift: 0, yshift: 0 } : note.yshift === STEP ? { ...note, text: note.text.replace(/ [0-9a-f]{7}$/, "") } : note));
}
// Labels of change points keep apart: one that would run into its neighbour stands a row higher.
const STEP = 17, ROW = 20, LETTER = 6.3;
function keepApart(layout, width) {
  const [from, to] = layout.xaxis?.range || [], plot = width - layout.margin.l - layout.margin.r, ends = [];
  if (!Number.isFinite(from) || plot < 1) return;
  for (const note of (layout.annotations || []).filter((each) => each.yshift === STEP).sort((a, b) => a.x - b.x)) {
    const at = ((note.x - from) / (to - from)) * plot, half = (note.text.length * LETTER + 10) / 2;
    const free = ends.findIndex((end) => end <= at - half), row = free < 0 ? ends.length : free;
    ends[row] = at + half;
    note.yshift += row * ROW;
  }
  if (ends.length > 1) layout.margin = { ...layout.margin, t: layout.margin.t + (ends.length - 1) * ROW };
}
const FONT = getComputedStyle(document.documentElement).fontFamily;
const NARROW = 480;
function layoutOf(figure, box) {
  const layout = themed(figure.layout);
  if (box.clientWidth < NARROW) narrow(layout);
  if (layout.annotations) keepApart(layout, box.clientWidth);
  layout.font = { family: FONT, size: 11, ...(layout.font || {}) };
  return layout;
}
const CONFIG = { displaylogo: false, responsive: true, displayModeBar: false, doubleClick: "reset", showTips: false };

async function draw(box) {
  const wait = $(".wait", box);
  if (wait) wait.textContent = "drawing…";
  const figure = JSON.parse($(`#${box.dataset.figure}`).textContent);
  const Plotly = await plotly(box.dataset.plotly);
  const layout = layoutOf(figure, box);
  const query = new URLSearchParams(location.search);
  const zoom = box.dataset.zoom && query.get("zoom");
  if (zoom) {
    const [from, to] = zoom.split("~").map((end) => (Number.isFinite(Number(end)) ? Number(end) : end));
    if (from !== "" && to !== undefined) layout.xaxis = { ...layout.xaxis, range: [from, to], autorange: false };
  }
  wait?.remove();
  await Plotly.newPlot(box, themed(figure.data), layout, CONFIG);
  box.dataset.drawn = "1";
  const plot = $(".main-svg", box);
  if (plot) { plot.setAttribute("aria-hidden", "true"); }
  box.on("plotly_click", (event) => {
    const address = event.points[0]?.data.links?.[event.points[0].pointIndex];
    if (address) location.href = address;
  });
  if (box.dataset.zoom) {
    box.on("plotly_relayout", (change) => {
      const now = new URL(location.href);
      if (change["xaxis.autorange"]) now.searchParams.delete("zoom");
      else {
        const [from, to] = change["xaxis.range"] || [change["xaxis.range[0]"], change["xaxis.range[1]"]];
        if (from === undefined) return;
        now.searchParams.set("zoom", [from, to].map((end) => (typeof end === "number" ? Math.round(end * 10) / 10 : end)).join("~"));
      }
      history.replaceState(null, "", now);
    });
  }
  for (const toggle of $$(`[data-traces="${box.id}"]`)) {
    toggle.addEventListener("change", () => {
      const names = toggle.value.split(",");
      const which = box.data.map((trace, i) => (names.includes(trace.name) ? i : -1)).filter((i) => i >= 0);
      if (which.length) Plotly.restyle(box, { visible: toggle.checked }, which);
    });
  }
}
const boxes = $$("[data-figure]");
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    begin(entry.target);
  }
}, { rootMargin: "300px" });
function begin(box) {
  watcher.unobserve(box);
  if (box.dataset.begun) return undefined;
  box.dataset.begun = "1";
  return draw(box).then(rest).catch((error) => { const wait = $(".wait", box); if (wait) wait.textContent = `${error.message}; the points are in the table below.`; });
}
// Where the library is there, what is further down is drawn while nobody waits: it is there when one prints, or scrolls.
function rest() {
  const next = boxes.find((box) => !box.dataset.begun && box.clientWidth);
  if (next) (window.requestIdleCallback || setTimeout)(() => begin(next));
}
boxes.forEach((box) => watcher.observe(box));
addEventListener("themechange", () => {
  for (const box of boxes) {
    if (!box.dataset.drawn) continue;
    const figure = JSON.parse($(`#${box.dataset.figure}`).textContent);
    const layout = layoutOf(figure, box);
    if (box.layout?.xaxis?.autorange === false) layout.xaxis = { ...layout.xaxis, range: box.layout.xaxis.range, autorange: false };
    const seen = new Map();
    const data = themed(figure.data, seen).map((trace, i) => ({ ...trace, visible: box.data[i]?.visible ?? true }));
    window.Plotly.react(box, data, layout, CONFIG);
  }
});
localise();
