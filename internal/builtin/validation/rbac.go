package validation

import (
	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

const rbacGroup = "rbac.authorization.k8s.io"

var (
	onlyRBAC     = []string{rbacGroup}
	noGroup      = []string{""}
	roleKinds    = []string{"Role", "ClusterRole"}
	clusterKinds = []string{"ClusterRole"}
	subjectKinds = []string{"ServiceAccount", "User", "Group"}
	roleRef      = []goField{{name: "APIGroup", member: "apiGroup"}, {name: "Kind", member: "kind"},
		{name: "Name", member: "name"}}
)

func (f *errorList) policyRules(rules object.Value, namespaced bool) {
	for i, rule := range rules.Items() {
		p := (*fielderrors.Location)(nil).To("rules").Item(i)
		f.requiredList(p.To("verbs"), rule.At("verbs"))
		urls := rule.At("nonResourceURLs")
		if urls.Len() > 0 {
			if namespaced {
				f.Invalid(p.To("nonResourceURLs"), fielderrors.Show(urls),
					"namespaced rules cannot apply to non-resource URLs")
			}
			if length(rule, "apiGroups")+length(rule, "resources")+length(rule, "resourceNames") > 0 {
				f.Invalid(p.To("nonResourceURLs"), fielderrors.Show(urls),
					"rules cannot apply to both regular resources and non-resource URLs")
			}
			continue
		}
		if length(rule, "apiGroups") == 0 {
			f.Required(p.To("apiGroups"), "resource rules must supply at least one api group")
		}
		if length(rule, "resources") == 0 {
			f.Required(p.To("resources"), "resource rules must supply at least one resource")
		}
	}
}

func roleCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.policyRules(obj.At("rules"), true)
}

func roleUpdate(f *errorList, obj, _ object.Value) { roleCreate(f, obj) }

func clusterRoleCreate(f *errorList, obj object.Value) { f.clusterRole(obj, false) }

func clusterRoleUpdate(f *errorList, obj, old object.Value) {
	lenient := false
	for _, selector := range old.At("aggregationRule", "clusterRoleSelectors").Items() {
		lenient = lenient || badLabelValue(selector.At("matchExpressions"))
	}
	f.clusterRole(obj, lenient)
}

func (f *errorList) clusterRole(obj object.Value, lenient bool) {
	f.qualifiedFinalizers(obj)
	f.policyRules(obj.At("rules"), false)
	aggregation := obj.At("aggregationRule")
	if aggregation.IsNull() {
		return
	}
	p := (*fielderrors.Location)(nil).To("aggregationRule").To("clusterRoleSelectors")
	selectors := aggregation.At("clusterRoleSelectors")
	if selectors.Len() == 0 {
		f.Required(p, "at least one clusterRoleSelector required if aggregationRule is non-nil")
	}
	for i, selector := range selectors.Items() {
		f.labelSelector(selector, p.Item(i), lenient)
		if _, valid := matches(selector, object.Nil); !valid {
			f.Invalid(p.Item(i), fielderrors.Show(object.Nil), "invalid label selector.")
		}
	}
}

func (f *errorList) roleBinding(obj object.Value, namespaced bool, kinds []string) {
	f.qualifiedFinalizers(obj)
	ref := obj.At("roleRef")
	p := (*fielderrors.Location)(nil).To("roleRef")
	if group := text(ref, "apiGroup"); group != rbacGroup {
		f.UnsupportedText(p.To("apiGroup"), group, onlyRBAC)
	}
	if kind := text(ref, "kind"); !holds(kinds, kind) {
		f.UnsupportedText(p.To("kind"), kind, kinds)
	}
	if name := text(ref, "name"); name == "" {
		f.Required(p.To("name"), "")
	} else {
		f.Each(p.To("name"), name, objectmeta.PathSegmentErrors(name, false))
	}
	for i, subject := range obj.At("subjects").Items() {
		f.subject(subject, namespaced, (*fielderrors.Location)(nil).To("subjects").Item(i))
	}
}

func (f *errorList) subject(subject object.Value, namespaced bool, p *fielderrors.Location) {
	name, group := text(subject, "name"), text(subject, "apiGroup")
	f.requiredText(p.To("name"), name)
	switch kind := text(subject, "kind"); kind {
	case "ServiceAccount":
		if name != "" {
			f.subdomain(p.To("name"), name)
		}
		if group != "" {
			f.UnsupportedText(p.To("apiGroup"), group, noGroup)
		}
		if !namespaced {
			f.requiredText(p.To("namespace"), text(subject, "namespace"))
		}
	case "User", "Group":
		if group != rbacGroup {
			f.UnsupportedText(p.To("apiGroup"), group, onlyRBAC)
		}
	default:
		f.UnsupportedText(p.To("kind"), kind, subjectKinds)
	}
}

func roleBindingCreate(f *errorList, obj object.Value) { f.roleBinding(obj, true, roleKinds) }
func clusterRoleBindingCreate(f *errorList, obj object.Value) {
	f.roleBinding(obj, false, clusterKinds)
}

func roleBindingUpdate(f *errorList, obj, old object.Value) {
	roleBindingCreate(f, obj)
	f.sameRole(obj, old)
}

func clusterRoleBindingUpdate(f *errorList, obj, old object.Value) {
	clusterRoleBindingCreate(f, obj)
	f.sameRole(obj, old)
}

func (f *errorList) sameRole(obj, old object.Value) {
	if now := obj.At("roleRef"); !object.Equal(now, old.At("roleRef")) {
		f.Invalid((*fielderrors.Location)(nil).To("roleRef"), goForm{now, roleRef}, fielderrors.Immutable)
	}
}
