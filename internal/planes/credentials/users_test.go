package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/pki"
	"plinth/object"
)

// credential is what somebody shows, and who that is where it is valid.
type credential struct {
	kind string
	with *caller
	user string
}

// of makes credentials of all kinds that a plane issues.
func (s *process) of(where string) []credential {
	i := slices.Index(everywhere, where)
	client := []string{"client auth", "digital signature"}
	account := s.admin(where, "POST", "/api/v1/namespaces/default/serviceaccounts",
		`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"robot"}}`)
	bound := s.admin(where, "POST", "/api/v1/namespaces/default/serviceaccounts/robot/token",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`).At("status", "token").Str()
	legacy, err := s.planes[where].config.Accounts.Static.Legacy("default", "robot",
		account.At("metadata", "uid").Str(), "robot-token")
	if err != nil {
		s.t.Fatal(err)
	}
	s.admin(where, "POST", "/api/v1/namespaces/default/secrets", fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret",
		"type":"kubernetes.io/service-account-token","metadata":{"name":"robot-token","annotations":
		{"kubernetes.io/service-account.name":"robot"}},"stringData":{"token":%q}}`, legacy))
	id := fmt.Sprintf("abcde%d", i)
	s.admin(where, "POST", "/api/v1/namespaces/kube-system/secrets", fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret",
		"type":"bootstrap.kubernetes.io/token","metadata":{"name":"bootstrap-token-%s"},"stringData":{"token-id":%q,
		"token-secret":"0123456789abcdef","usage-bootstrap-authentication":"true"}}`, id, id))
	all := []credential{
		{"bound token", s.bearer(bound), "system:serviceaccount:default:robot"},
		{"legacy token", s.bearer(legacy), "system:serviceaccount:default:robot"},
		{"bootstrap token", s.bearer(id + ".0123456789abcdef"), "system:bootstrap:" + id},
		{"certificate of a user", s.with(s.signed(where, "user", "kube-apiserver-client", "bob", []string{"devs"}, client)),
			"bob"},
		{"certificate of a kubelet", s.with(s.signed(where, "kubelet", "kube-apiserver-client-kubelet", "system:node:n1",
			[]string{"system:nodes"}, client)), "system:node:n1"},
		{"certificate of kube-controller-manager", s.with(s.signed(where, "manager", "kube-apiserver-client",
			"system:kube-controller-manager", nil, client)), "system:kube-controller-manager"},
		{"certificate like the administrator's", s.with(s.signed(where, "administrator", "kube-apiserver-client",
			administrator, nil, client)), administrator},
	}
	proxy := issued(s.t, s.front, frontProxyUser)
	if where != first {
		if proxy, err = s.planes[where].config.Aggregation.Certificate(); err != nil {
			s.t.Fatal(err)
		}
		kubelets, err := s.planes[where].config.Nodes.Kubelets.Certificate()
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, credential{"client certificate for kubelets", s.with(kubelets), kubeletUser})
	}
	return append(all, credential{"front proxy",
		s.with(proxy, "X-Remote-User", "system:kube-scheduler", "X-Remote-Group", access.Masters), "system:kube-scheduler"})
}

// What a plane has issued is valid there, and nowhere else: not in the first plane, in another one, or in one that has
// its name later; and the other way round. The caller has one connection to all.
//
// SPEC: BEY-9
func TestWhatAPlaneHasIssued(t *testing.T) {
	s := newProcess(t, nil)
	for _, where := range everywhere {
		kinds := s.of(where)
		if want := map[bool]int{true: 8, false: 9}[where == first]; len(kinds) != want {
			t.Fatalf("%d kinds of credentials, not %d", len(kinds), want)
		}
		for _, c := range kinds {
			for range 2 { // what is remembered of the connection changes nothing
				for _, at := range everywhere {
					user, ok := c.with.who(at)
					if ok != (at == where) || ok && user.Name != c.user {
						t.Errorf("%s of %q at %q: %v %q", c.kind, where, at, ok, user.Name)
					}
				}
			}
		}
	}
}

// users of the process, as they are in the first plane, and in another one without and with the verb access.
var usersOfProcess = []struct {
	kind           string
	with           func(*process) *caller
	name, uid      string
	first, another []string
	master         bool
	extra          []string // the keys in another plane
}{
	{"the administrator's certificate", func(s *process) *caller {
		return s.with(issued(s.t, s.authority, administrator, access.Masters))
	}, administrator, "", []string{access.Masters, access.Authenticated}, []string{access.Authenticated}, true,
		[]string{access.CredentialID}},
	{"a certificate of another authority", func(s *process) *caller {
		return s.with(issued(s.t, s.clients, "erin", "devs", "system:nodes"))
	}, "erin", "", []string{"devs", "system:nodes", access.Authenticated}, []string{"devs", access.Authenticated}, false,
		[]string{access.CredentialID}},
	{"a certificate of another authority of masters", func(s *process) *caller {
		return s.with(issued(s.t, s.clients, "chief", access.Masters))
	}, "chief", "", []string{access.Masters, access.Authenticated}, []string{access.Authenticated}, true,
		[]string{access.CredentialID}},
	{"a static token", func(s *process) *caller { return s.bearer("carol's") }, "carol", "7",
		[]string{"devs", "system:nodes", access.Unauthenticated, access.Authenticated},
		[]string{"devs", access.Authenticated}, false, nil},
	{"a token that a webhook knows", func(s *process) *caller { return s.bearer("dave's") }, "dave", "",
		[]string{"ops", "system:masters:not", ":system:", access.Authenticated},
		[]string{"ops", ":system:", access.Authenticated}, false, []string{access.CredentialID, "example.org/team"}},
}

// Users of the process are users in all planes, without what is of the system of the first one; and administrators,
// if they have the verb access.
//
// SPEC: BEY-9
func TestUsersOfTheProcess(t *testing.T) {
	s := newProcess(t, nil)
	for _, c := range usersOfProcess {
		with := c.with(s)
		for _, at := range everywhere {
			user, ok := with.who(at)
			want := c.another
			if at == first {
				want = c.first
			} else if c.master {
				want = slices.Insert(slices.Clone(want), slices.Index(want, access.Authenticated), access.Masters)
			}
			if !ok || user.Name != c.name || user.UID != c.uid || !slices.Equal(user.Groups, want) {
				t.Errorf("%s at %q: %v %+v, not %q", c.kind, at, ok, user, want)
			}
			if keys := slices.Sorted(maps.Keys(user.Extra)); at != first && !slices.Equal(keys, c.extra) {
				t.Errorf("%s at %q: extra %q", c.kind, at, keys)
			}
		}
	}
}

// Names of the system are nobody's in other planes.
//
// SPEC: BEY-9
func TestNamesOfTheSystem(t *testing.T) {
	s := newProcess(t, nil)
	for kind, with := range map[string]*caller{
		"a kubelet":               s.with(issued(t, s.clients, "system:node:n1", "system:nodes")),
		"kube-controller-manager": s.with(issued(t, s.clients, "system:kube-controller-manager")),
		"a master":                s.with(issued(t, s.clients, "system:admin", access.Masters)),
		"kube-scheduler":          s.bearer("scheduler's"),
		"a service account": s.with(issued(t, s.clients, "system:serviceaccount:default:default",
			access.ServiceAccounts)),
	} {
		for _, at := range everywhere {
			if user, ok := with.who(at); ok != (at == first) {
				t.Errorf("%s at %q: %v %+v", kind, at, ok, user)
			}
		}
	}
}

// A certificate of the process' own authority counts in planes only if it is the administrator's, whoever else has
// signed that authority's key; of another authority, always.
//
// SPEC: BEY-9
func TestCertificatesOfTheFirstSigner(t *testing.T) {
	s := newProcess(t, nil)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(by *pki.Authority, subject pkix.Name, basic bool, more ...[]byte) *caller {
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject,
			NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: basic,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, by.Certificate, &key.PublicKey, by.Key)
		if err != nil {
			t.Fatal(err)
		}
		return s.with(&tls.Certificate{Certificate: append([][]byte{der}, more...), PrivateKey: key})
	}
	// crossed is the key of the first plane's signer, signed by another authority of the process.
	crossed, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2),
		Subject: s.authority.Certificate.Subject, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign},
		s.clients.Certificate, s.authority.Key.Public(), s.clients.Key)
	if err != nil {
		t.Fatal(err)
	}
	// lower is an authority that the signer has signed.
	lowerDER, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(3),
		Subject: pkix.Name{CommonName: "lower"}, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign},
		s.authority.Certificate, s.front.Key.Public(), s.authority.Key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(lowerDER)
	if err != nil {
		t.Fatal(err)
	}
	lower := &pki.Authority{Certificate: parsed, Key: s.front.Key}
	masters := []string{access.Masters}
	for _, c := range []struct {
		says  string
		with  *caller
		valid bool
	}{
		{"the administrator's", sign(s.authority, pkix.Name{CommonName: administrator, Organization: masters}, false), true},
		{"of a request", sign(s.authority, pkix.Name{CommonName: administrator, Organization: masters}, true), false},
		{"of a request, with another way", sign(s.authority,
			pkix.Name{CommonName: administrator, Organization: masters}, true, crossed), false},
		{"somebody's", sign(s.authority, pkix.Name{CommonName: "bob", Organization: masters}, false), false},
		{"somebody's, with another way", sign(s.authority, pkix.Name{CommonName: "bob"}, false, crossed), false},
		{"of an authority below", sign(lower, pkix.Name{CommonName: administrator, Organization: masters}, false,
			lowerDER), false},
		{"the name alone", sign(s.authority, pkix.Name{CommonName: administrator}, false), false},
		{"more groups", sign(s.authority, pkix.Name{CommonName: administrator,
			Organization: []string{access.Masters, "devs"}}, false), false},
		{"more names", sign(s.authority, pkix.Name{CommonName: administrator, Organization: masters,
			OrganizationalUnit: []string{"x"}}, false), false},
		{"of another authority", sign(s.clients, pkix.Name{CommonName: "bob"}, true), true},
		{"of another authority, with a way that it does not have", sign(s.clients, pkix.Name{CommonName: "bob"}, true,
			crossed), true},
	} {
		for _, at := range everywhere {
			if _, ok := c.with.who(at); ok != (c.valid || at == first) {
				t.Errorf("%s at %q: %v", c.says, at, ok)
			}
		}
	}
}

// The verb access on a Plane makes a user an administrator in it from the next request on, and ends with the right.
//
// SPEC: BEY-9
func TestVerbAccess(t *testing.T) {
	s := newProcess(t, nil)
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	s.admin(first, "POST", rbac+"clusterroles", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole",
		"metadata":{"name":"a"},"rules":[{"apiGroups":["plinth"],"resources":["planes"],"resourceNames":["a"],
		"verbs":["access"]}]}`)
	bind := func(subject string) {
		s.admin(first, "POST", rbac+"clusterrolebindings", `{"apiVersion":"rbac.authorization.k8s.io/v1",
			"kind":"ClusterRoleBinding","metadata":{"name":"a"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io",
			"kind":"ClusterRole","name":"a"},"subjects":[`+subject+`]}`)
	}
	unbind := func() { s.admin(first, "DELETE", rbac+"clusterrolebindings/a", "") }
	callers := map[string]*caller{"certificate": s.with(issued(t, s.clients, "erin", "system:team", "devs")),
		"token": s.bearer("dave's")}
	check := func(says string, of *caller, want ...string) {
		t.Helper()
		for _, at := range everywhere {
			may := slices.Contains(want, at)
			user, ok := of.who(at)
			code, _ := of.do(at, "GET", "/api/v1/secrets", "")
			if !ok || user.In(access.Masters) != may || (code == http.StatusOK) != may {
				t.Errorf("%s at %q: %v %+v %d", says, at, ok, user, code)
			}
		}
	}
	for name, of := range callers {
		user := map[string]string{"certificate": "erin", "token": "dave"}[name]
		check(name+" before", of)
		bind(`{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"` + user + `"}`)
		check(name+" with the verb", of, "a", again)
		unbind()
		check(name+" without", of)
	}
	// The first plane decides about the user as it is there, with the groups that other planes do not see.
	bind(`{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:team"}`)
	check("a group of the first plane", callers["certificate"], "a", again)
	check("somebody else", callers["token"])
	unbind()
	bind(`{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:authenticated"}`)
	check("all users", callers["token"], "a", again)
	if _, ok := s.bearer("unknown").who("a"); ok {
		t.Error("an unknown token is valid")
	}
}

// What users of the process may do in a plane is decided by its roles, impersonation included.
//
// SPEC: BEY-9
func TestRolesOfThePlane(t *testing.T) {
	s := newProcess(t, nil)
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	s.admin("a", "POST", rbac+"clusterroles", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole",
		"metadata":{"name":"as"},"rules":[{"apiGroups":[""],"resources":["users","groups"],"verbs":["impersonate"]}]}`)
	s.admin("a", "POST", rbac+"clusterrolebindings", `{"apiVersion":"rbac.authorization.k8s.io/v1",
		"kind":"ClusterRoleBinding","metadata":{"name":"as"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io",
		"kind":"ClusterRole","name":"as"},
		"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"carol"}]}`)
	carol := s.with(nil, "Authorization", "Bearer carol's", "Impersonate-User", "root", "Impersonate-Group",
		access.Masters)
	for _, at := range everywhere {
		code, _ := carol.do(at, "GET", "/api/v1/secrets", "")
		if want := map[bool]int{true: http.StatusOK, false: http.StatusForbidden}[at == "a"]; code != want {
			t.Errorf("impersonation at %q: %d", at, code)
		}
	}
	chief := s.with(issued(t, s.authority, administrator, access.Masters), "Impersonate-User", "system:node:n1",
		"Impersonate-Group", "system:nodes")
	for _, at := range everywhere {
		if user, ok := chief.who(at); !ok || user.Name != "system:node:n1" {
			t.Errorf("the administrator as a node at %q: %+v", at, user)
		}
	}
}

// Requests without credentials are anonymous in a plane, or refused, as in the process.
//
// SPEC: BEY-9
func TestAnonymous(t *testing.T) {
	for says, c := range map[string]struct {
		change       func(*Process)
		version, api int
	}{
		"accepted": {nil, http.StatusOK, http.StatusForbidden},
		"refused": {func(p *Process) { p.Authentication.NoAnonymous = true }, http.StatusUnauthorized,
			http.StatusUnauthorized},
		"at one path": {func(p *Process) { p.Authentication.AnonymousPaths = []string{"/version"} }, http.StatusOK,
			http.StatusUnauthorized},
	} {
		s := newProcess(t, c.change)
		for _, at := range []string{"a", "b"} {
			nobody := s.with(nil, "X-Remote-User", "root", "X-Remote-Group", access.Masters)
			if code, _ := nobody.do(at, "GET", "/version", ""); code != c.version {
				t.Errorf("%s at %q: /version: %d", says, at, code)
			}
			if code, _ := nobody.do(at, "GET", "/api", ""); code != c.api {
				t.Errorf("%s at %q: /api: %d", says, at, code)
			}
		}
	}
}

// Headers of a front proxy count with the certificate of this plane's front proxy alone, and with no other certificate.
//
// SPEC: BEY-9
func TestHeadersOfFrontProxies(t *testing.T) {
	s := newProcess(t, nil)
	headers := []string{"X-Remote-User", "root", "X-Remote-Group", access.Masters}
	like := func(where string) *tls.Certificate { // a certificate of a user with the name of a front proxy
		return s.signed(where, "u", "kube-apiserver-client", frontProxyUser, nil, []string{"client auth"})
	}
	own, err := s.planes["a"].config.Aggregation.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	for says, c := range map[string]struct {
		certificate *tls.Certificate
		user        string // in a; "": nobody
	}{
		"its own":                {own, "root"},
		"a user of the process":  {issued(t, s.clients, "erin"), "erin"},
		"the process' proxy":     {issued(t, s.front, frontProxyUser), ""},
		"a user of the plane":    {like("a"), frontProxyUser},
		"a user of another":      {like("b"), ""},
		"a client of the signer": {issued(t, s.authority, frontProxyUser), ""},
	} {
		user, _ := s.with(c.certificate, headers...).who("a")
		if user.Name != c.user || user.In(access.Masters) != (c.user == "root") {
			t.Errorf("%s: %+v", says, user)
		}
	}
}

// A TokenReview in a plane is about the users and the audience of that plane.
//
// SPEC: BEY-9
func TestReviewsOfTokens(t *testing.T) {
	s := newProcess(t, nil)
	url := s.planes["a"].url
	for _, c := range []struct {
		token, audiences string
		valid            bool
	}{
		{"carol's", "[]", true},
		{"carol's", fmt.Sprintf("[%q]", url), true},
		{"carol's", `["x"]`, false},
		{"carol's", fmt.Sprintf("[%q]", s.planes["b"].url), false},
		{"dave's", "[]", true},
		{"dave's", `["https://kubernetes.default.svc.cluster.local"]`, false},
		{"scheduler's", "[]", false},
	} {
		status := s.admin("a", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", fmt.Sprintf(
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":%q,"audiences":%s}}`, c.token,
			c.audiences)).At("status")
		if status.At("authenticated").Bool() != c.valid {
			t.Errorf("%s for %s: %s", c.token, c.audiences, object.AppendJSON(nil, status))
		}
		if all := status.At("audiences").Items(); c.valid && (len(all) != 1 || all[0].Str() != url) {
			t.Errorf("%s for %s: %s", c.token, c.audiences, object.AppendJSON(nil, status))
		}
	}
}

// What a plane publishes is its own: neither the authorities of the process nor another plane's.
//
// SPEC: BEY-9
func TestPublishedAuthorities(t *testing.T) {
	s := newProcess(t, nil)
	for _, at := range everywhere[1:] {
		data := s.admin(at, "GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", "").At("data")
		clients, proxies := s.planes[at].config.Self.Trusted()
		if data.At("client-ca-file").Str() != string(clients) ||
			data.At("requestheader-client-ca-file").Str() != string(proxies) ||
			data.At("requestheader-allowed-names").Str() != `["front-proxy-client"]` {
			t.Errorf("%q: %s", at, object.AppendJSON(nil, data))
		}
		// What was copied from another plane goes.
		others, _ := s.planes[first].config.Self.Trusted()
		const configMap = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
		s.admin(at, "PUT", configMap, string(object.AppendJSON(nil, s.admin(at, "GET", configMap, "").WithAt(
			object.StringOf(string(others)), "data", "client-ca-file"))))
		if err := s.planes[at].Objects.EnsureConfigMaps(t.Context()); err != nil {
			t.Fatal(err)
		}
		if have := s.admin(at, "GET", configMap, "").At("data", "client-ca-file").Str(); have != string(clients) {
			t.Errorf("%q: %s", at, have)
		}
		for other := range s.planes {
			if ofClients, ofProxies := s.planes[other].config.Self.Trusted(); other != at &&
				(string(ofClients) == string(clients) || string(ofProxies) == string(proxies)) {
				t.Errorf("%q and %q publish the same", at, other)
			}
		}
	}
}

// A plane's tokens name the plane as their issuer, and its documents of OpenID Connect lead to the key that has signed
// them.
//
// SPEC: BEY-9
func TestIssuerOfAPlane(t *testing.T) {
	s := newProcess(t, nil)
	for _, at := range everywhere[1:] {
		url := s.planes[at].url
		documents := s.admin(at, "GET", "/.well-known/openid-configuration", "")
		if documents.At("issuer").Str() != url || documents.At("jwks_uri").Str() != url+"/openid/v1/jwks" {
			t.Errorf("%q: %s", at, object.AppendJSON(nil, documents))
		}
		keys := s.admin(at, "GET", "/openid/v1/jwks", "").At("keys").Items()
		x, err := base64.RawURLEncoding.DecodeString(keys[0].At("x").Str())
		key := s.planes[at].config.Accounts.Static.Current().Keys[0]
		public, ok := key.Key.(*ecdsa.PublicKey)
		if err != nil || len(keys) != 1 || !ok || new(big.Int).SetBytes(x).Cmp(public.X) != 0 ||
			keys[0].At("kid").Str() != key.ID {
			t.Errorf("%q: %s", at, object.AppendJSON(nil, keys[0]))
		}
		s.admin(at, "POST", "/api/v1/namespaces/default/serviceaccounts",
			`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"robot"}}`)
		token := s.admin(at, "POST", "/api/v1/namespaces/default/serviceaccounts/robot/token",
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`).At("status", "token").Str()
		if issuer, err := auth.UnverifiedIssuer(token); err != nil || issuer != url {
			t.Errorf("%q: a token of %q, %v", at, issuer, err)
		}
	}
}

// A plane that has begun with the Secrets of another one believes no bootstrap token among them, and those that are
// created in it later.
//
// SPEC: BEY-9
func TestCopiedBootstrapTokens(t *testing.T) {
	secret := func(s *process, id string) string {
		made := s.admin("a", "POST", "/api/v1/namespaces/kube-system/secrets", fmt.Sprintf(`{"apiVersion":"v1",
			"kind":"Secret","type":"bootstrap.kubernetes.io/token","metadata":{"name":"bootstrap-token-%s"},"stringData":
			{"token-id":%q,"token-secret":"0123456789abcdef","usage-bootstrap-authentication":"true"}}`, id, id))
		return made.At("metadata", "creationTimestamp").Str()
	}
	for says, c := range map[string]struct {
		after time.Duration // of the beginning, after the Secret
		valid bool
	}{
		"copied":             {time.Hour, false},
		"in the same second": {999 * time.Millisecond, false},
		"created later":      {-time.Second, true},
	} {
		now := time.Now().Truncate(time.Second)
		s := newProcess(t, nil)
		config := s.configuration()
		config.Now = func() time.Time { return now }
		config.Accounts.BootstrapAfter = now.Add(c.after)
		if err := s.credentials.Of("uid-4", "a", now, s.planes["a"].url).Configure(&config); err != nil {
			t.Fatal(err)
		}
		s.add("a", s.planes["a"].url, config)
		if at := secret(s, "abcdef"); at != now.UTC().Format(time.RFC3339) {
			t.Fatal(at)
		}
		if user, ok := s.bearer("abcdef.0123456789abcdef").who("a"); ok != c.valid {
			t.Errorf("%s: %v %+v", says, ok, user)
		}
	}
}
