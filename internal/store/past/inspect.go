package past

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/fxamacker/cbor/v2"

	"plinth/internal/durable"
	"plinth/internal/store"
)

// Finding is something that is wrong with a directory of packs.
type Finding struct {
	File   string
	Offset int64 // -1: it is about the file as a whole
	Reason string
	Minor  bool // nothing that is to be there is lost: it is what a crash may leave
}

func (f *Finding) String() string {
	if f.Offset < 0 {
		return f.File + ": " + f.Reason
	}
	return fmt.Sprintf("%s at offset %d: %s", f.File, f.Offset, f.Reason)
}

// Inspection is what a directory of packs holds, and what is wrong with it.
type Inspection struct {
	Findings []Finding
	Packs    int
	Bytes    int64 // of the files
	Changes  int64
	// Since and Until are the revisions from which and up to which there are changes without a gap, and From is the time
	// of the first of them. Without packs they are zero.
	Since, Until int64
	From         time.Time
}

// Damaged says whether there is a finding that is not minor.
func (in *Inspection) Damaged() bool {
	return slices.ContainsFunc(in.Findings, func(f Finding) bool { return !f.Minor })
}

// Inspect reads all of a directory of packs that nobody writes to, and changes nothing: each block and its checksum,
// the order of the keys, each change, and whether the headers say what there is. A directory that does not exist has no
// packs. fs nil: that of the operating system. What is encrypted is not decrypted.
func Inspect(ctx context.Context, dir string, fs vfs.FS) (*Inspection, error) {
	if fs == nil {
		fs = durable.FS
	}
	l := &Log{o: Options{FS: fs}, dir: dir, ctx: ctx}
	in := &Inspection{}
	spans, err := in.names(l)
	if err != nil {
		return nil, err
	}
	for _, h := range spans {
		p, err := l.openPack(h.name())
		switch damage := (*DamageError)(nil); {
		case errors.As(err, &damage):
			in.damage(damage)
			in.Until, in.Since = h.Until, h.Until
			continue
		case err != nil:
			return nil, err
		}
		if in.Packs++; in.Packs == 1 || p.Since != in.Until {
			in.Since, in.From = p.Since, time.Unix(0, p.First)
		}
		in.Until, in.Bytes = p.Until, in.Bytes+p.size
		err = in.read(ctx, l, p)
		if damage := (*DamageError)(nil); errors.As(err, &damage) {
			in.damage(damage)
			err = nil
		}
		if err = errors.Join(err, p.release()); err != nil {
			return nil, err
		}
	}
	return in, nil
}

func (in *Inspection) damage(d *DamageError) {
	in.Findings = append(in.Findings, Finding{File: d.File, Offset: d.Offset, Reason: d.Reason})
}

// names are the packs of a directory by their names, in their order, without those that larger ones have replaced.
func (in *Inspection) names(l *Log) (spans []header, err error) {
	names, err := l.o.FS.List(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	note := func(name, reason string) {
		in.Findings = append(in.Findings, Finding{File: l.path(name), Offset: -1, Reason: reason, Minor: true})
	}
	for _, name := range names {
		if h, ok := spanOf(name); ok {
			spans = append(spans, h)
		} else if strings.HasSuffix(name, unfinished) {
			note(name, "it is unfinished, and the next start removes it")
		}
	}
	slices.SortFunc(spans, func(x, y header) int {
		return cmp.Or(cmp.Compare(x.Since, y.Since), cmp.Compare(y.Until, x.Until))
	})
	var until int64
	kept := spans[:0]
	for i, h := range spans {
		switch {
		case i > 0 && h.Until <= until && h.Since < until:
			note(h.name(), "a larger file has replaced it, and the next start removes it")
			continue
		case i > 0 && h.Since != until:
			note(h.name(), fmt.Sprintf("the changes of the revisions from %d to %d are missing before it, and the next "+
				"start begins the past with it", until+1, h.Since))
		}
		until = h.Until
		kept = append(kept, h)
	}
	return kept, nil
}

// read reads all entries of a pack, and compares them with its header.
func (in *Inspection) read(ctx context.Context, l *Log, p *pack) error {
	c := scan{ctx: ctx, p: p}
	raw, entries := int64(0), int64(0)
	var last []byte
	deleted := map[string]bool{} // objects and revisions that only one of the two sorts of entries has
	wrong := func(reason string, args ...any) error {
		return &DamageError{File: l.path(p.name()), Offset: p.Offsets[max(0, min(c.block, len(p.Offsets)-1))],
			Reason: fmt.Sprintf(reason, args...)}
	}
	for {
		ok, err := c.next()
		if err != nil {
			return l.named(err, p.name())
		}
		if !ok {
			break
		}
		value := c.value()
		if entries++; entries%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		raw += int64(len(c.key) + len(value))
		revision := revisionOf(c.key)
		switch {
		case bytes.Compare(c.key, last) <= 0:
			return wrong("two entries are in the wrong order")
		case revision <= p.Since || revision > p.Until:
			return wrong("a change has the revision %d", revision)
		case c.key[0] == sortTime && (len(c.key) != len(atTime(0))+8 || len(value) > 0):
			return wrong("a key is not one of a time")
		case c.key[0] != sortTime && bytes.Count(c.key[:len(c.key)-8], []byte{0, 1}) != 3:
			return wrong("a key is not one of an object")
		}
		last = append(last[:0], c.key...)
		switch c.key[0] {
		case sortDeleted:
			deleted[string(c.key[1:])] = !deleted[string(c.key[1:])]
			continue
		case sortTime:
			continue
		case sortChange:
		default:
			return wrong("a key is of no kind")
		}
		in.Changes++
		var ch change
		if err := cbor.Unmarshal(value, &ch); err != nil {
			return wrong("a change of the revision %d: %s", revision, err)
		}
		if _, err := store.AttributionOf(ch.By); err != nil {
			return wrong("who has made the change of the revision %d: %s", revision, err)
		}
		switch {
		case ch.Purged && (p.Version != purgedVersion || ch.Revision == 0 || len(ch.Data) > 0):
			return wrong("the change of the revision %d has ended a version that was purged, and has more of it", revision)
		case ch.Revision < 0 || ch.Revision >= revision:
			return wrong("the change of the revision %d has ended the version %d", revision, ch.Revision)
		case !p.mayHave(objectOf(c.key)):
			return wrong("the header does not know of the change of the revision %d", revision)
		}
		if ch.Deleted {
			deleted[string(c.key[1:])] = !deleted[string(c.key[1:])]
		}
	}
	for key, once := range deleted {
		if once {
			return wrong("the deletion of the revision %d is there once, and not twice",
				binary.BigEndian.Uint64([]byte(key[len(key)-8:])))
		}
	}
	if raw != p.Raw || entries != p.Entries {
		return wrong("the header knows of %d entries with %d bytes, and there are %d with %d", p.Entries, p.Raw, entries, raw)
	}
	return nil
}
