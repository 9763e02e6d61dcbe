package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"plinth/internal/apierr"
	"plinth/internal/invariants"
	"plinth/internal/store"
	"plinth/object"
)

// Describe returns the function by which a store makes the sidecars of versions that it reads from its log, or that
// another server has written. At a restart it runs for every object, and takes most of its time, so it parses no more
// than the sidecar needs: a few members of the metadata, and those with selectable fields (Version.described). The rest
// is checked, as an object that cannot be read must be known before a client reads it.
//
// It never fails: bytes that are not an object get the sidecar of an unreadable one, because a server that does not
// start would be worse than one that lacks an object (unreadable.go). It is called without a lock of the engine,
// possibly on several goroutines.
func Describe(registry *Registry) func(store.Key, []byte) *store.Sidecar {
	return func(key store.Key, data []byte) *store.Sidecar {
		// The kind may no longer be served; its objects are kept all the same, and have owners.
		return DescribeAs(registry.Now().Kind(key.Resource), data)
	}
}

// DescribeAs is Describe for bytes that are an object of a kind; nil: it is not known of which.
func DescribeAs(k *Kind, data []byte) *store.Sidecar {
	part := describedMetadata
	if k != nil {
		part = k.Storage.described()
	}
	var obj object.Value
	var at object.Offsets
	ok := part != nil
	if ok {
		obj, at, ok = object.ParsePart(data, part)
	}
	var s *store.Sidecar
	if ok {
		s = sidecarAt(k, obj, at, &store.Sidecar{})
	} else {
		parsed, err := object.ParseJSON(data)
		if err != nil {
			return unreadableSidecar(err)
		}
		s = sidecar(k, parsed.Value, data, &store.Sidecar{})
	}
	if invariants.Enabled {
		assertDescribed(k, data, s)
	}
	return s
}

// DescribeValue is DescribeAs for bytes that have just been printed from a value (object.AppendLocated), of which it
// keeps nothing.
func DescribeValue(k *Kind, obj object.Value, data []byte, at object.Offsets) *store.Sidecar {
	s := sidecarAt(k, obj, at, &store.Sidecar{})
	if invariants.Enabled && s.Unreadable == nil {
		assertDescribed(k, data, s)
	}
	return s
}

// The paths that a sidecar is made of, besides those of the selectable fields.
var (
	describedPaths = [][]string{{"apiVersion"}, {"metadata", "deletionTimestamp"}, {"metadata", "labels"},
		{"metadata", "ownerReferences"}, {"metadata", "uid"}}
	describedMetadata = object.NewPart(describedPaths...)
)

// described is the part of an object from which its sidecar is made; nil: all of it.
func (v *Version) described() *object.Part {
	v.describedOnce.Do(func() {
		switch {
		case v.Fields == nil:
			v.describedPart = describedMetadata
		case v.FieldPaths != nil:
			v.describedPart = object.NewPart(slices.Concat(describedPaths, v.FieldPaths)...)
		}
	})
	return v.describedPart
}

// sidecar extracts from an object the data that reads and watches need: a list by a label, the wake-up of a watch and
// the index of owner references look at every version of a collection, and parsing JSON for each would take a hundred
// times as long as the comparison itself. data is obj as it is stored. k is nil if the kind is no longer served. Labels
// and fields are sorted by name (assertSidecar), since selections search them.
//
// For a Pod the sidecar has, besides the offsets in data:
//
//	UID        of the Pod             Owners     [the UID of its ReplicaSet]
//	Labels     [{app web}]            Deleting   metadata.deletionTimestamp is set
//	Fields     [{spec.nodeName n1} {spec.restartPolicy Always} {status.phase Running} …]
//	Form       the stamp of the kind                             Selection  a hash of v1 and the names of Fields
//
// Memory is the main cost: there is a sidecar for every version. Parts that have not changed since the version before
// are shared with it. The strings must not point into the body of the request, or every version would keep a whole body
// in memory; so they are cloned, or interned if many objects have equal ones. A UID is only cloned: no other object has
// it, and a table entry for it would cost more than it saves.
func sidecar(k *Kind, obj object.Value, data []byte, before *store.Sidecar) *store.Sidecar {
	at, _ := object.Locate(data) // it accepts canonical JSON alone
	return sidecarAt(k, obj, at, before)
}

// sidecarAt is sidecar with the places of the printed bytes, which are zero if they are no canonical object. It reads
// no more of obj than described says.
func sidecarAt(k *Kind, obj object.Value, at object.Offsets, before *store.Sidecar) *store.Sidecar {
	if at.Splice == 0 {
		return unreadableSidecar(errors.New("the stored bytes are no canonical object"))
	}
	meta := obj.At("metadata")
	s := NewSidecar(at)
	// These are shared with the version before, and replaced below if they differ.
	s.UID, s.Labels, s.Deleting = before.UID, before.Labels, deleting(obj)
	if uid := meta.At("uid").Str(); uid != s.UID {
		s.UID = strings.Clone(uid)
	}
	if labels := meta.At("labels").Members(); !slices.EqualFunc(labels, s.Labels, isPair) {
		s.Labels = pairs(labels)
	}
	for _, owner := range meta.At("ownerReferences").Items() {
		s.Owners = append(s.Owners, intern(owner.At("uid").Str()))
	}
	// An object in another version than the storage version has no current form, and its fields are not those of the
	// storage version. (For versions that are read from the log, the store sets the Form that they were written with.)
	if k == nil || obj.At("apiVersion").Str() != k.Storage.APIVersion {
		return s
	}
	if s.Form = k.stamp(); k.Storage.Fields != nil {
		s.Fields, s.Selection = k.Storage.Fields(obj), k.Storage.selection
		for i := range s.Fields {
			s.Fields[i].Value = intern(s.Fields[i].Value)
		}
	}
	if invariants.Enabled {
		assertSidecar(s)
	}
	return s
}

// isPair says whether a member of metadata.labels is this label.
func isPair(m object.Member, p store.Pair) bool { return m.Key == p.Name && m.Value.Str() == p.Value }

// pairs converts labels to the form of a sidecar.
func pairs(labels []object.Member) []store.Pair {
	if len(labels) == 0 {
		return nil
	}
	list := make([]store.Pair, len(labels))
	for i, m := range labels {
		list[i] = store.Pair{Name: intern(m.Key), Value: intern(m.Value.Str())}
	}
	return list
}

// intern copies a string, and shares the copy with all equal ones while any of them is in use: 5,000 Pods have the
// labels of a few Deployments, and the names of a few nodes.
func intern(s string) string {
	if s == "" {
		return ""
	}
	return unique.Make(s).Value()
}

// version prints an object as it will be stored in the place of before: in the storage version, in canonical JSON,
// with its sidecar. The revision is set by the commit. settled says whether obj is known to have the form that Decode
// and Settle give; then the next write of the object need not settle all of it again (origin).
//
//	v.Data is canonical JSON of obj in k.Storage, without resourceVersion    (so "nothing changed" is bytes.Equal)
//	parse(v.Data) = the value that is kept as the origin of v                 (asserted by origin.check)
//
// The first holds only if each step before has brought its part into canonical form, for which settle exists. The
// second fails for floats, whose text may parse as an integer, and for strings that are not UTF-8; such objects get no
// origin and are parsed when they are read.
//
// Its only side effect is the origin, so a version that is never committed, of a dry run or a lost race, does no harm.
func (e *Engine) version(
	ctx context.Context, r *Resource, before *store.Version, obj object.Value, settled bool, now time.Time,
) (*store.Version, error) {
	k := r.Stored
	if r.Served != k.Storage {
		var err error
		if obj, err = k.convert(ctx, obj, k.Storage); err != nil {
			return nil, cmp.Or(ctx.Err(), error(&apierr.Error{Code: 500, Message: err.Error()})) // as the reference calls it
		}
		// A conversion may leave fields to the defaults of the storage version: spec.behavior of an autoscaler, which
		// the older version has in an annotation.
		if k.Storage.Default != nil {
			obj = k.Storage.Default(obj)
		}
		settled = false
	}
	// The resourceVersion is known only at the commit, and inserted when the object is sent.
	obj = obj.WithoutAt("metadata", "resourceVersion")
	data, at, exact := printed(obj)
	s := sidecarAt(k, obj, at, before.Sidecar)
	if s.Unreadable != nil {
		return nil, s.Unreadable
	}
	v := store.NewVersion(before.Key, 0, data, s)
	if k.TTL > 0 {
		s.Expire = now.Add(k.TTL)
	}
	if exact {
		o := &origin{obj: obj}
		if settled {
			o.settled = r.Schema()
		}
		e.recent.keep(v, o)
	}
	return v, nil
}

// check panics unless parsing data gives the value of the origin, and the value is settled if the origin says so.
// Resource.parsed calls it at each use of an origin when assertions are on.
func (o *origin) check(data []byte) {
	parsed, err := object.ParseJSON(bytes.Clone(data))
	if err != nil || !object.Equal(parsed.Value, o.obj) {
		panic(fmt.Sprintf("engine: %s is printed from something else: %s (%v)", data, object.AppendObject(nil, o.obj), err))
	}
	if o.settled != nil && !o.settled.IsSettled(o.obj) {
		panic(fmt.Sprintf("engine: %s is not settled", data))
	}
}

// scratch are buffers for printing objects whose size is not known yet.
var scratch = sync.Pool{New: func() any { buffer := make([]byte, 0, 8<<10); return &buffer }}

// maxScratch is the capacity from which on a buffer is not kept: one large object must not keep its memory for ever.
const maxScratch = 64 << 10

// printed is an object as JSON, in a slice of exactly its length: the store keeps it for as long as the version lives,
// and spare capacity would be wasted. exact says that parsing gives an equal value.
func printed(obj object.Value) (data []byte, at object.Offsets, exact bool) {
	buffer := scratch.Get().(*[]byte)
	text, at, exact := object.AppendStored((*buffer)[:0], obj)
	data = append(make([]byte, 0, len(text)), text...)
	if cap(text) <= maxScratch {
		*buffer = text
	}
	scratch.Put(buffer)
	return data, at, exact
}

// live is a stored version in the version of the kind that the resource serves, in the current form, without
// resourceVersion. If the version was written recently, the value is taken from its origin instead of being parsed.
// settled says that the object is known to have the form that Decode and Settle return now.
//
// It may call a conversion webhook, so it can take as long as ctx lasts, and fail although the object is intact. For
// callers the two are one error, which names the object; only forceDelete checks ctx to distinguish them.
func (r *Resource) live(ctx context.Context, v *store.Version) (obj object.Value, settled bool, err error) {
	current := r.Stored.current(v)
	asStored := current && r.Served == r.Stored.Storage
	if r.Stored.Converted != nil && !asStored && v.Sidecar.Unreadable == nil {
		made, err := r.converted(ctx, v)
		if err != nil {
			return object.Nil, false, err
		}
		parsed, err := object.ParseJSON(made.Data())
		return parsed.Value, false, err
	}
	if obj, settled, err = r.parsed(v); err != nil || asStored {
		return obj, settled, err
	}
	converted, err := r.Stored.readAll(ctx, []object.Value{obj}, []bool{!current}, r.Served)
	if err != nil {
		return object.Nil, false, unreadable(v, err)
	}
	return converted[0], false, nil
}

// Value is a stored version as clients of this Resource see it, without resourceVersion. For a kind whose conversion
// calls a webhook it can take as long as ctx lasts.
func (r *Resource) Value(ctx context.Context, v *store.Version) (object.Value, error) {
	obj, _, err := r.live(ctx, v)
	return obj, err
}

// parsed is a stored version in the form in which it is stored; settled as in live. The settled of an origin is valid
// only for the type that settled it: a custom type may have been compiled again since, from another definition.
func (r *Resource) parsed(v *store.Version) (obj object.Value, settled bool, err error) {
	if o := LayoutOf(v).origin.Load(); o != nil && v.Sidecar.Unreadable == nil {
		if invariants.Enabled {
			o.check(v.Data())
		}
		return o.obj, o.settled != nil && o.settled == r.Schema(), nil
	}
	obj, err = ObjectOf(v)
	return obj, false, err
}

// Labels are the labels of a stored object, as Kubernetes' selectors match them (labels.Labels).
type Labels struct{ Of *store.Sidecar }

// Lookup implements labels.Labels.
func (l Labels) Lookup(label string) (value string, exists bool) {
	for _, pair := range l.Of.Labels {
		if pair.Name == label {
			return pair.Value, true
		}
	}
	return "", false
}

// Has implements labels.Labels.
func (l Labels) Has(label string) bool {
	_, exists := l.Lookup(label)
	return exists
}

// Get implements labels.Labels.
func (l Labels) Get(label string) string {
	value, _ := l.Lookup(label)
	return value
}

// ObjectOf is the object of a stored version, in the version and form in which it is stored. Controllers and views use
// it; a verb uses Resource.live, which has the form that clients see.
func ObjectOf(v *store.Version) (object.Value, error) {
	if v.Sidecar.Unreadable != nil {
		return object.Nil, unreadable(v, v.Sidecar.Unreadable)
	}
	if o := LayoutOf(v).origin.Load(); o != nil {
		return o.obj, nil
	}
	parsed, err := object.ParseJSON(v.Data())
	if err != nil {
		return object.Nil, unreadable(v, err)
	}
	return parsed.Value, nil
}
