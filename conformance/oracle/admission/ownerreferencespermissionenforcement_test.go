package admission

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/restmapper"

	"plinth/internal/builtin"
	"plinth/internal/engine"
)

// mapperOf is the mapper that the reference makes from the discovery of these types.
func mapperOf(types *engine.Types) meta.RESTMapper {
	groups := map[string]*restmapper.APIGroupResources{}
	var all []*restmapper.APIGroupResources
	for _, gv := range types.GroupVersions() {
		g := groups[gv.Group]
		if g == nil {
			g = &restmapper.APIGroupResources{Group: metav1.APIGroup{Name: gv.Group},
				VersionedResources: map[string][]metav1.APIResource{}}
			groups[gv.Group] = g
			all = append(all, g)
		}
		g.Group.Versions = append(g.Group.Versions, metav1.GroupVersionForDiscovery{Version: gv.Version})
		for _, r := range gv.Resources {
			g.VersionedResources[gv.Version] = append(g.VersionedResources[gv.Version], metav1.APIResource{
				Name: r.Name, SingularName: r.Singular, Namespaced: r.Namespaced, Kind: r.Kind})
		}
	}
	return restmapper.NewDiscoveryRESTMapper(all)
}

// ownerOf is an owner reference; block is true, false, or "" for none.
func ownerOf(apiVersion, kind, name, uid, block string) string {
	text := fmt.Sprintf("{apiVersion: %q, kind: %q, name: %q, uid: %q", apiVersion, kind, name, uid)
	if block != "" {
		text += ", blockOwnerDeletion: " + block
	}
	return text + "}"
}

// owned is a Pod or a ConfigMap with owners.
func owned(kind string, owners ...string) string {
	text := fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: x, namespace: ns, ownerReferences: [%s]}", kind,
		strings.Join(owners, ", "))
	if kind == "Pod" {
		text += ", spec: {containers: [{name: c, image: i}]}"
	}
	return text + "}"
}

// ownerWorld is a world in which the rules, "VERB GROUP/RESOURCE/SUBRESOURCE NAMESPACE/NAME", are allowed.
func ownerWorld(t *testing.T, types *engine.Types, failure error, rules ...string) *world {
	return (&world{plugin: "OwnerReferencesPermissionEnforcement", mapper: mapperOf(types), reason: "no rule",
		failure: failure,
		allow: func(verb, group, resource, subresource, namespace, name string) bool {
			asked := fmt.Sprintf("%s %s/%s/%s %s/%s", verb, group, resource, subresource, namespace, name)
			for _, rule := range rules {
				if rule == asked {
					return true
				}
			}
			return false
		}}).build(t)
}

// SPEC: AUTH-3
func TestOwnersOfRandomObjects(t *testing.T) {
	types := engine.NewRegistry(builtin.Resources(builtin.Config{})).Now()
	mayDelete := []string{"delete /pods/ ns/x", "delete /configmaps/ ns/x", "delete /pods/ephemeralcontainers ns/x"}
	var owners []string
	for _, block := range []string{"", "true", "false"} {
		owners = append(owners, ownerOf("v1", "Pod", "p", "u1", block), ownerOf("apps/v1", "ReplicaSet", "r", "u2", block),
			ownerOf("v1", "Node", "n", "u3", block), ownerOf("v1", "Pod", "other", "u1", block))
	}
	worlds := []*world{
		ownerWorld(t, types, nil),
		ownerWorld(t, types, errors.New("the authorizer is down")),
		ownerWorld(t, types, nil, mayDelete...),
		ownerWorld(t, types, nil, "delete /pods/ ns/x", "update */*/finalizers /*"), // but not its subresources
		ownerWorld(t, types, nil, "update */*/finalizers /*"),
		ownerWorld(t, types, nil, append(mayDelete, "update */*/finalizers /*")...),
		ownerWorld(t, types, nil, append(mayDelete, "update /pods/finalizers ns/p", "update /nodes/finalizers /n")...),
		ownerWorld(t, types, nil, append(mayDelete, "update apps/replicasets/finalizers ns/r")...),
		// Rights on what the plugin must not ask about: no subresource, or another namespace.
		ownerWorld(t, types, nil, append(mayDelete, "update /pods/ ns/p", "update /nodes/finalizers ns/n")...),
	}
	var count tally
	r := rand.New(rand.NewPCG(17, 1))
	some := func() (chosen []string) {
		for range r.IntN(4) {
			chosen = append(chosen, owners[r.IntN(len(owners))])
		}
		return chosen
	}
	for range 1500 {
		w, kind := worlds[r.IntN(len(worlds))], []string{"Pod", "ConfigMap"}[r.IntN(2)]
		a := attempt{operation: admission.Update, version: "v1", resource: strings.ToLower(kind) + "s", namespace: "ns",
			name: "x", user: user.DefaultInfo{Name: "jane"}}
		if kind == "Pod" {
			a.subresource = []string{"", "", "", "status", "ephemeralcontainers"}[r.IntN(5)]
		}
		before := some()
		after := before
		if r.IntN(4) > 0 {
			after = some()
		}
		a.object, a.old = owned(kind, after...), owned(kind, before...)
		switch r.IntN(6) {
		case 0, 1:
			a.operation, a.old = admission.Create, ""
		case 2:
			a.operation, a.object = admission.Delete, ""
		}
		w.compare(t, a, &count)
	}
	count.atLeast(t, 0, 400, 300)
}

// What kinds of owners mean.
//
// SPEC: AUTH-3
func TestKindsOfOwners(t *testing.T) {
	types := engine.NewRegistry(builtin.Resources(builtin.Config{})).Now()
	var count tally
	for _, c := range []struct{ apiVersion, kind, rule string }{
		{"v1", "Pod", "update /pods/finalizers ns/o"},
		{"v1", "pod", "update /pods/finalizers ns/o"},
		{"v1", "pOd", "update /pods/finalizers ns/o"},
		{"v1", "PodList", "update /podlists/finalizers ns/o"},
		{"v1", "podList", "update /podlists/finalizers ns/o"},
		{"v1", "NodeList", "update /nodelists/finalizers /o"},
		{"v1", "List", "update /lists/finalizers /o"},
		{"apps/v1", "List", "update apps/lists/finalizers /o"},
		{"v1", "Eviction", "update /pods/finalizers ns/o"},
		{"v1", "Namespace", "update /namespaces/finalizers /o"},
		{"apps/v1", "Deployment", "update apps/deployments/finalizers ns/o"},
		{"networking.k8s.io/v1", "Ingress", "update networking.k8s.io/ingresses/finalizers ns/o"},
		{"apps/v2", "Deployment", "update apps/deployments/finalizers ns/o"},
		{"autoscaling/v2", "HorizontalPodAutoscaler", "update autoscaling/horizontalpodautoscalers/finalizers ns/o"},
		{"v1", "Deployment", "update /deployments/finalizers ns/o"},
		{"nowhere.org/v1", "Thing", "update nowhere.org/things/finalizers ns/o"},
		{"a/b/c", "Pod", "update /pods/finalizers ns/o"},
		{"/v1", "Pod", "update /pods/finalizers ns/o"},
		{"/v9", "Pod", "update /pods/finalizers ns/o"},
	} {
		for _, rule := range []string{c.rule, "", "update */*/finalizers /*"} {
			w := ownerWorld(t, types, nil, rule)
			w.compare(t, attempt{operation: admission.Create, version: "v1", resource: "configmaps", namespace: "ns",
				name: "x", object: owned("ConfigMap", ownerOf(c.apiVersion, c.kind, "o", "u", "true"))}, &count)
		}
	}
	// It also asks about the owners after the first one, and about each in turn.
	w := ownerWorld(t, types, nil, "update /pods/finalizers ns/o", "update /nodes/finalizers /n")
	first := ownerOf("v1", "Pod", "o", "u", "true")
	for _, second := range []string{ownerOf("v1", "Pod", "q", "u2", "true"), ownerOf("v1", "None", "o", "u2", "true"),
		ownerOf("v1", "Node", "n", "u2", "true")} {
		for _, owners := range [][]string{{first, second}, {second, first}} {
			w.compare(t, attempt{operation: admission.Create, version: "v1", resource: "configmaps", namespace: "ns",
				name: "x", object: owned("ConfigMap", owners...)}, &count)
		}
	}
	count.atLeast(t, 0, 25, 25)
}

// The reference maps a kind without a version to all versions of its group. Validation refuses such references in
// objects before this plugin sees them, so only the body of a subresource can have one, and nothing stores those. Ours
// finds no type for it.
//
// SPEC: AUTH-3
func TestOwnersWithoutVersion(t *testing.T) {
	types := engine.NewRegistry(builtin.Resources(builtin.Config{})).Now()
	w := ownerWorld(t, types, nil, "update /pods/finalizers ns/o")
	a := attempt{operation: admission.Create, version: "v1", resource: "configmaps", namespace: "ns", name: "x",
		object: owned("ConfigMap", ownerOf("", "Pod", "o", "u", "true"))}
	theirs, mine := w.runReference(t, a), w.runOurs(t, a)
	const why = `cannot find RESTMapping for APIVersion  Kind Pod: no matches for kind "Pod" in version ""`
	if theirs.refusal != nil || mine.refusal == nil || !strings.HasSuffix(mine.refusal.message, why) {
		t.Errorf("the difference is not there any more:\n--- reference\n%s--- ours\n%s", theirs, mine)
	}
}
