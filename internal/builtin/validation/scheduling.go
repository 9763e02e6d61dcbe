package validation

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"plinth/internal/features"
	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// This file has the rules of Workloads, PodGroups and CompositePodGroups. Those of single fields are generated in the
// reference: an update checks what it has changed alone (revised).

const (
	maxGroupTemplates = 8
	maxGroupClaims    = 4
	maxTopology       = 1
	maxTemplateDepth  = 4
)

var (
	schedulingWays = []string{"basic", "gang"}
	groupModes     = []string{"single", "all"}
	groupClaims    = []string{"resourceClaimName", "resourceClaimTemplateName"}
	templateChoice = []string{"podGroupTemplates", "compositePodGroupTemplates"}

	groupPreemption = []string{"Never", "PreemptLowerPriority"}
)

func podGroupCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	spec, p := obj.At("spec"), (*fielderrors.Location)(nil).To("spec")
	if has(spec, "parentCompositePodGroupName") && !has(spec, "workloadRef") {
		f.Required(p.To("workloadRef"), "must be set when parentCompositePodGroupName is set")
	}
	f.podGroupSpec(created(spec), p)
}

func podGroupUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.podGroupSpec(changedFrom(obj.At("spec"), old.At("spec")), (*fielderrors.Location)(nil).To("spec"))
}

func podGroupStatus(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	status, p := obj.At("status"), (*fielderrors.Location)(nil).To("status")
	f.conditions(status.At("conditions"), p.To("conditions"))
	claims, at := status.At("resourceClaimStatuses"), p.To("resourceClaimStatuses")
	for i, claim := range claims.Items() {
		name := text(claim, "name")
		if !slices.ContainsFunc(obj.At("spec", "resourceClaims").Items(),
			func(c object.Value) bool { return text(c, "name") == name }) {
			f.Invalid(at.Item(i).To("name"), name, "must match the name of an entry in `spec.resourceClaims`")
		}
	}
	r := changedFrom(claims, old.At("status", "resourceClaimStatuses"))
	if r.unchanged() || f.tooMany(claims, maxGroupClaims, at) {
		return
	}
	f.uniqueItems(claims, "name", at, members("name", "resourceClaimName"))
	for i := range claims.Items() {
		name := r.item(i).member("resourceClaimName")
		if !name.unchanged() && !name.value.IsNull() {
			f.longName(at.Item(i).To("resourceClaimName"), name.value.Str())
		}
	}
}

// podGroupSpec checks the spec of a PodGroup.
func (f *errorList) podGroupSpec(r revised, p *fielderrors.Location) {
	if parent, p := r.member("parentCompositePodGroupName"), p.To("parentCompositePodGroupName"); f.gatedMember(parent,
		f.on(features.CompositePodGroup), true, p) {
		f.longName(p, parent.value.Str())
	}
	f.workloadRef(r.member("workloadRef"), p.To("workloadRef"))
	f.groupPolicy(r.member("schedulingPolicy"), "minCount", p.To("schedulingPolicy"))
	constraints := r.member("schedulingConstraints")
	topology := f.on(features.TopologyAwareWorkloadScheduling)
	if p := p.To("schedulingConstraints"); f.gatedMember(constraints, topology, false, p) {
		f.topology(constraints.value, p)
	}
	f.groupClaims(r.member("resourceClaims"), p.To("resourceClaims"))
	f.groupMode(r.member("disruptionMode"), p.To("disruptionMode"))
	f.groupPriority(r, p)
}

func compositeGroupCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.compositeGroupSpec(created(obj.At("spec")), (*fielderrors.Location)(nil).To("spec"))
}

func compositeGroupUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.compositeGroupSpec(changedFrom(obj.At("spec"), old.At("spec")), (*fielderrors.Location)(nil).To("spec"))
}

func compositeGroupStatus(f *errorList, obj, _ object.Value) {
	f.qualifiedFinalizers(obj)
	f.conditions(obj.At("status", "conditions"), (*fielderrors.Location)(nil).To("status").To("conditions"))
}

// compositeGroupSpec checks the spec of a CompositePodGroup.
func (f *errorList) compositeGroupSpec(r revised, p *fielderrors.Location) {
	if parent, p := r.member("parentCompositePodGroupName"),
		p.To("parentCompositePodGroupName"); f.immutableMember(parent, p) {
		f.longName(p, parent.value.Str())
	}
	ref, at := r.member("workloadRef"), p.To("workloadRef")
	f.workloadRef(ref, at)
	if !ref.unchanged() && ref.value.IsNull() {
		f.Required(at, "")
	}
	if policy, p := r.member("schedulingPolicy"), p.To("schedulingPolicy"); f.immutableMember(policy, p) {
		f.groupPolicy(policy, "minGroupCount", p)
	}
	f.compositeMembers(r, p)
}

// compositeMembers checks what the spec of a CompositePodGroup and a template for one have in common, apart from the
// policy.
func (f *errorList) compositeMembers(r revised, p *fielderrors.Location) {
	if constraints, p := r.member("schedulingConstraints"),
		p.To("schedulingConstraints"); f.immutableMember(constraints, p) {
		f.topology(constraints.value, p)
	}
	f.groupMode(r.member("disruptionMode"), p.To("disruptionMode"))
	f.groupPriority(r, p)
}

// workloadRef checks the name of the Workload, and of its template, from which a group was made.
func (f *errorList) workloadRef(r revised, p *fielderrors.Location) {
	if !f.immutableMember(r, p) {
		return
	}
	f.requiredLongName(p.To("workloadName"), text(r.value, "workloadName"))
	f.requiredShortName(p.To("templateName"), text(r.value, "templateName"))
}

// groupPolicy checks how a group is scheduled. count is the member with the number of pods, or of groups, that must be
// scheduled at once; it alone may change.
func (f *errorList) groupPolicy(r revised, count string, p *fielderrors.Location) {
	f.choice(r, schedulingWays, p)
	f.immutableMember(r.member("basic"), p.To("basic"))
	gang, p := r.member("gang"), p.To("gang")
	switch {
	case gang.unchanged():
		return
	case gang.update && gang.old.IsNull():
		f.Invalid(p, nil, "field cannot be set once created")
		return
	case gang.update && gang.value.IsNull():
		f.Invalid(p, nil, "field cannot be cleared once set")
		return
	}
	if n := gang.value.At(count); gang.value.IsNull() {
		return
	} else if n.Int() == 0 {
		f.Required(p.To(count), "")
	} else {
		f.atLeast(n, 1, p.To(count))
	}
}

// topology checks the domains in which a group must be.
func (f *errorList) topology(constraints object.Value, p *fielderrors.Location) {
	keys, p := constraints.At("topology"), p.To("topology")
	if f.tooMany(keys, maxTopology, p) {
		return
	}
	for i, constraint := range keys.Items() {
		if key, p := text(constraint, "key"), p.Item(i).To("key"); key == "" {
			f.Required(p, "")
		} else {
			f.qualified(p, key)
		}
	}
}

// groupClaims checks the ResourceClaims that the pods of a group share.
func (f *errorList) groupClaims(r revised, p *fielderrors.Location) {
	if r.unchanged() {
		return
	}
	if r.update {
		f.changed(p)
	}
	if f.tooMany(r.value, maxGroupClaims, p) || r.update {
		return
	}
	f.uniqueItems(r.value, "name", p, members("name", "resourceClaimName", "resourceClaimTemplateName"))
	for i, claim := range r.value.Items() {
		p := p.Item(i)
		f.union(claim, groupClaims, p)
		f.requiredShortName(p.To("name"), text(claim, "name"))
		for _, key := range groupClaims {
			if has(claim, key) {
				f.longName(p.To(key), text(claim, key))
			}
		}
	}
}

// groupMode checks how a group may be disrupted.
func (f *errorList) groupMode(r revised, p *fielderrors.Location) {
	if f.immutableMember(r, p) {
		f.union(r.value, groupModes, p)
	}
}

// groupPriority checks the priority of a group, which it has from a PriorityClass.
func (f *errorList) groupPriority(r revised, p *fielderrors.Location) {
	if class, p := r.member("priorityClassName"), p.To("priorityClassName"); f.immutableMember(class, p) {
		f.longName(p, class.value.Str())
	}
	if value, p := r.member("priority"), p.To("priority"); f.immutableMember(value, p) &&
		value.value.Int() > highestUserPriority {
		f.Invalid(p, value.value.Int(), fmt.Sprintf("must be less than or equal to %d", highestUserPriority))
	}
	gate := f.on(features.PodGroupPreemptionPolicy)
	if policy, p := r.member("preemptionPolicy"), p.To("preemptionPolicy"); f.gatedMember(policy, gate, true, p) {
		f.only(p, policy.value.Str(), groupPreemption)
	}
}

func workloadCreate(f *errorList, obj object.Value) { f.workload(obj, created(obj.At("spec"))) }

func workloadUpdate(f *errorList, obj, old object.Value) {
	f.workload(obj, changedFrom(obj.At("spec"), old.At("spec")))
}

func (f *errorList) workload(obj object.Value, r revised) {
	f.qualifiedFinalizers(obj)
	spec, p := obj.At("spec"), (*fielderrors.Location)(nil).To("spec")
	composite, at := spec.At("compositePodGroupTemplates"), p.To("compositePodGroupTemplates")

	names := map[string]bool{}
	for _, template := range spec.At("podGroupTemplates").Items() {
		names[named(template)] = true
	}
	f.compositeNames(composite, names, at)
	for i, template := range composite.Items() {
		if deeperThan(template, maxTemplateDepth) {
			f.Invalid(at.Item(i), goForm{template.At("compositePodGroupTemplates"), compositeTemplateFields},
				fmt.Sprintf("maximum template hierarchy depth is %d", maxTemplateDepth))
		}
	}
	f.samePriorities(spec, p)
	f.fertile(composite, at)

	f.choice(r, templateChoice, p)
	if ref, p := r.member("controllerRef"), p.To("controllerRef"); f.immutableMember(ref, p) {
		if group := text(ref.value, "apiGroup"); group != "" {
			f.longName(p.To("apiGroup"), group)
		}
		for _, key := range [...]string{"kind", "name"} {
			if s := text(ref.value, key); s == "" {
				f.Required(p.To(key), "")
			} else {
				f.Each(p.To(key), s, content.IsPathSegmentName(s))
			}
		}
	}
	f.groupTemplates(r.member("podGroupTemplates"), p.To("podGroupTemplates"))
	templates := r.member("compositePodGroupTemplates")
	if !templates.unchanged() && !f.on(features.CompositePodGroup) && templates.value.Len() > 0 {
		f.Forbidden(at, "")
		f.templateChanges(templates, at)
		return
	}
	f.compositeTemplates(templates, at)
}

// compositeNames demands that no composite template, and no template in one, has the name of a template in another
// list. Generated rules check the names within a list.
func (f *errorList) compositeNames(templates object.Value, names map[string]bool, p *fielderrors.Location) {
	f.newNames(templates, names, p)
	for i, template := range templates.Items() {
		p := p.Item(i)
		f.newNames(template.At("podGroupTemplates"), names, p.To("podGroupTemplates"))
		f.compositeNames(template.At("compositePodGroupTemplates"), names, p.To("compositePodGroupTemplates"))
	}
}

// newNames demands that the templates of a list have names that are not taken yet, and then takes them.
func (f *errorList) newNames(templates object.Value, taken map[string]bool, p *fielderrors.Location) {
	for i, template := range templates.Items() {
		if name := named(template); taken[name] {
			f.Duplicate(p.Item(i).To("name"), name)
		}
	}
	for _, template := range templates.Items() {
		taken[named(template)] = true
	}
}

// deeperThan says whether a template has this many levels of templates in it, itself included.
func deeperThan(template object.Value, levels int) bool {
	return levels <= 1 || slices.ContainsFunc(template.At("compositePodGroupTemplates").Items(),
		func(below object.Value) bool { return deeperThan(below, levels-1) })
}

// priorityOf is the priority of a template, and the name of its class.
type priorityOf struct {
	class string
	set   bool
	value int64
}

func priorityIn(template object.Value) priorityOf {
	return priorityOf{text(template, "priorityClassName"), has(template, "priority"), number(template, "priority")}
}

// samePriorities demands that all templates have one priority.
func (f *errorList) samePriorities(spec object.Value, p *fielderrors.Location) {
	var first *priorityOf
	differs := func(template object.Value) bool {
		current := priorityIn(template)
		if first == nil {
			first = &current
		}
		return current != *first
	}
	if slices.ContainsFunc(spec.At("podGroupTemplates").Items(), differs) {
		f.Invalid(p, nil, "detected multiple priority configurations")
		return
	}
	var below func(template object.Value) bool
	below = func(template object.Value) bool {
		return differs(template) || slices.ContainsFunc(template.At("compositePodGroupTemplates").Items(), below) ||
			slices.ContainsFunc(template.At("podGroupTemplates").Items(), differs)
	}
	if slices.ContainsFunc(spec.At("compositePodGroupTemplates").Items(), below) {
		f.Invalid(p, nil, "all priority and priorityClassName values must be identical, detected multiple values")
	}
}

// fertile demands that each composite template has a template in it.
func (f *errorList) fertile(templates object.Value, p *fielderrors.Location) {
	for i, template := range templates.Items() {
		if length(template, "podGroupTemplates") == 0 && length(template, "compositePodGroupTemplates") == 0 {
			f.Invalid(p.Item(i), named(template), "must have at least one child PodGroupTemplate or CompositePodGroupTemplate")
		}
		f.fertile(template.At("compositePodGroupTemplates"), p.Item(i).To("compositePodGroupTemplates"))
	}
}

// templateChanges demands that an update neither adds templates to a list nor removes any, and that there are not too
// many. It returns whether the templates are to be checked.
func (f *errorList) templateChanges(r revised, p *fielderrors.Location) bool {
	before := len(f.List)
	f.tooMany(r.value, maxGroupTemplates, p)
	if r.update {
		within := func(list, template object.Value) bool {
			return slices.ContainsFunc(list.Items(), func(t object.Value) bool { return named(t) == named(template) })
		}
		for i, template := range r.value.Items() {
			if !within(r.old, template) {
				f.Forbidden(p.Item(i), "item may not be added")
			}
		}
		for _, template := range r.old.Items() {
			if !within(r.value, template) {
				f.Forbidden(p, "item may not be removed")
			}
		}
	}
	return len(f.List) == before
}

// groupTemplates checks templates of PodGroups.
func (f *errorList) groupTemplates(r revised, p *fielderrors.Location) {
	if r.unchanged() || !f.templateChanges(r, p) {
		return
	}
	f.uniqueItems(r.value, "name", p, groupTemplateOrder)
	for i := range r.value.Items() {
		r, p := r.item(i), p.Item(i)
		f.templateName(r, p)
		f.groupPolicy(r.member("schedulingPolicy"), "minCount", p.To("schedulingPolicy"))
		constraints := r.member("schedulingConstraints")
		topology := f.on(features.TopologyAwareWorkloadScheduling)
		if p := p.To("schedulingConstraints"); f.gatedMember(constraints, topology, true, p) {
			f.topology(constraints.value, p)
		}
		f.groupClaims(r.member("resourceClaims"), p.To("resourceClaims"))
		f.groupMode(r.member("disruptionMode"), p.To("disruptionMode"))
		f.groupPriority(r, p)
	}
}

// compositeTemplates checks templates of CompositePodGroups, and those in them.
func (f *errorList) compositeTemplates(r revised, p *fielderrors.Location) {
	if r.unchanged() || !f.templateChanges(r, p) {
		return
	}
	f.uniqueItems(r.value, "name", p, compositeTemplateOrder)
	for i := range r.value.Items() {
		r, p := r.item(i), p.Item(i)
		f.templateName(r, p)
		f.groupPolicy(r.member("schedulingPolicy"), "minGroupCount", p.To("schedulingPolicy"))
		f.compositeMembers(r, p)
		f.groupTemplates(r.member("podGroupTemplates"), p.To("podGroupTemplates"))
		f.compositeTemplates(r.member("compositePodGroupTemplates"), p.To("compositePodGroupTemplates"))
	}
}

// templateName checks the name of a template. That of one that was there before is the same.
func (f *errorList) templateName(r revised, p *fielderrors.Location) {
	if !r.known {
		f.requiredShortName(p.To("name"), text(r.value, "name"))
	}
}

// The order of the members of a template, and the fields of one under their Go names.
var (
	topologyOrder = []jsonField{{"topology", members("key")}}
	priorityOrder = slices.Concat([]jsonField{{"disruptionMode", members("single", "all")}},
		members("priorityClassName", "priority", "preemptionPolicy"))
	groupTemplateOrder = slices.Concat(members("name"),
		[]jsonField{{"schedulingPolicy", []jsonField{{"basic", nil}, {"gang", members("minCount")}}},
			{"schedulingConstraints", topologyOrder},
			{"resourceClaims", members("name", "resourceClaimName", "resourceClaimTemplateName")}},
		priorityOrder)
	compositeTemplateOrder = func() []jsonField {
		order := slices.Concat(members("name"),
			[]jsonField{{"schedulingPolicy", []jsonField{{"basic", nil}, {"gang", members("minGroupCount")}}},
				{"schedulingConstraints", topologyOrder}},
			priorityOrder,
			[]jsonField{{"podGroupTemplates", groupTemplateOrder}, {"compositePodGroupTemplates", nil}})
		order[len(order)-1].inner = order
		return order
	}()

	topologyFields = []goField{{name: "Topology", member: "topology", inner: []goField{{name: "Key", member: "key"}}}}
	modeFields     = []goField{{name: "Single", member: "single"}, {name: "All", member: "all"}}
	priorityFields = []goField{{name: "DisruptionMode", member: "disruptionMode", inner: modeFields},
		{name: "PriorityClassName", member: "priorityClassName", zero: `""`}, {name: "Priority", member: "priority"},
		{name: "PreemptionPolicy", member: "preemptionPolicy"}}
	groupTemplateFields = slices.Concat([]goField{{name: "Name", member: "name"},
		{name: "SchedulingPolicy", member: "schedulingPolicy", inner: []goField{{name: "Basic", member: "basic"},
			{name: "Gang", member: "gang", inner: []goField{{name: "MinCount", member: "minCount"}}}}},
		{name: "SchedulingConstraints", member: "schedulingConstraints", inner: topologyFields},
		{name: "ResourceClaims", member: "resourceClaims", inner: []goField{{name: "Name", member: "name"},
			{name: "ResourceClaimName", member: "resourceClaimName"},
			{name: "ResourceClaimTemplateName", member: "resourceClaimTemplateName"}}}}, priorityFields)
	compositeTemplateFields = func() []goField {
		fields := slices.Concat([]goField{{name: "Name", member: "name"},
			{name: "SchedulingPolicy", member: "schedulingPolicy", inner: []goField{{name: "Basic", member: "basic"},
				{name: "Gang", member: "gang", inner: []goField{{name: "MinGroupCount", member: "minGroupCount"}}}}},
			{name: "SchedulingConstraints", member: "schedulingConstraints", inner: topologyFields}}, priorityFields,
			[]goField{{name: "PodGroupTemplates", member: "podGroupTemplates", inner: groupTemplateFields},
				{name: "CompositePodGroupTemplates", member: "compositePodGroupTemplates"}})
		fields[len(fields)-1].inner = fields
		return fields
	}()
)

func (f *errorList) longName(p *fielderrors.Location, s string) {
	f.Each(p, s, objectmeta.LongNameErrors(s))
}

// requiredLongName demands a DNS subdomain, with the messages of generated rules.
func (f *errorList) requiredLongName(p *fielderrors.Location, s string) {
	if s == "" {
		f.Required(p, "")
		return
	}
	f.longName(p, s)
}
