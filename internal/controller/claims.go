package controller

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"plinth/internal/access"
	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// Claims protects PersistentVolumeClaims: one that is deleted stays while a Pod on a node uses it. It also says in the
// condition Unused of a bound claim since when no Pod refers to it, with the feature gate
// PersistentVolumeClaimUnusedSinceTime.
//
//	deleting, and has the finalizer, and not in use        ⇒  the finalizer is removed
//	not deleting, and has no finalizer                     ⇒  it is added
//	bound, not deleting, and Unused ≠ no Pod refers to it  ⇒  the condition is set
//
// Pods are followed only while a claim is bound or waits to be removed. A claim is due for a look when it changes, or a
// Pod that names it. All claims of a namespace that are due are looked at together, and the Pods of the namespace are
// read once for all of them: with a look at each change, a thousand Pods that are deleted together would be read a
// thousand times.
type Claims struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
	// Unused turns the condition on.
	Unused bool

	of, pods *engine.Resource
	user     access.User

	mu sync.Mutex
	// due are the claims to be looked at, by namespace and name.
	due    map[string]map[string]attempt
	group  *steps.Group
	looker *steps.Loop
	// concerned are the claims that Pods matter to, by the names of their keys. follower is the loop that follows Pods;
	// nil: there is none.
	concerned map[string]struct{}
	follower  *steps.Loop
}

// attempt is when to look at a claim, and how many attempts have failed.
type attempt struct {
	failed int
	at     time.Time // zero: now
}

const (
	claimController = "persistentvolumeclaim-protection-controller"
	claimFinalizer  = "kubernetes.io/pvc-protection"
	unusedCondition = "Unused"
)

// Start begins its loops.
func (c *Claims) Start(g *steps.Group) {
	types := c.Registry.Builtin()
	c.of, c.pods = types.Find("", "v1", "persistentvolumeclaims"), types.Find("", "v1", "pods")
	c.user = access.ControllerAccount("pvc-protection-controller")
	c.due, c.concerned, c.group = map[string]map[string]attempt{}, map[string]struct{}{}, g
	if c.of == nil || c.pods == nil {
		return
	}
	c.looker = g.Loop(c.lookAtAll, nil)
	(&follower{
		engine: c.Engine, logger: c.Logger, name: claimController, types: []*engine.Resource{c.of},
		sync: func(_ context.Context, _ *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
			c.changed(o, gone)
			return 0, nil
		},
	}).start(g)
}

// claimState is what decides what is to be done about a claim.
type claimState struct {
	o                           *engine.Object
	obj                         object.Value
	deleting, protected, tracks bool
	condition                   object.Value // Unused; null: there is none
	used, keeps                 bool         // a Pod refers to it; a Pod keeps it from being removed
}

// stateOf reads a claim.
func (c *Claims) stateOf(o *engine.Object) (*claimState, error) {
	obj, err := parsed(o)
	if err != nil {
		return nil, err
	}
	s := &claimState{o: o, obj: obj, deleting: o.Sidecar.Deleting}
	s.protected = slices.ContainsFunc(obj.At("metadata", "finalizers").Items(), isClaimFinalizer)
	s.tracks = c.Unused && !s.deleting && obj.At("status", "phase").Str() == "Bound"
	for _, condition := range obj.At("status", "conditions").Items() {
		if condition.At("type").Str() == unusedCondition {
			s.condition = condition
			break
		}
	}
	return s, nil
}

func isClaimFinalizer(v object.Value) bool { return v.Str() == claimFinalizer }

// changed notes what a change of a claim means.
func (c *Claims) changed(o *engine.Object, gone bool) {
	s, err := c.stateOf(o)
	waits := err == nil && !gone && s.deleting && s.protected
	newly := c.concern(o.Key.Name, waits || err == nil && !gone && s.tracks)
	if err != nil || gone { // an unreadable one can be deleted by force only
		return
	}
	if waits || !s.deleting && !s.protected || s.tracks && (newly || s.condition.IsNull()) {
		namespace, name, _ := strings.Cut(o.Key.Name, "/")
		c.add(namespace, name, attempt{})
	}
}

// concern notes whether Pods matter to a claim, and follows them while they do to any. It returns whether they have not
// mattered before: what Pods did until then is unknown.
func (c *Claims) concern(claim string, matter bool) (newly bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, did := c.concerned[claim]
	if matter {
		c.concerned[claim] = struct{}{}
	} else {
		delete(c.concerned, claim)
	}
	switch follows := c.follower != nil; {
	case follows && len(c.concerned) == 0:
		c.follower.Stop()
		c.follower = nil
	case !follows && len(c.concerned) > 0:
		c.follower = (&follower{engine: c.Engine, logger: c.Logger, name: claimController,
			types: []*engine.Resource{c.pods},
			sync: func(_ context.Context, _ *engine.Resource, o *engine.Object, _ bool) (time.Duration, error) {
				c.podChanged(o)
				return 0, nil
			}}).start(c.group)[0]
	}
	return matter && !did
}

// podChanged makes the claims due that a Pod names, if Pods matter to them.
func (c *Claims) podChanged(o *engine.Object) {
	if !namesClaims(o) {
		return
	}
	pod, err := parsed(o)
	if err != nil {
		return
	}
	namespace, _, _ := strings.Cut(o.Key.Name, "/")
	for _, volume := range pod.At("spec", "volumes").Items() {
		if name := claimOf(pod, volume); name != "" {
			c.mu.Lock()
			_, matters := c.concerned[namespace+"/"+name]
			c.mu.Unlock()
			if matters {
				c.add(namespace, name, attempt{})
			}
		}
	}
}

// namesClaims says whether a Pod may name claims. Most Pods are not parsed.
func namesClaims(pod *engine.Object) bool {
	data := pod.Data()
	return bytes.Contains(data, []byte(`"persistentVolumeClaim"`)) || bytes.Contains(data, []byte(`"ephemeral"`))
}

// claimOf is the name of the claim of a volume of a Pod; "": it has none.
func claimOf(pod, volume object.Value) string {
	if claim := volume.At("persistentVolumeClaim"); !claim.IsNull() {
		return claim.At("claimName").Str()
	}
	if volume.At("ephemeral").IsNull() {
		return ""
	}
	return pod.At("metadata", "name").Str() + "-" + volume.At("name").Str()
}

// add makes a claim due.
func (c *Claims) add(namespace, name string, a attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due[namespace] == nil {
		c.due[namespace] = map[string]attempt{}
	}
	if before, is := c.due[namespace][name]; is {
		a.failed = max(a.failed, before.failed)
		if before.at.Before(a.at) {
			a.at = before.at
		}
	}
	c.due[namespace][name] = a
	c.looker.Wake()
}

// take returns the claims that are due now, and when the next one is; zero: none is.
func (c *Claims) take() (due map[string]map[string]attempt, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	due = map[string]map[string]attempt{}
	now := time.Now()
	for namespace, claims := range c.due {
		for name, a := range claims {
			if a.at.After(now) {
				next = sooner(next, a.at)
				continue
			}
			if due[namespace] == nil {
				due[namespace] = map[string]attempt{}
			}
			due[namespace][name] = a
			delete(claims, name)
		}
		if len(claims) == 0 {
			delete(c.due, namespace)
		}
	}
	return due, next
}

// lookAtAll looks at claims that are due.
func (c *Claims) lookAtAll(ctx context.Context, _ *steps.Loop) (next time.Time) {
	due, next := c.take()
	for _, namespace := range slices.Sorted(maps.Keys(due)) {
		for name, err := range c.look(ctx, namespace, slices.Sorted(maps.Keys(due[namespace]))) {
			failed := due[namespace][name].failed + 1
			if failed == 1 {
				c.Logger.Warn("a controller could not do its work, trying again", "controller", claimController,
					"object", namespace+"/"+name, "error", err)
			}
			c.add(namespace, name, attempt{failed, time.Now().Add(pace.Retry(failed))})
		}
	}
	return next
}

// look does what is to be done about claims of a namespace, and returns those for which that has failed.
func (c *Claims) look(ctx context.Context, namespace string, names []string) (failed map[string]error) {
	failed = map[string]error{}
	claims := map[string]*claimState{}
	for _, name := range names {
		o, err := c.Engine.Stored(ctx, engine.Key{Resource: c.of.Stored.Path, Name: namespace + "/" + name})
		if err != nil {
			failed[name] = err
		} else if o != nil {
			if s, err := c.stateOf(o); err == nil {
				claims[name] = s
			}
		}
	}
	if err := c.findUsers(ctx, namespace, claims); err != nil {
		for name := range claims {
			failed[name] = err
		}
		return failed
	}
	for name, s := range claims {
		if err := c.bringUpToDate(ctx, s); err != nil {
			failed[name] = err
		}
	}
	return failed
}

// findUsers reads the Pods of a namespace, and notes in claims whether one uses them.
func (c *Claims) findUsers(ctx context.Context, namespace string, claims map[string]*claimState) error {
	if !slices.ContainsFunc(slices.Collect(maps.Values(claims)), func(s *claimState) bool {
		return s.tracks || s.deleting && s.protected
	}) {
		return nil
	}
	list, err := c.Engine.List(ctx, &engine.Request{Resource: c.pods, Namespace: namespace, User: c.user},
		engine.ListOptions{})
	if err != nil {
		return err
	}
	for o := range list.Items {
		if !namesClaims(o) {
			continue
		}
		pod, err := parsed(o)
		if err != nil {
			continue
		}
		for _, volume := range pod.At("spec", "volumes").Items() {
			if s := claims[claimOf(pod, volume)]; s != nil {
				refers, keeps := usesClaim(pod, volume, s.obj)
				s.used, s.keeps = s.used || refers, s.keeps || keeps
			}
		}
	}
	return list.Err()
}

// usesClaim says whether a Pod refers to the claim that a volume of it names, and whether it keeps it from being
// removed. One that waits for a node can be made to wait longer.
func usesClaim(pod, volume, claim object.Value) (refers, keeps bool) {
	meta := pod.At("metadata")
	if volume.At("persistentVolumeClaim").IsNull() && !controlledBy(claim, meta.At("uid").Str()) {
		return false, false // the claim of an ephemeral volume belongs to the Pod
	}
	refers = !hasEnded(pod) && (meta.At("deletionTimestamp").IsNull() || runs(pod))
	if pod.At("spec", "nodeName").Str() == "" {
		return refers, false
	}
	grace := meta.At("deletionGracePeriodSeconds")
	shutDown := !meta.At("deletionTimestamp").IsNull() && !grace.IsNull() && grace.Int() == 0
	return refers, !shutDown || !volume.At("persistentVolumeClaim").IsNull()
}

// runs says whether a container of a Pod may run: it neither waits nor has ended.
func runs(pod object.Value) bool {
	for _, list := range [...]string{"initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"} {
		for _, status := range pod.At("status", list).Items() {
			if state := status.At("state"); state.At("terminated").IsNull() && state.At("waiting").IsNull() {
				return true
			}
		}
	}
	return false
}

// bringUpToDate does what is to be done about one claim.
func (c *Claims) bringUpToDate(ctx context.Context, s *claimState) error {
	if said := s.condition.At("status").Str(); s.tracks && s.used && (s.condition.IsNull() || said == "True") {
		return c.say(ctx, s, condition{name: unusedCondition, status: "False", reason: "PodUsingPVC",
			message: "A pod is currently referencing this PVC"})
	} else if s.tracks && !s.used && said != "True" {
		return c.say(ctx, s, condition{name: unusedCondition, status: "True", reason: "NoPodsUsingPVC",
			message: "No pods are currently referencing this PVC"})
	}
	all := s.obj.At("metadata", "finalizers").Items()
	switch {
	case s.deleting && s.protected && !s.keeps:
		all = slices.DeleteFunc(slices.Clone(all), isClaimFinalizer)
	case !s.deleting && !s.protected:
		all = append(all[:len(all):len(all)], object.StringOf(claimFinalizer))
	default:
		return nil
	}
	return unlessChanged(c.Engine.Patch(ctx, c.request(s), setFinalizers(s.o, all)))
}

// say sets the condition of a claim. After it the claim is looked at again, as it has changed.
func (c *Claims) say(ctx context.Context, s *claimState, said condition) error {
	rq := c.request(s)
	rq.Subresource = c.of.Subresource("status")
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	list := slices.Clone(amend(s.obj.At("status", "conditions"), []condition{said}, now()).Items())
	for i, c := range list {
		if c.At("type").Str() == unusedCondition {
			list[i] = c.Without("lastProbeTime") // a new condition takes the place of another one's
		}
	}
	body := s.obj.WithAt(object.ListOf(list...), "status", "conditions")
	return unlessChanged(c.Engine.Update(ctx, rq, object.Parsed{Value: withRevision(body, s.o)}))
}

// request is a request about a claim.
func (c *Claims) request(s *claimState) *engine.Request {
	rq := c.of.RequestFor(s.o.Key)
	rq.User, rq.FieldManager = c.user, manager
	return rq
}

// setFinalizers is a patch that gives an object these finalizers, unless it has changed.
func setFinalizers(o *engine.Object, finalizers []object.Value) engine.Patch {
	list := object.Nil
	if len(finalizers) > 0 {
		list = object.ListOf(finalizers...)
	}
	return engine.Patch{Type: engine.MergePatch, Body: object.AppendJSON(nil, object.Fields("metadata", object.Fields(
		"uid", object.StringOf(o.Sidecar.UID), "resourceVersion", object.StringOf(fmt.Sprint(o.Revision)),
		"finalizers", list)))}
}
