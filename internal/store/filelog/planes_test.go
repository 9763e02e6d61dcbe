package filelog_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

// manyPlanes opens a store whose checkpoints are written when forced.
func manyPlanes(t testing.TB, fs vfs.FS) *store.Store {
	t.Helper()
	log, err := filelog.Open("data", filelog.Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Config{Log: log, Describe: storetest.Describe, PlaneResources: []string{"planes"},
		CompactBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func begin(t testing.TB, s *store.Store, id, origin string, changes ...store.Change) {
	t.Helper()
	k := store.Key{Resource: "planes", Name: id}
	if _, err := s.Commit(t.Context(), nil, []store.Change{{Key: k, Data: []byte(id),
		Sidecar: &store.Sidecar{UID: id}, Begin: &store.Begin{Plane: id, Origin: origin, Changes: changes}}}); err != nil {
		t.Fatal(err)
	}
}

// checkpointSize waits for a checkpoint after a revision, and returns its bytes.
func checkpointSize(t testing.TB, fs vfs.FS, after int64) int64 {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		names, err := fs.List("data")
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		for _, name := range slices.Backward(names) {
			if number, ok := strings.CutSuffix(name, ".base"); ok && number > fmt.Sprintf("%020d", after) {
				if info, err := fs.Stat("data/" + name); err == nil {
					return info.Size()
				}
			}
		}
		if time.Now().After(end) {
			t.Fatalf("there is no checkpoint after %d among %q", after, names)
		}
	}
}

// What planes have begun with is in a checkpoint once, and in memory once, also after a restart: a thousand planes with
// an object each take the room of a thousand objects.
//
// SPEC: STORE-7, BEY-10, BEY-11
func TestPlanesShareTheirOrigin(t *testing.T) {
	fs := vfs.NewMem()
	s := manyPlanes(t, fs)
	var objects []store.Change
	for i := range 300 {
		text := fmt.Sprintf("%d %s", i, strings.Repeat(fmt.Sprint(i, "-"), 200))
		objects = append(objects, store.Change{Key: store.Key{Resource: "roles", Name: fmt.Sprint(i)}, Data: []byte(text)})
	}
	begin(t, s, "template", "", objects...)
	const count = 1000
	for i := range count {
		begin(t, s, fmt.Sprint("plane-", i), "template")
		plane, err := s.Plane(fmt.Sprint("plane-", i))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plane.Commit(t.Context(), nil, []store.Change{{Key: store.Key{Resource: "pods", Name: "own"},
			Data: fmt.Append(nil, "own ", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	// Enough changes for another checkpoint, which has all planes.
	for i := range 200 {
		text := strings.Repeat("x", 4<<10)
		if _, err := s.Commit(t.Context(), nil, []store.Change{{Key: store.Key{Resource: "pods", Name: "p"},
			Data: fmt.Append(nil, text, i)}}); err != nil {
			t.Fatal(err)
		}
	}
	template := int64(0)
	for _, ch := range objects {
		template += int64(len(ch.Data))
	}
	if size := checkpointSize(t, fs, 2300); size > template+300*count {
		t.Errorf("%d planes with %d bytes in common take %d bytes in a checkpoint", count, template, size)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = nil
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := memory()
	s = manyPlanes(t, fs)
	if each := int64(memory()-before-uint64(template)) / count; each > 6<<10 {
		t.Errorf("after a restart a plane takes %d bytes", each)
	}
	for i := range count {
		plane, err := s.Plane(fmt.Sprint("plane-", i))
		if err != nil {
			t.Fatal(err)
		}
		own, _ := plane.Get(store.Key{Resource: "pods", Name: "own"})
		shared, _ := plane.Get(store.Key{Resource: "roles", Name: "7"})
		if own == nil || shared == nil || string(own.Data()) != fmt.Sprint("own ", i) || plane.Usage().Objects != 301 {
			t.Fatalf("plane %d has %v, %v and %d objects", i, own, shared, plane.Usage().Objects)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A plane whose controllers had nothing to do has that noted, through restarts, until something changes in it.
//
// SPEC: STORE-7
func TestRestIsRemembered(t *testing.T) {
	fs := vfs.NewMem()
	s := manyPlanes(t, fs)
	for _, id := range []string{"quiet", "busy"} {
		begin(t, s, id, "")
	}
	at := func(id string) *store.Store {
		plane, err := s.Plane(id)
		if err != nil {
			t.Fatal(err)
		}
		return plane
	}
	at("quiet").Rest(true)
	for i := range 40 {
		if _, err := at("busy").Commit(t.Context(), nil, []store.Change{{Key: store.Key{Resource: "pods", Name: "p"},
			Data: fmt.Append(nil, strings.Repeat("x", 4<<10), i)}}); err != nil {
			t.Fatal(err)
		}
	}
	checkpointSize(t, fs, 4)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = manyPlanes(t, fs)
	defer s.Close()
	for id, want := range map[string]bool{"quiet": true, "busy": false} {
		if u := at(id).Usage(); (u.Resting == u.Revision) != want {
			t.Errorf("after a restart %s rests since %d, and is at %d", id, u.Resting, u.Revision)
		}
	}
}

// What changes in a plane while another one begins with its past is undone there only if it need not be encrypted:
// otherwise it would be written in clear. What does not decrypt is no content for another plane.
//
// SPEC: STORE-7
func TestPastIsEncrypted(t *testing.T) {
	fs := vfs.NewMem()
	open := func(sealing store.Sealing) *store.Store {
		log, err := filelog.Open("data", filelog.Options{FS: fs, Sealing: sealing})
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(store.Config{Log: log, Describe: storetest.Describe, PlaneResources: []string{"planes"},
			Sealing: sealing})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open(inverting{})
	begin(t, s, "old", "")
	plane, err := s.Plane("old")
	if err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) {
		t.Helper()
		if _, err := plane.Commit(t.Context(), nil, []store.Change{{Key: store.Key{Resource: "/secrets", Name: name},
			Data: []byte(text)}}); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "the first secret")
	put("b", "the lasting secret")
	past := plane.Revision()
	put("a", "the second secret")
	fork := func(id string, change func()) error {
		t.Helper()
		_, changes, seen, err := plane.AsOf(t.Context(), past)
		if err != nil {
			t.Fatal(err)
		}
		change()
		_, err = s.Commit(t.Context(), nil, []store.Change{{Key: store.Key{Resource: "planes", Name: id}, Data: []byte(id),
			Sidecar: &store.Sidecar{UID: id}, Begin: &store.Begin{Plane: id, Origin: "old", Changes: changes, Seen: seen}}})
		return err
	}
	var conflict *store.ConflictError
	if err := fork("late", func() { put("b", "the late secret") }); !errors.As(err, &conflict) {
		t.Errorf("with a change meanwhile: %v", err)
	}
	if err := fork("new", func() {}); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		begun, err := s.Plane("new")
		if err != nil {
			t.Fatal(err)
		}
		v, found := begun.Get(store.Key{Resource: "/secrets", Name: "a"})
		if !found || string(v.Data()) != "the first secret" || v.Sidecar.SealedBy != 1 {
			t.Errorf("it begins with %v", v)
		}
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, b := range readImage(t, fs) {
		if strings.Contains(string(b), " secret") {
			t.Errorf("%s has a secret in clear", name)
		}
	}
	s = open(inverting{})
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(nil) // without the key
	defer s.Close()
	if plane, err = s.Plane("old"); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := plane.AsOf(t.Context(), past); err == nil {
		t.Error("what does not decrypt is content of another plane")
	}
}

// Two planes with one ID never begin, also if both are on their way to the log: a log with both would not be read.
//
// SPEC: STORE-7
func TestPlaneBeginsOnce(t *testing.T) {
	fs := vfs.NewMem()
	s := manyPlanes(t, fs)
	const each = 8
	for round := range 20 {
		id := fmt.Sprint("plane-", round)
		made := make(chan error, each)
		for n := range each {
			go func() {
				_, err := s.Commit(context.Background(), nil, []store.Change{{Key: store.Key{Resource: "planes",
					Name: fmt.Sprint(id, "-", n)}, Data: []byte(id), Sidecar: &store.Sidecar{UID: id},
					Begin: &store.Begin{Plane: id}}})
				made <- err
			}()
		}
		begun := 0
		for range each {
			if err := <-made; err == nil {
				begun++
			} else if !errors.Is(err, store.ErrPlane) {
				t.Error(err)
			}
		}
		if begun != 1 {
			t.Errorf("%s has begun %d times", id, begun)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := manyPlanes(t, fs).Close(); err != nil {
		t.Fatal(err)
	}
}
