// Package access has the types of access control that authentication, authorization, admission and the engine share:
// the user of a request ([User]), the attributes of a request ([Attributes]) that an [Authorizer] decides about, and
// the names of the users and groups that Kubernetes itself defines. The decisions are made in package authz.
package access

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// The users and groups that Kubernetes defines.
const (
	Anonymous       = "system:anonymous"       // the user of a request without credentials
	Authenticated   = "system:authenticated"   // the group of all users with valid credentials
	Unauthenticated = "system:unauthenticated" // the group of the anonymous user
	Masters         = "system:masters"         // the group whose members may do everything
)

// User is the user of a request, as user.Info in the reference. Its groups and extra values may be shared with a cache
// of tokens: they are never changed in place.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Nobody returns the user of a request without credentials: system:anonymous.
func Nobody() User { return User{Name: Anonymous, Groups: []string{Unauthenticated}} }

// Identity is the result of authentication.
type Identity struct {
	User User
	// Audiences are those among the requested audiences for which the credentials are valid; empty if the authenticator
	// does not support audiences.
	Audiences []string
	// Warnings are sent to the client in Warning headers.
	Warnings []string
	// Annotations are added to the audit event.
	Annotations map[string]string
}

// Annotate adds an annotation for the audit event. The Identity must belong to this request alone.
func (id *Identity) Annotate(key, value string) {
	if id.Annotations == nil {
		id.Annotations = map[string]string{}
	}
	id.Annotations[key] = value
}

// Well-known keys of User.Extra.
const (
	CredentialID = "authentication.kubernetes.io/credential-id"
	PodName      = "authentication.kubernetes.io/pod-name"
	PodUID       = "authentication.kubernetes.io/pod-uid"
	NodeName     = "authentication.kubernetes.io/node-name"
	NodeUID      = "authentication.kubernetes.io/node-uid"

	ValidatingWebhookName = "authentication.kubernetes.io/validatingwebhookconfiguration-name"
	ValidatingWebhookUID  = "authentication.kubernetes.io/validatingwebhookconfiguration-uid"
	MutatingWebhookName   = "authentication.kubernetes.io/mutatingwebhookconfiguration-name"
	MutatingWebhookUID    = "authentication.kubernetes.io/mutatingwebhookconfiguration-uid"
	AttestedAPIGroups     = "attestation.authentication.kubernetes.io/admissionReviewAPIGroups"
)

// The user names and groups of service accounts.
const (
	ServiceAccountPrefix      = "system:serviceaccount:"  // followed by NAMESPACE:NAME
	ServiceAccounts           = "system:serviceaccounts"  // the group of all service accounts
	ServiceAccountGroupPrefix = "system:serviceaccounts:" // followed by NAMESPACE: the group of those in a namespace
)

// Legacy tokens of service accounts are Secrets. KEP-2799 tracks their use: LegacyTokenLastUsed is the label with the
// day of the last use, LegacyTokenInvalidSince the one with the day since which the token is refused.
// LegacyTokenTracking is the ConfigMap in kube-system that has, under LegacyTokenTrackingSince, the day since which
// uses are recorded: a Secret without a last use may still have been used before it.
const (
	LegacyTokenLastUsed      = "kubernetes.io/legacy-token-last-used"
	LegacyTokenInvalidSince  = "kubernetes.io/legacy-token-invalid-since"
	LegacyTokenTracking      = "kube-apiserver-legacy-service-account-token-tracking"
	LegacyTokenTrackingSince = "since"
)

// ServiceAccount returns the user name of a service account.
func ServiceAccount(namespace, name string) string {
	return ServiceAccountPrefix + namespace + ":" + name
}

// ControllerAccount returns the user of a controller of this name, as in the reference with
// --use-service-account-credentials.
func ControllerAccount(name string) User {
	return User{Name: ServiceAccount("kube-system", name),
		Groups: []string{ServiceAccounts, ServiceAccountGroupPrefix + "kube-system", Authenticated}}
}

// SplitServiceAccount returns the namespace and the name of the service account with this user name. ok is false if it
// is the name of another user. It matches serviceaccount.SplitUsername in the reference.
func SplitServiceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, ServiceAccountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	if !ok || len(content.IsDNS1123Label(namespace)) > 0 || len(content.IsDNS1123Subdomain(name)) > 0 {
		return "", "", false
	}
	return namespace, name, true
}

// In says whether the user is a member of a group.
func (u *User) In(group string) bool { return slices.Contains(u.Groups, group) }

// Attributes are the attributes of a request that authorization decides about, as authorizer.Attributes in the
// reference.
type Attributes struct {
	User User
	Verb string // "list"; for a path that is not a resource, the HTTP method in lower case
	Path string
	// The rest is set for requests to resources only.
	IsResource                            bool
	Group, Version, Resource, Subresource string
	Namespace, Name                       string
	// The selectors of a list, a watch or a deletecollection (KEP-4601). A request has them as text in FieldSelector
	// and LabelSelector. A SubjectAccessReview may list requirements instead. Authorizers read them with
	// FieldRequirements and LabelRequirements, which parse the text: most requests are decided without, and do not pay
	// for the parsing.
	FieldSelector, LabelSelector string
	Required                     *Requirements // nil: the selectors are text
}

// Requirements are the requirements of selectors. Fields and Labels are the valid ones, FieldsErr and LabelsErr the
// errors of the others.
type Requirements struct {
	Fields               fields.Requirements
	Labels               labels.Requirements
	FieldsErr, LabelsErr error
}

// FieldRequirements returns the requirements of the field selector. The error says which part of it is invalid; the
// requirements that are returned with an error are the valid ones, and are safe to decide by: fewer requirements select
// more.
func (a *Attributes) FieldRequirements() (fields.Requirements, error) {
	if a.FieldSelector == "" {
		if a.Required == nil {
			return nil, nil
		}
		return a.Required.Fields, a.Required.FieldsErr
	}
	selector, err := fields.ParseSelector(a.FieldSelector)
	if err != nil {
		return nil, err
	}
	return selector.Requirements(), nil
}

// LabelRequirements returns the requirements of the label selector, with an error as FieldRequirements does.
func (a *Attributes) LabelRequirements() (labels.Requirements, error) {
	if a.LabelSelector == "" {
		if a.Required == nil {
			return nil, nil
		}
		return a.Required.Labels, a.Required.LabelsErr
	}
	selector, err := labels.Parse(a.LabelSelector)
	if err != nil {
		return nil, err
	}
	requirements, _ := selector.Requirements()
	return requirements, nil
}

// ReadOnly says whether the verb only reads, as IsReadOnly in the reference.
func (a *Attributes) ReadOnly() bool { return a.Verb == "get" || a.Verb == "list" || a.Verb == "watch" }

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// EscapeHTML escapes text of a client for an error message, so that a browser that shows the error does not interpret
// it as HTML.
func EscapeHTML(text string) string { return htmlEscaper.Replace(text) }

// Refusal returns the message of a 403: that the user cannot do this, and the reason that the authorizer gave, if any.
// It matches forbiddenMessage in the reference.
func (a *Attributes) Refusal(why string) string {
	text := "User " + strconv.Quote(a.User.Name) + " cannot " + a.Verb
	switch {
	case !a.IsResource:
		text += " path " + strconv.Quote(a.Path)
	default:
		resource := a.Resource
		if a.Subresource != "" {
			resource += "/" + a.Subresource
		}
		text += " resource " + strconv.Quote(resource) + " in API group " + strconv.Quote(a.Group)
		if a.Namespace != "" {
			text += " in the namespace " + strconv.Quote(a.Namespace)
		} else {
			text += " at the cluster scope"
		}
	}
	text = EscapeHTML(text)
	if why != "" {
		text += ": " + why
	}
	return text
}

// Decision is the decision of an authorizer about a request.
type Decision uint8

// The decisions. The first authorizer in the chain whose decision is not NoOpinion decides. Deny is the zero value, so
// that a decision that was never set denies.
const (
	Deny      Decision = iota // the request is refused; later authorizers are not asked
	Allow                     // the request is allowed; later authorizers are not asked
	NoOpinion                 // the next authorizer decides; after the last one, the request is refused
)

// Authorizer decides what users may do. It must not keep or change the attributes. The reason is for people: it is in
// the status of access reviews, in the audit event, and in the message of a 403. An error may be returned with any
// decision; with Allow it is ignored, as in the reference.
type Authorizer interface {
	Authorize(ctx context.Context, a *Attributes) (decision Decision, reason string, err error)
}

// AuthorizerFunc lets a function be an Authorizer.
type AuthorizerFunc func(ctx context.Context, a *Attributes) (Decision, string, error)

// Authorize calls the function.
func (f AuthorizerFunc) Authorize(ctx context.Context, a *Attributes) (Decision, string, error) {
	return f(ctx, a)
}
