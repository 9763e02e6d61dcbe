package filelog

import (
	"errors"
	"fmt"
	"io/fs"

	"plinth/internal/durable"
	"plinth/internal/invariants"
	"plinth/internal/store"
)

// Erase and Roll remove commits from the disk, at the request of whoever has written into them what nobody may read.
//
// The problem: Compact removes whole segments, never the active one, and it may leave files behind whose removal has
// failed. It is enough for it that they are removed some time. So Roll first ends the active segment:
//
//	Roll returned r   ⇒   every commit up to r is in a segment that is not the active one, or in none
//
// and Erase(r, c), with a checkpoint c of a revision that is not before r, leaves no file with such a commit:
//
//	Erase(r, c) returned nil   ⇒   after any crash, the directory has the checkpoint c, or a later one, and segments
//	                               that begin after r
//
// A Frozen and a Replay that have opened a file before may read it until they close it.

// Roll ends the active segment, unless it is empty, and returns the revision of the newest commit. It implements
// store.Eraser.
func (l *Log) Roll() (newest int64, err error) {
	err = l.exclusively(func() error {
		if _, newest = l.Bounds(); l.active != nil && l.active.segment.after == newest {
			return nil
		}
		_, err := l.roll()
		return err
	})
	return newest, err
}

// Erase is Compact with a horizon and a checkpoint that has all commits up to it, and does not return before they are
// gone from the directory. It implements store.Eraser.
func (l *Log) Erase(horizon int64, c *store.Checkpoint) error {
	if err := l.Compact(horizon, c); err != nil {
		return err
	}
	if err := l.removeLeft(); err != nil {
		return fmt.Errorf("data directory %s: %w", l.dir, err)
	}
	if oldest, _ := l.Bounds(); invariants.Enabled && oldest < horizon {
		invariants.Fail("filelog: commits up to %d are erased, and those after %d are there", horizon, oldest)
	}
	return nil
}

// Copies implements store.Eraser: the log itself copies its commits nowhere.
func (l *Log) Copies() string { return "" }

// removeLeft removes the files that an earlier Compact, or a checkpoint that was not finished, has left, and makes the
// removal of all files durable. Files that are newer than the list are left alone: an Append may be about to add them.
func (l *Log) removeLeft() error {
	l.removing.Lock()
	defer l.removing.Unlock()
	present, checkpoints, unfinished, err := l.list()
	if err != nil {
		return err
	}
	l.mu.Lock()
	oldest, checkpoint := l.segments[0].after, l.checkpoint
	l.mu.Unlock()
	var remove []string
	for _, after := range present {
		if after < oldest {
			remove = append(remove, segmentName(after))
		}
	}
	for _, revision := range checkpoints {
		if revision < checkpoint {
			remove = append(remove, checkpointName(revision))
		}
	}
	for _, name := range unfinished {
		if revision, kind, ok := parseName(name[:len(name)-len(tmpSuffix)]); ok &&
			(kind == "base" || kind == "log" && revision < oldest) {
			remove = append(remove, name)
		}
	}
	for _, name := range remove {
		if err := l.fs.Remove(l.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// Synced, so that no entry is left that names what is gone.
	if err := l.manifest.writeSynced(func(*entry) {}); err != nil {
		return err
	}
	return durable.SyncDir(l.fs, l.dir)
}
