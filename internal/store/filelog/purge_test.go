package filelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
)

// filesWith are the files that have a text.
func filesWith(t *testing.T, fs vfs.FS, text string) (found []string) {
	t.Helper()
	names, err := fs.List("data")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := fs.Open("data/" + name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, info.Size())
		if _, err := f.ReadAt(b, 0); err != nil && len(b) > 0 {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(text)) {
			found = append(found, name)
		}
	}
	return found
}

// A purge is that of one plane. What planes have begun with is in a checkpoint as long as one of them has it, and not
// because they once had it.
//
// SPEC: BEY-4, STORE-7
func TestPurgeInPlanes(t *testing.T) {
	const marker = "cGFzc3dvcmQtb2YtYW4tb2JqZWN0"
	k := store.Key{Resource: "roles", Name: "r"}
	for _, inherited := range []bool{true, false} {
		fs := vfs.NewMem()
		s := manyPlanes(t, fs)
		plane := func(id string) *store.Store {
			p, err := s.Plane(id)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		write := func(id, text string) {
			if _, err := plane(id).Commit(t.Context(), nil, []store.Change{{Key: k, Data: []byte(text)}}); err != nil {
				t.Fatal(err)
			}
		}
		var objects []store.Change
		for i := range 20 {
			objects = append(objects, store.Change{Key: store.Key{Resource: "roles", Name: fmt.Sprint(i)},
				Data: []byte(strings.Repeat("of the template ", 20))})
		}
		begin(t, s, "template", "", append(objects, store.Change{Key: k, Data: []byte(marker)})...)
		begin(t, s, "a", "template")
		write("a", "that of a")
		begin(t, s, "b", "template")
		begin(t, s, "c", "a")
		write("c", "that of c")
		write("template", "that of the template")
		if !inherited {
			write("b", "that of b")
		}
		if found := filesWith(t, fs, marker); len(found) == 0 {
			t.Error("before a purge no file has it")
		}
		for range 2 {
			done, err := plane("template").Purge(t.Context(), k, false)
			if err != nil || done.Live == nil || done.Until == 0 {
				t.Fatalf("%+v, %v", done, err)
			}
			found := filesWith(t, fs, marker)
			if inherited && (len(found) != 1 || !strings.HasSuffix(found[0], ".base")) || !inherited && len(found) > 0 {
				t.Errorf("a plane has it: %t; files that have it: %q", inherited, found)
			}
		}
		for range 2 {
			want := map[string]string{"template": "that of the template", "a": "that of a", "b": "that of b", "c": "that of c"}
			if inherited {
				want["b"] = marker
			}
			for id, text := range want {
				if v, _ := plane(id).Get(k); v == nil || string(v.Data()) != text {
					t.Errorf("%s has %v, should have %q", id, v, text)
				}
				if n := plane(id).Usage().Objects; n != 21 {
					t.Errorf("%s has %d objects", id, n)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = manyPlanes(t, fs)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// shown shows versions as they are.
type shown struct{}

func (shown) Present(_ store.Key, v *store.Version, _ string) ([]byte, *store.Sidecar, error) {
	return v.Data(), &store.Sidecar{}, nil
}

// What lists and watches of all planes have of the object's past goes, too.
//
// SPEC: BEY-4, BEY-11
func TestPurgeAcrossPlanes(t *testing.T) {
	s := manyPlanes(t, vfs.NewMem())
	defer s.Close()
	k := store.Key{Resource: "roles", Name: "r"}
	across := func(resource string) *store.Across {
		a, err := s.Across(store.AcrossConfig{Resource: resource, Planes: "planes",
			Presenter: func(*store.Version) store.Presenter { return shown{} }})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	roles, others := across("roles"), across("pods")
	defer roles.Close()
	defer others.Close()
	begin(t, s, "a", "")
	plane, err := s.Plane("a")
	if err != nil {
		t.Fatal(err)
	}
	from := s.Revision()
	for _, text := range []string{"a password", "none"} {
		if _, err := plane.Commit(t.Context(), nil, []store.Change{{Key: k, Data: []byte(text)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := roles.WaitFor(t.Context(), plane.Revision()); err != nil {
		t.Fatal(err)
	}
	if _, err := plane.Purge(t.Context(), k, false); err != nil {
		t.Fatal(err)
	}
	if c, err := roles.Watch(t.Context(), "roles", "", from); !errors.Is(err, store.ErrCompacted) || !roles.Broken() {
		t.Errorf("a watch of all planes from before: %v, %v", c, err)
	}
	if others.Broken() {
		t.Error("a list of others has to begin again")
	}
	again := across("roles")
	defer again.Close()
	if c, err := again.Watch(t.Context(), "roles", "", from); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("another watch of all planes from before: %v, %v", c, err)
	}
}

// Writers go on while an object is purged, and a watch that has seen everything goes on, too; one that has not ends.
//
// SPEC: BEY-4, LIST-6
func TestPurgeBesideWriters(t *testing.T) {
	fs := vfs.NewMem()
	log, err := filelog.Open("data", filelog.Options{FS: fs, SegmentBytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Config{Log: log, Describe: describeNothing, CompactBytes: 8 << 10,
		MemoryHistoryBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	k := store.Key{Resource: "pods", Name: "p"}
	put := func(k store.Key, text string) error {
		_, err := s.Commit(t.Context(), nil, []store.Change{{Key: k, Data: []byte(text)}})
		return err
	}
	for i := range 5 {
		if err := put(k, fmt.Sprint("password ", i)); err != nil {
			t.Fatal(err)
		}
	}
	late, err := s.Watch(t.Context(), "pods", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := s.Watch(t.Context(), "pods", "", s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	begun, written, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	end := make(chan struct{})
	count := 0
	go func() {
		defer close(written)
		for ; ; count++ {
			if err := put(store.Key{Resource: "pods", Name: fmt.Sprint("q", count%7)}, strings.Repeat("text ", 20)); err != nil {
				failed <- err
				return
			}
			if count == 20 {
				close(begun)
			}
			select {
			case <-end:
				return
			default:
			}
		}
	}()
	select {
	case <-begun:
	case err := <-failed:
		t.Fatal(err)
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is written")
	}
	for range 20 {
		if _, err := s.Purge(t.Context(), k, false); err != nil {
			t.Fatal(err)
		}
	}
	close(end)
	<-written
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	for i := range 4 {
		if found := filesWith(t, fs, fmt.Sprint("password ", i)); len(found) > 0 {
			t.Errorf("%q have the password %d", found, i)
		}
	}
	if _, err := late.Next(t.Context()); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("a watch that has not seen what was purged: %v", err)
	}
	if _, err := seen.Poll(); err != nil && !errors.Is(err, store.ErrCompacted) { // it has not read what was written since
		t.Error(err)
	}
	up, err := s.Watch(t.Context(), "pods", "", s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Purge(t.Context(), k, false); err != nil {
		t.Fatal(err)
	}
	if err := put(k, "the next one"); err != nil {
		t.Fatal(err)
	}
	if records, err := up.Poll(); err != nil || len(records) != 1 || string(records[0].New.Data()) != "the next one" {
		t.Errorf("a watch that has seen everything: %v, %v", records, err)
	}
}

func describeNothing(store.Key, []byte) *store.Sidecar { return &store.Sidecar{} }
