package admission

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	config "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/validation"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/kubernetes/pkg/quota/v1/install"
)

// quotaReference is the reference's quota: its controller, which computes status.hard and status.used, immediately
// before each request, and its plugin without the update of status.used.
type quotaReference struct {
	*admission.Handler
	config   *config.Configuration
	factory  informers.SharedInformerFactory
	registry quota.Registry
	informed sync.Once // awaitClasses was called
}

var _ = initializer.WantsExternalKubeInformerFactory(&quotaReference{})

// quotaReferenceName is its name in register.
const quotaReferenceName = "ResourceQuota without its cache"

// counted are the types of which the reference's controller counts the objects, besides those with an evaluator.
var counted = []schema.GroupVersionResource{{Group: "apps", Version: "v1", Resource: "deployments"}}

func newQuotaReference(text io.Reader) (admission.Interface, error) {
	configuration, err := resourcequota.LoadConfiguration(text)
	if err != nil {
		return nil, err
	}
	if errs := validation.ValidateConfiguration(configuration); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return &quotaReference{Handler: admission.NewHandler(admission.Create, admission.Update), config: configuration},
		nil
}

func (q *quotaReference) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	q.factory = f
	f.Core().V1().ResourceQuotas().Informer()
	lister := generic.ListerFuncForResourceFunc(f.ForResource)
	evaluators, err := core.NewEvaluators(lister, f, nil)
	if err != nil {
		panic(err)
	}
	for _, gvr := range counted {
		evaluators = append(evaluators, generic.NewObjectCountEvaluator(gvr.GroupResource(),
			generic.ListResourceUsingListerFunc(lister, gvr), ""))
	}
	q.registry = generic.NewRegistry(evaluators)
	for _, e := range evaluators { // so that their informers run
		version := "v1"
		if _, err := lister(e.GroupResource().WithVersion(version)); err != nil {
			panic(err)
		}
	}
}

func (q *quotaReference) ValidateInitialization() error { return nil }

// awaitClasses waits until the evaluator of claims knows the DeviceClasses: it learns them by events, which come at
// some time after the informer has synced.
func (q *quotaReference) awaitClasses() {
	claims := q.registry.Get(schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"})
	classes, err := q.factory.Resource().V1().DeviceClasses().Lister().List(labels.Everything())
	if err != nil {
		panic(err)
	}
	for _, class := range classes {
		limit := corev1.ResourceName(corev1.ResourceImplicitExtendedClaimsPerClass + class.Name)
		if class.Spec.ExtendedResourceName != nil {
			limit = corev1.ResourceName("requests." + *class.Spec.ExtendedResourceName)
		}
		claim := &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class.Name,
				AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}}}}
		for known := false; !known; time.Sleep(time.Millisecond) {
			use, err := claims.Usage(claim)
			if err != nil {
				panic(err)
			}
			_, known = use[limit]
			known = known && len(claims.MatchingResources([]corev1.ResourceName{limit})) > 0
		}
	}
}

// status returns the quotas of a namespace as the controller leaves them.
func (q *quotaReference) status(namespace string) ([]corev1.ResourceQuota, error) {
	stored, err := q.factory.Core().V1().ResourceQuotas().Lister().ResourceQuotas(namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var all []corev1.ResourceQuota
	for _, name := range []string{"a", "b", "c", "q"} { // in the order of names, as ours
		for _, one := range stored {
			if one.Name != name {
				continue
			}
			one = one.DeepCopy()
			used, err := quota.CalculateUsage(namespace, one.Spec.Scopes, one.Spec.Hard, q.registry,
				one.Spec.ScopeSelector)
			if err != nil {
				return nil, err
			}
			one.Status.Hard, one.Status.Used = one.Spec.Hard, used
			all = append(all, *one)
		}
	}
	if len(all) != len(stored) {
		return nil, fmt.Errorf("a quota has another name")
	}
	return all, nil
}

func (q *quotaReference) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	namespace := a.GetNamespace()
	if _, ignored := install.DefaultIgnoredResources()[a.GetResource().GroupResource()]; ignored || namespace == "" ||
		a.GetKind().Kind == "Namespace" {
		return nil
	}
	evaluator := q.registry.Get(a.GetResource().GroupResource())
	if evaluator == nil {
		evaluator = generic.NewObjectCountEvaluator(a.GetResource().GroupResource(), nil, "")
	}
	q.informed.Do(q.awaitClasses)
	quotas, err := q.status(namespace)
	if err != nil {
		return err
	}
	if len(quotas) == 0 && len(q.config.LimitedResources) == 0 {
		return nil
	}
	_, err = resourcequota.CheckRequest(quotas, a, evaluator, q.config.LimitedResources)
	return err
}

// quotaCases makes the objects of a test of quotas.
type quotaCases struct{ random }

func (r quotaCases) amounts() string {
	return fields("cpu", r.one("", "100m", "500m", `"1"`), "memory", r.one("", "64Mi", "1Gi", "1G"),
		"ephemeral-storage", r.one("", "", "1Gi"), "hugepages-2Mi", r.one("", "", "2Mi"),
		"example.com/gpu", r.one("", "", "1"))
}

func (r quotaCases) container() string {
	return fields("name", r.one("a", "b"), "image", "i", "resources",
		fields("requests", r.amounts(), "limits", r.one("", r.amounts())))
}

// extended makes Pods and claims of the scheduler for extended resources: the claim of a Pod has its annotation and its
// owner reference. Their Pods and claims fit together often, but not always.
type extended struct{ quotaCases }

func (r extended) amounts() string {
	return fields("cpu", "100m", "example.com/gpu", r.one("", "1", "3"), "example.com/nic", r.one("", "", "2"),
		"deviceclass.resource.kubernetes.io/gpu", r.one("", "", "1", "2"))
}

func (r extended) podNamed(name string) string {
	list := r.amounts() // the requests and the limits of an extended resource are equal
	return doc("v1", "Pod", "ns", name, []string{"resourceVersion", quoted("1")}, "spec",
		fields("containers", "["+fields("name", "c", "image", "i",
			"resources", fields("requests", list, "limits", list))+"]"),
		"status", fields("phase", r.one("Pending", "Running", "Running", "Succeeded"), "qosClass", "Burstable",
			"extendedResourceClaimStatus", r.one("", "", "{resourceClaimName: r1, requestMappings: []}",
				"{resourceClaimName: new, requestMappings: []}")))
}

func (r extended) resourceClaimNamed(name string) string {
	pod, flaw := r.one("p1", "p1", "p1", "p1", "p2", "p2", "gone"), r.IntN(12) // most claims have none
	flawed := func(number int, right, wrong string) string {
		if flaw == number {
			return wrong
		}
		return right
	}
	owner := fields("apiVersion", flawed(0, "v1", "apps/v1"), "kind", flawed(1, "Pod", "Node"),
		"name", pod, "uid", flawed(2, "uid-"+pod, "another"), "controller", flawed(3, "true", "false"))
	request := func(name string) string {
		return fields("name", name, "exactly", fields("deviceClassName", r.one("gpu", "gpu", "nic", "plain", "unknown"),
			"allocationMode", "ExactCount", "count", r.one("1", "2", "3")))
	}
	requests := request("a")
	if r.IntN(3) == 0 {
		requests = "{name: b, firstAvailable: [{name: s, deviceClassName: gpu, allocationMode: ExactCount, count: 1}, " +
			"{name: t, deviceClassName: plain, allocationMode: ExactCount, count: 2}]}"
	}
	return doc("resource.k8s.io/v1", "ResourceClaim", "ns", name, []string{"resourceVersion", quoted("1"),
		"creationTimestamp", quoted(r.one("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z")),
		"annotations", flawed(4, flawed(5, "{resource.kubernetes.io/extended-resource-claim: 'true'}", ""),
			"{resource.kubernetes.io/extended-resource-claim: 'false'}"),
		"ownerReferences", "[" + owner + "]"}, "spec", "{devices: {requests: ["+requests+"]}}")
}

func (r extended) quotaNamed(name string) string {
	hard := fields("requests.example.com/gpu", r.one("", "2", "5", "8"), "requests.example.com/nic", r.one("", "", "4"),
		"requests.deviceclass.resource.kubernetes.io/gpu", r.one("", "3", "6"),
		"requests.deviceclass.resource.kubernetes.io/plain", r.one("", "", "3"),
		"requests.deviceclass.resource.kubernetes.io/unknown", r.one("", "", "1"),
		"gpu.deviceclass.resource.k8s.io/devices", r.one("", "", "7"), "pods", "10")
	return doc("v1", "ResourceQuota", "ns", name, nil, "spec",
		fields("hard", hard, "scopes", r.one("", "", "", "", "[NotTerminating]")))
}

// podNamed is a Pod in all the ways that scopes and use can tell apart.
func (r quotaCases) podNamed(name string) string {
	meta := []string{"resourceVersion", quoted("1")}
	if r.IntN(6) == 0 {
		meta = append(meta, "deletionTimestamp", quoted(r.one("2024-01-01T00:00:00Z", "2999-01-01T00:00:00Z")),
			"deletionGracePeriodSeconds", r.one("30", "30", ""))
	}
	affinity := ""
	if r.IntN(4) == 0 {
		term := r.one("{topologyKey: a, namespaces: [other]}", "{topologyKey: a}",
			"{topologyKey: a, namespaceSelector: {}}")
		affinity = r.one("{podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: ["+term+"]}}",
			"{podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: "+term+"}]}}",
			"{podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: "+term+"}]}}",
			"{podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: ["+term+"]}}")
	}
	containers := "[" + r.container() + "]"
	status := fields("phase", r.one("", "Pending", "Running", "Running", "Succeeded", "Failed"),
		"qosClass", r.one("BestEffort", "Burstable"))
	if r.IntN(3) == 0 {
		status = fields("phase", "Running", "qosClass", "Burstable", "containerStatuses",
			"[{name: a, image: i, ready: true, restartCount: 0, allocatedResources: {cpu: 2}, resources: "+
				fields("requests", r.amounts())+"}]",
			"conditions", r.one("", "[{type: PodResizePending, status: 'True', reason: Infeasible}]"))
	}
	return doc("v1", "Pod", "ns", name, meta, "spec", fields("containers", containers,
		"initContainers", r.list(1, func() string {
			return fields("name", "i", "image", "i", "restartPolicy", r.one("", "Always"), "resources",
				fields("requests", r.amounts()))
		}),
		"activeDeadlineSeconds", r.one("", "", "10"), "priorityClassName", r.one("", "", "high", "low"),
		"overhead", r.one("", "", "{cpu: 10m}"), "affinity", affinity,
		"resources", r.one("", "", "", fields("requests", "{cpu: 3, memory: 1Gi}"))), "status", status)
}

func (r quotaCases) claimNamed(name string) string {
	return doc("v1", "PersistentVolumeClaim", "ns", name, []string{"resourceVersion", quoted("1"),
		"annotations", r.one("", "", "{volume.beta.kubernetes.io/storage-class: silver}")}, "spec",
		fields("accessModes", "[ReadWriteOnce]", "storageClassName", r.one("", "gold", "silver", `""`),
			"volumeAttributesClassName", r.one("", "", "fast"),
			"resources", r.one("{}", "{requests: {storage: 1Gi}}", "{requests: {storage: 1500m}}",
				"{requests: {storage: 5Gi}}")),
		"status", fields("phase", "Bound", "currentVolumeAttributesClassName", r.one("", "", "slow"),
			"allocatedResources", r.one("", "", "{storage: 3Gi}"),
			"modifyVolumeStatus", r.one("", "", "{status: Pending, targetVolumeAttributesClassName: slow}")))
}

func (r quotaCases) serviceNamed(name string) string {
	kind := r.one("ClusterIP", "NodePort", "LoadBalancer")
	allocate := ""
	if kind == "LoadBalancer" {
		allocate = r.one("", "true", "false")
	}
	return doc("v1", "Service", "ns", name, []string{"resourceVersion", quoted("1")}, "spec", fields("type", kind,
		"allocateLoadBalancerNodePorts", allocate,
		"ports", "["+fields("name", "a", "port", "80", "nodePort", r.one("", "30001"))+
			r.one("", ", {name: b, port: 81}")+"]"))
}

func (r quotaCases) resourceClaimNamed(name string) string {
	exactly := func() string {
		return fields("deviceClassName", r.one("gpu", "nic"), "allocationMode", r.one("ExactCount", "All"), "count",
			"2")
	}
	request := func() string {
		if r.IntN(2) == 0 {
			return fields("name", "r", "exactly", exactly())
		}
		return "{name: r, firstAvailable: [{name: s, deviceClassName: gpu, allocationMode: ExactCount, count: 1}, " +
			"{name: t, deviceClassName: gpu, allocationMode: ExactCount, count: 3}, " +
			"{name: u, deviceClassName: nic, allocationMode: All}]}"
	}
	return doc("resource.k8s.io/v1", "ResourceClaim", "ns", name, []string{"resourceVersion", quoted("1")}, "spec",
		"{devices: {requests: "+
			r.list(2, request)+"}}")
}

// quotaNamed is a quota with a few limits, some of which objects of these cases pass.
func (r quotaCases) quotaNamed(name string) string {
	hard := r.some("pods: "+r.one("1", "3", "10"), "count/pods: "+r.one("2", "10"), "requests.cpu: "+r.one("1", "5"),
		"cpu: "+r.one("2", "50"), "limits.memory: "+r.one("2Gi", "5G"), "requests.ephemeral-storage: 2Gi",
		"hugepages-2Mi: 4Mi", "requests.example.com/gpu: 2", "services: "+r.one("1", "4"), "services.nodeports: 2",
		"services.loadbalancers: 1", "persistentvolumeclaims: "+r.one("1", "9"), "requests.storage: 10Gi",
		"gold.storageclass.storage.k8s.io/requests.storage: 6Gi",
		"silver.storageclass.storage.k8s.io/persistentvolumeclaims: 1", "configmaps: 2", "count/secrets: 1",
		"count/deployments.apps: 1", "resourcequotas: 2", "gpu.deviceclass.resource.k8s.io/devices: 4",
		"count/resourceclaims.resource.k8s.io: 3", "requests.memory: 3Gi", "limits.cpu: 2")
	list := "{}"
	if len(hard) > 0 {
		// Few of them, so that most requests meet one of them or none.
		r.Shuffle(len(hard), func(i, j int) { hard[i], hard[j] = hard[j], hard[i] })
		list = "{"
		for i := range min(len(hard), 1+r.IntN(4)) {
			if i > 0 {
				list += ", "
			}
			list += hard[i]
		}
		list += "}"
	}
	selector := ""
	if r.IntN(4) == 0 {
		selector = "{matchExpressions: [" + r.one(
			"{scopeName: PriorityClass, operator: In, values: [high]}",
			"{scopeName: PriorityClass, operator: NotIn, values: [high]}",
			"{scopeName: PriorityClass, operator: Exists}", "{scopeName: PriorityClass, operator: DoesNotExist}",
			"{scopeName: VolumeAttributesClass, operator: In, values: [fast, slow]}",
			"{scopeName: VolumeAttributesClass, operator: Exists}",
			"{scopeName: VolumeAttributesClass, operator: DoesNotExist}",
			"{scopeName: VolumeAttributesClass, operator: NotIn, values: [slow]}",
			"{scopeName: BestEffort, operator: Exists}",
			"{scopeName: CrossNamespacePodAffinity, operator: Exists}") + "]}"
	}
	return doc("v1", "ResourceQuota", "ns", name, nil, "spec", fields("hard", list,
		"scopes", r.one("", "", "", "[BestEffort]", "[NotBestEffort]", "[Terminating]", "[NotTerminating]",
			"[NotTerminating, NotBestEffort]", "[CrossNamespacePodAffinity]", "[PriorityClass]"),
		"scopeSelector", selector))
}

// quotaConfiguration limits some types unless a quota covers them.
const quotaConfiguration = `
apiVersion: apiserver.config.k8s.io/v1
kind: ResourceQuotaConfiguration
limitedResources:
- {resource: pods, matchContains: [cpu, gpu], matchScopes: [{scopeName: PriorityClass, operator: In, values: [high]}]}
- {resource: persistentvolumeclaims, matchContains: [.storageclass.storage.k8s.io/requests.storage],
   matchScopes: [{scopeName: VolumeAttributesClass, operator: In, values: [fast]}]}
- {apiGroup: apps, resource: deployments, matchContains: [count/]}
`

// SPEC: AUTH-5
func TestResourceQuota(t *testing.T) {
	r, count := quotaCases{seeded(23)}, tally{}
	of := func(group, version, resource, subresource, _ string, operation admission.Operation, object,
		old string) attempt {
		return attempt{operation: operation, group: group, version: version, resource: resource,
			subresource: subresource,
			namespace:   "ns", name: "new", object: object, old: old}
	}
	for i := range 150 {
		objects := []string{r.quotaNamed("a"), r.podNamed("p1"), r.podNamed("p2"), r.claimNamed("c1"),
			r.serviceNamed("s1"),
			r.resourceClaimNamed("r1"), doc("v1", "ConfigMap", "ns", "m1", nil),
			doc("v1", "ResourceQuota", "elsewhere", "q", nil, "spec", "{hard: {pods: 0, services: 0}}")}
		if i%3 > 0 {
			objects = append(objects, r.quotaNamed("b"), doc("v1", "Secret", "ns", "x", nil))
		}
		if i%3 > 1 {
			objects = append(objects, r.quotaNamed("c"))
		}
		w := (&world{plugin: "ResourceQuota", registered: quotaReferenceName, validateOnly: true, objects: objects,
			configuration: r.one("",
				quotaConfiguration)}).build(t)
		for range 8 {
			w.compare(t, of("", "v1", "pods", "", "Pod", admission.Create, r.podNamed("new"), ""), &count)
			w.compare(t, of("", "v1", "pods", "", "Pod", admission.Update, r.podNamed("new"), r.podNamed("new")),
				&count)
			w.compare(t, of("", "v1", "pods", "resize", "Pod", admission.Update, r.podNamed("new"),
				r.podNamed("new")), &count)
			w.compare(t, of("", "v1", "pods", "status", "Pod", admission.Update, r.podNamed("new"),
				r.podNamed("new")), &count)
			w.compare(t, of("", "v1", "services", "", "Service", admission.Create, r.serviceNamed("new"), ""), &count)
			w.compare(t, of("", "v1", "services", "", "Service", admission.Update, r.serviceNamed("new"),
				r.serviceNamed("new")), &count)
			w.compare(t, of("", "v1", "persistentvolumeclaims", "", "PersistentVolumeClaim", admission.Create,
				r.claimNamed("new"), ""), &count)
			w.compare(t, of("", "v1", "persistentvolumeclaims", "", "PersistentVolumeClaim", admission.Update,
				r.claimNamed("new"), r.claimNamed("new")), &count)
			w.compare(t, of("resource.k8s.io", "v1", "resourceclaims", "", "ResourceClaim", admission.Create,
				r.resourceClaimNamed("new"), ""), &count)
			w.compare(t, of("resource.k8s.io", "v1", "resourceclaims", "", "ResourceClaim", admission.Update,
				r.resourceClaimNamed("new"), r.resourceClaimNamed("new")), &count)
		}
		for _, kind := range []string{"ConfigMap", "Secret", "ResourceQuota"} {
			resource := map[string]string{"ConfigMap": "configmaps", "Secret": "secrets",
				"ResourceQuota": "resourcequotas"}[kind]
			w.compare(t, of("", "v1", resource, "", kind, admission.Create, doc("v1", kind, "ns", "new", nil), ""),
				&count)
			w.compare(t, of("", "v1", resource, "", kind, admission.Update, doc("v1", kind, "ns", "new", nil),
				doc("v1", kind, "ns", "new", nil)), &count)
		}
		deployment := doc("apps/v1", "Deployment", "ns", "new", nil, "spec",
			"{selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, "+
				"spec: {containers: [{name: c, image: i}]}}}")
		w.compare(t, of("apps", "v1", "deployments", "", "Deployment", admission.Create, deployment, ""), &count)
	}
	count.atLeast(t, 0, 4000, 2000)
}

// extendedConfiguration limits claims unless a quota covers them.
const extendedConfiguration = `
apiVersion: apiserver.config.k8s.io/v1
kind: ResourceQuotaConfiguration
limitedResources:
- {apiGroup: resource.k8s.io, resource: resourceclaims, matchContains: [example.com/gpu, kubernetes.io/plain]}
`

// Claims for devices count as extended resources, too, as far as the Pods do not that the scheduler has made them for.
//
// SPEC: AUTH-5
func TestResourceQuotaOfExtendedResources(t *testing.T) {
	r, count := extended{quotaCases{seeded(71)}}, tally{}
	class := func(name, resource string) string {
		return doc("resource.k8s.io/v1", "DeviceClass", "", name, nil, "spec", fields("extendedResourceName", resource))
	}
	for range 150 {
		objects := []string{r.quotaNamed("a"), r.podNamed("p1"), r.podNamed("p2"), r.resourceClaimNamed("r1"),
			r.resourceClaimNamed("r2"), r.resourceClaimNamed("r3"), class("gpu", "example.com/gpu"),
			class("nic", r.one("example.com/nic", "")), class("plain", "")}
		w := (&world{plugin: "ResourceQuota", registered: quotaReferenceName, validateOnly: true, objects: objects,
			configuration: r.one("", "", extendedConfiguration)}).build(t)
		of := func(group, resource string, operation admission.Operation, object, old string) {
			w.compare(t, attempt{operation: operation, group: group, version: "v1", resource: resource, namespace: "ns",
				name: "new", object: object, old: old}, &count)
		}
		for range 8 {
			of("", "pods", admission.Create, r.podNamed("new"), "")
			of("resource.k8s.io", "resourceclaims", admission.Create, r.resourceClaimNamed("new"), "")
			of("resource.k8s.io", "resourceclaims", admission.Update, r.resourceClaimNamed("new"), r.resourceClaimNamed("new"))
		}
	}
	count.atLeast(t, 0, 1000, 1000)
	// A Pod counts for its oldest claim, whatever the names.
	claim := func(name, created, devices string) string {
		return doc("resource.k8s.io/v1", "ResourceClaim", "ns", name, []string{"creationTimestamp", quoted(created),
			"annotations", "{resource.kubernetes.io/extended-resource-claim: 'true'}", "ownerReferences",
			"[{apiVersion: v1, kind: Pod, name: p1, uid: uid-p1, controller: true}]"}, "spec",
			"{devices: {requests: [{name: a, exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: "+devices+"}}]}}")
	}
	of := func(name, devices string) string {
		list := "{example.com/gpu: " + devices + "}"
		return doc("v1", "Pod", "ns", name, []string{"resourceVersion", quoted("1")}, "spec", fields("containers", "["+
			fields("name", "c", "image", "i", "resources", fields("requests", list, "limits", list))+"]"), "status",
			"{phase: Running, qosClass: Burstable}")
	}
	few := tally{}
	for hard := range 8 {
		w := (&world{plugin: "ResourceQuota", registered: quotaReferenceName, validateOnly: true, objects: []string{
			doc("v1", "ResourceQuota", "ns", "a", nil, "spec", fmt.Sprintf("{hard: {requests.example.com/gpu: %d}}", hard)),
			of("p1", "2"), claim("r1", "2021-01-01T00:00:00Z", "3"), claim("r2", "2020-01-01T00:00:00Z", "1"),
			class("gpu", "example.com/gpu")}}).build(t)
		w.compare(t, attempt{operation: admission.Create, version: "v1", resource: "pods", namespace: "ns", name: "new",
			object: of("new", "1")}, &few)
	}
	few.atLeast(t, 0, 2, 2)
}

// strictConfiguration limits resources under names of other groups and other resources, and some twice.
const strictConfiguration = `
apiVersion: apiserver.config.k8s.io/v1
kind: ResourceQuotaConfiguration
limitedResources:
- {resource: pods, matchContains: [memory]}
- {resource: pods, matchContains: [cpu, memory]}
- {resource: nodes, matchContains: [count/]}
- {resource: namespaces, matchContains: [count/]}
- {resource: events, matchContains: [count/]}
- {apiGroup: example.com, resource: configmaps, matchContains: [count/]}
- {resource: secrets, matchContains: [count/]}
`

// Few requests need a quota: of most operations, subresources and types none is looked at. These are all over every
// limit.
//
// SPEC: AUTH-5
func TestResourceQuotaOfFewRequests(t *testing.T) {
	count := tally{}
	const containers = "[{name: c, image: i, resources: {requests: {cpu: %s, memory: 1Gi}, " +
		"limits: {cpu: 2, memory: 1Gi}}}]"
	version := []string{"resourceVersion", quoted("1")}
	pod := func(cpu, deadline string) string {
		return doc("v1", "Pod", "ns", "new", version, "spec", fields("containers", fmt.Sprintf(containers, cpu),
			"activeDeadlineSeconds", deadline, "priorityClassName", "high"), "status", "{qosClass: Burstable}")
	}
	service := func(kind string) string {
		return doc("v1", "Service", "ns", "new", version, "spec", "{type: "+kind+", ports: [{name: a, port: 80}]}")
	}
	claim := func(size, allocated string) string {
		return doc("v1", "PersistentVolumeClaim", "ns", "new", version, "spec",
			"{accessModes: [ReadWriteOnce], resources: {requests: {storage: "+size+"}}}", "status",
			fields("allocatedResources", allocated))
	}
	devices := func(n string) string {
		return doc("resource.k8s.io/v1", "ResourceClaim", "ns", "new", version, "spec", "{devices: {requests: [{name: r, "+
			"exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: "+n+"}}]}}")
	}
	plain := func(kind string) string { return doc("v1", kind, "ns", "new", version) }
	const claims, deviceClaims = "/v1/persistentvolumeclaims", "resource.k8s.io/v1/resourceclaims"
	requests := []struct{ path, object, old string }{ // a create without an old object, a delete without a new one
		{"/v1/pods", pod("1", ""), ""}, {"/v1/pods", pod("-1", ""), ""}, {"/v1/pods", pod("1", ""), pod("1", "")},
		{"/v1/pods", pod("1", "5"), pod("1", "")}, {"/v1/pods", pod("1", ""), pod("1", "5")}, {"/v1/pods", "", pod("1", "")},
		{"/v1/pods/resize", pod("2", ""), pod("1", "")}, {"/v1/pods/resize", pod("1", ""), pod("2", "")},
		{"/v1/pods/status", pod("2", "5"), pod("1", "")}, {"/v1/pods/ephemeralcontainers", pod("2", "5"), pod("1", "")},
		{"/v1/pods/binding", doc("v1", "Binding", "ns", "new", nil, "target", "{name: n1}"), ""},
		{"/v1/pods/eviction", doc("policy/v1", "Eviction", "ns", "new", nil), ""},
		{"/v1/services", service("NodePort"), ""}, {"/v1/services", service("LoadBalancer"), service("ClusterIP")},
		{"/v1/services", service("NodePort"), service("NodePort")}, {"/v1/services", "", service("NodePort")},
		{"/v1/services/status", service("LoadBalancer"), service("ClusterIP")},
		{claims, claim("1Gi", ""), ""}, {claims, claim("2Gi", ""), claim("1Gi", "")},
		{claims + "/status", claim("1Gi", "{storage: 5Gi}"), claim("1Gi", "")},
		{deviceClaims, devices("2"), ""}, {deviceClaims, devices("2"), devices("1")},
		{deviceClaims + "/status", devices("2"), devices("1")},
		{"/v1/configmaps", plain("ConfigMap"), ""}, {"/v1/configmaps", plain("ConfigMap"), plain("ConfigMap")},
		{"/v1/configmaps", "", plain("ConfigMap")}, {"/v1/secrets", plain("Secret"), ""},
		{"/v1/events", doc("v1", "Event", "ns", "new", nil, "involvedObject", "{kind: Pod}"), ""},
		{"events.k8s.io/v1/events", doc("events.k8s.io/v1", "Event", "ns", "new", nil), ""},
		{"/v1/nodes", doc("v1", "Node", "", "new", nil), ""}, {"/v1/namespaces", doc("v1", "Namespace", "", "new", nil), ""},
		{"authorization.k8s.io/v1/localsubjectaccessreviews", doc("authorization.k8s.io/v1", "LocalSubjectAccessReview",
			"ns", "", nil, "spec", "{user: jane}"), ""},
	}
	const all = "{pods: 0, count/pods: 0, requests.cpu: 1, limits.memory: 1, services: 0, services.nodeports: 0, " +
		"services.loadbalancers: 0, persistentvolumeclaims: 0, requests.storage: 1, configmaps: 0, count/events: 0, " +
		"count/events.events.k8s.io: 0, gpu.deviceclass.resource.k8s.io/devices: 0, count/nodes: 0, count/secrets: 0}"
	wrong := "{matchExpressions: [{scopeName: PriorityClass, operator: In}]}"
	for _, quota := range []string{"", fields("hard", all), fields("hard", "{cpu: 1, memory: 1Gi}"),
		fields("hard", all, "scopes", "[Terminating]"), fields("hard", all, "scopes", "[NotTerminating, NotBestEffort]"),
		fields("hard", all, "scopeSelector", wrong), fields("hard", "{cpu: 5}", "scopeSelector",
			"{matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}")} {
		for _, configuration := range []string{"", strictConfiguration, quotaConfiguration, strictConfiguration +
			"- {resource: pods, matchScopes: [{scopeName: PriorityClass, operator: In}]}\n"} {
			w := &world{plugin: "ResourceQuota", registered: quotaReferenceName, validateOnly: true,
				configuration: configuration}
			if quota != "" {
				w.objects = []string{doc("v1", "ResourceQuota", "ns", "a", nil, "spec", quota)}
			}
			w.build(t)
			for _, request := range requests {
				a := nodeAttempt(admission.Update, request.path, "ns", "new", request.object, request.old)
				switch {
				case request.old == "":
					a.operation = admission.Create
				case request.object == "":
					a.operation = admission.Delete
				}
				if a.resource == "nodes" || a.resource == "namespaces" {
					a.namespace = ""
				}
				w.compare(t, a, &count)
			}
		}
	}
	count.atLeast(t, 0, 500, 100)
}
