package validation

import (
	"fmt"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/features"
	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

var (
	messagePolicies   = []string{"File", "FallbackToLogsOnError"}
	pullPolicies      = []string{"Always", "IfNotPresent", "Never"}
	protocols         = []string{"SCTP", "TCP", "UDP"}
	resizeResources   = []string{"cpu", "memory"}
	resizePolicies    = []string{"NotRequired", "RestartContainer"}
	containerRestarts = []string{"Always", "Never", "OnFailure"}
	restartActions    = []string{"Restart", "RestartAllContainers"}
	exitCodeOperators = []string{"In", "NotIn"}
)

func (f *errorList) containers(r *podRules, p *fielderrors.Location) {
	containers := r.spec.At("containers")
	if containers.Len() == 0 {
		f.Required(p, "")
		return
	}
	var names, hostPorts nameSet
	for i, container := range containers.Items() {
		p := p.Item(i)
		f.container(r, container, p)
		if name := text(container, "name"); names.add(name) {
			f.Duplicate(p.To("name"), name)
		}
		f.lifecycle(container.At("lifecycle"), r.grace, p.To("lifecycle"))
		f.probes(container, r.grace, p)
		f.containerRestart(container, r.old.restartAll, p)
	}
	for i, container := range containers.Items() {
		f.hostPorts(container, &hostPorts, p.Item(i))
	}
}

func (f *errorList) initContainers(r *podRules, p *fielderrors.Location) {
	var names nameSet
	for _, container := range r.spec.At("containers").Items() {
		names.add(text(container, "name"))
	}
	for i, container := range r.spec.At("initContainers").Items() {
		p := p.Item(i)
		f.container(r, container, p)
		sidecar := text(container, "restartPolicy") == "Always"
		f.initContainerRestart(container, r.old.restartAll, p)
		if name := text(container, "name"); names.has(name) {
			f.Duplicate(p.To("name"), name)
		} else if name != "" {
			names.add(name)
		}
		var hostPorts nameSet
		f.hostPorts(container, &hostPorts, p.Up.Item(0))
		if sidecar {
			f.lifecycle(container.At("lifecycle"), r.grace, p.To("lifecycle"))
			f.probes(container, r.grace, p)
			continue
		}
		for _, key := range [...]string{"lifecycle", "livenessProbe", "readinessProbe", "startupProbe"} {
			if has(container, key) {
				f.Forbidden(p.To(key), "may not be set for init containers without restartPolicy=Always")
			}
		}
		for j, policy := range container.At("resizePolicy").Items() {
			if text(policy, "restartPolicy") == "RestartContainer" && !r.old.restartContainer {
				f.Invalid(p.To("resizePolicy").Item(j).To("restartPolicy"), fielderrors.Word("RestartContainer"),
					"must not be set to 'RestartContainer' for non-sidecar initContainers")
			}
		}
	}
}

// notEphemeral are the members that an ephemeral container cannot have, in the order of its Go type.
var notEphemeral = [...]string{"ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules",
	"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"}

func (f *errorList) ephemeralContainers(r *podRules, p *fielderrors.Location) {
	var others, names nameSet
	for _, kind := range containerLists[:2] {
		for _, container := range r.spec.At(kind).Items() {
			others.add(text(container, "name"))
			names.add(text(container, "name"))
		}
	}
	const why = "cannot be set for an Ephemeral Container"
	for i, container := range r.spec.At("ephemeralContainers").Items() {
		p := p.Item(i)
		f.container(r, container, p)
		f.trimmedImage(container, p)
		if name := text(container, "name"); names.add(name) {
			f.Duplicate(p.To("name"), name)
		}
		if target := text(container, "targetContainerName"); target != "" && !others.has(target) {
			f.NotFound(p.To("targetContainerName"), target)
		}
		for _, key := range notEphemeral {
			if v := container.At(key); !v.IsNull() && (key != "resources" || v.Len() > 0) {
				f.Forbidden(p.To(key), why)
			}
		}
		for j, mount := range container.At("volumeMounts").Items() {
			if text(mount, "subPath") != "" {
				f.Forbidden(p.To("volumeMounts").Item(j).To("subPath"), why)
			}
			if text(mount, "subPathExpr") != "" {
				f.Forbidden(p.To("volumeMounts").Item(j).To("subPathExpr"), why)
			}
		}
	}
}

// container checks the fields that containers of every kind have.
func (f *errorList) container(r *podRules, container object.Value, p *fielderrors.Location) {
	f.requiredLabel(p.To("name"), text(container, "name"))
	f.requiredText(p.To("image"), text(container, "image"))
	f.oneOf(p.To("terminationMessagePolicy"), text(container, "terminationMessagePolicy"), messagePolicies)
	f.containerPorts(container.At("ports"), p.To("ports"))
	f.env(container.At("env"), p.To("env"))
	f.envFrom(container.At("envFrom"), p.To("envFrom"))
	f.volumeMounts(r, container, p.To("volumeMounts"))
	f.volumeDevices(r, container, p.To("volumeDevices"))
	f.oneOf(p.To("imagePullPolicy"), text(container, "imagePullPolicy"), pullPolicies)
	f.resources(container.At("resources"), r, p.To("resources"), containerResource)
	f.resizePolicy(r, container.At("resizePolicy"), p.To("resizePolicy"))
	f.securityContext(r, container.At("securityContext"), p.To("securityContext"))
}

func (f *errorList) containerPorts(ports object.Value, p *fielderrors.Location) {
	var names nameSet
	for i, port := range ports.Items() {
		p := p.Item(i)
		if name := text(port, "name"); name != "" {
			if wrong := portNameErrors(name); len(wrong) > 0 {
				f.Each(p.To("name"), name, wrong)
			} else if names.add(name) {
				f.Duplicate(p.To("name"), name)
			}
		}
		if n := number(port, "containerPort"); n == 0 {
			f.Required(p.To("containerPort"), "")
		} else {
			f.port(p.To("containerPort"), n)
		}
		if n := number(port, "hostPort"); n != 0 {
			f.port(p.To("hostPort"), n)
		}
		f.oneOf(p.To("protocol"), text(port, "protocol"), protocols)
	}
}

// hostPorts demands that no two ports are the same on the host.
func (f *errorList) hostPorts(container object.Value, taken *nameSet, p *fielderrors.Location) {
	for i, port := range container.At("ports").Items() {
		n := number(port, "hostPort")
		if n == 0 {
			continue
		}
		if name := fmt.Sprintf("%s/%s/%d", text(port, "protocol"), text(port, "hostIP"), n); taken.add(name) {
			f.Duplicate(p.To("ports").Item(i).To("hostPort"), name)
		}
	}
}

func (f *errorList) resizePolicy(r *podRules, policies object.Value, p *fielderrors.Location) {
	var resources nameSet
	for i, policy := range policies.Items() {
		name, restart := text(policy, "resourceName"), text(policy, "restartPolicy")
		if resources.add(name) {
			f.Duplicate(p.Item(i), fielderrors.Word(name))
		}
		f.oneOf(p, name, resizeResources)
		f.oneOf(p, restart, resizePolicies)
		if text(r.spec, "restartPolicy") == "Never" && restart != "NotRequired" {
			f.Invalid(p, fielderrors.Word(restart), "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
		}
	}
}

const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

func (f *errorList) containerRestart(container object.Value, all bool, p *fielderrors.Location) {
	policy, rules := container.At("restartPolicy"), container.At("restartPolicyRules")
	if policy.IsNull() {
		if rules.Len() == 0 {
			return
		}
		f.Required(p.To("restartPolicy"), "must specify restartPolicy when restart rules are used")
	} else {
		f.only(p.To("restartPolicy"), policy.Str(), containerRestarts)
	}
	if rules.Len() > maxRestartRules {
		f.TooMany(p.To("restartPolicyRules"), rules.Len(), maxRestartRules)
	}
	for i, rule := range rules.Items() {
		p := p.To("restartPolicyRules").Item(i)
		actions := restartActions
		if !all {
			actions = restartActions[:1]
		}
		f.only(p.To("action"), text(rule, "action"), actions)
		codes := rule.At("exitCodes")
		if codes.IsNull() {
			f.Required(p.To("exitCodes"), "must be specified")
			continue
		}
		f.only(p.To("exitCodes").To("operator"), text(codes, "operator"), exitCodeOperators)
		if n := length(codes, "values"); n > maxExitCodes {
			f.TooMany(p.To("exitCodes").To("values"), n, maxExitCodes)
		}
	}
}

func (f *errorList) initContainerRestart(container object.Value, all bool, p *fielderrors.Location) {
	if !all && text(container, "restartPolicy") == "Always" {
		if length(container, "restartPolicyRules") > 0 {
			f.Forbidden(p.To("restartPolicyRules"),
				"restartPolicyRules are not allowed for init containers with restart policy Always")
		}
	} else if has(container, "restartPolicy") {
		f.containerRestart(container, all, p)
	} else if length(container, "restartPolicyRules") > 0 {
		f.Required(p.To("restartPolicy"), "must specify restartPolicy when restart rules are used")
	}
}

func (f *errorList) env(vars object.Value, p *fielderrors.Location) {
	for i, env := range vars.Items() {
		p := p.Item(i)
		if name := text(env, "name"); name == "" {
			f.Required(p.To("name"), "")
		} else {
			f.Each(p.To("name"), name, envNameErrors(name))
		}
		if from := env.At("valueFrom"); !from.IsNull() {
			f.valueFrom(from, text(env, "value"), p.To("valueFrom"))
		}
	}
}

func (f *errorList) valueFrom(from object.Value, value string, p *fielderrors.Location) {
	sources := 0
	if field := from.At("fieldRef"); !field.IsNull() {
		sources++
		f.fieldRef(field, envFields, p.To("fieldRef"))
	}
	if resource := from.At("resourceFieldRef"); !resource.IsNull() {
		sources++
		f.resourceFieldRef(resource, false, p.To("resourceFieldRef"))
	}
	if config := from.At("configMapKeyRef"); !config.IsNull() {
		sources++
		f.keyRef(config, p.To("configMapKeyRef"))
	}
	if secret := from.At("secretKeyRef"); !secret.IsNull() {
		sources++
		f.keyRef(secret, p.To("secretKeyRef"))
	}
	if file := from.At("fileKeyRef"); !file.IsNull() {
		sources++
		f.fileKeyRef(file, p.To("fileKeyRef"))
	}
	switch {
	case sources == 0 && !f.on(features.EnvFiles):
		f.Invalid(p, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`")
	case sources == 0:
		f.Invalid(p, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")
	case value != "":
		f.Invalid(p, "", "may not be specified when `value` is not empty")
	case sources > 1:
		f.Invalid(p, "", "may not have more than one field specified at a time")
	}
}

func (f *errorList) keyRef(ref object.Value, p *fielderrors.Location) {
	f.subdomain(p.To("name"), text(ref, "name"))
	if key := text(ref, "key"); key == "" {
		f.Required(p.To("key"), "")
	} else {
		f.Each(p.To("key"), key, configKeyErrors(key))
	}
}

func (f *errorList) fileKeyRef(ref object.Value, p *fielderrors.Location) {
	if key := text(ref, "key"); key == "" {
		f.Required(p.To("key"), "")
	} else {
		f.Each(p.To("key"), key, envNameErrors(key))
	}
	f.requiredLabel(p.To("volumeName"), text(ref, "volumeName"))
	if file := text(ref, "path"); file == "" {
		f.Required(p.To("path"), "")
	} else {
		f.noBacksteps(p.To("path"), file)
	}
}

func (f *errorList) envFrom(sources object.Value, p *fielderrors.Location) {
	for i, source := range sources.Items() {
		prefix := text(source, "prefix")
		f.Each(p.Item(i).To("prefix"), prefix, envNameErrors(prefix))
		n := 0
		for _, key := range [...]string{"configMapRef", "secretRef"} {
			ref := source.At(key)
			if ref.IsNull() {
				continue
			}
			n++
			if name := text(ref, "name"); name == "" {
				f.Required(p.Item(i).To(key).To("name"), "")
			} else {
				f.Each(p.Item(i).To(key).To("name"), name, subdomainPrefixErrors(name))
			}
		}
		switch {
		case n == 0:
			f.Invalid(p, "", "must specify one of: `configMapRef` or `secretRef`")
		case n > 1:
			f.Invalid(p, "", "may not have more than one field specified at a time")
		}
	}
}

// subdomainPrefixErrors is subdomainErrors for the beginning of a name, which may end in a dash.
func subdomainPrefixErrors(s string) []string {
	if len(s) > 1 && strings.HasSuffix(s, "-") {
		s = s[:len(s)-2] + "a"
	}
	return objectmeta.SubdomainErrors(s)
}

// The fields of a pod that the downward API provides, in the environment and in a volume; sorted, as errors list them.
var (
	envFields = []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
		"spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
	volumeFields = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace",
		"metadata.uid"}
	// otherFields are known to the reference (ConvertDownwardAPIFieldLabel), which provides them nowhere.
	otherFields = []string{"spec.restartPolicy", "spec.schedulerName", "status.phase"}
)

func (f *errorList) fieldRef(ref object.Value, supported []string, p *fielderrors.Location) {
	version, path := text(ref, "apiVersion"), text(ref, "fieldPath")
	if path == "" {
		f.Required(p.To("fieldPath"), "")
		return
	}
	if holds(supported, path) && version == "v1" {
		return
	}
	const converting = "error converting fieldPath: "
	field, key, subscripted := subscriptOf(path)
	switch {
	case version != "v1":
		f.Invalid(p.To("fieldPath"), path, converting+"unsupported pod version: "+version)
	case subscripted && field == "metadata.annotations":
		f.Each(p, strings.ToLower(key), objectmeta.LabelKeyErrors(strings.ToLower(key)))
	case subscripted && field == "metadata.labels":
		f.qualified(p, key)
	case subscripted:
		f.Invalid(p.To("fieldPath"), path, converting+"field label does not support subscript: "+path)
	case path == "spec.host": // the name of spec.nodeName in old clients
		if !holds(supported, "spec.nodeName") {
			f.UnsupportedText(p.To("fieldPath"), "spec.nodeName", supported)
		}
	case !holds(envFields, path) && !holds(volumeFields, path) && !holds(otherFields, path):
		f.Invalid(p.To("fieldPath"), path, converting+"field label not supported: "+path)
	default:
		f.UnsupportedText(p.To("fieldPath"), path, supported)
	}
}

func holds(list []string, s string) bool {
	for _, item := range list {
		if item == s {
			return true
		}
	}
	return false
}

// subscriptOf splits metadata.labels['key']; ok is false for a path without a subscript.
func subscriptOf(path string) (field, key string, ok bool) {
	inner, ok := strings.CutSuffix(path, "']")
	if ok {
		field, key, ok = strings.Cut(inner, "['")
	}
	return field, key, ok && field != ""
}

// The resources of a container that the downward API provides; sorted.
var resourceFields = []string{"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu",
	"requests.ephemeral-storage", "requests.memory"}

func (f *errorList) resourceFieldRef(ref object.Value, volume bool, p *fielderrors.Location) {
	resource := text(ref, "resource")
	hugePages := strings.HasPrefix(resource, "requests.hugepages-") || strings.HasPrefix(resource, "limits.hugepages-")
	switch {
	case volume && text(ref, "containerName") == "":
		f.Required(p.To("containerName"), "")
	case resource == "":
		f.Required(p.To("resource"), "")
	case !hugePages && !holds(resourceFields, resource):
		f.UnsupportedText(p.To("resource"), resource, resourceFields)
	}
	f.divisor(resource, hugePages, ref.At("divisor"), p.To("divisor"))
}

var (
	cpuDivisors  = []string{"1m", "1"}
	byteDivisors = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
)

func (f *errorList) divisor(resource string, hugePages bool, divisor object.Value, p *fielderrors.Location) {
	if q := quantity(divisor); q.IsZero() {
		return
	}
	const bytes = "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the "
	_, name, _ := strings.Cut(resource, ".")
	switch {
	case hugePages && !holds(byteDivisors, divisor.Str()):
		f.Invalid(p, resource, bytes+"hugepages resource")
	case !holds(resourceFields, resource):
	case name == "cpu" && !holds(cpuDivisors, divisor.Str()):
		f.Invalid(p, resource, "only divisor's values 1m and 1 are supported with the cpu resource")
	case name == "memory" && !holds(byteDivisors, divisor.Str()):
		f.Invalid(p, resource, bytes+"memory resource")
	case name == "ephemeral-storage" && !holds(byteDivisors, divisor.Str()):
		f.Invalid(p, resource, bytes+"local ephemeral storage resource")
	}
}

// probes checks the three probes of a container.
func (f *errorList) probes(container, grace object.Value, p *fielderrors.Location) {
	if probe := container.At("livenessProbe"); !probe.IsNull() {
		f.probe(probe, grace, p.To("livenessProbe"))
		f.succeedsOnce(probe, p.To("livenessProbe"))
	}
	if probe := container.At("readinessProbe"); !probe.IsNull() {
		f.probe(probe, grace, p.To("readinessProbe"))
		if seconds := probe.At("terminationGracePeriodSeconds"); !seconds.IsNull() {
			f.Invalid(p.To("readinessProbe").To("terminationGracePeriodSeconds"), seconds.Int(),
				"must not be set for readinessProbes")
		}
	}
	if probe := container.At("startupProbe"); !probe.IsNull() {
		f.probe(probe, grace, p.To("startupProbe"))
		f.succeedsOnce(probe, p.To("startupProbe"))
	}
}

func (f *errorList) succeedsOnce(probe object.Value, p *fielderrors.Location) {
	if n := number(probe, "successThreshold"); n != 1 {
		f.Invalid(p.To("successThreshold"), n, "must be 1")
	}
}

func (f *errorList) probe(probe, grace object.Value, p *fielderrors.Location) {
	f.handler(probe, grace, p)
	for _, key := range [...]string{"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
		"failureThreshold"} {
		f.nonNegative(p.To(key), number(probe, key))
	}
	if seconds := probe.At("terminationGracePeriodSeconds"); !seconds.IsNull() && seconds.Int() <= 0 {
		f.Invalid(p.To("terminationGracePeriodSeconds"), seconds.Int(), "must be greater than 0")
	}
}

func (f *errorList) lifecycle(lifecycle, grace object.Value, p *fielderrors.Location) {
	for _, key := range [...]string{"postStart", "preStop"} {
		if handler := lifecycle.At(key); !handler.IsNull() {
			f.handler(handler, grace, p.To(key))
		}
	}
}

var handlers = [...]string{"exec", "httpGet", "tcpSocket", "grpc", "sleep"}

// handler checks the action of a probe or a hook: it demands exactly one.
func (f *errorList) handler(handler, grace object.Value, p *fielderrors.Location) {
	n := 0
	for _, key := range handlers {
		action := handler.At(key)
		if action.IsNull() {
			continue
		}
		p := p.To(key)
		if n++; n > 1 {
			f.Forbidden(p, "may not specify more than 1 handler type")
			continue
		}
		switch key {
		case "exec":
			if length(action, "command") == 0 {
				f.Required(p.To("command"), "")
			}
		case "httpGet":
			f.httpGet(action, p)
		case "tcpSocket":
			f.portOrName(p.To("port"), action.At("port"))
		case "grpc":
			f.port(p.To("port"), number(action, "port"))
		case "sleep":
			if seconds := number(action, "seconds"); seconds < 0 || seconds > grace.Int() {
				f.Invalid(p, seconds,
					fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", grace.Int()))
			}
		}
	}
	if n == 0 {
		f.Required(p, "must specify a handler type")
	}
}

var schemes = []string{"HTTP", "HTTPS"}

func (f *errorList) httpGet(action object.Value, p *fielderrors.Location) {
	f.portOrName(p.To("port"), action.At("port"))
	f.only(p.To("scheme"), text(action, "scheme"), schemes)
	for _, header := range action.At("httpHeaders").Items() {
		name := text(header, "name")
		f.Each(p.To("httpHeaders"), name, utilvalidation.IsHTTPHeaderName(name))
	}
}
