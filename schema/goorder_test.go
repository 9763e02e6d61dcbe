package schema_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"plinth/schema"
)

type orderInner struct {
	Second string `json:"b"`
	Hidden string `json:"a"`
	unused string
}

type orderOuter struct {
	First      string `json:"z"`
	orderInner `json:",inline"`
	Left       string `json:"-"`
	Unnamed    string
	Third      string `json:"a"`
}

// The order of the fields of a Go type is that in which Go's encoding prints them. SPEC: STORE-3
func TestGoOrder(t *testing.T) {
	typ := schema.FromGo(reflect.TypeFor[orderOuter](), nil)
	var names []string
	for _, at := range typ.GoOrder() {
		names = append(names, `"`+typ.Fields[at].Name+`":""`)
	}
	want, err := json.Marshal(orderOuter{orderInner: orderInner{unused: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if have := "{" + strings.Join(names, ",") + "}"; have != string(want) {
		t.Errorf("%s, want %s", have, want)
	}
}
