package object_test

import (
	"reflect"
	"testing"

	"plinth/object"
)

func TestNative(t *testing.T) {
	parsed, err := object.ParseJSON([]byte(`{"b":true,"i":7,"f":1.5,"s":"x","n":null,"l":[1,"two",[]],"m":{"k":{}}}`))
	if err != nil {
		t.Fatal(err)
	}
	v, err := parsed.Value.Untyped()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"b": true, "i": int64(7), "f": 1.5, "s": "x", "n": nil,
		"l": []any{int64(1), "two", []any{}}, "m": map[string]any{"k": map[string]any{}},
	}
	if got := v.Native(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
}
