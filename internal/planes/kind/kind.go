package kind

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/authz"
	"plinth/internal/crd"
	"plinth/internal/engine"
	"plinth/internal/gotypes"
	"plinth/internal/store"
	"plinth/object"
)

// The names of the type.
const (
	Group   = "plinth"
	Version = "v1alpha1"
	Plural  = "planes"
	Kind    = "Plane"
	Path    = Group + "/" + Plural // of its objects in the store
)

// Access is the verb on a Plane whose holders are administrators in the plane, and may begin another one with it.
const Access = "access"

// Settled is the condition that says whether the controllers of a plane have done what follows from its objects.
const Settled = "Settled"

// Phases of a plane; Ready is a condition, too.
const (
	Ready       = "Ready"
	Failed      = "Failed"
	Terminating = "Terminating"
)

// Config connects the type with the planes. Nil functions are not called.
type Config struct {
	// URL is the address of a plane's API.
	URL func(name string) string
	// Origin finds the plane with which a new one begins, at a resourceVersion, or as it is now if that is "". An error
	// is the answer to the create: 404 if there is no such plane, 410 if it does not reach so far back. It is called
	// again if the commit loses a race, and for dry runs.
	Origin func(name, resourceVersion string) (Origin, error)
	// Begin returns how a plane begins whose object is created (engine.Resource.Begin).
	Begin func(ctx context.Context, created *store.Version) (*store.Begin, error)
	// Refresh brings the status of planes up to date before somebody reads them without a resourceVersion.
	Refresh func(ctx context.Context)
}

// Origin is a plane with which another one begins.
type Origin struct {
	UID      string
	Revision int64
}

//go:embed plane.yaml
var definition []byte

// Resource makes the type.
func Resource(c Config) *engine.Resource {
	parsed, err := object.ParseYAML(definition)
	if err != nil {
		panic("kind: plane.yaml: " + err.Error())
	}
	r := crd.BuiltIn(parsed.Value, gotypes.Of[metav1.ObjectMeta])
	r.ValidateName = func(name string, prefix bool) []string { return validation.NameIsDNSLabel(name, prefix) }
	r.Permit = permitFrom
	validate, validateUpdate := r.Validate, r.ValidateUpdate
	r.Validate = func(ctx context.Context, obj object.Value) field.ErrorList {
		return append(validate(ctx, obj), specErrors(obj)...)
	}
	r.ValidateUpdate = func(ctx context.Context, obj, old object.Value) field.ErrorList {
		return append(append(validateUpdate(ctx, obj, old), specErrors(obj)...), changeErrors(obj, old)...)
	}
	r.ServerStatus = c.serverStatus
	r.MarkDeleted = func(obj object.Value) object.Value {
		return obj.WithAt(object.StringOf(Terminating), "status", "phase")
	}
	if c.Refresh != nil {
		r.Refresh = func(ctx context.Context, _ string) { c.Refresh(ctx) }
	}
	r.Begin = c.Begin
	r.Columns, r.Cells = columns, cells
	return r
}

// AccessTo is the question whether a user has the verb access on a plane.
func AccessTo(name string) access.Attributes {
	return access.Attributes{Verb: Access, IsResource: true, Group: Group, Version: Version, Resource: Plural, Name: name}
}

// permitFrom is engine.Resource.Permit: it refuses a new origin to users without the verb access on it. The answer does
// not depend on whether there is such a plane. A name that none can have is left to the validation.
func permitFrom(ctx context.Context, rq *engine.Request, obj, old object.Value) error {
	from := obj.At("spec", "from")
	name := from.At("name").Str()
	if len(validation.NameIsDNSLabel(name, false)) > 0 || object.Equal(from, old.At("spec", "from")) ||
		rq.User.In(access.Masters) {
		return nil
	}
	ok, _, err := rq.Allowed(ctx, AccessTo(name))
	switch {
	case ok:
		return nil
	case err != nil:
		return apierr.NewInternal(err)
	}
	missing := authz.Rule{APIGroups: []string{Group}, Resources: []string{Plural}, ResourceNames: []string{name},
		Verbs: []string{Access}}
	return apierr.NewForbidden(rq.Resource.Type(), obj.At("metadata", "name").Str(), fmt.Sprintf("user %q (groups=%q) is "+
		"attempting to begin with a plane without the permission to access it:\n%s", rq.User.Name, rq.User.Groups, missing))
}

// serverStatus is engine.Resource.ServerStatus. What it sets replaces what a client has written to the subresource
// status, so that nobody can send others to another URL, or give a plane another origin.
func (c *Config) serverStatus(obj, old object.Value, now time.Time) (result engine.ServerStatus) {
	if obj.IsNull() {
		return result
	}
	name, status := obj.At("metadata", "name").Str(), obj.At("status")
	set := func(member string, v object.Value) {
		if v.IsNull() {
			status = status.Without(member)
		} else {
			status = status.With(member, v)
		}
	}
	if c.URL != nil {
		set("url", object.StringOf(c.URL(name)))
	}
	origin := old.At("status", "origin")
	if from := obj.At("spec", "from"); old.IsNull() {
		status = WithCondition(status, Condition{Type: Ready, Status: "True", Reason: "Created",
			Message: "requests to the plane are served"}, now)
		if !from.IsNull() && c.Origin != nil {
			found, err := c.Origin(from.At("name").Str(), from.At("resourceVersion").Str())
			if err != nil {
				result.Refused = err
				return result
			}
			origin = object.Fields("name", from.At("name"), "uid", object.StringOf(found.UID), "resourceVersion",
				object.StringOf(fmt.Sprint(found.Revision)))
		}
	}
	set("origin", origin)
	expires := object.Nil
	if at, ok := Expires(obj); ok {
		expires = timeOf(at)
	}
	set("expirationTime", expires)
	set("phase", object.StringOf(phaseOf(obj, status)))
	result.Status = status
	return result
}

// phaseOf is the phase of a plane with a status.
func phaseOf(obj, status object.Value) string {
	switch {
	case !obj.At("metadata", "deletionTimestamp").IsNull():
		return Terminating
	case slices.ContainsFunc(status.At("conditions").Items(), func(c object.Value) bool {
		return c.At("type").Str() == Ready && c.At("status").Str() == "False"
	}):
		return Failed
	}
	return Ready
}

// Expires is when a plane is to be deleted. ok is false if it stays until somebody deletes it.
func Expires(obj object.Value) (at time.Time, ok bool) {
	ttl := obj.At("spec", "ttlSeconds")
	created, err := time.Parse(time.RFC3339, obj.At("metadata", "creationTimestamp").Str())
	if ttl.IsNull() || err != nil {
		return time.Time{}, false
	}
	return created.Add(time.Duration(ttl.Int()) * time.Second), true
}

func timeOf(t time.Time) object.Value { return object.StringOf(t.UTC().Format(time.RFC3339)) }
