package builtin

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"

	"plinth/conformance/internal/linediff"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/wire"
	"plinth/object"
)

// noPrinter lists the kinds that the reference prints with the common columns.
var noPrinter = map[string]bool{"LimitRange": true, "ClusterRole": true, "Role": true, "CSIStorageCapacity": true}

var generated = printerstorage.TableConvertor{TableGenerator: printers.NewTableGenerator().With(
	printersinternal.AddHandlers)}

// tables returns upstream's printer of a kind.
func tables(gvk schema.GroupVersionKind) rest.TableConvertor {
	if noPrinter[gvk.Kind] {
		return rest.NewDefaultTableConvertor(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind})
	}
	return generated
}

// Whole Tables are compared, columns and rows, of one object and of lists of several, for every kind.
//
// SPEC: MED-6
func TestTables(t *testing.T) {
	each(t, func(t *testing.T, k kindUnderTest) {
		if noPrinter[k.gvk.Kind] {
			internal := schema.GroupVersionKind{Group: k.gvk.Group, Version: runtime.APIVersionInternal, Kind: k.gvk.Kind}
			obj, err := legacyscheme.Scheme.New(internal)
			if err != nil {
				t.Fatal(err)
			}
			// CSIStorageCapacity has a printer that its storage does not use.
			if _, err := generated.ConvertToTable(nil, obj, nil); err == nil && k.gvk.Kind != "CSIStorageCapacity" {
				t.Error("upstream has a printer, and is said to have none")
			}
		}
		compared := 0
		for round := range 1 + *objects/4 {
			variant := func(m *mutator) document { return m.variant(k.vector) }
			if compareTables(t, k.gvk, k.resource, round, k.mutator(round).rng, variant) {
				compared++
			}
		}
		if compared < *objects/8 {
			t.Errorf("only %d Tables were compared", compared)
		}
	})
}

// ComponentStatuses can be read only, and so have no strategies.
//
// SPEC: MED-6
func TestTablesOfComponentStatuses(t *testing.T) {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ComponentStatus"}
	vector := vectorsByKind(t)[gvk]
	compared := 0
	for _, r := range builtin.Resources(builtin.Config{}) {
		if r.Kind != gvk.Kind {
			continue
		}
		k := kindUnderTest{gvk: gvk, vector: vector, resource: r}
		for round := range 1 + *objects/4 {
			if compareTables(t, gvk, r, round, k.mutator(round).rng, func(m *mutator) document {
				doc := m.variant(vector)
				if conditions, is := doc["conditions"].([]any); is && m.rng.IntN(2) == 0 {
					for _, c := range conditions {
						c.(document)["type"] = "Healthy"
					}
				}
				return doc
			}) {
				compared++
			}
		}
	}
	if compared < *objects/8 {
		t.Errorf("only %d Tables were compared", compared)
	}
}

// compareTables makes variants of a kind, as they would be stored, and has both sides print them: the first one alone,
// and all together.
//
// It says whether there was a Table to compare: upstream panics on some objects.
func compareTables(
	t *testing.T, gvk schema.GroupVersionKind, r *engine.Resource, round int, rng *rand.Rand,
	variant func(*mutator) document,
) bool {
	t.Helper()
	k := kindUnderTest{gvk: gvk, resource: r}
	var theirs []runtime.Object
	var ours []*engine.Object
	for i := range 1 + rng.IntN(4) {
		doc := variant(&mutator{rng, []float64{0.005, 0.02, 0.05, 0.1, 0.2}[rng.IntN(5)]})
		doc["metadata"].(document)["name"] = fmt.Sprint("n", 9-i)
		p, ok := k.make(t, doc)
		if !ok {
			continue
		}
		internal, value, ok := stored(t, gvk, p.theirs)
		if !ok || internal == nil {
			continue
		}
		theirs, ours = append(theirs, internal), append(ours, asStored(t, r, value))
	}
	if len(theirs) == 0 {
		return false
	}
	list, err := legacyscheme.Scheme.New(schema.GroupVersionKind{Group: gvk.Group, Version: runtime.APIVersionInternal,
		Kind: gvk.Kind + "List"})
	if err != nil {
		t.Fatal(err)
	}
	if err := meta.SetList(list, theirs); err != nil {
		t.Fatal(err)
	}
	request := &engine.Request{Resource: r}
	compared := sameTable(t, round, gvk, theirs[0], func() ([]byte, error) {
		return wire.AppendTable(nil, ours[0], wire.NewTable(request, "v1", wire.IncludeNone))
	})
	for range 2 { // the second time from the cache
		again := sameTable(t, round, gvk, list, func() ([]byte, error) { return ourList(request, ours) })
		compared = compared && again
	}
	return compared
}

// asStored returns an object as the store holds it.
func asStored(t *testing.T, r *engine.Resource, value object.Value) *engine.Object {
	t.Helper()
	data := object.AppendObject(nil, value)
	at, ok := object.Locate(data)
	if !ok {
		t.Fatalf("%s is no stored object", data)
	}
	return store.NewVersion(store.Key{Resource: r.Stored.Path, Name: value.At("metadata", "name").Str()}, 1, data,
		engine.NewSidecar(at))
}

var encoded = wire.NewEncodedCache(1 << 20)

func ourList(request *engine.Request, objects []*engine.Object) ([]byte, error) {
	table := wire.NewTable(request, "v1", wire.IncludeNone)
	items := func(yield func(*engine.Object) bool) {
		for _, o := range objects {
			if !yield(o) {
				return
			}
		}
	}
	arranged, err := table.Arrange(items)
	if err != nil {
		return nil, err
	}
	l := wire.NewList(request.Resource, wire.Media{Form: wire.AsTable, Version: "v1"}, table)
	l.Cache = encoded
	text := l.Head(nil, wire.ListMeta{Revision: 1})
	for o := range arranged {
		if text, err = l.Item(text, o); err != nil {
			return nil, err
		}
	}
	return l.Tail(text), nil
}

// sameTable compares upstream's Table of an object or a list with ours. Both print ages at slightly different times, so
// that a difference has to occur several times.
//
// It says whether upstream made one.
func sameTable(t *testing.T, round int, gvk schema.GroupVersionKind, obj runtime.Object,
	ours func() ([]byte, error)) bool {
	t.Helper()
	var got, want string
	for range 3 {
		table := convert(tables(gvk), obj)
		if table == nil {
			return false
		}
		printed, err := ours()
		if err != nil {
			t.Fatal(err)
		}
		var read metav1.Table
		if err := json.Unmarshal(printed, &read); err != nil {
			t.Fatalf("%v: %s", err, printed)
		}
		if !slices.Equal(read.ColumnDefinitions, table.ColumnDefinitions) {
			t.Fatalf("columns:\nhave %+v\nwant %+v", read.ColumnDefinitions, table.ColumnDefinitions)
		}
		if got, want = cells(t, read.Rows), cells(t, table.Rows); got == want {
			return true
		}
	}
	t.Fatalf("round %d:\n--- reference\n+++ here\n%s", round, linediff.Diff(want, got))
	return false
}

// convert makes a Table; nil where upstream panics, which it does on some objects that validation would not let in.
func convert(convertor rest.TableConvertor, obj runtime.Object) (table *metav1.Table) {
	defer func() {
		if recover() != nil {
			table = nil
		}
	}()
	table, err := convertor.ConvertToTable(nil, obj, nil)
	if err != nil {
		return nil
	}
	return table
}

// cells formats the cells of all rows, one row on each line.
func cells(t *testing.T, rows []metav1.TableRow) string {
	t.Helper()
	var out strings.Builder
	for i := range rows {
		row, err := json.Marshal(rows[i].Cells)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(row, '\n'))
	}
	return out.String()
}
