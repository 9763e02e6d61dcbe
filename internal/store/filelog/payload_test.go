package filelog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/internal/store"
)

func version(data string, revision int64, expire time.Time) *store.Version {
	return store.NewVersion(store.Key{}, revision, []byte(data), &store.Sidecar{Expire: expire})
}

func formed(form uint64, v *store.Version) *store.Version {
	v.Sidecar.Form = form
	return v
}

// TestPayload: a payload reads back as the commit from which it was made, repeatedly with the same parser.
func TestPayload(t *testing.T) {
	at := time.Unix(1234567890, 987654321).UTC()
	key := store.Key{Resource: "apps/deployments", Name: "ns/näme"}
	long := strings.Repeat("0123456789", 1000)
	var p parser
	same := func(name, which string, have, want *store.Version) {
		t.Helper()
		if (have == nil) != (want == nil) {
			t.Errorf("%s: the %s version is %v", name, which, have)
		}
		if have == nil || want == nil {
			return
		}
		if have.Key != key || have.Revision != want.Revision || have.Data() == nil ||
			string(have.Data()) != string(want.Data()) ||
			!have.Sidecar.Expire.Equal(want.Sidecar.Expire) || have.Sidecar.Form != want.Sidecar.Form {
			t.Errorf("%s: the %s version is %s at %d: %q, %+v",
				name, which, have.Key, have.Revision, have.Data(), have.Sidecar)
		}
	}
	for name, r := range map[string]*store.Record{
		"nothing":           {},
		"created":           {New: version("x", 9, time.Time{})},
		"created, expiring": {New: version("x", 9, at)},
		"created empty":     {New: version("", 9, time.Time{})},
		"deleted":           {Old: version("gone", 5, time.Time{})},
		"deleted, expiring": {Old: version("gone", 5, at)},
		"deleted empty":     {Old: version("", 5, time.Time{})},
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
		b := appendCommit(nil, &store.Commit{Revision: 9, Time: -5, Records: []*store.Record{r, r}})
		if h, _, err := parseCommitHeader(b); h.first() != 8 || h.last != 9 || err != nil {
			t.Errorf("%s: the header is of revisions %d to %d, should be 8 to 9: %v", name, h.first(), h.last, err)
		}
		c, err := p.commitOf(b)
		if err != nil || c.Revision != 9 || c.Time != -5 || len(c.Records) != 2 {
			t.Fatalf("%s: %+v, %v", name, c, err)
		}
		for i, have := range c.Records {
			if have.Key != key || have.Revision != int64(8+i) {
				t.Errorf("%s: change %d is of %s at %d", name, i, have.Key, have.Revision)
			}
			if r.New != nil {
				r.New.Revision = int64(8 + i)
			}
			same(name, "new", have.New, r.New)
			same(name, "old", have.Old, r.Old)
		}
		if name == "the same" && len(b) > 3*len(long) {
			t.Errorf("two records of an unchanged object take %d bytes", len(b))
		}
	}
}

// TestCheckpointPayloads: the parts of a checkpoint read back as they were written.
func TestCheckpointPayloads(t *testing.T) {
	want := &store.Checkpoint{Revision: 7,
		Window: store.Window{Horizon: 3, Bytes: 9,
			Marks: []store.Mark{{Revision: 1, Time: -2, Bytes: 3}, {Revision: 4, Time: 5, Bytes: 6}}}}
	revision, window, _, err := parseHead(appendHead(nil, want))
	if err != nil || revision != 7 || fmt.Sprint(window) != fmt.Sprint(want.Window) {
		t.Errorf("the head is %d, %v, %v", revision, window, err)
	}
	var b []byte
	for _, text := range []string{"a", "", "c"} {
		v := formed(uint64(len(text)), version(text, 5, time.Unix(int64(len(text)), 0)))
		v.Key = store.Key{Resource: "/pods", Name: "n" + text}
		b = appendVersion(b, "", v, false, nil)
	}
	b = append([]byte{payloadVersions, 3}, b...)
	var p parser
	for stop := range 4 {
		var have []string
		enough, err := p.versions(b, func(v *store.Version) bool {
			have = append(have, fmt.Sprintf("%s@%d=%s %d %d",
				v.Key, v.Revision, v.Data(), v.Sidecar.Form, v.Sidecar.Expire.Unix()))
			return len(have) <= stop
		})
		all := []string{"/pods/na@5=a 1 1", "/pods/n@5= 0 0", "/pods/nc@5=c 1 1"}
		if err != nil || enough != (stop < 3) || !slices.Equal(have, all[:min(stop+1, 3)]) {
			t.Errorf("the versions are %q, enough %v, %v", have, enough, err)
		}
	}
	for name, bad := range map[string][]byte{"nothing": {}, "another kind": {9}, "cut": b[:len(b)-1],
		"too many": {payloadVersions, 200, 1}} {
		if _, err := p.versions(bad, func(*store.Version) bool { return true }); err == nil {
			t.Errorf("%s is read as versions", name)
		}
	}
}

// A replay allocates nothing for each record: its results are lent.
func TestParsingAllocatesNothing(t *testing.T) {
	c := &store.Commit{Revision: 99}
	for i := range 50 {
		c.Records = append(c.Records, &store.Record{
			Key: store.Key{Resource: "/pods", Name: "a"}, Revision: int64(50 + i), Old: version("abc", 5,
				time.Time{}), New: version("abd", int64(50+i), time.Time{}),
		})
	}
	b := appendCommit(nil, c)
	var p parser
	if n := testing.AllocsPerRun(100, func() {
		if _, err := p.commitOf(b); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for 50 records, should be none", n)
	}
}

// The head, a layer and the beginning and end of planes read back as they were written; of what is cut off there is an
// error, and what claims more than it has takes no room for it.
func TestPlanesPayloads(t *testing.T) {
	layer := &store.Layer{Number: 3, Origin: 2, Plane: "id", Revision: 9, Begun: 4, Resting: 5, Since: 6,
		Collections: []store.LayerCollection{{Resource: "/pods", Changed: 8}, {Resource: "apps/deployments", Changed: 9}}}
	b := appendLayer(nil, layer)
	have, err := parseLayer(b)
	if err != nil || fmt.Sprint(have) != fmt.Sprint(layer) {
		t.Errorf("the layer is %v, %v", have, err)
	}
	key := store.Key{Resource: "/pods", Name: "a"}
	c := beginningCommit(key)
	commit := appendCommit(nil, c)
	var p parser
	read, err := p.commitOf(commit)
	if err != nil || read.Plane != "p" || read.Ends != "gone" || read.Begins.Plane != "new" ||
		read.Begins.Origin != "old" ||
		len(read.Records) != 1 || len(read.Begins.Records) != 2 || read.Begins.Records[1].Revision != 9 ||
		read.First() != 7 {
		t.Errorf("the commit is %+v, %v", read, err)
	}
	for n := range b {
		if _, err := parseLayer(b[:n]); err == nil {
			t.Errorf("%d bytes of a layer are one", n)
		}
	}
	for n := range commit {
		if _, err := p.commitOf(commit[:n]); err == nil {
			t.Errorf("%d bytes of a commit are one", n)
		}
	}
	huge := binary.AppendUvarint(nil, 1<<62)
	for name, payload := range map[string][]byte{
		"collections": append([]byte{payloadLayer, 1, 0, 1, 1, 1, 1, 0}, huge...),
		"ID":          append([]byte{payloadLayer, 1, 0, 1, 1, 1, 1}, huge...),
		"records":     append([]byte{payloadCommit, 0, 9, 0}, huge...),
		"beginning":   append([]byte{payloadCommit, commitBegins, 9, 0, 0}, huge...),
		"unknown":     {payloadCommit, 1 << 5, 9, 0, 0},
		"marks":       append([]byte{payloadHead, 9, 1, 1}, huge...),
		"versions":    append([]byte{payloadVersions}, huge...),
	} {
		var p parser
		_, err1 := p.commitOf(payload)
		_, err2 := parseLayer(payload)
		_, _, _, err3 := parseHead(payload)
		_, err4 := p.versions(payload, func(*store.Version) bool { return true })
		if err1 == nil || err2 == nil || err3 == nil || err4 == nil {
			t.Errorf("%s: %v, %v, %v, %v", name, err1, err2, err3, err4)
		}
	}
}

// beginningCommit is a commit of a plane with which another one begins, and a third one ends.
func beginningCommit(key store.Key) *store.Commit {
	return &store.Commit{Revision: 9, Time: 1, Plane: "p", Ends: "gone",
		Records: []*store.Record{{Key: key, Revision: 7, New: version("x", 7, time.Time{})}},
		Begins: &store.Beginning{Plane: "new", Origin: "old", Records: []*store.Record{
			{Key: key, Revision: 8, New: version("y", 8, time.Time{})}, {Key: key, Revision: 9}}}}
}

// FuzzPayload: any payload is read as values or as an error, in memory for what it has and not for what it claims; what
// is read and written again is read as the same.
func FuzzPayload(f *testing.F) {
	f.Add(appendCommit(nil, &store.Commit{Revision: 9, Time: 1, Records: []*store.Record{{
		Key: store.Key{Resource: "/pods", Name: "a"}, Old: version("abc", 5, time.Unix(1, 0)), New: version("abd",
			9, time.Unix(2, 0))}}}))
	f.Add(append([]byte{payloadVersions, 1}, appendVersion(nil, "", version("abc", 5, time.Unix(1, 0)), false, nil)...))
	f.Add(appendHead(nil, &store.Checkpoint{Revision: 7,
		Window: store.Window{Horizon: 3, Bytes: 9, Marks: []store.Mark{{Revision: 1, Time: 2, Bytes: 3}}}}))
	f.Add(appendCommit(nil, beginningCommit(store.Key{Resource: "/pods", Name: "a"})))
	f.Add(appendLayer(nil, &store.Layer{Number: 3, Origin: 2, Plane: "id", Revision: 9, Begun: 4, Resting: 5, Since: 6,
		Collections: []store.LayerCollection{{Resource: "/pods", Changed: 8}}}))
	f.Add(append([]byte{payloadVersions, 1}, appendVersion(nil, "", &store.Version{Key: store.Key{Resource: "/pods",
		Name: "a"}}, false, nil)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p parser
		if c, err := p.commitOf(b); err == nil && c.First() > 0 && !isSealed(c) {
			again := appendCommit(nil, c)
			var other parser
			if d, err := other.commitOf(again); err != nil || !bytes.Equal(appendCommit(nil, d), again) {
				t.Errorf("%x is read as one commit, and written as another: %v", b, err)
			}
		}
		_, _ = p.versions(b, func(v *store.Version) bool {
			appendVersion(nil, "", v, false, nil)
			return true
		})
		_, _, _, _ = parseHead(b)
		if l, err := parseLayer(b); err == nil {
			if have, err := parseLayer(appendLayer(nil, l)); err != nil || fmt.Sprint(have) != fmt.Sprint(l) {
				t.Errorf("%x is read as one layer, and written as another: %v", b, err)
			}
		}
		// A frame with this payload that does not read back: only hints.
		hintsOf(append(make([]byte, frameHeader), b...))
		l := newLayerReading(9)
		_ = l.begins(1, b)
	})
}
