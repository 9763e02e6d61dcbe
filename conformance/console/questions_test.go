package console

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"plinth/conformance/internal/harness"
)

const roles = "/apis/rbac.authorization.k8s.io/v1"

// Who may do something, by which binding; and whether one user may.
//
// SPEC: BEY-15, BEY-17
func TestAccess(t *testing.T) {
	server := start(t)
	create(t, server, roles+"/namespaces/default/roles", `{"metadata":{"name":"reader"},"rules":[
		{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","delete"]}]}`)
	create(t, server, roles+"/namespaces/default/rolebindings", `{"metadata":{"name":"of-alice"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"reader"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice"}]}`)
	b := open(t, server)
	b.signIn()
	b.keys("ga")
	b.wait(`location.pathname === "/console/access"`)
	b.sees("What you may do in default")
	b.keys("/")
	b.wait(`document.activeElement.name === "v"`)
	b.keys("delete" + kb.Tab + "cm" + kb.Tab + "default" + kb.Enter)
	b.wait(`new URL(location).searchParams.get("r") === "cm"`)
	b.sees("User alice")
	b.wait(`[...document.querySelectorAll("tr")].some((r) => r.textContent.includes("alice") &&
		r.textContent.includes("default/of-alice") && r.textContent.includes("default/reader"))`)
	b.sees("Group system:masters")
	b.picture("access")
	b.visit("access?v=delete&r=configmaps&ns=default&u=alice")
	b.sees("alice may: RBAC: allowed by RoleBinding")
	b.visit("access?v=delete&r=secrets&ns=default&u=alice")
	b.sees("alice may not")
	b.visit("access?v=get&r=/healthz")
	b.sees("system:authenticated")
	b.visit("access?v=delete&r=configmaps&ns=default")
	b.click("td a", "of-alice")
	b.wait(`location.pathname === "/console/r/rbac.authorization.k8s.io/v1/rolebindings/default/of-alice"`)
	b.sees("name: reader")

	other := open(t, server)
	other.visit("access?v=get&r=secrets")
	other.typeToken(harness.UserToken)
	other.sees(`cannot create resource "whocanreviews" in API group "plinth"`)
	other.sees("selfsubjectrulesreviews") // everybody may ask that
}

// What an expression of a policy says of objects that are there.
//
// SPEC: BEY-15, BEY-18
func TestExpressions(t *testing.T) {
	server := start(t)
	for i := range 3 {
		create(t, server, configMaps, fmt.Sprintf(`{"metadata":{"name":"map-%d","labels":{"n":"%d"}}}`, i, i))
	}
	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	create(t, server, policies, `{"metadata":{"name":"even"},"spec":{
		"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},
		"variables":[{"name":"n","expression":"int(object.metadata.labels.n)"}],
		"validations":[{"expression":"variables.n % 2 == 0","message":"n is even"}]}}`)
	b := open(t, server)
	b.signIn()
	b.keys("gx")
	b.wait(`document.querySelector("form[aria-label=Expressions]")`)
	b.wait(`(() => {
		const s = [...document.querySelectorAll("select")].find((s) => [...s.options].some((o) => o.value === "even"));
		if (!s) return false;
		s.value = "even";
		s.dispatchEvent(new Event("change"));
		return true;
	})()`)
	b.wait(`document.querySelectorAll("textarea").length === 2 && document.querySelector("[name=r]").value === "configmaps"`)
	b.wait(`(document.querySelector("[name=ns]").focus(), true)`)
	b.keys("default")
	b.click("button", "Evaluate")
	b.sees("3 objects, 1 of them not true")
	b.wait(`document.querySelector("tbody tr").textContent.includes("default/map-1")`)
	b.wait(`document.querySelector("tbody tr td:last-child").textContent === "false"`)
	b.picture("expressions")
	address := `new URL(location).searchParams.get("e")`
	b.wait(address + `.includes("variables.n % 2 == 0")`)

	b.wait(`(document.querySelectorAll("textarea")[1].focus(), document.activeElement.select(), true)`)
	b.keys("object.metadata.nam" + kb.Tab)
	b.click("button", "Evaluate")
	b.sees("no such key: nam")
	b.visit(`expressions?r=configmaps&ns=default&e=` + `[["","object.metadata.name + 1"],["","nothing"]]`)
	b.sees("spec.expressions[1].expression")
	b.sees("undeclared reference to 'nothing'")
	b.visit(`expressions?r=nothing&e=[["","1"]]`)
	b.sees("There is no type nothing.")
	b.visit(`expressions?r=configmaps&e={broken`)
	b.sees("Evaluate")
	b.harmless()
}

// The health of the server, with plots that say what they show.
//
// SPEC: BEY-15
func TestHealth(t *testing.T) {
	server := start(t)
	b := open(t, server)
	b.signIn()
	b.keys("gh")
	b.sees("Ready: all checks succeed.")
	b.wait(`document.querySelectorAll(".plot svg[role=img]").length >= 10`)
	for range 5 {
		create(t, server, configMaps, `{"metadata":{"generateName":"map-"}}`)
	}
	b.wait(`[...document.querySelectorAll(".plot svg")].some((s) => /^Requests a second: read [\d.]+, write [\d.]*[1-9]/.test(s.getAttribute("aria-label")))`)
	b.wait(`[...document.querySelectorAll(".plot svg")].some((s) => /^Memory: resident [\d.]+ MiB/.test(s.getAttribute("aria-label")))`)
	b.wait(`document.querySelector(".plot path").getAttribute("d").startsWith("M")`)
	b.picture("health")
	other := open(t, server)
	other.visit("health")
	other.typeToken(harness.UserToken)
	other.sees(`cannot get path "/metrics"`)
}
