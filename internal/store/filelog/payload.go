package filelog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"plinth/internal/invariants"
	"plinth/internal/store"
	"plinth/internal/store/delta"
)

// This file turns commits and versions into bytes and back. Its requirements:
//
//   - Every write passes through it, under the lock Log.appending, so it appends to one buffer that is reused.
//   - A restart reads all of the log through it, so it allocates nothing per record there, either (parser).
//   - The bytes are read by later versions of the program, so every byte of them is specified (docs/formats.md), and
//     none depends on how Go lays out or encodes a struct.
//
// Numbers are varints, since most are small. The commit of revision 7 that creates a ConfigMap with the bytes {"a":1},
// and that of revision 8 that replaces it with {"a":2}, are, if their time is 0 and neither has a form or an expiry:
//
//	06 00 07 00 01   01   0b "/configmaps"  03 "d/a"   07 {"a":1}
//	06 00 08 00 01   03   0b "/configmaps"  03 "d/a"   07 {"a":2}   07 05 01 01 "1"
//
//	commit           flags, resource, name             new data     old version: revision, head, tail, middle
//
// A frame adds 24 bytes in front of them: the chunk header of the record format and frameHeader. An object of 2 kB
// that is updated with a new status of the same length takes about 2.1 kB in the log, and not 4.

// The kinds of payloads; docs/formats.md describes them.
//
// The numbers of kinds and flags are on disk and never change their meaning. The error for an unknown kind suggests
// that a newer version has written it.
const (
	payloadCommit2        = 1 // one commit, in format 2
	payloadVersions       = 2 // live versions, in a checkpoint
	payloadHead           = 3 // the first of a checkpoint: revision and window
	payloadSealedCommit2  = 4 // a commit with encrypted versions, in format 2
	payloadSealedVersions = 5 // live versions of which some are encrypted: a byte of seals follows the flags of each
	payloadCommit         = 6 // one commit
	payloadLayer          = 7 // the beginning of a layer in a checkpoint, of which the versions follow
)

// The flags of a commit: which of its parts follow. One that is not known is an error: a newer version has written it.
const (
	commitSealed     = 1 << iota // some versions are encrypted: a byte of seals follows the flags of each record
	commitOther                  // it is of another plane than the first one
	commitAttributed             // it says who has made it
	commitBegins                 // a plane begins with it
	commitEnds                   // a plane ends with it
	commitFlags      = commitSealed | commitOther | commitAttributed | commitBegins | commitEnds
)

// isGone is the flag of a version in a layer that says that its key has none.
const isGone = 1 << 7

// The flags of a change or a version: which of its parts follow.
//
//	hasNew and not hasOld: created    both: updated    hasOld alone: deleted    none: deleted without a live version
//
// A zero expiry and a zero form are left out; they are the most frequent ones.
const (
	hasNew = 1 << iota
	hasOld
	newExpires
	oldExpires
	newForm
	oldForm
	sameForm // the old version has the form of the new one
)

// The seals of a change or a version: which of its parts are encrypted. Encryption has kinds of payloads of its own,
// and not a flag, so that a program that does not know of it refuses the payload.
const (
	newSealed   = 1 << iota // the data of the new version, or of the version of a checkpoint
	oldSealed               // what the old version does not share with the new one
	oldWithheld             // of the old version there is no more than its revision, expiry and form
	elsewhere               // in a checkpoint: the version is bound to another scope than that of its place, which follows
)

// versionMeta is the part of a sidecar that cannot be computed from the bytes, and is therefore written to the log.
type versionMeta struct {
	expire time.Time
	form   uint64 // store.Sidecar.Form
}

// metaOf is the part of a sidecar that the log stores. The rest is computed again by Config.Describe: labels and fields
// could be stored, too, but would double the size of a small object, and would be wrong when a later version of the
// program extracts others.
//
// These two cannot be computed again. The expiry was decided when the object was written, by the clock and the flags of
// that time. The form identifies the schema by which the bytes were made, and that schema may no longer exist.
func metaOf(sc *store.Sidecar) versionMeta { return versionMeta{expire: sc.Expire, form: sc.Form} }

// flags returns which of the two are set: expires and form are the flags for them, which differ for the new and the old
// version of a record.
func (s versionMeta) flags(expires, form byte) (flags byte) {
	if !s.expire.IsZero() {
		flags |= expires
	}
	if s.form != 0 {
		flags |= form
	}
	return flags
}

// append appends those parts whose flag is set: 0 to 10 bytes for an expiry, 8 for a form.
func (s versionMeta) append(b []byte, flags, expires, form byte) []byte {
	if flags&expires != 0 {
		b = binary.AppendVarint(b, s.expire.UnixNano())
	}
	if flags&form != 0 {
		b = binary.LittleEndian.AppendUint64(b, s.form)
	}
	return b
}

// appendCommit appends the payload of a commit. parser.commitOf is its inverse:
//
//	commitOf(appendCommit(nil, c)) = c, except for the fields of a sidecar other than Expire and Form
//
// A payload is: kind, flags, revision, time, the ID of the plane, who has made it, the number of records, what begins,
// what ends, and the records; then those of the plane that begins. The revisions of the records follow from that of the
// commit and are not stored. A commit is one frame, so it is in the log as a whole or not at all.
func appendCommit(b []byte, c *store.Commit) []byte {
	var flags byte
	if isSealed(c) {
		flags |= commitSealed
	}
	if c.Plane != "" {
		flags |= commitOther
	}
	if c.Begins != nil {
		flags |= commitBegins
	}
	if c.Ends != "" {
		flags |= commitEnds
	}
	if len(c.By) > 0 {
		flags |= commitAttributed
	}
	b = append(b, payloadCommit, flags)
	b = binary.AppendUvarint(b, uint64(c.Revision))
	b = binary.AppendVarint(b, c.Time)
	if c.Plane != "" {
		b = appendString(b, c.Plane)
	}
	if len(c.By) > 0 {
		b = appendBytes(b, c.By)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Records)))
	if c.Begins != nil {
		b = binary.AppendUvarint(b, uint64(len(c.Begins.Records)))
		b = appendString(b, c.Begins.Plane)
		b = appendString(b, c.Begins.Origin)
	}
	if c.Ends != "" {
		b = appendString(b, c.Ends)
	}
	b = appendRecords(b, c.Plane, c.Records, c.Seals, flags&commitSealed != 0)
	if c.Begins != nil {
		b = appendRecords(b, c.Begins.Plane, c.Begins.Records, c.Begins.Seals, flags&commitSealed != 0)
	}
	return b
}

// appendRecords appends the records of a plane.
func appendRecords(b []byte, plane string, records []*store.Record, seals []*store.Seal, sealed bool) []byte {
	scope := ""
	if sealed {
		scope = store.ScopeOf(plane)
	}
	for i, r := range records {
		var seal *store.Seal
		if seals != nil {
			seal = seals[i]
		}
		b = appendRecord(b, scope, r, sealed, seal)
	}
	return b
}

// isSealed says whether a commit has encrypted versions: new ones, or the encrypted bytes of an old one that did not
// decrypt.
func isSealed(c *store.Commit) bool {
	if c.Seals != nil || c.Begins != nil && c.Begins.Seals != nil {
		return true
	}
	for _, r := range c.Records {
		if r.Old != nil && r.Old.Sidecar.Undecrypted {
			return true
		}
	}
	return false
}

// appendRecord appends one record:
//
//	flags  resource  name  [expiry]  [form]  [data of the new version]
//	       [revision of the old version  [expiry]  [form]  head  tail  middle]
//
// The old version is stored, and not only named by its revision, so that a watch with a selector finds out without a
// look-up whether an object enters or leaves its selection: the version before may no longer be in the log. Written in
// full it would double the log. Most updates change a few bytes in the middle, so the bytes that both versions share at
// their ends are written once:
//
//	old = new[:head] + middle + new[len(new)-tail:],  head + tail ≤ min(len(old), len(new))
//
// A deletion has no new version; then head and tail are 0 and middle is all of the old one.
//
// Encrypted are the data of the new version and the middle of the old one, each by itself: the first is then what an
// encrypted checkpoint has, too, and can be copied there if it does not decrypt. Head and tail tell no more than the
// lengths of both. An empty middle is not encrypted. A record of an encrypted commit has a byte of seals after its
// flags, which says what is encrypted in it; that is nothing if seal is nil, and the old version was not encrypted
// already.
func appendRecord(b []byte, scope string, r *store.Record, sealed bool, seal *store.Seal) []byte {
	var flags byte
	var now, before versionMeta
	if r.New != nil {
		now = metaOf(r.New.Sidecar)
		flags |= hasNew | now.flags(newExpires, newForm)
	}
	if r.Old != nil {
		before = metaOf(r.Old.Sidecar)
		flags |= hasOld | before.flags(oldExpires, oldForm)
		// Most updates do not change the form, and a flag is shorter than eight bytes.
		if flags&oldForm != 0 && before.form == now.form {
			flags = flags&^oldForm | sameForm
		}
	}
	b = append(b, flags)
	var seals byte
	if sealed {
		seals = sealsOf(scope, r, seal)
		b = append(b, seals)
	}
	b = appendString(b, r.Key.Resource)
	b = appendString(b, r.Key.Name)
	if r.New != nil {
		b = now.append(b, flags, newExpires, newForm)
		b = appendText(b, scope, r.Key, r.New, seals&newSealed != 0, seal)
	}
	if r.Old != nil {
		// Most versions are deltas, and to put their bytes together takes memory: those of the new one are in b
		// already.
		var data []byte
		switch {
		case r.New != nil && seals&newSealed != 0:
			data = r.New.Data()
		case r.New != nil:
			data = b[len(b)-r.New.Len():]
		}
		var buffer [4 << 10]byte // stays on the stack, as encryption gets a copy
		old := r.Old.DataIn(buffer[:0])
		head, tail := 0, 0
		switch {
		case seals&oldWithheld != 0:
			old = nil
		case !r.Old.Sidecar.Undecrypted:
			head = delta.CommonPrefix(old, data)
			// Computed for the rest after the head, so that head and tail do not overlap in either version.
			tail = delta.CommonSuffix(old[head:], data[head:])
		}
		b = binary.AppendUvarint(b, uint64(r.Old.Revision))
		b = before.append(b, flags, oldExpires, oldForm)
		b = binary.AppendUvarint(b, uint64(head))
		b = binary.AppendUvarint(b, uint64(tail))
		middle := old[head : len(old)-tail]
		if seals&oldSealed != 0 && !r.Old.Sidecar.Undecrypted && len(middle) > 0 {
			b = appendPart(b, scope, r.Key, bytes.Clone(middle), true, seal)
		} else {
			b = appendBytes(b, middle)
		}
	}
	return b
}

// sealsOf is the byte of seals of a record. An old version that did not decrypt is encrypted already, whatever seal is;
// one that is bound to another scope, because the plane has begun with it, would not decrypt from here.
func sealsOf(scope string, r *store.Record, seal *store.Seal) (seals byte) {
	if seal != nil && r.New != nil {
		seals = newSealed
	}
	switch {
	case r.Old == nil:
	case r.Old.Sidecar.Undecrypted && r.Old.Sidecar.Scope() != scope:
		seals |= oldWithheld
	case r.Old.Sidecar.Undecrypted:
		seals |= oldSealed
	case seal == nil:
	case seal.Withhold:
		seals |= oldWithheld
	default:
		seals |= oldSealed
	}
	return seals
}

// appendPart appends a part of a record: a length and bytes, encrypted if encrypt is set.
func appendPart(b []byte, scope string, k store.Key, part []byte, encrypt bool, seal *store.Seal) []byte {
	if !encrypt {
		return appendBytes(b, part)
	}
	return appendBytes(b, seal.Append(nil, scope, k, part))
}

// appendText appends the bytes of a version as a part.
func appendText(b []byte, scope string, k store.Key, v *store.Version, encrypt bool, seal *store.Seal) []byte {
	if encrypt {
		return appendPart(b, scope, k, v.Data(), true, seal)
	}
	return v.Append(binary.AppendUvarint(b, uint64(v.Len())), 0, v.Len())
}

// appendVersion appends one version of a checkpoint: flags, resource, name, revision, expiry, form, data. There is no
// old version: a checkpoint is a state and has no history.
//
// With sealed set a byte of seals follows the flags; a version that did not decrypt is encrypted already, and may be
// bound to another scope than that of its layer: a plane has begun with it. That scope then follows the key.
//
// Of a version without a sidecar, in a layer, there is the key alone.
func appendVersion(b []byte, scope string, v *store.Version, sealed bool, seal *store.Seal) []byte {
	if v.Sidecar == nil {
		if b = append(b, isGone); sealed {
			b = append(b, 0)
		}
		return appendString(appendString(b, v.Key.Resource), v.Key.Name)
	}
	current := metaOf(v.Sidecar)
	flags := current.flags(newExpires, newForm)
	b = append(b, flags)
	encrypt := seal != nil // not if v is encrypted already
	var seals byte
	if encrypt || v.Sidecar.Undecrypted {
		seals = newSealed
	}
	if v.Sidecar.Undecrypted && v.Sidecar.Scope() != scope {
		seals |= elsewhere
	}
	if sealed {
		b = append(b, seals)
	}
	b = appendString(b, v.Key.Resource)
	b = appendString(b, v.Key.Name)
	if seals&elsewhere != 0 {
		b = appendString(b, v.Sidecar.Scope())
	}
	b = binary.AppendUvarint(b, uint64(v.Revision))
	b = current.append(b, flags, newExpires, newForm)
	return appendText(b, scope, v.Key, v, encrypt, seal)
}

// appendHead appends the first payload of a checkpoint: its revision, and the extent of the history.
func appendHead(b []byte, c *store.Checkpoint) []byte {
	b = append(b, payloadHead)
	b = binary.AppendUvarint(b, uint64(c.Revision))
	b = binary.AppendUvarint(b, uint64(c.Window.Horizon))
	b = binary.AppendUvarint(b, uint64(c.Window.Bytes))
	b = binary.AppendUvarint(b, uint64(len(c.Window.Marks)))
	for _, m := range c.Window.Marks {
		b = binary.AppendUvarint(b, uint64(m.Revision))
		b = binary.AppendVarint(b, m.Time)
		b = binary.AppendUvarint(b, uint64(m.Bytes))
	}
	if c.Layers != nil {
		b = append(b, 1)
	}
	return b
}

// appendLayer appends the beginning of a layer. parseLayer is its inverse.
func appendLayer(b []byte, l *store.Layer) []byte {
	b = append(b, payloadLayer)
	for _, n := range [...]int64{int64(l.Number), int64(l.Origin), l.Revision, l.Begun, l.Resting, l.Since} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = appendString(b, l.Plane)
	b = binary.AppendUvarint(b, uint64(len(l.Collections)))
	for _, c := range l.Collections {
		b = appendString(b, c.Resource)
		b = binary.AppendUvarint(b, uint64(c.Changed))
	}
	return b
}

// parseLayer parses the payload of appendLayer. Its strings are lent.
func parseLayer(payload []byte) (*store.Layer, error) {
	d, err := parseKind(payload, payloadLayer)
	if err != nil {
		return nil, err
	}
	l := &store.Layer{Number: int(d.uvarint()), Origin: int(d.uvarint())}
	for _, n := range [...]*int64{&l.Revision, &l.Begun, &l.Resting, &l.Since} {
		*n = int64(d.uvarint())
	}
	l.Plane = d.string()
	count, err := d.count()
	if err != nil {
		return nil, err
	}
	for i := 0; i < count && !d.bad; i++ {
		l.Collections = append(l.Collections, store.LayerCollection{Resource: d.string(), Changed: int64(d.uvarint())})
	}
	if d.bad || len(d.b) > 0 {
		return nil, errPayload
	}
	return l, nil
}

// appendString and appendBytes append a length and the bytes.
func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBytes(b, s []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// checkPayload fails unless a payload reads back as the commit from which it was made. It runs for every commit if
// assertions are on, before the commit is written: otherwise a payload that does not parse is found only at the next
// start, when the object is lost.
func checkPayload(payload []byte, c *store.Commit, sealing store.Sealing) {
	p := parser{sealing: sealing}
	have, err := p.commitOf(payload)
	if err != nil || have.Revision != c.Revision || have.Time != c.Time || len(have.Records) != len(c.Records) ||
		have.Plane != c.Plane || have.Ends != c.Ends || (have.Begins == nil) != (c.Begins == nil) {
		invariants.Fail("filelog: commit %d of %d records reads back as %+v, %v", c.Revision, len(c.Records), have,
			err)
		return
	}
	// An old version may have been withheld, or have been undecrypted before and not be now.
	same := func(a, b *store.Version, old bool) bool {
		return a == nil && b == nil || a != nil && b != nil && a.Revision == b.Revision &&
			(bytes.Equal(a.Data(), b.Data()) || old && (a.Sidecar.Undecrypted || b.Sidecar.Undecrypted)) &&
			a.Sidecar.Form == b.Sidecar.Form && a.Sidecar.Expire.Equal(b.Sidecar.Expire)
	}
	records, wanted := have.Records, c.Records
	if b := have.Begins; b != nil {
		if b.Plane != c.Begins.Plane || b.Origin != c.Begins.Origin || len(b.Records) != len(c.Begins.Records) {
			invariants.Fail("filelog: the beginning of %q with commit %d reads back as that of %q", c.Begins.Plane, c.Revision,
				b.Plane)
			return
		}
		records, wanted = slices.Concat(records, b.Records), slices.Concat(wanted, c.Begins.Records)
	}
	for i, r := range records {
		if want := wanted[i]; r.Key != want.Key || r.Revision != want.Revision || !same(r.New, want.New, false) ||
			!same(r.Old, want.Old, true) {
			invariants.Fail("filelog: record %d of %s reads back as record %d of %s", want.Revision, want.Key,
				r.Revision, r.Key)
		}
	}
}

// errPayload is the error for a payload whose checksum is right, but which is invalid. An unfinished write would fail
// its checksum, so this is always damage, and never dropped.
var errPayload = errors.New("its checksum holds, but its payload does not parse")

// parseKind reads the first byte of a payload, its kind, which must be one of those expected.
func parseKind(payload []byte, want ...byte) (decoder, error) {
	d := decoder{b: payload}
	kind := d.byte()
	switch {
	case d.bad:
		return d, errPayload
	case !slices.Contains(want, kind):
		return d,
			fmt.Errorf("a payload of kind %d stands in the place of one of kind %d; a newer version may have written it",
				kind, want[0])
	}
	d.sealed = kind == payloadSealedCommit2 || kind == payloadSealedVersions
	return d, nil
}

// commitHeader is the beginning of the payload of a commit.
type commitHeader struct {
	last, time    int64
	plane         string // lent
	by            []byte // who has made it; lent
	count, begins int    // records, and those of the plane that begins
	// begin and origin are those of the plane that begins, and ends is that which ends; all are lent.
	starts              bool
	begin, origin, ends string
}

// first is the first revision of the commit; one without records has a single revision.
func (h *commitHeader) first() int64 { return h.last - int64(max(1, h.count+h.begins)) + 1 }

// parseCommitHeader parses the beginning of the payload of a commit, and returns the decoder of the rest. A reader
// that skips commits needs no more.
func parseCommitHeader(payload []byte) (h commitHeader, d decoder, err error) {
	if d, err = parseKind(payload, payloadCommit, payloadCommit2, payloadSealedCommit2); err != nil {
		return h, d, err
	}
	var flags byte
	if payload[0] == payloadCommit {
		if flags = d.byte(); flags&^commitFlags != 0 {
			return h, d, fmt.Errorf("a commit has the flags %08b; a newer version may have written it", flags)
		}
		d.sealed = flags&commitSealed != 0
	}
	h.last, h.time = int64(d.uvarint()), d.varint()
	if flags&commitOther != 0 {
		h.plane = d.string()
	}
	if flags&commitAttributed != 0 {
		h.by = d.bytes()
	}
	// The counts come from the disk. They are bounded by the bytes that follow, so the loops over them are, too.
	if h.count, err = d.count(); err != nil {
		return h, d, err
	}
	if flags&commitBegins != 0 {
		if h.begins, err = d.count(); err != nil {
			return h, d, err
		}
		h.starts, h.begin, h.origin = true, d.string(), d.string()
	}
	if flags&commitEnds != 0 {
		h.ends = d.string()
	}
	if d.bad {
		err = errPayload
	}
	return h, d, err
}

// parser turns payloads into commits and versions. A restart parses every record of the log, and allocations would take
// most of its time. So the results point into the payload, and into scratch buffers that are reused for the next one:
// they are lent, in the sense of store.Log.
//
//	the result of a call is valid until the next call
//
// One goroutine uses a parser. The buffers grow to the largest commit, except that old is freed beyond maxOldKept.
type parser struct {
	sealing store.Sealing   // decrypts; nil: nothing does
	ctx     context.Context // of the reading, for sealing; nil: it is not bounded
	scope   string          // of what is parsed (store.Sealing)
	commit  store.Commit
	buffers []*recordBuffer
	old     []byte // the old versions, put together from their parts
}

// recordBuffer is the memory of one record: the record, both versions and both sidecars. Buffers are allocated one by
// one, so that pointers to them stay valid when the list of them grows. Every field of a buffer is set for each record:
// a sidecar that kept the expiry of the record before would delete the wrong object.
type recordBuffer struct {
	record   store.Record
	new, old store.Version
	is, was  store.Sidecar
}

// maxOldKept is the size up to which parser.old is reused.
const maxOldKept = 1 << 20

// commitOf parses the payload of a commit. The error is errPayload, or that of parseKind.
func (p *parser) commitOf(payload []byte) (*store.Commit, error) {
	h, d, err := parseCommitHeader(payload)
	if err != nil {
		return nil, err
	}
	c := &p.commit
	*c = store.Commit{Revision: h.last, Time: h.time, Plane: h.plane, By: h.by, Ends: h.ends,
		Records: c.Records[:0]}
	// Not nil: an empty old version differs from none.
	if p.old = p.old[:0]; p.old == nil || cap(p.old) > maxOldKept {
		p.old = []byte{}
	}
	next := h.first()
	if p.scope = ""; d.sealed {
		p.scope = store.ScopeOf(h.plane)
	}
	if c.Records, err = p.records(&d, c.Records, 0, h.count, next); err != nil {
		return nil, err
	}
	if h.starts {
		c.Begins = &store.Beginning{Plane: h.begin, Origin: h.origin}
		next += int64(h.count)
		if d.sealed {
			p.scope = store.ScopeOf(h.begin)
		}
		if c.Begins.Records, err = p.records(&d, nil, h.count, h.begins, next); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// records parses records, whose revisions begin with next, in the buffers from one on.
func (p *parser) records(d *decoder, records []*store.Record, from, count int, next int64) ([]*store.Record, error) {
	for i := range count {
		// The list of buffers only grows, to the number of records of the largest commit.
		if from+i == len(p.buffers) {
			p.buffers = append(p.buffers, &recordBuffer{})
		}
		m := p.buffers[from+i]
		p.record(d, m)
		if d.bad {
			return nil, errPayload
		}
		r := &m.record
		// The revision of each record follows from that of the commit.
		if r.Revision = next + int64(i); r.New != nil {
			r.New.Revision = r.Revision
		}
		records = append(records, r)
	}
	return records, nil
}

// record parses one change. If it does not parse, d.bad is set, and the caller drops the record.
func (p *parser) record(d *decoder, m *recordBuffer) {
	r := &m.record
	flags, seals := d.byte(), d.seals()
	r.Key = d.key()
	r.New, r.Old = nil, nil
	var data []byte
	if flags&hasNew != 0 {
		m.is = d.meta(flags, newExpires, newForm)
		data = d.bytes()
		if seals&newSealed != 0 {
			data = p.unseal(p.scope, r.Key, data, &m.is)
		}
		r.New = &m.new
		m.new.Lend(r.Key, 0, data, &m.is)
	}
	// A created object: the record has no further fields.
	if flags&hasOld == 0 {
		return
	}
	revision := int64(d.uvarint())
	if m.was = d.meta(flags, oldExpires, oldForm); flags&sameForm != 0 {
		m.was.Form = m.is.Form
	}
	// In a damaged payload these may be any numbers, so they are compared before they are used.
	head, tail, middle := int(d.uvarint()), int(d.uvarint()), d.bytes()
	r.Old = &m.old
	if p.oldUnread(r, seals, head+tail, &middle, &m.was) {
		m.old.Lend(r.Key, revision, middle, &m.was)
		return
	}
	// A payload with a correct checksum may still be wrong, and must not make the parser read beyond the new version.
	if head > len(data) || tail > len(data)-head {
		d.bad = true
		return
	}
	// When p.old grows, append may move it. The old versions of earlier records then stay in the previous memory, which
	// is no longer written to. The capacity is cut, so that an append cannot overwrite the next one.
	begin := len(p.old)
	p.old = append(append(append(p.old, data[:head]...), middle...), data[len(data)-tail:]...)
	m.old.Lend(r.Key, revision, p.old[begin:len(p.old):len(p.old)], &m.was)
}

// versions yields the versions in a payload of a checkpoint, each in the same memory: the caller copies those that it
// keeps. enough is true when yield returned false.
func (p *parser) versions(payload []byte, yield func(*store.Version) bool) (enough bool, err error) {
	d, err := parseKind(payload, payloadVersions, payloadSealedVersions)
	if err != nil {
		return false, err
	}
	count, err := d.count()
	if err != nil {
		return false, err
	}
	var m recordBuffer
	for range count {
		flags, seals := d.byte(), d.seals()
		key := d.key()
		if flags == isGone {
			if m.new.Lend(key, 0, nil, nil); d.bad {
				return false, errPayload
			}
			if !yield(&m.new) {
				return true, nil
			}
			continue
		}
		scope := p.scope
		if seals&elsewhere != 0 {
			scope = strings.Clone(d.string())
		}
		revision := int64(d.uvarint())
		m.is = d.meta(flags, newExpires, newForm)
		data := d.bytes()
		if d.bad {
			return false, errPayload
		}
		if seals&newSealed != 0 {
			data = p.unseal(scope, key, data, &m.is)
		}
		m.new.Lend(key, revision, data, &m.is)
		if !yield(&m.new) {
			return true, nil
		}
	}
	return false, nil
}

// unseal decrypts the bytes of a version. If that fails, they stay as they are, and the sidecar says so: a lost key
// must not prevent the server from starting, and may be found again.
func (p *parser) unseal(scope string, k store.Key, sealed []byte, sc *store.Sidecar) []byte {
	plain, by, err := p.open(scope, k, sealed)
	if err != nil {
		if scope != "" {
			err = &store.UndecryptedError{Scope: scope, Err: err}
		}
		sc.Undecrypted, sc.Unreadable = true, err
		return sealed
	}
	sc.SealedBy = by
	return plain
}

// errSealed is the reference's error for an encrypted value, where nothing decrypts it.
var errSealed = errors.New("identity transformer tried to read encrypted data")

func (p *parser) open(scope string, k store.Key, sealed []byte) (plain []byte, by uint32, err error) {
	if p.sealing == nil {
		return nil, 0, errSealed
	}
	ctx := p.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	return p.sealing.Open(ctx, scope, k, sealed)
}

// oldUnread decrypts the middle of an old version, and says whether the version cannot be read: because that fails, or
// because the new version, with which it shares shared bytes, cannot be read. An old version that shares none is then
// its encrypted bytes, like a new one; another one has no bytes.
func (p *parser) oldUnread(r *store.Record, seals byte, shared int, middle *[]byte, before *store.Sidecar) bool {
	switch {
	case seals&oldWithheld != 0:
		before.Undecrypted, before.Unreadable = true, errWithheld
		*middle = nil
	case shared > 0 && r.New != nil && r.New.Sidecar.Undecrypted:
		before.Undecrypted, before.Unreadable = true, r.New.Sidecar.Unreadable
		*middle = nil
	case seals&oldSealed != 0 && len(*middle) > 0:
		if *middle = p.unseal(p.scope, r.Key, *middle, before); before.Undecrypted && shared > 0 {
			*middle = nil
		}
	}
	return before.Undecrypted
}

// errWithheld is the error for an old version that was not written.
var errWithheld = errors.New("the version was not written to the log, as there was no key to encrypt it")

// parseHead parses the payload of appendHead. The marks are a sample of the window, from which the state knows at which
// time and after how many bytes a revision was written, without reading the segments.
//
// layers says whether there are layers behind the versions of the first plane.
func parseHead(payload []byte) (revision int64, w store.Window, layers bool, err error) {
	d, err := parseKind(payload, payloadHead)
	if err != nil {
		return 0, w, false, err
	}
	revision = int64(d.uvarint())
	w.Horizon, w.Bytes = int64(d.uvarint()), int64(d.uvarint())
	count, err := d.count()
	if err != nil {
		return 0, w, false, err
	}
	for i := 0; i < count && !d.bad; i++ {
		w.Marks = append(w.Marks, store.Mark{Revision: int64(d.uvarint()), Time: d.varint(),
			Bytes: int64(d.uvarint())})
	}
	layers = len(d.b) > 0 && d.byte() == 1
	if d.bad {
		return 0, w, false, errPayload
	}
	return revision, w, layers, nil
}

// decoder reads the parts of a payload, one after another. A part that is missing, or too large, sets bad and reads
// as zero. So callers check bad once, after several parts; counts and lengths are bounded by the bytes that are left,
// and never make it allocate more than a payload of that size can hold.
type decoder struct {
	b      []byte
	bad    bool
	sealed bool // each record has a byte of seals
}

// seals reads the byte of seals, if there is one.
func (d *decoder) seals() byte {
	if !d.sealed {
		return 0
	}
	return d.byte()
}

// byte reads one byte.
func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

// uvarint reads a number that is not negative. One beyond 63 bits is bad: revisions and sizes are int64.
func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || int64(v) < 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// varint reads a signed number, such as a time.
func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads the number of parts that follow. Each of them takes at least one byte, which bounds the number: 2⁶² in a
// damaged payload must not become the capacity of a slice.
func (d *decoder) count() (int, error) {
	n := d.uvarint()
	if d.bad || n > uint64(len(d.b)) {
		return 0, errPayload
	}
	return int(n), nil
}

// bytes reads a length and that many bytes, which it does not copy.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.bad = true
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

// key returns a key whose strings point into the payload, so it is lent, too.
func (d *decoder) key() store.Key { return store.Key{Resource: d.string(), Name: d.string()} }

// string returns a string that points into the payload. A string must not change while it is in use; the payload does
// not change until the next frame is read.
func (d *decoder) string() string {
	b := d.bytes()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// meta reads the parts that are set in flags, as a sidecar with only these fields.
func (d *decoder) meta(flags, expires, form byte) (s store.Sidecar) {
	if flags&expires != 0 {
		s.Expire = time.Unix(0, d.varint()).UTC()
	}
	if flags&form != 0 {
		s.Form = d.uint64()
	}
	return s
}

// uint64 reads a number of eight bytes: most hashes would take more as a varint.
func (d *decoder) uint64() uint64 {
	if len(d.b) < 8 {
		d.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}
