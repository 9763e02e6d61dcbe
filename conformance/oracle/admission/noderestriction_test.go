package admission

import (
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// kubelet is the user of a node.
func kubelet(node string) user.DefaultInfo {
	return user.DefaultInfo{Name: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"}}
}

// nodeAttempt is an attempt of the kubelet of n1.
func nodeAttempt(operation admission.Operation, path, namespace, name, object, old string) attempt {
	parts := strings.Split(path, "/") // group/version/resource or group/version/resource/subresource
	a := attempt{operation: operation, group: parts[0], version: parts[1], resource: parts[2], namespace: namespace,
		name: name, object: object, old: old, user: kubelet("n1")}
	if len(parts) > 3 {
		a.subresource = parts[3]
	}
	return a
}

var nodeOperations = []admission.Operation{admission.Create, admission.Update, admission.Delete}

// compareNode compares an attempt as the kubelet of n1, as one without a name, and as a user who is none.
func (w *world) compareNode(t *testing.T, a attempt, count *tally) {
	t.Helper()
	w.compare(t, a, count)
	for _, other := range []user.DefaultInfo{kubelet(""), {Name: "system:node:n1"}, {Name: "jane",
		Groups: []string{"system:nodes"}}} {
		a.user = other
		w.compare(t, a, count)
	}
}

// migratedDrivers serve volumes that were part of Kubernetes. Each asks for tokens for an audience of its name.
var migratedDrivers = []string{"disk.csi.azure.com", "file.csi.azure.com", "cinder.csi.openstack.org",
	"pxd.portworx.com", "csi.vsphere.vmware.com"}

// translatedVolumes are volumes of the tree, each bound to a claim of its name: of some the translation to CSI fails.
func translatedVolumes() (objects []string) {
	zones := func(zones string) []string { return []string{"labels", "{topology.kubernetes.io/zone: " + zones + "}"} }
	for _, v := range []struct {
		name     string
		metadata []string
		source   string
	}{
		{"file", nil, "azureFile: {secretName: s, shareName: x}"},
		{"secret", nil, "azureFile: {secretName: s, shareName: x, secretNamespace: ns}"},
		{"claimed", nil, "claimRef: {namespace: ns, name: claimed}, azureFile: {secretName: s, shareName: x}"},
		{"zones", zones("us-east1-a__us-west1-a"), "gcePersistentDisk: {pdName: x}"},
		{"lettered", zones("a__b"), "gcePersistentDisk: {pdName: x}"},
		{"zone", zones("us-east1-a__us-east1-b"), "gcePersistentDisk: {pdName: x}"},
		{"alone", zones("somewhere"), "gcePersistentDisk: {pdName: x}"},
		{"elsewhere", zones("a__b"), "azureFile: {secretName: s, shareName: x, secretNamespace: ns}"},
		{"former", []string{"labels", "{failure-domain.beta.kubernetes.io/zone: us-east1-a__us-west1-a, " +
			"topology.kubernetes.io/zone: us-east1-a}"}, "gcePersistentDisk: {pdName: x}"},
	} {
		objects = append(objects,
			doc("v1", "PersistentVolumeClaim", "ns", v.name, nil, "spec", "{volumeName: "+v.name+
				", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}"),
			doc("v1", "PersistentVolume", "", v.name, v.metadata, "spec",
				"{accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, "+v.source+"}"))
	}
	return objects
}

// nodeWorld is two nodes with a Pod on each.
func nodeWorld(t *testing.T, change func(*world)) *world {
	w := &world{plugin: "NodeRestriction", objects: []string{
		doc("v1", "Node", "", "n1", nil), doc("v1", "Node", "", "n2", nil),
		doc("v1", "ServiceAccount", "ns", "sa", nil),
		doc("v1", "Pod", "ns", "here", nil, "spec",
			"{nodeName: n1, serviceAccountName: sa, containers: [{name: c, image: i}], "+
				"volumes: [{name: t, projected: {sources: [{serviceAccountToken: {audience: vault, path: p}}, "+
				"{podCertificate: {signerName: example.com/s, keyType: ED25519}}]}}, "+
				"{name: c, csi: {driver: csi.example.com}}, {name: e, ephemeral: {volumeClaimTemplate: {spec: {accessModes: "+
				"[ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}, {name: p, persistentVolumeClaim: {claimName: tree}}, "+
				"{name: g, gcePersistentDisk: {pdName: x}}, {name: d, azureDisk: {diskName: x, diskURI: z, kind: managed}}, "+
				"{name: f, azureFile: {secretName: s, shareName: x}}, {name: i, cinder: {volumeID: x}}, "+
				"{name: x, portworxVolume: {volumeID: x}}, {name: s, vsphereVolume: {volumePath: x}}]}"),
		doc("v1", "Pod", "ns", "lost", nil, "spec",
			"{nodeName: n1, serviceAccountName: gone, containers: [{name: c, image: i}], "+
				"volumes: [{name: p, persistentVolumeClaim: {claimName: none}}, {name: q, persistentVolumeClaim: {claimName: unbound}}, "+
				"{name: c, csi: {driver: none.example.com}}]}"),
		doc("v1", "Pod", "ns", "shared", nil, "spec",
			"{nodeName: n1, serviceAccountName: sa, containers: [{name: c, image: i}], "+
				"volumes: [{name: d, azureDisk: {diskName: x, diskURI: z}}, {name: t, projected: {sources: "+
				"[{serviceAccountToken: {audience: vault, path: p}}]}}]}"),
		doc("v1", "Pod", "ns", "odd", nil, "spec",
			"{nodeName: n1, serviceAccountName: sa, containers: [{name: c, image: i}], "+
				"volumes: [{name: a, awsElasticBlockStore: {volumeID: 'aws://zone/vol/x'}}, "+
				"{name: b, awsElasticBlockStore: {volumeID: 'aws://%zz/vol-x'}}, "+
				"{name: c, awsElasticBlockStore: {volumeID: 'aws://zone/vol-x/y'}}, "+
				"{name: h, awsElasticBlockStore: {volumeID: 'aws://zone/nvol-x'}}, "+
				"{name: p, persistentVolumeClaim: {claimName: former}}, "+
				"{name: f, persistentVolumeClaim: {claimName: file}}, {name: z, persistentVolumeClaim: {claimName: zones}}, "+
				"{name: l, persistentVolumeClaim: {claimName: lettered}}]}"),
		doc("v1", "Pod", "ns", "even", nil, "spec",
			"{nodeName: n1, serviceAccountName: sa, containers: [{name: c, image: i}], "+
				"volumes: [{name: a, awsElasticBlockStore: {volumeID: 'aws://zone/vol-x/'}}, "+
				"{name: b, awsElasticBlockStore: {volumeID: vol/x}}, {name: i, azureFile: {secretName: s, shareName: x}}, "+
				"{name: f, persistentVolumeClaim: {claimName: secret}}, {name: g, persistentVolumeClaim: {claimName: claimed}}, "+
				"{name: z, persistentVolumeClaim: {claimName: zone}}, {name: k, persistentVolumeClaim: {claimName: alone}}, "+
				"{name: e, persistentVolumeClaim: {claimName: elsewhere}}]}"),
		doc("v1", "Pod", "ns", "there", nil, "spec",
			"{nodeName: n2, serviceAccountName: sa, containers: [{name: c, image: i}]}"),
		doc("v1", "Pod", "ns", "mirror", []string{"annotations", "{kubernetes.io/config.mirror: x}"}, "spec",
			"{nodeName: n1, containers: [{name: c, image: i}]}"),
		doc("v1", "PersistentVolumeClaim", "ns", "here-e", nil, "spec",
			"{volumeName: v, accessModes: [ReadWriteOnce], "+
				"resources: {requests: {storage: 1Gi}}}"),
		doc("v1", "PersistentVolumeClaim", "ns", "tree", nil, "spec", "{volumeName: w, accessModes: [ReadWriteOnce], "+
			"resources: {requests: {storage: 1Gi}}}"),
		doc("v1", "PersistentVolumeClaim", "ns", "unbound", nil, "spec",
			"{volumeName: none, accessModes: [ReadWriteOnce], "+
				"resources: {requests: {storage: 1Gi}}}"),
		doc("v1", "PersistentVolume", "", "v", nil, "spec", "{accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, "+
			"csi: {driver: volume.example.com, volumeHandle: h}}"),
		doc("v1", "PersistentVolume", "", "w", nil, "spec", "{accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, "+
			"awsElasticBlockStore: {volumeID: vol-02399794d890f9375}}"),
		doc("storage.k8s.io/v1", "CSIDriver", "", "csi.example.com", nil, "spec",
			"{tokenRequests: [{audience: inline}]}"),
		doc("storage.k8s.io/v1", "CSIDriver", "", "volume.example.com", nil, "spec",
			"{tokenRequests: [{audience: bound}]}"),
		doc("storage.k8s.io/v1", "CSIDriver", "", "ebs.csi.aws.com", nil, "spec",
			"{tokenRequests: [{audience: tree}]}"),
		doc("storage.k8s.io/v1", "CSIDriver", "", "pd.csi.storage.gke.io", nil, "spec",
			"{tokenRequests: [{audience: gce}]}"),
	}}
	w.objects = append(w.objects, translatedVolumes()...)
	for _, name := range migratedDrivers {
		w.objects = append(w.objects, doc("storage.k8s.io/v1", "CSIDriver", "", name, nil, "spec",
			"{tokenRequests: [{audience: "+name+"}]}"))
	}
	w.allow = func(verb, _, _, _, _, _ string) bool {
		return !strings.HasPrefix(verb, "request-serviceaccounts")
	}
	if change != nil {
		change(w)
	}
	return w.build(t)
}

// SPEC: AUTH-3
func TestNodeRestrictionOfPods(t *testing.T) {
	count := tally{}
	w := nodeWorld(t, nil)
	const mirror, uid = "{kubernetes.io/config.mirror: x}", "uid-n1"
	owner := func(more ...string) string {
		return fields(append([]string{"apiVersion", "v1", "kind", "Node", "name", "n1", "uid", uid, "controller",
			"true"},
			more...)...)
	}
	create := func(meta []string, spec ...string) {
		t.Helper()
		spec = append([]string{"nodeName", "n1", "containers", "[{name: c, image: i}]"}, spec...)
		object := doc("v1", "Pod", "ns", "new", meta, "spec", fields(spec...))
		w.compareNode(t, nodeAttempt(admission.Create, "/v1/pods", "ns", "new", object, ""), &count)
	}
	good := []string{"annotations", mirror, "ownerReferences", "[" + owner() + "]"}
	create(good)
	create(good[2:])
	create(good[:2])
	for _, references := range []string{
		"[" + owner() + ", {apiVersion: v1, kind: Pod, name: n1, uid: a}]", "[" + owner("blockOwnerDeletion",
			"true") + "]",
		"[" + owner("blockOwnerDeletion", "false") + "]", "[{apiVersion: v1, kind: Node, name: n1, uid: uid-n1}]",
		"[{apiVersion: v1, kind: Node, name: n1, uid: uid-n1, controller: false}]",
		"[{apiVersion: v1, kind: Node, name: n1, uid: other, controller: true}]",
		"[{apiVersion: v1, kind: Node, name: n2, uid: uid-n2, controller: true}]",
		"[{apiVersion: v1, kind: Pod, name: n1, uid: uid-n1, controller: true}]",
		"[{apiVersion: v2, kind: Node, name: n1, uid: uid-n1, controller: true}]",
	} {
		create([]string{"annotations", mirror, "ownerReferences", references})
	}
	elsewhere := doc("v1", "Pod", "ns", "new", good, "spec", "{nodeName: n2, containers: [{name: c, image: i}]}")
	w.compareNode(t, nodeAttempt(admission.Create, "/v1/pods", "ns", "new", elsewhere, ""), &count)
	create(good, "serviceAccountName", "sa")
	create(good, "resourceClaims", "[{name: a, resourceClaimName: b}]")
	create(good, "imagePullSecrets", "[{name: s}]")
	for _, container := range []string{"env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]",
		"envFrom: [{configMapRef: {name: m}}]", "env: [{name: A, valueFrom: {configMapKeyRef: {name: m, key: k}}}]"} {
		object := doc("v1", "Pod", "ns", "new", good, "spec",
			"{nodeName: n1, containers: [{name: c, image: i, "+container+"}]}")
		w.compareNode(t, nodeAttempt(admission.Create, "/v1/pods", "ns", "new", object, ""), &count)
	}
	for _, source := range []string{
		"awsElasticBlockStore: {volumeID: a}", "azureDisk: {diskName: a, diskURI: b}", "cephfs: {monitors: [a]}",
		"cinder: {volumeID: a}", "downwardAPI: {}", "emptyDir: {}", "fc: {}", "flexVolume: {driver: a}", "flocker: {}",
		"gcePersistentDisk: {pdName: a}", "gitRepo: {repository: a}", "hostPath: {path: /a}", "image: {reference: a}",
		"iscsi: {targetPortal: a, iqn: b, lun: 1}", "nfs: {server: a, path: b}", "photonPersistentDisk: {pdID: a}",
		"portworxVolume: {volumeID: a}", "quobyte: {registry: a, volume: b}", "rbd: {monitors: [a], image: b}",
		"scaleIO: {gateway: a, system: b, secretRef: {}}", "storageos: {}", "vsphereVolume: {volumePath: a}",
		"configMap: {name: a}", "secret: {secretName: a}", "csi: {driver: a}", "glusterfs: {endpoints: a, path: b}",
		"persistentVolumeClaim: {claimName: a}", "ephemeral: {volumeClaimTemplate: {spec: {}}}",
		"azureFile: {secretName: a, shareName: b}", "configMap: {}", "azureFile: {shareName: b}", "secret: {}",
		"projected: {sources: []}", "projected: {sources: [{downwardAPI: {}}]}",
		"projected: {sources: [{downwardAPI: {}}, {configMap: {}}]}", "projected: {sources: [{secret: {}}]}",
		"projected: {sources: [{serviceAccountToken: {path: a}}]}",
		"projected: {sources: [{clusterTrustBundle: {name: a, path: b}}]}",
		"projected: {sources: [{podCertificate: {signerName: a/b, keyType: c}}]}", "projected: {sources: [{}]}",
		"cephfs: {monitors: [a], secretRef: {name: s}}",
	} {
		create(good, "volumes", "[{name: a, emptyDir: {}}, {name: v, "+source+"}]")
	}
	create(good, "volumes", "[{name: a, projected: {sources: [{downwardAPI: {}}]}}, {name: v, csi: {driver: a}}]")
	pod := func(name string) string { return doc("v1", "Pod", "ns", name, nil, "spec", "{containers: []}") }
	for _, name := range []string{"here", "there", "none", ""} {
		w.compareNode(t, nodeAttempt(admission.Delete, "/v1/pods", "ns", name, "", pod(name)), &count)
		eviction := doc("policy/v1", "Eviction", "ns", name, nil)
		w.compareNode(t, nodeAttempt(admission.Create, "/v1/pods/eviction", "ns", name, eviction, ""), &count)
	}
	evicted := doc("policy/v1", "Eviction", "ns", "here", nil)
	w.compareNode(t, nodeAttempt(admission.Create, "/v1/pods/eviction", "ns", "", evicted, ""), &count)
	w.compareNode(t, nodeAttempt(admission.Delete, "/v1/pods/eviction", "ns", "here", "", evicted), &count)
	create(good, "volumes", "[{name: v}]")
	third := nodeAttempt(admission.Create, "/v1/pods", "ns", "new", doc("v1", "Pod", "ns", "new", []string{"annotations",
		mirror, "ownerReferences", "[{apiVersion: v1, kind: Node, name: n3, uid: uid-n3, controller: true}]"}, "spec",
		"{nodeName: n3, containers: [{name: c, image: i}]}"), "")
	third.user = kubelet("n3") // a node that is not there
	w.compare(t, third, &count)
	w.compareNode(t, nodeAttempt(admission.Update, "/v1/pods", "ns", "here", pod("here"), pod("here")), &count)
	w.compareNode(t, nodeAttempt(admission.Create, "/v1/pods/binding", "ns", "here", doc("v1", "Binding", "ns",
		"here", nil,
		"target", "{name: n1}"), ""), &count)
	w.compareNode(t, nodeAttempt(admission.Update, "/v1/pods/resize", "ns", "here", pod("here"), pod("here")), &count)
	status := func(labels, spec, status string) string {
		return doc("v1", "Pod", "ns", "here", []string{"labels", labels}, "spec", "{nodeName: "+spec+"}", "status",
			status)
	}
	const claims = "resourceClaimStatuses: [{name: a, resourceClaimName: b}]"
	const extended = "extendedResourceClaimStatus: {resourceClaimName: a, requestMappings: [{containerName: c, " +
		"resourceName: r, requestName: q}]}"
	const allocatable = "nodeAllocatableResourceClaimStatuses: [{resourceClaimName: a, containers: [c], " +
		"mapping: [{name: cpu, quantity: 1}]}]"
	all := []string{"{}", "{resourceClaimStatuses: []}", "{" + claims + "}", "{resourceClaimStatuses: [{name: a}]}",
		"{resourceClaimStatuses: [{name: a, resourceClaimName: c}]}", "{" + extended + "}",
		"{extendedResourceClaimStatus: {resourceClaimName: b, requestMappings: []}}", "{" + allocatable + "}",
		"{extendedResourceClaimStatus: {resourceClaimName: b}}", "{extendedResourceClaimStatus: {}}",
		"{nodeAllocatableResourceClaimStatuses: [{resourceClaimName: a, containers: [c], mapping: [{name: cpu, " +
			"quantity: 1000m}]}]}",
		"{nodeAllocatableResourceClaimStatuses: [{resourceClaimName: a, containers: []}]}",
		"{nodeAllocatableResourceClaimStatuses: [{resourceClaimName: a, mapping: []}]}",
		"{phase: Running}"}
	for _, before := range all {
		for _, after := range all {
			w.compareNode(t, nodeAttempt(admission.Update, "/v1/pods/status", "ns", "here", status("", "n1", after),
				status("", "n1", before)), &count)
		}
	}
	w.compareNode(t, nodeAttempt(admission.Update, "/v1/pods/status", "ns", "here", status("{a: b}", "n1", "{}"),
		status("", "n1", "{}")), &count)
	for _, labels := range []string{"{a: b}", "{c: b}"} {
		w.compareNode(t, nodeAttempt(admission.Update, "/v1/pods/status", "ns", "here", status("{a: b}", "n1", "{}"),
			status(labels, "n1", "{}")), &count)
	}
	w.compareNode(t, nodeAttempt(admission.Update, "/v1/pods/status", "ns", "here", status("{}", "n2", "{}"),
		status("", "n2", "{}")), &count)
	w.compareNode(t, nodeAttempt(admission.Create, "/v1/pods/status", "ns", "here", status("{}", "n1", "{}"), ""),
		&count)
	count.atLeast(t, 0, 150, 200)
}

// SPEC: AUTH-3
func TestNodeRestrictionOfNodes(t *testing.T) {
	count := tally{}
	w := nodeWorld(t, nil)
	node := func(name, labels, owners, spec string) string {
		return doc("v1", "Node", "", name, []string{"labels", labels, "ownerReferences", owners}, "spec", spec)
	}
	both := func(name, now, old string) {
		t.Helper()
		w.compareNode(t, nodeAttempt(admission.Create, "/v1/nodes", "", name, now, ""), &count)
		w.compareNode(t, nodeAttempt(admission.Update, "/v1/nodes", "", name, now, old), &count)
		w.compareNode(t, nodeAttempt(admission.Update, "/v1/nodes/status", "", name, now, old), &count)
	}
	plain := node("n1", "", "", "")
	both("n1", plain, plain)
	both("n2", node("n2", "", "", ""), node("n2", "", "", ""))
	for _, name := range []string{"n1", "n2", ""} {
		w.compareNode(t, nodeAttempt(admission.Delete, "/v1/nodes", "", name, "", plain), &count)
	}
	const source = "{configSource: {configMap: {namespace: a, name: b, kubeletConfigKey: c}}}"
	both("n1", node("n1", "", "", source), plain)
	both("n1", node("n1", "", "", source), node("n1", "", "", source))
	both("n1", plain, node("n1", "", "", source))
	both("n1", node("n1", "", "", "{taints: [{key: a, effect: NoSchedule}]}"), plain)
	both("n1", plain, node("n1", "", "", "{taints: [{key: a, effect: NoSchedule}]}"))
	owned := node("n1", "", "[{apiVersion: v1, kind: Pod, name: a, uid: b}]", "")
	both("n1", owned, plain)
	both("n1", owned, owned)
	both("n1", node("n1", `{k8s.io/a: ""}`, "", ""), plain)
	both("n1", plain, node("n1", `{k8s.io/a: ""}`, "", ""))
	for _, label := range []string{"a", "example.com/a", "kubernetes.io", "k8s.io", "kubernetes.io/hostname",
		"kubernetes.io/other", "k8s.io/a",
		"x.k8s.io/a",
		"xk8s.io/a", "node-restriction.kubernetes.io/a", "x.node-restriction.kubernetes.io/a",
		"kubelet.kubernetes.io/a",
		"x.kubelet.kubernetes.io/a", "node.kubernetes.io/a", "x.node.kubernetes.io/a", "beta.kubernetes.io/os",
		"beta.kubernetes.io/arch", "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/os",
		"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region", "kubernetes.io/arch",
		"beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type", "node-role.kubernetes.io/control-plane",
	} {
		one, two := node("n1", "{"+label+": x}", "", ""), node("n1", "{"+label+": z, k8s.io/stays: a}", "", "")
		both("n1", one, plain)
		both("n1", plain, one)
		both("n1", one, two)
		both("n1", two, two)
	}
	csi := func(name string) string {
		return doc("storage.k8s.io/v1", "CSINode", "", name, nil, "spec", "{drivers: []}")
	}
	lease := func(name, in string) string { return doc("coordination.k8s.io/v1", "Lease", in, name, nil) }
	slice := func(name string) string {
		return doc("resource.k8s.io/v1", "ResourceSlice", "", "s", nil, "spec", fields("nodeName", name, "driver", "d",
			"pool", "{name: p, generation: 1, resourceSliceCount: 1}"))
	}
	for _, name := range []string{"n1", "n2", ""} {
		for _, operation := range nodeOperations {
			now, old := func(s string) string {
				if operation == admission.Delete {
					return ""
				}
				return s
			}, func(s string) string {
				if operation == admission.Create {
					return ""
				}
				return s
			}
			w.compareNode(t, nodeAttempt(operation, "storage.k8s.io/v1/csinodes", "", name, now(csi(name)),
				old(csi(name))), &count)
			for _, in := range []string{"kube-node-lease", "default"} {
				w.compareNode(t, nodeAttempt(operation, "coordination.k8s.io/v1/leases", in, name, now(lease(name, in)),
					old(lease(name, in))), &count)
			}
			w.compareNode(t, nodeAttempt(operation, "resource.k8s.io/v1/resourceslices", "", "s", now(slice(name)),
				old(slice(name))), &count)
			w.compareNode(t, nodeAttempt(operation, "/v1/configmaps", "ns", "m", now(doc("v1", "ConfigMap", "ns",
				"m", nil)),
				old(doc("v1", "ConfigMap", "ns", "m", nil))), &count)
		}
	}
	w.compareNode(t, nodeAttempt(admission.Create, "storage.k8s.io/v1/csinodes", "", "", csi("n1"), ""), &count)
	count.atLeast(t, 0, 400, 200)
}

// SPEC: AUTH-3
func TestNodeRestrictionOfCSINodes(t *testing.T) {
	count := tally{}
	csi := func(drivers string) string {
		return doc("storage.k8s.io/v1", "CSINode", "", "n1", nil, "spec", "{"+drivers+"}")
	}
	all := []string{csi("drivers: []"), csi(""), csi("drivers: [{name: a, nodeID: b}]"),
		csi("drivers: [{name: a, nodeID: b, allocatable: {count: 1}}]"),
		csi("drivers: [{name: a, nodeID: b, allocatable: {}}]"), csi("drivers: [{name: a, nodeID: b, topologyKeys: []}]")}
	for _, healthy := range []bool{false, true} {
		w := nodeWorld(t, func(w *world) { w.gates = map[string]bool{"CSIVolumeHealth": healthy} })
		for _, old := range all {
			for _, now := range all {
				w.compareNode(t, nodeAttempt(admission.Update, "storage.k8s.io/v1/csinodes/status", "", "n1", now, old), &count)
				w.compareNode(t, nodeAttempt(admission.Update, "storage.k8s.io/v1/csinodes", "", "n1", now, old), &count)
			}
			w.compareNode(t, nodeAttempt(admission.Delete, "storage.k8s.io/v1/csinodes/status", "", "n1", "", old), &count)
		}
	}
	count.atLeast(t, 0, 100, 50)
}

// SPEC: AUTH-3
func TestNodeRestrictionOfClaims(t *testing.T) {
	count := tally{}
	// The reference prints its Go structs.
	w := nodeWorld(t, func(w *world) { w.until = "status.quantity and status.conditions:" })
	claim := func(meta []string, spec, status string) string {
		return doc("v1", "PersistentVolumeClaim", "ns", "c", meta, "spec", spec, "status", status)
	}
	const spec = "{volumeName: v, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}"
	old := claim([]string{"resourceVersion", quoted("5")}, spec, "{phase: Bound, capacity: {storage: 1Gi}}")
	for _, now := range []string{old, claim(nil, spec, "{phase: Bound}"), claim(nil, spec, "{phase: Lost}"),
		claim(nil, spec, ""),
		claim(nil, spec, "{phase: Bound, capacity: {storage: 2Gi}, conditions: [{type: Resizing, status: 'True'}]}"),
		claim(nil, spec, "{phase: Bound, allocatedResources: {storage: 2Gi}, allocatedResourceStatuses: {storage: x}}"),
		claim([]string{"labels", "{a: b}"}, spec, "{phase: Bound}"), claim([]string{"finalizers", "[a/b]"}, spec,
			"{phase: Bound}"),
		claim([]string{"managedFields", "[{manager: m, operation: Update}]"}, spec, "{phase: Bound}"),
		claim(nil, "{volumeName: w, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}",
			"{phase: Bound}"),
		claim(nil, spec, "{phase: Bound, accessModes: [ReadWriteOnce]}"),
	} {
		w.compareNode(t, nodeAttempt(admission.Update, "/v1/persistentvolumeclaims/status", "ns", "c", now, old),
			&count)
	}
	w.compareNode(t, nodeAttempt(admission.Delete, "/v1/persistentvolumeclaims/status", "ns", "c", "", old), &count)
	for _, operation := range nodeOperations {
		w.compareNode(t, nodeAttempt(operation, "/v1/persistentvolumeclaims", "ns", "c", old, old), &count)
	}
	count.atLeast(t, 0, 20, 20)
}

// SPEC: AUTH-3
func TestNodeRestrictionOfTokens(t *testing.T) {
	count := tally{}
	token := func(bound string, audiences string) attempt {
		return nodeAttempt(admission.Create, "/v1/serviceaccounts/token", "ns", "sa",
			fields("apiVersion", "authentication.k8s.io/v1", "kind", "TokenRequest", "spec", fields("boundObjectRef",
				bound,
				"audiences", audiences)), "")
	}
	bound := func(name, uid string) string {
		return fields("apiVersion", "v1", "kind", "Pod", "name", name, "uid", uid)
	}
	for _, mode := range []string{"refused", "failing", "allowed", "unrestricted"} {
		w := nodeWorld(t, func(w *world) {
			w.refusals = true
			switch mode {
			case "failing":
				w.failure = errors.New("no answer")
			case "allowed":
				w.allow = func(verb, group, resource, subresource, namespace, name string) bool {
					return verb == "request-serviceaccounts-token-audience" && group == "" && subresource == "" &&
						slices.Contains([]string{"granted", ""}, resource) && namespace == "ns" && name == "sa"
				}
			case "unrestricted":
				w.gates = map[string]bool{"ServiceAccountNodeAudienceRestriction": false}
			}
		})
		for _, audience := range migratedDrivers {
			w.compareNode(t, token(bound("here", "uid-here"), "["+audience+"]"), &count)
		}
		w.compare(t, nodeAttempt(admission.Update, "/v1/serviceaccounts/token", "ns", "sa",
			"{apiVersion: authentication.k8s.io/v1, kind: TokenRequest}", ""), &count)
		for _, audiences := range []string{"", "[vault]", "[other]", "[vault, other]", "[inline]", "[bound]",
			"[tree]", "[gce]",
			"[granted]"} {
			for _, pod := range []string{"here", "shared", "odd", "even", "there", "lost", "none"} {
				w.compareNode(t, token(bound(pod, "uid-"+pod), audiences), &count)
			}
		}
		for _, b := range []string{"", bound("here", ""), bound("here", "other"), bound("", "a"),
			"{apiVersion: v1, kind: Secret, name: a, uid: b}",
			"{apiVersion: v2, kind: Pod, name: here, uid: uid-here}"} {
			w.compareNode(t, token(b, "[vault]"), &count)
		}
		account := doc("v1", "ServiceAccount", "ns", "sa", nil)
		for _, operation := range nodeOperations {
			w.compareNode(t, nodeAttempt(operation, "/v1/serviceaccounts", "ns", "sa", account, account), &count)
		}
	}
	count.atLeast(t, 100, 0, 100)
}

// SPEC: AUTH-3
func TestNodeRestrictionOfCertificates(t *testing.T) {
	count := tally{}
	w := nodeWorld(t, nil)
	for _, signer := range []string{"kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet",
		"example.com/s"} {
		for _, name := range []string{"system:node:n1", "system:node:n2", ""} {
			request := base64.StdEncoding.EncodeToString(requestedFor(t, "CERTIFICATE REQUEST",
				pkix.Name{CommonName: name}))
			object := doc("certificates.k8s.io/v1", "CertificateSigningRequest", "", "c", nil, "spec",
				fields("request", request, "signerName", signer, "usages", "[client auth]"))
			for _, operation := range nodeOperations {
				w.compareNode(t, nodeAttempt(operation, "certificates.k8s.io/v1/certificatesigningrequests", "", "c",
					object, object),
					&count)
			}
		}
		for _, request := range []string{"", "aGk="} {
			object := doc("certificates.k8s.io/v1", "CertificateSigningRequest", "", "c", nil, "spec",
				fields("request", quoted(request), "signerName", signer, "usages", "[client auth]"))
			w.compareNode(t, nodeAttempt(admission.Create, "certificates.k8s.io/v1/certificatesigningrequests", "",
				"c", object,
				""), &count)
		}
	}
	insecure := nodeWorld(t, func(w *world) {
		w.gates = map[string]bool{"AllowInsecureKubeletCertificateSigningRequests": true}
	})
	foreignName := base64.StdEncoding.EncodeToString(requestedFor(t, "CERTIFICATE REQUEST",
		pkix.Name{CommonName: "system:node:n2"}))
	insecure.compareNode(t, nodeAttempt(admission.Create, "certificates.k8s.io/v1/certificatesigningrequests", "", "c",
		doc("certificates.k8s.io/v1", "CertificateSigningRequest", "", "c", nil, "spec", fields("request", foreignName,
			"signerName", "kubernetes.io/kubelet-serving", "usages", "[client auth]")), ""), &count)
	base := []string{"nodeName", "n1", "nodeUID", "uid-n1", "podName", "here", "podUID", "uid-here",
		"serviceAccountName", "sa",
		"serviceAccountUID", "uid-sa", "signerName", "example.com/s", "unverifiedUserAnnotations", "",
		"pkixPublicKey", "aGk=",
		"proofOfPossession", "aGk="}
	request := func(changes ...string) string {
		spec := slices.Clone(base)
		for i := 0; i < len(changes); i += 2 {
			spec[slices.Index(spec, changes[i])+1] = changes[i+1]
		}
		return doc("certificates.k8s.io/v1", "PodCertificateRequest", "ns", "r", nil, "spec", fields(spec...))
	}
	for _, mode := range []string{"", "failing", "allowed"} {
		w = nodeWorld(t, func(w *world) {
			switch mode {
			case "failing":
				w.failure = errors.New("no answer")
			case "allowed":
				w.allow = func(verb, group, resource, _, namespace, name string) bool {
					return verb == "request-serviceaccounts-podcertificate-signer" && group == "certificates.k8s.io" &&
						resource == "example.com:other" && namespace == "ns" && name == "sa"
				}
			}
		})
		for _, object := range []string{request(), request("nodeName", "n2"), request("nodeUID", "x"),
			request("podName", "none"),
			request("podUID", "x"), request("podName", "there", "podUID", "uid-there"),
			request("podName", "mirror", "podUID", "uid-mirror"), request("serviceAccountName", "other"),
			request("podName", "lost", "podUID", "uid-lost", "serviceAccountName", "gone"),
			request("serviceAccountUID", "x"),
			request("signerName", quoted("")), request("signerName", "example.com/other"),
			request("signerName", "example.com/third")} {
			w.compareNode(t, nodeAttempt(admission.Create, "certificates.k8s.io/v1/podcertificaterequests", "ns",
				"r", object, ""),
				&count)
		}
		absent := nodeAttempt(admission.Create, "certificates.k8s.io/v1/podcertificaterequests", "ns", "r",
			request("nodeName", "n3"), "")
		absent.user = kubelet("n3")
		w.compare(t, absent, &count)
		w.compareNode(t, nodeAttempt(admission.Update, "certificates.k8s.io/v1/podcertificaterequests", "ns", "r",
			request(),
			request()), &count)
		w.compareNode(t, nodeAttempt(admission.Create, "certificates.k8s.io/v1/podcertificaterequests/status", "ns",
			"r",
			request(), ""), &count)
	}
	count.atLeast(t, 0, 60, 60)
}
