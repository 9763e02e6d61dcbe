package past

import (
	"bytes"
	"context"
	"math"
	"slices"
	"time"
)

// Packs are merged so that there are few. The tier of a pack is the logarithm of its bytes. The newest packs up to some
// tier are replaced by one, which is of the next tier, as soon as there are sixteen of them. So the tiers descend from
// the oldest pack to the newest one, there are at most fifteen of each, and a change is written again once for each.
//
// Packs are removed as a whole, so none gets larger, or reaches further, than an eighth of what is to be kept.
const (
	mergedAtOnce = 16
	parts        = 8
)

// tidy removes what is not to be kept any longer, and merges packs. The caller holds packing.
func (l *Log) tidy(ctx context.Context) error {
	if err := l.expire(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		run := l.run()
		if run == nil {
			return nil
		}
		if err := l.merge(ctx, run); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// expire removes the oldest packs, as long as they are too old or there is too much. In the place of the last one is an
// empty one, which says up to where there have been packs.
func (l *Log) expire() error {
	oldest := l.o.Now().Add(-l.o.Retention).UnixNano()
	total := int64(0)
	for _, p := range l.packs {
		total += p.size
	}
	for len(l.packs) > 0 && (l.packs[0].Last < oldest || total > l.o.Bytes) {
		first := l.packs[0]
		var rest *pack
		if len(l.packs) == 1 {
			if first.Since == first.Until {
				return nil
			}
			h := header{Since: first.Until, Until: first.Until, First: first.Last, Last: first.Last, Without: l.o.Without}
			var err error
			if rest, err = l.create(h, func(func(entry, error) bool) {}); err != nil {
				return err
			}
		}
		total -= first.size
		if err := l.replace([]*pack{first}, rest); err != nil {
			return err
		}
	}
	return nil
}

// tier is 0 for a pack that is not full, or just full.
func (l *Log) tier(p *pack) (tier int) {
	for raw := p.Raw / (2 * l.o.PackBytes); raw > 0; raw /= mergedAtOnce {
		tier++
	}
	return tier
}

// run returns packs that are to be replaced by one; nil: there are none.
func (l *Log) run() []*pack {
	for tier := range 64 {
		n := len(l.packs)
		if n < mergedAtOnce {
			return nil
		}
		from, size, last := n, int64(0), header{First: math.MaxInt64, Without: l.packs[n-1].Without}
		for from > 0 {
			p := l.packs[from-1]
			last.extend(&p.header)
			if size += p.size; l.tier(p) > tier || size > l.o.Bytes/parts ||
				time.Duration(last.Last-last.First) > l.o.Retention/parts || !slices.Equal(p.Without, last.Without) {
				break
			}
			from--
		}
		if n-from >= mergedAtOnce {
			return slices.Clone(l.packs[from:])
		}
		if from == 0 {
			return nil
		}
	}
	return nil
}

// extend has the times of a header include those of another one. They need not be in the order of the packs: a clock
// may be set back.
func (h *header) extend(by *header) { h.First, h.Last = min(h.First, by.First), max(h.Last, by.Last) }

// merge replaces packs that follow one another by one.
func (l *Log) merge(ctx context.Context, run []*pack) error {
	last := run[len(run)-1]
	h := header{Since: run[0].Since, Until: last.Until, First: math.MaxInt64, Without: last.Without}
	for _, p := range run {
		h.extend(&p.header)
		h.Version = max(h.Version, p.Version)
	}
	p, err := l.create(h, merged(ctx, run))
	if err != nil {
		return err
	}
	return l.replace(run, p)
}

// merged yields the entries of packs in their order. No key is in two of them.
func merged(ctx context.Context, packs []*pack) func(func(entry, error) bool) {
	return func(yield func(entry, error) bool) {
		var sources []*scan
		for _, p := range packs {
			c := &scan{ctx: ctx, p: p}
			ok, err := c.next()
			if err != nil {
				yield(entry{}, err)
				return
			}
			if ok {
				sources = append(sources, c)
			}
		}
		for steps := 0; len(sources) > 0; steps++ {
			if steps%1024 == 0 && ctx.Err() != nil {
				yield(entry{}, ctx.Err())
				return
			}
			c := slices.MinFunc(sources, func(x, y *scan) int { return bytes.Compare(x.key, y.key) })
			if !yield(c.entry(), nil) {
				return
			}
			ok, err := c.next()
			if err != nil {
				yield(entry{}, err)
				return
			}
			if !ok {
				sources = slices.DeleteFunc(sources, func(x *scan) bool { return x == c })
			}
		}
	}
}
