package builtin

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
)

// The rules for names. With prefix set, name is a generateName.

// subdomain is the rule of most kinds.
func subdomain(name string, prefix bool) []string {
	if plainLabel(name) {
		return nil
	}
	return apivalidation.NameIsDNSSubdomain(name, prefix)
}

// wholeSubdomain is the rule of DeviceClasses: a generateName is not validated.
func wholeSubdomain(name string, prefix bool) []string {
	if prefix {
		return nil
	}
	return subdomain(name, false)
}

// label is the rule of kinds whose names become labels of host names.
func label(name string, prefix bool) []string {
	if plainLabel(name) {
		return nil
	}
	return apivalidation.NameIsDNSLabel(name, prefix)
}

// oldLabel is the rule of Services in older releases: the first character is a letter.
func oldLabel(name string, prefix bool) []string {
	return apivalidation.NameIsDNS1035Label(name, prefix)
}

// segment is the rule of kinds whose names need only be valid segments of a URL.
func segment(name string, prefix bool) []string { return content.IsPathSegmentName(name) }

// configKey is the rule of LeaseCandidates: that of a key of a ConfigMap.
func configKey(name string, prefix bool) []string { return utilvalidation.IsConfigMapKey(name) }

// groupResource is the rule of StorageVersions, which are named after what they describe: GROUP.RESOURCE.
func groupResource(name string, prefix bool) []string {
	at := strings.LastIndexByte(name, '.')
	if at < 0 {
		return []string{"name must be in the form of <group>.<resource>"}
	}
	var wrong []string
	for _, fault := range utilvalidation.IsDNS1123Subdomain(name[:at]) {
		wrong = append(wrong, "the group segment "+fault)
	}
	for _, fault := range utilvalidation.IsDNS1035Label(name[at+1:]) {
		wrong = append(wrong, "the resource segment "+fault)
	}
	return wrong
}

// address is the rule of IPAddresses, whose name is the address in its canonical form.
func address(name string, prefix bool) []string {
	var wrong []string
	for _, fault := range utilvalidation.IsValidIP(nil, name) {
		wrong = append(wrong, fault.Detail)
	}
	return wrong
}

// plainLabel is a fast check that a name is a DNS label, which nearly all names are. It may be false for a valid name
// or prefix, which is then checked in full.
func plainLabel(name string) bool {
	if len(name) == 0 || len(name) > utilvalidation.DNS1123LabelMaxLength || name[0] == '-' ||
		name[len(name)-1] == '-' {
		return false
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-') {
			return false
		}
	}
	return true
}
