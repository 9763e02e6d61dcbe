package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/backup/remote"
)

// rootVariable makes this test binary the helper: each bucket is a directory below it.
const rootVariable = "PLINTH_TEST_BACKUP_ROOT"

func TestMain(m *testing.M) {
	root := os.Getenv(rootVariable)
	if root == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, "pid", os.Getpid())
	if err := remote.Serve("0.0.0", func() (remote.Objects, error) {
		u, err := url.Parse(os.Args[1])
		if err != nil {
			return nil, err
		}
		return directory(filepath.Join(root, u.Host, filepath.FromSlash(u.Path))), nil
	}, os.Stdin, os.Stdout); err != nil {
		os.Exit(1)
	}
}

// storage puts the helper in PATH, and returns the directory of the bucket "bucket".
func storage(t *testing.T) string {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, root := t.TempDir(), t.TempDir()
	if err := os.Symlink(own, filepath.Join(bin, remote.Program)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv(rootVariable, root)
	return filepath.Join(root, "bucket")
}

func unsaid(string) {}

// An archive is written to a URL as a whole or not at all, and what is at a URL is restored, whether it is an archive
// or a continuous backup.
//
// SPEC: STORE-6
func TestURLs(t *testing.T) {
	ctx := t.Context()
	bucket := storage(t)
	s := serve(t, 21)
	for range 30 {
		s.write(t)
	}
	archive := s.archive(t, Document{Time: time.Now()})
	write := func(w io.Writer) error {
		_, err := Copy(bytes.NewReader(archive), w, nil)
		return err
	}
	refused := func(what string, err error, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, should say %q", what, err, want)
			}
		}
	}
	restored := func(at string) {
		t.Helper()
		var size int64
		var shown bytes.Buffer
		from, err := FromURL(ctx, at, unsaid, func(n int64) io.Writer {
			size = n
			return &shown
		})
		if err != nil {
			t.Fatal(at, err)
		}
		dir := filepath.Join(t.TempDir(), "new")
		r, err := Restore(ctx, from, Restoring{Dir: dir, Now: time.Now()})
		if err != nil || r.At.Revision != s.end() {
			t.Fatal(at, r, err)
		}
		if err := s.is(t, dir, s.end()); err != nil {
			t.Error(at, err)
		}
		if size == 0 || size != int64(shown.Len()) {
			t.Errorf("%s: %d bytes are shown of %d", at, shown.Len(), size)
		}
	}
	local := t.TempDir()
	for at, dir := range map[string]string{"s3://bucket/some dir?x=y": filepath.Join(bucket, "some dir"),
		"file://" + local: local} {
		path, query, _ := strings.Cut(at, "?")
		object := func(name string) string { return strings.TrimSuffix(path+"/"+name+"?"+query, "?") }
		_, err := FromURL(ctx, object("a.tar"), unsaid, nil)
		refused("nothing", err, "there is no backup", documentName)
		if err := ToURL(ctx, object("a.tar"), unsaid, write); err != nil {
			t.Fatal(err)
		}
		restored(object("a.tar"))
		if text, err := os.ReadFile(filepath.Join(dir, "a.tar")); err != nil || !bytes.Equal(text, archive) {
			t.Errorf("%d bytes of %d were written, %v", len(text), len(archive), err)
		}
		for n := 0; n < len(archive); n += len(archive) / 8 {
			err := ToURL(ctx, object("cut.tar"), unsaid, func(w io.Writer) error {
				_, err := Copy(bytes.NewReader(archive[:n]), w, nil)
				return err
			})
			refused("an archive that is cut off", err, "it is cut off", "cut.tar")
		}
		var clock clock
		b, err := OpenBucket(object("plinth"), unsaid)
		if err != nil {
			t.Fatal(err)
		}
		sh := s.ship(t, b, &clock, io.Discard)
		s.uploaded(t, sh)
		sh.Close()
		restored(object("plinth"))
		restored(object("plinth/"))
		refused("a continuous backup", ToURL(ctx, object("plinth"), unsaid, write), "is the --backup-url of a server")
		if err := b.Delete(ctx, ownerName); err != nil || os.Remove(filepath.Join(s.dir, idFile)) != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "cut.tar")); err == nil {
			t.Error("an archive that was cut off is there")
		}
	}
	if _, err := FromURL(ctx, "s3://bucket", unsaid, nil); err != nil { // a restore looks what is there
		t.Error(err)
	}
	if _, _, err := atURL([]remote.Item{{Name: "x"}, {Name: "x/" + documentName}}, "x"); err == nil {
		t.Error("a URL of both is one of an archive or a continuous backup")
	}
	for text, want := range map[string]string{
		"s3://bucket":       "names no object",
		"s3://bucket/dir/":  "names no object",
		"s3:///dir/a":       "names no bucket",
		"s3://id:key@b/a":   "a URL of a backup has no credentials",
		"file://host/dir/a": "is no URL of a directory",
		"nothing":           "is no URL of a backup",
	} {
		err := ToURL(ctx, text, unsaid, write)
		refused(text, err, want)
		if err != nil && strings.Contains(err.Error(), "key") {
			t.Error(err)
		}
	}
	t.Setenv("PATH", "")
	_, err := OpenBucket("s3://bucket/dir", unsaid)
	refused("without the program", err, "need the program plinth-cloud", "PATH", "make cloud")
}

// The helper is killed again and again while a backup goes on: what was acknowledged is there.
//
// SPEC: STORE-6
func TestHelperKilled(t *testing.T) {
	bucket := storage(t)
	s := serve(t, 22)
	var lock sync.Mutex
	pids, started := map[int]bool{}, 0
	b, err := OpenBucket("s3://bucket/plinth", func(line string) {
		if text, ok := strings.CutPrefix(line, remote.Program+": pid "); ok {
			pid, _ := strconv.Atoi(text)
			lock.Lock()
			pids[pid] = true
			started++
			lock.Unlock()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var clock clock
	sh := s.ship(t, b, &clock, io.Discard)
	kill := func() (killed bool) {
		lock.Lock()
		defer lock.Unlock()
		for pid := range pids {
			if p, err := os.FindProcess(pid); err == nil {
				p.Kill() //nolint:errcheck // it may have ended
			}
			delete(pids, pid)
			killed = true
		}
		return killed
	}
	for n := range 15 {
		clock.advance(2 * time.Minute)
		for range n % 7 { // somewhere in what is uploaded
			s.write(t)
		}
		for deadline := time.Now().Add(20 * time.Second); !kill(); time.Sleep(time.Millisecond) {
			if s.write(t); time.Now().After(deadline) {
				t.Fatal("no helper is started")
			}
		}
		if n%5 > 0 {
			continue
		}
		acknowledged := sh.Figures().Revision
		r, err := fromBucket(directory(filepath.Join(bucket, "plinth")), Restoring{Dir: filepath.Join(t.TempDir(), "new")})
		if acknowledged > 1 && (err != nil || r.At.Revision < acknowledged) {
			t.Errorf("%d was acknowledged: %v, %v", acknowledged, r, err)
		}
	}
	s.uploaded(t, sh)
	dir := filepath.Join(t.TempDir(), "new")
	r, err := fromBucket(b, Restoring{Dir: dir})
	if err != nil || r.At.Revision != s.end() {
		t.Fatal(r, err)
	}
	if err := s.is(t, dir, s.end()); err != nil {
		t.Error(err)
	}
	lock.Lock()
	defer lock.Unlock()
	if started < 15 {
		t.Errorf("only %d helpers were started", started)
	}
}

// overwritten is a bucket without conditional writes, to which another one writes its owner at the same moment.
type overwritten struct {
	Bucket
	by *owner
}

func (o overwritten) Put(ctx context.Context, name string, content io.Reader, create bool) error {
	err := o.Bucket.Put(ctx, name, content, false)
	if create && name == ownerName {
		err = errors.Join(err, o.Bucket.Put(ctx, name, strings.NewReader(`{"id": "`+o.by.ID+`"}`), false))
	}
	return err
}

// Of two stores that begin a backup at one URL at one moment one is refused, also if the storage ignores that an object
// is to be a new one.
//
// SPEC: STORE-6
func TestClaimAtOneMoment(t *testing.T) {
	b := overwritten{directory(t.TempDir()), &owner{ID: random()}}
	if err := claim(t.Context(), b, &owner{ID: random()}); !errors.As(err, new(*ForeignError)) {
		t.Error(err)
	}
	if err := claim(t.Context(), b, b.by); err != nil {
		t.Error(err)
	}
}
