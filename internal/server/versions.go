package server

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/features"
)

// runtimeConfig is the parsed --runtime-config: whether a key is on.
type runtimeConfig map[string]bool

// selectors are the keys that select many versions. They are applied in this order, so a later one takes precedence.
var selectors = []struct {
	key     string
	version *regexp.Regexp
}{
	{"api/all", regexp.MustCompile(``)},
	{"api/ga", regexp.MustCompile(`^v\d+$`)},
	{"api/beta", regexp.MustCompile(`^v\d+beta\d+$`)},
	{"api/alpha", regexp.MustCompile(`^v\d+alpha\d+$`)},
}

// versions parses --runtime-config, and returns errors as the reference does.
func (c *Config) versions() (runtimeConfig, error) {
	asked := runtimeConfig{}
	for _, pair := range c.RuntimeConfig {
		key, value, _ := strings.Cut(pair, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		on := true
		if value != "" {
			var err error
			if on, err = strconv.ParseBool(value); err != nil {
				return nil, fmt.Errorf("--runtime-config: the value of %s is %q, neither true nor false", key, value)
			}
		}
		if key == "v1" { // short for the core group
			key = "/v1"
		}
		parts := strings.Split(key, "/")
		if len(parts) != 2 && len(parts) != 3 || slices.Contains(parts[1:], "") {
			return nil, fmt.Errorf("--runtime-config: %q is neither GROUP/VERSION nor GROUP/VERSION/RESOURCE", key)
		}
		asked[strings.Join(parts, "/")] = on
	}
	return asked, nil
}

// wants says whether a type is to be served. The type's key decides, else the key of its version, else the last
// selector that matches, else whether it is on by default.
func (asked runtimeConfig) wants(group, version, resource string, byDefault bool) bool {
	for _, key := range []string{group + "/" + version + "/" + resource, group + "/" + version} {
		if on, ok := asked[key]; ok {
			return on
		}
	}
	wanted := byDefault
	for _, s := range selectors {
		if on, ok := asked[s.key]; ok && s.version.MatchString(version) {
			wanted = on
		}
	}
	return wanted
}

// enabled returns the built-in types that --runtime-config leaves or turns on. It logs versions that the flag names but
// that are not there.
func (c *Config) enabled(types builtin.Config) ([]*engine.Resource, error) {
	asked, err := c.versions()
	if err != nil || len(asked) == 0 && !c.EmulationForward {
		return builtin.Resources(types), err
	}
	there, later := map[string]bool{}, map[string]bool{}
	var tooNew error
	types.Later = func(group, version, resource string, since features.Release, lower bool) bool {
		wanted := asked.wants(group, version, resource, !strings.Contains(version, "beta"))
		if alpha := strings.Contains(version, "alpha"); c.EmulationForward && lower && !alpha && wanted {
			return true
		}
		later[group+"/"+version] = true
		ofResource := asked[group+"/"+version+"/"+resource]
		if c.RuntimeConfigForward && (ofResource || asked[group+"/"+version]) {
			there[group+"/"+version], there[group+"/"+version+"/"+resource] = true, true
			return wanted
		}
		if ofResource && tooNew == nil {
			tooNew = fmt.Errorf("cannot enable resource %s/%s, Resource=%s in runtime-config because it is introduced at %s "+
				"after the current version %s. Consider setting --runtime-config-emulation-forward-compatible=true", group,
				version, resource, since, types.Versions.Emulated)
		}
		return false
	}
	types.Serves = func(group, version, resource string, byDefault bool) bool {
		wanted := asked.wants(group, version, resource, byDefault)
		if key := group + "/" + version; !there[key] {
			there[key] = true
			for _, s := range selectors {
				there[s.key] = there[s.key] || s.version.MatchString(version)
			}
		}
		there[group+"/"+version+"/"+resource] = true
		return wanted
	}
	served := builtin.Resources(types)
	if tooNew != nil {
		return nil, tooNew
	}
	for key, on := range asked {
		// As the reference, not if a later release has only some of the types of the version.
		if on && later[key] && !there[key] {
			return nil, fmt.Errorf("cannot enable version %s in runtime-config because all the resources have been introduced "+
				"after the current version %s. Consider setting --runtime-config-emulation-forward-compatible=true", key,
				types.Versions.Emulated)
		}
	}
	if !slices.ContainsFunc(served, func(r *engine.Resource) bool { return r.Group == "" && r.Name == "namespaces" }) {
		return nil, fmt.Errorf("--runtime-config: nothing works without the namespaces of v1")
	}
	var missing []string
	for key, on := range asked {
		if on && !there[key] {
			missing = append(missing, strings.TrimPrefix(key, "/"))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		c.Logger.Warn("versions of the API that --runtime-config asks for are not here", "versions", missing)
	}
	return served, nil
}
