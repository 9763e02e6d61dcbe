package etcd

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"plinth/internal/store"
)

// Bits says that the keys of one resource of the state are no keys of etcd, but the bits of one etcd key, such as the
// node ports that are given to Services: Kubernetes has one key with a bitmap of them. The state has both:
//
//	k is live in the state  ⇔  the bit of k is set in the value of Whole, as the state has it
//
// Whole is a key like any other: controllers that repair allocations replace its value. A change of it changes each key
// whose bit it sets or clears, in the same commit of the state (records, below). The value of such a key is empty: a
// bit says no more. Its revision is that of the change that set the bit, or, where the state has not received that
// change, that of the bitmap with which the state was loaded.
//
// A commit that changes such keys changes Whole, on the condition that it is as the state has it (Writer.compare). So
// two commits that have nothing else in common cannot both succeed at the first attempt. In one process they take turns
// (turn); with other processes the one that comes second is made again of the newest value, as all are whose
// preconditions still hold.
//
// A bitmap is not encrypted, whatever else is: the reference gives no transformer to the storage of its allocators, and
// ends if it cannot read them.
type Bits struct {
	Resource string    // of the keys
	Whole    store.Key // what the Layout has at the path of the etcd key
	// Names are the names of the keys whose bits are set, sorted. An error means that the value is no bitmap; then no key
	// is live.
	Names func(data []byte) ([]string, error)
	// Change sets and clears bits. data is nil if Whole does not exist. To set a bit that is set is an error: the state
	// has not found it in a value that it could not read.
	Change func(data []byte, set, cleared []string) ([]byte, error)
}

// errBitsAlone refuses a commit of bits and nothing else. If the answer to a transaction is lost, the keys that it has
// written tell whether it was carried out (Writer.whatBecame). A bitmap does not tell: another process may have set the
// same bit in the same bitmap.
var errBitsAlone = errors.New("etcd: bits change together with other keys only")

// bits is the Config.Bits that a key belongs to; nil: it is a key of etcd.
func (e *Cluster) bits(k store.Key) *Bits {
	if b := e.config.Bits; b != nil && k.Resource == b.Resource {
		return b
	}
	return nil
}

// whole is the Config.Bits whose bitmap a key is; nil: it is none.
func (e *Cluster) whole(k store.Key) *Bits {
	if b := e.config.Bits; b != nil && k == b.Whole {
		return b
	}
	return nil
}

// names are the keys that are live because of a bitmap.
func (b *Bits) names(whole *store.Version) []string {
	if whole == nil {
		return nil
	}
	names, err := b.Names(whole.Data())
	if err != nil {
		return nil
	}
	return names
}

// version is the version of a key whose bit is set.
func (b *Bits) version(name string, revision int64) *store.Version {
	return store.NewVersion(store.Key{Resource: b.Resource, Name: name}, revision, []byte{}, &store.Sidecar{})
}

// records are the changes that bring live keys, in the order of their names, to what a bitmap says. With renew, those
// that stay get new versions, too: their bits may have been cleared in between.
func (b *Bits) records(live []*store.Version, whole *store.Version, revision int64, renew bool) []*store.Record {
	var all []*store.Record
	add := func(old, now *store.Version) {
		k := store.Key{Resource: b.Resource}
		if now != nil {
			k.Name = now.Key.Name
		} else {
			k.Name = old.Key.Name
		}
		all = append(all, &store.Record{Key: k, Revision: revision, Old: old, New: now})
	}
	for names := b.names(whole); len(live)+len(names) > 0; {
		switch {
		case len(names) == 0 || len(live) > 0 && live[0].Key.Name < names[0]:
			add(live[0], nil)
			live = live[1:]
		case len(live) == 0 || names[0] < live[0].Key.Name:
			add(nil, b.version(names[0], revision))
			names = names[1:]
		default:
			if renew {
				add(live[0], b.version(names[0], revision))
			}
			live, names = live[1:], names[1:]
		}
	}
	return all
}

// live are the live versions of a snapshot, in the order of their names.
func (b *Bits) live(sn *store.Snapshot) (all []*store.Version) {
	sn.Ascend(b.Resource, "", "", func(v *store.Version) bool {
		all = append(all, v)
		return true
	})
	return all
}

// versions are those of a bitmap that was not changed since a revision.
func (b *Bits) versions(whole *store.Version) (all []*store.Version) {
	for _, name := range b.names(whole) {
		all = append(all, b.version(name, whole.Revision))
	}
	return all
}

// bitsOf takes the changes of bits out of those of a commit.
func (w *Writer) bitsOf(changes []store.Change) (others []store.Change, set, cleared []string, err error) {
	if !slices.ContainsFunc(changes, func(ch store.Change) bool { return w.bits(ch.Key) != nil }) {
		return changes, nil, nil, nil
	}
	for _, ch := range changes {
		switch {
		case w.bits(ch.Key) == nil:
			others = append(others, ch)
		case ch.Data == nil:
			cleared = append(cleared, ch.Key.Name)
		default:
			set = append(set, ch.Key.Name)
		}
	}
	if len(others) == 0 {
		return nil, nil, nil, errBitsAlone
	}
	return others, set, cleared, nil
}

// changesBits says whether a transaction changes bits.
func (t *transaction) changesBits() bool { return len(t.set)+len(t.cleared) > 0 }

// turn waits until no other commit of this process changes bits. The caller gives the turn back with done.
func (w *Writer) turn(ctx context.Context, t *transaction) (done func(), err error) {
	if !t.changesBits() {
		return func() {}, nil
	}
	select {
	case w.turns <- struct{}{}:
		return func() { <-w.turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.closing:
		return nil, store.ErrClosed
	}
}

// attempt is what one attempt of a transaction compares, and writes besides its values. Each attempt computes it anew
// from the state.
type attempt struct {
	compares  []*etcdserverpb.Compare
	bits      []byte // the new bitmap; nil: it does not change
	recallKey int64  // the number of the key by which it can be recalled; 0: it need not be, or cannot
}

// addBits adds the new bitmap to an attempt, and the comparison with the bitmap that it was computed from. The
// preconditions of bits were judged by the same bitmap, so the comparison covers them, too.
func (w *Writer) addBits(a *attempt, t *transaction, whole *store.Version) (err error) {
	b := w.config.Bits
	revision, data := int64(0), []byte(nil)
	if whole != nil {
		revision, data = whole.Revision, whole.Data()
	}
	a.compares = append(a.compares, isAt(w.prefix+w.wholePath(), revision))
	if !t.changesBits() {
		return nil
	}
	if data, err = b.Change(data, t.set, t.cleared); err == nil {
		a.bits, err = w.encode(w.ctx, &store.Change{Key: b.Whole, Data: data, Sidecar: &store.Sidecar{}})
	}
	return err
}

// wholePath is the path of the bitmap.
func (w *Writer) wholePath() string {
	at, _ := w.config.Layout.Path(w.config.Bits.Whole)
	return at
}
