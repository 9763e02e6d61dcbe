package engine

import (
	"context"
	"slices"
	"strings"

	"plinth/internal/store"
	"plinth/object"
)

// Change is a record of the history of all objects: what one commit did to one of them.
type Change = store.Record

// Key names one object, of any type.
type Key = store.Key

// Changes is a position in the history of all objects of all types, in the order of revisions.
type Changes struct{ cursor *store.Cursor }

// Changes starts behind a snapshot of all objects, of all types, including those that are no longer served. objects
// is called for each of them. The error is an apierr or that of ctx.
func (e *Engine) Changes(ctx context.Context, objects func(*Object)) (*Changes, error) {
	if err := e.fresh(ctx); err != nil {
		return nil, err
	}
	snapshot, err := e.store.Snapshot(0)
	if err != nil {
		return nil, err
	}
	cursor, err := e.store.WatchAll(snapshot.Revision())
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

// Next waits for changes. A batch may end within a commit. The slice is valid until the next call. It fails when the
// history no longer reaches back to the position, or with the error of ctx.
func (c *Changes) Next(ctx context.Context) ([]*Change, error) { return c.cursor.Next(ctx) }

// Revision is the revision up to which all changes were returned.
func (c *Changes) Revision() int64 { return c.cursor.Revision() }

// Close frees the position.
func (c *Changes) Close() { c.cursor.Close() }

// Dependents yields the objects that name an owner by this UID, of all types and namespaces, as they are at one
// moment, until yield returns false (DEL-5). yield may write.
func (e *Engine) Dependents(uid string, yield func(*Object) bool) { e.store.Dependents(uid, yield) }

// Stored is the newest version of an object as it is stored; nil if there is none.
func (e *Engine) Stored(ctx context.Context, k Key) (*Object, error) {
	v, _, err := e.store.Live(ctx, k, true)
	if err != nil {
		return nil, commitFailed(err)
	}
	return v, nil
}

// Key is the key of an object of this type.
func (r *Resource) Key(namespace, name string) Key { return r.key(namespace, name) }

// RequestFor is a request about the object with this key.
func (r *Resource) RequestFor(k Key) *Request {
	rq := &Request{Resource: r, Name: k.Name}
	if r.Namespaced {
		rq.Namespace, rq.Name, _ = strings.Cut(k.Name, "/")
	}
	return rq
}

// HeadOf is apiVersion, kind and metadata of a stored version in its stored form. It may have more members.
func HeadOf(v *Object) (object.Value, error) {
	if v.Sidecar.Unreadable != nil {
		return object.Nil, unreadable(v, v.Sidecar.Unreadable)
	}
	if o := LayoutOf(v).origin.Load(); o != nil {
		return o.obj, nil
	}
	parsed, err := object.ParseMembers(v.Data, "apiVersion", "kind", "metadata")
	if err != nil {
		return object.Nil, err
	}
	return parsed.Value, nil
}

// OfPath is a type whose objects have keys with this resource part, in their storage version if that is served; nil
// if none is served.
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

// OfKind is the type with this apiVersion and kind, as references name it; nil if it is not served.
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
