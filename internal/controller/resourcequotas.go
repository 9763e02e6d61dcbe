package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/internal/admission/quota"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
)

// ResourceQuotas publishes in status.used of each ResourceQuota what the objects of its namespace use. What is used
// follows from the stored objects (store.State.Rules), and limits hold without this controller.
type ResourceQuotas struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Store    *store.Store
	Busy     *Busy // nil: nobody asks
	Logger   *slog.Logger

	lowerings map[store.Key]lowering // that wait, where other processes write, too
}

// lowering is a status that says more than is used, as it is seen by this controller for the first time.
type lowering struct {
	revision int64 // of the quota
	since    time.Time
}

// lowerAfter is how long a quota on a shared store has to stand unchanged before its status.used is lowered.
//
// The problem: a kube-apiserver writes what an object will use into the status, and then the object. In between, the
// status says more than is used. Who lowers it then takes back the room that the object has got, and the next object
// gets it, too: one more than the quota allows. It does not say that it will write the object, so all that can be done
// is to wait for longer than it takes.
const lowerAfter = 500 * time.Millisecond

// publishEvery is the least time between two statuses of a quota: many changes share one.
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

// Run works until ctx ends.
func (c *ResourceQuotas) Run(ctx context.Context) {
	c.lowerings = map[store.Key]lowering{}
	failed, published, recount := 0, func() {}, time.Now().Add(recountEvery)
	view := quota.ClassesOf(c.Store)
	classes, _ := view.Now() // the status is not what limits
	changed := make(chan struct{}, 1)
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { c.followClasses(ctx, changed) })
	for seen := int64(0); ctx.Err() == nil; {
		if now, _ := view.Now(); now != classes {
			classes, seen = now, 0 // what is used in any namespace may depend on them
		}
		if time.Now().After(recount) {
			seen, recount = 0, time.Now().Add(recountEvery)
		}
		namespaces, changes, next := c.Store.Limited(seen)
		var last error
		var later time.Time // when a status that waits is lowered; zero: none waits
		for _, namespace := range namespaces {
			due, err := c.publish(ctx, namespace, classes)
			for err == errRecorded && ctx.Err() == nil {
				due, err = c.publish(ctx, namespace, classes)
			}
			if err != nil {
				last = err
			}
			if !due.IsZero() {
				later = earlier(later, due)
			}
		}
		published()
		published = func() {}
		wait := ctx
		stop := context.CancelFunc(func() {})
		switch {
		case last != nil:
			if failed++; failed == 1 {
				c.Logger.Warn("a controller could not do its work, trying again", "controller", "resourcequota-controller",
					"error", last)
			}
			wait, stop = context.WithTimeout(ctx, retry(failed))
		default:
			failed = 0
			if later.IsZero() {
				seen = changes
				clear(c.lowerings)
			} else {
				next = earlier(next, later)
			}
			if c.Store.Others != nil {
				// What was recorded for a write that then failed changes no sum, so that all are counted anew.
				next = earlier(next, recount)
			}
			if !next.IsZero() {
				wait, stop = context.WithDeadline(ctx, next.Add(time.Millisecond))
			}
		}
		select {
		case <-c.Store.LedgersChanged():
			published = c.collect(ctx)
		case <-changed:
			published = c.collect(ctx)
		case <-wait.Done():
		}
		stop()
	}
}

// collect waits for further changes. It counts as work until published is called.
func (c *ResourceQuotas) collect(ctx context.Context) (published func()) {
	c.Busy.add(1)
	pause(ctx, publishEvery)
	return func() { c.Busy.add(-1) }
}

// followClasses sends to changed after changes of DeviceClasses, until ctx ends.
func (c *ResourceQuotas) followClasses(ctx context.Context, changed chan<- struct{}) {
	for ctx.Err() == nil {
		cursor, err := c.Store.Watch(quota.ClassesPath, "", c.Store.Revision())
		for err == nil {
			select {
			case changed <- struct{}{}: // first for what has changed before the cursor was made
			default:
			}
			_, err = cursor.Next(ctx)
		}
		if cursor != nil {
			cursor.Close()
		}
		pause(ctx, publishEvery)
	}
}

// publish brings the statuses of the quotas of a namespace up to date. Some may have to wait: until due.
func (c *ResourceQuotas) publish(ctx context.Context, namespace string, classes *quota.Classes) (due time.Time,
	err error) {
	of := c.Registry.Builtin().Find("", "v1", "resourcequotas")
	rules, _, err := c.Store.Rules(ctx, namespace)
	if err != nil || of == nil {
		return due, err
	}
	for _, rule := range rules {
		status, err := c.status(namespace, rule, classes)
		if err != nil || status.IsNull() {
			return due, err
		}
		obj, err := engine.ObjectOf(rule.Version)
		if err != nil || object.Equal(obj.At("status"), status) {
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
		rq.User, rq.FieldManager = serviceAccount("resourcequota-controller"), manager
		patch := engine.Patch{Type: engine.MergePatch, Body: object.AppendJSON(nil, body)}
		_, err = c.Engine.Patch(ctx, rq, patch)
		if apierr.Is(err, apierr.Conflict) && c.Store.Others != nil {
			return due, errRecorded
		}
		if err := unlessChanged(nil, err); err != nil {
			return due, err
		}
	}
	return due, nil
}

// lowersAt is when the status of a quota may be changed: zero for now.
func (c *ResourceQuotas) lowersAt(of *store.Version, old, next object.Value) time.Time {
	if c.Store.Others == nil {
		return time.Time{}
	}
	lowers := slices.ContainsFunc(next.Members(), func(m object.Member) bool {
		was, err := resource.ParseQuantity(old.At(m.Key).Str())
		is, failed := resource.ParseQuantity(m.Value.Str())
		return err == nil && failed == nil && is.Cmp(was) < 0
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

// errRecorded says that a request has recorded what it uses in a status (engine.Limits) at the moment at which that was
// to be published. No other change of the namespace may follow, so it is published again.
var errRecorded = errors.New("a request has recorded what it uses meanwhile")

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
