// One event stream per browser: a shared worker holds it and hands every event to all open tabs of Tidemark.
// A page of a single run asks for that run's own stream too, because its log lines are sent to nobody else.
const KINDS = ["run", "log", "commits", "worker", "regression", "queue", "project", "session", "bisection"];
const ports = new Map(); // port → the run it watches, or null
const streams = new Map(); // run id or "" → {source, state}

function tell(run, message) {
  for (const [port, watched] of ports) {
    if (run === "" || watched === run) port.postMessage(message);
  }
}

function open(run) {
  if (streams.has(run)) return;
  const source = new EventSource("/api/v1/events" + (run ? "?run=" + encodeURIComponent(run) : ""));
  const stream = { source, state: "connecting" };
  streams.set(run, stream);
  const state = (value) => {
    if (stream.state === value) return;
    stream.state = value;
    if (run === "") tell("", { state: value });
  };
  source.onopen = () => state("live");
  source.onerror = () => {
    state("lost");
    // A browser gives up after an answer that is no stream (a proxy's 502 while the service restarts); we do not.
    if (source.readyState === EventSource.CLOSED) {
      streams.delete(run);
      setTimeout(() => { if (wanted(run)) open(run); }, 2000);
    }
  };
  for (const kind of KINDS) {
    source.addEventListener(kind, (event) => {
      let data;
      try { data = JSON.parse(event.data); } catch { return; }
      // The general stream carries no log lines, so nothing arrives twice.
      if (run !== "" && kind !== "log") return;
      tell(run, { kind, data });
    });
  }
}

const wanted = (run) => (run === "" ? ports.size > 0 : [...ports.values()].includes(run));

function tidy() {
  for (const [run, stream] of streams) {
    if (!wanted(run)) { stream.source.close(); streams.delete(run); }
  }
}

function serve(port) {
  port.onmessage = ({ data }) => {
    if (data.bye) { ports.delete(port); tidy(); return; }
    ports.set(port, data.run || null);
    open("");
    if (data.run) open(data.run);
    port.postMessage({ state: streams.get("").state });
  };
}

if (typeof SharedWorkerGlobalScope !== "undefined" && self instanceof SharedWorkerGlobalScope) {
  self.onconnect = (event) => { serve(event.ports[0]); };
} else {
  serve(self); // a plain worker, where shared ones don't exist: one stream per tab
}
