package server

import (
	"crypto/tls"
	"net"
	"strings"

	"plinth/internal/objectmeta"
)

// maxPlanesDomain is how long the domain may be: a name of DNS with a label before it has 253 characters at most.
const maxPlanesDomain = 253 - 63 - 1

// validatePlanesDomain refuses a domain below which a name of the server itself is. Requests for that name would be for
// a plane.
func (c *Config) validatePlanesDomain(refuse func(format string, args ...any)) {
	domain := c.PlanesDomain
	switch {
	case domain == "":
		return
	case !objectmeta.IsSubdomain(domain), net.ParseIP(domain) != nil:
		refuse("--planes-domain: %q is no domain of DNS in lower case, such as planes.example.com", domain)
	case len(domain) > maxPlanesDomain:
		refuse("--planes-domain: %q has more than %d characters", domain, maxPlanesDomain)
	}
	for _, host := range c.ownHosts() {
		if strings.HasSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), "."+domain) {
			refuse("--planes-domain: %q is below %s, and a name of this server: it would be one of a plane", host, domain)
		}
	}
}

// warnOfPlanesDomain logs that no certificate from files is for the names of planes.
func (k *certificates) warnOfPlanesDomain() {
	domain := k.config.PlanesDomain
	if domain == "" {
		return
	}
	pairs := []*tls.Certificate{k.serving}
	for _, n := range k.named {
		pairs = append(pairs, n.pair)
	}
	for _, pair := range pairs {
		if pair.Leaf.VerifyHostname("*."+domain) == nil {
			return
		}
	}
	k.config.Logger.Warn("no certificate of the server is for all names of planes: clients of planes by host name refuse it",
		"name", "*."+domain)
}
