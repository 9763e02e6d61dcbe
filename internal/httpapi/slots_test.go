package httpapi

import (
	"testing"

	"plinth/internal/access"
	"plinth/internal/fairness"
)

// SPEC: BEY-9, BEY-10
// Without fairness, the requests of a plane need a seat of its share beside their slot, its own masters, too: its limit
// holds exactly. Masters of a plane that is exempt need neither. What is given back can be taken again.
func TestSlotsOfPlane(t *testing.T) {
	capacity := fairness.NewCapacity(fairness.CapacityConfig{Seats: 10})
	jane, master := access.User{Name: "jane"}, access.User{Name: "root", Groups: []string{access.Masters}}
	for _, c := range []struct {
		what          string
		share         *fairness.Share
		slots         int
		users, others int // requests that get through beside others
	}{
		{"a limit of 3", capacity.Share(fairness.ShareConfig{Requests: 3}), 5, 3, 0},
		{"a limit of 3 and no slots", capacity.Share(fairness.ShareConfig{Requests: 3}), 0, 3, 0},
		{"five slots of a limit of 7", capacity.Share(fairness.ShareConfig{Requests: 7}), 5, 5, 2},
		{"no limit", capacity.Share(fairness.ShareConfig{}), 0, 10, 0},
		{"the first plane", capacity.Share(fairness.ShareConfig{Exempts: true, Requests: 3}), 5, 3, 20},
	} {
		for range 2 {
			slots := NewSlots(c.slots, nil, c.share)
			var all []func()
			acquire := func(user *access.User) (n int) {
				for range 20 {
					release, err := slots.Acquire(t.Context(), ReadOnly, &access.Attributes{User: *user})
					if release != nil {
						all = append(all, release)
					}
					if err == nil {
						n++
					}
				}
				return n
			}
			if users, masters := acquire(&jane), acquire(&master); users != c.users || masters != c.others {
				t.Errorf("%s: %d requests of users and %d of masters, want %d and %d", c.what, users, masters, c.users,
					c.others)
			}
			if release, err := slots.Acquire(t.Context(), LongRunning, &access.Attributes{User: jane}); release != nil ||
				err != nil {
				t.Errorf("%s: a connection takes a slot: %v", c.what, err)
			}
			for _, release := range all {
				release()
			}
			if f := c.share.Figures(); f != (fairness.ShareFigures{}) {
				t.Errorf("%s: at the end %+v", c.what, f)
			}
		}
	}
}
