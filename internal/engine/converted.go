package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"weak"

	"plinth/internal/execution"
	"plinth/internal/invariants"
)

// Converted keeps what webhooks have made of stored versions, so that each version is converted once to a version of
// its kind, however many lists, selectors and watches read it, and can still be read while the webhook is away. It may
// be used concurrently.
//
// A stored version never changes, so what it was converted to is right while the kind is served in one form (Life):
//
//	kept[v, life, to] = read(v, to), by the definition of that life                  (the formula at Kind)
//	bytes = Σ kept[i].bytes ≤ limit, whenever mu is free
//	no life in kept has ended
//
// Two things make it differ from a map of results. First, many readers want a version at the same time: a write wakes
// all watches. Of these, one converts it and the others wait (running). The one that converts is one of the requests,
// and does it under its own context and place, so if it is cancelled, one of the waiting ones takes over. A goroutine
// for each conversion would need rules for when its context ends, and would do its work without a place.
//
// Who waits must not be waited for:
//
//	a request that waits has no entry in running
//
// Otherwise two lists that pass over the same objects in different order would wait for each other. So a request
// converts all versions that nobody else is converting first, and waits for the others after that.
//
// Second, versions are replaced. The key has a weak pointer to the layout of the version, and when the garbage
// collector takes the version, its entries are removed (runtime.AddCleanup). A pointer in Layout, as for encodings,
// would be cheaper to follow, but would cost memory in every version of every type, and webhooks convert few types.
//
// Above the limit random entries are dropped, as in wire.EncodedCache, and for the same reason: while a collection that
// is larger than the limit is listed again and again, the oldest entry is always the one that is needed next. What was
// dropped is converted again. Failures are never kept.
type Converted struct {
	limit int64

	mu      sync.Mutex
	kept    map[convertedKey]*convertedObject
	all     []*convertedObject // the values of kept, in any order: to choose one at random
	bytes   int64
	running map[convertedKey]part
}

// convertedKey is a version of an object and what it is converted to.
type convertedKey struct {
	of         weak.Pointer[Layout]
	life       *Life
	apiVersion string
}

// convertedObject is an entry of Converted.
type convertedObject struct {
	key     convertedKey
	object  *Object
	bytes   int64
	index   int // in Converted.all
	cleanup runtime.Cleanup
}

// convertedOverhead is the approximate memory of an entry in addition to the bytes of the object.
const convertedOverhead = 640

// conversion is a call of Kind.Convert for some versions, which is running until ended is closed; from then on made and
// err do not change.
type conversion struct {
	keys      []convertedKey
	indexes   []int // of the versions, among those of the request
	of        []*Object
	ended     chan struct{}
	made      []*Object // by position in keys
	err       error
	cancelled bool // err is due to the request whose conversion it was
}

// part is one of the versions that a conversion is about.
type part struct {
	*conversion
	at int // the position
}

// NewConverted is a cache of at most limit bytes.
func NewConverted(limit int64) *Converted {
	return &Converted{limit: limit, kept: map[convertedKey]*convertedObject{}, running: map[convertedKey]part{}}
}

// Forget drops what was made during a life, which has ended; nothing is kept of it from now on.
func (c *Converted) Forget(life *Life) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 0; i < len(c.all); {
		if entry := c.all[i]; entry.key.life == life {
			c.drop(entry)
		} else {
			i++
		}
	}
}

// remake replaces those versions by what they are in the version of a resource. On an error, some are replaced and some
// are not.
func (c *Converted) remake(ctx context.Context, r *Resource, all []*Object, those []int) error {
	share := true
	for len(those) > 0 {
		var awaited []awaitedPart
		for len(those) > 0 {
			var mine *conversion
			mine, those, awaited = c.begin(r, all, those, share, awaited)
			if err := c.run(ctx, r, all, mine); err != nil {
				return err
			}
		}
		var err error
		if those, share, err = await(ctx, all, awaited); err != nil {
			return err
		}
	}
	return nil
}

// awaitedPart is a version that another request is converting.
type awaitedPart struct {
	index int
	part
}

// begin goes through those versions: what is kept is taken, and what another request is converting is added to awaited.
// The others become a conversion, which is running from now on: the caller must run it. It ends with maxConverted
// bytes, and rest are the versions behind it. If share is false, nothing is awaited.
func (c *Converted) begin(r *Resource, all []*Object, those []int, share bool, awaited []awaitedPart) (
	mine *conversion, rest []int, others []awaitedPart,
) {
	mine = &conversion{ended: make(chan struct{})}
	bytes := 0
	for n, i := range those {
		v := all[i]
		key := convertedKey{weak.Make(LayoutOf(v)), r.Stored.Life, r.Served.APIVersion}
		c.mu.Lock()
		entry, by := c.kept[key], c.running[key]
		switch {
		case entry != nil:
			all[i] = atRevision(entry.object, v)
		case by.conversion != nil && share:
			awaited = append(awaited, awaitedPart{i, by})
		default:
			if by.conversion == nil {
				c.running[key] = part{mine, len(mine.keys)}
			}
			mine.keys, mine.indexes, mine.of = append(mine.keys, key), append(mine.indexes, i), append(mine.of, v)
			bytes += v.Len()
		}
		c.mu.Unlock()
		if bytes >= maxConverted {
			return mine, those[n+1:], awaited
		}
	}
	return mine, nil, awaited
}

// run makes a conversion that begin has begun, keeps what it has made, and wakes those who wait for it.
func (c *Converted) run(ctx context.Context, r *Resource, all []*Object, mine *conversion) error {
	if len(mine.keys) == 0 {
		return nil
	}
	mine.err = errors.New("the conversion was interrupted by a panic")
	defer func() {
		mine.cancelled = mine.err != nil && ctx.Err() != nil
		c.end(mine)
	}()
	if mine.made, mine.err = r.convertTogether(ctx, mine.of); mine.err != nil {
		return notConverted(mine.of, mine.err)
	}
	for n, i := range mine.indexes {
		all[i] = mine.made[n]
	}
	return nil
}

// end ends a conversion.
func (c *Converted) end(of *conversion) {
	c.mu.Lock()
	for n, key := range of.keys {
		if c.running[key].conversion == of {
			delete(c.running, key)
		}
		if of.err == nil {
			c.keep(key, of.of[n], of.made[n])
		}
	}
	if invariants.Enabled {
		c.assertBytes()
	}
	c.mu.Unlock()
	close(of.ended)
}

// keep keeps what was made of a version, unless the life has ended or it is kept already. The caller holds mu.
func (c *Converted) keep(key convertedKey, of, made *Object) {
	bytes := int64(made.Len() + convertedOverhead)
	if key.life.Err() != nil || c.kept[key] != nil || bytes > c.limit {
		return
	}
	for c.bytes+bytes > c.limit {
		c.drop(c.all[rand.IntN(len(c.all))])
	}
	entry := &convertedObject{key: key, object: made, bytes: bytes, index: len(c.all)}
	entry.cleanup = runtime.AddCleanup(LayoutOf(of), c.collected, key)
	c.kept[key] = entry
	c.all = append(c.all, entry)
	c.bytes += bytes
}

// collected removes the entry of a version that the garbage collector has taken.
func (c *Converted) collected(key convertedKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry := c.kept[key]; entry != nil {
		c.drop(entry)
	}
}

// drop removes an entry. The caller holds mu.
func (c *Converted) drop(entry *convertedObject) {
	entry.cleanup.Stop()
	last := len(c.all) - 1
	c.all[entry.index] = c.all[last]
	c.all[entry.index].index = entry.index
	c.all[last] = nil
	c.all = c.all[:last]
	delete(c.kept, entry.key)
	c.bytes -= entry.bytes
}

// await waits for conversions of other requests and takes what they have made. again are the versions of which they
// made nothing, although that says nothing about these versions: the other request was cancelled, so that the next one
// can be shared again; or another object of the same conversion may be at fault, and then these are converted without
// it. It ends with ctx.
//
// The whole wait is outside of the place, as the other request needs one to go on.
func await(ctx context.Context, all []*Object, awaited []awaitedPart) (again []int, share bool, err error) {
	share = true
	for _, w := range awaited {
		v := all[w.index]
		select {
		case <-w.ended:
		default:
			execution.Outside(ctx, func() {
				select {
				case <-w.ended:
				case <-ctx.Done():
				}
			})
		}
		if err := ctx.Err(); err != nil {
			return nil, false, unreadable(v, err)
		}
		switch {
		case w.err == nil:
			all[w.index] = atRevision(w.made[w.at], v)
		case w.cancelled:
			again = append(again, w.index)
		case w.concerns():
			return nil, false, unreadable(v, w.err)
		default:
			again, share = append(again, w.index), false
		}
	}
	return again, share, nil
}

// concerns says whether the error of the conversion is one of this part, and not, or not certainly, of another one.
func (p part) concerns() bool {
	var one *ConversionError
	if errors.As(p.err, &one) {
		return one.Index == p.at || one.Index == EveryObject
	}
	return len(p.keys) == 1
}

func (c *Converted) assertBytes() {
	sum := int64(0)
	for i, entry := range c.all {
		sum += entry.bytes
		assert(entry.index == i && c.kept[entry.key] == entry, "entry %d has the index %d", i, entry.index)
	}
	assert(sum == c.bytes && c.bytes <= c.limit && len(c.all) == len(c.kept),
		"%d converted objects of %d bytes, counted %d of %d, the limit is %d", len(c.all), sum, len(c.kept), c.bytes, c.limit)
}
