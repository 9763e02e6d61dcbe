package filelog_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
)

// image is the content of a directory.
type image map[string][]byte

func readImage(t testing.TB, fs vfs.FS) image {
	t.Helper()
	names, err := fs.List("data")
	if err != nil {
		t.Fatal(err)
	}
	im := image{}
	for _, name := range names {
		if name == "LOCK" {
			continue
		}
		f, err := fs.Open("data/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if im[name], err = io.ReadAll(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return im
}

// files are the names in an image with one extension.
func (im image) files(ending string) []string {
	var names []string
	for name := range im {
		if strings.HasSuffix(name, ending) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// readAtOpen are the files without which the state cannot be read: the newest checkpoint, FORMAT, and the segments with
// commits after the checkpoint. Which they are depends on when the compactor ran.
func (im image) readAtOpen() map[string]bool {
	bases, logs := im.files(".base"), im.files(".log")
	checkpoint := bases[len(bases)-1]
	needed := map[string]bool{checkpoint: true, "FORMAT": true}
	for i, name := range logs {
		// Names have 20 digits, so they compare as revisions. A segment ends where the next one begins.
		if i == len(logs)-1 || logs[i+1][:20] > checkpoint[:20] {
			needed[name] = true
		}
	}
	return needed
}

// mount makes a file system of an image, with one file replaced.
func (im image) mount(t testing.TB, replaced string, content []byte) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll("data", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, b := range im {
		if name == replaced {
			b = content
		}
		f, err := fs.Create("data/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(slices.Clone(b)); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return fs
}

// filled returns a log with a checkpoint and several segments, in the state in which a killed process leaves it.
func filled(t testing.TB, commits int) (image, *model) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	s := mustOpen(t, mem)
	m := newModel()
	rng := rand.New(rand.NewPCG(1, 1))
	for range commits {
		if _, err := m.write(s, rng, 0); err != nil {
			t.Fatal(err)
		}
	}
	defer s.Close()
	for {
		im := readImage(t, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng}))
		if len(im.files(".base")) > 0 && len(im.files(".tmp")) == 0 {
			return im, m
		}
	}
}

// intact opens a damaged log and says whether all commits exist all the same. An error must name the file.
func intact(t testing.TB, fs vfs.FS, m *model, acked int64, file string) bool {
	t.Helper()
	s, err := openStore(fs)
	if err == nil {
		err = m.check(s, acked)
		s.Close()
	}
	if err == nil {
		return true
	}
	if !strings.Contains(err.Error(), file) {
		t.Fatalf("%s was damaged, and the error does not name it: %v", file, err)
	}
	return false
}

// TestBitRot flips a random bit: either all commits still exist, because the bit was unused, or the error names the
// file. No acknowledged commit is lost silently, and none is invented.
//
// SPEC: STORE-1
func TestBitRot(t *testing.T) {
	im, m := filled(t, 90)
	acked := int64(91)
	rng := rand.New(rand.NewPCG(2, 2))
	names := append(im.files(".log"), append(im.files(".base"), "FORMAT", "MANIFEST")...)
	read := im.readAtOpen()
	found, flipped := 0, 0
	for range 1000 {
		name := names[rng.IntN(len(names))]
		b := slices.Clone(im[name])
		size := len(b)
		if rng.IntN(20) > 0 { // seldom in the zeros after the end
			size = end(b)
		}
		bit := rng.IntN(8 * size)
		b[bit/8] ^= 1 << (bit % 8)
		ok := intact(t, im.mount(t, name, b), m, acked, name)
		if read[name] {
			flipped++
			if !ok {
				found++
			}
		}
	}
	// Not all: some bits are after the end of a file, or of commits that the checkpoint has.
	if flipped < 100 || found < flipped*9/10 {
		t.Errorf("only %d of %d flipped bits of files that are needed were reported as damage", found, flipped)
	}
}

// TestZeroedBlock: a block of a file reads back as zeros.
//
// SPEC: STORE-1
func TestZeroedBlock(t *testing.T) {
	im, m := filled(t, 90)
	for _, name := range append(im.files(".log"), im.files(".base")...) {
		for at := 0; at < len(im[name]); at += 512 {
			b := slices.Clone(im[name])
			clear(b[at:min(len(b), at+512)])
			intact(t, im.mount(t, name, b), m, 91, name)
		}
	}
}

// end is the offset at which the zeros at the end of a file begin.
func end(b []byte) int {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return len(b)
}

// torn returns a log whose last batch was written, but neither synced nor acknowledged.
func torn(t testing.TB) (before, after image, m *model, acked int64) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	now := func() image {
		return readImage(t, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100,
			RNG: rand.New(rand.NewPCG(0, 0))}))
	}
	fail := errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSync {
			return errors.New("the power fails")
		}
		return nil
	})}
	s := mustOpen(t, errorfs.Wrap(mem, &fail))
	m = newModel()
	rng := rand.New(rand.NewPCG(4, 4))
	for range 20 {
		if _, err := m.write(s, rng, 0); err != nil {
			t.Fatal(err)
		}
	}
	acked, before = s.Revision(), now()
	fail.On()
	if _, err := m.write(s, rng, 0); err == nil {
		t.Fatal("a commit was acknowledged without a sync")
	}
	after = now()
	s.Close()
	return before, after, m, acked
}

// TestTornTail cuts the file at every byte of a frame that was not acknowledged, and replaces the rest with zeros or
// garbage: Open drops the frame, or finds it whole.
//
// SPEC: STORE-1
func TestTornTail(t *testing.T) {
	before, im, m, acked := torn(t)
	segments := im.files(".log")
	name := segments[len(segments)-1]
	b := im[name]
	rng := rand.New(rand.NewPCG(5, 5))
	whole := 0
	for at := end(before[name]); at <= end(b); at++ {
		for _, tail := range []string{"cut", "zeros", "garbage"} {
			c := slices.Clone(b)
			switch tail {
			case "cut":
				c = c[:at]
			case "zeros":
				clear(c[at:])
			case "garbage":
				for i := at; i < end(b); i++ {
					c[i] = byte(rng.Uint32())
				}
			}
			s, err := openStore(im.mount(t, name, c))
			if err != nil {
				t.Fatalf("%s at %d of %d: %v", tail, at, end(b), err)
			}
			own := &model{changes: map[int64]store.Change{}, unknown: slices.Clone(m.unknown)}
			for r, changes := range m.changes {
				own.changes[r] = changes
			}
			if err := own.check(s, acked); err != nil {
				t.Fatalf("%s at %d of %d: %v", tail, at, end(b), err)
			}
			if s.Revision() > acked {
				whole++
			}
			s.Close()
		}
	}
	if whole == 0 {
		t.Error("the commit was never found whole, though all of it was written")
	}
}

// TestTruncated cuts acknowledged commits off: the error names the file, unless the file is no longer needed.
//
// SPEC: STORE-1
func TestTruncated(t *testing.T) {
	im, m := filled(t, 90)
	for _, name := range append(im.files(".log"), im.files(".base")...) {
		for size := 0; size < len(im[name]); size += 251 {
			intact(t, im.mount(t, name, im[name][:size]), m, 91, name)
		}
	}
}

// TestFormat: a directory of another version is left alone.
func TestFormat(t *testing.T) {
	im, m := filled(t, 40)
	for content, want := range map[string]string{
		"plinth data 4\n":   "FORMAT says format 4; this version reads formats 2 to 3",
		"plinth data 1\n":   "format 1",
		"plinth data 10\n":  "format 10",
		"plinth data x\n":   "FORMAT is damaged",
		"":                  "FORMAT is damaged",
		"MANIFEST-000001\n": "FORMAT is damaged",
	} {
		_, err := openStore(im.mount(t, "FORMAT", []byte(content)))
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "data directory data") {
			t.Errorf("FORMAT with %q: %v", content, err)
		}
	}
	if !intact(t, im.mount(t, "", nil), m, 41, "") {
		t.Error("the undamaged directory is not intact")
	}
}

// TestStrangers: files of other programs are left alone, unfinished ones of the log are removed.
func TestStrangers(t *testing.T) {
	im, m := filled(t, 40)
	im["ca.crt"] = []byte("certificate")
	im["00000000000000000041.base.tmp"] = []byte("half a checkpoint")
	im["00000000000000000041.log.tmp"] = []byte("half a segment")
	im["notes.tmp"] = []byte("mine")
	fs := im.mount(t, "", nil)
	if !intact(t, fs, m, 41, "") {
		t.Fatal("the log is not intact beside files of others")
	}
	names := fmt.Sprint(readImage(t, fs).files(""))
	if !strings.Contains(names, "ca.crt") || !strings.Contains(names, "notes.tmp") ||
		strings.Contains(names, "base.tmp") || strings.Contains(names, "log.tmp") {
		t.Error(names)
	}
}

// TestLocked: a directory belongs to one log at a time.
func TestLocked(t *testing.T) {
	dir := t.TempDir()
	l, err := filelog.Open(dir, filelog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filelog.Open(dir, filelog.Options{}); !errors.Is(err, filelog.ErrLocked) ||
		!strings.Contains(err.Error(), dir+": in use by ") {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = filelog.Open(dir, filelog.Options{}); err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// TestNotLockable: the error for a directory that cannot be locked is not ErrLocked. TestKill tests a lock that another
// process holds.
func TestNotLockable(t *testing.T) {
	for _, c := range []struct {
		cause  error
		locked bool
		want   string
	}{
		{&fs.PathError{Op: "open", Path: "data/LOCK", Err: syscall.EROFS}, false,
			"data directory data: open data/LOCK: read-only file system"},
		{&fs.PathError{Op: "open", Path: "data/LOCK", Err: syscall.EACCES}, false,
			"data directory data: open data/LOCK: permission denied"},
		{&fs.PathError{Op: "open", Path: "data/LOCK", Err: syscall.ENOSPC}, false,
			"data directory data: open data/LOCK: no space left on device"},
		{syscall.ENOLCK, false, "data directory data: it cannot be locked: no locks available"},
		{syscall.EAGAIN, true, "data directory data: in use by another process, or by this one"},
	} {
		disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpLock {
				return c.cause
			}
			return nil
		}))
		_, err := filelog.Open("data", filelog.Options{FS: disk})
		if !errors.Is(err, c.cause) && !c.locked || errors.Is(err, filelog.ErrLocked) != c.locked ||
			err.Error() != c.want {
			t.Errorf("a lock that fails with %v: %v", c.cause, err)
		}
	}
}
