package builtin

import (
	"slices"

	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/features"
	"plinth/object"
)

func scheduling(c Config) group {
	preempts := c.Features.On(features.PodGroupPreemptionPolicy)
	podGroup := func(obj object.Value) object.Value { return defaults.PodGroup(obj, preempts) }
	return group{"scheduling.k8s.io", []kind{
		{
			name: "compositepodgroups", kind: "CompositePodGroup",
			gates: []features.Gate{features.CompositePodGroup},
			versions: []version{
				of[schedulingv1alpha3.CompositePodGroup, schedulingv1alpha3.CompositePodGroupList](),
			},
			defaults: podGroup, rules: validation.CompositePodGroup,
			untouched:   statusAlone,
			conditional: true, status: statusOnly, plainStatus: true,
			gated: []gated{below("spec", behind(features.PodGroupPreemptionPolicy, "preemptionPolicy"))},
			table: columns.CompositePodGroups,
		},
		{
			name: "podgroups", kind: "PodGroup",
			gates: []features.Gate{features.GenericWorkload},
			versions: []version{
				of[schedulingv1beta1.PodGroup, schedulingv1beta1.PodGroupList](),
				of[schedulingv1alpha3.PodGroup, schedulingv1alpha3.PodGroupList](),
			},
			defaults: podGroup, rules: validation.PodGroup,
			untouched:   statusAlone,
			conditional: true, status: statusOnly, plainStatus: true, onStatus: c.dropClaimStatuses,
			gated: []gated{below("spec",
				behind(features.CompositePodGroup, "parentCompositePodGroupName"),
				behind(features.TopologyAwareWorkloadScheduling, "schedulingConstraints"),
				behind(features.DRAWorkloadResourceClaims, "resourceClaims"),
				behind(features.PodGroupPreemptionPolicy, "preemptionPolicy"),
			)},
			table: columns.PodGroups,
		},
		{
			name: "priorityclasses", kind: "PriorityClass", short: "pc",
			versions: []version{of[schedulingv1.PriorityClass, schedulingv1.PriorityClassList]()},
			defaults: defaults.PriorityClass, rules: validation.PriorityClass,
			cluster:    true,
			generation: once, table: columns.PriorityClasses,
		},
		{
			name: "workloads", kind: "Workload",
			gates: []features.Gate{features.GenericWorkload},
			versions: []version{
				of[schedulingv1beta1.Workload, schedulingv1beta1.WorkloadList](),
				of[schedulingv1alpha3.Workload, schedulingv1alpha3.WorkloadList](),
			},
			rules:       validation.Workload,
			conditional: true,
			onCreate:    func(obj object.Value) object.Value { return c.dropFromWorkload(obj, object.Nil) },
			onUpdate:    c.dropFromWorkload,
			table:       columns.Workloads,
		},
	}}
}

// dropClaimStatuses drops the generated names of ResourceClaims from the status of a PodGroup while the gate of the
// claims is off, unless the group has claims from the time when it was on.
func (c Config) dropClaimStatuses(obj, old object.Value) object.Value {
	if c.Features.On(features.DRAWorkloadResourceClaims) || old.At("spec", "resourceClaims").Len() > 0 {
		return obj
	}
	return obj.WithoutAt("status", "resourceClaimStatuses")
}

// The members of a Workload that have templates in them.
const (
	groupTemplates     = "podGroupTemplates"
	compositeTemplates = "compositePodGroupTemplates"
)

// dropFromWorkload drops the fields of a Workload whose gates are off and that old has not in the same template. Since
// templates are nested in templates, these are no paths (gated).
func (c Config) dropFromWorkload(obj, old object.Value) object.Value {
	return withPart(obj, "spec", c.dropFromTemplates(obj.At("spec"), old.At("spec")))
}

// dropFromTemplates drops them from what holds templates: a spec, or a composite template. The templates of PodGroups
// in a spec (and those in a template) correspond to those of the old object by their position, composite ones by name.
func (c Config) dropFromTemplates(of, old object.Value) object.Value {
	if !c.Features.On(features.CompositePodGroup) && old.At(compositeTemplates).Len() == 0 {
		of = of.Without(compositeTemplates)
	}
	before := map[string]object.Value{}
	for _, template := range old.At(compositeTemplates).Items() {
		before[template.At("name").Str()] = template // of several, the last one
	}
	of = withItems(of, compositeTemplates, func(_ int, template object.Value) object.Value {
		previous := before[template.At("name").Str()]
		template = c.dropMembers(template, previous, behind(features.PodGroupPreemptionPolicy, "preemptionPolicy"))
		return c.dropFromTemplates(template, previous)
	})
	were := old.At(groupTemplates).Items()
	return withItems(of, groupTemplates, func(i int, template object.Value) object.Value {
		previous := object.Nil
		if i < len(were) {
			previous = were[i]
		}
		if !c.Features.On(features.TopologyAwareWorkloadScheduling) && previous.At("schedulingConstraints").IsNull() {
			template = template.With("schedulingConstraints", object.Nil) // always written
		}
		return c.dropMembers(template, previous,
			behind(features.DRAWorkloadResourceClaims, "resourceClaims"),
			behind(features.PodGroupPreemptionPolicy, "preemptionPolicy"))
	})
}

// withItems changes each item of a list, if there is one.
func withItems(of object.Value, key string, change func(i int, item object.Value) object.Value) object.Value {
	list := of.At(key)
	if list.IsNull() {
		return of
	}
	items := slices.Clone(list.Items())
	for i, item := range items {
		items[i] = change(i, item)
	}
	return of.With(key, object.ListOf(items...))
}

// dropMembers drops the members of features that are off and that old has not.
func (c Config) dropMembers(of, old object.Value, all ...feature) object.Value {
	for _, f := range all {
		if c.Features.On(f.gate) {
			continue
		}
		for _, key := range f.fields {
			if old.At(key).IsNull() {
				of = of.Without(key)
			}
		}
	}
	return of
}

// withPart sets a member that is not null.
func withPart(of object.Value, key string, part object.Value) object.Value {
	if part.IsNull() {
		return of
	}
	return of.With(key, part)
}
