package reviews

import (
	"context"
	"fmt"
	"maps"
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
// an index of dependents, by which garbage is collected, so that the cost is that of the answer.
//
//	found(0) = {owner}    found(n+1) = {v : owners(v) ∩ found(n) ≠ ∅}    answer = ⋃ found(1 … mostLevels)
//
// A user sees the types that it may list. On etcd the answer is as new as what this server has received.

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

	types  map[string]*engine.Resource // by the path of their kinds: those that the user may list
	hidden []string                    // the types that the user may not list

	found []object.Value
	seen  map[string]bool // the UIDs of what has been found
	full  bool
}

// dependents answers a DependentsReview.
func (c *Config) dependents(ctx context.Context, rq *engine.Request, spec object.Value) (object.Value, error) {
	r := &dependentsReview{Config: c, ctx: ctx, rq: rq, namespace: spec.At("namespace").Str(), seen: map[string]bool{},
		types: map[string]*engine.Resource{}}
	owner := spec.At("owner").Str()
	if owner == "" && r.namespace == "" {
		return object.Nil, invalid("DependentsReview", field.ErrorList{field.Required(field.NewPath("spec", "owner"),
			"the UID of an object, or a namespace")})
	}
	if err := r.readTypes(); err != nil {
		return object.Nil, err
	}
	var incomplete []string
	if owner != "" {
		if r.follow(owner) {
			incomplete = append(incomplete, fmt.Sprintf("these are %d levels", mostLevels))
		}
	} else if err := r.readNamespace(); err != nil {
		return object.Nil, err
	}
	if r.full {
		incomplete = append(incomplete, fmt.Sprintf("these are the first %d", mostDependents))
	}
	if n := len(r.hidden); n > 0 {
		const named = 5
		text := "you may not list " + strings.Join(r.hidden[:min(named, n)], ", ")
		if n > named {
			text += fmt.Sprintf(" and %d more types", n-named)
		}
		incomplete = append(incomplete, text)
	}
	status := object.Fields("objects", object.ListOf(r.found...))
	if len(incomplete) > 0 {
		status = status.With("incomplete", object.Strings(incomplete...))
	}
	return status, nil
}

// readTypes finds the types that the user may list, each in the version that its group prefers. Of a namespaced owner
// all dependents are in its namespace.
func (r *dependentsReview) readTypes() error {
	served := r.Types()
	for each := range served.All() {
		if each.Stored == nil || r.namespace != "" && !each.Namespaced || !slices.Contains(each.Verbs, "list") {
			continue
		}
		t := served.Named(each.Group, each.Name)
		if t != each || r.types[t.Stored.Path] != nil {
			continue // another version of it, or another group of the same objects
		}
		ok, _, err := r.rq.Allowed(r.ctx, access.Attributes{Verb: "list", IsResource: true, Group: t.Group,
			Version: t.Version, Resource: t.Name, Namespace: r.namespace})
		switch {
		case ok:
			r.types[t.Stored.Path] = t
		case err != nil:
			return apierr.NewInternal(err)
		default:
			r.hidden = append(r.hidden, t.Type().String())
		}
	}
	return nil
}

// follow finds the dependents of an object, level by level. more says that there are more levels.
func (r *dependentsReview) follow(owner string) (more bool) {
	level := []string{owner}
	for range mostLevels {
		var next []string
		for _, uid := range level {
			r.Engine().Dependents(uid, func(v *engine.Object) bool {
				if r.add(v) {
					next = append(next, v.Sidecar.UID)
				}
				return !r.full && r.ctx.Err() == nil
			})
		}
		if level = next; len(level) == 0 || r.full {
			return false
		}
	}
	return true
}

// readNamespace finds what is in the namespace.
func (r *dependentsReview) readNamespace() error {
	for _, path := range slices.Sorted(maps.Keys(r.types)) {
		list, err := r.Engine().ListStored(r.ctx, r.types[path])
		if err != nil {
			return err
		}
		for v := range list.Items {
			if r.add(v); r.full {
				return nil
			}
		}
		if err := list.Err(); err != nil {
			return err
		}
	}
	return nil
}

// add adds an object to what has been found, and says whether it is new and the user may see it.
func (r *dependentsReview) add(v *engine.Object) bool {
	t := r.types[v.Key.Resource]
	if t == nil || r.seen[v.Sidecar.UID] || r.namespace != "" && !strings.HasPrefix(v.Key.Name, r.namespace+"/") {
		return false
	}
	if r.full = len(r.found) == mostDependents; r.full {
		return false
	}
	r.seen[v.Sidecar.UID] = true
	r.found = append(r.found, described(t, v))
	return true
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
