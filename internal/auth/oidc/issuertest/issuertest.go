// Package issuertest is a small OpenID Connect issuer for tests: it listens on loopback with HTTPS, serves its
// discovery document and its keys, and signs tokens, good ones and bad ones.
//
// A server under test is configured with its URL and CA:
//
//	issuer := issuertest.Start(t)
//	… --oidc-issuer-url issuer.URL --oidc-ca-file (a file with issuer.CA) --oidc-client-id me …
//	token := issuer.Token(issuertest.Claims{"sub": "jane", "aud": "me"})
package issuertest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// The paths of the two documents.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	KeysPath      = "/keys"
)

// Claims are the claims of a token, by name.
type Claims map[string]any

// Key signs tokens with one algorithm.
type Key struct {
	ID        string
	Algorithm string // RS256, PS384, ES512 …
	Private   crypto.Signer
}

// Issuer is a running issuer.
type Issuer struct {
	URL string // its identity, and where it listens
	CA  []byte // the certificate that its clients verify it with, as PEM

	t    testing.TB
	http *httptest.Server

	mu       sync.Mutex
	keys     []*Key // the first one signs
	made     int
	handlers map[string]http.HandlerFunc
	asked    map[string]int // requests, by path
	client   *Client        // at which users sign in; nil: there is none
	grants   map[string]grant
}

// Start starts an issuer with one key, for RS256, and ends it with the test.
func Start(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, handlers: map[string]http.HandlerFunc{}, asked: map[string]int{}}
	i.handlers[DiscoveryPath], i.handlers[KeysPath] = i.discovery, i.keySet
	i.http = httptest.NewTLSServer(http.HandlerFunc(i.serve))
	t.Cleanup(i.http.Close)
	i.URL = i.http.URL
	i.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.http.Certificate().Raw})
	i.keys = []*Key{i.NewKey("RS256")}
	return i
}

// CAFile writes CA to a file of the test.
func (i *Issuer) CAFile() string {
	i.t.Helper()
	file := filepath.Join(i.t.TempDir(), "issuer.crt")
	if err := os.WriteFile(file, i.CA, 0o600); err != nil {
		i.t.Fatal(err)
	}
	return file
}

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.asked[r.URL.Path]++
	handler := i.handlers[r.URL.Path]
	i.mu.Unlock()
	if handler == nil {
		http.NotFound(w, r)
		return
	}
	handler(w, r)
}

// Handle makes handler serve a path, which may be that of a document. Nil: the path is not found.
func (i *Issuer) Handle(path string, handler http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers[path] = handler
}

// Asked returns how many requests for a path were received.
func (i *Issuer) Asked(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked[path]
}

func (i *Issuer) discovery(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write(i.Discovery(i.URL)) // the client is part of the test
}

// Discovery returns the discovery document of an issuer of this name, with the keys of this one.
func (i *Issuer) Discovery(issuer string) []byte {
	document := map[string]any{
		"issuer": issuer, "jwks_uri": i.URL + KeysPath, "response_types_supported": []string{"id_token"},
		"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256", "ES256"},
	}
	i.mu.Lock()
	if c := i.client; c != nil {
		document["authorization_endpoint"], document["token_endpoint"] = i.URL+AuthorizePath, i.URL+TokenPath
		document["authorization_response_iss_parameter_supported"] = c.Named
	}
	i.mu.Unlock()
	text, err := json.Marshal(document)
	if err != nil {
		i.t.Error(err)
	}
	return text
}

func (i *Issuer) keySet(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var set jose.JSONWebKeySet
	for _, k := range i.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Private.Public(), KeyID: k.ID, Algorithm: k.Algorithm, Use: "sig"})
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(set); err != nil {
		i.t.Error(err)
	}
}

// NewKey returns a key that is not published yet: see Use.
func (i *Issuer) NewKey(algorithm string) *Key {
	i.t.Helper()
	i.mu.Lock()
	i.made++
	k := &Key{ID: fmt.Sprintf("key-%d", i.made), Algorithm: algorithm}
	i.mu.Unlock()
	var err error
	switch algorithm {
	case "ES256":
		k.Private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ES384":
		k.Private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ES512":
		k.Private, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	default:
		k.Private, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		i.t.Fatal(err)
	}
	return k
}

// Use makes these the keys of the issuer. The first one signs.
func (i *Issuer) Use(keys ...*Key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = keys
}

// Rotate replaces the keys by a new one.
func (i *Issuer) Rotate() { i.Use(i.NewKey("RS256")) }

// Key returns the key that signs.
func (i *Issuer) Key() *Key {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[0]
}

// Token signs a token with these claims, and with iss, iat and exp (in an hour) unless they are among them. A claim
// that is nil is left out.
func (i *Issuer) Token(claims Claims) string {
	i.t.Helper()
	now := time.Now()
	all := Claims{"iss": i.URL, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	for name, value := range claims {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		i.t.Fatal(err)
	}
	return i.Key().Sign(i.t, "", string(text))
}

// Sign returns a token with a header and a payload, which need not be valid, signed with the key's algorithm. header ""
// is the right one for the key.
func (k *Key) Sign(t testing.TB, header, payload string) string {
	t.Helper()
	if header == "" {
		header = fmt.Sprintf(`{"alg":%q,"kid":%q}`, k.Algorithm, k.ID)
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(header)) + "." + encode([]byte(payload))
	hash := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}[k.Algorithm[2:]]
	digest := hash.New()
	digest.Write([]byte(text))
	var signature []byte
	var err error
	switch private := k.Private.(type) {
	case *ecdsa.PrivateKey:
		r, s, signErr := ecdsa.Sign(rand.Reader, private, digest.Sum(nil))
		if err = signErr; err == nil {
			size := (private.Params().BitSize + 7) / 8
			signature = slices.Concat(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size)))
		}
	default:
		var options crypto.SignerOpts = hash
		if strings.HasPrefix(k.Algorithm, "PS") {
			options = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
		}
		signature, err = k.Private.Sign(rand.Reader, digest.Sum(nil), options)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + encode(signature)
}
