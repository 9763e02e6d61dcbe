// Who may do what: the subjects that may make a request, whether a user may, and what one may do oneself.
import { create } from "./api.js";
import { html, useEffect } from "./html.js";
import { load } from "./load.js";
import { objectURL, route, setQuery } from "./route.js";
import { visible } from "./text.js";
import { TypeField, typeOf } from "./typefield.js";

const rbac = { group: "rbac.authorization.k8s.io", version: "v1" };
const authorization = "/apis/authorization.k8s.io/v1";

// asked is the question of the address, as the attributes of a review; null if there is none.
function asked({ v, r, ns, n }) {
  if (!v || !r) return null;
  if (r.startsWith("/")) return { nonResourceAttributes: { verb: v, path: r } };
  const [name, subresource = ""] = r.split("/");
  const type = typeOf(name);
  const [resource, ...group] = name.split(".");
  return {
    resourceAttributes: {
      verb: v, group: type ? type.group : group.join("."), resource: type ? type.resource : resource, subresource,
      namespace: ns || "", name: n || "",
    },
  };
}

export function AccessPage() {
  const { query } = route.value;
  useEffect(() => (document.title = "Access — Plinth"), []);
  const question = asked(query), id = JSON.stringify([question, query.u, query.gr]);
  return html`<h1>Access</h1>
    <${Question} query=${query} />
    ${question && query.u && html`<${Decision} key=${`u${id}`} ...${{ question, user: query.u, groups: query.gr || "" }} />`}
    ${question && html`<${WhoCan} key=${id} question=${question} />`}
    <${Own} key=${`own${query.ns}`} namespace=${query.ns || "default"} />`;
}

const verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "bind",
  "escalate", "approve", "sign"];

function Question({ query }) {
  const ask = (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    setQuery(Object.fromEntries(Object.entries(given).map(([k, v]) => [k, v.trim()])), { push: true });
  };
  const field = (name, label, hint) => html`<label><span>${label}</span><input name=${name} value=${query[name] || ""}
    placeholder=${hint} autocomplete="off" spellcheck=${false} /></label>`;
  return html`<form class="question" role="search" aria-label="Who may do what" onSubmit=${ask}>
    <label><span>Who may</span><input data-search name="v" value=${query.v || ""} placeholder="delete" list="verbs"
      autocomplete="off" spellcheck=${false} /><datalist id="verbs">${verbs.map((v) => html`<option value=${v} />`)}
    </datalist></label>
    <${TypeField} name="r" label="type, type/subresource or /path" value=${query.r || ""} hint="pods" />
    ${field("ns", "in the namespace", "all")}
    ${field("n", "with the name", "any")}
    ${field("u", "and may this user?", "alice")}
    ${field("gr", "in these groups", "devs, system:authenticated")}
    <button>Ask</button>
  </form>`;
}

// Decision is whether one user may.
function Decision({ question, user, groups }) {
  const { value, error } = load((abort) => create(`${authorization}/subjectaccessreviews`, {
    apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview",
    spec: { ...question, user, groups: groups.split(/[\s,]+/).filter(Boolean) },
  }, { abort }), [JSON.stringify(question), user, groups]);
  if (error) return html`<p class="error" role="alert">${visible(error.message)}</p>`;
  if (!value) return html`<p aria-busy="true">Asking…</p>`;
  const { allowed, reason, evaluationError } = value.status;
  return html`<p class=${`decision ${allowed ? "plus" : "minus"}`} role="status"><b>${visible(user, 200)}
    ${allowed ? " may" : " may not"}</b>${reason && `: ${visible(reason)}`}${evaluationError && ` (${visible(evaluationError)})`}</p>`;
}

// WhoCan are all who may.
function WhoCan({ question }) {
  const { value, error } = load((abort) => create("/apis/plinth/v1alpha1/whocanreviews", {
    apiVersion: "plinth/v1alpha1", kind: "WhoCanReview", spec: question,
  }, { abort }), [JSON.stringify(question)]);
  if (error) return html`<p class="error" role="alert">${visible(error.message)}</p>`;
  if (!value) return html`<p aria-busy="true">Asking…</p>`;
  const { grants = [], incomplete = [] } = value.status;
  const reference = (ref) => ref && html`${visible(ref.kind, 60)}
    ${" "}<a href=${objectURL({ ...rbac, resource: `${ref.kind.toLowerCase()}s` }, ref.namespace, ref.name)}>
    ${ref.namespace && `${visible(ref.namespace, 100)}/`}${visible(ref.name, 200)}</a>`;
  return html`<section><h2>Who may: ${grants.length} ${grants.length === 1 ? "grant" : "grants"}</h2>
    ${incomplete.map((why) => html`<p class="hint">Not all is known: ${visible(why)}</p>`)}
    <div class="scroll" tabindex="0" role="region" aria-label="Who may"><table><thead><tr><th scope="col">Subject</th>
      <th scope="col">by the binding</th><th scope="col">to the role</th></tr></thead>
      <tbody>${grants.map(({ subject: s, binding, role }) => html`<tr><td>${visible(s.kind, 60)}
        ${" "}<b>${s.namespace && `${visible(s.namespace, 100)}/`}${visible(s.name, 200)}</b></td>
        <td>${binding ? reference(binding) : "always"}</td><td>${reference(role)}</td></tr>`)}</tbody></table></div>
  </section>`;
}

// Own is what one may do oneself.
function Own({ namespace }) {
  const { value, error } = load((abort) => create(`${authorization}/selfsubjectrulesreviews`, {
    apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectRulesReview", spec: { namespace },
  }, { abort }), [namespace]);
  const { resourceRules = [], nonResourceRules = [], incomplete } = value?.status || {};
  const list = (values) => visible((values || []).join(", "), 500);
  const typesIn = (rule) => list((rule.resources || []).flatMap((r) => (rule.apiGroups || [""]).map((g) => (g ? `${r}.${g}` : r))));
  return html`<section><h2>What you may do in ${visible(namespace, 100)}</h2>
    ${error && html`<p class="error" role="alert">${visible(error.message)}</p>`}
    ${incomplete && html`<p class="hint">Not all is known: an authorizer cannot list its rules.</p>`}
    ${value && html`<div class="scroll" tabindex="0" role="region" aria-label="Your rights"><table>
      <thead><tr><th scope="col">Verbs</th><th scope="col">Types or paths</th><th scope="col">Names</th></tr></thead>
      <tbody>${resourceRules.map((rule) => html`<tr><td>${list(rule.verbs)}</td><td>${typesIn(rule)}</td>
        <td>${list(rule.resourceNames)}</td></tr>`)}
      ${nonResourceRules.map((rule) => html`<tr><td>${list(rule.verbs)}</td><td>${list(rule.nonResourceURLs)}</td><td></td></tr>`)}
      </tbody></table></div>`}
  </section>`;
}
