// Events for this page, through the shared stream. `on(kind, callback)`; "state" tells live, lost, connecting.
const listeners = new Map();
let port = null;
const hello = { run: document.body.dataset.run || null };

export function on(kind, callback) {
  if (!listeners.has(kind)) listeners.set(kind, []);
  listeners.get(kind).push(callback);
  connect();
}

function emit(kind, data) {
  for (const callback of listeners.get(kind) || []) callback(data);
}

function connect() {
  if (port) return;
  const address = document.body.dataset.live;
  try {
    port = new SharedWorker(address, { name: "tidemark-live" }).port;
    port.start();
  } catch {
    port = new Worker(address);
  }
  port.onmessage = ({ data }) => {
    if (data.state) { emit("state", data.state); return; }
    emit(data.kind, data.data);
    emit("*", data);
  };
  port.postMessage(hello);
}
addEventListener("pagehide", () => { if (port) port.postMessage({ bye: true }); });
addEventListener("pageshow", (event) => { if (event.persisted && port) port.postMessage(hello); });

// Runs `work` soon after the last of several calls, at least every `longest` milliseconds.
export function settle(work, wait = 80, longest = 600) {
  let timer = 0, first = 0;
  return () => {
    const now = performance.now();
    if (!timer) first = now;
    clearTimeout(timer);
    timer = setTimeout(() => { timer = 0; work(); }, Math.min(wait, Math.max(0, first + longest - now)));
  };
}
