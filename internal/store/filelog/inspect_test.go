package filelog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
)

func inspect(t testing.TB, disk vfs.FS) *filelog.Inspection {
	t.Helper()
	in, err := filelog.Inspect("data", filelog.Options{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// found are the versions that an inspection found, in the form of model.state.
func found(in *filelog.Inspection) map[string]string {
	all := map[string]string{}
	for _, v := range in.Versions {
		all[v.Key.Name] = fmt.Sprint(v.Revision, " ", string(v.Data()))
	}
	return all
}

// An undamaged directory has no finding, and holds what the log does; nothing in it changes.
//
// SPEC: RUN-11
func TestInspectUndamaged(t *testing.T) {
	im, m := filled(t, 300)
	disk := im.mount(t, "", nil)
	in := inspect(t, disk)
	for _, f := range in.Findings {
		t.Errorf("of a directory as a crash leaves it: %s", &f)
	}
	if after := readImage(t, disk); !maps.EqualFunc(im, after, bytes.Equal) {
		t.Error("the directory changed")
	}
	newest := slices.Max(slices.Collect(maps.Keys(m.changes)))
	if err := same(found(in), m.state(newest)); err != nil {
		t.Error(err)
	}
	s := mustOpen(t, disk)
	if in.Revision != s.Revision() || in.Commits == 0 || in.Frames < in.Commits || in.Files < 4 {
		t.Errorf("the store is at %d, and there are %+v", s.Revision(), in)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if in := inspect(t, disk); len(in.Findings) > 0 {
		t.Errorf("of a directory that was closed: %v", &in.Findings[0])
	}
}

// survivors checks what is left of a damaged directory: every object has its newest version, unless a finding tells
// that a later one is lost, and no object appears that there was not.
func survivors(t *testing.T, what string, in *filelog.Inspection, m *model) {
	t.Helper()
	newest := slices.Max(slices.Collect(maps.Keys(m.changes)))
	want, have := m.state(newest), found(in)
	last := map[string]int64{}
	for revision, c := range m.changes {
		last[c.Key.Name] = max(last[c.Key.Name], revision)
	}
	told := func(key string) bool {
		return slices.ContainsFunc(in.Findings, func(f filelog.Finding) bool {
			return !f.Minor && (f.Last == 0 || f.First <= last[key] && last[key] <= f.Last || strings.HasSuffix(f.File, ".base"))
		})
	}
	for key := range maps.Keys(last) {
		if have[key] != want[key] && !told(key) {
			t.Errorf("%s: %s is %.40q, not %.40q, and no finding says so: %v", what, key, have[key], want[key], in.Findings)
		}
	}
	for _, v := range in.Versions {
		if c := m.changes[v.Revision]; c.Key != v.Key || !bytes.Equal(c.Data, v.Data()) {
			t.Errorf("%s: %s at %d was never written", what, v.Key, v.Revision)
		}
	}
}

// What Open refuses, Inspect finds; and what it finds is about the file that is damaged. Bytes flip, blocks become
// zeros, files are cut off and taken away.
//
// SPEC: RUN-11
func TestInspectDamaged(t *testing.T) {
	im, m := filled(t, 300)
	rng := rand.New(rand.NewPCG(2, 2))
	count := map[string]int{}
	try := func(sort, name string, content []byte) {
		t.Helper()
		what := sort + " of " + name
		disk := im.mount(t, name, content)
		if content == nil {
			if err := disk.Remove("data/" + name); err != nil {
				t.Fatal(err)
			}
		}
		in, err := filelog.Inspect("data", filelog.Options{FS: disk})
		if err != nil && name == "FORMAT" { // as if a later version had written it
			return
		} else if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		survivors(t, what, in, m)
		l, err := filelog.Open("data", filelog.Options{FS: disk})
		if err == nil {
			l.Close()
		}
		if err != nil && !in.Damaged() {
			t.Errorf("%s: there is no finding, and Open says %v", what, err)
		}
		if in.Damaged() {
			count[sort]++
		}
		named := slices.ContainsFunc(in.Findings, func(f filelog.Finding) bool { return strings.HasSuffix(f.File, name) })
		if len(in.Findings) > 0 && content != nil && !named {
			t.Errorf("%s: the findings are about others: %v", what, in.Findings)
		}
	}
	for name, b := range im {
		try("loss", name, nil)
		used := b[:end(b)]
		for range 12 {
			at := rng.IntN(len(used))
			flipped := slices.Clone(b)
			flipped[at] ^= 1 << rng.IntN(8)
			try("flip", name, flipped)
			try("cut", name, b[:at])
			blank := slices.Clone(b)
			clear(blank[at:min(len(blank), at+512)])
			try("zeros", name, blank)
		}
	}
	for _, sort := range []string{"loss", "flip", "cut", "zeros"} {
		if count[sort] == 0 {
			t.Errorf("no %s is damage: %v", sort, count)
		}
	}
	t.Log(count)
}

// A flipped byte in a frame is found in each segment and in the checkpoint, whichever byte it is, and the objects of
// the commit are named.
//
// SPEC: RUN-11
func TestInspectNamesObjects(t *testing.T) {
	im, m := filled(t, 300)
	named, lost := 0, 0
	bases := im.files(".base") // older ones are left over
	for _, name := range append(im.files(".log"), bases[len(bases)-1]) {
		for at := 64; at < end(im[name])-1; at += 397 {
			flipped := slices.Clone(im[name])
			flipped[at] ^= 0x10
			in := inspect(t, im.mount(t, name, flipped))
			if len(in.Findings) == 0 {
				t.Fatalf("%s: a flipped bit at %d is not found", name, at)
			}
			for _, f := range in.Findings {
				for r := f.First; r > 0 && r <= f.Last; r++ {
					lost++
					if slices.Contains(f.Keys, filelog.PlaneKey{Key: m.changes[r].Key}) {
						named++
					}
				}
			}
		}
	}
	if lost == 0 || named*10 < lost*8 {
		t.Errorf("of %d lost changes %d are named by their objects", lost, named)
	}
	t.Logf("%d of %d", named, lost)
}

// What is written anew opens, has the same versions at the same revisions, and gives out no revision twice.
//
// SPEC: RUN-11
func TestInspectionIsWritten(t *testing.T) {
	im, m := filled(t, 300)
	logs := im.files(".log")
	broken := slices.Clone(im[logs[len(logs)-1]])
	broken[end(broken)/2] ^= 1
	newest := slices.Max(slices.Collect(maps.Keys(m.changes)))
	for _, name := range []string{"", logs[len(logs)-1]} {
		disk := im.mount(t, name, broken)
		in := inspect(t, disk)
		if in.Damaged() != (name != "") {
			t.Errorf("%q: %v", name, in.Findings)
		}
		if err := in.Write("new", filelog.Options{FS: disk}); err != nil {
			t.Fatal(err)
		}
		if err := in.Write("new", filelog.Options{FS: disk}); err == nil || !strings.Contains(err.Error(), "not empty") {
			t.Errorf("written twice: %v", err)
		}
		moved := vfs.NewMem()
		if _, err := vfs.Clone(disk, moved, "new", "data"); err != nil {
			t.Fatal(err)
		}
		again := inspect(t, moved)
		if len(again.Findings) > 0 {
			t.Errorf("of the new directory: %v", &again.Findings[0])
		}
		s := mustOpen(t, moved)
		if s.Revision() != in.Revision || s.Revision() < newest {
			t.Errorf("the new store is at %d, the old one was at %d", s.Revision(), in.Revision)
		}
		snapshot, err := s.Snapshot(0)
		if err != nil {
			t.Fatal(err)
		}
		if err := same(stateOf(snapshot), found(in)); err != nil {
			t.Error(err)
		}
		revision := s.Revision()
		if _, err := m.write(s, rand.New(rand.NewPCG(3, 3)), 1); err != nil || s.Revision() <= revision {
			t.Errorf("it takes no commits: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// inverting is an encryption that everybody can undo.
type inverting struct{}

func (inverting) Seal(context.Context, string) (*store.Seal, error) {
	return &store.Seal{ID: 1, Append: func(dst []byte, _ string, _ store.Key, plain []byte) []byte {
		return append(append(dst, '!'), invert(plain)...)
	}}, nil
}

func invert(b []byte) []byte {
	b = bytes.Clone(b)
	for i := range b {
		b[i] = ^b[i]
	}
	return b
}

func (inverting) Open(_ context.Context, _ string, _ store.Key, sealed []byte) ([]byte, uint32, error) {
	if len(sealed) == 0 || sealed[0] != '!' {
		return nil, 0, errors.New("it is not encrypted")
	}
	return invert(sealed[1:]), 1, nil
}

func (inverting) Current(string) (uint32, bool) { return 1, true }

// Encrypted versions are checked with their key; without it they are kept as they are.
//
// SPEC: RUN-11
func TestInspectEncrypted(t *testing.T) {
	mem := vfs.NewMem()
	o := small(mem)
	keys := inverting{}
	o.Sealing = keys
	l, err := filelog.Open("data", o)
	if err != nil {
		t.Fatal(err)
	}
	key := store.Key{Resource: "/secrets", Name: "d/a"}
	seal, err := keys.Seal(t.Context(), key.Resource)
	if err != nil {
		t.Fatal(err)
	}
	v := store.NewVersion(key, 2, []byte(`{"a":1}`), &store.Sidecar{})
	err = l.Append([]*store.Commit{{Revision: 2, Records: []*store.Record{{Key: key, Revision: 2, New: v}},
		Seals: []*store.Seal{seal}}})
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	for _, with := range []store.Sealing{nil, keys} {
		in, err := filelog.Inspect("data", filelog.Options{FS: mem, Sealing: with})
		if err != nil || len(in.Findings) > 0 || len(in.Versions) != 1 ||
			in.Versions[0].Sidecar.Undecrypted != (with == nil) {
			t.Errorf("with key %t: %+v, %v", with != nil, in, err)
			continue
		}
		dir := fmt.Sprint("new", with != nil)
		if err := in.Write(dir, filelog.Options{FS: mem, Sealing: with}); err != nil {
			t.Fatal(err)
		}
		again, err := filelog.Inspect(dir, filelog.Options{FS: mem, Sealing: keys})
		if err != nil || len(again.Versions) != 1 || string(again.Versions[0].Data()) != `{"a":1}` {
			t.Errorf("written with key %t: %+v, %v", with != nil, again, err)
		}
		plain, err := filelog.Inspect(dir, filelog.Options{FS: mem})
		if err != nil || !plain.Versions[0].Sidecar.Undecrypted {
			t.Errorf("written with key %t, it is not encrypted: %v", with != nil, err)
		}
	}
}

// What is no store is an error, and so is one that a process has open.
//
// SPEC: RUN-11
func TestInspectRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := filelog.Inspect(dir, filelog.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty directory: %v", err)
	}
	if _, err := filelog.Inspect(dir+"/none", filelog.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	l, err := filelog.Open(dir, filelog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filelog.Inspect(dir, filelog.Options{}); !errors.Is(err, filelog.ErrLocked) {
		t.Errorf("one that is open: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if in, err := filelog.Inspect(dir, filelog.Options{}); err != nil || len(in.Findings) > 0 {
		t.Errorf("one that was closed: %+v, %v", in, err)
	}
}
