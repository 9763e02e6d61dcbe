package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"plinth/conformance/internal/harness"
)

// pageCase is a page of the console in one of its states, for the tests that look at all of them.
type pageCase struct {
	name  string
	path  string     // below /console/
	shown string     // an expression in JavaScript, true when the page shows what it is to show
	then  func(*tab) // what a user does then; nil: nothing
}

const live = `document.querySelector("[data-state=live]")`

// pageCases are all pages to which somebody who has signed in comes. The objects are those of writePages.
var pageCases = []pageCase{
	{name: "types", shown: hasText("customresourcedefinitions")},
	{name: "types-searched", path: "?q=config", shown: hasText("configmaps")},
	{name: "types-none", path: "?q=no-such-type", shown: hasText("No type matches")},
	{name: "list", path: "r/core/v1/configmaps", shown: live + ` && document.querySelector(".space .row")`},
	{name: "list-sorted", path: "r/core/v1/configmaps?ns=default&q=page&s=-Name",
		shown: live + ` && document.querySelector(".space .row")`},
	{name: "list-columns", path: "r/core/v1/pods", shown: live + " && " + hasText("page-pod")},
	{name: "list-empty", path: "r/core/v1/pods?ns=empty", shown: live},
	{name: "list-refused", path: "r/core/v1/pods?l=%21%21", shown: alert},
	{name: "list-no-type", path: "r/no.such/v1/things", shown: alert},
	{name: "object", path: "r/core/v1/configmaps/default/page", shown: live + " && " + hasText("key-199: value-199")},
	{name: "object-picked", path: "r/core/v1/configmaps/default/page?q=key-19&m=needle+Apply",
		shown: live + ` && document.querySelector(".line.dim") && document.querySelector(".line.found")`},
	{name: "object-changed", path: "r/core/v1/configmaps/default/page",
		shown: live + ` && document.querySelector(".lines")`,
		then: func(b *tab) {
			api(b.t, b.server, http.MethodPatch, configMaps+"/page", "application/merge-patch+json",
				fmt.Sprintf(`{"data":{"changed":"%s"}}`, b.next()))
			b.wait(`document.querySelector(".changes .plus")`)
		}},
	{name: "object-status", path: "r/core/v1/pods/default/page-pod", shown: live + " && " + hasText("Unschedulable") +
		` && document.querySelector(".events .warning") && document.querySelector(".tree")`},
	{name: "object-held", path: "r/core/v1/configmaps/stuck/held",
		shown: live + " && " + hasText("Finalizer example.com/held")},
	{name: "object-missing", path: "r/core/v1/configmaps/default/none", shown: alert},
	{name: "object-deleted", path: "r/core/v1/configmaps/default/page",
		shown: live + ` && document.querySelector(".lines")`,
		then: func(b *tab) {
			api(b.t, b.server, http.MethodDelete, configMaps+"/page", "application/json", "")
			b.wait(`document.querySelector("[data-state=deleted]")`)
			writePage(b.t, b.server)
		}},
	{name: "secret", path: "r/core/v1/secrets/default/page", shown: live + " && " + hasText("a: ••••••")},
	{name: "secret-shown", path: "r/core/v1/secrets/default/page", shown: live + " && " + hasText("a: ••••••"),
		then: func(b *tab) {
			b.click("button", "Show the data")
			b.sees("c2VjcmV0")
		}},
	{name: "namespace", path: "r/core/v1/namespaces/-/stuck",
		shown: live + " && " + hasText("NamespaceContentRemaining is True"),
		then:  func(b *tab) { b.sees("finalizers: example.com/held") }},
	{name: "access", path: "access?v=delete&r=configmaps&ns=default&u=alice",
		shown: hasText("alice may not") + " && " + hasText("Group system:masters")},
	{name: "expressions", path: "expressions?" + url.Values{"r": {"configmaps"}, "ns": {"default"},
		"e": {`[["short","object.metadata.name.size() < 3"],["","object.data.none == ''"]]`}}.Encode(),
		shown: hasText("of them not true")},
	{name: "expressions-wrong", path: "expressions?" + url.Values{"r": {"configmaps"}, "e": {`[["","1 +"]]`}}.Encode(),
		shown: alert},
	{name: "health", path: "health", shown: `document.querySelector(".plots svg, .plots canvas")`},
	{name: "past", path: "r/core/v1/configmaps/default/page?past", shown: past},
	{name: "past-undo", path: "r/core/v1/secrets/default/page?past", shown: past, then: func(b *tab) {
		api(b.t, b.server, http.MethodPatch, "/api/v1/namespaces/default/secrets/page", "application/merge-patch+json",
			fmt.Sprintf(`{"metadata":{"labels":{"changed":"%s"}}}`, b.next()))
		b.visit("r/core/v1/secrets/default/page?past")
		b.wait(past)
		b.click(".ways button", "Undo this change")
		b.wait(`document.querySelector(".outcome .changes")`)
	}},
	{name: "edit", path: "r/core/v1/configmaps/default/page?edit", shown: editing},
	{name: "edit-new", path: "r/apps/v1/deployments?edit&ns=default", shown: editing},
	{name: "edit-conflict", path: "r/core/v1/configmaps/default/page?edit", shown: editing, then: func(b *tab) {
		b.replace(swap("value-199", "value-other"))
		b.press(kb.Enter)
		b.wait(`document.querySelector(".conflicts")`)
	}},
	{name: "edit-outcome", path: "r/core/v1/configmaps/default/page?edit", shown: editing, then: func(b *tab) {
		b.replace(swap("data:\n", "data:\n  new: x\n"))
		b.press(kb.Enter)
		b.wait(`document.querySelector(".outcome tbody tr")`)
	}},
	{name: "edit-refused", path: "r/core/v1/configmaps/default/page?edit", shown: editing, then: func(b *tab) {
		b.replace(swap("data:\n", "dat:\n"))
		b.press(kb.Enter)
		b.wait(alert)
	}},
	{name: "help", shown: hasText("customresourcedefinitions"), then: func(b *tab) {
		b.keys("?")
		b.sees("go to a page")
	}},
	{name: "no-such-page", path: "no/such/page", shown: hasText("No such page")},
}

// past is true when the page shows a change, and who has set each line as of then.
const past = `document.querySelector(".slide") && document.querySelector(".line .who") &&
	document.querySelector(".changes")`

// editing is true when the editor has its text.
const editing = `document.querySelector(".editor")?.shadowRoot?.querySelector(".cm-line")`

const alert = `document.querySelector("[role=alert]")`

// hasText is an expression in JavaScript: whether the page has a text.
func hasText(text string) string { return fmt.Sprintf("document.body.textContent.includes(%q)", text) }

// next is a text that it has not returned before.
func (b *tab) next() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.numbers++
	return fmt.Sprint(b.numbers)
}

// enter visits a page, and brings it into its state.
func (b *tab) enter(p pageCase) {
	b.t.Helper()
	b.visit(p.path)
	b.wait(p.shown)
	if p.then != nil {
		p.then(b)
	}
}

// writePages creates the objects that pageCases show.
func writePages(t testing.TB, server *harness.Server) {
	t.Helper()
	writePage(t, server)
	create(t, server, "/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret",
		"metadata":{"name":"page"},"data":{"a":"c2VjcmV0"}}`)
	create(t, server, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"empty"}}`)
	create(t, server, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"stuck"}}`)
	create(t, server, "/api/v1/namespaces/stuck/configmaps?fieldManager=operator",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","finalizers":["example.com/held"]}}`)
	api(t, server, http.MethodDelete, "/api/v1/namespaces/stuck", "application/json", "")
	const pods = "/api/v1/namespaces/default/pods"
	pod := create(t, server, pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"page-pod","ownerReferences":[
		{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"gone","uid":"0b7a7e5c-0000-4000-8000-000000000000",
		"controller":true},{"apiVersion":"no.such/v1","kind":"Thing","name":"other",
		"uid":"0b7a7e5c-0000-4000-8000-000000000001"}],"finalizers":["example.com/held"]},
		"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	api(t, server, http.MethodPatch, pods+"/page-pod/status?fieldManager=scheduler", "application/merge-patch+json",
		`{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable",
		"message":"0/3 nodes are available","lastTransitionTime":"2026-01-01T00:00:00Z"},
		{"type":"Other","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	create(t, server, "/api/v1/namespaces/default/events", fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":
		{"name":"page"},"reason":"FailedScheduling","message":"0/3 nodes are available","type":"Warning","count":3,
		"source":{"component":"scheduler"},"involvedObject":{"kind":"Pod","namespace":"default","name":"page-pod",
		"uid":%q}}`, uidOf(t, pod)))
}

// writePage creates the object of 200 fields, of which one has another owner.
func writePage(t testing.TB, server *harness.Server) {
	t.Helper()
	var data strings.Builder
	for i := range 200 {
		if i != 190 {
			fmt.Fprintf(&data, "  key-%03d: value-%d\n", i, i)
		}
	}
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: page\ndata:\n"
	apply(t, server, configMaps+"/page", "bulk", head+data.String())
	apply(t, server, configMaps+"/page", "needle", head+"  key-190: sharp\n  key-007: value-7\n")
}

// forms calls a function for a page in each of its forms: light and dark, wide and narrow.
func (b *tab) forms(f func(theme string, width int64)) {
	b.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{1440, 320} {
			b.run(chromedp.EmulateViewport(width, 900), chromedp.Evaluate[chromedp.Void](
				fmt.Sprintf("document.documentElement.dataset.theme = %q", theme)))
			f(theme, width)
		}
	}
	b.run(chromedp.EmulateViewport(1440, 900))
}
