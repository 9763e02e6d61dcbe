package builtin

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/engine"
	"plinth/object"
)

// recordedColumns reads testdata/columns-1.37.txt: for each type, a line for each of its columns.
func recordedColumns(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("testdata/columns-1.37.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	key := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			key = strings.Trim(line, "[]")
			all[key] = []string{}
		default:
			all[key] = append(all[key], line)
		}
	}
	return all
}

// SPEC: MED-6
func TestColumnsAreTheReferences(t *testing.T) {
	recorded := recordedColumns(t)
	for _, r := range Resources(Config{}) {
		if !r.Has("list") {
			continue
		}
		key := r.Group + "/" + r.Version + "/" + r.Name
		want, ok := recorded[key]
		if !ok {
			t.Errorf("nothing is recorded of %s", key)
			continue
		}
		if r.Columns == nil {
			if len(want) != 2 || !strings.HasPrefix(want[1], "Created At") {
				t.Errorf("%s has no columns of its own, the reference has %v", key, want)
			}
			continue
		}
		var have []string
		for _, c := range r.Columns {
			sum := sha256.Sum256([]byte(c.Description))
			have = append(have, fmt.Sprintf("%s | %s | %s | %d | %s", c.Name, c.Type, c.Format, c.Priority,
				hex.EncodeToString(sum[:])[:12]))
		}
		if a, b := strings.Join(have, "\n"), strings.Join(want, "\n"); a != b {
			t.Errorf("%s\nhave\n%s\nwant\n%s", key, a, b)
		}
	}
}

// recordedRow is one line of testdata/rows-1.37.jsonl: an object and its row in a Table of kube-apiserver 1.37, as of
// now.
type recordedRow struct {
	Type   string
	Now    time.Time
	Object json.RawMessage
	Cells  []any
}

// SPEC: MED-6
func TestCellsAreTheReferences(t *testing.T) {
	data, err := os.ReadFile("testdata/rows-1.37.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	all := types(t)
	for line := range strings.Lines(string(data)) {
		var row recordedRow
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		obj := parse(t, string(row.Object))
		r := all[strings.TrimPrefix(row.Type, "v1 ")]
		if r == nil {
			t.Fatalf("%s is recorded, and not served", row.Type)
		}
		have, err := json.Marshal(asOf(row.Now, r.Cells(obj)))
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(row.Cells)
		if err != nil {
			t.Fatal(err)
		}
		if string(have) != string(want) {
			t.Errorf("%s %s\nhave %s\nwant %s", row.Type, obj.At("metadata", "name").Str(), have, want)
		}
	}
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

func BenchmarkPodCells(b *testing.B) {
	data, err := os.ReadFile("testdata/rows-1.37.jsonl")
	if err != nil {
		b.Fatal(err)
	}
	var row recordedRow
	line, _, _ := strings.Cut(string(data), "\n")
	if err := json.Unmarshal([]byte(line), &row); err != nil {
		b.Fatal(err)
	}
	pod, cells := parse(b, string(row.Object)), types(b)["pods"].Cells
	b.ReportAllocs()
	for b.Loop() {
		cells(pod)
	}
}

// If several StorageClasses are marked as the default, the newest is the default, and among equally old ones the first
// by name.
//
// SPEC: MED-6
func TestDefaultStorageClass(t *testing.T) {
	const (
		stable = "storageclass.kubernetes.io/is-default-class"
		beta   = "storageclass.beta.kubernetes.io/is-default-class"
		second = "2026-01-02T03:04:05Z"
		first  = "2026-01-02T03:04:04Z"
	)
	class := func(name, created, annotation, value string) object.Value {
		return object.Fields("metadata", object.Fields("name", object.StringOf(name),
			"creationTimestamp", object.StringOf(created),
			"annotations", object.Fields(annotation, object.StringOf(value))))
	}
	old := class("b", first, stable, "true")
	isDefault := types(t)["storage.k8s.io/v1 storageclasses"].IsDefault
	for _, c := range []struct {
		name               string
		candidate, current object.Value
		want               bool
	}{
		{"not marked", class("a", second, "a", "true"), object.Nil, false},
		{"marked as none", class("a", second, stable, "false"), object.Nil, false},
		{"not marked, and newer", class("a", second, "a", "true"), old, false},
		{"the only one", old, object.Nil, true},
		{"the only one, of no age", class("a", "", stable, "true"), object.Nil, true},
		{"by its older name", class("a", first, beta, "true"), object.Nil, true},
		{"by its older name, as none", class("a", first, beta, "false"), object.Nil, false},
		{"newer", class("c", second, stable, "true"), old, true},
		{"older", class("a", first, stable, "true"), class("b", second, stable, "true"), false},
		{"as old, before it", class("a", first, stable, "true"), old, true},
		{"as old, behind it", class("c", first, stable, "true"), old, false},
		{"itself", old, old, false},
	} {
		if isDefault(c.candidate, c.current) != c.want {
			t.Errorf("%s: %v, want %v", c.name, !c.want, c.want)
		}
	}
}

// FlowSchemas are shown in the order in which requests are matched with them.
//
// SPEC: MED-6
func TestOrderOfFlowSchemas(t *testing.T) {
	schema := func(name string, precedence int64) object.Value {
		return object.Fields("metadata", object.Fields("name", object.StringOf(name)),
			"spec", object.Fields("matchingPrecedence", object.IntOf(precedence)))
	}
	order := []object.Value{schema("c", 9), schema("b", 10), schema("d", 10), schema("a", 11)}
	compare := types(t)["flowcontrol.apiserver.k8s.io/v1 flowschemas"].RowOrder
	for i, a := range order {
		for j, b := range order {
			if have, want := compare(a, b), cmp.Compare(i, j); have != want {
				t.Errorf("%s against %s: %d, want %d", show(a), show(b), have, want)
			}
		}
	}
}

// The columns of a Scale are those of upstream's printer.
//
// SPEC: MED-6
func TestColumnsOfScales(t *testing.T) {
	meta := metav1.ObjectMeta{}.SwaggerDoc()
	want := []engine.Column{
		{Name: "Name", Type: "string", Description: meta["name"]},
		{Name: "Desired", Type: "integer", Description: autoscalingv1.ScaleSpec{}.SwaggerDoc()["replicas"]},
		{Name: "Available", Type: "integer", Description: autoscalingv1.ScaleStatus{}.SwaggerDoc()["replicas"]},
		{Name: "Age", Type: "string", Description: meta["creationTimestamp"]},
	}
	scale := types(t)["apps/v1 deployments"].Subresource("scale")
	if !slices.Equal(scale.Columns, want) {
		t.Errorf("have %v\nwant %v", scale.Columns, want)
	}
}
