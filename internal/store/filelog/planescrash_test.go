package filelog_test

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
)

// upTo is the model of the first commits.
func (m *planesModel) upTo(commits int) *planesModel { return &planesModel{events: m.events[:commits]} }

// matches checks that a reopened store has the first commits of the model, at least acked of them, each as a whole.
func (m *planesModel) matches(t *testing.T, s *store.Store, acked int) error {
	t.Helper()
	newest := s.Revision() // of any plane
	for id := range s.Planes() {
		plane, err := s.Plane(id)
		if err != nil {
			return err
		}
		newest = max(newest, plane.Revision())
	}
	n := 0
	for n < len(m.events) && m.events[n].last <= newest {
		n++
	}
	switch {
	case n < acked:
		return fmt.Errorf("%d commits were acknowledged, and the log ends at %d, with %d", acked, newest, n)
	case n > 0 && m.events[n-1].last != newest:
		return fmt.Errorf("the log ends at %d, within the commit after %d", newest, m.events[n-1].last)
	}
	want, _ := m.upTo(n).replay()
	if have := slices.Collect(s.Planes()); len(have) != len(want)-1 {
		return fmt.Errorf("after %d commits there are %d planes, should be %d", n, len(have), len(want)-1)
	}
	for id, p := range want {
		plane, err := s.Plane(id)
		if err != nil {
			return fmt.Errorf("plane %q: %w", id, err)
		}
		if err := same(everything(t, plane), p.have); err != nil {
			return fmt.Errorf("plane %q after %d commits: %w", id, n, err)
		}
	}
	return nil
}

// Losses of power at random points while planes begin, change and end, while checkpoints are written, and while a
// log is opened after one: whatever is acknowledged is there, a plane is there exactly if its object is, with all of
// its first changes; and an inspection finds no damage, and the same planes.
//
// SPEC: STORE-1, STORE-7, BEY-9
func TestPlanesPowerCut(t *testing.T) {
	cuts := 0
	for round := range uint64(10) {
		rng := rand.New(rand.NewPCG(round, 5))
		c := &cutter{mem: vfs.NewCrashableMem(), rng: rng, odds: 15, left: 20}
		var acked atomic.Int64
		c.acked = acked.Load
		s, err := openPlanes(errorfs.Wrap(c.mem, c), 8<<10)
		if err != nil {
			t.Fatal(err)
		}
		m := &planesModel{rng: rand.New(rand.NewPCG(round, 6))}
		for range 150 {
			if err := m.write(s); err != nil {
				t.Fatal(err)
			}
			acked.Add(1)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, first := range c.cuts {
			cuts++
			in, inspected := filelog.Inspect("data", filelog.Options{FS: first.fs})
			again := &cutter{mem: first.fs, rng: rng, odds: 6, left: 1, acked: func() int64 { return first.acked }}
			s, err := openPlanes(errorfs.Wrap(first.fs, again), 8<<10)
			if err == nil {
				err = m.matches(t, s, int(first.acked))
			}
			if err != nil {
				t.Fatalf("cut at %s: %v", first.op, err)
			}
			// What was not even begun is no store.
			if inspected == nil && !in.Damaged() {
				for id, objects := range foundIn(in) {
					plane, err := s.Plane(id)
					if err == nil {
						err = same(objects, everything(t, plane))
					}
					if err != nil {
						t.Fatalf("cut at %s: an inspection found of plane %q: %v", first.op, id, err)
					}
				}
			} else if first.acked > 0 {
				t.Fatalf("cut at %s: an inspection says %+v, %v", first.op, in, inspected)
			}
			s.Close()
			again.mu.Lock()
			again.left = 0
			again.mu.Unlock()
			for _, second := range again.cuts {
				cuts++
				s, err := openPlanes(second.fs, 8<<10)
				if err == nil {
					err = m.matches(t, s, int(first.acked))
					s.Close()
				}
				if err != nil {
					t.Fatalf("cut at %s, then at %s: %v", first.op, second.op, err)
				}
			}
		}
	}
	if cuts < 200 {
		t.Errorf("only %d losses of power were simulated", cuts)
	}
}

// unpackedFormat2 is a file system with the directory of a server of format 2, all of it synced.
func unpackedFormat2(t *testing.T) *vfs.MemFS {
	t.Helper()
	mem := vfs.NewCrashableMem()
	if err := mem.MkdirAll("data", 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open("../../server/testdata/format2.tgz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for all := tar.NewReader(plain); ; {
		header, err := all.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(all)
		if err != nil {
			t.Fatal(err)
		}
		name := path.Base(header.Name)
		if header.FileInfo().IsDir() || name == "LOCK" {
			continue
		}
		f, err := mem.Create("data/"+name, vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.Write(content)
		}
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"", "data"} {
		d, err := mem.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

// formatOf is what FORMAT says.
func formatOf(t *testing.T, fs vfs.FS) string {
	t.Helper()
	return string(readImage(t, fs)["FORMAT"])
}

// A directory of format 2 is opened, gets planes, and loses power at any point before the next checkpoint: it opens
// again, with what it had and what was acknowledged. It has planes only after FORMAT refuses programs that know
// format 2 alone. The next checkpoint has all of it.
//
// SPEC: STORE-1, STORE-7
func TestFormat2GetsPlanes(t *testing.T) {
	const kept = "default/kept"
	formats := map[string]int{}
	for round := range uint64(6) {
		rng := rand.New(rand.NewPCG(round, 8))
		c := &cutter{mem: unpackedFormat2(t), rng: rng, odds: 4, left: 25}
		var acked atomic.Int64
		c.acked = acked.Load
		if in := inspect(t, c.mem); in.Damaged() || len(in.Planes) > 0 || len(in.Versions) < 10 {
			t.Fatalf("%d versions, %v", len(in.Versions), in.Findings)
		}
		s, err := openPlanes(errorfs.Wrap(c.mem, c), 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		revision := s.Revision()
		before, found := s.Get(store.Key{Resource: "/configmaps", Name: kept})
		if !found {
			t.Fatalf("there is no %s", kept)
		}
		m := &planesModel{rng: rand.New(rand.NewPCG(round, 9))}
		for range 40 {
			if err := m.write(s); err != nil {
				t.Fatal(err)
			}
			acked.Add(1)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, first := range c.cuts {
			format := formatOf(t, first.fs)
			formats[format]++
			in := inspect(t, first.fs)
			if in.Damaged() || len(in.Planes) > 0 && format != "plinth data 3\n" {
				t.Errorf("cut at %s: FORMAT is %q, with %d planes: %v", first.op, format, len(in.Planes), in.Findings)
			}
			// With a checkpoint in between, and without one.
			for _, compact := range []int64{1 << 30, 4 << 10} {
				s, err := openPlanes(first.fs, compact)
				if err == nil {
					err = m.matches(t, s, int(first.acked))
				}
				if err != nil {
					t.Fatalf("cut at %s: %v", first.op, err)
				}
				if v, found := s.Get(before.Key); !found || v.Revision != before.Revision || s.Revision() < revision {
					t.Fatalf("cut at %s: %s is %v, at revision %d", first.op, kept, v, s.Revision())
				}
				if compact == 4<<10 {
					big := store.Change{Key: store.Key{Resource: "/big", Name: "x"}, Data: []byte(strings.Repeat("x", 64<<10))}
					if _, err := s.Commit(t.Context(), nil, []store.Change{big}); err != nil {
						t.Fatal(err)
					}
					checkpointSize(t, first.fs, revision)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if in := inspect(t, first.fs); in.Damaged() || formatOf(t, first.fs) != "plinth data 3\n" || in.Checkpoint == 0 {
				t.Errorf("cut at %s, and with a checkpoint: %+v", first.op, in.Findings)
			}
		}
	}
	if formats["plinth data 2\n"] == 0 || formats["plinth data 3\n"] == 0 || len(formats) != 2 {
		t.Errorf("FORMAT was %v", formats)
	}
}

// childPlanesDir is the directory of childPlanes.
const childPlanesDir = "PLINTH_FILELOG_CHILD_PLANES"

func openPlanesDir(dir string) (*store.Store, error) {
	log, err := filelog.Open(dir, filelog.Options{SegmentBytes: 256 << 10})
	if err != nil {
		return nil, err
	}
	return store.Open(store.Config{Log: log, Describe: describePlanes, CompactBytes: 128 << 10,
		PlaneResources: []string{"/planes"}})
}

// childPlanes begins, forks, writes and ends planes as fast as it can, and reports what it does and what is
// acknowledged, until it is killed. The object of a plane says what it begins with.
func childPlanes(dir string) {
	s, err := openPlanesDir(dir)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	say := func(a ...any) { os.Stdout.WriteString(fmt.Sprintln(a...)) }
	start := s.Revision()
	for w := range 8 {
		go func() {
			rng := rand.New(rand.NewPCG(uint64(start), uint64(w)))
			type plane struct {
				id     string
				writes int
			}
			var mine []*plane
			for i := 0; ; i++ {
				var err error
				switch n := rng.IntN(10); {
				case len(mine) == 0 || n < 3:
					p := &plane{id: fmt.Sprintf("%d-%d-%d", start, w, i)}
					b := &store.Begin{Plane: p.id}
					if len(mine) > 0 && n < 2 {
						from := mine[rng.IntN(len(mine))]
						b.Origin, p.writes = from.id, from.writes
					}
					firsts := rng.IntN(5)
					for f := range firsts {
						b.Changes = append(b.Changes, store.Change{Key: store.Key{Resource: "/pods", Name: fmt.Sprint(p.id, "/", f)},
							Data: []byte(p.id)})
					}
					_, err = s.Commit(context.Background(), nil, []store.Change{{Key: store.Key{Resource: "/planes", Name: p.id},
						Data: fmt.Append(nil, p.id, " ", firsts, " ", p.writes), Sidecar: &store.Sidecar{UID: p.id}, Begin: b}})
					say("begun", p.id)
					mine = append(mine, p)
				case len(mine) > 6:
					p := mine[0]
					mine = mine[1:]
					say("ending", p.id)
					_, err = s.Commit(context.Background(), nil, []store.Change{{Key: store.Key{Resource: "/planes", Name: p.id}}})
					say("ended", p.id)
				default:
					p := mine[rng.IntN(len(mine))]
					var of *store.Store
					if of, err = s.Plane(p.id); err == nil {
						_, err = of.Commit(context.Background(), nil, []store.Change{{Key: writeKey(p.writes), Data: []byte(
							strings.Repeat("and so on ", rng.IntN(100)) + p.id)}})
					}
					say("wrote", p.id, p.writes)
					p.writes++
				}
				if err != nil {
					say("error", err)
					os.Exit(1)
				}
			}
		}()
	}
	select {}
}

func writeKey(n int) store.Key { return store.Key{Resource: "/pods", Name: fmt.Sprint("written/", n)} }

// A process is killed repeatedly while it begins, forks, writes and ends planes: nothing acknowledged is lost, a plane
// is there exactly if its object is, and has all that it began with.
//
// SPEC: STORE-1, STORE-7, BEY-9
func TestKillPlanes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	planes := 0
	for round := range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childPlanesDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		begun, ending, ended, wrote := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]int{}
		acks := 0
		for lines := bufio.NewScanner(out); lines.Scan(); acks++ {
			var id string
			var n int
			if acks == 400+300*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			// Of a line that was cut off by the kill there is a part; it has no number, or a shorter one.
			line := lines.Text()
			kind, rest, _ := strings.Cut(line, " ")
			_, err := fmt.Sscan(rest, &id, &n)
			switch {
			case kind == "begun":
				begun[id] = true
			case kind == "ending":
				ending[id] = true
			case kind == "ended":
				ended[id] = true
			case kind == "wrote" && err == nil:
				wrote[id] = max(wrote[id], n+1)
			case kind == "error":
				t.Error(line)
			}
		}
		cmd.Wait()
		planes += checkKilled(t, dir, begun, ending, ended, wrote)
	}
	if planes < 20 {
		t.Errorf("there were only %d planes", planes)
	}
}

// checkKilled checks the planes after a process was killed, and returns how many there are.
func checkKilled(t *testing.T, dir string, begun, ending, ended map[string]bool, wrote map[string]int) int {
	t.Helper()
	s, err := openPlanesDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	there := map[string]bool{}
	for id := range s.Planes() {
		there[id] = true
	}
	sn, err := s.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]bool{}
	sn.Ascend("/planes", "", "", func(v *store.Version) bool {
		id := v.Key.Name
		if objects[id] = true; !there[id] {
			t.Errorf("the plane %s has an object, and is not there", id)
			return true
		}
		plane, err := s.Plane(id)
		if err != nil {
			t.Fatal(err)
		}
		var firsts, writes int
		if _, err := fmt.Sscan(string(v.Data()), &id, &firsts, &writes); err != nil {
			t.Fatal(err)
		}
		for f := range firsts {
			if _, ok := plane.Get(store.Key{Resource: "/pods", Name: fmt.Sprint(id, "/", f)}); !ok {
				t.Errorf("the plane %s has not its first change %d of %d", id, f, firsts)
			}
		}
		for n := range max(writes, wrote[id]) {
			if _, ok := plane.Get(writeKey(n)); !ok {
				t.Errorf("the plane %s has not write %d: it began with %d, and %d were acknowledged", id, n, writes, wrote[id])
			}
		}
		return true
	})
	for id := range there {
		if !objects[id] {
			t.Errorf("the plane %s is there, without an object", id)
		}
	}
	for id := range begun {
		if there[id] == ended[id] && (ended[id] || !ending[id]) {
			t.Errorf("the plane %s: ended %t, there %t", id, ended[id], there[id])
		}
	}
	return len(there)
}

// Damage of a directory with planes: bits flip, blocks become zeros, files are cut off and taken away. Either every
// plane has all that was acknowledged, or the error names the file.
//
// SPEC: STORE-1, STORE-7
func TestPlanesBitRot(t *testing.T) {
	found := map[string]int{}
	for seed := range uint64(3) {
		im, m := filledPlanes(t, seed+60, 120, 8<<10)
		rng := rand.New(rand.NewPCG(seed, 3))
		try := func(sort, name string, content []byte) {
			t.Helper()
			disk := im.mount(t, name, content)
			if content == nil {
				if err := disk.Remove("data/" + name); err != nil {
					t.Fatal(err)
				}
			}
			s, err := openPlanes(disk, 1<<30)
			if err == nil {
				err = m.matches(t, s, len(m.events))
				s.Close()
			}
			if err != nil && !strings.Contains(err.Error(), name) {
				t.Errorf("%s of %s, and the error does not name it: %v", sort, name, err)
			}
			if err != nil {
				found[sort]++
			}
		}
		for name, b := range im {
			try("loss", name, nil)
			used := end(b)
			for range 10 {
				at := rng.IntN(used)
				flipped := slices.Clone(b)
				flipped[at] ^= 1 << rng.IntN(8)
				try("flip", name, flipped)
				try("cut", name, b[:at])
				blank := slices.Clone(b)
				clear(blank[at:min(len(blank), at+512)])
				try("zeros", name, blank)
			}
		}
	}
	for _, sort := range []string{"loss", "flip", "cut", "zeros"} {
		if found[sort] == 0 {
			t.Errorf("no %s is damage: %v", sort, found)
		}
	}
	t.Log(found)
}
