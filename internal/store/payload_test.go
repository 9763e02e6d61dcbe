package store

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func version(data string, revision int64, expire time.Time) *Version {
	return &Version{Revision: revision, Data: []byte(data), Sidecar: &Sidecar{Expire: expire}}
}

func formed(form uint64, v *Version) *Version {
	v.Sidecar.Form = form
	return v
}

// TestPayload: what was appended is what is read.
func TestPayload(t *testing.T) {
	at := time.Unix(1234567890, 987654321).UTC()
	key := Key{Resource: "apps/deployments", Name: "ns/näme"}
	long := strings.Repeat("0123456789", 1000)
	for name, r := range map[string]*Record{
		"created":           {New: version("x", 9, time.Time{})},
		"created, expiring": {New: version("x", 9, at)},
		"created empty":     {New: version("", 9, time.Time{})},
		"deleted":           {Old: version("gone", 5, time.Time{})},
		"deleted, expiring": {Old: version("gone", 5, at)},
		"changed":           {Old: version("abcXdef", 5, at), New: version("abcYYdef", 9, time.Time{})},
		"the same":          {Old: version(long, 5, time.Time{}), New: version(long, 9, at)},
		"shorter":           {Old: version(long+long, 5, time.Time{}), New: version(long, 9, time.Time{})},
		"longer":            {Old: version(long, 5, time.Time{}), New: version(long+long, 9, time.Time{})},
		"emptied":           {Old: version(long, 5, time.Time{}), New: version("", 9, time.Time{})},
		"of a form":         {New: formed(7, version("x", 9, at))},
		"of the same form":  {Old: formed(7, version("x", 5, at)), New: formed(7, version("y", 9, time.Time{}))},
		"of another form":   {Old: formed(8, version("x", 5, time.Time{})), New: formed(1<<63, version("y", 9, at))},
		"of no form now":    {Old: formed(8, version("x", 5, time.Time{})), New: version("y", 9, at)},
		"gone with a form":  {Old: formed(8, version("x", 5, at))},
		"nothing alike":     {Old: version("abc", 5, time.Time{}), New: version("xyz", 9, time.Time{})},
	} {
		r.Key, r.Revision = key, 9
		c := &Commit{Revision: 9, Time: -5, Records: []*Record{r, r}}
		b := c.AppendPayload(nil)
		if first, last, err := PayloadRange(b); first != 8 || last != 9 || err != nil {
			t.Errorf("%s: from %d to %d, %v", name, first, last, err)
		}
		p, err := parsePayload(b)
		if err != nil || p.revision != 9 || p.time != -5 || p.count != 2 {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		n := 0
		err = p.each(func(o *op) error {
			n++
			if o.revision != int64(7+n) {
				t.Errorf("%s: change %d has revision %d", name, n, o.revision)
			}
			if o.key() != key || o.hasNew != (r.New != nil) || o.hasOld != (r.Old != nil) {
				t.Errorf("%s: %+v", name, o)
			}
			if o.hasNew && (string(o.data) != string(r.New.Data) || o.is != r.New.Sidecar.beside()) {
				t.Errorf("%s: new is %q, %+v", name, o.data, o.is)
			}
			if o.hasOld && (string(o.old()) != string(r.Old.Data) || o.oldRevision != 5 || o.was != r.Old.Sidecar.beside()) {
				t.Errorf("%s: old is %q at %d, %+v", name, o.old(), o.oldRevision, o.was)
			}
			return nil
		})
		if err != nil || n != 2 || len(p.rest.b) != 0 {
			t.Errorf("%s: %d ops, %d bytes left, %v", name, n, len(p.rest.b), err)
		}
		if name == "the same" && len(b) > 3*len(long) {
			t.Errorf("an unchanged object takes %d bytes twice", len(b))
		}
	}
}

// TestCommonEnds compares the fast ways with the obvious ones.
func TestCommonEnds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	text := func() []byte {
		b := bytes.Repeat([]byte("a"), rng.IntN(40))
		for range rng.IntN(3) {
			if len(b) > 0 {
				b[rng.IntN(len(b))] = 'b'
			}
		}
		return b
	}
	for range 20000 {
		a, b := text(), text()
		n := 0
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		if got := commonPrefix(a, b); got != n {
			t.Fatalf("%q and %q begin with the same %d bytes, not %d", a, b, n, got)
		}
		n = 0
		for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
			n++
		}
		if got := commonSuffix(a, b); got != n {
			t.Fatalf("%q and %q end with the same %d bytes, not %d", a, b, n, got)
		}
	}
}

// FuzzPayload: whatever a log may hold, reading it ends in values or in an error.
func FuzzPayload(f *testing.F) {
	c := &Commit{Revision: 9, Time: 1, Records: []*Record{{Key: Key{"/pods", "a"}, Old: version("abc", 5, time.Unix(1, 0)), New: version("abd", 9, time.Unix(2, 0))}}}
	f.Add(c.AppendPayload(nil))
	f.Add(append([]byte{payloadVersions, 1}, appendVersion(nil, version("abc", 5, time.Unix(1, 0)))...))
	h := &history{horizon: 3, bytes: 9}
	h.marks.push(mark{1, 2, 3})
	f.Add(h.appendHead(nil, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePayload(b)
		if err != nil {
			return
		}
		if p.kind == payloadHead {
			_ = new(history).parse(&p.rest)
			return
		}
		_ = p.each(func(o *op) error {
			if o.hasOld {
				o.old()
			}
			o.key()
			return nil
		})
	})
}
