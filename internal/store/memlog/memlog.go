// Package memlog is the log of a store in memory only: a commit is durable at once, as far as memory is durable, and
// the history is that which the store itself holds in memory.
//
// Caveat. A watch that falls behind by more than that (store.Config.MemoryHistoryBytes) gets ErrCompacted, however
// short a time it lags: there is no log to read from, and no disk that slows writers down.
package memlog

import (
	"context"
	"sync/atomic"

	"plinth/internal/store"
)

// Log holds the newest revision only, by which Replay can report that commits are missing. The store has the newest
// commits in memory anyway; keeping older ones, too, would take up to 512 MiB of memory for a window that is meant for
// a disk.
type Log struct {
	newest atomic.Int64
	start  *store.Checkpoint
}

// New returns an empty log.
func New() *Log { return &Log{start: store.EmptyCheckpoint()} }

// From returns a log that begins with an image, at a revision that is at least after.
func From(image *store.Image, after int64) *Log { return &Log{start: image.Checkpoint(after)} }

// Append records the newest revision.
func (l *Log) Append(commits []*store.Commit) error {
	if n := len(commits); n > 0 {
		l.newest.Store(commits[n-1].Revision)
	}
	return nil
}

// Checkpoint is that of an empty store, or that of the image.
func (l *Log) Checkpoint() (*store.Checkpoint, error) { return l.start, nil }

// Replay yields no commits, and returns an error if there were any after the revision.
func (l *Log) Replay(_ context.Context, after int64, _ []string, _ func(*store.Commit) error) error {
	if after < l.newest.Load() {
		return store.ErrCompacted
	}
	return nil
}

// Compact does nothing: there are no files.
func (l *Log) Compact(int64, *store.Checkpoint) error { return nil }

// Close does nothing: no file is open.
func (l *Log) Close() error { return nil }
