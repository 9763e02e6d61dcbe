package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"
)

// Remote is a webhook that a file in the format of a kubeconfig describes: the cluster is the webhook, and the user is
// how this server shows there who it is. So --audit-webhook-config-file and its siblings have it.
type Remote struct {
	url     url.URL
	timeout time.Duration
	http    *http.Client
	authn   func(*http.Request) error
}

// kubeconfig is what counts of such a file.
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

// FromKubeconfig reads such a file. Relative paths in it are relative to it.
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
		return nil, errors.New("there is no current-context")
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
		return nil, fmt.Errorf("the context %q has no cluster that is there", config.CurrentContext)
	case u == nil:
		return nil, fmt.Errorf("the context %q has a user that is not there", config.CurrentContext)
	}
	return newRemote(c, u, dir)
}

func newRemote(c *cluster, u *user, dir string) (*Remote, error) {
	address, err := url.Parse(c.Server)
	if err != nil || address.Host == "" || address.Scheme != "https" && address.Scheme != "http" {
		return nil, fmt.Errorf("server: %q is no URL of http or https", c.Server)
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, InsecureSkipVerify: c.Insecure}
	authority, err := content(dir, c.CAFile, c.CAData)
	switch {
	case err != nil:
		return nil, fmt.Errorf("certificate-authority: %w", err)
	case authority != nil && c.Insecure:
		return nil, errors.New("certificate-authority and insecure-skip-tls-verify contradict each other")
	case authority != nil:
		if settings.RootCAs = x509.NewCertPool(); !settings.RootCAs.AppendCertsFromPEM(authority) {
			return nil, errors.New("certificate-authority: there is no certificate in it")
		}
	}
	authn, err := u.authn(settings, dir)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: callTimeout, KeepAlive: 30 * time.Second}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: settings,
		TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second,
		ForceAttemptHTTP2: true,
	}
	if c.ProxyURL != "" {
		proxy, err := url.Parse(c.ProxyURL)
		if err != nil {
			return nil, fmt.Errorf("proxy-url: %w", err)
		}
		transport.Proxy = http.ProxyURL(proxy)
	}
	r := &Remote{url: *address, authn: authn, http: &http.Client{Transport: transport, CheckRedirect: stayPrivate}}
	r.SetTimeout(callTimeout)
	return r, nil
}

// SetTimeout says how long a call may take, which is 30 s otherwise. The webhook is told of it. Nobody else may use r
// meanwhile.
func (r *Remote) SetTimeout(d time.Duration) {
	query := r.url.Query()
	query.Set("timeout", d.String())
	r.url.RawQuery = query.Encode()
	r.timeout, r.http.Timeout = d, d
}

// Close ends the connections that nobody uses.
func (r *Remote) Close() { r.http.CloseIdleConnections() }

// content is what a field or the file that another field names holds; nil if there is neither.
func content(dir, file, data string) ([]byte, error) {
	switch {
	case data != "":
		return base64.StdEncoding.DecodeString(data)
	case file == "":
		return nil, nil
	}
	return os.ReadFile(within(dir, file))
}

func within(dir, file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}

// authn is how requests show who sends them.
func (u *user) authn(settings *tls.Config, dir string) (func(*http.Request) error, error) {
	if u.Exec != nil || u.Provider != nil || u.As != "" {
		return nil, errors.New("users by exec, auth-provider or as are not there; a certificate, a token or a password is")
	}
	cert, certErr := content(dir, u.CertFile, u.CertData)
	key, keyErr := content(dir, u.KeyFile, u.KeyData)
	if err := errors.Join(certErr, keyErr); err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	if cert != nil || key != nil {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	switch {
	case u.TokenFile != "":
		tokens := &tokenFile{path: within(dir, u.TokenFile)}
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

// tokenLife is how long a token is taken for the one in its file.
const tokenLife = time.Minute

// tokenFile is a token that somebody replaces from time to time.
type tokenFile struct {
	path string

	mu    sync.Mutex
	token string
	read  time.Time
}

func (f *tokenFile) get(now time.Time) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.token != "" && now.Sub(f.read) < tokenLife {
		return f.token, nil
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("there is no token in %s", f.path)
	}
	f.token, f.read = token, now
	return token, nil
}

// maxAgain is how often an answer may say that the webhook is to be asked again.
const maxAgain = 10

// Post posts a body of JSON and returns the answer. An answer whose code is no success is an error; one that says when
// to ask again (429 or 5xx with Retry-After) is waited for as long as the call may take.
func (r *Remote) Post(ctx context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	for asked := 0; ; asked++ {
		answer, err := post(ctx, r.http, r.url.String(), "kube-apiserver", r.authn, body)
		var no *refusal
		if !errors.As(err, &no) || !no.again || asked == maxAgain || !sleep(ctx, time.Duration(no.after)*time.Second) {
			return answer, err
		}
	}
}

// sleep says whether the time has passed; otherwise the context has ended, or will have before.
func sleep(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
