package etcd

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Keys are the keys of one folder below the prefix that are no objects. Each belongs to one server, which renews it as
// long as it runs: by them the servers of one etcd know of each other. They are not in the state.
//
// Each put has a lease of its own, which nobody keeps alive: a key ends unless it is put again, and the lease of an
// earlier put ends without an effect.
//
//	a server puts and deletes the keys whose names it is given, and reads those of all others
type Keys struct {
	cluster *Cluster
	folder  string // with the prefix; ends with "/"
}

// NamedValue is a key of Keys, without the folder, with its value.
type NamedValue struct {
	Name  string
	Value []byte
}

// Keys returns the keys of a folder, "masterleases".
func (e *Cluster) Keys(folder string) *Keys { return &Keys{e, e.prefix + folder + "/"} }

// List returns all keys, in the order of their names.
func (k *Keys) List(ctx context.Context) ([]NamedValue, error) {
	answer, err := k.cluster.client.Get(ctx, k.folder, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("etcd: %s: %w", k.folder, err)
	}
	all := make([]NamedValue, len(answer.Kvs))
	for i, kv := range answer.Kvs {
		all[i] = NamedValue{strings.TrimPrefix(string(kv.Key), k.folder), kv.Value}
	}
	return all, nil
}

// Get returns the value of a key; nil: there is no such key.
func (k *Keys) Get(ctx context.Context, name string) ([]byte, error) {
	answer, err := k.cluster.client.Get(ctx, k.folder+name)
	if err != nil {
		return nil, fmt.Errorf("etcd: %s%s: %w", k.folder, name, err)
	}
	if len(answer.Kvs) == 0 {
		return nil, nil
	}
	return answer.Kvs[0].Value, nil
}

// Put replaces the value of a key by what next returns for it, nil being the value of a key that does not exist. The
// new value ends after ttl.
func (k *Keys) Put(ctx context.Context, name string, ttl time.Duration, next func(live []byte) ([]byte, error)) error {
	lease, err := k.cluster.client.Grant(ctx, int64(math.Ceil(ttl.Seconds())))
	if err != nil {
		return fmt.Errorf("etcd: no lease: %w", err)
	}
	_, err = k.change(ctx, name, func(live []byte) (*clientv3.Op, error) {
		value, err := next(live)
		put := clientv3.OpPut(k.folder+name, string(value), clientv3.WithLease(lease.ID))
		return &put, err
	})
	return err
}

// Delete deletes a key, and says whether it existed.
func (k *Keys) Delete(ctx context.Context, name string) (existed bool, err error) {
	return k.change(ctx, name, func(live []byte) (*clientv3.Op, error) {
		if live == nil {
			return nil, nil
		}
		remove := clientv3.OpDelete(k.folder + name)
		return &remove, nil
	})
}

// change makes one change of a key, given its value, on the condition that the key has not changed since its value was
// read. If op returns nil, nothing is done. change says whether there was a key.
func (k *Keys) change(ctx context.Context, name string, op func(live []byte) (*clientv3.Op, error)) (bool, error) {
	key := k.folder + name
	read, err := k.cluster.client.Get(ctx, key)
	if err != nil {
		return false, fmt.Errorf("etcd: %s: %w", key, err)
	}
	for kvs := read.Kvs; ; {
		var live []byte
		revision := int64(0)
		if len(kvs) > 0 {
			live, revision = kvs[0].Value, kvs[0].ModRevision
			if live == nil {
				live = []byte{}
			}
		}
		do, err := op(live)
		if err != nil || do == nil {
			return live != nil, err
		}
		answer, err := k.cluster.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(*do).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return false, fmt.Errorf("etcd: %s: %w", key, err)
		}
		if answer.Succeeded {
			return live != nil, nil
		}
		kvs = answer.Responses[0].GetResponseRange().Kvs
	}
}
