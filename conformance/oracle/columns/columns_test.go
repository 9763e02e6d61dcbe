package columns

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/internal/crd"
	"plinth/internal/engine"
	"plinth/internal/gotypes"
	"plinth/internal/store"
	"plinth/object"
)

const (
	pairs = 8000
	// tries is how often upstream is called for paths whose result depends on the iteration order of a Go map: if the
	// results differ, any is right.
	tries = 20
)

// define returns Plinth's type for a definition with this version.
func define(t *testing.T, version map[string]any) *engine.Resource {
	t.Helper()
	version["name"], version["served"], version["storage"] = "v1", true, true
	version["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
		"x-kubernetes-preserve-unknown-fields": true}}
	names := map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "gadgets.columns.example.com", "uid": "u"},
		"spec": map[string]any{"group": "columns.example.com", "scope": "Namespaced", "names": names,
			"versions": []any{version}},
		"status": map[string]any{"acceptedNames": names, "conditions": []any{
			map[string]any{"type": "NamesAccepted", "status": "True"}, map[string]any{"type": "Established", "status": "True"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	data := object.AppendObject(nil, parsed.Value)
	at, ok := object.Locate(data)
	if !ok {
		t.Fatal("the definition is not canonical")
	}
	v := store.NewVersion(store.Key{Resource: crd.Path, Name: "gadgets.columns.example.com"}, 0, data,
		engine.NewSidecar(at))
	defined := crd.New(gotypes.Of[metav1.ObjectMeta]).Define(v, nil)
	if len(defined) != 1 {
		t.Fatalf("%d types are defined by %s", len(defined), data)
	}
	return defined[0]
}

// generator makes paths and objects from the same few names, so that they often match.
type generator struct{ *rand.Rand }

func (g generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) name() string { return g.pick("a", "b", "c", "type", "x.y/z") }

func (g generator) value(depth int) any {
	if depth > 0 {
		switch g.IntN(5) {
		case 0, 1:
			m := map[string]any{}
			for range g.IntN(4) {
				m[g.name()] = g.value(depth - 1)
			}
			return m
		case 2, 3:
			list := []any{}
			for range g.IntN(4) {
				list = append(list, g.value(depth-1))
			}
			return list
		}
	}
	switch g.IntN(9) {
	case 0:
		return nil
	case 1:
		return g.IntN(2) == 0
	case 2:
		return g.IntN(4) - 1
	case 3:
		return []float64{1.5, 2, 1e30, -0.25, 1e-9}[g.IntN(5)]
	case 4:
		return g.pick("2020-01-02T03:04:05Z", "2020-01-02", "", "null", "0001-01-01T00:00:00Z", "2020-01-02T03:04:05.5+02:00")
	}
	return g.pick("Ready", "1", "<&>", "tü", "true")
}

func (g generator) path() string {
	path := ""
	for range 1 + g.IntN(3) {
		path += g.step()
	}
	if path[0] != '.' {
		path = ".a" + path
	}
	return path
}

func (g generator) step() string {
	switch g.IntN(20) {
	case 0:
		return fmt.Sprintf("[%d]", g.IntN(5)-2)
	case 1:
		return g.pick("[*]", "[:]", "[1:]", "[:1]", "[0:2]", "[-2:]", "[:-1]", "[::2]", "[0:3:2]", "[::0]", "[2:1]",
			"[1:1]", "[0:9]")
	case 2, 3:
		return fmt.Sprintf("[?(@.%s%s%s)]", g.pick("a", "type", "b.c", "a[0]"),
			g.pick("==", "!=", "<", ">", "<=", ">=", "=~"),
			g.pick(`"Ready"`, `'1'`, "1", "1.5", "true", "@.b"))
	case 4:
		return fmt.Sprintf("[?(@.%s)]", g.pick("a", "type", "a[7]", "b.c"))
	case 5:
		return g.pick("[0,1]", "['a','b']", "[0,-1]", "[*,0]")
	case 6:
		return g.pick(".*", "..a", "..*", "..")
	case 7:
		return g.pick(`['x\.y/z']`, `.x\.y/z`, "['a']")
	case 8: // nonsense, but no integer: upstream finds those and shows them only in text columns
		return g.pick("[", "]", " b", "}", "{", "[a]", "$", "'q'", " 1.5", "true")
	}
	return "." + g.pick("a", "b", "c", "type")
}

func (g generator) object() (raw []byte, u *unstructured.Unstructured) {
	obj := map[string]any{"apiVersion": "columns.example.com/v1", "kind": "Gadget",
		"metadata": map[string]any{"name": "g", "namespace": "n"}}
	for _, name := range []string{"a", "b", "c", "type"} {
		obj[name] = g.value(3)
	}
	raw, err := json.Marshal(obj)
	if err != nil {
		panic(err)
	}
	u = &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		panic(err)
	}
	return raw, u
}

// typeOf returns the type of a column: in half of the cases one that fits the value at the path, otherwise any.
func (g generator) typeOf(path string, u *unstructured.Unstructured) string {
	if g.IntN(2) == 0 {
		c, err := tableconvertor.New([]apiextensionsv1.CustomResourceColumnDefinition{{Name: "C", Type: "string",
			JSONPath: path}})
		if err == nil {
			if table, err := c.ConvertToTable(context.Background(), u, nil); err == nil {
				text, _ := table.Rows[0].Cells[1].(string)
				switch {
				case text == "true", text == "false":
					return "boolean"
				case text != "" && strings.Trim(text, "0123456789.-+e") == "":
					return g.pick("integer", "number")
				case strings.HasPrefix(text, "20"):
					return "date"
				}
			}
		}
	}
	return g.pick("string", "string", "integer", "number", "boolean", "date")
}

// SPEC: MED-6, EXT-1
func TestColumns(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(1, 2))}
	shown, refused, unordered, bytesOfText := map[string]int{}, 0, 0, 0
	for i := range pairs {
		raw, u := g.object()
		path := g.path()
		column := map[string]any{
			"name": "C", "type": g.typeOf(path, u), "jsonPath": path,
			"description": g.pick("", "what it is"), "format": g.pick("", "int32"), "priority": g.IntN(2),
		}
		second := map[string]any{"name": "D", "type": "string", "jsonPath": ".b"}
		var columns []apiextensionsv1.CustomResourceColumnDefinition
		if text, err := json.Marshal([]any{column, second}); err != nil || json.Unmarshal(text, &columns) != nil {
			t.Fatal(err)
		}
		r := define(t, map[string]any{"additionalPrinterColumns": []any{column, second}})
		upstream, err := tableconvertor.New(columns)
		if err != nil {
			refused++
		}
		var table *metav1.Table
		for try := range tries {
			again, err := upstream.ConvertToTable(context.Background(), u, nil)
			if err != nil {
				t.Fatal(err)
			}
			if try > 0 && !reflect.DeepEqual(again.Rows[0].Cells, table.Rows[0].Cells) {
				table = nil
				break
			}
			if table = again; !strings.Contains(columns[0].JSONPath, ".*") && !strings.Contains(columns[0].JSONPath, "..") {
				break
			}
		}
		if table == nil {
			unordered++
			continue
		}
		if !compareTable(t, i, columns[0], raw, r, table) {
			bytesOfText++
		}
		if cells := table.Rows[0].Cells; len(cells) == 3 && cells[1] != nil {
			shown[columns[0].Type]++
		}
	}
	t.Logf("%d pairs: shown %v, %d refused paths, %d in no order, %d bytes of a string", pairs, shown, refused,
		unordered, bytesOfText)
	for typ, least := range map[string]int{"string": 400, "integer": 15, "number": 15, "boolean": 15, "date": 15} {
		if shown[typ] < least {
			t.Errorf("only %d cells of type %s were shown", shown[typ], typ)
		}
	}
	if refused < 100 || unordered > pairs/20 || bytesOfText > pairs/1000 {
		t.Errorf("%d paths were refused, %d results have no order, %d were bytes of a string", refused, unordered,
			bytesOfText)
	}
}

// compareTable compares the columns and the cells. It returns false if upstream shows a byte of a string and Plinth an
// empty cell: the only intended difference.
func compareTable(t *testing.T, i int, column apiextensionsv1.CustomResourceColumnDefinition, raw []byte,
	r *engine.Resource, table *metav1.Table) bool {
	t.Helper()
	headers := make([]engine.Column, len(table.ColumnDefinitions))
	for i, c := range table.ColumnDefinitions {
		headers[i] = engine.Column{Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description,
			Priority: c.Priority}
	}
	if !reflect.DeepEqual(r.Columns, headers) {
		t.Errorf("%d: %s: columns\nhave %v\nwant %v", i, column.JSONPath, r.Columns, headers)
		return true
	}
	parsed, err := object.ParseJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	cells := r.Cells(parsed.Value)
	for i, cell := range cells {
		if age, ok := cell.(engine.Age); ok {
			cells[i] = age.Text(time.Now())
		}
	}
	// Upstream finds the bytes of a string where a path selects all children; here a string has no children.
	if n := len(cells); n > 1 && cells[1] == nil && isByte(table.Rows[0].Cells[1]) &&
		strings.Contains(column.JSONPath, "*") {
		return false
	}
	if !reflect.DeepEqual(cells, table.Rows[0].Cells) {
		t.Errorf("%d: %s as %s of %s:\nhave %#v\nwant %#v", i, column.JSONPath, column.Type, raw, cells, table.Rows[0].Cells)
	}
	return true
}

func isByte(cell any) bool {
	text, ok := cell.(string)
	var b uint8
	_, err := fmt.Sscan(text, &b)
	return ok && err == nil
}

// SPEC: LIST-7, EXT-1
func TestSelectableFields(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(3, 4))}
	kind := schema.GroupVersionKind{Group: "columns.example.com", Version: "v1", Kind: "Gadget"}
	found := 0
	for i := range pairs / 10 {
		var fields []apiextensionsv1.SelectableField
		var ours []any
		for _, path := range []string{".b", "." + g.pick("a", "c") + "." + g.name()[:1], ".c", ".a.b.c"} {
			fields = append(fields, apiextensionsv1.SelectableField{JSONPath: path})
			ours = append(ours, map[string]any{"jsonPath": path})
		}
		r := define(t, map[string]any{"selectableFields": ours})
		raw, u := g.object()
		strategy := customresource.NewStrategy(nil, true, kind, nil, nil, &structuralschema.Structural{}, nil, nil, fields)
		_, want, err := strategy.GetAttrs(u)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := object.ParseJSON(raw)
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]string{"metadata.name": "g", "metadata.namespace": "n"}
		for _, pair := range r.Fields(parsed.Value) {
			if have[pair.Name] = pair.Value; pair.Value != "" {
				found++
			}
		}
		if !reflect.DeepEqual(have, map[string]string(want)) {
			t.Errorf("%d: of %s:\nhave %v\nwant %v", i, raw, have, want)
		}
	}
	if found < pairs/10 {
		t.Errorf("only %d fields had values", found)
	}
}

// SPEC: URI-7, VAL-1, EXT-1
func TestScaleErrors(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(5, 6))}
	kind := schema.GroupVersionKind{Group: "columns.example.com", Version: "v1", Kind: "Gadget"}
	selector := ".c.type"
	scale := &apiextensions.CustomResourceSubresourceScale{SpecReplicasPath: ".a.b", StatusReplicasPath: ".b",
		LabelSelectorPath: &selector}
	strategy := customresource.NewStrategy(nil, true, kind, nil, nil, &structuralschema.Structural{}, nil, scale, nil)
	r := define(t, map[string]any{"subresources": map[string]any{"scale": map[string]any{
		"specReplicasPath": scale.SpecReplicasPath, "statusReplicasPath": scale.StatusReplicasPath,
		"labelSelectorPath": selector,
	}}})
	refused := 0
	for i := range pairs / 10 {
		raw, u := g.object()
		if g.IntN(2) == 0 { // a path that fits nearly everywhere
			fits := map[string]any{"a": map[string]any{"b": g.IntN(9)}, "b": g.IntN(9), "c": map[string]any{"type": "a=b"}}
			fits[g.pick("a", "b", "c")] = []any{nil, -1, 1 << 40, map[string]any{"b": -1}, map[string]any{"type": 1},
				"x"}[g.IntN(6)]
			for key, value := range fits {
				u.Object[key] = value
			}
			var err error
			if raw, err = u.MarshalJSON(); err != nil || u.UnmarshalJSON(raw) != nil {
				t.Fatal(err)
			}
		}
		parsed, err := object.ParseJSON(raw)
		if err != nil {
			t.Fatal(err)
		}
		have := fmt.Sprint(r.Validate(context.Background(), parsed.Value))
		want := fmt.Sprint(strategy.Validate(context.Background(), u))
		if have != want {
			t.Errorf("%d: of %s:\nhave %s\nwant %s", i, raw, have, want)
		}
		if want != "[]" {
			refused++
		}
	}
	if refused < pairs/50 || refused > pairs/10-10 {
		t.Errorf("%d of %d objects were refused", refused, pairs/10)
	}
}
