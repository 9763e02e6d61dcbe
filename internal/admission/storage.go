package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"plinth/internal/admission/quota"
	"plinth/internal/engine"
	"plinth/object"
)

// The annotations that mark a StorageClass as the default one.
const (
	defaultStorageClass     = "storageclass.kubernetes.io/is-default-class"
	defaultStorageClassBeta = "storageclass.beta.kubernetes.io/is-default-class"
)

// newDefaultStorageClass makes the plugin DefaultStorageClass: a PersistentVolumeClaim that names no class gets the one
// that is marked as the default.
func newDefaultStorageClass(c *Config) (steps, error) {
	class := c.objects.defaultOf(kindOf{storagev1.GroupName, "v1", "storageclasses"},
		annotated(defaultStorageClass, defaultStorageClassBeta), newest)
	return steps{admit: func(ctx context.Context, a *engine.Attributes) error {
		if a.Operation != engine.OperationCreate || !about(a, "", "persistentvolumeclaims", "") {
			return nil
		}
		if _, named := quota.StorageClass(a.Object); named {
			return nil
		}
		found, err := class(ctx, a)
		if !found.IsNull() {
			a.Object = a.Object.WithAt(found.At("metadata", "name"), "spec", "storageClassName")
		}
		return err
	}}, nil
}

// protection are the finalizers of the plugin StorageObjectInUseProtection, by group and resource. Controllers of the
// server take them away when the object is deleted and not in use any more.
var protection = map[[2]string]string{
	{"", "persistentvolumes"}:                        "kubernetes.io/pv-protection",
	{"", "persistentvolumeclaims"}:                   "kubernetes.io/pvc-protection",
	{storagev1.GroupName, "volumeattributesclasses"}: "kubernetes.io/vac-protection",
}

// storageObjectInUseProtection is the plugin StorageObjectInUseProtection.
func storageObjectInUseProtection(_ context.Context, a *engine.Attributes) error {
	r := a.Request.Resource
	finalizer := protection[[2]string{r.Group, r.Name}]
	if a.Operation != engine.OperationCreate || finalizer == "" || a.Request.Subresource != nil {
		return nil
	}
	protect(a, finalizer)
	return nil
}

// protect adds a finalizer to the object, unless it has it.
func protect(a *engine.Attributes, finalizer string) {
	all := a.Object.At("metadata", "finalizers").Items()
	if slices.ContainsFunc(all, func(v object.Value) bool { return v.Str() == finalizer }) {
		return
	}
	all = append(all[:len(all):len(all)], object.StringOf(finalizer))
	a.Object = a.Object.WithAt(object.ListOf(all...), "metadata", "finalizers")
}

// newPersistentVolumeClaimResize makes the plugin PersistentVolumeClaimResize: only a bound claim grows, and only if
// its class allows it.
func newPersistentVolumeClaimResize(c *Config) (steps, error) {
	return steps{validate: func(ctx context.Context, a *engine.Attributes) error {
		if a.Operation != engine.OperationUpdate || !about(a, "", "persistentvolumeclaims", "") {
			return nil
		}
		size := func(claim object.Value) object.Value { return claim.At("spec", "resources", "requests", "storage") }
		if size(a.Object) == size(a.Old) {
			return nil
		}
		next := quota.Quantity(size(a.Object))
		if next.Cmp(quota.Quantity(size(a.Old))) <= 0 {
			return nil
		}
		if a.Old.At("status", "phase").Str() != string(corev1.ClaimBound) {
			return forbidden(a, "Only bound persistent volume claims can be expanded")
		}
		name, _ := quota.StorageClass(a.Object)
		if before, _ := quota.StorageClass(a.Old); name != "" && name == before {
			class, err := c.objects.get(ctx, kindOf{storagev1.GroupName, "v1", "storageclasses"}, "", name)
			if err == nil && class.At("allowVolumeExpansion").Bool() {
				return nil
			}
		}
		return forbidden(a, "only dynamically provisioned pvc can be resized and "+
			"the storageclass that provisions the pvc must support resize")
	}}, nil
}
