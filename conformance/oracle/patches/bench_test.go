package patches

import (
	"fmt"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"plinth/conformance/internal/native"
	"plinth/object"
	"plinth/patch"
)

// BenchmarkStrategic applies the same patches with both. Upstream modifies the live object, so it gets a copy; the API
// server makes one, too.
func BenchmarkStrategic(b *testing.B) {
	list := func(n int, item func(i int) object.Value) object.Value {
		items := make([]object.Value, n)
		for i := range items {
			items[i] = item(i)
		}
		return object.ListOf(items...)
	}
	named := func(prefix string, i int, rest ...any) object.Value {
		return object.Fields(append(rest, "name", object.StringOf(prefix+fmt.Sprint(i)))...)
	}
	kinds, err := readKinds()
	if err != nil {
		b.Fatal(err)
	}
	env := func(value string) object.Value {
		return list(500, func(i int) object.Value { return named("E", i, "value", object.StringOf(value)) })
	}
	container := func(i int, image string) object.Value { return named("c", i, "image", object.StringOf(image)) }
	pod := func(containers object.Value) object.Value {
		return object.Fields("spec", object.Fields("containers", containers))
	}
	deployment := kinds["apps.v1.Deployment"]
	full := valueOf(deployment.vector)
	for _, c := range []struct {
		name string
		strategic
	}{
		{"Deployment", strategic{deployment, full, object.Fields("spec", object.Fields("replicas", object.IntOf(7)),
			"metadata", object.Fields("labels", object.Fields("a", object.StringOf("b"))))}},
		{"Pod of 20 containers", strategic{kinds["core.v1.Pod"],
			pod(list(20, func(i int) object.Value {
				return container(i, "a:1").With("env", object.ListOf(env("x").Items()[:10]...))
			})),
			pod(list(20, func(i int) object.Value { return container(i, "a:2") }))}},
		{"500 items", strategic{kinds["core.v1.Pod"],
			pod(object.ListOf(container(0, "a:1").With("env", env("x")))),
			pod(object.ListOf(container(0, "a:1").With("env", env("y"))))}},
	} {
		b.Run(c.name+"/plinth", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := patch.Strategic(c.live, c.patch, c.kind.typ); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/upstream", func(b *testing.B) {
			live, written := native.Of(c.live, nil).(map[string]any), native.Of(c.patch, nil).(map[string]any)
			typed := reflect.New(c.kind.golang).Interface()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(live), runtime.DeepCopyJSON(written),
					typed); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
