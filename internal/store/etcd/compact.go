package etcd

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// compactKey is the key by which all servers of one etcd, kube-apiservers among them, agree on compactions. It lies
// outside of every prefix.
const compactKey = "compact_rev_key"

// compactor compacts the history of etcd, by the protocol of the reference: in each interval one of the servers that
// share the etcd compacts up to the revision that was the newest one an interval ago.
//
// What decides is the *version* of the key, which etcd raises by one at each write. Each server remembers the version
// that it expects, and the revision at its last turn. At its next turn it writes that revision on the condition that
// the version is the one that it expects. Of several servers one succeeds, and compacts; the others learn the new
// version, and the revision that the first one has seen. So
//
//	history reaches back between one and two intervals, however many servers there are, and whichever of them stop
func (w *Writer) compactor() {
	turn := time.NewTicker(w.config.CompactionInterval)
	defer turn.Stop()
	version, revision := int64(0), int64(0)
	for {
		select {
		case <-turn.C:
		case <-w.ctx.Done():
			return
		}
		var err error
		if version, revision, err = w.compact(version, revision); err != nil && w.ctx.Err() == nil {
			w.config.Logger.Warn("etcd was not compacted", "error", err)
		}
	}
}

// compact takes one turn, and returns what the next one expects.
func (w *Writer) compact(version, revision int64) (nextVersion, nextRevision int64, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, requestTimeout)
	defer cancel()
	answer, err := w.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(compactKey), "=", version)).
		Then(clientv3.OpPut(compactKey, strconv.FormatInt(revision, 10))).
		Else(clientv3.OpGet(compactKey)).Commit()
	if err != nil {
		return version, revision, err
	}
	newest := answer.Header.Revision
	if !answer.Succeeded {
		// Another server has taken this turn.
		if kvs := answer.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
			version = kvs[0].Version
		}
		return version, newest, nil
	}
	version++
	if revision == 0 {
		return version, newest, nil // the first turn: nothing is known to be old enough
	}
	if _, err = w.client.Compact(ctx, revision); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return version, newest, err
	}
	return version, newest, nil
}
