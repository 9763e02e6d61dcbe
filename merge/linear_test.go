//go:build invariants

package merge

// Comparisons are counted where assertions are on, as in make test.

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"plinth/object"
	"plinth/schema"
)

// The work of a write is linear in the size of its input, up to a logarithm, for any input: a request of a few
// megabytes must not occupy the server for minutes.
//
// SPEC: WRITE-6
func TestWorkIsLinear(t *testing.T) {
	w := Writer{Manager: "a", APIVersion: "v1", Now: "2026-01-02T03:04:05Z"}
	containers := func(n int, image string) object.Value {
		items := make([]object.Value, n)
		for i := range items {
			items[i] = object.Fields("name", object.StringOf(fmt.Sprintf("c%06d", i)), "image", object.StringOf(image))
		}
		return yaml(t, head).WithAt(object.ListOf(items...), "spec", "containers")
	}
	finalizers := func(n int, last string) object.Value {
		items := make([]object.Value, n)
		for i := range items {
			items[i] = object.StringOf("same")
		}
		return yaml(t, head).WithAt(object.ListOf(append(items, object.StringOf(last))...), "metadata", "finalizers")
	}
	managers := func(n int, operation string) object.Value {
		items := make([]object.Value, n)
		for i := range items {
			items[i] = yaml(t, fmt.Sprintf("{manager: m%06d, operation: %s, apiVersion: v1, fieldsType: FieldsV1, "+
				"fieldsV1: {'f:spec': {'f:template': {'f:x%06d': {}}}}}", i, operation, i))
		}
		return yaml(t, head).WithAt(object.ListOf(items...), "metadata", "managedFields")
	}
	must := func(v object.Value, err error) object.Value {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	// Each prepares a write of n parts and returns it.
	for what, prepare := range map[string]func(n int) (write func()){
		"items in conflict": func(n int) func() {
			live, intent := must(widgets.Apply(object.Nil, containers(n, "x"), w)), containers(n, "y")
			return func() {
				_, err := widgets.Apply(live, intent, Writer{Manager: "b", APIVersion: "v1"})
				var conflicts *ConflictError
				if !errors.As(err, &conflicts) || len(conflicts.Conflicts) != n {
					t.Fatalf("%.200v", err)
				}
				last := conflicts.Conflicts[n-1]
				if last.Live.Str() != "x" || last.Wanted.Str() != "y" {
					t.Fatalf("the values %s and %s at %s", last.Live.Str(), last.Wanted.Str(), last.Path)
				}
			}
		},
		"items of one identity": func(n int) func() {
			live, next := must(widgets.Update(object.Nil, finalizers(n, "x"), w)), finalizers(n, "y")
			return func() { must(widgets.Update(live, next, w)) }
		},
		"owners of the items of a list without a type": func(n int) func() {
			live := must(widgets.Apply(object.Nil, containers(n, "x"), w))
			return func() {
				o, err := Owners(live, nil)
				if err != nil {
					t.Fatal(err)
				}
				if last := o.Locations[len(o.Locations)-1]; len(last.Owners) != 1 {
					t.Fatalf("%s has no owner", last.Path)
				}
			}
		},
		"managers of updates": func(n int) func() {
			next := managers(n, OperationUpdate)
			return func() {
				v := must(widgets.Update(yaml(t, head), next, w))
				if got := v.At("metadata", "managedFields").Len(); got != maxUpdaters {
					t.Fatalf("%d entries of managedFields", got)
				}
			}
		},
		"managers of applies": func(n int) func() {
			live := must(widgets.Update(yaml(t, head), managers(n, OperationApply), w))
			live = must(widgets.Apply(live, yaml(t, head+"spec: {replicas: 1}"), w))
			return func() { must(widgets.Apply(live, yaml(t, head+"spec: {selector: {a: b}}"), w)) }
		},
		"managers of a scale": func(n int) func() {
			items := make([]object.Value, n)
			for i := range items {
				items[i] = yaml(t, fmt.Sprintf("{manager: m%06d, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, "+
					"fieldsV1: {'f:spec': {'f:replicas': {}}}}", i))
			}
			managed, replicas := object.ListOf(items...), Replicas{"v1": replicasInScale}
			return func() {
				scale := must(replicas.ToScale(managed))
				if back := must(replicas.FromScale(managed, scale, "v1")); scale.Len() != n || back.Len() != n {
					t.Fatalf("%d managers have %d entries in the scale, and %d afterwards", n, scale.Len(), back.Len())
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			work := func(n int) int64 {
				write := prepare(n)
				before := comparisons.Load()
				write()
				return comparisons.Load() - before
			}
			const n, times = 200, 16
			few, many := work(n), work(n*times)
			t.Logf("%d comparisons for %d parts, %d for %d: more than linear", few, n, many, n*times)
			if many > 2*times*few || few == 0 {
				t.Errorf("%d comparisons for %d parts, %d for %d: more than linear", few, n, many, n*times)
			}
		})
	}
}

// countingVersions are two versions of Widgets with the same fields.
type countingVersions struct{ conversions int }

func (c *countingVersions) Type(version string) *schema.Type {
	if strings.HasPrefix(version, "v") {
		return widget
	}
	return nil
}

func (c *countingVersions) Convert(v object.Value, version string) (object.Value, error) {
	c.conversions++
	return v.With("apiVersion", object.StringOf(version)), nil
}

// A conversion may be a call of a webhook: an object is converted to a version once, regardless of the number of
// managers.
//
// SPEC: SSA-11
func TestConversionsOfManyManagers(t *testing.T) {
	v := yaml(t, head)
	var items []object.Value
	for i := range 100 {
		items = append(items, yaml(t, fmt.Sprintf("{manager: m%d, operation: Apply, apiVersion: v2, fieldsType: FieldsV1, "+
			"fieldsV1: {'f:spec': {'f:replicas': {}}}}", i)))
	}
	next := v.WithAt(object.ListOf(items...), "metadata", "managedFields").WithAt(object.IntOf(1), "spec", "replicas")
	versions := new(countingVersions)
	k := &Kind{Type: widget, Versions: versions}
	if _, err := k.Update(v, next, Writer{Manager: "a", APIVersion: "v1", Now: "2026-01-02T03:04:05Z"}); err != nil {
		t.Fatal(err)
	}
	if versions.conversions != 2 { // the object before and after the update
		t.Errorf("%d conversions, should be 2", versions.conversions)
	}
}
