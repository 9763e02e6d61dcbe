package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/chromedp/chromedp"

	"plinth/conformance/internal/harness"
)

// jsonOf is a value as JSON.
func jsonOf(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// foreign is an expression in JavaScript: whether anything ran in the page, came into it as anything but text, moved
// what is around it, or was loaded from elsewhere.
const foreign = `window.__ran !== undefined || ({}).isAdmin || ({}).polluted || [...document.body.querySelectorAll("script,` +
	`img, svg, iframe, style, object, embed, base, meta, link, [onerror], [onload], [onfocus], a[href^='javascript:' i],` +
	`a[href^='data:' i], a[href*='evil']")].some((e) => !e.pathname?.startsWith("/console/r/")) || ` +
	`/[\u202a-\u202e\u2066-\u2069\u001b]/.test(document.body.textContent) || ` +
	`performance.getEntriesByType("resource").some((e) => !e.name.startsWith(location.origin))`

// harmless fails if the page is foreign, wherever its list is scrolled to.
func (b *tab) harmless() {
	b.t.Helper()
	const everywhere = `(async () => {
		const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
		const box = document.querySelector(".rows");
		for (let top = 0; ; top += box.clientHeight || 1000) {
			if (` + foreign + `) return true;
			if (!box || top > box.scrollHeight) return false;
			box.scrollTop = top;
			await frame();
		}
	})()`
	if result(b, chromedp.Evaluate[bool](everywhere, awaited)) {
		b.t.Errorf("not text alone: %s", b.text())
	}
}

// Every field that a user can write is text, on each page that shows it.
//
// SPEC: BEY-15
func TestHostileText(t *testing.T) {
	if len(slices.Compact(slices.Sorted(slices.Values(payloads)))) < 200 {
		t.Fatalf("there are %d payloads", len(payloads))
	}
	server := start(t)
	pages := writeHostile(t, server)
	b := open(t, server)
	b.signIn()
	for _, page := range pages {
		b.visit(page.path)
		b.wait(page.shown)
		b.harmless()
	}
}

// Addresses are other people's, too: links can be sent.
//
// SPEC: BEY-15
func TestHostileAddresses(t *testing.T) {
	server := start(t)
	b := open(t, server)
	b.signIn()
	b.sees("customresourcedefinitions")
	var addresses []string
	for i, p := range payloads {
		q, path := url.QueryEscape(p), url.PathEscape(p)
		for j, form := range []string{
			"r/core/v1/configmaps?ns=default&q=" + q + "&s=" + q, "r/core/v1/configmaps?l=" + q + "&f=" + q + "&ns=" + q,
			"r/core/v1/configmaps/default/" + path + "?q=" + q + "&m=" + q, "r/" + path + "/" + path + "/" + path,
			"access?v=" + q + "&r=" + q + "&ns=" + q + "&n=" + q + "&u=" + q, path,
			"expressions?r=configmaps&e=" + url.QueryEscape(jsonOf([][]string{{p, p}})), "?q=" + q,
		} {
			if i%2 == j/2%2 { // half of them for each: a page takes some frames
				addresses = append(addresses, form)
			}
		}
	}
	// As links in the page are followed. A few are opened as from elsewhere.
	const follow = `(async (paths) => {
		const shown = () => document.querySelector("main [role=alert], main [data-state=live], main h1");
		for (const path of paths) {
			history.pushState(null, "", "/console/" + path);
			dispatchEvent(new PopStateEvent("popstate"));
			for (let i = 0; i < 3 || (i < 500 && !shown()); i++) await new Promise((done) => requestAnimationFrame(done));
			if (!shown()) return path + ": nothing is shown";
			if (%s) return path;
		}
		return "";
	})(%s)`
	for group := range slices.Chunk(addresses, 100) {
		if bad := result(b, chromedp.Evaluate[string](fmt.Sprintf(follow, foreign, jsonOf(group)), awaited)); bad != "" {
			t.Errorf("not text alone: %q", bad)
		}
	}
	for i := 0; i < len(addresses); i += 101 {
		b.visit(addresses[i])
		b.wait(`document.querySelector("main [role=alert], main [data-state=live], main h1")`)
		b.harmless()
	}
}

// hostilePage is a page that shows hostile text, and what is true when it does.
type hostilePage struct{ path, shown string }

// writeHostile writes the payloads into every kind of field that the pages show.
func writeHostile(t *testing.T, server *harness.Server) []hostilePage {
	t.Helper()
	const has = `document.body.textContent.includes("window.__ran=1")`
	values := map[string]string{"long": strings.Repeat("<b>long</b>", 20_000)}
	var conditions, subjects, owners []any
	for i, p := range payloads {
		values[fmt.Sprintf("key-%03d", i)] = p
		conditions = append(conditions, map[string]string{"type": fmt.Sprint("T", i, p), "status": "False", "reason": p,
			"message": p, "lastTransitionTime": "2026-01-01T00:00:00Z"})
		subjects = append(subjects, map[string]string{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": p})
		if i < 20 { // as many as are shown
			owners = append(owners, map[string]string{"apiVersion": "x/v1", "kind": p, "name": p, "uid": fmt.Sprint(p, i)})
		}
	}
	create(t, server, configMaps, jsonOf(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "hostile", "annotations": values}, "data": values}))
	managers := 0
	for i, p := range payloads {
		// So are names of managers.
		if len(p) <= 128 && !strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) }) {
			apply(t, server, configMaps+"/hostile", url.QueryEscape(p), jsonOf(map[string]any{"apiVersion": "v1",
				"kind": "ConfigMap", "metadata": map[string]any{"name": "hostile"},
				"data": map[string]string{fmt.Sprint("of-", i): p}}))
			managers++
		}
	}
	pages := []hostilePage{{"r/core/v1/configmaps/default/hostile",
		has + fmt.Sprintf(` && document.querySelectorAll(".legend li").length >= %d`, managers)}}
	for i := 0; i < len(payloads); i += 45 { // fewer than a page shows
		name := fmt.Sprint("events-", i)
		uid := uidOf(t, create(t, server, configMaps, configMap(name)))
		for j, p := range payloads[i:min(i+45, len(payloads))] {
			create(t, server, "/api/v1/namespaces/default/events", jsonOf(map[string]any{"apiVersion": "v1", "kind": "Event",
				"metadata": map[string]any{"name": fmt.Sprint(name, "-", j)}, "reason": p, "message": p, "type": p,
				"source": map[string]string{"component": p}, "involvedObject": map[string]string{"kind": "ConfigMap",
					"namespace": "default", "name": name, "uid": uid}}))
		}
		pages = append(pages, hostilePage{"r/core/v1/configmaps/default/" + name,
			fmt.Sprintf(`document.querySelectorAll(".events li").length === %d`, min(45, len(payloads)-i))})
	}
	writeThings(t, server, conditions, owners)
	create(t, server, "/api/v1/namespaces", `{"metadata":{"name":"hostile"}}`)
	api(t, server, http.MethodPatch, "/api/v1/namespaces/hostile/status", "application/merge-patch+json",
		jsonOf(map[string]any{"status": map[string]any{"conditions": conditions}}))
	create(t, server, roles+"/namespaces/default/roles", `{"metadata":{"name":"reader"},"rules":[
		{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]}`)
	create(t, server, roles+"/namespaces/default/rolebindings", jsonOf(map[string]any{"metadata": map[string]string{
		"name": "hostile"}, "subjects": subjects, "roleRef": map[string]string{
		"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}}))
	return append(pages, []hostilePage{
		{"r/core/v1/events", has},
		{"r/example.com/v1/things", has},
		{"r/example.com/v1/things/default/thing", has + ` && document.querySelector(".stuck") && document.querySelector(".tree li")`},
		{"r/apiextensions.k8s.io/v1/customresourcedefinitions/-/things.example.com", has},
		{"r/core/v1/namespaces/-/hostile", has + ` && document.querySelector(".stuck")`},
		{"access?v=get&r=configmaps&ns=default", has},
	}...)
}

// writeThings creates a definition whose columns are hostile, and an object of it.
func writeThings(t *testing.T, server *harness.Server, conditions, owners []any) {
	t.Helper()
	const preserve = "x-kubernetes-preserve-unknown-fields"
	var columns []any
	cells, members := map[string]string{}, map[string]string{}
	for i, p := range payloads {
		columns = append(columns, map[string]string{"name": p, "type": "string", "description": p,
			"jsonPath": fmt.Sprintf(".spec.cells.c%d", i)})
		cells[fmt.Sprint("c", i)], members[p] = p, p
	}
	create(t, server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", jsonOf(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]string{"name": "things.example.com"}, "spec": map[string]any{"group": "example.com",
			"scope": "Namespaced", "names": map[string]string{"plural": "things", "kind": "Thing"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}}, "additionalPrinterColumns": columns,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
					"description": strings.Join(payloads, "\n"), preserve: true}}}}}}))
	const things = "/apis/example.com/v1/namespaces/default/things"
	create(t, server, things, jsonOf(map[string]any{"apiVersion": "example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"name": "thing", "ownerReferences": owners},
		"spec":     map[string]any{"cells": cells, "members": members}}))
	api(t, server, http.MethodPatch, things+"/thing/status", "application/merge-patch+json",
		jsonOf(map[string]any{"status": map[string]any{"conditions": conditions, "phase": payloads[0]}}))
}

// A definition whose schema is deep, large, and has the names of JavaScript's own members neither breaks nor stalls a
// page; nor does an object that is large.
//
// SPEC: BEY-15
func TestHostileSizes(t *testing.T) {
	server := start(t)
	const preserve = "x-kubernetes-preserve-unknown-fields"
	deep := map[string]any{"type": "object", preserve: true}
	for range 60 {
		deep = map[string]any{"type": "object", "properties": map[string]any{"__proto__": deep}}
	}
	var enum []string
	for i := range 5000 {
		enum = append(enum, fmt.Sprint("value-", i))
	}
	properties := map[string]any{"deep": deep, "enum": map[string]any{"type": "string", "enum": enum},
		"items": map[string]any{"type": "array", "items": map[string]any{"type": "string"}}}
	members := map[string]any{}
	for _, name := range []string{"__proto__", "constructor", "prototype", "toString", "hasOwnProperty", "valueOf", "then",
		"length"} {
		properties[name] = map[string]any{"type": "object", preserve: true,
			"description": strings.Repeat("[b]x[/b] ", 10_000)}
		members[name] = map[string]any{"polluted": true, "isAdmin": true}
	}
	create(t, server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", jsonOf(map[string]any{
		"metadata": map[string]string{"name": "constructors.example.com"}, "spec": map[string]any{"group": "example.com",
			"scope": "Namespaced", "names": map[string]any{"plural": "constructors", "kind": "Constructor",
				"shortNames": []string{"tostring", "valueof"}, "categories": []string{"all", "constructor"}},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": map[string]any{
					"type": "object", "properties": properties}}}}}}}}))
	const objects = "/apis/example.com/v1/namespaces/default/constructors"
	create(t, server, objects, jsonOf(map[string]any{"apiVersion": "example.com/v1", "kind": "Constructor",
		"metadata": map[string]string{"name": "small"}, "spec": members}))
	items := make([]string, 20_000)
	for i := range items {
		items[i] = fmt.Sprint("item ", i)
	}
	create(t, server, objects, jsonOf(map[string]any{"apiVersion": "example.com/v1", "kind": "Constructor",
		"metadata": map[string]string{"name": "long"}, "spec": map[string]any{"items": items}}))
	create(t, server, configMaps, jsonOf(map[string]any{"metadata": map[string]any{"name": "wide",
		"annotations": map[string]string{"a": strings.Repeat("[b]wide[/b]", 23_000)}},
		"data": map[string]string{"b": strings.Repeat("[i]wide[/i]", 90_000)}}))

	b := open(t, server)
	b.signIn()
	for _, page := range []hostilePage{
		{"?q=tostring", hasText("constructors")},
		{"r/apiextensions.k8s.io/v1/customresourcedefinitions/-/constructors.example.com", hasText("value-4999")},
		{"r/example.com/v1/constructors", hasText("small")},
		{"r/example.com/v1/constructors/default/small", hasText("polluted: true")},
		{"r/core/v1/configmaps/default/wide", hasText("more characters")},
		{"r/example.com/v1/constructors/default/long", hasText("item 19999")},
	} {
		began := time.Now()
		b.visit(page.path)
		b.wait(page.shown)
		shown := time.Since(began)
		b.harmless()
		began = time.Now()
		b.keys("j")
		b.run(chromedp.Evaluate[chromedp.Void]("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))",
			awaited))
		t.Logf("%s: shown after %s, a key after %s", page.path, shown.Round(time.Millisecond),
			time.Since(began).Round(time.Millisecond))
	}
	b.visit("r/example.com/v1/constructors/default/small")
	b.wait(hasText("polluted: true") + " && " + live)
	api(t, server, http.MethodPatch, objects+"/small", "application/merge-patch+json",
		`{"spec":{"__proto__":{"polluted":"again"},"constructor":null}}`)
	b.wait(`document.querySelector(".changes")?.innerText.includes("+ .spec.__proto__.polluted: again")`)
	b.harmless()
}
