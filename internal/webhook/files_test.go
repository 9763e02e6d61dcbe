package webhook

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a net.Listener whose connections are pipes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { close(p); return nil }

func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// pairOf makes a certificate for a name, signed by itself, and its key, in PEM.
func pairOf(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}}
	made := issue(t, template, nil, private, private)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Raw}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// A client certificate that is replaced in its files is used a minute later, also in place of an open connection; until
// the key is replaced, too, the old one is.
//
// SPEC: AUTH-11
func TestClientCertificatesAreReadAgain(t *testing.T) { synctest.Test(t, replaceClientCertificate) }

func replaceClientCertificate(t *testing.T) {
	dir, listener := t.TempDir(), make(pipes)
	put := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, key := pairOf(t, "one")
	put("cert", cert)
	put("key", key)
	serving, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}), ErrorLog: log.New(io.Discard, "", 0)}
	go server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{serving},
		ClientAuth: tls.RequireAnyClientCert}))
	defer server.Close()
	r, err := newRemote(&cluster{Server: "https://hook.example.com", Insecure: true},
		&user{CertFile: "cert", KeyFile: "key"}, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.http.Transport.(counting).RoundTripper.(*http.Transport).DialContext = listener.dial
	is := func(want string) {
		t.Helper()
		if got, err := r.Post(t.Context(), nil); err != nil || string(got) != want {
			t.Errorf("the certificate is %q (%v), want %q", got, err, want)
		}
	}
	is("one")
	cert, key = pairOf(t, "two")
	put("cert", cert)
	is("one")
	time.Sleep(fileLife)
	is("one")
	put("key", key)
	is("two")
}

// Authorities that are replaced in their file are believed a minute later; a file without any changes nothing.
//
// SPEC: AUTH-11
func TestAuthoritiesAreReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca")
	serve := func() (address string, authority []byte) {
		cert, key := pairOf(t, "hook.example.com")
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.URL, cert
	}
	first, authority := serve()
	second, next := serve()
	put := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(authority)
	r, err := newRemote(&cluster{Server: first, CAFile: file, ServerName: "hook.example.com"}, &user{}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	believed := func() string {
		var all []string
		for i, address := range []string{first, second} {
			_, err := post(t.Context(), r.http, address, "agent", nil, nil)
			if err == nil {
				all = append(all, fmt.Sprint(i+1))
			} else if !strings.Contains(err.Error(), "unknown authority") {
				t.Error(err)
			}
		}
		return strings.Join(all, ",")
	}
	now, authorities := time.Now(), &r.http.Transport.(counting).RoundTripper.(*rotating).fromFiles
	for i, step := range []struct {
		text []byte
		want string
	}{{authority, "1"}, {next, "2"}, {nil, "2"}, {append(authority, next...), "1,2"}} {
		put(step.text)
		now = now.Add(fileLife)
		if _, err := authorities.get(now); err != nil {
			t.Fatal(err)
		}
		if got := believed(); got != step.want {
			t.Errorf("step %d: believed are %q, want %q", i, got, step.want)
		}
	}
}
