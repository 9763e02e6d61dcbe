package filelog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/durable"
	"plinth/internal/store"
)

// Finding is something that is wrong with a directory.
type Finding struct {
	File   string
	Offset int64 // -1: it is about the file as a whole
	Reason string
	// First and Last are the revisions of the commits that were there; 0: it is about none, or they are not known.
	First, Last int64
	// Keys are the objects of which a version was there, as far as something else tells, or the damaged bytes seem to.
	Keys []store.Key
	// Minor says that no object is lost, and that the log opens: history is missing, or what a crash may leave.
	Minor bool
}

func (f *Finding) String() string {
	text := f.File
	if f.Offset >= 0 {
		text += fmt.Sprintf(" at offset %d", f.Offset)
	}
	return text + ": " + f.Reason
}

// Inspection is what a directory holds, and what is wrong with it.
type Inspection struct {
	Findings []Finding
	// Files, Frames and Commits were read and found sound, of Bytes in all.
	Files, Frames, Commits int
	Bytes                  int64
	// Checkpoint is the revision of the checkpoint that the state begins with, 0 without one; Revision is the newest one
	// that there was, as far as the directory tells.
	Checkpoint, Revision int64
	// Versions are the newest readable versions, ordered by key. Those that did not decrypt are among them.
	Versions []*store.Version
}

// Damaged says whether there is a finding that is not minor.
func (in *Inspection) Damaged() bool {
	return slices.ContainsFunc(in.Findings, func(f Finding) bool { return !f.Minor })
}

// Inspect reads all of a directory that no process has open, and changes nothing in it.
//
// Open ends at the first damage, and reads of older segments no more than their headers. Inspect reads every frame of
// every file, and goes on after one that does not read back, so that it can say all that is damaged, and what is still
// there:
//
//	Versions[k] = the readable version of k with the greatest revision
//
// It is the state of the log, unless a later commit of k is lost; then a finding has its revision. The rules by which
// damage is told from an unfinished write are those of Open (recoverLast):
//
//	Open fails because of the content of a file  ⇒  Damaged()
//
// The converse does not hold: Open does not read the history.
//
// It takes about as much memory as a server with these objects.
func Inspect(dir string, o Options) (*Inspection, error) {
	if o.FS == nil {
		o.FS = durable.FS
		lock, err := share(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("data directory %s: %w", dir, lockError(dir, err))
		}
		defer lock.Close()
	}
	l := &Log{fs: o.FS, dir: dir, logger: slog.New(slog.DiscardHandler), sealing: o.Sealing}
	i := &inspector{Log: l, in: &Inspection{}, state: map[store.Key]*store.Version{},
		parser: parser{sealing: o.Sealing}, deleted: map[store.Key]int64{}}
	if err := i.inspect(); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	return i.in, nil
}

// inspector is an inspection that is under way.
type inspector struct {
	*Log
	in      *Inspection
	parser  parser
	known   entry // the manifest
	state   map[store.Key]*store.Version
	deleted map[store.Key]int64 // the revisions of deletions
	// previous are the versions that records replaced, by revision: which keys lost commits had.
	previous map[int64]store.Key
	whole    bool // the checkpoint reads back as a whole
}

func (i *inspector) find(f Finding) *Finding {
	i.in.Findings = append(i.in.Findings, f)
	return &i.in.Findings[len(i.in.Findings)-1]
}

// report adds an error as a finding, and returns those that are none: errors of the disk, and files of later versions.
func (i *inspector) report(err error, minor bool) error {
	var damage *DamageError
	var missing *MissingError
	switch {
	case err == nil:
	case errors.As(err, &damage):
		i.find(Finding{File: damage.File, Offset: damage.Offset, Reason: damage.Reason, Minor: minor})
	case errors.As(err, &missing):
		i.find(Finding{File: missing.File, Offset: -1, Reason: "it is missing: " + missing.Reason, Minor: minor})
	default:
		return err
	}
	return nil
}

func (i *inspector) inspect() error {
	segments, checkpoints, unfinished, err := i.list()
	if err != nil {
		return err
	}
	version, err := i.readFormat()
	if err := i.report(err, false); err != nil {
		return err
	}
	if err == nil && version == 0 {
		if len(segments)+len(checkpoints) == 0 {
			return fmt.Errorf("there is no store: no file FORMAT, no *.log and no *.base: %w", fs.ErrNotExist)
		}
		i.find(Finding{File: i.path(formatName), Offset: -1, Reason: "it is missing: the directory holds data"})
	} else if err == nil {
		i.in.Files++
	}
	for _, name := range unfinished {
		i.find(Finding{File: i.path(name), Offset: -1, Minor: true,
			Reason: "a file that was not finished, as a crash leaves it; the next start removes it"})
	}
	if err := i.manifestFile(); err != nil {
		return err
	}
	i.previous = map[int64]store.Key{}
	if err := i.checkpoints(checkpoints); err != nil {
		return err
	}
	last, err := i.segments(segments)
	if err != nil {
		return err
	}
	if i.in.Checkpoint > last && len(segments) > 0 {
		i.find(Finding{File: i.path(checkpointName(i.in.Checkpoint)), Offset: -1, First: last + 1, Last: i.in.Checkpoint,
			Reason: fmt.Sprintf("it is newer than the last commit, %d: a segment (*.log) is missing", last)})
	}
	i.in.Revision = max(i.in.Revision, last, i.in.Checkpoint, i.known.end)
	i.conclude()
	return nil
}

// manifestFile reads the manifest. Open needs one entry; those that do not read back are minor.
func (i *inspector) manifestFile() error {
	unread := 0
	known, _, err := i.readManifest(func(int) { unread++ })
	if err := i.report(err, false); err != nil {
		return err
	}
	if err != nil {
		return nil
	}
	i.known = known
	i.in.Files++
	if unread > 0 {
		i.find(Finding{File: i.path(manifestName), Offset: -1, Minor: true, Reason: fmt.Sprintf(
			"%d of its %d entries does not read back, as after a loss of power; another one says enough", unread, slots)})
	}
	return nil
}

// open opens a file to scan it.
func (i *inspector) openFile(name string) (*scanner, vfs.File, error) {
	f, err := i.fs.Open(i.path(name))
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	i.in.Files++
	i.in.Bytes += info.Size()
	return newScanner(f, info.Size()), f, nil
}

// checkpoints reads the checkpoints, of which the newest one counts. Older ones are left over, and are read only if
// that is damaged.
func (i *inspector) checkpoints(revisions []int64) error {
	for n, revision := range slices.Backward(revisions) {
		whole, err := i.readWhole(revision)
		if err != nil {
			return err
		}
		if n == len(revisions)-1 {
			i.in.Checkpoint, i.whole = revision, whole
		}
		if whole {
			return nil
		}
	}
	return nil
}

// readWhole reads a checkpoint, and says whether all of it reads back.
func (i *inspector) readWhole(revision int64) (whole bool, err error) {
	name := checkpointName(revision)
	s, f, err := i.openFile(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	whole = true
	damaged := func(p *piece, reason string) *Finding {
		whole = false
		return i.find(Finding{File: i.path(name), Offset: p.offset, Reason: reason})
	}
	var lastKey store.Key
	var open *Finding // of a part that is lost, until the next one says where its keys end
	for parts, ended := int64(-1), false; ; parts++ {
		p, err := s.next()
		switch {
		case err == io.EOF:
			if !ended {
				damaged(&p, "it is cut off: its end is missing")
			}
			return whole, nil
		case err != nil:
			return false, err
		case p.broken:
			keys := keysOf(p.raw)
			open = damaged(&p, "a part of it does not read back"+after(lastKey))
			open.Keys = keys
			continue
		}
		i.in.Frames++
		var why error
		switch p.kind {
		case frameCheckpoint:
			var says int64
			if why = parseFileHeader(i.path(name), p.payload, checkpointMagic, &says); why == nil && says != revision {
				why = fmt.Errorf("its header says that it is of revision %d", says)
			}
			if why != nil && !errors.As(why, new(*DamageError)) && says == 0 {
				return false, why // a later version has written it
			}
		case framePart:
			if parts == 0 {
				_, _, _, why = parseHead(p.payload)
				if why == nil {
					break
				}
			}
			_, why = i.parser.versions(p.payload, func(v *store.Version) bool {
				if lastKey = cloned(v.Key); open != nil {
					open.Reason += " and before " + lastKey.String()
					open = nil
				}
				i.keep(v)
				return true
			})
		case frameEnd:
			if ended = true; p.synced != parts && whole {
				why = fmt.Errorf("it should hold %d parts and has %d", p.synced, parts)
			}
		default:
			why = fmt.Errorf("a frame of type %d does not belong there", p.kind)
		}
		if why != nil {
			damaged(&p, why.Error())
		}
	}
}

func after(k store.Key) string {
	if k == (store.Key{}) {
		return ": its first objects"
	}
	return ": objects after " + k.String()
}

func cloned(k store.Key) store.Key {
	return store.Key{Resource: strings.Clone(k.Resource), Name: strings.Clone(k.Name)}
}

// keep keeps a version, which is lent, unless there is a newer one.
func (i *inspector) keep(v *store.Version) {
	if current := i.state[v.Key]; current != nil && current.Revision >= v.Revision || i.deleted[v.Key] >= v.Revision {
		return
	}
	k := cloned(v.Key)
	sidecar := *v.Sidecar
	i.state[k] = store.NewVersion(k, v.Revision, append([]byte{}, v.Data()...), &sidecar)
	delete(i.deleted, k)
}

// segments reads the segments and returns the revision of the newest commit.
func (i *inspector) segments(present []int64) (last int64, err error) {
	if len(present) == 0 {
		if i.known.newest > 0 || i.in.Checkpoint > 0 {
			i.find(Finding{File: i.path(segmentName(max(i.known.newest, i.in.Checkpoint))), Offset: -1,
				First: i.in.Checkpoint + 1, Last: max(i.known.end, i.in.Checkpoint),
				Reason: fmt.Sprintf("the log reached revision %d, and no segment (*.log) is there", i.known.end)})
		}
		return i.in.Checkpoint, nil
	}
	chain, err := i.chainOf(present)
	if err != nil {
		return 0, err
	}
	newest := present[len(present)-1]
	for n, s := range chain {
		end := int64(math.MaxInt64)
		if n+1 < len(chain) {
			end = chain[n+1].after
			if chain[n+1].previous != s.after { // there is one missing between them
				end = max(s.after, chain[n+1].previous)
			}
		}
		if last, err = i.segment(s, end, s.after == newest && newest >= i.known.newest); err != nil {
			return 0, err
		}
	}
	if newest < i.known.newest {
		i.find(Finding{File: i.path(segmentName(i.known.newest)), Offset: -1, First: last + 1, Last: i.known.end,
			Reason: fmt.Sprintf("it is missing: the log reached revision %d, and %s is the newest segment that is there",
				i.known.end, segmentName(newest))})
	}
	return last, nil
}

// chainOf returns the segments that belong to the log, oldest first: from the newest one back, each header names the
// one before it. Others are left over. Where one is missing that is needed, the chain goes on with the next older one.
func (i *inspector) chainOf(present []int64) (chain []*segment, err error) {
	for n := len(present) - 1; n >= 0; {
		s, err := i.readHeader(present[n])
		if err := i.report(err, false); err != nil {
			return nil, err
		}
		if err != nil { // the header is lost; its commits may not be
			s = &segment{after: present[n], previous: -1}
			if n > 0 {
				s.previous = present[n-1]
			}
		}
		chain = append([]*segment{s}, chain...)
		older, found := slices.BinarySearch(present[:n], s.previous)
		switch complete := s.after <= max(i.in.Checkpoint, firstRevision); {
		case s.previous < 0:
			return chain, nil
		case found:
			n = older
			continue
		case complete:
			if i.known.oldest > 0 && s.after > i.known.oldest {
				i.find(Finding{File: i.path(segmentName(s.previous)), Offset: -1, Minor: true,
					Reason: "it is missing: it held nothing but history; watches begin later than they could"})
			}
			return chain, nil
		}
		f := i.find(Finding{File: i.path(segmentName(s.previous)), Offset: -1, First: s.previous + 1, Last: s.after,
			Reason: fmt.Sprintf("it is missing: %s follows it", segmentName(s.after))})
		if i.known.checkpoint > i.in.Checkpoint {
			f.File, f.First = i.path(checkpointName(i.known.checkpoint)), firstRevision
			f.Reason = fmt.Sprintf("it is missing: the oldest segment that is there, %s, does not begin before it",
				segmentName(s.after))
		}
		n-- // whatever older ones have
	}
	return chain, nil
}

// segment reads the commits of a segment up to the revision end, where the next one begins, and returns that of its
// last one. active says that it is the newest one of the log, which may end with an unfinished write.
func (i *inspector) segment(s *segment, end int64, active bool) (last int64, err error) {
	name := segmentName(s.after)
	scan, f, err := i.openFile(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r := segmentReading{inspector: i, file: i.path(name), last: s.after, active: active}
	for r.last < end {
		p, err := scan.next()
		r.end = p.offset
		if err == io.EOF || p.blank {
			break
		}
		if err == nil && p.broken {
			err = r.broken(f, p)
		} else if err == nil {
			r.frame(p)
		}
		if errors.Is(err, errUnfinished) {
			return r.last, nil
		}
		if err != nil {
			return 0, err
		}
	}
	r.finish(end)
	return r.last, nil
}

// segmentReading is a segment that is being read.
type segmentReading struct {
	*inspector
	file   string
	active bool
	last   int64       // revision of the newest commit that reads back
	end    int64       // the offset that was reached
	proven int64       // the greatest synced offset of a frame
	lost   []lostFrame // since last
	// searched says that beyond is known: the greatest synced offset of the frames after the first one that does not
	// read back.
	searched bool
	beyond   int64
}

// errUnfinished ends the reading of a segment at a write that was not finished.
var errUnfinished = errors.New("the last write was not finished")

// broken takes a frame that does not read back. Without evidence that it was synced, it is where the log ends
// (checkBroken).
func (r *segmentReading) broken(f vfs.File, p piece) error {
	if r.active && len(r.lost) == 0 && r.proven <= p.offset && r.known.end <= r.last {
		if !r.searched { // once: this may be so for each frame that does not read back
			var err error
			if r.beyond, err = greatestSynced(f, p.offset, math.MaxInt64); err != nil {
				return err
			}
			r.searched = true
		}
		if r.beyond <= p.offset {
			r.find(Finding{File: r.file, Offset: p.offset, Minor: true,
				Reason: "the last write was not finished; it was never acknowledged, and the next start drops it"})
			return errUnfinished
		}
	}
	r.lost = append(r.lost, lostFrame{p.offset, keysOf(p.raw)})
	return nil
}

// lostFrame is a frame that does not read back: where it was, and which keys it seems to have.
type lostFrame struct {
	offset int64
	keys   []store.Key
}

// frame takes a frame that reads back.
func (r *segmentReading) frame(p piece) {
	r.proven = max(r.proven, p.synced)
	if p.kind != frameCommit {
		r.in.Frames++
		return
	}
	first, why := p.follows(-1)
	if why == nil && first <= r.last {
		why = fmt.Errorf("commit %d follows commit %d", first, r.last)
	}
	var c *store.Commit
	if why == nil {
		c, why = r.parser.commitOf(p.payload)
	}
	if why != nil {
		r.find(Finding{File: r.file, Offset: p.offset, Reason: why.Error(), First: p.revision, Last: p.revision,
			Keys: keysOf(append(make([]byte, frameHeader), p.payload...))})
		return
	}
	r.missing(first)
	r.apply(c)
	r.last = p.revision
}

// missing reports what was lost before the commit that begins with a revision.
func (r *segmentReading) missing(next int64) {
	var from, to int64
	if next > r.last+1 {
		from, to = r.last+1, next-1
	}
	if from > 0 && len(r.lost) == 0 {
		r.find(Finding{File: r.file, Offset: r.end, Reason: "commits are missing before it", First: from, Last: to})
	}
	for _, p := range r.lost {
		r.find(Finding{File: r.file, Offset: p.offset, Reason: "a frame does not read back", Keys: p.keys,
			First: from, Last: to})
	}
	r.lost = nil
}

// finish decides on the end of the segment; the next one begins after the revision end.
func (r *segmentReading) finish(end int64) {
	synced := max(r.last, r.known.end)
	switch {
	case !r.active && end < math.MaxInt64:
		r.missing(end + 1)
	case !r.active: // a newer one is missing, which says where this one ends
		r.missing(r.last + 1)
	case len(r.lost) > 0:
		r.missing(synced + 1)
	case r.last < r.known.end:
		r.find(Finding{File: r.file, Offset: r.end, First: r.last + 1, Last: r.known.end,
			Reason: fmt.Sprintf("it ends with commit %d, and commits up to %d were synced", r.last, r.known.end)})
	case r.proven > r.end:
		r.find(Finding{File: r.file, Offset: r.end, Reason: "it ends before what was synced"})
	}
}

// apply takes over the changes of a commit, unless the checkpoint has them.
func (i *inspector) apply(c *store.Commit) {
	i.in.Frames++
	i.in.Commits++
	for _, r := range c.Records {
		if r.Old != nil {
			i.previous[r.Old.Revision] = cloned(r.Key)
		}
		if i.whole && c.Revision <= i.in.Checkpoint {
			continue
		}
		if r.New != nil {
			i.keep(r.New)
			continue
		}
		k := cloned(r.Key)
		if current := i.state[k]; current == nil || current.Revision < r.Revision {
			delete(i.state, k)
			i.deleted[k] = max(i.deleted[k], r.Revision)
		}
	}
}

// conclude adds to the findings what all that was read tells about them, and orders the versions.
func (i *inspector) conclude() {
	keys := slices.SortedFunc(maps.Keys(i.state), func(a, b store.Key) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
	})
	for _, k := range keys {
		i.in.Versions = append(i.in.Versions, i.state[k])
	}
	replaced := slices.Sorted(maps.Keys(i.previous))
	var named span // the last one whose keys were named
	for n := range i.in.Findings {
		f := &i.in.Findings[n]
		if f.Last == 0 {
			continue
		}
		i.in.Revision = max(i.in.Revision, f.Last)
		if lost := (span{f.First, f.Last}); lost != named {
			named = lost
			i.name(f, replaced)
		}
		slices.SortFunc(f.Keys, func(a, b store.Key) int { return strings.Compare(a.String(), b.String()) })
		if i.whole && f.Last <= i.in.Checkpoint {
			f.Reason += "; the checkpoint has all objects, and only history is lost"
		}
	}
}

// span is a range of revisions.
type span struct{ first, last int64 }

// name adds the keys of the commits that a finding is about. Several frames in a row that do not read back are findings
// about the same commits, and the keys are in the first one: each has as many as there are frames.
func (i *inspector) name(f *Finding, replaced []int64) {
	known := map[store.Key]bool{}
	for _, k := range f.Keys {
		known[k] = true
	}
	from, _ := slices.BinarySearch(replaced, f.First)
	for _, revision := range replaced[from:] {
		if revision > f.Last {
			return
		}
		if k := i.previous[revision]; !known[k] {
			known[k] = true
			f.Keys = append(f.Keys, k)
		}
	}
}

// keysOf finds the keys in a frame that does not read back, as far as its bytes seem to be those of a payload. It is a
// hint for people: nothing is restored from such bytes.
func keysOf(raw []byte) (keys []store.Key) {
	var f frame
	if !f.parse(raw) {
		return nil
	}
	var count uint64
	d := decoder{b: f.payload}
	versions := false
	switch d.byte() {
	case payloadCommit, payloadCommit2, payloadSealedCommit2:
		h, rest, err := parseCommitHeader(f.payload)
		if err != nil {
			return nil
		}
		d, count = rest, uint64(h.count+h.begins)
	case payloadVersions, payloadSealedVersions:
		versions, d.sealed = true, f.payload[0] == payloadSealedVersions
		count = d.uvarint()
	default:
		return nil
	}
	p := parser{}
	for range min(count, maxHints) {
		var k store.Key
		if versions {
			flags := d.byte()
			d.seals()
			if k = d.key(); flags != isGone {
				d.uvarint() // revision
				d.meta(flags, newExpires, newForm)
				d.bytes()
			}
		} else {
			var m recordBuffer
			before := d
			d.byte()
			d.seals()
			k = d.key()
			d = before
			p.record(&d, &m)
		}
		if !plausible(k) {
			break
		}
		keys = append(keys, cloned(k))
		if d.bad {
			break
		}
	}
	return keys
}

// maxHints bounds how many keys are looked for in a frame that does not read back.
const maxHints = 1000

// plausible says whether a key may be one: GROUP/RESOURCE, and a name.
func plausible(k store.Key) bool {
	return strings.Count(k.Resource, "/") == 1 && k.Name != "" &&
		!strings.ContainsFunc(k.Resource, func(r rune) bool { return !strings.ContainsRune(resourceLetters, r) }) &&
		!strings.ContainsFunc(k.Name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"{}\\", r) })
}

const resourceLetters = "abcdefghijklmnopqrstuvwxyz0123456789.-/"
