// The planes and what they cost, and the way from one to another. Where the user has no session in a plane yet, its
// console begins one (api.js, arrive), so a way there is a link.
import { planeNames, session } from "./api.js";
import { html, useState } from "./html.js";
import { ListPage } from "./listpage.js";
import { consoleOf, route } from "./route.js";

const type = { group: "plinth", version: "v1alpha1", resource: "planes", namespaced: false };

export function PlanesPage({ query }) {
  return html`<${ListPage} type=${type} query=${query} heading="Planes" wide=${["Memory", "Requests"]}
    urlOf=${(row) => consoleOf(row.name)} />`;
}

// PlaneField says in which plane one is, and goes to another: to the same list or page there. The names that it offers
// are those that the user may list. Any other one can be written, too.
export function PlaneField() {
  const [names, setNames] = useState([]);
  const current = session.value.plane;
  const offer = () => planeNames().then(setNames, () => {}); // without them the field has no list
  const leave = (event) => {
    const name = event.target.value.trim();
    if (name === current) return;
    location.assign(consoleOf(name) + below());
  };
  return html`<label class="plane"><span>Plane</span>
    <input name="plane" value=${current} placeholder="the first one" list="planes" autocomplete="off" spellcheck=${false}
      title="The plane that is shown; empty: the first one" onFocus=${offer} onChange=${leave} />
    <datalist id="planes">${names.map((name) => html`<option key=${name} value=${name} />`)}</datalist></label>`;
}

// below is what of the address means the same in another plane.
function below() {
  const { page, type: shown } = route.value;
  if (page === "list") return `r/${shown.group || "core"}/${shown.version}/${shown.resource}`;
  return ["access", "expressions"].includes(page) ? page : "";
}
