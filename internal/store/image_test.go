package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// begun is a log that begins with an image.
type begun struct {
	instant
	from *Checkpoint
}

func (b begun) Checkpoint() (*Checkpoint, error) { return b.from, nil }

func openImage(t *testing.T, img *Image, after int64) *Store {
	t.Helper()
	s, err := Open(Config{Log: begun{from: img.Checkpoint(after)}, Describe: ownedSidecar,
		Charge: testCharge, Rules: "rules"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// ownedSidecar has the owner U for charges of the class "owned".
func ownedSidecar(_ Key, data []byte) *Sidecar {
	if strings.HasPrefix(string(data), "owned ") {
		return &Sidecar{Owners: []string{"U"}}
	}
	return &Sidecar{}
}

// contents prints the live versions of a store, with the dependents of an owner and the sum of a limited namespace.
func (s *Store) contents(t *testing.T) string {
	t.Helper()
	sn, err := s.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for resource := range sn.Resources {
		sn.Ascend(resource, "", "", func(v *Version) bool {
			fmt.Fprintf(&text, "%s %s\n", v.Key, v.Data())
			return true
		})
	}
	s.Dependents("U", func(v *Version) bool {
		fmt.Fprintf(&text, "U owns %s\n", v.Key)
		return true
	})
	fmt.Fprintf(&text, "n has %s", s.size(t, "n", ""))
	return text.String()
}

// Stores that begin with one image, in parallel, have what it has, with the indexes, and none sees what another one
// writes, the first one included.
func TestImage(t *testing.T) {
	first := openImage(t, &Image{revision: FirstRevision, content: newContent()}, 0)
	for i := range 500 {
		first.put(t, "a", fmt.Sprintf("m/%d", i), "red 1")
	}
	first.put(t, "a", "n/1", "owned 2")
	first.put(t, "rules", "n/r", "rule 5")
	expires := Change{Key: Key{"a", "n/2"}, Data: []byte("red 1"),
		Sidecar: &Sidecar{Expire: time.Now().Add(time.Hour)}}
	if _, err := first.Commit(t.Context(), nil, []Change{expires}); err != nil {
		t.Fatal(err)
	}
	img, whole := first.Image(), first.contents(t)
	if !strings.Contains(whole, "U owns a/n/1") || !strings.HasSuffix(whole, "n has 3") {
		t.Fatalf("the first store has\n%s", whole)
	}
	change := func(s *Store, seed uint64) string {
		rng := rand.New(rand.NewPCG(seed, 1))
		for range 300 {
			data := fmt.Sprintf("red %d", rng.IntN(9))
			if rng.IntN(4) == 0 {
				data = ""
			}
			s.put(t, "a", fmt.Sprintf("m/%d", rng.IntN(600)), data)
		}
		s.put(t, "a", fmt.Sprintf("n/%d", seed), "owned 1")
		return s.contents(t)
	}
	stores := []*Store{first}
	for range 8 {
		stores = append(stores, nil)
	}
	wrote := make([]string, len(stores))
	var work sync.WaitGroup
	for i := range stores {
		work.Go(func() {
			if i > 0 {
				stores[i] = openImage(t, img, 0)
				if got := stores[i].contents(t); got != whole {
					t.Errorf("store %d begins with\n%s\nwant\n%s", i, got, whole)
				}
			}
			wrote[i] = change(stores[i], uint64(i))
		})
	}
	work.Wait()
	for i, s := range stores {
		if got := s.contents(t); got != wrote[i] {
			t.Errorf("store %d has\n%s\nwant what it wrote\n%s", i, got, wrote[i])
		}
	}
	if got := openImage(t, img, 0).contents(t); got != whole {
		t.Errorf("the image has\n%s\nwant\n%s", got, whole)
	}
	if n := stores[1].expiries.entries.Len(); n != 1 {
		t.Errorf("%d versions expire, want 1", n)
	}
}

// A store that begins again with an image gives out no revision twice, and has no history from before.
func TestImageAgain(t *testing.T) {
	first := openImage(t, &Image{revision: FirstRevision, content: newContent()}, 0)
	first.put(t, "a", "n/1", "red 2")
	img := first.Image()
	first.put(t, "a", "n/2", "red 2")
	seen := first.Revision()
	again := openImage(t, img, seen+1)
	if got := again.Revision(); got != seen+1 {
		t.Errorf("the store begins at %d, want %d", got, seen+1)
	}
	if _, err := again.Watch(t.Context(), "a", "", seen); !errors.Is(err, ErrCompacted) {
		t.Errorf("a watch from %d: %v", seen, err)
	}
	watch, err := again.Watch(t.Context(), "a", "", seen+1)
	if err != nil {
		t.Fatal(err)
	}
	again.put(t, "a", "n/2", "red 3")
	records, err := watch.Poll()
	if err != nil || len(records) != 1 || records[0].Old != nil || records[0].Revision <= seen+1 {
		t.Errorf("the watch has %v, %v", records, err)
	}
	if got := again.Collection("a").Revision(); got != again.Revision() {
		t.Errorf("the collection has changed at %d, the store at %d", got, again.Revision())
	}
}

// Before is the image as it was earlier.
func TestImageBefore(t *testing.T) {
	s := openImage(t, &Image{revision: FirstRevision, content: newContent()}, 0)
	s.put(t, "a", "n/1", "red 1")
	s.put(t, "b", "n/1", "owned 1")
	whole, at := s.contents(t), s.Revision()
	cursor, err := s.WatchAll(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	s.put(t, "a", "n/1", "red 2")
	s.put(t, "a", "n/1", "red 3")
	s.put(t, "b", "n/1", "")
	s.put(t, "c", "n/1", "owned 7")
	records, err := cursor.Poll()
	if err != nil || len(records) != 4 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	img := s.Image()
	earlier := openImage(t, img.Before(records), 0)
	if got := earlier.contents(t); got != whole {
		t.Errorf("before\n%s\nwant\n%s", got, whole)
	}
	if got := earlier.Revision(); got != at {
		t.Errorf("before at %d, want %d", got, at)
	}
	if got, want := openImage(t, img, 0).contents(t), s.contents(t); got != want {
		t.Errorf("the image has\n%s\nwant\n%s", got, want)
	}
}
