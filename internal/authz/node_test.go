package authz

import (
	"fmt"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/store"
	"plinth/object"
)

// A kubelet may read what the Pods of its node need, from the moment they are bound to the node until they are deleted.
//
// SPEC: AUTH-2
func TestNode(t *testing.T) {
	s := newStore(t)
	y := s.authority(Node)
	check := func(request string, want bool) {
		t.Helper()
		decision, reason, err := y.Authorize(t.Context(), asked(request))
		if (decision == access.Allow) != want || err != nil {
			t.Errorf("%s: have %v %q, %v, want Allow: %v", request, decision, reason, err, want)
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

// What a Pod with many claims needs is found in time that is linear in the Pod.
//
// SPEC: AUTH-2
func TestPodOfManyClaims(t *testing.T) {
	const n = 60_000
	claims, statuses := make([]object.Value, n), make([]object.Value, n)
	text := object.StringOf
	for i := range n {
		name := fmt.Sprint("claim", i)
		claims[i] = object.Fields("name", text(name), "resourceClaimTemplateName", text("t"))
		statuses[n-1-i] = object.Fields("name", text(name), "resourceClaimName", text(name+"-x"))
	}
	pod := object.Fields("spec", object.Fields("resourceClaims", object.ListOf(claims...)),
		"status", object.Fields("resourceClaimStatuses", object.ListOf(statuses...)))
	began, found := time.Now(), 0
	VisitNames(pod, func(resource, name string) {
		if resource == "resourceclaims" && name == fmt.Sprint("claim", found, "-x") {
			found++
		}
	})
	if took := time.Since(began); found != n || took > 5*time.Second {
		t.Errorf("a Pod of %d claims: %d are found, in %v, want all in less than 5 s", n, found, took)
	}
}
