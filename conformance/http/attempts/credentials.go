package attempts

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"plinth/conformance/internal/authority"
	"plinth/conformance/internal/harness"
)

// credential is a way to authenticate, genuine or forged.
type credential struct {
	name    string
	headers []string // names and values
	cert    *tls.Certificate
	// all means that every URL is requested with it; otherwise a few that show whether it is accepted.
	all bool
	// is is the user that the credentials belong to; if it is "", only requests for public paths may succeed.
	is string
}

// The users of the rows.
const (
	team  = "somebody"                         // has a role in the namespace team
	robot = "system:serviceaccount:team:robot" // has no permissions
)

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

// headerTricks returns headers that have no meaning, or not the one that their sender intends.
func headerTricks() []credential {
	masters := "system:masters"
	admin := harness.AdminToken
	protocol := "base64url.bearer.authorization.k8s.io."
	encoded := func(token string) string { return base64.RawURLEncoding.EncodeToString([]byte(token)) }
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Version", "13",
		"Sec-Websocket-Key", "MDEyMzQ1Njc4OWFiY2RlZg=="}
	with := func(more ...string) []string { return append(append([]string{}, upgrade...), more...) }
	return []credential{
		{name: "a wrong token", headers: bearer("wrong")},
		{name: "no token behind Bearer", headers: []string{"Authorization", "Bearer"}},
		{name: "an empty token", headers: []string{"Authorization", "Bearer "}},
		{name: "two spaces", headers: []string{"Authorization", "Bearer  " + admin}},
		{name: "a tab", headers: []string{"Authorization", "Bearer\t" + admin}},
		{name: "a comma", headers: []string{"Authorization", "Bearer," + admin}},
		{name: "a comma behind", headers: []string{"Authorization", "Bearer " + admin + ","}},
		{name: "quotes", headers: []string{"Authorization", `Bearer "` + admin + `"`}},
		{name: "no scheme", headers: []string{"Authorization", admin}},
		{name: "another scheme", headers: []string{"Authorization", "Token " + admin}},
		{name: "a password", headers: []string{"Authorization",
			"Basic " + base64.StdEncoding.EncodeToString([]byte("admin:"+admin))}},
		{name: "a prefix of the token", headers: bearer(admin[:len(admin)-1])},
		{name: "the token and more", headers: bearer(admin + "x")},
		{name: "the token in another case", headers: bearer(strings.ToUpper(admin))},
		{name: "a very long token", headers: bearer(strings.Repeat("x", 100_000))},
		{name: "a wrong token, then the right one", headers: append(bearer("wrong"), bearer(admin)...)},
		{name: "another scheme, then the right token", headers: []string{"Authorization", "Basic x", "Authorization",
			"Bearer " + admin}},
		{name: "cookies", headers: []string{"Cookie", "token=" + admin + "; Authorization=Bearer " + admin +
			"; session=" + admin}},
		{name: "other headers for tokens", headers: []string{"X-Auth-Token", admin, "X-Access-Token", admin, "X-Api-Key",
			admin, "Proxy-Authorization", "Bearer " + admin, "Token", admin}},
		{name: "a proxy's headers", headers: []string{"X-Remote-User", "admin", "X-Remote-Group", masters, "X-Remote-Extra-A",
			"b", "X-Remote-Uid", "1"}},
		{name: "other proxies' headers", headers: []string{"X-Forwarded-User", "admin", "X-Forwarded-Groups", masters,
			"X-User", "admin", "Remote-User", "admin", "X-Forwarded-For", "127.0.0.1", "X-Real-Ip", "127.0.0.1", "Forwarded",
			"for=127.0.0.1"}},
		{name: "a certificate in a header", headers: []string{"X-Ssl-Client-Cert", "x", "X-Forwarded-Client-Cert",
			`Subject="O=system:masters,CN=admin"`, "Ssl-Client-Verify", "SUCCESS"}},
		{name: "another URL in headers", headers: []string{"X-Original-Url", "/healthz", "X-Rewrite-Url", "/healthz",
			"X-Forwarded-Prefix", "/healthz", "X-Http-Method-Override", "GET"}},
		{name: "impersonation of a master by nobody", headers: []string{"Impersonate-User", "admin",
			"Impersonate-Group", masters}},
		{name: "impersonation without a user by nobody", headers: []string{"Impersonate-Group", masters}},
		{name: "impersonation with a uid by nobody", headers: []string{"Impersonate-User", "admin", "Impersonate-Uid", "1"}},
		{name: "a WebSocket with a wrong token", headers: with("Sec-Websocket-Protocol",
			protocol+encoded("wrong")+", v4.channel.k8s.io")},
		{name: "a WebSocket with nothing but the token", headers: with("Sec-Websocket-Protocol", protocol+encoded(admin))},
		{name: "a WebSocket with the token twice", headers: with("Sec-Websocket-Protocol",
			protocol+encoded(admin)+", "+protocol+encoded(admin)+", a")},
		{name: "a WebSocket with a token that is not encoded", headers: with("Sec-Websocket-Protocol",
			protocol+admin+"!, a")},
		{name: "the token of a WebSocket without one", headers: []string{"Sec-Websocket-Protocol",
			protocol + encoded(admin) + ", a"}},
		{name: "a WebSocket", headers: with()},
		{name: "SPDY", headers: []string{"Connection", "Upgrade", "Upgrade", "SPDY/3.1"}},
		{name: "HTTP/2 by upgrade", headers: []string{"Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c",
			"Http2-Settings", "AAMAAABkAARAAAAAAAIAAAAA"}},
	}
}

// teamTricks returns the credentials of a user with few permissions, with such headers.
func teamTricks() []credential {
	own := bearer(harness.UserToken)
	with := func(more ...string) []string { return append(append([]string{}, own...), more...) }
	return []credential{
		{name: "the team: impersonation of a master", is: team,
			headers: with("Impersonate-User", "admin", "Impersonate-Group", "system:masters")},
		{name: "the team: impersonation of itself", is: team, headers: with("Impersonate-User", team)},
		{name: "the team: impersonation of a group", is: team, headers: with("Impersonate-Group", "system:masters")},
		{name: "the team: impersonation of a uid", is: team, headers: with("Impersonate-Uid", "1")},
		{name: "the team: impersonation of an extra", is: team, headers: with("Impersonate-Extra-Scopes", "all")},
		{name: "the team: impersonation of a service account", is: team, headers: with("Impersonate-User", robot)},
		{name: "the team: impersonation of a node", is: team, headers: with("Impersonate-User", "system:node:a",
			"Impersonate-Group", "system:nodes")},
		{name: "the team: impersonation of nobody", is: team, headers: with("Impersonate-User", "system:anonymous")},
		{name: "the team: a proxy's headers", is: team, headers: with("X-Remote-User", "admin", "X-Remote-Group",
			"system:masters")},
		{name: "the team: a second token", is: team, headers: with("Authorization", "Bearer "+harness.AdminToken)},
		{name: "the team: more behind the token", is: team, headers: []string{"Authorization",
			"Bearer " + harness.UserToken + " " + harness.AdminToken}},
	}
}

// certificates returns invalid certificates, and a valid one of the team.
func certificates(own *authority.Authority) ([]credential, error) {
	foreign, err := authority.New("the authority", time.Hour) // with the same name
	if err != nil {
		return nil, err
	}
	master := pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}
	var all []credential
	for _, c := range []struct {
		name, is string
		by       *authority.Authority
		subject  pkix.Name
		change   func(*x509.Certificate)
	}{
		{"the team's certificate", team, own, pkix.Name{CommonName: team}, nil},
		{"a certificate of another authority", "", foreign, master, nil},
		{"an expired certificate", "", own, master, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }},
		{"a certificate of tomorrow", "", own, master,
			func(c *x509.Certificate) { c.NotBefore = time.Now().Add(30 * time.Minute) }},
		{"a server's certificate", "", own, master,
			func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }},
		{"a certificate without a name", "", own, pkix.Name{Organization: []string{"system:masters"}}, nil},
	} {
		signed, err := c.by.Sign(c.subject, c.change)
		if err != nil {
			return nil, err
		}
		all = append(all, credential{name: c.name, is: c.is, cert: signed})
	}
	// The certificate of the authority is public; its key is not.
	stolen, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	self := &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: master, Issuer: own.Cert.Subject, NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, self, self, &stolen.PublicKey, stolen)
	if err != nil {
		return nil, err
	}
	return append(all,
		credential{name: "a certificate that has signed itself", cert: &tls.Certificate{Certificate: [][]byte{der},
			PrivateKey: stolen}},
		credential{name: "one that has signed itself, beside the authority's",
			cert: &tls.Certificate{Certificate: [][]byte{der, own.Cert.Raw}, PrivateKey: stolen}},
	), nil
}

// issuer is the service account issuer of both servers.
const issuer = "https://kubernetes.default.svc"

// jwt makes a token. Its signature is valid, whatever else is wrong with it, unless sign makes an invalid one.
func jwt(header, claims map[string]any, sign func(signed []byte) []byte) string {
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // impossible: a map of strings and numbers can be encoded
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := part(header) + "." + part(claims)
	return signed + "." + base64.RawURLEncoding.EncodeToString(sign([]byte(signed)))
}

// es256 signs as the algorithm of that name does.
func es256(key *ecdsa.PrivateKey) func([]byte) []byte {
	return func(signed []byte) []byte {
		sum := sha256.Sum256(signed)
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			panic(err) // impossible: the key has the right curve
		}
		out := make([]byte, 64)
		r.FillBytes(out[:32])
		s.FillBytes(out[32:])
		return out
	}
}

// signingKey is the key of service-account tokens in the folder of a server.
func signingKey(dir string) (*ecdsa.PrivateKey, []byte, error) {
	private, err := os.ReadFile(filepath.Join(dir, "sa.key"))
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(private)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, err
	}
	public, err := os.ReadFile(filepath.Join(dir, "sa.pub"))
	return key, public, err
}

// keyID is kube-apiserver's ID of a key: a hash of it.
func keyID(key crypto.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		panic(err) // impossible: the key has just been parsed
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// tokens returns tokens of the service account robot, which has this UID, and of service accounts that do not exist.
func tokens(key *ecdsa.PrivateKey, public []byte, uid string) ([]credential, error) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	header := map[string]any{"alg": "ES256", "kid": keyID(&key.PublicKey)}
	account := func(name, uid string) map[string]any {
		return map[string]any{"namespace": "team", "serviceaccount": map[string]any{"name": name, "uid": uid}}
	}
	claims := map[string]any{
		"iss": issuer, "aud": []string{issuer}, "sub": robot, "iat": now.Add(-time.Minute).Unix(),
		"nbf": now.Add(-time.Minute).Unix(),
		"exp": now.Add(time.Hour).Unix(), "jti": "00000000-0000-4000-8000-000000000000",
		"kubernetes.io": account("robot", uid),
	}
	with := func(of map[string]any, changes ...any) map[string]any {
		made := maps.Clone(of)
		for i := 0; i < len(changes); i += 2 {
			if made[changes[i].(string)] = changes[i+1]; changes[i+1] == nil {
				delete(made, changes[i].(string))
			}
		}
		return made
	}
	good := es256(key)
	hs256 := func(secret []byte) func([]byte) []byte {
		return func(signed []byte) []byte {
			mac := hmac.New(sha256.New, secret)
			mac.Write(signed)
			return mac.Sum(nil)
		}
	}
	block, _ := pem.Decode(public)
	none := func([]byte) []byte { return nil }
	admin := with(claims, "sub", "system:serviceaccount:kube-system:admin")
	valid := jwt(header, claims, good)
	parts := strings.Split(valid, ".")
	podOf := with(claims, "kubernetes.io", map[string]any{"namespace": "team",
		"serviceaccount": map[string]any{"name": "robot", "uid": uid}, "pod": map[string]any{"name": "gone", "uid": "1"}})
	var all []credential
	for _, c := range []struct{ name, is, token string }{
		{"a service account's token", robot, valid},
		{"an expired token", "", jwt(header, with(claims, "exp", now.Add(-10*time.Minute).Unix(), "nbf",
			now.Add(-time.Hour).Unix(), "iat", now.Add(-time.Hour).Unix()), good)},
		{"a token that expires before it is valid", "", jwt(header, with(claims, "exp", 1), good)},
		{"a token of tomorrow", "", jwt(header, with(claims, "nbf", now.Add(time.Hour).Unix()), good)},
		{"a token for another audience", "", jwt(header, with(claims, "aud", []string{"https://elsewhere"}), good)},
		{"a token for no audience", robot, jwt(header, with(claims, "aud", nil), good)},
		{"a token of another issuer", "", jwt(header, with(claims, "iss", "https://elsewhere"), good)},
		{"a token of no issuer", "", jwt(header, with(claims, "iss", nil), good)},
		{"a token of another key", "", jwt(header, claims, es256(other))},
		{"a token of another key that says which", "", jwt(with(header, "kid", keyID(&other.PublicKey)), claims,
			es256(other))},
		{"a token that brings its key", "", jwt(with(header, "kid", nil, "jwk", map[string]any{"kty": "EC", "crv": "P-256"}),
			claims, es256(other))},
		{"a token whose key is a file", "", jwt(with(header, "kid", "../../../../dev/null"), claims, hs256(nil))},
		{"alg none", "", jwt(with(header, "alg", "none"), claims, none)},
		{"alg None", "", jwt(with(header, "alg", "None"), claims, none)},
		{"alg none with a signature", "", jwt(with(header, "alg", "none"), claims, good)},
		{"alg none of another account", "", jwt(with(header, "alg", "none"), admin, none)},
		{"alg HS256 with the public key as its secret", "", jwt(with(header, "alg", "HS256"), claims, hs256(public))},
		{"alg HS256 with the public key in DER", "", jwt(with(header, "alg", "HS256"), claims, hs256(block.Bytes))},
		{"alg HS256 with an empty secret", "", jwt(with(header, "alg", "HS256"), claims, hs256(nil))},
		{"alg ES384", "", jwt(with(header, "alg", "ES384"), claims, good)},
		{"no signature", "", parts[0] + "." + parts[1] + "."},
		{"a signature of zeros", "", jwt(header, claims, func([]byte) []byte { return make([]byte, 64) })},
		{"the claims of another token", "", parts[0] + "." + strings.Split(jwt(header, admin, good), ".")[1] +
			"." + parts[2]},
		{"two parts", "", parts[0] + "." + parts[1]},
		{"four parts", "", valid + "." + parts[2]},
		{"an encrypted token", "", "eyJhbGciOiJkaXIiLCJlbmMiOiJBMTI4R0NNIn0...." + parts[2]},
		{"a token of an account that is not there", "", jwt(header,
			with(claims, "sub", "system:serviceaccount:team:gone", "kubernetes.io", account("gone", uid)), good)},
		{"a token of an account that has been made anew", "",
			jwt(header, with(claims, "kubernetes.io", account("robot", "00000000-0000-4000-8000-000000000009")), good)},
		{"a token that says two accounts", robot, jwt(header, with(claims, "sub", "system:serviceaccount:kube-system:admin"),
			good)},
		{"a token of a Pod that is gone", "", jwt(header, podOf, good)},
		{"a token without an account", "", jwt(header, with(claims, "kubernetes.io", nil), good)},
		{"a token without claims", "", jwt(header, map[string]any{}, good)},
	} {
		all = append(all, credential{name: c.name, is: c.is, headers: bearer(c.token)})
	}
	return all, nil
}
