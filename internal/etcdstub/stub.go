// Package etcdstub replaces etcd for programs that start one beside the API server: envtest, kwokctl, kubeadm's
// manifests. The API server stores its objects itself, but such programs choose etcd's data directory, and expect the
// objects to live as long as that directory. So the stub only reports the directory to the API server: it serves a
// [Marker] on its client URL.
//
// A stub and its API server must share a file system. To check that, the stub writes a random token to a file in the
// directory, and the marker has the same token.
package etcdstub

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// markerPath is the path of the marker. A real etcd answers it with 404.
const markerPath = "/plinth"

// tokenFile is the file in the data directory that has the token of the stub that was started last.
const tokenFile = "plinth-etcd"

// Version is the release of etcd whose flags and paths the stub has.
const Version = "3.7.3"

// Marker is the document that a stub serves for the API server.
type Marker struct {
	Stub    string `json:"plinthEtcdStub"` // the token
	DataDir string `json:"dataDir"`
	NoSync  bool   `json:"unsafeNoFsync"`
}

// Config configures a stub.
type Config struct {
	DataDir string
	NoSync  bool
	URLs    []string    // client URLs: http or https, with host and port
	TLS     *tls.Config // for https
}

// Serve serves the client URLs until ctx ends. It returns an error if the data directory or a URL cannot be used.
func Serve(ctx context.Context, c Config) error {
	handler, err := c.open()
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	defer server.Close()
	failed := make(chan error, len(c.URLs))
	for _, text := range c.URLs {
		listener, err := c.listen(ctx, text)
		if err != nil {
			return err
		}
		go func() { failed <- server.Serve(listener) }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// open writes the token to the data directory, and returns the handler.
func (c *Config) open() (http.Handler, error) {
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "member")); err == nil {
		return nil, fmt.Errorf("the data directory %s is that of a real etcd, which cannot be read", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	token := rand.Text()
	if err := os.WriteFile(filepath.Join(dir, tokenFile), []byte(token), 0o600); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	cluster := Version[:strings.LastIndexByte(Version, '.')] + ".0"
	for path, answer := range map[string]any{
		"/health":    map[string]string{"health": "true", "reason": ""},
		"/version":   map[string]string{"etcdserver": Version, "etcdcluster": cluster, "storage": ""},
		markerPath:   Marker{Stub: token, DataDir: dir, NoSync: c.NoSync},
		"/livez":     nil,
		"/readyz":    nil,
		"/livez/{$}": nil, "/readyz/{$}": nil,
	} {
		body := []byte("ok\n")
		if answer != nil {
			if body, err = json.Marshal(answer); err != nil {
				return nil, err
			}
		}
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	}
	return mux, nil
}

func (c *Config) listen(ctx context.Context, text string) (net.Listener, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Port() == "" {
		return nil, fmt.Errorf("%q is no client URL of the form http://HOST:PORT or https://HOST:PORT", text)
	}
	if u.Scheme == "https" && c.TLS == nil {
		return nil, fmt.Errorf("%s needs a certificate and its key", text)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", u.Host)
	if err == nil && u.Scheme == "https" {
		listener = tls.NewListener(listener, c.TLS)
	}
	return listener, err
}

// ErrNoStub means that the server at a URL is not a stub.
var ErrNoStub = errors.New("what answers there is no stub of this program")

// Find asks the stub at a URL for its marker. It waits for the stub to come up, until ctx ends.
func Find(ctx context.Context, at string, config *tls.Config) (Marker, error) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	for {
		m, err := ask(ctx, client, strings.TrimSuffix(at, "/")+markerPath)
		if !comingUp(err) {
			return m, err
		}
		select {
		case <-ctx.Done():
			return m, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// comingUp reports whether an error is one of a server that does not answer yet: it has not begun to listen, or what
// listens for it, a proxy for one, has closed the connection without an answer.
func comingUp(err error) bool {
	for _, closed := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, closed) {
			return true
		}
	}
	return false
}

func ask(ctx context.Context, client *http.Client, at string) (m Marker, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return m, err
	}
	response, err := client.Do(request)
	if err != nil {
		return m, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return m, err
	}
	if response.StatusCode != http.StatusOK || json.Unmarshal(body, &m) != nil || m.Stub == "" || m.DataDir == "" {
		return m, ErrNoStub
	}
	token, err := os.ReadFile(filepath.Join(m.DataDir, tokenFile))
	if err != nil || string(token) != m.Stub {
		return m, fmt.Errorf("the stub keeps its data in %s, but not on this machine: "+
			"the API server has to run beside it", m.DataDir)
	}
	return m, nil
}
