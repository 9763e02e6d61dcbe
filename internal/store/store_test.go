package store_test

import (
	"context"
	"testing"

	"plinth/internal/store"
	"plinth/internal/store/memlog"
)

func TestSmoke(t *testing.T) {
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: func(store.Key, []byte) *store.Sidecar { return &store.Sidecar{} }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	c, err := s.Watch("/pods", "a/", s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	k := store.Key{Resource: "/pods", Name: "a/b"}
	rev, err := s.Commit(ctx, []store.Precondition{{Key: k}}, []store.Change{{Key: k, Data: []byte("x")}})
	if err != nil || rev != 2 {
		t.Fatal(rev, err)
	}
	if _, err := s.Commit(ctx, []store.Precondition{{Key: k}}, nil); err == nil {
		t.Fatal("no conflict")
	}
	recs, err := c.Next(ctx)
	if err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}
	sn, _ := s.Snapshot(0)
	if sn.Count("/pods", "a/") != 1 || sn.Count("/pods", "b/") != 0 {
		t.Fatal("count")
	}
	old, err := s.Snapshot(1, "/pods")
	if err != nil || old.Count("/pods", "") != 0 {
		t.Fatal(err)
	}
}
