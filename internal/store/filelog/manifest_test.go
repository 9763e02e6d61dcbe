package filelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

// without is an image without the files that gone selects.
func (im image) without(gone func(name string) bool) image {
	rest := image{}
	for name, b := range im {
		if !gone(name) {
			rest[name] = b
		}
	}
	return rest
}

// filledBehindCheckpoint returns a log in the state in which a killed process leaves it: a checkpoint in the place of
// the first segments, segments before the checkpoint that hold only history, and several after it.
func filledBehindCheckpoint(t *testing.T) (im image, m *model, acked int64) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	m = newModel()
	rng := rand.New(rand.NewPCG(7, 7))
	killed := func() image {
		return readImage(t, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng}))
	}
	write := func(s *store.Store, commits int) {
		t.Helper()
		for range commits {
			if _, err := m.write(s, rng, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := mustOpen(t, mem)
	for ready := false; !ready; {
		write(s, 10)
		im = killed()
		segments, checkpoints := im.files(".log"), im.files(".base")
		ready = len(checkpoints) > 0 && len(im.files(".tmp")) == 0 && len(segments) > 1 &&
			segments[0][:20] > "00000000000000000001" && segments[1][:20] <= checkpoints[0][:20]
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mem = im.mount(t, "", nil) // it must not have later commits than the image
	var err error
	log, err := filelog.Open("data", small(mem))
	if err != nil {
		t.Fatal(err)
	}
	// From here on no checkpoint is written and no history removed.
	s, err = store.Open(store.Config{Log: log, Describe: storetest.Describe, CompactBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	for s.Revision() < int64(len(m.changes))+1 {
		delete(m.changes, int64(len(m.changes))+1)
	}
	write(s, 60)
	im, acked = readImage(t, mem), s.Revision()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return im, m, acked
}

// openLogged opens a log and returns its logged messages, at WARN and above.
func openLogged(fs vfs.FS) (*filelog.Log, string, error) {
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	o := small(fs)
	o.Logger = logger
	l, err := filelog.Open("data", o)
	return l, out.String(), err
}

// TestLostFiles removes files with acknowledged commits, one by one and together: the error names the missing file.
//
// SPEC: STORE-1
func TestLostFiles(t *testing.T) {
	im, m, acked := filledBehindCheckpoint(t)
	segments, checkpoint := im.files(".log"), im.files(".base")[0]
	newest, middle := segments[len(segments)-1], segments[len(segments)-2]
	isSegment := func(name string) bool { return strings.HasSuffix(name, ".log") }
	for _, c := range []struct {
		lost string
		gone func(name string) bool
		want string
	}{
		{"the newest segment", func(n string) bool { return n == newest }, newest + " is missing"},
		{"the two newest segments", func(n string) bool { return n == newest || n == middle }, newest + " is missing"},
		{"a segment in the middle", func(n string) bool { return n == middle }, middle + " is missing"},
		{"all segments", isSegment, newest + " is missing"},
		{"all segments and the checkpoint", func(n string) bool { return isSegment(n) || n == checkpoint },
			newest + " is missing"},
		{"the checkpoint", func(n string) bool { return n == checkpoint }, checkpoint + " is missing"},
		{"the checkpoint and the oldest segment",
			func(n string) bool { return n == checkpoint || n == segments[0] }, checkpoint + " is missing"},
		{"the manifest", func(n string) bool { return n == "MANIFEST" }, "MANIFEST is missing"},
		{"FORMAT", func(n string) bool { return n == "FORMAT" }, "FORMAT is missing"},
		{"all but the manifest", func(n string) bool { return n != "MANIFEST" }, "FORMAT is missing"},
		{"all but FORMAT", func(n string) bool { return n != "FORMAT" }, "MANIFEST is missing"},
	} {
		fs := im.without(c.gone).mount(t, "", nil)
		before := readImage(t, fs)
		_, _, err := openLogged(fs)
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, new(*filelog.MissingError)) {
			t.Errorf("%s was removed: %v, want %s", c.lost, err, c.want)
		}
		if after := readImage(t, fs); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("%s: Open refused the directory and changed its files from %v to %v",
				c.lost, before.files(""), after.files(""))
		}
	}
	if !intact(t, im.mount(t, "", nil), m, acked, "") {
		t.Error("the undamaged directory is not intact")
	}
}

// TestRenamedFiles gives files of the log other names: the error names each by its own name.
//
// SPEC: STORE-1
func TestRenamedFiles(t *testing.T) {
	im, _, _ := filledBehindCheckpoint(t)
	segments := im.files(".log")
	newest, middle := segments[len(segments)-1], segments[len(segments)-2]
	for _, c := range []struct{ from, to, want string }{
		{newest, newest + ".tmp", newest + " is missing"}, // and the file is not removed as an unfinished one
		{newest, newest + ".old", newest + " is missing"},
		{middle, middle + ".old", middle + " is missing"},
		{newest, "00000000099999999999.log", "00000000099999999999.log is damaged"},
		{middle, "00000000099999999999.log", "00000000099999999999.log is damaged"},
		{im.files(".base")[0], "00000000000000000003.base", im.files(".base")[0] + " is missing"},
		{"MANIFEST", "MANIFEST.tmp", "MANIFEST is missing"},
	} {
		renamed := im.without(func(name string) bool { return name == c.from })
		renamed[c.to] = im[c.from]
		fs := renamed.mount(t, "", nil)
		_, _, err := openLogged(fs)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s was renamed to %s: %v", c.from, c.to, err)
		}
		if readImage(t, fs)[c.to] == nil {
			t.Errorf("%s → %s: the file was removed", c.from, c.to)
		}
	}
}

// TestEmptiedFiles cuts each file to nothing.
//
// SPEC: STORE-1
func TestEmptiedFiles(t *testing.T) {
	im, m, acked := filledBehindCheckpoint(t)
	checkpoint := im.files(".base")[0]
	for name := range im {
		if intact(t, im.mount(t, name, nil), m, acked, name) && name >= checkpoint {
			t.Errorf("%s was emptied, and no error names it", name)
		}
	}
}

// TestLostHistory: segments before the checkpoint hold only history. Without them the log opens, with a warning.
func TestLostHistory(t *testing.T) {
	im, m, acked := filledBehindCheckpoint(t)
	oldest := im.files(".log")[0]
	fs := im.without(func(name string) bool { return name == oldest }).mount(t, "", nil)
	l, logged, err := openLogged(fs)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if !strings.Contains(logged, "level=WARN") || !strings.Contains(logged, "data/"+oldest) {
		t.Errorf("%s is missing, and the logged messages are %q", oldest, logged)
	}
	if !intact(t, fs, m, acked, "") {
		t.Error("commits other than history are missing")
	}
	l, logged, err = openLogged(im.mount(t, "", nil))
	if err != nil || logged != "" {
		t.Errorf("no file is missing, and the logged messages are %q, %v", logged, err)
	}
	l.Close()
}

// TestCutBehindAnyFrame cuts the newest segment, and zeroes it, at every seventh byte, and after its last frame. All
// commits in it were acknowledged, so Open refuses it.
//
// SPEC: STORE-1
func TestCutBehindAnyFrame(t *testing.T) {
	im, _ := filled(t, 90)
	segments := im.files(".log")
	newest := segments[len(segments)-1]
	content := im[newest]
	for at := end(content) - 1; at > 0; at -= 7 {
		zeroed := slices.Clone(content)
		clear(zeroed[at:])
		for _, b := range [][]byte{content[:at], zeroed} {
			_, _, err := openLogged(im.mount(t, newest, b))
			var damage *filelog.DamageError
			if !errors.As(err, &damage) || damage.File != "data/"+newest {
				t.Fatalf("only %d of %d bytes remain of %s: %v, should be a DamageError", at, end(content), newest, err)
			}
		}
	}
}

// TestManifestTorn damages one entry of the manifest after the other, as a loss of power may: the log opens with a
// warning. If no entry reads back, it does not open.
//
// SPEC: STORE-1
func TestManifestTorn(t *testing.T) {
	im, m := filled(t, 90)
	all := slices.Clone(im["MANIFEST"])
	for slot := range 3 {
		one := slices.Clone(im["MANIFEST"])
		one[slot*4096+20] ^= 1
		all[slot*4096+20] ^= 1
		fs := im.mount(t, "MANIFEST", one)
		l, logged, err := openLogged(fs)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if want := fmt.Sprintf("file=data/MANIFEST offset=%d",
			slot*4096); !strings.Contains(logged, want) || !strings.Contains(logged, "level=WARN") {
			t.Errorf("the logged messages are %q, want %s", logged, want)
		}
		if !intact(t, fs, m, 91, "") {
			t.Error("a torn entry of the manifest lost commits")
		}
	}
	if intact(t, im.mount(t, "MANIFEST", all), m, 91, "MANIFEST") {
		t.Error("a log opens with a manifest in which no entry reads back")
	}
}

// TestTornWriteIsSaid: an unfinished last write is dropped, and a warning names its file and offset.
//
// SPEC: STORE-1
func TestTornWriteIsSaid(t *testing.T) {
	before, im, _, _ := torn(t)
	name := slices.Max(im.files(".log"))
	at := end(before[name])
	rng := rand.New(rand.NewPCG(9, 9))
	for _, c := range []struct {
		what string
		tear func(b []byte) []byte
		said bool
	}{
		{"cut", func(b []byte) []byte { return b[:at+20] }, true},
		{"zeroed from its middle on", func(b []byte) []byte { clear(b[at+20:]); return b }, true},
		{"its beginning zeroed", func(b []byte) []byte { clear(b[at : at+20]); return b }, true},
		{"garbage", func(b []byte) []byte {
			for i := at; i < end(im[name]); i++ {
				b[i] = byte(rng.Uint32())
			}
			return b
		}, true},
		{"all zeros, as if it had never been", func(b []byte) []byte { clear(b[at:]); return b }, false},
		{"whole", func(b []byte) []byte { return b }, false},
	} {
		l, logged, err := openLogged(im.mount(t, name, c.tear(slices.Clone(im[name]))))
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		l.Close()
		said := strings.Contains(logged, "level=WARN") && strings.Contains(logged, fmt.Sprintf("file=data/%s offset=%d ",
			name, at))
		if said != c.said || !said && logged != "" {
			t.Errorf("%s: the logged messages are %q", c.what, logged)
		}
	}
}
