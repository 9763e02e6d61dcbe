package aggregation

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"plinth/internal/view"
	"plinth/object"
)

// Counters count the requests that were forwarded to backends whose certificate has an outdated form, whether it was
// accepted or refused. One without subject alternative names, or signed with SHA-1, is refused if it is verified,
// unless GODEBUG says otherwise.
type Counters struct{ MissingSAN, InsecureSHA1 atomic.Int64 }

var subjectAlternativeNames = asn1.ObjectIdentifier{2, 5, 29, 17}

// count is forward.Target.Answered. What it compares are the errors of crypto/x509 that the reference compares.
func (c *Counters) count(answer *http.Response, err error) {
	if err != nil {
		var name x509.HostnameError
		if errors.As(err, &name) && strings.Contains(err.Error(), "certificate relies on legacy Common Name field") {
			c.MissingSAN.Add(1)
		}
		var unknown x509.UnknownAuthorityError
		if _, why, ok := strings.Cut(err.Error(), "x509: cannot verify signature: insecure algorithm"); ok &&
			errors.As(err, &unknown) && strings.Contains(why, "SHA1") {
			c.InsecureSHA1.Add(1)
		}
		return
	}
	if answer.TLS == nil || len(answer.TLS.PeerCertificates) == 0 {
		return
	}
	chain := answer.TLS.PeerCertificates
	named := func(e pkix.Extension) bool { return e.Id.Equal(subjectAlternativeNames) }
	if !slices.ContainsFunc(chain[0].Extensions, named) {
		c.MissingSAN.Add(1)
	}
	if slices.ContainsFunc(chain, signedWithSHA1) {
		c.InsecureSHA1.Add(1)
	}
}

// signedWithSHA1 says whether another authority has signed the certificate with SHA-1.
func signedWithSHA1(c *x509.Certificate) bool {
	return (c.SignatureAlgorithm == x509.SHA1WithRSA || c.SignatureAlgorithm == x509.ECDSAWithSHA1) &&
		string(c.RawIssuer) != string(c.RawSubject)
}

// Availability says of each APIService, by its name, whether it is available. It is read by metrics alone, so nothing
// is compiled on a server whose metrics nobody reads.
func (a *Aggregator) Availability() map[string]bool {
	known, _ := a.availability.Now() // nothing is known of those that cannot be read
	return known
}

// compileAvailability is a view.Compile.
func compileAvailability(before map[string]bool, changes iter.Seq[view.Change]) map[string]bool {
	now := maps.Clone(before)
	if now == nil {
		now = map[string]bool{}
	}
	for c := range changes {
		delete(now, c.Name)
		if c.Version == nil || c.Version.Sidecar.Unreadable != nil {
			continue
		}
		if obj, err := object.ParseJSON(c.Version.Data()); err == nil {
			now[c.Name] = isAvailable(obj.Value)
		}
	}
	return now
}
