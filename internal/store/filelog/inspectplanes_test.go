package filelog_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

// planesEvent is a commit, as a test has made it.
type planesEvent struct {
	first, last int64
	plane       string
	changes     []store.Change
	begins      string // the plane, "" if none does
	origin      string
	beginning   []store.Change
	ends        string
}

// planesModel is what planes have had: all commits in order.
type planesModel struct {
	events  []planesEvent
	refused []planesEvent // since the last commit that was not, without their revisions
	rng     *rand.Rand
	live    []string // planes besides the first one
}

// write makes a random commit: changes in a plane, or the beginning or end of one.
func (m *planesModel) write(s *store.Store) error {
	var e planesEvent
	of := s
	some := func(n int) (changes []store.Change) {
		for i := range n {
			ch := store.Change{Key: store.Key{Resource: "/pods", Name: fmt.Sprintf("n/%d-%d", i, m.rng.IntN(8))}}
			if m.rng.IntN(5) > 0 {
				ch.Data = fmt.Appendf(nil, "%d %s", m.rng.Uint64(), strings.Repeat("x", m.rng.IntN(200)))
			}
			changes = append(changes, ch)
		}
		return changes
	}
	object := func(id string) store.Key { return store.Key{Resource: "/planes", Name: id} }
	switch n := m.rng.IntN(20); {
	case n < 3 && len(m.live) < 12:
		e.begins = fmt.Sprintf("%016x", m.rng.Uint64())
		if len(m.live) > 0 && m.rng.IntN(4) > 0 {
			e.origin = m.live[m.rng.IntN(len(m.live))]
		}
		e.beginning = some(m.rng.IntN(4))
		e.changes = []store.Change{{Key: object(e.begins), Data: []byte("plane " + e.begins), Sidecar: &store.Sidecar{
			UID: e.begins}, Begin: &store.Begin{Plane: e.begins, Origin: e.origin, Changes: e.beginning}}}
	case n == 3 && len(m.live) > 2:
		e.ends = m.live[m.rng.IntN(len(m.live))]
		e.changes = []store.Change{{Key: object(e.ends)}}
	default:
		e.changes = some(1 + m.rng.IntN(3))
		if len(m.live) > 0 && n > 6 {
			e.plane = m.live[m.rng.IntN(len(m.live))]
			var err error
			if of, err = s.Plane(e.plane); err != nil {
				return err
			}
		}
	}
	return m.commit(of, e)
}

// commit makes the commit of an event.
func (m *planesModel) commit(of *store.Store, e planesEvent) error {
	revisions, err := of.Commit(context.Background(), nil, e.changes)
	if err != nil {
		m.refused = append(m.refused, e)
		return err
	}
	m.refused = nil
	e.first = revisions.First
	e.last = e.first + int64(len(e.changes)+len(e.beginning)) - 1
	m.add(e)
	return nil
}

func (m *planesModel) add(e planesEvent) {
	m.events = append(m.events, e)
	if e.begins != "" {
		m.live = append(m.live, e.begins)
	}
	if e.ends != "" {
		m.live = slices.DeleteFunc(m.live, func(id string) bool { return id == e.ends })
	}
}

// planeState is what a plane has: the version of each name, as text, and the revision of the change by which it has it,
// or has it no more.
type planeState struct {
	have    map[string]string
	changed map[string]int64
	begun   []span // of the commits with which it and its origins began
}

type span struct{ first, last int64 }

// replay returns what all planes have in the end, what each plane ever had, by name, revision and data, and the last
// state of those that ended.
func (m *planesModel) replay() (now map[string]*planeState, ever map[string]map[string]bool) {
	now = map[string]*planeState{"": {have: map[string]string{}, changed: map[string]int64{}}}
	ever = map[string]map[string]bool{"": {}}
	apply := func(id string, changes []store.Change, first int64) {
		p := now[id]
		for i, ch := range changes {
			name := ch.Key.String()
			if p.changed[name] = first + int64(i); ch.Data == nil {
				delete(p.have, name)
				continue
			}
			p.have[name] = fmt.Sprint(first+int64(i), " ", string(ch.Data))
			ever[id][name+" "+p.have[name]] = true
		}
	}
	for _, e := range m.events {
		apply(e.plane, e.changes, e.first)
		if e.begins != "" {
			p := &planeState{have: map[string]string{}, changed: map[string]int64{}}
			ever[e.begins] = map[string]bool{}
			if from := now[e.origin]; e.origin != "" {
				p.have, p.changed, p.begun = maps.Clone(from.have), maps.Clone(from.changed), slices.Clone(from.begun)
				maps.Copy(ever[e.begins], ever[e.origin])
			}
			p.begun = append(p.begun, span{e.first, e.last})
			now[e.begins] = p
			apply(e.begins, e.beginning, e.first+int64(len(e.changes)))
		}
		if e.ends != "" {
			delete(now, e.ends)
		}
	}
	return now, ever
}

// concerned are the planes of the commits with revisions from first to last.
func (m *planesModel) concerned(first, last int64) map[string]bool {
	all := map[string]bool{}
	for _, e := range m.events {
		if e.last >= first && e.first <= last {
			all[e.plane], all[e.begins], all[e.ends] = true, true, true
		}
	}
	return all
}

func openPlanes(fs vfs.FS, compact int64) (*store.Store, error) {
	log, err := filelog.Open("data", small(fs))
	if err != nil {
		return nil, err
	}
	s, err := store.Open(store.Config{Log: log, Describe: describePlanes, MemoryHistoryBytes: 2 << 10,
		HistoryBytes: 24 << 10, CompactBytes: compact, PlaneResources: []string{"/planes"}})
	if err != nil {
		log.Close()
	}
	return s, err
}

// describePlanes is storetest.Describe, but for the UIDs of the objects that stand for planes.
func describePlanes(k store.Key, data []byte) *store.Sidecar {
	if k.Resource == "/planes" {
		id, _ := strings.CutPrefix(string(data), "plane ")
		return &store.Sidecar{UID: id}
	}
	return storetest.Describe(k, data)
}

// filledPlanes returns a log with many planes, as a killed process leaves it.
func filledPlanes(t testing.TB, seed uint64, commits int, compact int64) (image, *planesModel) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	s, err := openPlanes(mem, compact)
	if err != nil {
		t.Fatal(err)
	}
	m := &planesModel{rng: rand.New(rand.NewPCG(seed, 11))}
	for range commits {
		if err := m.write(s); err != nil {
			t.Fatal(err)
		}
	}
	defer s.Close()
	for {
		im := readImage(t, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: m.rng}))
		if (len(im.files(".base")) > 0 || compact > 1<<20) && len(im.files(".tmp")) == 0 {
			return im, m
		}
	}
}

// foundIn are the versions that an inspection found of each plane, in the form of planeState.
func foundIn(in *filelog.Inspection) map[string]map[string]string {
	text := func(versions []*store.Version) map[string]string {
		all := map[string]string{}
		for _, v := range versions {
			all[v.Key.String()] = fmt.Sprint(v.Revision, " ", string(v.Data()))
		}
		return all
	}
	all := map[string]map[string]string{"": text(in.Versions)}
	for _, p := range in.Planes {
		all[p.ID] = text(p.Versions())
	}
	return all
}

// An undamaged directory with planes has no finding, and each plane has what it has in the store.
//
// SPEC: RUN-11, STORE-7
func TestInspectPlanes(t *testing.T) {
	for seed := range uint64(6) {
		compact := int64(8 << 10)
		if seed%3 == 2 {
			compact = 1 << 30 // no checkpoint
		}
		im, m := filledPlanes(t, seed, 300, compact)
		disk := im.mount(t, "", nil)
		in := inspect(t, disk)
		for _, f := range in.Findings {
			t.Errorf("seed %d: %s", seed, &f)
		}
		want, _ := m.replay()
		have := foundIn(in)
		if len(want) < 5 || len(have) != len(want) {
			t.Errorf("seed %d: %d planes, should be %d", seed, len(have), len(want))
		}
		for id, p := range want {
			if err := same(have[id], p.have); err != nil {
				t.Errorf("seed %d: plane %q: %v", seed, id, err)
			}
		}
		if after := readImage(t, disk); !maps.EqualFunc(im, after, bytes.Equal) {
			t.Error("the directory changed")
		}
	}
}

// planesSurvive checks what is left of a damaged directory: every plane and object is as the newest commit says, unless
// a finding is about that commit, or the one with which the plane began; no plane has an object that it never had; and
// findings name no plane that they are not about.
func planesSurvive(t *testing.T, what string, in *filelog.Inspection, m *planesModel) {
	t.Helper()
	want, ever := m.replay()
	have := foundIn(in)
	told := func(plane string, ranges ...span) bool {
		return slices.ContainsFunc(in.Findings, func(f filelog.Finding) bool {
			base := strings.HasSuffix(f.File, ".base") && (plane == "" || have[plane] == nil || f.Last > 0)
			return !f.Minor && (base || f.Last == 0 && slices.Contains(f.Planes, plane) ||
				slices.ContainsFunc(ranges, func(s span) bool { return f.Last > 0 && f.First <= s.last && s.first <= f.Last }))
		})
	}
	for id, p := range want {
		if have[id] == nil && !told(id, p.begun...) {
			t.Errorf("%s: there is no plane %q, and no finding says so: %v", what, id, in.Findings)
		}
		for name, revision := range p.changed {
			if have[id] != nil && have[id][name] != p.have[name] && !told(id, append(p.begun, span{revision, revision})...) {
				t.Errorf("%s: %s of plane %q is %.40q, not %.40q, and no finding says so: %v", what, name, id, have[id][name],
					p.have[name], in.Findings)
			}
		}
	}
	for id, objects := range have {
		if ever[id] == nil {
			t.Errorf("%s: there never was a plane %q", what, id)
			continue
		}
		for name, text := range objects {
			if !ever[id][name+" "+text] {
				t.Errorf("%s: plane %q never had %s as %.40q", what, id, name, text)
			}
		}
		if want[id] == nil {
			for _, e := range m.events {
				if e.ends == id && !told(id, span{e.first, e.last}) {
					t.Errorf("%s: plane %q has ended, and no finding says that this is lost: %v", what, id, in.Findings)
				}
			}
		}
	}
	for _, f := range in.Findings {
		concerned := m.concerned(f.First, f.Last)
		for _, id := range f.Planes {
			if ever[id] == nil || f.Last > 0 && !concerned[id] {
				t.Errorf("%s: a finding names plane %q, which it is not about: %v", what, id, f)
			}
		}
		for _, k := range f.Keys {
			if ever[k.Plane] == nil || f.Last > 0 && !concerned[k.Plane] {
				t.Errorf("%s: a finding names %s of plane %q, which it is not about: %v", what, k.Key, k.Plane, f)
			}
		}
	}
}

// Damage of a directory with planes: bytes flip, blocks become zeros, files are cut off and taken away. What a store
// refuses, an inspection finds, and what it finds is about the planes that it concerns.
//
// SPEC: RUN-11, STORE-7
func TestInspectPlanesDamaged(t *testing.T) {
	count := map[string]int{}
	partial, named := 0, 0
	for seed := range uint64(3) {
		compact := int64(8 << 10)
		if seed == 2 {
			compact = 1 << 30 // no checkpoint
		}
		im, m := filledPlanes(t, seed, 200, compact)
		rng := rand.New(rand.NewPCG(seed, 2))
		try := func(sort, name string, content []byte) {
			t.Helper()
			what := fmt.Sprintf("seed %d: %s of %s", seed, sort, name)
			disk := im.mount(t, name, content)
			if content == nil {
				if err := disk.Remove("data/" + name); err != nil {
					t.Fatal(err)
				}
			}
			in, err := filelog.Inspect("data", filelog.Options{FS: disk})
			if err != nil && name == "FORMAT" {
				return
			} else if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			planesSurvive(t, what, in, m)
			for _, p := range in.Planes {
				if p.Partial {
					partial++
				}
			}
			for _, f := range in.Findings {
				named += len(f.Planes)
			}
			writtenPlanes(t, what, in, disk)
			s, err := openPlanes(disk, 1<<30)
			if err == nil {
				s.Close()
			}
			if err != nil && !in.Damaged() {
				t.Errorf("%s: there is no finding, and Open says %v", what, err)
			}
			if in.Damaged() {
				count[sort]++
			}
		}
		for name, b := range im {
			try("loss", name, nil)
			used := b[:end(b)]
			for range 4 {
				at := rng.IntN(len(used))
				flipped := slices.Clone(b)
				flipped[at] ^= 1 << rng.IntN(8)
				try("flip", name, flipped)
				try("cut", name, b[:at])
				blank := slices.Clone(b)
				clear(blank[at:min(len(blank), at+64<<rng.IntN(4))])
				try("zeros", name, blank)
			}
		}
	}
	for _, sort := range []string{"loss", "flip", "cut", "zeros"} {
		if count[sort] == 0 {
			t.Errorf("no %s is damage: %v", sort, count)
		}
	}
	if partial == 0 || named == 0 {
		t.Errorf("%d planes are known in part, and %d are named", partial, named)
	}
	t.Log(count, partial, named)
}

// Whichever part of a checkpoint is lost, the beginning of a layer or its objects: no plane gets what another one has.
//
// SPEC: RUN-11, STORE-7
func TestInspectDamagedLayers(t *testing.T) {
	partial, unknown := 0, 0
	for seed := range uint64(2) {
		im, m := filledPlanes(t, seed+40, 200, 1<<30)
		// All of it is written anew, so that what the checkpoint has does not depend on when it was written.
		disk := im.mount(t, "", nil)
		if err := inspect(t, disk).Write("new", filelog.Options{FS: disk}); err != nil {
			t.Fatal(err)
		}
		moved := vfs.NewMem()
		if _, err := vfs.Clone(disk, moved, "new", "data"); err != nil {
			t.Fatal(err)
		}
		im = readImage(t, moved)
		bases := im.files(".base")
		name := bases[len(bases)-1]
		for at := 64; at < end(im[name])-1; at += 53 {
			flipped := slices.Clone(im[name])
			flipped[at] ^= 0x10
			in := inspect(t, im.mount(t, name, flipped))
			if !in.Damaged() {
				t.Fatalf("seed %d: a flipped bit at %d is not found", seed, at)
			}
			planesSurvive(t, fmt.Sprintf("seed %d: flipped at %d", seed, at), in, m)
			for _, p := range in.Planes {
				if p.Partial {
					partial++
				}
			}
			if strings.Contains(in.Findings[0].Reason, "it is lost which ones they are") {
				unknown++
			}
		}
	}
	if partial == 0 || unknown == 0 {
		t.Errorf("%d planes are known in part, and %d beginnings are lost", partial, unknown)
	}
}

// writtenPlanes writes an inspection to a new directory, and compares what a store has there.
func writtenPlanes(t *testing.T, what string, in *filelog.Inspection, disk vfs.FS) *store.Store {
	t.Helper()
	if err := in.Write("new", filelog.Options{FS: disk}); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	moved := vfs.NewMem()
	if _, err := vfs.Clone(disk, moved, "new", "data"); err != nil {
		t.Fatal(err)
	}
	if again := inspect(t, moved); len(again.Findings) > 0 {
		t.Errorf("%s: of the new directory: %v", what, &again.Findings[0])
	}
	s, err := openPlanes(moved, 1<<30)
	if err != nil {
		t.Fatalf("%s: the new directory: %v", what, err)
	}
	defer s.Close()
	want := foundIn(in)
	if have := slices.Collect(s.Planes()); len(have) != len(want)-1 {
		t.Errorf("%s: the new store has the planes %q", what, have)
	}
	for id, objects := range want {
		plane, err := s.Plane(id)
		if err != nil {
			t.Errorf("%s: plane %q: %v", what, id, err)
			continue
		}
		if err := same(everything(t, plane), objects); err != nil {
			t.Errorf("%s: plane %q is written: %v", what, id, err)
		}
	}
	return s
}

// everything is what a plane of a store has.
func everything(t *testing.T, s *store.Store) map[string]string {
	t.Helper()
	sn, err := s.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, resource := range []string{"/pods", "/planes"} {
		sn.Ascend(resource, "", "", func(v *store.Version) bool {
			all[v.Key.String()] = fmt.Sprint(v.Revision, " ", string(v.Data()))
			return true
		})
	}
	return all
}

// A store on what was written anew has the same planes as one on the original, at the same revisions, and what they
// share is in the file once.
//
// SPEC: RUN-11, STORE-7
func TestInspectedPlanesAreWritten(t *testing.T) {
	for seed := range uint64(4) {
		im, m := filledPlanes(t, seed+20, 300, 8<<10)
		disk := im.mount(t, "", nil)
		in := inspect(t, disk)
		written := writtenPlanes(t, fmt.Sprint("seed ", seed), in, disk)
		original, err := openPlanes(disk, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := m.replay()
		if have := slices.Collect(original.Planes()); len(have) != len(want)-1 {
			t.Errorf("%d planes, should be %d", len(have), len(want)-1)
		}
		for id := range want {
			a, err := original.Plane(id)
			if err != nil {
				t.Fatal(err)
			}
			b, err := written.Plane(id)
			if err != nil {
				t.Fatal(err)
			}
			if a.Usage().Objects != b.Usage().Objects || a.Usage().Bytes != b.Usage().Bytes || id != "" &&
				(a.Revision() != b.Revision() || a.Usage().Resting != b.Usage().Resting) {
				t.Errorf("plane %q has %+v, and after it was written %+v", id, a.Usage(), b.Usage())
			}
			if err := same(everything(t, a), want[id].have); err != nil {
				t.Errorf("plane %q: %v", id, err)
			}
		}
		original.Close()
	}
}

// Ten thousand planes that share their objects are inspected in the memory of the objects, and written in their room.
//
// SPEC: RUN-11, BEY-11
func TestInspectManyPlanes(t *testing.T) {
	fs := vfs.NewMem()
	s := manyPlanes(t, fs)
	var objects []store.Change
	for i := range 200 {
		objects = append(objects, store.Change{Key: store.Key{Resource: "roles", Name: fmt.Sprint(i)},
			Data: fmt.Append(nil, i, strings.Repeat("role ", 40))})
	}
	begin(t, s, "template", "", objects...)
	const count = 10_000
	for i := range count {
		begin(t, s, fmt.Sprint("plane-", i), "template", store.Change{Key: store.Key{Resource: "pods", Name: "own"},
			Data: fmt.Append(nil, "own ", i)})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := memory()
	in := inspect(t, fs)
	if each := int64(memory()-before) / count; each > 4<<10 {
		t.Errorf("a plane takes %d bytes", each)
	}
	if len(in.Findings) > 0 || len(in.Planes) != count+1 || len(in.Planes[7].Versions()) != 201 {
		t.Fatalf("%d planes, %v", len(in.Planes), in.Findings)
	}
	if err := in.Write("new", filelog.Options{FS: fs}); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("new")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if info, err := fs.Stat("new/" + name); strings.HasSuffix(name, ".base") && (err != nil || info.Size() > 300*count) {
			t.Errorf("%s has %d bytes, %v", name, info.Size(), err)
		}
	}
	runtime.KeepAlive(in)
}
