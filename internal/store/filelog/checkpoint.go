package filelog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/invariants"
	"plinth/internal/store"
)

// partBytes is about the size of one frame of a checkpoint: large enough to make the overhead small, and small enough
// to be read into a buffer.
const partBytes = 64 << 10

// writeCheckpoint writes the file of a checkpoint.
//
// The problem: a checkpoint of a large state takes seconds to write, and a crash may occur at any byte of it. If an
// incomplete checkpoint were accepted as complete, every object that it lacks would be lost, since the commits before
// it are removed. So the file has another name until it is synced (install), and its content shows whether it is
// complete, too (checkpoint):
//
//	a file with the name of a checkpoint  ⇒  all of it was synced before it got that name
//
// Commits continue meanwhile, in the segments, and share the disk. The versions are those of a frozen state
// (store.Checkpoint), so no lock is held. The file is written to the disk steadily, half a megabyte at a time: one sync
// of all of it at the end would delay the syncs of commits by seconds.
func (l *Log) writeCheckpoint(c *store.Checkpoint) error {
	name := checkpointName(c.Revision)
	file, err := l.fs.Create(l.path(name+tmpSuffix), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}

	f := vfs.NewSyncingFile(file, vfs.SyncingFileOptions{BytesPerSync: 512 << 10})
	return l.install(f, name, newWriter(f).checkpoint(c, l.sealing))
}

// checkpoint writes the frames of a checkpoint: header, head, versions in parts, and the end with the number of
// parts. Without that number a checkpoint that was cut off after a whole frame would look complete.
//
//	frameCheckpoint   framePart: head   framePart: versions   …   framePart: versions   frameEnd: number of parts
//
//	versions are ordered by resource and name, each key once; their revisions ≤ c.Revision
//
// The versions of the first plane are followed by layers: a part with what is known of the layer, and its versions.
//
// Frames of a checkpoint have no synced offset, since none of them is used before all of it is synced. Those of
// parts have the number of their layer in its place, 0 for the first plane: when the beginning of a layer is lost,
// its versions must not be taken for those of the layer before it. A restart appends the versions to its trees in
// their order, which is the cheapest order for a B-tree.
func (w *writer) checkpoint(c *store.Checkpoint, sealing store.Sealing) error {
	if err := w.frame(frameCheckpoint, 0, c.Revision, appendFileHeader(nil, checkpointMagic, c.Revision)); err != nil {
		return err
	}
	var parts, number int64 // number is that of the layer
	part := func(payload []byte) error {
		parts++
		return w.frame(framePart, number, c.Revision, payload)
	}
	if err := part(appendHead(nil, c)); err != nil {
		return err
	}
	v := versionWriter{part: part, seals: sealer{sealing: sealing}}
	if err := v.all(c.Versions, "", c.Revision); err != nil {
		return err
	}
	if c.Layers != nil {
		for layer, err := range c.Layers {
			if err != nil {
				return err
			}
			number = int64(layer.Number)
			if err := part(appendLayer(nil, layer)); err != nil {
				return err
			}
			if err := v.all(layer.Versions, layer.Scope(), c.Revision); err != nil {
				return err
			}
		}
	}
	if err := w.frame(frameEnd, parts, c.Revision, nil); err != nil {
		return err
	}
	return w.records.Flush()
}

// versionWriter writes versions in parts. The number of versions of a part is written before them and known only at its
// end, so they are collected first.
type versionWriter struct {
	part              func(payload []byte) error
	seals             sealer
	versions, payload []byte
	count             int
	sealed            bool
}

// all writes versions, which are ordered by resource and name, and encrypted for a scope.
func (w *versionWriter) all(versions iter.Seq2[*store.Version, error], scope string, revision int64) error {
	var last store.Key
	for v, err := range versions {
		if err != nil {
			return err
		}
		seal, err := w.seals.of(v)
		if err != nil {
			return fmt.Errorf("%s cannot be encrypted: %w", v.Key, err)
		}
		// Versions are ordered by resource, so parts of either kind follow one another a few times at most.
		if holds := seal != nil || v.Sidecar != nil && v.Sidecar.Undecrypted; holds && !w.sealed && w.count > 0 {
			if err := w.flush(); err != nil {
				return err
			}
			w.sealed = holds
		} else if w.count == 0 {
			w.sealed = holds
		}
		if invariants.Enabled {
			if v.Revision > revision || v.Key.Resource < last.Resource || v.Key.Resource == last.Resource &&
				v.Key.Name <= last.Name {
				invariants.Fail("filelog: a checkpoint of %d has %s at %d after %s", revision, v.Key, v.Revision,
					last)
			}
			last = v.Key
		}
		w.versions = appendVersion(w.versions, scope, v, w.sealed, seal)
		if w.count++; len(w.versions) >= partBytes {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	if w.count > 0 {
		return w.flush()
	}
	return nil
}

// flush writes a part with the versions that were collected.
func (w *versionWriter) flush() error {
	if w.payload = append(w.payload[:0], payloadVersions); w.sealed {
		w.payload[0] = payloadSealedVersions
	}
	w.payload = binary.AppendUvarint(w.payload, uint64(w.count))
	w.payload = append(w.payload, w.versions...)
	w.versions, w.count = w.versions[:0], 0
	return w.part(w.payload)
}

// sealer remembers the Seal of a resource, so that all of its versions have the same one: a Seal may take the call of
// another process. All versions are encrypted again with the current key, so that after a checkpoint earlier keys are
// needed for the history alone.
type sealer struct {
	sealing  store.Sealing
	resource string
	seal     *store.Seal
}

// of returns the Seal of a version; nil if it is not to be encrypted, or is already.
func (s *sealer) of(v *store.Version) (*store.Seal, error) {
	if s.sealing == nil || v.Sidecar == nil || v.Sidecar.Undecrypted {
		return nil, nil
	}
	if s.resource != v.Key.Resource {
		seal, err := s.sealing.Seal(context.Background(), v.Key.Resource)
		if err != nil {
			return nil, err
		}
		s.resource, s.seal = v.Key.Resource, seal
	}
	return s.seal, nil
}

// readCheckpoint yields the parts of a checkpoint until yield returns enough. Every frame has to read back, and the
// number of parts has to be that of the end frame: a checkpoint was synced before it got its name, so everything else
// is damage. An error of yield is damage, too: it is about the content of the part.
func (l *Log) readCheckpoint(revision int64, yield func(part frame) (enough bool, err error)) error {
	file := l.path(checkpointName(revision))
	f, err := l.fs.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// count is the number of parts read so far; -1 before the header.
	r := newReader(f, 0, info.Size())
	for count := int64(-1); ; count++ {
		fr, err := r.next()
		if err == io.EOF || err == errBroken {
			return &DamageError{File: file, Offset: fr.offset, Reason: "a frame does not read back"}
		}
		if err != nil {
			return err
		}
		switch {
		case count < 0:
			var says int64
			if err := parseFileHeader(file, fr.payload, checkpointMagic, &says); err != nil {
				return err
			}
			if says != revision {
				return &DamageError{File: file, Reason: fmt.Sprintf("its header says that it is of revision %d", says)}
			}
		case fr.kind == frameEnd:
			if fr.synced != count {
				reason := fmt.Sprintf("it should hold %d parts and has %d", fr.synced, count)
				return &DamageError{File: file, Offset: fr.offset, Reason: reason}
			}
			return nil
		case fr.kind != framePart:
			reason := fmt.Sprintf("a frame of type %d does not belong there", fr.kind)
			return &DamageError{File: file, Offset: fr.offset, Reason: reason}
		default:
			enough, err := yield(fr)
			if err != nil {
				return &DamageError{File: file, Offset: fr.offset, Reason: err.Error()}
			}
			if enough {
				return nil
			}
		}
	}
}

// Checkpoint returns the newest checkpoint. Its head is read now; the versions are read from the file when they are
// iterated over, so that a restart needs no memory for them twice. They are lent (store.Log): each is valid until
// yield returns.
//
// The store calls it before the first Append, when no Compact can remove the file between the two reads.
func (l *Log) Checkpoint() (*store.Checkpoint, error) {
	l.mu.Lock()
	revision := l.checkpoint
	l.mu.Unlock()
	if revision == 0 {
		return store.EmptyCheckpoint(), nil
	}
	c := &store.Checkpoint{Revision: revision}
	layers := false
	err := l.readCheckpoint(revision, func(part frame) (enough bool, err error) {
		var says int64
		says, c.Window, layers, err = parseHead(part.payload)
		if err == nil && says != revision {
			err = fmt.Errorf("its head is of revision %d", says)
		}
		return true, err
	})
	if err != nil {
		return nil, err
	}
	c.Versions = func(yield func(*store.Version, error) bool) {
		p := parser{sealing: l.sealing}
		// The first part is the head, which has been read.
		head, ended := true, false
		err := l.readCheckpoint(revision, func(part frame) (enough bool, err error) {
			if head {
				head = false
				return false, nil
			}
			if layers && beginsLayer(part) {
				return true, nil
			}
			gone := false
			ended, err = p.versions(part.payload, func(v *store.Version) bool {
				gone = v.Sidecar == nil // there is nothing of which the first plane is the difference
				return !gone && yield(v, nil)
			})
			if gone {
				return false, errPayload
			}
			return ended, err
		})
		if err != nil {
			yield(nil, err)
		}
	}
	if layers {
		c.Layers = func(yield func(*store.Layer, error) bool) { l.readLayers(revision, yield) }
	}
	return c, nil
}

// beginsLayer says whether a part of a checkpoint is the beginning of a layer.
func beginsLayer(part frame) bool { return len(part.payload) > 0 && part.payload[0] == payloadLayer }

// errLayer is the error for a part that is not where its frame says.
var errLayer = errors.New("it is a part of another layer than the one before it begins")

// readLayers yields the layers of a checkpoint. It reads the file as Checkpoint.Versions does, and passes by what is
// before the first layer; each layer reads on up to the next one.
func (l *Log) readLayers(revision int64, yield func(*store.Layer, error) bool) {
	next, stop := iter.Pull2(func(yield func(frame, error) bool) {
		err := l.readCheckpoint(revision, func(part frame) (enough bool, err error) { return !yield(part, nil), nil })
		if err != nil {
			yield(frame{}, err)
		}
	})
	defer stop()
	p := parser{sealing: l.sealing}
	failed := func(part frame, err error) {
		yield(nil, &DamageError{File: l.path(checkpointName(revision)), Offset: part.offset, Reason: err.Error()})
	}
	part, err, ok := next()
	for ; ok && err == nil && !beginsLayer(part); part, err, ok = next() {
	}
	for ok && err == nil {
		layer, wrong := parseLayer(part.payload)
		if wrong == nil && int64(layer.Number) != part.synced {
			wrong = errLayer
		}
		if wrong != nil {
			failed(part, wrong)
			return
		}
		// The strings of the layer are in the buffer of its part.
		layer.Plane = strings.Clone(layer.Plane)
		for i := range layer.Collections {
			layer.Collections[i].Resource = strings.Clone(layer.Collections[i].Resource)
		}
		read := false
		layer.Versions = func(yield func(*store.Version, error) bool) {
			read = true
			more := true
			for part, err, ok = next(); ok && err == nil && !beginsLayer(part); part, err, ok = next() {
				if !more {
					continue
				}
				p.scope = layer.Scope()
				_, wrong := p.versions(part.payload, func(v *store.Version) bool {
					more = yield(v, nil)
					return more
				})
				if wrong == nil && int64(layer.Number) != part.synced {
					wrong = errLayer
				}
				if wrong != nil && more {
					err = &DamageError{File: l.path(checkpointName(revision)), Offset: part.offset, Reason: wrong.Error()}
					break
				}
			}
			if err != nil && more {
				yield(nil, err)
			}
		}
		if !yield(layer, nil) {
			return
		}
		if !read {
			for range layer.Versions {
			}
		}
	}
	if err != nil {
		yield(nil, err)
	}
}
