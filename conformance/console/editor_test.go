package console

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// script runs a script in the page.
func (b *tab) script(text string) {
	b.t.Helper()
	b.run(chromedp.Evaluate[chromedp.Void]("void (() => {" + text + "})()"))
}

// A preview that comes after its text was changed is not shown: Apply would apply what is not in the editor any more.
//
// SPEC: BEY-15
func TestPreviewOfAnEarlierText(t *testing.T) {
	server := start(t)
	create(t, server, configMaps, configMap("slow"))
	b := open(t, server)
	b.signIn()
	b.visit("r/core/v1/configmaps/default/slow?edit")
	b.editorReady(`a: "1"`)
	b.script(`const send = window.fetch, released = new Promise((r) => (window.__release = r));
		window.fetch = async (...args) => {
			if (args[0].includes("dryRun")) {
				window.__held = true;
				await released;
			}
			return send(...args);
		};`)
	b.replace(swap(`a: "1"`, `a: "first"`))
	b.press(kb.Enter)
	b.wait(`window.__held`)
	b.replace(swap(`a: "first"`, `a: "second"`))
	b.editorReady(`a: "second"`)
	b.script(`window.__release()`)
	b.wait(`!document.querySelector("main [aria-busy=true]")`)
	if result(b, chromedp.Evaluate[bool](`document.querySelector(".outcome, .conflicts") !== null`)) {
		t.Error("the preview of another text is shown")
	}
	b.press(kb.Enter) // the next one is of the text that is there
	b.sees("1 field is somebody else's")
	b.wait(`document.querySelector(".conflicts").innerText.includes('you want "second"')`)
}

// Two people have changed one line: the editor has the new version, and what one has written stays to be seen.
//
// SPEC: BEY-15
func TestEditsOfOneLine(t *testing.T) {
	server := start(t)
	create(t, server, configMaps, configMap("both"))
	b := open(t, server)
	b.signIn()
	b.visit("r/core/v1/configmaps/default/both?edit")
	b.editorReady(`a: "1"`)
	b.replace(swap(`a: "1"`, `a: "mine"`))
	api(t, server, http.MethodPatch, configMaps+"/both", "application/merge-patch+json", `{"data":{"a":"theirs"}}`)
	b.press(kb.Enter)
	b.click("button", "Take the new version, with your changes")
	b.editorReady(`a: theirs`)
	b.picture("both")
	b.replace(swap(`a: theirs`, `a: both`))
	b.wait(`document.querySelector(".mine")?.innerText.includes('a: "mine"')`)
	b.press(kb.Enter)
	b.wait(`document.querySelector(".conflicts")?.innerText.includes('you want "both"')`)
}

// An error of the server is shown at the line that it is about, in the text as it is now.
//
// SPEC: BEY-15
func TestErrorAtItsLine(t *testing.T) {
	server := start(t)
	b := open(t, server)
	b.signIn()
	b.visit("r/core/v1/services?edit&ns=default")
	b.editorReady("kind: Service")
	b.replace(func(string) string {
		return `apiVersion: v1
kind: Service
metadata:
  name: two
spec:
  ports:
  - name: one
    port: 80
  - name: two
    port: 70000
`
	})
	b.press(kb.Enter)
	b.sees("must be between 1 and 65535")
	b.wait(`[...` + inEditor + `All(".cm-line")].filter((l) => l.querySelector(".cm-lintRange-error"))
		.map((l) => l.innerText.trim()).join("|") === "- name: two|port: 70000"`) // targetPort is not in the text
	b.picture("error")
}

// An edit that was left without an apply is there again when one comes back, until one begins anew.
//
// SPEC: BEY-15
func TestEditThatWasLeft(t *testing.T) {
	server := start(t)
	create(t, server, configMaps, configMap("left"))
	create(t, server, configMaps, configMap("another"))
	b := open(t, server)
	b.signIn()
	b.visit("r/core/v1/configmaps/default/left?edit")
	b.editorReady(`a: "1"`)
	b.replace(swap(`a: "1"`, `a: "2"`))
	b.click(".crumbs a", "configmaps")
	b.click(".space a", "another")
	b.click("a", "Edit")
	b.editorReady(`a: "1"`)
	b.script(`history.go(-3)`)
	b.editorReady(`a: "2"`)
	b.sees("what you had written")
	b.click("button", "Begin anew")
	b.editorReady(`a: "1"`)
	b.misses("what you had written")
}

// What marks unknown fields reads each line of a text once, and finds the same places as what completes one line.
//
// SPEC: BEY-15
func TestPlacesInAText(t *testing.T) {
	server := start(t)
	b := open(t, server)
	b.signIn()
	b.script(`import("/console/static/schema.js").then((m) => {
		let reads = 0;
		const lines = ["data:", ...Array.from({ length: 2000 }, (_, i) => "  key-" + i + ": x")];
		const counting = new Proxy(lines, { get: (of, name) => {
			if (/^\d+$/.test(String(name))) reads++;
			return Reflect.get(of, name);
		} });
		m.unknown({ at: () => undefined }, counting);
		window.__reads = reads;
		const text = ["a:", "- b: 1", "  c:", "    d: 2", "- - e: 3", "    f: 4", "  - g: 5", "h:", "  i:", "  - j", "  - k:",
			"      l: 6", "# m: 7", "", "    n: 8", "  o:", "    p: 9", "q: r"];
		const found = m.places(text);
		window.__places = found.map((p) => [...p.parent, p.key].join(".")).join(" ");
		window.__same = found.every((p) => JSON.stringify(m.pathOf(text, p.line, p.col, m.parseLine(text[p.line]).dashes)) ===
			JSON.stringify(p.parent.map((step) => (typeof step === "number" ? "*" : step))));
		window.__block = m.places(["s: |", "  t: 1", "", "  u: 2", "v: 3"]).map((p) => p.key).join();
		window.__done = true;
	})`)
	b.wait(`window.__reads`)
	if reads := result(b, chromedp.Evaluate[int](`window.__reads`)); reads > 3*2001 {
		t.Errorf("2,001 lines were read %d times", reads)
	}
	b.wait(`window.__done`)
	const want = "a a.0.b a.0.c a.0.c.d a.1.0.e a.1.0.f a.1.1.g h h.i h.i.1.k h.i.1.k.l h.i.1.n h.o h.o.p q"
	if got := result(b, chromedp.Evaluate[string](`window.__places`)); got != want {
		t.Errorf("places: %s\n   want: %s", got, want)
	}
	if !result(b, chromedp.Evaluate[bool](`window.__same`)) {
		t.Error("places and pathOf do not find the same places")
	}
	if got := result(b, chromedp.Evaluate[string](`window.__block`)); got != "s,v" {
		t.Errorf("the keys beside a block of text: %s", got)
	}
}

// Characters that one would not see are shown in the editor, in the words of a schema, too. A value that YAML would
// read as another one is completed with quotes.
//
// SPEC: BEY-15
func TestWordsOfOthersInTheEditor(t *testing.T) {
	server := start(t)
	create(t, server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", jsonOf(map[string]any{
		"metadata": map[string]string{"name": "lamps.example.com"}, "spec": map[string]any{"group": "example.com",
			"scope": "Namespaced", "names": map[string]string{"plural": "lamps", "kind": "Lamp"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
					"light":           map[string]any{"type": "string", "enum": []string{"On", "Off", "x\u202Ey\nz: 1"}},
					"limit\u202Efdp.": map[string]any{"type": "string"},
				}}}}}}}))
	b := open(t, server)
	b.signIn()
	b.visit("r/example.com/v1/lamps?edit&ns=default")
	b.editorReady("kind: Lamp")
	b.replace(swap("  name: ", "  name: lamp\n  annotations:\n    note: \"a\u202Eb\u2068c\u200Dd\""))
	b.editorReady("a⟨U+202E⟩b⟨U+2068⟩c⟨U+200D⟩d")
	b.press(kb.End)
	b.keys("li")
	b.wait(inEditor + `(".cm-tooltip-autocomplete")?.innerText.includes("limit⟨U+202E⟩fdp.")`)
	b.accept("light")
	b.keys("On")
	b.accept("On")
	b.editorReady(`light: "On"`)
	b.replace(swap(`light: "On"`, "light: "))
	b.press(kb.End)
	b.keys("x")
	b.wait(inEditor + `(".cm-tooltip-autocomplete")?.innerText.includes("x⟨U+202E⟩y")`)
	if result(b, chromedp.Evaluate[bool](`/[\u202a-\u202e\u2066-\u2069]/.test(`+inEditor+`(".cm-editor").textContent)`)) {
		t.Error("a character that changes the order of others is in the editor as it is")
	}
	b.replace(swap("light: x", `light: "On"`))
	b.press(kb.Enter)
	b.wait(`document.querySelector(".outcome tbody")?.innerText.includes('light: "On"')`)
	b.click("button.apply", "Apply")
	b.wait(`location.pathname === "/console/r/example.com/v1/lamps/default/lamp" && location.search === ""`)
	b.harmless()
}
