package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
)

// What is restored as of each revision is what the planes had at that revision, and so as of each time. Revisions
// before the checkpoint and after the backup are refused.
//
// SPEC: STORE-6
func TestRestoreAtEachRevision(t *testing.T) {
	s := serve(t, 1)
	var archive []byte
	var d *Document
	// Until a checkpoint has some commits after it, and planes.
	for n := 0; ; n++ {
		s.write(t)
		if n < 100 {
			continue
		}
		archive = s.archive(t, Document{})
		var err error
		d, err = Read(bytes.NewReader(archive), func(*Document, string, int64, io.Reader) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if d.Checkpoint > 0 && d.Revision-d.Checkpoint > 40 {
			break
		}
	}
	planes := 0
	for revision := d.Checkpoint - 2; revision <= d.Revision+2; revision++ {
		dir := filepath.Join(t.TempDir(), "new")
		r, err := restore(archive, Restoring{Dir: dir, At: Moment{Revision: revision}})
		if revision < d.Checkpoint || revision > d.Revision {
			if err == nil || !strings.Contains(err.Error(), "there is no state of revision") || len(tree(t, dir)) > 0 {
				t.Errorf("at %d, of %d to %d: %v", revision, d.Checkpoint, d.Revision, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("at %d: %v", revision, err)
		}
		want := s.state(revision)
		planes += len(want) - 1
		restored, _ := openStore(t, filepath.Join(dir, "store"))
		if err := same(content(t, restored), want); err != nil {
			t.Errorf("at %d: %v", revision, err)
		}
		if restored.Revision() != r.Next || r.Next < d.Revision+DefaultBump {
			t.Errorf("at %d: the store is at %d, said %d", revision, restored.Revision(), r.Next)
		}
		restored.Close()
	}
	if planes < 50 {
		t.Errorf("only %d planes were compared", planes)
	}
	for i, e := range s.events {
		if e.first <= d.Checkpoint+1 {
			continue
		}
		dir := filepath.Join(t.TempDir(), "new")
		r, err := restore(archive, Restoring{Dir: dir, At: Moment{Time: e.before}})
		if err != nil || r.At.Revision != s.events[i-1].last {
			t.Errorf("at the time before %d: %+v, %v", e.first, r, err)
		}
	}
	for _, at := range []time.Time{s.events[0].before, d.Time.Add(time.Second)} {
		if _, err := restore(archive, Restoring{Dir: filepath.Join(t.TempDir(), "new"), At: Moment{Time: at}}); err == nil ||
			!strings.Contains(err.Error(), "there is no state of 2") {
			t.Errorf("at %s: %v", at, err)
		}
	}
}

// Whoever knows a revision of the lost server gets ErrCompacted, in each plane, and no revision is given out twice,
// also if two servers are restored from one backup.
//
// SPEC: STORE-6
func TestRestoredGoesOnAbove(t *testing.T) {
	s := serve(t, 2)
	for range 150 {
		s.write(t)
	}
	archive := s.archive(t, Document{})
	for range 30 { // the commits that are lost
		s.write(t)
	}
	lost := s.Revision()
	now := time.Now()
	dir := filepath.Join(t.TempDir(), "new")
	r := mustRestore(t, archive, Restoring{Dir: dir, Now: now})
	restored, _ := openStore(t, filepath.Join(dir, "store"))
	defer restored.Close()
	planes := append(slices.Collect(restored.Planes()), "")
	if len(planes) < 3 {
		t.Fatalf("only %d planes", len(planes))
	}
	for _, id := range planes {
		of, err := restored.Plane(id)
		if err != nil {
			t.Fatal(err)
		}
		for _, revision := range []int64{2, r.Revision - 1, r.Revision, lost, r.Next - 1} {
			if _, err := of.Watch(t.Context(), "/pods", "", revision); !errors.Is(err, store.ErrCompacted) {
				t.Errorf("plane %q: a watch from %d, of %d: %v", id, revision, r.Next, err)
			}
			if _, err := of.Snapshot(revision, "/pods"); !errors.Is(err, store.ErrCompacted) {
				t.Errorf("plane %q: a list as of %d, of %d: %v", id, revision, r.Next, err)
			}
		}
		if _, err := of.Watch(t.Context(), "/pods", "", r.Next); err != nil {
			t.Errorf("plane %q: a watch from now on: %v", id, err)
		}
		revisions, err := of.Commit(t.Context(), nil, []store.Change{{Key: store.Key{Resource: "/pods", Name: "n/new"},
			Data: []byte("new")}})
		if err != nil || revisions.First <= r.Next {
			t.Errorf("plane %q: a commit is at %d, after %d: %v", id, revisions.First, r.Next, err)
		}
	}
	if again := mustRestore(t, archive, Restoring{Now: now.Add(time.Minute)}); again.Next-r.Next != 60_000_000 {
		t.Errorf("restored a minute later it goes on at %d, and not %d", again.Next, r.Next+60_000_000)
	}
	if exact := mustRestore(t, archive, Restoring{Now: now, Bump: 5}); exact.Next != r.Revision+5 {
		t.Errorf("with a bump of 5 it goes on at %d, after %d", exact.Next, r.Revision)
	}
}

// slowly reads a little at a time, while somebody else writes.
type slowly struct {
	io.Reader
	pause func()
}

func (s slowly) Read(b []byte) (int, error) {
	s.pause()
	return s.Reader.Read(b[:min(len(b), 3000)])
}

// gone is how many files of a snapshot are not in their directory any more.
func gone(dir string, snapshot *filelog.Frozen) (n int) {
	for _, f := range snapshot.Files {
		if _, err := os.Stat(filepath.Join(dir, f.Name)); errors.Is(err, os.ErrNotExist) {
			n++
		}
	}
	return n
}

// A backup that is read while commits go on, checkpoints are written and files removed is the state of one moment: that
// of its revision, which is not before the last commit that was acknowledged before it began.
//
// SPEC: STORE-6
func TestBackupUnderLoad(t *testing.T) {
	s := serve(t, 3)
	for range 50 {
		s.write(t)
	}
	stop := make(chan struct{})
	var writing sync.WaitGroup
	step := make(chan struct{})
	writing.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-step:
				for range 10 {
					s.write(t)
				}
			}
		}
	})
	removed := 0
	for range 60 {
		acknowledged := s.Revision()
		snapshot, err := s.log.Freeze()
		if err != nil {
			t.Fatal(err)
		}
		a, err := New(Document{Time: time.Now().UTC()}, snapshot)
		if err != nil {
			t.Fatal(err)
		}
		from, to := io.Pipe()
		go func() { to.CloseWithError(a.Write(to)) }()
		var copied bytes.Buffer
		// While a part of it is read, so much is written that a file is removed; else, what comes of itself.
		reads := 0
		d, err := Copy(slowly{from, func() {
			reads++
			for deadline := time.Now().Add(20 * time.Second); reads == 2 && gone(s.dir, snapshot) == 0; {
				if step <- struct{}{}; time.Now().After(deadline) {
					t.Error("no file is removed")
					return
				}
			}
			select {
			case step <- struct{}{}:
			default:
			}
		}}, &copied, nil)
		if err != nil {
			t.Fatal(err)
		}
		removed += gone(s.dir, snapshot)
		snapshot.Close()
		if d.Revision < acknowledged {
			t.Errorf("the backup is of %d, and %d was acknowledged before", d.Revision, acknowledged)
		}
		dir := filepath.Join(t.TempDir(), "new")
		mustRestore(t, copied.Bytes(), Restoring{Dir: dir})
		restored, _ := openStore(t, filepath.Join(dir, "store"))
		// The commit of that revision may not have returned to its writer yet.
		have := content(t, restored)
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if err = same(have, s.state(d.Revision)); err == nil || time.Now().After(deadline) {
				break
			}
		}
		if err != nil {
			t.Errorf("of revision %d: %v", d.Revision, err)
		}
		restored.Close()
	}
	close(stop)
	writing.Wait()
	if removed < 60 {
		t.Errorf("only %d files were removed while they were read", removed)
	}
}

// A restore that fails leaves the directory as it was, and one that has something in it is refused.
//
// SPEC: STORE-6
func TestRestoreRefuses(t *testing.T) {
	s := serve(t, 4)
	for range 60 {
		s.write(t)
	}
	archive := s.archive(t, Document{})
	damaged := bytes.Clone(archive)
	damaged[len(damaged)/2] ^= 1
	empty := t.TempDir()
	mode := tree(t, empty)
	for name, dir := range map[string]string{"new": filepath.Join(t.TempDir(), "a"), "empty": empty} {
		before := tree(t, dir)
		if _, err := restore(damaged, Restoring{Dir: dir}); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: a damaged archive: %v", name, err)
		}
		if _, err := restore(archive, Restoring{Dir: dir, At: Moment{Revision: 1 << 40}}); err == nil {
			t.Errorf("%s: restored as of the future", name)
		}
		if after := tree(t, dir); !slices.Equal(before, after) {
			t.Errorf("%s: it was %q and is %q", name, before, after)
		}
	}
	if len(mode) != 1 {
		t.Fatal(mode)
	}
	mustRestore(t, archive, Restoring{Dir: empty})
	full := tree(t, empty)
	if _, err := restore(archive, Restoring{Dir: empty}); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("into a directory with a store: %v", err)
	}
	if after := tree(t, empty); !slices.Equal(full, after) {
		t.Errorf("it was %q and is %q", full, after)
	}
	ended, end := context.WithCancel(context.Background())
	end()
	dir := filepath.Join(t.TempDir(), "ended")
	if _, err := Restore(ended, FromArchive(bytes.NewReader(archive)), Restoring{Dir: dir}); !errors.Is(err,
		context.Canceled) || len(tree(t, dir)) > 0 {
		t.Errorf("of a context that has ended: %v, and there is %q", err, tree(t, dir))
	}
}

// Directories have the mode 0700 and files 0600, whatever the umask is. Keys are in the archive only if somebody asks
// for them, and readable by the passphrase alone; without them the new directory has a list of what is missing.
//
// SPEC: STORE-6
func TestKeys(t *testing.T) {
	s := serve(t, 5)
	for range 20 {
		s.write(t)
	}
	data := t.TempDir()
	secrets := map[string]string{"pki/ca.key": "the key of the authority", "pki/ca.crt": "the certificate",
		"pki/front-proxy/ca.crt": "another one", "pki/planes.key": "that of planes"}
	elsewhere := filepath.Join(t.TempDir(), "encryption.yaml")
	put := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range secrets {
		put(filepath.Join(data, name), text)
	}
	put(elsewhere, "the key of the encryption")
	document := Document{Directory: data, Authority: AuthorityOf(data), Parts: []string{"pki/ca.crt",
		"pki/front-proxy/ca.crt", "store/FORMAT"}, Supplied: []Supplied{{"encryption-provider-config", elsewhere}}}
	archive := s.archive(t, document)

	alone := filepath.Join(t.TempDir(), "alone")
	r := mustRestore(t, archive, Restoring{Dir: alone, Passphrase: func() (string, error) {
		return "", errors.New("it asks for a passphrase")
	}})
	if !slices.Equal(r.Missing, document.Parts[:2]) || r.HasKeys {
		t.Errorf("missing are %v, keys %t", r.Missing, r.HasKeys)
	}
	if parts, err := os.ReadFile(filepath.Join(alone, "PARTS")); err != nil || !strings.Contains(string(parts),
		"storage embedded\npki/ca.crt\npki/front-proxy/ca.crt\nstore/FORMAT\n") {
		t.Errorf("PARTS is %q, %v", parts, err)
	}

	var with bytes.Buffer
	if _, err := Copy(bytes.NewReader(archive), &with, func(d *Document) ([]byte, error) {
		k, err := CollectKeys(d)
		if err != nil {
			return nil, err
		}
		return k.Encrypt("correct horse")
	}); err != nil {
		t.Fatal(err)
	}
	for _, text := range append([]string{"the key of the encryption"}, secrets["pki/ca.key"], secrets["pki/planes.key"]) {
		if bytes.Contains(with.Bytes(), []byte(text)) || bytes.Contains(archive, []byte(text)) {
			t.Errorf("%q can be read in the archive", text)
		}
	}
	if _, err := restore(with.Bytes(), Restoring{Dir: filepath.Join(t.TempDir(), "w"), Passphrase: func() (string, error) {
		return "battery staple", nil
	}}); !errors.Is(err, ErrPassphrase) {
		t.Errorf("another passphrase: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	r = mustRestore(t, with.Bytes(), Restoring{Dir: dir,
		Passphrase: func() (string, error) { return "correct horse", nil }})
	flag := filepath.Join(dir, "flags", "encryption-provider-config", "0-encryption.yaml")
	if len(r.Missing) > 0 || !slices.Equal(r.Flags, []string{"--encryption-provider-config=" + flag}) {
		t.Errorf("missing are %v, flags %v", r.Missing, r.Flags)
	}
	secrets["flags/encryption-provider-config/0-encryption.yaml"] = "the key of the encryption"
	for name, want := range secrets {
		if text, err := os.ReadFile(filepath.Join(dir, name)); string(text) != want {
			t.Errorf("%s is %q, %v", name, text, err)
		}
	}
	for _, entry := range tree(t, dir) {
		if !strings.HasPrefix(entry, "-rw------- ") && !strings.HasPrefix(entry, "-rwx------ ") || strings.Contains(entry,
			"restoring") {
			t.Errorf("the directory has %s", entry)
		}
	}
	put(filepath.Join(data, "pki/ca.crt"), "that of another server")
	if _, err := CollectKeys(&document); err == nil || !strings.Contains(err.Error(), "keys of another server") {
		t.Errorf("keys of another server: %v", err)
	}
	document.Directory = filepath.Join(data, "none")
	if _, err := CollectKeys(&document); err == nil || !strings.Contains(err.Error(), "run this there") {
		t.Errorf("keys of another machine: %v", err)
	}
}

// An archive that is cut off anywhere, of which any byte is another one, or of which a file is missing or added, is an
// error, or it has all that it says: never less.
//
// SPEC: STORE-6
func TestDamagedArchive(t *testing.T) {
	s := serve(t, 6)
	for range 12 {
		s.write(t)
	}
	archive := s.archive(t, Document{})
	read := func(archive []byte) (map[string]string, error) {
		all := map[string]string{}
		d, err := Read(bytes.NewReader(archive), func(_ *Document, name string, _ int64, content io.Reader) error {
			b, err := io.ReadAll(content)
			all[name] = string(b)
			return err
		})
		if err == nil {
			all[documentName] = string(d.raw)
		}
		return all, err
	}
	whole, err := read(archive)
	if err != nil || len(whole) < 4 {
		t.Fatal(len(whole), err)
	}
	equal := func(have map[string]string) bool {
		for name, content := range whole {
			if have[name] != content {
				return false
			}
		}
		return len(have) == len(whole)
	}
	accepted := 0
	for n := range archive {
		have, err := read(archive[:n])
		if err == nil {
			accepted++
		}
		if err == nil && !equal(have) || err != nil && !errors.As(err, new(*DamageError)) {
			t.Fatalf("cut at %d of %d: %v", n, len(archive), err)
		}
	}
	if accepted > 3*block { // in the zeros after the list, which say nothing
		t.Errorf("%d archives that were cut off are accepted", accepted)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	refused := 0
	for n := range archive {
		changed := bytes.Clone(archive)
		changed[n] ^= 1 << rng.IntN(8)
		have, err := read(changed)
		if err == nil && !equal(have) {
			t.Fatalf("the byte at %d of %d is another one, and nobody notices", n, len(archive))
		}
		if err != nil {
			refused++
		}
	}
	if refused < len(archive)/4 {
		t.Errorf("%d of %d changes were noticed", refused, len(archive))
	}
	for name, write := range map[string]func(w *archiveWriter, name, content string) error{
		"a file is missing": func(w *archiveWriter, name, content string) error {
			if strings.HasSuffix(name, ".log") {
				w.sums.WriteString(strings.Repeat("0", 64) + "  " + name + "\n")
				return nil
			}
			return w.file(name, int64(len(content)), strings.NewReader(content))
		},
		"a file is not in the list": func(w *archiveWriter, name, content string) error {
			return w.entry(name, int64(len(content)), strings.NewReader(content))
		},
		"a file is there twice": func(w *archiveWriter, name, content string) error {
			err := w.file(name, int64(len(content)), strings.NewReader(content))
			if err == nil {
				err = w.file(name, int64(len(content)), strings.NewReader(content))
			}
			return err
		},
		"a file has a name that leads elsewhere": func(w *archiveWriter, name, content string) error {
			return w.file(strings.Replace(name, "store/", "store/../", 1), int64(len(content)), strings.NewReader(content))
		},
	} {
		var b bytes.Buffer
		w := newArchiveWriter(&b, time.Now())
		if err := w.file(documentName, int64(len(whole[documentName])), strings.NewReader(whole[documentName])); err != nil {
			t.Fatal(err)
		}
		for _, of := range []string{"FORMAT", "MANIFEST", "00000000000000000001.log"} {
			if err := write(w, storePrefix+of, whole[storePrefix+of]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.finish(); err != nil {
			t.Fatal(err)
		}
		if _, err := read(b.Bytes()); !errors.As(err, new(*DamageError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	later := bytes.Replace(archive, []byte(`"format": 1`), []byte(`"format": 2`), 1)
	if _, err := read(later); err == nil || !strings.Contains(err.Error(), "has format 2") {
		t.Errorf("an archive of a later format: %v", err)
	}
}
