package filelog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/record"

	"plinth/internal/durable"
	"plinth/internal/store"
)

// RawCommit is a commit as it is on the disk. It is lent: valid until yield returns.
type RawCommit struct {
	First, Last int64 // its revisions
	Time        int64 // nanoseconds since 1970
	Payload     []byte
}

// Raw yields the commits after a revision that are synced now, as they are on the disk: nothing is decrypted. It is for
// a copy of the log that goes on. Commits that Compact has removed are store.ErrCompacted, as with Replay.
func (l *Log) Raw(after int64, yield func(*RawCommit) error) error {
	l.mu.Lock()
	segments := make([]segment, 0, len(l.segments))
	oldest := l.segments[0].after
	for _, s := range l.segments {
		if s.end > after {
			segments = append(segments, *s)
		}
	}
	l.mu.Unlock()
	if after < oldest {
		return store.ErrCompacted
	}
	for i := range segments {
		err := l.rawCommits(&segments[i], after, yield)
		if err == errGone {
			return store.ErrCompacted
		}
		if err != nil {
			return err
		}
		after = segments[i].end
	}
	return nil
}

// rawCommits yields those of one segment.
func (l *Log) rawCommits(s *segment, after int64, yield func(*RawCommit) error) error {
	file := l.path(segmentName(s.after))
	f, err := l.fs.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return errGone
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r := newReader(f, s.index.find(after), s.size)
	for last := after; last < s.end; {
		fr, err := r.next()
		if err == io.EOF || err == errBroken {
			return &DamageError{File: file, Offset: fr.offset, Reason: "a frame that was synced does not read back"}
		}
		if err != nil {
			return err
		}
		if fr.kind != frameCommit || fr.revision <= after {
			continue
		}
		c, err := rawOf(&fr, last)
		if err != nil {
			return &DamageError{File: file, Offset: fr.offset, Reason: err.Error()}
		}
		last = c.Last
		if err := yield(c); err != nil {
			return err
		}
	}
	return nil
}

// rawOf is the commit of a frame, which follows the revision last.
func rawOf(f *frame, last int64) (*RawCommit, error) {
	h, _, err := parseCommitHeader(f.payload)
	switch {
	case err != nil:
		return nil, err
	case h.last != f.revision || h.first() != last+1:
		return nil, fmt.Errorf("commit %d to %d follows commit %d", h.first(), h.last, last)
	}
	return &RawCommit{First: h.first(), Last: h.last, Time: h.time, Payload: f.payload}, nil
}

// Chunk is commits in a row, as a segment in memory. Of chunks that overlap or follow one another a log is put together
// (Assembly): what of a commit is in a chunk is the same in each that has it.
type Chunk struct {
	After, End int64
	Commits    int
	buffer     bytes.Buffer
	records    *record.Writer
	header     [frameHeader]byte
}

// NewChunk begins a chunk with the commits after a revision.
func NewChunk(after int64) (*Chunk, error) {
	c := &Chunk{After: after, End: after}
	c.records = record.NewWriter(&c.buffer)
	return c, c.frame(frameSegment, after, appendFileHeader(nil, segmentMagic, after, -1))
}

func (c *Chunk) frame(kind byte, revision int64, payload []byte) error {
	r, err := c.records.Next()
	if err != nil {
		return err
	}
	putHeader(c.header[:], kind, 0, revision)
	if _, err = r.Write(c.header[:]); err == nil {
		_, err = r.Write(payload)
	}
	return err
}

// Add adds the next commit.
func (c *Chunk) Add(raw *RawCommit) error {
	if raw.First != c.End+1 {
		return fmt.Errorf("commit %d to %d does not follow %d", raw.First, raw.Last, c.End)
	}
	c.End = raw.Last
	c.Commits++
	return c.frame(frameCommit, raw.Last, raw.Payload)
}

// Size is about how many bytes it has.
func (c *Chunk) Size() int64 { return c.records.Size() }

// Bytes are its bytes so far. They are valid until the next Add.
func (c *Chunk) Bytes() ([]byte, error) {
	err := c.records.Flush()
	return c.buffer.Bytes(), err
}

// Assembly is a directory that is made of a checkpoint and of chunks.
type Assembly struct {
	log    *Log
	writer *writer
	after  int64
}

// Assemble begins a directory, in which the file of the checkpoint is, unless its revision is 0. The chunks that are
// added have all commits after the revision after, which is not after the checkpoint.
func Assemble(dir string, checkpoint, after int64) (*Assembly, error) {
	if after > max(checkpoint, firstRevision) {
		return nil, fmt.Errorf("the commits from %d to %d are missing", checkpoint+1, after)
	}
	l := &Log{fs: diskFS{durable.FS}, dir: dir, segmentBytes: 8 << 20, checkpoint: checkpoint}
	s := &segment{after: after, previous: -1, end: after}
	w, err := l.create(s, nil)
	if err != nil {
		return nil, err
	}
	l.active, l.segments = w, []*segment{s}
	return &Assembly{l, w, after}, nil
}

// End is the revision up to which there are commits.
func (a *Assembly) End() int64 { return a.writer.written }

// Add adds the commits of a chunk that are not there yet. after and end are what the chunk is said to have.
func (a *Assembly) Add(chunk []byte, after, end int64) error {
	if after > a.End() {
		return fmt.Errorf("a chunk of the commits after %d does not follow %d", after, a.End())
	}
	return ReadChunk(chunk, after, end, func(c *RawCommit) error {
		if c.Last <= a.End() {
			return nil
		}
		if c.First != a.End()+1 {
			return fmt.Errorf("commit %d to %d does not follow %d", c.First, c.Last, a.End())
		}
		return a.writer.commit(c.First, c.Last, c.Payload)
	})
}

// ReadChunk yields the commits of a chunk; after and end are what it is said to have.
func ReadChunk(chunk []byte, after, end int64, yield func(*RawCommit) error) error {
	r := newReader(bytes.NewReader(chunk), 0, int64(len(chunk)))
	head, err := r.next()
	var says, previous int64
	if err == nil {
		err = parseFileHeader("a chunk", head.payload, segmentMagic, &says, &previous)
	}
	if err == nil && says != after {
		err = fmt.Errorf("it has the commits after %d, and should have those after %d", says, after)
	}
	for last := after; err == nil && last < end; {
		fr, broken := r.next()
		if broken != nil {
			return fmt.Errorf("of the commits %d to %d, those after %d do not read back: %w", after+1, end, last, broken)
		}
		c, wrong := rawOf(&fr, last)
		if wrong != nil {
			return wrong
		}
		last = c.Last
		err = yield(c)
	}
	return err
}

// Finish completes the directory.
func (a *Assembly) Finish() error {
	err := a.writer.sync()
	if err == nil {
		err = a.log.createManifest(entry{checkpoint: a.log.checkpoint, oldest: a.after, newest: a.after,
			end: max(a.End(), a.after)})
	}
	if err == nil {
		err = a.log.writeFormat()
	}
	return errors.Join(err, a.log.closeFiles())
}

// CheckpointFile is the name of the file of a checkpoint.
func CheckpointFile(revision int64) string { return checkpointName(revision) }

// Behind is how many bytes of the log are in segments with commits after a revision.
func (l *Log) Behind(revision int64) (bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		if s.end > revision {
			bytes += s.size
		}
	}
	return bytes
}

// CheckpointRevision is that of the newest checkpoint; 0: there is none.
func (l *Log) CheckpointRevision() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkpoint
}
