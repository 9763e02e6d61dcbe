// Package expiry knows when certificates expire: it judges one at a time ([Judge]), and keeps those that a server uses,
// by what for ([Certificates]), for its log and its metrics.
package expiry

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Soon is from when on the end of a certificate is worth a word. A server renews those that it has made itself long
// before (pki.Due); others need a person. An authority needs more time: all who believe it have to get the new one
// before the old one expires.
func Soon(c *x509.Certificate) time.Duration {
	if c.IsCA {
		return 180 * 24 * time.Hour
	}
	return 30 * 24 * time.Hour
}

// State is how a certificate stands at one time.
type State int

// The states.
const (
	Valid State = iota
	Expiring
	Expired
	NotYet // it is not valid yet: the clock is behind, or was ahead
)

// Judge returns how a certificate stands at a time, and says so in words, after the certificate's name.
func Judge(c *x509.Certificate, now time.Time) (State, string) {
	switch end := c.NotAfter.UTC().Format(time.DateOnly); {
	case now.After(c.NotAfter):
		return Expired, "expired on " + end
	case now.Before(c.NotBefore):
		return NotYet, "is valid from " + c.NotBefore.UTC().Format(time.RFC3339)
	case now.Add(Soon(c)).After(c.NotAfter):
		return Expiring, "expires on " + end
	default:
		return Valid, "is valid until " + end
	}
}

// Parse returns the certificates in PEM. A text without any is an error.
func Parse(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errors.New("there is no certificate in PEM")
	}
	return all, nil
}

// Certificates are those that a server uses. The zero value has none; it may be used concurrently.
type Certificates struct {
	mu     sync.Mutex
	uses   []Use
	warned time.Time // when Warn has logged last
	looked time.Time // with which Warn was called last
}

// Use is what a server has certificates for.
type Use struct {
	For          string // such as "serving" or "client-ca"; a label of a metric
	File         string // where they are from; "": they are in memory alone
	Certificates []*x509.Certificate
}

// First is the certificate of a use that expires first.
func (u *Use) First() *x509.Certificate {
	return slices.MinFunc(u.Certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
}

// Set records the certificates of a use and a file, in place of those that it had. A text without a certificate changes
// nothing.
func (s *Certificates) Set(use, file string, text []byte) {
	all, err := Parse(text)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.uses, func(u Use) bool { return u.For == use && u.File == file })
	if i < 0 {
		s.uses = append(s.uses, Use{For: use, File: file, Certificates: all})
		return
	}
	s.uses[i].Certificates = all
}

// Uses are the recorded ones, in the order in which they came.
func (s *Certificates) Uses() []Use {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.uses)
}

// warnEvery is how often Warn repeats itself.
const warnEvery = 24 * time.Hour

// Warn logs which of the certificates have expired, or do so soon: at its first call, and after that daily.
func (s *Certificates) Warn(logger *slog.Logger, now time.Time) {
	s.mu.Lock()
	s.looked = now
	if since := now.Sub(s.warned); !s.warned.IsZero() && since >= 0 && since < warnEvery {
		s.mu.Unlock()
		return
	}
	s.warned = now
	uses := slices.Clone(s.uses)
	s.mu.Unlock()
	for _, u := range uses {
		for i, c := range u.Certificates {
			known := func(other *x509.Certificate) bool { return bytes.Equal(other.Raw, c.Raw) }
			if slices.ContainsFunc(u.Certificates[:i], known) {
				continue
			}
			state, says := Judge(c, now)
			if state == Valid {
				continue
			}
			level := slog.LevelWarn
			if state != Expiring {
				level = slog.LevelError
			}
			logger.Log(context.Background(), level, fmt.Sprintf("a certificate %s; %s", says, advice(c)), "use", u.For,
				"file", u.File, "subject", c.Subject.String(), "days", int(c.NotAfter.Sub(now).Hours()/24))
		}
	}
}

// LastLook is the time with which Warn was called last.
func (s *Certificates) LastLook() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked
}

// advice is what to do about a certificate that expires.
func advice(c *x509.Certificate) string {
	if c.IsCA {
		return "an authority is never replaced by itself: all who believe it need the new one beside it first"
	}
	return "put a new one in its place; it is read without a restart"
}
