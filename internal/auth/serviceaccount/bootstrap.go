package serviceaccount

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/engine"
)

// BootstrapTokens authenticates bootstrap tokens (--enable-bootstrap-token-auth), which new nodes use to get a client
// certificate. Each is a Secret in kube-system.
type BootstrapTokens struct {
	Objects *Objects
	Now     func() time.Time
	// After is when copies of another plane's Secrets were made: Secrets that were not created after it are such copies,
	// and their tokens are not valid here. Zero: there are none.
	After time.Time
}

var (
	bootstrapToken = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`) })
	bootstrapGroup = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(
			`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
	})
)

// Token implements auth.Tokens. As in the reference, an invalid Secret is not an error: its token is then unknown.
func (b *BootstrapTokens) Token(ctx context.Context, token string, _ []string) (*access.Identity, error) {
	parts := bootstrapToken().FindStringSubmatch(token)
	if parts == nil {
		return nil, nil
	}
	secret, err := b.Objects.get(ctx, "secrets", "kube-system", "bootstrap-token-"+parts[1])
	switch {
	case apierr.Is(err, apierr.NotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	obj, err := engine.ObjectOf(secret)
	if err != nil || secret.Sidecar.Deleting || obj.At("type").Str() != "bootstrap.kubernetes.io/token" {
		return nil, nil
	}
	if !b.After.IsZero() { // times of creation have seconds: one that cannot be told from a copy's is one
		created, err := time.Parse(time.RFC3339, obj.At("metadata", "creationTimestamp").Str())
		if err != nil || !created.After(b.After.Truncate(time.Second)) {
			return nil, nil
		}
	}
	data := func(key string) string {
		value, err := base64.StdEncoding.DecodeString(obj.At("data", key).Str())
		if err != nil {
			return ""
		}
		return string(value)
	}
	if subtle.ConstantTimeCompare([]byte(data("token-secret")), []byte(parts[2])) != 1 || data("token-id") != parts[1] ||
		data("usage-bootstrap-authentication") != "true" {
		return nil, nil
	}
	if until := data("expiration"); until != "" {
		if at, err := time.Parse(time.RFC3339, until); err != nil || !at.After(b.Now()) {
			return nil, nil
		}
	}
	groups := []string{"system:bootstrappers"}
	if more := data("auth-extra-groups"); more != "" {
		for group := range strings.SplitSeq(more, ",") {
			if !bootstrapGroup().MatchString(group) {
				return nil, nil
			}
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return &access.Identity{User: access.User{Name: "system:bootstrap:" + parts[1], Groups: slices.Compact(groups)}}, nil
}
