package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/internal/access"
	"plinth/internal/admission/quota"
	"plinth/internal/apierr"
	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
)

// ResourceQuotas publishes in status.used of each ResourceQuota what the objects of its namespace use. What is used
// follows from the stored objects (store.State.Rules), and limits hold without this controller.
//
// In the reference two programs write that status: kube-controller-manager counts what is there, and the admission of
// kube-apiserver adds what it has let in, before the object is written. So a client sees its own object counted. Here a
// write per object would be too much: those of publishEvery share one. For a client it is the same, because who reads
// quotas gets them brought up to date first (Refresh).
type ResourceQuotas struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Store    *store.Store
	Busy     *pace.Busy // nil: nobody asks
	Logger   *slog.Logger
	// Admitted leaves counting to a kube-controller-manager: only what the status has is raised, to what was admitted.
	Admitted bool

	lowerings map[store.Key]lowering // that wait, where other processes write, too
	published atomic.Int64           // the number of changes that are published, as store.State.Limited counts them
	open      sync.Once              // sets devices
	devices   func() (*quota.Classes, error)
}

// classes are the DeviceClasses as they are now.
func (c *ResourceQuotas) classes() *quota.Classes {
	c.open.Do(func() { c.devices = quota.ClassesOf(c.Store).Now })
	classes, _ := c.devices() // the status is not what limits
	return classes
}

// lowering is a status that says more than is used, as it is seen by this controller for the first time.
type lowering struct {
	revision int64 // of the quota
	since    time.Time
}

// lowerAfter is how long a quota on a shared store has to stand unchanged before its status.used is lowered.
//
// The problem: a kube-apiserver adds to the status what an object will use, and then writes the object. In between, the
// status says more than is used. A controller that lowers it then takes back what was reserved for the object, and the
// next object is admitted in its place: one more than the quota allows. Nothing in the store tells such a reservation
// from one that is left over. So the status is lowered only when it has stood for longer than that write takes.
const lowerAfter = 500 * time.Millisecond

// publishEvery is the least time between two looks at what has changed: many changes share a status. The first change
// after a pause is published at once.
const publishEvery = 200 * time.Millisecond

// recountEvery is how often all quotas are counted where other processes write, too: the reference's
// --resource-quota-sync-period.
const recountEvery = 5 * time.Minute

// earlier is the earlier one of two times, of which the first may be zero: never.
func earlier(a, b time.Time) time.Time {
	if !a.IsZero() && a.Before(b) {
		return a
	}
	return b
}

// Start begins its loop.
func (c *ResourceQuotas) Start(g *steps.Group) {
	c.lowerings = map[store.Key]lowering{}
	r := &quotaLoop{ResourceQuotas: c, recount: time.Now().Add(recountEvery), first: true}
	r.stop = func() {}
	g.Loop(r.step, r.end)
}

// quotaLoop is the loop of ResourceQuotas: it looks at what has changed, and waits until there are further changes.
type quotaLoop struct {
	*ResourceQuotas
	failed  int
	recount time.Time // when all are counted anew
	first   bool      // it has not looked yet
	looked  time.Time // the last time
	next    time.Time // when to look without a change; zero: never
	pending bool      // there are changes: work (pace.Busy), until they are looked at, publishEvery after the last look
	stop    func()    // being told of changed ledgers

	known   *quota.Classes // the DeviceClasses at the last look
	changed *store.Cursor  // of DeviceClasses; nil: it is to be made
	renewed time.Time      // when that was made
}

func (r *quotaLoop) end() {
	r.stop()
	if r.changed != nil {
		r.changed.Close()
	}
	r.Busy.Note(&r.pending, false)
}

func (r *quotaLoop) step(ctx context.Context, l *steps.Loop) (next time.Time) {
	if r.first {
		r.stop = r.Store.LedgersChanged(l.Waker())
	}
	classes := r.classesChanged(ctx, l)
	now := time.Now()
	if due := !r.next.IsZero() && !now.Before(r.next); !r.first && !due {
		if !r.pending && !classes && r.changes() == r.published.Load() {
			return r.next
		}
		r.Busy.Note(&r.pending, true)
		if at := r.looked.Add(publishEvery); now.Before(at) {
			return sooner(at, r.next)
		}
	}
	r.first = false
	r.look(ctx)
	r.Busy.Note(&r.pending, false)
	return r.next
}

// look publishes what has changed.
func (r *quotaLoop) look(ctx context.Context) {
	if now := r.classes(); now != r.known {
		if r.known != nil {
			r.published.Store(0) // what is used in any namespace may depend on them
		}
		r.known = now
	}
	if time.Now().After(r.recount) {
		r.recount = time.Now().Add(recountEvery)
		r.published.Store(0)
	}
	next, err := r.publishAll(ctx, r.known)
	r.looked = time.Now()
	if err == nil {
		r.failed = 0
	} else if r.failed++; r.failed == 1 && ctx.Err() == nil {
		r.Logger.Warn("a controller could not do its work, trying again", "controller", "resourcequota-controller",
			"error", err)
	}
	if err != nil {
		next = time.Now().Add(pace.Retry(r.failed))
	} else if r.Store.Others != nil {
		// What was recorded for a write that then failed changes no sum, so that all are counted anew.
		next = earlier(next, r.recount)
	}
	if r.next = next; !next.IsZero() {
		r.next = next.Add(time.Millisecond)
	}
}

// classesChanged says whether DeviceClasses may have changed since the last call.
func (r *quotaLoop) classesChanged(ctx context.Context, l *steps.Loop) (changed bool) {
	if r.changed == nil {
		if time.Since(r.renewed) < publishEvery {
			return false
		}
		cursor, err := r.Store.Watch(ctx, quota.ClassesPath, "", r.Store.Revision())
		if r.renewed = time.Now(); err != nil {
			return true // it is tried again with the next look
		}
		r.changed, changed = cursor, true
	}
	for {
		records, err := r.changed.Ready(ctx, l.Waker())
		if err != nil {
			r.changed.Close()
			r.changed = nil
			return true
		}
		if len(records) == 0 {
			return changed
		}
		changed = true
	}
}

// publishAll brings the statuses of all namespaces up to date whose ledger has changed. It is to be called again at
// next, unless that is zero.
func (c *ResourceQuotas) publishAll(ctx context.Context, classes *quota.Classes) (next time.Time, err error) {
	namespaces, changes, next := c.Store.Limited(c.published.Load())
	var later time.Time // when a status that waits is lowered; zero: none waits
	written := 0
	for _, namespace := range namespaces {
		n, due, failed := c.publish(ctx, namespace, classes)
		written += n
		err = cmp.Or(failed, err)
		if !due.IsZero() {
			later = earlier(later, due)
		}
	}
	switch {
	case err != nil:
	case !later.IsZero():
		next = earlier(next, later)
	default:
		clear(c.lowerings)
		c.published.Store(c.own(changes, written))
	}
	return next, err
}

// own returns the number of changes up to which all is published, given how many statuses were written since a number
// of changes: a written status changes a ledger, too.
func (c *ResourceQuotas) own(changes int64, written int) int64 {
	if now := c.changes(); now == changes+int64(written) {
		return now
	}
	return changes
}

// changes is how often ledgers have changed.
func (c *ResourceQuotas) changes() int64 {
	_, n, _ := c.Store.Limited(math.MaxInt64)
	return n
}

// Refresh brings the status of the quotas of a namespace up to date, or of all if it is "", before a client reads them.
// What cannot be written stays as it is. On a store that other processes write to, admission has recorded the use of
// each request before that was answered (engine.Limits).
func (c *ResourceQuotas) Refresh(ctx context.Context, namespace string) {
	if c.Store.Others != nil {
		return
	}
	namespaces := []string{namespace}
	if namespace == "" {
		namespaces, _, _ = c.Store.Limited(c.published.Load())
	}
	classes := c.classes()
	for _, namespace := range namespaces {
		if _, _, err := c.publish(ctx, namespace, classes); err != nil {
			return // Run tries again, and logs it
		}
	}
}

// publish brings the statuses of the quotas of a namespace up to date, and returns how many it has written. Some may
// have to wait: until due. A quota that somebody else writes at that moment is looked at again.
func (c *ResourceQuotas) publish(ctx context.Context, namespace string, classes *quota.Classes) (written int,
	due time.Time, err error) {
	for {
		var n int
		n, due, err = c.publishOnce(ctx, namespace, classes)
		written += n
		if !apierr.Is(err, apierr.Conflict) || ctx.Err() != nil {
			return written, due, err
		}
	}
}

// publishOnce is publish without a second look.
func (c *ResourceQuotas) publishOnce(ctx context.Context, namespace string, classes *quota.Classes) (written int,
	due time.Time, err error) {
	of := c.Registry.Builtin().Find("", "v1", "resourcequotas")
	rules, _, err := c.Store.Rules(ctx, namespace)
	if err != nil || of == nil {
		return 0, due, err
	}
	for _, rule := range rules {
		status, err := c.status(namespace, rule, classes)
		if err != nil || status.IsNull() {
			return written, due, err
		}
		obj, err := engine.ObjectOf(rule.Version)
		if err != nil {
			continue
		}
		user, by := access.ControllerAccount("resourcequota-controller"), manager
		if c.Admitted {
			status, user, by = raised(obj.At("status"), status), serverItself, identityValue
		}
		if object.Equal(obj.At("status"), status) {
			continue
		}
		if at := c.lowersAt(rule.Version, obj.At("status", "used"), status.At("used")); !at.IsZero() {
			due = earlier(due, at)
			continue
		}
		body := object.Fields("metadata", object.Fields("resourceVersion",
			object.StringOf(fmt.Sprint(rule.Version.Revision))), "status", object.Fields(
			"hard", replacing(obj.At("status", "hard"), status.At("hard")),
			"used", replacing(obj.At("status", "used"), status.At("used"))))
		rq := of.RequestFor(rule.Version.Key)
		rq.Subresource = of.Subresource("status")
		rq.User, rq.FieldManager = user, by
		patch := engine.Patch{Type: engine.MergePatch, Body: object.AppendJSON(nil, body)}
		switch _, err := c.Engine.Patch(ctx, rq, patch); {
		case apierr.Is(err, apierr.NotFound):
		case err != nil:
			return written, due, err
		default:
			written++
		}
	}
	return written, due, nil
}

// raised is a status with what is used of the names that it has, where that is more than it says.
func raised(status, counted object.Value) object.Value {
	for _, m := range status.At("used").Members() {
		before, failed := resource.ParseQuantity(m.Value.Str())
		now, err := resource.ParseQuantity(counted.At("used", m.Key).Str())
		if err == nil && (failed != nil || now.Cmp(before) > 0) {
			status = status.WithAt(counted.At("used", m.Key), "used", m.Key)
		}
	}
	return status
}

// lowersAt is when the status of a quota may be changed: zero for now.
func (c *ResourceQuotas) lowersAt(of *store.Version, old, next object.Value) time.Time {
	if c.Store.Others == nil {
		return time.Time{}
	}
	lowers := slices.ContainsFunc(next.Members(), func(m object.Member) bool {
		before, err := resource.ParseQuantity(old.At(m.Key).Str())
		now, failed := resource.ParseQuantity(m.Value.Str())
		return err == nil && failed == nil && now.Cmp(before) < 0
	})
	if !lowers {
		delete(c.lowerings, of.Key)
		return time.Time{}
	}
	waits := c.lowerings[of.Key]
	if waits.revision != of.Revision {
		waits = lowering{of.Revision, time.Now()}
		c.lowerings[of.Key] = waits
	}
	at := waits.since.Add(lowerAfter)
	if time.Now().Before(at) {
		return at
	}
	delete(c.lowerings, of.Key)
	return time.Time{}
}

// replacing is a merge patch that makes a map of one another.
func replacing(old, next object.Value) object.Value {
	set := slices.Clone(next.Members())
	for _, m := range old.Members() {
		if _, stays := next.Get(m.Key); !stays {
			set = append(set, object.Member{Key: m.Key, Value: object.Nil})
		}
	}
	return object.MapOf(set...)
}

// status is the status of a quota: its limits, and what is used of those that objects of this server can use. It is
// null if the namespace has no quotas any more.
func (c *ResourceQuotas) status(namespace string, rule store.Rule, classes *quota.Classes) (object.Value, error) {
	r, err := quota.ParseRule(rule.Text)
	if err != nil {
		return object.Nil, err
	}
	limits := &store.Limits{Namespace: namespace}
	var hard []object.Member
	for name, most := range r.Hard {
		hard = append(hard, object.Member{Key: name, Value: object.StringOf(most.String())})
		if quota.Tracked(name, c.counted) {
			limits.Each = append(limits.Each, store.Limit{Name: name, Counts: r.Counts, More: r.More(classes, name)})
		}
	}
	sums, ok := c.Store.Used(limits)
	if !ok {
		return object.Nil, nil
	}
	var used []object.Member
	for i := range sums {
		used = append(used, object.Member{Key: limits.Each[i].Name, Value: object.StringOf(sums[i].String())})
	}
	byName := func(a, b object.Member) int { return strings.Compare(a.Key, b.Key) }
	slices.SortFunc(hard, byName)
	slices.SortFunc(used, byName)
	var set []object.Member
	if len(hard) > 0 {
		set = append(set, object.Member{Key: "hard", Value: object.MapOf(hard...)})
	}
	if len(used) > 0 {
		set = append(set, object.Member{Key: "used", Value: object.MapOf(used...)})
	}
	return object.MapOf(set...), nil
}

// counted says whether a store resource is that of a type whose objects are in namespaces and are counted.
func (c *ResourceQuotas) counted(path string) bool {
	types := c.Registry.Now()
	k := types.Kind(path)
	if k == nil || !quota.Counted(path) {
		return false
	}
	group, name, _ := strings.Cut(path, "/")
	version := k.Storage.APIVersion[strings.LastIndexByte(k.Storage.APIVersion, '/')+1:]
	r := types.Find(group, version, name)
	return r == nil || r.Namespaced
}
