package httpapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
)

// What passes an upgraded connection arrives whole, whatever the sizes of the parts are.
//
// SPEC: URI-7
func TestUpgradedConnectionsCopyAll(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var sent []byte
		var parts [][]byte
		for range r.IntN(20) {
			size := []int{0, 1, 100, waitingBuffer - 1, waitingBuffer, waitingBuffer + 1, movingBuffer, 100000}[r.IntN(8)]
			part := make([]byte, size)
			for i := range part {
				part[i] = byte(r.IntN(256))
			}
			sent, parts = append(sent, part...), append(parts, part)
		}
		client, server := net.Pipe()
		u := newUpgraded(server, t.Context())
		go func() {
			defer client.Close()
			for _, part := range parts {
				if _, err := client.Write(part); err != nil {
					t.Error(err)
				}
			}
		}()
		var got bytes.Buffer
		n, err := io.Copy(&got, u) // it uses WriteTo
		if err != nil || n != int64(len(sent)) || !bytes.Equal(got.Bytes(), sent) {
			t.Fatalf("%d of %d bytes arrived, %v", n, len(sent), err)
		}
		u.Close()
		client, server = net.Pipe()
		u = newUpgraded(server, t.Context())
		got.Reset()
		read := make(chan error)
		go func() {
			_, err := io.Copy(&got, client)
			read <- err
		}()
		n, err = io.Copy(u, io.MultiReader(bytes.NewReader(sent))) // it uses ReadFrom
		u.Close()
		if failed := <-read; err != nil || failed != nil || n != int64(len(sent)) || !bytes.Equal(got.Bytes(), sent) {
			t.Fatalf("%d of %d bytes were sent, %v, %v", n, len(sent), err, failed)
		}
	}
}

// An upgraded connection ends when the server closes, and its end leaves nothing behind.
//
// SPEC: URI-7
func TestUpgradedConnectionsEndWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing, shut := context.WithCancel(t.Context())
		client, server := net.Pipe()
		defer client.Close()
		ended := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, newUpgraded(server, closing))
			ended <- err
		}()
		synctest.Wait()
		shut()
		if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	})
}

// A page of another origin opens no connection with the client certificate of a browser.
//
// SPEC: URI-7
func TestConnectionsOfOtherPages(t *testing.T) {
	for _, c := range []struct {
		origin      string
		certificate bool
		socket      bool
		want        bool
		proxy       string // a header of one
	}{
		{"https://evil.example", true, true, true, ""},
		{"https://evil.example", true, true, false, "X-Forwarded-For"}, // the certificate is the proxy's
		{"https://evil.example", true, true, false, "Forwarded"},
		{"https://evil.example", true, true, false, "Via"},
		{"https://evil.example", true, true, true, "X-Forwarded-Host"},
		{"https://evil.example", true, false, false, ""}, // a script cannot read the answer, and a preflight is needed
		{"https://evil.example", false, true, false, ""}, // the page knows the token
		{"https://API.example", true, true, false, ""},
		{"https://api.example:444", true, true, true, ""},
		{"null", true, true, true, ""},
		{"%", true, true, true, ""},
		{"", true, true, false, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "https://api.example/api/v1/namespaces/a/pods/p/exec", nil)
		r.TLS = &tls.ConnectionState{}
		if c.certificate {
			r.TLS.PeerCertificates = []*x509.Certificate{{}}
		}
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.proxy != "" {
			r.Header.Set(c.proxy, "192.0.2.1")
		}
		if c.socket {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
		}
		if got := ofAnotherPage(r); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
