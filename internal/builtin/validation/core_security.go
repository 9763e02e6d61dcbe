package validation

import (
	"fmt"
	"regexp"
	"strings"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

var (
	groupPolicies        = []string{"Always", "OnRootMismatch"}
	supplementalPolicies = []string{"Merge", "Strict"}
	selinuxPolicies      = []string{"MountOption", "Recursive"}
	procMounts           = []string{"Default", "Unmasked"}
	profileTypes         = []string{"Localhost", "RuntimeDefault", "Unconfined"}
)

func (f *errorList) podSecurityContext(r *podRules, p *fielderrors.Location) {
	context := r.spec.At("securityContext")
	f.id(p.To("fsGroup"), context.At("fsGroup"))
	f.id(p.To("runAsUser"), context.At("runAsUser"))
	f.id(p.To("runAsGroup"), context.At("runAsGroup"))
	for i, group := range context.At("supplementalGroups").Items() {
		f.id(p.To("supplementalGroups").Item(i), group)
	}
	f.sysctls(r, context.At("sysctls"), p.To("sysctls"))
	f.onlyIfSet(p.To("fsGroupChangePolicy"), context.At("fsGroupChangePolicy"), groupPolicies)
	f.seccomp(context.At("seccompProfile"), p.To("seccompProfile"))
	f.windowsOptions(context.At("windowsOptions"), p.To("windowsOptions"))
	f.appArmor(context.At("appArmorProfile"), p.To("appArmorProfile"))
	f.onlyIfSet(p.To("supplementalGroupsPolicy"), context.At("supplementalGroupsPolicy"), supplementalPolicies)
	policies := selinuxPolicies
	if !r.old.selinux {
		policies = []string{"Recursive"}
	}
	f.onlyIfSet(p.To("seLinuxChangePolicy"), context.At("seLinuxChangePolicy"), policies)
}

func (f *errorList) securityContext(r *podRules, context object.Value, p *fielderrors.Location) {
	f.id(p.To("runAsUser"), context.At("runAsUser"))
	f.id(p.To("runAsGroup"), context.At("runAsGroup"))
	if mount := context.At("procMount"); !mount.IsNull() {
		f.only(p.To("procMount"), mount.Str(), procMounts)
		if r.hostUser && mount.Str() == "Unmasked" {
			f.Invalid(p.To("procMount"), fielderrors.Word(mount.Str()), "`hostUsers` must be false to use `Unmasked`")
		}
	}
	f.seccomp(context.At("seccompProfile"), p.To("seccompProfile"))
	if escalation := context.At("allowPrivilegeEscalation"); !escalation.IsNull() && !escalation.Bool() {
		if truth(context, "privileged") {
			f.Invalid(p, goForm{context, securityContextFields},
				"cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		}
		for _, capability := range context.At("capabilities", "add").Items() {
			if capability.Str() == "CAP_SYS_ADMIN" && !r.old.sysAdmin {
				f.Invalid(p, goForm{context, securityContextFields},
					"cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
			}
		}
	}
	f.windowsOptions(context.At("windowsOptions"), p.To("windowsOptions"))
	f.appArmor(context.At("appArmorProfile"), p.To("appArmorProfile"))
}

func (f *errorList) seccomp(profile object.Value, p *fielderrors.Location) {
	if profile.IsNull() {
		return
	}
	kind, local := text(profile, "type"), profile.At("localhostProfile")
	if kind == "" {
		f.Required(p.To("type"), "type is required when seccompProfile is set")
	} else {
		f.only(p.To("type"), kind, profileTypes)
	}
	switch {
	case kind == "Localhost" && local.IsNull():
		f.Required(p.To("localhostProfile"), "must be set when seccomp type is Localhost")
	case kind == "Localhost":
		f.descending(p.To("localhostProfile"), local.Str())
	case !local.IsNull():
		f.Invalid(p.To("localhostProfile"), goForm{profile, seccompFields},
			"can only be set when seccomp type is Localhost")
	}
}

const maxAppArmorProfile = 4095

func (f *errorList) appArmor(profile object.Value, p *fielderrors.Location) {
	if profile.IsNull() {
		return
	}
	local := profile.At("localhostProfile")
	switch kind := text(profile, "type"); kind {
	case "Localhost":
		trimmed := strings.TrimSpace(local.Str())
		switch {
		case trimmed != local.Str():
			f.Invalid(p.To("localhostProfile"), local.Str(), "must not be padded with whitespace")
		case trimmed == "":
			f.Required(p.To("localhostProfile"), "must be set when AppArmor type is Localhost")
		}
		if local.Len() > maxAppArmorProfile {
			f.TooLong(p.To("localhostProfile"), maxAppArmorProfile)
		}
	case "RuntimeDefault", "Unconfined":
		if !local.IsNull() {
			f.Invalid(p.To("localhostProfile"), fielderrors.Word(local.Str()),
				"can only be set when AppArmor type is Localhost")
		}
	case "":
		f.Required(p.To("type"), "type is required when appArmorProfile is set")
	default:
		f.Unsupported(p.To("type"), kind, profileTypes)
	}
}

// seccompName checks a profile in an annotation.
func (f *errorList) seccompName(profile string, p *fielderrors.Location) {
	switch local, ok := strings.CutPrefix(profile, "localhost/"); {
	case profile == "runtime/default" || profile == "docker/default" || profile == "unconfined":
	case ok:
		f.descending(p, local)
	default:
		f.Invalid(p, profile, "must be a valid seccomp profile")
	}
}

func (f *errorList) appArmorAnnotation(container, profile string, spec object.Value, p *fielderrors.Location) {
	if !anyContainer(spec, func(c object.Value) bool { return text(c, "name") == container }) {
		f.Invalid(p, container, "container not found")
	}
	if profile != "" && profile != "runtime/default" && profile != "unconfined" && !strings.HasPrefix(profile,
		"localhost/") {
		f.Invalid(p, profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile))
	}
}

// profilesAgree demands that the annotation and the field agree if both specify the profile of a container.
func (f *errorList) profilesAgree(annotations, spec object.Value, p *fielderrors.Location) {
	if annotation, ok := annotations.Get(seccompPodAnnotation); ok {
		f.profileAgrees("seccomp", annotation.Str(), spec.At("securityContext", "seccompProfile"),
			p.To("securityContext").To("seccompProfile"))
	}
	if !objectmeta.HasKeyWith(annotations, anyProfile) {
		return
	}
	for _, kind := range containerLists {
		for i, container := range spec.At(kind).Items() {
			if annotation, ok := annotations.Get(seccompAnnotations + text(container, "name")); ok {
				f.profileAgrees("seccomp", annotation.Str(), container.At("securityContext", "seccompProfile"),
					p.To(kind).Item(i).To("securityContext").To("seccompProfile"))
			}
		}
	}
	if text(spec.At("os"), "name") == "windows" {
		return
	}
	for _, kind := range containerLists {
		for i, container := range spec.At(kind).Items() {
			profile := container.At("securityContext", "appArmorProfile")
			if profile.IsNull() {
				profile = spec.At("securityContext", "appArmorProfile")
			}
			if annotation, ok := annotations.Get(appArmorAnnotations + text(container, "name")); ok {
				f.profileAgrees("apparmor", annotation.Str(), profile,
					p.To(kind).Item(i).To("securityContext").To("appArmorProfile"))
			}
		}
	}
}

func (f *errorList) profileAgrees(what, annotation string, profile object.Value, p *fielderrors.Location) {
	good := true
	switch text(profile, "type") {
	case "Unconfined":
		good = annotation == "unconfined"
	case "RuntimeDefault":
		good = annotation == "runtime/default" || what == "seccomp" && annotation == "docker/default"
	case "Localhost":
		local, ok := strings.CutPrefix(annotation, "localhost/")
		if member := profile.At("localhostProfile"); ok && (member.IsNull() || member.Str() != local) {
			f.Forbidden(p.To("localhostProfile"), what+" profile in annotation and field must match")
		}
		good = ok
	}
	if !good {
		f.Forbidden(p.To("type"), what+" type in annotation and field must match")
	}
}

const (
	maxSysctl     = 253
	sysctlPattern = `^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`
)

var sysctlName = regexp.MustCompile(sysctlPattern)

func (f *errorList) sysctls(r *podRules, sysctls object.Value, p *fielderrors.Location) {
	var names nameSet
	for i, sysctl := range sysctls.Items() {
		name := text(sysctl, "name")
		p := p.Item(i).To("name")
		switch {
		case name == "":
			f.Required(p, "")
		case len(name) > maxSysctl || !sysctlName.MatchString(name):
			f.Invalid(p, name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctl,
				sysctlPattern))
		case names.has(name):
			f.Duplicate(p, name)
		}
		if !r.old.sysctls {
			if why := hostSysctl(name, r.spec); why != "" {
				f.Invalid(p, name, why)
			}
		}
		names.add(name)
	}
}

// ipcSysctls belong to the IPC namespace although they do not have its prefix.
var ipcSysctls = []string{"kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
	"kernel.shm",
	"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg"}

// hostSysctl returns the error for a sysctl of a namespace that the pod shares with its host.
func hostSysctl(name string, spec object.Value) string {
	name = normalSysctl(name)
	name, _, _ = strings.Cut(name, "*")
	switch {
	case truth(spec, "hostNetwork") && strings.HasPrefix(name, "net."):
		return "may not be specified when 'hostNetwork' is true"
	case truth(spec, "hostIPC") && (strings.HasPrefix(name, "fs.mqueue.") || holds(ipcSysctls, name)):
		return "may not be specified when 'hostIPC' is true"
	}
	return ""
}

// normalSysctl is a sysctl's name with dots between its parts: if the first separator is a slash, slashes are
// separators, written as dots, and dots are part of a name, written as slashes.
func normalSysctl(name string) string {
	if first, _, _ := strings.Cut(name, "/"); strings.Contains(first, ".") {
		return name
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(name)
}
