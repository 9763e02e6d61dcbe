package authz

import (
	"iter"
	"slices"
	"strings"

	"plinth/internal/access"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/object"
)

// needed is an object that a Pod needs, in the namespace of the Pod.
type needed struct{ resource, name string }

// pod is a Pod that is bound to a node.
type pod struct {
	namespace, name, node string
	needs                 *view.Parsed[map[needed]bool]
}

// podsOfNodes has the Pods that are bound to a node.
//
//	byNode has node → list  ⇔  list is the Pods p of byName with p.node = node, and not empty
type podsOfNodes struct {
	byName shared[string, *pod] // by "namespace/name"
	byNode shared[string, []*pod]
}

// compilePods implements view.Compile. It reads the node of a Pod from the sidecar; what the Pod needs is parsed when
// it is first asked for.
func compilePods(before *podsOfNodes, changes iter.Seq[view.Change]) *podsOfNodes {
	if before == nil {
		before = &podsOfNodes{}
	}
	byName, byNode := edit[string, *pod]{next: before.byName}, lists[string, *pod]{}
	for change := range changes {
		if old, ok := byName.next.get(change.Name); ok {
			byName.delete(change.Name)
			byNode.remove(old.node, old)
		}
		if change.Version == nil {
			continue
		}
		p := &pod{node: fieldOf(change.Version, "spec.nodeName"), needs: view.Parse(change.Version, needsOf)}
		if p.node == "" {
			continue
		}
		p.namespace, p.name, _ = strings.Cut(change.Name, "/")
		byName.set(change.Name, p)
		byNode.add(p.node, p)
	}
	return &podsOfNodes{byName.next, byNode.update(before.byNode, nil)}
}

// fieldOf returns a selectable field of an object; "" if it has none of this name.
func fieldOf(v *store.Version, name string) string {
	for _, pair := range v.Sidecar.Fields {
		if pair.Name == name {
			return pair.Value
		}
	}
	return ""
}

// volumeSecrets are the paths of the names of Secrets in a volume of a Pod.
var volumeSecrets = [][]string{
	{"azureFile", "secretName"}, {"cephfs", "secretRef", "name"}, {"cinder", "secretRef", "name"},
	{"flexVolume", "secretRef", "name"},
	{"rbd", "secretRef", "name"}, {"secret", "secretName"}, {"scaleIO", "secretRef", "name"},
	{"iscsi", "secretRef", "name"},
	{"storageos", "secretRef", "name"}, {"csi", "nodePublishSecretRef", "name"},
}

// needsOf returns the objects that a Pod needs. A mirror Pod needs none: kubelets create mirror Pods themselves, and
// must not get access to a Secret by naming it.
func needsOf(v *store.Version) (map[needed]bool, error) {
	obj, err := read(v)
	if err != nil {
		return nil, err
	}
	needs := map[needed]bool{}
	if _, mirror := obj.At("metadata", "annotations").Get("kubernetes.io/config.mirror"); mirror {
		return needs, nil
	}
	VisitNames(obj, func(resource, name string) { needs[needed{resource, strings.Clone(name)}] = true })
	return needs, nil
}

// PodSecrets returns the names of the Secrets that a Pod names, with duplicates.
func PodSecrets(pod object.Value) (names []string) {
	VisitNames(pod, func(resource, name string) {
		if resource == "secrets" {
			names = append(names, name)
		}
	})
	return names
}

// VisitNames calls visit for each object of its namespace that a Pod names, as VisitPodSecretNames and its siblings in
// the reference. Names may be parts of the Pod's text, and may be repeated. It takes time linear in the size of the
// Pod, as any user who may create Pods chooses the number of names.
func VisitNames(pod object.Value, visit func(resource, name string)) {
	add := func(resource string, name object.Value) {
		if name.Str() != "" {
			visit(resource, name.Str())
		}
	}
	spec := pod.At("spec")
	add("serviceaccounts", spec.At("serviceAccountName"))
	for _, s := range spec.At("imagePullSecrets").Items() {
		add("secrets", s.At("name"))
	}
	for _, list := range []string{"initContainers", "containers", "ephemeralContainers"} {
		for _, c := range spec.At(list).Items() {
			for _, from := range c.At("envFrom").Items() {
				add("secrets", from.At("secretRef", "name"))
				add("configmaps", from.At("configMapRef", "name"))
			}
			for _, env := range c.At("env").Items() {
				add("secrets", env.At("valueFrom", "secretKeyRef", "name"))
				add("configmaps", env.At("valueFrom", "configMapKeyRef", "name"))
			}
		}
	}
	for _, volume := range spec.At("volumes").Items() {
		for _, place := range volumeSecrets {
			add("secrets", volume.At(place...))
		}
		add("configmaps", volume.At("configMap", "name"))
		for _, source := range volume.At("projected", "sources").Items() {
			add("secrets", source.At("secret", "name"))
			add("configmaps", source.At("configMap", "name"))
		}
		add("persistentvolumeclaims", volume.At("persistentVolumeClaim", "claimName"))
		if !volume.At("ephemeral").IsNull() {
			add("persistentvolumeclaims", object.StringOf(pod.At("metadata", "name").Str()+"-"+volume.At("name").Str()))
		}
	}
	visitClaims(pod, func(name object.Value) { add("resourceclaims", name) })
}

// visitClaims calls visit for each ResourceClaim of a Pod. The name of a claim that was created from a template is in
// the status of the Pod.
func visitClaims(pod object.Value, visit func(name object.Value)) {
	status := pod.At("status")
	generated := map[string]object.Value{} // the first one of each name counts
	for _, s := range status.At("resourceClaimStatuses").Items() {
		if name := s.At("name").Str(); generated[name].IsNull() {
			generated[name] = s
		}
	}
	for _, claim := range pod.At("spec", "resourceClaims").Items() {
		if name := claim.At("resourceClaimName"); !name.IsNull() {
			visit(name)
		} else if s := generated[claim.At("name").Str()]; !claim.At("resourceClaimTemplateName").IsNull() {
			visit(s.At("resourceClaimName"))
		}
	}
	visit(status.At("extendedResourceClaimStatus", "resourceClaimName"))
}

// volume is a PersistentVolume that is bound to a claim, and the Secrets that a kubelet needs for it.
type volume struct {
	claim   scopedName
	secrets []scopedName
}

// volumes has the PersistentVolumes that are bound.
//
//	byClaim has claim → list  ⇔  list is the volumes v of byName with v.claim = claim, and not empty
type volumes struct {
	byName  shared[string, *volume]
	byClaim shared[scopedName, []*volume]
}

// compileVolumes implements view.Compile.
func compileVolumes(before *volumes, changes iter.Seq[view.Change]) *volumes {
	if before == nil {
		before = &volumes{}
	}
	byName, byClaim := edit[string, *volume]{next: before.byName}, lists[scopedName, *volume]{}
	for change := range changes {
		if old, ok := byName.next.get(change.Name); ok {
			byName.delete(change.Name)
			byClaim.remove(old.claim, old)
		}
		if change.Version == nil {
			continue
		}
		if v := newVolume(change.Version); v != nil {
			byName.set(change.Name, v)
			byClaim.add(v.claim, v)
		}
	}
	return &volumes{byName.next, byClaim.update(before.byClaim, nil)}
}

// newVolume reads a PersistentVolume; nil if it is not bound or cannot be parsed.
func newVolume(v *store.Version) *volume {
	obj, err := read(v)
	spec := obj.At("spec")
	ref := spec.At("claimRef")
	if err != nil || ref.IsNull() {
		return nil
	}
	n := &volume{claim: scopedName{ref.At("namespace").Str(), ref.At("name").Str()}}
	add := func(namespace, name string) {
		if name != "" {
			n.secrets = append(n.secrets, scopedName{namespace, name})
		}
	}
	// Some references may be without a namespace, which is then that of the claim.
	orClaims := func(namespace string) string {
		if namespace == "" {
			return n.claim.namespace
		}
		return namespace
	}
	file := spec.At("azureFile")
	add(orClaims(file.At("secretNamespace").Str()), file.At("secretName").Str())
	for _, kind := range []string{"cephfs", "flexVolume", "rbd", "scaleIO", "iscsi"} {
		secret := spec.At(kind, "secretRef")
		add(orClaims(secret.At("namespace").Str()), secret.At("name").Str())
	}
	for _, place := range [][]string{
		{"cinder", "secretRef"}, {"storageos", "secretRef"},
		{"csi", "nodePublishSecretRef"}, {"csi", "nodeStageSecretRef"}, {"csi", "nodeExpandSecretRef"},
	} {
		secret := spec.At(place...)
		add(secret.At("namespace").Str(), secret.At("name").Str())
	}
	return n
}

// needs says whether a node needs an object: in the reference, whether its graph has a path from the object to the
// node. Pods and volumes that cannot be read need nothing: they only ever allow.
func (n *nodes) needs(node string, a *access.Attributes) bool {
	switch a.Resource {
	case "pods":
		pods, _ := n.pods.Now()
		p, ok := pods.byName.get(a.Namespace + "/" + a.Name)
		return ok && p.node == node
	case "persistentvolumes":
		volumes, _ := n.volumes.Now()
		v, ok := volumes.byName.get(a.Name)
		return ok && a.Namespace == "" && n.podsNeed(node, v.claim.namespace, needed{"persistentvolumeclaims", v.claim.name})
	case "volumeattachments", "resourceslices", "podcertificaterequests":
		return n.names(node, a)
	case "secrets":
		if n.podsNeed(node, a.Namespace, needed{a.Resource, a.Name}) {
			return true
		}
		return n.volumesNeed(node, scopedName{a.Namespace, a.Name})
	}
	return n.podsNeed(node, a.Namespace, needed{a.Resource, a.Name})
}

// podsNeed says whether a Pod of the node needs an object of its namespace. It looks at all Pods of the node, of which
// a kubelet has some hundreds at most.
func (n *nodes) podsNeed(node, namespace string, what needed) bool {
	bound, _ := n.pods.Now()
	pods, _ := bound.byNode.get(node)
	for _, p := range pods {
		if p.namespace == namespace {
			if needs, _ := p.needs.Get(); needs[what] {
				return true
			}
		}
	}
	return false
}

// volumesNeed says whether a Secret is needed by a volume that is bound to a claim of a Pod of the node.
func (n *nodes) volumesNeed(node string, secret scopedName) bool {
	byNode, _ := n.pods.Now()
	pods, _ := byNode.byNode.get(node)
	all, _ := n.volumes.Now()
	for _, p := range pods {
		needs, _ := p.needs.Get()
		for what := range needs {
			if what.resource != "persistentvolumeclaims" {
				continue
			}
			bound, _ := all.byClaim.get(scopedName{p.namespace, what.name})
			for _, v := range bound {
				if slices.Contains(v.secrets, secret) {
					return true
				}
			}
		}
	}
	return false
}

// names says whether spec.nodeName of an object is the node. The object is read from the store: there are few of these,
// so there is no view of them.
func (n *nodes) names(node string, a *access.Attributes) bool {
	key := store.Key{Resource: a.Group + "/" + a.Resource, Name: a.Name}
	if namespaced := a.Resource == "podcertificaterequests"; namespaced {
		key.Name = a.Namespace + "/" + a.Name
	} else if a.Namespace != "" {
		return false
	}
	v, ok := n.store.Get(key)
	if !ok {
		return false
	}
	obj, err := read(v)
	return err == nil && obj.At("spec", "nodeName").Str() == node
}
