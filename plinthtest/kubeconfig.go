package plinthtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/kubeconfig"
	"plinth/internal/pki"
)

// port is the listener of a plane, if there is one.
type port struct {
	mu     sync.Mutex
	http   *http.Server // nil: there is none
	done   chan error
	url    string
	admin  pki.Pair
	folder string // of file
	file   string // the kubeconfig; "": there is none
}

// Kubeconfig returns the file name of the administrator's kubeconfig. From its first call on the plane accepts
// connections at a port of the loopback address: for kubectl, Helm and other programs. In a bubble it fails the test,
// because virtual time would stand still while a connection waits for the network. Only the goroutine of the test may
// call it first.
func (p *Plane) Kubeconfig() string {
	p.t.Helper()
	entry, err := p.listen()
	if err == nil {
		err = p.port.write(entry)
	}
	if err != nil {
		p.t.Fatalf("plinthtest: Kubeconfig: %v", err)
	}
	return p.port.file
}

// write writes the kubeconfig, on the first call.
func (p *port) write(entry *kubeconfig.Entry) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != "" {
		return nil
	}
	if p.folder, err = os.MkdirTemp("", "plinthtest"); err != nil {
		return err
	}
	file := filepath.Join(p.folder, "kubeconfig")
	if err := kubeconfig.Write(context.Background(), file, entry); err != nil {
		return errors.Join(err, os.RemoveAll(p.folder))
	}
	p.file = file
	return nil
}

// listen opens the port, on the first call, and returns the administrator's access to it.
func (p *Plane) listen() (*kubeconfig.Entry, error) {
	if p.bubble {
		return nil, errors.New("a bubble has no sockets: virtual time does not pass while a goroutine waits for one")
	}
	p.port.mu.Lock()
	defer p.port.mu.Unlock()
	authority := sharedKeys(p.bubble).authority
	if p.port.http == nil {
		serving, admin, err := certificates(authority)
		if err != nil {
			return nil, err
		}
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		p.port.url, p.port.admin = "https://"+listener.Addr().String(), admin
		p.port.http = &http.Server{Handler: p.front, TLSConfig: serving, ConnContext: auth.Remember}
		p.port.done = make(chan error, 1)
		go func() { p.port.done <- p.port.http.ServeTLS(listener, "", "") }()
	}
	return &kubeconfig.Entry{Name: "plinth", User: "plinth-admin", Server: p.port.url, Authority: authority.PEM,
		Cert: p.port.admin.Cert, Key: p.port.admin.Key}, nil
}

// close ends the connections.
func (p *port) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.http == nil {
		return nil
	}
	err := p.http.Close()
	if ended := <-p.done; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	if p.folder != "" {
		err = errors.Join(err, os.RemoveAll(p.folder))
	}
	return err
}

// certificates makes the TLS configuration of the listener, and the administrator's client certificate.
func certificates(by *pki.Authority) (*tls.Config, pki.Pair, error) {
	leaf, err := by.Leaf("server", pkix.Name{CommonName: "plinth"}, []string{"localhost", "127.0.0.1"})
	if err != nil {
		return nil, leaf, err
	}
	signed, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		return nil, leaf, err
	}
	admin, err := by.Leaf("admin", pkix.Name{CommonName: "plinth-admin", Organization: []string{access.Masters}}, nil)
	clients := x509.NewCertPool()
	clients.AddCert(by.Certificate)
	// Package auth verifies client certificates, so that a bad one is answered with 401.
	return &tls.Config{Certificates: []tls.Certificate{signed}, ClientAuth: tls.RequestClientCert, ClientCAs: clients,
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}, admin, err
}
