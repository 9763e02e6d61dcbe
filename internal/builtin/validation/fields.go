package validation

import (
	"slices"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// Rules for single fields that many kinds have.

const (
	notPositive = "must be greater than zero"
	notInteger  = "must be an integer"
	notOperator = "not a valid selector operator"
	moreVolumes = "may not specify more than 1 volume type"
	maxPort     = 65535
	maxID       = 1<<31 - 1
)

func (f *errorList) label(p *fielderrors.Location, s string) { f.Each(p, s, objectmeta.LabelErrors(s)) }
func (f *errorList) subdomain(p *fielderrors.Location, s string) {
	f.Each(p, s, objectmeta.SubdomainErrors(s))
}
func (f *errorList) qualified(p *fielderrors.Location, s string) {
	f.Each(p, s, objectmeta.LabelKeyErrors(s))
}

// requiredLabel demands a DNS label.
func (f *errorList) requiredLabel(p *fielderrors.Location, s string) {
	if s == "" {
		f.Required(p, "")
		return
	}
	f.label(p, s)
}

// requiredText demands that a text is not empty.
func (f *errorList) requiredText(p *fielderrors.Location, s string) {
	if s == "" {
		f.Required(p, "")
	}
}

func (f *errorList) nonNegative(p *fielderrors.Location, n int64) {
	if n < 0 {
		f.Invalid(p, n, fielderrors.NotNegative)
	}
}

func (f *errorList) positive(p *fielderrors.Location, n int64) {
	if n <= 0 {
		f.Invalid(p, n, notPositive)
	}
}

// within demands a number between two others.
func (f *errorList) within(p *fielderrors.Location, n, low, high int64) {
	if n < low || n > high {
		f.Invalid(p, n, utilvalidation.InclusiveRangeError(int(low), int(high)))
	}
}

// id demands the valid ID of a user or a group, if it is set.
func (f *errorList) id(p *fielderrors.Location, v object.Value) {
	f.within(p, v.Int(), 0, maxID)
}

func (f *errorList) port(p *fielderrors.Location, n int64) { f.within(p, n, 1, maxPort) }

// portOrName demands the number or the name of a port.
func (f *errorList) portOrName(p *fielderrors.Location, v object.Value) {
	if v.Kind() == object.String {
		f.Each(p, v.Str(), portNameErrors(v.Str()))
		return
	}
	f.port(p, v.Int())
}

// oneOf demands a value of an enum. An empty one is missing.
func (f *errorList) oneOf(p *fielderrors.Location, s string, supported []string) {
	if s == "" {
		f.Required(p, "")
		return
	}
	f.only(p, s, supported)
}

// only demands a value of an enum; an empty value is an unsupported one.
func (f *errorList) only(p *fielderrors.Location, s string, supported []string) {
	if !slices.Contains(supported, s) {
		f.Unsupported(p, s, supported)
	}
}

// onlyIfSet is only for a member that may be missing.
func (f *errorList) onlyIfSet(p *fielderrors.Location, v object.Value, supported []string) {
	if !v.IsNull() {
		f.only(p, v.Str(), supported)
	}
}

func portNameErrors(s string) []string {
	letter, before := false, byte('-')
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !objectmeta.IsLowerOrDigit(c) && (c != '-' || before == '-') {
			return utilvalidation.IsValidPortName(s)
		}
		letter = letter || c >= 'a'
		before = c
	}
	if letter && before != '-' && len(s) <= 15 {
		return nil
	}
	return utilvalidation.IsValidPortName(s)
}

// configKeyErrors returns why a text is not a valid key of a ConfigMap or a Secret.
func configKeyErrors(s string) []string {
	if len(s) > 0 && len(s) <= utilvalidation.DNS1123SubdomainMaxLength && s[0] != '.' {
		i := 0
		for i < len(s) && (objectmeta.IsLetterOrDigit(s[i]) || s[i] == '-' || s[i] == '_' || s[i] == '.') {
			i++
		}
		if i == len(s) {
			return nil
		}
	}
	return utilvalidation.IsConfigMapKey(s)
}

// envNameErrors returns why a text is not a valid name of an environment variable; an empty one is valid here.
func envNameErrors(s string) []string {
	i := 0
	for i < len(s) && s[i] >= ' ' && s[i] < 0x7f && s[i] != '=' {
		i++
	}
	if i == len(s) {
		return nil
	}
	return utilvalidation.IsRelaxedEnvVarName(s)
}

// labelSelector checks a selector; a null one is valid. lenient accepts invalid values, because they are stored.
func (f *errorList) labelSelector(selector object.Value, p *fielderrors.Location, lenient bool) {
	objectmeta.Labels(&f.Errors, selector.At("matchLabels"), p.To("matchLabels"))
	for i, requirement := range selector.At("matchExpressions").Items() {
		f.labelRequirement(requirement, p.To("matchExpressions").Item(i), lenient)
	}
}

// invalidSelector says whether a stored selector is invalid. An update may then leave invalid values in it.
func invalidSelector(selector object.Value) bool {
	var f errorList
	f.labelSelector(selector, nil, false)
	return len(f.List) > 0
}

func (f *errorList) labelRequirement(requirement object.Value, p *fielderrors.Location, lenient bool) {
	switch operator := text(requirement, "operator"); operator {
	case "In", "NotIn":
		if length(requirement, "values") == 0 {
			f.Required(p.To("values"), "must be specified when `operator` is 'In' or 'NotIn'")
		}
	case "Exists", "DoesNotExist":
		if length(requirement, "values") > 0 {
			f.Forbidden(p.To("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		}
	default:
		f.Invalid(p.To("operator"), fielderrors.Word(operator), notOperator)
	}
	f.keyAndValues(requirement, p, lenient)
}

// keyAndValues checks a requirement apart from its operator.
func (f *errorList) keyAndValues(requirement object.Value, p *fielderrors.Location, lenient bool) {
	f.qualified(p.To("key"), text(requirement, "key"))
	if lenient {
		return
	}
	for i, value := range requirement.At("values").Items() {
		s := value.Str()
		f.Each(p.To("values").Item(i), s, objectmeta.LabelValueErrors(s))
	}
}
