package validation

import (
	"net"
	"path"
	"regexp"
	"strings"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// This file has the rules for the volume sources that both pods and PersistentVolumes can have.

const maxPartition = 255

// requiredMembers are the required strings of kinds of volumes. For kinds without other rules this is the whole check.
var requiredMembers = map[string][]string{
	"azureFile":            {"secretName", "shareName"},
	"glusterfs":            {"endpoints", "path"},
	"photonPersistentDisk": {"pdID"},
	"portworxVolume":       {"volumeID"},
	"scaleIO":              {"gateway", "system", "volumeName"},
	"vsphereVolume":        {"volumePath"},
}

func (f *errorList) sharedSource(kind string, from object.Value, p *fielderrors.Location) {
	for _, key := range requiredMembers[kind] {
		f.requiredText(p.To(key), text(from, key))
	}
	switch kind {
	case "hostPath":
		f.hostPath(from, p)
	case "gcePersistentDisk":
		f.requiredText(p.To("pdName"), text(from, "pdName"))
		f.partition(from, p)
	case "awsElasticBlockStore":
		f.requiredText(p.To("volumeID"), text(from, "volumeID"))
		f.partition(from, p)
	case "nfs":
		f.requiredText(p.To("server"), text(from, "server"))
		f.requiredText(p.To("path"), text(from, "path"))
		if file := text(from, "path"); !path.IsAbs(file) {
			f.Invalid(p.To("path"), file, "must be an absolute path")
		}
	case "iscsi":
		f.iscsi(from, p, "must be valid format starting with iqn, eui, or naa")
	case "flocker":
		f.flocker(from, p)
	case "rbd":
		f.requiredList(p.To("monitors"), from.At("monitors"))
		f.requiredText(p.To("image"), text(from, "image"))
	case "cephfs":
		f.requiredList(p.To("monitors"), from.At("monitors"))
	case "cinder":
		f.requiredText(p.To("volumeID"), text(from, "volumeID"))
		f.secretName(from, p)
	case "quobyte":
		f.quobyte(from, p)
	case "fc":
		f.fibreChannel(from, p)
	case "flexVolume":
		f.flexVolume(from, p)
	case "azureDisk":
		f.azureDisk(from, p)
	case "storageos":
		f.requiredLabel(p.To("volumeName"), text(from, "volumeName"))
		if namespace := text(from, "volumeNamespace"); namespace != "" {
			f.label(p.To("volumeNamespace"), namespace)
		}
		f.secretName(from, p)
	}
}

func (f *errorList) requiredList(p *fielderrors.Location, v object.Value) {
	if v.Len() == 0 {
		f.Required(p, "")
	}
}

// secretName demands the name of a secret that is referred to.
func (f *errorList) secretName(from object.Value, p *fielderrors.Location) {
	if secret := from.At("secretRef"); !secret.IsNull() {
		f.requiredText(p.To("secretRef").To("name"), text(secret, "name"))
	}
}

func (f *errorList) partition(from object.Value, p *fielderrors.Location) {
	if n := number(from, "partition"); n < 0 || n > maxPartition {
		f.Invalid(p.To("partition"), n, "must be between 1 and 255, inclusive")
	}
}

func (f *errorList) hostPath(from object.Value, p *fielderrors.Location) {
	file := text(from, "path")
	if file == "" {
		f.Required(p.To("path"), "")
		return
	}
	f.noBacksteps(p.To("path"), file)
	f.onlyIfSet(p.To("type"), from.At("type"), hostPathTypes)
}

var (
	initiatorIQN = regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)
	initiatorEUI = regexp.MustCompile(`^eui.[[:alnum:]]{16}$`)
	initiatorNAA = regexp.MustCompile(`^naa.[[:alnum:]]{32}$`)
)

// iscsiName checks the name of a target or an initiator; prefix is the error for an invalid prefix.
func (f *errorList) iscsiName(p *fielderrors.Location, s, prefix string) {
	good := true
	switch {
	case strings.HasPrefix(s, "iqn"):
		good = initiatorIQN.MatchString(s)
	case strings.HasPrefix(s, "eui"):
		good = initiatorEUI.MatchString(s)
	case strings.HasPrefix(s, "naa"):
		good = initiatorNAA.MatchString(s)
	default:
		f.Invalid(p, s, prefix)
	}
	if !good {
		f.Invalid(p, s, "must be valid format")
	}
}

func (f *errorList) iscsi(from object.Value, p *fielderrors.Location, prefix string) {
	f.requiredText(p.To("targetPortal"), text(from, "targetPortal"))
	if name := text(from, "iqn"); name == "" {
		f.Required(p.To("iqn"), "")
	} else {
		f.iscsiName(p.To("iqn"), name, prefix)
	}
	f.within(p.To("lun"), number(from, "lun"), 0, 255)
	if (truth(from, "chapAuthDiscovery") || truth(from, "chapAuthSession")) && !has(from, "secretRef") {
		f.Required(p.To("secretRef"), "")
	}
	if initiator := from.At("initiatorName"); !initiator.IsNull() {
		f.iscsiName(p.To("initiatorname"), initiator.Str(), prefix)
	}
}

func (f *errorList) flocker(from object.Value, p *fielderrors.Location) {
	name, id := text(from, "datasetName"), text(from, "datasetUUID")
	if name == "" && id == "" {
		f.Required(p, "one of datasetName and datasetUUID is required")
	}
	if name != "" && id != "" {
		f.Invalid(p, "resource", "datasetName and datasetUUID can not be specified simultaneously")
	}
	if strings.Contains(name, "/") {
		f.Invalid(p.To("datasetName"), name, "must not contain '/'")
	}
}

func (f *errorList) quobyte(from object.Value, p *fielderrors.Location) {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	registry := text(from, "registry")
	switch {
	case registry == "":
		f.Required(p.To("registry"), pairs)
	case length(from, "tenant") >= 65:
		f.Required(p.To("tenant"), "must be a UUID and may not exceed a length of 64 characters")
	default:
		for pair := range strings.SplitSeq(registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				f.Invalid(p.To("registry"), registry, pairs)
			}
		}
	}
	f.requiredText(p.To("volume"), text(from, "volume"))
}

func (f *errorList) fibreChannel(from object.Value, p *fielderrors.Location) {
	targets, ids := from.At("targetWWNs"), from.At("wwids")
	if targets.Len() == 0 && ids.Len() == 0 {
		f.Required(p.To("targetWWNs"), "must specify either targetWWNs or wwids, but not both")
	}
	if targets.Len() != 0 && ids.Len() != 0 {
		f.Invalid(p.To("targetWWNs"), fielderrors.Show(targets),
			"targetWWNs and wwids can not be specified simultaneously")
	}
	if targets.Len() == 0 {
		return
	}
	if lun := from.At("lun"); lun.IsNull() {
		f.Required(p.To("lun"), "lun is required if targetWWNs is specified")
	} else {
		f.within(p.To("lun"), lun.Int(), 0, 255)
	}
}

func (f *errorList) flexVolume(from object.Value, p *fielderrors.Location) {
	f.requiredText(p.To("driver"), text(from, "driver"))
	for _, option := range from.At("options").Members() {
		namespace, _, _ := strings.Cut(option.Key, "/")
		domain := "." + strings.ToLower(namespace)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			f.Invalid(p.To("options").Key(option.Key), option.Key, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
}

var (
	cachingModes    = []string{"None", "ReadOnly", "ReadWrite"}
	azureDiskKinds  = []string{"Dedicated", "Managed", "Shared"}
	managedDiskURIs = []string{"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"}
	blobDiskURIs    = []string{"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"}
)

func (f *errorList) azureDisk(from object.Value, p *fielderrors.Location) {
	f.requiredText(p.To("diskName"), text(from, "diskName"))
	uri := text(from, "diskURI")
	f.requiredText(p.To("diskURI"), uri)
	f.onlyIfSet(p.To("cachingMode"), from.At("cachingMode"), cachingModes)
	kind := text(from, "kind")
	f.only(p.To("kind"), kind, azureDiskKinds)
	if kind == "Managed" && !strings.HasPrefix(uri, "/subscriptions/") {
		f.UnsupportedText(p.To("diskURI"), uri, managedDiskURIs)
	}
	if kind != "Managed" && !strings.HasPrefix(uri, "https://") {
		f.UnsupportedText(p.To("diskURI"), uri, blobDiskURIs)
	}
}

const maxDriverName = 63

func (f *errorList) csiDriverName(p *fielderrors.Location, name string) {
	if name == "" {
		f.Required(p, "")
		return
	}
	if len(name) > maxDriverName {
		f.TooLong(p, maxDriverName)
	}
	f.Each(p, name, objectmeta.SubdomainErrors(strings.ToLower(name)))
}
