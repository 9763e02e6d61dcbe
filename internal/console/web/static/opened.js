// An object that is open: what it is now, who owns each of its lines, and what has happened to it since.
import { get, pathOf } from "./api.js";
import { difference } from "./difference.js";
import { signal } from "./html.js";
import { watch } from "./watch.js";

const mostChanges = 200; // that are kept

export class Opened {
  object = signal(null);
  owned = signal(null); // the answer of ?ownership=lines
  changes = signal([]); // the newest first: {type, at, lines}
  state = signal("loading"); // loading, live, connecting, deleted, failed
  error = signal("");

  #abort = new AbortController();
  #reading = false;
  #again = false;

  constructor(type, namespace, name) {
    this.type = type;
    this.namespace = namespace;
    this.name = name;
    this.path = pathOf(type, namespace, name);
    this.#run();
  }

  close() {
    this.#abort.abort();
  }

  async #run() {
    const abort = this.#abort.signal;
    while (!abort.aborted) {
      try {
        const object = await get(this.path, {}, { abort });
        this.#see(this.object.value ? "MODIFIED" : "", object);
        this.state.value = "live";
        this.error.value = "";
        await this.#owners();
        await watch(pathOf(this.type, this.namespace), { fieldSelector: `metadata.name=${this.name}` }, {
          resourceVersion: object.metadata.resourceVersion, abort,
          on: (event) => this.#event(event),
          state: (s) => this.state.value !== "deleted" && (this.state.value = s),
        });
      } catch (e) {
        if (abort.aborted) return;
        this.error.value = e.message;
        if (e.code === 404 && this.object.value) this.state.value = "deleted";
        else if (e.code >= 400 && e.code < 500 && e.code !== 429) this.state.value = "failed";
        else {
          this.state.value = "connecting";
          await new Promise((done) => setTimeout(done, 2000));
          continue;
        }
        return;
      }
    }
  }

  #event({ type, object }) {
    this.#see(type, object);
    if (type === "DELETED") this.state.value = "deleted";
    else {
      this.state.value = "live"; // one of the same name was created, if it had been deleted
      this.#owners();
    }
  }

  #see(type, object) {
    const before = this.object.value;
    this.object.value = object;
    if (!type) return;
    if (before && type !== "DELETED" && before.metadata.resourceVersion === object.metadata.resourceVersion) return;
    const lines = type === "DELETED" ? [] : difference(before, object);
    this.changes.value = [{ type, at: new Date(), lines }, ...this.changes.value].slice(0, mostChanges);
  }

  // owners reads who owns each line: one request at a time, and one more if something has changed meanwhile.
  async #owners() {
    this.#again = true;
    if (this.#reading) return;
    this.#reading = true;
    try {
      while (this.#again && !this.#abort.signal.aborted) {
        this.#again = false;
        this.owned.value = await get(this.path, { ownership: "lines" }, { abort: this.#abort.signal });
      }
    } catch (e) {
      if (e.code !== 404 && !this.#abort.signal.aborted) this.error.value = e.message;
    } finally {
      this.#reading = false;
    }
  }
}
