package object

import "testing"

func TestLocateSplices(t *testing.T) {
	p, err := ParseJSON([]byte(`{"spec":{"a":[1,"x\"}",{}]},"metadata":{"uid":"u","name":"n","labels":{"z":"}"}},"kind":"Pod","apiVersion":"v1"}`))
	if err != nil {
		t.Fatal(err)
	}
	data := AppendObject(nil, p.Value)
	item, splice, ok := Locate(data)
	if !ok {
		t.Fatalf("not located in %s", data)
	}
	got := string(AppendVersioned(nil, data, splice, 42))
	want := `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"z":"}"},"name":"n","resourceVersion":"42","uid":"u"},"spec":{"a":[1,"x\"}",{}]}}`
	if got != want {
		t.Errorf("got %s", got)
	}
	if s := string(data[item:]); s[:10] != `"metadata"` {
		t.Errorf("item starts at %s", s)
	}
}
