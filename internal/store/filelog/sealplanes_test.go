package filelog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/store"
)

// sealedPlanes is a store with planes, whose Secrets are encrypted.
type sealedPlanes struct {
	*testing.T
	fs *vfs.MemFS
	*sealing
	*store.Store
}

// newSealedPlanes has three planes: a with a Secret, its fork b with one more, and c, of which nothing begins.
func newSealedPlanes(t *testing.T) *sealedPlanes {
	t.Helper()
	p := &sealedPlanes{T: t, fs: vfs.NewMem(),
		sealing: &sealing{keys: map[string]bool{"x": true, "y": true}, now: "x", only: "/secrets"}}
	p.Store = p.sealing.open(t, p.fs)
	p.begin("a", "")
	p.put("a", "both", "{a mark of a}")
	p.begin("b", "a")
	p.put("b", "own", "{a mark of b}")
	p.begin("c", "")
	p.put("c", "both", "{a mark of c}")
	return p
}

func (p *sealedPlanes) reopen() {
	p.Helper()
	if err := p.Close(); err != nil {
		p.Fatal(err)
	}
	p.Store = p.sealing.open(p.T, p.fs)
}

func (p *sealedPlanes) commit(s *store.Store, ch store.Change) {
	p.Helper()
	if _, err := s.Commit(p.Context(), nil, []store.Change{ch}); err != nil {
		p.Fatal(err)
	}
}

func (p *sealedPlanes) begin(id, origin string) {
	p.Helper()
	p.commit(p.Store, store.Change{Key: store.Key{Resource: "/planes", Name: id}, Data: []byte("{}"),
		Sidecar: &store.Sidecar{UID: id}, Begin: &store.Begin{Plane: id, Origin: origin}})
}

func (p *sealedPlanes) end(id string) {
	p.Helper()
	p.commit(p.Store, store.Change{Key: store.Key{Resource: "/planes", Name: id}})
}

func (p *sealedPlanes) plane(id string) *store.Store {
	p.Helper()
	s, err := p.Plane(id)
	if err != nil {
		p.Fatal(id, err)
	}
	return s
}

func secret(name string) store.Key { return store.Key{Resource: "/secrets", Name: name} }

func (p *sealedPlanes) put(id, name, data string) {
	p.Helper()
	p.commit(p.plane(id), store.Change{Key: secret(name), Data: []byte(data)})
}

// checkpoint waits for a checkpoint of all that there is, for which it has the first plane grow.
func (p *sealedPlanes) checkpoint() {
	p.Helper()
	before := files(p.T, p.fs, ".base")
	for i := range 40 {
		p.commit(p.Store, store.Change{Key: store.Key{Resource: "/pods", Name: "filler"},
			Data: fmt.Append(nil, i, strings.Repeat("filler ", 100))})
	}
	waitFor(func() bool { return !bytes.Equal(files(p.T, p.fs, ".base"), before) })
}

// has checks the Secrets of a plane. by is the key that has encrypted them; 0: they do not decrypt.
func (p *sealedPlanes) has(id string, by uint32, want map[string]string) {
	p.Helper()
	s := p.plane(id)
	for name, data := range want {
		v, found := s.Get(secret(name))
		switch {
		case !found:
			p.Errorf("%s: there is no %s", id, name)
		case by == 0 && (!v.Sidecar.Undecrypted || !errors.Is(v.Sidecar.Unreadable, errNoKey)):
			p.Errorf("%s: %s is %q without a key: %+v", id, name, v.Data(), v.Sidecar)
		case by != 0 && (string(v.Data()) != data || v.Sidecar.SealedBy != by || v.Sidecar.Undecrypted):
			p.Errorf("%s: %s is %q, want %q: %+v", id, name, v.Data(), data, v.Sidecar)
		}
	}
}

// A new key encrypts the versions of all planes, also where those of the first plane are not encrypted, and of planes
// that nobody has opened; forks have what they share with a plane that has ended.
//
// SPEC: STORE-5, STORE-7
func TestResealPlanes(t *testing.T) {
	p := newSealedPlanes(t)
	for _, end := range []bool{false, true} {
		if end {
			p.end("a")
		} else {
			p.has("a", 'x', map[string]string{"both": "{a mark of a}"})
		}
		p.has("b", 'x', map[string]string{"both": "{a mark of a}", "own": "{a mark of b}"})
		p.has("c", 'x', map[string]string{"both": "{a mark of c}"})
		p.reopen()
	}
	p.begin("d", "b") // so that a checkpoint has an origin
	p.now = "y"
	p.reopen()
	p.Reseal()
	waitFor(func() bool { return bytes.Contains(files(t, p.fs, ".base"), inverted([]byte("y|"))) })
	base := files(t, p.fs, ".base")
	if bytes.Contains(base, inverted([]byte("x|"))) || bytes.Contains(base, []byte("mark")) {
		t.Error("a checkpoint has a version in clear, or encrypted with the old key")
	}
	delete(p.keys, "x")
	p.reopen()
	for _, id := range []string{"b", "d"} {
		p.has(id, 'y', map[string]string{"both": "{a mark of a}", "own": "{a mark of b}"})
	}
	p.has("c", 'y', map[string]string{"both": "{a mark of c}"})
	if p.anyBase(func() { p.Reseal() }) {
		t.Error("a checkpoint was written, where no version is stale")
	}
}

// anyBase says whether there is another checkpoint after do. It waits by one that is due in any case.
func (p *sealedPlanes) anyBase(do func()) bool {
	p.Helper()
	before := p.Revision()
	do()
	p.checkpoint()
	for _, name := range p.names(".base") {
		if name == checkpointName(before) {
			return true
		}
	}
	return false
}

func (p *sealedPlanes) names(kind string) (found []string) {
	p.Helper()
	names, err := p.fs.List("data")
	if err != nil {
		p.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, kind) {
			found = append(found, name)
		}
	}
	return found
}

// Versions that do not decrypt are kept where they are and in what begins with it, through checkpoints and the end of
// the plane that has written them, and are readable in all planes when the key is back, also in one that takes no
// writes.
//
// SPEC: STORE-5, STORE-7
func TestRecoverPlanes(t *testing.T) {
	p := newSealedPlanes(t)
	delete(p.keys, "x")
	p.now = "y"
	p.reopen()
	p.begin("d", "b")
	p.begin("e", "d")
	all := map[string]string{"both": "{a mark of a}", "own": "{a mark of b}"}
	for _, step := range []func(){func() {}, p.checkpoint, p.reopen, func() { p.end("a"); p.checkpoint() }, p.reopen,
		func() { p.end("d"); p.checkpoint() }, p.reopen} {
		step()
		p.has("b", 0, all)
		p.has("e", 0, all)
		p.has("c", 0, map[string]string{"both": "{a mark of c}"})
	}
	if err := p.plane("e").SetBounds(store.Bounds{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	if n, left, err := p.Recover(t.Context()); n != 0 || left != 5 || err != nil {
		t.Errorf("without the key %d are recovered, %d left: %v", n, left, err)
	}
	p.keys["x"] = true
	if n, left, err := p.Recover(t.Context()); n != 5 || left != 0 || err != nil {
		t.Errorf("%d are recovered, %d left: %v", n, left, err)
	}
	for range 2 {
		p.has("b", 'y', all)
		p.has("e", 'y', all)
		p.has("c", 'y', map[string]string{"both": "{a mark of c}"})
		p.checkpoint()
		p.reopen()
	}
}

// A plane that begins with versions that do not decrypt is one of which the first plane hears.
//
// SPEC: STORE-5
func TestUndecryptedFork(t *testing.T) {
	p := newSealedPlanes(t)
	p.keys = nil
	p.reopen()
	select {
	case <-p.Undecrypted():
		t.Fatal("the first plane has nothing that is encrypted")
	default:
	}
	p.begin("d", "b")
	select {
	case <-p.Undecrypted():
	default:
		t.Error("the first plane has not heard of it")
	}
}

// Encrypted bytes do not decrypt in the place of another plane's object of the same key, in a commit, in the beginning
// of a plane, and in a checkpoint.
//
// SPEC: STORE-5, STORE-7
func TestSwappedPlanes(t *testing.T) {
	s := &sealing{keys: map[string]bool{"x": true}, now: "x"}
	k := secret("ns/a")
	seals := []*store.Seal{s.seal(t, k)}
	record := func() []*store.Record {
		return []*store.Record{{Key: k, Revision: 9, Old: version("{the old mark}", 5, at0),
			New: version("{the new mark}", 9, at0)}}
	}
	first := func() *store.Record {
		return &store.Record{Key: k, Revision: 9, New: version("{the new mark}", 9, at0)}
	}
	for name, c := range map[string]*store.Commit{
		"the first plane": {Revision: 9, Seals: seals, Records: record()},
		"a plane":         {Revision: 9, Plane: "uid-1", Seals: seals, Records: record()},
		"a beginning": {Revision: 9, Begins: &store.Beginning{Plane: "uid-1", Seals: seals,
			Records: []*store.Record{first()}}},
	} {
		b := appendCommit(nil, c)
		read := func(b []byte) *store.Record {
			p := parser{sealing: s}
			have, err := p.commitOf(b)
			if err != nil {
				t.Fatal(name, err)
			}
			if have.Begins != nil {
				return have.Begins.Records[0]
			}
			return have.Records[0]
		}
		if r := read(b); r.New.Sidecar.Undecrypted || r.Old != nil && r.Old.Sidecar.Undecrypted {
			t.Errorf("%s: %+v", name, r.New.Sidecar)
		}
		moved := bytes.Replace(b, []byte("uid-1"), []byte("uid-2"), 1)
		if c.Plane == "" && c.Begins == nil { // the same, as a commit of a plane
			other := *c
			other.Plane = "uid-2"
			other.Seals = []*store.Seal{{ID: 1, Append: func(dst []byte, _ string, k store.Key, plain []byte) []byte {
				return seals[0].Append(dst, "", k, plain)
			}}}
			moved = appendCommit(nil, &other)
		}
		r := read(moved)
		if !r.New.Sidecar.Undecrypted || r.Old != nil && !r.Old.Sidecar.Undecrypted {
			t.Errorf("%s: in another plane it decrypts: %q", name, r.New.Data())
		}
	}
	layers := []store.Layer{{}, {Plane: "uid-1"}, {Plane: "uid-2"}, {Revision: 7}, {Revision: 8}}
	for i, in := range layers {
		for j, to := range layers {
			scope, at := in.Scope(), to.Scope()
			if i == 0 {
				scope = ""
			}
			if j == 0 {
				at = ""
			}
			p := parser{sealing: s, scope: at}
			_, err := p.versions(append([]byte{payloadSealedVersions, 1}, appendVersion(nil, scope, version("abc", 5, at0), true,
				seals[0])...), func(v *store.Version) bool {
				if v.Sidecar.Undecrypted != (i != j) {
					t.Errorf("a version of %q in %q: %+v", scope, at, v.Sidecar)
				}
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
