package validation

import (
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/object"
)

const (
	fileMode = "must be a number between 0 and 0777 (octal), both inclusive"
	maxMode  = 0o777
)

var (
	hostPathTypes     = []string{"", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"}
	mountPropagations = []string{"Bidirectional", "HostToContainer", "None"}
	recursiveReadOnly = []string{"Disabled", "Enabled", "IfPossible"}
)

// volumes checks the volumes of a pod and remembers the good ones.
func (f *faults) volumes(r *podRules, p *place) {
	volumes := r.spec.At("volumes").Items()
	var names seen
	var good []object.Value // only if not all are
	faulty := false
	for i, volume := range volumes {
		p := p.item(i)
		name := text(volume, "name")
		before := len(f.list)
		f.volume(r, volume, p)
		f.requiredLabel(p.to("name"), name)
		if names.has(name) {
			f.duplicate(p.to("name"), name)
		}
		switch bad := len(f.list) > before; {
		case !bad && faulty:
			good = append(good, volume)
		case bad && !faulty:
			faulty = true
			good = append(good, volumes[:i]...)
		}
		if len(f.list) == before {
			names.add(name)
		}
		f.claimOfEphemeral(r, volume, volumes, p)
	}
	if !faulty {
		good = volumes
	}
	r.volumes = newByName(good)
}

// claimOfEphemeral refuses to name the claim that another volume of the pod will make.
func (f *faults) claimOfEphemeral(r *podRules, volume object.Value, volumes []object.Value, p *place) {
	claim := volume.At("persistentVolumeClaim")
	pod := text(r.meta, "name")
	if claim.IsNull() || pod == "" {
		return
	}
	name := text(claim, "claimName")
	if !strings.HasPrefix(name, pod+"-") {
		return
	}
	for _, other := range volumes {
		if has(other, "ephemeral") && name == pod+"-"+text(other, "name") {
			f.invalid(p.to("persistentVolumeClaim").to("claimName"), name, "must not reference a PVC that gets created for an ephemeral volume")
			return
		}
	}
}

// source is one kind of volume: its member, and where the reference says it is when it refuses a second one (second)
// or something in it (inside), if it says something else.
type source struct{ key, second, inside string }

// podSources are the kinds of volumes of a pod in the order in which the reference looks for them.
var podSources = []source{
	{key: "emptyDir"}, {key: "hostPath"}, {key: "gitRepo"}, {key: "gcePersistentDisk", inside: "persistentDisk"},
	{key: "awsElasticBlockStore"}, {key: "secret"}, {key: "nfs"}, {key: "iscsi"}, {key: "glusterfs"}, {key: "flocker"},
	{key: "persistentVolumeClaim"}, {key: "rbd"}, {key: "cinder"}, {key: "cephfs", second: "cephFS"}, {key: "quobyte"},
	{key: "downwardAPI", second: "downwarAPI"}, {key: "fc"}, {key: "flexVolume"}, {key: "configMap"}, {key: "azureFile"},
	{key: "vsphereVolume"}, {key: "photonPersistentDisk"}, {key: "portworxVolume"}, {key: "azureDisk"}, {key: "storageos"},
	{key: "projected"}, {key: "scaleIO"}, {key: "csi"}, {key: "ephemeral"}, {key: "image"},
}

// volume checks what a volume is made of.
func (f *faults) volume(r *podRules, volume object.Value, p *place) {
	n := 0
	for _, kind := range podSources {
		from := volume.At(kind.key)
		if from.IsNull() {
			continue
		}
		if n++; n > 1 {
			f.forbidden(p.to(or(kind.second, kind.key)), moreVolumes)
		} else {
			f.podSource(r, kind.key, from, volume, p.to(or(kind.inside, kind.key)))
		}
		if kind.key == "iscsi" && has(from, "initiatorName") && len(text(volume, "name"))+1+len(text(from, "targetPortal")) > 64 {
			f.invalid(p.to("name"), text(volume, "name"), "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.")
		}
	}
	if n == 0 {
		f.required(p, "must specify a volume type")
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// podSource checks the kinds that only a pod has; those that a persistent volume has too are elsewhere.
func (f *faults) podSource(r *podRules, kind string, from, volume object.Value, p *place) {
	switch kind {
	case "emptyDir":
		if limit := quantity(from.At("sizeLimit")); limit.Sign() < 0 {
			f.forbidden(p.to("sizeLimit"), "SizeLimit field must be a valid resource quantity")
		}
	case "gitRepo":
		f.requiredText(p.to("repository"), text(from, "repository"))
		f.descending(p.to("directory"), text(from, "directory"))
	case "secret":
		f.requiredText(p.to("secretName"), text(from, "secretName"))
		f.mode(p.to("defaultMode"), from.At("defaultMode"))
		f.keysToPaths(from.At("items"), p.to("items"))
	case "configMap":
		f.requiredText(p.to("name"), text(from, "name"))
		f.mode(p.to("defaultMode"), from.At("defaultMode"))
		f.keysToPaths(from.At("items"), p.to("items"))
	case "persistentVolumeClaim":
		f.requiredText(p.to("claimName"), text(from, "claimName"))
	case "downwardAPI":
		f.mode(p.to("defaultMode"), from.At("defaultMode"))
		for _, file := range from.At("items").Items() {
			f.downwardFile(file, p)
		}
	case "projected":
		f.mode(p.to("defaultMode"), from.At("defaultMode"))
		f.projected(r, from, p)
	case "csi":
		f.csiDriverName(p.to("driver"), text(from, "driver"))
		if secret := from.At("nodePublishSecretRef"); !secret.IsNull() {
			if name := text(secret, "name"); name == "" {
				f.required(p.to("nodePublishSecretRef").to("name"), "")
			} else {
				f.subdomain(p.to("name"), name)
			}
		}
	case "ephemeral":
		f.ephemeralVolume(r, from, text(volume, "name"), p)
	case "image":
		if text(from, "reference") == "" && !r.old.imageReference {
			f.required(p.to("reference"), "")
		}
		f.oneOf(p.to("pullPolicy"), text(from, "pullPolicy"), pullPolicies)
	default:
		f.sharedSource(kind, from, p)
	}
}

func (f *faults) ephemeralVolume(r *podRules, from object.Value, name string, p *place) {
	template := from.At("volumeClaimTemplate")
	if template.IsNull() {
		f.required(p.to("volumeClaimTemplate"), "")
	} else {
		f.claimTemplate(template, p.to("volumeClaimTemplate"))
	}
	if pod := text(r.meta, "name"); pod != "" && name != "" {
		claim := pod + "-" + name
		for _, wrong := range subdomainFaults(claim) {
			f.invalid(p.up.to("name"), name, fmt.Sprintf("PVC name %q: %v", claim, wrong))
		}
	}
}

func (f *faults) mode(p *place, v object.Value) {
	if !v.IsNull() && (v.Int() < 0 || v.Int() > maxMode) {
		f.invalid(p, v.Int(), fileMode)
	}
}

func (f *faults) keysToPaths(items object.Value, p *place) {
	for i, item := range items.Items() {
		f.keyToPath(item, p.item(i))
	}
}

func (f *faults) keyToPath(item object.Value, p *place) {
	f.requiredText(p.to("key"), text(item, "key"))
	f.requiredText(p.to("path"), text(item, "path"))
	f.localPath(p.to("path"), text(item, "path"))
	f.mode(p.to("mode"), item.At("mode"))
}

func (f *faults) downwardFile(file object.Value, p *place) {
	f.requiredText(p.to("path"), text(file, "path"))
	f.localPath(p.to("path"), text(file, "path"))
	field, amount := file.At("fieldRef"), file.At("resourceFieldRef")
	switch {
	case !field.IsNull():
		f.fieldRef(field, volumeFields, p.to("fieldRef"))
		if !amount.IsNull() {
			f.invalid(p, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case !amount.IsNull():
		f.resourceFieldRef(amount, true, p.to("resourceFieldRef"))
	default:
		f.required(p, "one of fieldRef and resourceFieldRef is required")
	}
	f.mode(p.to("mode"), file.At("mode"))
}

// descending demands a relative path that does not go up.
func (f *faults) descending(p *place, s string) {
	if path.IsAbs(s) {
		f.invalid(p, s, "must be a relative path")
	}
	f.noBacksteps(p, s)
}

func (f *faults) noBacksteps(p *place, s string) {
	if hasBacksteps(s) {
		f.invalid(p, s, "must not contain '..'")
	}
}

func hasBacksteps(s string) bool {
	for rest, more := s, true; more; {
		var part string
		if part, rest, more = strings.Cut(rest, "/"); part == ".." {
			return true
		}
	}
	return false
}

// localPath demands a relative path that does not go up and does not look as if it did.
func (f *faults) localPath(p *place, s string) {
	f.descending(p, s)
	if strings.HasPrefix(s, "..") && !strings.HasPrefix(s, "../") {
		f.invalid(p, s, "must not start with '..'")
	}
}

// projected checks the sources of a projected volume; no two of them may write one path.
func (f *faults) projected(r *podRules, from object.Value, p *place) {
	var paths seen
	for i, source := range from.At("sources").Items() {
		at := p.to("sources").item(i)
		n := 0
		for _, key := range [...]string{"secret", "configMap"} {
			projection := source.At(key)
			if projection.IsNull() {
				continue
			}
			n++
			f.requiredText(at.to(key).to("name"), text(projection, "name"))
			for j, item := range projection.At("items").Items() {
				f.keyToPath(item, at.to(key).to("items").item(j))
				if file := text(item, "path"); file != "" && paths.add(file) {
					f.invalid(p, text(projection, "name"), conflictingPaths)
				}
			}
		}
		if projection := source.At("downwardAPI"); !projection.IsNull() {
			n++
			for _, file := range projection.At("items").Items() {
				f.downwardFile(file, at.to("downwardAPI"))
				f.projectedPath(text(file, "path"), &paths, p)
			}
		}
		if token := source.At("serviceAccountToken"); !token.IsNull() {
			n++
			f.projectedToken(r, token, at.to("serviceAccountToken"), p)
		}
		if bundle := source.At("clusterTrustBundle"); !bundle.IsNull() {
			n++
			f.projectedBundle(bundle, at.to("clusterTrustBundle"))
			if file := text(bundle, "path"); paths.add(file) {
				f.invalid(p, file, conflictingPaths)
			}
		}
		if certificate := source.At("podCertificate"); !certificate.IsNull() {
			n++
			f.projectedCertificate(certificate, &paths, at.to("podCertificate"), p)
		}
		if n > 1 {
			f.forbidden(at, "may not specify more than 1 volume type per source")
		}
	}
}

const conflictingPaths = "conflicting duplicate paths"

func (f *faults) projectedPath(file string, paths *seen, p *place) {
	if file != "" && paths.add(file) {
		f.invalid(p, file, conflictingPaths)
	}
}

const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

// projectedToken checks a token for the pod's account; volume is where the reference says that its path is.
func (f *faults) projectedToken(r *podRules, token object.Value, p, volume *place) {
	if seconds := token.At("expirationSeconds"); seconds.IsNull() {
		f.required(p.to("expirationSeconds"), "")
	} else if seconds.Int() < minTokenSeconds {
		f.invalid(p.to("expirationSeconds"), seconds.Int(), "may not specify a duration less than 10 minutes")
	} else if seconds.Int() > maxTokenSeconds {
		f.invalid(p.to("expirationSeconds"), seconds.Int(), "may not specify a duration larger than 2^32 seconds")
	}
	if file := text(token, "path"); file == "" {
		f.required(volume.to("path"), "")
	} else if !r.old.tokenPaths {
		f.localPath(volume.to("path"), file)
	}
}

func (f *faults) projectedBundle(bundle object.Value, p *place) {
	name, signer := bundle.At("name"), bundle.At("signerName")
	switch {
	case !name.IsNull() && !signer.IsNull():
		f.invalid(p, show(bundle), "only one of name and signerName may be used")
	case !name.IsNull():
		if name.Str() == "" {
			f.required(p.to("name"), "must be a valid object name")
		}
		for _, wrong := range trustBundleNameFaults(name.Str(), signerOfBundle(name.Str())) {
			f.invalid(p.to("name"), name.Str(), "not a valid clustertrustbundlename: "+wrong)
		}
		if selector := bundle.At("labelSelector"); !selector.IsNull() {
			f.invalid(p.to("labelSelector"), show(selector, selectorOrder...), "labelSelector must be unset if name is specified")
		}
	case !signer.IsNull():
		if signer.Str() == "" {
			f.required(p.to("signerName"), "must be a valid signer name")
		}
		f.signerName(p.to("signerName"), signer.Str())
		f.labelSelector(bundle.At("labelSelector"), p.to("labelSelector"), false)
	default:
		f.required(p, "either name or signerName must be specified")
	}
	f.requiredText(p.to("path"), text(bundle, "path"))
	f.localPath(p.to("path"), text(bundle, "path"))
}

// selectorOrder are the members of a label selector in the order of its Go type.
var selectorOrder = []string{"matchLabels", "matchExpressions"}

var keyTypes = []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}

func (f *faults) projectedCertificate(certificate object.Value, paths *seen, p, volume *place) {
	f.signerName(p.to("signerName"), text(certificate, "signerName"))
	f.userAnnotations(certificate.At("userAnnotations"), p.to("userAnnotations"))
	if key := text(certificate, "keyType"); !holds(keyTypes, key) {
		f.unsupportedText(p.to("keyType"), key, keyTypes)
	}
	if seconds := certificate.At("maxExpirationSeconds"); !seconds.IsNull() {
		f.certificateLifetime(seconds.Int(), text(certificate, "signerName"), p.to("maxExpirationSeconds"))
	}
	n := 0
	for _, key := range [...]string{"credentialBundlePath", "keyPath", "certificateChainPath"} {
		if file := text(certificate, key); file != "" {
			n++
			f.localPath(p.to(key), file)
			f.projectedPath(file, paths, volume)
		}
	}
	if n == 0 {
		f.required(p, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")
	}
}

func (f *faults) certificateLifetime(seconds int64, signer string, p *place) {
	const shortest, longest, longestOwn = 3600, 91 * 24 * 3600, 24 * 3600
	if seconds < shortest {
		f.invalid(p, seconds, "if provided, maxExpirationSeconds must be >= 3600")
	}
	most := int64(longest)
	if isKubernetesSigner(signer) {
		most = longestOwn
	}
	if seconds > most {
		f.invalid(p, seconds, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most))
	}
}

// volumeMounts checks where a container sees the volumes of its pod.
func (f *faults) volumeMounts(r *podRules, container object.Value, p *place) {
	mounts := container.At("volumeMounts")
	if mounts.Len() == 0 {
		return
	}
	devices := pathsOf(container.At("volumeDevices"), "devicePath")
	var points seen
	for i, mount := range mounts.Items() {
		at := p.item(i)
		name, point := text(mount, "name"), text(mount, "mountPath")
		f.requiredText(at.to("name"), name)
		if _, ok := r.volumes.find(name); !ok {
			f.notFound(at.to("name"), name)
		}
		f.requiredText(at.to("mountPath"), point)
		if points.add(point) {
			f.invalid(at.to("mountPath"), point, "must be unique")
		}
		if devices.names[name] {
			f.invalid(at.to("name"), name, "must not already exist in volumeDevices")
		}
		if devices.paths[point] {
			f.invalid(at.to("mountPath"), point, "must not already exist as a path in volumeDevices")
		}
		f.subPaths(mount, p, at)
		f.mountModes(container, mount, p)
	}
}

func (f *faults) subPaths(mount object.Value, p, at *place) {
	sub, expr := text(mount, "subPath"), text(mount, "subPathExpr")
	if sub != "" {
		f.descending(p.to("subPath"), sub)
	}
	if expr == "" {
		return
	}
	if sub != "" {
		f.invalid(at.to("subPathExpr"), expr, "subPathExpr and subPath are mutually exclusive")
	}
	f.descending(p.to("subPathExpr"), expr)
}

func (f *faults) mountModes(container, mount object.Value, p *place) {
	propagation := text(mount, "mountPropagation")
	if has(mount, "mountPropagation") {
		f.only(p.to("mountPropagation"), propagation, mountPropagations)
		if propagation == "Bidirectional" && !truth(container.At("securityContext"), "privileged") {
			f.forbidden(p.to("mountPropagation"), "Bidirectional mount propagation is available only to privileged containers")
		}
	}
	recursive := mount.At("recursiveReadOnly")
	if recursive.IsNull() || recursive.Str() == "Disabled" {
		return
	}
	f.only(p.to("recursiveReadOnly"), recursive.Str(), recursiveReadOnly)
	if !holds(recursiveReadOnly, recursive.Str()) {
		return
	}
	if !truth(mount, "readOnly") {
		f.forbidden(p.to("recursiveReadOnly"), "may only be specified when readOnly is true")
	}
	if has(mount, "mountPropagation") && propagation != "None" {
		f.forbidden(p.to("recursiveReadOnly"), "may only be specified when mountPropagation is None or not specified")
	}
}

// taken are the names and paths of mounts or devices. Of several with one name, the path of the last counts.
type taken struct{ names, paths map[string]bool }

func pathsOf(items object.Value, key string) taken {
	if items.Len() == 0 {
		return taken{}
	}
	last := make(map[string]string, items.Len())
	for _, item := range items.Items() {
		last[text(item, "name")] = text(item, key)
	}
	t := taken{make(map[string]bool, len(last)), make(map[string]bool, len(last))}
	for name, path := range last {
		t.names[name], t.paths[path] = true, true
	}
	return t
}

// volumeDevices checks where a container sees volumes as raw devices.
func (f *faults) volumeDevices(r *podRules, container object.Value, p *place) {
	devices := container.At("volumeDevices")
	if devices.Len() == 0 {
		return
	}
	mounts := pathsOf(container.At("volumeMounts"), "mountPath")
	var names, paths seen
	for i, device := range devices.Items() {
		p := p.item(i)
		name, file := text(device, "name"), text(device, "devicePath")
		volume, found := r.volumes.find(name)
		f.requiredText(p.to("name"), name)
		if names.has(name) {
			f.invalid(p.to("name"), name, "must be unique")
		}
		if found && !has(volume, "persistentVolumeClaim") && !has(volume, "ephemeral") {
			f.invalid(p.to("name"), name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		if !found {
			f.notFound(p.to("name"), name)
		}
		f.requiredText(p.to("devicePath"), file)
		if paths.has(file) {
			f.invalid(p.to("devicePath"), file, "must be unique")
		}
		if hasBacksteps(file) {
			f.invalid(p.to("devicePath"), file, "can not contain backsteps ('..')")
		} else {
			paths.add(file)
		}
		if mounts.names[name] {
			f.invalid(p.to("name"), name, "must not already exist in volumeMounts")
		}
		if mounts.paths[file] {
			f.invalid(p.to("devicePath"), file, "must not already exist as a path in volumeMounts")
		}
		if name != "" {
			names.add(name)
		}
	}
}

// amountPositive demands a quantity above zero.
func (f *faults) amountPositive(p *place, amount resource.Quantity) bool {
	if amount.Sign() > 0 {
		return true
	}
	f.invalid(p, amount.String(), notPositive)
	return false
}
