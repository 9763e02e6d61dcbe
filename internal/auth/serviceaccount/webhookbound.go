package serviceaccount

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// A token for a webhook (gate APIServerWebhookAuthenticationToken) is what an API server sends to an admission webhook,
// so that the webhook knows that the reviews come from an API server. It is bound to the configuration of the webhook.
// Its one audience is the address of the webhook, and it attests that whoever has requested it may send reviews of one
// API group. The webhook must be configured for that address and that group; other programs get no token for it.

// maxWebhookSeconds is the longest lifetime of such a token.
const maxWebhookSeconds = 10 * 60

// webhookResources are the resources of the webhook configurations, by their kinds.
var webhookResources = map[string]string{
	"ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
	"MutatingWebhookConfiguration":   "mutatingwebhookconfigurations",
}

// webhooks says whether a kind is one of the two webhook configurations.
func webhooks(group, version, kind string) bool {
	return group == admissionGroup && version == "v1" && webhookResources[kind] != ""
}

const admissionGroup = "admissionregistration.k8s.io"

// bindWebhook binds a token to a webhook configuration. What is wrong with the configuration is not disclosed: who
// requests a token need not be allowed to read it.
func (i *Issuer) bindWebhook(ctx context.Context, rq *engine.Request, b *bound, spec object.Value,
	now time.Time) error {
	ref := spec.At("boundObjectRef")
	kind, name := ref.At("kind").Str(), ref.At("name").Str()
	switch {
	case !i.Webhooks:
		return apierr.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s/v1, Kind=%s (feature gate "+
			"APIServerWebhookAuthenticationToken is disabled)", admissionGroup, kind))
	case slices.ContainsFunc(b.audiences, func(a string) bool { return slices.Contains(i.Audiences, a) }):
		return apierr.NewBadRequest("api server audiences are invalid for webhook token requests")
	}
	attestations := spec.At("attestations")
	group, audience := attestations.At(apiGroups).Items()[0].Str(), b.audiences[0] // they are validated
	if err := attest(ctx, rq, b, group); err != nil {
		return err
	}
	config, err := i.Objects.get(ctx, webhookResources[kind], "", name)
	if err != nil || passed(config, now) || group != "*" && !configured(config, group, audience) {
		return apierr.NewForbidden(apierr.Type{Name: "serviceaccounts/token"}, b.name, "token request denied")
	}
	b.to = append(b.to, object.Member{Key: strings.ToLower(kind), Value: referenceTo(name, config.Sidecar.UID)},
		object.Member{Key: "attestations", Value: attestations})
	b.most = maxWebhookSeconds
	return sameUID(ref, admissionGroup, config)
}

// attest asks the authorizer whether the ServiceAccount may attest that it sends reviews of an API group.
func attest(ctx context.Context, rq *engine.Request, b *bound, group string) error {
	if rq.Authorizer == nil { // a request of the server itself
		return nil
	}
	user := account(b.namespace, b.name, b.uid)
	user.Groups = slices.DeleteFunc(user.Groups, func(g string) bool { return g == access.Authenticated })
	a := &access.Attributes{User: user, Verb: "attest", IsResource: true, Group: "authentication.k8s.io", Version: "*",
		Resource: apiGroups, Name: group}
	decision, reason, err := rq.Authorizer.Authorize(ctx, a)
	switch {
	case decision == access.Allow:
		return nil
	case err != nil && reason != "":
		reason = err.Error() + ": " + reason
	case err != nil:
		reason = err.Error()
	}
	return apierr.NewForbidden(apierr.Type{Group: a.Group, Name: a.Resource}, a.Name, a.Refusal(reason))
}

// passed says whether the time has passed at which an object was to be deleted.
func passed(o *engine.Object, now time.Time) bool {
	at, ok := deletedAt(o)
	return ok && now.After(at)
}

// configured says whether a webhook of a configuration is at an address and gets reviews of an API group.
func configured(config *engine.Object, group, address string) bool {
	obj, err := engine.ObjectOf(config)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(obj.At("webhooks").Items(), func(hook object.Value) bool {
		return slices.ContainsFunc(hook.At("rules").Items(), func(rule object.Value) bool {
			return slices.ContainsFunc(rule.At("apiGroups").Items(), func(g object.Value) bool {
				return g.Str() == "*" || g.Str() == group
			})
		}) && addressed(hook.At("clientConfig"), address)
	})
}

// addressed says whether an address is that of a client configuration: its URL to the letter, or that of its Service,
// with port and path.
func addressed(client object.Value, address string) bool {
	if url := client.At("url"); !url.IsNull() && url.Str() == address {
		return true
	}
	service := client.At("service")
	if service.IsNull() {
		return false
	}
	port, path := int64(443), "/"
	if p := service.At("port"); !p.IsNull() {
		port = p.Int()
	}
	if p := service.At("path"); !p.IsNull() {
		if path = p.Str(); !strings.HasPrefix(path, "/") {
			path = "/" + path
		}
	}
	return address == "https://"+service.At("name").Str()+"."+service.At("namespace").Str()+".svc:"+
		strconv.FormatInt(port, 10)+path
}
