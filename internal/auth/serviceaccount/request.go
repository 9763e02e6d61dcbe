package serviceaccount

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/fielderrors"
	"plinth/object"
)

// requestKind is the kind in errors about a TokenRequest.
var requestKind = apierr.Type{Group: "authentication.k8s.io", Name: "TokenRequest"}

// Answer answers a TokenRequest for a ServiceAccount with a token. It is the engine's Subresource.Answer.
func (i *Issuer) Answer(ctx context.Context, rq *engine.Request, live *engine.Object, body object.Value) (object.Value,
	[]string, error) {
	namespace, name, _ := strings.Cut(live.Key.Name, "/")
	b := &bound{namespace: namespace, name: name, uid: live.Sidecar.UID}
	meta, err := b.named(body.At("metadata"))
	if err != nil {
		return object.Nil, nil, err
	}
	var warnings []string
	if mismatch := b.mismatch(meta); mismatch != "" {
		if !i.OtherUID {
			return object.Nil, nil, apierr.NewConflict(requestKind, b.name, mismatch)
		}
		if rq.Annotations != nil {
			rq.Annotations.Annotate("authentication.k8s.io/token-request-uid-mismatch", mismatch)
		}
		warnings = append(warnings, mismatch+
			" but TokenRequestServiceAccountUIDValidation is not enabled. In the future, this will return a conflict error")
	}
	now := i.Now()
	meta = meta.With("creationTimestamp", object.StringOf(now.UTC().Format(time.RFC3339)))
	spec := body.At("spec")
	for _, a := range spec.At("audiences").Items() {
		b.audiences = append(b.audiences, a.Str())
	}
	if len(b.audiences) == 0 {
		b.audiences = i.Audiences
		spec = spec.With("audiences", object.Strings(i.Audiences...))
	}
	if wrong := validate(spec); len(wrong) > 0 {
		return object.Nil, nil, apierr.NewInvalid(requestKind, "", wrong)
	}
	if ref := spec.At("boundObjectRef"); !ref.IsNull() {
		if err := i.bind(ctx, rq, b, spec, now); err != nil {
			return object.Nil, nil, err
		}
	}
	b.lasts = spec.At("expirationSeconds").Int()
	if b.most > 0 && b.lasts > b.most {
		b.lasts = b.most
		spec = spec.With("expirationSeconds", object.IntOf(b.lasts))
	}
	if i.MaxSeconds > 0 && b.lasts > i.MaxSeconds {
		warnings = append(warnings, fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", b.lasts,
			i.MaxSeconds))
		b.lasts = i.MaxSeconds
		spec = spec.With("expirationSeconds", object.IntOf(b.lasts))
	}
	ends := now.Add(time.Duration(b.lasts) * time.Second)
	if i.Extend && b.forPod() && b.lasts == extendedFrom && i.serves(b.audiences) {
		b.lasts, b.warnAfter = cmp.Or(i.ExtendedSeconds, extendedTo), b.lasts
	}
	token, id, err := i.issue(ctx, b, now)
	if err != nil {
		return object.Nil, warnings, apierr.NewInternal(err)
	}
	if rq.Annotations != nil {
		rq.Annotations.Annotate("authentication.kubernetes.io/issued-credential-id", "JTI="+id)
	}
	return body.Edit([]object.Member{
		{Key: "metadata", Value: meta}, {Key: "spec", Value: spec},
		{Key: "status", Value: object.Fields("token", object.StringOf(token),
			"expirationTimestamp", object.StringOf(ends.UTC().Format(time.RFC3339)))},
	}), warnings, nil
}

// named returns the metadata of a request with the name and namespace of the ServiceAccount, and with its UID if the
// request has none. If the request has another name, it returns an error.
func (b *bound) named(meta object.Value) (object.Value, error) {
	if asked := meta.At("name").Str(); asked != "" && asked != b.name {
		return meta, apierr.NewInvalid(requestKind, b.name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "name"), asked, "must match the service account name if specified"),
		})
	}
	uid := cmp.Or(meta.At("uid").Str(), b.uid)
	return meta.Edit([]object.Member{
		{Key: "name", Value: object.StringOf(b.name)}, {Key: "namespace", Value: object.StringOf(b.namespace)},
		{Key: "uid", Value: object.StringOf(uid)},
	}), nil
}

// mismatch says that the UID of a request is not that of the ServiceAccount; "" if it is.
func (b *bound) mismatch(meta object.Value) string {
	asked := meta.At("uid").Str()
	if asked == b.uid {
		return ""
	}
	return fmt.Sprintf("the UID in the token request (%s) does not match the UID of the service account (%s)", asked, b.uid)
}

// serves says whether all audiences are those of this server.
func (i *Issuer) serves(audiences []string) bool {
	return !slices.ContainsFunc(audiences, func(a string) bool { return !slices.Contains(i.Audiences, a) })
}

// forPod says whether the token is bound to a Pod.
func (b *bound) forPod() bool {
	return slices.ContainsFunc(b.to, func(m object.Member) bool { return m.Key == "pod" })
}

// bind adds the object in spec.boundObjectRef to the claims of a token.
func (i *Issuer) bind(ctx context.Context, rq *engine.Request, b *bound, spec object.Value, now time.Time) error {
	ref := spec.At("boundObjectRef")
	group, version := groupVersion(ref.At("apiVersion").Str())
	kind, name := ref.At("kind").Str(), ref.At("name").Str()
	resource, namespace := map[string]string{"Pod": "pods", "Secret": "secrets", "Node": "nodes"}[kind], b.namespace
	switch {
	case webhooks(group, version, kind):
		return i.bindWebhook(ctx, rq, b, spec, now)
	case group != "" || resource == "":
		return apierr.NewBadRequest("cannot bind token to object of type " + group + "/" + version + ", Kind=" + kind)
	case name == "":
		return apierr.NewBadRequest("Name parameter required.")
	case kind == "Node":
		namespace = ""
	}
	to, err := i.Objects.get(ctx, resource, namespace, name)
	if err != nil {
		return err
	}
	b.to = append(b.to, object.Member{Key: strings.ToLower(kind), Value: referenceTo(name, to.Sidecar.UID)})
	if kind == "Pod" {
		if err := i.bindPod(ctx, b, to); err != nil {
			return err
		}
	}
	return sameUID(ref, "", to)
}

// sameUID checks the UID in a reference to an object, if there is one.
func sameUID(ref object.Value, group string, to *engine.Object) error {
	if uid := ref.At("uid").Str(); uid != "" && uid != to.Sidecar.UID {
		return apierr.NewConflict(apierr.Type{Group: group, Name: ref.At("kind").Str()}, ref.At("name").Str(),
			fmt.Sprintf("the UID in the bound object reference (%s) does not match the UID "+
				"in record. The object might have been deleted and then recreated", uid))
	}
	return nil
}

// bindPod checks that the Pod of a token runs as the ServiceAccount, and adds the Pod's Node to the claims.
func (i *Issuer) bindPod(ctx context.Context, b *bound, to *engine.Object) error {
	pod, err := engine.ObjectOf(to)
	if err != nil {
		return err
	}
	if pod.At("spec", "serviceAccountName").Str() != b.name {
		return apierr.NewBadRequest(fmt.Sprintf(
			"cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", b.name))
	}
	on := pod.At("spec", "nodeName").Str()
	if on == "" {
		return nil
	}
	uid := ""
	switch node, err := i.Objects.get(ctx, "nodes", "", on); {
	case err == nil:
		uid = node.Sidecar.UID
	case !apierr.Is(err, apierr.NotFound):
		return apierr.NewInternal(err)
	}
	b.to = append(b.to, object.Member{Key: "node", Value: referenceTo(on, uid)})
	return nil
}

// groupVersion splits an apiVersion. As in the reference, one with two slashes becomes that of the core group.
func groupVersion(apiVersion string) (group, version string) {
	switch before, after, ok := strings.Cut(apiVersion, "/"); {
	case !ok:
		return "", apiVersion
	case strings.Contains(after, "/"):
		return "", ""
	default:
		return before, after
	}
}

// The limits of spec.expirationSeconds.
const (
	minSeconds = 10 * 60
	maxSeconds = 1 << 32
)

// validate validates the spec of a TokenRequest, as ValidateTokenRequest in the reference.
func validate(spec object.Value) (wrong field.ErrorList) {
	path := field.NewPath("spec")
	if seconds := spec.At("expirationSeconds").Int(); seconds < minSeconds {
		wrong = append(wrong, field.Invalid(path.Child("expirationSeconds"), seconds,
			"may not specify a duration less than 10 minutes"))
	} else if seconds > maxSeconds {
		wrong = append(wrong, field.Invalid(path.Child("expirationSeconds"), seconds,
			"may not specify a duration larger than 2^32 seconds"))
	}
	attestations := spec.At("attestations")
	ref := spec.At("boundObjectRef")
	group, version := groupVersion(ref.At("apiVersion").Str())
	if !webhooks(group, version, ref.At("kind").Str()) {
		if attestations.Len() > 0 {
			return field.ErrorList{field.Invalid(path.Child("attestations"), fielderrors.Show(attestations),
				"attestations may only be specified with a webhook bound object reference")}
		}
		return wrong
	}
	if audiences := spec.At("audiences"); audiences.Len() != 1 {
		wrong = append(wrong, field.Invalid(path.Child("audiences"), fielderrors.Show(audiences),
			"must be length 1 when bound to a webhook config"))
	}
	return append(wrong, validateAttestations(attestations, path.Child("attestations"))...)
}

// apiGroups is the only attestation: the API group of the reviews that a webhook gets together with the token.
const apiGroups = "admissionReviewAPIGroups"

// validateAttestations validates the attestations of a token for a webhook.
func validateAttestations(attestations object.Value, path *field.Path) (wrong field.ErrorList) {
	if attestations.Len() != 1 {
		return field.ErrorList{field.Invalid(path, fielderrors.Show(attestations),
			"webhook bound requests require exactly one admissionReviewAPIGroups attestation")}
	}
	m := attestations.Members()[0]
	path = path.Key(m.Key)
	switch {
	case m.Key != apiGroups:
		return field.ErrorList{field.NotSupported(path, m.Key, []string{apiGroups})}
	case m.Value.Len() != 1:
		return field.ErrorList{field.Invalid(path, fielderrors.Show(m.Value), "must specify a single value")}
	}
	path = path.Index(0)
	switch group := m.Value.Items()[0].Str(); group {
	case "":
		return field.ErrorList{field.Invalid(path, group, "may not be an empty string")}
	case "*":
	default:
		for _, why := range content.IsDNS1123Subdomain(group) {
			wrong = append(wrong, field.Invalid(path, group, "must specify a valid API Group: "+why))
		}
	}
	return wrong
}
