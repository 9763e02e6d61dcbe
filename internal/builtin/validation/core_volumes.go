package validation

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

const (
	fileMode = "must be a number between 0 and 0777 (octal), both inclusive"
	maxMode  = 0o777
)

var (
	hostPathTypes = []string{"", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File",
		"FileOrCreate", "Socket"}
	mountPropagations = []string{"Bidirectional", "HostToContainer", "None"}
	recursiveReadOnly = []string{"Disabled", "Enabled", "IfPossible"}
)

// volumes checks the volumes of a pod and records the valid ones.
func (f *errorList) volumes(r *podRules, p *fielderrors.Location) {
	volumes := r.spec.At("volumes").Items()
	valid := make([]object.Value, 0, len(volumes))
	claims := ephemeralClaims(text(r.meta, "name"), volumes)
	var names nameSet
	for i, volume := range volumes {
		p := p.Item(i)
		name := text(volume, "name")
		before := len(f.List)
		f.volume(r, volume, p)
		f.requiredLabel(p.To("name"), name)
		if names.has(name) {
			f.Duplicate(p.To("name"), name)
		}
		if len(f.List) == before {
			names.add(name)
			valid = append(valid, volume)
		}
		if claim := text(volume.At("persistentVolumeClaim"), "claimName"); claims.has(claim) {
			f.Invalid(p.To("persistentVolumeClaim").To("claimName"), claim,
				"must not reference a PVC that gets created for an ephemeral volume")
		}
	}
	r.volumes = newByName(valid)
}

// ephemeralClaims are the names of the claims that the cluster will make for a pod's ephemeral volumes. The name of a
// template's pods is not known, and is empty here.
func ephemeralClaims(pod string, volumes []object.Value) (names nameSet) {
	for _, volume := range volumes {
		if pod != "" && has(volume, "ephemeral") {
			names.add(pod + "-" + text(volume, "name"))
		}
	}
	return names
}

// source is one kind of volume: its member, and its name in the paths of the reference's errors for a second source
// (second) or for errors in its fields (inside), if these differ from the member.
type source struct{ key, second, inside string }

// podSources are the kinds of volumes of a pod in the order in which the reference checks them.
var podSources = []source{
	{key: "emptyDir"}, {key: "hostPath"}, {key: "gitRepo"}, {key: "gcePersistentDisk", inside: "persistentDisk"},
	{key: "awsElasticBlockStore"}, {key: "secret"}, {key: "nfs"}, {key: "iscsi"}, {key: "glusterfs"}, {key: "flocker"},
	{key: "persistentVolumeClaim"}, {key: "rbd"}, {key: "cinder"}, {key: "cephfs", second: "cephFS"}, {key: "quobyte"},
	{key: "downwardAPI", second: "downwarAPI"}, {key: "fc"}, {key: "flexVolume"}, {key: "configMap"},
	{key: "azureFile"},
	{key: "vsphereVolume"}, {key: "photonPersistentDisk"}, {key: "portworxVolume"}, {key: "azureDisk"},
	{key: "storageos"},
	{key: "projected"}, {key: "scaleIO"}, {key: "csi"}, {key: "ephemeral"}, {key: "image"},
}

// volume checks the source of a volume. A volume without one has become an emptyDir (SetDefaults_Volume).
func (f *errorList) volume(r *podRules, volume object.Value, p *fielderrors.Location) {
	n := 0
	for _, kind := range podSources {
		from := volume.At(kind.key)
		if from.IsNull() {
			continue
		}
		if n++; n > 1 {
			f.Forbidden(p.To(or(kind.second, kind.key)), moreVolumes)
		} else {
			f.podSource(r, kind.key, from, volume, p.To(or(kind.inside, kind.key)))
		}
		// Only iscsi has an initiator. The reference checks it even if iscsi is not the first source.
		if has(from, "initiatorName") &&
			len(text(volume, "name"))+1+len(text(from, "targetPortal")) > 64 {
			f.Invalid(p.To("name"), text(volume, "name"),
				"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.")
		}
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// podSource checks the kinds that only a pod has; those that a persistent volume has too are elsewhere.
func (f *errorList) podSource(r *podRules, kind string, from, volume object.Value, p *fielderrors.Location) {
	switch kind {
	case "emptyDir":
		if limit := quantity(from.At("sizeLimit")); limit.Sign() < 0 {
			f.Forbidden(p.To("sizeLimit"), "SizeLimit field must be a valid resource quantity")
		}
	case "gitRepo":
		f.requiredText(p.To("repository"), text(from, "repository"))
		f.descending(p.To("directory"), text(from, "directory"))
	case "secret":
		f.requiredText(p.To("secretName"), text(from, "secretName"))
		f.mode(p.To("defaultMode"), from.At("defaultMode"))
		f.keysToPaths(from.At("items"), p.To("items"))
	case "configMap":
		f.requiredText(p.To("name"), text(from, "name"))
		f.mode(p.To("defaultMode"), from.At("defaultMode"))
		f.keysToPaths(from.At("items"), p.To("items"))
	case "persistentVolumeClaim":
		f.requiredText(p.To("claimName"), text(from, "claimName"))
	case "downwardAPI":
		f.mode(p.To("defaultMode"), from.At("defaultMode"))
		for _, file := range from.At("items").Items() {
			f.downwardFile(file, p)
		}
	case "projected":
		f.mode(p.To("defaultMode"), from.At("defaultMode"))
		f.projected(r, from, p)
	case "csi":
		f.csiDriverName(p.To("driver"), text(from, "driver"))
		if secret := from.At("nodePublishSecretRef"); !secret.IsNull() {
			if name := text(secret, "name"); name == "" {
				f.Required(p.To("nodePublishSecretRef").To("name"), "")
			} else {
				f.subdomain(p.To("name"), name)
			}
		}
	case "ephemeral":
		f.ephemeralVolume(r, from, text(volume, "name"), p)
	case "image":
		if text(from, "reference") == "" && !r.old.imageReference {
			f.Required(p.To("reference"), "")
		}
		f.oneOf(p.To("pullPolicy"), text(from, "pullPolicy"), pullPolicies)
	default:
		f.sharedSource(kind, from, p)
	}
}

func (f *errorList) ephemeralVolume(r *podRules, from object.Value, name string, p *fielderrors.Location) {
	template := from.At("volumeClaimTemplate")
	if template.IsNull() {
		f.Required(p.To("volumeClaimTemplate"), "")
	} else {
		f.claimTemplate(template, p.To("volumeClaimTemplate"))
	}
	if pod := text(r.meta, "name"); pod != "" && name != "" {
		claim := pod + "-" + name
		for _, wrong := range objectmeta.SubdomainErrors(claim) {
			f.Invalid(p.Up.To("name"), name, fmt.Sprintf("PVC name %q: %v", claim, wrong))
		}
	}
}

func (f *errorList) mode(p *fielderrors.Location, v object.Value) {
	if v.Int() < 0 || v.Int() > maxMode {
		f.Invalid(p, v.Int(), fileMode)
	}
}

func (f *errorList) keysToPaths(items object.Value, p *fielderrors.Location) {
	for i, item := range items.Items() {
		f.keyToPath(item, p.Item(i))
	}
}

func (f *errorList) keyToPath(item object.Value, p *fielderrors.Location) {
	f.requiredText(p.To("key"), text(item, "key"))
	f.requiredText(p.To("path"), text(item, "path"))
	f.localPath(p.To("path"), text(item, "path"))
	f.mode(p.To("mode"), item.At("mode"))
}

func (f *errorList) downwardFile(file object.Value, p *fielderrors.Location) {
	f.requiredText(p.To("path"), text(file, "path"))
	f.localPath(p.To("path"), text(file, "path"))
	field, amount := file.At("fieldRef"), file.At("resourceFieldRef")
	switch {
	case !field.IsNull():
		f.fieldRef(field, volumeFields, p.To("fieldRef"))
		if !amount.IsNull() {
			f.Invalid(p, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case !amount.IsNull():
		f.resourceFieldRef(amount, true, p.To("resourceFieldRef"))
	default:
		f.Required(p, "one of fieldRef and resourceFieldRef is required")
	}
	f.mode(p.To("mode"), file.At("mode"))
}

// descending demands a relative path that does not go up.
func (f *errorList) descending(p *fielderrors.Location, s string) {
	if path.IsAbs(s) {
		f.Invalid(p, s, "must be a relative path")
	}
	f.noBacksteps(p, s)
}

func (f *errorList) noBacksteps(p *fielderrors.Location, s string) {
	if hasBacksteps(s) {
		f.Invalid(p, s, "must not contain '..'")
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

// localPath demands a relative path that neither goes up nor begins with two dots.
func (f *errorList) localPath(p *fielderrors.Location, s string) {
	f.descending(p, s)
	if strings.HasPrefix(s, "..") && !strings.HasPrefix(s, "../") {
		f.Invalid(p, s, "must not start with '..'")
	}
}

// projected checks the sources of a projected volume; no two of them may write the same path.
func (f *errorList) projected(r *podRules, from object.Value, p *fielderrors.Location) {
	var paths nameSet
	for i, source := range from.At("sources").Items() {
		at := p.To("sources").Item(i)
		n := 0
		for _, key := range [...]string{"secret", "configMap"} {
			projection := source.At(key)
			if projection.IsNull() {
				continue
			}
			n++
			f.requiredText(at.To(key).To("name"), text(projection, "name"))
			for j, item := range projection.At("items").Items() {
				f.keyToPath(item, at.To(key).To("items").Item(j))
				if file := text(item, "path"); file != "" && paths.add(file) {
					f.Invalid(p, text(projection, "name"), conflictingPaths)
				}
			}
		}
		if projection := source.At("downwardAPI"); !projection.IsNull() {
			n++
			for _, file := range projection.At("items").Items() {
				f.downwardFile(file, at.To("downwardAPI"))
				f.projectedPath(text(file, "path"), &paths, p)
			}
		}
		if token := source.At("serviceAccountToken"); !token.IsNull() {
			n++
			f.projectedToken(r, token, at.To("serviceAccountToken"), p)
		}
		if bundle := source.At("clusterTrustBundle"); !bundle.IsNull() {
			n++
			f.projectedBundle(bundle, at.To("clusterTrustBundle"))
			if file := text(bundle, "path"); paths.add(file) {
				f.Invalid(p, file, conflictingPaths)
			}
		}
		if certificate := source.At("podCertificate"); !certificate.IsNull() {
			n++
			f.projectedCertificate(certificate, &paths, at.To("podCertificate"), p)
		}
		if n > 1 {
			f.Forbidden(at, "may not specify more than 1 volume type per source")
		}
	}
}

const conflictingPaths = "conflicting duplicate paths"

func (f *errorList) projectedPath(file string, paths *nameSet, p *fielderrors.Location) {
	if file != "" && paths.add(file) {
		f.Invalid(p, file, conflictingPaths)
	}
}

const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

// projectedToken checks a token for the pod's account; volume is the place that the reference reports for its path.
func (f *errorList) projectedToken(r *podRules, token object.Value, p, volume *fielderrors.Location) {
	seconds := number(token, "expirationSeconds")
	if seconds < minTokenSeconds {
		f.Invalid(p.To("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes")
	}
	if seconds > maxTokenSeconds {
		f.Invalid(p.To("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds")
	}
	if file := text(token, "path"); file == "" {
		f.Required(volume.To("path"), "")
	} else if !r.old.tokenPaths {
		f.localPath(volume.To("path"), file)
	}
}

func (f *errorList) projectedBundle(bundle object.Value, p *fielderrors.Location) {
	name, signer := bundle.At("name"), bundle.At("signerName")
	switch {
	case !name.IsNull() && !signer.IsNull():
		f.Invalid(p, goForm{bundle, bundleFields}, "only one of name and signerName may be used")
	case !name.IsNull():
		if name.Str() == "" {
			f.Required(p.To("name"), "must be a valid object name")
		}
		for _, wrong := range trustBundleNameErrors(name.Str(), signerOfBundle(name.Str())) {
			f.Invalid(p.To("name"), name.Str(), "not a valid clustertrustbundlename: "+wrong)
		}
		if selector := bundle.At("labelSelector"); !selector.IsNull() {
			f.Invalid(p.To("labelSelector"), fielderrors.Show(selector, selectorOrder...),
				"labelSelector must be unset if name is specified")
		}
	case !signer.IsNull():
		if signer.Str() == "" {
			f.Required(p.To("signerName"), "must be a valid signer name")
		}
		f.signerName(p.To("signerName"), signer.Str())
		f.labelSelector(bundle.At("labelSelector"), p.To("labelSelector"), false)
	default:
		f.Required(p, "either name or signerName must be specified")
	}
	f.requiredText(p.To("path"), text(bundle, "path"))
	f.localPath(p.To("path"), text(bundle, "path"))
}

// selectorOrder are the first members of a label selector in the order of its Go type.
var selectorOrder = []string{"matchLabels"}

var keyTypes = []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}

func (f *errorList) projectedCertificate(certificate object.Value, paths *nameSet, p, volume *fielderrors.Location) {
	f.signerName(p.To("signerName"), text(certificate, "signerName"))
	f.userAnnotations(certificate.At("userAnnotations"), p.To("userAnnotations"))
	if key := text(certificate, "keyType"); !holds(keyTypes, key) {
		f.UnsupportedText(p.To("keyType"), key, keyTypes)
	}
	if seconds := certificate.At("maxExpirationSeconds"); !seconds.IsNull() {
		f.certificateLifetime(seconds.Int(), text(certificate, "signerName"), p.To("maxExpirationSeconds"))
	}
	n := 0
	for _, key := range [...]string{"credentialBundlePath", "keyPath", "certificateChainPath"} {
		if file := text(certificate, key); file != "" {
			n++
			f.localPath(p.To(key), file)
			f.projectedPath(file, paths, volume)
		}
	}
	if n == 0 {
		f.Required(p, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")
	}
}

func (f *errorList) certificateLifetime(seconds int64, signer string, p *fielderrors.Location) {
	const shortest, longest, longestOwn = 3600, 91 * 24 * 3600, 24 * 3600
	if seconds < shortest {
		f.Invalid(p, seconds, "if provided, maxExpirationSeconds must be >= 3600")
	}
	most := int64(longest)
	if isKubernetesSigner(signer) {
		most = longestOwn
	}
	if seconds > most {
		f.Invalid(p, seconds, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most))
	}
}

// volumeMounts checks the mounts of a pod's volumes in a container.
func (f *errorList) volumeMounts(r *podRules, container object.Value, p *fielderrors.Location) {
	devices := pathsOf(container.At("volumeDevices"), "devicePath")
	var points nameSet
	for i, mount := range container.At("volumeMounts").Items() {
		at := p.Item(i)
		name, point := text(mount, "name"), text(mount, "mountPath")
		f.requiredText(at.To("name"), name)
		if _, ok := r.volumes.find(name); !ok {
			f.NotFound(at.To("name"), name)
		}
		f.requiredText(at.To("mountPath"), point)
		if points.add(point) {
			f.Invalid(at.To("mountPath"), point, "must be unique")
		}
		if devices.names.has(name) {
			f.Invalid(at.To("name"), name, "must not already exist in volumeDevices")
		}
		if devices.paths.has(point) {
			f.Invalid(at.To("mountPath"), point, "must not already exist as a path in volumeDevices")
		}
		f.subPaths(mount, p, at)
		f.mountModes(container, mount, p)
	}
}

func (f *errorList) subPaths(mount object.Value, p, at *fielderrors.Location) {
	sub, expr := text(mount, "subPath"), text(mount, "subPathExpr")
	f.descending(p.To("subPath"), sub)
	f.descending(p.To("subPathExpr"), expr)
	if sub != "" && expr != "" {
		f.Invalid(at.To("subPathExpr"), expr, "subPathExpr and subPath are mutually exclusive")
	}
}

func (f *errorList) mountModes(container, mount object.Value, p *fielderrors.Location) {
	propagation := text(mount, "mountPropagation")
	if has(mount, "mountPropagation") {
		f.only(p.To("mountPropagation"), propagation, mountPropagations)
		if propagation == "Bidirectional" && !truth(container.At("securityContext"), "privileged") {
			f.Forbidden(p.To("mountPropagation"),
				"Bidirectional mount propagation is available only to privileged containers")
		}
	}
	recursive := mount.At("recursiveReadOnly")
	if recursive.IsNull() || recursive.Str() == "Disabled" {
		return
	}
	f.only(p.To("recursiveReadOnly"), recursive.Str(), recursiveReadOnly)
	if !holds(recursiveReadOnly, recursive.Str()) {
		return
	}
	if !truth(mount, "readOnly") {
		f.Forbidden(p.To("recursiveReadOnly"), "may only be specified when readOnly is true")
	}
	if has(mount, "mountPropagation") && propagation != "None" {
		f.Forbidden(p.To("recursiveReadOnly"), "may only be specified when mountPropagation is None or not specified")
	}
}

// taken are the names and paths of mounts or devices. If a name is repeated, the path of the last one counts.
type taken struct{ names, paths nameSet }

func pathsOf(items object.Value, key string) (t taken) {
	for _, item := range slices.Backward(items.Items()) {
		if !t.names.add(text(item, "name")) {
			t.paths.add(text(item, key))
		}
	}
	return t
}

// volumeDevices checks the paths of volumes that a container uses as raw devices.
func (f *errorList) volumeDevices(r *podRules, container object.Value, p *fielderrors.Location) {
	mounts := pathsOf(container.At("volumeMounts"), "mountPath")
	var names, paths nameSet
	for i, device := range container.At("volumeDevices").Items() {
		p := p.Item(i)
		name, file := text(device, "name"), text(device, "devicePath")
		volume, found := r.volumes.find(name)
		f.requiredText(p.To("name"), name)
		if names.has(name) {
			f.Invalid(p.To("name"), name, "must be unique")
		}
		if found && !has(volume, "persistentVolumeClaim") && !has(volume, "ephemeral") {
			f.Invalid(p.To("name"), name,
				"can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		if !found {
			f.NotFound(p.To("name"), name)
		}
		f.requiredText(p.To("devicePath"), file)
		if paths.has(file) {
			f.Invalid(p.To("devicePath"), file, "must be unique")
		}
		if hasBacksteps(file) {
			f.Invalid(p.To("devicePath"), file, "can not contain backsteps ('..')")
		} else {
			paths.add(file)
		}
		if mounts.names.has(name) {
			f.Invalid(p.To("name"), name, "must not already exist in volumeMounts")
		}
		if mounts.paths.has(file) {
			f.Invalid(p.To("devicePath"), file, "must not already exist as a path in volumeMounts")
		}
		if name != "" {
			names.add(name)
		}
	}
}

// amountPositive demands a quantity above zero.
func (f *errorList) amountPositive(p *fielderrors.Location, amount resource.Quantity) {
	if amount.Sign() <= 0 {
		f.Invalid(p, amount.String(), notPositive)
	}
}
