package builtin

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

// mirror is the annotation of static Pods, which a kubelet runs by itself and for which the API only has a copy.
const mirror = "kubernetes.io/config.mirror"

// podSubresources are the subresources that change a running Pod: ephemeral containers can be added, and resources can
// be changed. running is the validation of an existing Pod.
func podSubresources(
	r *engine.Resource, set features.Set, running func(obj, old object.Value) field.ErrorList,
) []*engine.Subresource {
	gates := podGates("spec")
	at := func(name string, write func(old, body object.Value) object.Value,
		refuse func(old object.Value) (why string), validate func(obj, old object.Value) field.ErrorList,
	) *engine.Subresource {
		return &engine.Subresource{
			Name: name, Group: r.Group, Version: r.Version, Kind: r.Kind,
			Verbs:   []string{"get", "patch", "update"},
			Schema:  r.Schema,
			Default: r.Default,
			Write: func(old, body object.Value) (object.Value, error) {
				return dropGated(write(old, body), old, gates, set), nil
			},
			Validate: func(_ context.Context, _, obj, old object.Value) field.ErrorList {
				if why := refuse(old); why != "" { // the reference reports no other error then
					return field.ErrorList{field.Forbidden(field.NewPath(""), why)}
				}
				return append(running(obj, old), validate(obj, old)...)
			},
		}
	}
	volumes := set.On(features.InPlacePodVerticalScalingMemoryBackedVolumes)
	complete := set.On(features.PodLevelResourcesFixDefaulting)
	return []*engine.Subresource{
		at("ephemeralcontainers", addContainers, cannotDebug, addedContainers),
		at("resize", func(old, body object.Value) object.Value {
			return resize(old, body, volumes, complete)
		}, cannotResize, func(obj, old object.Value) field.ErrorList {
			return resized(obj, old, !set.On(features.InPlacePodVerticalScalingInitContainers), volumes)
		}),
	}
}

func isMirror(pod object.Value) bool {
	_, ok := pod.At("metadata", "annotations").Get(mirror)
	return ok
}

// cannotDebug returns why no ephemeral container can be added to a Pod; "" if one can.
func cannotDebug(pod object.Value) string {
	if isMirror(pod) {
		return "static pods do not support ephemeral containers"
	}
	return ""
}

// cannotResize returns why the resources of a Pod cannot be changed; "" if they can.
func cannotResize(pod object.Value) string {
	switch {
	case isMirror(pod):
		return "static pods cannot be resized"
	case pod.At("spec", "os", "name").Str() == "windows":
		return "windows pods cannot be resized"
	}
	return ""
}

// onlySpec returns the body with this spec, and with the status, labels, annotations, finalizers and owners of the old
// Pod.
func onlySpec(old, body, spec object.Value) object.Value {
	body = keepMeta(keep(body, old, "status"), old, stays[statusOnly]...)
	return body.With("spec", spec)
}

// addContainers takes only the ephemeral containers from the body.
func addContainers(old, body object.Value) object.Value {
	return onlySpec(old, body, keep(old.At("spec"), body.At("spec"), "ephemeralContainers"))
}

func addedContainers(obj, old object.Value) field.ErrorList {
	now := map[string]object.Value{}
	for _, c := range obj.At("spec", "ephemeralContainers").Items() {
		now[c.At("name").Str()] = c
	}
	var errs field.ErrorList
	path := field.NewPath("spec", "ephemeralContainers")
	for _, before := range old.At("spec", "ephemeralContainers").Items() {
		name := before.At("name").Str()
		switch current, ok := now[name]; {
		case !ok:
			errs = append(errs,
				field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", name)))
		case !object.Equal(current, before):
			errs = append(errs,
				field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n", name)))
		}
	}
	return errs
}

// resize takes only the resources of the containers and of the Pod, the resize policies, and with volumes the volumes
// from the body. If the body has other containers, they are kept, and validation refuses them.
// With complete, the resources of the Pod are kept if the body has none, and completed.
func resize(old, body object.Value, volumes, complete bool) object.Value {
	now, before := body.At("spec"), old.At("spec")
	if now.At("containers").Len() == before.At("containers").Len() &&
		now.At("initContainers").Len() == before.At("initContainers").Len() {
		spec := keep(before, now, "resources")
		if volumes {
			spec = keep(spec, now, "volumes")
		}
		for _, list := range []string{"containers", "initContainers"} {
			if containers := resizeContainers(before.At(list), now.At(list)); !containers.IsNull() {
				spec = spec.With(list, containers)
			}
		}
		body = onlySpec(old, body, spec)
	}
	if !complete {
		return body
	}
	body = keepPodResources(body, old)
	return body.With("spec", defaultPodResources(body.At("spec")))
}

func resizeContainers(previous, now object.Value) object.Value {
	resized := previous
	for i, c := range now.Items() {
		before := previous.Items()[i]
		if c.At("name").Str() != before.At("name").Str() {
			return now
		}
		resized = resized.WithItem(i, keep(keep(before, c, "resources"), c, "resizePolicy"))
	}
	return resized
}

// resized validates a resize. With fixed, of the init containers only sidecars can be resized; with volumes, the limits
// of volumes in memory can be changed.
func resized(obj, old object.Value, fixed, volumes bool) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	class := old.At("status", "qosClass").Str()
	if class == "" {
		class = qosClass(old.At("spec"))
	}
	if qosClass(obj.At("spec")) != class {
		errs = append(errs, field.Invalid(path, obj.At("status", "qosClass").Str(),
			"Pod QOS Class may not change as a result of resizing"))
	}
	if !nodeResizes(old) {
		errs = append(errs, field.Forbidden(path, "Pod running on node without support for resize"))
	}
	errs = append(errs, podResized(obj.At("spec", "resources"), old.At("spec", "resources"), path)...)
	wrongOrder := sameContainers(obj, old, path)
	if len(wrongOrder) > 0 {
		return append(errs, wrongOrder...)
	}
	for _, list := range []string{"initContainers", "containers"} {
		for i, before := range old.At("spec", list).Items() {
			now := obj.At("spec", list).Items()[i]
			if fixed && isSetup(before, list) {
				continue
			}
			errs = append(errs, notRemoved(now.At("resources"), before.At("resources"),
				path.Child(list).Index(i).Child("resources"), "resource ")...)
		}
	}
	for _, list := range []string{"containers", "initContainers"} {
		for i, before := range old.At("spec", list).Items() {
			now := obj.At("spec", list).Items()[i]
			if fixed && isSetup(before, list) {
				if !object.Equal(now, before) {
					errs = append(errs, field.Forbidden(path, "resources for non-sidecar init containers are immutable"))
				}
				continue
			}
			errs = append(errs, containerResized(now, before, list, i, path)...)
		}
	}
	if volumes {
		errs = append(errs, volumesResized(obj.At("spec", "volumes").Items(), old.At("spec", "volumes").Items(),
			path.Child("volumes"))...)
	}
	return errs
}

// volumesResized requires that nothing changes but the limits of volumes in memory that have one.
func volumesResized(current, previous []object.Value, path *field.Path) (errs field.ErrorList) {
	if len(current) != len(previous) {
		return field.ErrorList{field.Forbidden(path, "volumes may not be added or removed on resize")}
	}
	for i := range current {
		at := path.Index(i)
		if current[i].At("name").Str() != previous[i].At("name").Str() {
			errs = append(errs, field.Forbidden(at.Child("name"), "volumes may not be renamed or reordered on resize"))
			continue
		}
		now, before := current[i].At("emptyDir"), previous[i].At("emptyDir")
		both := !now.IsNull() && !before.IsNull()
		same := current[i]
		if both {
			same = same.With("emptyDir", keep(now, before, "sizeLimit"))
		}
		limit, limitBefore := now.At("sizeLimit"), before.At("sizeLimit")
		switch at := at.Child("emptyDir", "sizeLimit"); {
		case !object.Equal(same, previous[i]):
			errs = append(errs, field.Forbidden(path.Index(i),
				"only sizeLimit of memory-backed emptyDir volumes is mutable on resize"))
		case both && isZero(limit) != isZero(limitBefore):
			errs = append(errs, field.Forbidden(at, "adding or removing sizeLimit on an existing volume is not allowed"))
		case both && !isZero(limit) && !object.Equal(limit, limitBefore) && now.At("medium").Str() != "Memory":
			errs = append(errs, field.Forbidden(at, "sizeLimit is only mutable for memory-backed emptyDir volumes"))
		}
	}
	return errs
}

// isSetup says whether a container is an init container that ends before others start.
func isSetup(container object.Value, list string) bool {
	return list == "initContainers" && container.At("restartPolicy").Str() != "Always"
}

// nodeResizes says whether the kubelet of a Pod supports resizing: it does if it reports the resources of running
// containers in their status. If no container is running, the answer is yes.
func nodeResizes(pod object.Value) bool {
	for _, c := range pod.At("status", "containerStatuses").Items() {
		if !c.At("state", "running").IsNull() {
			return !c.At("resources").IsNull()
		}
	}
	return true
}

// sameContainers requires that no container is added, removed or moved.
func sameContainers(obj, old object.Value, path *field.Path) (errs field.ErrorList) {
	for _, list := range []string{"containers", "initContainers"} {
		now, before := obj.At("spec", list).Items(), old.At("spec", list).Items()
		if len(now) != len(before) {
			errs = append(errs, field.Forbidden(path.Child(list), list+" may not be added or removed on resize"))
			continue
		}
		for i := range before {
			if now[i].At("name").Str() != before[i].At("name").Str() {
				errs = append(errs, field.Forbidden(path.Child(list).Index(i).Child("name"),
					list+" may not be renamed or reordered on resize"))
			}
		}
	}
	return errs
}

// podResized validates the change of the resources of the Pod as a whole.
func podResized(now, before object.Value, path *field.Path) (errs field.ErrorList) {
	if now.At("requests").Len()+now.At("limits").Len()+before.At("requests").Len()+before.At("limits").Len() == 0 {
		return nil
	}
	if !before.IsNull() {
		if now.IsNull() {
			return field.ErrorList{field.Forbidden(path.Child("resources"), "pod-level resources cannot be removed")}
		}
		errs = notRemoved(now, before, path.Child("resources"), "pod-level resource ")
	}
	if !sameButComputing(now, before) {
		errs = append(errs, field.Forbidden(path, "only cpu and memory resources are mutable at pod-level"))
	}
	return errs
}

// containerResized requires that only CPU and memory of a container change.
func containerResized(now, before object.Value, list string, i int, path *field.Path) field.ErrorList {
	if !sameButComputing(now.At("resources"), before.At("resources")) || !object.Equal(now.Without("resources"),
		before.Without("resources")) {
		if list == "initContainers" {
			return field.ErrorList{field.Forbidden(path.Child(list).Index(i),
				"only cpu and memory resources for init or sidecar containers are mutable")}
		}
		return field.ErrorList{field.Forbidden(path, "only cpu and memory resources are mutable")}
	}
	if isSetup(before, list) && !object.Equal(now, before) {
		for _, policy := range now.At("resizePolicy").Items() {
			if policy.At("restartPolicy").Str() == "RestartContainer" {
				return field.ErrorList{field.Forbidden(path.Child(list).Index(i),
					"non-sidecar init containers with a resize policy of RestartContainer cannot be resized")}
			}
		}
	}
	return nil
}

// notRemoved requires that no request and no limit is removed.
func notRemoved(now, before object.Value, path *field.Path, what string) (errs field.ErrorList) {
	for _, list := range []string{"requests", "limits"} {
		for _, m := range before.At(list).Members() {
			if _, has := now.At(list).Get(m.Key); !has {
				errs = append(errs, field.Forbidden(path.Child(list), what+list+" cannot be removed"))
				break
			}
		}
	}
	return errs
}

// sameButComputing compares two sets of resources without CPU and memory.
func sameButComputing(now, before object.Value) bool {
	for _, list := range []string{"requests", "limits"} {
		a, b := now.At(list).Edit(nil, "cpu", "memory"), before.At(list).Edit(nil, "cpu", "memory")
		if a.Len() != b.Len() {
			return false
		}
		for _, m := range a.Members() {
			other, has := b.Get(m.Key)
			if !has || !sameQuantity(m.Value, other) {
				return false
			}
		}
	}
	a, b := now.At("claims"), before.At("claims")
	return object.Equal(a, b) || a.Len() == 0 && b.Len() == 0
}
