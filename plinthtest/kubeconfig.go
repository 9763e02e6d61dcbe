package plinthtest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"plinth/internal/server"
)

// port is the listener of a plane, if there is one.
type port struct {
	mu     sync.Mutex
	http   *http.Server
	done   chan error
	folder string
	file   string // the kubeconfig
}

// Kubeconfig returns the file name of the administrator's kubeconfig. From its first call on the plane accepts
// connections at a port of the loopback address: for kubectl, Helm and other programs. In a bubble it fails the test,
// because virtual time would stand still while a connection waits for the network. Only the goroutine of the test may
// call it first.
func (p *Plane) Kubeconfig() string {
	p.t.Helper()
	file, err := p.listen()
	if err != nil {
		p.t.Fatalf("plinthtest: Kubeconfig: %v", err)
	}
	return file
}

func (p *Plane) listen() (string, error) {
	if p.bubble {
		return "", errors.New("a bubble has no sockets: virtual time does not pass while a goroutine waits for one")
	}
	s := p.current()
	p.port.mu.Lock()
	defer p.port.mu.Unlock()
	if p.port.file != "" {
		return p.port.file, nil
	}
	config, err := s.Certificates()
	if err != nil {
		return "", err
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	if p.port.folder, err = os.MkdirTemp("", "plinthtest"); err != nil {
		return "", errors.Join(err, listener.Close())
	}
	file := filepath.Join(p.port.folder, "kubeconfig")
	if err := s.Kubeconfig(file, "https://"+listener.Addr().String()); err != nil {
		return "", errors.Join(err, listener.Close(), os.RemoveAll(p.port.folder))
	}
	p.port.http = &http.Server{Handler: p.front, TLSConfig: config, ConnContext: server.ConnContext}
	p.port.done = make(chan error, 1)
	go func() { p.port.done <- p.port.http.ServeTLS(listener, "", "") }()
	p.port.file = file
	return file, nil
}

// close ends the connections.
func (p *port) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == "" {
		return nil
	}
	err := p.http.Close()
	if ended := <-p.done; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, os.RemoveAll(p.folder))
}
