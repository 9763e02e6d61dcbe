package validation

import (
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"plinth/internal/fielderrors"
	"plinth/object"
)

const (
	maxConditionReason  = 1 << 10
	maxConditionMessage = 32 << 10
)

// conditions checks conditions of the shared type: no type is repeated, and the required fields are set.
func (f *errorList) conditions(conditions object.Value, p *fielderrors.Location) {
	var types nameSet
	for i, condition := range conditions.Items() {
		p := p.Item(i)
		kind, status, reason := text(condition, "type"), text(condition, "status"), text(condition, "reason")
		if types.add(kind) {
			f.Duplicate(p, kind)
		}
		if kind == "" {
			f.Required(p.To("type"), "is required")
		} else {
			f.qualified(p.To("type"), kind)
		}
		f.oneOf(p.To("status"), status, conditionStatuses)
		f.nonNegativeZero(p.To("observedGeneration"), number(condition, "observedGeneration"))
		if !has(condition, "lastTransitionTime") {
			f.Required(p.To("lastTransitionTime"), "")
		}
		if reason == "" {
			f.Required(p.To("reason"), "")
		} else {
			f.Each(p.To("reason"), reason, metavalidation.IsValidConditionReason(reason))
			if len(reason) > maxConditionReason {
				f.TooLong(p.To("reason"), maxConditionReason)
			}
		}
		if length(condition, "message") > maxConditionMessage {
			f.TooLong(p.To("message"), maxConditionMessage)
		}
	}
}

func (f *errorList) nonNegativeZero(p *fielderrors.Location, n int64) {
	if n < 0 {
		f.Invalid(p, n, "must be greater than or equal to zero")
	}
}
