package peers

import (
	"errors"
	"testing"
	"time"

	"plinth/internal/builtin"
	"plinth/internal/election"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// The Lease of an election is written on the condition that it has not changed, and keeps what others have added.
//
// SPEC: STORE-2
func TestElectionLock(t *testing.T) {
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{EventTTL: time.Hour}))
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(registry)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e := engine.New(engine.Config{Store: s, Registry: registry})
	leases := registry.Builtin().Find("coordination.k8s.io", "v1", "leases")
	lock := func() *electionLock {
		return &electionLock{engine: e, rq: engine.Request{Resource: leases, Namespace: "kube-system",
			Name: "elected", FieldManager: "test"}}
	}
	a, b := lock(), lock()
	for _, l := range []*electionLock{a, b} {
		if r, err := l.read(t.Context()); err != nil || r != (election.Record{}) {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	next := election.Record{Leader: "a", Duration: 15 * time.Second, Acquired: now, Renewed: now}
	revision, err := a.write(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.write(t.Context(), next); !errors.Is(err, election.ErrLost) {
		t.Errorf("a second one is made: %v", err)
	}
	read, err := b.read(t.Context())
	next.Revision = revision
	if err != nil || read != next {
		t.Errorf("it is\n%+v, %v, want\n%+v", read, err, next)
	}
	// Somebody adds a label.
	if _, err := e.Patch(t.Context(), &a.rq, engine.Patch{Type: engine.MergePatch,
		Body: []byte(`{"metadata":{"labels":{"a":"b"}}}`)}); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*electionLock{a, b} {
		if _, err := l.write(t.Context(), next); !errors.Is(err, election.ErrLost) {
			t.Errorf("another version was replaced: %v", err)
		}
	}
	if read, err = b.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	read.Leader, read.Transitions = "b", 1
	if _, err := b.write(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	result, err := e.Get(t.Context(), &a.rq, "")
	if err != nil {
		t.Fatal(err)
	}
	obj, err := engine.ObjectOf(result.Object)
	if err != nil {
		t.Fatal(err)
	}
	if obj.At("metadata", "labels", "a").Str() != "b" || obj.At("spec", "holderIdentity").Str() != "b" ||
		obj.At("spec", "leaseTransitions").Int() != 1 ||
		obj.At("spec", "acquireTime").Str() != "2026-01-02T03:04:05.000006Z" {
		t.Errorf("it is %s", object.AppendObject(nil, obj))
	}
	// A write of a Lease that is gone is lost, too.
	if _, err := e.Delete(t.Context(), &a.rq, engine.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.write(t.Context(), read); !errors.Is(err, election.ErrLost) {
		t.Errorf("a Lease that is gone was written: %v", err)
	}
}
