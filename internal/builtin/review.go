package builtin

import (
	"context"
	"sort"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/engine"
	"plinth/object"
)

func authentication(c Config) group {
	return group{"authentication.k8s.io", "v1", []kind{
		{
			name: "selfsubjectreviews", kind: "SelfSubjectReview", schema: gotypes.Of[authenticationv1.SelfSubjectReview],
			cluster: true, verbs: createOnly,
			special: func(r *engine.Resource) { r.Answer = whoAmI(c.Now) },
		},
		{
			name: "tokenreviews", kind: "TokenReview", schema: gotypes.Of[authenticationv1.TokenReview],
			cluster: true, verbs: createOnly,
			special: func(r *engine.Resource) { r.Answer = reviewToken(c.Authenticate) },
		},
	}}
}

// componentStatuses tells of the parts that a control plane once had. This server is one part, and nobody writes here:
// the list is empty.
func componentStatuses() kind {
	return kind{
		name: "componentstatuses", kind: "ComponentStatus", short: "cs", schema: gotypes.Of[corev1.ComponentStatus],
		cluster: true, verbs: []string{"get", "list"}, deprecated: "v1 ComponentStatus is deprecated in v1.19+",
		table:   columns.ComponentStatuses,
		special: func(r *engine.Resource) { r.NotFoundAs = "componentstatus" },
	}
}

// userInfo is a user as reviews show one.
func userInfo(u access.User) object.Value {
	info := object.Fields("username", object.StringOf(u.Name))
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

// whoAmI answers who asks.
func whoAmI(now func() time.Time) func(context.Context, *engine.Request, object.Value) (object.Value, error) {
	return func(_ context.Context, rq *engine.Request, obj object.Value) (object.Value, error) {
		created := object.StringOf(now().UTC().Format(time.RFC3339))
		return obj.Edit([]object.Member{
			{Key: "metadata", Value: object.Fields("creationTimestamp", created)},
			{Key: "status", Value: object.Fields("userInfo", userInfo(rq.User))},
		}), nil
	}
}

// reviewToken answers whose a token is.
func reviewToken(authenticate func(token string) (access.User, bool)) func(context.Context, *engine.Request, object.Value) (object.Value, error) {
	return func(_ context.Context, _ *engine.Request, obj object.Value) (object.Value, error) {
		token := obj.At("spec", "token").Str()
		if token == "" {
			return object.Nil, apierr.NewBadRequest("token is required for TokenReview in authentication")
		}
		// No token here is for an audience. Who asks for one must not be told that the token is for it.
		if authenticate != nil && obj.At("spec", "audiences").Len() == 0 {
			if user, ok := authenticate(token); ok {
				return obj.With("status", object.Fields("authenticated", object.BoolOf(true), "user", userInfo(user))), nil
			}
		}
		return obj.With("status", object.Fields("user", object.MapOf(), "error", object.StringOf("invalid bearer token"))), nil
	}
}
