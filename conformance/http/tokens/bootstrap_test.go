package tokens

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
)

// Both servers accept the same bootstrap tokens, for the same users.
//
// SPEC: AUTH-1
func TestBootstrapTokens(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("CONFORMANCE_REFERENCE is not set")
	}
	servers := servers(t, "--enable-bootstrap-token-auth=true")
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	const secret = "0123456789abcdef"
	cases := []struct {
		name  string
		data  map[string]string // members to set in a valid Secret; "-" removes the member
		typ   string            // "" for that of bootstrap tokens
		at    string            // another namespace or name of the Secret
		token string            // another token to be sent
		after string            // what happens to the Secret: "deleted", "held"
	}{
		{name: "good"},
		{name: "in an hour", data: map[string]string{"expiration": in(time.Hour)}},
		{name: "in an hour, of another zone",
			data: map[string]string{"expiration": time.Now().Add(time.Hour).In(time.FixedZone("", 7200)).Format(time.RFC3339)}},
		{name: "expired", data: map[string]string{"expiration": in(-time.Minute)}},
		{name: "expired long ago", data: map[string]string{"expiration": "2001-01-01T00:00:00Z"}},
		{name: "an expiration that is no time", data: map[string]string{"expiration": "tomorrow"}},
		{name: "an expiration without a zone", data: map[string]string{"expiration": "2999-01-01T00:00:00"}},
		{name: "an expiration with fractions", data: map[string]string{"expiration": "2999-01-01T00:00:00.5Z"}},
		{name: "an empty expiration", data: map[string]string{"expiration": ""}},
		{name: "no usage", data: map[string]string{"usage-bootstrap-authentication": "-"}},
		{name: "usage false", data: map[string]string{"usage-bootstrap-authentication": "false"}},
		{name: "usage TRUE", data: map[string]string{"usage-bootstrap-authentication": "TRUE"}},
		{name: "usage 1", data: map[string]string{"usage-bootstrap-authentication": "1"}},
		{name: "for signing alone", data: map[string]string{"usage-bootstrap-authentication": "-",
			"usage-bootstrap-signing": "true"}},
		{name: "another id", data: map[string]string{"token-id": "zzzzzz"}},
		{name: "no id", data: map[string]string{"token-id": "-"}},
		{name: "another secret", data: map[string]string{"token-secret": "fedcba9876543210"}},
		{name: "no secret", data: map[string]string{"token-secret": "-"}},
		{name: "an empty secret", data: map[string]string{"token-secret": ""}},
		{name: "a longer secret", data: map[string]string{"token-secret": secret + "0"}},
		{name: "a group", data: map[string]string{"auth-extra-groups": "system:bootstrappers:workers"}},
		{name: "groups",
			data: map[string]string{"auth-extra-groups": "system:bootstrappers:z,system:bootstrappers:a,system:bootstrappers:z"}},
		{name: "groups with a blank",
			data: map[string]string{"auth-extra-groups": "system:bootstrappers:a, system:bootstrappers:b"}},
		{name: "a group of others", data: map[string]string{"auth-extra-groups": "system:masters"}},
		{name: "a group of others beside one",
			data: map[string]string{"auth-extra-groups": "system:bootstrappers:a,system:nodes"}},
		{name: "a group that ends too early", data: map[string]string{"auth-extra-groups": "system:bootstrappers:"}},
		{name: "a group in capitals", data: map[string]string{"auth-extra-groups": "system:bootstrappers:A"}},
		{name: "no groups", data: map[string]string{"auth-extra-groups": ""}},
		{name: "an empty group", data: map[string]string{"auth-extra-groups": "system:bootstrappers:a,"}},
		{name: "the group of all", data: map[string]string{"auth-extra-groups": "system:bootstrappers"}},
		{name: "a description", data: map[string]string{"description": "for workers"}},
		{name: "another type", typ: "Opaque"},
		{name: "another namespace", at: "default/"},
		{name: "another name", at: "kube-system/other-token-"},
		{name: "token in capitals", token: "%s.0123456789ABCDEF"},
		{name: "token cut short", token: "%s.0123456789abcde"},
		{name: "token and more", token: "%s.0123456789abcdef0"},
		{name: "token without a dot", token: "%s0123456789abcdef"},
		{name: "token with a wrong secret", token: "%s.0000000000000000"},
		{name: "deleted", after: "deleted"},
		{name: "deleted, and held", after: "held"},
	}
	known := 0
	for i, c := range cases {
		id := fmt.Sprintf("abc%03d", i)
		data := map[string]string{"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true"}
		maps.Copy(data, c.data)
		maps.DeleteFunc(data, func(_, v string) bool { return v == "-" })
		namespace, name := "kube-system", "bootstrap-token-"+id
		switch c.at {
		case "default/":
			namespace = "default"
		case "kube-system/other-token-":
			name = "other-token-" + id
		}
		typ := c.typ
		if typ == "" {
			typ = "bootstrap.kubernetes.io/token"
		}
		object := map[string]any{"metadata": map[string]any{"name": name}, "type": typ, "stringData": data}
		if c.after == "held" {
			object["metadata"].(map[string]any)["finalizers"] = []string{"example.com/x"}
		}
		body, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		path := "/api/v1/namespaces/" + namespace + "/secrets"
		token := id + "." + secret
		if c.token != "" {
			token = fmt.Sprintf(c.token, id)
		}
		compare(t, c.name, servers, func(s *server) (int, []byte) {
			if code, answer := s.do("POST", path, string(body), harness.AdminToken); code != 201 {
				t.Fatalf("%s: %d %s", c.name, code, answer)
			}
			if c.after != "" {
				if code, answer := s.do("DELETE", path+"/"+name, "", harness.AdminToken); code != 200 {
					t.Fatalf("%s: %d %s", c.name, code, answer)
				}
			}
			// The reference looks Secrets up in the cache of an informer, which is a moment behind.
			var code int
			var answer []byte
			for end := time.Now().Add(time.Second); ; time.Sleep(50 * time.Millisecond) {
				code, answer = s.do("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "{}", token)
				if s.Kind == harness.Plinth || code == 201 && c.after == "" || time.Now().After(end) {
					break
				}
			}
			if code == 201 {
				known++
			}
			return code, answer
		})
	}
	t.Logf("%d Secrets, %d answers know somebody", len(cases), known)
	if len(cases) < 40 || known < 16 || known > len(cases) {
		t.Error("that is too little to have compared anything")
	}
	// Such a user has no permissions without a role.
	for _, r := range [][2]string{{"GET", "/api/v1/nodes"},
		{"POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests"}} {
		compare(t, fmt.Sprint(r), servers, func(s *server) (int, []byte) { return s.do(r[0], r[1], "{}", "abc000."+secret) })
	}
}
