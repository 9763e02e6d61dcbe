package builtin

import (
	"context"
	"slices"
	"sort"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/builtin/defaults"
	"plinth/internal/engine"
	"plinth/internal/execution"
	"plinth/internal/gotypes"
	"plinth/object"
)

func authentication(c Config) group {
	return group{"authentication.k8s.io", []kind{
		{
			name: "selfsubjectreviews", kind: "SelfSubjectReview",
			versions: []version{unlisted[authenticationv1.SelfSubjectReview]()},
			cluster:  true, verbs: createOnly,
			special: func(r *engine.Resource) { r.Answer = whoAmI(c.Now) },
		},
		{
			name: "tokenreviews", kind: "TokenReview", versions: []version{unlisted[authenticationv1.TokenReview]()},
			cluster: true, verbs: createOnly,
			acts: func(r *engine.Resource, parts *Parts) { r.Answer = reviewToken(parts.Authenticate) },
		},
	}}
}

// Tokens answers TokenRequests, as an engine.Subresource does.
type Tokens func(ctx context.Context, rq *engine.Request, account *engine.Object, body object.Value) (object.Value,
	[]string, error)

// accountTokens is the subresource token of ServiceAccounts, which issues tokens.
func accountTokens() []*engine.Subresource {
	return []*engine.Subresource{{
		Name: "token", Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest", Verbs: createOnly,
		Schema: gotypes.Of[authenticationv1.TokenRequest], Default: defaults.TokenRequest,
	}}
}

// answerTokens has the tokens of ServiceAccounts issued by the control plane.
func answerTokens(r *engine.Resource, parts *Parts) {
	r.Subresource("token").Answer = parts.Tokens
	if parts.NoTokens {
		r.Subresources = slices.DeleteFunc(r.Subresources, func(s *engine.Subresource) bool { return s.Name == "token" })
	}
}

// userInfo is a user in the form of reviews.
func userInfo(u access.User) object.Value {
	info := object.MapOf()
	if u.Name != "" {
		info = info.With("username", object.StringOf(u.Name))
	}
	if u.UID != "" {
		info = info.With("uid", object.StringOf(u.UID))
	}
	if len(u.Groups) > 0 {
		info = info.With("groups", object.Strings(u.Groups...))
	}
	if len(u.Extra) > 0 {
		extra := make([]object.Member, 0, len(u.Extra))
		for key, values := range u.Extra {
			extra = append(extra, object.Member{Key: key, Value: object.Strings(values...)})
		}
		sort.Slice(extra, func(i, j int) bool { return extra[i].Key < extra[j].Key })
		info = info.With("extra", object.MapOf(extra...))
	}
	return info
}

// whoAmI answers a SelfSubjectReview.
func whoAmI(now func() time.Time) func(context.Context, *engine.Request, object.Value) (object.Value, error) {
	return func(_ context.Context, rq *engine.Request, obj object.Value) (object.Value, error) {
		created := object.StringOf(now().UTC().Format(time.RFC3339))
		return obj.Edit([]object.Member{
			{Key: "metadata", Value: object.Fields("creationTimestamp", created)},
			{Key: "status", Value: object.Fields("userInfo", userInfo(rq.User))},
		}), nil
	}
}

// Authenticate returns the user of a token, and whether it authenticates one; an error gives the reason why not. The
// token has to be for one of the audiences, or if audiences is empty for one of the server's.
type Authenticate func(ctx context.Context, token string, audiences []string) (id access.Identity, ok bool, err error)

// reviewToken answers a TokenReview.
func reviewToken(authenticate Authenticate) func(context.Context, *engine.Request, object.Value) (object.Value, error) {
	return func(ctx context.Context, _ *engine.Request, obj object.Value) (object.Value, error) {
		token := obj.At("spec", "token").Str()
		if token == "" {
			return object.Nil, apierr.NewBadRequest("token is required for TokenReview in authentication")
		}
		var audiences []string
		for _, a := range obj.At("spec", "audiences").Items() {
			audiences = append(audiences, a.Str())
		}
		var id access.Identity
		var ok bool
		var err error
		// A webhook or an issuer may be asked.
		execution.Outside(ctx, func() { id, ok, err = authenticate(ctx, token, audiences) })
		var status []object.Member
		switch {
		case ok:
			status = []object.Member{
				{Key: "authenticated", Value: object.BoolOf(true)}, {Key: "user", Value: userInfo(id.User)},
			}
			if len(id.Audiences) > 0 {
				status = append(status, object.Member{Key: "audiences", Value: object.Strings(id.Audiences...)})
			}
		case err != nil:
			status = []object.Member{{Key: "user", Value: object.MapOf()},
				{Key: "error", Value: object.StringOf(err.Error())}}
		default:
			status = []object.Member{{Key: "user", Value: object.MapOf()}}
		}
		return obj.With("status", object.MapOf(status...)), nil
	}
}
