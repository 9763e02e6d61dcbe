package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// notesCharge charges versions of the resource "noted" nothing, and notes their text.
func notesCharge(v *Version) *Charge {
	if v.Key.Resource == "noted" {
		return &Charge{Note: string(v.Data())}
	}
	return testCharge(v)
}

// countNoted is Limit.More: how many versions have a note.
func countNoted(in *Charged) resource.Quantity {
	n := int64(0)
	in.Each("noted", func(v *Version, c *Charge) {
		if again, charge := in.Get(v.Key); again != v || charge != c {
			panic("Get and Each differ")
		}
		if c.Note != nil {
			n++
		}
	})
	return *resource.NewQuantity(n, resource.DecimalSI)
}

// What is computed from the charges counts as the sums do: beside them, in its namespace alone, also while commits are
// pending.
//
// SPEC: AUTH-5
func TestLimitsCountMore(t *testing.T) {
	s := openCharged(t, instant{}, time.Now, notesCharge)
	defer s.Close()
	s.put(t, "rules", "n/r", "rule 10")
	s.put(t, "noted", "n/a", "a")
	s.put(t, "noted", "n/b", "b")
	s.put(t, "noted", "n/b", "")
	s.put(t, "noted", "n2/a", "a")
	s.put(t, "noted", "a", "a")
	s.put(t, "a", "n/1", "red 2")
	limits := func() *Limits {
		p := s.atMost(t, "n", "", 1)
		p.Each[0].More = countNoted
		return p
	}
	if used, _ := s.Used(limits()); used[0].String() != "3" {
		t.Errorf("%s is used, want 2 of the sum and 1 more", &used[0])
	}
	var written atomic.Int64
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() {
			ch := Change{Key: Key{"noted", fmt.Sprint("n/", i)}, Data: []byte("x")}
			_, err := s.Commit(t.Context(), []Precondition{Within(limits())}, []Change{ch})
			var over *OverError
			switch {
			case err == nil:
				written.Add(1)
			case !errors.As(err, &over):
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if n := written.Load(); n != 7 {
		t.Errorf("%d were written, want 7: the limit is 10", n)
	}
	s.Charged("n", func(in *Charged) {
		if n := countNoted(in); n.String() != "8" {
			t.Errorf("%s have a note, want 8", &n)
		}
		if v, c := in.Get(Key{"noted", "n/b"}); v != nil || c != nil {
			t.Errorf("a deleted version has the charge %v", c)
		}
	})
}
