package validation

import (
	"plinth/object"
)

const rbacGroup = "rbac.authorization.k8s.io"

var (
	onlyRBAC     = []string{rbacGroup}
	noGroup      = []string{""}
	roleKinds    = []string{"Role", "ClusterRole"}
	clusterKinds = []string{"ClusterRole"}
	subjectKinds = []string{"ServiceAccount", "User", "Group"}
	roleRef      = []goField{{name: "APIGroup", member: "apiGroup", zero: `""`}, {name: "Kind", member: "kind", zero: `""`}, {name: "Name", member: "name", zero: `""`}}
)

func (f *faults) policyRules(rules object.Value, namespaced bool) {
	for i, rule := range rules.Items() {
		p := (*place)(nil).to("rules").item(i)
		f.requiredList(p.to("verbs"), rule.At("verbs"))
		urls := rule.At("nonResourceURLs")
		if urls.Len() > 0 {
			if namespaced {
				f.invalid(p.to("nonResourceURLs"), show(urls), "namespaced rules cannot apply to non-resource URLs")
			}
			if length(rule, "apiGroups")+length(rule, "resources")+length(rule, "resourceNames") > 0 {
				f.invalid(p.to("nonResourceURLs"), show(urls), "rules cannot apply to both regular resources and non-resource URLs")
			}
			continue
		}
		if length(rule, "apiGroups") == 0 {
			f.required(p.to("apiGroups"), "resource rules must supply at least one api group")
		}
		if length(rule, "resources") == 0 {
			f.required(p.to("resources"), "resource rules must supply at least one resource")
		}
	}
}

func roleCreate(f *faults, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.policyRules(obj.At("rules"), true)
}

func roleUpdate(f *faults, obj, _ object.Value) { roleCreate(f, obj) }

func clusterRoleCreate(f *faults, obj object.Value) { f.clusterRole(obj, false) }

func clusterRoleUpdate(f *faults, obj, old object.Value) {
	lenient := false
	for _, selector := range old.At("aggregationRule", "clusterRoleSelectors").Items() {
		lenient = lenient || badLabelValue(selector.At("matchExpressions"))
	}
	f.clusterRole(obj, lenient)
}

func (f *faults) clusterRole(obj object.Value, lenient bool) {
	f.qualifiedFinalizers(obj)
	f.policyRules(obj.At("rules"), false)
	aggregation := obj.At("aggregationRule")
	if aggregation.IsNull() {
		return
	}
	p := (*place)(nil).to("aggregationRule").to("clusterRoleSelectors")
	selectors := aggregation.At("clusterRoleSelectors")
	if selectors.Len() == 0 {
		f.required(p, "at least one clusterRoleSelector required if aggregationRule is non-nil")
	}
	for i, selector := range selectors.Items() {
		f.labelSelector(selector, p.item(i), lenient)
		if _, valid := matches(selector, object.Nil); !valid {
			f.invalid(p.item(i), show(object.Nil), "invalid label selector.")
		}
	}
}

func (f *faults) roleBinding(obj object.Value, namespaced bool, kinds []string) {
	f.qualifiedFinalizers(obj)
	ref := obj.At("roleRef")
	p := (*place)(nil).to("roleRef")
	if group := text(ref, "apiGroup"); group != rbacGroup {
		f.unsupportedText(p.to("apiGroup"), group, onlyRBAC)
	}
	if kind := text(ref, "kind"); !holds(kinds, kind) {
		f.unsupportedText(p.to("kind"), kind, kinds)
	}
	if name := text(ref, "name"); name == "" {
		f.required(p.to("name"), "")
	} else {
		f.each(p.to("name"), name, segmentFaults(name, false))
	}
	for i, subject := range obj.At("subjects").Items() {
		f.subject(subject, namespaced, (*place)(nil).to("subjects").item(i))
	}
}

func (f *faults) subject(subject object.Value, namespaced bool, p *place) {
	name, group := text(subject, "name"), text(subject, "apiGroup")
	f.requiredText(p.to("name"), name)
	switch kind := text(subject, "kind"); kind {
	case "ServiceAccount":
		if name != "" {
			f.subdomain(p.to("name"), name)
		}
		if group != "" {
			f.unsupportedText(p.to("apiGroup"), group, noGroup)
		}
		if !namespaced {
			f.requiredText(p.to("namespace"), text(subject, "namespace"))
		}
	case "User", "Group":
		if group != rbacGroup {
			f.unsupportedText(p.to("apiGroup"), group, onlyRBAC)
		}
	default:
		f.unsupportedText(p.to("kind"), kind, subjectKinds)
	}
}

func roleBindingCreate(f *faults, obj object.Value)        { f.roleBinding(obj, true, roleKinds) }
func clusterRoleBindingCreate(f *faults, obj object.Value) { f.roleBinding(obj, false, clusterKinds) }

func roleBindingUpdate(f *faults, obj, old object.Value) {
	roleBindingCreate(f, obj)
	f.sameRole(obj, old)
}

func clusterRoleBindingUpdate(f *faults, obj, old object.Value) {
	clusterRoleBindingCreate(f, obj)
	f.sameRole(obj, old)
}

func (f *faults) sameRole(obj, old object.Value) {
	if now := obj.At("roleRef"); !object.Equal(now, old.At("roleRef")) {
		f.invalid((*place)(nil).to("roleRef"), goForm{now, roleRef}, immutable)
	}
}
