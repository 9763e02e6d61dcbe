package discovery

import (
	"slices"
	"sort"

	"plinth/object"
	"plinth/schema"
)

func newBuilder(d *Documents, dialect dialect, versions []*groupVersion) *builder {
	return &builder{
		documents: d, dialect: dialect, versions: versions,
		wanted: map[string]bool{}, rendered: map[*parameter]object.Value{},
	}
}

// models gives the fragments of all wanted models, and of those that they lead to, sorted by name.
func (b *builder) models(emit func(name string, model object.Value)) {
	types := map[string]*schema.Type{}
	known := b.types()
	var visit func(t *schema.Type)
	visit = func(t *schema.Type) {
		if t == nil {
			return
		}
		if t.Name != "" {
			if types[t.Name] != nil {
				return
			}
			types[t.Name] = t
		}
		visit(t.Elem)
		for _, f := range t.Fields {
			visit(f.Type)
		}
	}
	for name := range b.wanted {
		t := known[name]
		if t == nil {
			t = b.documents.model(name)
		}
		visit(t)
	}
	names := make([]string, 0, len(types))
	for name := range types {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		emit(name, b.model(types[name]))
	}
}

// types are the types that resources have as their own, by model name.
func (b *builder) types() map[string]*schema.Type {
	types := map[string]*schema.Type{}
	for _, gv := range b.versions {
		for _, r := range gv.resources {
			if r.Schema == nil {
				continue
			}
			t := r.Schema()
			types[t.Name] = t
			for _, s := range r.Subresources {
				if s.Schema != nil {
					t := s.Schema()
					types[t.Name] = t
				}
			}
		}
	}
	return types
}

// model is the fragment of a named type.
func (b *builder) model(t *schema.Type) object.Value {
	return object.Nil
}

func fieldDoc(t *schema.Type, f schema.Field) string { return "" }

var _ = slices.Contains[[]string]
