// The page begins here.
import { arrive, callback, comeBack, resume, session, signIn, why } from "./api.js";
import { App } from "./app.js";
import { loadTypes } from "./discovery.js";
import { effect, html, render } from "./html.js";
import { followLinks, go, plane } from "./route.js";
import { applyTheme } from "./theme.js";

applyTheme();
followLinks();
render(html`<${App} />`, document.getElementById("page"));

// A one-time code is in the fragment, which browsers send to nobody. It goes from the address before anything else.
const code = new URLSearchParams(location.hash.slice(1)).get("code");
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  try {
    await signIn({ code });
  } catch (e) {
    why.value = `The code did not work: ${e.message}. A code is good once, for a minute.`;
    session.value = null;
  }
} else if (location.pathname.startsWith(callback)) go(await comeBack(), { push: false });
else {
  await resume();
  if (plane && !session.value) await arrive();
}

effect(() => {
  if (session.value) loadTypes();
});
