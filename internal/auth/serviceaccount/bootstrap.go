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

// BootstrapTokens are those by which new nodes show that they belong here: each is a Secret in kube-system.
type BootstrapTokens struct {
	Objects *Objects
	Now     func() time.Time
}

var (
	bootstrapToken = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`) })
	bootstrapGroup = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`) })
)

// Token says which node a token is of. What is not right about a Secret makes its token nobody's.
func (b *BootstrapTokens) Token(ctx context.Context, token string, _ []string) (id access.Identity, ok bool, err error) {
	parts := bootstrapToken().FindStringSubmatch(token)
	if parts == nil {
		return id, false, nil
	}
	secret, err := b.Objects.get(ctx, "secrets", "kube-system", "bootstrap-token-"+parts[1])
	switch {
	case apierr.Is(err, apierr.NotFound):
		return id, false, nil
	case err != nil:
		return id, false, err
	}
	obj, err := engine.ObjectOf(secret)
	if err != nil || secret.Sidecar.Deleting || obj.At("type").Str() != "bootstrap.kubernetes.io/token" {
		return id, false, nil
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
		return id, false, nil
	}
	if until := data("expiration"); until != "" {
		if at, err := time.Parse(time.RFC3339, until); err != nil || !at.After(b.Now()) {
			return id, false, nil
		}
	}
	groups := []string{"system:bootstrappers"}
	if more := data("auth-extra-groups"); more != "" {
		for group := range strings.SplitSeq(more, ",") {
			if !bootstrapGroup().MatchString(group) {
				return id, false, nil
			}
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	id.User = access.User{Name: "system:bootstrap:" + parts[1], Groups: slices.Compact(groups)}
	return id, true, nil
}
