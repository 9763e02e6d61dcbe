package object

import (
	"strings"

	"sigs.k8s.io/yaml"
)

// ParseYAML reads one YAML document the way Kubernetes does: as YAML 1.1, turned into JSON first. Aliases are expanded
// within the bounds that the YAML library sets, so that a small body cannot become a huge value (WRITE-6).
func ParseYAML(data []byte) (Parsed, error) {
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return Parsed{}, err
	}
	parsed, err := ParseJSON(text)
	if err != nil {
		return Parsed{}, err
	}
	if _, err := yaml.YAMLToJSONStrict(data); err != nil {
		parsed.Duplicates = yamlDuplicates(err)
	}
	return parsed, nil
}

// yamlDuplicates takes the lines about keys that are already set out of the YAML library's error.
func yamlDuplicates(err error) []string {
	var found []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); IsYAMLDuplicate(line) && len(found) < maxDuplicates {
			found = append(found, line)
		}
	}
	return found
}

// IsYAMLDuplicate says whether an entry of Parsed.Duplicates is a line of the YAML parser, and not a path.
func IsYAMLDuplicate(entry string) bool { return strings.HasSuffix(entry, "already set in map") }

// YAML turns JSON text, which this package has printed, into YAML with sorted keys.
func YAML(json []byte) ([]byte, error) { return yaml.JSONToYAML(json) }
