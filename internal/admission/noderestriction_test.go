package admission

import (
	"strings"
	"testing"

	"plinth/internal/engine"
)

// What a kubelet may not change of a claim is named. The reference prints its Go structs there.
//
// SPEC: AUTH-3
func TestClaimsOfKubelets(t *testing.T) {
	s := newStage(t, "NodeRestriction")
	r := s.registry.Now().Find("", "v1", "persistentvolumeclaims")
	const old = `{"metadata":{"name":"c","labels":{"a":"b"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}`
	for now, want := range map[string]string{
		`{"metadata":{"name":"c"},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}`:                                  ": metadata",
		`{"metadata":{"name":"c","labels":{"a":"b"}},"spec":{},"status":{"phase":"Bound"}}`:                               ": spec",
		`{"metadata":{"name":"c","labels":{"a":"b"}},"spec":{"volumeName":"v"},"status":{"phase":"Lost"}}`:                ": status",
		`{"metadata":{"name":"c"},"spec":{},"status":{"capacity":{"storage":"1Gi"}}}`:                                     ": metadata, spec, status",
		`{"metadata":{"name":"c","labels":{"a":"b"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound","capacity":{}}}`: "",
	} {
		a := s.engine.Attributes(&engine.Request{Resource: r, Subresource: r.Subresource("status"), Namespace: "ns",
			Name: "c"}, engine.OperationUpdate, parsed(t, now), parsed(t, old))
		err := claimStatus(a, "n1")
		if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), "status.conditions"+want) {
			t.Errorf("%s: %v, want the end %q", now, err, want)
		}
	}
	// A status with nothing but what a kubelet says is as good as none.
	a := s.engine.Attributes(&engine.Request{Resource: r, Subresource: r.Subresource("status"), Namespace: "ns",
		Name: "c"}, engine.OperationUpdate, parsed(t, `{"metadata":{"name":"c"},"status":{"capacity":{"storage":"1Gi"}}}`),
		parsed(t, `{"metadata":{"name":"c"}}`))
	if err := claimStatus(a, "n1"); err != nil {
		t.Error(err)
	}
}

// What cannot be read is not said to be absent.
//
// SPEC: AUTH-3
func TestUnreadableObjectsOfNodes(t *testing.T) {
	s := newStage(t, "NodeRestriction")
	s.write(t, "v1", "pods", "ns", "bad", []byte("{"))
	n := &nodeRestriction{objects: newObjects(s.store, s.registry)}
	for name, want := range map[string]string{"bad": "unable to read the stored object /pods/ns/bad",
		"none": `pod "none" not found`} {
		if _, err := n.storedPod(t.Context(), "ns", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
