// Package garbage deletes objects whose owners are gone, and executes the propagation policies of deletes (DEL-2,
// DEL-5).
//
// The problem: an object names its owners by UID, type and name, and has to be deleted when all of them are gone.
// Owners are of any type and may be deleted at any time; dependents may be created at any time, also after their owner
// was deleted; and only the objects themselves survive the process.
//
// The reference keeps a graph of all objects in memory, built by a watch for each type, and compares its nodes with
// the server. Here the store serves the purpose of the graph: an index of dependents by the UID of their owner, and one
// history of all objects. So the collector follows that history, and examines an object only when one of three things
// has changed:
//
//   - its references are new: do the owners exist?
//   - an owner was deleted: does another one exist?
//   - an owner waits for its dependents (the finalizer foregroundDeletion): the object is deleted, too, or its
//     reference to that owner is removed if it has another one.
//
// The decision depends on the newest state, not on the change that caused it, and is written on the precondition that
// the object has not changed since. Once the history is read to its end and the worklist is empty:
//
//	an object that is not being deleted has references
//	  ⇒  one of them is to an owner that exists, or of which it is unknown whether it exists
//
// It holds because the later of two changes, the deletion of the owner and the creation of the dependent, is handled
// in a state that shows both: if the owner was deleted first, the dependent is examined when it is created; if the
// dependent was created first, the index has it when the owner is deleted.
//
// Following the changes alone is not enough after a restart: a server that is killed after the deletion of an owner and
// before that of its dependents would never delete these. So all objects with references are examined at the start,
// when the history no longer reaches back to the collector, and when the type of an owner that was not served is
// served. This reads only the metadata of those objects.
//
// Memory does not grow with the number of objects. It holds the objects that wait for dependents, the types of owners
// that are not served, and the tasks on the worklist.
//
// Objects of aggregated API servers can be owners and dependents, too: see backends.
package garbage

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"plinth/internal/access"
	"plinth/internal/aggregation"
	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
	"plinth/internal/controller/worklist"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
)

// Controller is the garbage collector.
type Controller struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
	Busy     *pace.Busy       // nil: nobody asks
	Observe  worklist.Observe
	// Aggregator knows the backends. Nil: there are none.
	Aggregator *aggregation.Aggregator
}

// component is the name of the controller, in Events and metrics.
const component = "garbage-collector-controller"

// task is one kind of work on one object.
type task struct {
	what taskKind
	key  engine.Key
	of   *backendType // of the object, if a backend has it
}

// taskKind is the kind of work.
type taskKind uint8

// notes are the facts that were known when a task was added.
type notes struct {
	gone []*deletedOwner // owners that are known to be gone
	// references are the UIDs of references of the object that are new and were not examined yet.
	references []string
}

func (n notes) and(m notes) notes {
	return notes{gone: append(n.gone, m.gone...), references: append(n.references, m.references...)}
}

// The kinds of tasks.
const (
	examine taskKind = iota // is it garbage?
	release                 // it waits for its dependents: does one still block its deletion?
	orphan                  // its dependents are orphaned: their references to it are removed
)

// collector is the state of one run of a Controller.
type collector struct {
	*Controller
	user  access.User
	group *steps.Group
	work  *worklist.List[task, notes]
	pace  *rate.Limiter // of its writes

	// The following are of the loop of step. changes is nil if all objects are to be examined.
	changes *engine.Changes
	types   *engine.Types
	first   bool // the next look at all objects is the first one

	mu sync.Mutex
	// waiting are the objects that wait for their dependents, by UID:
	//
	//	u ∈ waiting ⇔ the last version of u that was read is being deleted and has the finalizer foregroundDeletion
	waiting map[string]*waiter
	// missing are the types of owners that are not served; missingMore means that there are more than maxMissing, not
	// all of which are recorded.
	missing     map[ownerType]bool
	missingMore bool
	followed    atomic.Int64 // the revision of the last change that was read
	lost        bool         // an unreadable object was deleted: any object may be its dependent, so all are examined
	told        correlator   // of its Events
	backends    backends
	renewal     renewal
}

// waiter is an object that waits for its dependents to be deleted.
type waiter struct {
	key     engine.Key
	of      *backendType // of the object, if a backend has it
	blocker engine.Key   // a dependent that blocked its deletion when release last looked
}

// ownerType is the type of an owner as a reference names it.
type ownerType struct{ apiVersion, kind string }

// deletedOwner is an owner that was deleted, as references name it.
type deletedOwner struct{ uid, group, kind, namespace, name string }

const (
	// maxMissing bounds collector.missing.
	maxMissing = 1000
	// restAfterFailure is how long the collector waits before it follows the objects again after that has failed.
	restAfterFailure = 100 * time.Millisecond
)

// Start begins its loops.
func (g *Controller) Start(group *steps.Group) { g.collector(group).start() }

func (c *collector) start() {
	if c.Aggregator != nil {
		found := c.Aggregator.Inventory(nil)
		c.backends.listed = len(found.Silent)+len(found.Resources) == 0
		f := &backendsLoop{collector: c, late: time.Now().Add(firstTimeout)}
		c.group.Loop(f.step, f.work.Wait)
	}
	c.group.Loop(c.step, c.end)
}

func (g *Controller) collector(group *steps.Group) *collector {
	c := &collector{
		Controller: g, user: access.ControllerAccount("generic-garbage-collector"), pace: pace.New(), group: group,
		waiting: map[string]*waiter{}, missing: map[ownerType]bool{}, backends: newBackends(), first: true,
	}
	c.backends.listed = g.Aggregator == nil
	if g.Now == nil {
		g.Now = time.Now
	}
	c.told.now = g.Now
	c.work = c.newWorklist(group.Context(), c.do)
	return c
}

// newWorklist returns an empty worklist, whose tasks do executes.
func (c *collector) newWorklist(
	ctx context.Context, do func(context.Context, task, notes) error,
) *worklist.List[task, notes] {
	return worklist.New(ctx, c.group, worklist.Config[task, notes]{Do: do, Join: notes.and, Busy: c.Busy,
		Name: component, Observe: c.Observe,
		Failed: func(t task, err error) {
			c.Logger.Warn("collecting garbage failed, trying again", "object", t.key.String(), "error", err)
		}})
}

// step examines all objects, and then follows the changes, until all have to be examined again.
func (c *collector) step(ctx context.Context, l *steps.Loop) (next time.Time) {
	if c.changes == nil {
		if err := c.begin(ctx, l); err != nil {
			return c.failed(ctx, err)
		}
	}
	if c.renewal.isDue() {
		c.end()
		return time.Now()
	}
	records, err := c.changes.Ready(ctx, l.Waker())
	if err != nil {
		c.end()
		return c.failed(ctx, err)
	}
	for _, record := range records {
		if record.New == nil {
			c.gone(record.Old)
		} else {
			c.changed(ctx, record.Old, record.New, true)
		}
		c.followed.Store(record.Revision)
	}
	again := c.lost
	if now := c.Registry.Now(); now != c.types {
		c.types = now
		again = again || c.served(now)
	}
	if again {
		c.end()
	}
	if again || len(records) > 0 {
		return time.Now()
	}
	return next
}

// failed returns when to try again. If the store is closed the plane was deleted, and ends the loop at once.
func (c *collector) failed(ctx context.Context, err error) time.Time {
	if errors.Is(err, store.ErrClosed) {
		return time.Time{}
	}
	if ctx.Err() == nil {
		c.Logger.Warn("following all objects failed, trying again", "error", err)
	}
	return time.Now().Add(restAfterFailure)
}

// begin examines all objects.
func (c *collector) begin(ctx context.Context, l *steps.Loop) error {
	first := c.first
	c.first = false
	c.types = c.Registry.Now()
	c.mu.Lock()
	clear(c.missing)
	c.missingMore, c.lost = false, false
	maps.DeleteFunc(c.waiting, func(_ string, w *waiter) bool { return w.of == nil })
	c.mu.Unlock()
	c.renewal.begin(l.Waker())
	changes, err := c.Engine.Changes(ctx, func(o *engine.Object) { c.changed(ctx, nil, o, first) })
	if err != nil {
		return err
	}
	c.changes = changes
	c.followed.Store(changes.Revision())
	c.reviewBackends(ctx)
	c.renewal.examined()
	return nil
}

// end ends to follow the changes.
func (c *collector) end() {
	c.renewal.stop()
	if c.changes != nil {
		c.changes.Close()
		c.changes = nil
	}
}

// served says whether one of the missing types of owners is served now, or may be because not all are recorded.
func (c *collector) served(types *engine.Types) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missingMore {
		return true
	}
	for t := range c.missing {
		if types.OfKind(t.apiVersion, t.kind) != nil {
			return true
		}
	}
	return false
}

// collectable returns the type whose objects have keys with this resource, or nil if they cannot be dependents.
// Events cannot, as in the reference.
func (c *collector) collectable(path string) *engine.Resource {
	r := c.Registry.Now().OfPath(path)
	if r == nil || path == eventsPath || !r.Has("delete") || !r.Has("list") || !r.Has("watch") {
		return nil
	}
	return r
}

const eventsPath = "/events"

// gone handles the deletion of an object.
func (c *collector) gone(old *engine.Object) {
	if old == nil {
		return
	}
	uid := old.Sidecar.UID
	if uid == "" { // it was unreadable
		c.lost = c.lost || old.Sidecar.Unreadable != nil && c.collectable(old.Key.Resource) != nil
		return
	}
	c.mu.Lock()
	delete(c.waiting, uid)
	c.mu.Unlock()
	c.queueOwners(old.Sidecar.Owners)
	var d *deletedOwner
	c.dependents(uid, func(o dependent) bool {
		if d == nil {
			d = deletedOwnerOf(old)
		}
		o.examine(notes{gone: []*deletedOwner{d}})
		return true
	})
}

// deletedOwnerOf returns an object as references to it name it.
func deletedOwnerOf(o *engine.Object) *deletedOwner {
	d := &deletedOwner{uid: o.Sidecar.UID}
	if head, err := engine.HeadOf(o); err == nil {
		d.group, d.kind = groupOf(head.At("apiVersion").Str()), strings.Clone(head.At("kind").Str())
		meta := head.At("metadata")
		d.namespace, d.name = strings.Clone(meta.At("namespace").Str()), strings.Clone(meta.At("name").Str())
	}
	return d
}

func groupOf(apiVersion string) string {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return strings.Clone(group)
}

// isNamedBy says whether a reference of an object in this namespace names this owner.
func (d *deletedOwner) isNamedBy(ref reference, namespace string) bool {
	return d.uid == ref.uid && d.kind == ref.kind && d.name == ref.name && d.group == groupOf(ref.apiVersion) &&
		(d.namespace == "" || d.namespace == namespace)
}

// queueOwners adds the task release for those owners that wait for their dependents.
func (c *collector) queueOwners(uids []string) {
	if len(uids) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return
	}
	for _, uid := range uids {
		if w := c.waiting[uid]; w != nil {
			c.add(task{release, w.key, w.of}, notes{})
		}
	}
}

// changed handles the creation or change of an object. observed is set when new references to another namespace are
// to be reported.
func (c *collector) changed(ctx context.Context, old, now *engine.Object, observed bool) {
	if old != nil && old.Sidecar.Unreadable != nil {
		old = nil
	}
	if now.Sidecar.Unreadable != nil || c.collectable(now.Key.Resource) == nil {
		return
	}
	if now.Sidecar.Deleting {
		c.deleting(now)
	}
	var before []string
	if old != nil {
		before = old.Sidecar.Owners
	}
	owners := now.Sidecar.Owners
	if len(owners) == 0 && len(before) == 0 {
		return
	}
	c.queueOwners(before)
	if len(owners) == 0 || now.Sidecar.Deleting || slices.Equal(owners, before) {
		return
	}
	if c.suspicious(ctx, now) {
		known := notes{}
		if observed {
			known.references = without(owners, before)
		}
		c.work.Add(task{what: examine, key: now.Key}, known)
	}
}

// without returns the UIDs of a list that are not in another one.
func without(uids, others []string) []string {
	return slices.DeleteFunc(slices.Clone(uids), func(uid string) bool { return slices.Contains(others, uid) })
}

// deleting handles a change of an object that is being deleted.
func (c *collector) deleting(o *engine.Object) {
	waits, leaves := isFinalizing(o)
	uid := o.Sidecar.UID
	c.mu.Lock()
	begins := waits && c.waiting[uid] == nil
	switch {
	case begins:
		c.waiting[uid] = &waiter{key: o.Key}
	case !waits:
		delete(c.waiting, uid)
	}
	c.mu.Unlock()
	switch {
	case leaves:
		c.work.Add(task{what: orphan, key: o.Key}, notes{})
	case begins:
		c.dependents(uid, func(d dependent) bool {
			d.examine(notes{})
			return true
		})
		c.work.Add(task{what: release, key: o.Key}, notes{})
	}
}

// isFinalizing is finalizing of an object of this server.
func isFinalizing(o *engine.Object) (waits, leaves bool) {
	if !o.Sidecar.Deleting {
		return false, false
	}
	head, err := engine.HeadOf(o)
	if err != nil {
		return false, false
	}
	return finalizing(head)
}

// finalizing says whether an object that is being deleted waits for its dependents, or orphans them.
func finalizing(head object.Value) (waits, leaves bool) {
	if head.At("metadata", "deletionTimestamp").IsNull() {
		return false, false
	}
	for _, f := range head.At("metadata", "finalizers").Items() {
		waits = waits || f.Str() == engine.ForegroundFinalizer
		leaves = leaves || f.Str() == engine.OrphanFinalizer
	}
	return waits, leaves
}

// suspicious says whether an object with new references has to be examined: one of them names no existing owner, or
// one that waits for its dependents and that it now blocks, or one whose backend has to be asked.
func (c *collector) suspicious(ctx context.Context, o *engine.Object) bool {
	head, err := engine.HeadOf(o)
	r := c.Registry.Now().OfPath(o.Key.Resource)
	if err != nil || r == nil {
		return false
	}
	return c.areSuspicious(ctx, site{r.RequestFor(o.Key).Namespace, r.Namespaced}, references(head))
}

// areSuspicious is suspicious of the references of an object at a place.
func (c *collector) areSuspicious(ctx context.Context, at site, refs []reference) bool {
	found := false
	for _, ref := range refs {
		switch where, err := c.find(ctx, at, ref, nil, false); {
		case err != nil:
			found = found || !errors.Is(err, errNotServed)
		case where == ownerGone:
			found = true
		case where == ownerWaits:
			found = found || ref.blocks
		}
	}
	return found
}

// site is where an object is: in a namespace, if its type has some.
type site struct {
	namespace  string
	namespaced bool
}

// reference is one of an object's ownerReferences.
type reference struct {
	apiVersion, kind, name, uid string
	blocks                      bool // blockOwnerDeletion
}

func references(head object.Value) []reference {
	items := head.At("metadata", "ownerReferences").Items()
	refs := make([]reference, len(items))
	for i, item := range items {
		refs[i] = reference{
			apiVersion: item.At("apiVersion").Str(), kind: item.At("kind").Str(), name: item.At("name").Str(),
			uid: item.At("uid").Str(), blocks: item.At("blockOwnerDeletion").Bool(),
		}
	}
	return refs
}

// ownerState is the state of the owner that a reference names.
type ownerState uint8

const (
	ownerStays ownerState = iota // "solid" in the reference
	ownerGone                    // "dangling": it does not exist, or another object has its name
	ownerWaits                   // it is being deleted, and waits for its dependents
)

var (
	// errNotServed means that the type of an owner is not served, so that it is unknown whether it exists.
	errNotServed = errors.New("the type of an owner is not served")
	// errInNamespace means that a cluster-scoped object names an owner of a namespaced type, whose namespace is
	// not known.
	errInNamespace = errors.New("an object of no namespace refers to an owner in a namespace")
)

// find returns the state of an owner of an object. A namespaced owner is in the namespace of the object. Backends are
// asked only if ask is set; otherwise, if one has to be asked, the error is an *askError.
func (c *collector) find(ctx context.Context, at site, ref reference, gone []*deletedOwner, ask bool) (ownerState,
	error) {
	if slices.ContainsFunc(gone, func(d *deletedOwner) bool { return d.isNamedBy(ref, at.namespace) }) {
		return ownerGone, nil
	}
	if of := c.ownerBackend(ref); of != nil {
		if of.resource.Namespaced && !at.namespaced {
			return 0, errInNamespace
		}
		if !ask {
			return 0, &askError{of}
		}
		return of.find(ctx, at.namespace, ref)
	}
	of := c.ownerResource(ref)
	if of == nil {
		return 0, errNotServed
	}
	if of.Namespaced && !at.namespaced {
		return 0, errInNamespace
	}
	owner, err := c.Engine.Stored(ctx, of.Key(at.namespace, ref.name))
	switch {
	case err != nil:
		return 0, err
	case owner == nil:
		return ownerGone, nil
	case owner.Sidecar.Unreadable != nil:
		return 0, owner.Sidecar.Unreadable
	case owner.Sidecar.UID != ref.uid:
		return ownerGone, nil
	}
	if waits, _ := isFinalizing(owner); waits {
		return ownerWaits, nil
	}
	return ownerStays, nil
}

// ownerResource returns the type of the owner that a reference names; nil if it is not served, which is recorded in
// missing.
func (c *collector) ownerResource(ref reference) *engine.Resource {
	r := c.Registry.Now().OfKind(ref.apiVersion, ref.kind)
	if r != nil {
		if r.Stored == nil {
			return nil // virtual: its objects are not stored, so whether one exists is unknown
		}
		return r
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.miss(ownerType{strings.Clone(ref.apiVersion), strings.Clone(ref.kind)})
	// If the type was added since it was looked up, no later change would show that it was missing.
	if r = c.Registry.Now().OfKind(ref.apiVersion, ref.kind); r == nil || r.Stored == nil {
		return nil
	}
	return r
}

// miss records a type of owners that is not served. The caller holds mu.
func (c *collector) miss(t ownerType) {
	if len(c.missing) >= maxMissing {
		c.missingMore = true
	} else {
		c.missing[t] = true
	}
}
