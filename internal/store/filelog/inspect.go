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
	Keys []PlaneKey
	// Planes are the IDs of the planes besides the first one of which something was there, as far as is known, in order.
	Planes []string
	// Minor says that no object is lost, and that the log opens: history is missing, or what a crash may leave.
	Minor bool
}

// PlaneKey is the key of an object of a plane; "" is the ID of the first one.
type PlaneKey struct {
	Plane string
	store.Key
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
	// Reached is the revision as of which Versions and Planes are, and Time when its commit was made, in nanoseconds
	// since 1970; 0: that is not known. Beyond is the revision of the first commit that InspectUntil did not take; 0:
	// it took all.
	Reached, Time, Beyond int64
	// Versions are the newest readable versions of the first plane, ordered by key. Those that did not decrypt are among
	// them.
	Versions []*store.Version
	// Planes are the other planes, ordered by ID.
	Planes []*Plane
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
// It is the state of the log, unless a later commit of k is lost; then a finding has its revision. So it is for each
// plane; one whose beginning is lost is Partial, and has what is known of it. What is lost may be of any plane, and
// nothing that one plane has is taken for what another one has. The rules by which
// damage is told from an unfinished write are those of Open (recoverLast):
//
//	Open fails because of the content of a file  ⇒  Damaged()
//
// The converse does not hold: Open does not read the history.
//
// It takes about as much memory as a server with these objects.
func Inspect(dir string, o Options) (*Inspection, error) { return InspectUntil(dir, o, nil) }

// InspectUntil is Inspect as of an earlier moment: it reads and checks all, and takes over the commits up to the first
// one for which until, called with its revision and time, returns false. That commit is after the checkpoint, as what
// is in it cannot be left out: whoever calls it looks at Reached. nil takes all.
func InspectUntil(dir string, o Options, until func(revision, time int64) bool) (*Inspection, error) {
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
		parser: parser{sealing: o.Sealing}, deleted: map[store.Key]int64{}, planes: newPlanesOf(), until: until}
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
	previous map[int64]PlaneKey
	whole    bool // the checkpoint reads back as a whole
	planes   planesOf
	until    func(revision, time int64) bool // see InspectUntil
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
	i.previous = map[int64]PlaneKey{}
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
	i.in.Reached = max(i.in.Reached, i.in.Checkpoint, firstRevision)
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
			i.merge(revision)
			break
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
	r := checkpointReading{inspector: i, revision: revision, file: i.path(name), whole: true, parts: -1, open: -1,
		layers: newLayerReading(revision)}
	for ; ; r.parts++ {
		p, err := s.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return false, err
		}
		if p.broken {
			r.damaged(&p, "a part of it does not read back"+after(r.lastKey, r.layers.last))
			r.open = len(i.in.Findings) - 1
			r.layers.hint(p.raw)
			continue
		}
		i.in.Frames++
		later, why := r.frame(p)
		if later {
			return false, why
		}
		if why != nil {
			r.damaged(&p, why.Error())
		}
	}
	if !r.ended {
		r.damaged(&piece{frame: frame{offset: s.at}}, "it is cut off: its end is missing")
	}
	i.planes.restored = slices.Insert(i.planes.restored, 0, r.layers.finish(i, r.whole))
	return r.whole, nil
}

// checkpointReading is a checkpoint that is being read.
type checkpointReading struct {
	*inspector
	revision int64
	file     string
	whole    bool
	ended    bool
	parts    int64     // that were read, or are lost; -1 before the header
	lastKey  store.Key // of the newest part, in its layer
	open     int       // the finding of a part that is lost, until the next one says where its keys end; -1: none
	layers   *layerReading
}

func (r *checkpointReading) damaged(p *piece, reason string) {
	r.whole = false
	r.find(Finding{File: r.file, Offset: p.offset, Reason: reason})
	r.layers.lose(len(r.in.Findings) - 1)
}

// frame takes a frame that reads back. later says that a later version of the program has written it.
func (r *checkpointReading) frame(p piece) (later bool, why error) {
	switch p.kind {
	case frameCheckpoint:
		var says int64
		if why = parseFileHeader(r.file, p.payload, checkpointMagic, &says); why == nil && says != r.revision {
			why = fmt.Errorf("its header says that it is of revision %d", says)
		}
		return why != nil && !errors.As(why, new(*DamageError)) && says == 0, why
	case framePart:
		if r.parts == 0 {
			if _, _, _, why = parseHead(p.payload); why == nil {
				return false, nil
			}
		}
		return false, r.part(p)
	case frameEnd:
		if r.ended = true; p.synced != r.parts && r.whole {
			return false, fmt.Errorf("it should hold %d parts and has %d", p.synced, r.parts)
		}
		return false, nil
	}
	return false, fmt.Errorf("a frame of type %d does not belong there", p.kind)
}

// part takes a part of the first plane, or of a layer.
func (r *checkpointReading) part(p piece) error {
	before := r.layers.last
	if beginsLayer(p.frame) {
		r.open, r.lastKey = -1, store.Key{}
		return r.layers.begins(p.synced, p.payload)
	}
	var at *layer
	if p.synced != 0 || before != 0 {
		var err error
		if at, err = r.layers.part(p.synced, false); err != nil {
			return err
		}
	} else {
		r.layers.first()
	}
	if p.synced != before {
		r.open, r.lastKey = -1, store.Key{}
	}
	if r.parser.scope = ""; at != nil {
		r.parser.scope = at.scope
	}
	gone := false
	_, why := r.parser.versions(p.payload, func(v *store.Version) bool {
		if r.lastKey = cloned(v.Key); r.open >= 0 {
			r.in.Findings[r.open].Reason += " and before " + r.lastKey.String()
			r.open = -1
		}
		switch {
		case at != nil:
			at.overlay.put(v.Key, v)
		case v.Sidecar == nil: // there is nothing of which the first plane is the difference
			gone = true
		default:
			r.keep(v)
		}
		return true
	})
	if gone && why == nil {
		why = errPayload
	}
	return why
}

// after says which objects are lost after a part of a checkpoint: layer is the number of its layer.
func after(k store.Key, layer int64) string {
	switch {
	case k != (store.Key{}):
		return ": objects after " + k.String()
	case layer > 0:
		return ": the first objects of a plane"
	}
	return ": its first objects"
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
	i.state[k] = copied(k, v)
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
	keys, planes, turn := hintsOf(p.raw)
	r.lost = append(r.lost, lostFrame{p.offset, keys, planes, turn})
	return nil
}

// lostFrame is a frame that does not read back: where it was, which keys it seems to have, of which planes, and which
// plane seems to have begun or ended with it.
type lostFrame struct {
	offset int64
	keys   []PlaneKey
	planes []string
	turn   string
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
		keys, planes, turn := hintsOf(append(make([]byte, frameHeader), p.payload...))
		r.find(Finding{File: r.file, Offset: p.offset, Reason: why.Error() + turn, First: p.revision, Last: p.revision,
			Keys: keys, Planes: planes})
		return
	}
	r.missing(first)
	r.apply(c, Finding{File: r.file, Offset: p.offset})
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
		r.find(Finding{File: r.file, Offset: p.offset, Reason: "a frame does not read back" + p.turn, Keys: p.keys,
			Planes: p.planes, First: from, Last: to})
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

// apply takes over the changes of a commit, unless the checkpoint has them. at is where it is.
func (i *inspector) apply(c *store.Commit, at Finding) {
	i.in.Frames++
	i.in.Commits++
	if i.in.Beyond == 0 && c.Revision > i.in.Checkpoint && i.until != nil && !i.until(c.Revision, c.Time) {
		i.in.Beyond = c.Revision
	}
	if i.in.Beyond > 0 {
		return
	}
	if c.Revision >= i.in.Checkpoint {
		i.in.Reached, i.in.Time = c.Revision, c.Time
	}
	i.applyToPlanes(c, at)
	for _, r := range c.Records {
		if r.Old != nil {
			if owner, known := i.planes.owner(c.Plane, r.Old.Revision); known {
				i.previous[r.Old.Revision] = PlaneKey{strings.Clone(owner), cloned(r.Key)}
			}
		}
		if c.Plane != "" || i.whole && c.Revision <= i.in.Checkpoint {
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

// conclude adds to the findings what all that was read tells about them, and orders the versions and the planes.
func (i *inspector) conclude() {
	i.in.Versions = slices.SortedFunc(maps.Values(i.state), byKey)
	i.merge(math.MaxInt64)
	for _, of := range [...]map[string]Finding{i.planes.unknown, i.planes.inherited} {
		for _, id := range slices.Sorted(maps.Keys(of)) {
			i.find(of[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(i.planes.all)) {
		p := i.planes.all[id]
		p.Partial = p.content.partial
		i.in.Planes = append(i.in.Planes, p)
	}
	replaced := slices.Sorted(maps.Keys(i.previous))
	var named span // the last one whose keys were named
	for n := range i.in.Findings {
		f := &i.in.Findings[n]
		i.planes.trust(f)
		if f.Last > 0 {
			i.in.Revision = max(i.in.Revision, f.Last)
			if lost := (span{f.First, f.Last}); lost != named {
				named = lost
				i.name(f, replaced)
			}
			if i.whole && f.Last <= i.in.Checkpoint {
				f.Reason += "; the checkpoint has all objects, and only history is lost"
			}
		}
		slices.SortFunc(f.Keys, func(a, b PlaneKey) int {
			return cmp.Or(cmp.Compare(a.Plane, b.Plane), strings.Compare(a.String(), b.String()))
		})
		for _, k := range f.Keys {
			if k.Plane != "" {
				f.Planes = append(f.Planes, k.Plane)
			}
		}
		slices.Sort(f.Planes)
		f.Planes = slices.Compact(f.Planes)
	}
}

// span is a range of revisions.
type span struct{ first, last int64 }

// name adds the keys of the commits that a finding is about. Several frames in a row that do not read back are findings
// about the same commits, and the keys are in the first one: each has as many as there are frames.
func (i *inspector) name(f *Finding, replaced []int64) {
	known := map[PlaneKey]bool{}
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

// hintsOf finds the keys in a frame that does not read back, the planes that it names, and what to say of the plane
// that begins or ends with it, as far as its bytes seem to be those of a payload. It is a hint for people: nothing
// is restored from such bytes.
func hintsOf(raw []byte) (keys []PlaneKey, planes []string, turn string) {
	var f frame
	if !f.parse(raw) {
		return nil, nil, ""
	}
	var count, own uint64
	var h commitHeader
	d := decoder{b: f.payload}
	versions := false
	switch d.byte() {
	case payloadCommit, payloadCommit2, payloadSealedCommit2:
		var err error
		if h, d, err = parseCommitHeader(f.payload); err != nil {
			return nil, nil, ""
		}
		own, count = uint64(h.count), uint64(h.count+h.begins)
		planes, turn = h.hints()
	case payloadVersions, payloadSealedVersions:
		versions, d.sealed = true, f.payload[0] == payloadSealedVersions
		count = d.uvarint()
		own = count
	default:
		return nil, nil, ""
	}
	p := parser{}
	for n := range min(count, maxHints) {
		var k store.Key
		if versions {
			flags, seals := d.byte(), d.seals()
			if k = d.key(); seals&elsewhere != 0 {
				d.string()
			}
			if flags != isGone {
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
		plane := h.plane
		if n >= own {
			plane = h.begin
		}
		keys = append(keys, PlaneKey{strings.Clone(plane), cloned(k)})
		if d.bad {
			break
		}
	}
	return keys, planes, turn
}

// hints are the planes that the beginning of a commit names, and what to say of one that begins or ends with it.
func (h *commitHeader) hints() (planes []string, turn string) {
	for _, id := range [...]string{h.plane, h.begin, h.ends} {
		if id != "" {
			planes = append(planes, strings.Clone(id))
		}
	}
	if plausibleID(h.begin) {
		turn = fmt.Sprintf("; the plane %q seems to have begun with it", h.begin)
	}
	if plausibleID(h.ends) {
		turn += fmt.Sprintf("; the plane %q seems to have ended with it", h.ends)
	}
	return planes, turn
}

// trust leaves out of a finding the planes of which nothing else tells, and keys of theirs: their IDs may be damaged.
func (i *planesOf) trust(f *Finding) {
	known := func(id string) bool {
		_, begun := i.lineage[id]
		_, unknown := i.unknown[id]
		return begun || unknown || i.ended[id] || i.all[id] != nil
	}
	f.Planes = slices.DeleteFunc(f.Planes, func(id string) bool { return !known(id) })
	f.Keys = slices.DeleteFunc(f.Keys, func(k PlaneKey) bool { return k.Plane != "" && !known(k.Plane) })
}

// maxHints bounds how many keys are looked for in a frame that does not read back.
const maxHints = 1000

// plausible says whether a key may be one: GROUP/RESOURCE, and a name.
func plausible(k store.Key) bool {
	return strings.Count(k.Resource, "/") == 1 && k.Name != "" &&
		!strings.ContainsFunc(k.Resource, func(r rune) bool { return !strings.ContainsRune(resourceLetters, r) }) &&
		!strings.ContainsFunc(k.Name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"{}\\", r) })
}

// plausibleID says whether a string may be the ID of a plane.
func plausibleID(id string) bool {
	return id != "" && len(id) < 100 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}

const resourceLetters = "abcdefghijklmnopqrstuvwxyz0123456789.-/"
