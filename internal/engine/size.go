package engine

import (
	"context"
	"fmt"
	"math/bits"
	"strings"

	"plinth/internal/apierr"
	"plinth/internal/proto"
	"plinth/internal/store"
	"plinth/schema"
)

// maxRequest is the longest request that etcd accepts (its --max-request-bytes). The bound is the same in every store
// (STORE-4), so that objects can be moved from one server to another.
const maxRequest = 3 << 19

// measuredFrom is the length of JSON from which on the size on etcd is computed. Shorter objects are far below
// maxRequest, as JSON and as protobuf.
const measuredFrom = 1 << 20

// fit prints the object in the place of a version, unless etcd would refuse it. An object that is too large is tried
// once more without managedFields, as in the reference, except after an apply, which has to record them. A deletion
// mark is not measured (Engine.Delete calls version): it must not fail.
//
// The error is 413, as in the reference where etcd answers "request is too large".
func (d *draft) fit(ctx context.Context, before *store.Version) error {
	kind := d.rq.Resource.Stored
	for obj := d.stored; ; obj = obj.WithoutAt("metadata", "managedFields") {
		next, err := d.version(ctx, d.rq.Resource, before, obj, d.stable, d.now)
		if err != nil {
			return err
		}
		size, err := requestSize(kind, next, before.Revision)
		switch {
		case err != nil:
			return err
		case size <= maxRequest:
			d.next = next
			return nil
		case d.owned || LayoutOf(next).Managed == 0:
			return apierr.NewTooLarge(fmt.Sprintf("the object would take %d bytes, limit is %d", size, maxRequest))
		}
	}
}

// requestSize is a lower bound of the length of the request by which etcd would store a version in the place of the
// version with the revision before. Built-in objects are measured as protobuf, in which the reference stores them.
func requestSize(k *Kind, v *store.Version, before int64) (int, error) {
	size := v.Len()
	if size <= measuredFrom {
		return size, nil
	}
	if t := k.Storage.Schema(); !k.Custom && t.Kind == schema.Struct { // an object without a Struct type has no message
		var err error
		if size, err = proto.Size(t, v.Data()); err != nil {
			return 0, err
		}
	}
	return transactionSize(v.Key, before, size), nil
}

// transactionSize is the length of the request that stores a value on etcd in the place of a revision; 0: as a new
// key. It is a transaction that compares the revision of the key and puts the value, or, if there was one, reads it:
//
//	request  { header{id} txn{ compare{target key revision} success{put{key value}} failure{range{key}} } }
//
// An id has nine or ten bytes, depending on the member of the cluster. Ten are assumed.
func transactionSize(k store.Key, revision int64, value int) int {
	// The path on etcd has no group.
	path := len("/registry/") + len(k.Resource) - strings.IndexByte(k.Resource, '/') + len(k.Name)
	put := fieldLength(1, path) + fieldLength(1, value)
	compare := 2 + fieldLength(1, path) + 1 + varintLength(uint64(revision))
	txn := fieldLength(1, compare) + fieldLength(1, fieldLength(1, put))
	if revision != 0 {
		txn += fieldLength(1, fieldLength(1, fieldLength(1, path)))
	}
	const id = 1 + 10
	return fieldLength(2, id) + fieldLength(1, txn)
}

// fieldLength is the length of a protobuf field: a tag, the length of its content, the content.
func fieldLength(tag, content int) int { return tag + varintLength(uint64(content)) + content }

// varintLength is the length of a protobuf varint: 7 bits in each byte, at least one byte.
func varintLength(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }
