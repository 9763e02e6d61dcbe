package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"plinth/internal/store"
)

func event(name string) store.Key { return store.Key{Resource: "/events", Name: name} }

// expiring is a change to an object that expires.
func expiring(k store.Key, data string, at time.Time) store.Change {
	s := Describe(k, []byte(data))
	s.Expire = at
	return store.Change{Key: k, Data: []byte(data), Sidecar: s}
}

// testExpiry: an expired object is removed from reads, and its watchers get an event.
//
// SPEC: URI-10
func testExpiry(t *testing.T, b Implementation) {
	if b.Shared {
		return // its clock cannot be moved; it has tests of its own
	}
	c := newClock()
	x := newStore(t, b, func(config *store.Config) { config.Now = c.Now })
	x.commit(expiring(event("soon"), "1", c.Now().Add(time.Minute)))
	x.commit(expiring(event("late"), "2", c.Now().Add(time.Hour)))
	x.put(event("never"), "3")
	w := x.watch("/events", "", x.Revision())
	c.advance(59 * time.Second)
	time.Sleep(20 * time.Millisecond)
	if _, ok := x.Get(event("soon")); !ok {
		t.Fatal("the object was removed before it expired")
	}
	c.advance(time.Second)
	if s := lines(next(t, w)); s != "5 -/events/soon=1\n" {
		t.Fatal(s)
	}
	if _, ok := x.Get(event("soon")); ok {
		t.Fatal("a cursor returned the deletion, but the object still exists")
	}
	c.advance(2 * time.Hour)
	if s := lines(next(t, w)); s != "6 -/events/late=2\n" {
		t.Fatal(s)
	}
	if n := x.snapshot(0).Count("/events", ""); n != 1 {
		t.Fatalf("%d more events were returned", n)
	}
	// Many expire at once.
	for i := range 1000 {
		if _, err := x.Commit(context.Background(), nil,
			[]store.Change{expiring(event(fmt.Sprint(i)), "x",
				c.Now().Add(time.Duration(1+i%10)*time.Second))}); err != nil {
			t.Fatal(err)
		}
	}
	c.advance(5 * time.Second)
	eventually(t, "half of them expired", func() bool { return x.snapshot(0).Count("/events", "") == 501 })
	c.advance(5 * time.Second)
	eventually(t, "all of them expired", func() bool { return x.snapshot(0).Count("/events", "") == 1 })
}

// testExpiryReopen: expiry survives a restart, and objects that expired meanwhile are removed then.
//
// SPEC: URI-10
func testExpiryReopen(t *testing.T, b Implementation) {
	if !b.Durable || b.Shared {
		return
	}
	c := newClock()
	x := newStore(t, b, func(config *store.Config) { config.Now, config.CompactBytes = c.Now, 1 })
	at := c.Now().Add(time.Minute).Add(123456789)
	x.commit(expiring(event("a"), "1", at))
	x.commit(expiring(event("b"), "2", at.Add(time.Minute)))
	for round := range 2 {
		x.reopen()
		v, ok := x.Get(event("a"))
		if !ok || !v.Sidecar.Expire.Equal(at) {
			t.Fatalf("round %d: %v expires at %v, should at %v", round, v, v.Sidecar.Expire, at)
		}
		checkSidecar(t, v)
		// The second round is from a checkpoint.
		x.put(pod("p"), "x")
		time.Sleep(20 * time.Millisecond)
	}
	x.Store.Close()
	c.advance(90 * time.Second)
	x.start()
	eventually(t, "the first one is gone", func() bool { _, ok := x.Get(event("a")); return !ok })
	if _, ok := x.Get(event("b")); !ok {
		t.Fatal("the object that has not expired was removed, too")
	}
	records := drain(t, x.watch("/events", "a", 1))
	if records != "2 +/events/a=1\n"+fmt.Sprintf("%d -/events/a=1\n", x.Revision()) {
		t.Fatal(records)
	}
}

// testExpiryOverwritten: the expiry of the newest version counts.
//
// SPEC: URI-10
func testExpiryOverwritten(t *testing.T, b Implementation) {
	if b.Shared {
		return // its clock cannot be moved; it has tests of its own
	}
	c := newClock()
	x := newStore(t, b, func(config *store.Config) { config.Now = c.Now })
	x.commit(expiring(event("longer"), "1", c.Now().Add(time.Minute)))
	x.commit(expiring(event("longer"), "2", c.Now().Add(time.Hour)))
	x.commit(expiring(event("shorter"), "1", c.Now().Add(time.Hour)))
	x.commit(expiring(event("shorter"), "2", c.Now().Add(time.Minute)))
	x.commit(expiring(event("kept"), "1", c.Now().Add(time.Minute)))
	x.put(event("kept"), "2")
	x.commit(expiring(event("deleted"), "1", c.Now().Add(time.Minute)))
	x.commit(store.Change{Key: event("deleted")})
	w := x.watch("/events", "", x.Revision())
	c.advance(2 * time.Minute)
	if s := lines(next(t, w)); s != "10 -/events/shorter=2\n" {
		t.Fatal(s)
	}
	time.Sleep(20 * time.Millisecond)
	if s := drain(t, w); s != "" {
		t.Fatal(s)
	}
	if _, ok := x.Get(event("longer")); !ok {
		t.Fatal("the object was removed at the expiry of an overwritten version")
	}
}
