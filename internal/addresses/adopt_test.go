package addresses_test

import (
	"testing"

	"plinth/internal/addresses"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
)

// Services that were stored before claims existed get addresses, and no other Service gets theirs; a second run makes
// no change.
func TestAdopt(t *testing.T) {
	allocator := addresses.New(addresses.Config{FirstPort: 30000, LastPort: 30001})
	registry := engine.NewRegistry(builtin.New(builtin.Config{}).For(builtin.Parts{Addresses: allocator}))
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(registry)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := &cluster{TB: t, store: s, types: registry.Builtin(),
		Engine: engine.New(engine.Config{Store: s, Registry: registry})}
	for name, spec := range map[string]string{
		"port":     `{"internalTrafficPolicy":"Cluster","externalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","ports":[{"nodePort":30001,"port":80,"protocol":"TCP","targetPort":80}],"sessionAffinity":"None","type":"NodePort"}`,
		"address":  `{"clusterIP":"10.0.0.9","clusterIPs":["10.0.0.9"],"internalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","ports":[{"port":80,"protocol":"TCP","targetPort":80}],"sessionAffinity":"None","type":"ClusterIP"}`,
		"headless": `{"clusterIP":"None","clusterIPs":["None"],"internalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","selector":{"a":"b"},"sessionAffinity":"None","type":"ClusterIP"}`,
	} {
		data := `{"apiVersion":"v1","kind":"Service","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","name":"` + name +
			`","namespace":"ns","uid":"` + name + `"},"spec":` + spec + `,"status":{"loadBalancer":{}}}`
		key := store.Key{Resource: "/services", Name: "ns/" + name}
		if _, err := s.Commit(t.Context(), nil, []store.Change{{Key: key, Data: []byte(data)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := allocator.Adopt(t.Context(), c.Engine, s); err != nil {
		t.Fatal(err)
	}
	c.consistent()
	if n, m := len(c.all("networking.k8s.io/ipaddresses")), len(c.all("plinth/claims")); n != 2 || m != 1 {
		t.Errorf("%d addresses and %d ports", n, m)
	}
	_, err = c.create("late", spec("NodePort", `,"clusterIP":"10.0.0.9"`))
	wants(t, err, 422, "provided IP is already allocated")
	before := s.Revision()
	if err := allocator.Adopt(t.Context(), c.Engine, s); err != nil || s.Revision() != before {
		t.Errorf("the second time it writes %d changes, %v", s.Revision()-before, err)
	}
}
