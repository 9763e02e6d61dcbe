package warnings

import (
	"fmt"
	"strings"

	"plinth/object"
)

// gonePlugins are the kinds of volumes that are no longer supported, in the reference's order. Among them is ephemeral,
// whose claim is checked at this place.
var gonePlugins = [...]struct{ member, shown, since string }{
	{"photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
	{"gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"},
	{"scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
	{"flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"},
	{"storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"},
	{"quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"},
	{"glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
	{"ephemeral", "ephemeral", ""},
	{"cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"},
	{"rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"},
}

func podVolumes(prefix string, volumes object.Value) (warnings []string) {
	for i, v := range volumes.Items() {
		for _, p := range gonePlugins {
			source := v.At(p.member)
			if source.IsNull() {
				continue
			}
			path := fmt.Sprintf("%sspec.volumes[%d].%s", prefix, i, p.shown)
			if p.since == "" {
				warnings = append(warnings, claimSpec(path+".volumeClaimTemplate.spec",
					source.At("volumeClaimTemplate", "spec"))...)
			} else {
				warnings = append(warnings, path+": "+p.since)
			}
		}
	}
	for _, v := range volumes.Items() {
		warnings = append(warnings, overlaps(v)...)
	}
	return warnings
}

// file is one path in a volume, and its source.
type file struct{ path, source string }

func (f file) String() string {
	if f.source == "" {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

func files(items object.Value, source string) (all []file) {
	for _, item := range items.Items() {
		all = append(all, file{item.At("path").Str(), source})
	}
	return all
}

// overlaps warns of files in one volume of which one replaces another, or has the path of a directory that another one
// needs.
func overlaps(v object.Value) (warnings []string) {
	warn := func(what, text string) {
		warnings = append(warnings, fmt.Sprintf("volume %q (%s): overlapping paths: %s", v.At("name").Str(), what,
			text))
	}
	for _, source := range [...]struct{ member, what, name string }{
		{"configMap", "ConfigMap", "name"}, {"secret", "Secret", "secretName"}, {"downwardAPI", "DownwardAPI", ""},
	} {
		content := v.At(source.member)
		var before []file
		collide(&before, files(content.At("items"), ""), func(text string) {
			what := source.what
			if source.name != "" {
				what = fmt.Sprintf("%s %q", what, content.At(source.name).Str())
			}
			warn(what, text)
		})
	}
	var before []file
	for _, source := range v.At("projected", "sources").Items() {
		if source.Len() == 0 {
			warnings = append(warnings, fmt.Sprintf("volume %q (Projected) has no sources provided",
				v.At("name").Str()))
			continue
		}
		collide(&before, projected(source), func(text string) { warn("Projected", text) })
	}
	return warnings
}

// collide compares new files with earlier ones, and adds them to these.
func collide(before *[]file, files []file, found func(text string)) {
	for _, f := range files {
		f.path = strings.TrimRight(f.path, "/")
		for _, o := range *before {
			if f.path != "" && o.path != "" && (within(o.path, f.path) || within(f.path, o.path)) {
				found(fmt.Sprintf("%s with %s", f, o))
			}
		}
		*before = append(*before, f)
	}
}

// within says whether a path is that of a file or directory, or below it.
func within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && (rest == "" || rest[0] == '/')
}

// projected returns the files of one source of a projected volume.
func projected(source object.Value) []file {
	configMap, secret, downward := source.At("configMap"), source.At("secret"), source.At("downwardAPI")
	token, bundle := source.At("serviceAccountToken"), source.At("clusterTrustBundle")
	switch {
	case !configMap.At("items").IsNull():
		return files(configMap.At("items"), fmt.Sprintf("ConfigMap %q", configMap.At("name").Str()))
	case !secret.At("items").IsNull():
		return files(secret.At("items"), fmt.Sprintf("Secret %q", secret.At("name").Str()))
	case !downward.At("items").IsNull():
		return files(downward.At("items"), "DownwardAPI")
	case !token.IsNull():
		return []file{{token.At("path").Str(), "ServiceAccountToken"}}
	case !bundle.IsNull():
		name := bundle.At("name")
		if name.IsNull() {
			name = bundle.At("signerName")
		}
		return []file{{bundle.At("path").Str(), fmt.Sprintf("ClusterTrustBundle %q", name.Str())}}
	}
	var all []file
	for _, part := range [...][2]string{
		{"certificateChainPath", "PodCertificate chain"},
		{"keyPath", "PodCertificate key"},
		{"credentialBundlePath", "PodCertificate credential bundle"},
	} {
		all = append(all, file{source.At("podCertificate", part[0]).Str(), part[1]})
	}
	return all
}
