package discovery

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"

	"plinth/internal/builtin"
	"plinth/internal/discovery"
	"plinth/internal/engine"
	"plinth/object"
)

const (
	all    = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	noPeer = all + ";profile=nopeer"
	rounds = 1000
)

// groupsOf are the groups of /apis.
func groupsOf(t *testing.T, d *discovery.Documents, accept string) (list apidiscovery.APIGroupDiscoveryList) {
	t.Helper()
	doc, ok, err := d.Get("/apis", accept)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	text, err := doc.Plain()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// What several servers serve is merged as the reference merges it, whatever they have in common.
//
// SPEC: URI-12, URI-8
func TestMergedDiscovery(t *testing.T) {
	var peers *discovery.Peers
	d := discovery.New(discovery.Config{Registry: engine.NewRegistry(builtin.Resources(builtin.Config{})),
		Peers: func() *discovery.Peers { return peers }})
	own := groupsOf(t, d, noPeer)
	merged := 0
	for round := range rounds {
		random := rand.New(rand.NewPCG(uint64(round), 1))
		identity := fmt.Sprint("server-", random.IntN(3))
		others, served := map[string][]apidiscovery.APIGroupDiscovery{}, map[string][]object.Value{}
		for i := range random.IntN(4) {
			name := fmt.Sprint("server-", i)
			if name == identity {
				continue
			}
			others[name] = otherwise(random, own.Items)
			text, err := json.Marshal(apidiscovery.APIGroupDiscoveryList{Items: others[name]})
			if err != nil {
				t.Fatal(err)
			}
			document, err := object.ParseJSON(text)
			if err != nil {
				t.Fatal(err)
			}
			served[name] = discovery.GroupsOf(document.Value)
		}
		want := aggregated.TestMergeResources(identity, own.Items, others)
		peers = &discovery.Peers{Own: identity, By: served}
		got := groupsOf(t, d, all)
		if !bytes.Equal(text(t, got.Items), text(t, want)) {
			t.Fatalf("round %d: it is\n%s\nwant\n%s", round, text(t, got.Items), text(t, want))
		}
		if !bytes.Equal(text(t, got.Items), text(t, own.Items)) {
			merged++
		}
	}
	if merged < rounds/2 {
		t.Errorf("of %d rounds, servers differed in %d", rounds, merged)
	}
}

// text is what is compared: nil and empty lists are the same.
func text(t *testing.T, groups []apidiscovery.APIGroupDiscovery) []byte {
	t.Helper()
	text, err := json.Marshal(apidiscovery.APIGroupDiscoveryList{Items: groups})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// otherwise returns groups as another server may have them: some are left out, added, in another order, or have other
// versions, resources, verbs and subresources.
func otherwise(random *rand.Rand, groups []apidiscovery.APIGroupDiscovery) (all []apidiscovery.APIGroupDiscovery) {
	often := 2 + random.IntN(60)
	rarely := func() bool { return random.IntN(often) == 0 }
	for _, original := range groups {
		if rarely() {
			continue
		}
		group := *original.DeepCopy()
		group.Versions = changed(random, rarely, group.Versions, func(v *apidiscovery.APIVersionDiscovery, another string) {
			if v.Version += another; rarely() {
				v.Freshness = apidiscovery.DiscoveryFreshnessStale
			}
			v.Resources = changed(random, rarely, v.Resources, func(r *apidiscovery.APIResourceDiscovery, another string) {
				if r.Resource += another; rarely() {
					r.SingularResource += "x"
				}
				r.Verbs = changed(random, rarely, r.Verbs, func(v *string, another string) { *v += another })
				r.Subresources = changed(random, rarely, r.Subresources,
					func(s *apidiscovery.APISubresourceDiscovery, another string) { s.Subresource += another })
			})
		})
		all = append(all, group)
		if rarely() {
			another := *group.DeepCopy()
			another.Name += "x"
			all = append(all, another)
		}
	}
	if rarely() {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	return all
}

// changed changes a list: change is called for each item with "", and for those that are added with a part of a name.
func changed[T any](random *rand.Rand, rarely func() bool, list []T, change func(item *T, another string)) (all []T) {
	for _, item := range list {
		if rarely() {
			continue
		}
		one := item
		change(&one, "")
		if all = append(all, one); rarely() {
			another := item
			change(&another, "x")
			all = append(all, another)
		}
	}
	if rarely() {
		slices.Reverse(all)
	}
	return all
}
