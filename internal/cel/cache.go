package cel

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	limits "k8s.io/apiserver/pkg/apis/cel"

	"plinth/object"
	"plinth/schema"
)

// Rules are the rules of one custom type. They are compiled on first use, and may be used concurrently.
type Rules struct {
	t        func() *schema.Type
	cache    *Cache
	compiled atomic.Pointer[compiledRules]
	used     atomic.Bool // since the cache's last sweep
}

// compiledRules is the compiled form of Rules.
type compiledRules struct {
	root  *place
	rules int // at and below root
}

// Compile returns the rules of a custom type without a cache. They are compiled on first use, and then kept.
func Compile(t *schema.Type) *Rules { return &Rules{t: func() *schema.Type { return t }} }

// Validate runs the rules on an object, or on the object that replaces old; old is null for a new one. If a rule
// without oldSelf fails on a part that the update does not change, it returns a warning in place of an error.
//
// found has the errors that the schema found in the object. Rules are not run if a value has the wrong type, is
// missing or is too long, because the estimated cost of rules holds only for objects without such errors. One error
// then says so. A cancelled context is an error, too.
func (r *Rules) Validate(ctx context.Context, obj, old object.Value, found field.ErrorList) (errs field.ErrorList,
	warnings []string) {
	root := r.root()
	if root == nil {
		return nil, nil
	}
	if slices.ContainsFunc(found, blocks) {
		return field.ErrorList{field.Invalid(nil, nil,
			"some validation rules were not checked because the object was invalid; "+
				"correct the existing errors to complete validation")}, nil
	}
	d := &validation{ctx: ctx, budget: limits.RuntimeCELCostBudget}
	var pair ratchet
	if !old.IsNull() {
		pair.here = schema.Correlate(root.t, obj, old)
	}
	d.at(root, nil, obj, old, pair)
	return d.errs, d.warnings
}

// blocks says whether rules are not run because of this error.
func blocks(err *field.Error) bool {
	switch err.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
		field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}

// Budget is the largest cost of all rules of one object, or of all defaults of one schema.
const Budget int64 = limits.RuntimeCELCostBudget

// ValidateDefault runs the rules on the default at a schema node, whose path is given: as an update without a change,
// and if there is no error as a new value. It returns the remaining budget, which is negative if the budget is
// exceeded.
func (r *Rules) ValidateDefault(ctx context.Context, path *field.Path, v object.Value,
	budget int64) (field.ErrorList, int64) {
	root := r.root()
	if root == nil {
		return nil, budget
	}
	run := func(old object.Value) (field.ErrorList, int64) {
		d := &validation{ctx: ctx, root: path, budget: budget}
		d.at(root, nil, v, old, ratchet{})
		if d.over {
			return d.errs, -1
		}
		return d.errs, d.budget
	}
	errs, left := run(v)
	if len(errs) == 0 {
		var alone int64
		errs, alone = run(object.Nil)
		left = min(left, alone)
	}
	return errs, left
}

// root returns the compiled rules; nil if the type has none.
func (r *Rules) root() *place {
	if !r.used.Load() {
		r.used.Store(true)
	}
	m := r.compiled.Load()
	if m == nil {
		m = &compiledRules{}
		if t := r.t(); hasRules(t) {
			shapes := shapes{}
			m.root = shapes.build(t, shapes.of(t))
			m.rules = m.root.count()
		}
		if !r.compiled.CompareAndSwap(nil, m) {
			// Another caller was faster, or the cache has dropped the rules since. This value is right in both cases.
			if other := r.compiled.Load(); other != nil {
				m = other
			}
		} else if r.cache != nil && m.root != nil {
			r.cache.add(r, m.rules)
		}
	}
	return m.root
}

// Cache bounds how many rules are compiled, and drops those that are not used. The zero Cache is ready to use.
//
// Invariant: Σ held.count ≤ most, or only one is held.
//
// Rules do not belong to the cache: it only clears their compiled form, and they compile again on next use. Without a
// bound, a cluster with thousands of definitions would keep every rule that was ever used: 60 KiB each.
type Cache struct {
	mu    sync.Mutex
	rules []held // the compiled ones, oldest first
	timer *time.Timer
}

// held is the rules of one type.
type held struct {
	*Rules
	count int
}

const (
	// idle is the time between two sweeps.
	idle = 2 * time.Minute
	// most is how many rules stay compiled. One takes up to 60 KiB, most of it for the environment of its place.
	most = 512
)

// Rules returns the rules of a custom type. t is called when they are compiled, and its result is not kept when the
// compiled rules are dropped.
func (c *Cache) Rules(t func() *schema.Type) *Rules { return &Rules{t: t, cache: c} }

// add records that rules have been compiled, and drops others if there are too many.
func (c *Cache) add(r *Rules, count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count()+count > most {
		c.sweep()
	}
	for len(c.rules) > 0 && c.count()+count > most {
		c.rules[0].compiled.Store(nil)
		c.rules = slices.Delete(c.rules, 0, 1)
	}
	c.rules = append(c.rules, held{r, count})
	if c.timer == nil {
		c.timer = time.AfterFunc(idle, c.dropIdle)
	}
}

func (c *Cache) count() (n int) {
	for _, r := range c.rules {
		n += r.count
	}
	return n
}

// dropIdle drops idle rules. It runs again after a while if any are left.
func (c *Cache) dropIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sweep(); len(c.rules) > 0 {
		c.timer.Reset(idle)
	} else {
		c.timer = nil
	}
}

// sweep drops the rules that were not used since the last sweep.
func (c *Cache) sweep() {
	kept := c.rules[:0]
	for _, r := range c.rules {
		if r.used.Swap(false) {
			kept = append(kept, r)
		} else {
			r.compiled.Store(nil)
		}
	}
	clear(c.rules[len(kept):])
	c.rules = kept
}
