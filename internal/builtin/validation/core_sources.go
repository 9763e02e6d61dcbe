package validation

import (
	"net"
	"path"
	"regexp"
	"strings"

	"plinth/object"
)

// This file has the rules for those volumes that a pod and a PersistentVolume can both be made of.

const maxPartition = 255

// requiredMembers are the texts that a kind of volume cannot be without. Where nothing else is checked, that is all.
var requiredMembers = map[string][]string{
	"azureFile":            {"secretName", "shareName"},
	"glusterfs":            {"endpoints", "path"},
	"photonPersistentDisk": {"pdID"},
	"portworxVolume":       {"volumeID"},
	"scaleIO":              {"gateway", "system", "volumeName"},
	"vsphereVolume":        {"volumePath"},
}

func (f *faults) sharedSource(kind string, from object.Value, p *place) {
	for _, key := range requiredMembers[kind] {
		f.requiredText(p.to(key), text(from, key))
	}
	switch kind {
	case "hostPath":
		f.hostPath(from, p)
	case "gcePersistentDisk":
		f.requiredText(p.to("pdName"), text(from, "pdName"))
		f.partition(from, p)
	case "awsElasticBlockStore":
		f.requiredText(p.to("volumeID"), text(from, "volumeID"))
		f.partition(from, p)
	case "nfs":
		f.requiredText(p.to("server"), text(from, "server"))
		f.requiredText(p.to("path"), text(from, "path"))
		if file := text(from, "path"); !path.IsAbs(file) {
			f.invalid(p.to("path"), file, "must be an absolute path")
		}
	case "iscsi":
		f.iscsi(from, p, "must be valid format starting with iqn, eui, or naa")
	case "flocker":
		f.flocker(from, p)
	case "rbd":
		f.requiredList(p.to("monitors"), from.At("monitors"))
		f.requiredText(p.to("image"), text(from, "image"))
	case "cephfs":
		f.requiredList(p.to("monitors"), from.At("monitors"))
	case "cinder":
		f.requiredText(p.to("volumeID"), text(from, "volumeID"))
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
		f.requiredLabel(p.to("volumeName"), text(from, "volumeName"))
		if namespace := text(from, "volumeNamespace"); namespace != "" {
			f.label(p.to("volumeNamespace"), namespace)
		}
		f.secretName(from, p)
	}
}

func (f *faults) requiredList(p *place, v object.Value) {
	if v.Len() == 0 {
		f.required(p, "")
	}
}

// secretName demands the name of a secret that is referred to.
func (f *faults) secretName(from object.Value, p *place) {
	if secret := from.At("secretRef"); !secret.IsNull() {
		f.requiredText(p.to("secretRef").to("name"), text(secret, "name"))
	}
}

func (f *faults) partition(from object.Value, p *place) {
	if n := number(from, "partition"); n < 0 || n > maxPartition {
		f.invalid(p.to("partition"), n, "must be between 1 and 255, inclusive")
	}
}

func (f *faults) hostPath(from object.Value, p *place) {
	file := text(from, "path")
	if file == "" {
		f.required(p.to("path"), "")
		return
	}
	f.noBacksteps(p.to("path"), file)
	f.onlyIfSet(p.to("type"), from.At("type"), hostPathTypes)
}

var (
	initiatorIQN = regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)
	initiatorEUI = regexp.MustCompile(`^eui.[[:alnum:]]{16}$`)
	initiatorNAA = regexp.MustCompile(`^naa.[[:alnum:]]{32}$`)
)

// iscsiName checks the name of a target or an initiator; prefix says what is wrong with the beginning of it.
func (f *faults) iscsiName(p *place, s, prefix string) {
	good := true
	switch {
	case strings.HasPrefix(s, "iqn"):
		good = initiatorIQN.MatchString(s)
	case strings.HasPrefix(s, "eui"):
		good = initiatorEUI.MatchString(s)
	case strings.HasPrefix(s, "naa"):
		good = initiatorNAA.MatchString(s)
	default:
		f.invalid(p, s, prefix)
	}
	if !good {
		f.invalid(p, s, "must be valid format")
	}
}

func (f *faults) iscsi(from object.Value, p *place, prefix string) {
	f.requiredText(p.to("targetPortal"), text(from, "targetPortal"))
	if name := text(from, "iqn"); name == "" {
		f.required(p.to("iqn"), "")
	} else {
		f.iscsiName(p.to("iqn"), name, prefix)
	}
	f.within(p.to("lun"), number(from, "lun"), 0, 255)
	if (truth(from, "chapAuthDiscovery") || truth(from, "chapAuthSession")) && !has(from, "secretRef") {
		f.required(p.to("secretRef"), "")
	}
	if initiator := from.At("initiatorName"); !initiator.IsNull() {
		f.iscsiName(p.to("initiatorname"), initiator.Str(), prefix)
	}
}

func (f *faults) flocker(from object.Value, p *place) {
	name, id := text(from, "datasetName"), text(from, "datasetUUID")
	if name == "" && id == "" {
		f.required(p, "one of datasetName and datasetUUID is required")
	}
	if name != "" && id != "" {
		f.invalid(p, "resource", "datasetName and datasetUUID can not be specified simultaneously")
	}
	if strings.Contains(name, "/") {
		f.invalid(p.to("datasetName"), name, "must not contain '/'")
	}
}

func (f *faults) quobyte(from object.Value, p *place) {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	registry := text(from, "registry")
	switch {
	case registry == "":
		f.required(p.to("registry"), pairs)
	case length(from, "tenant") >= 65:
		f.required(p.to("tenant"), "must be a UUID and may not exceed a length of 64 characters")
	default:
		for pair := range strings.SplitSeq(registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				f.invalid(p.to("registry"), registry, pairs)
			}
		}
	}
	f.requiredText(p.to("volume"), text(from, "volume"))
}

func (f *faults) fibreChannel(from object.Value, p *place) {
	targets, ids := from.At("targetWWNs"), from.At("wwids")
	if targets.Len() == 0 && ids.Len() == 0 {
		f.required(p.to("targetWWNs"), "must specify either targetWWNs or wwids, but not both")
	}
	if targets.Len() != 0 && ids.Len() != 0 {
		f.invalid(p.to("targetWWNs"), show(targets), "targetWWNs and wwids can not be specified simultaneously")
	}
	if targets.Len() == 0 {
		return
	}
	if lun := from.At("lun"); lun.IsNull() {
		f.required(p.to("lun"), "lun is required if targetWWNs is specified")
	} else {
		f.within(p.to("lun"), lun.Int(), 0, 255)
	}
}

func (f *faults) flexVolume(from object.Value, p *place) {
	f.requiredText(p.to("driver"), text(from, "driver"))
	for _, option := range from.At("options").Members() {
		namespace, _, _ := strings.Cut(option.Key, "/")
		domain := "." + strings.ToLower(namespace)
		if strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			f.invalid(p.to("options").key(option.Key), option.Key, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
}

var (
	cachingModes    = []string{"None", "ReadOnly", "ReadWrite"}
	azureDiskKinds  = []string{"Dedicated", "Managed", "Shared"}
	managedDiskURIs = []string{"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"}
	blobDiskURIs    = []string{"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"}
)

func (f *faults) azureDisk(from object.Value, p *place) {
	f.requiredText(p.to("diskName"), text(from, "diskName"))
	uri := text(from, "diskURI")
	f.requiredText(p.to("diskURI"), uri)
	f.onlyIfSet(p.to("cachingMode"), from.At("cachingMode"), cachingModes)
	kind := from.At("kind")
	f.onlyIfSet(p.to("kind"), kind, azureDiskKinds)
	switch {
	case kind.IsNull():
	case kind.Str() == "Managed":
		if !strings.HasPrefix(uri, "/subscriptions/") {
			f.unsupportedText(p.to("diskURI"), uri, managedDiskURIs)
		}
	case !strings.HasPrefix(uri, "https://"):
		f.unsupportedText(p.to("diskURI"), uri, blobDiskURIs)
	}
}

const maxDriverName = 63

func (f *faults) csiDriverName(p *place, name string) {
	if name == "" {
		f.required(p, "")
		return
	}
	if len(name) > maxDriverName {
		f.tooLong(p, maxDriverName)
	}
	f.each(p, name, subdomainFaults(strings.ToLower(name)))
}
