package schema

import "testing"

// SPEC: EXT-1
func TestPairs(t *testing.T) {
	typ, err := Structural(parse(t, `{"type":"object","properties":{
		"a":{"type":"object","properties":{"n":{"type":"integer"},"deep":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},
		"m":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
			"items":{"type":"object","properties":{"k":{"type":"string"},"v":{"type":"integer"}}}},
		"mm":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k","v"],
			"items":{"type":"object","properties":{"k":{"type":"string"},"v":{"type":"integer"}}}},
		"l":{"type":"array","items":{"type":"integer"}},
		"s":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"integer"}},
		"t":{"type":"object","additionalProperties":{"type":"integer"}}}}`), StructuralOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		field, now, old string
		unchanged       bool
	}{
		{"a", `{"n":1}`, `{"n":1}`, true},
		{"a", `{"n":1}`, `{"n":2}`, false},
		{"a", `{"n":null}`, `{"n":null}`, true},
		{"a", `{"n":1}`, `{}`, false},
		{"a", `{"deep":{"x":1}}`, `{"deep":{"x":1}}`, false}, // x has no schema
		{"a", `{"deep":{}}`, `{"deep":{}}`, true},
		{"m", `[{"k":"a","v":1},{"k":"b"}]`, `[{"k":"b"},{"k":"a","v":1}]`, true},
		{"m", `[{"k":"a","v":1}]`, `[{"k":"a","v":2}]`, false},
		{"m", `[{"k":"a"}]`, `[{"k":"b"}]`, false},
		{"m", `[{"v":1}]`, `[{"v":1}]`, false}, // an item without its key has no old value
		{"mm", `[{"k":"a","v":1},{"k":"a","v":2}]`, `[{"k":"a","v":2},{"k":"a","v":1}]`, true},
		{"mm", `[{"k":"a","v":1}]`, `[{"k":"a1","v":1}]`, false},
		{"m", `[]`, `[]`, true},
		{"l", `[1,2]`, `[1,2]`, true},
		{"l", `[1,2]`, `[2,1]`, false},
		{"s", `[1,2]`, `[2,1]`, false},
		{"t", `{"x":1}`, `{"x":1}`, true},
		{"t", `{"x":1}`, `{"y":1}`, false},
	} {
		now, old := parse(t, `{"`+c.field+`":`+c.now+`}`), parse(t, `{"`+c.field+`":`+c.old+`}`)
		if got := Correlate(typ, now, old).Key(c.field).Unchanged(); got != c.unchanged {
			t.Errorf("%s: %s from %s: unchanged %v", c.field, c.now, c.old, got)
		}
	}
	if Correlate(typ, parse(t, `{"l":[1]}`), parse(t, `{"l":[1]}`)).Key("l").Item(0) != nil {
		t.Error("items of a list that is not of type map have a pair")
	}
	item := Correlate(typ, parse(t, `{"m":[{"k":"a","v":1}]}`),
		parse(t, `{"m":[{"k":"b"},{"k":"a","v":2},{"k":"a","v":3}]}`)).Key("m").Item(0)
	if item == nil || item.Old.At("v").Int() != 2 {
		t.Errorf("of several old items with equal keys the pair is not the first one: %+v", item)
	}
}
