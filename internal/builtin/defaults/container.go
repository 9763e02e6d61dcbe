package defaults

import "plinth/object"

func container(c object.Value, of owner) object.Value {
	w := over(c)
	w.list("env", envVar)
	imagePullPolicy(&w, c)
	w.optional("lifecycle", lifecycle)
	w.optional("livenessProbe", probe)
	if of.hostNetwork {
		w.list("ports", hostPort)
	} else {
		w.list("ports", containerPort)
	}
	w.optional("readinessProbe", probe)
	if of.pod {
		w.part("resources", requestsFromLimits)
	} else {
		w.part("resources", resourceRequirements)
	}
	w.optional("startupProbe", probe)
	w.text("terminationMessagePath", "/dev/termination-log")
	w.text("terminationMessagePolicy", "File")
	return w.done()
}

// ephemeralContainer sets the defaults of a container, except for those that apply to containers of Pods but not of
// templates.
func ephemeralContainer(c object.Value) object.Value { return container(c, owner{}) }

// imagePullPolicy sets Always for images with the tag latest, which may change under their name, and IfNotPresent for
// others.
func imagePullPolicy(w *walk, c object.Value) {
	const key = "imagePullPolicy"
	if w.get(key).Len() == 0 {
		image, _ := c.Get("image")
		w.set(key, pullPolicyFor(image.Str()))
	}
}

func pullPolicyFor(image string) object.Value {
	if taggedLatest(image) {
		return object.StringOf("Always")
	}
	return object.StringOf("IfNotPresent")
}

func envVar(env object.Value) object.Value {
	return optionalOf(env, "valueFrom", envVarSource)
}

func envVarSource(source object.Value) object.Value {
	w := over(source)
	w.optional("fieldRef", fieldRef)
	w.optional("fileKeyRef", fileKeyRef)
	return w.done()
}

func fieldRef(ref object.Value) object.Value { return textOf(ref, "apiVersion", "v1") }

func fileKeyRef(ref object.Value) object.Value { return pointerOf(ref, "optional", no) }

func containerPort(port object.Value) object.Value { return textOf(port, "protocol", "TCP") }

// hostPort sets the host port of a port to its containerPort, for Pods in the network of their node.
func hostPort(port object.Value) object.Value {
	number, _ := port.Get("containerPort")
	w := over(port)
	if number.Int() != 0 {
		w.number("hostPort", number.Int())
	}
	w.text("protocol", "TCP")
	return w.done()
}

// requestsFromLimits sets the requests of a container of a Pod to its limits, for resources without a request.
func requestsFromLimits(r object.Value) object.Value {
	w := over(r)
	limits := w.get("limits")
	rounded := resourceList(limits)
	w.replace("limits", limits, rounded)
	requests := w.get("requests")
	w.replace("requests", requests, filledFrom(resourceList(requests), rounded))
	return w.done()
}

func lifecycle(l object.Value) object.Value {
	w := over(l)
	w.optional("postStart", lifecycleHandler)
	w.optional("preStop", lifecycleHandler)
	return w.done()
}

func lifecycleHandler(handler object.Value) object.Value {
	return optionalOf(handler, "httpGet", httpGet)
}

func httpGet(action object.Value) object.Value {
	w := over(action)
	w.text("path", "/")
	w.text("scheme", "HTTP")
	return w.done()
}

func grpc(action object.Value) object.Value {
	return pointerOf(action, "service", object.StringOf(""))
}

func probe(p object.Value) object.Value {
	w := over(p)
	w.number("failureThreshold", 3)
	w.optional("grpc", grpc)
	w.optional("httpGet", httpGet)
	w.number("periodSeconds", 10)
	w.number("successThreshold", 1)
	w.number("timeoutSeconds", 1)
	return w.done()
}
