// Package memlog is the log of a store that lives in memory alone: every commit is as durable as it will ever be at
// once, and history is what the store itself holds.
package memlog

import (
	"sync/atomic"

	"plinth/internal/store"
)

// Log keeps nothing but the newest revision. The store has the newest commits in memory anyway; to keep older ones,
// too, would cost up to the whole window of the history in memory, which is meant for a disk.
type Log struct{ newest atomic.Int64 }

// New returns an empty log.
func New() *Log { return &Log{} }

// Append takes note of the newest revision.
func (l *Log) Append(commits []*store.Commit) error {
	if n := len(commits); n > 0 {
		l.newest.Store(commits[n-1].Revision)
	}
	return nil
}

// Checkpoint is that of an empty store.
func (l *Log) Checkpoint() (*store.Checkpoint, error) { return store.EmptyCheckpoint(), nil }

// Replay has nothing to yield.
func (l *Log) Replay(after int64, _ func(*store.Commit) error) error {
	if after < l.newest.Load() {
		return store.ErrCompacted
	}
	return nil
}

// Compact has nothing to let go.
func (l *Log) Compact(int64, *store.Checkpoint) error { return nil }

// Close has nothing to close.
func (l *Log) Close() error { return nil }
