// The frame of all pages: header, sign-in, help, and the page that the address names.
import { issuers, leaveFor, session, signIn, signOut, why } from "./api.js";
import { types, typesError } from "./discovery.js";
import { html, useEffect, useState } from "./html.js";
import { destinations, helpShown, onKey } from "./keys.js";
import { later } from "./later.js";
import { ListPage } from "./listpage.js";
import { ObjectPage } from "./objectpage.js";
import { PlaneField, PlanesPage } from "./planespage.js";
import { first, plane, root, route } from "./route.js";
import { visible } from "./text.js";
import { nextTheme, theme } from "./theme.js";
import { TypesPage } from "./typespage.js";

const AccessPage = later(async () => (await import("./accesspage.js")).AccessPage);
const ExpressionsPage = later(async () => (await import("./expressionspage.js")).ExpressionsPage);
const EditPage = later(async () => (await import("./editpage.js")).EditPage);
const PastPage = later(async () => (await import("./pastpage.js")).PastPage);
const HealthPage = later(async () => (await import("./healthpage.js")).HealthPage);

export function App() {
  useEffect(() => {
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  if (session.value === undefined) return html`<main class="wait" aria-busy="true">Signing in…</main>`;
  return html`
    <a class="skip" href="#content">Skip to content</a>
    <${Header} />
    <main id="content">${session.value ? html`<${Page} />` : html`<${SignIn} />`}</main>
    ${helpShown.value && html`<${Help} />`}`;
}

// The health of the server, and its planes, are the first plane's.
const pages = () => [[root, "Types"], [`${root}access`, "Access"], [`${root}expressions`, "Expressions"],
  ...(plane ? [] : [[`${root}health`, "Health"]]), ...(session.value.planes ? [[`${first}planes`, "Planes"]] : [])];

function Header() {
  route.value; // which of the pages is shown
  return html`<header>
    <a class="home" href=${root}>Plinth</a>
    ${session.value && html`<nav aria-label="Pages">${pages().map(([url, text]) => html`<a href=${url}
      aria-current=${location.pathname === url ? "page" : undefined}>${text}</a>`)}</nav>`}
    ${session.value?.planes && html`<${PlaneField} />`}
    <span class="grow"></span>
    ${session.value && html`<span class="user" title="You are signed in as this user">
      ${visible(session.value.user.username, 60)}</span>`}
    <button class="quiet" onClick=${nextTheme} title="Light, dark, or as the system has it">Theme: ${theme.value}</button>
    <button class="quiet" onClick=${() => (helpShown.value = true)} aria-label="Keys" title="Keys (?)">?</button>
    ${session.value && html`<button class="quiet" onClick=${signOut}>Sign out</button>`}
  </header>`;
}

function Page() {
  const { page, type, namespace, name, query } = route.value;
  if (page === "types") return html`<${TypesPage} />`;
  if (page === "health") return html`<${HealthPage} />`;
  if (page === "none") return html`<h1>No such page</h1><p><a href=${root}>All types</a></p>`;
  if (!types.value) {
    return typesError.value
      ? html`<p class="error" role="alert">The types cannot be read: ${visible(typesError.value)}</p>`
      : html`<p aria-busy="true">Reading the types…</p>`;
  }
  if (page === "planes") return html`<${PlanesPage} query=${query} />`;
  if (page === "access") return html`<${AccessPage} />`;
  if (page === "expressions") return html`<${ExpressionsPage} />`;
  const id = [type.group, type.version, type.resource, namespace, name].join("/");
  if (page === "edit") return html`<${EditPage} key=${`edit/${id}`} ...${{ type, namespace, name, query }} />`;
  if (page === "past") return html`<${PastPage} key=${`past/${id}`} ...${{ type, namespace, name, query }} />`;
  if (page === "object") return html`<${ObjectPage} key=${id} ...${{ type, namespace, name, query }} />`;
  return html`<${ListPage} key=${id} ...${{ type, query }} />`;
}

function SignIn() {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [all, setAll] = useState([]);
  useEffect(() => {
    issuers().then(setAll, (e) => (why.value = e.message));
  }, []);
  const attempt = async (what) => {
    setBusy(true);
    try {
      await what();
    } catch (e) {
      why.value = e.message;
    }
    setBusy(false);
  };
  const begin = (credential) => attempt(() => signIn(credential).catch((e) => {
    throw e.code === 401 ? new Error("The server does not accept this credential.") : e;
  }));
  const submit = (event) => {
    event.preventDefault();
    if (token.trim()) begin({ token: token.trim() });
  };
  return html`<section class="signin">
    <h1>Sign in</h1>
    ${why.value && html`<p class="error" role="alert">${visible(why.value)}</p>`}
    ${all.map(({ id, name }) => html`<p key=${id}>
      <button disabled=${busy} onClick=${() => attempt(() => leaveFor(id))}>Sign in with ${visible(name, 200)}</button></p>`)}
    <form onSubmit=${submit}>
      <label for="token">Token</label>
      <input id="token" type="password" autocomplete="off" spellcheck=${false} value=${token}
        onInput=${(e) => setToken(e.target.value)} />
      <button disabled=${busy}>Sign in</button>
    </form>
    <p><button disabled=${busy} onClick=${() => begin({})}>Use this browser's certificate</button></p>
    <p class="hint"><code>plinth console</code> opens this page as the user of the kubeconfig. You have the rights of
      that user here, and no others.</p>
  </section>`;
}

const keys = [
  ["/", "search or filter"], ["g, then a letter", "go to a page"], ["j k ↓ ↑", "next, previous row or line"],
  ["Enter", "open the row; show the owners of the line"], ["n N", "next, previous line that is found"], ["e", "edit the object; in a list, a new one"], ["h", "the history of the object"],
  ["Esc", "leave the field; back"], ["?", "this help"],
];

function Help() {
  const close = () => (helpShown.value = false);
  return html`<div class="cover" onClick=${close}>
    <section class="help" role="dialog" aria-modal="true" aria-label="Keys" onClick=${(e) => e.stopPropagation()}>
      <h2>Keys</h2>
      <dl>${keys.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}
        ${destinations().map(([key, what]) => html`<dt><kbd>g ${key}</kbd></dt><dd>${what}</dd>`)}</dl>
      <button ref=${(b) => b?.focus()} onClick=${close}>Close</button>
    </section>
  </div>`;
}
