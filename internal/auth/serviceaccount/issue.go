package serviceaccount

import (
	"crypto"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"

	"plinth/internal/access"
	"plinth/object"
)

// Keys are what tokens are signed and verified with.
type Keys struct {
	public []publicKey
	signer jose.Signer // nil: nothing is signed
}

// NewKeys takes the keys that tokens are verified with, and the one that they are signed with; nil: none.
func NewKeys(public []crypto.PublicKey, private crypto.Signer) (*Keys, error) {
	k := &Keys{}
	for _, key := range public {
		named, err := newPublicKey(key)
		if err != nil {
			return nil, err
		}
		k.public = append(k.public, named)
	}
	if private == nil {
		return k, nil
	}
	var err error
	k.signer, err = signer(private)
	return k, err
}

// Signs says whether there is a key to sign with.
func (k *Keys) Signs() bool { return k.signer != nil }

// sign makes a token of claims.
func (k *Keys) sign(claims object.Value) (string, error) {
	signed, err := k.signer.Sign(object.AppendJSON(nil, claims))
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// Issuer makes tokens.
type Issuer struct {
	Keys *Keys
	// Name is what tokens say of who made them.
	Name string
	// Audiences are those of a token that is asked for none: this server's own.
	Audiences []string
	// MaxSeconds is how long a token lasts at most; 0: as long as somebody asks for.
	MaxSeconds int64
	// Extend lets tokens of Pods that are asked for an hour and seven seconds, which is what the admission plugin
	// ServiceAccount asks for, last a year: clients that do not read their tokens again are only warned of.
	Extend  bool
	Objects *Objects
	Now     func() time.Time
}

// The expiry that Issuer.Extend looks for, and what it makes of it.
const (
	extendedFrom = 60*60 + 7
	extendedTo   = 365 * 24 * 60 * 60
)

// bound are the claims of a token that was asked for.
type bound struct {
	namespace, name, uid string // of the ServiceAccount
	to                   []object.Member
	audiences            []string
	lasts, warnAfter     int64 // seconds; warnAfter 0: there is no such claim
}

// issue makes a bound token, and says by what name the audit log knows it.
func (i *Issuer) issue(b *bound, now time.Time) (token, credential string, err error) {
	id := uuid.NewString()
	binding := append([]object.Member{
		{Key: "namespace", Value: object.StringOf(b.namespace)},
		{Key: "serviceaccount", Value: referenceTo(b.name, b.uid)},
	}, b.to...)
	at := func(seconds int64) object.Value { return object.IntOf(now.Unix() + seconds) }
	if b.warnAfter != 0 {
		binding = append(binding, object.Member{Key: "warnafter", Value: at(b.warnAfter)})
	}
	token, err = i.Keys.sign(object.Fields(
		"iss", object.StringOf(i.Name), "sub", object.StringOf(access.ServiceAccount(b.namespace, b.name)),
		"aud", object.Strings(b.audiences...), "exp", at(b.lasts), "nbf", at(0), "iat", at(0), "jti", object.StringOf(id),
		"kubernetes.io", object.MapOf(binding...),
	))
	if err != nil {
		return "", "", fmt.Errorf("failed to generate token: %w", err)
	}
	return token, "JTI=" + id, nil
}

// referenceTo names an object in claims. As in the reference, a UID that is not known is left out.
func referenceTo(name, uid string) object.Value {
	r := object.Fields("name", object.StringOf(name))
	if uid != "" {
		r = r.With("uid", object.StringOf(uid))
	}
	return r
}

// Legacy makes the token of a Secret, which has no end.
func (i *Issuer) Legacy(namespace, name, uid, secret string) (string, error) {
	return i.Keys.sign(object.Fields(
		"iss", object.StringOf(legacyIssuer), "sub", object.StringOf(access.ServiceAccount(namespace, name)),
		"kubernetes.io/serviceaccount/namespace", object.StringOf(namespace),
		"kubernetes.io/serviceaccount/secret.name", object.StringOf(secret),
		"kubernetes.io/serviceaccount/service-account.name", object.StringOf(name),
		"kubernetes.io/serviceaccount/service-account.uid", object.StringOf(uid),
	))
}
