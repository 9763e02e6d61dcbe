package engine

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"plinth/internal/invariants"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// Kind is what is stored: objects under keys of their own, each in one of the versions of the kind. A Resource is what
// is served: one version of a kind under one name. Kinds are compared by identity: an object has one Kind, by whatever
// version or group it is read.
//
// Stored bytes have the form that was current when they were written. Since then, another version may have become the
// storage version, or the schema of that version may have another field or default. So each stored version carries a
// stamp, a hash of what determined its form (store.Sidecar.Form):
//
//	v.Sidecar.Form = k.stamp()  ⇒  v.Data = what a write of the same object would store now
//
// Only such bytes are sent as they are. Everything else is brought into the current form by every read (readAll):
//
//	read(v, to) = prune(to, convert(to, default(version of v, v)))
//
// The order matters. The defaults are those of the version in which the object is stored, because a conversion may read
// them. The defaults of the served version are not added: as in the reference, a read of an object does not show a
// default that was added to the schema after the object was stored, unless its storage version has it. A write of an
// object in an old form is never treated as "nothing changed", since storage migration is done by writes that change
// nothing else (WRITE-3).
//
// Comparing the apiVersion in the bytes with the storage version would not detect that a schema changed within a
// version.
type Kind struct {
	// Path is the resource part of store keys, "apps/deployments": the group is that of the kind in the store.
	Path string
	// Storage is the version in which objects are stored. Versions are all versions in which stored or served objects may
	// be, including that one. The registry decides which of them are served.
	Storage  *Version
	Versions []*Version
	// Convert converts objects, which may be of several versions, to one of them; nil if there is one version only. It
	// takes many at a time, as a request to a webhook for each would be too slow.
	Convert func(ctx context.Context, objects []object.Value, to *Version) ([]object.Value, error)
	// Converted keeps what Convert has made of stored versions, for a Convert that asks a webhook; the kind then has a
	// Life. nil: Convert is cheap, and called for every read.
	Converted *Converted
	// Stamp is the hash of what determines the form of objects that are written now; never 0. StampOf computes it on first
	// use, for kinds whose schema is not compiled before; nil: it is Stamp.
	Stamp   uint64
	StampOf func() uint64
	// Definition is the key of the object that defines the kind, and DefinitionUID its UID; the zero Key: the kind is
	// built in. Every write of the kind's objects is committed on the condition that this definition exists, and every
	// create that it is not being deleted (EXT-3). A definition of the same name that was made later defines another Kind.
	Definition    store.Key
	DefinitionUID string
	// Life ends when the kind is no longer served in this form; nil: never.
	Life *Life
	// Custom says that objects of the kind are JSON everywhere: on etcd, and for clients, which cannot request protobuf.
	Custom bool
	// Origin is the value from which the kind was made; the package that made it compares it to find out whether the kind
	// has to be made again.
	Origin any
	// ReferenceStorage is the version in which the reference stores the kind, if it is not a served one. Discovery shows a
	// hash of it. "" means that of Storage.
	ReferenceStorage string
	// TTL is how long an object lives (URI-10); 0: until it is deleted.
	TTL time.Duration
}

// Life is how long a kind is served in one form: by the same schemas, and the same conversion between its versions. A
// watch ends with the life, and a watch of an earlier life cannot be resumed: the events that were sent have another
// form than those that would follow (EXT-1).
//
//	a watch of the kind sends events of revisions in [Since, end of the life] only
type Life struct {
	// Since is the revision with which the life began.
	Since int64

	context.Context
	End context.CancelFunc
}

// NewLife begins a life at a revision.
func NewLife(since int64) *Life {
	ctx, end := context.WithCancel(context.Background())
	return &Life{Since: since, Context: ctx, End: end}
}

// within is a context that ends with ctx or with the life, whichever ends first. stop releases its registration:
// without it, every call would leave a function registered at the life, which in most cases is as old as the server.
func (l *Life) within(ctx context.Context) (both context.Context, stop func()) {
	if l == nil {
		return ctx, func() {}
	}
	both, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(l.Context, cancel)
	return both, func() { forget(); cancel() }
}

// Version is one version of a kind, as far as storing and merging are concerned.
type Version struct {
	APIVersion string // "apps/v1"
	// Schema is compiled on first use.
	Schema func() *schema.Type
	// Default fills in what the reference's defaulting functions fill in; nil: there are no defaults.
	Default func(obj object.Value) object.Value
	// Fields are the selectable fields of a Resource; nil: none. FieldPaths are the paths that it reads; nil: any.
	Fields     func(obj object.Value) []store.Pair
	FieldPaths [][]string

	describedOnce sync.Once
	describedPart *object.Part // see described

	// selection is the hash of what determines Fields; 0 if there are none (see store.Sidecar.Selection).
	selection uint64
}

// VersionOf is the version of a kind that a resource serves. The names of its selectable fields determine the result of
// Fields for an object, so their hash shows whether the fields in a sidecar are current.
func VersionOf(r *Resource) *Version {
	v := &Version{APIVersion: r.APIVersion(), Schema: r.Schema, Default: r.Default, Fields: r.Fields,
		FieldPaths: r.FieldPaths}
	if r.Fields != nil {
		names := []string{v.APIVersion}
		for _, field := range r.Fields(object.Nil) {
			names = append(names, field.Name)
		}
		v.selection = Stamp(names...)
	}
	return v
}

// SelectsAs says that each selectable field of an object has the same value in both versions, so that the fields in a
// sidecar are those of either. A version of another shape does not: then the objects are converted to be selected.
func (v *Version) SelectsAs(other *Version) { v.selection = other.selection }

// Stamp hashes texts that determine a form. Equal texts have the same stamp in every process, since stamps are stored.
// No stamp is 0, which means "unknown". The length before each text distinguishes ("a", "bc") from ("ab", "c").
func Stamp(texts ...string) uint64 {
	h := fnv.New64a()
	for _, text := range texts {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	return h.Sum64() | 1
}

// NewKind is a kind with these versions, of which the first is the storage version. Its name and the texts determine
// the stored form.
func NewKind(path string, versions []*Version, texts ...string) *Kind {
	return &Kind{Path: path, Storage: versions[0], Versions: versions,
		Stamp: Stamp(append(texts, versions[0].APIVersion)...)}
}

// StoredAlone gives a resource a kind of its own that is stored in the version that it serves, and returns the
// resource. The texts are those of NewKind.
func (r *Resource) StoredAlone(path string, texts ...string) *Resource {
	r.Served = VersionOf(r)
	r.Stored = NewKind(path, []*Version{r.Served}, texts...)
	return r
}

// Group is the group of the kind in the store: an Event belongs to the core group, by whatever group it is served.
func (k *Kind) Group() string {
	group, _, _ := strings.Cut(k.Path, "/")
	return group
}

// Version finds the version of this name; nil if the kind has none.
func (k *Kind) Version(apiVersion string) *Version {
	if k.Storage.APIVersion == apiVersion {
		return k.Storage
	}
	i := slices.IndexFunc(k.Versions, func(v *Version) bool { return v.APIVersion == apiVersion })
	if i < 0 {
		return nil
	}
	return k.Versions[i]
}

// convert converts one object to a version. An object that is in that version is returned as it is: readAll handles old
// forms.
func (k *Kind) convert(ctx context.Context, obj object.Value, to *Version) (object.Value, error) {
	if k.Convert == nil || obj.At("apiVersion").Str() == to.APIVersion {
		return obj, nil
	}
	converted, err := k.Convert(ctx, []object.Value{obj}, to)
	if err != nil {
		return object.Nil, err
	}
	return converted[0], nil
}

// current says whether a stored version has the current form.
func (k *Kind) current(v *store.Version) bool { return v.Sidecar.Form == k.stamp() }

func (k *Kind) stamp() uint64 {
	if k.StampOf != nil {
		return k.StampOf()
	}
	return k.Stamp
}

// anyVersion is the key of a value in the context of a read of the past (asWas).
type anyVersion struct{}

// asWas is the context of a read of what objects were. A definition may have lost a version since, in which no live
// object is stored any more, and nothing tells how that one was converted. What is stored in it is shown as if it were
// stored in today's storage version: the versions of a definition without a webhook differ in nothing but their names.
// Otherwise a list of the past would fail because of one such object.
func asWas(ctx context.Context) context.Context { return context.WithValue(ctx, anyVersion{}, true) }

// readAll brings stored objects into the current form of a version; old says which of them have an old form. It takes
// many objects at a time because the conversion may call a webhook. The result has the same objects in the same order
// (assertIdentity). The slice objects is overwritten.
//
// The three parts are the three functions of the formula at Kind, from the inside out: default, convert, prune. An
// object in the current form is only converted.
func (k *Kind) readAll(ctx context.Context, objects []object.Value, old []bool, to *Version) ([]object.Value, error) {
	for i, obj := range objects {
		if !old[i] {
			continue
		}
		from := k.Version(obj.At("apiVersion").Str())
		if from == nil && ctx.Value(anyVersion{}) != nil {
			from, obj = k.Storage, obj.With("apiVersion", object.StringOf(k.Storage.APIVersion))
			objects[i] = obj
		}
		if from == nil {
			return nil, &ConversionError{Index: i, Err: fmt.Errorf("%s is stored as %q, which is no version of %s",
				obj.At("metadata", "name").Str(), obj.At("apiVersion").Str(), k.Path)}
		}
		if k.Custom {
			decoded, err := from.Schema().DecodeStored(obj)
			if err != nil {
				return nil, &ConversionError{Index: i, Err: err}
			}
			objects[i] = decoded.Value
		}
		if from.Default != nil {
			objects[i] = from.Default(objects[i])
		}
	}
	if k.Convert != nil {
		var err error
		var before []object.Value
		if invariants.Enabled {
			before = slices.Clone(objects)
		}
		if objects, err = k.Convert(ctx, objects, to); err != nil {
			return nil, err
		}
		if invariants.Enabled {
			assertIdentity(before, objects, to)
		}
	}
	for i, obj := range objects {
		if !old[i] || k.Custom { // the conversion of a custom kind prunes what it returns
			continue
		}
		decoded, err := to.Schema().Decode(obj)
		if err != nil {
			return nil, &ConversionError{Index: i, Err: err}
		}
		objects[i] = decoded.Value
	}
	return objects, nil
}
