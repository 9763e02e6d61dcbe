// Pages that are loaded when they are first seen: the first page stays small.
import { html, useEffect, useState } from "./html.js";

// later is a component that a function loads.
export function later(load) {
  let loaded;
  return function Later(props) {
    const [error, setError] = useState("");
    const [, setLoaded] = useState(Boolean(loaded));
    useEffect(() => {
      if (loaded) return;
      load().then((component) => setLoaded(Boolean((loaded = component))), (e) => setError(e.message));
    }, []);
    if (loaded) return html`<${loaded} ...${props} />`;
    return error ? html`<p class="error" role="alert">This page cannot be loaded: ${error}</p>` : html`<p aria-busy="true">Loading…</p>`;
  };
}
