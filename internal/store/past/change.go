package past

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"

	"plinth/internal/store"
)

// change is what a pack has of a change besides its key, as CBOR. Fields that later versions add are ignored.
type change struct {
	Time    int64 `cbor:"1,keyasint"`           // of the commit, in nanoseconds since 1970
	Deleted bool  `cbor:"2,keyasint,omitempty"` // the object is gone with it
	// The version that it has ended, if Revision is not 0, with what is stored beside its bytes.
	Revision int64  `cbor:"3,keyasint,omitempty"`
	Data     []byte `cbor:"4,keyasint,omitempty"`
	Expire   int64  `cbor:"5,keyasint,omitempty"` // nanoseconds since 1970
	Form     uint64 `cbor:"6,keyasint,omitempty"`
	// Sealed says that Data is encrypted; for Scope, if that is not the one of the plane.
	Sealed bool            `cbor:"7,keyasint,omitempty"`
	Scope  *string         `cbor:"8,keyasint,omitempty"`
	By     cbor.RawMessage `cbor:"9,keyasint,omitempty"` // store.Attribution
	// Purged says that the version was purged: of it the revision is left. Only packs of purgedVersion have it.
	Purged bool `cbor:"10,keyasint,omitempty"`
}

// A key of a pack is its sort, the plane, the resource, the name, and the revision in eight bytes. Strings end with
// 0x00 0x01, and 0x00 within them is 0x00 0xFF: so keys are in the order of the strings, and none is the beginning of
// another one.
//
// There are three sorts: changes; beside each change that has deleted an object an empty entry which says so; and an
// empty entry of each commit, whose key is its sort, the time in eight bytes, and the revision. Objects that are there
// can be looked up by their names; those which are not there any more are found by the second.
const (
	sortChange  = 'c'
	sortDeleted = 'd'
	sortTime    = 't'
)

// prefixOf is what the keys have in common that are of one object, or without a name, of one resource.
func prefixOf(sort byte, plane, resource string, name ...string) []byte {
	b := append(make([]byte, 0, 96), sort)
	for _, s := range append([]string{plane, resource}, name...) {
		for {
			i := bytes.IndexByte([]byte(s), 0)
			if i < 0 {
				break
			}
			b = append(append(b, s[:i+1]...), 0xff)
			s = s[i+1:]
		}
		b = append(append(b, s...), 0, 1)
	}
	return b
}

// atTime is what the keys have in common that are of a moment, in nanoseconds since 1970. Times before that are one.
func atTime(nanoseconds int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{sortTime}, uint64(max(nanoseconds, 0)))
}

func withRevision(prefix []byte, revision int64) []byte {
	return binary.BigEndian.AppendUint64(slices.Clip(prefix), uint64(revision))
}

// revisionOf is the revision of a key, and objectOf what is before it.
func revisionOf(key []byte) int64 { return int64(binary.BigEndian.Uint64(key[len(key)-8:])) }

func objectOf(key []byte) []byte { return key[:len(key)-8] }

// nameOf is the name in a key that has the prefix.
func nameOf(key, prefix []byte) string {
	name := bytes.TrimSuffix(objectOf(key)[len(prefix):], []byte{0, 1})
	return string(bytes.ReplaceAll(name, []byte{0, 0xff}, []byte{0}))
}

// batch is the changes of commits that will be a pack. Its bytes are bounded by packBytes and one commit.
type batch struct {
	log          *Log
	ctx          context.Context
	since, until int64
	first, last  int64 // times
	raw          int64
	all          []entry
	seals        map[string]*store.Seal
}

type entry struct{ key, value []byte }

func (l *Log) batch(ctx context.Context, since int64) *batch {
	b := &batch{log: l, ctx: ctx, until: since}
	b.reset()
	return b
}

// reset makes the batch empty. It begins where the last one has ended.
func (b *batch) reset() {
	b.since, b.first, b.last, b.raw, b.all = b.until, 0, 0, 0, nil
	b.seals = map[string]*store.Seal{} // another key may encrypt by now
}

// add adds what a commit has ended.
func (b *batch) add(c *store.Commit) error {
	if b.first == 0 {
		b.first = c.Time
	}
	b.last, b.until = max(b.last, c.Time), c.Revision
	b.entry(withRevision(atTime(c.Time), c.Revision), nil)
	if err := b.records(c.Plane, c, c.Records); err != nil || c.Begins == nil {
		return err
	}
	return b.records(c.Begins.Plane, c, c.Begins.Records)
}

func (b *batch) records(plane string, c *store.Commit, records []*store.Record) error {
	for _, r := range records {
		if r.Old == nil && r.New == nil || slices.Contains(b.log.o.Without, r.Key.Resource) {
			continue
		}
		ch := change{Time: c.Time, Deleted: r.New == nil, By: c.By}
		if r.Old != nil {
			if err := b.old(&ch, plane, r.Key, r.Old); err != nil {
				return err
			}
		}
		value, err := cbor.Marshal(&ch)
		if err != nil {
			return err
		}
		sorts := []byte{sortChange}
		if ch.Deleted {
			sorts = append(sorts, sortDeleted)
		}
		for _, sort := range sorts {
			key := withRevision(prefixOf(sort, plane, r.Key.Resource, r.Key.Name), r.Revision)
			if sort == sortChange {
				b.entry(key, value)
			} else {
				b.entry(key, nil)
			}
		}
	}
	return nil
}

func (b *batch) entry(key, value []byte) {
	b.all = append(b.all, entry{key, value})
	b.raw += int64(len(key) + len(value))
}

// old sets the version that a change has ended, encrypted as a write of it would be now.
func (b *batch) old(ch *change, plane string, k store.Key, v *store.Version) error {
	ch.Revision, ch.Data, ch.Form = v.Revision, v.Data(), v.Sidecar.Form
	if !v.Sidecar.Expire.IsZero() {
		ch.Expire = v.Sidecar.Expire.UnixNano()
	}
	if v.Sidecar.Undecrypted {
		scope := v.Sidecar.Scope()
		ch.Sealed, ch.Scope = true, &scope
		return nil
	}
	if b.log.o.Sealing == nil {
		return nil
	}
	seal, known := b.seals[k.Resource]
	if !known {
		var err error
		if seal, err = b.log.o.Sealing.Seal(b.ctx, k.Resource); err != nil {
			return err
		}
		b.seals[k.Resource] = seal
	}
	if seal != nil {
		ch.Sealed, ch.Data = true, seal.Append(nil, store.ScopeOf(plane), k, ch.Data)
	}
	return nil
}

func (b *batch) header() header {
	return header{Since: b.since, Until: b.until, First: b.first, Last: b.last, Without: b.log.o.Without}
}

// entries yields the entries of the batch in their order.
func (b *batch) entries() func(func(entry, error) bool) {
	slices.SortFunc(b.all, func(x, y entry) int { return bytes.Compare(x.key, y.key) })
	return func(yield func(entry, error) bool) {
		for _, e := range b.all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// errSealed is the reference's error for an encrypted value, where nothing decrypts it.
var errSealed = errors.New("identity transformer tried to read encrypted data")

// changeOf is the change of an object that an entry has. Nothing of it points into the entry.
func (l *Log) changeOf(ctx context.Context, plane string, k store.Key, e entry) (*store.PastChange, error) {
	var ch change
	if err := cbor.Unmarshal(e.value, &ch); err != nil {
		return nil, err
	}
	by, err := store.AttributionOf(ch.By)
	if err != nil {
		return nil, err
	}
	p := &store.PastChange{Key: k, Revision: revisionOf(e.key), Time: ch.Time, By: by, Deleted: ch.Deleted,
		Purged: ch.Purged}
	if ch.Revision == 0 || ch.Purged {
		return p, nil
	}
	data, sidecar := ch.Data, &store.Sidecar{Form: ch.Form}
	if ch.Expire != 0 {
		sidecar.Expire = time.Unix(0, ch.Expire)
	}
	if ch.Sealed {
		scope, err := store.ScopeOf(plane), errSealed
		if ch.Scope != nil {
			scope = *ch.Scope
		}
		var plain []byte
		if l.o.Sealing != nil {
			plain, sidecar.SealedBy, err = l.o.Sealing.Open(ctx, scope, k, data)
		}
		switch {
		case err == nil:
			data = plain
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case scope != "":
			err = &store.UndecryptedError{Scope: scope, Err: err}
			fallthrough
		default:
			sidecar.Undecrypted, sidecar.Unreadable = true, err
		}
	}
	if data == nil {
		data = []byte{} // an empty version differs from none
	}
	p.Old = store.NewVersion(k, ch.Revision, data, sidecar)
	return p, nil
}
