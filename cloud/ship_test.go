package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plinth/internal/backup"
	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

// state is what a store has: the hash of each object, by its name.
type state map[string][sha256.Size]byte

// served is a store on a disk, and what it has as of each revision.
type served struct {
	*store.Store
	log    *filelog.Log
	dir    string
	ahead  atomic.Int64 // of the clock
	states map[int64]state
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{dir: t.TempDir(), states: map[int64]state{1: {}}}
	log, err := filelog.Open(s.dir, filelog.Options{SegmentBytes: 16 << 10, NoSync: true})
	if err == nil {
		s.log = log
		s.Store, err = store.Open(store.Config{Log: log, Describe: storetest.Describe, HistoryBytes: 64 << 10,
			CompactBytes: 32 << 10})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *served) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// write makes commits.
func (s *served) write(t *testing.T, commits int) {
	t.Helper()
	for range commits {
		revision := s.Revision()
		ch := store.Change{Key: store.Key{Resource: "/pods", Name: fmt.Sprintf("n/%d", revision%37)},
			Data: fmt.Appendf(nil, "%d %s", revision, strings.Repeat("x", int(revision%900)))}
		if _, err := s.Commit(t.Context(), nil, []store.Change{ch}); err != nil {
			t.Fatal(err)
		}
		after := maps.Clone(s.states[revision])
		after[ch.Key.String()] = sha256.Sum256(ch.Data)
		s.states[s.Revision()] = after
	}
}

func (s *served) ship(t *testing.T, b backup.Bucket) (*backup.Shipper, error) {
	t.Helper()
	sh, err := backup.Ship(t.Context(), backup.Shipping{Bucket: b, URL: "test", Log: s.log, Dir: s.dir,
		Retention: time.Hour, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: s.now})
	if err == nil {
		t.Cleanup(sh.Close)
	}
	return sh, err
}

// uploaded waits until all is uploaded.
func (s *served) uploaded(t *testing.T, sh *backup.Shipper) {
	t.Helper()
	for deadline := time.Now().Add(limit); sh.Figures().Revision != s.Revision(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v is uploaded of revision %d", sh.Figures(), s.Revision())
		}
	}
}

// restored makes a directory of what is at a URL, and compares it with the store as of its revision.
func (s *served) restored(t *testing.T, from backup.Source) int64 {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "new")
	r, err := backup.Restore(t.Context(), from, backup.Restoring{Dir: dir, Now: s.now()})
	if err != nil {
		t.Fatal(err)
	}
	log, err := filelog.Open(filepath.Join(dir, "store"), filelog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	of, err := store.Open(store.Config{Log: log, Describe: storetest.Describe})
	if err != nil {
		t.Fatal(err)
	}
	defer of.Close()
	snapshot, err := of.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	have := state{}
	snapshot.Ascend("/pods", "", "", func(v *store.Version) bool {
		have[v.Key.String()] = sha256.Sum256(v.Data())
		return true
	})
	if !maps.Equal(have, s.states[r.At.Revision]) {
		t.Errorf("at revision %d there are %d objects, and %d should be there, or they differ", r.At.Revision, len(have),
			len(s.states[r.At.Revision]))
	}
	return r.At.Revision
}

// What was acknowledged as uploaded to S3 can be restored, while requests fail, connections break and answers are lost,
// and while the program is killed.
//
// SPEC: STORE-6
func TestShipToS3(t *testing.T) {
	server := s3(t)
	s := serve(t)
	b := helped(t, server.at("/backups/plinth"))
	sh, err := s.ship(t, b)
	if err != nil {
		t.Fatal(err)
	}
	kinds := []fault{fails, cut, lost, busy, slowly}
	faulty := func(n int, _ *http.Request) fault {
		if n%4 > 0 {
			return none
		}
		return kinds[n/4%len(kinds)]
	}
	for round := range 5 {
		server.with(faulty)
		s.write(t, 60)
		s.ahead.Add(int64(20 * time.Minute)) // so that a checkpoint is due
		s.uploaded(t, sh)
		acknowledged := sh.Figures().Revision
		s.write(t, 5)
		from := backup.FromBucket(b, nil)
		if reached := s.restored(t, from); reached < acknowledged {
			t.Errorf("round %d: %d was acknowledged, and %d restored", round, acknowledged, reached)
		}
	}
	server.with(nil)
	s.uploaded(t, sh)
	if reached := s.restored(t, backup.FromBucket(b, nil)); reached != s.Revision() {
		t.Errorf("%d of %d was restored", reached, s.Revision())
	}
	// Another store is refused, and this one goes on.
	other := serve(t)
	other.write(t, 1)
	if _, err := other.ship(t, helped(t, server.at("/backups/plinth"))); !errors.As(err, new(*backup.ForeignError)) {
		t.Errorf("another store: %v", err)
	}
	if items, err := opened(t, server.at("/backups")).List(t.Context(), ""); err != nil || len(items) < 4 ||
		!strings.HasPrefix(items[0].Name, "plinth/") {
		t.Error(items, err)
	}
}

// An archive is an object, which is there as a whole, and is restored while connections break.
//
// SPEC: STORE-6
func TestArchiveOnS3(t *testing.T) {
	server := s3(t)
	s := serve(t)
	s.write(t, 400)
	frozen, err := s.log.Freeze()
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close()
	archive, err := backup.New(backup.Document{Time: time.Now()}, frozen)
	if err != nil {
		t.Fatal(err)
	}
	b := helped(t, server.at("/some"))
	var whole bytes.Buffer
	if err := archive.Write(&whole); err != nil {
		t.Fatal(err)
	}
	if err := b.Put(t.Context(), "plinth.tar", reader(whole.Bytes()), false); err != nil {
		t.Fatal(err)
	}
	server.with(func(n int, _ *http.Request) fault {
		if n < 6 {
			return cut
		}
		return none
	})
	reached := s.restored(t, func(ctx context.Context, dir string, at backup.Moment) (*backup.Document, []byte, error) {
		r, err := b.Get(ctx, "plinth.tar")
		if err != nil {
			return nil, nil, err
		}
		defer r.Close()
		return backup.FromArchive(r)(ctx, dir, at)
	})
	if reached != s.Revision() {
		t.Errorf("%d of %d was restored", reached, s.Revision())
	}
}

// BenchmarkUpload is 100 MB to a server on this machine, through the program.
func BenchmarkUpload(b *testing.B) {
	server := s3(b)
	to := helped(b, server.at(""))
	content := noise(100_000_000)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		if err := to.Put(b.Context(), "a", io.NewSectionReader(bytes.NewReader(content), 0, int64(len(content))),
			false); err != nil {
			b.Fatal(err)
		}
	}
}
