package controller

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// TokenCleaner deletes Secrets with legacy tokens that were generated and are not used (AUTH-2). Releases before 1.24
// generated one for each ServiceAccount, and listed it in its secrets; a Secret that a user has made for a token is not
// listed there, and stays.
//
// A token that was not used for a period first gets the label invalid-since: authentication refuses it then, and a user
// who needs it can remove the label. (The refused use was recorded, so the token is not marked again at once.) If it is
// not used for another period after that, the Secret is deleted. The use of a token is recorded by its day, in the
// label last-used, since the day in the ConfigMap access.LegacyTokenTracking: whether a token without the label was
// used before that day is unknown.
//
// It looks at a Secret when it changes, and then once a day, which is the reference's interval: Pods and
// ServiceAccounts can end the use of a Secret without changing it.
type TokenCleaner struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
	Period   time.Duration
	// PodSecrets returns the names of the Secrets that a Pod uses.
	PodSecrets func(pod object.Value) []string

	secrets, accounts, pods, configs *engine.Resource
	user                             access.User
}

// cleanInterval is the interval at which an unchanged Secret is checked.
const cleanInterval = 24 * time.Hour

// Start begins its loops.
func (c *TokenCleaner) Start(g *steps.Group) {
	types := c.Registry.Builtin()
	c.secrets, c.accounts = types.Find("", "v1", "secrets"), types.Find("", "v1", "serviceaccounts")
	c.pods, c.configs = types.Find("", "v1", "pods"), types.Find("", "v1", "configmaps")
	c.user = access.ControllerAccount("legacy-service-account-token-cleaner")
	if c.Now == nil {
		c.Now = time.Now
	}
	(&follower{
		engine: c.Engine, logger: c.Logger, name: "legacy-serviceaccount-token-cleaner-controller",
		types: []*engine.Resource{c.secrets},
		sync: func(ctx context.Context, _ *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
			if gone || o.Sidecar.Deleting || !isTokenSecret(o) {
				return 0, nil
			}
			obj, err := parsed(o)
			if err != nil {
				return 0, nil // it cannot be decoded
			}
			return cleanInterval, c.clean(ctx, o, obj)
		},
	}).start(g)
}

// clean marks a Secret invalid, or deletes it, if it is time to. Days are compared as strings, as they are in labels:
// in the format time.DateOnly that is the order of time.
func (c *TokenCleaner) clean(ctx context.Context, o *engine.Object, obj object.Value) error {
	now := c.Now().UTC()
	begin := now.Add(-c.Period)
	firstDay := begin.Format(time.DateOnly)
	if created, err := time.Parse(time.RFC3339, obj.At("metadata", "creationTimestamp").Str()); err != nil ||
		!created.Before(begin) {
		return nil
	}
	labels := obj.At("metadata", "labels")
	if used := labels.At(access.LegacyTokenLastUsed); !used.IsNull() && (!isDay(used.Str()) || used.Str() >= firstDay) {
		return nil
	}
	for _, unneeded := range []func(context.Context, *engine.Object, object.Value) (bool, error){
		c.tracked, c.generated, c.unmounted,
	} {
		if ok, err := unneeded(ctx, o, obj); err != nil || !ok {
			return err
		}
	}
	namespace, name, _ := strings.Cut(o.Key.Name, "/")
	rq := &engine.Request{Resource: c.secrets, Namespace: namespace, Name: name, User: c.user, FieldManager: manager}
	if invalid := labels.At(access.LegacyTokenInvalidSince).Str(); isDay(invalid) {
		if invalid >= firstDay {
			return nil
		}
		return unlessChanged(c.Engine.Delete(ctx, rq, engine.DeleteOptions{PreconditionRV: fmt.Sprint(o.Revision)}))
	}
	patch := object.Fields("metadata", object.Fields("uid", object.StringOf(o.Sidecar.UID), "labels",
		object.Fields(access.LegacyTokenInvalidSince, object.StringOf(now.Format(time.DateOnly)))))
	return unlessChanged(c.Engine.Patch(ctx, rq,
		engine.Patch{Type: engine.MergePatch, Body: object.AppendJSON(nil, patch)}))
}

// isDay says whether a label is a day in the format time.DateOnly.
func isDay(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return err == nil
}

// tracked says whether the use of tokens has been recorded for the whole period. The day on which this began does not
// count, as the time of day is unknown.
func (c *TokenCleaner) tracked(ctx context.Context, _ *engine.Object, _ object.Value) (bool, error) {
	rq := &engine.Request{Resource: c.configs, Namespace: "kube-system", Name: access.LegacyTokenTracking, User: c.user}
	result, err := c.Engine.Get(ctx, rq, "")
	if err != nil {
		return false, unlessChanged(nil, err)
	}
	obj, err := parsed(result.Object)
	if err != nil {
		return false, nil
	}
	since, err := time.Parse(time.DateOnly, obj.At("data", access.LegacyTokenTrackingSince).Str())
	return err == nil && !c.Now().UTC().Before(since.AddDate(0, 0, 1).Add(c.Period)), nil
}

// generated says whether a Secret is listed by the ServiceAccount that its annotations name.
func (c *TokenCleaner) generated(ctx context.Context, o *engine.Object, obj object.Value) (bool, error) {
	annotations := obj.At("metadata", "annotations")
	name, uid := annotations.At(accountAnnotation).Str(), annotations.At(uidAnnotation).Str()
	namespace, secret, _ := strings.Cut(o.Key.Name, "/")
	if name == "" {
		return false, nil
	}
	rq := &engine.Request{Resource: c.accounts, Namespace: namespace, Name: name, User: c.user}
	result, err := c.Engine.Get(ctx, rq, "")
	if err != nil {
		return false, unlessChanged(nil, err)
	}
	account, err := parsed(result.Object)
	if err != nil || uid != "" && uid != result.Object.Sidecar.UID {
		return false, nil
	}
	return slices.ContainsFunc(account.At("secrets").Items(),
		func(s object.Value) bool { return s.At("name").Str() == secret }), nil
}

// unmounted says whether no Pod uses a Secret.
func (c *TokenCleaner) unmounted(ctx context.Context, o *engine.Object, _ object.Value) (bool, error) {
	namespace, secret, _ := strings.Cut(o.Key.Name, "/")
	list, err := c.Engine.List(ctx, &engine.Request{Resource: c.pods, Namespace: namespace, User: c.user},
		engine.ListOptions{})
	if err != nil {
		return false, err
	}
	for pod := range list.Items {
		if !bytes.Contains(pod.Data(), []byte(`"`+secret+`"`)) {
			continue // most Pods are not parsed
		}
		obj, err := parsed(pod)
		if err != nil || slices.Contains(c.PodSecrets(obj), secret) {
			return false, nil // a Pod that cannot be decoded may use it
		}
	}
	return true, list.Err()
}
