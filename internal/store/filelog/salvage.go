package filelog

import (
	"errors"
	"fmt"
	"log/slog"

	"plinth/internal/durable"
	"plinth/internal/store"
)

// Write makes a new directory of what was read: a checkpoint with the versions and planes, and an empty segment after
// it. What planes have in common is written once, as before. Its
// revision is the newest one that there was, so that no resourceVersion is given out twice; there is no history.
// Versions that did not decrypt are written as they are, and the others are encrypted as o.Sealing says.
//
// The manifest is written last but for FORMAT, without which no server takes the directory for a store.
func (in *Inspection) Write(dir string, o Options) error {
	// A commit that is lost may have been of any plane.
	return in.write(dir, o, max(in.Revision, firstRevision), in.Damaged())
}

// Restore is Write for a directory that takes the place of a server whose later commits are gone: it goes on above a
// revision, which is greater than each that the lost server can have given out. Objects keep theirs, but every plane is
// as of that revision, so that nobody can continue at one that means something else now:
//
//	r < revision  ⇒  a watch from r, and an exact list as of r, get ErrCompacted, in each plane
//	r ≥ revision  ⇒  the lost server has not given out r
func (in *Inspection) Restore(dir string, o Options, revision int64) error {
	if revision < in.Revision {
		return fmt.Errorf("revision %d is before %d, which was given out", revision, in.Revision)
	}
	return in.write(dir, o, revision, true)
}

// write makes the directory as of a revision; raised says that the planes are as of it, too, and have none of their
// own.
func (in *Inspection) write(dir string, o Options, revision int64, raised bool) (err error) {
	if o.FS == nil {
		o.FS = diskFS{durable.FS}
	}
	l := &Log{fs: o.FS, dir: dir, logger: slog.New(slog.DiscardHandler), segmentBytes: 8 << 20, sealing: o.Sealing}
	if err := durable.MkdirAll(l.fs, dir); err != nil {
		return err
	}
	names, err := l.fs.List(dir)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("%s is not empty; name a directory that is new", dir)
	}
	if l.lock, err = l.fs.Lock(l.path(lockName)); err != nil {
		return lockError(dir, err)
	}
	defer func() { err = errors.Join(err, l.closeFiles()) }()
	c := &store.Checkpoint{Revision: revision, Window: store.Window{Horizon: revision},
		Versions: func(yield func(*store.Version, error) bool) {
			for _, v := range in.Versions {
				if !yield(v, nil) {
					return
				}
			}
		}}
	if len(in.Planes) > 0 {
		c.Layers = func(yield func(*store.Layer, error) bool) {
			for _, layer := range in.layers(revision, raised) {
				if !yield(layer, nil) {
					return
				}
			}
		}
	}
	if err := l.writeCheckpoint(c); err != nil {
		return err
	}
	l.checkpoint = revision
	if err := l.begin(&segment{after: revision, previous: -1, end: revision}, nil); err != nil {
		return err
	}
	var e entry
	l.describe(&e)
	if err := l.createManifest(e); err != nil {
		return err
	}
	return l.writeFormat()
}
