package fairness

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"plinth/internal/access"
	"plinth/internal/execution"
	"plinth/internal/store"
	"plinth/internal/view"
)

// Config is what a Fairness needs.
type Config struct {
	// Share is what the plane has of the process; nil: it has Seats and Places of its own.
	Share *Share

	Seats int // of all levels together
	// Places bounds how many requests execute at one time; 0: twice the number of processors. PlacesOfOne bounds those of
	// one flow while other flows have requests; 0: one fewer than there are processors, at least one.
	Places, PlacesOfOne int
	// The collections of the two types. Nil: there are only the mandatory objects.
	Schemas, Levels *store.Collection
}

// Fairness classifies requests and gives them seats. Its methods may be called concurrently.
//
// The configuration is as new as the store: each request compares the values of two views with those that the newest
// configuration was made of. So an object takes effect with the next request.
//
//	newest.schemas, newest.levels = the values of the views when it was made
//	levels has the levels of newest, and those that have lost their object and still have requests
type Fairness struct {
	share   *Share // nil: none
	seats   int
	places  *execution.Share
	kinds   *kinds
	schemas func() (*schemaSet, error)
	specs   func() (*levelSet, error)
	newest  atomic.Pointer[config]

	mu       sync.Mutex
	levels   map[string]*Level
	total    int     // Σ nominal of levels
	fraction float64 // the factor of the last division
}

// config is an immutable configuration.
type config struct {
	schemas *schemaSet
	levels  *levelSet
	matches []match // in the order of precedence; the last one takes all that no other one takes
}

// match is a flow schema and its level.
type match struct {
	schema *Schema
	level  *Level
	use    *use
	exempt bool
	queues bool // the level has more than one, so that flows matter to it
	band   *execution.Band
	uid    []string
	widest int
}

// New makes a Fairness.
func New(c Config) *Fairness {
	f := &Fairness{share: c.Share, seats: c.Seats, kinds: newKinds(time.Now()), levels: map[string]*Level{}}
	if c.Share == nil {
		f.places = newLimiter(c.Places, c.PlacesOfOne).Share(1)
	} else {
		f.places, f.seats = c.Share.places, c.Share.seats()
		c.Share.attach(f)
	}
	f.schemas = func() (*schemaSet, error) { return noSchemas, nil }
	f.specs = func() (*levelSet, error) { return noLevels, nil }
	if c.Schemas != nil {
		f.schemas = view.New(c.Schemas, compileSchemas).Now
	}
	if c.Levels != nil {
		f.specs = view.New(c.Levels, compileLevels).Now
	}
	return f
}

// Close ends the use of its Share. Requests may be under way, and give back what they have.
func (f *Fairness) Close() {
	if f.share != nil {
		f.share.detach(f)
	}
}

var (
	noSchemas = &schemaSet{}
	noLevels  = &levelSet{}
)

// The mandatory objects, for when they are missing in the store: nobody can lock everybody out by deleting them.
var (
	everything = func(groups ...string) []rule {
		r := rule{
			resources: []resourceRule{{verbs: names{all: true}, groups: names{all: true}, resources: names{all: true},
				namespaces: names{all: true}, clusterScope: true}},
			paths: []pathRule{{names{all: true}, []string{"*"}}},
		}
		for _, g := range groups {
			r.subjects = append(r.subjects, subject{kind: "Group", name: g})
		}
		return []rule{r}
	}
	mandatorySchemas = map[string]*Schema{
		Exempt: {Name: Exempt, Level: Exempt, precedence: 1, rules: everything(access.Masters), uidHeader: []string{""}},
		CatchAll: {Name: CatchAll, Level: CatchAll, precedence: 10000, method: "ByUser", uidHeader: []string{""},
			rules: everything(access.Unauthenticated, access.Authenticated)},
	}
	mandatoryLevels = map[string]*levelSpec{
		Exempt:   {Name: Exempt, exempt: true, shape: Shape{Queues: -1}},
		CatchAll: {Name: CatchAll, shares: 5},
	}
)

// now returns the current configuration.
func (f *Fairness) now() *config {
	schemas, _ := f.schemas() // see Ready
	levels, _ := f.specs()
	if c := f.newest.Load(); c != nil && c.schemas == schemas && c.levels == levels {
		return c
	}
	return f.digest()
}

// Ready returns an error if a FlowSchema or a PriorityLevelConfiguration cannot be read. The requests that the object
// is for are classified by those that can be read. In the reference only the mandatory objects have effect then, so
// that all users share one level.
func (f *Fairness) Ready() error {
	_, noSchema := f.schemas()
	_, noLevel := f.specs()
	return errors.Join(noSchema, noLevel)
}

// digest makes the current configuration: levels are added, changed, or left to end, and the seats are divided anew.
func (f *Fairness) digest() *config {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &config{}
	c.schemas, _ = f.schemas()
	c.levels, _ = f.specs()
	if last := f.newest.Load(); last != nil && c.schemas == last.schemas && c.levels == last.levels {
		return last
	}
	specs := maps.Clone(c.levels.all)
	if specs == nil {
		specs = map[string]*levelSpec{}
	}
	for name, spec := range mandatoryLevels {
		if specs[name] != nil {
			continue
		}
		if held := f.levels[name]; held != nil { // its object is gone; it goes on as it was
			spec = held.spec
		}
		specs[name] = spec
	}
	now := time.Now()
	for name, spec := range specs {
		l := f.levels[name]
		if l == nil {
			l = newLevel(now, spec, f.places.Band(), f.kinds, f.share)
			f.levels[name] = l
		}
		l.spec, l.quiescing, l.uidHeader = spec, false, []string{spec.UID}
	}
	for name, l := range f.levels {
		if specs[name] == nil {
			l.quiescing = true
		}
	}
	f.assign()
	for _, s := range withMandatory(c.schemas.all, specs) {
		l := f.levels[s.Level]
		c.matches = append(c.matches, match{schema: s, level: l, use: l.useOf(s.Name), exempt: l.unbounded(),
			queues: l.shape().Queues > 1, band: l.band, uid: l.uidHeader, widest: l.widest})
	}
	used := map[*use]bool{}
	for _, m := range c.matches {
		used[m.use] = true
	}
	for _, l := range f.levels {
		l.forget(used)
	}
	f.newest.Store(c)
	return c
}

// withMandatory returns the schemas whose levels exist, with the mandatory ones.
func withMandatory(all []*Schema, specs map[string]*levelSpec) []*Schema {
	usable := make([]*Schema, 0, len(all)+2)
	found := map[string]bool{}
	for _, s := range all {
		if specs[s.Level] != nil {
			usable = append(usable, s)
			found[s.Name] = true
		}
	}
	if !found[Exempt] {
		usable = slices.Insert(usable, 0, mandatorySchemas[Exempt])
	}
	if !found[CatchAll] {
		usable = append(usable, mandatorySchemas[CatchAll])
	}
	return usable
}

// widestShare bounds the estimate of one request, as a part of the seats of its level.
const widestShare = 0.15

// assign computes the seats that the levels have by their configuration, removes those that have ended, and divides the
// seats. The caller holds mu.
//
//	nominal = ⌈ seats · shares / Σ shares ⌉    least = nominal − what it may lend    most = nominal + what it may borrow
//
// No request is estimated wider than widestShare of its level, nor so wide that a flow could not have one in each queue
// of its hand: a wider one would wait until nearly all others of the level have ended.
func (f *Fairness) assign() {
	var shares float64
	for name, l := range f.levels {
		if l.quiescing && l.idle() {
			delete(f.levels, name)
			continue
		}
		shares += float64(l.spec.shares)
	}
	f.total = 0
	if f.share != nil {
		f.seats = f.share.seats()
	}
	queued := 0
	for _, l := range f.levels {
		l.nominal = 0
		if shares > 0 {
			l.nominal = int(math.Ceil(float64(f.seats) * float64(l.spec.shares) / shares))
		}
		lendable := int(math.Round(float64(l.nominal) * float64(l.spec.lendable) / 100))
		l.least, l.most = l.nominal-lendable, l.nominal+f.seats
		if percent := l.spec.borrowing; percent != nil {
			l.most = l.nominal + int(math.Round(float64(l.nominal)*float64(*percent)/100))
		}
		f.total += l.nominal
		l.weigh(l.nominal)
		if l.widest = 0; l.spec.shape.Queues > 0 {
			queued += l.spec.shape.Queues * l.spec.shape.Length
			l.widest = max(1, min(int(math.Ceil(float64(l.nominal)*widestShare)), l.nominal/l.spec.shape.HandSize))
		}
		if l.current < 0 { // new
			l.current = l.nominal - lendable/2
		}
	}
	for _, l := range f.levels {
		if l.spec.exempt && !l.unbounded() {
			l.weigh(f.total)
		}
	}
	f.kinds.setLimits(time.Now(), queued, f.total)
	f.divide()
}

// smoothing is how much of the demand of earlier periods remains after one: half of it after five minutes.
const smoothing = 0.977

// divide divides the seats anew by the demand since the last call: levels lend what they do not need, and borrow from
// those. The caller holds mu.
//
// The problem: what the levels will want in the next period is not known. By the demand of the last one alone, a level
// that has rested for ten seconds would lend its seats, and have to wait for the next period when its requests come
// back. So its demand is smoothed: it rises at once, to what was wanted most of the time (the mean and one standard
// deviation), and falls to its half in five minutes.
//
//	smoothed = max(envelope, smoothing · smoothed + (1 − smoothing) · envelope),  envelope = mean + deviation
//	lowest   = what it has used at most in the last period, between least and nominal
//	least ≤ current ≤ most, for each level that has a limit
//
// First the exempt level gets what it has used at most. If the others cannot all have least, each has least all the
// same; if they cannot all have lowest, each gets the same part of what lies between the two. Otherwise the seats are
// divided in proportion to the targets (function divide).
func (f *Fairness) divide() {
	left, least, low := f.total, 0, 0
	var limited []*Level
	var wants []want
	for _, l := range f.sorted() {
		l.last = l.observe()
		if l.last.seconds > 0 {
			envelope := l.last.mean + l.last.deviation
			l.smoothed = max(envelope, smoothing*l.smoothed+(1-smoothing)*envelope)
		}
		highest := int(math.Round(l.last.highest))
		if l.spec.exempt {
			l.current = max(l.least, highest)
			left -= l.current
			continue
		}
		lowest := max(l.least, min(l.nominal, highest))
		l.target = max(float64(lowest), l.smoothed)
		limited = append(limited, l)
		wants = append(wants, want{l.target, float64(lowest), float64(l.most)})
		least, low = least+l.least, low+lowest
	}
	f.fraction = 0
	switch {
	case left <= least:
		for _, l := range limited {
			l.current = l.least
		}
	case left <= low:
		part := float64(left-least) / float64(low-least)
		for i, l := range limited {
			l.current = l.least + int(math.Round((wants[i].low-float64(l.least))*part))
		}
	default:
		if parts, fraction, err := divide(f.total, wants); err == nil { // otherwise all stay as they are
			f.fraction = fraction
			for i, l := range limited {
				l.current = int(math.Round(parts[i]))
			}
		}
	}
	for _, l := range f.levels {
		limit := l.current
		if l.spec.exempt && !l.unbounded() {
			limit = f.seats
		}
		shape := withKept(l.shape(), limit)
		shape.Share = int(math.Round(float64(f.seats) / 10))
		l.configure(shape, limit)
	}
}

// keptPart is the part of the seats of a level that are kept for flows without any, see Queues.
const keptPart = 16

// withKept adds the number of seats that are kept. Where all flows have the same queues, none are.
func withKept(shape Shape, seats int) Shape {
	if shape.Queues > shape.HandSize {
		shape.Kept = seats / keptPart
	}
	return shape
}

// sorted yields the levels by name.
func (f *Fairness) sorted() iter.Seq2[string, *Level] {
	return func(yield func(string, *Level) bool) {
		for _, name := range slices.Sorted(maps.Keys(f.levels)) {
			if !yield(name, f.levels[name]) {
				return
			}
		}
	}
}

// adjustment is how often the seats are divided by demand.
const adjustment = 10 * time.Second

// Run divides the seats every ten seconds until ctx ends. Capacity.Run does it for those that have a Share.
func (f *Fairness) Run(ctx context.Context) {
	ticker := time.NewTicker(adjustment)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.now()
			f.mu.Lock()
			f.adjust()
			f.mu.Unlock()
		}
	}
}

// adjust divides the seats by demand. A level that has ended leaves its seats to the others. The caller holds mu.
func (f *Fairness) adjust() {
	if f.share != nil && f.share.seats() != f.seats {
		f.assign()
		return
	}
	for _, l := range f.levels {
		if l.quiescing && l.idle() {
			f.assign()
			return
		}
	}
	f.divide()
}

// Class is the flow schema and the level of a request.
type Class struct{ match *match }

// Match classifies a request.
func (f *Fairness) Match(a *access.Attributes) Class {
	c := f.now()
	for i := range c.matches {
		if c.matches[i].schema.matches(a) {
			return Class{&c.matches[i]}
		}
	}
	for i := range c.matches { // a user of neither system:authenticated nor system:unauthenticated
		if c.matches[i].schema.Name == CatchAll {
			return Class{&c.matches[i]}
		}
	}
	panic("fairness: no catch-all") // withMandatory adds it
}

// UIDs are the UIDs of the flow schema and of the level, as values of headers.
func (c Class) UIDs() (schema, level []string) { return c.match.schema.uidHeader, c.match.uid }

// Names are the names of the flow schema and of the level.
func (c Class) Names() (schema, level string) { return c.match.schema.Name, c.match.level.Name }

// Exempt says whether the level has no limit.
func (c Class) Exempt() bool { return c.match.exempt }

// Widest is how many seats a request may be estimated at; 0: the level does not say.
func (c Class) Widest() int { return c.match.widest }

// Acquire waits until the request has the seats of t.Work, at most until the given time. If it is refused, retryAfter
// is the number of seconds after which the client should try again. Otherwise it is 0, and the caller has to call
// t.Release at the end. Dumps read about until then, so it must not change.
func (c Class) Acquire(ctx context.Context, t *Ticket, about *access.Attributes, until time.Time) (retryAfter int) {
	m := c.match
	if !m.exempt {
		flow, hash := m.schema.flow(about)
		if t.hash = hash; m.queues {
			t.flow = flow
		}
	}
	t.about = about
	t.mutating = about.Verb != "get" && about.Verb != "list" && about.Verb != "watch"
	return m.level.acquire(ctx, t, m.use, t.hash, until)
}

// Enter waits for a place to execute, after Acquire. Requests of the exempt level need none. The caller has to call
// p.Exit before t.Release. If ctx ends first, the error is that of ctx.
func (c Class) Enter(ctx context.Context, t *Ticket, p *execution.Place) error {
	if c.match.exempt {
		return nil
	}
	return p.Enter(ctx, c.match.band, t.hash)
}

// Places returns the figures of the places.
func (f *Fairness) Places() execution.Figures { return f.places.Figures() }
