package engine

import (
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/access"
	"plinth/internal/shard"
	"plinth/internal/store"
	"plinth/object"
)

// Request is what every verb is given. It is not changed while it is served; a verb that needs another request copies
// it.
type Request struct {
	Resource    *Resource
	Subresource *Subresource // nil: the object itself
	Namespace   string       // "" for cluster scope, and for a collection over all namespaces
	Name        string       // "" for a collection
	User        access.User
	// FieldManager names the writer. If it is empty, UserAgent stands in for it (SSA-6).
	FieldManager, UserAgent string
	// Force lets an apply take over fields that others own (SSA-4).
	Force      bool
	Validation Validation
	DryRun     bool
	// Received, if not nil, is given the decoded body, for the audit log (AUTH-4).
	Received *Received
	// IfMatch names revisions of which the live version must be one, IfNoneMatch such of which it must be none
	// (WRITE-5); nil: no condition. Reads ask for IfMatch alone.
	IfMatch, IfNoneMatch *Versions
	// Authorizer is asked in mid-verb whether the user may also do what the verb turns out to be (a PUT that creates) or
	// what the body asks for (a role that gives others what its writer has not), see Allowed. Nil disables it: requests
	// of the server itself may do everything.
	Authorizer access.Authorizer
}

// Received is the body of a create or an update as the server has understood it. Object is null until the body has
// been decoded without an error.
type Received struct {
	// Whole asks for the object with its defaults and in stored form; otherwise it is as it was decoded.
	Whole  bool
	Object object.Value
}

// Validation is what happens to unknown and duplicate fields (VAL-2).
type Validation uint8

// The levels. The zero value is the default of the API.
const (
	Warn Validation = iota
	Ignore
	Strict
)

// Object is a stored object or one that is ready to be written out.
type Object = store.Version

// Result is what a verb on one object answers.
type Result struct {
	Object *Object
	// Variant stands for what decides the bytes of Object beside its revision. 0: Object is not what is stored at that
	// revision (a dry run, an object that was removed).
	Variant uint64
	// Status is the answer where there is no object to show (a completed delete).
	Status  object.Value
	Created bool // 201
	Removed bool // the object is gone, and not only marked as deleted
	// Warnings are sent to the client beside the answer, one Warning header each. A verb that fails returns a Result
	// beside its error if there are any.
	Warnings []string
}

// GetWarnings returns the warnings of a result, which may be nil.
func (r *Result) GetWarnings() []string {
	if r == nil {
		return nil
	}
	return r.Warnings
}

// ListOptions are what a list or a watch selects, and at which version.
type ListOptions struct {
	Labels labels.Selector // nil: everything
	Fields fields.Selector // nil: everything
	Shard  *shard.Selector // nil: everything
	// ResourceVersion and Match are as in the URL, checked by the engine (LIST-3).
	ResourceVersion, Match string
	Limit                  int64
	Continue               string
}

// Collection is the answer of a list: one consistent snapshot, which is read while it is written out. Items can be
// iterated over more than once; only one goroutine may do so at a time (cut).
type Collection struct {
	Revision  int64
	Continue  string
	Remaining *int64
	Shard     string // the shard selector, where there is one: the list is a part of the collection
	Items     iter.Seq[*Object]
	Warnings  []string // as a Result's

	cut error
}

// Err is why the last iteration over Items ended early: the error of the context that the list was begun with; nil if
// it came to the end.
func (c *Collection) Err() error { return c.cut }

// WatchOptions are what a watch begins with (WATCH-2, WATCH-5).
type WatchOptions struct {
	ListOptions
	Bookmarks         bool
	SendInitialEvents *bool
}

// EventType is the type of a watch event.
type EventType uint8

// The event types that a Watch yields. ERROR is not among them: Watch.Next returns an error instead.
const (
	Added EventType = iota
	Modified
	Deleted
	Bookmark
)

var eventNames = [...]string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}

// String is the type as it stands in the stream.
func (t EventType) String() string { return eventNames[t] }

// Event is one thing that happened to a collection.
type Event struct {
	Type EventType
	// Object is the object as of Revision; nil for a bookmark. In a DELETED event it is the last state of which the
	// selection was true, and Revision is that of the deletion.
	Object   *Object
	Revision int64
	// InitialEnd marks the bookmark that ends the initial events.
	InitialEnd bool
	// Record is where encoders keep the encoded event for the other watchers; nil if the event is not the same for all
	// of them.
	Record *store.Record
}

// DeleteOptions are what a client asks for in a delete (DEL-2).
type DeleteOptions struct {
	GracePeriodSeconds              *int64
	PropagationPolicy               string // "", Foreground, Background, Orphan
	OrphanDependents                *bool
	PreconditionUID, PreconditionRV string
	DryRun                          bool
	IgnoreReadError                 bool // ignoreStoreReadErrorWithClusterBreakingPotential (DEL-6)
}

// Clock tells the time; tests give their own.
type Clock func() time.Time

// PatchType is the language of a patch (WRITE-2).
type PatchType uint8

// The patch types.
const (
	JSONPatch PatchType = iota
	MergePatch
	StrategicPatch
	ApplyPatch // see Engine.Apply
)

// Patch is a change to an object, as its client wrote it.
type Patch struct {
	Type PatchType
	Body []byte
}
