package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"plinth/internal/configfile"
)

// admissionConfiguration is the AdmissionConfiguration of --admission-control-config-file.
type admissionConfiguration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Plugins    []struct {
		Name string `json:"name"`
		// Path is that of a file with the configuration of the plugin, relative to this file. Configuration is the
		// configuration itself, and precedes it.
		Path          string           `json:"path"`
		Configuration *json.RawMessage `json:"configuration"`
	} `json:"plugins"`
}

// LoadConfigurations reads the configurations of plugins, by name, from an AdmissionConfiguration. Of two of the same
// name the first one counts. Two plugins had a configuration before there was that kind; a file of theirs is taken as
// such.
func LoadConfigurations(file string) (map[string][]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("unable to read admission control configuration from %q [%w]", file, err)
	}
	var c admissionConfiguration
	lenient, err := configfile.Decode(text, "AdmissionConfiguration",
		[]string{"apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"}, &c)
	var other *configfile.KindError
	if errors.As(err, &other) && isLegacy(text) {
		return map[string][]byte{"ImagePolicyWebhook": text, "PodNodeSelector": text}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := configfile.Strict(lenient); err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	var errs []error
	for _, p := range c.Plugins {
		if _, again := all[p.Name]; again {
			continue
		}
		all[p.Name] = nil
		switch {
		case p.Configuration != nil:
			all[p.Name] = *p.Configuration
		case p.Path != "":
			path := p.Path
			if !filepath.IsAbs(path) {
				path = filepath.Join(filepath.Dir(file), path)
			}
			if all[p.Name], err = os.ReadFile(path); err != nil {
				errs = append(errs, fmt.Errorf("the configuration of admission plugin %s: %w", p.Name, err))
			}
		}
	}
	return all, errors.Join(errs...)
}

// isLegacy says whether a text is the configuration of one of the two plugins that had one of no kind.
func isLegacy(text []byte) bool {
	var members map[string]any
	_ = yaml.Unmarshal(text, &members) // a text that is no mapping has no kind, and another error than KindError
	_, images := members["imagePolicy"]
	_, selectors := members["podNodeSelectorPluginConfig"]
	return images || selectors
}
