package past

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

// kept is a store with a past, and what it was told.
type kept struct {
	*store.Store
	t      *testing.T
	log    *Log
	config store.Config
	// was has, for each key and in the order of revisions, what it was from a revision on; "": it was not there.
	was map[store.Key][]was
}

type was struct {
	from int64
	data string
}

func (k *kept) open(fs vfs.FS, o Options) {
	k.t.Helper()
	log, err := filelog.Open("data", filelog.Options{FS: fs, SegmentBytes: 8 << 10, Sealing: o.Sealing})
	if err != nil {
		k.t.Fatal(err)
	}
	if o.FS == nil {
		o.FS = fs
	}
	if o.PackBytes == 0 {
		o.PackBytes = 4 << 10
	}
	if k.log, err = Open("data/past", log, o); err != nil {
		k.t.Fatal(err)
	}
	k.config.Log, k.config.Describe, k.config.Sealing = k.log, storetest.Describe, o.Sealing
	// Little is in memory and in the log, so that all else is in the past.
	k.config.MemoryHistoryBytes, k.config.CompactBytes, k.config.HistoryBytes = 2<<10, 12<<10, 6<<10
	if k.Store, err = store.Open(k.config); err != nil {
		k.t.Fatal(err)
	}
	s := k.Store
	k.t.Cleanup(func() { s.Close() })
}

func newKept(t *testing.T, fs vfs.FS, o Options) *kept {
	k := &kept{t: t, was: map[store.Key][]was{}}
	k.open(fs, o)
	return k
}

func (k *kept) put(key store.Key, data string) {
	k.t.Helper()
	ch := store.Change{Key: key}
	if data != "" {
		ch.Data = []byte(data)
	}
	r, err := k.Commit(context.Background(), nil, []store.Change{ch})
	if err != nil {
		k.t.Fatal(err)
	}
	k.was[key] = append(k.was[key], was{r.Of(0), data})
}

// write makes random changes of a few objects.
func (k *kept) write(rng *rand.Rand, n int) {
	k.t.Helper()
	for range n {
		data := fmt.Sprintf("%d %s", rng.IntN(1e6), strings.Repeat("and something that stays ", 1+rng.IntN(12)))
		if rng.IntN(6) == 0 {
			data = ""
		}
		k.put(key(rng.IntN(10)), data)
	}
}

func key(i int) store.Key { return store.Key{Resource: "/pods", Name: fmt.Sprint("n/", i)} }

// checkAt compares what all objects were at a revision, and says whether that is known.
func (k *kept) checkAt(revision int64) bool {
	k.t.Helper()
	for key, versions := range k.was {
		want := ""
		for _, v := range versions {
			if v.from <= revision {
				want = v.data
			}
		}
		v, err := k.At(context.Background(), key, revision)
		if errors.Is(err, store.ErrCompacted) {
			return false
		}
		if err != nil {
			k.t.Fatalf("%s as of %d: %v", key, revision, err)
		}
		have := ""
		if v != nil {
			have = string(v.Data())
		}
		if have != want {
			k.t.Fatalf("%s as of %d is %q, should be %q", key, revision, have, want)
		}
	}
	return true
}

// checkAll compares what all objects were, from PastSince on, and that nothing is known of before. It returns
// PastSince.
func (k *kept) checkAll() int64 {
	k.t.Helper()
	since := k.PastSince("/pods")
	for revision := int64(1); revision <= k.Revision(); revision++ {
		known := k.checkAt(revision)
		since = max(since, k.PastSince("/pods")) // the history is trimmed at any time
		if known != (revision >= since) {
			k.t.Fatalf("what was at %d is known: %t; it should be since %d", revision, known, since)
		}
	}
	return since
}

func unlimited() Options { return Options{Retention: math.MaxInt64, Bytes: math.MaxInt64} }

// What is older than the retention, or too much, is removed, and all else is kept.
//
// SPEC: BEY-4
func TestRetention(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	o := Options{Retention: time.Hour, Bytes: math.MaxInt64, Now: func() time.Time { return time.Unix(0, now.Load()) }}
	k := &kept{t: t, was: map[store.Key][]was{}}
	k.config.Now = o.Now
	fs := vfs.NewMem()
	k.open(fs, o)
	for range 8 {
		k.write(rng, 100)
		now.Add(int64(20 * time.Minute))
	}
	if err := k.log.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	since := k.checkAll()
	if since < 300 || since > 600 {
		t.Errorf("of 800 changes in 160 minutes those after %d are kept for an hour", since)
	}
	size := int64(0)
	for _, p := range k.log.packs {
		size += p.size
	}
	k.Close()
	o.Bytes = size / 2
	k.open(fs, o)
	k.write(rng, 50)
	if err := k.log.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := k.checkAll(); after <= since || after > 840 {
		t.Errorf("with half the bytes it is known since %d what there was, before since %d", after, since)
	}
	now.Add(int64(2 * time.Hour))
	for range 2 { // the second finds that there is nothing left to remove
		if err := k.log.Pack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if k.checkAll(); k.log.Since("/pods") < 850 {
		t.Errorf("after two hours without a change packs have what there was since %d", k.log.Since("/pods"))
	}
	k.write(rng, 20)
	k.checkAll()
}

// A clock that is set back, or forward, removes nothing before its time: a change is kept until the retention has
// passed by the time that was written with it.
//
// SPEC: BEY-4
func TestClockIsSet(t *testing.T) {
	removed := 0
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 11))
		var now atomic.Int64
		now.Store(time.Now().UnixNano())
		o := Options{Retention: time.Hour, Bytes: math.MaxInt64,
			Now: func() time.Time { return time.Unix(0, now.Load()) }}
		k := &kept{t: t, was: map[store.Key][]was{}}
		k.config.Now = o.Now
		k.open(vfs.NewMem(), o)
		times, newest := map[int64]int64{}, int64(0)
		for range 24 {
			before := k.Revision()
			k.write(rng, 20+rng.IntN(40))
			for r := before + 1; r <= k.Revision(); r++ {
				times[r] = now.Load()
			}
			if err := k.log.Pack(t.Context()); err != nil {
				t.Fatal(err)
			}
			newest = max(newest, now.Load())
			from := k.Revision()
			for r, at := range times {
				if at >= newest-int64(time.Hour) {
					from = min(from, r-1)
				}
			}
			if since := k.PastSince("/pods"); since > from {
				t.Fatalf("seed %d: it is known since %d what there was, should be since %d", seed, since, from)
			}
			steps := []time.Duration{time.Minute, 10 * time.Minute, 25 * time.Minute, 40 * time.Minute, -time.Hour}
			now.Add(int64(steps[rng.IntN(len(steps))]))
		}
		if k.PastSince("/pods") > 1 {
			removed++
		}
		for range 20 {
			k.checkAt(1 + rng.Int64N(k.Revision()))
		}
	}
	if removed < 4 {
		t.Errorf("in %d of 12 histories something was removed", removed)
	}
}

// After a time without a past what was before is not known, or it is known rightly; what comes later is known.
//
// SPEC: BEY-4
func TestGap(t *testing.T) {
	for _, packed := range []bool{true, false} {
		rng, fs := rand.New(rand.NewPCG(8, 9)), vfs.NewMem()
		k := newKept(t, fs, unlimited())
		k.write(rng, 300)
		if err := k.log.Pack(t.Context()); err != nil {
			t.Fatal(err)
		}
		until := k.log.Until()
		k.Close()
		files, err := filelog.Open("data", filelog.Options{FS: fs, SegmentBytes: 8 << 10})
		if err != nil {
			t.Fatal(err)
		}
		k.config.Log = files
		if k.Store, err = store.Open(k.config); err != nil {
			t.Fatal(err)
		}
		for begun := time.Now(); ; {
			k.write(rng, 20)
			if oldest, _ := files.Bounds(); oldest > until {
				break
			}
			if time.Since(begun) > time.Minute {
				t.Fatal("the log is not compacted")
			}
		}
		k.Close()
		k.open(fs, unlimited())
		from := k.Revision()
		known := 0
		for revision := int64(1); revision < from; revision++ {
			if k.checkAt(revision) { // or it is not known
				known++
			}
		}
		if sn, err := k.Snapshot(until/2, "/pods"); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("a list from before the gap: %v, %v", sn, err)
		}
		k.write(rng, 100)
		if packed {
			if err := k.log.Pack(t.Context()); err != nil {
				t.Fatal(err)
			}
			if since := k.checkAll(); since <= until || since > from {
				t.Errorf("after a gap from %d it is known since %d what there was, should be before %d", until, since, from)
			}
		}
		for revision := from; revision <= k.Revision(); revision++ {
			if !k.checkAt(revision) {
				t.Errorf("it is not known what there was at %d, after the gap", revision)
			}
		}
		if known == 0 || known == int(from)-1 {
			t.Errorf("%d of %d revisions before the past began anew are known", known, from)
		}
	}
}

// Packs that were replaced, and are there again after a crash, are removed, and change nothing; if one is missing
// between others, the past begins behind it.
//
// SPEC: BEY-4
func TestLeftovers(t *testing.T) {
	rng, fs := rand.New(rand.NewPCG(8, 10)), vfs.NewMem()
	k := newKept(t, fs, unlimited())
	before := map[string][]byte{}
	for n := 1; n > len(before)-mergedAtOnce; n = len(k.log.packs) { // until there are fewer
		k.write(rng, 10)
		if err := k.log.Pack(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, p := range k.log.packs {
			before[p.name()] = read(t, fs, "data/past/"+p.name())
		}
		if len(before) > 200 {
			t.Fatal("nothing is merged")
		}
	}
	k.Close()
	files := func() []string {
		names, err := fs.List("data/past")
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		return names
	}
	merged := files()
	if len(merged) >= len(before) {
		t.Fatalf("%d packs, and before a merge %d", len(merged), len(before))
	}
	for name, b := range before {
		write(t, fs, "data/past/"+name, b)
	}
	write(t, fs, "data/past/"+merged[0]+".tmp", []byte("half of one"))
	k.open(fs, unlimited())
	if since := k.checkAll(); since != 1 {
		t.Errorf("with what was replaced it is known since %d what there was", since)
	}
	if have := files(); !slices.Equal(have, merged) {
		t.Errorf("packs are %q, should be %q", have, merged)
	}
	for range 3 {
		k.write(rng, 10)
		if err := k.log.Pack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	k.Close()
	names := files()
	gone := names[len(names)-2]
	if err := fs.Remove("data/past/" + gone); err != nil {
		t.Fatal(err)
	}
	k.open(fs, unlimited())
	var h header
	if _, err := fmt.Sscanf(names[len(names)-1], "%d-", &h.Since); err != nil {
		t.Fatal(err)
	}
	if since := k.log.Since("/pods"); since != h.Since {
		t.Errorf("without %s it is known since %d what there was, should be since %d", gone, since, h.Since)
	}
	k.checkAll()
	if have := files(); !slices.Equal(have, names[len(names)-1:]) {
		t.Errorf("packs are %q, should be %q", have, names[len(names)-1:])
	}
}

// Of some types nothing is kept; of the others everything is.
//
// SPEC: BEY-4
func TestWithout(t *testing.T) {
	rng, fs := rand.New(rand.NewPCG(5, 6)), vfs.NewMem()
	o := unlimited()
	o.Without = []string{"/pods"}
	k := newKept(t, fs, o)
	other := store.Key{Resource: "/services", Name: "n/s"}
	k.put(other, "first")
	first := k.Revision()
	for range 100 { // until the history, which is trimmed at any time, does not reach back
		k.write(rng, 300)
		if k.PastSince("/pods") > first {
			break
		}
	}
	k.put(other, "second")
	v, err := k.At(t.Context(), other, first)
	if err != nil || string(v.Data()) != "first" {
		t.Fatalf("a Service was %v, %v", v, err)
	}
	if _, err := k.At(t.Context(), key(1), first); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("a Pod was: %v", err)
	}
	if err := k.log.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	since := k.Revision()
	k.Close()
	k.open(fs, unlimited())
	k.write(rng, 300)
	if err := k.log.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	delete(k.was, other)
	if have := k.checkAll(); have != since {
		t.Errorf("it is known since %d what Pods were, should be since %d", have, since)
	}
}

// Whatever a crash leaves, nothing that was acknowledged is missing in the past.
//
// SPEC: BEY-4, STORE-1
func TestCrash(t *testing.T) {
	merged := 0
	for seed := range uint64(40) {
		rng, fs := rand.New(rand.NewPCG(seed, 7)), vfs.NewCrashableMem()
		k := newKept(t, fs, unlimited())
		for range 3 {
			k.write(rng, 40+rng.IntN(320))
			fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[rng.IntN(3)],
				RNG: rand.New(rand.NewPCG(seed, 8))})
			k.Close()
			k.open(fs, unlimited())
			if since := k.checkAll(); since != 1 {
				t.Fatalf("seed %d: it is known since %d what there was", seed, since)
			}
		}
		if len(k.log.packs) > 0 && k.log.packs[0].Raw > 16<<10 {
			merged++
		}
	}
	if merged < 10 {
		t.Errorf("in %d of 40 histories packs were merged", merged)
	}
}

// interrupted is a log that calls a function when it is asked how far its past reaches.
type interrupted struct {
	*Log
	then func()
}

func (l *interrupted) Until() int64 {
	until := l.Log.Until()
	if then := l.then; then != nil {
		l.then = nil
		then()
	}
	return until
}

// While a list reads the past, packs may be written, and the log may lose what is in them: it does not fail.
//
// SPEC: BEY-4
func TestPackedMeanwhile(t *testing.T) {
	rng, fs := rand.New(rand.NewPCG(6, 9)), vfs.NewMem()
	k := newKept(t, fs, unlimited())
	k.write(rng, 300)
	k.Close()
	files, err := filelog.Open("data", filelog.Options{FS: fs, SegmentBytes: 8 << 10})
	if err != nil {
		t.Fatal(err)
	}
	o := unlimited()
	o.FS, o.PackBytes = fs, 4<<10
	if k.log, err = Open("data/past", files, o); err != nil {
		t.Fatal(err)
	}
	log := &interrupted{Log: k.log}
	k.config.Log = log
	if k.Store, err = store.Open(k.config); err != nil {
		t.Fatal(err)
	}
	s := k.Store
	t.Cleanup(func() { s.Close() })
	for _, revision := range []int64{20, 150, k.Revision() - 1} {
		log.then = func() {
			until := k.log.Until()
			for begun := time.Now(); ; {
				k.write(rng, 20)
				if err := k.log.Pack(t.Context()); err != nil {
					t.Fatal(err)
				}
				if oldest, _ := k.log.Bounds(); oldest > max(until, revision) {
					return
				}
				if time.Since(begun) > time.Minute {
					t.Fatal("the log keeps what is in packs")
				}
			}
		}
		sn, err := k.Snapshot(revision, "/pods")
		if err != nil || log.then != nil {
			t.Fatalf("as of %d: %v; packs were written: %t", revision, err, log.then == nil)
		}
		for key, versions := range k.was {
			want := ""
			for _, v := range versions {
				if v.from <= revision {
					want = v.data
				}
			}
			if v, ok := sn.Get(key); ok != (want != "") || ok && string(v.Data()) != want {
				t.Errorf("as of %d %s is %v, should be %q", revision, key, v, want)
			}
		}
	}
}

// Each byte of a pack that is another one is noticed, and each that is missing.
//
// SPEC: BEY-4
func TestDamage(t *testing.T) {
	rng, fs := rand.New(rand.NewPCG(1, 9)), vfs.NewMem()
	k := newKept(t, fs, unlimited())
	k.write(rng, 40)
	if err := k.log.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	name := k.log.packs[0].name()
	k.Close()
	whole := read(t, fs, "data/past/"+name)
	l := &Log{o: Options{FS: vfs.NewMem()}, dir: "past", ctx: t.Context()}
	readable := func(b []byte) error {
		write(t, l.o.FS, "past/"+name, b)
		p, err := l.openPack(name)
		if err != nil {
			return err
		}
		defer p.release() //nolint:errcheck // it was only read
		for _, err := range merged(t.Context(), []*pack{p}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := l.o.FS.MkdirAll("past", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := readable(whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		b := slices.Clone(whole)
		b[i] ^= 1 << rng.IntN(8)
		if readable(b) == nil {
			t.Errorf("nobody notices that the byte %d of %d is another one", i, len(whole))
		}
		if readable(whole[:i]) == nil {
			t.Errorf("nobody notices that there are %d of %d bytes", i, len(whole))
		}
	}
	write(t, fs, "data/past/"+name, whole[:len(whole)-1])
	log, err := filelog.Open("data", filelog.Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	o := unlimited()
	o.FS = fs
	if _, err = Open("data/past", log, o); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("a damaged pack is opened: %v", err)
	}
}

func read(t *testing.T, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil && len(b) > 0 {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(slices.Clone(b)); err != nil { // the file system may change what it is given
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// On a disk that is full for packs the log goes on without them, and does not grow; the past begins anew later.
//
// SPEC: BEY-4, STORE-1
func TestFull(t *testing.T) {
	rng, fs := rand.New(rand.NewPCG(2, 9)), vfs.NewMem()
	var full atomic.Bool
	o := unlimited()
	o.FS = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
	k := newKept(t, fs, o)
	k.write(rng, 200)
	full.Store(true)
	from := k.Revision()
	k.write(rng, 600)
	if err := k.log.Pack(t.Context()); err == nil {
		t.Fatal("a pack is written on a full disk")
	}
	if s := k.log.Stats(); s.Failures == 0 || s.Failing.IsZero() {
		t.Errorf("on a full disk the figures are %+v", s)
	}
	k.write(rng, 100)
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if oldest, _ := k.log.Bounds(); oldest > from {
			break
		}
		if k.write(rng, 1); time.Since(begun) > time.Minute {
			t.Fatal("the log waits for packs that cannot be written")
		}
	}
	full.Store(false)
	if err := k.log.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := k.log.Stats(); s.Failures == 0 || !s.Failing.IsZero() || s.Packs == 0 || s.Bytes == 0 ||
		time.Since(s.Oldest) > time.Hour || s.Until != k.log.Until() {
		t.Errorf("with room again the figures are %+v", s)
	}
	if since := k.checkAll(); since <= from || since > k.Revision() {
		t.Errorf("it is known since %d what there was", since)
	}
}

// The log has to keep little for packs also where objects are only created, which are in no pack themselves, where
// nothing of a type is kept, and where all changes come while a pack is being written.
//
// SPEC: BEY-4
func TestLogStaysShort(t *testing.T) {
	for _, without := range [][]string{nil, {"/pods"}} {
		for _, slow := range []bool{false, true} {
			fs, all := vfs.NewMem(), make(chan struct{})
			o := unlimited()
			o.Without = without
			o.FS = errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if slow && op.Kind == errorfs.OpCreate {
					<-all
				}
				return nil
			}))
			k := newKept(t, fs, o)
			release := sync.OnceFunc(func() { close(all) })
			t.Cleanup(release) // before the store is closed, which waits for the pack
			for i := range 120 {
				k.put(store.Key{Resource: "/pods", Name: fmt.Sprint("n/", i)}, strings.Repeat("x", 2000))
			}
			packs := k.log.Stats().Packs
			release()
			if slow && packs > 0 {
				t.Fatalf("there are %d packs, and none could be made", packs)
			}
			for begun := time.Now(); k.log.Until() < 60; time.Sleep(time.Millisecond) {
				if time.Since(begun) > 20*time.Second {
					t.Fatalf("without %q, slow %t: the log keeps what is behind %d of %d",
						without, slow, k.log.Until(), k.Revision())
				}
			}
		}
	}
}

// What is encrypted in the log is so in packs, and readable while there is a key.
//
// SPEC: BEY-4, STORE-5
func TestSealed(t *testing.T) {
	fs := vfs.NewMem()
	o := unlimited()
	o.Sealing = inverted{}
	k := newKept(t, fs, o)
	secret := store.Key{Resource: "/secrets", Name: "n/s"}
	const text = "the password is a secret of the first version"
	k.put(secret, text)
	first := k.Revision()
	k.put(secret, "another one")
	for range 400 {
		k.put(key(1), strings.Repeat("filler ", 20))
	}
	k.put(secret, "a third one")
	if err := k.log.Pack(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.checkAt(first)
	names, err := fs.List("data/past")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, p := range k.log.packs {
		for e, err := range merged(t.Context(), []*pack{p}) {
			if err != nil || bytes.Contains(e.value, []byte("password")) {
				t.Fatalf("an entry is %q, %v", e.value, err)
			}
		}
	}
	k.Close()
	o.Sealing = nil
	k.open(fs, o)
	v, err := k.At(t.Context(), secret, first)
	if err != nil || !v.Sidecar.Undecrypted || v.Sidecar.Unreadable == nil ||
		bytes.Contains(v.Data(), []byte("password")) {
		t.Errorf("without a key a Secret was %q, %v", v.Data(), err)
	}
}

// inverted encrypts Secrets by inverting bytes.
type inverted struct{}

func invert(dst, b []byte) []byte {
	for _, c := range b {
		dst = append(dst, ^c)
	}
	return dst
}

func (inverted) Seal(_ context.Context, resource string) (*store.Seal, error) {
	if resource != "/secrets" {
		return nil, nil
	}
	return &store.Seal{ID: 1, Append: func(dst []byte, scope string, k store.Key, plain []byte) []byte {
		return invert(append(dst, scope+k.String()+"|"...), plain)
	}}, nil
}

func (inverted) Open(_ context.Context, scope string, k store.Key, sealed []byte) ([]byte, uint32, error) {
	inside, ok := bytes.CutPrefix(sealed, []byte(scope+k.String()+"|"))
	if !ok {
		return nil, 0, errors.New("it is bound to something else")
	}
	return invert(nil, inside), 1, nil
}

func (inverted) Current(resource string) (uint32, bool) {
	if resource == "/secrets" {
		return 1, true
	}
	return 0, true
}

// The revision of a moment is that of the newest commit whose time is not after it, also where the clock was set back,
// and after packs were merged.
//
// SPEC: BEY-4
func TestRevisionAt(t *testing.T) {
	var now atomic.Int64 // the log reads the clock, too
	now.Store(1_900_000_000e9)
	k := &kept{t: t, was: map[store.Key][]was{}}
	k.config.Now = func() time.Time { return time.Unix(0, now.Load()) }
	k.open(vfs.NewMem(), Options{Retention: 1000 * time.Hour, Bytes: 1 << 30, Now: k.config.Now})
	rng := rand.New(rand.NewPCG(11, 1))
	type at struct {
		moment   time.Time
		revision int64
	}
	var commits []at
	for i := range 600 {
		switch {
		case rng.IntN(100) == 0:
			now.Add(-int64(time.Hour))
		case rng.IntN(4) > 0:
			now.Add(rng.Int64N(int64(5 * time.Minute)))
		}
		k.put(key(rng.IntN(10)), fmt.Sprint(i, strings.Repeat(" and more", rng.IntN(20))))
		commits = append(commits, at{k.config.Now(), k.Revision()})
		if i%15 == 0 {
			if err := k.log.Pack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if packs := k.log.Stats().Packs; packs > 25 {
		t.Errorf("%d packs: none were merged", packs)
	}
	asked, compacted := 0, 0
	for range 600 {
		c := commits[rng.IntN(len(commits))]
		moment := c.moment.Add(time.Duration(rng.IntN(3)-1) * time.Duration(rng.IntN(int(time.Minute))))
		want := int64(0)
		for _, c := range commits {
			if !c.moment.After(moment) {
				want = max(want, c.revision)
			}
		}
		have, err := k.RevisionAt(context.Background(), moment)
		if want == 0 && errors.Is(err, store.ErrCompacted) {
			compacted++
			continue
		}
		if err != nil || have != want {
			t.Fatalf("the revision at %v is %d, %v; it should be %d", moment, have, err, want)
		}
		asked++
	}
	if asked < 400 {
		t.Errorf("%d moments were asked for, and %d of them are before the first commit", asked, compacted)
	}
	if _, err := k.RevisionAt(context.Background(), time.Unix(0, 0)); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("the revision before the first commit: %v", err)
	}
}
