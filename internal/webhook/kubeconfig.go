package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"plinth/internal/egress"
	"plinth/internal/execution"
)

// Remote calls a webhook that is described by a kubeconfig: the cluster of the current context is the webhook, its user
// has the credentials with which this server authenticates there. --audit-webhook-config-file,
// --authentication-token-webhook-config-file and --authorization-webhook-config-file name such files. A Remote may be
// used concurrently.
type Remote struct {
	url          url.URL
	timeout      time.Duration
	http         *http.Client
	authenticate func(*http.Request) error
}

// kubeconfig has the members of a kubeconfig that are read.
type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
	Clusters []struct {
		Name    string
		Cluster cluster
	}
	Users []struct {
		Name string
		User user
	}
}

type cluster struct {
	Server     string
	CAFile     string `json:"certificate-authority"`
	CAData     string `json:"certificate-authority-data"`
	Insecure   bool   `json:"insecure-skip-tls-verify"`
	ServerName string `json:"tls-server-name"`
	ProxyURL   string `json:"proxy-url"`
}

type user struct {
	CertFile  string `json:"client-certificate"`
	CertData  string `json:"client-certificate-data"`
	KeyFile   string `json:"client-key"`
	KeyData   string `json:"client-key-data"`
	Token     string
	TokenFile string
	Username  string
	Password  string
	As        string
	Exec      any
	Provider  any `json:"auth-provider"`
}

// FromKubeconfig reads a kubeconfig. Relative paths in it are relative to its directory.
func FromKubeconfig(file string) (*Remote, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r, err := parseKubeconfig(text, filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

func parseKubeconfig(text []byte, dir string) (*Remote, error) {
	var config kubeconfig
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	if config.CurrentContext == "" {
		return nil, errors.New("current-context is not set")
	}
	var c *cluster
	u := &user{}
	for i := range config.Contexts {
		context := &config.Contexts[i]
		if context.Name != config.CurrentContext {
			continue
		}
		for k := range config.Clusters {
			if config.Clusters[k].Name == context.Context.Cluster {
				c = &config.Clusters[k].Cluster
			}
		}
		if context.Context.User == "" {
			break
		}
		u = nil
		for k := range config.Users {
			if config.Users[k].Name == context.Context.User {
				u = &config.Users[k].User
			}
		}
	}
	switch {
	case c == nil:
		return nil, fmt.Errorf("there is no context %q, or no cluster with the name in it", config.CurrentContext)
	case u == nil:
		return nil, fmt.Errorf("there is no user with the name in context %q", config.CurrentContext)
	}
	return newRemote(c, u, dir)
}

func newRemote(c *cluster, u *user, dir string) (*Remote, error) {
	address, err := url.Parse(c.Server)
	if err != nil || address.Host == "" || address.Scheme != "https" && address.Scheme != "http" {
		return nil, fmt.Errorf("server: %q is not an http or https URL", c.Server)
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, InsecureSkipVerify: c.Insecure}
	if c.Insecure && (c.CAFile != "" || c.CAData != "") {
		return nil, errors.New("certificate-authority and insecure-skip-tls-verify cannot both be set")
	}
	client := &http.Client{CheckRedirect: checkRedirect}
	authenticate, err := u.credentials(settings, dir, client)
	if err != nil {
		return nil, err
	}
	proxy := http.ProxyFromEnvironment
	if c.ProxyURL != "" {
		at, err := url.Parse(c.ProxyURL)
		if err != nil {
			return nil, fmt.Errorf("proxy-url: %w", err)
		}
		proxy = http.ProxyURL(at)
	}
	transport, err := c.transport(settings, proxy, dir)
	if err != nil {
		return nil, err
	}
	client.Transport = counting{transport}
	r := &Remote{url: *address, authenticate: authenticate, http: client}
	r.SetTimeout(callTimeout)
	return r, nil
}

// transport returns how the webhook of a cluster is reached.
func (c *cluster) transport(settings *tls.Config, proxy func(*http.Request) (*url.URL, error),
	dir string) (http.RoundTripper, error) {
	trusting := func(authorities [][]byte) (*http.Transport, error) {
		trusted := settings.Clone()
		if trusted.RootCAs = x509.NewCertPool(); !trusted.RootCAs.AppendCertsFromPEM(authorities[0]) {
			return nil, errors.New("contains no certificate")
		}
		t := newTransport(trusted, egress.Policy{})
		t.Proxy = proxy
		return t, nil
	}
	var t http.RoundTripper
	var err error
	switch {
	case c.CAData != "":
		var authorities []byte
		if authorities, err = base64.StdEncoding.DecodeString(c.CAData); err == nil {
			t, err = trusting([][]byte{authorities})
		}
	case c.CAFile != "":
		r := &rotating{fromFiles[*http.Transport]{files: []string{within(dir, c.CAFile)}, make: trusting,
			replaced: (*http.Transport).CloseIdleConnections}}
		t = r
		_, err = r.get(time.Now())
	default:
		plain := newTransport(settings, egress.Policy{})
		plain.Proxy = proxy
		t = plain
	}
	if err != nil {
		return nil, fmt.Errorf("certificate-authority: %w", err)
	}
	return t, nil
}

// SetTimeout sets how long a call, with its retries, may take; the default is 30 s. It is sent to the webhook in the
// query parameter timeout. It must not be called concurrently with other methods.
func (r *Remote) SetTimeout(d time.Duration) {
	query := r.url.Query()
	query.Set("timeout", d.String())
	r.url.RawQuery = query.Encode()
	r.timeout, r.http.Timeout = d, d
}

// Close closes the idle connections.
func (r *Remote) Close() { r.http.CloseIdleConnections() }

// content returns the base64-decoded data, or else the content of the file; nil if neither is set.
func content(dir, file, data string) ([]byte, error) {
	switch {
	case data != "":
		return base64.StdEncoding.DecodeString(data)
	case file == "":
		return nil, nil
	}
	execution.AssertOutside(context.Background(), "a disk")
	return os.ReadFile(within(dir, file))
}

func within(dir, file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}

// credentials adds a client certificate to the TLS settings of a client, and returns a function that adds the token or
// password of the user to a request.
func (u *user) credentials(settings *tls.Config, dir string, client *http.Client) (func(*http.Request) error, error) {
	if u.Exec != nil || u.Provider != nil || u.As != "" {
		return nil, errors.New("exec, auth-provider and as are not supported: use a client certificate, token or password")
	}
	look, err := u.certificate(settings, dir, client)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	add, err := u.secret(dir)
	if err != nil || look == nil {
		return add, err
	}
	return func(r *http.Request) error { return errors.Join(look(), add(r)) }, nil
}

// secret returns a function that adds the token or password of the user to a request.
func (u *user) secret(dir string) (func(*http.Request) error, error) {
	switch {
	case u.TokenFile != "":
		tokens := newTokenFile(within(dir, u.TokenFile))
		if _, err := tokens.get(time.Now()); err != nil {
			return nil, fmt.Errorf("tokenFile: %w", err)
		}
		return func(r *http.Request) error {
			token, err := tokens.get(time.Now())
			r.Header.Set("Authorization", "Bearer "+token)
			return err
		}, nil
	case u.Token != "":
		return func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+u.Token)
			return nil
		}, nil
	case u.Username != "":
		return func(r *http.Request) error {
			r.SetBasicAuth(u.Username, u.Password)
			return nil
		}, nil
	}
	return func(*http.Request) error { return nil }, nil
}

// certificate adds the client certificate to the TLS settings of a client. If it and its key are in files, the result
// is to be called before each request: when the files have changed, the connections with the old certificate are not
// used again. Otherwise it is nil.
func (u *user) certificate(settings *tls.Config, dir string, client *http.Client) (look func() error, _ error) {
	pair := func(texts [][]byte) (*tls.Certificate, error) {
		made, err := tls.X509KeyPair(texts[0], texts[1])
		return &made, err
	}
	if u.CertFile != "" && u.KeyFile != "" && u.CertData == "" && u.KeyData == "" {
		files := &fromFiles[*tls.Certificate]{files: []string{within(dir, u.CertFile), within(dir, u.KeyFile)}, make: pair,
			replaced: func(*tls.Certificate) { client.CloseIdleConnections() }}
		settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return files.get(time.Now())
		}
		look = func() error { _, err := files.get(time.Now()); return err }
		return look, look()
	}
	cert, certErr := content(dir, u.CertFile, u.CertData)
	key, keyErr := content(dir, u.KeyFile, u.KeyData)
	if err := errors.Join(certErr, keyErr); err != nil || cert == nil && key == nil {
		return nil, err
	}
	made, err := pair([][]byte{cert, key})
	if err == nil {
		settings.Certificates = []tls.Certificate{*made}
	}
	return nil, err
}

// newTokenFile returns the token in a file.
func newTokenFile(path string) *fromFiles[string] {
	return &fromFiles[string]{files: []string{path}, make: func(texts [][]byte) (string, error) {
		token := strings.TrimSpace(string(texts[0]))
		if token == "" {
			return "", fmt.Errorf("%s contains no token", path)
		}
		return token, nil
	}}
}

// maxRetries is how many times a call is retried because the response asks for it.
const maxRetries = 10

// Post posts a JSON body and returns the body of the response. A response with an error code is an error. One that asks
// for a retry (429 or 5xx with Retry-After) is retried up to 10 times, unless the timeout would pass before.
func (r *Remote) Post(ctx context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	for retries := 0; ; retries++ {
		text, err := post(ctx, r.http, r.url.String(), "kube-apiserver", r.authenticate, body)
		var status *statusError
		if !errors.As(err, &status) || !status.retry || retries == maxRetries ||
			!sleep(ctx, time.Duration(status.retryAfter)*time.Second) {
			return text, err
		}
	}
}

// sleep waits for d and returns true. It returns false if ctx ends before; at once, if its deadline is earlier.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	over := false
	execution.Outside(ctx, func() {
		select {
		case <-ctx.Done():
		case <-timer.C:
			over = true
		}
	})
	return over
}
