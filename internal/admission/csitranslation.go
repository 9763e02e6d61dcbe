package admission

import (
	"fmt"
	"net/url"
	"strings"

	"plinth/object"
)

// untranslatable is why a volume of the tree of Kubernetes cannot become one of a CSI driver; nil: it can. persistent
// is the PersistentVolume, null for a volume of a Pod.
func untranslatable(source, persistent object.Value) error {
	if disk := source.At("awsElasticBlockStore"); !disk.IsNull() {
		return checkDisk(disk.At("volumeID").Str())
	}
	if persistent.IsNull() {
		return nil
	}
	if share := source.At("azureFile"); !share.IsNull() {
		namespace := share.At("secretNamespace")
		if namespace.IsNull() {
			namespace = source.At("claimRef", "namespace")
		}
		if namespace.Str() == "" {
			return unknown("could not find a secret namespace in PersistentVolumeSource or ClaimRef")
		}
	}
	if !source.At("gcePersistentDisk").IsNull() {
		labels := persistent.At("metadata", "labels")
		zones := labels.At("failure-domain.beta.kubernetes.io/zone").Str()
		if zones == "" {
			zones = labels.At("topology.kubernetes.io/zone").Str()
		}
		return checkZones(zones)
	}
	return nil
}

// checkDisk checks the ID of an EBS volume: any text, or aws://zone/vol-ID.
func checkDisk(id string) error {
	if !strings.HasPrefix(id, "aws://") {
		return nil
	}
	const failed = "failed to translate Kubernetes ID to EBS Volume ID "
	parsed, err := url.Parse(id)
	if err != nil {
		return unknown(fmt.Sprintf(failed+"Invalid disk name (%s): %v", id, err))
	}
	if name, ok := strings.CutPrefix(strings.Trim(parsed.Path, "/"), "vol-"); !ok || strings.Contains(name, "/") {
		return unknown(fmt.Sprintf(failed+"Invalid format for AWS volume (%s)", id))
	}
	return nil
}

// checkZones checks that several zones of a disk of GCE, joined by "__", are in one region.
func checkZones(label string) error {
	zones := strings.Split(label, "__")
	if len(zones) == 1 {
		return nil
	}
	const failed = "failed to get region from zones: "
	regions := map[string]struct{}{} // printed in the message
	for _, zone := range zones {
		parts := strings.Split(zone, "-")
		if len(parts) != 3 {
			return unknown(failed + "zone in unexpected format, expected: {locale}-{region}-{zone}, got: " + zone)
		}
		regions[parts[0]+"-"+parts[1]] = struct{}{}
	}
	if len(regions) != 1 {
		return unknown(fmt.Sprintf(failed+"multiple or no regions gotten from zones, got: %v", regions))
	}
	return nil
}
