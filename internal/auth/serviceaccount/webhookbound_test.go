package serviceaccount

import (
	"context"
	"strings"
	"testing"

	"plinth/internal/access"
	"plinth/internal/engine"
	"plinth/object"
)

// attesting allows the ServiceAccount n/a to attest reviews of the group apps, as long as it asks by its own groups.
type attesting struct{}

func (attesting) Authorize(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
	if a.Verb == "attest" && a.Group == "authentication.k8s.io" && a.Resource == "admissionReviewAPIGroups" &&
		a.Name != "denied" && a.User.Name == access.ServiceAccount("n", "a") && len(a.User.Groups) == 2 {
		return access.Allow, "", nil
	}
	return access.NoOpinion, "", nil
}

// A token is bound to a webhook configuration only with the gate, for a webhook that is configured so, and as long as
// the configuration exists.
//
// SPEC: AUTH-10
func TestTokensOfWebhooks(t *testing.T) {
	w := newWorld(t)
	hooks := w.types.Now().Find(admissionGroup, "v1", "validatingwebhookconfigurations")
	parsed, err := object.ParseJSON([]byte(`{"metadata":{"name":"v","finalizers":["example.com/f"]},"webhooks":[{"name":` +
		`"a.example.com","clientConfig":{"url":"https://hook"},"rules":[{"apiGroups":["apps"],"apiVersions":["*"],` +
		`"resources":["*"],"operations":["*"]}],"sideEffects":"None","admissionReviewVersions":["v1"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create(t.Context(), &engine.Request{Resource: hooks}, parsed); err != nil {
		t.Fatal(err)
	}
	request := func(name, audience, group string) (object.Value, error) {
		body := object.Fields("spec", object.Fields("audiences", object.Strings(audience), "expirationSeconds",
			object.IntOf(3600), "boundObjectRef", object.Fields("apiVersion", object.StringOf(admissionGroup+"/v1"), "kind",
				object.StringOf("ValidatingWebhookConfiguration"), "name", object.StringOf(name)), "attestations",
			object.Fields(apiGroups, object.Strings(group))))
		answer, _, err := w.issuer.Answer(t.Context(), &engine.Request{Authorizer: attesting{}},
			w.get("serviceaccounts", "n", "a"), body)
		return answer, err
	}
	refused := func(name, audience, group, want string) {
		t.Helper()
		if _, err := request(name, audience, group); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s for %s about %s: %v, want %q", name, audience, group, err, want)
		}
	}
	refused("v", "https://hook", "apps", "(feature gate APIServerWebhookAuthenticationToken is disabled)")
	w.issuer.Webhooks = true
	refused("v", "here", "apps", "api server audiences are invalid for webhook token requests")
	refused("v", "https://hook", "denied", `admissionReviewAPIGroups.authentication.k8s.io "denied" is forbidden: User `+
		`"system:serviceaccount:n:a" cannot attest resource "admissionReviewAPIGroups" in API group `+
		`"authentication.k8s.io" at the cluster scope`)
	for _, c := range [][3]string{{"x", "https://hook", "apps"}, {"v", "https://hook/", "apps"},
		{"v", "https://hook", "batch"}} {
		refused(c[0], c[1], c[2], `serviceaccounts/token "a" is forbidden: token request denied`)
	}
	answer, err := request("v", "https://hook", "apps")
	if err != nil {
		t.Fatal(err)
	}
	if got := answer.At("spec", "expirationSeconds").Int(); got != 600 {
		t.Errorf("the token lasts %d s", got)
	}
	token := answer.At("status", "token").Str()
	audience := []string{"https://hook"}
	w.verify("without the gate", token, audience, `feature gate "APIServerWebhookAuthenticationToken" is disabled, but `+
		"token is webhook bound")
	w.verifier.Webhooks = true
	w.verify("with the gate", token, audience, "")
	id, err := w.verifier.Token(t.Context(), token, audience)
	if err != nil || id.User.Extra[access.ValidatingWebhookName][0] != "v" ||
		id.User.Extra[access.AttestedAPIGroups][0] != "apps" {
		t.Errorf("it is of %+v, %v", id, err)
	}
	if _, err := w.Delete(t.Context(), &engine.Request{Resource: hooks, Name: "v"}, engine.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Patch(t.Context(), &engine.Request{Resource: hooks, Name: "v"},
		engine.Patch{Type: engine.MergePatch, Body: []byte(`{"metadata":{"finalizers":null}}`)}); err != nil {
		t.Fatal(err)
	}
	w.verify("after its configuration was deleted", token, audience, "service account token has been invalidated")
}
