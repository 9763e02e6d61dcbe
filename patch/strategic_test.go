package patch

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"plinth/object"
	"plinth/schema"
)

var podType = schema.FromGo(reflect.TypeFor[corev1.Pod](), nil)

// SPEC: WRITE-2
func TestStrategic(t *testing.T) {
	got, err := Strategic(parse(t, `{"metadata":{"finalizers":["a","b"]},"spec":{"containers":[{"name":"a","image":"1"},{"name":"b"}]}}`),
		parse(t, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]},"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"a","image":"2"}]}}`), podType)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"finalizers":["b"]},"spec":{"containers":[{"name":"b"},{"image":"2","name":"a"}]}}`
	if text := string(object.AppendJSON(nil, got)); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
}
