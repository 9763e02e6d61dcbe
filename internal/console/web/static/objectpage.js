// The page of an object.
import { Below } from "./below.js";
import { Blame, isSecretPath, label } from "./blame.js";
import { known } from "./discovery.js";
import { html, useEffect, useMemo } from "./html.js";
import { Opened } from "./opened.js";
import { Events, eventsOf, Owners } from "./related.js";
import { editURL, listURL, objectURL, pastURL } from "./route.js";
import { findings } from "./stuck.js";
import { age, visible } from "./text.js";

export function ObjectPage({ type: named, namespace, name, query }) {
  const type = known(named);
  const opened = useMemo(() => new Opened(type, namespace, name), []);
  useEffect(() => () => opened.close(), []);
  useEffect(() => (document.title = `${name} — ${type.resource} — Plinth`), []);
  const object = opened.object.value, owned = opened.owned.value;
  const secret = type.resource === "secrets" && type.group === "";
  return html`
    <p class="crumbs"><a href=${listURL(type)}>${visible(type.resource)}</a>
      ${namespace && html` / <a href=${listURL(type, { ns: namespace })}>${visible(namespace, 300)}</a>`}</p>
    <h1>${visible(name, 300)} <small>${visible(type.kind)}</small></h1>
    <p class="status" role="status" data-state=${opened.state.value}>${words[opened.state.value]}
      ${object && html` · created ${age(object.metadata.creationTimestamp)} ago`}
      ${object && html` · <a href=${editURL(objectURL(type, namespace, name))}>Edit</a>
        · <a href=${pastURL(objectURL(type, namespace, name))}>History</a>`}
      ${object?.status?.phase && html` · <b>${visible(object.status.phase, 100)}</b>`}</p>
    ${opened.error.value && html`<p class="error" role="alert">${visible(opened.error.value)}</p>`}
    ${object && html`<div class="columns">
      <${Side} ...${{ object, owned, secret }} changes=${opened.changes.value} />
      ${owned ? html`<${Blame} ...${{ owned, secret }} q=${query.q || ""} manager=${query.m || ""} />`
        : html`<p aria-busy="true">Reading who owns each line…</p>`}
    </div>`}`;
}

const words = { loading: "loading…", live: "live", connecting: "connecting again…", deleted: "deleted", failed: "not live" };

// Side is what is beside the lines.
function Side({ object, owned, secret, changes }) {
  const events = eventsOf(object);
  return html`<div class="side">
    <${Stuck} ...${{ object, owned }} events=${events.value} />
    <${Conditions} conditions=${object.status?.conditions} />
    <${Owners} object=${object} />
    <${Below} object=${object} />
    <${Events} events=${events} />
    <${Changes} ...${{ changes, secret }} />
  </div>`;
}

function Stuck({ object, owned, events }) {
  const found = findings(object, owned, events);
  if (!found.length) return null;
  const serious = found.some((f) => !f.mild);
  return html`<section class=${`stuck${serious ? "" : " mild"}`}>
    <h2>${!serious ? "Before it is deleted" : object.metadata.deletionTimestamp ? "Why it is still here" : "What is not well"}</h2>
    <ul>${found.map((f) => html`<li><b>${visible(f.what, 300)}</b>${f.since && html` <span class="faint">for ${age(f.since)}</span>`}
      ${f.detail && html`<br />${visible(f.detail)}`}
      ${f.who?.length > 0 && html`<br /><span class="faint">set by ${visible(f.who.map(label).join(", "), 300)},
        ${" "}${age(f.who[0].time)} ago</span>`}</li>`)}</ul>
  </section>`;
}

function Conditions({ conditions }) {
  if (!Array.isArray(conditions) || !conditions.length) return null;
  return html`<section><h2>Conditions</h2><ul class="conditions">${conditions.map((c) => html`<li>
    <b>${visible(c?.type, 200)}</b> ${visible(c?.status, 100)} <span class="faint">${visible(c?.reason, 200)}
    ${" "}${age(c?.lastTransitionTime)}</span></li>`)}</ul></section>`;
}

const verbs = { ADDED: "created", MODIFIED: "changed", DELETED: "deleted" };

// Changes are what has happened while the page was open.
function Changes({ changes, secret }) {
  return html`<section><h2>Since you opened it</h2>
    ${!changes.length && html`<p class="faint">Nothing has happened yet.</p>`}
    <ol class="changes">${changes.map((c) => html`<li key=${c.at}><time datetime=${c.at.toISOString()}>
      ${c.at.toLocaleTimeString("en-GB")}</time> ${verbs[c.type] || visible(c.type)}
      ${c.lines.length > 0 && html`<pre>${c.lines.slice(0, 100).map((l) => html`<span class=${l.sign === "+" ? "plus" : "minus"}>
        ${l.sign} ${visible(l.path, 300)}: ${secret && isSecretPath(`${l.path}.`) ? "••••••" : visible(l.value, 500)}${"\n"}</span>`)}</pre>`}
    </li>`)}</ol></section>`;
}
