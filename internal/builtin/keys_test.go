package builtin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// The tables of this package name fields of types. A name with a mistake in it would not be an error but a rule that
// never applies; so every path is looked up in the schema of its type.

// resolve is the type at the end of a path; the steps [] and {} lead into the items of a list and the members of a map.
func resolve(t *schema.Type, path []string) (*schema.Type, error) {
	for i, step := range path {
		var next *schema.Type
		switch {
		case step == everyItem && t.Kind == schema.List, step == everyMember && t.Kind == schema.Map:
			next = t.Elem
		case t.Kind == schema.Struct:
			if f := t.Field(step); f != nil {
				next = f.Type
			}
		}
		if next == nil {
			return nil, fmt.Errorf("%s: %s has no %s", strings.Join(path, "."), strings.Join(path[:i], "."), step)
		}
		t = next
	}
	return t, nil
}

// leaves are the paths of a tree of gated fields that belong to a feature.
func (b *branch) leaves(at []string) (all [][]string) {
	if b.leaf != 0 {
		all = append(all, at)
	}
	for _, n := range b.next {
		all = append(all, n.leaves(append(slices.Clone(at), n.step))...)
	}
	return all
}

// eachKind calls a function for each row of the table, in each of its versions.
func eachKind(f func(name string, k *kind)) {
	for _, g := range groups(Config{}) {
		for i := range g.kinds {
			for j := range g.kinds[i].versions {
				k := g.kinds[i].in(&g.kinds[i].versions[j])
				f(strings.TrimPrefix(g.name+"/"+k.version.name, "/")+" "+k.kind, k)
			}
		}
	}
}

func TestGatedFieldsAreFields(t *testing.T) {
	paths := 0
	eachKind(func(name string, k *kind) {
		for i, places := range [][]gated{k.gated, k.gatedStatus} {
			for _, g := range places {
				for _, path := range g.tree().root.leaves(g.at) {
					paths++
					if _, err := resolve(k.version.schema(), path); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					if status := path[0] == "status"; status != (i == 1) && k.status != statusOnCreate {
						t.Errorf("%s: %s is reset on the wrong URL", name, strings.Join(path, "."))
					}
				}
			}
		}
	})
	if paths < 100 {
		t.Errorf("only %d paths were there", paths)
	}
}

// SPEC: LIST-7
func TestSelectableFieldsAreFields(t *testing.T) {
	fields := 0
	eachKind(func(name string, k *kind) {
		for _, f := range k.fields {
			fields++
			path := f.path
			if path == nil {
				path = strings.Split(f.name, ".")
			}
			typ, err := resolve(k.version.schema(), path)
			if err != nil {
				t.Errorf("%s: %s: %v", name, f.name, err)
				continue
			}
			if f.path != nil && typ.Kind != schema.String && typ.Kind != schema.Int && typ.Kind != schema.Bool {
				t.Errorf("%s: %s is no scalar", name, f.name)
			}
		}
	})
	if fields < 40 {
		t.Errorf("only %d fields were there", fields)
	}
	for _, r := range Resources(Config{}) {
		for old, name := range r.OldFields {
			if r.Fields == nil || !slices.ContainsFunc(r.Fields(object.Nil),
				func(p store.Pair) bool { return p.Name == name }) {
				t.Errorf("%s %s: %s stands for %s, which cannot be selected by", r.APIVersion(), r.Kind, old, name)
			}
		}
	}
}

// The paths of replicas lead to numbers, and the paths that a write to an endpoint cannot change lead to fields.
//
// SPEC: SSA-14, URI-7
func TestPathsOfEndpointsAreFields(t *testing.T) {
	scales, resets := 0, 0
	eachKind(func(name string, k *kind) {
		if k.scale == nil {
			return
		}
		scales++
		for _, path := range [][]string{{"spec", "replicas"}, {"status", "replicas"}} {
			if typ, err := resolve(k.version.schema(), path); err != nil || typ.Kind != schema.Int {
				t.Errorf("%s: %q is no number: %v", name, path, err)
			}
		}
	})
	eachKind(func(name string, k *kind) {
		for endpoint, paths := range k.untouched {
			for path := range strings.FieldsSeq(paths) {
				resets++
				if _, err := resolve(k.version.schema(), strings.Split(path, ".")); err != nil {
					t.Errorf("%s, endpoint %q: %v", name, endpoint, err)
				}
			}
		}
	})
	if scales != 4 || resets < 50 {
		t.Errorf("only %d scales and %d paths were there", scales, resets)
	}
}
