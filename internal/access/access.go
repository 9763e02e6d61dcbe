// Package access holds the nouns of access control, which authentication, authorization, admission and the engine
// share: who somebody is ([User]), what is asked ([Attributes]) of whom ([Authorizer]), and the names that Kubernetes
// itself gives to users and groups. It decides nothing: package authz does.
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

// The users and groups that Kubernetes names itself.
const (
	Anonymous       = "system:anonymous"       // the user of a request without credentials
	Authenticated   = "system:authenticated"   // the group of everybody who has shown credentials
	Unauthenticated = "system:unauthenticated" // the group of everybody else
	Masters         = "system:masters"         // the group that may do everything
)

// User is who sends a request, as authentication found out.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Nobody is the user of a request without credentials.
func Nobody() User { return User{Name: Anonymous, Groups: []string{Unauthenticated}} }

// Identity is what authentication found out about a request.
type Identity struct {
	User User
	// Audiences are those of the credentials that were asked for; none: the credentials are for nobody in particular.
	Audiences []string
	// Warnings are what the client is told beside the answer.
	Warnings []string
	// Annotations are what authentication adds to the audit record, by their keys.
	Annotations map[string]string
}

// Annotate adds to the audit record.
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
)

// Names of service accounts as users, and their groups.
const (
	ServiceAccountPrefix      = "system:serviceaccount:"  // is followed by NAMESPACE:NAME
	ServiceAccounts           = "system:serviceaccounts"  // the group of all
	ServiceAccountGroupPrefix = "system:serviceaccounts:" // is followed by a namespace
)

// The labels of Secrets with legacy tokens of service accounts: the day of their last use, and the day since which they
// are refused. The day since which uses are recorded is in a ConfigMap in kube-system, under LegacyTokenTrackingSince.
const (
	LegacyTokenLastUsed      = "kubernetes.io/legacy-token-last-used"
	LegacyTokenInvalidSince  = "kubernetes.io/legacy-token-invalid-since"
	LegacyTokenTracking      = "kube-apiserver-legacy-service-account-token-tracking"
	LegacyTokenTrackingSince = "since"
)

// ServiceAccount is the name of a service account as a user.
func ServiceAccount(namespace, name string) string {
	return ServiceAccountPrefix + namespace + ":" + name
}

// SplitServiceAccount takes the name of a service account as a user apart; it is not ok for other users.
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

// In says whether the user is in a group.
func (u *User) In(group string) bool { return slices.Contains(u.Groups, group) }

// Attributes are what authorization decides about.
type Attributes struct {
	User User
	Verb string // "list"; for a path that is no resource, the HTTP method in lower case
	Path string
	// The rest is set for requests to resources only.
	IsResource                            bool
	Group, Version, Resource, Subresource string
	Namespace, Name                       string
	// FieldSelector and LabelSelector are what a list, a watch or a deletecollection selects, as the URL says it.
	// Fields and Labels are set instead by a review that lists requirements, with what is wrong with some of these.
	// Who decides by them asks FieldRequirements and LabelRequirements: most requests are decided without, and are
	// not to pay for the parsing.
	FieldSelector, LabelSelector string
	Fields                       fields.Requirements
	Labels                       labels.Requirements
	FieldsErr, LabelsErr         error
}

// FieldRequirements is what the fields of the selected objects have to be; an error where a part of it cannot be
// understood.
func (a *Attributes) FieldRequirements() (fields.Requirements, error) {
	if a.FieldSelector == "" {
		return a.Fields, a.FieldsErr
	}
	selector, err := fields.ParseSelector(a.FieldSelector)
	if err != nil {
		return nil, err
	}
	return selector.Requirements(), nil
}

// LabelRequirements is what the labels of the selected objects have to be; an error where a part of it cannot be
// understood.
func (a *Attributes) LabelRequirements() (labels.Requirements, error) {
	if a.LabelSelector == "" {
		return a.Labels, a.LabelsErr
	}
	selector, err := labels.Parse(a.LabelSelector)
	if err != nil {
		return nil, err
	}
	requirements, _ := selector.Requirements()
	return requirements, nil
}

// ReadOnly says whether the request changes nothing.
func (a *Attributes) ReadOnly() bool { return a.Verb == "get" || a.Verb == "list" || a.Verb == "watch" }

var harmless = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Harmless keeps what a client has written from looking like HTML in an error.
func Harmless(text string) string { return harmless.Replace(text) }

// Refusal words that the user may not do this; why is what the authorizer has said, or "".
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
	text = Harmless(text)
	if why != "" {
		text += ": " + why
	}
	return text
}

// Decision is what an authorizer says of a request.
type Decision uint8

// The decisions. Deny is the zero value, so that what is forgotten is denied.
const (
	Deny      Decision = iota // whatever others say
	Allow                     // whatever those say that come later
	NoOpinion                 // let others decide; if nobody allows it, it is forbidden
)

// Authorizer decides what users may do. The attributes are its caller's, and must not be kept. The reason is for
// people: it stands in reviews and in the audit log, and behind the words of a refusal. An error may come with any
// decision; one that comes with Allow means nothing, as in the reference.
type Authorizer interface {
	Authorize(ctx context.Context, a *Attributes) (decision Decision, reason string, err error)
}

// AuthorizerFunc is a function that is an Authorizer.
type AuthorizerFunc func(ctx context.Context, a *Attributes) (Decision, string, error)

// Authorize calls the function.
func (f AuthorizerFunc) Authorize(ctx context.Context, a *Attributes) (Decision, string, error) {
	return f(ctx, a)
}
