package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/url"
	"os"
	"sync"
	"time"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
)

// Shipping configures a Shipper.
type Shipping struct {
	Bucket Bucket // is closed by Close, if it is an io.Closer
	URL    string // of the bucket, for people
	Log    *filelog.Log
	Dir    string // of the log
	// Document is what is said of the server.
	Document Document
	// Retention is for how long back a state can be restored.
	Retention time.Duration
	Logger    *slog.Logger
	Now       func() time.Time

	interval time.Duration // of uploads; a second by default
	runBytes int64         // see Shipper.run; 8 MiB by default
}

// Shipper uploads what a log gets: each second the commits that are new, as a chunk, and now and then a checkpoint.
// What was uploaded, and nothing else, survives the loss of the machine:
//
//	acknowledged = END of the last chunk whose Put has returned;  a restore has all commits up to acknowledged
//
// It continues by revisions, and not by files: whichever way the log was recovered after a crash, the commits after
// acknowledged are those that are missing.
//
// The problem is the log between the two: it removes commits that are in a checkpoint, and a bucket may not answer for
// hours. So Compact keeps the commits that were not uploaded (Over), up to holdTime and holdBytes: writes are worth
// more than a backup, and a full disk would end them. When it lets go, the backup has a gap, which the next checkpoint
// ends.
type Shipper struct {
	o    Shipping
	me   owner
	quit context.CancelFunc
	done chan struct{}

	// The following are those of the goroutine that uploads.
	claimed time.Time      // when the claim was looked at; zero: there is none yet
	run     *filelog.Chunk // the commits of parts, which are uploaded once more as one chunk
	parts   []string
	base    object // the newest checkpoint in the bucket
	since   int64  // bytes of the chunks since base
	// uploading has the result of a checkpoint that is under way; nil: none is.
	uploading chan uploaded
	errs      int // failures in a row
	warned    time.Time

	mu       sync.Mutex
	figures  Figures
	hold     int64     // Compact keeps the commits after it
	behind   time.Time // since when there are commits that are not uploaded; zero: there are none
	released bool      // Compact keeps nothing any more
	stopped  error     // why nothing is uploaded any more
}

// Figures are for metrics.
type Figures struct {
	Revision int64     // acknowledged
	At       time.Time // when it was
	Lag      time.Duration
	Bytes    int64
	Errors   int64
	Stopped  bool
}

// How long and how many bytes of commits the log is kept for a bucket that does not answer.
const (
	holdTime  = time.Hour
	holdBytes = 1 << 30
)

const (
	runParts    = 600              // so many chunks become one, too
	putTime     = 30 * time.Second // of a chunk
	baseTime    = time.Hour        // of the upload of a checkpoint
	closeTime   = 10 * time.Second // of the last upload
	claimTime   = time.Minute      // how often it is looked at who writes to the bucket
	warnAfter   = 10 * time.Second // of lag
	warnEvery   = time.Minute
	longestWait = 30 * time.Second // between attempts
	baseBytes   = 64 << 20         // of chunks, after which a checkpoint is uploaded
)

// Ship begins to upload. A bucket of another server is an error; one that does not answer is tried again.
func Ship(ctx context.Context, o Shipping) (*Shipper, error) {
	if o.interval == 0 {
		o.interval = time.Second
	}
	if o.runBytes == 0 {
		o.runBytes = 8 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	id, err := idOf(o.Dir)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	s := &Shipper{o: o, me: owner{ID: id, Session: random(), Host: host, Directory: o.Document.Directory},
		done: make(chan struct{})}
	first, cancel := context.WithTimeout(ctx, putTime)
	err = s.begin(first)
	cancel()
	if errors.As(err, new(*ForeignError)) || errors.As(err, new(*DamageError)) {
		return nil, fmt.Errorf("--backup-url %s: %w", o.URL, err)
	}
	s.note(err)
	var life context.Context
	life, s.quit = context.WithCancel(context.WithoutCancel(ctx))
	go s.loop(life)
	return s, nil
}

// begin claims the bucket and finds out where to continue.
func (s *Shipper) begin(ctx context.Context) error {
	if err := claim(ctx, s.o.Bucket, &s.me); err != nil {
		return err
	}
	l, err := list(ctx, s.o.Bucket)
	if err != nil {
		return err
	}
	s.base = l.base(Moment{})
	parts, end := l.follow(max(s.base.end, store.FirstRevision), func(*object) bool { return false })
	if _, newest := s.o.Log.Bounds(); l.end > newest {
		return &ForeignError{fmt.Sprintf("it has the revisions up to %d, and the store ends at %d: an earlier state was put "+
			"back, whose revisions mean something else from now on; use another URL, such as a folder in it", l.end, newest)}
	}
	if len(parts) > 0 {
		if err := s.agrees(ctx, &parts[len(parts)-1]); err != nil {
			return err
		}
	}
	d := s.o.Document
	d.Format, d.Storage, d.Time = formatVersion, filelog.Format, s.o.Now().UTC()
	text, err := d.text()
	if err == nil {
		err = s.o.Bucket.Put(ctx, documentName, bytes.NewReader(text), false)
	}
	if err != nil {
		return err
	}
	s.claimed = s.o.Now()
	s.mu.Lock()
	s.figures.Revision, s.figures.At, s.hold = end, l.time, end
	s.mu.Unlock()
	return nil
}

// agrees compares the newest commit of the backup with the log: revisions alone do not say that an earlier state
// was put back and has come as far again.
func (s *Shipper) agrees(ctx context.Context, last *object) error {
	content, err := last.readAll(ctx, s.o.Bucket)
	if err != nil {
		return err
	}
	var uploaded filelog.RawCommit
	if err := filelog.ReadChunk(content, last.after, last.end, func(c *filelog.RawCommit) error {
		uploaded = *c
		uploaded.Payload = bytes.Clone(c.Payload)
		return nil
	}); err != nil {
		return &DamageError{last.name, err.Error()}
	}
	errSeen := errors.New("seen")
	err = s.o.Log.Raw(uploaded.First-1, func(c *filelog.RawCommit) error {
		if !bytes.Equal(c.Payload, uploaded.Payload) {
			return &ForeignError{fmt.Sprintf("commit %d is another one there than in the store: an earlier state was put back; use "+
				"another URL, such as a folder in it", uploaded.Last)}
		}
		return errSeen
	})
	if err == errSeen || errors.Is(err, store.ErrCompacted) { // a checkpoint is needed then
		return nil
	}
	return err
}

// loop uploads until the end, and then once more.
func (s *Shipper) loop(ctx context.Context) {
	defer close(s.done)
	wait := time.NewTimer(s.o.interval)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			if s.uploading != nil {
				<-s.uploading // its context has ended
			}
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
			s.note(s.tick(last))
			cancel()
			if c, ok := s.o.Bucket.(io.Closer); ok {
				c.Close() //nolint:errcheck // what was written is acknowledged
			}
			return
		case <-wait.C:
		}
		s.note(s.tick(ctx))
		next := s.o.interval
		if s.errs > 0 {
			next = min(longestWait, s.o.interval<<min(s.errs, 10))
		}
		wait.Reset(next)
	}
}

// Close uploads what is new, if that is possible within seconds, and ends. The log is closed later. It does not wait
// for ever for a file system that hangs.
func (s *Shipper) Close() {
	if s == nil {
		return
	}
	s.quit()
	select {
	case <-s.done:
	case <-time.After(2 * closeTime):
		s.o.Logger.Warn("the backup does not end, as its place does not answer", "url", s.o.URL)
	}
}

// note notes how an attempt has ended, and says in the log what an administrator should know.
func (s *Shipper) note(err error) {
	now := s.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	lag := s.lag(now)
	if err != nil {
		s.errs++
		s.figures.Errors++
		if errors.As(err, new(*ForeignError)) && s.stopped == nil {
			s.stopped, s.figures.Stopped = err, true
			s.o.Logger.Error("the backup has ended", "url", s.o.URL, "error", err)
			return
		}
	} else if s.errs > 0 {
		s.errs = 0
		s.o.Logger.Info("the backup goes on", "url", s.o.URL, "revision", s.figures.Revision)
	}
	if (err != nil || lag > warnAfter) && now.Sub(s.warned) >= warnEvery && s.stopped == nil {
		s.warned = now
		s.o.Logger.Warn("the backup is behind: what is not uploaded is lost with this machine", "url", s.o.URL,
			"revision", s.figures.Revision, "lag", lag.Round(time.Second), "error", err)
	}
}

// lag is for how long there have been commits that are not uploaded. The caller holds mu.
func (s *Shipper) lag(now time.Time) time.Duration {
	if s.behind.IsZero() {
		return 0
	}
	return now.Sub(s.behind)
}

// Figures are those of now.
func (s *Shipper) Figures() Figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.figures
	f.Lag = s.lag(s.o.Now())
	return f
}

// tick uploads what is new.
func (s *Shipper) tick(ctx context.Context) error {
	if s.stopped != nil {
		return nil
	}
	now := s.o.Now()
	oldest, newest := s.o.Log.Bounds()
	s.mu.Lock()
	shipped := s.figures.Revision
	switch {
	case newest == shipped: // also if an attempt has failed after the last upload of commits
		s.behind = time.Time{}
	case s.behind.IsZero():
		s.behind = now
	}
	s.mu.Unlock()
	switch {
	case s.claimed.IsZero():
		if err := s.limited(ctx, putTime, s.begin); err != nil {
			return err
		}
		return s.tick(ctx)
	case now.Sub(s.claimed) >= claimTime:
		err := s.limited(ctx, putTime, func(ctx context.Context) error { return still(ctx, s.o.Bucket, &s.me) })
		if err != nil {
			return err
		}
		s.claimed = now
	}
	if newest == shipped {
		return nil
	}
	if shipped < oldest { // there is nothing yet, or a gap
		if err := s.restart(ctx); err != nil {
			return err
		}
	}
	if err := s.chunks(ctx); err != nil {
		return err
	}
	return s.checkpoints(ctx, now)
}

func (s *Shipper) limited(ctx context.Context, most time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return do(ctx)
}

var errEnough = errors.New("enough for a chunk")

// chunks uploads commits until the end of the log, in chunks of a limited size.
func (s *Shipper) chunks(ctx context.Context) error {
	for {
		at := s.o.Now()
		s.mu.Lock()
		shipped := s.figures.Revision
		s.mu.Unlock()
		if s.run == nil || s.run.End != shipped {
			run, err := filelog.NewChunk(shipped)
			if err != nil {
				return err
			}
			s.run, s.parts = run, nil
		}
		c, err := filelog.NewChunk(shipped)
		if err != nil {
			return err
		}
		err = s.o.Log.Raw(shipped, func(raw *filelog.RawCommit) error {
			if c.Size() >= s.o.runBytes {
				return errEnough
			}
			return c.Add(raw)
		})
		if err != nil && err != errEnough {
			return err
		}
		full := err == errEnough
		if c.Commits > 0 {
			if err := s.upload(ctx, c, at); err != nil {
				return err
			}
		}
		if full {
			continue
		}
		if _, newest := s.o.Log.Bounds(); newest == c.End {
			s.mu.Lock()
			s.behind = time.Time{}
			s.mu.Unlock()
		}
		return nil // what is new since waits for the next time, or there would be a chunk for each commit
	}
}

// upload uploads a chunk, and acknowledges it.
func (s *Shipper) upload(ctx context.Context, c *filelog.Chunk, at time.Time) error {
	name, err := s.put(ctx, c, at)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.figures.Revision, s.figures.At, s.hold, s.behind = c.End, s.o.Now(), c.End, at
	s.released = false
	s.mu.Unlock()
	s.since += c.Size()
	content, err := c.Bytes()
	if err != nil {
		return err
	}
	if err := filelog.ReadChunk(content, c.After, c.End, s.run.Add); err != nil {
		return err
	}
	s.parts = append(s.parts, name)
	if s.run.Size() < s.o.runBytes && len(s.parts) < runParts {
		return nil
	}
	return s.merge(ctx, at)
}

// merge uploads the chunks of the last minutes once more, as one, and removes them: a restore reads thousands of small
// objects slowly. They are kept in memory for that, as they are few bytes.
func (s *Shipper) merge(ctx context.Context, at time.Time) error {
	run, parts := s.run, s.parts
	s.run, s.parts = nil, nil
	if len(parts) < 2 {
		return nil
	}
	if _, err := s.put(ctx, run, at); err != nil {
		return err // the parts stay, and have the same
	}
	for _, name := range parts {
		if err := s.limited(ctx, putTime, func(ctx context.Context) error {
			return s.o.Bucket.Delete(ctx, name)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Shipper) put(ctx context.Context, c *filelog.Chunk, at time.Time) (name string, err error) {
	content, err := c.Bytes()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	name = chunkObject(c.After, c.End, at, sum[:])
	err = s.limited(ctx, putTime, func(ctx context.Context) error {
		return s.o.Bucket.Put(ctx, name, bytes.NewReader(content), false)
	})
	if err == nil {
		s.mu.Lock()
		s.figures.Bytes += int64(len(content))
		s.mu.Unlock()
	}
	return name, err
}

// due says whether a checkpoint is to be uploaded: so that a restore has not too much to read, and that what is older
// than the retention can be removed.
func (s *Shipper) due(now time.Time) bool {
	if s.o.Log.CheckpointRevision() <= s.base.end {
		return false
	}
	return s.since >= baseBytes || now.Sub(s.base.time) >= s.o.Retention/4
}

// restart begins the backup, or goes on with it behind a gap: with the newest checkpoint of the log.
func (s *Shipper) restart(ctx context.Context) error {
	frozen, err := s.o.Log.Freeze()
	if err != nil {
		return err
	}
	defer frozen.Close()
	// The log keeps what follows the checkpoint while that is uploaded.
	s.mu.Lock()
	was := s.figures.Revision
	s.hold, s.released = frozen.Checkpoint, false
	s.mu.Unlock()
	if was > store.FirstRevision {
		s.o.Logger.Warn("the backup has a gap: the log has no more what was not uploaded, and the backup goes on with a "+
			"checkpoint", "url", s.o.URL, "after", was, "revision", frozen.Checkpoint)
	}
	if frozen.Checkpoint > 0 {
		if s.base, err = s.putBase(ctx, frozen, s.o.Now()); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.figures.Revision = max(frozen.Checkpoint, store.FirstRevision)
	s.hold = s.figures.Revision
	s.mu.Unlock()
	s.since = 0
	return nil
}

// checkpoints has the newest checkpoint uploaded when it is due, beside the chunks: it may take an hour.
func (s *Shipper) checkpoints(ctx context.Context, now time.Time) error {
	if s.uploading == nil {
		if !s.due(now) {
			return nil
		}
		frozen, err := s.o.Log.Freeze()
		if err != nil {
			return err
		}
		uploading, at := make(chan uploaded, 1), s.o.Now()
		s.uploading, s.since = uploading, 0
		go func() {
			var u uploaded
			u.base, u.err = s.putBase(ctx, frozen, at)
			u.err = errors.Join(u.err, frozen.Close())
			if u.err == nil {
				u.err = s.tidy(ctx)
			}
			uploading <- u
		}()
	}
	select {
	case u := <-s.uploading:
		s.uploading = nil
		if u.base.end > 0 {
			s.base = u.base
		}
		return u.err
	default:
		return nil
	}
}

// uploaded is how the upload of a checkpoint has ended.
type uploaded struct {
	base object
	err  error
}

// putBase uploads a checkpoint, which was complete at a time.
func (s *Shipper) putBase(ctx context.Context, frozen *filelog.Frozen, at time.Time) (object, error) {
	for i := range frozen.Files {
		f := &frozen.Files[i]
		if f.Name != filelog.CheckpointFile(frozen.Checkpoint) {
			continue
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, f.Open()); err != nil {
			return object{}, err
		}
		name := baseObject(frozen.Checkpoint, at, sum.Sum(nil))
		if err := s.limited(ctx, baseTime, func(ctx context.Context) error {
			return s.o.Bucket.Put(ctx, name, f.Open(), false)
		}); err != nil {
			return object{}, err
		}
		s.mu.Lock()
		s.figures.Bytes += f.Size
		s.mu.Unlock()
		o, _ := parseObject(name)
		return o, nil
	}
	return object{}, fmt.Errorf("the checkpoint of revision %d is not there", frozen.Checkpoint)
}

// tidy removes what is not needed for the states within the retention: the newest checkpoint before it stays, with all
// that follows. The oldest objects go first, so that what is left is whole wherever this ends.
func (s *Shipper) tidy(ctx context.Context) error {
	l, err := list(ctx, s.o.Bucket)
	if err != nil {
		return err
	}
	keep := l.base(Moment{Time: s.o.Now().Add(-s.o.Retention)})
	for _, all := range [][]object{l.bases, l.chunks} {
		for _, o := range all {
			if o.end > keep.end || o.name == keep.name {
				continue
			}
			if err := s.limited(ctx, putTime, func(ctx context.Context) error {
				return s.o.Bucket.Delete(ctx, o.name)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Over is the log whose Compact keeps what is not uploaded.
func (s *Shipper) Over() *Held { return &Held{s.o.Log, s} }

// Held is a log that keeps what is not uploaded, within bounds.
type Held struct {
	*filelog.Log
	by *Shipper
}

// Compact is that of the log.
func (h *Held) Compact(horizon int64, c *store.Checkpoint) error {
	return h.Log.Compact(min(horizon, h.by.keeps()), c)
}

// Erase is that of the log: it removes also what is not uploaded. The backup has a gap then, and goes on with the next
// checkpoint.
func (h *Held) Erase(horizon int64, c *store.Checkpoint) error {
	h.by.lose(horizon)
	return h.Log.Erase(horizon, c)
}

// Copies is the URL of the backup, without what only its owner may know.
func (h *Held) Copies() string {
	u, err := url.Parse(h.by.o.URL)
	if err != nil {
		return "the URL of the backup"
	}
	u.User, u.RawQuery = nil, ""
	return u.String()
}

// lose says that the log does not keep what is not uploaded and is not after a revision.
func (s *Shipper) lose(until int64) {
	s.mu.Lock()
	hold, lost := s.hold, s.hold < until && s.stopped == nil && !s.released
	s.released = s.released || lost
	s.mu.Unlock()
	if lost {
		s.o.Logger.Warn("what is not uploaded is removed, as the past of an object is purged: the backup will have a gap",
			"url", s.o.URL, "after", hold)
	}
}

// keeps is the revision after which Compact keeps the commits.
func (s *Shipper) keeps() int64 {
	s.mu.Lock()
	hold, lag, stopped, released := s.hold, s.lag(s.o.Now()), s.stopped != nil, s.released
	s.mu.Unlock()
	if stopped || released {
		return math.MaxInt64
	}
	if lag < holdTime && s.o.Log.Behind(hold) < holdBytes {
		return hold
	}
	s.mu.Lock()
	s.released = true
	s.mu.Unlock()
	s.o.Logger.Warn("the log keeps no longer what is not uploaded: the backup will have a gap", "url", s.o.URL,
		"after", hold, "lag", lag.Round(time.Second))
	return math.MaxInt64
}
