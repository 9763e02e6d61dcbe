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
		if words := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "); strings.Contains(words, "already set in map") {
			parsed.Duplicates = []string{words}
		}
	}
	return parsed, nil
}

// YAML turns JSON text, which this package has printed, into YAML with sorted keys.
func YAML(json []byte) ([]byte, error) { return yaml.JSONToYAML(json) }
