package store

import (
	"context"
	"errors"
	"testing"
	"time"
)

// halfSealed decrypts nothing until it has its key.
type halfSealed struct{ key bool }

func (s *halfSealed) Seal(context.Context, string) (*Seal, error) { return nil, nil }

func (s *halfSealed) Open(_ context.Context, _ string, _ Key, sealed []byte) ([]byte, uint32, error) {
	if !s.key {
		return nil, 0, errors.New("no key")
	}
	return sealed[1:], 0, nil
}

func (s *halfSealed) Current(string) (uint32, bool) { return 0, true }

// direct is a writer that applies commits to a state at once.
type direct struct{ *State }

func (d direct) Commit(_ context.Context, pre []Precondition, changes []Change) (Revisions, error) {
	revision := d.Revision() + 1
	c := &Commit{Revision: revision}
	for i, ch := range changes {
		if ch.Key.Resource == "/sealed" {
			return Revisions{}, &SealError{ch.Key, errors.New("no key")}
		}
		live, _ := d.Get(ch.Key)
		if err := pre[i].Holds(live); err != nil {
			return Revisions{}, err
		}
		r := &Record{Key: ch.Key, Revision: revision, Old: live}
		if ch.Data != nil {
			r.New = NewVersion(ch.Key, revision, ch.Data, ch.Sidecar)
		}
		c.Records = append(c.Records, r)
	}
	d.Apply(c)
	return Revisions{First: revision}, nil
}

func (d direct) Healthy() error { return nil }
func (d direct) Close() error   { d.End(); return nil }

// A version that cannot be decrypted is looked for until it can be, whichever way it came into the state: at the start,
// from an image, by a commit, or with all that was missed.
//
// SPEC: STORE-5
func TestUndecrypted(t *testing.T) {
	sealing := &halfSealed{}
	c := Config{Sealing: sealing, Describe: func(Key, []byte) *Sidecar { return &Sidecar{} }}
	unread := func(name string, revision int64) *Version {
		return NewVersion(Key{"/secrets", name}, revision, []byte("!"+name),
			&Sidecar{Undecrypted: true, Unreadable: errors.New("no key")})
	}
	from := &Checkpoint{Revision: 9, Window: Window{Horizon: 9},
		Versions: func(yield func(*Version, error) bool) {
			_ = yield(unread("loaded", 3), nil) && yield(unread("gone", 4), nil)
		}}
	state, err := NewState(c, from, nil)
	if err != nil {
		t.Fatal(err)
	}
	from = state.Image().Checkpoint(9)
	state.End()
	if state, err = NewState(c, from, nil); err != nil {
		t.Fatal(err)
	}
	s := &Store{State: state, Writer: direct{state}}
	defer s.Close()
	<-s.Undecrypted()

	applied := unread("applied", 10)
	s.Apply(&Commit{Revision: 10, Records: []*Record{{Key: applied.Key, Revision: 10, New: applied}}})
	<-s.Undecrypted()
	missed := unread("missed", 11)
	s.Restart(&Commit{Revision: 12, Records: []*Record{{Key: missed.Key, Revision: 11, New: missed}}})
	<-s.Undecrypted()
	gone, _ := s.Get(Key{"/secrets", "gone"})
	s.Apply(&Commit{Revision: 13, Records: []*Record{{Key: gone.Key, Revision: 13, Old: gone}}})
	if n, left, err := s.Recover(t.Context()); n != 0 || left != 3 || err != nil {
		t.Errorf("without the key %d are recovered, %d left: %v", n, left, err)
	}
	sealing.key = true
	// One that cannot be encrypted comes before the others, and does not hold them up.
	stuck := NewVersion(Key{"/sealed", "x"}, 14, []byte("!x"), applied.Sidecar)
	s.Apply(&Commit{Revision: 14, Records: []*Record{{Key: stuck.Key, Revision: 14, New: stuck}}})
	s.Others = alone{} // as where other processes write: each has a commit of its own
	if n, left, err := s.Recover(t.Context()); n != 3 || left != 1 || !errors.As(err, new(*SealError)) {
		t.Errorf("with the key %d are recovered, %d left: %v", n, left, err)
	}
	for _, name := range []string{"loaded", "applied", "missed"} {
		if v, _ := s.Get(Key{"/secrets", name}); v == nil || v.Sidecar.Unreadable != nil || string(v.Data()) != name {
			t.Errorf("%s is %v", name, v)
		}
	}
}

// alone is other processes that write nothing.
type alone struct{}

func (alone) Fresh(context.Context, Key, bool) (bool, error) { return true, nil }
func (alone) Atomic(Key, Key) bool                           { return false }

// pastUnread is the history of a Secret that was replaced at revision 10, whose first version decrypts with the key.
type pastUnread struct{ sealing *halfSealed }

func (p pastUnread) Replay(_ context.Context, after int64, _ []string, yield func(*Commit) error) error {
	if after >= 10 {
		return nil
	}
	k := Key{"/secrets", "a"}
	was := NewVersion(k, 3, []byte("was"), &Sidecar{})
	if !p.sealing.key {
		was = NewVersion(k, 3, []byte("!was"), &Sidecar{Undecrypted: true, Unreadable: errors.New("no key")})
	}
	return yield(&Commit{Revision: 10, Records: []*Record{
		{Key: k, Revision: 10, Old: was, New: NewVersion(k, 10, []byte("is"), &Sidecar{})}}})
}

// An old snapshot with a version that did not decrypt is made again when it does.
//
// SPEC: STORE-5
func TestUndecryptedPast(t *testing.T) {
	sealing := &halfSealed{}
	s, err := NewState(Config{Sealing: sealing, Describe: func(Key, []byte) *Sidecar { return &Sidecar{} },
		Now: func() time.Time { return time.Unix(1, 0) }}, // the commits have the time 0
		&Checkpoint{Revision: 9, Window: Window{Horizon: 9}, Versions: func(func(*Version, error) bool) {}},
		pastUnread{sealing})
	if err != nil {
		t.Fatal(err)
	}
	defer s.End()
	for _, sealing.key = range []bool{false, true} {
		sn, err := s.Snapshot(9)
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := sn.Get(Key{"/secrets", "a"}); v == nil || v.Sidecar.Undecrypted == sealing.key {
			t.Errorf("with the key %t the version was %v", sealing.key, v)
		}
	}
}
