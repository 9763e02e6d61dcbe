// A field in which one writes a type, as kubectl takes it: "pods", "deployments.apps", with a list of those there are.
import { types } from "./discovery.js";
import { html } from "./html.js";

// nameOf is a type as it is written in the field.
export const nameOf = (type) => (type.group ? `${type.resource}.${type.group}` : type.resource);

// typeOf is the type that a text names: by its resource, with or without its group, its kind or a short name. Undefined
// if there is none.
export function typeOf(text) {
  const t = text.trim().toLowerCase();
  const all = types.value || [];
  return all.find((type) => nameOf(type) === t) ||
    all.find((type) => type.resource === t || type.kind.toLowerCase() === t || type.shortNames.includes(t));
}

export function TypeField({ name, label, value, hint }) {
  return html`<label><span>${label}</span>
    <input name=${name} value=${value} placeholder=${hint} list="types" autocomplete="off" spellcheck=${false} />
    <datalist id="types">${(types.value || []).map((type) => html`<option key=${nameOf(type)} value=${nameOf(type)} />`)}
    </datalist></label>`;
}
