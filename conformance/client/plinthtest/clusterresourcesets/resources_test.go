package clusterresourcesets

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Cluster has one binding: an existing one gets the set in addition.
func TestBindingOfCluster(t *testing.T) {
	for name, existing := range map[string][]string{"existing": {"other"}, "new": nil} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *scene) {
				if existing != nil {
					s.create(&addonsv1.ClusterResourceSetBinding{ObjectMeta: in(space, cluster),
						Spec: addonsv1.ClusterResourceSetBindingSpec{ClusterName: cluster,
							Bindings: []addonsv1.ResourceSetBinding{{ClusterResourceSetName: existing[0],
								Resources: []addonsv1.ResourceBinding{{Hash: "xyz", Applied: new(true),
									LastAppliedTime: metav1.Now(),
									ResourceRef:     addonsv1.ResourceRef{Kind: "Secret", Name: "old"}}}}}}})
				}
				s.match()
				s.create(setOf(set, "", theConfig))
				s.settle()
				var sets []string
				for _, b := range s.binding().Spec.Bindings {
					sets = append(sets, b.ClusterResourceSetName)
				}
				if want := append(slices.Clone(existing), set); !slices.Equal(sets, want) {
					t.Errorf("the sets of the binding are %v, want %v", sets, want)
				}
			})
		})
	}
}

// A Secret and a ConfigMap are taken from the namespace of the Cluster, and one that is not there is left out. The
// original looks at the error of the function that reads them, which the controller does not show: the condition of the
// set says Applied in either case.
func TestSecretOfSet(t *testing.T)    { resourceOfSet(t, "Secret", secret) }
func TestConfigMapOfSet(t *testing.T) { resourceOfSet(t, "ConfigMap", configMap) }

func resourceOfSet(t *testing.T, kind, name string) {
	t.Helper()
	for name, there := range map[string]bool{name: true, "elsewhere": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *scene) {
				elsewhere := s.parcelConfig("elsewhere", payload("from-elsewhere", nil))
				hidden := s.parcelSecret("elsewhere", payload("from-elsewhere", nil))
				elsewhere.Namespace, hidden.Namespace = "default", "default"
				s.create(elsewhere, hidden)
				s.match()
				s.create(setOf(set, "", kind+"/"+name))
				s.settle()
				if there {
					s.bound(1, 1)
				} else if s.read(s.remote, payload("from-elsewhere", nil)) ||
					len(s.binding().Spec.Bindings[0].Resources) != 0 {
					t.Errorf("a %s of another namespace is applied", kind)
				}
			})
		})
	}
}

// When a resource is applied again, by its strategy and what the binding says about it.
func TestReconcileStrategyApplies(t *testing.T) {
	appliesAgain(t, addonsv1.ClusterResourceSetStrategyReconcile, map[string]bool{
		"no entry": true, "not applied": true, "another hash": true, "the same": false})
}

func TestApplyOnceStrategyApplies(t *testing.T) {
	appliesAgain(t, addonsv1.ClusterResourceSetStrategyApplyOnce, map[string]bool{
		"not applied": true, "the same": false})
}

func appliesAgain(t *testing.T, strategy addonsv1.ClusterResourceSetStrategy, cases map[string]bool) {
	t.Helper()
	change := map[string]func(*addonsv1.ResourceSetBinding){
		"no entry":     func(b *addonsv1.ResourceSetBinding) { b.Resources = nil },
		"not applied":  func(b *addonsv1.ResourceSetBinding) { b.Resources[0].Applied = new(false) },
		"another hash": func(b *addonsv1.ResourceSetBinding) { b.Resources[0].Hash = "xyz" },
		"the same":     func(*addonsv1.ResourceSetBinding) {},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *scene) {
				s.match()
				made := setOf(set, strategy, theConfig)
				s.create(made)
				s.settle()
				s.bound(1, 1)
				if err := s.remote.Delete(s.Context(), payload("from-config", nil)); err != nil {
					t.Fatal(err)
				}
				b := s.binding()
				change[name](&b.Spec.Bindings[0])
				s.update(b)
				s.read(s.client, made)
				made.Labels = map[string]string{"look": "again"}
				s.update(made)
				s.settle()
				s.bound(1, 1)
				if got := s.read(s.remote, payload("from-config", nil)); got != want {
					t.Errorf("it is applied again: %t, want %t", got, want)
				}
			})
		})
	}
}

// With the strategy ApplyOnce, an object is created unless it exists, which is no error.
func TestApplyOnceCreates(t *testing.T) {
	for name, c := range map[string]struct {
		existing []client.Object
		code     int
	}{"there is none": {nil, 201}, "it exists": {[]client.Object{payload("from-config", nil)}, 409}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(s *scene) {
				for _, o := range c.existing {
					if err := s.remote.Create(s.Context(), o); err != nil {
						t.Fatal(err)
					}
				}
				s.match()
				s.create(setOf(set, addonsv1.ClusterResourceSetStrategyApplyOnce, theConfig))
				s.settle()
				s.bound(1, 1)
				s.applied("default", "from-config", nil)
				creates := s.workload.Requests().On("configmaps").Writes()
				if len(creates) != 1 || creates[0].Code != c.code {
					t.Errorf("the requests are\n%s", creates)
				}
			})
		})
	}
}
