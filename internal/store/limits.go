package store

import "k8s.io/apimachinery/pkg/api/resource"

// Limits are a precondition on the sums of a namespace.
type Limits struct {
	Namespace string
	// Generation is that of the rules from which Each was made (State.Rules).
	Generation int64
	Each       []Limit
	// Refuse makes the error of a request that is refused because of these limits. The store does not call it.
	Refuse func(over []Over) error
}

// key is what names the limits in an error. No version has it.
func (p *Limits) key() Key { return Key{Name: p.Namespace + "/"} }

// Limit bounds the sum of the amounts of one name.
type Limit struct {
	Name string
	// Counts says whether the charges of a class are counted; nil: all are.
	Counts func(class string) bool
	// Add is what the commit adds, and Most what the sum may be afterwards.
	Add, Most resource.Quantity
}

// in is the sum that the limit bounds.
func (l *Limit) in(of map[account]*resource.Quantity) resource.Quantity {
	if l.Counts == nil {
		if sum := of[account{"", l.Name}]; sum != nil && len(of) == 1 {
			return sum.DeepCopy()
		}
	}
	total := resource.Quantity{Format: resource.DecimalSI}
	for a, sum := range of {
		if a.name == l.Name && (l.Counts == nil || l.Counts(a.class)) {
			total.Add(*sum)
		}
	}
	return total
}

// Over is a limit that a commit would pass.
type Over struct {
	Limit *Limit
	Used  resource.Quantity // without the commit
}

// OverError names the limits that a commit would pass. No change was written.
type OverError struct {
	Limits *Limits
	Over   []Over
}

func (e *OverError) Error() string {
	o := &e.Over[0]
	return "in " + e.Limits.Namespace + ", " + o.Limit.Add.String() + " more of " + o.Limit.Name + " than " +
		o.Used.String() + " would be above " + o.Limit.Most.String()
}

// Within says whether the limits hold if a commit adds what they say. It is the precondition WithinLimits against
// what is durable, for requests that do not commit.
func (s *State) Within(p *Limits) error { return s.within(p, nil) }

// within judges limits. pending is what the commits have added that are not applied yet.
func (s *State) within(p *Limits, pending *sums) error {
	s.mu.RLock()
	l := s.ledgers.of[p.Namespace]
	if l != nil && l.sums != nil && l.sums.due(s.config.Now()) {
		s.mu.RUnlock()
		s.mu.Lock()
		s.lapseIfDue(l)
		s.mu.Unlock()
		s.mu.RLock()
	}
	defer s.mu.RUnlock()
	if l = s.ledgers.of[p.Namespace]; l == nil || l.sums == nil || l.generation != p.Generation {
		return s.otherRules(p)
	}
	var over []Over
	for i := range p.Each {
		limit := &p.Each[i]
		used := limit.in(l.sums.of)
		if pending != nil {
			used.Add(limit.in(pending.of))
		}
		sum := used.DeepCopy()
		if sum.Add(limit.Add); sum.Cmp(limit.Most) > 0 {
			over = append(over, Over{limit, used})
		}
	}
	if len(over) > 0 {
		return &OverError{p, over}
	}
	return nil
}

// otherRules is the error for limits that were made from other rules than the namespace has.
func (s *State) otherRules(p *Limits) error {
	return &ConflictError{Key: p.key(), Type: WithinLimits}
}

// within judges limits against what is durable and pending. If the reason for a refusal is pending, it returns the
// batch to wait for. The caller holds seq.
func (w *sequencer) within(p *Limits) (*batch, error) {
	s := w.state
	var last *batch
	newest := int64(0)
	pending := newSums()
	for k, write := range w.pending {
		if namespaceOf(k) != p.Namespace || k.Resource == Counters {
			continue
		}
		live := s.live.get(k)
		if k.Resource == s.config.Rules && s.charge(live).Rule != s.charge(write.version).Rule {
			return write.batch, s.otherRules(p)
		}
		before, after := s.charge(live), s.charge(write.version)
		if before == after {
			continue
		}
		// Every charge is counted in full: one that is about to end has not ended.
		pending.count(before.Class, s.counted(p.Namespace, live), true)
		pending.count(after.Class, after.Amounts, false)
		if write.revision > newest {
			newest, last = write.revision, write.batch
		}
	}
	return last, s.within(p, pending)
}

// counted is what the ledger of a namespace has of a live version; nil: nothing.
func (s *State) counted(namespace string, v *Version) []Amount {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.charge(v)
	if l := s.ledgers.of[namespace]; l != nil && l.sums != nil {
		return l.sums.amounts(v, c)
	}
	return c.Amounts
}
