// Package memlog is the log of a store that lives in memory alone: every commit is as durable as it will ever be at
// once, and history is what the store itself holds.
package memlog

import (
	"iter"
	"sync/atomic"

	"plinth/internal/store"
)

// Log keeps nothing but the newest revision.
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

// Replay has nothing to yield.
func (l *Log) Replay(after int64, _ func([]byte) error) error {
	if after >= 0 && after < l.newest.Load() {
		return store.ErrCompacted
	}
	return nil
}

// Compact has nothing to let go.
func (l *Log) Compact(_, _ int64, _ iter.Seq2[[]byte, error]) error { return nil }

// Close has nothing to close.
func (l *Log) Close() error { return nil }
