package auth

import (
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

// verdict is what the certificate of a connection says. To verify signatures takes longer than most requests do, so it
// is kept for the requests that follow, for as long as time alone cannot change it.
type verdict struct {
	id    *access.Identity // nil: nobody
	err   error
	until time.Time // zero: for ever
}

type verdictPointer = atomic.Pointer[verdict]

// verdicts are what the certificate of one connection says to those who look at it.
type verdicts struct{ client, proxy verdictPointer }

type verdictKey struct{}

// Remember gives the requests of a connection a place for what its certificate says. It is an http.Server's
// ConnContext.
func Remember(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, verdictKey{}, &verdicts{})
}

// remembered is what was found out before on the connection, as long as time has not changed it, or what is found out
// now.
func (a *Authenticator) remembered(ctx context.Context, of func(*verdicts) *verdictPointer,
	find func() *verdict) *verdict {
	kept, ok := ctx.Value(verdictKey{}).(*verdicts)
	if !ok {
		return find()
	}
	v := of(kept).Load()
	if v == nil || !v.until.IsZero() && !a.Now().Before(v.until) {
		v = find()
		of(kept).Store(v)
	}
	return v
}

// certified says who the client certificate is; nil if there is none. Requests of a connection share the answer.
func (a *Authenticator) certified(ctx context.Context, r *http.Request) (*access.Identity, error) {
	if a.Clients == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	v := a.remembered(ctx, func(k *verdicts) *verdictPointer { return &k.client }, func() *verdict {
		return a.verify(r.TLS.PeerCertificates)
	})
	return v.id, v.err
}

// verify looks for a chain from a client's certificate, which comes first, to an authority.
func (a *Authenticator) verify(shown []*x509.Certificate) *verdict {
	now := a.Now()
	chains, err := chainsTo(a.Clients, shown, now)
	if err != nil {
		return &verdict{err: fmt.Errorf("verifying certificate %s failed: %w", identifier(shown[0]), err),
			until: nextStart(shown, now)}
	}
	until := lastEnd(chains)
	subject := shown[0].Subject
	if subject.CommonName == "" { // as in the reference it is as if there were no certificate
		return &verdict{until: until}
	}
	uid, err := uidOf(subject)
	if err != nil {
		return &verdict{err: err, until: until}
	}
	fingerprint := sha256.Sum256(shown[0].Raw)
	user := access.User{
		Name: subject.CommonName, UID: uid, Groups: slices.Clone(subject.Organization),
		Extra: map[string][]string{access.CredentialID: {"X509SHA256=" + hex.EncodeToString(fingerprint[:])}},
	}
	return &verdict{id: authenticated(&access.Identity{User: user}), until: until}
}

// chainsTo are the chains from a certificate, which comes first, to an authority.
func chainsTo(authorities *x509.CertPool, shown []*x509.Certificate, now time.Time) ([][]*x509.Certificate, error) {
	options := x509.VerifyOptions{
		Roots: authorities, Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range shown[1:] {
		options.Intermediates.AddCert(c)
	}
	return shown[0].Verify(options)
}

// identifier names a certificate in errors.
func identifier(c *x509.Certificate) string {
	return fmt.Sprintf("SN=%d, SKID=%s, AKID=%s", c.SerialNumber, colons(c.SubjectKeyId), colons(c.AuthorityKeyId))
}

func colons(b []byte) string { return strings.ReplaceAll(fmt.Sprintf("% X", b), " ", ":") }

// uidType is the part of a subject that is the UID of a user.
var uidType = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// uidOf is the UID of the user that a subject is; "" for none.
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

// lastEnd is the first moment at which none of the chains is valid any more. A chain ends with the first of its
// certificates to end; at its NotAfter a certificate is still valid.
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

// nextStart is when the next of the certificates becomes valid; zero if all of them have been.
func nextStart(shown []*x509.Certificate, now time.Time) (next time.Time) {
	for _, c := range shown {
		if c.NotBefore.After(now) && (next.IsZero() || c.NotBefore.Before(next)) {
			next = c.NotBefore
		}
	}
	return next
}
