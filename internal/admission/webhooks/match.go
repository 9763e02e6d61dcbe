package webhooks

import (
	"context"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"plinth/internal/admission/hooks"
	"plinth/internal/apierr"
	"plinth/internal/cel"
	"plinth/internal/engine"
)

// candidate is a hook whose rules match, with the type in whose version it gets the object, and its number in the set.
type candidate struct {
	*hook
	in    *engine.Resource
	index int
}

// candidates returns the hooks whose rules match, in their order.
func (s *set) candidates(types *engine.Types, u hooks.URL) []candidate {
	if len(s.byName) == 0 {
		return nil
	}
	found, ok := s.matched.Get(u)
	if ok {
		return found
	}
	for i, h := range s.all() {
		if in := hooks.Match(h.rules, h.equivalent, types, u, nil); in != nil {
			found = append(found, candidate{h, in, i})
		}
	}
	s.matched.Set(u, found, 1)
	return found
}

// meets says whether the match conditions of a hook hold. An error of one of them counts only if no other is false;
// then the failure policy decides whether the request is refused or the hook is not called.
func (p *Plugin) meets(ctx context.Context, h *hook, q *hooks.Question) (bool, error) {
	conditions := h.conditions()
	if len(conditions) == 0 {
		return true, nil
	}
	began := time.Now()
	holds, failed, stop := scope.Evaluate(ctx, input(q), cel.MatchConditionsBudget).Holds(conditions)
	if holds && len(failed) == 0 {
		return true, nil
	}
	p.metrics.ConditionsRun(h.name, p.mutating, q.Operation, len(failed), time.Since(began))
	if stop != nil {
		holds, failed = true, []error{stop}
	}
	if holds && !h.ignore { // no condition is false, but some are errors
		return false, apierr.NewForbidden(q.Request.Resource.Type(), q.Name, utilerrors.NewAggregate(failed).Error())
	}
	p.metrics.ConditionsExcluded(h.name, p.mutating, q.Operation)
	return false, nil
}

// scope is that of match conditions.
var scope = cel.NewScope(false, false)
