package validation

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

var (
	taintEffects        = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}
	tolerationOperators = []string{"Equal", "Exists"}
	// comparisonOperators are the operators that an error lists as supported. Lt and Gt among them are not accepted
	// while their feature is off.
	comparisonOperators = []string{"Equal", "Exists", "Lt", "Gt"}
	spreadActions       = []string{"DoNotSchedule", "ScheduleAnyway"}
	inclusionPolicies   = []string{"Honor", "Ignore"}
)

func (f *errorList) tolerations(tolerations object.Value, old leniency, p *fielderrors.Location) {
	for i, toleration := range tolerations.Items() {
		p := p.Item(i)
		key, operator, effect := text(toleration, "key"), text(toleration, "operator"), text(toleration, "effect")
		if key != "" {
			f.qualified(p.To("key"), key)
		} else if operator != "Exists" {
			f.Invalid(p.To("operator"), fielderrors.Word(operator),
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
		if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
			f.Invalid(p.To("effect"), fielderrors.Word(effect),
				"effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		f.tolerationValue(operator, text(toleration, "value"), old, p)
		if effect != "" {
			f.only(p.To("effect"), effect, taintEffects)
		}
	}
}

func (f *errorList) tolerationValue(operator, value string, old leniency, p *fielderrors.Location) {
	switch operator {
	case "Equal", "":
		if wrong := objectmeta.LabelValueErrors(value); len(wrong) != 0 {
			f.Invalid(p.To("operator"), value, strings.Join(wrong, ";"))
		}
	case "Exists":
		if value != "" {
			f.Invalid(p.To("operator"), value, "value must be empty when `operator` is 'Exists'")
		}
	case "Lt", "Gt":
		if !old.comparisons {
			f.Unsupported(p.To("operator"), operator, comparisonOperators)
			return
		}
		f.Each(p.To("value"), value, content.IsDecimalInteger(value))
		if _, err := strconv.ParseInt(value, 10, 64); err != nil {
			f.Invalid(p.To("value"), value, err.Error())
		}
	default:
		f.Unsupported(p.To("operator"), operator, tolerationOperators)
	}
}

func (f *errorList) affinity(affinity object.Value, old leniency, p *fielderrors.Location) {
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution",
		"preferredDuringSchedulingIgnoredDuringExecution"
	node, at := affinity.At("nodeAffinity"), p.To("nodeAffinity")
	if selector := node.At(required); !selector.IsNull() {
		f.nodeSelector(selector, old.labelValuesInNodeAffinity, at.To(required))
	}
	for i, term := range node.At(preferred).Items() {
		f.weight(term, at.To(preferred).Item(i))
		f.nodeSelectorTerm(term.At("preference"), true, at.To(preferred).Item(i).To("preference"))
	}
	for _, key := range [...]string{"podAffinity", "podAntiAffinity"} {
		pods := affinity.At(key)
		for i, term := range pods.At(required).Items() {
			f.podAffinityTerm(term, old, p.To(key).To(required).Item(i))
		}
		for i, term := range pods.At(preferred).Items() {
			f.weight(term, p.To(key).To(preferred).Item(i))
			f.podAffinityTerm(term.At("podAffinityTerm"), old, p.To(key).To(preferred).Item(i).To("podAffinityTerm"))
		}
	}
}

func (f *errorList) weight(term object.Value, p *fielderrors.Location) {
	if n := number(term, "weight"); n <= 0 || n > 100 {
		f.Invalid(p.To("weight"), n, "must be in the range 1-100")
	}
}

func (f *errorList) nodeSelector(selector object.Value, lenient bool, p *fielderrors.Location) {
	terms := selector.At("nodeSelectorTerms")
	if terms.Len() == 0 {
		f.Required(p.To("nodeSelectorTerms"), "must have at least one node selector term")
	}
	for i, term := range terms.Items() {
		f.nodeSelectorTerm(term, lenient, p.To("nodeSelectorTerms").Item(i))
	}
}

func (f *errorList) nodeSelectorTerm(term object.Value, lenient bool, p *fielderrors.Location) {
	for i, requirement := range term.At("matchExpressions").Items() {
		f.nodeRequirement(requirement, lenient, p.To("matchExpressions").Item(i))
	}
	for i, requirement := range term.At("matchFields").Items() {
		f.nodeFieldRequirement(requirement, p.To("matchFields").Item(i))
	}
}

func (f *errorList) nodeRequirement(requirement object.Value, lenient bool, p *fielderrors.Location) {
	if operator := text(requirement, "operator"); operator != "Gt" && operator != "Lt" {
		f.labelRequirement(requirement, p, lenient)
		return
	}
	if length(requirement, "values") != 1 {
		f.Required(p.To("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'")
	}
	f.keyAndValues(requirement, p, lenient)
}

func (f *errorList) nodeFieldRequirement(requirement object.Value, p *fielderrors.Location) {
	values := requirement.At("values")
	switch operator := text(requirement, "operator"); operator {
	case "In", "NotIn":
		if values.Len() != 1 {
			f.Required(p.To("values"),
				"must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
	default:
		f.Invalid(p.To("operator"), fielderrors.Word(operator), notOperator)
	}
	if key := text(requirement, "key"); key != "metadata.name" {
		f.Invalid(p.To("key"), key, "not a valid field selector key")
		return
	}
	for i, value := range values.Items() {
		f.subdomain(p.To("values").Item(i), value.Str())
	}
}

func (f *errorList) podAffinityTerm(term object.Value, old leniency, p *fielderrors.Location) {
	f.termSelectors(term, p, old.labelValuesInAffinity)
	for _, namespace := range term.At("namespaces").Items() {
		f.label(p.To("namespace"), namespace.Str())
	}
	f.labelKeys(term, p)
	key := text(term, "topologyKey")
	if key == "" {
		f.Required(p.To("topologyKey"), "can not be empty")
	}
	f.qualified(p.To("topologyKey"), key)
}

func (f *errorList) termSelectors(term object.Value, p *fielderrors.Location, anyValue bool) {
	f.labelSelector(term.At("labelSelector"), p.To("labelSelector"), anyValue)
	f.labelSelector(term.At("namespaceSelector"), p.To("namespaceSelector"), anyValue)
}

// labelKeys checks the keys for which a term uses the values of the pod's own labels.
func (f *errorList) labelKeys(term object.Value, p *fielderrors.Location) {
	selector := term.At("labelSelector")
	matched, mismatched := term.At("matchLabelKeys"), term.At("mismatchLabelKeys")
	for _, key := range [...]string{"matchLabelKeys", "mismatchLabelKeys"} {
		keys := term.At(key)
		if keys.Len() > 0 && selector.IsNull() {
			f.Forbidden(p.To(key), "must not be specified when labelSelector is not set")
			continue
		}
		for i, item := range keys.Items() {
			f.qualified(p.To(key).Item(i), item.Str())
		}
	}
	f.repeatedLabelKeys(selector, matched, p)
	for i, item := range matched.Items() {
		if contains(mismatched, item.Str()) {
			f.Invalid(p.To("matchLabelKeys").Item(i), item.Str(), "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

const repeatedKey = "exists in both matchLabelKeys and labelSelector"

// repeatedLabelKeys refuses matchLabelKeys that the selector already has, apart from the requirement that the reference
// adds for each of them.
func (f *errorList) repeatedLabelKeys(selector, matched object.Value, p *fielderrors.Location) {
	var keys nameSet
	for _, m := range selector.At("matchLabels").Members() {
		keys.add(m.Key)
	}
	for _, requirement := range selector.At("matchExpressions").Items() {
		key := text(requirement, "key")
		at := -1
		for i, item := range matched.Items() {
			if item.Str() == key {
				at = i
			}
		}
		if again := keys.add(key); again && at >= 0 {
			f.Invalid(p.Item(at), key, repeatedKey)
		}
	}
}

func (f *errorList) topologySpread(constraints object.Value, old leniency, p *fielderrors.Location) {
	items := constraints.Items()
	for i, constraint := range items {
		p := p.Item(i)
		key, action := text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable")
		f.positive(p.To("maxSkew"), number(constraint, "maxSkew"))
		if key == "" {
			f.Required(p.To("topologyKey"), "can not be empty")
		}
		f.only(p.To("whenUnsatisfiable"), action, spreadActions)
		for _, other := range items[i+1:] {
			if text(other, "topologyKey") == key && text(other, "whenUnsatisfiable") == action {
				f.Duplicate(p.To("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%v, %v}", key, action))
				break
			}
		}
		if domains := constraint.At("minDomains"); !domains.IsNull() {
			f.positive(p.To("minDomains"), domains.Int())
			if action != "DoNotSchedule" {
				f.Invalid(p.To("minDomains"), domains.Int(),
					"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not "+action)
			}
		}
		f.onlyIfSet(p.To("nodeAffinityPolicy"), constraint.At("nodeAffinityPolicy"), inclusionPolicies)
		f.onlyIfSet(p.To("nodeTaintsPolicy"), constraint.At("nodeTaintsPolicy"), inclusionPolicies)
		if old.spreadKeys {
			f.legacySpreadKeys(constraint, p.To("matchLabelKeys"))
		} else {
			f.labelKeys(constraint, p)
		}
		if !old.spreadSelectors {
			f.labelSelector(constraint.At("labelSelector"), p.To("labelSelector"), false)
		}
	}
}

// legacySpreadKeys is the rule for a pod that was stored before its keys were added to its selector. It can also refuse
// what labelKeys accepts.
func (f *errorList) legacySpreadKeys(constraint object.Value, p *fielderrors.Location) {
	keys := constraint.At("matchLabelKeys")
	selector := constraint.At("labelSelector")
	var named nameSet
	for _, m := range selector.At("matchLabels").Members() {
		named.add(m.Key)
	}
	for _, requirement := range selector.At("matchExpressions").Items() {
		named.add(text(requirement, "key"))
	}
	if keys.Len() > 0 && selector.IsNull() {
		f.Forbidden(p, "must not be specified when labelSelector is not set")
	}
	for i, item := range keys.Items() {
		f.qualified(p.Item(i), item.Str())
		if named.has(item.Str()) {
			f.Invalid(p.Item(i), item.Str(), repeatedKey)
		}
	}
}
