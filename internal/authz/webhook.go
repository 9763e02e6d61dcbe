package authz

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"plinth/internal/access"
	"plinth/internal/cel"
	"plinth/internal/webhook"
	"plinth/object"
)

// hook implements the mode Webhook: it sends a SubjectAccessReview to a webhook.
//
// A call takes longer than most requests, so decisions are cached, by the whole spec of the review: what is not in it
// cannot change the decision. A user chooses what is requested, and a selector alone may have megabytes: so the number
// of keys is bounded, and a key is the hash of the spec. (The reference's key is the spec. It caches no decision about
// more than 10,000 bytes of attributes, but does not count selectors.) Concurrent requests with the same spec each call
// the webhook, as in the reference.
type hook struct {
	name       string
	remote     *webhook.Remote
	version    string // of the SubjectAccessReview
	conditions []*cel.AccessCondition
	onError    access.Decision
	// authorized and unauthorized are how long decisions are cached; 0: not at all.
	authorized, unauthorized time.Duration
	decisions                *cache.LRUExpireCache // SubjectAccessReviewStatus by the SHA-256 of the spec as JSON
	options                  Options
}

// maxDecisions is how many decisions are cached, as in the reference.
const maxDecisions = 8192

// newWebhook creates a hook from a valid configuration.
func newWebhook(name string, c *WebhookConfiguration, o Options) (*hook, error) {
	if c.ConnectionInfo.Type == inCluster {
		return nil, fmt.Errorf("authorizer %s: %w", name, errInCluster)
	}
	remote, err := webhook.FromKubeconfig(*c.ConnectionInfo.KubeConfigFile)
	if err != nil {
		return nil, err
	}
	remote.SetTimeout(c.Timeout.Duration)
	if v := c.SubjectAccessReviewVersion; v != reviewV1 && v != reviewV1beta1 {
		return nil, fmt.Errorf("unsupported webhook authorizer version %q, supported versions are %q, %q", v, reviewV1,
			reviewV1beta1)
	}
	h := &hook{
		name: name, remote: remote, version: c.SubjectAccessReviewVersion, onError: access.NoOpinion,
		decisions: cache.NewLRUExpireCache(maxDecisions), options: o,
	}
	if c.FailurePolicy == failDeny {
		h.onError = access.Deny
	}
	if *c.CacheAuthorizedRequests {
		h.authorized = c.AuthorizedTTL.Duration
	}
	if *c.CacheUnauthorizedRequests {
		h.unauthorized = c.UnauthorizedTTL.Duration
	}
	conditions, errs := c.conditions(nil)
	h.conditions = conditions
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return h, nil
}

var errBoth = errors.New("webhook subject access review returned both allow and deny response")

// Authorize implements access.Authorizer. If a match condition or the webhook fails, the failure policy decides.
func (h *hook) Authorize(ctx context.Context, a *access.Attributes) (access.Decision, string, error) {
	request := specOf(a)
	switch matches, err := h.matches(ctx, request); {
	case err != nil:
		return h.onError, "", err
	case !matches:
		return access.NoOpinion, "", nil
	}
	spec := request.value(h.version)
	key := sha256.Sum256(object.AppendJSON(nil, spec))
	var status SubjectAccessReviewStatus
	if cached, ok := h.decisions.Get(key); ok {
		status = cached.(SubjectAccessReviewStatus)
	} else {
		var err error
		if status, err = h.call(ctx, spec); err != nil {
			return h.onError, "", err
		}
		life := h.unauthorized
		if status.Allowed {
			life = h.authorized
		}
		h.decisions.Add(key, status, life)
	}
	switch {
	case status.Denied && status.Allowed:
		return access.Deny, status.Reason, errBoth
	case status.Denied:
		return access.Deny, status.Reason, nil
	case status.Allowed:
		return access.Allow, status.Reason, nil
	}
	return access.NoOpinion, status.Reason, nil
}

func (h *hook) rulesIn(context.Context, *access.User, string) ([]Rule, bool, error) {
	return nil, true, errHookRules
}

var errHookRules = errors.New("webhook authorizer does not support user rule resolution")

// matches says whether the webhook decides about a request: not if any match condition is false. The error of a
// condition counts only if no condition is false.
func (h *hook) matches(ctx context.Context, request *reviewSpec) (bool, error) {
	if len(h.conditions) == 0 {
		return true, nil
	}
	began := time.Now()
	variable := request.request()
	var errs []error
	excluded := slices.ContainsFunc(h.conditions, func(c *cel.AccessCondition) bool {
		holds, err := c.Holds(ctx, variable)
		if err != nil {
			errs = append(errs, err)
		}
		return err == nil && !holds
	})
	if report := h.options.Metrics.Matched; report != nil {
		report(string(Webhook), h.name, time.Since(began), len(errs) > 0, excluded)
	}
	if excluded {
		return false, nil
	}
	return len(errs) == 0, aggregate(errs)
}

// call calls the webhook, with retries after errors that may be temporary.
func (h *hook) call(ctx context.Context, spec object.Value) (status SubjectAccessReviewStatus, err error) {
	body := review(h.version, spec)
	m := &h.options.Metrics
	result := ""
	err = webhook.Retry(ctx, cmp.Or(h.options.RetryDelay, webhook.RetryDelay), func() error {
		began := time.Now()
		response, err := h.remote.Post(ctx, body)
		if err == nil {
			status, err = readResponse(response, h.version)
		}
		switch {
		case err == nil:
			result = "success"
		case ctx.Err() != nil:
			result = "canceled"
		case utilnet.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err):
			result = "timeout"
		default:
			result = "error"
		}
		if m.Evaluated != nil {
			m.Evaluated(h.name, result, time.Since(began))
		}
		return err
	})
	if err != nil {
		h.options.Logger.Error("an authorization webhook failed", "name", h.name, "error", err)
		if m.FailedOpen != nil && h.onError == access.NoOpinion && ctx.Err() == nil {
			m.FailedOpen(h.name, result)
		}
	}
	return status, err
}
