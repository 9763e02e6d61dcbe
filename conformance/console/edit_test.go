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

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"plinth/conformance/internal/harness"
)

const deployments = "/apis/apps/v1/namespaces/default/deployments"

// inEditor is what the editor has, which is in a shadow tree.
const inEditor = `document.querySelector(".editor").shadowRoot.querySelector`

// editorReady waits until the editor has a text.
func (b *tab) editorReady(text string) {
	b.t.Helper()
	b.wait(`document.querySelector(".editor")?.shadowRoot?.querySelector(".cm-content")`)
	b.wait(fmt.Sprintf(inEditor+`(".cm-content").innerText.includes(%q)`, text))
}

// press presses a key with Ctrl.
func (b *tab) press(key string) {
	b.t.Helper()
	b.run(chromedp.KeyEvent(key, chromedp.KeyModifiers(chromedp.ModifierCtrl), func(p *input.DispatchKeyEventParams) {
		if p.Type == input.DispatchKeyEventTypeKeyDown {
			p.Type = input.DispatchKeyEventTypeRawKeyDown
		}
	}))
}

// paste pastes a text into the editor. Typed by the browser's protocol, lines would get styles of the browser's own.
func (b *tab) paste(text string) {
	b.t.Helper()
	b.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => {
		const clipboardData = new DataTransfer();
		clipboardData.setData("text/plain", %s);
		%s(".cm-content").dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
	})()`, jsonOf(text), inEditor)))
}

// accept waits until a completion is proposed, and accepts it: the editor takes no key for it in its first 75 ms.
func (b *tab) accept(label string) {
	b.t.Helper()
	b.wait(fmt.Sprintf(inEditor+`(".cm-tooltip-autocomplete")?.innerText.includes(%q)`, label))
	time.Sleep(100 * time.Millisecond)
	b.keys(kb.Enter)
	b.wait(fmt.Sprintf(`!`+inEditor+`(".cm-tooltip-autocomplete") && `+
		inEditor+`(".cm-content").innerText.includes(%q)`, label))
}

// managersOf are the managers that own a line of an object: "helm Apply".
func managersOf(t *testing.T, server *harness.Server, path, text string) []string {
	t.Helper()
	var document struct {
		Managers []struct{ Manager, Operation string }
		Lines    []struct {
			Text   string
			Owners []int
		}
	}
	if err := json.Unmarshal([]byte(api(t, server, http.MethodGet, path+"?ownership=lines", "application/json", "")),
		&document); err != nil {
		t.Fatal(err)
	}
	for _, l := range document.Lines {
		if strings.TrimSpace(l.Text) == text {
			names := []string{}
			for _, o := range l.Owners {
				names = append(names, document.Managers[o].Manager+" "+document.Managers[o].Operation)
			}
			slices.Sort(names)
			return names
		}
	}
	return nil
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {tier: front}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1"}]}
`

// replace replaces what is in the editor, which the test computes from what is there. It is copied, as only the lines
// that are seen are in the document.
func (b *tab) replace(change func(text string) string) {
	b.t.Helper()
	b.run(chromedp.Evaluate[chromedp.Void](inEditor + `(".cm-content").focus()`))
	b.press("a")
	text := result(b, chromedp.Evaluate[string](`(() => {
		const clipboardData = new DataTransfer();
		`+inEditor+`(".cm-content").dispatchEvent(new ClipboardEvent("copy", { clipboardData, bubbles: true, cancelable: true }));
		return clipboardData.getData("text/plain");
	})()`))
	b.paste(change(text))
}

func swap(old, new string) func(string) string {
	return func(text string) string { return strings.Replace(text, old, new, 1) }
}

// A conflict of Helm and kubectl, resolved in each of the three ways; who would lose what is seen before.
//
// SPEC: BEY-15, BEY-16
func TestConflictsInTheEditor(t *testing.T) {
	server := start(t)
	b := open(t, server)
	b.signIn()
	for _, way := range []struct {
		button, line string
		owners       []string
	}{
		{"Take over", "replicas: 3", []string{"kubectl Apply"}},
		{"Share", "replicas: 1", []string{"helm Apply", "kubectl Apply"}},
		{"Give up", "replicas: 1", []string{"helm Apply"}},
	} {
		apply(t, server, deployments+"/web", "helm", deployment)
		b.visit("r/apps/v1/deployments/default/web")
		b.sees("replicas: 1")
		b.keys("e")
		b.wait(`location.search === "?edit"`)
		b.editorReady("replicas: 1")
		b.visit("r/apps/v1/deployments/default/web?edit&fm=kubectl")
		b.editorReady("replicas: 1")
		b.replace(func(text string) string {
			return swap("tier: front", "tier: front\n    new: label")(swap("replicas: 1", "replicas: 3")(text))
		})
		b.press(kb.Enter)
		b.sees("1 field is somebody else's")
		b.wait(`document.querySelector(".conflicts").innerText.includes('"helm"')`)
		b.picture("conflict")
		b.click(".ways button", way.button)
		b.wait(`document.querySelector(".outcome tbody")?.innerText.includes("new: label")`)
		loses := result(b, chromedp.Evaluate[bool](`document.querySelector(".outcome tbody").innerText.includes("helm Apply loses it")`))
		if loses != (way.button == "Take over") {
			t.Errorf("%s: helm loses a field: %t", way.button, loses)
		}
		b.picture("outcome")
		b.click("button.apply", "Apply")
		b.wait(`location.search === ""`)
		b.sees("new: label")
		if got := managersOf(t, server, deployments+"/web", way.line); !slices.Equal(got, way.owners) {
			t.Errorf("%s: %s is owned by %q, want %q", way.button, way.line, got, way.owners)
		}
		if got := managersOf(t, server, deployments+"/web", "new: label"); !slices.Equal(got, []string{"kubectl Apply"}) {
			t.Errorf("%s: the new label is owned by %q", way.button, got)
		}
		if got := managersOf(t, server, deployments+"/web", `- image: web:1`); slices.Contains(got, "kubectl Apply") {
			t.Errorf("%s: what was not edited is owned by %q", way.button, got)
		}
		api(t, server, http.MethodDelete, deployments+"/web", "application/json", "")
	}
}

// Completion by the schema, of a built-in type and of one that a definition has made, whose descriptions run nothing.
//
// SPEC: BEY-15
func TestCompletion(t *testing.T) {
	server := start(t)
	create(t, server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", jsonOf(map[string]any{
		"metadata": map[string]string{"name": "tools.example.com"}, "spec": map[string]any{"group": "example.com",
			"scope": "Namespaced", "names": map[string]string{"plural": "tools", "kind": "Tool"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
					"spec": map[string]any{"type": "object", "description": payloads[1], "properties": map[string]any{
						"colour":      map[string]any{"type": "string", "enum": []string{"crimson", "teal"}, "description": payloads[0]},
						"constructor": map[string]any{"type": "string"}, "count": map[string]any{"type": "integer"},
					}}}}}}}}}))
	b := open(t, server)
	b.signIn()
	b.visit("r/example.com/v1/tools?ns=default")
	b.sees("0 objects · live")
	b.keys("e")
	b.wait(`new URL(location).searchParams.has("edit")`)
	b.editorReady("kind: Tool")
	b.replace(swap("  name: ", "  name: hammer"))
	b.press(kb.End)
	b.keys("sp")
	b.accept("spec")
	b.keys("col")
	b.wait(inEditor + `(".cm-tooltip-autocomplete")?.innerText.includes("colour")`)
	b.picture("completion")
	b.harmless()
	b.accept("colour")
	b.keys("t")
	b.accept("teal")
	b.keys(kb.Enter + "cuont: 3")
	b.wait(inEditor + `(".cm-lintRange-warning")?.innerText === "cuont"`)
	b.press(kb.Enter)
	b.sees("field not declared in schema")
	b.replace(swap("cuont", "count"))
	b.press(kb.Enter)
	b.wait(`document.querySelector(".outcome tbody")?.innerText.includes("colour: teal")`)
	b.click("button.apply", "Apply")
	b.wait(`location.pathname === "/console/r/example.com/v1/tools/default/hammer" && location.search === ""`)
	b.sees("colour: teal")
	b.harmless()
}

// An edit of an object that has changed meanwhile; lines that stay; an error of the server at its line.
//
// SPEC: BEY-15, BEY-16
func TestEdits(t *testing.T) {
	server := start(t)
	apply(t, server, configMaps+"/e", "team",
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: e}, data: {a: "1", b: "1", c: "1", d: "1"}}`)
	b := open(t, server)
	b.signIn()
	b.visit("r/core/v1/configmaps/default/e?edit")
	b.editorReady(`a: "1"`)
	b.replace(func(text string) string { return swap("  a: \"1\"\n", "")(swap(`d: "1"`, "d: \"1\"\n  new: x")(text)) })
	apply(t, server, configMaps+"/e", "other", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: e}\ndata: {b2: \"2\"}\n")
	b.click("button", "Preview")
	b.sees("The object has changed since you opened it.")
	b.click("button", "Take the new version, with your changes")
	b.editorReady("b2:")
	b.wait(inEditor + `(".cm-content").innerText.includes("new: x")`)
	b.wait(`!` + inEditor + `(".cm-content").innerText.includes('a: "1"')`)
	b.click("button", "Preview")
	b.sees("These were deleted, and stay")
	b.wait(`document.querySelector(".outcome").innerText.includes('a: "1" (team Apply)')`)
	b.sees("+   new: x")
	b.click("button.apply", "Apply")
	b.wait(`location.search === ""`)
	if got := managersOf(t, server, configMaps+"/e", "new: x"); !slices.Equal(got, []string{"plinth-console Apply"}) {
		t.Errorf("new: x is owned by %q", got)
	}
	// The manager gives up what it has applied, and the field goes with it.
	b.visit("r/core/v1/configmaps/default/e?edit")
	b.editorReady("new: x")
	b.replace(swap("  new: x\n", ""))
	b.press(kb.Enter)
	b.sees("-   new: x")
	b.sees("you give it up")
	b.replace(swap("data:", "data: ["))
	b.press(kb.Enter)
	b.wait(`document.querySelector(".error")`)
	b.wait(inEditor + `(".cm-lintRange-error")`)

	other := open(t, server)
	other.visit("r/core/v1/configmaps/default/e?edit")
	other.typeToken(harness.UserToken)
	other.sees(`cannot get resource "configmaps"`)
}

// A Secret is edited after somebody has asked for its data, and a preview does not show them. What is previewed is
// text.
//
// SPEC: BEY-15
func TestHostileEdits(t *testing.T) {
	server := start(t)
	values := map[string]string{}
	for i, p := range payloads {
		values[fmt.Sprintf("key-%02d", i)] = p
	}
	create(t, server, configMaps, jsonOf(map[string]any{"metadata": map[string]any{"name": "h", "annotations": values},
		"data": values}))
	for i, p := range payloads[:10] {
		api(t, server, http.MethodPatch, fmt.Sprintf("%s/h?fieldManager=%s", configMaps, url.QueryEscape(p)),
			"application/apply-patch+yaml", jsonOf(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": map[string]any{"name": "h"}, "data": map[string]string{fmt.Sprint("of-", i): "1"}}))
	}
	create(t, server, "/api/v1/namespaces/default/secrets",
		`{"metadata":{"name":"s"},"data":{"a":"c2VjcmV0"}}`)
	b := open(t, server)
	b.signIn()
	b.visit("r/core/v1/configmaps/default/h?edit")
	b.editorReady("window.__ran")
	b.replace(func(text string) string {
		for i := range 10 {
			text = swap(fmt.Sprintf("of-%d: \"1\"", i), fmt.Sprintf("of-%d: %s", i, jsonOf(payloads[i])))(text)
		}
		return text
	})
	b.press(kb.Enter)
	b.sees("10 fields are somebody else's")
	b.harmless()
	b.click(".conflicts > p button", "Take over")
	b.wait(`document.querySelector(".outcome tbody")?.innerText.includes("loses it")`)
	b.harmless()

	b.visit("r/core/v1/secrets/default/s?edit")
	b.sees("The values are hidden.")
	b.wait(`!document.querySelector(".editor")`)
	b.click("button", "Show the data and edit")
	b.editorReady("c2VjcmV0")
	b.replace(swap("c2VjcmV0", "b3RoZXI="))
	b.press(kb.Enter)
	b.click(".ways button", "Take over")
	b.sees("a: ••••••")
	b.wait(`!/c2VjcmV0|b3RoZXI/.test(document.documentElement.outerHTML)`)
	b.click("button.apply", "Apply")
	b.wait(`location.search === ""`)
	got := api(t, server, http.MethodGet, "/api/v1/namespaces/default/secrets/s", "", "")
	if !strings.Contains(got, "b3RoZXI=") {
		t.Errorf("the Secret is %s", got)
	}
}

// From the list to the apply by keys alone; and a user who may read and not write is told so, before and after.
//
// SPEC: BEY-15
func TestEditByKeys(t *testing.T) {
	server := start(t)
	apply(t, server, deployments+"/web", "helm", deployment)
	create(t, server, roles+"/clusterrolebindings", `{"metadata":{"name":"viewer"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"somebody"}]}`)
	b := &counted{tab: open(t, server)}
	b.signIn()
	b.sees("customresourcedefinitions")
	b.open("d", "web")
	b.keys("e")
	b.editorReady("replicas: 1")
	b.wait(`document.activeElement.matches(".editor")`)
	b.press(kb.Home)
	b.keys(strings.Repeat(kb.ArrowDown, 9) + kb.End + kb.Backspace + "3")
	b.editorReady("replicas: 3")
	b.press(kb.Enter)
	b.sees("1 field is somebody else's")
	// Out of the text, and on to the button.
	tabTo := func(text string) {
		t.Helper()
		for range 20 {
			if result(b.tab, chromedp.Evaluate[bool](fmt.Sprintf(`document.activeElement.textContent.startsWith(%q)`, text))) {
				return
			}
			b.keys(kb.Tab)
		}
		t.Fatalf("Tab does not come to %q", text)
	}
	b.keys(kb.Escape)
	tabTo("Take over")
	b.keys(kb.Enter)
	b.wait(`document.querySelector("button.apply")`)
	tabTo("Apply, and take over")
	b.keys(kb.Enter)
	b.wait(`location.search === "" && document.querySelector(".lines")?.textContent.includes("replicas: 3")`)
	got := managersOf(t, server, deployments+"/web", "replicas: 3")
	if !slices.Equal(got, []string{"plinth-console Apply"}) {
		t.Errorf("replicas is owned by %q", got)
	}

	viewer := open(t, server)
	viewer.visit("r/apps/v1/deployments/default/web?edit")
	viewer.typeToken(harness.UserToken)
	viewer.editorReady("replicas: 3")
	viewer.sees("You may not change this")
	viewer.replace(swap("replicas: 3", "replicas: 4"))
	viewer.press(kb.Enter)
	viewer.sees(`cannot patch resource "deployments" in API group "apps"`)
}

// A preview is of the manager for whom it was made: another name asks for another one. A new object does not replace
// one that is there.
//
// SPEC: BEY-15, BEY-16
func TestPreviewOfAnotherManager(t *testing.T) {
	server := start(t)
	create(t, server, configMaps, configMap("there"))
	b := open(t, server)
	b.signIn()
	b.visit("r/core/v1/configmaps/default/there?edit")
	b.editorReady(`a: "1"`)
	b.replace(swap("data:\n", "data:\n  new: x\n"))
	b.press(kb.Enter)
	b.wait(`document.querySelector(".outcome tbody")?.innerText.includes("plinth-console Apply")`)
	b.script(`const field = document.querySelector("[name=fm]");
		field.value = "somebody-else";
		field.dispatchEvent(new Event("change", { bubbles: true }));`)
	b.wait(`location.search.includes("somebody-else")`)
	b.wait(`!document.querySelector(".outcome")`)
	b.click("button", "Preview")
	b.wait(`document.querySelector(".outcome tbody")?.innerText.includes("somebody-else Apply")`)

	b.visit("r/core/v1/configmaps?edit&ns=default")
	b.editorReady("kind: ConfigMap")
	b.replace(swap("  name: ", "  name: there"))
	b.press(kb.Enter)
	b.sees("There is one of this name already.")
	b.misses("Take the new version")
}
