// Expressions of admission policies, on objects that are there. The server evaluates them (ExpressionReview).
import { create, get } from "./api.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { load } from "./load.js";
import { objectURL, route, setQuery } from "./route.js";
import { visible } from "./text.js";
import { nameOf, TypeField, typeOf } from "./typefield.js";

// The address has the expressions as JSON: lists of [name, expression].
const read = (text) => {
  try {
    return JSON.parse(text).map(([name, expression]) => [String(name), String(expression)]);
  } catch {
    return [];
  }
};

const policies = { group: "admissionregistration.k8s.io", version: "v1", resource: "validatingadmissionpolicies" };

export function ExpressionsPage() {
  const { query } = route.value;
  useEffect(() => (document.title = "Expressions — Plinth"), []);
  const expressions = read(query.e || "[]"), variables = read(query.v || "[]");
  return html`<h1>Expressions</h1>
    <p class="hint">What an admission policy would say of the objects that are there. <code>object</code> and
      ${" "}<code>request</code> are as in a policy; nothing is changed.</p>
    <${Form} key=${`${query.e} ${query.v} ${query.r}`} ...${{ query, expressions, variables }} />
    ${query.r && expressions.length > 0 && html`<${Results} key=${JSON.stringify(query)} ...${{ query, expressions, variables }} />`}`;
}

function Form({ query, expressions, variables }) {
  const [rows, setRows] = useState(expressions.length ? expressions : [["", "object.metadata.name.size() < 10"]]);
  const [named, setNamed] = useState(variables);
  const form = useRef();
  const run = (event) => {
    event.preventDefault();
    const filled = (list) => list.filter(([, x]) => x.trim());
    const given = Object.fromEntries(["r", "ns", "l", "n", "o"].map((k) => [k, form.current.elements[k].value.trim()]));
    setQuery({ ...given, e: JSON.stringify(filled(rows)), v: named.length ? JSON.stringify(filled(named)) : "" }, { push: true });
  };
  const keys = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.current.requestSubmit();
  };
  const field = (name, label, hint) => html`<label><span>${label}</span><input name=${name} value=${query[name] || ""}
    placeholder=${hint} autocomplete="off" spellcheck=${false} /></label>`;
  return html`<form class="question" ref=${form} onSubmit=${run} onKeyDown=${keys} aria-label="Expressions">
    <${TypeField} name="r" label="On objects of the type" value=${query.r || ""} hint="deployments.apps" />
    ${field("ns", "in the namespace", "all")}
    ${field("l", "with the labels", "app=web")}
    ${field("n", "with the name", "any")}
    <label><span>as if</span><select name="o" value=${query.o || "CREATE"}><option value="CREATE">created</option>
      <option value="UPDATE">updated</option><option value="DELETE">deleted</option></select></label>
    <${Policies} onPick=${(spec) => {
      setNamed((spec.variables || []).map((v) => [v.name, v.expression]));
      setRows((spec.validations || []).map((v) => [v.message || "", v.expression]));
      const rule = spec.matchConstraints?.resourceRules?.[0];
      const type = rule && typeOf(rule.apiGroups?.[0] ? `${rule.resources?.[0]}.${rule.apiGroups[0]}` : `${rule.resources?.[0]}`);
      if (type) form.current.elements.r.value = nameOf(type);
    }} />
    <${List} title="Variables" one="variable" rows=${named} onChange=${setNamed} />
    <${List} title="Expressions" one="expression" rows=${rows} onChange=${setRows} />
    <p><button>Evaluate</button> <span class="faint">Ctrl-Enter</span></p>
  </form>`;
}

// Policies fills the form with the expressions of a policy that there is.
function Policies({ onPick }) {
  const { value } = load((abort) => get(`/apis/${policies.group}/${policies.version}/${policies.resource}`, { limit: 500 }, { abort }), []);
  if (!value?.items?.length) return null;
  return html`<label><span>Expressions of the policy</span><select onChange=${(e) => {
    const found = value.items.find((p) => p.metadata.name === e.target.value);
    if (found) onPick(found.spec);
  }}><option value="">…</option>${value.items.map((p) => html`<option value=${p.metadata.name}>
    ${visible(p.metadata.name, 100)}</option>`)}</select></label>`;
}

function List({ title, one, rows, onChange }) {
  const change = (i, j, text) => onChange(rows.map((row, k) => (k === i ? row.with(j, text) : row)));
  return html`<fieldset><legend>${title}</legend>
    ${rows.map(([name, x], i) => html`<div class="expression" key=${i}>
      <input aria-label=${`Name of ${one} ${i + 1}`} placeholder="name" value=${name} spellcheck=${false} autocomplete="off"
        onInput=${(e) => change(i, 0, e.target.value)} />
      <textarea aria-label=${`${one} ${i + 1}`} rows=${Math.min(12, x.split("\n").length + 1)} spellcheck=${false}
        onInput=${(e) => change(i, 1, e.target.value)} value=${x}></textarea>
      <button type="button" class="quiet" aria-label=${`Remove ${one} ${i + 1}`}
        onClick=${() => onChange(rows.toSpliced(i, 1))}>Remove</button></div>`)}
    <button type="button" onClick=${() => onChange([...rows, ["", ""]])}>Add ${one === "expression" ? "an" : "a"} ${one}</button>
  </fieldset>`;
}

function Results({ query, expressions, variables }) {
  const type = typeOf(query.r);
  const named = (list) => list.map(([name, expression]) => ({ name, expression }));
  const { value, error } = load(async (abort) => {
    if (!type) throw new Error(`There is no type ${query.r}.`);
    return create("/apis/plinth/v1alpha1/expressionreviews", {
      apiVersion: "plinth/v1alpha1", kind: "ExpressionReview",
      spec: {
        resource: { group: type.group, version: type.version, resource: type.resource }, namespace: query.ns || "",
        name: query.n || "", labelSelector: query.l || "", operation: query.o || "CREATE", limit: 500,
        expressions: named(expressions), variables: named(variables),
      },
    }, { abort });
  }, [JSON.stringify(query)]);
  if (error) {
    const causes = error.causes?.length ? error.causes : [{ message: error.message }];
    return html`<div class="error" role="alert">${causes.map((c) => html`<pre>${c.field && `${visible(c.field, 200)}: `}${visible(c.message)}</pre>`)}</div>`;
  }
  if (!value) return html`<p aria-busy="true">Evaluating…</p>`;
  const { objects = [], cost, costLimit, incomplete } = value.status;
  const untrue = (o) => o.results.some((r) => r.error || r.value === false);
  const sorted = objects.toSorted((a, b) => untrue(b) - untrue(a));
  return html`<section><h2><span role="status">${objects.length} ${objects.length === 1 ? "object" : "objects"},
      ${" "}${objects.filter(untrue).length} of them not true</span></h2>
    <p class="faint">Cost ${cost.toLocaleString("en")} of ${costLimit.toLocaleString("en")}.
      ${incomplete && html` <b>Not all was evaluated: ${visible(incomplete, 300)}</b>`}</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Results"><table><thead><tr><th scope="col">Object</th>
      ${expressions.map(([name, x]) => html`<th scope="col" title=${visible(x, 500)}>${visible(name || x, 60)}</th>`)}</tr></thead>
      <tbody>${sorted.map((o) => html`<tr><td><a href=${objectURL(type, o.namespace, o.name)}>
        ${o.namespace && `${visible(o.namespace, 100)}/`}${visible(o.name, 200)}</a></td>
        ${o.results.map((r) => html`<td class=${r.error || r.value === false ? "minus" : r.value === true ? "plus" : ""}
          title=${`cost ${r.cost}`}>${r.error ? visible(r.error, 300) : visible(JSON.stringify(r.value ?? null), 300)}</td>`)}</tr>`)}
      </tbody></table></div></section>`;
}
