package builtin

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plinth/internal/engine"
	"plinth/internal/features"
)

// RuntimeConfig says which versions of the API are served, by the flags of these names.
type RuntimeConfig struct {
	Pairs []string // --runtime-config: "GROUP/VERSION=true", "api/beta=false"
	// EmulationForward serves versions of resources that a later release than the emulated one has brought if a lower
	// version is served, and Forward those that Pairs name.
	EmulationForward, Forward bool
}

// askedVersions are the parsed pairs: whether a key is on.
type askedVersions map[string]bool

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

// Validate calls refuse with each error of the configuration.
func (c *RuntimeConfig) Validate(refuse func(format string, args ...any)) {
	if _, err := c.parse(); err != nil {
		refuse("%w", err)
	}
}

// parse parses the pairs, and returns errors as the reference does.
func (c *RuntimeConfig) parse() (askedVersions, error) {
	asked := askedVersions{}
	for _, pair := range c.Pairs {
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
func (asked askedVersions) wants(group, version, resource string, byDefault bool) bool {
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

// Types returns the built-in types, of which those are served that the flags say. It logs versions that
// --runtime-config names but that are not there.
func (c *RuntimeConfig) Types(types Config, logger *slog.Logger) (*Types, error) {
	asked, err := c.parse()
	if err != nil || len(asked) == 0 && !c.EmulationForward {
		return New(types), err
	}
	present, later := map[string]bool{}, map[string]bool{}
	var tooNew error
	types.Later = func(group, version, resource string, since features.Release, lower bool) bool {
		wanted := asked.wants(group, version, resource, !strings.Contains(version, "beta"))
		if alpha := strings.Contains(version, "alpha"); c.EmulationForward && lower && !alpha && wanted {
			return true
		}
		later[group+"/"+version] = true
		ofResource := asked[group+"/"+version+"/"+resource]
		if c.Forward && (ofResource || asked[group+"/"+version]) {
			present[group+"/"+version], present[group+"/"+version+"/"+resource] = true, true
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
		if key := group + "/" + version; !present[key] {
			present[key] = true
			for _, s := range selectors {
				present[s.key] = present[s.key] || s.version.MatchString(version)
			}
		}
		present[group+"/"+version+"/"+resource] = true
		return wanted
	}
	made := New(types)
	if tooNew != nil {
		return nil, tooNew
	}
	for key, on := range asked {
		// As the reference, not if a later release has only some of the types of the version.
		if on && later[key] && !present[key] {
			return nil, fmt.Errorf("cannot enable version %s in runtime-config because all the resources have been introduced "+
				"after the current version %s. Consider setting --runtime-config-emulation-forward-compatible=true", key,
				types.Versions.Emulated)
		}
	}
	needed := func(r *engine.Resource) bool { return r.Group == "" && r.Name == "namespaces" }
	if !slices.ContainsFunc(made.served, needed) {
		return nil, fmt.Errorf("--runtime-config: nothing works without the namespaces of v1")
	}
	var missing []string
	for key, on := range asked {
		if on && !present[key] {
			missing = append(missing, strings.TrimPrefix(key, "/"))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		logger.Warn("versions of the API that --runtime-config asks for are not here", "versions", missing)
	}
	return made, nil
}
