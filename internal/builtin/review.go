package builtin

import (
	"context"
	"slices"
	"sort"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

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

func authorization() group {
	return group{"authorization.k8s.io", "v1", []kind{
		{
			name: "localsubjectaccessreviews", kind: "LocalSubjectAccessReview",
			schema: gotypes.Of[authorizationv1.LocalSubjectAccessReview], verbs: createOnly,
			special: func(r *engine.Resource) { r.Answer = reviewAccess(localAccess) },
		},
		{
			name: "selfsubjectaccessreviews", kind: "SelfSubjectAccessReview",
			schema: gotypes.Of[authorizationv1.SelfSubjectAccessReview], cluster: true, verbs: createOnly,
			special: func(r *engine.Resource) { r.Answer = reviewOwnAccess },
		},
		{
			name: "selfsubjectrulesreviews", kind: "SelfSubjectRulesReview",
			schema: gotypes.Of[authorizationv1.SelfSubjectRulesReview], cluster: true, verbs: createOnly,
			special: func(r *engine.Resource) { r.Answer = reviewRules },
		},
		{
			name: "subjectaccessreviews", kind: "SubjectAccessReview",
			schema: gotypes.Of[authorizationv1.SubjectAccessReview], cluster: true, verbs: createOnly,
			special: func(r *engine.Resource) { r.Answer = reviewAccess(noMeta) },
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

// reviewOwnAccess answers whether who asks may do something.
func reviewOwnAccess(_ context.Context, rq *engine.Request, obj object.Value) (object.Value, error) {
	faults := append(attributesFaults(obj), noMeta(obj)...)
	if len(faults) > 0 {
		return object.Nil, refused(faults)
	}
	return decided(obj, rq.User.In(access.Masters)), nil
}

// reviewAccess answers whether somebody may do something. rule is what else the kind demands of a request.
func reviewAccess(rule func(obj object.Value) field.ErrorList) func(context.Context, *engine.Request, object.Value) (object.Value, error) {
	return func(_ context.Context, rq *engine.Request, obj object.Value) (object.Value, error) {
		faults := attributesFaults(obj)
		spec := obj.At("spec")
		if spec.At("user").Str() == "" && spec.At("groups").Len() == 0 {
			faults = append(faults, field.Invalid(field.NewPath("spec", "user"), "", "at least one of user or group must be specified"))
		}
		if faults = append(faults, rule(obj)...); len(faults) > 0 {
			return object.Nil, refused(faults)
		}
		allowed := false
		for _, g := range spec.At("groups").Items() {
			allowed = allowed || g.Str() == access.Masters
		}
		return decided(obj, allowed), nil
	}
}

func decided(obj object.Value, allowed bool) object.Value {
	return obj.With("status", object.Fields("allowed", object.BoolOf(allowed)))
}

// refused names no kind, as the reference does not.
func refused(faults field.ErrorList) error {
	return apierr.NewInvalid(apierr.Type{Group: "authorization.k8s.io"}, "", faults)
}

// attributesFaults demands that a review asks about a resource or about a path.
func attributesFaults(obj object.Value) field.ErrorList {
	spec := obj.At("spec")
	path := spec.At("nonResourceAttributes")
	if path.IsNull() != spec.At("resourceAttributes").IsNull() {
		return nil
	}
	var shown any
	if !path.IsNull() {
		shown = string(object.AppendJSON(nil, path))
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec"), shown, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
}

// noMeta demands that a review has no metadata.
func noMeta(obj object.Value) field.ErrorList {
	return metaFaults(obj.At("metadata"), "must be empty")
}

func metaFaults(meta object.Value, why string, allowed ...string) field.ErrorList {
	for _, m := range meta.Members() {
		if m.Key != "managedFields" && !slices.Contains(allowed, m.Key) && !m.Value.IsNull() && m.Value.Len() > 0 {
			return field.ErrorList{field.Invalid(field.NewPath("metadata"), string(object.AppendJSON(nil, meta)), why)}
		}
	}
	return nil
}

// localAccess demands that a review stays in its namespace.
func localAccess(obj object.Value) field.ErrorList {
	faults := metaFaults(obj.At("metadata"), "must be empty except for namespace", "namespace")
	spec := obj.At("spec")
	if resource := spec.At("resourceAttributes"); !resource.IsNull() {
		if namespace := resource.At("namespace").Str(); namespace != obj.At("metadata", "namespace").Str() {
			faults = append(faults, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), namespace, "must match metadata.namespace"))
		}
	}
	if path := spec.At("nonResourceAttributes"); !path.IsNull() {
		faults = append(faults, field.Invalid(field.NewPath("spec.nonResourceAttributes"), string(object.AppendJSON(nil, path)),
			"disallowed on this kind of request"))
	}
	return faults
}

// reviewRules lists what who asks may do in a namespace.
func reviewRules(_ context.Context, rq *engine.Request, obj object.Value) (object.Value, error) {
	if obj.At("spec", "namespace").Str() == "" {
		return object.Nil, apierr.NewBadRequest("no namespace on request")
	}
	resources, paths := object.ListOf(), object.ListOf()
	if rq.User.In(access.Masters) {
		all := object.Strings("*")
		resources = object.ListOf(object.Fields("verbs", all, "apiGroups", all, "resources", all))
		paths = object.ListOf(object.Fields("verbs", all, "nonResourceURLs", all))
	}
	return obj.Edit([]object.Member{
		{Key: "metadata", Value: object.MapOf()},
		{Key: "spec", Value: object.MapOf()},
		{Key: "status", Value: object.Fields("resourceRules", resources, "nonResourceRules", paths, "incomplete", object.BoolOf(false))},
	}), nil
}
