package engine

import (
	"context"
	"slices"
	"strings"

	"plinth/internal/store"
	"plinth/object"
)

// Change is a record of the history of all objects: what one commit did to one of them. It is shared by all readers.
type Change = store.Record

// Key names one object, of any type.
type Key = store.Key

// Changes is a position in the history of all objects of all types, in the order of revisions. Controllers follow it
// instead of a watch for each type: garbage collection depends on deletions and owner references of objects of every
// type, and between watches of different types there is no order.
//
// It reads stored forms. No object is converted, and objects of types that are no longer served are included: their
// owners may still be deleted.
type Changes struct{ cursor *store.Cursor }

// Changes starts behind a snapshot of all objects and calls objects for each object in it. Every change after the
// snapshot is returned by Next:
//
//	state known to the caller = objects of the snapshot + changes returned so far
//
// The snapshot is as new as the newest write at the time of the call (fresh), so a controller that takes over from
// one on another server does not begin in the past. A cursor keeps no history: if the caller takes longer with the
// objects than the history lasts, the first Next fails.
//
// The error is an API error or that of ctx.
func (e *Engine) Changes(ctx context.Context, objects func(*Object)) (*Changes, error) {
	if err := e.fresh(ctx); err != nil {
		return nil, err
	}
	snapshot, err := e.store.Snapshot(0)
	if err != nil {
		return nil, err
	}
	cursor, err := e.store.WatchAll(ctx, snapshot.Revision())
	if err != nil {
		return nil, err
	}
	snapshot.Resources(func(path string) bool {
		snapshot.Ascend(path, "", "", func(v *store.Version) bool {
			objects(v)
			return ctx.Err() == nil
		})
		return ctx.Err() == nil
	})
	return &Changes{cursor: cursor}, ctx.Err()
}

// Next waits for changes and returns them in the order of revisions. A batch may end within a commit. The slice is
// valid until the next call. It fails with store.ErrCompacted when the history no longer reaches back to the
// position: the caller has to start again with Engine.Changes. It also fails when ctx ends.
func (c *Changes) Next(ctx context.Context) ([]*Change, error) { return c.cursor.Next(ctx) }

// Ready is Next for a reader that has no goroutine while it waits: if there are no changes, it returns none, and wake
// is called as soon as there may be some. See Watch.Ready.
func (c *Changes) Ready(ctx context.Context, wake func()) ([]*Change, error) {
	return c.cursor.Ready(ctx, wake)
}

// Revision is the revision up to which Next has returned all changes.
func (c *Changes) Revision() int64 { return c.cursor.Revision() }

// Close frees the position.
func (c *Changes) Close() { c.cursor.Close() }

// Dependents yields the objects that have an owner reference with this UID, of all types and namespaces, as they are
// at the time of the call, until yield returns false (DEL-5). No lock is held during yield, so it may write.
func (e *Engine) Dependents(uid string, yield func(*Object) bool) { e.store.Dependents(uid, yield) }

// Stored returns the newest version of an object as it is stored; nil if there is none.
func (e *Engine) Stored(ctx context.Context, k Key) (*Object, error) {
	v, _, err := e.at(k.Resource).store.Live(ctx, k, true)
	if err != nil {
		return nil, commitFailed(err)
	}
	return v, nil
}

// Key is the key of an object of this type.
func (r *Resource) Key(namespace, name string) Key { return r.key(namespace, name) }

// RequestFor is a request of the server itself about the object with this key.
func (r *Resource) RequestFor(k Key) *Request {
	rq := &Request{Resource: r, Name: k.Name}
	if r.Namespaced {
		rq.Namespace, rq.Name, _ = strings.Cut(k.Name, "/")
	}
	return rq
}

// HeadOf returns apiVersion, kind and metadata of a stored version, in its stored form. Controllers need no more, and
// for a large object parsing only those members takes a small part of the time. If the parsed object is still kept
// (origins), HeadOf returns all of it, so the result may have more members.
func HeadOf(v *Object) (object.Value, error) {
	if v.Sidecar.Unreadable != nil {
		return object.Nil, unreadable(v, v.Sidecar.Unreadable)
	}
	if o := LayoutOf(v).origin.Load(); o != nil {
		return o.obj, nil
	}
	parsed, err := object.ParseMembers(v.Data(), "apiVersion", "kind", "metadata")
	if err != nil {
		return object.Nil, err
	}
	return parsed.Value, nil
}

// OfPath finds the type whose objects have keys with this resource part, in the storage version if that is served,
// otherwise in another version; nil if none is served.
func (t *Types) OfPath(path string) *Resource {
	kind := t.kind(path)
	if kind == nil {
		return nil
	}
	for _, r := range kind.versions {
		if r.Served == kind.kind.Storage {
			return r
		}
	}
	return kind.versions[0]
}

// OfKind finds the type with this apiVersion and kind, the form in which owner references and other references name it;
// nil if it is not served.
func (t *Types) OfKind(apiVersion, kind string) *Resource {
	group, version, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group, version = "", apiVersion
	}
	gv := t.GroupVersion(group, version)
	if gv == nil {
		return nil
	}
	i := slices.IndexFunc(gv.Resources, func(r *Resource) bool { return r.Kind == kind })
	if i < 0 {
		return nil
	}
	return gv.Resources[i]
}
