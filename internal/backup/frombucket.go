package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
)

// Show returns what gets all that is read of a backup, whose size in bytes is given. Nil disables it.
type Show func(size int64) io.Writer

func (s Show) of(size int64) io.Writer {
	if s == nil {
		return io.Discard
	}
	return s(size)
}

// FromBucket is the store in a continuous backup.
func FromBucket(b Bucket, show Show) Source {
	return func(ctx context.Context, dir string, at Moment) (*Document, []byte, error) {
		d, err := readDocument(ctx, b)
		if err != nil {
			return nil, nil, err
		}
		l, err := list(ctx, b)
		if err != nil {
			return nil, nil, err
		}
		if l.end == 0 {
			return nil, nil, &DamageError{"the backup", "nothing was uploaded to it"}
		}
		return d, nil, l.assemble(ctx, b, dir, at, d, show)
	}
}

func readDocument(ctx context.Context, b Bucket) (*Document, error) {
	text, err := readSmall(ctx, b, documentName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no backup: no %s: %w", documentName, err)
	}
	if err != nil {
		return nil, err
	}
	var d Document
	return &d, d.parse(text)
}

// assemble makes a directory of the checkpoint before a moment, and the chunks from there to the moment.
func (l *listing) assemble(ctx context.Context, b Bucket, dir string, at Moment, d *Document, show Show) error {
	base := l.base(at)
	from := max(base.end, store.FirstRevision)
	chunks, end := l.follow(from, func(c *object) bool {
		return at.Revision > 0 && c.end >= at.Revision || !at.Time.IsZero() && c.time.After(at.Time.Add(slack))
	})
	if base.end == 0 && len(chunks) == 0 {
		oldest := int64(math.MaxInt64)
		if len(l.bases) > 0 {
			oldest = l.bases[0].end
		}
		return fmt.Errorf("there is no state of that moment: the oldest checkpoint of the backup is of revision %d",
			oldest)
	}
	// Whoever asks for the newest state gets no older one without being told.
	if at == (Moment{}) && end < l.end {
		return &DamageError{"the backup",
			fmt.Sprintf("the commits after revision %d are missing, and there are later ones, up to "+
				"%d; --at %d restores what is before the gap", end, l.end, end)}
	}
	size := base.size
	for i := range chunks {
		size += chunks[i].size
	}
	shown := show.of(size)
	if base.end > 0 {
		f, err := os.OpenFile(filepath.Join(dir, filelog.CheckpointFile(base.end)), os.O_WRONLY|os.O_CREATE|os.O_EXCL,
			0o600)
		if err != nil {
			return err
		}
		if err := errors.Join(base.read(ctx, b, io.MultiWriter(f, shown)), f.Close()); err != nil {
			return err
		}
	}
	if len(chunks) > 0 {
		from = min(from, chunks[0].after)
	}
	a, err := filelog.Assemble(dir, base.end, from)
	if err != nil {
		return err
	}
	d.Time = base.time
	for i := range chunks {
		c := &chunks[i]
		var content bytes.Buffer
		err := c.read(ctx, b, io.MultiWriter(&content, shown))
		if err == nil {
			err = a.Add(content.Bytes(), c.after, c.end)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", c.name, err), a.Finish())
		}
		if c.time.After(d.Time) {
			d.Time = c.time
		}
	}
	d.Checkpoint, d.Since, d.Revision = base.end, base.time, end
	d.known, d.seen = l.end, l.time
	return a.Finish()
}

// slack is how long after its time a commit is in a chunk at the latest: it has its time when it is sequenced, and is
// read from the log when it is synced.
const slack = time.Minute
