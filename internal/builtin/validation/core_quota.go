package validation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// limitTypes are what a LimitRange can limit.
var limitTypes = []string{"Pod", "Container", "PersistentVolumeClaim"}

func limitRangeCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	var types nameSet
	for i, limit := range obj.At("spec", "limits").Items() {
		p := (*fielderrors.Location)(nil).To("spec").To("limits").Item(i)
		kind := text(limit, "type")
		if wrong := objectmeta.LabelKeyErrors(kind); len(wrong) > 0 {
			for _, w := range wrong {
				f.Invalid(p.To("type"), fielderrors.Word(kind), w)
			}
		} else if !strings.Contains(kind, "/") && !holds(limitTypes, kind) {
			f.Invalid(p.To("type"), fielderrors.Word(kind), "must be a standard limit type or fully qualified")
		}
		if types.add(kind) {
			f.Duplicate(p.To("type"), fielderrors.Word(kind))
		}
		f.limit(limit, kind, p)
	}
}

func limitRangeUpdate(f *errorList, obj, _ object.Value) { limitRangeCreate(f, obj) }

func (f *errorList) limit(limit object.Value, kind string, p *fielderrors.Location) {
	as := anyResource
	if kind == "Pod" || kind == "Container" {
		as = containerResource
	}
	var names []string
	for _, key := range [...]string{"max", "min", "default", "defaultRequest", "maxLimitRequestRatio"} {
		if kind == "Pod" && (key == "default" || key == "defaultRequest") {
			if length(limit, key) > 0 {
				f.Forbidden(p.To(key), "may not be specified when `type` is 'Pod'")
			}
			limit = limit.Without(key)
			continue
		}
		for _, m := range limit.At(key).Members() {
			f.resourceName(m.Key, as, p.To(key).Key(m.Key))
			names = append(names, m.Key)
		}
	}
	if kind == "PersistentVolumeClaim" && !has(limit.At("min"), "storage") && !has(limit.At("max"), "storage") {
		f.Required(p.To("limits"), "either minimum or maximum storage value is required, but neither was provided")
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		f.limitOf(limit, name, p)
	}
}

// limitOf checks that the limits of one resource are consistent.
func (f *errorList) limitOf(limit object.Value, name string, p *fielderrors.Location) {
	amount := func(key string) (resource.Quantity, bool) {
		v, ok := limit.At(key).Get(name)
		return quantity(v), ok
	}
	least, hasMin := amount("min")
	most, hasMax := amount("max")
	standard, hasDefault := amount("default")
	request, hasRequest := amount("defaultRequest")
	ratio, hasRatio := amount("maxLimitRequestRatio")
	over := func(key string, shown resource.Quantity, wrong bool, format string, a, b resource.Quantity) {
		if wrong {
			f.Invalid(p.To(key).Key(name), shown, fmt.Sprintf(format, a.String(), b.String()))
		}
	}
	over("min", least, hasMin && hasMax && least.Cmp(most) > 0, "min value %s is greater than max value %s", least,
		most)
	over("defaultRequest", request, hasRequest && hasMin && least.Cmp(request) > 0,
		"min value %s is greater than default request value %s", least, request)
	over("defaultRequest", request, hasRequest && hasMax && request.Cmp(most) > 0,
		"default request value %s is greater than max value %s", request, most)
	over("defaultRequest", request, hasRequest && hasDefault && request.Cmp(standard) > 0,
		"default request value %s is greater than default limit value %s", request, standard)
	over("default", least, hasDefault && hasMin && least.Cmp(standard) > 0,
		"min value %s is greater than default value %s", least, standard)
	over("default", most, hasDefault && hasMax && standard.Cmp(most) > 0,
		"default value %s is greater than max value %s", standard, most)
	if hasRatio {
		if ratio.CmpInt64(1) < 0 {
			f.Invalid(p.To("maxLimitRequestRatio").Key(name), ratio,
				fmt.Sprintf("ratio %s is less than 1", ratio.String()))
		}
		if hasMin && hasMax {
			f.ratio(ratio, least, most, p.To("maxLimitRequestRatio").Key(name))
		}
	}
	if !mayOvercommit(name) && hasDefault && hasRequest && standard.Cmp(request) != 0 {
		f.Invalid(p.To("defaultRequest").Key(name), request,
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", standard.String(),
				request.String(), name))
	}
}

// ratio refuses a ratio greater than that of max to min.
func (f *errorList) ratio(ratio, least, most resource.Quantity, p *fielderrors.Location) {
	value, low, high := float64(ratio.Value()), least.Value(), most.Value()
	if ratio.Value() < resource.MaxMilliValue && low < resource.MaxMilliValue && high < resource.MaxMilliValue {
		value, low, high = float64(ratio.MilliValue())/1000, least.MilliValue(), most.MilliValue()
	}
	if room := float64(high) / float64(low); value > room {
		f.Invalid(p, ratio, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), room))
	}
}

// The scopes of a quota, and the resources to which each applies.
var (
	quotaScopes = []string{"BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating",
		"PriorityClass", "Terminating", "VolumeAttributesClass"}
	existsOnly = []string{"BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"}
	ofPods     = []string{"pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"}
	ofClaims   = []string{"persistentvolumeclaims", "requests.storage"}
	opposites  = [...][2]string{{"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"}}
)

func scopeApplies(scope, name string) bool {
	switch scope {
	case "Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity":
		return holds(ofPods, name)
	case "BestEffort":
		return name == "pods"
	case "VolumeAttributesClass":
		return holds(ofClaims, name)
	}
	return true
}

func isStandardQuota(name string) bool {
	_, standard := slices.BinarySearch(standardResources, name)
	return standard && name != "storage" || isHugeQuota(name)
}

func quotaCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.quotaSpec(obj.At("spec"))
}

func (f *errorList) quotaAmounts(amounts object.Value, p *fielderrors.Location) {
	for _, m := range amounts.Members() {
		f.resourceName(m.Key, quotaResource, p.Key(m.Key))
		f.resourceAmount(m.Key, quantity(m.Value), p.Key(m.Key))
	}
}

func (f *errorList) quotaSpec(spec object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	hard, scopes := spec.At("hard"), spec.At("scopes")
	f.quotaAmounts(hard, p.To("hard"))
	var names nameSet
	for _, item := range scopes.Items() {
		if !holds(quotaScopes, item.Str()) {
			f.Invalid(p.To("scopes"), fielderrors.Show(scopes), "unsupported scope")
		}
		f.scopeOf(item.Str(), hard, fielderrors.Show(scopes), p.To("scopes"))
		names.add(item.Str())
	}
	f.conflictingScopes(&names, scopes, p.To("scopes"))
	f.scopeSelector(spec.At("scopeSelector"), hard, scopes, p.To("scopeSelector").To("matchExpressions"))
}

func (f *errorList) scopeOf(scope string, hard object.Value, shownAs any, p *fielderrors.Location) {
	for _, m := range hard.Members() {
		if isStandardQuota(m.Key) && !scopeApplies(scope, m.Key) {
			f.Invalid(p, shownAs, "unsupported scope applied to resource")
		}
	}
}

func (f *errorList) conflictingScopes(names *nameSet, scopes object.Value, p *fielderrors.Location) {
	for _, pair := range opposites {
		if names.has(pair[0]) && names.has(pair[1]) {
			f.Invalid(p, fielderrors.Show(scopes), "conflicting scopes")
		}
	}
}

var scopeSelectorFields = []goField{{name: "MatchExpressions", member: "matchExpressions",
	inner: []goField{{name: "ScopeName", member: "scopeName"}, {name: "Operator", member: "operator"},
		{name: "Values", member: "values"}}}}

func (f *errorList) scopeSelector(selector, hard, scopes object.Value, p *fielderrors.Location) {
	var names nameSet
	for _, requirement := range selector.At("matchExpressions").Items() {
		scope, operator, values := text(requirement, "scopeName"), text(requirement, "operator"),
			requirement.At("values")
		if !holds(quotaScopes, scope) {
			f.Invalid(p.To("scopeName"), fielderrors.Word(scope), "unsupported scope")
		}
		f.scopeOf(scope, hard, goForm{selector, scopeSelectorFields}, p)
		if holds(existsOnly, scope) && operator != "Exists" {
			f.Invalid(p.To("operator"), fielderrors.Word(operator),
				"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "+
					"ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity")
		}
		switch operator {
		case "In", "NotIn":
			if values.Len() == 0 {
				f.Required(p.To("values"),
					"must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
			}
		case "Exists", "DoesNotExist":
			if values.Len() != 0 {
				f.Invalid(p.To("values"), fielderrors.Show(values),
					"must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")
			}
		default:
			f.Invalid(p.To("operator"), fielderrors.Word(operator), notOperator)
		}
		names.add(scope)
	}
	f.conflictingScopes(&names, scopes, p)
}

func (f *errorList) quotaStatus(status object.Value) {
	p := (*fielderrors.Location)(nil).To("status")
	f.quotaAmounts(status.At("hard"), p.To("hard"))
	f.quotaAmounts(status.At("used"), p.To("used"))
}

func quotaUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.quotaSpec(obj.At("spec"))
	now, before := obj.At("spec", "scopes"), old.At("spec", "scopes")
	within := func(a, b object.Value) bool {
		return !slices.ContainsFunc(a.Items(), func(v object.Value) bool { return !contains(b, v.Str()) })
	}
	if !within(now, before) || !within(before, now) {
		f.Invalid((*fielderrors.Location)(nil).To("spec").To("scopes"), fielderrors.Show(now), fielderrors.Immutable)
	}
}

func quotaStatusUpdate(f *errorList, obj, _ object.Value) {
	f.qualifiedFinalizers(obj)
	f.quotaStatus(obj.At("status"))
}
