package authentication

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	reference "k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"plinth/internal/access"
	"plinth/internal/auth/oidc"
	"plinth/internal/auth/oidc/issuertest"
)

// authority is a certificate authority in the reference's form.
type authority []byte

func (a authority) CurrentCABundleContent() []byte { return a }

// pair holds the two authenticators of one configuration.
type pair struct {
	theirs reference.AuthenticatorTokenWithHealthCheck
	ours   *oidc.Authenticators
}

// start makes both authenticators of a configuration with one issuer. algorithms are those of the reference's flag;
// without any, all are accepted.
func start(t *testing.T, i *issuertest.Issuer, text string, algorithms []string) *pair {
	t.Helper()
	their, err := theirs(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	our, err := ours(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if algorithms == nil {
		algorithms = reference.AllValidSigningAlgorithms()
	}
	p := &pair{}
	p.theirs, err = reference.New(t.Context(), reference.Options{
		JWTAuthenticator: their.JWT[0], CAContentProvider: authority(i.CA), SupportedSigningAlgs: algorithms,
		APIServerID: "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	p.ours, err = oidc.New(our, oidc.Config{Algorithms: algorithms, Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.ours.Close)
	p.ours.Start()
	for deadline := time.Now().Add(20 * time.Second); p.theirs.HealthCheck() != nil ||
		p.ours.Healthy() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(p.theirs.HealthCheck(), p.ours.Healthy())
		}
	}
	return p
}

var (
	aTime   = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4} \w+( m=\S+)?`)
	version = regexp.MustCompile(`go-jose/go-jose(/v\d)?`)
)

// ask authenticates a token with both.
func (p *pair) ask(ctx context.Context, token string) (their, our string) {
	describe := func(err error, known bool, u access.User) string {
		switch {
		case err != nil:
			return version.ReplaceAllString(aTime.ReplaceAllString(plain(err), "<time>"), "go-jose/go-jose")
		case !known:
			return "nobody"
		}
		var extra []string
		for _, key := range slices.Sorted(maps.Keys(u.Extra)) {
			extra = append(extra, fmt.Sprintf("%s=%q", key, u.Extra[key]))
		}
		return fmt.Sprintf("name %q, uid %q, groups %q, extra %s", u.Name, u.UID, u.Groups, extra)
	}
	response, known, err := p.theirs.AuthenticateToken(ctx, token)
	var u access.User
	if known {
		u = access.User{Name: response.User.GetName(), UID: response.User.GetUID(), Groups: response.User.GetGroups(),
			Extra: response.User.GetExtra()}
	}
	their = describe(err, known, u)
	id, err := p.ours.Token(ctx, token, nil)
	if u = (access.User{}); id != nil {
		u = id.User
	}
	return their, describe(err, id != nil, u)
}

// full returns the claims that expressions and conditions use.
func full() issuertest.Claims {
	return issuertest.Claims{
		"sub": "jane", "aud": "me", "email": "jane@example.com", "email_verified": true, "groups": []string{"devs", "ops"},
		"number": 3, "boolean": true,
		"nothing": nil, "jti": "id-1", "nested": map[string]any{
			"role": "boss", "list": []any{"a", "b"}, "deep": map[string]any{"deeper": "x"}, "example.com/role": "nested boss",
		},
		"example.com/role": "slashed boss", "list_of_maps": []any{map[string]any{"example.com/role": "listed boss",
			"name": "n"}},
	}
}

// sets returns claims of different forms.
func sets() []issuertest.Claims {
	all := []issuertest.Claims{full(), {"sub": "jane", "aud": "me"}, {"aud": "me"}}
	for name, values := range map[string][]any{
		"sub": {"", nil, 1, []string{"a"}, map[string]any{}, "system:admin", "ä", "a\u0000b",
			strings.Repeat("x", 3000)},
		"email":          {"", 1, "x", []string{"a"}},
		"email_verified": {false, "true", nil, 1, []string{"x"}},
		"groups": {"devs", "", []string{}, []string{""}, []any{1}, []any{"a", 1}, nil, 1, map[string]any{"a": 1},
			[][]string{{"a"}}, []any{nil, "a"}, true},
		"jti":    {"", 1, nil, "x"},
		"number": {0, -1.5, 1e30, "3", 9007199254740993},
		"nested": {"x", nil, []any{1}, map[string]any{}, map[string]any{"role": 1},
			map[string]any{"role": nil, "list": "x"}},
		"boolean":      {false, "x"},
		"list_of_maps": {[]any{}, []any{"x"}, "x"},
		"aud":          {"you", []string{"you", "me"}, []string{}, 1, "", []any{1}, map[string]any{}},
		"iat":          {"x", 0, time.Now().Add(time.Hour).Unix(), 1.5, nil, -1},
		"exp":          {0, -1, "x", 1e10, 1.5e10, time.Now().Add(-time.Second).Unix(), 1e300, false},
		"nbf": {0, "x", time.Now().Add(30 * time.Second).Unix(), time.Now().Add(90 * time.Second).Unix(), 1e10,
			1.5, 1e300},
		"nonce": {1, "x"}, "at_hash": {1, "x"}, "iss": {1, "https://other.example.com"},
		"_claim_names": {1, map[string]any{"groups": "src"}, map[string]any{"groups": ""}, map[string]any{"groups": 1},
			map[string]any{"other": "src"}},
		"_claim_sources": {1, map[string]any{"src": 1}, map[string]any{}},
	} {
		for _, value := range values {
			claims := full()
			if claims[name] = value; value == nil {
				delete(claims, name)
			}
			all = append(all, claims)
		}
	}
	for _, names := range []any{map[string]any{"groups": "src"}, map[string]any{"groups": "other"},
		map[string]any{"role": "src"}} {
		for _, source := range []any{map[string]any{}, map[string]any{"JWT": "x"}, map[string]any{"endpoint": ":"},
			map[string]any{"endpoint": "https://127.0.0.1:1/"}} {
			claims := full()
			delete(claims, "groups")
			claims["_claim_names"], claims["_claim_sources"] = names, map[string]any{"src": source}
			all = append(all, claims)
		}
	}
	return all
}

// hostile returns forged, malformed and unusual tokens, and a few valid ones among them.
func hostile(t *testing.T, i, other *issuertest.Issuer, also ...*issuertest.Key) []string {
	claims := full()
	claims["iss"], claims["exp"] = i.URL, time.Now().Add(time.Hour).Unix()
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	payload, key := string(text), i.Key()
	head := func(rest string) string { return fmt.Sprintf(`{"alg":"RS256","kid":%q%s}`, key.ID, rest) }
	good := key.Sign(t, "", payload)
	parts := strings.Split(good, ".")
	all := []string{
		good, "", ".", "..", "...", "a.b.c", good + ".", "." + good, good + "x", good[:len(good)-2],
		parts[0] + "." + parts[1] + ".", parts[0] + ".." + parts[2],
		"." + parts[1] + "." + parts[2], parts[0] + "." + parts[1], good + "=", " " + good, good + "\n",
		strings.Replace(good, ".", " .", 1), strings.ToUpper(good),
		"{" + good, `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		other.Key().Sign(t, "", payload),
		other.Key().Sign(t, head(""), payload),
	}
	for _, header := range []string{
		`{"alg":"none"}`, `{"alg":"None"}`, `{"alg":""}`, `{}`, `{"alg":"HS256"}`,
		fmt.Sprintf(`{"alg":"RS512","kid":%q}`, key.ID), fmt.Sprintf(`{"alg":"PS256","kid":%q}`, key.ID),
		fmt.Sprintf(`{"alg":"ES256","kid":%q}`, key.ID), `{"alg":"EdDSA"}`, `{"alg":"RS256"}`, `{"alg":"RS256","kid":""}`,
		`{"alg":"RS256","kid":"x"}`, `{"alg":"RS256","kid":1}`,
		`{"alg":1}`, `{"alg":null}`, `[]`, `null`, `1`, `x`, `{"alg":"RS256"`, head(`,"crit":["x"],"x":1`),
		head(`,"crit":["exp"]`), head(`,"crit":[]`), head(`,"b64":false,"crit":["b64"]`),
		head(`,"typ":"x"`), head(`,"jwk":{"kty":"RSA","n":"AQAB","e":"AQAB"}`), head(`,"jwk":1`), head(`,"x5c":["x"]`),
		head(`,"zip":"DEF"`), head(`,"cty":"JWT"`), head(`,"nonce":"x"`),
		head(`,"alg":"none"`), `{"alg":"RS256","kid":"` + strings.Repeat("x", 5000) + `"}`, head(`,"url":1`),
		head(`,"jku":"https://127.0.0.1:1/"`), head(`,"x5u":"https://127.0.0.1:1/"`),
	} {
		all = append(all, key.Sign(t, header, payload))
	}
	for _, p := range []string{
		`{}`, `[]`, `null`, `1`, `x`, ``, `{"iss":"` + i.URL + `"}`, `{"iss":"` + i.URL + `","iss":"x"}`,
		`{"iss":"x","iss":"` + i.URL + `"}`, `{"ISS":"` + i.URL + `"}`,
		strings.Replace(payload, `"sub":"jane"`, `"sub":"jane","sub":"joe"`, 1),
		strings.Replace(payload, `"sub"`, `"Sub"`, 1), payload + "x", payload[:len(payload)-1],
		strings.Replace(payload, `"aud"`, `"AUD"`, 1), strings.Replace(payload, `"exp"`, `"EXP"`, 1), " " + payload,
		strings.Replace(payload, `"jane"`, "\"\xff\"", 1),
		strings.Replace(payload, `"jane"`, `"\ud800"`, 1), `{"iss":"` + i.URL + `","a":` + strings.Repeat("[",
			11000) + strings.Repeat("]", 11000) + `}`,
	} {
		all = append(all, key.Sign(t, "", p))
	}
	for _, k := range also {
		all = append(all, k.Sign(t, "", payload))
	}
	return all
}

// malformed begins the error of both for a token whose header cannot be decoded. The rest of the text is the library's;
// the reference has another version, which reports less about bad JSON and about a header that is null.
const malformed = "oidc: verify token: oidc: malformed jwt: "

// unreadable says whether an error means that a header cannot be decoded, or names no algorithm.
func unreadable(said string) bool {
	return strings.HasPrefix(said, malformed) || strings.HasPrefix(said,
		"oidc: verify token: oidc: id token signed with unsupported algorithm") &&
		strings.HasSuffix(said, `got ""`)
}

// compared compares the results of both for a token.
func (p *pair) compared(t *testing.T, what string, token string) string {
	t.Helper()
	their, our := p.ask(t.Context(), token)
	if their == our || unreadable(their) && unreadable(our) {
		return our
	}
	head, payload, _ := strings.Cut(token, ".")
	t.Errorf("%s: %.60s.%.60s\nreference: %.600s\nplinth:    %.600s", what, head, payload, their, our)
	return our
}

func setUp(i *issuertest.Issuer, text string) string {
	ca, err := json.Marshal(string(i.CA))
	if err != nil {
		panic(err)
	}
	return strings.Replace(text, "    url: https://issuer.example.com\n", "    url: "+i.URL+"\n    certificateAuthority: "+
		string(ca)+"\n", 1)
}

// SPEC: AUTH-1
func TestTokensOfIssuers(t *testing.T) {
	i, other := issuertest.Start(t), issuertest.Start(t)
	first := i.Key()
	keys := []*issuertest.Key{first}
	for _, algorithm := range []string{"RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"} {
		keys = append(keys, i.NewKey(algorithm))
	}
	i.Use(keys...)
	somebody, nobody := 0, 0
	count := func(said string) {
		if strings.HasPrefix(said, "name") {
			somebody++
		} else {
			nobody++
		}
	}
	const byClaims = "username: {claim: sub, prefix: \"x:\"}\ngroups: {claim: groups, prefix: \"g:\"}\nuid: {claim: jti}"
	for _, text := range []string{
		good, mappings(byClaims), mappings("username: {claim: email, prefix: \"\"}\ngroups: {claim: nested, prefix: \"\"}"),
		mappings(byClaims +
			"\nextra:\n- {key: example.com/role, valueExpression: claims.nested.role}\n- {key: example.com/n, valueExpression: string(claims.number)}"),
		more(
			"claimValidationRules:\n- {claim: email, requiredValue: jane@example.com}\n- {expression: claims.boolean == true, message: refused}\n- {expression: \"claims.number > 1.0\"}"),
		mappings(
			"username: {expression: \"claims.email + (claims.email_verified ? '' : '?')\"}\ngroups: {expression: claims.groups}\nuid: {expression: claims.jti}") +
			indent(
				"userValidationRules:\n- {expression: \"!user.username.startsWith('system:')\", message: reserved}\n- {expression: \"user.groups.all(g, g != 'ops')\"}", 2),
		strings.Replace(good, "audiences: [me]", "audiences: [me, them]\n    audienceMatchPolicy: MatchAny", 1),
		mappings("username: {claim: \"\", expression: \"'fixed'\"}"),
	} {
		p := start(t, i, setUp(i, text), nil)
		for _, claims := range sets() {
			count(p.compared(t, text, i.Token(claims)))
		}
		for _, token := range hostile(t, i, other, keys...) {
			count(p.compared(t, text, token))
		}
	}
	p := start(t, i, setUp(i, good), []string{"RS256"})
	for _, token := range hostile(t, i, other, keys...) {
		count(p.compared(t, "RS256 alone", token))
	}
	if somebody < 200 || nobody < 400 {
		t.Errorf("only %d tokens were accepted and only %d refused", somebody, nobody)
	}
}

// The results of expressions, each over claims of every form.
//
// SPEC: AUTH-1
func TestExpressionsOverClaims(t *testing.T) {
	i := issuertest.Start(t)
	compared := 0
	forms := sets()
	for n, e := range expressions {
		quoted := "'" + strings.ReplaceAll(e, "'", "''") + "'"
		for _, text := range []string{
			mappings("username: {expression: " + quoted + "}"),
			mappings("username: {claim: aud, prefix: b}\ngroups: {expression: " + quoted + "}"),
			mappings("username: {claim: iss, prefix: \"\"}\nuid: {expression: " + quoted + "}"),
			mappings("username: {claim: iss, prefix: \"\"}\ngroups: {expression: " + quoted +
				"}\nextra:\n- {key: example.com/a, valueExpression: " + quoted + "}"),
			with("claim: sub", "claim: iss") + indent("claimValidationRules:\n- {expression: "+quoted+
				", message: \"must hold\"}", 2),
		} {
			if _, err := theirs(text); err != nil {
				continue
			}
			p := start(t, i, setUp(i, text), nil)
			for k, claims := range []issuertest.Claims{full(), forms[(n*7)%len(forms)], forms[(n*11+3)%len(forms)]} {
				p.compared(t, fmt.Sprintf("%s (%d)", e, k), i.Token(claims))
				compared++
			}
		}
	}
	for _, e := range conditions {
		text := with("    username: {claim: sub, prefix: \"x:\"}\n",
			indent("username: {claim: sub, prefix: \"\"}\ngroups: {claim: groups, prefix: \"\"}\n"+
				"extra:\n- {key: example.com/role, valueExpression: claims.nested.role}", 4)) +
			indent("userValidationRules:\n- {expression: '"+strings.ReplaceAll(e, "'", "''")+"', message: \"must hold\"}", 2)
		if _, err := theirs(text); err != nil {
			continue
		}
		p := start(t, i, setUp(i, text), nil)
		for _, claims := range []issuertest.Claims{full(), {"sub": "joe", "aud": "me",
			"nested": map[string]any{"role": ""}}} {
			p.compared(t, e, i.Token(claims))
			compared++
		}
	}
	if compared < 600 {
		t.Errorf("only %d results were compared", compared)
	}
}

// Distributed claims, which are fetched from another server.
//
// SPEC: AUTH-1
func TestDistributedClaims(t *testing.T) {
	i := issuertest.Start(t)
	p := start(t, i, setUp(i, mappings("username: {claim: sub, prefix: \"\"}\ngroups: {claim: groups, prefix: \"g:\"}")),
		nil)
	for path, text := range map[string]func() string{
		"/good":     func() string { return i.Token(issuertest.Claims{"aud": "me", "groups": []string{"a", "b"}}) },
		"/text":     func() string { return i.Token(issuertest.Claims{"aud": "me", "groups": "a"}) },
		"/number":   func() string { return i.Token(issuertest.Claims{"aud": "me", "groups": 1}) },
		"/none":     func() string { return i.Token(issuertest.Claims{"aud": "me"}) },
		"/audience": func() string { return i.Token(issuertest.Claims{"aud": "you", "groups": "a"}) },
		"/expired":  func() string { return i.Token(issuertest.Claims{"aud": "me", "exp": 1, "groups": "a"}) },
		"/stranger": func() string { return i.NewKey("RS256").Sign(t, "", `{"iss":"`+i.URL+`","aud":"me"}`) },
		"/nothing":  func() string { return "" }, "/garbage": func() string { return "x.y.z" },
		"/object": func() string { return "{}" },
	} {
		i.Handle(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text())) })
	}
	token := func(path string) string {
		return i.Token(issuertest.Claims{
			"sub": "jane", "aud": "me", "_claim_names": map[string]string{"groups": "src"},
			"_claim_sources": map[string]any{"src": map[string]string{"endpoint": i.URL + path}},
		})
	}
	p.compared(t, "before the issuer is known", token("/good"))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if their, our := p.ask(t.Context(), token("/good")); strings.HasPrefix(their, "name") &&
			strings.HasPrefix(our, "name") {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(their, our)
		}
	}
	for _, path := range []string{"/good", "/text", "/number", "/none", "/audience", "/expired", "/stranger", "/nothing",
		"/garbage", "/object", "/missing"} {
		p.compared(t, path, token(path))
	}
}
