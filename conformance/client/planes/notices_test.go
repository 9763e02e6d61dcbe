package planes

import (
	"maps"
	"testing"
)

// The model notices what a server could do wrong: of each case the first state is right, and the others are not.
func TestModelNotices(t *testing.T) {
	at := func(serial int, revision int64) version { return version{content{serial, 10}, revision} }
	write := func(name string, serial int, revision int64) change { return change{name, at(serial, revision)} }
	gone := func(name string) change { return change{name, version{}} }
	type state = map[string]version
	base := state{"o-00": at(1, 5), "o-01": at(2, 6)}
	origin := func() *life {
		return &life{name: "origin", created: 7, base: base,
			history: []change{write("o-00", 3, 10), gone("o-01"), write("o-02", 4, 20), write("o-00", 5, 30)}}
	}
	fork := func(revision int64) *life { return &life{name: "fork", origin: origin(), at: revision} }
	doubting := func(c change) *life {
		l := origin()
		l.doubt = &c
		return l
	}
	lives := map[string]func(state) error{
		"decide": func(have state) error { _, err := origin().decide(have); return err },
		"decide a write in doubt": func(have state) error {
			_, err := doubting(write("o-02", 6, 0)).decide(have)
			return err
		},
		"decide a deletion in doubt": func(have state) error { _, err := doubting(gone("o-02")).decide(have); return err },
		"begin anew":                 func(have state) error { return (&life{name: "new"}).begins(have) },
		"begin as of 25":             func(have state) error { return fork(25).begins(have) },
		"begin as of 10":             func(have state) error { return fork(10).begins(have) },
	}
	now := state{"o-00": at(5, 30), "o-02": at(4, 20)}
	with := func(s state, name string, v version) state {
		s = maps.Clone(s)
		if s[name] = v; v.serial == 0 {
			delete(s, name)
		}
		return s
	}
	for _, c := range []struct {
		life         string
		right, wrong []state
	}{
		{"decide", []state{now}, []state{
			{}, base,
			with(now, "o-00", at(3, 10)), // an update is lost
			with(now, "o-00", at(5, 31)), // another revision
			with(now, "o-02", version{}), // a creation is lost
			with(now, "o-01", at(2, 6)),  // a deletion is lost
		}},
		{"decide a write in doubt", []state{now, with(now, "o-02", at(6, 40))}, []state{
			with(now, "o-02", version{}), with(now, "o-02", at(7, 40)), with(now, "o-02", at(4, 40)),
		}},
		{"decide a deletion in doubt", []state{now, with(now, "o-02", version{})}, []state{with(now, "o-02", at(4, 40))}},
		{"begin anew", []state{{}}, []state{base}},
		// What has changed in the origin since may have a revision of its own.
		{"begin as of 25", []state{
			{"o-00": at(3, 10), "o-02": at(4, 20)},
			{"o-00": at(3, 31), "o-02": at(4, 20)},
		}, []state{
			{},
			{"o-00": at(3, 10)},                    // half of it
			{"o-00": at(5, 30), "o-02": at(4, 20)}, // with a later change
			{"o-00": at(1, 5), "o-02": at(4, 20)},  // without an earlier one
			{"o-00": at(3, 10), "o-02": at(4, 21)}, // with another revision
			{"o-00": at(3, 10), "o-02": at(4, 20), "o-01": at(2, 6)}, // with what was deleted
			{"o-00": at(3, 10), "o-02": at(4, 20), "o-03": at(9, 9)}, // with what never was
		}},
		// The deletion was between 11 and 19.
		{"begin as of 10", []state{{"o-00": at(3, 10), "o-01": at(2, 6)}}, []state{{"o-00": at(3, 10)}}},
	} {
		for _, s := range c.right {
			if err := lives[c.life](s); err != nil {
				t.Errorf("%s, %v: %v", c.life, s, err)
			}
		}
		for _, s := range c.wrong {
			if err := lives[c.life](s); err == nil {
				t.Errorf("%s: nothing is wrong with %v", c.life, s)
			}
		}
	}
}
