package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"plinth/internal/access"
	"plinth/internal/engine"
	"plinth/object"
)

// Garbage collects objects whose owners are gone, and does what a delete said about dependents (DEL-2, DEL-5).
//
// The problem: an object names its owners by UID and by type and name, and is to go when none of them is there any
// more. Owners are of any type and end at any time, dependents come at any time, also after their owner has gone; and
// nothing but the objects themselves outlives the process.
//
// The reference keeps a graph of all objects in memory, built by a watch for each type, and compares its nodes with
// the server. Here the store has what the graph is for: an index that finds dependents by the UID of an owner, and
// one history of all objects. So the collector follows that history and looks at an object only when something may
// have changed for it:
//
//   - its references are new: are the owners there?
//   - an owner of it has gone: is there another one?
//   - an owner waits for its dependents (the finalizer foregroundDeletion): it is deleted, too, or leaves that owner
//     for others.
//
// An object is judged by the newest state and not by the change that was the reason to look, and what is decided is
// written on the condition that the object is still the one that was judged. The invariant, once the history is read
// to its end and the worklist is empty: every object with references has one to an object that is there, or to one
// that cannot be told to be gone. It holds because an object and its owner are both in the state that one of the two
// changes is judged by: if the owner went first, the dependent was looked at when it came; if the dependent came
// first, the index had it when the owner went.
//
// To go by the changes alone, and to forget them, would not do: a server that is killed between an owner's end and
// its dependents' would never delete the latter. So at the start, after the history has gone away under the
// collector, and when a type is served that an owner is of, all objects with references are looked at. This reads the
// metadata of those, and nothing else.
//
// Nothing grows with the number of objects: there are the objects that wait for dependents, the types of owners that
// are not served, and the tasks under way.
type Garbage struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// The things to be done about an object.
const (
	examine taskKind = iota // is it garbage?
	release                 // it waits for dependents: do any of them still block its deletion?
	orphan                  // it leaves its dependents: they are to forget it
)

// collector is a run of Garbage.
type collector struct {
	*Garbage
	user access.User
	work *worklist
	pace *rate.Limiter // of its writes

	mu sync.Mutex
	// waiting has the objects that wait for their dependents, by UID:
	//
	//	u ∈ waiting ⇔ the last version of u that was read is being deleted and has the finalizer foregroundDeletion
	waiting map[string]*waiter
	// missing has the types of owners that are not served. After too many there is only the knowledge that there
	// are some.
	missing     map[ownerType]bool
	missingMore bool
	followed    atomic.Int64 // the revision of the last change that was followed
	lost        bool         // dependents of an object that could not be read may be garbage: all have to be looked at
}

// waiter is an object that waits for its dependents.
type waiter struct {
	key     engine.Key
	blocker engine.Key // a dependent that blocked its deletion when it was last looked at
}

// ownerType is how a reference says what an owner is.
type ownerType struct{ apiVersion, kind string }

// departed is an owner that is gone: what references to it look like.
type departed struct{ uid, group, kind, namespace, name string }

// maxMissing bounds the types of owners that are remembered as not being served.
const maxMissing = 1000

// Run works until ctx ends.
func (g *Garbage) Run(ctx context.Context) { g.collector(ctx).run(ctx) }

func (c *collector) run(ctx context.Context) {
	defer c.work.wait()
	for first := true; ctx.Err() == nil; first = false {
		if err := c.follow(ctx, first); err != nil && ctx.Err() == nil {
			c.Logger.Warn("following all objects failed, trying again", "error", err)
			pause(ctx, minRest)
		}
	}
}

func (g *Garbage) collector(ctx context.Context) *collector {
	c := &collector{
		Garbage: g, user: serviceAccount("generic-garbage-collector"), pace: newPace(),
		waiting: map[string]*waiter{}, missing: map[ownerType]bool{},
	}
	if g.Now == nil {
		g.Now = time.Now
	}
	c.work = &worklist{ctx: ctx, items: map[task]*workItem{}, do: c.do, failed: func(t task, err error) {
		c.Logger.Warn("collecting garbage failed, trying again", "object", t.key.String(), "error", err)
	}}
	return c
}

// follow looks at all objects, and then at what changes, until all have to be looked at again.
func (c *collector) follow(ctx context.Context, first bool) error {
	types := c.Registry.Now()
	c.mu.Lock()
	clear(c.missing)
	c.missingMore, c.lost = false, false
	clear(c.waiting)
	c.mu.Unlock()
	changes, err := c.Engine.Changes(ctx, func(o *engine.Object) { c.changed(ctx, nil, o, first) })
	if err != nil {
		return err
	}
	defer changes.Close()
	c.followed.Store(changes.Revision())
	for {
		records, err := changes.Next(ctx)
		if err != nil {
			return err
		}
		for _, record := range records {
			if record.New == nil {
				c.gone(record.Old)
			} else {
				c.changed(ctx, record.Old, record.New, true)
			}
			c.followed.Store(record.Revision)
		}
		if now := c.Registry.Now(); now != types {
			types = now
			if c.served(types) {
				return nil
			}
		}
		if c.lost {
			return nil
		}
	}
}

// served says whether a type is served now of which an owner was when it was not.
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

// collectable is the type of the objects that have keys of this resource part, where they can be dependents; else
// nil. Events are not among them, as in the reference.
func (c *collector) collectable(path string) *engine.Resource {
	r := c.Registry.Now().OfPath(path)
	if r == nil || path == eventsPath || !r.Has("delete") || !r.Has("list") || !r.Has("watch") {
		return nil
	}
	return r
}

const eventsPath = "/events"

// gone follows the end of an object.
func (c *collector) gone(old *engine.Object) {
	if old == nil {
		return
	}
	uid := old.Sidecar.UID
	if uid == "" { // nobody knows who it was
		c.lost = c.lost || old.Sidecar.Unreadable != nil && c.collectable(old.Key.Resource) != nil
		return
	}
	c.mu.Lock()
	delete(c.waiting, uid)
	c.mu.Unlock()
	c.tellOwners(old.Sidecar.Owners)
	var d *departed
	c.Engine.Dependents(uid, func(o *engine.Object) bool {
		if d == nil {
			d = departedOf(old)
		}
		c.work.add(task{examine, o.Key}, notes{gone: []*departed{d}})
		return true
	})
}

// departedOf is what references to an object look like.
func departedOf(o *engine.Object) *departed {
	d := &departed{uid: o.Sidecar.UID}
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

// is says whether a reference of an object in a namespace is to the departed.
func (d *departed) is(ref reference, namespace string) bool {
	return d.uid == ref.uid && d.kind == ref.kind && d.name == ref.name && d.group == groupOf(ref.apiVersion) &&
		(d.namespace == "" || d.namespace == namespace)
}

// tellOwners has those owners looked at again that wait for their dependents.
func (c *collector) tellOwners(uids []string) {
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
			c.work.add(task{release, w.key}, notes{})
		}
	}
}

// changed follows a change of an object, or its beginning. observed says that references that are new are to be
// reported where they lead out of the namespace.
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
	c.tellOwners(before)
	if len(owners) == 0 || now.Sidecar.Deleting || slices.Equal(owners, before) {
		return
	}
	if c.suspicious(ctx, now) {
		c.work.add(task{examine, now.Key}, notes{seen: observed})
	}
}

// deleting follows an object that is being deleted.
func (c *collector) deleting(o *engine.Object) {
	waits, leaves := finalizing(o)
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
		c.work.add(task{orphan, o.Key}, notes{})
	case begins:
		c.Engine.Dependents(uid, func(d *engine.Object) bool {
			c.work.add(task{examine, d.Key}, notes{})
			return true
		})
		c.work.add(task{release, o.Key}, notes{})
	}
}

// finalizing says whether an object that is being deleted waits for its dependents, or leaves them.
func finalizing(o *engine.Object) (waits, leaves bool) {
	if !o.Sidecar.Deleting {
		return false, false
	}
	head, err := engine.HeadOf(o)
	if err != nil {
		return false, false
	}
	for _, f := range head.At("metadata", "finalizers").Items() {
		waits = waits || f.Str() == engine.ForegroundFinalizer
		leaves = leaves || f.Str() == engine.OrphanFinalizer
	}
	return waits, leaves
}

// suspicious says whether an object with new references is to be examined: one of them leads nowhere, or to an owner
// that it now blocks and that waits for its dependents.
func (c *collector) suspicious(ctx context.Context, o *engine.Object) bool {
	head, err := engine.HeadOf(o)
	if err != nil {
		return false
	}
	found := false
	for _, ref := range references(head) {
		switch where, err := c.find(ctx, o, ref, nil); {
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

// ownerState is what has become of the owner that a reference names.
type ownerState uint8

const (
	ownerStays ownerState = iota // "solid" in the reference
	ownerGone                    // "dangling": there is none by that name, or it is another object
	ownerWaits                   // it is being deleted, and waits for its dependents
)

var (
	// errNotServed is that the type of an owner is not served, so that nobody can say whether it is there.
	errNotServed = errors.New("the type of an owner is not served")
	// errInNamespace is that an object of no namespace names an owner that would be in one, and does not say in
	// which.
	errInNamespace = errors.New("an object of no namespace refers to an owner in a namespace")
)

// find says what has become of an owner of an object. An owner that is in a namespace is in that of the object.
func (c *collector) find(ctx context.Context, o *engine.Object, ref reference, gone []*departed) (ownerState, error) {
	r := c.Registry.Now().OfPath(o.Key.Resource)
	if r == nil {
		return 0, errNotServed
	}
	namespace := r.RequestFor(o.Key).Namespace
	if slices.ContainsFunc(gone, func(d *departed) bool { return d.is(ref, namespace) }) {
		return ownerGone, nil
	}
	of := c.ownerResource(ref)
	if of == nil {
		return 0, errNotServed
	}
	if of.Namespaced && !r.Namespaced {
		return 0, errInNamespace
	}
	owner, err := c.Engine.Stored(ctx, of.Key(namespace, ref.name))
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
	if waits, _ := finalizing(owner); waits {
		return ownerWaits, nil
	}
	return ownerStays, nil
}

// ownerResource is the type of the owner that a reference names; nil: it is not served, which is remembered.
func (c *collector) ownerResource(ref reference) *engine.Resource {
	r := c.Registry.Now().OfKind(ref.apiVersion, ref.kind)
	if r != nil {
		if r.Stored == nil {
			return nil // it is never there, and never gone
		}
		return r
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.missing) >= maxMissing {
		c.missingMore = true
	} else {
		c.missing[ownerType{strings.Clone(ref.apiVersion), strings.Clone(ref.kind)}] = true
	}
	// Had the type come since it was looked for, nobody would see that it was missing.
	if r = c.Registry.Now().OfKind(ref.apiVersion, ref.kind); r == nil || r.Stored == nil {
		return nil
	}
	return r
}
