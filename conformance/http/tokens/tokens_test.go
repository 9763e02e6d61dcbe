package tokens

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
)

const issuer = "https://kubernetes.default.svc"

// server is one of the two servers, with the UIDs of the objects that tokens are bound to.
type server struct {
	*harness.Server
	t    *testing.T
	name string
	uids map[string]string
	key  *ecdsa.PrivateKey
}

// both starts the reference, and Plinth with its key.
func both(t *testing.T, flags ...string) []*server {
	t.Helper()
	if !harness.WantReference() {
		t.Skip("CONFORMANCE_REFERENCE is not set")
	}
	all := servers(t, flags...)
	for _, s := range all {
		s.prepare()
	}
	return all
}

// servers starts both, without any objects.
func servers(t *testing.T, flags ...string) []*server {
	t.Helper()
	dir := t.TempDir()
	reference := harness.Run(t, harness.Options{Kind: harness.Reference, Dir: dir, Flags: flags})
	file := filepath.Join(dir, "sa.key")
	plinth := harness.Run(t, harness.Options{Kind: harness.Plinth, Flags: append([]string{
		"--service-account-key-file", filepath.Join(dir, "sa.pub"), "--service-account-signing-key-file", file,
		"--service-account-issuer", issuer,
	}, flags...)})
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return []*server{{reference, t, "reference", map[string]string{}, key},
		{plinth, t, "plinth", map[string]string{}, key}}
}

// prepare creates the objects that tokens are bound to.
func (s *server) prepare() {
	const u = "/api/v1/namespaces/u/"
	for _, o := range [][3]string{
		{"", "/api/v1/namespaces", `{"metadata":{"name":"u"}}`},
		{"account", u + "serviceaccounts", `{"metadata":{"name":"a"}}`},
		{"other", u + "serviceaccounts", `{"metadata":{"name":"b"}}`},
		{"node", "/api/v1/nodes", `{"metadata":{"name":"n"}}`},
		{"secret", u + "secrets", `{"metadata":{"name":"s"}}`},
		{"pod", u + "pods",
			`{"metadata":{"name":"p"},"spec":{"serviceAccountName":"a","nodeName":"n","containers":[{"name":"c","image":"i"}]}}`},
		{"free", u + "pods",
			`{"metadata":{"name":"free"},"spec":{"serviceAccountName":"a","containers":[{"name":"c","image":"i"}]}}`},
		{"lost", u + "pods",
			`{"metadata":{"name":"lost"},"spec":{"serviceAccountName":"a","nodeName":"gone","containers":[{"name":"c","image":"i"}]}}`},
		{"going", u + "pods",
			`{"metadata":{"name":"going","finalizers":["example.com/x"]},"spec":{"serviceAccountName":"a","containers":[{"name":"c","image":"i"}]}}`},
	} {
		code, body := s.do("POST", o[1], o[2], harness.AdminToken)
		if code != 201 {
			s.t.Fatalf("%s: %s: %d %s", s.name, o[2], code, body)
		}
		var made struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal(body, &made); err != nil {
			s.t.Fatal(err)
		}
		if o[0] != "" {
			s.uids[o[0]] = made.Metadata.UID
		}
	}
	if code, body := s.do("DELETE", u+"pods/going?gracePeriodSeconds=0", "", harness.AdminToken); code != 200 {
		s.t.Fatalf("%s: %d %s", s.name, code, body)
	}
}

func (s *server) do(method, path, body, token string) (int, []byte) {
	s.t.Helper()
	return s.doAs(method, path, body, token, "application/json")
}

// doAs is do with the media type of the body.
func (s *server) doAs(method, path, body, token, mediaType string) (int, []byte) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", mediaType)
	r.Header.Set("User-Agent", "tokens")
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := s.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if warnings := response.Header["Warning"]; len(warnings) > 0 {
		text = append(text, "\nWarning: "+strings.Join(warnings, "\nWarning: ")...)
	}
	return response.StatusCode, text
}

var (
	aToken = regexp.MustCompile(`ey[\w-]+\.[\w-]+\.[\w-]*`)
	aTime  = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	anID   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	number = regexp.MustCompile(`"(exp|iat|nbf|warnafter)":(\d+)`)
)

// plain returns a response without the parts that depend on the server and the time: tokens are replaced by their
// claims, times by seconds from now, in tens, and UIDs by names.
func (s *server) plain(text []byte) string {
	began := time.Now().Unix()
	away := func(at int64) string { return fmt.Sprintf("<%+d s>", (at-began+5*sign(at-began))/10*10) }
	out := aToken.ReplaceAllStringFunc(string(text), func(token string) string {
		parts := strings.Split(token, ".")
		head, _ := base64.RawURLEncoding.DecodeString(parts[0])
		claims, _ := base64.RawURLEncoding.DecodeString(parts[1])
		shown := fmt.Sprintf("<%s %s>", head, claims)
		return number.ReplaceAllStringFunc(shown, func(m string) string {
			var at int64
			name, text, _ := strings.Cut(m, ":")
			fmt.Sscan(text, &at)
			return name + ":" + away(at)
		})
	})
	out = aTime.ReplaceAllStringFunc(out, func(text string) string {
		at, _ := time.Parse(time.RFC3339, text)
		return away(at.Unix())
	})
	for name, uid := range s.uids {
		out = strings.ReplaceAll(out, uid, "<uid of "+name+">")
	}
	return anID.ReplaceAllString(out, "<id>")
}

func sign(n int64) int64 {
	if n < 0 {
		return -1
	}
	return 1
}

// sorted returns a JSON text with its members in order.
func sorted(t *testing.T, text []byte) []byte {
	t.Helper()
	body, rest, _ := bytes.Cut(text, []byte("\nWarning: "))
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(v); err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), rest...)
}

// compare compares the responses of both servers.
func compare(t *testing.T, what string, servers []*server, ask func(s *server) (int, []byte)) {
	t.Helper()
	var answers []string
	for _, s := range servers {
		code, body := ask(s)
		answers = append(answers, fmt.Sprintf("%d %s", code, s.plain(sorted(t, body))))
	}
	if answers[0] != answers[1] {
		t.Errorf("%s\nreference: %s\nplinth: %s", what, answers[0], answers[1])
	}
}

// SPEC: AUTH-2, URI-7
func TestTokenRequests(t *testing.T) {
	servers := both(t, "--service-account-max-token-expiration=2h")
	const path = "/api/v1/namespaces/u/serviceaccounts/a/token"
	bound := func(kind, name string) string {
		return fmt.Sprintf(`{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":%q,"name":%q}}}`, kind, name)
	}
	const hook = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","name":"x"}`
	compared := 0
	for _, body := range []string{
		`{}`, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"}`, `{"spec":{"x":1}}`,
		`{"metadata":{"name":"a","namespace":"u"}}`, `{"metadata":{"name":"b"}}`, `{"metadata":{"namespace":"v"}}`,
		`{"metadata":{"uid":"x"}}`,
		`{"metadata":{"labels":{"a":"b"},"creationTimestamp":"2020-01-01T00:00:00Z","resourceVersion":"5","generateName":"x"}}`,
		`{"status":{"token":"x"}}`, `{"spec":{"audiences":["q"]}}`, `{"spec":{"audiences":["q","r","q"]}}`,
		`{"spec":{"audiences":[""]}}`, `{"spec":{"audiences":[]}}`,
		`{"spec":{"audiences":["https://kubernetes.default.svc"],"expirationSeconds":600}}`, `{"spec":{"audiences":["<&>"]}}`,
		`{"spec":{"expirationSeconds":599}}`, `{"spec":{"expirationSeconds":-1}}`,
		`{"spec":{"expirationSeconds":4294967296}}`,
		`{"spec":{"expirationSeconds":4294967297}}`, `{"spec":{"expirationSeconds":"x"}}`,
		`{"spec":{"expirationSeconds":7201}}`, `{"spec":{"expirationSeconds":3607}}`,
		`{"spec":{"expirationSeconds":3607,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"p"}}}`,
		`{"spec":{"expirationSeconds":3607,"audiences":["x"],"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"p"}}}`,
		`{"spec":{"expirationSeconds":3607,"boundObjectRef":{"apiVersion":"v1","kind":"Secret","name":"s"}}}`,
		bound("Pod", "p"), bound("Pod", "free"), bound("Pod", "lost"), bound("Pod", "going"), bound("Pod", "x"),
		bound("Pod", ""), bound("Pod", "a/b"), bound("Pod", ".."),
		bound("Secret", "s"), bound("Secret", "x"), bound("Node", "n"), bound("Node", "x"), bound("ConfigMap", "x"),
		bound("pod", "p"), bound("", ""),
		`{"spec":{"boundObjectRef":{"kind":"Pod","name":"p"}}}`,
		`{"spec":{"boundObjectRef":{"apiVersion":"v7","kind":"Pod","name":"p"}}}`,
		`{"spec":{"boundObjectRef":{"apiVersion":"a/b/c","kind":"Pod","name":"p"}}}`,
		`{"spec":{"boundObjectRef":{"apiVersion":"/v1","kind":"Pod","name":"p"}}}`,
		`{"spec":{"boundObjectRef":{"apiVersion":"apps/v1","kind":"Pod","name":"p"}}}`,
		`{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"p","uid":"x"}}}`,
		`{"spec":{"boundObjectRef":{}}}`, `{"spec":{"boundObjectRef":{"apiVersion":"apps/v1","kind":"Foo"}}}`,
		`{"spec":{"attestations":{"a":["b"]}}}`, `{"spec":{"attestations":{}}}`,
		`{"spec":{"expirationSeconds":5,"attestations":{"a":["b"]}}}`,
		`{"spec":{"boundObjectRef":` + hook + `}}`, `{"spec":{"audiences":["x"],"boundObjectRef":` + hook +
			`,"attestations":{"a":["b"],"c":[]}}}`,
		`{"spec":{"audiences":["x"],"boundObjectRef":` + hook + `,"attestations":{"a":["b"]}}}`,
		`{"spec":{"audiences":["x"],"boundObjectRef":` + hook + `,"attestations":{"admissionReviewAPIGroups":["b","c"]}}}`,
		`{"spec":{"audiences":["x"],"boundObjectRef":` + hook + `,"attestations":{"admissionReviewAPIGroups":[""]}}}`,
		`{"spec":{"audiences":["x"],"boundObjectRef":` + hook + `,"attestations":{"admissionReviewAPIGroups":["A B"]}}}`,
		`{"spec":{"audiences":["x","y"],"boundObjectRef":` + hook + `,"attestations":{"admissionReviewAPIGroups":["*"]}}}`,
		`{"spec":{"audiences":["x"],"boundObjectRef":` + hook + `,"attestations":{"admissionReviewAPIGroups":["*"]}}}`,
	} {
		compare(t, body, servers, func(s *server) (int, []byte) { return s.do("POST", path, body, harness.AdminToken) })
		compared++
	}
	for _, r := range [][2]string{
		{"POST", "/api/v1/namespaces/u/serviceaccounts/x/token"}, {"POST", "/api/v1/namespaces/v/serviceaccounts/a/token"},
		{"GET", path}, {"PUT", path},
		{"DELETE", path}, {"PATCH", path}, {"POST", path + "?dryRun=All"}, {"POST", path + "?fieldManager=x"},
		{"POST", path + "/x"},
		{"POST", path + "?fieldValidation=Strict"},
	} {
		compare(t, r[0]+" "+r[1], servers, func(s *server) (int, []byte) {
			return s.do(r[0], r[1], `{"spec":{}}`,
				harness.AdminToken)
		})
		compared++
	}
	if compared < 60 {
		t.Errorf("only %d requests were compared", compared)
	}
	for _, document := range []string{"/openid/v1/jwks", "/.well-known/openid-configuration"} {
		address := regexp.MustCompile(`https://[\d.]+:\d+`)
		compare(t, document, servers, func(s *server) (int, []byte) {
			code, body := s.do("GET", document, "", harness.AdminToken)
			return code, address.ReplaceAll(body, []byte("https://here"))
		})
	}
}

// made is a token that the test signs.
type made struct {
	name      string
	head      string // "" for ES256 with the name of the key
	claims    string // $NAME is the UID of an object, @N are N seconds from now
	audiences string // of the review, as JSON
	foreign   bool   // signed by another key
	edit      func(token string) string
}

// SPEC: AUTH-1, AUTH-2
func TestTokenReviews(t *testing.T) {
	servers := both(t)
	account := `"kubernetes.io":{"namespace":"u","serviceaccount":{"name":"a","uid":"$account"}`
	const times = `"exp":@600,"iat":@0,"nbf":@0`
	const who = `"iss":"` + issuer + `","sub":"system:serviceaccount:u:a"`
	const here = `"aud":["` + issuer + `"]`
	good := `{` + who + `,` + here + `,` + times + `,` + account + `}}`
	with := func(more string) string {
		return `{` + who + `,` + here + `,` + times + `,` + account + `,` + more + `}}`
	}
	legacy := func(secret string) string {
		return `{"iss":"kubernetes/serviceaccount","sub":"system:serviceaccount:u:a","kubernetes.io/serviceaccount/namespace":"u",
"kubernetes.io/serviceaccount/secret.name":"` + secret + `","kubernetes.io/serviceaccount/service-account.name":"a","kubernetes.io/serviceaccount/service-account.uid":"$account"}`
	}
	part := func(i int, change func(string) string) func(string) string {
		return func(token string) string {
			parts := strings.Split(token, ".")
			parts[i] = change(parts[i])
			return strings.Join(parts, ".")
		}
	}
	cases := []made{
		{name: "good", claims: good},
		{name: "two audiences", claims: strings.Replace(good, here, `"aud":["x","`+issuer+`"]`, 1)},
		{name: "one audience as a text", claims: strings.Replace(good, here, `"aud":"`+issuer+`"`, 1)},
		{name: "an audience that is no text", claims: strings.Replace(good, here, `"aud":[1]`, 1)},
		{name: "another audience", claims: strings.Replace(good, here, `"aud":["x"]`, 1)},
		{name: "another audience, asked for", claims: strings.Replace(good, here, `"aud":["x"]`, 1), audiences: `["y","x"]`},
		{name: "several asked for", claims: strings.Replace(good, here, `"aud":["x","y"]`, 1),
			audiences: `["y","x","z","y"]`},
		{name: "none", claims: strings.Replace(good, here+",", ``, 1)},
		{name: "none, and another asked for", claims: strings.Replace(good, here+",", ``, 1), audiences: `["x"]`},
		{name: "null", claims: strings.Replace(good, here, `"aud":null`, 1)},
		{name: "an empty one asked for", claims: good, audiences: `[""]`},
		{name: "expired", claims: strings.Replace(good, `"exp":@600`, `"exp":@-70`, 1)},
		{name: "about to expire", claims: strings.Replace(good, `"exp":@600`, `"exp":@-50`, 1)},
		{name: "not yet valid", claims: strings.Replace(good, `"nbf":@0`, `"nbf":@70`, 1)},
		{name: "almost valid", claims: strings.Replace(good, `"nbf":@0`, `"nbf":@50`, 1)},
		{name: "issued in the future", claims: strings.Replace(good, `"iat":@0`, `"iat":@70`, 1)},
		{name: "without times", claims: strings.Replace(good, times+",", ``, 1)},
		{name: "times as floats", claims: strings.Replace(good, `"exp":@600`, `"exp":@600.5`, 1)},
		{name: "times as texts", claims: strings.Replace(good, `"exp":@600`, `"exp":"@600"`, 1)},
		{name: "an ID", claims: strings.Replace(good, here, here+`,"jti":"x"`, 1)},
		{name: "a Pod", claims: with(`"pod":{"name":"p","uid":"$pod"}`)},
		{name: "a Pod and its Node", claims: with(`"pod":{"name":"p","uid":"$pod"},"node":{"name":"n","uid":"$node"}`)},
		{name: "a Pod and another Node", claims: with(`"pod":{"name":"p","uid":"$pod"},"node":{"name":"x"}`)},
		{name: "another Pod of this name", claims: with(`"pod":{"name":"p","uid":"x"}`)},
		{name: "no such Pod", claims: with(`"pod":{"name":"x","uid":"x"}`)},
		{name: "a Pod without a name", claims: with(`"pod":{}`)},
		{name: "a Pod that has just been deleted", claims: with(`"pod":{"name":"going","uid":"$going"}`)},
		{name: "a Secret", claims: with(`"secret":{"name":"s","uid":"$secret"}`)},
		{name: "another Secret of this name", claims: with(`"secret":{"name":"s","uid":"x"}`)},
		{name: "no such Secret", claims: with(`"secret":{"name":"x","uid":"x"}`)},
		{name: "a Node", claims: with(`"node":{"name":"n","uid":"$node"}`)},
		{name: "another Node of this name", claims: with(`"node":{"name":"n","uid":"x"}`)},
		{name: "no such Node", claims: with(`"node":{"name":"x"}`)},
		{name: "everything",
			claims: with(
				`"pod":{"name":"p","uid":"$pod"},"secret":{"name":"s","uid":"$secret"},"node":{"name":"n","uid":"$node"}`)},
		{name: "a webhook", claims: with(`"validatingwebhookconfiguration":{"name":"x","uid":"x"}`)},
		{name: "a Pod and a webhook",
			claims: with(`"pod":{"name":"p","uid":"$pod"},"mutatingwebhookconfiguration":{"name":"x","uid":"x"}`)},
		{name: "a null Pod", claims: with(`"pod":null`)},
		{name: "stale", claims: with(`"warnafter":@-100`)},
		{name: "soon stale", claims: with(`"warnafter":@100`)},
		{name: "another account of this name", claims: strings.Replace(good, "$account", "x", 1)},
		{name: "another account's UID", claims: strings.Replace(good, "$account", "$other", 1)},
		{name: "no such account", claims: strings.Replace(good, `"name":"a"`, `"name":"x"`, 1)},
		{name: "no account", claims: `{` + who + `,` + here + `,` + times + `}`},
		{name: "null as the account", claims: `{` + who + `,` + here + `,` + times + `,"kubernetes.io":null}`},
		{name: "a text as the account", claims: `{` + who + `,` + here + `,` + times + `,"kubernetes.io":"x"}`},
		{name: "another namespace", claims: strings.Replace(good, `"namespace":"u"`, `"namespace":"default"`, 1)},
		{name: "another subject", claims: strings.Replace(good, "u:a", "u:b", 1)},
		{name: "another issuer", claims: strings.Replace(good, issuer, "https://example.com", 1)},
		{name: "no issuer", claims: strings.Replace(good, `"iss":"`+issuer+`",`, ``, 1)},
		{name: "the issuer twice", claims: strings.Replace(good, `{"iss"`, `{"iss":"x","iss"`, 1)},
		{name: "the issuer in capitals", claims: strings.Replace(good, `"iss"`, `"ISS"`, 1)},
		{name: "the account in capitals", claims: strings.Replace(good, `"kubernetes.io"`, `"Kubernetes.io"`, 1)},
		{name: "no JSON", claims: `x`}, {name: "a list", claims: `[]`}, {name: "null as claims", claims: `null`},
		{name: "nothing", claims: ``},
		{name: "legacy", claims: legacy("s")}, {name: "legacy of no Secret", claims: legacy("x")},
		{name: "legacy, for others", claims: legacy("s"), audiences: `["x"]`},
		{name: "legacy without a Secret", claims: legacy("")},
		{name: "legacy of another subject", claims: strings.Replace(legacy("s"), "u:a", "u:b", 1)},
		{name: "legacy of a bad subject", claims: strings.Replace(legacy("s"), "system:serviceaccount:u:a", "a", 1)},
		{name: "legacy without anything", claims: `{"iss":"kubernetes/serviceaccount"}`},
		{name: "legacy with a subject", claims: `{"iss":"kubernetes/serviceaccount","sub":"system:serviceaccount:u:a"}`},
		{name: "legacy with the claims of another", claims: strings.Replace(good, issuer, "kubernetes/serviceaccount", 1)},
		{name: "another key", claims: good, foreign: true},
		{name: "another key without a name", head: `{"alg":"ES256"}`, claims: good, foreign: true},
		{name: "no name of the key", head: `{"alg":"ES256"}`, claims: good},
		{name: "another name of the key", head: `{"alg":"ES256","kid":"x"}`, claims: good},
		{name: "an empty name of the key", head: `{"alg":"ES256","kid":""}`, claims: good},
		{name: "a type", head: `{"alg":"ES256","typ":"JWT"}`, claims: good},
		{name: "another type", head: `{"alg":"ES256","typ":"x"}`, claims: good},
		{name: "a critical extension", head: `{"alg":"ES256","crit":["x"],"x":1}`, claims: good},
		{name: "an unencoded payload", head: `{"alg":"ES256","b64":false,"crit":["b64"]}`, claims: good},
		{name: "a nonce", head: `{"alg":"ES256","nonce":"x"}`, claims: good},
		{name: "a head that is no JSON", head: `x`, claims: good},
		{name: "a signature cut short", claims: good, edit: part(2, func(s string) string { return s[:len(s)-2] })},
		{name: "a signature changed", claims: good, edit: part(2, func(s string) string { return "AAAA" + s[4:] })},
		{name: "no signature", claims: good, edit: part(2, func(string) string { return "" })},
		{name: "padding", claims: good, edit: part(2, func(s string) string { return s + "==" })},
		{name: "claims with padding", claims: good, edit: part(1, func(s string) string { return s + "=" })},
		{name: "two parts", claims: good, edit: func(s string) string { return s[:strings.LastIndex(s, ".")] }},
		{name: "four parts", claims: good, edit: func(s string) string { return s + ".x" }},
		{name: "five parts", claims: good, edit: func(s string) string { return s + ".x.y" }},
		{name: "a blank in front", claims: good, edit: func(s string) string { return " " + s }},
		{name: "a blank behind", claims: good, edit: func(s string) string { return s + " " }},
		{name: "a line break", claims: good, edit: func(s string) string { return s + `\n` }},
		{name: "a tab", claims: good, edit: func(s string) string { return `\t` + s }},
		{name: "a static one", claims: good, edit: func(string) string { return harness.UserToken }},
		{name: "a static one for others", claims: good, edit: func(string) string { return harness.UserToken },
			audiences: `["x"]`},
		{name: "a static one for this and others", claims: good, edit: func(string) string { return harness.UserToken },
			audiences: `["x","` + issuer + `"]`},
		{name: "one that is nobody's", claims: good, edit: func(string) string { return "x" }},
		{name: "no text", claims: good, edit: func(string) string { return "" }},
		{name: "a bootstrap token", claims: good, edit: func(string) string { return "abcdef.0123456789abcdef" }},
	}
	for _, alg := range []string{"none", "None", "HS256", "RS256", "PS256", "ES384", "ES512", "EdDSA", "dir",
		"", "es256"} {
		cases = append(cases, made{name: "alg " + alg, head: `{"alg":"` + alg + `"}`, claims: good},
			made{name: "alg " + alg + " without a signature", head: `{"alg":"` + alg + `"}`, claims: good,
				edit: part(2, func(string) string { return "" })})
	}
	if len(cases) < 100 {
		t.Errorf("only %d tokens are compared", len(cases))
	}
	another, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for _, c := range cases {
		sign := func(s *server) string { return s.sign(c, another) }
		compare(t, "TokenReview of "+c.name, servers, func(s *server) (int, []byte) {
			spec := `"token":"` + sign(s) + `"`
			if c.audiences != "" {
				spec += `,"audiences":` + c.audiences
			}
			code, body := s.do("POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{`+spec+`}}`, harness.AdminToken)
			if bytes.Contains(body, []byte(`"authenticated": true`)) || bytes.Contains(body, []byte(`"authenticated":true`)) {
				known++
			}
			return code, withoutToken(body)
		})
		if c.audiences != "" || strings.ContainsAny(sign(servers[0]), `\ `) || sign(servers[0]) == "" {
			continue
		}
		compare(t, "a request with "+c.name, servers, func(s *server) (int, []byte) {
			return s.do("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`, sign(s))
		})
	}
	if known < 2*20 || known > len(cases) {
		t.Errorf("the two servers accept a token %d times in total", known)
	}
}

// withoutToken removes the token from a review's body, as it differs between servers.
func withoutToken(body []byte) []byte {
	return regexp.MustCompile(`"token": ?"[^"]*"`).ReplaceAll(body, []byte(`"token":""`))
}

func (s *server) sign(c made, another *ecdsa.PrivateKey) string {
	claims := c.claims
	for name, uid := range s.uids {
		claims = strings.ReplaceAll(claims, "$"+name, uid)
	}
	claims = regexp.MustCompile(`@(-?\d+)`).ReplaceAllStringFunc(claims, func(m string) string {
		var n int64
		fmt.Sscan(m[1:], &n)
		return fmt.Sprint(time.Now().Unix() + n)
	})
	head := c.head
	if head == "" {
		der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
		if err != nil {
			s.t.Fatal(err)
		}
		hash := sha256.Sum256(der)
		head = `{"alg":"ES256","kid":"` + base64.RawURLEncoding.EncodeToString(hash[:]) + `"}`
	}
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64([]byte(head)) + "." + b64([]byte(claims))
	key := s.key
	if c.foreign {
		key = another
	}
	hash := sha256.Sum256([]byte(text))
	r, v, err := ecdsa.Sign(rand.Reader, key, hash[:])
	if err != nil {
		s.t.Fatal(err)
	}
	token := text + "." + b64(slices.Concat(r.FillBytes(make([]byte, 32)), v.FillBytes(make([]byte, 32))))
	if c.edit != nil {
		token = c.edit(token)
	}
	return token
}

// Each server accepts the other's signatures: it refuses a token only because its account has another UID here.
//
// SPEC: AUTH-2
func TestTokensOfEachOther(t *testing.T) {
	servers := both(t)
	for i, s := range servers {
		code, body := s.do("POST", "/api/v1/namespaces/u/serviceaccounts/a/token", `{}`, harness.AdminToken)
		var answer struct{ Status struct{ Token string } }
		if err := json.Unmarshal(body, &answer); err != nil || code != 201 {
			t.Fatalf("%s: %d %v", s.name, code, err)
		}
		other := servers[1-i]
		_, review := other.do("POST", "/apis/authentication.k8s.io/v1/tokenreviews",
			`{"spec":{"token":"`+answer.Status.Token+`"}}`, harness.AdminToken)
		if want := "service account UID (" + other.uids["account"] + ") does not match claim (" + s.uids["account"] +
			")"; !bytes.Contains(review, []byte(want)) {
			t.Errorf("%s says of a token of %s: %s", other.name, s.name, review)
		}
		if _, own := s.do("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`,
			answer.Status.Token); !bytes.Contains(own, []byte("system:serviceaccount:u:a")) {
			t.Errorf("%s does not know its own: %s", s.name, own)
		}
	}
}
