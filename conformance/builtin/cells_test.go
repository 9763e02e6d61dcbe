package builtin

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"

	"plinth/internal/engine"
)

// noPrinter lists the kinds that the reference prints with the common columns.
var noPrinter = map[string]bool{"LimitRange": true, "ClusterRole": true, "Role": true, "CSIStorageCapacity": true}

// SPEC: MED-6
func TestCells(t *testing.T) {
	generator := printers.NewTableGenerator().With(printersinternal.AddHandlers)
	each(t, func(t *testing.T, k kindUnderTest) {
		if noPrinter[k.gvk.Kind] {
			if k.resource.Columns != nil {
				t.Error("has columns, the reference has none")
			}
			return
		}
		for round := range *objects {
			p, ok := k.make(t, k.mutator(round).variant(k.vector))
			if !ok {
				continue
			}
			if p.theirs, p.ours, ok = stored(t, k.gvk, p.theirs); !ok {
				continue
			}
			var want, got string
			for range 3 { // an age may change between the two
				table := generate(generator, p.theirs)
				if table == nil {
					break
				}
				want = text(t, table.Rows[0].Cells[:len(k.resource.Columns)]) // an IPAddress has one more
				if got = text(t, asOf(time.Now(), k.resource.Cells(p.ours))); got == want {
					break
				}
			}
			if got != want {
				t.Fatalf("round %d:\nhave %s\nwant %s", round, got, want)
			}
		}
	})
}

// generate makes a Table; nil where upstream panics, which it does on some objects that validation would not let in.
func generate(generator *printers.HumanReadableGenerator, obj runtime.Object) (table *metav1.Table) {
	defer func() {
		if recover() != nil {
			table = nil
		}
	}()
	table, err := generator.GenerateTable(obj, printers.GenerateOptions{Wide: true})
	if err != nil {
		return nil
	}
	return table
}

// asOf is a row with the ages of now.
func asOf(now time.Time, cells []any) []any {
	for i, cell := range cells {
		if age, is := cell.(engine.Age); is {
			cells[i] = age.Text(now)
		}
	}
	return cells
}

func text(t *testing.T, cells any) string {
	t.Helper()
	out, err := json.Marshal(cells)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
