package tokens

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"plinth/conformance/internal/harness"
	"plinth/internal/auth/externaljwt/signertest"
)

// withSigner starts both servers with the same external signer, whose keys they fetch every second.
func withSigner(t *testing.T) (*signertest.Signer, []*server) {
	t.Helper()
	if !harness.WantReference() {
		t.Skip("CONFORMANCE_REFERENCE is not set")
	}
	program := signertest.New(t)
	program.Set(func(s *signertest.State) { s.RefreshSeconds = 1 })
	program.Start(t)
	var all []*server
	for _, kind := range []harness.Kind{harness.Reference, harness.Plinth} {
		s := &server{harness.Run(t, harness.Options{Kind: kind, Flags: signedBy(kind, program)}), t, string(kind),
			map[string]string{}, nil}
		s.prepare()
		all = append(all, s)
	}
	return program, all
}

// signedBy are the flags of a server with a signer. The reference has an issuer already.
func signedBy(kind harness.Kind, program *signertest.Signer) []string {
	flags := []string{"--service-account-signing-endpoint=" + program.Socket}
	if kind == harness.Plinth {
		flags = append(flags, "--service-account-issuer="+issuer)
	}
	return flags
}

// fetched waits until both servers have asked for the keys again after a change.
func (s *server) fetched(want string) {
	s.t.Helper()
	var keys string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		_, body := s.do("GET", "/openid/v1/jwks", "", harness.AdminToken)
		var ids []string
		for _, m := range regexp.MustCompile(`"kid":"([^"]*)"`).FindAllSubmatch(body, -1) {
			ids = append(ids, string(m[1]))
		}
		if keys = strings.Join(ids, " "); keys == want {
			return
		}
	}
	s.t.Fatalf("%s publishes the keys %s, not %s", s.name, keys, want)
}

// token requests a token.
func (s *server) token() string {
	s.t.Helper()
	code, body := s.do("POST", "/api/v1/namespaces/u/serviceaccounts/a/token", `{}`, harness.AdminToken)
	if code != http.StatusCreated {
		s.t.Fatalf("%s: %d %s", s.name, code, body)
	}
	return string(aToken.Find(body))
}

// Both servers have the same signer, and answer alike whatever it does; each accepts the tokens of the other.
//
// SPEC: AUTH-2, AUTH-9
func TestExternalSigner(t *testing.T) {
	program, servers := withSigner(t)
	const path = "/api/v1/namespaces/u/serviceaccounts/a/token"
	ask := func(what, path, body string) {
		t.Helper()
		compare(t, what, servers, func(s *server) (int, []byte) { return s.do("POST", path, body, harness.AdminToken) })
	}
	review := func(what string, token func(*server) string) {
		t.Helper()
		compare(t, what, servers, func(s *server) (int, []byte) {
			code, body := s.do("POST", "/apis/authentication.k8s.io/v1/tokenreviews",
				`{"spec":{"token":"`+token(s)+`"}}`, harness.AdminToken)
			return code, withoutToken(body)
		})
	}
	documents := func(what string) {
		t.Helper()
		address := regexp.MustCompile(`https://[\d.]+:\d+`)
		for _, document := range []string{"/openid/v1/jwks", "/.well-known/openid-configuration"} {
			compare(t, what+": "+document, servers, func(s *server) (int, []byte) {
				code, body := s.do("GET", document, "", harness.AdminToken)
				return code, address.ReplaceAll(body, []byte("https://here"))
			})
		}
	}
	for _, body := range []string{`{}`, `{"spec":{"expirationSeconds":86401}}`, `{"spec":{"expirationSeconds":3607}}`,
		`{"spec":{"expirationSeconds":3607,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"p"}}}`,
		`{"spec":{"audiences":["x"],"boundObjectRef":{"apiVersion":"v1","kind":"Secret","name":"s"}}}`} {
		ask(body, path, body)
	}
	documents("one key")
	before := map[*server]string{}
	for _, s := range servers {
		before[s] = s.token()
	}
	review("a token of the first key", func(s *server) string { return before[s] })
	for i, s := range servers {
		_, text := servers[1-i].do("POST", "/apis/authentication.k8s.io/v1/tokenreviews",
			`{"spec":{"token":"`+before[s]+`"}}`, harness.AdminToken)
		if want := "does not match claim (" + s.uids["account"] + ")"; !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s says of a token of %s: %s", servers[1-i].name, s.name, text)
		}
	}
	valid := program.State()
	compared := 0
	for name, change := range headers {
		program.Set(change)
		ask(name, path, `{}`)
		program.Set(func(s *signertest.State) { *s = valid })
		compared++
	}
	if compared < 15 {
		t.Errorf("only %d answers of the signer were compared", compared)
	}

	program.Set(func(s *signertest.State) { s.KeyID, s.Keys = "unknown", []string{"key-1"} })
	ask("a token of a key that is not known", path, `{}`)
	review("a token of a key that is not known", (*server).token)
	program.Set(func(s *signertest.State) {
		s.KeyID, s.Keys, s.Unpublished = "key-2", []string{"key-2", "old"}, map[string]bool{"old": true}
	})
	review("a token of a new key", (*server).token)
	for _, s := range servers {
		s.fetched("key-2")
	}
	documents("another key, and one that is excluded")
	// The reference caches that a token is valid for ten seconds.
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		_, text := servers[0].do("POST", "/apis/authentication.k8s.io/v1/tokenreviews",
			`{"spec":{"token":"`+before[servers[0]]+`"}}`, harness.AdminToken)
		if bytes.Contains(text, []byte(`no keys found`)) {
			break
		}
	}
	review("a token of a key that is gone", func(s *server) string { return before[s] })
	program.Set(func(s *signertest.State) { s.Unpublished = map[string]bool{"old": true, "key-2": true} })
	ask("a key that has become unpublished", path, `{}`)
	program.Set(func(s *signertest.State) { s.Unpublished = nil })
	for _, s := range servers {
		s.fetched("key-2 old")
		before[s] = s.token()
	}
	compareMetrics(t, servers)
	program.Stop()
	review("a token while the signer is away", func(s *server) string { return before[s] })
	compare(t, "a token is asked for while the signer is away", servers, func(s *server) (int, []byte) {
		code, body := s.do("POST", path+"?timeout=2s", `{}`, harness.AdminToken)
		return code, regexp.MustCompile(`"(kind|apiVersion)":"\w+",`).ReplaceAll(body, nil) // not there in the reference
	})
	documents("while the signer is away")
	program.Start(t)
	for _, s := range servers {
		for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			code, body := s.do("POST", path, `{}`, harness.AdminToken)
			if code == http.StatusCreated {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: the signer is back, and %d %s", s.name, code, body)
			}
		}
	}
}

// headers are answers of a signer that are not valid, or whose validity is a question.
var headers = map[string]func(*signertest.State){
	"order":     header(`{"typ":"JWT","kid":"key-1","alg":"ES384"}`),
	"capitals":  header(`{"ALG":"ES256","Kid":"key-1","TYP":"JWT"}`),
	"twice":     header(`{"alg":"none","alg":"ES256","kid":"key-1","typ":"JWT"}`),
	"more text": header(`{"alg":"ES256","kid":"key-1","typ":"JWT"} {`),
	"no type":   header(`{"alg":"ES256","kid":"key-1"}`),
	"type":      header(`{"alg":"ES256","kid":"key-1","typ":"jwt"}`),
	"no key":    header(`{"alg":"ES256","typ":"JWT"}`),
	"long key":  header(`{"alg":"ES256","typ":"JWT","kid":"` + strings.Repeat("k", 1025) + `"}`),
	"member":    header(`{"alg":"ES256","kid":"key-1","typ":"JWT","jku":"https://x"}`),
	"no alg":    header(`{"kid":"key-1","typ":"JWT"}`),
	"none":      header(`{"alg":"none","kid":"key-1","typ":"JWT"}`),
	"HS256":     header(`{"alg":"HS256","kid":"key-1","typ":"JWT"}`),
	"PS256":     header(`{"alg":"PS256","kid":"key-1","typ":"JWT"}`),
	"number":    header(`{"alg":"ES256","kid":1,"typ":"JWT"}`),
	"null":      header(`null`),
	"no JSON":   header(`{`),
	"padding":   func(s *signertest.State) { s.RawHeader = "e30=" },
	"signature": func(s *signertest.State) { s.NoSignature = true },
	"error": func(s *signertest.State) {
		s.Fail = map[string]error{"Sign": status.Error(codes.PermissionDenied, "not now")}
	},
	"canceled": func(s *signertest.State) {
		s.Fail = map[string]error{"Sign": status.Error(codes.DeadlineExceeded, "late")}
	},
}

func header(text string) func(*signertest.State) {
	return func(s *signertest.State) { s.Header = text }
}

// compareMetrics compares which metrics of the signer there are, with their labels.
func compareMetrics(t *testing.T, servers []*server) {
	t.Helper()
	var have [2][]string
	for i, s := range servers {
		_, body := s.do("GET", "/metrics", "", harness.AdminToken)
		for line := range strings.SplitSeq(string(body), "\n") {
			if name, _, ok := strings.Cut(line, "} "); ok && strings.HasPrefix(name, "apiserver_externaljwt_") {
				have[i] = append(have[i], name+"}")
			} else if name, _, ok := strings.Cut(line, " "); ok && strings.HasPrefix(name, "apiserver_externaljwt_") {
				have[i] = append(have[i], name)
			}
		}
	}
	if !slices.Equal(have[0], have[1]) || len(have[0]) < 20 {
		t.Errorf("metrics:\nreference: %s\nplinth: %s", strings.Join(have[0], "\n"), strings.Join(have[1], "\n"))
	}
}

// Both servers refuse the same settings, with the same words.
//
// SPEC: AUTH-9
func TestStartsWithExternalSigners(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("CONFORMANCE_REFERENCE is not set")
	}
	for name, c := range map[string]struct {
		want   string
		flags  []string
		change func(*signertest.State)
	}{
		"signing key": {"service-account-signing-key-file and service-account-signing-endpoint are mutually exclusive and " +
			"cannot be set at the same time", []string{"--service-account-signing-key-file=sa.key"}, nil},
		"keys": {"can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with " +
			"`--service-account-signing-endpoint` (They are mutually exclusive)",
			[]string{"--service-account-key-file=sa.pub"}, nil},
		"longer": {"service-account-max-token-expiration cannot be set longer than the token expiration supported by " +
			"service-account-signing-endpoint: 25h0m0s > 24h0m0s",
			[]string{"--service-account-max-token-expiration=25h"}, nil},
		"short": {"while setting up external-jwt-signer", nil, func(s *signertest.State) {
			s.Fail = map[string]error{"Metadata": status.Error(codes.Internal, "no")}
		}},
		"minimum": {"max token life supported by external-jwt-signer (599s) is less than acceptable (min 600s)", nil,
			func(s *signertest.State) { s.MaxSeconds = 599 }},
		"no keys": {"while setting up external-jwt-signer: while initially filling key cache: while performing initial " +
			"cache fill: while fetching token verification keys: found no keys", nil,
			func(s *signertest.State) { s.Keys = []string{} }},
	} {
		program := signertest.New(t)
		if c.change != nil {
			program.Set(c.change)
		}
		program.Start(t)
		for _, kind := range []harness.Kind{harness.Reference, harness.Plinth} {
			s, err := harness.Start(harness.Options{Kind: kind, Dir: t.TempDir(),
				Flags: append(signedBy(kind, program), c.flags...)})
			if err == nil {
				s.Kill()
			}
			if text := fmt.Sprint(err); !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), c.want) {
				t.Errorf("%s: %s ends with %s", name, kind, text)
			}
		}
	}
}
