package quota

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/internal/store"
	"plinth/object"
)

func number(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

// useService is what a Service uses. Its node ports may not be allocated yet, so those are counted that will be.
func useService(service object.Value) amounts {
	spec := service.At("spec")
	ports := spec.At("ports").Items()
	all := amounts{CountName(services): one, string(corev1.ResourceServices): one}
	switch corev1.ServiceType(spec.At("type").Str()) {
	case corev1.ServiceTypeNodePort:
		all[string(corev1.ResourceServicesNodePorts)] = number(int64(len(ports)))
	case corev1.ServiceTypeLoadBalancer:
		n := len(ports)
		if allocate := spec.At("allocateLoadBalancerNodePorts"); !allocate.IsNull() && !allocate.Bool() {
			n = 0
			for _, p := range ports {
				if p.At("nodePort").Int() != 0 {
					n++
				}
			}
		}
		all[string(corev1.ResourceServicesNodePorts)] = number(int64(n))
		all[string(corev1.ResourceServicesLoadBalancers)] = one
	}
	return all
}

// byStorageClass is the part of the name of a limit between the name of a StorageClass and that of a resource.
const byStorageClass = ".storageclass.storage.k8s.io/"

// useClaim is what a PersistentVolumeClaim uses, in all and of its StorageClass.
func useClaim(claim object.Value) *store.Charge {
	all := amounts{CountName(claims): one}
	add := func(name corev1.ResourceName, value resource.Quantity) {
		all[string(name)] = value
		if class, _ := StorageClass(claim); class != "" {
			all[class+byStorageClass+string(name)] = value
		}
	}
	add(corev1.ResourcePersistentVolumeClaims, one)
	if asked := claim.At("spec", "resources", "requests", "storage"); !asked.IsNull() {
		size := Quantity(asked)
		// More may be allocated than is asked for: while a claim grows, or after that was taken back.
		if allocated := Quantity(claim.At("status", "allocatedResources", "storage")); allocated.Cmp(size) > 0 {
			size = allocated
		}
		size.RoundUp(0)
		add(corev1.ResourceRequestsStorage, size)
	}
	return &store.Charge{Class: claimClass(claim), Amounts: sorted(all)}
}

// StorageClass is the name of the StorageClass of a claim, and whether the claim has one; the name "" is none, too, but
// is said.
func StorageClass(claim object.Value) (name string, named bool) {
	if v, ok := claim.At("metadata", "annotations").Get(corev1.BetaStorageClassAnnotation); ok {
		return v.Str(), true
	}
	v := claim.At("spec", "storageClassName")
	return v.Str(), !v.IsNull()
}

// useResourceClaim is what a ResourceClaim uses: devices of each class. A request with alternatives counts as the most
// that it may get of each class.
func useResourceClaim(claim object.Value) amounts {
	all := amounts{CountName(resourceClaims): one}
	add := func(class string, n int64) {
		name := class + corev1.ResourceClaimsPerClass
		sum := all[name]
		sum.Add(number(n))
		all[name] = sum
	}
	for _, request := range claim.At("spec", "devices", "requests").Items() {
		if alternatives := request.At("firstAvailable").Items(); len(alternatives) > 0 {
			most := map[string]int64{}
			for _, a := range alternatives {
				class := a.At("deviceClassName").Str()
				most[class] = max(most[class], devices(a))
			}
			for class, n := range most {
				add(class, n)
			}
		} else {
			of := request.At("exactly") // null in a newer version: no devices
			if request.At("deviceClassName").Len() > 0 {
				of = request // of v1beta1
			}
			add(of.At("deviceClassName").Str(), devices(of))
		}
	}
	return all
}

// devices is how many devices a request may get.
func devices(request object.Value) int64 {
	switch resourcev1.DeviceAllocationMode(request.At("allocationMode").Str()) {
	case resourcev1.DeviceAllocationModeExactCount:
		return request.At("count").Int()
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0 // of a newer version
}
