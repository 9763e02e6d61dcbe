package authorization

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/node"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"plinth/internal/access"
	"plinth/internal/authz"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
)

// nodeNames are few, and so are the names of the objects that Pods refer to, so that relations are frequent.
var nodeNames = []string{"node1", "node2"}

func pointer[T any](v T) *T { return &v }

func (r random) name() string { return fmt.Sprintf("o%d", r.IntN(4)) }

// pod returns a Pod that refers to objects of all sorts.
func (r random) pod() *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: one(r, namespaces), Name: r.name()}}
	if r.IntN(5) > 0 {
		p.Spec.NodeName = one(r, nodeNames)
	}
	if r.IntN(8) == 0 {
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}
	if r.IntN(2) == 0 {
		p.Spec.ServiceAccountName = r.name()
	}
	if r.IntN(4) == 0 {
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: r.name()}, {}}
	}
	c := corev1.Container{Name: "c"}
	local := func() corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: r.name()} }
	switch r.IntN(5) {
	case 0:
		c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local()}}}
	case 1:
		c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local()}}}
	case 2:
		c.Env = []corev1.EnvVar{{Name: "a"}, {Name: "b",
			ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local()}}}}
	case 3:
		c.Env = []corev1.EnvVar{{Name: "b",
			ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local()}}}}
	}
	switch r.IntN(3) {
	case 0:
		p.Spec.InitContainers = []corev1.Container{c}
	case 1:
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(
			c)}}
	default:
		p.Spec.Containers = []corev1.Container{c}
	}
	for i := range r.IntN(3) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: r.volume()})
	}
	r.claims(p)
	return p
}

func (r random) claims(p *corev1.Pod) {
	for i := range r.IntN(3) {
		claim := corev1.PodResourceClaim{Name: fmt.Sprintf("c%d", i)}
		switch r.IntN(4) {
		case 0, 1:
			claim.ResourceClaimName = pointer(r.name())
		case 2:
			claim.ResourceClaimTemplateName = pointer("t")
		}
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, claim)
		if r.IntN(3) > 0 {
			status := corev1.PodResourceClaimStatus{Name: claim.Name}
			if r.IntN(3) > 0 {
				status.ResourceClaimName = pointer(r.name())
			}
			p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, status)
		}
	}
	if r.IntN(6) == 0 {
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: r.name()}
	}
}

func (r random) volume() (v corev1.VolumeSource) {
	local := &corev1.LocalObjectReference{Name: r.name()}
	switch r.IntN(15) {
	case 0:
		v.AzureFile = &corev1.AzureFileVolumeSource{SecretName: r.name()}
	case 1:
		v.CephFS = &corev1.CephFSVolumeSource{SecretRef: local}
	case 2:
		v.Cinder = &corev1.CinderVolumeSource{SecretRef: local}
	case 3:
		v.FlexVolume = &corev1.FlexVolumeSource{SecretRef: local}
	case 4:
		v.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: *local}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: r.name()}}},
		}}
	case 5:
		v.RBD = &corev1.RBDVolumeSource{SecretRef: local}
	case 6:
		v.Secret = &corev1.SecretVolumeSource{SecretName: r.name()}
	case 7:
		v.ScaleIO = &corev1.ScaleIOVolumeSource{SecretRef: local}
	case 8:
		v.ISCSI = &corev1.ISCSIVolumeSource{SecretRef: local}
	case 9:
		v.StorageOS = &corev1.StorageOSVolumeSource{SecretRef: local}
	case 10:
		v.CSI = &corev1.CSIVolumeSource{NodePublishSecretRef: local}
	case 11:
		v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: *local}
	case 12:
		v.Ephemeral = &corev1.EphemeralVolumeSource{}
	default:
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: r.name()}
	}
	return v
}

func (r random) persistentVolume() *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: r.name()}}
	if r.IntN(6) > 0 {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: one(r, namespaces), Name: r.name()}
	}
	secret := func() *corev1.SecretReference {
		return &corev1.SecretReference{Namespace: one(r, []string{"ns1", "ns2", ""}), Name: r.name()}
	}
	s := &v.Spec.PersistentVolumeSource
	switch r.IntN(10) {
	case 0:
		s.AzureFile = &corev1.AzureFilePersistentVolumeSource{SecretName: r.name(),
			SecretNamespace: one(r, []*string{nil, pointer(""), pointer("ns1")})}
	case 1:
		s.CephFS = &corev1.CephFSPersistentVolumeSource{SecretRef: secret()}
	case 2:
		s.Cinder = &corev1.CinderPersistentVolumeSource{SecretRef: secret()}
	case 3:
		s.FlexVolume = &corev1.FlexPersistentVolumeSource{SecretRef: secret()}
	case 4:
		s.RBD = &corev1.RBDPersistentVolumeSource{SecretRef: secret()}
	case 5:
		s.ScaleIO = &corev1.ScaleIOPersistentVolumeSource{SecretRef: secret()}
	case 6:
		s.ISCSI = &corev1.ISCSIPersistentVolumeSource{SecretRef: secret()}
	case 7:
		s.StorageOS = &corev1.StorageOSPersistentVolumeSource{SecretRef: &corev1.ObjectReference{Namespace: one(r,
			namespaces), Name: r.name()}}
	default:
		s.CSI = &corev1.CSIPersistentVolumeSource{
			ControllerPublishSecretRef: secret(), NodePublishSecretRef: secret(), NodeStageSecretRef: secret(),
			NodeExpandSecretRef: secret(), ControllerExpandSecretRef: secret(),
		}
	}
	return v
}

// cluster holds the same objects in the reference's graph and in our store.
type cluster struct {
	*testing.T
	graph  *node.Graph
	store  *store.Store
	theirs *node.NodeAuthorizer
	ours   *authz.Authority
	bound  map[string]bool // Pods that are in the graph
}

func newCluster(t *testing.T) *cluster {
	describe := func(k store.Key, data []byte) *store.Sidecar {
		var obj struct{ Spec struct{ NodeName string } }
		if err := json.Unmarshal(data, &obj); err != nil {
			t.Fatal(err)
		}
		return &store.Sidecar{Fields: []store.Pair{{Name: "spec.nodeName", Value: obj.Spec.NodeName}}}
	}
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: describe})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c := &cluster{T: t, graph: node.NewGraph(), store: s, bound: map[string]bool{}}
	c.theirs = node.NewAuthorizer(c.graph, nodeidentifier.NewDefaultNodeIdentifier(), bootstrappolicy.NodeRules())
	if c.ours, err = authz.New(authz.FromModes([]authz.Mode{authz.Node}, nil), authz.Options{}); err != nil {
		t.Fatal(err)
	}
	c.ours.Open(s)
	return c
}

func (c *cluster) put(resource, name string, obj any) {
	c.Helper()
	change := store.Change{Key: store.Key{Resource: resource, Name: name}}
	if obj != nil {
		data, err := json.Marshal(obj)
		if err != nil {
			c.Fatal(err)
		}
		change.Data = data
		var its struct{ Spec struct{ NodeName string } }
		if err := json.Unmarshal(data, &its); err != nil {
			c.Fatal(err)
		}
		change.Sidecar = &store.Sidecar{Fields: []store.Pair{{Name: "spec.nodeName", Value: its.Spec.NodeName}}}
	}
	if _, err := c.store.Commit(c.Context(), nil, []store.Change{change}); err != nil {
		c.Fatal(err)
	}
}

// change creates, replaces or removes a random object, on both sides.
func (c *cluster) change(r random) {
	switch r.IntN(9) {
	case 0, 1, 2:
		p := r.pod()
		// The graph handles only some changes of a Pod that has a node, as real Pods do not change in other ways; therefore
		// the Pod is deleted first.
		if key := p.Namespace + "/" + p.Name; c.bound[key] {
			c.graph.DeletePod(p.Name, p.Namespace)
			delete(c.bound, key)
		}
		if p.Spec.NodeName != "" {
			c.graph.AddPod(p)
			c.bound[p.Namespace+"/"+p.Name] = true
		}
		c.put("/pods", p.Namespace+"/"+p.Name, p)
	case 3:
		namespace, name := one(r, namespaces), r.name()
		if key := namespace + "/" + name; c.bound[key] {
			c.graph.DeletePod(name, namespace)
			delete(c.bound, key)
		}
		c.put("/pods", namespace+"/"+name, nil)
	case 4, 5:
		v := r.persistentVolume()
		c.graph.AddPV(v)
		c.put("/persistentvolumes", v.Name, v)
	case 6:
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: r.name()}}
		a.Spec.NodeName = one(r, nodeNames)
		c.graph.AddVolumeAttachment(a.Name, a.Spec.NodeName)
		c.put("storage.k8s.io/volumeattachments", a.Name, a)
	case 7:
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: r.name()}}
		s.Spec.NodeName = pointer(one(r, nodeNames))
		c.graph.AddResourceSlice(s.Name, *s.Spec.NodeName)
		c.put("resource.k8s.io/resourceslices", s.Name, s)
	default:
		q := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: one(r, namespaces),
			Name: r.name()}}
		q.Spec.NodeName = types.NodeName(one(r, nodeNames))
		c.graph.AddPodCertificateRequest(q)
		c.put("certificates.k8s.io/podcertificaterequests", q.Namespace+"/"+q.Name, q)
	}
}

var (
	nodeUsers = []string{"system:node:node1", "system:node:node1", "system:node:node2", "system:node:node3",
		"system:node:", "node1"}
	nodeVerbs = []string{"get", "get", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	nodeKinds = []string{
		"/secrets", "/secrets", "/secrets", "/configmaps", "/persistentvolumeclaims", "/persistentvolumeclaims/status",
		"/persistentvolumes",
		"resource.k8s.io/resourceclaims", "storage.k8s.io/volumeattachments", "/serviceaccounts", "/serviceaccounts/token",
		"coordination.k8s.io/leases", "storage.k8s.io/csinodes", "storage.k8s.io/csinodes/status",
		"resource.k8s.io/resourceslices",
		"/nodes", "/nodes/status", "/nodes/proxy", "/pods", "/pods/status", "/pods/eviction", "/pods/log",
		"certificates.k8s.io/podcertificaterequests", "certificates.k8s.io/podcertificaterequests/status", "/services",
		"apps/deployments",
		"/events", "node.k8s.io/runtimeclasses", "/secrets/x", "authentication.k8s.io/tokenreviews",
	}
)

func (r random) nodeRequest() access.Attributes {
	a := access.Attributes{User: access.User{Name: one(r, nodeUsers), Groups: []string{"system:nodes"}},
		Verb: one(r, nodeVerbs)}
	if r.IntN(20) == 0 {
		a.User.Groups = nil
	}
	if r.IntN(40) == 0 {
		a.Path = "/healthz"
		return a
	}
	a.IsResource, a.Version = true, "v1"
	kind := one(r, nodeKinds)
	if r.IntN(2) == 0 { // the most frequent requests of a kubelet
		a.User.Name, a.User.Groups, a.Verb = "system:node:"+one(r, nodeNames), []string{"system:nodes"}, "get"
		kind = one(r, []string{"/secrets", "/configmaps", "/persistentvolumeclaims", "/persistentvolumes",
			"resource.k8s.io/resourceclaims", "/serviceaccounts"})
	}
	a.Group, a.Resource, _ = strings.Cut(kind, "/")
	a.Resource, a.Subresource, _ = strings.Cut(a.Resource, "/")
	switch a.Resource {
	case "nodes", "csinodes", "leases":
		a.Name = one(r, append([]string{""}, nodeNames...))
	default:
		if r.IntN(12) > 0 {
			a.Name = r.name()
		}
	}
	switch a.Resource {
	case "nodes", "csinodes", "persistentvolumes", "volumeattachments", "resourceslices":
		if r.IntN(10) == 0 {
			a.Namespace = "ns1"
		}
	default:
		a.Namespace = one(r, []string{"", "ns1", "ns1", "ns1", "ns2", "ns2", "ns2"})
		if a.Resource == "leases" {
			a.Namespace = one(r, []string{"kube-node-lease", "kube-node-lease", "ns1"})
		}
	}
	if r.IntN(4) == 0 {
		selector := fields.AndSelectors(fields.OneTermEqualSelector("spec.nodeName", one(r, nodeNames)),
			fields.OneTermNotEqualSelector("a", "b"))
		if r.IntN(3) == 0 {
			selector = fields.OneTermNotEqualSelector("spec.nodeName", "node1")
		}
		a.Required = &access.Requirements{Fields: selector.Requirements()}
	}
	return a
}

// Kubelets have the same permissions for the same objects, with the same reasons.
//
// SPEC: AUTH-2
func TestNode(t *testing.T) {
	r := random{rand.New(rand.NewPCG(3, 4))}
	allowed, related, total := 0, 0, 0
	for range max(1, *policies/20) {
		c := newCluster(t)
		for range 20 {
			c.change(r)
		}
		for range 100 {
			c.change(r)
			for range 10 {
				a := r.nodeRequest()
				decision, reason, err := c.ours.Authorize(t.Context(), &a)
				if err != nil {
					t.Fatal(err)
				}
				reason = strings.TrimPrefix(reason, "node: ")
				want, wantReason, _ := c.theirs.Authorize(t.Context(), theirs(&a))
				if decisions[decision] != want || reason != wantReason {
					t.Fatalf("%+v\nhave %v %q\nwant %v %q", a, decisions[decision], reason, want, wantReason)
				}
				total++
				if decision == access.Allow {
					allowed++
					switch a.Resource {
					case "secrets", "configmaps", "persistentvolumeclaims", "persistentvolumes", "resourceclaims":
						related++
					}
				}
			}
		}
	}
	t.Logf("%d requests, %d allowed, %d of them by a relation", total, allowed, related)
	if allowed < total/15 || related < total/40 {
		t.Errorf("of %d requests only %d are allowed, and %d by a relation", total, allowed, related)
	}
}
