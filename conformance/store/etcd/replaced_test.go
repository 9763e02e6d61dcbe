package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"plinth/conformance/internal/reference"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
)

// held is a layout in which the decoding of one value waits: the feed of a store stays where it is.
type held struct {
	plain
	value    string
	decoding chan struct{} // receives when it waits
	release  chan struct{} // closed when it goes on
}

func newHeld(value string) *held {
	return &held{value: value, decoding: make(chan struct{}, 1), release: make(chan struct{})}
}

func (h *held) Decode(k store.Key, value []byte) ([]byte, *store.Sidecar, error) {
	data, current, err := h.plain.Decode(k, value)
	if string(data) == h.value {
		h.decoding <- struct{}{}
		<-h.release
	}
	return data, current, err
}

func (h *held) configure(c *etcd.Config) { c.Layout = h }

// outcome is what a call has returned, once it has.
func outcome(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

// ends returns what a call has returned, or fails.
func ends(t *testing.T, what string, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s: it does not end", what)
		return nil
	}
}

// writes begins a commit of a store that stays where it is, of which h is the layout, and waits until it is in etcd, as
// another store sees. The commit ends when h goes on, or the store gives up.
func (h *held) writes(t *testing.T, s, beside *store.Store) <-chan error {
	t.Helper()
	putPlain(t, beside, pod("held"), h.value)
	<-h.decoding
	written := outcome(func() error {
		_, err := s.Commit(context.Background(), nil, []store.Change{{Key: pod("written"), Data: []byte("x")}})
		return err
	})
	eventually(t, "the commit is written", func() error {
		if _, found := beside.Get(pod("written")); !found {
			return errors.New("not yet")
		}
		return nil
	})
	return written
}

// unknown fails if a commit that was written does not end with ErrUnknown alone.
func unknown(t *testing.T, written <-chan error) {
	t.Helper()
	if err := ends(t, "the commit", written); !errors.Is(err, store.ErrUnknown) || errors.Is(err, store.ErrClosed) {
		t.Errorf("a commit that was written ends with %v", err)
	}
}

// If another etcd is in the place of the one that a store follows, all that waits ends with an error: a commit that was
// written and has not arrived, reads, watches. The store can be closed.
//
// SPEC: STORE-1
func TestReplacedEtcd(t *testing.T) {
	first, second := startEtcd(t, reference.EtcdOptions{}), startEtcd(t, reference.EtcdOptions{})
	l := newLine(t, first.URL)
	h := newHeld("hold")
	s := openPlain(t, l.URL(), h.configure)
	beside := openPlain(t, first.URL)
	cursor, err := s.Watch(t.Context(), "/nodes", "", s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	waiting := map[string]<-chan error{
		"a watch": outcome(func() error { _, err := cursor.Next(context.Background()); return err }),
		"a revision": outcome(func() error {
			return s.WaitFor(context.Background(), s.Revision()+1000)
		}),
	}
	written := h.writes(t, s, beside)
	waiting["a read"] = outcome(func() error {
		_, err := s.Fresh(context.Background(), store.Key{}, true)
		return err
	})
	l.lead(second.URL)
	l.drop()
	eventually(t, "the store finds out", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = s.Fresh(ctx, store.Key{}, true)
		if s.Healthy() == nil {
			return errors.New("not yet")
		}
		return nil
	})
	close(h.release)
	for what, done := range waiting {
		if err := ends(t, what, done); !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s ends with %v", what, err)
		}
	}
	unknown(t, written)
	if _, err := s.Commit(context.Background(), nil, nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a later commit: %v", err)
	}
	if err := ends(t, "the store", outcome(s.Close)); err != nil {
		t.Error(err)
	}
}

// A store can be closed although a commit waits for a change that does not come. The commit was written, and is not
// said to be refused.
//
// SPEC: STORE-1
func TestClosedWithoutAChange(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	h := newHeld("hold")
	s, beside := openPlain(t, p.URL, h.configure), openPlain(t, p.URL)
	written := h.writes(t, s, beside)
	closed := outcome(s.Close)
	unknown(t, written)
	close(h.release)
	if err := ends(t, "the store", closed); err != nil {
		t.Error(err)
	}
}

// The past that is read of etcd is that of the etcd that a store follows: another one in its place, which has other
// objects at the same revisions, is not taken for it, although the watch has not noticed it yet.
//
// SPEC: STORE-2
func TestPastOfReplacedEtcd(t *testing.T) {
	first, second := startEtcd(t, reference.EtcdOptions{}), startEtcd(t, reference.EtcdOptions{})
	var beside *store.Store
	var past int64
	for _, p := range []*reference.EtcdProcess{second, first} {
		beside = openPlain(t, p.URL)
		past = putPlain(t, beside, pod("a"), p.URL)
		for range 5 {
			putPlain(t, beside, pod("a"), "later")
		}
	}
	l := newLine(t, first.URL)
	h := newHeld("hold")
	s := openPlain(t, l.URL(), h.configure)
	putPlain(t, beside, pod("held"), "hold")
	<-h.decoding
	l.lead(second.URL)
	l.drop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	v, err := s.At(ctx, pod("a"), past)
	if !errors.Is(err, store.ErrClosed) || v != nil {
		t.Errorf("%v, %v", v, err)
	}
	if err := s.Healthy(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("it has not been noticed: %v", err)
	}
	close(h.release)
}
