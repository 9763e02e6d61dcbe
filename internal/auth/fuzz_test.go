package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"

	"plinth/internal/access"
)

// For every subject of a certificate: if the authority has signed it for clients, its subject is the user,
// and otherwise the request is refused.
//
// SPEC: AUTH-1
func FuzzCertificates(f *testing.F) {
	for _, seed := range [][3]string{
		{"jane", "devs", ""}, {"", access.Masters, ""}, {"system:node:a/../b", "system:nodes", "1"},
		{"system:node:", "system:nodes", ""},
		{"system:anonymous", "system:unauthenticated", ""}, {"a,O=system:masters", "b+CN=admin", "x"},
		{"system:serviceaccount:a:b", "", ""}, {"ä\x00", "\n", "\x7f"},
	} {
		f.Add(seed[0], seed[1], seed[2], false, true)
	}
	f.Add("jane", access.Masters, "", true, true)
	f.Add("jane", access.Masters, "", false, false)
	own, foreign := signed(f, pkix.Name{CommonName: "own"}, nil, nil), signed(f, pkix.Name{CommonName: "own"}, nil, nil)
	a := New(Config{Clients: NewAuthorities(own.Leaf)})
	f.Fuzz(func(t *testing.T, name, group, uid string, stranger, forClients bool) {
		subject := pkix.Name{CommonName: name, Organization: []string{group}}
		if uid != "" {
			subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: uidType, Value: uid}}
		}
		by := own
		if stranger {
			by = foreign
		}
		c, err := sign(subject, by, func(c *x509.Certificate) {
			if !forClients {
				c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			}
		})
		if err != nil {
			return // a certificate cannot have this subject
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.Leaf}}
		ctx := Remember(r.Context(), nil)
		id, err := authenticate(ctx, a, r)
		said := c.Leaf.Subject
		switch {
		case stranger || !forClients:
			if err == nil {
				t.Errorf("a certificate for %q that is not valid: have %+v, want an error", name, id.User)
			}
			return
		case err != nil:
			if len(uidsOf(said)) < 1 {
				t.Errorf("a valid certificate for %q: have %v", name, err)
			}
			return
		case said.CommonName == "":
			if !reflect.DeepEqual(id.User, access.Nobody()) {
				t.Errorf("a certificate without a name: have %+v, want %s", id.User, access.Anonymous)
			}
			return
		}
		if id.User.Name != said.CommonName || slices.ContainsFunc(id.User.Groups, func(g string) bool {
			return g != access.Authenticated && !slices.Contains(said.Organization, g)
		}) {
			t.Errorf("a certificate for %+v: have %+v", said, id.User)
		}
		if again, err := authenticate(ctx, a, r); err != nil || !reflect.DeepEqual(again, id) {
			t.Errorf("a certificate for %+v: have first %+v and then %+v, %v", said, id.User, again.User, err)
		}
	})
}

func uidsOf(n pkix.Name) (uids []any) {
	for _, part := range n.Names {
		if part.Type.Equal(uidType) {
			uids = append(uids, part.Value)
		}
	}
	return uids
}

// With the certificate of a front proxy, the headers name the user of a request. With another
// certificate the headers have no effect.
//
// SPEC: AUTH-1
func FuzzProxyHeaders(f *testing.F) {
	for _, seed := range [][4]string{
		{"jane", "devs", "X-Remote-Extra-Scopes", "a"}, {"", access.Masters, "X-Remote-Extra-", ""},
		{" jane ", "", "x-remote-extra-%41%zz", "b"},
		{access.Anonymous, "system:unauthenticated", "X-Remote-Extra-Authentication.kubernetes.io%2fnode-name", "n"},
		{"a\x00", "\xff", "X-Remote-User", "admin"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], true)
		f.Add(seed[0], seed[1], seed[2], seed[3], false)
	}
	own, clients := signed(f, pkix.Name{CommonName: "proxies"}, nil, nil),
		signed(f, pkix.Name{CommonName: "clients"}, nil, nil)
	proxy, client := signed(f, pkix.Name{CommonName: "proxy"}, own, nil),
		signed(f, pkix.Name{CommonName: "joe"}, clients, nil)
	a := New(Config{Clients: NewAuthorities(clients.Leaf), Proxy: &FrontProxy{
		Authorities: NewAuthorities(own.Leaf), AllowedNames: []string{"proxy"}, UserHeaders: []string{"X-Remote-User"},
		UIDHeaders:   []string{"X-Remote-Uid"},
		GroupHeaders: []string{"X-Remote-Group"}, ExtraPrefixes: []string{"X-Remote-Extra-"},
	}})
	f.Fuzz(func(t *testing.T, user, group, name, value string, fromProxy bool) {
		r := httptest.NewRequest("GET", "/", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{client.Leaf}}
		if fromProxy {
			r.TLS.PeerCertificates[0] = proxy.Leaf
		}
		r.Header["X-Remote-User"], r.Header["X-Remote-Group"] = []string{user}, []string{group}
		r.Header.Add(name, value)
		id, err := authenticate(context.Background(), a, r)
		switch {
		case !fromProxy:
			if err != nil || id.User.Name != "joe" || !slices.Equal(id.User.Groups, []string{access.Authenticated}) {
				t.Errorf("headers beside the certificate of joe: have %+v, %v", id.User, err)
			}
		case user == "":
			if err == nil && id.User.Name != access.Anonymous && id.User.Name != value {
				t.Errorf("headers without a user: have %+v", id.User)
			}
		case err != nil || id.User.Name != user:
			t.Errorf("headers for %q: have %+v, %v", user, id.User, err)
		}
	})
}
