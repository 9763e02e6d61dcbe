package tokens

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
)

// as sends a request of a user, with headers.
func (s *server) as(token, method, path string, headers []string) (int, []byte) {
	s.t.Helper()
	return s.send(nil, method, path, append([]string{"Authorization: Bearer " + token}, headers...))
}

// send sends a request with headers over a new connection, with a client certificate if cert is not nil.
func (s *server) send(cert *tls.Certificate, method, path string, headers []string) (int, []byte) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.URL+path, strings.NewReader("{}"))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	config := &tls.Config{InsecureSkipVerify: true}
	if cert != nil {
		// The certificate is sent whatever authorities the server accepts.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, text
}

// Both servers let the same users impersonate the same others, and refuse with the same messages, whatever was allowed
// before.
//
// SPEC: AUTH-1
func TestImpersonation(t *testing.T) {
	servers := both(t)
	const group = "authentication.k8s.io"
	rule := func(verbs, groups, resources string, names ...string) string {
		quote := func(list string) string { return `["` + strings.ReplaceAll(list, ",", `","`) + `"]` }
		text := fmt.Sprintf(`{"verbs":%s,"apiGroups":%s,"resources":%s`, quote(verbs), quote(groups), quote(resources))
		if len(names) > 0 {
			text += `,"resourceNames":` + quote(strings.Join(names, ","))
		}
		return text + "}"
	}
	roles := []string{
		"", // has no permissions
		rule("impersonate", "", "users", "jane"),
		rule("impersonate", "", "users,groups,serviceaccounts") + "," + rule("impersonate", group, "uids,userextras/scopes"),
		rule("impersonate:user-info", group, "users,groups"),
		rule("impersonate:user-info", group, "users,groups,uids") + "," + rule("impersonate:user-info", group,
			"userextras/example.com/scopes,userextras/example.com/a") + "," +
			rule("impersonate-on:user-info:list,impersonate-on:user-info:create", "*", "*"),
		rule("impersonate:user-info", group, "*") + "," + rule("impersonate-on:user-info:list", "", "pods"),
		rule("impersonate:serviceaccount", group, "serviceaccounts", "a") + "," +
			rule("impersonate-on:serviceaccount:list,impersonate-on:serviceaccount:create", "*", "*"),
		rule("impersonate:arbitrary-node", group, "nodes", "n") + "," + rule("impersonate-on:arbitrary-node:create", "*",
			"*"),
		rule("impersonate:associated-node", group, "nodes", "n") + "," + rule("impersonate-on:associated-node:create", "*",
			"*"),
		rule("impersonate:associated-node", group, "nodes") + "," + rule("impersonate-on:associated-node:create", "*", "*"),
		rule("*", "*", "*"),
	}
	wishes := [][]string{
		{}, {"Impersonate-User: jane"}, {"Impersonate-User: "}, {"Impersonate-Group: g"}, {"Impersonate-Uid: u"},
		{"Impersonate-Extra-X: y"},
		{"Impersonate-User: jane", "Impersonate-Group: g"}, {"Impersonate-User: jane", "Impersonate-Group: system:masters"},
		{"Impersonate-User: jane", "Impersonate-Group: "}, {"Impersonate-User: jane",
			"Impersonate-Group: system:unauthenticated"},
		{"Impersonate-User: jane", "Impersonate-Group: a", "Impersonate-Group: b", "Impersonate-Group: c",
			"Impersonate-Group: d"},
		{"Impersonate-User: jane", "Impersonate-Uid: u"}, {"Impersonate-User: jane", "Impersonate-Extra-Scopes: view"},
		{"Impersonate-User: jane", "Impersonate-Extra-Example.com%2fscopes: view"},
		{"Impersonate-User: jane", "Impersonate-Extra-Example.com%2fscopes: "},
		{"Impersonate-User: jane", "Impersonate-Extra-Example.com%2fscopes: a", "Impersonate-Extra-Example.com%2fscopes: b",
			"Impersonate-Extra-Example.com%2fscopes: c", "Impersonate-Extra-Example.com%2fscopes: d"},
		{"Impersonate-User: jane", "Impersonate-Extra-: x"}, {"Impersonate-User: jane", "Impersonate-Extra-%zz: x"},
		{"Impersonate-User: jane", "Impersonate-Foo: x"}, {"Impersonate-User: system:anonymous"},
		{"Impersonate-User: system:anonymous", "Impersonate-Group: g"},
		{"Impersonate-User: system:serviceaccount:u:a"}, {"Impersonate-User: system:serviceaccount:u:b"},
		{"Impersonate-User: system:serviceaccount:U:a"},
		{"Impersonate-User: system:serviceaccount:u:a", "Impersonate-Group: g"}, {"Impersonate-User: system:node:n"},
		{"Impersonate-User: system:node:m"},
		{"Impersonate-User: system:node:N_"}, {"Impersonate-User: system:node:n", "Impersonate-Group: system:nodes"},
		{"Impersonate-User: <&>"}, {"Impersonate-User: jane", "Impersonate-User: joe"},
	}
	requests := [][2]string{
		{"POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"}, {"GET", "/api/v1/namespaces/u/pods"},
		{"GET", "/api/v1/namespaces/u/pods/x"}, {"GET", "/version"},
	}
	const path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	for _, s := range servers {
		code, body := s.do("POST", strings.Replace(path, "roles", "rolebindings", 1), `{"metadata":{"name":"x"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"x"},
"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"somebody"},{"kind":"ServiceAccount","namespace":"u","name":"a"}]}`, harness.AdminToken)
		if code != 201 {
			t.Fatalf("%s: %d %s", s.name, code, body)
		}
	}
	compared := 0
	for n, rules := range roles {
		role := `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"x"},"rules":[` +
			rules + `]}`
		for _, s := range servers {
			method, at := "PUT", path+"/x"
			if n == 0 {
				method, at = "POST", path
			}
			if code, body := s.do(method, at, role, harness.AdminToken); code > 201 {
				t.Fatalf("%s: %d %s", s.name, code, body)
			}
			s.waitForRules(n)
		}
		for _, wish := range wishes {
			for _, r := range requests {
				for _, who := range []string{"somebody", "a service account", "a service account on a node"} {
					if who != "somebody" && (n < 6 || r[0] != "POST") {
						continue
					}
					what := fmt.Sprintf("%s, with the rules %s, sends %s %s with %q", who, rules, r[0], r[1], wish)
					compare(t, what, servers, func(s *server) (int, []byte) {
						token := harness.UserToken
						switch who {
						case "a service account":
							token = s.sign(made{claims: accountClaims + `}}`}, nil)
						case "a service account on a node":
							token = s.sign(made{claims: accountClaims +
								`,"pod":{"name":"p","uid":"$pod"},"node":{"name":"n","uid":"$node"}}}`}, nil)
						}
						code, body := s.as(token, r[0], r[1], wish)
						if code == http.StatusOK { // the contents differ between servers
							body = []byte("{}")
						}
						return code, body
					})
					compared++
				}
			}
		}
	}
	if compared < 1000 {
		t.Errorf("only %d requests were compared", compared)
	}
}

const accountClaims = `{"iss":"` + issuer +
	`","sub":"system:serviceaccount:u:a","exp":@600,"kubernetes.io":{"namespace":"u","serviceaccount":{"name":"a","uid":"$account"}`

// waitForRules waits until the server knows the rules of a role: the reference reads them a moment later, and caches
// impersonations for ten seconds.
func (s *server) waitForRules(n int) {
	s.t.Helper()
	if s.Kind == harness.Reference && n > 0 {
		time.Sleep(11 * time.Second)
	}
}
