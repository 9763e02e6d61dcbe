package etcd

import (
	"slices"
	"testing"

	"plinth/conformance/internal/reference"
	"plinth/internal/store"
)

// A state that has missed changes which etcd does not have any more becomes what etcd has: keys, bits and their
// revisions. Its watches end.
//
// SPEC: STORE-2, WATCH-1
func TestReload(t *testing.T) {
	url := startEtcd(t, reference.EtcdOptions{}).URL
	k := newLine(t, url)
	far, near := open(t, k.URL()), open(t, url)
	put(t, near, printNames(nil))
	for name, bit := range map[string]int{"kept": 1, "replaced": 2, "removed": 3} {
		if err := takes(t, near, name, bit); err != nil {
			t.Fatal(err)
		}
	}
	wantsLive(t, far, "1", "2", "3")
	cursor, err := far.Watch(t.Context(), "holder", "", far.Revision())
	if err != nil {
		t.Fatal(err)
	}
	defer cursor.Close()
	kept, _ := far.Get(bitHolder("kept"))

	k.Cut(true)
	if err := gives(t, near, "removed", 3); err != nil {
		t.Fatal(err)
	}
	if err := gives(t, near, "replaced", 2); err != nil {
		t.Fatal(err)
	}
	for name, bit := range map[string]int{"replaced": 2, "created": 4} {
		if err := takes(t, near, name, bit); err != nil {
			t.Fatal(err)
		}
	}
	client := clientOf(t, url)
	if _, err := client.Compact(t.Context(), near.Revision()); err != nil {
		t.Fatal(err)
	}
	k.Cut(false)
	if _, err := cursor.Next(t.Context()); err != store.ErrCompacted {
		t.Errorf("the watch ends with %v", err)
	}
	wantsLive(t, far, "1", "2", "4")
	if again, _ := far.Get(bitHolder("kept")); again != kept {
		t.Errorf("what has not changed is another version: %v", again)
	}
	for _, name := range []string{"kept", "replaced", "removed", "created"} {
		a, _ := far.Get(bitHolder(name))
		b, _ := near.Get(bitHolder(name))
		if (a == nil) != (b == nil) || a != nil && a.Revision != b.Revision {
			t.Errorf("%s is %v there and %v here", name, a, b)
		}
	}
	// The revisions are those of etcd: writes succeed.
	for name, bit := range map[string]int{"kept": 1, "replaced": 2, "created": 4} {
		if err := gives(t, far, name, bit); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantsLive(t, near)
	if err := takes(t, far, "again", 1, 2, 3, 4); err != nil {
		t.Error(err)
	}
	if got, want := live(t, near.State), []string{"1", "2", "3", "4"}; !slices.Equal(got, want) {
		wantsLive(t, near, want...)
	}
}
