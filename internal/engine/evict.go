package engine

import (
	"context"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/object"
)

// Eviction says how objects of a type are evicted: by a delete that budgets may refuse.
type Eviction struct {
	// Options returns the options of the delete. err refuses the body before any object is read; refusal is the error of
	// the delete itself, which is returned only if the budgets allow it.
	Options func(body object.Value, dryRun bool) (o DeleteOptions, refusal, err error)
	// Budgets names the type of the objects that may refuse evictions: PodDisruptionBudgets, in the namespace of the
	// evicted object.
	Budgets apierr.Type
	// Decide says whether the budgets allow the eviction of an object. It is a pure function of its arguments.
	Decide func(obj object.Value, budgets []object.Value, now time.Time) (Decision, error)
	// Mark returns the object with the condition DisruptionTarget, which says that it was evicted.
	Mark func(obj object.Value, now time.Time) object.Value
}

// Decision is the result of Decide if the eviction is allowed.
type Decision struct {
	// Budget is the index of the budget whose Status changes with the eviction; negative: none does.
	Budget int
	Status object.Value
}

// evict is a POST that evicts an object. The deletion and the status of the budget that allows it are one commit, on
// the condition that both objects are unchanged since the decision:
//
//	a budget allows n evictions  ⇒  at most n are committed before its status is computed anew
//
// Of two concurrent evictions that a budget allows once, the second loses the race, begins again, and is refused. The
// reference writes the budget first and then deletes the Pod. If the delete fails, the budget has been reduced for no
// eviction until its controller computes it again.
//
// The request is a create of an Eviction, and admission sees that alone. The delete that follows is one attempt of
// Delete with a draft of its own, from the steps behind admission on (remove).
func (d *draft) evict(ctx context.Context) (*Result, error) {
	e, target := d.rq.Subresource.Eviction, *d.rq
	target.Subresource = nil
	options, refusal, err := e.Options(d.body, d.dry)
	if err != nil {
		return nil, err
	}
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	begun := d.beside(&target)
	begun.operation, begun.dry = OperationDelete, d.dry || options.DryRun
	for sure := false; ; {
		n, err := begun.onto(ctx, sure)
		if err != nil {
			return nil, err
		}
		result, err := n.evicted(ctx, e, options, refusal)
		if !n.again(ctx, err, &sure) {
			return result, err
		}
	}
}

// evicted is one attempt of an eviction. The budgets are read after the object and may be newer. The commit has a
// precondition only on the budget whose status it changes. A budget that is created between the two reads and the
// commit is not seen, as in the reference.
func (d *draft) evicted(ctx context.Context, e *Eviction, o DeleteOptions, refusal error) (*Result, error) {
	if err := d.exists(); err != nil {
		return nil, err
	}
	of := d.registry.Now().Find(e.Budgets.Group, "v1", e.Budgets.Name)
	budgets, versions, err := d.list(ctx, of)
	if err != nil {
		return nil, err
	}
	decision, err := e.Decide(d.old, budgets, d.now)
	switch {
	case err != nil:
		return nil, err
	case refusal != nil:
		return nil, refusal
	}
	// The budget changes in the same commit as the Pod, on the condition that neither has changed.
	if decision.Budget >= 0 {
		budget, err := d.otherStatus(ctx, of, StatusOfOther{Version: versions[decision.Budget], Status: decision.Status})
		if err != nil {
			return nil, err
		}
		d.effects.others = append(d.effects.others, budget)
	}
	d.obj = d.old
	// As in the reference, a dry run does not set the condition.
	if !d.dry {
		d.obj = e.Mark(d.old, d.now)
	}
	if err := d.rq.deletable(d.live, o); err != nil {
		return nil, err
	}
	if _, err := d.drop(ctx, o); err != nil {
		return nil, err
	}
	return &Result{Status: done(), Created: true}, nil
}

// list returns the objects of a type in the namespace of the draft, as they are now, with their versions; both are
// empty if the type is not served. An object that cannot be read is an error.
func (d *draft) list(ctx context.Context, r *Resource) (objects []object.Value, versions []*store.Version, err error) {
	if r == nil {
		return nil, nil, nil
	}
	if err := d.fresh(ctx); err != nil {
		return nil, nil, err
	}
	snapshot, err := d.store.Snapshot(0)
	if err != nil {
		return nil, nil, commitFailed(err)
	}
	snapshot.Ascend(r.Stored.Path, r.prefix(d.rq.Namespace), "", func(v *store.Version) bool {
		var obj object.Value
		if obj, _, err = r.live(ctx, v); err == nil {
			objects, versions = append(objects, obj), append(versions, v)
		}
		return err == nil
	})
	return objects, versions, err
}
