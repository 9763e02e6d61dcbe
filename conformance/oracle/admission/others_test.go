package admission

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// SPEC: AUTH-3
func TestDenyServiceExternalIPs(t *testing.T) {
	w := (&world{plugin: "DenyServiceExternalIPs"}).build(t)
	count := tally{}
	service := func(ips string) string {
		return doc("v1", "Service", "ns", "s", nil, "spec", fields("externalIPs", ips))
	}
	lists := []string{"", "[]", "[1.1.1.1]", "[2.2.2.2]", "[1.1.1.1, 2.2.2.2]"}
	for _, next := range lists {
		for _, old := range lists {
			for _, sub := range []string{"", "status"} {
				a := attempt{operation: admission.Update, version: "v1", resource: "services", subresource: sub,
					namespace: "ns", name: "s", object: service(next), old: service(old)}
				w.compare(t, a, &count)
				a.operation, a.old = admission.Create, ""
				w.compare(t, a, &count)
			}
		}
	}
	count.atLeast(t, 0, 30, 10)
}

// SPEC: AUTH-3
func TestTaintNodesByCondition(t *testing.T) {
	w := (&world{plugin: "TaintNodesByCondition"}).build(t)
	count := tally{}
	for _, key := range []string{"node.kubernetes.io/not-ready", "other"} {
		for _, effect := range []string{"NoSchedule", "NoExecute"} {
			for _, taints := range []string{"", fmt.Sprintf("[{key: %s, effect: %s}]", key, effect)} {
				text := doc("v1", "Node", "", "n1", nil, "spec", fields("taints", taints))
				a := attempt{operation: admission.Create, version: "v1", resource: "nodes", name: "n1", object: text}
				w.compare(t, a, &count)
				a.subresource = "status"
				w.compare(t, a, &count)
				a.subresource, a.operation, a.old = "", admission.Update, text
				w.compare(t, a, &count)
			}
		}
	}
	count.atLeast(t, 6, 12, 0)
}

// SPEC: AUTH-3
func TestAlwaysDeny(t *testing.T) {
	w := (&world{plugin: "AlwaysDeny"}).build(t)
	count := tally{}
	for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
		text := pod(nil)
		a := ofPod(operation, text, text)
		switch operation {
		case admission.Create:
			a.old = ""
		case admission.Delete:
			a.object = ""
		}
		w.compare(t, a, &count)
	}
	generated := ofPod(admission.Create,
		`{apiVersion: v1, kind: Pod, metadata: {generateName: x-, namespace: ns}, spec: {containers: [{name: c, image: i}]}}`, "")
	generated.name = ""
	w.compare(t, generated, &count)
	count.atLeast(t, 0, 0, 4)
}

// SPEC: AUTH-3
func TestNamespaceExists(t *testing.T) {
	w := (&world{plugin: "NamespaceExists", objects: []string{namespaceDoc("ns", "", "")}}).build(t)
	count := tally{}
	for _, namespace := range []string{"ns", "none"} {
		for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
			text := doc("v1", "ConfigMap", namespace, "c", nil)
			w.compare(t, attempt{operation: operation, version: "v1", resource: "configmaps", namespace: namespace,
				name: "c", object: text, old: text}, &count)
			text = namespaceDoc(namespace, "", "")
			w.compare(t, attempt{operation: operation, version: "v1", resource: "namespaces", namespace: namespace,
				name: namespace, object: text, old: text}, &count)
		}
	}
	w.compare(t, attempt{operation: admission.Create, version: "v1", resource: "nodes", name: "n1",
		object: doc("v1", "Node", "", "n1", nil)}, &count)
	count.atLeast(t, 0, 8, 3)
}

// SPEC: AUTH-3
func TestClusterTrustBundleAttest(t *testing.T) {
	count := tally{}
	for _, may := range []string{"", "example.com/one", "example.com/*"} {
		w := (&world{plugin: "ClusterTrustBundleAttest", gates: map[string]bool{"ClusterTrustBundle": true},
			allow: func(verb, group, resource, _, _, name string) bool {
				return verb == "attest" && group == "certificates.k8s.io" && resource == "signers" && name == may
			}}).build(t)
		for _, signer := range []string{"", "example.com/one", "example.com/two"} {
			for _, changed := range []string{"", "[a.b/c]"} {
				bundle := func(finalizers, trust string) string {
					return doc("certificates.k8s.io/v1", "ClusterTrustBundle", "", "b", []string{"finalizers",
						finalizers},
						"spec", fields("signerName", signer, "trustBundle", quoted(trust)))
				}
				a := attempt{operation: admission.Create, group: "certificates.k8s.io", version: "v1",
					resource: "clustertrustbundles", name: "b", object: bundle(changed, "x"),
					user: user.DefaultInfo{Name: "jane"}}
				w.compare(t, a, &count)
				a.operation = admission.Update
				for _, trust := range []string{"x", "y"} {
					a.old = bundle("", trust)
					w.compare(t, a, &count)
				}
				a.operation, a.object = admission.Delete, ""
				w.compare(t, a, &count)
			}
		}
	}
	count.atLeast(t, 0, 20, 10)
}

// manyClasses are classes of which several are equally new: the order in which they are looked at must not matter.
func manyClasses(class func(name, created string) string) []string {
	var all []string
	for i, name := range strings.Fields("f b d c e g a h") {
		year := 2021 + i/2%3
		all = append(all, class(name, quoted(fmt.Sprint(year, "-01-01T00:00:00Z"))))
	}
	return all
}

// SPEC: AUTH-3
func TestDefaultIngressClass(t *testing.T) {
	class := func(name, is, created string) string {
		return doc("networking.k8s.io/v1", "IngressClass", "", name, []string{"annotations",
			fields("ingressclass.kubernetes.io/is-default-class", is), "creationTimestamp", created}, "spec",
			"{controller: a.b/c}")
	}
	count := tally{}
	for _, objects := range [][]string{
		nil, {class("a", "", "")}, {class("a", quoted("false"), ""), class("b", quoted("true"), "")},
		{class("b", quoted("true"), quoted("2024-01-01T00:00:00Z")), class("a", quoted("true"),
			quoted("2023-01-01T00:00:00Z"))},
		{class("b", quoted("true"), quoted("2024-01-01T00:00:00Z")), class("a", quoted("true"),
			quoted("2024-01-01T00:00:00Z"))},
		manyClasses(func(name, created string) string { return class(name, quoted("true"), created) }),
	} {
		w := (&world{plugin: "DefaultIngressClass", objects: objects}).build(t)
		for _, named := range []string{"", "mine", `""`} {
			for _, annotations := range []string{"", "{kubernetes.io/ingress.class: x}",
				`{kubernetes.io/ingress.class: ""}`} {
				text := doc("networking.k8s.io/v1", "Ingress", "ns", "i", []string{"annotations", annotations}, "spec",
					fields("ingressClassName", named))
				a := attempt{operation: admission.Create, group: "networking.k8s.io", version: "v1",
					resource:  "ingresses",
					namespace: "ns", name: "i", object: text}
				w.compare(t, a, &count)
				a.subresource = "status"
				w.compare(t, a, &count)
				a.subresource, a.operation, a.old = "", admission.Update, text
				w.compare(t, a, &count)
			}
		}
	}
	count.atLeast(t, 3, 20, 0)
}

func claim(meta []string, spec ...string) string {
	return doc("v1", "PersistentVolumeClaim", "ns", "c", meta, "spec", fields(spec...))
}

func ofClaim(operation admission.Operation, object, old string) attempt {
	return attempt{operation: operation, version: "v1", resource: "persistentvolumeclaims", namespace: "ns", name: "c",
		object: object, old: old}
}

// SPEC: AUTH-3
func TestDefaultStorageClass(t *testing.T) {
	class := func(name, key, is, created string) string {
		return doc("storage.k8s.io/v1", "StorageClass", "", name, []string{"annotations",
			fields(key, is), "creationTimestamp", created}, "provisioner", "p")
	}
	const ga, beta = "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"
	count := tally{}
	for _, objects := range [][]string{
		nil, {class("a", ga, quoted("no"), "")}, {class("a", beta, quoted("true"), "")},
		{class("b", ga, quoted("true"), quoted("2024-01-01T00:00:00Z")), class("a", beta, quoted("true"),
			quoted("2023-01-01T00:00:00Z"))},
		{class("b", ga, quoted("true"), quoted("2024-01-01T00:00:00Z")), class("a", ga, quoted("true"),
			quoted("2024-01-01T00:00:00Z"))},
		manyClasses(func(name, created string) string { return class(name, ga, quoted("true"), created) }),
	} {
		w := (&world{plugin: "DefaultStorageClass", objects: objects}).build(t)
		for _, named := range []string{"", "mine", `""`} {
			for _, annotations := range []string{"", `{volume.beta.kubernetes.io/storage-class: ""}`} {
				text := claim([]string{"annotations", annotations}, "storageClassName", named)
				a := ofClaim(admission.Create, text, "")
				w.compare(t, a, &count)
				a.subresource = "status"
				w.compare(t, a, &count)
				w.compare(t, ofClaim(admission.Update, text, text), &count)
			}
		}
	}
	count.atLeast(t, 3, 20, 0)
}

// podGroup is a PodGroup or a CompositePodGroup.
func podGroup(kind, version string, meta []string, spec ...string) string {
	return doc("scheduling.k8s.io/"+version, kind, "ns", "x", meta, "spec", fields(spec...))
}

// SPEC: AUTH-3
func TestPodGroupProtection(t *testing.T) {
	count := tally{}
	for _, on := range []bool{true, false} {
		w := (&world{plugin: "PodGroupProtection", gates: map[string]bool{"GenericWorkload": on}}).build(t)
		for _, version := range []string{"v1beta1", "v1alpha3"} {
			for _, kind := range []string{"PodGroup", "Workload"} {
				if !on {
					continue // the types are not served
				}
				for _, finalizers := range []string{"", "[a.b/c]", "[scheduling.k8s.io/podgroup-protection]",
					"[a.b/c, scheduling.k8s.io/podgroup-protection]"} {
					text := podGroup(kind, version, []string{"finalizers", finalizers})
					a := attempt{operation: admission.Create, group: "scheduling.k8s.io", version: version,
						resource: strings.ToLower(kind) + "s", namespace: "ns", name: "x", object: text}
					w.compare(t, a, &count)
					w.elsewhere(t, a)
					a.operation, a.old = admission.Update, text
					w.compare(t, a, &count)
					if kind == "PodGroup" {
						a.operation, a.subresource = admission.Update, "status"
						w.compare(t, a, &count)
						a.operation, a.old = admission.Create, ""
						w.compare(t, a, &count)
					}
				}
			}
		}
		w.compare(t, ofPod(admission.Create, pod(nil), ""), &count)
	}
	count.atLeast(t, 4, 20, 0)
}

// SPEC: AUTH-3
func TestStorageObjectInUseProtection(t *testing.T) {
	w := (&world{plugin: "StorageObjectInUseProtection"}).build(t)
	count := tally{}
	for resource, of := range map[string]struct{ group, apiVersion, kind, namespace string }{
		"persistentvolumes":       {"", "v1", "PersistentVolume", ""},
		"persistentvolumeclaims":  {"", "v1", "PersistentVolumeClaim", "ns"},
		"volumeattributesclasses": {"storage.k8s.io", "storage.k8s.io/v1", "VolumeAttributesClass", ""},
		"storageclasses":          {"storage.k8s.io", "storage.k8s.io/v1", "StorageClass", ""},
	} {
		for _, finalizers := range []string{"", "[a.b/c]", "[kubernetes.io/pv-protection]",
			"[kubernetes.io/pvc-protection]",
			"[kubernetes.io/vac-protection]"} {
			text := doc(of.apiVersion, of.kind, of.namespace, "x", []string{"finalizers", finalizers})
			a := attempt{operation: admission.Create, group: of.group, version: "v1", resource: resource,
				namespace: of.namespace, name: "x", object: text}
			w.compare(t, a, &count)
			a.operation, a.old = admission.Update, text
			w.compare(t, a, &count)
			if of.group == "" {
				a.operation, a.old, a.subresource = admission.Create, "", "status"
				w.compare(t, a, &count)
			}
		}
	}
	count.atLeast(t, 12, 20, 0)
}

// SPEC: AUTH-3
func TestPersistentVolumeClaimResize(t *testing.T) {
	class := func(name, grows string) string {
		return doc("storage.k8s.io/v1", "StorageClass", "", name, nil, "provisioner", "p", "allowVolumeExpansion",
			grows)
	}
	w := (&world{plugin: "PersistentVolumeClaimResize", objects: []string{class("grows", "true"), class("fixed",
		"false"),
		class("silent", "")}}).build(t)
	count := tally{}
	classes := []string{"", "grows", "fixed", "silent", "missing"}
	for _, before := range classes {
		for _, after := range classes {
			for _, size := range []string{"", "1Gi", "1024Mi", "2Gi", "1"} {
				for _, phase := range []string{"Bound", "Pending"} {
					old := doc("v1", "PersistentVolumeClaim", "ns", "c", nil, "spec",
						fields("storageClassName", before, "resources", "{requests: {storage: 1Gi}}"), "status",
						fields("phase", phase))
					text := claim(nil, "storageClassName", after, "resources", fields("requests", fields("storage",
						size)))
					w.compare(t, ofClaim(admission.Update, text, old), &count)
				}
			}
		}
	}
	text, old := claim(nil, "resources", "{requests: {storage: 2Gi}}"), claim(nil, "resources",
		"{requests: {storage: 1Gi}}")
	a := ofClaim(admission.Update, text, old)
	a.subresource = "status"
	w.compare(t, a, &count)
	w.compare(t, ofClaim(admission.Create, text, ""), &count)
	count.atLeast(t, 0, 100, 40)
}
