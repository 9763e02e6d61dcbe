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

// Rules are the rules of one custom type. They are compiled when values are validated, and shared by all who validate.
type Rules struct {
	t     func() *schema.Type
	cache *Cache
	made  atomic.Pointer[made]
	used  atomic.Bool // since the cache looked last
}

// made is what has been compiled of Rules.
type made struct {
	root  *place
	rules int // below root
}

// Compile makes the rules of a custom type that are kept as long as the Rules are. Nothing is compiled yet.
func Compile(t *schema.Type) *Rules { return &Rules{t: func() *schema.Type { return t }} }

// Validate runs the rules on an object, or on the object that is to replace old; old is null for a new one. What is
// wrong with a part that the update does not change is a warning.
//
// found is what else is wrong with the object, which is to be known before: rules are not run on one whose values are
// of other types than the schema's, are missing, or are longer than it allows. What rules cost is bounded on that
// condition alone. One error then says that they have not been run. The end of the context is an error as well.
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

// blocks says of an error whether rules are not run because of it.
func blocks(err *field.Error) bool {
	switch err.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
		field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}

// Budget is what the rules of one object may cost together, or those of all defaults of one schema.
const Budget int64 = limits.RuntimeCELCostBudget

// ValidateDefault runs the rules on the default of a schema node, which path leads to: as a value that replaces
// itself, and, if that is right, as a new one. It returns what is left of the budget, which is negative when it is
// used up.
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

// root is the compiled rules; nil if the type has none.
func (r *Rules) root() *place {
	if !r.used.Load() {
		r.used.Store(true)
	}
	m := r.made.Load()
	if m == nil {
		m = &made{}
		if t := r.t(); hasRules(t) {
			shapes := shapes{}
			m.root = shapes.build(t, shapes.of(t))
			m.rules = m.root.count()
		}
		if !r.made.CompareAndSwap(nil, m) {
			// Somebody else was faster, or it has just been dropped again: this one serves this caller either way.
			if other := r.made.Load(); other != nil {
				m = other
			}
		} else if r.cache != nil && m.root != nil {
			r.cache.add(r, m.rules)
		}
	}
	return m.root
}

// Cache lets go of compiled rules that are not used. It holds a bounded number of them; the zero Cache is ready.
//
//	Σ held.count ≤ most, or one alone is held
type Cache struct {
	mu    sync.Mutex
	rules []held // those that are compiled, in the order in which they were
	timer *time.Timer
}

// held is the rules of one type.
type held struct {
	*Rules
	count int
}

const (
	// idle is how often the cache looks which rules have not been used since it looked last.
	idle = 2 * time.Minute
	// most is how many rules stay compiled: one takes up to 60 KiB, most of it an environment for each place.
	most = 512
)

// Rules makes the rules of a custom type, which is asked for when they are compiled, and is not held when they are let
// go.
func (c *Cache) Rules(t func() *schema.Type) *Rules { return &Rules{t: t, cache: c} }

// add notes that rules have been compiled.
func (c *Cache) add(r *Rules, count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count()+count > most {
		c.sweep()
	}
	for len(c.rules) > 0 && c.count()+count > most {
		c.rules[0].made.Store(nil)
		c.rules = slices.Delete(c.rules, 0, 1)
	}
	c.rules = append(c.rules, held{r, count})
	if c.timer == nil {
		c.timer = time.AfterFunc(idle, c.look)
	}
}

func (c *Cache) count() (n int) {
	for _, r := range c.rules {
		n += r.count
	}
	return n
}

// look drops what is idle, and comes back as long as there is something left.
func (c *Cache) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sweep(); len(c.rules) > 0 {
		c.timer.Reset(idle)
	} else {
		c.timer = nil
	}
}

// sweep drops the rules that have not been used since the last sweep.
func (c *Cache) sweep() {
	kept := c.rules[:0]
	for _, r := range c.rules {
		if r.used.Swap(false) {
			kept = append(kept, r)
		} else {
			r.made.Store(nil)
		}
	}
	clear(c.rules[len(kept):])
	c.rules = kept
}
