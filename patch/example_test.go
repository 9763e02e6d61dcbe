package patch_test

import (
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"

	"plinth/object"
	"plinth/patch"
	"plinth/schema"
)

func parse(text string) object.Value {
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil {
		panic(err)
	}
	return parsed.Value
}

func ExampleJSON() {
	live := parse(`{"kind":"ConfigMap","data":{"color":"red"}}`)
	patched, err := patch.JSON(live, []byte(`[
		{"op": "test", "path": "/data/color", "value": "red"},
		{"op": "replace", "path": "/data/color", "value": "blue"}
	]`), nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(object.AppendObject(nil, patched)))
	// Output: {"kind":"ConfigMap","data":{"color":"blue"}}
}

func ExampleMerge() {
	live := parse(`{"kind":"ConfigMap","data":{"color":"red","size":"L"}}`)
	patched := patch.Merge(live, parse(`{"data":{"color":null,"shape":"round"}}`))
	fmt.Println(string(object.AppendObject(nil, patched)))
	// Output: {"kind":"ConfigMap","data":{"shape":"round","size":"L"}}
}

// Containers are identified by their names, as the tags of the Go type require.
func ExampleStrategic() {
	deployment := schema.FromGo(reflect.TypeFor[appsv1.Deployment](), nil)
	live := parse(`{"kind":"Deployment","spec":{"template":{"spec":{"containers":[
		{"name":"web","image":"web:1"},
		{"name":"log","image":"log:1"}
	]}}}}`)
	patched, err := patch.Strategic(live, parse(`{"spec":{"template":{"spec":{"containers":[
		{"name":"web","image":"web:2"},
		{"name":"log","$patch":"delete"}
	]}}}}`), deployment)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(object.AppendObject(nil, patched)))
	// Output: {"kind":"Deployment","spec":{"template":{"spec":{"containers":[{"image":"web:2","name":"web"}]}}}}
}
