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
		if line = strings.TrimSpace(line); strings.HasSuffix(line, "already set in map") && len(found) < maxDuplicates {
			found = append(found, line)
		}
	}
	return found
}

// YAML turns JSON text, which this package has printed, into YAML with sorted keys.
func YAML(json []byte) ([]byte, error) { return yaml.JSONToYAML(json) }
