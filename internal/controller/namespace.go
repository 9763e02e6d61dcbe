// Package controller has the controllers without which the API does not behave as documented: it empties deleted
// namespaces and collects garbage (DEL-5), deletes the objects of deleted definitions (EXT-1), and does what
// kube-controller-manager does for ServiceAccounts, ClusterRoles, CertificateSigningRequests and ServiceCIDRs. Names
// and users are those of kube-controller-manager, so that the real one can take over.
//
// A controller is a client of the engine: it reads, and writes on the precondition that what it read has not changed.
// It has no state that has to survive the process. Its nouns:
//
//   - a pass is one look at all objects that a controller is responsible for, or at the contents of one namespace or
//     definition.
//   - a worklist is a queue of tasks, each of which is one action on an object.
//   - a follower calls a function for each object of some types, and again when it changes.
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
	"plinth/internal/aggregation"
	"plinth/internal/apierr"
	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// namespaceFinalizer is the entry of spec.finalizers that the namespace controller removes.
const namespaceFinalizer = "kubernetes"

// Namespaces empties and finalizes deleted namespaces until its context ends (URI-5), and reports in their status
// what is left in them, and why (DEL-5).
//
// It differs from the reference's controller in two ways. It begins at once, and not after five seconds, and makes
// the next pass when an object that was left has changed, and not after an estimated time. And it deletes Pods of a
// Node that does not exist without a grace period, as no kubelet will ever end them; in the reference another
// controller (pod-garbage-collector-controller) does so after 40 seconds.
type Namespaces struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
	Busy     *pace.Busy       // nil: nobody asks
	// AtOthers deletes the objects of a namespace that aggregated API servers have, and says what is left. Nil: there
	// are no such servers.
	AtOthers func(ctx context.Context, namespace string, user access.User) aggregation.Contents
	// StaleAtOthers are the group versions of aggregated API servers that cannot be looked at. Nil: there are none.
	StaleAtOthers func() []string
}

// Start begins its loops.
func (c *Namespaces) Start(g *steps.Group) { c.emptier().start(g) }

func (c *Namespaces) emptier() *emptier {
	e := &emptier{
		engine: c.Engine, logger: c.Logger, now: c.Now, what: "namespace",
		user: access.ControllerAccount("namespace-controller"), pace: pace.New(), busy: c.Busy,
		of: c.Registry.Now().Find("", "v1", "namespaces"),
	}
	if e.now == nil {
		e.now = time.Now
	}
	e.empty = func(ctx context.Context, o *engine.Object) (leftovers, error) {
		return (&namespacePass{emptier: e, types: c.Registry.Now(), name: o.Key.Name, uid: o.Sidecar.UID,
			atOthers: c.AtOthers, staleAtOthers: c.StaleAtOthers}).run(ctx)
	}
	return e
}

// namespacePass is one pass over the contents of a namespace.
type namespacePass struct {
	*emptier
	types *engine.Types
	name  string
	uid   string
	// atOthers is Namespaces.AtOthers.
	atOthers func(ctx context.Context, namespace string, user access.User) aggregation.Contents
	// staleAtOthers is Namespaces.StaleAtOthers.
	staleAtOthers func() []string

	left       leftovers
	remaining  map[string]int // objects left, by "RESOURCE.GROUP"
	finalizers map[string]int // objects left that have a finalizer
	failed     []error
	stale      []string // group versions of other API servers that could not be looked at
	others     int      // objects left at other API servers
}

// run deletes the contents of the namespace, reports in its status what is left, and removes the finalizer when the
// namespace is empty. An error of one type does not stop the others.
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
		// Other objects stay as long as Pods may need them. The status does not count any of it, as in the
		// reference.
		clear(p.remaining)
		clear(p.finalizers)
		if p.staleAtOthers != nil {
			p.stale = p.staleAtOthers()
		}
	} else {
		for _, k := range kinds {
			p.kind(ctx, k, inBackground)
		}
		if p.atOthers != nil {
			p.others = p.add(p.atOthers(ctx, p.name, p.user))
		}
	}
	for name := range p.types.Unreadable() { // it is not known in which versions there are objects
		_, group, _ := strings.Cut(name, ".")
		p.stale = append(p.stale, group)
	}
	slices.Sort(p.stale)
	p.stale = slices.Compact(p.stale)
	if ctx.Err() != nil {
		return p.left, ctx.Err()
	}
	if err := p.report(ctx); err != nil {
		return p.left, errors.Join(append(p.failed, err)...)
	}
	switch { // nothing tells of a change at other API servers: an error makes another pass
	case len(p.stale) > 0:
		return p.left, errors.Join(append(p.failed, undiscovered(p.stale))...)
	case p.left.count() == 0 && len(p.failed) == 0 && p.others > 0:
		return p.left, fmt.Errorf("%d objects are left at other API servers", p.others)
	case p.left.count() > 0 || len(p.failed) > 0:
		return p.left, errors.Join(p.failed...)
	}
	return p.left, p.finalize(ctx)
}

// add counts what is left at other API servers, and returns the number of objects.
func (p *namespacePass) add(found aggregation.Contents) (all int) {
	for name, n := range found.Remaining {
		p.remaining[name] += n
		all += n
	}
	for name, n := range found.Finalizers {
		p.finalizers[name] += n
	}
	p.failed = append(p.failed, found.Failed...)
	p.stale = found.Stale
	return all
}

// undiscovered says of which group versions it is not known what they have, in the words of the reference.
func undiscovered(stale []string) error {
	var texts []string
	for _, gv := range stale {
		texts = append(texts, gv+": stale GroupVersion discovery: "+gv)
	}
	return fmt.Errorf("unable to retrieve the complete list of server APIs: %s", strings.Join(texts, ", "))
}

// namespacedKind is a namespaced kind: one resource that serves it, and the names "RESOURCE.GROUP" under which its
// objects are counted.
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

// unexpected means that objects are left although no finalizer keeps them, in the words of the reference.
func (p *namespacePass) unexpected(r *engine.Resource) error {
	return fmt.Errorf("unexpected items still remain in namespace: %s for gvr: %s/%s, Resource=%s",
		p.name, r.Group, r.Version, r.Name)
}

// pods deletes the Pods with their grace periods, and says whether some are left. It is an error if they are left
// after the longest of these periods, counted from the deletion of the namespace, unless finalizers keep them.
func (p *namespacePass) pods(ctx context.Context, k *namespacedKind, deleted time.Time) (remain bool) {
	nodes := p.types.Find("", "v1", "nodes")
	exists := map[string]bool{} // of Nodes, by name
	rest := p.kind(ctx, k, func(pod *engine.Object) engine.DeleteOptions {
		o := inBackground(pod)
		name := nodeOf(pod)
		if name == "" || nodes == nil {
			return o
		}
		found, known := exists[name]
		if !known {
			_, err := p.engine.Get(ctx, &engine.Request{Resource: nodes, Name: name, User: p.user}, "")
			found = !apierr.Is(err, apierr.NotFound)
			exists[name] = found
		}
		if !found {
			o.GracePeriodSeconds = new(int64)
		}
		return o
	})
	if len(rest) == 0 {
		return false
	}
	if len(exists) > 0 {
		p.left.kinds = append(p.left.kinds,
			leftKind{resource: nodes, revision: p.left.kinds[0].revision, related: true})
	}
	if len(p.finalizers) > 0 {
		return true
	}
	grace := int64(0)
	for _, pod := range rest {
		obj, err := engine.ObjectOf(pod)
		if err != nil {
			continue // then the list has failed, too
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

// nodeOf returns the name of the Node that a Pod is bound to, or "".
func nodeOf(pod *engine.Object) string {
	for _, field := range pod.Sidecar.Fields {
		if field.Name == "spec.nodeName" {
			return field.Value
		}
	}
	return ""
}

// finalizers returns the finalizers of an object; none of an unreadable one, about which the list returns an error.
func finalizers(o *engine.Object) (names []string) {
	parsed, err := object.ParseMembers(o.Data(), "metadata")
	if err != nil {
		return nil
	}
	for _, f := range parsed.Value.At("metadata", "finalizers").Items() {
		names = append(names, f.Str())
	}
	return names
}

// get reads the namespace; null if it is gone, or another one has its name.
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

// write changes a subresource of the namespace. After a conflict it reads the namespace again, as the whole object is
// written back. If change returns null, nothing is written.
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

// report writes to the status what is left, and why.
func (p *namespacePass) report(ctx context.Context) error {
	now := conditions(p.stale, p.failed, p.remaining, p.finalizers)
	return p.write(ctx, "status", func(live object.Value) object.Value {
		before := live.At("status", "conditions")
		after := amend(before, now, p.now())
		if object.Equal(before, after) {
			return object.Nil
		}
		return live.WithAt(after, "status", "conditions")
	})
}

// finalize removes the controller's finalizer; the namespace is deleted if it was the last one.
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

// condition is a condition of an object, without its time.
type condition struct {
	name, status, reason, message string
	generation                    int64 // observedGeneration; 0: none
	renewed                       bool  // its time is that of now, though its status is the same
}

// conditions returns the conditions of a namespace after a pass, in the words and the order of the reference: what
// has failed, and how many objects are left by "RESOURCE.GROUP" and by finalizer. Discovery fails for group versions
// of other API servers alone.
func conditions(stale []string, failed []error, remaining, finalizers map[string]int) []condition {
	list := []condition{
		{name: "NamespaceDeletionDiscoveryFailure", status: "False", reason: "ResourcesDiscovered",
			message: "All resources successfully discovered"},
		{name: "NamespaceDeletionGroupVersionParsingFailure", status: "False", reason: "ParsedGroupVersions",
			message: "All legacy kube types successfully parsed"},
		{name: "NamespaceDeletionContentFailure", status: "False", reason: "ContentDeleted",
			message: "All content successfully deleted, may be waiting on finalization"},
		{name: "NamespaceContentRemaining", status: "False", reason: "ContentRemoved",
			message: "All content successfully removed"},
		{name: "NamespaceFinalizersRemaining", status: "False", reason: "ContentHasNoFinalizers",
			message: "All content-preserving finalizers finished"},
	}
	if len(stale) > 0 {
		list[0].status, list[0].reason = "True", "DiscoveryFailed"
		list[0].message = fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(stale), undiscovered(stale))
	}
	if len(failed) > 0 {
		var texts []string
		for _, err := range failed {
			texts = append(texts, err.Error())
		}
		slices.Sort(texts)
		list[2].status, list[2].reason = "True", "ContentDeletionFailed"
		list[2].message = fmt.Sprintf("Failed to delete all resource types, %d remaining: %s",
			len(failed), strings.Join(texts, ", "))
	}
	if len(remaining) > 0 {
		list[3].status, list[3].reason = "True", "SomeResourcesRemain"
		list[3].message = "Some resources are remaining: " + counts(remaining, "%s has %d resource instances")
	}
	if len(finalizers) > 0 {
		list[4].status, list[4].reason = "True", "SomeFinalizersRemain"
		list[4].message = "Some content in the namespace has finalizers remaining: " +
			counts(finalizers, "%s in %d resource instances")
	}
	return list
}

func counts(numbers map[string]int, format string) string {
	var texts []string
	for name, n := range numbers {
		texts = append(texts, fmt.Sprintf(format, name, n))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

// amend updates a list of conditions. The time of a condition changes only with its status, or if it is renewed;
// conditions of other types stay.
func amend(list object.Value, said []condition, now time.Time) object.Value {
	items := slices.Clone(list.Items())
	for _, c := range said {
		time := object.StringOf(now.UTC().Format(time.RFC3339))
		i := slices.IndexFunc(items, func(item object.Value) bool { return item.At("type").Str() == c.name })
		if i < 0 {
			i, items = len(items), append(items, object.MapOf())
		} else if items[i].At("status").Str() == c.status && !c.renewed {
			time = items[i].At("lastTransitionTime")
		}
		set := []object.Member{
			{Key: "type", Value: object.StringOf(c.name)}, {Key: "status", Value: object.StringOf(c.status)},
			{Key: "reason", Value: object.StringOf(c.reason)}, {Key: "message", Value: object.StringOf(c.message)},
			{Key: "lastTransitionTime", Value: time},
		}
		if c.generation != 0 {
			set = append(set, object.Member{Key: "observedGeneration", Value: object.IntOf(c.generation)})
		}
		items[i] = items[i].Edit(set)
	}
	return object.ListOf(items...)
}
