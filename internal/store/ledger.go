package store

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/internal/execution"
	"plinth/internal/invariants"
)

// Charge is what a version counts towards the limits of its namespace, as Config.Charge says. It does not change.
type Charge struct {
	// Class is what limits select charges by (Limit.Counts). Amounts with the same name but other classes are kept
	// apart.
	Class string
	// Amounts have each name once, and none is negative.
	Amounts []Amount
	// Until is when the version begins to count for After instead; zero: never.
	Until time.Time
	After []Amount
	// Rule is the text of the limits that the version itself sets; "": it is no rule.
	Rule string
	// Note is what Limit.More has to know of the version besides its amounts; nil: nothing.
	Note any
}

// Amount is a quantity of something that is limited, such as "requests.cpu".
type Amount struct {
	Name  string
	Value resource.Quantity
}

// nothing is the charge of versions that count nothing.
var nothing = &Charge{}

// ledgers are the sums of the charges of the live versions, by namespace. The state's mu guards them.
//
// The problem: a limit of a namespace has to hold whatever writes and deletes objects, on time and after a crash. A
// number that each request adds to is wrong after the first deletion that forgets it. So the sums are an index of the
// live versions like that of owners, and follow each of their changes. But a charge is found by reading the whole
// object, which would be paid by every write and at every start, although few namespaces are limited. So only
// namespaces with a rule (a live version of Config.Rules) have a ledger, and it has its sums from the first time that
// somebody asks for them.
//
// Reading 100,000 objects takes a second, during which other writes must go on. So build reads a snapshot without a
// lock; changes since the snapshot are kept in behind, and added at the end:
//
//	sums = Σ charge(v) over the versions of the snapshot + Σ (charge(new) − charge(old)) over behind
//	     = Σ charge(v) over the live versions of the namespace
//
// A charge that has an end (Until) is counted in full until the first judgement after that time.
type ledgers struct {
	of map[string]*ledger // by namespace
	// changes counts the changes of ledgers, and changed is called after one; nil: nobody waits for that.
	changes int64
	changed *func()
}

// ledger is the rules and the sums of one namespace.
type ledger struct {
	// rules has the live versions that are rules. list is made of it with the sums, and ordered by name.
	rules map[string]*Version
	list  []Rule
	// generation is the revision at which list was made or changed. A commit that was judged by another one is refused.
	generation int64
	// sums is nil until they are asked for. changed is ledgers.changes of the last change of them or of list.
	sums    *sums
	changed int64
	// building is closed when sums is set; nil: nobody has asked. behind has the changes meanwhile.
	building chan struct{}
	behind   []charged
}

// Rule is the text of the limits that a version sets.
type Rule struct {
	Version *Version
	Text    string
}

// charged is a change of a version that may be charged.
type charged struct{ old, now *Version }

// account identifies one sum.
type account struct{ class, name string }

// sums are the sums of charges.
type sums struct {
	of map[account]*resource.Quantity
	// ending has the versions whose charge has an end and is counted in full. first is the earliest end.
	ending map[*Version]struct{}
	first  time.Time
}

func newSums() *sums {
	return &sums{of: map[account]*resource.Quantity{}, ending: map[*Version]struct{}{}}
}

// add counts a version; nil: none.
func (t *sums) add(s *State, v *Version) {
	c := s.charge(v)
	t.count(c.Class, c.Amounts, false)
	if !c.Until.IsZero() {
		t.ending[v] = struct{}{}
		if t.first.IsZero() || c.Until.Before(t.first) {
			t.first = c.Until
		}
	}
}

// remove takes back what add has counted.
func (t *sums) remove(s *State, v *Version) {
	c := s.charge(v)
	t.count(c.Class, t.amounts(v, c), true)
	delete(t.ending, v)
}

// amounts is what the sums have of a version.
func (t *sums) amounts(v *Version, c *Charge) []Amount {
	if _, whole := t.ending[v]; whole || c.Until.IsZero() {
		return c.Amounts
	}
	return c.After
}

func (t *sums) count(class string, amounts []Amount, negative bool) {
	for i := range amounts {
		a := account{class, amounts[i].Name}
		sum := t.of[a]
		if sum == nil {
			sum = new(resource.Quantity)
			t.of[a] = sum
		}
		if negative {
			sum.Sub(amounts[i].Value)
		} else {
			sum.Add(amounts[i].Value)
		}
	}
}

// merge adds other sums, which are not used any more.
func (t *sums) merge(other *sums) {
	for a, sum := range other.of {
		if mine := t.of[a]; mine != nil {
			mine.Add(*sum)
		} else {
			t.of[a] = sum
		}
	}
	for v := range other.ending {
		t.ending[v] = struct{}{}
	}
	if t.first.IsZero() || !other.first.IsZero() && other.first.Before(t.first) {
		t.first = other.first
	}
}

// due says whether a charge has ended that is counted in full.
func (t *sums) due(now time.Time) bool { return !t.first.IsZero() && now.After(t.first) }

// lapse counts the charges that have ended for what they are from then on.
func (t *sums) lapse(s *State, now time.Time) {
	t.first = time.Time{}
	for v := range t.ending {
		switch c := s.charge(v); {
		case now.After(c.Until):
			delete(t.ending, v)
			t.count(c.Class, c.Amounts, true)
			t.count(c.Class, c.After, false)
		case t.first.IsZero() || c.Until.Before(t.first):
			t.first = c.Until
		}
	}
}

// charge is the charge of a version, computed once; that of nil is nothing.
func (s *State) charge(v *Version) *Charge {
	if v == nil {
		return nothing
	}
	if c := v.charge.Load(); c != nil {
		return c
	}
	c := s.config.Charge(v)
	if c == nil {
		c = nothing
	}
	v.charge.Store(c)
	return c
}

// namespaceOf is the part of a name before "/"; "" if there is none.
func namespaceOf(k Key) string {
	namespace, _, ok := strings.Cut(k.Name, "/")
	if !ok {
		return ""
	}
	return namespace
}

// limited says whether a namespace has rules, so that the charge of a version in it will be asked for. The writer calls
// it before it makes a commit, to compute the charges of its versions without a lock.
func (s *State) limited(k Key) bool {
	if s.config.Charge == nil {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.ledgers.of) > 0 && s.ledgers.of[namespaceOf(k)] != nil
}

// record follows a change of a key; see index. revision is that of the change. The caller holds mu for writing.
func (s *State) record(k Key, old, now *Version, revision int64) {
	rule := k.Resource == s.config.Rules
	if s.config.Charge == nil || len(s.ledgers.of) == 0 && !rule {
		return
	}
	namespace := namespaceOf(k)
	l := s.ledgers.of[namespace]
	switch {
	case l == nil && (!rule || now == nil):
		return
	case l == nil:
		l = &ledger{rules: map[string]*Version{}}
		if s.ledgers.of == nil {
			s.ledgers.of = map[string]*ledger{}
		}
		s.ledgers.of[namespace] = l
	}
	if rule && s.recordRule(namespace, l, k, now, revision) {
		return
	}
	switch {
	case l.sums != nil:
		before, after := s.charge(old), s.charge(now)
		if before == after && before.Until.IsZero() {
			break
		}
		l.sums.remove(s, old)
		l.sums.add(s, now)
		s.ledgers.touch(l)
	case l.building != nil:
		l.behind = append(l.behind, charged{old, now})
	}
}

// recordRule follows a change of a rule; now is its new version, nil if it was deleted. It returns whether that was the
// last rule of the namespace, and the ledger is dropped.
func (s *State) recordRule(namespace string, l *ledger, k Key, now *Version, revision int64) (dropped bool) {
	old := l.rules[k.Name]
	if now != nil {
		l.rules[k.Name] = now
	} else if delete(l.rules, k.Name); len(l.rules) == 0 {
		delete(s.ledgers.of, namespace)
		s.ledgers.tell()
		return true
	}
	s.ledgers.touch(l)
	if l.sums != nil {
		s.list(l)
		if s.charge(old).Rule != s.charge(now).Rule {
			l.generation = revision
		}
	}
	return false
}

// tell calls who waits for changes. The caller holds the state's mu.
func (l *ledgers) tell() {
	if l.changed != nil {
		(*l.changed)()
	}
}

// touch notes that a ledger has changed.
func (all *ledgers) touch(l *ledger) {
	all.changes++
	l.changed = all.changes
	all.tell()
}

// list makes the list of the rules of a ledger.
func (s *State) list(l *ledger) {
	l.list = make([]Rule, 0, len(l.rules))
	for _, v := range l.rules {
		l.list = append(l.list, Rule{v, s.charge(v).Rule})
	}
	slices.SortFunc(l.list, func(a, b Rule) int { return strings.Compare(a.Version.Key.Name, b.Version.Key.Name) })
}

// Rules returns the rules of a namespace in the order of their names, and the generation for Limits. The first call for
// a namespace with rules waits until all of its objects were read. The list must not be changed.
func (s *State) Rules(ctx context.Context, namespace string) (rules []Rule, generation int64, err error) {
	for {
		s.mu.RLock()
		l := s.ledgers.of[namespace]
		if l == nil || l.sums != nil {
			if l != nil {
				rules, generation = l.list, l.generation
			}
			s.mu.RUnlock()
			return rules, generation, nil
		}
		s.mu.RUnlock()
		execution.Outside(ctx, func() {
			select {
			case <-s.built(namespace):
			case <-ctx.Done():
			}
		})
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
	}
}

// built returns a channel that is closed when a ledger has its sums or was dropped. The first call begins to build
// them.
func (s *State) built(namespace string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ledgers.of[namespace]
	if l == nil || l.sums != nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	if l.building == nil {
		l.building = make(chan struct{})
		from := s.newest()
		go s.build(namespace, l, from)
	}
	return l.building
}

// build computes the sums of a ledger; see ledgers.
func (s *State) build(namespace string, l *ledger, from *Snapshot) {
	var versions []*Version
	from.collections.Scan(func(_ string, t *collection) bool {
		t.names.Ascend(namespace+"/", func(name string, v *Version) bool {
			if !strings.HasPrefix(name, namespace+"/") {
				return false
			}
			versions = append(versions, v)
			return true
		})
		return true
	})
	// A worker for each processor; each has sums of its own.
	workers := min(runtime.GOMAXPROCS(0), len(versions)/256+1)
	parts := make([]*sums, workers)
	var work sync.WaitGroup
	for w := range workers {
		parts[w] = newSums()
		work.Go(func() {
			for _, v := range versions[len(versions)*w/workers : len(versions)*(w+1)/workers] {
				parts[w].add(s, v)
			}
		})
	}
	work.Wait()
	for _, part := range parts[1:] {
		parts[0].merge(part)
	}
	s.finish(l, parts[0])
}

// finish gives a ledger the sums as of its snapshot, and brings them up to date. Charges are computed without the lock,
// as long as there are many.
func (s *State) finish(l *ledger, t *sums) {
	const few = 64
	for {
		s.mu.Lock()
		behind := l.behind
		l.behind = nil
		if len(behind) <= few {
			defer s.mu.Unlock()
			for _, c := range behind {
				t.remove(s, c.old)
				t.add(s, c.now)
			}
			s.list(l)
			l.sums, l.generation = t, s.revision
			s.ledgers.touch(l)
			close(l.building)
			if invariants.Enabled {
				s.checkLedgers()
			}
			return
		}
		s.mu.Unlock()
		for _, c := range behind {
			t.remove(s, c.old)
			t.add(s, c.now)
		}
	}
}

// checkLedgers fails where the sums are not those of the live versions. It takes time in their number. The caller
// holds mu.
func (s *State) checkLedgers() {
	for namespace, l := range s.ledgers.of {
		if l.sums == nil {
			continue
		}
		want := newSums()
		s.live.scan(func(v *Version) bool {
			if namespaceOf(v.Key) == namespace {
				c := s.charge(v)
				want.count(c.Class, l.sums.amounts(v, c), false)
			}
			return true
		})
		for a, sum := range l.sums.of {
			if w := want.of[a]; w == nil && !sum.IsZero() || w != nil && w.Cmp(*sum) != 0 {
				invariants.Fail("store: the ledger of %s has %s of %s (%q), should have %v", namespace, sum, a.name, a.class, w)
			}
			delete(want.of, a)
		}
		for a, sum := range want.of {
			if !sum.IsZero() {
				invariants.Fail("store: the ledger of %s has none of %s (%q), should have %s", namespace, a.name, a.class, sum)
			}
		}
	}
}

// LedgersChanged has changed called after sums or rules have changed, with locks held, until stop is called. It is for
// one receiver: the last one.
func (s *State) LedgersChanged(changed func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledgers.changed = &changed
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ledgers.changed == &changed {
			s.ledgers.changed = nil
		}
	}
}

// Limited returns the namespaces with rules whose sums or rules have changed since an earlier call returned this number
// of changes (0: all), or whose sums nobody has asked for yet. next is when the first charge ends that is counted in
// full; zero: none does.
func (s *State) Limited(after int64) (namespaces []string, changes int64, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for namespace, l := range s.ledgers.of {
		if t := l.sums; t != nil {
			s.lapseIfDue(l)
			if next.IsZero() || !t.first.IsZero() && t.first.Before(next) {
				next = t.first
			}
		}
		if l.sums == nil || l.changed > after {
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces, s.ledgers.changes, next
}

// Used returns the sums of the limits in the ledger of a namespace, in their order; false if there is none.
func (s *State) Used(p *Limits) ([]resource.Quantity, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ledgers.of[p.Namespace]
	if l == nil || l.sums == nil {
		return nil, false
	}
	s.lapseIfDue(l)
	used := make([]resource.Quantity, len(p.Each))
	for i := range p.Each {
		used[i] = p.Each[i].in(l.sums.of)
		if more := p.Each[i].More; more != nil {
			used[i].Add(more(s.charged(p.Namespace, nil)))
		}
	}
	return used, true
}

// lapseIfDue makes the sums of a ledger those of now. The caller holds mu for writing.
func (s *State) lapseIfDue(l *ledger) {
	if now := s.config.Now(); l.sums.due(now) {
		l.sums.lapse(s, now)
		s.ledgers.touch(l)
	}
}
