package merge

import (
	"testing"

	"plinth/object"
	"plinth/schema"
)

// The intent of an edit has what was edited, and what the manager has applied before; nothing else changes hands.
//
// SPEC: BEY-16
func TestIntent(t *testing.T) {
	const live = `
metadata: {name: w, uid: u, labels: {a: "1", b: "2"}, finalizers: [x/y]}
spec:
  replicas: 1
  selector: {a: b, c: d}
  containers:
  - {name: web, image: v1, args: [x], ports: [{port: 80, protocol: TCP}, {port: 443, protocol: TCP, name: tls}]}
  - {name: log, image: v1}`
	const applied = `{metadata: {labels: {b: "2"}}, spec: {containers: [{name: log, image: v1}]}}`
	const base = `"apiVersion":"v1","kind":"Widget"`
	for _, test := range []struct{ name, edited, intent string }{
		{"nothing", live, `{` + base + `,"metadata":{"labels":{"b":"2"},"name":"w"},"spec":{"containers":[{"image":"v1","name":"log"}]}}`},
		{"a scalar, and what was applied is taken away", `
metadata: {name: w, labels: {a: "1"}}
spec: {replicas: 3, selector: {a: b, c: d}, containers: [{name: web, image: v1}]}`,
			`{` + base + `,"metadata":{"name":"w"},"spec":{"replicas":3}}`},
		{"an atomic map is one field", `
metadata: {name: w, labels: {a: "1"}}
spec: {selector: {a: b, c: e}}`,
			`{` + base + `,"metadata":{"name":"w"},"spec":{"selector":{"a":"b","c":"e"}}}`},
		{"a field of an item, with the item's keys", `
metadata: {name: w}
spec: {containers: [{name: web, ports: [{port: 443, name: https}]}]}`,
			`{` + base + `,"metadata":{"name":"w"},"spec":{"containers":[{"name":"web","ports":[{"name":"https","port":443}]}]}}`},
		{"a new item, and an item of a set", `
metadata: {name: w, finalizers: [x/y, new/one]}
spec: {containers: [{name: new, image: v2, ports: [{port: 1}]}, {name: log, image: v2}]}`,
			`{` + base + `,"metadata":{"finalizers":["new/one"],"name":"w"},"spec":{"containers":[` +
				`{"image":"v2","name":"new","ports":[{"port":1}]},{"image":"v2","name":"log"}]}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := Writer{Manager: "me", APIVersion: "v1", Now: "2026-01-02T03:04:05Z"}
			const kind = "apiVersion: v1\nkind: Widget\n"
			v := yaml(t, kind+live)
			v, err := widgets.Update(object.Nil, v, Writer{Manager: "other", APIVersion: "v1", Now: w.Now})
			if err == nil {
				v, err = widgets.Apply(v, yaml(t, kind).With("metadata", yaml(t, applied).At("metadata")).
					With("spec", yaml(t, applied).At("spec")), w)
			}
			if err != nil {
				t.Fatal(err)
			}
			intent, err := widgets.Intent(v, yaml(t, kind+test.edited), w)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(object.AppendJSON(nil, intent)); got != test.intent {
				t.Errorf("the intent is\n%s\nwant\n%s", got, test.intent)
			}
			if _, err := widgets.Apply(v, intent, Writer{Manager: "me", APIVersion: "v1", Force: true, Now: w.Now}); err != nil {
				t.Error(err)
			}
		})
	}
}

// An object that does not exist is made of all that was written.
//
// SPEC: BEY-16
func TestIntentOfNewObjects(t *testing.T) {
	edited := yaml(t, head+"spec: {replicas: 1, containers: [{name: a, ports: [{port: 1}]}]}")
	intent, err := widgets.Intent(object.Nil, edited, Writer{Manager: "me", APIVersion: "v1"})
	if err != nil || !object.Equal(intent, edited.WithoutAt("metadata", "uid")) {
		t.Errorf("%v: %s", err, object.AppendJSON(nil, intent))
	}
}

// What a manager has applied in another version is taken in that version.
//
// SPEC: BEY-16, SSA-11
func TestIntentInAnotherVersion(t *testing.T) {
	live := yaml(t, "apiVersion: v1\nkind: Widget\nmetadata: {name: w, uid: u}\nspec: {replicas: 1, template: {x: 1}}")
	old := &Kind{Type: widget}
	applied, err := old.Apply(live, yaml(t, "apiVersion: v0\nkind: Widget\nmetadata: {name: w}\nspec: {replicas: 1}"),
		Writer{Manager: "me", APIVersion: "v0", Force: true, Now: "2026-01-02T03:04:05Z"})
	if err != nil {
		t.Fatal(err)
	}
	applied = applied.With("apiVersion", object.StringOf("v1"))
	k := &Kind{Type: widget, Versions: renamed{}}
	edited := applied.WithAt(object.IntOf(2), "spec", "template", "x")
	intent, err := k.Intent(applied, edited, Writer{Manager: "me", APIVersion: "v1"})
	want := `{"apiVersion":"v1","kind":"Widget","metadata":{"name":"w"},"spec":{"replicas":1,"template":{"x":2}}}`
	if got := string(object.AppendJSON(nil, intent)); err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

// renamed are two versions with the same fields.
type renamed struct{ Versions }

func (renamed) Type(apiVersion string) *schema.Type { return widget }
func (renamed) Convert(v object.Value, apiVersion string) (object.Value, error) {
	return v.With("apiVersion", object.StringOf(apiVersion)), nil
}

// The law of intents: applied to the live object, the intent of an edit brings everything that was edited, and nothing
// that was not there before or after.
//
// SPEC: BEY-16
func FuzzIntent(f *testing.F) {
	f.Add([]byte(`{"spec":{"replicas":1,"containers":[{"name":"a","image":"x"}]}}`),
		[]byte(`{"spec":{"containers":[{"name":"b"},{"name":"a","ports":[{"port":1}]}]}}`),
		[]byte(`{"spec":{"containers":[{"name":"a","image":"y"}]}}`))
	f.Add([]byte(`{"metadata":{"finalizers":["a","b"]},"spec":{"selector":{"a":"b"}}}`),
		[]byte(`{"metadata":{"finalizers":["b"],"labels":{}},"spec":{"selector":null,"template":{"x":[1]}}}`),
		[]byte(`{"metadata":{"finalizers":["c"]},"spec":{"template":{"x":[2],"y":{}}}}`))
	f.Fuzz(func(t *testing.T, first, second, third []byte) {
		a, ok := intentOf(first)
		b, ok2 := intentOf(second)
		c, ok3 := intentOf(third)
		if !ok || !ok2 || !ok3 {
			return
		}
		const now = "2026-01-01T00:00:00Z"
		me := Writer{Manager: "me", APIVersion: "v1", Force: true, Now: now}
		live, err := widgets.Apply(object.Nil, a, Writer{Manager: "one", APIVersion: "v1", Now: now})
		if err == nil {
			live, err = widgets.Apply(live.WithAt(object.StringOf("u"), "metadata", "uid"), b, me)
		}
		if err != nil {
			return
		}
		intent, err := widgets.Intent(live, c, me)
		if err != nil {
			return // an item without its keys
		}
		result, err := widgets.Apply(live, intent, me)
		if err != nil {
			if _, wrong := checkedFieldsOf(c, widget, new(arena)); wrong == nil {
				t.Fatalf("the intent %s of %s cannot be applied: %v", object.AppendJSON(nil, intent), third, err)
			}
			return
		}
		holds(t, result, filled(c.WithoutAt("metadata", "uid"), widget))
		bare := withoutManaged(result)
		known := fieldsOf(withoutManaged(live), widget).Union(fieldsOf(c, widget))
		if more := fieldsOf(bare, widget).Minus(known).Minus(unowned); !more.Empty() {
			t.Fatalf("%s of the result is new", more)
		}
	})
}

// filled is a value without the members that are empty or null: of those an apply keeps what live has, and prune
// removes a container with its last field.
func filled(v object.Value, t *schema.Type) object.Value {
	s := shapeOf(t, v)
	if s == leaf || atomic(t, s) {
		return v
	}
	if s == listing {
		items := make([]object.Value, v.Len())
		for i, item := range v.Items() {
			items[i] = filled(item, itemType(t))
		}
		return object.ListOf(items...)
	}
	var members []object.Member
	for _, m := range v.Members() {
		of, _ := memberType(t, m.Key)
		if part := filled(m.Value, of); !part.IsNull() && (part.Len() > 0 || shapeOf(of, part) == leaf) {
			members = append(members, object.Member{Key: m.Key, Value: part})
		}
	}
	return object.MapOf(members...)
}
