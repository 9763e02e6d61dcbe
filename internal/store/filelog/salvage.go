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
func (in *Inspection) Write(dir string, o Options) (err error) {
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
	revision := max(in.Revision, firstRevision)
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
			for _, layer := range in.layers(revision) {
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
