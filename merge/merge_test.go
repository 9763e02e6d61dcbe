package merge

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"plinth/object"
	"plinth/schema"
)

// The types of these tests: a kind with one field of every sort.
var (
	text   = &schema.Type{Kind: schema.String}
	number = &schema.Type{Kind: schema.Int, Bits: 64}
	port   = &schema.Type{Kind: schema.Struct, Fields: []schema.Field{
		{Name: "name", Type: text, OmitEmpty: true},
		{Name: "port", Type: number},
		{Name: "protocol", Type: text, OmitEmpty: true, Default: object.StringOf("TCP")},
	}}
	container = &schema.Type{Kind: schema.Struct, Fields: []schema.Field{
		{Name: "args", Type: &schema.Type{Kind: schema.List, Elem: text}, OmitEmpty: true},
		{Name: "image", Type: text, OmitEmpty: true},
		{Name: "name", Type: text},
		{Name: "ports", Type: &schema.Type{Kind: schema.List, Elem: port, ListType: schema.Associative,
			ListKeys: []string{"port", "protocol"}}, OmitEmpty: true},
	}}
	labels = &schema.Type{Kind: schema.Map, Elem: text}
	widget = &schema.Type{Kind: schema.Struct, Fields: []schema.Field{
		{Name: "apiVersion", Type: text},
		{Name: "kind", Type: text},
		{Name: "metadata", Type: &schema.Type{Kind: schema.Struct, Fields: []schema.Field{
			{Name: "annotations", Type: labels, OmitEmpty: true},
			{Name: "finalizers", Type: &schema.Type{Kind: schema.List, Elem: text, ListType: schema.Set}, OmitEmpty: true},
			{Name: "labels", Type: labels, OmitEmpty: true},
			{Name: "name", Type: text, OmitEmpty: true},
			{Name: "uid", Type: text, OmitEmpty: true},
		}}},
		{Name: "spec", Type: &schema.Type{Kind: schema.Struct, Fields: []schema.Field{
			{Name: "containers", Type: &schema.Type{Kind: schema.List, Elem: container, ListType: schema.Associative,
				ListKeys: []string{"name"}}, OmitEmpty: true},
			{Name: "replicas", Type: number, OmitEmpty: true, Pointer: true},
			{Name: "selector", Type: &schema.Type{Kind: schema.Map, Elem: text, AtomicMap: true}, OmitEmpty: true},
			{Name: "template", Type: &schema.Type{Kind: schema.Any}, OmitEmpty: true},
		}}},
	}}
	widgets = &Kind{Type: widget}
)

const head = "apiVersion: v1\nkind: Widget\nmetadata: {name: w, uid: u}\n"

func yaml(t testing.TB, text string) object.Value {
	t.Helper()
	parsed, err := object.ParseYAML([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return parsed.Value
}

// step is a write and its expected result.
type step struct {
	apply, update string // the manager; a "!" at the end forces
	body          string // the object without apiVersion, kind and metadata
	spec          string // the resulting spec, as JSON; "" if it does not matter
	owners        string // the managers with their fields, one entry per line; "" if they do not matter
	err           string
}

func TestHistories(t *testing.T) {
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"the fields of an intent are owned, and an update takes the fields that it changes", []step{ // SPEC: SSA-1, SSA-2, SSA-6
			{apply: "a", body: "spec: {replicas: 1, selector: {a: b}}", spec: `{"replicas":1,"selector":{"a":"b"}}`,
				owners: "a Apply .spec.replicas .spec.selector"},
			{update: "b", body: "spec: {replicas: 2, selector: {a: b}}",
				owners: "a Apply .spec.selector\nb Update .spec.replicas"},
		}},
		{"fields that were given up are removed, unless another manager owns them, too", []step{ // SPEC: SSA-3, SSA-5
			{apply: "a", body: "spec: {replicas: 1}\nmetadata: {labels: {x: w, z: z}}"},
			{apply: "b", body: "metadata: {labels: {x: w}}"},
			{apply: "a", body: "spec: {}", spec: "null", owners: "b Apply .metadata.labels.x\na Apply .spec"},
		}},
		{"an item without an owner is removed with the fields that others own in it", []step{ // SPEC: SSA-3
			{apply: "a", body: "spec: {replicas: 1, containers: [{name: x, image: i}]}"},
			{update: "b", body: "spec: {replicas: 1, containers: [{name: x, image: i, args: [q]}]}",
				owners: "a Apply .spec.replicas .spec.containers[name=\"x\"] .spec.containers[name=\"x\"].image " +
					".spec.containers[name=\"x\"].name\nb Update .spec.containers[name=\"x\"].args"},
			{apply: "a", body: "spec: {replicas: 1}", spec: `{"containers":null,"replicas":1}`,
				owners: "a Apply .spec.replicas"},
		}},
		{"a field without an owner stays in an item that a manager keeps", []step{ // SPEC: SSA-3
			{apply: "a", body: "spec: {containers: [{name: x, image: i}]}"},
			{apply: "b", body: "spec: {containers: [{name: x}]}"},
			{update: "c", body: "spec: {containers: [{name: x, image: i, args: [q]}]}"},
			{update: "c", body: "metadata: {managedFields: [" +
				"{manager: a, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {'f:spec': {'f:containers': " +
				"{'k:{\"name\":\"x\"}': {'.': {}, 'f:name': {}, 'f:image': {}}}}}}, " +
				"{manager: b, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {'f:spec': {'f:containers': " +
				"{'k:{\"name\":\"x\"}': {'.': {}, 'f:name': {}}}}}}]}\n" +
				"spec: {containers: [{name: x, image: i, args: [q]}]}"},
			{apply: "a", body: "spec: {}", spec: `{"containers":[{"args":["q"],"name":"x"}]}`},
		}},
		{"conflicts", []step{ // SPEC: SSA-4
			{apply: "a", body: "spec: {replicas: 1, selector: {a: b}}"},
			{apply: "b", body: "spec: {replicas: 2}", err: `Apply failed with 1 conflict: conflict with "a": .spec.replicas`},
			{update: "c", body: "spec: {replicas: 3, selector: {a: c}}"},
			{apply: "b", body: "spec: {replicas: 2, selector: {b: b}}",
				err: "Apply failed with 2 conflicts: conflicts with \"c\" using v1:\n- .spec.replicas\n- .spec.selector"},
			{apply: "b!", body: "spec: {replicas: 2}", spec: `{"replicas":2,"selector":{"a":"c"}}`,
				owners: "b Apply .spec.replicas\nc Update .spec.selector"},
		}},
		{"associative lists keep the items of others, and the order of the intent", []step{ // SPEC: SSA-8
			{apply: "a", body: "spec: {containers: [{name: x, image: i}, {name: w}]}"},
			{apply: "b", body: "spec: {containers: [{name: z}, {name: w, args: [q]}]}",
				spec:   `{"containers":[{"image":"i","name":"x"},{"name":"z"},{"args":["q"],"name":"w"}]}`,
				owners: "a Apply .spec.containers[name=\"w\"] .spec.containers[name=\"x\"] .spec.containers[name=\"w\"].name .spec.containers[name=\"x\"].image .spec.containers[name=\"x\"].name\nb Apply .spec.containers[name=\"w\"] .spec.containers[name=\"z\"] .spec.containers[name=\"w\"].args .spec.containers[name=\"w\"].name .spec.containers[name=\"z\"].name"},
			{apply: "b", body: "spec: {containers: [{name: w}]}",
				spec: `{"containers":[{"image":"i","name":"x"},{"name":"w"}]}`},
		}},
		{"keys have defaults", []step{ // SPEC: SSA-8
			{apply: "a", body: "spec: {containers: [{name: x, ports: [{port: 80}]}]}"},
			{apply: "b",
				body: "spec: {containers: [{name: x, ports: [{port: 80, protocol: TCP, name: web}, {port: 80, protocol: UDP}]}]}",
				spec: `{"containers":[{"name":"x","ports":[{"name":"web","port":80,"protocol":"TCP"},{"port":80,"protocol":"UDP"}]}]}`},
		}},
		{"an intent has no item twice", []step{ // SPEC: SSA-18
			{apply: "a", body: "spec: {containers: [{name: x}, {name: x}]}",
				err: `.spec.containers: duplicate entries for key [name="x"]`},
		}},
		{"content without a schema is granular, and its lists are atomic", []step{ // SPEC: SSA-9
			{apply: "a", body: "spec: {template: {x: {a: 1, l: [1]}}}",
				owners: "a Apply .spec.template.x .spec.template.x.a .spec.template.x.l"},
			{apply: "b", body: "spec: {template: {x: {l: [2]}}}",
				err: `Apply failed with 1 conflict: conflict with "a": .spec.template.x.l`},
			{apply: "b", body: "spec: {template: {x: {z: 1}}}", spec: `{"template":{"x":{"a":1,"l":[1],"z":1}}}`},
		}},
		{"fields of an object without managers belong to before-first-apply", []step{ // SPEC: SSA-1
			{update: "nobody", body: "metadata: {labels: {x: z}}\nspec: {replicas: 1}",
				owners: "nobody Update .spec .metadata.labels .metadata.labels.x .spec.replicas"},
			{update: "nobody", body: "metadata: {labels: {x: z}, managedFields: [{}]}\nspec: {replicas: 1}", owners: "none"},
			{update: "nobody", body: "metadata: {labels: {x: z}}\nspec: {replicas: 1}", owners: "none"},
			{apply: "a", body: "spec: {replicas: 1}",
				owners: "a Apply .spec.replicas\nbefore-first-apply Update .spec .metadata.labels .metadata.labels.x .spec.replicas"},
		}},
		{"a manager that updates again still has one entry", []step{ // SPEC: SSA-6
			{update: "a", body: "metadata: {managedFields: [{}]}"},
			{apply: "b", body: "spec: {selector: {a: b}}"},
			{update: "c", body: "spec: {replicas: 1, selector: {a: b}}"},
			{update: "c", body: "spec: {replicas: 1, selector: {a: b}, template: {x: 1}}",
				owners: "b Apply .spec.selector\nc Update .spec.replicas .spec.template .spec.template.x"},
		}},
		{"an empty list of managers and an empty entry", []step{ // SPEC: SSA-7
			{apply: "a", body: "spec: {replicas: 1}"},
			{update: "b", body: "metadata: {managedFields: [{manager: c, operation: Update}]}\nspec: {replicas: 1}",
				owners: "a Apply .spec.replicas"},
			{update: "b", body: "metadata: {managedFields: [{}]}\nspec: {replicas: 2}", owners: "none"},
		}},
		{"client-side apply continues as server-side apply", []step{ // SPEC: SSA-13
			{update: "kubectl-client-side-apply", body: "metadata: {annotations: {" + LastApplied +
				`: '{"apiVersion":"v1","kind":"Widget","spec":{"replicas":1}}'}}` + "\nspec: {replicas: 1}"},
			{apply: "kubectl", body: "spec: {replicas: 2}", spec: `{"replicas":2}`},
			{update: "edit", body: "metadata: {annotations: {" + LastApplied +
				`: '{"apiVersion":"v1","kind":"Widget","spec":{"replicas":2}}'}}` + "\nspec: {replicas: 5}"},
			{apply: "kubectl", body: "spec: {replicas: 6}", err: `conflict with "edit" using v1: .spec.replicas`},
			{apply: "other", body: "spec: {replicas: 6}", err: `conflict with "edit" using v1: .spec.replicas`},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			live := object.Nil
			for i, s := range test.steps {
				live = s.run(t, i, live)
			}
		})
	}
}

// run makes the step and checks its result.
func (s *step) run(t *testing.T, i int, live object.Value) object.Value {
	t.Helper()
	name, force := strings.CutSuffix(s.apply+s.update, "!")
	w := Writer{Manager: name, APIVersion: "v1", Force: force, Now: fmt.Sprintf("2026-01-02T03:%02d:00Z", i)}
	body := yaml(t, s.body)
	body = body.With("apiVersion", object.StringOf("v1")).With("kind", object.StringOf("Widget"))
	var next object.Value
	var err error
	if s.apply != "" {
		next, err = widgets.Apply(live, body, w)
	} else {
		if live.IsNull() {
			body = body.WithAt(object.Nil, "metadata", "uid").WithoutAt("metadata", "uid")
		} else {
			body = body.WithAt(object.StringOf("u"), "metadata", "uid")
		}
		next, err = widgets.Update(live, body, w)
	}
	if s.err != "" || err != nil {
		if err == nil || s.err == "" || !strings.Contains(err.Error(), s.err) {
			t.Fatalf("step %d: error %v, want %q", i, err, s.err)
		}
		return live
	}
	if got := string(object.AppendJSON(nil, next.At("spec"))); s.spec != "" && got != s.spec {
		t.Errorf("step %d: spec is %s, want %s", i, got, s.spec)
	}
	if got := ownersOf(t, next); s.owners != "" && got != s.owners {
		t.Errorf("step %d: owners are\n%s\nwant\n%s", i, got, s.owners)
	}
	return next.WithAt(object.StringOf("u"), "metadata", "uid")
}

func ownersOf(t *testing.T, v object.Value) string {
	entries, err := ParseManagedFields(v.At("metadata", "managedFields"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range entries {
		lines = append(lines, e.Manager+" "+e.Operation+" "+strings.ReplaceAll(e.Fields.String(), "\n", " "))
	}
	if len(lines) == 0 {
		return "none"
	}
	return strings.Join(lines, "\n")
}

// The order of values is total: a trie is sorted by it, and clients may write any values into managedFields.
func TestOrderOfValues(t *testing.T) {
	var values []object.Value
	for _, literal := range []string{`-9223372036854775808`, `-9.3e18`, `-1.5`, `-1`, `-1.0`, `0`, `1`, `1.0`, `1.5`, `2`,
		`9007199254740992`, `9007199254740992.0`, `9007199254740993`, `9223372036854775807`, `9223372036854775808`, `1e300`,
		`""`, `"a"`, `false`, `true`, `[]`, `[1]`, `[1,2]`, `[1.0,3]`, `{}`, `{"a":1}`, `{"a":1.0,"b":1}`, `null`} {
		v, err := parseInner(literal)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, v)
	}
	show := func(v object.Value) string { return string(object.AppendJSON(nil, v)) }
	for _, a := range values {
		for _, b := range values {
			if compareValues(a, b) != -compareValues(b, a) {
				t.Errorf("the order of %s and %s is not antisymmetric", show(a), show(b))
			}
			for _, c := range values {
				if ab, bc := compareValues(a, b), compareValues(b, c); ab <= 0 && bc <= 0 && compareValues(a, c) != min(ab, bc) {
					t.Errorf("the order of %s, %s and %s is not transitive", show(a), show(b), show(c))
				}
			}
		}
	}
	if one, float := values[6], values[7]; compareValues(one, float) != 0 {
		t.Error("1 and 1.0 are not equal")
	}
}

// Lists of more than smallList items are searched by a sorted index.
//
// SPEC: SSA-8
func TestLargeLists(t *testing.T) {
	const n = 4 * smallList
	items := func(from, step int, more string) string {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("{name: c%02d%s}", (from+i*step)%n, more))
		}
		return "spec: {containers: [" + strings.Join(names, ", ") + "]}"
	}
	apply := func(live object.Value, manager, body string) object.Value {
		t.Helper()
		v, err := widgets.Apply(live, yaml(t, head+body), Writer{Manager: manager, APIVersion: "v1",
			Now: "2026-01-02T03:04:05Z"})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := apply(object.Nil, "a", items(n/2, 5, ", image: x"))
	v = apply(v, "b", items(0, 1, ", args: [z]"))
	got := v.At("spec", "containers").Items()
	if len(got) != n {
		t.Fatalf("the merged list has %d items", len(got))
	}
	for i, item := range got {
		if want := fmt.Sprintf(`{"args":["z"],"image":"x","name":"c%02d"}`, i); string(object.AppendJSON(nil, item)) != want {
			t.Errorf("item %d is %s, want %s", i, object.AppendJSON(nil, item), want)
		}
	}
}

func TestManagedFieldsInAnIntent(t *testing.T) { // SPEC: SSA-7
	_, err := widgets.Apply(object.Nil, yaml(t, head+"spec: {}").WithAt(object.ListOf(object.MapOf()), "metadata",
		"managedFields"), Writer{APIVersion: "v1"})
	if !errors.Is(err, ErrManaged) {
		t.Errorf("an intent with managedFields: error %v", err)
	}
}
