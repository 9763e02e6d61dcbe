package authz

import (
	"testing"

	"plinth/internal/access"
	"plinth/internal/store"
)

// A kubelet reads what the Pods of its node need as soon as they have that node, and no longer than they are there.
//
// SPEC: AUTH-2
func TestNode(t *testing.T) {
	s := newStore(t)
	y := s.authority(Node)
	check := func(request string, want bool) {
		t.Helper()
		decision, reason, err := y.Authorize(t.Context(), asked(request))
		if (decision == access.Allow) != want || err != nil {
			t.Errorf("%s: %v %q, %v", request, decision, reason, err)
		}
	}
	put := func(resource, name, node, text string) {
		t.Helper()
		change := store.Change{Key: store.Key{Resource: resource, Name: name}}
		if text != "" {
			change.Data = []byte(text)
			change.Sidecar = &store.Sidecar{Fields: []store.Pair{{Name: "spec.nodeName", Value: node}}}
		}
		if _, err := s.Commit(t.Context(), nil, []store.Change{change}); err != nil {
			t.Fatal(err)
		}
	}
	const one, two = "system:node:one,system:nodes ", "system:node:two,system:nodes "
	const pod = `{"metadata":{"name":"p"},"spec":{"volumes":[{"secret":{"secretName":"s"}},{"persistentVolumeClaim":{"claimName":"c"}}]}}`
	check(one+"get -/secrets ns s", false)
	put("/pods", "ns/p", "", pod)
	check(one+"get -/secrets ns s", false)
	put("/pods", "ns/p", "one", pod)
	check(one+"get -/secrets ns s", true)
	check(two+"get -/secrets ns s", false)
	check("system:node:one get -/secrets ns s", false)
	check(one+"delete -/secrets ns s", false)
	check(one+"get -/secrets ns t", false)
	check(one+"get -/persistentvolumes - v", false)
	put("/persistentvolumes", "v", "",
		`{"spec":{"claimRef":{"namespace":"ns","name":"c"},"csi":{"nodeStageSecretRef":{"namespace":"ns","name":"t"}}}}`)
	check(one+"get -/persistentvolumes - v", true)
	check(one+"get -/secrets ns t", true)
	check(two+"get -/secrets ns t", false)
	put("/pods", "ns/p", "", "")
	check(one+"get -/secrets ns t", false)
	check(one+"get -/persistentvolumes - v", false)
	check(one+"get -/nodes - one", true)
	check(one+"get -/nodes - two", false)
	check(one+"list -/services - -", true)
}
