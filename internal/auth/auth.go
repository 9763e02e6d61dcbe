// Package auth finds out who asks (AUTH-1).
//
// An [Authenticator] knows client certificates and static bearer tokens; who shows neither is anonymous. What they may do is
// for package authz to say.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"plinth/internal/access"
)

// ErrInvalid means that the request shows credentials that nobody has: 401, not anonymous.
var ErrInvalid = errors.New("auth: invalid credentials")

// Authenticator finds out who sends a request.
type Authenticator struct {
	// tokens are kept by their hash, so that looking one up tells nothing by its timing.
	tokens  map[[sha256.Size]byte]access.User
	clients *x509.CertPool
	now     func() time.Time
	// RefuseAnonymous refuses requests without credentials. It is set before the first one.
	RefuseAnonymous bool
}

// New makes an authenticator with the authorities that sign client certificates, and with the static tokens of a file in
// kube-apiserver's format; "" for none.
func New(clients *x509.CertPool, tokenFile string) (*Authenticator, error) {
	a := &Authenticator{tokens: map[[sha256.Size]byte]access.User{}, clients: clients, now: time.Now}
	if tokenFile == "" {
		return a, nil
	}
	file, err := os.Open(tokenFile)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := a.readTokens(file); err != nil {
		return nil, fmt.Errorf("%s: %w", tokenFile, err)
	}
	return a, nil
}

// readTokens reads lines of token,user,uid[,"group,group"].
func (a *Authenticator) readTokens(in io.Reader) error {
	lines := csv.NewReader(in)
	lines.FieldsPerRecord = -1
	lines.TrimLeadingSpace = true
	for {
		record, err := lines.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		line, _ := lines.FieldPos(0)
		if len(record) < 3 {
			return fmt.Errorf("line %d has %d columns; a token, a user name and a user UID are needed", line, len(record))
		}
		if record[0] == "" {
			return fmt.Errorf("line %d has an empty token", line)
		}
		user := access.User{Name: record[1], UID: record[2]}
		if len(record) > 3 && record[3] != "" {
			user.Groups = strings.Split(record[3], ",")
		}
		user.Groups = append(user.Groups, access.Authenticated)
		a.tokens[sha256.Sum256([]byte(record[0]))] = user
	}
}

// Authenticate says who sends the request; who shows no credentials is anonymous. The error is ErrInvalid. As in the
// reference a certificate goes before a token, and one that is no good does no harm beside a token that is.
func (a *Authenticator) Authenticate(r *http.Request) (access.User, error) {
	user, byCertificate := a.certified(r)
	if byCertificate == nil && user.Name != "" {
		return user, nil
	}
	token, err := tokenOf(r)
	if err != nil {
		return access.User{}, err
	}
	if token == "" {
		switch {
		case byCertificate != nil:
			return access.User{}, byCertificate
		case a.RefuseAnonymous:
			return access.User{}, ErrInvalid
		}
		return access.Nobody(), nil
	}
	user, ok := a.Token(token)
	if !ok {
		return access.User{}, ErrInvalid
	}
	return user, nil
}

// Token says whose a bearer token is.
func (a *Authenticator) Token(token string) (user access.User, ok bool) {
	user, ok = a.tokens[sha256.Sum256([]byte(token))]
	return user, ok
}

// tokenOf is the bearer token that a request shows; "" for none.
func tokenOf(r *http.Request) (string, error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	token, _, _ = strings.Cut(token, " ")                   // as in the reference what follows means nothing, and two spaces are no token
	if strings.EqualFold(scheme, "Bearer") && token != "" { // other schemes are nobody's credentials here
		return token, nil
	}
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return takeSocketToken(r.Header)
	}
	return "", nil
}

const (
	socketProtocols = "Sec-Websocket-Protocol"
	socketBearer    = "base64url.bearer.authorization.k8s.io."
)

// takeSocketToken takes a bearer token out of the subprotocols of a WebSocket: there is no other header of one that a browser
// lets its pages set. A server has to choose among the subprotocols, and it cannot choose the token: there must be another.
func takeSocketToken(header http.Header) (string, error) {
	var others []string
	token := ""
	for protocol := range strings.SplitSeq(strings.Join(header[socketProtocols], ","), ",") {
		protocol = strings.TrimSpace(protocol)
		encoded, ok := strings.CutPrefix(protocol, socketBearer)
		if !ok {
			others = append(others, protocol)
			continue
		}
		raw, err := base64.RawURLEncoding.DecodeString(encoded)
		if err != nil || len(raw) == 0 || token != "" {
			return "", ErrInvalid
		}
		token = string(raw)
	}
	switch {
	case token == "":
		return "", nil
	case len(others) == 0:
		return "", ErrInvalid
	}
	header.Set(socketProtocols, strings.Join(others, ","))
	return token, nil
}

// verdict is what the certificate of a connection says. To verify signatures takes longer than most requests do, so it is
// kept for the requests that follow, for as long as time alone cannot change it.
type verdict struct {
	user  access.User
	err   error
	until time.Time // zero: for ever
}

type verdictKey struct{}

// Remember gives the requests of a connection a place for what its certificate says. It is an http.Server's ConnContext.
func Remember(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, verdictKey{}, &atomic.Pointer[verdict]{})
}

// certified says who the client certificate is, if there is one.
func (a *Authenticator) certified(r *http.Request) (access.User, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return access.User{}, nil
	}
	kept, ok := r.Context().Value(verdictKey{}).(*atomic.Pointer[verdict])
	if !ok {
		v := a.verify(r.TLS.PeerCertificates)
		return v.user, v.err
	}
	v := kept.Load()
	if v == nil || !v.until.IsZero() && !a.now().Before(v.until) {
		v = a.verify(r.TLS.PeerCertificates)
		kept.Store(v)
	}
	return v.user, v.err
}

// verify looks for a chain from a client's certificate, which comes first, to an authority.
func (a *Authenticator) verify(shown []*x509.Certificate) *verdict {
	now := a.now()
	options := x509.VerifyOptions{
		Roots: a.clients, Intermediates: x509.NewCertPool(), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if a.clients == nil { // without roots the system's would count
		return &verdict{err: ErrInvalid}
	}
	for _, c := range shown[1:] {
		options.Intermediates.AddCert(c)
	}
	subject := shown[0].Subject
	chains, err := shown[0].Verify(options)
	if err != nil || subject.CommonName == "" {
		return &verdict{err: ErrInvalid, until: nextStart(shown, now)}
	}
	user := access.User{Name: subject.CommonName, Groups: append(slices.Clone(subject.Organization), access.Authenticated)}
	return &verdict{user: user, until: lastEnd(chains)}
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
