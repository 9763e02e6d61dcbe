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
	// More is what counts besides the sum: what does not follow from each version alone. Nil: nothing does.
	More func(*Charged) resource.Quantity
	// Least is what the sum counts as at least: other processes have recorded that much.
	Least resource.Quantity
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
func (s *State) Within(p *Limits) error { return s.within(p, nil, nil) }

// within judges limits. writes are the commits that are not applied yet, and pending returns what they change; nil:
// nothing. All of it is one step under the lock: a charge that ends between the two would be taken back twice.
func (s *State) within(p *Limits, writes map[Key]pendingWrite, pending func(l *ledger) (*sums, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ledgers.of[p.Namespace]
	if l == nil || l.sums == nil || l.generation != p.Generation {
		return s.otherRules(p)
	}
	s.lapseIfDue(l)
	var more *sums
	if pending != nil {
		var err error
		if more, err = pending(l); err != nil {
			return err
		}
	}
	var over []Over
	for i := range p.Each {
		limit := &p.Each[i]
		used := limit.in(l.sums.of)
		if more != nil {
			used.Add(limit.in(more.of))
		}
		if limit.More != nil {
			used.Add(limit.More(s.charged(p.Namespace, writes)))
		}
		if used.Cmp(limit.Least) < 0 {
			used = limit.Least.DeepCopy()
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

// within judges limits against what is durable and pending. If the reason for a refusal may be pending, it returns the
// batch to wait for. The caller holds seq.
func (w *writer) within(p *Limits) (last *batch, err error) {
	newest := int64(0)
	err = w.state.within(p, w.pending, func(l *ledger) (*sums, error) {
		s, pending := w.state, newSums()
		for k, write := range w.pending {
			if namespaceOf(k) != p.Namespace {
				continue
			}
			live := s.live.get(k)
			before, after := s.charge(live), s.charge(write.version)
			if k.Resource == w.config.Rules && before.Rule != after.Rule {
				last = write.batch
				return nil, s.otherRules(p)
			}
			if before == after {
				continue
			}
			// A pending charge is counted in full: one that is about to end has not ended.
			pending.count(before.Class, l.sums.amounts(live, before), true)
			pending.count(after.Class, after.Amounts, false)
			if write.revision > newest {
				newest, last = write.revision, write.batch
			}
		}
		return pending, nil
	})
	return last, err
}
