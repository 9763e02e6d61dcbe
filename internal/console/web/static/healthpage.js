// The server's own health: its checks, and plots of its metrics while the page is open.
import { request } from "./api.js";
import { html, useEffect, useState } from "./html.js";
import { parse, quantile, rate, sum } from "./metrics.js";
import { bytes, Plot, round } from "./plot.js";
import { visible } from "./text.js";

const every = 2000; // milliseconds
const samples = 150;

const writing = new Set(["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"]);
const isRead = ({ verb }) => verb === "GET" || verb === "LIST";
const isWrite = ({ verb }) => writing.has(verb);
const total = "apiserver_request_total", took = "apiserver_request_duration_seconds";

// The plots: title, how values are written, and series: a name, and its value of the reading before, the one now, and
// the seconds between.
const milliseconds = (v) => `${round(v * 1000)} ms`;
const latency = (q, accept) => (before, now) => quantile(before, now, q, took, accept);
const plots = [
  ["Requests a second", round, {
    read: (b, n, s) => rate(b, n, s, total, isRead), write: (b, n, s) => rate(b, n, s, total, isWrite),
    "begun watches": (b, n, s) => rate(b, n, s, total, ({ verb }) => verb === "WATCH"),
  }],
  ["Refused or failed a second", round, {
    "4xx": (b, n, s) => rate(b, n, s, total, ({ code }) => code?.[0] === "4" && code !== "429"),
    "429": (b, n, s) => rate(b, n, s, total, ({ code }) => code === "429"),
    "5xx": (b, n, s) => rate(b, n, s, total, ({ code }) => code?.[0] === "5"),
  }],
  ["Latency of reads", milliseconds, { half: latency(0.5, isRead), "99 %": latency(0.99, isRead) }],
  ["Latency of writes", milliseconds, { half: latency(0.5, isWrite), "99 %": latency(0.99, isWrite) }],
  ["Requests now", round, {
    read: (b, n) => sum(n, "apiserver_current_inflight_requests", (l) => l.request_kind === "readOnly"),
    write: (b, n) => sum(n, "apiserver_current_inflight_requests", (l) => l.request_kind === "mutating"),
    watches: (b, n) => sum(n, "apiserver_longrunning_requests", (l) => l.verb === "WATCH"),
  }],
  ["Floods: requests that wait for seats", round, {
    waiting: (b, n) => sum(n, "apiserver_flowcontrol_current_inqueue_requests"),
    "refused a second": (b, n, s) => rate(b, n, s, "apiserver_flowcontrol_rejected_requests_total"),
  }],
  ["Places of execution", round, {
    held: (b, n) => sum(n, "plinth_places_held"), waiting: (b, n) => sum(n, "plinth_places_waiting"),
    places: (b, n) => sum(n, "plinth_places"),
  }],
  ["Writes of the store a second", round, { revisions: (b, n, s) => rate(b, n, s, "plinth_store_revision") }],
  ["Objects", round, { objects: (b, n) => sum(n, "apiserver_resource_objects") }],
  ["Store", bytes, { objects: (b, n) => sum(n, "plinth_store_bytes"), history: (b, n) => sum(n, "plinth_store_history_bytes") }],
  ["Memory", bytes, { resident: (b, n) => sum(n, "process_resident_memory_bytes"), heap: (b, n) => sum(n, "go_memstats_heap_inuse_bytes") }],
  ["Processors used", round, { processors: (b, n, s) => rate(b, n, s, "process_cpu_seconds_total") }],
];

// failing says which checks fail: those that the answer names, or why there is no answer.
const failing = (e) => (e.text || "").split("\n").filter((line) => line.startsWith("[-]")).join(", ") || e.message;

// follow reads the metrics again and again until abort, and calls on with each reading.
async function follow(abort, on, fail) {
  while (!abort.aborted) {
    try {
      const [metrics, unready] = await Promise.all([
        request("/metrics", {}, { accept: "text/plain", abort }).then((r) => r.text()),
        request("/readyz", { verbose: "true" }, { accept: "text/plain", abort }).then(() => "", (e) => failing(e)),
      ]);
      on({ at: performance.now(), metrics: parse(metrics), unready });
      fail("");
    } catch (e) {
      if (abort.aborted) return;
      fail(e.message);
      if (e.code === 403) return;
    }
    await new Promise((done) => setTimeout(done, every));
  }
}

export function HealthPage() {
  const [seen, setSeen] = useState({ history: [], unready: null });
  const [error, setError] = useState("");
  useEffect(() => (document.title = "Health — Plinth"), []);
  useEffect(() => {
    const abort = new AbortController();
    let before;
    follow(abort.signal, (now) => {
      const sample = before && plots.map(([, , series]) =>
        Object.values(series).map((f) => f(before.metrics, now.metrics, (now.at - before.at) / 1000)));
      before = now;
      setSeen(({ history }) => ({ history: sample ? [...history, sample].slice(-samples) : history, unready: now.unready }));
    }, setError);
    return () => abort.abort();
  }, []);
  return html`<h1>Health of the server</h1>
    ${error && html`<p class="error" role="alert">${visible(error)}</p>`}
    ${seen.unready !== null && html`<p class="status" role="status" data-state=${seen.unready ? "failed" : "live"}>
      ${seen.unready ? `Not ready: ${visible(seen.unready)}` : "Ready: all checks succeed."}</p>`}
    ${!seen.history.length && !error && html`<p aria-busy="true">Reading…</p>`}
    ${seen.history.length > 0 && html`<div class="plots">${plots.map(([title, format, series], i) => html`<${Plot} key=${title}
      ...${{ title, format, samples }} series=${Object.keys(series).map((name, j) => ({ name, values: seen.history.map((h) => h[i][j]) }))} />`)}
    </div>
    <p class="faint">Of the last ${Math.round((samples * every) / 60000)} minutes at most, while this page is open. Of all time, for Prometheus: <code>/metrics</code>.</p>`}`;
}
