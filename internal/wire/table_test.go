package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
)

var born = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// agedType is a type with ages in its rows, and one that counts how often a row is made.
func agedType(made *int) *engine.Resource {
	return &engine.Resource{
		Reading: engine.Reading{
			Columns: []engine.Column{{Name: "Name"}, {Name: "Restarts"}, {Name: "Age"}},
			Cells: func(obj object.Value) []any {
				*made++
				return []any{obj.At("metadata", "name").Str(), engine.Age{Before: `"3" (`, Since: born, After: ` "ago")`},
					engine.Age{Since: born.Add(-time.Hour)}}
			},
		},
	}
}

var keeping = NewEncodedCache(1 << 20)

func rowAsOf(t *testing.T, table *Table, o *engine.Object, now time.Time) string {
	t.Helper()
	table.now = now
	got, err := table.row(nil, o, keeping)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// A row is made once and kept with the stored version; only its ages are computed for each request.
//
// SPEC: MED-6
func TestRowsAreKept(t *testing.T) {
	made := 0
	r := agedType(&made)
	o := stored(t, thing, 7)
	for hours, want := range []string{
		`["x","\"3\" (0s \"ago\")","60m"]`, `["x","\"3\" (60m \"ago\")","120m"]`, `["x","\"3\" (120m \"ago\")","3h"]`,
	} {
		now := born.Add(time.Duration(hours) * time.Hour)
		for include, object := range map[Include]string{
			IncludeNone: "null", IncludeObject: string(AppendObject(nil, o, false)),
			IncludeMetadata: string(AppendPartial(nil, o, "v1", false)),
		} {
			table := NewTable(&engine.Request{Resource: r}, "v1", include)
			check(t, fmt.Sprint(hours, " hours, ", include), []byte(rowAsOf(t, table, o, now)),
				`{"cells":`+want+`,"object":`+object+`}`)
		}
	}
	if made != 1 {
		t.Errorf("the row was made %d times", made)
	}
	other := 0
	changed := agedType(&other)
	for range 2 {
		rowAsOf(t, NewTable(&engine.Request{Resource: changed}, "v1", IncludeNone), o, born)
	}
	if other != 1 {
		t.Errorf("a type with other columns made the row %d times", other)
	}
}

// SPEC: MED-6
func TestListsAreArranged(t *testing.T) {
	r := &engine.Resource{
		Reading: engine.Reading{
			Columns:   []engine.Column{{Name: "Name"}},
			Cells:     func(obj object.Value) []any { return []any{obj.At("metadata", "name").Str()} },
			IsDefault: func(candidate, current object.Value) bool { return candidate.At("n").Int() > current.At("n").Int() },
			RowOrder: func(a, b object.Value) int {
				return -strings.Compare(a.At("metadata", "name").Str(), b.At("metadata", "name").Str())
			},
		},
	}
	var all []*engine.Object
	for i, n := range []int{0, 2, 1, 2} {
		o := stored(t, fmt.Sprintf(`{"kind":"T","metadata":{"name":"o%d","uid":"u"},"n":%d}`, i, n), 1)
		o.Key = store.Key{Resource: "things", Name: fmt.Sprint("o", i)}
		all = append(all, o)
	}
	for range 2 { // whether or not a row is kept
		table := NewTable(&engine.Request{Resource: r}, "v1", IncludeNone)
		for i, o := range all {
			check(t, "alone", []byte(rowAsOf(t, table, o, born)), fmt.Sprintf(`{"cells":["o%d"],"object":null}`, i))
		}
		arranged, err := table.Arrange(slices.Values(all))
		if err != nil {
			t.Fatal(err)
		}
		var rows string
		for o := range arranged {
			rows += rowAsOf(t, table, o, born)
		}
		if got := strings.ReplaceAll(strings.ReplaceAll(rows, `{"cells":[`, ""), `],"object":null}`,
			" "); got != `"o3" "o2" "o1 (default)" "o0" ` {
			t.Errorf("marked: %s", got)
		}
	}
}

// A row that has been made once costs no allocation.
//
// SPEC: LIST-8
func TestRowsAllocateNothing(t *testing.T) {
	made := 0
	o := stored(t, pod, 7)
	table := NewTable(&engine.Request{Resource: agedType(&made)}, "v1", IncludeMetadata)
	buf := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { _, _ = table.row(buf, o, keeping) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// pod is about as large as a typical new Pod.
var pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"web","pod-template-hash":"5d59d67564"},"managedFields":[{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}}},"f:spec":{"f:containers":{` +
	strings.Repeat(
		`"k:{\"name\":\"web\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"LOG_LEVEL\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}},`, 2) +
	`"x":{}},"f:dnsPolicy":{},"f:restartPolicy":{}}},"manager":"bench","operation":"Update","time":"2026-01-02T03:04:05Z"}],"name":"web-5d59d67564-00001","namespace":"bench","uid":"13662f8e-e4f9-439e-ac89-0e4bccf4a4f4"},"spec":{"containers":[` +
	strings.Repeat(
		`{"env":[{"name":"LOG_LEVEL","value":"info"}],"image":"registry.example.com/team/web:v1.25.3","imagePullPolicy":"IfNotPresent","name":"web","ports":[{"containerPort":8080,"name":"http","protocol":"TCP"}],"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"},`, 2) +
	`{"name":"x"}],"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30},"status":{"phase":"Pending","qosClass":"Burstable"}}`

func BenchmarkRow(b *testing.B) {
	made := 0
	o := stored(b, pod, 7)
	table := NewTable(&engine.Request{Resource: agedType(&made)}, "v1", IncludeMetadata)
	buf := make([]byte, 0, 4096)
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			engine.LayoutOf(o).Encoded[slotRow].Store(nil)
			_, _ = table.row(buf, o, keeping)
		}
	})
	b.Run("again", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = table.row(buf, o, keeping)
		}
	})
}
