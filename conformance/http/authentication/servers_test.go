package authentication

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/internal/auth/oidc/issuertest"
)

func TestMain(m *testing.M) { harness.Main(m) }

// both starts the reference, and Plinth with its issuer of service accounts.
func both(t *testing.T, flags ...string) []*harness.Server {
	t.Helper()
	if !harness.WantReference() {
		t.Skip("CONFORMANCE_REFERENCE is not set")
	}
	dir := t.TempDir()
	return []*harness.Server{
		harness.Run(t, harness.Options{Kind: harness.Reference, Dir: dir, Flags: flags}),
		harness.Run(t, harness.Options{Kind: harness.Plinth, Flags: append([]string{
			"--service-account-key-file", filepath.Join(dir, "sa.pub"), "--service-account-signing-key-file",
			filepath.Join(dir, "sa.key"),
			"--service-account-issuer", "https://kubernetes.default.svc",
		}, flags...)}),
	}
}

// answer sends a request, and returns the status code and the body without the parts that depend on the time.
func answer(t *testing.T, s *harness.Server, method, path, body, token string) string {
	t.Helper()
	r, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		Kind, Message string
		Status        any
	}
	if json.Unmarshal(text, &o) != nil {
		return fmt.Sprint(response.StatusCode)
	}
	told, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return version.ReplaceAllString(aTime.ReplaceAllString(fmt.Sprint(response.StatusCode, " ", string(told)), "<time>"),
		"go-jose/go-jose")
}

const (
	reviews     = "/apis/authentication.k8s.io/v1/tokenreviews"
	selfReviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

// reviewed returns a server's TokenReview of a token, and its SelfSubjectReview for a request with the token.
func reviewed(t *testing.T, s *harness.Server, token, audiences string) string {
	t.Helper()
	spec, err := json.Marshal(token)
	if err != nil {
		t.Fatal(err)
	}
	said := answer(t, s, "POST", reviews, fmt.Sprintf(`{"spec":{"token":%s%s}}`, spec, audiences), harness.AdminToken)
	if strings.ContainsAny(token, "\n\x00 ") || token == "" {
		return said
	}
	return said + "\n" + answer(t, s, "POST", selfReviews, `{}`, token)
}

// bothUnreadable says whether both servers report that the header of a token cannot be decoded, or names no algorithm.
func bothUnreadable(said ...string) bool {
	for _, s := range said {
		if strings.Contains(s, "userInfo") || !strings.Contains(s, malformed) && !strings.Contains(s, `got \"\"]`) {
			return false
		}
	}
	return true
}

// until waits until the reviews of both servers contain a text.
func until(t *testing.T, servers []*harness.Server, token, want string) {
	t.Helper()
	for _, s := range servers {
		for deadline := time.Now().Add(90 * time.Second); !strings.Contains(reviewed(t, s, token, ""), want); time.Sleep(
			50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s does not say %q but %s", s.Kind, want, reviewed(t, s, token, ""))
			}
		}
	}
}

// Requests and TokenReviews over a configuration file, which is replaced while the servers run.
//
// SPEC: AUTH-1, AUTH-2
func TestServersWithConfiguration(t *testing.T) {
	one, two := issuertest.Start(t), issuertest.Start(t)
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const anonymous = "anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}, {path: /version}]}\n"
	text := setUp(one,
		mappings(
			"username: {claim: sub, prefix: \"x:\"}\ngroups: {claim: groups, prefix: \"g:\"}\nuid: {expression: claims.jti}\n"+
				"extra:\n- {key: example.com/role, valueExpression: claims.nested.role}"))
	write(text + anonymous)
	servers := both(t, "--authentication-config", file)
	until(t, servers, one.Token(full()), "x:jane")
	compared, somebody := 0, 0
	tokens := hostile(t, one, two)
	for _, claims := range sets()[:60] {
		tokens = append(tokens, one.Token(claims))
	}
	for n, token := range append(tokens, two.Token(full()), "sesame", harness.UserToken) {
		if strings.HasPrefix(token, " ") {
			continue // it is not a token, and the reference panics, as it looks for the path of a nil request
		}
		audiences := []string{"", `,"audiences":["https://kubernetes.default.svc"]`, `,"audiences":["other"]`}[n%3]
		their, our := reviewed(t, servers[0], token, audiences), reviewed(t, servers[1], token, audiences)
		if their != our && !bothUnreadable(their, our) {
			t.Errorf("%.200s\nreference: %s\nplinth:    %s", token, their, our)
		}
		if compared++; strings.Contains(our, "x:jane") {
			somebody++
		}
	}
	if compared < 100 || somebody < 20 {
		t.Errorf("only %d tokens were compared, and only %d of them were accepted", compared, somebody)
	}
	for _, path := range []string{"/livez", "/readyz", "/version", "/livez/ping", "/healthz", "/version/",
		"/livez?verbose", "/api", "/", "/LIVEZ", "/livez/", "/%6civez"} {
		their, our := answer(t, servers[0], "GET", path, "", ""), answer(t, servers[1], "GET", path, "", "")
		if their[:3] != our[:3] {
			t.Errorf("%s without credentials\nreference: %s\nplinth:    %s", path, their, our)
		}
	}
	write(strings.Replace(text, "x:", "y:", 1)) // another setting for anonymous is refused
	time.Sleep(3 * time.Second)
	until(t, servers, one.Token(full()), "x:jane")
	write(setUp(two, mappings("username: {claim: sub, prefix: \"y:\"}")) + anonymous)
	until(t, servers, two.Token(full()), "y:jane")
	until(t, servers, one.Token(full()), "invalid bearer token")
}

// The flags for one issuer.
//
// SPEC: AUTH-1
func TestServersWithFlags(t *testing.T) {
	i, other := issuertest.Start(t), issuertest.Start(t)
	servers := both(t, "--oidc-issuer-url", i.URL, "--oidc-client-id", "me", "--oidc-ca-file", i.CAFile(),
		"--oidc-username-claim", "sub",
		"--oidc-groups-claim", "groups", "--oidc-groups-prefix", "g:", "--oidc-required-claim", "email=jane@example.com",
		"--oidc-signing-algs", "RS256,ES256", "--anonymous-auth=false")
	until(t, servers, i.Token(full()), i.URL+"#jane")
	keys := []*issuertest.Key{i.Key(), i.NewKey("ES256"), i.NewKey("ES384")}
	i.Use(keys...)
	tokens := hostile(t, i, other, keys...)
	for _, claims := range sets()[:40] {
		tokens = append(tokens, i.Token(claims))
	}
	for _, token := range tokens {
		their, our := reviewed(t, servers[0], token, ""), reviewed(t, servers[1], token, "")
		if their != our && !bothUnreadable(their, our) {
			t.Errorf("%.200s\nreference: %s\nplinth:    %s", token, their, our)
		}
	}
	for _, path := range []string{"/livez", "/version", "/api"} {
		if their, our := answer(t, servers[0], "GET", path, "", ""),
			answer(t, servers[1], "GET", path, "", ""); their != our {
			t.Errorf("%s without credentials\nreference: %s\nplinth:    %s", path, their, our)
		}
	}
}
