package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	reference "k8s.io/apiserver/pkg/quota/v1"

	"plinth/internal/admission/quota"
	"plinth/object"
)

// quotaUse is the reference's evaluators and what completes an object for ours.
type quotaUse struct{ *world }

func newQuotaUse(t *testing.T) quotaUse {
	return quotaUse{(&world{plugin: "ResourceQuota", registered: quotaReferenceName, validateOnly: true}).build(t)}
}

func (u quotaUse) registered() reference.Registry { return u.reference.(*quotaReference).registry }

// evaluator is the reference's for a store resource.
func (u quotaUse) evaluator(path string) reference.Evaluator {
	group, name, _ := strings.Cut(path, "/")
	return u.registered().Get(apischema.GroupResource{Group: group, Resource: name})
}

// read returns an object as both sides see it.
func (u quotaUse) read(t *testing.T, text string) (runtime.Object, object.Value) {
	t.Helper()
	obj := parse(t, text)
	gv, err := apischema.ParseGroupVersion(obj.At("apiVersion").Str())
	if err != nil {
		t.Fatal(err)
	}
	return versioned(t, text), u.complete(t, u.registry.Now().OfKind(gv.String(), obj.At("kind").Str()), obj)
}

// resized makes Pods whose statuses have resources.
type resized struct{ quotaCases }

// amounts are none instead of an empty map: that is no stored form.
func (r resized) amounts() string {
	if list := r.quotaCases.amounts(); list != "{}" {
		return list
	}
	return ""
}

func (r resized) statuses(names ...string) string {
	var all []string
	for _, name := range names {
		if r.IntN(4) > 0 {
			all = append(all, fields("name", name, "image", "i", "ready", "true", "restartCount", "0",
				"allocatedResources", r.one("", "", r.amounts()), "resources", r.one("", "{}",
					fields("requests", r.one("", r.amounts()), "limits", r.one("", r.amounts())))))
		}
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func (r resized) podNamed(name string) string {
	container := func(name, policy string) string {
		return fields("name", name, "image", "i", "restartPolicy", policy, "resources",
			fields("requests", r.one("", r.amounts()), "limits", r.one("", r.amounts())))
	}
	return doc("v1", "Pod", "ns", name, nil, "spec", fields(
		"containers", "["+container("a", "")+", "+container("b", "")+"]",
		"initContainers", "["+container("i", "")+", "+container("s", r.one("Always", "OnFailure", "Never"))+", "+
			container("j", "")+"]",
		"overhead", r.one("", "", "{cpu: 10m, memory: 1Mi}"),
		"resources", r.one("", "", "", "{requests: {cpu: 3, memory: 1Gi}}", "{limits: {cpu: 3, hugepages-2Mi: 4Mi}}",
			"{}")),
		"status", fields("phase", r.one("Pending", "Running"), "qosClass", "Burstable",
			"containerStatuses", r.statuses("a", "b"), "initContainerStatuses", r.statuses("i", "s", "j"),
			"resources", r.one("", "", "{requests: {cpu: 5}}"), "allocatedResources", r.one("", "", "{cpu: 7}"),
			"conditions", r.one("", "[{type: PodResizePending, status: 'True', reason: Infeasible}]",
				"[{type: PodResizePending, status: 'True', reason: Deferred}]",
				"[{type: PodResizePending, status: 'False', reason: Infeasible}]",
				"[{type: Ready, status: 'True', reason: Infeasible}]")))
}

// quotaScopes are all scopes with all operators, and wrong ones.
func quotaScopes() (all []corev1.ScopedResourceSelectorRequirement) {
	for _, name := range []corev1.ResourceQuotaScope{"Terminating", "NotTerminating", "BestEffort", "NotBestEffort",
		"PriorityClass", "CrossNamespacePodAffinity", "VolumeAttributesClass", "Other"} {
		for _, operator := range []corev1.ScopeSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist", "Like"} {
			for _, values := range [][]string{nil, {"high"}, {"slow", "low"}, {"fast"}} {
				all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: operator,
					Values: values})
			}
		}
	}
	return all
}

// What an object uses, and which scopes it matches.
//
// SPEC: AUTH-5
func TestUseOfObjects(t *testing.T) {
	u, r := newQuotaUse(t), quotaCases{seeded(301)}
	special := []string{
		doc("v1", "Pod", "ns", "p", nil, "spec", "{activeDeadlineSeconds: 0, containers: [{name: a, image: i}]}",
			"status", "{qosClass: BestEffort}"),
		doc("v1", "Pod", "ns", "p", nil, "spec", "{activeDeadlineSeconds: -1, containers: [{name: a, image: i, resources: "+
			"{requests: {storage: 1, kubernetes.io/x: 2, example.com/x: 3, deviceclass.resource.kubernetes.io/x: 4, x: 5, "+
			"requests.example.com/x: 6}}}]}", "status", "{qosClass: Burstable}"),
		doc("v1", "PersistentVolumeClaim", "ns", "c", []string{"annotations",
			"{volume.beta.kubernetes.io/storage-class: ''}"}, "spec", "{storageClassName: gold}"),
		doc("v1", "PersistentVolumeClaim", "ns", "c", nil, "spec", "{volumeAttributesClassName: slow}",
			"status", "{currentVolumeAttributesClassName: fast, modifyVolumeStatus: {status: Pending, "+
				"targetVolumeAttributesClassName: slow}}"),
		doc("v1", "PersistentVolumeClaim", "ns", "c", nil, "spec", "{resources: {requests: {storage: 1500m}}}",
			"status", "{allocatedResources: {storage: 2500m}}"),
		doc("v1", "Service", "ns", "s", nil, "spec", "{type: ExternalName, externalName: a.b, ports: [{port: 80}]}"),
		doc("v1", "Service", "ns", "s", nil, "spec", "{type: LoadBalancer, allocateLoadBalancerNodePorts: false, "+
			"ports: [{name: a, port: 80, nodePort: 30000}, {name: b, port: 81, nodePort: 30001}, {name: c, port: 82}]}"),
		doc("v1", "ConfigMap", "ns", "m", nil), doc("v1", "Secret", "ns", "m", nil),
		doc("v1", "ReplicationController", "ns", "m", nil, "spec", "{replicas: 0}"),
		doc("v1", "ResourceQuota", "ns", "m", nil), doc("apps/v1", "Deployment", "ns", "m", nil),
		doc("resource.k8s.io/v1", "ResourceClaim", "ns", "r", nil, "spec", "{devices: {requests: [{name: none}, "+
			"{name: r, exactly: {deviceClassName: gpu, allocationMode: Other, count: 2}}, "+
			"{name: s, firstAvailable: [{name: s, deviceClassName: nic, allocationMode: Other, count: 2}]}]}}"),
	}
	paths := map[string]string{"Pod": "/pods", "PersistentVolumeClaim": "/persistentvolumeclaims",
		"Service": "/services", "ResourceClaim": "resource.k8s.io/resourceclaims", "ConfigMap": "/configmaps",
		"Secret": "/secrets", "ReplicationController": "/replicationcontrollers", "ResourceQuota": "/resourcequotas",
		"Deployment": "apps/deployments"}
	scopes, matched, failed := quotaScopes(), 0, 0
	for i := range 1500 {
		cases := []string{r.podNamed("p"), resized{r}.podNamed("p"), r.claimNamed("c"), r.serviceNamed("s"),
			r.resourceClaimNamed("r")}
		text := cases[i%len(cases)]
		if i < len(special) {
			text = special[i]
		}
		typed, obj := u.read(t, text)
		path := paths[obj.At("kind").Str()]
		evaluator := u.evaluator(path)
		use, err := evaluator.Usage(typed)
		if err != nil {
			t.Fatal(err)
		}
		charge := quota.Use(path, obj)
		want, have := map[string]string{}, map[string]string{}
		for name, value := range use {
			// What claims use as extended resources depends on other objects: TestResourceQuotaOfExtendedResources.
			extended := path == "resource.k8s.io/resourceclaims" && strings.HasPrefix(string(name), "requests.")
			if !value.IsZero() && !extended {
				want[string(name)] = decimal(value)
			}
		}
		for _, amount := range quota.AmountsAt(charge, time.Now()) {
			have[amount.Name] = decimal(amount.Value)
		}
		if !maps.Equal(have, want) {
			t.Errorf("%s\nuses %v\nwant %v", text, have, want)
		}
		for _, scope := range scopes {
			matching, wrong := evaluator.MatchingScopes(typed, []corev1.ScopedResourceSelectorRequirement{scope})
			one := quota.NewScope(scope)
			is, err := one.Matches(charge.Class)
			if is != (len(matching) > 0) || (err == nil) != (wrong == nil) ||
				err != nil && !strings.HasSuffix(wrong.Error(), err.Error()) {
				t.Errorf("%s\n%v matches: %t, %v; want %v, %v", text, scope, is, err, matching, wrong)
			}
			if err != nil {
				failed++
			} else if is {
				matched++
			}
		}
	}
	if matched < 1000 || failed < 1000 {
		t.Errorf("%d scopes match, %d have errors", matched, failed)
	}
}

// decimal is a quantity without its format.
func decimal(q resource.Quantity) string {
	d := q.AsDec()
	return fmt.Sprint(d)
}

// limitNames are names of limits that objects use, and others that are similar.
func limitNames() (all []string) {
	for _, name := range []string{"pods", "services", "persistentvolumeclaims", "configmaps", "secrets",
		"resourcequotas", "replicationcontrollers", "events", "nodes", "deployments.apps", "resourceclaims.resource.k8s.io",
		"resourceclaims", "deployments"} {
		all = append(all, name, "count/"+name)
	}
	for _, name := range []string{"cpu", "memory", "ephemeral-storage", "storage", "hugepages-2Mi", "hugepages",
		"example.com/gpu", "kubernetes.io/gpu", "gpu", "deviceclass.resource.kubernetes.io/gpu",
		"deviceclass.resource.kubernetes.io/", "storageclass.storage.k8s.io/x"} {
		all = append(all, name, "requests."+name, "limits."+name, "requests.requests."+name)
	}
	for _, class := range []string{"gold", "", "a.storageclass.storage.k8s.io/b"} {
		for _, name := range []string{"requests.storage", "persistentvolumeclaims", "storage", "requests.cpu",
			"count/persistentvolumeclaims", "", "x.storageclass.storage.k8s.io/requests.storage"} {
			all = append(all, class+".storageclass.storage.k8s.io/"+name)
		}
	}
	return append(all, "services.nodeports", "services.loadbalancers", "services.others", "requests.", "limits.", "",
		"gpu.deviceclass.resource.k8s.io/devices", ".deviceclass.resource.k8s.io/devices",
		"gpu.deviceclass.resource.k8s.io/devices.", "count/")
}

// Which limits the objects of a type use.
//
// SPEC: AUTH-5
func TestNamesOfLimits(t *testing.T) {
	u, counted := newQuotaUse(t), map[bool]int{}
	var paths []string
	for _, evaluator := range u.registered().List() {
		gr := evaluator.GroupResource()
		paths = append(paths, gr.Group+"/"+gr.Resource)
	}
	for _, name := range limitNames() {
		limited := func(path string) bool {
			return len(u.evaluator(path).MatchingResources([]corev1.ResourceName{corev1.ResourceName(name)})) > 0
		}
		for _, path := range paths {
			have, want := quota.Concerns(path, name), limited(path)
			if have != want {
				t.Errorf("%q concerns %s: %t, want %t", name, path, have, want)
			}
			counted[want]++
		}
		for _, absent := range []string{"", "/pods", "/services", "/persistentvolumeclaims",
			"resource.k8s.io/resourceclaims", "apps/deployments"} {
			served := func(path string) bool { return path != absent && slices.Contains(paths, path) }
			want := slices.ContainsFunc(paths, func(path string) bool { return served(path) && limited(path) })
			if have := quota.Tracked(name, served); have != want {
				t.Errorf("%q is tracked without %q: %t, want %t", name, absent, have, want)
			}
		}
	}
	if counted[true] < 40 || counted[false] < 500 {
		t.Errorf("%v", counted)
	}
}

// What Pods have to request.
//
// SPEC: AUTH-5
func TestRequiredRequests(t *testing.T) {
	u, r := newQuotaUse(t), quotaCases{seeded(302)}
	names, counted := limitNames(), map[bool]int{}
	for i := range 600 {
		text := resized{r}.podNamed("p")
		if i%2 == 0 {
			text = r.podNamed("p")
		}
		typed, obj := u.read(t, text)
		var limits []corev1.ResourceName
		for _, name := range names {
			if r.IntN(4) == 0 {
				limits = append(limits, corev1.ResourceName(name))
			}
		}
		want := ""
		if err := u.evaluator("/pods").Constraints(limits, typed); err != nil {
			want = err.Error()
		}
		have := quota.Missing(obj, func(name string) bool { return slices.Contains(limits, corev1.ResourceName(name)) })
		if have != want {
			t.Errorf("%s\nlacks %q\nwant %q", text, have, want)
		}
		counted[want == ""]++
	}
	if counted[true] < 100 || counted[false] < 100 {
		t.Errorf("%v", counted)
	}
}
