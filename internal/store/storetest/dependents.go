package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/store"
)

// dependents returns the dependents of an owner as text, one per line.
func dependents(t testing.TB, x *testStore, uid string) string {
	t.Helper()
	var b strings.Builder
	x.Dependents(uid, func(v *store.Version) bool {
		checkSidecar(t, v)
		fmt.Fprintf(&b, "%s@%d=%s\n", v.Key, v.Revision, v.Data())
		return true
	})
	return b.String()
}

// testDependents: the dependents of an owner are the objects of any resource that name it now.
//
// SPEC: DEL-5
func testDependents(t *testing.T, b Implementation) {
	x := newStore(t, b)
	check := func(uid, want string) {
		t.Helper()
		if have := dependents(t, x, uid); have != want {
			t.Fatalf("%s has the dependents\n%s\nshould be\n%s", uid, have, want)
		}
	}
	deployment := store.Key{Resource: "apps/deployments", Name: "a/d"}
	check("alpha", "")
	x.put(pod("a/q"), "alpha beta alpha") // an owner that is listed twice
	x.put(pod("a-b/p"), "alpha")
	x.commit(store.Change{Key: deployment, Data: []byte("beta alpha")},
		store.Change{Key: pod("b/p"), Data: []byte("nobody")})
	all := "/pods/a-b/p@3=alpha\n/pods/a/q@2=alpha beta alpha\napps/deployments/a/d@4=beta alpha\n"
	for range 2 {
		check("alpha", all)
		check("beta", "/pods/a/q@2=alpha beta alpha\napps/deployments/a/d@4=beta alpha\n")
		for _, uid := range []string{"", "a", "alph", "alpha ", "gamma", "nobody"} {
			check(uid, "")
		}
		x.reopen()
	}
	n := 0
	if x.Dependents("alpha", func(*store.Version) bool { n++; return n < 2 }); n != 2 {
		t.Fatalf("yield returned false for the second dependent, and was called %d times", n)
	}

	beta := x.put(pod("a/q"), "beta")   // one owner fewer
	gamma := x.put(pod("b/p"), "gamma") // one more
	check("alpha", "/pods/a-b/p@3=alpha\napps/deployments/a/d@4=beta alpha\n")
	check("gamma", fmt.Sprintf("/pods/b/p@%d=gamma\n", gamma))
	x.put(pod("a-b/p"), "alpha and more") // the same owners
	// The dependents may be written meanwhile: the iteration continues with those at the time of the call.
	var seen []string
	x.Dependents("alpha", func(v *store.Version) bool {
		seen = append(seen, v.Key.Name)
		x.commit(store.Change{Key: pod("a-b/p")}, store.Change{Key: deployment},
			store.Change{Key: pod("c/p"), Data: []byte("alpha")})
		return true
	})
	if !slices.Equal(seen, []string{"a-b/p", "a/d"}) {
		t.Fatal(seen)
	}
	for range 2 {
		check("alpha", fmt.Sprintf("/pods/c/p@%d=alpha\n", x.Revision()))
		check("beta", fmt.Sprintf("/pods/a/q@%d=beta\n", beta))
		x.reopen()
	}
	// An object that cannot be read has no known owners.
	x.commit(store.Change{Key: pod("c/p"), Data: []byte("?"), Sidecar: &store.Sidecar{Unreadable: context.Canceled}})
	check("alpha", "")
}

// testExpiryDependents: an object that has expired is no dependent any more, whoever has deleted it.
//
// SPEC: DEL-5, URI-10
func testExpiryDependents(t *testing.T, b Implementation) {
	if b.Shared {
		return // its clock cannot be moved; it has tests of its own
	}
	c := newClock()
	x := newStore(t, b, func(config *store.Config) { config.Now = c.Now })
	x.commit(expiring(event("e"), "alpha", c.Now().Add(time.Minute)))
	if have := dependents(t, x, "alpha"); have != "/events/e@2=alpha\n" {
		t.Fatal(have)
	}
	x.reopen()
	w := x.watch("/events", "", x.Revision())
	c.advance(time.Hour)
	next(t, w)
	if have := dependents(t, x, "alpha"); have != "" {
		t.Fatalf("an object that has expired is a dependent: %s", have)
	}
}

// testDependentsManyWriters: during concurrent writes, the dependents of an owner are those of one revision.
//
// SPEC: DEL-5
func testDependentsManyWriters(t *testing.T, b Implementation) {
	x := newStore(t, b)
	const writers, writes = 4, 60
	done := make(chan struct{})
	var readers, wait sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				of := map[string]int{} // by namespace; each has none or both of its objects
				x.Dependents("alpha", func(v *store.Version) bool {
					if !slices.Contains(v.Sidecar.Owners, "alpha") {
						t.Errorf("%s is %s", v.Key, v.Data())
					}
					namespace, _, _ := strings.Cut(v.Key.Name, "/")
					of[namespace]++
					return true
				})
				for namespace, n := range of {
					if n != 2 {
						t.Errorf("%s has %d dependents", namespace, n)
					}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for w := range writers {
		wait.Go(func() {
			for i := range writes {
				data := []byte([]string{"alpha", "beta alpha", "beta"}[i%3])
				if i%7 == 6 {
					data = nil
				}
				name := fmt.Sprintf("ns%d/x", w)
				x.commit(store.Change{Key: pod(name), Data: data},
					store.Change{Key: store.Key{Resource: "/secrets", Name: name}, Data: data})
			}
		})
	}
	wait.Wait()
	close(done)
	readers.Wait()
}
