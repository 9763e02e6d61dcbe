package validation

import (
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"plinth/object"
)

const (
	maxConditionReason  = 1 << 10
	maxConditionMessage = 32 << 10
)

// conditions checks conditions of the shared type: each type once, and everything said.
func (f *faults) conditions(conditions object.Value, p *place) {
	var types seen
	for i, condition := range conditions.Items() {
		p := p.item(i)
		kind, status, reason := text(condition, "type"), text(condition, "status"), text(condition, "reason")
		if types.add(kind) {
			f.duplicate(p, kind)
		}
		if kind == "" {
			f.required(p.to("type"), "is required")
		} else {
			f.qualified(p.to("type"), kind)
		}
		f.oneOf(p.to("status"), status, conditionStatuses)
		f.nonNegativeZero(p.to("observedGeneration"), number(condition, "observedGeneration"))
		if !has(condition, "lastTransitionTime") {
			f.required(p.to("lastTransitionTime"), "")
		}
		if reason == "" {
			f.required(p.to("reason"), "")
		} else {
			f.each(p.to("reason"), reason, metavalidation.IsValidConditionReason(reason))
			if len(reason) > maxConditionReason {
				f.tooLong(p.to("reason"), maxConditionReason)
			}
		}
		if length(condition, "message") > maxConditionMessage {
			f.tooLong(p.to("message"), maxConditionMessage)
		}
	}
}

func (f *faults) nonNegativeZero(p *place, n int64) {
	if n < 0 {
		f.invalid(p, n, "must be greater than or equal to zero")
	}
}
