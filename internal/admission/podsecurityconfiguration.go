package admission

import (
	"fmt"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
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
	return c, nil
}

// securityMode is the level and version of one mode.
type securityMode struct {
	name           string
	level, version *string
}

func (c *podSecurityConfiguration) modes() []securityMode {
	d := &c.Defaults
	return []securityMode{{"enforce", &d.Enforce, &d.EnforceVersion}, {"audit", &d.Audit, &d.AuditVersion},
		{"warn", &d.Warn, &d.WarnVersion}}
}

// policy is the levels of namespaces whose labels say nothing.
func (c *podSecurityConfiguration) policy() (p api.Policy, err error) {
	var errs []error
	for i, to := range []*api.LevelVersion{&p.Enforce, &p.Audit, &p.Warn} {
		mode := c.modes()[i]
		if to.Level, err = api.ParseLevel(*mode.level); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", mode.name, err))
		}
		if to.Version, err = api.ParseVersion(*mode.version); err != nil {
			errs = append(errs, fmt.Errorf("%s-version: %w", mode.name, err))
		}
	}
	if err = utilerrors.NewAggregate(errs); err != nil {
		return p, fmt.Errorf("PodSecurity configuration error: %w", err)
	}
	return p, nil
}

// validate returns what is wrong with the exemptions, as the reference says it.
func (c *podSecurityConfiguration) validate() error {
	var errs field.ErrorList
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
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("PodSecurity invalid: %w", errs.ToAggregate())
}

func notEmpty(name string) []string {
	if name == "" {
		return []string{"username must not be empty"}
	}
	return nil
}
