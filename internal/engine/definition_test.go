package engine

import (
	"testing"

	"plinth/internal/store"
	"plinth/object"
)

// define makes an object of another type the definition of the widgets, and returns a function that deletes it and
// creates another one of the same name. The widgets stay, as they do when the finalizer of a definition is taken away.
func (b *bench) define() (again func()) {
	b.Helper()
	definitions := (&Resource{
		Naming:  Naming{Group: "test.example", Version: "v1", Name: "definitions", Kind: "Definition"},
		Writing: Writing{UnconditionalUpdate: true}, Schema: b.widgets.Schema,
	}).StoredAlone("test.example/definitions")
	rq := &Request{Resource: definitions, Name: "widgets"}
	create := func() *store.Version {
		collection := &Request{Resource: definitions}
		return b.must(b.Create(b.Context(), collection, b.parse(`{"metadata":{"name":"widgets"}}`))).Object
	}
	made := create()
	b.widgets.Stored.Definition, b.widgets.Stored.DefinitionUID = made.Key, made.Sidecar.UID
	return func() {
		b.must(b.Delete(b.Context(), rq, DeleteOptions{}))
		create()
	}
}

// No verb commits a write that was understood under a definition which has been deleted and made again since, be it
// before the verb has read its object or between that and its commit.
//
// SPEC: EXT-3
func TestWritesBelongToTheirDefinition(t *testing.T) {
	verbs := map[string]func(b *bench) error{
		"create": func(b *bench) error {
			_, err := b.Create(b.Context(), b.request(""), b.parse(`{"metadata":{"name":"new"}}`))
			return err
		},
		"update that creates": func(b *bench) error {
			b.widgets.CreateOnUpdate = true
			_, err := b.Update(b.Context(), b.request("new"), b.parse(`{"metadata":{"name":"new"}}`))
			return err
		},
		"update": func(b *bench) error {
			_, err := b.Update(b.Context(), b.request("a"), b.parse(`{"metadata":{"name":"a"},"spec":{"n":1}}`))
			return err
		},
		"patch": func(b *bench) error {
			_, err := b.Patch(b.Context(), b.request("a"), Patch{Type: MergePatch, Body: []byte(`{"spec":{"n":1}}`)})
			return err
		},
		"apply": func(b *bench) error {
			rq := b.request("a")
			rq.FieldManager = "me"
			_, err := b.Apply(b.Context(), rq,
				b.parse(`{"apiVersion":"test.example/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"n":1}}`))
			return err
		},
		"delete": func(b *bench) error {
			_, err := b.Delete(b.Context(), b.request("a"), DeleteOptions{})
			return err
		},
		"deletecollection": func(b *bench) error {
			_, err := b.DeleteCollection(b.Context(), b.request(""), ListOptions{}, DeleteOptions{})
			return err
		},
		"mark": func(b *bench) error {
			b.widgets.Held = func(object.Value) bool { return true }
			_, err := b.Delete(b.Context(), b.request("a"), DeleteOptions{})
			return err
		},
	}
	for name, verb := range verbs {
		for _, when := range []string{"before the read", "before the commit"} {
			b := newBench(t)
			again := b.define()
			before := b.create(`{"metadata":{"name":"a"}}`).Object.Revision
			if when == "before the read" {
				again()
			} else {
				b.meanwhile(again)
			}
			err := verb(b)
			b.wants(err, 404, "the server could not find the requested resource")
			if got := b.must(b.Get(t.Context(), b.request("a"), "")).Object.Revision; got != before {
				t.Errorf("%s, made again %s: the object is at revision %d, and was at %d", name, when, got, before)
			}
			if _, err := b.Get(t.Context(), b.request("new"), ""); err == nil {
				t.Errorf("%s, made again %s: the object was created", name, when)
			}
			if t.Failed() {
				t.Fatalf("%s, made again %s", name, when)
			}
		}
	}
}

// A change of the definition itself, such as the mark of its deletion, refuses no write to an existing object: its
// controllers must be able to remove their finalizers.
//
// SPEC: EXT-3
func TestWritesUnderAChangedDefinition(t *testing.T) {
	b := newBench(t)
	b.define()
	b.create(`{"metadata":{"name":"a"}}`)
	definition, err := b.Stored(t.Context(), b.widgets.Stored.Definition)
	if err != nil {
		t.Fatal(err)
	}
	deleting := *definition.Sidecar
	deleting.Deleting, deleting.Form = true, deleting.Form+2
	if _, err := b.store.Commit(t.Context(), nil, []store.Change{{Key: definition.Key, Data: definition.Data(),
		Sidecar: &deleting}}); err != nil {
		t.Fatal(err)
	}
	b.must(b.Patch(t.Context(), b.request("a"), Patch{Type: MergePatch, Body: []byte(`{"spec":{"n":1}}`)}))
	b.must(b.Delete(t.Context(), b.request("a"), DeleteOptions{}))
}
