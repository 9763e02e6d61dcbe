// A watch by a streaming answer: one event a line.
import { Failure, request } from "./api.js";

const wait = (ms, abort) =>
  new Promise((done) => {
    const timer = setTimeout(done, ms);
    abort.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });

// watch follows a collection from a resourceVersion until abort, and calls on for each event but bookmarks. It begins
// again where it was after a connection has ended, later each time it fails. It returns when the version is too old to
// be followed (the caller lists again), and throws what will not mend: a request that is refused.
export async function watch(path, query, { accept, resourceVersion, abort, on, state }) {
  let delay = 250;
  while (!abort.aborted) {
    try {
      const answer = await request(
        path,
        { ...query, watch: "1", allowWatchBookmarks: "true", resourceVersion },
        { accept, abort },
      );
      state?.("live");
      for await (const event of events(answer.body)) {
        delay = 250;
        if (event.type === "ERROR") {
          if (event.object?.code === 410) return;
          throw new Failure(event.object?.code, event.object);
        }
        const at = versionOf(event.object);
        if (at) resourceVersion = at;
        if (event.type !== "BOOKMARK") on(event);
      }
    } catch (e) {
      if (abort.aborted) return;
      if (e.code === 410) return;
      if (e.code >= 400 && e.code < 500 && e.code !== 429) throw e;
    }
    if (abort.aborted) return;
    state?.("connecting");
    await wait(delay * (0.5 + Math.random()), abort);
    delay = Math.min(delay * 2, 15000);
  }
}

// versionOf is the resourceVersion of an object, or of the one object in a Table.
function versionOf(object) {
  return object?.rows?.[0]?.object?.metadata?.resourceVersion || object?.metadata?.resourceVersion;
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = []; // of the line that has not ended: an object may come in many pieces
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = value.split("\n");
      for (let i = 0; i < lines.length - 1; i++) {
        const line = parts.join("") + lines[i];
        parts = [];
        if (line.trim()) yield JSON.parse(line);
      }
      parts.push(lines[lines.length - 1]);
    }
  } finally {
    reader.cancel().catch(() => {}); // it has ended, or was called off
  }
}
