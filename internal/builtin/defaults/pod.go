package defaults

import "plinth/object"

// Pod defaults a Pod. Some defaults apply to Pods but not to templates of Pods.
func Pod(obj object.Value) object.Value {
	w := over(obj)
	w.part("spec", specOfPod)
	w.part("status", podStatus)
	return w.done()
}

// PodTemplate defaults a PodTemplate.
func PodTemplate(obj object.Value) object.Value {
	return partOf(obj, "template", podTemplateSpec)
}

func podTemplateSpec(template object.Value) object.Value {
	return partOf(template, "spec", specOfTemplate)
}

// owner has the properties of a Pod or template that decide which defaults apply to its containers.
type owner struct {
	pod         bool // a Pod itself, not a template
	hostNetwork bool // … that lives in the network of its node
}

func specOfTemplate(spec object.Value) object.Value { return podSpec(spec, owner{}) }

func specOfPod(spec object.Value) object.Value {
	hostNetwork, _ := spec.Get("hostNetwork")
	return podSpec(spec, owner{pod: true, hostNetwork: hostNetwork.Bool()})
}

func podSpec(spec object.Value, of owner) object.Value {
	account := serviceAccountName(spec)
	w := over(spec)
	w.list("containers", func(c object.Value) object.Value { return container(c, of) })
	w.text("dnsPolicy", "ClusterFirst")
	if of.pod {
		w.pointer("enableServiceLinks", yes)
	}
	w.list("ephemeralContainers", ephemeralContainer)
	w.list("initContainers", func(c object.Value) object.Value { return container(c, of) })
	w.part("overhead", resourceList)
	w.optional("resources", resourceRequirements)
	w.text("restartPolicy", "Always")
	w.text("schedulerName", "default-scheduler")
	w.pointer("securityContext", emptyMap)
	setServiceAccount(&w, "serviceAccount", account)
	setServiceAccount(&w, "serviceAccountName", account)
	terminationGracePeriodSeconds(&w, of)
	w.list("volumes", volume)
	return w.done()
}

// serviceAccountName returns the name of the ServiceAccount. serviceAccount is the old name of the field.
func serviceAccountName(spec object.Value) string {
	if name, _ := spec.Get("serviceAccountName"); name.Len() > 0 {
		return name.Str()
	}
	old, _ := spec.Get("serviceAccount")
	return old.Str()
}

// setServiceAccount makes both fields equal.
func setServiceAccount(w *walk, key, name string) {
	if w.get(key).Str() != name {
		w.set(key, object.StringOf(name))
	}
}

func terminationGracePeriodSeconds(w *walk, of owner) {
	const key = "terminationGracePeriodSeconds"
	switch seconds := w.get(key); {
	case seconds.IsNull():
		w.set(key, object.IntOf(30))
	case of.pod && seconds.Int() < 0:
		w.set(key, one)
	}
}

func podStatus(status object.Value) object.Value {
	w := over(status)
	w.part("allocatedResources", resourceList)
	w.list("containerStatuses", containerStatus)
	w.list("ephemeralContainerStatuses", containerStatus)
	w.list("initContainerStatuses", containerStatus)
	podIPs(&w, status)
	w.optional("resources", resourceRequirements)
	return w.done()
}

// podIPs makes the first of podIPs equal to podIP, which takes precedence.
func podIPs(w *walk, status object.Value) {
	ip := w.get("podIP").Str()
	list, _ := status.Get("podIPs")
	first := ""
	if list.Len() > 0 {
		first = list.Items()[0].At("ip").Str()
	}
	switch {
	case ip == first:
	case ip == "":
		w.set("podIP", object.StringOf(first))
	default:
		w.get("podIPs")
		w.set("podIPs", object.ListOf(object.Fields("ip", object.StringOf(ip))))
	}
}

func containerStatus(status object.Value) object.Value {
	w := over(status)
	w.part("allocatedResources", resourceList)
	w.optional("resources", resourceRequirements)
	return w.done()
}
