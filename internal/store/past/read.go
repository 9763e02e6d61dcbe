package past

import (
	"bytes"
	"context"
	"math"
	"slices"
	"sort"

	"plinth/internal/execution"
	"plinth/internal/store"
)

// askEvery is how many entries are read before the context is looked at again.
const askEvery = 64

// yieldTo lets other requests go first, and returns the error of the context.
func yieldTo(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return execution.From(ctx).Yield(ctx)
}

// After yields, of each of the names, which ascend, the first change after a revision, as far as there are packs; of
// those which have none, nothing. It returns store.ErrCompacted if the past does not reach back to the revision.
func (l *Log) After(ctx context.Context, plane, resource string, names []string, after int64,
	yield func(*store.PastChange) error) error {
	packs, done := l.acquire()
	defer done()
	if after < since(packs, resource) {
		return store.ErrCompacted
	}
	steps := 0
	names = slices.Clone(names)
	for _, p := range packs {
		if p.Until <= after || len(names) == 0 {
			continue
		}
		c := scan{ctx: ctx, p: p}
		rest := names[:0] // those of which this pack has nothing
		for _, name := range names {
			if steps++; steps%askEvery == 0 {
				if err := yieldTo(ctx); err != nil {
					return err
				}
			}
			object := prefixOf(sortChange, plane, resource, name)
			e, ok, err := c.first(object, after)
			if err != nil {
				return l.named(err, p.name())
			}
			if !ok {
				rest = append(rest, name)
				continue
			}
			ch, err := l.changeOf(ctx, plane, store.Key{Resource: resource, Name: name}, e)
			if err != nil {
				return err
			}
			if err := yield(ch); err != nil {
				return err
			}
		}
		names = rest
	}
	return nil
}

// first is the first entry of an object after a revision.
func (c *scan) first(object []byte, after int64) (entry, bool, error) {
	if !c.p.mayHave(object) {
		return entry{}, false, nil
	}
	ok, err := c.seek(withRevision(object, after+1))
	if err != nil || !ok || !bytes.Equal(objectOf(c.key), object) {
		return entry{}, false, err
	}
	return c.entry(), true, nil
}

// Deleted yields the names of a resource that were deleted after a revision, as far as there are packs, some of them
// several times.
func (l *Log) Deleted(ctx context.Context, plane, resource string, after int64, yield func(name string)) error {
	packs, done := l.acquire()
	defer done()
	if after < since(packs, resource) {
		return store.ErrCompacted
	}
	prefix := prefixOf(sortDeleted, plane, resource)
	for _, p := range packs {
		if p.Until <= after {
			continue
		}
		c := scan{ctx: ctx, p: p}
		ok, err := c.seek(prefix)
		for steps := 0; err == nil && ok && bytes.HasPrefix(c.key, prefix); steps++ {
			if steps%askEvery == 0 {
				if err := yieldTo(ctx); err != nil {
					return err
				}
			}
			if revisionOf(c.key) > after {
				yield(nameOf(c.key, prefix))
			}
			ok, err = c.next()
		}
		if err != nil {
			return l.named(err, p.name())
		}
	}
	return nil
}

// Before yields the changes of an object before a revision, the newest first, until yield returns false or older ones
// are not kept any more.
func (l *Log) Before(ctx context.Context, plane string, k store.Key, before int64,
	yield func(*store.PastChange) bool) error {
	packs, done := l.acquire()
	defer done()
	from := since(packs, k.Resource)
	object := prefixOf(sortChange, plane, k.Resource, k.Name)
	for _, p := range slices.Backward(packs) {
		if p.Since >= before || !p.mayHave(object) {
			continue
		}
		if p.Since < from {
			return nil // this pack may have some of them, and not all
		}
		more, err := p.backward(ctx, object, before, func(e entry) (bool, error) {
			ch, err := l.changeOf(ctx, plane, k, e)
			return err == nil && yield(ch), err
		})
		if err != nil || !more {
			return l.named(err, p.name())
		}
	}
	return nil
}

// backward yields the entries of an object before a revision, the newest first, until yield returns false: then more is
// false, too. A block is read from its start, so those of one block are in memory together, and no more.
func (p *pack) backward(ctx context.Context, object []byte, before int64, yield func(entry) (bool, error)) (more bool,
	err error) {
	first, end := withRevision(object, 0), withRevision(object, before)
	c := scan{ctx: ctx, p: p}
	// The last block that begins below the end.
	block := sort.Search(len(p.Keys), func(i int) bool { return bytes.Compare(p.Keys[i], end) >= 0 }) - 1
	for ; block >= 0; block-- {
		if err := yieldTo(ctx); err != nil {
			return false, err
		}
		if err := c.load(block); err != nil {
			return false, err
		}
		var entries []entry
		for len(c.rest) > 0 {
			if _, err := c.next(); err != nil {
				return false, err
			}
			if bytes.Compare(c.key, end) >= 0 {
				break
			}
			if bytes.Equal(objectOf(c.key), object) {
				entries = append(entries, entry{key: slices.Clone(c.key), value: slices.Clone(c.value())})
			}
		}
		for _, e := range slices.Backward(entries) {
			if more, err := yield(e); err != nil || !more {
				return false, err
			}
		}
		if bytes.Compare(p.Keys[block], first) <= 0 {
			break // what is before it is of other objects
		}
	}
	return true, nil
}

// RevisionAt is the newest revision of which the commit has a time that is not after one, in nanoseconds since 1970, as
// far as there are packs; false: it is older than they are. A clock that was set back makes times descend, so that all
// entries up to the time count, and not the last one alone; the newest pack that has one has the newest revision.
func (l *Log) RevisionAt(ctx context.Context, nanoseconds int64) (revision int64, ok bool, err error) {
	packs, done := l.acquire()
	defer done()
	end := withRevision(atTime(nanoseconds), math.MaxInt64)
	for _, p := range slices.Backward(packs) {
		c := scan{ctx: ctx, p: p}
		there, err := c.seek([]byte{sortTime})
		for steps := 0; err == nil && there && c.key[0] == sortTime && bytes.Compare(c.key, end) <= 0; steps++ {
			if steps%askEvery == 0 {
				if err := yieldTo(ctx); err != nil {
					return 0, false, err
				}
			}
			revision, ok = max(revision, revisionOf(c.key)), true
			there, err = c.next()
		}
		if err != nil {
			return 0, false, l.named(err, p.name())
		}
		if ok {
			return revision, true, nil
		}
	}
	return 0, false, nil
}
