package filelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/store"
	"plinth/internal/store/storetest"
)

// sealing encrypts the versions of all resources, for tests: a value is the name of the key, the scope and the key in
// the store, and the plain bytes, each with the bits of a byte inverted.
type sealing struct {
	keys map[string]bool // those that decrypt
	now  string          // the one that encrypts; "": there is none, which is an error; "clear": nothing is encrypted
	only string          // the resource that is encrypted; "": all are
}

var errNoKey = errors.New("no key")

func (s *sealing) Seal(_ context.Context, resource string) (*store.Seal, error) {
	if s.now == "clear" || s.only != "" && s.only != resource {
		return nil, nil
	}
	if s.now == "" {
		return nil, errNoKey
	}
	key := s.now
	return &store.Seal{ID: uint32(key[0]), Append: func(dst []byte, scope string, k store.Key, plain []byte) []byte {
		return append(dst, inverted([]byte(key+"|"+scope+k.String()+"|"+string(plain)))...)
	}}, nil
}

func inverted(b []byte) []byte {
	b = bytes.Clone(b)
	for i := range b {
		b[i] = ^b[i]
	}
	return b
}

func (s *sealing) Open(_ context.Context, scope string, k store.Key, sealed []byte) ([]byte, uint32, error) {
	parts := bytes.SplitN(inverted(sealed), []byte("|"), 3)
	if len(parts) < 3 || !s.keys[string(parts[0])] || string(parts[1]) != scope+k.String() {
		return nil, 0, fmt.Errorf("%w for %s", errNoKey, k)
	}
	return parts[2], uint32(parts[0][0]), nil
}

func (s *sealing) Current(resource string) (uint32, bool) {
	switch {
	case s.now == "clear" || s.only != "" && s.only != resource:
		return 0, true
	case s.now == "":
		return 0, false
	}
	return uint32(s.now[0]), true
}

func (s *sealing) seal(t *testing.T, k store.Key) *store.Seal {
	t.Helper()
	seal, err := s.Seal(t.Context(), k.Resource)
	if err != nil {
		t.Fatal(err)
	}
	return seal
}

// at0 is no expiry.
var at0 time.Time

// waitFor waits for what a goroutine of the store does.
func waitFor(holds func() bool) {
	for !holds() {
		time.Sleep(time.Millisecond)
	}
}

// undecrypted is a version that did not decrypt.
func undecrypted(v *store.Version) *store.Version {
	v.Sidecar.Undecrypted, v.Sidecar.Unreadable = true, errNoKey
	return v
}

// An encrypted commit reads back as it was, and has no bytes of its versions.
//
// SPEC: STORE-5
func TestSealedPayload(t *testing.T) {
	k := store.Key{Resource: "/secrets", Name: "ns/a"}
	const mark = "{a longer mark}"
	s := &sealing{keys: map[string]bool{"x": true}, now: "x"}
	lost := (&sealing{now: "y"}).seal(t, k).Append(nil, "", k, []byte(mark))
	for name, r := range map[string]*store.Record{
		"created":       {New: version(mark, 9, at0)},
		"changed":       {Old: version("{a longer MARK}", 5, at0), New: version(mark, 9, at0)},
		"the same":      {Old: version(mark, 5, at0), New: formed(3, version(mark, 9, at0))},
		"deleted":       {Old: formed(8, version(mark, 5, at0))},
		"was not read":  {Old: undecrypted(version(string(lost), 5, at0))},
		"is read again": {Old: undecrypted(version(string(lost), 5, at0)), New: version(mark, 9, at0)},
		"nothing":       {},
	} {
		r.Key, r.Revision = k, 9
		other := &store.Record{Key: store.Key{Resource: "/pods", Name: "p"}, Revision: 10, New: version("in clear", 10, at0)}
		c := &store.Commit{Revision: 10, Records: []*store.Record{r, other}, Seals: []*store.Seal{s.seal(t, k), nil}}
		b := appendCommit(nil, c)
		if b[0] != payloadCommit || b[1] != commitSealed ||
			bytes.Contains(b, []byte("mark")) || bytes.Contains(b, []byte("MARK")) ||
			!bytes.Contains(b, []byte("in clear")) {
			t.Errorf("%s: %q", name, b)
		}
		p := parser{sealing: s}
		have, err := p.commitOf(b)
		if err != nil {
			t.Fatal(name, err)
		}
		got := have.Records[0]
		if r.New != nil && (string(got.New.Data()) != mark || got.New.Sidecar.SealedBy != 'x' ||
			got.New.Sidecar.Undecrypted || got.New.Sidecar.Form != r.New.Sidecar.Form) {
			t.Errorf("%s: %+v", name, got.New)
		}
		if r.Old != nil && (!bytes.Equal(got.Old.Data(), r.Old.Data()) || got.Old.Revision != 5 ||
			got.Old.Sidecar.Undecrypted != r.Old.Sidecar.Undecrypted || got.Old.Sidecar.Form != r.Old.Sidecar.Form) {
			t.Errorf("%s: %+v", name, got.Old)
		}
		if string(have.Records[1].New.Data()) != "in clear" || have.Records[1].New.Sidecar.SealedBy != 0 {
			t.Errorf("%s: %+v", name, have.Records[1].New)
		}

		// Without the key nothing of it is read, and without any the error is that of the reference.
		p = parser{}
		if have, err = p.commitOf(b); err != nil {
			t.Fatal(name, err)
		}
		if got = have.Records[0]; r.New != nil && (got.New.Sidecar.Unreadable != errSealed || got.New.Revision != 9 ||
			bytes.Contains(got.New.Data(), []byte("mark"))) || r.Old != nil && (!got.Old.Sidecar.Undecrypted ||
			got.Old.Revision != 5) {
			if name != "the same" { // its old version has no bytes of its own
				t.Errorf("%s: without a key %+v", name, got)
			}
		}
	}
}

// Without a key a deletion is written all the same, and does not have the version.
//
// SPEC: STORE-5
func TestWithheldVersion(t *testing.T) {
	k := store.Key{Resource: "/secrets", Name: "ns/a"}
	c := &store.Commit{Revision: 9, Seals: []*store.Seal{{Withhold: true}},
		Records: []*store.Record{{Key: k, Revision: 9, Old: version("mark", 5, at0)}}}
	b := appendCommit(nil, c)
	if bytes.Contains(b, []byte("mark")) {
		t.Errorf("%q", b)
	}
	p := parser{sealing: &sealing{}}
	have, err := p.commitOf(b)
	if err != nil {
		t.Fatal(err)
	}
	if r := have.Records[0]; r.New != nil || r.Old.Revision != 5 || r.Old.Sidecar.Unreadable != errWithheld {
		t.Errorf("%+v", r)
	}
}

// open opens a store with a sealing, in a directory of a file system.
func (s *sealing) open(t *testing.T, fs vfs.FS) *store.Store {
	t.Helper()
	log, err := Open("data", Options{FS: fs, SegmentBytes: 4 << 10, Sealing: s})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := store.Open(store.Config{Log: log, Sealing: s, CompactBytes: 8 << 10, HistoryBytes: 1 << 10,
		PlaneResources: []string{"/planes"},
		Describe: func(k store.Key, _ []byte) *store.Sidecar {
			if k.Resource == "/planes" {
				return &store.Sidecar{UID: k.Name}
			}
			return &store.Sidecar{}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	return opened
}

// files are all bytes in the files of a kind. A checkpoint may replace files meanwhile; then all are read again, as the
// new ones are not in the list.
func files(t *testing.T, fs vfs.FS, kind string) []byte {
	t.Helper()
	for range 100 {
		all, err := readAll(fs, kind)
		if err == nil {
			return all
		}
		if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	t.Fatal("files are replaced all the time")
	return nil
}

func readAll(fs vfs.FS, kind string) (all []byte, err error) {
	names, err := fs.List("data")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, kind) {
			continue
		}
		f, err := fs.Open(fs.PathJoin("data", name))
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		all = append(all, b...)
	}
	return all, nil
}

// A checkpoint is encrypted with the key of its time, so that earlier keys can be removed; what cannot be decrypted
// stays as it is, and a key that is missing now prevents the checkpoint, and nothing else.
//
// SPEC: STORE-5
func TestSealedCheckpoint(t *testing.T) {
	fs := vfs.NewMem()
	s := &sealing{keys: map[string]bool{"x": true, "y": true, "z": true}, now: "x"}
	st := s.open(t, fs)
	put := func(name, data string) error {
		pre := store.Precondition{Key: store.Key{Resource: "/secrets", Name: name}}
		if live, ok := st.Get(pre.Key); ok {
			pre.Revision = live.Revision
		}
		change := store.Change{Key: pre.Key}
		if data != "" {
			change.Data = []byte(data)
		}
		_, err := st.Commit(t.Context(), []store.Precondition{pre}, []store.Change{change})
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	grow := func() { // writes enough for a checkpoint
		for i := range 20 {
			must(put("filler", fmt.Sprintf("{%d %s}", i, strings.Repeat("mark ", 100))))
		}
	}
	stale := func(name string) bool {
		v, _ := st.Get(store.Key{Resource: "/secrets", Name: name})
		return st.Stale(v)
	}
	must(put("a", "{the first mark}"))
	must(put("b", "{the second mark}"))
	if stale("a") {
		t.Error("stale at once")
	}
	s.now = "y"
	if !stale("a") {
		t.Error("not stale, with another key")
	}
	must(put("b", "{the third mark}"))
	grow()
	waitFor(func() bool { return len(files(t, fs, ".base")) > 0 })
	must(st.Close())
	if bytes.Contains(files(t, fs, ""), []byte("mark")) || bytes.Contains(files(t, fs, ".base"), inverted([]byte("x|"))) {
		t.Error("a secret is on the disk, or the old key in the checkpoint")
	}

	// Without y, of which there is a checkpoint, and with a third key.
	s.now, s.keys["y"] = "z", false
	st = s.open(t, fs)
	v, _ := st.Get(store.Key{Resource: "/secrets", Name: "a"})
	if !v.Sidecar.Undecrypted || !errors.Is(v.Sidecar.Unreadable, errNoKey) {
		t.Fatalf("%+v", v.Sidecar)
	}
	// The filler cannot be read either; it is replaced.
	must(put("filler", ""))
	before := files(t, fs, ".base")
	grow()
	waitFor(func() bool { return !bytes.Equal(files(t, fs, ".base"), before) })
	must(st.Close())

	// The key is back: what the checkpoint has kept can be read.
	s.keys["y"] = true
	st = s.open(t, fs)
	for name, want := range map[string]string{"a": "{the first mark}", "b": "{the third mark}"} {
		v, _ := st.Get(store.Key{Resource: "/secrets", Name: name})
		if string(v.Data()) != want || v.Sidecar.SealedBy != 'y' {
			t.Errorf("%s is %q: %+v", name, v.Data(), v.Sidecar)
		}
	}

	// No key to write with: writes fail, deletions do not, and other resources do not.
	s.now = ""
	var failed *store.SealError
	if err := put("a", "{}"); !errors.As(err, &failed) || !errors.Is(err, errNoKey) {
		t.Errorf("a write without a key: %v", err)
	}
	if !stale("a") {
		t.Error("not stale, without a key")
	}
	must(put("a", ""))
	if err := st.Healthy(); err != nil {
		t.Error(err)
	}
	s.now = "z"
	must(put("a", "{}"))
	must(st.Close())
}

// Versions that could not be decrypted are written again when they can be.
//
// SPEC: STORE-5
func TestRecover(t *testing.T) {
	fs := vfs.NewMem()
	s := &sealing{keys: map[string]bool{"x": true}, now: "x"}
	st := s.open(t, fs)
	var pre []store.Precondition
	var changes []store.Change
	for i := range 200 {
		k := store.Key{Resource: "/secrets", Name: fmt.Sprintf("%03d", i)}
		pre, changes = append(pre, store.Absent(k)), append(changes, store.Change{Key: k, Data: []byte("{}")})
	}
	if _, err := st.Commit(t.Context(), pre, changes); err != nil {
		t.Fatal(err)
	}
	st.Close()

	s.keys = nil
	st = s.open(t, fs)
	if n, left, err := st.Recover(t.Context()); n != 0 || left != 200 || err != nil {
		t.Errorf("%d are recovered, %d left: %v", n, left, err)
	}
	// Two are removed before the key is back.
	for _, k := range []store.Key{changes[3].Key, changes[150].Key} {
		v, _ := st.Get(k)
		if _, err := st.Commit(t.Context(), []store.Precondition{store.At(v)}, []store.Change{{Key: k}}); err != nil {
			t.Fatal(err)
		}
	}
	s.keys = map[string]bool{"x": true}
	if n, left, err := st.Recover(t.Context()); n != 198 || left != 0 || err != nil {
		t.Errorf("%d are recovered, %d left: %v", n, left, err)
	}
	before := st.Revision()
	if n, left, err := st.Recover(t.Context()); n != 0 || left != 0 || err != nil || st.Revision() != before {
		t.Errorf("%d are recovered, %d left: %v", n, left, err)
	}
	st.Close()
	st = s.open(t, fs)
	sn, err := st.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	sn.Ascend("/secrets", "", "", func(v *store.Version) bool {
		if found++; v.Sidecar.Undecrypted || string(v.Data()) != "{}" {
			t.Errorf("%s is %q", v.Key, v.Data())
		}
		return true
	})
	if found != 198 {
		t.Errorf("%d are left", found)
	}
}

// An encrypted store is a store.
//
// SPEC: STORE-5
func TestSealedStore(t *testing.T) {
	s := &sealing{keys: map[string]bool{"x": true}, now: "x"}
	in := func(t testing.TB) func(store.Config) (*store.Store, error) {
		dir := t.TempDir()
		return func(c store.Config) (*store.Store, error) {
			log, err := Open(dir, Options{SegmentBytes: 8 << 10, Sealing: s})
			if err != nil {
				return nil, err
			}
			c.Log, c.Sealing = log, s
			return store.Open(c)
		}
	}
	storetest.Run(t, storetest.Implementation{Durable: true, New: in})
}

// Any payload is read as values or as an error, with keys and without.
func FuzzSealedPayload(f *testing.F) {
	k := store.Key{Resource: "/secrets", Name: "ns/a"}
	s := &sealing{keys: map[string]bool{"x": true}, now: "x"}
	seal, err := s.Seal(f.Context(), k.Resource)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(appendCommit(nil, &store.Commit{Revision: 9, Time: 1, Seals: []*store.Seal{seal}, Records: []*store.Record{{
		Key: k, Old: version("abc", 5, at0), New: version("abd", 9, at0)}}}))
	f.Add(append([]byte{payloadSealedVersions, 1}, appendVersion(nil, "", version("abc", 5, at0), true, seal)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, p := range []parser{{}, {sealing: s}} {
			if c, err := p.commitOf(b); err == nil {
				for _, r := range c.Records {
					for _, v := range []*store.Version{r.Old, r.New} {
						if v != nil && v.Sidecar.Undecrypted != (v.Sidecar.Unreadable != nil) {
							t.Errorf("%+v", v.Sidecar)
						}
					}
				}
			}
			_, _ = p.versions(b, func(*store.Version) bool { return true })
		}
	})
}
