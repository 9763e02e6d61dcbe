package backup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/backup/remote"
	"plinth/internal/store"
	"plinth/internal/store/filelog"
)

// clock is a clock that a test sets forward.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
}

// faulty is a bucket whose uploads fail, before or after the object is there.
type faulty struct {
	Bucket
	mu  sync.Mutex
	err func(name string) (before, after error)
	// one is held while an object is written or removed, so that a copy of the bucket is of one moment.
	one sync.Mutex
}

func (f *faulty) Put(ctx context.Context, name string, content io.Reader, create bool) error {
	f.mu.Lock()
	fails := f.err
	f.mu.Unlock()
	var before, after error
	if fails != nil {
		before, after = fails(name)
	}
	if before != nil {
		return before
	}
	f.one.Lock()
	defer f.one.Unlock()
	return errors.Join(f.Bucket.Put(ctx, name, content, create), after)
}

func (f *faulty) Delete(ctx context.Context, name string) error {
	f.one.Lock()
	defer f.one.Unlock()
	return f.Bucket.Delete(ctx, name)
}

// copy copies the directory of the bucket.
func (f *faulty) copy(from, to string) error {
	f.one.Lock()
	defer f.one.Unlock()
	return os.CopyFS(to, os.DirFS(from))
}

func (f *faulty) fail(with func(name string) (before, after error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = with
}

var errBucket = errors.New("the bucket does not answer")

// ship uploads the log of a store, with small chunks.
func (s *served) ship(t testing.TB, b Bucket, c *clock, log io.Writer) *Shipper {
	t.Helper()
	sh, err := s.tryShip(b, c, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sh.Close)
	return sh
}

func (s *served) tryShip(b Bucket, c *clock, log io.Writer) (*Shipper, error) {
	return Ship(context.Background(), Shipping{Bucket: b, URL: "test", Log: s.log, Dir: s.dir, Retention: time.Hour,
		Logger: slog.New(slog.NewTextHandler(log, nil)), Now: c.now, interval: time.Millisecond, runBytes: 4 << 10})
}

// uploaded waits until all is uploaded.
func (s *served) uploaded(t testing.TB, sh *Shipper) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if f := sh.Figures(); f.Revision == s.end() && f.Lag == 0 {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%+v is uploaded of revision %d", f, s.end())
		}
	}
}

func fromBucket(b Bucket, o Restoring) (*Restored, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	return Restore(context.Background(), FromBucket(b, nil), o)
}

// is compares a restored directory with the model as of a revision.
func (s *served) is(t testing.TB, dir string, revision int64) error {
	t.Helper()
	restored, _ := openStore(t, filepath.Join(dir, "store"))
	defer restored.Close()
	have := content(t, restored)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if err := same(have, s.state(revision)); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// What was acknowledged as uploaded is in the bucket, whenever the machine is lost, and while uploads fail or their
// answers are lost: what is restored of a copy of the bucket is the state of a revision that is not before the one that
// was acknowledged, and of each one before it that the backup has.
//
// SPEC: STORE-6
func TestShipped(t *testing.T) {
	s := serve(t, 11)
	bucket := t.TempDir()
	f := &faulty{Bucket: directory(bucket)}
	var clock clock
	sh := s.ship(t, f, &clock, io.Discard)
	rng := rand.New(rand.NewPCG(5, 5))
	var lock sync.Mutex
	f.fail(func(string) (before, after error) {
		lock.Lock()
		defer lock.Unlock()
		switch rng.IntN(12) {
		case 0:
			return errBucket, nil
		case 1:
			return nil, errBucket
		}
		return nil, nil
	})
	bases, merged, older := 0, 0, 0
	for n := range 40 {
		for range 15 {
			s.write(t)
			time.Sleep(time.Duration(s.rng.IntN(600)) * time.Microsecond)
		}
		clock.advance(4 * time.Minute) // so that a checkpoint is due
		if n%2 == 0 {                  // however slow the machine is, some copies have all
			s.uploaded(t, sh)
		}
		acknowledged := sh.Figures().Revision
		lost := t.TempDir()
		if err := f.copy(bucket, lost); err != nil {
			t.Fatal(err)
		}
		l, err := list(t.Context(), directory(lost))
		if err != nil {
			t.Fatal(err)
		}
		bases = max(bases, len(l.bases))
		for _, c := range l.chunks {
			if c.end-c.after > 30 {
				merged++
			}
		}
		if l.end == 0 {
			continue
		}
		dir := filepath.Join(t.TempDir(), "new")
		r, err := fromBucket(directory(lost), Restoring{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if r.At.Revision < acknowledged || r.Next < acknowledged+DefaultBump {
			t.Errorf("%d: revision %d was acknowledged, and %d restored", n, acknowledged, r.At.Revision)
		}
		if err := s.is(t, dir, r.At.Revision); err != nil {
			t.Errorf("%d: at %d: %v", n, r.At.Revision, err)
		}
		at := l.bases
		if len(at) == 0 || n%4 > 0 {
			continue
		}
		for range 5 {
			older++
			revision := at[0].end + s.rng.Int64N(acknowledged-at[0].end+1)
			dir := filepath.Join(t.TempDir(), "new")
			r, err := fromBucket(directory(lost), Restoring{Dir: dir, At: Moment{Revision: revision}})
			if err != nil {
				t.Fatalf("at %d: %v", revision, err)
			}
			if r.Next < acknowledged+DefaultBump {
				t.Errorf("at %d: it goes on above %d, and %d was acknowledged", revision, r.Next, acknowledged)
			}
			if err := s.is(t, dir, revision); err != nil {
				t.Errorf("at %d: %v", revision, err)
			}
		}
	}
	if bases < 2 || merged < 10 || older < 20 {
		t.Errorf("%d checkpoints at one time, %d merged chunks, %d older states", bases, merged, older)
	}
	f.fail(nil)
	s.uploaded(t, sh)
}

// damaged is a bucket one object of which is another one.
type damaged struct {
	Bucket
	name    string
	content []byte // nil: it is missing
	read    map[string]bool
}

func (d damaged) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	d.read[name] = true
	switch {
	case name != d.name:
		return d.Bucket.Get(ctx, name)
	case d.content == nil:
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(d.content)), nil
}

func (d damaged) List(ctx context.Context, prefix string) ([]remote.Item, error) {
	items, err := d.Bucket.List(ctx, prefix)
	return slices.DeleteFunc(items, func(i remote.Item) bool { return i.Name == d.name && d.content == nil }), err
}

// A bucket in which an object is missing, or is another one, or cut off anywhere, gives an error that says so, or the
// newest state of which the names of its objects tell: only what was uploaded last can be missing without a trace.
//
// SPEC: STORE-6
func TestDamagedBucket(t *testing.T) {
	s := serve(t, 12)
	bucket := directory(t.TempDir())
	var clock clock
	// A checkpoint, and chunks after it: one that is under way may come after them.
	for follow, deadline := 0, time.Now().Add(time.Minute); follow < 2; {
		if time.Now().After(deadline) {
			t.Fatalf("there are %q", namesOf(t, bucket))
		}
		sh := s.ship(t, bucket, &clock, io.Discard)
		for range 3 {
			for range 8 {
				s.write(t)
			}
			s.uploaded(t, sh)
		}
		sh.Close()
		l, err := list(t.Context(), bucket)
		if err != nil {
			t.Fatal(err)
		}
		if base := l.base(Moment{}).end; base > 0 {
			chunks, _ := l.follow(base, func(*object) bool { return false })
			follow = len(chunks)
		} else {
			clock.advance(20 * time.Minute) // so that a checkpoint is due
		}
	}
	names := namesOf(t, bucket)
	newest := names[len(names)-2] // before owner.json
	refused, earlier, whole := 0, 0, 0
	read := map[string]bool{} // what is read of the bucket as it is
	if _, err := fromBucket(damaged{bucket, "", nil, read},
		Restoring{Dir: filepath.Join(t.TempDir(), "new")}); err != nil {
		t.Fatal(err)
	}
	check := func(what, name string, content []byte) {
		t.Helper()
		b := damaged{bucket, name, content, map[string]bool{}}
		dir := filepath.Join(t.TempDir(), "new")
		r, err := fromBucket(b, Restoring{Dir: dir})
		if err != nil {
			refused++
			if len(tree(t, dir)) > 0 {
				t.Errorf("%s %s: it leaves %q", what, name, tree(t, dir))
			}
			return
		}
		l, err := list(t.Context(), b)
		if err != nil || r.At.Revision < l.end {
			t.Errorf("%s %s: restored as of %d, and there are objects up to %d: %v", what, name, r.At.Revision, l.end, err)
		}
		if whole++; r.At.Revision < s.end() {
			if earlier++; name != newest || content != nil {
				t.Errorf("%s %s: restored as of %d, and %d was acknowledged", what, name, r.At.Revision, s.end())
			}
		}
		if err := s.is(t, dir, r.At.Revision); err != nil {
			t.Errorf("%s %s: %v", what, name, err)
		}
	}
	contents := map[string][]byte{}
	bases, chunks := 0, 0
	for _, name := range names {
		content, err := readSmall(t.Context(), bucket, name)
		if err != nil {
			t.Fatal(err)
		}
		contents[name] = content
		bases += strings.Count(name, baseDir)
		chunks += strings.Count(name, logDir)
	}
	if bases < 1 || chunks < 2 {
		t.Fatal(names)
	}
	// A restore syncs what it makes. So each byte is tried with what reads an object, and a restore with some of them.
	tried := 0
	quick := func(what, name string, content []byte) {
		t.Helper()
		b := damaged{bucket, name, content, map[string]bool{}}
		o, ok := parseObject(name)
		_, err := readDocument(t.Context(), b)
		if ok {
			err = o.read(t.Context(), b, io.Discard)
		}
		if tried++; tried%200 == 0 || err == nil {
			check(what, name, content)
		} else {
			refused++
		}
		if err == nil && ok {
			t.Errorf("%s %s is not noticed", what, name)
		}
	}
	for _, name := range names {
		check("without", name, nil)
		if !read[name] {
			check("another byte in", name, []byte("x"))
			continue
		}
		for n := range contents[name] {
			quick(fmt.Sprintf("cut at %d of %d:", n, len(contents[name])), name, contents[name][:n])
			changed := bytes.Clone(contents[name])
			changed[n] ^= 4
			quick(fmt.Sprintf("another byte at %d:", n), name, changed)
		}
	}
	t.Logf("of %d checkpoints and %d chunks %d objects are read: %d refused, %d restored", bases, chunks, len(read), refused, whole)
	// One that reads back, and has other commits.
	var last object
	for _, name := range names {
		if o, ok := parseObject(name); ok && strings.HasPrefix(name, logDir) {
			last = o
		}
	}
	content := contents[last.name]
	forged, err := filelog.NewChunk(last.after)
	if err == nil {
		err = filelog.ReadChunk(content, last.after, last.end, func(c *filelog.RawCommit) error {
			c.Payload = bytes.ReplaceAll(c.Payload, []byte("x"), []byte("y"))
			return forged.Add(c)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	other, err := forged.Bytes()
	if err != nil || bytes.Equal(other, content) {
		t.Fatal("the chunk is the same", err)
	}
	before := refused
	check("other commits in", last.name, other)
	if refused != before+1 {
		t.Error("a chunk with other commits than its name says is accepted")
	}
	if refused < 2000 || len(read) < 4 || earlier != 1 {
		t.Errorf("%d were refused, and %d gave an earlier state", refused, earlier)
	}
}

// A store goes on with its backup after a restart. A bucket of another store, of none, or of the same store before an
// earlier state was put back is refused, and what is in it stays. Of two processes the one that came last goes on.
//
// SPEC: STORE-6
func TestWhoseBackup(t *testing.T) {
	s := serve(t, 13)
	bucket := t.TempDir()
	var clock clock
	var said bytes.Buffer
	sh := s.ship(t, directory(bucket), &clock, io.Discard)
	write := func() {
		for range 30 {
			s.write(t)
		}
	}
	write()
	s.uploaded(t, sh)
	before := t.TempDir()
	sh.Close()
	s.Close()
	if err := os.CopyFS(before, os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	s.Store, s.log = openStore(t, s.dir)
	sh = s.ship(t, directory(bucket), &clock, &said)
	write()
	s.uploaded(t, sh)
	dir := filepath.Join(t.TempDir(), "new")
	r, err := fromBucket(directory(bucket), Restoring{Dir: dir})
	if err != nil || r.At.Revision != s.end() {
		t.Fatal(r, err)
	}
	if err := s.is(t, dir, s.end()); err != nil {
		t.Error(err)
	}

	objects := tree(t, bucket)
	other := serve(t, 14)
	other.write(t)
	refused := func(what, want string, of *served, at string) {
		t.Helper()
		_, err := of.tryShip(directory(at), &clock, io.Discard)
		if !errors.As(err, new(*ForeignError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, should say %q", what, err, want)
		}
	}
	refused("another store", "the backup of another server", other, bucket)
	restored := &served{dir: filepath.Join(dir, "store")}
	restored.Store, restored.log = openStore(t, restored.dir)
	defer restored.Close()
	refused("a restored store", "the backup of another server", restored, bucket)
	strange := t.TempDir()
	if err := os.WriteFile(filepath.Join(strange, "photo.jpg"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("photos", "it has photo.jpg", other, strange)
	if after := tree(t, bucket); !slices.Equal(objects, after) {
		t.Errorf("the bucket had %q and has %q", objects, after)
	}

	// A copy of an earlier state, at first behind the backup, and then as far.
	back := &served{dir: before, rng: rand.New(rand.NewPCG(99, 9))}
	back.Store, back.log = openStore(t, before)
	defer back.Close()
	refused("an earlier state", "an earlier state was put back", back, bucket)
	for back.end() < s.end() {
		back.write(t)
	}
	refused("an earlier state that has gone on", "an earlier state was put back", back, bucket)

	// The same store in two processes, as far as one can tell.
	said.Reset()
	second := s.ship(t, directory(bucket), &clock, io.Discard)
	clock.advance(2 * claimTime)
	for deadline := time.Now().Add(10 * time.Second); !sh.Figures().Stopped; time.Sleep(time.Millisecond) {
		if s.write(t); time.Now().After(deadline) {
			t.Fatal("the first of two processes goes on")
		}
	}
	s.uploaded(t, second)
	sh.Close()
	if !strings.Contains(said.String(), "writes to it now") {
		t.Error(said.String())
	}
}

// A bucket that does not answer holds the log, and not for ever; then the backup has a gap, which the log says, and
// goes on with a checkpoint. What is older than the retention is removed.
//
// SPEC: STORE-6
func TestGapAndRetention(t *testing.T) {
	s := serve(t, 15)
	bucket := t.TempDir()
	f := &faulty{Bucket: directory(bucket)}
	var clock clock
	var said bytes.Buffer
	sh := s.ship(t, f, &clock, &said)
	held := sh.Over()
	for range 60 {
		s.write(t)
	}
	s.uploaded(t, sh)
	shipped := sh.Figures().Revision
	f.fail(func(string) (before, after error) { return errBucket, nil })
	for range 30 {
		s.write(t)
	}
	for deadline := time.Now().Add(10 * time.Second); sh.Figures().Errors < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", sh.Figures())
		}
	}
	if sh.keeps() != shipped {
		t.Errorf("the log keeps what is after %d, and %d is uploaded", sh.keeps(), shipped)
	}
	if err := held.Compact(s.end(), nil); err != nil {
		t.Fatal(err)
	}
	if lag := sh.Figures().Lag; lag <= 0 {
		t.Errorf("the lag is %s", lag)
	}
	clock.advance(holdTime)
	if sh.keeps() <= s.end() {
		t.Errorf("after an hour the log keeps what is after %d", sh.keeps())
	}
	for oldest, _ := s.log.Bounds(); oldest <= shipped; oldest, _ = s.log.Bounds() { // the log lets go
		s.write(t)
	}
	gap := s.end()
	f.fail(nil)
	s.uploaded(t, sh)
	dir := filepath.Join(t.TempDir(), "new")
	if r, err := fromBucket(f, Restoring{Dir: dir}); err != nil || r.At.Revision != s.end() {
		t.Fatal(r, err)
	}
	if err := s.is(t, dir, s.end()); err != nil {
		t.Error(err)
	}
	l, err := list(t.Context(), f)
	if err != nil || len(l.bases) == 0 {
		t.Fatal(l, err)
	}
	if base := l.bases[len(l.bases)-1].end; base-1 > shipped {
		_, err := fromBucket(f, Restoring{Dir: filepath.Join(t.TempDir(), "gap"), At: Moment{Revision: base - 1}})
		if err == nil || !strings.Contains(err.Error(), "there is no state of") {
			t.Errorf("in the gap, at %d of %d to %d: %v", base-1, shipped, gap, err)
		}
	} else {
		t.Errorf("there is no gap: %d to %d", shipped, base)
	}
	sh.Close()
	for _, want := range []string{"the backup is behind", "keeps no longer", "the backup has a gap",
		"the backup goes on"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}

	sh = s.ship(t, f, &clock, io.Discard)
	for range 6 { // more than the retention, with checkpoints
		clock.advance(20 * time.Minute)
		for range 40 {
			s.write(t)
		}
		s.uploaded(t, sh)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		l, err = list(t.Context(), f)
		if err == nil && len(l.bases) > 1 && clock.now().Sub(l.bases[1].time) <= time.Hour && l.chunks[0].after > gap {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d checkpoints, the oldest of %s, chunks after %d, %v", len(l.bases), l.bases[0].time,
				l.chunks[0].after, err)
		}
		clock.advance(time.Minute)
		s.write(t)
	}
	oldest := l.bases[0].end
	dir = filepath.Join(t.TempDir(), "oldest")
	if _, err := fromBucket(f, Restoring{Dir: dir, At: Moment{Revision: oldest}}); err != nil {
		t.Fatal(err)
	}
	if err := s.is(t, dir, oldest); err != nil {
		t.Error(err)
	}
}

// How often TestKillShipping kills: make nightly does it a hundred times.
var kills = flag.Int("kills", 8, "how often the process is killed that uploads")

const killVariable = "PLINTH_TEST_BACKUP_KILL"

// A process that is killed, again and again, loses nothing that it has acknowledged as uploaded; and goes on with the
// backup when it is started again.
//
// SPEC: STORE-6
func TestKillShipping(t *testing.T) {
	if dir := os.Getenv(killVariable); dir != "" {
		shipUntilKilled(t, dir)
		return
	}
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(6, 6))
	total := int64(0)
	for n := range *kills {
		command := exec.Command(os.Args[0], "-test.run=^TestKillShipping$")
		command.Env = append(os.Environ(), killVariable+"="+dir)
		out, err := command.StdoutPipe()
		if err == nil {
			err = command.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := 5 + rng.IntN(40)
		acknowledged := int64(0)
		for in := bufio.NewScanner(out); in.Scan(); {
			text, ok := strings.CutPrefix(in.Text(), "uploaded ")
			if !ok {
				continue
			}
			if acknowledged, err = strconv.ParseInt(text, 10, 64); err != nil {
				t.Fatal(err)
			}
			if lines--; lines == 0 {
				command.Process.Kill()
			}
		}
		command.Wait() //nolint:errcheck // it was killed
		if lines > 0 {
			t.Fatalf("%d: the process has ended by itself", n)
		}
		to := filepath.Join(t.TempDir(), "new")
		r, err := fromBucket(directory(filepath.Join(dir, "bucket")), Restoring{Dir: to})
		if err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		if r.At.Revision < acknowledged {
			t.Errorf("%d: %d was acknowledged, and %d restored", n, acknowledged, r.At.Revision)
		}
		restored, _ := openStore(t, filepath.Join(to, "store"))
		have := content(t, restored)[""]
		want := map[string]string{}
		for revision := int64(2); revision <= r.At.Revision; revision++ {
			c := killChange(revision)
			want[c.Key.String()] = fmt.Sprint(revision, " ", string(c.Data))
		}
		if !maps.Equal(have, want) {
			t.Errorf("%d: at %d there are %d objects, and %d should be there, or they differ", n, r.At.Revision, len(have), len(want))
		}
		restored.Close()
		total = acknowledged
	}
	if total < 200 {
		t.Errorf("only %d revisions were uploaded", total)
	}
}

// killChange is the change of a revision.
func killChange(revision int64) store.Change {
	return store.Change{Key: store.Key{Resource: "/pods", Name: fmt.Sprintf("n/%d", revision%17)},
		Data: fmt.Appendf(nil, "%d %s", revision, strings.Repeat("x", int(revision%300)))}
}

func shipUntilKilled(t *testing.T, dir string) {
	s := &served{dir: filepath.Join(dir, "store")}
	s.log = openLog(t, s.dir)
	var clock clock
	sh, err := s.tryShip(directory(filepath.Join(dir, "bucket")), &clock, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	s.Store = storeOver(t, sh.Over())
	go func() {
		for last := int64(0); ; time.Sleep(200 * time.Microsecond) {
			if now := sh.Figures().Revision; now > last {
				last = now
				fmt.Println("uploaded", now)
			}
			clock.advance(20 * time.Millisecond)
		}
	}()
	for ; ; time.Sleep(100 * time.Microsecond) {
		if _, err := s.Commit(context.Background(), nil, []store.Change{killChange(s.Revision() + 1)}); err != nil {
			t.Fatal(err)
		}
	}
}
