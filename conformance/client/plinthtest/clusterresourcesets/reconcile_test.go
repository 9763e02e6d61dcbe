package clusterresourcesets

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"plinth/plinthtest"
)

// The references of the two resources that each scene has.
const (
	theConfig = "ConfigMap/" + configMap
	theSecret = "Secret/" + secret
)

// What is in the resources of a set is applied to a Cluster that matches.
//
// SPEC: BEY-7
func TestApplied(t *testing.T) {
	bubble(t, func(s *scene) {
		s.match()
		s.create(setOf(set, "", theConfig, theSecret))
		s.settle()
		s.bound(1, 2)
		s.applied("default", "from-config", nil)
		s.applied("default", "from-secret", nil)
		s.remove(&clusterv1.Cluster{ObjectMeta: in(space, cluster)})
	})
}

// A Cluster that begins to match gets a binding, which goes with the Cluster.
func TestClusterBeginsToMatch(t *testing.T) {
	bubble(t, func(s *scene) {
		s.create(setOf(set, "", theConfig))
		s.settle()
		if s.binding() != nil {
			s.Fatal("a Cluster that does not match has a binding")
		}
		s.match()
		s.settle()
		s.bound(1, 1)
		s.remove(&clusterv1.Cluster{ObjectMeta: in(space, cluster)})
		s.settle()
		if s.binding() != nil {
			s.Error("the binding has outlived its Cluster")
		}
	})
}

// A ConfigMap and a Secret that are created later than the set are applied then.
func TestConfigMapComesLater(t *testing.T) {
	bubble(t, func(s *scene) { s.later("ConfigMap/later", s.parcelConfig("later", payload("from-later", nil))) })
}

func TestSecretComesLater(t *testing.T) {
	bubble(t, func(s *scene) { s.later("Secret/later", s.parcelSecret("later", payload("from-later", nil))) })
}

func (s *scene) later(reference string, resource client.Object) {
	s.Helper()
	owner := setOf(set, "", reference)
	s.create(owner)
	s.match()
	s.settle()
	if b := s.binding(); b == nil || len(b.Spec.Bindings) != 1 || len(b.Spec.Bindings[0].Resources) != 0 {
		s.Fatalf("without the resource the binding is %+v", b)
	}
	s.create(resource)
	s.settle()
	s.read(s.client, resource)
	if owners := resource.GetOwnerReferences(); len(owners) != 1 || owners[0].Name != owner.Name {
		s.Errorf("the owners of the resource are %v", owners)
	}
	s.bound(1, 1)
	s.applied("default", "from-later", nil)
	s.remove(&clusterv1.Cluster{ObjectMeta: in(space, cluster)})
	s.settle()
	if s.binding() != nil {
		s.Error("the binding has outlived its Cluster")
	}
}

// A set that is deleted leaves the binding, and the last one takes it away.
func TestSetsDeleted(t *testing.T) {
	bubble(t, func(s *scene) {
		s.match()
		first, second := setOf("first", "", theConfig), setOf("second", "", theConfig)
		s.create(first, second)
		s.settle()
		s.bound(2, 1)
		s.remove(first)
		s.settle()
		s.bound(1, 1)
		s.remove(second)
		s.settle()
		if b := s.binding(); b != nil {
			s.Errorf("no set is left, and the binding is %+v", b.Spec)
		}
	})
}

// A set has the finalizer after it was reconciled. The original creates it with the finalizer, so that the test does
// not depend on the controller; here the controller adds it.
func TestFinalizer(t *testing.T) {
	bubble(t, func(s *scene) {
		made := setOf(set, "", theConfig)
		s.create(made)
		s.settle()
		s.read(s.client, made)
		if len(made.Finalizers) != 1 || made.Finalizers[0] != addonsv1.ClusterResourceSetFinalizer {
			s.Errorf("the finalizers are %v", made.Finalizers)
		}
		s.management.Owns(s, plinthtest.Ref{Group: "addons.cluster.x-k8s.io", Resource: "clusterresourcesets",
			Namespace: space, Name: set}, "capi", "metadata.finalizers")
	})
}

// With the strategy Reconcile, a resource that changes is applied again.
func TestReconcileStrategy(t *testing.T) {
	bubble(t, func(s *scene) {
		s.match()
		s.create(setOf(set, addonsv1.ClusterResourceSetStrategyReconcile, theConfig, theSecret))
		s.settle()
		s.bound(1, 2)
		s.applied("default", "from-config", nil)
		s.applied("default", "from-secret", nil)
		before := map[string]string{}
		for _, r := range s.binding().Spec.Bindings[0].Resources {
			before[r.Name] = r.Hash
		}
		red, blue := map[string]string{"color": "red"}, map[string]string{"color": "blue"}
		s.update(s.parcelConfig(configMap, payload("from-config", red)))
		s.update(s.parcelSecret(secret, payload("from-secret", blue)))
		s.settle()
		for _, r := range s.binding().Spec.Bindings[0].Resources {
			if r.Hash == before[r.Name] {
				s.Errorf("%s has the hash that it had", r.Name)
			}
		}
		s.applied("default", "from-config", red)
		s.applied("default", "from-secret", blue)
	})
}

func (s *scene) update(o client.Object) {
	s.Helper()
	if err := s.client.Update(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

// With the strategy ApplyOnce, an object that the workload cluster has already stays as it is, and does not keep the
// others from being created.
func TestApplyOnceStrategy(t *testing.T) {
	bubble(t, func(s *scene) {
		s.match()
		mine := map[string]string{"made": "before"}
		if err := s.remote.Create(s.Context(), payload("from-config", mine)); err != nil {
			s.Fatal(err)
		}
		s.create(setOf(set, addonsv1.ClusterResourceSetStrategyApplyOnce, theConfig, theSecret))
		s.settle()
		s.applied("default", "from-config", mine)
		s.applied("default", "from-secret", nil)
	})
}

// An object that cannot be created is reported, and does not keep the others from being created; it is created when
// its namespace is there.
func TestErrorIsCorrected(t *testing.T) {
	bubble(t, func(s *scene) {
		s.match()
		data := map[string]string{"color": "green"}
		stray := payload("stray", data)
		stray.Namespace = "missing"
		s.update(s.parcelConfig(configMap, payload("from-config", data), stray))
		made := setOf(set, addonsv1.ClusterResourceSetStrategyApplyOnce, theConfig, theSecret)
		s.create(made)
		s.settle()
		s.applied("default", "from-config", data)
		s.applied("default", "from-secret", nil)
		applied := map[string]bool{}
		for _, r := range s.binding().Spec.Bindings[0].Resources {
			applied[r.Name] = r.Applied != nil && *r.Applied
		}
		if len(applied) != 2 || applied[configMap] || !applied[secret] {
			s.Errorf("these are applied: %v", applied)
		}
		s.failure(made)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "missing"}}
		if err := s.remote.Create(s.Context(), namespace); err != nil {
			s.Fatal(err)
		}
		s.pass(time.Minute)
		s.bound(1, 2)
		s.applied("missing", "stray", data)
	})
}

// failure fails the test unless the conditions of a set say that an object could not be created.
func (s *scene) failure(made *addonsv1.ClusterResourceSet) {
	s.Helper()
	s.read(s.client, made)
	if old := v1beta1conditions.Get(made, addonsv1.ResourcesAppliedV1Beta1Condition); old == nil ||
		old.Status != corev1.ConditionFalse || old.Reason != addonsv1.ApplyFailedV1Beta1Reason ||
		!strings.Contains(old.Message, "creating object /v1, Kind=ConfigMap missing/stray") {
		s.Errorf("the condition of v1beta1 is %+v", old)
	}
	if c := conditions.Get(made, addonsv1.ClusterResourceSetResourcesAppliedCondition); c == nil ||
		c.Status != metav1.ConditionFalse || c.Reason != addonsv1.ClusterResourceSetResourcesNotAppliedReason ||
		c.Message != "Failed to apply ClusterResourceSet resources to Cluster" {
		s.Errorf("the condition is %+v", c)
	}
}

// Many sets, which all write the binding of one Cluster, are all in it at the end.
func TestManySets(t *testing.T) {
	bubble(t, func(s *scene) {
		const many = 10
		for i := range many {
			config, hidden := fmt.Sprintf("config-%d", i), fmt.Sprintf("secret-%d", i)
			s.create(s.parcelConfig(config, payload("from-config", nil)),
				s.parcelSecret(hidden, payload("from-secret", nil)),
				setOf(fmt.Sprintf("set-%d", i), "", "ConfigMap/"+config, "Secret/"+hidden))
		}
		s.settle()
		s.match()
		s.pass(time.Minute)
		s.bound(many, 2)
	})
}
