package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// recall keeps creates from being carried out after their outcome was decided.
//
// The problem: the answer to a create is lost, and the create is still on its way to etcd. The writer reads etcd, finds
// no object, and sends the create again, or finds another object of that name, and tells its client of the conflict.
// Then somebody deletes that object, and the first attempt arrives: its comparison, that there is no such object,
// holds, and an object that was deleted is there again. Other transactions are not in danger, as they compare a
// revision, which never comes back.
//
// So a create compares as well that a key of this process is absent. Nobody writes that key as long as no answer is
// lost. When one is, the key is written before the outcome of the transaction is looked for, and later creates compare
// the next one:
//
//	recall(n) was answered at revision r  ⇒  what compares key n and is not in etcd at r will never be
//
// Creates of this process that are under way meanwhile, with the same key, are refused, and are sent again. The keys
// lie outside of every prefix, as the witness does, and end with its lease, which is longer than a request can be under
// way.
type recall struct {
	folder string

	mu     sync.Mutex
	number int64 // of the key that creates compare
	off    bool  // etcd does not let this process write keys outside of its prefix
}

func newRecall() recall { return recall{folder: fmt.Sprintf("plinth_recalled/%016x", rand.Uint64())} }

func (r *recall) key(number int64) string { return fmt.Sprintf("%s/%d", r.folder, number) }

// current is the number of the key that creates compare now; 0: they compare none.
func (r *recall) current() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.off {
		return 0
	}
	return r.number + 1
}

// over makes later creates compare another key than the one of a number.
func (r *recall) over(number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number = max(r.number, number)
}

// recall has etcd refuse the attempts that compare the key of a number, unless it has carried them out.
func (w *Writer) recall(number int64) error {
	if number == 0 {
		return nil
	}
	w.recalls.over(number)
	ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
	defer cancel()
	lease, err := w.witness.leased(ctx, w.Cluster)
	if err != nil {
		return err
	}
	_, err = w.kv.Txn(ctx, &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{
		put(w.recalls.key(number), nil, lease)}})
	switch err = clientv3.ContextError(ctx, err); {
	case errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied):
		w.recalls.refuse()
		return nil
	case errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound):
		w.witness.drop()
	}
	return err
}

// refuse makes no create compare a key any more.
func (r *recall) refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.off = true
}
