package credentials

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/auth/serviceaccount"
	"plinth/internal/initial"
	"plinth/internal/plane"
)

// Plane has the credentials of one plane. It has no keys until Configure.
type Plane struct {
	of        *Credentials
	uid, name string
	created   time.Time
	url       string
}

// Of returns the credentials of a Plane with this UID, name, and time of creation, whose API is at this URL. A plane
// without a name is one that no request reaches.
func (c *Credentials) Of(uid, name string, created time.Time, url string) *Plane {
	return &Plane{of: c, uid: uid, name: name, created: created, url: url}
}

// The users of the client certificates that a plane has for itself, as kubeadm names them.
const (
	frontProxyUser = "front-proxy-client"
	kubeletUser    = "kube-apiserver-kubelet-client"
)

// headers of a front proxy.
var headers = initial.FrontProxy{Names: []string{frontProxyUser}, Users: []string{"X-Remote-User"},
	UIDs: []string{"X-Remote-Uid"}, Groups: []string{"X-Remote-Group"}, Extra: []string{"X-Remote-Extra-"}}

// Configure sets in the configuration of the plane all that it issues and believes, in place of what is there:
//
//   - Accounts: the keys, the issuer and where its keys are. Lookup, Extend, the lifetimes and what is said of
//     bootstrap tokens stay.
//   - Signer: the authority. The Bundle stays: the listener is the process's.
//   - Authentication and LaterTokens.
//   - Self: the Trusted authorities and the FrontProxy, which the plane publishes. Those of the process are not among
//     them, because who reads them believes the names of groups in certificates as they are; and others do not stay,
//     because they were copied from the plane that it has begun with.
//   - Aggregation and Nodes: the client certificates.
func (p *Plane) Configure(c *plane.Config) error {
	if p.uid == "" || p.url == "" || p.created.IsZero() {
		return fmt.Errorf("credentials of the plane %q: a plane has a UID, a time and a URL", p.name)
	}
	key, err := p.of.key(forTokens, p.uid)
	if err != nil {
		return err
	}
	accounts, err := serviceaccount.NewStaticKeys([]crypto.PublicKey{key.Public()}, key)
	if err != nil {
		return err
	}
	clients, noClients := p.of.authority(forClients, clientsSubject, p.uid, p.created)
	proxies, noProxies := p.of.authority(forProxies, proxiesSubject, p.uid, p.created)
	if err := errors.Join(noClients, noProxies); err != nil {
		return err
	}
	c.Accounts.Keys, c.Accounts.Static = accounts, accounts
	c.Accounts.Issuers, c.Accounts.KeysURL = []string{p.url}, p.url+serviceaccount.KeysPath
	c.Signer.Certificate, c.Signer.Key = clients.certificate, clients.key
	p.authenticate(c, clients, proxies)
	c.Self.Trusted = func() (ofClients, ofProxies []byte) { return clients.pem, proxies.pem }
	c.Self.OnlyTrusted, c.Self.FrontProxy = true, headers
	c.Aggregation.Certificate = p.client(proxies, forFrontProxy, pkix.Name{CommonName: frontProxyUser}).get
	c.Nodes.Kubelets.CertFile, c.Nodes.Kubelets.KeyFile = "", ""
	c.Nodes.Kubelets.Certificate = p.client(clients, forKubelets, pkix.Name{CommonName: kubeletUser,
		Organization: []string{access.Masters}}).get
	return nil
}

// authenticate sets who sends requests.
func (p *Plane) authenticate(c *plane.Config, clients, proxies *authority) {
	process := &p.of.process
	first := &process.Authentication
	c.Authentication = auth.Config{
		Clients: auth.NewAuthorities(clients.certificate), LaterCertificates: p.certified, Used: first.Used,
		Proxy: &auth.FrontProxy{Authorities: auth.NewAuthorities(proxies.certificate), AllowedNames: headers.Names,
			UserHeaders: headers.Users, UIDHeaders: headers.UIDs, GroupHeaders: headers.Groups, ExtraPrefixes: headers.Extra},
		Tokens: p.tokens(first.Tokens), Audiences: []string{p.url},
		NoAnonymous: first.NoAnonymous, AnonymousPaths: first.AnonymousPaths,
	}
	c.LaterTokens = p.tokens(process.LaterTokens)
}

// tokens are those of the process, with who their users are in the plane.
func (p *Plane) tokens(all []auth.Tokens) []auth.Tokens {
	var inside []auth.Tokens
	for _, of := range all {
		inside = append(inside, &tokens{of, p})
	}
	return inside
}

// client returns a client certificate of the plane, which is not made yet.
func (p *Plane) client(by *authority, purpose string, subject pkix.Name) *client {
	return &client{by: by, subject: subject, now: p.of.now,
		key: func() (*ecdsa.PrivateKey, error) { return p.of.key(purpose, p.uid) }}
}
