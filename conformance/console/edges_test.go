package console

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"

	"plinth/conformance/internal/harness"
)

// No page is wider than the window, from the smallest to the largest.
//
// SPEC: BEY-15
func TestWidths(t *testing.T) {
	server := start(t)
	writePages(t, server)
	b := open(t, server)
	b.signIn()
	for _, width := range []int64{320, 3840} {
		b.run(chromedp.EmulateViewport(width, 900))
		for _, p := range pageCases {
			b.enter(p)
			if wide := result(b, chromedp.Evaluate[int64]("document.documentElement.scrollWidth")); wide > width {
				t.Errorf("%s is %d wide in a window of %d", p.name, wide, width)
			}
		}
	}
}

// A server that begins again knows no sessions: the page asks to sign in, and is at the same place then.
//
// SPEC: BEY-14, BEY-15
func TestRestart(t *testing.T) {
	server := start(t)
	create(t, server, configMaps, configMap("before"))
	b := open(t, server)
	b.signIn()
	b.visit("r/core/v1/configmaps?ns=default&q=e")
	b.sees("before")
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	create(t, server, configMaps, configMap("after"))
	b.sees("The session has ended.")
	b.misses("before")
	b.typeToken(harness.AdminToken)
	b.sees("after")
	b.sees("before")
	b.wait(`location.search === "?ns=default&q=e"`)
}

// Back and forward go through what was seen.
//
// SPEC: BEY-15
func TestBackAndForward(t *testing.T) {
	server := start(t)
	create(t, server, configMaps, configMap("one"))
	b := open(t, server)
	b.signIn()
	b.keys("gc")
	b.click(".space a", "one")
	b.wait(`location.pathname.endsWith("/default/one") && document.querySelector(".lines")`)
	b.keys("ga")
	b.sees("What you may do in default")
	for _, step := range []struct{ way, at, sees string }{
		{"back", "/console/r/core/v1/configmaps/default/one", "Since you opened it"},
		{"back", "/console/r/core/v1/configmaps", "objects · live"},
		{"forward", "/console/r/core/v1/configmaps/default/one", "Since you opened it"},
		{"forward", "/console/access", "What you may do in default"},
	} {
		b.run(chromedp.Evaluate[chromedp.Void]("history." + step.way + "()"))
		b.wait(`location.pathname === "` + step.at + `"`)
		b.sees(step.sees)
	}
}

// A type that goes while its list is open, and an object that comes again under its name.
//
// SPEC: BEY-15
func TestWhatGoes(t *testing.T) {
	server := start(t)
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	create(t, server, definitions, `{"metadata":{"name":"tools.example.com"},"spec":{"group":"example.com",
		"scope":"Namespaced","names":{"plural":"tools","kind":"Tool"},"versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
	create(t, server, "/apis/example.com/v1/namespaces/default/tools", `{"apiVersion":"example.com/v1","kind":"Tool",
		"metadata":{"name":"hammer"}}`)
	b := open(t, server)
	b.signIn()
	b.visit("r/example.com/v1/tools")
	b.sees("1 object · live")
	api(t, server, http.MethodDelete, definitions+"/tools.example.com", "application/json", "")
	b.wait(`document.querySelector("[data-state=failed]") || document.body.textContent.includes("0 objects")`)
	b.wait(`document.querySelector("[data-state=failed]")`)
	b.sees("the server does not have this type")

	create(t, server, configMaps, configMap("again"))
	b.visit("r/core/v1/configmaps/default/again")
	b.sees(`a: "1"`)
	api(t, server, http.MethodDelete, configMaps+"/again", "application/json", "")
	b.wait(`document.querySelector("[data-state=deleted]")`)
	create(t, server, configMaps, `{"metadata":{"name":"again"},"data":{"b":"2"}}`)
	b.wait(`document.querySelector("[data-state=live]") && document.querySelector(".lines").textContent.includes('b: "2"')`)
}
