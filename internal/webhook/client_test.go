package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"plinth/internal/egress"
	"plinth/object"
)

// bundleOf returns the certificate of a test server as the caBundle of a configuration.
func bundleOf(s *httptest.Server) object.Value {
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return object.StringOf(base64.StdEncoding.EncodeToString(text))
}

func at(s *httptest.Server, path string) object.Value {
	return object.Fields("url", object.StringOf(s.URL+path), "caBundle", bundleOf(s))
}

// SPEC: EXT-1
func TestCall(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		t.Error("the body was sent to a redirect without TLS")
	}))
	defer plain.Close()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch r.URL.Path {
		case "/echo":
			fmt.Fprintf(w, "%s %s %s %s %s", r.Method, r.URL.RawQuery, r.Header.Get("Content-Type"), r.Proto, body)
		case "/broken":
			http.Error(w, "it broke", http.StatusInternalServerError)
		case "/status":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not you"}`)
		case "/endless":
			page := bytes.Repeat([]byte{' '}, 1<<20)
			for {
				if _, err := w.Write(page); err != nil {
					return
				}
			}
		case "/away":
			http.Redirect(w, r, plain.URL, http.StatusTemporaryRedirect)
		case "/hang":
			<-r.Context().Done()
		case "/cut":
			panic(http.ErrAbortHandler)
		}
	}))
	defer s.Close()
	c := &Clients{}
	for path, want := range map[string]string{
		"/broken":  `an error on the server ("it broke") has prevented the request from succeeding`,
		"/status":  "not you",
		"/endless": "the response of the webhook is longer than 33554432 bytes",
		"/away":    `Post "` + plain.URL + `": the webhook redirects to ` + plain.URL + `, which is not an https URL`,
		"/cut":     `Post "` + s.URL + `/cut?timeout=30s": EOF`,
	} {
		if _, err := c.Call(t.Context(), at(s, path), nil); err == nil || err.Error() != want {
			t.Errorf("%s: have %v\nwant %s", path, err, want)
		}
	}
	answer, err := c.Call(t.Context(), at(s, "/echo"), []byte("{}"))
	if err != nil || string(answer) != "POST timeout=30s application/json HTTP/1.1 {}" {
		t.Errorf("/echo: have %q, %v; want the request as it was sent", answer, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Call(short, at(s, "/hang"), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call with a deadline of 50 ms: have %v, want DeadlineExceeded", err)
	}

	// Only the CA certificates of the bundle are trusted.
	other := object.Fields("url", object.StringOf(s.URL+"/echo"))
	if _, err := c.Call(t.Context(), other, nil); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a webhook with an unknown CA: have %v, want an error about its certificate", err)
	}
	for bundle, want := range map[string]string{
		"bm9uZQ==": "unable to load root certificates: ", "!": "caBundle: illegal base64 data",
	} {
		config := other.With("caBundle", object.StringOf(bundle))
		if _, err := c.Call(t.Context(), config, nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("with the bundle %q: have %v, want %s…", bundle, err, want)
		}
	}
	if _, err := c.Call(t.Context(), object.MapOf(), nil); err == nil ||
		err.Error() != "webhook configuration must have either service or URL" {
		t.Errorf("without an address: have %v", err)
	}
}

// Clients are kept, so that their connections are used again; maxClients of them at most.
//
// SPEC: EXT-1
func TestClientsAreKept(t *testing.T) {
	connections := map[string]bool{}
	s := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		connections[r.RemoteAddr] = true
	}))
	defer s.Close()
	c := &Clients{}
	for range 5 {
		if _, err := c.Call(t.Context(), at(s, "/"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(connections) != 1 {
		t.Errorf("%d connections for 5 calls, want 1", len(connections))
	}
	for i := range maxClients + 10 {
		if _, err := c.of(t.Context(), NewConfig(at(s, fmt.Sprintf("/%d", i)))); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.kept) != maxClients {
		t.Errorf("%d clients are kept, want %d", len(c.kept), maxClients)
	}
}

// SPEC: EXT-1
func TestCallOfAService(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Host+r.URL.Path+" for "+r.TLS.ServerName)
	}))
	defer s.Close()
	asked := ""
	c := &Clients{Endpoint: func(_ context.Context, namespace, service string, port int64) (string, error) {
		asked = fmt.Sprintf("%s/%s:%d", namespace, service, port)
		return s.Listener.Addr().String(), nil
	}}
	config := object.Fields("caBundle", bundleOf(s), "service", object.Fields(
		"namespace", object.StringOf("ns"), "name", object.StringOf("hook"), "path", object.StringOf("/convert")))
	// The certificate of a service must be for its name, but that of the test server is for example.com.
	_, err := c.Call(t.Context(), config, nil)
	if asked != "ns/hook:443" || err == nil || !strings.Contains(err.Error(), "not hook.ns.svc") {
		t.Errorf("Endpoint was called for %q, want ns/hook:443; have the error %v, want one about the name hook.ns.svc",
			asked, err)
	}
	made, err := c.of(t.Context(), NewConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	made.http.Transport.(counting).RoundTripper.(*toService).TLSClientConfig.ServerName = "example.com"
	if answer, err := c.Call(t.Context(), config, nil); err != nil ||
		string(answer) != "hook.ns.svc:443/convert for example.com" {
		t.Errorf("a call of the service: have %q, %v", answer, err)
	}
	// Each call goes to an endpoint of its time, also when a connection to an earlier one is open.
	other := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "the other one for "+r.Host)
	}))
	other.StartTLS()
	defer other.Close()
	endpoint := c.Endpoint
	c.Endpoint = func(context.Context, string, string, int64) (string, error) {
		return other.Listener.Addr().String(), nil
	}
	answer, err := c.Call(t.Context(), config, nil)
	if string(answer) != "the other one for hook.ns.svc:443" || err != nil {
		t.Errorf("a call after the endpoint has changed: have %q, %v", answer, err)
	}
	c.Endpoint = func(context.Context, string, string, int64) (string, error) { return "", errors.New("nobody is there") }
	if _, err := c.Call(t.Context(), config, nil); err == nil ||
		err.Error() != `Post "https://hook.ns.svc:443/convert?timeout=30s": nobody is there` {
		t.Errorf("without an endpoint: have %v, want the error of Endpoint", err)
	}
	c.Endpoint = endpoint
	if _, err := c.Call(t.Context(), config, nil); err != nil {
		t.Error(err)
	}
	none := &Clients{}
	if _, err := none.Call(t.Context(), config, nil); err == nil ||
		!strings.HasSuffix(err.Error(), "service ns/hook cannot be called: this server does not resolve services") {
		t.Errorf("without services: have %v", err)
	}
}

// SPEC: EXT-1
func TestEndpoints(t *testing.T) {
	const service = `{"spec":{"type":"ClusterIP","clusterIP":"10.0.0.1","ports":[{"port":443,"name":"https","targetPort":8443},{"port":80}]}}`
	const slice = `{"ports":[{"name":"metrics","port":9},{"name":"https","port":8443}],"endpoints":[
		{"addresses":["10.1.0.1"],"conditions":{"ready":false}},{"addresses":["10.1.0.2"]}]}`
	for _, c := range []struct {
		service string
		slices  []string
		port    int64
		want    string
	}{
		{service, []string{slice}, 443, "10.1.0.2:8443"},
		{service, nil, 443, "10.0.0.1:443"},
		{service, nil, 80, "10.0.0.1:80"},
		{service, []string{slice}, 80, `no endpoints available for service "hook"`},
		{service, []string{`{}`}, 443, `no endpoints available for service "hook"`},
		{service, nil, 8443, `no service port 8443 found for service "hook"`},
		{`{"spec":{"type":"ClusterIP","clusterIP":"None","ports":[{"port":443}]}}`, nil, 443,
			`no endpoints available for service "hook"`},
		{`{"spec":{"type":"ClusterIP","clusterIP":"fd00::1","ports":[{"port":443}]}}`, nil, 443, "[fd00::1]:443"},
		{`{"spec":{"type":"ExternalName","externalName":"hooks.example.com"}}`, nil, 443, "hooks.example.com:443"},
		{`{"spec":{"type":"Odd"}}`, nil, 443, `unsupported service type "Odd"`},
		{"", nil, 443, "no such service"},
	} {
		s := &Services{
			Service: func(context.Context, string, string) (object.Value, error) {
				if c.service == "" {
					return object.Nil, errors.New("no such service")
				}
				return parse(t, c.service), nil
			},
			Slices: func(context.Context, string, string) (all []object.Value, err error) {
				for _, text := range c.slices {
					all = append(all, parse(t, text))
				}
				return all, nil
			},
		}
		got, err := s.Endpoint(t.Context(), "ns", "hook", c.port)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("port %d of %s with %v: have %s, want %s", c.port, c.service, c.slices, got, c.want)
		}
	}
}

func parse(t *testing.T, text string) object.Value {
	t.Helper()
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Value
}

// A webhook that may be called cannot lead the server elsewhere: the policy is asked about a redirect, too.
//
// SPEC: BEY-9
func TestRedirectsToRefusedAddresses(t *testing.T) {
	arrived := false
	own := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived = true }))
	defer own.Close()
	s := httptest.NewTLSServer(http.RedirectHandler(own.URL, http.StatusTemporaryRedirect))
	defer s.Close()
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	c := &Clients{Egress: egress.Restrict(
		[]netip.AddrPort{netip.MustParseAddrPort(own.Listener.Addr().String())}, loopback)}
	if _, err := c.Call(t.Context(), at(s, "/"), nil); !errors.Is(err, egress.ErrRefused) || arrived {
		t.Errorf("a redirect to the server itself: %v", err)
	}
	c.Egress = egress.Restrict(nil, loopback)
	if _, err := c.Call(t.Context(), at(s, "/again"), nil); err != nil || !arrived {
		t.Errorf("a redirect to an address that is allowed: %v", err)
	}
}
