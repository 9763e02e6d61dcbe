package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"plinth/conformance/internal/authority"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// The states of an aggregated API server, in which users go on to ask it. It is a process of its own.
const (
	works   = "works"
	killed  = "killed"
	stopped = "stopped"             // SIGSTOP: it accepts connections, and is silent
	garbage = "answers garbage"     // to everything
	forever = "answers forever"     // also when it is asked what it serves
	wrong   = "a wrong certificate" // by which it is known from the start
)

const (
	backendCommand = "backend"

	backendGroup = "backend.example.com"
	backendPath  = "/apis/" + backendGroup + "/v1"
	askers       = 20
	// A client of the backend pauses after each answer, and does not wait for one longer than patience.
	askPause, patience = 50 * time.Millisecond, 2 * time.Second
	foreverPause       = 50 * time.Millisecond // between two parts of an answer without an end
)

// askBackend lists the objects of the backend. One client in ten asks what all servers serve.
func askBackend(ctx context.Context, c *load.Client, token string, i int64) error {
	time.Sleep(askPause)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rq := load.Request{Method: http.MethodGet, Path: backendPath + "/namespaces/other/things", Token: token}
	if i%10 == 0 {
		rq.Path, rq.Accept = "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	}
	_, err := c.Discard(ctx, rq)
	return err
}

// serveBackend is the process of a backend: STATE. It prints its port and its authority in Base64, and ends with its
// input.
func serveBackend(args []string) error {
	by, err := authority.New("backend", time.Hour)
	if err != nil {
		return err
	}
	pair, err := by.Sign(pkix.Name{CommonName: "backend"}, nil)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port, base64.StdEncoding.EncodeToString(by.PEM()))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	const list = `{"kind":"ThingList","apiVersion":"` + backendGroup + `/v1","metadata":{},"items":[]}`
	const resources = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"` + backendGroup + `/v1","resources":[` +
		`{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get","list"]}]}`
	server := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{*pair}}}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case args[0] == garbage:
			_, _ = w.Write([]byte(strings.Repeat("\x00\xff{]", 1000)))
		case args[0] == forever:
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte(strings.Repeat(" ", 1000)))
				_ = http.NewResponseController(w).Flush()
				time.Sleep(foreverPause)
			}
		case r.URL.Path == backendPath:
			_, _ = io.WriteString(w, resources)
		case strings.HasPrefix(r.URL.Path, backendPath):
			_, _ = io.WriteString(w, list)
		default:
			http.NotFound(w, r)
		}
	})
	return server.ServeTLS(listener, "", "")
}

// backend starts a backend of a server, has it known, and brings it into a state. The function that is returned removes
// it.
func (s *subject) backend(ctx context.Context, state string) (remove func() error, err error) {
	cmd, in, out, err := load.Copy(backendCommand, state)
	if err != nil {
		return nil, err
	}
	c := load.New(&harness.Server{URL: s.flood.url}, 1)
	const services = "/api/v1/namespaces/other/services"
	const apis = "/apis/apiregistration.k8s.io/v1/apiservices"
	const name = "/v1." + backendGroup
	remove = func() error {
		_, first := c.Discard(ctx, load.Request{Method: http.MethodDelete, Path: apis + name})
		_, second := c.Discard(ctx, load.Request{Method: http.MethodDelete, Path: services + "/backend"})
		c.Close()
		third := errors.Join(cmd.Process.Kill(), in.Close())
		_ = cmd.Wait() // it was killed
		return errors.Join(first, second, third)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	var port int
	var ca string
	if _, err := fmt.Sscan(line, &port, &ca); err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	verified := `"insecureSkipTLSVerify":true`
	if state == wrong { // it is for no name at all
		verified = `"caBundle":"` + ca + `"`
	}
	_, err = c.Discard(ctx, load.Request{Method: http.MethodPost, Path: services, Body: []byte(
		`{"metadata":{"name":"backend"},"spec":{"type":"ExternalName","externalName":"127.0.0.1"}}`)})
	_, second := c.Discard(ctx, load.Request{Method: http.MethodPost, Path: apis, Body: fmt.Appendf(nil,
		`{"metadata":{"name":%q},"spec":{"group":%q,"version":"v1","groupPriorityMinimum":100,"versionPriority":10,%s,`+
			`"service":{"namespace":"other","name":"backend","port":%d}}}`, name[1:], backendGroup, verified, port)})
	if err := errors.Join(err, second, awaitBackend(ctx, c, apis+name, state)); err != nil {
		return nil, errors.Join(err, remove())
	}
	switch state {
	case killed:
		err = cmd.Process.Kill()
	case stopped:
		err = cmd.Process.Signal(syscall.SIGSTOP)
	}
	return remove, err
}

// awaitBackend waits until the server knows that a backend is there, or has found that its certificate is wrong.
func awaitBackend(ctx context.Context, c *load.Client, path, state string) error {
	want := `"status":"True"`
	if state == wrong {
		want = `"reason":"FailedDiscoveryCheck"`
	}
	var text []byte
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var err error
		if text, err = c.Do(ctx, load.Request{Method: http.MethodGet, Path: path}); err != nil {
			return err
		}
		if strings.Contains(string(text), want) {
			return nil
		}
	}
	return fmt.Errorf("the backend does not become what it is to be: %s", text)
}
