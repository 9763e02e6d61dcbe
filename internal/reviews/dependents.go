package reviews

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
	"plinth/schema"
)

// A DependentsReview lists what goes with an object: its dependents, theirs, and so on, or all that is in a namespace.
// By lists alone a client would read all objects of all types for that, as their owners are no selector. The store has
// the owners of each version beside its bytes: looking through 100,000 versions takes some milliseconds, and only those
// that are found are parsed.
//
//	found(0) = {owner}    found(n+1) = {v : owners(v) ∩ found(n) ≠ ∅}    answer = ⋃ found(1 … mostLevels)
//
// A user sees the types that it may list.

// The limits of a review.
const (
	mostLevels     = 8
	mostDependents = 1000
)

func dependentsSpec() *schema.Type {
	return structOf(optional("namespace", text), optional("owner", text))
}

// dependentsReview is one review.
type dependentsReview struct {
	*Config
	ctx       context.Context
	rq        *engine.Request
	namespace string // "": all
	all       bool   // what is in the namespace, whatever owns it

	found  []object.Value
	seen   map[string]bool // the UIDs of what has been found
	hidden []string        // the types that the user may not list
	full   bool
}

// dependents answers a DependentsReview.
func (c *Config) dependents(ctx context.Context, rq *engine.Request, spec object.Value) (object.Value, error) {
	r := &dependentsReview{Config: c, ctx: ctx, rq: rq, namespace: spec.At("namespace").Str(), seen: map[string]bool{}}
	owner := spec.At("owner").Str()
	if r.all = owner == ""; r.all && r.namespace == "" {
		return object.Nil, invalid("DependentsReview", field.ErrorList{field.Required(field.NewPath("spec", "owner"),
			"the UID of an object, or a namespace")})
	}
	types, err := r.types()
	if err != nil {
		return object.Nil, err
	}
	level := map[string]bool{owner: true}
	for range mostLevels {
		next := map[string]bool{}
		for _, t := range types {
			if err := r.look(t, level, next); err != nil {
				return object.Nil, err
			}
		}
		if level = next; r.all || len(level) == 0 || r.full {
			break
		}
	}
	status := object.Fields("objects", object.ListOf(r.found...))
	var incomplete []string
	if len(r.hidden) > 0 {
		const named = 5
		some, more := strings.Join(r.hidden[:min(named, len(r.hidden))], ", "), ""
		if n := len(r.hidden) - named; n > 0 {
			more = fmt.Sprintf(" and %d more types", n)
		}
		incomplete = append(incomplete, "you may not list "+some+more)
	}
	switch {
	case r.full:
		incomplete = append(incomplete, fmt.Sprintf("these are the first %d", mostDependents))
	case len(level) > 0 && !r.all:
		incomplete = append(incomplete, fmt.Sprintf("these are %d levels", mostLevels))
	}
	if len(incomplete) > 0 {
		status = status.With("incomplete", object.Strings(incomplete...))
	}
	return status, nil
}

// types are the types that the user may list, each once, in the version that its group prefers. Of a namespaced owner
// all dependents are in its namespace.
func (r *dependentsReview) types() (all []*engine.Resource, err error) {
	served := r.Types()
	seen := map[*engine.Kind]bool{}
	for each := range served.All() {
		if each.Stored == nil || seen[each.Stored] || r.namespace != "" && !each.Namespaced ||
			!slices.Contains(each.Verbs, "list") {
			continue
		}
		t := each
		if preferred := served.Named(each.Group, each.Name); preferred != nil {
			t = preferred
		}
		seen[each.Stored] = true
		ok, _, err := r.rq.Allowed(r.ctx, access.Attributes{Verb: "list", IsResource: true, Group: t.Group,
			Version: t.Version, Resource: t.Name, Namespace: r.namespace})
		switch {
		case ok:
			all = append(all, t)
		case err != nil:
			return nil, apierr.NewInternal(err)
		default:
			r.hidden = append(r.hidden, t.Type().String())
		}
	}
	return all, nil
}

// look looks through the objects of a type for those with an owner of a level, and adds their UIDs to the next one.
func (r *dependentsReview) look(t *engine.Resource, level, next map[string]bool) error {
	list, err := r.Engine().ListStored(r.ctx, t)
	if err != nil {
		return err
	}
	for v := range list.Items {
		if r.namespace != "" && !strings.HasPrefix(v.Key.Name, r.namespace+"/") || r.seen[v.Sidecar.UID] ||
			!r.all && !slices.ContainsFunc(v.Sidecar.Owners, func(uid string) bool { return level[uid] }) {
			continue
		}
		if r.full = len(r.found) == mostDependents; r.full {
			break
		}
		r.seen[v.Sidecar.UID], next[v.Sidecar.UID] = true, true
		r.found = append(r.found, described(t, v))
	}
	return list.Err()
}

// described says of an object what a client needs to show it. One that cannot be read has its name alone.
func described(t *engine.Resource, v *engine.Object) object.Value {
	namespace, name, ok := strings.Cut(v.Key.Name, "/")
	if !ok {
		namespace, name = "", v.Key.Name
	}
	shown := object.Fields("group", object.StringOf(t.Group), "version", object.StringOf(t.Version), "resource",
		object.StringOf(t.Name), "kind", object.StringOf(t.Kind), "name", object.StringOf(name), "uid",
		object.StringOf(v.Sidecar.UID), "owners", object.Strings(v.Sidecar.Owners...))
	if namespace != "" {
		shown = shown.With("namespace", object.StringOf(namespace))
	}
	if v.Sidecar.Unreadable != nil {
		return shown.With("unreadable", object.BoolOf(true))
	}
	parsed, err := object.ParseMembers(v.Data(), "metadata")
	if err != nil {
		return shown.With("unreadable", object.BoolOf(true))
	}
	for _, key := range []string{"deletionTimestamp", "finalizers"} {
		if value, ok := parsed.Value.At("metadata").Get(key); ok {
			shown = shown.With(key, value)
		}
	}
	return shown
}
