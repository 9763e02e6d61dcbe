package console

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
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
		"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],
			"resources":["configmaps"]}]},
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
	b.wait(`document.querySelectorAll("textarea").length === 2 &&
		document.querySelector("[name=r]").value === "configmaps"`)
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
	b.sees("up to")
	// What was seen once stays: the last value of a rate is that of two seconds.
	const objects = `Number([...document.querySelectorAll(".plot svg")].map((s) => /^Objects: objects ([\d,]+)/.exec(
		s.getAttribute("aria-label"))?.[1]).find(Boolean).replaceAll(",", ""))`
	before := result(b, chromedp.Evaluate[int](objects))
	for range 5 {
		create(t, server, configMaps, `{"metadata":{"generateName":"map-"}}`)
	}
	b.wait(fmt.Sprintf("%s >= %d", objects, before+5))
	b.wait(`[...document.querySelectorAll(".plot figcaption")].some((f) => /^Requests a second up to [\d.]*[1-9]/.test(f.textContent))`)
	b.wait(`[...document.querySelectorAll(".plot svg")].some((s) => /^Memory: resident [\d.]+ MiB/.test(s.getAttribute("aria-label")))`)
	b.wait(`document.querySelector(".plot path").getAttribute("d").startsWith("M")`)
	b.picture("health")
	b.script(`const send = window.fetch;
		window.fetch = (...args) => args[0].includes("/readyz")
			? Promise.resolve(new Response("[+]ping ok\n[-]disk failed: reason withheld\nreadyz check failed\n", { status: 500 }))
			: send(...args);`)
	b.sees("Not ready: [-]disk failed: reason withheld")
	b.misses("all checks succeed")
	b.script(`const send = window.fetch;
		window.fetch = (...args) => args[0].includes("/readyz") ? Promise.reject(new TypeError("gone")) : send(...args);`)
	b.sees("Not ready: gone")
	other := open(t, server)
	other.visit("health")
	other.typeToken(harness.UserToken)
	other.sees(`cannot get path "/metrics"`)
}

// Owners and dependents are a tree, also for a user who may list and not ask for dependents.
//
// SPEC: BEY-15, BEY-19
func TestDependents(t *testing.T) {
	server := start(t)
	made := func(name string, owners string) string {
		t.Helper()
		var object struct{ Metadata struct{ UID string } }
		answer := create(t, server, configMaps,
			fmt.Sprintf(`{"metadata":{"name":%q,"ownerReferences":[%s]}}`, name, owners))
		if err := json.Unmarshal([]byte(answer), &object); err != nil {
			t.Fatal(err)
		}
		return object.Metadata.UID
	}
	owner := func(name, uid string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q}`, name, uid)
	}
	top := made("top", "")
	child := made("child", owner("top", top))
	made("grandchild", owner("child", child))
	create(t, server, roles+"/clusterrolebindings", `{"metadata":{"name":"viewer"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"somebody"}]}`)
	const tree = `document.querySelector(".found > .tree > li > a").textContent === "child" &&
		document.querySelector(".found .tree .tree a")?.textContent === "grandchild"`
	b := open(t, server)
	b.signIn()
	b.visit("r/core/v1/configmaps/default/top")
	b.wait(`document.querySelector(".found") && ` + tree)
	b.picture("dependents")
	b.click(".found a", "grandchild")
	b.wait(`location.pathname.endsWith("/grandchild")`)
	b.wait(`document.querySelector(".tree a")?.textContent === "child" &&
		document.querySelector(".tree .tree a")?.textContent === "top"`)
	b.sees("None.")

	viewer := open(t, server)
	viewer.visit("r/core/v1/configmaps/default/top")
	viewer.typeToken(harness.UserToken)
	viewer.click("button", "Find dependents")
	viewer.wait(`document.querySelector(".found a")?.textContent === "child"`)
}

// A quota that is used up, and what Events warn of.
//
// SPEC: BEY-15
func TestWhatIsNotWell(t *testing.T) {
	server := start(t)
	create(t, server, "/api/v1/namespaces/default/resourcequotas", `{"metadata":{"name":"few"},"spec":{"hard":{
		"secrets":"0","pods":"2"}}}`)
	made := create(t, server, configMaps, configMap("warned"))
	var object struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal([]byte(made), &object); err != nil {
		t.Fatal(err)
	}
	create(t, server, "/api/v1/namespaces/default/events", fmt.Sprintf(`{"metadata":{"name":"e"},"type":"Warning",
		"reason":"FailedCreate","message":"failed calling webhook \"deny.example.com\"","lastTimestamp":%q,
		"involvedObject":{"kind":"ConfigMap","namespace":"default","name":"warned","uid":%q}}`,
		time.Now().UTC().Format(time.RFC3339), object.Metadata.UID))
	b := open(t, server)
	b.signIn()
	b.visit("r/core/v1/resourcequotas/default/few")
	b.sees("The quota of secrets is used up")
	b.misses("The quota of pods")
	b.visit("r/core/v1/configmaps/default/warned")
	b.sees("What is not well")
	b.sees("Warning FailedCreate")
	b.wait(`document.querySelector(".stuck").textContent.includes("failed calling webhook")`)
}
