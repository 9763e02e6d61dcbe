package warnings

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/objectmeta"
	"plinth/object"
)

const (
	hostnames      = "this is used in Pod names and hostnames"
	podHostname    = "this is used in the Pod's hostname"
	notALabel      = "metadata.name: %s, which can result in surprising behavior; a DNS label is recommended: %v"
	anyProfile     = "container." // what seccompPrefix and appArmorPrefix begin with
	seccompPrefix  = "container.seccomp.security.alpha.kubernetes.io/"
	useSeccomp     = `%smetadata.annotations[%s]: non-functional in v1.27+; use the "seccompProfile" field instead`
	useAppArmor    = `%smetadata.annotations[%s]: deprecated since v1.30; use the "appArmorProfile" field instead`
	appArmorPrefix = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
)

// name warns of names that become host names and are not DNS labels.
func name(obj object.Value, use string) []string {
	wrong := objectmeta.LabelErrors(obj.At("metadata", "name").Str())
	if len(wrong) == 0 {
		return nil
	}
	return []string{fmt.Sprintf(notALabel, use, wrong)}
}

// template returns the rules of a kind with a Pod template. named says whether the Pods' names are derived from the
// object's.
func template(named bool, path ...string) Rules {
	prefix := strings.Join(path, ".") + "."
	return Rules{
		Create: func(obj, _ object.Value) (warnings []string) {
			if named {
				warnings = name(obj, hostnames)
			}
			return append(warnings, podOrTemplate(prefix, obj.At(path...))...)
		},
		Update: func(obj, old object.Value) []string {
			if !newGeneration(obj, old) {
				return nil
			}
			return podOrTemplate(prefix, obj.At(path...))
		},
	}
}

func pod(obj, sent object.Value) []string {
	warnings := append(oldAppArmor(obj, sent), name(obj, podHostname)...)
	return append(warnings, podOrTemplate("", obj)...)
}

func podStatus(obj, _ object.Value) (warnings []string) {
	for _, key := range []string{"podIPs", "hostIPs"} {
		for i, ip := range obj.At("status", key).Items() {
			warnings = append(warnings, address(fmt.Sprintf("status.%s[%d].ip", key, i), ip.At("ip").Str())...)
		}
	}
	return warnings
}

// daemonSetUpdate checks the template if it has changed.
func daemonSetUpdate(obj, old object.Value) []string {
	if object.Equal(obj.At("spec", "template"), old.At("spec", "template")) {
		return nil
	}
	return podOrTemplate("spec.template.", obj.At("spec", "template"))
}

// nonFunctional are annotations of Pods that have no effect any more.
var nonFunctional = [...][2]string{
	{"scheduler.alpha.kubernetes.io/critical-pod",
		`non-functional in v1.16+; use the "priorityClassName" field instead`},
	{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
}

// podOrTemplate returns the warnings about a Pod or a Pod template.
func podOrTemplate(prefix string, obj object.Value) (warnings []string) {
	spec, meta := obj.At("spec"), obj.At("metadata")
	warn := func(format string, args ...any) {
		warnings = append(warnings, prefix+fmt.Sprintf(format, args...))
	}
	for _, m := range spec.At("nodeSelector").Members() {
		if why, deprecated := nodeLabels[m.Key]; deprecated {
			warn("spec.nodeSelector[%s]: %s", m.Key, why)
		}
	}
	warnings = append(warnings, nodeAffinity(prefix, spec.At("affinity", "nodeAffinity"))...)
	for i, c := range spec.At("topologySpreadConstraints").Items() {
		if key := c.At("topologyKey").Str(); nodeLabels[key] != "" {
			warn("spec.topologySpreadConstraints[%d].topologyKey: %s is %s", i, key, nodeLabels[key])
		}
		if c.At("labelSelector").IsNull() {
			warn("spec.topologySpreadConstraints[%d].labelSelector: a null labelSelector results in matching no pod", i)
		}
	}
	for _, a := range nonFunctional {
		if annotated(meta, a[0]) {
			warn("metadata.annotations[%s]: %s", a[0], a[1])
		}
	}
	warnings = append(warnings, podVolumes(prefix, spec.At("volumes"))...)
	repeated(spec.At("hostAliases"), "ip",
		func(i int, ip string) { warn("spec.hostAliases[%d].ip: duplicate ip %q", i, ip) })
	secrets := spec.At("imagePullSecrets")
	repeated(secrets, "name", func(i int, name string) {
		warn("spec.imagePullSecrets[%d].name: duplicate name %q", i,
			name)
	})
	for i, s := range secrets.Items() {
		if s.At("name").Str() == "" {
			warn(`spec.imagePullSecrets[%d].name: invalid empty name ""`, i)
		}
	}
	for _, name := range [...]string{"memory", "ephemeral-storage"} {
		warnings = fraction(warnings, func() string { return prefix + "spec.overhead" }, spec.At("overhead"), name)
	}
	if annotated(meta, corev1.SeccompPodAnnotationKey) && spec.At("securityContext", "seccompProfile").IsNull() {
		warnings = append(warnings, fmt.Sprintf(useSeccomp, prefix, corev1.SeccompPodAnnotationKey))
	}
	warnings = append(warnings, containers(prefix, spec, meta)...)
	warnings = append(warnings, ports(prefix, spec)...)
	if spec.At("terminationGracePeriodSeconds").Int() < 0 {
		warn("spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1")
	}
	for _, key := range [...]string{"podAffinity", "podAntiAffinity"} {
		warnings = append(warnings, podAffinity(prefix, key, spec.At("affinity", key))...)
	}
	for i, ip := range spec.At("dnsConfig", "nameservers").Items() {
		warnings = append(warnings, address(fmt.Sprintf("%sspec.dnsConfig.nameservers[%d]", prefix, i), ip.Str())...)
	}
	for i, a := range spec.At("hostAliases").Items() {
		warnings = append(warnings, address(fmt.Sprintf("%sspec.hostAliases[%d].ip", prefix, i), a.At("ip").Str())...)
	}
	return warnings
}

// repeated calls a function for each item whose member has the value of an earlier item's.
func repeated(list object.Value, key string, found func(i int, text string)) {
	items := list.Items()
	if len(items) < 2 {
		return
	}
	seen := make(map[string]bool, len(items))
	for i, item := range items {
		text := item.At(key).Str()
		if seen[text] {
			found(i, text)
		}
		seen[text] = true
	}
}

// The members of an affinity.
const (
	required  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferred = "preferredDuringSchedulingIgnoredDuringExecution"
)

// podAffinity warns of terms that match no Pod.
func podAffinity(prefix, key string, affinity object.Value) (warnings []string) {
	const (
		at      = "%sspec.affinity.%s.%s[%d]."
		nothing = "labelSelector: a null labelSelector results in matching no pod"
	)
	for i, term := range affinity.At(required).Items() {
		if term.At("labelSelector").IsNull() {
			warnings = append(warnings, fmt.Sprintf(at+nothing, prefix, key, required, i))
		}
	}
	for i, term := range affinity.At(preferred).Items() {
		if term.At("podAffinityTerm", "labelSelector").IsNull() {
			warnings = append(warnings, fmt.Sprintf(at+"podAffinityTerm."+nothing, prefix, key, preferred, i))
		}
	}
	return warnings
}

// containerLists are the fields with a Pod's containers, in the reference's order.
var containerLists = [...]string{"initContainers", "containers", "ephemeralContainers"}

// containers warns of the fields of each container by itself. AppArmor annotations are copied to fields in a Pod, but
// not in a template.
func containers(prefix string, spec, meta object.Value) (warnings []string) {
	annotations := meta.At("annotations")
	annotated := objectmeta.HasKeyWith(annotations, anyProfile)
	for _, list := range containerLists {
		for i, c := range spec.At(list).Items() {
			if annotated {
				warnings = append(warnings, annotatedContainer(prefix, c, spec, annotations)...)
			}
			resources := c.At("resources")
			for _, name := range [...]string{"memory", "ephemeral-storage"} {
				for _, kind := range [...]string{"limits", "requests"} {
					path := func() string { return fmt.Sprintf("%sspec.%s[%d].resources.%s", prefix, list, i, kind) }
					warnings = fraction(warnings, path, resources.At(kind), name)
				}
			}
			env := c.At("env")
			repeated(env, "name", func(at int, name string) {
				before := "$(" + name + ")" // a value that refers to the previous one does not hide it
				if e := env.Items()[at]; !e.At("valueFrom").IsNull() || e.At("value").Str() == before ||
					!strings.Contains(e.At("value").Str(), before) {
					warnings = append(warnings,
						fmt.Sprintf("%sspec.%s[%d].env[%d]: hides previous definition of %q, which may be dropped when using apply",
							prefix, list, i, at, name))
				}
			})
		}
	}
	return warnings
}

// annotatedContainer warns of seccomp and AppArmor profiles in annotations.
func annotatedContainer(prefix string, c, spec, annotations object.Value) (warnings []string) {
	name := c.At("name").Str()
	if _, has := annotations.Get(seccompPrefix + name); has && c.At("securityContext", "seccompProfile").IsNull() {
		warnings = append(warnings, fmt.Sprintf(useSeccomp, prefix, seccompPrefix+name))
	}
	if prefix == "" || !c.At("securityContext", "appArmorProfile").IsNull() {
		return warnings
	}
	ofPod := spec.At("securityContext", "appArmorProfile")
	if profile, has := annotations.Get(appArmorPrefix + name); has &&
		(ofPod.IsNull() || !object.Equal(ofPod, profileNamed(profile.Str()))) {
		warnings = append(warnings, fmt.Sprintf(useAppArmor, prefix, appArmorPrefix+name))
	}
	return warnings
}

// oldAppArmor warns of annotations that name a container's profile if the container as sent does not set the field and
// the Pod does not set the same profile. It does not matter whether the annotation could be copied to the field.
func oldAppArmor(obj, sent object.Value) (warnings []string) {
	annotations := sent.At("metadata", "annotations")
	if !objectmeta.HasKeyWith(annotations, appArmorPrefix) || obj.At("spec", "os", "name").Str() == "windows" {
		return nil
	}
	ofPod := sent.At("spec", "securityContext", "appArmorProfile")
	for _, list := range containerLists {
		for _, c := range sent.At("spec", list).Items() {
			key := appArmorPrefix + c.At("name").Str()
			annotation, has := annotations.Get(key)
			if !has || !c.At("securityContext", "appArmorProfile").IsNull() {
				continue
			}
			if profile := AppArmorProfile(annotation.Str()); profile.IsNull() || !object.Equal(profile, ofPod) {
				warnings = append(warnings, fmt.Sprintf(useAppArmor, "", key))
			}
		}
	}
	return warnings
}

// profileNamed returns the AppArmor profile that an annotation names; null if it names none.
func profileNamed(annotation string) object.Value {
	switch name, local := strings.CutPrefix(annotation, "localhost/"); {
	case annotation == "unconfined":
		return object.Fields("type", object.StringOf("Unconfined"))
	case annotation == "runtime/default":
		return object.Fields("type", object.StringOf("RuntimeDefault"))
	case local && name != "":
		return object.Fields("type", object.StringOf("Localhost"), "localhostProfile", object.StringOf(name))
	}
	return object.Nil
}

// AppArmorProfile is the profile that is copied from an annotation to the field of a container; null if the annotation
// is absent, or the validation of the field would refuse the profile.
func AppArmorProfile(annotation string) object.Value {
	const maxLength = 4095 // Linux' PATH_MAX without the zero at the end
	profile := profileNamed(annotation)
	if name := profile.At("localhostProfile").Str(); strings.TrimSpace(name) != name || len(name) > maxLength {
		return object.Nil
	}
	return profile
}

// port is one port of a container, with its path.
type port struct {
	list          string
	container, at int
	value         object.Value
}

func (p port) path(prefix string) string {
	return fmt.Sprintf("%sspec.%s[%d].ports[%d]", prefix, p.list, p.container, p.at)
}

// ports warns of ports that overlap: first of numbers, then of names.
func ports(prefix string, spec object.Value) (warnings []string) {
	all := make([]port, 0, 8) // of most Pods, on the stack
	for _, list := range containerLists {
		for i, c := range spec.At(list).Items() {
			for j, value := range c.At("ports").Items() {
				all = append(all, port{list, i, j, value})
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	type socket struct {
		number   int64
		protocol string
	}
	same := make(map[socket][]port, len(all))
	for _, p := range all {
		ip, host := p.value.At("hostIP").Str(), p.value.At("hostPort").Int()
		number, protocol := p.value.At("containerPort").Int(), p.value.At("protocol").Str()
		if ip != "" && host == 0 {
			warnings = append(warnings,
				fmt.Sprintf("%s: hostIP set without hostPort: {Name:%s HostPort:0 ContainerPort:%d Protocol:%s HostIP:%s}",
					p.path(prefix), p.value.At("name").Str(), number, protocol, ip))
		}
		if len(all) == 1 {
			return warnings // there is no earlier port to overlap with
		}
		key := socket{number, protocol}
		for _, o := range same[key] {
			var how string
			otherIP, otherHost := o.value.At("hostIP").Str(), o.value.At("hostPort").Int()
			switch {
			case ip == otherIP && host == otherHost:
				how = "duplicate"
			case host == 0 || otherHost == 0:
				how = "overlapping"
			case host == otherHost && (ip == "") != (otherIP == ""):
				how = "dangerously ambiguous"
			default:
				continue
			}
			warnings = append(warnings, fmt.Sprintf("%s: %s port definition with %s", p.path(prefix), how,
				o.path(prefix)))
		}
		same[key] = append(same[key], p)
	}
	named := make(map[string]port, len(all))
	for _, p := range all {
		name := p.value.At("name").Str()
		if first, taken := named[name]; taken {
			other := first.path(prefix)
			warnings = append(warnings,
				fmt.Sprintf("%s: duplicate port name %q with %s, services and probes that select ports by name will use %s",
					p.path(prefix), name, other, other))
		} else if name != "" {
			named[name] = p
		}
	}
	return warnings
}
