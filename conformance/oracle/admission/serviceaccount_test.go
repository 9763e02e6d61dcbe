package admission

import (
	"testing"
	"testing/synctest"

	"k8s.io/apiserver/pkg/admission"
)

// The time is that of synctest: nobody waits for the account default.
//
// SPEC: AUTH-3
func TestServiceAccount(t *testing.T) { synctest.Test(t, testServiceAccount) }

func testServiceAccount(t *testing.T) {
	account := func(name string, meta []string, rest ...string) string {
		return doc("v1", "ServiceAccount", "ns", name, meta, rest...)
	}
	enforced := []string{"annotations", `{kubernetes.io/enforce-mountable-secrets: "true"}`}
	w := (&world{plugin: "ServiceAccount", objects: []string{
		account("default", nil, "imagePullSecrets", "[{name: pull}]"),
		account("quiet", nil, "automountServiceAccountToken", "false"),
		account("odd", []string{"annotations", `{kubernetes.io/enforce-mountable-secrets: "maybe"}`}),
		account("lax", []string{"annotations", `{kubernetes.io/enforce-mountable-secrets: "false"}`}),
		account("strict", enforced, "secrets", "[{name: s1}]", "imagePullSecrets", "[{name: pull}]"),
	}}).build(t)
	r, count := seeded(4), tally{}
	container := func() string {
		return fields("name", "c", "image", "i",
			"volumeMounts", r.one("", "", "[{name: v, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]",
				"[{name: v, mountPath: /x}]"),
			"env", r.one("", "", "", "[{name: E, value: x}]",
				"[{name: E, valueFrom: {secretKeyRef: {name: s1, key: k}}}]",
				"[{name: E, valueFrom: {secretKeyRef: {name: s2, key: k}}}]"),
			"envFrom", r.one("", "", "", "[{configMapRef: {name: s2}}]",
				"[{secretRef: {name: s1}}]", "[{secretRef: {name: s2}}]"))
	}
	random := func() string {
		return pod([]string{"annotations", r.one("", "", "", "", "", "{kubernetes.io/config.mirror: x}")},
			"containers", "["+container()+"]", "initContainers", r.one("", "["+container()+"]"),
			"ephemeralContainers", r.one("", "["+container()+"]"),
			"serviceAccountName", r.one("", "", "quiet", "odd", "lax", "strict", "strict", "strict", "none"),
			"automountServiceAccountToken", r.one("", "", "true", "false"),
			"imagePullSecrets", r.one("", "", "[{name: pull}]", "[{name: other}]"),
			"volumes", r.one("", "", "[{name: kube-api-access-mine, emptyDir: {}}]",
				"[{name: v, secret: {secretName: s1}}]",
				"[{name: v, secret: {secretName: s2}}]",
				"[{name: v, projected: {sources: [{serviceAccountToken: {path: x}}]}}]",
				"[{name: v, projected: {sources: [{configMap: {name: x}}]}}]"))
	}
	for range 2 {
		for range 600 {
			w.compare(t, ofPod(admission.Create, random(), ""), &count)
			a := ofPod(admission.Update, random(), pod(nil))
			a.subresource = r.one("", "ephemeralcontainers", "ephemeralcontainers")
			w.compare(t, a, &count)
		}
		a := ofPod(admission.Create, random(), "")
		a.subresource = "binding"
		a.object = doc("v1", "Binding", "ns", "p", nil, "target", "{name: n1}")
		w.compare(t, a, &count)
		count.atLeast(t, 100, 200, 200)
		w.validateOnly = true
	}
}

// The account default of a namespace is waited for, on both sides.
//
// SPEC: AUTH-3
func TestServiceAccountIsAwaited(t *testing.T) { synctest.Test(t, testServiceAccountIsAwaited) }

func testServiceAccountIsAwaited(t *testing.T) {
	w := (&world{plugin: "ServiceAccount"}).build(t)
	count := tally{}
	w.compareOne(t, ofPod(admission.Create, pod(nil), ""), &count)
	count.atLeast(t, 0, 0, 1)
}
