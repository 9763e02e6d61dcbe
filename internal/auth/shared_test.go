package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/http/httptest"
	"testing"
	"time"
)

// Certificates is asked by several Authenticators over one connection. A result of one of them is not that of another,
// and one of Certificates holds as long as a chain that counts does.
//
// SPEC: AUTH-1, BEY-9
func TestSharedCertificates(t *testing.T) {
	start := time.Now().Truncate(time.Second)
	valid := func(to time.Duration, authority bool) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = start, start.Add(to)
			if authority {
				c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
			}
		}
	}
	name := func(s string) pkix.Name { return pkix.Name{CommonName: s} }
	refused, counts := signed(t, name("refused"), nil, valid(time.Hour, true)), signed(t, name("counts"), nil,
		valid(time.Minute, true))
	// The key between has two certificates, of which one leads to an authority that does not count.
	between := signed(t, name("between"), counts, valid(time.Minute, true))
	der, err := x509.CreateCertificate(nil, &x509.Certificate{SerialNumber: between.Leaf.SerialNumber,
		Subject: between.Leaf.Subject, NotBefore: start, NotAfter: start.Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, refused.Leaf, between.Leaf.PublicKey,
		refused.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	detour, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	own := signed(t, name("own"), nil, valid(time.Hour, true))
	passed, verified := time.Duration(0), 0
	now := func() time.Time { return start.Add(passed) }
	shared := &Certificates{Authorities: NewAuthorities(refused.Leaf, counts.Leaf), Now: now,
		Refuse: func(chain []*x509.Certificate) error {
			verified++
			if chain[len(chain)-1].Equal(refused.Leaf) {
				return errors.New("it does not count")
			}
			return nil
		}}
	plane, other := authenticator(t, ""), authenticator(t, "")
	for _, a := range []*Authenticator{plane, other} {
		a.Now, a.LaterCertificates = now, shared.Authenticate
	}
	plane.Clients, other.Clients = NewAuthorities(own.Leaf), NewAuthorities(signed(t, name("own"), nil, nil).Leaf)
	request := func(certificates ...*x509.Certificate) func(*Authenticator) string {
		r := httptest.NewRequestWithContext(Remember(context.Background(), nil), "GET", "/", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: certificates}
		return func(a *Authenticator) string {
			id, err := authenticate(r.Context(), a, r)
			if err != nil {
				return ""
			}
			return id.User.Name
		}
	}
	check := func(says string, have, want string) {
		t.Helper()
		if have != want {
			t.Errorf("%s: %q, not %q", says, have, want)
		}
	}
	user := signed(t, name("carol"), own, valid(time.Hour, false))
	of := request(user.Leaf)
	for range 2 {
		check("a user of one plane there", of(plane), "carol")
		check("a user of one plane in another", of(other), "")
	}
	of = request(signed(t, name("dave"), between, valid(time.Hour, false)).Leaf, between.Leaf, detour)
	verified = 0
	for range 3 {
		check("a user of the process", of(plane), "dave")
		check("a user of the process in another plane", of(other), "dave")
	}
	if verified != 2 { // both chains, once
		t.Errorf("%d chains were looked at", verified)
	}
	passed = 2 * time.Minute // the chain that counts has ended, the other one has not
	check("a chain that does not count", of(plane), "")
	of = request(signed(t, name("erin"), refused, valid(time.Hour, false)).Leaf)
	check("an authority that does not count", of(plane), "")
	of = request()
	check("no certificate", of(plane), "system:anonymous")
}
