package objectmeta

import (
	"testing"

	"plinth/object"
)

// A user who does not hold the rules of a role may change only the fields of it that the garbage collector changes.
//
// SPEC: AUTH-2
func TestOnlyCollectorFields(t *testing.T) {
	read := func(text string) object.Value {
		p, err := object.ParseJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return p.Value
	}
	const old = `{"metadata":{"name":"r","labels":{"a":"b"},"finalizers":["example.com/f"],"ownerReferences":[{"uid":"1"}]},"rules":[]}`
	for obj, want := range map[string]bool{
		old: true,
		`{"metadata":{"name":"r","labels":{"a":"b"},"finalizers":["example.com/f"]},"rules":[]}`:                true,
		`{"metadata":{"name":"r","labels":{"a":"b"},"ownerReferences":[{"uid":"1"}]},"rules":[]}`:               true,
		`{"metadata":{"name":"r","labels":{"a":"b"},"managedFields":[{"manager":"m"}]},"rules":[]}`:             true,
		`{"metadata":{"name":"r","finalizers":["example.com/f"]},"rules":[]}`:                                   false,
		`{"metadata":{"name":"r","labels":{"a":"b"},"annotations":{"a":"b"}},"rules":[]}`:                       false,
		`{"metadata":{"name":"r","labels":{"a":"b"}},"rules":[{"verbs":["get"],"apiGroups":["*"]}]}`:            false,
		`{"metadata":{"name":"r","labels":{"a":"b"}},"rules":[],"aggregationRule":{"clusterRoleSelectors":[]}}`: false,
	} {
		if got := OnlyCollectorFields(read(obj), read(old)); got != want {
			t.Errorf("%s: only what the collector changes: %v, want %v", obj, got, want)
		}
	}
	if OnlyCollectorFields(read(old), object.Nil) {
		t.Error("a create counts as a change of the collector")
	}
}
