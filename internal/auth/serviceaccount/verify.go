package serviceaccount

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/auth/tokencache"
	"plinth/internal/engine"
	"plinth/object"
)

// Verifier authenticates the tokens of service accounts. It may be used concurrently; its fields are set before.
type Verifier struct {
	Keys Keys
	// Issuers are the accepted issuers of bound tokens.
	Issuers []string
	// Audiences are those of this server.
	Audiences []string
	Objects   *Objects
	// Lookup is --service-account-lookup: the Secret and the ServiceAccount of a legacy token are looked up. Without
	// it, a valid signature and complete claims are enough.
	Lookup bool
	// Webhooks accepts tokens that are bound to webhook configurations (the gate APIServerWebhookAuthenticationToken).
	Webhooks bool
	// Used reports the use of a legacy token whose Secret has not been marked as used today; nil disables it.
	Used     func(ctx context.Context, secret *engine.Object, today string)
	Now      func() time.Time
	Counters Counters

	// signed has the claims of tokens with a valid signature. Tokens with an invalid one are not in it: a stranger's
	// token costs one verification per key with its key ID, every time.
	signed tokencache.Cache[*claims]
}

// Counters counts the uses of tokens. Legacy counts tokens without an audience. With Lookup, those that are accepted
// are also counted as Generated or Manual, depending on how their Secret was created, and those whose Secret is marked
// invalid as Invalid. Bound tokens with the claim warnafter are counted as Stale if the client should have renewed
// them, and otherwise as Valid.
type Counters struct{ Legacy, Generated, Manual, Invalid, Stale, Valid atomic.Int64 }

// algorithms are the accepted signature algorithms: the asymmetric ones of RFC 7518.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512,
}

// Token implements auth.Tokens. It matches the reference's authenticator in k8s.io/kubernetes/pkg/serviceaccount, with
// its messages.
func (v *Verifier) Token(ctx context.Context, token string, audiences []string) (*access.Identity, error) {
	c, err := v.verified(ctx, token)
	if c == nil || err != nil {
		return nil, err
	}
	valid := []string(c.Audience)
	if len(valid) == 0 { // a legacy token
		v.Counters.Legacy.Add(1)
		valid = v.Audiences
	}
	wanted := audiences
	if wanted == nil {
		wanted = v.Audiences
	}
	id := &access.Identity{User: c.subject, Audiences: auth.Common(wanted, valid)}
	if len(id.Audiences) == 0 && len(v.Audiences) > 0 {
		return nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", valid, wanted)
	}
	if len(c.Audience) == 0 {
		id.Annotate("authentication.k8s.io/legacy-token", c.Subject)
	}
	if c.Issuer == legacyIssuer {
		err = v.checkLegacy(ctx, c, token, id)
	} else {
		err = v.checkBound(ctx, c, id)
	}
	if err != nil {
		return nil, err
	}
	return id, nil
}

// errSignature is the error of the reference, which has an older version of the library, for an algorithm that is not
// accepted.
var errSignature = errors.New("go-jose/go-jose: error in cryptographic primitive")

// verified returns the claims of a token of one of the issuers; nil without an error if it is another sort of token.
// The error says that the signature or the issuer is not valid. A cached result counts as long as its key is valid.
func (v *Verifier) verified(ctx context.Context, token string) (*claims, error) {
	key := tokencache.KeyOf(token, nil)
	now := v.Now()
	if c, ok := v.signed.Get(key, now); ok {
		if current := v.Keys.Current(); c.in == current || current.has(&c.by) {
			return c, nil
		}
	}
	if issuer, err := auth.UnverifiedIssuer(token); err != nil || !v.issues(issuer) {
		return nil, nil
	}
	// As in the reference, white space in a token is ignored.
	parsed, err := jwt.ParseSigned(strings.Join(strings.Fields(token), ""), algorithms)
	var algorithm *jose.ErrUnexpectedSignatureAlgorithm
	switch {
	case errors.As(err, &algorithm):
		return nil, errSignature
	case err != nil:
		return nil, nil
	}
	keys, in := Find(ctx, v.Keys, parsed.Headers[0].KeyID)
	err = errors.New("invalid signature, no keys found")
	for _, k := range keys {
		c := &claims{by: k, in: in}
		if err = parsed.Claims(k.Key, c); err != nil {
			continue
		}
		if !v.issues(c.Issuer) {
			return nil, fmt.Errorf("token issuer %q is invalid", c.Issuer)
		}
		c.subject = c.user()
		v.signed.Set(key, c, now)
		return c, nil
	}
	return nil, err
}

func (v *Verifier) issues(issuer string) bool {
	return issuer == legacyIssuer || slices.Contains(v.Issuers, issuer)
}

// checkBound returns an error if a bound token has expired or is not valid yet, or if an object that it is bound to
// does not exist any more.
func (v *Verifier) checkBound(ctx context.Context, c *claims, id *access.Identity) error {
	now := v.Now()
	switch err := c.Validate(jwt.Expected{Time: now}); {
	case err == nil:
	case errors.Is(err, jwt.ErrExpired):
		return errors.New("service account token has expired")
	case errors.Is(err, jwt.ErrNotValidYet):
		return errors.New("service account token is not valid yet")
	case errors.Is(err, jwt.ErrIssuedInTheFuture):
		return errors.New("service account token is issued in the future")
	default:
		return fmt.Errorf("service account token claims could not be validated: %w", err)
	}
	b := &c.Kubernetes
	if b.Account.Name == "" {
		return errors.New("resource name may not be empty")
	}
	account, err := v.Objects.get(ctx, "serviceaccounts", b.Namespace, b.Account.Name)
	switch {
	case err != nil:
		return err
	case account.Sidecar.UID != b.Account.UID:
		return fmt.Errorf("service account UID (%s) does not match claim (%s)", account.Sidecar.UID, b.Account.UID)
	case gone(account, now):
		return fmt.Errorf("service account %s/%s has been deleted", b.Namespace, b.Account.Name)
	}
	if err := v.checkBinding(ctx, b, now); err != nil {
		return err
	}
	switch {
	case b.WarnAfter == nil || *b.WarnAfter == 0:
	case !now.After(b.WarnAfter.Time()):
		v.Counters.Valid.Add(1)
	default:
		v.Counters.Stale.Add(1)
		id.Annotate("authentication.k8s.io/stale-token", fmt.Sprintf("subject: %s, seconds after warning threshold: %d",
			c.Subject, now.Unix()-b.WarnAfter.Time().Unix()))
	}
	return nil
}

// checkBinding checks the objects that a token is bound to beside its ServiceAccount: they must exist, with the same
// UID.
func (v *Verifier) checkBinding(ctx context.Context, b *kubernetes, now time.Time) error {
	node := b.Node
	if b.Pod != nil { // in a token for a Pod, the Node only shows where the Pod runs; it need not exist
		node = nil
	}
	err := v.checkObjects(ctx, now, binding{b.Secret, "secrets", b.Namespace, "secret", "secret"},
		binding{b.Pod, "pods", b.Namespace, "pod", "pod"}, binding{node, "nodes", "", "node", "node"})
	if err != nil || b.Validating == nil && b.Mutating == nil {
		return err
	}
	switch {
	case !v.Webhooks:
		return errors.New(`feature gate "APIServerWebhookAuthenticationToken" is disabled, but token is webhook bound`)
	case len(b.Attestations[apiGroups]) == 0:
		return fmt.Errorf("bound object was a webhook config, but %q attestation is missing", apiGroups)
	}
	const validating, mutating = "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"
	return v.checkObjects(ctx, now, binding{b.Validating, webhookResources[validating], "", validating, "validating"},
		binding{b.Mutating, webhookResources[mutating], "", mutating, "validating"})
}

// binding is an object that a token may be bound to: what the token says of it, where it is, and how the reference
// calls it and its claim in errors.
type binding struct {
	to                               *reference // nil: the token is not bound to it
	resource, namespace, name, claim string
}

// checkObjects checks that these objects exist.
func (v *Verifier) checkObjects(ctx context.Context, now time.Time, bindings ...binding) error {
	for _, b := range bindings {
		if b.to == nil {
			continue
		}
		o, err := v.Objects.get(ctx, b.resource, b.namespace, b.to.Name)
		switch {
		case err != nil:
			return errInvalidated
		case o.Sidecar.UID != b.to.UID:
			return fmt.Errorf("%s UID (%s) does not match service account %s ref claim (%s)", b.name, o.Sidecar.UID, b.claim,
				b.to.UID)
		case gone(o, now):
			return errInvalidated
		}
	}
	return nil
}

var errInvalidated = errors.New("service account token has been invalidated")

// gone says whether the grace period of a deleted object is over, with a minute for differences between clocks: as in
// the reference, the tokens of a Pod that terminates are valid until then.
func gone(o *engine.Object, now time.Time) bool {
	at, deleted := deletedAt(o)
	return deleted && at.Before(now.Add(-jwt.DefaultLeeway))
}

// deletedAt is the time at which the grace period of a deleted object is over; long ago if it cannot be read.
func deletedAt(o *engine.Object) (at time.Time, deleted bool) {
	if !o.Sidecar.Deleting {
		return at, false
	}
	obj, err := engine.ObjectOf(o)
	if err != nil {
		return at, true
	}
	at, err = time.Parse(time.RFC3339, obj.At("metadata", "deletionTimestamp").Str())
	if err != nil {
		return time.Time{}, true
	}
	return at, true
}

// checkLegacy returns an error if a legacy token is not the one in its Secret, or its ServiceAccount does not exist any
// more.
func (v *Verifier) checkLegacy(ctx context.Context, c *claims, token string, id *access.Identity) error {
	for _, need := range []struct{ value, name string }{
		{c.Subject, "sub"}, {c.legacyClaims.Namespace, "namespace"}, {c.SecretName, "secretName"},
		{c.AccountName, "serviceAccountName"},
		{c.AccountUID, "serviceAccountUID"},
	} {
		if need.value == "" {
			return errors.New(need.name + " claim is missing")
		}
	}
	if namespace, name, ok := access.SplitServiceAccount(c.Subject); !ok || namespace != c.legacyClaims.Namespace ||
		name != c.AccountName {
		return errors.New("sub claim is invalid")
	}
	if !v.Lookup {
		return nil
	}
	namespace := c.legacyClaims.Namespace
	secret, err := v.Objects.get(ctx, "secrets", namespace, c.SecretName)
	if err != nil || secret.Sidecar.Deleting {
		return errors.New("Token has been invalidated") //nolint:staticcheck // the message of the reference
	}
	obj, err := engine.ObjectOf(secret)
	if err != nil {
		return err
	}
	kept, err := base64.StdEncoding.DecodeString(obj.At("data", "token").Str())
	if err != nil || subtle.ConstantTimeCompare(kept, []byte(token)) == 0 {
		return errors.New("Token does not match server's copy") //nolint:staticcheck
	}
	account, err := v.Objects.get(ctx, "serviceaccounts", namespace, c.AccountName)
	switch {
	case err != nil:
		return err
	case account.Sidecar.Deleting:
		return fmt.Errorf("ServiceAccount %s/%s has been deleted", namespace, c.AccountName)
	case account.Sidecar.UID != c.AccountUID:
		return fmt.Errorf("ServiceAccount UID (%s) does not match claim (%s)", account.Sidecar.UID, c.AccountUID)
	}
	return v.track(ctx, c, secret, account, id)
}

// track records the use of a legacy token (KEP-2799): on its Secret, once a day, and in annotations of the audit event.
// Tomorrow's mark counts as today's: it was set by a server whose clock is ahead.
func (v *Verifier) track(ctx context.Context, c *claims, secret, account *engine.Object, id *access.Identity) error {
	today := v.Now().UTC()
	used := label(secret, access.LegacyTokenLastUsed)
	if v.Used != nil && used != today.Format(time.DateOnly) && used != today.AddDate(0, 0, 1).Format(time.DateOnly) {
		v.Used(ctx, secret, today.Format(time.DateOnly))
	}
	// The audit event gets no annotation here. The reference sets one, but its token cache drops the annotations of
	// tokens that are refused.
	if label(secret, access.LegacyTokenInvalidSince) != "" {
		v.Counters.Invalid.Add(1)
		return fmt.Errorf(
			"the token in secret %s/%s for service account %s/%s has been marked invalid. Use tokens from the TokenRequest API "+
				"or manually created secret-based tokens, or remove the '%s' label from the secret to temporarily allow use of this token",
			c.legacyClaims.Namespace, c.SecretName, c.legacyClaims.Namespace, c.AccountName,
			access.LegacyTokenInvalidSince)
	}
	obj, err := engine.ObjectOf(account)
	if err != nil {
		return err
	}
	generated := slices.ContainsFunc(obj.At("secrets").Items(),
		func(s object.Value) bool { return s.At("name").Str() == c.SecretName })
	if !generated {
		v.Counters.Manual.Add(1)
		id.Annotate("authentication.k8s.io/legacy-token-manual-secret", c.SecretName)
		return nil
	}
	v.Counters.Generated.Add(1)
	id.Annotate("authentication.k8s.io/legacy-token-autogenerated-secret", c.SecretName)
	id.Warnings = append(id.Warnings,
		"Use tokens from the TokenRequest API or manually created secret-based tokens instead of "+
			"auto-generated secret-based tokens.")
	return nil
}

func label(o *engine.Object, name string) string {
	for _, l := range o.Sidecar.Labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}
