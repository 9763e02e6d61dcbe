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

// needed is an object that a Pod needs, in the Pod's namespace.
type needed struct{ resource, name string }

// pod is a Pod that has a node.
type pod struct {
	namespace, name, node string
	needs                 *view.Parsed[map[needed]bool]
}

// podsOfNodes is the Pods of each node, by its name.
//
//	byNode has node → list  ⇔  list is the Pods p of byName with p.node = node, and not empty
type podsOfNodes struct {
	byName shared[string, *pod]
	byNode shared[string, []*pod]
}

// compilePods is view.Compile. The list of a node is made anew once, however many of its Pods have changed.
func compilePods(before *podsOfNodes, changes iter.Seq[view.Change]) *podsOfNodes {
	var byName edit[string, *pod]
	var byNode edit[string, []*pod]
	if before != nil {
		byName.next, byNode.next = before.byName, before.byNode
	}
	gone, added := map[string]map[*pod]bool{}, map[string][]*pod{}
	for change := range changes {
		if old, ok := byName.next.get(change.Name); ok {
			byName.delete(change.Name)
			if gone[old.node] == nil {
				gone[old.node] = map[*pod]bool{}
			}
			gone[old.node][old] = true
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
		added[p.node] = append(added[p.node], p)
	}
	renew := func(node string) {
		old, _ := byNode.next.get(node)
		next := make([]*pod, 0, len(old)+len(added[node]))
		for _, p := range old {
			if !gone[node][p] {
				next = append(next, p)
			}
		}
		if next = append(next, added[node]...); len(next) == 0 {
			byNode.delete(node)
		} else {
			byNode.set(node, next)
		}
	}
	for node := range added {
		renew(node)
	}
	for node := range gone {
		if added[node] == nil {
			renew(node)
		}
	}
	return &podsOfNodes{byName.next, byNode.next}
}

// fieldOf is a selectable field of an object.
func fieldOf(v *store.Version, name string) string {
	for _, pair := range v.Sidecar.Fields {
		if pair.Name == name {
			return pair.Value
		}
	}
	return ""
}

// volumeSecrets are the places of a volume of a Pod that name a Secret.
var volumeSecrets = [][]string{
	{"azureFile", "secretName"}, {"cephfs", "secretRef", "name"}, {"cinder", "secretRef", "name"},
	{"flexVolume", "secretRef", "name"},
	{"rbd", "secretRef", "name"}, {"secret", "secretName"}, {"scaleIO", "secretRef", "name"},
	{"iscsi", "secretRef", "name"},
	{"storageos", "secretRef", "name"}, {"csi", "nodePublishSecretRef", "name"},
}

// needsOf is what a Pod needs of its namespace. A mirror Pod needs nothing: kubelets make them, and nobody is to give
// themselves what they name.
func needsOf(v *store.Version) (map[needed]bool, error) {
	obj, err := read(v)
	if err != nil {
		return nil, err
	}
	needs := map[needed]bool{}
	if _, mirror := obj.At("metadata", "annotations").Get("kubernetes.io/config.mirror"); mirror {
		return needs, nil
	}
	visitNames(obj, func(resource, name string) { needs[needed{resource, strings.Clone(name)}] = true })
	return needs, nil
}

// PodSecrets returns the names of the Secrets that a Pod names; some come more than once.
func PodSecrets(pod object.Value) (names []string) {
	visitNames(pod, func(resource, name string) {
		if resource == "secrets" {
			names = append(names, name)
		}
	})
	return names
}

// visitNames calls visit for each object of its namespace that a Pod names. The names are parts of the Pod's text.
func visitNames(pod object.Value, visit func(resource, name string)) {
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
	status := pod.At("status")
	for _, claim := range spec.At("resourceClaims").Items() {
		if name := claim.At("resourceClaimName"); !name.IsNull() {
			add("resourceclaims", name)
			continue
		}
		made := status.At("resourceClaimStatuses").Items()
		i := slices.IndexFunc(made, func(s object.Value) bool { return s.At("name").Str() == claim.At("name").Str() })
		if i >= 0 && !claim.At("resourceClaimTemplateName").IsNull() {
			add("resourceclaims", made[i].At("resourceClaimName"))
		}
	}
	add("resourceclaims", status.At("extendedResourceClaimStatus", "resourceClaimName"))
}

// volume is a PersistentVolume that is bound to a claim, and the Secrets that a kubelet needs for it.
type volume struct {
	claim   holder
	secrets []holder
}

// volumes is all PersistentVolumes that are bound.
//
//	byClaim has claim → names  ⇔  names are those of the volumes v of byName with v.claim = claim, and there are any
type volumes struct {
	byName  shared[string, *volume]
	byClaim shared[holder, []string]
}

// compileVolumes is view.Compile.
func compileVolumes(before *volumes, changes iter.Seq[view.Change]) *volumes {
	var byName edit[string, *volume]
	var byClaim edit[holder, []string]
	if before != nil {
		byName.next, byClaim.next = before.byName, before.byClaim
	}
	for change := range changes {
		if old, ok := byName.next.get(change.Name); ok {
			byName.delete(change.Name)
			names, _ := byClaim.next.get(old.claim)
			names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == change.Name })
			if byClaim.set(old.claim, names); len(names) == 0 {
				byClaim.delete(old.claim)
			}
		}
		if change.Version == nil {
			continue
		}
		if v := newVolume(change.Version); v != nil {
			byName.set(change.Name, v)
			names, _ := byClaim.next.get(v.claim)
			byClaim.set(v.claim, append(slices.Clip(names), change.Name))
		}
	}
	return &volumes{byName.next, byClaim.next}
}

// newVolume reads a PersistentVolume; nil if it is not bound.
func newVolume(v *store.Version) *volume {
	obj, err := read(v)
	spec := obj.At("spec")
	ref := spec.At("claimRef")
	if err != nil || ref.IsNull() {
		return nil
	}
	n := &volume{claim: holder{ref.At("namespace").Str(), ref.At("name").Str()}}
	add := func(namespace, name string) {
		if name != "" {
			n.secrets = append(n.secrets, holder{namespace, name})
		}
	}
	// Old objects do not say in which namespace the Secret is: that of the claim.
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

// needs says whether a node needs an object.
func (n *nodes) needs(node string, a *access.Attributes) bool {
	switch a.Resource {
	case "pods":
		p, ok := n.pods.Now().byName.get(a.Namespace + "/" + a.Name)
		return ok && p.node == node
	case "persistentvolumes":
		v, ok := n.volumes.Now().byName.get(a.Name)
		return ok && a.Namespace == "" && n.podsNeed(node, v.claim.namespace, needed{"persistentvolumeclaims", v.claim.name})
	case "volumeattachments", "resourceslices", "podcertificaterequests":
		return n.names(node, a)
	case "secrets":
		if n.podsNeed(node, a.Namespace, needed{a.Resource, a.Name}) {
			return true
		}
		return n.volumesNeed(node, holder{a.Namespace, a.Name})
	}
	return n.podsNeed(node, a.Namespace, needed{a.Resource, a.Name})
}

// podsNeed says whether a Pod of the node needs an object of its namespace.
func (n *nodes) podsNeed(node, namespace string, what needed) bool {
	pods, _ := n.pods.Now().byNode.get(node)
	for _, p := range pods {
		if p.namespace == namespace {
			if needs, _ := p.needs.Get(); needs[what] {
				return true
			}
		}
	}
	return false
}

// volumesNeed says whether a volume needs a Secret that is bound to a claim which a Pod of the node needs.
func (n *nodes) volumesNeed(node string, secret holder) bool {
	pods, _ := n.pods.Now().byNode.get(node)
	all := n.volumes.Now()
	for _, p := range pods {
		needs, _ := p.needs.Get()
		for what := range needs {
			if what.resource != "persistentvolumeclaims" {
				continue
			}
			bound, _ := all.byClaim.get(holder{p.namespace, what.name})
			for _, name := range bound {
				if v, ok := all.byName.get(name); ok && slices.Contains(v.secrets, secret) {
					return true
				}
			}
		}
	}
	return false
}

// names says whether an object names the node in its spec.
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
