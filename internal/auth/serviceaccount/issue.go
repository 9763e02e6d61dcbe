package serviceaccount

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"plinth/internal/access"
	"plinth/object"
)

// DefaultIssuer is the issuer of tokens unless another one is configured.
const DefaultIssuer = "https://kubernetes.default.svc.cluster.local"

// Issuer issues tokens.
type Issuer struct {
	Keys Keys
	// Name is the claim iss.
	Name string
	// Audiences are those of this server, and of a token that is requested without audiences.
	Audiences []string
	// MaxSeconds is the greatest lifetime of a token; 0: no limit.
	MaxSeconds int64
	// Extend is --service-account-extend-token-expiration: if a Pod's token is requested for an hour and seven seconds,
	// as the admission plugin ServiceAccount does, it is valid for a year. So clients that never read their token again
	// go on working, and the claim warnafter lets the server count them.
	Extend bool
	// ExtendedSeconds is that lifetime, if it is less than a year; 0: it is a year.
	ExtendedSeconds int64
	// OtherUID lets a request have the UID of another ServiceAccount of the name, with a warning (the gate
	// TokenRequestServiceAccountUIDValidation is off). The token is for the one that there is.
	OtherUID bool
	// Webhooks lets tokens be bound to webhook configurations (the gate APIServerWebhookAuthenticationToken).
	Webhooks bool
	Objects  *Objects
	Now      func() time.Time
}

// The lifetime that Issuer.Extend extends, and to what, in seconds.
const (
	extendedFrom = 60*60 + 7
	extendedTo   = 365 * 24 * 60 * 60
)

// bound has the claims of a bound token that is to be issued.
type bound struct {
	namespace, name, uid string          // of the ServiceAccount
	to                   []object.Member // the other objects that it is bound to, by the names of their claims
	audiences            []string
	lasts, warnAfter     int64 // seconds from now; warnAfter 0: there is no such claim
	most                 int64 // seconds that it may last; 0: as long as is asked for
}

// issue returns a bound token and its ID.
func (i *Issuer) issue(ctx context.Context, b *bound, now time.Time) (token, id string, err error) {
	id = uuid.NewString()
	binding := append([]object.Member{
		{Key: "namespace", Value: object.StringOf(b.namespace)},
		{Key: "serviceaccount", Value: referenceTo(b.name, b.uid)},
	}, b.to...)
	at := func(seconds int64) object.Value { return object.IntOf(now.Unix() + seconds) }
	if b.warnAfter != 0 {
		binding = append(binding, object.Member{Key: "warnafter", Value: at(b.warnAfter)})
	}
	token, err = i.Keys.Sign(ctx, object.Fields(
		"iss", object.StringOf(i.Name), "sub", object.StringOf(access.ServiceAccount(b.namespace, b.name)),
		"aud", object.Strings(b.audiences...), "exp", at(b.lasts), "nbf", at(0), "iat", at(0), "jti", object.StringOf(id),
		"kubernetes.io", object.MapOf(binding...),
	))
	if err != nil {
		return "", "", fmt.Errorf("failed to generate token: %w", err)
	}
	return token, id, nil
}

// referenceTo returns the claim that names an object. As in the reference, an unknown UID is left out.
func referenceTo(name, uid string) object.Value {
	r := object.Fields("name", object.StringOf(name))
	if uid != "" {
		r = r.With("uid", object.StringOf(uid))
	}
	return r
}

// Legacy returns a legacy token for a Secret. It does not expire.
func (k *StaticKeys) Legacy(namespace, name, uid, secret string) (string, error) {
	return k.Sign(context.Background(), object.Fields(
		"iss", object.StringOf(legacyIssuer), "sub", object.StringOf(access.ServiceAccount(namespace, name)),
		"kubernetes.io/serviceaccount/namespace", object.StringOf(namespace),
		"kubernetes.io/serviceaccount/secret.name", object.StringOf(secret),
		"kubernetes.io/serviceaccount/service-account.name", object.StringOf(name),
		"kubernetes.io/serviceaccount/service-account.uid", object.StringOf(uid),
	))
}
