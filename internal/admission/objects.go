package admission

import (
	"context"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/recent"
	"plinth/internal/store"
	"plinth/object"
)

// objects reads the objects that plugins depend on: the Namespace of a Pod, its ServiceAccount, the LimitRanges of its
// namespace. Where the reference's plugins read caches of informers, and wait for them or ask the server if an object
// is not there yet, these read the store:
//
//	an object was written before the request arrived  ⇒  get and list return it
//
// What is read is kept parsed (recent.Cache), by its version and its type. A version is immutable, and a definition
// that changes makes other types, so nothing becomes stale.
type objects struct {
	store    *store.Store
	registry *engine.Registry
	parsed   recent.Cache[readAs, object.Value]
}

// readAs is a stored object with the type as which it is read: one of several versions of its kind.
type readAs struct {
	version *store.Version
	of      *engine.Resource
}

// parsedBytes bounds the parsed objects, by the length of their JSON.
const parsedBytes = 4 << 20

func newObjects(s *store.Store, types *engine.Registry) *objects {
	return &objects{store: s, registry: types, parsed: recent.Cache[readAs, object.Value]{Limit: parsedBytes}}
}

// kindOf identifies a built-in type.
type kindOf struct{ group, version, resource string }

// resource returns the type; nil if flags have switched it off.
func (o *objects) resource(k kindOf) *engine.Resource {
	return o.registry.Builtin().Find(k.group, k.version, k.resource)
}

// get returns an object in its served form, null if there is none. namespace is "" for cluster scope. The absence of an
// object is certain: the newest state was asked.
func (o *objects) get(ctx context.Context, k kindOf, namespace, name string) (object.Value, error) {
	r := o.resource(k)
	if r == nil {
		return object.Nil, nil
	}
	return o.Get(ctx, r, namespace, name)
}

// Get is get for any type.
func (o *objects) Get(ctx context.Context, r *engine.Resource, namespace, name string) (object.Value, error) {
	key := r.Key(namespace, name)
	v, current, err := o.store.Live(ctx, key, false)
	if err == nil && v == nil && !current {
		v, _, err = o.store.Live(ctx, key, true)
	}
	if v == nil {
		return object.Nil, err
	}
	return o.parse(ctx, r, v)
}

// await is get for an object that is about to be made: it waits for it, up to a time.
func (o *objects) await(ctx context.Context, k kindOf, namespace, name string, wait time.Duration) (object.Value,
	error) {
	r := o.resource(k)
	if r == nil {
		return object.Nil, nil
	}
	key := r.Key(namespace, name)
	cursor, err := o.store.Watch(ctx, key.Resource, key.Name, o.store.Revision())
	if err != nil {
		return object.Nil, err
	}
	defer cursor.Close()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		// It is read after the cursor was made, so what is made meanwhile is not missed.
		obj, err := o.get(ctx, k, namespace, name)
		if err != nil || !obj.IsNull() {
			return obj, err
		}
		if _, err := cursor.Next(waiting); err != nil {
			if waiting.Err() != nil && ctx.Err() == nil {
				return object.Nil, nil
			}
			return object.Nil, err
		}
	}
}

// list returns all objects of a type in a namespace in the order of their names; with namespace "" those of all
// namespaces, or of a type that has none. One that cannot be read is an error.
func (o *objects) list(ctx context.Context, k kindOf, namespace string) ([]object.Value, error) {
	r := o.resource(k)
	if r == nil {
		return nil, nil
	}
	return o.List(ctx, r, namespace, labels.Everything())
}

// List is list for any type, of the objects that a selector selects. The others are not parsed.
func (o *objects) List(ctx context.Context, r *engine.Resource, namespace string, selector labels.Selector) (
	[]object.Value, error) {
	prefix := ""
	if namespace != "" {
		prefix = namespace + "/"
	}
	var all []object.Value
	var failed error
	o.store.Collection(r.Stored.Path).Snapshot().Ascend(r.Stored.Path, prefix, "", func(v *store.Version) bool {
		if !selector.Empty() && !selector.Matches(engine.Labels{Of: v.Sidecar}) {
			return true
		}
		var obj object.Value
		if obj, failed = o.parse(ctx, r, v); failed == nil {
			all = append(all, obj)
		}
		return failed == nil
	})
	return all, failed
}

// parse returns the object of a version in the form in which clients see it: in the version of a type, and with its
// resourceVersion.
func (o *objects) parse(ctx context.Context, r *engine.Resource, v *store.Version) (object.Value, error) {
	key := readAs{v, r}
	if obj, ok := o.parsed.Get(key); ok {
		return obj, nil
	}
	obj, err := r.Value(ctx, v)
	if err != nil {
		return object.Nil, apierr.From(err)
	}
	obj = obj.WithAt(object.StringOf(strconv.FormatInt(v.Revision, 10)), "metadata", "resourceVersion")
	o.parsed.Set(key, obj, v.Len())
	return obj, nil
}
