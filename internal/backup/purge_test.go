package backup

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plinth/internal/durable"
	"plinth/internal/store"
)

// put writes an object in the first plane.
func (s *served) put(t *testing.T, k store.Key, text string) {
	t.Helper()
	e := event{before: time.Now(), changes: []store.Change{{Key: k, Data: []byte(text)}}}
	revisions, err := s.Commit(t.Context(), nil, e.changes)
	if err != nil {
		t.Fatal(err)
	}
	e.first, e.last = revisions.First, revisions.First
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// filesWith are the files below a directory that have a text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return durable.IgnoreMissing(err)
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return durable.IgnoreMissing(err) // the backup goes on
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// What is purged is in no later backup. What was uploaded stays; what was not is removed from the log, and the backup
// goes on behind a gap, of which it says so.
//
// SPEC: BEY-4, STORE-6
func TestPurge(t *testing.T) {
	const first, second = "cGFzc3dvcmQgdGhhdCB3YXMgdXBsb2FkZWQ", "cGFzc3dvcmQgdGhhdCB3YXMgbm90"
	secret := store.Key{Resource: "/pods", Name: "n/secret"}
	s := serve(t, 16)
	bucket := t.TempDir()
	f := &faulty{Bucket: directory(bucket)}
	var clock clock
	var said bytes.Buffer
	sh := s.ship(t, f, &clock, &said)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sh.Close()
	s.log = openLog(t, s.dir)
	sh = s.ship(t, f, &clock, &said)
	s.Store = storeOver(t, sh.Over())
	for range 20 {
		s.write(t)
	}
	s.put(t, secret, first)
	s.put(t, secret, "one that may stay")
	s.uploaded(t, sh)
	if done, err := s.Purge(t.Context(), secret, false); err != nil || done.Versions != 1 || done.Copies != "test" {
		t.Errorf("%+v, %v", done, err)
	}
	if len(filesWith(t, bucket, first)) == 0 {
		t.Error("what was uploaded is not there any more")
	}
	if found := filesWith(t, s.dir, first); len(found) > 0 {
		t.Errorf("%q have what was purged", found)
	}

	f.fail(func(string) (before, after error) { return errBucket, nil })
	s.put(t, secret, second)
	s.put(t, secret, "another one that may stay")
	for range 20 {
		s.write(t)
	}
	for range 2 { // the second one loses nothing more, and is not said
		if _, err := s.Purge(t.Context(), secret, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{first, second} {
		if found := filesWith(t, s.dir, text); len(found) > 0 {
			t.Errorf("%q have what was purged", found)
		}
		if bytes.Contains(s.archive(t, Document{}), []byte(text)) {
			t.Errorf("a backup has %q", text)
		}
	}
	s.write(t)
	f.fail(nil)
	s.uploaded(t, sh)
	for range 20 {
		s.write(t)
	}
	s.uploaded(t, sh)
	sh.Close()
	if strings.Count(said.String(), "the past of an object is purged: the backup will have a gap") != 1 ||
		!strings.Contains(said.String(), "goes on with a checkpoint") {
		t.Errorf("the log says %s", said.String())
	}
	if found := filesWith(t, bucket, second); len(found) > 0 {
		t.Errorf("%q was uploaded after it was purged", found)
	}
	dir := filepath.Join(t.TempDir(), "new")
	if r, err := fromBucket(f, Restoring{Dir: dir}); err != nil || r.At.Revision != s.end() {
		t.Fatal(r, err)
	}
	if err := s.is(t, dir, s.end()); err != nil {
		t.Error(err)
	}
}

// The URL of the backup is named without what only its owner may know.
//
// SPEC: BEY-4
func TestCopiesAreNamed(t *testing.T) {
	for from, want := range map[string]string{
		"file:///backups/a":                             "file:///backups/a",
		"s3://me:password@bucket/folder?key=secret&x=y": "s3://bucket/folder",
		"http://[::1":                                   "the URL of the backup",
	} {
		if have := (&Held{by: &Shipper{o: Shipping{URL: from}}}).Copies(); have != want {
			t.Errorf("%s is named %s, should be %s", from, have, want)
		}
	}
}
