package expiry

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"strings"
	"testing"
	"time"

	"plinth/internal/pki"
)

// A certificate is judged by what is left of it, an authority earlier than others.
//
// SPEC: AUTH-11
func TestJudge(t *testing.T) {
	const day = 24 * time.Hour
	end := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		authority bool
		left      time.Duration
		want      State
		says      string
	}{
		{false, 31 * day, Valid, "is valid until 2030-01-01"}, {false, 29 * day, Expiring, "expires on 2030-01-01"},
		{false, -time.Second, Expired, "expired on 2030-01-01"},
		{false, 400 * day, NotYet, "is valid from 2029-01-01T00:00:00Z"},
		{true, 181 * day, Valid, "is valid until 2030-01-01"}, {true, 179 * day, Expiring, "expires on 2030-01-01"},
	} {
		is := &x509.Certificate{IsCA: c.authority, NotBefore: end.AddDate(-1, 0, 0), NotAfter: end}
		if state, says := Judge(is, end.Add(-c.left)); state != c.want || says != c.says {
			t.Errorf("%+v: %d, %s", c, state, says)
		}
	}
}

// Warnings are daily, one for each certificate that expires, and name its use, file and subject.
//
// SPEC: AUTH-11
func TestWarn(t *testing.T) {
	start := time.Now()
	authority, err := pki.Open("", "some-ca", start)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := authority.Leaf("x", pkix.Name{CommonName: "joe"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all Certificates
	all.Set("own-ca", "", authority.PEM)
	all.Set("administrator", "/admin.crt", append(leaf.Cert, authority.PEM...))
	all.Set("administrator", "/admin.crt", leaf.Cert)
	all.Set("nothing", "/none", []byte("no PEM"))
	if uses := all.Uses(); len(uses) != 2 || uses[1].First().Subject.CommonName != "joe" {
		t.Errorf("uses: %+v", uses)
	}
	for _, c := range []struct {
		after time.Duration
		want  string // in the log; "": nothing is
	}{
		{0, ""}, {pki.LeafLife - 47*time.Hour, "a certificate expires on"}, {pki.LeafLife - 46*time.Hour, ""},
		{pki.LeafLife - 22*time.Hour, "level=WARN msg=\"a certificate expires on"},
		{pki.LeafLife + 3*time.Hour, "level=ERROR msg=\"a certificate expired on"},
		{pki.LeafLife - time.Hour, "level=WARN msg=\"a certificate expires on"}, // the clock was ahead, and was set
	} {
		var log bytes.Buffer
		all.Warn(slog.New(slog.NewTextHandler(&log, nil)), start.Add(c.after))
		text := log.String()
		if (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("after %s: %s", c.after, text)
		}
		if c.want != "" && (strings.Count(text, "\n") != 1 || !strings.Contains(text, "use=administrator file=/admin.crt") ||
			!strings.Contains(text, "CN=joe")) {
			t.Errorf("after %s: %s", c.after, text)
		}
	}
}
