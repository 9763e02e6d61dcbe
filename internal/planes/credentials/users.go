package credentials

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/planes/kind"
)

// ofSystem is the prefix of names of users and groups that Kubernetes gives.
const ofSystem = "system:"

var errFirstPlane = errors.New("a certificate that the first plane has signed is valid there only")

// refuseChain says which certificates of the process's authorities count in planes (see the package's comment).
//
//	chain counts  ⇔  the signer's key is nowhere in it, or it is administrator ← signer
//
// It looks at keys and not at certificates of authorities, since there can be several of one key: another authority may
// have signed that of the signer, too.
func (c *Credentials) refuseChain(chain []*x509.Certificate) error {
	signer := c.process.Signer
	if !slices.ContainsFunc(chain, func(link *x509.Certificate) bool { return sameKey(link, signer) }) {
		return nil
	}
	leaf := chain[0]
	subject := leaf.Subject
	if len(chain) == 2 && !leaf.BasicConstraintsValid && subject.CommonName == c.process.Administrator &&
		len(subject.Names) == 2 && slices.Equal(subject.Organization, []string{access.Masters}) {
		return nil
	}
	return errFirstPlane
}

// sameKey is false for keys of sorts that crypto/x509 does not know: no chain leads through one.
func sameKey(a, b *x509.Certificate) bool {
	key, ok := a.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(b.PublicKey)
}

// certified is auth.Config.LaterCertificates: users of the process with a client certificate.
func (p *Plane) certified(ctx context.Context, r *http.Request) (*access.Identity, error) {
	id, err := p.of.certificates.Authenticate(ctx, r)
	if id == nil {
		return nil, err
	}
	return p.inside(ctx, id)
}

// tokens are users of the process with a token. It is for the process, and so for each of its planes.
type tokens struct {
	auth.Tokens
	plane *Plane
}

// Token implements auth.Tokens.
func (t *tokens) Token(ctx context.Context, token string, audiences []string) (*access.Identity, error) {
	valid := []string{t.plane.url}
	if audiences != nil {
		if valid = auth.Common(audiences, valid); len(valid) == 0 {
			return nil, nil
		}
	}
	id, err := t.Tokens.Token(ctx, token, nil)
	if id == nil || err != nil {
		return nil, err
	}
	if id, err = t.plane.inside(ctx, id); err != nil {
		return nil, err
	}
	id.Audiences = valid
	return id, nil
}

// inside returns who a user of the process is in the plane (see the package's comment). id may be shared with other
// requests, and is not changed.
func (p *Plane) inside(ctx context.Context, id *access.Identity) (*access.Identity, error) {
	outside := id.User
	if strings.HasPrefix(outside.Name, ofSystem) {
		return nil, fmt.Errorf("the user %q is one of the first plane only", outside.Name)
	}
	if !outside.In(access.Authenticated) {
		outside.Groups = append(slices.Clip(outside.Groups), access.Authenticated)
	}
	asked := kind.AccessTo(p.name)
	asked.User = outside
	// An error is one of an authorizer that does not decide then: the user has no more than others.
	decision, _, _ := p.of.process.First.Authorize(ctx, &asked)
	master := decision == access.Allow
	user := *id
	user.User.Groups = slices.DeleteFunc(slices.Clone(outside.Groups), func(group string) bool {
		return strings.HasPrefix(group, ofSystem) && group != access.Authenticated && (group != access.Masters || !master)
	})
	if master && !user.User.In(access.Masters) { // where it is for who has it by a credential
		at := slices.Index(user.User.Groups, access.Authenticated)
		user.User.Groups = slices.Insert(user.User.Groups, at, access.Masters)
	}
	user.User.Extra = nil
	for key, values := range outside.Extra {
		if reserved(key) && key != access.CredentialID {
			continue
		}
		if user.User.Extra == nil {
			user.User.Extra = make(map[string][]string, len(outside.Extra))
		}
		user.User.Extra[key] = values
	}
	return &user, nil
}

// reserved says whether a key of extra attributes is one of Kubernetes, such as the one with the name of a node.
func reserved(key string) bool {
	domain, _, _ := strings.Cut(strings.ToLower(key), "/")
	for _, of := range []string{"kubernetes.io", "k8s.io"} {
		if domain == of || strings.HasSuffix(domain, "."+of) {
			return true
		}
	}
	return false
}
