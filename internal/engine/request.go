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

// Request has the arguments of every verb. It does not change while it is served; a verb that needs another request
// copies it.
type Request struct {
	Resource    *Resource
	Subresource *Subresource // nil: the object itself
	Namespace   string       // "" for cluster scope, and for a collection over all namespaces
	Name        string       // "" for a collection
	User        access.User
	// Impersonator is the name of the user who has authenticated and asked to be User; "": User has. AuditID is that of
	// the audit log. Both are only for what is stored about a commit.
	Impersonator, AuditID string
	// Verb is the verb that was authorized ("patch" for an apply); "" for requests of the server itself.
	Verb string
	// FieldManager names the writer. If it is empty, UserAgent stands in for it (SSA-6).
	FieldManager, UserAgent string
	// Force lets an apply take over fields that others own (SSA-4).
	Force      bool
	Validation Validation
	DryRun     bool
	// OwnStart says that it is a write with which the server starts. Built-in plugins admit it, webhooks and policies are
	// not asked: one that is down could otherwise keep the server from starting.
	OwnStart bool
	// Term, if not nil, is a term that begins with the commit of this write. A dry run begins none.
	Term *Term
	// Annotations, if not nil, takes the annotations of admission for the audit log.
	Annotations Annotator
	// Received, if not nil, is given the decoded body, for the audit log (AUTH-4).
	Received *Received
	// IfMatch names revisions of which the live version must be one, IfNoneMatch revisions of which it must not be one
	// (WRITE-5); nil: no condition. httpapi sets IfNoneMatch only for writes, since for a read it needs the result.
	IfMatch, IfNoneMatch *Versions
	// Authorizer decides in the middle of a verb whether the user may also do what the verb turns out to be (a PUT that
	// creates) or what the body implies (a role that grants rights that its writer does not have), see Allowed. Nil
	// disables it: requests of the server itself may do everything.
	Authorizer access.Authorizer
}

// Received is the body of a create or an update as the server has decoded it. Object is null until the body has been
// decoded without an error.
type Received struct {
	// Whole requests the object with its defaults and in stored form; otherwise it is as it was decoded.
	Whole  bool
	Object object.Value
}

// Validation is what happens to unknown and duplicate fields (VAL-2).
type Validation string

// The levels. The zero value, the default of the API, means Warn.
const (
	Warn   Validation = "Warn"
	Ignore Validation = "Ignore"
	Strict Validation = "Strict"
)

// warns says whether unknown and duplicate fields are warnings.
func (v Validation) warns() bool { return v == Warn || v == "" }

// Object is a stored object or one that is ready to be written out.
type Object = store.Version

// Result is the answer of a verb on one object.
type Result struct {
	Object *Object
	// Variant stands for everything that determines the bytes of Object besides its revision. 0: Object is not the one
	// that is stored at that revision (a dry run, an object that was removed).
	Variant uint64
	// Made says that the bytes of Object were made for this request alone: they are no stored version, which all readers
	// share.
	Made bool
	// Status is the answer if there is no object to show (a completed delete).
	Status  object.Value
	Created bool // 201
	Removed bool // the object was removed, and not only marked as deleted
	// Warnings are sent to the client with the answer, one Warning header each. A verb that fails returns a Result in
	// addition to its error if there are any.
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
	Shard     string // the shard selector; "" if the list is not limited to a shard
	Items     iter.Seq[*Object]
	Made      int      // bytes of Items that were made for this list alone, and are no stored versions
	Warnings  []string // as a Result's

	cut error
}

// Err is why the last iteration over Items ended early: the error of the context that the list was begun with; nil if
// it reached the end.
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

// String is the type as it is written in the stream.
func (t EventType) String() string { return eventNames[t] }

// Event is one change in a collection, or a bookmark.
type Event struct {
	Type EventType
	// Object is the object as of Revision; nil for a bookmark. In a DELETED event it is the last state of which the
	// selection was true, and Revision is that of the deletion.
	Object   *Object
	Revision int64
	// InitialEnd marks the bookmark that ends the initial events.
	InitialEnd bool
	// Unfinished says that events of the same revision may follow, see Shows.
	Unfinished bool
	// Record is where encoders keep the encoded event for the other watchers; nil if the event is not the same for all of
	// them.
	Record *store.Record
}

// Shows is the resourceVersion that the event shows, from which its client resumes. That of an object is the one of its
// last write, so that the client can write it. That of a deletion is the revision of the event, unless others of this
// revision follow, which would be missed: then it is one before. A client may get those before it again.
func (e *Event) Shows() int64 {
	switch {
	case e.Type == Bookmark || e.Type == Deleted && !e.Unfinished:
		return e.Revision
	case e.Type == Deleted:
		return e.Revision - 1
	}
	return e.Object.Revision
}

// DeleteOptions are the options of a delete (DEL-2).
type DeleteOptions struct {
	GracePeriodSeconds              *int64
	PropagationPolicy               string // "", Foreground, Background, Orphan
	OrphanDependents                *bool
	PreconditionUID, PreconditionRV string
	DryRun                          bool
	IgnoreReadError                 bool // ignoreStoreReadErrorWithClusterBreakingPotential (DEL-6)

	listed string // the UID of the listed object that DeleteCollection deletes; "": another verb
}

// Clock returns the time; tests use their own.
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

// Patch is a change to an object in the form in which its client sent it.
type Patch struct {
	Type PatchType
	Body []byte
}
