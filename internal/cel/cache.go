package cel

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	limits "k8s.io/apiserver/pkg/apis/cel"

	"plinth/internal/recent"
	"plinth/object"
	"plinth/schema"
)

// Rules are the rules of one custom type. They are compiled on first use, and may be used concurrently.
type Rules struct{ compiled *Lazy[ruled] }

// Compile returns the rules of a custom type without a cache. They are compiled on first use, and then kept.
func Compile(t *schema.Type) *Rules { return (*Cache)(nil).Rules(func() *schema.Type { return t }) }

// Validate runs the rules on an object, or on the object that replaces old; old is null for a new one. If a rule
// without oldSelf fails on a part that the update does not change, it returns a warning in place of an error.
//
// found has the errors that the schema found in the object. Rules are not run if a value has the wrong type, is
// missing or is too long, because the estimated cost of rules holds only for objects without such errors. One error
// then says so. A cancelled context is an error, too.
func (r *Rules) Validate(ctx context.Context, obj, old object.Value, found field.ErrorList) (errs field.ErrorList,
	warnings []string) {
	root := r.compiled.Get()
	if root == nil {
		return nil, nil
	}
	if slices.ContainsFunc(found, blocks) {
		return field.ErrorList{field.Invalid(nil, nil,
			"some validation rules were not checked because the object was invalid; "+
				"correct the existing errors to complete validation")}, nil
	}
	if c := r.compiled.cache; c != nil && c.Observe.Evaluated != nil {
		began := time.Now()
		defer func() { c.Observe.Evaluated(time.Since(began)) }()
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
	root := r.compiled.Get()
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

// Lazy is compiled from expressions on first use. It may be used concurrently.
type Lazy[T any] struct {
	compile  func() (of *T, expressions int)
	cache    *Cache // nil: it is kept
	compiled atomic.Pointer[lazily[T]]
	used     atomic.Bool // since the cache's last sweep
}

// lazily is the compiled form of a Lazy, which may be nil.
type lazily[T any] struct{ of *T }

// NewLazy returns a Lazy whose compiled form c may drop; it is compiled again on next use. With a nil c it is kept.
// compile returns the number of expressions, too: 0 if it takes no memory.
func NewLazy[T any](c *Cache, compile func() (of *T, expressions int)) *Lazy[T] {
	return &Lazy[T]{compile: compile, cache: c}
}

// NewSharedLazy is NewLazy for what is compiled from a text alone: a cache with Sharing returns the same Lazy for equal
// texts.
func NewSharedLazy[T any](c *Cache, text []byte, compile func() (of *T, expressions int)) *Lazy[T] {
	if c == nil || !c.Sharing {
		return NewLazy(c, compile)
	}
	var none *T
	k := sharedText{fmt.Sprintf("%T", none), sha256.Sum256(text)}
	if l, ok := c.shared.Get(k); ok {
		return l.(*Lazy[T])
	}
	l := NewLazy(c, compile)
	c.shared.Set(k, l, 1)
	return l
}

// sharedText identifies a text, and what is compiled of it. Owners of planes write the texts, so no two may be taken
// for one.
type sharedText struct {
	typ string
	sum [sha256.Size]byte
}

// Get returns the compiled form.
func (l *Lazy[T]) Get() *T {
	if !l.used.Load() {
		l.used.Store(true)
	}
	made := l.compiled.Load()
	if made != nil {
		return made.of
	}
	began := time.Now()
	of, expressions := l.compile()
	if c := l.cache; c != nil && c.Observe.Compiled != nil && expressions > 0 {
		c.Observe.Compiled(time.Since(began))
	}
	made = &lazily[T]{of}
	if !l.compiled.CompareAndSwap(nil, made) {
		// Another caller was faster, or the cache has dropped it since. This value is right in both cases.
		if other := l.compiled.Load(); other != nil {
			return other.of
		}
	} else if l.cache != nil && expressions > 0 {
		l.cache.add(l, expressions)
	}
	return of
}

// Compiled says whether the compiled form is there.
func (l *Lazy[T]) Compiled() bool { return l.compiled.Load() != nil }

func (l *Lazy[T]) drop() { l.compiled.Store(nil) }

func (l *Lazy[T]) wasUsed() bool { return l.used.Swap(false) }

// Cache bounds how many expressions are compiled, and drops those that are not used. The zero Cache is ready to use.
//
// Invariant: Σ held.count ≤ most, or only one is held.
//
// A Lazy does not belong to the cache: it only clears the compiled form, which is compiled again on next use. Without a
// bound, a cluster with thousands of definitions would keep every rule that was ever used: 60 KiB each.
type Cache struct {
	// Observe and Sharing are set before the cache is used. With Sharing it is one for all planes of a process, and
	// expressions of equal texts are compiled once (NewSharedLazy).
	Observe Observe
	Sharing bool
	shared  recent.Cache[sharedText, any]

	mu    sync.Mutex
	all   []held // the compiled ones, oldest first
	timer *time.Timer
	// closed: no timer is started any more, which would keep all that the compiled forms refer to until it fires.
	closed bool
}

// Observe are functions that are told what was done with the expressions of a cache. Nil ones are not called.
type Observe struct {
	Compiled  func(took time.Duration) // all expressions of one Lazy
	Evaluated func(took time.Duration) // all rules of a custom type, on one object
}

// Compiled is how many expressions are compiled.
func (c *Cache) Compiled() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count()
}

// Close ends the sweeps. The cache stays usable.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// held is a compiled Lazy, and the number of its expressions.
type held struct {
	droppable
	count int
}

type droppable interface {
	drop()
	wasUsed() bool // since the last call
}

const (
	// idle is the time between two sweeps.
	idle = 2 * time.Minute
	// most is how many expressions stay compiled. A rule takes up to 60 KiB, most of it for the environment of its
	// place.
	most = 512
)

// Rules returns the rules of a custom type. t is called when they are compiled, and its result is not kept when the
// compiled rules are dropped.
func (c *Cache) Rules(t func() *schema.Type) *Rules {
	return &Rules{NewLazy(c, func() (*ruled, int) {
		of := t()
		if !hasRules(of) {
			return nil, 0
		}
		shapes := shapes{}
		root := shapes.build(of, shapes.of(of))
		return root, root.count()
	})}
}

// add records that expressions have been compiled, and drops others if there are too many.
func (c *Cache) add(l droppable, count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count()+count > most {
		c.sweep()
	}
	for len(c.all) > 0 && c.count()+count > most {
		c.all[0].drop()
		c.all = slices.Delete(c.all, 0, 1)
	}
	c.all = append(c.all, held{l, count})
	if c.timer == nil && !c.closed {
		c.timer = time.AfterFunc(idle, c.dropIdle)
	}
}

func (c *Cache) count() (n int) {
	for _, held := range c.all {
		n += held.count
	}
	return n
}

// dropIdle drops what is idle. It runs again after a while if anything is left.
func (c *Cache) dropIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep()
	switch {
	case c.timer == nil: // closed meanwhile
	case len(c.all) > 0:
		c.timer.Reset(idle)
	default:
		c.timer = nil
	}
}

// sweep drops what was not used since the last sweep.
func (c *Cache) sweep() {
	kept := c.all[:0]
	for _, held := range c.all {
		if held.wasUsed() {
			kept = append(kept, held)
		} else {
			held.drop()
		}
	}
	clear(c.all[len(kept):])
	c.all = kept
}
