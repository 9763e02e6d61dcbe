// Package past keeps what objects were for longer than the log of a store does.
//
// The problem: a watch continues from a log of the last minutes. Whoever asks what an object was yesterday, and who
// changed it, needs the same changes for much longer, sorted by object, and in a tenth of the room: a log has them in
// the order of time, and has to be read from one end to the other.
//
// So changes leave the log into *packs*. A pack is a file that never changes, with all changes of a range of revisions,
// sorted by object and revision; each has the version that it has ended, who has made it, and when:
//
//	version of k as of R = the one that the first change of k after R has ended, or the live one if there is none
//
// So nothing that is kept refers to what is older, and the oldest packs are removed as they are. Versions of one object
// are next to each other in a pack, and little differs between them: they compress well (pack.go).
//
//	packs[i].until = packs[i+1].since;  the log has all commits after the last pack
//
// A new pack is written when the changes behind the last one take about packBytes, or when somebody asks for them.
// Several of about the same size are replaced by one (merge.go), so there are few of them, and a change is written
// again as often as the logarithm of their size.
//
// A Log is the log of a store, and packs: it removes no commits from the log that are in no pack. If packs cannot be
// written, the log goes on without them, and the past begins anew.
package past

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/durable"
	"plinth/internal/store"
)

// Options configure a Log.
type Options struct {
	FS     vfs.FS // the operating system's by default
	NoSync bool   // as in filelog.Options
	// Retention is for how long changes are kept, and Bytes how much room they take on disk; whatever comes first. Both
	// are greater than 0.
	Retention time.Duration
	Bytes     int64
	Without   []string      // resources (store.Key) whose changes are not kept
	Sealing   store.Sealing // as in filelog.Options
	Logger    *slog.Logger
	Now       func() time.Time

	PackBytes int64 // about how much the changes of a new pack take; 4 MiB by default
}

// gap is the warning that what is older than a revision is not kept any more, as what follows it is not there.
const gap = "the past has a gap, and begins anew"

// packBytes is how much the changes of a new pack take that is not written because somebody asks.
const packBytes = 4 << 20

// Source is the log that has the newest commits.
type Source interface {
	store.Log
	store.Eraser
	// Bounds are the revision after which the log has all commits, and that of the newest one.
	Bounds() (oldest, newest int64)
}

// Log is a log with a past. Its methods may be called as those of store.Log, and the others concurrently.
type Log struct {
	Source
	o   Options
	dir string

	// unpacked is the bytes of what was appended since the last attempt to write a pack: of versions that have ended,
	// which a pack will have, and of new ones, which the log keeps as long.
	unpacked atomic.Int64
	packing  sync.Mutex // held while packs are written or removed. It is taken before mu.
	work     sync.WaitGroup

	mu    sync.Mutex // guards the following; no file is read or written under it
	packs []*pack    // oldest first
	// leaving are those that were taken out of packs and have a reader yet, among others: replace forgets the others.
	leaving []*pack
	closed  bool
	soon    bool // packSoon runs, or is about to
	// failing is since when attempts have failed; zero: the last one has not. full says that the disk was full.
	failing  time.Time
	full     bool
	failures int64
	// quit ends what is being written.
	ctx  context.Context
	quit context.CancelFunc
}

// Open opens the packs in a directory, which is made if it is missing, for a log. An error leaves the log open.
func Open(dir string, log Source, o Options) (*Log, error) {
	if o.FS == nil {
		o.FS = durable.FS
	}
	if o.NoSync {
		o.FS = durable.Unsynced{FS: o.FS}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.PackBytes == 0 {
		o.PackBytes = packBytes
	}
	l := &Log{Source: log, o: o, dir: dir}
	l.ctx, l.quit = context.WithCancel(context.Background())
	if err := l.open(); err != nil {
		if errors.As(err, new(*DamageError)) {
			err = fmt.Errorf("%w; without this directory the past begins anew, and nothing else is lost", err)
		}
		return nil, fmt.Errorf("the past in %s: %w", dir, err)
	}
	return l, nil
}

// Append is that of the log. It has a pack written now and then, on another goroutine.
func (l *Log) Append(commits []*store.Commit) error {
	if err := l.Source.Append(commits); err != nil {
		return err
	}
	size := int64(0)
	for _, c := range commits {
		for _, r := range c.Records {
			for _, v := range []*store.Version{r.Old, r.New} {
				if size += 32; v != nil {
					size += int64(v.Len())
				}
			}
		}
	}
	if l.unpacked.Add(size); !l.due() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && !l.soon {
		l.soon = true
		l.work.Go(l.packSoon)
	}
	return nil
}

// packSoon writes the packs that are due, also those that have become so meanwhile: nothing else may be appended that
// would have them written. An error is that of the next attempt, too, or it has passed.
func (l *Log) packSoon() {
	for due := true; due; {
		l.unpacked.Store(0)
		if err := l.Pack(l.ctx); err != nil && l.ctx.Err() == nil {
			l.o.Logger.Error("the past cannot be kept", "error", err)
		}
		l.mu.Lock()
		due = !l.closed && l.due()
		l.soon = due
		l.mu.Unlock()
	}
}

// due says that there is enough for another pack.
func (l *Log) due() bool { return l.unpacked.Load() >= 2*l.o.PackBytes }

// patience is for how long the log waits for packs that cannot be written, as a plugin that encrypts does not answer.
// It does not wait for room on the disk.
const patience = 10 * time.Minute

// Compact is that of the log, which keeps what is in no pack, unless packs cannot be written.
func (l *Log) Compact(horizon int64, c *store.Checkpoint) error {
	l.mu.Lock()
	if !l.full && (l.failing.IsZero() || l.o.Now().Sub(l.failing) < patience) {
		horizon = min(horizon, l.until())
	}
	l.mu.Unlock()
	return l.Source.Compact(horizon, c)
}

// until is the revision up to which there are packs. The caller holds mu.
func (l *Log) until() int64 {
	if n := len(l.packs); n > 0 {
		return l.packs[n-1].Until
	}
	oldest, _ := l.Bounds()
	return oldest
}

// Until is the revision up to which the past has all changes; those behind it are in the log alone.
func (l *Log) Until() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until()
}

// Since is the oldest revision as of which a resource can be read, in packs and the log; math.MaxInt64: there is none.
func (l *Log) Since(resource string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.packs) == 0 {
		return l.until()
	}
	return since(l.packs, resource)
}

func since(packs []*pack, resource string) int64 {
	from := int64(math.MaxInt64)
	for _, p := range slices.Backward(packs) {
		if slices.Contains(p.Without, resource) {
			break
		}
		from = p.Since
	}
	return from
}

// Pack writes packs with all that the log has now, and removes what is not to be kept any longer.
func (l *Log) Pack(ctx context.Context) error {
	l.packing.Lock()
	defer l.packing.Unlock()
	if err := l.alive(); err != nil {
		return err
	}
	err := l.pack(ctx)
	if errors.Is(err, store.ErrCompacted) {
		// Commits have left the log that are in no pack: what there is cannot be put together any more.
		oldest, _ := l.Bounds()
		l.o.Logger.Warn(gap, "revision", oldest)
		if err = l.replace(slices.Clone(l.packs), nil); err == nil {
			err = l.pack(ctx)
		}
	}
	if err == nil {
		err = l.tidy(ctx)
	}
	if err == nil || ctx.Err() == nil { // else it says nothing of the next attempt
		l.ended(err)
	}
	return err
}

// ended notes how an attempt has ended.
func (l *Log) ended(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	if err == nil {
		l.failing = time.Time{}
		return
	}
	if l.failures++; l.failing.IsZero() {
		l.failing = l.o.Now()
	}
}

// Stats are figures of the packs.
type Stats struct {
	Packs    int
	Bytes    int64     // of their files
	Oldest   time.Time // of the oldest change in them; zero: there is none
	Until    int64     // as Log.Until
	Failures int64     // attempts to write or remove packs that have failed
	Failing  time.Time // since when each of them has; zero: the last one has not
}

// Stats returns the figures as they are now.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Packs: len(l.packs), Until: l.until(), Failures: l.failures, Failing: l.failing}
	for _, p := range l.packs {
		if s.Bytes += p.size; s.Oldest.IsZero() && p.Entries > 0 {
			s.Oldest = time.Unix(0, p.First)
		}
	}
	return s
}

// alive returns an error if the log is closed: another one may have the directory.
func (l *Log) alive() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return store.ErrClosed
	}
	return nil
}

func (l *Log) pack(ctx context.Context) error {
	b := l.batch(ctx, l.Until())
	err := l.Replay(ctx, b.since, nil, func(c *store.Commit) error {
		if err := b.add(c); err != nil || b.raw < l.o.PackBytes {
			return err
		}
		return l.write(b)
	})
	if err != nil || b.until == b.since {
		return err
	}
	return l.write(b)
}

// write writes a pack of a batch, which begins anew behind it.
func (l *Log) write(b *batch) error {
	p, err := l.create(b.header(), b.entries())
	if err == nil {
		err = l.replace(nil, p)
	}
	b.reset()
	return err
}

// replace takes packs out, and puts another one into their place: at the end, if they are none. p nil: none. The files
// of those that were taken out are removed when nobody reads them.
func (l *Log) replace(gone []*pack, p *pack) error {
	l.mu.Lock()
	var packs []*pack
	for _, is := range l.packs {
		switch at := slices.Index(gone, is); {
		case at < 0:
			packs = append(packs, is)
		case at == 0 && p != nil:
			packs = append(packs, p)
		}
	}
	if len(gone) == 0 && p != nil {
		packs = append(packs, p)
	}
	l.packs = packs
	l.leaving = append(slices.DeleteFunc(l.leaving, (*pack).hasEnded), gone...)
	l.mu.Unlock()
	var err error
	for _, is := range gone {
		if p == nil || p.name() != is.name() { // else its file has the name already
			is.gone = func() error { return l.o.FS.Remove(l.path(is.name())) }
		}
		err = errors.Join(err, is.release())
	}
	return err
}

// acquire returns the packs that are there now, which stay readable until the function is called.
func (l *Log) acquire() ([]*pack, func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	packs := l.packs // replace makes another slice
	for _, p := range packs {
		p.users.Add(1)
	}
	return packs, func() {
		for _, p := range packs {
			if err := p.release(); err != nil {
				l.o.Logger.Warn("a file of the past was not removed", "error", err)
			}
		}
	}
}

// Close ends what is being written, and closes the log.
func (l *Log) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.quit()
	l.work.Wait()
	l.packing.Lock()
	defer l.packing.Unlock()
	l.mu.Lock()
	packs := l.packs
	l.packs = nil
	l.mu.Unlock()
	var err error
	for _, p := range packs {
		err = errors.Join(err, p.release())
	}
	return errors.Join(err, l.Source.Close())
}

func (l *Log) path(name string) string { return l.o.FS.PathJoin(l.dir, name) }
