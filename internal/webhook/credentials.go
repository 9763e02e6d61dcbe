package webhook

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Credentials are the users of a kubeconfig, with which this server authenticates at webhooks that are registered in
// the API. The name of a user says for which webhooks it is:
//
//	hooks.example.com:8443, NAME.NAMESPACE.svc:443   the webhook at that host and port
//	*.example.com, *.NAMESPACE.svc                   those whose host ends so
//	*                                                all others; else the user of the current context
//
// For port 443 a name may leave out the port.
type Credentials struct {
	dir   string
	users map[string]*user
	rest  *user // for webhooks that no name is for; nil: none
}

// LoadCredentials reads a kubeconfig. Its clusters mean nothing.
func LoadCredentials(file string) (*Credentials, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var config kubeconfig
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	c := &Credentials{dir: filepath.Dir(file), users: map[string]*user{}}
	for i := range config.Users {
		c.users[config.Users[i].Name] = &config.Users[i].User
	}
	for _, context := range config.Contexts {
		if config.CurrentContext != "" && context.Name == config.CurrentContext {
			c.rest = c.users[context.Context.User]
		}
	}
	if u := c.users["*"]; u != nil {
		c.rest = u
	}
	return c, nil
}

// of returns the function that authenticates requests to a host and port; nil: they have no credentials. A client
// certificate is added to the TLS settings of the client.
func (c *Credentials) of(target string, settings *tls.Config, client *http.Client) (func(*http.Request) error, error) {
	if c == nil {
		return nil, nil
	}
	u := c.find(target)
	if host, port, err := net.SplitHostPort(target); u == nil && err == nil && port == "443" {
		u = c.find(host)
	}
	if u == nil {
		u = c.rest
	}
	if u == nil {
		return nil, nil
	}
	return u.credentials(settings, c.dir, client)
}

// find finds the user whose name is for a target, the most exact one first.
func (c *Credentials) find(target string) *user {
	if u := c.users[target]; u != nil {
		return u
	}
	for rest := target; ; {
		var ok bool
		if _, rest, ok = strings.Cut(rest, "."); !ok {
			return nil
		}
		if u := c.users["*."+rest]; u != nil {
			return u
		}
	}
}
