package etcdform

import (
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	v1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
)

// The types of definitions in v1beta1 have the fields of upstream's, in their order. SPEC: STORE-3
func TestDefinitionTypes(t *testing.T) {
	compared := map[reflect.Type]bool{}
	compareFields(t, "", reflect.TypeFor[definitionV1beta1](), reflect.TypeFor[v1beta1.CustomResourceDefinition](),
		compared)
	if len(compared) < 15 || !compared[reflect.TypeFor[v1.JSONSchemaProps]()] {
		t.Errorf("only %d types were compared", len(compared))
	}
}

func compareFields(t *testing.T, at string, have, want reflect.Type, compared map[reflect.Type]bool) {
	t.Helper()
	if have.Kind() != want.Kind() {
		t.Errorf("%s is a %v, not a %v", at, have, want)
		return
	}
	switch have.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		compareFields(t, at, have.Elem(), want.Elem(), compared)
		return
	case reflect.Struct:
	default:
		return
	}
	if compared[have] || have == want {
		return
	}
	compared[have] = true
	if have.NumField() != want.NumField() {
		t.Errorf("%s has %d fields, not %d", at, have.NumField(), want.NumField())
		return
	}
	for i := range have.NumField() {
		f, g := have.Field(i), want.Field(i)
		where := at + "." + f.Name
		if f.Name != g.Name || numberOf(f) != numberOf(g) || f.Tag.Get("json") != g.Tag.Get("json") && !f.Anonymous {
			t.Errorf("%s `%s` is not %s `%s`", where, f.Tag, g.Name, g.Tag)
		}
		compareFields(t, where, f.Type, g.Type, compared)
	}
}

// numberOf is the protobuf number of a field; "" if it has none.
func numberOf(f reflect.StructField) string {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}
