package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"plinth/conformance/internal/harness"
)

const configMaps = "/api/v1/namespaces/default/configmaps"

func start(t testing.TB) *harness.Server {
	return harness.Run(t, harness.Options{Kind: harness.Plinth})
}

func configMap(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":"1"}}`, name)
}

// From the sign-in to an object, by keys alone; and the list is live.
//
// SPEC: BEY-15
func TestTypesAndLists(t *testing.T) {
	server := start(t)
	create(t, server, configMaps, configMap("another"))
	for i := range 150 { // more than the first chunk
		create(t, server, configMaps, configMap(fmt.Sprintf("map-%03d", i)))
	}
	b := open(t, server)
	b.visit("")
	b.sees("Sign in")
	b.picture("signin")
	b.typeToken("wrong")
	b.sees("does not accept this credential")
	b.typeToken(harness.AdminToken)
	b.sees("customresourcedefinitions")
	b.picture("types")

	b.keys("/")
	b.wait(`document.activeElement.matches("[data-search]")`)
	b.keys("cm")
	b.misses("customresourcedefinitions")
	b.keys(kb.Enter)
	b.wait(`location.pathname === "/console/r/core/v1/configmaps"`)
	b.sees(" objects · live")
	b.sees("map-000")
	b.picture("list")
	b.wait(`document.querySelectorAll(".space .row").length < 100`)

	b.keys("/")
	b.wait(`document.activeElement.matches("[data-search]")`)
	b.keys("map-14")
	b.sees("10 of ")
	b.wait(`location.search === "?q=map-14"`)
	create(t, server, configMaps, configMap("map-14x"))
	b.sees("11 of ")
	api(t, server, http.MethodDelete, configMaps+"/map-140", "application/json", "")
	b.sees("10 of ")
	b.misses("map-140")

	b.click("button.sort", "Name")
	b.click("button.sort", "Name ↑")
	b.wait(`document.querySelector(".space .row")?.textContent.includes("map-14x")`)
	b.keys(kb.Escape) // of the button: nothing is open, and the browser goes back
	b.visit("r/core/v1/configmaps?ns=default&q=map-14")
	b.sees("10 of 151 objects · live") // the session is the browser's
	b.keys("j" + "j" + kb.Enter)
	b.wait(`location.pathname === "/console/r/core/v1/configmaps/default/map-143"`)
	b.sees("map-143")
	b.keys(kb.Escape)
	b.sees("10 of ")
	b.keys("gn")
	b.wait(`location.pathname === "/console/r/core/v1/namespaces"`)
	b.sees("kube-system")
	b.keys("?")
	b.sees("go to a page")
	b.picture("help")
	b.keys(kb.Escape)
	b.misses("go to a page")
	b.click("button", "Sign out")
	b.sees("plinth console")
	b.misses("kube-system")
}

// A user without rights is told what the API tells.
//
// SPEC: BEY-15
func TestUserWithoutRights(t *testing.T) {
	server := start(t)
	b := open(t, server)
	b.visit("r/core/v1/secrets?ns=kube-system")
	b.typeToken(harness.UserToken)
	b.sees(`User "somebody" cannot list resource "secrets" in API group "" in the namespace "kube-system"`)
	b.wait(`document.querySelector("[role=alert]")`)
}

// bigHead is the beginning of a manifest of the ConfigMap that writeBig writes.
const bigHead = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: big\ndata:\n"

// writeBig writes a ConfigMap with 200 fields, of which one is another manager's.
func writeBig(t testing.TB, server *harness.Server) {
	t.Helper()
	var data strings.Builder
	for i := range 200 {
		if i != 137 {
			fmt.Fprintf(&data, "  key-%03d: value-%d\n", i, i)
		}
	}
	apply(t, server, configMaps+"/big", "bulk", bigHead+data.String())
	apply(t, server, configMaps+"/big", "needle", bigHead+"  key-137: sharp\n")
}

// Task: who set one field among 200?
//
// SPEC: BEY-15
func TestWhoSetTheField(t *testing.T) {
	server := start(t)
	writeBig(t, server)
	b := open(t, server)
	b.signIn()
	b.visit("r/core/v1/configmaps/default/big")
	b.sees("key-137: sharp")
	b.picture("object")

	t.Run("by keys", func(*testing.T) {
		b.keys("/")
		b.wait(`document.activeElement.matches("[data-search]")`)
		b.keys("key-137" + kb.Enter)
		b.wait(`document.querySelector(".detail").innerText.includes("needle")`)
		b.wait(`!document.querySelector(".detail").innerText.includes("bulk")`)
		b.wait(`document.activeElement.textContent.includes("key-137: sharp")`)
		b.keys("k")
		b.wait(`document.querySelector(".detail").innerText.includes("bulk")`)
	})
	t.Run("by mouse", func(*testing.T) {
		b.visit("r/core/v1/configmaps/default/big")
		b.click(".legend button", "needle")
		b.wait(`[...document.querySelectorAll(".line:not(.dim)")].some((l) => l.textContent.includes("key-137"))`)
		b.wait(`![...document.querySelectorAll(".line:not(.dim)")].some((l) => l.textContent.includes("key-136"))`)
		b.picture("needle")
		b.click(".line:not(.dim)", "key-137")
		b.wait(`document.querySelector(".detail").innerText.includes("needle")`)
		b.wait(`new URL(location).searchParams.get("m") === "needle Apply"`)
	})
	t.Run("what happens while one looks", func(*testing.T) {
		apply(t, server, configMaps+"/big", "needle", bigHead+"  key-137: blunt\n")
		b.wait(`document.querySelector(".changes")?.innerText.includes("+ .data.key-137: blunt")`)
		b.wait(`document.querySelector(".lines").textContent.includes("key-137: blunt")`)
		b.picture("changed")
	})
}

// Task: why does a namespace stay Terminating?
//
// SPEC: BEY-15
func TestTerminatingNamespace(t *testing.T) {
	server := start(t)
	create(t, server, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"stays"}}`)
	create(t, server, "/api/v1/namespaces/stays/configmaps?fieldManager=operator",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","finalizers":["example.com/held"]}}`)
	api(t, server, http.MethodDelete, "/api/v1/namespaces/stays", "application/json", "")
	b := open(t, server)
	b.signIn()
	b.keys("gn")
	b.click(".space a", "stays")
	b.sees("Why it is still here")
	b.sees("NamespaceContentRemaining is True")
	b.sees("NamespaceFinalizersRemaining is True")
	b.sees("finalizers: example.com/held")
	b.picture("namespace")
	b.click(".found a", "held")
	b.sees("Finalizer example.com/held")
	b.sees("set by operator Update")
	b.picture("held")
	api(t, server, http.MethodPatch, "/api/v1/namespaces/stays/configmaps/held", "application/merge-patch+json",
		`{"metadata":{"finalizers":null}}`)
	b.wait(`document.querySelector(".status").innerText.startsWith("● deleted") ||
		document.querySelector(".status").innerText.startsWith("deleted")`)
}

// The values of a Secret are not shown until somebody asks, nor where kubectl apply keeps them.
//
// SPEC: BEY-15
func TestSecret(t *testing.T) {
	server := start(t)
	create(t, server, "/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s",
		"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"a\":\"c2VjcmV0\"}}"}},
		"data":{"a":"c2VjcmV0"}}`)
	b := open(t, server)
	b.signIn()
	b.visit("r/core/v1/secrets/default/s")
	b.sees("a: ••••••")
	b.wait(`!document.documentElement.outerHTML.includes("c2VjcmV0")`)
	api(t, server, http.MethodPatch, "/api/v1/namespaces/default/secrets/s", "application/merge-patch+json",
		`{"data":{"a":"b3RoZXI="}}`)
	b.wait(`document.querySelector(".changes").innerText.includes(".data.a: ••••••")`)
	b.wait(`!document.documentElement.outerHTML.includes("b3RoZXI")`)
	b.click("button", "Show the data")
	b.sees("b3RoZXI=")
}

// A one-time code signs in, and is gone from the address.
//
// SPEC: BEY-15
func TestCode(t *testing.T) {
	server := start(t)
	answer := create(t, server, "/console/code", "")
	_, code, _ := strings.Cut(answer, `"code":"`)
	code, _, _ = strings.Cut(code, `"`)
	b := open(t, server)
	b.visit("#code=" + code)
	b.sees("Sign out")
	b.wait(`location.hash === "" && !location.href.includes("code")`)
	second := open(t, server)
	second.visit("#code=" + code)
	second.sees("The code did not work")
}

// The first page is small: everything that is loaded until the types are shown, as it is sent.
//
// SPEC: BEY-15
func TestFirstPageSize(t *testing.T) {
	server := start(t)
	b := open(t, server)
	b.signIn()
	b.sees("customresourcedefinitions")
	const static = `performance.getEntries().filter((e) => e.entryType === "navigation" || e.name.includes("/static/"))`
	size := result(b, chromedp.Evaluate[float64](static+`.reduce((n, e) => n + e.encodedBodySize, 0)`))
	files := result(b, chromedp.Evaluate[float64](static+`.length`))
	t.Logf("%.0f files, %.0f bytes as they are sent", files, size)
	if files < 10 || size < 10_000 || size > 60_000 {
		t.Errorf("the first page is %.0f bytes in %.0f files; it may have 60,000", size, files)
	}
}
