package past

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sort"
	"strings"

	"github.com/fxamacker/cbor/v2"

	"plinth/internal/durable"
	"plinth/internal/store"
)

// A purge rewrites the packs that have versions of an object. They may be nearly all of what the directory has, and the
// entries of the object are a few blocks of each: those that begin between its first key and its last one, and the one
// before. No delta reaches beyond a block, so the others are copied as they are, compressed. What is to be decoded and
// encoded again is what is to be changed, and the neighbors in its blocks, whose deltas may be from it:
//
//	old   | blocks before | blocks of the object  | blocks after | header | trailer |
//	new   | the same      | with other entries    | the same     | with other offsets
//
// An entry of a purged version keeps its key, its time, who has made the change, and the revision of the version. So
// the keys are the same ones, and so are the objects of the header.
//
// The new file gets the name of the old one. So a crash leaves one of the two, and never a gap. Readers go on with the
// old one, whose file has no name any more, until they end; a purge waits for them, as their file takes the disk until
// then.

// Purge implements store.Past. Packs are neither written nor merged meanwhile.
func (l *Log) Purge(ctx context.Context, plane string, k store.Key, until int64, dryRun bool) (changes, versions int,
	err error) {
	l.packing.Lock()
	defer l.packing.Unlock()
	if err := l.alive(); err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)() // Close waits for packing
	l.mu.Lock()
	packs := l.packs // whoever holds packing has no others leave the list
	l.mu.Unlock()
	for _, p := range packs {
		pu := purge{log: l, ctx: ctx, old: p, object: prefixOf(sortChange, plane, k.Resource, k.Name), until: until}
		err := pu.count()
		if err == nil && pu.versions > 0 && !dryRun {
			err = pu.rewrite()
		}
		if err != nil {
			return 0, 0, l.named(err, p.name())
		}
		changes, versions = changes+pu.changes, versions+pu.versions
	}
	if dryRun {
		return changes, versions, nil
	}
	return changes, versions, l.sweep(ctx)
}

// purge is the purge of one pack.
type purge struct {
	log               *Log
	ctx               context.Context
	old               *pack
	object            []byte
	until             int64
	changes, versions int
	from, to          int // the blocks that have entries of the object: from ≤ block < to
}

// count finds the entries of the object.
func (pu *purge) count() error {
	p := pu.old
	if p.Since >= pu.until || !p.mayHave(pu.object) {
		return nil
	}
	first, end := withRevision(pu.object, 0), withRevision(pu.object, pu.until)
	// A block that begins at the first key, or behind it, has entries of the object, and so may the one before.
	pu.to = sort.Search(len(p.Keys), func(i int) bool { return bytes.Compare(p.Keys[i], end) > 0 })
	pu.from = max(0, sort.Search(pu.to, func(i int) bool { return bytes.Compare(p.Keys[i], first) >= 0 })-1)
	return pu.each(func(e entry, ch *change) error {
		if ch == nil {
			return nil
		}
		if pu.changes++; ch.Revision != 0 && !ch.Purged {
			pu.versions++
		}
		return nil
	})
}

// each yields the entries of the blocks, and the change of those that are of the object; nil: an entry is none of them.
func (pu *purge) each(yield func(entry, *change) error) error {
	c := scan{ctx: pu.ctx, p: pu.old}
	for block := pu.from; block < pu.to; block++ {
		if err := yieldTo(pu.ctx); err != nil {
			return err
		}
		if err := c.load(block); err != nil {
			return err
		}
		for len(c.rest) > 0 {
			if _, err := c.next(); err != nil {
				return err
			}
			e := c.entry()
			if !bytes.Equal(objectOf(e.key), pu.object) || revisionOf(e.key) > pu.until {
				if err := yield(e, nil); err != nil {
					return err
				}
				continue
			}
			var ch change
			if err := cbor.Unmarshal(e.value, &ch); err != nil {
				return err
			}
			if err := yield(e, &ch); err != nil {
				return err
			}
		}
	}
	return nil
}

// rewrite puts a pack without the versions into the place of the old one.
func (pu *purge) rewrite() error {
	h := pu.old.header
	h.Version, h.Offsets, h.Keys = purgedVersion, nil, nil
	p, err := pu.log.install(h, pu.content)
	if err != nil {
		return err
	}
	return pu.log.replace([]*pack{pu.old}, p)
}

// content writes the blocks of the new pack.
func (pu *purge) content(w *packWriter) error {
	if err := pu.copy(w, 0, pu.from); err != nil {
		return err
	}
	err := pu.each(func(e entry, ch *change) error {
		w.Raw -= int64(len(e.key) + len(e.value))
		w.Entries--
		if ch != nil && ch.Revision != 0 {
			var err error
			if e.value, err = cbor.Marshal(&change{Time: ch.Time, Deleted: ch.Deleted, Revision: ch.Revision, By: ch.By,
				Purged: true}); err != nil {
				return err
			}
		}
		return w.add(e)
	})
	if err == nil {
		err = w.endBlock()
	}
	if err != nil {
		return err
	}
	return pu.copy(w, pu.to, len(pu.old.Keys))
}

// copyBytes is how much is copied before the context is looked at again.
const copyBytes = 256 << 10

// copy copies blocks as they are: from ≤ block < to.
func (pu *purge) copy(w *packWriter, from, to int) error {
	p := pu.old
	if from >= to {
		return nil
	}
	shift := w.offset - p.Offsets[from]
	for i := from; i < to; i++ {
		w.Offsets, w.Keys = append(w.Offsets, p.Offsets[i]+shift), append(w.Keys, p.Keys[i])
	}
	b := make([]byte, copyBytes)
	for at, end := p.Offsets[from], p.Offsets[to]; at < end; {
		if err := yieldTo(pu.ctx); err != nil {
			return err
		}
		n := int(min(end-at, copyBytes))
		if _, err := p.file.ReadAt(b[:n], at); err != nil && err != io.EOF {
			return err
		}
		if _, err := w.file.Write(b[:n]); err != nil {
			return err
		}
		at, w.offset = at+int64(n), w.offset+int64(n)
	}
	return nil
}

// sweep waits until nobody reads packs that are not in the list any more, and removes what is left of them: their
// removal may have failed, or a file may be unfinished. The caller holds packing.
func (l *Log) sweep(ctx context.Context) error {
	l.mu.Lock()
	leaving := l.leaving
	l.mu.Unlock()
	for _, p := range leaving {
		select {
		case <-p.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	names, err := l.o.FS.List(l.dir)
	if err != nil {
		return err
	}
	l.mu.Lock()
	kept := map[string]bool{}
	for _, p := range l.packs {
		kept[p.name()] = true
	}
	l.mu.Unlock()
	for _, name := range names {
		if _, ok := spanOf(name); ok && !kept[name] || strings.HasSuffix(name, unfinished) {
			err = errors.Join(err, l.o.FS.Remove(l.path(name)))
		}
	}
	return errors.Join(err, durable.SyncDir(l.o.FS, l.dir))
}

// hasEnded says whether the pack has no user any more.
func (p *pack) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}
