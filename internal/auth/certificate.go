package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"plinth/internal/access"
)

// verification is the result of verifying the certificates of a connection.
//
// To verify the signatures takes longer than most requests, so the result is kept for the later requests of the
// connection. A connection may outlive its certificate. The result depends only on the certificates, the authorities
// and the time, so it holds until one of the certificates begins or ceases to be valid, or the authorities are
// replaced. (An authority that becomes valid during the connection is noticed only if the client sent its certificate.)
//
//	verify(t) = v  ⇒  verify(t') = v for all t ≤ t' < v.until, with the authorities v.by
//
// Requests of one connection may be for several planes, each with authorities of its own: v.by tells their results
// apart.
type verification struct {
	id    *access.Identity // nil: the certificate names no user
	err   error
	until time.Time      // zero: forever
	by    *x509.CertPool // the authorities
}

// Authorities are those that sign one sort of certificates. They may be replaced while requests are authenticated.
type Authorities struct{ pool atomic.Pointer[x509.CertPool] }

// NewAuthorities returns the authorities with these certificates.
func NewAuthorities(certificates ...*x509.Certificate) *Authorities {
	a := &Authorities{}
	a.Set(certificates)
	return a
}

// Set replaces the authorities.
func (a *Authorities) Set(certificates []*x509.Certificate) {
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	a.pool.Store(pool)
}

type verificationPointer = atomic.Pointer[verification]

// verifications are the results of one connection: with the authorities of clients, with those of front proxies, and by
// Certificates. Concurrent requests of the connection may compute the same result at the same time.
type verifications struct{ client, proxy, shared verificationPointer }

type verificationKey struct{}

// Remember is the ConnContext of an http.Server: it adds to the context of a connection the place where the result of
// verifying its certificates is kept.
func Remember(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, verificationKey{}, &verifications{})
}

// remembered returns the result that is kept for the connection if it still holds, and otherwise that of verify.
func remembered(ctx context.Context, by *Authorities, now func() time.Time,
	of func(*verifications) *verificationPointer, verify func(by *x509.CertPool) *verification) *verification {
	authorities := by.pool.Load()
	kept, ok := ctx.Value(verificationKey{}).(*verifications)
	if !ok {
		return verify(authorities)
	}
	v := of(kept).Load()
	if v == nil || v.by != authorities || !v.until.IsZero() && !now().Before(v.until) {
		v = verify(authorities)
		v.by = authorities
		of(kept).Store(v)
	}
	return v
}

// certified returns the user of the client certificate; nil if there is none. The requests of a connection share it.
func (a *Authenticator) certified(ctx context.Context, r *http.Request) (*access.Identity, error) {
	if a.Clients == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	v := remembered(ctx, a.Clients, a.Now, func(k *verifications) *verificationPointer { return &k.client }, func(
		authorities *x509.CertPool) *verification {
		return verify(authorities, r.TLS.PeerCertificates, a.Now(), nil)
	})
	if a.Used != nil { // as in the reference, also if it is not valid
		a.Used(r.TLS.PeerCertificates[0].NotAfter.Sub(a.Now()))
	}
	if v.err == nil || a.LaterCertificates == nil {
		return v.id, v.err
	}
	id, err := a.LaterCertificates(ctx, r)
	if id == nil {
		err = errors.Join(v.err, err)
	}
	return id, err
}

// Certificates authenticates by client certificates, for several Authenticators whose Clients are others. For all of
// them the result is the same one, which is kept for a connection beside theirs.
type Certificates struct {
	Authorities *Authorities
	// Refuse returns why a chain from a certificate to an authority does not count; nil if it does.
	Refuse func(chain []*x509.Certificate) error
	Now    func() time.Time
}

// Authenticate returns the user of the client certificate of a request; nil if there is none. The caller must not
// change the User.
func (c *Certificates) Authenticate(ctx context.Context, r *http.Request) (*access.Identity, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	v := remembered(ctx, c.Authorities, c.Now, func(k *verifications) *verificationPointer { return &k.shared }, func(
		authorities *x509.CertPool) *verification {
		return verify(authorities, r.TLS.PeerCertificates, c.Now(), c.Refuse)
	})
	return v.id, v.err
}

// verify verifies a client certificate: the first of certs, which the others connect with an authority. Chains that
// refuse returns an error for do not count; nil: all count.
func verify(authorities *x509.CertPool, certs []*x509.Certificate, now time.Time,
	refuse func(chain []*x509.Certificate) error) *verification {
	chains, err := chainsTo(authorities, certs, now)
	if err != nil {
		return &verification{err: fmt.Errorf("verifying certificate %s failed: %w", identifier(certs[0]), err),
			until: nextStart(certs, now)}
	}
	if refuse != nil {
		chains = slices.DeleteFunc(chains, func(chain []*x509.Certificate) bool {
			refused := refuse(chain)
			err = cmp.Or(err, refused)
			return refused != nil
		})
		if len(chains) == 0 {
			return &verification{err: err, until: nextStart(certs, now)}
		}
	}
	until := lastEnd(chains)
	subject := certs[0].Subject
	if subject.CommonName == "" { // as in the reference, it is ignored
		return &verification{until: until}
	}
	uid, err := uidOf(subject)
	if err != nil {
		return &verification{err: err, until: until}
	}
	fingerprint := sha256.Sum256(certs[0].Raw)
	user := access.User{
		Name: subject.CommonName, UID: uid, Groups: slices.Clone(subject.Organization),
		Extra: map[string][]string{access.CredentialID: {"X509SHA256=" + hex.EncodeToString(fingerprint[:])}},
	}
	return &verification{id: authenticated(&access.Identity{User: user}), until: until}
}

// chainsTo returns the chains from the first of certs to an authority. crypto/x509 bounds the number of signatures that
// it checks, however many certificates the client sends.
func chainsTo(authorities *x509.CertPool, certs []*x509.Certificate, now time.Time) ([][]*x509.Certificate, error) {
	options := x509.VerifyOptions{
		Roots: authorities, Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range certs[1:] {
		options.Intermediates.AddCert(c)
	}
	return certs[0].Verify(options)
}

// identifier names a certificate in errors, as the reference does.
func identifier(c *x509.Certificate) string {
	return fmt.Sprintf("SN=%d, SKID=%s, AKID=%s", c.SerialNumber, colons(c.SubjectKeyId), colons(c.AuthorityKeyId))
}

func colons(b []byte) string { return strings.ReplaceAll(fmt.Sprintf("% X", b), " ", ":") }

// uidType is the attribute of a subject that has the UID of the user: that of Kubernetes (57683 is its number at IANA).
var uidType = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// uidOf returns the UID of the user in a subject; "" if it has none.
func uidOf(subject pkix.Name) (string, error) {
	var uids []string
	for _, part := range subject.Names {
		if !part.Type.Equal(uidType) {
			continue
		}
		uid, ok := part.Value.(string)
		if !ok {
			return "", errors.New("unable to parse UID into a string")
		}
		uids = append(uids, uid)
	}
	switch {
	case len(uids) == 0:
		return "", nil
	case len(uids) > 1:
		return "", fmt.Errorf("expected 1 UID, but found multiple: %v", uids)
	case uids[0] == "":
		return "", errors.New("UID cannot be an empty string")
	}
	return uids[0], nil
}

// lastEnd returns the first moment at which none of the chains is valid any more. A chain is valid as long as all its
// certificates are, including the moment of NotAfter.
func lastEnd(chains [][]*x509.Certificate) (last time.Time) {
	for _, chain := range chains {
		end := chain[0].NotAfter
		for _, c := range chain[1:] {
			if c.NotAfter.Before(end) {
				end = c.NotAfter
			}
		}
		if end.After(last) {
			last = end
		}
	}
	return last.Add(time.Nanosecond)
}

// nextStart returns when the next of the certificates becomes valid; zero if none will.
func nextStart(certs []*x509.Certificate, now time.Time) (next time.Time) {
	for _, c := range certs {
		if c.NotBefore.After(now) && (next.IsZero() || c.NotBefore.Before(next)) {
			next = c.NotBefore
		}
	}
	return next
}
