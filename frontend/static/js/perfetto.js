// A trace opens in Perfetto by one click: its page is opened beside this one and handed the trace by the browser itself,
// so nothing is uploaded. Where Perfetto cannot be reached (no network), the file is there to download.
import { $$, toast } from "./page.js";

const PERFETTO = "https://ui.perfetto.dev";
const PATIENCE_MS = 15000, KNOCK_MS = 250;

async function open(link) {
  const other = window.open(PERFETTO, "_blank"); // before anything is awaited: later, browsers take it for a pop-up
  if (!other) { toast("The browser did not open a window; download the trace instead"); return; }
  const answer = await fetch(link.href);
  if (!answer.ok) { other.close(); toast(`The trace could not be read (${answer.status})`); return; }
  const buffer = await answer.arrayBuffer();
  const began = performance.now();
  const knock = setInterval(() => {
    if (other.closed) { stop(); return; }
    if (performance.now() - began > PATIENCE_MS) { stop(); toast("Perfetto does not answer; download the trace and open it in chrome://tracing"); return; }
    other.postMessage("PING", PERFETTO);
  }, KNOCK_MS);
  const hear = (event) => {
    if (event.origin !== PERFETTO || event.source !== other || event.data !== "PONG") return;
    stop();
    other.postMessage({ perfetto: { buffer, title: link.dataset.title, fileName: link.dataset.name } }, PERFETTO);
  };
  function stop() { clearInterval(knock); removeEventListener("message", hear); }
  addEventListener("message", hear);
}
for (const link of $$("[data-perfetto]")) {
  link.addEventListener("click", (event) => { event.preventDefault(); open(link); });
}
