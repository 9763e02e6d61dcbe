package past

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/fxamacker/cbor/v2"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
)

// purging is a store with a past whose objects are purged, now and then. Each version has a marker that nothing
// compresses, so that it can be found in whatever file has it.
type purging struct {
	*kept
	rng *rand.Rand
	fs  vfs.FS
	// gone has, for each key, the revision up to which changes have ended purged versions.
	gone map[store.Key]int64
	// perhaps is a key whose purge was interrupted, and the revision of its last change then.
	perhaps      store.Key
	perhapsUntil int64
	purged       int // versions
}

func newPurging(t *testing.T, seed uint64, fs vfs.FS) *purging {
	p := &purging{kept: newKept(t, fs, unlimited()), rng: rand.New(rand.NewPCG(seed, 21)), fs: fs,
		gone: map[store.Key]int64{}}
	return p
}

// change makes random changes of a few objects.
func (p *purging) change(n int) {
	p.t.Helper()
	for range n {
		k := key(p.rng.IntN(6))
		if all := p.was[k]; p.rng.IntN(6) == 0 && len(all) > 0 && all[len(all)-1].data != "" {
			p.put(k, "")
			continue
		}
		marker := make([]byte, 24)
		for i := range marker {
			marker[i] = byte(p.rng.Uint32())
		}
		p.put(k, base64.RawURLEncoding.EncodeToString(marker)+" "+strings.Repeat("of an object like it ", p.rng.IntN(12)))
	}
}

// markerOf is the marker in a version.
func markerOf(data string) []byte {
	marker, _, _ := strings.Cut(data, " ")
	return []byte(marker)
}

// endedBy is the revision of the change that has ended the version i of a key; 0: it is live.
func (p *purging) endedBy(k store.Key, i int) int64 {
	if all := p.was[k]; i+1 < len(all) {
		return all[i+1].from
	}
	return 0
}

func (p *purging) purge(k store.Key) {
	p.t.Helper()
	want := 0
	for i, v := range p.was[k] {
		if end := p.endedBy(k, i); v.data != "" && end > max(0, p.gone[k]) {
			want++
		}
	}
	would, err := p.Purge(context.Background(), k, true)
	if err != nil {
		p.t.Fatal(err)
	}
	done, err := p.Purge(context.Background(), k, false)
	if err != nil {
		p.t.Fatal(err)
	}
	if would.Changes != done.Changes || would.Versions != done.Versions || would.Until != 0 ||
		k != p.perhaps && done.Versions != want {
		p.t.Fatalf("a purge of %s is %+v, and was to be %+v with %d versions", k, done, would, want)
	}
	if len(p.was[k]) > 0 {
		p.gone[k] = max(p.gone[k], done.Until)
	}
	p.purged += want
	p.perhaps = store.Key{}
	p.scan()
}

// scan looks for purged versions in all files, and in what the files say. The store goes on meanwhile: a file that it
// removes, as another one has taken its place, is no reason to fail.
func (p *purging) scan() {
	p.t.Helper()
	for attempt := 1; ; attempt++ {
		err := p.scanOnce()
		if err == nil {
			return
		}
		if attempt == 20 || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, store.ErrCompacted) {
			p.t.Fatal(err)
		}
	}
}

func (p *purging) scanOnce() error {
	p.t.Helper()
	var gone [][]byte
	for k, until := range p.gone {
		for i, v := range p.was[k] {
			if end := p.endedBy(k, i); v.data != "" && end > 0 && end <= until {
				gone = append(gone, markerOf(v.data))
			}
		}
	}
	find := func(where string, b []byte) {
		p.t.Helper()
		for _, marker := range gone {
			if bytes.Contains(b, marker) {
				p.t.Fatalf("%s has %s, which was purged", where, marker)
			}
		}
	}
	files, err := contentsOf(p.fs)
	if err != nil {
		return err
	}
	for where, content := range files {
		find(where, content)
	}
	packs, release := p.log.acquire()
	defer release()
	for _, of := range packs {
		for e, err := range merged(p.t.Context(), []*pack{of}) {
			if err != nil {
				return err
			}
			find(of.name(), e.value)
		}
	}
	oldest, _ := p.log.Bounds()
	version := func(v *store.Version) {
		if v != nil {
			find(fmt.Sprintf("%s at %d in the log", v.Key, v.Revision), v.Data())
		}
	}
	if err := p.log.Replay(p.t.Context(), oldest, nil, func(c *store.Commit) error {
		for _, r := range c.Records {
			version(r.Old)
			version(r.New)
		}
		return nil
	}); err != nil {
		return err
	}
	c, err := p.log.Checkpoint()
	if err != nil {
		return err
	}
	for v, err := range c.Versions {
		if err != nil {
			return err
		}
		version(v)
	}
	in, err := Inspect(p.t.Context(), "data/past", p.fs)
	if err == nil && len(in.Findings) > 0 {
		err = fmt.Errorf("%+v", in)
	}
	return err
}

// contents are all files of a store. One that the store removes meanwhile, as another one has taken its place, is no
// reason to fail.
func contents(t *testing.T, fs vfs.FS) map[string][]byte {
	t.Helper()
	for attempt := 1; ; attempt++ {
		all, err := contentsOf(fs)
		if err == nil {
			return all
		}
		if attempt == 20 || !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// contentsOf is one attempt of contents.
func contentsOf(fs vfs.FS) (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, dir := range []string{"data", "data/past"} {
		names, err := fs.List(dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			path := dir + "/" + name
			info, err := fs.Stat(path)
			if err != nil {
				return nil, err
			}
			if info.IsDir() {
				continue
			}
			file, err := fs.Open(path)
			if err != nil {
				return nil, err
			}
			all[path], err = io.ReadAll(file)
			if err = errors.Join(err, file.Close()); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// compare compares all versions of all objects, and their changes, with what was written.
func (p *purging) compare() {
	p.t.Helper()
	ctx := context.Background()
	for revision := int64(1); revision <= p.Revision(); revision++ {
		sn, err := p.Snapshot(revision, "/pods")
		if err != nil {
			p.t.Fatal(err)
		}
		for k, all := range p.was {
			last := -1
			for i, v := range all {
				if v.from <= revision {
					last = i
				}
			}
			v, err := p.At(ctx, k, revision)
			listed, _ := sn.Get(k)
			p.same(k, last, v, err, revision, "At")
			err = nil
			if listed != nil && listed.Sidecar.Unreadable != nil {
				listed, err = nil, listed.Sidecar.Unreadable
			}
			p.same(k, last, listed, err, revision, "Snapshot")
		}
	}
	for k, all := range p.was {
		i := len(all) - 1
		err := p.Changes(ctx, k, 0, func(c *store.PastChange) bool {
			if i < 0 || c.Revision != all[i].from || c.Deleted != (all[i].data == "") || c.Time == 0 ||
				c.Purged && c.Old != nil {
				p.t.Fatalf("the change %d of %s is %+v", i, k, c)
			}
			i--
			err := error(nil)
			if c.Purged {
				err = &store.PurgedError{}
			}
			if i >= 0 || c.Old != nil || c.Purged {
				p.same(k, i, c.Old, err, c.Revision-1, "Changes")
			}
			return true
		})
		if err != nil || i >= 0 {
			p.t.Fatalf("%s: %v, %d changes are missing", k, err, i+1)
		}
	}
}

// same compares a version of a key, the i-th, with one that was read; i is -1 if the key had none.
func (p *purging) same(k store.Key, i int, have *store.Version, err error, revision int64, by string) {
	p.t.Helper()
	want := ""
	if i >= 0 {
		want = p.was[k][i].data
	}
	end := p.endedBy(k, max(i, 0))
	isGone, mayBe := want != "" && end > 0 && end <= p.gone[k], k == p.perhaps && end > 0 && end <= p.perhapsUntil
	switch purged := errors.As(err, new(*store.PurgedError)); {
	case purged && want != "" && (isGone || mayBe):
	case purged || err != nil || isGone:
		p.t.Fatalf("%s: %s as of %d is %v, %v; it was %q, and is purged: %t", by, k, revision, have, err, want, isGone)
	case want == "" && have == nil:
	case have == nil || string(have.Data()) != want:
		p.t.Fatalf("%s: %s as of %d is %v, should be %q", by, k, revision, have, want)
	}
}

// restart opens the store on what a crash has left, or on the same files.
func (p *purging) restart(fs vfs.FS) {
	p.t.Helper()
	p.Close()
	p.fs = fs
	p.open(fs, unlimited())
}

// What is purged is in no file and is not read, and all else is as it was: while packs are written and merged, objects
// are deleted and made again, the store is opened again, and power is cut.
//
// SPEC: BEY-4, STORE-1
func TestPurge(t *testing.T) {
	purged, merges := 0, 0
	for seed := range uint64(30) {
		crashable := vfs.NewCrashableMem()
		p := newPurging(t, seed, crashable)
		for range 4 {
			p.change(20 + p.rng.IntN(120))
			switch p.rng.IntN(4) {
			case 0:
				p.restart(crashable)
			case 1:
				crashable = crashable.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[p.rng.IntN(3)],
					RNG: rand.New(rand.NewPCG(seed, 22))})
				p.restart(crashable)
			case 2:
				for range 20 { // enough to be merged
					p.change(1 + p.rng.IntN(3))
					if err := p.log.Pack(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			p.purge(key(p.rng.IntN(7))) // one of them was never there
			if p.rng.IntN(2) == 0 {
				p.purge(key(p.rng.IntN(7)))
			}
			p.compare()
		}
		purged += p.purged
		for _, pack := range p.log.packs {
			if pack.Until-pack.Since > 100 {
				merges++
			}
		}
	}
	if purged < 300 || merges < 5 {
		t.Errorf("%d versions were purged, and %d packs are large", purged, merges)
	}
}

// Without the purge the files have the versions: TestPurge finds them where they are.
//
// SPEC: BEY-4
func TestUnpurgedIsFound(t *testing.T) {
	p := newPurging(t, 1, vfs.NewMem())
	p.change(200)
	if err := p.log.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.change(10)
	in := map[string]bool{} // kinds of files
	markers, found := 0, 0
	for k := range p.was {
		for i, v := range p.was[k] {
			if p.endedBy(k, i) == 0 || v.data == "" {
				continue
			}
			markers++
			for path, content := range contents(t, p.fs) {
				if bytes.Contains(content, markerOf(v.data)) {
					in[path[strings.LastIndexByte(path, '.')+1:]] = true
					found++
				}
			}
		}
	}
	if found < markers || !in["pack"] || !in["log"] {
		t.Errorf("%d markers are found %d times, in %v", markers, found, in)
	}
}

// interruptions is a file system that does something before each operation that changes a file.
type interruptions struct {
	mu   sync.Mutex
	then func(op errorfs.Op) error
}

func (i *interruptions) MaybeError(op errorfs.Op) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.then == nil || op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	return i.then(op)
}

func (i *interruptions) String() string { return "interruptions" }

func (i *interruptions) set(then func(op errorfs.Op) error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.then = then
}

// A crash at any operation of a purge leaves a store that opens, with nothing else lost, and the purge can be repeated.
//
// SPEC: BEY-4, STORE-1
func TestPurgeCrashes(t *testing.T) {
	cuts := 0
	for seed := range 3 {
		mem, inter := vfs.NewCrashableMem(), &interruptions{}
		p := newPurging(t, uint64(seed), errorfs.Wrap(mem, inter))
		p.change(60)
		if err := p.log.Pack(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.change(10)
		var left []*vfs.MemFS
		inter.set(func(errorfs.Op) error {
			left = append(left, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * ((len(left) + seed) % 3),
				RNG: rand.New(rand.NewPCG(uint64(seed), uint64(len(left))))}))
			return nil
		})
		k := key(2)
		p.perhaps, p.perhapsUntil = k, p.Revision()
		if _, err := p.Purge(t.Context(), k, false); err != nil {
			t.Fatal(err)
		}
		inter.set(nil)
		p.Close()
		cuts += len(left)
		for _, fs := range left {
			after := *p
			again := *p.kept
			after.kept, after.fs, after.gone = &again, fs, map[store.Key]int64{}
			after.open(fs, unlimited())
			after.compare()
			after.purge(k)
			after.compare()
			after.Close()
		}
	}
	if cuts < 60 {
		t.Errorf("power was cut %d times", cuts)
	}
}

// If an operation of a purge fails, the purge fails, nothing else is lost, and it can be repeated, after a start if the
// log has failed.
//
// SPEC: BEY-4, STORE-1
func TestPurgeFails(t *testing.T) {
	failed, survived := 0, 0
	for n := 1; ; n++ {
		mem, inter := vfs.NewMem(), &interruptions{}
		p := newPurging(t, 5, errorfs.Wrap(mem, inter))
		p.change(150)
		if err := p.log.Pack(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.change(20)
		k, left := key(2), n
		broken := errors.New("this disk does not")
		inter.set(func(errorfs.Op) error {
			if left--; left == 0 {
				return broken
			}
			return nil
		})
		p.perhaps, p.perhapsUntil = k, p.Revision()
		_, err := p.Purge(t.Context(), k, false)
		inter.set(nil)
		if left > 0 && err == nil {
			p.Close()
			break // there are no more operations
		}
		// What only removes a file that was not finished may fail unnoticed.
		if err != nil {
			failed++
		}
		if p.Healthy() == nil {
			survived++
			p.change(3)
		} else {
			p.restart(mem)
		}
		p.compare()
		p.purge(k)
		p.compare()
		p.Close()
	}
	if failed < 10 || survived < 5 {
		t.Errorf("%d purges have failed, and %d of the stores went on", failed, survived)
	}
}

// What others read while an object is purged is right, or an error that says why it is not there.
//
// SPEC: BEY-4
func TestPurgeBesideReaders(t *testing.T) {
	p := newPurging(t, 9, vfs.NewMem())
	p.change(400)
	if err := p.log.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.gone, p.perhaps, p.perhapsUntil = nil, key(3), p.Revision()
	revision := p.Revision()
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	var reads [4]int
	started := make(chan struct{}, len(reads))
	wrong := make(chan string, len(reads))
	for i := range reads {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			for ; ctx.Err() == nil; reads[i]++ {
				k, at := key(rng.IntN(6)), 1+rng.Int64N(revision)
				want := ""
				for _, v := range p.was[k] {
					if v.from <= at {
						want = v.data
					}
				}
				v, err := p.At(ctx, k, at)
				have := ""
				if v != nil {
					have = string(v.Data())
				}
				purged := errors.As(err, new(*store.PurgedError))
				if !errors.Is(err, context.Canceled) && !(purged && k == p.perhaps) && (err != nil || have != want) {
					wrong <- fmt.Sprintf("%s as of %d is %q, %v; it was %q", k, at, have, err, want)
					return
				}
				if reads[i] == 0 {
					started <- struct{}{}
				}
			}
		})
	}
	for range reads {
		select {
		case <-started:
		case text := <-wrong:
			t.Fatal(text)
		case <-time.After(20 * time.Second):
			t.Fatal("nothing is read")
		}
	}
	for range 5 {
		if _, err := p.Purge(t.Context(), p.perhaps, false); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	readers.Wait()
	select {
	case text := <-wrong:
		t.Fatal(text)
	default:
	}
}

// A purge waits for those who read a file that has what it purges.
//
// SPEC: BEY-4
func TestPurgeWaitsForReaders(t *testing.T) {
	p := newPurging(t, 4, vfs.NewMem())
	p.change(100)
	if err := p.log.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, done := p.log.acquire()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.log.Purge(ctx, "", key(1), p.Revision(), false); !errors.Is(err, context.Canceled) {
		t.Errorf("without time a purge is %v", err)
	}
	ended := make(chan error)
	go func() {
		_, _, err := p.log.Purge(t.Context(), "", key(1), p.Revision(), false)
		ended <- err
	}()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		p.log.mu.Lock()
		leaving := len(p.log.leaving)
		p.log.mu.Unlock()
		if leaving > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no pack is rewritten")
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("a purge has ended beside a reader: %v", err)
	default:
	}
	done()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a purge does not end")
	}
}

// Versions that are encrypted are purged like any other one, also while no key decrypts them.
//
// SPEC: BEY-4, STORE-5
func TestPurgeSealed(t *testing.T) {
	fs := vfs.NewMem()
	o := unlimited()
	o.Sealing = inverted{}
	k := newKept(t, fs, o)
	secret := store.Key{Resource: "/secrets", Name: "n/s"}
	for i := range 5 {
		k.put(secret, fmt.Sprintf("password %d", i))
	}
	if err := k.log.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.Close()
	o.Sealing = nil
	k.open(fs, o)
	if p, err := k.Purge(t.Context(), secret, false); err != nil || p.Versions != 4 {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, p := range k.log.packs {
		for e, err := range merged(t.Context(), []*pack{p}) {
			if err != nil {
				t.Fatal(err)
			}
			var ch change
			if e.key[0] == sortChange && (cbor.Unmarshal(e.value, &ch) != nil || ch.Data != nil || ch.Sealed) {
				t.Errorf("an entry is %+v", ch)
			}
		}
	}
	for path, content := range contents(t, fs) {
		for i := range 4 {
			if bytes.Contains(content, invert(nil, fmt.Appendf(nil, "password %d", i))) {
				t.Errorf("%s has the password %d", path, i)
			}
		}
	}
}

// Of types whose past is not kept, and without a past, the history of watches is purged.
//
// SPEC: BEY-4
func TestPurgeWithoutPast(t *testing.T) {
	for _, without := range []string{"/pods", "all"} {
		fs, marker := vfs.NewMem(), "bG9uZyBhbmQgcmFuZG9t"
		k := &kept{t: t, was: map[store.Key][]was{}}
		if without == "all" {
			log, err := filelog.Open("data", filelog.Options{FS: fs})
			if err != nil {
				t.Fatal(err)
			}
			k.open(vfs.NewMem(), unlimited()) // for what the configuration has besides the log
			k.Close()
			k.config.Log = log
			if k.Store, err = store.Open(k.config); err != nil {
				t.Fatal(err)
			}
			s := k.Store
			t.Cleanup(func() { s.Close() })
		} else {
			o := unlimited()
			o.Without = []string{without}
			k.open(fs, o)
		}
		k.put(key(1), marker)
		first := k.Revision()
		k.put(key(1), "another one")
		k.put(key(2), "of another object")
		k.put(key(1), "")
		p, err := k.Purge(t.Context(), key(1), false)
		if err != nil || p.Versions != 2 || p.Live != nil {
			t.Fatalf("%+v, %v", p, err)
		}
		if v, err := k.At(t.Context(), key(1), first); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("what was purged is %v, %v", v, err)
		}
		if c, err := k.Watch(t.Context(), "/pods", "", first-1); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("a watch from before: %v, %v", c, err)
		}
		names, err := fs.List("data")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if info, err := fs.Stat("data/" + name); err == nil && !info.IsDir() &&
				bytes.Contains(read(t, fs, "data/"+name), []byte(marker)) {
				t.Errorf("%s has what was purged", name)
			}
		}
		if p, err := k.Purge(t.Context(), key(7), false); err != nil || p.Changes != 0 || p.Until != 0 {
			t.Errorf("an object that was never there: %+v, %v", p, err)
		}
	}
}

// The snapshot that is kept for the next pages of a list has nothing that was purged, also if it was made meanwhile.
//
// SPEC: BEY-4, LIST-4
func TestPurgeForgetsSnapshots(t *testing.T) {
	p := newPurging(t, 6, vfs.NewMem())
	p.put(key(1), "password")
	then := p.Revision()
	p.put(key(1), "none")
	if err := p.log.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.purge(key(2)) // of nothing: the history does not reach back any more
	p.put(key(2), "first-of-2")
	p.put(key(2), "second-of-2")
	p.purge(key(2))
	for range 2 {
		if sn, err := p.Snapshot(then, "/pods"); err != nil {
			t.Fatal(err)
		} else if v, _ := sn.Get(key(1)); v == nil || string(v.Data()) != "password" {
			t.Fatalf("before the purge it was %v", v)
		}
	}
	p.purge(key(1))
	sn, err := p.Snapshot(then, "/pods")
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := sn.Get(key(1)); v == nil || v.Sidecar.Unreadable == nil || v.Len() > 0 {
		t.Errorf("after the purge it was %v", v)
	}
}
