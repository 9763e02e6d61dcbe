package admission

import (
	"context"
	"fmt"
	"strings"

	"plinth/internal/admission/hooks"
	"plinth/internal/admission/policies"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

// policyPlugin says how the two plugins for policies differ.
type policyPlugin struct {
	name, policies, bindings string
	mutating                 bool
	metrics                  func(*Metrics) policies.Metrics
}

var (
	validatingPolicies = policyPlugin{"ValidatingAdmissionPolicy", "validatingadmissionpolicies",
		"validatingadmissionpolicybindings", false, func(m *Metrics) policies.Metrics { return m.Validating }}
	mutatingPolicies = policyPlugin{"MutatingAdmissionPolicy", "mutatingadmissionpolicies",
		"mutatingadmissionpolicybindings", true, func(m *Metrics) policies.Metrics { return m.Mutating }}
)

// policyConfiguration is the configuration of a plugin for policies.
type policyConfiguration struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	StaticManifestsDir string `json:"staticManifestsDir"`
}

// new makes the plugin.
func (of policyPlugin) new(c *Config) (steps, error) {
	var settings policyConfiguration
	if text := c.Configurations[of.name]; len(text) > 0 {
		err := parseConfiguration(text, of.name+"Configuration", []string{"apiserver.config.k8s.io/v1"}, &settings)
		if err != nil {
			return steps{}, err
		}
	}
	if settings.StaticManifestsDir != "" {
		err := checkManifestsDir(settings.StaticManifestsDir, c.Features.On(features.ManifestBasedAdmissionControlConfig))
		if err != nil {
			return steps{}, err
		}
	}
	kind := c.objects.resource(kindOf{hooks.Group, "v1", of.policies})
	by := c.objects.resource(kindOf{hooks.Group, "v1", of.bindings})
	if kind == nil || by == nil || of.mutating && !c.Features.On(features.MutatingAdmissionPolicy) {
		return steps{}, nil
	}
	p := policies.New(policies.Config{
		Policies: c.Store.Collection(kind.Stored.Path), Bindings: c.Store.Collection(by.Stored.Path),
		Types: c.Registry.Now,
		Namespace: func(ctx context.Context, name string) (object.Value, error) {
			return c.objects.get(ctx, kindOf{"", "v1", "namespaces"}, "", name)
		},
		Objects: c.objects, Cache: c.Expressions, Metrics: of.metrics(&c.Metrics),
	})
	if settings.StaticManifestsDir != "" {
		err := c.loadManifests(&manifests{
			plugin: of.name, dir: settings.StaticManifestsDir, kinds: []*engine.Resource{kind, by},
			check: checkStaticPolicy, whole: checkStaticPolicies,
			apply: func(all [][]object.Value) { p.SetStatic(all[0], all[1]) },
		})
		if err != nil {
			return steps{}, err
		}
	}
	if of.mutating {
		return steps{admitInPasses: p.Admit, ready: p.Ready}, nil
	}
	return steps{validate: p.Validate, ready: p.Ready}, nil
}

// checkStaticPolicy demands that a policy or a binding in a file has no params, and that a binding is of a policy in a
// file.
func checkStaticPolicy(kind, _ string, obj object.Value) error {
	name, spec := obj.At("metadata", "name").Str(), obj.At("spec")
	if !strings.HasSuffix(kind, "Binding") {
		if !spec.At("paramKind").IsNull() {
			return fmt.Errorf("%s %q: spec.paramKind is not supported for static manifests", kind, name)
		}
		return nil
	}
	switch policy := spec.At("policyName").Str(); {
	case !strings.HasSuffix(policy, staticSuffix):
		return fmt.Errorf("binding %q: spec.policyName %q must end with %q", name, policy, staticSuffix)
	case !spec.At("paramRef").IsNull():
		return fmt.Errorf("binding %q: spec.paramRef is not supported for static manifests", name)
	}
	return nil
}

// checkStaticPolicies demands that each binding is of a policy that is there.
func checkStaticPolicies(all [][]object.Value) error {
	present := map[string]bool{}
	for _, policy := range all[0] {
		present[policy.At("metadata", "name").Str()] = true
	}
	for _, binding := range all[1] {
		if policy := binding.At("spec", "policyName").Str(); !present[policy] {
			return fmt.Errorf("binding %q references policy %q which does not exist in the manifest directory",
				binding.At("metadata", "name").Str(), policy)
		}
	}
	return nil
}
