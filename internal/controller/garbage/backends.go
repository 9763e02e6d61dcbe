package garbage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"plinth/internal/aggregation"
	"plinth/internal/apierr"
	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
	"plinth/internal/controller/worklist"
	"plinth/internal/engine"
	"plinth/object"
)

// backends is what the collector knows of the objects of aggregated API servers.
//
// The problem: objects there are owners and dependents of objects here, and the other way round, but they are in no
// index and no history of this server; and a backend may be slow, wrong or away while objects here are to be collected.
//
// Each resource of a backend that can be listed, watched and deleted is followed: its metadata is listed, and then
// watched. Only objects that have owners, or that wait for dependents or orphan them, are remembered, so memory does
// not grow with the number of the others. The rest of the collector sees one graph: collector.dependents yields
// dependents from the store's index and from this one.
//
// An owner that a backend has exists if a GET says so, and it is gone if a GET or an event of the watch says so; that a
// list does not have it is no proof. While a backend cannot be asked, it is unknown whether its objects exist, and
// nothing is deleted for it.
//
// Nothing that concerns this server alone waits for a backend: only tasks on the worklist of a type of a backend ask
// one. A type whose backend fails to answer is not followed any more until a list of it succeeds; its tasks are
// forgotten meanwhile, and all objects are examined again afterwards:
//
//	a type is followed  ⇒  what depends on its objects was examined since its last list, or is on a worklist
type backends struct {
	// All are guarded by collector.mu.
	types      map[aggregation.Resource]*backendType
	dependents map[string]map[*backendObject]bool // by the UID of an owner
	// listed is set when each backend has been listed, or its list has failed, or firstTimeout is over. Before, it is not
	// known whether an object has dependents: finalizers that wait for them are not removed, and no dependents are
	// orphaned. held is set if there was such an object, so that it has to be examined again.
	listed, held bool

	progress *steps.Loop   // is woken when a type is listed, or its list has failed
	pace     *rate.Limiter // of writes to backends
}

const (
	// firstTimeout is how long the collector waits for its first lists of backends, as in the reference.
	firstTimeout = 30 * time.Second
	// maxFollowed is how many objects of one type are remembered. A type that has more is not followed.
	maxFollowed = 250_000
	// A list or watch that fails after steadyTime is the first failure.
	steadyTime = time.Minute
	// maxShort bounds how many short watches in a row count, so that the next one begins after 4 s at most: a watch is
	// one request, and deletions at the backend are not seen without it.
	maxShort = 3
)

func newBackends() backends {
	return backends{types: map[aggregation.Resource]*backendType{}, dependents: map[string]map[*backendObject]bool{},
		pace: pace.New()}
}

// backendType is one resource of a backend.
type backendType struct {
	*collector
	resource aggregation.Resource
	objects  *aggregation.Metadata
	work     *worklist.List[task, notes]
	context  context.Context // of the type
	end      context.CancelFunc
	wake     chan struct{} // receives when a failed list may succeed now
	doubted  chan struct{} // receives when a request has failed while the type is followed

	// The fields below are guarded by collector.mu. synced is set while the type is followed, tried when the first list
	// has ended. named is set if all objects have to be examined after the next list of the type: one of them names an
	// owner of the type, or its task was forgotten.
	synced, tried, named bool
	known                map[string]*backendObject // by NAMESPACE/NAME
}

// backendObject is an object of a backend that is remembered.
type backendObject struct {
	of            *backendType
	key           engine.Key // Resource is for messages
	uid           string
	owners        []reference
	deleting      bool
	waits, leaves bool // as finalizing says
}

// dependent is a dependent of an object: o, or other if a backend has it.
type dependent struct {
	*collector
	key   engine.Key
	uid   string
	o     *engine.Object
	of    *backendType
	other *backendObject
}

// examine adds the task.
func (d *dependent) examine(n notes) { d.add(task{examine, d.key, d.of}, n) }

// waits says whether the dependent waits for its own dependents.
func (d *dependent) waits() (waits bool) {
	if d.other != nil {
		return d.other.waits
	}
	waits, _ = isFinalizing(d.o)
	return waits
}

// add puts a task on the worklist for its object.
func (c *collector) add(t task, n notes) {
	if t.of != nil {
		t.of.work.Add(t, n)
		return
	}
	c.work.Add(t, n)
}

// dependents yields the objects that can be collected and have a reference to the object with this UID. No lock is held
// during yield.
func (c *collector) dependents(uid string, yield func(dependent) bool) {
	more := true
	c.Engine.Dependents(uid, func(o *engine.Object) bool {
		if c.collectable(o.Key.Resource) != nil {
			more = yield(dependent{collector: c, key: o.Key, uid: o.Sidecar.UID, o: o})
		}
		return more
	})
	if !more {
		return
	}
	c.mu.Lock()
	others := slices.Collect(maps.Keys(c.backends.dependents[uid]))
	c.mu.Unlock()
	for _, b := range others {
		if !yield(dependent{collector: c, key: b.key, uid: b.uid, of: b.of, other: b}) {
			return
		}
	}
}

// block says whether an object of a backend blocks the deletion of the object with this UID.
func (b *backends) block(c *collector, uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for d := range b.dependents[uid] {
		if slices.ContainsFunc(d.owners, func(r reference) bool { return r.uid == uid && r.blocks }) {
			return true
		}
	}
	return false
}

// incomplete says whether the dependents of objects are unknown yet, and has it noted that a task is held.
func (c *collector) incomplete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.backends.held = c.backends.held || !c.backends.listed
	return !c.backends.listed
}

// askError means that a backend has to be asked.
type askError struct{ *backendType }

func (e *askError) Error() string { return "a backend has to be asked for " + e.resource.Name }

// errDoubted means that a request about an object has failed while the watch of its type has not.
var errDoubted = errors.New("a request has failed")

// backendsLoop follows the types of backends.
type backendsLoop struct {
	*collector
	late    time.Time // when it is not waited any longer for the first lists
	found   aggregation.Inventory
	current atomic.Bool // found is
	work    sync.WaitGroup
}

func (f *backendsLoop) step(ctx context.Context, l *steps.Loop) (next time.Time) {
	f.backends.progress = l // of the types that begin here
	if !f.current.Swap(true) {
		f.found = f.Aggregator.Inventory(func() {
			f.current.Store(false)
			l.Wake()
		})
		f.adjust(ctx, f.found, &f.work)
	}
	if f.complete(!time.Now().Before(f.late) || !f.found.Awaited && f.allTried()) {
		return next
	}
	return f.late
}

// adjust starts to follow new types, and forgets those that are gone. Types of a group version that says nothing at the
// moment stay.
func (c *collector) adjust(ctx context.Context, found aggregation.Inventory, work *sync.WaitGroup) {
	served := map[aggregation.Resource]bool{}
	var added, gone []*backendType
	c.mu.Lock()
	for _, r := range found.Resources {
		served[r] = true
		if t := c.backends.types[r]; t != nil {
			signal(t.wake)
			continue
		}
		added = append(added, c.newBackendType(ctx, r))
	}
	for r, t := range c.backends.types {
		if !served[r] && !found.Silent[[2]string{r.Group, r.Version}] {
			delete(c.backends.types, r)
			gone = append(gone, t)
			if t.named { // as the objects that name it have to be examined if it comes back
				c.miss(ownerType{r.APIVersion(), r.Kind})
			}
		}
	}
	for _, t := range added {
		c.backends.types[t.resource] = t
	}
	c.mu.Unlock()
	for _, t := range gone {
		t.end()
	}
	for _, t := range added {
		work.Go(func() {
			defer t.end()
			t.run(t.context)
			t.forget()
		})
	}
}

// signal sends to a channel with room for one, unless it is full.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func (c *collector) newBackendType(ctx context.Context, r aggregation.Resource) *backendType {
	t := &backendType{collector: c, resource: r, objects: c.Aggregator.Metadata(r, c.user),
		wake: make(chan struct{}, 1), doubted: make(chan struct{}, 1), known: map[string]*backendObject{}}
	t.context, t.end = context.WithCancel(ctx)
	t.work = c.newWorklist(t.context, t.do)
	return t
}

// allTried says whether each type was listed, or could not be.
func (c *collector) allTried() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.backends.types {
		if !t.tried {
			return false
		}
	}
	return true
}

// complete notes that the collector knows the dependents of all objects, and says whether it does.
func (c *collector) complete(now bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now && !c.backends.listed {
		c.backends.listed = true
		if c.backends.held {
			c.renewal.again()
		}
	}
	return c.backends.listed
}

// run follows the type until ctx ends.
func (t *backendType) run(ctx context.Context) {
	defer t.work.Close()
	for failed, said := 0, false; ctx.Err() == nil; {
		began := time.Now()
		err := t.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		t.mu.Lock()
		t.synced, t.tried = false, true
		t.mu.Unlock()
		t.backends.progress.Wake()
		if time.Since(began) > steadyTime {
			failed, said = 0, false
		}
		if !said && !errors.Is(err, aggregation.ErrUnavailable) {
			said = true
			t.Logger.Info("objects of an aggregated API server cannot be followed", "resource", t.path(), "error", err)
		}
		failed = t.rest(ctx, failed+1)
	}
}

// rest waits after a number of failures in a row, and returns that number: none if the backend has changed meanwhile.
// So one that was away for long is not waited for when it is back and its first answer is an error.
func (t *backendType) rest(ctx context.Context, failed int) int {
	timer := time.NewTimer(pace.Retry(failed))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-t.wake:
		return 0
	case <-timer.C:
	}
	return failed
}

// path names the type.
func (t *backendType) path() string { return t.resource.APIVersion() + "/" + t.resource.Name }

// follow lists the objects, and then watches them, until something fails.
func (t *backendType) follow(ctx context.Context) error {
	for len(t.doubted) > 0 {
		<-t.doubted
	}
	if !t.resource.Followed { // its objects are owners only
		t.sync(ctx, nil)
		select {
		case <-ctx.Done():
		case <-t.doubted:
		}
		return errDoubted
	}
	listed := map[string]*backendObject{}
	revision, err := t.objects.List(ctx, func(obj object.Value) error {
		if b := t.remembered(obj); b != nil {
			listed[b.key.Name] = b
		}
		if len(listed) > maxFollowed {
			return fmt.Errorf("more than %d objects have owners", maxFollowed)
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.sync(ctx, listed)
	for short := 0; ; {
		began, before := time.Now(), revision
		err := t.watch(ctx, &revision)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errDoubted), errors.Is(err, aggregation.ErrExpired):
			return err
		}
		if time.Since(began) > steadyTime || revision != before {
			short = 0
		}
		// The next watch goes on where this one has ended, so nothing is missed.
		short = t.rest(ctx, min(short+1, maxShort))
	}
}

// watch follows the events after a revision, which it advances.
func (t *backendType) watch(ctx context.Context, revision *string) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	doubted := false
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
		case <-t.doubted:
			doubted = true
			cancel()
		}
	}()
	err := t.objects.Watch(ctx, *revision, func(event string, obj object.Value) error {
		switch event {
		case "DELETED":
			t.deleted(obj)
		case "ADDED", "MODIFIED":
			if err := t.changed(ctx, obj); err != nil {
				return err
			}
		}
		*revision = strings.Clone(obj.At("metadata", "resourceVersion").Str())
		return nil
	})
	cancel()
	<-ended
	if doubted {
		return errDoubted
	}
	return err
}

// sync makes the objects of a list those that are known, and has everything examined that depends on them.
func (t *backendType) sync(ctx context.Context, listed map[string]*backendObject) {
	t.mu.Lock()
	t.synced, t.tried = true, true
	again := t.missingMore || t.missing[ownerType{t.resource.APIVersion(), t.resource.Kind}]
	for r, other := range t.backends.types { // references may name another version
		again = again || other.named && r.Group == t.resource.Group && r.Name == t.resource.Name
	}
	var gone []*backendObject
	for name, b := range t.known {
		if now := listed[name]; now == nil || now.uid != b.uid {
			gone = append(gone, b)
			t.unlink(b)
		}
	}
	t.mu.Unlock()
	for _, b := range gone {
		t.vanished(b, nil)
	}
	for _, b := range listed {
		t.observe(ctx, b, true)
	}
	if again {
		t.renewal.again()
	}
	t.backends.progress.Wake()
}

// remembered returns an object as it is remembered; nil if it need not be.
func (t *backendType) remembered(obj object.Value) *backendObject {
	meta := obj.At("metadata")
	b := &backendObject{of: t, deleting: !meta.At("deletionTimestamp").IsNull()}
	if b.waits, b.leaves = finalizing(obj); !b.waits && !b.leaves && meta.At("ownerReferences").Len() == 0 {
		return nil
	}
	b.uid = strings.Clone(meta.At("uid").Str())
	b.key = t.key(meta)
	for _, ref := range references(obj) {
		b.owners = append(b.owners, reference{strings.Clone(ref.apiVersion), strings.Clone(ref.kind),
			strings.Clone(ref.name), strings.Clone(ref.uid), ref.blocks})
	}
	return b
}

func (t *backendType) key(meta object.Value) engine.Key {
	name := meta.At("name").Str()
	if t.resource.Namespaced {
		name = meta.At("namespace").Str() + "/" + name
	}
	return engine.Key{Resource: t.path(), Name: strings.Clone(name)}
}

// link and unlink put an object into the indexes, and take it out. The caller holds mu.
func (t *backendType) link(b *backendObject) {
	t.known[b.key.Name] = b
	for _, ref := range b.owners {
		if t.backends.dependents[ref.uid] == nil {
			t.backends.dependents[ref.uid] = map[*backendObject]bool{}
		}
		t.backends.dependents[ref.uid][b] = true
	}
	if b.waits {
		t.waiting[b.uid] = &waiter{key: b.key, of: t}
	}
}

func (t *backendType) unlink(b *backendObject) {
	delete(t.known, b.key.Name)
	for _, ref := range b.owners {
		if all := t.backends.dependents[ref.uid]; all != nil {
			if delete(all, b); len(all) == 0 {
				delete(t.backends.dependents, ref.uid)
			}
		}
	}
	if w := t.waiting[b.uid]; w != nil && w.of == t {
		delete(t.waiting, b.uid)
	}
}

// changed handles an object that was created or changed.
func (t *backendType) changed(ctx context.Context, obj object.Value) error {
	b := t.remembered(obj)
	if b != nil {
		t.mu.Lock()
		full := len(t.known) >= maxFollowed
		t.mu.Unlock()
		if full {
			return fmt.Errorf("more than %d objects have owners: %w", maxFollowed, errDoubted)
		}
		t.observe(ctx, b, false)
		return nil
	}
	t.mu.Lock()
	old := t.known[t.key(obj.At("metadata")).Name]
	if old != nil {
		t.unlink(old)
	}
	t.mu.Unlock()
	if old != nil {
		t.queueOwners(uidsOf(old.owners))
	}
	return nil
}

// observe remembers an object, and adds its tasks: all of them if it was listed, otherwise those that are new.
func (t *backendType) observe(ctx context.Context, b *backendObject, listed bool) {
	t.mu.Lock()
	old := t.known[b.key.Name]
	w := t.waiting[b.uid]
	if old != nil {
		t.unlink(old)
	}
	t.link(b)
	if b.waits && w != nil && w.of == t {
		t.waiting[b.uid] = w // with its blocker
	}
	t.mu.Unlock()
	if old != nil {
		t.queueOwners(uidsOf(old.owners))
	}
	if listed || old != nil && old.uid != b.uid {
		old = nil
	}
	if b.leaves {
		t.work.Add(task{orphan, b.key, t}, notes{})
	}
	if b.waits && (old == nil || !old.waits) {
		t.dependents(b.uid, func(d dependent) bool {
			d.examine(notes{})
			return true
		})
		t.work.Add(task{release, b.key, t}, notes{})
	}
	if len(b.owners) == 0 || b.deleting || old != nil && slices.Equal(old.owners, b.owners) {
		return
	}
	if t.areSuspicious(ctx, t.siteOf(b.key), b.owners) {
		known := notes{}
		if !listed {
			var before []reference
			if old != nil {
				before = old.owners
			}
			known.references = without(uidsOf(b.owners), uidsOf(before))
		}
		t.work.Add(task{examine, b.key, t}, known)
	}
}

func uidsOf(refs []reference) (uids []string) {
	for _, ref := range refs {
		uids = append(uids, ref.uid)
	}
	return uids
}

// siteOf is where an object of the type is.
func (t *backendType) siteOf(k engine.Key) site {
	if !t.resource.Namespaced {
		return site{}
	}
	namespace, _, _ := strings.Cut(k.Name, "/")
	return site{namespace, true}
}

// deleted handles the deletion of an object, of which an event has told.
func (t *backendType) deleted(obj object.Value) {
	meta := obj.At("metadata")
	b := &backendObject{of: t, key: t.key(meta), uid: strings.Clone(meta.At("uid").Str())}
	t.mu.Lock()
	if old := t.known[b.key.Name]; old != nil && old.uid == b.uid {
		b = old
		t.unlink(old)
	}
	t.mu.Unlock()
	t.vanished(b, &deletedOwner{uid: b.uid, group: t.resource.Group, kind: t.resource.Kind,
		namespace: t.siteOf(b.key).namespace, name: strings.Clone(meta.At("name").Str())})
}

// vanished has everything examined that depends on an object that is not known any more. gone is the owner that is
// known to be deleted, if it is known.
func (t *backendType) vanished(b *backendObject, gone *deletedOwner) {
	t.queueOwners(uidsOf(b.owners))
	var known notes
	if gone != nil {
		known.gone = []*deletedOwner{gone}
	}
	t.dependents(b.uid, func(d dependent) bool {
		d.examine(known)
		return true
	})
}

// forget forgets all objects of the type, which is not served any more. They hold up no owner from now on.
func (t *backendType) forget() {
	t.mu.Lock()
	t.synced = false
	all := slices.Collect(maps.Values(t.known))
	for _, b := range all {
		t.unlink(b)
	}
	t.mu.Unlock()
	for _, b := range all {
		t.queueOwners(uidsOf(b.owners))
	}
}

// reviewBackends adds the tasks of all objects of backends that are remembered.
func (c *collector) reviewBackends(ctx context.Context) {
	c.mu.Lock()
	var all []*backendObject
	for _, t := range c.backends.types {
		if t.synced {
			all = slices.AppendSeq(all, maps.Values(t.known))
		}
	}
	c.mu.Unlock()
	for _, b := range all {
		if b.waits {
			b.of.work.Add(task{release, b.key, b.of}, notes{})
		}
		if b.leaves {
			b.of.work.Add(task{orphan, b.key, b.of}, notes{})
		}
		if len(b.owners) > 0 && !b.deleting && c.areSuspicious(ctx, b.of.siteOf(b.key), b.owners) {
			b.of.work.Add(task{examine, b.key, b.of}, notes{})
		}
	}
}

// ownerBackend returns the type of a backend that the owner has which a reference names; nil if it has none.
func (c *collector) ownerBackend(ref reference) *backendType {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r, t := range c.backends.types {
		if r.Kind == ref.kind && r.APIVersion() == ref.apiVersion {
			t.named = true
			return t
		}
	}
	return nil
}

// do executes a task that may ask the backend.
func (t *backendType) do(ctx context.Context, task task, known notes) error {
	t.mu.Lock()
	synced := t.synced
	t.named = t.named || !synced
	t.mu.Unlock()
	if !synced {
		return nil // it is added again after the next list
	}
	err := t.perform(ctx, task, known, true)
	if errors.Is(err, errNotServed) {
		return nil
	}
	return err
}

// get reads an object. The error is errNotServed if the backend does not answer as it should: then the type is listed
// again before it is asked the next time.
func (t *backendType) get(ctx context.Context, namespace, name string) (object.Value, error) {
	t.mu.Lock()
	synced := t.synced
	t.named = t.named || !synced
	t.mu.Unlock()
	if !synced {
		return object.Nil, errNotServed
	}
	obj, err := t.objects.Get(ctx, namespace, name)
	var refused *apierr.Error
	if err == nil || ctx.Err() != nil || errors.As(err, &refused) && refused.Code < 500 &&
		refused.Reason != apierr.TooManyRequests {
		return obj, err
	}
	t.Logger.Debug("an aggregated API server did not answer", "resource", t.path(), "name", name, "error", err)
	t.mu.Lock()
	t.synced, t.named = false, true
	t.mu.Unlock()
	signal(t.doubted)
	return object.Nil, errNotServed
}

// find is collector.find.
func (t *backendType) find(ctx context.Context, namespace string, ref reference) (ownerState, error) {
	owner, err := t.get(ctx, namespace, ref.name)
	switch {
	case apierr.Is(err, apierr.NotFound):
		return ownerGone, nil
	case err != nil:
		return 0, err
	case owner.At("metadata", "uid").Str() != ref.uid:
		return ownerGone, nil
	}
	if waits, _ := finalizing(owner); waits {
		return ownerWaits, nil
	}
	return ownerStays, nil
}

// load is collector.load.
func (t *backendType) load(ctx context.Context, k engine.Key) (*taskObject, error) {
	at, name := t.siteOf(k), k.Name
	if at.namespaced {
		_, name, _ = strings.Cut(k.Name, "/")
	}
	head, err := t.get(ctx, at.namespace, name)
	if apierr.Is(err, apierr.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	meta := head.At("metadata")
	return &taskObject{collector: t.collector, of: t, head: head, at: at, name: name, uid: meta.At("uid").Str(),
		revision: meta.At("resourceVersion").Str(), apiVersion: t.resource.APIVersion(), kind: t.resource.Kind}, nil
}

// delete is taskObject.delete.
func (t *backendType) delete(ctx context.Context, o *taskObject, how engine.Propagation) error {
	if err := t.backends.pace.Wait(ctx); err != nil {
		return err
	}
	return t.objects.Delete(ctx, o.at.namespace, o.name, object.Fields("apiVersion", object.StringOf("v1"),
		"kind", object.StringOf("DeleteOptions"), "propagationPolicy", object.StringOf(string(how)),
		"preconditions", object.Fields("uid", object.StringOf(o.uid), "resourceVersion", object.StringOf(o.revision))))
}

// patch is taskObject.patch.
func (t *backendType) patch(ctx context.Context, o *taskObject, body object.Value) error {
	if err := t.backends.pace.Wait(ctx); err != nil {
		return err
	}
	head, err := t.objects.Patch(ctx, o.at.namespace, o.name, body)
	if err == nil {
		o.head, o.revision = head, head.At("metadata", "resourceVersion").Str()
	}
	return err
}

// renewal lets the collector examine all objects again.
//
// The problem: it may be asked for by a backend that fails again and again, and to examine all objects takes time that
// others need. So there is at least renewalRest times as long a time between two of them as the last one took.
type renewal struct {
	mu    sync.Mutex
	wake  func()
	due   bool
	timer *time.Timer // sets due; nil: it does not run
	began time.Time
	took  time.Duration
	asked bool
}

const renewalRest = 20

// begin is called before all objects are examined. wake is called when they are to be examined again.
func (r *renewal) begin(wake func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wake, r.due = wake, false
	r.began, r.took, r.asked = time.Now(), 0, false
}

// examined is called when all objects are examined.
func (r *renewal) examined() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took = max(1, time.Since(r.began))
	if r.asked {
		r.later()
	}
}

// again has all objects examined again, whether they were or are being examined.
func (r *renewal) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked {
		return
	}
	r.asked = true
	if r.took > 0 {
		r.later()
	}
}

// later makes it due when enough time has passed. The caller holds mu.
func (r *renewal) later() {
	var timer *time.Timer
	timer = time.AfterFunc(max(0, time.Until(r.began.Add(r.took*(renewalRest+1)))), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.timer == timer {
			r.due = true
			r.wake()
		}
	})
	r.timer = timer
}

// isDue says whether all objects are to be examined again.
func (r *renewal) isDue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.due
}

// stop is called when the changes are not followed any more.
func (r *renewal) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}
