package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"plinth/internal/datadir"
	"plinth/internal/store"
	"plinth/internal/store/filelog"
)

// Moment is as of when to restore; the zero value is the newest state.
type Moment struct {
	Revision int64
	Time     time.Time
}

// takes says whether the state as of the moment has a commit, if it has all before it. A commit is taken as a whole or
// not at all. Where the clock has gone back, the first commit that is later than the moment ends it.
func (m Moment) takes(revision, nanoseconds int64) bool {
	switch {
	case m.Revision > 0:
		return revision <= m.Revision
	case !m.Time.IsZero():
		return nanoseconds <= m.Time.UnixNano()
	}
	return true
}

// Source puts the files of a store into a directory, which is empty, and checks them. keys are nil if there are none.
type Source func(ctx context.Context, dir string, at Moment) (d *Document, keys []byte, err error)

// FromArchive is the store in an archive.
func FromArchive(archive io.Reader) Source {
	return func(ctx context.Context, dir string, _ Moment) (*Document, []byte, error) {
		var keys []byte
		d, err := Read(archive, func(_ *Document, name string, _ int64, content io.Reader) (err error) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if name == keysName {
				keys, err = io.ReadAll(io.LimitReader(content, maxText))
				return err
			}
			return extract(filepath.Join(dir, strings.TrimPrefix(name, storePrefix)), content)
		})
		return d, keys, err
	}
}

// extract writes a file that is read once more, and removed then: it need not survive a loss of power.
func extract(path string, content io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

// Restoring says what Restore does.
type Restoring struct {
	Dir string // the data directory to make: it does not exist, or is empty
	At  Moment
	// Bump is by how much the revision goes on above the newest one of the copy; 0: the default (bump).
	Bump int64
	// Passphrase returns that of the keys, if there are some; nil: they are left out.
	Passphrase func() (string, error)
	Now        time.Time
}

// Restored is what Restore has made.
type Restored struct {
	*Document
	At      Moment   // as of when it is
	Next    int64    // the revision above which it goes on
	Objects int      // those of the first plane, with claims
	Planes  []string // the IDs of the others
	// Sealed counts the versions that are encrypted, by the providers and keys that they need.
	Sealed map[string]int
	// Missing are the parts of the data directory that have to be put there before a server starts.
	Missing []string
	HasKeys bool     // the copy has keys
	Flags   []string // of the server, for the files that were among the keys
}

// DefaultBump is by how much the revision goes on at least, as with etcdutl.
const DefaultBump = 1_000_000_000

// bump is by how much the revision goes on above the newest one of the copy.
//
// The problem: after the moment of the copy, the lost server has made commits, and clients have their revisions. If the
// new server gave out one of them again, a client that knows it would take another state for the one it has seen: its
// watch would go on without what happened between, and its update of an object could overwrite one that it has not
// read. Nobody knows how far the lost server came, but how fast it can have been:
//
//	revisions of the lost server ≤ revision of the copy + (now - time of the copy) · 1 per microsecond
//
// A commit is synced to a disk, with some thousands of changes at most in a batch; the fastest machines that were
// measured make 0.1 changes in a microsecond. The default is added, and not the larger one taken, as two servers may be
// restored from one copy, one after another: the second goes on above the first by the time between, too. It stays far
// below 2^53, above which clients in JavaScript lose digits: in a hundred years it reaches a third of that.
func bump(d *Document, now time.Time) int64 {
	since := d.Time
	if !d.seen.IsZero() {
		since = d.seen
	}
	return DefaultBump + max(0, now.Sub(since)).Microseconds()
}

// Restore makes a data directory (datadir.Make). It checks all before the directory has anything by which a server
// would start, and leaves it as it was after an error.
func Restore(ctx context.Context, from Source, o Restoring) (r *Restored, err error) {
	err = datadir.Make(ctx, o.Dir, func(made, copied string) (err error) {
		w := restoring{Restoring: o, made: made, copied: copied}
		r, err = w.build(ctx, from)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

type restoring struct {
	Restoring
	made, copied string // the new directory, and the files of the backup
}

// build puts together the new directory.
func (w *restoring) build(ctx context.Context, from Source) (*Restored, error) {
	made, copied := w.made, w.copied
	d, keys, err := from(ctx, copied, w.At)
	if err != nil {
		return nil, err
	}
	in, err := filelog.InspectUntil(copied, filelog.Options{}, w.At.takes)
	if err == nil {
		err = w.check(d, in)
	}
	if err != nil {
		return nil, err
	}
	r := &Restored{Document: d, Objects: len(in.Versions), Sealed: sealed(in), HasKeys: keys != nil}
	for _, p := range in.Planes {
		r.Planes = append(r.Planes, p.ID)
	}
	r.At.Revision = in.Reached
	if in.Time != 0 {
		r.At.Time = time.Unix(0, in.Time).UTC()
	}
	by := w.Bump
	if by == 0 {
		by = bump(d, w.Now)
	}
	r.Next = max(in.Revision, d.Revision, d.known) + by
	if err := in.Restore(filepath.Join(made, "store"), filelog.Options{}, r.Next); err != nil {
		return nil, err
	}
	if keys != nil && w.Passphrase != nil {
		if err := w.keys(keys, made, r); err != nil {
			return nil, err
		}
	}
	for _, part := range d.Parts {
		if _, err := os.Stat(filepath.Join(made, filepath.FromSlash(part))); errors.Is(err, fs.ErrNotExist) {
			r.Missing = append(r.Missing, part)
		} else if err != nil {
			return nil, err
		}
	}
	if len(d.Parts) == 0 {
		return r, nil
	}
	return r, datadir.Restore(made, "embedded", d.Parts)
}

// check refuses what was read if it is not what the document says, or not as of the moment.
func (w *restoring) check(d *Document, in *filelog.Inspection) error {
	for i := range in.Findings {
		if f := &in.Findings[i]; !f.Minor {
			said := strings.ReplaceAll(f.String(), w.copied, "copy")
			return &DamageError{"the store in the backup", said}
		}
	}
	if in.Revision != d.Revision || in.Checkpoint != d.Checkpoint {
		return &DamageError{"the store in the backup", fmt.Sprintf("it is of the revisions %d to %d, and %s says %d to %d",
			in.Checkpoint, in.Revision, documentName, d.Checkpoint, d.Revision)}
	}
	// The oldest state is that of the checkpoint. When it was made, its commit says, which may not be there any more.
	oldest := d.Since
	if in.Time != 0 && in.Reached == in.Checkpoint {
		oldest = time.Unix(0, in.Time).UTC()
	}
	has := fmt.Sprintf("the backup has the states of the revisions %d to %d, from %s to %s", max(d.Checkpoint,
		store.FirstRevision), d.Revision, oldest.Format(time.RFC3339Nano), d.Time.Format(time.RFC3339Nano))
	switch at := w.At; {
	case at.Revision > 0 && (at.Revision < in.Reached || at.Revision > d.Revision):
		return fmt.Errorf("there is no state of revision %d: %s", at.Revision, has)
	case !at.Time.IsZero() && (at.Time.After(d.Time) || in.Reached == in.Checkpoint && at.Time.Before(oldest)):
		return fmt.Errorf("there is no state of %s: %s", at.Time.Format(time.RFC3339Nano), has)
	}
	return nil
}

// keys writes the keys.
func (w *restoring) keys(sealed []byte, made string, r *Restored) error {
	passphrase, err := w.Passphrase()
	if err != nil {
		return err
	}
	k, err := decryptKeys(sealed, passphrase)
	if err != nil {
		return err
	}
	r.Flags = k.flags(w.Dir)
	return k.write(made)
}

// sealed counts the versions that are encrypted, by what begins their bytes: k8s:enc:aescbc:v1:key1: is the provider
// aescbc with key1.
func sealed(in *filelog.Inspection) map[string]int {
	all := map[string]int{}
	seen := map[*store.Version]bool{} // planes share most of what they have
	count := func(versions []*store.Version) {
		for _, v := range versions {
			if !v.Sidecar.Undecrypted || seen[v] {
				continue
			}
			seen[v] = true
			name := "an unknown provider"
			if parts := strings.SplitN(string(v.Data()[:min(len(v.Data()), 512)]), ":", 6); len(parts) == 6 {
				name = strings.Join(slices.DeleteFunc(parts[2:5], func(s string) bool { return s == "v1" }), " ")
			}
			all[name]++
		}
	}
	count(in.Versions)
	for _, p := range in.Planes {
		count(p.Versions())
	}
	return all
}
