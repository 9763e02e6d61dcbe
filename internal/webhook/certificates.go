package webhook

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Outdated counts the requests to servers whose certificate has an outdated form, whether it was accepted or refused. A
// certificate without subject alternative names, or signed with SHA-1, is refused if it is verified, unless GODEBUG
// says otherwise.
type Outdated struct{ MissingSAN, InsecureSHA1 atomic.Int64 }

// OutdatedCertificates are those of the webhooks that this process calls, whichever component calls them: like the
// other metrics, it is of the process.
var OutdatedCertificates = &Outdated{}

var subjectAlternativeNames = asn1.ObjectIdentifier{2, 5, 29, 17}

// Count counts the certificates of the answer to a request to a host, or the reason why there is none, and notes them
// for the audit log (see Noting). What it compares are the errors of crypto/x509 that the reference compares.
func (o *Outdated) Count(ctx context.Context, host string, answer *http.Response, err error) {
	var unnamed, sha1 bool
	switch {
	case err != nil:
		var name x509.HostnameError
		unnamed = errors.As(err, &name) && strings.Contains(err.Error(), "certificate relies on legacy Common Name field")
		var unknown x509.UnknownAuthorityError
		if errors.As(err, &unknown) {
			_, why, ok := strings.Cut(err.Error(), "x509: cannot verify signature: insecure algorithm")
			sha1 = ok && strings.Contains(why, "SHA1")
		}
	case answer.TLS != nil && len(answer.TLS.PeerCertificates) > 0:
		chain := answer.TLS.PeerCertificates
		named := func(e pkix.Extension) bool { return e.Id.Equal(subjectAlternativeNames) }
		unnamed = !slices.ContainsFunc(chain[0].Extensions, named)
		sha1 = slices.ContainsFunc(chain, signedWithSHA1)
	}
	if unnamed {
		o.MissingSAN.Add(1)
		note(ctx, "missing-san.invalid-cert.kubernetes.io/"+host,
			"relies on a legacy Common Name field instead of the SAN extension for subject validation")
	}
	if sha1 {
		o.InsecureSHA1.Add(1)
		note(ctx, "insecure-sha1.invalid-cert.kubernetes.io/"+host, "uses an insecure SHA-1 signature")
	}
}

// signedWithSHA1 says whether another authority has signed the certificate with SHA-1.
func signedWithSHA1(c *x509.Certificate) bool {
	return (c.SignatureAlgorithm == x509.SHA1WithRSA || c.SignatureAlgorithm == x509.ECDSAWithSHA1) &&
		string(c.RawIssuer) != string(c.RawSubject)
}

// counting is an http.RoundTripper that counts outdated certificates, those of redirects, too.
type counting struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t counting) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(request)
	OutdatedCertificates.Count(request.Context(), request.URL.Hostname(), answer, err)
	return answer, err
}

// CloseIdleConnections is what http.Client looks for.
func (t counting) CloseIdleConnections() {
	(&http.Client{Transport: t.RoundTripper}).CloseIdleConnections()
}

// Notes are annotations for the audit event of a request, of the calls that are made for it. They may be written
// concurrently, and by calls that outlive the request. A nil one keeps nothing.
type Notes struct {
	mu    sync.Mutex
	notes map[string]string // nil: none
}

type notesKey struct{}

// Noting returns a context whose calls leave their notes in the result.
func Noting(ctx context.Context) (context.Context, *Notes) {
	n := &Notes{}
	return context.WithValue(ctx, notesKey{}, n), n
}

// All returns the notes so far.
func (n *Notes) All() map[string]string {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.notes)
}

func note(ctx context.Context, key, value string) {
	n, _ := ctx.Value(notesKey{}).(*Notes)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.notes == nil {
		n.notes = map[string]string{}
	}
	n.notes[key] = value
}
