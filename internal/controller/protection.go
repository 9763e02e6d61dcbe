package controller

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"plinth/internal/access"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// Protection keeps objects that are deleted until nothing uses them any more: the admission plugins
// StorageObjectInUseProtection and PodGroupProtection give each a finalizer, and Protection takes it away. It gives the
// finalizer to objects that were made without the plugin, too, other than PodGroups. (Claims protects claims.)
//
//	deleting, and has the finalizer, and not in use  ⇒  the finalizer is removed
//	not deleting, and has no finalizer               ⇒  it is added, unless the object is a PodGroup
//
// Most of the time no object waits. Only while one does, the types whose objects may use it are followed.
type Protection struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	// Kind is what is protected.
	Kind ProtectedKind

	of, pods, claims, volumes *engine.Resource
	user                      access.User
	uses                      func(ctx context.Context, obj object.Value) (bool, error)
	users                     []*engine.Resource // the types whose objects may use one

	mu      sync.Mutex
	waiting map[string]*engine.Object // objects in use that are being deleted, by the names of their keys
	group   *steps.Group
	loops   []*steps.Loop // that follow users
}

// ProtectedKind is a kind of objects that are protected.
type ProtectedKind uint8

// The kinds.
const (
	ProtectedVolumes ProtectedKind = iota
	ProtectedAttributesClasses
	ProtectedPodGroups
)

// protected has, for each kind, its group and resource, the finalizer, the name of the controller and its
// ServiceAccount.
var protected = [...]struct{ group, version, resource, finalizer, name, account string }{
	ProtectedVolumes: {"", "v1", "persistentvolumes", "kubernetes.io/pv-protection",
		"persistentvolume-protection-controller", "pv-protection-controller"},
	ProtectedAttributesClasses: {"storage.k8s.io", "v1", "volumeattributesclasses", "kubernetes.io/vac-protection",
		"volumeattributesclass-protection-controller", "volumeattributesclass-protection-controller"},
	ProtectedPodGroups: {"scheduling.k8s.io", "v1beta1", "podgroups", "scheduling.k8s.io/podgroup-protection",
		"podgroup-protection-controller", "podgroup-protection-controller"},
}

// Start begins its loops.
func (c *Protection) Start(g *steps.Group) {
	c.group = g
	row := &protected[c.Kind]
	types := c.Registry.Builtin()
	c.of, c.pods = types.Find(row.group, row.version, row.resource), types.Find("", "v1", "pods")
	if c.of == nil && c.Kind == ProtectedPodGroups {
		c.of = types.Find(row.group, "v1alpha3", row.resource)
	}
	c.claims, c.volumes = types.Find("", "v1", "persistentvolumeclaims"), types.Find("", "v1", "persistentvolumes")
	c.user, c.waiting = access.ControllerAccount(row.account), map[string]*engine.Object{}
	switch c.Kind {
	case ProtectedVolumes:
		c.uses = func(_ context.Context, volume object.Value) (bool, error) {
			return volume.At("status", "phase").Str() == "Bound", nil
		}
	case ProtectedAttributesClasses:
		c.uses, c.users = c.classInUse, []*engine.Resource{c.claims, c.volumes}
	case ProtectedPodGroups:
		c.uses, c.users = c.groupInUse, []*engine.Resource{c.pods}
	}
	(&follower{
		engine: c.Engine, logger: c.Logger, name: row.name, types: []*engine.Resource{c.of},
		sync: func(ctx context.Context, _ *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
			if gone {
				c.forget(o)
				return 0, nil
			}
			return 0, c.look(ctx, o)
		},
	}).start(g)
}

// look adds or removes the finalizer of an object, if it is time to.
func (c *Protection) look(ctx context.Context, o *engine.Object) error {
	head, err := engine.HeadOf(o)
	if err != nil {
		return nil // an unreadable one can be deleted by force only
	}
	finalizer := protected[c.Kind].finalizer
	all := head.At("metadata", "finalizers").Items()
	i := slices.IndexFunc(all, func(v object.Value) bool { return v.Str() == finalizer })
	switch {
	case !o.Sidecar.Deleting && i < 0 && c.Kind != ProtectedPodGroups:
		return c.patch(ctx, o, append(all[:len(all):len(all)], object.StringOf(finalizer)))
	case !o.Sidecar.Deleting || i < 0:
		c.forget(o)
		return nil
	}
	obj, err := parsed(o)
	if err != nil {
		return nil
	}
	// It waits before it is looked at: a user that goes meanwhile is noticed.
	c.await(o)
	used, err := c.uses(ctx, obj)
	if err != nil || used {
		return err
	}
	c.forget(o)
	return c.patch(ctx, o, slices.Delete(slices.Clone(all), i, i+1))
}

// patch sets the finalizers of an object, unless it has changed.
func (c *Protection) patch(ctx context.Context, o *engine.Object, finalizers []object.Value) error {
	rq := c.of.RequestFor(o.Key)
	rq.User, rq.FieldManager = c.user, manager
	return unlessChanged(c.Engine.Patch(ctx, rq, setFinalizers(o, finalizers)))
}

// await notes that an object waits for its users to go, and follows them.
func (c *Protection) await(o *engine.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[o.Key.Name] = o
	if c.loops != nil {
		return
	}
	for _, of := range c.users {
		l := (&watcher{engine: c.Engine, of: of, user: c.user, failed: func(err error) {
			c.Logger.Warn("a watch has failed, trying again", "controller", protected[c.Kind].name, "type", of.Name,
				"error", err)
		}, handle: func(ctx context.Context, _ *steps.Loop, events []engine.Event) (never time.Time, err error) {
			return never, c.usersChanged(ctx, of, events)
		}}).start(c.group)
		c.loops = append(c.loops, l)
	}
}

// forget notes that an object waits no more.
func (c *Protection) forget(o *engine.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, o.Key.Name)
	if len(c.waiting) > 0 {
		return
	}
	for _, l := range c.loops {
		l.Stop()
	}
	c.loops = nil
}

// usersChanged looks at the objects that wait, since some of a type that may use them have changed.
func (c *Protection) usersChanged(ctx context.Context, of *engine.Resource, events []engine.Event) error {
	if of == c.pods && !slices.ContainsFunc(events, c.letsGo) || len(events) == 0 {
		return nil
	}
	for _, o := range c.waitingNow() {
		if err := c.lookAgain(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// letsGo says whether a Pod may have let go of its group: when it goes or ends.
func (c *Protection) letsGo(e engine.Event) bool {
	if e.Type == engine.Deleted {
		return true
	}
	pod, err := parsed(e.Object)
	return err == nil && hasEnded(pod)
}

func (c *Protection) waitingNow() []*engine.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*engine.Object
	for _, o := range c.waiting {
		all = append(all, o)
	}
	return all
}

// lookAgain looks at the newest version of an object that waits.
func (c *Protection) lookAgain(ctx context.Context, o *engine.Object) error {
	now, err := c.Engine.Stored(ctx, o.Key)
	switch {
	case err != nil:
		return err
	case now == nil:
		c.forget(o)
		return nil
	}
	return c.look(context.WithoutCancel(ctx), now)
}

// each calls f for the objects of a type in a namespace whose bytes contain a name, until it returns false.
func (c *Protection) each(ctx context.Context, of *engine.Resource, namespace, name string,
	f func(obj object.Value) bool) error {
	list, err := c.Engine.List(ctx, &engine.Request{Resource: of, Namespace: namespace, User: c.user},
		engine.ListOptions{})
	if err != nil {
		return err
	}
	for o := range list.Items {
		if !bytes.Contains(o.Data(), []byte(name)) {
			continue // most objects are not parsed
		}
		obj, err := parsed(o)
		if err != nil || !f(obj) {
			return err
		}
	}
	return list.Err()
}

// controlledBy says whether the controller of an object has this UID.
func controlledBy(obj object.Value, uid string) bool {
	return slices.ContainsFunc(obj.At("metadata", "ownerReferences").Items(), func(o object.Value) bool {
		return o.At("controller").Bool() && o.At("uid").Str() == uid
	})
}

// groupInUse says whether a Pod that has not ended belongs to a PodGroup.
func (c *Protection) groupInUse(ctx context.Context, group object.Value) (used bool, err error) {
	name := group.At("metadata", "name").Str()
	err = c.each(ctx, c.pods, group.At("metadata", "namespace").Str(), name, func(pod object.Value) bool {
		used = !hasEnded(pod) && pod.At("spec", "schedulingGroup", "podGroupName").Str() == name
		return !used
	})
	return used, err
}

// hasEnded says whether a Pod has succeeded or failed.
func hasEnded(pod object.Value) bool {
	phase := pod.At("status", "phase").Str()
	return phase == "Succeeded" || phase == "Failed"
}

// classInUse says whether a claim or a volume has a VolumeAttributesClass, or is about to get it.
func (c *Protection) classInUse(ctx context.Context, class object.Value) (used bool, err error) {
	name := class.At("metadata", "name").Str()
	err = c.each(ctx, c.volumes, "", name, func(v object.Value) bool {
		used = v.At("spec", "volumeAttributesClassName").Str() == name
		return !used
	})
	if used || err != nil {
		return used, err
	}
	err = c.each(ctx, c.claims, "", name, func(v object.Value) bool {
		status := v.At("status")
		used = v.At("spec", "volumeAttributesClassName").Str() == name ||
			status.At("currentVolumeAttributesClassName").Str() == name ||
			status.At("modifyVolumeStatus", "targetVolumeAttributesClassName").Str() == name
		return !used
	})
	return used, err
}
