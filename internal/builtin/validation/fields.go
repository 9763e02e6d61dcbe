package validation

import (
	"slices"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/object"
)

// What follows are rules for single fields that many kinds have.

const (
	notPositive = "must be greater than zero"
	notInteger  = "must be an integer"
	notOperator = "not a valid selector operator"
	moreVolumes = "may not specify more than 1 volume type"
	maxPort     = 65535
	maxID       = 1<<31 - 1
)

func (f *faults) label(p *place, s string)     { f.each(p, s, labelFaults(s)) }
func (f *faults) subdomain(p *place, s string) { f.each(p, s, subdomainFaults(s)) }
func (f *faults) qualified(p *place, s string) { f.each(p, s, qualifiedFaults(s)) }

// requiredLabel demands a DNS label.
func (f *faults) requiredLabel(p *place, s string) {
	if s == "" {
		f.required(p, "")
		return
	}
	f.label(p, s)
}

// requiredText demands that a text is not empty.
func (f *faults) requiredText(p *place, s string) {
	if s == "" {
		f.required(p, "")
	}
}

func (f *faults) nonNegative(p *place, n int64) {
	if n < 0 {
		f.invalid(p, n, notNegative)
	}
}

func (f *faults) positive(p *place, n int64) {
	if n <= 0 {
		f.invalid(p, n, notPositive)
	}
}

// within demands a number between two others.
func (f *faults) within(p *place, n, low, high int64) {
	if n < low || n > high {
		f.invalid(p, n, utilvalidation.InclusiveRangeError(int(low), int(high)))
	}
}

// id demands the ID of a user or a group, where there is one.
func (f *faults) id(p *place, v object.Value) {
	if !v.IsNull() {
		f.within(p, v.Int(), 0, maxID)
	}
}

func (f *faults) port(p *place, n int64) { f.within(p, n, 1, maxPort) }

// portOrName demands the number or the name of a port.
func (f *faults) portOrName(p *place, v object.Value) {
	if v.Kind() == object.String {
		f.each(p, v.Str(), portNameFaults(v.Str()))
		return
	}
	f.port(p, v.Int())
}

// oneOf demands a value of an enum. An empty one is missing.
func (f *faults) oneOf(p *place, s string, supported []string) {
	if s == "" {
		f.required(p, "")
		return
	}
	f.only(p, s, supported)
}

// only demands a value of an enum; an empty one is not supported like any other that is not among them.
func (f *faults) only(p *place, s string, supported []string) {
	if !slices.Contains(supported, s) {
		f.unsupported(p, s, supported)
	}
}

// onlyIfSet is only for a member that may be missing.
func (f *faults) onlyIfSet(p *place, v object.Value, supported []string) {
	if !v.IsNull() {
		f.only(p, v.Str(), supported)
	}
}

func portNameFaults(s string) []string {
	letter, before := false, byte('-')
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !lowerOrDigit(c) && (c != '-' || before == '-') {
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

// configKeyFaults says what keeps a text from being a key of a ConfigMap or a Secret.
func configKeyFaults(s string) []string {
	if len(s) > 0 && len(s) <= utilvalidation.DNS1123SubdomainMaxLength && s[0] != '.' {
		i := 0
		for i < len(s) && (letterOrDigit(s[i]) || s[i] == '-' || s[i] == '_' || s[i] == '.') {
			i++
		}
		if i == len(s) {
			return nil
		}
	}
	return utilvalidation.IsConfigMapKey(s)
}

// envNameFaults says what keeps a text from being the name of an environment variable.
func envNameFaults(s string) []string {
	i := 0
	for i < len(s) && s[i] >= ' ' && s[i] < 0x7f && s[i] != '=' {
		i++
	}
	if i == len(s) && i > 0 {
		return nil
	}
	return utilvalidation.IsRelaxedEnvVarName(s)
}

// labelSelector checks a selector; a null one is good. lenient lets bad values through, because they are stored.
func (f *faults) labelSelector(selector object.Value, p *place, lenient bool) {
	if selector.IsNull() {
		return
	}
	f.labels(selector.At("matchLabels"), p.to("matchLabels"))
	for i, requirement := range selector.At("matchExpressions").Items() {
		f.labelRequirement(requirement, p.to("matchExpressions").item(i), lenient)
	}
}

func (f *faults) labelRequirement(requirement object.Value, p *place, lenient bool) {
	values := requirement.At("values")
	switch operator := text(requirement, "operator"); operator {
	case "In", "NotIn":
		if values.Len() == 0 {
			f.required(p.to("values"), "must be specified when `operator` is 'In' or 'NotIn'")
		}
	case "Exists", "DoesNotExist":
		if values.Len() > 0 {
			f.forbidden(p.to("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		}
	default:
		f.invalid(p.to("operator"), word(operator), notOperator)
	}
	f.qualified(p.to("key"), text(requirement, "key"))
	if lenient {
		return
	}
	for i, value := range values.Items() {
		s := value.Str()
		f.each(p.to("values").item(i), s, labelValueFaults(s))
	}
}
