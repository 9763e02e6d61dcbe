package merge

import (
	"errors"
	"slices"
	"strings"
	"time"

	"plinth/merge"
	"plinth/object"
	"plinth/schema"
)

// plinth is the engine under test.
type plinth struct{}

// versions provides a kind's API versions to plinth.
type versions struct{ *kind }

// Type returns the schema of a version.
func (v versions) Type(apiVersion string) *schema.Type {
	if of := v.version(apiVersion); of != nil {
		return of.typ
	}
	return nil
}

// Convert converts an object to another version. An object that does not exist yet is null in all versions.
func (v versions) Convert(o object.Value, apiVersion string) (object.Value, error) {
	if o.At("apiVersion").IsNull() {
		return o, nil
	}
	if v.broken != nil && o.At("apiVersion").Str() != apiVersion {
		if err := v.broken(); err != nil {
			return object.Nil, err
		}
	}
	return v.convert(o, apiVersion)
}

func (plinth) kind(w write) (*merge.Kind, merge.Writer) {
	k := &merge.Kind{Type: w.kind.version(w.apiVersion()).typ, Reset: map[string]merge.Set{}}
	if len(w.kind.versions) > 1 {
		k.Versions = versions{w.kind}
	}
	for _, v := range w.kind.versions {
		k.Reset[w.kind.apiVersion(v.name)] = merge.Fields(w.kind.resets(w.subresource)...)
	}
	return k, merge.Writer{Manager: w.manager, APIVersion: w.apiVersion(), Subresource: w.subresource, Force: w.force,
		Now: w.now.UTC().Format(time.RFC3339)}
}

func pathOf(names []string) merge.Path {
	var p merge.Path
	for _, name := range names {
		p = append(p, merge.FieldElement(name))
	}
	return p
}

// Apply implements engine.
func (p plinth) Apply(w write, live, intent object.Value) (object.Value, error) {
	k, writer := p.kind(w)
	result, err := k.Apply(live, intent, writer)
	var refused *merge.ConflictError
	switch {
	case err == nil:
		return result, nil
	case errors.As(err, &refused):
		r := &refusal{kind: "conflict", message: refused.Error()}
		for i := range refused.Conflicts {
			c := &refused.Conflicts[i]
			r.conflicts = append(r.conflicts, conflict{c.Path.String(), "conflict with " + c.By()})
		}
		return object.Nil, r
	case errors.Is(err, merge.ErrManaged):
		return object.Nil, &refusal{kind: "bad request", message: err.Error()}
	}
	return object.Nil, &refusal{kind: "internal", message: err.Error()}
}

// Update implements engine.
func (p plinth) Update(w write, live, updated object.Value) (object.Value, error) {
	k, writer := p.kind(w)
	told := updated.At("metadata", "managedFields")
	writer.Clear = told.Kind() == object.List && told.Len() == 0
	next, _ := k.Update(live, updated, writer) // as in the reference, the write continues without ownership
	return next, nil
}

func (plinth) replicas(w write) merge.Replicas {
	r := merge.Replicas{}
	for apiVersion, path := range w.kind.scale {
		r[apiVersion] = nil
		if path != "" {
			r[apiVersion] = pathOf(slices.Concat([]string{"spec"}, strings.Split(path, ".")))
		}
	}
	return r
}

// ToScale implements engine.
func (p plinth) ToScale(w write, parent object.Value) (object.Value, error) {
	v, err := p.replicas(w).ToScale(parent)
	if err != nil {
		return object.Nil, &refusal{kind: "internal", message: err.Error()}
	}
	return v, nil
}

// FromScale implements engine.
func (p plinth) FromScale(w write, parent, scale object.Value) (object.Value, error) {
	v, err := p.replicas(w).FromScale(parent, scale, w.apiVersion())
	if err != nil {
		return object.Nil, &refusal{kind: "internal", message: err.Error()}
	}
	return v, nil
}
