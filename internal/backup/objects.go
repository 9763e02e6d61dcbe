package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A continuous backup is these objects in a bucket:
//
//	owner.json                            whose backup it is (owner)
//	backup.json                           the Document, without revisions
//	base/REVISION-TIME-SHA256             a checkpoint, as it is on the disk
//	log/AFTER-END-TIME-SHA256             a chunk (filelog.Chunk): the commits after AFTER up to END
//
// Revisions have 20 digits. TIME is in milliseconds since 1970, with 13 digits: of a checkpoint a time after it was
// complete, of a chunk a time before it was read from the log. SHA256 is that of the content.
//
// The problem: what is restored has to be the state of one acknowledged moment, whichever objects are there: an upload
// may have been cut off, its answer lost, or an object removed. A list of all objects, written last, would say so, but
// it would be larger than what changes in a second, and be written each second. So the names are the list: each object
// names what it has and what it follows, and proves it by its hash.
//
//	a state as of R  ⇐  a checkpoint B ≤ R, and chunks with AFTER[0] ≤ B, AFTER[i+1] ≤ END[i], R ≤ END[last]
//
// An object that is missing at the end is an upload that was not acknowledged, or is lost: the state of the moment
// before it. One that is missing before the end is a gap, which is an error for the states behind it, as long as no
// checkpoint follows. Chunks may overlap: of a commit, each has the same.
const (
	ownerName = "owner.json"
	baseDir   = "base/"
	logDir    = "log/"
)

// object is what the name of one says.
type object struct {
	name       string
	after, end int64 // of a checkpoint both are its revision
	time       time.Time
	sum        string
	size       int64 // as the bucket says
}

func baseObject(revision int64, at time.Time, sum []byte) string {
	return fmt.Sprintf("%s%020d-%013d-%x", baseDir, revision, at.UnixMilli(), sum)
}

func chunkObject(after, end int64, at time.Time, sum []byte) string {
	return fmt.Sprintf("%s%020d-%020d-%013d-%x", logDir, after, end, at.UnixMilli(), sum)
}

// parseObject parses the name of a checkpoint or a chunk.
func parseObject(name string) (o object, ok bool) {
	o.name = name
	rest, isBase := strings.CutPrefix(name, baseDir)
	if !isBase {
		if rest, ok = strings.CutPrefix(name, logDir); !ok {
			return o, false
		}
	}
	parts := strings.Split(rest, "-")
	var numbers []int64
	for _, part := range parts[:len(parts)-1] {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n < 0 {
			return o, false
		}
		numbers = append(numbers, n)
	}
	o.sum = parts[len(parts)-1]
	switch {
	case len(o.sum) != 2*sha256.Size:
		return o, false
	case isBase && len(numbers) == 2:
		o.after, o.end = numbers[0], numbers[0]
	case !isBase && len(numbers) == 3:
		o.after, o.end = numbers[0], numbers[1]
	default:
		return o, false
	}
	o.time = time.UnixMilli(numbers[len(numbers)-1]).UTC()
	return o, o.after <= o.end
}

// listing is what a bucket has.
type listing struct {
	bases  []object // ascending
	chunks []object // by after, and then by end
	// end is the greatest revision of all, and time the latest time.
	end  int64
	time time.Time
}

func list(ctx context.Context, b Bucket) (*listing, error) {
	var l listing
	for _, dir := range []string{baseDir, logDir} {
		items, err := b.List(ctx, dir)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			o, ok := parseObject(item.Name)
			if !ok {
				return nil, &DamageError{item.Name, "it is no part of a backup"}
			}
			o.size = item.Size
			if dir == baseDir {
				l.bases = append(l.bases, o)
			} else {
				l.chunks = append(l.chunks, o)
			}
			l.end = max(l.end, o.end)
			if o.time.After(l.time) {
				l.time = o.time
			}
		}
	}
	return &l, nil
}

// follow returns the chunks that have the commits after a revision: each time the one that leads farthest. They end
// where there is a gap, or behind the first one for which enough returns true.
func (l *listing) follow(after int64, enough func(*object) bool) (all []object, end int64) {
	end = after
	for {
		best := -1
		for i := range l.chunks {
			c := &l.chunks[i]
			if c.after > end {
				break
			}
			if c.end > end && (best < 0 || c.end > l.chunks[best].end) {
				best = i
			}
		}
		if best < 0 {
			return all, end
		}
		all, end = append(all, l.chunks[best]), l.chunks[best].end
		if enough(&l.chunks[best]) {
			return all, end
		}
	}
}

// base returns the newest checkpoint as of which, or before, a moment is; the zero object is the empty store.
func (l *listing) base(at Moment) object {
	for _, o := range slices.Backward(l.bases) {
		if at.Revision > 0 && o.end > at.Revision || !at.Time.IsZero() && o.time.After(at.Time) {
			continue
		}
		return o
	}
	return object{}
}

// read reads an object, and checks that it is the one of its name.
func (o *object) read(ctx context.Context, b Bucket, into io.Writer) error {
	r, err := b.Get(ctx, o.name)
	if err != nil {
		return err
	}
	defer r.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(into, sum), r); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != o.sum {
		return &DamageError{o.name, "it is damaged, or cut off: its SHA-256 is not the one of its name"}
	}
	return nil
}

// readAll is read into memory.
func (o *object) readAll(ctx context.Context, b Bucket) ([]byte, error) {
	var content bytes.Buffer
	err := o.read(ctx, b, &content)
	return content.Bytes(), err
}
