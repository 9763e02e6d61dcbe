package validation

import (
	"fmt"
	"regexp"
	"strings"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// operatingSystems is sorted.
var operatingSystems = []string{"linux", "windows"}

// The fields that a pod for Windows cannot have, in the order of the reference's checks.
var (
	notWindowsPodContext = []string{"appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup",
		"fsGroupChangePolicy", "sysctls",
		"runAsUser", "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy"}
	notWindowsContext = []string{"appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities",
		"readOnlyRootFilesystem", "privileged",
		"allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup"}
)

// operatingSystem refuses fields that the operating system of a pod does not support.
func (f *errorList) operatingSystem(spec object.Value, p *fielderrors.Location) {
	os := spec.At("os")
	if os.IsNull() {
		return
	}
	switch name := text(os, "name"); name {
	case "":
		f.Required(p.To("os").To("name"), "")
	case "linux":
		f.linux(spec, p)
	case "windows":
		f.windows(spec, p)
	default:
		f.Unsupported(p.To("os"), name, operatingSystems)
	}
}

func (f *errorList) linux(spec object.Value, p *fielderrors.Location) {
	const why = "windows options cannot be set for a linux pod"
	if has(spec.At("securityContext"), "windowsOptions") {
		f.Forbidden(p.To("securityContext").To("windowsOptions"), why)
	}
	for _, kind := range containerLists {
		for i, container := range spec.At(kind).Items() {
			if has(container.At("securityContext"), "windowsOptions") {
				f.Forbidden(p.To(kind).Item(i).To("securityContext").To("windowsOptions"), why)
			}
		}
	}
}

func (f *errorList) windows(spec object.Value, p *fielderrors.Location) {
	const why = "cannot be set for a windows pod"
	for _, key := range notWindowsPodContext {
		if has(spec.At("securityContext"), key) {
			f.Forbidden(p.To("securityContext").To(key), why)
		}
	}
	if has(spec, "hostUsers") {
		f.Forbidden(p.To("hostUsers"), why)
	}
	for _, key := range [...]string{"hostPID", "hostIPC"} {
		if truth(spec, key) {
			f.Forbidden(p.To(key), why)
		}
	}
	if has(spec, "shareProcessNamespace") {
		f.Forbidden(p.To("shareProcessNamespace"), why)
	}
	for _, kind := range containerLists {
		for i, container := range spec.At(kind).Items() {
			for _, key := range notWindowsContext {
				if has(container.At("securityContext"), key) {
					f.Forbidden(p.To(kind).Item(i).To("securityContext").To(key), why)
				}
			}
		}
	}
}

// hostProcessPod checks pods of Windows whose containers are processes of the host: all of them must be, or none, and
// such a pod must use the network of the host.
func (f *errorList) hostProcessPod(spec object.Value, p *fielderrors.Location) {
	ofPod := spec.At("securityContext", "windowsOptions", "hostProcess")
	containers, processes := 0, 0
	for _, kind := range containerLists {
		for i, container := range spec.At(kind).Items() {
			containers++
			own := container.At("securityContext", "windowsOptions", "hostProcess")
			if !ofPod.IsNull() && !own.IsNull() && ofPod.Bool() != own.Bool() {
				f.Invalid(p.To(kind).Item(i).To("securityContext").To("windowsOptions").To("hostProcess"), own.Bool(),
					fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", ofPod.Bool()))
			}
			if own.Bool() || own.IsNull() && ofPod.Bool() {
				processes++
			}
		}
	}
	if processes == 0 {
		return
	}
	if processes != containers {
		f.Invalid(p, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers")
	}
	if !truth(spec, "hostNetwork") {
		f.Invalid(p.To("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers")
	}
}

const (
	maxCredentialSpec = 64 << 10
	maxWindowsDomain  = 256
	maxWindowsUser    = 104
)

var (
	controlCharacters = regexp.MustCompile(`[[:cntrl:]]+`)
	netBIOSName       = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	windowsDomain     = regexp.MustCompile(
		`^[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
	notInUserName = regexp.MustCompile(`["/\\:;|=,\+\*\?<>@\[\]]`)
	dotsAndSpaces = regexp.MustCompile(`^[\. ]+$`)
)

func (f *errorList) windowsOptions(options object.Value, p *fielderrors.Location) {
	if name := options.At("gmsaCredentialSpecName"); !name.IsNull() {
		for _, wrong := range objectmeta.SubdomainErrors(name.Str()) {
			f.Invalid(p.To("gmsaCredentialSpecName"), fielderrors.Word(name.Str()), wrong)
		}
	}
	if spec := options.At("gmsaCredentialSpec"); !spec.IsNull() {
		if spec.Len() == 0 {
			f.Invalid(p.To("gmsaCredentialSpec"), fielderrors.Word(""), "gmsaCredentialSpec cannot be an empty string")
		} else if spec.Len() > maxCredentialSpec {
			f.Invalid(p.To("gmsaCredentialSpec"), fielderrors.Word(spec.Str()),
				"gmsaCredentialSpec size must be under 64 KiB")
		}
	}
	if name := options.At("runAsUserName"); !name.IsNull() {
		for _, wrong := range windowsUserErrors(name.Str()) {
			f.Invalid(p.To("runAsUserName"), fielderrors.Word(name.Str()), wrong)
		}
	}
}

// windowsUserErrors returns the errors in a user name with an optional domain before it.
func windowsUserErrors(name string) []string {
	switch {
	case name == "":
		return []string{"runAsUserName cannot be an empty string"}
	case controlCharacters.MatchString(name):
		return []string{"runAsUserName cannot contain control characters"}
	case strings.Count(name, `\`) > 1:
		return []string{"runAsUserName cannot contain more than one backslash"}
	}
	var wrong []string
	user := name
	if domain, behind, ok := strings.Cut(name, `\`); ok {
		user = behind
		if len(domain) >= maxWindowsDomain {
			wrong = append(wrong, fmt.Sprintf("runAsUserName's Domain length must be under %d characters",
				maxWindowsDomain))
		}
		if !netBIOSName.MatchString(domain) && !windowsDomain.MatchString(domain) {
			wrong = append(wrong, "runAsUserName's Domain doesn't match the NetBios nor the DNS format")
		}
	}
	if user == "" {
		wrong = append(wrong, "runAsUserName's User cannot be empty")
	} else if len(user) > maxWindowsUser {
		wrong = append(wrong, fmt.Sprintf("runAsUserName's User length must not be longer than %d characters",
			maxWindowsUser))
	}
	if dotsAndSpaces.MatchString(user) {
		wrong = append(wrong, "runAsUserName's User cannot contain only periods or spaces")
	}
	if notInUserName.MatchString(user) {
		wrong = append(wrong, `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	}
	return wrong
}
