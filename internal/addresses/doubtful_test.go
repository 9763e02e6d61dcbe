package addresses_test

import (
	"context"
	"slices"
	"testing"

	"plinth/internal/store"
	"plinth/internal/store/storetest"
)

// apart is the writer of a store on which an IPAddress is committed before its Service, as on etcd. What happens to
// the commit of a Service is up to the test.
type apart struct {
	store.Writer
	store.Others
	service func(commit func() (store.Revisions, error)) (store.Revisions, error)
	removed func() // before the commit that removes an IPAddress
}

const ipAddresses = "networking.k8s.io/ipaddresses"

// Atomic is store.Others.Atomic.
func (a *apart) Atomic(x, y store.Key) bool {
	return x.Resource != y.Resource && x.Resource != ipAddresses && y.Resource != ipAddresses
}

// Commit is store.Writer.Commit.
func (a *apart) Commit(ctx context.Context, pre []store.Precondition, changes []store.Change) (store.Revisions,
	error) {
	commit := func() (store.Revisions, error) { return a.Writer.Commit(ctx, pre, changes) }
	if a.service != nil && slices.ContainsFunc(changes, func(c store.Change) bool {
		return c.Key.Resource == "/services" && c.Data != nil
	}) {
		return a.service(commit)
	}
	if a.removed != nil && slices.ContainsFunc(changes, func(c store.Change) bool {
		return c.Key.Resource == ipAddresses && c.Data == nil
	}) {
		a.removed()
	}
	return commit()
}

// Healthy is store.Writer.Healthy.
func (a *apart) Healthy() error { return a.Writer.Healthy() }

func newApart(t *testing.T) (*cluster, *apart) {
	t.Helper()
	shared := storetest.NewCluster(nil)
	shared.OneRevision = true
	a := &apart{}
	c := newClusterOn(t, "10.0.0.0/27", 30000, 30039, func(config store.Config) (*store.Store, error) {
		s, _, err := shared.Open(config)
		if err == nil {
			a.Writer, a.Others = s.Writer, s.Others
			s.Writer, s.Others = a, a
		}
		return s, err
	})
	return c, a
}

// A Service of which it is not known whether it was written keeps its address: whether it was written before its client
// was told so, or is written later.
//
// SPEC: DEL-1, STORE-2
func TestAddressOfADoubtfulService(t *testing.T) {
	for _, late := range []bool{false, true} {
		c, a := newApart(t)
		var pending func() (store.Revisions, error)
		a.service = func(commit func() (store.Revisions, error)) (store.Revisions, error) {
			if pending = commit; !late {
				if _, err := commit(); err != nil {
					t.Error(err)
				}
			}
			return store.Revisions{}, context.DeadlineExceeded
		}
		if _, err := c.create("doubtful", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`)); err == nil {
			t.Fatal("the Service is said to be written")
		}
		a.service = nil
		_, err := c.create("other", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`))
		wants(t, err, 422, "provided IP is already allocated")
		if late {
			if _, err := pending(); err != nil {
				t.Error(err)
			}
		}
		c.consistent()
	}
}

// A Service that certainly was not written leaves no address behind.
func TestAddressOfARefusedService(t *testing.T) {
	c, a := newApart(t)
	a.service = func(func() (store.Revisions, error)) (store.Revisions, error) {
		return store.Revisions{}, store.ErrNoRoom
	}
	if _, err := c.create("refused", spec("ClusterIP", "")); err == nil {
		t.Fatal("the Service is said to be written")
	}
	if left := c.all(ipAddresses); len(left) > 0 {
		t.Errorf("%d addresses are left", len(left))
	}
}

// An address that is taken for left over, and removed while its Service is on the way to the store, is given to it no
// more: the Service gets it anew, or another one.
//
// SPEC: DEL-1, STORE-2
func TestAddressRemovedBeforeItsService(t *testing.T) {
	c, a := newApart(t)
	times := 0
	a.service = func(commit func() (store.Revisions, error)) (store.Revisions, error) {
		if times++; times == 1 {
			for _, v := range c.all(ipAddresses) {
				if _, err := a.Writer.Commit(t.Context(), []store.Precondition{store.At(v)},
					[]store.Change{{Key: v.Key}}); err != nil {
					t.Error(err)
				}
			}
		}
		return commit()
	}
	if _, err := c.create("one", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`)); err != nil {
		t.Error(err)
	}
	if times != 2 {
		t.Errorf("the Service was sent %d times", times)
	}
	a.service = nil
	c.consistent()
}

// An address is taken for left over, and its Service reaches the store after that was decided and before the address
// is removed: it stays, or another Service could get it.
//
// SPEC: DEL-1, STORE-2
func TestAddressRemovedAfterItsService(t *testing.T) {
	c, a := newApart(t)
	var pending func() (store.Revisions, error)
	a.service = func(commit func() (store.Revisions, error)) (store.Revisions, error) {
		pending = commit
		return store.Revisions{}, context.DeadlineExceeded
	}
	if _, err := c.create("late", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`)); err == nil {
		t.Fatal("the Service is said to be written")
	}
	a.service = nil
	times := 0
	a.removed = func() {
		if times++; times == 1 {
			if _, err := pending(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := c.delete("ipaddresses", "10.0.0.9"); err != nil {
		t.Error(err)
	}
	if times != 1 {
		t.Errorf("the removal was sent %d times; the second one is a new IPAddress", times)
	}
	c.consistent()
}
