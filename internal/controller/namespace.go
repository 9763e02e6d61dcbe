// Package controller does what a server on its own must do for its documentation to be true: it empties deleted
// namespaces and collects objects whose owners are gone (DEL-5), and deletes the objects of custom resources that are
// no longer defined (EXT-1). It speaks to the engine like any client.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// namespaceFinalizer is the entry of spec.finalizers that the namespace controller answers for.
const namespaceFinalizer = "kubernetes"

// Namespaces empties and finalizes deleted namespaces until its context ends (URI-5), and says in their status what
// is left in them, and why (DEL-5).
//
// It differs from the reference's controller in when it looks, and in one thing that it does. It begins at once and
// not after five seconds, and looks again when something becomes of what is left and not after an estimated time. And
// Pods of a Node that is not there are deleted without a grace period: nobody will ever say that they have ended.
// There the reference has another controller for such Pods (pod-garbage-collector-controller), which does the same
// after 40 seconds.
type Namespaces struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// Run works until ctx ends.
func (c *Namespaces) Run(ctx context.Context) { c.emptier().run(ctx) }

func (c *Namespaces) emptier() *emptier {
	e := &emptier{
		engine: c.Engine, logger: c.Logger, now: c.Now, what: "namespace", user: serviceAccount("namespace-controller"), pace: newPace(),
		of: c.Registry.Now().Find("", "v1", "namespaces"),
	}
	if e.now == nil {
		e.now = time.Now
	}
	e.empty = func(ctx context.Context, o *engine.Object) (leftovers, error) {
		return (&namespacePass{emptier: e, types: c.Registry.Now(), name: o.Key.Name, uid: o.Sidecar.UID}).run(ctx)
	}
	return e
}

// serviceAccount is the user as whom a controller of this name works, as in the reference with
// --use-service-account-credentials.
func serviceAccount(name string) access.User {
	return access.User{
		Name:   "system:serviceaccount:kube-system:" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", access.Authenticated},
	}
}

// namespacePass is one pass over what is in a namespace.
type namespacePass struct {
	*emptier
	types *engine.Types
	name  string
	uid   string

	left       leftovers
	remaining  map[string]int // objects left, by "RESOURCE.GROUP"
	finalizers map[string]int // objects left that have a finalizer
	failed     []error
}

// run deletes all that is in the namespace, says in its status what is left, and takes the finalizer from it when
// that is nothing. A type that cannot be emptied does not keep the others.
func (p *namespacePass) run(ctx context.Context) (leftovers, error) {
	p.left.namespace = p.name
	p.remaining, p.finalizers = map[string]int{}, map[string]int{}
	live, err := p.get(ctx)
	if err != nil || live.IsNull() || live.At("spec", "finalizers").Len() == 0 {
		return leftovers{}, err
	}
	deleted, err := time.Parse(time.RFC3339, live.At("metadata", "deletionTimestamp").Str())
	if err != nil {
		return leftovers{}, err
	}
	kinds := p.kinds()
	podsRemain := false
	if i := slices.IndexFunc(kinds, func(k *namespacedKind) bool { return k.names[0] == "pods." }); i >= 0 {
		podsRemain = p.pods(ctx, kinds[i], deleted)
		kinds = slices.Delete(kinds, i, i+1)
	}
	if podsRemain {
		// The rest stays until no Pod needs it any more, and is not spoken of before: not even the Pods are,
		// in the reference.
		clear(p.remaining)
		clear(p.finalizers)
	} else {
		for _, k := range kinds {
			p.kind(ctx, k, inBackground)
		}
	}
	if ctx.Err() != nil {
		return p.left, ctx.Err()
	}
	if err := p.report(ctx); err != nil {
		return p.left, errors.Join(append(p.failed, err)...)
	}
	if p.left.count() > 0 || len(p.failed) > 0 {
		return p.left, errors.Join(p.failed...)
	}
	return p.left, p.finalize(ctx)
}

// namespacedKind is a kind whose objects are in namespaces: one resource that serves it, and the names
// "RESOURCE.GROUP" under which its objects are counted.
type namespacedKind struct {
	resource *engine.Resource
	names    []string
}

// kinds lists the kinds whose objects are to be deleted. Objects are read and deleted in the version in which they
// are stored, if it is served, so that emptying a namespace depends on no conversion webhook.
func (p *namespacePass) kinds() []*namespacedKind {
	var kinds []*namespacedKind
	byPath := map[string]*namespacedKind{}
	for r := range p.types.All() {
		if !r.Namespaced || r.Stored == nil || !r.Has("delete") || !r.Has("list") {
			continue
		}
		k := byPath[r.Stored.Path]
		if k == nil {
			k = &namespacedKind{resource: r}
			byPath[r.Stored.Path] = k
			kinds = append(kinds, k)
		}
		if r.Served == r.Stored.Storage {
			k.resource = r
		}
		if name := r.Name + "." + r.Group; !slices.Contains(k.names, name) {
			k.names = append(k.names, name)
		}
	}
	return kinds
}

// kind deletes the objects of a kind, counts those that are left, and lists them.
func (p *namespacePass) kind(ctx context.Context, k *namespacedKind, how deletion) (rest []*engine.Object) {
	list, err := p.emptyOf(ctx, k.resource, p.name, how)
	if err != nil {
		p.failed = append(p.failed, err)
		return nil
	}
	byFinalizer := map[string]int{}
	for item := range list.Items {
		rest = append(rest, item)
		for _, f := range finalizers(item) {
			byFinalizer[f]++
		}
	}
	if err := list.Err(); err != nil {
		p.failed = append(p.failed, err)
	}
	if len(rest) == 0 {
		return nil
	}
	p.left.kinds = append(p.left.kinds, leftKind{resource: k.resource, count: len(rest), revision: list.Revision})
	for _, name := range k.names {
		p.remaining[name] = len(rest)
		for f, n := range byFinalizer {
			p.finalizers[f] += n
		}
	}
	if len(byFinalizer) == 0 && k.resource.GracefulDelete == nil {
		p.failed = append(p.failed, p.unexpected(k.resource))
	}
	return rest
}

// unexpected is that objects are left that nothing is known to hold, in the words of the reference.
func (p *namespacePass) unexpected(r *engine.Resource) error {
	return fmt.Errorf("unexpected items still remain in namespace: %s for gvr: %s/%s, Resource=%s",
		p.name, r.Group, r.Version, r.Name)
}

// pods deletes the Pods, with the grace periods that they ask for, and says whether some are left. That they are
// still there when the longest of these periods is over, counted from the deletion of the namespace, is an error,
// unless finalizers hold some.
func (p *namespacePass) pods(ctx context.Context, k *namespacedKind, deleted time.Time) (remain bool) {
	nodes := p.types.Find("", "v1", "nodes")
	there := map[string]bool{} // by the names of Nodes
	rest := p.kind(ctx, k, func(pod *engine.Object) engine.DeleteOptions {
		o := inBackground(pod)
		name := nodeOf(pod)
		if name == "" || nodes == nil {
			return o
		}
		is, asked := there[name]
		if !asked {
			_, err := p.engine.Get(ctx, &engine.Request{Resource: nodes, Name: name, User: p.user}, "")
			is = !apierr.Is(err, apierr.NotFound)
			there[name] = is
		}
		if !is {
			o.GracePeriodSeconds = new(int64)
		}
		return o
	})
	if len(rest) == 0 {
		return false
	}
	if len(there) > 0 {
		p.left.kinds = append(p.left.kinds, leftKind{resource: nodes, revision: p.left.kinds[0].revision, related: true})
	}
	if len(p.finalizers) > 0 {
		return true
	}
	grace := int64(0)
	for _, pod := range rest {
		obj, err := engine.ObjectOf(pod)
		if err != nil {
			continue // the list has failed by that
		}
		if phase := obj.At("status", "phase").Str(); phase != "Succeeded" && phase != "Failed" {
			grace = max(grace, obj.At("spec", "terminationGracePeriodSeconds").Int())
		}
	}
	if end := deleted.Add(time.Duration(grace) * time.Second); p.now().Before(end) {
		p.left.until = end
	} else {
		p.failed = append(p.failed, p.unexpected(k.resource))
	}
	return true
}

// nodeOf is the name of the Node that a Pod is bound to; "": it is bound to none.
func nodeOf(pod *engine.Object) string {
	for _, field := range pod.Sidecar.Fields {
		if field.Name == "spec.nodeName" {
			return field.Value
		}
	}
	return ""
}

// finalizers lists the finalizers of an object. Of one that cannot be read there are none; whoever lists it is told.
func finalizers(o *engine.Object) (names []string) {
	parsed, err := object.ParseMembers(o.Data, "metadata")
	if err != nil {
		return nil
	}
	for _, f := range parsed.Value.At("metadata", "finalizers").Items() {
		names = append(names, f.Str())
	}
	return names
}

// get reads the namespace; null: it is gone, or another one has its name.
func (p *namespacePass) get(ctx context.Context) (object.Value, error) {
	live, err := p.engine.Get(ctx, &engine.Request{Resource: p.of, Name: p.name, User: p.user}, "")
	if apierr.Is(err, apierr.NotFound) {
		return object.Nil, nil
	}
	if err != nil {
		return object.Nil, err
	}
	if live.Object.Sidecar.UID != p.uid || !live.Object.Sidecar.Deleting {
		return object.Nil, nil
	}
	obj, err := engine.ObjectOf(live.Object)
	return withRevision(obj, live.Object), err
}

// write changes a subresource of the namespace, and begins again when somebody else has changed the namespace
// meanwhile: the whole object is written back. A null value from change leaves it as it is.
func (p *namespacePass) write(ctx context.Context, subresource string, change func(object.Value) object.Value) error {
	rq := &engine.Request{
		Resource: p.of, Name: p.name, Subresource: p.of.Subresource(subresource),
		User: p.user, FieldManager: "kube-controller-manager",
	}
	for {
		live, err := p.get(ctx)
		if err != nil || live.IsNull() {
			return err
		}
		next := change(live)
		if next.IsNull() {
			return nil
		}
		written, err := p.engine.Update(ctx, rq, object.Parsed{Value: next})
		switch {
		case err == nil:
			p.left.wrote = written.Object.Revision
			return nil
		case apierr.Is(err, apierr.NotFound):
			return nil
		case !apierr.Is(err, apierr.Conflict):
			return err
		}
	}
}

// report says in the status what is left, and why.
func (p *namespacePass) report(ctx context.Context) error {
	said := conditions(p.failed, p.remaining, p.finalizers)
	return p.write(ctx, "status", func(live object.Value) object.Value {
		before := live.At("status", "conditions")
		after := amend(before, said, p.now())
		if object.Equal(before, after) {
			return object.Nil
		}
		return live.WithAt(after, "status", "conditions")
	})
}

// finalize removes the controller's finalizer, which lets the namespace go.
func (p *namespacePass) finalize(ctx context.Context) error {
	return p.write(ctx, "finalize", func(live object.Value) object.Value {
		var rest []object.Value
		all := live.At("spec", "finalizers").Items()
		for _, f := range all {
			if f.Str() != namespaceFinalizer {
				rest = append(rest, f)
			}
		}
		if len(rest) == len(all) {
			return object.Nil
		}
		slices.SortFunc(rest, func(a, b object.Value) int { return cmp.Compare(a.Str(), b.Str()) })
		return live.WithAt(object.ListOf(rest...), "spec", "finalizers")
	})
}

// condition is one of a namespace's, without its time.
type condition struct{ name, status, reason, message string }

// conditions are what the status of a namespace says of a pass, in the words and the order of the reference: what has
// failed, and how many objects are left by "RESOURCE.GROUP" and by finalizer. Types are always found here, and their
// group versions always make sense: no other server has any.
func conditions(failed []error, remaining, finalizers map[string]int) []condition {
	said := []condition{
		{"NamespaceDeletionDiscoveryFailure", "False",
			"ResourcesDiscovered", "All resources successfully discovered"},
		{"NamespaceDeletionGroupVersionParsingFailure", "False",
			"ParsedGroupVersions", "All legacy kube types successfully parsed"},
		{"NamespaceDeletionContentFailure", "False",
			"ContentDeleted", "All content successfully deleted, may be waiting on finalization"},
		{"NamespaceContentRemaining", "False",
			"ContentRemoved", "All content successfully removed"},
		{"NamespaceFinalizersRemaining", "False",
			"ContentHasNoFinalizers", "All content-preserving finalizers finished"},
	}
	if len(failed) > 0 {
		var texts []string
		for _, err := range failed {
			texts = append(texts, err.Error())
		}
		slices.Sort(texts)
		said[2].status, said[2].reason = "True", "ContentDeletionFailed"
		said[2].message = fmt.Sprintf("Failed to delete all resource types, %d remaining: %s",
			len(failed), strings.Join(texts, ", "))
	}
	if len(remaining) > 0 {
		said[3].status, said[3].reason = "True", "SomeResourcesRemain"
		said[3].message = "Some resources are remaining: " + counts(remaining, "%s has %d resource instances")
	}
	if len(finalizers) > 0 {
		said[4].status, said[4].reason = "True", "SomeFinalizersRemain"
		said[4].message = "Some content in the namespace has finalizers remaining: " +
			counts(finalizers, "%s in %d resource instances")
	}
	return said
}

func counts(numbers map[string]int, format string) string {
	var texts []string
	for name, n := range numbers {
		texts = append(texts, fmt.Sprintf(format, name, n))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

// amend puts what is said into a list of conditions. The time of one changes with its status alone; other types stay
// as they are.
func amend(list object.Value, said []condition, now time.Time) object.Value {
	items := slices.Clone(list.Items())
	for _, c := range said {
		time := object.StringOf(now.UTC().Format(time.RFC3339))
		i := slices.IndexFunc(items, func(item object.Value) bool { return item.At("type").Str() == c.name })
		if i < 0 {
			i, items = len(items), append(items, object.MapOf())
		} else if items[i].At("status").Str() == c.status {
			time = items[i].At("lastTransitionTime")
		}
		items[i] = items[i].Edit([]object.Member{
			{Key: "type", Value: object.StringOf(c.name)}, {Key: "status", Value: object.StringOf(c.status)},
			{Key: "reason", Value: object.StringOf(c.reason)}, {Key: "message", Value: object.StringOf(c.message)},
			{Key: "lastTransitionTime", Value: time},
		})
	}
	return object.ListOf(items...)
}
