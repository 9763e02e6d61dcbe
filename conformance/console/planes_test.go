package console

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"plinth/conformance/internal/harness"
)

const planesPath = "/apis/plinth/v1alpha1/planes"

// The page of planes says what each has and costs, a row leads to the console of the plane, where the user of the first
// one is signed in already, and the field of the header from there to another plane, and back.
//
// SPEC: BEY-12, BEY-14, BEY-15
func TestPlanes(t *testing.T) {
	server := harness.Run(t, harness.Options{Kind: harness.Plinth, Flags: []string{"--planes"}})
	plane := func(name, spec string) {
		create(t, server, planesPath, fmt.Sprintf(
			`{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"name":%q},"spec":%s}`, name, spec))
	}
	plane("main", `{}`)
	create(t, server, "/clusters/main"+configMaps, configMap("from-main"))
	plane("pr-1", `{"from":{"name":"main"},"ttlSeconds":7200}`)
	create(t, server, "/clusters/pr-1"+configMaps, configMap("own-of-pr-1"))
	b := open(t, server)
	b.signIn()
	b.keys("gl")
	b.wait(`location.pathname === "/console/planes"`)
	b.sees("2 objects · live")
	for _, column := range []string{"Phase", "Objects", "Bytes", "From", "Memory", "Requests", "Age"} {
		b.wait(fmt.Sprintf(`[...document.querySelectorAll("[role=columnheader]")].some((h) => h.innerText.trim() === %q)`,
			column))
	}
	b.wait(`[...document.querySelectorAll(".space .row")].some((r) => /^pr-1Ready\d+[\d.]+Kimain@\d+/.test(r.textContent))`)
	b.picture("planes")
	b.run(chromedp.EmulateViewport(320, 900))
	b.wait("document.documentElement.scrollWidth <= 320")
	b.run(chromedp.EmulateViewport(1440, 900))

	b.click(".row a", "pr-1")
	b.wait(`location.pathname === "/clusters/pr-1/console/"`)
	b.sees("customresourcedefinitions")
	b.wait(`document.querySelector("input[name=plane]").value === "pr-1"`)
	b.wait(`![...document.querySelectorAll("nav a")].some((a) => a.textContent === "Health")`)
	b.picture("plane")
	b.keys("gc")
	b.wait(`location.pathname === "/clusters/pr-1/console/r/core/v1/configmaps"`)
	b.sees("own-of-pr-1")
	b.sees("from-main")
	b.picture("plane-list")

	go1 := func(name string) {
		t.Helper()
		b.wait(`(() => { const f = document.querySelector("input[name=plane]"); f.focus(); f.select();
			return document.activeElement === f; })()`)
		b.wait(`document.querySelectorAll("#planes option").length === 2`)
		b.keys(name + kb.Enter)
	}
	go1("main")
	b.wait(`location.pathname === "/clusters/main/console/r/core/v1/configmaps"`)
	b.sees("from-main")
	b.misses("own-of-pr-1")
	b.wait(`(() => { const f = document.querySelector("input[name=plane]"); f.focus(); f.value = "";
		f.dispatchEvent(new Event("change", { bubbles: true })); return true; })()`)
	b.wait(`location.pathname === "/console/r/core/v1/configmaps"`)
	b.sees("objects · live")
	b.misses("from-main")

	// A plane that is not there says so, and signing out in one plane signs out in all.
	b.run(navigate(server, "/clusters/none/console/"))
	b.sees("not found")
	b.run(navigate(server, "/clusters/main/console/r/core/v1/configmaps"))
	b.sees("from-main")
	b.click("button", "Sign out")
	b.sees("plinth console")
	b.visit("planes")
	b.sees("Use this browser's certificate")
	b.run(navigate(server, "/clusters/pr-1/console/"))
	b.sees("Use this browser's certificate")
	b.typeToken(harness.UserToken)
	b.sees("customresourcedefinitions")
	b.run(navigate(server, "/clusters/pr-1/console/r/core/v1/configmaps"))
	b.sees(`User "somebody" cannot list resource "configmaps"`)
	b.wait(`location.pathname.startsWith("/clusters/pr-1/")`)
}

// A server without planes shows nothing of them.
//
// SPEC: BEY-14
func TestNoPlanes(t *testing.T) {
	b := open(t, start(t))
	b.signIn()
	b.sees("Types")
	b.wait(`!document.querySelector("input[name=plane]") && !document.body.textContent.includes("Planes")`)
}
