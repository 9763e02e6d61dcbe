package admission

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
)

// podSecurityConfiguration is the configuration of the plugin PodSecurity.
type podSecurityConfiguration struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"`
	Defaults   podSecurityDefaults   `json:"defaults"`
	Exemptions podSecurityExemptions `json:"exemptions"`
}

// podSecurityDefaults are the levels of namespaces whose labels say nothing.
type podSecurityDefaults struct {
	Enforce        string `json:"enforce"`
	EnforceVersion string `json:"enforce-version"`
	Audit          string `json:"audit"`
	AuditVersion   string `json:"audit-version"`
	Warn           string `json:"warn"`
	WarnVersion    string `json:"warn-version"`
}

// podSecurityExemptions are the Pods for which nothing is demanded.
type podSecurityExemptions struct {
	Usernames      []string `json:"usernames"`
	Namespaces     []string `json:"namespaces"`
	RuntimeClasses []string `json:"runtimeClasses"`
}

// readPodSecurity reads the configuration; empty text is the default one, with which nothing is demanded.
func readPodSecurity(text []byte) (*podSecurityConfiguration, error) {
	c := &podSecurityConfiguration{}
	if len(text) > 0 {
		const group = "pod-security.admission.config.k8s.io/"
		if err := parseConfiguration(text, "PodSecurityConfiguration",
			[]string{group + "v1", group + "v1beta1", group + "v1alpha1"}, c); err != nil {
			return nil, err
		}
	}
	for _, mode := range c.modes() {
		if *mode.level == "" {
			*mode.level = string(api.LevelPrivileged)
		}
		if *mode.version == "" {
			*mode.version = api.LatestVersion().String()
		}
	}
	return c, c.validate().ToAggregate()
}

// securityMode is the level and version of one mode.
type securityMode struct {
	name           string
	level, version *string
}

func (c *podSecurityConfiguration) modes() []securityMode {
	d := &c.Defaults
	return []securityMode{{"enforce", &d.Enforce, &d.EnforceVersion}, {"warn", &d.Warn, &d.WarnVersion},
		{"audit", &d.Audit, &d.AuditVersion}}
}

// validate returns what is wrong with the configuration, as the reference says it.
func (c *podSecurityConfiguration) validate() (errs field.ErrorList) {
	for _, mode := range c.modes() {
		if _, err := api.ParseLevel(*mode.level); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("defaults", mode.name), *mode.level, err.Error()))
		}
		if _, err := api.ParseVersion(*mode.version); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("defaults", mode.name+"-version"), *mode.version, err.Error()))
		}
	}
	for _, list := range []struct {
		name  string
		items []string
		check func(string) []string
	}{
		{"namespaces", c.Exemptions.Namespaces, validation.IsDNS1123Label},
		{"runtimeClasses", c.Exemptions.RuntimeClasses, validation.IsDNS1123Subdomain},
		{"usernames", c.Exemptions.Usernames, notEmpty},
	} {
		seen := map[string]bool{}
		for i, item := range list.items {
			path := field.NewPath("exemptions", list.name).Index(i)
			if wrong := list.check(item); len(wrong) > 0 {
				errs = append(errs, field.Invalid(path, item, strings.Join(wrong, ", ")))
			} else if seen[item] {
				errs = append(errs, field.Duplicate(path, item))
			}
			seen[item] = true
		}
	}
	return errs
}

func notEmpty(name string) []string {
	if name == "" {
		return []string{"username must not be empty"}
	}
	return nil
}

// policy is the levels of namespaces whose labels say nothing. The configuration is valid.
func (c *podSecurityConfiguration) policy() (p api.Policy) {
	for i, to := range []*api.LevelVersion{&p.Enforce, &p.Warn, &p.Audit} {
		mode := c.modes()[i]
		to.Level, _ = api.ParseLevel(*mode.level)
		to.Version, _ = api.ParseVersion(*mode.version)
	}
	return p
}
