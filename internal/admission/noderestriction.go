package admission

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/authz"
	"plinth/internal/builtin/validation"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

// nodeRestriction is the plugin NodeRestriction: what a kubelet may write of that which the authorization mode Node
// allows every kubelet to write. It writes its own Node, the status of the Pods on it, its Lease and CSINode, and asks
// for tokens and certificates of the Pods on it.
type nodeRestriction struct {
	objects  *objects
	features featuresOfNodes
}

// featuresOfNodes are the gates on which the plugin depends.
type featuresOfNodes struct{ anyRequest, audiences, podCertificates, volumeHealth bool }

// newNodeRestriction makes the plugin.
func newNodeRestriction(c *Config) (steps, error) {
	n := &nodeRestriction{c.objects, featuresOfNodes{
		anyRequest:      c.Features.On(features.AllowInsecureKubeletCertificateSigningRequests),
		audiences:       c.Features.On(features.ServiceAccountNodeAudienceRestriction),
		podCertificates: c.Features.On(features.PodCertificateRequest),
		volumeHealth:    c.Features.On(features.CSIVolumeHealth),
	}}
	return steps{admit: n.admit}, nil
}

func (n *nodeRestriction) admit(ctx context.Context, a *engine.Attributes) error {
	node, ok := authz.NodeOf(&a.Request.User)
	if !ok || a.Operation == engine.OperationConnect {
		return nil
	}
	if node == "" {
		return forbidden(a, fmt.Sprintf("could not determine node from user %q", a.Request.User.Name))
	}
	r := a.Request.Resource
	switch [2]string{r.Group, r.Name} {
	case [2]string{"", "pods"}:
		return n.pod(ctx, a, node)
	case [2]string{"", "nodes"}:
		return ownNode(a, node)
	case [2]string{"", "persistentvolumeclaims"}:
		return claimStatus(a, node)
	case [2]string{"", "serviceaccounts"}:
		return n.token(ctx, a, node)
	case [2]string{certificatesGroup, "podcertificaterequests"}:
		return n.podCertificate(ctx, a, node)
	case [2]string{"coordination.k8s.io", "leases"}:
		return ownLease(a, node)
	case [2]string{"storage.k8s.io", "csinodes"}:
		return n.ownCSINode(a, node)
	case [2]string{"resource.k8s.io", "resourceslices"}:
		return ownSlice(a, node)
	case [2]string{certificatesGroup, signingRequests}:
		return n.signingRequest(a, node)
	}
	return nil
}

// subresource is the name of the subresource of a request.
func subresource(a *engine.Attributes) string {
	if sub := a.Request.Subresource; sub != nil {
		return sub.Name
	}
	return ""
}

// unexpected is the refusal of an operation.
func unexpected(a *engine.Attributes) error {
	return forbidden(a, fmt.Sprintf("unexpected operation %q", a.Operation))
}

// storedPod returns a Pod, or the error that there is none.
func (n *nodeRestriction) storedPod(ctx context.Context, namespace, name string) (object.Value, error) {
	return n.stored(ctx, kindOf{"", "v1", "pods"}, namespace, name)
}

// stored is objects.get for an object that has to exist. The error has the name that the reference's listers have for
// the type: the singular.
func (n *nodeRestriction) stored(ctx context.Context, k kindOf, namespace, name string) (object.Value, error) {
	obj, err := n.objects.get(ctx, k, namespace, name)
	if err == nil && obj.IsNull() {
		err = apierr.NewNotFound(apierr.Type{Group: k.group, Name: strings.TrimSuffix(k.resource, "s")}, name)
	}
	return obj, err
}

func uidOf(obj object.Value) string { return obj.At("metadata", "uid").Str() }

// pod limits writes of Pods to those on the node.
func (n *nodeRestriction) pod(ctx context.Context, a *engine.Attributes, node string) error {
	switch sub := subresource(a); sub {
	case "":
	case "status":
		return podStatus(a, node)
	case "eviction":
		if a.Operation != engine.OperationCreate {
			return forbidden(a, "unexpected operation "+a.Operation.String())
		}
		if a.Name == "" {
			return forbidden(a, "could not determine pod from request data")
		}
		pod, err := n.storedPod(ctx, a.Request.Namespace, a.Name)
		if err == nil && nodeName(pod) != node {
			err = forbidden(a, fmt.Sprintf("node %s can only evict pods with spec.nodeName set to itself", node))
		}
		return err
	default:
		return forbidden(a, fmt.Sprintf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", sub))
	}
	switch a.Operation {
	case engine.OperationCreate:
		return n.mirrorPod(ctx, a, node)
	case engine.OperationDelete:
		pod, err := n.storedPod(ctx, a.Request.Namespace, a.Name)
		if err == nil && nodeName(pod) != node {
			err = forbidden(a, fmt.Sprintf("node %q can only delete pods with spec.nodeName set to itself", node))
		}
		return err
	}
	return forbidden(a, fmt.Sprintf("unexpected operation %q, node %q can only create and delete mirror pods",
		a.Operation, node))
}

func nodeName(pod object.Value) string { return pod.At("spec", "nodeName").Str() }

// mirrorPod limits new Pods to the mirrors of those that the kubelet runs by itself. These need nothing of the API.
func (n *nodeRestriction) mirrorPod(ctx context.Context, a *engine.Attributes, node string) error {
	refuse := func(format string, args ...any) error { return forbidden(a, fmt.Sprintf(format, args...)) }
	pod := a.Object
	if pod.At("metadata", "annotations", corev1.MirrorPodAnnotationKey).IsNull() {
		return refuse("pod does not have %q annotation, node %q can only create mirror pods",
			corev1.MirrorPodAnnotationKey, node)
	}
	if nodeName(pod) != node {
		return refuse("node %q can only create pods with spec.nodeName set to itself", node)
	}
	owners := pod.At("metadata", "ownerReferences").Items()
	if len(owners) > 1 {
		return refuse("node %q can only create pods with a single owner reference set to itself", node)
	}
	if len(owners) == 0 || owners[0].At("apiVersion").Str() != "v1" || owners[0].At("kind").Str() != "Node" ||
		owners[0].At("name").Str() != node {
		return refuse("node %q can only create pods with an owner reference set to itself", node)
	}
	owner := owners[0]
	if !owner.At("controller").Bool() {
		return refuse("node %q can only create pods with a controller owner reference set to itself", node)
	}
	if owner.At("blockOwnerDeletion").Bool() {
		return refuse("node %q must not set blockOwnerDeletion on an owner reference", node)
	}
	stored, err := n.stored(ctx, kindOf{"", "v1", "nodes"}, "", node)
	if err != nil {
		return err
	}
	if uid := owner.At("uid").Str(); uid != uidOf(stored) {
		return refuse("node %s UID mismatch: expected %s got %s", node, uid, uidOf(stored))
	}
	what, err := reference(pod)
	if err != nil {
		return refuse("error checking mirror pod for API references: %v", err)
	}
	if what != "" {
		return refuse("node %q can not create pods that reference %s", node, what)
	}
	return nil
}

// plainVolumes are the volumes that need no object of the API.
var plainVolumes = []string{"awsElasticBlockStore", "azureDisk", "cephfs", "cinder", "downwardAPI", "emptyDir", "fc",
	"flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "hostPath", "image", "iscsi", "nfs", "photonPersistentDisk",
	"portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume"}

// apiVolumes are the other volumes, in the order in which they are looked for, and what they need.
var apiVolumes = [][2]string{{"configMap", "configmaps (via configmap volumes)"},
	{"secret", "secrets (via secret volumes)"}, {"csi", "csidrivers (via CSI volumes)"},
	{"glusterfs", "endpoints (via glusterFS volumes)"}, {"persistentVolumeClaim", "persistentvolumeclaims"},
	{"ephemeral", "persistentvolumeclaims (via ephemeral volumes)"},
	{"azureFile", "secrets (via azureFile volumes)"}}

// apiSources are the sources of projected volumes that need an object of the API.
var apiSources = [][2]string{{"configMap", "configmaps (via projected volumes)"},
	{"secret", "secrets (via projected volumes)"}, {"serviceAccountToken", "serviceaccounts (via projected volumes)"},
	{"clusterTrustBundle", "clustertrustbundles"}, {"podCertificate", "podcertificates"}}

// reference is what a Pod needs of the API; "": nothing. An unknown volume is an error.
func reference(pod object.Value) (string, error) {
	if pod.At("spec", "serviceAccountName").Str() != "" {
		return "serviceaccounts", nil
	}
	named := map[string]bool{}
	authz.VisitNames(pod, func(resource, _ string) { named[resource] = true })
	for _, resource := range []string{"secrets", "configmaps"} {
		if named[resource] {
			return resource, nil
		}
	}
	if pod.At("spec", "resourceClaims").Len() > 0 {
		return "resourceclaims", nil
	}
	for _, volume := range pod.At("spec", "volumes").Items() {
		has := func(source string) bool { return !volume.At(source).IsNull() }
		isOne := func(row [2]string) bool { return has(row[0]) }
		switch i := slices.IndexFunc(apiVolumes, isOne); {
		case slices.ContainsFunc(plainVolumes, has):
		case i >= 0:
			return apiVolumes[i][1], nil
		case has("projected"):
			if what, err := projectedReference(volume); what != "" || err != nil {
				return what, err
			}
		default:
			return "", fmt.Errorf("unknown volume type for volume  %q", volume.At("name").Str())
		}
	}
	return "", nil
}

// projectedReference is what a projected volume needs of the API.
func projectedReference(volume object.Value) (string, error) {
	for _, source := range volume.At("projected", "sources").Items() {
		i := slices.IndexFunc(apiSources, func(row [2]string) bool { return !source.At(row[0]).IsNull() })
		if i >= 0 {
			return apiSources[i][1], nil
		}
		if source.At("downwardAPI").IsNull() {
			return "", fmt.Errorf("unknown source for projected volume %q", volume.At("name").Str())
		}
	}
	return "", nil
}

// same says whether two values are equal, where an empty list is as good as none: some fields are always written.
func same(a, b object.Value) bool {
	switch {
	case a.Kind() == object.List || b.Kind() == object.List:
		return slices.EqualFunc(a.Items(), b.Items(), same)
	case a.Kind() == object.Map:
		return slices.EqualFunc(a.Members(), b.Members(), func(m, n object.Member) bool {
			return m.Key == n.Key && same(m.Value, n.Value)
		})
	}
	return object.Equal(a, b)
}

// podStatus limits writes of the status of Pods to those on the node, and to what a kubelet knows.
func podStatus(a *engine.Attributes, node string) error {
	if a.Operation != engine.OperationUpdate {
		return unexpected(a)
	}
	before, after := a.Old.At("status"), a.Object.At("status")
	switch {
	case nodeName(a.Old) != node:
		return forbidden(a, fmt.Sprintf("node %q can only update pod status for pods with spec.nodeName set to itself",
			node))
	case !same(a.Old.At("metadata", "labels"), a.Object.At("metadata", "labels")):
		return forbidden(a, fmt.Sprintf("node %q cannot update labels through pod status", node))
	case !same(before.At("resourceClaimStatuses"), after.At("resourceClaimStatuses")):
		return forbidden(a, fmt.Sprintf("node %q cannot update resource claim statues", node))
	case !same(before.At("extendedResourceClaimStatus"), after.At("extendedResourceClaimStatus")):
		return forbidden(a, fmt.Sprintf("node %q cannot update extended resource claim status", node))
	case !same(before.At("nodeAllocatableResourceClaimStatuses"), after.At("nodeAllocatableResourceClaimStatuses")):
		return forbidden(a, fmt.Sprintf("node %q cannot update node allocatable resource claim statuses", node))
	}
	return nil
}

// claimStatus limits writes of PersistentVolumeClaims to what a kubelet says when it has grown a volume.
func claimStatus(a *engine.Attributes, node string) error {
	if subresource(a) != "status" {
		return forbidden(a, "may only update PVC status")
	}
	if a.Operation != engine.OperationUpdate {
		return unexpected(a)
	}
	rest := func(claim object.Value) object.Value {
		status, meta := claim.At("status"), claim.At("metadata")
		for _, name := range []string{"capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"} {
			status = status.Without(name)
		}
		if status.Len() == 0 {
			claim = claim.Without("status")
		} else {
			claim = claim.With("status", status)
		}
		return claim.With("metadata", meta.Without("resourceVersion").Without("managedFields"))
	}
	before, after := rest(a.Old), rest(a.Object)
	if same(before, after) {
		return nil
	}
	var differ []string
	for _, m := range []string{"metadata", "spec", "status"} {
		if !same(before.At(m), after.At(m)) {
			differ = append(differ, m)
		}
	}
	return forbidden(a, fmt.Sprintf("node %q is not allowed to update fields other than status.quantity and "+
		"status.conditions: %s", node, strings.Join(differ, ", ")))
}

// ownNode limits writes of Nodes to its own, and keeps it from choosing which Pods it gets: by taints, by labels that
// others have to set, and by what it may read.
func ownNode(a *engine.Attributes, node string) error {
	refuse := func(format string, args ...any) error { return forbidden(a, fmt.Sprintf(format, args...)) }
	if a.Name != node {
		return refuse("node %q is not allowed to modify node %q", node, a.Name)
	}
	now, old := a.Object, a.Old
	source := now.At("spec", "configSource")
	wrong := forbiddenLabels(now.At("metadata", "labels"), old.At("metadata", "labels"))
	switch a.Operation {
	case engine.OperationCreate:
		if !source.IsNull() {
			return refuse("node %q is not allowed to create pods with a non-nil configSource", node)
		}
		if len(wrong) > 0 {
			return refuse("node %q is not allowed to set the following labels: %s", node, strings.Join(wrong, ", "))
		}
	case engine.OperationUpdate:
		switch {
		case !source.IsNull() && !same(source, old.At("spec", "configSource")):
			return refuse("node %q is not allowed to update configSource to a new non-nil configSource", node)
		case !same(now.At("spec", "taints"), old.At("spec", "taints")):
			return refuse("node %q is not allowed to modify taints", node)
		case !same(now.At("metadata", "ownerReferences"), old.At("metadata", "ownerReferences")):
			return refuse("node %q is not allowed to modify ownerReferences", node)
		case len(wrong) > 0:
			return refuse("is not allowed to modify labels: %s", strings.Join(wrong, ", "))
		}
	}
	return nil
}

// kubeletLabels are the labels of Kubernetes that a kubelet may set on its Node.
var kubeletLabels = []string{corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
	corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType,
	corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os",
	"beta.kubernetes.io/arch"}

// forbiddenLabels are the labels that differ and that a kubelet may not change, sorted.
func forbiddenLabels(now, old object.Value) []string {
	wrong := map[string]bool{}
	compare := func(a, b object.Value) {
		for _, m := range a.Members() {
			if other, ok := b.Get(m.Key); (!ok || other.Str() != m.Value.Str()) && !kubeletMayLabel(m.Key) {
				wrong[m.Key] = true
			}
		}
	}
	compare(now, old)
	compare(old, now)
	return slices.Sorted(maps.Keys(wrong))
}

// kubeletMayLabel says whether a kubelet may set a label on its Node: none of Kubernetes except for those that it sets.
// Those with which an administrator restricts nodes (node-restriction.kubernetes.io) are of Kubernetes.
func kubeletMayLabel(key string) bool {
	prefix, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		prefix = ""
	}
	within := func(domain string) bool { return prefix == domain || strings.HasSuffix(prefix, "."+domain) }
	if !within("kubernetes.io") && !within("k8s.io") {
		return true
	}
	return slices.Contains(kubeletLabels, key) || within(corev1.LabelNamespaceSuffixKubelet) ||
		within(corev1.LabelNamespaceSuffixNode)
}

// token limits tokens to those of Pods on the node, and to audiences for which a Pod needs them.
func (n *nodeRestriction) token(ctx context.Context, a *engine.Attributes, node string) error {
	if a.Operation != engine.OperationCreate || subresource(a) != "token" {
		return nil
	}
	bound := a.Object.At("spec", "boundObjectRef")
	if bound.At("apiVersion").Str() != "v1" || bound.At("kind").Str() != "Pod" || bound.At("name").Str() == "" {
		return forbidden(a, "node requested token not bound to a pod")
	}
	uid := bound.At("uid").Str()
	if uid == "" {
		return forbidden(a, "node requested token with a pod binding without a uid")
	}
	pod, err := n.storedPod(ctx, a.Request.Namespace, bound.At("name").Str())
	switch {
	case err != nil:
		return err
	case uid != uidOf(pod):
		return forbidden(a, fmt.Sprintf("the UID in the bound object reference (%s) does not match the UID in record. "+
			"The object might have been deleted and then recreated", uid))
	case nodeName(pod) != node:
		return forbidden(a, "node requested token bound to a pod scheduled on a different node")
	case n.features.audiences:
		return n.audience(ctx, a, pod)
	}
	return nil
}

// audience refuses a token for an audience for which the Pod has no volume, unless the kubelet may ask for it.
func (n *nodeRestriction) audience(ctx context.Context, a *engine.Attributes, pod object.Value) error {
	audience := ""
	switch all := a.Object.At("spec", "audiences").Items(); len(all) {
	case 0:
	case 1:
		audience = all[0].Str()
	default:
		return forbidden(a, "node may only request 0 or 1 audiences")
	}
	found, errs := n.usesAudience(ctx, pod, audience)
	switch {
	case found:
		return nil
	case len(errs) > 0:
		return forbidden(a, fmt.Sprintf("error validating audience %q: %s", audience, together(errs)))
	}
	allowed, err := n.authorized(ctx, a, "request-serviceaccounts-token-audience", audience, a.Name)
	user := a.Request.User.Name
	switch {
	case allowed:
		return nil
	case err != nil:
		return forbidden(a, fmt.Sprintf("error authorizing %s to request tokens for audience %q: %v", user, audience, err))
	}
	return forbidden(a, fmt.Sprintf("%s is not authorized to request tokens for audience %q", user, audience))
}

// authorized asks whether the kubelet may do a verb that is none of HTTP.
func (n *nodeRestriction) authorized(ctx context.Context, a *engine.Attributes, verb, resource, name string) (bool,
	error) {
	r := a.Request.Resource
	allowed, _, err := a.Request.Allowed(ctx, access.Attributes{
		Verb: verb, Group: r.Group, Version: r.Version, Resource: resource,
		Namespace: a.Request.Namespace, Name: name, IsResource: true,
	})
	return allowed, err
}

// migrated are the volumes of the tree of Kubernetes that a CSI driver serves today, and its name.
var migrated = [][2]string{{"awsElasticBlockStore", "ebs.csi.aws.com"}, {"azureDisk", "disk.csi.azure.com"},
	{"azureFile", "file.csi.azure.com"}, {"cinder", "cinder.csi.openstack.org"},
	{"gcePersistentDisk", "pd.csi.storage.gke.io"}, {"portworxVolume", "pxd.portworx.com"},
	{"vsphereVolume", "csi.vsphere.vmware.com"}}

// driverOf is the CSI driver of a volume of a Pod, or of a PersistentVolume, by its source; "": it has none. persistent
// is the PersistentVolume, null for a volume of a Pod.
func driverOf(source, persistent object.Value) (string, error) {
	if csi := source.At("csi"); !csi.IsNull() {
		return csi.At("driver").Str(), nil
	}
	kind := source.At("azureDisk", "kind")
	if !kind.IsNull() && !strings.EqualFold(kind.Str(), string(corev1.AzureManagedDisk)) {
		return "", unknown(fmt.Sprintf("kind(%s) is not supported in csi migration", kind.Str()))
	}
	for _, row := range migrated {
		if !source.At(row[0]).IsNull() {
			return row[1], untranslatable(source, persistent)
		}
	}
	return "", nil
}

// usesAudience says whether a volume of the Pod needs a token for an audience: a projected one, or one of a CSI driver
// that asks for such tokens.
func (n *nodeRestriction) usesAudience(ctx context.Context, pod object.Value, audience string) (found bool,
	errs []string) {
	for _, volume := range pod.At("spec", "volumes").Items() {
		for _, source := range volume.At("projected", "sources").Items() {
			if token := source.At("serviceAccountToken"); !token.IsNull() && token.At("audience").Str() == audience {
				return true, nil
			}
		}
		driver, err := n.driverOfVolume(ctx, pod, volume)
		if err == nil && driver != "" {
			found, err = n.driverAsks(ctx, driver, audience)
		}
		if err != nil {
			errs = append(errs, apierr.From(err).Message)
		}
		if found {
			return true, nil
		}
	}
	return false, errs
}

// driverOfVolume is the CSI driver of a volume of a Pod; that of a claim is found by the volume that it is bound to.
func (n *nodeRestriction) driverOfVolume(ctx context.Context, pod, volume object.Value) (string, error) {
	name := volume.At("persistentVolumeClaim", "claimName").Str()
	switch {
	case !volume.At("ephemeral", "volumeClaimTemplate").IsNull():
		name = pod.At("metadata", "name").Str() + "-" + volume.At("name").Str()
	case volume.At("persistentVolumeClaim").IsNull():
		return driverOf(volume, object.Value{})
	}
	claim, err := n.stored(ctx, kindOf{"", "v1", "persistentvolumeclaims"}, pod.At("metadata", "namespace").Str(), name)
	if err != nil {
		return "", err
	}
	bound, err := n.stored(ctx, kindOf{"", "v1", "persistentvolumes"}, "", claim.At("spec", "volumeName").Str())
	if err != nil {
		return "", err
	}
	return driverOf(bound.At("spec"), bound)
}

// driverAsks says whether a CSI driver asks for tokens for an audience.
func (n *nodeRestriction) driverAsks(ctx context.Context, name, audience string) (bool, error) {
	driver, err := n.stored(ctx, kindOf{"storage.k8s.io", "v1", "csidrivers"}, "", name)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(driver.At("spec", "tokenRequests").Items(), func(v object.Value) bool {
		return v.At("audience").Str() == audience
	}), nil
}

// podCertificate limits PodCertificateRequests to those of Pods on the node, for signers that they name. What may be an
// outdated kubelet is no refusal, so that it tries again.
func (n *nodeRestriction) podCertificate(ctx context.Context, a *engine.Attributes, node string) error {
	refuse := func(format string, args ...any) error { return forbidden(a, fmt.Sprintf(format, args...)) }
	switch {
	case !n.features.podCertificates:
		return refuse("PodCertificateRequest feature gate is disabled")
	case a.Operation != engine.OperationCreate:
		return refuse("unexpected operation %v", a.Operation)
	case subresource(a) != "":
		return refuse("unexpected subresource %v", subresource(a))
	}
	namespace, spec := a.Request.Namespace, a.Object.At("spec")
	text := func(name string) string { return spec.At(name).Str() }
	if text("nodeName") != node {
		return refuse("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", text("nodeName"), node)
	}
	stored, err := n.stored(ctx, kindOf{"", "v1", "nodes"}, "", node)
	if err != nil {
		return during(err, "while retrieving node %q named in the PodCertificateRequest", node)
	}
	podName := namespace + "/" + text("podName")
	if uidOf(stored) != text("nodeUID") {
		return unknown(fmt.Sprintf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running "+
			"node (%q)", podName, text("nodeUID"), uidOf(stored)))
	}
	pod, err := n.storedPod(ctx, namespace, text("podName"))
	if err != nil {
		return during(err, "while retrieving pod %q named in the PodCertificateRequest", podName)
	}
	account := pod.At("spec", "serviceAccountName").Str()
	switch {
	case text("podUID") != uidOf(pod):
		return unknown(fmt.Sprintf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q",
			podName, text("podUID"), uidOf(pod)))
	case nodeName(pod) != node:
		return refuse("pod %q is not running on node %q named in the PodCertificateRequest", podName, node)
	case !pod.At("metadata", "annotations", corev1.MirrorPodAnnotationKey).IsNull():
		return refuse("pod %q is a mirror pod", podName)
	case text("serviceAccountName") != account:
		return refuse("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)",
			podName, text("serviceAccountName"), account)
	}
	found, err := n.stored(ctx, kindOf{"", "v1", "serviceaccounts"}, namespace, account)
	if err != nil {
		return during(err, "while retrieving service account %q named in the PodCertificateRequest", namespace+"/"+account)
	}
	if text("serviceAccountUID") != uidOf(found) {
		return unknown(fmt.Sprintf("PodCertificateRequest for pod %q names service account UID %q, which differs from the "+
			"running service account (%q)", podName, text("serviceAccountUID"), uidOf(found)))
	}
	return n.podSigner(ctx, a, pod, podName, text("signerName"), account)
}

// during is an error of something that was read, which clients do not see as one of their request.
func during(err error, format string, args ...any) error {
	return unknown(fmt.Sprintf(format, args...) + ": " + apierr.From(err).Message)
}

// podSigner refuses a signer for which the Pod has no volume, unless the kubelet may ask for it.
func (n *nodeRestriction) podSigner(ctx context.Context, a *engine.Attributes, pod object.Value, podName, signer,
	account string) error {
	for _, volume := range pod.At("spec", "volumes").Items() {
		for _, source := range volume.At("projected", "sources").Items() {
			if c := source.At("podCertificate"); !c.IsNull() && c.At("signerName").Str() == signer {
				return nil
			}
		}
	}
	// As in the names of ClusterTrustBundles, a colon is in the place of a slash, which no resource has.
	allowed, err := n.authorized(ctx, a, "request-serviceaccounts-podcertificate-signer",
		strings.ReplaceAll(signer, "/", ":"), account)
	switch {
	case allowed:
		return nil
	case err != nil:
		return forbidden(a, fmt.Sprintf("error authorizing %s to request podcertificaterequests for signer %q: %v",
			a.Request.User.Name, signer, err))
	}
	return forbidden(a, fmt.Sprintf("pod %q does not mount a podCertificate projected volume for signer %q", podName,
		signer))
}

// ownLease limits writes of Leases to that of the node.
func ownLease(a *engine.Attributes, node string) error {
	if a.Request.Namespace != corev1.NamespaceNodeLease {
		return forbidden(a, fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease))
	}
	if a.Name != node {
		return forbidden(a, "can only access node lease with the same name as the requesting node")
	}
	return nil
}

// ownCSINode limits writes of CSINodes to that of the node.
func (n *nodeRestriction) ownCSINode(a *engine.Attributes, node string) error {
	switch {
	case a.Name != node:
		return forbidden(a, "can only access CSINode with the same name as the requesting node")
	case subresource(a) != "status":
		return nil
	case !n.features.volumeHealth:
		return forbidden(a, "CSIVolumeHealth feature gate is disabled")
	case a.Operation != engine.OperationUpdate:
		return unexpected(a)
	case !same(a.Old.At("spec"), a.Object.At("spec")):
		return forbidden(a, fmt.Sprintf("node %q is not allowed to modify CSINode spec via status", node))
	}
	return nil
}

// ownSlice limits creates and deletes of ResourceSlices to those of the node. The authorizer judges other writes.
func ownSlice(a *engine.Attributes, node string) error {
	switch {
	case a.Operation == engine.OperationCreate && nodeName(a.Object) != node:
		return forbidden(a, "can only create ResourceSlice with the same NodeName as the requesting node")
	case a.Operation == engine.OperationDelete && nodeName(a.Old) != node:
		return forbidden(a, "can only delete ResourceSlice with the same NodeName as the requesting node")
	}
	return nil
}

// signingRequest limits requests for certificates of kubelets to those with the name of the node.
func (n *nodeRestriction) signingRequest(a *engine.Attributes, node string) error {
	signer := a.Object.At("spec", "signerName").Str()
	ofKubelets := signer == certificatesv1.KubeletServingSignerName ||
		signer == certificatesv1.KubeAPIServerClientKubeletSignerName
	if n.features.anyRequest || a.Operation != engine.OperationCreate || !ofKubelets {
		return nil
	}
	text, err := base64.StdEncoding.DecodeString(a.Object.At("spec", "request").Str())
	if err != nil {
		return forbidden(a, "unable to parse csr: "+err.Error())
	}
	request, err := validation.SigningRequest(text)
	if err != nil {
		return forbidden(a, "unable to parse csr: "+err.Error())
	}
	if request.Subject.CommonName != "system:node:"+node {
		return forbidden(a, "can only create a node CSR with CN=system:node:"+node)
	}
	return nil
}
