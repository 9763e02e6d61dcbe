package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"plinth/conformance/internal/reference"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
	"plinth/internal/store/storetest"
)

// lost has a store change a key, and loses the answer: nothing comes from etcd until it has the change, and what the
// test does meanwhile is done.
func lost(t *testing.T, l *line, p *reference.EtcdProcess, s *store.Store, pre store.Precondition, change store.Change,
	meanwhile func()) error {
	t.Helper()
	d := direct(t, p.URL)
	path, _ := plain{}.Path(change.Key)
	l.mute.Store(true)
	done := outcome(func() error {
		_, err := s.Commit(context.Background(), []store.Precondition{pre}, []store.Change{change})
		return err
	})
	eventually(t, "etcd has the change", func() error {
		now, err := d.Get(t.Context(), "/registry/"+path)
		if err == nil && len(now.Kvs) == 0 == (change.Data == nil) &&
			(len(now.Kvs) == 0 || now.Kvs[0].ModRevision > pre.Revision) {
			return nil
		}
		return fmt.Errorf("not yet (%v)", err)
	})
	meanwhile()
	l.mute.Store(false)
	l.drop()
	return ends(t, "the commit", done)
}

// overtaken has another store make a change while the request of the first one is held up, and then lost.
func overtaken(t *testing.T, l *line, s, other *store.Store, pre store.Precondition, change store.Change) error {
	t.Helper()
	commit := func(s *store.Store) error {
		_, err := s.Commit(context.Background(), []store.Precondition{pre}, []store.Change{change})
		return err
	}
	l.hold.Store(true)
	done := outcome(func() error { return commit(s) })
	<-l.holding
	if err := commit(other); err != nil {
		t.Fatal(err)
	}
	l.hold.Store(false)
	l.drop()
	return ends(t, "the commit", done)
}

// Of two servers that make the same change, one is told that it has, whichever answer is lost: an equal change in etcd
// says nothing of who has made it, unless it can be nobody else's.
//
// SPEC: STORE-1, STORE-2
func TestEqualChanges(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	for name, by := range map[string]func(l *line, s, other *store.Store, pre store.Precondition, ch store.Change) error{
		"this server": func(l *line, s, _ *store.Store, pre store.Precondition, ch store.Change) error {
			return lost(t, l, p, s, pre, ch, func() {})
		},
		"another server": func(l *line, s, other *store.Store, pre store.Precondition, ch store.Change) error {
			return overtaken(t, l, s, other, pre, ch)
		},
	} {
		l := newLine(t, p.URL)
		s, other := openPlain(t, l.URL()), openPlain(t, p.URL)
		k := pod(name)
		for i, data := range [][]byte{[]byte("first"), []byte("second"), nil} {
			revision := putPlain(t, s, k, fmt.Sprint(i))
			if err := other.WaitFor(t.Context(), revision); err != nil {
				t.Fatal(err)
			}
			err := by(l, s, other, store.Precondition{Key: k, Revision: revision}, store.Change{Key: k, Data: data})
			// The first answer that is lost is in doubt; from then on it is known whose changes are whose.
			conflict := errors.As(err, new(*store.ConflictError))
			if i == 0 && !errors.Is(err, store.ErrUnknown) || i > 0 && (name == "this server") != (err == nil) ||
				i > 0 && name == "another server" && !conflict {
				t.Errorf("change %d was made by %s, and its commit ends with: %v", i, name, err)
			}
		}
	}
}

// What cannot be another's is known although its answer is lost, the first one, too: a new object, by its UID, and what
// is encrypted.
//
// SPEC: STORE-1, STORE-2
func TestUniqueChanges(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	l := newLine(t, p.URL)
	s := openPlain(t, l.URL())
	k := pod("new")
	sidecar := storetest.Describe(k, []byte("x"))
	sidecar.UID = "a new one"
	if err := lost(t, l, p, s, store.Absent(k), store.Change{Key: k, Data: []byte("x"), Sidecar: sidecar},
		func() {}); err != nil {
		t.Errorf("a new object: %v", err)
	}
	sealed := openPlain(t, l.URL(), func(c *etcd.Config) { c.Sealing = salted{} })
	v, _ := s.Get(k)
	if err := lost(t, l, p, sealed, store.At(v), store.Change{Key: k, Data: []byte("y")}, func() {}); err != nil {
		t.Errorf("an encrypted one: %v", err)
	}
}

// salted is a Sealing that adds something of its own to each value.
type salted struct{}

func (salted) Seal(context.Context, string) (*store.Seal, error) {
	return &store.Seal{ID: 1, Append: func(dst []byte, _ store.Key, plain []byte) []byte {
		return append(fmt.Appendf(dst, "%032x", ^uint(0)), plain...)
	}}, nil
}

func (salted) Open(_ context.Context, _ store.Key, sealed []byte) ([]byte, uint32, error) {
	if len(sealed) > 32 && sealed[0] == '0' {
		return sealed[32:], 1, nil
	}
	return sealed, 0, nil
}

func (salted) Current(string) (uint32, bool) { return 1, true }

// If etcd compacts the change of a commit whose answer is lost, the commit is not said to be refused: what has been
// missed may have been its own change.
//
// SPEC: STORE-1, WATCH-3
func TestLostAndCompacted(t *testing.T) {
	for name, c := range map[string]struct {
		overwrite bool
		unique    bool
	}{"overwritten": {overwrite: true}, "still there": {}, "still there and unique": {unique: true}} {
		t.Run(name, func(t *testing.T) {
			p := startEtcd(t, reference.EtcdOptions{})
			l := newLine(t, p.URL)
			s, beside := openPlain(t, l.URL(), func(config *etcd.Config) {
				if c.unique {
					config.Sealing = salted{}
				}
			}), openPlain(t, p.URL)
			k := pod("a")
			revision := putPlain(t, s, k, "1")
			err := lost(t, l, p, s, store.Precondition{Key: k, Revision: revision},
				store.Change{Key: k, Data: []byte("2")}, func() {
					if c.overwrite {
						putPlain(t, beside, k, "3")
					}
					last := putPlain(t, beside, pod("other"), "x")
					if _, err := direct(t, p.URL).Compact(t.Context(), last, clientv3.WithCompactPhysical()); err != nil {
						t.Fatal(err)
					}
				})
			if c.unique && err != nil || !c.unique && !errors.Is(err, store.ErrUnknown) {
				t.Errorf("the commit ends with %v", err)
			}
		})
	}
}
