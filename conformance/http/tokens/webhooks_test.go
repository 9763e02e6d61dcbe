package tokens

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
)

// Tokens that are bound to webhook configurations: what they are requested with, whom they authenticate, and when they
// are refused.
//
// SPEC: AUTH-2, AUTH-10
func TestTokensOfWebhooks(t *testing.T) {
	servers := both(t, "--feature-gates=APIServerWebhookAuthenticationToken=true")
	const registration = "/apis/admissionregistration.k8s.io/v1/"
	const rules = `"rules":[{"apiGroups":["apps","batch"],"apiVersions":["*"],"resources":["*"],"operations":["CREATE"]}],` +
		`"sideEffects":"None","admissionReviewVersions":["v1"],"failurePolicy":"Ignore"`
	configuration := func(name string) string {
		return `{"metadata":{"name":"` + name + `","finalizers":["example.com/x"]},"webhooks":[` +
			`{"name":"a.example.com","clientConfig":{"url":"https://hook.example.com/path"},` + rules + `},` +
			`{"name":"b.example.com","clientConfig":{"service":{"name":"s","namespace":"n"}},` + rules + `},` +
			`{"name":"c.example.com","clientConfig":{"service":{"name":"s","namespace":"n","path":"/p","port":8443}},` +
			`"rules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["none"],"operations":["CREATE"]}],` +
			`"sideEffects":"None","admissionReviewVersions":["v1"],"failurePolicy":"Ignore"}]}`
	}
	for _, s := range servers {
		for _, o := range [][3]string{
			{"validating", registration + "validatingwebhookconfigurations", configuration("v")},
			{"mutating", registration + "mutatingwebhookconfigurations", configuration("m")},
			{"", registration + "validatingwebhookconfigurations", `{"metadata":{"name":"empty"}}`},
			{"", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"attest"},"rules":[{"apiGroups":` +
				`["authentication.k8s.io"],"resources":["admissionReviewAPIGroups"],"verbs":["attest"],` +
				`"resourceNames":["apps","other","*"]}]}`},
			{"", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"attest"},"roleRef":` +
				`{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"attest"},"subjects":[{"kind":` +
				`"ServiceAccount","name":"a","namespace":"u"}]}`},
			{"", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"batch"},"rules":[{"apiGroups":` +
				`["*"],"resources":["*"],"verbs":["*"],"resourceNames":["batch"]}]}`},
			{"", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"batch"},"roleRef":` +
				`{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"batch"},"subjects":[{"kind":` +
				`"Group","name":"system:authenticated","apiGroup":"rbac.authorization.k8s.io"}]}`},
		} {
			code, body := s.do("POST", o[1], o[2], harness.AdminToken)
			var made struct{ Metadata struct{ UID string } }
			if err := json.Unmarshal(body, &made); err != nil || code != 201 {
				t.Fatalf("%s: %s: %d %s", s.name, o[2], code, body)
			}
			if o[0] != "" {
				s.uids[o[0]] = made.Metadata.UID
			}
		}
	}
	spec := func(kind, name, audience, group, more string) string {
		return fmt.Sprintf(`{"spec":{"audiences":[%q],"boundObjectRef":{"apiVersion":"admissionregistration.k8s.io/v1",`+
			`"kind":%q,"name":%q%s},"attestations":{"admissionReviewAPIGroups":[%q]}}}`, audience, kind, name, more, group)
	}
	const validating, mutating = "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"
	const hook, service = "https://hook.example.com/path", "https://s.n.svc:443/"
	bodies := []string{
		spec(validating, "v", hook, "apps", ""), spec(mutating, "m", hook, "apps", ""),
		spec(validating, "v", service, "apps", ""), spec(validating, "v", "https://s.n.svc:8443/p", "other", ""),
		spec(mutating, "m", "https://s.n.svc:8443/p", "apps", ""),
		spec(validating, "v", hook, "*", ""), spec(validating, "empty", "anything", "*", ""),
		spec(validating, "v", "elsewhere", "*", ""), spec(validating, "empty", hook, "apps", ""),
		spec(validating, "v", hook, "other", ""), spec(validating, "v", hook, "batch", ""),
		spec(validating, "v", hook, "extensions", ""), spec(validating, "v", hook+"/", "apps", ""),
		spec(validating, "v", "https://s.n.svc/", "apps", ""), spec(validating, "v", "https://s.n.svc:443", "apps", ""),
		spec(validating, "m", hook, "apps", ""), spec(validating, "", hook, "apps", ""),
		spec(validating, "a/b", hook, "apps", ""), spec(validating, "v", issuer, "apps", ""),
		spec(validating, "v", hook, "apps", `,"uid":"x"`), spec(mutating, "m", hook, "apps", `,"uid":"x"`),
		spec("PodWebhookConfiguration", "v", hook, "apps", ""), spec(validating, "v", hook, "A B", ""),
		`{"spec":{"audiences":["` + hook + `"],"expirationSeconds":601,"boundObjectRef":{"apiVersion":` +
			`"admissionregistration.k8s.io/v1","kind":"` + validating + `","name":"v"},"attestations":` +
			`{"admissionReviewAPIGroups":["apps"]}}}`,
		`{"spec":{"boundObjectRef":{"apiVersion":"admissionregistration.k8s.io/v1beta1","kind":"` + validating +
			`","name":"v"}}}`,
		`{"spec":{"attestations":{"admissionReviewAPIGroups":["apps"]},"boundObjectRef":{"apiVersion":"v1","kind":"Pod",` +
			`"name":"p"}}}`,
	}
	const path = "/api/v1/namespaces/u/serviceaccounts/a/token"
	for _, body := range bodies {
		compare(t, body, servers, func(s *server) (int, []byte) { return s.do("POST", path, body, harness.AdminToken) })
	}
	compare(t, "another ServiceAccount", servers, func(s *server) (int, []byte) {
		return s.do("POST", "/api/v1/namespaces/u/serviceaccounts/b/token", bodies[0], harness.AdminToken)
	})
	tokens := map[*server]string{}
	for _, s := range servers {
		_, body := s.do("POST", path, bodies[0], harness.AdminToken)
		tokens[s] = string(aToken.Find(body))
	}
	const account = `"aud":["` + issuer + `"],"iss":"` + issuer + `","sub":"system:serviceaccount:u:a","exp":@600,` +
		`"iat":@0,"nbf":@0,"kubernetes.io":{"namespace":"u","serviceaccount":{"name":"a","uid":"$account"}`
	const attested = `"attestations":{"admissionReviewAPIGroups":["apps"]}`
	cases := []made{
		{name: "validating", claims: `,` + attested + `,"validatingwebhookconfiguration":{"name":"v","uid":"$validating"}`},
		{name: "mutating", claims: `,` + attested + `,"mutatingwebhookconfiguration":{"name":"m","uid":"$mutating"}`},
		{name: "both", claims: `,` + attested + `,"mutatingwebhookconfiguration":{"name":"m","uid":"$mutating"},` +
			`"validatingwebhookconfiguration":{"name":"v","uid":"$validating"}`},
		{name: "a Pod, too", claims: `,` + attested + `,"pod":{"name":"p","uid":"$pod"},` +
			`"validatingwebhookconfiguration":{"name":"v","uid":"$validating"}`},
		{name: "no attestation", claims: `,"validatingwebhookconfiguration":{"name":"v","uid":"$validating"}`},
		{name: "another attestation", claims: `,"attestations":{"x":["y"]},` +
			`"validatingwebhookconfiguration":{"name":"v","uid":"$validating"}`},
		{name: "an attestation alone", claims: `,` + attested},
		{name: "another UID", claims: `,` + attested + `,"validatingwebhookconfiguration":{"name":"v","uid":"x"}`},
		{name: "another mutating UID", claims: `,` + attested + `,"mutatingwebhookconfiguration":{"name":"m","uid":"x"}`},
		{name: "no such", claims: `,` + attested + `,"validatingwebhookconfiguration":{"name":"x","uid":"x"}`},
		{name: "no name", claims: `,` + attested + `,"validatingwebhookconfiguration":{}`},
		{name: "null", claims: `,` + attested + `,"validatingwebhookconfiguration":null`},
	}
	for i := range cases {
		cases[i].claims = "{" + account + cases[i].claims + "}}"
	}
	reviews := func(when string) {
		t.Helper()
		for _, c := range cases {
			compare(t, when+": "+c.name, servers, func(s *server) (int, []byte) {
				code, body := s.do("POST", "/apis/authentication.k8s.io/v1/tokenreviews",
					`{"spec":{"token":"`+s.sign(c, nil)+`"}}`, harness.AdminToken)
				return code, withoutToken(body)
			})
		}
		compare(t, when+": a token that was requested", servers, func(s *server) (int, []byte) {
			code, body := s.do("POST", "/apis/authentication.k8s.io/v1/tokenreviews",
				`{"spec":{"audiences":["`+hook+`"],"token":"`+tokens[s]+`"}}`, harness.AdminToken)
			return code, withoutToken(body)
		})
	}
	reviews("while it exists")
	for _, s := range servers {
		for _, name := range []string{"validatingwebhookconfigurations/v", "mutatingwebhookconfigurations/m"} {
			if code, body := s.do("DELETE", registration+name, "", harness.AdminToken); code != 200 {
				t.Fatalf("%s: %d %s", s.name, code, body)
			}
		}
	}
	reviews("while it is being deleted")
	for _, s := range servers {
		for _, name := range []string{"validatingwebhookconfigurations/v", "mutatingwebhookconfigurations/m"} {
			code, body := s.doAs("PATCH", registration+name, `{"metadata":{"finalizers":null}}`, harness.AdminToken,
				"application/merge-patch+json")
			if code != 200 {
				t.Fatalf("%s: %d %s", s.name, code, body)
			}
		}
	}
	// The reference caches that a token is valid for ten seconds.
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		_, text := servers[0].do("POST", "/apis/authentication.k8s.io/v1/tokenreviews",
			`{"spec":{"audiences":["`+hook+`"],"token":"`+tokens[servers[0]]+`"}}`, harness.AdminToken)
		if bytes.Contains(text, []byte("has been invalidated")) {
			break
		}
	}
	reviews("after it was deleted")
	compare(t, "after it was deleted", servers, func(s *server) (int, []byte) {
		return s.do("POST", path, bodies[0], harness.AdminToken)
	})
}
