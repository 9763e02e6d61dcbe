package filelog

import (
	"strings"
	"testing"
	"time"

	"plinth/internal/store"
)

// Commits and layers whose checksums are right, and which cannot follow what is before them, are findings, and give no
// plane what is another one's.
//
// SPEC: RUN-11, STORE-7
func TestInspectContradictions(t *testing.T) {
	key := store.Key{Resource: "/pods", Name: "a"}
	record := func(revision int64) []*store.Record {
		return []*store.Record{{Key: key, Revision: revision, New: store.NewVersion(key, revision, []byte("x"),
			&store.Sidecar{})}}
	}
	i := &inspector{Log: &Log{}, in: &Inspection{}, state: map[store.Key]*store.Version{},
		deleted: map[store.Key]int64{}, previous: map[int64]PlaneKey{}, planes: newPlanesOf()}
	begins := func(revision int64, id, origin string) *store.Commit {
		return &store.Commit{Revision: revision,
			Begins: &store.Beginning{Plane: id, Origin: origin, Records: record(revision)}}
	}
	for _, c := range []struct {
		commit *store.Commit
		want   string
	}{
		{begins(2, "a", ""), ""},
		{begins(3, "a", ""), `the plane "a" begins, and there was one`},
		{&store.Commit{Revision: 4, Plane: "a", Records: record(4)}, ""},
		{&store.Commit{Revision: 5, Ends: "a"}, ""},
		{&store.Commit{Revision: 6, Plane: "a", Records: record(6)}, `the plane "a" has changes, and it has ended before`},
		{begins(7, "b", "a"), `the plane "a" is what the plane "b" begins with, and it has ended before`},
		{begins(8, "a", ""), `the plane "a" begins, and there was one`},
		{&store.Commit{Revision: 9, Ends: "a"}, `the plane "a" ends, and it has ended before`},
	} {
		before := len(i.in.Findings)
		i.apply(c.commit, Finding{File: "f"})
		said := ""
		for _, f := range i.in.Findings[before:] {
			said += f.Reason
		}
		if c.want == "" && said != "" || !strings.Contains(said, c.want) {
			t.Errorf("commit %d: %q", c.commit.Revision, said)
		}
	}
	i.conclude()
	if len(i.in.Planes) != 1 || i.in.Planes[0].ID != "b" || !i.in.Planes[0].Partial ||
		len(i.in.Planes[0].Versions()) != 1 {
		t.Errorf("the planes are %+v", i.in.Planes)
	}

	layer := func(number, origin int, plane string) []byte {
		return appendLayer(nil, &store.Layer{Number: number, Origin: origin, Plane: plane, Revision: 5})
	}
	l := newLayerReading(9)
	for n, c := range []struct {
		number  int64
		payload []byte // nil: versions
		sound   bool
	}{
		{1, layer(1, 0, "a"), true},
		{1, nil, true},
		{2, layer(2, 1, "b"), false}, // the difference from that of a plane
		{3, layer(3, 0, "a"), false}, // a second time
		{4, layer(5, 0, "c"), false},
		{5, layer(5, 5, "c"), false},
		{6, []byte{payloadLayer}, false},
		{8, layer(8, 0, "d"), false}, // one is passed over, and nothing was lost
		{7, nil, false},
		{0, nil, false},
	} {
		var err error
		if c.payload != nil {
			err = l.begins(c.number, c.payload)
		} else {
			_, err = l.part(c.number, false)
		}
		if (err == nil) != c.sound {
			t.Errorf("part %d, of layer %d: %v", n, c.number, err)
		}
	}
}

// The first plane has nothing of which it is the difference: a checkpoint that says so is damaged, and a part of it
// that has nothing is no panic.
//
// SPEC: STORE-7
func TestOddParts(t *testing.T) {
	gone := append([]byte{payloadVersions, 1}, appendVersion(nil, "", &store.Version{Key: store.Key{Resource: "/pods",
		Name: "a"}}, false, nil)...)
	if beginsLayer(frame{}) || !beginsLayer(frame{payload: []byte{payloadLayer}}) {
		t.Error("an empty part begins a layer, or the beginning of one does not")
	}
	i := &inspector{Log: &Log{}, in: &Inspection{}, state: map[store.Key]*store.Version{},
		deleted: map[store.Key]int64{}, planes: newPlanesOf()}
	r := checkpointReading{inspector: i, whole: true, open: -1, layers: newLayerReading(9)}
	if err := r.part(piece{frame: frame{kind: framePart, payload: gone}}); err == nil {
		t.Error("the first plane has a version that is none")
	}
	if err := r.part(piece{frame: frame{kind: framePart}}); err == nil {
		t.Error("an empty part is one")
	}
	v := version("x", 5, time.Time{})
	v.Key = store.Key{Resource: "/pods", Name: "b"}
	payload := append([]byte{payloadVersions, 1}, appendVersion(nil, "", v, false, nil)...)
	if err := r.part(piece{frame: frame{kind: framePart, payload: payload}}); err != nil || i.state[v.Key] == nil {
		t.Errorf("after it: %v", err)
	}
}
