package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"
	"unsafe"
)

// The kinds of payloads; docs/formats.md describes them.
const (
	payloadCommit   = 1 // one commit
	payloadVersions = 2 // live versions, in a base
	payloadHead     = 3 // the first of a base: revision and window
)

// What follows in an op or a version.
const (
	hasNew = 1 << iota
	hasOld
	newExpires
	oldExpires
	newForm
	oldForm
	sameForm // the old version has the form of the new one
)

// beside is what a sidecar holds that the bytes do not tell, and so stands beside them in the log.
type beside struct {
	expire time.Time
	form   uint64 // Sidecar.Form
}

func (sc *Sidecar) beside() beside { return beside{expire: sc.Expire, form: sc.Form} }

// flags are those of what there is, of the two that stand for an expiry and a form here.
func (s beside) flags(expires, form byte) (flags byte) {
	if !s.expire.IsZero() {
		flags |= expires
	}
	if s.form != 0 {
		flags |= form
	}
	return flags
}

// append appends what the flags say that there is.
func (s beside) append(b []byte, flags, expires, form byte) []byte {
	if flags&expires != 0 {
		b = binary.AppendVarint(b, s.expire.UnixNano())
	}
	if flags&form != 0 {
		b = binary.LittleEndian.AppendUint64(b, s.form)
	}
	return b
}

// AppendPayload appends the commit in the form that Replay gives back.
func (c *Commit) AppendPayload(b []byte) []byte {
	b = append(b, payloadCommit)
	b = binary.AppendUvarint(b, uint64(c.Revision))
	b = binary.AppendVarint(b, c.Time)
	b = binary.AppendUvarint(b, uint64(len(c.Records)))
	for _, r := range c.Records {
		b = appendOp(b, r)
	}
	return b
}

func appendOp(b []byte, r *Record) []byte {
	var flags byte
	var is, was beside
	if r.New != nil {
		is = r.New.Sidecar.beside()
		flags |= hasNew | is.flags(newExpires, newForm)
	}
	if r.Old != nil {
		was = r.Old.Sidecar.beside()
		flags |= hasOld | was.flags(oldExpires, oldForm)
		if flags&oldForm != 0 && was.form == is.form {
			flags = flags&^oldForm | sameForm
		}
	}
	b = append(b, flags)
	b = appendString(b, r.Key.Resource)
	b = appendString(b, r.Key.Name)
	var data []byte
	if r.New != nil {
		data = r.New.Data
		b = is.append(b, flags, newExpires, newForm)
		b = appendBytes(b, data)
	}
	if r.Old != nil {
		// The old version is there so that transitions of a selector need no look-up. Most updates touch a few bytes:
		// what it shares with the new one at both ends is not written again.
		old := r.Old.Data
		head := commonPrefix(old, data)
		tail := commonSuffix(old[head:], data[head:])
		b = binary.AppendUvarint(b, uint64(r.Old.Revision))
		b = was.append(b, flags, oldExpires, oldForm)
		b = binary.AppendUvarint(b, uint64(head))
		b = binary.AppendUvarint(b, uint64(tail))
		b = appendBytes(b, old[head:len(old)-tail])
	}
	return b
}

// appendVersion appends one version of a base.
func appendVersion(b []byte, v *Version) []byte {
	is := v.Sidecar.beside()
	flags := is.flags(newExpires, newForm)
	b = append(b, flags)
	b = appendString(b, v.Key.Resource)
	b = appendString(b, v.Key.Name)
	b = binary.AppendUvarint(b, uint64(v.Revision))
	b = is.append(b, flags, newExpires, newForm)
	return appendBytes(b, v.Data)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBytes(b, s []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// commonPrefix and commonSuffix go eight bytes at a time: this runs for every update.
func commonPrefix(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

func commonSuffix(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[len(a)-i-8:]) ^ binary.LittleEndian.Uint64(b[len(b)-i-8:]); x != 0 {
			return i + bits.LeadingZeros64(x)/8
		}
	}
	for i < n && a[len(a)-i-1] == b[len(b)-i-1] {
		i++
	}
	return i
}

// payload is a payload being read. Its ops and their strings point into the bytes that the log lent for the moment.
type payload struct {
	kind     byte
	revision int64
	time     int64
	size     int
	count    int
	rest     decoder
}

// op is one change of a payload, or one version of a base.
type op struct {
	resource, name   string
	hasNew, hasOld   bool
	data             []byte
	revision         int64 // of the change, or of the version in a base
	is, was          beside
	oldRevision      int64
	oldHead, oldTail int
	oldMiddle        []byte
}

var errPayload = errors.New("store: the log holds a payload that does not parse, though its checksum holds")

func parsePayload(b []byte) (payload, error) {
	p := payload{size: len(b), rest: decoder{b: b}}
	d := &p.rest
	switch p.kind = d.byte(); p.kind {
	case payloadCommit:
		p.revision = int64(d.uvarint())
		p.time = d.varint()
		p.count = int(d.uvarint())
	case payloadVersions:
		p.count = int(d.uvarint())
	case payloadHead:
		p.revision = int64(d.uvarint())
	default:
		return p, fmt.Errorf("store: the log holds a payload of unknown kind %d; a newer version may have written it", p.kind)
	}
	if d.bad || p.count < 0 || p.count > len(d.b) { // a change takes some bytes
		return p, errPayload
	}
	return p, nil
}

// first is the revision of the first change of a commit.
func (p *payload) first() int64 { return firstOf(p.revision, p.count) }

// each calls fn for the ops of a payload, once.
func (p *payload) each(fn func(*op) error) error {
	var o op
	for i := range p.count {
		if p.kind == payloadCommit {
			p.rest.op(&o)
			o.revision = p.first() + int64(i)
		} else {
			p.rest.version(&o)
		}
		if p.rest.bad {
			return errPayload
		}
		if err := fn(&o); err != nil {
			return err
		}
	}
	return nil
}

// old assembles the data of the old version, for the caller to keep.
func (o *op) old() []byte {
	old := make([]byte, 0, o.oldHead+len(o.oldMiddle)+o.oldTail)
	old = append(old, o.data[:o.oldHead]...)
	old = append(old, o.oldMiddle...)
	return append(old, o.data[len(o.data)-o.oldTail:]...)
}

func (o *op) key() Key {
	return Key{Resource: strings.Clone(o.resource), Name: strings.Clone(o.name)}
}

// decoder reads the parts of a payload; bad says that one was not there.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || int64(v) < 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

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

// string returns a string over the lent bytes: whoever keeps it clones it.
func (d *decoder) string() string {
	b := d.bytes()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// beside reads what the flags say that there is.
func (d *decoder) beside(flags, expires, form byte) (s beside) {
	if flags&expires != 0 {
		s.expire = time.Unix(0, d.varint()).UTC()
	}
	if flags&form != 0 {
		s.form = d.uint64()
	}
	return s
}

func (d *decoder) uint64() uint64 {
	if len(d.b) < 8 {
		d.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

func (d *decoder) op(o *op) {
	*o = op{}
	flags := d.byte()
	o.hasNew, o.hasOld = flags&hasNew != 0, flags&hasOld != 0
	o.resource, o.name = d.string(), d.string()
	if o.hasNew {
		o.is = d.beside(flags, newExpires, newForm)
		o.data = d.bytes()
	}
	if o.hasOld {
		o.oldRevision = int64(d.uvarint())
		if o.was = d.beside(flags, oldExpires, oldForm); flags&sameForm != 0 {
			o.was.form = o.is.form
		}
		o.oldHead, o.oldTail = int(d.uvarint()), int(d.uvarint())
		o.oldMiddle = d.bytes()
		if o.oldHead > len(o.data) || o.oldTail > len(o.data)-o.oldHead {
			d.bad = true
		}
	}
}

func (d *decoder) version(o *op) {
	*o = op{hasNew: true}
	flags := d.byte()
	o.resource, o.name = d.string(), d.string()
	o.revision = int64(d.uvarint())
	o.is = d.beside(flags, newExpires, newForm)
	o.data = d.bytes()
}

// describe computes the sidecar of bytes from the log, and takes from beside them what they do not tell.
func (s *Store) describe(k Key, data []byte, b beside) *Sidecar {
	if k.Resource == Counters {
		return &Sidecar{}
	}
	sc := s.config.Describe(k, data)
	sc.Expire, sc.Form = b.expire, b.form
	return sc
}

// record builds the record of one op, for keeps.
func (s *Store) record(o *op) *Record {
	r := &Record{Key: o.key(), Revision: o.revision}
	if o.hasNew {
		if live, ok := s.Get(r.Key); ok && live.Revision == o.revision {
			r.Key, r.New = live.Key, live
		} else {
			data := bytes.Clone(o.data)
			r.New = &Version{Key: r.Key, Revision: o.revision, Data: data, Sidecar: s.describe(r.Key, data, o.is)}
		}
	}
	if o.hasOld {
		r.Old = s.oldVersion(r.Key, o)
	}
	return r
}

func (s *Store) oldVersion(k Key, o *op) *Version {
	data := o.old()
	return &Version{Key: k, Revision: o.oldRevision, Data: data, Sidecar: s.describe(k, data, o.was)}
}
