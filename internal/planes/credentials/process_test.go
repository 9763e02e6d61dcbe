package credentials

import (
	"bufio"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/addresses"
	"plinth/internal/auth"
	"plinth/internal/auth/serviceaccount"
	"plinth/internal/authz"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/initial"
	"plinth/internal/nodes"
	"plinth/internal/pki"
	"plinth/internal/plane"
	"plinth/internal/storage"
	"plinth/object"
)

const administrator = "plinth-admin"

// first is the plane at /; the others are planes with credentials of their own. again is the name of a Plane that was
// deleted and created again: in a process only one of both is there.
const (
	first = ""
	again = "a again"
)

var everywhere = []string{first, "a", "b", again}

// process is a process with planes behind one port.
type process struct {
	t           *testing.T
	server      *httptest.Server
	authority   *pki.Authority // its own, which signs requests of the first plane, too
	clients     *pki.Authority // of --client-ca-file
	front       *pki.Authority // of --requestheader-client-ca-file
	credentials *Credentials
	planes      map[string]*member
}

// member is a plane of the process.
type member struct {
	*plane.Plane
	config plane.Config
	url    string
}

func newAuthority(t *testing.T, name string) *pki.Authority {
	t.Helper()
	a, err := pki.Open("", name, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// issued is a client certificate of an authority.
func issued(t *testing.T, by *pki.Authority, name string, groups ...string) *tls.Certificate {
	t.Helper()
	leaf, err := by.Leaf(name, pkix.Name{CommonName: name, Organization: groups}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

// webhook stands for what is asked about tokens last.
type webhook map[string]access.User

func (w webhook) Token(_ context.Context, token string, _ []string) (*access.Identity, error) {
	if user, ok := w[token]; ok {
		return &access.Identity{User: user, Audiences: []string{serviceaccount.DefaultIssuer}}, nil
	}
	return nil, nil
}

// newProcess starts a process. change may change what the process accepts.
func newProcess(t *testing.T, change func(*Process)) *process {
	t.Helper()
	s := &process{t: t, planes: map[string]*member{}, authority: newAuthority(t, "plinth-ca"),
		clients: newAuthority(t, "corporate"), front: newAuthority(t, "front")}
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.server.Config.ConnContext = auth.Remember
	s.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.server.EnableHTTP2 = true
	url := "https://" + s.server.Listener.Addr().String()

	c := s.configuration()
	c.Accounts.Issuers = []string{serviceaccount.DefaultIssuer}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := serviceaccount.NewStaticKeys([]crypto.PublicKey{private.Public()}, private)
	if err != nil {
		t.Fatal(err)
	}
	c.Accounts.Keys, c.Accounts.Static = keys, keys
	c.Signer.Certificate, c.Signer.Key = s.authority.Certificate, s.authority.Key
	c.Authentication = auth.Config{
		Clients: auth.NewAuthorities(s.authority.Certificate, s.clients.Certificate),
		Proxy: &auth.FrontProxy{Authorities: auth.NewAuthorities(s.front.Certificate), UserHeaders: headers.Users,
			GroupHeaders: headers.Groups, ExtraPrefixes: headers.Extra},
		Audiences: c.Accounts.Issuers,
		Tokens: []auth.Tokens{auth.Agnostic(auth.StaticToken("carol's", access.User{Name: "carol", UID: "7",
			Groups: []string{"devs", "system:nodes", access.Unauthenticated, access.Authenticated}}), c.Accounts.Issuers),
			auth.StaticToken("scheduler's", access.User{Name: "system:kube-scheduler"})},
	}
	c.LaterTokens = []auth.Tokens{webhook{"dave's": {Name: "dave",
		Groups: []string{"ops", "system:masters:not", ":system:"},
		Extra: map[string][]string{"example.org/team": {"x"}, access.NodeName: {"n1"}, access.CredentialID: {"JTI=1"},
			"Attestation.Authentication.Kubernetes.io/anything": {"y"}, "k8s.io": {"z"}}}}}
	s.add(first, url, c)

	users := Process{Authentication: c.Authentication, LaterTokens: c.LaterTokens, Signer: s.authority.Certificate,
		Administrator: administrator, First: c.Authority}
	if change != nil {
		change(&users)
	}
	if s.credentials, err = Open("", users); err != nil {
		t.Fatal(err)
	}
	created := time.Now().Add(-time.Hour)
	for name, uid := range map[string]string{"a": "uid-1", "b": "uid-2", again: "uid-3"} {
		c, host := s.configuration(), strings.TrimSuffix(name, " again")
		base := url + "/clusters/" + host
		c.Nodes.Kubelets.CertFile, c.Authentication.Clients = "of the process", users.Authentication.Clients
		if err := s.credentials.Of(uid, host, created, base).Configure(&c); err != nil {
			t.Fatal(err)
		}
		s.add(name, base, c)
	}
	s.listen()
	return s
}

// listen opens the port, as a server does.
func (s *process) listen() {
	leaf, err := s.authority.Leaf("server", pkix.Name{CommonName: "server"}, []string{"127.0.0.1"})
	if err != nil {
		s.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		s.t.Fatal(err)
	}
	listed := x509.NewCertPool()
	subjects, err := s.credentials.Subjects()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range append(subjects, s.authority.Certificate, s.clients.Certificate, s.front.Certificate) {
		listed.AddCert(c)
	}
	s.server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, ClientCAs: listed}
	s.server.StartTLS()
	s.t.Cleanup(s.server.Close)
}

// configuration is what all planes have in common.
func (s *process) configuration() plane.Config {
	s.t.Helper()
	logger := slog.New(slog.DiscardHandler)
	authority, err := authz.New(authz.FromModes([]authz.Mode{authz.Node, authz.RBAC}, nil), authz.Options{Logger: logger})
	if err != nil {
		s.t.Fatal(err)
	}
	services, err := new(addresses.Flags).Config()
	if err != nil {
		s.t.Fatal(err)
	}
	return plane.Config{
		Releases: features.Current, Logger: logger, Addresses: services, Authority: authority, Address: "localhost:443",
		Accounts:    plane.Accounts{Lookup: true, Extend: true, BootstrapTokens: true},
		Signer:      plane.Signer{Bundle: s.authority.PEM},
		Self:        initial.Self{Trusted: func() (clients, proxies []byte) { return s.authority.PEM, s.front.PEM }},
		Controllers: plane.Controllers{"csrsigning"},
		Nodes:       nodes.Config{Kubelets: nodes.DefaultKubelets()},
		Storage: func(ctx context.Context, types *engine.Registry, define engine.Define) (*storage.Storage, error) {
			return storage.Open(ctx, storage.Config{HistoryBytes: 1 << 20, Registry: types, Define: define, Logger: logger})
		},
	}
}

// add makes a plane.
func (s *process) add(name, url string, c plane.Config) {
	s.t.Helper()
	p, err := plane.New(s.t.Context(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	p.Run(nil)
	s.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			s.t.Error(err)
		}
	})
	s.planes[name] = &member{p, c, url}
}

// inPlane is the header in which a test says for which plane a request is.
const inPlane = "X-Test-Plane"

func (s *process) serve(w http.ResponseWriter, r *http.Request) {
	s.planes[r.Header.Get(inPlane)].Handler().ServeHTTP(w, r)
}

// caller sends requests with credentials, over one connection to all planes.
type caller struct {
	*process
	http   *http.Client
	header http.Header
}

// with is a caller with a client certificate, nil: none, and headers.
func (s *process) with(certificate *tls.Certificate, header ...string) *caller {
	roots := x509.NewCertPool()
	roots.AddCert(s.authority.Certificate)
	config := &tls.Config{RootCAs: roots}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	s.t.Cleanup(transport.CloseIdleConnections)
	c := &caller{s, &http.Client{Transport: transport}, http.Header{}}
	for i := 0; i < len(header); i += 2 {
		c.header.Add(header[i], header[i+1])
	}
	return c
}

func (s *process) bearer(token string) *caller { return s.with(nil, "Authorization", "Bearer "+token) }

// do sends a request.
func (c *caller) do(where, method, path, body string) (int, object.Value) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.server.URL+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header = c.header.Clone()
	r.Header.Set(inPlane, where)
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	var text strings.Builder
	if _, err := bufio.NewReader(answer.Body).WriteTo(&text); err != nil {
		c.t.Fatal(err)
	}
	parsed, err := object.ParseJSON([]byte(text.String()))
	if err != nil {
		return answer.StatusCode, object.StringOf(text.String())
	}
	return answer.StatusCode, parsed.Value
}

// who is the user of the caller in a plane. ok is false if the credentials are not valid there.
func (c *caller) who(where string) (user access.User, ok bool) {
	c.t.Helper()
	code, body := c.do(where, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`)
	switch code {
	case http.StatusCreated:
	case http.StatusUnauthorized:
		return user, false
	default:
		c.t.Fatalf("%q: %d %s", where, code, object.AppendJSON(nil, body))
	}
	info := body.At("status", "userInfo")
	user = access.User{Name: info.At("username").Str(), UID: info.At("uid").Str(), Extra: map[string][]string{}}
	for _, g := range info.At("groups").Items() {
		user.Groups = append(user.Groups, g.Str())
	}
	for _, m := range info.At("extra").Members() {
		for _, v := range m.Value.Items() {
			user.Extra[m.Key] = append(user.Extra[m.Key], v.Str())
		}
	}
	return user, true
}

// admin does something in a plane as its administrator.
func (s *process) admin(where, method, path, body string) object.Value {
	s.t.Helper()
	masters := &access.Identity{User: access.User{Name: "root", Groups: []string{access.Masters, access.Authenticated}}}
	r := httptest.NewRequestWithContext(auth.As(s.t.Context(), masters), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.planes[where].Handler().ServeHTTP(w, r)
	parsed, err := object.ParseJSON(w.Body.Bytes())
	if err != nil || w.Code >= http.StatusBadRequest {
		s.t.Fatalf("%q: %s %s: %d %s", where, method, path, w.Code, w.Body)
	}
	return parsed.Value
}

// signed is a certificate that a plane signs for a CertificateSigningRequest.
func (s *process) signed(where, name, signer, user string, groups, usages []string) *tls.Certificate {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: user, Organization: groups}}, key)
	if err != nil {
		s.t.Fatal(err)
	}
	request := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	list, err := json.Marshal(usages)
	if err != nil {
		s.t.Fatal(err)
	}
	const requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	made := s.admin(where, "POST", requests, fmt.Sprintf(`{"apiVersion":"certificates.k8s.io/v1",
		"kind":"CertificateSigningRequest","metadata":{"name":%q},"spec":{"request":%q,"signerName":"kubernetes.io/%s",
		"usages":%s}}`, name, request, signer, list))
	approved := object.Fields("type", object.StringOf("Approved"), "status", object.StringOf("True"), "reason",
		object.StringOf("Test"), "message", object.StringOf("ok"))
	made = s.admin(where, "PUT", requests+"/"+name+"/approval",
		string(object.AppendJSON(nil, made.WithAt(object.ListOf(approved), "status", "conditions"))))
	text := s.await(where, requests, name, made.At("metadata", "resourceVersion").Str())
	block, _ := pem.Decode(text)
	// By this the administrator's certificate is told from those that are signed for requests.
	if c, err := x509.ParseCertificate(block.Bytes); err != nil || !c.BasicConstraintsValid {
		s.t.Errorf("a signed certificate has no basic constraints, %v", err)
	}
	return &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
}

// await watches a request until there is a certificate.
func (s *process) await(where, requests, name, version string) []byte {
	s.t.Helper()
	watch := s.with(issued(s.t, s.authority, administrator, access.Masters))
	r, err := http.NewRequestWithContext(s.t.Context(), "GET",
		s.server.URL+requests+"?watch=1&fieldSelector=metadata.name="+name+"&resourceVersion="+version, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set(inPlane, where)
	answer, err := watch.http.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	for events := json.NewDecoder(answer.Body); ; {
		var event struct {
			Object struct {
				Status struct{ Certificate []byte }
			}
		}
		if err := events.Decode(&event); err != nil {
			s.t.Fatalf("%q: %s was not signed: %v", where, name, err)
		}
		if text := event.Object.Status.Certificate; text != nil {
			return text
		}
	}
}
