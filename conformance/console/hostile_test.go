package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"plinth/conformance/internal/harness"
)

// payloads are texts that would run or mislead where they are taken for anything but text. Each would set window.__ran.
var payloads = []string{
	`<script>window.__ran=1</script>`,
	`<img src=x onerror="window.__ran=1">`,
	`<svg onload="window.__ran=1"><script>window.__ran=1</script></svg>`,
	`"><iframe srcdoc="<script>parent.__ran=1</script>">`,
	`'-(window.__ran=1)-'${window.__ran=1}{{window.__ran=1}}`,
	`javascript:window.__ran=1//`,
	`data:text/html,<script>window.__ran=1</script>`,
	`<a href="javascript:window.__ran=1" autofocus onfocus="window.__ran=1">x</a>`,
	`<style>@import url("//evil.example/x.css");*{display:none}</style>`,
	`</code></pre></textarea></title></style></script><script>alert(1)</script>`,
	"\u202Egnp.exe\u202C \u2066hidden\u2069 \u200Bzero\uFEFF",
	"\x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x07link\x1b]8;;\x07 \x07",
	"&anchor *alias !!js/function 'function(){window.__ran=1}'\n---\n# x",
	`__proto__`, `constructor`, `{"__proto__":{"isAdmin":true}}`,
}

// jsonOf is a value as JSON.
func jsonOf(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// Every field that a user can write is text, on each page that shows it.
//
// SPEC: BEY-15
func TestHostileText(t *testing.T) {
	server := start(t)
	pages := writeHostile(t, server)
	b := open(t, server)
	b.signIn()
	for _, page := range pages {
		b.visit(page.path)
		b.wait(page.shown)
		b.wait(`document.querySelector("[data-state=live]")`)
		b.harmless()
	}
	// The filter and the addresses are other people's, too: links can be sent.
	for _, p := range payloads {
		b.visit("r/core/v1/configmaps?q=" + url.QueryEscape(p) + "&l=" + url.QueryEscape(p) + "&s=" + url.QueryEscape(p))
		b.wait(`document.querySelector("[role=alert], [data-state=live]")`)
		b.visit("r/core/v1/configmaps/default/" + url.PathEscape(p) + "?q=" + url.QueryEscape(p))
		b.wait(`document.querySelector("[role=alert], h1")`)
		b.harmless()
	}
}

// harmless fails if anything ran in the page, or came into it as anything but text.
func (b *tab) harmless() {
	b.t.Helper()
	const foreign = `window.__ran !== undefined || ({}).isAdmin || [...document.body.querySelectorAll("script, img, svg," +
		"iframe, style, object, embed, base, meta, link, [onerror], [onload], [onfocus], a[href^='javascript:' i]," +
		"a[href^='data:' i]")].length > 0 || /[\u202a-\u202e\u2066-\u2069\u001b]/.test(document.body.textContent)`
	if result(b, chromedp.Evaluate[bool](foreign)) {
		b.t.Errorf("not text alone: %s", b.text())
	}
}

// hostilePage is a page that shows hostile text, and what is true when it does.
type hostilePage struct{ path, shown string }

// writeHostile writes the payloads into every kind of field that the pages show.
func writeHostile(t *testing.T, server *harness.Server) []hostilePage {
	t.Helper()
	values := map[string]string{"long": strings.Repeat("<b>long</b>", 20_000)}
	var conditions []any
	for i, p := range payloads {
		values[fmt.Sprintf("key-%02d", i)] = p
		conditions = append(conditions, map[string]string{"type": fmt.Sprint("T", i, p), "status": "False", "reason": p,
			"message": p, "lastTransitionTime": "2026-01-01T00:00:00Z"})
	}
	made := create(t, server, configMaps, jsonOf(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "hostile", "annotations": values}, "data": values}))
	for i, p := range payloads[:10] { // names of managers are printable
		api(t, server, http.MethodPatch, configMaps+"/hostile?fieldManager="+url.QueryEscape(p),
			"application/merge-patch+json", jsonOf(map[string]any{"data": map[string]string{fmt.Sprint("of-", i): p}}))
	}
	uid := uidOf(t, made)
	for i, p := range payloads {
		create(t, server, "/api/v1/namespaces/default/events", jsonOf(map[string]any{"apiVersion": "v1", "kind": "Event",
			"metadata": map[string]any{"name": fmt.Sprint("event-", i)}, "reason": p, "message": p, "type": p[:4],
			"source": map[string]string{"component": p}, "involvedObject": map[string]string{"kind": "ConfigMap",
				"namespace": "default", "name": "hostile", "uid": uid}}))
	}
	definition := map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]string{"name": "things.example.com"}, "spec": map[string]any{"group": "example.com",
			"scope": "Namespaced", "names": map[string]string{"plural": "things", "kind": "Thing"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"additionalPrinterColumns": []any{map[string]string{"name": payloads[1], "type": "string",
					"description": payloads[2], "jsonPath": ".spec.a"}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "description": payloads[0],
					"x-kubernetes-preserve-unknown-fields": true}}}}}}
	create(t, server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", jsonOf(definition))
	const things = "/apis/example.com/v1/namespaces/default/things"
	create(t, server, things, jsonOf(map[string]any{"apiVersion": "example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"name": "thing", "ownerReferences": []any{map[string]string{"apiVersion": "x/v1",
			"kind": payloads[0], "name": payloads[1], "uid": payloads[2]}}},
		"spec": map[string]any{"a": payloads[1], payloads[0]: payloads[0]}}))
	api(t, server, http.MethodPatch, things+"/thing/status", "application/merge-patch+json",
		jsonOf(map[string]any{"status": map[string]any{"conditions": conditions, "phase": payloads[0]}}))
	const has = `document.body.textContent.includes("window.__ran=1")`
	return []hostilePage{
		{"r/core/v1/configmaps/default/hostile", has + ` && document.querySelectorAll(".events li").length >= 10`},
		{"r/core/v1/events", has},
		{"r/example.com/v1/things", has},
		{"r/example.com/v1/things/default/thing", has + ` && document.querySelector(".stuck") && document.querySelector(".tree li")`},
		{"r/apiextensions.k8s.io/v1/customresourcedefinitions/-/things.example.com", has},
	}
}
